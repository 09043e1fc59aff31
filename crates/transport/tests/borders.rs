//! The last that is allowed and the first that is not, and what is said of work to do: the
//! requester's first PSN is 1000, the responder's next one 2000, the path MTU 256.

#[allow(dead_code, reason = "shared with other tests")]
mod peer;
#[allow(dead_code, reason = "shared with other tests")]
mod world;

use std::time::Duration;

use peer::{REMOTE, ack, count, packet};
use roxe_transport::adapter::Count;
use roxe_transport::qp_state::{Attribute as A, AttributeMask, QpState, ServiceType};
use roxe_transport::work::{CompletionStatus, Data, LocalOperation, SendOperation};
use roxe_wire::{Instant, NakCode, RKey, RnrTimer, Syndrome};
use world::{End, KEY, attributes};

use CompletionStatus::{LocalLengthError, Success};
use SendOperation::{Read, Write};

fn connection() -> End {
    End::new(ServiceType::Rc, attributes(1, 2))
}

#[test]
fn a_responder_has_work_as_long_as_it_owes_an_answer() {
    let mut end = connection();
    assert!(!end.qp.has_response());
    end.take(packet("RC_WRITE_ONLY", 2000).bytes(b"a"));
    assert!(!end.qp.has_response(), "nobody asked");
    end.take(packet("RC_WRITE_ONLY", 2001).bytes(b"a").ack_req());
    assert!(end.qp.has_response());
    assert_eq!(end.leave().len(), 1);
    assert!(!end.qp.has_response());
    end.take(packet("RC_READ_REQUEST", 2002).len(300));
    for _ in 0..2 {
        assert!(end.qp.has_response());
        end.poll(peer::NOW).unwrap();
    }
    assert!(!end.qp.has_response());
    end.take(packet("RC_WRITE_ONLY", 2009).bytes(b"a"));
    assert!(end.qp.has_response(), "a NAK");
    assert_eq!(end.leave(), ["ACKNOWLEDGE 2004 nak 0x60 msn 3"]);
    assert!(!end.qp.has_response() && !end.qp.has_request());
}

#[test]
fn a_message_may_fill_its_receive_to_the_last_byte() {
    for (len, status, byte_len) in [(300, Success, 300), (299, LocalLengthError, 0)] {
        let mut end = connection();
        end.room(1, len);
        end.take(packet("RC_SEND_FIRST", 2000).bytes(&count(1, 256)));
        end.take(packet("RC_SEND_LAST", 2001).bytes(&count(1, 44)));
        assert_eq!(end.received(), [(1, status, byte_len)]);
    }
}

#[test]
fn a_requester_has_work_while_something_is_to_be_sent_and_may_be() {
    let mut end = connection();
    assert!(!end.qp.has_request());
    end.post(1, Write(REMOTE), 1);
    assert!(end.qp.has_request());
    assert_eq!(end.leave().len(), 1);
    assert!(!end.qp.has_request(), "an answer is awaited");
    end.take(ack(1000).syndrome(Syndrome::RnrNak(RnrTimer::from_bits(1))));
    assert!(!end.qp.has_request(), "the receiver is not ready");
    let at = end.qp.deadline().unwrap();
    end.qp.handle_timeout(at, &mut end.adapter);
    assert!(end.qp.has_request());
    assert_eq!(end.leave_at(at).len(), 1);
    end.take(ack(1000));
    assert!(!end.qp.has_request());
}

/// Whoever moves the engine is late at times, and early at others.
//= Q01, BC-041 test
#[test]
fn a_timer_runs_out_at_its_deadline_and_any_time_after() {
    let early = Duration::from_nanos(1);
    for late in [Duration::ZERO, Duration::from_nanos(1), Duration::from_secs(100)] {
        let mut end = connection();
        end.post(1, Write(REMOTE), 1);
        end.leave();
        let at = end.qp.deadline().unwrap();
        let before = Instant::ZERO + (at - Instant::ZERO - early);
        for (now, sent) in [(before, 0), (at + late, 1), (at + late, 0)] {
            end.qp.handle_timeout(now, &mut end.adapter);
            assert_eq!(end.leave_at(now).len(), sent, "{late:?}");
        }
        // The same for the wait that a receiver asks for.
        let now = at + late;
        end.take_at(now, ack(1000).syndrome(Syndrome::RnrNak(RnrTimer::from_bits(5))));
        let at = end.qp.deadline().unwrap();
        let before = Instant::ZERO + (at - Instant::ZERO - early);
        for (now, sent) in [(before, 0), (at + late, 1)] {
            end.qp.handle_timeout(now, &mut end.adapter);
            assert_eq!(end.leave_at(now).len(), sent, "{late:?}");
        }
    }
}

/// What has ended waits for nothing.
#[test]
fn no_timer_outlives_its_connection() {
    for syndrome in
        [Syndrome::Nak(NakCode::RemoteAccessError), Syndrome::RnrNak(RnrTimer::from_bits(5))]
    {
        let mut end = connection();
        (1..3).for_each(|id| end.post(id, Write(REMOTE), 1));
        end.leave();
        end.take(ack(1000).syndrome(syndrome));
        if end.qp.state() != QpState::Error {
            assert!(end.qp.deadline().is_some());
            let none = AttributeMask::NONE;
            end.qp.modify(QpState::Error, none, &attributes(1, 2), &mut end.adapter).unwrap();
        }
        assert_eq!((end.sent().len(), end.qp.deadline()), (2, None));
        end.adapter.counts.clear();
        let later = Instant::ZERO + Duration::from_secs(100);
        end.qp.handle_timeout(later, &mut end.adapter);
        assert_eq!((end.leave_at(later).len(), &end.adapter.counts[..]), (0, &[][..]));
    }
}

