//! Sharing objects between contexts of one process. An adapter belongs to one process, and there
//! is nobody to ask for those of another.

use std::ffi::{c_int, c_void};
use std::os::fd::AsRawFd as _;
use std::sync::{Mutex, PoisonError};
use std::{mem, ptr};

use roxe_verbs::Context;

use crate::device::Device;
use crate::domain::Pd;
use crate::errno::{self, Done};
use crate::layout::{ibv_context, ibv_mr, ibv_pd};
use crate::memory::Mr;
use crate::session::{Object, Session};

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

/// The first thing that is found in a context of this process; nobody closes one meanwhile.
pub(crate) fn find_in_ours<R>(find: impl FnMut(&Session) -> Option<R>) -> Option<R> {
    sessions(|all| {
        let of = |&address: &usize| {
            // SAFETY: it is in the list, so that nobody has closed it.
            unsafe { &*ptr::with_exposed_provenance::<Session>(address) }
        };
        all.iter().map(of).filter(|session| session.is_ours()).find_map(find)
    })
}

/// The adapters that this process has open and that are recorded.
pub(crate) fn recorded() -> Vec<Context> {
    let mut all = Vec::new();
    let _: Option<()> = find_in_ours(|session| {
        let context = session.context().ok();
        all.extend(context.filter(|context| context.recorder().is_some()).cloned());
        None
    });
    all
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
    let found = find_in_ours(|session| {
        let file = session.open().and_then(|open| file_of(open.command.as_raw_fd()));
        (file == Ok(wanted)).then_some(session.device)
    });
    found.ok_or(libc::EINVAL)
}

/// The object of this number in any context of the same adapter.
fn numbered<T: Object>(session: &Session, number: u32) -> Done<*mut T> {
    let found = find_in_ours(|other| {
        let is_same = ptr::eq(other.device, session.device);
        is_same.then(|| other.numbered::<T>(number)).flatten()
    });
    found.ok_or(libc::EINVAL)
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
    unsafe { forget::<Pd>(pd) };
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
    unsafe { forget::<Mr>(mr) };
}

/// Takes an imported object from the program. That of a process that forked stays, as its handle
/// is of an adapter that is not ours.
///
/// # Safety
/// As [`Object::take`].
unsafe fn forget<T: Object>(object: *mut T::Public) {
    // SAFETY: the caller promises it.
    if unsafe { T::of(object) }.is_ok() {
        // SAFETY: as above.
        drop(unsafe { T::take(object) });
    }
}

/// Memory of a device there is none.
pub(crate) extern "C" fn ibv_unimport_dm(_dm: *mut c_void) {}
