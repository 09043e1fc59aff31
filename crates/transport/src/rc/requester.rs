//! Work requests → request packets: PSNs, the window, fences, credits.
//!
//! IBA vol 1 §9.7.2 (PSNs), §9.7.7.2 (credits), §10.8.3.3 (fences).

use roxe_wire::opcode::{Header, Operation, Service};
use roxe_wire::{
    AtomicEth, Bth, Credits, Feth, Headers, Ieth, Instant, Msn, Opcode, Psn, Reth,
};

use crate::adapter::{Adapter, Count};
use crate::emit::{Emitted, Outlet, emit};
use crate::segment::{self, Segment};
use crate::send_queue::{SendCapacity, SendQueue, Wqe};
use crate::work::{Attributes, Completion, CompletionOpcode, CompletionStatus, Extra, SendOperation};

use super::retry::Retry;

/// How many packets may be on their way unacknowledged, if the application does not say.
pub(crate) const DEFAULT_WINDOW: u32 = 256;

/// The side that sends requests.
#[derive(Debug)]
pub(crate) struct Requester {
    pub(super) queue: SendQueue,
    /// The request to send from next, counted from the oldest.
    pub(super) at: usize,
    /// The PSN of the packet to send next.
    pub(super) psn: Psn,
    /// The PSN after the newest one ever sent.
    pub(super) next: Psn,
    /// The oldest PSN that is not acknowledged.
    pub(super) unacknowledged: Psn,
    /// READs, atomics and the like that are begun and not answered.
    pub(super) outstanding: u32,
    /// How many packets may be unacknowledged.
    window: u32,
    /// Packets sent since one asked for an acknowledgement.
    unasked: u32,
    pub(super) retry: Retry,
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
            credits: CreditLimit::default(),
        }
    }

    /// The queue pair becomes ready to send: everything begins at `sq_psn`.
    pub(crate) fn begin(&mut self, attributes: &Attributes) {
        let psn = attributes.sq_psn;
        self.psn = psn;
        self.next = psn;
        self.unacknowledged = psn;
        self.outstanding = 0;
        self.unasked = 0;
        self.retry = Retry::new(attributes);
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

    pub(crate) const fn queue(&self) -> &SendQueue {
        &self.queue
    }

    pub(crate) const fn queue_mut(&mut self) -> &mut SendQueue {
        &mut self.queue
    }

    /// Whether a message is begun and not wholly sent.
    pub(crate) fn is_within_message(&self) -> bool {
        self.queue.get(self.at).is_some_and(|wqe| wqe.begun && self.psn != wqe.psn)
    }

    /// Whether every begun request has completed.
    pub(crate) fn is_drained(&self) -> bool {
        !self.queue.front().is_some_and(|wqe| wqe.begun)
    }

    /// Whether something could be sent, as far as can be told without trying.
    pub(crate) fn has_work(&self) -> bool {
        self.at < self.queue.len() && self.retry.may_send()
    }

    /// Sends the next packet, if one may be sent now. `draining` holds back messages not begun.
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
        loop {
            let wqe = *self.queue.get(self.at)?;
            if wqe.failed.is_some() {
                return None;
            }
            if !wqe.begun {
                if draining || !self.may_begin(&wqe, attributes) {
                    return None;
                }
                if let SendOperation::Local(operation) = wqe.operation {
                    if self.at != 0 {
                        return None; // It takes effect behind all requests before it.
                    }
                    let done = adapter.local_operation(&operation);
                    let status = match (done, CompletionOpcode::of(&wqe.operation)) {
                        (Ok(()), _) => None,
                        (Err(_), CompletionOpcode::BindMw) => Some(CompletionStatus::MwBindError),
                        (Err(_), _) => Some(CompletionStatus::LocalQpOperationError),
                    };
                    let psn = self.next;
                    let wqe = self.queue.get_mut(self.at)?;
                    wqe.failed = status;
                    (wqe.begun, wqe.done, wqe.psn) = (true, true, psn);
                    if status.is_some() {
                        return None;
                    }
                    self.at += 1;
                    self.complete_finished(attributes, adapter);
                    continue;
                }
                let writes = wqe.operation.fetches();
                if adapter.check_local(self.queue.sges(&wqe), writes).is_err() {
                    self.queue.get_mut(self.at)?.failed =
                        Some(CompletionStatus::LocalProtectionError);
                    return None;
                }
            }
            return self.send(now, attributes, wqe, outlet, adapter);
        }
    }

    /// The status with which the oldest request failed here, if nothing is before it any more.
    pub(crate) fn local_failure(&self) -> Option<super::Failure> {
        let status = self.queue.front()?.failed?;
        Some(super::Failure { index: 0, status })
    }

    /// Whether the next request may be begun.
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

    fn send(
        &mut self,
        now: Instant,
        attributes: &Attributes,
        mut wqe: Wqe,
        outlet: Outlet<'_>,
        adapter: &mut impl Adapter,
    ) -> Option<Emitted> {
        let mtu = attributes.path_mtu;
        let in_flight = self.in_flight(self.psn);
        if in_flight >= self.window {
            return None;
        }
        if !wqe.begun {
            wqe.psn = self.next;
            wqe.span = wqe.packets(mtu);
            // The newest and the oldest PSN must stay less than half the circle apart.
            if in_flight + wqe.span > Psn::MODULUS / 2 - self.window {
                return None;
            }
        }
        let index = u32::try_from(self.psn.since(wqe.psn)).ok()?;
        let retransmitted = self.psn.since(self.next) < 0;
        let (mut headers, payload) = self.headers(attributes, &wqe, index)?;
        let last = payload.position.ends();
        self.unasked += 1;
        let window_closes = in_flight + 1 >= self.window;
        headers.bth.ack_req = last || window_closes || self.unasked >= self.window.div_ceil(4);
        let queue = &self.queue;
        let emitted = emit(outlet, &mut headers, payload.len as usize, |place| {
            match queue.inline(&wqe, payload.offset, payload.len) {
                Some(bytes) => {
                    copy_inline(bytes, place);
                    Ok(())
                }
                None if payload.len == 0 => Ok(()),
                None => adapter.gather(queue.sges(&wqe), payload.offset, place),
            }
        })?;
        let Ok(emitted) = emitted else {
            self.queue.get_mut(self.at)?.failed = Some(CompletionStatus::LocalProtectionError);
            return None;
        };
        if headers.bth.ack_req {
            self.unasked = 0;
        }
        if !wqe.begun {
            wqe.begun = true;
            self.outstanding += u32::from(wqe.operation.takes_responder_resource());
            self.credits.begin(wqe.operation.consumes_receive());
            *self.queue.get_mut(self.at)? = wqe;
        }
        if retransmitted {
            adapter.count(Count::Retransmitted);
        }
        let one_packet = wqe.operation.fetches();
        self.psn = if one_packet { wqe.end() } else { self.psn.next() };
        if self.psn.since(self.next) > 0 {
            self.next = self.psn;
        }
        if self.psn == wqe.end() {
            self.at += 1;
        }
        self.retry.sent(now, attributes);
        Some(emitted)
    }

    /// The headers of a request's packet number `index`, and which part of its data goes with it.
    fn headers(
        &self,
        attributes: &Attributes,
        wqe: &Wqe,
        index: u32,
    ) -> Option<(Headers, Segment)> {
        let mtu = attributes.path_mtu;
        let whole = Segment { offset: 0, len: 0, position: roxe_wire::opcode::Position::Only };
        let (operation, variant, segment) = match wqe.operation {
            SendOperation::Send => (Operation::Send, None, segment::segment(wqe.len, mtu, index)?),
            SendOperation::SendWithImm(_) => {
                (Operation::Send, Some(Header::ImmDt), segment::segment(wqe.len, mtu, index)?)
            }
            SendOperation::SendWithInv(_) => {
                (Operation::Send, Some(Header::Ieth), segment::segment(wqe.len, mtu, index)?)
            }
            SendOperation::Write(_) => {
                (Operation::Write, None, segment::segment(wqe.len, mtu, index)?)
            }
            SendOperation::WriteWithImm(..) => {
                (Operation::Write, Some(Header::ImmDt), segment::segment(wqe.len, mtu, index)?)
            }
            SendOperation::Read(_) => (Operation::ReadRequest, None, whole),
            SendOperation::CompareSwap { .. } => (Operation::CompareSwap, None, whole),
            SendOperation::FetchAdd { .. } => (Operation::FetchAdd, None, whole),
            SendOperation::AtomicWrite(_) => {
                (Operation::AtomicWrite, None, Segment { len: 8, ..whole })
            }
            SendOperation::Flush { .. } => (Operation::Flush, None, whole),
            SendOperation::Local(_) => return None,
        };
        // Immediate data and invalidated keys travel in the last packet only.
        let variant = variant.filter(|_| segment.position.ends());
        let opcode = Opcode::find(Service::Rc, operation, segment.position, variant)?;
        let mut headers = Headers {
            bth: Bth {
                opcode: opcode.code,
                solicited: wqe.solicited && opcode.completes_a_receive(),
                mig_req: true,
                p_key: attributes.p_key,
                dest_qp: attributes.dest_qp,
                psn: wqe.psn.advance(index),
                ..Bth::default()
            },
            ..Headers::default()
        };
        if opcode.has(Header::Reth) {
            let remote = wqe.operation.remote()?;
            // A READ that is asked for again asks only for what is missing. IBA vol 1 §9.4.4
            let done = if operation == Operation::ReadRequest { index * mtu.bytes() } else { 0 };
            headers.reth = Some(Reth {
                va: remote.va.wrapping_add(u64::from(done)),
                r_key: remote.r_key,
                dma_len: wqe.len - done,
            });
        }
        match wqe.operation {
            SendOperation::SendWithImm(imm) | SendOperation::WriteWithImm(_, imm)
                if opcode.has(Header::ImmDt) =>
            {
                headers.imm_dt = Some(imm);
            }
            SendOperation::SendWithInv(r_key) if opcode.has(Header::Ieth) => {
                headers.ieth = Some(Ieth { r_key });
            }
            SendOperation::CompareSwap { remote, compare, swap } => {
                let (va, r_key) = (remote.va, remote.r_key);
                headers.atomic_eth = Some(AtomicEth { va, r_key, swap_add: swap, compare });
            }
            SendOperation::FetchAdd { remote, add } => {
                let (va, r_key) = (remote.va, remote.r_key);
                headers.atomic_eth = Some(AtomicEth { va, r_key, swap_add: add, compare: 0 });
            }
            SendOperation::Flush { placement, selectivity, .. } => {
                headers.feth = Some(Feth { placement, selectivity, reserved: 0 });
            }
            _ => {}
        }
        Some((headers, segment))
    }

    /// Completes the oldest requests as far as they are acknowledged and answered.
    pub(super) fn complete_finished(
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
            let Some(wqe) = self.queue.pop() else { return };
            self.at = self.at.saturating_sub(1);
            if wqe.signaled {
                let status = CompletionStatus::Success;
                adapter.complete_send(completion(&wqe, status, attributes));
            }
        }
    }

    /// Ends with a failed request: what is before it flushes (it was neither refused nor
    /// acknowledged), it completes with its status, and what is behind it flushes.
    pub(crate) fn fail(
        &mut self,
        failure: super::Failure,
        attributes: &Attributes,
        adapter: &mut impl Adapter,
    ) {
        let mut index = 0;
        while let Some(wqe) = self.queue.pop() {
            let status =
                if index == failure.index { failure.status } else { CompletionStatus::Flushed };
            adapter.count(match status {
                CompletionStatus::Flushed => Count::RequesterFlushed,
                _ => Count::RequesterCqeError,
            });
            adapter.complete_send(completion(&wqe, status, attributes));
            index += 1;
        }
        self.at = 0;
        self.outstanding = 0;
        self.retry.stop();
    }

    /// Flushes everything.
    pub(crate) fn flush(&mut self, attributes: &Attributes, adapter: &mut impl Adapter) {
        let none = super::Failure { index: usize::MAX, status: CompletionStatus::Flushed };
        self.fail(none, attributes, adapter);
    }

    /// What the responder said of its receive buffers.
    pub(super) fn take_credits(&mut self, credits: Credits, msn: Msn) {
        self.credits.take(credits, msn);
    }
}

