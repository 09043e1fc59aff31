//! Facts about a frame: what it means for its conversation.

use std::fmt;
use std::net::IpAddr;

use roxe_wire::opcode::Operation;
use roxe_wire::{Qpn, RnrTimer};

use crate::ending::Span;

/// A fact about a frame that its bytes alone do not show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// A new message begins with this packet.
    Message {
        /// Counted from 1 in this direction of the conversation.
        number: u64,
        /// What it does.
        operation: Operation,
        /// Its length in bytes, where the first packet tells.
        len: Option<u64>,
    },
    /// A packet in the middle of a message.
    Part {
        /// The message, counted from 1 in this direction of the conversation.
        number: u64,
        /// The packet's place in it, counted from 1.
        part: u64,
    },
    /// A message ends with this packet.
    MessageEnd {
        /// Counted from 1 in this direction of the conversation.
        number: u64,
        /// How many packets it had, as far as seen.
        packets: u64,
        /// How many bytes, as far as seen.
        bytes: u64,
    },
    /// Part of a message of which packets before this one were not seen.
    Incomplete {
        /// Whether it is the last part.
        ends: bool,
    },
    /// The packet was sent before. Of two that are equal, which was sent first only the IP
    /// identification tells, and only where the sender counts in it; else it is the one seen first.
    Retransmission {
        /// The frame that carried it first.
        of: u64,
        /// Why it comes again, as far as can be seen.
        cause: Cause,
        /// After how long, where that tells something.
        waited: Option<Waited>,
        /// The frame that had acknowledged it, if one had.
        acknowledged_by: Option<u64>,
    },
    /// Packets overtook this one, and among them itself, sent again: its IP identification tells.
    Late {
        /// The frame that repeats it, and came first.
        repeated_in: u64,
    },
    /// The network delivered one frame twice: not even its IP identification is another.
    Doubled {
        /// The frame that it equals.
        of: u64,
    },
    /// A PSN that comes late: newer ones were seen before it.
    FillsGap {
        /// Why it comes now, as far as can be seen.
        cause: Cause,
    },
    /// Sent before, but so long ago that the frame is forgotten.
    Old,
    /// Packets before this one were not captured: lost on the way here, or not yet sent.
    Gap {
        /// How many PSNs.
        missing: u32,
    },
    /// The numbering starts anew: another connection uses these queue pair numbers.
    Restart,
    /// The responder has what was sent up to here: it acknowledges that, or refuses only what
    /// comes behind.
    Acknowledges {
        /// The oldest frame that it covers.
        first: u64,
        /// The newest.
        last: u64,
        /// How many request packets.
        packets: u64,
    },
    /// An acknowledgement of what was acknowledged already.
    DuplicateAck,
    /// An answer whose request is not in the capture, or part of a READ that was asked for again
    /// unseen.
    RequestNotSeen,
    /// An answer that several connections between the same hosts may wait for.
    RequestUnclear,
    /// A refusal: packets before a PSN are missing. The requester shall go back.
    SequenceNak {
        /// The frame that carried the PSN asked for, if it was seen.
        from: Option<u64>,
    },
    /// The responder has no receive buffer.
    ReceiverNotReady {
        /// The frame that found none, if it was seen.
        frame: Option<u64>,
    },
    /// A refusal that ends the connection.
    FatalNak {
        /// The frame refused, if it was seen.
        frame: Option<u64>,
    },
    /// Part of the answer to a READ.
    AnswersRead {
        /// The frame of the request.
        frame: u64,
        /// Which part, counted from 1.
        part: u32,
        /// How many parts there are, where the request tells.
        of: Option<u32>,
    },
    /// The answer to an atomic, a FLUSH or an ATOMIC WRITE.
    Answers {
        /// The frame of the request.
        frame: u64,
        /// What it asked for.
        operation: Operation,
    },
    /// An answer that was given before.
    AnsweredBefore,
    /// READ data before this packet is missing.
    ResponseGap {
        /// How many packets.
        missing: u32,
    },
    /// A READ asked again for its missing end.
    ReadRest {
        /// The frame that asked for all of it.
        of: u64,
    },
    /// Congestion on the way of packets that this queue pair sends.
    CongestionNotification {
        /// Who shall slow down.
        to: (IpAddr, Qpn),
        /// The newest frame of these that was seen with a mark.
        mark: Option<u64>,
    },
    /// How fast a sender's packets were seen to follow each other since it was told of congestion.
    /// What it had to send decides that too, and queues on the way.
    Reaction {
        /// The frame of the CNP.
        cnp: u64,
        /// Before it, in bits of payload a second.
        before_bps: Option<u64>,
        /// Since.
        since_bps: u64,
        /// How many packets since.
        packets: u64,
    },
    /// A switch marked the packet.
    CongestionExperienced,
    /// The receiver throws this frame away.
    Dropped,
    /// A datagram to a multicast group.
    Multicast,
    /// A management datagram in words.
    Management(String),
    /// The same management message once more.
    ManagementAgain {
        /// The frame that carried it first.
        first: u64,
    },
}

