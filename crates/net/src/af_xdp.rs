//! Frames of a network interface, by AF_XDP.
//!
//! An XDP program (`bpf/redirect_roce.bpf.c`) gives RoCEv2 to a socket that shares memory with the
//! kernel, and everything else to the kernel. The port owns program, socket and memory; dropped, it
//! leaves nothing behind. It uses one queue: frames that the interface spreads to others go to the
//! kernel, and `xdp_no_socket` counts them; `ethtool -L INTERFACE combined 1` leaves one.
//!
//! It takes CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF, and locked memory for the frames (CAP_IPC_LOCK,
//! or `ulimit -l`): 16 MiB by default.
//!
//! # Counters
//!
//! Besides those of every port:
//!
//! | name | counts |
//! |---|---|
//! | `tx_kicks` | system calls to make the kernel send |
//! | `tx_refused` | of these, how many failed for good |
//! | `rx_too_long` | frames in more than two buffers, thrown away |
//! | `xsk_rx_dropped` | frames for the socket that the kernel dropped: too long for a chunk, … |
//! | `xsk_rx_ring_full` | … because too many waited to be received |
//! | `xsk_fill_ring_empty` | … because no frame was free to receive into |
//! | `xsk_tx_invalid` | descriptors of ours that the kernel refused; never |
//! | `xdp_redirected` | RoCEv2 frames that the program gave to the socket |
//! | `xdp_no_socket` | RoCEv2 frames on queues without a socket, passed to the kernel |
//! | `xdp_passed` | other traffic, passed to the kernel |
//! | `xdp_options`, `xdp_extension` | frames with IPv4 options, IPv6 extension headers: passed |
//! | `xdp_fragment` | fragments: passed |
//! | `xdp_vlan_tags`, `xdp_short` | more than two VLAN tags; cut inside a header: passed |

use std::error::Error;
use std::io;
use std::mem::MaybeUninit;
use std::time::Duration;

use roxe_wire::{Instant, Mtu, RawFrame, Received, Room};
use rustix::time::{ClockId, clock_gettime};
use xsk_rs::config::QueueSize;

use crate::doorbell::Doorbell;
use crate::framing::{Framed, Framer};
use crate::neighbor::{Interface, Netlink};
use crate::port::{
    Arrival, BATCH, Capabilities, FramePort, HeadersOf, Outgoing, Sent, Traffic, Wake, packets_to,
};
use crate::{Sleeper, Waker};

mod error;
mod program;
mod socket;
mod support;
mod umem;

pub use error::OpenError;
use program::{Attached, Attachment, Loaded};
pub use support::{Support, support};
use umem::{Frames, RxFrame};

/// What can be chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The queue, from 0 on.
    pub queue: u32,
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
            mode: Mode::Auto,
            zero_copy: ZeroCopy::Auto,
            ring: 2048,
            spin: Duration::from_micros(30),
        }
    }
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

/// A port on a queue of a network interface.
pub struct AfXdp {
    // First the program goes: while it is attached, frames go to the socket.
    program: Attached,
    frames: Frames,
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
}

impl AfXdp {
    /// Opens a port on the interface of this name, in the calling thread's network namespace.
    ///
    /// # Errors
    /// [`OpenError`]; then nothing of it is left.
    pub fn open(name: &str, settings: Settings) -> Result<Self, OpenError> {
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
        let (frames, zero_copy) = bind(&interface, &settings, ring, &attachment)?;
        program.direct(settings.queue, frames.fd())?;
        if settings.queue == 0 {
            loaded.test(&mut program, &interface)?;
        }

        let bell = Doorbell::new()
            .map_err(|source| OpenError::System { what: "make an eventfd", source })?;
        let summary = summarize(&interface, &settings, &attachment, zero_copy, path_mtu);
        Ok(Self {
            program,
            frames,
            capabilities: Capabilities {
                path_mtu,
                zero_copy,
                verifies_icrc: true,
                headers: HeadersOf::Path,
                summary,
            },
            bell,
            spin: settings.spin,
            framer: Framer::new(interface.mtu as usize + LINK_HEADERS),
            arrived: Vec::with_capacity(BATCH + 1),
            traffic: Traffic::default(),
            is_stuck: false,
            kicks: 0,
            refused: 0,
            too_long: 0,
        })
    }

