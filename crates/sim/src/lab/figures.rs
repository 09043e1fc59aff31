//! What a run is judged by.

use crate::fabric::flow::Pieces;
use crate::fabric::{Fabric, Sample};

use super::Setup;
use super::completion::FlowTime;

/// A figure of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// Its name, with the unit behind it.
    pub name: String,
    /// What it was.
    pub value: f64,
}

/// What was seen from time to time, as a table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    /// The names of the columns.
    pub columns: Vec<String>,
    /// A row a moment.
    pub rows: Vec<Vec<f64>>,
}

impl Series {
    /// Queue, pauses, fairness and rates over time.
    pub(super) fn of(fabric: &Fabric) -> Self {
        let flows = fabric.samples.first().map_or(0, |sample| sample.delivered.len());
        let names = ["time_us", "queue_kb", "pauses", "paused_ports", "jain"].map(str::to_owned);
        let rates = (0..flows).map(|flow| format!("flow{flow}_gbps"));
        let columns = names.into_iter().chain(rates).collect();
        let mut samples = vec![Sample { delivered: vec![0; flows], ..Sample::default() }];
        samples.extend_from_slice(&fabric.samples);
        let row = |at: usize| {
            let (before, sample) = (&samples[at - 1], &samples[at]);
            let time = (sample.at_ps - before.at_ps).max(1) as f64;
            let long_ago = sample.at_ps.saturating_sub(FAIR_PS);
            let first = samples[..at].partition_point(|sample| sample.at_ps < long_ago);
            let first = &samples[first.min(at - 1)];
            let head = [
                sample.at_ps as f64 / 1e6,
                sample.waiting as f64 / 1e3,
                (sample.pauses - before.pauses) as f64,
                (sample.paused_ps - before.paused_ps) as f64 / time,
                jain(&rates_of_those_there(fabric, first, sample)),
            ];
            head.into_iter().chain(rates_between(before, sample)).collect()
        };
        Self { rows: (1..samples.len()).map(row).collect(), columns }
    }

    /// The table as CSV.
    pub fn csv(&self) -> String {
        let mut text = self.columns.join(",") + "\n";
        for row in &self.rows {
            let cells: Vec<String> = row.iter().map(|value| format!("{value:.3}")).collect();
            text += &cells.join(",");
            text.push('\n');
        }
        text
    }
}

/// Payload in Gb/s of each flow between two moments.
fn rates_between(before: &Sample, after: &Sample) -> Vec<f64> {
    let time = (after.at_ps - before.at_ps).max(1) as f64;
    let pairs = before.delivered.iter().zip(&after.delivered);
    pairs.map(|(before, after)| (after - before) as f64 * 8000.0 / time).collect()
}

/// The same of those flows alone that were there all the time.
fn rates_of_those_there(fabric: &Fabric, before: &Sample, after: &Sample) -> Vec<f64> {
    let rates = rates_between(before, after).into_iter();
    let flows = rates.zip(fabric.flows()).zip(&fabric.progress);
    let there = flows.filter(|((_, flow), progress)| {
        flow.start_ps <= before.at_ps && progress.finished_ps.is_none_or(|end| end >= after.at_ps)
    });
    there.map(|((rate, _), _)| rate).collect()
}

/// Jain's index: 1 when all are equal, 1/n when one has everything.
fn jain(rates: &[f64]) -> f64 {
    let sum: f64 = rates.iter().sum();
    let squares: f64 = rates.iter().map(|rate| rate * rate).sum();
    if squares == 0.0 { 0.0 } else { sum * sum / (rates.len() as f64 * squares) }
}

/// The value that so many percent are not above; they are sorted.
pub(super) fn percentile(sorted: &[f64], percent: usize) -> f64 {
    let at = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
    sorted.get(at).copied().unwrap_or_default()
}

