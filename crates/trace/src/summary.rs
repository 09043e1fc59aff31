//! What a capture holds, in numbers.

use std::collections::BTreeSet;
use std::num::NonZeroU32;

use roxe_wire::NakCode;
use roxe_wire::opcode::{Operation, Service};

use crate::{Ending, Endpoint};

/// Counts over a whole capture or over one conversation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// RoCEv2 frames.
    pub frames: u64,
    /// Messages begun, by operation, in the order in which operations were first seen.
    pub messages: Vec<(Operation, u64)>,
    /// Payload bytes, each counted once however often it was sent.
    pub bytes: u64,
    /// Packets that came again, or asked again for the rest of a READ.
    pub retransmissions: u64,
    /// Frames that the network delivered twice; nothing else is counted of them.
    pub duplicates: u64,
    /// How often PSNs were skipped: packets lost on the way to the capture, or late.
    pub gaps: u64,
    /// Receiver-not-ready NAKs.
    pub rnr_naks: u64,
    /// NAKs by code, in the order in which codes were first seen.
    pub naks: Vec<(NakCode, u64)>,
    /// Answers that were not judged, as several connections between the same hosts may wait for
    /// them.
    pub unclear_answers: u64,
    /// Frames with a wrong ICRC.
    pub icrc_errors: u64,
    /// Congestion notifications.
    pub cnps: u64,
    /// Packets marked "congestion experienced".
    pub marked: u64,
}

impl Summary {
    pub(crate) fn count_message(&mut self, operation: Operation) {
        count(&mut self.messages, operation, 1);
    }

    pub(crate) fn count_nak(&mut self, code: NakCode) {
        count(&mut self.naks, code, 1);
    }

    /// Adds another summary to this one.
    pub fn add(&mut self, other: &Self) {
        self.frames += other.frames;
        self.bytes += other.bytes;
        self.retransmissions += other.retransmissions;
        self.duplicates += other.duplicates;
        self.gaps += other.gaps;
        self.rnr_naks += other.rnr_naks;
        self.unclear_answers += other.unclear_answers;
        self.icrc_errors += other.icrc_errors;
        self.cnps += other.cnps;
        self.marked += other.marked;
        for &(operation, messages) in &other.messages {
            count(&mut self.messages, operation, messages);
        }
        for &(code, naks) in &other.naks {
            count(&mut self.naks, code, naks);
        }
    }
}

/// Counts `more` of one kind.
fn count<T: PartialEq>(counts: &mut Vec<(T, u64)>, kind: T, more: u64) {
    match counts.iter_mut().find(|(known, _)| *known == kind) {
        Some((_, count)) => *count += more,
        None => counts.push((kind, more)),
    }
}

/// One conversation and what was counted in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConversationSummary {
    /// Counted from 1 in the order of first frames.
    pub number: NonZeroU32,
    /// The other numbers that frames of it were shown with ([`Observation::conversation`]), before
    /// answers told which two directions belong together. Another conversation may have that number
    /// too.
    ///
    /// [`Observation::conversation`]: crate::Observation::conversation
    pub also: BTreeSet<NonZeroU32>,
    /// The transport service.
    pub service: Service,
    /// Who sent the first frame, and its queue pair if that is known.
    pub one: Endpoint,
    /// Who received it.
    pub other: Endpoint,
    /// The counts, both directions together.
    pub counts: Summary,
    /// What each direction's requests were left with, where not with success.
    pub endings: Vec<Ending>,
}
