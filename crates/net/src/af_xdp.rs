//! Frames of a network interface, by AF_XDP.
//!
//! An XDP program (`bpf/redirect_roce.bpf.c`) gives RoCEv2 to a socket that shares memory with the
//! kernel, and everything else to the kernel. The port owns program, socket and memory; dropped, it
//! leaves nothing behind.
//!
//! It receives from all queues of the interface, unless it is told otherwise, and sends on the
//! first one, so that packets of one path stay in order. Of queues that it does not have, frames go
//! to the kernel, and `xdp_no_socket` counts them; `ethtool -L INTERFACE combined 1` leaves one.
//!
//! It may own addresses that the kernel does not have: [`owned`]. The host's own kernel does not
//! reach these, because what it sends does not come back from the wire.
//!
//! VLAN tags count as far as they are in the frame: where a driver takes them off (`ethtool -K
//! INTERFACE rxvlan off` keeps it from that; of a veth, `txvlan off` at its other end), nobody here
//! sees on which VLAN a frame came.
//!
//! It takes CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF, and locked memory for the frames (CAP_IPC_LOCK,
//! or `ulimit -l`): 16 MiB by default. No others: the XDP program is one that the kernel's verifier
//! takes without CAP_PERFMON.
//!
//! # Counters
//!
//! Besides those of every port:
//!
//! | name | counts |
//! |---|---|
//! | `rx_other_queues` | packets that came by other queues than the first |
//! | `tx_kicks` | system calls to make the kernel send |
//! | `tx_refused` | of these, how many failed for good |
//! | `rx_too_long` | frames in more than two buffers, thrown away |
//! | `xsk_rx_dropped` | frames for the socket that the kernel dropped: too long for a chunk, … |
//! | `xsk_rx_ring_full` | … because too many waited to be received |
//! | `xsk_fill_ring_empty` | … because no frame was free to receive into |
//! | `xsk_tx_invalid` | descriptors of ours that the kernel refused; never |
//! | `xdp_redirected` | RoCEv2 frames that the program gave to the socket |
//! | `xdp_no_socket` | RoCEv2 frames on queues without a socket, passed to the kernel |
//! | `xdp_owned` | ARP, neighbour discovery and ICMP of addresses of its own, for the socket |
//! | `xdp_announced` | neighbours that said unasked what their MAC is: passed |
//! | `xdp_passed` | other traffic, passed to the kernel |
//! | `xdp_options`, `xdp_extension` | frames with IPv4 options, IPv6 extension headers: passed |
//! | `xdp_fragment` | fragments: passed |
//! | `xdp_vlan_tags`, `xdp_short` | more than two VLAN tags; cut inside a header: passed |

use std::error::Error;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use roxe_wire::{Frame, Instant, Mtu, RawFrame, Received, Room};
use rustix::event::epoll;
use rustix::time::{ClockId, clock_gettime};
use xsk_rs::config::QueueSize;

use crate::doorbell::Doorbell;
use crate::framing::{Framed, Framer};
use crate::neighbor::{Assigned, Interface, Netlink};
use crate::owned::{self, Host, Neighbors, Own};
use crate::port::{
    Arrival, BATCH, Capabilities, FramePort, HeadersOf, IN_VAIN, Outgoing, Sent, Traffic, Wake,
    packets_to,
};
use crate::{Sleeper, Waker};

mod error;
mod groups;
mod program;
mod socket;
mod support;
mod umem;

pub use error::OpenError;
use program::{Attached, Attachment, Loaded};
use socket::Bound;
pub use support::{Support, support};
use umem::{Frames, RxFrame};

/// What can be chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The queue, from 0 on; of several the first, which is the one for sending.
    pub queue: u32,
    /// How many queues to receive from.
    pub queues: Queues,
    /// Where the XDP program runs.
    pub mode: Mode,
    /// Whether the kernel may or must do without copying.
    pub zero_copy: ZeroCopy,
    /// Frames to send from, and as many to receive into: a power of two. Each takes 4 KiB of locked
    /// memory; a packet of path MTU 4096 takes two.
    pub ring: u32,
    /// For how long a wait looks for packets before it sleeps. To be woken costs 10 µs or more; to
    /// look costs a core.
    pub spin: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            queue: 0,
            queues: Queues::All,
            mode: Mode::Auto,
            zero_copy: ZeroCopy::Auto,
            ring: 2048,
            spin: Duration::from_micros(30),
        }
    }
}

