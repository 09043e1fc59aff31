//! HPCC: a window from what switches say of their links.
//!
//! Li et al., "HPCC: High Precision Congestion Control" (SIGCOMM 2019), algorithm 1. Each packet
//! brings from each switch on its way how much the link behind it has sent and how much waits for
//! it (in-band network telemetry, INT); the receiver gives it back. From two of these the sender
//! knows how many bytes are in flight on each link, over what the link can hold: U. The window is
//! what brings the busiest link to [`Hpcc::eta`] at once, from a reference window that changes once
//! in a round trip, so that no acknowledgement is answered twice.
//!
//! RoCEv2 has no place for telemetry: only simulated switches give it.

use core::time::Duration;

use roxe_wire::Psn;

use super::Rate;
use super::parameter::{MOST_MBPS, MOST_US, Parameter, row};

/// What a switch says of the link that a packet is about to take.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Hop {
    /// When the packet left, in picoseconds: `ts`.
    pub at_ps: u64,
    /// Bytes that the link has sent by then: `txBytes`.
    pub sent: u64,
    /// Bytes that wait for it: `qlen`.
    pub waiting: u64,
    /// Its rate: `B`.
    pub rate: Rate,
}

/// A packet has telemetry of so many hops at the most; later ones are not told.
pub const MAX_HOPS: usize = 8;

/// Parameters, by the paper's names in small letters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hpcc {
    /// How busy links should be: η. 0 ..= 1.
    pub eta: f64,
    /// So many round trips in a row the window grows by `w_ai` alone: maxStage.
    pub max_stage: u32,
    /// The round trip of the empty network, the longest of all pairs: T.
    pub t: Duration,
    /// Flows that are to share a link without queue: W_AI is what η leaves of W_init, over this.
    pub n: u32,
    /// The rate is never less.
    pub min_rate: Rate,
}

impl Hpcc {
    /// As the paper has them; `t` is of its simulated network, the least rate is ours.
    pub const PAPER: Self = Self {
        eta: 0.95,
        max_stage: 5,
        t: Duration::from_micros(13),
        n: 100,
        min_rate: Rate::from_mbps(10),
    };

    pub(super) const PARAMETERS: &[Parameter<Self>] = &[
        row!(eta, Real, 0.1, 1.0),
        row!(max_stage, Count, 0.0, 1000.0),
        row!(t, Time, 0.1, MOST_US),
        row!(n, Count, 1.0, 1e6),
        row!(min_rate, Rate, 0.1, MOST_MBPS),
    ];

    /// T, in seconds.
    const fn rtt(&self) -> f64 {
        self.t.as_secs_f64()
    }

    /// What a rate puts in flight in T, in bytes.
    fn window(&self, rate: Rate) -> f64 {
        rate.bytes_in(self.t)
    }

    /// W_AI in bytes.
    fn w_ai(&self, line_rate: Rate) -> f64 {
        self.window(line_rate) * (1.0 - self.eta) / f64::from(self.n)
    }
}

/// A sender.
#[derive(Clone, Debug)]
pub struct Sender {
    hpcc: Hpcc,
    line_rate: Rate,
    /// W, in bytes.
    window: f64,
    /// W^c.
    reference: f64,
    /// U.
    utilisation: f64,
    stage: u32,
    /// L: what each link said last.
    links: [Hop; MAX_HOPS],
    known: usize,
    /// The reference changes when this packet is acknowledged.
    update: Option<Psn>,
}

impl Sender {
    /// A sender with a window that fills the line: W_init.
    pub fn new(hpcc: Hpcc, line_rate: Rate) -> Self {
        let window = hpcc.window(line_rate);
        Self {
            hpcc,
            line_rate,
            window,
            reference: window,
            utilisation: 1.0,
            stage: 0,
            links: [Hop::default(); MAX_HOPS],
            known: 0,
            update: None,
        }
    }

    /// Other parameters from now on, up to `line_rate`; the rate stays, as far as they allow.
    pub fn set(&mut self, hpcc: Hpcc, line_rate: Rate) {
        let rate = self.rate();
        (self.hpcc, self.line_rate) = (hpcc, line_rate);
        self.window = self.bounded(hpcc.window(rate));
        self.reference = self.window;
    }

    /// Its parameters.
    pub const fn hpcc(&self) -> &Hpcc {
        &self.hpcc
    }

