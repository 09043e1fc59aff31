//! TIMELY beside a second one, written in another language from the paper's listing:
//! `tests/congestion/timely.py`. 1,000 random sequences of round trips.

use std::time::Duration;

use model::Numbers;
use roxe_transport::congestion::timely::RateEngine;
use roxe_transport::congestion::{Rate, Timely};

mod model;

const SEQUENCES: u64 = 1000;
const COMPLETIONS: usize = 100;

/// The paper's parameters, mostly with some of them changed.
fn parameters(numbers: &mut Numbers) -> Timely {
    if numbers.below(4) == 0 {
        return Timely::PAPER;
    }
    let micros = |numbers: &mut Numbers, all: &[u64]| Duration::from_micros(numbers.one_of(all));
    Timely {
        alpha: numbers.one_of(&[0.875, 0.5, 0.02, 1.0]),
        beta: numbers.one_of(&[0.8, 0.26, 0.01]),
        delta: Rate::from_mbps(numbers.one_of(&[10, 40, 500])),
        t_low: micros(numbers, &[50, 10, 0]),
        t_high: micros(numbers, &[500, 200, 60]),
        min_rtt: micros(numbers, &[20, 100]),
        n: numbers.one_of(&[5, 1, 10]),
        hai_thresh: numbers.one_of(&[5, 1, 3]),
        min_rate: Rate::from_mbps(numbers.one_of(&[10, 100])),
        ..Timely::PAPER
    }
}

/// Round trips in nanoseconds: of a queue that walks up and down, sometimes the same again.
fn round_trips(numbers: &mut Numbers) -> Vec<u64> {
    let mut rtt = 1000 * numbers.one_of(&[20, 100, 600]);
    let step = |_| {
        let furthest = numbers.one_of(&[1, 2_000, 20_000, 300_000]);
        let (up, down) = (numbers.below(furthest), numbers.below(furthest));
        rtt = (rtt + up).saturating_sub(down).clamp(1_000, 2_000_000);
        rtt
    };
    (0..COMPLETIONS).map(step).collect()
}

fn line(timely: &Timely, line_rate: Rate, rtts: &[u64]) -> String {
    let mbps = |rate: Rate| rate.bits_per_second() / 1e6;
    let Timely { alpha, beta, delta, t_low, t_high, min_rtt, n, hai_thresh, min_rate, .. } = timely;
    format!(
        r#"{{"line_rate": {:?}, "alpha": {alpha:?}, "beta": {beta:?}, "delta": {:?},
"t_low": {}, "t_high": {}, "min_rtt": {}, "n": {n}, "hai_thresh": {hai_thresh},
"min_rate": {:?}, "rtts": {rtts:?}}}"#,
        mbps(line_rate),
        mbps(*delta),
        t_low.as_nanos(),
        t_high.as_nanos(),
        min_rtt.as_nanos(),
        mbps(*min_rate),
    )
    .replace('\n', " ")
}

#[test]
fn rates_are_what_the_listing_gives() {
    let mut sequences = Vec::new();
    let mut input = String::new();
    for seed in 0..SEQUENCES {
        let mut numbers = Numbers(seed);
        let line_rate = Rate::from_mbps(numbers.one_of(&[1_000, 10_000, 400_000]));
        let (timely, rtts) = (parameters(&mut numbers), round_trips(&mut numbers));
        input += &line(&timely, line_rate, &rtts);
        input.push('\n');
        sequences.push((timely, line_rate, rtts));
    }
    let text = model::ask("timely", input);
    let mut compared = 0;
    let mut moved = 0;
    for ((timely, line_rate, rtts), theirs) in sequences.iter().zip(text.lines()) {
        let mut engine = RateEngine::new(*timely, *line_rate);
        let theirs = model::numbers(theirs);
        for (at, (rtt, theirs)) in rtts.iter().zip(theirs).enumerate() {
            let before = engine.rate();
            engine.completed(Duration::from_nanos(*rtt));
            let ours = engine.rate().bits_per_second() / 1e6;
            let off = (ours - theirs).abs() / theirs;
            assert!(off < 1e-6, "completion {at}: {ours}, not {theirs}: {timely:?}");
            compared += 1;
            moved += usize::from(engine.rate() != before);
        }
    }
    assert_eq!(compared, SEQUENCES as usize * COMPLETIONS);
    assert!(moved > compared / 2, "{moved}");
}
