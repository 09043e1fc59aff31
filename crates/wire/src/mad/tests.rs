use super::cm::*;
use super::*;
use crate::{AckTimeout, Gid, Mtu, PKey, Psn, QKey, Qpn, StaticRate};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::string::{String, ToString};
use std::vec::Vec;

/// A datagram of the kind with these bytes behind its header.
fn datagram((attribute_id, method): (u16, u8), data: layout::Data) -> [u8; Mad::LEN] {
    let header = MadHeader {
        base_version: 1,
        class: 7,
        class_version: 2,
        method,
        status: 0,
        class_specific: 0,
        transaction_id: 0x0123_4567_89ab_cdef,
        attribute_id,
        attribute_modifier: 0,
    };
    let mut bytes = [0; Mad::LEN];
    bytes[..24].copy_from_slice(&header.emit());
    bytes[24..].copy_from_slice(&data);
    bytes
}

fn emit(mad: &Mad) -> [u8; Mad::LEN] {
    let mut room = [0xee; Mad::LEN];
    mad.emit(&mut room);
    room
}

/// Where a message has a length of additional information, and where that area starts.
fn info_of(attribute_id: u16) -> Option<(usize, u32, usize)> {
    match attribute_id {
        0x0012 => Some((9, 1, 12)),
        0x001a => Some((8, 0, 12)),
        0x0018 => Some((5, 0, 24)),
        _ => None,
    }
}

/// Every message has every bit pattern, so what `parse` makes of random bytes is every message.
fn any_data() -> impl Strategy<Value = layout::Data> {
    proptest::collection::vec(any::<u8>(), layout::DATA_LEN).prop_map(|b| b.try_into().unwrap())
}

proptest! {
    /// parse(emit(x)) = x for every message x.
    #[test]
    fn what_is_emitted_is_parsed(data in any_data(), kind in 0..KINDS.len(), len in 0..=72_u8) {
        let kind = KINDS[kind];
        let mut data = data;
        if let Some((at, shift, _)) = info_of(kind.0) {
            data[at] = len << shift;
        }
        let mad = Mad::parse(&datagram(kind, data)).unwrap();
        prop_assert_eq!((mad.message.attribute_id(), mad.message.method()), kind);
        prop_assert_eq!(Mad::parse(&emit(&mad)), Ok(mad));
    }

    /// emit(parse(bytes)) is `bytes` with the reserved bits cleared.
    #[test]
    fn what_is_parsed_is_emitted(data in any_data(), kind in 0..KINDS.len(), len in 0..=72_u8) {
        let kind = KINDS[kind];
        let mut data = data;
        let mut unused_info = 0..0;
        if let Some((at, shift, area)) = info_of(kind.0) {
            data[at] = len << shift;
            unused_info = area + usize::from(len)..area + 72;
        }
        let mad = Mad::parse(&datagram(kind, data)).unwrap();
        data.iter_mut().zip(mad.message.used()).for_each(|(byte, used)| *byte &= used);
        data[unused_info].fill(0);
        prop_assert_eq!(emit(&mad), datagram(kind, data));
    }

    /// Any bytes of any length: an answer, not a panic, and no dependence on what the room held.
    #[test]
    fn nothing_panics(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        if let Ok(mad) = Mad::parse(&bytes) {
            let _ = emit(&mad);
        }
    }

    /// The same with a header that lets the bytes in.
    #[test]
    fn nothing_panics_behind_a_good_header(data in any_data(), kind in 0..KINDS.len()) {
        let kind = KINDS[kind];
        match Mad::parse(&datagram(kind, data)) {
            Ok(mad) => {
                let mut names = BTreeSet::new();
                mad.for_each_field(&mut |name, value| {
                    assert!(names.insert(name), "{name} twice");
                    let _ = value.to_string();
                });
                prop_assert!(mad.to_string().starts_with("CM "));
            }
            Err(reason) => {
                let (at, shift, _) = info_of(kind.0).unwrap();
                let need = usize::from(data[at] >> shift);
                prop_assert!(need > 72);
                prop_assert_eq!(reason, DropReason::Truncated { have: 72, need });
            }
        }
    }

    #[test]
    fn headers_round_trip(bytes in any::<[u8; MadHeader::LEN]>()) {
        let mut bytes = bytes;
        let header = MadHeader::parse(bytes);
        bytes[18..20].fill(0);
        prop_assert_eq!(header.emit(), bytes);
        prop_assert_eq!(MadHeader::parse(bytes), header);
    }

    #[test]
    fn ip_cm_headers_round_trip(
        versions in any::<u8>(), source_port in any::<u16>(), from in any::<u128>(),
        to in any::<u128>(), v6 in any::<bool>(), rest in any::<[u8; 56]>(),
    ) {
        let ip = |bits: u128| match v6 {
            true => IpAddr::V6(Ipv6Addr::from_bits(bits)),
            #[expect(clippy::cast_possible_truncation, reason = "the low half is meant")]
            false => IpAddr::V4(Ipv4Addr::from_bits(bits as u32)),
        };
        let header = IpCmHeader {
            major_version: Bits::new(versions >> 4),
            minor_version: Bits::new(versions),
            source_port,
            addresses: AddressPair::new(ip(from), ip(to)).unwrap(),
        };
        prop_assert_eq!(IpCmHeader::parse(header.emit()), Some(header));
        let private = PrivateData::<92>::with_ip_cm(header, &rest).unwrap();
        prop_assert_eq!(private.ip_cm(), Some((header, &rest[..])));
        prop_assert_eq!(PrivateData::<92>::with_ip_cm(header, &[0; 57]), None);
        prop_assert_eq!(PrivateData::<35>::with_ip_cm(header, &[]), None);
    }
}

