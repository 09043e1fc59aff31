//! Recordings that were changed in one place: what means something else must be found, what means
//! the same must not.

use std::path::Path;

use roxe_net::capture_file::CaptureReader;
use roxe_sim::replay::{Recording, Report, Role, Side};
use roxe_wire::{
    Credits, Frame, Headers, ICRC_LEN, Msn, NakCode, Packet, Psn, QKey, RawFrame, Room, Syndrome,
    icrc,
};

/// The frames of a capture in `pcaps/`, the first one at 0.
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

/// Changes headers and payload of a frame, and seals it anew.
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
    assert!(icrc::seal(&parsed.icrc_cover(), Room::whole(&mut frame[start..end])));
}

fn is_ack(frame: &[u8]) -> bool {
    let parsed = Frame::parse(RawFrame::ethernet(frame)).expect("it is RoCE");
    let packet = Packet::parse(parsed.body).expect("it is a packet");
    packet.headers.aeth.is_some_and(|aeth| matches!(aeth.syndrome, Syndrome::Ack(_)))
}

fn side(report: &Report, role: Role) -> &Side {
    report.sides.iter().find(|side| side.role == role).expect("the side was played")
}

fn nak(headers: &mut Headers, code: NakCode) {
    headers.aeth.as_mut().expect("an answer").syndrome = Syndrome::Nak(code);
}

/// Changes frame `number` of a capture that replays well; the first difference must be this.
fn expect(
    capture: &str,
    number: usize,
    how: impl FnOnce(&mut Headers, &mut [u8]),
    role: Role,
    found: (u64, &str),
) {
    let mut frames = frames(capture);
    assert_eq!(replay(&frames).differences(), 0, "{capture}");
    change(&mut frames[number - 1], how);
    let report = replay(&frames);
    let first = side(&report, role).differences.first();
    let first = first.map(|difference| (difference.frame, difference.what));
    assert_eq!(first, Some(found), "{capture}: {:#?}", report.sides);
}

#[test]
fn a_responder_that_acknowledges_what_never_came_differs() {
    let how = |headers: &mut Headers, _: &mut [u8]| headers.bth.psn = headers.bth.psn.next();
    expect("rc_send.pcap", 2, how, Role::Responder, (2, "psn"));
}

#[test]
fn a_responder_that_counts_messages_wrong_differs() {
    let how = |headers: &mut Headers, _: &mut [u8]| {
        let aeth = headers.aeth.as_mut().expect("an answer");
        aeth.msn = aeth.msn.next();
    };
    expect("rc_mix.pcap", 14, how, Role::Responder, (14, "msn"));
}

#[test]
fn a_responder_whose_atomics_do_not_follow_from_each_other_differs() {
    let how = |headers: &mut Headers, _: &mut [u8]| {
        headers.atomic_ack_eth.as_mut().expect("a result").original ^= 1;
    };
    expect("rc_atomic_faa.pcap", 4, how, Role::Responder, (4, "value"));
    expect("loss_atomic_ack.pcap", 8, how, Role::Responder, (8, "value"));
}

#[test]
fn a_responder_that_asks_for_the_wrong_psn_differs() {
    let how = |headers: &mut Headers, _: &mut [u8]| headers.bth.psn = headers.bth.psn.next();
    // Frame 76 might be right for all that can be seen; then the next NAK cannot be.
    expect("loss_req_send.pcap", 76, how, Role::Responder, (88, "answer"));
}

#[test]
fn a_responder_that_answers_a_frame_with_a_wrong_icrc_differs() {
    let mut frames = frames("rc_send.pcap");
    let last = frames[2].len() - 1;
    frames[2][last] ^= 0x10;
    let report = replay(&frames);
    let first = side(&report, Role::Responder).differences.first();
    let first = first.expect("it was acknowledged");
    assert_eq!((first.frame, first.ours.as_str()), (4, "nothing"));
}

#[test]
fn a_refusal_that_nothing_brings_about_is_not_compared() {
    let mut frames = frames("err_rkey_write.pcap");
    change(&mut frames[1], |headers, _| nak(headers, NakCode::RemoteOperationalError));
    let report = replay(&frames);
    let responder = side(&report, Role::Responder);
    assert_eq!(responder.not_comparable.first().map(|stop| stop.frame), Some(1));
    assert!(responder.differences.is_empty(), "{responder:#?}");
}

#[test]
fn a_connection_that_goes_on_after_a_fatal_nak_differs() {
    let mut frames = frames("rc_send.pcap");
    change(&mut frames[3], |headers, _| nak(headers, NakCode::InvalidRequest));
    let report = replay(&frames);
    // What came later was acknowledged, so this NAK ended nothing: nobody had a reason for it.
    let told = side(&report, Role::Responder).differences.iter();
    let told: Vec<_> = told.map(|one| (one.frame, one.what, one.ours.as_str())).collect();
    assert_eq!(told, [(4, "answer", "nothing")]);
}

