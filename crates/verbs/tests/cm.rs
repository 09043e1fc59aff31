//! Connections and datagram services by address and port, between two adapters.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use roxe_verbs::cm::{
    self, Bits, CallError, CmError, CmEvent, CmEventKind, CmId, CmOptions, CmParameters, CmTimeout,
    Connected, EventChannel, Listener, PortSpace, RejectReason, SidrStatus, Timing,
};
use roxe_verbs::{
    AddressVector, Buffer, Connection, Context, Data, Error, Gid, Op, QKey, QpState, Qpn,
    QueuePair, SendCapacity, SendOperation, SendRequest, ServiceType, Wait,
};

mod adapters;

/// Longer than who is asked for patience has to have.
const PATIENCE: Duration = Duration::from_secs(120);

fn port_of(context: &Context, port: u16) -> SocketAddr {
    SocketAddr::new(context.addresses().next().unwrap(), port)
}

/// Both ends of a connection, each as it is made.
fn joined(pair: &[Context; 2]) -> [(Connection, Connected); 2] {
    joined_with(pair, CmOptions::default())
}

fn joined_with(pair: &[Context; 2], options: CmOptions) -> [(Connection, Connected); 2] {
    let [one, other] = pair;
    let listener = Listener::bind(other, port_of(other, 0), 4).unwrap();
    let to = listener.local_address().unwrap();
    let answering = Connection::new(other).unwrap();
    let asking = Connection::new(one).unwrap();
    let [answered, connected] = thread::scope(|scope| {
        let answered = scope.spawn(|| {
            let request = listener.next(PATIENCE).unwrap();
            let qp = answering.queue_pair();
            let parameters = CmParameters { private_data: b"come in", ..CmParameters::of(qp) };
            assert_eq!(&request.offer().private_data[..6], b"hello?");
            request.accept(qp, &parameters, PATIENCE).unwrap()
        });
        let qp = asking.queue_pair();
        let parameters = CmParameters { private_data: b"hello?", ..CmParameters::of(qp) };
        let connected = cm::connect(qp, to, &parameters, options, PATIENCE).unwrap();
        [answered.join().unwrap(), connected]
    });
    [(asking, connected), (answering, answered)]
}

fn sends(from: &mut Connection, to: &mut Connection) {
    let (source, target) = (Buffer::new(64), Buffer::new(64));
    source.write(0, b"over the connection");
    let source = from.queue_pair().domain().context().register(&source).unwrap();
    let region = to.queue_pair().domain().context().register(&target).unwrap();
    to.post_receive(1, &region, 0, 64).unwrap();
    from.post(2, Op::Send, &source, 0, 19).unwrap();
    assert_eq!(to.wait(Wait(PATIENCE)).unwrap().byte_len, 19);
    assert_eq!(from.wait(Wait(PATIENCE)).unwrap().wr_id, 2);
    let mut text = [0; 19];
    target.read(0, &mut text);
    assert_eq!(&text, b"over the connection");
}

fn connects_and_parts(pair: &[Context; 2]) {
    let [(mut asking, connected), (mut answering, answered)] = joined(pair);
    assert_eq!(&connected.offer().private_data[..7], b"come in");
    assert_eq!(connected.offer().qpn, answering.queue_pair().qpn());
    assert_eq!(answered.offer().qpn, asking.queue_pair().qpn());
    sends(&mut asking, &mut answering);
    sends(&mut answering, &mut asking);
    let (ours, theirs) =
        (asking.queue_pair().query().attributes, answering.queue_pair().query().attributes);
    assert_eq!((ours.sq_psn, ours.rq_psn), (theirs.rq_psn, theirs.sq_psn));
    assert_eq!(ours.max_rd_atomic, theirs.max_dest_rd_atomic);
    assert!(ours.max_rd_atomic > 0);
    assert!(!answered.try_disconnected().unwrap());
    connected.disconnect(PATIENCE).unwrap();
    answered.wait_disconnected(PATIENCE).unwrap();
    // It stays so.
    assert!(answered.try_disconnected().unwrap() && connected.try_disconnected().unwrap());
    answered.wait_disconnected(PATIENCE).unwrap();
    for end in [&asking, &answering] {
        assert_eq!(end.queue_pair().query().state, QpState::Error);
    }
}

#[test]
fn two_adapters_joined_by_memory_connect_and_part() {
    connects_and_parts(&adapters::joined_by_memory());
}

#[test]
fn two_adapters_on_sockets_connect_and_part() {
    connects_and_parts(&adapters::joined_by_udp());
}

