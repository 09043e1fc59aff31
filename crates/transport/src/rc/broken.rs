//! How a connection ends on the responder's side: what the peer gets, what becomes of the receive
//! in hand, and what is told of the request that did it.

use roxe_wire::opcode::{Operation, Position, Service};
use roxe_wire::{Bth, NakCode, Opcode, Packet, Psn, Syndrome};

use crate::adapter::{Adapter, Count, QpEvent};
use crate::ending::{PeerRequest, Rule};
use crate::inbound::{Inbound, InboundWrite, failed, payload_len};
use crate::work::{Attributes, CompletionStatus};

use super::responder::Responder;

/// The connection ends on the responder's side: [`Responder::break_off`] is to be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Broken {
    /// The packet that ends it.
    pub(crate) psn: Psn,
    /// Which rule it breaks.
    pub(crate) rule: Rule,
}

impl Responder {
    /// The connection ends: the peer is told, a receive in hand completes. Gives the code of the
    /// NAK that the peer gets.
    //= R17, R12, BC-030, BC-095, IBA C9-222.1.1, 05-5.4
    pub(crate) fn break_off(
        &mut self,
        attributes: &Attributes,
        Broken { psn, rule }: Broken,
        adapter: &mut impl Adapter,
    ) -> NakCode {
        if rule == Rule::ReceiveLength {
            adapter.count(Count::ResponderLengthError);
        }
        if rule.event() == QpEvent::AccessError {
            adapter.count(Count::AccessRefused);
        }
        let code = match rule {
            Rule::ReceiveLength => self.conduct.too_long,
            _ => rule.nak(),
        };
        self.owed.refuse(psn, Syndrome::Nak(code));
        if let Some(Inbound::Send { receive, .. }) = self.message.take() {
            adapter.count(Count::ResponderCqeError);
            let status = rule.receive_status();
            adapter.complete_receive(receive, failed(attributes, &receive, status));
        }
        code
    }

    /// What is to be told of a packet that ends the connection, before [`Responder::break_off`].
    pub(crate) fn describe(&self, bth: &Bth, packet: Option<&Packet<'_>>) -> PeerRequest {
        let headers = packet.map(|packet| &packet.headers);
        let reth = headers.and_then(|headers| headers.reth);
        let atomic = headers.and_then(|headers| headers.atomic_eth);
        let remote = match (reth, atomic, self.message) {
            (Some(reth), ..) => Some((reth.r_key, reth.va, reth.dma_len)),
            (None, Some(atomic), _) => Some((atomic.r_key, atomic.va, 8)),
            (None, None, Some(Inbound::Write(InboundWrite { key, va, remaining, .. }))) => {
                Some((key, va, remaining))
            }
            _ => None,
        };
        PeerRequest {
            opcode: bth.opcode,
            psn: bth.psn,
            payload: packet.map_or(0, payload_len),
            remote,
            receive: match self.message {
                Some(Inbound::Send { receive, offset }) => Some((receive, offset)),
                _ => None,
            },
        }
    }

    /// The same for a READ whose memory went away before its response with `psn` was sent.
    pub(crate) fn describe_read(&self, psn: Psn) -> PeerRequest {
        let row = Opcode::find(Service::Rc, Operation::ReadRequest, Position::Only, None);
        let opcode = row.map_or(0, |row| row.code);
        let bth = Bth { opcode, psn, ..Bth::default() };
        let remote = self.resources.read_with(psn);
        PeerRequest { remote, ..self.describe(&bth, None) }
    }

    /// The queue pair goes to error for another reason: what is in hand is flushed. Answers owed
    /// for what was executed, and a NAK, are still sent.
    //= R36, 05-5.2
    pub(crate) fn flush_message(&mut self, attributes: &Attributes, adapter: &mut impl Adapter) {
        if let Some(Inbound::Send { receive, .. }) = self.message.take() {
            adapter.count(Count::ResponderFlushed);
            let flushed = failed(attributes, &receive, CompletionStatus::Flushed);
            adapter.complete_receive(receive, flushed);
        }
    }

    /// The queue pair is reset: a receive in hand goes back.
    pub(crate) fn forget_message(&mut self, adapter: &mut impl Adapter) {
        if let Some(Inbound::Send { receive, .. }) = self.message.take() {
            adapter.forget_receive(receive);
        }
    }
}
