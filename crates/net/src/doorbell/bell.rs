//! Who sleeps, and who ends a sleep: the words that pass between the two.
//!
//! A model checker runs this file too, with atomics and an event of its own: see `tests/bell.rs`.

use super::kernel::{AtomicU8, Event, Ordering};

/// A sleeper's bell.
#[derive(Debug)]
pub(super) struct Bell {
    pub(super) event: Event,
    state: AtomicU8,
}

/// Nobody sleeps, and nobody rang.
const IDLE: u8 = 0;
/// Somebody sleeps, or is about to: whoever rings sets the event.
const ASLEEP: u8 = 1;
/// Somebody rang, and nobody has heard it.
const RUNG: u8 = 2;

impl Bell {
    pub(super) fn new(event: Event) -> Self {
        Self { event, state: AtomicU8::new(IDLE) }
    }

    /// Ends the sleep going on, or the next one. Costs no system call while nobody sleeps.
    pub(super) fn ring(&self) {
        if self.state.swap(RUNG, Ordering::AcqRel) == ASLEEP {
            self.event.set();
        }
    }

    /// Whether the next sleep will end at once.
    #[cfg(feature = "af_xdp")]
    pub(super) fn is_rung(&self) -> bool {
        self.state.load(Ordering::Acquire) == RUNG
    }

    /// Lies down, unless somebody rang. Who gets a `true` sleeps until the event is set, and gets
    /// up then.
    pub(super) fn lie_down(&self) -> bool {
        let lies = self.state.compare_exchange(IDLE, ASLEEP, Ordering::AcqRel, Ordering::Acquire);
        if lies.is_err() {
            // Whoever rang once more in between is heard too: what it did before is seen.
            self.state.swap(IDLE, Ordering::AcqRel);
        }
        lies.is_ok()
    }

    /// Gets up; says whether somebody rang. `was_set` is whether the event was seen.
    pub(super) fn get_up(&self, was_set: bool) -> bool {
        // A call may have come after the sleep: its event will make one later sleep short.
        let rung = self.state.swap(IDLE, Ordering::AcqRel) == RUNG;
        if was_set {
            self.event.clear();
        }
        rung
    }
}
