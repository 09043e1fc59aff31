//! The queue pair of a stream, its memory, and what is posted.

use std::io;
use std::sync::Arc;

use roxe_device::ReceiveCapacity;
use roxe_transport::SendCapacity;
use roxe_transport::qp_state::ServiceType;
use roxe_transport::work::{
    AccessFlags, Completion, Data, PostError, ReceiveRequest, Remote, SendOperation, SendRequest,
    Sge,
};
use roxe_wire::{ImmDt, RKey};
use rustix::io::Errno;

use crate::completion_channel::CompletionChannel;
use crate::completion_queue::CompletionQueue;
use crate::context::Context;
use crate::error::Error;
use crate::memory_region::MemoryRegion;
use crate::queue_pair::QueuePair;
use crate::registered_memory::Buffer;
use crate::sockets::gather::Gather;
use crate::sockets::options::StreamOptions;
use crate::sockets::outgoing::{PLACES, Piece};
use crate::sockets::wire::{Hello, MapCount, Mapped, Message, Order, Place};

/// What a completion is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// A message that came.
    Receive,
    /// Bytes of the stream, or aside; so many of them in the ring.
    Stream(u32),
    /// What the sockets say to each other.
    Control,
    /// The last of it.
    Disconnect,
}

impl Work {
    const fn to_id(self) -> u64 {
        match self {
            Self::Receive => 0,
            Self::Stream(bytes) => 1 << 32 | bytes as u64,
            Self::Control => 2 << 32,
            Self::Disconnect => 3 << 32,
        }
    }

    pub(super) const fn of(completion: &Completion) -> Self {
        match completion.wr_id >> 32 {
            0 => Self::Receive,
            1 => Self::Stream(completion.wr_id as u32),
            2 => Self::Control,
            _ => Self::Disconnect,
        }
    }
}

/// Registered bytes.
struct Memory {
    buffer: Arc<Buffer>,
    region: MemoryRegion,
}

impl Memory {
    fn new(context: &Context, len: usize, access: AccessFlags) -> Result<Self, Error> {
        let buffer = Buffer::try_new(len).ok_or_else(|| io::Error::from(Errno::NOMEM))?;
        let region = context.default_pd().register(&buffer, access)?;
        Ok(Self { buffer, region })
    }

    fn place(&self, len: u32) -> Place {
        Place { address: self.region.address(), key: self.region.r_key(), len }
    }
}

/// What a stream needs of an adapter.
pub(super) struct Post {
    context: Context,
    pub(super) qp: QueuePair,
    pub(super) cq: CompletionQueue,
    sending: Memory,
    receiving: Memory,
    /// The places that the peer tells, and behind them its pieces of memory.
    table: Memory,
    options: StreamOptions,
}

impl Post {
    /// With options that are within what the adapter can.
    pub(super) fn new(
        context: &Context,
        channel: &CompletionChannel,
        options: StreamOptions,
    ) -> Result<Self, Error> {
        let StreamOptions { send_queue, receive_queue, .. } = options;
        let cq = context.create_cq_on(channel, send_queue + receive_queue)?;
        let max_inline = options.queue_pair_inline();
        let domain = context.default_pd();
        let qp = domain
            .create_qp(ServiceType::Rc, &cq)
            .send(SendCapacity { depth: send_queue, max_sge: 2, max_inline })
            .receive(ReceiveCapacity { depth: receive_queue, max_sge: 1 })
            .signal_all()
            .build()?;
        let written = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE;
        let memory = |len: u32, access| Memory::new(context, len as usize, access);
        let table = PLACES * Place::LEN as u32 + options.maps * Mapped::LEN as u32;
        Ok(Self {
            context: context.clone(),
            qp,
            cq,
            sending: memory(options.send_buffer, AccessFlags::NONE)?,
            receiving: memory(options.receive_buffer, written)?,
            table: memory(table, written)?,
            options,
        })
    }

    /// What the peer is told of it.
    pub(super) fn hello(&self) -> Hello {
        Hello {
            order: Order::NATIVE,
            credits: self.options.receive_queue as u16,
            table: self.table.place(PLACES),
            maps: MapCount::nearest(self.options.maps),
            buffer: self.receiving.place(self.options.receive_buffer / 2),
        }
    }

