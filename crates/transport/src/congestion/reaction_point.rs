//! The sender of marked packets: its rate.
//!
//! DCQCN's reaction point (Zhu et al., SIGCOMM 2015, §5), with the parameters of mlx5 by their
//! names. A notification cuts the rate by half of alpha, an estimate of how many packets are
//! marked, which grows with notifications and shrinks without. A timer and a byte counter raise
//! the rate: first half of the way back to the rate before the cut (fast recovery), then that
//! target itself grows, slowly (additive increase) and at last faster (hyper increase).
//!
//! What happens between two calls is worked out when the second one comes; at the same moment a
//! cut that waits comes before the timer, and the timer before a notification.

use core::time::Duration;

use roxe_wire::Instant;

use super::Rate;
use super::parameter::{MOST_MBPS, MOST_US, Parameter, row};

/// Parameters of a reaction point; in every duration and count zero means "never".
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dcqcn {
    /// Which of the two published forms.
    pub form: Form,
    /// What alpha is multiplied by in 1/1024, when it shrinks: 1 - g. 0 ..= 1024. mlx5's text
    /// has g there; with its 1019 one period would forget nearly all, so it is read the other way
    /// round, near the paper's g of 1/256.
    pub rp_dce_tcp_g: u32,
    /// Alpha is looked at so often.
    pub rp_dce_tcp_rtt: Duration,
    /// The timer that raises the rate.
    pub rp_time_reset: Duration,
    /// So many bytes raise the rate, too.
    pub rp_byte_reset: u64,
    /// So many times timer or byte counter come up before fast recovery ends.
    pub rp_threshold: u32,
    /// How much the target grows in additive increase.
    pub rp_ai_rate: Rate,
    /// How much it grows in hyper increase.
    pub rp_hai_rate: Rate,
    /// The rate is never less.
    pub rp_min_rate: Rate,
    /// The rate is never more; zero for that of the line.
    pub rp_max_rate: Rate,
    /// Alpha at the first notification, in 1/1023, so that the most is 1 (in 1/1024 with mlx5).
    /// 0 ..= 1023.
    pub rp_initial_alpha_value: u32,
    /// A cut leaves so much of the rate at least, in percent.
    pub rp_min_dec_fac: u32,
    /// At most one cut in so long. Zero for one each notification.
    pub rp_rate_reduce_monitor_period: Duration,
    /// The first notification sets the rate to this before it cuts; zero to leave it.
    pub rp_rate_to_set_on_first_cnp: Rate,
    /// Whether each cut makes the current rate the target; else only the first one after an
    /// increase.
    pub rp_clamp_tgt_rate: bool,
    /// Whether an increase by the timer counts for that as one by bytes does.
    pub rp_clamp_tgt_rate_ati: bool,
    /// A cut takes alpha × 2^(10 - this) of the rate: 11 takes half of alpha.
    pub rp_gd: u32,
}

/// The two forms differ in when alpha changes and in how hyper increase grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// The paper's: alpha grows with each notification and shrinks when none came for a period;
    /// hyper increase grows with each step.
    Paper,
    /// The adapter's: alpha grows or shrinks at the end of each period, by whether a notification
    /// came in it; hyper increase stays what it is.
    Mlx5,
}

impl Dcqcn {
    /// As ConnectX adapters ship.
    pub const MLX5: Self = Self {
        form: Form::Mlx5,
        rp_dce_tcp_g: 1019,
        rp_dce_tcp_rtt: Duration::from_micros(1),
        rp_time_reset: Duration::from_micros(300),
        rp_byte_reset: 32_767,
        rp_threshold: 1,
        rp_ai_rate: Rate::from_mbps(5),
        rp_hai_rate: Rate::from_mbps(50),
        rp_min_rate: Rate::from_mbps(1),
        rp_max_rate: Rate::ZERO,
        rp_initial_alpha_value: 1023,
        rp_min_dec_fac: 50,
        rp_rate_reduce_monitor_period: Duration::from_micros(4),
        rp_rate_to_set_on_first_cnp: Rate::ZERO,
        rp_clamp_tgt_rate: false,
        rp_clamp_tgt_rate_ati: true,
        rp_gd: 11,
    };

