//! Interfaces, routes and neighbours: on which interface a packet leaves, from which address, and
//! to whose MAC.
//!
//! The kernel knows all three and answers over netlink, in blocking calls. Neighbours are resolved
//! by the kernel too (ARP, neighbour discovery): [`Netlink::resolve`] makes it want to, by sending
//! it a datagram to the same next hop.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};
use std::thread;
use std::time::Duration;

use netlink_packet_core::{
    NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::address::{AddressAttribute, AddressHeaderFlags, AddressMessage};
use netlink_packet_route::link::{
    InfoData, InfoVlan, LinkAttribute, LinkFlags, LinkInfo, LinkMessage, VlanProtocol,
};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteMessage, RouteMetric, RouteType, RouteVia,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::{Socket, protocols::NETLINK_ROUTE};
use roxe_wire::MacAddress;
use thiserror::Error;

mod answer;
mod watch;

use answer::{Answer, until_whole};
pub use watch::Watch;

/// The kernel's view of one network namespace: that of the thread which opened it.
#[derive(Debug)]
pub struct Netlink {
    socket: Socket,
    sequence: u32,
}

/// A network interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its number; changes when the interface is made anew.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Its link type, `ARPHRD_…` of Linux: 1 is Ethernet, 772 loopback, 65534 none.
    pub link_type: u16,
    /// Its MAC. All zeros for loopback, `None` where there is no such thing.
    pub mac: Option<MacAddress>,
    /// The longest IP packet that it takes, in bytes.
    pub mtu: u32,
    /// Whether somebody switched it on.
    pub is_up: bool,
    /// Whether there is something at the other end of its cable.
    pub has_carrier: bool,
    /// Its addresses that may be used, in the kernel's order.
    pub addresses: Vec<Assigned>,
    /// The VLAN that it stands for, of which frames are on another interface.
    pub vlan: Option<Vlan>,
}

/// A VLAN (802.1Q) of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vlan {
    /// Its number, 1 ..= 4094.
    pub id: u16,
    /// The index of the interface on which its frames are, with a tag.
    pub on: u32,
}

impl Interface {
    /// Whether its frames begin with an Ethernet header.
    pub fn has_ethernet_header(&self) -> bool {
        matches!(self.link_type, ETHERNET | LOOPBACK)
    }

    /// Whether it is the host's own, which every network of it is.
    pub fn is_loopback(&self) -> bool {
        self.link_type == LOOPBACK
    }
}

/// An address of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Assigned {
    /// The address.
    pub address: IpAddr,
    /// How many of its bits name the network.
    pub prefix_len: u8,
}

impl Assigned {
    /// Whether an address is in the network of this one.
    pub fn has_in_network(&self, other: IpAddr) -> bool {
        let bits = |address| match address {
            IpAddr::V4(address) => (u128::from(address.to_bits()) << 96, 32),
            IpAddr::V6(address) => (address.to_bits(), 128),
        };
        let ((this, len), (other, other_len)) = (bits(self.address), bits(other));
        let beyond = 128 - u32::from(self.prefix_len.min(128));
        len == other_len && (this ^ other).checked_shr(beyond).unwrap_or(0) == 0
    }
}

/// How packets reach a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The destination.
    pub destination: IpAddr,
    /// Who is meant.
    pub reach: Reach,
    /// The index of the interface they leave on.
    pub interface: u32,
    /// The address they should come from, if the kernel says one.
    pub source: Option<IpAddr>,
    /// The router, or the destination itself. Its family may be another.
    pub next_hop: IpAddr,
    /// The MTU of the way there, where it is known to be smaller than the interface's.
    pub mtu: Option<u32>,
}

/// Who is meant by a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// One host elsewhere.
    Unicast,
    /// This host.
    Local,
    /// A group.
    Multicast,
    /// All of a network.
    Broadcast,
}