#[test]
fn an_adapter_connects_to_itself() {
    let [one, _] = adapters::joined_by_memory();
    connects_and_parts(&[one.clone(), one]);
    let [one, _] = adapters::joined_by_udp();
    connects_and_parts(&[one.clone(), one]);
}

#[test]
fn addresses_may_be_of_ipv6() {
    let settings = roxe_verbs::udp::Settings::default();
    // A host may have no IPv6 at all.
    let Ok(one) = Context::open_udp("::1".parse().unwrap(), settings) else { return };
    connects_and_parts(&[one.clone(), one]);
}

#[test]
fn where_nobody_listens_the_adapter_itself_refuses() {
    let [one, other] = adapters::joined_by_memory();
    let end = Connection::new(&one).unwrap();
    let qp = end.queue_pair();
    let asked = cm::connect(
        qp,
        port_of(&other, 7174),
        &CmParameters::of(qp),
        CmOptions::default(),
        PATIENCE,
    );
    match asked.err().unwrap() {
        Error::Cm(CmError::Rejected { reason, .. }) => {
            assert_eq!(reason, RejectReason::InvalidServiceId);
        }
        error => panic!("{error}"),
    }
}

/// Who asks again after half a second, `times` times.
fn impatient(times: u8) -> CmOptions {
    let timing = Timing {
        response_timeout: CmTimeout::from_bits(17),
        max_retries: Bits::new(times),
        packet_lifetime: CmTimeout::from_bits(8),
    };
    CmOptions { timing, ..CmOptions::default() }
}

#[test]
fn messages_that_are_lost_are_sent_again() {
    let pair = ["one", "other"].map(|_| roxe_verbs::open("memory:lossy,fault=drop 15%").unwrap());
    let mut sent = 0_u64;
    for round in 0..50 {
        let [(_asking, connected), (_answering, answered)] = joined_with(&pair, impatient(15));
        connected.disconnect(PATIENCE).unwrap();
        answered.wait_disconnected(PATIENCE).unwrap();
        sent = pair.iter().map(|end| end.cm_counters().retransmissions).sum();
        if sent > 0 && round >= 3 {
            break;
        }
    }
    assert!(sent > 0, "none was lost");
}

#[test]
fn a_peer_that_is_silent_is_given_up() {
    let [one, other] = ["", ",fault=drop 100%"]
        .map(|mute| roxe_verbs::open(&format!("memory:mute{mute}")).unwrap());
    let end = Connection::new(&one).unwrap();
    let qp = end.queue_pair();
    let to = port_of(&other, 7174);
    let asked = cm::connect(qp, to, &CmParameters::of(qp), impatient(2), PATIENCE);
    let error = asked.err().unwrap();
    assert!(matches!(error, Error::Cm(CmError::Unreachable)), "{error}");
    assert_eq!(error.errno(), 110);
    assert_eq!(one.cm_counters().sent, 4, "three REQs and a REJ");
}

#[test]
fn who_refuses_may_say_why() {
    let [one, other] = adapters::joined_by_memory();
    let listener = Listener::bind(&other, port_of(&other, 0), 1).unwrap();
    let to = listener.local_address().unwrap();
    let end = Connection::new(&one).unwrap();
    let refused = thread::spawn(move || listener.next(PATIENCE)?.reject(b"closed today"));
    let qp = end.queue_pair();
    let asked = cm::connect(qp, to, &CmParameters::of(qp), CmOptions::default(), PATIENCE);
    refused.join().unwrap().unwrap();
    match asked.err().unwrap() {
        Error::Cm(error @ CmError::Rejected { .. }) => {
            assert_eq!(error.errno(), 111);
            let CmError::Rejected { reason, private_data } = error else { unreachable!() };
            assert_eq!(reason, RejectReason::ConsumerReject);
            assert_eq!(&private_data[..12], b"closed today");
            assert_eq!(private_data.len(), 148);
        }
        error => panic!("{error}"),
    }
}

#[test]
fn what_is_dropped_is_told_to_the_peer() {
    let pair = adapters::joined_by_memory();
    let [(asking, connected), (_answering, answered)] = joined(&pair);
    drop((asking, connected));
    drop(pair);
    answered.wait_disconnected(PATIENCE).unwrap();
}

/// The event that comes next.
fn next(channel: &EventChannel) -> CmEvent {
    channel.next(PATIENCE).expect("an event")
}

