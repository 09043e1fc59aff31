//! The MSN: how many messages the responder says it has completed, against how many were sent.
//!
//! An answer to a PSN carries the responder's count at that moment: at least the messages that end
//! with or before the PSN, at most all that were sent. What was completed before the capture began
//! is an offset, the same in every answer. So each answer bounds the offset from both sides; where
//! the bounds of two answers have no number in common, one of them is wrong.

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
}

/// `low`, and up to `slack` more.
#[derive(Clone, Copy, Debug)]
struct Range {
    low: Msn,
    slack: u32,
}

impl CompletedMessages {
    /// Nothing is known of what was completed before `from`.
    pub(crate) const fn unknown(from: Psn) -> Self {
        Self { from, offset: None }
    }

    /// Nothing was completed before `from`.
    pub(crate) const fn none_yet(from: Psn) -> Self {
        Self { from, offset: Some(Range { low: Msn::new(0), slack: 0 }) }
    }

    /// Whether it may be that nothing was completed before what was seen.
    pub(crate) fn may_be_all(&self) -> bool {
        self.offset.is_some_and(|Range { low, slack }| {
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

    /// Judges the MSN of an answer to `psn`, with or before which `at_least` messages end, of
    /// `at_most` that were sent.
    pub(crate) fn check(
        &mut self,
        psn: Psn,
        msn: Msn,
        at_least: u64,
        at_most: u64,
    ) -> Option<Finding> {
        let distance = psn.since(self.from);
        if distance < 0 {
            return None;
        }
        if distance > REACH {
            // Else what comes half a circle later would seem to lie before it.
            self.from = psn.back(REACH.unsigned_abs());
        }
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

fn low_bits(count: u64) -> u32 {
    u32::try_from(count & 0x00ff_ffff).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn psn(value: u32) -> Psn {
        Psn::new(value)
    }

    #[test]
    fn a_count_that_stands_still_while_messages_are_acknowledged_is_wrong() {
        let mut completed = CompletedMessages::unknown(psn(100));
        assert_eq!(completed.check(psn(100), Msn::new(7), 1, 1), None, "any offset");
        assert_eq!(completed.check(psn(101), Msn::new(8), 2, 2), None);
        let finding = completed.check(psn(102), Msn::new(8), 3, 3).unwrap();
        assert_eq!((finding.rule, finding.expected.as_str()), (Rule::Msn, "MSN 9"));
    }

    #[test]
    fn a_responder_may_be_ahead_of_what_it_acknowledges_but_not_of_what_was_sent() {
        let mut completed = CompletedMessages::none_yet(psn(0xff_ffff));
        assert_eq!(completed.check(psn(0xff_ffff), Msn::new(3), 1, 3), None);
        assert_eq!(completed.check(psn(0), Msn::new(2), 2, 3), None);
        let finding = completed.check(psn(1), Msn::new(4), 3, 3).unwrap();
        assert_eq!(finding.expected, "MSN 3");
    }

    #[test]
    fn the_count_wraps() {
        let mut completed = CompletedMessages::unknown(psn(0));
        assert_eq!(completed.check(psn(0), Msn::new(0xff_ffff), 1, 1), None);
        assert_eq!(completed.check(psn(1), Msn::new(0), 2, 2), None);
        assert!(completed.check(psn(2), Msn::new(0), 3, 3).is_some());
    }

    #[test]
    fn answers_from_before_a_gap_prove_nothing() {
        let mut completed = CompletedMessages::unknown(psn(10));
        assert_eq!(completed.check(psn(9), Msn::new(77), 1, 1), None);
        assert_eq!(completed.check(psn(10), Msn::new(5), 1, 1), None);
    }
}
