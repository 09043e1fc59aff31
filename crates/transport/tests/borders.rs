//! The last that is allowed and the first that is not, and what is said of work to do: the
//! requester's first PSN is 1000, the responder's next one 2000, the path MTU 256.

#[allow(dead_code, reason = "shared with other tests")]
mod peer;
#[allow(dead_code, reason = "shared with other tests")]
mod world;

use peer::{ack, packet};
use roxe_transport::qp_state::ServiceType;
use roxe_transport::work::{CompletionStatus, Remote, SendOperation};
use roxe_wire::{RKey, RnrTimer, Syndrome};
use world::{End, KEY, attributes};

use CompletionStatus::LocalLengthError;
use SendOperation::{Read, Write};

const REMOTE: Remote = Remote { va: 0, r_key: RKey(KEY) };

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

/// The newest PSN and the oldest unacknowledged one stay less than half the circle apart, whatever
/// the window adds.
//= Q14 test
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
