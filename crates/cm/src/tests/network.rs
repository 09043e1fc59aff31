//! Two agents joined by a bad network, in thousands of worlds, each made of a seed.
//!
//! Datagrams are lost, doubled, delayed past each other and corrupted; applications think, accept,
//! refuse and leave when they like. However it goes, both sides end with outcomes that fit each
//! other, and when everybody has gone nothing is left.

use std::collections::BTreeMap;
use std::time::Duration;

use roxe_wire::mad::Mad;
use roxe_wire::{Instant, Qpn};

use super::pair::{Pair, belong_together, bytes, connect, events, sent, turned};
use crate::{
    Accept, Agent, Connect, ConnectionId, Event, GidPair, QpAttributes, RejectReason, State,
};

/// What the applications of a world mean to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plan {
    /// Connect, and part: by the client, by the server, or by both at once.
    Part { client: bool, server: bool },
    /// The server refuses.
    ServerRefuses,
    /// The client refuses what it asked for.
    ClientRefuses,
    /// Nobody listens.
    NobodyListens,
}

const PLANS: [Plan; 6] = [
    Plan::Part { client: true, server: false },
    Plan::Part { client: false, server: true },
    Plan::Part { client: true, server: true },
    Plan::ServerRefuses,
    Plan::ClientRefuses,
    Plan::NobodyListens,
];

/// What the network does, in per cent.
#[derive(Clone, Copy, Debug)]
struct Faults {
    lost: u64,
    doubled: u64,
    /// A bit is turned and nobody notices. The ICRC does; this is what would be if it did not.
    corrupted: u64,
    /// The longest way of a datagram.
    delay: Duration,
}

/// How it went for one side.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Story {
    connected: usize,
    disconnected: usize,
    rejected: Vec<RejectReason>,
    unreachable: usize,
    attributes: Option<Box<QpAttributes>>,
}

#[derive(Debug)]
enum Deed {
    Arrive { to_client: bool, from: GidPair, bytes: Box<[u8; Mad::LEN]> },
    Answer(ConnectionId),
    Ready(ConnectionId),
    Part { by_client: bool, id: ConnectionId },
}

struct World {
    pair: Pair,
    chance: u64,
    plan: Plan,
    faults: Faults,
    /// What will happen: when, and in which order of those at once.
    agenda: BTreeMap<(Instant, u64), Deed>,
    deeds: u64,
    client: Story,
    server: Story,
    longest_thought: Duration,
}

impl World {
    fn new(seed: u64, plan: Plan, faults: Faults, longest_thought: Duration) -> Self {
        let mut pair = Pair::new();
        pair.client = Agent::new(pair.client.config, seed);
        if plan == Plan::NobodyListens {
            pair.server.unlisten(crate::ListenerId(1)).unwrap();
        }
        let (client, server) = (Story::default(), Story::default());
        let (agenda, chance) = (BTreeMap::new(), seed ^ 0xdead_beef_cafe);
        Self { pair, chance, plan, faults, agenda, deeds: 0, client, server, longest_thought }
    }

    /// A number below `end`, by xorshift.
    fn below(&mut self, end: u64) -> u64 {
        self.chance ^= self.chance << 13;
        self.chance ^= self.chance >> 7;
        self.chance ^= self.chance << 17;
        (self.chance >> 16) % end.max(1)
    }

    fn within(&mut self, longest: Duration) -> Duration {
        Duration::from_nanos(self.below(u64::try_from(longest.as_nanos()).unwrap()))
    }

    fn plan_deed(&mut self, wait: Duration, deed: Deed) {
        self.deeds += 1;
        self.agenda.insert((self.pair.now + wait, self.deeds), deed);
    }

    fn think(&mut self, deed: Deed) {
        let wait = self.within(self.longest_thought);
        self.plan_deed(wait, deed);
    }

    /// Gives what the agents send to the network.
    fn transmit(&mut self) {
        for to_client in [false, true] {
            let agent = if to_client { &mut self.pair.server } else { &mut self.pair.client };
            for transmit in sent(agent) {
                let copies = 1 + u64::from(self.below(100) < self.faults.doubled);
                for _ in 0..copies {
                    if self.below(100) < self.faults.lost {
                        continue;
                    }
                    let mut bytes = Box::new(bytes(&transmit.mad));
                    if self.below(100) < self.faults.corrupted {
                        let bit = self.below(256 * 8);
                        bytes[usize::try_from(bit / 8).unwrap()] ^= 1 << (bit % 8);
                    }
                    let wait = self.within(self.faults.delay);
                    let from = turned(transmit.path);
                    self.plan_deed(wait, Deed::Arrive { to_client, from, bytes });
                }
            }
        }
    }