impl CreditLimit {
    /// Whether a message that uses a receive buffer may begin: one beyond the limit always may, to
    /// probe. IBA vol 1 §9.7.7.2
    fn allow(&self) -> bool {
        self.limit.is_none_or(|limit| {
            Psn::new(self.sequence.next().get()).since(Psn::new(limit.next().get())) <= 0
        })
    }

    /// A message begins. One that uses no buffer moves the limit along.
    fn begin(&mut self, uses_buffer: bool) {
        self.sequence = self.sequence.next();
        if !uses_buffer {
            self.limit = self.limit.map(Msn::next);
        }
    }

    fn take(&mut self, credits: Credits, msn: Msn) {
        match credits.count() {
            None => (self.limit, self.never) = (None, true),
            Some(_) if self.never => {}
            Some(count) => {
                let limit = Msn::new(msn.get().wrapping_add(count));
                let newer = self.limit.is_none_or(|old| {
                    Psn::new(limit.get()).since(Psn::new(old.get())) > 0
                });
                if newer {
                    self.limit = Some(limit);
                }
            }
        }
    }
}

/// The completion of a send request.
pub(crate) fn completion(
    wqe: &Wqe,
    status: CompletionStatus,
    attributes: &Attributes,
) -> Completion {
    Completion {
        wr_id: wqe.wr_id,
        status,
        opcode: CompletionOpcode::of(&wqe.operation),
        byte_len: match wqe.operation {
            SendOperation::CompareSwap { .. } | SendOperation::FetchAdd { .. } => 8,
            _ => wqe.len,
        },
        extra: Extra::None,
        qpn: attributes.qpn,
        source_qp: roxe_wire::Qpn::default(),
        grh: false,
        solicited: status != CompletionStatus::Success,
    }
}

/// Copies inline bytes to a packet.
pub(crate) fn copy_inline((a, b): (&[u8], &[u8]), place: crate::adapter::Place<'_>) {
    match place {
        crate::adapter::Place::Bytes { first, second } => {
            let from = a.iter().chain(b);
            let to = first.iter_mut().chain(second);
            to.zip(from).for_each(|(to, from)| *to = *from);
        }
        crate::adapter::Place::Elided { digest, .. } => {
            *digest = a.iter().chain(b).fold(0, |sum: u32, &byte| {
                sum.rotate_left(5).wrapping_add(u32::from(byte))
            });
        }
    }
}
