//! The active side: REQ out, REP in, RTU out.

use roxe_wire::mad::cm::{
    AnsweredMessage, Bits, CmTimeout, CommId, MessageReceipt, Path, ReadyToUse, RejectReason,
    Reply, Request, TransportServiceType,
};
use roxe_wire::mad::{Mad, Message};
use roxe_wire::{Instant, Mtu, PKey, Psn, Qpn, StaticRate};

use crate::agent::Agent;
use crate::config::{Timing, ack_timeout};
use crate::connection::{Connection, ConnectionId, QpAttributes, Repetition, State};
use crate::counters::Ignored;
use crate::event::{CallError, Event};
use crate::reject::Refusal;
use crate::service::{GidPair, Service, private_data};

/// What to connect, to what, and how.
#[derive(Clone, Copy, Debug)]
pub struct Connect<'a> {
    /// From which address to which.
    pub path: GidPair,
    /// What to reach there.
    pub service: Service,
    /// RC or UC.
    pub transport: TransportServiceType,
    /// This side's queue pair.
    pub qpn: Qpn,
    /// Whether it has a shared receive queue.
    pub srq: bool,
    /// Whether it gives out credits.
    pub flow_control: bool,
    /// How many READs and atomics at once it can answer. What the adapter cannot is cut off.
    pub responder_resources: u8,
    /// How many it wants to issue, likewise.
    pub initiator_depth: u8,
    /// How often either side sends again what is not acknowledged.
    pub retry_count: Bits<3>,
    /// How often the other side sends again what finds no receive buffer here; 7 is for ever.
    pub rnr_retry_count: Bits<3>,
    /// The partition.
    pub p_key: PKey,
    /// The path MTU for both directions.
    pub path_mtu: Mtu,
    /// The traffic class, or type of service.
    pub traffic_class: u8,
    /// The hop limit. Up to 1, the path is said to stay inside the subnet.
    pub hop_limit: u8,
    /// The service level.
    pub sl: Bits<4>,
    /// The most that may be sent in a time; 0 when the port does not say.
    pub rate: StaticRate,
    /// How long and how often to ask.
    pub timing: Timing,
    /// For the other application: up to 56 bytes to an IP service, up to 92 to another.
    pub private_data: &'a [u8],
}

impl Connect<'_> {
    /// As librdmacm programs connect that choose nothing.
    pub const fn new(path: GidPair, service: Service, qpn: Qpn) -> Self {
        Self {
            path,
            service,
            transport: TransportServiceType::ReliableConnection,
            qpn,
            srq: false,
            flow_control: false,
            responder_resources: u8::MAX,
            initiator_depth: u8::MAX,
            retry_count: Bits::MAX,
            rnr_retry_count: Bits::MAX,
            p_key: PKey::DEFAULT,
            path_mtu: Mtu::B1024,
            traffic_class: 0,
            hop_limit: 64,
            sl: Bits::new(0),
            rate: StaticRate::MAX,
            timing: Timing::LINUX,
            private_data: &[],
        }
    }

    fn path_record(&self, local_ack_delay: CmTimeout) -> Path {
        // Permissive where packets may be routed: RoCE has no local identifiers.
        let lid = if self.hop_limit > 1 { 0xffff } else { 0 };
        Path {
            local_lid: lid,
            remote_lid: lid,
            local_gid: self.path.local,
            remote_gid: self.path.remote,
            flow_label: self.service.flow_label(),
            packet_rate: self.rate,
            traffic_class: self.traffic_class,
            hop_limit: self.hop_limit,
            sl: self.sl,
            subnet_local: self.hop_limit <= 1,
            local_ack_timeout: ack_timeout(self.timing.packet_lifetime, local_ack_delay),
        }
    }
}

