//! The connection manager of the device under test, and the application above it.
//!
//! The agent is the product's; what stands between it and queue pair 1 is here what
//! `roxe_verbs::cm` does with threads. The application moves queue pairs as `rdma_accept` and its
//! like do: to RTR with `accept`, to RTS with `establish` or when it hears `established`, to error
//! when it disconnects or hears `disconnected`.

use std::collections::BTreeMap;

use roxe_cm::{
    Accept, Agent, Answer, CallError, Config, Connect, ConnectionId, Counters, Event, GidPair,
    Ignored, Listen, ListenerId, PortSpace, QpAttributes, RejectReason, ResolutionId, Resolve,
    Service, SidrStatus, Timing, TransportServiceType,
};
use roxe_device::address_handle::AddressVector;
use roxe_device::memory::Registration;
use roxe_device::protection_domain::Pd;
use roxe_device::{CqId, HostMemory as _, HostRegion, QueuePairInit, ReceiveCapacity};
use roxe_transport::SendCapacity;
use roxe_transport::qp_state::{AttributeMask, QpState, ServiceType};
use roxe_transport::work::{
    AccessFlags, Completion, CompletionStatus, Data, DatagramTarget, PathId, ReceiveRequest,
    SendOperation, SendRequest, Sge,
};
use roxe_wire::mad::Mad;
use roxe_wire::mad::cm::{Bits, CmTimeout, IpCmHeader};
use roxe_wire::{Gid, Grh, Instant, LKey, QKey, Qpn};

use super::bench::{Bench, Done, Object};
use super::frame_out::{self, Default as Usual, Fact, differ};
use super::mad::{Facts, SOURCE_PORT, without_zeros};
use super::mistake::{Mistake, Stop};
use super::objects::{Refused, Verb};
use super::symbols::{Numbers, Symbols};
use super::syntax::{Arguments, Bytes, CallVerb};

/// The connection manager, and queue pair 1.
pub(super) struct Manager {
    agent: Agent,
    pub(super) guid: u64,
    pd: Pd,
    cq: CqId,
    host: HostRegion,
    key: LKey,
    /// Ways that datagrams went.
    ways: BTreeMap<(GidPair, u8), PathId>,
    /// Transaction IDs by who sent them, in which message, under which name.
    tids: BTreeMap<(By, &'static str, u64), u64>,
}

/// Who sends a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum By {
    Device,
    Peer,
}

/// A connection that a script has named.
#[derive(Clone, Debug)]
pub(super) struct Connection {
    id: ConnectionId,
    /// The queue pair that goes with it.
    qp: Option<String>,
    /// The starting PSN that this side announced.
    psn: u32,
}

/// What the agent told.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) of: Of,
    pub(super) name: &'static str,
    facts: Facts,
    private: Vec<u8>,
    /// What gets a name by it.
    brings: Option<Object>,
}

/// Whom it concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Of {
    Listener(ListenerId),
    Connection(ConnectionId),
    Resolution(ResolutionId),
}

impl From<CallError> for Refused {
    fn from(error: CallError) -> Self {
        let errno = match error {
            CallError::TooMany => "ENOMEM",
            CallError::ServiceInUse => "EADDRINUSE",
            _ => "EINVAL",
        };
        Self::Errno(errno, error.to_string())
    }
}

impl Manager {
    /// When it wants to be called next.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.agent.poll_timeout()
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) {
        self.agent.handle_timeout(now);
    }

    /// A counter of the agent's.
    pub(super) fn counter(&self, name: &str) -> Option<u64> {
        COUNTERS
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, value)| value(self.agent.counters()))
    }

    /// A message was sent.
    pub(super) fn remember(&mut self, by: By, message: &'static str, own: u64, tid: u64) {
        self.tids.insert((by, message, own), tid);
    }

    /// The transaction ID of what a message answers: its sender's name for the connection is `own`,
    /// the receiver's `other`.
    pub(super) fn tid_of(&self, by: By, message: &str, own: u64, other: u64) -> Option<u64> {
        let asks = if by == By::Device { By::Peer } else { By::Device };
        let asked = |name| self.tids.get(&(asks, name, other)).copied();
        match message {
            "REP" => asked("REQ"),
            // A handshake has that of its REQ, whoever began it.
            "MRA" | "REJ" | "RTU" => {
                let began = || self.tids.get(&(by, "REQ", own)).copied();
                asked("REQ").or_else(began).or_else(|| asked("REP"))
            }
            "DREP" => asked("DREQ"),
            "APR" => asked("LAP"),
            "SIDR_REP" => asked("SIDR_REQ"),
            _ => None,
        }
    }
}

