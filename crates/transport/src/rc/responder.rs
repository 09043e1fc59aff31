//! The inbound ladder: one named check a rung, in the specification's order.
//!
//! IBA vol 1 §9.7.4 (validation of requests). What passes it is carried out in `execute.rs`; what
//! is owed for it is written in `respond.rs`; what breaks a rule ends the connection in
//! `broken.rs`. Nothing is sent from here.

use roxe_wire::opcode::{Header, Operation};
use roxe_wire::{
    Bth, FlushPlacement, Instant, MAX_MESSAGE_LEN, Msn, NakCode, Packet, Psn, Syndrome,
};

use crate::adapter::{Access, Adapter, Count};
use crate::conduct::{Acknowledge, Conduct};
use crate::ending::Rule;
use crate::inbound::{Inbound, InboundWrite, check_remote};
use crate::work::{AccessFlags, Attributes};

use super::acknowledge::Owed;
use super::broken::Broken;
use super::replay::{Replayed, Resources};

/// The side that carries out the peer's requests.
#[derive(Debug)]
pub(crate) struct Responder {
    /// The PSN that comes next.
    pub(crate) expected: Psn,
    /// Request messages completed.
    pub(super) msn: Msn,
    /// The message that has begun and not ended.
    pub(super) message: Option<Inbound>,
    /// A NAK is out: what follows the gap is dropped without a word.
    refusing: bool,
    pub(super) owed: Owed,
    pub(super) resources: Resources,
    pub(super) conduct: Conduct,
}

/// Why a request is not carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The connection ends.
    Fatal(Rule),
    /// No receive buffer.
    NotReady,
}

impl From<Rule> for Refusal {
    fn from(rule: Rule) -> Self {
        Self::Fatal(rule)
    }
}

impl Responder {
    pub(crate) fn new(conduct: Conduct) -> Self {
        Self {
            expected: Psn::default(),
            msn: Msn::default(),
            message: None,
            refusing: false,
            owed: Owed::default(),
            resources: Resources::default(),
            conduct,
        }
    }

    /// The queue pair becomes ready to receive: everything begins at `rq_psn`.
    //= BC-034
    pub(crate) fn begin(&mut self, attributes: &Attributes) {
        *self = Self {
            expected: attributes.rq_psn,
            resources: Resources::new(attributes.max_dest_rd_atomic),
            ..Self::new(self.conduct)
        };
    }

    /// The attributes have changed while requests may be kept.
    pub(crate) fn set_attributes(&mut self, attributes: &Attributes) {
        self.resources.set_most(attributes.max_dest_rd_atomic);
    }

    /// Takes in one request.
    //= 04-4.2, R03, R23, R27, R39
    pub(crate) fn handle_request(
        &mut self,
        now: Instant,
        attributes: &Attributes,
        packet: &Packet<'_>,
        adapter: &mut impl Adapter,
    ) -> Result<(), Broken> {
        let psn = packet.headers.bth.psn;
        let ahead = psn.since(self.expected);
        if ahead > 0 {
            self.out_of_sequence(adapter);
            return Ok(());
        }
        if ahead < 0 {
            self.duplicate(now, attributes, packet, adapter);
            return Ok(());
        }
        match self.carry_out(attributes, packet, adapter) {
            Ok(()) => {
                self.refusing = false;
                self.owed.forget_refusal(); // What it asked for has come.
                // What has an answer of its own is acknowledged by that.
                let bare = matches!(packet.opcode.operation, Operation::Send | Operation::Write)
                    || self.conduct.acknowledge != Acknowledge::Each;
                if packet.headers.bth.ack_req && bare {
                    self.acknowledge(now, adapter);
                }
                Ok(())
            }
            Err(Refusal::NotReady) => {
                adapter.count(Count::OutOfBuffer);
                self.refusing = !self.conduct.nak_after_rnr;
                self.owed.refuse(psn, Syndrome::RnrNak(attributes.min_rnr_timer));
                Ok(())
            }
            Err(Refusal::Fatal(rule)) => Err(Broken { psn, rule }),
        }
    }

