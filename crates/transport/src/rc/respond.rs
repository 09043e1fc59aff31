//! What a responder owes: acknowledgements, NAKs, data of READs, results of atomics.
//!
//! IBA vol 1 §9.7.5. Which answer is owed when is in `acknowledge.rs`, and for requests with
//! answers of their own in `replay.rs`; here it becomes a packet.

use roxe_wire::opcode::{Header, Operation, Position, Service};
use roxe_wire::{
    Aeth, AtomicAckEth, Bth, Credits, Headers, Instant, NakCode, Opcode, Psn, Syndrome,
};

use crate::adapter::{Adapter, Count, KeyViolation};
use crate::emit::{Emitted, Outlet, emit};
use crate::ending::Rule;
use crate::inbound::Inbound;
use crate::work::Attributes;

use super::acknowledge;
use super::broken::Broken;
use super::replay::{Answer, Due};
use super::responder::Responder;

impl Responder {
    /// Whether something is to be sent.
    pub(crate) fn has_work(&self) -> bool {
        self.resources.has_due() || self.owed.any()
    }

    /// Whether what is owed next is data of a READ.
    pub(crate) fn next_is_data(&self, attributes: &Attributes) -> bool {
        let due = self.resources.next(attributes.path_mtu);
        due.is_some_and(|due| due.len != 0 && !self.owed.goes_before(due.psn))
    }

    /// The newest request that was executed.
    const fn newest(&self) -> Psn {
        self.expected.previous()
    }

    /// Writes the next answer that is owed, in the order of PSNs.
    //= IBA C9-110, 04-4.3, S02, BC-058
    #[inline]
    pub(crate) fn poll(
        &mut self,
        attributes: &Attributes,
        outlet: Outlet<'_>,
        adapter: &mut impl Adapter,
    ) -> Result<Option<Emitted>, Broken> {
        let due = self.resources.next(attributes.path_mtu);
        if let Some(due) = due.filter(|due| !self.owed.goes_before(due.psn)) {
            return self.send_due(attributes, due, outlet, adapter);
        }
        let newest = self.positive(adapter);
        let Some(answer) = self.owed.next(newest) else { return Ok(None) };
        let emitted = self.send_acknowledge(attributes, answer, outlet);
        let Some(emitted) = emitted else { return Ok(None) };
        self.owed.sent();
        match answer.syndrome {
            Syndrome::Ack(_) => adapter.count(Count::AckSent),
            Syndrome::RnrNak(_) => adapter.count(Count::RnrNakSent),
            Syndrome::Nak(NakCode::PsnSequenceError) => adapter.count(Count::SequenceNakSent),
            Syndrome::Nak(_) => adapter.count(Count::FatalNakSent),
        }
        Ok(Some(emitted))
    }

    /// Somebody asked for an acknowledgement.
    pub(super) fn acknowledge(&mut self, now: Instant, adapter: &impl Adapter) {
        let newest = self.positive(adapter);
        self.owed.acknowledge(self.conduct.acknowledge, now, newest);
    }

    /// The positive answer to all that was executed.
    fn positive(&self, adapter: &impl Adapter) -> acknowledge::Answer {
        let syndrome = Syndrome::Ack(self.credits(adapter));
        acknowledge::Answer { psn: self.newest(), syndrome, msn: self.msn }
    }

    /// How many messages beyond those completed have a receive buffer.
    //= 06-6.2
    fn credits(&self, adapter: &impl Adapter) -> Credits {
        if !self.conduct.grants_credits {
            return Credits::INVALID;
        }
        let begun = u32::from(matches!(self.message, Some(Inbound::Send { .. })));
        let buffers = adapter.receives().map(|waiting| waiting.saturating_add(begun));
        buffers.map_or(Credits::INVALID, Credits::for_buffers)
    }

    /// When [`Responder::handle_timeout`] is to be called.
    pub(crate) const fn deadline(&self) -> Option<Instant> {
        self.owed.deadline()
    }

    /// Time has passed.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        self.owed.handle_timeout(now);
    }

    fn send_acknowledge(
        &self,
        attributes: &Attributes,
        answer: acknowledge::Answer,
        outlet: Outlet<'_>,
    ) -> Option<Emitted> {
        let opcode = Opcode::find(Service::Rc, Operation::Acknowledge, Position::Only, None)?;
        let mut headers = self.response_headers(attributes, opcode, answer.psn);
        headers.aeth = Some(Aeth { syndrome: answer.syndrome, msn: answer.msn });
        emit(outlet, &mut headers, 0, |_| Ok::<_, KeyViolation>(()))?.ok()
    }

    //= R28, BC-055
    fn send_due(
        &mut self,
        attributes: &Attributes,
        due: Due,
        outlet: Outlet<'_>,
        adapter: &mut impl Adapter,
    ) -> Result<Option<Emitted>, Broken> {
        let (operation, position) = match due.answer {
            Answer::Atomic { .. } => (Operation::AtomicAcknowledge, Position::Only),
            Answer::Done { .. } => (Operation::ReadResponse, Position::Only),
            Answer::Read { .. } => (Operation::ReadResponse, Position::of(due.first, due.last)),
        };
        let Some(opcode) = Opcode::find(Service::Rc, operation, position, None) else {
            return Ok(None);
        };
        let mut headers = self.response_headers(attributes, opcode, due.psn);
        if opcode.has(Header::Aeth) {
            let syndrome = Syndrome::Ack(self.credits(adapter));
            headers.aeth = Some(Aeth { syndrome, msn: self.msn });
        }
        if let Answer::Atomic { original, .. } = due.answer {
            headers.atomic_ack_eth = Some(AtomicAckEth { original });
        }
        let emitted = emit(outlet, &mut headers, due.len as usize, |place| match due.answer {
            Answer::Read { r_key, va, .. } if due.len != 0 => {
                adapter.read_remote(r_key, va.wrapping_add(u64::from(due.offset)), place)
            }
            _ => Ok(()),
        });
        match emitted {
            None => Ok(None),
            Some(Ok(emitted)) => {
                self.resources.sent();
                self.owed.implied_by(due.psn, self.newest());
                Ok(Some(emitted))
            }
            Some(Err(violation)) => {
                // The memory went away after the READ was accepted. BC-055
                self.resources.stop();
                Err(Broken { psn: due.psn, rule: Rule::ReadKey(violation) })
            }
        }
    }

    //= 04-4.12
    fn response_headers(&self, attributes: &Attributes, opcode: &Opcode, psn: Psn) -> Headers {
        Headers {
            bth: Bth {
                opcode: opcode.code,
                mig_req: self.conduct.mig_req,
                p_key: attributes.p_key,
                dest_qp: attributes.dest_qp,
                psn,
                ..Bth::default()
            },
            ..Headers::default()
        }
    }
}