    /// As the paper has them.
    pub const PAPER: Self = Self {
        form: Form::Paper,
        rp_dce_tcp_g: 1020,
        rp_dce_tcp_rtt: Duration::from_micros(55),
        rp_time_reset: Duration::from_micros(55),
        rp_byte_reset: 10_000_000,
        rp_threshold: 5,
        rp_ai_rate: Rate::from_mbps(40),
        rp_hai_rate: Rate::from_mbps(200),
        rp_rate_reduce_monitor_period: Duration::ZERO,
        rp_clamp_tgt_rate: true,
        ..Self::MLX5
    };

    pub(super) const PARAMETERS: &[Parameter<Self>] = &[
        row!(rp_dce_tcp_g, Count, 0.0, 1024.0),
        row!(rp_dce_tcp_rtt, Time, 0.0, MOST_US),
        row!(rp_time_reset, Time, 0.0, MOST_US),
        row!(rp_byte_reset, Bytes, 0.0, 1e12),
        row!(rp_threshold, Count, 0.0, 1000.0),
        row!(rp_ai_rate, Rate, 0.0, MOST_MBPS),
        row!(rp_hai_rate, Rate, 0.0, MOST_MBPS),
        row!(rp_min_rate, Rate, 0.1, MOST_MBPS),
        row!(rp_max_rate, Rate, 0.0, MOST_MBPS),
        row!(rp_initial_alpha_value, Count, 0.0, 1023.0),
        row!(rp_min_dec_fac, Count, 0.0, 100.0),
        row!(rp_rate_reduce_monitor_period, Time, 0.0, MOST_US),
        row!(rp_rate_to_set_on_first_cnp, Rate, 0.0, MOST_MBPS),
        row!(rp_clamp_tgt_rate, Switch, 0.0, 1.0),
        row!(rp_clamp_tgt_rate_ati, Switch, 0.0, 1.0),
        row!(rp_gd, Count, 10.0, 15.0),
    ];

    /// 1 - g.
    fn decay(&self) -> f64 {
        f64::from(self.rp_dce_tcp_g.min(1024)) / 1024.0
    }

    /// What a cut leaves of the rate.
    fn left(&self, alpha: f64) -> f64 {
        let cut = alpha * 1024.0 / (1_u64 << self.rp_gd.min(63)) as f64;
        (1.0 - cut).max(f64::from(self.rp_min_dec_fac.min(100)) / 100.0)
    }
}

impl Default for Dcqcn {
    fn default() -> Self {
        Self::MLX5
    }
}

/// A sender's rate.
#[derive(Clone, Debug)]
pub struct ReactionPoint {
    dcqcn: Dcqcn,
    line_rate: Rate,
    current: Rate,
    target: Rate,
    alpha: f64,
    /// When the period of alpha began; `None` before the first notification.
    alpha_since: Option<Instant>,
    /// A notification came in the period.
    alpha_grows: bool,
    /// When the rate was cut last.
    cut: Instant,
    cut_waits: bool,
    /// When the increase timer began.
    timer: Instant,
    time_stage: u32,
    byte_stage: u32,
    bytes: u64,
    /// Something raised the rate since it was cut.
    raised: bool,
}

impl ReactionPoint {
    /// A sender at the rate of the line.
    pub fn new(dcqcn: Dcqcn, line_rate: Rate) -> Self {
        let mut it = Self {
            dcqcn,
            line_rate,
            current: line_rate,
            target: line_rate,
            alpha: 0.0,
            alpha_since: None,
            alpha_grows: false,
            cut: Instant::ZERO,
            cut_waits: false,
            timer: Instant::ZERO,
            time_stage: 0,
            byte_stage: 0,
            bytes: 0,
            raised: true,
        };
        it.set(dcqcn, line_rate);
        it
    }

    /// Other parameters from now on, up to `line_rate`. The rate stays, as far as they allow; one
    /// that was the line's goes on to be that.
    pub fn set(&mut self, dcqcn: Dcqcn, line_rate: Rate) {
        // Who is not slowed down goes as fast as may be from now on.
        let is_slowed = self.current < self.most();
        (self.dcqcn, self.line_rate) = (dcqcn, line_rate);
        let (least, most) = (dcqcn.rp_min_rate, self.most());
        if !is_slowed {
            (self.current, self.target) = (most, most);
        }
        self.current = self.current.max(least).min(most);
        self.target = self.target.max(least).min(most);
    }

    /// How fast it may send now.
    pub const fn rate(&self) -> Rate {
        self.current
    }

    /// Which rate it goes back to.
    pub const fn target(&self) -> Rate {
        self.target
    }

