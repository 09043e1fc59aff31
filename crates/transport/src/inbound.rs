//! What the responders of all services share: a message on its way in, and how it completes.
//!
//! The twin of `request.rs`, which is the outbound half.

use roxe_wire::opcode::Position;
use roxe_wire::{Packet, Payload, Qpn, RKey};

use crate::adapter::{Access, Adapter, KeyViolation, Receive};
use crate::ending::ReceiveFailure;
use crate::work::{Attributes, Completion, CompletionOpcode, CompletionStatus, Extra, Span};

/// A message of several packets in the middle.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Inbound {
    Send {
        receive: Receive,
        /// How many bytes of it are used.
        offset: u32,
    },
    Write(InboundWrite),
}

/// A WRITE in the middle.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InboundWrite {
    pub(crate) key: RKey,
    /// Where it goes on.
    pub(crate) va: u64,
    /// How many bytes are to come.
    pub(crate) remaining: u32,
    /// How many it announced.
    pub(crate) total: u32,
}

impl InboundWrite {
    /// The WRITE of which this is a packet: the one that it announces, or the one that it goes on
    /// with. `None` when there is none to go on with.
    #[inline]
    pub(crate) const fn of(packet: &Packet<'_>, message: Option<&Inbound>) -> Option<Self> {
        match (&packet.headers.reth, message) {
            (Some(reth), _) => Some(Self {
                key: reth.r_key,
                va: reth.va,
                remaining: reth.dma_len,
                total: reth.dma_len,
            }),
            (None, Some(Inbound::Write(write))) => Some(*write),
            (None, _) => None,
        }
    }

    /// Whether a packet brings as much as its turn is: the last one all that is to come, another
    /// one less.
    //= R16
    #[inline]
    pub(crate) const fn fits(&self, packet: &Packet<'_>) -> bool {
        match packet.opcode.position {
            Position::Only | Position::Last => packet.payload.len() == self.remaining as usize,
            Position::First | Position::Middle => packet.payload.len() < self.remaining as usize,
        }
    }

    /// Stores the data of a packet that fits.
    #[inline]
    pub(crate) fn store(
        &self,
        packet: &Packet<'_>,
        adapter: &mut impl Adapter,
    ) -> Result<(), KeyViolation> {
        if packet.payload.is_empty() {
            return Ok(());
        }
        adapter.write_remote(self.key, self.va, packet.payload)
    }

    /// What is to come behind a packet that fits.
    pub(crate) fn behind(self, packet: &Packet<'_>) -> Self {
        let len = payload_len(packet);
        let va = self.va.wrapping_add(u64::from(len));
        Self { va, remaining: self.remaining.saturating_sub(len), ..self }
    }
}

/// Stores data of a SEND in its receive, from byte `offset` on. Gives where it ends.
pub(crate) fn store(
    receive: &Receive,
    offset: u32,
    data: Payload<'_>,
    adapter: &mut impl Adapter,
) -> Result<u32, ReceiveFailure> {
    let len = u32::try_from(data.len()).unwrap_or(u32::MAX);
    let too_long = ReceiveFailure::TooLong { len: offset.saturating_add(len) };
    let end = offset.checked_add(len).filter(|end| *end <= receive.len).ok_or(too_long)?;
    if len != 0 {
        adapter.scatter_receive(receive, offset, data).map_err(ReceiveFailure::Key)?;
    }
    Ok(end)
}

/// Whether a peer may do this. A request for no bytes need not carry a valid address or key.
//= IBA C9-88, R20, 04-4.14
pub(crate) fn check_remote(
    adapter: &impl Adapter,
    key: RKey,
    va: u64,
    len: u32,
    access: Access,
) -> Result<(), KeyViolation> {
    if len == 0 {
        return Ok(());
    }
    adapter.check_remote(key, Span { va, len: u64::from(len) }, access)
}

/// Bytes of a packet's payload, which its path MTU has bounded.
pub(crate) fn payload_len(packet: &Packet<'_>) -> u32 {
    u32::try_from(packet.payload.len()).unwrap_or(u32::MAX)
}

/// A receive that completed with an error, as its message could not be stored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Misplaced {
    pub(crate) receive: Receive,
    pub(crate) why: ReceiveFailure,
}

/// The completion of a receive that got its message, or of one that a WRITE used up.
//= 04-4.15
pub(crate) fn received(
    attributes: &Attributes,
    packet: &Packet<'_>,
    receive: &Receive,
    opcode: CompletionOpcode,
    byte_len: u32,
    extra: Extra,
) -> Completion {
    Completion {
        wr_id: receive.wr_id,
        status: CompletionStatus::Success,
        opcode,
        byte_len,
        extra,
        qpn: attributes.qpn,
        source_qp: attributes.dest_qp,
        grh: false,
        ipv6: false,
        solicited: packet.headers.bth.solicited,
    }
}

/// The completion of a receive that went wrong.
//= 05-5.3
pub(crate) fn failed(
    attributes: &Attributes,
    receive: &Receive,
    status: CompletionStatus,
) -> Completion {
    Completion {
        wr_id: receive.wr_id,
        status,
        opcode: CompletionOpcode::Recv,
        byte_len: 0,
        extra: Extra::None,
        qpn: attributes.qpn,
        source_qp: Qpn::default(),
        grh: false,
        ipv6: false,
        solicited: false,
    }
}
