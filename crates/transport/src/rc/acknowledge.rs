//! When an answer is owed, which one wins, and what stands in it.
//!
//! IBA vol 1 §9.7.5.1.2 (coalescing): one acknowledgement may cover many requests, but one that was
//! asked for is not held back for long. Answers leave in the order of PSNs, so data of READs and
//! results of atomics go before the acknowledgement of what follows them.

use std::collections::VecDeque;

use roxe_wire::{Instant, Msn, Psn, Syndrome};

use crate::conduct::Acknowledge;

/// The answers that a responder owes besides those of [`Resources`](super::replay::Resources).
#[derive(Clone, Debug, Default)]
pub(crate) struct Owed {
    /// A positive acknowledgement of everything executed so far.
    acknowledgement: bool,
    /// How many requests asked for it.
    asked: u8,
    /// It waits until then for more to acknowledge.
    held_until: Option<Instant>,
    /// Acknowledgements of one request each, oldest first: [`MOST_EACH`] at the most.
    each: VecDeque<Answer>,
    /// A refusal, of the packet with this PSN.
    refusal: Option<(Psn, Syndrome)>,
}

/// What an acknowledgement says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) psn: Psn,
    pub(crate) syndrome: Syndrome,
    pub(crate) msn: Msn,
}

impl Owed {
    /// Somebody asked for an acknowledgement of all up to `newest`.
    //= 06-6.1
    //= 06-6.2
    pub(crate) fn acknowledge(&mut self, how: Acknowledge, now: Instant, newest: Answer) {
        match how {
            Acknowledge::AtOnce => self.acknowledgement = true,
            Acknowledge::Each => self.acknowledge_each(newest),
            Acknowledge::Held { requests, wait } => {
                self.asked = self.asked.saturating_add(1);
                if self.asked >= requests {
                    self.held_until = None;
                } else if !self.acknowledgement {
                    self.held_until = Some(now + wait);
                }
                self.acknowledgement = true;
            }
        }
    }

    /// One request has an acknowledgement of its own. Beyond so many the last one stands for those
    /// that it covers: a peer that asks faster than it is answered gets fewer answers, and misses
    /// nothing.
    fn acknowledge_each(&mut self, newest: Answer) {
        if self.each.len() >= MOST_EACH {
            self.each.pop_back();
        }
        self.each.push_back(newest);
    }

    /// A packet is refused. Its NAK acknowledges everything before, and nothing behind it is
    /// acknowledged any more.
    pub(crate) fn refuse(&mut self, psn: Psn, syndrome: Syndrome) {
        self.each.retain(|answer| answer.psn.since(psn) < 0);
        self.refusal = Some((psn, syndrome));
        self.done();
    }

    /// The packet that was refused has come again and is executed.
    pub(crate) const fn forget_refusal(&mut self) {
        self.refusal = None;
    }

    /// A response with `psn`, which acknowledges all before it, was sent; `newest` is the newest
    /// request executed.
    //= 04-4.3
    pub(crate) fn implied_by(&mut self, psn: Psn, newest: Psn) {
        if psn.since(newest) >= 0 {
            self.done();
        }
    }

    /// No acknowledgement is owed any more.
    const fn done(&mut self) {
        self.acknowledgement = false;
        self.asked = 0;
        self.held_until = None;
    }

    /// Whether anything is to be sent now.
    pub(crate) fn any(&self) -> bool {
        self.acknowledgement && self.held_until.is_none()
            || self.refusal.is_some()
            || !self.each.is_empty()
    }

    /// Whether a refusal is owed.
    pub(crate) const fn is_refusal(&self) -> bool {
        self.refusal.is_some()
    }

    /// Whether an acknowledgement is owed that goes before a response with this PSN.
    pub(crate) fn goes_before(&self, psn: Psn) -> bool {
        self.each.front().is_some_and(|answer| answer.psn.since(psn) < 0)
    }

    /// Until when an acknowledgement is held back.
    pub(crate) const fn deadline(&self) -> Option<Instant> {
        self.held_until
    }

    /// Time has passed.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        if self.held_until.is_some_and(|until| until <= now) {
            self.held_until = None;
        }
    }

    /// The answer that goes out next; `newest` is a positive one of all that was executed.
    //= R27, 04-4.3
    pub(crate) fn next(&self, newest: Answer) -> Option<Answer> {
        match (self.each.front(), self.refusal) {
            (Some(answer), _) => Some(*answer),
            (None, Some((psn, syndrome))) => Some(Answer { psn, syndrome, ..newest }),
            (None, None) => self.any().then_some(newest),
        }
    }

    /// That answer was sent.
    pub(crate) fn sent(&mut self) {
        if self.each.pop_front().is_none() && self.refusal.take().is_none() {
            self.done();
        }
    }
}

