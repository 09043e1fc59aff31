use roxe_wire::{Bth, Ecn, IpPair, MacAddress, Mtu, Path};

use super::*;
use crate::memory::{self, MemoryPort};

fn path() -> FrameTemplate {
    FrameTemplate::new(&Path {
        ethernet: (MacAddress([2; 6]), MacAddress([4; 6])),
        vlan: None,
        ip: IpPair::V4 { source: [192, 0, 2, 1].into(), destination: [192, 0, 2, 2].into() },
        traffic_class: TrafficClass(0x02),
        hop_limit: 64,
        flow_label: 0,
        source_port: 0xc000,
    })
}

fn at(micros: u64) -> Instant {
    Instant::from_nanos(micros * 1000)
}

/// A packet to queue pair 17 with this PSN.
fn packet(psn: u32) -> [u8; 40] {
    let mut bytes = [psn as u8; 40];
    let bth = Bth { dest_qp: Qpn::new(17), psn: Psn::new(psn), ..Bth::default() };
    bytes[..Bth::LEN].copy_from_slice(&bth.emit());
    bytes
}

fn send<P: FramePort>(port: &mut P, now: Instant, psns: impl IntoIterator<Item = u32>) -> Sent {
    let (path, mut psns) = (path(), psns.into_iter());
    port.transmit(now, &mut |room| {
        room.first[..40].copy_from_slice(&packet(psns.next()?));
        Some(Outgoing { path: &path, len: 40, seal: Seal::Compute })
    })
}

/// What is known of a packet that arrived: PSN, length, whether its ICRC is right, its mark.
type Seen = (u32, usize, bool, bool);

fn receive<P: FramePort>(port: &mut P, now: Instant) -> Vec<Seen> {
    let mut seen = Vec::new();
    let count = port.receive(now, &mut |packet| {
        let psn = packet.body.bth().map_or(u32::MAX, |bth| bth.psn.get());
        let right = packet.check_icrc() == Some(Ok(()));
        let marked = packet.addressing.traffic_class.ecn() == Ecn::Ce;
        if let Some(header) = packet.ip_header {
            assert_eq!(header.traffic_class(), packet.addressing.traffic_class);
        }
        assert_eq!(packet.addressing.hop_limit, 64);
        seen.push((psn, packet.body.len(), right, marked));
    });
    assert_eq!(count, seen.len());
    seen
}

/// A packet to which nothing happened.
fn whole(psn: u32) -> Seen {
    (psn, 40, true, false)
}

/// How a wait ends that nobody ends: the calls of earlier arrivals do not count.
fn sleep<P: FramePort>(port: &mut P) -> Wake {
    loop {
        let wake = port.wait(Duration::MAX);
        if wake != Wake::Called {
            return wake;
        }
    }
}

