//! The connection manager of an adapter: joins [`Agent`] to queue pair 1, to the clock, and to the
//! identifiers of the application.
//!
//! A thread of its own sleeps until a datagram comes, a deadline of the agent is over, or a
//! neighbour is to be asked again where it is; calls of the application move the agent themselves.
//! The order of locks is: this state, then the engine's.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use roxe_cm::{
    Agent, Config, ConnectionId, ListenerId, PortSpace, QuestionId, ResolutionId, Standing,
    Transmit,
};
use roxe_device::address_handle::AddressVector;
use roxe_device::protection_domain::Pd;
use roxe_device::{CqId, Limits};
use roxe_wire::{Addressing, Gid, Instant, Qpn};
use rustix::io::Errno;

use crate::cm::CmOptions;
use crate::cm::event::{CmEvent, CmEventKind, CmIdKey};
use crate::cm::gsi::{Gsi, Way};
use crate::cm::host_ports::HostPorts;
use crate::cm::obstacle::{Obstacle, Witness};
use crate::cm::ports::Ports;
use crate::context::seed;
use crate::engine::Engine;
use crate::error::Error;
use crate::events::Mailbox;
use crate::resolver::{Link, Resolver};

/// What the manager's thread hears.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    /// Datagrams may have come.
    Datagrams,
    /// A packet came to a queue pair that is not ready to send.
    Established(Qpn),
    /// Something is to be done earlier than it wanted to be awake.
    Wake,
    /// The adapter is gone.
    Gone,
    /// It is to end.
    Close,
}

/// Whom the engine tells what concerns connections.
pub(crate) struct Audience {
    pub(crate) cq: CqId,
    pub(crate) notices: Arc<Mailbox<Notice>>,
}

/// The connection manager of an adapter.
pub(crate) struct Manager {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// What calls and the thread share.
pub(crate) struct Shared {
    engine: Arc<Engine>,
    resolver: Arc<Resolver>,
    notices: Arc<Mailbox<Notice>>,
    state: Mutex<State>,
}

/// All that is known.
pub(crate) struct State {
    pub(crate) agent: Agent,
    pub(super) ids: BTreeMap<CmIdKey, Record>,
    pub(super) ports: Ports,
    pub(super) whose: Whose,
    /// Addresses that are being resolved.
    pub(super) resolving: Vec<Resolving>,
    gsi: Gsi,
    /// Datagrams whose way is not known yet.
    outbox: VecDeque<Waiting>,
    /// Until when the thread sleeps.
    alarm: Option<Instant>,
    /// Who hears what stands between identifiers and their peers.
    pub(crate) witness: Option<Witness>,
    /// Who hears which connections stand.
    heir: Option<Heir>,
}

/// Who is told that a connection stands, with what is known of it, or does not any more.
type Heir = Box<dyn FnMut(ConnectionId, Option<Standing>) + Send>;

/// Whose is what the agent knows.
#[derive(Default)]
pub(super) struct Whose {
    pub(super) connections: BTreeMap<ConnectionId, CmIdKey>,
    pub(super) listeners: BTreeMap<ListenerId, CmIdKey>,
    pub(super) resolutions: BTreeMap<ResolutionId, CmIdKey>,
    /// Queue pairs that were accepted with and wait for the first packet.
    pub(super) accepted: BTreeMap<Qpn, CmIdKey>,
}

/// An identifier.
pub(super) struct Record {
    pub(super) channel: Arc<Mailbox<CmEvent>>,
    pub(super) space: PortSpace,
    pub(super) role: Role,
    pub(super) local: Option<SocketAddr>,
    /// The port that it has to give back.
    pub(super) bound_to: Option<SocketAddr>,
    pub(super) remote: Option<SocketAddr>,
    /// The listener of a request that the application has not taken.
    pub(super) untaken_of: Option<CmIdKey>,
    /// The queue pair that it was accepted with.
    pub(super) qpn: Option<Qpn>,
    pub(super) options: CmOptions,
}

/// What an identifier is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Nothing yet.
    Idle,
    /// It takes requests.
    Listener(ListenerId),
    /// A connection, in whatever state.
    Connection(ConnectionId),
    /// It looks for a datagram service.
    Resolution(ResolutionId),
    /// It is to answer a question for a datagram service.
    Question(QuestionId),
    /// It has answered it.
    Answered,
}