impl Agent {
    /// Asks for a connection. [`Event::Reply`], [`Event::Rejected`], [`Event::Refused`] or
    /// [`Event::Unreachable`] follows.
    ///
    /// # Errors
    /// [`CallError::UnsupportedTransport`], [`CallError::TooMany`],
    /// [`CallError::PrivateDataTooLong`], [`CallError::MixedAddresses`].
    pub fn connect(
        &mut self,
        now: Instant,
        connect: &Connect<'_>,
    ) -> Result<ConnectionId, CallError> {
        if !is_supported(connect.transport) {
            return Err(CallError::UnsupportedTransport);
        }
        if self.is_full() {
            return Err(CallError::TooMany);
        }
        let private_data = connect.service.private_data(connect.path, connect.private_data)?;
        let id = self.new_id();
        let primary_path = connect.path_record(self.config.ack_delay);
        let attributes = QpAttributes {
            transport: connect.transport,
            path: connect.path,
            p_key: connect.p_key,
            path_mtu: connect.path_mtu,
            dest_qpn: Qpn::new(0),
            rq_psn: self.chance.psn(),
            sq_psn: Psn::new(0),
            max_dest_rd_atomic: connect
                .responder_resources
                .min(self.config.max_responder_resources),
            max_rd_atomic: connect.initiator_depth.min(self.config.max_initiator_depth),
            timeout: primary_path.local_ack_timeout,
            retry_count: connect.retry_count,
            rnr_retry: connect.rnr_retry_count,
            flow_label: primary_path.flow_label,
            traffic_class: connect.traffic_class,
            hop_limit: connect.hop_limit,
            sl: connect.sl,
            rate: connect.rate,
        };
        let request = Request {
            local_comm_id: id,
            service_id: connect.service.id(),
            local_ca_guid: self.config.ca_guid,
            local_qpn: connect.qpn,
            responder_resources: attributes.max_dest_rd_atomic,
            initiator_depth: attributes.max_rd_atomic,
            remote_cm_response_timeout: connect.timing.response_timeout,
            transport_service_type: connect.transport,
            end_to_end_flow_control: connect.flow_control,
            starting_psn: attributes.rq_psn,
            local_cm_response_timeout: connect.timing.response_timeout,
            retry_count: connect.retry_count,
            partition_key: connect.p_key,
            path_packet_payload_mtu: Bits::new(connect.path_mtu.code()),
            rnr_retry_count: connect.rnr_retry_count,
            max_cm_retries: connect.timing.max_retries,
            srq: connect.srq,
            primary_path,
            private_data,
            ..Request::default()
        };
        let Timing { max_retries, packet_lifetime, .. } = connect.timing;
        let connection = Connection {
            state: State::ReqSent,
            is_active: true,
            remote_id: CommId(0),
            remote_guid: 0,
            path: connect.path,
            transaction_id: Self::own_transaction(id),
            waits_at: None,
            is_detached: false,
            local_qpn: connect.qpn,
            attributes,
            repetition: Repetition::new(connect.timing.answer_within(), max_retries.get()),
            packet_lifetime,
        };
        self.connections.insert(id, connection);
        let mad = Mad::new(Self::own_transaction(id), Message::Request(request));
        self.send_until_answered(now, id, mad);
        Ok(ConnectionId(id))
    }

    /// The queue pair is ready: tells the other side, and the connection stands. Up to 224 bytes of
    /// private data.
    ///
    /// # Errors
    /// [`CallError::Gone`], [`CallError::WrongState`] before a REP came,
    /// [`CallError::PrivateDataTooLong`].
    pub fn ready(&mut self, id: ConnectionId, bytes: &[u8]) -> Result<(), CallError> {
        let private_data = private_data(bytes)?;
        let connection = self.own(id)?;
        if !matches!(connection.state, State::RepRcvd | State::MraRepSent) {
            return Err(CallError::WrongState);
        }
        connection.state = State::Established;
        let (local_comm_id, remote_comm_id) = (id.0, connection.remote_id);
        let message =
            Message::ReadyToUse(ReadyToUse { local_comm_id, remote_comm_id, private_data });
        let mad = Mad::new(connection.transaction_id, message);
        connection.repetition.message = Some(Box::new(mad));
        self.stands_or_not(id.0);
        self.send_on(id.0, message);
        Ok(())
    }

