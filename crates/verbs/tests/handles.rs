//! The handles: every service, over memory and over UDP sockets of this host, and what becomes of
//! what when nobody holds it any more.

mod adapters;
#[cfg(feature = "af_xdp")]
#[path = "../../net/tests/namespace/mod.rs"]
mod namespace;

use std::sync::Arc;
use std::time::{Duration, Instant};

use adapters::{joined_by_memory, joined_by_udp};
use roxe_verbs::{
    AccessFlags, AddressVector, Attribute, AttributeMask, Buffer, Completion, CompletionOpcode,
    CompletionQueue, CompletionStatus, ConnectOptions, Connection, Context, Data, DatagramTarget,
    Error, Extra, Gid, Grh, ImmDt, Mtu, Op, PostError, ProtectionDomain, QKey, QpState, Qpn,
    QueuePair, ReceiveCapacity, ReceiveRequest, Resources, SendCapacity, SendOperation,
    SendRequest, ServiceType, Sge, Wait, WindowType,
};

const PATIENCE: Duration = Duration::from_secs(30);

fn request<'a>(wr_id: u64, operation: SendOperation, data: Data<'a>) -> SendRequest<'a> {
    SendRequest {
        wr_id,
        operation,
        data,
        signaled: true,
        solicited: false,
        fence: false,
        target: None,
    }
}

fn next(cq: &CompletionQueue) -> Completion {
    let start = Instant::now();
    loop {
        if let Some(completion) = cq.poll_one() {
            return completion;
        }
        assert!(start.elapsed() < PATIENCE, "nothing completes");
        std::thread::yield_now();
    }
}

/// One end of something: an adapter with all that a queue pair needs.
struct End {
    context: Context,
    domain: ProtectionDomain,
    cq: CompletionQueue,
    buffer: Arc<Buffer>,
    region: roxe_verbs::MemoryRegion,
    /// Which address it uses.
    gid: u32,
}

impl End {
    fn new(context: &Context) -> Self {
        let domain = context.alloc_pd().unwrap();
        let buffer = Buffer::new(1 << 16);
        let access = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE;
        Self {
            context: context.clone(),
            cq: context.create_cq(64).unwrap(),
            region: domain.register(&buffer, access).unwrap(),
            domain,
            buffer,
            gid: 0,
        }
    }

    fn address(&self) -> Gid {
        self.context.query_gid(self.gid).unwrap().gid
    }

    fn queue_pair(&self, service: ServiceType) -> QueuePair {
        self.domain.create_qp(service, &self.cq).build().unwrap()
    }

    fn receive(&self, qp: &QueuePair, wr_id: u64, len: u32) {
        qp.post_receive(&[ReceiveRequest { wr_id, sges: &[self.region.sge(0, len)] }]).unwrap();
    }

    fn bytes(&self, offset: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.buffer.read(offset, &mut bytes);
        bytes
    }
}

fn connected(service: ServiceType, [one, other]: &[End; 2]) -> [QueuePair; 2] {
    let (a, b) = (one.queue_pair(service), other.queue_pair(service));
    let options = ConnectOptions { source_gid: one.gid, ..ConnectOptions::default() };
    b.init(options.access).unwrap();
    a.connect(&b.endpoint_at(other.gid).unwrap(), &options).unwrap();
    let options = ConnectOptions { source_gid: other.gid, ..options };
    b.connect(&a.endpoint_at(one.gid).unwrap(), &options).unwrap();
    [a, b]
}

