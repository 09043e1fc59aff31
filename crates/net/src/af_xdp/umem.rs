//! The frame memory, and who has which frame.
//!
//! A frame is one chunk of the memory. It is free, with us, or with the network, and it is received
//! into or sent from, never both. [`TxFrame`] and [`RxFrame`] can be moved, not copied: whoever has
//! one may touch its chunk, so that the borrow checker keeps us out of the kernel's. That none is
//! lost or doubled is asserted after each batch.
//!
//! Handing a frame over cannot fail: the rings to the kernel are twice as long as there are frames.
//! Once is not enough, because the kernel gives a frame back (on the receive or completion ring)
//! before it says that the frame's place on the ring it came by is free.

#![allow(unsafe_code, reason = "memory shared with the kernel")]

use std::num::NonZeroU32;
use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use xsk_rs::config::{QueueSize, UmemConfig, XDP_UMEM_MIN_CHUNK_SIZE};
use xsk_rs::umem::frame::FrameDesc;
use xsk_rs::{CompQueue, FillQueue, RxQueue, TxQueue, Umem};

use super::{OpenError, system_error};

/// Bytes of a chunk, and how many of them a frame may use: the kernel keeps the beginning of each
/// chunk that it receives into for XDP programs.
pub(super) const CHUNK: u32 = 4096;
pub(super) const CHUNK_ROOM: usize = CHUNK as usize - 256;
const _: () = assert!(CHUNK >= XDP_UMEM_MIN_CHUNK_SIZE && CHUNK.is_power_of_two());

/// So often in a ring's length frames are given to the network to receive into.
const REFILLS: usize = 32;

/// A chunk that a packet, or a part of one, is written into.
#[derive(Debug)]
pub(super) struct TxFrame(FrameDesc);

/// A chunk with a packet, or a part of one, that arrived.
#[derive(Debug)]
pub(super) struct RxFrame(FrameDesc);

impl RxFrame {
    /// Whether the packet goes on in the next frame.
    pub(super) fn goes_on(&self) -> bool {
        self.0.has_more_frames()
    }
}

/// The memory, its frames and the four rings on which they come and go.
pub(super) struct Frames {
    // The rings go before the memory that they point into.
    tx: TxQueue,
    rx: RxQueue,
    fill: FillQueue,
    completion: CompQueue,
    umem: Umem,
    /// Places on the ring of frames to send.
    tx_len: u32,
    /// Frames of each kind.
    count: usize,
    free: Vec<TxFrame>,
    /// Written, and soon given to the network all at once.
    queued: Vec<FrameDesc>,
    /// Given to the network.
    sent: usize,
    /// For the network to receive into, or received and not fetched.
    awaited: usize,
    /// Read, and soon awaited again.
    read: Vec<FrameDesc>,
    /// Where a ring's answer is written.
    batch: Box<[FrameDesc]>,
    ledger: Ledger,
}

/// The length of a ring to the kernel, given the number of frames that come and go on it.
pub(super) fn to_kernel(frames: QueueSize) -> QueueSize {
    QueueSize::new(2 * frames.get()).expect("twice a power of two is one")
}

/// Frame memory without rings.
pub(super) struct Memory {
    pub(super) umem: Umem,
    descriptors: Vec<FrameDesc>,
}

impl Memory {
    /// Memory for `ring` frames of each kind, all of it locked.
    pub(super) fn new(ring: QueueSize) -> Result<Self, OpenError> {
        let frames = ring.get() * 2;
        let config = UmemConfig::builder()
            .frame_size(CHUNK.try_into().expect("a chunk is large enough"))
            .fill_queue_size(to_kernel(ring))
            .comp_queue_size(ring)
            .build()
            .expect("a chunk has room behind its headroom");
        let frames = NonZeroU32::new(frames).expect("a ring is not empty");
        let (umem, descriptors) = Umem::new(config, frames, false).map_err(|error| {
            let source = system_error(&error);
            match source.kind() {
                std::io::ErrorKind::PermissionDenied => {
                    OpenError::NoPrivilege { what: "open an AF_XDP socket", missing: "CAP_NET_RAW" }
                }
                _ if Errno::from_io_error(&source) == Some(Errno::NOBUFS) => {
                    OpenError::LockedMemory { need_kib: (frames.get() * CHUNK) as usize / 1024 }
                }
                _ => OpenError::System { what: "make frame memory", source },
            }
        })?;
        Ok(Self { umem, descriptors })
    }

