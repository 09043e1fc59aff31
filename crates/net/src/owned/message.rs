//! Single messages of ARP, neighbour discovery and ICMP: those that smoltcp does not write, and
//! what has to be known of one before smoltcp gets it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use roxe_wire::MacAddress;
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{
    ArpOperation, ArpPacket, ArpRepr, EthernetAddress, EthernetFrame, EthernetProtocol,
    EthernetRepr, Icmpv4Packet, Icmpv6Message, Icmpv6Packet, Icmpv6Repr, IpProtocol, Ipv4Packet,
    Ipv4Repr, Ipv6Packet, Ipv6Repr, NdiscNeighborFlags, NdiscRepr, RawHardwareAddress,
};

use super::Own;

/// What a message means for the addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Said {
    /// Nothing: smoltcp knows what to do.
    Ordinary,
    /// That somebody is where he is.
    Answer,
    /// Somebody says that an address is his.
    Rival(IpAddr, MacAddress),
    /// Somebody wants an address, and asks whether it is taken.
    Probe(IpAddr, EthernetAddress),
}

/// A message that is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;

impl From<smoltcp::wire::Error> for Malformed {
    fn from(_: smoltcp::wire::Error) -> Self {
        Self
    }
}

/// Whether a frame, whose MACs are these, is of a kind that is looked at here.
pub(super) fn is_ours(macs: &[u8], rest: &[u8]) -> bool {
    match rest.get(..2) {
        _ if macs.len() != 12 => false,
        Some([0x08, 0x06]) => true,
        Some([0x08, 0x00]) => rest.get(11) == Some(&u8::from(IpProtocol::Icmp)),
        Some([0x86, 0xdd]) => rest.get(8) == Some(&u8::from(IpProtocol::Icmpv6)),
        _ => false,
    }
}

/// Whether a frame that smoltcp wrote is a datagram to the discard port.
pub(super) fn is_to_discard(frame: &[u8]) -> bool {
    let [protocol, port] = match frame.get(12..14) {
        Some([0x08, 0x00]) => [23, 36],
        Some([0x86, 0xdd]) => [20, 56],
        _ => return false,
    };
    frame.get(protocol) == Some(&u8::from(IpProtocol::Udp))
        && frame.get(port..port + 2) == Some(&DISCARD_PORT.to_be_bytes())
}

/// Reads a message, to its end, as far as it says anything of addresses.
pub(super) fn read(frame: &[u8], own: &Own, mac: EthernetAddress) -> Result<Said, Malformed> {
    let frame = EthernetFrame::new_checked(frame)?;
    if frame.src_addr() == mac {
        return Ok(Said::Ordinary);
    }
    match frame.ethertype() {
        EthernetProtocol::Arp => read_arp(frame.payload(), own),
        EthernetProtocol::Ipv4 => {
            let packet = Ipv4Packet::new_checked(frame.payload())?;
            Ipv4Repr::parse(&packet, &ChecksumCapabilities::default())?;
            let icmp = Icmpv4Packet::new_checked(packet.payload())?;
            if icmp.verify_checksum() { Ok(Said::Ordinary) } else { Err(Malformed) }
        }
        _ => read_ipv6(frame.payload(), frame.src_addr(), own),
    }
}

fn read_arp(bytes: &[u8], own: &Own) -> Result<Said, Malformed> {
    let ArpRepr::EthernetIpv4 {
        operation,
        source_hardware_addr: sender_mac,
        source_protocol_addr: sender,
        target_protocol_addr: target,
        ..
    } = ArpRepr::parse(&ArpPacket::new_checked(bytes)?)?
    else {
        return Err(Malformed);
    };
    if !matches!(operation, ArpOperation::Request | ArpOperation::Reply) || !sender_mac.is_unicast()
    {
        return Err(Malformed);
    }
    Ok(if own.has(sender.into()) {
        Said::Rival(sender.into(), MacAddress(sender_mac.0))
    } else if sender.is_unspecified() && own.has(target.into()) {
        Said::Probe(target.into(), sender_mac)
    } else if operation == ArpOperation::Reply {
        Said::Answer
    } else {
        Said::Ordinary
    })
}

fn read_ipv6(bytes: &[u8], from: EthernetAddress, own: &Own) -> Result<Said, Malformed> {
    let packet = Ipv6Packet::new_checked(bytes)?;
    let ip = Ipv6Repr::parse(&packet)?;
    let icmp = Icmpv6Packet::new_checked(packet.payload())?;
    if !icmp.verify_checksum(&ip.src_addr, &ip.dst_addr) {
        return Err(Malformed);
    }
    let is_about_neighbors =
        matches!(icmp.msg_type(), Icmpv6Message::NeighborSolicit | Icmpv6Message::NeighborAdvert);
    if !is_about_neighbors {
        return Ok(Said::Ordinary);
    }
    // One that came through a router is forged: RFC 4861, section 7.1.
    if ip.hop_limit != 255 {
        return Err(Malformed);
    }
    let checks = ChecksumCapabilities::default();
    let repr = Icmpv6Repr::parse(&ip.src_addr, &ip.dst_addr, &icmp, &checks)?;
    Ok(match repr {
        Icmpv6Repr::Ndisc(NdiscRepr::NeighborAdvert { target_addr, .. }) => {
            if own.has(target_addr.into()) {
                Said::Rival(target_addr.into(), MacAddress(from.0))
            } else {
                Said::Answer
            }
        }
        Icmpv6Repr::Ndisc(NdiscRepr::NeighborSolicit { target_addr, .. })
            if ip.src_addr.is_unspecified() && own.has(target_addr.into()) =>
        {
            Said::Probe(target_addr.into(), from)
        }
        _ => Said::Ordinary,
    })
}

