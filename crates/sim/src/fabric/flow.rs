//! What hosts send, and to whom.

use crate::rng::Rng;

/// Data from one host to another, by RDMA WRITE on a queue pair of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// The host that sends.
    pub from: usize,
    /// The host that it sends to.
    pub to: usize,
    /// How much; `None` for without end.
    pub bytes: Option<u64>,
    /// When it begins, in picoseconds.
    pub start_ps: u64,
    /// When one without end stops to take in more.
    pub stop_ps: Option<u64>,
}

impl Flow {
    /// One without end.
    pub const fn endless(from: usize, to: usize) -> Self {
        Self { from, to, bytes: None, start_ps: 0, stop_ps: None }
    }
}

/// How long messages are: points of a distribution, bytes and the share in percent that is no
/// longer; between two of them it is linear.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sizes(pub &'static [(u64, f64)]);

impl Sizes {
    /// Web search: Alizadeh et al., DCTCP, SIGCOMM 2010, as simulators have it.
    pub const WEB_SEARCH: Self = Self(&[
        (1, 0.0),
        (10_000, 15.0),
        (20_000, 20.0),
        (30_000, 30.0),
        (50_000, 40.0),
        (80_000, 53.0),
        (200_000, 60.0),
        (1_000_000, 70.0),
        (2_000_000, 80.0),
        (5_000_000, 90.0),
        (10_000_000, 97.0),
        (30_000_000, 100.0),
    ]);

    /// Storage: most requests small, most bytes in blocks of 64 KiB to 4 MiB. The shape is ours:
    /// the DCQCN paper's trace was not published.
    pub const STORAGE: Self = Self(&[
        (512, 0.0),
        (4_096, 35.0),
        (16_384, 55.0),
        (65_536, 75.0),
        (262_144, 88.0),
        (1_048_576, 95.0),
        (4_194_304, 100.0),
    ]);

    /// The one of this name: `web-search`, `storage`.
    pub fn by_name(name: &str) -> Option<Self> {
        match name {
            "web-search" => Some(Self::WEB_SEARCH),
            "storage" => Some(Self::STORAGE),
            _ => None,
        }
    }

    /// A length by chance.
    pub fn draw(&self, chance: &mut Rng) -> u64 {
        let share = fraction(chance) * 100.0;
        let pairs = self.0.iter().zip(&self.0[1..]);
        let (low, high) = pairs
            .min_by(|(_, a), (_, b)| {
                let beyond = |(_, most): &(u64, f64)| if *most < share { 1e9 } else { *most };
                beyond(a).total_cmp(&beyond(b))
            })
            .map_or(((1, 0.0), (1, 100.0)), |(low, high)| (*low, *high));
        let part = (share - low.1) / (high.1 - low.1);
        (low.0 as f64 + part * (high.0 - low.0) as f64).max(1.0) as u64
    }

    /// The mean.
    pub fn mean(&self) -> f64 {
        let pairs = self.0.iter().zip(&self.0[1..]);
        pairs.map(|(low, high)| (high.1 - low.1) / 100.0 * (low.0 + high.0) as f64 / 2.0).sum()
    }
}

/// 0 ≤ and < 1.
fn fraction(chance: &mut Rng) -> f64 {
    chance.below(1 << 53) as f64 / (1_u64 << 53) as f64
}

/// Flows that come at moments that do not depend on each other, from any host to any other.
///
/// Their bytes are `load` of what all hosts can send at `mbps`, until `until_ps`.
pub fn random(
    hosts: usize,
    sizes: &Sizes,
    load: f64,
    mbps: u64,
    until_ps: u64,
    chance: &mut Rng,
) -> Vec<Flow> {
    let bytes_per_ps = mbps as f64 * hosts as f64 * load / 8e6;
    let between = sizes.mean() / bytes_per_ps;
    let mut flows = Vec::new();
    let mut at = 0.0;
    loop {
        at -= between * (1.0 - fraction(chance)).ln();
        if at >= until_ps as f64 || hosts < 2 {
            return flows;
        }
        let from = chance.below(hosts as u64) as usize;
        let to = (from + 1 + chance.below(hosts as u64 - 1) as usize) % hosts;
        let bytes = Some(sizes.draw(chance));
        flows.push(Flow { from, to, bytes, start_ps: at as u64, stop_ps: None });
    }
}

/// Each host sends to one other, and one other to it.
pub fn permutation(hosts: usize, chance: &mut Rng) -> Vec<Flow> {
    let mut order: Vec<usize> = (0..hosts).collect();
    for at in (1..hosts).rev() {
        order.swap(at, chance.below(at as u64 + 1) as usize);
    }
    // In a circle: nobody sends to itself.
    let next = order.iter().cycle().skip(1);
    order.iter().zip(next).map(|(from, to)| Flow::endless(*from, *to)).collect()
}

/// Each host sends to each other.
pub fn all_to_all(hosts: usize) -> Vec<Flow> {
    let pairs = (0..hosts).flat_map(|from| (0..hosts).map(move |to| (from, to)));
    pairs.filter(|(from, to)| from != to).map(|(from, to)| Flow::endless(from, to)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_distributed_as_their_points_say() {
        for sizes in [Sizes::WEB_SEARCH, Sizes::STORAGE] {
            let mut chance = Rng::new(3);
            let drawn: Vec<u64> = (0..40_000).map(|_| sizes.draw(&mut chance)).collect();
            for (bytes, percent) in sizes.0 {
                let shorter = drawn.iter().filter(|drawn| *drawn <= bytes).count() as f64 / 400.0;
                assert!((shorter - percent).abs() < 1.0, "{bytes}: {shorter} %, not {percent} %");
            }
            let mean = drawn.iter().sum::<u64>() as f64 / drawn.len() as f64;
            assert!((mean / sizes.mean() - 1.0).abs() < 0.05, "{mean}, not {}", sizes.mean());
        }
    }

    #[test]
    fn random_flows_have_the_load_that_was_asked_for() {
        let until = 100_000_000_000;
        let flows = random(16, &Sizes::STORAGE, 0.3, 40_000, until, &mut Rng::new(5));
        let bytes: u64 = flows.iter().filter_map(|flow| flow.bytes).sum();
        let load = bytes as f64 * 8e6 / (until as f64 * 40_000.0 * 16.0);
        assert!((load - 0.3).abs() < 0.02, "{load}");
        assert!(flows.iter().all(|flow| flow.from != flow.to && flow.to < 16));
        assert!(flows.is_sorted_by_key(|flow| flow.start_ps));
    }

    #[test]
    fn in_a_permutation_each_sends_and_receives_once() {
        let flows = permutation(50, &mut Rng::new(1));
        let ends = |end: fn(&Flow) -> usize| {
            let mut ends: Vec<usize> = flows.iter().map(end).collect();
            ends.sort_unstable();
            ends
        };
        assert_eq!(ends(|flow| flow.from), Vec::from_iter(0..50));
        assert_eq!(ends(|flow| flow.to), Vec::from_iter(0..50));
        assert!(flows.iter().all(|flow| flow.from != flow.to));
        assert_eq!(all_to_all(4).len(), 12);
    }
}