/// Each bit alone, in each message: it comes back, or it is reserved and does not.
#[test]
fn every_bit_is_a_field_or_reserved() {
    for kind in KINDS {
        for bit in 0..layout::DATA_LEN * 8 {
            let (at, mask) = (bit / 8, 0x80 >> (bit % 8));
            let mut data = [0; layout::DATA_LEN];
            data[at] = mask;
            if let Some((length, shift, area)) = info_of(kind.0) {
                if length == at && mask >> shift > 72 {
                    assert!(Mad::parse(&datagram(*kind, data)).is_err());
                    continue;
                }
                if (area..area + 72).contains(&at) {
                    data[length] |= 72 << shift;
                }
            }
            let mad = Mad::parse(&datagram(*kind, data)).unwrap();
            data.iter_mut().zip(mad.message.used()).for_each(|(byte, used)| *byte &= used);
            assert_eq!(emit(&mad), datagram(*kind, data), "{} bit {bit}", mad.message.name());
        }
    }
}

/// The areas that the tables call reserved, as (first bit, bits).
#[test]
fn reserved_areas_are_those_of_the_tables() {
    #[rustfmt::skip]
    let tables: &[(u16, &[(usize, usize)])] = &[
        (0x0010, &[(32, 8), (192, 32), (724, 6), (757, 3), (765, 3),
                   (1076, 6), (1109, 3), (1117, 1), (1118, 2)]),
        (0x0011, &[(66, 6), (77, 3)]),
        (0x0012, &[(66, 6), (79, 1)]),
        (0x0013, &[(220, 4)]),
        (0x0014, &[]),
        (0x0015, &[(88, 8)]),
        (0x0016, &[]),
        (0x0017, &[(48, 16)]),
        (0x0018, &[]),
        (0x0019, &[(64, 32), (125, 3), (128, 32), (468, 4), (488, 2), (501, 3), (509, 3)]),
        (0x001a, &[(80, 16)]),
    ];
    for (attribute, reserved) in tables {
        let mad = Mad::parse(&datagram((*attribute, 3), [0; layout::DATA_LEN])).unwrap();
        let mut used = [0xff; layout::DATA_LEN];
        for bit in reserved.iter().flat_map(|(first, count)| *first..first + count) {
            used[bit / 8] &= !(0x80 >> (bit % 8));
        }
        if *attribute == 0x0010 {
            used[139] |= 0x04; // SAP supported, in the middle of a reserved area
        }
        assert_eq!(mad.message.used(), used, "{}", mad.message.name());
    }
}

