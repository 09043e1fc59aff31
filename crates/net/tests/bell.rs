//! Every order in which threads may ring a bell and sleep beside it, with every value that the
//! memory model lets them see: no call is lost, and nobody sleeps for ever.
//!
//! The protocol is the one that ports use, the file itself; only its atomics and its event are the
//! model's. The rings of AF_XDP are libxdp's and the kernel's, and not modelled here.

#[path = "../src/doorbell/bell.rs"]
#[allow(dead_code, reason = "what only spins is not modelled")]
mod bell;

/// An event without a kernel, and atomics whose orders are all tried.
mod kernel {
    pub(super) use loom::sync::atomic::{AtomicU8, Ordering};
    use loom::sync::{Condvar, Mutex};

    #[derive(Debug)]
    pub(super) struct Event {
        is_set: Mutex<bool>,
        changed: Condvar,
    }

    impl Event {
        pub(super) fn new() -> Self {
            Self { is_set: Mutex::new(false), changed: Condvar::new() }
        }

        pub(super) fn set(&self) {
            *self.is_set.lock().unwrap() = true;
            self.changed.notify_all();
        }

        pub(super) fn clear(&self) {
            *self.is_set.lock().unwrap() = false;
        }

        /// As `poll` without a timeout. A kernel would wait for ever; the model says that nobody
        /// can go on.
        pub(super) fn wait(&self) {
            let mut is_set = self.is_set.lock().unwrap();
            while !*is_set {
                is_set = self.changed.wait(is_set).unwrap();
            }
        }
    }
}

use bell::Bell;
use kernel::Event;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

/// Sleeps until somebody rings.
fn sleep(bell: &Bell) {
    if bell.lie_down() {
        bell.event.wait();
        bell.get_up(true);
    }
}

/// What is done before a bell is rung is seen behind the sleep that it ends. No word is kept of how
/// much there is but that one, as between an application and its adapter's thread.
fn all_is_seen(callers: usize, each: usize) {
    let mut model = loom::model::Builder::new();
    // All orders of three threads take minutes; those with few turns taken away take a moment.
    model.preemption_bound = (callers > 1).then_some(2);
    model.check(move || {
        let bell = Arc::new(Bell::new(Event::new()));
        let done = Arc::new(AtomicUsize::new(0));
        let callers_threads: Vec<_> = (0..callers)
            .map(|_| {
                let (bell, done) = (Arc::clone(&bell), Arc::clone(&done));
                thread::spawn(move || {
                    for _ in 0..each {
                        done.fetch_add(1, Ordering::Relaxed);
                        bell.ring();
                    }
                })
            })
            .collect();
        while done.load(Ordering::Relaxed) < callers * each {
            sleep(&bell);
        }
        for caller in callers_threads {
            caller.join().unwrap();
        }
    });
}

#[test]
fn a_caller_that_calls_again_and_again_is_heard() {
    all_is_seen(1, 2);
}

#[test]
fn two_callers_are_both_heard() {
    all_is_seen(2, 1);
}

/// A sleep that a timeout, or something else, ends while somebody rings does not swallow the call.
#[test]
fn a_call_at_the_end_of_a_sleep_is_heard_by_the_next() {
    loom::model(|| {
        let bell = Arc::new(Bell::new(Event::new()));
        let done = Arc::new(AtomicUsize::new(0));
        let caller = {
            let (bell, done) = (Arc::clone(&bell), Arc::clone(&done));
            thread::spawn(move || {
                done.fetch_add(1, Ordering::Relaxed);
                bell.ring();
            })
        };
        // It lay down and got up without having looked at the event.
        if bell.lie_down() {
            bell.get_up(false);
        }
        while done.load(Ordering::Relaxed) == 0 {
            sleep(&bell);
        }
        caller.join().unwrap();
    });
}
