//! How a connection ends: DREQ, DREP, and the wait until nothing of it can be under way.

use roxe_wire::mad::cm::{CommId, DisconnectReply, DisconnectRequest, PrivateData};
use roxe_wire::mad::{Mad, Message};
use roxe_wire::{Instant, Qpn};

use crate::agent::Agent;
use crate::config::time_wait;
use crate::connection::{ConnectionId, State};
use crate::counters::Ignored;
use crate::event::{CallError, Event};
use crate::service::{GidPair, private_data};

impl Agent {
    /// Ends a connection. The queue pair is to be moved to error before. Up to 220 bytes of private
    /// data. [`Event::Disconnected`] follows, answered or not. Does nothing when the other side was
    /// first.
    ///
    /// # Errors
    /// [`CallError::Gone`], [`CallError::WrongState`] when the connection never stood,
    /// [`CallError::PrivateDataTooLong`].
    pub fn disconnect(
        &mut self,
        now: Instant,
        id: ConnectionId,
        bytes: &[u8],
    ) -> Result<(), CallError> {
        let private_data = private_data(bytes)?;
        match self.own(id)?.state {
            State::Established => self.send_disconnect_request(now, id.0, private_data),
            State::DreqSent | State::TimeWait => {}
            _ => return Err(CallError::WrongState),
        }
        Ok(())
    }

    pub(crate) fn send_disconnect_request(
        &mut self,
        now: Instant,
        id: CommId,
        private_data: PrivateData<220>,
    ) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        connection.state = State::DreqSent;
        let request = DisconnectRequest {
            local_comm_id: id,
            remote_comm_id: connection.remote_id,
            remote_qpn: connection.attributes.dest_qpn,
            private_data,
        };
        let mad = Mad::new(Self::own_transaction(id), Message::DisconnectRequest(request));
        self.stands_or_not(id);
        self.send_until_answered(now, id, mad);
    }

    /// Somebody uses a queue pair for something new that we hold for connected: what it was
    /// connected to is over. IBA vol 1 §12.9.8.3.1.
    //= M08
    pub(crate) fn disconnect_stale(&mut self, now: Instant, remote: (u64, Qpn)) {
        let Some(id) = self.by_remote_qpn.get(&remote).copied() else { return };
        if self.connections.get(&id).is_some_and(|old| old.state == State::Established) {
            self.send_disconnect_request(now, id, PrivateData::ZERO);
        }
    }

    /// A DREQ is answered whatever we know of its connection; else its sender would ask for
    /// minutes.
    //= M06, M07, M15
    pub(crate) fn on_disconnect_request(
        &mut self,
        now: Instant,
        from: GidPair,
        transaction: u64,
        request: &DisconnectRequest,
    ) {
        let (ours, theirs) = (request.remote_comm_id, request.local_comm_id);
        let Some(connection) = self.connections.get(&ours) else {
            if self.config.shares_addresses {
                return self.counters.ignore(Ignored::MayBeAnothers);
            }
            self.counters.ignore(Ignored::Unknown);
            return self.send_disconnect_reply(from, 0, transaction, ours, theirs);
        };
        if !connection.is_with(from, theirs) {
            return self.counters.ignore(Ignored::Foreign);
        }
        let class = connection.attributes.traffic_class;
        match connection.state {
            State::ReqSent | State::MraReqRcvd | State::ReqRcvd | State::MraReqSent => {
                return self.counters.ignore(Ignored::WrongState);
            }
            _ if !self.is_own_qpn(ours, request.remote_qpn) => {
                return self.counters.ignore(Ignored::WrongQpn);
            }
            State::TimeWait => self.counters.duplicates += 1,
            State::RepRcvd
            | State::MraRepSent
            | State::RepSent
            | State::MraRepRcvd
            | State::Established
            | State::DreqSent => self.end(now, ours),
        }
        self.send_disconnect_reply(from, class, transaction, ours, theirs);
    }

    /// A DREQ names the queue pair of its receiver.
    fn is_own_qpn(&self, id: CommId, qpn: Qpn) -> bool {
        self.connections.get(&id).is_some_and(|connection| connection.local_qpn == qpn)
    }

    fn send_disconnect_reply(
        &mut self,
        path: GidPair,
        traffic_class: u8,
        transaction: u64,
        local_comm_id: CommId,
        remote_comm_id: CommId,
    ) {
        let private_data = PrivateData::ZERO;
        let reply = DisconnectReply { local_comm_id, remote_comm_id, private_data };
        self.send(path, traffic_class, Mad::new(transaction, Message::DisconnectReply(reply)));
    }

    /// A DREP: the other side knows.
    pub(crate) fn on_disconnect_reply(
        &mut self,
        now: Instant,
        from: GidPair,
        reply: &DisconnectReply,
    ) {
        let id = reply.remote_comm_id;
        let Some(connection) = self.find(from, id, reply.local_comm_id) else { return };
        match connection.state {
            State::DreqSent => self.end(now, id),
            State::TimeWait => self.counters.duplicates += 1,
            _ => self.counters.ignore(Ignored::WrongState),
        }
    }

    /// A connection is over.
    pub(crate) fn end(&mut self, now: Instant, id: CommId) {
        self.tell(id, Event::Disconnected { connection: ConnectionId(id) });
        self.enter_time_wait(now, id);
    }

    /// Keeps the communication ID until no packet of the connection can be under way. IBA vol 1
    /// §12.9.
    pub(crate) fn enter_time_wait(&mut self, now: Instant, id: CommId) {
        self.leave_backlog(id);
        self.forget_remote_qpn(id);
        self.stands_or_not(id);
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.state = State::TimeWait;
            connection.repetition.message = None;
            self.timers.set(id, now + time_wait(connection.attributes.timeout));
        }
    }
}
