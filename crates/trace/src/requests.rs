//! One direction's requests: which PSNs were seen, what they began, what was sent again.

use std::collections::VecDeque;
use std::ops::Range;

use roxe_wire::opcode::{Operation, PayloadRule, Position, Service};
use roxe_wire::{
    Headers, MAX_MESSAGE_LEN, Msn, Mtu, NakCode, Opcode, Packet, Psn, RKey, Syndrome, packets_for,
};

use crate::completed::CompletedMessages;
use crate::flow::Arrival;
use crate::note::{Cause, operation_name};
use crate::{Finding, Note, Rule, Summary};

/// A jump of so many PSNs is no loss but another connection.
const RESTART: u32 = 1 << 20;

/// What comes less than so many PSNs before the first one seen belongs to the same connection.
const NEAR: i32 = 1 << 14;

/// How many packets are remembered in one direction, at the most …
const REMEMBERED: usize = 1024;

/// … and at the least, where all directions together would remember more than this …
const REMEMBERED_AT_LEAST: usize = 64;
const REMEMBERED_BY_ALL: usize = 1 << 20;

/// … and of those that were acknowledged.
const REMEMBERED_ACKNOWLEDGED: usize = 128;

/// A READ that was asked for again at more places than this may be answered from anywhere.
const REMEMBERED_RESTARTS: usize = 8;

/// A request packet as it was first seen.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) psn: Psn,
    /// How many PSNs it takes: more than one for a READ.
    pub(crate) span: u32,
    /// Whether that is no guess.
    is_span_known: bool,
    /// The frame that carried it first …
    pub(crate) frame: u64,
    /// … and last …
    pub(crate) latest: u64,
    /// … and last but one.
    previous: u64,
    /// The frame that acknowledged it.
    acknowledged_by: Option<u64>,
    pub(crate) opcode: &'static Opcode,
    /// The message it belongs to, counted from 1; 0 where that began unseen.
    message: u64,
    /// The end of its message was told.
    end_is_told: bool,
    payload: u32,
    /// The length its RETH announces, if it has one and the capture kept it.
    pub(crate) announced: Option<u32>,
    /// Whether the capture kept all its headers.
    is_whole: bool,
    /// Which memory a READ asks for.
    from: (u64, RKey),
    /// Stands for all headers but the BTH, but for those of a READ.
    headers: u64,
    /// How many messages end with or before it, counted from the first packet seen.
    pub(crate) ends: u64,
    /// Of the PSNs it takes, those before this one were answered …
    pub(crate) answered: u32,
    /// … but for these.
    missing: Range<u32>,
    /// Where a READ was asked for again.
    asked_again: Vec<Psn>,
    /// Whether a READ was asked for again with a smaller length: its answer may be either.
    pub(crate) is_less: bool,
    /// What an atomic was answered with.
    pub(crate) original: Option<u64>,
    /// It does not follow what is before it: what follows it is not measured by it.
    is_astray: bool,
}

/// A message whose last packet is still to come.
#[derive(Clone, Copy, Debug)]
struct Open {
    /// Counted from 1.
    number: u64,
    operation: Operation,
    packets: u64,
    bytes: u64,
    /// The length a WRITE announced.
    announced: Option<u32>,
}

/// An answer to PSNs that were not seen: lost by the capture, or not yet sent?
#[derive(Clone, Copy, Debug)]
struct Early {
    frame: u64,
    psn: Psn,
    /// The last PSN that it says has arrived.
    arrived: Psn,
    /// How many messages it says are complete.
    msn: Option<Msn>,
}

/// Whether requests ask for a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fit {
    /// The packet with its PSN was seen, and asks for that kind.
    Asks,
    /// The packet was not seen, or such an answer names it and means others.
    Perhaps,
    /// It would be from before the first packet seen.
    TooOld,
    No,
}

/// The requests of one direction of a conversation.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    /// How many packets may be remembered.
    limit: usize,
    /// The first PSN seen, or taught by connection management.
    first: Option<Psn>,
    /// The PSN after the newest one seen.
    next: Psn,
    /// Whether `next` is sure: a READ takes PSNs by the path MTU, which may not be known yet.
    next_is_guess: bool,
    /// The oldest PSN that was not acknowledged.
    unacknowledged: Psn,
    /// Whether anything was.
    any_acknowledged: bool,
    mtu: Option<u32>,
    /// In the order of their PSNs.
    sent: VecDeque<Sent>,
    /// Whether something older than `sent` was seen and forgotten.
    forgotten: bool,
    open: Option<Open>,
    messages: u64,
    /// Messages that ended.
    ends: u64,
    /// The last NAK that asked to go back, until somebody does.
    asked_back: Option<(Psn, Cause)>,
    /// The PSN after the packet seen last, which may be an old one.
    after_last: Psn,
    /// Why packets are being sent again.
    going_back: Option<Cause>,
    early: Option<Early>,
    /// The newest PSN that was answered without being seen: the responder has more than was sent
    /// here, until this is.
    ahead: Option<Psn>,
    /// Whether the path MTU was learned from answers.
    is_mtu_answered: bool,
    /// From here on it may be another connection: all before was acknowledged, and PSNs are
    /// missing between.
    anew: Option<Psn>,
    /// Whether the first packet of the connection was seen.
    is_whole: bool,
    pub(crate) completed: CompletedMessages,
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
    /// It was skipped before, and belongs at this index.
    Skipped(usize),
    /// It is older than what is remembered.
    Old,
    /// Far from anything seen.
    Elsewhere,
}

