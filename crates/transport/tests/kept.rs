//! What of the kept answers a duplicate gets, and in which order: the next PSN is 1000, the path
//! MTU 256.

#[allow(dead_code, reason = "shared with other tests")]
mod peer;
#[allow(dead_code, reason = "shared with other tests")]
mod world;

use peer::{Sent, packet};
use roxe_transport::adapter::Count;
use roxe_transport::qp_state::{QpState, ServiceType};
use roxe_wire::{Body, PKey, Packet, Qpn};
use world::{End, attributes};

fn responder() -> End {
    End::new(ServiceType::Rc, attributes(2, 1))
}

fn psns(end: &mut End) -> Vec<String> {
    let words = |line: String| line.split(' ').take(2).collect::<Vec<_>>().join(" ");
    end.leave().into_iter().map(words).collect()
}

/// Requests with one PSN that each other's answer must not be given to.
fn requests(psn: u32) -> [Sent; 5] {
    [
        packet("RC_READ_REQUEST", psn).len(8),
        packet("RC_ATOMIC_WRITE", psn).bytes(&[1; 8]),
        packet("RC_FLUSH", psn).len(8),
        packet("RC_FETCH_ADD", psn),
        packet("RC_CMP_SWAP", psn),
    ]
}

//= R10, R11, BC-050, 04-4.7 test
#[test]
fn no_duplicate_gets_the_answer_of_another_kind_of_request() {
    for (first, request) in requests(1000).into_iter().enumerate() {
        let mut end = responder();
        end.take(request);
        assert_eq!(end.leave().len(), 1);
        for (again, duplicate) in requests(1000).into_iter().enumerate() {
            end.take(duplicate);
            let answered = usize::from(first == again);
            assert_eq!(end.leave().len(), answered, "number {again} for number {first}");
        }
        assert_eq!(end.adapter.count_of(Count::DuplicateDropped), 4);
        assert_eq!(end.qp.state(), QpState::Rts);
    }
}

//= IBA C9-110, 04-4.3, 04-4.7 test
#[test]
fn duplicates_are_answered_from_the_oldest_on_in_whichever_order_they_come() {
    let names = ["READ_RESPONSE_ONLY", "READ_RESPONSE_ONLY", "READ_RESPONSE_ONLY"];
    let three: Vec<Sent> = (1000..1003).map(|psn| packet("RC_READ_REQUEST", psn).len(8)).collect();
    let expected: Vec<String> =
        names.iter().zip(1000..).map(|(name, psn)| format!("{name} {psn}")).collect();
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let mut end = responder();
        three.iter().for_each(|request| end.take(request.clone()));
        assert_eq!(psns(&mut end), expected);
        order.iter().for_each(|&at| end.take(three[at].clone()));
        assert_eq!(psns(&mut end), expected, "{order:?}");
        assert!(!end.qp.has_response());
        // The same while the first answers have not been sent yet.
        let mut end = responder();
        three.iter().for_each(|request| end.take(request.clone()));
        order.iter().for_each(|&at| end.take(three[at].clone()));
        assert_eq!(psns(&mut end), expected, "{order:?}");
        assert!(!end.qp.has_response());
    }
}

/// The NAK acknowledges all that an ACK would.
//= R27, 04-4.3 test
#[test]
fn a_duplicate_before_a_nak_has_left_adds_nothing_to_it() {
    let mut end = responder();
    end.take(packet("RC_WRITE_ONLY", 1000).bytes(b"x").ack_req());
    assert_eq!(end.leave().len(), 1);
    end.take(packet("RC_WRITE_ONLY", 1002).bytes(b"x").ack_req());
    end.take(packet("RC_WRITE_ONLY", 1000).bytes(b"x").ack_req());
    assert_eq!(end.leave(), ["ACKNOWLEDGE 1001 nak 0x60 msn 1"]);
}

#[test]
fn answers_are_of_the_partition_and_for_the_queue_pair_of_the_peer() {
    let mut own = attributes(2, 1);
    own.p_key = PKey(0x8123);
    let mut end = End::new(ServiceType::Rc, own);
    end.take(packet("RC_READ_REQUEST", 1000).len(8));
    end.take(packet("RC_FETCH_ADD", 1001));
    end.take(packet("RC_WRITE_ONLY", 1002).bytes(b"x").ack_req());
    for _ in 0..3 {
        let bytes = end.poll(peer::NOW).unwrap();
        let bth = Packet::parse(Body::whole(&bytes)).unwrap().headers.bth;
        assert_eq!((bth.p_key, bth.dest_qp, bth.mig_req), (PKey(0x8123), Qpn::new(1), true));
    }
}
