//! Names that one process of the host has at a time.
//!
//! The kernel gives an abstract Unix socket address to one socket of a network namespace, and takes
//! it back when the last descriptor of that is gone, however its process ends. There are no rights
//! to such names: whoever takes one first has it.

#![allow(unsafe_code, reason = "a table of descriptors of one's own has no safe form")]

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, socket_with,
};

/// Names that are ours, in the hands of a thread with a table of file descriptors of its own: so a
/// child of `fork` has no part in them, and does not keep the name of a parent that is gone, and
/// they take no number that the program could want. Where the system does not allow that, children
/// have a part in them.
#[derive(Debug)]
pub struct Keeper {
    calls: Option<Sender<Call>>,
    thread: Option<JoinHandle<()>>,
}

/// What the thread is to do, and whom it tells how that went.
#[derive(Debug)]
struct Call {
    names: Vec<String>,
    takes: bool,
    done: Sender<io::Result<()>>,
}

impl Keeper {
    /// Of names of the calling thread's network namespace; it has none yet.
    ///
    /// # Errors
    /// The process can have no more threads.
    pub fn start() -> io::Result<Self> {
        let (calls, to_do) = channel();
        let builder = thread::Builder::new().name("roxe-ports".to_owned()).stack_size(STACK);
        let thread = builder.spawn(move || keep(&to_do))?;
        Ok(Self { calls: Some(calls), thread: Some(thread) })
    }

    /// Takes all of these names, or none.
    ///
    /// # Errors
    /// `EADDRINUSE`: somebody has one of them; `ENAMETOOLONG` from 108 bytes on; there is no file
    /// descriptor left.
    pub fn take(&self, names: Vec<String>) -> io::Result<()> {
        self.call(names, true)
    }

    /// Gives those of them back that it has; they are free behind this.
    pub fn release(&self, names: Vec<String>) {
        // A thread that is gone has nothing any more.
        let _ = self.call(names, false);
    }

    fn call(&self, names: Vec<String>, takes: bool) -> io::Result<()> {
        let (done, answer) = channel();
        let gone = || io::Error::from(io::ErrorKind::BrokenPipe);
        let calls = self.calls.as_ref().ok_or_else(gone)?;
        calls.send(Call { names, takes, done }).map_err(|_| gone())?;
        answer.recv().map_err(|_| gone())?
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.calls = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The thread.
fn keep(calls: &Receiver<Call>) {
    leave_descriptors();
    let mut kept: BTreeMap<String, OwnedFd> = BTreeMap::new();
    while let Ok(Call { names, takes, done }) = calls.recv() {
        let result = if takes {
            let taken = names.into_iter().map(|name| Ok((name.clone(), take(&name)?)));
            taken.collect::<io::Result<Vec<_>>>().map(|taken| kept.extend(taken))
        } else {
            names.iter().for_each(|name| drop(kept.remove(name)));
            Ok(())
        };
        // Who asked may be gone.
        let _ = done.send(result);
    }
}

/// The socket that has the name.
fn take(name: &str) -> io::Result<OwnedFd> {
    let socket = socket()?;
    bind(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
    Ok(socket)
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

/// Gives the calling thread a table of file descriptors of its own, in which there are none: so
/// none of the program's is kept open by it either.
fn leave_descriptors() {
    let flags = libc::CLOSE_RANGE_UNSHARE;
    // SAFETY: the thread has none yet, those of others stay in their table, and what it opens never
    // leaves it.
    let _ = unsafe { libc::syscall(libc::SYS_close_range, 0, libc::c_uint::MAX, flags) };
}

/// Bytes of the thread's stack.
const STACK: usize = 256 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_one_owner_and_is_free_when_that_has_gone() {
        let name = format!("roxe-test/{}", std::process::id());
        let names = Names::of_host().unwrap();
        assert!(!names.is_taken(&name));
        let [one, other] = [(); 2].map(|()| Keeper::start().unwrap());
        one.take(vec![name.clone()]).unwrap();
        let both = || vec![format!("{name}/more"), name.clone()];
        let again = other.take(both()).map_err(|error| error.kind());
        assert_eq!(again, Err(io::ErrorKind::AddrInUse));
        assert!(!names.is_taken(&both()[0]), "all or none");
        // Who asks twice does not keep it.
        assert!(names.is_taken(&name) && names.is_taken(&name));
        other.release(vec![name.clone()]);
        assert!(names.is_taken(&name), "it is not the other's");
        one.release(vec![name.clone()]);
        assert!(!names.is_taken(&name));
        other.take(both()).unwrap();
        drop(other);
        assert!(!names.is_taken(&name));
        assert!(one.take(vec!["n".repeat(108)]).is_err());
    }

    #[test]
    fn the_keeper_has_no_descriptors_but_its_own() {
        let ours = thread::spawn(|| {
            leave_descriptors();
            let _held = take(&format!("roxe-test/{}/apart", std::process::id())).unwrap();
            std::fs::read_dir("/proc/thread-self/fd").unwrap().count()
        });
        // The name, and the folder that is read.
        assert_eq!(ours.join().unwrap(), 2);
    }
}