#[test]
fn every_other_length_is_refused() {
    let bytes = [0; 600];
    for len in (0..600).filter(|len| *len != Mad::LEN) {
        assert_eq!(Mad::parse(&bytes[..len]), Err(DropReason::MadLength { len }));
    }
}

/// The whole header before the attribute: one combination in, everything else refused.
#[test]
fn other_classes_versions_and_methods_are_refused() {
    let good = datagram((0x0014, 3), [0; layout::DATA_LEN]);
    for at in 0..4 {
        for value in 0..=255 {
            let mut bytes = good;
            bytes[at] = value;
            let [base_version, class, class_version, method, ..] = bytes;
            let expected = match (at, value) {
                _ if bytes == good => continue,
                (3, 0x01 | 0x81) => DropReason::MadAttribute { attribute: 0x0014 },
                _ => DropReason::MadHeader { base_version, class, class_version, method },
            };
            assert_eq!(Mad::parse(&bytes), Err(expected), "byte {at} = {value:#x}");
        }
    }
}

#[test]
fn every_attribute_is_a_message_or_refused() {
    for method in [0x01, 0x03, 0x81] {
        for attribute in 0..=0xffff {
            let kind = (attribute, method);
            match Mad::parse(&datagram(kind, [0; layout::DATA_LEN])) {
                Ok(mad) => {
                    assert!(KINDS.contains(&kind));
                    assert_eq!((mad.message.attribute_id(), mad.message.method()), kind);
                }
                Err(reason) => {
                    assert!(!KINDS.contains(&kind));
                    assert_eq!(reason, DropReason::MadAttribute { attribute });
                }
            }
        }
    }
}

/// The header's bits that the class does not use come back as they were.
#[test]
fn status_and_modifier_are_kept() {
    let mut bytes = datagram((0x0001, 0x81), [0; layout::DATA_LEN]);
    bytes[4..8].copy_from_slice(&[0, 0x0c, 1, 2]);
    bytes[20..24].copy_from_slice(&[3, 4, 5, 6]);
    let mad = Mad::parse(&bytes).unwrap();
    assert_eq!((mad.status, mad.class_specific), (0x000c, 0x0102));
    assert_eq!(mad.attribute_modifier, 0x0304_0506);
    assert_eq!(emit(&mad), bytes);
}

/// Writes `width` bits of `value` from bit `at` on, bit 0 being the most significant of byte 0.
/// Deliberately another way than that of the code under test.
fn set(data: &mut layout::Data, at: usize, width: usize, value: u128) {
    for i in 0..width {
        if value >> (width - 1 - i) & 1 == 1 {
            data[(at + i) / 8] |= 0x80 >> ((at + i) % 8);
        }
    }
}

