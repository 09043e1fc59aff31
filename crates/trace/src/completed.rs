//! The MSN: how many messages the responder says it has completed, against how many were sent.
//!
//! An answer to a PSN carries the responder's count at that moment: at least the messages that end
//! with or before the PSN, at most all that were sent. What was completed before the capture began
//! is an offset, the same in every answer. So each answer bounds the offset from both sides; where
//! the bounds of two answers have no number in common, one of them is wrong.
//!
//! Where a capture begins, or has a gap, the requester may be sending again what the responder has
//! already, and more than was seen: then its count says nothing about how many were sent, until an
//! answer shows that the responder has nothing else.

use roxe_wire::{Msn, Psn};

use crate::{Finding, Rule};

/// How far behind the newest answer an older one is still judged, in PSNs.
const REACH: i32 = 1 << 20;

/// What is known of the offset between the responder's count and ours.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CompletedMessages {
    /// Answers to older PSNs prove nothing: packets between were not seen.
    from: Psn,
    offset: Option<Range>,
    /// Whether all that the responder has was seen.
    is_all_seen: bool,
    /// What the first answer said while that was not so.
    first: Option<First>,
}

#[derive(Clone, Copy, Debug)]
struct First {
    psn: Psn,
    msn: Msn,
    frame: u64,
}

/// The answer whose MSN is judged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counted {
    pub(crate) psn: Psn,
    pub(crate) msn: Msn,
    /// Its frame, and that of its request.
    pub(crate) frame: u64,
    pub(crate) request: u64,
    /// So many messages end with or before its PSN …
    pub(crate) at_least: u64,
    /// … of so many that were sent.
    pub(crate) at_most: u64,
    /// Whether its PSN is the newest one that the responder has, and not that of an old request
    /// which is answered once more.
    pub(crate) is_newest: bool,
}

/// So many messages may be complete that were not seen.
const UNSEEN: u64 = 1 << 20;

/// `low`, and up to `slack` more.
#[derive(Clone, Copy, Debug)]
struct Range {
    low: Msn,
    slack: u32,
}

impl CompletedMessages {
    /// Nothing is known of what was completed before `from`.
    pub(crate) const fn unknown(from: Psn) -> Self {
        Self { from, offset: None, is_all_seen: false, first: None }
    }

    /// Nothing was completed before `from`.
    pub(crate) const fn none_yet(from: Psn) -> Self {
        let offset = Some(Range { low: Msn::new(0), slack: 0 });
        Self { from, offset, is_all_seen: true, first: None }
    }

    /// Whether it may be that nothing was completed before what was seen.
    pub(crate) fn may_be_all(&self) -> bool {
        self.offset.filter(|_| self.is_all_seen).is_some_and(|Range { low, slack }| {
            u32::try_from(Msn::new(0).since(low)).is_ok_and(|distance| distance <= slack)
        })
    }

    /// Whether `msn` shows that fewer than `ends` of the messages seen were complete.
    pub(crate) fn lacks(&self, msn: Msn, ends: u64) -> bool {
        self.offset.is_some_and(|known| msn.since(known.low.advance(low_bits(ends))) < 0)
    }

    /// Our count was wrong.
    pub(crate) fn forget_offset(&mut self) {
        self.offset = None;
    }

    /// Judges the MSN of an answer.
    pub(crate) fn check(&mut self, answer: Counted) -> Option<Finding> {
        let Counted { psn, msn, at_least, .. } = answer;
        let distance = psn.since(self.from);
        if distance < 0 {
            return None;
        }
        if distance > REACH {
            // Else what comes half a circle later would seem to lie before it.
            self.from = psn.back(REACH.unsigned_abs());
        }
        if let Some(first) = self.first.filter(|_| !self.is_all_seen)
            && answer.request > first.frame
            && psn.since(first.psn) > 0
            && msn.since(first.msn) < 0
        {
            self.is_all_seen = true;
            self.offset = None;
            return Some(Finding {
                rule: Rule::Msn,
                seen: format!("MSN {} with PSN {psn}", msn.get()),
                expected: format!(
                    "no less than MSN {} as in frame {}",
                    first.msn.get(),
                    first.frame
                ),
            });
        }
        let at_most = if self.sees_all(&answer) { answer.at_most } else { at_least + UNSEEN };
        let low = Msn::new(msn.get().wrapping_sub(low_bits(at_most)));
        let slack = u32::try_from(at_most.saturating_sub(at_least)).ok()?;
        let Some(known) = self.offset else {
            self.offset = Some(Range { low, slack });
            return None;
        };
        let distance = i64::from(low.since(known.low));
        let begin = distance.max(0);
        let end = (distance + i64::from(slack)).min(known.slack.into());
        if let (Ok(begin), Ok(slack)) = (u32::try_from(begin), u32::try_from(end - begin)) {
            self.offset = Some(Range { low: known.low.advance(begin), slack });
            return None;
        }
        let least = known.low.advance(low_bits(at_least)).get();
        let most = known.low.advance(known.slack).advance(low_bits(at_most)).get();
        Some(Finding {
            rule: Rule::Msn,
            seen: format!("MSN {} with PSN {psn}", msn.get()),
            expected: if least == most {
                format!("MSN {least}")
            } else {
                format!("MSN {least} to {most}")
            },
        })
    }
}

