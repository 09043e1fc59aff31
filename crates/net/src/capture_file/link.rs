//! What packets begin with: link types, and how their headers are taken off.
//!
//! Numbers are those of the tcpdump group's registry (LINKTYPE_…).

use std::fmt;

use roxe_wire::Start;

use super::Direction;

/// What the packets of an interface begin with, as the capture numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LinkType(pub u16);

impl LinkType {
    /// Ethernet frames.
    pub const ETHERNET: Self = Self(1);
    /// IPv4 or IPv6 without a link header.
    pub const RAW: Self = Self(101);
    /// Linux "cooked" capture, version 1: the `any` interface.
    pub const LINUX_SLL: Self = Self(113);
    /// Records of Endace cards.
    pub const ERF: Self = Self(197);
    /// IPv4 without a link header.
    pub const IPV4: Self = Self(228);
    /// IPv6 without a link header.
    pub const IPV6: Self = Self(229);
    /// Linux "cooked" capture, version 2.
    pub const LINUX_SLL2: Self = Self(276);

    /// What it is called. `None` for what is rarely met.
    pub fn name(self) -> Option<&'static str> {
        NAMES.iter().find(|(code, _)| *code == self.0).map(|(_, name)| *name)
    }

    /// Whether packets that begin so can be read.
    pub fn is_supported(self) -> bool {
        self.framing() != Framing::Unknown
    }

    pub(super) fn framing(self) -> Framing {
        match self {
            Self::ETHERNET => Framing::Ethernet,
            // LINKTYPE_RAW, and the two values DLT_RAW has on other systems.
            Self::RAW | Self(12) | Self(14) | Self::IPV4 | Self::IPV6 => Framing::Ip,
            Self::LINUX_SLL => Framing::Sll,
            Self::LINUX_SLL2 => Framing::Sll2,
            Self::ERF => Framing::Erf,
            _ => Framing::Unknown,
        }
    }
}

impl fmt::Display for LinkType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{name} (link type {})", self.0),
            None => write!(f, "link type {}", self.0),
        }
    }
}

/// How to take off what packets begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    Ethernet,
    Ip,
    Sll,
    Sll2,
    Erf,
    Unknown,
}

/// What is left of a packet without the capture's own link header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stripped {
    pub(super) start: Start,
    /// Bytes to leave out at the front.
    pub(super) skip: usize,
    /// Bytes that were captured behind them.
    pub(super) len: usize,
    /// Bytes that were on the wire behind them; `len` or more.
    pub(super) wire_len: u32,
    /// Which way the link header says it went.
    pub(super) direction: Option<Direction>,
}

impl Framing {
    /// Takes the link header off a packet of which `packet` was captured and `wire_len` bytes were
    /// there. `None` when what is behind it cannot be understood.
    #[inline]
    pub(super) fn strip(self, packet: &[u8], wire_len: u32) -> Option<Stripped> {
        match self {
            Self::Ethernet => Some(Stripped::behind(0, Start::Ethernet, packet, wire_len)),
            Self::Ip => Some(Stripped::behind(0, Start::Ip, packet, wire_len)),
            Self::Sll => strip_sll(packet, wire_len),
            Self::Sll2 => strip_sll2(packet, wire_len),
            Self::Erf => strip_erf(packet),
            Self::Unknown => None,
        }
    }
}

impl Stripped {
    /// `skip` bytes of link header, which must have been captured, then `start`.
    #[inline]
    fn behind(skip: usize, start: Start, packet: &[u8], wire_len: u32) -> Self {
        let len = packet.len() - skip;
        let wire_len = wire_len.saturating_sub(skip as u32).max(len as u32);
        Self { start, skip, len, wire_len, direction: None }
    }
}

/// Linux cooked capture, version 1, big endian whatever the file is. 16 bytes.
///   | packet type (16) | ARPHRD (16) | address length (16) | address (64) | EtherType (16) |
fn strip_sll(packet: &[u8], wire_len: u32) -> Option<Stripped> {
    let header: &[u8; 16] = packet.first_chunk()?;
    let [_, packet_type, arphrd_1, arphrd_0, .., protocol_1, protocol_0] = *header;
    let arphrd = u16::from_be_bytes([arphrd_1, arphrd_0]);
    let protocol = u16::from_be_bytes([protocol_1, protocol_0]);
    let start = cooked_start(arphrd, protocol)?;
    let direction = cooked_direction(packet_type);
    Some(Stripped { direction, ..Stripped::behind(16, start, packet, wire_len) })
}

