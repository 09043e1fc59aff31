//! What is still to be done when a process ends, as most do that leave their adapters open: peers
//! are parted from, queue pairs have their stories told, and recordings get all their frames.
//!
//! It is done when the process calls `exit` or returns from `main`. What the program does behind it
//! is as good as before: it has its adapters until the kernel takes them.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Once, mpsc};
use std::thread;
use std::time::Duration;

use roxe_verbs::Context;

use crate::device::say;
use crate::rdmacm::id::part_from_all;
use crate::session::Life;
use crate::{import, stories};

/// From now on it is done when this process ends. A child that never asks for it has nothing to do.
pub(crate) fn watch() {
    static ONCE: Once = Once::new();
    Life::watch_forks();
    LAST.store(Life::now().number(), Ordering::Relaxed);
    ONCE.call_once(|| {
        // Without room for it peers find out by themselves, and recordings lack their last frames.
        // SAFETY: the function stays, as does the library.
        let _ = unsafe { libc::atexit(at_exit) };
    });
}

/// There is a recording of which more is to be told if it lacks something.
pub(crate) fn expect_recordings() {
    RECORDED.store(Life::now().number(), Ordering::Relaxed);
}

/// In which process `watch` was called last.
static LAST: AtomicU32 = AtomicU32::new(NONE);

/// In which process a recording was begun last.
static RECORDED: AtomicU32 = AtomicU32::new(NONE);

/// No process.
const NONE: u32 = u32::MAX;

extern "C" fn at_exit() {
    let now = Life::now().number();
    if LAST.load(Ordering::Relaxed) != now {
        return;
    }
    match in_time(end) {
        // Their answers belong into the files. Who does not answer is not waited for.
        Some(recorded) if !recorded.is_empty() => {
            in_time(move || await_partings(&recorded));
        }
        None if RECORDED.load(Ordering::Relaxed) == now => say(NOT_IN_TIME.to_owned()),
        _ => {}
    }
}

/// Does all but wait for peers; says which adapters are recorded.
fn end() -> Vec<Context> {
    let recorded = import::recorded();
    // First of all: where the rest finds a lock held, their own threads may still do it.
    recorded.iter().filter_map(Context::recorder).for_each(|recorder| recorder.write_at_once());
    part_from_all();
    stories::of_all();
    recorded.iter().for_each(Context::catch_up);
    recorded
}

fn await_partings(of: &[Context]) {
    while of.iter().any(|context| context.partings() != 0) {
        thread::sleep(Duration::from_millis(1));
    }
}

/// Does it, but waits no longer than [`AT_MOST`]: whoever ends may hold a lock that it needs. Says
/// what came of it if it was done in time.
fn in_time<R: Send + 'static>(what: impl FnOnce() -> R + Send + 'static) -> Option<R> {
    let (done, wait) = mpsc::channel();
    // Without a thread to be had it is not done.
    thread::Builder::new().spawn(move || done.send(what())).ok()?;
    wait.recv_timeout(AT_MOST).ok()
}

/// How long a process that ends takes for it, and again for the answers of peers.
const AT_MOST: Duration = Duration::from_secs(1);

const NOT_IN_TIME: &str = "roxe: the process ended while an adapter was in use: the last frames \
                           of its recordings may be missing\n";

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn who_ends_with_a_lock_in_hand_ends() {
        static LOCK: Mutex<u32> = Mutex::new(0);
        let count = || *LOCK.lock().expect("nobody panicked") += 1;
        assert_eq!(in_time(count), Some(()));
        let held = LOCK.lock().expect("nobody panicked");
        assert_eq!(in_time(count), None);
        assert_eq!(*held, 1);
    }
}
