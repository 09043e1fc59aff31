//! Any bytes are a sequence of operations on two devices joined by a bad network: verbs right and
//! wrong, packets lost, doubled, damaged and made by an enemy, and time. Whatever they are:
//!
//! - nothing panics or overflows;
//! - memory is touched, and sent, only where a key opens it for who asks (`model.rs`);
//! - every request completes once, in order, if it is to complete (`end.rs`);
//! - every packet that comes is let in or counted as dropped (`wire.rs`);
//! - what is in use cannot go, what ended knows why, and what is taken away leaves nothing.

#![no_main]

mod deeds;
mod end;
mod host;
mod input;
mod model;
mod verbs;
mod wire;

use std::collections::VecDeque;
use std::net::IpAddr;

use roxe_device::Limits;
use roxe_device::gid_table::GidEntry;
use roxe_transport::conduct::Conduct;
use roxe_transport::work::AccessFlags;
use roxe_wire::{Addressing, Gid, GidType, Instant, Mtu};

use crate::end::End;
use crate::input::Input;
use crate::wire::Flight;

/// Operations of one run.
const MOST: usize = 400;

/// Packets that may be on their way to one device.
const ON_THE_WAY: usize = 64;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let mut input = Input::new(bytes);
    let mut world = World::new(&mut input);
    for _ in 0..MOST {
        if input.is_empty() {
            break;
        }
        world.step(&mut input);
    }
    world.close();
});

/// Two devices and what is between them.
struct World {
    ends: [End; 2],
    /// To each of the two.
    wires: [VecDeque<Flight>; 2],
    now: Instant,
    elide: bool,
}

const ADDRESSES: [[u8; 4]; 2] = [[192, 0, 2, 1], [192, 0, 2, 2]];

impl World {
    /// Each device has an address, a domain, a completion queue, a region and, if the first byte
    /// says so, a connection to the other.
    fn new(input: &mut Input<'_>) -> Self {
        let (shape, depth) = (input.byte(), u32::from(input.byte()));
        let mut limits = Limits::DEFAULT;
        limits.port_mtu = Mtu::ALL[usize::from(shape >> 5) % 5];
        (limits.max_qp, limits.max_qp_wr, limits.max_sge) = (6, 32, 4);
        (limits.max_cq, limits.max_cqe, limits.max_srq, limits.max_srq_wr) = (5, 64, 2, 16);
        (limits.max_pd, limits.max_mr, limits.max_mw, limits.max_ah) = (3, 6, 4, 3);
        (limits.max_mcast_grp, limits.max_mcast_qp_attach, limits.gid_table_len) = (2, 2, 4);
        limits.max_fast_register_len = 1 << 12;
        let ends = [1, 2].map(|seed| End::new(limits, seed));
        let mut world = Self {
            ends,
            wires: [VecDeque::new(), VecDeque::new()],
            now: Instant::ZERO,
            elide: shape & 7 == 7,
        };
        for at in [0, 1] {
            let end = &mut world.ends[at];
            end.device.set_conduct(conduct(input.byte()));
            let gid = Gid::from_ip(ADDRESSES[at].into());
            let added = end.device.add_gid(GidEntry { gid, gid_type: GidType::RoceV2, vlan: None });
            added.expect("there is room");
            end.alloc_pd();
            end.create_cq(depth % 61 + 4);
            let access = AccessFlags::from_bits(0x31f).expect("all rights");
            end.register(end.domains[0].pd, 4096, 0x1000, 4096, access);
        }
        if shape & 0x18 != 0x18 {
            world.pair(shape >> 3 & 3, input);
        }
        world
    }

    fn step(&mut self, input: &mut Input<'_>) {
        let what = input.byte();
        let at = usize::from(what & 1);
        match what >> 1 {
            verb @ 0..=46 => self.verb(verb, at, input),
            47..=58 => self.message(at, input),
            59..=62 => self.open(at, input),
            63 => self.vanish(at, input),
            64..=71 => self.send(at, input.below(20) + 1, input),
            72..=81 => self.arrive(at, input),
            82..=87 => self.trouble(at, input),
            88..=97 => self.run(input),
            98..=105 => self.wait(input),
            106..=121 => {
                let flight = wire::hostile(&self.ends[at], input, self.address(at));
                wire::deliver(&mut self.ends[at], self.now, &flight, usize::from(input.byte()));
            }
            _ => {
                let flight = wire::raw(input, self.address(at));
                wire::deliver(&mut self.ends[at], self.now, &flight, usize::from(input.byte()));
            }
        }
        for end in &mut self.ends {
            end.hear();
        }
        let end = &self.ends[at];
        if let Some(qp) = end.qps.get(usize::from(what >> 1) % end.qps.len().max(1)) {
            end.check_story(qp.qpn);
        }
    }

    fn address(&self, at: usize) -> Addressing {
        let [own, other] = [at, 1 - at].map(|at| Gid::from_ip(ADDRESSES[at].into()));
        wire::to(own, other)
    }

