//! A whole frame: link, IP and UDP headers around a packet.
//!
//! Annex A17 of IBA vol 1. Read with etherparse. Below `net` nobody sees what stands here: a port
//! takes a frame apart into [`Received`], and frames what the device sends with a
//! [`FrameTemplate`].

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use etherparse::checksum::Sum16BitWords;
use etherparse::{
    EtherType, Ethernet2Header, IpNumber, Ipv4Header, Ipv4HeaderSlice, Ipv6Header, Ipv6HeaderSlice,
    SingleVlanHeader, SingleVlanHeaderSlice, UdpHeader, UdpHeaderSlice,
};

use crate::icrc::Word;
use crate::{Body, DropReason, Grh, IcrcCover, icrc};

/// The UDP port of RoCEv2.
pub const ROCE_PORT: u16 = 4791;

/// What the first byte of a frame belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Start {
    /// An Ethernet header.
    Ethernet,
    /// What an Ethertype announces: the link header was taken off.
    EtherType(u16),
    /// An IP header, version 4 or 6.
    Ip,
}

/// A frame's bytes as a port or a capture has them.
#[derive(Clone, Copy, Debug)]
pub struct RawFrame<'a> {
    /// What the first byte is.
    pub start: Start,
    /// The beginning; may be everything. Holds all headers up to UDP.
    pub first: &'a [u8],
    /// What follows it; usually empty.
    pub second: &'a [u8],
    /// Bytes that the frame has on the wire: more than are here when a capture keeps only the
    /// beginning.
    pub wire_len: usize,
}

impl<'a> RawFrame<'a> {
    /// A whole Ethernet frame in one piece, without its check sequence.
    pub const fn ethernet(bytes: &'a [u8]) -> Self {
        Self { start: Start::Ethernet, first: bytes, second: &[], wire_len: bytes.len() }
    }
}

/// An Ethernet address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MacAddress(pub [u8; 6]);

impl fmt::Display for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// An 802.1Q tag's contents: priority (3 bits), drop eligible (1), VLAN identifier (12).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct VlanTag(pub u16);

impl VlanTag {
    /// The VLAN, 0 ..= 4095. 0 is a priority tag: the frame belongs to no VLAN.
    pub const fn id(self) -> u16 {
        self.0 & 0x0fff
    }

    /// The priority code point, 0 ..= 7.
    pub const fn priority(self) -> u8 {
        (self.0 >> 13) as u8
    }
}

/// What congestion notification says: the low two bits of the traffic class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ecn {
    /// 00: the endpoints do not take part.
    NotEct,
    /// 01: they do.
    Ect1,
    /// 10: they do; what RoCE senders use.
    Ect0,
    /// 11: a switch on the way was congested.
    Ce,
}

/// IPv4's type of service, IPv6's traffic class: DSCP (6 bits) and ECN (2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct TrafficClass(pub u8);

impl TrafficClass {
    /// The differentiated services code point, 0 ..= 63.
    pub const fn dscp(self) -> u8 {
        self.0 >> 2
    }

    /// The congestion bits.
    pub const fn ecn(self) -> Ecn {
        match self.0 & 0x3 {
            0 => Ecn::NotEct,
            1 => Ecn::Ect1,
            2 => Ecn::Ect0,
            _ => Ecn::Ce,
        }
    }
}

