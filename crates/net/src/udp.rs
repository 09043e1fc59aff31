//! RoCEv2 through a UDP socket, for whoever has no privilege.
//!
//! The socket is bound to one address of this host and to port 4791, so all that it receives came
//! to that address, and all that it sends comes from it and from that port, whatever source port a
//! path has. The kernel writes link, IP and UDP headers; traffic class and hop limit are the path's
//! (a hop limit of 0 becomes 1), VLAN tag and flow label the kernel's. Nothing is fragmented.
//!
//! # What can be verified
//! The ICRC covers the headers but for traffic class, hop limit, flow label and checksums. All of
//! that is known when sending: the kernel writes the identification 0 and "don't fragment". When
//! receiving, two fields of the IPv4 header stay in the dark, identification and fragment bits. To
//! assume the same of every sender holds for other instances of this stack; Linux rxe and hardware
//! count in the identification, and all that they send would be thrown away. [`Verify`] chooses.
//! IPv6 headers have no such fields: there the ICRC is always verified.
//!
//! # Datagrams joined
//! A system call costs as much as copying some ten kilobytes, so the kernel is given many packets
//! in one message that it takes apart when it must (UDP_SEGMENT), and joins what arrives (UDP_GRO).
//! Between two sockets of one host they are never taken apart. On a network device the IPv4
//! identification then counts from 0, against what the ICRCs say; a socket does not see that, but
//! anything else that receives RoCE does. So [`Gso::Auto`] joins packets over IPv6, and over IPv4
//! within this host; [`Gso::On`] is for networks on which every peer is such a port.
//!
//! # Counters
//!
//! Besides those of every port:
//!
//! | name | counts |
//! |---|---|
//! | `tx_calls`, `rx_calls` | system calls to send, and that received something |
//! | `tx_joined`, `rx_joined` | packets that shared a message with others |
//! | `tx_join_refused` | messages of several packets that the kernel refused, sent one by one |
//! | `tx_refused` | packets that the kernel refused: no route, a firewall, … |
//! | `socket_errors` | errors of the socket that are no packet's, ignored: ICMP answers |
//! | `rx_socket_overflow` | datagrams that the kernel dropped: too many waited, wrong checksum |
//!
//! `tx_unsendable` also counts packets longer than the MTU of their way, and those whose path comes
//! from another address.

use std::fmt::Write as _;
use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Duration;

use roxe_wire::{
    Addressing, Body, DropReason, FrameTemplate, Instant, Mtu, ROCE_PORT, Received, Room,
};
use rustix::io::Errno;
use rustix::net::sockopt::socket_error;

use crate::doorbell::Doorbell;
use crate::neighbor::{Interface, Netlink};
use crate::port::{
    Arrival, BATCH, Capabilities, FramePort, HeadersOf, IN_VAIN, Outgoing, Sent, Traffic, Wake,
    packets_to,
};
use crate::{Sleeper, Waker};

mod error;
mod message;
mod outbox;
mod socket;

pub use error::OpenError;
use message::Inbox;
use outbox::Outbox;
pub(crate) use socket::{drops, hear_own_groups_only};

/// What can be chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Whether packets are joined.
    pub gso: Gso,
    /// What is assumed of senders over IPv4.
    pub verify: Verify,
    /// Bytes that each of the socket's buffers should have. Without CAP_NET_ADMIN the system's
    /// `net.core.rmem_max` and `wmem_max` limit them.
    pub buffer: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self { gso: Gso::Auto, verify: Verify::AssumeId0, buffer: 8 << 20 }
    }
}

/// Whether packets are given to the kernel joined, and received joined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Gso {
    /// Over IPv6, and over IPv4 within this host, where every receiver gets them right.
    #[default]
    Auto,
    /// Always: every peer receives by a socket.
    On,
    /// Never.
    Off,
}

/// What is assumed of the IPv4 headers that a socket does not show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verify {
    /// Identification 0 and "don't fragment", as this stack sends: the ICRC is verified.
    #[default]
    AssumeId0,
    /// Nothing: the ICRC of packets over IPv4 is not verified, and any peer is understood. Over
    /// IPv6 it is.
    No,
}

