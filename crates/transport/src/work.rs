//! Work: what an application asks of a queue pair, and how it ended.
//!
//! IBA vol 1 §10.7 and §11.6; the names are those of libibverbs.

mod access;
mod attributes;

use roxe_wire::{FlushPlacement, FlushSelectivity, ImmDt, LKey, MAX_MESSAGE_LEN, QKey, Qpn, RKey};

pub use access::AccessFlags;
pub use attributes::Attributes;

/// A piece of registered memory: `ibv_sge`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sge {
    /// Where it begins, as its region counts.
    pub va: u64,
    /// Bytes. 0 contributes nothing.
    pub len: u32,
    /// Names the region.
    pub l_key: LKey,
}

/// A range of a peer's or of our own memory, as its region counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Where it begins.
    pub va: u64,
    /// Bytes.
    pub len: u64,
}

/// A place in the peer's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Remote {
    /// Where it begins, as the peer's region counts.
    pub va: u64,
    /// Names the peer's region or window.
    pub r_key: RKey,
}

impl Remote {
    /// As peers may tell each other: the address, then the key, both big-endian.
    pub fn to_bytes(self) -> [u8; 12] {
        let mut bytes = [0; 12];
        bytes[..8].copy_from_slice(&self.va.to_be_bytes());
        bytes[8..].copy_from_slice(&self.r_key.0.to_be_bytes());
        bytes
    }

    /// What [`Remote::to_bytes`] says; nothing if it is not 12 bytes.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (va, r_key) = bytes.split_at_checked(8)?;
        let r_key = RKey(u32::from_be_bytes(r_key.try_into().ok()?));
        Some(Self { va: u64::from_be_bytes(va.try_into().ok()?), r_key })
    }
}

/// Where a datagram goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatagramTarget {
    /// The address handle's path.
    pub path: PathId,
    /// The receiver's queue pair.
    pub qpn: Qpn,
    /// The key it asks for. With the top bit set the sender's own key goes out instead.
    pub q_key: QKey,
}

/// Names a path of the device: where frames go, and with which outer headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathId(pub u32);

