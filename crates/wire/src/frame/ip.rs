//! IP headers, version 4 and 6: what they say, and which of them a RoCEv2 frame may have.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use etherparse::checksum::Sum16BitWords;
use etherparse::{IpNumber, Ipv4HeaderSlice, Ipv6HeaderSlice};

use super::RawFrame;
use super::udp::check_port;
use crate::DropReason;

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

/// The IPv4 header at `at`, and the length of what it carries.
//= F07, 01-1.3
#[inline(always)] // With its caller.
pub(super) fn parse_ipv4<'a>(
    raw: &RawFrame<'a>,
    at: usize,
) -> Result<(IpHeader<'a>, u16), DropReason> {
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
//= BC-014, 01-1.4
pub(super) fn parse_ipv6<'a>(
    raw: &RawFrame<'a>,
    at: usize,
) -> Result<(IpHeader<'a>, u16), DropReason> {
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
    if !is_extension(next) {
        return Err(DropReason::NotUdp { protocol: next.0 });
    }
    // Whose it is stands behind the extension headers.
    let mut behind = slice.get(40..).unwrap_or_default();
    let (mut number, mut fragment) = (next, false);
    while is_extension(number) {
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

/// Whether the header behind one of this kind can be found. Behind ESP nothing can be read.
fn is_extension(number: IpNumber) -> bool {
    number.is_ipv6_ext_header_value() && number != IpNumber::ENCAPSULATING_SECURITY_PAYLOAD
}
