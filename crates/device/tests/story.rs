//! What a device tells of its queue pairs: why they ended, what they did last, what they counted.

#[allow(dead_code, reason = "shared with other tests")]
mod pair;

use pair::{End, pair, remote, settle};
use roxe_device::{Event, QueuePairInit, ReceiveCapacity};
use roxe_transport::SendCapacity;
use roxe_transport::adapter::QpEvent;
use roxe_transport::ending::{Cause, Field};
use roxe_transport::history::REMEMBERED;
use roxe_transport::qp_state::{AttributeMask, QpState, ServiceType};
use roxe_transport::work::{CompletionStatus, SendOperation};
use roxe_wire::{Instant, Mtu, Qpn};

const NOW: Instant = Instant::from_nanos(1_000);

/// Lets time pass until a queue pair gives up; its frames are lost.
fn give_up(end: &mut End) {
    while end.frame(NOW).is_some() {}
    while let Some(at) = end.device.poll_timeout() {
        end.device.handle_timeout(at);
        while end.frame(at).is_some() {}
    }
}

//= W01 test
#[test]
fn status_12_says_why_and_what_is_flushed_behind_it_says_the_same() {
    let (mut a, qa, b, qb) = pair(ServiceType::Rc, Mtu::B1024);
    let from = a.sge(0, 5);
    a.post(qa, 1, SendOperation::Send, from);
    a.post(qa, 2, SendOperation::Send, from);
    give_up(&mut a);
    let statuses: Vec<_> = a.completions().iter().map(|c| (c.wr_id, c.status)).collect();
    assert_eq!(statuses, [(1, CompletionStatus::RetryExceeded), (2, CompletionStatus::Flushed)]);

    let story = a.device.queue_pair_story(qa).unwrap();
    let psn = qa.get();
    let sentence = format!(
        "retry exceeded: SEND of 5 bytes (id 1): PSN {psn} was sent 7 times, timed out 7 times \
         after 67.1ms; the peer never answered any frame; the peer is {}, queue pair {qb}",
        b.address
    );
    assert_eq!(story.sentence(), sentence);
    assert_eq!(story.explain(CompletionStatus::RetryExceeded), sentence);
    assert_eq!(
        story.explain(CompletionStatus::Flushed),
        format!("flushed: the queue pair had gone to error: {sentence}")
    );
    assert_eq!(story.explain(CompletionStatus::Success), "ok", "what went well needs no reason");

    let fields = story.fields();
    let field = |wanted| fields.iter().find(|(name, _)| *name == wanted).map(|(_, v)| v.clone());
    assert_eq!(field("qpn"), Some(Field::Number(u64::from(psn))));
    assert_eq!(field("peer_qpn"), Some(Field::Number(u64::from(qb.get()))));
    assert_eq!(field("service"), Some(Field::Text("RC".into())));
    assert_eq!(field("status"), Some(Field::Number(12)));
    assert_eq!(field("timeouts"), Some(Field::Number(7)));
    assert_eq!(field("timeout_ns"), Some(Field::Number(67_108_864)));
    assert_eq!(field("last_answer_ago_ns"), None);
}

//= W01 test
#[test]
fn the_last_frames_and_events_come_with_it() {
    let (mut a, qa, mut b, _) = pair(ServiceType::Rc, Mtu::B1024);
    let from = a.sge(0, 5);
    let nowhere = remote(u64::MAX - 7, b.key);
    a.post(qa, 1, SendOperation::Write(nowhere), from);
    settle(&mut a, &mut b, NOW);
    let told = a.device.queue_pair_story(qa).unwrap().to_string();
    let (psn, key) = (qa.get(), b.key.0);
    let expected = format!(
        "queue pair {qa}: remote access error: WRITE of 5 bytes to 0xfffffffffffffff8, \
         rkey 0x{key:x} (id 1): the peer answered PSN {psn} with NAK remote access error\n  \
         0.000000000 state init\n  \
         0.000000000 state rtr\n  \
         0.000000000 state rts\n  \
         0.000001000 > RC_WRITE_ONLY PSN {psn} A\n  \
         0.000001000 < RC_ACKNOWLEDGE PSN {psn} NAK remote access error\n  \
         0.000001000 state error"
    );
    assert_eq!(told, expected);
    assert_eq!(a.device.queue_pair_story(Qpn::new(0xffff)), None);
}

#[test]
fn a_burst_is_told_in_a_line_at_both_ends() {
    let (mut a, qa, mut b, qb) = pair(ServiceType::Rc, Mtu::B1024);
    for _ in 0..5 {
        let from = a.sge(0, 5);
        a.post(qa, 1, SendOperation::Write(remote(0, b.key)), from);
    }
    let frames: Vec<_> = core::iter::from_fn(|| a.frame(NOW)).collect();
    for frame in &frames {
        b.receive(NOW, frame);
    }
    settle(&mut a, &mut b, NOW);
    let told = |end: &End, qpn| {
        let told = end.device.queue_pair_story(qpn).unwrap().history;
        told.iter().map(|record| record.what.to_string()).skip(3).collect::<Vec<_>>()
    };
    let (first, last) = (qa.get(), qa.get() + 4);
    let requests = format!("RC_WRITE_ONLY PSN {first} to {last} A");
    let answer = format!("RC_ACKNOWLEDGE PSN {last} ACK, MSN 5");
    assert_eq!(told(&a, qa), [format!("> {requests}"), format!("< {answer}")]);
    assert_eq!(told(&b, qb), [format!("< {requests}"), format!("> {answer}")]);
}