/// An IP header as it is on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IpHeader<'a> {
    /// Version 4, without options.
    V4(&'a [u8; 20]),
    /// Version 6.
    V6(&'a [u8; 40]),
}

impl<'a> IpHeader<'a> {
    /// The bytes.
    pub const fn bytes(self) -> &'a [u8] {
        match self {
            Self::V4(bytes) => bytes,
            Self::V6(bytes) => bytes,
        }
    }

    /// Where the packet comes from.
    pub fn source(self) -> IpAddr {
        match self {
            Self::V4(&[.., a, b, c, d, _, _, _, _]) => Ipv4Addr::new(a, b, c, d).into(),
            Self::V6(bytes) => v6_address(bytes, 8),
        }
    }

    /// Where it goes.
    pub fn destination(self) -> IpAddr {
        match self {
            Self::V4(&[.., a, b, c, d]) => Ipv4Addr::new(a, b, c, d).into(),
            Self::V6(bytes) => v6_address(bytes, 24),
        }
    }

    /// Type of service or traffic class.
    pub const fn traffic_class(self) -> TrafficClass {
        match self {
            Self::V4(bytes) => TrafficClass(bytes[1]),
            Self::V6(bytes) => TrafficClass(bytes[0] << 4 | bytes[1] >> 4),
        }
    }

    /// Time to live or hop limit.
    pub const fn hop_limit(self) -> u8 {
        match self {
            Self::V4(bytes) => bytes[8],
            Self::V6(bytes) => bytes[7],
        }
    }

    /// The flow label, 20 bits; 0 for IPv4.
    pub const fn flow_label(self) -> u32 {
        match self {
            Self::V4(_) => 0,
            Self::V6(bytes) => u32::from_be_bytes([0, bytes[1] & 0x0f, bytes[2], bytes[3]]),
        }
    }

    /// IPv4's identification; 0 for IPv6.
    pub const fn identification(self) -> u16 {
        match self {
            Self::V4(bytes) => u16::from_be_bytes([bytes[4], bytes[5]]),
            Self::V6(_) => 0,
        }
    }
}

fn v6_address(header: &[u8; 40], at: usize) -> IpAddr {
    let mut address = [0; 16];
    address.copy_from_slice(&header[at..at + 16]);
    Ipv6Addr::from_octets(address).into()
}

/// What a UDP header says besides the destination port, which is 4791.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Udp {
    /// Any value: it spreads flows over paths, and tells nothing else.
    pub source_port: u16,
    /// Header and packet, in bytes.
    pub len: u16,
    /// 0 when the sender computed none.
    pub checksum: u16,
}

impl Udp {
    /// The header's bytes.
    pub const fn emit(self) -> [u8; 8] {
        let [s1, s0] = self.source_port.to_be_bytes();
        let [d1, d0] = ROCE_PORT.to_be_bytes();
        let [l1, l0] = self.len.to_be_bytes();
        let [c1, c0] = self.checksum.to_be_bytes();
        [s1, s0, d1, d0, l1, l0, c1, c0]
    }
}

/// A RoCEv2 frame taken apart down to the BTH. The packet itself is not looked at.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// Destination and source, when the frame begins with an Ethernet header.
    pub ethernet: Option<(MacAddress, MacAddress)>,
    /// VLAN tags, outer first.
    pub vlan: [Option<VlanTag>; 2],
    /// The IP header.
    pub ip: IpHeader<'a>,
    /// The UDP header.
    pub udp: Udp,
    /// From BTH to ICRC.
    pub body: Body<'a>,
    /// Bytes behind the ICRC: Ethernet padding.
    pub padding: usize,
    /// From the IP header to the end of the first piece.
    from_ip: &'a [u8],
}