/// As librdmacm's programs do it: each step by itself.
#[test]
fn each_step_can_be_made_by_itself() {
    let [one, other] = adapters::joined_by_udp();
    let channel = EventChannel::new().unwrap();
    let listener = CmId::new(&other, &channel, PortSpace::Tcp);
    let any = "0.0.0.0:0".parse().unwrap();
    let bound = listener.bind(any).unwrap();
    assert!(listener.bind(any).is_err(), "it has an address");
    listener.listen(1).unwrap();
    let caller = CmId::new(&one, &channel, PortSpace::Tcp);
    assert!(caller.resolve_route().is_err(), "there is no peer yet");
    let to = port_of(&other, bound.port());
    caller.resolve_address(None, to, PATIENCE).unwrap();
    assert_eq!(next(&channel), CmEvent { id: caller.key(), kind: CmEventKind::AddressResolved });
    assert_eq!(caller.local_address().unwrap().ip(), port_of(&one, 0).ip());
    caller.resolve_route().unwrap();
    assert_eq!(next(&channel).kind, CmEventKind::RouteResolved);

    let (asking, answering) = (Connection::new(&one).unwrap(), Connection::new(&other).unwrap());
    let asks = CmParameters {
        responder_resources: 3,
        initiator_depth: 2,
        ..CmParameters::of(asking.queue_pair())
    };
    assert!(caller.qp_attributes(QpState::Rtr).is_err(), "nothing is known of the peer");
    caller.connect(&asks).unwrap();
    let CmEvent { id, kind: CmEventKind::ConnectRequest { request, service, offer } } =
        next(&channel)
    else {
        panic!("no request")
    };
    assert_eq!((id, service), (listener.key(), ServiceType::Rc));
    assert_eq!((offer.responder_resources, offer.initiator_depth), (2, 3));
    let answer = listener.take(request).unwrap();
    assert!(listener.take(request).is_err(), "it is taken");
    assert_eq!(answer.peer_address(), caller.local_address());
    step(&answer, answering.queue_pair(), QpState::Init);
    step(&answer, answering.queue_pair(), QpState::Rtr);
    step(&answer, answering.queue_pair(), QpState::Rts);
    answer
        .accept(&CmParameters {
            responder_resources: 2,
            initiator_depth: 1,
            ..CmParameters::of(answering.queue_pair())
        })
        .unwrap();
    let CmEvent { id, kind: CmEventKind::ConnectResponse(offer) } = next(&channel) else {
        panic!("no response")
    };
    assert_eq!(id, caller.key());
    assert_eq!((offer.responder_resources, offer.initiator_depth), (1, 2));
    for to in [QpState::Init, QpState::Rtr, QpState::Rts] {
        step(&caller, asking.queue_pair(), to);
    }
    caller.establish().unwrap();
    assert_eq!(next(&channel), CmEvent { id: answer.key(), kind: CmEventKind::Established });
    let attributes = asking.queue_pair().query().attributes;
    assert_eq!((attributes.max_rd_atomic, attributes.max_dest_rd_atomic), (2, 1));

    answer.disconnect().unwrap();
    let mut ended: Vec<_> = [next(&channel), next(&channel)].into();
    ended.sort_by_key(|event| event.id);
    assert!(ended.iter().all(|event| event.kind == CmEventKind::Disconnected), "{ended:?}");
    assert_eq!(ended[0].id, caller.key());
    assert_eq!(ended[1].id, answer.key());
}

fn step(id: &CmId, qp: &QueuePair, to: QpState) {
    let step = id.qp_attributes(to).unwrap();
    qp.modify(step.to, step.given, &step.values, step.vector.as_ref()).unwrap();
}

/// A packet in state RTR says that the peer is ready, when its RTU is lost or late.
#[test]
fn the_first_packet_establishes_a_connection() {
    let [one, other] = adapters::joined_by_memory();
    let channel = EventChannel::new().unwrap();
    let listener = CmId::new(&other, &channel, PortSpace::Tcp);
    let to = listener.bind(port_of(&other, 0)).unwrap();
    listener.listen(1).unwrap();
    let caller = CmId::new(&one, &channel, PortSpace::Tcp);
    caller.resolve_address(None, to, PATIENCE).unwrap();
    assert_eq!(next(&channel).kind, CmEventKind::AddressResolved);
    let (mut asking, mut answering) =
        (Connection::new(&one).unwrap(), Connection::new(&other).unwrap());
    caller.connect(&CmParameters::of(asking.queue_pair())).unwrap();
    let CmEventKind::ConnectRequest { request, .. } = next(&channel).kind else {
        panic!("no request")
    };
    let answer = listener.take(request).unwrap();
    step(&answer, answering.queue_pair(), QpState::Init);
    step(&answer, answering.queue_pair(), QpState::Rtr);
    answer.accept(&CmParameters::of(answering.queue_pair())).unwrap();
    assert!(matches!(next(&channel).kind, CmEventKind::ConnectResponse(_)));
    for to in [QpState::Init, QpState::Rtr, QpState::Rts] {
        step(&caller, asking.queue_pair(), to);
    }
    // No RTU: data come first.
    sends(&mut asking, &mut answering);
    assert_eq!(next(&channel), CmEvent { id: answer.key(), kind: CmEventKind::Established });
}

