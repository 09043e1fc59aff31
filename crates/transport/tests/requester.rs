//! The requester of a reliable connection, answer by answer: its first PSN is 1000, the path MTU
//! 256, the ACK timeout 4.096 µs × 2¹⁰.

#[allow(dead_code, reason = "shared with other tests")]
mod peer;
#[allow(dead_code, reason = "shared with other tests")]
mod world;

use peer::{
    NOW, REMOTE, ack, at_deadline, behaving, nak, packet, psns, request, requester, response, with,
    writes,
};
use roxe_transport::adapter::QpEvent;
use roxe_transport::conduct::Conduct;
use roxe_transport::qp_state::{Attribute as A, AttributeMask, QpState};
use roxe_transport::work::{CompletionStatus, Data, LocalOperation, PostError, SendOperation, Sge};
use roxe_wire::{
    AckTimeout, FlushPlacement, FlushSelectivity, ImmDt, LKey, NakCode, Psn, RKey, Syndrome,
};
use world::{KEY, attributes, sge};

use CompletionStatus::{
    BadResponse, Flushed, LocalLengthError, LocalProtectionError, LocalQpOperationError,
    RemoteAccessError, RemoteInvalidRequest, RemoteOperationError, Success,
};
use SendOperation::{Read, Send, Write};

const ADD: SendOperation = SendOperation::FetchAdd { remote: REMOTE, add: 1 };

//= Q04, 05-5.3, 04-4.9 test
#[test]
fn a_fatal_nak_completes_the_request_that_it_names() {
    for (code, status) in [
        (NakCode::InvalidRequest, RemoteInvalidRequest),
        (NakCode::RemoteAccessError, RemoteAccessError),
        (NakCode::RemoteOperationalError, RemoteOperationError),
        (NakCode::InvalidRdRequest, BadResponse),
        (NakCode::from_bits(9), BadResponse),
    ] {
        let mut end = requester();
        writes(&mut end, 3);
        end.take(nak(1001, code));
        assert_eq!(end.sent(), [(0, Success), (1, status), (2, Flushed)]);
        assert_eq!((end.qp.state(), end.leave()), (QpState::Error, vec![]));
    }
}

//= Q06, 04-4.9 test
#[test]
fn an_acknowledgement_of_a_middle_packet_completes_nothing() {
    let mut end = requester();
    end.post(1, Write(REMOTE), 1000);
    assert_eq!(psns(&mut end, NOW), [1000, 1001, 1002, 1003]);
    end.take(ack(1001));
    assert_eq!(end.sent(), []);
    assert_eq!(at_deadline(&mut end).1, [1002, 1003], "it was believed");
    end.take(ack(1003));
    assert_eq!(end.sent(), [(1, Success)]);
}

//= Q07, BC-036 test
#[test]
fn acknowledgements_of_nothing_are_ignored() {
    let mut end = requester();
    writes(&mut end, 2);
    for psn in [1002, 1007, 999, 500] {
        end.take(ack(psn));
        end.take(nak(psn, NakCode::RemoteAccessError));
    }
    assert_eq!((end.sent(), end.leave()), (vec![], vec![]));
    end.take(ack(1001));
    assert_eq!(end.sent(), [(0, Success), (1, Success)]);
    end.take(ack(1001));
    assert_eq!((end.sent().len(), end.leave()), (2, vec![]));
}

//= Q10, 02-2.4, 05-5.3 test
#[test]
fn read_responses_of_wrong_length_or_order_end_the_connection() {
    for (bad, status) in [
        (response("FIRST", 1000, 1, 252), LocalLengthError),
        (response("LAST", 1000, 1, 256), BadResponse),
        (response("ONLY", 1000, 1, 256), BadResponse),
        (packet("RC_ATOMIC_ACKNOWLEDGE", 1000), BadResponse),
        (response("FIRST", 1000, 1, 256).syndrome(nak_syndrome()), BadResponse),
    ] {
        let mut end = requester();
        end.post(1, Read(REMOTE), 300);
        end.leave();
        end.take(bad);
        assert_eq!((end.sent(), end.qp.state()), (vec![(1, status)], QpState::Error));
        assert_eq!(end.adapter.memory[1000], 0, "nothing of it is believed");
    }
    let mut end = requester();
    end.post(1, Read(REMOTE), 300);
    end.leave();
    end.take(response("FIRST", 1000, 1, 256));
    end.take(response("LAST", 1001, 1, 48));
    assert_eq!(end.sent(), [(1, LocalLengthError)]);
    assert_eq!(end.adapter.memory[1300], 0, "nothing behind the buffer");
}

