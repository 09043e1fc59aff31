//! Swift: a window that keeps the delay at a target.
//!
//! Kumar et al., "Swift: Delay is Simple and Effective for Congestion Control in the Datacenter"
//! (SIGCOMM 2020), algorithm 1 and section 3. Below the target the window grows by [`Swift::ai`]
//! packets in a round trip; above, it is cut by how far above, once in a round trip at the most.
//! The target is longer the more switches are on the way (topology scaling) and the smaller the
//! window is (flow scaling): a small window is one of many flows, whose queue is longer. A window
//! below one packet is a packet now and then: one in rtt/cwnd.
//!
//! The paper takes the delay of the network and that of the hosts apart, by stamps of the adapter,
//! with a window for each. An acknowledgement of RoCEv2 carries no stamps: the delay is the whole
//! round trip, and [`Swift::base_target`] has to cover the hosts.
//!
//! The paper paces windows below one packet only. Here all leave at cwnd/rtt: at one packet it is
//! the same, above it packets stand apart that would else leave together whenever an
//! acknowledgement for several comes.

use core::time::Duration;

use roxe_wire::Instant;

use super::Rate;
use super::parameter::{MOST_US, Parameter, row};

/// Parameters, by the paper's names; ħ is `h`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Swift {
    /// Packets that the window grows by in a round trip.
    pub ai: f64,
    /// How strong cuts are. 0 ..= 1.
    pub beta: f64,
    /// A cut takes so much at the most. 0 ..= 1.
    pub max_mdf: f64,
    /// The target of a large window that crosses no switch.
    pub base_target: Duration,
    /// What each switch adds to it: ħ.
    pub h: Duration,
    /// Switches on the way.
    pub hops: u32,
    /// What flow scaling adds at the most.
    pub fs_range: Duration,
    /// It adds that much to windows of so many packets, and smaller ones.
    pub fs_min_cwnd: f64,
    /// It adds nothing to windows of so many packets, and larger ones.
    pub fs_max_cwnd: f64,
    /// The window is never less, in packets.
    pub min_cwnd: f64,
    /// The window is never more, in packets.
    pub max_cwnd: f64,
    /// So many timeouts in a row make the window the least.
    pub retx_reset_threshold: u32,
}

impl Swift {
    /// For networks of 10 to 100 Gb/s and short cables. The paper gives not all of its values: `ai`
    /// and the bounds of cuts and flow scaling are those of its text and figures, as far as it has
    /// them; times and the largest window are ours.
    pub const DEFAULT: Self = Self {
        ai: 1.0,
        beta: 0.8,
        max_mdf: 0.5,
        base_target: Duration::from_micros(25),
        h: Duration::from_micros(1),
        hops: 1,
        fs_range: Duration::from_micros(100),
        fs_min_cwnd: 0.1,
        fs_max_cwnd: 100.0,
        min_cwnd: 0.001,
        max_cwnd: 4096.0,
        retx_reset_threshold: 5,
    };

    pub(super) const PARAMETERS: &[Parameter<Self>] = &[
        row!(ai, Real, 0.0, 1000.0),
        row!(beta, Real, 0.0, 1.0),
        row!(max_mdf, Real, 0.0, 1.0),
        row!(base_target, Time, 0.1, MOST_US),
        row!(h, Time, 0.0, MOST_US),
        row!(hops, Count, 0.0, 255.0),
        row!(fs_range, Time, 0.0, MOST_US),
        row!(fs_min_cwnd, Real, 1e-4, 1e6),
        row!(fs_max_cwnd, Real, 1e-4, 1e6),
        row!(min_cwnd, Real, 1e-4, 1e6),
        row!(max_cwnd, Real, 1.0, 1e6),
        row!(retx_reset_threshold, Count, 1.0, 1000.0),
    ];

    /// The target of a window of so many packets, in seconds.
    pub fn target(&self, cwnd: f64) -> f64 {
        let range = self.fs_range.as_secs_f64();
        let (small, large) = (1.0 / self.fs_min_cwnd.sqrt(), 1.0 / self.fs_max_cwnd.sqrt());
        let alpha = if small > large { range / (small - large) } else { 0.0 };
        let scaled = (alpha / cwnd.sqrt() - alpha * large).clamp(0.0, range);
        self.base_target.as_secs_f64() + f64::from(self.hops) * self.h.as_secs_f64() + scaled
    }
}

