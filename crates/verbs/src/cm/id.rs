//! Identifiers: one end of a connection, or who listens.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use roxe_cm::{
    Accept, Agent, Answer, CallError, Connect, ConnectionId, GidPair, Listen, PortSpace,
    RejectReason, Resolve, Service, SidrStatus, Timing, TransportServiceType, multicast,
};
use roxe_device::address_handle::AddressVector;
use roxe_transport::qp_state::ServiceType;
use roxe_wire::mad::cm::Bits;
use roxe_wire::{Gid, Instant, PKey, QKey, Qpn};

use crate::cm::error::CmError;
use crate::cm::event::{CmEventKind, CmIdKey, EventChannel, MulticastGroup};
use crate::cm::manager::{Record, Resolving, Role, Shared, State};
use crate::context::Context;
use crate::error::Error;
use crate::queue_pair::QueuePair;

/// One end of a connection, a listener, or whoever asks for a datagram service: `rdma_cm_id`.
///
/// It owns no queue pair. Whoever does moves it, by [`CmId::qp_attributes`], when events say so.
/// Dropped, whatever it stands for ends: a listener takes no more requests and refuses those that
/// nobody took, a connection is disconnected or refused.
pub struct CmId {
    context: Context,
    key: CmIdKey,
    space: PortSpace,
}

/// How an identifier asks: `rdma_set_option`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CmOptions {
    /// DSCP in the upper six bits, ECN in the lower two, of datagrams and of the connection.
    pub traffic_class: u8,
    /// How long and how often to ask, and, by the packet lifetime, how long queue pairs wait for
    /// an acknowledgement.
    pub timing: Timing,
}

impl Default for CmOptions {
    /// As Linux does.
    fn default() -> Self {
        Self { traffic_class: 0, timing: Timing::LINUX }
    }
}

/// With what to connect, or to accept: `rdma_conn_param`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CmParameters<'a> {
    /// This side's queue pair.
    pub qpn: Qpn,
    /// RC or UC; of no meaning for datagrams.
    pub service: ServiceType,
    /// Whether it has a shared receive queue.
    pub srq: bool,
    /// Whether it gives out credits.
    pub flow_control: bool,
    /// READs and atomics at once that this side will answer; what the adapter cannot is cut off.
    pub responder_resources: u8,
    /// READs and atomics at once that it wants to have under way; what adapter and peer cannot is
    /// cut off.
    pub initiator_depth: u8,
    /// How often either side sends again what is not acknowledged, up to 7; who connects says it.
    pub retry_count: u8,
    /// How often the peer sends again what finds no receive buffer, up to 7; 7 is for ever.
    pub rnr_retry_count: u8,
    /// The queue key of a datagram service; `None` is the RDMA CM's. Who accepts says it.
    pub q_key: Option<QKey>,
    /// For the peer's application. To connect up to 56 bytes, or 180 for datagrams; to accept up
    /// to 196, or 136.
    pub private_data: &'a [u8],
}

impl CmParameters<'_> {
    /// As programs of librdmacm do that choose nothing.
    pub const fn new(qpn: Qpn, service: ServiceType) -> Self {
        Self {
            qpn,
            service,
            srq: false,
            flow_control: false,
            responder_resources: u8::MAX,
            initiator_depth: u8::MAX,
            retry_count: 7,
            rnr_retry_count: 7,
            q_key: None,
            private_data: &[],
        }
    }

    /// Those of this queue pair.
    pub fn of(qp: &QueuePair) -> Self {
        Self { srq: qp.has_srq(), ..Self::new(qp.qpn(), qp.service()) }
    }
}

impl CmId {
    /// A new one, whose events go to `channel`: `rdma_create_id`. Datagram services are those of
    /// [`PortSpace::Udp`]; the others make connections.
    pub fn new(context: &Context, channel: &EventChannel, space: PortSpace) -> Self {
        let key = CmIdKey::next();
        let record = Record::new(space, Arc::clone(&channel.0));
        context.cm().shared().with(|state, _| state.ids.insert(key, record));
        Self { context: context.clone(), key, space }
    }

    /// Its name in events.
    pub const fn key(&self) -> CmIdKey {
        self.key
    }

    /// The adapter.
    pub const fn context(&self) -> &Context {
        &self.context
    }

    /// Whose ports.
    pub const fn port_space(&self) -> PortSpace {
        self.space
    }

    /// Its own address and port, as far as they are known: `rdma_get_local_addr`.
    pub fn local_address(&self) -> Option<SocketAddr> {
        self.shared().look(|state| state.ids.get(&self.key)?.local)
    }