/// How many queues a port receives from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Queues {
    /// All that the interface spreads frames over, 64 at most.
    #[default]
    All,
    /// So many, at least one.
    Count(u32),
}

/// Where the XDP program runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// In the driver, else behind it.
    #[default]
    Auto,
    /// In the driver.
    Native,
    /// Behind the driver, on what the kernel made of the frame: slower, with any driver.
    Generic,
}

/// Whether the kernel copies between its buffers and our frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ZeroCopy {
    /// Only where the driver cannot do without.
    #[default]
    Auto,
    /// Never; else the port cannot be opened.
    On,
    /// Always.
    Off,
}

/// A port on the queues of a network interface.
pub struct AfXdp {
    // First the program goes: while it is attached, frames go to the sockets.
    program: Attached,
    frames: Frames,
    /// Queues that are only received from.
    others: Vec<Other>,
    /// Readable while something has arrived on any of several queues.
    any: Option<OwnedFd>,
    owned: Option<Box<Owned>>,
    capabilities: Capabilities,
    bell: Doorbell,
    spin: Duration,
    framer: Framer,
    /// Frames that arrived, not handed up yet: between two calls, those of a packet whose rest did
    /// not fit the batch.
    arrived: Vec<RxFrame>,
    traffic: Traffic,
    /// The kernel did not take all frames that it was given.
    is_stuck: bool,
    kicks: u64,
    refused: u64,
    too_long: u64,
    rx_other_queues: u64,
}

/// A queue that is only received from.
struct Other {
    frames: Frames,
    arrived: Vec<RxFrame>,
}

/// What a port with addresses of its own has besides.
struct Owned {
    host: Host,
    /// Membership in the groups that neighbours ask for the addresses in.
    _groups: OwnedFd,
}

impl AfXdp {
    /// Opens a port on the interface of this name, in the calling thread's network namespace.
    ///
    /// # Errors
    /// [`OpenError`]; then nothing of it is left.
    pub fn open(name: &str, settings: Settings) -> Result<Self, OpenError> {
        Ok(Self::assemble(name, settings)?.0)
    }

    /// Opens a port that has addresses of its own. Takes a moment: others on the network are asked
    /// first whether they have them.
    ///
    /// # Errors
    /// [`OpenError`]; then nothing of it is left.
    pub fn open_owning(
        name: &str,
        settings: Settings,
        own: &Own,
    ) -> Result<(Self, Neighbors), OpenError> {
        let (mut port, interface) = Self::assemble(name, settings)?;
        let neighbors = port.claim(&interface, own)?;
        Ok((port, neighbors))
    }

    fn assemble(name: &str, settings: Settings) -> Result<(Self, Interface), OpenError> {
        let interface = find(name)?;
        let path_mtu = Mtu::fitting(interface.mtu).ok_or_else(|| OpenError::MtuTooSmall {
            interface: interface.name.clone(),
            mtu: interface.mtu,
            least: Mtu::B256.bytes() + Mtu::HEADROOM,
        })?;
        let ring = QueueSize::new(settings.ring.next_power_of_two().max(BATCH as u32 * 2))
            .expect("it is a power of two");

        let (mut storage, mut linear_storage) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        let loaded = Loaded::load(&mut storage, &mut linear_storage)?;
        let (mut program, attachment) = loaded.attach(&interface, settings.mode)?;
        let (bound, zero_copy) = bind(&interface, &settings, ring, &attachment)?;
        let Bound { frames, several_buffers } = bound;
        let path_mtu = if several_buffers { path_mtu } else { path_mtu.min(MTU_OF_ONE_BUFFER) };
        program.direct(settings.queue, frames.fd())?;
        let others = bind_others(&interface, &settings, &program, zero_copy)?;
        let any = (!others.is_empty()).then(|| any_of(&frames, &others)).transpose()?;
        if settings.queue == 0 {
            loaded.test(&mut program, &interface)?;
        }

        let bell = Doorbell::new()
            .map_err(|source| OpenError::System { what: "make an eventfd", source })?;
        let summary = summarize(&interface, &settings, &attachment, zero_copy, path_mtu);
        let framer = Framer::new(interface.mtu as usize + LINK_HEADERS);
        let port = Self {
            program,
            frames,
            others,
            any,
            owned: None,
            capabilities: Capabilities {
                path_mtu,
                zero_copy,
                verifies_icrc: true,
                headers: HeadersOf::Path,
                summary,
            },
            bell,
            spin: settings.spin,
            framer,
            arrived: Vec::with_capacity(BATCH + 1),
            traffic: Traffic::default(),
            is_stuck: false,
            kicks: 0,
            refused: 0,
            too_long: 0,
            rx_other_queues: 0,
        };
        Ok((port, interface))
    }