/// Why a next hop has no MAC.
#[derive(Debug, Error)]
pub enum ResolveError {
    /// Nobody answered in time.
    #[error(
        "{next_hop} does not answer on interface {interface}: `ip neigh show {next_hop}` says more"
    )]
    NoAnswer {
        /// Who was asked for.
        next_hop: IpAddr,
        /// The index of the interface.
        interface: u32,
    },
    /// Nobody answered an adapter with addresses of its own in time.
    #[error("{0} does not answer on the network of the adapter's own addresses")]
    Silent(IpAddr),
    /// The destination is an address of this host: no frame reaches it.
    #[error("{0} is an address of this host")]
    Local(IpAddr),
    /// The kernel did not answer.
    #[error("cannot ask the kernel for neighbours: {0}")]
    System(#[from] io::Error),
}

impl Netlink {
    /// Opens a socket to the kernel. Takes no privilege.
    ///
    /// # Errors
    /// Those of the system.
    pub fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        Ok(Self { socket, sequence: 0 })
    }

    /// All interfaces, by index.
    ///
    /// # Errors
    /// Those of the system.
    pub fn interfaces(&mut self) -> io::Result<Vec<Interface>> {
        let links = RouteNetlinkMessage::GetLink(LinkMessage::default());
        let mut interfaces: Vec<Interface> = self
            .ask(links, NLM_F_DUMP)?
            .into_iter()
            .filter_map(|answer| match answer {
                RouteNetlinkMessage::NewLink(link) => Some(read_link(link)),
                _ => None,
            })
            .collect();
        interfaces.sort_by_key(|interface| interface.index);

        let addresses = RouteNetlinkMessage::GetAddress(AddressMessage::default());
        for answer in self.ask(addresses, NLM_F_DUMP)? {
            let RouteNetlinkMessage::NewAddress(message) = answer else { continue };
            let index = message.header.index;
            let Some(at) = interfaces.iter().position(|interface| interface.index == index) else {
                continue;
            };
            interfaces[at].addresses.extend(read_address(&message));
        }
        Ok(interfaces)
    }

    /// The way to `destination`; out of `interface` (an index), where that is given. `None` when
    /// there is none.
    ///
    /// # Errors
    /// Those of the system.
    pub fn route(
        &mut self,
        destination: IpAddr,
        source: Option<IpAddr>,
        interface: Option<u32>,
    ) -> io::Result<Option<Route>> {
        self.route_as(destination, source, interface, RouteFlags::empty())
    }

    /// Whether a route leads along this way, which was found with this source. Asked for a way out
    /// of one interface, Linux takes what no route of IPv4 leads to for a neighbour there.
    ///
    /// # Errors
    /// Those of the system.
    pub fn is_routed(&mut self, way: &Route, source: Option<IpAddr>) -> io::Result<bool> {
        if way.destination.is_ipv6() || way.reach != Reach::Unicast {
            return Ok(true);
        }
        let flags = RouteFlags::FibMatch;
        Ok(self.route_as(way.destination, source, Some(way.interface), flags)?.is_some())
    }

    fn route_as(
        &mut self,
        destination: IpAddr,
        source: Option<IpAddr>,
        interface: Option<u32>,
        flags: RouteFlags,
    ) -> io::Result<Option<Route>> {
        let mut query = RouteMessage::default();
        query.header.address_family = family(destination);
        query.header.destination_prefix_length = bits(destination);
        query.header.flags = flags;
        query.attributes.push(RouteAttribute::Destination(destination.into()));
        if let Some(source) = source {
            query.header.source_prefix_length = bits(source);
            query.attributes.push(RouteAttribute::Source(source.into()));
        }
        query.attributes.extend(interface.map(RouteAttribute::Oif));
        match self.ask(RouteNetlinkMessage::GetRoute(query), 0) {
            Ok(answers) => Ok(answers.into_iter().find_map(|answer| match answer {
                RouteNetlinkMessage::NewRoute(route) => read_route(destination, &route),
                _ => None,
            })),
            Err(error) if is_unreachable(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The MAC of a neighbour, if the kernel knows it now.
    ///
    /// # Errors
    /// Those of the system.
    pub fn neighbor(&mut self, interface: u32, address: IpAddr) -> io::Result<Option<MacAddress>> {
        let mut query = NeighbourMessage::default();
        query.header.family = family(address);
        query.header.ifindex = interface;
        query.attributes.push(NeighbourAttribute::Destination(match address {
            IpAddr::V4(address) => NeighbourAddress::Inet(address),
            IpAddr::V6(address) => NeighbourAddress::Inet6(address),
        }));
        match self.ask(RouteNetlinkMessage::GetNeighbour(query), 0) {
            Ok(answers) => Ok(answers.into_iter().find_map(|answer| match answer {
                RouteNetlinkMessage::NewNeighbour(neighbor) => read_neighbor(&neighbor),
                _ => None,
            })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The MAC that frames along `route` go to. Where the kernel does not know it, has it ask the
    /// neighbour, and waits at most about `patience` for the answer: not at all where that is zero.
    ///
    /// # Errors
    /// [`ResolveError`].
    pub fn resolve(
        &mut self,
        route: &Route,
        patience: Duration,
    ) -> Result<MacAddress, ResolveError> {
        match route.reach {
            Reach::Unicast => {}
            Reach::Local => return Err(ResolveError::Local(route.destination)),
            Reach::Broadcast => return Ok(BROADCAST),
            Reach::Multicast => return Ok(multicast_mac(route.destination)),
        }
        let mut waited = Duration::ZERO;
        let mut pause = Duration::from_millis(1);
        loop {
            if let Some(mac) = self.neighbor(route.interface, route.next_hop)? {
                return Ok(mac);
            }
            provoke(route);
            if waited >= patience {
                let Route { next_hop, interface, .. } = *route;
                return Err(ResolveError::NoAnswer { next_hop, interface });
            }
            thread::sleep(pause);
            waited += pause;
            pause = LONGEST_PAUSE.min(pause * 2);
        }
    }

    /// Sends a request and collects what the kernel answers.
    fn ask(
        &mut self,
        request: RouteNetlinkMessage,
        flags: u16,
    ) -> io::Result<Vec<RouteNetlinkMessage>> {
        until_whole(|| self.ask_once(request.clone(), flags))
    }

    /// The same; nothing where a table changed while the kernel told it, so that some of it may be
    /// missing.
    fn ask_once(
        &mut self,
        request: RouteNetlinkMessage,
        flags: u16,
    ) -> io::Result<Option<Vec<RouteNetlinkMessage>>> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut message =
            NetlinkMessage::new(NetlinkHeader::default(), NetlinkPayload::from(request));
        message.header.flags = NLM_F_REQUEST | flags;
        message.header.sequence_number = self.sequence;
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        self.socket.send(&bytes, 0)?;

        let is_dump = flags & NLM_F_DUMP == NLM_F_DUMP;
        let mut answer = Answer::to(self.sequence, is_dump);
        loop {
            let datagram = match self.socket.recv_from_full() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                received => received?.0,
            };
            if answer.take(&datagram)? {
                return Ok(answer.whole());
            }
        }
    }
}

/// The MAC that frames to a multicast group go to: the group's last 23 bits behind 01:00:5e for
/// IPv4, its last 32 behind 33:33 for IPv6.
pub fn multicast_mac(group: IpAddr) -> MacAddress {
    match group {
        IpAddr::V4(group) => {
            let [_, b, c, d] = group.octets();
            MacAddress([0x01, 0x00, 0x5e, b & 0x7f, c, d])
        }
        IpAddr::V6(group) => {
            let [.., a, b, c, d] = group.octets();
            MacAddress([0x33, 0x33, a, b, c, d])
        }
    }
}

/// Makes the kernel want to know the next hop's MAC. Nothing depends on the datagram's arrival, so
/// nothing is said about failures.
fn provoke(route: &Route) {
    let unspecified = match route.next_hop {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    let source = route.source.filter(|source| source.is_ipv4() == route.next_hop.is_ipv4());
    let at_interface = |address| match address {
        // A link-local address says nothing without its link.
        IpAddr::V6(address) if address.is_unicast_link_local() => {
            SocketAddrV6::new(address, 0, 0, route.interface).into()
        }
        address => SocketAddr::new(address, 0),
    };
    let Ok(socket) = UdpSocket::bind(at_interface(source.unwrap_or(unspecified))) else { return };
    let mut next_hop = at_interface(route.next_hop);
    next_hop.set_port(DISCARD_PORT);
    let _ = socket.send_to(&[0], next_hop);
}

fn read_link(message: LinkMessage) -> Interface {
    let mut interface = Interface {
        index: message.header.index,
        name: String::new(),
        link_type: message.header.link_layer_type.into(),
        mac: None,
        mtu: 0,
        is_up: message.header.flags.contains(LinkFlags::Up),
        has_carrier: message.header.flags.contains(LinkFlags::LowerUp),
        addresses: Vec::new(),
        vlan: None,
    };
    let (mut on, mut id) = (None, None);
    for attribute in message.attributes {
        match attribute {
            LinkAttribute::IfName(name) => interface.name = name,
            LinkAttribute::Mtu(mtu) => interface.mtu = mtu,
            LinkAttribute::Address(bytes) => interface.mac = bytes.try_into().ok().map(MacAddress),
            LinkAttribute::Link(index) => on = Some(index),
            LinkAttribute::LinkInfo(info) => id = info.iter().find_map(vlan_id),
            _ => {}
        }
    }
    interface.vlan = id.zip(on).map(|(id, on)| Vlan { id, on });
    interface
}

/// The number of an 802.1Q VLAN, if that is what stands there.
fn vlan_id(info: &LinkInfo) -> Option<u16> {
    let LinkInfo::Data(InfoData::Vlan(parts)) = info else { return None };
    let is_other = |part: &InfoVlan| match part {
        InfoVlan::Protocol(protocol) => *protocol != VlanProtocol::Ieee8021Q,
        _ => false,
    };
    let id = parts.iter().find_map(|part| match part {
        InfoVlan::Id(id) => Some(*id),
        _ => None,
    });
    id.filter(|id| (1..=4094).contains(id) && !parts.iter().any(is_other))
}

/// The address, unless it must not be used: not yet, or because somebody else has it.
fn read_address(message: &AddressMessage) -> Option<Assigned> {
    let unusable = AddressHeaderFlags::Tentative | AddressHeaderFlags::Dadfailed;
    if message.header.flags.intersects(unusable) {
        return None;
    }
    // On a link between two hosts, `Address` is the other one.
    let local = message.attributes.iter().find_map(|attribute| match attribute {
        AddressAttribute::Local(address) => Some(*address),
        _ => None,
    });
    let address = local.or_else(|| {
        message.attributes.iter().find_map(|attribute| match attribute {
            AddressAttribute::Address(address) => Some(*address),
            _ => None,
        })
    })?;
    Some(Assigned { address, prefix_len: message.header.prefix_len })
}

/// `None` when the route is a refusal.
fn read_route(destination: IpAddr, message: &RouteMessage) -> Option<Route> {
    let reach = match message.header.kind {
        RouteType::Unicast | RouteType::Anycast => Reach::Unicast,
        RouteType::Local => Reach::Local,
        RouteType::Broadcast => Reach::Broadcast,
        RouteType::Multicast => Reach::Multicast,
        _ => return None,
    };
    // IPv6 has no type for groups.
    let reach = if destination.is_multicast() { Reach::Multicast } else { reach };
    let mut route =
        Route { destination, reach, interface: 0, source: None, next_hop: destination, mtu: None };
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Oif(index) => route.interface = *index,
            RouteAttribute::PrefSource(address) => route.source = ip(address),
            RouteAttribute::Gateway(address) => route.next_hop = ip(address)?,
            RouteAttribute::Via(RouteVia::Inet(address)) => route.next_hop = (*address).into(),
            RouteAttribute::Via(RouteVia::Inet6(address)) => route.next_hop = (*address).into(),
            RouteAttribute::Metrics(metrics) => {
                route.mtu = metrics.iter().find_map(|metric| match metric {
                    RouteMetric::Mtu(mtu) => Some(*mtu),
                    _ => None,
                });
            }
            _ => {}
        }
    }
    Some(route)
}

fn read_neighbor(message: &NeighbourMessage) -> Option<MacAddress> {
    let usable = matches!(
        message.header.state,
        NeighbourState::Reachable
            | NeighbourState::Stale
            | NeighbourState::Delay
            | NeighbourState::Probe
            | NeighbourState::Noarp
            | NeighbourState::Permanent
    );
    message.attributes.iter().filter(|_| usable).find_map(|attribute| match attribute {
        NeighbourAttribute::LinkLayerAddress(bytes) => bytes[..].try_into().ok().map(MacAddress),
        _ => None,
    })
}

fn ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(address) => Some((*address).into()),
        RouteAddress::Inet6(address) => Some((*address).into()),
        _ => None,
    }
}

