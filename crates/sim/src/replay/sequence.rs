//! PSNs without turns, and connections that follow each other under one pair of numbers.

use roxe_wire::Psn;
use roxe_wire::opcode::Operation;

use super::Connection;
use super::meaning::{Says, View};
use super::record::Item;

/// Counts PSNs on a line: the newest one tells which turn a PSN belongs to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turns {
    newest: Psn,
    at: i64,
}

/// A refusal asks for a PSN that is no further back.
const NEAR: i32 = 1 << 12;

impl Turns {
    /// The PSN with which a session began, as far as can be told: the smallest that was sent before
    /// anything was answered.
    pub(super) fn first(requests: &[&Item], answers: &[&Item]) -> Option<(Psn, Self)> {
        let place = requests.iter().position(|item| !item.is_bad())?;
        let good = requests[place].psn();
        let answered = answers.first().map_or(u64::MAX, |answer| answer.number);
        // A wrong ICRC may be a wrong PSN: it lies no further back than there were frames.
        let bad = requests[..place].iter().filter(|item| good.since(item.psn()) <= place as i32);
        let early = requests[place..]
            .iter()
            .take_while(|item| item.number < answered)
            .filter(|item| !item.is_bad());
        // A responder that asks for an earlier one still waits for that.
        let asked_for = answers.iter().take_while(|answer| is_refusal(answer));
        let asked_for = asked_for.filter(|answer| good.since(answer.psn()) < NEAR);
        let candidates = bad.chain(early).chain(asked_for).map(|item| item.psn());
        let first =
            candidates.fold(good, |first, psn| if psn.since(first) < 0 { psn } else { first });
        Some((first, Self { newest: first, at: 0 }))
    }

    /// Where a PSN lies.
    pub(super) fn at(&self, psn: Psn) -> i64 {
        self.at + i64::from(psn.since(self.newest))
    }

    /// The same, and if it is the newest one it counts from now on.
    pub(super) fn advance(&mut self, psn: Psn) -> i64 {
        let at = self.at(psn);
        if at > self.at {
            (self.newest, self.at) = (psn, at);
        }
        at
    }
}

/// The frames between two restarts of the numbering.
#[derive(Debug)]
pub(super) struct Session<'a> {
    pub(super) requests: Vec<&'a Item>,
    pub(super) answers: Vec<&'a Item>,
}

/// The sessions of one direction. Answers that the network doubled, or that have a wrong ICRC, say
/// nothing; requests like that are played like all others.
pub(super) fn sessions<'a>(connection: &Connection<'a>) -> Vec<Session<'a>> {
    let is_request = |item: &&Item| item.opcode.operation.is_request();
    let is_answer = |item: &&Item| {
        let says = View::from(*item).says();
        says.is_some() && !item.doubled && !item.is_bad()
    };
    let requests: Vec<&Item> = connection
        .requests
        .iter()
        .filter(is_request)
        .filter(|item| item.opcode.operation != Operation::Resync)
        .collect();
    let mut answers = connection.answers.iter().filter(is_answer).peekable();
    let mut sessions: Vec<Session<'a>> = Vec::new();
    let mut rest = requests.into_iter().peekable();
    while let Some(first) = rest.next() {
        // A message whose beginning is not recorded can be neither sent nor received.
        if !first.opcode.position.starts() && !first.is_bad() {
            continue;
        }
        let mut requests = vec![first];
        while let Some(item) = rest.next_if(|item| !item.restarts) {
            requests.push(item);
        }
        let end = rest.peek().map_or(u64::MAX, |next| next.number);
        // What comes late for a queue pair that was set up anew gets the PSN before its first.
        let next = rest.peek().map(|next| next.psn());
        let last = requests.last().map_or_else(|| first.psn(), |last| last.psn());
        let is_of_next = |answer: &Item| {
            next.is_some_and(|next| answer.psn().since(next) == -1)
                && answer.psn().since(last).abs() > NEAR
        };
        let mut own: Vec<&Item> = Vec::new();
        while let Some(answer) = answers.next_if(|answer| answer.number < end) {
            // What was asked before the recording began is answered into it.
            let earlier = own.is_empty() && answer.psn().since(first.psn()) < 0;
            let doubled = own.last().is_some_and(|last| is_doubled(last, answer, &requests));
            let counts = (!earlier || is_refusal(answer)) && !doubled;
            if answer.number > first.number && counts && !is_of_next(answer) {
                own.push(answer);
            }
        }
        sessions.push(Session { requests, answers: own });
    }
    sessions
}

/// The network doubled data or a value, though at the beginning of a recording nobody can be sure.
fn is_doubled(last: &Item, answer: &Item, requests: &[&Item]) -> bool {
    let after = requests.partition_point(|request| request.number < last.number);
    let asked = requests.get(after).is_some_and(|request| request.number < answer.number);
    let (last, answer) = (View::from(last), View::from(answer));
    let carries = matches!(answer.says(), Some(Says::Data(..) | Says::Value(_)));
    !asked
        && carries
        && (last.opcode.code, last.headers, last.payload)
            == (answer.opcode.code, answer.headers, answer.payload)
}

fn is_refusal(item: &Item) -> bool {
    matches!(View::from(item).says(), Some(Says::Refused(_) | Says::NotReady(_)))
}