fn nak_syndrome() -> Syndrome {
    Syndrome::Nak(NakCode::RemoteAccessError)
}

//= Q11 test
#[test]
fn the_result_of_an_atomic_is_an_integer_of_this_machine() {
    let mut end = requester();
    end.post(1, ADD, 8);
    end.leave();
    end.take(packet("RC_ATOMIC_ACKNOWLEDGE", 1000).original(0x0102_0304_0506_0708));
    assert_eq!(end.adapter.memory[1000..1008], 0x0102_0304_0506_0708_u64.to_ne_bytes());
    assert_eq!((end.sent(), end.adapter.sent[0].byte_len), (vec![(1, Success)], 8));
}

//= Q12, 04-4.8 test
#[test]
fn no_more_reads_are_outstanding_than_max_rd_atomic_says() {
    let mut end = with(|own| own.max_rd_atomic = 1);
    end.post(1, Read(REMOTE), 8);
    end.post(2, ADD, 8);
    end.post(3, Write(REMOTE), 1);
    assert_eq!(psns(&mut end, NOW), [1000], "what is behind stays behind");
    end.take(response("ONLY", 1000, 1, 8));
    assert_eq!(psns(&mut end, NOW), [1001, 1002]);
}

//= Q13, BC-059, IBA 10.8.3.3, 04-4.8 test
#[test]
fn a_fence_waits_for_reads_and_atomics_and_nothing_else() {
    let mut end = requester();
    end.post(1, Read(REMOTE), 8);
    end.post_request(2, Send, 1, |request| request.fence = true);
    assert_eq!(psns(&mut end, NOW), [1000]);
    end.take(response("ONLY", 1000, 1, 8));
    assert_eq!(psns(&mut end, NOW), [1001]);
    end.post(3, Write(REMOTE), 1);
    end.post_request(4, Send, 1, |request| request.fence = true);
    assert_eq!(psns(&mut end, NOW), [1002, 1003], "a WRITE is not waited for");
}

//= BC-059, IBA 10.6.5.1 test
#[test]
fn a_local_invalidation_waits_for_everything_before_it() {
    let mut end = requester();
    end.post(1, Write(REMOTE), 1);
    let invalidate = SendOperation::Local(LocalOperation::Invalidate(RKey(KEY)));
    end.post_request(2, invalidate, 0, |request| request.data = Data::Regions(&[]));
    end.post(3, Write(REMOTE), 1);
    assert_eq!((psns(&mut end, NOW), end.sent()), (vec![1000], vec![]));
    end.take(ack(1000));
    assert_eq!(psns(&mut end, NOW), [1001]);
    assert_eq!(end.sent(), [(1, Success), (2, Success)]);
    // One that fails ends the connection, behind what was before it.
    let foreign = SendOperation::Local(LocalOperation::Invalidate(RKey(KEY + 1)));
    end.post_request(4, foreign, 0, |request| request.data = Data::Regions(&[]));
    end.leave();
    assert_eq!(end.sent().len(), 2);
    end.take(ack(1001));
    end.leave();
    assert_eq!(end.sent()[2..], [(3, Success), (4, LocalQpOperationError)]);
}