    /// The applications hear, and decide.
    fn react(&mut self) {
        for event in events(&mut self.pair.client) {
            let story = &mut self.client;
            match event {
                Event::Reply { connection, attributes, .. } => {
                    story.attributes = Some(attributes);
                    self.think(Deed::Ready(connection));
                }
                Event::Rejected { reject, .. } => story.rejected.push(reject.reason),
                Event::Refused { reason, .. } => story.rejected.push(reason),
                Event::Unreachable { .. } => story.unreachable += 1,
                Event::Disconnected { .. } => story.disconnected += 1,
                Event::TimeWaitExit { .. } => {}
                other => panic!("the client hears {other:?}"),
            }
        }
        for event in events(&mut self.pair.server) {
            let story = &mut self.server;
            match event {
                Event::Request { connection, .. } => self.think(Deed::Answer(connection)),
                Event::Established { connection } => {
                    story.connected += 1;
                    let attributes = self.pair.server.qp_attributes(connection).unwrap();
                    story.attributes = Some(Box::new(attributes));
                    if matches!(self.plan, Plan::Part { server: true, .. }) {
                        self.think(Deed::Part { by_client: false, id: connection });
                    }
                }
                Event::Rejected { reject, .. } => story.rejected.push(reject.reason),
                Event::Unreachable { .. } => story.unreachable += 1,
                Event::Disconnected { .. } => story.disconnected += 1,
                Event::TimeWaitExit { .. } => {}
                other => panic!("the server hears {other:?}"),
            }
        }
    }

    fn carry_out(&mut self, deed: Deed) {
        let now = self.pair.now;
        let (client, server) = (&mut self.pair.client, &mut self.pair.server);
        // Whoever thought too long finds the connection gone: that is what `Err` says.
        match deed {
            Deed::Arrive { to_client, from, bytes } => {
                let agent = if to_client { client } else { server };
                agent.handle_mad(now, from, &bytes[..]);
            }
            Deed::Answer(id) if self.plan == Plan::ServerRefuses => {
                let _ = server.reject(now, id, RejectReason::ConsumerReject, b"no");
            }
            Deed::Answer(id) => {
                let qpn = Qpn::new(0x1000 + id.0.0 % 0xffff);
                let _ = server.accept(now, id, &Accept::new(qpn));
            }
            Deed::Ready(id) if self.plan == Plan::ClientRefuses => {
                let _ = client.reject(now, id, RejectReason::ConsumerReject, b"no");
            }
            Deed::Ready(id) => {
                if client.ready(id, &[]).is_ok() {
                    self.client.connected += 1;
                    if matches!(self.plan, Plan::Part { client: true, .. }) {
                        self.think(Deed::Part { by_client: true, id });
                    }
                }
            }
            Deed::Part { by_client, id } => {
                let agent = if by_client { client } else { server };
                let _ = agent.disconnect(now, id, &[]);
            }
        }
    }

    /// Until nothing will happen any more.
    fn run(&mut self) {
        for steps in 0.. {
            assert!(steps < 10_000, "it never ends: {:?}", self.plan);
            self.react();
            self.transmit();
            let timeouts = [self.pair.client.poll_timeout(), self.pair.server.poll_timeout()];
            let timeout = timeouts.into_iter().flatten().min();
            let planned = self.agenda.first_key_value().map(|((at, _), _)| *at);
            let Some(next) = [timeout, planned].into_iter().flatten().min() else { return };
            self.pair.now = next.max(self.pair.now);
            if planned == Some(next) {
                let (_, deed) = self.agenda.pop_first().unwrap();
                self.carry_out(deed);
            } else {
                self.pair.client.handle_timeout(next);
                self.pair.server.handle_timeout(next);
            }
        }
    }

    /// Everybody goes; nothing may be left.
    fn end(&mut self) {
        for agent in [&mut self.pair.client, &mut self.pair.server] {
            let connections: Vec<_> = agent.connections.keys().copied().collect();
            for id in connections {
                agent.destroy(self.pair.now, ConnectionId(id)).unwrap();
            }
        }
        self.plan = Plan::ServerRefuses;
        self.run();
        self.pair.is_clean();
        assert!(self.agenda.is_empty());
    }
}

