//! What the agent tells, in the words of identifiers.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use roxe_cm::{ConnectionId, Event, GidPair, ListenerId, RejectReason, TransportServiceType};
use roxe_device::address_handle::AddressVector;
use roxe_transport::qp_state::ServiceType;
use roxe_wire::Instant;
use roxe_wire::mad::cm::{
    AnsweredMessage, IpCmHeader, PortSpace, Reply, Request, ServiceId, SidrReply, SidrStatus,
};

use crate::cm::CmOptions;
use crate::cm::event::{CmEvent, CmEventKind, CmIdKey, DatagramPeer, Offer};
use crate::cm::manager::{Record, Role, State};
use crate::cm::obstacle::Obstacle;
use crate::events::Mailbox;

impl State {
    /// Tells whoever it concerns. `vector` makes an address vector between two addresses.
    pub(super) fn tell(
        &mut self,
        now: Instant,
        event: Event,
        vector: impl Fn(IpAddr, IpAddr) -> Option<AddressVector>,
    ) {
        match event {
            Event::Request { listener, connection, from, request } => {
                let parsed = request.ip_cm();
                let remote = caller(from, parsed.map(|(header, _)| header));
                let service = request.service_id;
                let role = Role::Connection(connection);
                let Some((id, key)) = self.admit(listener, role, from, remote, service) else {
                    let _ = self.agent.destroy(now, connection);
                    return;
                };
                self.whose.connections.insert(connection, key);
                let kind = CmEventKind::ConnectRequest {
                    request: key,
                    service: match request.transport_service_type {
                        TransportServiceType::UnreliableConnection => ServiceType::Uc,
                        _ => ServiceType::Rc,
                    },
                    offer: Box::new(offer_of_request(&request)),
                };
                self.put(id, kind);
            }
            Event::Question { listener, question, from, request } => {
                let parsed = request.ip_cm();
                let remote = caller(from, parsed.map(|(header, _)| header));
                let service = request.service_id;
                let role = Role::Question(question);
                // One whose listener is gone is not answered, as one that was lost.
                let Some((id, key)) = self.admit(listener, role, from, remote, service) else {
                    return;
                };
                let private_data =
                    parsed.map_or(request.private_data.as_bytes(), |(_, rest)| rest).into();
                self.put(id, CmEventKind::DatagramRequest { request: key, private_data });
            }
            Event::Reply { connection, reply, .. } => {
                let offer = Box::new(offer_of_reply(&reply));
                self.tell_of(connection, CmEventKind::ConnectResponse(offer));
            }
            Event::Established { connection } => {
                self.tell_of(connection, CmEventKind::Established);
            }
            Event::Rejected { connection, reject } => {
                let private_data = reject.private_data.as_bytes().into();
                let reason = reject.reason;
                // Else who asked refuses, or gives up.
                let is_answer = reject.message_rejected == AnsweredMessage::Req;
                if is_answer && reason != RejectReason::Timeout {
                    self.meet(self.id_of(connection), Obstacle::Refused(reason));
                }
                self.tell_of(connection, CmEventKind::Rejected { reason, private_data });
            }
            Event::Refused { connection, reason } => {
                self.tell_of(connection, CmEventKind::ConnectError { reason });
            }
            Event::AskedAgain { connection } => {
                self.meet(self.id_of(connection), Obstacle::Unanswered);
            }
            Event::Unreachable { connection } => {
                let id = self.id_of(connection);
                // Who has accepted does not ask.
                let asks = id.and_then(|id| self.ids.get(&id)).is_some_and(|it| it.qpn.is_none());
                if asks {
                    self.meet(id, Obstacle::Silent);
                }
                self.tell_of(connection, CmEventKind::Unreachable);
            }
            Event::Disconnected { connection } => {
                self.tell_of(connection, CmEventKind::Disconnected);
            }
            Event::TimeWaitExit { connection } => {
                self.tell_of(connection, CmEventKind::TimewaitExit);
            }
            Event::Resolved { resolution, reply } => {
                let Some(id) = self.whose.resolutions.remove(&resolution) else { return };
                let ends = self.ids.get(&id).and_then(|it| Some((it.local?, it.remote?)));
                let vector = ends.and_then(|(local, remote)| vector(local.ip(), remote.ip()));
                if reply.status != SidrStatus::Valid {
                    self.meet(Some(id), Obstacle::NoDatagrams(reply.status));
                }
                self.put(id, datagram_peer(&reply, vector));
            }
            Event::LookedForAgain { resolution } => {
                let id = self.whose.resolutions.get(&resolution).copied();
                self.meet(id, Obstacle::Unanswered);
            }
            Event::Unresolved { resolution } => {
                let Some(id) = self.whose.resolutions.remove(&resolution) else { return };
                self.meet(Some(id), Obstacle::Silent);
                self.put(id, CmEventKind::Unreachable);
            }
            Event::Unserved { service, refusal } => {
                let called = refusal.path.local.to_ip();
                if self.ports.is_anothers(service, called) {
                    self.agent.leave_to_another();
                } else {
                    self.agent.refuse_call(*refusal);
                }
            }
        }
    }