/// Where the bytes of a request are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data<'a> {
    /// In registered memory, gathered (or for READ and atomics scattered) in this order.
    Regions(&'a [Sge]),
    /// Here: copied when the request is posted. SENDs and WRITEs, ATOMIC WRITE among them.
    Inline(&'a [u8]),
}

impl Data<'_> {
    /// How many bytes: a list may name more than a message may have.
    pub fn len(&self) -> u64 {
        match self {
            Self::Regions(sges) => sges.iter().map(|sge| u64::from(sge.len)).sum(),
            Self::Inline(bytes) => bytes.len() as u64,
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// What a send request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendOperation {
    /// A message to a receive buffer.
    Send,
    /// The same, with four bytes for the receiver's completion.
    SendWithImm(ImmDt),
    /// The same, and a key of the receiver's that stops being valid.
    SendWithInv(RKey),
    /// To the peer's memory.
    Write(Remote),
    /// The same, and a completion with four bytes at the receiver.
    WriteWithImm(Remote, ImmDt),
    /// From the peer's memory.
    Read(Remote),
    /// Compares 64 bits of the peer's memory and swaps them if equal; gives what was there.
    CompareSwap {
        /// Where. A multiple of 8.
        remote: Remote,
        /// What to compare with.
        compare: u64,
        /// What to store.
        swap: u64,
    },
    /// Adds to 64 bits of the peer's memory; gives what was there.
    FetchAdd {
        /// Where. A multiple of 8.
        remote: Remote,
        /// How much.
        add: u64,
    },
    /// Writes eight bytes at once.
    AtomicWrite(Remote),
    /// Makes earlier writes to the peer's memory visible or persistent.
    Flush {
        /// Where it begins.
        remote: Remote,
        /// How many bytes; nothing is transferred.
        len: u32,
        /// How far.
        placement: FlushPlacement,
        /// How much.
        selectivity: FlushSelectivity,
    },
    /// Something the adapter does by itself, in the order of the queue.
    Local(LocalOperation),
}

impl SendOperation {
    /// The peer's memory it is about.
    pub const fn remote(&self) -> Option<Remote> {
        match *self {
            Self::Write(remote)
            | Self::WriteWithImm(remote, _)
            | Self::Read(remote)
            | Self::CompareSwap { remote, .. }
            | Self::FetchAdd { remote, .. }
            | Self::AtomicWrite(remote)
            | Self::Flush { remote, .. } => Some(remote),
            _ => None,
        }
    }

    /// Whether the responder keeps a resource for its answer: such requests are limited by
    /// `max_rd_atomic`, and a fence waits for them.
    pub const fn takes_responder_resource(&self) -> bool {
        matches!(
            self,
            Self::Read(_)
                | Self::CompareSwap { .. }
                | Self::FetchAdd { .. }
                | Self::AtomicWrite(_)
                | Self::Flush { .. }
        )
    }

    /// Whether its data flows to the requester.
    pub const fn fetches(&self) -> bool {
        matches!(self, Self::Read(_) | Self::CompareSwap { .. } | Self::FetchAdd { .. })
    }

    /// Whether its data may be given inline: SENDs and WRITEs, ATOMIC WRITE among them.
    pub const fn may_be_inline(&self) -> bool {
        matches!(
            self,
            Self::Send
                | Self::SendWithImm(_)
                | Self::SendWithInv(_)
                | Self::Write(_)
                | Self::WriteWithImm(..)
                | Self::AtomicWrite(_)
        )
    }

    /// Whether it uses up a receive buffer of the peer.
    pub const fn consumes_receive(&self) -> bool {
        matches!(
            self,
            Self::Send | Self::SendWithImm(_) | Self::SendWithInv(_) | Self::WriteWithImm(..)
        )
    }
}

/// What the adapter does by itself, in the order of the send queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LocalOperation {
    /// A region or window stops being valid.
    Invalidate(RKey),
    /// A window opens over part of a region, or closes: `IBV_WR_BIND_MW`.
    BindWindow(Binding),
    /// A region gets its address range, rights and key: `IBV_WR_REG_MR`.
    RegisterMemory(FastRegistration),
}

/// What a work request says about a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Binding {
    /// The window's present key; its index stays.
    pub window: RKey,
    /// The key it shall have. It may be the present one.
    pub new_key: RKey,
    /// The region below.
    pub region: LKey,
    /// Which bytes, as the region counts. Length 0 closes a type 1 window.
    pub span: Span,
    /// What peers may do through it, and whether its addresses count from 0.
    pub access: AccessFlags,
}

/// What a work request says about a region that was allocated for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FastRegistration {
    /// The region's present key; its index stays.
    pub region: RKey,
    /// The key it shall have. It may be the present one.
    pub new_key: RKey,
    /// The address that its first byte shall have, and how many bytes.
    pub span: Span,
    /// What may be done with it.
    pub access: AccessFlags,
}

/// A request to the send queue: `ibv_send_wr`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendRequest<'a> {
    /// The application's own name for it; comes back in the completion.
    pub wr_id: u64,
    /// What to do.
    pub operation: SendOperation,
    /// Where its bytes are, or go.
    pub data: Data<'a>,
    /// Whether success shall be completed. Failure always is.
    pub signaled: bool,
    /// Whether the receiver's completion shall be a solicited event.
    pub solicited: bool,
    /// Whether it waits for all READs and atomics before it. RC only.
    pub fence: bool,
    /// Where it goes; datagrams only.
    pub target: Option<DatagramTarget>,
}

/// A request to a receive queue: `ibv_recv_wr`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiveRequest<'a> {
    /// The application's own name for it; comes back in the completion.
    pub wr_id: u64,
    /// Where the message goes, in this order.
    pub sges: &'a [Sge],
}