    /// The peer's: `rdma_get_peer_addr`.
    pub fn peer_address(&self) -> Option<SocketAddr> {
        self.shared().look(|state| state.ids.get(&self.key)?.remote)
    }

    /// How it asks from now on: `rdma_set_option`.
    pub fn set_options(&self, options: CmOptions) {
        self.with(|record, _| record.options = options);
    }

    /// Events go there from now on, also those that wait, and those of requests that nobody has
    /// taken yet: `rdma_migrate_id`.
    pub fn migrate(&self, channel: &EventChannel) {
        self.shared().with(|state, _| {
            let State { ids, .. } = state;
            let is_moved = |id: CmIdKey, record: &Record| {
                id == self.key || record.untaken_of == Some(self.key)
            };
            let mut moved = Vec::new();
            // All of them have the same channel.
            let old = &ids.get(&self.key).expect("it lives as long as its handle").channel;
            old.retain(|event| {
                let stays = !ids.get(&event.id).is_some_and(|record| is_moved(event.id, record));
                moved.extend((!stays).then(|| event.clone()));
                stays
            });
            for (_, record) in ids.iter_mut().filter(|(id, record)| is_moved(**id, record)) {
                record.channel = Arc::clone(&channel.0);
            }
            moved.into_iter().for_each(|event| channel.0.put(event));
        });
    }

    /// Takes an address and a port: `rdma_bind_addr`. Port 0 is any that is free; an unspecified
    /// address is any of its family. Says what it got.
    ///
    /// # Errors
    /// [`CmError::NotOurs`], [`CmError::AddressInUse`]; [`CmError::WrongRole`] when it has one;
    /// [`Error::System`] when a port cannot be reserved on the host, for adapters that share it.
    pub fn bind(&self, address: SocketAddr) -> Result<SocketAddr, Error> {
        if !address.ip().is_unspecified() {
            self.shared().gid_index(address.ip()).ok_or_else(|| CmError::NotOurs(address.ip()))?;
        }
        self.shared().with(|state, _| bind(state, self.key, address))
    }

    /// Looks for the way to a peer: `rdma_resolve_addr`. [`CmEventKind::AddressResolved`] or
    /// [`CmEventKind::AddressError`] follows. Unless it is bound, it takes the address `source`,
    /// or one that goes with the peer's, and a free port.
    ///
    /// # Errors
    /// [`CmError::NoSource`]; else as [`CmId::bind`].
    pub fn resolve_address(
        &self,
        source: Option<IpAddr>,
        destination: SocketAddr,
        timeout: Duration,
    ) -> Result<(), Error> {
        let bound = self.local_address().map(|bound| bound.ip());
        let chosen = source.or(bound).filter(|source| !source.is_unspecified());
        let source = match chosen {
            Some(source) => source,
            None => source_for(self.shared(), destination.ip())?,
        };
        let index = self.shared().gid_index(source).ok_or(CmError::NotOurs(source))?;
        if bound.is_none() {
            self.bind(SocketAddr::new(source, 0))?;
        }
        let vector = AddressVector::new(index, Gid::from_ip(destination.ip()));
        self.shared().with(|state, now| {
            let record = state.ids.get_mut(&self.key).expect("it lives as long as its handle");
            record.remote = Some(destination);
            // Any address of its family has become this one; its port is that which is bound.
            if let Some(local) = &mut record.local {
                local.set_ip(source);
            }
            state.resolving.push(Resolving { id: self.key, vector, until: now + timeout });
        });
        Ok(())
    }

    /// Looks for the route: `rdma_resolve_route`. On an Ethernet it is known with the address, and
    /// [`CmEventKind::RouteResolved`] follows at once.
    ///
    /// # Errors
    /// [`CmError::WrongRole`] before an address is resolved.
    pub fn resolve_route(&self) -> Result<(), Error> {
        self.shared().with(|state, _| {
            let record = state.ids.get(&self.key).expect("it lives as long as its handle");
            record.remote.ok_or(CmError::WrongRole("has no peer: resolve an address before"))?;
            state.put(self.key, CmEventKind::RouteResolved);
            Ok(())
        })
    }

