//! The sending side of a queue pair of any service: its requests, and where they stand.
//!
//! How requests become packets differs: [`Requester::poll`] is that of a reliable connection,
//! [`Requester::poll_unreliable`] of an unreliable one, [`Requester::poll_datagram`] of datagrams.
//! In which order requests begin, complete and fail does not. IBA vol 1 §10.7.3.1, §10.8.3

use roxe_wire::Psn;

use crate::adapter::{Adapter, Count, KeyViolation};
use crate::conduct::Conduct;
use crate::emit::Emitted;
use crate::failure::{Failure, LocalFailure, Why};
use crate::rc::Reliability;
use crate::request::completion;
use crate::send_queue::{SendCapacity, SendQueue};
use crate::work::{Attributes, CompletionStatus, SendOperation};

/// The side that sends requests.
#[derive(Debug)]
pub(crate) struct Requester {
    pub(crate) queue: SendQueue,
    /// The request to send from next, counted from the oldest.
    pub(crate) sending: usize,
    /// The PSN of the packet to send next: one from before while packets are sent again.
    pub(crate) send_next: Psn,
    /// The PSN after the newest one ever sent: of the next packet that is new.
    pub(crate) send_end: Psn,
    /// The oldest PSN that is not acknowledged.
    pub(crate) unacknowledged: Psn,
    pub(crate) conduct: Conduct,
    /// What only a reliable connection needs.
    pub(crate) rc: Reliability,
}

impl Requester {
    pub(crate) fn new(capacity: SendCapacity) -> Self {
        Self {
            queue: SendQueue::new(capacity),
            sending: 0,
            send_next: Psn::default(),
            send_end: Psn::default(),
            unacknowledged: Psn::default(),
            conduct: Conduct::DEFAULT,
            rc: Reliability::default(),
        }
    }

    /// The queue pair becomes ready to send: everything begins at `sq_psn`.
    //= BC-034
    pub(crate) fn begin(&mut self, attributes: &Attributes) {
        let psn = attributes.sq_psn;
        self.send_next = psn;
        self.send_end = psn;
        self.unacknowledged = psn;
        self.rc.begin(attributes, &self.conduct);
    }

    /// Forgets everything, without completions.
    pub(crate) fn reset(&mut self) {
        self.queue.clear();
        self.sending = 0;
    }

    /// Whether every begun request has completed.
    //= Q20
    pub(crate) fn is_drained(&self) -> bool {
        !self.queue.front().is_some_and(|wqe| wqe.begun)
    }

    /// Whether something could be sent, as far as can be told without trying.
    pub(crate) fn has_work(&self) -> bool {
        self.sending < self.queue.len() && self.rc.may_send()
    }

    /// Does the local requests that come next: each takes effect behind all requests before it.
    /// `None` when one of them failed, or has to wait.
    //= IBA 10.6.5.1, BC-059
    pub(crate) fn do_local_operations(
        &mut self,
        attributes: &Attributes,
        draining: bool,
        adapter: &mut impl Adapter,
    ) -> Option<()> {
        while let Some(wqe) = self.queue.get(self.sending) {
            let SendOperation::Local(operation) = wqe.operation else { break };
            if self.sending != 0 || draining || wqe.failed.is_some() {
                return None;
            }
            let done = adapter.local_operation(&operation);
            let failed = done.err().map(LocalFailure::Operation);
            let psn = self.send_end;
            let wqe = self.queue.get_mut(0)?;
            (wqe.begun, wqe.done, wqe.psn, wqe.failed) = (true, true, psn, failed);
            if failed.is_some() {
                return None;
            }
            self.sending = 1;
            self.complete_finished(attributes, adapter);
        }
        Some(())
    }

    /// A new packet of an unreliable service is on its way: nobody will acknowledge it.
    pub(crate) const fn sent_unreliably(&mut self) {
        let next = self.send_end.next();
        (self.send_next, self.send_end, self.unacknowledged) = (next, next, next);
    }

    /// Completes the oldest requests as far as they are acknowledged and answered.
    //= Q06
    pub(crate) fn complete_finished(
        &mut self,
        attributes: &Attributes,
        adapter: &mut impl Adapter,
    ) {
        while let Some(wqe) = self.queue.front() {
            let answered = wqe.done || !wqe.operation.takes_responder_resource();
            let acknowledged = wqe.end().since(self.unacknowledged) <= 0;
            if !wqe.begun || !answered || !acknowledged || wqe.failed.is_some() {
                return;
            }
            if wqe.signaled {
                let status = CompletionStatus::Success;
                adapter.complete_send(completion(wqe, status, attributes));
            }
            self.queue.drop_front();
            self.sending = self.sending.saturating_sub(1);
        }
    }

    /// The next request fails without having been sent.
    pub(crate) fn failed_here(&mut self, why: LocalFailure) -> Option<Emitted> {
        self.queue.get_mut(self.sending)?.failed = Some(why);
        None
    }

    /// The next request fails: its memory cannot be read.
    pub(crate) fn unreadable(&mut self, violation: KeyViolation) -> Option<Emitted> {
        self.failed_here(LocalFailure::Memory { write: false, violation })
    }

    /// How the oldest request failed here, if nothing is before it any more.
    //= BC-103
    pub(crate) fn local_failure(&self) -> Option<Failure> {
        let why = Why::Here(self.queue.front()?.failed?);
        Some(Failure { index: 0, why })
    }

    /// Ends with a failed request: what is before it flushes (it was neither refused nor
    /// acknowledged), it completes with its status, and what is behind it flushes. Without one all
    /// flush.
    //= Q04, Q19, IBA 10.7.3.1
    pub(crate) fn fail(
        &mut self,
        failure: Option<Failure>,
        attributes: &Attributes,
        adapter: &mut impl Adapter,
    ) {
        let mut index = 0;
        while let Some(wqe) = self.queue.front() {
            let status = match failure {
                Some(failure) if index == failure.index => failure.why.status(&wqe.operation),
                _ => CompletionStatus::Flushed,
            };
            adapter.count(match status {
                CompletionStatus::Flushed => Count::RequesterFlushed,
                _ => Count::RequesterCqeError,
            });
            adapter.complete_send(completion(wqe, status, attributes));
            self.queue.drop_front();
            index += 1;
        }
        self.sending = 0;
    }
}
