//! Names that one process of the host has at a time.
//!
//! The kernel gives an abstract Unix socket address to one socket of a network namespace, and takes
//! it back when the last descriptor of that is gone, however its process ends. There are no rights
//! to such names: whoever takes one first has it.

#![allow(unsafe_code, reason = "a table of descriptors of one's own has no safe form")]

use std::io;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, socket_with,
};

/// A name that is ours.
#[derive(Debug)]
pub struct Name {
    _socket: OwnedFd,
}

impl Name {
    /// Takes a name in the calling thread's network namespace.
    ///
    /// # Errors
    /// `EADDRINUSE`: somebody has it; `ENAMETOOLONG` from 108 bytes on; the process has no file
    /// descriptor left.
    pub fn take(name: &str) -> io::Result<Self> {
        let socket = socket()?;
        bind(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
        Ok(Self { _socket: socket })
    }
}

/// Asks whether names are taken, without touching them.
#[derive(Debug)]
pub struct Names {
    socket: OwnedFd,
}

impl Names {
    /// Those of the calling thread's network namespace.
    ///
    /// # Errors
    /// The process has no file descriptor left.
    pub fn of_host() -> io::Result<Self> {
        Ok(Self { socket: socket()? })
    }

    /// Whether somebody has a name, this process included.
    pub fn is_taken(&self, name: &str) -> bool {
        let Ok(name) = SocketAddrUnix::new_abstract_name(name.as_bytes()) else { return false };
        // Whoever has it need not talk to us.
        !matches!(connect(&self.socket, &name), Err(Errno::CONNREFUSED))
    }
}

fn socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)?)
}

/// Gives the calling thread a table of file descriptors of its own, in which there are none: what
/// it opens from now on no child of the process inherits, and none of the program's descriptors is
/// kept open by it. Where the system does not allow it, nothing changes, and children of `fork`
/// have a part in what the thread opens.
///
/// # Safety
/// The thread must not use a descriptor that was opened before or elsewhere, nor hand out one that
/// it opens.
pub unsafe fn leave_descriptors() {
    let flags = libc::CLOSE_RANGE_UNSHARE;
    // SAFETY: the caller promises that the thread has none that it would miss.
    let _ = unsafe { libc::syscall(libc::SYS_close_range, 0, libc::c_uint::MAX, flags) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_one_owner_and_is_free_when_that_has_gone() {
        let name = format!("roxe-test/{}", std::process::id());
        let names = Names::of_host().unwrap();
        assert!(!names.is_taken(&name));
        let held = Name::take(&name).unwrap();
        let again = Name::take(&name).map_err(|error| error.kind());
        assert_eq!(again.err(), Some(io::ErrorKind::AddrInUse));
        // Who asks twice does not keep it.
        assert!(names.is_taken(&name) && names.is_taken(&name));
        drop(held);
        assert!(!names.is_taken(&name));
        Name::take(&name).unwrap();
        assert!(Name::take(&"n".repeat(108)).is_err());
    }

    #[test]
    fn who_leaves_the_descriptors_opens_none_that_others_have() {
        let ours = std::thread::spawn(|| {
            // SAFETY: the thread has none, and keeps what it opens.
            unsafe { leave_descriptors() };
            let _held = Name::take(&format!("roxe-test/{}/apart", std::process::id())).unwrap();
            std::fs::read_dir("/proc/thread-self/fd").unwrap().count()
        });
        // The name, and the folder that is read.
        assert_eq!(ours.join().unwrap(), 2);
    }
}