    /// Joins the memory with the rings that were made over it, and hands half of the frames to the
    /// network to receive into.
    pub(super) fn with_rings(
        self,
        tx: TxQueue,
        rx: RxQueue,
        fill: FillQueue,
        completion: CompQueue,
        batch: usize,
    ) -> Frames {
        let Self { umem, mut descriptors } = self;
        let count = descriptors.len() / 2;
        let read = descriptors.split_off(count);
        let mut frames = Frames {
            tx,
            rx,
            fill,
            completion,
            umem,
            tx_len: 2 * count as u32,
            count,
            free: descriptors.into_iter().map(TxFrame).collect(),
            queued: Vec::with_capacity(2 * batch),
            sent: 0,
            awaited: 0,
            ledger: Ledger::new(&read, 2 * count),
            read,
            batch: vec![FrameDesc::default(); batch].into(),
        };
        frames.await_more();
        frames
    }
}

impl Frames {
    /// Fetches what arrived, at most a batch.
    pub(super) fn fetch(&mut self, arrived: &mut Vec<RxFrame>) -> usize {
        // SAFETY: the memory is the one that the ring was made over.
        let count = unsafe { self.rx.consume(&mut self.batch) };
        self.awaited -= count;
        for descriptor in &self.batch[..count] {
            self.ledger.pass(descriptor, Holder::Network, Holder::Us);
            arrived.push(RxFrame(*descriptor));
        }
        count
    }

    /// The bytes that arrived in a frame.
    pub(super) fn bytes<'a>(&'a self, frame: &'a RxFrame) -> &'a [u8] {
        // SAFETY: the network gave the frame to us, and `frame` cannot be given back while it is
        // borrowed; nothing writes into frames that arrived.
        unsafe { self.umem.data(&frame.0) }.contents()
    }

    /// The frame has been read.
    pub(super) fn done_with(&mut self, frame: RxFrame) {
        self.ledger.pass(&frame.0, Holder::Us, Holder::Network);
        self.read.push(frame.0);
    }

    /// The same once there are many, so that it costs each of them little; most frames are with the
    /// network anyhow.
    pub(super) fn await_many(&mut self) {
        if self.read.len() >= self.count / REFILLS {
            self.await_more();
        }
    }

    /// Lets the network receive into all frames that have been read.
    pub(super) fn await_more(&mut self) {
        // SAFETY: the frames are of the ring's memory, and `done_with` got them by value: nobody
        // else has them.
        let count = unsafe { self.fill.produce(&self.read) };
        assert_eq!(count, self.read.len(), "the ring has room for every frame");
        self.awaited += count;
        self.read.clear();
        if self.fill.needs_wakeup() {
            // Where it fails, the next wait says so.
            let _ = self.fill.wakeup(self.rx.fd_mut(), 0);
        }
    }

    /// Whether frames wait to be given to the network.
    pub(super) fn has_queued(&self) -> bool {
        !self.queued.is_empty()
    }

    /// How many frames are free to be written.
    pub(super) fn free(&self) -> usize {
        self.free.len()
    }

    /// A frame to write into.
    pub(super) fn take(&mut self) -> Option<TxFrame> {
        let frame = self.free.pop()?;
        self.ledger.pass(&frame.0, Holder::Free, Holder::Us);
        Some(frame)
    }

    /// The frame was not needed.
    pub(super) fn give_back(&mut self, frame: TxFrame) {
        self.ledger.pass(&frame.0, Holder::Us, Holder::Free);
        self.free.push(frame);
    }

    /// Lends the room of two frames at once.
    pub(super) fn write<R>(
        &self,
        [first, second]: [&mut TxFrame; 2],
        write: impl FnOnce(&mut [u8], &mut [u8]) -> R,
    ) -> R {
        // SAFETY: whoever has a `TxFrame` is the only one who has that chunk.
        let mut first = unsafe { self.umem.data_mut(&mut first.0) };
        // SAFETY: as above; two frames are two chunks.
        let mut second = unsafe { self.umem.data_mut(&mut second.0) };
        first.cursor().set_pos(CHUNK_ROOM);
        second.cursor().set_pos(CHUNK_ROOM);
        write(first.contents_mut(), second.contents_mut())
    }

