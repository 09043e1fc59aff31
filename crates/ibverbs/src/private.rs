//! What libraries of other adapters ask of libibverbs when they are loaded beside it: they find
//! that nothing is for them. Programs for all adapters load them too, so that each name must be
//! there.

use std::ffi::{c_int, c_void};
use std::ptr;

use crate::errno;

/// Whatever it would do, it does not: errno, as most say it.
pub(crate) extern "C" fn unsupported() -> c_int {
    errno::positive(Err(libc::EOPNOTSUPP))
}

/// The same for what gives a pointer.
pub(crate) extern "C" fn unsupported_pointer() -> *mut c_void {
    errno::set(libc::EOPNOTSUPP);
    ptr::null_mut()
}

/// The same for what says -1.
pub(crate) extern "C" fn unsupported_negative() -> c_int {
    errno::set(libc::EOPNOTSUPP);
    -1
}

/// What may pass unnoticed: another adapter's library makes itself known, something is logged.
pub(crate) extern "C" fn nothing() {}
