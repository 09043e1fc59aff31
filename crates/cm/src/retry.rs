//! What is not answered is sent again, up to a limit; and what asks for patience gets it.
//!
//! IBA vol 1 §12.6 (MRA), §12.7 (response timeouts, maximum CM retries).

use std::collections::{BTreeMap, BTreeSet};

use roxe_wire::Instant;
use roxe_wire::mad::Mad;
use roxe_wire::mad::cm::{AnsweredMessage, CommId, MessageReceipt};

use crate::agent::Agent;
use crate::connection::{ConnectionId, State};
use crate::counters::Ignored;
use crate::event::Event;
use crate::service::GidPair;

/// One deadline for each connection, resolution and question that waits for something.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    of: BTreeMap<CommId, Instant>,
    in_order: BTreeSet<(Instant, CommId)>,
}

impl Timers {
    pub(crate) fn set(&mut self, id: CommId, deadline: Instant) {
        if let Some(old) = self.of.insert(id, deadline) {
            self.in_order.remove(&(old, id));
        }
        self.in_order.insert((deadline, id));
    }

    pub(crate) fn clear(&mut self, id: CommId) {
        if let Some(old) = self.of.remove(&id) {
            self.in_order.remove(&(old, id));
        }
    }

    pub(crate) fn next(&self) -> Option<Instant> {
        self.in_order.first().map(|(deadline, _)| *deadline)
    }

    /// The next whose time has come.
    fn take_due(&mut self, now: Instant) -> Option<CommId> {
        let (_, id) = self.in_order.first().copied().filter(|(deadline, _)| *deadline <= now)?;
        self.clear(id);
        Some(id)
    }
}

impl Agent {
    /// Time has passed. A call too early does nothing.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some(id) = self.timers.take_due(now) {
            match self.connections.get(&id).map(|connection| connection.state) {
                Some(state) => self.expire(now, id, state),
                None => self.expire_datagram(now, id),
            }
        }
    }

    /// Sends a message that wants an answer.
    pub(crate) fn send_until_answered(&mut self, now: Instant, id: CommId, mad: Mad) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let (path, class) = (connection.path, connection.attributes.traffic_class);
        let repetition = &mut connection.repetition;
        repetition.message = Some(Box::new(mad));
        repetition.left = repetition.max;
        self.timers.set(id, now + repetition.wait);
        self.send(path, class, mad);
    }

    /// A connection has waited long enough.
    fn expire(&mut self, now: Instant, id: CommId, state: State) {
        match state {
            State::ReqSent | State::MraReqRcvd => {
                if !self.repeat(now, id, State::ReqSent) {
                    self.tell(id, Event::Unreachable { connection: ConnectionId(id) });
                    self.give_up(id, AnsweredMessage::Req);
                } else if state == State::ReqSent && self.is_first_repetition(id) {
                    self.tell(id, Event::AskedAgain { connection: ConnectionId(id) });
                }
            }
            State::RepSent | State::MraRepRcvd => {
                if !self.repeat(now, id, State::RepSent) {
                    self.tell(id, Event::Unreachable { connection: ConnectionId(id) });
                    self.give_up(id, AnsweredMessage::Rep);
                }
            }
            State::DreqSent => {
                if !self.repeat(now, id, State::DreqSent) {
                    self.end(now, id);
                }
            }
            State::TimeWait => {
                self.tell(id, Event::TimeWaitExit { connection: ConnectionId(id) });
                self.forget(id);
            }
            // The application's turn: nothing is awaited from the other side.
            State::ReqRcvd
            | State::MraReqSent
            | State::RepRcvd
            | State::MraRepSent
            | State::Established => {}
        }
    }

    fn is_first_repetition(&self, id: CommId) -> bool {
        self.connections.get(&id).is_some_and(|connection| connection.repetition.is_first())
    }

    /// Sends the last message again; false when that was done often enough.
    //= M04
    fn repeat(&mut self, now: Instant, id: CommId, state: State) -> bool {
        let Some(connection) = self.connections.get_mut(&id) else { return false };
        let (path, class) = (connection.path, connection.attributes.traffic_class);
        let repetition = &mut connection.repetition;
        let Some(mad) = repetition.message.as_deref().copied().filter(|_| repetition.left > 0)
        else {
            return false;
        };
        repetition.left -= 1;
        connection.state = state;
        self.timers.set(id, now + repetition.wait);
        self.counters.retransmissions += 1;
        self.send(path, class, mad);
        true
    }

    /// An MRA: the answer takes longer. Each transmission can be prolonged once.
    //= 08-8.4
    pub(crate) fn on_message_receipt(
        &mut self,
        now: Instant,
        from: GidPair,
        receipt: &MessageReceipt,
    ) {
        let id = receipt.remote_comm_id;
        let Some(connection) = self.find(from, id, receipt.local_comm_id) else { return };
        connection.state = match (connection.state, receipt.message_mraed) {
            (State::ReqSent, AnsweredMessage::Req) => State::MraReqRcvd,
            (State::RepSent, AnsweredMessage::Rep) => State::MraRepRcvd,
            _ => return self.counters.ignore(Ignored::WrongState),
        };
        let way = connection.packet_lifetime.duration();
        self.timers.set(id, now + receipt.service_timeout.duration() + way);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_expire_in_order_and_once() {
        let at = Instant::from_nanos;
        let mut timers = Timers::default();
        timers.set(CommId(1), at(30));
        timers.set(CommId(2), at(20));
        timers.set(CommId(3), at(20));
        timers.set(CommId(1), at(10));
        timers.clear(CommId(3));
        assert_eq!(timers.next(), Some(at(10)));
        assert_eq!(timers.take_due(at(9)), None);
        assert_eq!(timers.take_due(at(20)), Some(CommId(1)));
        assert_eq!(timers.take_due(at(20)), Some(CommId(2)));
        assert_eq!((timers.take_due(at(99)), timers.next()), (None, None));
    }
}
