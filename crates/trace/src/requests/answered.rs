//! What answers say about the requests of the other direction: which have arrived, and which were
//! answered before they were seen.

use roxe_wire::opcode::Operation;
use roxe_wire::{Msn, Mtu, Packet, Psn, Syndrome};

use super::{NEAR, RESTART, Requests};
use crate::completed::CompletedMessages;
use crate::note::Cause;
use crate::{Finding, Note, Rule};

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

/// An answer to PSNs that were not seen: lost by the capture, or not yet sent?
#[derive(Clone, Copy, Debug)]
pub(super) struct Early {
    frame: u64,
    psn: Psn,
    /// The last PSN that it says has arrived.
    arrived: Psn,
    /// How many messages it says are complete.
    msn: Option<Msn>,
}

impl Requests {
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

    /// From which PSN on, and how many, answers may have that fit: [`Requests::fit`] says no to all
    /// others.
    pub(crate) fn fits_within(&self) -> Option<(Psn, u32)> {
        let first = self.first?;
        let oldest = self.sent.front().map_or(first, |sent| sent.psn);
        let too_old = first.advance(Psn::MODULUS - NEAR.unsigned_abs());
        let from = [Some(oldest), Some(self.unacknowledged.previous()), Some(first.previous())];
        let from = from.into_iter().chain([(!self.any_acknowledged).then_some(too_old)]).flatten();
        let back = from.map(|psn| self.next.since(psn)).max().unwrap_or_default();
        let read = self.sent.back().filter(|_| self.next_is_guess);
        let ahead = read.map_or(0, |read| {
            read.psn.since(self.next).saturating_add_unsigned(Self::most_span(read))
        });
        let (back, ahead) = (back.max(0).unsigned_abs(), ahead.max(0).unsigned_abs());
        Some((self.next.advance(Psn::MODULUS - back), back + ahead))
    }

    /// Whether the first packet of the connection was seen.
    pub(crate) const fn has_beginning(&self) -> bool {
        self.has_beginning
    }

    /// Whether the connection's first packet has this PSN.
    pub(super) fn begins_with(&self, psn: Psn) -> bool {
        self.has_beginning && self.first == Some(psn)
    }

    /// A count of completed messages may show that the first packet was seen.
    pub(crate) fn learn_beginning(&mut self) {
        self.has_beginning = self.has_beginning || self.completed.may_be_all();
    }

    /// The answers were not to these requests.
    pub(crate) fn forget_answers(&mut self) {
        let Some(first) = self.first else { return };
        self.unacknowledged = self.sent.front().map_or(first, |sent| sent.psn);
        self.any_acknowledged = false;
        self.completed = CompletedMessages::unknown(self.next);
        (self.early, self.ahead, self.asked_back, self.has_beginning) = (None, None, None, false);
        (self.refusal, self.last_answer) = (None, 0);
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

    /// `frame` says that everything up to and with `psn` has arrived. `None` when that was known;
    /// else a note on the frames that carried what is newly covered: of each packet the one sent
    /// last before the packet behind it, as a responder takes nothing out of sequence.
    pub(crate) fn acknowledge(&mut self, psn: Psn, frame: u64) -> Option<Note> {
        if psn.since(self.unacknowledged) < 0 {
            return None;
        }
        let old = core::mem::replace(&mut self.unacknowledged, psn.next());
        self.any_acknowledged = true;
        self.last_progress = frame;
        if self.refusal.is_some() {
            self.forget_refusal();
        }
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

    /// The oldest PSN that was not acknowledged.
    pub(crate) const fn oldest_unacknowledged(&self) -> Psn {
        self.unacknowledged
    }

    /// Whether everything up to and with `psn` is known to have arrived.
    pub(crate) fn is_acknowledged(&self, psn: Psn) -> bool {
        psn.since(self.unacknowledged) < 0
    }

    /// Whether a request was seen that takes `psn`, or may take it.
    pub(crate) fn may_ask_at(&self, psn: Psn) -> bool {
        self.next_is_guess || self.get(psn).is_some()
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
    pub(super) fn judge_early(&mut self, packet: &Packet<'_>) -> Option<Finding> {
        let psn = packet.headers.bth.psn;
        let early = self.early.take()?;
        if early.arrived.since(psn) < 0 {
            return None;
        }
        let is_read = packet.opcode.operation == Operation::ReadRequest;
        let ends = self.ends + u64::from(packet.opcode.position.ends() && !is_read);
        if early.arrived != psn {
            self.early = Some(early);
        }
        if !self.completed.lacks(early.msn?, ends) {
            return None;
        }
        self.early = None;
        Some(Finding {
            rule: Rule::AckPsn,
            seen: format!("frame {} answers PSN {}", early.frame, early.psn),
            expected: format!("no answer before the request: PSN {psn} is sent only now"),
        })
    }

    /// A NAK asks to send again from `psn` on.
    pub(crate) fn ask_back(&mut self, psn: Psn, cause: Cause) {
        if psn.since(self.next) < 0 {
            self.asked_back = Some((psn, cause));
        }
    }
}
