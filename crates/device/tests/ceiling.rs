//! A port whose rate is a ceiling: what queue pairs send is held to it, in virtual time.

#[allow(dead_code, reason = "shared with other tests")]
mod pair;

use core::time::Duration;

use pair::{End, Q_KEY, pair, remote, send_datagram};
use roxe_device::Congestion;
use roxe_transport::congestion::{CongestionControl, Dcqcn, Rate, Swift, Timely};
use roxe_transport::qp_state::ServiceType;
use roxe_transport::work::{PathId, SendOperation};
use roxe_wire::{Instant, Mtu, Qpn};

/// A burst of 16 KiB takes 1.3 ms of it.
const LINE: Rate = Rate::from_mbps(100);

const CONTROLS: [CongestionControl; 4] = [
    CongestionControl::Dcqcn(Dcqcn::MLX5),
    CongestionControl::Dcqcn(Dcqcn::PAPER),
    CongestionControl::Timely(Timely::PAPER),
    CongestionControl::Swift(Swift::DEFAULT),
];

/// Ethernet, IPv4 and UDP before a packet: not paced.
const OUTSIDE: usize = 14 + 20 + 8;

/// Of a message.
const LEN: u32 = 64 << 10;

/// What one end sends, as fast as it may.
#[derive(Clone, Copy, Debug)]
enum Load {
    Writes(ServiceType),
    Datagrams,
    /// The peer READs.
    Answers,
    /// It does, and is written to.
    Both,
}

/// Two ends, of which `a` always has something to send to `b`.
struct Pair {
    a: End,
    b: End,
    qa: Qpn,
    qb: Qpn,
    to_b: PathId,
    line: Rate,
    load: Load,
    now: Instant,
}

impl Pair {
    fn new(control: CongestionControl, is_ceiling: bool, load: Load) -> Self {
        Self::at(LINE, control, is_ceiling, load)
    }

    fn at(line: Rate, control: CongestionControl, is_ceiling: bool, load: Load) -> Self {
        let service = match load {
            Load::Writes(service) => service,
            Load::Datagrams => ServiceType::Ud,
            Load::Answers | Load::Both => ServiceType::Rc,
        };
        let (mut a, qa, b, qb) = pair(service, Mtu::B1024);
        a.device.set_congestion(Congestion {
            control,
            line_rate: line,
            is_ceiling,
            ..Congestion::default()
        });
        a.device.set_congestion_control(qa, control).unwrap();
        let to_b = a.device.create_address_handle(a.pd, &End::vector(b.address)).unwrap();
        let mut pair = Self { a, b, qa, qb, to_b, line, load, now: Instant::ZERO };
        for _ in 0..8 {
            match load {
                Load::Writes(_) | Load::Datagrams => pair.send(),
                Load::Answers => pair.read(),
                Load::Both => {
                    pair.send();
                    pair.read();
                }
            }
        }
        pair
    }

    /// Gives `a` something more to send.
    fn send(&mut self) {
        let Self { a, b, qa, qb, to_b, .. } = self;
        match self.load {
            Load::Datagrams => send_datagram(a, *qa, *to_b, *qb, Q_KEY, &[7; 128]),
            _ => {
                let sge = a.sge(0, LEN);
                a.post(*qa, 1, SendOperation::Write(remote(0, b.key)), sge);
            }
        }
    }

    /// The same by a READ of `b`.
    fn read(&mut self) {
        let Self { a, b, qb, .. } = self;
        let sge = b.sge(0, LEN);
        b.post(*qb, 1, SendOperation::Read(remote(0, a.key)), sge);
    }

    /// What is to be sent now goes; what is done, once more. Says how many bytes of data went.
    fn go(&mut self) -> usize {
        let mut sent = 0;
        loop {
            while let Some(frame) = self.a.frame(self.now) {
                // What acknowledges is not data.
                sent += if frame.len() > OUTSIDE + 100 { frame.len() - OUTSIDE } else { 0 };
                self.b.receive(self.now, &frame);
            }
            while let Some(frame) = self.b.frame(self.now) {
                self.a.receive(self.now, &frame);
            }
            let [sends, reads] = [&mut self.a, &mut self.b].map(|end| end.completions().len());
            (0..sends).for_each(|_| self.send());
            (0..reads).for_each(|_| self.read());
            if sends + reads == 0 && !self.a.device.has_to_send() && !self.b.device.has_to_send() {
                return sent;
            }
        }
    }

    /// Goes on for so long, woken each time so much later than it asked for. Says which share of
    /// the line's rate was sent.
    fn share(&mut self, time: Duration, late: Duration) -> f64 {
        let start = self.now;
        let mut sent = 0;
        while self.now.since(start) < time {
            sent += self.go();
            let ends = [&self.a, &self.b].map(|end| end.device.poll_timeout());
            let next = ends.into_iter().flatten().min().expect("something waits");
            self.now = self.now.max(next) + late;
            self.a.device.handle_timeout(self.now);
            self.b.device.handle_timeout(self.now);
        }
        let took = self.now.since(start).as_secs_f64();
        sent as f64 * 8.0 / took / self.line.bits_per_second()
    }
}

const WHILE: Duration = Duration::from_millis(200);