    /// Takes requests from now on: `rdma_listen`. As many as `backlog` may wait for the
    /// application.
    ///
    /// # Errors
    /// [`CmError::Call`] when somebody listens there; [`CmError::WrongRole`] when it is not bound.
    pub fn listen(&self, backlog: usize) -> Result<(), Error> {
        if self.shared().look(|state| state.ports.are_shared()) {
            // A request that came before the port was bound may have been refused by another
            // adapter already: it is not to be taken here, too.
            self.context.catch_up();
        }
        self.shared().with(|state, _| {
            let State { agent, ids, whose, .. } = state;
            let record = ids.get_mut(&self.key).expect("it lives as long as its handle");
            let local = record.local.filter(|_| record.role == Role::Idle);
            let local = local.ok_or(CmError::WrongRole("is not bound, or in use"))?;
            let listen = Listen {
                address: Some(local.ip()),
                ..Listen::port(record.space, local.port(), backlog)
            };
            let listener = agent.listen(listen).map_err(CmError::from)?;
            record.role = Role::Listener(listener);
            whose.listeners.insert(listener, self.key);
            Ok(())
        })
    }

    /// The identifier of a request, which an event of this listener named. It has the listener's
    /// channel.
    ///
    /// # Errors
    /// [`CallError::Gone`]: it was taken already, or its peer has given up.
    pub fn take(&self, request: CmIdKey) -> Result<Self, Error> {
        let space = self.shared().with(|state, _| {
            let record = state.ids.get_mut(&request)?;
            // That of another listener is not ours to take.
            record.untaken_of.take_if(|listener| *listener == self.key)?;
            Some(record.space)
        });
        let space = space.ok_or(CmError::Call(CallError::Gone))?;
        Ok(Self { context: self.context.clone(), key: request, space })
    }

    /// Asks the peer whose address was resolved: `rdma_connect`. Connections:
    /// [`CmEventKind::ConnectResponse`] follows, or why not. Datagrams:
    /// [`CmEventKind::DatagramEstablished`], or why not.
    ///
    /// # Errors
    /// [`CmError::Call`]; [`CmError::WrongRole`].
    pub fn connect(&self, parameters: &CmParameters<'_>) -> Result<(), Error> {
        let (local, remote) = self.ends()?;
        let vlan = self.shared().vlan_of(local.ip());
        let path_mtu = self.context.path_mtu();
        self.shared().with(|state, now| {
            let State { agent, ids, whose, .. } = state;
            let record = ids.get_mut(&self.key).expect("it lives as long as its handle");
            if record.role != Role::Idle {
                return Err(CmError::WrongRole("is in use").into());
            }
            let CmOptions { traffic_class, timing } = record.options;
            let path = GidPair {
                vlan,
                ..GidPair::new(Gid::from_ip(local.ip()), Gid::from_ip(remote.ip()))
            };
            let (source_port, port) = (local.port(), remote.port());
            let service = Service::Ip { space: record.space, source_port, port };
            let private_data = parameters.private_data;
            if record.space == PortSpace::Udp {
                let resolve = Resolve {
                    service,
                    p_key: PKey::DEFAULT,
                    traffic_class,
                    timing,
                    private_data,
                    path,
                };
                let resolution = agent.resolve(now, &resolve).map_err(CmError::from)?;
                record.role = Role::Resolution(resolution);
                whose.resolutions.insert(resolution, self.key);
                return Ok(());
            }
            let connect = Connect {
                transport: transport(parameters.service)?,
                srq: parameters.srq,
                flow_control: parameters.flow_control,
                responder_resources: parameters.responder_resources,
                initiator_depth: parameters.initiator_depth,
                retry_count: Bits::saturating(parameters.retry_count),
                rnr_retry_count: Bits::saturating(parameters.rnr_retry_count),
                path_mtu,
                traffic_class,
                timing,
                private_data,
                ..Connect::new(path, service, parameters.qpn)
            };
            let connection = agent.connect(now, &connect).map_err(CmError::from)?;
            record.role = Role::Connection(connection);
            whose.connections.insert(connection, self.key);
            Ok(())
        })
    }

