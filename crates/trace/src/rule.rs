//! The rules that a capture can show to be broken.

use std::fmt;

/// A row a rule: what it means, what it comes from, its variant, its name, and what it says. Enum,
/// list and words are made of the rows, so that none can lack one.
macro_rules! rules {
    ($($(#[$doc:meta])+ $rule:ident, $name:literal, $says:literal;)+) => {
        /// A rule of the protocol that an observer can judge.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Rule {
            $($(#[$doc])+ $rule,)+
        }

        impl Rule {
            /// Every rule.
            pub const ALL: [Self; [$($name),+].len()] = [$(Self::$rule),+];

            /// The stable name by which findings call it.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$rule => $name,)+
                }
            }

            /// What it asks for, in a sentence.
            pub const fn says(self) -> &'static str {
                match self {
                    $(Self::$rule => $says,)+
                }
            }
        }
    };
}

rules! {
    /// Every packet carries the ICRC of its bytes. IBA vol 1 §7.8, annex A17.
    //= 03-3.1, F01
    Icrc, "icrc", "every packet carries the ICRC of its bytes";
    /// A frame to port 4791 has well-formed headers. IBA vol 1 §9.2, §9.3, annex A17.
    //= 01-1.1, BC-004, F07
    Format, "format", "a frame to UDP port 4791 has well-formed headers";
    /// A UDP checksum is 0 or right.
    //= 01-1.5, F04
    UdpChecksum, "udp-checksum", "a UDP checksum is 0 or right";
    /// Packets of a message follow each other: First, Middle, Last of one operation. §9.7.
    //= 02-2.3, R12, R13
    OpcodeSequence, "opcode-sequence",
        "a message is First, Middle …, Last of one operation, or Only";
    /// First and Middle packets are as long as the path MTU, Last and Only ones not longer. C9-92.
    //= IBA C9-92, R15
    PayloadLength, "payload-length", "First and Middle packets carry the path MTU, Last 1 up to it";
    /// All full packets of one direction have one length: the path MTU.
    //= IBA C9-92, R14
    PathMtu, "path-mtu", "all First and Middle packets of one direction are equally long";
    /// The payload of a WRITE adds up to the length in its first packet.
    //= R16
    WriteLength, "write-length", "the payload of a WRITE adds up to the length its RETH announced";
    /// A message is not longer than 2³¹ bytes. C9-94.
    //= IBA C9-94, R38
    MessageLength, "message-length", "a message is at most 2^31 bytes long";
    /// A packet that is sent again is the same packet. Its payload is not compared. §9.7.
    //= BC-031, BC-053
    Retransmission, "retransmission",
        "what is sent again under one PSN has the same opcode, length and headers";
    /// An acknowledgement names a packet that was sent. Broken where the MSN shows that the
    /// responder did not have it; else the capture may have lost it, or seen it late. §9.7.5.
    //= 04-4.3
    AckPsn, "ack-psn", "an acknowledgement names a PSN that was sent";
    /// The MSN counts the messages that were completed. §9.7.7.
    //= IBA C9-148, 04-4.3
    Msn, "msn", "the MSN counts completed messages";
    /// A READ is answered by the PSNs it reserved, First to Last, with its length. §9.7.
    //= 02-2.4, 02-2.6, R28
    ReadResponse, "read-response", "a READ is answered in the PSNs it reserved, with its length";
    /// An atomic that is answered twice is answered with the same value. §9.7.
    //= BC-050, R10
    AtomicResponse, "atomic-response", "an atomic answered twice is answered with the same value";
    /// A request gets the kind of response that its operation asks for.
    //= 02-2.1
    ResponseKind, "response-kind", "a response is of the kind that its request asks for";
    /// Atomics address a multiple of eight.
    //= BC-062, R29
    AtomicAlignment, "atomic-alignment", "an atomic addresses a multiple of eight";
    /// Queue pair 0 does not exist on RoCE; 0xffffff stands for a multicast group only.
    //= 05-5.8, BC-111
    Destination, "destination", "QP 0 is not used; QP 0xffffff is for multicast addresses only";
    /// A congestion notification has BECN set and PSN 0. §A17.9.3.
    //= 02-2.2, BC-017
    Cnp, "cnp", "a CNP has BECN set and PSN 0";
    /// A management datagram to queue pair 1 has the well-known Q_Key.
    //= 05-5.8
    ManagementQKey, "management-qkey", "a datagram to QP 1 has Q_Key 0x80010000";
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
