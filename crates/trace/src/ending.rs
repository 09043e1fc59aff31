//! How a direction of a conversation ended, as far as a capture can show: which request was left
//! without success.

use std::fmt;
use std::time::Duration;

use roxe_wire::opcode::Service;
use roxe_wire::{NakCode, Psn, RKey};

use crate::requests::Requests;

/// Requests that did not succeed up to the end of the capture. That they never did is a guess: a
/// capture may just stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The oldest request that was not acknowledged came again, and nothing was said to that.
    Unanswered {
        /// Its PSN.
        psn: Psn,
        /// The frame that carried it first.
        frame: u64,
        /// How often it was sent.
        times: u32,
        /// Between the first time and the last, in nanoseconds.
        over_ns: u64,
        /// The last frame from the other side since it was sent first.
        answer: Option<u64>,
        /// What the rest of the capture says of that.
        outlook: Outlook,
    },
    /// There was no receive buffer, and it was not sent again.
    NotReady {
        /// Its PSN.
        psn: Psn,
        /// How many RNR NAKs there were one after the other.
        times: u32,
        /// The frame of the last one.
        nak: u64,
        /// What the rest of the capture says of that.
        outlook: Outlook,
    },
    /// It was refused for good.
    Refused {
        /// Its PSN.
        psn: Psn,
        /// Why.
        code: NakCode,
        /// The frame of the NAK.
        nak: u64,
        /// The frame refused, if it was seen.
        frame: Option<u64>,
        /// The memory it names, if it names some.
        memory: Option<(u64, RKey)>,
    },
}

/// What may have become of a request that was not acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outlook {
    /// It was tried often without any progress between, and the capture goes on for longer than
    /// was waited before any of these tries: there may be no more retries.
    Exhausted,
    /// It was not tried so often that anything can be said.
    Unknown,
    /// The capture ends before the next try would have come.
    Cut,
}

impl Outlook {
    /// After so many tries, the last one at `latest_ns`, with at most `longest_ns` between two,
    /// where the capture ends at `end_ns`.
    fn of(tries: u32, latest_ns: u64, longest_ns: u64, end_ns: u64) -> Self {
        if end_ns.saturating_sub(latest_ns) < longest_ns.max(1) {
            Self::Cut
        } else if tries >= MANY {
            Self::Exhausted
        } else {
            Self::Unknown
        }
    }

    /// A remark behind something else; `retries` are those that may be exhausted.
    fn tell(self, retries: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exhausted => write!(f, ": {retries} exhausted?"),
            Self::Unknown => Ok(()),
            Self::Cut => f.write_str(": the capture ends"),
        }
    }
}

/// Whoever sends a packet so often without success may have no more retries.
const MANY: u32 = 3;

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Unanswered { psn, frame, times, over_ns, answer, outlook } => {
                write!(f, "the request with PSN {psn} (frame {frame}) was sent {times} times ")?;
                if over_ns > 0 {
                    write!(f, "over {} ", Span(over_ns))?;
                }
                match answer {
                    Some(answer) => {
                        write!(f, "and not acknowledged, last answer in frame {answer}")
                    }
                    None => write!(f, "and no answer was seen"),
                }?;
                outlook.tell("retries", f)
            }
            Self::NotReady { psn, times, nak, outlook } => {
                match times {
                    1 => write!(f, "RNR NAK for PSN {psn} (frame {nak})")?,
                    _ => write!(
                        f,
                        "{times} RNR NAKs in a row for PSN {psn} (the last in frame {nak})"
                    )?,
                }
                f.write_str(", which was not sent again")?;
                outlook.tell("rnr_retry", f)
            }
            Self::Refused { psn, code, nak, frame, memory } => {
                write!(f, "NAK {} (frame {nak}) to ", code.name())?;
                match frame {
                    Some(frame) => write!(f, "frame {frame}")?,
                    None => write!(f, "PSN {psn}")?,
                }
                match memory {
                    Some((va, r_key)) => write!(f, " (rkey 0x{:x}, va 0x{va:x})", r_key.0),
                    None => Ok(()),
                }
            }
        }
    }
}

/// A time in nanoseconds, for people: three digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span(pub(crate) u64);

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Rounded to three digits, which may carry into one more, all of them 0 then.
        let scale = 10_u64.pow(self.0.max(1).ilog10().saturating_sub(2));
        let rounded = (self.0 / scale + u64::from(self.0 % scale >= scale.div_ceil(2))) * scale;
        let (unit, name) = match rounded {
            0..1_000 => return write!(f, "{rounded} ns"),
            1_000..1_000_000 => (1_000, "µs"),
            1_000_000..1_000_000_000 => (1_000_000, "ms"),
            _ => (1_000_000_000, "s"),
        };
        let (whole, rest) = (rounded / unit, rounded % unit);
        match whole {
            0..10 => write!(f, "{whole}.{:02} {name}", rest / (unit / 100)),
            10..100 => write!(f, "{whole}.{} {name}", rest / (unit / 10)),
            _ => write!(f, "{whole} {name}"),
        }
    }
}