//= Q14, 04-4.1, 02-2.6 test
#[test]
fn a_message_lies_over_the_end_of_the_psn_circle() {
    let mut end = with(|own| own.sq_psn = Psn::new(0xff_ffff));
    end.post(1, Send, 600);
    end.post(2, Read(REMOTE), 600);
    end.post(3, ADD, 8);
    assert_eq!(psns(&mut end, NOW), [0xff_ffff, 0, 1, 2, 5]);
    end.take(ack(1));
    assert_eq!(end.sent(), [(1, Success)]);
}

//= Q16, BC-031, 04-4.8, 04-4.14, 05-5.7 test
#[test]
fn inline_data_is_copied_when_posted_and_other_data_read_when_sent() {
    let mut end = requester();
    for bytes in [&b"short"[..], &[b'l'; 40]] {
        let mut inline = bytes.to_vec();
        let data = Data::Inline(&inline);
        end.qp.post_send(&request(1, Send, data), &mut end.adapter).unwrap();
        inline.fill(0);
    }
    end.adapter.memory[3000] = b'a';
    end.post(3, Send, 1);
    let first = end.leave();
    let short = format!("SEND_ONLY 1000 5 bytes from {} ack-req", b's');
    let long = format!("SEND_ONLY 1001 40 bytes from {} ack-req", b'l');
    assert_eq!(first[..2], [short.clone(), long.clone()]);
    assert_eq!(first[2], format!("SEND_ONLY 1002 1 bytes from {} ack-req", b'a'));
    end.adapter.memory[3000] = b'b';
    let at = end.qp.deadline().unwrap();
    end.qp.handle_timeout(at, &mut end.adapter);
    let changed = format!("SEND_ONLY 1002 1 bytes from {} ack-req", b'b');
    assert_eq!(end.leave_at(at), [short, long, changed]);
}

//= Q17, 04-4.10 test
#[test]
fn credits_hold_back_what_needs_a_receive_except_one_message() {
    let mut end = requester();
    end.post(0, Write(REMOTE), 1);
    end.leave();
    end.take(ack(1000).credits(0, 1));
    (1..9).for_each(|id| end.post(id, Send, 1));
    assert_eq!(psns(&mut end, NOW), [1001], "one beyond the limit");
    end.take(ack(1001).credits(5, 2)); // six buffers
    assert_eq!(psns(&mut end, NOW), [1002, 1003, 1004, 1005, 1006, 1007, 1008]);
    // What needs no receive is not held back, and from code 31 on nothing is.
    let mut end = requester();
    end.post(0, Write(REMOTE), 1);
    end.leave();
    end.take(ack(1000).credits(0, 1));
    end.post(1, Send, 1);
    end.post(2, Write(REMOTE), 1);
    end.post(3, Send, 1);
    assert_eq!(psns(&mut end, NOW), [1001, 1002]);
    end.take(ack(1002));
    assert_eq!(psns(&mut end, NOW), [1003]);
    end.take(ack(1003).credits(0, 4));
    (4..9).for_each(|id| end.post(id, Send, 1));
    assert_eq!(psns(&mut end, NOW).len(), 5, "unlimited once is unlimited for ever");
}

//= BC-036, 04-4.10 test
#[test]
fn a_duplicate_acknowledgement_may_bring_credits() {
    let mut end = requester();
    end.post(0, Write(REMOTE), 1);
    end.leave();
    end.take(ack(1000).credits(0, 1));
    (1..4).for_each(|id| end.post(id, Send, 1));
    assert_eq!(psns(&mut end, NOW), [1001]);
    end.take(ack(1000).credits(4, 1));
    assert_eq!((psns(&mut end, NOW), end.sent()), (vec![1002, 1003], vec![(0, Success)]));
}

//= Q18, BC-078, BC-103, 05-5.3 test
#[test]
fn a_bad_local_key_fails_the_request_without_a_packet() {
    let foreign = Sge { l_key: LKey(KEY + 1), ..sge(0, 8) };
    for operation in [Send, Write(REMOTE), Read(REMOTE), ADD] {
        let mut end = requester();
        end.post(1, Write(REMOTE), 1);
        let bad = [foreign];
        let request = request(2, operation, Data::Regions(&bad));
        end.qp.post_send(&request, &mut end.adapter).unwrap();
        end.post(3, Write(REMOTE), 1);
        assert_eq!(psns(&mut end, NOW), [1000]);
        assert_eq!(end.sent(), [], "what is before it comes first");
        end.take(ack(1000));
        end.leave();
        assert_eq!(end.sent(), [(1, Success), (2, LocalProtectionError), (3, Flushed)]);
        assert_eq!(end.qp.state(), QpState::Error);
    }
}

