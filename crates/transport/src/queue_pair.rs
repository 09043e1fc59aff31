//! A queue pair: its state, and which side of its service gets what.
//!
//! It moves only when one of its calls moves it. IBA vol 1 §10.2.4, §10.3.1.

use roxe_wire::opcode::Operation;
use roxe_wire::{Bth, DropReason, Grh, ICRC_LEN, Instant, Packet, Psn};

use crate::adapter::{Adapter, Count, QpEvent};
use crate::conduct::Conduct;
use crate::congestion::hpcc::Hop;
use crate::congestion::{CongestionControl, Controller, Limits, Line, Paced};
use crate::emit::{Emitted, Outlet};
use crate::ending::{Cause, Ending, PeerRequest};
use crate::failure::{Failure, Heard};
use crate::history::{History, Record};
use crate::inbound::Misplaced;
use crate::qp_state::{
    Attribute, AttributeMask, ModifyError, QpState, ServiceType, check_transition,
};
use crate::rc::Broken;
use crate::requester::Requester;
use crate::responder::Responder;
use crate::send_queue::SendCapacity;
use crate::ud;
use crate::work::{Attributes, PostError, SendRequest};

/// One queue pair's protocol.
#[derive(Debug)]
pub struct QueuePair {
    service: ServiceType,
    state: QpState,
    attributes: Attributes,
    /// Every send request is completed, signaled or not: `sq_sig_all`.
    signal_all: bool,
    requester: Requester,
    responder: Responder,
    /// An event says when the send queue is drained.
    notify_drained: bool,
    /// The peer has been heard of.
    established: bool,
    /// When the peer last answered, since the queue pair was ready to receive.
    answered: Option<Instant>,
    /// When it last asked for something.
    asked: Option<Instant>,
    history: History,
    ending: Option<Box<Ending>>,
    /// How fast it may send, if anything controls that.
    paced: Option<Box<Paced>>,
}

impl QueuePair {
    /// A queue pair in state Reset.
    pub fn new(
        service: ServiceType,
        capacity: SendCapacity,
        signal_all: bool,
        attributes: Attributes,
    ) -> Self {
        Self {
            service,
            state: QpState::Reset,
            attributes,
            signal_all,
            requester: Requester::new(capacity),
            responder: Responder::new(service, Conduct::DEFAULT),
            notify_drained: false,
            established: false,
            answered: None,
            asked: None,
            history: History::new(),
            ending: None,
            paced: None,
        }
    }

    /// Its service.
    pub const fn service(&self) -> ServiceType {
        self.service
    }

    /// Its state.
    pub const fn state(&self) -> QpState {
        self.state
    }

    /// How it is set.
    pub const fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    /// The oldest PSN that the peer has not acknowledged, or the next one to be sent.
    pub const fn unacknowledged(&self) -> Psn {
        self.requester.unacknowledged
    }

    /// The PSN that the peer of a reliable connection is to send next.
    pub const fn expected(&self) -> Option<Psn> {
        match &self.responder {
            Responder::Rc(responder) => Some(responder.expected),
            Responder::Uc(_) | Responder::Ud => None,
        }
    }

    /// Why it left the states in which it works; or, if it is in one of these, how a datagram's
    /// receive failed last. `None` when nothing went wrong since Reset.
    pub fn ending(&self) -> Option<&Ending> {
        self.ending.as_deref()
    }

    /// Its last runs of frames and events, oldest first:
    /// [`REMEMBERED`](crate::history::REMEMBERED) at the most.
    pub fn history(&self) -> impl Iterator<Item = Record> {
        self.history.records()
    }

    /// A frame that begins with these bytes, BTH first, is about to be handled: for the history,
    /// which packets that have been taken apart have nothing for.
    pub fn note_received(&mut self, now: Instant, bytes: &[u8]) {
        self.history.received(now, bytes);
    }

    /// A frame for it was dropped before it came here.
    pub fn note_dropped(&mut self, now: Instant, bth: &Bth, reason: DropReason) {
        self.history.dropped(now, bth, reason);
    }

