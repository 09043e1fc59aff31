//! Whole networks.

use std::time::Duration;

use roxe_device::Congestion;
use roxe_transport::congestion::{Burst, CongestionControl, Dcqcn, NotificationPoint, Rate};
use roxe_wire::Mtu;

use super::switch::Marking;
use super::topology::Like;
use super::*;

const LIKE: Like = Like { mbps: 40_000, delay: Duration::from_micros(1) };
const MILLISECOND: u64 = 1_000_000_000;

fn settings(topology: Topology, flows: Vec<Flow>, control: CongestionControl) -> Settings {
    let congestion = Congestion {
        control,
        line_rate: Rate::from_mbps(40_000),
        is_ceiling: false,
        burst: Burst(0),
        notification_point: Some(NotificationPoint::PAPER),
    };
    Settings {
        topology,
        switch: SwitchSettings {
            buffer: 4_000_000,
            headroom: 40_000,
            lossless: 1 << 3,
            alpha: 1.0,
            xon_offset: 4_000,
            marking: Some(Marking { kmin: 5_000, kmax: 200_000, pmax: 0.01 }),
        },
        host: HostSettings { path_mtu: Mtu::B1024, congestion, window: 1 << 16, dscp: 26 },
        flows,
        sample_ps: MILLISECOND / 50,
        seed: 1,
    }
}

fn fabric(topology: Topology, flows: Vec<Flow>, control: CongestionControl) -> Fabric {
    Fabric::new(settings(topology, flows, control)).unwrap()
}

fn gbps(fabric: &Fabric, flow: usize) -> f64 {
    fabric.progress[flow].delivered as f64 * 8000.0 / fabric.now_ps() as f64
}

#[test]
fn one_message_alone_takes_the_time_of_its_bytes_and_cables() {
    for bytes in [1, 1024, 1_000_000] {
        let flow = Flow { bytes: Some(bytes), ..Flow::endless(0, 2) };
        let mut fabric = fabric(Topology::dumbbell(2, &LIKE), vec![flow], CongestionControl::None);
        fabric.run(10 * MILLISECOND);
        let took = fabric.progress[0].finished_ps.unwrap();
        let least = fabric.alone_ps(&flow, bytes, 1024);
        // RETH, the pad of one byte, and whole nanoseconds.
        assert!(took.abs_diff(least) < 30_000, "{bytes} B: {took} ps, not {least} ps");
        assert_eq!((fabric.progress[0].delivered, fabric.totals().dropped), (bytes, 0));
    }
}

/// Each step of a ring begins when the piece before has arrived, and not when it is acknowledged.
#[test]
fn a_ring_takes_as_many_steps_as_pieces_are_handed_on() {
    for (bytes, rounds) in [(400_000, 1), (400, 5)] {
        let flows = flow::all_reduce(4, 1, bytes, rounds, false, &mut Rng::new(1));
        let piece = bytes / 4;
        let mut fabric = fabric(Topology::star(4, &LIKE), flows.clone(), CongestionControl::None);
        let step = fabric.arrival_ps(&flows[0], piece, 1024);
        let answer = fabric.alone_ps(&flows[0], piece, 1024) - step;
        fabric.run(10 * MILLISECOND);
        let least = step * 6 * rounds + answer;
        for progress in &fabric.progress {
            assert_eq!((progress.delivered, progress.failed), (piece * 6 * rounds, false));
            let took = progress.finished_ps.unwrap();
            // In each step RETH, immediate data, and answers that take turns with data.
            let more = 50_000 * 6 * rounds;
            assert!((least..least + more).contains(&took), "{took} ps, not {least} ps");
        }
    }
}

#[test]
fn two_flows_without_control_fill_the_link_and_lose_nothing() {
    let flows = vec![Flow::endless(0, 2), Flow::endless(1, 3)];
    let mut fabric = fabric(Topology::dumbbell(2, &LIKE), flows, CongestionControl::None);
    fabric.run(5 * MILLISECOND);
    let (one, other) = (gbps(&fabric, 0), gbps(&fabric, 1));
    // 1024 of 1106 bytes are payload: 37.03 Gb/s.
    assert!((36.0..=37.1).contains(&(one + other)), "{one} + {other}");
    assert!((one - other).abs() < 1.0, "{one}, {other}");
    let totals = fabric.totals();
    assert_eq!((totals.dropped, totals.marked, totals.notifications), (0, 0, 0));
    // Behind the link there is room for each: only the senders are stopped.
    assert!(fabric.heard.hosts > 0 && fabric.heard.edge == 0, "{:?}", fabric.heard);
    assert!(totals.paused_ps > MILLISECOND);
}

#[test]
fn marks_become_notifications_and_rates_and_nobody_is_stopped_for_long() {
    let flows = vec![Flow::endless(0, 2), Flow::endless(1, 3)];
    let control = CongestionControl::Dcqcn(Dcqcn::PAPER);
    let mut fabric = fabric(Topology::dumbbell(2, &LIKE), flows, control);
    fabric.run(5 * MILLISECOND);
    let before = fabric.heard;
    fabric.forget_longest();
    fabric.run(10 * MILLISECOND);
    let totals = fabric.totals();
    assert!(totals.marked > 0 && totals.notifications > 0, "{totals:?}");
    assert_eq!((totals.dropped, fabric.heard), (0, before));
    assert!(fabric.longest < 400_000, "{}", fabric.longest);
}

#[test]
fn the_same_settings_make_the_same_moments() {
    let run = |seed| {
        let flows = flow::permutation(16, &mut Rng::new(9));
        let control = CongestionControl::Dcqcn(Dcqcn::MLX5);
        let settings = settings(Topology::fat_tree(4, &LIKE), flows, control);
        let mut fabric = Fabric::new(Settings { seed, ..settings }).unwrap();
        fabric.run(MILLISECOND);
        let totals = fabric.totals();
        (fabric.count, fabric.samples, totals)
    };
    let first = run(1);
    assert_eq!(first, run(1));
    assert_ne!(first.1, run(2).1);
}

/// Each host of a circle sends three switches on, all the same way around.
#[test]
fn switches_that_wait_for_each_other_in_a_circle_are_found() {
    let flows: Vec<Flow> = (0..7).map(|host| Flow::endless(host, (host + 3) % 7)).collect();
    let mut stuck = fabric(Topology::ring(7, &LIKE), flows.clone(), CongestionControl::None);
    stuck.run(20 * MILLISECOND);
    let mut nodes: Vec<usize> = stuck.deadlock.unwrap().iter().map(|(node, _)| *node).collect();
    nodes.sort_unstable();
    assert_eq!(nodes, Vec::from_iter(7..14));
    // Who is told in time stops nobody.
    let control = CongestionControl::Dcqcn(Dcqcn::PAPER);
    let mut free = fabric(Topology::ring(7, &LIKE), flows, control);
    free.run(20 * MILLISECOND);
    assert_eq!(free.deadlock, None);
}

#[test]
fn flows_to_nowhere_are_refused() {
    for (from, to) in [(0, 0), (0, 9), (9, 0)] {
        let topology = Topology::star(3, &LIKE);
        let settings = settings(topology, vec![Flow::endless(from, to)], CongestionControl::None);
        assert!(Fabric::new(settings).is_err());
    }
}
