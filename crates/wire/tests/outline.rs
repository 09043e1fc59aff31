//! What stands before the packet of frames that are broken, and which frames have nothing there.

mod sample;

use roxe_wire::{
    Bth, Frame, Headers, IpPair, MacAddress, Outline, Path, Qpn, RawFrame, Start, TrafficClass,
    VlanTag,
};

/// A SEND ONLY of five bytes.
fn frame(is_v4: bool) -> Vec<u8> {
    let addresses = if is_v4 { ["192.0.2.1", "192.0.2.2"] } else { ["2001:db8::1", "2001:db8::2"] };
    let [source, destination] = addresses.map(|text| text.parse().unwrap());
    let path = Path {
        ethernet: (MacAddress([2, 0, 0, 0, 0, 2]), MacAddress([2, 0, 0, 0, 0, 1])),
        vlan: None,
        ip: IpPair::new(source, destination).unwrap(),
        traffic_class: TrafficClass(0x6a),
        hop_limit: 63,
        flow_label: 0x12345,
        source_port: 0xc123,
    };
    let bth = Bth { opcode: 0x04, pad: 3, dest_qp: Qpn::new(0x11), ..Bth::default() };
    let headers = Headers { bth, ..Headers::default() };
    sample::frame(&path, 0x1c46, &sample::packet_of(&headers, b"hello"))
}

/// The frame with these bytes in place of those at `at`.
fn with(mut bytes: Vec<u8>, at: usize, new: &[u8]) -> Vec<u8> {
    bytes[at..at + new.len()].copy_from_slice(new);
    bytes
}

/// The frame with more bytes before those at `at`.
fn grown(bytes: &[u8], at: usize, more: &[u8]) -> Vec<u8> {
    [&bytes[..at], more, &bytes[at..]].concat()
}

fn outline(bytes: &[u8]) -> Option<Outline> {
    Outline::of(RawFrame::ethernet(bytes))
}

/// Where a sound frame can be parsed, its outline must be the same. Tells whether it can.
fn is_the_same(raw: RawFrame<'_>) -> bool {
    let outline = Outline::of(raw);
    let Ok(frame) = Frame::parse(raw) else { return false };
    let ip_len = frame.ip.bytes().len();
    let packet_at = raw.wire_len - frame.padding - frame.body.len();
    assert_eq!(
        outline,
        Some(Outline {
            vlan: frame.vlan,
            source: frame.ip.source(),
            destination: frame.ip.destination(),
            traffic_class: frame.ip.traffic_class(),
            hop_limit: frame.ip.hop_limit(),
            identification: frame.ip.identification(),
            source_port: frame.udp.source_port,
            ip_at: packet_at - 8 - ip_len,
            packet_at,
        })
    );
    true
}

#[test]
fn the_outline_of_a_sound_frame_is_what_parsing_says() {
    for is_v4 in [true, false] {
        let plain = frame(is_v4);
        for tags in [&[][..], &[0x81, 0, 0x60, 5], &[0x88, 0xa8, 0x20, 7, 0x91, 0, 0, 9]] {
            let bytes = grown(&plain, 12, tags);
            assert!(is_the_same(RawFrame::ethernet(&bytes)));
            let ether_type = u16::from_be_bytes([bytes[12], bytes[13]]);
            let raw = RawFrame::ethernet(&bytes[14..]);
            assert!(is_the_same(RawFrame { start: Start::EtherType(ether_type), ..raw }));
        }
        assert!(is_the_same(RawFrame { start: Start::Ip, ..RawFrame::ethernet(&plain[14..]) }));
    }
}

