//! Two devices, every operation, once through the whole stack.

#[allow(dead_code, reason = "shared with other tests")]
mod pair;

use pair::{End, pair, remote, settle};
use roxe_transport::Outlet;
use roxe_transport::qp_state::{QpState, ServiceType};
use roxe_transport::work::{
    CompletionOpcode, CompletionStatus, Data, DatagramTarget, Extra, SendOperation, SendRequest,
};
use roxe_wire::{ImmDt, Instant, Mtu, Opcode, QKey, Room};

const NOW: Instant = Instant::ZERO;

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| u8::try_from(at % 251).unwrap()).collect()
}

#[test]
fn a_reliable_connection_carries_every_operation() {
    for mtu in Mtu::ALL {
        let (mut a, qa, mut b, qb) = pair(ServiceType::Rc, mtu);
        let data = pattern(10_000);
        a.fill(0, &data);
        b.fill(100_000, &data);
        let receive = b.sge(0, 20_000);
        b.post_receive(qb, 1, receive);
        b.post_receive(qb, 2, receive);
        let to = remote(50_000, b.key);
        a.post(qa, 10, SendOperation::SendWithImm(ImmDt(7)), a.sge(0, 10_000));
        a.post(qa, 11, SendOperation::Write(to), a.sge(0, 9_999));
        a.post(qa, 12, SendOperation::WriteWithImm(remote(70_000, b.key), ImmDt(8)), a.sge(5, 1));
        a.post(qa, 13, SendOperation::Read(remote(100_000, b.key)), a.sge(200_000, 10_000));
        let (counter, swapped) = (remote(80_000, b.key), remote(80_008, b.key));
        a.post(qa, 14, SendOperation::FetchAdd { remote: counter, add: 5 }, a.sge(300_000, 8));
        let swap = SendOperation::CompareSwap { remote: swapped, compare: 0, swap: 9 };
        a.post(qa, 15, swap, a.sge(300_008, 8));
        a.post(qa, 16, SendOperation::AtomicWrite(remote(80_016, b.key)), a.sge(8, 8));
        settle(&mut a, &mut b, NOW);

        let sent: Vec<_> = a.completions().iter().map(|c| (c.wr_id, c.status)).collect();
        let all: Vec<_> = (10..17).map(|id| (id, CompletionStatus::Success)).collect();
        assert_eq!(sent, all, "MTU {mtu}");
        let received: Vec<_> =
            b.completions().iter().map(|c| (c.wr_id, c.opcode, c.byte_len, c.extra)).collect();
        let imm = |value| Extra::Imm(ImmDt(value));
        assert_eq!(
            received,
            [
                (1, CompletionOpcode::Recv, 10_000, imm(7)),
                (2, CompletionOpcode::RecvRdmaWithImm, 1, imm(8)),
            ]
        );
        assert_eq!(b.bytes(0, 10_000), data);
        assert_eq!(b.bytes(50_000, 9_999), &data[..9_999]);
        assert_eq!(b.bytes(70_000, 1), &data[5..6]);
        assert_eq!(a.bytes(200_000, 10_000), data);
        assert_eq!(b.bytes(80_000, 8), 5u64.to_ne_bytes());
        assert_eq!(b.bytes(80_008, 8), 9u64.to_ne_bytes());
        assert_eq!(b.bytes(80_016, 8), &data[8..16]);
        assert_eq!(a.device.poll_timeout().map(|_| ()), Some(()), "a timer that is over by now");
        a.device.handle_timeout(Instant::from_nanos(u64::MAX / 2));
        assert_eq!(a.frame(NOW), None, "nothing is outstanding, so nothing is sent again");
    }
}

#[test]
fn an_unreliable_connection_delivers_what_arrives() {
    let (mut a, qa, mut b, qb) = pair(ServiceType::Uc, Mtu::B256);
    let data = pattern(1000);
    a.fill(0, &data);
    for id in 0..3 {
        let receive = b.sge(1000 * id, 1000);
        b.post_receive(qb, id, receive);
        a.post(qa, 10 + id, SendOperation::Send, a.sge(0, 1000));
    }
    let mut frames = Vec::new();
    while let Some(frame) = a.frame(NOW) {
        frames.push(frame);
    }
    assert_eq!(a.completions().len(), 3, "done when sent");
    frames.remove(5); // the second packet of the second message
    frames.iter().for_each(|frame| b.receive(NOW, frame));
    let received: Vec<_> = b.completions().iter().map(|c| (c.wr_id, c.byte_len)).collect();
    assert_eq!(received, [(0, 1000), (1, 1000)], "the second receive served the third message");
    assert_eq!(b.bytes(0, 1000), data);
    assert_eq!(b.frame(NOW), None, "nobody is told");
}