/// A port on a UDP socket.
#[derive(Debug)]
pub struct Udp {
    capabilities: Capabilities,
    /// The index of the interface that its address belongs to.
    interface: u32,
    socket: OwnedFd,
    bell: Doorbell,
    local: Local,
    verifies: bool,
    outbox: Outbox,
    inbox: Inbox,
    senders: Senders,
    traffic: Traffic,
    rx_calls: u64,
    rx_joined: u64,
    rx_errors: u64,
}

impl Udp {
    /// Opens a port on an address of this host, in the calling thread's network namespace.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(address: IpAddr, settings: Settings) -> Result<Self, OpenError> {
        if address.is_unspecified() || address.is_multicast() {
            return Err(OpenError::NotOneHost(address));
        }
        let system = |what| move |source| OpenError::System { what, source };
        let mut netlink = Netlink::open().map_err(system("ask for interfaces"))?;
        let interfaces = netlink.interfaces().map_err(system("list interfaces"))?;
        let interface = find(&mut netlink, &interfaces, address)?;
        let path_mtu = Mtu::fitting(interface.mtu).ok_or_else(|| OpenError::MtuTooSmall {
            interface: interface.name.clone(),
            mtu: interface.mtu,
            least: Mtu::B256.bytes() + Mtu::HEADROOM,
        })?;
        let at = match address {
            IpAddr::V6(address) if address.is_unicast_link_local() => {
                SocketAddrV6::new(address, ROCE_PORT, 0, interface.index).into()
            }
            address => SocketAddr::new(address, ROCE_PORT),
        };
        let opened = socket::open(at, &settings)?;
        let bell = Doorbell::new().map_err(system("make an eventfd"))?;
        let verifies = address.is_ipv6() || settings.verify == Verify::AssumeId0;
        let joins = if opened.segments { settings.gso } else { Gso::Off };
        let summary = summarize(&interface, at, &settings, &opened, path_mtu);
        let inbox = match joins {
            Gso::Off => Inbox::new(message::AT_ONCE, (Mtu::B4096.bytes() + Mtu::HEADROOM) as usize),
            Gso::Auto | Gso::On => Inbox::new(JOINED_AT_ONCE, u16::MAX as usize + 1),
        };
        Ok(Self {
            capabilities: Capabilities {
                path_mtu,
                zero_copy: false,
                verifies_icrc: verifies,
                headers: HeadersOf::Kernel { source_port: ROCE_PORT },
                summary,
            },
            interface: interface.index,
            socket: opened.socket,
            bell,
            local: Local::new(at, joins, &interfaces),
            verifies,
            outbox: Outbox::new((path_mtu.bytes() + Mtu::HEADROOM) as usize),
            inbox,
            senders: Senders::default(),
            traffic: Traffic::default(),
            rx_calls: 0,
            rx_joined: 0,
            rx_errors: 0,
        })
    }

    /// The index of the interface that its address belongs to.
    pub const fn interface(&self) -> u32 {
        self.interface
    }

    /// Hands up what has arrived, until there is a packet. Says how many.
    fn fetch(&mut self, mut sink: impl FnMut(Arrival<'_>)) -> usize {
        let Self { inbox, senders, traffic, local, .. } = self;
        for _ in 0..IN_VAIN {
            let count = match inbox.receive(self.socket.as_fd()) {
                Ok(count) => count,
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => return 0,
                Err(_) => {
                    self.rx_errors += 1;
                    return 0;
                }
            };
            self.rx_calls += 1;
            let mut packets = 0;
            for message in inbox.arrived(count) {
                if message.len > message.bytes.len() {
                    let (have, need) = (message.bytes.len(), message.len);
                    let packet = Err(DropReason::Truncated { have, need });
                    traffic.arrived(Arrival { frame: None, packet }, &mut sink);
                    continue;
                }
                let addressing = Addressing {
                    source: message.from.ip(),
                    destination: local.address.ip(),
                    source_port: message.from.port(),
                    traffic_class: message.traffic_class,
                    hop_limit: message.hop_limit,
                    flow_label: 0,
                    vlan: None,
                };
                let template = if self.verifies { senders.headers(&addressing) } else { None };
                let mut rest = message.bytes;
                let mut here = 0;
                loop {
                    let (bytes, behind) = rest.split_at(message.segment.min(rest.len()));
                    let len = u16::try_from(bytes.len()).ok();
                    let cover = template.zip(len).and_then(|(it, len)| it.icrc_cover(len, 0));
                    let body = Body::whole(bytes);
                    let packet = Ok(Received { addressing, ip_header: None, cover, body });
                    traffic.arrived(Arrival { frame: None, packet }, &mut sink);
                    here += 1;
                    rest = behind;
                    if rest.is_empty() {
                        break;
                    }
                }
                self.rx_joined += if here > 1 { here as u64 } else { 0 };
                packets += here;
            }
            if packets > 0 {
                return packets;
            }
        }
        0
    }
}