    /// An opcode that the specification does not define, with a PSN that comes next.
    //= 04-4.6, R35
    pub(crate) fn handle_reserved(&self, bth: &Bth) -> Result<(), Broken> {
        if bth.psn == self.expected {
            Err(Broken { psn: bth.psn, rule: Rule::Opcode })
        } else {
            Ok(())
        }
    }

    /// A packet behind a gap: one NAK a gap asks for what is missing.
    //= 04-4.5, R03, R24, BC-025
    fn out_of_sequence(&mut self, adapter: &mut impl Adapter) {
        adapter.count(Count::OutOfSequence);
        if !self.refusing && !self.owed.is_refusal() {
            self.refusing = true;
            self.owed.refuse(self.expected, Syndrome::Nak(NakCode::PsnSequenceError));
        }
    }

    /// A packet from before.
    ///
    /// A SEND or WRITE is acknowledged again with the newest PSN executed, not with its own: one
    /// lost ACK then costs one duplicate, however many packets it covered. A READ is carried out
    /// again, an atomic's saved result sent again. A bad duplicate is dropped, also one whose key
    /// was good when it came first, or that the queue pair allowed then.
    //= IBA C9-105, BC-056, R05, R06, 04-4.7
    fn duplicate(
        &mut self,
        now: Instant,
        attributes: &Attributes,
        packet: &Packet<'_>,
        adapter: &mut impl Adapter,
    ) {
        adapter.count(Count::DuplicateRequest);
        match packet.opcode.operation {
            Operation::Send | Operation::Write => {
                if !self.owed.is_refusal() {
                    self.acknowledge(now, adapter);
                }
            }
            Operation::ReadRequest
                if check_queue_pair_access(attributes, packet).is_err()
                    || self.check_key(packet, adapter).is_err() =>
            {
                adapter.count(Count::DuplicateDropped);
            }
            _ => {
                match self.resources.replay(packet, attributes.path_mtu, self.conduct.resumes_reads)
                {
                    Replayed::Read => adapter.count(Count::ReadReplayed),
                    Replayed::Saved => adapter.count(Count::AtomicReplayed),
                    Replayed::Nothing => adapter.count(Count::DuplicateDropped),
                }
            }
        }
    }

    /// The ladder. IBA vol 1 §9.7.4; each rung is one check.
    //= 04-4.2, BC-030, IBA C10-87, R22
    fn carry_out(
        &mut self,
        attributes: &Attributes,
        packet: &Packet<'_>,
        adapter: &mut impl Adapter,
    ) -> Result<(), Refusal> {
        self.check_sequence(packet)?;
        check_queue_pair_access(attributes, packet)?;
        self.check_resources(packet, adapter)?;
        self.check_length(attributes, packet)?;
        self.check_key(packet, adapter)?;
        self.execute(attributes, packet, adapter)
    }

    /// First, Middle … and Last of one operation follow each other.
    //= 02-2.3, R12, R13
    fn check_sequence(&self, packet: &Packet<'_>) -> Result<(), Refusal> {
        let starts = packet.opcode.position.starts();
        let right = match (self.message, packet.opcode.operation) {
            (None, _) => starts,
            (Some(Inbound::Send { .. }), Operation::Send) => !starts,
            (Some(Inbound::Write(_)), Operation::Write) => !starts,
            (Some(_), _) => false,
        };
        if right { Ok(()) } else { Err(Rule::Sequence.into()) }
    }

    /// A receive buffer for what needs one, a place to keep the answer of what is answered late.
    //= R23, R25, R30
    fn check_resources(&self, packet: &Packet<'_>, adapter: &impl Adapter) -> Result<(), Refusal> {
        let opcode = packet.opcode;
        let needs_receive = match opcode.operation {
            Operation::Send => opcode.position.starts(),
            Operation::Write => opcode.has(Header::ImmDt),
            _ => false,
        };
        if needs_receive && !adapter.has_receive() {
            return Err(Refusal::NotReady);
        }
        let keeps_answer = !matches!(opcode.operation, Operation::Send | Operation::Write);
        if keeps_answer && !self.resources.has_room() {
            return Err(Rule::Resources.into());
        }
        Ok(())
    }