impl<'a> Frame<'a> {
    /// Takes a frame apart. The checks stand in the order of the headers; the first that fails
    /// names the reason.
    ///
    /// # Errors
    /// Those for which [`DropReason::is_other_traffic`] holds when the frame is not RoCEv2 at all;
    /// [`DropReason::Truncated`], `TooManyVlanTags`, `IpVersion`, `IpHeaderLength`, `IpOptions`,
    /// `IpChecksum`, `IpFragment`, `IpExtension`, `UdpLength` when it is broken.
    pub fn parse(raw: RawFrame<'a>) -> Result<Self, DropReason> {
        let mut at = 0;
        let mut ethernet = None;
        let mut vlan = [None; 2];
        let ether_type = match raw.start {
            Start::Ip => None,
            Start::EtherType(ether_type) => Some(EtherType(ether_type)),
            Start::Ethernet => {
                let bytes = raw.first.first_chunk::<14>().ok_or_else(|| raw.cut_at(14))?;
                let [d5, d4, d3, d2, d1, d0, s5, s4, s3, s2, s1, s0, e1, e0] = *bytes;
                let destination = MacAddress([d5, d4, d3, d2, d1, d0]);
                ethernet = Some((destination, MacAddress([s5, s4, s3, s2, s1, s0])));
                at = 14;
                Some(EtherType(u16::from_be_bytes([e1, e0])))
            }
        };
        let ether_type = match ether_type {
            Some(mut ether_type) => {
                let mut tags = vlan.iter_mut();
                while is_vlan(ether_type) {
                    let slice = raw.first.get(at..).unwrap_or_default();
                    let tag =
                        SingleVlanHeaderSlice::from_slice(slice).map_err(|_| raw.cut_at(at + 4))?;
                    let [t1, t0, ..] = *tag.slice() else { return Err(raw.cut_at(at + 4)) };
                    let place = tags.next().ok_or(DropReason::TooManyVlanTags)?;
                    *place = Some(VlanTag(u16::from_be_bytes([t1, t0])));
                    ether_type = tag.ether_type();
                    at += 4;
                }
                ether_type
            }
            None => match raw.first.first().map(|byte| byte >> 4) {
                Some(4) => EtherType::IPV4,
                Some(6) => EtherType::IPV6,
                Some(version) => return Err(DropReason::IpVersion { version }),
                None => return Err(raw.cut_at(1)),
            },
        };
        let (ip, ip_payload) = match ether_type {
            EtherType::IPV4 => parse_ipv4(&raw, at)?,
            EtherType::IPV6 => parse_ipv6(&raw, at)?,
            EtherType(0x8915) => return Err(DropReason::RoceV1),
            EtherType(ether_type) => return Err(DropReason::NotIp { ether_type }),
        };
        let from_ip = raw.first.get(at..).unwrap_or_default();
        at += ip.bytes().len();
        let udp = UdpHeaderSlice::from_slice(raw.first.get(at..).unwrap_or_default())
            .map_err(|_| raw.cut_at(at + 8))?;
        if udp.destination_port() != ROCE_PORT {
            return Err(DropReason::OtherUdpPort { port: udp.destination_port() });
        }
        if udp.length() != ip_payload || udp.length() < 8 {
            return Err(DropReason::UdpLength { udp: udp.length(), ip: ip_payload });
        }
        at += 8;
        let len = usize::from(udp.length()) - 8;
        let end = at + len;
        let have = raw.first.len() + raw.second.len();
        let start = &raw.first[at..end.min(raw.first.len())];
        let body = if end > raw.wire_len {
            return Err(DropReason::Truncated { have: raw.wire_len, need: end });
        } else if end > have {
            Body::Elided { start, len, digest: 0 }
        } else {
            let second = end.saturating_sub(raw.first.len());
            Body::Whole { first: start, second: &raw.second[..second] }
        };
        Ok(Self {
            ethernet,
            vlan,
            ip,
            udp: Udp {
                source_port: udp.source_port(),
                len: udp.length(),
                checksum: udp.checksum(),
            },
            body,
            padding: raw.wire_len - end,
            from_ip,
        })
    }

    /// What the ICRC covers before the BTH.
    pub fn icrc_cover(&self) -> IcrcCover<'a> {
        IcrcCover::in_frame(self.ip, self.udp.checksum, self.from_ip)
    }

    /// Whether the UDP checksum is 0 or right; `None` when the bytes are not all here.
    ///
    /// # Errors
    /// [`DropReason::UdpChecksum`].
    pub fn check_udp_checksum(&self) -> Option<Result<(), DropReason>> {
        let found = self.udp.checksum;
        if found == 0 {
            return Some(Ok(()));
        }
        let Body::Whole { first, second } = self.body else { return None };
        let expected = udp_checksum(self.ip, self.udp, [first, second]);
        Some(if expected == found {
            Ok(())
        } else {
            Err(DropReason::UdpChecksum { expected, found })
        })
    }

    /// The frame as the engine gets it.
    pub fn received(&self) -> Received<'a> {
        Received {
            addressing: Addressing {
                source: self.ip.source(),
                destination: self.ip.destination(),
                source_port: self.udp.source_port,
                traffic_class: self.ip.traffic_class(),
                hop_limit: self.ip.hop_limit(),
                flow_label: self.ip.flow_label(),
                vlan: self.vlan[0],
            },
            ip_header: Some(self.ip),
            cover: Some(self.icrc_cover()),
            body: self.body,
        }
    }
}

impl RawFrame<'_> {
    /// The frame ends before byte `need`: on the wire, or in what was kept of it.
    fn cut_at(&self, need: usize) -> DropReason {
        DropReason::Truncated { have: self.first.len(), need }
    }
}

/// The Ethertypes of VLAN tags: 802.1Q, 802.1ad and its two forerunners.
fn is_vlan(ether_type: EtherType) -> bool {
    matches!(ether_type.0, 0x8100 | 0x88a8 | 0x9100 | 0x9200)
}

