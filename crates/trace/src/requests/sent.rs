//! One request packet, as it was seen, and what is known of its answers.

use std::ops::Range;

use roxe_wire::opcode::Operation;
use roxe_wire::{
    Headers, MAX_MESSAGE_LEN, Mtu, NakCode, Opcode, Packet, Psn, RKey, Syndrome, packets_for,
};

use super::RESTART;
use super::answered::Fit;
use crate::{Finding, Rule};

/// A request packet as it was first seen.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) psn: Psn,
    /// How many PSNs it takes: more than one for a READ.
    pub(crate) span: u32,
    /// Whether that is no guess.
    pub(super) is_span_known: bool,
    /// The frame that carried it first …
    pub(crate) frame: u64,
    /// … and last …
    pub(crate) latest: u64,
    /// … and last but one.
    pub(super) previous: u64,
    /// When it was sent first …
    pub(crate) first_ns: u64,
    /// … and last.
    pub(crate) latest_ns: u64,
    /// How often it was sent; of a READ, or its rest.
    pub(crate) times: u32,
    /// How often since the last answer that was progress, or an RNR NAK …
    pub(crate) tries: u32,
    /// … and the longest time between two of these.
    pub(crate) longest_ns: u64,
    /// The frame that acknowledged it.
    pub(super) acknowledged_by: Option<u64>,
    pub(crate) opcode: &'static Opcode,
    /// The number of its message, where it begins one.
    pub(super) message: u64,
    /// The end of its message was told.
    pub(super) end_is_told: bool,
    pub(super) payload: u32,
    /// The length its RETH announces, if it has one and the capture kept it.
    pub(crate) announced: Option<u32>,
    /// Whether the capture kept all its headers.
    pub(super) has_all_headers: bool,
    /// Which memory it names, if it names some.
    pub(super) from: (u64, RKey),
    /// Stands for all headers but the BTH, but for those of a READ.
    pub(super) headers: u64,
    /// How many messages end with or before it, counted from the first packet seen.
    pub(crate) ends: u64,
    /// Of the PSNs it takes, those before this one were answered …
    pub(crate) answered: u32,
    /// … but for these.
    pub(super) missing: Range<u32>,
    /// Where a READ was asked for again.
    pub(super) asked_again: Vec<Psn>,
    /// Whether a READ was asked for again with a smaller length: its answer may be either.
    pub(crate) is_less: bool,
    /// What an atomic was answered with.
    pub(crate) original: Option<u64>,
    /// It does not follow what is before it: what follows it is not measured by it.
    pub(super) is_astray: bool,
    /// The packet before it was not seen: until its answer tells, a READ may be for the rest of one
    /// that was not.
    pub(crate) is_behind_gap: bool,
}

impl Sent {
    /// Of a packet seen for the first time, in this frame at this time.
    pub(super) fn new(
        packet: &Packet<'_>,
        mtu: Option<u32>,
        (frame, now_ns): (u64, u64),
        message: u64,
        ends: u64,
    ) -> Self {
        let headers = &packet.headers;
        let is_read = packet.opcode.operation == Operation::ReadRequest;
        let read = headers.reth.filter(|_| is_read);
        let asked = read.map_or(0, |read| read.dma_len.min(MAX_MESSAGE_LEN));
        let is_length_known = read.is_some() || !is_read;
        Self {
            psn: headers.bth.psn,
            span: packets_for(asked, mtu.unwrap_or(Mtu::B4096.bytes())),
            is_span_known: is_length_known && (mtu.is_some() || asked <= Mtu::B256.bytes()),
            frame,
            latest: frame,
            previous: frame,
            first_ns: now_ns,
            latest_ns: now_ns,
            times: 1,
            tries: 1,
            longest_ns: 0,
            acknowledged_by: None,
            opcode: packet.opcode,
            message,
            end_is_told: false,
            payload: u32::try_from(packet.payload.len()).unwrap_or(u32::MAX),
            announced: headers.reth.map(|reth| reth.dma_len),
            has_all_headers: packet.has_all_headers(),
            from: match (headers.reth, headers.atomic_eth) {
                (Some(reth), _) => (reth.va, reth.r_key),
                (None, Some(atomic)) => (atomic.va, atomic.r_key),
                (None, None) => (0, RKey(0)),
            },
            headers: if read.is_some() { 0 } else { fold(headers) },
            ends,
            answered: 0,
            missing: 0..0,
            asked_again: Vec::new(),
            is_less: false,
            original: None,
            is_astray: false,
            is_behind_gap: false,
        }
    }

