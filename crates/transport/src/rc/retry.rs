//! When to try again, from where, and when to give up.
//!
//! IBA vol 1 §9.7.5.2.8 (RNR), §9.7.6.1.3 (the ACK timeout).

use core::time::Duration;

use roxe_wire::{Instant, Psn, RnrTimer};

use crate::adapter::{Adapter, Count};
use crate::conduct::Conduct;
use crate::failure::{Failure, Why};
use crate::requester::Requester;
use crate::work::Attributes;

/// The value of `rnr_retry` that means "for ever".
const RNR_RETRY_FOR_EVER: u8 = 7;

/// Counters and timers of one requester.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Retry {
    /// Tries left for want of an answer.
    tries: u8,
    /// Tries left for want of a receive buffer.
    rnr_tries: u8,
    /// How many tries were used because the ACK timer ran out.
    timeouts: u8,
    /// When the oldest unacknowledged packet has waited long enough.
    ack_deadline: Option<Instant>,
    /// Until when nothing is sent because the receiver is not ready.
    rnr_until: Option<Instant>,
    /// The PSN from which packets are being sent again: a further NAK for it says nothing new.
    going_back_to: Option<Psn>,
    /// The PSN for which the receiver was not ready: what came behind it may be missed too.
    not_ready_at: Option<Psn>,
    /// The ACK timer runs so long at the least.
    least_timeout: Duration,
    /// So many packets are under way until what was timed out is answered.
    window_after_timeout: u32,
}

impl Retry {
    pub(super) const fn new(attributes: &Attributes, conduct: &Conduct) -> Self {
        Self {
            tries: attributes.retry_cnt,
            rnr_tries: attributes.rnr_retry,
            timeouts: 0,
            ack_deadline: None,
            rnr_until: None,
            going_back_to: None,
            not_ready_at: None,
            least_timeout: conduct.least_timeout,
            window_after_timeout: conduct.window_after_timeout,
        }
    }

    /// Whether packets may be sent at all. Not while the receiver is known to be not ready.
    pub(super) const fn may_send(&self) -> bool {
        self.rnr_until.is_none()
    }

    /// A packet was sent: somebody has to answer.
    //= IBA o9-85, BC-027
    pub(super) fn sent(&mut self, now: Instant, attributes: &Attributes) {
        if self.ack_deadline.is_none() {
            self.restart(now, attributes);
        }
    }

    //= BC-121
    fn restart(&mut self, now: Instant, attributes: &Attributes) {
        let wait = attributes.timeout.duration();
        self.ack_deadline = wait.map(|wait| now + wait.max(self.least_timeout));
    }

    /// How many packets may be under way: after a timeout few, until there is an answer.
    pub(super) const fn window(&self) -> u32 {
        if self.timeouts == 0 { u32::MAX } else { self.window_after_timeout }
    }

    /// When something is to be done, if ever.
    //= BC-041
    pub(crate) fn deadline(&self) -> Option<Instant> {
        match (self.rnr_until, self.ack_deadline) {
            (Some(rnr), _) => Some(rnr),
            (None, ack) => ack,
        }
    }
}