    /// How many packets may be unacknowledged at once: 1 ..= 2²². RC.
    pub fn set_window(&mut self, packets: u32) {
        self.requester.rc.set_window(packets);
    }

    /// Behaves otherwise from now on. To be called in state Reset.
    pub fn set_conduct(&mut self, conduct: Conduct) {
        debug_assert_eq!(self.state, QpState::Reset, "what is under way goes on as it began");
        self.requester.conduct = conduct;
        self.responder = Responder::new(self.service, conduct);
    }

    /// From now on `control` says how fast it may send by `line`. A queue pair that is controlled
    /// already goes on at its rate with other parameters.
    pub fn set_congestion_control(&mut self, control: CongestionControl, line: Line) {
        let kept = self.paced.take();
        let kept = kept.and_then(|mut it| it.set(&control, line).then_some(it));
        let fresh = || {
            let packet = longest_packet(&self.attributes);
            Paced::new(&control, line, packet).map(Box::new)
        };
        self.paced = kept.or_else(fresh);
        self.obey();
    }

    /// Who sends requests does what its rate's controller asks.
    fn obey(&mut self) {
        let limits = self.paced.as_ref().map_or(Limits::NONE, |paced| paced.limits());
        self.requester.rc.set_limits(limits);
    }

    /// What controls its rate, if anything does.
    pub fn controller(&self) -> Option<&Controller> {
        self.paced.as_ref().map(|paced| paced.controller())
    }

    /// The same as it is now: what time alone does is worked out only when something is sent or
    /// comes.
    pub fn controller_at(&self, now: Instant) -> Option<Controller> {
        self.paced.as_ref().map(|paced| paced.controller_at(now))
    }

    /// A congestion notification came from its peer. Says whether anything follows from it.
    //= C02
    pub fn handle_cnp(&mut self, now: Instant) -> bool {
        match &mut self.paced {
            Some(paced) if self.state.sends() => paced.notified(now),
            _ => false,
        }
    }

    /// The acknowledgement that came just now brought telemetry, hop by hop from here on.
    pub fn handle_telemetry(&mut self, now: Instant, hops: &[Hop]) {
        let standing = (self.requester.unacknowledged, self.requester.send_next);
        if let Some(paced) = &mut self.paced {
            paced.telemetry(now, standing, hops);
            self.obey();
        }
    }

    /// What an answer says of the network: what it acknowledged and what it showed to be lost,
    /// since these were the oldest packet unacknowledged and the next to send.
    fn learn(&mut self, now: Instant, (unacknowledged, next): (Psn, Psn)) {
        let Some(paced) = &mut self.paced else { return };
        let Requester { unacknowledged: after, send_next, rc, .. } = &self.requester;
        if let Ok(packets @ 1..) = u32::try_from(after.since(unacknowledged)) {
            paced.acknowledged(now, *after, packets);
        }
        if send_next.since(next) < 0 {
            // A receiver that is not ready lost nothing to the network.
            if rc.may_send() { paced.lost(now) } else { paced.sends_again() }
        }
        self.obey();
    }

