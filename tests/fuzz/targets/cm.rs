//! Two connection managers, whose datagrams are lost, doubled, reordered, changed and made up, and
//! whose applications do what the input says. Nothing panics; and when both applications have gone
//! and nothing comes any more, nothing is left.

#![no_main]

use roxe_cm::{
    Accept, Agent, Answer, Config, Connect, ConnectionId, Event, GidPair, Listen, PortSpace,
    RejectReason, Resolve, Service, SidrStatus,
};
use roxe_wire::mad::cm::CmTimeout;
use roxe_wire::mad::{Mad, MadHeader};
use roxe_wire::{Gid, Instant, Mtu, Qpn};

const LIMIT: usize = 6;

/// An agent, its application's names for what there is, and what is on the way to it.
struct Side {
    agent: Agent,
    /// From here to the other side.
    path: GidPair,
    known: Vec<ConnectionId>,
    arriving: Vec<[u8; Mad::LEN]>,
}

impl Side {
    fn new(local: u8, remote: u8) -> Self {
        let mut config = Config::linux(local.into(), Mtu::B1024);
        config.max_connections = LIMIT;
        config.service_timeout = CmTimeout::from_bits(local);
        let mut agent = Agent::new(config, local.into());
        agent.listen(Listen::port(PortSpace::Tcp, 7, 3)).unwrap();
        agent.listen(Listen::port(PortSpace::Udp, 7, 1)).unwrap();
        let gid = |last| Gid([0xfd, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
        let path = GidPair { local: gid(local), remote: gid(remote), vlan: None };
        Self { agent, path, known: Vec::new(), arriving: Vec::new() }
    }

    fn connect(&mut self, now: Instant, qpn: u8) {
        let service = Service::Ip { space: PortSpace::Tcp, source_port: qpn.into(), port: 7 };
        let connect = Connect::new(self.path, service, Qpn::new(qpn.into()));
        self.known.extend(self.agent.connect(now, &connect));
    }

    /// The application hears something and does something about it, or nothing.
    fn react(&mut self, now: Instant, act: u8) {
        let Some(event) = self.agent.poll_event() else { return };
        // Whether a call has a meaning is the agent's to say.
        let _ = match event {
            Event::Request { connection, .. } => {
                self.known.push(connection);
                let accept = Accept::new(Qpn::new(act.into()));
                match act % 4 {
                    0 => Ok(()),
                    1 => self.agent.reject(now, connection, RejectReason::NoQp, b"no"),
                    _ => self.agent.accept(now, connection, &accept).map(drop),
                }
            }
            Event::Reply { connection, .. } => match act % 4 {
                0 => Ok(()),
                1 => self.agent.reject(now, connection, RejectReason::ConsumerReject, &[]),
                _ => self.agent.ready(connection, b"go"),
            },
            Event::Question { question, .. } => {
                let refuse = Answer::Refuse(SidrStatus::NoQp);
                self.agent.answer(now, question, refuse, &[])
            }
            _ => Ok(()),
        };
    }
}

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let mut input = input.iter().copied();
    let mut sides = [Side::new(2, 3), Side::new(3, 2)];
    let mut now = Instant::from_nanos(1);
    while let Some(deed) = input.next() {
        let which = usize::from(deed & 1);
        let mut next = || input.next().unwrap_or_default();
        let side = &mut sides[which];
        let pick = |len: usize, by: u8| usize::from(by).checked_rem(len);
        match deed >> 1 & 0xf {
            0 => side.connect(now, next()),
            1..=3 => {
                // In any order; sometimes again; sometimes changed.
                let how = next();
                let Some(at) = pick(side.arriving.len(), how >> 2) else { continue };
                let mut bytes = side.arriving[at];
                if how & 1 == 0 {
                    side.arriving.swap_remove(at);
                }
                if how & 2 != 0 {
                    bytes[usize::from(next())] ^= next();
                }
                side.agent.handle_mad(now, side.path, &bytes);
            }
            4 => {
                let lost = next();
                if let Some(at) = pick(side.arriving.len(), lost) {
                    side.arriving.swap_remove(at);
                }
            }
            5 => made_up(side, now, &mut next),
            6..=8 => side.react(now, next()),
            9 | 10 => {
                let deadline = sides.iter().filter_map(|side| side.agent.poll_timeout()).min();
                now = deadline.unwrap_or(now).max(now);
                sides.iter_mut().for_each(|side| side.agent.handle_timeout(now));
            }
            11 => drop(side.agent.resolve(now, &Resolve::port(side.path, 1, next().into()))),
            deed => {
                let Some(at) = pick(side.known.len(), next()) else { continue };
                let id = side.known[at];
                let _ = match deed {
                    12 => side.agent.destroy(now, id),
                    13 => side.agent.disconnect(now, id, b"bye"),
                    14 => side.agent.notify_established(id),
                    _ => side.agent.ready(id, &[]),
                };
            }
        }
        carry(&mut sides);
        for side in &sides {
            assert!(side.agent.len() <= LIMIT);
            assert!(side.agent.poll_timeout().is_none_or(|deadline| deadline >= now));
        }
    }
    end(&mut sides, now);
});

/// What is sent arrives some time, or never.
fn carry(sides: &mut [Side; 2]) {
    for from in [0, 1] {
        while let Some(transmit) = sides[from].agent.poll_transmit() {
            let mut bytes = [0; Mad::LEN];
            transmit.mad.emit(&mut bytes);
            sides[1 - from].arriving.push(bytes);
        }
    }
}

/// A datagram that nobody sent, with a header that is right.
fn made_up(side: &mut Side, now: Instant, next: &mut impl FnMut() -> u8) {
    let mut bytes = side.arriving.last().copied().unwrap_or([0; Mad::LEN]);
    bytes[..MadHeader::LEN].fill(0);
    bytes[..4].copy_from_slice(&[1, MadHeader::CLASS_CM, 2, MadHeader::METHOD_SEND]);
    bytes[17] = 0x10 + next() % 11;
    for _ in 0..next() % 8 {
        bytes[24 + usize::from(next()) % 232] = next();
    }
    side.agent.handle_mad(now, side.path, &bytes);
}

/// The applications go away, and the network is dead.
fn end(sides: &mut [Side; 2], mut now: Instant) {
    for side in sides.iter_mut() {
        while !side.agent.is_empty() {
            while let Some(event) = side.agent.poll_event() {
                if let Event::Question { question, .. } = event {
                    let refuse = Answer::Refuse(SidrStatus::Rejected);
                    // Whoever asked may ask for something else by now.
                    let _ = side.agent.answer(now, question, refuse, &[]);
                } else if let Event::Request { connection, .. } = event {
                    side.known.push(connection);
                }
            }
            for id in side.known.drain(..) {
                let _ = side.agent.destroy(now, id);
            }
            while side.agent.poll_transmit().is_some() {}
            match side.agent.poll_timeout() {
                Some(deadline) => now = deadline.max(now),
                None => assert!(side.agent.is_empty(), "{:?}", side.agent),
            }
            side.agent.handle_timeout(now);
        }
        assert_eq!(side.agent.poll_timeout(), None);
    }
}