/// From the start, before anything was heard of the network, and whatever is sent.
#[test]
fn a_rate_of_the_port_that_is_a_ceiling_is_kept() {
    let writes = [ServiceType::Rc, ServiceType::Uc].map(Load::Writes);
    for load in [writes[0], writes[1], Load::Datagrams, Load::Answers, Load::Both] {
        for control in CONTROLS {
            let mut pair = Pair::new(control, true, load);
            let burst = pair.go();
            assert!(burst < (16 << 10) + 1100, "{load:?}, {}: {burst}", control.name());
            let share = pair.share(WHILE, Duration::ZERO);
            assert!((0.98..=1.02).contains(&share), "{load:?}, {}: {share}", control.name());
        }
    }
}

/// An adapter of which nobody said how fast its port is sends what it has.
#[test]
fn a_rate_of_the_port_that_is_none_holds_nothing_back() {
    for control in &CONTROLS[..3] {
        for load in [Load::Writes(ServiceType::Rc), Load::Answers] {
            let mut pair = Pair::new(*control, false, load);
            let mut frames = 0;
            for _ in 0..100 {
                frames += usize::from(pair.a.frame(pair.now).is_some());
                while let Some(frame) = pair.b.frame(pair.now) {
                    pair.a.receive(pair.now, &frame);
                }
            }
            assert!(frames >= 98, "{load:?}, {}: {frames}", control.name());
        }
    }
}

/// A queue pair that was told to slow down, and came back.
#[test]
fn who_is_back_at_the_rate_of_the_line_does_not_exceed_it() {
    for control in &CONTROLS[..2] {
        let mut pair = Pair::new(*control, true, Load::Writes(ServiceType::Rc));
        pair.share(WHILE, Duration::ZERO);
        let cnp = {
            let notification_point = Some(roxe_transport::congestion::NotificationPoint::DEFAULT);
            let told = Congestion { notification_point, ..Congestion::default() };
            pair.b.device.set_congestion(told);
            pair.now = pair.a.device.poll_timeout().unwrap();
            pair.a.device.handle_timeout(pair.now);
            let mut frame = pair.a.frame(pair.now).expect("its turn");
            frame[15] |= 0x3;
            let sum = u16::from_be_bytes([frame[24], frame[25]]);
            // The header's sum as it is with one more in the traffic class, of ECT(0) then CE.
            frame[24..26].copy_from_slice(&sum.wrapping_sub(1).to_be_bytes());
            pair.b.receive(pair.now, &frame);
            pair.b.frame(pair.now).expect("a notification")
        };
        pair.a.receive(pair.now, &cnp);
        let controller = |pair: &Pair| pair.a.device.controller(pair.now, pair.qa).unwrap();
        assert!(controller(&pair).rate() < LINE, "{}", control.name());
        let slow = pair.share(Duration::from_micros(50), Duration::ZERO);
        pair.share(WHILE, Duration::ZERO);
        assert_eq!(controller(&pair).rate(), LINE, "{}", control.name());
        let share = pair.share(WHILE, Duration::ZERO);
        assert!((0.98..=1.02).contains(&share), "{}: {slow}, {share}", control.name());
    }
}

/// What a thread misses that is woken late it sends at once, up to a burst.
#[test]
fn who_is_woken_late_makes_up_for_it_within_a_burst() {
    let half = Dcqcn { rp_max_rate: Rate::from_mbps(50), ..Dcqcn::MLX5 };
    for (control, may) in [(CONTROLS[0], 1.0), (CongestionControl::Dcqcn(half), 0.5)] {
        for (micros, least) in [(100, 0.98), (1000, 0.98), (1200, 0.98)] {
            let mut pair = Pair::new(control, true, Load::Writes(ServiceType::Rc));
            pair.go();
            let share = pair.share(5 * WHILE, Duration::from_micros(micros)) / may;
            assert!((least..=1.02).contains(&share), "{micros} us late, {may}: {share}");
        }
        // More than that is lost: the network is not to have it all at once.
        let mut pair = Pair::new(control, true, Load::Writes(ServiceType::Rc));
        pair.go();
        let share = pair.share(5 * WHILE, Duration::from_millis(10)) / may;
        assert!(share < 0.5, "{may}: {share}");
    }
}

/// A thread that sleeps is woken some 60 µs too late: in that time a fast port sends much.
#[test]
fn a_fast_port_is_not_held_below_its_rate_by_who_is_woken_late() {
    let fast = Rate::from_mbps(10_000);
    for control in CONTROLS {
        let mut pair = Pair::at(fast, control, true, Load::Writes(ServiceType::Rc));
        pair.go();
        let share = pair.share(Duration::from_millis(10), Duration::from_micros(100));
        assert!((0.98..=1.02).contains(&share), "{}: {share}", control.name());
    }
}

/// Whether there is one, and how fast it is, may change while queue pairs send.
#[test]
fn a_ceiling_comes_and_goes_while_something_is_sent() {
    for control in CONTROLS {
        let mut pair = Pair::new(control, true, Load::Both);
        pair.share(WHILE, Duration::ZERO);
        let ceiling = *pair.a.device.congestion();
        let faster = Congestion { line_rate: Rate::from_mbps(200), ..ceiling };
        pair.a.device.set_congestion(faster);
        pair.a.device.set_congestion_control(pair.qa, control).unwrap();
        pair.share(WHILE, Duration::ZERO);
        let share = pair.share(WHILE, Duration::ZERO);
        assert!((1.96..=2.04).contains(&share), "{}: {share}", control.name());
        pair.a.device.set_congestion(Congestion { is_ceiling: false, ..ceiling });
        pair.a.device.set_congestion_control(pair.qa, control).unwrap();
        assert!(pair.a.frame(pair.now).is_some(), "{}: nothing waits", control.name());
    }
}