/// What an agent counts, by name.
pub(super) const COUNTERS: [(&str, fn(&Counters) -> u64); 12] = [
    ("received", |it| it.received),
    ("sent", |it| it.sent),
    ("retransmissions", |it| it.retransmissions),
    ("duplicates", |it| it.duplicates),
    ("refused", |it| it.refused),
    ("malformed", |it| it.malformed),
    ("unknown", |it| it.ignored(Ignored::Unknown)),
    ("foreign", |it| it.ignored(Ignored::Foreign)),
    ("wrong_state", |it| it.ignored(Ignored::WrongState)),
    ("wrong_qpn", |it| it.ignored(Ignored::WrongQpn)),
    ("no_comm_id", |it| it.ignored(Ignored::NoCommId)),
    ("unasked", |it| it.ignored(Ignored::Unasked)),
];

impl Bench {
    /// `cm`: queue pair 1 and the agent behind it.
    pub(super) fn make_cm(&mut self, name: &str, a: &Arguments) -> Verb {
        if self.manager.is_some() {
            return Err(Mistake::at(name, "the device has a connection manager").into());
        }
        let pd = self.pd(&Arguments::default())?;
        let cq = self.device.create_completion_queue(2 * DEPTH)?;
        let init = QueuePairInit {
            service: ServiceType::Ud,
            pd,
            send_cq: cq,
            receive_cq: cq,
            srq: None,
            send: SendCapacity { depth: DEPTH, max_sge: 1, max_inline: Mad::LEN as u32 },
            receive: ReceiveCapacity { depth: DEPTH, max_sge: 1 },
            signal_all: false,
        };
        let len = u64::from(DEPTH) * SLOT;
        let host = self.device.host_mut().add(vec![0; len as usize]);
        let access = AccessFlags::LOCAL_WRITE;
        let what = Registration { pd, host, va: SLOTS_VA, len, access };
        let key = self.device.register_memory(&what)?;
        self.make_gsi(name, &init)?;
        let guid = self.number_or(a, "guid", GUID)?;
        let usual = Config::linux(guid, self.settings.path_mtu);
        let byte =
            |name: &str, usual: u8| Ok::<_, Mistake>(self.number_or(a, name, usual.into())? as u8);
        let config = Config {
            ack_delay: CmTimeout::from_bits(byte("ack-delay", usual.ack_delay.code())?),
            max_responder_resources: byte("responder-resources", usual.max_responder_resources)?,
            max_initiator_depth: byte("initiator-depth", usual.max_initiator_depth)?,
            service_timeout: CmTimeout::from_bits(byte(
                "service-timeout",
                usual.service_timeout.code(),
            )?),
            max_connections: self.number_or(a, "max-connections", usual.max_connections as u64)?
                as usize,
            ..usual
        };
        let agent = Agent::new(config, self.settings.seed);
        let (ways, tids) = (BTreeMap::new(), BTreeMap::new());
        let manager = Manager { agent, guid, pd, cq, host, key, ways, tids };
        self.manager = Some(Box::new(manager));
        (0..DEPTH.into()).try_for_each(|slot| self.post_slot(key, slot))
    }

    fn post_slot(&mut self, l_key: LKey, slot: u64) -> Verb {
        let sges = [Sge { va: SLOTS_VA + slot * SLOT, len: SLOT as u32, l_key }];
        Ok(self.device.post_receive(Qpn::GSI, &ReceiveRequest { wr_id: slot, sges: &sges })?)
    }

    /// `listen`.
    pub(super) fn make_listener(&mut self, a: &Arguments) -> Result<Object, Refused> {
        let port = self.number(a, "port", None)?.ok_or("a listener needs `port`")? as u16;
        let space = match a.word("space") {
            Some("udp") => PortSpace::Udp,
            Some("ib") => PortSpace::Ib,
            _ => PortSpace::Tcp,
        };
        let backlog = self.number_or(a, "backlog", 16)? as usize;
        let listen = Listen { address: a.address("address"), ..Listen::port(space, port, backlog) };
        Ok(Object::Listener(self.agent()?.listen(listen)?))
    }

