//! What is written is read again, whatever it is and wherever it lies.

mod sample;

use proptest::prelude::*;
use roxe_wire::opcode::{Header, OPCODES};
use roxe_wire::{
    Body, Bth, EmitError, Frame, FrameTemplate, Headers, IcrcCover, IpHeader, IpPair, Packet,
    PacketWriter, Payload, RawFrame, Room, icrc,
};
use sample::{frame, headers, packet, packet_of, path};

/// A cover of no particular frame.
fn some_cover() -> IcrcCover<'static> {
    IcrcCover::new(IpHeader::V4(&[0x45; 20]), [7; 8])
}

fn is_no_room(got: &Result<usize, EmitError>) -> bool {
    matches!(got, Err(EmitError::NoRoom { .. }))
}

proptest! {
    /// Every row of the table, in one piece and in two, from one piece of memory and from two.
    #[test]
    fn a_packet_comes_back_from_any_pieces(
        payload in prop::collection::vec(any::<u8>(), 0..300),
        rows in OPCODES.iter().map(|row| headers(row, 0)).collect::<Vec<_>>(),
        cuts in any::<[prop::sample::Index; 3]>(),
    ) {
        let cover = some_cover();
        for mut headers in rows {
            headers.bth.pad = roxe_wire::pad_for(payload.len());
            let opcode = headers.bth.row().unwrap();
            let (first, second) = payload.split_at(cuts[0].index(payload.len() + 1));
            let packet = Packet { opcode, headers, payload: Payload::Bytes { first, second } };

            let mut whole = vec![0xa5; packet.len()];
            prop_assert_eq!(packet.emit(Room::whole(&mut whole), &cover), Ok(whole.len()));
            prop_assert!(whole.len().is_multiple_of(4));
            let end = whole.len() - 4;
            let pad_at = end - usize::from(headers.bth.pad);
            prop_assert_eq!(&whole[pad_at..end], &[0; 3][..end - pad_at], "pad is zero");
            prop_assert_eq!(&whole[opcode.headers_len..pad_at], &payload[..]);
            prop_assert_eq!(icrc::check(&cover, Body::whole(&whole)), Ok(()));

            let mut pieces = vec![0x5a; packet.len()];
            let at = opcode.headers_len;
            let at = at + cuts[1].index(pieces.len() - at + 1);
            let (first, second) = pieces.split_at_mut(at);
            prop_assert_eq!(packet.emit(Room { first, second }, &cover), Ok(whole.len()));
            prop_assert_eq!(&pieces, &whole);

            let (first, second) = whole.split_at(cuts[2].index(whole.len() + 1));
            for body in [Body::whole(&whole), Body::Whole { first, second }] {
                let read = Packet::parse(body).unwrap();
                prop_assert_eq!(read.opcode, opcode);
                prop_assert_eq!(read.headers, headers);
                prop_assert_eq!(read.payload.pieces().concat(), &payload[..]);
                prop_assert_eq!(read.len(), whole.len());
                prop_assert_eq!(icrc::check(&cover, body), Ok(()));
            }
        }
    }

    /// A whole frame: everything that the path says arrives, and nothing else.
    #[test]
    fn a_frame_comes_back(
        path in path(),
        (headers, payload) in packet(1100),
        identification: u16,
        padding in 0..10_usize,
    ) {
        let packet = packet_of(&headers, &payload);
        let mut bytes = frame(&path, identification, &packet);
        bytes.resize(bytes.len() + padding, 0xee);
        let frame = Frame::parse(RawFrame::ethernet(&bytes)).unwrap();
        prop_assert_eq!(frame.ethernet, Some(path.ethernet));
        prop_assert_eq!(frame.vlan, [path.vlan, None]);
        prop_assert_eq!(IpPair::new(frame.ip.source(), frame.ip.destination()), Some(path.ip));
        prop_assert_eq!(frame.ip.traffic_class(), path.traffic_class);
        prop_assert_eq!(frame.ip.hop_limit(), path.hop_limit);
        prop_assert_eq!(frame.ip.flow_label(), path.flow_label);
        let is_v4 = matches!(frame.ip, IpHeader::V4(_));
        prop_assert_eq!(frame.ip.identification(), if is_v4 { identification } else { 0 });
        prop_assert_eq!(frame.udp.source_port, path.source_port);
        prop_assert_eq!(usize::from(frame.udp.len), packet.len() + 8);
        prop_assert_eq!(frame.padding, padding);
        prop_assert_eq!(Packet::parse(frame.body), Ok(packet));

        let received = frame.received();
        prop_assert_eq!(received.check_icrc(), Some(Ok(())));
        let grh = received.grh().unwrap();
        prop_assert_eq!(grh.ip_header(), Some(frame.ip));
        let addressing = received.addressing;
        let link = (Default::default(), Default::default());
        prop_assert_eq!(addressing.path().unwrap(), roxe_wire::Path { ethernet: link, ..path });
    }

    /// A header too many or too few, or too little room, is said; nothing is written beyond.
    #[test]
    fn what_cannot_be_written_is_refused((headers, payload) in packet(40), spare: u8) {
        let cover = some_cover();
        let packet = packet_of(&headers, &payload);
        let need = packet.len();
        for have in 0..need {
            let refused = EmitError::NoRoom { have, need };
            let mut room = vec![spare; need];
            let got = packet.emit(Room::whole(&mut room[..have]), &cover);
            if have < packet.opcode.headers_len {
                prop_assert!(is_no_room(&got), "{:?}", got);
            } else {
                prop_assert_eq!(got, Err(refused));
            }
            prop_assert!(room[have..].iter().all(|&byte| byte == spare));
        }
        // All headers go into the first piece.
        let mut room = vec![0; need];
        let (first, second) = room.split_at_mut(packet.opcode.headers_len - 1);
        let got = packet.emit(Room { first, second }, &cover);
        prop_assert!(is_no_room(&got), "{:?}", got);

        for &header in packet.opcode.headers {
            let mut packet = packet;
            let h = &mut packet.headers;
            match header {
                Header::Rdeth => h.rdeth = None,
                Header::Deth => h.deth = None,
                Header::Xrceth => h.xrceth = None,
                Header::Reth => h.reth = None,
                Header::AtomicEth => h.atomic_eth = None,
                Header::Aeth => h.aeth = None,
                Header::AtomicAckEth => h.atomic_ack_eth = None,
                Header::ImmDt => h.imm_dt = None,
                Header::Ieth => h.ieth = None,
                Header::Feth => h.feth = None,
                Header::CnpReserved => h.cnp_reserved = None,
            }
            let missing = EmitError::HeaderMissing { opcode: packet.opcode, header };
            prop_assert_eq!(packet.emit(Room::whole(&mut room), &cover), Err(missing));
        }
    }
}