/// An address that is being resolved.
pub(super) struct Resolving {
    pub(super) id: CmIdKey,
    pub(super) vector: AddressVector,
    pub(super) until: Instant,
}

/// A datagram whose way is not known yet.
struct Waiting {
    transmit: Transmit,
    until: Instant,
}

impl Manager {
    /// Makes queue pair 1 and begins to listen to it.
    pub(crate) fn open(
        engine: &Arc<Engine>,
        resolver: &Arc<Resolver>,
        pd: Pd,
        limits: &Limits,
        shares_addresses: bool,
    ) -> Result<Self, Error> {
        let notices = Arc::new(Mailbox::new()?);
        let gsi = engine.with(|driver| {
            let gsi = Gsi::open(driver, pd)?;
            let audience = Audience { cq: gsi.cq(), notices: Arc::clone(&notices) };
            driver.router.set_audience(audience);
            Ok::<_, Error>(gsi)
        })?;
        // An adapter that is opened anew has nothing of what its predecessor had, and so must not
        // be taken for it.
        let config = Config {
            max_responder_resources: limits.max_qp_rd_atom,
            max_initiator_depth: limits.max_qp_init_rd_atom,
            shares_addresses,
            ..Config::linux(seed(), limits.port_mtu)
        };
        let addresses = engine.with(|driver| {
            let gids = driver.device.gids().iter();
            gids.map(|(_, own)| own.gid.to_ip()).collect()
        });
        let host = shares_addresses.then(|| HostPorts::open(addresses)).transpose()?;
        let state = State {
            agent: Agent::new(config, seed()),
            ids: BTreeMap::new(),
            ports: Ports::new(seed(), host),
            whose: Whose::default(),
            resolving: Vec::new(),
            gsi,
            outbox: VecDeque::new(),
            alarm: None,
            witness: None,
            heir: None,
        };
        let shared = Arc::new(Shared {
            engine: Arc::clone(engine),
            resolver: Arc::clone(resolver),
            notices,
            state: Mutex::new(state),
        });
        let of_thread = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("roxe-cm".to_owned())
            .stack_size(STACK)
            .spawn(move || of_thread.run())?;
        Ok(Self { shared, thread: Some(thread) })
    }

    pub(crate) const fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        self.shared.notices.put(Notice::Close);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    /// Runs a call of the application, and sees to what follows from it.
    pub(super) fn with<R>(&self, call: impl FnOnce(&mut State, Instant) -> R) -> R {
        let mut state = self.lock();
        let result = call(&mut state, self.now());
        self.follow(&mut state);
        let due = state.due(self.now());
        if due.is_some_and(|due| state.alarm.is_none_or(|alarm| due < alarm)) {
            self.notices.put(Notice::Wake);
        }
        result
    }

    /// Answers at once what has come.
    pub(crate) fn catch_up(&self) {
        self.turn();
        // The thread may have to be awake earlier.
        self.notices.put(Notice::Wake);
    }

    /// From now on this one hears of obstacles.
    pub(crate) fn set_witness(&self, witness: impl Fn(SocketAddr, Obstacle) + Send + 'static) {
        self.lock().witness = Some(Box::new(witness));
    }

    /// From now on this one hears which connections stand.
    pub(super) fn set_heir(
        &self,
        heir: impl FnMut(ConnectionId, Option<Standing>) + Send + 'static,
    ) {
        let mut state = self.lock();
        state.agent.watch_standing();
        state.heir = Some(Box::new(heir));
    }

    /// Parts from the peers of connections that were another's.
    pub(super) fn part_for(&self, connections: &[Standing]) {
        self.with(|state, now| connections.iter().for_each(|it| state.agent.part_for(now, it)));
    }

