//! What one frame keeps or breaks by itself, whatever was before it.

use roxe_wire::opcode::{Operation, PayloadRule, Service};
use roxe_wire::{MAX_MESSAGE_LEN, Packet, Psn, Qpn};

use crate::{Finding, Outside, Rule, Seen, WrongChecksum};

pub(crate) fn check_udp_checksum(outside: &Outside) -> Option<Finding> {
    let WrongChecksum { expected, found } = outside.udp_checksum?;
    Some(Finding {
        rule: Rule::UdpChecksum,
        seen: format!("0x{found:04x}"),
        expected: format!("0x{expected:04x} or 0"),
    })
}

/// A multicast address goes with the queue pair of groups, and both with datagrams only.
pub(crate) fn check_group(seen: &Seen<'_>) -> Option<Finding> {
    let destination = seen.outside.destination;
    let dest_qp = seen.packet.headers.bth.dest_qp;
    let is_datagram = seen.packet.opcode.service == Service::Ud;
    let (group, group_qp) = (destination.is_multicast(), dest_qp == Qpn::MULTICAST);
    let is_right = if is_datagram { group == group_qp } else { !group && !group_qp };
    (!is_right).then(|| Finding {
        rule: Rule::Destination,
        seen: format!("QP {dest_qp} at {destination}"),
        expected: if is_datagram {
            "QP 0xffffff with a multicast address, and only there"
        } else {
            "one queue pair of one host"
        }
        .to_owned(),
    })
}

pub(crate) fn check_subnet_management(packet: &Packet<'_>) -> Option<Finding> {
    (packet.headers.bth.dest_qp == Qpn::SMI).then(|| Finding {
        rule: Rule::Destination,
        seen: "QP 0".to_owned(),
        expected: "another QP: RoCE has no subnet management".to_owned(),
    })
}

/// A payload that no path MTU makes right.
pub(crate) fn check_payload_length(packet: &Packet<'_>) -> Option<Finding> {
    let (opcode, len) = (packet.opcode, packet.payload.len());
    (!opcode.payload.allows_for_some_mtu(len)).then(|| Finding {
        rule: Rule::PayloadLength,
        seen: format!("{} of {len} B", opcode.name),
        expected: match opcode.payload {
            PayloadRule::Empty => "no payload",
            PayloadRule::Full => "a path MTU: 256, 512, 1024, 2048 or 4096 B",
            PayloadRule::Rest => "1 to 4096 B",
            PayloadRule::Any => "at most 4096 B",
            PayloadRule::Eight => "8 B",
        }
        .to_owned(),
    })
}

pub(crate) fn check_notification(packet: &Packet<'_>) -> Option<Finding> {
    let bth = &packet.headers.bth;
    (!bth.becn || bth.psn != Psn::new(0)).then(|| Finding {
        rule: Rule::Cnp,
        seen: format!("BECN {}, PSN {}", u8::from(bth.becn), bth.psn),
        expected: "BECN 1, PSN 0".to_owned(),
    })
}

pub(crate) fn check_message_length(packet: &Packet<'_>) -> Option<Finding> {
    let reth = packet.headers.reth.filter(|reth| reth.dma_len > MAX_MESSAGE_LEN)?;
    Some(Finding {
        rule: Rule::MessageLength,
        seen: format!("a length of {} B", reth.dma_len),
        expected: format!("at most {MAX_MESSAGE_LEN} B"),
    })
}

pub(crate) fn check_atomic_alignment(packet: &Packet<'_>) -> Option<Finding> {
    let va = match packet.headers.atomic_eth {
        Some(atomic) => atomic.va,
        None if packet.opcode.operation == Operation::AtomicWrite => packet.headers.reth?.va,
        None => return None,
    };
    (va % 8 != 0).then(|| Finding {
        rule: Rule::AtomicAlignment,
        seen: format!("address 0x{va:x}"),
        expected: "a multiple of 8".to_owned(),
    })
}
