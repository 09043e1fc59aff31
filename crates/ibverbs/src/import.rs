//! Sharing objects between contexts of one process. An adapter belongs to one process, and there
//! is nobody to ask for those of another.

use std::ffi::{c_int, c_void};
use std::os::fd::AsRawFd as _;
use std::sync::{Mutex, PoisonError};
use std::{mem, ptr};

use crate::device::Device;
use crate::domain::Pd;
use crate::errno::{self, Done};
use crate::layout::{ibv_context, ibv_mr, ibv_pd};
use crate::memory::Mr;
use crate::session::{Object as _, Session};

/// The open contexts, by address.
static SESSIONS: Mutex<Vec<usize>> = Mutex::new(Vec::new());

pub(crate) fn add(session: *mut Session) {
    sessions(|all| all.push(session.expose_provenance()));
}

pub(crate) fn remove(session: *mut Session) {
    sessions(|all| all.retain(|&known| known != session.addr()));
}

fn sessions<R>(call: impl FnOnce(&mut Vec<usize>) -> R) -> R {
    call(&mut SESSIONS.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Does something with each that is of this process.
pub(crate) fn each(mut call: impl FnMut(&Session)) {
    sessions(|all| {
        for &address in &*all {
            // SAFETY: it is in the list, so that nobody has closed it.
            let session = unsafe { &*ptr::with_exposed_provenance::<Session>(address) };
            if session.is_ours() {
                call(session);
            }
        }
    });
}

/// Which file a descriptor is of.
fn file_of(fd: c_int) -> Done<(u64, u64)> {
    // SAFETY: all of it being zero is a value that it may have, and the kernel fills it.
    unsafe {
        let mut about: libc::stat = mem::zeroed();
        match libc::fstat(fd, &raw mut about) {
            0 => Ok((about.st_dev, about.st_ino)),
            _ => Err(libc::EBADF),
        }
    }
}

/// The device of the context whose `cmd_fd` this is, or a duplicate of it.
pub(crate) fn device_of(fd: c_int) -> Done<&'static Device> {
    let wanted = file_of(fd)?;
    sessions(|all| {
        all.iter()
            .map(|&address| {
                // SAFETY: it is in the list, so that nobody has closed it.
                unsafe { &*ptr::with_exposed_provenance::<Session>(address) }
            })
            .find(|session| file_of(session.command.as_raw_fd()) == Ok(wanted))
            .map(|session| session.device)
            .ok_or(libc::EINVAL)
    })
}

/// The object of this number in any context of the same adapter.
fn numbered<T: crate::session::Object>(session: &Session, number: u32) -> Done<*mut T> {
    sessions(|all| {
        all.iter()
            .map(|&address| {
                // SAFETY: it is in the list, so that nobody has closed it.
                unsafe { &*ptr::with_exposed_provenance::<Session>(address) }
            })
            .filter(|other| ptr::eq(other.device, session.device))
            .find_map(|other| other.numbered::<T>(number))
            .ok_or(libc::EINVAL)
    })
}

pub(crate) unsafe extern "C" fn ibv_import_pd(
    context: *mut ibv_context,
    handle: u32,
) -> *mut ibv_pd {
    // SAFETY: the program has opened it.
    let made = unsafe { Session::of(context) }.and_then(|session| {
        let original = numbered::<Pd>(session, handle)?;
        // SAFETY: it is in the list, so that nobody has destroyed it.
        let domain = unsafe { (*original).domain()?.clone() };
        Ok(Pd::import(session, context, domain, handle))
    });
    errno::pointer(made)
}

pub(crate) unsafe extern "C" fn ibv_unimport_pd(pd: *mut ibv_pd) {
    // SAFETY: the program has imported it.
    unsafe { drop(Pd::take(pd)) };
}

pub(crate) unsafe extern "C" fn ibv_import_mr(pd: *mut ibv_pd, handle: u32) -> *mut ibv_mr {
    // SAFETY: the program has made the domain.
    let made = unsafe { Pd::of(pd).and_then(|_| Session::of((*pd).context)) }.and_then(|session| {
        let original = numbered::<Mr>(session, handle)?;
        // SAFETY: it is in the list, so that nobody has destroyed it; the domain was made.
        unsafe { Ok(Mr::import(session, &*original, pd)) }
    });
    errno::pointer(made)
}

pub(crate) unsafe extern "C" fn ibv_unimport_mr(mr: *mut ibv_mr) {
    // SAFETY: the program has imported it.
    unsafe { drop(Mr::take(mr)) };
}

/// Memory of a device there is none.
pub(crate) extern "C" fn ibv_unimport_dm(_dm: *mut c_void) {}