    /// Makes addresses the port's own, unless somebody else has them.
    fn claim(&mut self, interface: &Interface, own: &Own) -> Result<Neighbors, OpenError> {
        let name = || interface.name.clone();
        let mac = interface.mac.filter(|_| !interface.is_loopback());
        let Some(mac) = mac else {
            let why = "there is nobody at the other end of loopback";
            return Err(OpenError::CannotOwn { interface: name(), why });
        };
        if own.addresses.len() > owned::MAX_ADDRESSES {
            return Err(OpenError::CannotOwn { interface: name(), why: "8 are the most" });
        }
        // On a VLAN an address is another one.
        let mut of_kernel = interface.addresses.iter().filter(|_| own.vlan.is_none());
        let of_kernel = of_kernel.find(|it| own.has(it.address));
        if let Some(&Assigned { address, .. }) = of_kernel {
            return Err(OpenError::AddressOfKernel { interface: name(), address });
        }
        let groups = groups::join(interface, own)
            .map_err(|source| OpenError::System { what: "join multicast groups", source })?;
        for address in &own.addresses {
            self.program.own(address.address, own.vlan)?;
        }
        let mut host = Host::new(own, mac, interface.mtu as usize);
        host.ask_for_rivals();
        let neighbors = host.neighbors();
        self.owned = Some(Box::new(Owned { host, _groups: groups }));
        for _ in 0..CLAIM_LOOKS {
            self.fetch(Instant::ZERO, |_| {});
            self.bell.wait(Some(self.arrivals()), CLAIM_PAUSE);
        }
        self.fetch(Instant::ZERO, |_| {});
        let host = &mut self.owned.as_mut().expect("it is there since above").host;
        if let Some((address, mac)) = host.rival() {
            return Err(OpenError::AddressTaken { interface: name(), address, mac });
        }
        host.claim();
        self.send_owned();
        let addresses: Vec<_> = own.addresses.iter().map(|it| it.address.to_string()).collect();
        self.capabilities.summary += &format!(", owns {}", addresses.join(" and "));
        if let Some(vlan) = own.vlan {
            self.capabilities.summary += &format!(" on VLAN {vlan}");
        }
        Ok(neighbors)
    }

