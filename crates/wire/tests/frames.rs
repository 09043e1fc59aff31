//! Frames that are not quite what a receiver hopes for, and one test of each reason to drop one.

mod sample;

use std::collections::BTreeSet;

use roxe_wire::mad::Mad;
use roxe_wire::opcode::OPCODES;
use roxe_wire::{
    Body, Bth, CNP_OPCODE, DropReason, Ecn, Frame, Grh, Headers, IpHeader, IpPair, MacAddress,
    PKey, Packet, Path, Payload, Qpn, RawFrame, Start, TrafficClass, VlanTag, cnp_bth,
};

const V4_AT: usize = 14;

fn path(is_v4: bool) -> Path {
    let [source, destination] =
        if is_v4 { ["192.0.2.1", "192.0.2.2"] } else { ["2001:db8::1", "2001:db8::2"] }
            .map(|text| text.parse().unwrap());
    Path {
        ethernet: (MacAddress([2, 0, 0, 0, 0, 2]), MacAddress([2, 0, 0, 0, 0, 1])),
        vlan: None,
        ip: IpPair::new(source, destination).unwrap(),
        traffic_class: TrafficClass(0x6a),
        hop_limit: 64,
        flow_label: 0,
        source_port: 0xc123,
    }
}

/// A SEND ONLY of five bytes.
fn frame(is_v4: bool) -> Vec<u8> {
    let bth = Bth { opcode: 0x04, pad: 3, dest_qp: Qpn::new(0x11), ..Bth::default() };
    let headers = Headers { bth, ..Headers::default() };
    sample::frame(&path(is_v4), 0x1c46, &sample::packet_of(&headers, b"hello"))
}

/// The frame with these bytes at a place, and with a right IPv4 header checksum.
fn with(mut bytes: Vec<u8>, at: usize, new: &[u8]) -> Vec<u8> {
    bytes[at..at + new.len()].copy_from_slice(new);
    if bytes[12..14] == [0x08, 0x00] {
        bytes[24..26].fill(0);
        let words = bytes[14..34].chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(w[1]));
        let sum: u32 = words.sum();
        let checksum = !u16::try_from((sum & 0xffff) + (sum >> 16)).unwrap();
        bytes[24..26].copy_from_slice(&checksum.to_be_bytes());
    }
    bytes
}

/// The frame with these bytes between the Ethernet addresses and the Ethertype.
fn tagged(bytes: &[u8], tags: &[u8]) -> Vec<u8> {
    [&bytes[..12], tags, &bytes[12..]].concat()
}

fn receive(bytes: &[u8]) -> Result<(), DropReason> {
    let frame = Frame::parse(RawFrame::ethernet(bytes))?;
    frame.received().check_icrc().unwrap()?;
    frame.check_udp_checksum().unwrap()?;
    Packet::parse(frame.body).map(|_| ())
}

/// Reasons that only somebody with queue pairs can give.
const OF_THE_DEVICE: [&str; 6] =
    ["unknown_qp", "wrong_service", "wrong_qp_state", "addr_mismatch", "bad_pkey", "bad_qkey"];