    fn agent(&mut self) -> Result<&mut Agent, Mistake> {
        let manager = self.manager.as_mut().ok_or("the device has no `cm`")?;
        Ok(&mut manager.agent)
    }

    /// What the application does about connections.
    pub(super) fn call_cm(&mut self, verb: CallVerb, target: &str, a: &Arguments) -> Verb {
        // What came so far was before.
        self.collect();
        let now = self.now;
        let private = a.bytes().unwrap_or_default();
        let known = self.objects.get(target).cloned();
        match (verb, known) {
            (CallVerb::Connect, None) => {
                let made = self.connect(a)?;
                self.objects.insert(target.to_owned(), made);
            }
            (CallVerb::Resolve, None) => {
                let made = self.resolve(a)?;
                self.objects.insert(target.to_owned(), made);
            }
            (CallVerb::Connect | CallVerb::Resolve, Some(_)) => {
                return Err(Mistake::at(target, format!("{target} is there already")).into());
            }
            (CallVerb::Accept, Some(Object::Connection(connection))) => {
                self.accept(target, &connection, a)?;
            }
            (CallVerb::Establish, Some(Object::Connection(connection))) => {
                let attributes = self.agent()?.qp_attributes(connection.id);
                self.agent()?.ready(connection.id, private)?;
                if let (Some(qp), Some(attributes)) = (&connection.qp, attributes) {
                    self.join(qp, &attributes)?;
                    self.step(qp, QpState::Rts)?;
                }
            }
            (CallVerb::Reject, Some(Object::Connection(connection))) => {
                let usual = RejectReason::ConsumerReject.code().into();
                let reason = RejectReason::from_code(self.number_or(a, "reason", usual)? as u16);
                self.agent()?.reject(now, connection.id, reason, private)?;
            }
            (CallVerb::Disconnect, Some(Object::Connection(connection))) => {
                self.agent()?.disconnect(now, connection.id, private)?;
                self.part(connection.qp.as_deref())?;
            }
            (CallVerb::Destroy, Some(Object::Listener(listener))) => {
                self.agent()?.unlisten(listener)?;
                self.objects.remove(target);
            }
            (CallVerb::Destroy, Some(Object::Connection(connection))) => {
                self.agent()?.destroy(now, connection.id)?;
            }
            (CallVerb::Destroy, Some(Object::Resolution(resolution))) => {
                self.agent()?.cancel(resolution)?;
            }
            (CallVerb::Answer, Some(Object::Question(question))) => {
                let answer = self.answer_of(a)?;
                self.agent()?.answer(now, question, answer, private)?;
            }
            _ => {
                let what = format!("{target} is no object of this verb");
                return Err(Mistake::at(target, what).into());
            }
        }
        Ok(())
    }

    fn connect(&mut self, a: &Arguments) -> Result<Object, Refused> {
        let qp = a.word("qp").ok_or("`connect` needs `qp`")?;
        let (qpn, service) = (self.qp(qp)?.qpn, self.qp(qp)?.service);
        let (path, ports, timing) = self.target_of(a)?;
        let [source_port, port] = ports;
        let service_id = Service::Ip { space: PortSpace::Tcp, source_port, port };
        let usual = Connect::new(path, service_id, qpn);
        let byte =
            |name: &str, usual: u8| Ok::<_, Mistake>(self.number_or(a, name, usual.into())? as u8);
        let connect = Connect {
            transport: match service {
                ServiceType::Rc => TransportServiceType::ReliableConnection,
                ServiceType::Uc => TransportServiceType::UnreliableConnection,
                ServiceType::Ud => return Err(CallError::UnsupportedTransport.into()),
            },
            path_mtu: self.settings.path_mtu,
            responder_resources: byte("responder-resources", DEPTH_OF_READS)?,
            initiator_depth: byte("initiator-depth", DEPTH_OF_READS)?,
            retry_count: Bits::new(byte("retry", 7)?),
            rnr_retry_count: Bits::new(byte("rnr-retry", 7)?),
            traffic_class: byte("tclass", 0)?,
            hop_limit: byte("hop", 64)?,
            sl: Bits::new(byte("sl", 0)?),
            timing,
            private_data: a.bytes().unwrap_or_default(),
            ..usual
        };
        let now = self.now;
        let agent = self.agent()?;
        let id = agent.connect(now, &connect)?;
        let psn = agent.qp_attributes(id).map_or(0, |attributes| attributes.rq_psn.get());
        Ok(Object::Connection(Connection { id, qp: Some(qp.to_owned()), psn }))
    }

