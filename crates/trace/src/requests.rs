//! One direction's requests: which PSNs were seen, what they began, what was sent again.

use std::collections::VecDeque;

use roxe_wire::opcode::{Operation, PayloadRule, Position};
use roxe_wire::{Msn, Mtu, Opcode, Packet, Psn};

use crate::note::{Cause, operation_name};
use crate::{Finding, Note, Rule, Summary};

/// The longest message there is, in bytes. C9-94.
const MAX_MESSAGE: u32 = 1 << 31;

/// A jump of so many PSNs is no loss but another connection.
const RESTART: u32 = 1 << 20;

/// How many packets are remembered in one direction, at the most …
const REMEMBERED: usize = 1024;

/// … and of those that were acknowledged.
const REMEMBERED_ACKNOWLEDGED: usize = 128;

/// A request packet as it was first seen.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) psn: Psn,
    /// How many PSNs it takes: more than one for a READ.
    pub(crate) span: u32,
    pub(crate) frame: u64,
    pub(crate) opcode: &'static Opcode,
    payload: u32,
    /// The length a RETH announces.
    pub(crate) announced: u32,
    /// The message it belongs to, counted from 1.
    message: u64,
    /// Of the PSNs it takes, how many were answered in order.
    pub(crate) answered: u32,
    /// Where a READ was asked for again: the answer to each try begins where that one did, and an
    /// older one may still be on its way.
    pub(crate) asked_again_at: Vec<Psn>,
    /// What an atomic was answered with.
    pub(crate) original: Option<u64>,
}

/// A message whose last packet is still to come.
#[derive(Clone, Copy, Debug)]
struct Open {
    operation: Operation,
    packets: u64,
    bytes: u64,
    /// The length a WRITE announced, if its first packet was seen.
    announced: Option<u32>,
}

/// What is known of the responder's message count.
#[derive(Clone, Copy, Debug)]
struct MsnBase {
    /// Its MSN minus our count of completed messages.
    offset: Msn,
    /// It may have been so many messages ahead when the offset was taken.
    slack: u32,
}

/// The requests of one direction of a conversation.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    /// The first PSN seen, or taught by connection management.
    first: Option<Psn>,
    /// The PSN after the newest one seen.
    next: Psn,
    /// Whether `next` is sure: a READ takes PSNs by the path MTU, which may not be known yet.
    next_is_guess: bool,
    /// The oldest PSN that was not acknowledged.
    unacknowledged: Psn,
    mtu: Option<u32>,
    sent: VecDeque<Sent>,
    open: Option<Open>,
    /// A packet is missing, or the capture began here: the next packet may be of any position.
    position_unknown: bool,
    messages: u64,
    /// The last NAK that asked to go back.
    go_back: Option<(Psn, Cause)>,
    msn: Option<MsnBase>,
}

/// Where a PSN lies.
enum Place {
    /// It comes next.
    Next,
    /// So many before it were not seen.
    Ahead(u32),
    /// It was seen: `sent` has it at this index.
    Again(usize),
    /// It is part of a READ at this index.
    WithinRead(usize),
    /// It was skipped before.
    Skipped,
    /// It is older than what is remembered.
    Old,
    /// Far from anything seen.
    Elsewhere,
}

/// How many packets a message of `len` bytes takes.
const fn packets_for(len: u32, mtu: u32) -> u32 {
    let packets = len.div_ceil(mtu);
    if packets == 0 { 1 } else { packets }
}

impl Requests {
    /// Whether any request was seen or announced.
    pub(crate) const fn is_known(&self) -> bool {
        self.first.is_some()
    }

    /// Connection management told the PSN that comes first.
    pub(crate) fn begin_at(&mut self, psn: Psn) {
        *self = Self { first: Some(psn), next: psn, unacknowledged: psn, ..Self::default() };
    }

    /// How far `psn` lies from the first one.
    pub(crate) fn relative(&self, psn: Psn) -> Option<i32> {
        self.first.map(|first| psn.since(first))
    }

