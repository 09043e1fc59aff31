//! Marked packets, notifications and rates, with two devices and a network that marks.

use core::time::Duration;

use pair::{End, Q_KEY, pair, remote, send_datagram, settle};
use roxe_device::Congestion;
use roxe_transport::congestion::notification_point::CnpScope;
use roxe_transport::congestion::{
    Burst, CongestionControl, Dcqcn, NotificationPoint, Rate, ReactionPoint, Timely,
};
use roxe_transport::qp_state::{AttributeMask, QpState, ServiceType};
use roxe_transport::work::{CompletionStatus, SendOperation};
use roxe_wire::{Ecn, Frame, Instant, Mtu, Packet, Qpn, RawFrame};

mod pair;

const LINE: Rate = Rate::from_mbps(10_000);

fn at(micros: u64) -> Instant {
    Instant::from_nanos(micros * 1000)
}

/// DCQCN with the adapter's parameters, and notifications as often as they say.
fn controlled(control: CongestionControl) -> Congestion {
    let notification_point = Some(NotificationPoint::DEFAULT);
    let burst = Burst::DEFAULT;
    Congestion { control, line_rate: LINE, is_ceiling: false, burst, notification_point }
}

/// Two ends with a queue pair each, both controlled.
fn controlled_pair(service: ServiceType) -> (End, Qpn, End, Qpn) {
    let (mut a, qa, mut b, qb) = pair(service, Mtu::B1024);
    for (end, qpn) in [(&mut a, qa), (&mut b, qb)] {
        let control = CongestionControl::Dcqcn(Dcqcn::MLX5);
        end.device.set_congestion(controlled(control));
        end.device.set_congestion_control(qpn, control).unwrap();
    }
    (a, qa, b, qb)
}

/// The frame as a switch with a long queue forwards it.
fn marked(frame: &[u8]) -> Vec<u8> {
    let mut frame = frame.to_vec();
    frame[15] |= 0x3;
    frame[24..26].fill(0);
    let sum: u32 =
        frame[14..34].chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame
}

/// Name, DSCP, ECN and destination queue pair of a frame.
fn what(frame: &[u8]) -> (&'static str, u8, Ecn, Qpn) {
    let frame = Frame::parse(RawFrame::ethernet(frame)).unwrap();
    let class = frame.received().addressing.traffic_class;
    let packet = Packet::parse(frame.body).unwrap();
    (packet.opcode.name, class.dscp(), class.ecn(), packet.headers.bth.dest_qp)
}

/// A queue pair's reaction point as it is at a time.
fn point_at(end: &End, now: Instant, qpn: Qpn) -> Option<ReactionPoint> {
    end.device.controller(now, qpn)?.reaction_point().cloned()
}

fn count(end: &End, name: &str) -> u64 {
    end.device.counters().by_name(name).unwrap()
}

fn write(end: &mut End, qpn: Qpn, len: u32, key: roxe_wire::LKey) {
    let operation = SendOperation::Write(remote(0, key));
    let sge = end.sge(0, len);
    end.post(qpn, 1, operation, sge);
}

//= C01 test
//= C04 test
#[test]
fn marked_data_earns_its_sender_one_notification_an_interval_ahead_of_all_else() {
    let (mut a, qa, mut b, _) = controlled_pair(ServiceType::Rc);
    write(&mut a, qa, 3 * 1024, b.key);
    for _ in 0..3 {
        let frame = a.frame(at(10)).unwrap();
        assert_eq!(what(&frame).2, Ecn::Ect0);
        b.receive(at(10), &marked(&frame));
    }
    let cnp = b.frame(at(10)).unwrap();
    assert_eq!(what(&cnp), ("CNP", 48, Ecn::NotEct, qa));
    assert_eq!(what(&b.frame(at(10)).unwrap()).0, "RC_ACKNOWLEDGE");
    assert_eq!(b.frame(at(10)), None);
    assert_eq!(count(&b, "np_ecn_marked_roce_packets"), 3);
    assert_eq!((count(&b, "np_cnp_sent"), count(&a, "rp_cnp_handled")), (1, 0));

    a.receive(at(11), &cnp);
    assert_eq!((count(&a, "rp_cnp_handled"), count(&a, "rp_cnp_ignored")), (1, 0));
    let rate = point_at(&a, at(11), qa).unwrap().rate();
    assert_eq!(rate.bits_per_second(), LINE.bits_per_second() * 0.5);

    // An interval later there is one more.
    write(&mut a, qa, 1024, b.key);
    let frame = a.frame(at(14)).unwrap();
    b.receive(at(14), &marked(&frame));
    assert_eq!(what(&b.frame(at(14)).unwrap()).0, "CNP");
}