/// Bits a second.
struct Bits(u64);

impl fmt::Display for Bits {
    /// In the unit that has one to three digits before the point.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, name) = match self.0 {
            1_000_000_000.. => (1e9, "Gb/s"),
            1_000_000.. => (1e6, "Mb/s"),
            _ => (1e3, "kb/s"),
        };
        write!(f, "{:.1} {name}", self.0 as f64 / unit)
    }
}

/// Why a packet is sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// A NAK asked for it.
    SequenceNak {
        /// The frame of the NAK.
        frame: u64,
    },
    /// The receiver was not ready before.
    ReceiverNotReady {
        /// The frame of the RNR NAK.
        frame: u64,
        /// How long that asked to wait.
        asked: RnrTimer,
        /// When it was seen.
        seen_ns: u64,
    },
    /// No NAK was seen: the requester waited too long, or the network doubled the frame and its IP
    /// header does not tell.
    NoneSeen,
    /// It follows another packet that was sent again for no reason that was seen.
    Continues,
    /// It was not sent just now: it was overtaken, as its IP identification tells.
    Late {
        /// The first frame seen that was sent after it.
        before: u64,
    },
}

/// How long the requester waited before it sent something again: since it was sent last, or since
/// the RNR NAK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waited {
    /// In nanoseconds.
    pub ns: u64,
    /// Whether the responder said nothing in that time, as far as can be seen: then it may have
    /// been the ACK timeout.
    pub is_unanswered: bool,
}

/// One word for each kind of note, and the list of them: no kind can be missing in either.
macro_rules! kinds {
    ($($note:pat => $word:literal,)+) => {
        /// Every word that [`Note::kind`] may give.
        pub const KINDS: [&str; [$($word),+].len()] = [$($word),+];

        /// What kind of fact it is: one stable word.
        pub const fn kind(&self) -> &'static str {
            match self {
                $($note => $word,)+
            }
        }
    };
}

impl Note {
    kinds! {
        Self::Message { .. } => "message",
        Self::Part { .. } => "part",
        Self::MessageEnd { .. } => "message_end",
        Self::Incomplete { .. } => "incomplete",
        Self::Retransmission { .. } => "retransmission",
        Self::Late { .. } => "late",
        Self::Doubled { .. } => "doubled",
        Self::FillsGap { .. } => "fills_gap",
        Self::Old => "old",
        Self::Gap { .. } => "gap",
        Self::Restart => "restart",
        Self::Acknowledges { .. } => "acknowledges",
        Self::DuplicateAck => "duplicate_ack",
        Self::RequestNotSeen => "request_not_seen",
        Self::RequestUnclear => "request_unclear",
        Self::SequenceNak { .. } => "sequence_nak",
        Self::ReceiverNotReady { .. } => "receiver_not_ready",
        Self::FatalNak { .. } => "fatal_nak",
        Self::AnswersRead { .. } => "answers_read",
        Self::Answers { .. } => "answers",
        Self::AnsweredBefore => "answered_before",
        Self::ResponseGap { .. } => "response_gap",
        Self::ReadRest { .. } => "read_rest",
        Self::CongestionNotification { .. } => "congestion_notification",
        Self::Reaction { .. } => "reaction",
        Self::CongestionExperienced => "congestion_experienced",
        Self::Dropped => "dropped",
        Self::Multicast => "multicast",
        Self::Management(_) => "management",
        Self::ManagementAgain { .. } => "management_again",
    }
}

