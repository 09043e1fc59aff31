//! What a responder answers, in which order, and what requests get that come again: the next PSN is
//! 1000, the path MTU 256.

#[allow(dead_code, reason = "shared with other tests")]
mod peer;
#[allow(dead_code, reason = "shared with other tests")]
mod world;

use peer::{Sent, count, packet};
use roxe_transport::Outlet;
use roxe_transport::adapter::Count;
use roxe_transport::qp_state::{QpState, ServiceType};
use roxe_transport::work::{AccessFlags, Attributes, CompletionStatus};
use roxe_wire::{Body, Instant, Packet, Room};
use world::{End, KEY, attributes};

use CompletionStatus::Success;

fn responder() -> End {
    with(|_| {})
}

fn with(change: impl FnOnce(&mut Attributes)) -> End {
    let mut own = attributes(2, 1);
    change(&mut own);
    End::new(ServiceType::Rc, own)
}

fn send(psn: u32, bytes: &[u8]) -> Sent {
    packet("RC_SEND_ONLY", psn).bytes(bytes).ack_req()
}

fn write(psn: u32, bytes: &[u8]) -> Sent {
    packet("RC_WRITE_ONLY", psn).bytes(bytes).ack_req()
}

fn read(psn: u32, va: u64, len: u32) -> Sent {
    packet("RC_READ_REQUEST", psn).at(va, KEY).len(len).ack_req()
}

/// The connection in which READs have been answered once.
fn after_a_read(len: u32) -> End {
    let mut end = responder();
    end.adapter.memory[..1000].copy_from_slice(&count(0, 1000));
    end.take(read(1000, 0, len));
    end.leave();
    end
}

//= R04, 04-4.1 test
#[test]
fn half_of_all_psns_are_duplicates_and_the_others_gaps() {
    let half = 1 << 23;
    let mut end = responder();
    end.take(send((1000 + half - 1) & 0xff_ffff, b"x"));
    assert_eq!(end.leave(), ["ACKNOWLEDGE 1000 nak 0x60 msn 0"]);
    let mut end = responder();
    end.take(send((1000 + half) & 0xff_ffff, b"x"));
    assert_eq!(end.leave(), ["ACKNOWLEDGE 999 ack msn 0"], "a duplicate");
}

//= R05, IBA C9-105, 04-4.7 test
#[test]
fn a_duplicate_send_is_acknowledged_and_delivered_once() {
    let mut end = responder();
    (1..4).for_each(|id| end.room(id, 64));
    end.take(send(1000, b"one"));
    end.take(send(1001, b"two"));
    assert_eq!(end.leave(), ["ACKNOWLEDGE 1001 ack msn 2"]);
    end.take(send(1000, b"one"));
    assert_eq!(end.leave(), ["ACKNOWLEDGE 1001 ack msn 2"], "with the newest PSN");
    assert_eq!(end.received(), [(1, Success, 3), (2, Success, 3)]);
    assert_eq!(end.adapter.receives.len(), 1);
}

//= R06, IBA C9-105, 04-4.7 test
#[test]
fn a_duplicate_write_does_not_touch_memory() {
    let mut end = responder();
    end.take(write(1000, b"first"));
    end.leave();
    end.take(write(1000, b"other"));
    assert_eq!(end.leave(), ["ACKNOWLEDGE 1000 ack msn 1"]);
    assert_eq!(end.adapter.memory[..5], *b"first");
}

//= R07, 04-4.7 test
#[test]
fn a_duplicate_read_reads_memory_as_it_is_now() {
    let mut end = after_a_read(8);
    end.adapter.memory[..8].fill(9);
    end.take(read(1000, 0, 8));
    assert_eq!(end.leave(), ["READ_RESPONSE_ONLY 1000 ack msn 1 8 bytes from 9"]);
}

//= R08, BC-053, 04-4.7 test
#[test]
fn the_tail_of_a_read_may_be_asked_for_again() {
    let mut end = after_a_read(600);
    end.take(read(1001, 256, 344));
    assert_eq!(
        end.leave(),
        [
            "READ_RESPONSE_FIRST 1001 ack msn 1 256 bytes from 5",
            "READ_RESPONSE_LAST 1002 ack msn 1 88 bytes from 10",
        ]
    );
    end.take(read(1001, 256, 345));
    assert_eq!(end.leave(), [""; 0], "more than there was");
}

