//! Unreliable datagrams: one packet a message, to anybody, from anybody with the right key.
//!
//! IBA vol 1 §9.8.3. A receive buffer begins with 40 bytes for the header that tells where the
//! datagram came from. PSNs are counted on the way out and not looked at on the way in.

use core::net::IpAddr;

use roxe_wire::opcode::{Header, Operation, Position, Service};
use roxe_wire::{Bth, Deth, DropReason, Grh, Headers, Opcode, Packet, Payload, QKey};

use crate::adapter::{Adapter, Count};
use crate::emit::{Emitted, Outlet, emit};
use crate::ending::ReceiveFailure;
use crate::failure::LocalFailure;
use crate::inbound::{Misplaced, payload_len, received};
use crate::request::fill;
use crate::requester::Requester;
use crate::segment::Segment;
use crate::work::{Attributes, CompletionOpcode, Extra, SendOperation};

/// Takes in one datagram. What is dropped is counted.
//= U04, U06, U08, BC-074, BC-114, BC-127, 05-5.8
pub(crate) fn handle_datagram(
    attributes: &Attributes,
    packet: &Packet<'_>,
    grh: &Grh,
    adapter: &mut impl Adapter,
) -> Result<(), Misplaced> {
    let mtu = attributes.path_mtu.bytes() as usize;
    if !packet.opcode.payload.allows(packet.payload.len(), mtu) {
        adapter.count(Count::UdTooLong);
        return Ok(());
    }
    let Some(receive) = adapter.take_receive() else {
        adapter.count(Count::UdNoBuffer);
        adapter.count(Count::OutOfBuffer);
        return Ok(());
    };
    let payload_len = payload_len(packet);
    let byte_len = GRH_LEN.saturating_add(payload_len);
    let placed = if byte_len > receive.len {
        Err(ReceiveFailure::TooLong { len: byte_len })
    } else {
        let header = Payload::bytes(grh.as_bytes());
        let mut placed = adapter.scatter_receive(&receive, 0, header);
        if placed.is_ok() && payload_len != 0 {
            placed = adapter.scatter_receive(&receive, GRH_LEN, packet.payload);
        }
        placed.map_err(ReceiveFailure::Key)
    };
    let opcode = CompletionOpcode::Recv;
    let extra = packet.headers.imm_dt.map_or(Extra::None, Extra::Imm);
    let mut completion = received(attributes, packet, &receive, opcode, byte_len, extra);
    completion.grh = true;
    completion.ipv6 = matches!(grh.source(), Some(IpAddr::V6(_)));
    completion.source_qp = packet.headers.deth.map_or(completion.source_qp, |d| d.source_qp);
    if let Err(why) = placed {
        // The message is lost and its buffer too; the queue pair goes on. BC-074
        completion.status = why.status();
        adapter.count(Count::ResponderCqeError);
        if let ReceiveFailure::TooLong { .. } = why {
            adapter.count(Count::UdTooLong);
            adapter.count(Count::ResponderLengthError);
        }
    }
    adapter.complete_receive(receive, completion);
    placed.map_err(|why| Misplaced { receive, why })
}

/// Bytes before a datagram in its receive buffer.
const GRH_LEN: u32 = 40;
const _: () = assert!(GRH_LEN as usize == Grh::LEN);

/// Whether a datagram's key is the queue pair's.
///
/// # Errors
/// [`DropReason::QKeyMismatch`].
//= U03, BC-115
pub fn check_q_key(own: QKey, packet: &Packet<'_>) -> Result<(), DropReason> {
    match packet.headers.deth {
        Some(deth) if deth.q_key == own => Ok(()),
        deth => Err(DropReason::QKeyMismatch { q_key: deth.map_or(0, |deth| deth.q_key.0) }),
    }
}

impl Requester {
    /// Sends the next datagram. It is done when it is on its way.
    //= U03, U05, BC-115, IBA C10-93.1.1, IBA 3.5.3, 02-2.2
    pub(crate) fn poll_datagram(
        &mut self,
        attributes: &Attributes,
        draining: bool,
        outlet: Outlet<'_>,
        adapter: &mut impl Adapter,
    ) -> Option<Emitted> {
        if draining {
            return None;
        }
        let wqe = self.queue.front()?;
        if wqe.failed.is_some() {
            return None;
        }
        if wqe.len > attributes.path_mtu.bytes() {
            return self.failed_here(LocalFailure::LongerThanMtu);
        }
        let target = self.queue.front_target()?;
        if !adapter.has_handle(target.path) {
            return self.failed_here(LocalFailure::NoHandle);
        }
        let imm = match wqe.operation {
            SendOperation::SendWithImm(imm) => Some(imm),
            _ => None,
        };
        let variant = imm.map(|_| Header::ImmDt);
        let opcode = Opcode::find(Service::Ud, Operation::Send, Position::Only, variant)?;
        let own = target.q_key.is_controlled();
        let mut headers = Headers {
            bth: Bth {
                opcode: opcode.code,
                solicited: wqe.solicited,
                mig_req: self.conduct.mig_req,
                p_key: attributes.p_key,
                dest_qp: target.qpn,
                psn: self.send_end,
                ..Bth::default()
            },
            deth: Some(Deth {
                // With the top bit set the sender's own key goes out. IBA vol 1 §3.5.3
                q_key: if own { attributes.q_key } else { target.q_key },
                reserved: 0,
                source_qp: attributes.qpn,
            }),
            imm_dt: imm,
            ..Headers::default()
        };
        let whole = Segment { offset: 0, len: wqe.len, position: Position::Only };
        let emitted = emit(outlet, &mut headers, wqe.len as usize, |place| {
            fill(&self.queue, wqe, &whole, place, adapter)
        })?;
        let mut emitted = match emitted {
            Ok(emitted) => emitted,
            Err(violation) => return self.unreadable(violation),
        };
        let psn = self.send_end;
        let wqe = self.queue.get_mut(0)?;
        (wqe.begun, wqe.psn, wqe.span) = (true, psn, 1);
        self.sent_unreliably();
        self.complete_finished(attributes, adapter);
        emitted.path = Some(target.path);
        Some(emitted)
    }
}
