//! What a session's frames tell of the recorded responder: which requests it got, what memory and
//! rights it had, and how long its receives were.

use std::collections::BTreeSet;

use roxe_wire::opcode::Operation;
use roxe_wire::{Mtu, NakCode, packets_for};

use super::meaning::{Says, View};
use super::memory::{Plan, Use, Wanted};
use super::places::Places;
use super::reached::{Answered, Asked, Fate, Kind, Then, What};
use super::record::Item;
use super::sequence::Turns;

/// The requests that a session consists of, and what became of them.
pub(super) struct Inferred<'a> {
    pub(super) requests: &'a [&'a Item],
    pub(super) answers: &'a [&'a Item],
    pub(super) asked: Vec<Asked>,
    pub(super) answered: Vec<Answered>,
    pub(super) fates: Vec<Fate>,
    pub(super) places: Places,
}

/// Requests and answers with their PSNs counted without turns.
pub(super) fn count(
    requests: &[&Item],
    answers: &[&Item],
    mut turns: Turns,
    mtu: Mtu,
) -> (Vec<Asked>, Vec<Answered>) {
    let mut asked = Vec::with_capacity(requests.len());
    let mut answered = Vec::with_capacity(answers.len());
    let mut rest = answers.iter();
    let mut next = rest.next();
    for item in requests {
        while let Some(answer) = next.filter(|answer| answer.number < item.number) {
            answered.extend(answer_of(answer, turns));
            next = rest.next();
        }
        let at = if item.is_bad() { turns.at(item.psn()) } else { turns.advance(item.psn()) };
        let span = match (item.opcode.operation, item.headers.reth) {
            (Operation::ReadRequest, Some(reth)) => packets_for(reth.dma_len, mtu.bytes()),
            _ => 1,
        };
        asked.push(Asked {
            number: item.number,
            at,
            span: i64::from(span),
            operation: item.opcode.operation,
            starts: item.opcode.position.starts(),
            ack_req: item.headers.bth.ack_req,
            bad: item.is_bad(),
        });
    }
    answered.extend(next.into_iter().chain(rest).filter_map(|answer| answer_of(answer, turns)));
    (asked, answered)
}

fn answer_of(item: &Item, turns: Turns) -> Option<Answered> {
    let kind = Kind::from(View::from(item).says()?);
    Some(Answered { number: item.number, at: turns.at(item.psn()), kind })
}

impl Inferred<'_> {
    /// What memory and rights the recorded responder must have had.
    pub(super) fn plan(&self) -> Result<Plan, String> {
        let mut wanted = Vec::new();
        let mut invalidated = BTreeSet::new();
        for (index, item) in self.requests.iter().enumerate() {
            let What::Came { then, .. } = self.fates[index].what else { continue };
            let refused = match then {
                Then::Otherwise => continue,
                Then::Executed | Then::ExecutedAnew => None,
                Then::Refused => match self.refusal(index) {
                    Some(code) => Some(code),
                    None => continue, // Not ready: it comes again.
                },
            };
            let number = item.number;
            let wants = match item.opcode.operation {
                Operation::ReadRequest => Some(Use::Read),
                Operation::CompareSwap | Operation::FetchAdd => Some(Use::Atomic),
                Operation::Write | Operation::AtomicWrite => Some(Use::Write),
                Operation::Flush => Some(Use::Flush),
                _ => None,
            };
            if let (Some(wants), Some(reth)) = (wants, item.headers.reth) {
                let (key, va, len) = (reth.r_key.0, reth.va, u64::from(reth.dma_len));
                wanted.push(Wanted { number, wants, key, va, len, refused });
            }
            if let (Some(wants), Some(atomic)) = (wants, item.headers.atomic_eth) {
                let (key, va) = (atomic.r_key.0, atomic.va);
                wanted.push(Wanted { number, wants, key, va, len: 8, refused });
            }
            if let (Some(ieth), None) = (item.headers.ieth, refused) {
                invalidated.insert(ieth.r_key.0);
            }
        }
        // A WRITE that was refused behind its first packet was refused as a whole.
        for index in 0..self.requests.len() {
            let is_part = !self.asked[index].starts;
            if let (true, Some(code)) = (is_part, self.refusal(index))
                && self.asked[index].operation == Operation::Write
                && let Some(first) = wanted.iter_mut().rev().find(|wanted| {
                    wanted.wants == Use::Write && wanted.number < self.requests[index].number
                })
            {
                first.refused = Some(code);
            }
        }
        Plan::new(&wanted, invalidated)
    }

    /// The code of the fatal NAK that a request got.
    pub(super) fn refusal(&self, index: usize) -> Option<NakCode> {
        let answers = &self.answers[self.fates[index].answers.clone()];
        answers.iter().find_map(|answer| match View::from(*answer).says() {
            Some(Says::Refused(NakCode::PsnSequenceError)) => None,
            Some(Says::Refused(code)) => Some(code),
            _ => None,
        })
    }

    /// How long a receive the recorded responder had for the message that begins with a request:
    /// long enough, or too short for the packet that was refused.
    pub(super) fn receive_len(&self, index: usize) -> u32 {
        let mut len = 0;
        let mut wanted = self.asked[index].at;
        for later in (index..self.requests.len()).take(FAR) {
            if self.asked[later].at != wanted || self.asked[later].bad {
                continue;
            }
            let item = self.requests[later];
            let this = item.payload().len() as u32;
            if let Some(NakCode::InvalidRequest | NakCode::RemoteOperationalError) =
                self.refusal(later)
            {
                return if later == index { this.saturating_sub(1) } else { len };
            }
            len += this;
            wanted += 1;
            if item.opcode.position.ends() {
                break;
            }
        }
        len
    }
}

/// The end of a message is looked for among so many frames.
const FAR: usize = 1 << 16;
