//! Reliable connection: every message arrives once, in order, or the connection ends.
//!
//! IBA vol 1 §9.7. The requester sends requests and sees to their answers, the responder carries
//! out the peer's requests and answers them; every queue pair is both.
//!
//! | side | question | module |
//! |---|---|---|
//! | requester | which packet goes next | `requester` |
//! | | what a response completes | `completer` |
//! | | when to try again, and to give up | `retry` |
//! | responder | what a request may do: the ladder of checks | `responder` |
//! | | how it is carried out | `execute` |
//! | | when an acknowledgement is owed | `acknowledge` |
//! | | which answers are kept, and what a duplicate gets | `replay` |
//! | | what the answers look like | `respond` |
//! | | how a request ends the connection | `broken` |

mod acknowledge;
mod broken;
mod completer;
mod execute;
mod replay;
mod requester;
mod respond;
mod responder;
mod retry;

pub(crate) use broken::Broken;
pub(crate) use requester::Reliability;
pub(crate) use responder::Responder;