    /// What is readable while something has arrived.
    fn arrivals(&self) -> BorrowedFd<'_> {
        self.any.as_ref().map_or_else(|| self.frames.fd(), |any| any.as_fd())
    }

    fn has_arrived(&mut self) -> bool {
        self.frames.has_arrived() || self.others.iter_mut().any(|it| it.frames.has_arrived())
    }

    /// Hands up what has arrived, until there is a packet. Says how many.
    fn fetch(&mut self, now: Instant, mut sink: impl FnMut(Arrival<'_>)) -> usize {
        let Self { frames, arrived, others, traffic, owned, too_long, .. } = self;
        let mut taker = Taker { traffic, host: owned.as_mut().map(|it| &mut it.host), too_long };
        let mut packets = taker.fetch(frames, arrived, &mut sink);
        for Other { frames, arrived } in others {
            let more = taker.fetch(frames, arrived, &mut sink);
            self.rx_other_queues += more as u64;
            packets += more;
        }
        self.serve_owned(now);
        packets
    }

    /// Does what the addresses of our own want done.
    fn serve_owned(&mut self, now: Instant) {
        let Some(owned) = &mut self.owned else { return };
        if owned.host.is_due(now) {
            owned.host.serve(now, || self.program.announcements());
            self.send_owned();
        }
    }

    /// Sends what is to be said for the addresses of our own, as far as there are frames for it.
    fn send_owned(&mut self) {
        let Some(owned) = &mut self.owned else { return };
        if !owned.host.has_outgoing() {
            return;
        }
        self.frames.reclaim();
        while self.frames.free() >= FRAMES_PER_PACKET {
            let Some(bytes) = owned.host.outgoing() else { break };
            // It is no longer than what came, and that fits.
            queue_whole(&mut self.frames, &bytes);
        }
        self.frames.publish();
        self.kick();
    }

    /// Sends a frame as it is, from its Ethernet header on: one that is broken on purpose, which no
    /// path describes. Says whether it was taken; it is not when it does not fit the interface, or
    /// no frame of memory is free.
    pub fn send_frame(&mut self, frame: &[u8]) -> bool {
        self.frames.reclaim();
        let room = FRAMES_PER_PACKET * umem::CHUNK_ROOM;
        if frame.len() > room || self.frames.free() < FRAMES_PER_PACKET {
            return false;
        }
        queue_whole(&mut self.frames, frame);
        self.frames.publish();
        self.kick();
        true
    }

    /// Lets `source` write a packet into free frames, and queues it.
    fn send_one<'p>(
        &mut self,
        source: &mut dyn FnMut(Room<'_>) -> Option<Outgoing<'p>>,
    ) -> Option<Framed> {
        if self.frames.free() < FRAMES_PER_PACKET {
            return None;
        }
        let (mut first, mut second) = (self.frames.take()?, self.frames.take()?);
        let framer = &mut self.framer;
        let framed = self
            .frames
            .write([&mut first, &mut second], |first, second| framer.frame(first, second, source));
        match framed {
            Framed::Frame { frame_len, .. } => {
                self.frames.queue_packet([first, second], frame_len);
            }
            Framed::Unsendable | Framed::Nothing => {
                self.frames.give_back(second);
                self.frames.give_back(first);
            }
        }
        Some(framed)
    }

    /// Makes the kernel send what it has, as far as it will. A kick moves 32 packets at most, so
    /// there may be several; one that moves none means that the kernel is busy, and a later call
    /// tries again.
    fn kick(&mut self) {
        let mut pending = self.frames.pending();
        self.is_stuck = pending > 0;
        while pending > 0 {
            self.kicks += 1;
            if self.frames.kick().is_err() {
                self.refused += 1;
                return;
            }
            let before = std::mem::replace(&mut pending, self.frames.pending());
            if pending == before {
                return;
            }
        }
        self.is_stuck = false;
    }

    /// Looks for packets until `limit` has passed or somebody calls. Says whether any came.
    fn spin(&mut self, limit: Duration) -> bool {
        let now = || Duration::try_from(clock_gettime(ClockId::Monotonic)).unwrap_or_default();
        let end = now().saturating_add(limit);
        loop {
            for _ in 0..LOOKS {
                if self.has_arrived() {
                    return true;
                }
                std::hint::spin_loop();
            }
            if self.bell.is_rung() || now() >= end {
                return false;
            }
        }
    }
}

/// Queues the bytes of a frame that fits; so many chunks are free.
fn queue_whole(frames: &mut Frames, bytes: &[u8]) {
    let (Some(mut first), Some(mut second)) = (frames.take(), frames.take()) else {
        unreachable!("so many are free");
    };
    let (head, tail) = bytes.split_at(bytes.len().min(umem::CHUNK_ROOM));
    frames.write([&mut first, &mut second], |first, second| {
        first[..head.len()].copy_from_slice(head);
        second[..tail.len()].copy_from_slice(tail);
    });
    frames.queue_packet([first, second], bytes.len());
}

/// What becomes of frames that arrived.
struct Taker<'a> {
    traffic: &'a mut Traffic,
    /// Who sees to frames that are no RoCEv2.
    host: Option<&'a mut Host>,
    too_long: &'a mut u64,
}

