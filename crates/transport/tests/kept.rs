//! What of the kept answers a duplicate gets, and in which order: the next PSN is 1000, the path
//! MTU 256.

#[allow(dead_code, reason = "shared with other tests")]
mod peer;
#[allow(dead_code, reason = "shared with other tests")]
mod world;

use peer::{Sent, packet};
use roxe_transport::adapter::Count;
use roxe_transport::qp_state::{QpState, ServiceType};
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
