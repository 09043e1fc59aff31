//! Who runs where.

use rustix::thread::{CpuSet, sched_setaffinity};

/// The core of the end that measures.
pub(crate) const END_A: usize = 0;

/// The core of the other one.
pub(crate) const END_B: usize = 1;

/// Keeps this thread, and those that it starts, on a core; where there is only one, anywhere.
pub(crate) fn take(core: usize) {
    let mut set = CpuSet::new();
    set.set(core);
    let _ = sched_setaffinity(None, &set);
}

/// Runs something on a core.
pub(crate) fn on<R: Send>(core: usize, run: impl FnOnce() -> R + Send) -> R {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            take(core);
            run()
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
