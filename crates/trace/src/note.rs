//! Facts about a frame: what it means for its conversation.

use std::fmt;
use std::net::IpAddr;

use roxe_wire::opcode::Operation;
use roxe_wire::{NakCode, Qpn};

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
    /// The packet was sent before.
    Retransmission {
        /// The frame that carried it first.
        of: u64,
        /// Why it comes again, as far as can be seen.
        cause: Cause,
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
    /// A positive acknowledgement makes progress.
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
    /// An acknowledgement whose request is not in the capture.
    RequestNotSeen,
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
        /// Why.
        code: NakCode,
        /// The frame refused, if it was seen.
        frame: Option<u64>,
    },
    /// Part of the answer to a READ.
    AnswersRead {
        /// The frame of the request.
        frame: u64,
        /// Which part, counted from 1.
        part: u32,
        /// How many parts there are.
        of: u32,
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
    },
    /// A switch marked the packet.
    CongestionExperienced,
    /// The receiver throws this frame away.
    Dropped,
    /// A datagram to a multicast group.
    Multicast,
    /// A management datagram in words.
    Management(String),
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
    },
    /// No NAK was seen: the requester waited too long, or the network doubled the frame.
    NoneSeen,
    /// It follows another packet that was sent again for no reason that was seen.
    Continues,
}

/// A remark behind something else.
impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SequenceNak { frame } => write!(f, " (NAK in frame {frame})"),
            Self::ReceiverNotReady { frame } => write!(f, " (RNR NAK in frame {frame})"),
            Self::NoneSeen => f.write_str(" (no NAK seen)"),
            Self::Continues => Ok(()),
        }
    }
}

/// How an operation is called in a sentence.
pub(crate) const fn operation_name(operation: Operation) -> &'static str {
    match operation {
        Operation::Send => "SEND",
        Operation::Write => "WRITE",
        Operation::ReadRequest => "READ",
        Operation::ReadResponse => "READ response",
        Operation::Acknowledge => "ACK",
        Operation::AtomicAcknowledge => "atomic ACK",
        Operation::CompareSwap => "CMP_SWAP",
        Operation::FetchAdd => "FETCH_ADD",
        Operation::Resync => "RESYNC",
        Operation::Flush => "FLUSH",
        Operation::AtomicWrite => "ATOMIC WRITE",
        Operation::Notify => "CNP",
    }
}

impl Note {
    /// What kind of fact it is: one stable word.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Message { .. } => "message",
            Self::Part { .. } => "part",
            Self::MessageEnd { .. } => "message_end",
            Self::Retransmission { .. } => "retransmission",
            Self::FillsGap { .. } => "fills_gap",
            Self::Old => "old",
            Self::Gap { .. } => "gap",
            Self::Restart => "restart",
            Self::Acknowledges { .. } => "acknowledges",
            Self::DuplicateAck => "duplicate_ack",
            Self::RequestNotSeen => "request_not_seen",
            Self::SequenceNak { .. } => "sequence_nak",
            Self::ReceiverNotReady { .. } => "receiver_not_ready",
            Self::FatalNak { .. } => "fatal_nak",
            Self::AnswersRead { .. } => "answers_read",
            Self::Answers { .. } => "answers",
            Self::AnsweredBefore => "answered_before",
            Self::ResponseGap { .. } => "response_gap",
            Self::ReadRest { .. } => "read_rest",
            Self::CongestionNotification { .. } => "congestion_notification",
            Self::CongestionExperienced => "congestion_experienced",
            Self::Dropped => "dropped",
            Self::Multicast => "multicast",
            Self::Management(_) => "management",
        }
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Message { number, operation, len } => {
                write!(f, "message {number}: {}", operation_name(*operation))?;
                match len {
                    Some(len) => write!(f, " of {len} B"),
                    None => Ok(()),
                }
            }
            Self::Part { number, part } => write!(f, "message {number}, packet {part}"),
            Self::MessageEnd { number, packets, bytes } => {
                write!(f, "ends message {number} ({packets} packets, {bytes} B)")
            }
            Self::Retransmission { of, cause } => {
                write!(f, "retransmission of frame {of}{cause}")
            }
            Self::FillsGap { cause } => write!(f, "fills a gap{cause}"),
            Self::Old => f.write_str("sent before, longer ago than is remembered"),
            Self::Gap { missing: 1 } => f.write_str("gap of 1 PSN before"),
            Self::Gap { missing } => write!(f, "gap of {missing} PSNs before"),
            Self::Restart => f.write_str("PSNs start anew: a new connection"),
            Self::Acknowledges { first, last, packets: 1 } if first == last => {
                write!(f, "acknowledges frame {first}")
            }
            Self::Acknowledges { first, last, packets } => {
                write!(f, "acknowledges frames {first}–{last} ({packets} packets)")
            }
            Self::DuplicateAck => f.write_str("acknowledged before"),
            Self::RequestNotSeen => f.write_str("its request was not captured"),
            Self::SequenceNak { from: Some(frame) } => {
                write!(f, "asks again from frame {frame} on")
            }
            Self::SequenceNak { from: None } => f.write_str("asks again from its PSN on"),
            Self::ReceiverNotReady { frame: Some(frame) } => {
                write!(f, "no receive buffer for frame {frame}")
            }
            Self::ReceiverNotReady { frame: None } => f.write_str("no receive buffer"),
            Self::FatalNak { code, frame } => {
                write!(f, "refuses")?;
                if let Some(frame) = frame {
                    write!(f, " frame {frame}")?;
                }
                write!(f, ": {code}; the connection ends")
            }
            Self::AnswersRead { frame, part, of } => {
                write!(f, "answers READ of frame {frame} ({part} of {of})")
            }
            Self::Answers { frame, operation } => {
                write!(f, "answers {} of frame {frame}", operation_name(*operation))
            }
            Self::AnsweredBefore => f.write_str("answered before"),
            Self::ResponseGap { missing: 1 } => f.write_str("1 response before is missing"),
            Self::ResponseGap { missing } => write!(f, "{missing} responses before are missing"),
            Self::ReadRest { of } => write!(f, "asks for the missing rest of frame {of}"),
            Self::CongestionNotification { to: (address, qp) } => {
                write!(f, "congestion: QP {qp} of {address} shall slow down")
            }
            Self::CongestionExperienced => f.write_str("marked: congestion experienced"),
            Self::Dropped => f.write_str("the receiver drops it"),
            Self::Multicast => f.write_str("to a multicast group"),
            Self::Management(text) => f.write_str(text),
        }
    }
}
