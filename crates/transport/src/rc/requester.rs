//! Work requests → request packets: PSNs, the window, fences, credits.
//!
//! IBA vol 1 §9.7.2 (PSNs), §9.7.7.2 (credits), §10.8.3.3 (fences).

use roxe_wire::opcode::Service;
use roxe_wire::{Credits, Headers, Instant, Msn, Psn};

use crate::adapter::{Adapter, Count};
use crate::conduct::Conduct;
use crate::emit::{Emitted, Outlet, emit};
use crate::request::{completion, fill, request_headers};
use crate::send_queue::{SendCapacity, SendQueue, Wqe};
use crate::work::{Attributes, CompletionStatus, SendOperation};

use super::retry::Retry;
use super::{Failure, LocalFailure, Why};

/// The side that sends requests.
#[derive(Debug)]
pub(crate) struct Requester {
    pub(crate) queue: SendQueue,
    /// The request to send from next, counted from the oldest.
    pub(super) at: usize,
    /// The PSN of the packet to send next.
    pub(crate) psn: Psn,
    /// The PSN after the newest one ever sent.
    pub(crate) next: Psn,
    /// The oldest PSN that is not acknowledged.
    pub(crate) unacknowledged: Psn,
    /// READs, atomics and the like that are begun and not answered.
    pub(super) outstanding: u32,
    /// How many packets may be unacknowledged.
    window: u32,
    /// Packets sent since one asked for an acknowledgement.
    unasked: u32,
    pub(super) retry: Retry,
    pub(crate) conduct: Conduct,
    credits: CreditLimit,
}

/// End-to-end flow control as a requester keeps it.
#[derive(Clone, Copy, Debug, Default)]
struct CreditLimit {
    /// Messages begun.
    sequence: Msn,
    /// The newest message that the responder has a buffer for; `None` is without limit.
    limit: Option<Msn>,
    /// The responder said once that it does not count.
    never: bool,
}

impl Requester {
    pub(crate) fn new(capacity: SendCapacity) -> Self {
        Self {
            queue: SendQueue::new(capacity),
            at: 0,
            psn: Psn::default(),
            next: Psn::default(),
            unacknowledged: Psn::default(),
            outstanding: 0,
            window: DEFAULT_WINDOW,
            unasked: 0,
            retry: Retry::default(),
            conduct: Conduct::DEFAULT,
            credits: CreditLimit::default(),
        }
    }

    /// The queue pair becomes ready to send: everything begins at `sq_psn`.
    //= BC-034
    pub(crate) fn begin(&mut self, attributes: &Attributes) {
        let psn = attributes.sq_psn;
        self.psn = psn;
        self.next = psn;
        self.unacknowledged = psn;
        self.outstanding = 0;
        self.unasked = 0;
        self.retry = Retry::new(attributes, self.conduct.least_timeout);
        self.credits = CreditLimit::default();
    }

    /// Forgets everything, without completions.
    pub(crate) fn reset(&mut self) {
        self.queue.clear();
        self.at = 0;
        self.outstanding = 0;
        self.retry = Retry::default();
    }

    pub(crate) fn set_window(&mut self, packets: u32) {
        self.window = packets.clamp(1, Psn::MODULUS / 4);
    }

    /// Whether every begun request has completed.
    //= Q20
    pub(crate) fn is_drained(&self) -> bool {
        !self.queue.front().is_some_and(|wqe| wqe.begun)
    }

    /// Whether something could be sent, as far as can be told without trying.
    pub(crate) fn has_work(&self) -> bool {
        self.at < self.queue.len() && self.retry.may_send()
    }

    /// Sends the next packet, if one may be sent now. `draining` holds back messages not begun.
    //= 04-4.8, Q18, Q20, BC-078
    pub(crate) fn poll(
        &mut self,
        now: Instant,
        attributes: &Attributes,
        draining: bool,
        outlet: Outlet<'_>,
        adapter: &mut impl Adapter,
    ) -> Option<Emitted> {
        if !self.retry.may_send() {
            return None;
        }
        self.do_local_operations(attributes, draining, adapter)?;
        let wqe = self.queue.get(self.at)?;
        if wqe.failed.is_some() {
            return None;
        }
        if !wqe.begun {
            if draining {
                return None;
            }
            if wqe.operation.takes_responder_resource() && attributes.max_rd_atomic == 0 {
                return self.failed_here(LocalFailure::NoResources); // It would wait for ever.
            }
            if !self.may_begin(wqe, attributes) {
                return None;
            }
            let writes = wqe.operation.fetches();
            // What fits a packet is checked when the packet is filled.
            let whole = writes || wqe.len > attributes.path_mtu.bytes();
            if whole && let Err(violation) = adapter.check_local(self.queue.sges(wqe), writes) {
                return self.failed_here(if writes {
                    LocalFailure::Write(violation)
                } else {
                    LocalFailure::Read(violation)
                });
            }
        }
        self.send(now, attributes, outlet, adapter)
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
        while let Some(wqe) = self.queue.get(self.at) {
            let SendOperation::Local(operation) = wqe.operation else { break };
            if self.at != 0 || draining || wqe.failed.is_some() {
                return None;
            }
            let done = adapter.local_operation(&operation);
            let failed = done.err().map(LocalFailure::Operation);
            let psn = self.next;
            let wqe = self.queue.get_mut(0)?;
            (wqe.begun, wqe.done, wqe.psn, wqe.failed) = (true, true, psn, failed);
            if failed.is_some() {
                return None;
            }
            self.at = 1;
            self.complete_finished(attributes, adapter);
        }
        Some(())
    }