fn a_message_of_each_service(contexts: [Context; 2], is_v4: bool) {
    let ends = contexts.each_ref().map(|context| {
        let mut gids = context.gids().into_iter();
        let gid = gids.find(|(_, entry)| entry.gid.is_ipv4() == is_v4);
        End { gid: gid.expect("an address of the family").0, ..End::new(context) }
    });
    let [one, other] = &ends;
    for service in [ServiceType::Rc, ServiceType::Uc] {
        let [a, b] = connected(service, &ends);
        assert_eq!((a.service(), a.query().state), (service, QpState::Rts));
        other.receive(&b, 1, 5000);
        one.buffer.write(0, &[service as u8 + 7; 5000]);
        let sges = [one.region.sge(0, 2000), one.region.sge(2000, 3000)];
        let send = SendOperation::SendWithImm(ImmDt(0xabcd));
        a.post_send(&[request(2, send, Data::Regions(&sges))]).unwrap();
        let (sent, received) = (next(&one.cq), next(&other.cq));
        assert_eq!((sent.wr_id, sent.opcode), (2, CompletionOpcode::Send));
        assert_eq!((received.wr_id, received.opcode), (1, CompletionOpcode::Recv));
        assert_eq!((received.byte_len, received.extra), (5000, Extra::Imm(ImmDt(0xabcd))));
        assert_eq!(received.source_qp, a.qpn());
        assert_eq!(other.bytes(0, 5000), [service as u8 + 7; 5000]);
        let write = SendOperation::Write(other.region.remote(100));
        a.post_send(&[request(3, write, Data::Inline(b"inline"))]).unwrap();
        assert_eq!(next(&one.cq).wr_id, 3);
        let start = Instant::now();
        while other.bytes(100, 6) != b"inline" {
            assert!(start.elapsed() < PATIENCE, "{service:?}: the WRITE does not arrive");
        }
    }

    let q_key = QKey(0x1234);
    let (a, b) = (one.queue_pair(ServiceType::Ud), other.queue_pair(ServiceType::Ud));
    a.ready(q_key).unwrap();
    b.ready(q_key).unwrap();
    other.receive(&b, 4, 1000);
    let handle = one.domain.create_ah(&AddressVector::new(one.gid, other.address())).unwrap();
    let send = SendRequest {
        target: Some(handle.target(b.qpn(), q_key)),
        ..request(5, SendOperation::Send, Data::Inline(b"datagram"))
    };
    a.post_send(&[send]).unwrap();
    assert_eq!(next(&one.cq).wr_id, 5);
    let received = next(&other.cq);
    assert_eq!((received.wr_id, received.byte_len, received.grh), (4, 48, true));
    assert_eq!(received.source_qp, a.qpn());
    assert_eq!(other.bytes(40, 8), b"datagram");

    // And back to where it came from.
    one.receive(&a, 6, 1000);
    let area = Grh::from_bytes(other.bytes(0, 40).try_into().unwrap());
    let back = other.domain.create_ah_from(&area).unwrap();
    let target = Some(back.target(received.source_qp, q_key));
    let answer = request(7, SendOperation::Send, Data::Inline(b"answer"));
    b.post_send(&[SendRequest { target, ..answer }]).unwrap();
    assert_eq!(next(&other.cq).wr_id, 7);
    assert_eq!(next(&one.cq).wr_id, 6);
    assert_eq!(one.bytes(40, 6), b"answer");
}

#[test]
fn each_service_carries_a_message_over_memory() {
    a_message_of_each_service(joined_by_memory(), true);
}

#[test]
fn each_service_carries_a_message_over_udp() {
    a_message_of_each_service(joined_by_udp(), true);
}

#[cfg(feature = "af_xdp")]
#[test]
fn each_service_carries_a_message_over_af_xdp() {
    if !namespace::is_root() {
        return;
    }
    let cable = namespace::Cable::new(4200);
    // The kernel knows the neighbours: this thread could not have it ask for them there.
    for (end, interface, number, mac) in
        [(&cable.a, "va", 2, "02:00:00:00:00:0b"), (&cable.b, "vb", 1, "02:00:00:00:00:0a")]
    {
        for address in [format!("192.0.2.{number}"), format!("fd00::{number}")] {
            end.ip(&format!("neigh replace {address} lladdr {mac} dev {interface}"));
        }
    }
    for is_v4 in [true, false] {
        let open = |end: &namespace::Namespace, interface: &str| {
            end.run(|| Context::open_xdp(interface, roxe_verbs::af_xdp::Settings::default()))
        };
        let contexts = [open(&cable.a, "va").unwrap(), open(&cable.b, "vb").unwrap()];
        a_message_of_each_service(contexts, is_v4);
    }
}

