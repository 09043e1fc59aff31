//! When a requester sends again, how long it waits and when it gives up: its first PSN is 1000, the
//! path MTU 256, the ACK timeout 4.096 µs × 2¹⁰.

#[allow(dead_code, reason = "shared with other tests")]
mod peer;
#[allow(dead_code, reason = "shared with other tests")]
mod world;

use std::time::Duration;

use peer::{
    NOW, REMOTE, Sent, ack, at_deadline, behaving, count, nak, psns, request, requester, response,
    with, writes,
};
use roxe_transport::adapter::Count;
use roxe_transport::conduct::Conduct;
use roxe_transport::qp_state::QpState;
use roxe_transport::work::{CompletionStatus, Data, SendOperation};
use roxe_wire::{AckTimeout, Instant, NakCode, RnrTimer, Syndrome};
use world::sge;

use CompletionStatus::{Flushed, RetryExceeded, RnrRetryExceeded, Success};
use SendOperation::{Read, Send, Write};

const TIMEOUT: Duration = Duration::from_nanos(4096 << 10);

fn rnr(psn: u32, code: u8) -> Sent {
    ack(psn).syndrome(Syndrome::RnrNak(RnrTimer::from_bits(code)))
}

//= Q01, BC-121, 04-4.9 test
#[test]
fn without_an_answer_a_request_is_sent_as_often_as_the_retry_count_says() {
    let mut end = with(|own| own.retry_cnt = 3);
    writes(&mut end, 1);
    let mut last = NOW;
    for _ in 0..3 {
        let (at, sent) = at_deadline(&mut end);
        assert!((TIMEOUT..=4 * TIMEOUT).contains(&(at - last)), "{:?}", at - last);
        assert_eq!(sent, [1000]);
        last = at;
    }
    assert_eq!(at_deadline(&mut end).1, [0; 0]);
    assert_eq!((end.sent(), end.qp.state()), (vec![(0, RetryExceeded)], QpState::Error));
}

//= BC-121 test
#[test]
fn a_timeout_of_0_is_never() {
    let mut end = with(|own| own.timeout = AckTimeout::new(0).unwrap());
    writes(&mut end, 1);
    assert_eq!(end.qp.deadline(), None);
    for code in [1, 14, 20, 31] {
        let mut end = with(|own| own.timeout = AckTimeout::new(code).unwrap());
        writes(&mut end, 1);
        let nominal = Duration::from_nanos(4096 << code);
        let waits = end.qp.deadline().unwrap() - NOW;
        assert!((nominal..=4 * nominal).contains(&waits), "code {code}: {waits:?}");
    }
}

//= Q02 test
#[test]
fn with_retry_0_the_first_timeout_is_the_end() {
    let mut end = with(|own| own.retry_cnt = 0);
    writes(&mut end, 1);
    assert_eq!(at_deadline(&mut end).1, [0; 0]);
    assert_eq!(end.sent(), [(0, RetryExceeded)]);
}

//= Q01, BC-121 test
#[test]
fn who_does_not_answer_an_adapter_gets_few_packets_until_it_does() {
    let mut end = behaving(Conduct::ADAPTER, |_| {});
    writes(&mut end, 40);
    let few: Vec<u32> = (1000..1016).collect();
    assert_eq!(at_deadline(&mut end).1, few);
    let (at, sent) = at_deadline(&mut end);
    assert_eq!(sent, few);
    end.take_at(at, ack(1003));
    assert_eq!(psns(&mut end, at), (1016..1040).collect::<Vec<_>>());
    end.take_at(at, ack(1039));
    assert_eq!(end.sent().len(), 40);
}

//= Q03, BC-022, 04-4.9 test
#[test]
fn a_sequence_nak_acknowledges_what_is_before_it_and_sends_the_rest_again() {
    let mut end = requester();
    writes(&mut end, 5);
    end.take(nak(1002, NakCode::PsnSequenceError));
    assert_eq!(end.sent(), [(0, Success), (1, Success)]);
    assert_eq!(psns(&mut end, NOW), [1002, 1003, 1004]);
    end.take(ack(1004));
    assert_eq!(end.sent().len(), 5);
}

