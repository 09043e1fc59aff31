//! IP addresses of an adapter's own: on the wire of an interface, unknown to its kernel.
//!
//! What a kernel does for its addresses is done here: ARP requests, neighbour solicitations and
//! echo requests are answered, and the MACs of neighbours found, by smoltcp; an address that
//! somebody else has is told. `Host` does it for a port, which hands it the frames that are not
//! RoCEv2 and sends what it says; [`Neighbors`] is what the rest of the process asks.
//!
//! smoltcp does not show what it knows of neighbours. So for each one asked for it gets a datagram
//! to send: the frame with it, which goes nowhere, says the MAC.
//!
//! All addresses are on one VLAN, or on none. Who writes and reads messages here never sees the
//! tag: it is put on and taken off where frames come and go. Addresses are told, not learned: no
//! DHCP, no router advertisements.
//! Time is passed in.
//!
//! # Counters
//!
//! | name | counts |
//! |---|---|
//! | `owned_rx` | frames of ARP, neighbour discovery and ICMP for the addresses |
//! | `owned_malformed` | of these, broken ones, thrown away |
//! | `owned_overflow` | of these, thrown away because too many came at once |
//! | `owned_tx` | frames sent of the same kinds |
//! | `owned_no_room` | frames of these kinds not sent, because too many waited for it |
//! | `owned_moved` | neighbours that were found at another MAC than before |
//! | `owned_conflicts` | frames by which somebody says that an address is his |

use std::collections::VecDeque;
use std::net::IpAddr;
use std::time::Duration;

use roxe_wire::{Instant, MacAddress, RawFrame};
use smoltcp::iface::SocketSet;
use smoltcp::wire::{EthernetAddress, HardwareAddress};

use crate::neighbor::Assigned;

mod message;
mod neighbors;
mod stack;

use message::Said;
pub use neighbors::{Neighbors, News};
use stack::{Probe, Stack, Wire};

/// The addresses, and the routers beyond their networks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Own {
    /// The addresses, with the networks that they are in. No more than [`MAX_ADDRESSES`].
    pub addresses: Vec<Assigned>,
    /// For each family at most one router.
    pub gateways: Vec<IpAddr>,
    /// The VLAN that they are on, 1 ..= 4094; `None` for frames without a tag.
    pub vlan: Option<u16>,
}

/// The most addresses that an adapter may own: the XDP program's map has so many places.
pub const MAX_ADDRESSES: usize = 8;

impl Own {
    /// Whether this is one of the addresses.
    pub fn has(&self, address: IpAddr) -> bool {
        self.addresses.iter().any(|own| own.address == address)
    }

    /// Whether packets can go there: in a network of the addresses, or by a router.
    pub fn reaches(&self, destination: IpAddr) -> bool {
        let by_router = self.gateways.iter().any(|it| it.is_ipv4() == destination.is_ipv4());
        by_router || self.addresses.iter().any(|own| own.has_in_network(destination))
    }
}

/// Who answers for the addresses, and knows their neighbours.
pub(crate) struct Host {
    own: Own,
    mac: EthernetAddress,
    stack: Stack,
    sockets: SocketSet<'static>,
    wire: Wire,
    probes: Vec<Probe>,
    /// Frames that came and were not looked at.
    inbox: VecDeque<Vec<u8>>,
    outbox: Outbox,
    neighbors: Neighbors,
    /// The addresses are ours: nobody else answered for them.
    claimed: bool,
    /// Somebody who has one of them.
    rival: Option<(IpAddr, MacAddress)>,
    /// When it was last said that the addresses are ours, because somebody said otherwise.
    defended: Option<Instant>,
    /// When to look next whether neighbours have moved.
    look_at: Instant,
    refresh_at: Instant,
    /// How many announcements of neighbours there were.
    announcements: u64,
    counters: Counters,
}

#[derive(Debug, Default)]
struct Counters {
    rx: u64,
    malformed: u64,
    overflow: u64,
    moved: u64,
    conflicts: u64,
}

/// Frames to be sent.
#[derive(Debug, Default)]
struct Outbox {
    frames: VecDeque<Vec<u8>>,
    sent: u64,
    no_room: u64,
}

