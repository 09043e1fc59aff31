//! Frames whose every field is known: parsed to those values, written again byte for byte, or
//! refused for the stated reason. `vectors.json` was generated and checked apart from this code.

use std::net::IpAddr;

use roxe_wire::{
    Body, DropReason, Frame, FrameTemplate, IpPair, MacAddress, PKey, Packet, Path, Payload, QKey,
    Qpn, RawFrame, Room, icrc,
};
use serde_json::Value;

fn vectors() -> Value {
    serde_json::from_str(include_str!("vectors.json")).expect("vectors.json is JSON")
}

fn bytes_of(value: &Value) -> Vec<u8> {
    let text = value.as_str().expect("hexadecimal text");
    (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap()).collect()
}

/// A number that the file has as such, or as `0x…` text.
fn number(value: &Value) -> u64 {
    match value {
        Value::Number(number) => number.as_u64().unwrap(),
        Value::String(text) => u64::from_str_radix(text.trim_start_matches("0x"), 16).unwrap(),
        other => panic!("no number: {other}"),
    }
}

fn mac(value: &Value) -> MacAddress {
    let mut parts = value.as_str().unwrap().split(':');
    MacAddress(std::array::from_fn(|_| u8::from_str_radix(parts.next().unwrap(), 16).unwrap()))
}

fn check_outer(name: &str, vector: &Value, frame: &Frame<'_>) {
    let (eth, ip, udp) = (&vector["eth"], &vector["ip"], &vector["udp"]);
    assert_eq!(frame.ethernet, Some((mac(&eth["dst"]), mac(&eth["src"]))), "{name}");
    let tag = frame.vlan[0].map(|tag| u64::from(tag.0));
    assert_eq!(tag, eth["vlan_tci"].is_string().then(|| number(&eth["vlan_tci"])), "{name}");
    assert_eq!(frame.padding as u64, number(&eth["trailing_pad_bytes"]), "{name}");
    let address = |key: &str| ip[key].as_str().unwrap().parse::<IpAddr>().unwrap();
    assert_eq!(frame.ip.source(), address("src"), "{name}");
    assert_eq!(frame.ip.destination(), address("dst"), "{name}");
    let (class, limit) = if ip["tos"].is_null() {
        assert_eq!(u64::from(frame.ip.flow_label()), number(&ip["flow_label"]), "{name}");
        (&ip["traffic_class"], &ip["hop_limit"])
    } else {
        assert_eq!(u64::from(frame.ip.identification()), number(&ip["id"]), "{name}");
        (&ip["tos"], &ip["ttl"])
    };
    assert_eq!(u64::from(frame.ip.traffic_class().0), number(class), "{name}");
    assert_eq!(u64::from(frame.ip.hop_limit()), number(limit), "{name}");
    assert_eq!(u64::from(frame.udp.source_port), number(&udp["sport"]), "{name}");
    assert_eq!(u64::from(frame.udp.len), number(&udp["length"]), "{name}");
    assert_eq!(u64::from(frame.udp.checksum), number(&udp["checksum"]), "{name}");
    assert_eq!(frame.check_udp_checksum(), Some(Ok(())), "{name}");
}