/// The IPv4 header at `at`, and the length of what it carries.
fn parse_ipv4<'a>(raw: &RawFrame<'a>, at: usize) -> Result<(IpHeader<'a>, u16), DropReason> {
    let slice = raw.first.get(at..).unwrap_or_default();
    let bytes = slice.first_chunk::<20>().ok_or_else(|| raw.cut_at(at + 20))?;
    let (version, ihl) = (bytes[0] >> 4, bytes[0] & 0xf);
    if version != 4 {
        return Err(DropReason::IpVersion { version });
    }
    if ihl < 5 {
        return Err(DropReason::IpHeaderLength { ihl });
    }
    let protocol = bytes[9];
    if protocol != IpNumber::UDP.0 {
        return Err(DropReason::NotUdp { protocol });
    }
    let offset = u16::from_be_bytes([bytes[6], bytes[7]]) & 0x1fff;
    if offset != 0 {
        return Err(DropReason::LaterFragment);
    }
    check_port(slice, usize::from(ihl) * 4)?;
    if ihl > 5 {
        return Err(DropReason::IpOptions { ihl });
    }
    let header = Ipv4HeaderSlice::from_slice(bytes).map_err(|_| raw.cut_at(at + 20))?;
    if header.is_fragmenting_payload() {
        return Err(DropReason::IpFragment);
    }
    if Sum16BitWords::new().add_slice(bytes).ones_complement() != 0 {
        let mut unsummed = *bytes;
        unsummed[10..12].fill(0);
        let expected = Sum16BitWords::new().add_slice(&unsummed).ones_complement().to_be();
        return Err(DropReason::IpChecksum { expected, found: header.header_checksum() });
    }
    let payload = header.total_len().saturating_sub(20);
    Ok((IpHeader::V4(bytes), payload))
}

/// The IPv6 header at `at`, and the length of what it carries.
fn parse_ipv6<'a>(raw: &RawFrame<'a>, at: usize) -> Result<(IpHeader<'a>, u16), DropReason> {
    let slice = raw.first.get(at..).unwrap_or_default();
    let bytes = slice.first_chunk::<40>().ok_or_else(|| raw.cut_at(at + 40))?;
    let version = bytes[0] >> 4;
    if version != 6 {
        return Err(DropReason::IpVersion { version });
    }
    let header = Ipv6HeaderSlice::from_slice(bytes).map_err(|_| raw.cut_at(at + 40))?;
    let next = header.next_header();
    if next == IpNumber::UDP {
        return Ok((IpHeader::V6(bytes), header.payload_length()));
    }
    if !next.is_ipv6_ext_header_value() {
        return Err(DropReason::NotUdp { protocol: next.0 });
    }
    // Whose it is stands behind the extension headers.
    let mut behind = slice.get(40..).unwrap_or_default();
    let (mut number, mut fragment) = (next, false);
    while number.is_ipv6_ext_header_value() {
        let [following, len, high, low, ..] = *behind else {
            return Err(raw.cut_at(raw.first.len() + 1));
        };
        let bytes = match number {
            IpNumber::IPV6_FRAGMENTATION_HEADER => {
                if u16::from_be_bytes([high, low]) >> 3 != 0 {
                    return Err(DropReason::LaterFragment);
                }
                fragment |= low & 1 == 1;
                8
            }
            IpNumber::AUTHENTICATION_HEADER => (usize::from(len) + 2) * 4,
            _ => (usize::from(len) + 1) * 8,
        };
        behind = behind.get(bytes..).unwrap_or_default();
        number = IpNumber(following);
    }
    if number != IpNumber::UDP {
        return Err(DropReason::NotUdp { protocol: number.0 });
    }
    check_port(behind, 0)?;
    Err(if fragment {
        DropReason::IpFragment
    } else {
        DropReason::IpExtension { next_header: next.0 }
    })
}

/// Whether the UDP header at `at` has RoCE's port; if it is cut off nobody can tell.
fn check_port(slice: &[u8], at: usize) -> Result<(), DropReason> {
    match slice.get(at + 2..at + 4) {
        Some(&[high, low]) if u16::from_be_bytes([high, low]) != ROCE_PORT => {
            Err(DropReason::OtherUdpPort { port: u16::from_be_bytes([high, low]) })
        }
        _ => Ok(()),
    }
}

