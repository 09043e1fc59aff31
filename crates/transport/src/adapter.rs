//! What a queue pair asks of the adapter it belongs to.
//!
//! A queue pair knows its protocol and nothing else: no table of keys, no memory, no queue of
//! another. The device answers for all of them through this trait, one value per queue pair and
//! call, so that an answer may depend on the queue pair's protection domain and number.

use roxe_wire::{Payload, RKey};

use crate::work::{AccessFlags, Completion, LocalOperation, PathId, Sge, Span};

/// A receive request in the hands of a queue pair, until it is completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receive {
    /// The application's name for it.
    pub wr_id: u64,
    /// Where the adapter keeps its scatter list.
    pub slot: u32,
    /// Bytes that the list has room for.
    pub len: u32,
}

/// What a peer wants to do with our memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// WRITE and ATOMIC WRITE.
    Write,
    /// READ.
    Read,
    /// Fetching atomics.
    Atomic,
    /// FLUSH to global visibility.
    FlushGlobal,
    /// FLUSH to persistence.
    FlushPersistent,
}

impl Access {
    /// The right that it needs.
    pub const fn right(self) -> AccessFlags {
        match self {
            Self::Write => AccessFlags::REMOTE_WRITE,
            Self::Read => AccessFlags::REMOTE_READ,
            Self::Atomic => AccessFlags::REMOTE_ATOMIC,
            Self::FlushGlobal => AccessFlags::FLUSH_GLOBAL,
            Self::FlushPersistent => AccessFlags::FLUSH_PERSISTENT,
        }
    }
}

/// Why a key, a range or a right was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyViolation {
    /// No region or window has this key, or it is not valid now.
    NoSuchKey,
    /// It belongs to another protection domain, or the window to another queue pair.
    WrongDomain,
    /// It does not grant this right.
    AccessDenied,
    /// It does not hold the whole range.
    OutsideRegion,
    /// The memory behind it is gone.
    MemoryGone,
}

impl core::fmt::Display for KeyViolation {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::NoSuchKey => "no region or window has this key now",
            Self::WrongDomain => "the key belongs to another protection domain or queue pair",
            Self::AccessDenied => "the key does not grant this right",
            Self::OutsideRegion => "the key does not hold the whole range",
            Self::MemoryGone => "the memory behind the key is gone",
        })
    }
}

/// Which of the two queues of a queue pair a completion is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueKind {
    /// The send queue.
    Send,
    /// The receive queue.
    Receive,
}

/// What the application should hear about a queue pair besides completions: affiliated
/// asynchronous events of `ibv_event_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QpEvent {
    /// The connection broke for a reason of the adapter's own.
    Fatal,
    /// The peer sent an invalid request.
    RequestError,
    /// The peer violated access rights.
    AccessError,
    /// The first packet arrived in state RTR.
    CommunicationEstablished,
    /// The send queue is drained.
    SqDrained,
    /// The last receive of a shared queue that this queue pair took is completed.
    LastWqeReached,
}

/// Something that happened and is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Count {
    // What may happen with every packet comes first, so that a queue pair's counters for it lie
    // together: `Count::OFTEN`.
    /// An acknowledgement sent.
    AckSent,
    /// WRITE requests received.
    WriteRequests,
    /// READ requests received.
    ReadRequests,
    /// Atomic requests received.
    AtomicRequests,
    /// A packet sent again.
    Retransmitted,
    /// A request that was received before.
    DuplicateRequest,
    /// A request behind a gap.
    OutOfSequence,
    /// A request that found no receive buffer.
    OutOfBuffer,
    /// A receiver-not-ready NAK sent.
    RnrNakSent,
    /// A receiver-not-ready NAK received that ended a try.
    RnrNakReceived,
    /// A receiver-not-ready NAK received after which we tried again.
    RnrRetry,
    /// A sequence NAK sent.
    SequenceNakSent,
    /// A sequence NAK received that made us go back.
    SequenceNakReceived,
    /// A sequence NAK received that acknowledged something besides.
    SequenceNakAhead,
    /// A fatal NAK sent.
    FatalNakSent,
    /// A NAK received: invalid request.
    RemoteInvalidRequest,
    /// A NAK received: remote access error.
    RemoteAccessError,
    /// A NAK received: remote operational error.
    RemoteOperationError,
    /// We refused a peer's access.
    AccessRefused,
    /// A response showed that one before it is missing, and we went back.
    ImpliedNak,
    /// The ACK timer ran out.
    AckTimeout,
    /// A try began again: after a timeout, a sequence NAK, or an answer that was missing.
    RetryStarted,
    /// Retries used up for want of an answer.
    RetryExceeded,
    /// Retries used up for want of a receive buffer.
    RnrRetryExceeded,
    /// A response that answers nothing outstanding.
    GhostResponse,
    /// A response that does not fit what was asked.
    BadResponse,
    /// A duplicate READ executed again.
    ReadReplayed,
    /// An atomic's saved result sent again.
    AtomicReplayed,
    /// A duplicate that matches nothing saved.
    DuplicateDropped,
    /// A packet dropped for the state the queue pair is in.
    WrongState,
    /// An unreliable message dropped after a loss.
    UcMessageDropped,
    /// A datagram dropped for want of a receive buffer.
    UdNoBuffer,
    /// A datagram dropped because it is longer than its buffer or than the path MTU.
    UdTooLong,
    /// A request completed in error, as requester.
    RequesterCqeError,
    /// A request completed in error, as responder.
    ResponderCqeError,
    /// A request flushed, as requester.
    RequesterFlushed,
    /// A request flushed, as responder.
    ResponderFlushed,
    /// A message that did not fit its receive buffer.
    ResponderLengthError,
}