#[test]
fn a_requester_that_asks_for_another_rest_of_a_read_differs() {
    let how = |headers: &mut Headers, _: &mut [u8]| {
        headers.reth.as_mut().expect("a READ").dma_len += 4;
    };
    expect("loss_read_resp.pcap", 13, how, Role::Requester, (13, "reth"));
}

#[test]
fn a_requester_that_goes_back_without_a_reason_of_ours_is_followed_by_a_timer() {
    // Frame 5 acknowledges nothing any more: that the WRITE comes again is a timer's doing then.
    let mut frames = frames("loss_retry_exceeded.pcap");
    frames.remove(3);
    let report = replay(&frames);
    let requester = side(&report, Role::Requester);
    assert_eq!((requester.differences.len(), requester.compared), (0, 10), "{requester:#?}");
}

#[test]
fn a_requester_that_sends_other_bytes_again_differs() {
    let how = |_: &mut Headers, payload: &mut [u8]| payload[7] ^= 1;
    expect("loss_req_send.pcap", 14, how, Role::Requester, (14, "data"));
}

#[test]
fn a_requester_that_repeats_an_atomic_with_other_operands_differs() {
    let how = |headers: &mut Headers, _: &mut [u8]| {
        headers.atomic_eth.as_mut().expect("an atomic").swap_add += 1;
    };
    expect("loss_random_mix.pcap", 35, how, Role::Requester, (35, "operands"));
}

#[test]
fn one_ack_for_many_says_the_same_as_many() {
    let mut frames = frames("rc_send_window.pcap");
    let last = frames.len() - 1;
    let mut number = 0;
    frames.retain(|frame| {
        number += 1;
        number > last || !is_ack(frame)
    });
    let report = replay(&frames);
    assert_eq!(report.differences(), 0, "{:#?}", report.sides);
    let responder = side(&report, Role::Responder);
    assert_eq!((responder.coalesced, responder.lost), (39, 0));
    let requester = side(&report, Role::Requester);
    assert_eq!((requester.delivered, requester.extra), (40, 0));
}

#[test]
fn credits_are_no_difference() {
    let mut frames = frames("rc_send_window.pcap");
    for frame in &mut frames {
        if is_ack(frame) {
            change(frame, |headers, _| {
                let aeth = headers.aeth.as_mut().expect("an answer");
                aeth.syndrome = Syndrome::Ack(Credits::for_buffers(64));
            });
        }
    }
    assert_eq!(replay(&frames).differences(), 0);
}

#[test]
fn read_data_may_begin_anew_or_go_on() {
    // Frame 15 is MIDDLE, the first answer to a READ that asks for the rest; ours says FIRST.
    let report = replay(&frames("loss_read_resp.pcap"));
    let responder = side(&report, Role::Responder);
    assert_eq!((responder.differences.len(), responder.lost), (0, 0));
    assert_eq!(responder.compared, 66);
}

#[test]
fn requests_that_were_lost_behind_the_recording_are_counted() {
    let report = replay(&frames("loss_retry_exceeded.pcap"));
    // Every other one of the first copies, and the packet that never came.
    let responder = side(&report, Role::Responder);
    assert_eq!((responder.differences.len(), responder.lost), (0, 4));
}

#[test]
fn a_receive_is_there_when_the_recording_shows_one() {
    let report = replay(&frames("err_rnr_recover.pcap"));
    let responder = side(&report, Role::Responder);
    assert_eq!((responder.differences.len(), responder.compared), (0, 9));
    assert_eq!(responder.delivered, 3);
}

#[test]
fn a_message_with_a_hole_is_dropped_and_the_others_delivered() {
    let mut frames = frames("uc_send_multi.pcap");
    frames.remove(2);
    let report = replay(&frames);
    assert_eq!(report.differences(), 0, "{:#?}", report.sides);
    let responder = side(&report, Role::Responder);
    assert_eq!((responder.delivered, responder.dropped), (1, 1));
}

#[test]
fn a_datagram_with_a_wrong_icrc_or_key_is_dropped() {
    let mut frames = frames("ud_send.pcap");
    let last = frames[0].len() - 1;
    frames[0][last] ^= 1;
    change(&mut frames[1], |headers, _| {
        headers.deth.as_mut().expect("a datagram").q_key = QKey(0x42);
    });
    let report = replay(&frames);
    assert_eq!(report.differences(), 0, "{:#?}", report.sides);
    let receiver = side(&report, Role::Receiver);
    assert_eq!((receiver.delivered, receiver.dropped), (2, 2));
}