//= Q05, BC-045 test
#[test]
fn a_receiver_that_is_not_ready_is_asked_as_often_as_rnr_retry_says() {
    for rnr_retry in [0, 2] {
        let mut end = with(|own| own.rnr_retry = rnr_retry);
        end.post(0, Send, 1);
        let mut sent = end.leave().len();
        let mut now = NOW;
        for _ in 0..rnr_retry {
            end.take_at(now, rnr(1000, 1));
            let (at, again) = at_deadline(&mut end);
            assert!(at - now >= Duration::from_micros(10), "{:?}", at - now);
            (now, sent) = (at, sent + again.len());
        }
        end.take_at(now, rnr(1000, 1));
        assert_eq!((sent, end.sent()), (usize::from(rnr_retry) + 1, vec![(0, RnrRetryExceeded)]));
    }
    let mut end = with(|own| own.rnr_retry = 7);
    end.post(0, Send, 1);
    end.leave();
    for _ in 0..100 {
        end.take(rnr(1000, 1));
        assert_eq!(at_deadline(&mut end).1, [1000], "7 is for ever");
    }
}

/// The longer of two waits is the receiver's, and nothing that arrives meanwhile shortens it.
//= BC-041, 04-4.9 test
#[test]
fn nothing_shortens_an_rnr_wait() {
    let mut end = requester();
    end.post(0, Write(REMOTE), 1);
    end.post(1, Send, 1);
    end.leave();
    end.take(rnr(1001, 24)); // 40.96 ms, ten times the ACK timeout
    assert_eq!(end.sent(), [(0, Success)], "it acknowledges what is before it");
    end.post(2, Write(REMOTE), 1);
    end.take(ack(1000));
    end.take(nak(1001, NakCode::PsnSequenceError));
    let until = NOW + Duration::from_micros(40_960);
    assert_eq!(end.qp.deadline(), Some(until));
    let early = Instant::from_nanos(until.nanos() - 1);
    end.qp.handle_timeout(early, &mut end.adapter);
    assert_eq!(end.leave_at(early), [""; 0]);
    assert_eq!(at_deadline(&mut end), (until, vec![1001, 1002]));
}

//= BC-042, Q05 test
#[test]
fn each_rnr_timer_is_waited_for_to_its_end() {
    for code in 0..32 {
        let mut end = requester();
        end.post(0, Send, 1);
        end.leave();
        end.take(rnr(1000, code));
        let wait = end.qp.deadline().unwrap() - NOW;
        let nominal = RnrTimer::from_bits(code).duration();
        assert!(wait >= nominal && wait <= nominal + Duration::from_micros(10), "code {code}");
    }
}

//= Q08, BC-052, 02-2.4, 04-4.9 test
#[test]
fn a_missing_read_response_makes_the_requester_ask_for_the_rest() {
    for (again, rest) in [("FIRST", "LAST"), ("MIDDLE", "LAST")] {
        let mut end = requester();
        end.post(1, Read(REMOTE), 600);
        assert_eq!(end.leave(), ["READ_REQUEST 1000 va 0 len 600 ack-req"]);
        end.take(response("FIRST", 1000, 0, 256));
        end.take(response("LAST", 1002, 10, 88));
        assert_eq!(end.leave(), ["READ_REQUEST 1001 va 256 len 344 ack-req"]);
        assert_eq!(end.adapter.count_of(Count::ImpliedNak), 1);
        end.take(response(again, 1001, 5, 256));
        end.take(response(rest, 1002, 10, 88));
        assert_eq!(end.sent(), [(1, Success)]);
        let expected = [count(0, 256), count(5, 256), count(10, 88)].concat();
        assert_eq!(end.adapter.memory[1000..1600], expected);
    }
}

//= Q09, BC-021, 04-4.9 test
#[test]
fn an_acknowledgement_does_not_pass_a_read_without_its_data() {
    let mut end = requester();
    end.post(0, Write(REMOTE), 1);
    end.post(1, Read(REMOTE), 8);
    end.post(2, Write(REMOTE), 1);
    end.leave();
    end.take(ack(1002));
    assert_eq!(end.sent(), [(0, Success)]);
    assert_eq!(psns(&mut end, NOW), [1001, 1002]);
    end.take(response("ONLY", 1001, 7, 8));
    end.take(ack(1002));
    assert_eq!(end.sent(), [(0, Success), (1, Success), (2, Success)]);
}

