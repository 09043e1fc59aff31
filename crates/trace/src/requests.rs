//! One direction's requests: which PSNs were seen, what they began, what was sent again.

mod anew;
mod answered;
mod message;
mod sent;
mod spans;

use std::collections::VecDeque;
use std::mem;

use roxe_wire::opcode::{Operation, PayloadRule, Position};
use roxe_wire::{Packet, Psn};

use crate::alone;
use crate::arrival::Arrival;
use crate::completed::CompletedMessages;
use crate::ending::Refusal;
use crate::note::{Cause, Waited};
use crate::{Finding, Note, Observation, Rule, Summary};
use answered::Early;
pub(crate) use answered::Fit;
use message::{Open, check_sequence, end_message};
pub(crate) use sent::Sent;

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
    has_beginning: bool,
    pub(crate) completed: CompletedMessages,
    /// The refusal of a packet that was not acknowledged since.
    pub(crate) refusal: Option<Refusal>,
    /// The frame of the last answer.
    pub(crate) last_answer: u64,
    /// The frame of the last answer that acknowledged something, or was an RNR NAK.
    pub(crate) last_progress: u64,
    /// When the frame was seen that is looked at.
    pub(crate) now_ns: u64,
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
        self.has_beginning = true;
    }

    /// What comes is not to be measured by what was.
    fn begin_at(&mut self, psn: Psn) {
        // Its room is kept: it has grown as far as it will again.
        let mut sent = mem::take(&mut self.sent);
        sent.clear();
        *self = Self {
            sent,
            first: Some(psn),
            next: psn,
            unacknowledged: psn,
            messages: self.messages,
            limit: self.limit,
            now_ns: self.now_ns,
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

    /// Takes in one request packet.
    pub(crate) fn observe(
        &mut self,
        packet: &Packet<'_>,
        arrival: &Arrival<'_>,
        observation: &mut Observation,
        counts: &mut Summary,
    ) {
        let psn = packet.headers.bth.psn;
        let mut place = self.place(packet);
        let is_done = self.is_done(packet);
        if self.is_restart(&place, packet, is_done) {
            observation.notes.push(Note::Restart);
            self.begin_at(psn);
            place = Place::Next;
        }
        observation.find(self.check_mtu(packet));
        observation.find(alone::check_message_length(packet));
        observation.find(alone::check_atomic_alignment(packet));
        let late = match place {
            Place::Next | Place::Elsewhere => {
                observation.find(self.judge_early(packet));
                self.take_new(packet, arrival.frame, observation, counts);
                None
            }
            Place::Ahead(missing) => {
                self.skip(missing, psn, observation, counts);
                self.take_new(packet, arrival.frame, observation, counts);
                None
            }
            Place::Again(index) => self.take_again(index, packet, arrival, observation, counts),
            Place::WithinRead(index) => {
                self.take_rest(index, packet, observation, counts);
                None
            }
            Place::Skipped(index) => {
                let own = observation.findings.len();
                let late = self.take_skipped(index, packet, arrival, observation, counts);
                if is_done {
                    // It may be another connection's.
                    self.anew = Some(psn);
                    observation.findings.truncate(own);
                }
                late
            }
            Place::Old => {
                self.take_old(psn, observation, counts);
                None
            }
        };
        // What comes late was not sent between what came before and what comes next.
        if late.is_none() {
            self.after_last = match self.get(psn) {
                Some(sent) => sent.psn.advance(sent.span),
                None => psn.next(),
            };
        }
    }

    /// All full packets are as long as the path MTU, and no packet is longer. Teaches it where it
    /// is not known.
    fn check_mtu(&mut self, packet: &Packet<'_>) -> Option<Finding> {
        match (self.mtu, full_len(packet)) {
            (None, Some(full)) => {
                self.learn_mtu(full);
                None
            }
            (Some(mtu), Some(full)) if full == mtu => {
                self.anew = None;
                None
            }
            (Some(mtu), Some(_)) => Some(path_mtu(packet, mtu)),
            (Some(mtu), None) if exceeds(packet, mtu) => Some(Finding {
                rule: Rule::PayloadLength,
                seen: format!("{} of {} B", packet.opcode.name, packet.payload.len()),
                expected: format!("at most the path MTU of {mtu} B"),
            }),
            (_, None) => None,
        }
    }

    /// A packet whose PSN is newer than all before.
    fn take_new(
        &mut self,
        packet: &Packet<'_>,
        frame: u64,
        observation: &mut Observation,
        counts: &mut Summary,
    ) {
        let opcode = packet.opcode;
        let psn = packet.headers.bth.psn;
        (self.going_back, self.asked_back) = (None, None);
        let before = self.sent.back().filter(|before| before.is_before(psn));
        let is_behind_gap = before.is_none() && !self.begins_with(psn);
        let before = before.filter(|before| !before.is_astray);
        let astray = before.and_then(|before| check_sequence(before.opcode, opcode));
        let is_astray = astray.is_some();
        observation.find(astray);
        if opcode.position.starts() {
            self.begin_message(packet, observation);
            counts.count_message(opcode.operation);
        } else {
            self.continue_message(packet, observation);
        }
        observation.find(self.check_goes_on(opcode));
        counts.bytes += packet.payload.len() as u64;
        let mut end_is_told = false;
        if opcode.position.ends() {
            self.ends += 1;
            if let Some(open) = self.open.take() {
                end_is_told = true;
                end_message(open, opcode, observation);
            }
        }
        let sent = Sent::new(packet, self.mtu, (frame, self.now_ns), self.messages, self.ends);
        self.next = psn.advance(sent.span);
        self.next_is_guess = !sent.is_span_known;
        self.sent.push_back(Sent { end_is_told, is_astray, is_behind_gap, ..sent });
        self.forget();
    }

    /// PSNs before `psn` were not seen: what was known of the message, and of completed ones, holds
    /// no longer.
    fn skip(
        &mut self,
        missing: u32,
        psn: Psn,
        observation: &mut Observation,
        counts: &mut Summary,
    ) {
        observation.notes.push(Note::Gap { missing });
        counts.gaps += 1;
        self.early = None;
        self.open = None;
        self.completed = CompletedMessages::unknown(psn);
        if self.unacknowledged == self.next {
            self.anew = Some(psn);
        }
    }

    /// A packet whose PSN was seen before. Tells which frame overtook it, if one did.
    fn take_again(
        &mut self,
        index: usize,
        packet: &Packet<'_>,
        arrival: &Arrival<'_>,
        observation: &mut Observation,
        counts: &mut Summary,
    ) -> Option<u64> {
        let sent = &self.sent[index];
        if !sent.is_same(packet) {
            observation.findings.push(sent.differs_from(packet));
            return None;
        }
        let (psn, of, acknowledged_by) = (sent.psn, sent.frame, sent.acknowledged_by);
        let (before_ns, is_unanswered) = (sent.latest_ns, sent.latest > self.last_answer);
        let late = arrival.overtaken_by();
        observation.notes.push(if late.is_some() && arrival.was_sent_before(of) {
            Note::Late { repeated_in: of }
        } else {
            let is_first = self.going_back.is_none() || psn != self.after_last;
            let cause = self.go_back(psn, late);
            let since_ns = match cause {
                Cause::NoneSeen => before_ns,
                Cause::ReceiverNotReady { seen_ns, .. } if is_first => seen_ns,
                _ => self.now_ns,
            };
            let waited = self.now_ns.checked_sub(since_ns).filter(|ns| *ns > 0);
            let waited = waited.map(|ns| Waited { ns, is_unanswered });
            Note::Retransmission { of, cause, waited, acknowledged_by }
        });
        counts.retransmissions += 1;
        self.sent[index].come_again(packet, arrival.frame, self.now_ns, self.last_progress);
        self.tell_end(index, observation);
        late
    }

    /// A packet whose PSN the READ at `index` takes: rightly so, if it asks for the READ's rest.
    fn take_rest(
        &mut self,
        index: usize,
        packet: &Packet<'_>,
        observation: &mut Observation,
        counts: &mut Summary,
    ) {
        let psn = packet.headers.bth.psn;
        let read = &mut self.sent[index];
        let of = read.frame;
        if packet.opcode.operation != Operation::ReadRequest {
            return observation.findings.push(Finding {
                rule: Rule::Retransmission,
                seen: format!("{} at PSN {psn}", packet.opcode.name),
                expected: format!("the READ of frame {of}, which reserved this PSN"),
            });
        }
        observation.find(read.check_rest(packet, self.mtu));
        read.ask_again(psn);
        (read.latest_ns, read.times) = (self.now_ns, read.times.saturating_add(1));
        self.go_back(psn, None);
        observation.notes.push(Note::ReadRest { of });
        counts.retransmissions += 1;
    }

    /// A packet that was skipped before. Tells which frame overtook it, if one did.
    fn take_skipped(
        &mut self,
        index: usize,
        packet: &Packet<'_>,
        arrival: &Arrival<'_>,
        observation: &mut Observation,
        counts: &mut Summary,
    ) -> Option<u64> {
        let late = arrival.overtaken_by();
        let cause = self.go_back(packet.headers.bth.psn, late);
        observation.notes.push(Note::FillsGap { cause });
        self.insert(index, packet, arrival.frame, observation);
        counts.bytes += packet.payload.len() as u64;
        if packet.opcode.position.starts() {
            counts.count_message(packet.opcode.operation);
        }
        late
    }

    /// A packet that is older than what is remembered.
    fn take_old(&mut self, psn: Psn, observation: &mut Observation, counts: &mut Summary) {
        self.go_back(psn, None);
        // Perhaps it is another connection's, which counts anew.
        self.completed.forget_offset();
        observation.notes.push(Note::Old);
        counts.retransmissions += 1;
    }

    /// Puts a packet that was missing where it belongs.
    fn insert(
        &mut self,
        index: usize,
        packet: &Packet<'_>,
        frame: u64,
        observation: &mut Observation,
    ) {
        let psn = packet.headers.bth.psn;
        self.began_before(psn);
        let before = index.checked_sub(1).map(|before| &self.sent[before]);
        let before_it = before.filter(|before| before.is_before(psn));
        let ends = before.map_or(0, |before| before.ends);
        let mut sent = Sent::new(packet, self.mtu, (frame, self.now_ns), self.messages + 1, ends);
        sent.is_behind_gap = before_it.is_none() && !self.begins_with(psn);
        let behind_it = self.sent.get(index).filter(|behind| sent.is_before(behind.psn));
        observation.find(
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
            self.tell_begin(packet, observation);
        }
        if let Some((known, open)) = self.message_around(index) {
            // Nothing of it is missing up to the newest packet: it goes on from here.
            let is_newest = known.end == self.sent.len();
            let newest = &self.sent[known.end - 1];
            if is_newest && newest.is_before(self.next) && !newest.opcode.position.ends() {
                self.open = Some(open);
            }
            self.tell_end(index, observation);
            // Its end may have to come again, but its length is known.
            let last = &mut self.sent[known.end - 1];
            if last.opcode.position == Position::Last && !last.end_is_told {
                let wrong = open.wrong_length();
                last.end_is_told = wrong.is_some();
                observation.find(wrong);
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

    /// Messages whose last packet was seen.
    pub(crate) const fn ends(&self) -> u64 {
        self.ends
    }
}

/// The finding for a full packet that is not as long as those before.
pub(crate) fn path_mtu(packet: &Packet<'_>, mtu: u32) -> Finding {
    Finding {
        rule: Rule::PathMtu,
        seen: format!("{} of {} B", packet.opcode.name, packet.payload.len()),
        expected: format!("{mtu} B as before"),
    }
}

/// The length of a full packet, which is the path MTU, if it is one.
pub(crate) fn full_len(packet: &Packet<'_>) -> Option<u32> {
    let (rule, len) = (packet.opcode.payload, packet.payload.len());
    let is_full = rule == PayloadRule::Full && rule.allows_for_some_mtu(len);
    u32::try_from(len).ok().filter(|_| is_full)
}

/// Whether a packet is longer than this path MTU, but not than the greatest one.
fn exceeds(packet: &Packet<'_>, mtu: u32) -> bool {
    let (rule, len) = (packet.opcode.payload, packet.payload.len());
    rule.allows_for_some_mtu(len) && !rule.allows(len, mtu as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arrival::RecentFrames;
    use roxe_wire::{Bth, Headers, Opcode, Payload};

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
                let recent = &RecentFrames::default();
                let arrival = Arrival { frame, identification: 0, recent };
                let observation = &mut Observation::default();
                requests.observe(&packet, &arrival, observation, &mut Summary::default());
            }
            assert_eq!(requests.sent.len(), remembered, "{directions}");
        }
    }
}