/// The messages that no capture has, built bit by bit from their tables.
#[test]
fn mra_lap_and_apr_stand_where_their_tables_say() {
    let ids = |data: &mut layout::Data| {
        set(data, 0, 32, 0xa1b2_c3d4);
        set(data, 32, 32, 0x0bad_cafe);
    };
    let (local_comm_id, remote_comm_id) = (CommId(0xa1b2_c3d4), CommId(0x0bad_cafe));

    let mut data = [0; layout::DATA_LEN];
    ids(&mut data);
    set(&mut data, 64, 2, 2);
    set(&mut data, 72, 5, 24);
    set(&mut data, 80, 16, 0x6162);
    let mra = MessageReceipt {
        local_comm_id,
        remote_comm_id,
        message_mraed: AnsweredMessage::Other,
        service_timeout: CmTimeout::from_bits(24),
        private_data: PrivateData::new(b"ab").unwrap(),
    };
    assert_eq!((MessageReceipt::parse(&data), mra.emit()), (Ok(mra), data));
    assert_eq!(
        mra.to_string(),
        "CM MRA: LAP received, answer within 68.719s, comm id 0xa1b2c3d4 to 0x0badcafe"
    );

    let local = Gid::from(Ipv4Addr::new(10, 0, 0, 1));
    let remote = Gid::from(Ipv6Addr::LOCALHOST);
    let mut data = [0; layout::DATA_LEN];
    ids(&mut data);
    set(&mut data, 96, 24, 0x12_3456);
    set(&mut data, 120, 5, 19);
    set(&mut data, 160, 16, 0xffff);
    set(&mut data, 176, 16, 0xfffe);
    set(&mut data, 192, 128, u128::from_be_bytes(local.0));
    set(&mut data, 320, 128, u128::from_be_bytes(remote.0));
    set(&mut data, 448, 20, 0xa_bcde);
    set(&mut data, 472, 8, 0x68);
    set(&mut data, 480, 8, 64);
    set(&mut data, 490, 6, 16);
    set(&mut data, 496, 4, 9);
    set(&mut data, 500, 1, 1);
    set(&mut data, 504, 5, 18);
    set(&mut data, 512, 8, 0x61);
    let path = Path {
        local_lid: 0xffff,
        remote_lid: 0xfffe,
        local_gid: local,
        remote_gid: remote,
        flow_label: FlowLabel::new(0xa_bcde),
        packet_rate: StaticRate::from_bits(16),
        traffic_class: 0x68,
        hop_limit: 64,
        sl: Bits::new(9),
        subnet_local: true,
        local_ack_timeout: AckTimeout::new(18).unwrap(),
    };
    let lap = LoadAlternatePath {
        local_comm_id,
        remote_comm_id,
        remote_qpn: Qpn::new(0x12_3456),
        remote_cm_response_timeout: CmTimeout::from_bits(19),
        alternate_path: path,
        private_data: PrivateData::new(b"a").unwrap(),
    };
    assert_eq!((LoadAlternatePath::parse(&data), lap.emit()), (Ok(lap), data));
    assert_eq!(
        lap.to_string(),
        "CM LAP: alternate path from 10.0.0.1 to ::1 for QP 0x123456, \
         comm id 0xa1b2c3d4 to 0x0badcafe"
    );

    let mut data = [0; layout::DATA_LEN];
    ids(&mut data);
    set(&mut data, 64, 8, 3);
    set(&mut data, 72, 8, 4);
    set(&mut data, 96, 24, 0x01_0203);
    set(&mut data, 84 * 8, 8, 0x61);
    let apr = AlternatePathResponse {
        local_comm_id,
        remote_comm_id,
        additional_information: AdditionalInfo::new(&[1, 2, 3]).unwrap(),
        ap_status: AlternatePathStatus::Redirect,
        private_data: PrivateData::new(b"a").unwrap(),
    };
    assert_eq!((AlternatePathResponse::parse(&data), apr.emit()), (Ok(apr), data));
    assert_eq!(apr.to_string(), "CM APR: redirected (4), comm id 0xa1b2c3d4 to 0x0badcafe");
}