/// Also of one that is out of sequence; but who acknowledges cannot slow down.
//= C01 test
#[test]
fn what_carries_no_data_earns_none() {
    let (mut a, qa, mut b, _) = controlled_pair(ServiceType::Rc);
    write(&mut a, qa, 2 * 1024, b.key);
    let _lost = a.frame(at(1)).unwrap();
    let second = a.frame(at(1)).unwrap();
    b.receive(at(1), &marked(&second));
    let cnp = b.frame(at(1)).unwrap();
    assert_eq!(what(&cnp).0, "CNP");
    let nak = b.frame(at(1)).unwrap();
    assert_eq!(what(&nak).0, "RC_ACKNOWLEDGE");
    a.receive(at(1), &marked(&nak));
    a.receive(at(1), &marked(&cnp));
    assert_eq!(count(&a, "np_ecn_marked_roce_packets"), 2);
    assert_eq!((count(&a, "np_cnp_sent"), count(&a, "rp_cnp_handled")), (0, 1));
    let next = a.frame(at(1)).unwrap();
    assert_ne!(what(&next).0, "CNP");
}

#[test]
fn scopes_and_muted_peers() {
    for (scope, cnps) in [(CnpScope::QueuePair, 2), (CnpScope::Address, 1), (CnpScope::Port, 1)] {
        let (mut a, qa, mut b, _) = controlled_pair(ServiceType::Rc);
        let (other, there) = (a.create(ServiceType::Rc, None), b.create(ServiceType::Rc, None));
        let (to_a, to_b) = (a.address, b.address);
        a.connect(other, there, to_b, Mtu::B1024);
        b.connect(there, other, to_a, Mtu::B1024);
        let point = NotificationPoint { scope, ..NotificationPoint::DEFAULT };
        let congestion = Congestion { notification_point: Some(point), ..*b.device.congestion() };
        b.device.set_congestion(congestion);
        for qpn in [qa, other] {
            write(&mut a, qpn, 1024, b.key);
        }
        while let Some(frame) = a.frame(at(1)) {
            b.receive(at(1), &marked(&frame));
        }
        let sent = std::iter::from_fn(|| b.frame(at(1)));
        let sent = sent.filter(|frame| what(frame).0 == "CNP").count();
        assert_eq!(sent, cnps, "{scope:?}");

        b.device.set_notifies(to_a, false);
        write(&mut a, qa, 1024, b.key);
        let frame = a.frame(at(100)).unwrap();
        b.receive(at(100), &marked(&frame));
        assert_eq!(
            what(&b.frame(at(100)).unwrap()).0,
            "RC_ACKNOWLEDGE",
            "who is muted is told nothing"
        );
        b.device.set_notifies(to_a, true);
        write(&mut a, qa, 1024, b.key);
        let frame = a.frame(at(200)).unwrap();
        b.receive(at(200), &marked(&frame));
        assert_eq!(what(&b.frame(at(200)).unwrap()).0, "CNP");
        settle(&mut a, &mut b, at(200));
        assert_eq!(a.completions().len(), 3, "the other's acknowledgement was thrown away");
    }
}

//= C02 test
//= C03 test
#[test]
fn a_notification_for_who_takes_none_changes_nothing() {
    let (mut a, qa, mut b, _) = controlled_pair(ServiceType::Rc);
    write(&mut a, qa, 1024, b.key);
    let frame = a.frame(at(1)).unwrap();
    b.receive(at(1), &marked(&frame));
    let cnp = b.frame(at(1)).unwrap();
    a.device.set_congestion_control(qa, CongestionControl::None).unwrap();
    a.receive(at(2), &cnp);
    assert!(point_at(&a, at(2), qa).is_none());
    assert_eq!((count(&a, "rp_cnp_handled"), count(&a, "rp_cnp_ignored")), (0, 1));
    write(&mut a, qa, 1024, b.key);
    assert_eq!(what(&a.frame(at(3)).unwrap()).2, Ecn::NotEct, "nor does it say that it listens");
    // Nor does one in error.
    let control = CongestionControl::Dcqcn(Dcqcn::MLX5);
    a.device.set_congestion_control(qa, control).unwrap();
    let values = pair::attributes(qa, qa, Mtu::B1024);
    let given = AttributeMask::NONE;
    a.device.modify_queue_pair(qa, QpState::Error, given, &values, None).unwrap();
    a.receive(at(4), &cnp);
    assert_eq!(count(&a, "rp_cnp_handled"), 0);
    assert!(!point_at(&a, at(4), qa).unwrap().is_limiting());
}