#[test]
fn the_middle_of_a_recording_replays() {
    for first in [3, 20, 33, 60, 100, 150] {
        let frames = frames("loss_random_mix.pcap");
        let report = replay(&frames[first..]);
        assert_eq!(report.differences(), 0, "from {first}: {:#?}", report.sides);
    }
}

/// As many as a requester likes, on whatever connection.
#[test]
fn a_requester_may_have_thousands_of_packets_outstanding() {
    let two = frames("rc_send.pcap");
    let first = sequence_of(&two[0]);
    let mut many: Vec<Vec<u8>> = (0..3000).map(|_| two[0].clone()).collect();
    for (frame, at) in many.iter_mut().zip(0..) {
        change(frame, |headers, _| {
            headers.bth.psn = first.advance(at);
            headers.bth.ack_req = at == 2999;
        });
    }
    let mut ack = two[1].clone();
    change(&mut ack, |headers, _| {
        headers.bth.psn = first.advance(2999);
        headers.aeth.as_mut().expect("an answer").msn = Msn::new(3000);
    });
    many.push(ack);
    let report = replay(&many);
    assert_eq!(report.differences(), 0, "{:#?}", report.sides);
    assert_eq!(side(&report, Role::Requester).compared, 3000);
}

fn sequence_of(frame: &[u8]) -> Psn {
    let parsed = Frame::parse(RawFrame::ethernet(frame)).expect("it is RoCE");
    Packet::parse(parsed.body).expect("it is a packet").headers.bth.psn
}

#[test]
fn a_request_for_more_memory_than_is_set_aside_is_not_compared() {
    for (capture, len) in [("rc_write_mtu1024.pcap", 1 << 29), ("rc_read.pcap", 1 << 31)] {
        let mut frames = frames(capture);
        frames.truncate(1);
        change(&mut frames[0], |headers, _| {
            headers.reth.as_mut().expect("a request for memory").dma_len = len;
        });
        let report = replay(&frames);
        assert_eq!(report.differences(), 0, "{capture}: {:#?}", report.sides);
        let why = &side(&report, Role::Requester).not_comparable[0].why;
        assert_eq!(why, "its memory is too large to hold", "{capture}");
    }
}

/// None of them is too large by itself.
#[test]
fn requests_for_more_memory_together_than_is_set_aside_are_not_compared() {
    let request = frames("rc_read.pcap").remove(0);
    let first = sequence_of(&request);
    let many: Vec<Vec<u8>> = (0..20)
        .map(|at| {
            let mut request = request.clone();
            change(&mut request, |headers, _| {
                headers.bth.psn = first.advance(at << 16);
                headers.reth.as_mut().expect("a READ").dma_len = 1 << 28;
            });
            request
        })
        .collect();
    let report = replay(&many);
    assert_eq!(report.differences(), 0, "{:#?}", report.sides);
    let why = &side(&report, Role::Requester).not_comparable[0].why;
    assert_eq!(why, "its memory is too large to hold");
}

/// A short recording can ask for much, again and again.
#[test]
fn reads_that_ask_for_far_more_than_is_recorded_are_not_compared() {
    let two = frames("rc_read.pcap");
    let first = sequence_of(&two[0]);
    let (mut many, len) = (Vec::new(), 1 << 22);
    for at in 0..200 {
        let [mut request, mut answer] = [two[0].clone(), two[1].clone()];
        let psn = first.advance(at * (len >> 12));
        change(&mut request, |headers, _| {
            headers.bth.psn = psn;
            headers.reth.as_mut().expect("a READ").dma_len = len;
        });
        change(&mut answer, |headers, _| headers.bth.psn = psn);
        many.extend([request, answer]);
    }
    let report = replay(&many);
    let why = &side(&report, Role::Responder).not_comparable[0].why;
    assert_eq!(why, "its READs ask for far more than is recorded");
}

#[test]
fn no_recording_makes_a_replay_panic() {
    // Each frame of a mix is in turn taken away, doubled, and damaged.
    let whole = frames("rc_mix.pcap");
    for at in (0..whole.len()).step_by(4) {
        let mut frames = whole.clone();
        frames.remove(at);
        let _ = replay(&frames);
        frames.insert(at, whole[at].clone());
        frames.insert(at, whole[at].clone());
        let _ = replay(&frames);
        for byte in (42..whole[at].len().min(80)).step_by(17) {
            frames[at] = whole[at].clone();
            frames[at][byte] ^= 0x55;
            let _ = replay(&frames);
            if let Ok(frame) = Frame::parse(RawFrame::ethernet(&frames[at]))
                && Packet::parse(frame.body).is_ok()
            {
                change(&mut frames[at], |_, _| {});
                let _ = replay(&frames);
            }
        }
    }
}