    fn id_of(&self, connection: ConnectionId) -> Option<CmIdKey> {
        self.whose.connections.get(&connection).copied()
    }

    /// Tells of a connection. A request that is gone before anybody took it was never there: who
    /// asks and gives up again and again leaves nothing behind.
    fn tell_of(&mut self, connection: ConnectionId, kind: CmEventKind) {
        let Some(&id) = self.whose.connections.get(&connection) else { return };
        let is_gone = self.agent.state(connection).is_none();
        if is_gone {
            self.whose.connections.remove(&connection);
        }
        let Some(record) = self.ids.get_mut(&id) else { return };
        if let Some(qpn) = record.qpn.take() {
            self.whose.accepted.remove(&qpn);
        }
        if !is_gone || record.untaken_of.is_none() {
            return self.put(id, kind);
        }
        record.channel.retain(|event| event.id != id && event.request() != Some(id));
        self.ids.remove(&id);
    }

    /// An identifier for what somebody asks of a listener, and the listener's.
    fn admit(
        &mut self,
        listener: ListenerId,
        role: Role,
        from: GidPair,
        remote: SocketAddr,
        service: ServiceId,
    ) -> Option<(CmIdKey, CmIdKey)> {
        let &id = self.whose.listeners.get(&listener)?;
        let of = self.ids.get(&id)?;
        let port = service.port().map_or(0, |(_, port)| port);
        let record = Record {
            role,
            local: Some(SocketAddr::new(from.local.to_ip(), port)),
            remote: Some(remote),
            untaken_of: Some(id),
            ..Record::new(of.space, Arc::clone(&of.channel))
        };
        let key = CmIdKey::next();
        self.ids.insert(key, record);
        Some((id, key))
    }
}

/// Who calls.
fn caller(from: GidPair, header: Option<IpCmHeader>) -> SocketAddr {
    match header {
        Some(header) => SocketAddr::new(header.addresses.source(), header.source_port),
        None => SocketAddr::new(from.remote.to_ip(), 0),
    }
}

/// What a REQ offers, as its receiver sees it.
fn offer_of_request(request: &Request) -> Offer {
    let private_data = request.ip_cm().map_or(request.private_data.as_bytes(), |(_, rest)| rest);
    Offer {
        qpn: request.local_qpn,
        private_data: private_data.into(),
        responder_resources: request.initiator_depth,
        initiator_depth: request.responder_resources,
        flow_control: request.end_to_end_flow_control,
        retry_count: request.retry_count.get(),
        rnr_retry_count: request.rnr_retry_count.get(),
        srq: request.srq,
    }
}

/// What a REP says, as its receiver sees it.
fn offer_of_reply(reply: &Reply) -> Offer {
    Offer {
        qpn: reply.local_qpn,
        private_data: reply.private_data.as_bytes().into(),
        responder_resources: reply.initiator_depth,
        initiator_depth: reply.responder_resources,
        flow_control: reply.end_to_end_flow_control,
        retry_count: 0,
        rnr_retry_count: reply.rnr_retry_count.get(),
        srq: reply.srq,
    }
}

/// What the answer of a datagram service means. Without a vector our address is gone.
fn datagram_peer(reply: &SidrReply, vector: Option<AddressVector>) -> CmEventKind {
    let private_data = reply.private_data.as_bytes().into();
    let (qpn, q_key) = (reply.qpn, reply.q_key);
    match (reply.status, vector) {
        (SidrStatus::Valid, Some(vector)) => {
            CmEventKind::DatagramEstablished(Box::new(DatagramPeer {
                vector,
                qpn,
                q_key,
                private_data,
            }))
        }
        (SidrStatus::Valid, None) => CmEventKind::Unreachable,
        (status, _) => CmEventKind::DatagramRefused { status, private_data },
    }
}

impl Record {
    /// One that is nothing yet.
    pub(super) fn new(space: PortSpace, channel: Arc<Mailbox<CmEvent>>) -> Self {
        Self {
            channel,
            space,
            role: Role::Idle,
            local: None,
            bound_to: None,
            remote: None,
            untaken_of: None,
            qpn: None,
            options: CmOptions::default(),
        }
    }
}