/// The sender of a datagram is told by the number that the datagram has.
//= C02 test
#[test]
fn datagrams_are_notified_and_believe_whom_they_send_to() {
    let (mut a, qa, mut b, qb) = controlled_pair(ServiceType::Ud);
    let path = a.device.create_address_handle(a.pd, &End::vector(b.address)).unwrap();
    let sge = b.sge(0, 4096);
    b.post_receive(qb, 1, sge);
    send_datagram(&mut a, qa, path, qb, Q_KEY, b"hello");
    let frame = a.frame(at(1)).unwrap();
    assert_eq!(what(&frame).2, Ecn::Ect0);
    // Nothing is known of the way back as long as nothing was ever sent there.
    b.receive(at(0), &marked(&frame));
    assert_eq!(b.frame(at(0)), None);
    b.device.create_address_handle(b.pd, &End::vector(a.address)).unwrap();
    b.receive(at(1), &marked(&frame));
    let cnp = b.frame(at(1)).unwrap();
    assert_eq!(what(&cnp), ("CNP", 48, Ecn::NotEct, qa));
    // From somebody else it is not believed.
    let stranger = End::vector("192.0.2.9".parse().unwrap());
    let elsewhere = a.device.create_address_handle(a.pd, &stranger).unwrap();
    send_datagram(&mut a, qa, elsewhere, qb, Q_KEY, b"hello");
    a.frame(at(2)).unwrap();
    a.receive(at(3), &cnp);
    assert_eq!((count(&a, "rp_cnp_handled"), count(&a, "rp_cnp_ignored")), (0, 1));
    send_datagram(&mut a, qa, path, qb, Q_KEY, b"hello");
    a.frame(at(4)).unwrap();
    a.receive(at(5), &cnp);
    assert_eq!(count(&a, "rp_cnp_handled"), 1);
    assert!(point_at(&a, at(5), qa).unwrap().is_limiting());
    // What it does next is not held to what was learned before.
    let values = pair::attributes(qa, qa, Mtu::B1024);
    a.device.modify_queue_pair(qa, QpState::Reset, AttributeMask::NONE, &values, None).unwrap();
    let point = point_at(&a, at(5), qa).unwrap();
    assert!(!point.is_limiting() && point.alpha() == 0.0, "{point:?}");
}

/// Lets two devices talk, time passing only while both wait. Says when the last frame went.
fn run(a: &mut End, b: &mut End, mut now: Instant) -> Instant {
    let mut last = now;
    loop {
        while let Some(frame) = a.frame(now) {
            b.receive(now, &frame);
            last = now;
        }
        while let Some(frame) = b.frame(now) {
            a.receive(now, &frame);
            last = now;
        }
        if a.device.has_to_send() || b.device.has_to_send() {
            continue;
        }
        let next = [a.device.poll_timeout(), b.device.poll_timeout()].into_iter().flatten().min();
        let Some(next) = next else { return last };
        now = now.max(next);
        a.device.handle_timeout(now);
        b.device.handle_timeout(now);
    }
}

/// 10 Mb/s, for ever.
const SLOW: Dcqcn = Dcqcn {
    rp_max_rate: Rate::from_mbps(10),
    rp_time_reset: Duration::ZERO,
    rp_byte_reset: 0,
    ..Dcqcn::MLX5
};