fn check_packet(name: &str, vector: &Value, packet: &Packet<'_>) {
    let (bth, ext, headers) = (&vector["bth"], &vector["ext"], &packet.headers);
    let field = |key: &str| number(&bth[key]);
    let ours = &headers.bth;
    assert_eq!(u64::from(ours.opcode), field("opcode"), "{name}");
    assert_eq!(u64::from(ours.solicited), field("se"), "{name}");
    assert_eq!(u64::from(ours.mig_req), field("m"), "{name}");
    assert_eq!(u64::from(ours.pad), field("pad"), "{name}");
    assert_eq!(u64::from(ours.p_key.0), field("pkey"), "{name}");
    assert_eq!(u64::from(ours.fecn), field("fecn"), "{name}");
    assert_eq!(u64::from(ours.becn), field("becn"), "{name}");
    assert_eq!(u64::from(ours.dest_qp.get()), field("dest_qpn"), "{name}");
    assert_eq!(u64::from(ours.ack_req), field("ack_req"), "{name}");
    assert_eq!(u64::from(ours.psn.get()), field("psn"), "{name}");

    let known = |key: &str| (!ext[key].is_null()).then(|| number(&ext[key]));
    let inside = |group: &str, key: &str| (!ext[group].is_null()).then(|| number(&ext[group][key]));
    assert_eq!(headers.imm_dt.map(|h| h.0.into()), known("imm"), "{name}");
    assert_eq!(headers.ieth.map(|h| h.r_key.0.into()), known("ieth_rkey"), "{name}");
    assert_eq!(headers.atomic_ack_eth.map(|h| h.original), known("atomicacketh"), "{name}");
    let feth = headers.feth.map(|h| u64::from(u32::from_be_bytes(h.emit())));
    assert_eq!(feth, known("feth"), "{name}");
    assert_eq!(headers.reth.map(|h| h.va), inside("reth", "va"), "{name}");
    assert_eq!(headers.reth.map(|h| h.r_key.0.into()), inside("reth", "rkey"), "{name}");
    assert_eq!(headers.reth.map(|h| h.dma_len.into()), inside("reth", "dmalen"), "{name}");
    let syndrome = headers.aeth.map(|h| u64::from(h.syndrome.to_byte()));
    assert_eq!(syndrome, inside("aeth", "syndrome"), "{name}");
    assert_eq!(headers.aeth.map(|h| h.msn.get().into()), inside("aeth", "msn"), "{name}");
    let atomic = headers.atomic_eth;
    assert_eq!(atomic.map(|h| h.va), inside("atomiceth", "va"), "{name}");
    assert_eq!(atomic.map(|h| h.r_key.0.into()), inside("atomiceth", "rkey"), "{name}");
    assert_eq!(atomic.map(|h| h.swap_add), inside("atomiceth", "swap_add"), "{name}");
    assert_eq!(atomic.map(|h| h.compare), inside("atomiceth", "compare"), "{name}");
    if name == "cm_rtu_v4" {
        // The file leaves this one's DETH out: queue pair 1 to queue pair 1.
        assert_eq!(headers.deth.map(|h| (h.q_key, h.source_qp)), Some((QKey::GSI, Qpn::GSI)));
    } else {
        let deth = headers.deth;
        assert_eq!(deth.map(|h| h.q_key.0.into()), inside("deth", "qkey"), "{name}");
        assert_eq!(deth.map(|h| h.source_qp.get().into()), inside("deth", "src_qp"), "{name}");
    }
    let payload = bytes_of(&vector["payload_hex"]);
    assert_eq!(packet.payload, Payload::bytes(&payload), "{name}");
}

/// Writes the frame from its parts alone.
fn emit(frame: &Frame<'_>, packet: &Packet<'_>) -> Vec<u8> {
    let template = FrameTemplate::new(&Path {
        ethernet: frame.ethernet.unwrap(),
        vlan: frame.vlan[0],
        ip: IpPair::new(frame.ip.source(), frame.ip.destination()).unwrap(),
        traffic_class: frame.ip.traffic_class(),
        hop_limit: frame.ip.hop_limit(),
        flow_label: frame.ip.flow_label(),
        source_port: frame.udp.source_port,
    });
    let (at, len) = (template.headers_len(), packet.len());
    let mut bytes = vec![0xa5; at + len];
    let len = u16::try_from(len).unwrap();
    let cover = template.write(len, frame.ip.identification(), &mut bytes).unwrap();
    packet.emit(Room::whole(&mut bytes[at..]), &cover).unwrap();
    bytes[at - 2..at].copy_from_slice(&frame.udp.checksum.to_be_bytes());
    bytes.resize(bytes.len() + frame.padding, 0);
    bytes
}