/// All figures of a run.
pub(super) fn of(fabric: &Fabric, setup: &Setup, flows: &[FlowTime]) -> Vec<Figure> {
    let mut figures = Vec::new();
    let mut put = |name: &str, value: f64| figures.push(Figure { name: name.to_owned(), value });
    let first = fabric.samples.iter().rposition(|sample| sample.at_ps <= setup.begin_ps());
    let measured = &fabric.samples[first.unwrap_or_default()..];
    if let (Some(first), Some(last)) = (measured.first(), measured.last()) {
        let time = (last.at_ps - first.at_ps).max(1) as f64;
        put("utilisation", (last.sent - first.sent) as f64 * 8000.0 / time / setup.gbps);
        let mut queue: Vec<f64> = measured.iter().map(|at| at.waiting as f64 / 1e3).collect();
        put("queue_mean_kb", queue.iter().sum::<f64>() / queue.len() as f64);
        queue.sort_by(f64::total_cmp);
        put("queue_p99_kb", percentile(&queue, 99));
        put("queue_max_kb", fabric.longest as f64 / 1e3);
        let rates = rates_between(first, last);
        if !rates.is_empty() {
            put("jain", jain(&rates));
            put("goodput_gbps", rates.iter().sum());
            put("least_gbps", rates.iter().copied().fold(f64::INFINITY, f64::min));
            put("most_gbps", rates.iter().copied().fold(0.0, f64::max));
        }
        if rates.len() <= SHOWN {
            for (flow, rate) in rates.iter().enumerate() {
                put(&format!("flow{flow}_gbps"), *rate);
            }
        }
    }
    let heard = fabric.heard;
    let switches = heard.edge + heard.aggregation + heard.spine;
    put("pauses", (heard.hosts + switches) as f64);
    put("host_pauses", heard.hosts as f64);
    put("switch_pauses", switches as f64);
    put("edge_pauses", heard.edge as f64);
    put("aggregation_pauses", heard.aggregation as f64);
    put("spine_pauses", heard.spine as f64);
    let totals = fabric.totals();
    put("paused_ms", totals.paused_ps as f64 / 1e9);
    put("dropped", totals.dropped as f64);
    put("marked", totals.marked as f64);
    put("notifications", totals.notifications as f64);
    put("deadlocks", f64::from(u8::from(fabric.deadlock.is_some())));
    put("failed", fabric.progress.iter().filter(|flow| flow.failed).count() as f64);
    for (name, from, below) in SIZES {
        let of_it = flows.iter().filter(|flow| (*from..*below).contains(&flow.bytes));
        let mut slowdowns: Vec<f64> = of_it.map(FlowTime::slowdown).collect();
        if !slowdowns.is_empty() {
            slowdowns.sort_by(f64::total_cmp);
            put(&format!("slowdown_{name}_p50"), percentile(&slowdowns, 50));
            put(&format!("slowdown_{name}_p99"), percentile(&slowdowns, 99));
        }
    }
    let finite = fabric.flows().iter().filter(|flow| flow.bytes.is_some()).count();
    if finite > 0 {
        let finished = fabric.progress.iter().filter(|flow| flow.finished_ps.is_some()).count();
        put("finished", finished as f64 / finite as f64);
    }
    if let Some((round_us, alone_us)) = all_reduce(fabric, setup) {
        put("all_reduce_us", round_us);
        put("all_reduce_slowdown", round_us / alone_us);
        let ranks = (fabric.hosts() / setup.rings) as f64;
        let bytes = setup.bytes.unwrap_or_default() as f64;
        put("bus_gbps", 2.0 * (ranks - 1.0) / ranks * bytes * 8e-3 / round_us);
    }
    figures
}

/// How long a round of all rings took, and how long it takes at least: as many steps as pieces,
/// one after the other around the ring, each as long as a piece takes to arrive. Microseconds.
fn all_reduce(fabric: &Fabric, setup: &Setup) -> Option<(f64, f64)> {
    let mut rings: Vec<Vec<u64>> = Vec::new();
    let mut steps = 0;
    for (number, flow) in fabric.flows().iter().enumerate() {
        let Some(Pieces { bytes, after }) = flow.pieces else { continue };
        // The first of a ring comes after its last.
        if after > number {
            rings.push(Vec::new());
        }
        rings.last_mut()?.push(fabric.arrival_ps(flow, bytes, setup.mtu.into()));
        steps = flow.bytes? / bytes;
    }
    let alone = rings.iter().map(|ring| longest_chain(ring, steps)).max()?;
    let ends = fabric.progress.iter().map(|flow| flow.finished_ps);
    let end = ends.collect::<Option<Vec<u64>>>()?.into_iter().max()?;
    let round = |ps: u64| ps as f64 / 1e6 / setup.rounds as f64;
    Some((round(end), round(alone)))
}

/// By which lengths messages are told apart: bytes, from and below.
pub(super) const SIZES: &[(&str, u64, u64)] = &[
    ("all", 0, u64::MAX),
    ("small", 0, 10_000),
    ("medium", 10_000, 1_000_000),
    ("large", 1_000_000, u64::MAX),
];

/// The most that so many steps take, one after the other around a ring, wherever they begin.
fn longest_chain(ring: &[u64], steps: u64) -> u64 {
    let count = ring.len();
    let (rounds, rest) = (steps / count as u64, steps as usize % count);
    let from = |first: usize| (first..first + rest).map(|at| ring[at % count]).sum::<u64>();
    let around = ring.iter().sum::<u64>();
    let rest = (0..count).map(from).max().unwrap_or_default();
    // The longest that is allowed takes longer than 64 bits of picoseconds, half a year.
    rounds.saturating_mul(around).saturating_add(rest)
}

/// Over so long rates are compared, in picoseconds: 1 ms, in which slow flows send many packets.
const FAIR_PS: u64 = 1_000_000_000;

/// Of so many flows each has its own figure.
pub(super) const SHOWN: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fairness_and_percentiles_are_what_their_formulas_say() {
        assert_eq!((jain(&[3.0, 3.0, 3.0]), jain(&[0.0, 0.0, 6.0, 0.0])), (1.0, 0.25));
        assert_eq!(jain(&[0.0]), 0.0);
        let hundred: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!([50, 99, 100].map(|at| percentile(&hundred, at)), [50.0, 99.0, 100.0]);
        assert_eq!((percentile(&[7.0], 50), percentile(&[], 50)), (7.0, 0.0));
    }

    #[test]
    fn steps_around_a_ring_take_each_way_in_turn() {
        assert_eq!(longest_chain(&[1, 10, 100], 3), 111);
        assert_eq!(longest_chain(&[1, 10, 100], 4), 211);
        assert_eq!(longest_chain(&[1, 10, 100], 8), 332, "two around, then 100 and 10");
        assert_eq!(longest_chain(&[5, 7], 2), 12);
        assert_eq!(longest_chain(&[1 << 40; 4], 1 << 40), u64::MAX);
    }

    #[test]
    fn a_table_is_written_with_commas() {
        let series = Series { columns: vec!["a".into(), "b".into()], rows: vec![vec![1.0, 0.5]] };
        assert_eq!(series.csv(), "a,b\n1.000,0.500\n");
    }
}
