//! The passive side: REQ in, REP out, RTU in.

use roxe_wire::mad::cm::{
    AdditionalInfo, AnsweredMessage, Bits, CmTimeout, CommId, ReadyToUse, RejectReason, Reply,
    Request,
};
use roxe_wire::mad::{Mad, Message};
use roxe_wire::{Instant, Mtu, Qpn};

use crate::active::is_supported;
use crate::agent::{Agent, Transmit};
use crate::connection::{Connection, ConnectionId, QpAttributes, Repetition, State};
use crate::counters::Ignored;
use crate::event::{CallError, Event};
use crate::reject::Refusal;
use crate::service::{GidPair, ListenerId, private_data};

/// With what a request is accepted.
#[derive(Clone, Copy, Debug)]
pub struct Accept<'a> {
    /// This side's queue pair.
    pub qpn: Qpn,
    /// Whether it has a shared receive queue.
    pub srq: bool,
    /// Whether it gives out credits.
    pub flow_control: bool,
    /// How many READs and atomics at once it will answer. What the adapter cannot is cut off.
    pub responder_resources: u8,
    /// How many it will issue. What adapter and peer cannot is cut off.
    pub initiator_depth: u8,
    /// How often the other side sends again what finds no receive buffer here; 7 is for ever.
    pub rnr_retry_count: Bits<3>,
    /// For the other application: up to 196 bytes.
    pub private_data: &'a [u8],
}

impl Accept<'_> {
    /// As librdmacm programs accept that choose nothing.
    pub const fn new(qpn: Qpn) -> Self {
        Self {
            qpn,
            srq: false,
            flow_control: false,
            responder_resources: u8::MAX,
            initiator_depth: u8::MAX,
            rnr_retry_count: Bits::MAX,
            private_data: &[],
        }
    }
}

impl Agent {
    /// Accepts a request with a queue pair, which is to be ready to receive before the next
    /// [`poll_transmit`](Self::poll_transmit). [`Event::Established`], [`Event::Rejected`] or
    /// [`Event::Unreachable`] follows.
    ///
    /// # Errors
    /// [`CallError::Gone`], [`CallError::WrongState`], [`CallError::PrivateDataTooLong`].
    //= M12, M13
    pub fn accept(
        &mut self,
        now: Instant,
        id: ConnectionId,
        accept: &Accept<'_>,
    ) -> Result<QpAttributes, CallError> {
        let private_data = private_data(accept.private_data)?;
        let config = self.config;
        let connection = self.own(id)?;
        if !matches!(connection.state, State::ReqRcvd | State::MraReqSent) {
            return Err(CallError::WrongState);
        }
        connection.state = State::RepSent;
        connection.local_qpn = accept.qpn;
        let attributes = &mut connection.attributes;
        attributes.max_dest_rd_atomic =
            accept.responder_resources.min(config.max_responder_resources);
        // What the other side can answer stands there already.
        let depth = accept.initiator_depth.min(config.max_initiator_depth);
        attributes.max_rd_atomic = attributes.max_rd_atomic.min(depth);
        let attributes = *attributes;
        let reply = Reply {
            local_comm_id: id.0,
            remote_comm_id: connection.remote_id,
            local_qpn: accept.qpn,
            starting_psn: attributes.rq_psn,
            responder_resources: attributes.max_dest_rd_atomic,
            initiator_depth: attributes.max_rd_atomic,
            target_ack_delay: config.ack_delay,
            end_to_end_flow_control: accept.flow_control,
            rnr_retry_count: accept.rnr_retry_count,
            srq: accept.srq,
            local_ca_guid: config.ca_guid,
            private_data,
            ..Reply::default()
        };
        let mad = Mad::new(connection.transaction_id, Message::Reply(reply));
        self.leave_backlog(id.0);
        self.send_until_answered(now, id.0, mad);
        Ok(attributes)
    }

    /// The queue pair got a packet before the RTU came: the connection stands. Does nothing in
    /// other states. [`Event::Established`] follows.
    ///
    /// # Errors
    /// [`CallError::Gone`].
    //= M05
    pub fn notify_established(&mut self, id: ConnectionId) -> Result<(), CallError> {
        let state = self.own(id)?.state;
        if matches!(state, State::RepSent | State::MraRepRcvd) {
            self.establish(id.0);
        }
        Ok(())
    }

    /// A REQ: from somebody new, or one that came before.
    pub(crate) fn on_request(
        &mut self,
        now: Instant,
        from: GidPair,
        transaction: u64,
        request: &Request,
    ) {
        let theirs = request.local_comm_id;
        if theirs == CommId(0) {
            return self.counters.ignore(Ignored::NoCommId);
        }
        if let Some(id) = self.by_remote_id.get(&(request.local_ca_guid, theirs)) {
            return self.on_duplicate_request(*id);
        }
        match self.check_request(from, request) {
            Ok((listener, path_mtu)) => {
                self.take_request(from, transaction, request, listener, path_mtu);
            }
            Err(refusal) => {
                let reject = Message::Reject(refusal.message(CommId(0), theirs));
                let traffic_class = request.primary_path.traffic_class;
                let mad = Mad::new(transaction, reject);
                let transmit = Transmit { path: from, traffic_class, mad };
                if refusal.reason == RejectReason::InvalidServiceId {
                    return self.refuse_service(request.service_id, transmit);
                }
                self.refuse_call(transmit);
                if refusal.reason == RejectReason::StaleConnection {
                    self.disconnect_stale(now, (request.local_ca_guid, request.local_qpn));
                }
            }
        }
    }