    /// Where a half of the ring is that the peer writes into.
    pub(super) fn half(&self, begin: u32) -> Place {
        let half = self.receiving.place(self.options.receive_buffer / 2);
        Place { address: half.address.wrapping_add(begin.into()), ..half }
    }

    /// Takes the place that the peer has told in an entry of the table; of no byte if none.
    pub(super) fn take_place(&self, index: u32) -> Place {
        let (mut bytes, at) = ([0; Place::LEN], index as usize * Place::LEN);
        // With the engine in hand nobody writes it meanwhile.
        self.context.with(|_| {
            self.table.buffer.read(at, &mut bytes);
            self.table.buffer.write(at, &[0; Place::LEN]);
        });
        Place::from_bytes(&bytes, Order::NATIVE)
    }

    /// The piece of memory that the peer has told; the table has so many entries.
    pub(super) fn mapped(&self, index: u16) -> Mapped {
        let mut bytes = [0; Mapped::LEN];
        let at = PLACES as usize * Place::LEN + usize::from(index) * Mapped::LEN;
        self.context.with(|_| self.table.buffer.read(at, &mut bytes));
        Mapped::from_bytes(&bytes, Order::NATIVE)
    }

    /// Reads bytes that the peer wrote.
    pub(super) fn read(&self, at: u32, into: &mut [u8]) {
        self.receiving.buffer.read(at as usize, into);
    }

    /// Posts so many receives, which take no byte: only what comes along.
    pub(super) fn receive(&self, count: u32) -> Result<(), PostError> {
        let request = ReceiveRequest { wr_id: Work::Receive.to_id(), sges: &[] };
        self.qp.post_receives(|post| (0..count).try_for_each(|_| post(&request)))
    }

    /// Writes bytes that fit inline, or none, and says something.
    pub(super) fn say(
        &self,
        work: Work,
        to: Remote,
        bytes: &[u8],
        message: Message,
    ) -> Result<(), PostError> {
        self.post(work, to, Data::Inline(bytes), Some(message))
    }

    /// Says something by which nothing is written.
    pub(super) fn say_only(&self, work: Work, message: Message) -> Result<(), PostError> {
        self.say(work, Remote { va: 0, r_key: RKey(0) }, &[], message)
    }

    /// Whether so many bytes are sent inline, and take nothing of the ring.
    pub(super) const fn is_inline(&self, len: u32) -> bool {
        len <= self.options.inline
    }

    /// Writes as many bytes of the program as the place has: inline those that lie together, or by
    /// way of these pieces of the ring.
    pub(super) fn write<'a>(
        &self,
        to: Place,
        bytes: &mut Gather<'a, impl Iterator<Item = &'a [u8]> + Clone>,
        ring: Option<[Piece; 2]>,
        message: Option<Message>,
    ) -> Result<(), PostError> {
        let remote = Remote { va: to.address, r_key: to.key };
        let Some(pieces) = ring else {
            let data = Data::Inline(bytes.take(to.len as usize));
            return self.post(Work::Stream(0), remote, data, message);
        };
        let sges = pieces.map(|(at, len)| {
            let (mut next, end) = (at as usize, (at + len) as usize);
            while next < end && bytes.together() != 0 {
                let taken = bytes.take(end - next);
                self.sending.buffer.write(next, taken);
                next += taken.len();
            }
            self.sending.region.sge(at.into(), len)
        });
        let used: &[Sge] = if sges[1].len == 0 { &sges[..1] } else { &sges };
        self.post(Work::Stream(to.len), remote, Data::Regions(used), message)
    }

    fn post(
        &self,
        work: Work,
        to: Remote,
        data: Data<'_>,
        message: Option<Message>,
    ) -> Result<(), PostError> {
        let operation = match message {
            Some(message) => SendOperation::WriteWithImm(to, ImmDt(message.to_bits())),
            None => SendOperation::Write(to),
        };
        let request = SendRequest {
            wr_id: work.to_id(),
            operation,
            data,
            signaled: true,
            solicited: false,
            fence: false,
            target: None,
        };
        self.qp.post_sends(|post| post(&request))
    }
}