#[test]
fn datagrams_need_the_key_and_show_where_they_came_from() {
    let (mut a, mut b) = (End::new(1), End::new(2));
    let (qa, qb) = (a.create(ServiceType::Ud, None), b.create(ServiceType::Ud, None));
    let (to_a, to_b) = (a.address, b.address);
    a.connect(qa, qb, to_b, Mtu::B1024);
    b.connect(qb, qa, to_a, Mtu::B1024);
    let path = a.device.create_address_handle(a.pd, &End::vector(to_b)).unwrap();
    let receive = b.sge(0, 1000);
    b.post_receive(qb, 1, receive);
    for (wr_id, q_key) in [(10, QKey(5)), (11, QKey(0x1111_1111))] {
        let request = SendRequest {
            wr_id,
            operation: SendOperation::Send,
            data: Data::Inline(b"hello"),
            signaled: true,
            solicited: false,
            fence: false,
            target: Some(DatagramTarget { path, qpn: qb, q_key }),
        };
        a.device.post_send(qa, &request).unwrap();
    }
    settle(&mut a, &mut b, NOW);
    assert_eq!(a.completions().len(), 2);
    let received = b.completions();
    assert_eq!(received.len(), 1);
    assert_eq!((received[0].byte_len, received[0].source_qp, received[0].grh), (45, qa, true));
    assert_eq!(b.bytes(40, 5), b"hello");
    assert_eq!(b.bytes(20, 1), [0x45], "the IPv4 header fills the second half of the area");
    assert_eq!(b.device.counters().by_name("bad_qkey"), Some(1));
}

#[test]
fn a_wrong_key_ends_the_connection_on_both_sides() {
    let (mut a, qa, mut b, qb) = pair(ServiceType::Rc, Mtu::B1024);
    let wrong = remote(0, roxe_wire::LKey(b.key.0 ^ 1));
    a.post(qa, 1, SendOperation::Write(wrong), a.sge(0, 100));
    a.post(qa, 2, SendOperation::Send, a.sge(0, 100));
    let receive = b.sge(0, 100);
    b.post_receive(qb, 3, receive);
    settle(&mut a, &mut b, NOW);
    let statuses: Vec<_> = a.completions().iter().map(|c| (c.wr_id, c.status)).collect();
    let refused = CompletionStatus::RemoteAccessError;
    assert_eq!(statuses, [(1, refused), (2, CompletionStatus::Flushed)]);
    let flushed: Vec<_> = b.completions().iter().map(|c| (c.wr_id, c.status)).collect();
    assert_eq!(flushed, [(3, CompletionStatus::Flushed)]);
    for (end, qpn) in [(&a, qa), (&b, qb)] {
        assert_eq!(end.device.query_queue_pair(qpn).unwrap().state, QpState::Error);
    }
}

/// What the peer is owed leaves before what is posted.
#[test]
fn answers_leave_before_requests() {
    let (mut a, qa, mut b, qb) = pair(ServiceType::Rc, Mtu::B1024);
    let write = |end: &mut End, qp, key| {
        let sge = end.sge(0, 8);
        end.post(qp, 1, SendOperation::Write(remote(0, key)), sge);
    };
    write(&mut a, qa, b.key);
    let frame = a.frame(NOW).expect("it was posted");
    b.receive(NOW, &frame);
    assert!(b.device.has_to_send() && b.device.has_response());
    write(&mut b, qb, a.key);
    let mut bytes = [0; 64];
    let mut opcodes = Vec::new();
    for _ in 0..3 {
        let outlet = Outlet { room: Room::whole(&mut bytes), elide: false };
        let sent = b.device.poll_transmit(NOW, outlet);
        opcodes.push(sent.map(|_| Opcode::from_code(bytes[0]).expect("it is one").name));
    }
    assert_eq!(opcodes, [Some("RC_ACKNOWLEDGE"), Some("RC_WRITE_ONLY"), None]);
    assert!(!b.device.has_to_send() && !b.device.has_response());
}