    /// A REQ that came again makes no second connection.
    //= M03
    fn on_duplicate_request(&mut self, id: CommId) {
        let Some(connection) = self.connections.get(&id) else { return };
        self.counters.duplicates += 1;
        match connection.state {
            State::ReqRcvd | State::MraReqSent => {
                self.ask_for_patience(id, AnsweredMessage::Req, State::MraReqSent);
            }
            State::TimeWait => {
                self.counters.refused += 1;
                let theirs = connection.remote_id;
                let refusal = Refusal::of(AnsweredMessage::Req, RejectReason::StaleConnection);
                self.send_on(id, Message::Reject(refusal.message(CommId(0), theirs)));
            }
            // The timer of the REP, or nobody, answers.
            _ => {}
        }
    }

    /// Who is to get a REQ, and with which path MTU; or the first reason to refuse it. What means
    /// nothing on RoCE (LIDs, packet rate, SL, subnet local) is not looked at.
    //= M01, M02, M08, M14, 08-8.3
    fn check_request(
        &mut self,
        from: GidPair,
        request: &Request,
    ) -> Result<(ListenerId, Mtu), Refusal> {
        let refuse = |reason| Err(Refusal::of(AnsweredMessage::Req, reason));
        let refuse_with = |reason, info: &[u8]| {
            let ari = AdditionalInfo::new(info).unwrap_or_default();
            Err(Refusal { ari, ..Refusal::of(AnsweredMessage::Req, reason) })
        };
        let header = request.ip_cm().map(|(header, _)| header);
        let listener = self.listeners.find(request.service_id, header, from);
        let may_be_anothers = listener.is_none() && self.config.shares_addresses;
        let theirs = (request.local_ca_guid, request.local_qpn);
        if self.by_remote_qpn.contains_key(&theirs) && !may_be_anothers {
            return refuse(RejectReason::StaleConnection);
        }
        let Some(listener) = listener else { return refuse(RejectReason::InvalidServiceId) };
        if !is_supported(request.transport_service_type) {
            return refuse(RejectReason::InvalidTransportServiceType);
        }
        if request.primary_path.remote_gid != from.local {
            return refuse_with(RejectReason::InvalidGid, &from.local.0);
        }
        let Some(path_mtu) = request.path_mtu().filter(|mtu| *mtu <= self.config.path_mtu) else {
            return refuse_with(RejectReason::InvalidPathMtu, &[self.config.path_mtu.code()]);
        };
        if self.is_full() || !self.listeners.enqueue(listener) {
            return refuse(RejectReason::NoResources);
        }
        Ok((listener, path_mtu))
    }

    /// Makes a connection of a REQ and tells the application.
    //= M13
    fn take_request(
        &mut self,
        from: GidPair,
        transaction_id: u64,
        request: &Request,
        listener: ListenerId,
        path_mtu: Mtu,
    ) {
        let id = self.new_id();
        let path = &request.primary_path;
        let attributes = QpAttributes {
            transport: request.transport_service_type,
            path: GidPair { remote: path.local_gid, ..from },
            p_key: request.partition_key,
            path_mtu,
            dest_qpn: request.local_qpn,
            rq_psn: self.chance.psn(),
            sq_psn: request.starting_psn,
            max_dest_rd_atomic: request.initiator_depth.min(self.config.max_responder_resources),
            max_rd_atomic: request.responder_resources.min(self.config.max_initiator_depth),
            timeout: path.local_ack_timeout,
            retry_count: request.retry_count,
            rnr_retry: request.rnr_retry_count,
            flow_label: path.flow_label,
            traffic_class: path.traffic_class,
            hop_limit: path.hop_limit,
            sl: path.sl,
            rate: path.packet_rate,
        };
        // The other side says how long it may take to answer, ways included.
        let wait = request.local_cm_response_timeout.duration();
        let connection = Connection {
            state: State::ReqRcvd,
            is_active: false,
            remote_id: request.local_comm_id,
            remote_guid: request.local_ca_guid,
            path: from,
            transaction_id,
            waits_at: Some(listener),
            is_detached: false,
            local_qpn: Qpn::default(),
            attributes,
            repetition: Repetition::new(wait, request.max_cm_retries.get()),
            packet_lifetime: CmTimeout::from_bits(path.local_ack_timeout.code().saturating_sub(1)),
        };
        self.connections.insert(id, connection);
        self.by_remote_id.insert((request.local_ca_guid, request.local_comm_id), id);
        self.by_remote_qpn.insert((request.local_ca_guid, request.local_qpn), id);
        let (connection, request) = (ConnectionId(id), Box::new(*request));
        self.events.push_back(Event::Request { listener, connection, from, request });
    }

    /// An RTU: the other side is ready.
    pub(crate) fn on_ready_to_use(&mut self, from: GidPair, ready: &ReadyToUse) {
        let id = ready.remote_comm_id;
        let Some(connection) = self.find(from, id, ready.local_comm_id) else { return };
        match (connection.state, connection.is_active) {
            (State::RepSent | State::MraRepRcvd, _) => self.establish(id),
            (State::Established, false) => self.counters.duplicates += 1,
            _ => self.counters.ignore(Ignored::WrongState),
        }
    }

    fn establish(&mut self, id: CommId) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.state = State::Established;
            connection.repetition.message = None;
        }
        self.timers.clear(id);
        self.stands_or_not(id);
        self.tell(id, Event::Established { connection: ConnectionId(id) });
    }
}