#[test]
fn a_broken_frame_to_the_port_has_an_outline() {
    let (v4, v6) = (frame(true), frame(false));
    let of = |bytes: &[u8]| {
        assert!(Frame::parse(RawFrame::ethernet(bytes)).is_err());
        outline(bytes).map(|outline| (outline.packet_at, outline.source_port))
    };
    // IPv4: its checksum, options, a length below its own, a first fragment.
    assert_eq!(of(&with(v4.clone(), 24, &[0, 0])), Some((42, 0xc123)));
    assert_eq!(of(&with(grown(&v4, 34, &[1; 40]), 14, &[0x4f])), Some((82, 0xc123)));
    assert_eq!(of(&with(v4.clone(), 14, &[0x43])), Some((42, 0xc123)));
    assert_eq!(of(&with(v4.clone(), 20, &[0x20, 0])), Some((42, 0xc123)));
    // UDP: its length.
    assert_eq!(of(&with(v4.clone(), 38, &[0, 7])), Some((42, 0xc123)));
    assert_eq!(of(&with(v6.clone(), 58, &[0xff, 0xff])), Some((62, 0xc123)));
    // IPv6: each extension header, with and without more than the least of it.
    for kind in [0, 43, 60, 135, 139, 140] {
        for more in [0, 1, 5] {
            let mut header = vec![0xa5; 8 + more * 8];
            (header[0], header[1]) = (17, more as u8);
            let bytes = with(grown(&v6, 54, &header), 20, &[kind]);
            assert_eq!(of(&bytes), Some((62 + header.len(), 0xc123)), "{kind}");
        }
    }
    for words in [0, 1, 4] {
        let mut header = vec![0xa5; 8 + words * 4];
        (header[0], header[1]) = (17, words as u8);
        let bytes = with(grown(&v6, 54, &header), 20, &[51]);
        assert_eq!(of(&bytes), Some((62 + header.len(), 0xc123)));
    }
    let first = [17, 0, 0, 0x07, 1, 2, 3, 4];
    assert_eq!(of(&with(grown(&v6, 54, &first), 20, &[44])), Some((70, 0xc123)));
    // More tags than anybody keeps.
    let tags = [0x81, 0, 0, 1, 0x81, 0, 0, 2, 0x81, 0, 0, 3];
    let tagged = outline(&grown(&v4, 12, &tags)).unwrap();
    assert_eq!((tagged.vlan, tagged.ip_at), ([1, 2].map(|id| Some(VlanTag(id))), 26));
    // The packet is not here any more, and the port is.
    assert_eq!(of(&v4[..38]), Some((42, 0xc123)));
}

#[test]
fn other_frames_have_none() {
    let (v4, v6) = (frame(true), frame(false));
    let is_none = |bytes: &[u8]| outline(bytes).is_none();
    for (bytes, udp_at) in [(&v4, 34), (&v6, 54)] {
        assert!(is_none(&with(bytes.clone(), udp_at + 2, &[0, 53])));
        assert!(is_none(&with(bytes.clone(), 12, &[0x89, 0x15])), "RoCE v1");
        assert!(is_none(&with(bytes.clone(), 12, &[0x08, 0x06])), "ARP");
        assert!(is_none(&with(bytes.clone(), 14, &[0x55])), "a version that is none");
        for len in 0..udp_at + 4 {
            assert!(is_none(&bytes[..len]), "{len} bytes");
        }
        assert!(!is_none(&bytes[..udp_at + 4]));
    }
    assert!(is_none(&with(v4.clone(), 23, &[6])), "TCP");
    assert!(is_none(&with(v4.clone(), 20, &[0, 1])), "a later fragment");
    assert!(is_none(&with(v4, 20, &[0x1f, 0])), "a later fragment");
    assert!(is_none(&with(v6.clone(), 20, &[6])), "TCP");
    // Encrypted; nothing follows.
    assert!(is_none(&with(grown(&v6, 54, &[17, 0, 0, 0, 0, 0, 0, 0]), 20, &[50])));
    assert!(is_none(&with(v6.clone(), 20, &[59])));
    for later in [[0, 0x08], [1, 0]] {
        let fragment = [17, 0, later[0], later[1], 1, 2, 3, 4];
        assert!(is_none(&with(grown(&v6, 54, &fragment), 20, &[44])));
    }
}

/// Whatever a byte is, and wherever the frame ends.
#[test]
fn no_frame_is_too_strange() {
    for is_v4 in [true, false] {
        let tagged = grown(&frame(is_v4), 12, &[0x81, 0, 0, 5]);
        let mut sound = 0;
        for at in 0..tagged.len() {
            for value in 0..=255 {
                let bytes = with(tagged.clone(), at, &[value]);
                sound += u32::from(is_the_same(RawFrame::ethernet(&bytes)));
                for cut in [at, at + 1, at + 2] {
                    let raw = RawFrame::ethernet(&bytes[..cut.min(bytes.len())]);
                    is_the_same(RawFrame { wire_len: bytes.len(), ..raw });
                }
            }
        }
        assert!(sound > 1000, "{sound}");
    }
}