/// The UDP checksum over pseudo-header, header and packet. Never 0.
fn udp_checksum(ip: IpHeader<'_>, udp: Udp, pieces: [&[u8]; 2]) -> u16 {
    let mut sum = Sum16BitWords::new();
    sum = match ip {
        IpHeader::V4(bytes) => sum.add_slice(&bytes[12..20]),
        IpHeader::V6(bytes) => sum.add_slice(&bytes[8..40]),
    };
    sum = sum.add_2bytes([0, IpNumber::UDP.0]).add_2bytes(udp.len.to_be_bytes());
    sum = sum.add_slice(&Udp { checksum: 0, ..udp }.emit());
    let [first, second] = pieces;
    match (first.split_last(), second.split_first()) {
        // A word that lies across the two pieces.
        (Some((&high, first)), Some((&low, second))) if first.len() % 2 == 0 => {
            sum = sum.add_slice(first).add_2bytes([high, low]).add_slice(second);
        }
        _ => sum = sum.add_slice(first).add_slice(second),
    }
    sum.to_ones_complement_with_no_zero().to_be()
}

/// How a packet came: everything that the layers above need to know of link, IP and UDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addressing {
    /// The sender.
    pub source: IpAddr,
    /// The receiver: an address of ours, or a multicast group.
    pub destination: IpAddr,
    /// The sender's UDP port.
    pub source_port: u16,
    /// DSCP and ECN.
    pub traffic_class: TrafficClass,
    /// Time to live or hop limit as it arrived.
    pub hop_limit: u8,
    /// The flow label, 20 bits; 0 for IPv4.
    pub flow_label: u32,
    /// The outer VLAN tag.
    pub vlan: Option<VlanTag>,
}

impl Addressing {
    /// The path that the packet came on, in its own direction, with Ethernet addresses of zeros:
    /// [`FrameTemplate::icrc_cover`] of it is the cover of a packet whose headers a port does not
    /// see, if the identification is known. `None` when the addresses are of two families.
    pub fn path(&self) -> Option<Path> {
        Some(Path {
            ethernet: (MacAddress::default(), MacAddress::default()),
            vlan: self.vlan,
            ip: IpPair::new(self.source, self.destination)?,
            traffic_class: self.traffic_class,
            hop_limit: self.hop_limit,
            flow_label: self.flow_label,
            source_port: self.source_port,
        })
    }
}

/// A packet as a port hands it to the engine: how it was addressed, and its bytes from BTH to ICRC.
#[derive(Clone, Copy, Debug)]
pub struct Received<'a> {
    /// How it was addressed.
    pub addressing: Addressing,
    /// The IP header, which a datagram's receive buffer shows. `None` where a port does not see
    /// it; the engine then forms one from the addressing.
    pub ip_header: Option<IpHeader<'a>>,
    /// What the ICRC covers before the BTH; `None` where a port cannot know it, so that the ICRC
    /// cannot be verified.
    pub cover: Option<IcrcCover<'a>>,
    /// From BTH to ICRC.
    pub body: Body<'a>,
}

impl Received<'_> {
    /// Whether the ICRC is right; `None` when that cannot be known, because the cover or some of
    /// the bytes are not here.
    ///
    /// # Errors
    /// Those of [`icrc::check`].
    pub fn check_icrc(&self) -> Option<Result<(), DropReason>> {
        match (&self.cover, self.body) {
            (Some(cover), Body::Whole { .. }) => Some(icrc::check(cover, self.body)),
            _ => None,
        }
    }

    /// What a datagram's receive buffer begins with. Formed from the addressing when the IP header
    /// is not here, then with identification 0; `None` when even that is impossible: addresses of
    /// two families, or more bytes than IP can carry.
    pub fn grh(&self) -> Option<Grh> {
        match self.ip_header {
            Some(ip) => Some(Grh::new(ip)),
            None => {
                let template = FrameTemplate::new(&self.addressing.path()?);
                template.grh(u16::try_from(self.body.len()).ok()?, 0)
            }
        }
    }
}