/// A datagram to a group reaches its members, whoever is asked.
#[test]
fn a_datagram_to_a_group_reaches_its_members() {
    let ends = joined_by_memory().each_ref().map(End::new);
    let [one, other] = &ends;
    let (group, q_key) = (Gid::from_ip("224.0.1.9".parse().unwrap()), QKey(77));
    let sender = one.queue_pair(ServiceType::Ud);
    sender.ready(q_key).unwrap();
    let members = [(); 2].map(|()| other.queue_pair(ServiceType::Ud));
    for member in &members {
        member.ready(q_key).unwrap();
        member.attach_multicast(group).unwrap();
        other.receive(member, 1, 100);
    }
    let handle = one.domain.create_ah(&AddressVector::new(0, group)).unwrap();
    let send = request(2, SendOperation::Send, Data::Inline(b"all"));
    let target = Some(handle.target(Qpn::MULTICAST, q_key));
    sender.post_send(&[SendRequest { target, ..send }]).unwrap();
    let mut reached = [next(&other.cq).qpn, next(&other.cq).qpn];
    reached.sort();
    let mut expected = members.each_ref().map(QueuePair::qpn);
    expected.sort();
    assert_eq!(reached, expected);
    let area = Grh::from_bytes(other.bytes(0, 40).try_into().unwrap());
    assert_eq!(area.destination(), Some(group.to_ip()));
    other.domain.create_ah_from(&area).unwrap();

    members[0].detach_multicast(group).unwrap();
    members.iter().for_each(|member| other.receive(member, 3, 100));
    sender.post_send(&[SendRequest { target, ..send }]).unwrap();
    assert_eq!(next(&other.cq).qpn, members[1].qpn());
    assert!(members[0].detach_multicast(group).is_err());
    assert!(other.queue_pair(ServiceType::Rc).attach_multicast(group).is_err());
}

#[test]
fn who_cannot_be_answered_is_told() {
    let [one, _] = joined_by_memory().each_ref().map(End::new);
    for area in [[0; 40], [0x60; 40]] {
        let error = one.domain.create_ah_from(&Grh::from_bytes(area)).err().unwrap();
        assert!(matches!(error, Error::NoSender), "{error}");
    }
}

#[test]
fn the_first_request_of_a_list_that_is_refused_is_named() {
    let ends = joined_by_memory().each_ref().map(End::new);
    let [one, other] = &ends;
    let qp = one.queue_pair(ServiceType::Rc);
    let send = request(1, SendOperation::Send, Data::Inline(b"x"));
    let refused = qp.post_send(&[send]).unwrap_err();
    assert_eq!((refused.index, refused.reason), (0, PostError::WrongState));
    let [a, b] = connected(ServiceType::Rc, &ends);
    let long = [0; 257];
    let too_long = request(2, SendOperation::Send, Data::Inline(&long));
    other.receive(&b, 9, 100);
    let refused = a.post_send(&[send, too_long, send]).unwrap_err();
    let reason = PostError::InlineTooLong { given: 257, max: 256 };
    assert_eq!((refused.index, refused.reason), (1, reason));
    assert_eq!((next(&one.cq).wr_id, next(&other.cq).wr_id), (1, 9));
    let sges = [Sge::default(); 5];
    let (few, many) = (&sges[..1], &sges[..]);
    let receives = [few, few, many].map(|sges| ReceiveRequest { wr_id: 3, sges });
    let refused = b.post_receive(&receives).unwrap_err();
    assert_eq!(refused.index, 2);
    assert_eq!(refused.reason, PostError::TooManySegments { given: 5, max: 4 });
}

/// Parents stay while something stands on them, whoever lets go first.
#[test]
fn handles_go_in_any_order() {
    let [one, other] = joined_by_memory();
    let before = one.resources();
    for order in 0..2 * 3 * 4 * 5 * 6 * 7 {
        let domain = one.alloc_pd().unwrap();
        let cq = one.create_cq(8).unwrap();
        let srq = domain.create_srq(8, 1).unwrap();
        let qp = domain.create_qp(ServiceType::Ud, &cq).srq(&srq).build().unwrap();
        let access = AccessFlags::LOCAL_WRITE | AccessFlags::MW_BIND;
        let region = domain.register(&Buffer::new(64), access).unwrap();
        let window = domain.alloc_mw(WindowType::Type1).unwrap();
        let there = Gid::from_ip(other.addresses().next().unwrap());
        let handle = domain.create_ah(&AddressVector::new(0, there)).unwrap();
        qp.attach_multicast("224.1.2.3".parse::<std::net::IpAddr>().unwrap().into()).unwrap();
        let mut handles: Vec<Box<dyn std::any::Any>> = vec![
            Box::new(domain),
            Box::new(cq),
            Box::new(srq),
            Box::new(qp),
            Box::new(region),
            Box::new(window),
            Box::new(handle),
        ];
        let (mut choice, mut left) = (order, handles.len());
        while left > 0 {
            drop(handles.swap_remove(choice % left));
            choice /= left;
            left -= 1;
        }
        assert_eq!(one.resources(), before, "order {order}");
    }
}