/// The alternate path of a REQ, the ECE vendor IDs, and the fields that Linux leaves at zero.
#[test]
fn fields_that_no_capture_has_stand_where_their_tables_say() {
    let mut data = [0; layout::DATA_LEN];
    set(&mut data, 40, 24, 0x00_02c9);
    set(&mut data, 28 * 8, 32, 0x0123_4567);
    set(&mut data, 36 * 8, 24, 0x11_2233);
    set(&mut data, 40 * 8, 24, 0x44_5566);
    set(&mut data, 43 * 8 + 5, 2, 3);
    set(&mut data, 50 * 8 + 4, 1, 1);
    set(&mut data, 51 * 8 + 4, 1, 1);
    set(&mut data, 51 * 8 + 5, 3, 1);
    set(&mut data, 96 * 8, 16, 5);
    set(&mut data, 98 * 8, 16, 6);
    set(&mut data, 100 * 8, 128, 7);
    set(&mut data, 116 * 8, 128, 8);
    set(&mut data, 132 * 8, 20, 0x1_2345);
    set(&mut data, 135 * 8 + 2, 6, 3);
    set(&mut data, 136 * 8, 8, 9);
    set(&mut data, 137 * 8, 8, 10);
    set(&mut data, 138 * 8, 4, 11);
    set(&mut data, 138 * 8 + 4, 1, 1);
    set(&mut data, 139 * 8, 5, 12);
    set(&mut data, 139 * 8 + 5, 1, 1);
    let request = Request::parse(&data).unwrap();
    let expected = Request {
        vendor_id: VendorId::new(0x02c9),
        local_q_key: QKey(0x0123_4567),
        local_eecn: crate::EeContext::new(0x11_2233),
        remote_eecn: crate::EeContext::new(0x44_5566),
        transport_service_type: TransportServiceType::Extended,
        rdc_exists: true,
        srq: true,
        extended_transport_type: Bits::new(1),
        partition_key: PKey(0),
        alternate_path: Path {
            local_lid: 5,
            remote_lid: 6,
            local_gid: Gid(7_u128.to_be_bytes()),
            remote_gid: Gid(8_u128.to_be_bytes()),
            flow_label: FlowLabel::new(0x1_2345),
            packet_rate: StaticRate::from_bits(3),
            traffic_class: 9,
            hop_limit: 10,
            sl: Bits::new(11),
            subnet_local: true,
            local_ack_timeout: AckTimeout::new(12).unwrap(),
        },
        sap_supported: true,
        ..Request::default()
    };
    assert_eq!((request, expected.emit()), (expected, data));

    let mut data = [0; layout::DATA_LEN];
    (data[15], data[19], data[23]) = (0x12, 0x34, 0x56);
    set(&mut data, 26 * 8 + 5, 2, 2);
    set(&mut data, 27 * 8, 3, 6);
    set(&mut data, 27 * 8 + 3, 1, 1);
    let expected = Reply {
        vendor_id: VendorId::new(0x12_3456),
        failover_accepted: Bits::new(2),
        rnr_retry_count: Bits::new(6),
        srq: true,
        ..Reply::default()
    };
    assert_eq!((Reply::parse(&data), expected.emit()), (Ok(expected), data));

    let mut data = [0; layout::DATA_LEN];
    (data[6], data[7], data[11]) = (0x12, 0x34, 0x56);
    (data[4], data[5]) = (5, 2);
    (data[24], data[25]) = (0xaa, 0xbb);
    let expected = SidrReply {
        status: SidrStatus::UnsupportedVersion,
        additional_information: AdditionalInfo::new(&[0xaa, 0xbb]).unwrap(),
        vendor_id: VendorId::new(0x12_3456),
        ..SidrReply::default()
    };
    assert_eq!((SidrReply::parse(&data), expected.emit()), (Ok(expected), data));
}

/// A REJ for a wrong GID, with the GID to use: how Linux answers.
#[test]
fn a_reject_carries_its_information() {
    let gid = Gid::from(Ipv4Addr::new(192, 0, 2, 11));
    let reject = Reject {
        local_comm_id: CommId(0),
        remote_comm_id: CommId(7),
        message_rejected: AnsweredMessage::Req,
        ari: AdditionalInfo::new(&gid.0).unwrap(),
        reason: RejectReason::InvalidGid,
        private_data: PrivateData::ZERO,
    };
    let data = reject.emit();
    assert_eq!(&data[8..28], [&[0, 32, 0, 12], &gid.0[..]].concat());
    assert_eq!(
        reject.to_string(),
        "CM REJ: invalid GID (12), REQ refused, comm id 0x00000000 to 0x00000007, \
         information 00000000000000000000ffffc000020b"
    );
}