/// A bad network around the sender, or around the receiver.
fn worlds(line: &str) -> [(FaultPort<MemoryPort>, FaultPort<MemoryPort>, &'static str); 2] {
    let world = |sent: &str, received: &str| {
        let [a, b] = memory::pair(Mtu::B256).expect("a pair");
        let faults = |line| Faults::parse(line, 1).expect("rules");
        let a = FaultPort::new(a, faults(sent), faults(""));
        (a, FaultPort::new(b, faults(""), faults(received)))
    };
    let (a, b) = world(line, "");
    let (c, d) = world("", line);
    [(a, b, "fault_tx"), (c, d, "fault_rx")]
}

/// The counter of this name of whichever port has the rules.
fn count(a: &FaultPort<MemoryPort>, b: &FaultPort<MemoryPort>, name: &str) -> u64 {
    let port = if name.starts_with("fault_tx") { a } else { b };
    port.counters().iter().find(|(it, _)| *it == name).map_or(0, |(_, count)| *count)
}

#[test]
fn without_rules_nothing_happens() {
    for (mut a, mut b, _) in worlds("") {
        assert_eq!(send(&mut a, at(0), 0..3), Sent { packets: 3, more: false });
        assert_eq!(receive(&mut b, at(0)), [whole(0), whole(1), whole(2)]);
        assert_eq!(a.wait(Duration::ZERO), Wake::TimedOut);
        assert!(a.counters().iter().all(|(name, n)| !name.starts_with("fault_") || *n == 0));
        assert_eq!(b.capabilities().summary, "memory: port 1, path MTU 256");
    }
}

#[test]
fn what_is_dropped_does_not_arrive() {
    for (mut a, mut b, name) in worlds("drop psn 1..2") {
        assert_eq!(send(&mut a, at(0), 0..4), Sent { packets: 4, more: false });
        assert_eq!(receive(&mut b, at(0)), [whole(0), whole(3)]);
        assert_eq!(count(&a, &b, &format!("{name}_dropped")), 2);
        // With nothing but lost packets there, the next ones are looked at.
        send(&mut a, at(0), std::iter::repeat_n(1, BATCH));
        send(&mut a, at(0), [7]);
        assert_eq!(receive(&mut b, at(0)), [whole(7)]);
    }
}

#[test]
fn a_batch_of_lost_packets_ends() {
    let [(mut a, ..), _] = worlds("drop");
    assert_eq!(send(&mut a, at(0), 0..), Sent { packets: BATCH, more: true });
    let [_, (mut a, mut b, _)] = worlds("drop psn 1");
    for _ in 0..IN_VAIN {
        send(&mut a, at(0), std::iter::repeat_n(1, BATCH));
    }
    send(&mut a, at(0), [7]);
    assert_eq!(receive(&mut b, at(0)), [], "there may be no end to them");
    assert_eq!(receive(&mut b, at(0)), [whole(7)]);
}

#[test]
fn copies_arrive_behind_their_original() {
    for (mut a, mut b, name) in worlds("dup psn 1; dup psn 1") {
        assert_eq!(send(&mut a, at(0), 0..3), Sent { packets: 3, more: false });
        assert_eq!(receive(&mut b, at(0)), [whole(0), whole(1), whole(1), whole(1), whole(2)]);
        assert_eq!(count(&a, &b, &format!("{name}_duplicated")), 2);
    }
}

#[test]
fn what_is_delayed_comes_when_its_time_has_come() {
    for (mut a, mut b, name) in worlds("delay 500us psn 0; delay 200us psn 1; dup psn 1") {
        send(&mut a, at(0), 0..3);
        assert_eq!(receive(&mut b, at(0)), [whole(2)]);
        assert_eq!(count(&a, &b, &format!("{name}_delayed")), 2);
        for now in [199, 499] {
            send(&mut a, at(now), []);
            assert_eq!(receive(&mut b, at(now)), []);
            send(&mut a, at(now + 1), []);
            let arrived = receive(&mut b, at(now + 1));
            assert_eq!(arrived, if now == 199 { vec![whole(1); 2] } else { vec![whole(0)] });
        }
    }
}

#[test]
fn a_wait_ends_when_a_packet_is_due() {
    let [(mut a, b, _), (mut c, mut d, _)] = worlds("delay 1ms");
    drop(b);
    send(&mut a, at(0), [1]);
    assert_eq!(a.wait(Duration::MAX), Wake::TimedOut);
    // Told that it is due, but not asked for it.
    assert_eq!(receive(&mut a, at(1000)), []);
    assert_eq!(a.wait(Duration::MAX), Wake::TimedOut);

    send(&mut c, at(0), [1]);
    assert_eq!(receive(&mut d, at(0)), []);
    assert_eq!(sleep(&mut d), Wake::TimedOut);
    send(&mut d, at(1000), []);
    assert_eq!(d.wait(Duration::MAX), Wake::Arrived);
    assert_eq!(receive(&mut d, at(1000)), [whole(1)]);
    let waker = d.waker();
    waker.wake();
    assert_eq!(d.wait(Duration::MAX), Wake::Called);
}

#[test]
fn so_many_packets_overtake() {
    for (mut a, mut b, name) in worlds("reorder by 2 psn 1") {
        send(&mut a, at(0), 0..3);
        assert_eq!(receive(&mut b, at(0)), [whole(0), whole(2)]);
        send(&mut a, at(5), 3..5);
        assert_eq!(receive(&mut b, at(5)), [whole(3), whole(1), whole(4)]);
        assert_eq!(count(&a, &b, &format!("{name}_reordered")), 1);
    }
}

#[test]
fn nobody_waits_for_ever_to_be_overtaken() {
    for (mut a, mut b, _) in worlds("reorder by 2 psn 1") {
        send(&mut a, at(0), [1]);
        assert_eq!(receive(&mut b, at(0)), []);
        let port = if a.tx.waiting.next().is_some() { &mut a } else { &mut b };
        assert_eq!(sleep(port), Wake::TimedOut);
        send(&mut a, at(1000), [2]);
        assert_eq!(receive(&mut b, at(1000)), [whole(1), whole(2)]);
    }
}

#[test]
fn what_is_damaged_shows_in_its_icrc() {
    for (mut a, mut b, name) in worlds("corrupt packets 2; truncate packets 4") {
        send(&mut a, at(0), [5; 5]);
        let arrived = receive(&mut b, at(0));
        let right: Vec<bool> = arrived.iter().map(|(_, _, right, _)| *right).collect();
        assert_eq!(right, [true, false, true, false, true]);
        let lens: Vec<bool> = arrived.iter().map(|(_, len, ..)| *len == 40).collect();
        assert_eq!(lens, [true, true, true, false, true]);
        assert_eq!(count(&a, &b, &format!("{name}_corrupted")), 1);
        assert_eq!(count(&a, &b, &format!("{name}_truncated")), 1);
    }
}

#[test]
fn a_mark_changes_nothing_else() {
    for (mut a, mut b, name) in worlds("mark psn 1") {
        send(&mut a, at(0), 0..3);
        assert_eq!(receive(&mut b, at(0)), [whole(0), (1, 40, true, true), whole(2)]);
        assert_eq!(count(&a, &b, &format!("{name}_marked")), 1);
    }
}

#[test]
fn not_everything_is_held_back() {
    for (mut a, mut b, name) in worlds("delay 1s") {
        for _ in 0..=MOST_HELD / BATCH {
            send(&mut a, at(0), std::iter::repeat_n(1, BATCH));
            assert_eq!(receive(&mut b, at(0)), []);
        }
        assert_eq!(count(&a, &b, &format!("{name}_overflow")), BATCH as u64);
    }
}

#[test]
fn the_same_seed_is_the_same_network() {
    let fate = |seed| {
        let [a, mut b] = memory::pair(Mtu::B256).expect("a pair");
        let rules = "drop 20%; dup 10%; delay 10% 1us..9us; reorder 10%; corrupt 10%; mark 10%";
        let mut a = FaultPort::parse(a, rules, seed).expect("rules");
        let mut seen = Vec::new();
        for now in 0..200 {
            send(&mut a, at(now), [now as u32]);
            seen.extend(receive(&mut b, at(now)));
        }
        assert!(a.capabilities().summary.contains(", faults of what is received: drop 20.0000%; "));
        seen
    };
    assert_eq!(fate(1), fate(1));
    assert_ne!(fate(1), fate(2));
    let [a, _] = memory::pair(Mtu::B256).expect("a pair");
    assert_eq!(FaultPort::parse(a, "lose 1%", 1).expect_err("no rule").column, 1);
}

/// Frames that are no packets pass, and what is changed is not shown as the frame that arrived.
#[test]
fn frames_are_shown_if_they_are_what_arrived() {
    let [(mut a, ..), (mut c, mut d, _)] = worlds("mark psn 1; corrupt psn 2; delay 1us psn 3");
    send(&mut c, at(0), 0..4);
    let mut frames = Vec::new();
    d.receive_all(at(0), &mut |arrival| frames.push(arrival.frame.is_some()));
    d.receive_all(at(1), &mut |arrival| frames.push(arrival.frame.is_some()));
    assert_eq!(frames, [true, false, false, false]);
    assert_eq!(a.receive_all(at(0), &mut |_| ()), 0);
}

/// A port that takes two packets at a time, and then none until it is asked again.
struct Narrow(MemoryPort, bool);

impl FramePort for Narrow {
    fn capabilities(&self) -> &Capabilities {
        self.0.capabilities()
    }

    fn receive(&mut self, now: Instant, sink: &mut dyn FnMut(Received<'_>)) -> usize {
        self.0.receive(now, sink)
    }

    fn receive_all(&mut self, now: Instant, sink: &mut dyn FnMut(Arrival<'_>)) -> usize {
        self.0.receive_all(now, sink)
    }

    fn transmit<'p>(
        &mut self,
        now: Instant,
        source: &mut dyn FnMut(Room<'_>) -> Option<Outgoing<'p>>,
    ) -> Sent {
        self.1 = !self.1;
        if !self.1 {
            return Sent { packets: 0, more: true };
        }
        let mut left = 2;
        let sent = self.0.transmit(now, &mut |room| {
            left -= 1;
            if left < 0 { None } else { source(room) }
        });
        Sent { more: sent.more || left < 0, ..sent }
    }

    fn wait(&mut self, _timeout: Duration) -> Wake {
        Wake::Gone // Told apart from what the port around it says.
    }

    fn settle(&mut self, timeout: Duration) -> Result<Duration, Wake> {
        self.0.settle(timeout)
    }

    fn due(&self) -> Option<Duration> {
        self.0.due()
    }

    fn sleeper(&self) -> io::Result<Sleeper> {
        self.0.sleeper()
    }

    fn waker(&self) -> Waker {
        self.0.waker()
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.0.counters()
    }
}

#[test]
fn a_full_port_gets_it_later_and_in_order() {
    let [a, mut b] = memory::pair(Mtu::B256).expect("a pair");
    let mut a = FaultPort::parse(Narrow(a, false), "dup psn 0; mark psn 1; mark psn 4", 1).unwrap();
    let mut psns = 0..6;
    let mut arrived = Vec::new();
    for _ in 0..20 {
        let path = path();
        a.transmit(at(0), &mut |room| {
            room.first[..40].copy_from_slice(&packet(psns.next()?));
            Some(Outgoing { path: &path, len: 40, seal: Seal::Compute })
        });
        if a.full {
            assert_eq!(a.wait(Duration::MAX), Wake::Gone, "the inner port knows when it has room");
        }
        arrived.extend(receive(&mut b, at(0)).into_iter().map(|(psn, ..)| psn));
    }
    assert_eq!(arrived, [0, 0, 1, 2, 3, 4, 5]);
}
