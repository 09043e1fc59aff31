//! Unreliable connection: messages arrive whole or not at all, and nobody is told.
//!
//! IBA vol 1 §9.8.2. A PSN that does not come next means that the message in progress is lost; the
//! next First or Only begins afresh, and a receive that was taken for the lost message serves it.

use roxe_wire::opcode::{Header, Operation, Service};
use roxe_wire::{Headers, MAX_MESSAGE_LEN, Packet, Psn};

use crate::adapter::{Access, Adapter, Count, Receive};
use crate::emit::{Emitted, Outlet, emit};
use crate::ending::ReceiveFailure;
use crate::inbound::{Inbound, InboundWrite, Misplaced, check_remote, failed, received, store};
use crate::request::{fill, request_headers};
use crate::requester::Requester;
use crate::work::{AccessFlags, Attributes, CompletionOpcode, CompletionStatus, Extra};

/// The side that takes in the peer's messages.
#[derive(Debug, Default)]
pub(crate) struct Responder {
    expected: Psn,
    message: Option<Inbound>,
    /// A receive that could not be written: the queue pair is to end.
    misplaced: Option<Misplaced>,
    /// A receive whose message was lost: the next message gets it.
    spare: Option<Receive>,
    /// The message whose packets come is lost, and counted.
    is_lost: bool,
}

/// The message is dropped.
struct Lost;

impl Responder {
    pub(crate) fn begin(&mut self, attributes: &Attributes) {
        *self = Self { expected: attributes.rq_psn, ..Self::default() };
    }

    /// Takes in one request.
    //= U01, BC-037, 04-4.13
    pub(crate) fn handle_request(
        &mut self,
        attributes: &Attributes,
        packet: &Packet<'_>,
        adapter: &mut impl Adapter,
    ) {
        let psn = packet.headers.bth.psn;
        let starts = packet.opcode.position.starts();
        if psn != self.expected {
            adapter.count(Count::OutOfSequence);
        }
        if (psn != self.expected || starts) && self.message.is_some() {
            self.lose(adapter); // It will not be completed.
        }
        if psn != self.expected && !starts {
            return;
        }
        self.expected = psn.next();
        self.is_lost &= !starts;
        if !self.is_lost && self.take_in(attributes, packet, adapter).is_err() {
            self.lose(adapter);
        }
    }

    /// The message is lost. It counts once, however many packets of it are still to come.
    fn lose(&mut self, adapter: &mut impl Adapter) {
        adapter.count(Count::UcMessageDropped);
        self.is_lost = true;
        self.keep_receive();
    }

    //= U01
    fn keep_receive(&mut self) {
        if let Some(Inbound::Send { receive, .. }) = self.message.take() {
            debug_assert!(self.spare.is_none(), "a SEND begins with the spare receive");
            self.spare = Some(receive);
        }
    }

    fn take_in(
        &mut self,
        attributes: &Attributes,
        packet: &Packet<'_>,
        adapter: &mut impl Adapter,
    ) -> Result<(), Lost> {
        let mtu = attributes.path_mtu.bytes() as usize;
        if !packet.opcode.payload.allows(packet.payload.len(), mtu) {
            return Err(Lost);
        }
        match packet.opcode.operation {
            Operation::Send => self.send(attributes, packet, adapter),
            Operation::Write => self.write(attributes, packet, adapter),
            _ => Err(Lost),
        }
    }

    fn send(
        &mut self,
        attributes: &Attributes,
        packet: &Packet<'_>,
        adapter: &mut impl Adapter,
    ) -> Result<(), Lost> {
        let (receive, offset) = match self.message {
            Some(Inbound::Send { receive, offset }) => (receive, offset),
            None if packet.opcode.position.starts() => {
                let receive = self.spare.take().or_else(|| adapter.take_receive());
                (receive.ok_or_else(|| no_buffer(adapter))?, 0)
            }
            _ => return Err(Lost),
        };
        self.message = Some(Inbound::Send { receive, offset });
        let end = match store(&receive, offset, packet.payload, adapter) {
            Ok(end) => end,
            Err(ReceiveFailure::TooLong { .. }) => return Err(Lost),
            Err(why) => return Err(self.misplace(attributes, receive, why, adapter)),
        };
        if packet.opcode.position.ends() {
            self.message = None;
            let extra = packet.headers.imm_dt.map_or(Extra::None, Extra::Imm);
            let opcode = CompletionOpcode::Recv;
            let completion = received(attributes, packet, &receive, opcode, end, extra);
            adapter.complete_receive(receive, completion);
        } else {
            self.message = Some(Inbound::Send { receive, offset: end });
        }
        Ok(())
    }