/// A region whose handle is gone goes with the last window on it.
#[test]
fn a_window_keeps_its_region() {
    let [one, other] = joined_by_memory();
    let before: Resources = one.resources();
    let ends = [End::new(&one), End::new(&other)];
    let [a, b] = connected(ServiceType::Rc, &ends);
    let buffer = Buffer::new(100);
    let access = AccessFlags::LOCAL_WRITE | AccessFlags::MW_BIND;
    let region = ends[0].domain.register(&buffer, access).unwrap();
    let mut window = ends[0].domain.alloc_mw(WindowType::Type1).unwrap();
    let bind = window.bind(&region, 10, 50, AccessFlags::REMOTE_WRITE);
    a.post_send(&[request(1, bind, Data::Regions(&[]))]).unwrap();
    let bound = next(&ends[0].cq);
    assert_eq!((bound.status, bound.opcode), (CompletionStatus::Success, CompletionOpcode::BindMw));
    let address = region.address();
    drop(region);
    let remote = roxe_verbs::Remote { va: address + 10, r_key: window.r_key() };
    b.post_send(&[request(2, SendOperation::Write(remote), Data::Inline(b"in"))]).unwrap();
    assert_eq!(next(&ends[1].cq).status, CompletionStatus::Success);
    let mut bytes = [0; 2];
    buffer.read(10, &mut bytes);
    assert_eq!(&bytes, b"in");
    assert_eq!(Arc::strong_count(&buffer), 2, "registered");
    // A bind that was never posted changes nothing.
    let _ = window.bind(&ends[0].region, 0, 10, AccessFlags::REMOTE_WRITE);
    drop(window);
    assert_eq!(Arc::strong_count(&buffer), 1);
    drop((a, b, ends));
    assert_eq!(one.resources(), before);
}

/// A peer that has no right is refused, told so, and the other side knows why too.
#[test]
fn a_failed_request_says_why() {
    let [one, other] = joined_by_memory();
    let (mut a, mut b) = (Connection::new(&one).unwrap(), Connection::new(&other).unwrap());
    a.connect(&b.endpoint().unwrap()).unwrap();
    b.connect(&a.endpoint().unwrap()).unwrap();
    let source = one.register(&Buffer::new(100)).unwrap();
    let target = other.register(&Buffer::new(100)).unwrap();
    let (va, r_key) = (target.address(), target.r_key());
    target.change_access(AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_READ).unwrap();
    a.post(1, Op::Read { va, r_key }, &source, 0, 100).unwrap();
    assert_eq!(a.wait(Wait(PATIENCE)).unwrap().byte_len, 100);
    a.post(7, Op::Write { va, r_key }, &source, 0, 100).unwrap();
    let error = a.wait(Wait(PATIENCE)).unwrap_err();
    let Error::Completion { wr_id: 7, status: CompletionStatus::RemoteAccessError, why } = &error
    else {
        panic!("{error}");
    };
    assert!(why.contains("WRITE") && why.len() > 40, "{why}");
    assert!(error.to_string().starts_with("request 7 failed: "), "{error}");
    assert_eq!(a.queue_pair().query().state, QpState::Error);
    assert_eq!(&a.why(), why);
    assert!(b.why().contains("WRITE"), "{}", b.why());
}