    /// Bytes that may be unacknowledged.
    pub const fn window(&self) -> f64 {
        self.window
    }

    /// How busy the busiest link is, by its estimate; 1 fills it without queue.
    pub const fn utilisation(&self) -> f64 {
        self.utilisation
    }

    /// How fast packets follow each other: W/T.
    pub fn rate(&self) -> Rate {
        let bits = self.window * 8.0 / self.hpcc.rtt();
        Rate::from_bits_per_second(bits).min(self.line_rate)
    }

    /// An acknowledgement brought telemetry of a packet, hop by hop from the sender on. All before
    /// `acknowledged` have arrived, `next` is the packet that will be sent next.
    pub fn acknowledged(&mut self, acknowledged: Psn, next: Psn, hops: &[Hop]) {
        let hops = &hops[..hops.len().min(MAX_HOPS)];
        if self.known != hops.len() {
            // Another way, or the first time: nothing to compare with.
            self.remember(hops);
            return;
        }
        if !self.measure(hops) {
            return;
        }
        let updates = self.update.is_none_or(|update| acknowledged.since(update) > 0);
        self.compute(updates);
        if updates {
            self.update = Some(next);
        }
        self.remember(hops);
    }

    fn remember(&mut self, hops: &[Hop]) {
        self.known = hops.len();
        self.links[..hops.len()].copy_from_slice(hops);
    }

    /// Estimates U anew. False when this says nothing new.
    fn measure(&mut self, hops: &[Hop]) -> bool {
        let rtt = self.hpcc.rtt();
        let mut busiest: Option<(f64, f64)> = None;
        for (hop, last) in hops.iter().zip(&self.links) {
            if hop.at_ps <= last.at_ps || hop.rate.is_zero() {
                return false; // It came before, or out of order.
            }
            let passed = (hop.at_ps - last.at_ps) as f64 * 1e-12;
            let capacity = hop.rate.bits_per_second() / 8.0;
            let sent = hop.sent.saturating_sub(last.sent) as f64 / passed;
            let waiting = hop.waiting.min(last.waiting) as f64;
            let busy = waiting / (capacity * rtt) + sent / capacity;
            if busiest.is_none_or(|(most, _)| busy > most) {
                busiest = Some((busy, passed));
            }
        }
        let Some((busy, passed)) = busiest else { return false };
        let weight = passed.min(rtt) / rtt;
        self.utilisation = (1.0 - weight) * self.utilisation + weight * busy;
        true
    }

    /// W from U and the reference, which it becomes if that changes.
    fn compute(&mut self, updates: bool) {
        let Hpcc { eta, max_stage, .. } = self.hpcc;
        let w_ai = self.hpcc.w_ai(self.line_rate);
        let reduces = self.utilisation >= eta || self.stage >= max_stage;
        let base = if reduces { self.reference * eta / self.utilisation } else { self.reference };
        self.window = self.bounded(base + w_ai);
        if updates {
            self.stage = if reduces { 0 } else { self.stage + 1 };
            self.reference = self.window;
        }
    }