/// Codes with names and codes without: all come back, and every name is another.
#[test]
fn codes_round_trip() {
    for code in 0..=0xffff {
        assert_eq!(RejectReason::from_code(code).code(), code);
    }
    for code in 0..=0xff {
        assert_eq!(AlternatePathStatus::from_code(code).code(), code);
        assert_eq!(SidrStatus::from_code(code).code(), code);
    }
    assert_eq!(RejectReason::ALL.len(), 34, "1 to 35 without 34");
    assert_eq!(AlternatePathStatus::ALL.len(), 14);
    assert_eq!(SidrStatus::ALL.len(), 6);
    let words: BTreeSet<_> = RejectReason::ALL.iter().map(|reason| reason.words()).collect();
    assert_eq!(words.len(), 34);
    assert_eq!(RejectReason::InvalidServiceId.to_string(), "invalid service ID (8)");
    assert_eq!(RejectReason::Unknown(34).to_string(), "unknown (34)");
}

#[test]
fn a_request_says_what_it_wants() {
    let addresses = AddressPair::V4 {
        source: Ipv4Addr::new(10, 10, 0, 3),
        destination: Ipv4Addr::new(10, 10, 0, 2),
    };
    let (major_version, minor_version) = (Bits::default(), Bits::default());
    let header = IpCmHeader { major_version, minor_version, source_port: 41234, addresses };
    let mut request = Request {
        local_comm_id: CommId(0x108a_4423),
        service_id: ServiceId::from_port(PortSpace::Tcp, 7471),
        local_qpn: Qpn::new(0x11),
        starting_psn: Psn::new(4093),
        path_packet_payload_mtu: Bits::new(5),
        private_data: PrivateData::with_ip_cm(header, b"hello").unwrap(),
        ..Request::default()
    };
    assert_eq!(request.path_mtu(), Some(Mtu::B4096));
    assert_eq!(
        request.to_string(),
        "CM REQ: connect to TCP port 7471 from 10.10.0.3:41234, QP 0x11, starting PSN 4093, \
         comm id 0x108a4423"
    );
    let (_, rest) = request.ip_cm().unwrap();
    assert_eq!((&rest[..5], rest.len()), (&b"hello"[..], 56));

    request.service_id = ServiceId(0x1234);
    request.transport_service_type = TransportServiceType::UnreliableConnection;
    request.primary_path.local_gid = Gid::from(Ipv4Addr::new(10, 10, 0, 3));
    request.path_packet_payload_mtu = Bits::new(6);
    assert_eq!((request.ip_cm(), request.path_mtu()), (None, None));
    assert_eq!(
        request.to_string(),
        "CM REQ: connect to service ID 0x0000000000001234 from 10.10.0.3, UC, QP 0x11, \
         starting PSN 4093, comm id 0x108a4423"
    );
}

/// Every name is lower case, has its message's prefix, and no two fields of a datagram share one.
#[test]
fn field_names_are_regular() {
    for kind in KINDS {
        let mad = Mad::parse(&datagram(*kind, [0; layout::DATA_LEN])).unwrap();
        let mut names: Vec<String> = Vec::new();
        mad.for_each_field(&mut |name, _| names.push(name.into()));
        let different: BTreeSet<_> = names.iter().collect();
        assert_eq!(different.len(), names.len());
        for name in names {
            assert!(name.starts_with("mad.") || name.starts_with("cm."), "{name}");
            let allowed =
                |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "._".contains(c);
            assert!(name.chars().all(allowed), "{name}");
        }
    }
}