    /// Whether a response with this PSN may answer these requests.
    pub(crate) fn covers(&self, psn: Psn) -> bool {
        self.first.is_some_and(|first| psn.since(first) >= -1)
            && psn.since(self.next) < 0
            && (self.find(psn).is_some() || psn.since(self.unacknowledged) >= -1)
    }

    /// The index of the packet that has `psn` among its PSNs.
    fn find(&self, psn: Psn) -> Option<usize> {
        let base = self.sent.front()?.psn;
        let distance = psn.since(base);
        let after = self.sent.partition_point(|sent| sent.psn.since(base) <= distance);
        let index = after.checked_sub(1)?;
        let sent = &self.sent[index];
        psn.is_within(sent.psn, sent.span).then_some(index)
    }

    /// The packet that has `psn` among its PSNs.
    pub(crate) fn get(&self, psn: Psn) -> Option<&Sent> {
        self.find(psn).map(|index| &self.sent[index])
    }

    /// The packet that has `psn` among its PSNs.
    pub(crate) fn get_mut(&mut self, psn: Psn) -> Option<&mut Sent> {
        self.find(psn).map(|index| &mut self.sent[index])
    }

    fn place(&mut self, psn: Psn) -> Place {
        let Some(first) = self.first else {
            self.begin_at(psn);
            self.position_unknown = true;
            return Place::Next;
        };
        self.settle_guess(psn);
        let ahead = psn.since(self.next);
        match u32::try_from(ahead) {
            Ok(0) => Place::Next,
            Ok(ahead) if ahead < RESTART => Place::Ahead(ahead),
            Ok(_) => Place::Elsewhere,
            Err(_) if ahead.unsigned_abs() >= RESTART => Place::Elsewhere,
            Err(_) => match self.find(psn) {
                Some(index) if self.sent[index].psn == psn => Place::Again(index),
                Some(index) => Place::WithinRead(index),
                None if psn.since(first) >= 0
                    && self.sent.front().is_some_and(|oldest| psn.since(oldest.psn) > 0) =>
                {
                    Place::Skipped
                }
                None => Place::Old,
            },
        }
    }

    /// The PSN after a READ of unknown path MTU tells how many PSNs the READ took, and the MTU if
    /// only one makes it as many.
    fn settle_guess(&mut self, psn: Psn) {
        if !self.next_is_guess {
            return;
        }
        let Some(read) = self.sent.back_mut() else { return };
        let Ok(span) = u32::try_from(psn.since(read.psn)) else { return };
        let announced = read.announced;
        let fits = |mtu: &Mtu| packets_for(announced, mtu.bytes()) == span;
        let mut mtus = Mtu::ALL.into_iter().filter(fits);
        if let Some(mtu) = mtus.next() {
            if mtus.next().is_none() {
                self.mtu = Some(mtu.bytes());
            }
            read.span = span;
            self.next = psn;
            self.next_is_guess = false;
        }
    }

    /// The path MTU, once a full packet showed it.
    pub(crate) const fn mtu(&self) -> Option<u32> {
        self.mtu
    }

    /// A response tells the path MTU.
    pub(crate) fn learn_mtu(&mut self, mtu: u32, at: Psn) {
        if self.mtu.is_none() {
            self.mtu = Some(mtu);
        }
        if !self.next_is_guess {
            return;
        }
        if let Some(read) = self.sent.back_mut().filter(|read| at.since(read.psn) >= 0) {
            read.span = packets_for(read.announced, mtu);
            self.next = read.psn.advance(read.span);
            self.next_is_guess = false;
        }
    }

    /// A READ was answered by a single packet: it took one PSN, whatever the path MTU.
    pub(crate) fn learn_single(&mut self, psn: Psn) {
        if !self.next_is_guess {
            return;
        }
        if let Some(read) = self.sent.back_mut().filter(|read| read.psn == psn) {
            read.span = 1;
            self.next = psn.next();
            self.next_is_guess = false;
        }
    }

