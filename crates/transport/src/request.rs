//! What requests of all services share: whether there is such a request, its headers, its
//! completion, inline bytes.

use roxe_wire::opcode::{Header, Operation, Position, Service};
use roxe_wire::{AtomicEth, Bth, Feth, Headers, Ieth, MAX_MESSAGE_LEN, Opcode, Qpn, Reth, digest};

use crate::adapter::{Adapter, KeyViolation, Place};
use crate::qp_state::ServiceType;
use crate::segment::{self, Segment};
use crate::send_queue::{SendQueue, Wqe};
use crate::work::{
    Attributes, Completion, CompletionOpcode, CompletionStatus, Data, Extra, PostError,
    SendOperation, SendRequest,
};

impl SendRequest<'_> {
    /// Whether the service has this request at all. 02-2.5, `ibv_post_send(3)`
    //= 02-2.5, BC-092, BC-104
    pub(crate) fn check(&self, service: ServiceType) -> Result<(), PostError> {
        let operation = &self.operation;
        let supported = match service {
            ServiceType::Rc => true,
            ServiceType::Uc => matches!(
                operation,
                SendOperation::Send
                    | SendOperation::SendWithImm(_)
                    | SendOperation::Write(_)
                    | SendOperation::WriteWithImm(..)
                    | SendOperation::Local(_)
            ),
            ServiceType::Ud => {
                matches!(operation, SendOperation::Send | SendOperation::SendWithImm(_))
            }
        };
        if !supported || self.fence && service != ServiceType::Rc {
            return Err(PostError::NotSupported);
        }
        if (service == ServiceType::Ud) != self.target.is_some() {
            return Err(PostError::NoTarget);
        }
        if matches!(self.data, Data::Inline(_)) && !operation.may_be_inline() {
            return Err(PostError::NotSupported);
        }
        let len = self.data.len();
        match *operation {
            SendOperation::CompareSwap { remote, .. }
            | SendOperation::FetchAdd { remote, .. }
            | SendOperation::AtomicWrite(remote)
                if len != 8 || !remote.va.is_multiple_of(8) =>
            {
                Err(PostError::BadAtomic)
            }
            SendOperation::Flush { len: flushed, .. } if flushed > MAX_MESSAGE_LEN => {
                Err(PostError::MessageTooLong { len: u64::from(flushed) })
            }
            SendOperation::Flush { .. } | SendOperation::Local(_) if len != 0 => {
                Err(PostError::NotSupported)
            }
            _ => Ok(()),
        }
    }
}

