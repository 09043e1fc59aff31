//! What stands before the packet of a frame that may be broken.

use core::net::IpAddr;

use etherparse::EtherType;

use super::link::is_vlan;
use super::{ROCE_PORT, RawFrame, Start, TrafficClass, VlanTag};

/// What stands before the packet of a frame that was meant to be RoCEv2: its UDP port says so.
///
/// For frames that [`Frame::parse`](super::Frame::parse) refuses, so that those to the port can be
/// told from all others, and shown. Lengths, checksums and whatever else RoCEv2 does not allow are
/// not looked at. Of a frame that can be parsed it is the same as there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outline {
    /// VLAN tags, outer first; further ones are left out.
    pub vlan: [Option<VlanTag>; 2],
    /// Where the packet comes from.
    pub source: IpAddr,
    /// Where it goes.
    pub destination: IpAddr,
    /// Type of service or traffic class.
    pub traffic_class: TrafficClass,
    /// Time to live or hop limit.
    pub hop_limit: u8,
    /// IPv4's identification; 0 for IPv6.
    pub identification: u16,
    /// Of the UDP header.
    pub source_port: u16,
    /// Where the IP header begins, in bytes from the start of the frame.
    pub ip_at: usize,
    /// Where the packet begins: behind options, extension headers and UDP. The frame may end
    /// before.
    pub packet_at: usize,
}

/// The protocol number of UDP.
const UDP: u8 = 17;

impl Outline {
    /// The outline of a frame to port 4791. `None` for all others, and where the port is not here:
    /// in a later fragment, behind something encrypted, or behind where the frame was cut.
    pub fn of(raw: RawFrame<'_>) -> Option<Self> {
        let bytes = raw.first;
        let two = |at: usize| Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]));
        let (mut ip_at, mut ether_type) = match raw.start {
            Start::Ethernet => (14, Some(two(12)?)),
            Start::EtherType(ether_type) => (0, Some(ether_type)),
            Start::Ip => (0, None),
        };
        let mut vlan = [None; 2];
        let mut tags = vlan.iter_mut();
        while ether_type.is_some_and(|it| is_vlan(EtherType(it))) {
            if let Some(place) = tags.next() {
                *place = Some(VlanTag(two(ip_at)?));
            }
            ether_type = Some(two(ip_at + 2)?);
            ip_at += 4;
        }
        if !matches!(ether_type, None | Some(0x0800 | 0x86dd)) {
            return None;
        }
        let ip = bytes.get(ip_at..)?;
        let is_v4 = match ip.first()? >> 4 {
            4 => true,
            6 => false,
            _ => return None,
        };
        let udp_at = ip_at + if is_v4 { behind_ipv4(ip)? } else { behind_ipv6(ip)? };
        if two(udp_at + 2)? != ROCE_PORT {
            return None;
        }
        let v4 = |at: usize| Some(IpAddr::from(*ip.get(at..)?.first_chunk::<4>()?));
        let v6 = |at: usize| Some(IpAddr::from(*ip.get(at..)?.first_chunk::<16>()?));
        Some(Self {
            vlan,
            source: if is_v4 { v4(12)? } else { v6(8)? },
            destination: if is_v4 { v4(16)? } else { v6(24)? },
            traffic_class: TrafficClass(if is_v4 {
                *ip.get(1)?
            } else {
                ip.first()? << 4 | ip.get(1)? >> 4
            }),
            hop_limit: *ip.get(if is_v4 { 8 } else { 7 })?,
            identification: if is_v4 { two(ip_at + 4)? } else { 0 },
            source_port: two(udp_at)?,
            ip_at,
            packet_at: udp_at + 8,
        })
    }
}

/// Where UDP begins behind an IPv4 header; of fragments only the first has it.
fn behind_ipv4(ip: &[u8]) -> Option<usize> {
    let is_later = (ip.get(6)? & 0x1f, *ip.get(7)?) != (0, 0);
    // Never less than a whole header, whatever it says of itself.
    let len = usize::from(ip.first()? & 0xf).max(5) * 4;
    (*ip.get(9)? == UDP && !is_later).then_some(len)
}

/// Where UDP begins behind an IPv6 header and its extension headers.
fn behind_ipv6(ip: &[u8]) -> Option<usize> {
    let (mut next, mut at) = (*ip.get(6)?, 40);
    loop {
        let len = match next {
            UDP => return Some(at),
            // Hop by hop, routing, destination options, mobility, HIP, shim6.
            0 | 43 | 60 | 135 | 139 | 140 => (usize::from(*ip.get(at + 1)?) + 1) * 8,
            // Authentication.
            51 => (usize::from(*ip.get(at + 1)?) + 2) * 4,
            // A fragment: the first.
            44 if (*ip.get(at + 2)?, ip.get(at + 3)? & 0xf8) == (0, 0) => 8,
            _ => return None,
        };
        next = *ip.get(at)?;
        at += len;
    }
}