    /// Takes in one request packet.
    pub(crate) fn observe(
        &mut self,
        packet: &Packet<'_>,
        frame: u64,
        notes: &mut Vec<Note>,
        findings: &mut Vec<Finding>,
        summary: &mut Summary,
    ) {
        let psn = packet.headers.bth.psn;
        self.check_alone(packet, findings);
        match self.place(psn) {
            Place::Next => self.take_new(packet, frame, notes, findings, summary),
            Place::Ahead(missing) => {
                notes.push(Note::Gap { missing });
                self.lose_count();
                self.take_new(packet, frame, notes, findings, summary);
            }
            Place::Elsewhere => {
                notes.push(Note::Restart);
                self.begin_at(psn);
                self.position_unknown = true;
                self.take_new(packet, frame, notes, findings, summary);
            }
            Place::Again(index) => {
                let of = self.sent[index].frame;
                notes.push(Note::Retransmission { of, cause: self.cause_at(psn) });
                summary.retransmissions += 1;
                let sent = &mut self.sent[index];
                if packet.opcode.operation == Operation::ReadRequest {
                    sent.ask_again(psn);
                } else if sent.opcode != packet.opcode
                    || sent.payload as usize != packet.payload.len()
                {
                    findings.push(Finding {
                        rule: Rule::Retransmission,
                        seen: format!("{} of {} B", packet.opcode.name, packet.payload.len()),
                        expected: format!(
                            "{} of {} B as in frame {of}",
                            sent.opcode.name, sent.payload
                        ),
                    });
                }
            }
            Place::WithinRead(index) => {
                let sent = &mut self.sent[index];
                let of = sent.frame;
                if packet.opcode.operation == Operation::ReadRequest {
                    sent.ask_again(psn);
                    notes.push(Note::ReadRest { of });
                    summary.retransmissions += 1;
                } else {
                    findings.push(Finding {
                        rule: Rule::Retransmission,
                        seen: format!("{} at PSN {psn}", packet.opcode.name),
                        expected: format!("the READ of frame {of}, which reserved this PSN"),
                    });
                }
            }
            Place::Skipped => {
                notes.push(Note::FillsGap);
                let span = self.span(packet);
                let sent = Sent::new(packet, span, frame, 0);
                let base = self.sent.front().map_or(psn, |oldest| oldest.psn);
                let distance = psn.since(base);
                let at = self.sent.partition_point(|other| other.psn.since(base) < distance);
                self.sent.insert(at, sent);
            }
            Place::Old => notes.push(Note::Old),
        }
    }

    /// What a packet must keep by itself.
    fn check_alone(&mut self, packet: &Packet<'_>, findings: &mut Vec<Finding>) {
        let len = packet.payload.len();
        let rule = packet.opcode.payload;
        if !rule.allows_for_some_mtu(len) {
            findings.push(payload_length(packet.opcode, len));
        } else if let Some(mtu) = self.mtu {
            if rule == PayloadRule::Full && len != mtu as usize {
                findings.push(Finding {
                    rule: Rule::PathMtu,
                    seen: format!("{} of {len} B", packet.opcode.name),
                    expected: format!("{mtu} B as before"),
                });
            } else if !rule.allows(len, mtu as usize) {
                findings.push(Finding {
                    rule: Rule::PayloadLength,
                    seen: format!("{} of {len} B", packet.opcode.name),
                    expected: format!("at most the path MTU of {mtu} B"),
                });
            }
        } else if rule == PayloadRule::Full {
            self.mtu = u32::try_from(len).ok();
        }
        if let Some(reth) = packet.headers.reth
            && reth.dma_len > MAX_MESSAGE
        {
            findings.push(Finding {
                rule: Rule::MessageLength,
                seen: format!("a length of {} B", reth.dma_len),
                expected: format!("at most {MAX_MESSAGE} B"),
            });
        }
        if let Some(atomic) = packet.headers.atomic_eth
            && atomic.va % 8 != 0
        {
            findings.push(Finding {
                rule: Rule::AtomicAlignment,
                seen: format!("address 0x{:x}", atomic.va),
                expected: "a multiple of 8".to_owned(),
            });
        }
    }