/// Whatever reason this crate gives for a frame, some frame here gives it.
//= F06, F07, BC-004, BC-005, 01-1.1, 01-1.3 test
#[test]
fn each_reason_has_a_frame() {
    use DropReason as R;
    let (v4, v6) = (frame(true), frame(false));
    let udp = V4_AT + 20;
    let bth = udp + 8;
    let last = v4.len() - 1;
    let flipped = with(v4.clone(), last, &[!v4[last]]);
    let found = u32::from_le_bytes(*flipped.last_chunk().unwrap());
    let expected = u32::from_le_bytes(*v4.last_chunk().unwrap());
    // A packet of another opcode and pad has another ICRC too.
    let sealed = |at: usize, new: &[u8]| {
        let mut bytes = with(v4.clone(), at, new);
        let frame = Frame::parse(RawFrame::ethernet(&bytes)).unwrap();
        let icrc = roxe_wire::icrc::expected(&frame.icrc_cover(), frame.body).unwrap();
        *bytes.last_chunk_mut().unwrap() = icrc.to_le_bytes();
        bytes
    };
    let short = |len: u8, body: usize| {
        let bytes = with(v4[..bth + body].to_vec(), udp + 4, &[0, len]);
        with(bytes, V4_AT + 2, &[0, len + 20])
    };
    let mut broken_sum = v4.clone();
    broken_sum[V4_AT + 10] ^= 0x80;
    let sum = |bytes: &[u8]| u16::from_be_bytes([bytes[V4_AT + 10], bytes[V4_AT + 11]]);
    let ip_sums = (sum(&v4), sum(&broken_sum));
    let Err(R::UdpChecksum { expected: right, .. }) = receive(&with(v4.clone(), udp + 6, &[1, 1]))
    else {
        panic!("the checksum is right by chance")
    };
    let vlan = [0x81, 0x00, 0x00, 0x05];
    // The same with so many words of IPv4 options.
    let options = |words: u8, port: u16| {
        let mut bytes = with(v4.clone(), V4_AT, &[0x45 + words]);
        bytes.splice(udp..udp, vec![1; usize::from(words) * 4]);
        with(bytes, udp + usize::from(words) * 4 + 2, &port.to_be_bytes())
    };
    // The same with one IPv6 extension header of eight bytes.
    let extended = |kind: u8, next: u8, middle: &[u8], port: u16| {
        let mut bytes = with(v6.clone(), V4_AT + 6, &[kind]);
        let behind = V4_AT + 40;
        bytes.splice(behind..behind, [&[next, 0], middle, &[0; 4]].concat());
        with(bytes, behind + 8 + 2, &port.to_be_bytes())
    };

    let reserved_syndrome = [0x11, 0, 0xff, 0xff, 0, 0, 0, 0x11, 0, 0, 0, 0, 0x9f];
    let cases: Vec<(Vec<u8>, DropReason)> = vec![
        (v4[..13].to_vec(), R::Truncated { have: 13, need: 14 }),
        (with(v4.clone(), 12, &[0x08, 0x06]), R::NotIp { ether_type: 0x0806 }),
        (with(v4.clone(), 12, &[0x89, 0x15]), R::RoceV1),
        (tagged(&v4, &[vlan, vlan, vlan].concat()), R::TooManyVlanTags),
        (with(v4.clone(), V4_AT, &[0x65]), R::IpVersion { version: 6 }),
        (with(v6.clone(), V4_AT, &[0x45]), R::IpVersion { version: 4 }),
        (options(1, 4791), R::IpOptions { ihl: 6 }),
        (options(10, 4791), R::IpOptions { ihl: 15 }),
        (options(1, 53), R::OtherUdpPort { port: 53 }),
        (with(v4.clone(), V4_AT, &[0x44]), R::IpHeaderLength { ihl: 4 }),
        (with(v4.clone(), V4_AT, &[0x40]), R::IpHeaderLength { ihl: 0 }),
        (broken_sum.clone(), R::IpChecksum { expected: ip_sums.0, found: ip_sums.1 }),
        (with(v4.clone(), V4_AT + 6, &[0x20, 0]), R::IpFragment),
        (with(v4.clone(), V4_AT + 6, &[0x00, 1]), R::LaterFragment),
        (with(v4.clone(), V4_AT + 6, &[0x1f, 0xff]), R::LaterFragment),
        (extended(44, 17, &[0, 1], 4791), R::IpFragment),
        (extended(44, 17, &[0, 0], 4791), R::IpExtension { next_header: 44 }),
        (extended(44, 17, &[0, 8], 4791), R::LaterFragment),
        (extended(44, 17, &[0, 1], 53), R::OtherUdpPort { port: 53 }),
        (extended(0, 17, &[0, 0], 4791), R::IpExtension { next_header: 0 }),
        (extended(43, 17, &[0, 0], 4791), R::IpExtension { next_header: 43 }),
        (extended(60, 17, &[0, 0], 4791), R::IpExtension { next_header: 60 }),
        (extended(0, 58, &[0, 0], 4791), R::NotUdp { protocol: 58 }), // multicast listeners
        // Behind ESP nothing can be read.
        (extended(50, 17, &[0, 0], 4791), R::NotUdp { protocol: 50 }),
        (extended(0, 50, &[0, 0], 4791), R::NotUdp { protocol: 50 }),
        (with(broken_sum.clone(), udp + 2, &[0, 53]), R::OtherUdpPort { port: 53 }),
        (with(v6.clone(), V4_AT + 6, &[58]), R::NotUdp { protocol: 58 }),
        (with(v4.clone(), V4_AT + 9, &[6]), R::NotUdp { protocol: 6 }),
        (with(v4.clone(), udp + 2, &[0, 53]), R::OtherUdpPort { port: 53 }),
        (with(v4.clone(), udp + 4, &[0, 31]), R::UdpLength { udp: 31, ip: 32 }),
        (with(v4.clone(), V4_AT + 2, &[0, 19]), R::UdpLength { udp: 32, ip: 0 }),
        (short(7, 0), R::UdpLength { udp: 7, ip: 7 }),
        (
            with(v4.clone(), udp + 6, &[0xff, 0xfe]),
            R::UdpChecksum { expected: right, found: 0xfffe },
        ),
        (short(8, 0), R::PacketLength { len: 0 }),
        (short(8 + 12, 12), R::PacketLength { len: 12 }),
        (sealed(bth + 1, &[0x31]), R::TransportVersion { version: 1 }),
        (sealed(bth, &[0x15]), R::ReservedOpcode { code: 0x15 }),
        (sealed(bth, &[0x80]), R::ReservedOpcode { code: 0x80 }),
        (sealed(bth, &[0x06]), R::HeaderMissing { have: 24, need: 32 }),
        (sealed(bth, &[0x64, 0x10]), R::PadCount { pad: 1, payload: 0 }),
        (sealed(bth, &reserved_syndrome), R::ReservedSyndrome { value: 0x9f }),
        (flipped, R::IcrcMismatch { expected, found }),
    ];
    let mut seen = BTreeSet::new();
    for (bytes, reason) in cases {
        assert_eq!(receive(&bytes), Err(reason), "{bytes:02x?}");
        seen.insert(reason.name());
    }
    let mut mad = [0; Mad::LEN];
    let mut mad_is_refused = |bytes: &[u8], reason: R| {
        assert_eq!(Mad::parse(bytes).map(|_| ()), Err(reason));
        seen.insert(reason.name());
    };
    mad_is_refused(&mad[1..], R::MadLength { len: 255 });
    let (base_version, class, class_version, method) = (0, 0, 0, 0);
    mad_is_refused(&mad, R::MadHeader { base_version, class, class_version, method });
    mad[..4].copy_from_slice(&[1, 7, 2, 3]);
    mad_is_refused(&mad, R::MadAttribute { attribute: 0 });

    let mut missing = DropReason::NAMES.to_vec();
    missing.retain(|name| !seen.contains(name) && !OF_THE_DEVICE.contains(name));
    assert_eq!(missing, [""; 0]);
}