/// Where a note's words go: text as it is, numbers as numbers. Whoever writes millions of notes can
/// do that without the formatting machinery.
pub trait Words {
    /// Some text.
    fn say(&mut self, text: &str);
    /// A number, in decimal.
    fn count(&mut self, number: u64);
    /// Something rare that knows how it looks.
    fn show(&mut self, value: &dyn fmt::Display);
}

/// The words of a note through the formatting machinery.
struct Formatted<'a, 'b>(&'a mut fmt::Formatter<'b>, fmt::Result);

impl Words for Formatted<'_, '_> {
    fn say(&mut self, text: &str) {
        self.1 = self.1.and_then(|()| self.0.write_str(text));
    }

    fn count(&mut self, number: u64) {
        self.show(&number);
    }

    fn show(&mut self, value: &dyn fmt::Display) {
        self.1 = self.1.and_then(|()| write!(self.0, "{value}"));
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut formatted = Formatted(f, Ok(()));
        self.tell(&mut formatted);
        formatted.1
    }
}

/// A piece of a sentence.
enum Piece<'a> {
    Text(&'a str),
    Number(u64),
}

impl<'a> From<&'a str> for Piece<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(text)
    }
}

impl From<u64> for Piece<'_> {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl From<u32> for Piece<'_> {
    fn from(number: u32) -> Self {
        Self::Number(number.into())
    }
}

/// Says one piece after the other.
macro_rules! tell {
    ($words:expr, $($piece:expr),+) => {{
        $( match Piece::from($piece) {
            Piece::Text(text) => $words.say(text),
            Piece::Number(number) => $words.count(number),
        } )+
    }};
}