/// How many acknowledgements of one request each wait to be sent: as many as a peer of our own has
/// packets unacknowledged.
const MOST_EACH: usize = 256;

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;
    use roxe_wire::{Credits, NakCode};

    const START: Instant = Instant::ZERO;
    const HELD: Acknowledge = Acknowledge::Held { requests: 3, wait: Duration::from_micros(8) };

    /// What goes out next, and is out then.
    fn take(owed: &mut Owed, newest: Answer) -> Option<Answer> {
        let answer = owed.next(newest)?;
        owed.sent();
        Some(answer)
    }

    fn answer(psn: u32) -> Answer {
        let syndrome = Syndrome::Ack(Credits::INVALID);
        Answer { psn: Psn::new(psn), syndrome, msn: Msn::new(psn) }
    }

    //= 06-6.2 test
    #[test]
    fn a_held_acknowledgement_leaves_when_enough_have_asked_or_in_time() {
        let mut owed = Owed::default();
        for psn in 1..3 {
            owed.acknowledge(HELD, START, answer(psn));
            assert!(!owed.any() && take(&mut owed, answer(psn)).is_none());
        }
        owed.acknowledge(HELD, START, answer(3));
        assert!(owed.any());
        assert_eq!(take(&mut owed, answer(3)), Some(answer(3)));
        owed.acknowledge(HELD, START, answer(4));
        let until = owed.deadline().expect("it is held");
        assert_eq!(until, START + Duration::from_micros(8));
        owed.handle_timeout(START);
        assert!(!owed.any());
        owed.handle_timeout(until);
        assert_eq!((take(&mut owed, answer(4)), owed.any()), (Some(answer(4)), false));
    }

    #[test]
    fn an_answer_that_implies_a_held_acknowledgement_takes_its_place() {
        let mut owed = Owed::default();
        owed.acknowledge(HELD, START, answer(4));
        owed.implied_by(Psn::new(3), Psn::new(4));
        assert!(owed.deadline().is_some());
        owed.implied_by(Psn::new(4), Psn::new(4));
        assert_eq!((owed.deadline(), owed.any()), (None, false));
        owed.acknowledge(HELD, START, answer(5));
        let nak = Syndrome::Nak(NakCode::PsnSequenceError);
        owed.refuse(Psn::new(6), nak);
        let refusal = Answer { psn: Psn::new(6), syndrome: nak, ..answer(5) };
        assert_eq!(take(&mut owed, answer(5)), Some(refusal));
        assert_eq!((owed.deadline(), owed.any()), (None, false));
    }

    //= 06-6.1 test
    #[test]
    fn each_request_gets_its_own_acknowledgement_before_what_follows_it() {
        let mut owed = Owed::default();
        for psn in [1, 2] {
            owed.acknowledge(Acknowledge::Each, START, answer(psn));
        }
        assert!(owed.goes_before(Psn::new(2)) && !owed.goes_before(Psn::new(1)));
        assert_eq!(take(&mut owed, answer(2)), Some(answer(1)));
        assert_eq!(take(&mut owed, answer(2)), Some(answer(2)));
        assert_eq!((take(&mut owed, answer(2)), owed.any()), (None, false));
    }

    //= 06-6.1 test
    #[test]
    fn nothing_behind_what_is_refused_is_acknowledged() {
        let mut owed = Owed::default();
        for psn in [9, 10, 11] {
            owed.acknowledge(Acknowledge::Each, START, answer(psn));
        }
        let nak = Syndrome::Nak(NakCode::RemoteAccessError);
        owed.refuse(Psn::new(10), nak);
        assert_eq!(take(&mut owed, answer(11)), Some(answer(9)));
        let refusal = Answer { psn: Psn::new(10), syndrome: nak, ..answer(11) };
        assert_eq!(take(&mut owed, answer(11)), Some(refusal));
        assert!(!owed.any());
    }

    //= 06-6.1 test
    #[test]
    fn beyond_so_many_the_last_acknowledgement_covers_the_rest() {
        let most = u32::try_from(MOST_EACH).unwrap();
        let mut owed = Owed::default();
        for psn in 1..=most + 10 {
            owed.acknowledge(Acknowledge::Each, START, answer(psn));
        }
        let newest = answer(most + 10);
        for psn in 1..most {
            assert_eq!(take(&mut owed, newest), Some(answer(psn)));
        }
        assert_eq!(take(&mut owed, newest), Some(newest));
        assert_eq!((take(&mut owed, newest), owed.any()), (None, false));
    }
}
