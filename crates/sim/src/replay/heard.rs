//! Which answers the requester heard, as what it sent afterwards tells.
//!
//! The other half of [`reached`](super::reached): a recording taken on the responder's host, or
//! before frames are dropped on the requester's, has answers that never came to the requester. It
//! went back to a PSN then that those answers had acknowledged. So each answer is taken to have
//! been lost or heard, as explains best from where the requester sent again.

use super::likely::Stories;
use super::reached::Kind;

/// A frame as far as this is concerned. PSNs are counted without turns.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    /// The requester sent the PSNs from `at` up to, not with, `end`.
    Request { at: i64, end: i64 },
    /// Somebody answered.
    Answer { at: i64, kind: Kind },
}

/// What became of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Became {
    /// The requester heard the answer.
    Heard,
    /// It did not.
    NotHeard,
    /// The request had to be the next one, by all that was heard before.
    Due,
    /// The same, after the wait that an RNR NAK asked for.
    DueAfterWait,
    /// Why it was sent now cannot be seen: a timer ran out, or it was not needed.
    Anyhow,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct State {
    /// The oldest PSN that is not acknowledged.
    unacknowledged: i64,
    /// The one to be sent next.
    next: i64,
    /// From where on packets are being sent again.
    going_back_to: Option<i64>,
    waiting: bool,
    over: bool,
}

/// The prices of what may have happened.
mod price {
    /// A timer ran out.
    pub(super) const TIMEOUT: u32 = 5;
    /// PSNs were passed over that could have been sent again, or their frames not recorded.
    pub(super) const PASSED_OVER: u32 = 30;
    /// Sent again from a PSN that is neither asked for nor the oldest one.
    pub(super) const WHY_THERE: u32 = 60;
    /// The answer was not heard.
    pub(super) const NOT_HEARD: u32 = 40;
    /// Sent again though it was acknowledged.
    pub(super) const NEEDLESS: u32 = 90;
    /// Sent after the connection had ended.
    pub(super) const AFTER_END: u32 = 90;
}

/// What became of each of `events`. `fetches` are the PSNs of READs and the like, in order: from
/// the first one up to, not with, the last.
pub(super) fn heard(events: &[Event], fetches: &[(i64, i64)], first: i64) -> Vec<Became> {
    let begin = State {
        unacknowledged: first,
        next: first,
        going_back_to: None,
        waiting: false,
        over: false,
    };
    let mut stories = Stories::new(begin);
    let mut newest = first;
    for event in events {
        match *event {
            Event::Request { at, end } => {
                stories.next(|state, to| {
                    let became = match (at == state.next && !state.over, state.waiting) {
                        (true, false) => Became::Due,
                        (true, true) => Became::DueAfterWait,
                        (false, _) => Became::Anyhow,
                    };
                    let (state, price) = sent(state, at, end);
                    to(state, price, became);
                });
                newest = newest.max(end);
            }
            Event::Answer { at, kind } => stories.next(|state, to| {
                to(answered(state, at, kind, newest, fetches), 0, Became::Heard);
                to(state, price::NOT_HEARD, Became::NotHeard);
            }),
        }
    }
    stories.most_likely()
}

fn sent(state: State, at: i64, end: i64) -> (State, u32) {
    let price = match at {
        _ if state.over => price::AFTER_END,
        _ if at == state.next => 0,
        _ if at == state.unacknowledged => price::TIMEOUT,
        _ if at > state.next => price::PASSED_OVER,
        _ if at > state.unacknowledged => price::WHY_THERE,
        _ => price::NEEDLESS,
    };
    // Only a timer takes it back; what was passed over ours will have sent again.
    let timed_out = at < state.next;
    let going_back_to = if timed_out { None } else { state.going_back_to };
    (State { next: end, waiting: false, going_back_to, ..state }, price)
}

fn answered(mut state: State, at: i64, kind: Kind, newest: i64, fetches: &[(i64, i64)]) -> State {
    if at >= newest || at < state.unacknowledged || state.over {
        return state;
    }
    match kind {
        Kind::Ack => {
            if let Some(missing) = acknowledged(&mut state, at + 1, fetches) {
                go_back(&mut state, missing);
            }
        }
        Kind::NotReady => {
            if let Some(missing) = acknowledged(&mut state, at, fetches) {
                go_back(&mut state, missing);
            } else if !state.waiting {
                state.waiting = true;
                state.next = state.next.min(at);
            }
        }
        Kind::Sequence => {
            let missing = acknowledged(&mut state, at, fetches);
            go_back(&mut state, missing.unwrap_or(at));
        }
        Kind::Fatal => state.over = true,
        Kind::Data | Kind::Value => {
            if let Some(missing) = acknowledged(&mut state, at, fetches) {
                go_back(&mut state, missing);
            }
            if state.unacknowledged == at {
                advance(&mut state, at + 1);
            }
        }
    }
    state
}

/// All before `end` is acknowledged, but for what waits for an answer of its own: gives that.
fn acknowledged(state: &mut State, end: i64, fetches: &[(i64, i64)]) -> Option<i64> {
    let first = fetches.partition_point(|(_, last)| *last <= state.unacknowledged);
    let missing = fetches.get(first).map(|(start, _)| (*start).max(state.unacknowledged));
    let missing = missing.filter(|missing| *missing < end);
    advance(state, missing.unwrap_or(end));
    missing
}

fn advance(state: &mut State, to: i64) {
    if to > state.unacknowledged {
        state.unacknowledged = to;
        state.next = state.next.max(to);
        state.going_back_to = None;
    }
}

fn go_back(state: &mut State, to: i64) {
    if !state.waiting && state.going_back_to != Some(to) {
        state.going_back_to = Some(to);
        state.next = state.next.min(to);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_changed_nothing_was_not_heard() {
        let events = [
            Event::Request { at: 0, end: 1 },
            Event::Answer { at: 0, kind: Kind::Ack },
            Event::Request { at: 0, end: 1 },
            Event::Answer { at: 0, kind: Kind::Ack },
            Event::Request { at: 1, end: 2 },
        ];
        use Became::{Anyhow, Due, Heard, NotHeard};
        // The second copy was sent because a timer ran out.
        assert_eq!(heard(&events, &[], 0), [Due, NotHeard, Anyhow, Heard, Due]);
    }

    #[test]
    fn data_of_a_read_that_is_asked_for_again_was_not_heard() {
        let events = [
            Event::Request { at: 0, end: 3 },
            Event::Answer { at: 0, kind: Kind::Data },
            Event::Answer { at: 1, kind: Kind::Data },
            Event::Answer { at: 2, kind: Kind::Data },
            Event::Request { at: 1, end: 3 },
            Event::Answer { at: 1, kind: Kind::Data },
            Event::Answer { at: 2, kind: Kind::Data },
        ];
        use Became::{Due, Heard, NotHeard};
        // What came behind the gap was heard, and made it ask again.
        let expected = [Due, Heard, NotHeard, Heard, Due, Heard, Heard];
        assert_eq!(heard(&events, &[(0, 3)], 0), expected);
    }
}