impl Note {
    /// The fact in words.
    pub fn tell(&self, words: &mut impl Words) {
        match self {
            Self::Message { number, operation, len } => {
                tell!(words, "message ", *number, ": ", operation.name());
                if let Some(len) = len {
                    tell!(words, " of ", *len, " B");
                }
            }
            Self::Part { number, part } => tell!(words, "message ", *number, ", packet ", *part),
            Self::MessageEnd { number, packets, bytes } => {
                tell!(words, "ends message ", *number, " (");
                tell!(words, *packets, " packets, ", *bytes, " B)");
            }
            Self::Incomplete { ends: true } => {
                tell!(words, "ends a message of which packets are missing");
            }
            Self::Incomplete { ends: false } => {
                tell!(words, "in a message of which packets are missing");
            }
            Self::Late { repeated_in } => {
                tell!(words, "late: sent before frame ", *repeated_in, ", which repeats it");
            }
            Self::Retransmission { of, cause, waited, acknowledged_by } => {
                tell!(words, "retransmission of frame ", *of);
                cause.tell(*waited, words);
                if let Some(frame) = acknowledged_by {
                    tell!(words, ", though frame ", *frame, " acknowledged it");
                }
            }
            Self::Doubled { of } => {
                tell!(words, "the same frame as ", *of, ", doubled by the network");
            }
            Self::FillsGap { cause } => {
                tell!(words, "fills a gap");
                cause.tell(None, words);
            }
            Self::Old => tell!(words, "sent before, longer ago than is remembered"),
            Self::Gap { missing: 1 } => tell!(words, "gap of 1 PSN before"),
            Self::Gap { missing } => tell!(words, "gap of ", *missing, " PSNs before"),
            Self::Restart => tell!(words, "PSNs start anew: a new connection"),
            Self::Acknowledges { first, last, packets: 1 } if first == last => {
                tell!(words, "acknowledges frame ", *first);
            }
            Self::Acknowledges { first, last, packets } => {
                tell!(words, "acknowledges frames ", *first, "–", *last);
                tell!(words, " (", *packets, " packets)");
            }
            Self::DuplicateAck => tell!(words, "acknowledged before"),
            Self::RequestNotSeen => tell!(words, "no request with its PSN was captured"),
            Self::RequestUnclear => tell!(words, "several queue pairs may have asked for it"),
            Self::SequenceNak { from: Some(frame) } => {
                tell!(words, "asks again from frame ", *frame, " on");
            }
            Self::SequenceNak { from: None } => tell!(words, "asks again from its PSN on"),
            Self::ReceiverNotReady { frame: Some(frame) } => {
                tell!(words, "no receive buffer for frame ", *frame);
            }
            Self::ReceiverNotReady { frame: None } => tell!(words, "no receive buffer"),
            Self::FatalNak { frame: Some(frame) } => {
                tell!(words, "refuses frame ", *frame, "; the connection ends");
            }
            Self::FatalNak { frame: None } => {
                tell!(words, "refuses a request that was not captured");
            }
            Self::AnswersRead { frame, part, of } => {
                tell!(words, "answers READ of frame ", *frame);
                match of {
                    Some(of) => tell!(words, " (", *part, " of ", *of, ")"),
                    None => tell!(words, " (part ", *part, ")"),
                }
            }
            Self::Answers { frame, operation } => {
                tell!(words, "answers ", operation.name(), " of frame ", *frame);
            }
            Self::AnsweredBefore => tell!(words, "answered before"),
            Self::ResponseGap { missing: 1 } => tell!(words, "1 response before is missing"),
            Self::ResponseGap { missing } => {
                tell!(words, *missing, " responses before are missing");
            }
            Self::ReadRest { of } => tell!(words, "asks for the missing rest of frame ", *of),
            Self::CongestionNotification { to: (address, qp), mark } => {
                tell!(words, "congestion: QP ");
                words.show(qp);
                tell!(words, " of ");
                words.show(address);
                tell!(words, " shall slow down");
                if let Some(frame) = mark {
                    tell!(words, " for the mark of frame ", *frame);
                }
            }
            Self::Reaction { cnp, before_bps, since_bps, packets } => {
                tell!(words, "seen since the CNP of frame ", *cnp, ": ", *packets, " packets at ");
                words.show(&Bits(*since_bps));
                if let Some(before) = before_bps {
                    tell!(words, ", before it at ");
                    words.show(&Bits(*before));
                }
            }
            Self::CongestionExperienced => tell!(words, "marked: congestion experienced"),
            Self::Dropped => tell!(words, "the receiver drops it"),
            Self::Multicast => tell!(words, "to a multicast group"),
            Self::Management(text) => tell!(words, text.as_str()),
            Self::ManagementAgain { first } => {
                tell!(words, "sent again, first in frame ", *first);
            }
        }
    }
}

impl Cause {
    /// A remark behind something else.
    fn tell(self, waited: Option<Waited>, words: &mut impl Words) {
        match self {
            Self::SequenceNak { frame } => tell!(words, " (NAK in frame ", frame, ")"),
            Self::ReceiverNotReady { frame, asked, .. } => {
                tell!(words, " (RNR NAK in frame ", frame);
                if let Some(Waited { ns, .. }) = waited {
                    tell!(words, ": after ");
                    words.show(&Span(ns));
                    tell!(words, ", asked for ");
                    let asked_10us = asked.duration().as_micros() / 10;
                    let (ms, rest) = (asked_10us / 100, asked_10us % 100);
                    words.show(&format_args!("{ms}.{rest:02} ms"));
                }
                tell!(words, ")");
            }
            Self::NoneSeen => {
                tell!(words, " (");
                if let Some(Waited { ns, .. }) = waited {
                    tell!(words, "after ");
                    words.show(&Span(ns));
                    tell!(words, ", ");
                }
                let is_timeout = waited.is_some_and(|waited| waited.is_unanswered);
                tell!(
                    words,
                    if is_timeout { "no NAK seen: ACK timeout?)" } else { "no NAK seen)" }
                );
            }
            Self::Continues => {}
            Self::Late { before } => tell!(words, " (late: sent before frame ", before, ")"),
        }
    }
}
