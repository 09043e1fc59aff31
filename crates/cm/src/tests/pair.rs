//! A client and a server, joined by a network that does what a test says.

use std::net::{IpAddr, Ipv4Addr};

use roxe_wire::mad::Mad;
use roxe_wire::mad::cm::PortSpace;
use roxe_wire::{Instant, Mtu, Psn, Qpn};

use crate::{
    Accept, Agent, Config, Connect, ConnectionId, Event, GidPair, Listen, QpAttributes, Service,
    State, Transmit,
};

pub(super) const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 10, 0, 3));
pub(super) const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 10, 0, 2));
pub(super) const PORT: u16 = 7471;
pub(super) const CLIENT_QPN: Qpn = Qpn::new(0x11);
pub(super) const SERVER_QPN: Qpn = Qpn::new(0x22);
pub(super) const SERVICE: Service =
    Service::Ip { space: PortSpace::Tcp, source_port: 40000, port: PORT };

pub(super) fn connect() -> Connect<'static> {
    Connect::new(GidPair::new(CLIENT, SERVER), SERVICE, CLIENT_QPN)
}

pub(super) fn client_config() -> Config {
    Config { max_connections: 8, ..Config::linux(0xc, Mtu::B1024) }
}

pub(super) fn server_config() -> Config {
    Config { max_connections: 8, ..Config::linux(0x5, Mtu::B1024) }
}

/// The same path as the other side sees it.
pub(super) fn turned(path: GidPair) -> GidPair {
    GidPair { local: path.remote, remote: path.local, ..path }
}

pub(super) fn bytes(mad: &Mad) -> [u8; Mad::LEN] {
    let mut room = [0; Mad::LEN];
    mad.emit(&mut room);
    room
}

/// But for those that nothing follows from.
pub(super) fn events(agent: &mut Agent) -> Vec<Event> {
    let is_for_people =
        |it: &Event| matches!(it, Event::AskedAgain { .. } | Event::LookedForAgain { .. });
    all_events(agent).into_iter().filter(|event| !is_for_people(event)).collect()
}

pub(super) fn all_events(agent: &mut Agent) -> Vec<Event> {
    std::iter::from_fn(|| agent.poll_event()).collect()
}

pub(super) fn sent(agent: &mut Agent) -> Vec<Transmit> {
    std::iter::from_fn(|| agent.poll_transmit()).collect()
}

pub(super) struct Pair {
    pub(super) now: Instant,
    pub(super) client: Agent,
    pub(super) server: Agent,
    /// What was sent: `>` by the client, `<` by the server; with an `x` before it what was lost.
    pub(super) log: Vec<String>,
}

impl Pair {
    /// The server listens at `PORT` for one request at a time.
    pub(super) fn new() -> Self {
        let mut server = Agent::new(server_config(), 2);
        server.listen(Listen::port(PortSpace::Tcp, PORT, 1)).unwrap();
        let client = Agent::new(client_config(), 1);
        Self { now: Instant::from_nanos(1_000), client, server, log: Vec::new() }
    }

    /// Carries everything, but for what `is_lost` says.
    pub(super) fn carry_but(&mut self, is_lost: impl Fn(&str) -> bool) {
        loop {
            let (from, to, arrow) = match self.client.poll_transmit() {
                Some(transmit) => (transmit, &mut self.server, '>'),
                None => match self.server.poll_transmit() {
                    Some(transmit) => (transmit, &mut self.client, '<'),
                    None => return,
                },
            };
            let what = format!("{arrow}{}", from.mad.message.name());
            if is_lost(&what) {
                self.log.push(format!("x{what}"));
            } else {
                self.log.push(what);
                to.handle_mad(self.now, turned(from.path), &bytes(&from.mad));
            }
        }
    }

    pub(super) fn carry(&mut self) {
        self.carry_but(|_| false);
    }

    /// What was sent since the last look.
    pub(super) fn log(&mut self) -> String {
        std::mem::take(&mut self.log).join(" ")
    }

    /// Lets time pass until a deadline comes; false when there is none.
    pub(super) fn wait(&mut self) -> bool {
        let next = [self.client.poll_timeout(), self.server.poll_timeout()];
        let Some(next) = next.into_iter().flatten().min() else { return false };
        assert!(next > self.now, "a deadline that has passed");
        self.now = next;
        self.client.handle_timeout(next);
        self.server.handle_timeout(next);
        true
    }

    /// Waits and carries, but for what is lost, until nothing is awaited.
    pub(super) fn settle_but(&mut self, is_lost: impl Fn(&str) -> bool) {
        self.carry_but(&is_lost);
        while self.wait() {
            self.carry_but(&is_lost);
        }
    }

    pub(super) fn request(&mut self) -> ConnectionId {
        self.request_as(&connect())
    }

    pub(super) fn request_as(&mut self, connect: &Connect<'_>) -> ConnectionId {
        self.client.connect(self.now, connect).unwrap()
    }

    /// The request that the server's application has got.
    pub(super) fn requested(&mut self) -> ConnectionId {
        match events(&mut self.server).as_slice() {
            [Event::Request { connection, .. }] => *connection,
            other => panic!("no request: {other:?}"),
        }
    }

    pub(super) fn accept(&mut self, id: ConnectionId) -> QpAttributes {
        self.server.accept(self.now, id, &Accept::new(SERVER_QPN)).unwrap()
    }

    /// The reply that the client's application has got.
    pub(super) fn replied(&mut self) -> (ConnectionId, QpAttributes) {
        match events(&mut self.client).as_slice() {
            [Event::Reply { connection, attributes, .. }] => (*connection, **attributes),
            other => panic!("no reply: {other:?}"),
        }
    }

    /// Makes a connection, on a network without fault.
    pub(super) fn establish(&mut self) -> (ConnectionId, ConnectionId) {
        let client = self.request();
        self.carry();
        let server = self.requested();
        self.accept(server);
        self.carry();
        self.replied();
        self.client.ready(client, &[]).unwrap();
        self.carry();
        assert_eq!(events(&mut self.server), [Event::Established { connection: server }]);
        assert_eq!(self.log(), ">REQ <REP >RTU");
        (client, server)
    }

    pub(super) fn states(&self, client: ConnectionId, server: ConnectionId) -> [Option<State>; 2] {
        [self.client.state(client), self.server.state(server)]
    }

    /// Nothing is left of anything.
    pub(super) fn is_clean(&self) {
        for agent in [&self.client, &self.server] {
            assert!(agent.is_empty(), "{agent:?}");
            assert_eq!(agent.poll_timeout(), None);
            assert!(agent.by_remote_id.is_empty() && agent.by_remote_qpn.is_empty(), "{agent:?}");
        }
    }
}

/// Both sides' queue pairs belong together.
pub(super) fn belong_together(a: &QpAttributes, b: &QpAttributes) {
    let start =
        |attributes: &QpAttributes| -> (Psn, Psn) { (attributes.rq_psn, attributes.sq_psn) };
    assert_eq!(start(a), (b.sq_psn, b.rq_psn));
    assert_eq!(a.max_rd_atomic, b.max_dest_rd_atomic.min(a.max_rd_atomic));
    assert!(b.max_rd_atomic <= a.max_dest_rd_atomic);
    assert_eq!((a.path_mtu, a.transport, a.p_key), (b.path_mtu, b.transport, b.p_key));
    assert_eq!((a.flow_label, a.traffic_class), (b.flow_label, b.traffic_class));
    assert_eq!(a.path, turned(b.path));
}