/// Where frames of one path go: what is the same in each of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// Destination and source of the Ethernet header.
    pub ethernet: (MacAddress, MacAddress),
    /// The VLAN tag, if the path has one.
    pub vlan: Option<VlanTag>,
    /// Source and destination address, both of one family.
    pub ip: IpPair,
    /// DSCP and ECN.
    pub traffic_class: TrafficClass,
    /// Time to live or hop limit.
    pub hop_limit: u8,
    /// The flow label, 20 bits; IPv6 only.
    pub flow_label: u32,
    /// The UDP source port.
    pub source_port: u16,
}

/// Source and destination, of one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IpPair {
    /// IPv4.
    V4 {
        /// Where frames come from.
        source: Ipv4Addr,
        /// Where they go.
        destination: Ipv4Addr,
    },
    /// IPv6.
    V6 {
        /// Where frames come from.
        source: Ipv6Addr,
        /// Where they go.
        destination: Ipv6Addr,
    },
}

impl IpPair {
    /// The pair; `None` when the families differ.
    pub const fn new(source: IpAddr, destination: IpAddr) -> Option<Self> {
        match (source, destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => Some(Self::V4 { source, destination }),
            (IpAddr::V6(source), IpAddr::V6(destination)) => Some(Self::V6 { source, destination }),
            _ => None,
        }
    }
}

/// The headers before the BTH of every frame of one path, but for what a packet's length changes.
#[derive(Clone, Debug)]
pub struct FrameTemplate {
    bytes: [u8; Self::MAX],
    /// Where the IP header begins.
    ip_at: usize,
    /// Where the packet begins.
    len: usize,
    /// The ICRC over these headers, were the bytes that vary all zero.
    crc: u32,
    /// The IPv4 header's checksum, were the bytes that vary all zero; not complemented yet.
    sum: u16,
}

impl FrameTemplate {
    /// The most bytes before the BTH: Ethernet 14, VLAN 4, IPv6 40, UDP 8.
    pub const MAX: usize = 66;

    /// More than half of any.
    const HALF: usize = 33;

    /// Prepares the headers of a path.
    pub fn new(path: &Path) -> Self {
        let (destination, source) = path.ethernet;
        let network = match path.ip {
            IpPair::V4 { .. } => EtherType::IPV4,
            IpPair::V6 { .. } => EtherType::IPV6,
        };
        let mut template = Self { bytes: [0; Self::MAX], ip_at: 0, len: 0, crc: 0, sum: 0 };
        template.put(
            &Ethernet2Header {
                source: source.0,
                destination: destination.0,
                ether_type: if path.vlan.is_some() {
                    EtherType::VLAN_TAGGED_FRAME
                } else {
                    network
                },
            }
            .to_bytes(),
        );
        if let Some(tag) = path.vlan {
            let [t1, t0] = tag.0.to_be_bytes();
            let [e1, e0] = network.0.to_be_bytes();
            let header = SingleVlanHeader::from_bytes([t1, t0, e1, e0]);
            template.put(&header.to_bytes());
        }
        template.ip_at = template.len;
        match path.ip {
            IpPair::V4 { source, destination } => {
                let mut header = Ipv4Header {
                    time_to_live: path.hop_limit,
                    protocol: IpNumber::UDP,
                    dont_fragment: true,
                    source: source.octets(),
                    destination: destination.octets(),
                    ..Ipv4Header::default()
                }
                .to_bytes();
                header[1] = path.traffic_class.0;
                header[10..12].fill(0);
                header[2..4].fill(0);
                template.sum = !Sum16BitWords::new().add_slice(&header).ones_complement().to_be();
                template.put(&header);
            }
            IpPair::V6 { source, destination } => {
                let mut header = Ipv6Header {
                    next_header: IpNumber::UDP,
                    hop_limit: path.hop_limit,
                    source: source.octets(),
                    destination: destination.octets(),
                    ..Ipv6Header::default()
                }
                .to_bytes();
                let first =
                    6 << 28 | u32::from(path.traffic_class.0) << 20 | path.flow_label & 0x000f_ffff;
                header[..4].copy_from_slice(&first.to_be_bytes());
                template.put(&header);
            }
        }
        let udp = UdpHeader {
            source_port: path.source_port,
            destination_port: ROCE_PORT,
            ..UdpHeader::default()
        };
        template.put(&udp.to_bytes());
        let from_ip = &template.bytes[template.ip_at..template.len];
        let ip = match path.ip {
            IpPair::V4 { .. } => from_ip.first_chunk().map(IpHeader::V4),
            IpPair::V6 { .. } => from_ip.first_chunk().map(IpHeader::V6),
        };
        if let Some(ip) = ip {
            template.crc = IcrcCover::in_frame(ip, 0, from_ip).crc();
        }
        template
    }