#[test]
fn reasons_tell_broken_frames_from_other_traffic() {
    for (name, other) in [("not_ip", true), ("icrc_bad", false), ("ip_options", false)] {
        assert!(DropReason::NAMES.contains(&name));
        let reason = match name {
            "not_ip" => DropReason::NotIp { ether_type: 0x0806 },
            "icrc_bad" => DropReason::IcrcMismatch { expected: 1, found: 2 },
            _ => DropReason::IpOptions { ihl: 6 },
        };
        assert_eq!((reason.name(), reason.is_other_traffic()), (name, other));
    }
    let names: BTreeSet<_> = DropReason::NAMES.iter().collect();
    assert_eq!(names.len(), DropReason::NAMES.len(), "each counter has a name of its own");
}

/// What the UDP checksum of a datagram is, by RFC 768, word by word.
fn udp_checksum(is_v4: bool, ip: &[u8], datagram: &[u8]) -> u16 {
    let addresses = if is_v4 { &ip[12..20] } else { &ip[8..40] };
    let len = u32::try_from(datagram.len()).unwrap().to_be_bytes();
    let mut bytes = [addresses, &len, &[0, 17], datagram].concat();
    if bytes.len() % 2 == 1 {
        bytes.push(0);
    }
    let sum: u32 = bytes.chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(w[1])).sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    match !u16::try_from((sum & 0xffff) + (sum >> 16)).unwrap() {
        0 => 0xffff,
        checksum => checksum,
    }
}

