//! What is still to be done when a process ends, as most do that leave their adapters open: peers
//! are parted from, queue pairs have their stories told, and recordings get all their frames.
//!
//! It is done when the process calls `exit` or returns from `main`. What the program does behind it
//! is as good as before: it has its adapters until the kernel takes them.

use std::mem;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Once, PoisonError, TryLockError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use roxe_verbs::Context;

use crate::device::{say_without_waiting, without_signals};
use crate::rdmacm::id::part_from_all;
use crate::rdmacm::sockets::LastWords;
use crate::session::Life;
use crate::{import, stories};

/// Who does it. Whoever calls `exit` may be the handler of a signal, which has come to where memory
/// was being taken: that does not make a thread, nor take memory, but wakes one that is there.
struct Helper {
    step: Mutex<Step>,
    changed: Condvar,
}

/// How far it is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Idle,
    Asked,
    /// All is done but waiting for peers, if there is that to do.
    Ended {
        waits: bool,
    },
    Over,
    /// It is not needed any more.
    Dismissed,
}

/// That of the process, while it has an adapter open.
struct Helping {
    helper: Arc<Helper>,
    thread: JoinHandle<()>,
    life: Life,
}

static HELPING: Mutex<Option<Helping>> = Mutex::new(None);

fn helping() -> MutexGuard<'static, Option<Helping>> {
    HELPING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// From now on it is done when this process ends. A child that never asks for it has nothing to do.
pub(crate) fn watch() {
    static ONCE: Once = Once::new();
    Life::watch_forks();
    ONCE.call_once(|| {
        // Without room for it peers find out by themselves, and recordings lack their last frames.
        // SAFETY: the function stays, as does the library.
        let _ = unsafe { libc::atexit(at_exit) };
    });
    let mut helping = helping();
    if helping.as_ref().is_some_and(|helping| helping.life.goes_on()) {
        return;
    }
    // That of the process that forked is not for us to let go of: its thread is not here.
    mem::forget(helping.take());
    let helper = Arc::new(Helper { step: Mutex::new(Step::Idle), changed: Condvar::new() });
    let it = Arc::clone(&helper);
    let builder = thread::Builder::new().name("roxe-exit".to_owned());
    let thread = without_signals(|| builder.spawn(move || it.help()));
    // Without a thread to be had it is not done.
    *helping = thread.ok().map(|thread| Helping { helper, thread, life: Life::now() });
}

/// An adapter was closed: if none is open there is nothing to do at the end.
pub(crate) fn look_whether_needed() {
    let mut helping = helping();
    if import::find_in_ours(|_| Some(())).is_some() {
        return;
    }
    let Some(Helping { helper, thread, .. }) = helping.take_if(|helping| helping.life.goes_on())
    else {
        return;
    };
    let step = *helper.step();
    // What it was asked for may never be over.
    if step == Step::Idle {
        helper.go_to(Step::Dismissed);
        // It is about to end, without a panic.
        let _ = thread.join();
    }
}

impl Helper {
    fn step(&self) -> MutexGuard<'_, Step> {
        self.step.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn go_to(&self, step: Step) {
        *self.step() = step;
        self.changed.notify_all();
    }

    /// What its thread does.
    fn help(&self) {
        let asked = self.changed.wait_while(self.step(), |step| *step == Step::Idle);
        if *asked.unwrap_or_else(PoisonError::into_inner) == Step::Dismissed {
            return;
        }
        let (recorded, words) = end();
        self.go_to(Step::Ended { waits: !recorded.is_empty() || !words.is_empty() });
        drop(words);
        await_partings(&recorded);
        recorded.iter().for_each(Context::catch_up);
        self.go_to(Step::Over);
    }

    /// Waits while it is at this step, but no longer than [`AT_MOST`]: whoever ends may hold a lock
    /// that it needs, and a peer may be gone. Says where it is then.
    fn wait_while(&self, at: Step) -> Step {
        let waited = self.changed.wait_timeout_while(self.step(), AT_MOST, |step| *step == at);
        let (step, _) = waited.unwrap_or_else(PoisonError::into_inner);
        *step
    }
}

/// There is a recording of which more is to be told if it lacks something.
pub(crate) fn expect_recordings() {
    RECORDED.store(Life::now().number(), Ordering::Relaxed);
}

/// In which process a recording was begun last.
static RECORDED: AtomicU32 = AtomicU32::new(NONE);

/// No process.
const NONE: u32 = u32::MAX;

extern "C" fn at_exit() {
    let helping = match HELPING.try_lock() {
        Ok(helping) => helping,
        Err(TryLockError::Poisoned(helping)) => helping.into_inner(),
        // An adapter is being opened or closed.
        Err(TryLockError::WouldBlock) => {
            if RECORDED.load(Ordering::Relaxed) == Life::now().number() {
                say_without_waiting(NOT_IN_TIME);
            }
            return;
        }
    };
    let Some(Helping { helper, life, .. }) = &*helping else { return };
    if !life.goes_on() {
        return;
    }
    helper.go_to(Step::Asked);
    match helper.wait_while(Step::Asked) {
        // Answers belong into the files. Who does not answer is not waited for.
        step @ Step::Ended { waits: true } => {
            helper.wait_while(step);
        }
        Step::Asked if RECORDED.load(Ordering::Relaxed) == life.number() => {
            say_without_waiting(NOT_IN_TIME);
        }
        _ => {}
    }
}

/// Does all but wait for peers; says which adapters are recorded, and what is still with sockets.
fn end() -> (Vec<Context>, LastWords) {
    let recorded = import::recorded();
    // First of all: where the rest finds a lock held, their own threads may still do it.
    recorded.iter().filter_map(Context::recorder).for_each(|recorder| recorder.write_at_once());
    let words = part_from_all();
    stories::of_all();
    recorded.iter().for_each(Context::catch_up);
    (recorded, words)
}

fn await_partings(of: &[Context]) {
    while of.iter().any(|context| context.partings() != 0) {
        thread::sleep(Duration::from_millis(1));
    }
}

/// How long a process that ends takes for it, and again for the answers of peers.
const AT_MOST: Duration = Duration::from_secs(1);

const NOT_IN_TIME: &str = "roxe: the process ended while an adapter was in use: the last frames \
                           of its recordings may be missing\n";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_ends_with_a_lock_in_hand_ends() {
        let helper = Helper { step: Mutex::new(Step::Idle), changed: Condvar::new() };
        helper.go_to(Step::Asked);
        // Nobody does it.
        assert!(helper.wait_while(Step::Asked) == Step::Asked);
        thread::scope(|scope| {
            scope.spawn(|| helper.go_to(Step::Over));
            assert!(helper.wait_while(Step::Asked) == Step::Over);
        });
    }
}
