//! Reliable connection: every message arrives once, in order, or the connection ends.
//!
//! IBA vol 1 §9.7. The requester sends requests and sees to their answers, the responder carries
//! out the peer's requests and answers them; every queue pair is both.

mod account;
mod acknowledge;
mod completer;
mod replay;
mod requester;
mod responder;
mod retry;

pub(crate) use account::Heard;
pub(crate) use requester::Requester;
pub(crate) use responder::{Broken, Responder, failed, received};

use roxe_wire::{NakCode, Psn, RnrTimer};

use crate::adapter::KeyViolation;
use crate::ending::BadResponse;
use crate::work::{CompletionStatus, LocalOperation, SendOperation};

/// A request has failed; the connection ends with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// Which request, counted from the oldest.
    pub(crate) index: usize,
    /// What became of it.
    pub(crate) why: Why,
}

/// Why a request failed, as small as it can be handed around; at the end it becomes a
/// [`RequestFailure`](crate::ending::RequestFailure).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    NoAnswer(Psn),
    NotReady(Psn, RnrTimer),
    Refused(Psn, NakCode),
    BadResponse(Psn, u8, BadResponse),
    ReadLength(Psn, u16),
    Here(LocalFailure),
}

/// Why a request failed on our side, without the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LocalFailure {
    /// Its memory cannot be read.
    Read(KeyViolation),
    /// Its memory cannot be written.
    Write(KeyViolation),
    TooManyPackets,
    LongerThanMtu,
    /// Its address handle was destroyed.
    NoHandle,
    /// It needs a responder's resource, and none may be used.
    NoResources,
    /// What the adapter does by itself.
    Operation(KeyViolation),
}

impl Why {
    /// How the request completes.
    pub(crate) const fn status(self, operation: &SendOperation) -> CompletionStatus {
        match self {
            Self::NoAnswer(_) => CompletionStatus::RetryExceeded,
            Self::NotReady(..) => CompletionStatus::RnrRetryExceeded,
            Self::Refused(_, NakCode::InvalidRequest) => CompletionStatus::RemoteInvalidRequest,
            Self::Refused(_, NakCode::RemoteAccessError) => CompletionStatus::RemoteAccessError,
            Self::Refused(_, NakCode::RemoteOperationalError) => {
                CompletionStatus::RemoteOperationError
            }
            Self::Refused(..) | Self::BadResponse(..) => CompletionStatus::BadResponse,
            Self::ReadLength(..)
            | Self::Here(LocalFailure::TooManyPackets | LocalFailure::LongerThanMtu) => {
                CompletionStatus::LocalLengthError
            }
            Self::Here(LocalFailure::Read(_) | LocalFailure::Write(_)) => {
                CompletionStatus::LocalProtectionError
            }
            Self::Here(LocalFailure::Operation(_)) => match operation {
                SendOperation::Local(LocalOperation::BindWindow { .. }) => {
                    CompletionStatus::MwBindError
                }
                _ => CompletionStatus::LocalQpOperationError,
            },
            Self::Here(LocalFailure::NoResources | LocalFailure::NoHandle) => {
                CompletionStatus::LocalQpOperationError
            }
        }
    }
}