impl Requests {
    /// Whether any request was seen or announced.
    pub(crate) const fn is_known(&self) -> bool {
        self.first.is_some()
    }

    /// Connection management told the PSN that comes first: nothing was sent or completed yet.
    pub(crate) fn connect_at(&mut self, psn: Psn) {
        self.begin_at(psn);
        self.completed = CompletedMessages::none_yet(psn);
        self.is_whole = true;
    }

    /// What comes is not to be measured by what was.
    fn begin_at(&mut self, psn: Psn) {
        *self = Self {
            first: Some(psn),
            next: psn,
            unacknowledged: psn,
            messages: self.messages,
            limit: self.limit,
            completed: CompletedMessages::unknown(psn),
            ..Self::default()
        };
    }

    /// There is a packet from before the first one seen: it came late, or was broken. Only near the
    /// start: once something was acknowledged, PSNs stay counted as they are.
    pub(crate) fn began_before(&mut self, psn: Psn) {
        let first = self.first.filter(|first| (1..NEAR).contains(&first.since(psn)));
        if let Some(first) = first.filter(|_| !self.any_acknowledged) {
            self.first = Some(psn);
            if self.unacknowledged == first {
                self.unacknowledged = psn;
            }
        }
    }

    /// There are so many directions to remember packets of.
    pub(crate) fn share(&mut self, directions: usize) {
        let share = REMEMBERED_BY_ALL / directions.max(1);
        self.limit = share.clamp(REMEMBERED_AT_LEAST, REMEMBERED);
    }

    /// How far `psn` lies behind the first one; nothing where it is older.
    pub(crate) fn relative(&self, psn: Psn) -> Option<i32> {
        self.first.map(|first| psn.since(first)).filter(|relative| *relative >= 0)
    }

    /// The newest request, if it is a READ that takes this PSN should the path MTU be small.
    fn may_be_read(&self, psn: Psn) -> Option<&Sent> {
        let read = self.sent.back().filter(|_| self.next_is_guess)?;
        let most = match read.announced {
            Some(announced) => packets_for(announced.min(MAX_MESSAGE_LEN), Mtu::B256.bytes()),
            None => RESTART,
        };
        psn.is_within(read.psn, most).then_some(read)
    }

    /// Whether these requests ask for `response`.
    pub(crate) fn fit(&self, response: &Packet<'_>) -> Fit {
        let Some(first) = self.first else { return Fit::No };
        let psn = response.headers.bth.psn;
        if self.is_future(psn) {
            return Fit::No;
        }
        if let Some(sent) = self.get(psn) {
            return sent.fit(response);
        }
        if let Some(read) = self.may_be_read(psn) {
            return match read.fit(response) {
                Fit::No if response.opcode.operation == Operation::AtomicAcknowledge => Fit::No,
                _ => Fit::Perhaps,
            };
        }
        if psn.since(self.next) >= 0 {
            Fit::No
        } else if psn.since(self.unacknowledged) >= -1 && psn.since(first) >= -1 {
            Fit::Perhaps
        } else if !self.any_acknowledged && (1..NEAR).contains(&first.since(psn)) {
            Fit::TooOld
        } else {
            Fit::No
        }
    }

    /// Whether the first packet of the connection was seen.
    pub(crate) const fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// A count of completed messages may show that the first packet was seen.
    pub(crate) fn learn_beginning(&mut self) {
        self.is_whole = self.is_whole || self.completed.may_be_all();
    }

    /// The answers were not to these requests.
    pub(crate) fn forget_answers(&mut self) {
        let Some(first) = self.first else { return };
        self.unacknowledged = self.sent.front().map_or(first, |sent| sent.psn);
        self.any_acknowledged = false;
        self.completed = CompletedMessages::unknown(self.next);
        (self.early, self.ahead, self.asked_back, self.is_whole) = (None, None, None, false);
        let is_mtu_answered = core::mem::take(&mut self.is_mtu_answered);
        if is_mtu_answered {
            self.mtu = None;
        }
        for sent in &mut self.sent {
            (sent.acknowledged_by, sent.original) = (None, None);
            (sent.answered, sent.missing) = (0, 0..0);
            let is_short = sent.announced.is_some_and(|announced| announced <= Mtu::B256.bytes());
            sent.is_span_known &= !is_mtu_answered || is_short;
        }
    }

    /// The index of the first packet behind `psn`.
    fn behind(&self, psn: Psn) -> usize {
        let Some(oldest) = self.sent.front() else { return 0 };
        let distance = psn.since(oldest.psn);
        self.sent.partition_point(|sent| sent.psn.since(oldest.psn) <= distance)
    }