/// A message that takes longer than the ACK timer is no reason to send it again.
#[test]
fn a_slow_message_takes_its_time_and_nothing_is_sent_twice() {
    let (mut a, qa, mut b, qb) = controlled_pair(ServiceType::Rc);
    for (end, qpn) in [(&mut a, qa), (&mut b, qb)] {
        end.device.set_congestion_control(qpn, CongestionControl::Dcqcn(SLOW)).unwrap();
    }
    let len = 512 << 10;
    let fill: Vec<u8> = (0..len).map(|byte| (byte % 251) as u8).collect();
    a.fill(0, &fill);
    let start = at(1);
    write(&mut a, qa, len as u32, b.key);
    let end = run(&mut a, &mut b, start);
    assert_eq!(b.bytes(0, len), fill);
    let read = SendOperation::Read(remote(0, b.key));
    let sge = a.sge(len as u64, len as u32);
    a.post(qa, 2, read, sge);
    let read_end = run(&mut a, &mut b, end);
    assert_eq!(a.bytes(len, len), fill, "answers wait too");
    for (what, took) in [("write", end.since(start)), ("read", read_end.since(end))] {
        let ratio = took.as_secs_f64() * 10e6 / 8.0 / len as f64;
        assert!((0.95..1.10).contains(&ratio), "{what}: {ratio}");
    }
    let ends = [&a, &b].map(|end| {
        let sent_twice = ["retrans_pkts", "local_ack_timeout_err", "duplicate_request"];
        sent_twice.map(|name| count(end, name))
    });
    assert_eq!(ends, [[0; 3]; 2]);
    let done: Vec<_> = a.completions().iter().map(|it| it.status).collect();
    assert_eq!(done, [CompletionStatus::Success; 2]);
}

/// One that is slowed down holds back nobody, nor its own acknowledgements.
#[test]
fn who_waits_holds_nobody_back() {
    let (mut a, qa, mut b, qb) = controlled_pair(ServiceType::Rc);
    let (other, there) = (a.create(ServiceType::Rc, None), b.create(ServiceType::Rc, None));
    let (to_a, to_b) = (a.address, b.address);
    a.connect(other, there, to_b, Mtu::B1024);
    b.connect(there, other, to_a, Mtu::B1024);
    a.device.set_congestion_control(qa, CongestionControl::Dcqcn(SLOW)).unwrap();
    write(&mut a, qa, 512 << 10, b.key);
    write(&mut a, other, 64 << 10, b.key);
    let mut sent = std::collections::BTreeMap::new();
    while let Some(frame) = a.frame(at(1)) {
        *sent.entry(what(&frame).3).or_insert(0) += 1;
    }
    assert!(sent[&qb] <= 17, "a burst, {}", sent[&qb]);
    assert_eq!(sent[&there], 64);
    assert!(!a.device.has_to_send());
    write(&mut b, qb, 1024, a.key);
    let frame = b.frame(at(2)).unwrap();
    a.receive(at(2), &frame);
    assert_eq!(what(&a.frame(at(2)).unwrap()).0, "RC_ACKNOWLEDGE");
    assert_eq!(a.frame(at(2)), None);
}

/// Its own requests do not take all of what it may send from what its peer READs.
#[test]
fn who_is_slowed_down_answers_its_peer_beside_requests_without_end() {
    let (mut a, qa, mut b, qb) = controlled_pair(ServiceType::Rc);
    a.device.set_congestion_control(qa, CongestionControl::Dcqcn(SLOW)).unwrap();
    b.device.set_congestion_control(qb, CongestionControl::None).unwrap();
    write(&mut a, qa, 512 << 10, b.key);
    let sge = b.sge(0, 512 << 10);
    b.post(qb, 1, SendOperation::Read(remote(0, a.key)), sge);
    let (mut now, mut sent) = (at(1), [0, 0]);
    while sent[0] + sent[1] < 400 {
        while let Some(frame) = b.frame(now) {
            a.receive(now, &frame);
        }
        while let Some(frame) = a.frame(now) {
            let name = what(&frame).0;
            sent[0] += u32::from(name.contains("READ_RESPONSE"));
            sent[1] += u32::from(name.contains("WRITE"));
            b.receive(now, &frame);
        }
        let next = [a.device.poll_timeout(), b.device.poll_timeout()].into_iter().flatten().min();
        now = now.max(next.unwrap());
        a.device.handle_timeout(now);
        b.device.handle_timeout(now);
    }
    let [answers, requests] = sent;
    assert!(answers >= 3 * requests && requests >= 48, "{answers} answers, {requests} requests");
    assert_eq!(count(&b, "local_ack_timeout_err"), 0);
}