#[test]
fn a_datagram_service_is_found_by_its_port() {
    let [one, other] = adapters::joined_by_memory();
    let channel = EventChannel::new().unwrap();
    let listener = CmId::new(&other, &channel, PortSpace::Udp);
    let to = listener.bind(port_of(&other, 0)).unwrap();
    listener.listen(1).unwrap();
    let serves = |private_data: &'static [u8], accept: bool| {
        let caller = CmId::new(&one, &channel, PortSpace::Udp);
        caller.resolve_address(None, to, PATIENCE).unwrap();
        assert_eq!(next(&channel).kind, CmEventKind::AddressResolved);
        let cq = other.create_cq(8).unwrap();
        let qp = other.default_pd().create_qp(ServiceType::Ud, &cq).build().unwrap();
        let asks = CmParameters::new(qp.qpn(), ServiceType::Ud);
        caller.connect(&CmParameters { private_data, ..asks }).unwrap();
        let CmEventKind::DatagramRequest { request, private_data: heard } = next(&channel).kind
        else {
            panic!("no request")
        };
        assert!(heard.starts_with(private_data));
        assert_eq!(heard.len(), 180);
        let answer = listener.take(request).unwrap();
        assert_eq!(answer.peer_address(), caller.local_address());
        match accept {
            true => answer.accept(&asks).unwrap(),
            false => answer.reject(RejectReason::ConsumerReject, b"no").unwrap(),
        }
        (next(&channel).kind, qp.qpn())
    };
    let (CmEventKind::DatagramEstablished(peer), qpn) = serves(b"where?", true) else {
        panic!("not found")
    };
    assert_eq!((peer.qpn, peer.q_key.0), (qpn, 0x0123_4567));
    assert_eq!(peer.vector, AddressVector::new(0, to.ip().into()));
    let (CmEventKind::DatagramRefused { status, private_data }, _) = serves(b"and now?", false)
    else {
        panic!("not refused")
    };
    assert_eq!(status, SidrStatus::Rejected);
    assert!(private_data.starts_with(b"no"));
}

#[test]
fn requests_that_nobody_took_are_refused_with_their_listener() {
    let [one, other] = adapters::joined_by_memory();
    let (here, there) = (EventChannel::new().unwrap(), EventChannel::new().unwrap());
    let listener = CmId::new(&other, &there, PortSpace::Tcp);
    let to = listener.bind(port_of(&other, 0)).unwrap();
    listener.listen(8).unwrap();
    let caller = CmId::new(&one, &here, PortSpace::Tcp);
    caller.resolve_address(None, to, PATIENCE).unwrap();
    assert_eq!(next(&here).kind, CmEventKind::AddressResolved);
    let end = Connection::new(&one).unwrap();
    caller.connect(&CmParameters::of(end.queue_pair())).unwrap();
    assert!(matches!(next(&there).kind, CmEventKind::ConnectRequest { .. }));
    drop(listener);
    let CmEventKind::Rejected { reason, .. } = next(&here).kind else { panic!("not refused") };
    assert_eq!(reason, RejectReason::ConsumerReject);
    assert_eq!(there.try_next(), None);
    // The port is free again.
    let again = CmId::new(&other, &there, PortSpace::Tcp);
    assert_eq!(again.bind(to).unwrap(), to);
}