    /// Whether `psn` is the one behind this packet.
    pub(super) fn is_before(&self, psn: Psn) -> bool {
        self.is_span_known && self.psn.advance(self.span) == psn
    }

    /// Whether a READ may take so many PSNs. Where nobody knows, no gap is told that may be none.
    pub(super) fn may_take(&self, span: u32) -> bool {
        match self.announced {
            Some(len) => Mtu::ALL.iter().any(|mtu| packets_for(len, mtu.bytes()) == span),
            None => (1..RESTART).contains(&span),
        }
    }

    /// Whether this READ takes the PSN of `packet`, or that asks for its rest. Where its span is a
    /// guess, something else there shows that it is shorter.
    pub(super) fn reaches(&self, packet: &Packet<'_>) -> bool {
        let psn = packet.headers.bth.psn;
        if self.is_span_known
            || psn.is_within(self.psn, packets_for(self.announced.unwrap_or(0), Mtu::B4096.bytes()))
        {
            return true;
        }
        let reth =
            packet.headers.reth.filter(|_| packet.opcode.operation == Operation::ReadRequest);
        reth.is_some_and(|reth| {
            let from = (reth.va, reth.r_key);
            Mtu::ALL.iter().any(|mtu| self.is_rest(psn, from, reth.dma_len, mtu.bytes()))
        })
    }

    /// Whether a READ at `psn` asks for the rest of this one.
    pub(super) fn is_rest(&self, psn: Psn, from: (u64, RKey), len: u32, mtu: u32) -> bool {
        let before = psn.since(self.psn).unsigned_abs().checked_mul(mtu);
        before.is_some_and(|before| {
            from == (self.from.0.wrapping_add(before.into()), self.from.1)
                && self
                    .announced
                    .is_none_or(|all| all.checked_sub(before).is_some_and(|rest| len <= rest))
        })
    }

    /// Whether this packet asks for `response`, which has its PSN.
    pub(super) fn fit(&self, response: &Packet<'_>) -> Fit {
        let asked = self.opcode.operation;
        let is_fit = match response.opcode.operation {
            Operation::ReadResponse => {
                matches!(asked, Operation::ReadRequest | Operation::Flush | Operation::AtomicWrite)
            }
            Operation::AtomicAcknowledge => asked.is_atomic(),
            _ => match response.headers.aeth.map(|aeth| aeth.syndrome) {
                // What is missing was never here.
                Some(Syndrome::Nak(NakCode::PsnSequenceError)) => return Fit::Perhaps,
                Some(Syndrome::Nak(_)) => true,
                // Something before a READ may be acknowledged with a later PSN.
                _ if !matches!(asked, Operation::Send | Operation::Write) => return Fit::Perhaps,
                _ => true,
            },
        };
        if is_fit { Fit::Asks } else { Fit::No }
    }

    /// Whether `packet` is this one sent again. A READ may ask for less than before.
    pub(super) fn is_same(&self, packet: &Packet<'_>) -> bool {
        self.opcode == packet.opcode
            && self.payload as usize == packet.payload.len()
            && match (packet.headers.reth, self.announced) {
                _ if !self.has_all_headers || !packet.has_all_headers() => true,
                (Some(reth), Some(announced))
                    if self.opcode.operation == Operation::ReadRequest =>
                {
                    (reth.va, reth.r_key) == self.from && reth.dma_len <= announced
                }
                _ => self.headers == fold(&packet.headers),
            }
    }

    pub(super) fn differs_from(&self, packet: &Packet<'_>) -> Finding {
        let look = |opcode: &Opcode, len: usize| format!("{} of {len} B", opcode.name);
        let seen = look(packet.opcode, packet.payload.len());
        let before = look(self.opcode, self.payload as usize);
        let others = if seen == before { " with other headers" } else { "" };
        Finding {
            rule: Rule::Retransmission,
            seen: format!("{seen}{others}"),
            expected: format!("{before} as in frame {}", self.frame),
        }
    }