/// Linux cooked capture, version 2, big endian whatever the file is. 20 bytes.
///   | EtherType (16) | reserved (16) | interface (32) | ARPHRD (16) | packet type (8) |
///   | address length (8) | address (64) |
fn strip_sll2(packet: &[u8], wire_len: u32) -> Option<Stripped> {
    let header: &[u8; 20] = packet.first_chunk()?;
    let [protocol_1, protocol_0, _, _, _, _, _, _, arphrd_1, arphrd_0, packet_type, ..] = *header;
    let arphrd = u16::from_be_bytes([arphrd_1, arphrd_0]);
    let protocol = u16::from_be_bytes([protocol_1, protocol_0]);
    let start = cooked_start(arphrd, protocol)?;
    let direction = cooked_direction(packet_type);
    Some(Stripped { direction, ..Stripped::behind(20, start, packet, wire_len) })
}

/// On most devices the protocol field is an EtherType. On some it is something else.
fn cooked_start(arphrd: u16, protocol: u16) -> Option<Start> {
    const FRAME_RELAY: u16 = 770;
    const IEEE80211_RADIOTAP: u16 = 803;
    const NETLINK: u16 = 824;
    /// Below are numbers for frames without an EtherType.
    const FIRST_ETHER_TYPE: u16 = 0x0600;
    match arphrd {
        FRAME_RELAY | IEEE80211_RADIOTAP | NETLINK => None,
        _ if protocol < FIRST_ETHER_TYPE => None,
        _ => Some(Start::EtherType(protocol)),
    }
}

fn cooked_direction(packet_type: u8) -> Option<Direction> {
    match packet_type {
        // To us, by broadcast, by multicast.
        0..=2 => Some(Direction::Inbound),
        4 => Some(Direction::Outbound),
        // From somebody else to somebody else.
        _ => None,
    }
}

/// Extensible record format: what an Endace card writes before each packet. 16 bytes and more.
///   | time (64, little endian, 2^-32 s) | type (8) | flags (8) | record length (16) |
///   | loss or color (16) | wire length (16) |
/// (The file's own time is used, as Wireshark does: it is the same, and not in binary fractions.)
/// Then, if the top bit of the type is set, extension headers of 8 bytes, each with the top bit of
/// its first byte set if another follows. Then, for Ethernet, two bytes of padding.
fn strip_erf(packet: &[u8]) -> Option<Stripped> {
    const MORE: u8 = 0x80;
    let (header, mut rest) = packet.split_first_chunk::<16>()?;
    let [.., kind, _, _, _, _, _, wire_len_1, wire_len_0] = *header;
    let mut extended = kind;
    while extended & MORE != 0 {
        let (extension, behind) = rest.split_first_chunk::<8>()?;
        extended = extension[0];
        rest = behind;
    }
    let (start, padding) = match kind & !MORE {
        // ETH, COLOR_ETH, DSM_COLOR_ETH, COLOR_HASH_ETH
        2 | 11 | 16 | 20 => (Start::Ethernet, 2),
        // IPV4, IPV6
        22 | 23 => (Start::Ip, 0),
        _ => return None,
    };
    rest = rest.get(padding..)?;
    // Records are padded to a multiple of eight; what is behind the packet is not the packet's.
    let wire_len = u16::from_be_bytes([wire_len_1, wire_len_0]);
    let len = rest.len().min(wire_len.into());
    Some(Stripped {
        start,
        skip: packet.len() - rest.len(),
        len,
        wire_len: wire_len.into(),
        direction: None,
    })
}

#[rustfmt::skip]
const NAMES: &[(u16, &str)] = &[
    (0,   "BSD loopback"),
    (1,   "Ethernet"),
    (6,   "Token Ring"),
    (8,   "SLIP"),
    (9,   "PPP"),
    (12,  "raw IP"),
    (14,  "raw IP"),
    (50,  "PPP in HDLC framing"),
    (101, "raw IP"),
    (104, "Cisco HDLC"),
    (105, "IEEE 802.11"),
    (107, "Frame Relay"),
    (108, "OpenBSD loopback"),
    (113, "Linux cooked v1"),
    (119, "IEEE 802.11 with Prism header"),
    (127, "IEEE 802.11 with radiotap header"),
    (143, "DOCSIS"),
    (187, "Bluetooth HCI H4"),
    (189, "Linux USB"),
    (195, "IEEE 802.15.4"),
    (197, "ERF"),
    (201, "Bluetooth HCI H4 with direction"),
    (220, "Linux USB, padded"),
    (227, "SocketCAN"),
    (228, "raw IPv4"),
    (229, "raw IPv6"),
    (239, "Linux netfilter log"),
    (240, "netANALYZER"),
    (247, "InfiniBand"),
    (249, "USBPcap"),
    (251, "Bluetooth low energy"),
    (253, "Linux netlink"),
    (276, "Linux cooked v2"),
];

#[cfg(test)]
mod tests;
