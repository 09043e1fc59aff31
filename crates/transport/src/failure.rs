//! Why a request of ours failed: how it completes, and what is told of it.

use core::slice;
use core::time::Duration;

use roxe_wire::{NakCode, Psn, RnrTimer};

use crate::adapter::{Adapter, KeyViolation, SgeList};
use crate::ending::{BadResponse, Cause, FailedRequest, RequestFailure};
use crate::requester::Requester;
use crate::segment;
use crate::send_queue::Wqe;
use crate::work::{Attributes, CompletionStatus, LocalOperation, SendOperation};

/// A request has failed; a reliable connection ends with it, the others stop sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// Which request, counted from the oldest.
    pub(crate) index: usize,
    /// What became of it.
    pub(crate) why: Why,
}

/// Why a request failed, as small as it can be handed around; at the end it becomes a
/// [`RequestFailure`].
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
    /// Its memory cannot be read, or written.
    Memory {
        write: bool,
        violation: KeyViolation,
    },
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
            Self::Here(LocalFailure::Memory { .. }) => CompletionStatus::LocalProtectionError,
            Self::Here(LocalFailure::Operation(_)) => match operation {
                SendOperation::Local(LocalOperation::BindWindow(_)) => {
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

/// How long ago the peer was heard of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heard {
    /// That it answered something.
    pub(crate) answer: Option<Duration>,
    /// That it asked for something.
    pub(crate) request: Option<Duration>,
}

impl Requester {
    /// What is to be told of a failure, before [`Requester::fail`].
    pub(crate) fn describe(
        &self,
        Failure { index, why }: Failure,
        heard: Heard,
        attributes: &Attributes,
        adapter: &impl Adapter,
    ) -> Option<Cause> {
        let wqe = self.queue.get(index)?;
        let request = FailedRequest {
            wr_id: wqe.wr_id,
            operation: wqe.operation,
            len: wqe.len,
            status: why.status(&wqe.operation),
        };
        let failure = match why {
            Why::NoAnswer(psn) => {
                let (sends, timeouts) = (attributes.retry_cnt.saturating_add(1), self.timeouts());
                RequestFailure::NoAnswer {
                    psn,
                    timeouts,
                    naks: sends.saturating_sub(timeouts),
                    wait: attributes.timeout.duration().unwrap_or_default(),
                    silence: heard.answer,
                    heard: heard.request,
                }
            }
            Why::NotReady(psn, timer) => RequestFailure::NotReady {
                psn,
                naks: attributes.rnr_retry.saturating_add(1),
                wait: timer.duration(),
            },
            Why::Refused(psn, code) => RequestFailure::Refused { psn, code },
            Why::BadResponse(psn, opcode, what) => {
                RequestFailure::BadResponse { psn, opcode, what }
            }
            Why::ReadLength(psn, found) => {
                let turn = segment::segment(wqe.len, attributes.path_mtu, wqe.received);
                let expected = turn.and_then(|turn| u16::try_from(turn.len).ok()).unwrap_or(0);
                RequestFailure::ReadLength { psn, found, expected }
            }
            Why::Here(why) => self.describe_local(wqe, why, attributes, adapter),
        };
        Some(Cause::Request(request, failure))
    }

    fn describe_local(
        &self,
        wqe: &Wqe,
        why: LocalFailure,
        attributes: &Attributes,
        adapter: &impl Adapter,
    ) -> RequestFailure {
        match why {
            LocalFailure::Memory { write, violation } => {
                let wrong =
                    |sge| adapter.check_local(SgeList(slice::from_ref(sge), &[]), write).is_err();
                let sge = self.queue.sges(wqe).iter().find(|sge| wrong(sge)).copied();
                RequestFailure::LocalKey { sge, write, violation }
            }
            LocalFailure::TooManyPackets => {
                RequestFailure::TooManyPackets { packets: wqe.packets(attributes.path_mtu) }
            }
            LocalFailure::LongerThanMtu => {
                RequestFailure::LongerThanMtu { mtu: attributes.path_mtu.bytes() }
            }
            LocalFailure::NoHandle => RequestFailure::NoHandle,
            LocalFailure::NoResources => RequestFailure::NoResources,
            LocalFailure::Operation(violation) => RequestFailure::Local(violation),
        }
    }
}