//= R09, BC-053 test
#[test]
fn a_duplicate_read_under_another_key_is_dropped() {
    let mut end = after_a_read(600);
    end.take(read(1000, 0, 600).at(0, KEY + 1));
    end.take(read(1000, 8, 592));
    assert_eq!((end.leave(), end.qp.state()), (vec![], QpState::Rts));
    assert_eq!(end.adapter.count_of(Count::DuplicateDropped), 2);
}

//= R10, BC-050, 04-4.7 test
#[test]
fn a_duplicate_atomic_gets_its_saved_result() {
    let mut end = responder();
    for psn in 1000..1004 {
        end.take(packet("RC_FETCH_ADD", psn).add(1));
    }
    end.leave();
    end.take(packet("RC_FETCH_ADD", 1000).add(1));
    assert_eq!(end.leave(), ["ATOMIC_ACKNOWLEDGE 1000 ack msn 4 was 0"]);
    end.take(packet("RC_FETCH_ADD", 1003).add(1));
    assert_eq!(end.leave(), ["ATOMIC_ACKNOWLEDGE 1003 ack msn 4 was 3"]);
    assert_eq!(end.adapter.memory[..8], 4u64.to_ne_bytes());
}

//= R11, 04-4.7 test
#[test]
fn a_duplicate_atomic_that_is_not_kept_any_more_is_dropped() {
    let mut end = responder();
    for psn in 1000..1005 {
        end.take(packet("RC_FETCH_ADD", psn).add(1));
        end.leave();
    }
    end.take(packet("RC_FETCH_ADD", 1000).add(1));
    assert_eq!(end.leave(), [""; 0]);
    assert_eq!(end.adapter.memory[..8], 5u64.to_ne_bytes());
}

//= R27, 04-4.3 test
#[test]
fn one_acknowledgement_covers_many_requests() {
    let mut end = responder();
    for psn in 1000..1010 {
        end.take(packet("RC_WRITE_ONLY", psn).bytes(b"x"));
    }
    assert_eq!(end.leave(), [""; 0], "nobody asked");
    end.take(write(1010, b"x"));
    assert_eq!(end.leave(), ["ACKNOWLEDGE 1010 ack msn 11"]);
}

//= R28, IBA C9-148, 02-2.6, 04-4.3 test
#[test]
fn a_read_is_answered_with_a_packet_for_each_of_its_psns() {
    let mut end = responder();
    end.adapter.memory[..1000].copy_from_slice(&count(0, 1000));
    end.take(read(1000, 0, 600));
    end.take(write(1003, b"x"));
    assert_eq!(
        end.leave(),
        [
            // Both messages count already when the first answer leaves.
            "READ_RESPONSE_FIRST 1000 ack msn 2 256 bytes from 120",
            "READ_RESPONSE_MIDDLE 1001 256 bytes from 5",
            "READ_RESPONSE_LAST 1002 ack msn 2 88 bytes from 10",
            "ACKNOWLEDGE 1003 ack msn 2",
        ]
    );
}

/// An answer with a later PSN acknowledges what is before it: no ACK goes out between.
//= IBA C9-110, 04-4.3 test
#[test]
fn answers_leave_in_the_order_of_psns() {
    let mut end = responder();
    end.take(write(1000, b"x"));
    end.take(read(1001, 0, 8));
    end.take(packet("RC_FETCH_ADD", 1002).at(64, KEY).add(1));
    end.take(write(1003, b"x"));
    let names = |lines: Vec<String>| -> Vec<String> {
        let words = |line: &String| line.split(' ').take(2).collect::<Vec<_>>().join(" ");
        lines.iter().map(words).collect()
    };
    assert_eq!(
        names(end.leave()),
        ["READ_RESPONSE_ONLY 1001", "ATOMIC_ACKNOWLEDGE 1002", "ACKNOWLEDGE 1003"]
    );
    end.take(packet("RC_FETCH_ADD", 1002).at(64, KEY).add(1));
    end.take(read(1001, 0, 8));
    assert_eq!(names(end.leave()), ["READ_RESPONSE_ONLY 1001", "ATOMIC_ACKNOWLEDGE 1002"]);
    // A NAK waits for the answers before it too.
    end.take(read(1004, 0, 8));
    end.take(write(1005, b"x").at(0, KEY + 1));
    assert_eq!(names(end.leave()), ["READ_RESPONSE_ONLY 1004", "ACKNOWLEDGE 1005"]);
}