    /// Goes to another state, or changes attributes: `ibv_modify_qp`. `values` holds the values of
    /// the attributes in `given`; the others of it are not looked at.
    ///
    /// # Errors
    /// The step or a value is refused; then nothing has changed.
    //= 05-5.1
    pub fn modify(
        &mut self,
        to: QpState,
        given: AttributeMask,
        values: &Attributes,
        adapter: &mut impl Adapter,
    ) -> Result<(), ModifyError> {
        check_transition(self.service, self.state, to, given)?;
        if given.contains(Attribute::CurState) && values.cur_state != self.state {
            return Err(ModifyError::WrongCurrentState);
        }
        values.check(given)?;
        let from = self.state;
        self.attributes.take(given, values);
        if to == QpState::Error {
            let at = self.history.last();
            self.remember(at, to, Cause::Modified);
            self.enter_error(None, adapter);
            return Ok(());
        }
        if to != from {
            self.history.state(to);
        }
        self.state = to;
        if given.contains(Attribute::RetryCnt) || given.contains(Attribute::RnrRetry) {
            self.requester.restore_tries(&self.attributes);
        }
        if given.contains(Attribute::MaxDestRdAtomic)
            && let Responder::Rc(responder) = &mut self.responder
        {
            responder.set_attributes(&self.attributes);
        }
        match (from, to) {
            (_, QpState::Reset) => self.reset(adapter),
            (QpState::SqError, QpState::Rts) => self.ending = None,
            (_, QpState::Rtr) => self.responder.begin(&self.attributes),
            (QpState::Rtr, QpState::Rts) => {
                self.requester.begin(&self.attributes);
                if let Some(paced) = &mut self.paced {
                    paced.begin(longest_packet(&self.attributes));
                }
                self.obey();
            }
            (QpState::Rts, QpState::SqDrain) => {
                self.notify_drained = given.contains(Attribute::EnSqdAsyncNotify);
                self.report_drained(adapter);
            }
            _ => {}
        }
        Ok(())
    }

    /// Everything is forgotten, without completions.
    //= 05-5.2
    fn reset(&mut self, adapter: &mut impl Adapter) {
        self.requester.reset();
        self.responder.forget_message(adapter);
        self.responder = Responder::new(self.service, self.requester.conduct);
        self.established = false;
        self.notify_drained = false;
        (self.answered, self.asked) = (None, None);
        self.ending = None;
        if let Some(paced) = &mut self.paced {
            paced.reset();
        }
        self.obey();
    }

    /// Keeps why the queue pair goes to a state. Neither what the application does with one that
    /// ended by itself hides why, nor what one goes on from.
    fn remember(&mut self, at: Instant, to: QpState, cause: Cause) {
        let ended = self.ending.as_ref().is_some_and(|ending| ending.from != ending.to);
        let outside = matches!(cause, Cause::Modified | Cause::PortGone);
        if ended && (outside || to == self.state) {
            return;
        }
        self.ending = Some(Box::new(Ending { at, from: self.state, to, cause }));
    }

    /// Goes to state Error: every request completes, flushed, in order; a failed one with its
    /// status. Only once: what is posted later is flushed when it is posted.
    //= 05-5.2, R36, BC-091
    fn enter_error(&mut self, failure: Option<Failure>, adapter: &mut impl Adapter) {
        if self.state == QpState::Error {
            return;
        }
        self.state = QpState::Error;
        self.history.state(QpState::Error);
        self.requester.fail(failure, &self.attributes, adapter);
        self.responder.flush_message(&self.attributes, adapter);
        adapter.flush_receives();
    }

    /// A send request failed. A reliable connection ends; the others only stop sending.
    //= V05, BC-100
    fn send_failed(&mut self, now: Instant, failure: Failure, adapter: &mut impl Adapter) {
        let rc = self.service == ServiceType::Rc;
        let to = if rc { QpState::Error } else { QpState::SqError };
        let ago = |at: Option<Instant>| at.map(|at| now.since(at));
        let heard = Heard { answer: ago(self.answered), request: ago(self.asked) };
        let cause = self.requester.describe(failure, heard, &self.attributes, adapter);
        if let Some(cause) = cause {
            self.remember(now, to, cause);
        }
        if rc {
            self.enter_error(Some(failure), adapter);
        } else {
            self.state = to;
            self.history.state(to);
            self.requester.fail(Some(failure), &self.attributes, adapter);
        }
    }

    /// The port is gone: nobody may wait for what cannot come. One in state Reset stays there:
    /// nothing is posted on it.
    pub fn port_gone(&mut self, adapter: &mut impl Adapter) {
        if self.state != QpState::Reset {
            self.remember(self.history.last(), QpState::Error, Cause::PortGone);
            self.enter_error(None, adapter);
        }
    }