    /// The index of the packet that has `psn` among its PSNs.
    fn find(&self, psn: Psn) -> Option<usize> {
        // Most packets take one PSN each, and none is missing.
        let back = self.sent.back()?.psn.since(psn).max(0).unsigned_abs();
        if let Some(likely) = (self.sent.len() - 1).checked_sub(back as usize)
            && psn.is_within(self.sent[likely].psn, self.sent[likely].span)
        {
            return Some(likely);
        }
        let index = self.behind(psn).checked_sub(1)?;
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

    fn place(&mut self, packet: &Packet<'_>) -> Place {
        let psn = packet.headers.bth.psn;
        if self.first.is_none() {
            self.begin_at(psn);
            return Place::Next;
        }
        self.settle_guess(psn);
        let ahead = psn.since(self.next);
        match u32::try_from(ahead) {
            Ok(0) => Place::Next,
            Ok(ahead) if ahead < RESTART => Place::Ahead(ahead),
            Ok(_) => Place::Elsewhere,
            Err(_) => match self.find(psn) {
                Some(index) if self.sent[index].psn == psn => Place::Again(index),
                Some(index) if self.sent[index].reaches(packet) => Place::WithinRead(index),
                Some(index) => {
                    let read = &mut self.sent[index];
                    read.span = psn.since(read.psn).unsigned_abs();
                    Place::Skipped(index + 1)
                }
                None if ahead.unsigned_abs() >= RESTART => Place::Elsewhere,
                None => match self.behind(psn) {
                    0 if self.forgotten => Place::Old,
                    index => Place::Skipped(index),
                },
            },
        }
    }

    /// The PSN after a READ of unknown path MTU tells how many it took, if none were lost.
    fn settle_guess(&mut self, psn: Psn) {
        if !self.next_is_guess {
            return;
        }
        let Some(read) = self.sent.back_mut() else { return };
        let Ok(span) = u32::try_from(psn.since(read.psn)) else { return };
        if read.may_take(span) {
            read.span = span;
            self.next = psn;
            self.next_is_guess = false;
            self.open = None;
            self.completed = CompletedMessages::unknown(psn);
        }
    }

    /// The path MTU, once a full packet showed it.
    pub(crate) const fn mtu(&self) -> Option<u32> {
        self.mtu
    }

    /// A full packet shows the path MTU, unless one did before. Tells what it is.
    pub(crate) fn learn_mtu(&mut self, full: u32) -> u32 {
        if let Some(mtu) = self.mtu {
            return mtu;
        }
        self.mtu = Some(full);
        self.measure_reads(full, |sent| !sent.is_span_known);
        full
    }

    /// A full packet of the answer to the READ with `psn` shows it.
    pub(crate) fn learn_mtu_at(&mut self, psn: Psn, full: u32) -> u32 {
        let is_other = self.mtu.is_some_and(|mtu| mtu != full);
        let anew = self.anew.filter(|anew| psn.since(*anew) >= 0);
        if let Some(anew) = anew.filter(|_| is_other) {
            self.mtu = Some(full);
            self.anew = None;
            self.measure_reads(full, |sent| sent.psn.since(anew) >= 0);
            return full;
        }
        if !is_other {
            self.anew = self.anew.filter(|_| anew.is_none());
        }
        self.is_mtu_answered |= self.mtu.is_none();
        self.learn_mtu(full)
    }

    /// The spans of those READs that are `unknown` follow from the path MTU.
    fn measure_reads(&mut self, mtu: u32, unknown: impl Fn(&Sent) -> bool) {
        let mut index = 0;
        while index < self.sent.len() {
            let sent = &mut self.sent[index];
            if sent.opcode.operation == Operation::ReadRequest
                && unknown(sent)
                && let Some(announced) = sent.announced
            {
                sent.span = packets_for(announced.min(MAX_MESSAGE_LEN), mtu);
                sent.is_span_known = true;
                self.absorb(index);
            }
            index += 1;
        }
        if let Some(read) = self.sent.back().filter(|read| read.is_span_known) {
            let end = read.psn.advance(read.span);
            if self.next_is_guess || end.since(self.next) > 0 {
                self.next = end;
                self.next_is_guess = false;
            }
        }
    }

    /// The last packet of the answer to a READ of unknown path MTU shows how many PSNs it takes.
    pub(crate) fn learn_span(&mut self, psn: Psn) {
        let index = self.find(psn).or_else(|| {
            self.may_be_read(psn)?;
            self.sent.len().checked_sub(1)
        });
        let Some(index) = index else { return };
        let is_newest = index + 1 == self.sent.len();
        let read = &mut self.sent[index];
        let span = psn.since(read.psn).unsigned_abs() + 1;
        if !read.is_span_known && read.may_take(span) {
            read.span = span;
            read.is_span_known = true;
            if is_newest && self.next_is_guess {
                self.next = psn.next();
                self.next_is_guess = false;
            }
        }
    }

    /// READs that lie within another one, which was seen later, only asked for its rest.
    fn absorb(&mut self, index: usize) {
        let Some(mtu) = self.mtu else { return };
        let read = &self.sent[index];
        if read.opcode.operation != Operation::ReadRequest || !read.is_span_known {
            return;
        }
        let is_rest = |rest: &&Sent| {
            rest.opcode.operation == Operation::ReadRequest
                && rest.psn.is_within(read.psn, read.span)
                && rest.announced.is_some_and(|len| read.is_rest(rest.psn, rest.from, len, mtu))
        };
        let rests = self.sent.range(index + 1..).take_while(is_rest).count();
        if rests == 0 {
            return;
        }
        for _ in 0..rests {
            let Some(rest) = self.sent.remove(index + 1) else { return };
            let read = &mut self.sent[index];
            read.ask_again(rest.psn);
            rest.asked_again.into_iter().for_each(|psn| read.ask_again(psn));
        }
        self.ends -= rests as u64;
        self.sent.range_mut(index + 1..).for_each(|behind| behind.ends -= rests as u64);
        self.completed.forget_offset();
    }

    /// An answer shows how far the newest READ reaches at least, if its length is not known.
    pub(crate) fn reach(&mut self, psn: Psn) {
        let Some(read) = self.may_be_read(psn).filter(|read| read.announced.is_none()) else {
            return;
        };
        let Ok(index) = u32::try_from(psn.since(read.psn)) else { return };
        if let Some(read) = self.sent.back_mut().filter(|read| read.span <= index) {
            read.span = index + 1;
            self.next = psn.next();
        }
    }

    /// Takes in one request packet.
    pub(crate) fn observe(
        &mut self,
        packet: &Packet<'_>,
        arrival: &Arrival<'_>,
        notes: &mut Vec<Note>,
        findings: &mut Vec<Finding>,
        summary: &mut Summary,
    ) {
        let frame = arrival.frame;
        let psn = packet.headers.bth.psn;
        let mut place = self.place(packet);
        let is_done = self.is_done(packet);
        if self.is_restart(&place, packet, is_done) {
            notes.push(Note::Restart);
            self.begin_at(psn);
            place = Place::Next;
        }
        self.check_alone(packet, findings);
        let mut late = None;
        match place {
            Place::Next | Place::Elsewhere => {
                self.judge_early(packet, findings);
                self.take_new(packet, frame, notes, findings, summary);
            }
            Place::Ahead(missing) => {
                notes.push(Note::Gap { missing });
                summary.gaps += 1;
                self.early = None;
                self.open = None;
                self.completed = CompletedMessages::unknown(psn);
                if self.unacknowledged == self.next {
                    self.anew = Some(psn);
                }
                self.take_new(packet, frame, notes, findings, summary);
            }
            Place::Again(index) => {
                let sent = &self.sent[index];
                if sent.is_same(packet) {
                    let (of, acknowledged_by) = (sent.frame, sent.acknowledged_by);
                    late = arrival.overtaken_by();
                    notes.push(if late.is_some() && arrival.was_sent_before(of) {
                        Note::Late { repeated_in: of }
                    } else {
                        let cause = self.go_back(psn, late);
                        Note::Retransmission { of, cause, acknowledged_by }
                    });
                    summary.retransmissions += 1;
                    let sent = &mut self.sent[index];
                    (sent.previous, sent.latest) = (sent.latest, frame);
                    if packet.opcode.operation == Operation::ReadRequest {
                        sent.ask_again(psn);
                        let asked = packet.headers.reth.map_or(0, |reth| reth.dma_len);
                        sent.is_less |= sent.announced.is_some_and(|announced| asked < announced);
                    }
                    self.tell_end(index, notes, findings);
                } else {
                    findings.push(sent.differs_from(packet));
                }
            }
            Place::WithinRead(index) => {
                let of = self.sent[index].frame;
                if packet.opcode.operation == Operation::ReadRequest {
                    let read = &mut self.sent[index];
                    findings.extend(read.check_rest(packet, self.mtu));
                    read.ask_again(psn);
                    self.go_back(psn, None);
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
            Place::Skipped(index) => {
                late = arrival.overtaken_by();
                let cause = self.go_back(psn, late);
                notes.push(Note::FillsGap { cause });
                if is_done {
                    self.anew = Some(psn);
                }
                let mut broken = Vec::new();
                self.insert(index, packet, frame, notes, &mut broken);
                // Behind what was acknowledged it may be another connection's.
                findings.extend(broken.into_iter().filter(|_| !is_done));
                summary.bytes += packet.payload.len() as u64;
                if packet.opcode.position.starts() {
                    summary.count_message(packet.opcode.operation);
                }
            }
            Place::Old => {
                self.go_back(psn, None);
                // Perhaps it is another connection's, which counts anew.
                self.completed.forget_offset();
                notes.push(Note::Old);
                summary.retransmissions += 1;
            }
        }
        // What comes late was not sent between what came before and what comes next.
        if late.is_none() {
            self.after_last = match self.get(psn) {
                Some(sent) => sent.psn.advance(sent.span),
                None => psn.next(),
            };
        }
    }

    /// Whether nobody sends this PSN again: it was acknowledged, or is never repeated.
    fn is_done(&self, packet: &Packet<'_>) -> bool {
        packet.opcode.service == Service::Uc
            || packet.headers.bth.psn.since(self.unacknowledged) < 0
    }

    /// Whether the queue pairs belong to another connection now: PSNs far from all before, another
    /// packet under a PSN that is done with, or another path MTU when all is done.
    fn is_restart(&self, place: &Place, packet: &Packet<'_>, is_done: bool) -> bool {
        let opcode = packet.opcode;
        let other_mtu = opcode.position == Position::First
            && opcode.payload.allows_for_some_mtu(packet.payload.len())
            && self.mtu.is_some_and(|mtu| mtu as usize != packet.payload.len());
        match *place {
            Place::Elsewhere => true,
            Place::Next => false,
            Place::Ahead(_) => other_mtu && self.unacknowledged == self.next,
            Place::Again(index) => is_done && !self.sent[index].is_same(packet),
            Place::WithinRead(_) => is_done && opcode.operation != Operation::ReadRequest,
            Place::Skipped(_) | Place::Old => is_done && other_mtu,
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
                findings.push(path_mtu(packet.opcode, len, mtu));
            } else if rule == PayloadRule::Full {
                self.anew = None;
            } else if !rule.allows(len, mtu as usize) {
                findings.push(Finding {
                    rule: Rule::PayloadLength,
                    seen: format!("{} of {len} B", packet.opcode.name),
                    expected: format!("at most the path MTU of {mtu} B"),
                });
            }
        } else if rule == PayloadRule::Full
            && let Ok(full) = u32::try_from(len)
        {
            self.learn_mtu(full);
        }
        if let Some(reth) = packet.headers.reth
            && reth.dma_len > MAX_MESSAGE_LEN
        {
            findings.push(Finding {
                rule: Rule::MessageLength,
                seen: format!("a length of {} B", reth.dma_len),
                expected: format!("at most {MAX_MESSAGE_LEN} B"),
            });
        }
        let written =
            packet.headers.reth.filter(|_| packet.opcode.operation == Operation::AtomicWrite);
        let va = packet.headers.atomic_eth.map(|atomic| atomic.va);
        if let Some(va) = va.or_else(|| Some(written?.va))
            && va % 8 != 0
        {
            findings.push(Finding {
                rule: Rule::AtomicAlignment,
                seen: format!("address 0x{va:x}"),
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
        let psn = packet.headers.bth.psn;
        (self.going_back, self.asked_back) = (None, None);
        let before = self.sent.back().filter(|before| before.is_before(psn) && !before.is_astray);
        let astray = before.and_then(|before| check_sequence(before.opcode, opcode));
        let is_astray = astray.is_some();
        findings.extend(astray);
        if opcode.position.starts() {
            self.begin_message(packet, notes);
            summary.count_message(opcode.operation);
        } else if let Some(open) = &mut self.open {
            if open.operation == opcode.operation {
                open.packets += 1;
                open.bytes += len;
                notes.push(Note::Part { number: open.number, part: open.packets });
            } else {
                self.open = None;
            }
        } else {
            notes.push(Note::Incomplete { ends: opcode.position.ends() });
        }
        if !opcode.position.ends()
            && let Some(open) = &mut self.open
            && let Some(announced) = open.announced
            && open.bytes >= announced.into()
        {
            findings.push(Finding {
                rule: Rule::WriteLength,
                seen: format!("a WRITE that goes on behind {} B", open.bytes),
                expected: format!("an end with {announced} B as its RETH announced"),
            });
            open.announced = None;
        }
        summary.bytes += len;
        let message = self.open.map_or(0, |open| open.number);
        let mut end_is_told = false;
        if opcode.position.ends() {
            self.ends += 1;
            if let Some(open) = self.open.take() {
                end_is_told = true;
                end_message(open, opcode, notes, findings);
            }
        }
        let sent = Sent::new(packet, self.mtu, frame, self.ends);
        self.next = psn.advance(sent.span);
        self.next_is_guess = !sent.is_span_known;
        self.sent.push_back(Sent { message, end_is_told, is_astray, ..sent });
        self.forget();
    }

    fn begin_message(&mut self, packet: &Packet<'_>, notes: &mut Vec<Note>) {
        let opcode = packet.opcode;
        let len = packet.payload.len() as u64;
        let announced = packet.headers.reth.map(|reth| reth.dma_len);
        self.tell_begin(packet, notes);
        self.open = Some(Open {
            number: self.messages,
            operation: opcode.operation,
            packets: 1,
            bytes: len,
            announced: announced.filter(|_| opcode.operation == Operation::Write),
        });
    }

    /// Gives a message its number.
    fn tell_begin(&mut self, packet: &Packet<'_>, notes: &mut Vec<Note>) {
        let opcode = packet.opcode;
        self.messages += 1;
        let len = match opcode.operation {
            Operation::Send if opcode.position == Position::Only => {
                Some(packet.payload.len() as u64)
            }
            Operation::Write | Operation::ReadRequest => {
                packet.headers.reth.map(|reth| reth.dma_len.into())
            }
            _ => None,
        };
        notes.push(Note::Message { number: self.messages, operation: opcode.operation, len });
    }

    /// The message that the packet at `index` belongs to, as far as it was seen: where it begins,
    /// where what is known of it ends, and all of it together. `None` where its beginning is
    /// missing.
    fn message_around(&self, index: usize) -> Option<(Range<usize>, Open)> {
        let follows = |at: usize| -> bool {
            let (before, sent) = (&self.sent[at - 1], &self.sent[at]);
            before.is_before(sent.psn)
                && !before.opcode.position.ends()
                && !sent.opcode.position.starts()
                && before.opcode.operation == sent.opcode.operation
        };
        let mut start = index;
        while start > 0 && follows(start) {
            start -= 1;
        }
        let first = &self.sent[start];
        if !first.opcode.position.starts() {
            return None;
        }
        let mut end = index + 1;
        while end < self.sent.len() && follows(end) {
            end += 1;
        }
        let operation = first.opcode.operation;
        let open = Open {
            number: first.message,
            operation,
            packets: (end - start) as u64,
            bytes: self.sent.range(start..end).map(|sent| u64::from(sent.payload)).sum(),
            announced: first.announced.filter(|_| operation == Operation::Write),
        };
        Some((start..end, open))
    }

    /// The last packet of a message came again, or late: now the message ends, if that was never
    /// told because something of it was missing.
    fn tell_end(&mut self, index: usize, notes: &mut Vec<Note>, findings: &mut Vec<Finding>) {
        let sent = &self.sent[index];
        let opcode = sent.opcode;
        if sent.end_is_told || opcode.position != Position::Last {
            return;
        }
        let Some((_, open)) = self.message_around(index) else { return };
        self.sent[index].end_is_told = true;
        end_message(open, opcode, notes, findings);
    }

    /// A packet that was missing.
    fn insert(
        &mut self,
        index: usize,
        packet: &Packet<'_>,
        frame: u64,
        notes: &mut Vec<Note>,
        findings: &mut Vec<Finding>,
    ) {
        let psn = packet.headers.bth.psn;
        self.began_before(psn);
        let before = index.checked_sub(1).map(|before| &self.sent[before]);
        let before_it = before.filter(|before| before.is_before(psn));
        let mut sent = Sent::new(packet, self.mtu, frame, before.map_or(0, |before| before.ends));
        let behind_it = self.sent.get(index).filter(|behind| sent.is_before(behind.psn));
        findings.extend(
            before_it
                .filter(|before| !before.is_astray)
                .and_then(|before| check_sequence(before.opcode, packet.opcode))
                .or_else(|| check_sequence(packet.opcode, behind_it?.opcode)),
        );
        if packet.opcode.position.ends() {
            sent.ends += 1;
            self.ends += 1;
            self.sent.range_mut(index..).for_each(|behind| behind.ends += 1);
            self.completed.forget_offset();
        }
        sent.end_is_told = packet.opcode.position == Position::Only;
        self.sent.insert(index, sent);
        if packet.opcode.position.starts() {
            self.tell_begin(packet, notes);
            self.sent[index].message = self.messages;
        }
        if let Some((known, open)) = self.message_around(index) {
            self.sent.range_mut(known.clone()).for_each(|sent| sent.message = open.number);
            // Nothing of it is missing up to the newest packet: it goes on from here.
            let is_newest = known.end == self.sent.len();
            let newest = &self.sent[known.end - 1];
            if is_newest && newest.is_before(self.next) && !newest.opcode.position.ends() {
                self.open = Some(open);
            }
            self.tell_end(index, notes, findings);
            // Its end may have to come again, but its length is known.
            let last = &mut self.sent[known.end - 1];
            if last.opcode.position == Position::Last && !last.end_is_told {
                let wrong = open.wrong_length();
                last.end_is_told = wrong.is_some();
                findings.extend(wrong);
            }
        }
        self.absorb(index);
        self.forget();
    }

    /// An old packet: why? The first one after a step back has the reason, and those behind it the
    /// same. One that was overtaken by the frame `late` says nothing about what is sent now.
    fn go_back(&mut self, psn: Psn, late: Option<u64>) -> Cause {
        if let Some(before) = late {
            return Cause::Late { before };
        }
        if let Some(cause) = self.going_back
            && psn == self.after_last
        {
            let cause = if cause == Cause::NoneSeen { Cause::Continues } else { cause };
            self.going_back = Some(cause);
            return cause;
        }
        let cause = match self.asked_back.take() {
            Some((from, cause)) if psn.since(from) >= 0 => cause,
            _ => Cause::NoneSeen,
        };
        self.going_back = Some(cause);
        cause
    }

    /// Keeps memory bounded, and all that is remembered within half a circle.
    fn forget(&mut self) {
        let acknowledged = self
            .sent
            .get(REMEMBERED_ACKNOWLEDGED)
            .is_some_and(|sent| sent.psn.since(self.unacknowledged) < 0);
        let mut enough = !acknowledged;
        while let Some(oldest) = self.sent.front()
            && self.sent.len() > 1
            && !(enough && self.sent.len() <= self.limit && self.next.since(oldest.psn) > 0)
        {
            let end = oldest.psn.advance(oldest.span);
            if end.since(self.unacknowledged) > 0 {
                self.unacknowledged = end;
            }
            self.sent.pop_front();
            self.forgotten = true;
            enough = true;
        }
    }

    /// `frame` says that everything up to and with `psn` has arrived. `None` when that was known;
    /// else a note on the frames that carried what is newly covered: of each packet the one sent
    /// last before the packet behind it, as a responder takes nothing out of sequence.
    pub(crate) fn acknowledge(&mut self, psn: Psn, frame: u64) -> Option<Note> {
        if psn.since(self.unacknowledged) < 0 {
            return None;
        }
        let old = core::mem::replace(&mut self.unacknowledged, psn.next());
        self.any_acknowledged = true;
        let covered = self
            .sent
            .iter_mut()
            .rev()
            .skip_while(|sent| sent.psn.since(psn) > 0)
            .take_while(|sent| sent.psn.since(old) >= 0);
        let (mut first, mut last, mut packets) = (u64::MAX, 0, 0);
        for sent in covered {
            sent.acknowledged_by = Some(frame);
            let in_sequence = [sent.latest, sent.previous, sent.frame];
            let carrier = in_sequence.into_iter().find(|it| *it < first).unwrap_or(sent.latest);
            (first, last) = (first.min(carrier), last.max(carrier));
            packets += 1;
        }
        (packets > 0).then_some(Note::Acknowledges { first, last, packets })
    }

    /// Whether `psn` was not sent yet, as far as was seen.
    pub(crate) fn is_future(&self, psn: Psn) -> bool {
        !self.next_is_guess && psn.since(self.next) >= 0
    }

    /// Whether everything up to and with `psn` is known to have arrived.
    pub(crate) fn is_acknowledged(&self, psn: Psn) -> bool {
        psn.since(self.unacknowledged) < 0
    }

    /// Whether a request was seen that takes `psn`, or may take it.
    pub(crate) fn may_ask_at(&self, psn: Psn) -> bool {
        self.next_is_guess || self.get(psn).is_some()
    }

    /// Whether what comes now may be another connection's, with another path MTU.
    pub(crate) const fn may_be_anew(&self) -> bool {
        self.anew.is_some()
    }

    /// An answer names a PSN that was not seen.
    pub(crate) fn answered_early(&mut self, answer: &Packet<'_>, frame: u64) {
        let psn = answer.headers.bth.psn;
        let aeth = answer.headers.aeth;
        let is_refusal = aeth.is_some_and(|aeth| !matches!(aeth.syndrome, Syndrome::Ack(_)));
        let arrived = if is_refusal { psn.previous() } else { psn };
        self.answered_ahead(arrived);
        self.early = Some(Early { frame, psn, arrived, msn: aeth.map(|aeth| aeth.msn) });
    }

    /// The responder says that it has `psn`.
    pub(crate) fn answered_ahead(&mut self, psn: Psn) {
        if self.ahead.is_none_or(|ahead| psn.since(ahead) > 0 || self.is_past(ahead)) {
            self.ahead = Some(psn);
        }
    }

    /// Whether all was seen that the responder says it has.
    pub(crate) fn is_up_to_date(&self) -> bool {
        self.ahead.is_none_or(|ahead| self.is_past(ahead))
    }

    /// Whether `psn` was seen, or is another connection's.
    fn is_past(&self, psn: Psn) -> bool {
        let ahead = psn.since(self.next);
        ahead < 0 || ahead.unsigned_abs() >= RESTART
    }

    /// A PSN is seen for the first time. If it was answered before, that was wrong, or the capture
    /// has the two in another order, or lost the packet when it was sent first: then the responder
    /// has counted its message.
    fn judge_early(&mut self, packet: &Packet<'_>, findings: &mut Vec<Finding>) {
        let psn = packet.headers.bth.psn;
        let Some(early) = self.early.take() else { return };
        if early.arrived.since(psn) < 0 {
            return;
        }
        let is_read = packet.opcode.operation == Operation::ReadRequest;
        let ends = self.ends + u64::from(packet.opcode.position.ends() && !is_read);
        if early.arrived != psn {
            self.early = Some(early);
        }
        if early.msn.is_some_and(|msn| self.completed.lacks(msn, ends)) {
            self.early = None;
            findings.push(Finding {
                rule: Rule::AckPsn,
                seen: format!("frame {} answers PSN {}", early.frame, early.psn),
                expected: format!("no answer before the request: PSN {psn} is sent only now"),
            });
        }
    }

    /// A NAK asks to send again from `psn` on.
    pub(crate) fn ask_back(&mut self, psn: Psn, cause: Cause) {
        if psn.since(self.next) < 0 {
            self.asked_back = Some((psn, cause));
        }
    }

    /// Messages whose last packet was seen.
    pub(crate) const fn ends(&self) -> u64 {
        self.ends
    }
}

/// A message ended.
fn end_message(
    open: Open,
    opcode: &'static Opcode,
    notes: &mut Vec<Note>,
    findings: &mut Vec<Finding>,
) {
    if opcode.position == Position::Last {
        notes.pop_if(|note| matches!(note, Note::Part { .. }));
        notes.push(Note::MessageEnd {
            number: open.number,
            packets: open.packets,
            bytes: open.bytes,
        });
    }
    findings.extend(open.wrong_length());
}

impl Open {
    /// The finding for a WRITE that ended with another length than announced.
    fn wrong_length(&self) -> Option<Finding> {
        let announced = self.announced.filter(|announced| u64::from(*announced) != self.bytes)?;
        Some(Finding {
            rule: Rule::WriteLength,
            seen: format!("a WRITE of {} B", self.bytes),
            expected: format!("{announced} B as its RETH announced"),
        })
    }
}

/// Whether one packet may follow another whose PSN is the one before.
fn check_sequence(before: &'static Opcode, opcode: &'static Opcode) -> Option<Finding> {
    let right = if before.position.ends() {
        opcode.position.starts()
    } else {
        !opcode.position.starts() && opcode.operation == before.operation
    };
    (!right).then(|| Finding {
        rule: Rule::OpcodeSequence,
        seen: format!("{} behind {}", opcode.name, before.name),
        expected: if before.position.ends() {
            "the first packet of a message".to_owned()
        } else {
            format!("the next packet of the {}", operation_name(before.operation))
        },
    })
}

/// The finding for a full packet that is not as long as those before.
pub(crate) fn path_mtu(opcode: &Opcode, len: usize, mtu: u32) -> Finding {
    Finding {
        rule: Rule::PathMtu,
        seen: format!("{} of {len} B", opcode.name),
        expected: format!("{mtu} B as before"),
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
    fn new(packet: &Packet<'_>, mtu: Option<u32>, frame: u64, ends: u64) -> Self {
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
            acknowledged_by: None,
            opcode: packet.opcode,
            message: 0,
            end_is_told: false,
            payload: u32::try_from(packet.payload.len()).unwrap_or(u32::MAX),
            announced: headers.reth.map(|reth| reth.dma_len),
            is_whole: packet.has_all_headers(),
            from: read.map_or((0, RKey(0)), |read| (read.va, read.r_key)),
            headers: if read.is_some() { 0 } else { fold(headers) },
            ends,
            answered: 0,
            missing: 0..0,
            asked_again: Vec::new(),
            is_less: false,
            original: None,
            is_astray: false,
        }
    }

    /// Whether `psn` is the one behind this packet.
    fn is_before(&self, psn: Psn) -> bool {
        self.is_span_known && self.psn.advance(self.span) == psn
    }

    /// Whether a READ may take so many PSNs. Where nobody knows, no gap is told that may be none.
    fn may_take(&self, span: u32) -> bool {
        match self.announced {
            Some(len) => Mtu::ALL.iter().any(|mtu| packets_for(len, mtu.bytes()) == span),
            None => (1..RESTART).contains(&span),
        }
    }

    /// Whether this READ takes the PSN of `packet`, or that asks for its rest. Where its span is a
    /// guess, something else there shows that it is shorter.
    fn reaches(&self, packet: &Packet<'_>) -> bool {
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
    fn is_rest(&self, psn: Psn, from: (u64, RKey), len: u32, mtu: u32) -> bool {
        let before = psn.since(self.psn).unsigned_abs().checked_mul(mtu);
        before.is_some_and(|before| {
            from == (self.from.0.wrapping_add(before.into()), self.from.1)
                && self
                    .announced
                    .is_none_or(|all| all.checked_sub(before).is_some_and(|rest| len <= rest))
        })
    }

    /// Whether this packet asks for `response`, which has its PSN.
    fn fit(&self, response: &Packet<'_>) -> Fit {
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
    fn is_same(&self, packet: &Packet<'_>) -> bool {
        self.opcode == packet.opcode
            && self.payload as usize == packet.payload.len()
            && match (packet.headers.reth, self.announced) {
                _ if !self.is_whole || !packet.has_all_headers() => true,
                (Some(reth), Some(announced))
                    if self.opcode.operation == Operation::ReadRequest =>
                {
                    (reth.va, reth.r_key) == self.from && reth.dma_len <= announced
                }
                _ => self.headers == fold(&packet.headers),
            }
    }

    fn differs_from(&self, packet: &Packet<'_>) -> Finding {
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
    fn check_rest(&self, packet: &Packet<'_>, mtu: Option<u32>) -> Option<Finding> {
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

    fn ask_again(&mut self, psn: Psn) {
        if self.asked_again.len() <= REMEMBERED_RESTARTS && !self.asked_again.contains(&psn) {
            self.asked_again.push(psn);
        }
    }

    /// Whether an answer to a READ may begin at `psn`.
    pub(crate) fn may_begin_at(&self, psn: Psn) -> bool {
        psn == self.psn
            || self.asked_again.contains(&psn)
            || self.asked_again.len() > REMEMBERED_RESTARTS
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::RecentFrames;
    use roxe_wire::{Bth, Payload};

    #[test]
    fn among_many_directions_each_remembers_less() {
        let opcode = Opcode::by_name("RC_SEND_ONLY").unwrap();
        for (directions, remembered) in [(1, 1024), (1024, 1024), (2048, 512), (16_384, 64)] {
            let mut requests = Requests::default();
            for frame in 1..3000 {
                let psn = Psn::new(u32::try_from(frame).unwrap());
                let bth = Bth { opcode: opcode.code, psn, ..Bth::default() };
                let headers = Headers { bth, ..Headers::default() };
                let packet = Packet { opcode, headers, payload: Payload::EMPTY };
                requests.share(directions);
                let (notes, findings) = (&mut Vec::new(), &mut Vec::new());
                let recent = &RecentFrames::default();
                let arrival = Arrival { frame, identification: 0, recent };
                requests.observe(&packet, &arrival, notes, findings, &mut Summary::default());
            }
            assert_eq!(requests.sent.len(), remembered, "{directions}");
        }
    }
}