/// The congestion window of a sender.
#[derive(Clone, Debug)]
pub struct Window {
    swift: Swift,
    line_rate: Rate,
    /// Bytes of a packet.
    packet: f64,
    /// Packets.
    cwnd: f64,
    /// The last round trip; `None` before the first.
    rtt: Option<Duration>,
    /// When the window was cut last.
    decreased: Option<Instant>,
    /// Timeouts since an acknowledgement.
    retransmits: u32,
}

impl Window {
    /// A sender whose packets have so many bytes, with a window that fills the line for the time of
    /// its target.
    pub fn new(swift: Swift, line_rate: Rate, packet: f64) -> Self {
        let whole = line_rate.bytes_in(Duration::from_secs(1)) * swift.target(f64::INFINITY);
        let mut it = Self {
            swift,
            line_rate,
            packet,
            cwnd: whole / packet,
            rtt: None,
            decreased: None,
            retransmits: 0,
        };
        it.bound();
        it
    }

    /// Other parameters from now on, up to `line_rate`.
    pub fn set(&mut self, swift: Swift, line_rate: Rate) {
        (self.swift, self.line_rate) = (swift, line_rate);
        self.bound();
    }

    /// Its parameters.
    pub const fn swift(&self) -> &Swift {
        &self.swift
    }

    /// Packets that may be unacknowledged; fewer than one is a packet now and then.
    pub const fn cwnd(&self) -> f64 {
        self.cwnd
    }

    /// How fast packets follow each other: the window in a round trip.
    pub fn rate(&self) -> Rate {
        let Some(rtt) = self.rtt else { return self.line_rate };
        let bits = self.cwnd * self.packet * 8.0 / rtt.as_secs_f64();
        Rate::from_bits_per_second(bits).min(self.line_rate)
    }

    /// Packets were acknowledged, the newest of those that are measured so long after it was sent.
    pub fn acknowledged(&mut self, now: Instant, delay: Duration, packets: u32) {
        let Swift { ai, beta, max_mdf, .. } = self.swift;
        self.retransmits = 0;
        // Two reads of a clock may be the same; no round trip takes no time.
        let delay = delay.max(Duration::from_nanos(1));
        self.rtt = Some(delay);
        let (target, seconds) = (self.swift.target(self.cwnd), delay.as_secs_f64());
        if seconds < target {
            let grown = ai * f64::from(packets);
            self.cwnd += if self.cwnd >= 1.0 { grown / self.cwnd } else { grown };
            self.bound();
        } else {
            self.cut(now, (1.0 - beta * (seconds - target) / seconds).max(1.0 - max_mdf));
        }
    }

    /// Packets were lost and are sent again before a timeout: fast recovery.
    pub fn lost(&mut self, now: Instant) {
        self.retransmits = 0;
        self.cut(now, 1.0 - self.swift.max_mdf);
    }

    /// Packets are sent again because no answer came.
    pub fn timed_out(&mut self, now: Instant) {
        self.retransmits = self.retransmits.saturating_add(1);
        if self.retransmits >= self.swift.retx_reset_threshold {
            self.cwnd = self.swift.min_cwnd;
            self.decreased = Some(now);
        } else {
            self.cut(now, 1.0 - self.swift.max_mdf);
        }
    }

    /// Leaves so much of the window, if it was not cut in the last round trip.
    fn cut(&mut self, now: Instant, left: f64) {
        let rtt = self.rtt.unwrap_or_default();
        if self.decreased.is_none_or(|last| now.since(last) >= rtt) {
            self.cwnd *= left;
            self.bound();
            self.decreased = Some(now);
        }
    }

