//! The ICRC against zlib's CRC-32 and a masking that does nothing clever.

mod sample;

use proptest::prelude::*;
use roxe_wire::{
    Body, DropReason, Frame, FrameTemplate, IcrcCover, IpHeader, IpPair, Path, RawFrame,
    TrafficClass, icrc,
};
use sample::{frame, packet, packet_of, path};

fn zlib_crc32(bytes: &[u8]) -> u32 {
    let len = bytes.len().try_into().unwrap();
    // SAFETY: the pointer and the length are those of one slice, which zlib only reads.
    let crc = unsafe { libz_sys::crc32(0, bytes.as_ptr(), len) };
    crc.try_into().unwrap()
}

/// The bits of a frame from its IP header on that count as ones, a byte each.
fn masks(is_v4: bool, len: usize) -> Vec<u8> {
    let mut masks = vec![0; len];
    let bth = if is_v4 {
        masks[1] = 0xff; // type of service
        masks[8] = 0xff; // time to live
        masks[10..12].fill(0xff); // header checksum
        28
    } else {
        masks[0] = 0x0f; // traffic class
        masks[1..4].fill(0xff); // traffic class, flow label
        masks[7] = 0xff; // hop limit
        48
    };
    masks[bth - 2..bth].fill(0xff); // UDP checksum
    masks[bth + 4] = 0xff; // FECN, BECN, six reserved bits
    masks
}

/// The ICRC of what stands between the IP header and the ICRC: copied, masked, hashed.
fn reference(is_v4: bool, covered: &[u8]) -> u32 {
    let mut bytes = vec![0xff; 8];
    let masks = masks(is_v4, covered.len());
    bytes.extend(covered.iter().zip(&masks).map(|(byte, mask)| byte | mask));
    zlib_crc32(&bytes)
}

fn ip_at(path: &Path) -> usize {
    if path.vlan.is_some() { 18 } else { 14 }
}