    fn resolve(&mut self, a: &Arguments) -> Result<Object, Refused> {
        let (path, [source_port, port], timing) = self.target_of(a)?;
        let private_data = a.bytes().unwrap_or_default();
        let resolve = Resolve { timing, private_data, ..Resolve::port(path, source_port, port) };
        let now = self.now;
        Ok(Object::Resolution(self.agent()?.resolve(now, &resolve)?))
    }

    /// From where to where, from which port to which, and how patiently.
    fn target_of(&self, a: &Arguments) -> Result<(GidPair, [u16; 2], Timing), Refused> {
        let gid = self.number_or(a, "gid", 0)? as u32;
        let own = self.device.gids().get(gid).copied();
        let own = own.ok_or_else(|| format!("the device has no GID {gid}"))?;
        let remote = Gid::from_ip(a.address("to").unwrap_or(self.settings.peer));
        let path = GidPair { local: own.gid, remote, vlan: own.vlan };
        let port = self.number(a, "port", None)?.ok_or("it needs `port`")? as u16;
        let source_port = self.number_or(a, "source-port", SOURCE_PORT)? as u16;
        let usual = Timing::LINUX;
        let byte =
            |name: &str, usual: u8| Ok::<_, Mistake>(self.number_or(a, name, usual.into())? as u8);
        let timing = Timing {
            response_timeout: CmTimeout::from_bits(byte(
                "response-timeout",
                usual.response_timeout.code(),
            )?),
            max_retries: Bits::new(byte("max-cm-retries", usual.max_retries.get())?),
            packet_lifetime: CmTimeout::from_bits(byte(
                "packet-lifetime",
                usual.packet_lifetime.code(),
            )?),
        };
        Ok((path, [source_port, port], timing))
    }

    fn accept(&mut self, target: &str, connection: &Connection, a: &Arguments) -> Verb {
        let qp = a.word("qp").ok_or("`accept` needs `qp`")?;
        let byte =
            |name: &str, usual: u8| Ok::<_, Mistake>(self.number_or(a, name, usual.into())? as u8);
        let accept = Accept {
            responder_resources: byte("responder-resources", DEPTH_OF_READS)?,
            initiator_depth: byte("initiator-depth", DEPTH_OF_READS)?,
            rnr_retry_count: Bits::new(byte("rnr-retry", 7)?),
            private_data: a.bytes().unwrap_or_default(),
            ..Accept::new(self.qp(qp)?.qpn)
        };
        let now = self.now;
        let attributes = self.agent()?.accept(now, connection.id, &accept)?;
        let psn = attributes.rq_psn.get();
        let known = Connection { id: connection.id, qp: Some(qp.to_owned()), psn };
        self.objects.insert(target.to_owned(), Object::Connection(known));
        self.join(qp, &attributes)
    }

    fn answer_of(&self, a: &Arguments) -> Result<Answer, Mistake> {
        let status = self.number(a, "status", None)?;
        let q_key = self.number(a, "qkey", None)?.map(|key| QKey(key as u32));
        match (a.word("qp"), status) {
            (Some(qp), None) => Ok(Answer::Serve { qpn: self.qp(qp)?.qpn, q_key }),
            (None, Some(status)) => Ok(Answer::Refuse(SidrStatus::from_code(status as u8))),
            _ => Err("`answer` needs `qp` or `status`".into()),
        }
    }