/// Asks whether somebody has the address: RFC 5227, section 2.1.1; RFC 4862, section 5.4.2.
pub(super) fn probe(address: IpAddr, mac: EthernetAddress) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => {
            let none = (EthernetAddress([0; 6]), Ipv4Addr::UNSPECIFIED);
            let sender = (mac, none.1);
            arp(mac, ArpOperation::Request, sender, (none.0, address), EthernetAddress::BROADCAST)
        }
        IpAddr::V6(address) => {
            let [.., a, b, c] = address.octets();
            let [high, low] = [0xff00 | u16::from(a), u16::from_be_bytes([b, c])];
            let group = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, high, low);
            let solicit = NdiscRepr::NeighborSolicit { target_addr: address, lladdr: None };
            ndisc(mac, Ipv6Addr::UNSPECIFIED, group, solicit)
        }
    }
}

/// Tells all neighbours that the address is here: RFC 5227, section 2.3; RFC 4861, section 7.2.6.
pub(super) fn announcement(address: IpAddr, mac: EthernetAddress) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => {
            let (sender, target) = ((mac, address), (EthernetAddress([0; 6]), address));
            arp(mac, ArpOperation::Request, sender, target, EthernetAddress::BROADCAST)
        }
        IpAddr::V6(address) => {
            let advert = NdiscRepr::NeighborAdvert {
                flags: NdiscNeighborFlags::OVERRIDE,
                target_addr: address,
                lladdr: Some(RawHardwareAddress::from(mac)),
            };
            ndisc(mac, address, ALL_NODES, advert)
        }
    }
}

/// Tells who wants the address that it is taken. (smoltcp answers only those who have an address.)
pub(super) fn defense(address: IpAddr, mac: EthernetAddress, asker: EthernetAddress) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => {
            let target = (asker, Ipv4Addr::UNSPECIFIED);
            arp(mac, ArpOperation::Reply, (mac, address), target, asker)
        }
        IpAddr::V6(_) => announcement(address, mac),
    }
}

fn arp(
    from: EthernetAddress,
    operation: ArpOperation,
    (source_hardware_addr, source_protocol_addr): (EthernetAddress, Ipv4Addr),
    (target_hardware_addr, target_protocol_addr): (EthernetAddress, Ipv4Addr),
    to: EthernetAddress,
) -> Vec<u8> {
    let repr = ArpRepr::EthernetIpv4 {
        operation,
        source_hardware_addr,
        source_protocol_addr,
        target_hardware_addr,
        target_protocol_addr,
    };
    ethernet(from, to, EthernetProtocol::Arp, repr.buffer_len(), |bytes| {
        repr.emit(&mut ArpPacket::new_unchecked(bytes));
    })
}

fn ndisc(
    from: EthernetAddress,
    source: Ipv6Addr,
    group: Ipv6Addr,
    message: NdiscRepr<'_>,
) -> Vec<u8> {
    let repr = Icmpv6Repr::Ndisc(message);
    let ip = Ipv6Repr {
        src_addr: source,
        dst_addr: group,
        next_header: IpProtocol::Icmpv6,
        payload_len: repr.buffer_len(),
        hop_limit: 255,
    };
    let [.., a, b, c, d] = group.octets();
    let to = EthernetAddress([0x33, 0x33, a, b, c, d]);
    let len = ip.buffer_len() + repr.buffer_len();
    ethernet(from, to, EthernetProtocol::Ipv6, len, |bytes| {
        ip.emit(&mut Ipv6Packet::new_unchecked(&mut *bytes));
        let icmp = &mut bytes[ip.buffer_len()..];
        let checks = ChecksumCapabilities::default();
        repr.emit(&source, &group, &mut Icmpv6Packet::new_unchecked(icmp), &checks);
    })
}

fn ethernet(
    src_addr: EthernetAddress,
    dst_addr: EthernetAddress,
    ethertype: EthernetProtocol,
    len: usize,
    write: impl FnOnce(&mut [u8]),
) -> Vec<u8> {
    let repr = EthernetRepr { src_addr, dst_addr, ethertype };
    let mut frame = vec![0; (repr.buffer_len() + len).max(SHORTEST)];
    repr.emit(&mut EthernetFrame::new_unchecked(&mut frame));
    write(&mut frame[repr.buffer_len()..][..len]);
    frame
}

/// Whoever listens there throws away what comes.
pub(super) const DISCARD_PORT: u16 = 9;

const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// Bytes that a frame has at least, without its check sequence.
const SHORTEST: usize = 60;
