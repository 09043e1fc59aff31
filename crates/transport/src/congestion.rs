//! Congestion control: how fast a queue pair may send, and who tells whom of a full queue.
//!
//! Annex A17 §A17.9 of IBA volume 1 has the notification packet; what adapters do with it is
//! DCQCN (Zhu et al., SIGCOMM 2015). Switches mark packets (CE, RFC 3168) when their queue is long;
//! the receiver, the [notification point](notification_point), tells the sender with a CNP; the
//! sender, the [reaction point](reaction_point), cuts its rate and raises it again while no CNP
//! comes. The [pacer](Pacer) holds packets back so that the rate is kept.
//!
//! Nothing here knows packets or clocks: it is told the time, bytes that were sent, and
//! notifications.

pub mod notification_point;
mod pacer;
mod rate;
pub mod reaction_point;

use core::convert::Infallible;

use roxe_wire::{CnpReserved, Headers, Instant, PKey, Qpn, cnp_bth};

use crate::emit::{Emitted, Outlet, emit};

pub use notification_point::NotificationPoint;
pub use pacer::{Burst, Pacer};
pub use rate::Rate;
pub use reaction_point::{Dcqcn, ReactionPoint};

/// What controls how fast a queue pair sends.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum CongestionControl {
    /// Nothing: notifications are ignored, and packets do not say that they may be marked.
    #[default]
    None,
    /// DCQCN, with these parameters.
    Dcqcn(Dcqcn),
}

/// How fast one queue pair may send now.
#[derive(Clone, Debug)]
pub(crate) struct Paced {
    reaction_point: ReactionPoint,
    pacer: Pacer,
    /// A packet waits until then.
    held: Option<Instant>,
}

impl Paced {
    /// A queue pair that may send at `line_rate` until it is told to slow down.
    pub(crate) fn new(dcqcn: Dcqcn, line_rate: Rate, burst: Burst) -> Self {
        let reaction_point = ReactionPoint::new(dcqcn, line_rate);
        Self { reaction_point, pacer: Pacer::new(burst), held: None }
    }

    pub(crate) const fn reaction_point(&self) -> &ReactionPoint {
        &self.reaction_point
    }

    /// Other parameters from now on; rates stay what they are, as far as these allow.
    pub(crate) fn set(&mut self, dcqcn: Dcqcn) {
        self.reaction_point.set(dcqcn);
    }

    /// A notification came.
    pub(crate) fn notified(&mut self, now: Instant) {
        self.advance(now);
        self.reaction_point.notified(now);
    }

    /// Until when a packet waits, if one does.
    #[inline]
    pub(crate) const fn held(&self) -> Option<Instant> {
        self.held
    }

    /// Time has passed: what waited may ask again.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        self.held = self.held.filter(|until| *until > now);
    }

    /// Whether the next packet may be sent now. If not, [`Paced::held`] says when to ask again.
    #[inline]
    pub(crate) fn may_send(&mut self, now: Instant) -> bool {
        if self.reaction_point.is_limiting() {
            self.held = self.wait(now);
        }
        self.held.is_none()
    }

    fn wait(&mut self, now: Instant) -> Option<Instant> {
        self.advance(now);
        let ready = self.pacer.ready(self.reaction_point.rate())?;
        // The rate may change before, and then it is ready earlier.
        Some(self.reaction_point.next_change().map_or(ready, |change| ready.min(change)))
    }

    /// A packet of so many bytes was sent. Says whether packets have to wait for each other.
    #[inline]
    pub(crate) fn sent(&mut self, bytes: usize) -> bool {
        let limiting = self.reaction_point.is_limiting();
        if limiting {
            self.pacer.sent(bytes);
            self.reaction_point.sent(bytes as u64);
        }
        limiting
    }

    /// Lets time pass: what the rate was meanwhile is what may be sent.
    fn advance(&mut self, now: Instant) {
        while let Some(change) = self.reaction_point.next_change().filter(|change| *change <= now) {
            self.pacer.advance(change, self.reaction_point.rate());
            self.reaction_point.change(change);
        }
        self.pacer.advance(now, self.reaction_point.rate());
    }
}

/// Writes a notification to the queue pair `dest_qp`.
//= BC-017
pub fn write_cnp(outlet: Outlet<'_>, dest_qp: Qpn, p_key: PKey) -> Option<Emitted> {
    let mut headers = Headers {
        bth: cnp_bth(dest_qp, p_key),
        cnp_reserved: Some(CnpReserved::default()),
        ..Headers::default()
    };
    emit(outlet, &mut headers, 0, |_| Ok::<_, Infallible>(()))?.ok()
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;

    /// At every rate from 10 Mb/s to the line's, what is sent in a second is the rate within 2 %.
    #[test]
    fn a_rate_is_kept() {
        for megabits in [10, 100, 1_000, 10_000, 99_000] {
            let rate = Rate::from_mbps(megabits);
            let dcqcn = Dcqcn {
                rp_rate_to_set_on_first_cnp: rate,
                rp_time_reset: Duration::ZERO,
                rp_byte_reset: 0,
                ..Dcqcn::MLX5
            };
            let mut paced = Paced::new(dcqcn, Rate::from_mbps(100_000), Burst::DEFAULT);
            let mut now = Instant::ZERO;
            paced.notified(now);
            while paced.may_send(now) {
                paced.sent(4096 + 66); // what may go at once
            }
            let (kept, end) = (paced.reaction_point.rate(), now + Duration::from_secs(1));
            let mut bits = 0.0;
            while now < end {
                if paced.may_send(now) {
                    paced.sent(4096 + 66);
                    bits += 8.0 * (4096.0 + 66.0);
                } else {
                    let until = paced.held().unwrap();
                    assert!(until > now, "{until} at {now}");
                    now = until;
                }
            }
            let ratio = bits / kept.bits_per_second();
            assert!((0.98..=1.02).contains(&ratio), "{megabits} Mb/s: {ratio}");
        }
    }
}