    /// Accepts a request: `rdma_accept`. The queue pair is to be ready to receive before:
    /// [`CmId::qp_attributes`]. [`CmEventKind::Established`] follows, or why not; nothing for a
    /// datagram service.
    ///
    /// # Errors
    /// [`CmError::Call`]; [`CmError::WrongRole`].
    pub fn accept(&self, parameters: &CmParameters<'_>) -> Result<(), Error> {
        self.shared().with(|state, now| {
            let State { agent, ids, whose, .. } = state;
            let record = ids.get_mut(&self.key).expect("it lives as long as its handle");
            let private_data = parameters.private_data;
            let qpn = parameters.qpn;
            match record.role {
                Role::Question(question) => {
                    let answer = Answer::Serve { qpn, q_key: parameters.q_key };
                    let answered = agent.answer(now, question, answer, private_data);
                    answered.map_err(CmError::from)?;
                    record.role = Role::Answered;
                }
                Role::Connection(connection) => {
                    let accept = Accept {
                        srq: parameters.srq,
                        flow_control: parameters.flow_control,
                        responder_resources: parameters.responder_resources,
                        initiator_depth: parameters.initiator_depth,
                        rnr_retry_count: Bits::saturating(parameters.rnr_retry_count),
                        private_data,
                        ..Accept::new(qpn)
                    };
                    agent.accept(now, connection, &accept).map_err(CmError::from)?;
                    record.qpn = Some(qpn);
                    whose.accepted.insert(qpn, self.key);
                }
                _ => return Err(CmError::WrongRole("has no request to accept").into()),
            }
            Ok(())
        })
    }

    /// Refuses a request, or the response to one: `rdma_reject`. Up to 148 bytes of private data,
    /// 136 for datagrams, which know one reason only.
    ///
    /// # Errors
    /// [`CmError::Call`]; [`CmError::WrongRole`].
    pub fn reject(&self, reason: RejectReason, private_data: &[u8]) -> Result<(), Error> {
        self.shared().with(|state, now| {
            let State { agent, ids, .. } = state;
            let record = ids.get_mut(&self.key).expect("it lives as long as its handle");
            match record.role {
                Role::Question(question) => {
                    let answer = Answer::Refuse(SidrStatus::Rejected);
                    let answered = agent.answer(now, question, answer, private_data);
                    answered.map_err(CmError::from)?;
                    record.role = Role::Answered;
                }
                Role::Connection(connection) => {
                    let rejected = agent.reject(now, connection, reason, private_data);
                    rejected.map_err(CmError::from)?;
                }
                _ => return Err(CmError::WrongRole("has nothing to refuse").into()),
            }
            Ok(())
        })
    }

    /// The queue pair is ready to send: tells the peer, which awaits it: `rdma_establish`. For who
    /// got a [`CmEventKind::ConnectResponse`]; the connection stands then.
    ///
    /// # Errors
    /// [`CmError::Call`]; [`CmError::WrongRole`].
    pub fn establish(&self) -> Result<(), Error> {
        self.of_connection(|agent, _, connection| agent.ready(connection, &[]))
    }

    /// A packet came to the queue pair before the peer said that it is ready: `rdma_notify` with
    /// `IBV_EVENT_COMM_EST`. Where the queue pair is in state RTR, the adapter sees it itself.
    ///
    /// # Errors
    /// [`CmError::Call`]; [`CmError::WrongRole`].
    pub fn notify_established(&self) -> Result<(), Error> {
        self.of_connection(|agent, _, connection| agent.notify_established(connection))
    }

    /// Ends the connection: `rdma_disconnect`. The queue pair is to be moved to error before.
    /// [`CmEventKind::Disconnected`] follows, however the peer answers. Does nothing when the peer
    /// was first.
    ///
    /// # Errors
    /// [`CmError::Call`]; [`CmError::WrongRole`].
    pub fn disconnect(&self) -> Result<(), Error> {
        self.of_connection(|agent, now, connection| agent.disconnect(now, connection, &[]))
    }

    /// Joins the group of an IP address: `rdma_join_multicast`. [`CmEventKind::MulticastJoined`]
    /// follows: attach the queue pair to the group then. On an Ethernet nobody is asked.
    ///
    /// # Errors
    /// [`CmError::NoSource`] when `group` is no group, or the adapter has no address of its
    /// family; [`CmError::WrongRole`] when the identifier has no address.
    pub fn join_multicast(&self, group: IpAddr) -> Result<(), Error> {
        let no_source = || CmError::NoSource(group);
        let joined = multicast::group(group).ok_or_else(no_source)?;
        let local = self.local_address().map(|local| local.ip());
        let source = match local.filter(|local| !local.is_unspecified()) {
            Some(source) => source,
            None => source_for(self.shared(), group)?,
        };
        if source.is_ipv4() != group.is_ipv4() {
            return Err(no_source().into());
        }
        let index = self.shared().gid_index(source).ok_or(CmError::NotOurs(source))?;
        let vector =
            AddressVector { hop_limit: joined.hop_limit, ..AddressVector::new(index, joined.gid) };
        let group = MulticastGroup { address: group, vector, qpn: joined.qpn, q_key: joined.q_key };
        self.shared().with(|state, _| {
            state.put(self.key, CmEventKind::MulticastJoined(Box::new(group)));
        });
        Ok(())
    }