    /// A receive's own memory cannot be written. That is no fault of the peer's, and no other
    /// message could be stored there: the receive completes.
    //= 05-5.3, BC-078
    fn misplace(
        &mut self,
        attributes: &Attributes,
        receive: Receive,
        why: ReceiveFailure,
        adapter: &mut impl Adapter,
    ) -> Lost {
        self.message = None;
        adapter.count(Count::ResponderCqeError);
        adapter.complete_receive(receive, failed(attributes, &receive, why.status()));
        self.misplaced = Some(Misplaced { receive, why });
        Lost
    }

    /// The receive that could not be written, if the last request found one so.
    pub(crate) const fn take_misplaced(&mut self) -> Option<Misplaced> {
        self.misplaced.take()
    }

    //= U02
    fn write(
        &mut self,
        attributes: &Attributes,
        packet: &Packet<'_>,
        adapter: &mut impl Adapter,
    ) -> Result<(), Lost> {
        let write = InboundWrite::of(packet, self.message.as_ref()).ok_or(Lost)?;
        if packet.opcode.position.starts() {
            let allowed = attributes.access.contain(AccessFlags::REMOTE_WRITE);
            let InboundWrite { key, va, total, .. } = write;
            if !allowed || total > MAX_MESSAGE_LEN {
                return Err(Lost);
            }
            check_remote(adapter, key, va, total, Access::Write).map_err(|_| Lost)?;
        }
        if !write.fits(packet) {
            return Err(Lost);
        }
        let imm = packet.opcode.has(Header::ImmDt);
        if imm && self.spare.is_none() && !adapter.has_receive() {
            return Err(no_buffer(adapter));
        }
        write.store(packet, adapter).map_err(|_| Lost)?;
        if !packet.opcode.position.ends() {
            self.message = Some(Inbound::Write(write.behind(packet)));
            return Ok(());
        }
        self.message = None;
        // Nobody sends again what is missing: one that did not come whole did not come.
        adapter.count(Count::WriteRequests);
        if let Some(imm) = packet.headers.imm_dt {
            let receive = self.spare.take().or_else(|| adapter.take_receive()).ok_or(Lost)?;
            let opcode = CompletionOpcode::RecvRdmaWithImm;
            let extra = Extra::Imm(imm);
            let completion = received(attributes, packet, &receive, opcode, write.total, extra);
            adapter.complete_receive(receive, completion);
        }
        Ok(())
    }

    /// The queue pair is reset: receives in hand go back.
    pub(crate) fn forget_message(&mut self, adapter: &mut impl Adapter) {
        self.keep_receive();
        if let Some(receive) = self.spare.take() {
            adapter.forget_receive(receive);
        }
    }

    /// The queue pair goes to error: receives in hand are flushed.
    pub(crate) fn flush_message(&mut self, attributes: &Attributes, adapter: &mut impl Adapter) {
        self.keep_receive();
        if let Some(receive) = self.spare.take() {
            adapter.count(Count::ResponderFlushed);
            let flushed = failed(attributes, &receive, CompletionStatus::Flushed);
            adapter.complete_receive(receive, flushed);
        }
    }
}

fn no_buffer(adapter: &mut impl Adapter) -> Lost {
    adapter.count(Count::OutOfBuffer);
    Lost
}

impl Requester {
    /// Sends the next packet of an unreliable connection. A message is done when its last packet is
    /// on its way.
    //= 04-4.13
    pub(crate) fn poll_unreliable(
        &mut self,
        attributes: &Attributes,
        draining: bool,
        outlet: Outlet<'_>,
        adapter: &mut impl Adapter,
    ) -> Option<Emitted> {
        self.do_local_operations(attributes, draining, adapter)?;
        let wqe = self.queue.front()?;
        if wqe.failed.is_some() || !wqe.begun && draining {
            return None;
        }
        if !wqe.begun {
            let several = wqe.len > attributes.path_mtu.bytes();
            if several && let Err(violation) = adapter.check_local(self.queue.sges(wqe), false) {
                return self.unreadable(violation);
            }
            let wqe = self.queue.get_mut(0)?;
            wqe.psn = self.send_end;
            wqe.span = wqe.packets(attributes.path_mtu);
        }
        let wqe = self.queue.front()?;
        let index = u32::try_from(self.send_end.since(wqe.psn)).ok()?;
        let mut headers = Headers::default();
        let payload = request_headers(Service::Uc, attributes, wqe, index, &mut headers)?;
        headers.bth.mig_req = self.conduct.mig_req;
        let emitted = emit(outlet, &mut headers, payload.len as usize, |place| {
            fill(&self.queue, wqe, &payload, place, adapter)
        })?;
        let emitted = match emitted {
            Ok(emitted) => emitted,
            Err(violation) => return self.unreadable(violation),
        };
        self.queue.get_mut(0)?.begun = true;
        self.sent_unreliably();
        if payload.position.ends() {
            self.complete_finished(attributes, adapter);
        }
        Some(emitted)
    }
}