/// Why a verb refused a request: the caller's mistake, told at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PostError {
    /// The queue holds as many requests as it has room for. `ENOMEM`.
    QueueFull {
        /// Requests it has room for.
        depth: u32,
    },
    /// More scatter/gather elements than the queue was made for. `EINVAL`.
    TooManySegments {
        /// How many.
        given: usize,
        /// How many fit.
        max: u32,
    },
    /// More inline data than the queue was made for. `EINVAL`.
    InlineTooLong {
        /// Bytes.
        given: usize,
        /// Bytes that fit.
        max: u32,
    },
    /// A message longer than 2³¹ bytes. `EINVAL`.
    MessageTooLong {
        /// Bytes.
        len: u64,
    },
    /// The queue pair is in a state that takes no such request. `EINVAL`.
    WrongState,
    /// The service does not have this operation, or not with these flags or data. `EINVAL`.
    NotSupported,
    /// A datagram without a destination or with one that does not exist; or a destination where the
    /// connection has one. `EINVAL`.
    NoTarget,
    /// An atomic whose remote address is not a multiple of 8, or whose data is not 8 bytes.
    /// `EINVAL`.
    BadAtomic,
    /// The queue pair takes its receives from a shared queue. `EINVAL`.
    SharedReceiveQueue,
    /// No such queue. `EINVAL`.
    NoSuchQueue,
}

impl core::fmt::Display for PostError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::QueueFull { depth } => write!(f, "the queue is full: it holds {depth} requests"),
            Self::TooManySegments { given, max } => {
                write!(f, "{given} scatter/gather elements, the queue was made for {max}")
            }
            Self::InlineTooLong { given, max } => {
                write!(f, "{given} bytes of inline data, the queue was made for {max}")
            }
            Self::MessageTooLong { len } => {
                write!(f, "a message of {len} bytes, {MAX_MESSAGE_LEN} are the most")
            }
            Self::WrongState => f.write_str("the queue pair's state takes no such request"),
            Self::NotSupported => f.write_str("the service does not have this operation"),
            Self::NoTarget => f.write_str("a datagram needs an address handle"),
            Self::BadAtomic => f.write_str("atomics need 8 bytes at a multiple of 8"),
            Self::SharedReceiveQueue => f.write_str("receives come from a shared queue"),
            Self::NoSuchQueue => f.write_str("no such queue"),
        }
    }
}

impl core::error::Error for PostError {}

/// How a request ended: `ibv_wc_status`, with its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum CompletionStatus {
    /// Done.
    Success = 0,
    /// A message did not fit: into a receive buffer, or into what the service allows.
    LocalLengthError = 1,
    /// The queue pair cannot do this, or the request is inconsistent.
    LocalQpOperationError = 2,
    /// A local key, range or right is wrong.
    LocalProtectionError = 4,
    /// Not tried: the queue pair is in error.
    Flushed = 5,
    /// A memory window could not be bound.
    MwBindError = 6,
    /// The peer answered something that does not answer the request.
    BadResponse = 7,
    /// A local buffer could not be written on behalf of a peer.
    LocalAccessError = 8,
    /// The peer found the request invalid.
    RemoteInvalidRequest = 9,
    /// The peer refused the key, the range or the right.
    RemoteAccessError = 10,
    /// The peer failed for a reason of its own.
    RemoteOperationError = 11,
    /// The peer did not answer, however often it was tried.
    RetryExceeded = 12,
    /// The peer had no receive buffer, however often it was tried.
    RnrRetryExceeded = 13,
    /// The adapter failed.
    Fatal = 19,
}

impl CompletionStatus {
    /// The number in `ibv_wc_status`.
    //= BC-047, 05-5.3
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// In words, as scripts and messages have it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Success => "ok",
            Self::LocalLengthError => "local-length-error",
            Self::LocalQpOperationError => "local-qp-operation-error",
            Self::LocalProtectionError => "local-protection-error",
            Self::Flushed => "flushed",
            Self::MwBindError => "mw-bind-error",
            Self::BadResponse => "bad-response",
            Self::LocalAccessError => "local-access-error",
            Self::RemoteInvalidRequest => "remote-invalid-request",
            Self::RemoteAccessError => "remote-access-error",
            Self::RemoteOperationError => "remote-operation-error",
            Self::RetryExceeded => "retry-exceeded",
            Self::RnrRetryExceeded => "rnr-retry-exceeded",
            Self::Fatal => "fatal",
        }
    }
}