impl Taker<'_> {
    /// Hands up what has arrived on a queue, until there is a packet, but not for ever. Says how
    /// many.
    fn fetch(
        &mut self,
        frames: &mut Frames,
        arrived: &mut Vec<RxFrame>,
        sink: &mut impl FnMut(Arrival<'_>),
    ) -> usize {
        for _ in 0..IN_VAIN {
            if frames.fetch(arrived) == 0 {
                break;
            }
            let packets = self.hand_up(frames, arrived, sink);
            frames.await_many();
            frames.assert_complete(arrived.len());
            if packets > 0 {
                return packets;
            }
        }
        0
    }

    /// Hands up the packets of the frames that arrived; of one whose rest has not come yet, the
    /// frames stay. Says how many packets.
    fn hand_up(
        &mut self,
        frames: &mut Frames,
        arrived: &mut Vec<RxFrame>,
        sink: &mut impl FnMut(Arrival<'_>),
    ) -> usize {
        let mut packets = 0;
        let mut from = 0;
        while let Some(last) = arrived[from..].iter().position(|frame| !frame.goes_on()) {
            let packet = &arrived[from..=from + last];
            from += packet.len();
            let (first, second) = match packet {
                [only] => (frames.bytes(only), &[][..]),
                [first, second] => (frames.bytes(first), frames.bytes(second)),
                _ => {
                    *self.too_long += 1;
                    continue;
                }
            };
            let wire_len = first.len() + second.len();
            let frame = RawFrame { first, second, wire_len, ..RawFrame::ethernet(&[]) };
            let packet = Frame::parse(frame).map(|frame| frame.received());
            if packet.is_err() && self.host.as_mut().is_some_and(|host| host.take(frame)) {
                continue;
            }
            packets +=
                usize::from(self.traffic.arrived(Arrival { frame: Some(frame), packet }, sink));
        }
        for frame in arrived.drain(..from) {
            frames.done_with(frame);
        }
        packets
    }
}

impl FramePort for AfXdp {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn receive(&mut self, now: Instant, sink: &mut dyn FnMut(Received<'_>)) -> usize {
        self.fetch(now, packets_to(sink))
    }

    fn may_receive(&mut self) -> bool {
        self.has_arrived()
    }

    fn receive_all(&mut self, now: Instant, sink: &mut dyn FnMut(Arrival<'_>)) -> usize {
        self.fetch(now, sink)
    }

    fn transmit<'p>(
        &mut self,
        _now: Instant,
        source: &mut dyn FnMut(Room<'_>) -> Option<Outgoing<'p>>,
    ) -> Sent {
        if self.frames.free() < FRAMES_PER_PACKET {
            self.frames.reclaim();
        }
        let mut sent = Sent { packets: 0, more: true };
        while sent.more && sent.packets < BATCH {
            match self.send_one(source) {
                Some(Framed::Frame { packet_len, .. }) => {
                    self.traffic.sent(packet_len);
                    sent.packets += 1;
                }
                Some(Framed::Unsendable) => {
                    self.traffic.tx_unsendable += 1;
                    sent.packets += 1;
                }
                Some(Framed::Nothing) => sent.more = false,
                None => {
                    self.traffic.tx_no_room += 1;
                    break;
                }
            }
        }
        if self.frames.has_queued() {
            self.frames.publish();
            self.kick();
            // Most are back by now, and the next packet is best written into one still in cache.
            self.frames.reclaim();
        } else if self.is_stuck {
            self.kick();
        }
        self.frames.assert_complete(self.arrived.len());
        sent
    }

    fn wait(&mut self, timeout: Duration) -> Wake {
        self.kick();
        if self.spin(self.spin.min(timeout)) {
            return Wake::Arrived;
        }
        let mut left = match self.settle(timeout.saturating_sub(self.spin)) {
            Ok(left) => left,
            Err(wake) => return wake,
        };
        loop {
            // Nor does it end a wait when the interface goes away.
            let now = left.min(ALIVE_PAUSE);
            let wake = self.bell.wait(Some(self.arrivals()), now);
            // Of several queues, one that has an error looks as if something had arrived.
            let may_be_gone = wake == Wake::Arrived && self.any.is_some() && !self.has_arrived();
            if wake != Wake::TimedOut && !may_be_gone {
                return wake;
            }
            if self.frames.kick().is_err() {
                return Wake::Gone;
            }
            left -= now;
            if left.is_zero() {
                return Wake::TimedOut;
            }
        }
    }

    fn settle(&mut self, timeout: Duration) -> Result<Duration, Wake> {
        if self.is_stuck {
            self.kick();
        }
        if self.has_arrived() {
            return Err(Wake::Arrived);
        }
        self.frames.reclaim();
        Ok(self.due().map_or(timeout, |due| timeout.min(due)))
    }

    /// The kernel does not say when frames come back from it.
    fn due(&self) -> Option<Duration> {
        if self.is_stuck || self.frames.free() < FRAMES_PER_PACKET {
            Some(FULL_PAUSE)
        } else {
            self.owned.as_ref().filter(|owned| owned.host.is_busy()).map(|_| OWNED_PAUSE)
        }
    }

    fn sleeper(&self) -> io::Result<Sleeper> {
        self.bell.sleeper(Some(self.arrivals()), self.spin)
    }

    fn waker(&self) -> Waker {
        self.bell.waker()
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let mut counters = self.traffic.counters();
        counters.extend([
            ("tx_kicks", self.kicks),
            ("tx_refused", self.refused),
            ("rx_too_long", self.too_long),
            ("rx_other_queues", self.rx_other_queues),
        ]);
        let mut kernel = KERNEL.map(|name| (name, 0));
        let queues = std::iter::once(&self.frames).chain(self.others.iter().map(|it| &it.frames));
        for queue in queues.filter_map(Frames::statistics) {
            let counted = [
                queue.rx_dropped(),
                queue.rx_ring_full(),
                queue.rx_fill_ring_empty_descs(),
                queue.tx_invalid_descs(),
            ];
            kernel.iter_mut().zip(counted).for_each(|((_, sum), count)| *sum += count);
        }
        counters.extend(kernel);
        counters.extend(self.owned.iter().flat_map(|owned| owned.host.counters()));
        counters.extend(self.program.counters());
        counters
    }
}

/// The interface, if frames of RoCEv2 can be on it.
fn find(name: &str) -> Result<Interface, OpenError> {
    let ask = || Netlink::open()?.interfaces();
    let interfaces =
        ask().map_err(|source| OpenError::System { what: "list interfaces", source })?;
    match interfaces.iter().position(|interface| interface.name == name) {
        None => Err(OpenError::NoSuchInterface {
            name: name.to_owned(),
            others: interfaces.into_iter().map(|interface| interface.name).collect(),
        }),
        Some(at) if !interfaces[at].has_ethernet_header() => Err(OpenError::NotEthernet {
            interface: name.to_owned(),
            link_type: interfaces[at].link_type,
        }),
        Some(at) => Ok(interfaces[at].clone()),
    }
}

/// Binds a socket, without copying where that may be had. Says whether it is.
fn bind(
    interface: &Interface,
    settings: &Settings,
    ring: QueueSize,
    attachment: &Attachment,
) -> Result<(Bound, bool), OpenError> {
    let bind = |zero_copy| socket::bind(interface, settings.queue, ring, zero_copy);
    let worth_a_try = attachment.native && attachment.offers_zero_copy;
    match settings.zero_copy {
        ZeroCopy::On => Ok((bind(true)?, true)),
        ZeroCopy::Auto if worth_a_try => match bind(true) {
            Err(OpenError::Unsupported { .. }) => Ok((bind(false)?, false)),
            bound => Ok((bound?, true)),
        },
        ZeroCopy::Auto | ZeroCopy::Off => Ok((bind(false)?, false)),
    }
}

/// The queues behind the first, as far as they are wanted: each with a socket, and fewer frames the
/// more there are.
fn bind_others(
    interface: &Interface,
    settings: &Settings,
    program: &Attached,
    zero_copy: bool,
) -> Result<Vec<Other>, OpenError> {
    let count = queues(interface, settings);
    let ring = (settings.ring / count).next_power_of_two().max(BATCH as u32 * 4);
    let ring = QueueSize::new(ring).expect("it is a power of two");
    let bind = |queue| {
        let frames = socket::bind(interface, queue, ring, zero_copy)?.frames;
        program.direct(queue, frames.fd())?;
        Ok(Other { frames, arrived: Vec::with_capacity(BATCH + 1) })
    };
    (settings.queue + 1..settings.queue + count).map(bind).collect()
}

/// How many queues are used.
fn queues(interface: &Interface, settings: &Settings) -> u32 {
    let all = socket::receive_queues(interface).saturating_sub(settings.queue);
    let wanted = match settings.queues {
        Queues::All => all,
        Queues::Count(count) => count,
    };
    wanted.clamp(1, program::MAX_QUEUES.saturating_sub(settings.queue).max(1))
}

/// A descriptor that is readable while something has arrived on any queue.
fn any_of(first: &Frames, others: &[Other]) -> Result<OwnedFd, OpenError> {
    let make = || {
        let any = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for frames in std::iter::once(first).chain(others.iter().map(|it| &it.frames)) {
            let data = epoll::EventData::new_u64(0);
            epoll::add(&any, frames.fd(), data, epoll::EventFlags::IN)?;
        }
        Ok(any)
    };
    make().map_err(|source: io::Error| OpenError::System { what: "make an epoll", source })
}

/// What the port is, for people: what was wanted and not to be had is said.
fn summarize(
    interface: &Interface,
    settings: &Settings,
    attachment: &Attachment,
    zero_copy: bool,
    path_mtu: Mtu,
) -> String {
    let mode = match (attachment.native, &attachment.refusal) {
        (true, _) => "native XDP".to_owned(),
        (false, None) => "generic XDP".to_owned(),
        (false, Some(refusal)) => format!("generic XDP (native refused: {refusal})"),
    };
    let copy = match (zero_copy, settings.zero_copy) {
        (true, _) => "zero-copy",
        (false, ZeroCopy::Off) => "copy mode",
        (false, _) => "copy mode (the driver has no zero-copy)",
    };
    let name = &interface.name;
    let (first, used) = (settings.queue, queues(interface, settings));
    let which = match used {
        1 => format!("queue {first}"),
        _ => format!("{used} queues from {first} on"),
    };
    let others = match socket::receive_queues(interface) {
        all if all > used => {
            format!(" of {all} (RoCEv2 on others goes to the kernel, see `ethtool -L {name}`)")
        }
        _ => String::new(),
    };
    format!("{name}: {mode}, {copy}, {which}{others}, path MTU {path_mtu}")
}

/// What the system said, out of an error of xsk-rs.
fn system_error(error: &dyn Error) -> io::Error {
    let system = error.source().and_then(|source| source.downcast_ref::<io::Error>());
    match system.and_then(io::Error::raw_os_error) {
        Some(number) => io::Error::from_raw_os_error(number),
        None => io::Error::other(error.to_string()),
    }
}

/// The largest packet with its headers takes this many chunks.
const FRAMES_PER_PACKET: usize = 2;
const _: () = assert!(
    crate::framing::MAX_AROUND_PAYLOAD + Mtu::B4096.bytes() as usize
        <= FRAMES_PER_PACKET * umem::CHUNK_ROOM
);

/// The longest path MTU where a packet with its headers has to lie in one chunk.
const MTU_OF_ONE_BUFFER: Mtu = Mtu::B2048;
const _: () = assert!(
    crate::framing::MAX_AROUND_PAYLOAD + MTU_OF_ONE_BUFFER.bytes() as usize <= umem::CHUNK_ROOM
);

/// What a frame may be longer than the MTU: Ethernet header and VLAN tag.
const LINK_HEADERS: usize = 18;

/// How often a spin looks for packets between two looks at the clock.
const LOOKS: u32 = 16;

/// After this time a full port looks again whether frames came back.
const FULL_PAUSE: Duration = Duration::from_micros(100);

/// How soon the port wants to be driven again while neighbours are asked for.
const OWNED_PAUSE: Duration = Duration::from_millis(20);

/// How long others on the network have to say that they have an address: an answer takes them less
/// than a millisecond.
const CLAIM_LOOKS: u32 = 10;
const CLAIM_PAUSE: Duration = Duration::from_millis(30);

/// What the kernel counts of each socket.
const KERNEL: [&str; 4] =
    ["xsk_rx_dropped", "xsk_rx_ring_full", "xsk_fill_ring_empty", "xsk_tx_invalid"];

/// So often a sleeper looks whether the interface is still there.
const ALIVE_PAUSE: Duration = Duration::from_secs(1);

#[cfg(test)]
#[path = "../tests/namespace/mod.rs"]
mod namespace;
