//! Work requests → request packets of a reliable connection: the window, fences, credits.
//!
//! IBA vol 1 §9.7.2 (PSNs), §9.7.7.2 (credits), §10.8.3.3 (fences).

use roxe_wire::opcode::Service;
use roxe_wire::{Credits, Headers, Instant, Msn, Psn};

use crate::adapter::{Adapter, Count};
use crate::conduct::Conduct;
use crate::congestion::Limits;
use crate::emit::{Emitted, Outlet, emit};
use crate::failure::LocalFailure;
use crate::request::{fill, request_headers};
use crate::requester::Requester;
use crate::send_queue::Wqe;
use crate::work::{Attributes, SendOperation};

use super::retry::Retry;

/// What a requester keeps because its requests are acknowledged.
#[derive(Debug)]
pub(crate) struct Reliability {
    /// READs, atomics and the like that are begun and not answered.
    pub(super) outstanding: u32,
    /// How many packets may be unacknowledged.
    window: u32,
    /// What congestion control asks besides.
    limits: Limits,
    /// Packets sent since one asked for an acknowledgement.
    unasked: u32,
    /// The last packet of a message did not ask, as the message behind it was to; no packet has
    /// asked since.
    counts_on_next: bool,
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

impl Default for Reliability {
    fn default() -> Self {
        Self {
            outstanding: 0,
            window: DEFAULT_WINDOW,
            limits: Limits::NONE,
            unasked: 0,
            counts_on_next: false,
            retry: Retry::default(),
            credits: CreditLimit::default(),
        }
    }
}

impl Reliability {
    /// The queue pair becomes ready to send.
    pub(crate) fn begin(&mut self, attributes: &Attributes, conduct: &Conduct) {
        *self = Self {
            window: self.window,
            limits: self.limits,
            retry: Retry::new(attributes, conduct),
            ..Self::default()
        };
    }

    /// How many packets may be unacknowledged at once: at the least one, and few enough that their
    /// PSNs are told from those of before.
    pub(crate) fn set_window(&mut self, packets: u32) {
        self.window = packets.clamp(1, Psn::MODULUS / 4);
    }

    /// What congestion control asks from now on.
    pub(crate) const fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// How many packets may be unacknowledged now. Neither congestion control nor a timeout has a
    /// say while PSNs under way are those of answers.
    fn window_now(&self) -> u32 {
        if self.outstanding == 0 {
            self.window.min(self.limits.window).min(self.retry.window())
        } else {
            self.window
        }
    }

    /// Whether the last packet asked for an acknowledgement, and nothing but that is awaited.
    pub(crate) const fn asked_alone(&self) -> bool {
        self.unasked == 0 && self.outstanding == 0
    }

    /// Whether packets may be sent at all. Not while the receiver is known to be not ready.
    pub(crate) const fn may_send(&self) -> bool {
        self.retry.may_send()
    }
}

impl Requester {
    /// Sends the next packet, if one may be sent now. `draining` holds back messages not begun.
    //= 04-4.8, Q18, Q20, BC-078
    pub(crate) fn poll(
        &mut self,
        now: Instant,
        attributes: &Attributes,
        draining: bool,
        mut outlet: Outlet<'_>,
        adapter: &mut impl Adapter,
    ) -> Option<Emitted> {
        if !self.rc.may_send() {
            return None;
        }
        self.do_local_operations(attributes, draining, adapter)?;
        if self.next_may_go(attributes, draining, adapter)? {
            let emitted = self.send(now, attributes, draining, outlet.reborrow(), adapter);
            if emitted.is_some() || self.queue.get(self.sending)?.failed.is_none() {
                return emitted;
            }
        }
        self.go_back(self.counting_on_next()?);
        self.send(now, attributes, draining, outlet, adapter)
    }

    /// Whether a packet of the next request may be sent, as far as can be told without filling it.
    /// `None` when there is no request.
    fn next_may_go(
        &mut self,
        attributes: &Attributes,
        draining: bool,
        adapter: &impl Adapter,
    ) -> Option<bool> {
        let wqe = self.queue.get(self.sending)?;
        if wqe.failed.is_some() || !wqe.begun && draining {
            return Some(false);
        }
        if wqe.begun {
            return Some(true);
        }
        if wqe.operation.takes_responder_resource() && attributes.max_rd_atomic == 0 {
            self.failed_here(LocalFailure::NoResources); // It would wait for ever.
            return Some(false);
        }
        if wqe.packets(attributes.path_mtu) > self.most_in_flight() {
            self.failed_here(LocalFailure::TooManyPackets);
            return Some(false);
        }
        if !self.may_begin(wqe, attributes) {
            return Some(false);
        }
        let writes = wqe.operation.fetches();
        // What fits a packet is checked when the packet is filled.
        let whole = writes || wqe.len > attributes.path_mtu.bytes();
        if whole && let Err(violation) = adapter.check_local(self.queue.sges(wqe), writes) {
            self.failed_here(LocalFailure::Memory { write: writes, violation });
            return Some(false);
        }
        Some(true)
    }