    /// A queue pair is ready to receive what its connection says.
    fn join(&mut self, name: &str, to: &QpAttributes) -> Verb {
        let source_gid = self.device.gids().find_address(to.path.local, to.path.vlan);
        let source_gid = source_gid.ok_or("the device has the address no more")?;
        if let Some(Object::Qp(qp)) = self.objects.get_mut(name) {
            let values = &mut qp.values;
            (values.dest_qp, values.path_mtu, values.p_key) = (to.dest_qpn, to.path_mtu, to.p_key);
            (values.rq_psn, values.sq_psn) = (to.rq_psn, to.sq_psn);
            values.max_dest_rd_atomic = to.max_dest_rd_atomic;
            values.max_rd_atomic = to.max_rd_atomic;
            values.timeout = to.timeout;
            (values.retry_cnt, values.rnr_retry) = (to.retry_count.get(), to.rnr_retry.get());
            qp.vector = AddressVector {
                traffic_class: to.traffic_class,
                hop_limit: to.hop_limit,
                flow_label: to.flow_label.get(),
                service_level: to.sl.get().min(7),
                ..AddressVector::new(source_gid, to.path.remote)
            };
            qp.own_address = to.path.local.to_ip();
            qp.peer_address = to.path.remote.to_ip();
            qp.vlan = to.path.vlan;
            qp.source_port = None;
        }
        self.step(name, QpState::Rtr)
    }

    /// Moves a queue pair one state on.
    fn step(&mut self, name: &str, to: QpState) -> Verb {
        let (qpn, service) = (self.qp(name)?.qpn, self.qp(name)?.service);
        let from = self.device.query_queue_pair(qpn)?.state;
        self.modify_with(name, to, super::objects::required(service, from, to))
    }

    /// The queue pair of a connection that is over.
    fn part(&mut self, qp: Option<&str>) -> Verb {
        match qp {
            Some(qp) => self.modify_with(qp, QpState::Error, AttributeMask::NONE),
            None => Ok(()),
        }
    }

    /// Runs the agent; whether there was something to do.
    pub(super) fn manage(&mut self) -> bool {
        let Some(mut manager) = self.manager.take() else { return false };
        let mut is_busy = false;
        let mut room = [Completion::BLANK; 16];
        loop {
            let found = self.device.poll_completions(manager.cq, &mut room);
            for completion in room[..found].iter().filter(|it| it.wr_id != SENT) {
                is_busy = true;
                if completion.status == CompletionStatus::Success
                    && let Some((from, bytes)) = self.datagram(&manager, completion)
                {
                    manager.agent.handle_mad(self.now, from, &bytes);
                }
                // The queue has the place that this one had.
                let _ = self.post_slot(manager.key, completion.wr_id);
            }
            if found < room.len() {
                break;
            }
        }
        while let Some(event) = manager.agent.poll_event() {
            is_busy = true;
            self.told(event);
        }
        while let Some(transmit) = manager.agent.poll_transmit() {
            is_busy = true;
            // What cannot go is lost, as on a full network.
            let _ = self.send_mad(&mut manager, &transmit);
        }
        self.manager = Some(manager);
        is_busy
    }

    /// A datagram that came, and from where to where.
    fn datagram(&self, manager: &Manager, completion: &Completion) -> Option<(GidPair, Vec<u8>)> {
        let at = completion.wr_id * SLOT;
        let mut grh = [0; Grh::LEN];
        let mut bytes = vec![0; (completion.byte_len as usize).checked_sub(Grh::LEN)?];
        self.device.host().read(manager.host, at, &mut grh).ok()?;
        self.device.host().read(manager.host, at + Grh::LEN as u64, &mut bytes).ok()?;
        let grh = Grh::from_bytes(grh);
        let (local, remote) = (Gid::from_ip(grh.destination()?), Gid::from_ip(grh.source()?));
        let (_, own) = self.device.gids().iter().find(|(_, own)| own.gid == local)?;
        Some((GidPair { local, remote, vlan: own.vlan }, bytes))
    }

    fn send_mad(&mut self, manager: &mut Manager, it: &roxe_cm::Transmit) -> Result<(), Refused> {
        let GidPair { local, remote, vlan } = it.path;
        let way = (it.path, it.traffic_class);
        let path = match manager.ways.get(&way) {
            Some(path) => *path,
            None => {
                let source = self.device.gids().find_address(local, vlan);
                let source = source.ok_or("the device has the address no more")?;
                let vector = AddressVector::new(source, remote);
                let vector = AddressVector { traffic_class: it.traffic_class, ..vector };
                let made = self.device.create_address_handle(manager.pd, &vector)?;
                manager.ways.insert(way, made);
                made
            }
        };
        let mut bytes = [0; Mad::LEN];
        it.mad.emit(&mut bytes);
        let request = SendRequest {
            wr_id: SENT,
            operation: SendOperation::Send,
            data: Data::Inline(&bytes),
            signaled: false,
            solicited: true,
            fence: false,
            target: Some(DatagramTarget { path, qpn: Qpn::GSI, q_key: QKey::GSI }),
        };
        Ok(self.device.post_send(Qpn::GSI, &request)?)
    }