    fn bound(&mut self) {
        let Swift { min_cwnd, max_cwnd, .. } = self.swift;
        self.cwnd = self.cwnd.max(min_cwnd).min(max_cwnd);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SWIFT: Swift = Swift { fs_range: Duration::ZERO, ..Swift::DEFAULT };
    const LINE: Rate = Rate::from_mbps(10_000);

    fn at(micros: u64) -> Instant {
        Instant::from_nanos(micros * 1000)
    }

    const fn micros(micros: u64) -> Duration {
        Duration::from_micros(micros)
    }

    fn window(cwnd: f64) -> Window {
        Window { cwnd, ..Window::new(SWIFT, LINE, 1040.0) }
    }

    /// base + hops·ħ + fs(cwnd): all of the range at fs_min_cwnd, none at fs_max_cwnd.
    #[test]
    fn the_target_is_scaled_by_topology_and_flows() {
        let swift = Swift { hops: 3, ..Swift::DEFAULT };
        let close = |cwnd: f64, micros: f64| {
            let target = swift.target(cwnd) * 1e6;
            assert!((target - micros).abs() < 1e-9, "{cwnd}: {target}");
        };
        close(100.0, 28.0);
        close(1e6, 28.0);
        close(0.1, 128.0);
        close(0.001, 128.0);
        // alpha = 100/(√10 − 0.1), at 1: alpha·(1 − 0.1).
        close(1.0, 28.0 + 0.9 * 100.0 / (10.0_f64.sqrt() - 0.1));
        let flat = Swift { fs_min_cwnd: 5.0, fs_max_cwnd: 5.0, ..swift };
        assert!((flat.target(1.0) - 28e-6).abs() < 1e-12);
    }

    #[test]
    fn below_the_target_the_window_grows_by_ai_in_a_round_trip() {
        let mut it = window(10.0);
        it.acknowledged(at(0), micros(20), 5);
        assert!((it.cwnd() - 10.5).abs() < 1e-12);
        let mut small = window(0.5);
        small.acknowledged(at(0), micros(20), 1);
        assert!((small.cwnd() - 1.5).abs() < 1e-12);
    }

    /// Target 26 µs: at 52 µs a cut leaves 1 − 0.8/2.
    #[test]
    fn above_it_the_window_is_cut_once_in_a_round_trip() {
        let mut it = window(10.0);
        it.acknowledged(at(100), micros(52), 1);
        assert!((it.cwnd() - 6.0).abs() < 1e-9);
        it.acknowledged(at(151), micros(52), 1);
        assert!((it.cwnd() - 6.0).abs() < 1e-9, "too early");
        it.acknowledged(at(152), micros(52), 1);
        assert!((it.cwnd() - 3.6).abs() < 1e-9);
        it.acknowledged(at(1000), micros(800), 1);
        assert!((it.cwnd() - 1.8).abs() < 1e-9, "half at the most");
    }

    #[test]
    fn losses_halve_it_and_timeouts_in_a_row_make_it_the_least() {
        let mut it = window(64.0);
        it.acknowledged(at(0), micros(10), 1);
        let cwnd = it.cwnd();
        it.lost(at(100));
        it.lost(at(105));
        assert!((it.cwnd() - cwnd / 2.0).abs() < 1e-9);
        for timeout in 1..=4 {
            it.timed_out(at(1000 * timeout));
        }
        assert!((it.cwnd() - cwnd / 32.0).abs() < 1e-9);
        it.timed_out(at(5000));
        assert_eq!(it.cwnd(), SWIFT.min_cwnd);
        it.acknowledged(at(6000), micros(10), 1);
        it.timed_out(at(6020));
        assert!(it.cwnd() > SWIFT.min_cwnd, "the count began anew");
    }

    #[test]
    fn a_window_is_a_rate() {
        let mut it = window(1e9);
        assert_eq!(it.rate(), LINE);
        it.acknowledged(at(0), micros(10), 1);
        assert_eq!((it.cwnd(), it.rate()), (SWIFT.max_cwnd, LINE));
        let mut small = window(0.25);
        small.acknowledged(at(0), micros(104), 0);
        // A packet of 1,040 bytes in 4 × 104 µs, once the cut is made.
        let expected = small.cwnd() * 1040.0 * 8.0 / 104e-6;
        assert!((small.rate().bits_per_second() - expected).abs() < 1e-3);
        assert!((small.cwnd() - 0.25 * (1.0_f64 - 0.8 * 78.0 / 104.0).max(0.5)).abs() < 1e-9);
    }
}
