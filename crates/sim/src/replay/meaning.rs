//! What a packet says, whatever it says it with.
//!
//! Answers are compared by kind, PSN, NAK code, wait, data and value. FIRST and MIDDLE of READ
//! data are one, LAST and ONLY too: a READ that was asked for again may begin anew or go on.
//! Credits are not compared, nor is whether an answer carries an AETH. Requests are compared by
//! opcode, PSN, key, address, length, operands, immediate data and payload; not by who asks for
//! acknowledgements and how often, by migration state or by congestion bits.

use roxe_wire::opcode::Operation;
use roxe_wire::{Headers, NakCode, Opcode, Psn, RnrTimer, Syndrome};

use super::record::Item;
use super::rig::Sent;

/// A packet, recorded or ours.
#[derive(Clone, Copy, Debug)]
pub(super) struct View<'a> {
    pub(super) opcode: &'static Opcode,
    pub(super) headers: &'a Headers,
    pub(super) payload: &'a [u8],
}

impl<'a> From<&'a Item> for View<'a> {
    fn from(item: &'a Item) -> Self {
        Self { opcode: item.opcode, headers: &item.headers, payload: item.payload() }
    }
}

impl<'a> From<&'a Sent> for View<'a> {
    fn from(sent: &'a Sent) -> Self {
        Self { opcode: sent.opcode, headers: &sent.headers, payload: &sent.payload }
    }
}

/// What an answer says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Says<'a> {
    /// All up to here has come.
    Ack,
    /// No receive buffer.
    NotReady(RnrTimer),
    /// Refused.
    Refused(NakCode),
    /// Data of a READ; whether it is the last.
    Data(&'a [u8], bool),
    /// The value from before an atomic.
    Value(u64),
}

impl<'a> View<'a> {
    pub(super) const fn psn(&self) -> Psn {
        self.headers.bth.psn
    }

    /// What it says, if it is an answer.
    pub(super) fn says(&self) -> Option<Says<'a>> {
        let syndrome = self.headers.aeth.map(|aeth| aeth.syndrome);
        match (self.opcode.operation, syndrome) {
            (Operation::Acknowledge, Some(Syndrome::Ack(_))) => Some(Says::Ack),
            (_, Some(Syndrome::RnrNak(timer))) => Some(Says::NotReady(timer)),
            (_, Some(Syndrome::Nak(code))) => Some(Says::Refused(code)),
            (Operation::ReadResponse, _) => {
                Some(Says::Data(self.payload, self.opcode.position.ends()))
            }
            (Operation::AtomicAcknowledge, _) => {
                self.headers.atomic_ack_eth.map(|ack| Says::Value(ack.original))
            }
            _ => None,
        }
    }

    /// The packet in a few words.
    pub(super) fn words(&self) -> String {
        let psn = self.psn();
        let name = match self.opcode.operation {
            Operation::AtomicAcknowledge => "ATOMIC_ACK",
            _ => self.opcode.short_name(),
        };
        let mut words = match self.says() {
            Some(Says::Ack) => format!("ACK psn {psn}"),
            Some(Says::NotReady(timer)) => {
                format!("RNR NAK psn {psn} wait {:?}", timer.duration())
            }
            Some(Says::Refused(code)) => format!("NAK psn {psn} {}", code.name()),
            Some(Says::Value(value)) => format!("{name} psn {psn} value 0x{value:x}"),
            Some(Says::Data(..)) | None => format!("{name} psn {psn}"),
        };
        if let Some(deth) = self.headers.deth {
            words += &format!(" q_key 0x{:x}", deth.q_key.0);
        }
        if let Some(reth) = self.headers.reth {
            words += &format!(" va 0x{:x} rkey 0x{:x} len {}", reth.va, reth.r_key.0, reth.dma_len);
        }
        if let Some(atomic) = self.headers.atomic_eth {
            words += &format!(" va 0x{:x} rkey 0x{:x}", atomic.va, atomic.r_key.0);
            words += &format!(" compare 0x{:x} swap/add 0x{:x}", atomic.compare, atomic.swap_add);
        }
        if let Some(imm) = self.headers.imm_dt {
            words += &format!(" imm 0x{:x}", imm.0);
        }
        if let Some(ieth) = self.headers.ieth {
            words += &format!(" invalidates 0x{:x}", ieth.r_key.0);
        }
        if !self.payload.is_empty() {
            words += &format!(" {} B", self.payload.len());
        }
        words
    }
}

/// Whether two answers say the same; if not, in what they differ.
pub(super) fn answers_differ(recorded: View<'_>, ours: View<'_>) -> Option<&'static str> {
    if recorded.psn() != ours.psn() {
        return Some("psn");
    }
    match (recorded.says(), ours.says()) {
        (Some(Says::Data(a, a_last)), Some(Says::Data(b, b_last))) => {
            if a_last != b_last || a.len() != b.len() {
                Some("length")
            } else {
                (a != b).then_some("data")
            }
        }
        (Some(Says::Value(a)), Some(Says::Value(b))) => (a != b).then_some("value"),
        (Some(Says::Refused(a)), Some(Says::Refused(b))) => (a != b).then_some("code"),
        (Some(Says::NotReady(a)), Some(Says::NotReady(b))) => (a != b).then_some("wait"),
        (Some(Says::Ack), Some(Says::Ack)) => None,
        _ => Some("kind"),
    }
}

/// Whether two requests ask for the same; if not, in what they differ. `datagrams` need not have
/// the same PSN: nobody looks at it.
pub(super) fn requests_differ(recorded: View<'_>, ours: View<'_>) -> Option<&'static str> {
    let (a, b) = (recorded.headers, ours.headers);
    let datagram = a.deth.is_some();
    let checks = [
        ("opcode", recorded.opcode.code == ours.opcode.code),
        ("psn", datagram || a.bth.psn == b.bth.psn),
        ("destination", a.bth.dest_qp == b.bth.dest_qp),
        ("p_key", a.bth.p_key == b.bth.p_key),
        ("solicited", a.bth.solicited == b.bth.solicited),
        ("q_key", a.deth.map(|deth| deth.q_key) == b.deth.map(|deth| deth.q_key)),
        ("reth", a.reth == b.reth),
        ("operands", operands(recorded) == operands(ours)),
        ("imm", a.imm_dt == b.imm_dt),
        ("ieth", a.ieth == b.ieth),
        ("feth", a.feth == b.feth),
        ("data", recorded.payload == ours.payload),
    ];
    checks.into_iter().find(|(_, same)| !same).map(|(what, _)| what)
}

/// What an atomic works with. What a FETCH_ADD carries to be compared means nothing.
fn operands(view: View<'_>) -> Option<(u64, u32, u64, u64)> {
    let atomic = view.headers.atomic_eth?;
    let compares = view.opcode.operation == Operation::CompareSwap;
    let compare = if compares { atomic.compare } else { 0 };
    Some((atomic.va, atomic.r_key.0, atomic.swap_add, compare))
}