    /// What the ICRC covers before the BTH of a packet of `packet_len` bytes from BTH to ICRC, for
    /// a port that takes packets without headers and forms the same ones itself. `None` when the
    /// packet is too long for IP.
    pub fn icrc_cover(&self, packet_len: u16, identification: u16) -> Option<IcrcCover<'static>> {
        Some(IcrcCover::hashed(self.crc_with(self.lengths(packet_len)?, identification)))
    }

    /// The lengths in the IP and the UDP header. `None` when the packet is too long.
    fn lengths(&self, packet_len: u16) -> Option<(u16, u16)> {
        let udp = packet_len.checked_add(8)?;
        Some((if self.is_ipv4() { udp.checked_add(20)? } else { udp }, udp))
    }

    /// The ICRC over these headers with what varies.
    fn crc_with(&self, (ip_len, udp_len): (u16, u16), identification: u16) -> u32 {
        let change = if self.is_ipv4() {
            V4_LENGTH.change(ip_len) ^ V4_IDENTIFICATION.change(identification)
        } else {
            V6_LENGTH.change(ip_len)
        };
        self.crc ^ change ^ UDP_LENGTH.change(udp_len)
    }

    /// The IP header of such a packet, as a datagram's receive buffer shows it. `None` when the
    /// packet is too long for IP.
    pub fn grh(&self, packet_len: u16, identification: u16) -> Option<Grh> {
        let mut room = [0; Self::MAX];
        self.write(packet_len, identification, &mut room)?;
        let ip = &room[self.ip_at..self.len - 8];
        let ip = if self.is_ipv4() {
            IpHeader::V4(ip.first_chunk()?)
        } else {
            IpHeader::V6(ip.first_chunk()?)
        };
        Some(Grh::new(ip))
    }

    const fn is_ipv4(&self) -> bool {
        self.len - self.ip_at == 28
    }

    fn put(&mut self, bytes: &[u8]) {
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    /// Bytes before the BTH.
    pub const fn headers_len(&self) -> usize {
        self.len
    }

    /// Writes the headers of a frame with `packet_len` bytes from BTH to ICRC to the front of
    /// `room`, and says what the ICRC covers of them. `identification` goes into an IPv4 header.
    /// `None` when `room` is too small or the packet too long for IP.
    pub fn write(
        &self,
        packet_len: u16,
        identification: u16,
        room: &mut [u8],
    ) -> Option<IcrcCover<'static>> {
        let (ip_len, udp_len) = self.lengths(packet_len)?;
        let room = room.get_mut(..self.len)?;
        // Two halves of fixed size that overlap: there is no shorter way to copy an odd number.
        *room.first_chunk_mut::<{ Self::HALF }>()? = *self.bytes.first_chunk()?;
        *room.last_chunk_mut::<{ Self::HALF }>()? = *self.bytes.get(..self.len)?.last_chunk()?;
        room.last_chunk_mut::<8>()?[4..6].copy_from_slice(&udp_len.to_be_bytes());
        let ip = room.get_mut(self.ip_at..)?.first_chunk_mut::<20>()?;
        if self.is_ipv4() {
            let sum = u32::from(self.sum) + u32::from(ip_len) + u32::from(identification);
            let sum = (sum & 0xffff) + (sum >> 16);
            let [.., sum1, sum0] = (!(sum + (sum >> 16))).to_be_bytes();
            ip[2..4].copy_from_slice(&ip_len.to_be_bytes());
            ip[4..6].copy_from_slice(&identification.to_be_bytes());
            ip[10..12].copy_from_slice(&[sum1, sum0]);
        } else {
            ip[4..6].copy_from_slice(&ip_len.to_be_bytes());
        }
        Some(IcrcCover::hashed(self.crc_with((ip_len, udp_len), identification)))
    }
}

/// Where the fields that vary stand before the BTH, in bytes.
static V4_LENGTH: Word = Word::new(26);
static V4_IDENTIFICATION: Word = Word::new(24);
static V6_LENGTH: Word = Word::new(44);
static UDP_LENGTH: Word = Word::new(4);
