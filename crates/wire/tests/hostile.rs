//! Broken frames, all of them that a short program can list: never a panic, and always the reason
//! that the tables give.
//!
//! The reasons come from [`oracle`], which knows where each field of these frames stands and what
//! the tables of the specification say, and uses nothing of the code under test but the reasons'
//! names.

use roxe_wire::{Body, DropReason, Frame, Packet, RawFrame};

const ETHERNET: usize = 14;

/// Bytes of the extension headers of an opcode, and where behind the BTH an AETH stands.
fn extensions(opcode: u8) -> Option<(usize, Option<usize>)> {
    let (service, low) = (opcode >> 5, opcode & 0x1f);
    // RC, or what XRC and RD repeat of it.
    let (request, len, aeth) = match low {
        0x00..=0x02 | 0x04 => (true, 0, None),
        0x03 | 0x05 => (true, 4, None),
        0x06 | 0x0a => (true, 16, None),
        0x07 | 0x08 => (true, 0, None),
        0x09 => (true, 4, None),
        0x0b => (true, 20, None),
        0x0c => (true, 16, None),
        0x0d | 0x0f..=0x11 => (false, 4, Some(0)),
        0x0e => (false, 0, None),
        0x12 => (false, 12, Some(0)),
        0x13 | 0x14 => (true, 28, None),
        0x16 | 0x17 => (true, 4, None),
        0x1c => (true, 20, None),
        0x1d => (true, 16, None),
        _ => (true, usize::MAX, None),
    };
    let known = len != usize::MAX;
    match service {
        0 if known => Some((len, aeth)),
        1 if low <= 0x0b => Some((len, aeth)),
        2 if low == 0x15 => Some((12, None)),
        2 if low <= 0x14 => {
            Some(if request { (12 + len, None) } else { (4 + len, aeth.map(|at| at + 4)) })
        }
        3 if low == 0x04 => Some((8, None)),
        3 if low == 0x05 => Some((12, None)),
        4 if low == 0x01 => Some((16, None)),
        5 if known && low <= 0x17 => Some(if request { (4 + len, None) } else { (len, aeth) }),
        _ => None,
    }
}

/// What must become of a frame of which `have` bytes are here and `wire` were sent.
fn oracle(bytes: &[u8], is_v4: bool, have: usize, wire: usize) -> Result<(), DropReason> {
    let cut = |have, need| Err(DropReason::Truncated { have, need });
    let number = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
    let udp_at = ETHERNET + if is_v4 { 20 } else { 40 };
    for need in [ETHERNET, udp_at, udp_at + 8] {
        if have < need {
            return cut(have, need);
        }
    }
    let ip = if is_v4 { number(ETHERNET + 2).saturating_sub(20) } else { number(ETHERNET + 4) };
    let udp = number(udp_at + 4);
    if udp != ip || udp < 8 {
        return Err(DropReason::UdpLength { udp, ip });
    }
    let end = udp_at + usize::from(udp);
    if end > wire {
        return cut(wire, end);
    }
    let bth = udp_at + 8;
    let (len, here) = (end - bth, have.min(end) - bth);
    if len < 16 || len % 4 != 0 {
        return Err(DropReason::PacketLength { len });
    }
    if here < 12 {
        return cut(here, 12);
    }
    let (opcode, flags) = (bytes[bth], bytes[bth + 1]);
    if flags & 0xf != 0 {
        return Err(DropReason::TransportVersion { version: flags & 0xf });
    }
    let Some((extensions, aeth)) = extensions(opcode) else {
        return Err(DropReason::ReservedOpcode { code: opcode });
    };
    let headers = 12 + extensions;
    if len < headers + 4 {
        return Err(DropReason::HeaderMissing { have: len, need: headers + 4 });
    }
    let (pad, payload) = (flags >> 4 & 3, len - headers - 4);
    if usize::from(pad) > payload {
        return Err(DropReason::PadCount { pad, payload });
    }
    if here < headers {
        return cut(here, headers);
    }
    if let Some(at) = aeth {
        let value = bytes[bth + 12 + at];
        if !matches!(value >> 5, 0 | 1 | 3) {
            return Err(DropReason::ReservedSyndrome { value });
        }
    }
    Ok(())
}

fn receive(raw: RawFrame<'_>) -> Result<(), DropReason> {
    let frame = Frame::parse(raw)?;
    // Whatever they say, they must survive.
    let _ = (frame.received().check_icrc(), frame.check_udp_checksum(), frame.received().grh());
    let packet = Packet::parse(frame.body)?;
    assert_eq!(packet.len(), frame.body.len());
    Ok(())
}

/// A frame with as many bytes behind the UDP header, all bytes of the packet being `fill`.
fn frame(is_v4: bool, opcode: u8, flags: u8, fill: u8, body: usize) -> Vec<u8> {
    let mut bytes = vec![2; 12];
    let udp_len = u16::try_from(8 + body).unwrap();
    if is_v4 {
        bytes.extend([0x08, 0x00, 0x45, 0, 0, 0, 0, 7, 0x40, 0, 64, 17, 0, 0]);
        bytes.extend([192, 0, 2, 1, 192, 0, 2, 2]);
    } else {
        bytes.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 0, 17, 64]);
        bytes.extend([0x20; 32]);
    }
    bytes.extend([0xc0, 0x00, 0x12, 0xb7, 0, 0, 0, 0]);
    bytes.resize(bytes.len() + body, fill);
    let bth = bytes.len() - body;
    if body >= 2 {
        bytes[bth..bth + 2].copy_from_slice(&[opcode, flags]);
    }
    set_lengths(&mut bytes, is_v4, Some(udp_len), Some(udp_len));
    bytes
}