    pub(super) fn shared(&self) -> &Shared {
        self.context.cm().shared()
    }

    fn with<R>(&self, call: impl FnOnce(&mut Record, Instant) -> R) -> R {
        self.shared().with(|state, now| {
            let record = state.ids.get_mut(&self.key).expect("it lives as long as its handle");
            call(record, now)
        })
    }

    fn of_connection(
        &self,
        call: impl FnOnce(&mut Agent, Instant, ConnectionId) -> Result<(), CallError>,
    ) -> Result<(), Error> {
        self.shared().with(|state, now| {
            let role = state.ids.get(&self.key).map(|record| record.role);
            let Some(Role::Connection(connection)) = role else {
                return Err(CmError::WrongRole("is no connection").into());
            };
            Ok(call(&mut state.agent, now, connection).map_err(CmError::from)?)
        })
    }

    /// Both ends of a connection to be.
    fn ends(&self) -> Result<(SocketAddr, SocketAddr), CmError> {
        let ends = self.shared().look(|state| {
            let record = state.ids.get(&self.key)?;
            Some((record.local?, record.remote?))
        });
        ends.ok_or(CmError::WrongRole("has no peer: resolve an address before"))
    }
}

impl Drop for CmId {
    fn drop(&mut self) {
        self.shared().with(|state, now| destroy(state, now, self.key));
    }
}

/// Ends whatever an identifier stands for.
fn destroy(state: &mut State, now: Instant, key: CmIdKey) {
    let Some(record) = state.ids.remove(&key) else { return };
    record.channel.retain(|event| event.id != key);
    state.resolving.retain(|resolving| resolving.id != key);
    if let Some(bound) = record.bound_to {
        state.ports.release(record.space, bound);
    }
    if let Some(qpn) = record.qpn {
        state.whose.accepted.remove(&qpn);
    }
    // Whatever of it is over already needs nothing more.
    match record.role {
        Role::Idle | Role::Answered => {}
        Role::Listener(listener) => {
            let _ = state.agent.unlisten(listener);
            state.whose.listeners.remove(&listener);
            let untaken: Vec<_> = state
                .ids
                .iter()
                .filter(|(_, it)| it.untaken_of == Some(key))
                .map(|(&request, _)| request)
                .collect();
            untaken.into_iter().for_each(|request| destroy(state, now, request));
        }
        Role::Connection(connection) => {
            let _ = state.agent.destroy(now, connection);
            state.whose.connections.remove(&connection);
        }
        Role::Resolution(resolution) => {
            let _ = state.agent.cancel(resolution);
            state.whose.resolutions.remove(&resolution);
        }
        Role::Question(question) => {
            let answer = Answer::Refuse(SidrStatus::Rejected);
            let _ = state.agent.answer(now, question, answer, &[]);
        }
    }
}

fn bind(state: &mut State, key: CmIdKey, address: SocketAddr) -> Result<SocketAddr, Error> {
    let State { ids, ports, .. } = state;
    let record = ids.get_mut(&key).expect("it lives as long as its handle");
    if record.local.is_some() {
        return Err(CmError::WrongRole("has an address already").into());
    }
    let bound = ports.bind(record.space, address)?.ok_or(CmError::AddressInUse(address))?;
    record.local = Some(bound);
    record.bound_to = Some(bound);
    Ok(bound)
}

/// Which of our addresses packets to `destination` come from.
fn source_for(shared: &Shared, destination: IpAddr) -> Result<IpAddr, CmError> {
    let own = shared.addresses();
    // Who calls itself.
    if own.contains(&destination) {
        return Ok(destination);
    }
    let known = shared.resolver().source_for(destination).filter(|source| own.contains(source));
    let is_link_local = |address: &IpAddr| match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    let mut family = own.iter().filter(|own| own.is_ipv4() == destination.is_ipv4());
    let alike = |own: &&IpAddr| is_link_local(own) == is_link_local(&destination);
    let found = known.or_else(|| family.clone().find(alike).or_else(|| family.next()).copied());
    found.ok_or(CmError::NoSource(destination))
}

fn transport(service: ServiceType) -> Result<TransportServiceType, CmError> {
    match service {
        ServiceType::Rc => Ok(TransportServiceType::ReliableConnection),
        ServiceType::Uc => Ok(TransportServiceType::UnreliableConnection),
        ServiceType::Ud => Err(CmError::Call(CallError::UnsupportedTransport)),
    }
}
