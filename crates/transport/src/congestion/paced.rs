//! How fast one queue pair may send now: its controller, its pacer, its round trips.
//!
//! A window is kept by the requester, in packets: a window of bytes is as many of the path MTU, and
//! short packets count as long ones. So nothing is counted twice, and what is not controlled costs
//! nothing. The pacer lets them leave at window/round trip, so that the window is not sent at once
//! when an acknowledgement opens it, and so that a window of less than a packet is kept too.

use core::time::Duration;

use roxe_wire::{Instant, Psn};

use super::controller::{Controller, Limits};
use super::hpcc::Hop;
use super::round_trip::RoundTrips;
use super::{Burst, CongestionControl, Pacer, Rate};

/// The line that queue pairs send by.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Line {
    /// Its rate: where queue pairs begin, and which no algorithm exceeds.
    pub rate: Rate,
    /// Whether a queue pair is paced at that rate, too. Where the line itself is no faster, or
    /// nobody said how fast it is, one that nothing slows down sends what it has.
    pub is_ceiling: bool,
    /// How much may be sent at once after a pause; at a ceiling, what the line sends in 250 µs if
    /// that is more: a thread that sleeps is not woken sooner.
    pub burst: Burst,
}

impl Line {
    /// How much may be sent at once at its rate, if it is a ceiling.
    #[expect(clippy::cast_possible_truncation, reason = "more than fits is as much as fits")]
    fn ceiling(&self) -> Option<Burst> {
        let slept = self.rate.bytes_in(Duration::from_micros(250));
        self.is_ceiling.then(|| Burst(self.burst.0.max(slept as u32)))
    }
}

/// How fast one queue pair may send now.
#[derive(Clone, Debug)]
pub(crate) struct Paced {
    controller: Controller,
    line: Line,
    pacer: Pacer,
    /// All data in it, also what the controller does not pace, keeps the rate of the line.
    ceiling: Option<Pacer>,
    /// Bytes of the longest packet.
    packet: f64,
    /// A packet waits until then.
    held: Option<Instant>,
    /// Data that a peer READs waits until then, if it does not wait as requests do.
    answers_held: Option<Instant>,
    round_trips: RoundTrips,
    /// Packets acknowledged since the last round trip that was measured.
    acknowledged: u32,
}

impl Paced {
    /// A queue pair that may send packets of at most so many bytes at the line's rate until it is
    /// told to slow down. `None` where nothing controls.
    pub(crate) fn new(control: &CongestionControl, line: Line, packet: f64) -> Option<Self> {
        Some(Self {
            controller: Controller::new(control, line.rate, packet)?,
            line,
            pacer: Pacer::new(line.burst),
            ceiling: line.ceiling().map(Pacer::new),
            packet,
            held: None,
            answers_held: None,
            round_trips: RoundTrips::new(),
            acknowledged: 0,
        })
    }

    pub(crate) const fn controller(&self) -> &Controller {
        &self.controller
    }

    /// The controller as it is now: this one learns of the time only when it is asked or told.
    pub(crate) fn controller_at(&self, now: Instant) -> Controller {
        let mut it = self.controller.clone();
        while let Some(change) = it.next_change().filter(|change| *change <= now) {
            it.change(change);
        }
        it.age(now);
        it
    }

    /// Begins anew: what was learned was of another connection.
    pub(crate) fn reset(&mut self) {
        self.controller.restart(self.line.rate, self.packet);
        self.pacer.refill();
        self.ceiling.iter_mut().for_each(Pacer::refill);
        self.answers_held = None;
        (self.held, self.round_trips, self.acknowledged) = (None, RoundTrips::new(), 0);
    }

    /// Other parameters from now on, and another line; rates stay what they are, as far as these
    /// allow. False when they are of another algorithm.
    pub(crate) fn set(&mut self, control: &CongestionControl, line: Line) -> bool {
        self.line = line;
        self.pacer.set_burst(line.burst);
        self.ceiling = line.ceiling().map(|burst| {
            let mut kept = self.ceiling.take().unwrap_or_else(|| Pacer::new(burst));
            kept.set_burst(burst);
            kept
        });
        self.ask_again(Instant::ZERO);
        self.answers_held = None;
        self.controller.set(control, line.rate)
    }

