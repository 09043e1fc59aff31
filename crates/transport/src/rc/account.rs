//! What is told of a request that failed.

use core::slice;
use core::time::Duration;

use crate::adapter::{Adapter, KeyViolation, SgeList};
use crate::ending::{Cause, FailedRequest, RequestFailure};
use crate::segment;
use crate::send_queue::Wqe;
use crate::work::Attributes;

use super::requester::Requester;
use super::{Failure, LocalFailure, Why};

/// How long ago the peer was heard of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heard {
    /// That it answered something.
    pub(crate) answer: Option<Duration>,
    /// That it asked for something.
    pub(crate) request: Option<Duration>,
}

impl Requester {
    /// How often the ACK timer ran out since the last progress.
    pub(crate) const fn timeouts(&self) -> u8 {
        self.retry.timeouts()
    }

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
            Why::Here(LocalFailure::Read(violation)) => {
                self.local_key(wqe, false, violation, adapter)
            }
            Why::Here(LocalFailure::Write(violation)) => {
                self.local_key(wqe, true, violation, adapter)
            }
            Why::Here(LocalFailure::TooManyPackets) => {
                RequestFailure::TooManyPackets { packets: wqe.packets(attributes.path_mtu) }
            }
            Why::Here(LocalFailure::LongerThanMtu) => {
                RequestFailure::LongerThanMtu { mtu: attributes.path_mtu.bytes() }
            }
            Why::Here(LocalFailure::NoHandle) => RequestFailure::NoHandle,
            Why::Here(LocalFailure::NoResources) => RequestFailure::NoResources,
            Why::Here(LocalFailure::Operation(violation)) => RequestFailure::Local(violation),
        };
        Some(Cause::Request(request, failure))
    }

    fn local_key(
        &self,
        wqe: &Wqe,
        write: bool,
        violation: KeyViolation,
        adapter: &impl Adapter,
    ) -> RequestFailure {
        let wrong = |sge| adapter.check_local(SgeList(slice::from_ref(sge), &[]), write).is_err();
        let sge = self.queue.sges(wqe).iter().find(|sge| wrong(sge)).copied();
        RequestFailure::LocalKey { sge, write, violation }
    }
}