/// Writes the length of the IP payload and of the UDP datagram, and a right header checksum.
fn set_lengths(bytes: &mut [u8], is_v4: bool, ip: Option<u16>, udp: Option<u16>) {
    let udp_at = ETHERNET + if is_v4 { 20 } else { 40 };
    if let Some(udp) = udp {
        bytes[udp_at + 4..udp_at + 6].copy_from_slice(&udp.to_be_bytes());
    }
    let Some(ip) = ip else { return };
    if !is_v4 {
        bytes[18..20].copy_from_slice(&ip.to_be_bytes());
        return;
    }
    let total = if ip == u16::MAX { ip } else { ip + 20 };
    bytes[16..18].copy_from_slice(&total.to_be_bytes());
    bytes[24..26].fill(0);
    let words = bytes[14..34].chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(w[1]));
    let sum: u32 = words.sum();
    let checksum = !u16::try_from((sum & 0xffff) + (sum >> 16)).unwrap();
    bytes[24..26].copy_from_slice(&checksum.to_be_bytes());
}

/// All lengths near the right one, and the extremes.
fn wrong_lengths(right: u16) -> impl Iterator<Item = u16> {
    (right.saturating_sub(8)..=right + 8).chain([0, 1, 7, 8, u16::MAX - 20, u16::MAX])
}

/// Every way to cut `bytes`: sent so short, captured so short, in two pieces.
fn cut_everywhere(bytes: &[u8], is_v4: bool, from: usize) {
    let wire = bytes.len();
    let headers = ETHERNET + if is_v4 { 28 } else { 48 };
    for have in from..=wire {
        let first = &bytes[..have];
        let sent = oracle(bytes, is_v4, have, have);
        assert_eq!(receive(RawFrame::ethernet(first)), sent, "{have} of {bytes:02x?}");
        let snapped = RawFrame { wire_len: wire, ..RawFrame::ethernet(first) };
        let kept = oracle(bytes, is_v4, have, wire);
        assert_eq!(receive(snapped), kept, "{have} kept of {bytes:02x?}");
        if have >= headers {
            let (first, second) = bytes.split_at(have);
            let pieces = RawFrame { first, second, ..RawFrame::ethernet(bytes) };
            let whole = oracle(bytes, is_v4, wire, wire);
            assert_eq!(receive(pieces), whole, "in pieces at {have} of {bytes:02x?}");
        }
    }
}

/// Every opcode, pad count and truncation; every wrong length with each opcode and pad count, and
/// cut everywhere with one of the pad counts.
fn every_frame(is_v4: bool) {
    let headers = ETHERNET + if is_v4 { 28 } else { 48 };
    for opcode in 0..=255 {
        for pad in 0..4 {
            // The longest extension headers and their ICRC, then a little payload.
            let right = frame(is_v4, opcode, pad << 4 | 0xc0, 0x1f, 12 + 40 + 4 + 4);
            cut_everywhere(&right, is_v4, 0);
            let len = u16::try_from(right.len() - headers + 8).unwrap();
            for wrong in wrong_lengths(len) {
                let both = (Some(wrong), Some(wrong));
                for (ip, udp) in [(Some(wrong), None), (None, Some(wrong)), both] {
                    let mut bytes = right.clone();
                    set_lengths(&mut bytes, is_v4, ip, udp);
                    cut_everywhere(&bytes, is_v4, if pad == 0 { 0 } else { bytes.len() });
                }
            }
        }
    }
}

#[test]
fn every_broken_frame_over_ipv4_has_its_reason() {
    every_frame(true);
}

#[test]
fn every_broken_frame_over_ipv6_has_its_reason() {
    every_frame(false);
}

/// Packets of every length with every opcode and pad count, and every first byte of an AETH.
#[test]
fn every_length_has_its_reason() {
    for body in 0..80 {
        for opcode in 0..=255 {
            for pad in 0..4 {
                let bytes = frame(true, opcode, pad << 4, 0x60, body);
                let wire = bytes.len();
                assert_eq!(
                    receive(RawFrame::ethernet(&bytes)),
                    oracle(&bytes, true, wire, wire),
                    "{bytes:02x?}"
                );
            }
        }
    }
    for flags in 0..=255 {
        for fill in 0..=255 {
            for opcode in [0x0d, 0x11, 0x12, 0x51, 0x52, 0xb1] {
                let bytes = frame(false, opcode, flags, fill, 32);
                let wire = bytes.len();
                assert_eq!(
                    receive(RawFrame::ethernet(&bytes)),
                    oracle(&bytes, false, wire, wire),
                    "{bytes:02x?}"
                );
            }
        }
    }
}

/// A body that claims any length, with any number of bytes here, says one of the reasons.
#[test]
fn elided_bodies_have_their_reason() {
    for opcode in 0..=255 {
        for have in 0..64 {
            let mut start = [0; 64];
            start[0] = opcode;
            let start = &start[..have];
            for len in (0..80).chain([65507, usize::MAX - 3, usize::MAX]) {
                let got = Packet::parse(Body::Elided { start, len, digest: 9 });
                let expected = if len < 16 || len % 4 != 0 {
                    Err(DropReason::PacketLength { len })
                } else if have < 12 {
                    Err(DropReason::Truncated { have, need: 12 })
                } else {
                    match extensions(opcode) {
                        None => Err(DropReason::ReservedOpcode { code: opcode }),
                        Some((more, _)) if len < 16 + more => {
                            Err(DropReason::HeaderMissing { have: len, need: 16 + more })
                        }
                        Some((more, _)) if have < 12 + more => {
                            Err(DropReason::Truncated { have, need: 12 + more })
                        }
                        Some((more, _)) => Ok(len - 16 - more),
                    }
                };
                assert_eq!(got.map(|packet| packet.payload.len()), expected, "{opcode} {have}");
            }
        }
    }
}
