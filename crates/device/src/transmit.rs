//! Who sends next: answers before requests, and queue pairs in turn.
//!
//! Answers go first, so that nobody's requests hold back what peers wait for. But a peer may ask
//! for more than can ever be answered: after [`ANSWERS`] packets [`TURN`] requests go first.
//! Packets are counted, not turns: a queue pair that is slowed down sends one now and then.
//!
//! A queue pair that is ready stands in one of two rings, once in each at the most. It may send a
//! few packets in a row before the next one gets its turn, so that what it needs stays in cache;
//! none can keep the others waiting longer than that.

use std::collections::VecDeque;

/// How many packets one queue pair sends in a row while others wait.
const TURN: u32 = 16;

/// How many answers are sent in a row while requests wait.
const ANSWERS: u32 = 4 * TURN;

/// What a queue pair's slot remembers of the rings.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Standing {
    in_responses: bool,
    in_requests: bool,
}

/// The two rings.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    responses: Ring,
    requests: Ring,
    /// Answers that were sent since requests went first.
    answers: u32,
    /// Requests that were sent since then.
    asked: u32,
}

#[derive(Debug, Default)]
struct Ring {
    slots: VecDeque<u32>,
    /// Packets that the front one has sent in this turn.
    sent: u32,
}

/// Which of the rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Answers to peers.
    Response,
    /// Requests of our own.
    Request,
}

impl Turns {
    /// The queue pair in `slot` has something to send.
    pub(crate) fn ready(&mut self, slot: u32, standing: &mut Standing, kind: Kind) {
        let (ring, inside) = match kind {
            Kind::Response => (&mut self.responses, &mut standing.in_responses),
            Kind::Request => (&mut self.requests, &mut standing.in_requests),
        };
        if !*inside {
            *inside = true;
            ring.slots.push_back(slot);
        }
    }

    /// Whose turn it is. Ask [`Turns::done`] afterwards.
    pub(crate) fn next(&self) -> Option<(u32, Kind)> {
        match self.responses.slots.front() {
            Some(_) if self.answers >= ANSWERS && !self.requests.slots.is_empty() => {
                self.next_request()
            }
            Some(slot) => Some((*slot, Kind::Response)),
            None => self.next_request(),
        }
    }

    /// Whether somebody has an answer.
    pub(crate) fn has_response(&self) -> bool {
        !self.responses.slots.is_empty()
    }

    fn next_request(&self) -> Option<(u32, Kind)> {
        self.requests.slots.front().map(|slot| (*slot, Kind::Request))
    }

    /// The queue pair whose turn it was sent a packet or had none, and is ready for more or not.
    //= BC-150
    pub(crate) fn done(&mut self, standing: &mut Standing, kind: Kind, sent: bool, more: bool) {
        let (ring, inside) = match kind {
            Kind::Response => (&mut self.responses, &mut standing.in_responses),
            Kind::Request => (&mut self.requests, &mut standing.in_requests),
        };
        ring.sent += 1;
        if !more || !sent {
            ring.slots.pop_front();
            ring.sent = 0;
            *inside = false;
        } else if ring.sent >= TURN {
            ring.slots.rotate_left(1);
            ring.sent = 0;
        }
        let idle = ring.slots.is_empty();
        match kind {
            _ if !sent => {} // Who had nothing to send, or has to wait, had no turn.
            Kind::Response => self.answers = self.answers.saturating_add(1),
            Kind::Request if idle || self.asked + 1 >= TURN => (self.answers, self.asked) = (0, 0),
            Kind::Request => self.asked += 1,
        }
    }

    /// Whose turn it is does not exist.
    pub(crate) fn drop_front(&mut self, kind: Kind) {
        let ring = match kind {
            Kind::Response => &mut self.responses,
            Kind::Request => &mut self.requests,
        };
        ring.slots.pop_front();
        ring.sent = 0;
    }