/// A message of several packets is looked at as a whole before the first one leaves.
//= BC-078 test
#[test]
fn no_part_of_a_message_with_a_bad_key_leaves() {
    let mut end = requester();
    let pieces = [sge(0, 600), Sge { l_key: LKey(KEY + 1), ..sge(0, 8) }];
    let request = request(1, Send, Data::Regions(&pieces));
    end.qp.post_send(&request, &mut end.adapter).unwrap();
    assert_eq!((end.leave(), end.sent()), (vec![], vec![(1, LocalProtectionError)]));
}

//= Q19, IBA 10.7.3.1 test
#[test]
fn failures_are_completed_whether_asked_for_or_not() {
    let mut end = requester();
    for id in 0..3 {
        end.post_request(id, Write(REMOTE), 1, |request| request.signaled = false);
    }
    end.leave();
    end.take(nak(1001, NakCode::RemoteAccessError));
    assert_eq!(end.sent(), [(1, RemoteAccessError), (2, Flushed)], "and the first is not");
}

//= Q20, 05-5.1, 05-5.4 test
#[test]
fn a_draining_queue_finishes_what_has_begun() {
    let mut end = requester();
    let drain = AttributeMask::of(&[A::EnSqdAsyncNotify]);
    end.qp.set_window(2);
    end.post(1, Write(REMOTE), 600);
    assert_eq!(psns(&mut end, NOW), [1000, 1001]);
    let values = attributes(1, 2);
    end.qp.modify(QpState::SqDrain, drain, &values, &mut end.adapter).unwrap();
    end.post(2, Send, 1);
    end.take(ack(1001));
    assert_eq!((psns(&mut end, NOW), &end.adapter.events[..]), (vec![1002], &[][..]));
    end.take(ack(1002));
    assert_eq!(end.adapter.events, [QpEvent::SqDrained]);
    assert_eq!((end.leave(), end.sent()), (vec![], vec![(1, Success)]));
    end.qp.modify(QpState::Rts, AttributeMask::NONE, &values, &mut end.adapter).unwrap();
    assert_eq!(psns(&mut end, NOW), [1003]);
}

//= BC-028, 04-4.8 test
#[test]
fn a_closed_window_has_asked_for_an_answer() {
    for window in [1, 2, 3, 7, 64] {
        let mut end = requester();
        end.qp.set_window(window);
        end.post(1, Write(REMOTE), 30_000);
        let mut next = 1000;
        while end.sent().is_empty() {
            let left = end.leave();
            assert!(left.len() <= window as usize, "{left:?}");
            let last = left.last().expect("it waits for an answer that nobody owes");
            assert!(last.ends_with("ack-req"), "window {window}: {last}");
            next += left.len() as u32;
            end.take(ack(next - 1));
        }
        assert_eq!(next, 1000 + 30_000_u32.div_ceil(256));
    }
}

//= BC-061, 04-4.15, IBA oA19-6 test
#[test]
fn only_what_completes_a_receive_is_solicited() {
    let flush = SendOperation::Flush {
        remote: REMOTE,
        len: 8,
        placement: FlushPlacement { global_visibility: true, ..Default::default() },
        selectivity: FlushSelectivity::Range,
    };
    let with_imm = SendOperation::WriteWithImm(REMOTE, ImmDt(1));
    for (operation, len, solicited) in [
        (Send, 8, &[true][..]),
        (Send, 300, &[false, true]),
        (with_imm, 300, &[false, true]),
        (Write(REMOTE), 8, &[false]),
        (Read(REMOTE), 8, &[false]),
        (ADD, 8, &[false]),
        (flush, 0, &[false]),
    ] {
        let mut end = requester();
        end.post_request(1, operation, len, |request| request.solicited = true);
        let bits: Vec<_> = end.leave().iter().map(|line| line.ends_with("solicited")).collect();
        assert_eq!(bits, solicited, "{operation:?}");
    }
}