    /// A device sends so many packets, if it has them.
    fn send(&mut self, at: usize, most: usize, input: &mut Input<'_>) {
        let split = if input.rarely(4) { 64 + usize::from(input.byte()) } else { usize::MAX };
        for _ in 0..most {
            let flight = wire::transmit(&mut self.ends[at], self.now, self.elide, split);
            let Some(flight) = flight else { break };
            let to = flight.addressing.destination;
            let own = |end: &End| end.device.gids().iter().any(|(_, e)| e.gid == Gid::from_ip(to));
            let back = own(&self.ends[at]) && !own(&self.ends[1 - at]);
            let wire = &mut self.wires[if back { at } else { 1 - at }];
            if wire.len() < ON_THE_WAY {
                wire.push_back(flight);
            }
        }
    }

    /// The packet that is on its way for longest arrives, whole or in two pieces.
    fn arrive(&mut self, at: usize, input: &mut Input<'_>) {
        let split = if input.rarely(4) { usize::from(input.byte()) } else { usize::MAX };
        let Some(flight) = self.wires[at].pop_front() else { return };
        wire::deliver(&mut self.ends[at], self.now, &flight, split);
    }

    /// What networks do.
    fn trouble(&mut self, at: usize, input: &mut Input<'_>) {
        let wire = &mut self.wires[at];
        if wire.is_empty() {
            return;
        }
        let (kind, which) = (input.below(5), input.below(wire.len()));
        match kind {
            0 => drop(wire.remove(which)),
            1 if wire.len() < ON_THE_WAY => wire.push_back(wire[which].clone()),
            2 => wire.swap(0, which),
            3 => {
                let flight = &mut wire[which];
                let at = usize::from(input.u16()) % flight.bytes.len();
                // Not the byte that the ICRC takes for ones, and once: a second change could undo
                // the first.
                if flight.elided.is_none() && at != 4 && !flight.damaged {
                    flight.bytes[at] ^= 1 << input.below(8);
                    flight.damaged = true;
                }
            }
            _ => wire.clear(),
        }
    }

    /// All goes well for a while.
    fn run(&mut self, input: &mut Input<'_>) {
        let lose = input.byte();
        for turn in 0..24u8 {
            for at in [0, 1] {
                self.send(at, 16, &mut Input::new(&[]));
                if lose & 0x80 != 0 && lose & 0x1f == turn {
                    self.wires[1 - at].pop_back();
                }
            }
            if self.wires.iter().all(VecDeque::is_empty) {
                return;
            }
            for at in [0, 1] {
                while !self.wires[at].is_empty() {
                    self.arrive(at, &mut Input::new(&[]));
                }
                self.ends[at].hear();
            }
        }
    }

    fn wait(&mut self, input: &mut Input<'_>) {
        let kind = input.byte();
        let nanos = match kind >> 5 {
            0..=3 => {
                let due = self.ends.iter().filter_map(|end| end.device.poll_timeout()).min();
                due.map_or(0, |due| due.since(self.now).as_nanos() as u64)
            }
            4 => 0,
            5 => 1_000 << (kind & 0xf),
            6 => 1 << ((kind & 0x1f) + 20),
            _ if kind & 0x1f == 0 => u64::MAX,
            _ => 1,
        };
        self.now = self.now + std::time::Duration::from_nanos(nanos);
        for end in &mut self.ends {
            end.device.handle_timeout(self.now);
            assert!(end.check_accesses(&[]).is_empty());
            assert!(end.device.poll_timeout().is_none_or(|due| due > self.now));
        }
    }

    fn close(self) {
        let values = verbs::values(Default::default(), Default::default());
        for end in self.ends {
            end.close(&values);
        }
    }
}

/// How queue pairs behave where they have a choice.
fn conduct(choice: u8) -> Conduct {
    let mut conduct = match choice & 3 {
        0 => Conduct::DEFAULT,
        1 => Conduct::ADAPTER,
        2 => Conduct::CONNECT_X,
        _ => Conduct::RXE,
    };
    if choice & 0x80 != 0 {
        conduct.grants_credits = choice & 4 != 0;
        conduct.obeys_credits = choice & 8 != 0;
        conduct.resumes_reads = choice & 16 != 0;
        conduct.misses_by_timer = choice & 32 != 0;
        conduct.nak_after_rnr = choice & 64 != 0;
        conduct.ask_after = Some((choice & 7).into());
    }
    conduct
}

/// Addresses that devices may have besides their first.
fn second_address(choice: u8) -> (IpAddr, Option<u16>) {
    match choice % 4 {
        0 => ([192, 0, 2, 3].into(), None),
        1 => ([192, 0, 2, 1].into(), Some(7)),
        2 => ([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1].into(), None),
        _ => ([0x2001, 0xdb8, 0, 0, 0, 0, 0, 2].into(), Some(9)),
    }
}
