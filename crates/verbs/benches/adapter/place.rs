//! Who runs where.

use std::ffi::CStr;

use rustix::thread::{CpuSet, sched_setaffinity};

/// The core of the end that measures.
pub(crate) const END_A: usize = 0;

/// The core of the other one.
pub(crate) const END_B: usize = 1;

/// Keeps this thread, and those that it starts, on a core; where there is only one, anywhere. The
/// name is what a profile shows.
pub(crate) fn take(core: usize, name: &CStr) {
    let _ = rustix::thread::set_name(name);
    let mut set = CpuSet::new();
    set.set(core);
    let _ = sched_setaffinity(None, &set);
}

/// Runs something on a core.
pub(crate) fn on<R: Send>(core: usize, name: &CStr, run: impl FnOnce() -> R + Send) -> R {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            take(core, name);
            run()
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