    /// A REP: the answer to our REQ, or one that came before.
    pub(crate) fn on_reply(
        &mut self,
        now: Instant,
        from: GidPair,
        transaction: u64,
        reply: &Reply,
    ) {
        let (ours, theirs) = (reply.remote_comm_id, reply.local_comm_id);
        let Some(connection) = self.connections.get(&ours) else {
            if self.config.shares_addresses {
                return self.counters.ignore(Ignored::MayBeAnothers);
            }
            // We gave up, or never asked. Its sender need not wait for an RTU.
            self.counters.refused += 1;
            let refusal = Refusal::of(AnsweredMessage::Rep, RejectReason::InvalidCommId);
            let message = Message::Reject(refusal.message(ours, theirs));
            return self.send(from, 0, Mad::new(transaction, message));
        };
        if !connection.is_with(from, theirs) || theirs == CommId(0) {
            return self.counters.ignore(Ignored::Foreign);
        }
        match (connection.state, connection.is_active) {
            (State::ReqSent | State::MraReqRcvd, true) => match self.check_reply(ours, reply) {
                Ok(()) => self.take_reply(ours, reply),
                Err(reason) => self.refuse_reply(now, ours, reply, reason),
            },
            (State::RepRcvd | State::MraRepSent, true) => {
                self.counters.duplicates += 1;
                self.ask_for_patience(ours, AnsweredMessage::Rep, State::MraRepSent);
            }
            (State::Established, true) => {
                self.counters.duplicates += 1;
                if let Some(ready) = connection.repetition.message.as_deref().copied() {
                    let (path, class) = (connection.path, connection.attributes.traffic_class);
                    self.send(path, class, ready);
                }
            }
            _ => self.counters.ignore(Ignored::WrongState),
        }
    }

    /// Whether a REP can be taken.
    //= M08, M12, 08-8.3
    fn check_reply(&self, id: CommId, reply: &Reply) -> Result<(), RejectReason> {
        let taken = |other: Option<&CommId>| other.is_some_and(|other| *other != id);
        let guid = reply.local_ca_guid;
        if taken(self.by_remote_qpn.get(&(guid, reply.local_qpn))) {
            return Err(RejectReason::StaleConnection);
        }
        if taken(self.by_remote_id.get(&(guid, reply.local_comm_id))) {
            return Err(RejectReason::DuplicateLocalCommId);
        }
        if reply.initiator_depth > self.config.max_responder_resources {
            return Err(RejectReason::InsufficientResponderResources);
        }
        Ok(())
    }

    fn refuse_reply(&mut self, now: Instant, id: CommId, reply: &Reply, reason: RejectReason) {
        self.counters.refused += 1;
        let refusal = Refusal::of(AnsweredMessage::Rep, reason);
        self.send_on(id, Message::Reject(refusal.message(id, reply.local_comm_id)));
        if reason == RejectReason::StaleConnection {
            self.disconnect_stale(now, (reply.local_ca_guid, reply.local_qpn));
        }
        self.tell(id, Event::Refused { connection: ConnectionId(id), reason });
        self.forget(id);
    }

    /// Learns what the other side chose. IBA vol 1 §12.6.
    //= M12, M13
    fn take_reply(&mut self, id: CommId, reply: &Reply) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        connection.state = State::RepRcvd;
        connection.remote_id = reply.local_comm_id;
        connection.remote_guid = reply.local_ca_guid;
        let attributes = &mut connection.attributes;
        attributes.dest_qpn = reply.local_qpn;
        attributes.sq_psn = reply.starting_psn;
        // The other side may serve less than was asked, and issue less than was offered.
        attributes.max_rd_atomic = attributes.max_rd_atomic.min(reply.responder_resources);
        attributes.max_dest_rd_atomic = reply.initiator_depth;
        attributes.timeout = ack_timeout(connection.packet_lifetime, reply.target_ack_delay);
        attributes.rnr_retry = reply.rnr_retry_count;
        let attributes = Box::new(*attributes);
        self.timers.clear(id);
        self.by_remote_id.insert((reply.local_ca_guid, reply.local_comm_id), id);
        self.by_remote_qpn.insert((reply.local_ca_guid, reply.local_qpn), id);
        let reply = Box::new(*reply);
        self.tell(id, Event::Reply { connection: ConnectionId(id), attributes, reply });
    }

    /// Answers a message that came again while the application thinks about it.
    //= 08-8.4
    pub(crate) fn ask_for_patience(&mut self, id: CommId, what: AnsweredMessage, state: State) {
        let service_timeout = self.config.service_timeout;
        let Some(connection) = self.connections.get_mut(&id) else { return };
        connection.state = state;
        let receipt = MessageReceipt {
            local_comm_id: id,
            remote_comm_id: connection.remote_id,
            message_mraed: what,
            service_timeout,
            ..MessageReceipt::default()
        };
        self.send_on(id, Message::MessageReceipt(receipt));
    }
}

/// Whether CM connects queue pairs of this kind here.
pub(crate) const fn is_supported(transport: TransportServiceType) -> bool {
    use TransportServiceType::{ReliableConnection, UnreliableConnection};
    matches!(transport, ReliableConnection | UnreliableConnection)
}
