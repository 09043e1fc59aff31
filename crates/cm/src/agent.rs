//! The agent: the calls, and who gets which datagram.

use std::collections::{BTreeMap, VecDeque};

use roxe_wire::mad::cm::{
    AlternatePathResponse, AlternatePathStatus, AnsweredMessage, CommId, LoadAlternatePath,
    RejectReason, ServiceId,
};
use roxe_wire::mad::{Mad, MadHeader, Message};
use roxe_wire::{DropReason, Instant, Qpn};

use crate::chance::Chance;
use crate::config::Config;
use crate::connection::{Connection, ConnectionId, QpAttributes, State};
use crate::counters::{Counters, Ignored};
use crate::event::{CallError, Event};
use crate::reject::Refusal;
use crate::retry::Timers;
use crate::service::{GidPair, Listen, ListenerId, Listeners};
use crate::sidr::Sidr;

/// The connection manager of one adapter. It moves only when a call moves it.
#[derive(Debug)]
pub struct Agent {
    pub(crate) config: Config,
    pub(crate) chance: Chance,
    pub(crate) connections: BTreeMap<CommId, Connection>,
    /// The other side's adapter and its communication ID, for whoever is not gone.
    pub(crate) by_remote_id: BTreeMap<(u64, CommId), CommId>,
    /// The other side's adapter and queue pair, for whoever is not in time wait.
    pub(crate) by_remote_qpn: BTreeMap<(u64, Qpn), CommId>,
    pub(crate) listeners: Listeners,
    pub(crate) sidr: Sidr,
    pub(crate) timers: Timers,
    pub(crate) counters: Counters,
    transmit: VecDeque<Transmit>,
    pub(crate) events: VecDeque<Event>,
    /// Connections that began or ceased to stand, where somebody wants to know.
    pub(crate) changed: Option<VecDeque<ConnectionId>>,
}

/// A datagram to send from queue pair 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// From where to where.
    pub path: GidPair,
    /// The traffic class, or type of service, of the packet: that of the connection.
    pub traffic_class: u8,
    /// The datagram.
    pub mad: Mad,
}

impl Agent {
    /// An agent of the adapter that `config` describes. Communication IDs and starting PSNs follow
    /// from `seed`: an agent that follows another on the same adapter needs another one, so that
    /// nobody takes its requests for those of its predecessor.
    pub fn new(config: Config, seed: u64) -> Self {
        Self {
            config,
            chance: Chance::new(seed),
            connections: BTreeMap::new(),
            by_remote_id: BTreeMap::new(),
            by_remote_qpn: BTreeMap::new(),
            listeners: Listeners::default(),
            sidr: Sidr::default(),
            timers: Timers::default(),
            counters: Counters::default(),
            transmit: VecDeque::new(),
            events: VecDeque::new(),
            changed: None,
        }
    }

    /// Takes calls to a service from now on.
    ///
    /// # Errors
    /// [`CallError::ServiceInUse`] when another listener would get some of the same calls.
    pub fn listen(&mut self, listen: Listen) -> Result<ListenerId, CallError> {
        self.listeners.add(listen)
    }

    /// Takes no more calls. Requests that the application has got stay.
    ///
    /// # Errors
    /// [`CallError::Gone`].
    pub fn unlisten(&mut self, listener: ListenerId) -> Result<(), CallError> {
        self.listeners.remove(listener)
    }

    /// A datagram came to queue pair 1: its payload, and from where to where. Bad ones are counted,
    /// not reported.
    //= M11
    pub fn handle_mad(&mut self, now: Instant, from: GidPair, bytes: &[u8]) {
        self.counters.received += 1;
        let mad = match Mad::parse(bytes) {
            Ok(mad) => mad,
            Err(reason) => {
                self.counters.drop_malformed(reason);
                self.refuse_class_version(from, bytes, reason);
                return;
            }
        };
        let id = mad.transaction_id;
        match &mad.message {
            Message::Request(request) => self.on_request(now, from, id, request),
            Message::Reply(reply) => self.on_reply(now, from, id, reply),
            Message::ReadyToUse(ready) => self.on_ready_to_use(from, ready),
            Message::MessageReceipt(receipt) => self.on_message_receipt(now, from, receipt),
            Message::Reject(reject) => self.on_reject(now, from, reject),
            Message::DisconnectRequest(request) => {
                self.on_disconnect_request(now, from, id, request);
            }
            Message::DisconnectReply(reply) => self.on_disconnect_reply(now, from, reply),
            Message::SidrRequest(request) => self.on_sidr_request(from, id, request),
            Message::SidrReply(reply) => self.on_sidr_reply(from, reply),
            Message::LoadAlternatePath(load) => self.refuse_alternate_path(from, id, load),
            Message::AlternatePathResponse(_)
            | Message::GetClassPortInfo(_)
            | Message::ClassPortInfo(_) => self.counters.ignore(Ignored::Unasked),
        }
    }

