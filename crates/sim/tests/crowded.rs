//! Recordings of many connections between two hosts: packets name the queue pair of their
//! destination alone, so it has to be found which directions belong together.

use std::net::Ipv4Addr;

use roxe_sim::replay::{Recording, Report, Role};
use roxe_wire::{
    Aeth, Bth, Credits, FrameTemplate, Headers, IpPair, MacAddress, Msn, Opcode, PKey, Packet,
    Path, Payload, Psn, Qpn, RawFrame, Room, Syndrome, TrafficClass,
};

const HOSTS: [Ipv4Addr; 2] = [Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2)];

/// Numbers by chance, the same on every run (Knuth's MMIX generator).
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }

    fn shuffle<T>(&mut self, all: &mut [T]) {
        for end in (1..all.len()).rev() {
            all.swap(end, self.below(end + 1));
        }
    }
}

/// A frame from one host to the other.
fn frame(from: usize, opcode: &str, to: u32, psn: u32, msn: Option<u32>) -> Vec<u8> {
    let template = FrameTemplate::new(&Path {
        ethernet: (MacAddress([2; 6]), MacAddress([4; 6])),
        vlan: None,
        ip: IpPair::V4 { source: HOSTS[from], destination: HOSTS[1 - from] },
        traffic_class: TrafficClass(0),
        hop_limit: 64,
        flow_label: 0,
        source_port: 0xc000,
    });
    let opcode = Opcode::by_name(opcode).expect(opcode);
    let bth = Bth {
        opcode: opcode.code,
        ack_req: msn.is_none(),
        p_key: PKey::DEFAULT,
        dest_qp: Qpn::new(to),
        psn: Psn::new(psn & 0xff_ffff),
        ..Bth::default()
    };
    let syndrome = Syndrome::Ack(Credits::INVALID);
    let aeth = msn.map(|msn| Aeth { syndrome, msn: Msn::new(msn) });
    let headers = Headers { bth, aeth, ..Headers::default() };
    let payload = Payload::bytes(if msn.is_none() { b"what it says" } else { b"" });
    let packet = Packet { opcode, headers, payload };
    let at = template.headers_len();
    let mut bytes = vec![0; at + packet.len()];
    let cover = template.write(packet.len() as u16, 0, &mut bytes).expect("it fits");
    packet.emit(Room::whole(&mut bytes[at..]), &cover).expect("it fits");
    bytes
}

/// So many connections, each with a first PSN of `psns`, and what they do: `rounds` times each asks
/// once, all of them before any is answered, in whatever order.
fn recording(count: usize, rounds: u32, mut psns: impl FnMut(&mut Chance) -> u32) -> Report {
    let mut chance = Chance(count as u64);
    let connections: Vec<(u32, u32, u32)> =
        (0..count as u32).map(|number| (number + 2, number + 500_000, psns(&mut chance))).collect();
    let mut all = connections;
    let mut recording = Recording::default();
    let mut number = 0;
    let mut add = |frame: &[u8]| {
        number += 1;
        recording.add(number, RawFrame::ethernet(frame));
    };
    for round in 0..rounds {
        chance.shuffle(&mut all);
        for &(_, to, psn) in &all {
            add(&frame(0, "RC_SEND_ONLY", to, psn + round, None));
        }
        chance.shuffle(&mut all);
        for &(back, _, psn) in &all {
            add(&frame(1, "RC_ACKNOWLEDGE", back, psn + round, Some(round + 1)));
        }
    }
    recording.replay()
}

fn not_comparable(report: &Report) -> usize {
    report.sides.iter().filter(|side| !side.not_comparable.is_empty()).count()
}

#[test]
fn thousands_of_connections_between_two_hosts_are_told_apart() {
    let report = recording(4_000, 4, |chance| chance.below(1 << 24) as u32);
    assert_eq!(
        report.differences(),
        0,
        "{:?}",
        report.sides.iter().find(|side| !side.differences.is_empty())
    );
    assert_eq!(report.sides.len(), 8_000);
    let compared = report.sides.iter().filter(|side| side.compared == 4).count();
    assert!(compared > 7_800, "{compared} of 8000 compared, {} cannot be", not_comparable(&report));
}

/// Two connections whose PSNs are the same all the time cannot be told apart: that is said, and
/// neither is judged.
#[test]
fn connections_that_look_alike_are_called_so_and_not_judged() {
    for count in [2, 10, 300] {
        let report = recording(count, 20, |_| 7);
        assert_eq!(report.differences(), 0, "{:#?}", report.sides);
        assert_eq!(not_comparable(&report), report.sides.len());
        let said = &report.sides[0].not_comparable[0].why;
        assert!(said.contains("cannot be told"), "{said}");
    }
}

/// One direction alone was captured: what came back is not there, and nothing is wrong with it.
#[test]
fn what_went_one_way_and_came_again_is_no_difference() {
    let psn = 0xff_fff0;
    let of = |requests: &[u32]| {
        let mut recording = Recording::default();
        for (number, at) in (1..).zip(requests) {
            let frame = frame(0, "RC_SEND_ONLY", 9, psn + at, None);
            recording.add(number, RawFrame::ethernet(&frame));
        }
        recording.replay()
    };
    // The same again and again, for want of receives; and each time from a little further on, with
    // far more before than anybody would send again.
    let waits: Vec<u32> = (0..30).flat_map(|_| 0..3).chain(3..9).collect();
    let losses: Vec<u32> =
        (0..3_500).chain((0..40).flat_map(|turn| 2_600 + turn * 20..3_500)).collect();
    for requests in [waits, losses] {
        let report = of(&requests);
        let told: Vec<_> = report.sides.iter().flat_map(|side| &side.differences).collect();
        assert!(told.is_empty(), "{told:#?}");
        let requester = report.sides.iter().find(|side| side.role == Role::Requester).expect("it");
        assert_eq!(requester.compared, requests.len() as u64);
        assert_eq!(requester.extra, 0);
    }
    // Nobody answers, and it gives up.
    let report = of(&[0; 8]);
    assert_eq!(report.differences(), 0);
    assert!(report.sides.iter().all(|side| side.unseen == 0), "{:#?}", report.sides);
}