#[test]
fn a_shared_receive_queue_feeds_several_queue_pairs() {
    let ends = joined_by_memory().each_ref().map(End::new);
    let [one, other] = &ends;
    let srq = other.domain.create_srq(4, 1).unwrap();
    let shared = || other.domain.create_qp(ServiceType::Rc, &other.cq).srq(&srq).build().unwrap();
    let receivers = [shared(), shared()];
    let senders = [one.queue_pair(ServiceType::Rc), one.queue_pair(ServiceType::Rc)];
    let options = ConnectOptions::default();
    for (a, b) in senders.iter().zip(&receivers) {
        a.connect(&b.endpoint().unwrap(), &options).unwrap();
        b.connect(&a.endpoint().unwrap(), &options).unwrap();
    }
    let sges = [other.region.sge(0, 10)];
    let receives = [1, 2, 3, 4, 5].map(|wr_id| ReceiveRequest { wr_id, sges: &sges });
    let refused = srq.post_receive(&receives).unwrap_err();
    assert_eq!((refused.index, refused.reason), (4, PostError::QueueFull { depth: 4 }));
    let refused = receivers[0].post_receive(&receives[..1]).unwrap_err();
    assert_eq!(refused.reason, PostError::SharedReceiveQueue);
    for (turn, wr_id) in [(0, 1), (1, 2), (1, 3), (0, 4)] {
        let send = request(wr_id, SendOperation::Send, Data::Inline(b"x"));
        senders[turn].post_send(&[send]).unwrap();
        let received = next(&other.cq);
        assert_eq!((received.wr_id, received.qpn), (wr_id, receivers[turn].qpn()));
    }
    srq.modify(Some(8), None).unwrap();
    srq.post_receive(&receives).unwrap();
}

#[test]
fn objects_of_two_adapters_are_not_mixed() {
    let [one, other] = joined_by_memory().each_ref().map(End::new);
    let built = one.domain.create_qp(ServiceType::Rc, &one.cq).receive_cq(&other.cq).build();
    assert!(matches!(built, Err(Error::OtherAdapter)));
    let srq = other.domain.create_srq(4, 1).unwrap();
    let built = one.domain.create_qp(ServiceType::Rc, &one.cq).srq(&srq).build();
    assert!(matches!(built, Err(Error::OtherAdapter)));
}

#[test]
fn a_verb_of_another_service_is_refused() {
    let [one, other] = joined_by_memory().each_ref().map(End::new);
    let (rc, ud) = (one.queue_pair(ServiceType::Rc), one.queue_pair(ServiceType::Ud));
    let peer = other.queue_pair(ServiceType::Rc).endpoint().unwrap();
    assert!(matches!(rc.ready(QKey(1)), Err(Error::WrongService(ServiceType::Rc))));
    let options = ConnectOptions::default();
    assert!(matches!(ud.connect(&peer, &options), Err(Error::WrongService(ServiceType::Ud))));
    assert!(matches!(rc.endpoint_at(9), Err(Error::NoSuchGid(9))));
    let v6 = roxe_verbs::Endpoint { address: "fd00::1".parse().unwrap(), ..peer };
    let error = rc.connect(&v6, &options).unwrap_err();
    assert_eq!(error.to_string(), "source and destination are of different IP versions");
    assert_eq!(rc.query().state, QpState::Init, "nothing changed but the first step");
    rc.connect(&peer, &options).unwrap();
}

/// Step by step, with the masks of `ibv_modify_qp`.
#[test]
fn a_queue_pair_is_modified_step_by_step() {
    let [one, other] = joined_by_memory().each_ref().map(End::new);
    let qp = one
        .domain
        .create_qp(ServiceType::Uc, &one.cq)
        .send(SendCapacity { depth: 1, max_sge: 1, max_inline: 8 })
        .receive(ReceiveCapacity { depth: 2, max_sge: 1 })
        .build()
        .unwrap();
    let mut values = qp.query().attributes;
    let error = qp.modify(QpState::Rtr, AttributeMask::NONE, &values, None).unwrap_err();
    assert_eq!((error.to_string().as_str(), error.errno()), ("no step from reset to rtr", 22));
    use Attribute as A;
    let given = AttributeMask::of(&[A::PkeyIndex, A::Port, A::AccessFlags]);
    qp.modify(QpState::Init, given, &values, None).unwrap();
    values.dest_qp = other.queue_pair(ServiceType::Uc).qpn();
    values.path_mtu = Mtu::B512;
    let given = AttributeMask::of(&[A::Av, A::PathMtu, A::DestQpn, A::RqPsn]);
    let vector = AddressVector::new(0, Gid::from_ip(other.context.addresses().next().unwrap()));
    assert!(qp.modify(QpState::Rtr, given, &values, None).is_err(), "no address vector");
    qp.modify(QpState::Rtr, given, &values, Some(&vector)).unwrap();
    let info = qp.query();
    assert_eq!((info.state, info.attributes.path_mtu), (QpState::Rtr, Mtu::B512));
    assert_eq!(qp.why(), "in state rtr");
}

