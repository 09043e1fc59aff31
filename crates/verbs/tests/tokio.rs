//! Operations and events that are awaited.

#![cfg(feature = "tokio")]

mod adapters;

use std::sync::Arc;
use std::time::Duration;

use adapters::{joined_by_memory, joined_by_udp};
use roxe_verbs::asynchronous::{
    AsyncCmListener, AsyncConnection, AsyncEventChannel, AsyncEventStream,
};
use roxe_verbs::cm::{CmEventKind, CmId, CmOptions, CmParameters, EventChannel, PortSpace};
use roxe_verbs::{
    AccessFlags, AsyncEvent, Buffer, CompletionStatus, Context, Error, Op, QpEvent, QpState,
};
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(30);

async fn connected([one, other]: &[Context; 2]) -> [AsyncConnection; 2] {
    let [a, b] = [one, other].map(|context| AsyncConnection::new(context).unwrap());
    a.connect(b.endpoint().unwrap()).await.unwrap();
    b.connect(a.endpoint().unwrap()).await.unwrap();
    [a, b]
}

/// Far more at once than the queues hold, from tasks on several threads.
async fn many_at_once(contexts: [Context; 2]) {
    const EACH: u64 = 2000;
    let [a, b] = connected(&contexts).await;
    let (a, b) = (Arc::new(a), Arc::new(b));
    let (from, to) = (Buffer::new(8 * EACH as usize), Buffer::new(8 * EACH as usize));
    let source = contexts[0].register(&from).unwrap();
    let target = contexts[1].register(&to).unwrap();
    for number in 0..EACH {
        from.write(8 * number as usize, &number.to_ne_bytes());
    }
    let tasks: Vec<_> = (0..EACH)
        .map(|number| {
            let (a, source) = (Arc::clone(&a), source.clone());
            let (va, r_key) = (target.address() + 8 * number, target.r_key());
            tokio::spawn(async move {
                a.perform(Op::Write { va, r_key }, &source, 8 * number, 8).await.unwrap();
                a.perform(Op::FetchAdd { va, r_key, add: 1 }, &source, 8 * number, 8).await.unwrap()
            })
        })
        .collect();
    for task in tasks {
        assert_eq!(timeout(PATIENCE, task).await.expect("it ends").unwrap().byte_len, 8);
    }
    let mut numbers = vec![0; 8 * EACH as usize];
    to.read(0, &mut numbers);
    for (number, bytes) in (1..).zip(numbers.chunks_exact(8)) {
        assert_eq!(bytes, u64::to_ne_bytes(number));
    }

    // Messages arrive in the order in which they were begun.
    let receiver = {
        let (b, target) = (Arc::clone(&b), target.clone());
        tokio::spawn(async move {
            for len in 1..100 {
                let received = b.receive(&target, 0, 100).await.unwrap();
                assert_eq!(received.byte_len, len);
            }
        })
    };
    for len in 1..100 {
        a.perform(Op::Send, &source, 0, len).await.unwrap();
    }
    timeout(PATIENCE, receiver).await.expect("it ends").unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_operations_are_awaited_at_once_over_memory() {
    many_at_once(joined_by_memory()).await;
}

#[tokio::test]
async fn many_operations_are_awaited_at_once_over_udp() {
    many_at_once(joined_by_udp()).await;
}

/// It goes on, and its memory is kept for it.
#[tokio::test]
async fn an_operation_that_nobody_awaits_any_more_goes_on() {
    let contexts = joined_by_memory();
    let [a, b] = connected(&contexts).await;
    let (from, to) = (Buffer::new(8), Buffer::new(8));
    from.write(0, b"in time!");
    let source = contexts[0].register(&from).unwrap();
    let target = contexts[1].register(&to).unwrap();
    let receiving = timeout(Duration::from_millis(1), b.receive(&target, 0, 8)).await;
    assert!(receiving.is_err(), "nothing was sent");
    drop(target);
    assert_eq!(Arc::strong_count(&to), 2, "registered");
    a.perform(Op::Send, &source, 0, 8).await.unwrap();
    let done = async {
        while Arc::strong_count(&to) == 2 {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, done).await.expect("it is done");
    let mut bytes = [0; 8];
    to.read(0, &mut bytes);
    assert_eq!(&bytes, b"in time!");
}

#[tokio::test]
async fn what_fails_says_why_and_events_are_awaited() {
    let contexts = joined_by_memory();
    let [a, b] = connected(&contexts).await;
    let source = contexts[0].register(&Buffer::new(8)).unwrap();
    let target = contexts[1].default_pd().register(&Buffer::new(8), AccessFlags::NONE).unwrap();
    let events = AsyncEventStream::new(&contexts[1]).unwrap();
    let nothing = timeout(Duration::from_millis(1), events.next()).await;
    assert!(nothing.is_err(), "nothing happened");
    let write = Op::Write { va: target.address(), r_key: target.r_key() };
    let (failed, flushed) =
        tokio::join!(a.perform(write, &source, 0, 8), a.perform(Op::Send, &source, 0, 8));
    for (error, expected) in [
        (failed.unwrap_err(), CompletionStatus::RemoteAccessError),
        (flushed.unwrap_err(), CompletionStatus::Flushed),
    ] {
        let Error::Completion { status, why, .. } = error else { panic!("{error}") };
        assert_eq!(status, expected);
        assert!(why.contains("WRITE"), "{why}");
    }
    let qpn = b.queue_pair().qpn();
    loop {
        let event = timeout(PATIENCE, events.next()).await.expect("an event").unwrap();
        if event == AsyncEvent::QueuePair(qpn, QpEvent::AccessError) {
            break;
        }
    }
    let refused = AsyncConnection::new(&contexts[0]).unwrap();
    let error = refused.perform(Op::Send, &source, 0, 8).await.unwrap_err();
    assert!(matches!(error, Error::Post(_)), "{error}");
    assert_eq!(refused.queue_pair().query().state, QpState::Init);
}

/// With the connection goes all that belongs to it.
#[tokio::test]
async fn nothing_is_left_of_a_connection() {
    let contexts = joined_by_memory();
    let before = contexts[1].resources();
    let [a, b] = connected(&contexts).await;
    let target = contexts[1].register(&Buffer::new(8)).unwrap();
    let _ = timeout(Duration::from_millis(1), b.receive(&target, 0, 8)).await;
    drop((a, b, target));
    let gone = async {
        while contexts[1].resources() != before {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, gone).await.expect("the task ends");
}

#[tokio::test]
async fn connections_by_address_and_port_are_awaited() {
    let [one, other] = joined_by_udp();
    let at = |context: &Context| context.addresses().next().unwrap();
    let listener = AsyncCmListener::bind(&other, (at(&other), 0).into(), 4).unwrap();
    let to = listener.local_address().unwrap();
    let nobody = timeout(Duration::from_millis(1), listener.next()).await;
    assert!(nobody.is_err(), "nobody calls");
    let (asking, answering) =
        (AsyncConnection::new(&one).unwrap(), AsyncConnection::new(&other).unwrap());
    let parameters =
        CmParameters { private_data: b"from a task", ..CmParameters::of(asking.queue_pair()) };
    let options = CmOptions::default();
    let (called, accepted) = tokio::join!(asking.call(to, &parameters, options, PATIENCE), async {
        let request = listener.next().await?;
        assert!(request.offer().private_data.starts_with(b"from a task"));
        let parameters = CmParameters::of(answering.queue_pair());
        request.accept_with(&answering, &parameters, PATIENCE).await
    });
    let (called, accepted) = (called.unwrap(), accepted.unwrap());
    let source = one.register(&Buffer::new(8)).unwrap();
    let target = other.register(&Buffer::new(8)).unwrap();
    let (sent, received) =
        tokio::join!(asking.perform(Op::Send, &source, 0, 8), answering.receive(&target, 0, 8));
    sent.unwrap();
    assert_eq!(received.unwrap().byte_len, 8);
    drop(called);
    let over = tokio::task::spawn_blocking(move || accepted.wait_disconnected(PATIENCE)).await;
    over.unwrap().unwrap();

    let channel = EventChannel::new().unwrap();
    let events = AsyncEventChannel::new(&channel).unwrap();
    let id = CmId::new(&one, &channel, PortSpace::Tcp);
    id.resolve_address(None, to, PATIENCE).unwrap();
    assert_eq!(events.next().await.unwrap().kind, CmEventKind::AddressResolved);
}
