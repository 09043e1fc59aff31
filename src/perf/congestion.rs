//! What congestion control does while something is measured: `--cc`.
//!
//! A thread looks at the queue pairs, and tells once a second, and at the end, what it saw since it
//! told last; what is measured does not wait for it.

use std::io;
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use roxe_verbs::congestion::{CongestionControl, Rate};
use roxe_verbs::{Context, DeviceString, QueuePair};

use crate::outcome::complain;

/// What `--cc` says: one of the names that a device's option `cc=` has.
pub(crate) fn control(name: &str) -> Result<CongestionControl, String> {
    let device = format!("memory:perf,cc={}", name.replace(',', " ")).parse::<DeviceString>();
    let device = device.map_err(|error| error.what.replacen("cc=", "", 1))?;
    Ok(device.congestion.control)
}

/// What controls queue pairs of an adapter whose own `cc=` is `own`: if `--cc` says the same name,
/// the adapter's parameters are meant. Behind it, a sentence if others of the adapter's do not
/// count.
pub(crate) fn chosen(
    own: CongestionControl,
    asked: Option<CongestionControl>,
) -> (CongestionControl, Option<String>) {
    let Some(asked) = asked.filter(|asked| asked.name() != own.name()) else { return (own, None) };
    let (asks, has) = (asked.name(), own.name());
    let told = (has.parse() != Ok(own)).then(|| {
        format!(
            "--cc {asks} is not cc={has}: parameters that the adapter has for that do not count"
        )
    });
    (asked, told)
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

/// What a value was, of all queue pairs, as often as it was looked at.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    sum: f64,
    count: u32,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Spread {
    /// Of nothing yet.
    const NONE: Self = Self { sum: 0.0, count: 0, min: f64::INFINITY, max: 0.0 };

    pub(crate) fn add(&mut self, value: f64) {
        self.sum += value;
        self.count += 1;
        (self.min, self.max) = (self.min.min(value), self.max.max(value));
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(crate) fn mean(&self) -> f64 {
        self.sum / f64::from(self.count)
    }
}

/// What the queue pairs did for a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Look {
    /// Since the measurement began.
    pub(crate) time: Duration,
    /// How fast they may send, in Gb/s.
    pub(crate) rate: Spread,
    /// The rate that they go back to, in Gb/s, and alpha: of none that DCQCN does not control.
    pub(crate) target: Spread,
    pub(crate) alpha: Spread,
    /// Notifications that they have obeyed so far.
    pub(crate) handled: u64,
}

impl Look {
    pub(crate) const NONE: Self = Self {
        time: Duration::ZERO,
        rate: Spread::NONE,
        target: Spread::NONE,
        alpha: Spread::NONE,
        handled: 0,
    };

    /// Looks once more.
    fn add(&mut self, queue_pairs: &[QueuePair]) {
        let gigabits = |rate: Rate| rate.bits_per_second() / 1e9;
        for controller in queue_pairs.iter().filter_map(QueuePair::controller) {
            self.rate.add(gigabits(controller.rate()));
        }
        for point in queue_pairs.iter().filter_map(QueuePair::reaction_point) {
            self.target.add(gigabits(point.target()));
            self.alpha.add(point.alpha());
        }
    }
}

/// Measures by `run`, and meanwhile shows once a second, and at the end, what the queue pairs do;
/// the counts are those since `before`.
pub(crate) fn watched<R>(
    context: &Context,
    before: Counts,
    queue_pairs: &[QueuePair],
    show: impl Fn(&Look) -> io::Result<()> + Sync,
    run: impl FnOnce() -> R,
) -> R {
    let (is_over, wakes) = (Mutex::new(false), Condvar::new());
    // The thread may begin when it is over.
    let start = Instant::now();
    let watch = || {
        let (mut look, mut next, mut over) = (Look::NONE, SECOND, false);
        while !over {
            let held = is_over.lock().unwrap_or_else(PoisonError::into_inner);
            let waited = wakes.wait_timeout_while(held, PAUSE, |over| !*over);
            over = *waited.unwrap_or_else(PoisonError::into_inner).0;
            look.add(queue_pairs);
            look.time = start.elapsed();
            if look.rate.is_empty() || look.time < next && !over {
                continue;
            }
            look.handled = Counts::of(context).since(before).handled;
            if let Err(error) = show(&look) {
                return complain(format_args!("rates cannot be shown: {error}"));
            }
            (look, next) = (Look::NONE, next + SECOND);
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

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_device_option() {
        assert_eq!(control("none"), Ok(CongestionControl::None));
        assert_eq!(control("dcqcn-paper").unwrap().name(), "dcqcn-paper");
        for wrong in ["fast", "", "dcqcn,rate=1"] {
            let why = control(wrong).unwrap_err();
            assert!(why.contains("not one of none, dcqcn, "), "{why}");
        }
    }

    #[test]
    fn parameters_of_the_adapter_hold_for_what_it_says_itself() {
        let [dcqcn, paper] = ["dcqcn", "dcqcn-paper"].map(|name| control(name).unwrap());
        let mut own = paper;
        own.set("rp_max_rate", "100M").unwrap();
        assert_eq!(chosen(own, None), (own, None));
        assert_eq!(chosen(own, Some(paper)), (own, None));
        let told = "--cc dcqcn is not cc=dcqcn-paper: parameters that the adapter has for that do \
                    not count";
        assert_eq!(chosen(own, Some(dcqcn)), (dcqcn, Some(told.to_owned())));
        let none = CongestionControl::None;
        assert_eq!(chosen(paper, Some(none)), (none, None), "it has no parameters of its own");
        assert_eq!(chosen(none, Some(dcqcn)), (dcqcn, None));
    }

    #[test]
    fn a_spread_has_the_least_the_most_and_the_mean() {
        let mut spread = Spread::NONE;
        [3.0, 1.0, 2.0].into_iter().for_each(|value| spread.add(value));
        assert_eq!((spread.mean(), spread.min, spread.max), (2.0, 1.0, 3.0));
    }
}