//= BC-024 test
#[test]
fn an_implied_nak_costs_one_try() {
    let mut end = with(|own| own.retry_cnt = 1);
    end.post(0, Read(REMOTE), 8);
    end.post(1, Write(REMOTE), 1);
    end.leave();
    end.take(ack(1001));
    end.take(ack(1001));
    assert_eq!((psns(&mut end, NOW), end.sent()), (vec![1000, 1001], vec![]));
    assert_eq!(at_deadline(&mut end).1, [0; 0]);
    assert_eq!(end.sent(), [(0, RetryExceeded), (1, Flushed)]);
    let mut end = with(|own| own.retry_cnt = 0);
    end.post(0, Read(REMOTE), 8);
    end.post(1, Write(REMOTE), 1);
    end.leave();
    end.take(ack(1001));
    assert_eq!(end.sent(), [(0, RetryExceeded), (1, Flushed)]);
}

//= Q15, BC-025 test
#[test]
fn repeated_naks_for_one_loss_cost_one_try() {
    let mut end = with(|own| own.retry_cnt = 1);
    writes(&mut end, 3);
    (0..3).for_each(|_| end.take(nak(1001, NakCode::PsnSequenceError)));
    assert_eq!(psns(&mut end, NOW), [1001, 1002], "once");
    end.take(nak(1001, NakCode::PsnSequenceError));
    assert_eq!((psns(&mut end, NOW), end.qp.state()), (vec![], QpState::Rts));
}

/// A message of pieces that is sent again from its middle on has the same bytes there.
//= BC-031 test
#[test]
fn what_is_sent_again_has_the_same_bytes() {
    let mut end = requester();
    end.adapter.memory[..2000].copy_from_slice(&count(0, 2000));
    let pieces = [sge(0, 100), sge(300, 7), sge(500, 0), sge(700, 600)];
    let data = Data::Regions(&pieces);
    end.qp.post_send(&request(1, Write(REMOTE), data), &mut end.adapter).unwrap();
    let whole: Vec<_> = std::iter::from_fn(|| end.poll(NOW)).collect();
    for from in [1002, 1001] {
        end.take(nak(from, NakCode::PsnSequenceError));
        let again: Vec<_> = std::iter::from_fn(|| end.poll(NOW)).collect();
        let index = (from - 1000) as usize;
        for (one, other) in again.iter().zip(&whole[index..]) {
            assert_eq!(one[12..], other[12..], "all behind the BTH");
        }
        assert_eq!(again.len(), whole.len() - index);
        end = requester();
        end.adapter.memory[..2000].copy_from_slice(&count(0, 2000));
        end.qp.post_send(&request(1, Write(REMOTE), data), &mut end.adapter).unwrap();
        end.leave();
    }
}

//= Q22 test
#[test]
fn if_a_nak_is_lost_the_timeout_sends_again() {
    let mut end = requester();
    writes(&mut end, 2);
    // The responder sent a NAK once and is silent from then on.
    assert_eq!(at_deadline(&mut end).1, [1000, 1001]);
    end.take(ack(1001));
    assert_eq!(end.sent().len(), 2);
}

//= IBA o9-85, BC-027, 04-4.9 test
#[test]
fn there_is_one_timer_that_progress_starts_anew() {
    let mut end = requester();
    end.post(1, Write(REMOTE), 600);
    end.leave();
    let first = end.qp.deadline().unwrap();
    let later = NOW + TIMEOUT / 2;
    end.post(2, Write(REMOTE), 1);
    end.leave_at(later);
    assert_eq!(end.qp.deadline(), Some(first), "more packets do not push it away");
    end.take_at(later, ack(1001));
    assert_eq!(end.qp.deadline().unwrap() - later, first - NOW);
    end.take_at(later, ack(1003));
    assert_eq!(end.qp.deadline(), None, "nothing is awaited");
}