/// A checksum is checked wherever the frame is split, at odd places too; 0 says "none".
//= F04, BC-010, 01-1.5 test
#[test]
fn the_udp_checksum_is_that_of_rfc_768() {
    for is_v4 in [true, false] {
        let mut bytes = frame(is_v4);
        let ip_len = if is_v4 { 20 } else { 40 };
        let udp = V4_AT + ip_len;
        let right = udp_checksum(is_v4, &bytes[V4_AT..], &bytes[udp..]);
        for (checksum, is_right) in [(right, true), (0, true), (right ^ 1, false)] {
            bytes[udp + 6..udp + 8].copy_from_slice(&checksum.to_be_bytes());
            for split in udp + 8..=bytes.len() {
                let (first, second) = bytes.split_at(split);
                let raw = RawFrame { first, second, ..RawFrame::ethernet(&bytes) };
                let frame = Frame::parse(raw).unwrap();
                let wrong = DropReason::UdpChecksum { expected: right, found: checksum };
                let verdict = if is_right { Ok(()) } else { Err(wrong) };
                assert_eq!(frame.check_udp_checksum(), Some(verdict), "split at {split}");
            }
        }
        let snapped = RawFrame { wire_len: bytes.len(), ..RawFrame::ethernet(&bytes[..udp + 20]) };
        assert_eq!(Frame::parse(snapped).unwrap().check_udp_checksum(), None);
    }
}

/// A reserved bit that is set is part of the header like any other.
#[test]
fn each_bit_of_the_header_is_summed() {
    let reserved_flag = with(frame(true), V4_AT + 6, &[0xc0, 0]);
    assert!(Frame::parse(RawFrame::ethernet(&reserved_flag)).is_ok());
    let sum_at = V4_AT + 10;
    let expected = u16::from_be_bytes([reserved_flag[sum_at], reserved_flag[sum_at + 1]]);
    for bit in 0..16 {
        let mut bytes = reserved_flag.clone();
        bytes[sum_at + bit / 8] ^= 0x80 >> (bit % 8);
        let wrong = DropReason::IpChecksum { expected, found: expected ^ 0x8000 >> bit };
        assert_eq!(receive(&bytes), Err(wrong));
    }
}

/// Priority tags, one VLAN, two of them in each notation; the outer one comes first.
//= BC-013, 01-1.2 test
#[test]
fn tags_are_taken_off() {
    let bytes = frame(true);
    let cases: [(&[u8], [Option<VlanTag>; 2]); 5] = [
        (&[], [None, None]),
        (&[0x81, 0x00, 0x60, 0x00], [Some(VlanTag(0x6000)), None]),
        (&[0x81, 0x00, 0x60, 0x64], [Some(VlanTag(0x6064)), None]),
        (&[0x88, 0xa8, 0, 7, 0x81, 0x00, 0, 8], [Some(VlanTag(7)), Some(VlanTag(8))]),
        (&[0x91, 0x00, 0, 9, 0x92, 0x00, 0, 1], [Some(VlanTag(9)), Some(VlanTag(1))]),
    ];
    for (tags, expected) in cases {
        let bytes = tagged(&bytes, tags);
        let frame = Frame::parse(RawFrame::ethernet(&bytes)).unwrap();
        assert_eq!(frame.vlan, expected);
        assert_eq!(frame.received().check_icrc(), Some(Ok(())), "no tag is covered");
        assert_eq!(frame.received().addressing.vlan, expected[0]);
        for len in 0..14 + tags.len() {
            let Err(DropReason::Truncated { have, need }) =
                Frame::parse(RawFrame::ethernet(&bytes[..len])).map(|_| ())
            else {
                panic!("{len} bytes are too few")
            };
            assert!(have == len && need > len);
        }
    }
    let tag = VlanTag(0x6064);
    assert_eq!((tag.id(), tag.priority()), (100, 3));
}