impl FramePort for Udp {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn receive(&mut self, _now: Instant, sink: &mut dyn FnMut(Received<'_>)) -> usize {
        self.fetch(packets_to(sink))
    }

    fn receive_all(&mut self, _now: Instant, sink: &mut dyn FnMut(Arrival<'_>)) -> usize {
        self.fetch(sink)
    }

    fn transmit<'p>(
        &mut self,
        _now: Instant,
        source: &mut dyn FnMut(Room<'_>) -> Option<Outgoing<'p>>,
    ) -> Sent {
        let Self { outbox, traffic, local, .. } = self;
        let mut sent = Sent { packets: 0, more: true };
        if !outbox.flush(self.socket.as_fd(), traffic) {
            traffic.tx_no_room += 1;
            return sent;
        }
        while sent.more && sent.packets < BATCH {
            match source(outbox.room()) {
                Some(outgoing) => {
                    let taken = outbox.take(outgoing, local.address, |to| local.joins(to));
                    traffic.tx_unsendable += u64::from(!taken);
                    sent.packets += 1;
                }
                None => sent.more = false,
            }
        }
        outbox.flush(self.socket.as_fd(), traffic);
        sent
    }

    fn wait(&mut self, timeout: Duration) -> Wake {
        let timeout = match self.settle(timeout) {
            Ok(timeout) => timeout,
            Err(wake) => return wake,
        };
        match self.bell.wait(Some(self.socket.as_fd()), timeout) {
            Wake::Gone => {
                // An answer that something came back. A socket stays where its interface goes.
                let error = socket_error(&self.socket);
                self.rx_errors += u64::from(matches!(error, Ok(Err(_))));
                Wake::TimedOut
            }
            wake => wake,
        }
    }

    fn settle(&mut self, timeout: Duration) -> Result<Duration, Wake> {
        if self.outbox.is_full() && self.outbox.flush(self.socket.as_fd(), &mut self.traffic) {
            return Err(Wake::TimedOut);
        }
        Ok(self.due().map_or(timeout, |due| timeout.min(due)))
    }

    fn due(&self) -> Option<Duration> {
        self.outbox.is_full().then_some(FULL_PAUSE)
    }

    fn sleeper(&self) -> io::Result<Sleeper> {
        self.bell.sleeper(Some(self.socket.as_fd()), Duration::ZERO)
    }

    fn waker(&self) -> Waker {
        self.bell.waker()
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let mut counters = self.traffic.counters();
        let tx = self.outbox.counts;
        counters.extend([
            ("tx_calls", tx.calls),
            ("rx_calls", self.rx_calls),
            ("tx_joined", tx.joined),
            ("rx_joined", self.rx_joined),
            ("tx_join_refused", tx.join_refused),
            ("tx_refused", tx.refused),
            ("socket_errors", tx.socket_errors + self.rx_errors),
        ]);
        let drops = drops(self.socket.as_fd());
        counters.extend(drops.map(|drops| ("rx_socket_overflow", drops)));
        counters
    }
}

/// Where the socket is, and to whom it sends packets joined.
#[derive(Debug)]
struct Local {
    address: SocketAddr,
    gso: Gso,
    /// Addresses of this host, and how many of their bits count.
    own: Vec<(IpAddr, u8)>,
    /// What was found out last.
    last: Option<(IpAddr, bool)>,
}

impl Local {
    fn new(address: SocketAddr, gso: Gso, interfaces: &[Interface]) -> Self {
        let own = interfaces.iter().flat_map(|interface| {
            // All of the network of a loopback interface is this host.
            let whole = interface.is_loopback();
            interface.addresses.iter().map(move |it| {
                let all = if it.address.is_ipv4() { 32 } else { 128 };
                (it.address, if whole { it.prefix_len } else { all })
            })
        });
        Self { address, gso, own: own.collect(), last: None }
    }

    fn joins(&mut self, to: IpAddr) -> bool {
        match self.gso {
            Gso::On => true,
            Gso::Off => false,
            Gso::Auto if to.is_ipv6() => true,
            Gso::Auto => match self.last {
                Some((last, joins)) if last == to => joins,
                _ => {
                    let joins = self.own.iter().any(|(own, bits)| is_within(to, *own, *bits));
                    self.last = Some((to, joins));
                    joins
                }
            },
        }
    }
}

/// The headers that the ICRCs of senders cover, those of the last few kept.
#[derive(Debug)]
struct Senders {
    known: Box<[Option<(SocketAddr, FrameTemplate)>; SENDERS]>,
}

impl Default for Senders {
    fn default() -> Self {
        Self { known: Box::new([const { None }; SENDERS]) }
    }
}

impl Senders {
    /// The headers of a sender's packets, as far as the ICRC covers them.
    fn headers(&mut self, addressing: &Addressing) -> Option<&FrameTemplate> {
        let sender = SocketAddr::new(addressing.source, addressing.source_port);
        let last = match sender.ip() {
            IpAddr::V4(address) => address.octets()[3],
            IpAddr::V6(address) => address.octets()[15],
        };
        let place = &mut self.known[(usize::from(last) + usize::from(sender.port())) % SENDERS];
        if place.as_ref().is_none_or(|(known, _)| *known != sender) {
            *place = Some((sender, FrameTemplate::new(&addressing.path()?)));
        }
        place.as_ref().map(|(_, headers)| headers)
    }
}

/// The interface that an address of this host belongs to; of several one by which packets go.
fn find(
    netlink: &mut Netlink,
    interfaces: &[Interface],
    address: IpAddr,
) -> Result<Interface, OpenError> {
    let has = |it: &&Interface| it.addresses.iter().any(|it| it.address == address);
    let all = interfaces.iter().filter(has);
    if let Some(interface) = all.min_by_key(|it| !(it.is_up && it.has_carrier)) {
        return Ok(interface.clone());
    }
    // One of loopback's many, or of a network that is routed to this host as a whole.
    let route = netlink
        .route(address, None, None)
        .map_err(|source| OpenError::System { what: "ask for a route", source })?
        .filter(|route| route.reach == crate::neighbor::Reach::Local);
    let index = route.map(|route| route.interface);
    interfaces.iter().find(|it| Some(it.index) == index).cloned().ok_or_else(|| {
        let others = interfaces.iter().flat_map(|it| &it.addresses).map(|it| it.address);
        OpenError::NotLocal { address, others: others.collect() }
    })
}

/// What the port is, for people: what was wanted and not to be had is said.
fn summarize(
    interface: &Interface,
    at: SocketAddr,
    settings: &Settings,
    opened: &socket::Opened,
    path_mtu: Mtu,
) -> String {
    let joined = match (opened.segments, settings.gso) {
        (true, Gso::Auto) if at.is_ipv4() => "GSO within this host",
        (true, _) => "GSO",
        (false, Gso::Off) => "no GSO",
        (false, _) => "no GSO (the kernel has none)",
    };
    let icrc = match settings.verify {
        _ if at.is_ipv6() => "ICRC verified",
        Verify::AssumeId0 => "ICRC verified for IPv4 identification 0",
        Verify::No => "ICRC not verified",
    };
    let kib = opened.buffer / 1024;
    let (address, name) = (at.ip(), &interface.name);
    let mut summary =
        format!("{address}: UDP socket on {name}, {joined}, {icrc}, buffers of {kib}");
    if opened.buffer < settings.buffer {
        let wanted = settings.buffer / 1024;
        let _ = write!(summary, " of {wanted} KiB wanted (see `sysctl net.core.rmem_max`)");
    } else {
        summary += " KiB";
    }
    let _ = write!(summary, ", path MTU {path_mtu}");
    summary
}

/// Whether the first `bits` bits of two addresses of one family are the same.
fn is_within(address: IpAddr, network: IpAddr, bits: u8) -> bool {
    let differ = match (address, network) {
        (IpAddr::V4(a), IpAddr::V4(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros(),
        (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros(),
        _ => return false,
    };
    differ >= u32::from(bits)
}

/// How many messages one call receives where they may be joined ones: each takes 64 KiB.
const JOINED_AT_ONCE: usize = 16;

/// How many senders are kept.
const SENDERS: usize = 64;

/// After this time a full port tries again.
const FULL_PAUSE: Duration = Duration::from_micros(100);

#[cfg(test)]
mod tests;