#[test]
fn a_packet_that_contradicts_itself_is_refused() {
    let cover = some_cover();
    let mut room = [0; 128];
    let bth = Bth { opcode: 0x04, ..Bth::default() };
    let packet = packet_of(&Headers { bth, ..Headers::default() }, b"four");

    let mut other = packet;
    other.headers.bth.opcode = 0x05;
    let differ = EmitError::OpcodesDiffer { row: packet.opcode, bth: 0x05 };
    assert_eq!(other.emit(Room::whole(&mut room), &cover), Err(differ));

    let payload = Payload::Elided { len: 4, digest: 1 };
    let elided = Packet { payload, ..packet };
    assert_eq!(elided.emit(Room::whole(&mut room), &cover), Err(EmitError::PayloadElided));

    for code in 0..=255 {
        let bth = Bth { opcode: code, ..Bth::default() };
        let headers = Headers { bth, ..Headers::default() };
        if bth.row().is_none() {
            assert_eq!(headers.emit(&mut room), Err(EmitError::ReservedOpcode { code }));
        }
    }

    // Only two bits of a pad count are on the wire, and only two count.
    let mut padded = packet;
    padded.headers.bth.pad = 0xfe;
    assert_eq!(padded.len(), 12 + 4 + 2 + 4);
    assert_eq!(padded.emit(Room::whole(&mut room), &cover), Ok(22));
}

#[test]
fn a_writer_wants_all_of_the_payload_and_no_more() {
    let cover = some_cover();
    let bth = Bth { opcode: 0x04, pad: 2, ..Bth::default() };
    let headers = Headers { bth, ..Headers::default() };
    let mut room = [0xa5; 64];
    let mut writer = PacketWriter::start(&headers, 6, Room::whole(&mut room)).unwrap();
    assert_eq!(writer.copy(b"1234567"), Err(EmitError::PayloadLength { over: 1 }));
    writer.copy(b"1234").unwrap();
    assert_eq!(writer.missing(), 2);
    assert_eq!(writer.copy(b"567"), Err(EmitError::PayloadLength { over: 1 }));
    assert_eq!(writer.finish(&cover), Err(EmitError::PayloadMissing { missing: 2 }));

    // What lies across two pieces is written in one call that has both.
    let (first, second) = room.split_at_mut(15);
    let mut writer = PacketWriter::start(&headers, 6, Room { first, second }).unwrap();
    let lens = writer.fill(6, |[first, second]| {
        first.fill(b'0');
        second.fill(b'1');
        [first.len(), second.len()]
    });
    assert_eq!(lens, Ok([3, 3]));
    assert_eq!(writer.finish(&cover), Ok(24));
    assert_eq!(&room[12..20], b"000111\0\0");
    assert_eq!(icrc::check(&cover, Body::whole(&room[..24])), Ok(()));
}

#[test]
fn a_frame_is_no_longer_than_ip_allows() {
    for (v4, most) in [(true, 65535 - 28), (false, 65535 - 8)] {
        let text = if v4 { ["192.0.2.1", "192.0.2.2"] } else { ["2001:db8::1", "2001:db8::2"] };
        let [source, destination] = text.map(|text| text.parse().unwrap());
        let template = FrameTemplate::new(&roxe_wire::Path {
            ethernet: Default::default(),
            vlan: None,
            ip: IpPair::new(source, destination).unwrap(),
            traffic_class: Default::default(),
            hop_limit: 64,
            flow_label: 0,
            source_port: 0xc000,
        });
        let mut room = [0; FrameTemplate::MAX];
        assert!(template.write(most, 0, &mut room).is_some());
        assert!(template.write(most + 1, 0, &mut room).is_none());
        assert!(template.icrc_cover(most + 1, 0).is_none());
        assert!(template.write(16, 0, &mut room[..template.headers_len() - 1]).is_none());
        assert!(template.grh(most + 1, 0).is_none());
    }
    let families = IpPair::new("192.0.2.1".parse().unwrap(), "::1".parse().unwrap());
    assert_eq!(families, None);
}