#[test]
fn no_more_is_remembered_than_there_is_room_for() {
    let (mut a, qa, mut b, _) = pair(ServiceType::Rc, Mtu::B1024);
    for _ in 0..50 {
        let from = a.sge(0, 5);
        a.post(qa, 1, SendOperation::Write(remote(0, b.key)), from);
        settle(&mut a, &mut b, NOW);
    }
    let story = a.device.queue_pair_story(qa).unwrap();
    assert_eq!((story.history.len(), story.ending), (REMEMBERED, None));
    assert_eq!(story.sentence(), "in state rts");
}

#[test]
fn those_that_ended_are_found_without_their_numbers() {
    let (mut a, qa, _, _) = pair(ServiceType::Rc, Mtu::B1024);
    let other = a.create(ServiceType::Ud, None);
    assert_eq!(a.device.ended_queue_pairs().count(), 0);
    let from = a.sge(0, 5);
    a.post(qa, 1, SendOperation::Send, from);
    give_up(&mut a);
    let ended: Vec<Qpn> = a.device.ended_queue_pairs().map(|story| story.qpn).collect();
    assert_eq!(ended, [qa]);
    a.device.destroy_queue_pair(qa).unwrap();
    assert_eq!(a.device.ended_queue_pairs().count(), 0);
    assert!(a.device.queue_pair_story(other).is_some());
}

/// The queue pair whose completions are lost ends; one that shares the queue goes on until it loses
/// one itself, and one with another queue is not touched.
//= 05-5.4b test
#[test]
fn a_lost_completion_ends_its_queue_pair_and_no_other() {
    let (mut a, qa, mut b, _) = pair(ServiceType::Rc, Mtu::B1024);
    let small = a.device.create_completion_queue(1).unwrap();
    let init = QueuePairInit {
        service: ServiceType::Rc,
        pd: a.pd,
        send_cq: small,
        receive_cq: a.cq,
        srq: None,
        send: SendCapacity { depth: 8, max_sge: 1, max_inline: 0 },
        receive: ReceiveCapacity { depth: 8, max_sge: 1 },
        signal_all: true,
    };
    let (to_a, to_b) = (a.address, b.address);
    let [(one, _), (other, _)] = [(); 2].map(|()| {
        let own = a.device.create_queue_pair(&init).unwrap();
        let peer = b.create(ServiceType::Rc, None);
        a.connect(own, peer, to_b, Mtu::B1024);
        b.connect(peer, own, to_a, Mtu::B1024);
        (own, peer)
    });
    let write = |a: &mut End, b: &mut End, qpn| {
        let from = a.sge(0, 5);
        a.post(qpn, 1, SendOperation::Write(remote(0, b.key)), from);
        settle(a, b, NOW);
        a.device.query_queue_pair(qpn).unwrap().state
    };
    assert_eq!(write(&mut a, &mut b, one), QpState::Rts);
    assert_eq!(write(&mut a, &mut b, one), QpState::Error, "there was room for one");
    let state = |a: &End, qpn| a.device.query_queue_pair(qpn).unwrap().state;
    assert_eq!(state(&a, other), QpState::Rts);
    assert_eq!(write(&mut a, &mut b, other), QpState::Error);
    assert_eq!(write(&mut a, &mut b, qa), QpState::Rts);
    let events: Vec<Event> = core::iter::from_fn(|| a.device.poll_event()).collect();
    let fatal = |qpn| Event::QueuePair(qpn, QpEvent::Fatal);
    assert_eq!(events, [Event::CompletionQueueError(small), fatal(one), fatal(other)]);
    let cause = a.device.queue_pair_story(other).unwrap().ending.map(|ending| ending.cause);
    assert_eq!(cause, Some(Cause::CompletionLost));

    // What is flushed to a full queue in state Error ends nobody else.
    let from = a.sge(0, 5);
    a.post(one, 2, SendOperation::Send, from);
    assert_eq!(write(&mut a, &mut b, qa), QpState::Rts);
    a.device
        .modify_queue_pair(
            one,
            QpState::Reset,
            AttributeMask::NONE,
            &pair::attributes(one, qa, Mtu::B1024),
            None,
        )
        .unwrap();
    assert_eq!(a.device.queue_pair_story(one).unwrap().ending, None, "a reset forgets");
}

//= W02 test
#[test]
fn each_queue_pair_counts_for_itself() {
    let (mut a, qa, mut b, qb) = pair(ServiceType::Rc, Mtu::B1024);
    let other = b.create(ServiceType::Rc, None);
    let from = a.sge(0, 5);
    a.post(qa, 1, SendOperation::Write(remote(0, b.key)), from);
    settle(&mut a, &mut b, NOW);
    let count = |qpn, name| b.device.queue_pair_counters(qpn).unwrap().by_name(name);
    assert_eq!(count(qb, "rx_write_requests"), Some(1));
    assert_eq!(count(other, "rx_write_requests"), Some(0));
    assert_eq!(count(qb, "cq_overrun"), None, "queue pairs have no such counter");
    let shown = b.device.queue_pair_counters(qb).unwrap().iter().filter(|(_, n)| *n != 0);
    let traffic = [
        ("rdma_tx_packets", 1),
        ("rdma_tx_bytes", 20),
        ("rdma_rx_packets", 1),
        ("rdma_rx_bytes", 40),
        ("sent_pkts", 1),
        ("rcvd_pkts", 1),
    ];
    let reports = [("rx_write_requests", 1), ("ack_sent", 1)];
    assert_eq!(shown.collect::<Vec<_>>(), [&traffic[..], &reports].concat());
    assert_eq!((b.device.queue_pair_places(), b.device.queue_pair_at(0)), (2, Some(qb)));
    assert_eq!(b.device.queue_pair_at(2), None);
    assert!(b.device.queue_pair_counters(Qpn::new(0xffff)).is_none());
}
