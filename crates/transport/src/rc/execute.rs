//! Requests that passed the ladder are carried out: memory changes, receives complete, answers are
//! kept.
//!
//! IBA vol 1 §9.7.5 (execution of requests). What fails only here breaks a rule as much as what the
//! ladder refuses.

use roxe_wire::opcode::Operation;
use roxe_wire::{FlushSelectivity, Packet, packets_for};

use crate::adapter::{Adapter, Count};
use crate::ending::Rule;
use crate::inbound::{Inbound, InboundWrite, received, store};
use crate::work::{Attributes, CompletionOpcode, Extra, Span};

use super::replay::Answer;
use super::responder::{Refusal, Responder, flushes};

impl Responder {
    /// Does what a request asks for.
    pub(super) fn execute(
        &mut self,
        attributes: &Attributes,
        packet: &Packet<'_>,
        adapter: &mut impl Adapter,
    ) -> Result<(), Refusal> {
        match packet.opcode.operation {
            Operation::Send => self.send(attributes, packet, adapter),
            Operation::Write => self.write(attributes, packet, adapter),
            Operation::ReadRequest => self.read(attributes, packet, adapter),
            Operation::CompareSwap | Operation::FetchAdd => self.atomic(packet, adapter),
            Operation::AtomicWrite => self.atomic_write(packet, adapter),
            Operation::Flush => self.flush(packet, adapter),
            _ => Err(Rule::Opcode.into()),
        }
    }

    //= R01, R26, R31, R32, BC-080
    fn send(
        &mut self,
        attributes: &Attributes,
        packet: &Packet<'_>,
        adapter: &mut impl Adapter,
    ) -> Result<(), Refusal> {
        let (receive, offset) = match self.message {
            Some(Inbound::Send { receive, offset }) => (receive, offset),
            _ => (adapter.take_receive().ok_or(Refusal::NotReady)?, 0),
        };
        // From here on the receive is ours: whatever goes wrong, `break_off` completes it.
        self.message = Some(Inbound::Send { receive, offset });
        let end = store(&receive, offset, packet.payload, adapter).map_err(Rule::from)?;
        self.message = Some(Inbound::Send { receive, offset: end });
        if packet.opcode.position.ends() {
            let extra = match (packet.headers.imm_dt, packet.headers.ieth) {
                (Some(imm), _) => Extra::Imm(imm),
                (None, Some(ieth)) => {
                    let invalidated = adapter.invalidate_remote(ieth.r_key);
                    invalidated.map_err(Rule::Invalidate)?;
                    Extra::Invalidated(ieth.r_key)
                }
                (None, None) => Extra::None,
            };
            self.message = None;
            self.msn = self.msn.next();
            adapter.complete_receive(
                receive,
                received(attributes, packet, &receive, CompletionOpcode::Recv, end, extra),
            );
        }
        self.expected = self.expected.next();
        Ok(())
    }

    //= R21, R25, BC-071, BC-072
    fn write(
        &mut self,
        attributes: &Attributes,
        packet: &Packet<'_>,
        adapter: &mut impl Adapter,
    ) -> Result<(), Refusal> {
        let write = InboundWrite::of(packet, self.message.as_ref()).ok_or(Rule::Sequence)?;
        if packet.opcode.position.starts() {
            adapter.count(Count::WriteRequests);
        }
        write.store(packet, adapter).map_err(Rule::Key)?;
        if packet.opcode.position.ends() {
            self.message = None;
            if let Some(imm) = packet.headers.imm_dt {
                let receive = adapter.take_receive().ok_or(Refusal::NotReady)?;
                let opcode = CompletionOpcode::RecvRdmaWithImm;
                let extra = Extra::Imm(imm);
                adapter.complete_receive(
                    receive,
                    received(attributes, packet, &receive, opcode, write.total, extra),
                );
            }
            self.msn = self.msn.next();
        } else {
            self.message = Some(Inbound::Write(write.behind(packet)));
        }
        self.expected = self.expected.next();
        Ok(())
    }

    //= R28, IBA C9-148
    fn read(
        &mut self,
        attributes: &Attributes,
        packet: &Packet<'_>,
        adapter: &mut impl Adapter,
    ) -> Result<(), Refusal> {
        let reth = packet.headers.reth.ok_or(Rule::Opcode)?;
        adapter.count(Count::ReadRequests);
        let span = packets_for(reth.dma_len, attributes.path_mtu.bytes());
        let answer = Answer::Read { r_key: reth.r_key, va: reth.va, len: reth.dma_len };
        // A READ counts as completed when it is accepted. C9-148
        self.answer_with(span, answer);
        Ok(())
    }

    /// Executes an atomic and keeps its result, so that a duplicate is never executed.
    //= R10, BC-050
    fn atomic(&mut self, packet: &Packet<'_>, adapter: &mut impl Adapter) -> Result<(), Refusal> {
        let atomic = packet.headers.atomic_eth.ok_or(Rule::Opcode)?;
        let operation = packet.opcode.operation;
        adapter.count(Count::AtomicRequests);
        let mut change = |found: u64| match operation {
            Operation::FetchAdd => Some(found.wrapping_add(atomic.swap_add)),
            _ => (found == atomic.compare).then_some(atomic.swap_add),
        };
        let original =
            adapter.atomic_remote(atomic.r_key, atomic.va, &mut change).map_err(Rule::Key)?;
        self.answer_with(1, Answer::Atomic { original, operation });
        Ok(())
    }

    fn atomic_write(
        &mut self,
        packet: &Packet<'_>,
        adapter: &mut impl Adapter,
    ) -> Result<(), Refusal> {
        let reth = packet.headers.reth.ok_or(Rule::Opcode)?;
        adapter.write_remote(reth.r_key, reth.va, packet.payload).map_err(Rule::Key)?;
        self.answer_with(1, Answer::Done { operation: Operation::AtomicWrite });
        Ok(())
    }

    fn flush(&mut self, packet: &Packet<'_>, adapter: &mut impl Adapter) -> Result<(), Refusal> {
        let headers = &packet.headers;
        let (feth, reth) = headers.feth.zip(headers.reth).ok_or(Rule::Opcode)?;
        let len = match feth.selectivity {
            FlushSelectivity::Range => u64::from(reth.dma_len),
            FlushSelectivity::MemoryRegion => 0,
            FlushSelectivity::Reserved(_) => return Err(Rule::FlushTarget.into()),
        };
        let span = Span { va: reth.va, len };
        if flushes(feth.placement).next().is_none() {
            return Err(Rule::FlushTarget.into());
        }
        let nothing = span.len == 0 && feth.selectivity == FlushSelectivity::Range;
        let wanted = flushes(feth.placement).filter(|_| !nothing);
        // What may not be done in full is not begun.
        for access in wanted.clone() {
            adapter.check_remote(reth.r_key, span, access).map_err(Rule::Key)?;
        }
        for access in wanted {
            adapter.flush_remote(reth.r_key, span, access).map_err(Rule::Key)?;
        }
        self.answer_with(1, Answer::Done { operation: Operation::Flush });
        Ok(())
    }

    /// Owes an answer that takes `span` PSNs.
    fn answer_with(&mut self, span: u32, answer: Answer) {
        self.resources.keep(self.expected, span, answer);
        self.expected = self.expected.advance(span);
        self.msn = self.msn.next();
    }
}