    /// Refuses a call that nobody else takes: [`Event::Unserved`].
    pub fn refuse_call(&mut self, refusal: Transmit) {
        self.counters.refused += 1;
        self.transmit.push_back(refusal);
    }

    /// Leaves a call to another agent at the address: [`Event::Unserved`].
    pub const fn leave_to_another(&mut self) {
        self.counters.ignore(Ignored::MayBeAnothers);
    }

    /// The next datagram to send. Call until `None`.
    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        let transmit = self.transmit.pop_front();
        self.counters.sent += u64::from(transmit.is_some());
        transmit
    }

    /// When to call [`handle_timeout`](Self::handle_timeout); may change after any other call.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.timers.next()
    }

    /// What the application should hear about. Call until `None`.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Where a connection stands; `None` when it is gone.
    pub fn state(&self, connection: ConnectionId) -> Option<State> {
        self.connections.get(&connection.0).map(|connection| connection.state)
    }

    /// How the queue pair of a connection is to be moved, as far as that is known; `None` when the
    /// connection is gone.
    pub fn qp_attributes(&self, connection: ConnectionId) -> Option<QpAttributes> {
        self.connections.get(&connection.0).map(|connection| connection.attributes)
    }

    /// What happened so far.
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// How many connections, resolutions and questions there are, in whatever state.
    pub fn len(&self) -> usize {
        self.connections.len() + self.sidr.len()
    }

    /// How many of them asked to part and have no answer yet.
    pub fn partings(&self) -> usize {
        let is_parting = |it: &&Connection| it.state == State::DreqSent;
        self.connections.values().filter(is_parting).count()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether one more would be too many.
    pub(crate) fn is_full(&self) -> bool {
        self.len() >= self.config.max_connections
    }

    /// A communication ID that nobody has.
    pub(crate) fn new_id(&mut self) -> CommId {
        let Self { chance, connections, sidr, .. } = self;
        chance.comm_id(|id| connections.contains_key(&id) || sidr.has(id))
    }

    /// The transaction ID of a message that begins something.
    pub(crate) const fn own_transaction(id: CommId) -> u64 {
        1 << 32 | id.0 as u64
    }

    /// Sends a datagram.
    pub(crate) fn send(&mut self, path: GidPair, traffic_class: u8, mad: Mad) {
        self.transmit.push_back(Transmit { path, traffic_class, mad });
    }

    /// Refuses a call to a service at which nobody listens here, unless another agent may.
    pub(crate) fn refuse_service(&mut self, service: ServiceId, refusal: Transmit) {
        if self.config.shares_addresses {
            self.events.push_back(Event::Unserved { service, refusal: Box::new(refusal) });
        } else {
            self.refuse_call(refusal);
        }
    }

    /// Sends a message of a connection's handshake.
    pub(crate) fn send_on(&mut self, id: CommId, message: Message) {
        if let Some(connection) = self.connections.get(&id) {
            let mad = Mad::new(connection.transaction_id, message);
            let (path, class) = (connection.path, connection.attributes.traffic_class);
            self.send(path, class, mad);
        }
    }

    /// The connection that a message is for, when it comes from the other side of it. Otherwise the
    /// message is counted.
    pub(crate) fn find(
        &mut self,
        from: GidPair,
        ours: CommId,
        theirs: CommId,
    ) -> Option<&mut Connection> {
        match self.connections.get_mut(&ours) {
            Some(connection) if connection.is_with(from, theirs) => Some(connection),
            Some(_) => {
                self.counters.ignore(Ignored::Foreign);
                None
            }
            None => {
                self.counters.ignore(Ignored::Unknown);
                None
            }
        }
    }

    /// A connection that the application may still speak about.
    pub(crate) fn own(&mut self, id: ConnectionId) -> Result<&mut Connection, CallError> {
        let connection = self.connections.get_mut(&id.0);
        connection.filter(|connection| !connection.is_detached).ok_or(CallError::Gone)
    }

    /// Tells the application about a connection, when it wants to know.
    pub(crate) fn tell(&mut self, id: CommId, event: Event) {
        if self.connections.get(&id).is_some_and(|connection| !connection.is_detached) {
            self.events.push_back(event);
        }
    }

    /// Ends a connection without a trace.
    pub(crate) fn forget(&mut self, id: CommId) {
        self.leave_backlog(id);
        self.forget_remote_qpn(id);
        self.timers.clear(id);
        self.stands_or_not(id);
        if let Some(connection) = self.connections.remove(&id) {
            let key = (connection.remote_guid, connection.remote_id);
            if self.by_remote_id.get(&key) == Some(&id) {
                self.by_remote_id.remove(&key);
            }
        }
    }

    /// The other side's queue pair may have another connection.
    pub(crate) fn forget_remote_qpn(&mut self, id: CommId) {
        if let Some(connection) = self.connections.get(&id) {
            let key = (connection.remote_guid, connection.attributes.dest_qpn);
            if self.by_remote_qpn.get(&key) == Some(&id) {
                self.by_remote_qpn.remove(&key);
            }
        }
    }

    /// A request waits for the application no more.
    pub(crate) fn leave_backlog(&mut self, id: CommId) {
        let connection = self.connections.get_mut(&id);
        if let Some(listener) = connection.and_then(|connection| connection.waits_at.take()) {
            self.listeners.dequeue(listener);
        }
    }

    /// A REQ of another version of the class is refused, as far as it can be read: its sender's ID
    /// is where it always was. IBA vol 1 §12.6.
    fn refuse_class_version(&mut self, from: GidPair, bytes: &[u8], reason: DropReason) {
        let DropReason::MadHeader { base_version, class, class_version, method } = reason else {
            return;
        };
        let known = (MadHeader::BASE_VERSION, MadHeader::CLASS_CM, MadHeader::METHOD_SEND);
        let is_other = class_version != MadHeader::CLASS_VERSION_CM;
        let Some((header, data)) = bytes.split_first_chunk() else { return };
        let header = MadHeader::parse(*header);
        let Some(theirs) = data.first_chunk().map(|id| CommId(u32::from_be_bytes(*id))) else {
            return;
        };
        if (base_version, class, method) == known && is_other && header.attribute_id == 0x10 {
            self.counters.refused += 1;
            let refusal = Refusal::of(AnsweredMessage::Req, RejectReason::InvalidClassVersion);
            let reject = refusal.message(CommId(0), theirs);
            self.send(from, 0, Mad::new(header.transaction_id, Message::Reject(reject)));
        }
    }

    /// A RoCE port has one path; another one is refused. IBA vol 1 §12.8.
    //= 08-8.2
    fn refuse_alternate_path(&mut self, from: GidPair, transaction: u64, load: &LoadAlternatePath) {
        let ours = load.remote_comm_id;
        let ap_status = match self.connections.get(&ours) {
            Some(connection) if !connection.is_with(from, load.local_comm_id) => {
                self.counters.ignore(Ignored::Foreign);
                return;
            }
            Some(connection) if connection.state == State::Established => {
                AlternatePathStatus::Unsupported
            }
            Some(_) => {
                self.counters.ignore(Ignored::WrongState);
                return;
            }
            None if self.config.shares_addresses => {
                self.counters.ignore(Ignored::MayBeAnothers);
                return;
            }
            None => AlternatePathStatus::InvalidCommId,
        };
        self.counters.refused += 1;
        let response = AlternatePathResponse {
            local_comm_id: ours,
            remote_comm_id: load.local_comm_id,
            ap_status,
            ..AlternatePathResponse::default()
        };
        let class = self.connections.get(&ours).map_or(0, |it| it.attributes.traffic_class);
        let message = Message::AlternatePathResponse(response);
        self.send(from, class, Mad::new(transaction, message));
    }
}