//= BC-075, 02-2.1, 04-4.8 test
#[test]
fn messages_are_cut_at_the_path_mtu() {
    for (len, lines) in [
        (0, vec!["SEND_ONLY 1000 ack-req"]),
        (255, vec!["SEND_ONLY 1000 255 bytes from 0 ack-req"]),
        (256, vec!["SEND_ONLY 1000 256 bytes from 0 ack-req"]),
        (257, vec!["SEND_FIRST 1000 256 bytes from 0", "SEND_LAST 1001 1 bytes from 0 ack-req"]),
        (512, vec!["SEND_FIRST 1000 256 bytes from 0", "SEND_LAST 1001 256 bytes from 0 ack-req"]),
    ] {
        let mut end = requester();
        end.post(1, Send, len);
        assert_eq!(end.leave(), lines, "{len} bytes");
    }
}

//= BC-077, IBA C9-94, 04-4.14 test
#[test]
fn a_message_has_at_most_2_gigabytes() {
    let mut end = requester();
    let half = 1 << 30;
    let pieces = [sge(0, half), sge(0, half), sge(0, 1)];
    let mut post = |pieces: &[Sge]| {
        let request = request(1, Write(REMOTE), Data::Regions(pieces));
        end.qp.post_send(&request, &mut end.adapter)
    };
    assert_eq!(post(&pieces), Err(PostError::MessageTooLong { len: (1 << 31) + 1 }));
    assert_eq!(post(&pieces[..2]), Ok(()));
}

/// Which of the packets that leave now ask for an acknowledgement.
fn asked(end: &mut world::End) -> Vec<bool> {
    end.leave().iter().map(|line| line.contains("ack-req")).collect()
}

/// Of messages posted together only the last asks, if it is told so: one acknowledgement for all.
#[test]
fn the_last_of_what_is_posted_asks_for_all() {
    for (conduct, expected) in [
        (Conduct::DEFAULT, [true, false, true, true]),
        (Conduct::ADAPTER, [false, false, false, true]),
    ] {
        let mut end = behaving(conduct, |_| {});
        end.post(0, Write(REMOTE), 1);
        end.post(1, Write(REMOTE), 300);
        end.post(2, Write(REMOTE), 1);
        assert_eq!(asked(&mut end), expected, "{conduct:?}");
        end.take(ack(1003));
        assert_eq!(end.sent(), [(0, Success), (1, Success), (2, Success)]);
        end.post(3, Write(REMOTE), 1);
        assert_eq!(asked(&mut end), [true], "nobody else would");
    }
}

/// What waits for a message to be acknowledged does not ask for it.
#[test]
fn a_message_asks_where_the_next_one_has_to_wait() {
    // Behind a fence, for the READ.
    let mut end = behaving(Conduct::ADAPTER, |_| {});
    end.post(0, Read(REMOTE), 8);
    end.post(1, Write(REMOTE), 1);
    end.post_request(2, Write(REMOTE), 1, |request| request.fence = true);
    assert_eq!(asked(&mut end), [false, true]);
    // A local operation, for everything.
    let mut end = behaving(Conduct::ADAPTER, |_| {});
    end.post(0, Write(REMOTE), 1);
    let invalidate = SendOperation::Local(LocalOperation::Invalidate(RKey(KEY)));
    end.post_request(1, invalidate, 0, |request| request.data = Data::Regions(&[]));
    end.post(2, Write(REMOTE), 1);
    assert_eq!(asked(&mut end), [true]);
    // A SEND, for the peer's receives: every message asks how many there are.
    let mut end = behaving(Conduct::ADAPTER, |_| {});
    end.post(0, Send, 1);
    assert_eq!(asked(&mut end), [true]);
    end.take(ack(1000).credits(5, 1));
    end.post(1, Send, 1);
    end.post(2, Send, 1);
    assert_eq!(asked(&mut end), [true, true]);
}