    /// Queues a packet of `len` bytes, written into the room of two frames.
    pub(super) fn queue_packet(&mut self, [first, second]: [TxFrame; 2], len: usize) {
        let in_first = len.min(CHUNK_ROOM);
        let rest = len - in_first;
        self.queue(first, in_first, rest > 0);
        if rest > 0 {
            self.queue(second, rest, false);
        } else {
            self.give_back(second);
        }
    }

    /// Queues a frame of which the first `len` bytes are to be sent. `goes_on` says that the packet
    /// goes on in the next one.
    fn queue(&mut self, mut frame: TxFrame, len: usize, goes_on: bool) {
        // SAFETY: as in `write`.
        unsafe { self.umem.data_mut(&mut frame.0) }.cursor().set_pos(len);
        frame.0.set_options(u32::from(goes_on));
        self.ledger.pass(&frame.0, Holder::Us, Holder::Network);
        self.queued.push(frame.0);
    }

    /// Gives all queued frames to the network.
    pub(super) fn publish(&mut self) {
        // SAFETY: the frames are of the ring's memory, and `queue` got them by value: nobody else
        // has them.
        let count = unsafe { self.tx.produce(&self.queued) };
        assert_eq!(count, self.queued.len(), "the ring has room for every frame");
        self.sent += count;
        self.queued.clear();
    }

    /// Takes back the frames that have been sent.
    pub(super) fn reclaim(&mut self) {
        loop {
            // SAFETY: the memory is the one that the ring was made over.
            let count = unsafe { self.completion.consume(&mut self.batch) };
            self.sent -= count;
            for descriptor in &self.batch[..count] {
                self.ledger.pass(descriptor, Holder::Network, Holder::Free);
                self.free.push(TxFrame(*descriptor));
            }
            if count < self.batch.len() {
                return;
            }
        }
    }

    /// How many frames the network has not looked at yet.
    pub(super) fn pending(&mut self) -> u32 {
        self.tx_len - self.tx.nb_free_exact()
    }

    /// Makes the network look at the frames given to it.
    pub(super) fn kick(&self) -> std::io::Result<()> {
        if self.tx.needs_wakeup() { self.tx.wakeup() } else { Ok(()) }
    }

    /// Whether anything has arrived.
    pub(super) fn has_arrived(&mut self) -> bool {
        self.rx.nb_avail(1) > 0
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        use std::os::fd::AsRawFd as _;
        // SAFETY: the queue keeps the socket open as long as `self` lives.
        unsafe { BorrowedFd::borrow_raw(self.rx.fd().as_raw_fd()) }
    }

    pub(super) fn statistics(&self) -> Option<xsk_rs::socket::XdpStatistics> {
        self.rx.fd().xdp_statistics().ok()
    }

    /// No frame is lost, none is there twice. `held` are those that arrived and are not read yet.
    pub(super) fn assert_complete(&self, held: usize) {
        debug_assert_eq!(self.free.len() + self.queued.len() + self.sent, self.count);
        debug_assert_eq!(self.awaited + held + self.read.len(), self.count);
    }
}

/// Who has each chunk. Only debug builds keep it.
struct Ledger {
    #[cfg(debug_assertions)]
    holders: Vec<Holder>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holder {
    Free,
    Us,
    Network,
}

#[cfg(debug_assertions)]
impl Ledger {
    fn new(awaited: &[FrameDesc], count: usize) -> Self {
        let mut holders = vec![Holder::Free; count];
        for descriptor in awaited {
            holders[chunk(descriptor)] = Holder::Network;
        }
        Self { holders }
    }

    fn pass(&mut self, descriptor: &FrameDesc, from: Holder, to: Holder) {
        let holder = &mut self.holders[chunk(descriptor)];
        assert_eq!(*holder, from, "chunk {} goes to {to:?}", chunk(descriptor));
        *holder = to;
    }
}

#[cfg(debug_assertions)]
fn chunk(descriptor: &FrameDesc) -> usize {
    descriptor.addr() / CHUNK as usize
}

#[cfg(not(debug_assertions))]
impl Ledger {
    fn new(_: &[FrameDesc], _: usize) -> Self {
        Self {}
    }

    fn pass(&mut self, _: &FrameDesc, _: Holder, _: Holder) {}
}