/// Whether it says that there is no way. So do routes that refuse, and the kernel where the source
/// is no address of this host any more.
fn is_unreachable(error: &io::Error) -> bool {
    use io::ErrorKind::{
        HostUnreachable, InvalidInput, NetworkDown, NetworkUnreachable, PermissionDenied,
    };
    matches!(
        error.kind(),
        HostUnreachable | NetworkDown | NetworkUnreachable | PermissionDenied | InvalidInput
    )
}

fn family(address: IpAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 }
}

fn bits(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// Link types.
const ETHERNET: u16 = 1;
const LOOPBACK: u16 = 772;

const BROADCAST: MacAddress = MacAddress([0xff; 6]);

/// Whoever listens there throws away what comes.
const DISCARD_PORT: u16 = 9;

/// Between two looks at the neighbour table.
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_there_and_reaches_itself() {
        let mut netlink = Netlink::open().expect("netlink takes no privilege");
        let interfaces = netlink.interfaces().expect("the kernel answers");
        let loopback = interfaces.iter().find(|it| it.name == "lo").expect("there is lo");
        assert_eq!(loopback.link_type, LOOPBACK);
        assert!(loopback.has_ethernet_header());
        if !loopback.is_up {
            return;
        }
        let localhost = IpAddr::V4(Ipv4Addr::LOCALHOST);
        assert!(loopback.addresses.iter().any(|it| it.address == localhost));
        let route = netlink.route(localhost, None, None).expect("the kernel answers");
        let route = route.expect("there is a route");
        assert_eq!((route.reach, route.interface), (Reach::Local, loopback.index));
        let refused = netlink.resolve(&route, Duration::ZERO);
        assert!(matches!(refused, Err(ResolveError::Local(address)) if address == localhost));
    }

    #[test]
    fn a_vlan_is_known_by_its_number_and_what_it_is_on() {
        let vlan = |parts: &[InfoVlan]| {
            let mut link = LinkMessage::default();
            link.attributes = vec![
                LinkAttribute::IfName("eth0.10".to_owned()),
                LinkAttribute::Link(7),
                LinkAttribute::LinkInfo(vec![LinkInfo::Data(InfoData::Vlan(parts.to_vec()))]),
            ];
            read_link(link).vlan
        };
        let protocol = InfoVlan::Protocol;
        let id = InfoVlan::Id(10);
        let expected = Some(Vlan { id: 10, on: 7 });
        assert_eq!(vlan(&[protocol(VlanProtocol::Ieee8021Q), id.clone()]), expected);
        assert_eq!(vlan(&[id.clone(), protocol(VlanProtocol::Ieee8021Ad)]), None);
        assert_eq!((vlan(&[InfoVlan::Id(0)]), vlan(&[])), (None, None));
    }

    #[test]
    fn groups_have_macs_of_their_own() {
        let mac = |group: &str| multicast_mac(group.parse().expect("an address")).to_string();
        assert_eq!(mac("239.129.2.3"), "01:00:5e:01:02:03");
        assert_eq!(mac("ff0e::1:0203:0405"), "33:33:02:03:04:05");
    }
}
