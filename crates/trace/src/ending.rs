//! How a direction of a conversation ended, as far as a capture can show: which request was left
//! without success.

use std::fmt;

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
    },
    /// There was no receive buffer, and it was not sent again.
    NotReady {
        /// Its PSN.
        psn: Psn,
        /// How many RNR NAKs there were one after the other.
        times: u32,
        /// The frame of the last one.
        nak: u64,
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

/// Whoever sends a packet so often without success may have no more retries.
const MANY: u32 = 3;

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Unanswered { psn, frame, times, over_ns, answer } => {
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
                f.write_str(if times >= MANY { ": retries exhausted?" } else { "" })
            }
            Self::NotReady { psn, times: 1, nak } => {
                write!(f, "RNR NAK for PSN {psn} (frame {nak}), which was not sent again")
            }
            Self::NotReady { psn, times, nak } => {
                write!(
                    f,
                    "RNR NAK after RNR NAK for PSN {psn} ({times}, the last in frame {nak})"
                )?;
                write!(f, ", which was not sent again: rnr_retry exhausted?")
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
        let (unit, name) = match self.0 {
            0..1_000 => return write!(f, "{} ns", self.0),
            1_000..1_000_000 => (1_000, "µs"),
            1_000_000..1_000_000_000 => (1_000_000, "ms"),
            _ => (1_000_000_000, "s"),
        };
        let digits = match self.0 / unit {
            0..10 => 2,
            10..100 => 1,
            _ => 0,
        };
        // No decimal is rounded up: that could be one digit more.
        let scale = unit / [1, 10, 100][digits];
        let shown = self.0 / scale;
        match digits {
            0 => write!(f, "{shown} {name}"),
            _ => {
                let tens = [1, 10, 100][digits];
                write!(f, "{}.{:0digits$} {name}", shown / tens, shown % tens)
            }
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
}

impl Requests {
    /// Frame `frame` refuses `psn`; without a code for now.
    pub(crate) fn refuse(&mut self, psn: Psn, code: Option<NakCode>, frame: u64) {
        if self.is_acknowledged(psn) {
            // Too late, whatever it means.
            return;
        }
        let before = self.refusal.filter(|before| before.psn == psn && before.code == code);
        let times = before.map_or(1, |before| before.times + 1);
        self.refusal = Some(Refusal { psn, code, times, frame });
    }

    /// What is acknowledged was not refused for good.
    pub(crate) fn forget_refusal(&mut self) {
        self.refusal = self.refusal.filter(|refusal| !self.is_acknowledged(refusal.psn));
    }

    /// What the requests of this direction were left with, if not with success.
    pub(crate) fn ending(&self, service: Service) -> Option<Ending> {
        if !matches!(service, Service::Rc | Service::Xrc) {
            return None;
        }
        if let Some(Refusal { psn, code, times, frame: nak }) = self.refusal {
            let sent = self.get(psn);
            match code {
                Some(code) => {
                    let frame = sent.map(|sent| sent.latest);
                    let memory = sent.and_then(|sent| sent.memory());
                    return Some(Ending::Refused { psn, code, nak, frame, memory });
                }
                None if sent.is_none_or(|sent| sent.latest < nak) => {
                    return Some(Ending::NotReady { psn, times, nak });
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
                .is_some_and(|sent| sent.times >= MANY && sent.latest > self.last_answer)
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
            (9_999_999, "9.99 ms"),
            (491_520_000, "491 ms"),
            (1_234_000_000, "1.23 s"),
            (3_600_000_000_000, "3600 s"),
        ] {
            assert_eq!(Span(ns).to_string(), text);
        }
    }
}