    /// How much is marked, by its estimate: 0 ..= 1.
    pub const fn alpha(&self) -> f64 {
        self.alpha
    }

    /// Its parameters.
    pub const fn dcqcn(&self) -> &Dcqcn {
        &self.dcqcn
    }

    /// Whether packets may have to wait: not at the rate of the line.
    pub fn is_limiting(&self) -> bool {
        self.current < self.line_rate || self.cut_waits
    }

    fn most(&self) -> Rate {
        match self.dcqcn.rp_max_rate {
            max if max.is_zero() => self.line_rate,
            max => max.min(self.line_rate),
        }
    }

    /// When the rate changes next if nothing is sent and no notification comes.
    pub fn next_change(&self) -> Option<Instant> {
        let cut = self.cut_waits.then(|| self.cut + self.dcqcn.rp_rate_reduce_monitor_period);
        let climbs = self.climbs() && self.alpha_since.is_some();
        let timer = (climbs && !self.dcqcn.rp_time_reset.is_zero())
            .then(|| self.timer + self.dcqcn.rp_time_reset);
        match (cut, timer) {
            (Some(cut), Some(timer)) => Some(cut.min(timer)),
            (one, other) => one.or(other),
        }
    }

    /// Whether the timer alone would raise the rate further.
    fn climbs(&self) -> bool {
        let Dcqcn { rp_ai_rate, rp_hai_rate, rp_byte_reset, rp_threshold, .. } = self.dcqcn;
        let hyper = rp_byte_reset == 0 || self.byte_stage > rp_threshold;
        let grows = !rp_ai_rate.is_zero() || hyper && !rp_hai_rate.is_zero();
        self.current < self.target.times(1.0 - CLOSE) || grows && self.target < self.most()
    }

    /// Time has passed, and all changes before `now` were called. A timer that raises nothing any
    /// more is counted all the same, all its periods at once.
    pub(super) fn pass(&mut self, now: Instant) {
        let period = u64::try_from(self.dcqcn.rp_time_reset.as_nanos()).unwrap_or(u64::MAX);
        let over = now.nanos().saturating_sub(self.timer.nanos()).checked_div(period);
        let Some(over @ 1..) = over.filter(|_| self.alpha_since.is_some()) else { return };
        self.timer = self.timer + Duration::from_nanos(over * period);
        let stages = u32::try_from(over).unwrap_or(u32::MAX);
        self.time_stage = self.time_stage.saturating_add(stages);
        self.raised |= self.dcqcn.rp_clamp_tgt_rate_ati;
    }

    /// The moment of [`ReactionPoint::next_change`] is there.
    pub fn change(&mut self, at: Instant) {
        if self.cut_waits && at >= self.cut + self.dcqcn.rp_rate_reduce_monitor_period {
            self.cut(at);
        } else if at >= self.timer + self.dcqcn.rp_time_reset {
            self.timer = at;
            self.time_stage = self.time_stage.saturating_add(1);
            self.raised |= self.dcqcn.rp_clamp_tgt_rate_ati;
            self.raise();
        }
    }

    /// A notification came. All changes before were called.
    //= C04
    pub fn notified(&mut self, now: Instant) {
        let period = self.dcqcn.rp_rate_reduce_monitor_period;
        let first = self.alpha_since.is_none();
        if first {
            self.alpha = f64::from(self.dcqcn.rp_initial_alpha_value.min(1023)) / 1023.0;
            self.alpha_since = Some(now);
            if !self.dcqcn.rp_rate_to_set_on_first_cnp.is_zero() {
                self.current = self.dcqcn.rp_rate_to_set_on_first_cnp;
                self.set(self.dcqcn, self.line_rate);
            }
        } else {
            self.age_alpha(now);
            self.alpha_grows = true;
        }
        if first || now.since(self.cut) >= period {
            self.cut(now);
        } else {
            self.cut_waits = true;
        }
    }

    fn cut(&mut self, now: Instant) {
        self.age_alpha(now);
        if self.dcqcn.rp_clamp_tgt_rate || self.raised {
            self.target = self.current;
        }
        let left = self.dcqcn.left(self.alpha);
        self.current = self.current.times(left).max(self.dcqcn.rp_min_rate).min(self.most());
        if self.dcqcn.form == Form::Paper {
            let decay = self.dcqcn.decay();
            self.alpha = decay * self.alpha + (1.0 - decay);
            self.alpha_since = Some(now);
        }
        (self.cut, self.timer) = (now, now);
        (self.time_stage, self.byte_stage, self.bytes) = (0, 0, 0);
        (self.cut_waits, self.raised) = (false, false);
    }