/// A capture may begin behind the link header; what is left says the same.
#[test]
fn frames_may_begin_behind_the_link_header() {
    for is_v4 in [true, false] {
        let bytes = frame(is_v4);
        let whole = Frame::parse(RawFrame::ethernet(&bytes)).unwrap();
        let ether_type = u16::from_be_bytes([bytes[12], bytes[13]]);
        let ip = &bytes[14..];
        let tagged = [&[0, 5, bytes[12], bytes[13]], ip].concat();
        let starts = [
            (Start::Ip, ip, None),
            (Start::EtherType(ether_type), ip, None),
            (Start::EtherType(0x8100), &tagged, Some(VlanTag(5))),
        ];
        for (start, bytes, tag) in starts {
            let raw = RawFrame { start, ..RawFrame::ethernet(bytes) };
            let frame = Frame::parse(raw).unwrap();
            assert_eq!((frame.ethernet, frame.vlan), (None, [tag, None]));
            assert_eq!((frame.ip, frame.udp, frame.body), (whole.ip, whole.udp, whole.body));
        }
    }
    let start = |bytes| Frame::parse(RawFrame { start: Start::Ip, ..RawFrame::ethernet(bytes) });
    assert_eq!(start(&[]).unwrap_err(), DropReason::Truncated { have: 0, need: 1 });
    assert_eq!(start(&[0x50; 60]).unwrap_err(), DropReason::IpVersion { version: 5 });
}

/// What stands behind the ICRC is padding, whatever it is; the ICRC is found by the IP length.
//= F05, 01-1.1 test
#[test]
fn padding_is_not_the_packet() {
    for padding in [1, 2, 6, 60] {
        let bytes = [frame(true), vec![0xee; padding]].concat();
        let frame = Frame::parse(RawFrame::ethernet(&bytes)).unwrap();
        assert_eq!(frame.padding, padding);
        assert_eq!(frame.received().check_icrc(), Some(Ok(())));
        // Also when it was not captured, or lies in the second piece.
        let here = bytes.len() - padding;
        let cut = RawFrame { wire_len: bytes.len(), ..RawFrame::ethernet(&bytes[..here]) };
        assert_eq!(Frame::parse(cut).unwrap().padding, padding);
        let (first, second) = bytes.split_at(here - 2);
        let frame = Frame::parse(RawFrame { first, second, ..cut }).unwrap();
        assert_eq!(frame.received().check_icrc(), Some(Ok(())));
    }
}

/// A capture that keeps the first bytes only: headers, and a length without bytes.
#[test]
fn snapped_frames_keep_their_meaning() {
    let payload = [7; 1024];
    let row = OPCODES.iter().find(|row| row.name == "RC_WRITE_ONLY").unwrap();
    let reth = roxe_wire::Reth { va: 0x1000, r_key: roxe_wire::RKey(5), dma_len: 1024 };
    let bth = Bth { opcode: row.code, ..Bth::default() };
    let headers = Headers { bth, reth: Some(reth), ..Headers::default() };
    let bytes = sample::frame(&path(true), 1, &sample::packet_of(&headers, &payload));
    let headers_end = 42 + row.headers_len;
    for have in headers_end..bytes.len() {
        let raw = RawFrame { wire_len: bytes.len(), ..RawFrame::ethernet(&bytes[..have]) };
        let frame = Frame::parse(raw).unwrap();
        let Body::Elided { start, len, .. } = frame.body else { panic!("{have} is not all") };
        assert_eq!((start, len), (&bytes[42..have], bytes.len() - 42));
        let packet = Packet::parse(frame.body).unwrap();
        assert_eq!(packet.headers, headers);
        assert_eq!(packet.payload, Payload::Elided { len: 1024, digest: 0 });
        assert_eq!((packet.payload.pieces(), packet.payload.pad()), ([&[][..], &[]], 0));
        assert_eq!(frame.received().check_icrc(), None);
    }
    // A length on the wire that is smaller than what is here is taken at its word.
    let lying = RawFrame { wire_len: bytes.len() - 1, ..RawFrame::ethernet(&bytes) };
    let cut = DropReason::Truncated { have: bytes.len() - 1, need: bytes.len() };
    assert_eq!(Frame::parse(lying).unwrap_err(), cut);
}

