//! Whether a call that waits ends when the program has handled a signal.

use std::ffi::c_int;
use std::{mem, ptr};

/// Whether it does: other libraries wait in a read of the kernel's, which goes on behind a handler
/// that was installed with SA_RESTART, and fails with EINTR behind one that was not. Which of them
/// has run nobody tells: where the program has some of both, the wait ends.
pub(crate) fn end_waits() -> bool {
    (1..=libc::SIGRTMAX()).filter(|signal| !HAPPEN.contains(signal)).any(|signal| {
        // SAFETY: all of it being zero is a value that it may have; it is only asked for.
        unsafe {
            let mut action: libc::sigaction = mem::zeroed();
            let known = libc::sigaction(signal, ptr::null(), &raw mut action) == 0;
            let handled = ![libc::SIG_DFL, libc::SIG_IGN].contains(&action.sa_sigaction);
            known && handled && action.sa_flags & libc::SA_RESTART == 0
        }
    })
}

/// Waits for a signal that ends a wait; says how the wait ended.
pub(crate) fn wait() -> c_int {
    loop {
        // SAFETY: there is nothing to promise.
        unsafe { libc::pause() };
        if end_waits() {
            return libc::EINTR;
        }
    }
}

/// Signals that are not sent, but happen, and not while a thread sleeps.
const HAPPEN: [c_int; 5] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGTRAP];
