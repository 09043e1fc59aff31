//! Why a queue pair ended, in a sentence and in values.
//!
//! A work completion says "status 12" and no more. What the queue pair knows at that moment, which
//! request, which frame or timeout, which rule, is kept as an [`Ending`], which says it in words.
//! It is made where the queue pair ends and costs nothing before.

mod fields;
mod words;

use core::time::Duration;

use roxe_wire::{Instant, NakCode, Psn, RKey};

use crate::adapter::{KeyViolation, QpEvent, Receive};
use crate::qp_state::QpState;
use crate::work::{CompletionStatus, SendOperation, Sge};

pub use fields::Field;

/// How a queue pair left the states in which it works, or how a receive of a datagram queue pair
/// failed, which goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ending {
    /// When. If a verb did it, the time of what happened before.
    pub at: Instant,
    /// In which state it was.
    pub from: QpState,
    /// To which it went.
    pub to: QpState,
    /// Why.
    pub cause: Cause,
}

/// Why a queue pair ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// A request of ours failed, and completes with a status.
    Request(FailedRequest, RequestFailure),
    /// A request of the peer's broke a rule, and is answered with this NAK: the rule's own, unless
    /// the queue pair's [`Conduct`](crate::conduct::Conduct) is to answer otherwise. `None` when a
    /// READ before it, whose memory went away meanwhile, got the NAK instead.
    Peer(PeerRequest, Rule, Option<NakCode>),
    /// A message could not be stored where its receive said. That ends an unreliable connection;
    /// for datagrams nothing ends.
    Receive(Receive, ReceiveFailure),
    /// `ibv_modify_qp` to state Error.
    Modified,
    /// The port is gone: nothing will come or go any more.
    PortGone,
    /// A completion found no room: its queue overran, or had before.
    CompletionLost,
}

/// A request of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailedRequest {
    /// The application's name for it.
    pub wr_id: u64,
    /// What it was to do.
    pub operation: SendOperation,
    /// Bytes of the message.
    pub len: u32,
    /// How it completes.
    pub status: CompletionStatus,
}

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestFailure {
    /// Tried as often as `retry_cnt` allows.
    NoAnswer {
        /// From this packet on.
        psn: Psn,
        /// How often the ACK timer ran out.
        timeouts: u8,
        /// How often the peer, or an answer out of turn, said that packets were missing.
        naks: u8,
        /// How long the timer runs.
        wait: Duration,
        /// For how long the peer has answered nothing; `None` if it never did.
        silence: Option<Duration>,
        /// How long ago the peer last asked for something itself; `None` if it never did.
        heard: Option<Duration>,
    },
    /// The peer had no receive buffer as often as `rnr_retry` allows.
    NotReady {
        /// For this packet.
        psn: Psn,
        /// How often it said so.
        naks: u8,
        /// How long it wanted us to wait, the last time.
        wait: Duration,
    },
    /// The peer refused it.
    Refused {
        /// This packet of it.
        psn: Psn,
        /// With this code.
        code: NakCode,
    },
    /// The peer answered what was not asked.
    BadResponse {
        /// With this PSN.
        psn: Psn,
        /// With this opcode.
        opcode: u8,
        /// What is wrong with it.
        what: BadResponse,
    },
    /// A response to a READ brought another number of bytes than its turn was.
    ReadLength {
        /// With this PSN.
        psn: Psn,
        /// How many it brought.
        found: u16,
        /// How many it should have brought.
        expected: u16,
    },
    /// Memory of our own that it names may not be used so.
    LocalKey {
        /// The first element that may not; `None` when there is none any more.
        sge: Option<Sge>,
        /// Whether it was to be written to.
        write: bool,
        /// What is wrong.
        violation: KeyViolation,
    },
    /// It takes more packets than may be outstanding at once.
    TooManyPackets {
        /// So many.
        packets: u32,
    },
    /// A datagram does not fit into one packet.
    LongerThanMtu {
        /// So many bytes do.
        mtu: u32,
    },
    /// A datagram whose address handle was destroyed after it was posted.
    NoHandle,
    /// It is a READ, an atomic or the like, of which `max_rd_atomic` allows none.
    NoResources,
    /// The adapter could not do what it does by itself.
    Local(KeyViolation),
}

/// What is wrong with a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadResponse {
    /// A NAK with a code that no reliable connection sends.
    Code(NakCode),
    /// A NAK where data should be.
    Refusal,
    /// It answers another kind of request than has this PSN.
    Kind,
    /// First, middle and last do not follow each other as the READ's responses do.
    Position,
    /// It carries data, and nothing was asked for.
    Payload,
}

/// A request of the peer's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerRequest {
    /// The packet's opcode.
    pub opcode: u8,
    /// Its PSN.
    pub psn: Psn,
    /// Bytes of payload.
    pub payload: u32,
    /// Which memory it was about: key, address, bytes.
    pub remote: Option<(RKey, u64, u32)>,
    /// The receive in hand, and how many bytes of the message it had got.
    pub receive: Option<(Receive, u32)>,
}

