//! The rules that a capture can show to be broken.

use std::fmt;

/// A rule of the protocol that an observer can judge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// Every packet carries the ICRC of its bytes. IBA vol 1 §7.8, annex A17.
    Icrc,
    /// A frame to port 4791 has well-formed headers. IBA vol 1 §9.2, §9.3, annex A17.
    Format,
    /// A UDP checksum is 0 or right.
    UdpChecksum,
    /// Packets of a message follow each other: First, Middle, Last of one operation. §9.7.
    OpcodeSequence,
    /// First and Middle packets are as long as the path MTU, Last and Only ones not longer. C9-92.
    PayloadLength,
    /// All full packets of one direction have one length: the path MTU.
    PathMtu,
    /// The payload of a WRITE adds up to the length in its first packet.
    WriteLength,
    /// A message is not longer than 2³¹ bytes. C9-94.
    MessageLength,
    /// A packet that is sent again is the same packet. Its payload is not compared. §9.7.
    Retransmission,
    /// An acknowledgement names a packet that was sent. Broken where the MSN shows that the
    /// responder did not have it; else the capture may have lost it, or seen it late. §9.7.5.
    AckPsn,
    /// The MSN counts the messages that were completed. §9.7.7.
    Msn,
    /// A READ is answered by the PSNs it reserved, First to Last, with its length. §9.7.
    ReadResponse,
    /// An atomic that is answered twice is answered with the same value. §9.7.
    AtomicResponse,
    /// A request gets the kind of response that its operation asks for.
    ResponseKind,
    /// Atomics address a multiple of eight.
    AtomicAlignment,
    /// Queue pair 0 does not exist on RoCE; 0xffffff stands for a multicast group only.
    Destination,
    /// A congestion notification has BECN set and PSN 0. §A17.9.3.
    Cnp,
    /// A management datagram to queue pair 1 has the well-known Q_Key.
    ManagementQKey,
}

impl Rule {
    /// Every rule.
    pub const ALL: [Self; 18] = [
        Self::Icrc,
        Self::Format,
        Self::UdpChecksum,
        Self::OpcodeSequence,
        Self::PayloadLength,
        Self::PathMtu,
        Self::WriteLength,
        Self::MessageLength,
        Self::Retransmission,
        Self::AckPsn,
        Self::Msn,
        Self::ReadResponse,
        Self::AtomicResponse,
        Self::ResponseKind,
        Self::AtomicAlignment,
        Self::Destination,
        Self::Cnp,
        Self::ManagementQKey,
    ];

    /// The stable name by which findings call it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Icrc => "icrc",
            Self::Format => "format",
            Self::UdpChecksum => "udp-checksum",
            Self::OpcodeSequence => "opcode-sequence",
            Self::PayloadLength => "payload-length",
            Self::PathMtu => "path-mtu",
            Self::WriteLength => "write-length",
            Self::MessageLength => "message-length",
            Self::Retransmission => "retransmission",
            Self::AckPsn => "ack-psn",
            Self::Msn => "msn",
            Self::ReadResponse => "read-response",
            Self::AtomicResponse => "atomic-response",
            Self::ResponseKind => "response-kind",
            Self::AtomicAlignment => "atomic-alignment",
            Self::Destination => "destination",
            Self::Cnp => "cnp",
            Self::ManagementQKey => "management-qkey",
        }
    }

    /// What it asks for, in a sentence.
    pub const fn says(self) -> &'static str {
        match self {
            Self::Icrc => "every packet carries the ICRC of its bytes",
            Self::Format => "a frame to UDP port 4791 has well-formed headers",
            Self::UdpChecksum => "a UDP checksum is 0 or right",
            Self::OpcodeSequence => "a message is First, Middle …, Last of one operation, or Only",
            Self::PayloadLength => "First and Middle packets carry the path MTU, Last 1 up to it",
            Self::PathMtu => "all First and Middle packets of one direction are equally long",
            Self::WriteLength => "the payload of a WRITE adds up to the length its RETH announced",
            Self::MessageLength => "a message is at most 2^31 bytes long",
            Self::Retransmission => {
                "what is sent again under one PSN has the same opcode, length and headers"
            }
            Self::AckPsn => "an acknowledgement names a PSN that was sent",
            Self::Msn => "the MSN counts completed messages",
            Self::ReadResponse => "a READ is answered in the PSNs it reserved, with its length",
            Self::AtomicResponse => "an atomic answered twice is answered with the same value",
            Self::ResponseKind => "a response is of the kind that its request asks for",
            Self::AtomicAlignment => "an atomic addresses a multiple of eight",
            Self::Destination => "QP 0 is not used; QP 0xffffff is for multicast addresses only",
            Self::Cnp => "a CNP has BECN set and PSN 0",
            Self::ManagementQKey => "a datagram to QP 1 has Q_Key 0x80010000",
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A broken rule: which, what was seen, and what would have been right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The rule.
    pub rule: Rule,
    /// What the frame has.
    pub seen: String,
    /// What it should have had; empty where `seen` says it all.
    pub expected: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.rule, self.seen)?;
        if self.expected.is_empty() { Ok(()) } else { write!(f, "; expected {}", self.expected) }
    }
}
