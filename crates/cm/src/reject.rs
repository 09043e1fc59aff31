//! REJ: no connection, and why. From the other side, from the application, or because it goes away.

use roxe_wire::Instant;
use roxe_wire::mad::Message;
use roxe_wire::mad::cm::{
    AdditionalInfo, AnsweredMessage, CommId, PrivateData, Reject, RejectReason,
};

use crate::agent::Agent;
use crate::connection::{ConnectionId, State};
use crate::counters::Ignored;
use crate::event::{CallError, Event};
use crate::service::{GidPair, private_data};

/// Why a message is refused.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refusal {
    pub(crate) what: AnsweredMessage,
    pub(crate) reason: RejectReason,
    pub(crate) ari: AdditionalInfo,
}

impl Refusal {
    pub(crate) const fn of(what: AnsweredMessage, reason: RejectReason) -> Self {
        Self { what, reason, ari: AdditionalInfo::NONE }
    }

    /// The REJ that says so.
    pub(crate) const fn message(self, ours: CommId, theirs: CommId) -> Reject {
        Reject {
            local_comm_id: ours,
            remote_comm_id: theirs,
            message_rejected: self.what,
            ari: self.ari,
            reason: self.reason,
            private_data: PrivateData::ZERO,
        }
    }
}

impl Agent {
    /// Refuses a request, or a reply that came to one. Programs of librdmacm say
    /// [`RejectReason::ConsumerReject`]; whoever makes queue pairs may say
    /// [`RejectReason::NoQp`]. Up to 148 bytes of private data. The connection is gone, or, when
    /// the other side had its queue pair ready, in time wait.
    ///
    /// # Errors
    /// [`CallError::Gone`], [`CallError::WrongState`] when there is nothing to refuse,
    /// [`CallError::PrivateDataTooLong`].
    pub fn reject(
        &mut self,
        now: Instant,
        id: ConnectionId,
        reason: RejectReason,
        bytes: &[u8],
    ) -> Result<(), CallError> {
        let private_data = private_data(bytes)?;
        let refusal = match self.own(id)?.state {
            State::ReqRcvd | State::MraReqSent => Refusal::of(AnsweredMessage::Req, reason),
            State::RepRcvd | State::MraRepSent => Refusal::of(AnsweredMessage::Rep, reason),
            _ => return Err(CallError::WrongState),
        };
        self.refuse(now, id.0, refusal, private_data);
        Ok(())
    }

    /// The application wants to hear no more of a connection, whatever its state: it is refused,
    /// given up or disconnected, and stays as long as the protocol needs it.
    ///
    /// # Errors
    /// [`CallError::Gone`].
    pub fn destroy(&mut self, now: Instant, id: ConnectionId) -> Result<(), CallError> {
        let connection = self.own(id)?;
        connection.is_detached = true;
        let state = connection.state;
        let id = id.0;
        let gone = RejectReason::ConsumerReject;
        let none = PrivateData::ZERO;
        match state {
            State::ReqSent | State::MraReqRcvd => self.give_up(id, AnsweredMessage::Req),
            State::ReqRcvd | State::MraReqSent => {
                self.refuse(now, id, Refusal::of(AnsweredMessage::Req, gone), none);
            }
            State::RepRcvd | State::MraRepSent => {
                self.refuse(now, id, Refusal::of(AnsweredMessage::Rep, gone), none);
            }
            State::RepSent | State::MraRepRcvd => {
                self.refuse(now, id, Refusal::of(AnsweredMessage::Other, gone), none);
            }
            State::Established => self.send_disconnect_request(now, id, PrivateData::ZERO),
            State::DreqSent | State::TimeWait => {}
        }
        Ok(())
    }

    /// Sends a REJ and ends the connection.
    fn refuse(
        &mut self,
        now: Instant,
        id: CommId,
        refusal: Refusal,
        private_data: PrivateData<148>,
    ) {
        let Some(connection) = self.connections.get(&id) else { return };
        // A request that was never answered has no name of ours.
        let ours = if connection.state == State::ReqRcvd { CommId(0) } else { id };
        let reject = Reject { private_data, ..refusal.message(ours, connection.remote_id) };
        self.send_on(id, Message::Reject(reject));
        match refusal.what {
            AnsweredMessage::Rep => self.enter_time_wait(now, id),
            _ => self.forget(id),
        }
    }

    /// Tells the other side that we wait no more, and forgets the connection. The adapter's GUID
    /// lets it find who is meant when it never told us its name.
    //= M04
    pub(crate) fn give_up(&mut self, id: CommId, what: AnsweredMessage) {
        let Some(connection) = self.connections.get(&id) else { return };
        let guid = self.config.ca_guid.to_be_bytes();
        let ari = AdditionalInfo::new(&guid).unwrap_or_default();
        let refusal = Refusal { ari, ..Refusal::of(what, RejectReason::Timeout) };
        let reject = refusal.message(id, connection.remote_id);
        self.send_on(id, Message::Reject(reject));
        self.forget(id);
    }

    /// A REJ: the other side refuses, or gives up.
    //= 08-8.3
    pub(crate) fn on_reject(&mut self, now: Instant, from: GidPair, reject: &Reject) {
        let id = self.rejected(reject);
        // Who refuses a REQ at once may have no name for it.
        let theirs = match (reject.local_comm_id, self.connections.get(&id)) {
            (CommId(0), Some(connection)) => connection.remote_id,
            (theirs, _) => theirs,
        };
        let Some(connection) = self.find(from, id, theirs) else { return };
        let event = Event::Rejected { connection: ConnectionId(id), reject: Box::new(*reject) };
        match connection.state {
            State::ReqSent
            | State::MraReqRcvd
            | State::ReqRcvd
            | State::MraReqSent
            | State::RepSent
            | State::MraRepRcvd => {
                self.tell(id, event);
                if reject.reason == RejectReason::StaleConnection {
                    self.enter_time_wait(now, id);
                } else {
                    self.forget(id);
                }
            }
            State::RepRcvd | State::MraRepSent | State::Established => {
                self.tell(id, event);
                self.enter_time_wait(now, id);
            }
            State::DreqSent => self.end(now, id),
            State::TimeWait => self.counters.ignore(Ignored::WrongState),
        }
    }

    /// Our name for what is rejected: who gives up early does not know it, but tells its adapter's
    /// GUID.
    fn rejected(&self, reject: &Reject) -> CommId {
        let guid = reject.ari.as_bytes().try_into().map(u64::from_be_bytes);
        match (reject.remote_comm_id, reject.reason, guid) {
            (CommId(0), RejectReason::Timeout, Ok(guid)) => {
                let id = self.by_remote_id.get(&(guid, reject.local_comm_id));
                id.copied().unwrap_or_default()
            }
            (id, _, _) => id,
        }
    }
}
