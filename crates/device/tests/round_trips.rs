//! Congestion control by round trips and by telemetry, in whole devices: what is measured, and what
//! windows do to who sends.

#[allow(dead_code, reason = "shared with other tests")]
mod pair;

use core::time::Duration;

use pair::{End, pair, remote, settle};
use roxe_device::Congestion;
use roxe_transport::congestion::hpcc::Hop;
use roxe_transport::congestion::{Burst, CongestionControl, Controller, Hpcc, Rate, Swift, Timely};
use roxe_transport::qp_state::ServiceType;
use roxe_transport::work::{CompletionStatus, SendOperation};
use roxe_wire::{Ecn, Frame, Instant, Mtu, Packet, Qpn, RawFrame};

const LINE: Rate = Rate::from_mbps(10_000);

fn at(micros: u64) -> Instant {
    Instant::from_nanos(micros * 1000)
}

/// Two ends, the first of which is controlled.
fn controlled(service: ServiceType, control: CongestionControl) -> (End, Qpn, End, Qpn) {
    let (mut a, qa, b, qb) = pair(service, Mtu::B1024);
    let burst = Burst::DEFAULT;
    a.device.set_congestion(Congestion {
        control,
        line_rate: LINE,
        is_ceiling: false,
        burst,
        notification_point: None,
    });
    a.device.set_congestion_control(qa, control).unwrap();
    (a, qa, b, qb)
}

/// A window of so many packets, never another.
const fn fixed(packets: f64) -> CongestionControl {
    CongestionControl::Swift(Swift { min_cwnd: packets, max_cwnd: packets, ..Swift::DEFAULT })
}

fn write(end: &mut End, qpn: Qpn, len: u32, key: roxe_wire::LKey) {
    let operation = SendOperation::Write(remote(0, key));
    let sge = end.sge(0, len);
    end.post(qpn, 1, operation, sge);
}

/// Whether each asks for an acknowledgement.
fn frames(end: &mut End, now: Instant) -> (Vec<Vec<u8>>, Vec<bool>) {
    let frames: Vec<Vec<u8>> = std::iter::from_fn(|| end.frame(now)).collect();
    let asks = |frame: &Vec<u8>| {
        let frame = Frame::parse(RawFrame::ethernet(frame)).unwrap();
        Packet::parse(frame.body).unwrap().headers.bth.ack_req
    };
    let asks = frames.iter().map(asks).collect();
    (frames, asks)
}

fn deliver(frames: &[Vec<u8>], to: &mut End, now: Instant) {
    frames.iter().for_each(|frame| to.receive(now, frame));
}

fn mbps(end: &End, qpn: Qpn) -> f64 {
    end.device.controller(at(0), qpn).unwrap().rate().bits_per_second() / 1e6
}