/// What a completion is about: `ibv_wc_opcode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum CompletionOpcode {
    /// A SEND of any kind.
    Send = 0,
    /// A WRITE of any kind.
    RdmaWrite = 1,
    /// A READ.
    RdmaRead = 2,
    /// A compare and swap.
    CompSwap = 3,
    /// A fetch and add.
    FetchAdd = 4,
    /// A window was bound.
    BindMw = 5,
    /// A key was invalidated.
    LocalInv = 6,
    /// A flush.
    Flush = 8,
    /// An atomic write.
    AtomicWrite = 9,
    /// A region was registered by work request. Programs cannot ask for it; the number is that of
    /// the kernel's `ib_wc_opcode`.
    RegMr = 10,
    /// A message was received.
    Recv = 128,
    /// A WRITE with immediate data was received.
    RecvRdmaWithImm = 129,
}

impl CompletionOpcode {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 12] = [
        Self::Send,
        Self::RdmaWrite,
        Self::RdmaRead,
        Self::CompSwap,
        Self::FetchAdd,
        Self::BindMw,
        Self::LocalInv,
        Self::Flush,
        Self::AtomicWrite,
        Self::RegMr,
        Self::Recv,
        Self::RecvRdmaWithImm,
    ];

    /// The number in `ibv_wc_opcode`.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// What the completion of a send request says.
    //= BC-097
    pub const fn of(operation: &SendOperation) -> Self {
        match operation {
            SendOperation::Send | SendOperation::SendWithImm(_) | SendOperation::SendWithInv(_) => {
                Self::Send
            }
            SendOperation::Write(_) | SendOperation::WriteWithImm(..) => Self::RdmaWrite,
            SendOperation::Read(_) => Self::RdmaRead,
            SendOperation::CompareSwap { .. } => Self::CompSwap,
            SendOperation::FetchAdd { .. } => Self::FetchAdd,
            SendOperation::AtomicWrite(_) => Self::AtomicWrite,
            SendOperation::Flush { .. } => Self::Flush,
            SendOperation::Local(LocalOperation::Invalidate(_)) => Self::LocalInv,
            SendOperation::Local(LocalOperation::BindWindow(_)) => Self::BindMw,
            SendOperation::Local(LocalOperation::RegisterMemory(_)) => Self::RegMr,
        }
    }
}

/// What came with a received message besides its bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Extra {
    /// Nothing.
    #[default]
    None,
    /// Immediate data: `IBV_WC_WITH_IMM`.
    Imm(ImmDt),
    /// A key of ours was invalidated: `IBV_WC_WITH_INV`.
    Invalidated(RKey),
}

/// How one request ended: `ibv_wc`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The application's name for the request.
    pub wr_id: u64,
    /// How it ended. Unless `Success`, only `wr_id`, `status` and `qpn` mean anything.
    pub status: CompletionStatus,
    /// What it was.
    pub opcode: CompletionOpcode,
    /// Bytes transferred: received, or fetched by READ and atomics. A datagram counts 40 more.
    pub byte_len: u32,
    /// What came along; receives only.
    pub extra: Extra,
    /// Our queue pair.
    pub qpn: Qpn,
    /// The sender's queue pair; receives only.
    pub source_qp: Qpn,
    /// Whether the first 40 bytes of the buffer are the GRH area; datagrams only.
    pub grh: bool,
    /// Whether the area holds an IPv6 header, and not an IPv4 one; datagrams only.
    pub ipv6: bool,
    /// Whether the sender asked for a solicited event; receives only.
    pub solicited: bool,
}

impl Completion {
    /// Room for one: what a slice holds before completions are polled into it.
    pub const BLANK: Self = Self {
        wr_id: 0,
        status: CompletionStatus::Success,
        opcode: CompletionOpcode::Send,
        byte_len: 0,
        extra: Extra::None,
        qpn: Qpn::new(0),
        source_qp: Qpn::new(0),
        grh: false,
        ipv6: false,
        solicited: false,
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_opcodes_of_completions_have_the_numbers_of_ibv_wc_opcode() {
        let codes = CompletionOpcode::ALL.map(CompletionOpcode::code);
        assert_eq!(codes, [0, 1, 2, 3, 4, 5, 6, 8, 9, 10, 128, 129]);
    }
}
