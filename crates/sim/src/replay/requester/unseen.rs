//! What the recorded requester got, or waited for, without its being recorded.

use std::collections::BTreeMap;

use roxe_transport::work::SendOperation;
use roxe_wire::opcode::{Operation, Position, Service};
use roxe_wire::{Aeth, AtomicAckEth, Credits, Headers, Opcode, Psn, RnrTimer, Syndrome, pad_for};

use super::super::meaning::{Says, View};
use super::super::record::Item;
use super::super::rig::Retries;
use super::super::sequence::Session;
use super::{FAR, Message, Player};

impl Player<'_> {
    /// The recorded requester has sent nothing more. If the next timeout is one too many, it has
    /// given up as ours does.
    pub(super) fn give_up(&mut self) {
        if !self.over && self.done < self.posted {
            while self.rig.poll().is_some() {}
            self.rig.wait();
        }
    }

    /// Where not one answer is recorded and the requester was answered nevertheless: what it must
    /// have got before it went back, as an RNR NAK would tell it. Each with the step that it stands
    /// before.
    pub(super) fn untold(&self, steps: &[(&Item, i64, i64)]) -> Vec<(usize, i64, Item)> {
        let mut untold = Vec::new();
        let mut fetched = i64::MIN;
        for (before, to) in times_gone_back(steps) {
            let like = steps[before].0.back();
            let mtu = self.setup.path_mtu.bytes();
            let psn = |at: i64| self.first.advance((at & 0x00ff_ffff) as u32);
            for message in self.messages.iter().filter(|message| message.fetches) {
                for at in (message.at.max(fetched)..message.end.min(to)).take(FAR as usize) {
                    let item = made_up(message, at, psn(at), mtu, &like);
                    untold.extend(item.map(|item| (before, at, item)));
                }
            }
            fetched = to;
            let Some(opcode) =
                Opcode::find(Service::Rc, Operation::Acknowledge, Position::Only, None)
            else {
                continue;
            };
            let mut headers = Headers { bth: like.headers.bth, ..Headers::default() };
            headers.bth.opcode = opcode.code;
            (headers.bth.psn, headers.bth.pad) = (psn(to), 0);
            let syndrome = Syndrome::RnrNak(RnrTimer::from_bits(1));
            headers.aeth = Some(Aeth { syndrome, msn: Default::default() });
            untold.push((before, to, like.made_up(opcode, headers, 0)));
        }
        untold
    }

    /// Data and values that the recorded requester got without their being recorded: what it was
    /// answered next it took without asking for them again. Each with the step that it stands
    /// before.
    pub(super) fn unseen(&self, steps: &[(&Item, i64, i64)]) -> Vec<(usize, i64, Item)> {
        let mut recorded: BTreeMap<i64, usize> = BTreeMap::new();
        let mut newest = vec![i64::MIN; steps.len() + 1];
        for (place, (item, at, _)) in steps.iter().enumerate().rev() {
            newest[place] = newest[place + 1];
            match View::from(*item).says() {
                Some(Says::Data(..) | Says::Value(_)) => {
                    recorded.entry(*at).or_insert(place);
                    newest[place] = newest[place].max(*at);
                }
                Some(_) => newest[place] = newest[place].max(*at),
                None => {}
            }
        }
        // Where each PSN was asked for last.
        let mut asked: BTreeMap<i64, usize> = BTreeMap::new();
        for (place, (item, from, end)) in steps.iter().enumerate() {
            if item.opcode.operation.is_request() {
                (*from..*end).take(FAR as usize).for_each(|at| {
                    asked.insert(at, place);
                });
            }
        }
        let mut unseen = Vec::new();
        for message in self.messages.iter().filter(|message| message.fetches) {
            let missing = (message.at..message.end).take(FAR as usize);
            for at in missing {
                let Some(&asked) = asked.get(&at).filter(|asked| newest[**asked] > at) else {
                    continue;
                };
                if recorded.get(&at).is_some_and(|place| *place > asked) {
                    continue;
                }
                let next = steps[asked..].iter().position(|(item, answered, _)| {
                    !item.opcode.operation.is_request() && *answered > at
                });
                let Some(before) = next.map(|next| asked + next) else { continue };
                let psn = self.first.advance((at & 0x00ff_ffff) as u32);
                let mtu = self.setup.path_mtu.bytes();
                let item = made_up(message, at, psn, mtu, steps[before].0);
                unseen.extend(item.map(|item| (before, at, item)));
            }
        }
        unseen.sort_by_key(|(before, at, _)| (*before, *at));
        unseen
    }
}

