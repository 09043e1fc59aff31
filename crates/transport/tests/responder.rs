//! What a responder takes in and refuses, packet by packet: the next PSN is 1000, the path MTU
//! 256.

#[allow(dead_code, reason = "shared with other tests")]
mod peer;
#[allow(dead_code, reason = "shared with other tests")]
mod world;

use peer::{Sent, count, only, packet};
use roxe_transport::adapter::{Access, Count, QpEvent};
use roxe_transport::qp_state::{Attribute as A, AttributeMask, QpState, ServiceType};
use roxe_transport::work::{
    AccessFlags, Attributes, CompletionOpcode, CompletionStatus, Extra, SendOperation, Sge,
};
use roxe_wire::{Bth, ImmDt, Instant, LKey, Psn, RKey, RnrTimer};
use world::{End, KEY, attributes};

use CompletionStatus::{Flushed, LocalLengthError, LocalQpOperationError, Success};

fn responder() -> End {
    with(|_| {})
}

fn with(change: impl FnOnce(&mut Attributes)) -> End {
    let mut own = attributes(2, 1);
    change(&mut own);
    End::new(ServiceType::Rc, own)
}

/// A packet ends the connection with this NAK and event, and changes no memory.
fn assert_refused(mut end: End, bad: Sent, nak: &str, event: QpEvent) {
    let before = end.adapter.memory.clone();
    end.take(bad);
    assert_eq!(end.leave(), [nak]);
    assert_eq!((end.qp.state(), &end.adapter.events[..]), (QpState::Error, &[event][..]));
    assert!(end.adapter.memory == before, "memory is touched by {nak}");
}

fn assert_invalid(end: End, bad: Sent) {
    let psn = end.qp.attributes().rq_psn.get();
    assert_refused(end, bad, &format!("ACKNOWLEDGE {psn} nak 0x61 msn 0"), QpEvent::RequestError);
}

