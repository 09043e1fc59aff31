//! TIMELY: the rate follows how the round trip time changes.
//!
//! Mittal et al., "TIMELY: RTT-based Congestion Control for the Datacenter" (SIGCOMM 2015), section
//! 4.3 and algorithm 1. Each completion of a segment brings a round trip time. Below
//! [`Timely::t_low`] the rate grows; above [`Timely::t_high`] it is cut by how far above. Between
//! both its gradient decides: queues that shrink let it grow, the faster the longer they do
//! (hyperactive increase); queues that grow cut it by how fast they do.
//!
//! A gradient of zero says nothing of how long a queue is, nor who has which share of it: there is
//! no point to which rates are drawn, and two flows may stay unequal (Zhu et al., "ECN or Delay",
//! CoNEXT 2016, who patch it so: between both thresholds the cut is by the distance from a
//! reference round trip time, weighted by the gradient). This is the original.
//!
//! The paper subtracts the time that a segment takes to leave the adapter. Here segments leave
//! packet by packet at the rate, and the time is measured from the packet that asks for the
//! acknowledgement: what remains is the time of one packet.

use core::time::Duration;

use super::Rate;
use super::parameter::{MOST_MBPS, MOST_US, Parameter, row};

/// Parameters, by the paper's names in small letters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timely {
    /// The weight of the newest difference in the average of differences (EWMA). 0 ..= 1.
    pub alpha: f64,
    /// How strong cuts are. 0 ..= 1.
    pub beta: f64,
    /// The additive increment.
    pub delta: Rate,
    /// Shorter round trips always let the rate grow.
    pub t_low: Duration,
    /// Longer ones always cut it.
    pub t_high: Duration,
    /// What differences are divided by: about the round trip of an empty network.
    pub min_rtt: Duration,
    /// By how many increments hyperactive increase grows: N.
    pub n: u32,
    /// After so many completions in a row between both with a gradient not above zero it begins.
    pub hai_thresh: u32,
    /// So many bytes make a segment: a round trip time is measured for each.
    pub segment: u64,
    /// The rate is never less.
    pub min_rate: Rate,
}

impl Timely {
    /// As the paper has them: for 10 Gb/s, where 50 µs are 62 kB. It has segments of 16 to 64 kB;
    /// with the longest a gradient is that of so long a time that a cut leaves nothing. The least
    /// rate is ours, and that flows begin at the rate of the line, not at a share of it.
    pub const PAPER: Self = Self {
        alpha: 0.875,
        beta: 0.8,
        delta: Rate::from_mbps(10),
        t_low: Duration::from_micros(50),
        t_high: Duration::from_micros(500),
        min_rtt: Duration::from_micros(20),
        n: 5,
        hai_thresh: 5,
        segment: 16_000,
        min_rate: Rate::from_mbps(100),
    };

    pub(super) const PARAMETERS: &[Parameter<Self>] = &[
        row!(alpha, Real, 0.0, 1.0),
        row!(beta, Real, 0.0, 1.0),
        row!(delta, Rate, 0.0, MOST_MBPS),
        row!(t_low, Time, 0.0, MOST_US),
        row!(t_high, Time, 0.0, MOST_US),
        row!(min_rtt, Time, 0.1, MOST_US),
        row!(n, Count, 1.0, 1000.0),
        row!(hai_thresh, Count, 1.0, 1000.0),
        row!(segment, Bytes, 1.0, 1e9),
        row!(min_rate, Rate, 0.1, MOST_MBPS),
    ];
}

/// The rate computation engine.
#[derive(Clone, Debug)]
pub struct RateEngine {
    timely: Timely,
    line_rate: Rate,
    rate: Rate,
    /// Of the last completion; `None` before the first.
    prev_rtt: Option<f64>,
    /// The average of differences, in seconds.
    rtt_diff: f64,
    /// Completions in a row whose gradient let the rate grow.
    grown: u32,
}

impl RateEngine {
    /// A sender at the rate of the line.
    pub fn new(timely: Timely, line_rate: Rate) -> Self {
        Self { timely, line_rate, rate: line_rate, prev_rtt: None, rtt_diff: 0.0, grown: 0 }
    }

    /// Other parameters from now on, up to `line_rate`; a rate that was the line's goes on to be
    /// that.
    pub fn set(&mut self, timely: Timely, line_rate: Rate) {
        let rate = if self.rate >= self.line_rate { line_rate } else { self.rate };
        (self.timely, self.line_rate) = (timely, line_rate);
        self.bound(rate);
    }

    /// Its parameters.
    pub const fn timely(&self) -> &Timely {
        &self.timely
    }

    /// How fast it may send now.
    pub const fn rate(&self) -> Rate {
        self.rate
    }

    /// The average of differences, over the least round trip time.
    pub fn gradient(&self) -> f64 {
        self.rtt_diff / self.timely.min_rtt.as_secs_f64()
    }