    /// So many bytes were sent.
    pub fn sent(&mut self, bytes: u64) {
        if self.alpha_since.is_none() || self.dcqcn.rp_byte_reset == 0 {
            return;
        }
        self.bytes = self.bytes.saturating_add(bytes);
        while self.bytes >= self.dcqcn.rp_byte_reset && self.is_limiting() {
            self.bytes -= self.dcqcn.rp_byte_reset;
            self.byte_stage = self.byte_stage.saturating_add(1);
            self.raised = true;
            self.raise();
        }
    }

    /// One step up.
    fn raise(&mut self) {
        let Dcqcn { rp_threshold: threshold, rp_byte_reset, rp_time_reset, .. } = self.dcqcn;
        let (least, most) = match (rp_time_reset.is_zero(), rp_byte_reset == 0) {
            (false, true) => (self.time_stage, self.time_stage),
            (true, false) => (self.byte_stage, self.byte_stage),
            _ => {
                let (time, byte) = (self.time_stage, self.byte_stage);
                (time.min(byte), time.max(byte))
            }
        };
        if most >= threshold {
            let grows = if least > threshold {
                let steps = match self.dcqcn.form {
                    Form::Paper => f64::from(least - threshold),
                    Form::Mlx5 => 1.0,
                };
                self.dcqcn.rp_hai_rate.times(steps)
            } else {
                self.dcqcn.rp_ai_rate
            };
            self.target = self.target.plus(grows).min(self.most());
        }
        let (rate, most) = (self.current.plus(self.target).times(0.5), self.most());
        // Halves would never get there.
        self.current = if rate >= most.times(1.0 - CLOSE) { most } else { rate };
    }

    /// Alpha is what it is after all periods that are over.
    pub(super) fn age_alpha(&mut self, now: Instant) {
        let Some(since) = self.alpha_since else { return };
        let period = u64::try_from(self.dcqcn.rp_dce_tcp_rtt.as_nanos()).unwrap_or(u64::MAX);
        let Some(mut over) = now.nanos().saturating_sub(since.nanos()).checked_div(period) else {
            return;
        };
        self.alpha_since = Some(since + Duration::from_nanos(over * period));
        let decay = self.dcqcn.decay();
        if over > 0 && self.dcqcn.form == Form::Mlx5 && core::mem::take(&mut self.alpha_grows) {
            self.alpha = decay * self.alpha + (1.0 - decay);
            over -= 1;
        }
        self.alpha *= power(decay, over);
    }
}

/// A rate so close to the highest, relative to it, is the highest.
const CLOSE: f64 = 1e-9;