    /// The last packet before the next request, if it left the asking to that: as this cannot be
    /// sent, nobody else would ask, and the peer need not answer. One that is answered by itself
    /// has that answer.
    fn counting_on_next(&self) -> Option<Psn> {
        let before = self.queue.get(self.sending.checked_sub(1)?)?;
        let asks = self.rc.counts_on_next && !before.operation.takes_responder_resource();
        asks.then(|| before.end().previous())
    }

    /// Whether the next request may be begun.
    //= Q12, Q13, Q17, BC-059
    fn may_begin(&self, wqe: &Wqe, attributes: &Attributes) -> bool {
        // 04-4.8: a fence waits for READs and atomics before it, and for nothing else.
        //= IBA 10.8.3.3
        if wqe.fence && self.rc.outstanding != 0 {
            return false;
        }
        if wqe.operation.takes_responder_resource()
            && self.rc.outstanding >= u32::from(attributes.max_rd_atomic)
        {
            return false;
        }
        let packets = self.in_flight(self.send_end) + wqe.packets(attributes.path_mtu);
        packets <= self.most_in_flight()
            && (!wqe.operation.consumes_receive() || self.rc.credits.allow())
    }

    /// How many packets may be begun and unacknowledged at once: the newest and the oldest PSN must
    /// stay less than half the circle apart.
    const fn most_in_flight(&self) -> u32 {
        Psn::MODULUS / 2 - self.rc.window
    }

    /// Whether another message follows at once, and asks for an acknowledgement for both.
    fn another_asks(&self, attributes: &Attributes, draining: bool) -> bool {
        let follows = |next: &Wqe| {
            let may_begin = !draining
                && !matches!(next.operation, SendOperation::Local(_))
                && self.rc.credits.limit.is_none()
                && self.may_begin(next, attributes);
            next.failed.is_none() && (next.begun || may_begin)
        };
        !self.conduct.asks_for_each_message && self.queue.get(self.sending + 1).is_some_and(follows)
    }

    fn in_flight(&self, psn: Psn) -> u32 {
        u32::try_from(psn.since(self.unacknowledged)).unwrap_or(0)
    }

    //= Q14, BC-028, 04-4.8
    fn send(
        &mut self,
        now: Instant,
        attributes: &Attributes,
        draining: bool,
        outlet: Outlet<'_>,
        adapter: &mut impl Adapter,
    ) -> Option<Emitted> {
        let in_flight = self.in_flight(self.send_next);
        let window = self.rc.window_now();
        // A window that shrank may be full of packets none of which asked: one more may.
        if in_flight >= window && (self.rc.unasked == 0 || in_flight >= self.rc.window) {
            return None;
        }
        let wqe = self.queue.get_mut(self.sending)?;
        let begins = !wqe.begun;
        if begins {
            wqe.psn = self.send_end;
            wqe.span = wqe.packets(attributes.path_mtu);
        }
        let wqe = self.queue.get(self.sending)?;
        let index = u32::try_from(self.send_next.since(wqe.psn)).ok()?;
        let retransmitted = self.send_next.since(self.send_end) < 0;
        let mut headers = Headers::default();
        let payload = request_headers(Service::Rc, attributes, wqe, index, &mut headers)?;
        let last = payload.position.ends();
        let unasked = self.rc.unasked + 1;
        let window_closes = in_flight + 1 >= window;
        let ask_after = self.conduct.ask_after.unwrap_or_else(|| self.rc.window.div_ceil(4));
        let ask_after = ask_after.min(self.rc.limits.ask_after);
        let asks = last && !self.another_asks(attributes, draining);
        headers.bth.ack_req = asks || window_closes || unasked >= ask_after;
        headers.bth.mig_req = self.conduct.mig_req;
        let emitted = emit(outlet, &mut headers, payload.len as usize, |place| {
            fill(&self.queue, wqe, &payload, place, adapter)
        })?;
        let emitted = match emitted {
            Ok(emitted) => emitted,
            Err(violation) => return self.unreadable(violation),
        };
        self.rc.unasked = if headers.bth.ack_req { 0 } else { unasked };
        self.rc.counts_on_next = !headers.bth.ack_req && (last || self.rc.counts_on_next);
        if retransmitted {
            adapter.count(Count::Retransmitted);
        }
        let end = wqe.end();
        self.send_next = if wqe.operation.fetches() { end } else { self.send_next.next() };
        if self.send_next.since(self.send_end) > 0 {
            self.send_end = self.send_next;
        }
        if begins {
            self.rc.outstanding += u32::from(wqe.operation.takes_responder_resource());
            self.rc.credits.begin(wqe.operation.consumes_receive());
            self.queue.get_mut(self.sending)?.begun = true;
        }
        if self.send_next == end {
            self.sending += 1;
        }
        self.rc.retry.sent(now, attributes);
        Some(emitted)
    }

    /// What the responder said of its receive buffers.
    pub(super) fn take_credits(&mut self, credits: Credits, msn: Msn) {
        if self.conduct.obeys_credits {
            self.rc.credits.take(credits, msn);
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
