//! When each PSN was asked for, and so why an answer may be there without a request.

use std::collections::BTreeMap;

use super::reached::{Answered, Asked, Kind};

/// When each PSN was asked for. PSNs are counted without turns.
#[derive(Debug, Default)]
pub(super) struct Places {
    /// By first PSN: the one behind the last, the first frame that asked, and whether packets with
    /// newer PSNs had been sent by then.
    first: BTreeMap<i64, (i64, u64, bool)>,
    /// By the PSN of a request: the last frame that it was sent in.
    last: BTreeMap<i64, u64>,
    /// The PSN behind all of them.
    end: i64,
    /// Frames and their PSNs.
    order: Vec<(u64, i64)>,
    /// The same of those that have a wrong ICRC.
    bad: BTreeMap<u64, i64>,
    /// Something may have been asked for before the recording began.
    late: bool,
}

impl Places {
    pub(super) fn new(asked: &[Asked], late: bool) -> Self {
        let mut places = Self { end: i64::MIN, late, ..Self::default() };
        for request in asked {
            if request.bad {
                places.bad.insert(request.number, request.at);
                continue;
            }
            places.last.insert(request.at, request.number);
            places.order.push((request.number, request.at));
            let end = request.at + request.span;
            let before = places.first.range(..=request.at).next_back();
            let begin = before.map_or(request.at, |(_, (end, ..))| request.at.max(*end));
            if begin < end {
                places.first.insert(begin, (end, request.number, begin < places.end));
            }
            places.end = places.end.max(end);
        }
        places
    }

    /// The first frame that asked for a PSN, and whether newer ones had been sent by then.
    pub(super) fn first(&self, at: i64) -> Option<(u64, bool)> {
        let (_, (end, number, late)) = self.first.range(..=at).next_back()?;
        (at < *end).then_some((*number, *late))
    }

    /// Whether the last request before an answer is the one that it answers, and has a wrong ICRC.
    fn is_of_bad(&self, answer: &Answered) -> bool {
        let bad = self.bad.range(..answer.number).next_back();
        let place = self.order.partition_point(|(request, _)| *request < answer.number);
        let good = place.checked_sub(1).map_or(0, |place| self.order[place].0);
        bad.is_some_and(|(number, at)| *number > good && *at == answer.at)
    }

    /// The PSN of the first request behind a frame.
    fn next_after(&self, number: u64) -> Option<i64> {
        let place = self.order.partition_point(|(request, _)| *request < number);
        self.order.get(place).map(|(_, at)| *at)
    }

    /// Whether a recorded frame asked for a PSN.
    pub(super) fn has(&self, at: i64) -> bool {
        self.first(at).is_some()
    }

    /// Whether a PSN of the request at `from` was asked for once more behind a frame.
    pub(super) fn is_asked_again(&self, from: i64, at: i64, after: u64) -> bool {
        from <= at && self.last.range(from..=at).any(|(_, number)| *number > after)
    }

    /// Why there may be an answer that no recorded request explains; `expected` is the PSN that the
    /// responder waits for.
    pub(super) fn unasked(&self, answer: &Answered, expected: i64) -> Unasked {
        let known = answer.at < expected;
        match answer.kind {
            Kind::Ack if known => return Unasked::KnownAgain,
            Kind::NotReady | Kind::Sequence | Kind::Fatal if answer.at == expected => {
                return Unasked::NotCaptured;
            }
            Kind::NotReady | Kind::Sequence | Kind::Fatal if known => return Unasked::Wrong,
            // More has come than is recorded, and the requester does what it is told.
            Kind::NotReady | Kind::Sequence
                if self.next_after(answer.number) == Some(answer.at) =>
            {
                return Unasked::NotCaptured;
            }
            _ => {}
        }
        if self.is_of_bad(answer) {
            return Unasked::Wrong;
        }
        match self.first(answer.at) {
            None if answer.at < 0 && !self.late => Unasked::Wrong,
            // Before the first one that is recorded, in a gap, or of another connection.
            None if answer.at < self.end || answer.at - self.end > FAR => Unasked::NotCaptured,
            None if answer.kind.is_refusal() || answer.at - self.end >= NEAR => Unasked::Wrong,
            // A first copy that is not recorded, or a second one.
            Some((number, late)) if number > answer.number && late => Unasked::NotCaptured,
            Some((number, _)) if number < answer.number && known => Unasked::NotCaptured,
            Some(_) if answer.kind.is_refusal() => Unasked::Wrong,
            _ => Unasked::Beyond,
        }
    }
}

/// No recording misses so many PSNs.
pub(super) const FAR: i64 = 1 << 16;

/// An answer behind all recorded requests answers one that is no further.
const NEAR: i64 = 1 << 8;

/// Why there may be an answer that no recorded request explains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unasked {
    /// It acknowledges once more what was acknowledged.
    KnownAgain,
    /// Its request was not captured.
    NotCaptured,
    /// The same, if more is done by then than the requests recorded before.
    Beyond,
    /// There is no reason for it.
    Wrong,
}