proptest! {
    //= BC-001, BC-011, 03-3.1 test
    #[test]
    fn it_is_zlibs_at_every_split(
        path in path(),
        (headers, payload) in packet(200),
        identification: u16,
        udp_checksum: u16,
    ) {
        let mut bytes = frame(&path, identification, &packet_of(&headers, &payload));
        let is_v4 = matches!(path.ip, IpPair::V4 { .. });
        let ip_at = ip_at(&path);
        let bth_at = ip_at + if is_v4 { 28 } else { 48 };
        bytes[bth_at - 2..bth_at].copy_from_slice(&udp_checksum.to_be_bytes());
        let end = bytes.len() - 4;
        let expected = reference(is_v4, &bytes[ip_at..end]);
        prop_assert_eq!(&bytes[end..], &expected.to_le_bytes()[..], "as emitted");

        // What a template, a frame and its headers by themselves say about the cover.
        let template = FrameTemplate::new(&path);
        let packet_len = u16::try_from(bytes.len() - bth_at).unwrap();
        let sent = template.icrc_cover(packet_len, identification).unwrap();
        let udp = bytes[bth_at - 8..bth_at].try_into().unwrap();
        let whole = Frame::parse(RawFrame::ethernet(&bytes)).unwrap();
        let apart = IcrcCover::new(whole.ip, udp);
        let detached = whole.icrc_cover().detach();

        for split in bth_at..=bytes.len() {
            let (first, second) = bytes.split_at(split);
            let raw = RawFrame { first, second, ..RawFrame::ethernet(&bytes) };
            let frame = Frame::parse(raw).unwrap();
            for cover in [sent, apart, detached, frame.icrc_cover(), whole.icrc_cover()] {
                prop_assert_eq!(icrc::expected(&cover, frame.body), Some(expected));
                prop_assert_eq!(icrc::check(&cover, frame.body), Ok(()));
            }
            // The same bytes at another place: nothing may depend on where they lie.
            let moved = [first[bth_at..].to_vec(), second.to_vec()];
            let body = Body::Whole { first: &moved[0], second: &moved[1] };
            prop_assert_eq!(icrc::check(&frame.icrc_cover(), body), Ok(()));
            // More in one piece than the cover has seen of it.
            prop_assert_eq!(icrc::check(&frame.icrc_cover(), whole.body), Ok(()));
        }

        // A cover says what stands before a packet, whichever packet that is.
        let mut other = bytes[bth_at..end].to_vec();
        other.iter_mut().for_each(|byte| *byte = byte.wrapping_mul(5) ^ 0x3c);
        let expected = reference(is_v4, &[&bytes[ip_at..bth_at], &other].concat());
        for cover in [sent, apart, detached, whole.icrc_cover()] {
            prop_assert_eq!(icrc::compute(&cover, &other, &[]), expected);
        }
    }

    /// What is changed of a template is as if it had been so from the beginning.
    #[test]
    fn a_template_can_be_changed(
        path in path(),
        source_port: u16,
        traffic_class: u8,
        identification: u16,
        packet in proptest::collection::vec(any::<u8>(), 16..40),
    ) {
        let traffic_class = TrafficClass(traffic_class);
        let changed = FrameTemplate::new(&path)
            .with_source_port(source_port)
            .with_traffic_class(traffic_class);
        let made = FrameTemplate::new(&Path { source_port, traffic_class, ..path });
        let written = |template: &FrameTemplate| {
            let mut room = [0; FrameTemplate::MAX];
            let len = packet.len() as u16;
            let cover = template.write(len, identification, &mut room).unwrap();
            (room, icrc::compute(&cover, &packet, &[]))
        };
        prop_assert_eq!(written(&changed), written(&made));
        let ip = changed.ip_header();
        prop_assert_eq!(ip.traffic_class(), traffic_class);
        prop_assert_eq!(ip.hop_limit(), path.hop_limit);
        prop_assert_eq!(IpPair::new(ip.source(), ip.destination()), Some(path.ip));
    }

    /// Routers may change the masked bits, and nothing else.
    //= F03, F14, BC-014, 01-1.4, 03-3.1 test
    #[test]
    fn each_bit_counts_unless_it_is_masked(path in path(), (headers, payload) in packet(40)) {
        let bytes = frame(&path, 7, &packet_of(&headers, &payload));
        let is_v4 = matches!(path.ip, IpPair::V4 { .. });
        let (ip_at, end) = (ip_at(&path), bytes.len() - 4);
        let ip_len = if is_v4 { 20 } else { 40 };
        let masks = masks(is_v4, end - ip_at);
        for bit in 0..8 * (bytes.len() - ip_at) {
            let (at, flip) = (bit / 8, 1 << (bit % 8));
            let mut bytes = bytes.clone();
            bytes[ip_at + at] ^= flip;
            let (ip, rest) = bytes[ip_at..].split_at(ip_len);
            let (udp, body) = rest.split_at(8);
            let ip = if is_v4 {
                IpHeader::V4(ip.try_into().unwrap())
            } else {
                IpHeader::V6(ip.try_into().unwrap())
            };
            let cover = IcrcCover::new(ip, udp.try_into().unwrap());
            let masked = masks.get(at).is_some_and(|mask| mask & flip != 0);
            let checked = icrc::check(&cover, Body::whole(body));
            prop_assert_eq!(checked.is_ok(), masked, "byte {} bit {}", at, bit % 8);
        }
    }

    /// Long packets take another path through crc32fast than short ones.
    #[test]
    fn long_packets_agree_too(path in path(), len in 0..9000_usize, seed: u8) {
        let payload: Vec<u8> = (0..=250_u8).cycle().take(len).map(|byte| byte ^ seed).collect();
        let bth = roxe_wire::Bth { opcode: 4, pad: roxe_wire::pad_for(len), ..Default::default() };
        let headers = roxe_wire::Headers { bth, ..Default::default() };
        let bytes = frame(&path, 7, &packet_of(&headers, &payload));
        let frame = Frame::parse(RawFrame::ethernet(&bytes)).unwrap();
        let is_v4 = matches!(path.ip, IpPair::V4 { .. });
        let expected = reference(is_v4, &bytes[ip_at(&path)..bytes.len() - 4]);
        prop_assert_eq!(icrc::expected(&frame.icrc_cover(), frame.body), Some(expected));
        prop_assert_eq!(frame.body.icrc(), Some(expected));
    }
}

#[test]
fn what_cannot_be_checked_says_why() {
    let cover = IcrcCover::new(IpHeader::V4(&[0x45; 20]), [7; 8]);
    for len in 0..16 {
        let bytes = [0; 16];
        for split in 0..=len {
            let (first, second) = bytes[..len].split_at(split);
            let body = Body::Whole { first, second };
            assert_eq!(icrc::check(&cover, body), Err(DropReason::PacketLength { len }));
            assert_eq!(icrc::expected(&cover, body), None);
        }
    }
    let body = Body::Elided { start: &[0; 16], len: 1040, digest: 0 };
    let cut = DropReason::Truncated { have: 16, need: 1040 };
    assert_eq!(icrc::check(&cover, body), Err(cut));
    assert_eq!((icrc::expected(&cover, body), body.icrc()), (None, None));

    let mut bytes = [0; 16];
    let expected = icrc::compute(&cover, &bytes[..12], &[]);
    bytes[12..].copy_from_slice(&(expected ^ 1).to_le_bytes());
    let mismatch = DropReason::IcrcMismatch { expected, found: expected ^ 1 };
    assert_eq!(icrc::check(&cover, Body::whole(&bytes)), Err(mismatch));
}
