//! Reliable connection: every message arrives once, in order, or the connection ends.
//!
//! IBA vol 1 §9.7. The requester sends requests and sees to their answers, the responder carries
//! out the peer's requests and answers them; every queue pair is both.

mod acknowledge;
mod completer;
mod replay;
mod requester;
mod responder;
mod retry;

pub(crate) use requester::Requester;
pub(crate) use responder::{Broken, Responder, failed, received};

use crate::work::CompletionStatus;

/// A request has failed; the connection ends with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// Which request, counted from the oldest.
    pub(crate) index: usize,
    /// How it completes.
    pub(crate) status: CompletionStatus,
}