/// `base` multiplied `times` times.
fn power(mut base: f64, mut times: u64) -> f64 {
    let mut product = 1.0;
    while times > 0 {
        if times % 2 == 1 {
            product *= base;
        }
        base *= base;
        times /= 2;
    }
    product
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: Rate = Rate::from_mbps(40_000);

    fn at(micros: u64) -> Instant {
        Instant::from_nanos(micros * 1000)
    }

    /// Lets time pass.
    fn until(point: &mut ReactionPoint, now: Instant) {
        while let Some(change) = point.next_change().filter(|change| *change <= now) {
            point.change(change);
        }
    }

    fn gbps(rate: Rate) -> f64 {
        rate.bits_per_second() / 1e9
    }

    /// The numbers that the paper's formulas give for its parameters.
    //= C04 test
    #[test]
    fn a_cut_and_a_fast_recovery_by_the_paper() {
        let mut point = ReactionPoint::new(Dcqcn::PAPER, LINE);
        assert!(!point.is_limiting());
        point.notified(at(0));
        assert_eq!((gbps(point.rate()), gbps(point.target()), point.alpha()), (20.0, 40.0, 1.0));
        let mut climbed = Vec::new();
        for step in 1..=5 {
            until(&mut point, at(55 * step));
            climbed.push(gbps(point.rate()));
        }
        assert_eq!(climbed, [30.0, 35.0, 37.5, 38.75, 39.375]);
        point.age_alpha(at(55));
        assert_eq!(point.alpha(), 255.0 / 256.0);
    }

    #[test]
    fn half_an_alpha_cuts_a_quarter() {
        let dcqcn = Dcqcn { rp_initial_alpha_value: 0, ..Dcqcn::PAPER };
        let mut point = ReactionPoint::new(dcqcn, LINE);
        point.notified(at(0));
        (point.alpha, point.current) = (0.5, Rate::from_mbps(20_000));
        point.notified(at(1));
        assert_eq!((gbps(point.rate()), point.alpha()), (15.0, 0.501_953_125));
    }

    /// The adapter cuts once a period, and what came meanwhile when it is over.
    #[test]
    fn a_cut_waits_for_the_end_of_the_period() {
        let mut point = ReactionPoint::new(Dcqcn::MLX5, LINE);
        point.notified(at(10));
        let cut = point.rate();
        point.notified(at(11));
        point.notified(at(12));
        assert_eq!((point.rate(), point.next_change()), (cut, Some(at(14))));
        until(&mut point, at(20));
        assert!(gbps(point.rate()) < 0.51 * gbps(cut), "{}", point.rate());
        let once = point.rate();
        until(&mut point, at(300));
        assert_eq!(point.rate(), once, "one cut for both");
    }

    #[test]
    fn whatever_happens_the_rate_stays_in_its_bounds_and_comes_back() {
        for dcqcn in [Dcqcn::MLX5, Dcqcn::PAPER] {
            let mut point = ReactionPoint::new(dcqcn, LINE);
            for micros in 0..2000 {
                until(&mut point, at(micros));
                point.notified(at(micros));
            }
            assert_eq!(point.rate(), dcqcn.rp_min_rate);
            until(&mut point, at(60_000_000));
            assert_eq!((point.rate(), point.next_change()), (LINE, None), "{dcqcn:?}");
            assert!(!point.is_limiting());
        }
    }

    /// However long nothing was sent, what is left to do is soon done.
    #[test]
    fn a_rate_that_grows_no_more_asks_for_no_timer() {
        for rp_byte_reset in [0, 32_767] {
            let period = Duration::from_micros(1);
            let dcqcn = Dcqcn {
                rp_ai_rate: Rate::ZERO,
                rp_hai_rate: Rate::ZERO,
                rp_time_reset: period,
                rp_byte_reset,
                ..Dcqcn::MLX5
            };
            let mut point = ReactionPoint::new(dcqcn, LINE);
            // The second one makes half of the line the target.
            point.notified(at(0));
            until(&mut point, at(4));
            point.notified(at(5));
            let target = point.target();
            assert!(target < LINE);
            let mut turns = 0;
            while let Some(change) = point.next_change() {
                point.change(change);
                turns += 1;
            }
            assert!((1..100).contains(&turns), "{turns}");
            assert!((gbps(point.rate()) / gbps(target) - 1.0).abs() < 1e-8);
            let hour = at(3_600_000_000);
            point.pass(hour);
            assert_eq!((point.timer, point.time_stage), (hour, 3_600_000_000 - 5));
            assert_eq!(point.next_change(), None);
            // Bytes alone raise it where they come to hyper increase, and then the timer does.
            if rp_byte_reset > 0 {
                point.set(Dcqcn { rp_hai_rate: Rate::from_mbps(50), ..dcqcn }, LINE);
                assert_eq!(point.next_change(), None);
                point.sent(2 * rp_byte_reset);
                assert!(point.target() > target);
                assert_eq!(point.next_change(), Some(hour + period));
            }
        }
    }

    #[test]
    fn parameters_that_make_no_sense_break_nothing() {
        let zero = Dcqcn {
            rp_dce_tcp_g: u32::MAX,
            rp_dce_tcp_rtt: Duration::ZERO,
            rp_time_reset: Duration::ZERO,
            rp_byte_reset: 0,
            rp_gd: u32::MAX,
            rp_min_dec_fac: u32::MAX,
            rp_initial_alpha_value: u32::MAX,
            ..Dcqcn::MLX5
        };
        let mut point = ReactionPoint::new(zero, LINE);
        point.notified(at(1));
        point.sent(u64::MAX);
        point.notified(Instant::MAX);
        assert_eq!((point.rate(), point.next_change()), (LINE, None));
        let capped = Dcqcn { rp_max_rate: Rate::from_mbps(10), ..Dcqcn::MLX5 };
        point.set(capped, LINE);
        assert_eq!(point.rate(), Rate::from_mbps(10));
        assert!(point.is_limiting(), "a rate that is asked for is kept without notifications");
    }
}