/// The rules whose breach ends a connection on the responder's side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// First, middle and last packets of a message follow each other.
    Sequence,
    /// The queue pair grants the right.
    QueuePairAccess,
    /// No more READs and atomics than there are resources for.
    Resources,
    /// Packet lengths fit their opcode and the path MTU.
    PacketLength,
    /// No message is longer than 2³¹ bytes.
    MessageLength,
    /// A WRITE brings the bytes that it announced.
    WriteLength,
    /// Key, range and right.
    Key(KeyViolation),
    /// Atomics address a multiple of eight.
    Aligned,
    /// A message fits its receive.
    ReceiveLength,
    /// The receive's own memory can be written.
    ReceiveKey(KeyViolation),
    /// The key to invalidate is that of a fast-registered region or a type 2 window.
    Invalidate(KeyViolation),
    /// An ATOMIC WRITE announces eight bytes.
    AtomicWriteLength,
    /// A FLUSH says what, and how far.
    FlushTarget,
    /// The memory of a READ stays until it is answered.
    ReadKey(KeyViolation),
    /// The opcode is defined, and a request of a reliable connection.
    Opcode,
}

/// Why a message could not be stored where its receive said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceiveFailure {
    /// A message does not fit; before a datagram's data 40 bytes count too.
    TooLong {
        /// So many bytes, as far as they are known.
        len: u32,
    },
    /// The receive's memory cannot be written.
    Key(KeyViolation),
}

impl ReceiveFailure {
    /// How the receive completes.
    pub const fn status(self) -> CompletionStatus {
        match self {
            Self::TooLong { .. } => CompletionStatus::LocalLengthError,
            Self::Key(_) => CompletionStatus::LocalProtectionError,
        }
    }
}

impl From<ReceiveFailure> for Rule {
    fn from(why: ReceiveFailure) -> Self {
        match why {
            ReceiveFailure::TooLong { .. } => Self::ReceiveLength,
            ReceiveFailure::Key(violation) => Self::ReceiveKey(violation),
        }
    }
}

impl Rule {
    /// What the NAK says, as the specification has it.
    pub const fn nak(self) -> NakCode {
        match self {
            Self::ReceiveKey(_) | Self::Key(KeyViolation::MemoryGone) => {
                NakCode::RemoteOperationalError
            }
            Self::Key(_) | Self::Invalidate(_) | Self::ReadKey(_) => NakCode::RemoteAccessError,
            _ => NakCode::InvalidRequest,
        }
    }

    /// How a receive in hand completes.
    //= 05-5.3
    pub const fn receive_status(self) -> CompletionStatus {
        match (self, self.nak()) {
            (Self::ReceiveLength, _) => CompletionStatus::LocalLengthError,
            (_, NakCode::InvalidRequest) => CompletionStatus::LocalQpOperationError,
            _ => CompletionStatus::LocalProtectionError,
        }
    }

    /// What the application hears of it besides.
    pub const fn event(self) -> QpEvent {
        match self.nak() {
            NakCode::RemoteAccessError => QpEvent::AccessError,
            NakCode::RemoteOperationalError => QpEvent::Fatal,
            _ => QpEvent::RequestError,
        }
    }

    /// The rule's id in the ledger, `tests/conformance/requirements.toml`.
    pub const fn id(self) -> &'static str {
        match self {
            Self::Sequence => "R13",
            Self::QueuePairAccess | Self::Resources => "04-4.2",
            Self::PacketLength => "C9-92",
            Self::MessageLength => "C9-94",
            Self::WriteLength => "R16",
            Self::Key(_) => "05-5.6",
            Self::Aligned => "BC-062",
            Self::ReceiveLength => "R26",
            Self::ReceiveKey(_) => "BC-078",
            Self::Invalidate(_) => "R32",
            Self::AtomicWriteLength | Self::FlushTarget => "02-2.1",
            Self::ReadKey(_) => "BC-055",
            Self::Opcode => "04-4.6",
        }
    }

    /// What is wrong with the key, where the rule is about one.
    pub const fn violation(self) -> Option<KeyViolation> {
        match self {
            Self::Key(violation)
            | Self::ReceiveKey(violation)
            | Self::Invalidate(violation)
            | Self::ReadKey(violation) => Some(violation),
            _ => None,
        }
    }
}

impl Cause {
    /// Whether a request got no answer from a peer that never gave one.
    pub const fn is_never_answered(&self) -> bool {
        matches!(self, Self::Request(_, RequestFailure::NoAnswer { silence: None, .. }))
    }

    /// The status of the request that failed; `None` where no request failed, but all are flushed.
    pub const fn status(&self) -> Option<CompletionStatus> {
        match self {
            Self::Request(request, _) => Some(request.status),
            Self::Peer(PeerRequest { receive: Some(_), .. }, rule, _) => {
                Some(rule.receive_status())
            }
            Self::Receive(_, why) => Some(why.status()),
            Self::Peer(..) | Self::Modified | Self::PortGone | Self::CompletionLost => None,
        }
    }
}