//= BC-002, BC-014, 01-1.4, 01-1.7, 03-3.1 test
#[test]
fn positive_vectors_parse_to_their_values_and_come_back_byte_for_byte() {
    let file = vectors();
    let all = file["vectors"].as_array().unwrap();
    assert_eq!(all.len(), 39);
    for vector in all {
        let name = vector["name"].as_str().unwrap();
        let bytes = bytes_of(&vector["frame_hex"]);
        let frame = Frame::parse(RawFrame::ethernet(&bytes)).expect(name);
        check_outer(name, vector, &frame);
        let cover = frame.icrc_cover();
        assert_eq!(icrc::check(&cover, frame.body), Ok(()), "{name}");
        let value = u32::try_from(number(&vector["icrc_value"])).unwrap();
        assert_eq!(frame.body.icrc(), Some(value), "{name}");
        let packet = Packet::parse(frame.body).expect(name);
        check_packet(name, vector, &packet);
        assert_eq!(emit(&frame, &packet), bytes, "{name}");
    }
}

/// A receiver with one queue pair, 0x11, in the default partition.
fn receive(bytes: &[u8]) -> Result<(), DropReason> {
    let frame = Frame::parse(RawFrame::ethernet(bytes))?;
    icrc::check(&frame.icrc_cover(), frame.body)?;
    let bth = Packet::parse(frame.body)?.headers.bth;
    if bth.dest_qp != Qpn::new(0x11) {
        return Err(DropReason::NoSuchQp { qpn: bth.dest_qp.get() });
    }
    if !bth.p_key.matches(PKey::DEFAULT) {
        return Err(DropReason::PKeyMismatch { p_key: bth.p_key.0 });
    }
    Ok(())
}

//= F01, F02, 03-3.1 test
#[test]
fn negative_vectors_are_refused_for_their_reason() {
    let file = vectors();
    let all = file["negative"].as_array().unwrap();
    assert_eq!(all.len(), 7);
    for vector in all {
        let name = vector["name"].as_str().unwrap();
        let bytes = bytes_of(&vector["frame_hex"]);
        let reason = receive(&bytes).expect_err(name);
        let as_stated = match name {
            "neg_bad_icrc" | "neg_payload_bitflip" | "neg_icrc_big_endian" => {
                matches!(reason, DropReason::IcrcMismatch { .. })
            }
            "neg_tver" => reason == DropReason::TransportVersion { version: 1 },
            "neg_bad_pkey" => reason == DropReason::PKeyMismatch { p_key: 0x1234 },
            "neg_unknown_qpn" => reason == DropReason::NoSuchQp { qpn: 0xab_cdef },
            "neg_reserved_opcode" => reason == DropReason::ReservedOpcode { code: 0x15 },
            other => panic!("unknown vector {other}"),
        };
        assert!(as_stated, "{name}: {reason}");
    }
    let DropReason::IcrcMismatch { expected, found } = receive(&bytes_of(
        &all.iter().find(|v| v["name"] == "neg_icrc_big_endian").unwrap()["frame_hex"],
    ))
    .unwrap_err() else {
        panic!("not an ICRC mismatch")
    };
    assert_eq!(expected, found.swap_bytes());
}

/// One frame in every way that memory can hold it gives one meaning.
//= BC-011 test
#[test]
fn wherever_a_frame_is_split_it_means_the_same() {
    let file = vectors();
    for vector in file["vectors"].as_array().unwrap() {
        let name = vector["name"].as_str().unwrap();
        let bytes = bytes_of(&vector["frame_hex"]);
        let whole = Frame::parse(RawFrame::ethernet(&bytes)).unwrap();
        let Body::Whole { first: body, .. } = whole.body else { panic!("{name} is whole") };
        let packet = Packet::parse(whole.body).unwrap();
        let cover = whole.icrc_cover();
        for split in 0..=body.len() {
            let (first, second) = body.split_at(split);
            let pieces = Body::Whole { first, second };
            assert_eq!(icrc::check(&cover, pieces), Ok(()), "{name} at {split}");
            let other = Packet::parse(pieces).unwrap();
            assert_eq!(other.headers, packet.headers, "{name} at {split}");
            assert_eq!(other.payload.pieces().concat(), packet.payload.pieces().concat());

            let mut room = vec![0; body.len()];
            if split >= packet.opcode.headers_len {
                let (first, second) = room.split_at_mut(split);
                assert_eq!(other.emit(Room { first, second }, &cover), Ok(body.len()));
                assert_eq!(room, body, "{name} at {split}");
            }
        }
    }
}