    /// Looks without moving anything.
    pub(crate) fn look<R>(&self, look: impl FnOnce(&State) -> R) -> R {
        look(&self.lock())
    }

    /// For how many services requests are taken.
    pub(crate) fn listeners(&self) -> u32 {
        self.look(|state| state.whose.listeners.len() as u32)
    }

    pub(super) fn now(&self) -> Instant {
        self.engine.with(|driver| driver.now())
    }

    pub(super) fn resolver(&self) -> &Resolver {
        &self.resolver
    }

    /// How packets of a vector leave, if that is known or can be found without waiting.
    fn link_now(&self, vector: &AddressVector) -> Result<Option<Link>, Error> {
        let (addressing, is_own) = self.addressing(vector)?;
        self.resolver.link_now(&addressing, is_own)
    }

    fn addressing(&self, vector: &AddressVector) -> Result<(Addressing, bool), Error> {
        self.engine.with(|driver| {
            let gids = driver.device.gids();
            let addressing = vector.resolve(gids, 0).map_err(roxe_device::VerbError::from)?;
            let destination = Gid::from_ip(addressing.destination);
            let is_own = gids.iter().any(|(_, entry)| entry.gid == destination);
            Ok((addressing, is_own))
        })
    }

    /// The thread.
    fn run(&self) {
        loop {
            let wait = self.turn();
            match self.notices.take(wait, || false) {
                Some(Notice::Close) => return,
                Some(Notice::Established(qpn)) => self.established(qpn),
                Some(Notice::Gone) => self.lock().tell_all(&CmEventKind::DeviceRemoval),
                Some(Notice::Datagrams | Notice::Wake) | None => {}
            }
        }
    }

    /// Does what is due; says how long there is nothing to do.
    fn turn(&self) -> Duration {
        let mut state = self.lock();
        let state = &mut *state;
        let datagrams = self.engine.with(|driver| state.gsi.receive(driver));
        let now = self.now();
        for datagram in &datagrams {
            let bytes = &datagram.bytes[..datagram.len.min(datagram.bytes.len())];
            state.agent.handle_mad(now, datagram.from, bytes);
        }
        state.agent.handle_timeout(now);
        self.resolve(state, now);
        self.follow(state);
        let now = self.now();
        state.alarm = state.due(now);
        state.alarm.map_or(Duration::MAX, |due| due - now)
    }

    /// A packet came before the RTU: the connection stands.
    fn established(&self, qpn: Qpn) {
        let mut state = self.lock();
        if let Some(key) = state.whose.accepted.remove(&qpn)
            && let Some(Role::Connection(connection)) = state.ids.get(&key).map(|it| it.role)
        {
            // One that is gone meanwhile needs it no more.
            let _ = state.agent.notify_established(connection);
            self.follow(&mut state);
        }
    }

    /// Sends what the agent wants sent, and tells what it wants told.
    fn follow(&self, state: &mut State) {
        let now = self.now();
        while let Some(event) = state.agent.poll_event() {
            state.tell(now, event, |local, remote| {
                let source = self.gid_index(local)?;
                Some(AddressVector::new(source, Gid::from_ip(remote)))
            });
        }
        let State { agent, heir, .. } = &mut *state;
        if let Some(heir) = heir {
            while let Some((id, connection)) = agent.poll_standing() {
                heir(id, connection);
            }
        }
        let mut waiting = std::mem::take(&mut state.outbox);
        let until = now + PATIENCE;
        while let Some(transmit) = state.agent.poll_transmit() {
            waiting.push_back(Waiting { transmit, until });
        }
        if waiting.is_empty() {
            return;
        }
        // Each way is asked for once.
        let mut unknown = Vec::new();
        waiting.retain(|it| {
            let Transmit { path, traffic_class, mad } = it.transmit;
            let way = Way { path, traffic_class };
            if !state.gsi.knows(way) && !unknown.contains(&way) && !self.learn(state, way) {
                unknown.push(way);
            }
            if !state.gsi.knows(way) {
                return it.until > now;
            }
            self.engine.with(|driver| state.gsi.send(driver, way, &mad));
            false
        });
        let too_many = waiting.len().saturating_sub(MOST_WAITING);
        waiting.drain(..too_many);
        state.outbox = waiting;
        self.engine.with(|driver| driver.send_posted());
    }

