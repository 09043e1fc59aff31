//! A path's headers made ready, so that a port frames a packet with one copy and a few bytes.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use etherparse::checksum::Sum16BitWords;
use etherparse::{
    EtherType, Ethernet2Header, IpNumber, Ipv4Header, Ipv6Header, SingleVlanHeader, UdpHeader,
};

use super::ip::{IpHeader, TrafficClass};
use super::link::{MacAddress, VlanTag};
use super::udp::ROCE_PORT;
use crate::icrc::Word;
use crate::{Grh, IcrcCover};

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

    /// Half of the most; all have at least so many.
    const HALF: usize = Self::MAX.div_ceil(2);

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
                template.sum = sum(&header);
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

    /// The IP header, with what varies zero: for a port that gives the kernel its fields.
    pub fn ip_header(&self) -> IpHeader<'_> {
        let from_ip = &self.bytes[self.ip_at..];
        if self.is_ipv4() {
            IpHeader::V4(from_ip.first_chunk().unwrap_or(&[0; 20]))
        } else {
            IpHeader::V6(from_ip.first_chunk().unwrap_or(&[0; 40]))
        }
    }

    /// These headers with another UDP source port: for a port that sends from just one.
    #[must_use]
    pub fn with_source_port(&self, source_port: u16) -> Self {
        let mut changed = self.clone();
        if let Some(place) = changed.bytes.get_mut(self.len - 8..self.len - 6) {
            let change = u16::from_be_bytes([place[0], place[1]]) ^ source_port;
            place.copy_from_slice(&source_port.to_be_bytes());
            changed.crc ^= UDP_SOURCE_PORT.change(change);
        }
        changed
    }

    /// These headers with another traffic class, which the ICRC does not cover.
    #[must_use]
    pub fn with_traffic_class(&self, traffic_class: TrafficClass) -> Self {
        let mut changed = self.clone();
        let from_ip = &mut changed.bytes[self.ip_at..];
        if self.is_ipv4() {
            from_ip[1] = traffic_class.0;
            changed.sum = sum(&from_ip[..20]);
        } else {
            from_ip[0] = 6 << 4 | traffic_class.0 >> 4;
            from_ip[1] = from_ip[1] & 0x0f | traffic_class.0 << 4;
        }
        changed
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

/// The sum of an IPv4 header whose checksum is zero, not complemented.
fn sum(header: &[u8]) -> u16 {
    !Sum16BitWords::new().add_slice(header).ones_complement().to_be()
}

/// Where the fields that vary stand before the BTH, in bytes.
static V4_LENGTH: Word = Word::new(26);
static V4_IDENTIFICATION: Word = Word::new(24);
static V6_LENGTH: Word = Word::new(44);
static UDP_SOURCE_PORT: Word = Word::new(8);
static UDP_LENGTH: Word = Word::new(4);