    /// Whether data that a peer READs waits for its turn as requests do: only what DCQCN is told of
    /// comes back for it, and so raises the rate again. With others it keeps to the ceiling alone.
    const fn answers_as_requests(&self) -> bool {
        matches!(self.controller, Controller::Dcqcn(_))
    }

    /// Whether data that a peer READs may have to wait.
    pub(crate) const fn paces_answers(&self) -> bool {
        self.answers_as_requests() || self.ceiling.is_some()
    }

    /// It begins to send, in packets of at most so many bytes.
    pub(crate) fn begin(&mut self, packet: f64) {
        if packet != self.packet {
            self.packet = packet;
            self.controller.restart(self.line.rate, packet);
        }
        self.forget();
    }

    /// Nothing that is under way is measured.
    const fn forget(&mut self) {
        self.round_trips.forget();
        self.acknowledged = 0;
    }

    /// The rate may be another one: what waits asks again, at once.
    fn ask_again(&mut self, now: Instant) {
        self.held = self.held.map(|until| until.min(now));
    }

    /// What it asks of who sends requests.
    pub(crate) fn limits(&self) -> Limits {
        self.controller.limits(self.packet)
    }

    /// A notification came. Says whether anything follows from it.
    pub(crate) fn notified(&mut self, now: Instant) -> bool {
        self.advance(now);
        let follows = self.controller.notified(now);
        self.ask_again(now);
        follows
    }

    /// A packet was sent for the first time and asks for an acknowledgement.
    pub(crate) const fn asked(&mut self, now: Instant, psn: Psn) {
        if self.controller.measures() {
            self.round_trips.asked(now, psn);
        }
    }

    /// So many packets were acknowledged: all before `unacknowledged` are. While none is measured
    /// they are not counted: what a READ brings is not what this side sends.
    pub(crate) fn acknowledged(&mut self, now: Instant, unacknowledged: Psn, packets: u32) {
        if self.round_trips.is_empty() {
            self.acknowledged = 0;
            return;
        }
        self.acknowledged = self.acknowledged.saturating_add(packets);
        if let Some(rtt) = self.round_trips.acknowledged(now, unacknowledged) {
            self.advance(now);
            let packets = core::mem::take(&mut self.acknowledged);
            self.controller.acknowledged(now, rtt, packets);
            self.ask_again(now);
        }
    }

    /// Packets are sent again, though nothing was lost.
    pub(crate) const fn sends_again(&mut self) {
        self.forget();
    }

    /// Packets were lost, as an answer shows, and are sent again.
    pub(crate) fn lost(&mut self, now: Instant) {
        self.forget();
        self.advance(now);
        self.controller.lost(now);
        self.ask_again(now);
    }

    /// No answer came in time, and packets are sent again.
    pub(crate) fn timed_out(&mut self, now: Instant) {
        self.forget();
        self.advance(now);
        self.controller.timed_out(now);
        self.ask_again(now);
    }

    /// An acknowledgement brought telemetry.
    pub(crate) fn telemetry(
        &mut self,
        now: Instant,
        (acknowledged, next): (Psn, Psn),
        hops: &[Hop],
    ) {
        self.advance(now);
        self.controller.telemetry(acknowledged, next, hops);
        self.ask_again(now);
    }

    /// Until when a packet waits, if one does.
    #[inline]
    pub(crate) const fn held(&self) -> Option<Instant> {
        self.held
    }

    /// Until when data waits that a peer READs.
    pub(crate) const fn answers_held(&self) -> Option<Instant> {
        if self.answers_as_requests() { self.held } else { self.answers_held }
    }

