//! One deadline per queue pair, and the earliest of all.
//!
//! A deadline that moves later, as an ACK timer does with every acknowledgement, costs nothing: the
//! old one stays in the heap, and when it comes the queue pair is asked again. So a call may be
//! spurious, never late.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use roxe_wire::Instant;

/// What a queue pair's slot remembers of its deadline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Armed(Option<Instant>);

/// The deadlines of all queue pairs, by slot.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    heap: BinaryHeap<Reverse<(Instant, u32)>>,
}

impl Timers {
    /// The queue pair in `slot` wants to be called at `deadline`.
    pub(crate) fn arm(&mut self, slot: u32, armed: &mut Armed, deadline: Option<Instant>) {
        let Some(deadline) = deadline else { return };
        if armed.0.is_none_or(|earlier| deadline < earlier) {
            armed.0 = Some(deadline);
            self.heap.push(Reverse((deadline, slot)));
        }
    }

    /// When the earliest deadline is, or was once.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.heap.peek().map(|Reverse((at, _))| *at)
    }

    /// A slot whose deadline has come, with the deadline.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<(Instant, u32)> {
        let Reverse((at, _)) = self.heap.peek()?;
        if *at > now {
            return None;
        }
        self.heap.pop().map(|Reverse(entry)| entry)
    }
}

impl Armed {
    /// Whether `at` is the deadline that is waited for, and not one from before; it is over then.
    pub(crate) fn disarm(&mut self, at: Instant) -> bool {
        let current = self.0 == Some(at);
        if current {
            self.0 = None;
        }
        current
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_deadlines_cost_no_entry_and_earlier_ones_win() {
        let mut timers = Timers::default();
        let mut armed = Armed::default();
        let at = Instant::from_nanos;
        timers.arm(3, &mut armed, Some(at(100)));
        timers.arm(3, &mut armed, Some(at(200)));
        assert_eq!(timers.heap.len(), 1);
        timers.arm(3, &mut armed, Some(at(50)));
        timers.arm(3, &mut armed, None);
        assert_eq!(timers.next(), Some(at(50)));
        assert_eq!(timers.pop(at(49)), None);
        assert_eq!(timers.pop(at(50)), Some((at(50), 3)));
        assert!(armed.disarm(at(50)));
        assert_eq!(timers.pop(at(1000)), Some((at(100), 3)));
        assert!(!armed.disarm(at(100)), "that one was replaced");
        assert_eq!(timers.next(), None);
    }
}