    /// A packet whose PSN is newer than all before.
    fn take_new(
        &mut self,
        packet: &Packet<'_>,
        frame: u64,
        notes: &mut Vec<Note>,
        findings: &mut Vec<Finding>,
        summary: &mut Summary,
    ) {
        let opcode = packet.opcode;
        let len = packet.payload.len() as u64;
        let announced = packet.headers.reth.map(|reth| reth.dma_len);
        self.go_back = None;
        self.check_sequence(opcode, findings);
        if opcode.position.starts() {
            self.messages += 1;
            let whole = match opcode.operation {
                Operation::Send if opcode.position == Position::Only => Some(len),
                Operation::Write | Operation::ReadRequest => announced.map(u64::from),
                _ => None,
            };
            notes.push(Note::Message {
                number: self.messages,
                operation: opcode.operation,
                len: whole,
            });
            summary.count_message(opcode.operation);
            self.open = Some(Open {
                operation: opcode.operation,
                packets: 0,
                bytes: 0,
                announced: announced.filter(|_| opcode.operation == Operation::Write),
            });
        }
        summary.bytes += len;
        if let Some(open) = &mut self.open {
            open.packets += 1;
            open.bytes += len;
        }
        if opcode.position.ends() {
            if let Some(open) = self.open.take() {
                self.close(open, opcode, notes, findings);
            }
            self.position_unknown = false;
        }
        let span = self.span(packet);
        let psn = packet.headers.bth.psn;
        self.sent.push_back(Sent::new(packet, span, frame, self.messages));
        self.next = psn.advance(span);
        self.next_is_guess = opcode.operation == Operation::ReadRequest && self.mtu.is_none();
        self.forget();
    }

    fn check_sequence(&mut self, opcode: &'static Opcode, findings: &mut Vec<Finding>) {
        let open = self.open.map(|open| open.operation);
        let right = if opcode.position.starts() {
            open.is_none()
        } else {
            open == Some(opcode.operation) || open.is_none() && self.position_unknown
        };
        if !right {
            findings.push(Finding {
                rule: Rule::OpcodeSequence,
                seen: opcode.name.to_owned(),
                expected: match open {
                    Some(open) => format!("the next packet of a {}", operation_name(open)),
                    None => "the first packet of a message".to_owned(),
                },
            });
            self.position_unknown = true;
        }
        if !opcode.position.starts() && open.is_some_and(|open| open != opcode.operation) {
            self.open = None;
        }
    }

    fn close(
        &self,
        open: Open,
        opcode: &'static Opcode,
        notes: &mut Vec<Note>,
        findings: &mut Vec<Finding>,
    ) {
        if opcode.position == Position::Last {
            notes.push(Note::MessageEnd {
                number: self.messages,
                packets: open.packets,
                bytes: open.bytes,
            });
        }
        if let Some(announced) = open.announced
            && u64::from(announced) != open.bytes
        {
            findings.push(Finding {
                rule: Rule::WriteLength,
                seen: format!("a WRITE of {} B", open.bytes),
                expected: format!("{announced} B as its RETH announced"),
            });
        }
    }

    /// Packets were missed: nobody knows which messages they held.
    fn lose_count(&mut self) {
        self.open = None;
        self.position_unknown = true;
        self.msn = None;
    }

    fn span(&self, packet: &Packet<'_>) -> u32 {
        match packet.headers.reth {
            Some(reth) if packet.opcode.operation == Operation::ReadRequest => {
                packets_for(reth.dma_len.min(MAX_MESSAGE), self.mtu.unwrap_or(4096))
            }
            _ => 1,
        }
    }

    fn cause_at(&self, psn: Psn) -> Cause {
        match self.go_back {
            Some((from, cause)) if psn.since(from) >= 0 => cause,
            _ => Cause::Unknown,
        }
    }

    /// Keeps memory bounded.
    fn forget(&mut self) {
        let acknowledged = self
            .sent
            .get(REMEMBERED_ACKNOWLEDGED)
            .is_some_and(|sent| sent.psn.since(self.unacknowledged) < 0);
        if acknowledged || self.sent.len() > REMEMBERED {
            self.sent.pop_front();
        }
    }