    /// A segment was acknowledged so long after it was sent.
    pub fn completed(&mut self, rtt: Duration) {
        let Timely { alpha, beta, delta, t_low, t_high, .. } = self.timely;
        let new_rtt = rtt.as_secs_f64();
        let new_diff = new_rtt - self.prev_rtt.replace(new_rtt).unwrap_or(new_rtt);
        self.rtt_diff = (1.0 - alpha) * self.rtt_diff + alpha * new_diff;
        if rtt < t_low {
            self.grown = 0;
            return self.bound(self.rate.plus(delta));
        }
        if rtt > t_high {
            self.grown = 0;
            let over = 1.0 - t_high.as_secs_f64() / new_rtt;
            return self.bound(self.rate.times(1.0 - beta * over));
        }
        let gradient = self.gradient();
        if gradient <= 0.0 {
            self.grown = self.grown.saturating_add(1);
            let hyperactive = self.grown >= self.timely.hai_thresh;
            let steps = if hyperactive { self.timely.n } else { 1 };
            self.bound(self.rate.plus(delta.times(steps.into())));
        } else {
            self.grown = 0;
            self.bound(self.rate.times((1.0 - beta * gradient).max(0.0)));
        }
    }

    fn bound(&mut self, rate: Rate) {
        self.rate = rate.max(self.timely.min_rate).min(self.line_rate);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: Rate = Rate::from_mbps(10_000);

    /// An engine at 5 Gb/s, and what these round trips, in µs, make of it: Mb/s.
    fn after(rtts: &[u64]) -> f64 {
        let mut engine = RateEngine::new(Timely::PAPER, LINE);
        engine.rate = Rate::from_mbps(5_000);
        rtts.iter().for_each(|rtt| engine.completed(Duration::from_micros(*rtt)));
        engine.rate().bits_per_second() / 1e6
    }

    #[test]
    fn short_round_trips_raise_the_rate_whatever_the_gradient_says() {
        assert_eq!(after(&[20]), 5_010.0);
        assert_eq!(after(&[20, 49]), 5_020.0);
    }

    /// R ← R·(1 − β·(1 − T_high/rtt)): at 1000 µs 0.6 of it remain.
    #[test]
    fn long_round_trips_cut_by_how_long_they_are() {
        assert!((after(&[1000]) - 3_000.0).abs() < 1e-6);
        assert!((after(&[1000, 600]) - 3_000.0 * (1.0 - 0.8 / 6.0)).abs() < 1e-6);
    }

    /// From 100 to 110 µs the average is 8.75 µs, over 20 µs a gradient of 0.4375.
    #[test]
    fn between_both_a_rising_round_trip_cuts_by_its_gradient() {
        assert!((after(&[100, 110]) - 5_010.0 * (1.0 - 0.8 * 0.4375)).abs() < 1e-6);
        // The older difference fades: 0.125 × 8.75.
        let second = 0.125 * 8.75 / 20.0;
        let expected = 5_010.0 * (1.0 - 0.8 * 0.4375) * (1.0 - 0.8 * second);
        assert!((after(&[100, 110, 110]) - expected).abs() < 1e-6);
    }

    #[test]
    fn the_fifth_time_in_a_row_the_increase_is_hyperactive() {
        assert_eq!(after(&[100; 4]), 5_040.0);
        assert_eq!(after(&[100; 5]), 5_090.0);
        assert_eq!(after(&[100; 6]), 5_140.0);
        // A cut begins anew.
        let mut rtts = [100; 7];
        rtts[5] = 501;
        let cut = 5_090.0 * (1.0 - 0.8 / 501.0);
        assert!((after(&rtts) - cut - 10.0).abs() < 1e-6);
        // So does a short round trip, whose gradient is not looked at.
        assert_eq!(after(&[100, 100, 100, 100, 49, 49, 49, 49, 49]), 5_090.0);
        let mut engine = RateEngine::new(Timely { alpha: 1.0, ..Timely::PAPER }, LINE);
        engine.rate = Rate::from_mbps(5_000);
        for micros in [100, 100, 100, 100, 49, 60, 60] {
            engine.completed(Duration::from_micros(micros));
        }
        let cut = 5_050.0 * (1.0 - 0.8 * 11.0 / 20.0);
        assert!((engine.rate().bits_per_second() / 1e6 - cut - 10.0).abs() < 1e-6);
        let mut engine = RateEngine::new(Timely::PAPER, LINE);
        engine.rate = Rate::from_mbps(5_000);
        for micros in [100, 90, 80, 70, 49, 50] {
            engine.completed(Duration::from_micros(micros));
        }
        assert_eq!(engine.rate(), Rate::from_mbps(5_060), "one falls after one that is short");
    }

    #[test]
    fn whatever_comes_the_rate_stays_in_its_bounds() {
        assert_eq!(after(&[50, 499]), 100.0, "a gradient of 19 leaves nothing");
        let mut engine = RateEngine::new(Timely::PAPER, LINE);
        for micros in [0, 1, 10, 40, 0] {
            engine.completed(Duration::from_micros(micros));
        }
        assert_eq!(engine.rate(), LINE);
        engine.completed(Duration::MAX);
        assert!(engine.rate() >= Timely::PAPER.min_rate);
        engine.set(Timely { min_rate: Rate::from_mbps(9_000), ..Timely::PAPER }, LINE);
        assert_eq!(engine.rate(), Rate::from_mbps(9_000));
    }
}