    /// The next request fails without having been sent.
    pub(crate) fn failed_here(&mut self, why: LocalFailure) -> Option<Emitted> {
        self.queue.get_mut(self.at)?.failed = Some(why);
        None
    }

    /// How the oldest request failed here, if nothing is before it any more.
    //= BC-103
    pub(crate) fn local_failure(&self) -> Option<Failure> {
        let why = Why::Here(self.queue.front()?.failed?);
        Some(Failure { index: 0, why })
    }

    /// Whether the next request may be begun.
    //= Q12, Q13, Q17, BC-059
    fn may_begin(&self, wqe: &Wqe, attributes: &Attributes) -> bool {
        // 04-4.8: a fence waits for READs and atomics before it, and for nothing else.
        //= IBA 10.8.3.3
        if wqe.fence && self.outstanding != 0 {
            return false;
        }
        if wqe.operation.takes_responder_resource()
            && self.outstanding >= u32::from(attributes.max_rd_atomic)
        {
            return false;
        }
        !wqe.operation.consumes_receive() || self.credits.allow()
    }

    fn in_flight(&self, psn: Psn) -> u32 {
        u32::try_from(psn.since(self.unacknowledged)).unwrap_or(0)
    }

    //= Q14, BC-028, 04-4.8
    fn send(
        &mut self,
        now: Instant,
        attributes: &Attributes,
        outlet: Outlet<'_>,
        adapter: &mut impl Adapter,
    ) -> Option<Emitted> {
        let in_flight = self.in_flight(self.psn);
        if in_flight >= self.window {
            return None;
        }
        let wqe = self.queue.get_mut(self.at)?;
        let begins = !wqe.begun;
        if begins {
            wqe.psn = self.next;
            wqe.span = wqe.packets(attributes.path_mtu);
            // The newest and the oldest PSN must stay less than half the circle apart.
            let most = Psn::MODULUS / 2 - self.window;
            if wqe.span > most {
                return self.failed_here(LocalFailure::TooManyPackets);
            }
            if in_flight + wqe.span > most {
                return None;
            }
        }
        let wqe = self.queue.get(self.at)?;
        let index = u32::try_from(self.psn.since(wqe.psn)).ok()?;
        let retransmitted = self.psn.since(self.next) < 0;
        let mut headers = Headers::default();
        let payload = request_headers(Service::Rc, attributes, wqe, index, &mut headers)?;
        let last = payload.position.ends();
        self.unasked += 1;
        let window_closes = in_flight + 1 >= self.window;
        let ask_after = self.conduct.ask_after.unwrap_or_else(|| self.window.div_ceil(4));
        let asks = last && (self.conduct.asks_for_each_message || self.at + 1 == self.queue.len());
        headers.bth.ack_req = asks || window_closes || self.unasked >= ask_after;
        headers.bth.mig_req = self.conduct.mig_req;
        let emitted = emit(outlet, &mut headers, payload.len as usize, |place| {
            fill(&self.queue, wqe, &payload, place, adapter)
        })?;
        let emitted = match emitted {
            Ok(emitted) => emitted,
            Err(violation) => return self.failed_here(LocalFailure::Read(violation)),
        };
        if headers.bth.ack_req {
            self.unasked = 0;
        }
        if retransmitted {
            adapter.count(Count::Retransmitted);
        }
        let end = wqe.end();
        self.psn = if wqe.operation.fetches() { end } else { self.psn.next() };
        if self.psn.since(self.next) > 0 {
            self.next = self.psn;
        }
        if begins {
            self.outstanding += u32::from(wqe.operation.takes_responder_resource());
            self.credits.begin(wqe.operation.consumes_receive());
            self.queue.get_mut(self.at)?.begun = true;
        }
        if self.psn == end {
            self.at += 1;
        }
        self.retry.sent(now, attributes);
        Some(emitted)
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
            self.at = self.at.saturating_sub(1);
        }
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
        self.at = 0;
        self.outstanding = 0;
    }

    /// What the responder said of its receive buffers.
    pub(super) fn take_credits(&mut self, credits: Credits, msn: Msn) {
        if self.conduct.obeys_credits {
            self.credits.take(credits, msn);
        }
    }
}

impl CreditLimit {
    /// Whether a message that uses a receive buffer may begin: one beyond the limit always may, to
    /// probe. IBA vol 1 §9.7.7.2
    //= Q17, 04-4.10
    fn allow(&self) -> bool {
        self.limit.is_none_or(|limit| self.sequence.since(limit) <= 0)
    }

    /// A message begins. One that uses no buffer moves the limit along.
    fn begin(&mut self, uses_buffer: bool) {
        self.sequence = self.sequence.next();
        if !uses_buffer {
            self.limit = self.limit.map(Msn::next);
        }
    }

    //= BC-036, 04-4.10
    fn take(&mut self, credits: Credits, msn: Msn) {
        match credits.count() {
            None => (self.limit, self.never) = (None, true),
            Some(_) if self.never => {}
            Some(count) => {
                let limit = msn.advance(count);
                if self.limit.is_none_or(|old| limit.since(old) > 0) {
                    self.limit = Some(limit);
                }
            }
        }
    }
}

/// How many packets may be on their way unacknowledged, if the application does not say.
const DEFAULT_WINDOW: u32 = 256;