/// One that left the asking to the next one asks after all where that cannot follow: no timer need
/// run, and the peer need not answer what did not ask.
#[test]
fn a_message_asks_again_where_the_next_one_does_not_follow() {
    let never = AckTimeout::new(0).unwrap();
    let counting = |next: SendOperation, len| {
        let mut end = behaving(Conduct::ADAPTER, |own| own.timeout = never);
        end.post(0, Write(REMOTE), 1);
        end.post(1, Send, 1);
        end.post(2, next, len);
        for psn in 1000..1002 {
            let bytes = end.poll(NOW).expect("a packet");
            assert_eq!((bytes[8] & 0x80, &bytes[10..12]), (0, &u16::to_be_bytes(psn)[..]));
        }
        end
    };
    let again = ["SEND_ONLY 1001 1 bytes from 0 ack-req"];
    // It is held back while the queue is drained.
    let mut end = counting(Write(REMOTE), 1);
    let notify = AttributeMask::of(&[A::EnSqdAsyncNotify]);
    end.qp.modify(QpState::SqDrain, notify, &attributes(1, 2), &mut end.adapter).unwrap();
    assert_eq!(end.leave(), again);
    assert_eq!(end.leave(), [] as [String; 0], "once");
    end.take(ack(1001));
    assert_eq!(end.adapter.events, [QpEvent::SqDrained]);
    end.qp.modify(QpState::Rts, AttributeMask::NONE, &attributes(1, 2), &mut end.adapter).unwrap();
    assert_eq!(end.leave(), ["WRITE_ONLY 1002 va 0 len 1 1 bytes from 0 ack-req"]);
    // Its memory cannot be read: all of it, what is left of it, or where the responses go.
    for (next, len, gone) in [(Write(REMOTE), 1, 1), (Send, 600, 300), (Read(REMOTE), 600, 300)] {
        let mut end = counting(next, len);
        end.adapter.memory.truncate(2000 + len as usize - gone);
        assert_eq!(end.leave(), again);
        assert_eq!(end.sent(), []);
        end.take(ack(1001));
        assert_eq!(end.sent(), [(0, Success), (1, Success), (2, LocalProtectionError)]);
    }
    // It goes away when some of it is sent.
    let mut end = counting(Write(REMOTE), 600);
    let first = end.poll(NOW).expect("the first packet");
    assert_eq!(first[8] & 0x80, 0);
    end.adapter.memory.truncate(2300);
    assert_eq!(end.leave(), again);
    end.take(ack(1002));
    assert_eq!(end.sent(), [(0, Success), (1, Success), (2, LocalProtectionError)]);
    // The peer has a receive for it or has none, as it says only now.
    let mut end = counting(Send, 1);
    end.post(3, Send, 1);
    end.take(ack(1000).credits(1, 1));
    assert_eq!(end.leave(), ["SEND_ONLY 1002 1 bytes from 0 ack-req"]);
    let mut end = counting(Send, 1);
    end.take(ack(1000).credits(0, 1));
    assert_eq!(end.leave(), again);
    // It takes so many packets that it has to wait for what is before it.
    let mut end = behaving(Conduct::ADAPTER, |own| own.timeout = never);
    end.adapter.endless = true;
    end.post(0, Write(REMOTE), 1);
    let most = (Psn::MODULUS / 2 - 256) * 256;
    end.post(1, Write(REMOTE), most);
    assert_eq!(asked(&mut end), [false, true]);
    // One that has an answer of its own need not ask.
    let mut end = counting(Read(REMOTE), 1);
    end.post_request(3, Write(REMOTE), 1, |request| request.fence = true);
    assert_eq!(end.leave(), ["READ_REQUEST 1002 va 0 len 1"]);
}
