//! How long flows with an end took.

use crate::fabric::Fabric;

use super::Setup;
use super::figures::percentile;

/// A flow that was done.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FlowTime {
    /// In which repeat, from 0.
    pub repeat: u32,
    /// The host that sent.
    pub from: usize,
    /// The host that it sent to.
    pub to: usize,
    /// How much.
    pub bytes: u64,
    /// When it began, in microseconds.
    pub start_us: f64,
    /// How long it took, until its last packet was acknowledged, in microseconds.
    pub took_us: f64,
    /// How long it would have taken alone in the network, in microseconds.
    pub alone_us: f64,
}

impl FlowTime {
    /// By how much longer than alone it took.
    pub fn slowdown(&self) -> f64 {
        self.took_us / self.alone_us
    }
}

/// Flows of about the same length, and by how much longer than alone they took.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SizeBin {
    /// The shortest of them, in bytes.
    pub least_bytes: u64,
    /// The longest of them, in bytes.
    pub most_bytes: u64,
    /// How many there are.
    pub flows: usize,
    /// Half of them were not slowed down more.
    pub p50: f64,
    /// 95 of 100 were not.
    pub p95: f64,
    /// 99 of 100 were not.
    pub p99: f64,
}

/// All flows that were done. Those that wait for others are not among them: what they took says
/// nothing of the network alone.
pub(super) fn of(fabric: &Fabric, setup: &Setup, repeat: u32) -> Vec<FlowTime> {
    let flows = fabric.flows().iter().zip(&fabric.progress);
    let time = flows.filter_map(|(flow, progress)| {
        let bytes = flow.bytes.filter(|_| flow.pieces.is_none())?;
        let took = progress.finished_ps?.saturating_sub(flow.start_ps);
        let us = |ps: u64| ps as f64 / 1e6;
        Some(FlowTime {
            repeat,
            from: flow.from,
            to: flow.to,
            bytes,
            start_us: us(flow.start_ps),
            took_us: us(took),
            alone_us: us(fabric.alone_ps(flow, bytes, setup.mtu.into())),
        })
    });
    time.collect()
}

/// By length: as many flows in each, but that those of one length stay together.
pub(super) fn bins(flows: &[FlowTime]) -> Vec<SizeBin> {
    let mut flows = flows.to_vec();
    flows.sort_by_key(|flow| flow.bytes);
    let share = flows.len().div_ceil(BINS).max(1);
    let mut bins = Vec::new();
    let mut rest = &flows[..];
    while !rest.is_empty() {
        let last = rest[share.min(rest.len()) - 1].bytes;
        let (bin, others) = rest.split_at(rest.partition_point(|flow| flow.bytes <= last));
        rest = others;
        let mut slowdowns: Vec<f64> = bin.iter().map(FlowTime::slowdown).collect();
        slowdowns.sort_by(f64::total_cmp);
        let [p50, p95, p99] = [50, 95, 99].map(|percent| percentile(&slowdowns, percent));
        let (least_bytes, most_bytes, flows) = (bin[0].bytes, last, bin.len());
        bins.push(SizeBin { least_bytes, most_bytes, flows, p50, p95, p99 });
    }
    bins
}

/// Flows as CSV.
pub fn flows_csv(flows: &[FlowTime]) -> String {
    let mut text = "repeat,from,to,bytes,start_us,took_us,alone_us,slowdown\n".to_owned();
    for flow in flows {
        let FlowTime { repeat, from, to, bytes, start_us, took_us, alone_us } = flow;
        let slowdown = flow.slowdown();
        text += &format!(
            "{repeat},{from},{to},{bytes},{start_us:.3},{took_us:.3},{alone_us:.3},{slowdown:.3}\n"
        );
    }
    text
}

/// Into so many parts flows are told apart by their length.
const BINS: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(bytes: u64, took_us: f64) -> FlowTime {
        let (repeat, from, to, start_us, alone_us) = (0, 1, 2, 0.5, 2.0);
        FlowTime { repeat, from, to, bytes, start_us, took_us, alone_us }
    }

    #[test]
    fn flows_of_one_length_stay_together_and_the_others_are_dealt_evenly() {
        let mut flows: Vec<FlowTime> = (1..=200).map(|at| flow(1000 + at, 2.0)).collect();
        flows.extend([flow(64, 4.0); 100]);
        let bins = bins(&flows);
        assert_eq!((bins[0].least_bytes, bins[0].most_bytes, bins[0].flows), (64, 64, 100));
        assert_eq!((bins[0].p50, bins[0].p99), (2.0, 2.0));
        assert_eq!(bins.len(), 1 + 200_usize.div_ceil(15));
        assert!(bins[1..bins.len() - 1].iter().all(|bin| bin.flows == 15 && bin.p99 == 1.0));
        assert_eq!(bins.iter().map(|bin| bin.flows).sum::<usize>(), 300);
        assert!(super::bins(&[]).is_empty());
    }

    #[test]
    fn flows_are_written_with_commas() {
        let text = flows_csv(&[flow(64, 3.0)]);
        let line = "0,1,2,64,0.500,3.000,2.000,1.500";
        assert_eq!(
            text,
            format!("repeat,from,to,bytes,start_us,took_us,alone_us,slowdown\n{line}\n")
        );
    }
}