fn assert_no_access(end: End, bad: Sent) {
    assert_refused(end, bad, "ACKNOWLEDGE 1000 nak 0x62 msn 0", QpEvent::AccessError);
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

//= R01, 02-2.1 test
#[test]
fn a_send_completes_one_receive_and_is_acknowledged() {
    let mut end = responder();
    end.room(1, 64);
    end.room(2, 64);
    end.take(send(1000, b"hello"));
    assert_eq!(end.received(), [(1, Success, 5)]);
    assert_eq!(end.adapter.memory[1000..1005], *b"hello");
    assert_eq!(end.leave(), ["ACKNOWLEDGE 1000 ack msn 1"]);
    // What uses up no receive completes none.
    end.take(write(1001, b"x"));
    assert_eq!((end.received().len(), end.adapter.receives.len()), (1, 1));
    assert_eq!(end.leave(), ["ACKNOWLEDGE 1001 ack msn 2"]);
}

//= R02, 04-4.1 test
#[test]
fn a_message_lies_over_the_end_of_the_psn_circle() {
    let mut end = with(|own| own.rq_psn = Psn::new(0xff_fffe));
    end.room(1, 600);
    end.take(packet("RC_SEND_FIRST", 0xff_fffe).bytes(&count(0, 256)));
    end.take(packet("RC_SEND_MIDDLE", 0xff_ffff).bytes(&count(1, 256)));
    end.take(packet("RC_SEND_LAST", 0).bytes(&count(2, 10)).ack_req());
    assert_eq!(end.received(), [(1, Success, 522)]);
    assert_eq!(end.leave(), ["ACKNOWLEDGE 0 ack msn 1"]);
    end.take(write(1, b"x"));
    assert_eq!(end.leave(), ["ACKNOWLEDGE 1 ack msn 2"]);
}

//= R03, BC-025, 04-4.5 test
#[test]
fn each_gap_gets_one_nak() {
    let mut end = responder();
    end.take(write(1001, b"b"));
    end.take(write(1002, b"c"));
    assert_eq!(end.leave(), ["ACKNOWLEDGE 1000 nak 0x60 msn 0"]);
    end.take(write(1001, b"b"));
    assert_eq!(end.leave(), [""; 0], "it was told");
    end.take(write(1000, b"a"));
    end.take(write(1001, b"b"));
    assert_eq!(end.leave(), ["ACKNOWLEDGE 1001 ack msn 2"]);
    end.take(write(1003, b"d"));
    assert_eq!(end.leave(), ["ACKNOWLEDGE 1002 nak 0x60 msn 2"], "another gap");
    assert_eq!(end.adapter.memory[0], b'b', "nothing behind a gap is carried out");
}

//= R12, R13, 02-2.3 test
#[test]
fn packets_of_a_message_follow_each_other() {
    let ready = || {
        let mut end = responder();
        end.room(1, 600);
        end
    };
    for name in ["RC_SEND_MIDDLE", "RC_WRITE_MIDDLE"] {
        assert_invalid(ready(), packet(name, 1000).bytes(&[0; 256]));
    }
    for name in ["RC_SEND_LAST", "RC_WRITE_LAST"] {
        assert_invalid(ready(), packet(name, 1000).bytes(&[0; 10]));
    }
    let begins = [
        packet("RC_SEND_FIRST", 1000).bytes(&[0; 256]),
        packet("RC_WRITE_FIRST", 1000).bytes(&[0; 256]).len(300),
    ];
    let others = [
        [packet("RC_WRITE_LAST", 1001).bytes(&[0; 44]), packet("RC_SEND_ONLY", 1001)],
        [packet("RC_SEND_LAST", 1001).bytes(&[0; 44]), read(1001, 0, 8)],
    ];
    for (begin, others) in begins.into_iter().zip(others) {
        for other in others {
            let mut end = ready();
            end.take(begin.clone());
            end.take(other);
            assert_eq!(end.leave(), ["ACKNOWLEDGE 1001 nak 0x61 msn 0"]);
            assert_eq!(end.adapter.events, [QpEvent::RequestError]);
            assert_eq!(end.qp.state(), QpState::Error);
        }
    }
}

//= R14, R15, IBA C9-92, 02-2.1 test
#[test]
fn lengths_fit_the_opcode() {
    for (name, len) in [("RC_SEND_FIRST", 255), ("RC_SEND_FIRST", 257), ("RC_SEND_ONLY", 257)] {
        let mut end = responder();
        end.room(1, 600);
        assert_invalid(end, packet(name, 1000).bytes(&vec![0; len]));
    }
    assert_invalid(responder(), packet("RC_WRITE_FIRST", 1000).bytes(&[0; 252]).len(300));
    for len in [0, 257] {
        let mut end = responder();
        end.room(1, 600);
        end.take(packet("RC_SEND_FIRST", 1000).bytes(&[0; 256]));
        end.take(packet("RC_SEND_LAST", 1001).bytes(&vec![0; len]));
        assert_eq!(end.leave(), ["ACKNOWLEDGE 1001 nak 0x61 msn 0"], "{len} bytes in the end");
        assert_eq!(end.received(), [(1, LocalQpOperationError, 0)]);
    }
}

//= R16 test
#[test]
fn a_write_brings_as_many_bytes_as_it_announces() {
    for len in [255, 257] {
        assert_invalid(responder(), packet("RC_WRITE_ONLY", 1000).bytes(&[1; 256]).len(len));
    }
    assert_invalid(responder(), packet("RC_WRITE_FIRST", 1000).bytes(&[1; 256]).len(256));
    for (announced, last) in [(300, 43), (300, 45)] {
        let mut end = responder();
        end.take(packet("RC_WRITE_FIRST", 1000).bytes(&[1; 256]).len(announced));
        end.take(packet("RC_WRITE_LAST", 1001).bytes(&vec![1; last]));
        assert_eq!(end.leave(), ["ACKNOWLEDGE 1001 nak 0x61 msn 0"], "{last} in the end");
    }
}

//= R17, BC-030, BC-095, 04-4.5, IBA C9-222.1.1 test
#[test]
fn a_bad_key_ends_the_connection_and_the_application_hears_of_it() {
    assert_no_access(responder(), write(1000, b"x").at(0, KEY + 1));
    assert_no_access(responder(), read(1000, 0, 8).at(0, KEY + 1));
    assert_no_access(responder(), packet("RC_FETCH_ADD", 1000).at(0, KEY + 1).add(1));
}

//= R18 test
#[test]
fn the_whole_range_of_a_write_is_checked_with_its_first_packet() {
    let end = world::MEMORY as u64 - 300;
    let first = packet("RC_WRITE_FIRST", 1000).bytes(&[1; 256]);
    assert_no_access(responder(), first.clone().at(end, KEY).len(301));
    assert_no_access(responder(), write(1000, &[1; 8]).at(u64::MAX - 3, KEY));
    let mut fits = responder();
    fits.take(first.at(end, KEY).len(300).ack_req());
    assert_eq!(fits.leave(), ["ACKNOWLEDGE 1000 ack msn 0"]);
}

//= R19, 04-4.2 test
#[test]
fn the_queue_pairs_rights_and_the_regions_are_both_needed() {
    let requests = [
        (write(1000, b"x"), AccessFlags::REMOTE_WRITE),
        (read(1000, 0, 8), AccessFlags::REMOTE_READ),
        (packet("RC_FETCH_ADD", 1000).add(1), AccessFlags::REMOTE_ATOMIC),
        (packet("RC_CMP_SWAP", 1000), AccessFlags::REMOTE_ATOMIC),
        (packet("RC_ATOMIC_WRITE", 1000).bytes(&[1; 8]), AccessFlags::REMOTE_WRITE),
        (packet("RC_FLUSH", 1000).len(8), AccessFlags::FLUSH_GLOBAL),
    ];
    let all = attributes(2, 1).access;
    for (request, right) in requests {
        let without = AccessFlags::from_bits(all.bits() & !right.bits()).unwrap();
        assert_invalid(with(|own| own.access = without), request.clone());
        let mut region = responder();
        region.adapter.allow = without;
        assert_no_access(region, request.clone());
        let mut both = with(|own| own.access = only(&[right]));
        both.adapter.allow = only(&[right]);
        both.take(request);
        assert_eq!((both.leave().len(), both.adapter.events.len()), (1, 0));
    }
}

/// What is wrong first decides the answer.
//= 04-4.2 test
#[test]
fn checks_come_in_the_order_of_the_specification() {
    // A gap before everything else.
    let mut end = responder();
    end.take(packet("RC_SEND_MIDDLE", 1001).bytes(&[0; 5]));
    assert_eq!(end.leave(), ["ACKNOWLEDGE 1000 nak 0x60 msn 0"]);
    // The sequence before the receive, the queue pair's right before the key.
    assert_invalid(responder(), packet("RC_SEND_LAST", 1000).bytes(b"x"));
    let bad_key = write(1000, b"x").at(0, KEY + 1);
    assert_invalid(with(|own| own.access = AccessFlags::NONE), bad_key.clone());
    // The receive before length and key, the length before the key.
    let mut end = responder();
    end.take(packet("RC_SEND_ONLY", 1000).bytes(&[0; 300]));
    assert_eq!(end.leave(), ["ACKNOWLEDGE 1000 rnr 1 msn 0"]);
    assert_invalid(responder(), bad_key.len(5));
    // The alignment of an atomic before its key.
    assert_invalid(responder(), packet("RC_FETCH_ADD", 1000).at(4, KEY + 1));
}

//= R20, IBA C9-88, 04-4.14 test
#[test]
fn requests_for_no_bytes_need_no_key() {
    let mut end = responder();
    end.take(write(1000, b"").at(u64::MAX, 0));
    end.take(read(1001, u64::MAX, 0).at(u64::MAX, 0));
    assert_eq!(end.leave(), ["READ_RESPONSE_ONLY 1001 ack msn 2"]);
    // The queue pair's own right is needed still.
    assert_invalid(with(|own| own.access = AccessFlags::NONE), write(1000, b""));
}

//= R21, BC-071, 04-4.14 test
#[test]
fn a_write_with_immediate_data_and_no_bytes_uses_up_a_receive() {
    let mut end = responder();
    end.room(1, 64);
    end.take(packet("RC_WRITE_ONLY_IMM", 1000).imm(7).at(0, 0).ack_req());
    assert_eq!(end.received(), [(1, Success, 0)]);
    let completion = end.adapter.received[0];
    assert_eq!(completion.opcode, CompletionOpcode::RecvRdmaWithImm);
    assert_eq!(completion.extra, Extra::Imm(ImmDt(7)));
    assert_eq!(end.leave(), ["ACKNOWLEDGE 1000 ack msn 1"]);
}

//= R22, IBA C10-87 test
#[test]
fn a_refused_write_with_immediate_data_uses_up_no_receive() {
    let mut end = responder();
    end.room(1, 64);
    let bad = packet("RC_WRITE_ONLY_IMM", 1000).bytes(b"x").at(0, KEY + 1);
    end.take(bad);
    assert_eq!(end.leave(), ["ACKNOWLEDGE 1000 nak 0x62 msn 0"]);
    assert_eq!(end.received(), [(1, Flushed, 0)], "flushed with the others");
}

//= R23, BC-030, 04-4.5 test
#[test]
fn without_a_receive_a_send_waits() {
    let mut end = with(|own| own.min_rnr_timer = RnrTimer::from_bits(12));
    end.take(send(1000, b"hello"));
    assert_eq!(end.leave(), ["ACKNOWLEDGE 1000 rnr 12 msn 0"]);
    end.room(1, 64);
    end.take(send(1000, b"hello"));
    assert_eq!(end.leave(), ["ACKNOWLEDGE 1000 ack msn 1"]);
    assert_eq!(end.received(), [(1, Success, 5)]);
}

//= R24, 04-4.5 test
#[test]
fn what_follows_a_send_without_a_receive_is_dropped_silently() {
    let mut end = responder();
    for psn in 1000..1003 {
        end.take(send(psn, b"hello"));
    }
    assert_eq!(end.leave(), ["ACKNOWLEDGE 1000 rnr 1 msn 0"]);
    end.take(send(1002, b"hello"));
    assert_eq!(end.leave(), [""; 0]);
}

//= R25, BC-072 test
#[test]
fn a_write_with_immediate_data_needs_its_receive_at_the_last_packet() {
    let mut end = responder();
    end.take(packet("RC_WRITE_FIRST", 1000).bytes(&[1; 256]).len(600));
    end.take(packet("RC_WRITE_MIDDLE", 1001).bytes(&[2; 256]));
    let last = packet("RC_WRITE_LAST_IMM", 1002).bytes(&[3; 88]).imm(9).ack_req();
    end.take(last.clone());
    assert_eq!(end.leave(), ["ACKNOWLEDGE 1002 rnr 1 msn 0"]);
    assert_eq!((end.adapter.memory[511], end.adapter.memory[512]), (2, 0));
    end.room(5, 0);
    end.take(last);
    assert_eq!(end.received(), [(5, Success, 600)], "the length of the whole message");
    assert_eq!(
        (end.leave(), end.adapter.memory[599]),
        (vec!["ACKNOWLEDGE 1002 ack msn 1".into()], 3)
    );
}

//= R26, 05-5.3 test
#[test]
fn a_send_that_does_not_fit_its_receive_is_invalid() {
    let mut end = responder();
    end.room(1, 4);
    end.room(2, 64);
    end.take(send(1000, b"hello"));
    assert_eq!(end.leave(), ["ACKNOWLEDGE 1000 nak 0x61 msn 0"]);
    assert_eq!(end.received(), [(1, LocalLengthError, 0), (2, Flushed, 0)]);
    assert_eq!((end.qp.state(), end.adapter.memory[1000]), (QpState::Error, 0));
    assert_eq!(end.adapter.count_of(Count::ResponderLengthError), 1);
}

//= R29, BC-062 test
#[test]
fn atomics_are_aligned() {
    for name in ["RC_FETCH_ADD", "RC_CMP_SWAP"] {
        assert_invalid(responder(), packet(name, 1000).at(4, KEY).add(1));
    }
    let unaligned = packet("RC_ATOMIC_WRITE", 1000).bytes(&[1; 8]).at(12, KEY);
    assert_invalid(responder(), unaligned);
}

/// What may not be done in full is not begun.
//= 04-4.2 test
#[test]
fn a_flush_is_checked_for_all_that_it_asks_for_before_anything_is_flushed() {
    let mut end = responder();
    end.adapter.allow = only(&[AccessFlags::FLUSH_GLOBAL]);
    end.take(packet("RC_FLUSH", 1000).len(8));
    end.take(packet("RC_FLUSH", 1001).len(8).persistent());
    assert_eq!(end.adapter.flushed, [Access::FlushGlobal], "and not once more");
    assert_eq!(end.leave().pop().as_deref(), Some("ACKNOWLEDGE 1001 nak 0x62 msn 1"));
}

//= R30, 04-4.2 test
#[test]
fn reads_need_a_resource() {
    assert_invalid(with(|own| own.max_dest_rd_atomic = 0), read(1000, 0, 8));
    let mut end = with(|own| own.max_dest_rd_atomic = 2);
    (1000..1003).for_each(|psn| end.take(read(psn, 0, 8)));
    let last = end.leave().pop();
    assert_eq!(last.as_deref(), Some("ACKNOWLEDGE 1002 nak 0x61 msn 2"), "more than two at once");
}

//= R31, BC-080 test
#[test]
fn a_receive_tells_which_key_the_peer_invalidated() {
    let mut end = responder();
    end.room(1, 64);
    end.take(packet("RC_SEND_ONLY_INV", 1000).invalidate(KEY).bytes(b"x").ack_req());
    assert_eq!(end.adapter.received[0].extra, Extra::Invalidated(RKey(KEY)));
    assert_eq!(end.leave(), ["ACKNOWLEDGE 1000 ack msn 1"]);
}

//= R32, BC-080 test
#[test]
fn an_invalidation_that_is_not_the_peers_ends_the_connection() {
    let mut end = responder();
    end.room(1, 64);
    end.take(packet("RC_SEND_ONLY_INV", 1000).invalidate(KEY + 1).bytes(b"x"));
    assert_eq!(end.leave(), ["ACKNOWLEDGE 1000 nak 0x62 msn 0"]);
    assert_eq!(end.received(), [(1, CompletionStatus::LocalProtectionError, 0)]);
    assert_eq!(end.adapter.events, [QpEvent::AccessError]);
}

//= R33, 05-5.1, 05-5.4 test
#[test]
fn nothing_is_received_before_rtr_and_the_first_packet_there_is_an_event() {
    let mut end = responder();
    let mut step = |to, given: &[A]| {
        let values = attributes(2, 1);
        end.qp.modify(to, AttributeMask::of(given), &values, &mut end.adapter).unwrap();
        end.take(write(1000, b"x"));
        (end.leave(), end.adapter.events.clone(), end.adapter.memory[0])
    };
    let init = [A::PkeyIndex, A::Port, A::AccessFlags];
    assert_eq!(step(QpState::Reset, &[]), (vec![], vec![], 0));
    assert_eq!(step(QpState::Init, &init), (vec![], vec![], 0));
    let rtr = [A::Av, A::PathMtu, A::DestQpn, A::RqPsn, A::MaxDestRdAtomic, A::MinRnrTimer];
    let (left, events, byte) = step(QpState::Rtr, &rtr);
    assert_eq!(
        (left.len(), &events[..], byte),
        (1, &[QpEvent::CommunicationEstablished][..], b'x')
    );
    end.take(write(1001, b"y"));
    assert_eq!(end.adapter.events.len(), 1, "once");
}

//= R35, 04-4.6 test
#[test]
fn a_reserved_opcode_is_never_carried_out() {
    for (psn, broken) in [(1001, false), (999, false), (1000, true)] {
        let mut end = responder();
        let bth = Bth { opcode: 0x15, psn: Psn::new(psn), ..Bth::default() };
        end.qp.handle_reserved(Instant::ZERO, &bth, &mut end.adapter);
        assert_eq!(end.qp.state() == QpState::Error, broken, "PSN {psn}");
        let nak = ["ACKNOWLEDGE 1000 nak 0x61 msn 0"];
        assert_eq!(end.leave(), if broken { &nak[..] } else { &[] });
    }
}

//= R36, BC-033, 05-5.2 test
#[test]
fn state_error_flushes_receives_in_order_and_takes_no_more_packets() {
    let mut end = responder();
    (1..4).for_each(|id| end.room(id, 600));
    end.take(packet("RC_SEND_FIRST", 1000).bytes(&[7; 256]));
    let (values, none) = (attributes(2, 1), AttributeMask::NONE);
    end.qp.modify(QpState::Error, none, &values, &mut end.adapter).unwrap();
    let all = [(1, Flushed, 0), (2, Flushed, 0), (3, Flushed, 0)];
    assert_eq!(end.received(), all);
    end.room(4, 600);
    end.take(packet("RC_SEND_LAST", 1001).bytes(b"x").ack_req());
    end.take(write(1002, b"x"));
    assert_eq!((end.leave(), end.received().len()), (vec![], 3));
    assert_eq!((end.adapter.receives.len(), end.adapter.memory[0]), (1, 0));
    assert_eq!(end.adapter.count_of(Count::WrongState), 2);
}

//= R38, IBA C9-94, 04-4.14 test
#[test]
fn nobody_asks_for_more_than_2_gigabytes() {
    let most = 1 << 31;
    assert_invalid(responder(), read(1000, 0, most + 1));
    assert_invalid(responder(), packet("RC_WRITE_FIRST", 1000).bytes(&[0; 256]).len(most + 1));
    // As many are a matter of the region.
    assert_no_access(responder(), read(1000, 0, most));
}

/// Only the solicited bit of a message's last packet counts.
//= 04-4.15 test
#[test]
fn a_receive_is_solicited_if_its_sender_says_so() {
    let mut end = responder();
    (1..5).for_each(|id| end.room(id, 600));
    end.take(send(1000, b"x"));
    end.take(send(1001, b"x").solicited());
    end.take(packet("RC_SEND_FIRST", 1002).bytes(&[0; 256]).solicited());
    end.take(packet("RC_SEND_LAST", 1003).bytes(b"x"));
    end.take(packet("RC_WRITE_ONLY_IMM", 1004).solicited());
    let solicited: Vec<_> = end.adapter.received.iter().map(|c| c.solicited).collect();
    assert_eq!(solicited, [false, true, false, true]);
}

//= BC-034, 05-5.2 test
#[test]
fn each_connection_begins_with_its_own_psns() {
    let mut end = responder();
    end.room(1, 600);
    end.take(packet("RC_SEND_FIRST", 1000).bytes(&[0; 256]).ack_req());
    end.leave();
    end.post(1, SendOperation::Send, 8);
    assert_eq!(end.leave(), ["SEND_ONLY 2000 8 bytes from 0 ack-req"]);
    let again = Attributes { rq_psn: Psn::new(77), sq_psn: Psn::new(88), ..attributes(2, 1) };
    end.connect_again(&again);
    assert_eq!((end.sent(), end.received()), (vec![], vec![]), "RESET completes nothing");
    end.take(packet("RC_SEND_LAST", 1001).bytes(b"x"));
    end.take(write(77, b"x"));
    end.post(2, SendOperation::Send, 8);
    let left = end.leave();
    let (answer, request) = ("ACKNOWLEDGE 77 ack msn 1", "SEND_ONLY 88 8 bytes from 0 ack-req");
    assert!(left.contains(&answer.to_owned()) && left.contains(&request.to_owned()), "{left:?}");
}

//= 05-5.6 test
#[test]
fn a_message_of_no_bytes_does_not_touch_its_receive() {
    let mut end = responder();
    let closed = Sge { va: 0, len: 64, l_key: LKey(KEY + 1) };
    end.adapter.receives.push_back((1, closed));
    end.take(packet("RC_SEND_ONLY", 1000).ack_req());
    assert_eq!(end.received(), [(1, Success, 0)]);
    assert_eq!(end.leave(), ["ACKNOWLEDGE 1000 ack msn 1"]);
    end.adapter.receives.push_back((2, closed));
    end.take(send(1001, &[7]));
    assert_eq!(end.received()[1].1, CompletionStatus::LocalProtectionError);
}
