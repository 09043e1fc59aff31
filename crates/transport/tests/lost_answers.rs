//! Answers that are lost on the way back, one packet at a time.

mod world;

use roxe_transport::adapter::Count;
use roxe_transport::qp_state::{QpState, ServiceType};
use roxe_transport::work::{
    Attributes, CompletionStatus, Data, Remote, SendOperation, SendRequest,
};
use roxe_wire::{Instant, RKey};
use world::{End, KEY, attributes, sge};

const NOW: Instant = Instant::ZERO;

fn post(end: &mut End, wr_id: u64, operation: SendOperation) {
    let sges = [sge(wr_id * 100, 10)];
    let request = SendRequest {
        wr_id,
        operation,
        data: Data::Regions(&sges),
        signaled: true,
        solicited: false,
        fence: false,
        target: None,
    };
    end.qp.post_send(&request, &mut end.adapter).unwrap();
}

/// One end that may try once more, another that answers it.
fn pair() -> (End, End) {
    let once = |attributes| Attributes { retry_cnt: 1, rnr_retry: 0, ..attributes };
    (
        End::new(ServiceType::Rc, once(attributes(1, 2))),
        End::new(ServiceType::Rc, once(attributes(2, 1))),
    )
}

fn packets(end: &mut End) -> Vec<Vec<u8>> {
    std::iter::from_fn(|| end.poll(NOW)).collect()
}

/// Everything else that is sent arrives, and all requests complete.
fn settle(a: &mut End, b: &mut End, requests: u64) {
    loop {
        let (to_b, to_a) = (packets(a), packets(b));
        if to_a.is_empty() && to_b.is_empty() {
            break;
        }
        to_b.iter().for_each(|packet| b.receive(NOW, packet));
        to_a.iter().for_each(|packet| a.receive(NOW, packet));
    }
    let done: Vec<_> = a.adapter.sent.iter().map(|c| (c.wr_id, c.status)).collect();
    let all: Vec<_> = (0..requests).map(|id| (id, CompletionStatus::Success)).collect();
    assert_eq!(done, all);
    assert_eq!(a.qp.state(), QpState::Rts);
}

const REMOTE: Remote = Remote { va: 5000, r_key: RKey(KEY) };

#[test]
fn a_nak_behind_a_missing_answer_costs_one_try() {
    let (mut a, mut b) = pair();
    post(&mut a, 0, SendOperation::Read(REMOTE));
    post(&mut a, 1, SendOperation::Write(REMOTE));
    post(&mut a, 2, SendOperation::Write(REMOTE));
    let sent = packets(&mut a);
    b.receive(NOW, &sent[0]);
    b.receive(NOW, &sent[2]); // the one between is lost
    let answers = packets(&mut b);
    assert_eq!(answers.len(), 2, "the data, and a NAK");
    a.receive(NOW, &answers[1]); // the data is lost too
    let tries = [Count::ImpliedNak, Count::SequenceNakReceived];
    assert_eq!(tries.map(|count| a.adapter.count_of(count)).iter().sum::<usize>(), 1);
    settle(&mut a, &mut b, 3);
}

#[test]
fn a_receiver_is_not_given_up_while_an_answer_before_is_missing() {
    let (mut a, mut b) = pair();
    post(&mut a, 0, SendOperation::Read(REMOTE));
    post(&mut a, 1, SendOperation::Send);
    for packet in packets(&mut a) {
        b.receive(NOW, &packet);
    }
    let answers = packets(&mut b);
    assert_eq!(answers.len(), 2, "the data, and that no buffer is there");
    a.receive(NOW, &answers[1]);
    assert_eq!(a.qp.state(), QpState::Rts);
    b.adapter.receives.push_back((0, sge(2000, 10)));
    settle(&mut a, &mut b, 2);
}