/// Whoever moves a listener to another channel hears there what follows of its requests, too.
#[test]
fn requests_that_nobody_took_move_with_their_listener() {
    let [one, other] = adapters::joined_by_memory();
    let [here, old, new] = [(); 3].map(|()| EventChannel::new().unwrap());
    let listener = CmId::new(&other, &old, PortSpace::Tcp);
    let to = listener.bind(port_of(&other, 0)).unwrap();
    listener.listen(8).unwrap();
    let caller = CmId::new(&one, &here, PortSpace::Tcp);
    caller.resolve_address(None, to, PATIENCE).unwrap();
    assert_eq!(next(&here).kind, CmEventKind::AddressResolved);
    let (asking, answering) = (Connection::new(&one).unwrap(), Connection::new(&other).unwrap());
    caller.connect(&CmParameters::of(asking.queue_pair())).unwrap();
    let request = next(&old).request().unwrap();
    listener.migrate(&new);
    let answer = listener.take(request).unwrap();
    answer.accept(&CmParameters::of(answering.queue_pair())).unwrap();
    assert!(matches!(next(&here).kind, CmEventKind::ConnectResponse(_)));
    caller.establish().unwrap();
    assert_eq!(next(&new), CmEvent { id: answer.key(), kind: CmEventKind::Established });
    assert_eq!(old.try_next(), None);
}

/// Whoever asks and gives up again and again leaves nothing behind.
#[test]
fn a_request_that_was_given_up_is_not_told_any_more() {
    let [one, other] = adapters::joined_by_memory();
    let (here, there) = (EventChannel::new().unwrap(), EventChannel::new().unwrap());
    let listener = CmId::new(&other, &there, PortSpace::Tcp);
    let to = listener.bind(port_of(&other, 0)).unwrap();
    listener.listen(1).unwrap();
    let end = Connection::new(&one).unwrap();
    let mut requests = Vec::new();
    for _ in 0..3 {
        let caller = CmId::new(&one, &here, PortSpace::Tcp);
        caller.resolve_address(None, to, PATIENCE).unwrap();
        assert_eq!(next(&here).kind, CmEventKind::AddressResolved);
        caller.connect(&CmParameters::of(end.queue_pair())).unwrap();
        requests.push(next(&there).request().unwrap());
        drop(caller);
        // The backlog of one has room again when that is heard.
        let start = Instant::now();
        while other.cm_counters().received < 2 * requests.len() as u64 {
            assert!(start.elapsed() < PATIENCE, "nothing was heard");
            thread::yield_now();
        }
    }
    for request in requests {
        let taken = listener.take(request).err();
        assert!(matches!(taken, Some(Error::Cm(CmError::Call(CallError::Gone)))));
    }
    assert_eq!(there.try_next(), None);
}

#[test]
fn a_group_needs_nobody_to_be_joined() {
    let [one, _] = adapters::joined_by_memory();
    let channel = EventChannel::new().unwrap();
    let id = CmId::new(&one, &channel, PortSpace::Udp);
    let group = "239.1.2.3".parse().unwrap();
    id.join_multicast(group).unwrap();
    let CmEventKind::MulticastJoined(joined) = next(&channel).kind else { panic!("not joined") };
    assert_eq!((joined.address, joined.qpn.get()), (group, 0xff_ffff));
    assert_eq!(joined.vector.destination.to_ip(), group);
    assert!(id.join_multicast("10.0.0.1".parse().unwrap()).is_err());
    assert!(id.join_multicast("ff15::1".parse().unwrap()).is_err(), "it has no such address");
}

/// Who sends to queue pair 1 what is no management datagram takes nothing from those who do.
#[test]
fn datagrams_that_are_too_long_keep_nobody_from_connecting() {
    let [one, other] = adapters::joined_by_memory();
    let cq = one.create_cq(64).unwrap();
    let domain = one.default_pd();
    let send = SendCapacity { depth: 64, max_sge: 1, max_inline: 0 };
    let qp = domain.create_qp(ServiceType::Ud, &cq).send(send).signal_all().build().unwrap();
    qp.ready(QKey::GSI).unwrap();
    let to = Gid::from_ip(other.addresses().next().unwrap());
    let handle = domain.create_ah(&AddressVector::new(0, to)).unwrap();
    let region = one.register(&Buffer::new(1000)).unwrap();
    let sges = [region.sge(0, 1000)];
    let request = SendRequest {
        wr_id: 1,
        operation: SendOperation::Send,
        data: Data::Regions(&sges),
        signaled: true,
        solicited: false,
        fence: false,
        target: Some(handle.target(Qpn::GSI, QKey::GSI)),
    };
    let too_long = || {
        let counters = other.counters();
        counters.iter().find(|(name, _)| *name == "ud_too_long").map_or(0, |(_, count)| *count)
    };
    // More than queue pair 1 has places.
    let start = Instant::now();
    while too_long() < 1100 {
        assert!(start.elapsed() < PATIENCE, "{} came", too_long());
        qp.post_send(&[request]).unwrap();
        while cq.poll_one().is_none() {
            thread::yield_now();
        }
    }
    connects_and_parts(&[one, other]);
}