/// A network that is bad, but not so bad that sixteen tries were in vain.
#[test]
fn both_end_with_what_they_meant() {
    let faults = Faults { lost: 15, doubled: 20, corrupted: 0, delay: Duration::from_secs(1) };
    let thought = Duration::from_secs(20);
    let mut repeated = 0;
    for seed in 1..=3_000_u64 {
        let plan = PLANS[usize::try_from(seed).unwrap() % PLANS.len()];
        let mut world = World::new(seed, plan, faults, thought);
        let id = world.pair.request();
        world.run();
        let (client, server) = (&world.client, &world.server);
        let told = format!("seed {seed}, {plan:?}: {client:?}, {server:?}");
        match plan {
            Plan::Part { .. } => {
                assert_eq!((client.connected, client.disconnected), (1, 1), "{told}");
                // A DREQ may come before the RTU: then it never stood on that side.
                assert!(server.connected <= 1 && server.disconnected == 1, "{told}");
                assert!(server.connected == 1 || plan == PLANS[0] || plan == PLANS[2], "{told}");
                let none = (client.unreachable, server.unreachable);
                assert_eq!(none, (0, 0), "{told}");
                assert_eq!(
                    (&client.rejected[..], &server.rejected[..]),
                    (&[][..], &[][..]),
                    "{told}"
                );
                let of_client = client.attributes.as_deref().expect("it was told");
                if let Some(of_server) = server.attributes.as_deref() {
                    belong_together(of_client, of_server);
                }
            }
            Plan::ServerRefuses => {
                // A refusal is said once: who does not hear it asks again, and is refused again.
                assert_eq!(client.rejected, [RejectReason::ConsumerReject], "{told}");
            }
            Plan::ClientRefuses => {
                // Once the client has forgotten, it only says that there is no such connection.
                let reasons = [RejectReason::ConsumerReject, RejectReason::InvalidCommId];
                let heard = &server.rejected[..];
                assert!(heard.iter().all(|reason| reasons.contains(reason)), "{told}");
                assert_eq!((heard.is_empty(), server.unreachable), (false, 0), "{told}");
            }
            Plan::NobodyListens => {
                assert_eq!(client.rejected, [RejectReason::InvalidServiceId], "{told}");
                assert_eq!(*server, Story::default(), "{told}");
            }
        }
        assert_eq!(world.pair.client.state(id), None, "{told}");
        repeated += world.pair.client.counters().retransmissions;
        repeated += world.pair.server.counters().retransmissions;
        world.end();
    }
    assert!(repeated > 3_000, "{repeated} repetitions only: the network was not bad");
}

/// A network that may be dead in either direction from any moment on.
#[test]
fn whoever_is_cut_off_learns_it() {
    for seed in 1..=600_u64 {
        let faults = Faults { lost: 0, doubled: 0, corrupted: 0, delay: Duration::from_millis(1) };
        let thought = Duration::from_millis(1);
        let plan = Plan::Part { client: false, server: false };
        let mut world = World::new(seed, plan, faults, thought);
        world.pair.request();
        // So many datagrams get through.
        let passed = seed % 4;
        for _ in 0..20 {
            let sent = |world: &World| {
                world.pair.client.counters().received + world.pair.server.counters().received
            };
            if sent(&world) >= passed {
                break;
            }
            world.react();
            world.transmit();
            if let Some(((at, _), deed)) = world.agenda.pop_first() {
                world.pair.now = at;
                world.carry_out(deed);
            }
        }
        world.react();
        world.faults.lost = 100;
        world.run();
        let (client, server) = (&world.client, &world.server);
        let told = format!("seed {seed}, {passed} passed: {client:?}, {server:?}");
        match passed {
            // REQ lost, or REP: the client gives up; the server, if it knows of it, too.
            0 => assert_eq!((client.unreachable, server.unreachable), (1, 0), "{told}"),
            1 => assert_eq!((client.unreachable, server.unreachable), (1, 1), "{told}"),
            // RTU lost: for the client it stands, and the server gives up.
            2 => assert_eq!((client.connected, server.unreachable), (1, 1), "{told}"),
            _ => assert_eq!((client.connected, server.connected), (1, 1), "{told}"),
        }
        world.faults.lost = 0;
        world.end();
    }
}

/// A network that turns bits, and lets nobody know. Outcomes may be any; nothing may be left, and
/// nothing may panic.
#[test]
fn corrupted_datagrams_leave_nothing_behind() {
    let delay = Duration::from_secs(9);
    let faults = Faults { lost: 25, doubled: 25, corrupted: 30, delay };
    for seed in 1..=2_000_u64 {
        let plan = PLANS[usize::try_from(seed).unwrap() % PLANS.len()];
        let mut world = World::new(seed, plan, faults, Duration::from_secs(100));
        world.pair.request();
        world.pair.request_as(&Connect { qpn: Qpn::new(0x12), ..connect() });
        world.run();
        let stands =
            |agent: &Agent, id: &ConnectionId| agent.state(*id) == Some(State::Established);
        let ids: Vec<_> =
            world.pair.client.connections.keys().map(|id| ConnectionId(*id)).collect();
        assert!(ids.iter().all(|id| stands(&world.pair.client, id)), "seed {seed}: {ids:?}");
        world.faults = Faults { lost: 0, doubled: 0, corrupted: 0, delay };
        world.end();
    }
}