    /// A completion of this queue pair's found no room: nobody may go on as if nothing were
    /// missing.
    pub fn completion_lost(&mut self, adapter: &mut impl Adapter) {
        if matches!(self.state, QpState::Reset | QpState::Error) {
            return;
        }
        let at = self.history.last();
        self.remember(at, QpState::Error, Cause::CompletionLost);
        self.enter_error(None, adapter);
        adapter.event(QpEvent::Fatal);
    }

    /// Takes in a send request: `ibv_post_send`. In the error states it is flushed at once.
    ///
    /// # Errors
    /// The request is refused; nothing was queued.
    //= V04, BC-091, 05-5.7
    pub fn post_send(
        &mut self,
        request: &SendRequest<'_>,
        adapter: &mut impl Adapter,
    ) -> Result<(), PostError> {
        self.check_kind(request)?;
        let signaled = request.signaled || self.signal_all;
        self.requester.queue.push(request, signaled)?;
        if matches!(self.state, QpState::Error | QpState::SqError) {
            self.requester.fail(None, &self.attributes, adapter);
        }
        Ok(())
    }

    /// Whether it would take a send request behind `ahead` more that are to be posted before.
    ///
    /// # Errors
    /// As [`QueuePair::post_send`].
    pub fn check_send(&self, request: &SendRequest<'_>, ahead: usize) -> Result<(), PostError> {
        self.check_kind(request)?;
        // What is flushed at once takes no room.
        let flushes = matches!(self.state, QpState::Error | QpState::SqError);
        self.requester.queue.check(request, if flushes { 0 } else { ahead }).map(|_| ())
    }

    /// Whether a request is of a kind that it takes now.
    fn check_kind(&self, request: &SendRequest<'_>) -> Result<(), PostError> {
        if self.state.takes_sends() {
            request.check(self.service)
        } else {
            Err(PostError::WrongState)
        }
    }

    /// Takes in a packet that is meant for this queue pair, comes from its peer and has the right
    /// keys. `grh` is what a datagram's buffer begins with.
    //= R33, BC-033, 05-5.4
    pub fn handle_packet(
        &mut self,
        now: Instant,
        packet: &Packet<'_>,
        grh: &Grh,
        adapter: &mut impl Adapter,
    ) {
        if packet.opcode.operation.is_response() {
            if !self.state.sends() {
                adapter.count(Count::WrongState);
                return;
            }
            self.answered = Some(now);
            let standing = (self.requester.unacknowledged, self.requester.send_next);
            let answered = self.requester.handle_response(now, &self.attributes, packet, adapter);
            if let Err(failure) = answered {
                self.send_failed(now, failure, adapter);
            }
            self.learn(now, standing);
            self.report_local_failure(now, adapter);
            self.report_drained(adapter);
            return;
        }
        if !self.state.receives() || packet.opcode.operation == Operation::Notify {
            adapter.count(Count::WrongState);
            return;
        }
        self.asked = Some(now);
        if self.state == QpState::Rtr && !self.established && self.service != ServiceType::Ud {
            self.established = true;
            adapter.event(QpEvent::CommunicationEstablished);
        }
        match &mut self.responder {
            Responder::Rc(responder) => {
                let done = responder.handle_request(now, &self.attributes, packet, adapter);
                if let Err(broken) = done {
                    let request = responder.describe(&packet.headers.bth, Some(packet));
                    self.broken(now, broken, request, adapter);
                }
            }
            Responder::Uc(responder) => {
                responder.handle_request(&self.attributes, packet, adapter);
                if let Some(Misplaced { receive, why }) = responder.take_misplaced() {
                    self.remember(now, QpState::Error, Cause::Receive(receive, why));
                    self.enter_error(None, adapter);
                    adapter.event(QpEvent::Fatal);
                }
            }
            Responder::Ud => {
                let done = ud::handle_datagram(&self.attributes, packet, grh, adapter);
                if let Err(Misplaced { receive, why }) = done {
                    self.remember(now, self.state, Cause::Receive(receive, why));
                }
            }
        }
    }