/// The last refusal that asks for more than to send again at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refusal {
    psn: Psn,
    /// `None`: the receiver was not ready.
    code: Option<NakCode>,
    /// How many of these there were one after the other.
    times: u32,
    frame: u64,
    /// When the last one was seen.
    latest_ns: u64,
    /// The longest time between two of them, or that was asked for.
    longest_ns: u64,
}

impl Requests {
    /// Frame `frame` refuses `psn`; without a code for now, that is for so long.
    pub(crate) fn refuse(&mut self, psn: Psn, refused: Result<NakCode, Duration>, frame: u64) {
        if self.is_acknowledged(psn) {
            // Too late, whatever it means.
            return;
        }
        let (code, asked) = (refused.ok(), refused.err().unwrap_or_default());
        let asked_ns = u64::try_from(asked.as_nanos()).unwrap_or(u64::MAX);
        let before = self.refusal.filter(|before| before.psn == psn && before.code == code);
        let (times, longest_ns) = before.map_or((1, asked_ns), |before| {
            let since_ns = self.now_ns.saturating_sub(before.latest_ns);
            (before.times + 1, before.longest_ns.max(asked_ns).max(since_ns))
        });
        let latest_ns = self.now_ns;
        self.refusal = Some(Refusal { psn, code, times, frame, latest_ns, longest_ns });
        if code.is_none() {
            self.last_progress = frame;
        }
    }

    /// What is acknowledged was not refused for good.
    pub(crate) fn forget_refusal(&mut self) {
        self.refusal = self.refusal.filter(|refusal| !self.is_acknowledged(refusal.psn));
    }

    /// What the requests of this direction were left with, if not with success, in a capture that
    /// ends at `end_ns`.
    pub(crate) fn ending(&self, service: Service, end_ns: u64) -> Option<Ending> {
        if !matches!(service, Service::Rc | Service::Xrc) {
            return None;
        }
        if let Some(Refusal { psn, code, times, frame: nak, latest_ns, longest_ns }) = self.refusal
        {
            let sent = self.get(psn);
            match code {
                Some(code) => {
                    let frame = sent.map(|sent| sent.latest);
                    let memory = sent.and_then(|sent| sent.memory());
                    return Some(Ending::Refused { psn, code, nak, frame, memory });
                }
                None if sent.is_none_or(|sent| sent.latest < nak) => {
                    let outlook = Outlook::of(times, latest_ns, longest_ns, end_ns);
                    return Some(Ending::NotReady { psn, times, nak, outlook });
                }
                None => {}
            }
        }
        let sent = self.get(self.oldest_unacknowledged())?;
        let is_over = sent.times > 1 && sent.latest > self.last_answer;
        is_over.then(|| Ending::Unanswered {
            psn: sent.psn,
            frame: sent.frame,
            times: sent.times,
            over_ns: sent.latest_ns.saturating_sub(sent.first_ns),
            answer: Some(self.last_answer).filter(|answer| *answer > sent.frame),
            outlook: Outlook::of(sent.tries, sent.latest_ns, sent.longest_ns, end_ns),
        })
    }
}

impl Refusal {
    /// Whether it ends the connection.
    pub(crate) const fn is_fatal(&self) -> bool {
        self.code.is_some()
    }

    /// Whether it was seen before this frame.
    pub(crate) const fn is_before(&self, frame: u64) -> bool {
        self.frame < frame
    }
}

impl Requests {
    /// Whether the connection has failed, or may have: a request was refused for good, or sent many
    /// times in vain.
    pub(crate) fn has_failed(&self) -> bool {
        let is_refused =
            self.refusal.is_some_and(|refusal| refusal.is_fatal() || refusal.times >= MANY);
        is_refused
            || self
                .get(self.oldest_unacknowledged())
                .is_some_and(|sent| sent.tries >= MANY && sent.latest > self.last_answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_three_digits() {
        for (ns, text) in [
            (7, "7 ns"),
            (1_000, "1.00 µs"),
            (17_120_000, "17.1 ms"),
            (999, "999 ns"),
            (999_499, "999 µs"),
            (999_600, "1.00 ms"),
            (8_079_000, "8.08 ms"),
            (8_075_000, "8.08 ms"),
            (8_074_999, "8.07 ms"),
            (9_999_999, "10.0 ms"),
            (39_578_000, "39.6 ms"),
            (99_960_000, "100 ms"),
            (491_520_000, "492 ms"),
            (1_234_000_000, "1.23 s"),
            (3_600_000_000_000, "3600 s"),
            (u64::MAX, "18400000000 s"),
        ] {
            assert_eq!(Span(ns).to_string(), text);
        }
    }
}