    fn bounded(&self, window: f64) -> f64 {
        let [least, most] = [self.hpcc.min_rate, self.line_rate].map(|rate| self.hpcc.window(rate));
        // What is no number comes of a link that did nothing: then all may go.
        if window.is_nan() { most } else { window.max(least).min(most) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 10 Gb/s and 10 µs: W_init is 12,500 bytes, W_AI 6.25.
    const LINE: Rate = Rate::from_mbps(10_000);
    const HPCC: Hpcc = Hpcc { t: Duration::from_micros(10), ..Hpcc::PAPER };

    fn hop(micros: u64, sent: u64, waiting: u64) -> Hop {
        Hop { at_ps: micros * 1_000_000, sent, waiting, rate: LINE }
    }

    fn close(one: f64, other: f64) -> bool {
        (one - other).abs() < 1e-6
    }

    fn psn(psn: u32) -> Psn {
        Psn::new(psn)
    }

    /// A full link, and a queue as long as what is in flight: U is 2, and the window halves.
    #[test]
    fn a_link_is_as_busy_as_its_rate_and_its_queue_say() {
        let mut sender = Sender::new(HPCC, LINE);
        assert!(close(sender.window(), 12_500.0) && sender.rate() == LINE);
        sender.acknowledged(psn(1), psn(5), &[hop(0, 0, 12_500)]);
        assert!(close(sender.window(), 12_500.0), "nothing to compare with");
        sender.acknowledged(psn(2), psn(5), &[hop(10, 12_500, 20_000)]);
        assert!(close(sender.utilisation(), 2.0), "of both queues the shorter");
        assert!(close(sender.window(), 12_500.0 * 0.95 / 2.0 + 6.25));
    }

    #[test]
    fn the_estimate_is_weighed_by_the_time_it_is_of_and_the_busiest_link_counts() {
        let mut sender = Sender::new(HPCC, LINE);
        let start = [hop(0, 0, 0), hop(0, 0, 0)];
        sender.acknowledged(psn(1), psn(5), &start);
        // In 2 of 10 µs one link is idle, the other at half of its rate.
        sender.acknowledged(psn(2), psn(5), &[hop(2, 0, 0), hop(2, 1_250, 0)]);
        assert!(close(sender.utilisation(), 0.8 + 0.2 * 0.5));
        // The same again says nothing.
        let before = sender.window();
        sender.acknowledged(psn(3), psn(5), &[hop(2, 0, 0), hop(2, 1_250, 0)]);
        assert_eq!(sender.window(), before);
    }

    /// Acknowledgements of one round trip all start from the same reference.
    #[test]
    fn the_reference_changes_once_in_a_round_trip() {
        let mut sender = Sender::new(HPCC, LINE);
        sender.acknowledged(psn(1), psn(10), &[hop(0, 0, 12_500)]);
        let full = |micros: u64| hop(micros, micros * 1_250, 12_500);
        sender.acknowledged(psn(2), psn(10), &[full(10)]);
        let once = sender.window();
        for (acknowledged, micros) in [(3, 20), (10, 30)] {
            sender.acknowledged(psn(acknowledged), psn(20), &[full(micros)]);
            let again = once * 0.95 / 2.0 + 6.25;
            assert!(close(sender.window(), again), "{}", sender.window());
        }
        sender.acknowledged(psn(11), psn(20), &[full(40)]);
        let reference = sender.reference;
        assert!(close(sender.window(), reference), "it became the reference");
        sender.acknowledged(psn(20), psn(30), &[full(50)]);
        assert_eq!(sender.reference, reference);
    }

    /// Five round trips of additive increase, then by the estimate.
    #[test]
    fn after_max_stage_an_idle_link_is_filled_at_once() {
        let mut sender = Sender::new(HPCC, LINE);
        (sender.window, sender.reference) = (1_000.0, 1_000.0);
        sender.acknowledged(psn(0), psn(1), &[hop(0, 0, 0)]);
        let mut windows = Vec::new();
        for trip in 1..=6 {
            // A tenth of the link.
            let hop = hop(u64::from(trip) * 10, u64::from(trip) * 1_250, 0);
            sender.acknowledged(psn(2 * trip), psn(2 * trip + 1), &[hop]);
            windows.push(sender.window());
        }
        let additive: Vec<f64> = (1..=5).map(|trip| 1_000.0 + 6.25 * f64::from(trip)).collect();
        assert!(windows.iter().zip(&additive).all(|(one, other)| close(*one, *other)));
        assert!((windows[5] - (1_031.25 * 9.5 + 6.25)).abs() < 1e-3, "{}", windows[5]);
        assert_eq!(sender.stage, 0);
    }

    #[test]
    fn telemetry_that_makes_no_sense_breaks_nothing() {
        let mut sender = Sender::new(HPCC, LINE);
        let idle = Hop { rate: Rate::ZERO, ..hop(5, 0, 0) };
        for hops in [&[idle; 12][..], &[idle; 12], &[], &[], &[hop(9, 9, 9)], &[hop(1, 0, 0)]] {
            sender.acknowledged(psn(1), psn(2), hops);
        }
        assert!(close(sender.window(), 12_500.0));
        let mut sender = Sender::new(HPCC, LINE);
        for step in 0..1000 {
            sender.acknowledged(psn(step), psn(step), &[hop(step.into(), u64::MAX, u64::MAX)]);
        }
        assert!((sender.rate().bits_per_second() - 10e6).abs() < 1.0, "{}", sender.rate());
        let mut sender = Sender::new(HPCC, LINE);
        for step in 0..1000 {
            sender.acknowledged(psn(step), psn(step), &[hop(1_000_000 * u64::from(step), 0, 0)]);
        }
        assert_eq!(sender.rate(), LINE);
    }
}