    /// Hands up what has arrived, until there is a packet. Says how many.
    fn fetch(&mut self, mut sink: impl FnMut(Arrival<'_>)) -> usize {
        let mut packets = 0;
        while packets == 0 && self.frames.fetch(&mut self.arrived) > 0 {
            packets = self.hand_up(&mut sink);
            self.frames.await_many();
            self.frames.assert_complete(self.arrived.len());
        }
        packets
    }

    /// Hands up the packets of the frames that arrived; of one whose rest has not come yet, the
    /// frames stay. Says how many packets.
    fn hand_up(&mut self, sink: &mut impl FnMut(Arrival<'_>)) -> usize {
        let mut packets = 0;
        let mut from = 0;
        while let Some(last) = self.arrived[from..].iter().position(|frame| !frame.goes_on()) {
            let packet = &self.arrived[from..=from + last];
            from += packet.len();
            let (first, second) = match packet {
                [only] => (self.frames.bytes(only), &[][..]),
                [first, second] => (self.frames.bytes(first), self.frames.bytes(second)),
                _ => {
                    self.too_long += 1;
                    continue;
                }
            };
            let wire_len = first.len() + second.len();
            let frame = RawFrame { first, second, wire_len, ..RawFrame::ethernet(&[]) };
            packets += usize::from(self.traffic.hand_up(frame, sink));
        }
        for frame in self.arrived.drain(..from) {
            self.frames.done_with(frame);
        }
        packets
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
                let in_first = frame_len.min(umem::CHUNK_ROOM);
                let rest = frame_len - in_first;
                self.frames.queue(first, in_first, rest > 0);
                if rest > 0 {
                    self.frames.queue(second, rest, false);
                } else {
                    self.frames.give_back(second);
                }
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
                if self.frames.has_arrived() {
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

impl FramePort for AfXdp {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn receive(&mut self, _now: Instant, sink: &mut dyn FnMut(Received<'_>)) -> usize {
        self.fetch(packets_to(sink))
    }

    fn may_receive(&mut self) -> bool {
        self.frames.has_arrived()
    }

    fn receive_all(&mut self, _now: Instant, sink: &mut dyn FnMut(Arrival<'_>)) -> usize {
        self.fetch(sink)
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
            let wake = self.bell.wait(Some(self.frames.fd()), now);
            if wake != Wake::TimedOut {
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
        if self.frames.has_arrived() {
            return Err(Wake::Arrived);
        }
        self.frames.reclaim();
        Ok(self.due().map_or(timeout, |due| timeout.min(due)))
    }

    /// The kernel does not say when frames come back from it.
    fn due(&self) -> Option<Duration> {
        (self.is_stuck || self.frames.free() < FRAMES_PER_PACKET).then_some(FULL_PAUSE)
    }

    fn sleeper(&self) -> io::Result<Sleeper> {
        self.bell.sleeper(Some(self.frames.fd()), self.spin)
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
        ]);
        if let Some(kernel) = self.frames.statistics() {
            counters.extend([
                ("xsk_rx_dropped", kernel.rx_dropped()),
                ("xsk_rx_ring_full", kernel.rx_ring_full()),
                ("xsk_fill_ring_empty", kernel.rx_fill_ring_empty_descs()),
                ("xsk_tx_invalid", kernel.tx_invalid_descs()),
            ]);
        }
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
) -> Result<(Frames, bool), OpenError> {
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
    let (name, queue) = (&interface.name, settings.queue);
    let others = match socket::receive_queues(interface) {
        1 => String::new(),
        all => format!(" of {all} (RoCEv2 on others goes to the kernel, see `ethtool -L {name}`)"),
    };
    format!("{name}: {mode}, {copy}, queue {queue}{others}, path MTU {path_mtu}")
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

/// What a frame may be longer than the MTU: Ethernet header and VLAN tag.
const LINK_HEADERS: usize = 18;

/// How often a spin looks for packets between two looks at the clock.
const LOOKS: u32 = 16;

/// After this time a full port looks again whether frames came back.
const FULL_PAUSE: Duration = Duration::from_micros(100);

/// So often a sleeper looks whether the interface is still there.
const ALIVE_PAUSE: Duration = Duration::from_secs(1);

#[cfg(test)]
#[path = "../tests/namespace/mod.rs"]
mod namespace;