    /// The application hears of something, and moves its queue pair.
    fn told(&mut self, event: Event) {
        let told = Told::from(event);
        let qp = self.objects.values().find_map(|object| match object {
            Object::Connection(it) if told.of == Of::Connection(it.id) => it.qp.clone(),
            _ => None,
        });
        // If the device refuses, the script sees its state.
        let _ = match (told.name, &qp) {
            ("established", Some(qp)) => self.step(qp, QpState::Rts),
            ("disconnected", qp) => self.part(qp.as_deref()),
            _ => Ok(()),
        };
        self.happened(Done::Told(told));
    }

    /// A packet came to a queue pair that waits for its connection.
    pub(super) fn came(&mut self, qpn: Qpn) {
        let connection = self.objects.values().find_map(|object| match object {
            Object::Connection(it) if self.is_qp(it.qp.as_deref()?, qpn) => Some(it.id),
            _ => None,
        });
        if let (Some(connection), Some(manager)) = (connection, &mut self.manager) {
            // One that is gone needs it no more.
            let _ = manager.agent.notify_established(connection);
        }
    }

    fn is_qp(&self, name: &str, qpn: Qpn) -> bool {
        matches!(self.objects.get(name), Some(Object::Qp(qp)) if qp.qpn == qpn)
    }

    /// Whom an object's events concern.
    pub(super) fn events_of(&self, name: &str) -> Option<Of> {
        match self.objects.get(name)? {
            Object::Listener(id) => Some(Of::Listener(*id)),
            Object::Connection(connection) => Some(Of::Connection(connection.id)),
            Object::Resolution(id) => Some(Of::Resolution(*id)),
            _ => None,
        }
    }

    /// What a script calls it.
    pub(super) fn name_of(&self, of: Of) -> &str {
        let found = self.objects.keys().find(|name| self.events_of(name) == Some(of));
        found.map_or("?", String::as_str)
    }

    /// Whether the application heard what a script says; what it heard of may get a name.
    pub(super) fn check_told(
        &mut self,
        object: &str,
        a: &Arguments,
        told: Told,
    ) -> Result<(), Stop> {
        let numbers = Numbers { symbols: self, arguments: a, qp: object };
        let peer = self.settings.peer;
        let usual = |name: &str| {
            Some(Usual::Must(Fact::Number(match name {
                "from" => return Some(Usual::Must(Fact::Address(peer))),
                "source-port" => SOURCE_PORT,
                "responder-resources" | "initiator-depth" => DEPTH_OF_READS.into(),
                "status" => 0,
                "service-q-key" => u64::from(QKey::RDMA_CM.0),
                _ => return None,
            })))
        };
        frame_out::compare(told.name, &told.facts, a, &numbers, usual)?;
        match &a.payload {
            Some(Bytes::Any) => {}
            Some(Bytes::These(bytes)) => differ(&told.private, without_zeros(bytes))?,
            None => differ(&told.private, &[])?,
        }
        if let Some(brings) = told.brings {
            let name = a.word("as").ok_or_else(|| format!("{} needs `as`", told.name))?;
            if self.objects.insert(name.to_owned(), brings).is_some() {
                return Err(Mistake::at(name, format!("{name} is there already")).into());
            }
        }
        Ok(())
    }

    /// A number that stands for what the agent chose.
    pub(super) fn symbol_of_cm(&self, object: &Object, part: &str) -> Option<u64> {
        let id = match (object, part) {
            (Object::Connection(connection), "psn") => return Some(connection.psn.into()),
            (Object::Connection(connection), "id") => connection.id.comm_id(),
            (Object::Resolution(resolution), "id") => resolution.request_id(),
            _ => return None,
        };
        Some(id.0.into())
    }
}

impl Told {
    /// In one line; `of` is what the script calls whom it concerns.
    pub(super) fn show(&self, of: &str) -> String {
        let mut line = format!("event {of} {}", self.name);
        for (name, fact) in &self.facts {
            line += &format!(" {name} {}", frame_out::show_fact(name, fact));
        }
        if !self.private.is_empty() {
            line += &format!(" {}", frame_out::show_bytes(&self.private));
        }
        line
    }
}