    /// Whether a READ for the rest of this one asks for that and no more.
    pub(super) fn check_rest(&self, packet: &Packet<'_>, mtu: Option<u32>) -> Option<Finding> {
        let reth = packet.headers.reth?;
        let index = u32::try_from(packet.headers.bth.psn.since(self.psn)).ok()?;
        let before = index.checked_mul(mtu?)?;
        let rest = self.announced?.checked_sub(before)?;
        let va = self.from.0.wrapping_add(before.into());
        let right = (reth.va, reth.r_key) == (va, self.from.1) && reth.dma_len <= rest;
        (!right).then(|| Finding {
            rule: Rule::Retransmission,
            seen: format!("a READ of {} B at 0x{:x}", reth.dma_len, reth.va),
            expected: format!("the last {rest} B of frame {}, at 0x{va:x}", self.frame),
        })
    }

    /// How long the last part of the answer to this READ is, where that is known.
    pub(crate) fn last_part_len(&self, mtu: Option<u32>) -> Option<u32> {
        if self.is_less {
            return None;
        }
        let before = match self.span {
            1 => 0,
            span => (span - 1).checked_mul(mtu?)?,
        };
        self.announced?.checked_sub(before)
    }

    /// Takes in the answer to one of the PSNs it takes. Tells whether it is new, and how many
    /// before it are missing.
    pub(crate) fn answer(&mut self, index: u32) -> (bool, u32) {
        if index < self.answered {
            let is_new = self.missing.contains(&index);
            if is_new {
                self.missing.start = index + 1;
            }
            return (is_new, 0);
        }
        let skipped = index - self.answered;
        if skipped > 0 && self.missing.is_empty() {
            self.missing = self.answered..index;
        }
        self.answered = index + 1;
        (true, skipped)
    }

    /// The memory it names.
    pub(crate) fn memory(&self) -> Option<(u64, RKey)> {
        let names_memory = self.announced.is_some() || self.opcode.operation.is_atomic();
        names_memory.then_some(self.from)
    }

    /// It was sent again, as `packet` in frame `frame`, after progress in frame `progress`.
    pub(super) fn come_again(
        &mut self,
        packet: &Packet<'_>,
        frame: u64,
        now_ns: u64,
        progress: u64,
    ) {
        if self.latest < progress {
            (self.tries, self.longest_ns) = (1, 0);
        } else {
            self.tries = self.tries.saturating_add(1);
            self.longest_ns = self.longest_ns.max(now_ns.saturating_sub(self.latest_ns));
        }
        (self.previous, self.latest) = (self.latest, frame);
        self.latest_ns = now_ns;
        self.times = self.times.saturating_add(1);
        if self.opcode.operation == Operation::ReadRequest {
            self.ask_again(self.psn);
            let asked = packet.headers.reth.map_or(0, |reth| reth.dma_len);
            self.is_less |= self.announced.is_some_and(|announced| asked < announced);
        }
    }

    pub(super) fn ask_again(&mut self, psn: Psn) {
        if self.asked_again.len() <= REMEMBERED_RESTARTS && !self.asked_again.contains(&psn) {
            self.asked_again.push(psn);
        }
    }

    /// Whether a READ asks for what the packet before it may have asked for already: then its
    /// answer need not begin like one.
    pub(crate) fn may_be_rest(&self) -> bool {
        self.is_behind_gap && self.opcode.operation == Operation::ReadRequest
    }

    /// Whether an answer to a READ may begin at `psn`.
    pub(crate) fn may_begin_at(&self, psn: Psn) -> bool {
        psn == self.psn
            || self.asked_again.contains(&psn)
            || self.asked_again.len() > REMEMBERED_RESTARTS
    }
}

/// Stands for the extension headers that a packet sent again has again.
fn fold(headers: &Headers) -> u64 {
    let Headers { reth, atomic_eth, imm_dt, ieth, feth, .. } = *headers;
    let mut folded = 0;
    let mut add = |word: u64| {
        // The multiplier of the FNV hash; the turn brings the upper bits down.
        folded = (folded ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(29);
    };
    if let Some(reth) = reth {
        [reth.va, reth.r_key.0.into(), reth.dma_len.into()].into_iter().for_each(&mut add);
    }
    if let Some(it) = atomic_eth {
        [it.va, it.r_key.0.into(), it.swap_add, it.compare].into_iter().for_each(&mut add);
    }
    imm_dt.into_iter().for_each(|immediate| add(immediate.0.into()));
    ieth.into_iter().for_each(|ieth| add(ieth.r_key.0.into()));
    feth.into_iter().for_each(|feth| add(u32::from_be_bytes(feth.emit()).into()));
    folded
}

/// A READ that was asked for again at more places than this may be answered from anywhere.
const REMEMBERED_RESTARTS: usize = 8;