fn cwnd(end: &End, qpn: Qpn) -> f64 {
    match end.device.controller(at(0), qpn).unwrap() {
        Controller::Swift(window) => window.cwnd(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_round_trip_is_from_the_packet_that_asks_to_its_acknowledgement() {
    let (mut a, qa, mut b, _) =
        controlled(ServiceType::Rc, CongestionControl::Timely(Timely::PAPER));
    write(&mut a, qa, 1024, b.key);
    let (sent, asks) = frames(&mut a, at(100));
    assert_eq!(asks, [true]);
    let class = Frame::parse(RawFrame::ethernet(&sent[0])).unwrap().received().addressing;
    assert_eq!(class.traffic_class.ecn(), Ecn::NotEct, "nobody listens to marks");
    deliver(&sent, &mut b, at(600));
    let (answer, _) = frames(&mut b, at(1000));
    deliver(&answer, &mut a, at(1100));
    // A thousand microseconds: R x (1 - 0.8 x (1 - 500/1000)).
    assert!((mbps(&a, qa) - 6_000.0).abs() < 1e-6, "{}", mbps(&a, qa));
    // The same answer again says nothing.
    deliver(&answer, &mut a, at(2000));
    assert!((mbps(&a, qa) - 6_000.0).abs() < 1e-6);
}

/// Nobody knows which of both was answered.
#[test]
fn what_is_sent_again_is_not_measured() {
    let (mut a, qa, mut b, _) =
        controlled(ServiceType::Rc, CongestionControl::Timely(Timely::PAPER));
    write(&mut a, qa, 1024, b.key);
    frames(&mut a, at(0));
    let timeout = a.device.poll_timeout().unwrap();
    a.device.handle_timeout(timeout);
    let (again, _) = frames(&mut a, timeout);
    assert_eq!(again.len(), 1);
    deliver(&again, &mut b, timeout + Duration::from_millis(1));
    let late = timeout + Duration::from_millis(2);
    let (answer, _) = frames(&mut b, late);
    deliver(&answer, &mut a, late);
    assert_eq!(a.completions().len(), 1);
    assert_eq!(mbps(&a, qa), 10_000.0);
    // The next one is.
    write(&mut a, qa, 1024, b.key);
    let (next, _) = frames(&mut a, late);
    deliver(&next, &mut b, late);
    let (answer, _) = frames(&mut b, late);
    deliver(&answer, &mut a, late + Duration::from_millis(1));
    assert!((mbps(&a, qa) - 6_000.0).abs() < 1e-6);
}

#[test]
fn a_segment_is_measured_by_its_last_packet_and_not_behind_a_read() {
    let timely = Timely { segment: 4_096, ..Timely::PAPER };
    let (mut a, qa, b, _) = controlled(ServiceType::Rc, CongestionControl::Timely(timely));
    write(&mut a, qa, 10 * 1024, b.key);
    let (_, asks) = frames(&mut a, at(0));
    let expected = [false, false, false, true, false, false, false, true, false, true];
    assert_eq!(asks, expected);
    let (mut a, qa, mut b, _) = controlled(ServiceType::Rc, CongestionControl::Timely(timely));
    let sge = a.sge(0, 1024);
    a.post(qa, 1, SendOperation::Read(remote(0, b.key)), sge);
    write(&mut a, qa, 1024, b.key);
    let (both, _) = frames(&mut a, at(0));
    assert_eq!(both.len(), 2);
    deliver(&both, &mut b, at(1000));
    let (answers, _) = frames(&mut b, at(1000));
    deliver(&answers, &mut a, at(1000));
    assert_eq!((a.completions().len(), mbps(&a, qa)), (2, 10_000.0));
}

#[test]
fn a_window_bounds_what_is_under_way_and_opens_with_acknowledgements() {
    let (mut a, qa, mut b, _) = controlled(ServiceType::Rc, fixed(4.0));
    write(&mut a, qa, 10 * 1024, b.key);
    let (first, asks) = frames(&mut a, at(0));
    assert_eq!(asks, [true; 4]);
    assert!(!a.device.has_to_send());
    deliver(&first[..1], &mut b, at(5));
    let (answer, _) = frames(&mut b, at(5));
    deliver(&answer, &mut a, at(10));
    assert_eq!(frames(&mut a, at(10)).0.len(), 1);
}

/// One that shrank while packets were under way that had not asked.
#[test]
fn a_window_that_shrinks_leaves_nobody_waiting_for_an_acknowledgement_that_nobody_asked_for() {
    let (mut a, qa, mut b, _) = controlled(ServiceType::Rc, fixed(64.0));
    write(&mut a, qa, 20 * 1024, b.key);
    let mut six: Vec<Vec<u8>> = (0..6).map(|_| a.frame(at(0)).unwrap()).collect();
    a.device.set_congestion_control(qa, fixed(1.0)).unwrap();
    let (seventh, asks) = frames(&mut a, at(0));
    assert_eq!(asks, [true], "the fourth asked, the fifth and the sixth had not");
    six.extend(seventh);
    deliver(&six, &mut b, at(5));
    let (answers, _) = frames(&mut b, at(5));
    deliver(&answers, &mut a, at(10));
    let mut now = at(10);
    for _ in 7..20 {
        let (one, asks) = loop {
            let found = frames(&mut a, now);
            if !found.0.is_empty() {
                break found;
            }
            now = a.device.poll_timeout().unwrap().max(now);
            a.device.handle_timeout(now);
        };
        assert_eq!(asks, [true]);
        deliver(&one, &mut b, now);
        let (answers, _) = frames(&mut b, now);
        now = now + Duration::from_micros(10);
        deliver(&answers, &mut a, now);
    }
    let done: Vec<_> = a.completions().iter().map(|it| it.status).collect();
    assert_eq!(done, [CompletionStatus::Success]);
    for name in ["retrans_pkts", "local_ack_timeout_err"] {
        assert_eq!(a.device.counters().by_name(name), Some(0), "{name}");
    }
}

/// A window is of what is sent: answers are not.
#[test]
fn a_window_of_one_packet_holds_no_read_back() {
    let (mut a, qa, b, _) = controlled(ServiceType::Rc, fixed(1.0));
    for id in 0..4 {
        let sge = a.sge(0, 16 * 1024);
        a.post(qa, id, SendOperation::Read(remote(0, b.key)), sge);
    }
    assert_eq!(frames(&mut a, at(0)).0.len(), 4, "all of them at once");
    let (mut a, qa, mut b, _) = controlled(ServiceType::Rc, fixed(1.0));
    let sge = a.sge(0, 16 * 1024);
    a.post(qa, 1, SendOperation::Read(remote(0, b.key)), sge);
    write(&mut a, qa, 1024, b.key);
    settle(&mut a, &mut b, at(1));
    assert_eq!(a.completions().len(), 2);
}

#[test]
fn a_lost_packet_halves_swifts_window_once_and_a_receiver_that_is_not_ready_does_not() {
    let swift = Swift { max_cwnd: 8.0, ..Swift::DEFAULT };
    let (mut a, qa, mut b, _) = controlled(ServiceType::Rc, CongestionControl::Swift(swift));
    write(&mut a, qa, 4 * 1024, b.key);
    let (mut four, _) = frames(&mut a, at(0));
    four.remove(1);
    deliver(&four, &mut b, at(5));
    let (answers, _) = frames(&mut b, at(5));
    deliver(&answers, &mut a, at(10));
    assert!((cwnd(&a, qa) - 4.0).abs() < 0.2, "{}", cwnd(&a, qa));
    settle(&mut a, &mut b, at(10));
    let before = cwnd(&a, qa);
    a.post(qa, 2, SendOperation::Send, a.sge(0, 1024));
    settle(&mut a, &mut b, at(100));
    assert_eq!(a.device.counters().by_name("rnr_nak_retry_err"), Some(1));
    assert_eq!(cwnd(&a, qa), before);
    // No answer at all halves it as well.
    let swift = CongestionControl::Swift(swift);
    let (mut a, qa, b, _) = controlled(ServiceType::Rc, swift);
    write(&mut a, qa, 1024, b.key);
    frames(&mut a, at(0));
    let timeout = a.device.poll_timeout().unwrap();
    a.device.handle_timeout(timeout);
    assert_eq!(cwnd(&a, qa), 4.0);
}

/// Nothing that comes of answers would ever raise its rate again.
#[test]
fn data_that_a_peer_reads_goes_at_the_rate_of_the_line() {
    for control in [CongestionControl::Timely(Timely::PAPER), fixed(0.01)] {
        let (mut a, qa, mut b, qb) = controlled(ServiceType::Rc, control);
        write(&mut a, qa, 1024, b.key);
        let (sent, _) = frames(&mut a, at(0));
        deliver(&sent, &mut b, at(10));
        let (answer, _) = frames(&mut b, at(10));
        deliver(&answer, &mut a, at(400_000));
        assert!(mbps(&a, qa) < 2_100.0, "it was cut, to {}", mbps(&a, qa));
        // Its own requests wait, and hold back no answer.
        write(&mut a, qa, 64 * 1024, b.key);
        frames(&mut a, at(400_000));
        let sge = b.sge(0, 40 * 1024);
        b.post(qb, 1, SendOperation::Read(remote(0, a.key)), sge);
        let (ask, _) = frames(&mut b, at(400_000));
        deliver(&ask, &mut a, at(400_000));
        let (answers, _) = frames(&mut a, at(400_000));
        assert_eq!(answers.len(), 40, "{control:?}");
    }
}

/// Who is not acknowledged is not controlled: at the rate of the line, without a window.
#[test]
fn unreliable_services_go_on_without() {
    let (mut a, qa, b, _) = controlled(ServiceType::Uc, fixed(1.0));
    write(&mut a, qa, 40 * 1024, b.key);
    assert_eq!(frames(&mut a, at(0)).0.len(), 40);
}

#[test]
fn telemetry_moves_the_window_of_hpcc() {
    let hpcc = Hpcc { t: Duration::from_micros(10), ..Hpcc::PAPER };
    let (mut a, qa, mut b, _) = controlled(ServiceType::Rc, CongestionControl::Hpcc(hpcc));
    assert!(mbps(&a, qa) > 9_999.0);
    write(&mut a, qa, 40 * 1024, b.key);
    // 12,500 bytes in flight at the most: 13 packets of 1,040 bytes.
    let (first, _) = frames(&mut a, at(0));
    assert_eq!(first.len(), 13);
    deliver(&first, &mut b, at(5));
    let (answers, _) = frames(&mut b, at(5));
    let full = |micros: u64| Hop {
        at_ps: micros * 1_000_000,
        sent: micros * 1_250,
        waiting: 12_500,
        rate: LINE,
    };
    deliver(&answers[..1], &mut a, at(10));
    a.device.handle_telemetry(at(10), qa, &[full(0)]);
    deliver(&answers[1..], &mut a, at(20));
    a.device.handle_telemetry(at(20), qa, &[full(10)]);
    let halved = mbps(&a, qa);
    assert!((halved - 4_755.0).abs() < 1.0, "{halved}");
    assert_eq!(frames(&mut a, at(1000)).0.len(), 6);
    // Nobody else is moved by it, nor a queue pair that there is not.
    a.device.set_congestion_control(qa, CongestionControl::Timely(Timely::PAPER)).unwrap();
    a.device.handle_telemetry(at(30), qa, &[full(20)]);
    a.device.handle_telemetry(at(30), Qpn::new(0x7f_ffff), &[full(20)]);
    assert_eq!(mbps(&a, qa), 10_000.0);
}
