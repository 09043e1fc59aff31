//! What congestion control does while something is measured: `--cc`.
//!
//! A thread looks at the queue pairs once a second, and when it is over; what is measured does not
//! wait for it.

use std::io;
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use roxe_verbs::congestion::{CongestionControl, Rate};
use roxe_verbs::{Context, DeviceString, QueuePair};

use crate::outcome::complain;

/// What `--cc` says.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Control {
    pub(crate) name: String,
    pub(crate) control: CongestionControl,
}

/// One of the names that a device's option `cc=` has.
pub(crate) fn control(name: &str) -> Result<Control, String> {
    let device = format!("memory:perf,cc={}", name.replace(',', " ")).parse::<DeviceString>();
    let device = device.map_err(|error| error.what.replacen("cc=", "", 1))?;
    Ok(Control { name: name.to_owned(), control: device.congestion.control })
}

/// What an adapter has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Packets that came marked.
    pub(crate) marks: u64,
    /// Notifications that its queue pairs have obeyed.
    pub(crate) handled: u64,
}

impl Counts {
    pub(crate) fn of(context: &Context) -> Self {
        let mut counts = Self::default();
        for (name, value) in context.counters() {
            match name {
                "np_ecn_marked_roce_packets" => counts.marks = value,
                "rp_cnp_handled" => counts.handled = value,
                _ => {}
            }
        }
        counts
    }

    /// What was counted after `before`.
    pub(crate) const fn since(self, before: Self) -> Self {
        let marks = self.marks.saturating_sub(before.marks);
        Self { marks, handled: self.handled.saturating_sub(before.handled) }
    }
}

/// A value of all queue pairs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    pub(crate) mean: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Spread {
    /// Of these; `None` of none.
    fn of(values: impl Iterator<Item = f64> + Clone) -> Option<Self> {
        let min = values.clone().min_by(f64::total_cmp)?;
        let max = values.clone().max_by(f64::total_cmp)?;
        let mean = values.clone().sum::<f64>() / values.count() as f64;
        Some(Self { mean, min, max })
    }
}

/// One look at the queue pairs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Look {
    /// Since the measurement began.
    pub(crate) time: Duration,
    /// How fast they may send, in Gb/s.
    pub(crate) rate: Spread,
    /// By DCQCN: the rate that they go back to, in Gb/s, and alpha.
    pub(crate) dcqcn: Option<[Spread; 2]>,
    /// Notifications that they have obeyed since the measurement began.
    pub(crate) handled: u64,
}

impl Look {
    /// `None` if nothing controls them.
    fn at(time: Duration, queue_pairs: &[QueuePair], handled: u64) -> Option<Self> {
        let gigabits = |rate: Rate| rate.bits_per_second() / 1e9;
        let controllers: Vec<_> = queue_pairs.iter().filter_map(QueuePair::controller).collect();
        let rate = Spread::of(controllers.iter().map(|it| gigabits(it.rate())))?;
        let points: Vec<_> = queue_pairs.iter().filter_map(QueuePair::reaction_point).collect();
        let target = Spread::of(points.iter().map(|it| gigabits(it.target())));
        let alpha = Spread::of(points.iter().map(|it| it.alpha()));
        let dcqcn = target.zip(alpha).map(|(target, alpha)| [target, alpha]);
        Some(Self { time, rate, dcqcn, handled })
    }
}

/// Measures by `run`, and meanwhile shows once a second, and at the end, what the queue pairs do.
pub(crate) fn watched<R>(
    context: &Context,
    queue_pairs: &[QueuePair],
    show: impl Fn(&Look) -> io::Result<()> + Sync,
    run: impl FnOnce() -> R,
) -> R {
    let (is_over, wakes) = (Mutex::new(false), Condvar::new());
    let watch = || {
        let (start, before) = (Instant::now(), Counts::of(context));
        let mut next = SECOND;
        let mut over = false;
        while !over {
            let held = is_over.lock().unwrap_or_else(PoisonError::into_inner);
            let rest = next.saturating_sub(start.elapsed());
            let waited = wakes.wait_timeout_while(held, rest, |over| !*over);
            over = *waited.unwrap_or_else(PoisonError::into_inner).0;
            next += SECOND;
            let handled = Counts::of(context).since(before).handled;
            let look = Look::at(start.elapsed(), queue_pairs, handled);
            if let Some(Err(error)) = look.map(|look| show(&look)) {
                return complain(format_args!("rates cannot be shown: {error}"));
            }
        }
    };
    thread::scope(|scope| {
        scope.spawn(watch);
        let result = run();
        *is_over.lock().unwrap_or_else(PoisonError::into_inner) = true;
        wakes.notify_all();
        result
    })
}

const SECOND: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_device_option() {
        assert_eq!(control("none").map(|it| it.control), Ok(CongestionControl::None));
        assert!(matches!(control("dcqcn-paper").unwrap().control, CongestionControl::Dcqcn(_)));
        for wrong in ["fast", "", "dcqcn,rate=1"] {
            let why = control(wrong).unwrap_err();
            assert!(why.contains("not one of none, dcqcn, "), "{why}");
        }
    }

    #[test]
    fn a_spread_has_the_least_the_most_and_the_mean() {
        let spread = Spread::of([3.0, 1.0, 2.0].into_iter());
        assert_eq!(spread, Some(Spread { mean: 2.0, min: 1.0, max: 3.0 }));
        assert_eq!(Spread::of(std::iter::empty()), None);
    }
}