/// A message longer than the port's packets is refused, not lost.
#[test]
fn a_datagram_fits_the_port() {
    let [one, other] = Context::memory_pair(Mtu::B1024).unwrap().each_ref().map(End::new);
    assert_eq!(one.context.query_port().active_mtu, Mtu::B1024);
    let qp = one.queue_pair(ServiceType::Ud);
    qp.ready(QKey(1)).unwrap();
    let there = Gid::from_ip(other.context.addresses().next().unwrap());
    let handle = one.domain.create_ah(&AddressVector::new(0, there)).unwrap();
    let target: Option<DatagramTarget> = Some(handle.target(qp.qpn(), QKey(1)));
    for (len, status) in
        [(1024, CompletionStatus::Success), (1025, CompletionStatus::LocalLengthError)]
    {
        let sges = [one.region.sge(0, len)];
        let send = request(1, SendOperation::Send, Data::Regions(&sges));
        qp.post_send(&[SendRequest { target, ..send }]).unwrap();
        assert_eq!(next(&one.cq).status, status, "{len} bytes");
    }
}

#[test]
fn memory_of_the_application_is_reached_where_it_is() {
    let [one, other] = joined_by_memory();
    let ends = [End::new(&one), End::new(&other)];
    let [a, _b] = connected(ServiceType::Rc, &ends);
    let mut memory = vec![0_u8; 100];
    let start = memory.as_mut_ptr();
    let access = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE | AccessFlags::ZERO_BASED;
    // SAFETY: the memory outlives the region, and is not looked at before the region is gone.
    let region = unsafe { ends[1].domain.register_raw(start, 100, access) }.unwrap();
    assert_eq!(region.address(), 0, "zero-based");
    let write = SendOperation::Write(region.remote(90));
    a.post_send(&[request(1, write, Data::Inline(b"0123456789"))]).unwrap();
    assert_eq!(next(&ends[0].cq).status, CompletionStatus::Success);
    assert!(region.change_access(AccessFlags::LOCAL_WRITE).is_err(), "it is zero-based");
    drop(region);
    assert_eq!(&memory[90..], b"0123456789");
    // SAFETY: it is refused: peers may not write where the adapter may not.
    let refused = unsafe { ends[1].domain.register_raw(start, 100, AccessFlags::REMOTE_WRITE) };
    assert!(refused.is_err());
}

/// The priority of tagged packets is the connection's service level; there are eight.
#[test]
fn a_connection_has_a_service_level() {
    let [one, other] = Context::memory_pair(Mtu::B1024).unwrap();
    let (ours, theirs) = (Connection::new(&one).unwrap(), Connection::new(&other).unwrap());
    let peer = theirs.endpoint().unwrap();
    let of = |service_level| ConnectOptions { service_level, ..ConnectOptions::default() };
    let refused = ours.queue_pair().connect(&peer, &of(8)).unwrap_err();
    assert!(refused.to_string().contains("service levels are 0 to 7"), "{refused}");
    ours.queue_pair().connect(&peer, &of(7)).unwrap();
}

/// Who has seen a message may go away at once, or say something that ends the connection: the peer
/// still hears that the message arrived.
#[test]
fn a_message_that_was_seen_is_acknowledged_whatever_its_receiver_does_then() {
    for [one, other] in [joined_by_memory(), joined_by_udp()] {
        let (from, to) = (Buffer::new(64), Buffer::new(64));
        let (source, target) = (one.register(&from).unwrap(), other.register(&to).unwrap());
        for turn in 0..20 {
            let mut sender = Connection::new(&one).unwrap();
            let mut receiver = Connection::new(&other).unwrap();
            sender.connect(&receiver.endpoint().unwrap()).unwrap();
            receiver.connect(&sender.endpoint().unwrap()).unwrap();
            receiver.post_receive(1, &target, 0, 64).unwrap();
            sender.post(2, Op::Send, &source, 0, 64).unwrap();
            receiver.wait(Wait(PATIENCE)).unwrap();
            if turn % 2 == 0 {
                let qp = receiver.queue_pair();
                let values = qp.query().attributes;
                qp.modify(QpState::Error, AttributeMask::NONE, &values, None).unwrap();
            }
            drop(receiver);
            assert_eq!(sender.wait(Wait(PATIENCE)).unwrap().wr_id, 2);
        }
    }
}