impl Count {
    /// How many there are. `ResponderLengthError` stays the last.
    pub const COUNT: usize = Self::ResponderLengthError as usize + 1;

    /// So many, from the first on, may happen with every packet.
    pub const OFTEN: usize = Self::OutOfBuffer as usize + 1;
}

/// A place for payload bytes: at most two pieces, or none when bytes are elided.
#[derive(Debug)]
pub enum Place<'a> {
    /// Frame memory.
    Bytes {
        /// The beginning.
        first: &'a mut [u8],
        /// What follows it.
        second: &'a mut [u8],
    },
    /// No place: only a digest of the bytes is kept.
    Elided {
        /// How many bytes.
        len: usize,
        /// Their digest.
        digest: &'a mut u32,
    },
}

impl Place<'_> {
    /// How many bytes go there.
    pub fn len(&self) -> usize {
        match self {
            Self::Bytes { first, second } => first.len() + second.len(),
            Self::Elided { len, .. } => *len,
        }
    }

    /// Whether none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A list of scatter/gather elements, in two pieces because it may lie around the end of a ring.
#[derive(Clone, Copy, Debug)]
pub struct SgeList<'a>(pub &'a [Sge], pub &'a [Sge]);

impl SgeList<'_> {
    /// The elements in order.
    pub fn iter(&self) -> impl Iterator<Item = &Sge> {
        self.0.iter().chain(self.1)
    }
}

/// The adapter as one queue pair sees it.
pub trait Adapter {
    /// Whether a receive request waits.
    fn has_receive(&self) -> bool;

    /// How many receive requests wait; `None` where others may take them too.
    fn receives(&self) -> Option<u32>;

    /// Takes the next receive request.
    fn take_receive(&mut self) -> Option<Receive>;

    /// Writes part of a message to a receive buffer, from its byte `offset` on.
    ///
    /// # Errors
    /// A key, range or right of the scatter list is wrong.
    fn scatter_receive(
        &mut self,
        receive: &Receive,
        offset: u32,
        payload: Payload<'_>,
    ) -> Result<(), KeyViolation>;

    /// Gives the receive request back, completed.
    fn complete_receive(&mut self, receive: Receive, completion: Completion);

    /// Gives the receive request back without a completion: the queue pair is reset.
    fn forget_receive(&mut self, receive: Receive);

    /// Whether there is still an address handle behind this path that the queue pair may use.
    fn has_handle(&self, path: PathId) -> bool;

    /// Whether all elements are readable (or, if `write`, writable) by us.
    ///
    /// # Errors
    /// The first violation.
    fn check_local(&self, sges: SgeList<'_>, write: bool) -> Result<(), KeyViolation>;

    /// Copies local memory to a packet: bytes from `offset` on of what the list holds.
    ///
    /// # Errors
    /// A key, range or right is wrong; then nothing of the place may be used.
    fn gather(&self, sges: SgeList<'_>, offset: u32, place: Place<'_>) -> Result<(), KeyViolation>;

    /// Copies a packet to local memory: to byte `offset` on of what the list holds.
    ///
    /// # Errors
    /// A key, range or right is wrong.
    fn scatter(
        &mut self,
        sges: SgeList<'_>,
        offset: u32,
        payload: Payload<'_>,
    ) -> Result<(), KeyViolation>;

    /// Whether the peer may do this with this range. Asked before anything is done.
    ///
    /// # Errors
    /// The first violation.
    fn check_remote(&self, key: RKey, span: Span, access: Access) -> Result<(), KeyViolation>;

    /// Writes for the peer.
    ///
    /// # Errors
    /// As [`Adapter::check_remote`], which this repeats: keys may have gone meanwhile.
    fn write_remote(
        &mut self,
        key: RKey,
        va: u64,
        payload: Payload<'_>,
    ) -> Result<(), KeyViolation>;

    /// Reads for the peer.
    ///
    /// # Errors
    /// As [`Adapter::check_remote`], which this repeats.
    fn read_remote(&self, key: RKey, va: u64, place: Place<'_>) -> Result<(), KeyViolation>;

    /// Does an atomic for the peer: `change` says what shall stand there instead of what does, or
    /// `None` to leave it. Gives what stood there.
    ///
    /// # Errors
    /// As [`Adapter::check_remote`], which this repeats.
    fn atomic_remote(
        &mut self,
        key: RKey,
        va: u64,
        change: &mut dyn FnMut(u64) -> Option<u64>,
    ) -> Result<u64, KeyViolation>;

    /// Makes writes to this range visible or persistent.
    ///
    /// # Errors
    /// As [`Adapter::check_remote`], which this repeats.
    fn flush_remote(&mut self, key: RKey, span: Span, access: Access) -> Result<(), KeyViolation>;

    /// A peer invalidates a key of ours: fast-registered regions and type 2 windows only.
    ///
    /// # Errors
    /// The key is none of those.
    fn invalidate_remote(&mut self, key: RKey) -> Result<(), KeyViolation>;

    /// Does what a local request asks for.
    ///
    /// # Errors
    /// The request breaks a rule of regions or windows.
    fn local_operation(&mut self, operation: &LocalOperation) -> Result<(), KeyViolation>;

    /// Reports how a send request ended.
    fn complete_send(&mut self, completion: Completion);

    /// Flushes what still waits in the queue pair's own receive queue: in order, with status
    /// `Flushed`. A shared queue keeps its requests.
    fn flush_receives(&mut self);

    /// Reports an asynchronous event.
    fn event(&mut self, event: QpEvent);

    /// Counts something.
    fn count(&mut self, what: Count);
}
