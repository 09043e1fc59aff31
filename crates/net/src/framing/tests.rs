use std::net::Ipv6Addr;

use roxe_wire::{
    Body, Frame, ICRC_LEN, IpPair, MacAddress, Path, RawFrame, TrafficClass, VlanTag, icrc,
};

use super::*;

fn template(v6: bool, vlan: bool) -> FrameTemplate {
    let v4 = |last| [192, 0, 2, last].into();
    let ip = if v6 {
        IpPair::V6 { source: Ipv6Addr::LOCALHOST, destination: Ipv6Addr::LOCALHOST }
    } else {
        IpPair::V4 { source: v4(1), destination: v4(2) }
    };
    FrameTemplate::new(&Path {
        ethernet: (MacAddress([2; 6]), MacAddress([4; 6])),
        vlan: vlan.then_some(VlanTag(7)),
        ip,
        traffic_class: TrafficClass(0),
        hop_limit: 64,
        flow_label: 0,
        source_port: 0xc000,
    })
}

/// Frames a packet of `len` bytes in pieces of these lengths, and takes it apart again.
fn round_trip(framer: &mut Framer, path: &FrameTemplate, len: usize, pieces: [usize; 2]) {
    let packet: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
    let [mut first, mut second] = pieces.map(|len| vec![0xee; len]);
    let framed = framer.frame(&mut first, &mut second, &mut |room| {
        let (head, tail) = packet.split_at(len.min(room.first.len()));
        room.first[..head.len()].copy_from_slice(head);
        room.second[..tail.len()].copy_from_slice(tail);
        Some(Outgoing { path, len, seal: Seal::Compute })
    });
    let frame_len = path.headers_len() + len;
    assert_eq!(framed, Framed::Frame { packet_len: len, frame_len });

    let in_first = frame_len.min(first.len());
    let raw = RawFrame {
        first: &first[..in_first],
        second: &second[..frame_len - in_first],
        wire_len: frame_len,
        ..RawFrame::ethernet(&[])
    };
    let frame = Frame::parse(raw).expect("it is a RoCEv2 frame");
    icrc::check(&frame.icrc_cover(), frame.body).expect("its ICRC is right");
    let Body::Whole { first, second } = frame.body else { panic!("all of it is here") };
    let mut arrived = [first, second].concat();
    arrived.truncate(len - ICRC_LEN);
    assert_eq!(arrived, packet[..len - ICRC_LEN]);
}

#[test]
fn any_path_any_length_any_cut() {
    let paths = [(false, false), (true, true), (true, false), (false, true)];
    let mut framer = Framer::new(2000);
    for len in [16, 20, 116, 120, 124, 128, 132, 136, 140, 144, 180] {
        // Every change from one kind of path to another.
        for first in paths {
            for second in paths {
                for (v6, vlan) in [first, second] {
                    round_trip(&mut framer, &template(v6, vlan), len, [180, 180]);
                    round_trip(&mut framer, &template(v6, vlan), len, [300, 0]);
                }
            }
        }
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let path = template(false, false);
    let frame = |len| {
        let mut outgoing = Some(Outgoing { path: &path, len, seal: Seal::Compute });
        Framer::new(2000).frame(&mut [0; 100], &mut [0; 20], &mut |_| outgoing.take())
    };
    assert_eq!(frame(78), Framed::Frame { packet_len: 78, frame_len: 120 });
    assert_eq!(frame(79), Framed::Unsendable);
    assert_eq!(frame(3), Framed::Unsendable);
    assert_eq!(frame(usize::MAX / 2), Framed::Unsendable);
    let mut outgoing = Some(Outgoing { path: &path, len: 79, seal: Seal::Compute });
    let too_long = Framer::new(120).frame(&mut [0; 200], &mut [], &mut |_| outgoing.take());
    assert_eq!(too_long, Framed::Unsendable);
    let nothing = Framer::new(2000).frame(&mut [0; 100], &mut [], &mut |_| None);
    assert_eq!(nothing, Framed::Nothing);
}

#[test]
fn a_seal_that_was_written_stays() {
    let path = template(false, false);
    let mut bytes = [0; 100];
    let mut outgoing = Some(Outgoing { path: &path, len: 20, seal: Seal::AsWritten });
    let framed = Framer::new(2000).frame(&mut bytes, &mut [], &mut |room| {
        room.first[..20].fill(0x5a);
        outgoing.take()
    });
    assert_eq!(framed, Framed::Frame { packet_len: 20, frame_len: 62 });
    assert_eq!(bytes[42..62], [0x5a; 20]);
}
