//! What a sequence of frames means: who talks to whom, what is new and what repeated, which frame
//! answers which, and where a rule is broken.
//!
//! An observer's view: it sees frames as a capture has them, in order, and knows nothing of the
//! endpoints' insides. It keeps a bounded amount of memory however long the capture is, and reads
//! no clock. [`Tracer::observe`] takes one frame and gives notes (facts) and findings (broken
//! rules). The same judgement serves `roxe explain`, `roxe check` and the simulator's checker.
//!
//! A frame that was lost before the point of capture is a gap, one lost behind it a retransmission;
//! neither breaks a rule. A capture may begin in the middle of traffic and lose frames itself, so a
//! contradiction breaks a rule only where what it contradicts is known: which directions belong
//! together, how long a READ is. IBA vol 1 chapter 9.7 holds most of the rules; see [`Rule`].
#![forbid(unsafe_code)]

mod alone;
mod arrival;
mod completed;
mod datagram;
mod ending;
mod flow;
mod note;
mod reaction;
mod requests;
mod responses;
mod rule;
mod seen;
mod summary;
mod tracer;

pub use ending::{Ending, Outlook};
pub use note::{Cause, Note, Waited, Words};
pub use rule::{Finding, Rule};
pub use seen::{IcrcVerdict, Outside, Seen, WrongChecksum};
pub use summary::{ConversationSummary, Summary};
pub use tracer::{Direction, Endpoint, Observation, Tracer};

/// Where too much is remembered, the older half goes: that is cheaper than to look for the oldest
/// one each time. The first of these frames that belongs to the younger half.
fn younger_half(frames: impl Iterator<Item = u64>) -> u64 {
    let mut frames: Vec<u64> = frames.collect();
    let middle = frames.len() / 2;
    *frames.select_nth_unstable(middle).1
}