/// The interval is one connection's: the next one begins without.
#[test]
fn a_reset_forgets_when_the_peer_was_told_last() {
    let (mut a, qa, mut b, qb) = controlled_pair(ServiceType::Rc);
    let point = NotificationPoint {
        np_min_time_between_cnps: Duration::from_millis(4),
        ..NotificationPoint::DEFAULT
    };
    let congestion = Congestion { notification_point: Some(point), ..*b.device.congestion() };
    b.device.set_congestion(congestion);
    for now in [at(1), at(2)] {
        write(&mut a, qa, 1024, b.key);
        let frame = a.frame(now).unwrap();
        b.receive(now, &marked(&frame));
        assert_eq!(what(&b.frame(now).unwrap()).0, "CNP", "{now}");
        let (to_a, to_b) = (a.address, b.address);
        for (end, own, other, address) in [(&mut a, qa, qb, to_b), (&mut b, qb, qa, to_a)] {
            let values = pair::attributes(own, other, Mtu::B1024);
            let given = AttributeMask::NONE;
            end.device.modify_queue_pair(own, QpState::Reset, given, &values, None).unwrap();
            end.connect(own, other, address, Mtu::B1024);
        }
    }
}

/// Who looks at round trips asks no switch for marks: nobody would listen to what comes of them.
#[test]
fn datagrams_say_that_they_may_be_marked_with_dcqcn_alone() {
    for (control, ecn) in [
        (CongestionControl::Dcqcn(Dcqcn::MLX5), Ecn::Ect0),
        (CongestionControl::Timely(Timely::PAPER), Ecn::NotEct),
        (CongestionControl::None, Ecn::NotEct),
    ] {
        let (mut a, qa, b, qb) = pair(ServiceType::Ud, Mtu::B1024);
        a.device.set_congestion(controlled(control));
        let path = a.device.create_address_handle(a.pd, &End::vector(b.address)).unwrap();
        send_datagram(&mut a, qa, path, qb, Q_KEY, b"hello");
        assert_eq!(what(&a.frame(at(1)).unwrap()).2, ecn, "{control:?}");
    }
}

/// A mark that cannot be told of begins no interval.
#[test]
fn a_datagram_without_a_way_back_silences_no_other() {
    for scope in [CnpScope::QueuePair, CnpScope::Address, CnpScope::Port] {
        let (mut a, qa, mut b, qb) = controlled_pair(ServiceType::Ud);
        let point = NotificationPoint { scope, ..NotificationPoint::DEFAULT };
        let congestion = Congestion { notification_point: Some(point), ..*b.device.congestion() };
        b.device.set_congestion(congestion);
        let path = a.device.create_address_handle(a.pd, &End::vector(b.address)).unwrap();
        send_datagram(&mut a, qa, path, qb, Q_KEY, b"hello");
        let frame = marked(&a.frame(at(1)).unwrap());
        b.receive(at(1), &frame);
        assert_eq!(b.frame(at(1)), None);
        b.device.create_address_handle(b.pd, &End::vector(a.address)).unwrap();
        b.receive(at(1), &frame);
        assert_eq!(what(&b.frame(at(1)).unwrap()).0, "CNP", "{scope:?}");
        b.receive(at(1), &frame);
        assert_eq!(b.frame(at(1)), None, "{scope:?}: one an interval");
    }
}

/// Without a rate, or with a parameter that no name could set, a queue pair might wait for ever.
#[test]
fn what_cannot_control_anything_is_told() {
    assert_eq!(controlled(CongestionControl::Timely(Timely::PAPER)).check(), Ok(()));
    assert_eq!(Congestion::default().check(), Ok(()), "nothing is controlled");
    let none = Congestion { line_rate: Rate::ZERO, ..controlled(CongestionControl::Dcqcn(SLOW)) };
    let told = none.check().unwrap_err().to_string();
    assert_eq!(told, "line_rate=0: what is controlled needs one");
    let timely = Timely { min_rate: Rate::ZERO, ..Timely::PAPER };
    let told = controlled(CongestionControl::Timely(timely)).check().unwrap_err().to_string();
    assert_eq!(told, "min_rate=0M: 0.1 to 10000000 Mb/s are possible");
}

/// A queue pair that goes takes with it what was to be sent on its path.
#[test]
fn a_path_that_is_another_one_meanwhile_gets_no_notification() {
    let (mut a, qa, mut b, qb) = controlled_pair(ServiceType::Rc);
    write(&mut a, qa, 1024, b.key);
    let frame = a.frame(at(1)).unwrap();
    b.receive(at(1), &marked(&frame));
    b.device.destroy_queue_pair(qb).unwrap();
    let (other, to_a) = (b.create(ServiceType::Rc, None), a.address);
    b.connect(other, qa, to_a, Mtu::B1024);
    assert_eq!(b.frame(at(1)), None);
    assert_eq!(count(&b, "np_cnp_sent"), 0);
}
