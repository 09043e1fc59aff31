use super::*;

fn ip() -> Vec<u8> {
    (0x45..0x45 + 40).collect()
}

fn with_header(header: &[u8]) -> Vec<u8> {
    [header, &ip()].concat()
}

#[test]
fn ethernet_and_ip_are_left_as_they_are() {
    for link_type in [LinkType(101), LinkType(12), LinkType(14), LinkType(228), LinkType(229)] {
        let stripped = link_type.framing().strip(&ip(), 1500).unwrap();
        assert_eq!((stripped.start, stripped.skip, stripped.len), (Start::Ip, 0, 40));
        assert_eq!(stripped.wire_len, 1500);
    }
    let stripped = LinkType::ETHERNET.framing().strip(&ip(), 0).unwrap();
    assert_eq!(stripped.start, Start::Ethernet);
    assert_eq!(stripped.wire_len, 40, "never less than what is there");
}

#[test]
fn cooked_v1_tells_ether_type_and_direction() {
    let header = |packet_type| {
        with_header(&[0, packet_type, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0, 0x86, 0xdd])
    };
    let strip = |packet_type| Framing::Sll.strip(&header(packet_type), 116).unwrap();
    assert_eq!(strip(0).start, Start::EtherType(0x86dd));
    assert_eq!((strip(0).skip, strip(0).len, strip(0).wire_len), (16, 40, 100));
    let directions = [0, 1, 2, 3, 4].map(|packet_type| strip(packet_type).direction);
    let (inbound, outbound) = (Some(Direction::Inbound), Some(Direction::Outbound));
    assert_eq!(directions, [inbound, inbound, inbound, None, outbound]);
}

#[test]
fn cooked_v2_tells_ether_type_and_direction() {
    let packet = with_header(&[8, 0, 0, 0, 0, 0, 0, 7, 0, 1, 4, 6, 2, 0, 0, 0, 0, 1, 0, 0]);
    let stripped = Framing::Sll2.strip(&packet, 60).unwrap();
    assert_eq!(stripped.start, Start::EtherType(0x0800));
    assert_eq!((stripped.skip, stripped.len, stripped.wire_len), (20, 40, 40));
    assert_eq!(stripped.direction, Some(Direction::Outbound));
}

#[test]
fn cooked_packets_without_an_ether_type_are_not_understood() {
    let netlink = with_header(&[0, 4, 3, 56, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0]);
    assert_eq!(Framing::Sll.strip(&netlink, 56), None);
    let llc = with_header(&[0, 0, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0, 0, 4]);
    assert_eq!(Framing::Sll.strip(&llc, 56), None);
}

/// An ERF record: 16 bytes, then extension headers, then two bytes of padding.
fn erf(kind: u8, extensions: &[u8], wire_len: u16) -> Vec<u8> {
    let mut header = vec![0, 0, 0, 0x80, 0x00, 0xf1, 0x53, 0x65, kind, 4, 0, 0, 0, 0];
    header.extend(wire_len.to_be_bytes());
    header.extend(extensions);
    header.extend([0, 0]);
    with_header(&header)
}

#[test]
fn erf_has_its_own_wire_length() {
    for kind in [2, 11, 16, 20] {
        let stripped = Framing::Erf.strip(&erf(kind, &[], 1000), 77).unwrap();
        assert_eq!((stripped.start, stripped.skip, stripped.len), (Start::Ethernet, 18, 40));
        assert_eq!(stripped.wire_len, 1000);
    }
}

#[test]
fn erf_padding_is_not_part_of_the_packet() {
    let stripped = Framing::Erf.strip(&erf(2, &[], 33), 77).unwrap();
    assert_eq!((stripped.len, stripped.wire_len), (33, 33));
}

#[test]
fn erf_extension_headers_are_chained_by_their_top_bit() {
    let two = [0x83, 0, 0, 0, 0, 0, 0, 0, 0x03, 0, 0, 0, 0, 0, 0, 0];
    let stripped = Framing::Erf.strip(&erf(0x82, &two, 40), 77).unwrap();
    assert_eq!((stripped.skip, stripped.len), (34, 40));
    let endless = [0x83; 64];
    assert_eq!(Framing::Erf.strip(&[&erf(0x82, &[], 40)[..16], &endless].concat(), 77), None);
}

#[test]
fn erf_records_of_other_media_are_not_understood() {
    assert_eq!(Framing::Erf.strip(&erf(21, &[], 40), 77), None, "InfiniBand");
}

#[test]
fn no_link_header_is_read_beyond_what_was_captured() {
    let packet = [0x82; 64];
    for framing in [Framing::Ethernet, Framing::Ip, Framing::Sll, Framing::Sll2, Framing::Erf] {
        for len in 0..packet.len() {
            if let Some(stripped) = framing.strip(&packet[..len], u32::MAX) {
                assert!(stripped.skip + stripped.len <= len);
                assert!(stripped.len <= stripped.wire_len as usize);
            }
        }
    }
}

#[test]
fn link_types_are_named_for_people() {
    assert_eq!(LinkType(247).to_string(), "InfiniBand (link type 247)");
    assert_eq!(LinkType(9999).to_string(), "link type 9999");
    assert!(NAMES.is_sorted_by_key(|(code, _)| code));
    assert!((0..=u16::MAX).map(LinkType).all(|l| !l.is_supported() || l.name().is_some()));
}