impl Outbox {
    fn put(&mut self, frame: Vec<u8>) {
        if self.frames.len() < OUTBOX {
            self.frames.push_back(frame);
        } else {
            self.no_room += 1;
        }
    }

    fn put_all(&mut self, frames: &mut VecDeque<Vec<u8>>) {
        frames.drain(..).for_each(|frame| self.put(frame));
    }

    fn take(&mut self) -> Option<Vec<u8>> {
        let frame = self.frames.pop_front()?;
        self.sent += 1;
        Some(frame)
    }
}

impl Host {
    /// For frames with this MAC, of IP packets of at most `mtu` bytes.
    pub(crate) fn new(own: &Own, mac: MacAddress, mtu: usize) -> Self {
        let mac = EthernetAddress(mac.0);
        let mut wire = Wire::new(mtu);
        Self {
            own: own.clone(),
            mac,
            stack: Stack::new(own, HardwareAddress::Ethernet(mac), &mut wire),
            sockets: SocketSet::new(Vec::new()),
            wire,
            probes: Vec::new(),
            inbox: VecDeque::new(),
            outbox: Outbox::default(),
            neighbors: Neighbors::new(own),
            claimed: false,
            rival: None,
            defended: None,
            look_at: Instant::ZERO,
            refresh_at: Instant::ZERO,
            announcements: 0,
            counters: Counters::default(),
        }
    }

    /// What the rest of the process asks.
    pub(crate) fn neighbors(&self) -> Neighbors {
        self.neighbors.clone()
    }

    /// Asks on the wire whether somebody has the addresses.
    pub(crate) fn ask_for_rivals(&mut self) {
        for own in &self.own.addresses {
            self.outbox.put(message::probe(own.address, self.mac));
        }
    }

    /// Who has one of the addresses, if somebody said so.
    pub(crate) const fn rival(&self) -> Option<(IpAddr, MacAddress)> {
        self.rival
    }

    /// From now on the addresses are ours. Tells the neighbours, who may remember others.
    pub(crate) fn claim(&mut self) {
        self.claimed = true;
        for own in &self.own.addresses {
            self.outbox.put(message::announcement(own.address, self.mac));
        }
    }

    /// Takes a frame that is no RoCEv2. Says whether it is one of those looked at here.
    pub(crate) fn take(&mut self, frame: RawFrame<'_>) -> bool {
        let (macs, rest) = self.untag(frame.first);
        if !message::is_ours(macs, rest) {
            return false;
        }
        self.counters.rx += 1;
        let len = macs.len() + rest.len() + frame.second.len();
        if self.inbox.len() >= INBOX || len > self.wire.max_frame() {
            self.counters.overflow += 1;
        } else {
            self.inbox.push_back([macs, rest, frame.second].concat());
        }
        true
    }

