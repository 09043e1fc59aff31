//! A whole frame: link, IP and UDP headers around a packet.
//!
//! Annex A17 of IBA vol 1. Read with etherparse. Below `net` nobody sees what stands here: a port
//! takes a frame apart into [`Received`], and frames what the device sends with a
//! [`FrameTemplate`].

mod ip;
mod link;
mod outline;
mod received;
mod template;
mod udp;

use etherparse::{EtherType, SingleVlanHeaderSlice, UdpHeaderSlice};

use crate::{Body, DropReason, IcrcCover};

use ip::{parse_ipv4, parse_ipv6};
use link::is_vlan;
use udp::udp_checksum;

pub use ip::{Ecn, IpHeader, TrafficClass};
pub use link::{MacAddress, VlanTag};
pub use outline::Outline;
pub use received::{Addressing, Received};
pub use template::{FrameTemplate, IpPair, Path};
pub use udp::{ROCE_PORT, Udp};

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
    //= F05, F07, BC-005, 01-1.1, 01-1.2
    #[inline(always)] // What it finds stays in registers.
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
    //= F04, BC-010, 01-1.5
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