    /// Time has passed: what waited may ask again.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        for held in [&mut self.held, &mut self.answers_held] {
            *held = held.filter(|until| *until > now);
        }
    }

    /// Whether the next packet may be sent now. If not, [`Paced::held`] says when to ask again.
    #[inline]
    pub(crate) fn may_send(&mut self, now: Instant) -> bool {
        let limiting = self.controller.is_limiting(self.line.rate);
        if limiting || self.ceiling.is_some() {
            let own = if limiting { self.wait(now) } else { None };
            self.held = own.max(self.below_ceiling(now));
        }
        self.held.is_none()
    }

    fn wait(&mut self, now: Instant) -> Option<Instant> {
        self.advance(now);
        let ready = self.pacer.ready(self.controller.rate())?;
        // The rate may change before, and then it is ready earlier.
        Some(self.controller.next_change().map_or(ready, |change| ready.min(change)))
    }

    /// Until when the ceiling has packets wait.
    fn below_ceiling(&mut self, now: Instant) -> Option<Instant> {
        let ceiling = self.ceiling.as_mut()?;
        ceiling.advance(now, self.line.rate);
        ceiling.ready(self.line.rate)
    }

    /// The same of data that a peer READs, and [`Paced::answers_held`].
    pub(crate) fn may_answer(&mut self, now: Instant) -> bool {
        if self.answers_as_requests() {
            return self.may_send(now);
        }
        self.answers_held = self.below_ceiling(now);
        self.answers_held.is_none()
    }

    /// A packet of so many bytes was sent. Says whether packets have to wait for each other.
    #[inline]
    pub(crate) fn sent(&mut self, bytes: usize) -> bool {
        let limiting = self.controller.is_limiting(self.line.rate);
        if limiting {
            // A window is of packets, however short these are.
            let is_window = matches!(self.controller, Controller::Swift(_));
            let least = if is_window { self.packet } else { 0.0 };
            self.pacer.sent((bytes as f64).max(least));
            self.controller.sent(bytes as u64);
        }
        self.ceiling.iter_mut().for_each(|it| it.sent(bytes as f64));
        limiting || self.ceiling.is_some()
    }

    /// One with data that a peer READs was.
    pub(crate) fn answered(&mut self, bytes: usize) {
        if self.answers_as_requests() {
            self.sent(bytes);
        } else {
            self.ceiling.iter_mut().for_each(|it| it.sent(bytes as f64));
        }
    }

    /// Lets time pass: what the rate was meanwhile is what may be sent.
    fn advance(&mut self, now: Instant) {
        while let Some(change) = self.controller.next_change().filter(|change| *change <= now) {
            self.pacer.advance(change, self.controller.rate());
            self.controller.change(change);
        }
        self.controller.pass(now);
        self.pacer.advance(now, self.controller.rate());
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Dcqcn, Swift, Timely};
    use super::*;

    /// A line whose rate nothing but a controller holds packets to.
    const fn line(rate: Rate, burst: Burst) -> Line {
        Line { rate, is_ceiling: false, burst }
    }

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
            let control = CongestionControl::Dcqcn(dcqcn);
            let line_rate = Rate::from_mbps(100_000);
            let mut paced = Paced::new(&control, line(line_rate, Burst::DEFAULT), 4112.0).unwrap();
            let mut now = Instant::ZERO;
            assert!(paced.notified(now));
            while paced.may_send(now) {
                paced.sent(4096 + 66); // what may go at once
            }
            let (kept, end) = (paced.controller.rate(), now + Duration::from_secs(1));
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

    /// What is acknowledged without a time counts with the next that has one.
    #[test]
    fn packets_without_a_round_trip_of_their_own_count_with_the_next() {
        let control = CongestionControl::Swift(Swift { max_cwnd: 10.0, ..Swift::DEFAULT });
        let line_rate = Rate::from_mbps(100_000);
        let mut paced = Paced::new(&control, line(line_rate, Burst::DEFAULT), 1040.0).unwrap();
        assert_eq!(paced.limits(), Limits { window: 10, ask_after: 1 });
        paced.set(&CongestionControl::Swift(Swift::DEFAULT), line(line_rate, Burst::DEFAULT));
        paced.asked(Instant::ZERO, Psn::new(7));
        let at = Instant::from_nanos(10_000);
        paced.acknowledged(at, Psn::new(5), 5);
        assert_eq!(paced.limits().window, 10);
        paced.acknowledged(at, Psn::new(8), 3);
        let Controller::Swift(window) = paced.controller() else { panic!("{paced:?}") };
        assert!((window.cwnd() - 10.8).abs() < 1e-9, "{}", window.cwnd());
        // Who goes on with another path MTU begins anew.
        paced.begin(4112.0);
        assert!(paced.limits().window > 60, "{:?}", paced.limits());
    }

    /// PSNs that a READ's answers move are none of the packets that the window is of.
    #[test]
    fn what_is_acknowledged_while_nothing_is_measured_does_not_count() {
        let control = CongestionControl::Swift(Swift { max_cwnd: 10.0, ..Swift::DEFAULT });
        let line_rate = Rate::from_mbps(100_000);
        let mut paced = Paced::new(&control, line(line_rate, Burst::DEFAULT), 1040.0).unwrap();
        paced.set(&CongestionControl::Swift(Swift::DEFAULT), line(line_rate, Burst::DEFAULT));
        for psn in 1..=256 {
            paced.acknowledged(Instant::ZERO, Psn::new(psn), 1);
        }
        for lost in [Paced::lost, Paced::timed_out, |it: &mut Paced, _| it.sends_again()] {
            let mut paced = paced.clone();
            paced.asked(Instant::ZERO, Psn::new(300));
            paced.acknowledged(Instant::ZERO, Psn::new(290), 34);
            lost(&mut paced, Instant::ZERO);
            assert_eq!(paced.acknowledged, 0);
        }
        paced.asked(Instant::ZERO, Psn::new(256));
        paced.acknowledged(Instant::from_nanos(10_000), Psn::new(257), 1);
        let Controller::Swift(window) = paced.controller() else { panic!("{paced:?}") };
        assert!((window.cwnd() - 10.1).abs() < 1e-9, "{}", window.cwnd());
    }

    /// Who waits for a packet in a thousand round trips does not go on to when the window opens.
    #[test]
    fn what_changes_the_rate_lets_a_packet_that_waits_ask_again() {
        let swift = Swift { min_cwnd: 0.01, max_cwnd: 0.01, ..Swift::DEFAULT };
        let line_rate = Rate::from_mbps(10_000);
        let at = |micros: u64| Instant::from_nanos(micros * 1000);
        let control = CongestionControl::Swift(swift);
        let mut paced = Paced::new(&control, line(line_rate, Burst(0)), 1040.0).unwrap();
        paced.asked(at(0), Psn::new(0));
        paced.acknowledged(at(20), Psn::new(1), 1);
        let wait = |paced: &mut Paced, now: Instant| {
            while paced.may_send(now) {
                paced.sent(1040);
            }
            paced.asked(now, Psn::new(1));
            paced.held().unwrap()
        };
        assert!(wait(&mut paced, at(20)) > at(2_000));
        let opens = CongestionControl::Swift(Swift { max_cwnd: 64.0, ..swift });
        paced.set(&opens, line(line_rate, Burst(0)));
        paced.handle_timeout(at(21));
        assert_eq!(paced.held(), None, "other parameters");
        assert!(wait(&mut paced, at(21)) > at(2_000), "the window is what it was");
        paced.acknowledged(at(40), Psn::new(2), 1);
        paced.handle_timeout(at(40));
        assert_eq!(paced.held(), None, "a window of more than a packet");
        let soon = wait(&mut paced, at(40));
        assert!(
            soon > at(40) && soon < at(60),
            "it owes one packet, at a packet a round trip: {soon}"
        );
        for told in [Paced::lost, Paced::timed_out, |it: &mut Paced, now: Instant| {
            it.telemetry(now, (Psn::new(0), Psn::new(1)), &[]);
        }] {
            let mut paced = paced.clone();
            told(&mut paced, at(41));
            paced.handle_timeout(at(41));
            assert_eq!(paced.held(), None);
        }
    }

    /// A port that is as fast as another one: what was not held back is not afterwards, and what
    /// was comes back to the new rate.
    #[test]
    fn another_rate_of_the_line_is_kept_to_and_climbed_to() {
        let (slow, fast) = (Rate::from_mbps(10_000), Rate::from_mbps(100_000));
        for (name, control) in &CongestionControl::NAMED[1..] {
            let mut paced = Paced::new(control, line(slow, Burst::DEFAULT), 1040.0).unwrap();
            assert!(paced.set(control, line(fast, Burst(0))));
            let free = paced.controller.rate();
            // HPCC's window is of bytes, which it goes on with.
            if *name != "hpcc" {
                assert_eq!(free, fast, "{name}");
                assert!(paced.may_send(Instant::ZERO) && !paced.sent(9000), "{name}");
            }
            assert!(paced.set(control, line(slow, Burst(0))));
            assert!(paced.controller.rate() <= slow, "{name}");
            assert!(!paced.controller.is_limiting(paced.line.rate), "{name}");
        }
        let control = CongestionControl::Dcqcn(Dcqcn::MLX5);
        let mut paced = Paced::new(&control, line(slow, Burst::DEFAULT), 1040.0).unwrap();
        paced.notified(Instant::ZERO);
        paced.set(&control, line(fast, Burst(0)));
        assert_eq!(paced.controller.rate(), Rate::from_mbps(5_000), "it was told to slow down");
        paced.sent(1000);
        assert!(!paced.may_send(Instant::ZERO), "the burst is another one too");
        let later = Instant::ZERO + Duration::from_secs(60);
        assert!(paced.may_send(later));
        assert_eq!(paced.controller.rate(), fast);
    }

    /// A window of a hundredth of a packet is one packet in a hundred round trips, of any length.
    #[test]
    fn short_packets_count_as_long_ones_in_a_window_below_one() {
        let swift = Swift { min_cwnd: 0.01, max_cwnd: 0.01, ..Swift::DEFAULT };
        let control = CongestionControl::Swift(swift);
        let mut paced =
            Paced::new(&control, line(Rate::from_mbps(10_000), Burst(0)), 4112.0).unwrap();
        paced.asked(Instant::ZERO, Psn::new(0));
        paced.acknowledged(Instant::from_nanos(20_000), Psn::new(1), 1);
        let mut now = Instant::from_nanos(20_000);
        let mut sent = 0;
        let end = now + Duration::from_micros(100 * 2_000);
        while now < end {
            if paced.may_send(now) {
                paced.sent(80);
                sent += 1;
            } else {
                now = paced.held().unwrap();
            }
        }
        assert!((100..=101).contains(&sent), "{sent} packets in 10,000 round trips");
    }

    /// Nobody asks an idle queue pair whether it may send.
    #[test]
    fn what_is_shown_is_of_now_and_changes_nothing() {
        let control = CongestionControl::Dcqcn(Dcqcn::MLX5);
        let line_rate = Rate::from_mbps(1_000);
        let mut paced = Paced::new(&control, line(line_rate, Burst::DEFAULT), 1040.0).unwrap();
        paced.notified(Instant::ZERO);
        let look = |paced: &Paced, micros: u64| {
            let it = paced.controller_at(Instant::from_nanos(micros * 1000));
            let point = it.reaction_point().unwrap();
            (point.rate().bits_per_second() / 1e6, point.alpha())
        };
        assert_eq!(look(&paced, 0), (500.0, 1.0));
        let (rate, alpha) = look(&paced, 301);
        assert!(rate == 750.0 && (0.22..0.24).contains(&alpha), "{rate}, {alpha}");
        let (rate, alpha) = look(&paced, 3_600_000_000);
        assert!(rate == 1000.0 && alpha < 1e-9, "{rate}, {alpha}");
        assert_eq!(look(&paced, 0), (500.0, 1.0), "it was only looked at");
    }

    #[test]
    fn notifications_concern_dcqcn_alone() {
        let control = CongestionControl::Timely(Timely::PAPER);
        let line_rate = Rate::from_mbps(10_000);
        let mut paced = Paced::new(&control, line(line_rate, Burst::DEFAULT), 1040.0).unwrap();
        assert!(!paced.notified(Instant::ZERO) && paced.may_send(Instant::ZERO));
        assert_eq!(paced.limits(), Limits { ask_after: 16, ..Limits::NONE });
        let dcqcn = CongestionControl::Dcqcn(Dcqcn::MLX5);
        assert!(!paced.set(&dcqcn, line(line_rate, Burst::DEFAULT)));
        assert!(
            Paced::new(&CongestionControl::None, line(line_rate, Burst::DEFAULT), 1.0).is_none()
        );
    }
}