    /// Takes in a packet of this queue pair's service whose opcode is reserved.
    pub fn handle_reserved(&mut self, now: Instant, bth: &Bth, adapter: &mut impl Adapter) {
        if !self.state.receives() {
            adapter.count(Count::WrongState);
        } else if let Responder::Rc(responder) = &mut self.responder
            && let Err(broken) = responder.handle_reserved(bth)
        {
            let request = responder.describe(bth, None);
            self.broken(now, broken, request, adapter);
        }
    }

    /// The peer broke a rule: it is told, and the connection ends.
    fn broken(
        &mut self,
        now: Instant,
        broken: Broken,
        request: PeerRequest,
        adapter: &mut impl Adapter,
    ) {
        let Responder::Rc(responder) = &mut self.responder else { return };
        let nak = responder.break_off(&self.attributes, broken, adapter);
        if self.state == QpState::Error {
            // It ended before. The peer, which does not know yet, gets this NAK and no other.
            if let Some(Cause::Peer(.., answer)) = self.ending.as_mut().map(|it| &mut it.cause) {
                *answer = None;
            }
            return;
        }
        self.remember(now, QpState::Error, Cause::Peer(request, broken.rule, Some(nak)));
        self.enter_error(None, adapter);
        adapter.event(broken.rule.event());
    }

    /// Whether an answer to the peer is owed, and may be sent.
    pub fn has_response(&self) -> bool {
        match &self.responder {
            Responder::Rc(responder) if self.answers_held().is_some() => {
                responder.has_work() && !responder.next_is_data(&self.attributes)
            }
            Responder::Rc(responder) => responder.has_work(),
            Responder::Uc(_) | Responder::Ud => false,
        }
    }

    /// Whether a request may be ready to be sent.
    pub fn has_request(&self) -> bool {
        self.state.sends() && self.requester.has_work() && self.held().is_none()
    }

    /// Until when its rate holds data back.
    fn held(&self) -> Option<Instant> {
        self.paced.as_ref()?.held()
    }

    /// Until when it holds back data that a peer READs.
    fn answers_held(&self) -> Option<Instant> {
        self.paced.as_ref()?.answers_held()
    }

    /// Writes the next answer that is owed to the peer. Answers owed when the queue pair went to
    /// error still go out.
    pub fn poll_response(
        &mut self,
        now: Instant,
        mut outlet: Outlet<'_>,
        adapter: &mut impl Adapter,
    ) -> Option<Emitted> {
        let emitted = self.write_response(now, outlet.reborrow(), adapter);
        if emitted.is_some() {
            self.history.sent(now, outlet.room.first);
        }
        emitted
    }

    fn write_response(
        &mut self,
        now: Instant,
        mut outlet: Outlet<'_>,
        adapter: &mut impl Adapter,
    ) -> Option<Emitted> {
        if !self.state.receives() && self.state != QpState::Error {
            return None;
        }
        loop {
            let Responder::Rc(responder) = &mut self.responder else { return None };
            let mut paced = self.paced.as_deref_mut().filter(|paced| paced.paces_answers());
            if let Some(paced) = &mut paced {
                let data = responder.has_work() && responder.next_is_data(&self.attributes);
                if data && !paced.may_answer(now) {
                    return None;
                }
            }
            match responder.poll(&self.attributes, outlet.reborrow(), adapter) {
                Ok(emitted) => {
                    if let Some((paced, emitted)) = paced.zip(emitted)
                        && emitted.payload > 0
                    {
                        paced.answered(emitted.len + ICRC_LEN);
                    }
                    return emitted;
                }
                // What the peer gets instead is the NAK; nothing can go wrong with that.
                Err(broken) => {
                    let request = responder.describe_read(broken.psn);
                    self.broken(now, broken, request, adapter);
                }
            }
        }
    }