//= R39, 04-4.3 test
#[test]
fn a_first_packet_is_acknowledged_without_counting_the_message() {
    let mut end = responder();
    end.room(1, 600);
    end.take(packet("RC_SEND_FIRST", 1000).bytes(&[0; 256]).ack_req());
    assert_eq!(end.leave(), ["ACKNOWLEDGE 1000 ack msn 0"]);
    end.take(packet("RC_SEND_LAST", 1001).bytes(&[0; 4]).ack_req());
    assert_eq!(end.leave(), ["ACKNOWLEDGE 1001 ack msn 1"]);
}

//= BC-055 test
#[test]
fn memory_that_goes_while_a_read_is_answered_is_refused_at_that_response() {
    let mut end = responder();
    end.take(read(1000, 0, 600));
    let first = end.poll(peer::NOW).map(|_| ());
    end.adapter.memory.truncate(256);
    assert_eq!(first, Some(()));
    assert_eq!(end.leave(), ["ACKNOWLEDGE 1001 nak 0x62 msn 1"]);
    assert_eq!((end.qp.state(), end.leave()), (QpState::Error, vec![]), "and no more");
}

//= BC-056, 04-4.7 test
#[test]
fn a_duplicate_read_whose_key_died_is_dropped() {
    let mut end = after_a_read(8);
    end.adapter.allow = AccessFlags::NONE;
    end.take(read(1000, 0, 8));
    assert_eq!((end.leave(), end.adapter.events.len()), (vec![], 0));
    assert_eq!(end.adapter.count_of(Count::DuplicateDropped), 1);
    end.take(write(1001, b""));
    assert_eq!(end.leave(), ["ACKNOWLEDGE 1001 ack msn 2"], "the connection goes on");
}

/// Room that is too small for an answer costs nothing: the answer leaves when there is room.
//= BC-058 test
#[test]
fn an_answer_that_found_no_room_is_sent_later() {
    let mut end = responder();
    end.adapter.memory[..1000].copy_from_slice(&count(0, 1000));
    end.take(read(1000, 0, 600));
    let mut psns = Vec::new();
    for _ in 0..3 {
        let mut small = [0; 8];
        let outlet = Outlet { room: Room::whole(&mut small), elide: false };
        assert_eq!(end.qp.poll_response(Instant::ZERO, outlet, &mut end.adapter), None);
        let bytes = end.poll(peer::NOW).unwrap();
        let packet = Packet::parse(Body::whole(&bytes)).unwrap();
        psns.push((packet.headers.bth.psn.get(), packet.payload.len()));
    }
    assert_eq!((psns, end.leave()), (vec![(1000, 256), (1001, 256), (1002, 88)], vec![]));
}

//= BC-058 test
#[test]
fn an_acknowledgement_or_refusal_that_found_no_room_is_sent_later() {
    for (packet, answer, counted) in [
        (write(1000, b"x").ack_req(), "ACKNOWLEDGE 1000 ack msn 1", Count::AckSent),
        (write(1001, b"x"), "ACKNOWLEDGE 1000 nak 0x60 msn 0", Count::SequenceNakSent),
    ] {
        let mut end = responder();
        end.take(packet);
        let mut small = [0; 8];
        let outlet = Outlet { room: Room::whole(&mut small), elide: false };
        assert_eq!(end.qp.poll_response(Instant::ZERO, outlet, &mut end.adapter), None);
        assert_eq!((end.qp.has_response(), end.adapter.count_of(counted)), (true, 0));
        assert_eq!(end.leave(), [answer]);
        assert_eq!((end.qp.has_response(), end.adapter.count_of(counted)), (false, 1));
    }
}