/// Of what is recorded in one direction only: from which steps on, and to which PSNs, the requester
/// went back for good. Nothing where the peer may just be gone, and the requester sends all from
/// the oldest on until it gives up.
fn times_gone_back(steps: &[(&Item, i64, i64)]) -> Vec<(usize, i64)> {
    if steps.iter().any(|(item, ..)| !item.opcode.operation.is_request()) {
        return Vec::new();
    }
    let mut oldest = i64::MAX;
    let mut back: Vec<(usize, i64)> = Vec::new();
    for (place, (_, at, _)) in steps.iter().enumerate().rev() {
        oldest = oldest.min(*at);
        if place > 0 && *at == oldest && *at < steps[place - 1].2 {
            back.push((place, *at));
        }
    }
    back.reverse();
    let is_answered = back.len() > MOST_TIMEOUTS || back.iter().any(|(_, at)| *at > oldest);
    if is_answered { back } else { Vec::new() }
}

/// An answer that is missing in the recording, as one like another that is there. What it carries
/// nobody knows.
fn made_up(message: &Message<'_>, at: i64, psn: Psn, mtu: u32, like: &Item) -> Option<Item> {
    let is_read = matches!(message.operation, SendOperation::Read(_));
    let position = match (at == message.at, at + 1 == message.end) {
        _ if !is_read => Position::Only,
        (true, true) => Position::Only,
        (true, false) => Position::First,
        (false, true) => Position::Last,
        (false, false) => Position::Middle,
    };
    let operation = match message.operation {
        SendOperation::Read(_) => Operation::ReadResponse,
        SendOperation::CompareSwap { .. } | SendOperation::FetchAdd { .. } => {
            Operation::AtomicAcknowledge
        }
        _ => return None,
    };
    let opcode = Opcode::find(Service::Rc, operation, position, None)?;
    let offset = (at - message.at) as u32 * mtu;
    let len = if is_read { message.len.saturating_sub(offset).min(mtu) } else { 0 };
    let mut headers = Headers { bth: like.headers.bth, ..Headers::default() };
    headers.bth.opcode = opcode.code;
    headers.bth.psn = psn;
    headers.bth.pad = pad_for(len as usize);
    let credits = Syndrome::Ack(Credits::INVALID);
    headers.aeth = Some(Aeth { syndrome: credits, msn: Default::default() });
    headers.atomic_ack_eth = Some(AtomicAckEth { original: 0 });
    Some(like.made_up(opcode, headers, len as usize))
}

/// How often the recorded requester tried before the recording ended without its being answered,
/// if it did not try anything else as often before.
pub(super) fn retries(session: &Session<'_>) -> Retries {
    let mut retries = Retries::ENDLESS;
    let Some(last) = session.requests.last() else { return retries };
    let mut refusals: BTreeMap<u32, usize> = BTreeMap::new();
    for answer in &session.answers {
        if matches!(View::from(*answer).says(), Some(Says::NotReady(_))) {
            *refusals.entry(answer.psn().get()).or_default() += 1;
        }
    }
    match session.answers.last().copied().filter(|answer| answer.number > last.number) {
        Some(answer) => {
            let is_refused = matches!(View::from(answer).says(), Some(Says::NotReady(_)));
            let count = refusals.get(&answer.psn().get()).copied().unwrap_or(0);
            let most = refusals.values().max() == Some(&count);
            if is_refused && most && (1..=7).contains(&count) {
                retries.not_ready = count as u8 - 1;
            }
        }
        None => {
            if let Some(timeouts) = tries(session) {
                retries.timeouts = timeouts;
            }
        }
    }
    retries
}

/// How many tries were used since the last answer, if the last requests were in vain so often that
/// they may have been all. A NAK for a sequence error uses one; an answer that acknowledges
/// something gives all of them back.
fn tries(session: &Session<'_>) -> Option<u8> {
    let heard = session.answers.last();
    let after = session
        .requests
        .partition_point(|item| heard.is_some_and(|answer| item.number < answer.number));
    let (before, after) = session.requests.split_at(after);
    let oldest = |oldest: Psn, psn: Psn| if psn.since(oldest) < 0 { psn } else { oldest };
    let psn = after.iter().map(|item| item.psn()).reduce(oldest)?;
    let sent = |items: &[&Item]| items.iter().filter(|item| item.psn() == psn).count();
    let (sent_before, sent_after) = (sent(before), sent(after));
    let used = if sent_before == 0 { sent_after - 1 } else { sent_after };
    // What came before it took fewer.
    let mut earlier: BTreeMap<u32, usize> = BTreeMap::new();
    for item in before.iter().filter(|item| item.psn().since(psn) < 0) {
        *earlier.entry(item.psn().get()).or_default() += 1;
    }
    let most = earlier.values().max().copied().unwrap_or(1);
    let in_vain = sent_before + sent_after >= MANY || heard.is_none();
    (in_vain && (1..=6).contains(&used) && most <= used + 1).then_some(used as u8)
}

/// So often at the most a requester sends again without any answer.
const MOST_TIMEOUTS: usize = 7;

/// Whoever sends a packet so often without success may have no more retries.
const MANY: usize = 3;
