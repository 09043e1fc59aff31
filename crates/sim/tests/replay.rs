//! Recordings that were changed in one place: the change must be found.

use std::path::Path;

use roxe_net::capture_file::CaptureReader;
use roxe_sim::replay::{Recording, Report, Role};
use roxe_wire::{Aeth, Body, Frame, Headers, ICRC_LEN, Packet, RawFrame, Room, icrc};

/// The frames of a capture in `pcaps/`.
fn frames(capture: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../pcaps");
    let mut reader = CaptureReader::open(folder.join(capture)).expect("the capture opens");
    let mut frames = Vec::new();
    while let Some(record) = reader.next().expect("it can be read") {
        frames.push(record.data.to_vec());
    }
    frames
}

fn replay(frames: &[Vec<u8>]) -> Report {
    let mut recording = Recording::default();
    for (index, frame) in frames.iter().enumerate() {
        recording.add(index as u64 + 1, RawFrame::ethernet(frame));
    }
    recording.replay()
}

fn change(frame: &mut [u8], how: impl FnOnce(&mut Headers, &mut [u8])) {
    let copy = frame.to_vec();
    let parsed = Frame::parse(RawFrame::ethernet(&copy)).expect("it is RoCE");
    let packet = Packet::parse(parsed.body).expect("it is a packet");
    let start = copy.len() - parsed.padding - parsed.body.len();
    let payload = start + packet.opcode.headers_len;
    let mut headers = packet.headers;
    how(&mut headers, &mut frame[payload..payload + packet.payload.len()]);
    let end = start + parsed.body.len();
    headers.emit(&mut frame[start..end - ICRC_LEN]).expect("it fits");
    let room = Room::whole(&mut frame[start..end]);
    assert!(icrc::seal(&parsed.icrc_cover(), room));
}

#[test]
fn explore() {
    for capture in ["rc_mix.pcap","dup_req_mix.pcap","loss_random_mix.pcap","loss_req_send.pcap","err_rkey_write.pcap","rc_atomic_faa.pcap","loss_ack.pcap","loss_read_resp.pcap","err_rnr_recover.pcap","rc_send_window.pcap", "loss_atomic_ack.pcap"] {
        let all = frames(capture);
        let base = replay(&all).differences();
        let mut score = std::collections::BTreeMap::new();
        for n in 0..all.len() {
            let f = Frame::parse(RawFrame::ethernet(&all[n])).unwrap();
            let p = Packet::parse(f.body).unwrap();
            let op = p.opcode.short_name();
            let mut tries: Vec<(&str, Vec<Vec<u8>>)> = vec![];
            let mut gone = all.clone(); gone.remove(n); tries.push(("gone", gone));
            let mut m = all.clone(); change(&mut m[n], |h,_| h.bth.psn = h.bth.psn.next()); tries.push(("psn+1", m));
            if !p.payload.is_empty() { let mut m = all.clone(); change(&mut m[n], |_,d| d[0]^=1); tries.push(("data", m)); }
            if p.headers.aeth.is_some() {
                let mut m = all.clone(); change(&mut m[n], |h,_| { let a=h.aeth.as_mut().unwrap(); a.msn = a.msn.next(); }); tries.push(("msn", m));
                let mut m = all.clone(); change(&mut m[n], |h,_| { let a=h.aeth.as_mut().unwrap(); a.syndrome = roxe_wire::Syndrome::Nak(roxe_wire::NakCode::from_bits(2)); }); tries.push(("nak62", m));
            }
            if p.headers.atomic_ack_eth.is_some() { let mut m = all.clone(); change(&mut m[n], |h,_| h.atomic_ack_eth.as_mut().unwrap().original ^= 1); tries.push(("value", m)); }
            if p.headers.reth.is_some() { let mut m = all.clone(); change(&mut m[n], |h,_| h.reth.as_mut().unwrap().va += 8); tries.push(("va", m)); 
              let mut m = all.clone(); change(&mut m[n], |h,_| h.reth.as_mut().unwrap().dma_len += 1); tries.push(("len", m)); }
            for (what, frames) in tries {
                let report = replay(&frames);
                let e = score.entry((op, what)).or_insert((0, 0, vec![]));
                e.1 += 1; if report.differences() != base { e.0 += 1; } else { e.2.push(n+1); }
            }
        }
        println!("{capture} base {base}");
        for ((op, what), (hit, of, missed)) in score { println!("  {op:22} {what:8} {hit}/{of}  missed {:?}", &missed[..missed.len().min(14)]); }
    }
}