//= BC-017 test
#[test]
fn a_notification_is_a_bth_and_sixteen_bytes() {
    let bth = cnp_bth(Qpn::new(0x22), PKey::DEFAULT);
    let cnp_reserved = Some(roxe_wire::CnpReserved::default());
    let headers = Headers { bth, cnp_reserved, ..Headers::default() };
    let packet = sample::packet_of(&headers, &[]);
    assert_eq!((packet.len(), packet.opcode.code), (32, CNP_OPCODE));
    let path = Path { traffic_class: TrafficClass(0xc2), source_port: 0, ..path(true) };
    let bytes = sample::frame(&path, 0x1c46, &packet);
    let expected = [0x81, 0, 0xff, 0xff, 0x40, 0, 0, 0x22, 0, 0, 0, 0];
    assert_eq!(bytes[42..54], expected);
    assert_eq!(bytes[54..70], [0; 16]);
    let frame = Frame::parse(RawFrame::ethernet(&bytes)).unwrap();
    assert_eq!(Packet::parse(frame.body), Ok(packet));
    assert_eq!((frame.ip.traffic_class().dscp(), frame.ip.traffic_class().ecn()), (48, Ecn::Ect0));
}

#[test]
fn congestion_bits_are_the_low_two() {
    let of = |bits: u8| TrafficClass(0xc0 | bits).ecn();
    assert_eq!([0_u8, 1, 2, 3].map(of), [Ecn::NotEct, Ecn::Ect1, Ecn::Ect0, Ecn::Ce]);
}

/// A broken IPv4 header in the area is no header; the area of either family names both ends.
#[test]
fn the_area_before_a_datagram_is_read_back() {
    for is_v4 in [true, false] {
        let bytes = frame(is_v4);
        let frame = Frame::parse(RawFrame::ethernet(&bytes)).unwrap();
        let grh = frame.received().grh().unwrap();
        let IpPair::V4 { .. } = path(is_v4).ip else {
            assert_eq!(grh.ip_header(), Some(frame.ip));
            assert_eq!(grh.as_bytes()[..], bytes[14..54]);
            continue;
        };
        assert_eq!(grh.as_bytes()[..20], [0; 20]);
        assert_eq!(grh.as_bytes()[20..], bytes[14..34]);
        assert_eq!(grh.source(), Some(frame.ip.source()));
        assert_eq!(grh.destination(), Some(frame.ip.destination()));
        assert_eq!(grh.traffic_class(), Some(TrafficClass(0x6a)));
        for bit in 0..160 {
            let mut area = *grh.as_bytes();
            area[20 + bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Grh::from_bytes(area).ip_header(), None, "bit {bit}");
        }
    }
    // A header with options does not fit, whatever its checksum says.
    let options = with(frame(true), V4_AT, &[0x46]);
    let mut area = [0; 40];
    area[20..].copy_from_slice(&options[V4_AT..V4_AT + 20]);
    assert_eq!(Grh::from_bytes(area).ip_header(), None);
    // The first byte decides for IPv6 only when the end is no IPv4 header.
    let mut area = [0; 40];
    area[0] = 0x6f;
    assert!(matches!(Grh::from_bytes(area).ip_header(), Some(IpHeader::V6(_))));
}