impl From<Event> for Told {
    fn from(event: Event) -> Self {
        let number = |value: u8| Fact::Number(value.into());
        let plain = |id, name| Self {
            of: Of::Connection(id),
            name,
            facts: Vec::new(),
            private: Vec::new(),
            brings: None,
        };
        match event {
            Event::Request { listener, connection, from, request } => {
                let (header, private) = split(request.ip_cm(), request.private_data.as_bytes());
                let mut facts = caller(from, header);
                // As this side sees it.
                facts.push(("responder-resources", number(request.initiator_depth)));
                facts.push(("initiator-depth", number(request.responder_resources)));
                let named = Connection { id: connection, qp: None, psn: 0 };
                Self {
                    of: Of::Listener(listener),
                    facts,
                    private,
                    brings: Some(Object::Connection(named)),
                    ..plain(connection, "connect-request")
                }
            }
            Event::Question { listener, question, from, request } => {
                let (header, private) = split(request.ip_cm(), request.private_data.as_bytes());
                Self {
                    of: Of::Listener(listener),
                    name: "datagram-request",
                    facts: caller(from, header),
                    private,
                    brings: Some(Object::Question(question)),
                }
            }
            Event::Reply { connection, reply, .. } => Self {
                facts: vec![
                    ("responder-resources", number(reply.initiator_depth)),
                    ("initiator-depth", number(reply.responder_resources)),
                ],
                private: without_zeros(reply.private_data.as_bytes()).to_vec(),
                ..plain(connection, "connect-response")
            },
            Event::Established { connection } => plain(connection, "established"),
            Event::Rejected { connection, reject } => Self {
                facts: vec![("reason", Fact::Number(reject.reason.code().into()))],
                private: without_zeros(reject.private_data.as_bytes()).to_vec(),
                ..plain(connection, "rejected")
            },
            Event::Refused { connection, reason } => Self {
                facts: vec![("reason", Fact::Number(reason.code().into()))],
                ..plain(connection, "connect-error")
            },
            Event::Unreachable { connection } => plain(connection, "unreachable"),
            Event::Disconnected { connection } => plain(connection, "disconnected"),
            Event::TimeWaitExit { connection } => plain(connection, "timewait-exit"),
            Event::Resolved { resolution, reply } => Self {
                of: Of::Resolution(resolution),
                name: "resolved",
                facts: vec![
                    ("status", number(reply.status.code())),
                    ("service-qpn", Fact::Number(reply.qpn.get().into())),
                    ("service-q-key", Fact::Number(reply.q_key.0.into())),
                ],
                private: without_zeros(reply.private_data.as_bytes()).to_vec(),
                brings: None,
            },
            Event::Unresolved { resolution } => Self {
                of: Of::Resolution(resolution),
                name: "unreachable",
                facts: Vec::new(),
                private: Vec::new(),
                brings: None,
            },
        }
    }
}

/// The header of private data, if they have one, and what is behind it.
fn split(header: Option<(IpCmHeader, &[u8])>, all: &[u8]) -> (Option<IpCmHeader>, Vec<u8>) {
    match header {
        Some((header, rest)) => (Some(header), without_zeros(rest).to_vec()),
        None => (None, without_zeros(all).to_vec()),
    }
}

/// Who calls.
fn caller(from: GidPair, header: Option<IpCmHeader>) -> Facts {
    let (address, port) = match header {
        Some(header) => (header.addresses.source(), header.source_port),
        None => (from.remote.to_ip(), 0),
    };
    vec![("from", Fact::Address(address)), ("source-port", Fact::Number(port.into()))]
}

/// Datagrams that may wait to be read, or to be sent.
const DEPTH: u32 = 128;
/// Bytes of the place of one: where it came from, and itself.
const SLOT: u64 = 320;
const SLOTS_VA: u64 = 0x7e00_0000_0000;
/// What requests to send are called; receives are called by their places.
const SENT: u64 = u64::MAX;
/// The device's adapter.
const GUID: u64 = 0x5;
/// READs each way, as queue pairs of scripts have them.
const DEPTH_OF_READS: u8 = 4;