    /// A frame without the tag of the addresses' VLAN, as what stands around that.
    fn untag<'a>(&self, frame: &'a [u8]) -> (&'a [u8], &'a [u8]) {
        let vlan = self.own.vlan.unwrap_or(0);
        match frame.split_at_checked(MACS) {
            Some((
                macs,
                [0x81, 0x00, high, low, rest @ ..] | [0x88, 0xa8, high, low, rest @ ..],
            )) if u16::from_be_bytes([*high, *low]) & 0x0fff == vlan => (macs, rest),
            Some(whole) if self.own.vlan.is_none() => whole,
            _ => (&[], &[]),
        }
    }

    /// Whether [`Host::serve`] has something to do.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        now >= self.look_at || self.is_busy()
    }

    /// Whether it wants to be served soon, whatever arrives.
    pub(crate) fn is_busy(&self) -> bool {
        !self.inbox.is_empty() || !self.probes.is_empty() || self.neighbors.is_asked()
    }

    /// Does what there is to do. `announcements` says how often neighbours have told unasked where
    /// they are, and is called at most once a second.
    pub(crate) fn serve(&mut self, now: Instant, announcements: impl FnOnce() -> u64) {
        if now >= self.look_at {
            self.look_at = now + LOOK;
            if self.claimed && self.neighbors.take_announce() {
                self.claim();
            }
            let announcements = announcements();
            let announced = std::mem::replace(&mut self.announcements, announcements);
            if announced != announcements || now >= self.refresh_at {
                self.refresh_at = now + REFRESH;
                self.neighbors.ask_again();
            }
        }
        let mut answers = Vec::new();
        for frame in std::mem::take(&mut self.inbox) {
            match message::read(&frame, &self.own, self.mac) {
                Err(_) => self.counters.malformed += 1,
                Ok(Said::Rival(address, mac)) => self.on_rival(now, address, mac),
                _ if !self.claimed => {}
                Ok(Said::Probe(address, asker)) => {
                    self.outbox.put(message::defense(address, self.mac, asker));
                }
                Ok(Said::Answer) => {
                    answers.push(frame.clone());
                    self.wire.inbox.push_back(frame);
                }
                Ok(Said::Ordinary) => self.wire.inbox.push_back(frame),
            }
        }
        if !self.claimed {
            return;
        }
        self.stack.poll(now, &mut self.wire, &mut self.sockets);
        self.outbox.put_all(&mut self.wire.outbox);
        self.serve_probes(now, &answers);
    }

    fn serve_probes(&mut self, now: Instant, answers: &[Vec<u8>]) {
        let room = MAX_PROBES.saturating_sub(self.probes.len());
        for destination in self.neighbors.begin(room) {
            let mac = HardwareAddress::Ethernet(self.mac);
            self.probes.push(Probe::new(destination, &self.own, mac, now, &mut self.wire));
        }
        let Self { probes, wire, outbox, neighbors, counters, .. } = self;
        probes.retain_mut(|probe| {
            wire.inbox.extend(answers.iter().cloned());
            let found = probe.poll(now, wire);
            outbox.put_all(&mut wire.outbox);
            let is_over = found.is_some() || now.since(probe.since()) >= PROBE;
            if is_over {
                counters.moved += u64::from(neighbors.end(probe.destination(), found));
            }
            !is_over
        });
    }

    fn on_rival(&mut self, now: Instant, address: IpAddr, mac: MacAddress) {
        self.counters.conflicts += 1;
        self.rival = Some((address, mac));
        if !self.claimed {
            return;
        }
        self.neighbors.tell_conflict(address, mac);
        // Two that defend an address against each other would do so for ever.
        if self.defended.is_none_or(|at| now.since(at) >= DEFEND) {
            self.defended = Some(now);
            self.outbox.put(message::announcement(address, self.mac));
        }
    }

    /// The next frame to be sent.
    pub(crate) fn outgoing(&mut self) -> Option<Vec<u8>> {
        let mut frame = self.outbox.take()?;
        if let Some(vlan) = self.own.vlan {
            let [high, low] = vlan.to_be_bytes();
            frame.splice(MACS..MACS, [0x81, 0x00, high, low]);
        }
        Some(frame)
    }

    /// Whether there are frames to be sent.
    pub(crate) fn has_outgoing(&self) -> bool {
        !self.outbox.frames.is_empty()
    }

    pub(crate) fn counters(&self) -> [(&'static str, u64); 7] {
        let Counters { rx, malformed, overflow, moved, conflicts } = self.counters;
        [
            ("owned_rx", rx),
            ("owned_malformed", malformed),
            ("owned_overflow", overflow),
            ("owned_tx", self.outbox.sent),
            ("owned_no_room", self.outbox.no_room),
            ("owned_moved", moved),
            ("owned_conflicts", conflicts),
        ]
    }
}

/// Bytes of a frame before a tag.
const MACS: usize = 12;

/// Frames that wait to be looked at, at most.
const INBOX: usize = 256;

/// Frames that wait to be sent, at most: all answers to a full inbox, and all that is asked for at
/// once.
const OUTBOX: usize = 2 * INBOX;

/// Neighbours that are asked for at once.
const MAX_PROBES: usize = 64;

/// How long a neighbour is asked for.
const PROBE: Duration = Duration::from_secs(5);

/// Between two looks whether neighbours announced themselves.
const LOOK: Duration = Duration::from_secs(1);

/// So often every neighbour is asked again where it is.
const REFRESH: Duration = Duration::from_secs(30);

/// So often an address is defended: RFC 5227, DEFEND_INTERVAL.
const DEFEND: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests;
