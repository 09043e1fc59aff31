//! Unreliable connection: messages arrive whole or not at all, and nobody is told.
//!
//! IBA vol 1 §9.8.2. A PSN that does not come next means that the message in progress is lost; the
//! next First or Only begins afresh, and a receive that was taken for the lost message serves it.

use roxe_wire::opcode::{Header, Operation, Position, Service};
use roxe_wire::{Headers, MAX_MESSAGE_LEN, Packet, Psn, RKey};

use crate::adapter::{Access, Adapter, Count, KeyViolation, Receive, Span};
use crate::emit::{Emitted, Outlet, emit};
use crate::ending::ReceiveFailure;
use crate::rc::{LocalFailure, Requester, failed, received};
use crate::request::{fill, request_headers};
use crate::ud::Misplaced;
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

#[derive(Clone, Copy, Debug)]
enum Inbound {
    Send { receive: Receive, offset: u32 },
    Write { key: RKey, va: u64, remaining: u32, total: u32 },
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
        if psn != self.expected || starts {
            self.drop_message(adapter);
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

    /// The message in progress will not be completed.
    fn drop_message(&mut self, adapter: &mut impl Adapter) {
        if self.message.is_some() {
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
        let len = u32::try_from(packet.payload.len()).map_err(|_| Lost)?;
        let end = offset.checked_add(len).filter(|end| *end <= receive.len).ok_or(Lost)?;
        if len != 0 {
            let scattered = adapter.scatter_receive(&receive, offset, packet.payload);
            scattered
                .map_err(|violation| self.misplace(attributes, receive, violation, adapter))?;
        }
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
        violation: KeyViolation,
        adapter: &mut impl Adapter,
    ) -> Lost {
        self.message = None;
        let why = ReceiveFailure::Key(violation);
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
        let (key, va, remaining, total) = match (packet.headers.reth, self.message) {
            (Some(reth), None) => {
                let allowed = attributes.access.contain(AccessFlags::REMOTE_WRITE);
                if !allowed || reth.dma_len > MAX_MESSAGE_LEN {
                    return Err(Lost);
                }
                if reth.dma_len != 0 {
                    let span = Span { va: reth.va, len: u64::from(reth.dma_len) };
                    adapter.check_remote(reth.r_key, span, Access::Write).map_err(|_| Lost)?;
                }
                (reth.r_key, reth.va, reth.dma_len, reth.dma_len)
            }
            (None, Some(Inbound::Write { key, va, remaining, total })) => {
                (key, va, remaining, total)
            }
            _ => return Err(Lost),
        };
        if packet.opcode.position.starts() {
            adapter.count(Count::WriteRequests);
        }
        let len = u32::try_from(packet.payload.len()).map_err(|_| Lost)?;
        let ends = packet.opcode.position.ends();
        if len > remaining || ends && len != remaining || !ends && len == remaining {
            return Err(Lost);
        }
        let imm = packet.opcode.has(Header::ImmDt);
        if imm && self.spare.is_none() && !adapter.has_receive() {
            return Err(no_buffer(adapter));
        }
        if len != 0 {
            adapter.write_remote(key, va, packet.payload).map_err(|_| Lost)?;
        }
        if !ends {
            let (va, remaining) = (va.wrapping_add(u64::from(len)), remaining - len);
            self.message = Some(Inbound::Write { key, va, remaining, total });
            return Ok(());
        }
        self.message = None;
        if let Some(imm) = packet.headers.imm_dt {
            let receive = self.spare.take().or_else(|| adapter.take_receive()).ok_or(Lost)?;
            let opcode = CompletionOpcode::RecvRdmaWithImm;
            let extra = Extra::Imm(imm);
            let completion = received(attributes, packet, &receive, opcode, total, extra);
            adapter.complete_receive(receive, completion);
        }
        Ok(())
    }

    /// The queue pair is reset: receives in hand go back.
    pub(crate) fn forget(&mut self, adapter: &mut impl Adapter) {
        self.keep_receive();
        if let Some(receive) = self.spare.take() {
            adapter.forget_receive(receive);
        }
    }

    /// The queue pair goes to error: receives in hand are flushed.
    pub(crate) fn flush(&mut self, attributes: &Attributes, adapter: &mut impl Adapter) {
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
                return self.failed_here(LocalFailure::Read(violation));
            }
            let wqe = self.queue.get_mut(0)?;
            wqe.psn = self.next;
            wqe.span = wqe.packets(attributes.path_mtu);
        }
        let wqe = self.queue.front()?;
        let index = u32::try_from(self.next.since(wqe.psn)).ok()?;
        let mut headers = Headers::default();
        let payload = request_headers(Service::Uc, attributes, wqe, index, &mut headers)?;
        headers.bth.mig_req = self.conduct.mig_req;
        let emitted = emit(outlet, &mut headers, payload.len as usize, |place| {
            fill(&self.queue, wqe, &payload, place, adapter)
        })?;
        let emitted = match emitted {
            Ok(emitted) => emitted,
            Err(violation) => return self.failed_here(LocalFailure::Read(violation)),
        };
        self.queue.get_mut(0)?.begun = true;
        self.next = self.next.next();
        self.psn = self.next;
        self.unacknowledged = self.next;
        if matches!(payload.position, Position::Last | Position::Only) {
            self.complete_finished(attributes, adapter);
        }
        Some(emitted)
    }
}