    /// Everything up to and with `psn` has arrived. `None` when that was known; else the first and
    /// last frame newly covered, and their number.
    pub(crate) fn acknowledge(&mut self, psn: Psn) -> Option<(u64, u64, u64)> {
        if psn.since(self.unacknowledged) < 0 {
            return None;
        }
        let old = core::mem::replace(&mut self.unacknowledged, psn.next());
        let mut covered = self
            .sent
            .iter()
            .rev()
            .skip_while(|sent| sent.psn.since(psn) > 0)
            .take_while(|sent| sent.psn.since(old) >= 0);
        let last = covered.next()?.frame;
        let (first, packets) =
            covered.fold((last, 1), |(_, packets), sent| (sent.frame, packets + 1));
        Some((first, last, packets))
    }

    /// Whether `psn` was not sent yet, as far as a capture can tell.
    pub(crate) fn is_future(&self, psn: Psn) -> bool {
        !self.next_is_guess && psn.since(self.next) >= 0
    }

    /// A NAK asks to send again from `psn` on.
    pub(crate) fn go_back(&mut self, psn: Psn, cause: Cause) {
        if psn.since(self.next) < 0 {
            self.go_back = Some((psn, cause));
        }
    }

    /// Judges the MSN of a positive acknowledgement of `psn`.
    pub(crate) fn check_msn(&mut self, psn: Psn, msn: Msn) -> Option<Finding> {
        let sent = self.get(psn).filter(|sent| sent.message != 0)?;
        let completed = if sent.opcode.position.ends() { sent.message } else { sent.message - 1 };
        let ahead = u32::try_from(self.messages - completed).ok()?;
        let offset = difference(msn, Msn::new(low_24(completed)));
        let Some(base) = &mut self.msn else {
            self.msn = Some(MsnBase { offset, slack: ahead });
            return None;
        };
        let distance = Psn::new(offset.get()).since(Psn::new(base.offset.get()));
        if distance < 0 && distance.unsigned_abs() <= base.slack {
            *base = MsnBase { offset, slack: base.slack - distance.unsigned_abs() };
            return None;
        }
        if u32::try_from(distance).is_ok_and(|distance| distance <= ahead) {
            return None;
        }
        let expected = low_24(completed).wrapping_add(base.offset.get());
        Some(Finding {
            rule: Rule::Msn,
            seen: format!("MSN {} with PSN {psn}", msn.get()),
            expected: format!("MSN {}", Msn::new(expected).get()),
        })
    }
}

/// The low 24 bits of a count.
fn low_24(count: u64) -> u32 {
    u32::try_from(count & 0x00ff_ffff).unwrap_or(0)
}

fn difference(a: Msn, b: Msn) -> Msn {
    Msn::new(a.get().wrapping_sub(b.get()))
}

/// The finding for a payload that no path MTU makes right.
pub(crate) fn payload_length(opcode: &Opcode, len: usize) -> Finding {
    Finding {
        rule: Rule::PayloadLength,
        seen: format!("{} of {len} B", opcode.name),
        expected: match opcode.payload {
            PayloadRule::Empty => "no payload",
            PayloadRule::Full => "a path MTU: 256, 512, 1024, 2048 or 4096 B",
            PayloadRule::Rest => "1 to 4096 B",
            PayloadRule::Any => "at most 4096 B",
            PayloadRule::Eight => "8 B",
        }
        .to_owned(),
    }
}

impl Sent {
    fn ask_again(&mut self, psn: Psn) {
        if !self.asked_again_at.contains(&psn) {
            self.asked_again_at.push(psn);
        }
    }

    fn new(packet: &Packet<'_>, span: u32, frame: u64, message: u64) -> Self {
        Self {
            psn: packet.headers.bth.psn,
            span,
            frame,
            opcode: packet.opcode,
            payload: u32::try_from(packet.payload.len()).unwrap_or(u32::MAX),
            announced: packet.headers.reth.map_or(0, |reth| reth.dma_len),
            message,
            answered: 0,
            asked_again_at: Vec::new(),
            original: None,
        }
    }
}
