//! Events: who sleeps is woken, by completions and by what happens without being asked for.

mod adapters;

use std::os::fd::AsFd;
use std::time::Duration;

use adapters::{joined_by_memory, joined_by_udp};
use roxe_verbs::{
    AccessFlags, AsyncEvent, Buffer, CompletionChannel, CompletionStatus, ConnectOptions,
    Connection, Context, Data, Error, Op, QpEvent, QueuePair, ReceiveRequest, SendOperation,
    SendRequest, ServiceType, Wait,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

const PATIENCE: Duration = Duration::from_secs(30);

fn is_readable(what: impl AsFd) -> bool {
    poll(&mut [PollFd::new(&what, PollFlags::IN)], Some(&Timespec::default())).unwrap() == 1
}

fn connected([one, other]: &[Context; 2]) -> [(QueuePair, roxe_verbs::CompletionQueue); 2] {
    let ends = [one, other].map(|context| {
        let channel = context.create_comp_channel().unwrap();
        let cq = context.create_cq_on(&channel, 256).unwrap();
        (context.default_pd().create_qp(ServiceType::Rc, &cq).build().unwrap(), cq)
    });
    let options = ConnectOptions::default();
    ends[0].0.connect(&ends[1].0.endpoint().unwrap(), &options).unwrap();
    ends[1].0.connect(&ends[0].0.endpoint().unwrap(), &options).unwrap();
    ends
}

fn receive(qp: &QueuePair, count: usize) {
    qp.post_receive(&vec![ReceiveRequest { wr_id: 0, sges: &[] }; count]).unwrap();
}

/// A message of no bytes, which needs no memory at the receiver.
fn send_nothing(qp: &QueuePair, wr_id: u64, solicited: bool) {
    qp.post_send(&[SendRequest {
        wr_id,
        operation: SendOperation::Send,
        data: Data::Regions(&[]),
        signaled: true,
        solicited,
        fence: false,
        target: None,
    }])
    .unwrap();
}

#[test]
fn a_completion_queue_tells_once_after_it_was_armed() {
    let contexts = joined_by_memory();
    let [(a, _), (b, cq)] = connected(&contexts);
    let channel: CompletionChannel = cq.channel().unwrap().clone();
    receive(&b, 10);
    assert!(!is_readable(&channel));
    assert!(!cq.request_notify(false).unwrap(), "nothing waits");
    send_nothing(&a, 1, false);
    assert!(channel.wait(PATIENCE).is_some_and(|fired| fired.id() == cq.id()));
    assert!(!is_readable(&channel));
    assert!(cq.poll_one().is_some());

    // Who does not arm again is not told.
    send_nothing(&a, 2, false);
    while cq.poll_one().is_none() {}
    assert!(!is_readable(&channel));

    // What waits already is said and gives no event.
    send_nothing(&a, 3, false);
    while !cq.request_notify(true).unwrap() {}
    assert!(!is_readable(&channel));
    send_nothing(&a, 4, false);
    send_nothing(&a, 5, true);
    assert!(channel.wait(PATIENCE).is_some());
    let mut room = [roxe_verbs::Completion::BLANK; 8];
    assert_eq!(cq.poll(&mut room), 3, "it slept over the one that was not solicited");
    assert!(room[2].solicited && !room[1].solicited);
}

#[test]
fn a_completion_queue_without_a_channel_says_so() {
    let [one, _] = joined_by_memory();
    let cq = one.create_cq(4).unwrap();
    assert!(matches!(cq.request_notify(false), Err(Error::NoChannel)));
}

/// What went is not told of.
#[test]
fn a_channel_is_of_many_queues() {
    let [one, other] = joined_by_memory();
    let channel = one.create_comp_channel().unwrap();
    assert!(matches!(other.create_cq_on(&channel, 16), Err(Error::OtherAdapter)));
    let [sent, received] = [(), ()].map(|()| one.create_cq_on(&channel, 16).unwrap());
    let domain = one.default_pd();
    let a = domain.create_qp(ServiceType::Rc, &sent).receive_cq(&received).build().unwrap();
    let b_cq = other.create_cq(16).unwrap();
    let b = other.default_pd().create_qp(ServiceType::Rc, &b_cq).build().unwrap();
    let options = ConnectOptions::default();
    a.connect(&b.endpoint().unwrap(), &options).unwrap();
    b.connect(&a.endpoint().unwrap(), &options).unwrap();
    receive(&a, 1);
    receive(&b, 1);
    sent.request_notify(false).unwrap();
    received.request_notify(false).unwrap();
    send_nothing(&a, 1, false);
    send_nothing(&b, 2, false);
    let told = [channel.wait(PATIENCE).unwrap(), channel.wait(PATIENCE).unwrap()];
    for cq in told {
        assert_eq!(cq.poll(&mut [roxe_verbs::Completion::BLANK; 4]), 1);
    }
    sent.request_notify(false).unwrap();
    a.modify(roxe_verbs::QpState::Error, Default::default(), &a.query().attributes, None).unwrap();
    send_nothing(&a, 2, false);
    assert!(is_readable(&channel));
    drop((a, sent));
    assert!(!is_readable(&channel));
    assert!(channel.wait(Duration::ZERO).is_none());
}

/// Both sides sleep between messages: who arms, looks once more and sleeps misses nothing.
fn sleepers(contexts: [Context; 2], turns: u64) {
    let ends = connected(&contexts);
    for (qp, _) in &ends {
        receive(qp, 8);
    }
    let play = |(qp, cq): &(QueuePair, roxe_verbs::CompletionQueue), first: bool| {
        let (mut sent, mut received) = (0, 0);
        if first {
            send_nothing(qp, sent, false);
            sent += 1;
        }
        while received < turns {
            let mut handled = false;
            while let Some(completion) = cq.poll_one() {
                assert_eq!(completion.status, CompletionStatus::Success);
                handled = true;
                if completion.opcode == roxe_verbs::CompletionOpcode::Recv {
                    received += 1;
                    receive(qp, 1);
                    if sent < turns {
                        send_nothing(qp, sent, false);
                        sent += 1;
                    }
                }
            }
            if !handled && !cq.request_notify(false).unwrap() && received < turns {
                let fired = cq.channel().unwrap().wait(PATIENCE);
                assert!(fired.is_some(), "a wake-up was lost after {received} messages");
            }
        }
    };
    let [a, b] = &ends;
    std::thread::scope(|scope| {
        scope.spawn(|| play(a, true));
        scope.spawn(|| play(b, false));
    });
}

/// The engine's thread rests longer the longer an application polls, and comes back all the same.
#[test]
fn who_polls_for_long_and_then_does_not_is_still_answered() {
    let contexts = joined_by_memory();
    let [(a, sent), (b, received)] = connected(&contexts);
    receive(&b, 10);
    let polls = || {
        let start = std::time::Instant::now();
        while start.elapsed() < Duration::from_millis(10) {
            assert!(received.poll_one().is_none());
        }
    };
    polls();
    send_nothing(&a, 1, false);
    let answered = || {
        let start = std::time::Instant::now();
        let done = loop {
            assert!(start.elapsed() < PATIENCE, "nobody answers");
            if let Some(done) = sent.poll_one() {
                break done;
            }
        };
        assert_eq!(done.status, CompletionStatus::Success);
    };
    answered();
    assert!(received.poll_one().is_some());

    // Who asked for an event sleeps where nobody sees it.
    polls();
    assert!(!received.request_notify(false).unwrap());
    send_nothing(&a, 2, false);
    let timeout = Timespec::try_from(PATIENCE).unwrap();
    let channel = received.channel().unwrap();
    assert_eq!(poll(&mut [PollFd::new(channel, PollFlags::IN)], Some(&timeout)).unwrap(), 1);
    answered();
}

#[test]
fn no_wake_up_is_lost_over_memory() {
    sleepers(joined_by_memory(), 2000);
}

#[test]
fn no_wake_up_is_lost_over_udp() {
    sleepers(joined_by_udp(), 1000);
}

#[test]
fn what_happens_to_a_queue_pair_is_told_until_it_is_destroyed() {
    let [one, other] = joined_by_memory();
    let (mut a, mut b) = (Connection::new(&one).unwrap(), Connection::new(&other).unwrap());
    a.connect(&b.endpoint().unwrap()).unwrap();
    b.connect(&a.endpoint().unwrap()).unwrap();
    let source = one.register(&Buffer::new(64)).unwrap();
    let target = other.default_pd().register(&Buffer::new(64), AccessFlags::NONE).unwrap();
    let events = other.async_events();
    assert!(!is_readable(&events));
    let write = Op::Write { va: target.address(), r_key: target.r_key() };
    a.post(1, write, &source, 0, 64).unwrap();
    assert!(a.wait(Wait(PATIENCE)).is_err());
    let qpn = b.queue_pair().qpn();
    let told = AsyncEvent::QueuePair(qpn, QpEvent::CommunicationEstablished);
    let first = events.next(PATIENCE).unwrap();
    let event = if first == told { events.next(PATIENCE).unwrap() } else { first };
    assert_eq!(event, AsyncEvent::QueuePair(qpn, QpEvent::AccessError));
    assert_eq!(events.try_next(), None);

    // A second one, which nobody fetches before its queue pair goes.
    let (mut a, mut b) = (Connection::new(&one).unwrap(), Connection::new(&other).unwrap());
    a.connect(&b.endpoint().unwrap()).unwrap();
    b.connect(&a.endpoint().unwrap()).unwrap();
    a.post(1, write, &source, 0, 64).unwrap();
    assert!(a.wait(Wait(PATIENCE)).is_err());
    // The other side's thread answers before it tells.
    while !is_readable(&events) {
        std::thread::yield_now();
    }
    drop(b);
    assert!(!is_readable(&events));
    drop(a);
    assert!(!is_readable(one.async_events()));
}

#[test]
fn an_overrun_and_a_short_shared_queue_are_told() {
    let [one, other] = joined_by_memory();
    let domain = other.default_pd();
    let cq = other.create_cq(1).unwrap();
    let srq = domain.create_srq(8, 1).unwrap();
    let b = domain.create_qp(ServiceType::Rc, &cq).srq(&srq).build().unwrap();
    srq.post_receive(&[ReceiveRequest { wr_id: 0, sges: &[] }; 3]).unwrap();
    srq.modify(None, Some(2)).unwrap();
    let mut a = Connection::new(&one).unwrap();
    a.connect(&b.endpoint().unwrap()).unwrap();
    b.connect(&a.endpoint().unwrap(), &ConnectOptions::default()).unwrap();
    send_nothing(a.queue_pair(), 1, false);
    send_nothing(a.queue_pair(), 2, false);
    let mut told = Vec::new();
    while !told.contains(&AsyncEvent::CompletionQueueError(cq.id())) {
        told.push(other.async_events().next(PATIENCE).unwrap_or_else(|| panic!("{told:?}")));
    }
    assert!(told.contains(&AsyncEvent::SrqLimitReached(srq.id())), "{told:?}");
}

#[test]
fn a_handle_with_events_of_its_own_hears_of_its_objects_and_nobody_else_does() {
    let [one, other] = joined_by_memory();
    let own = one.with_own_events().unwrap();
    let ends = [own.clone(), other];
    let [(a, cq), (b, _)] = connected(&ends);
    // The first packet in state RTR or later tells the receiver that the connection is there.
    receive(&a, 1);
    send_nothing(&b, 1, false);
    cq.channel().unwrap().wait(Duration::ZERO);
    // A right that the domain does not give: the peer is refused, and the queue pair ends.
    let nowhere = SendOperation::Write(roxe_verbs::Remote { va: 0, r_key: roxe_verbs::RKey(1) });
    let buffer = Buffer::new(8);
    let region = ends[1].register(&buffer).unwrap();
    b.post_send(&[SendRequest {
        wr_id: 2,
        operation: nowhere,
        data: Data::Regions(&[region.sge(0, 8)]),
        signaled: true,
        solicited: false,
        fence: false,
        target: None,
    }])
    .unwrap();
    let told = loop {
        match own.async_events().next(PATIENCE).expect("it is told") {
            AsyncEvent::QueuePair(_, QpEvent::CommunicationEstablished) => {}
            event => break event,
        }
    };
    assert_eq!(told, AsyncEvent::QueuePair(a.qpn(), QpEvent::AccessError));
    assert_eq!(one.async_events().try_next(), None);
}