    /// Writes the next request packet, if one may be sent now.
    //= Q20
    pub fn poll_request(
        &mut self,
        now: Instant,
        mut outlet: Outlet<'_>,
        adapter: &mut impl Adapter,
    ) -> Option<Emitted> {
        if !self.state.sends() {
            return None;
        }
        if self.paced.as_mut().is_some_and(|paced| !paced.may_send(now)) {
            return None;
        }
        let draining = self.state == QpState::SqDrain;
        let newest = self.requester.send_end;
        let (requester, attributes, lent) =
            (&mut self.requester, &self.attributes, outlet.reborrow());
        let emitted = match self.service {
            ServiceType::Rc => requester.poll(now, attributes, draining, lent, adapter),
            ServiceType::Uc => requester.poll_unreliable(attributes, draining, lent, adapter),
            ServiceType::Ud => requester.poll_datagram(attributes, draining, lent, adapter),
        };
        if let Some(emitted) = &emitted {
            self.history.sent(now, outlet.room.first);
            if let Some(paced) = &mut self.paced {
                let Requester { send_end, rc, .. } = &self.requester;
                if *send_end != newest && rc.asked_alone() {
                    paced.asked(now, send_end.previous());
                }
                if paced.sent(emitted.len + ICRC_LEN) {
                    // Who is slow because it was told to be is not waiting for an answer.
                    self.requester.postpone(now, &self.attributes);
                }
            }
        }
        self.report_local_failure(now, adapter);
        self.report_drained(adapter);
        emitted
    }

    /// A request that failed on our side ends the queue once everything before it is done.
    //= BC-103
    fn report_local_failure(&mut self, now: Instant, adapter: &mut impl Adapter) {
        if !self.state.sends() {
            return;
        }
        if let Some(failure) = self.requester.local_failure() {
            self.send_failed(now, failure, adapter);
        }
    }

    //= Q20, 05-5.4
    fn report_drained(&mut self, adapter: &mut impl Adapter) {
        if self.state == QpState::SqDrain && self.notify_drained && self.requester.is_drained() {
            self.notify_drained = false;
            adapter.event(QpEvent::SqDrained);
        }
    }

    /// When [`QueuePair::handle_timeout`] is to be called, if ever.
    pub fn deadline(&self) -> Option<Instant> {
        let Responder::Rc(responder) = &self.responder else { return self.held() };
        let answer = [responder.deadline(), self.answers_held()].into_iter().flatten().min();
        // While data waits for its turn the ACK timer does not run.
        let request = match self.held() {
            None => self.requester.deadline().filter(|_| self.state.sends()),
            held => held,
        };
        match (answer, request) {
            (Some(answer), Some(request)) => Some(answer.min(request)),
            (one, other) => one.or(other),
        }
    }

    /// Time has passed. A spurious call does nothing.
    pub fn handle_timeout(&mut self, now: Instant, adapter: &mut impl Adapter) {
        if let Some(paced) = &mut self.paced {
            let held = paced.held().is_some();
            paced.handle_timeout(now);
            if held {
                self.requester.postpone(now, &self.attributes);
            }
        }
        let held = self.held().is_some();
        let Responder::Rc(responder) = &mut self.responder else { return };
        responder.handle_timeout(now);
        if !self.state.sends() || held {
            return;
        }
        let (psn, timeouts) = (self.requester.unacknowledged, self.requester.timeouts());
        let done = self.requester.handle_timeout(now, &self.attributes, adapter);
        if self.requester.timeouts() != timeouts {
            self.history.timeout(now, psn);
            if let Some(paced) = &mut self.paced {
                paced.timed_out(now);
                self.obey();
            }
        }
        if let Err(failure) = done {
            self.send_failed(now, failure, adapter);
        }
    }
}

/// Bytes of the longest packet without headers of its operation, from BTH to ICRC, as they are
/// paced.
fn longest_packet(attributes: &Attributes) -> f64 {
    f64::from(attributes.path_mtu.bytes()) + (Bth::LEN + ICRC_LEN) as f64
}