impl Requester {
    /// When [`Requester::handle_timeout`] is to be called.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.rc.retry.deadline()
    }

    /// How often the ACK timer ran out since the last progress.
    pub(crate) const fn timeouts(&self) -> u8 {
        self.rc.retry.timeouts
    }

    /// More was sent after a wait: the ACK timer begins anew, if it runs.
    pub(crate) fn postpone(&mut self, now: Instant, attributes: &Attributes) {
        if self.rc.retry.ack_deadline.is_some() {
            self.rc.retry.restart(now, attributes);
        }
    }

    /// A response made progress: all counters begin anew, the timer too if something is awaited.
    //= 04-4.9, IBA o9-85
    pub(super) fn progress(&mut self, now: Instant, attributes: &Attributes) {
        self.restore_tries(attributes);
        self.rc.retry.going_back_to = None;
        self.rc.retry.not_ready_at = None;
        if self.unacknowledged == self.send_end || !self.rc.retry.may_send() {
            // Nothing is awaited; or all that is will be sent again when the wait is over.
            self.rc.retry.ack_deadline = None;
        } else {
            self.rc.retry.restart(now, attributes);
        }
    }

    /// All tries that the attributes grant are left.
    pub(crate) const fn restore_tries(&mut self, attributes: &Attributes) {
        self.rc.retry.tries = attributes.retry_cnt;
        self.rc.retry.rnr_tries = attributes.rnr_retry;
        self.rc.retry.timeouts = 0;
    }

    /// Time has passed.
    //= Q01, Q22, BC-041
    pub(crate) fn handle_timeout(
        &mut self,
        now: Instant,
        attributes: &Attributes,
        adapter: &mut impl Adapter,
    ) -> Result<(), Failure> {
        if let Some(until) = self.rc.retry.rnr_until {
            if until <= now {
                self.rc.retry.rnr_until = None;
            }
            return Ok(());
        }
        if self.rc.retry.ack_deadline.is_none_or(|deadline| now < deadline) {
            return Ok(());
        }
        self.rc.retry.ack_deadline = None;
        if self.unacknowledged == self.send_end {
            return Ok(());
        }
        adapter.count(Count::AckTimeout);
        self.rc.retry.timeouts = self.rc.retry.timeouts.saturating_add(1);
        self.rc.retry.going_back_to = None;
        self.try_again(self.unacknowledged, adapter)?;
        self.rc.retry.restart(now, attributes);
        Ok(())
    }

    /// A NAK, or a response out of turn, shows that packets from `psn` on are missing. Says whether
    /// that is news.
    //= Q15, BC-024, BC-025
    pub(super) fn missing_from(
        &mut self,
        psn: Psn,
        why: Count,
        adapter: &mut impl Adapter,
    ) -> Result<bool, Failure> {
        if self.rc.retry.rnr_until.is_some() || self.rc.retry.going_back_to == Some(psn) {
            return Ok(false);
        }
        self.rc.retry.going_back_to = Some(psn);
        if self.rc.retry.not_ready_at.take() == Some(psn) {
            // Some responders refuse what is behind a packet that they were not ready for: that
            // is no second fault. 06-6.1
            adapter.count(why);
            self.go_back(psn);
            return Ok(true);
        }
        self.try_again(psn, adapter)?;
        adapter.count(why);
        Ok(true)
    }

    /// Uses up one try and sends from `psn` again.
    //= Q01, Q02, BC-024
    fn try_again(&mut self, psn: Psn, adapter: &mut impl Adapter) -> Result<(), Failure> {
        let Some(tries) = self.rc.retry.tries.checked_sub(1) else {
            adapter.count(Count::RetryExceeded);
            let index = self.queue.find(psn).unwrap_or(0);
            return Err(Failure { index, why: Why::NoAnswer(psn) });
        };
        self.rc.retry.tries = tries;
        adapter.count(Count::RetryStarted);
        self.go_back(psn);
        Ok(())
    }

    /// The receiver had no buffer for the packet with `psn`: wait, then send from there again.
    //= Q05, BC-041, BC-042, BC-045
    pub(super) fn receiver_not_ready(
        &mut self,
        now: Instant,
        psn: Psn,
        timer: RnrTimer,
        adapter: &mut impl Adapter,
    ) -> Result<(), Failure> {
        if self.rc.retry.rnr_until.is_some() {
            return Ok(());
        }
        adapter.count(Count::RnrNakReceived);
        if self.rc.retry.rnr_tries != RNR_RETRY_FOR_EVER {
            let Some(tries) = self.rc.retry.rnr_tries.checked_sub(1) else {
                adapter.count(Count::RnrRetryExceeded);
                let index = self.queue.find(psn).unwrap_or(0);
                return Err(Failure { index, why: Why::NotReady(psn, timer) });
            };
            self.rc.retry.rnr_tries = tries;
        }
        adapter.count(Count::RnrRetry);
        self.rc.retry.rnr_until = Some(now + timer.duration());
        self.rc.retry.ack_deadline = None;
        self.rc.retry.not_ready_at = Some(psn);
        self.go_back(psn);
        Ok(())
    }

    /// The next packet to send is the one with `psn`, or for READs the rest from there on.
    pub(super) fn go_back(&mut self, psn: Psn) {
        if psn.since(self.send_next) >= 0 {
            return;
        }
        if let Some(index) = self.queue.find(psn) {
            self.sending = index;
            self.send_next = psn;
        }
    }
}
