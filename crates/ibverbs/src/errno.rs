//! How functions of C say that they failed. There are three ways, and each function has its own.

use std::ffi::c_int;
use std::ptr;

use roxe_verbs::{BadRequest, Error, PostError};

/// The result of what a function of C does; an `Err` holds errno.
pub(crate) type Done<T = ()> = Result<T, c_int>;

/// Errno of an error.
pub(crate) fn of(error: Error) -> c_int {
    error.errno()
}

/// Errno of a request that was refused.
pub(crate) fn of_post(reason: PostError) -> c_int {
    Error::from(BadRequest { index: 0, reason }).errno()
}

pub(crate) fn set(errno: c_int) {
    // SAFETY: each thread has an errno of its own.
    unsafe { *libc::__errno_location() = errno }
}

/// 0, or errno: most functions.
pub(crate) fn positive(done: Done) -> c_int {
    match done {
        Ok(()) => 0,
        Err(errno) => {
            set(errno);
            errno
        }
    }
}

/// 0, or -1 and errno set: those that ask the kernel directly in other libraries.
pub(crate) fn negative(done: Done) -> c_int {
    match done {
        Ok(()) => 0,
        Err(errno) => {
            set(errno);
            -1
        }
    }
}

/// What was made, or null and errno set.
pub(crate) fn pointer<T>(made: Done<*mut T>) -> *mut T {
    made.unwrap_or_else(|errno| {
        set(errno);
        ptr::null_mut()
    })
}