/// Sets the headers of a request's packet number `index`, and says which part of its data goes with
/// it. In place: headers are much to hand around.
//= Q08, BC-052, BC-061, IBA oA19-6, 04-4.12, 04-4.15
pub(crate) fn request_headers(
    service: Service,
    attributes: &Attributes,
    wqe: &Wqe,
    index: u32,
    headers: &mut Headers,
) -> Option<Segment> {
    let mtu = attributes.path_mtu;
    let part = segment::segment(wqe.len, mtu, index);
    let whole = Segment { offset: 0, len: 0, position: Position::Only };
    let (operation, variant, segment) = match wqe.operation {
        SendOperation::Send => (Operation::Send, None, part?),
        SendOperation::SendWithImm(_) => (Operation::Send, Some(Header::ImmDt), part?),
        SendOperation::SendWithInv(_) => (Operation::Send, Some(Header::Ieth), part?),
        SendOperation::Write(_) => (Operation::Write, None, part?),
        SendOperation::WriteWithImm(..) => (Operation::Write, Some(Header::ImmDt), part?),
        SendOperation::Read(_) => (Operation::ReadRequest, None, whole),
        SendOperation::CompareSwap { .. } => (Operation::CompareSwap, None, whole),
        SendOperation::FetchAdd { .. } => (Operation::FetchAdd, None, whole),
        SendOperation::AtomicWrite(_) => {
            (Operation::AtomicWrite, None, Segment { len: 8, ..whole })
        }
        SendOperation::Flush { .. } => (Operation::Flush, None, whole),
        SendOperation::Local(_) => return None,
    };
    // Immediate data and invalidated keys travel in the last packet only.
    let variant = variant.filter(|_| segment.position.ends());
    let opcode = Opcode::find(service, operation, segment.position, variant)?;
    headers.bth = Bth {
        opcode: opcode.code,
        solicited: wqe.solicited && opcode.completes_a_receive(),
        p_key: attributes.p_key,
        dest_qp: attributes.dest_qp,
        psn: wqe.psn.advance(index),
        ..Bth::default()
    };
    if opcode.has(Header::Reth) {
        let remote = wqe.operation.remote()?;
        // A READ that is asked for again asks only for what is missing. IBA vol 1 §9.4.4
        let done = if operation == Operation::ReadRequest { index * mtu.bytes() } else { 0 };
        headers.reth = Some(Reth {
            va: remote.va.wrapping_add(u64::from(done)),
            r_key: remote.r_key,
            dma_len: wqe.len - done,
        });
    }
    match wqe.operation {
        SendOperation::SendWithImm(imm) | SendOperation::WriteWithImm(_, imm)
            if opcode.has(Header::ImmDt) =>
        {
            headers.imm_dt = Some(imm);
        }
        SendOperation::SendWithInv(r_key) if opcode.has(Header::Ieth) => {
            headers.ieth = Some(Ieth { r_key });
        }
        SendOperation::CompareSwap { remote, compare, swap } => {
            let (va, r_key) = (remote.va, remote.r_key);
            headers.atomic_eth = Some(AtomicEth { va, r_key, swap_add: swap, compare });
        }
        SendOperation::FetchAdd { remote, add } => {
            let (va, r_key) = (remote.va, remote.r_key);
            headers.atomic_eth = Some(AtomicEth { va, r_key, swap_add: add, compare: 0 });
        }
        SendOperation::Flush { placement, selectivity, .. } => {
            headers.feth = Some(Feth { placement, selectivity, reserved: 0 });
        }
        _ => {}
    }
    Some(segment)
}

/// The completion of a send request.
//= BC-094, BC-098
pub(crate) fn completion(
    wqe: &Wqe,
    status: CompletionStatus,
    attributes: &Attributes,
) -> Completion {
    Completion {
        wr_id: wqe.wr_id,
        status,
        opcode: CompletionOpcode::of(&wqe.operation),
        byte_len: match wqe.operation {
            SendOperation::CompareSwap { .. } | SendOperation::FetchAdd { .. } => 8,
            _ => wqe.len,
        },
        extra: Extra::None,
        qpn: attributes.qpn,
        source_qp: Qpn::default(),
        grh: false,
        ipv6: false,
        solicited: false,
    }
}

/// Writes one packet's part of a request's data.
//= Q16, BC-031
pub(crate) fn fill(
    queue: &SendQueue,
    wqe: &Wqe,
    part: &Segment,
    place: Place<'_>,
    adapter: &impl Adapter,
) -> Result<(), KeyViolation> {
    if part.len == 0 {
        return Ok(());
    }
    match queue.inline(wqe, part.offset, part.len) {
        Some(bytes) => {
            copy_inline(bytes, place);
            Ok(())
        }
        None => adapter.gather(queue.sges(wqe), part.offset, place),
    }
}

/// Copies inline bytes to a packet.
fn copy_inline((a, b): (&[u8], &[u8]), place: Place<'_>) {
    match place {
        Place::Bytes { first, second: [] } if b.is_empty() && a.len() == first.len() => {
            first.copy_from_slice(a);
        }
        Place::Bytes { first, second } => {
            let from = a.iter().chain(b);
            let to = first.iter_mut().chain(second);
            to.zip(from).for_each(|(to, from)| *to = *from);
        }
        Place::Elided { digest, .. } => {
            *digest = digest::join(digest::of(a), digest::of(b), b.len() as u64);
        }
    }
}