    /// Payload against path MTU, message length against its bounds.
    //= IBA C9-92, IBA C9-94, R14, R15, R38
    fn check_length(&self, attributes: &Attributes, packet: &Packet<'_>) -> Result<(), Refusal> {
        let mtu = attributes.path_mtu.bytes() as usize;
        let len = packet.payload.len();
        if !packet.opcode.payload.allows(len, mtu) {
            return Err(Rule::PacketLength.into());
        }
        if packet.headers.reth.is_some_and(|reth| reth.dma_len > MAX_MESSAGE_LEN) {
            return Err(Rule::MessageLength.into());
        }
        if packet.opcode.operation == Operation::AtomicWrite
            && packet.headers.reth.is_some_and(|reth| reth.dma_len != 8)
        {
            return Err(Rule::AtomicWriteLength.into());
        }
        if packet.opcode.operation != Operation::Write {
            return Ok(());
        }
        let write = InboundWrite::of(packet, self.message.as_ref()).ok_or(Rule::Sequence)?;
        if write.fits(packet) { Ok(()) } else { Err(Rule::WriteLength.into()) }
    }

    /// The key, for the whole range at once.
    //= R18, IBA C10-87, R22
    fn check_key(&self, packet: &Packet<'_>, adapter: &impl Adapter) -> Result<(), Refusal> {
        let headers = &packet.headers;
        let checked = match (packet.opcode.operation, headers.reth, headers.atomic_eth) {
            (Operation::Write, Some(reth), _) => {
                check_remote(adapter, reth.r_key, reth.va, reth.dma_len, Access::Write)
            }
            (Operation::ReadRequest, Some(reth), _) => {
                check_remote(adapter, reth.r_key, reth.va, reth.dma_len, Access::Read)
            }
            (Operation::AtomicWrite, Some(reth), _) => {
                check_aligned(reth.va)?;
                check_remote(adapter, reth.r_key, reth.va, 8, Access::Write)
            }
            (Operation::CompareSwap | Operation::FetchAdd, _, Some(atomic)) => {
                check_aligned(atomic.va)?;
                check_remote(adapter, atomic.r_key, atomic.va, 8, Access::Atomic)
            }
            _ => Ok(()),
        };
        Ok(checked.map_err(Rule::Key)?)
    }
}

/// What the queue pair allows its peer, whatever memory says.
//= 04-4.2, R19
fn check_queue_pair_access(attributes: &Attributes, packet: &Packet<'_>) -> Result<(), Refusal> {
    let wanted = match packet.opcode.operation {
        Operation::Write | Operation::AtomicWrite => AccessFlags::REMOTE_WRITE,
        Operation::ReadRequest => AccessFlags::REMOTE_READ,
        Operation::CompareSwap | Operation::FetchAdd => AccessFlags::REMOTE_ATOMIC,
        Operation::Flush => {
            let placement = packet.headers.feth.map(|feth| feth.placement).unwrap_or_default();
            flushes(placement).fold(AccessFlags::NONE, |all, access| all | access.right())
        }
        _ => AccessFlags::NONE,
    };
    if attributes.access.contain(wanted) { Ok(()) } else { Err(Rule::QueuePairAccess.into()) }
}

/// How far a FLUSH goes.
pub(super) fn flushes(placement: FlushPlacement) -> impl Iterator<Item = Access> + Clone {
    let global = placement.global_visibility.then_some(Access::FlushGlobal);
    let persistent = placement.persistence.then_some(Access::FlushPersistent);
    global.into_iter().chain(persistent)
}

/// Atomics address a multiple of eight.
//= BC-062, R29
fn check_aligned(va: u64) -> Result<(), Refusal> {
    if va.is_multiple_of(8) { Ok(()) } else { Err(Rule::Aligned.into()) }
}