impl CompletedMessages {
    /// Whether the responder has nothing that was not seen: this answer may show it. So does a
    /// count that has changed since another answer, as what was asked for again is done when the
    /// first such request is answered; and one that is no higher than what was seen.
    fn sees_all(&mut self, answer: &Counted) -> bool {
        if !self.is_all_seen {
            let Counted { psn, msn, frame, .. } = *answer;
            let has_changed = self.first.get_or_insert(First { psn, msn, frame }).msn != msn;
            let is_low = u64::from(msn.get()) <= answer.at_most;
            self.is_all_seen = answer.is_newest || has_changed || is_low;
        }
        self.is_all_seen
    }
}

fn low_bits(count: u64) -> u32 {
    u32::try_from(count & 0x00ff_ffff).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn psn(value: u32) -> Psn {
        Psn::new(value)
    }

    /// An acknowledgement of the newest packet.
    fn ack(value: u32, msn: u32, at_least: u64, at_most: u64) -> Counted {
        let (request, frame) = (2 * u64::from(value), 2 * u64::from(value) + 1);
        let (psn, msn) = (psn(value), Msn::new(msn));
        Counted { psn, msn, frame, request, at_least, at_most, is_newest: true }
    }

    /// The answer to a READ that may have been answered before.
    fn data(value: u32, msn: u32, at_least: u64, at_most: u64) -> Counted {
        Counted { is_newest: false, ..ack(value, msn, at_least, at_most) }
    }

    #[test]
    fn what_is_answered_once_more_does_not_tell_how_much_was_sent() {
        let mut completed = CompletedMessages::unknown(psn(100));
        // Four messages were seen again, and a fifth will be.
        assert_eq!(completed.check(data(101, 23, 1, 4)), None);
        assert_eq!(completed.check(data(101, 23, 1, 4)), None);
        assert_eq!(completed.check(ack(105, 23, 5, 5)), None);
        assert!(completed.check(data(101, 24, 1, 5)).is_some(), "now it does");
        assert!(completed.check(ack(106, 23, 6, 6)).is_some());
    }

    #[test]
    fn a_count_never_goes_back() {
        let mut completed = CompletedMessages::unknown(psn(100));
        assert_eq!(completed.check(data(100, 8, 0, 1)), None);
        let late = Counted { request: 199, ..data(101, 7, 1, 2) };
        assert_eq!(completed.check(late), None, "it may have been said before");
        let mut completed = CompletedMessages::unknown(psn(100));
        assert_eq!(completed.check(data(100, 8, 0, 1)), None);
        let finding = completed.check(data(101, 7, 1, 2)).unwrap();
        assert_eq!(finding.expected, "no less than MSN 8 as in frame 201");
        assert_eq!(completed.check(data(102, 8, 2, 3)), None, "that was told");
    }

    #[test]
    fn a_count_that_goes_on_shows_that_all_was_seen() {
        let mut completed = CompletedMessages::unknown(psn(100));
        assert_eq!(completed.check(data(100, 8, 0, 1)), None);
        assert_eq!(completed.check(data(101, 9, 1, 2)), None);
        assert!(completed.check(data(102, 12, 2, 3)).is_some());
    }

    #[test]
    fn a_count_that_stands_still_while_messages_are_acknowledged_is_wrong() {
        let mut completed = CompletedMessages::unknown(psn(100));
        assert_eq!(completed.check(ack(100, 7, 1, 1)), None, "any offset");
        assert_eq!(completed.check(ack(101, 8, 2, 2)), None);
        let finding = completed.check(ack(102, 8, 3, 3)).unwrap();
        assert_eq!((finding.rule, finding.expected.as_str()), (Rule::Msn, "MSN 9"));
    }

    #[test]
    fn a_responder_may_be_ahead_of_what_it_acknowledges_but_not_of_what_was_sent() {
        let mut completed = CompletedMessages::none_yet(psn(0xff_ffff));
        assert_eq!(completed.check(ack(0xff_ffff, 3, 1, 3)), None);
        assert_eq!(completed.check(ack(0, 2, 2, 3)), None);
        let finding = completed.check(ack(1, 4, 3, 3)).unwrap();
        assert_eq!(finding.expected, "MSN 3");
    }

    #[test]
    fn the_count_wraps() {
        let mut completed = CompletedMessages::unknown(psn(0));
        assert_eq!(completed.check(ack(0, 0xff_ffff, 1, 1)), None);
        assert_eq!(completed.check(ack(1, 0, 2, 2)), None);
        assert!(completed.check(ack(2, 0, 3, 3)).is_some());
    }

    #[test]
    fn answers_from_before_a_gap_prove_nothing() {
        let mut completed = CompletedMessages::unknown(psn(10));
        assert_eq!(completed.check(ack(9, 77, 1, 1)), None);
        assert_eq!(completed.check(ack(10, 5, 1, 1)), None);
    }
}