/// The newest PSN and the oldest unacknowledged one stay less than half the circle apart, whatever
/// the window adds.
#[test]
fn a_request_takes_at_most_half_the_psn_circle_without_the_window() {
    let endless = || {
        let mut end = connection();
        end.adapter.endless = true;
        end
    };
    for (window, counts) in [(256, 256), (0, 1), (7, 7), (u32::MAX, 1 << 22)] {
        let most = (1 << 23) - counts;
        let mut end = endless();
        end.qp.set_window(window);
        end.post(0, Read(REMOTE), most * 256);
        assert_eq!(end.leave(), [format!("READ_REQUEST 1000 va 0 len {} ack-req", most * 256)]);
        let mut end = endless();
        end.qp.set_window(window);
        end.post(0, Read(REMOTE), most * 256 + 1);
        assert_eq!((end.leave(), end.sent()), (vec![], vec![(0, LocalLengthError)]), "{window}");
    }
    // What is in flight takes its part: such a request waits.
    let most = (1 << 23) - 256;
    for (packets, at_once) in [(most - 2, 3), (most - 1, 2)] {
        let mut end = endless();
        end.post(0, Write(REMOTE), 1);
        end.post(0, Write(REMOTE), 1);
        end.post(0, Read(REMOTE), packets * 256);
        assert_eq!(end.leave().len(), at_once);
        end.take(ack(1000));
        assert_eq!(end.leave().len(), 3 - at_once);
    }
}

/// Answers that come late, while all is about to be sent again.
//= Q08, 04-4.9 test
#[test]
fn what_is_answered_meanwhile_is_not_asked_for_again() {
    let mut end = connection();
    end.post(1, Read(REMOTE), 600);
    end.post(2, Write(REMOTE), 1);
    end.leave();
    let at = end.qp.deadline().unwrap();
    end.qp.handle_timeout(at, &mut end.adapter);
    end.take_at(at, packet("RC_READ_RESPONSE_FIRST", 1000).bytes(&count(1, 256)));
    let again = ["READ_REQUEST 1001 va 256 len 344 ack-req", "WRITE_ONLY 1003 va 0 len 1"];
    let left = end.leave_at(at);
    assert_eq!((&left[0][..], left[1].starts_with(again[1]), left.len()), (again[0], true, 2));
}

//= Q07 test
#[test]
fn only_naks_from_before_are_ghosts() {
    let mut end = connection();
    end.post(1, Write(REMOTE), 1);
    end.post(2, Write(REMOTE), 1);
    end.leave();
    end.take(ack(1000));
    let ghosts = |end: &End| end.adapter.count_of(Count::GhostResponse);
    end.take(ack(1000));
    assert_eq!(ghosts(&end), 0, "the same again");
    end.take(ack(1000).syndrome(Syndrome::Nak(NakCode::PsnSequenceError)));
    assert_eq!(ghosts(&end), 1);
    end.take(ack(1002));
    assert_eq!(ghosts(&end), 2, "what was never sent");
}

//= 04-4.9 test
#[test]
fn progress_gives_all_tries_back() {
    let mut own = attributes(1, 2);
    own.retry_cnt = 1;
    let mut end = End::new(ServiceType::Rc, own);
    for id in 0..3 {
        end.post(id, Write(REMOTE), 1);
        let psn = 1000 + u32::try_from(id).unwrap();
        end.leave();
        let at = end.qp.deadline().unwrap();
        end.qp.handle_timeout(at, &mut end.adapter);
        assert_eq!(end.leave_at(at).len(), 1);
        end.take_at(at, ack(psn));
    }
    assert_eq!((end.sent().len(), end.qp.state()), (3, QpState::Rts));
}

/// No answer is waited for longer than a quarter of the window takes.
//= BC-028, 04-4.8 test
#[test]
fn every_quarter_of_the_window_asks_for_an_answer() {
    for (window, asking) in [(64, vec![15, 31, 47, 63]), (7, vec![1, 3, 5, 6])] {
        let mut end = connection();
        end.qp.set_window(window);
        end.post(1, Write(REMOTE), 30_000);
        let left = end.leave();
        let asks = |at: &usize| left[*at].ends_with("ack-req");
        assert_eq!((0..left.len()).filter(asks).collect::<Vec<_>>(), asking, "{window}");
    }
}

//= Q20, 05-5.1 test
#[test]
fn a_draining_queue_begins_no_local_work() {
    let mut end = connection();
    let values = attributes(1, 2);
    let drain = AttributeMask::of(&[A::EnSqdAsyncNotify]);
    end.qp.modify(QpState::SqDrain, drain, &values, &mut end.adapter).unwrap();
    let invalidate = SendOperation::Local(LocalOperation::Invalidate(RKey(KEY)));
    end.post_request(1, invalidate, 0, |request| request.data = Data::Regions(&[]));
    assert_eq!((end.leave(), end.sent()), (vec![], vec![]));
    end.qp.modify(QpState::Rts, AttributeMask::NONE, &values, &mut end.adapter).unwrap();
    assert_eq!((end.leave(), end.sent()), (vec![], vec![(1, Success)]));
}