    /// Whether datagrams can go this way now.
    fn learn(&self, state: &mut State, way: Way) -> bool {
        let Some(vector) = self.engine.with(|driver| Gsi::vector(driver, way)) else {
            return false;
        };
        let Ok(Some(link)) = self.link_now(&vector) else { return false };
        self.engine.with(|driver| state.gsi.learn(driver, way, &vector, link)).is_ok()
    }

    /// Looks after the addresses that are being resolved.
    fn resolve(&self, state: &mut State, now: Instant) {
        let mut resolving = std::mem::take(&mut state.resolving);
        resolving.retain(|it| {
            let found = self.addressing(&it.vector);
            let found = found.and_then(|(to, is_own)| self.resolver.reaches_now(&to, is_own));
            let kind = match found {
                Ok(Some(())) => CmEventKind::AddressResolved,
                Ok(None) if now < it.until => return true,
                Ok(None) => {
                    state.meet(Some(it.id), Obstacle::NoNeighbor);
                    CmEventKind::AddressError { errno: Errno::TIMEDOUT.raw_os_error() }
                }
                Err(error) => {
                    if let Error::NoRoute(_) = error {
                        let is_routed = self.resolver.is_routed();
                        let no_route =
                            if is_routed { Obstacle::NoRoute } else { Obstacle::OutOfReach };
                        state.meet(Some(it.id), no_route);
                    }
                    CmEventKind::AddressError { errno: error.errno() }
                }
            };
            state.put(it.id, kind);
            false
        });
        state.resolving = resolving;
    }

    /// The index of one of our addresses.
    pub(super) fn gid_index(&self, address: IpAddr) -> Option<u32> {
        self.engine.with(|driver| {
            let mut gids = driver.device.gids().iter();
            gids.find(|(_, own)| own.gid == Gid::from_ip(address)).map(|(index, _)| index)
        })
    }

    /// The VLAN of one of our addresses.
    pub(super) fn vlan_of(&self, address: IpAddr) -> Option<u16> {
        self.engine.with(|driver| {
            let mut gids = driver.device.gids().iter();
            gids.find(|(_, own)| own.gid == Gid::from_ip(address)).and_then(|(_, own)| own.vlan)
        })
    }

    /// All our addresses.
    pub(super) fn addresses(&self) -> Vec<IpAddr> {
        self.engine
            .with(|driver| driver.device.gids().iter().map(|(_, own)| own.gid.to_ip()).collect())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic ended the application's call, not the manager.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// When something is to be done next.
    fn due(&self, now: Instant) -> Option<Instant> {
        let asks = !self.outbox.is_empty() || !self.resolving.is_empty();
        let again = asks.then(|| now + ASK_AGAIN);
        [self.agent.poll_timeout(), again].into_iter().flatten().min()
    }

    /// Tells an identifier's owner.
    pub(super) fn put(&self, id: CmIdKey, kind: CmEventKind) {
        if let Some(record) = self.ids.get(&id) {
            record.channel.put(CmEvent { id, kind });
        }
    }

    fn tell_all(&self, kind: &CmEventKind) {
        for (&id, record) in &self.ids {
            if record.untaken_of.is_none() {
                record.channel.put(CmEvent { id, kind: kind.clone() });
            }
        }
    }
}

/// How long a neighbour may take to say where it is.
const PATIENCE: Duration = Duration::from_secs(3);

/// Between two looks whether it has.
const ASK_AGAIN: Duration = Duration::from_millis(10);

/// Datagrams that may wait for that.
const MOST_WAITING: usize = 1024;

/// Bytes of the thread's stack.
const STACK: usize = 256 * 1024;
