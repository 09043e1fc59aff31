//! How long round trips take: from packets that ask for an acknowledgement to that.
//!
//! A packet that is sent again is not measured, nor one sent before that: nobody knows which of
//! both was answered (Karn and Partridge, SIGCOMM 1987). Nor is one behind a READ or an atomic that
//! is under way: its answer waits for theirs.

use core::time::Duration;

use roxe_wire::{Instant, Psn};

/// Packets that ask, and when they were sent. In order; what finds no room is not measured.
#[derive(Clone, Debug)]
pub(super) struct RoundTrips {
    asked: [(Psn, Instant); ASKED],
    first: usize,
    count: usize,
}

/// So many are measured at once.
const ASKED: usize = 32;

impl RoundTrips {
    pub(super) const fn new() -> Self {
        Self { asked: [(Psn::new(0), Instant::ZERO); ASKED], first: 0, count: 0 }
    }

    /// Whether none is measured.
    pub(super) const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// A packet was sent for the first time, and asks.
    pub(super) const fn asked(&mut self, now: Instant, psn: Psn) {
        if self.count < ASKED {
            self.asked[(self.first + self.count) % ASKED] = (psn, now);
            self.count += 1;
        }
    }

    /// All before `unacknowledged` is acknowledged now. Says how long the newest of those took that
    /// are measured.
    pub(super) fn acknowledged(&mut self, now: Instant, unacknowledged: Psn) -> Option<Duration> {
        let mut newest = None;
        while self.count > 0 {
            let (psn, at) = self.asked[self.first];
            if psn.since(unacknowledged) >= 0 {
                break;
            }
            newest = Some(now.since(at));
            self.first = (self.first + 1) % ASKED;
            self.count -= 1;
        }
        newest
    }

    /// Packets are sent again: none of those under way is measured.
    pub(super) const fn forget(&mut self) {
        self.count = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: u64) -> Instant {
        Instant::from_nanos(micros * 1000)
    }

    #[test]
    fn the_newest_that_is_acknowledged_is_measured_over_the_wrap_of_numbers() {
        let mut trips = RoundTrips::new();
        let psn = |number: i32| Psn::new(number.cast_unsigned());
        for (time, number) in [(0, -2), (1, -1), (2, 0), (3, 4)] {
            trips.asked(at(time), psn(number));
        }
        assert_eq!(trips.acknowledged(at(10), psn(-2)), None);
        assert_eq!(trips.acknowledged(at(10), psn(0)), Some(Duration::from_micros(9)));
        assert_eq!(trips.acknowledged(at(10), psn(0)), None);
        assert_eq!(trips.acknowledged(at(11), psn(4)), Some(Duration::from_micros(9)));
        trips.forget();
        assert_eq!(trips.acknowledged(at(12), psn(5)), None);
    }

    #[test]
    fn more_than_there_is_room_for_are_not_measured() {
        let mut trips = RoundTrips::new();
        (0..100).for_each(|number| trips.asked(at(number.into()), Psn::new(number)));
        assert_eq!(trips.acknowledged(at(100), Psn::new(100)), Some(Duration::from_micros(69)));
        trips.asked(at(100), Psn::new(100));
        assert_eq!(trips.acknowledged(at(105), Psn::new(101)), Some(Duration::from_micros(5)));
    }
}
