//! Any bytes are a frame. It is refused, or it means the same however it lies in memory, has the
//! ICRC that its headers by themselves give, and comes out the same when written again.

#![no_main]

use roxe_wire::{
    Body, DropReason, Frame, FrameTemplate, IcrcCover, IpHeader, IpPair, Packet, Path, RawFrame,
    Room, Start, icrc,
};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    match receive(RawFrame::ethernet(bytes)) {
        // Chance hardly ever finds a right checksum.
        Err(DropReason::IpChecksum { expected, .. }) => {
            let mut bytes = bytes.to_vec();
            let ip_at = ip_at(&bytes);
            bytes[ip_at + 10..ip_at + 12].copy_from_slice(&expected.to_be_bytes());
            let again = receive(RawFrame::ethernet(&bytes));
            assert!(!matches!(again, Err(DropReason::IpChecksum { .. })), "{again:?}");
        }
        Ok(()) | Err(_) => {}
    }
    let _ = receive(RawFrame { start: Start::Ip, ..RawFrame::ethernet(bytes) });
});

fn receive(raw: RawFrame<'_>) -> Result<(), DropReason> {
    let frame = Frame::parse(raw)?;
    let Body::Whole { first: body, second: &[] } = frame.body else {
        panic!("all bytes are here, in one piece: {frame:?}")
    };
    let received = frame.received();
    let by_itself = IcrcCover::new(frame.ip, frame.udp.emit());
    assert_eq!(received.check_icrc(), Some(icrc::check(&by_itself, frame.body)));
    let _ = (received.grh(), frame.check_udp_checksum());
    let packet = Packet::parse(frame.body);

    let body_at = raw.first.len() - frame.padding - body.len();
    for in_first in [0, 3, 4, 5, 11, 12, 13, 20, body.len().saturating_sub(3)] {
        if in_first <= body.len() {
            split(&raw, body_at + in_first, &frame, &packet);
        }
    }
    if raw.start == Start::Ethernet {
        write_again(raw.first, body_at, &frame, &packet?);
    }
    Ok(())
}

/// In two pieces, and with the second lost.
fn split(
    raw: &RawFrame<'_>,
    at: usize,
    whole: &Frame<'_>,
    packet: &Result<Packet<'_>, DropReason>,
) {
    let (first, second) = raw.first.split_at(at);
    let frame = Frame::parse(RawFrame { first, second, ..*raw }).expect("as when it was whole");
    assert_eq!((frame.ip, frame.udp, frame.padding), (whole.ip, whole.udp, whole.padding));
    assert_eq!(frame.received().check_icrc(), whole.received().check_icrc());
    assert_eq!(frame.check_udp_checksum(), whole.check_udp_checksum());
    match (Packet::parse(frame.body), packet) {
        (Ok(other), Ok(packet)) => {
            assert_eq!(other.headers, packet.headers);
            assert_eq!(other.payload.pieces().concat(), packet.payload.pieces().concat());
        }
        (other, packet) => assert_eq!(&other, packet),
    }

    let kept = Frame::parse(RawFrame { first, ..*raw }).expect("the headers are here");
    assert_eq!(kept.body.len(), whole.body.len());
    match (Packet::parse(kept.body), packet) {
        (Ok(kept), Ok(packet)) => {
            assert_eq!((kept.headers, kept.payload.len()), (packet.headers, packet.payload.len()));
        }
        (Err(DropReason::Truncated { .. }), _) => {}
        (kept, packet) => assert_eq!(kept.err(), packet.err()),
    }
}

/// What a template cannot say (fragment flags other than "don't", an odd VLAN tag) is left out.
fn write_again(bytes: &[u8], body_at: usize, frame: &Frame<'_>, packet: &Packet<'_>) {
    let tags = frame.vlan.iter().flatten().count();
    let plain_tag = tags == 0 || tags == 1 && bytes[12..14] == [0x81, 0x00];
    let plain_ip = match frame.ip {
        IpHeader::V4(header) => header[6..8] == [0x40, 0],
        IpHeader::V6(_) => true,
    };
    if !plain_tag || !plain_ip {
        return;
    }
    let template = FrameTemplate::new(&Path {
        ethernet: frame.ethernet.expect("it begins with one"),
        vlan: frame.vlan[0],
        ip: IpPair::new(frame.ip.source(), frame.ip.destination()).expect("one family"),
        traffic_class: frame.ip.traffic_class(),
        hop_limit: frame.ip.hop_limit(),
        flow_label: frame.ip.flow_label(),
        source_port: frame.udp.source_port,
    });
    assert_eq!(template.headers_len(), body_at);
    let mut again = vec![0xa5; body_at + packet.len()];
    let len = packet.len().try_into().expect("it came in an IP packet");
    let cover = template.write(len, frame.ip.identification(), &mut again).expect("there is room");
    packet.emit(Room::whole(&mut again[body_at..]), &cover).expect("it was read");

    // The UDP checksum is the sender's choice, pad bytes may be anything, the ICRC may be wrong.
    let pad_at = again.len() - 4 - usize::from(packet.headers.bth.pad);
    again[body_at - 2..body_at].copy_from_slice(&frame.udp.checksum.to_be_bytes());
    assert_eq!(again[..pad_at], bytes[..pad_at]);
    let came = &bytes[pad_at..again.len() - 4];
    if came.iter().all(|&byte| byte == 0) {
        let written = Body::whole(&again[body_at..]).icrc();
        assert_eq!(written, icrc::expected(&frame.icrc_cover(), frame.body));
    }
}

fn ip_at(bytes: &[u8]) -> usize {
    let mut at = 14;
    while matches!(bytes[at - 2..at], [0x81 | 0x91 | 0x92, 0x00] | [0x88, 0xa8]) {
        at += 4;
    }
    at
}
