//! One frame as the observer sees it: what stands around its packet, and whether it is whole.

use std::net::IpAddr;

use roxe_wire::{DropReason, Frame, Packet, TrafficClass};

use crate::{Finding, Rule};

/// One frame as it was seen: all of it that matters, without its bytes.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// Its number, ascending: notes refer to it.
    pub number: u64,
    /// When it was seen, in nanoseconds since whenever; 0 for all where nobody knows.
    pub time_ns: u64,
    /// What stands around its packet.
    pub outside: &'a Outside,
    /// Its packet. Payload is only looked into where it is a management datagram. Of a packet that
    /// the capture cut, headers may be missing ([`Packet::parse_start`]): nothing is concluded from
    /// that.
    pub packet: &'a Packet<'a>,
    /// Whether its ICRC is right. A frame with a bad one is judged no further.
    pub icrc: IcrcVerdict,
}

/// What the headers before a packet, and the ICRC behind it, say.
#[derive(Clone, Copy, Debug)]
pub struct Outside {
    /// IP source address.
    pub source: IpAddr,
    /// IP destination address.
    pub destination: IpAddr,
    /// Of IPv4; 0 for IPv6.
    pub identification: u16,
    /// DSCP and ECN.
    pub traffic_class: TrafficClass,
    /// UDP source port.
    pub source_port: u16,
    /// What is wrong with the UDP checksum. One that the sender's adapter completes behind the
    /// point of capture is not.
    pub udp_checksum: Option<WrongChecksum>,
    /// The ICRC that the packet carries, if its bytes are there.
    pub icrc: Option<u32>,
}

impl Outside {
    /// Of this frame. Inlined: a caller that moves it just after it was written, in other pieces,
    /// waits for all of it.
    #[inline(always)]
    pub fn of(frame: &Frame<'_>) -> Self {
        let udp_checksum = match frame.check_udp_checksum() {
            Some(Err(DropReason::UdpChecksum { expected, found }))
                if !is_left_to_the_adapter(frame) =>
            {
                Some(WrongChecksum { expected, found })
            }
            _ => None,
        };
        Self {
            source: frame.ip.source(),
            destination: frame.ip.destination(),
            identification: frame.ip.identification(),
            traffic_class: frame.ip.traffic_class(),
            source_port: frame.udp.source_port,
            udp_checksum,
            icrc: frame.body.icrc(),
        }
    }
}

/// A UDP checksum that is not over what it stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrongChecksum {
    /// What the bytes give.
    pub expected: u16,
    /// What the header carries.
    pub found: u16,
}

/// What became of the ICRC check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IcrcVerdict {
    /// It is right.
    Good,
    /// It is wrong.
    Bad {
        /// What the bytes give.
        expected: u32,
        /// What the packet carries.
        found: u32,
    },
    /// The bytes are not all here.
    Unknown,
}

impl IcrcVerdict {
    /// The verdict on a frame.
    pub fn of(frame: &Frame<'_>) -> Self {
        match roxe_wire::icrc::check(&frame.icrc_cover(), frame.body) {
            Ok(()) => Self::Good,
            Err(DropReason::IcrcMismatch { expected, found }) => Self::Bad { expected, found },
            Err(_) => Self::Unknown,
        }
    }

    /// The broken rule, if it is wrong.
    pub fn finding(&self) -> Option<Finding> {
        let &Self::Bad { expected, found } = self else { return None };
        Some(Finding {
            rule: Rule::Icrc,
            seen: format!("0x{found:08x}"),
            expected: format!("0x{expected:08x}"),
        })
    }
}

/// Whether a UDP checksum is that over the pseudo-header alone: the sender's adapter completes it
/// behind the point of capture.
fn is_left_to_the_adapter(frame: &Frame<'_>) -> bool {
    let words = |octets: &[u8]| -> u32 {
        octets.chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum()
    };
    let address = |address: IpAddr| match address {
        IpAddr::V4(v4) => words(&v4.octets()),
        IpAddr::V6(v6) => words(&v6.octets()),
    };
    const UDP: u32 = 17;
    let mut sum = address(frame.ip.source())
        + address(frame.ip.destination())
        + UDP
        + u32::from(frame.udp.len);
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    u32::from(frame.udp.checksum) == sum
}