    /// The queue pair in `slot` is gone, or has nothing to send any more.
    pub(crate) fn forget(&mut self, slot: u32, standing: &mut Standing) {
        for (ring, inside) in [
            (&mut self.responses, &mut standing.in_responses),
            (&mut self.requests, &mut standing.in_requests),
        ] {
            if !core::mem::take(inside) {
                continue; // Most are idle when they go, and looking through a ring takes long.
            }
            if ring.slots.front() == Some(&slot) {
                ring.sent = 0;
            }
            ring.slots.retain(|other| *other != slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A peer that asks without end holds nobody's requests back for ever.
    //= BC-150 test
    #[test]
    fn answers_without_end_leave_requests_a_turn() {
        let mut turns = Turns::default();
        let mut standing = [Standing::default(); 3];
        turns.ready(0, &mut standing[0], Kind::Response);
        for slot in [1, 2] {
            turns.ready(slot, &mut standing[slot as usize], Kind::Request);
        }
        let mut sent = [0; 3];
        for _ in 0..10 * (ANSWERS + TURN) {
            let (slot, kind) = turns.next().unwrap();
            turns.done(&mut standing[slot as usize], kind, true, true);
            sent[slot as usize] += 1;
        }
        assert_eq!(sent, [10 * ANSWERS, 5 * TURN, 5 * TURN]);
        // One that has nothing to send takes nobody's turn.
        turns.forget(1, &mut standing[1]);
        turns.ready(1, &mut standing[1], Kind::Request);
        for _ in 0..ANSWERS {
            turns.done(&mut standing[0], Kind::Response, true, true);
        }
        assert_eq!(turns.next(), Some((2, Kind::Request)));
        turns.done(&mut standing[2], Kind::Request, false, true);
        assert_eq!(turns.next(), Some((1, Kind::Request)));
        turns.done(&mut standing[1], Kind::Request, true, false);
        assert_eq!(turns.next(), Some((0, Kind::Response)));
    }

    /// Who sends one packet, and then waits for its rate, ends no turn by that: else its requests
    /// would come before all answers for ever.
    //= BC-150 test
    #[test]
    fn packets_count_and_not_turns_so_that_who_is_slowed_down_answers_too() {
        let mut turns = Turns::default();
        let mut standing = Standing::default();
        let mut sent = [0, 0];
        for _ in 0..10 * (ANSWERS + TURN) {
            turns.ready(0, &mut standing, Kind::Response);
            turns.ready(0, &mut standing, Kind::Request);
            let (_, kind) = turns.next().unwrap();
            sent[usize::from(kind == Kind::Request)] += 1;
            turns.done(&mut standing, kind, true, true);
            while let Some((_, kind)) = turns.next() {
                turns.done(&mut standing, kind, false, false);
            }
        }
        assert_eq!(sent, [10 * ANSWERS, 10 * TURN]);
    }

    //= BC-150 test
    #[test]
    fn answers_go_first_and_queue_pairs_take_turns() {
        let mut turns = Turns::default();
        let mut standing = [Standing::default(); 3];
        for slot in [0, 1] {
            turns.ready(slot, &mut standing[slot as usize], Kind::Request);
            turns.ready(slot, &mut standing[slot as usize], Kind::Request);
        }
        turns.ready(2, &mut standing[2], Kind::Response);
        assert_eq!(turns.next(), Some((2, Kind::Response)));
        turns.done(&mut standing[2], Kind::Response, true, false);
        let mut order = Vec::new();
        for _ in 0..4 * TURN {
            let (slot, kind) = turns.next().unwrap();
            order.push(slot);
            turns.done(&mut standing[slot as usize], kind, true, true);
        }
        let expected = [0, 1, 0, 1].map(|slot| [slot; TURN as usize]).concat();
        assert_eq!(order, expected);
        turns.done(&mut standing[0], Kind::Request, false, true);
        assert_eq!(turns.next(), Some((1, Kind::Request)));
        turns.forget(1, &mut standing[1]);
        assert_eq!(turns.next(), None);
        turns.ready(0, &mut standing[0], Kind::Request);
        assert_eq!(turns.next(), Some((0, Kind::Request)));
        turns.drop_front(Kind::Request);
        assert_eq!(turns.next(), None);
    }
}
