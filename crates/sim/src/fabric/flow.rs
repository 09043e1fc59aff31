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
    /// It is sent on piece by piece, as another flow brings them.
    pub pieces: Option<Pieces>,
}

/// How data is sent on: a WRITE with immediate a piece, so that its receiver knows of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pieces {
    /// A piece.
    pub bytes: u64,
    /// Each but the first waits until one more of this flow, by its number, has arrived.
    pub after: usize,
}

impl Flow {
    /// One without end.
    pub const fn endless(from: usize, to: usize) -> Self {
        Self { from, to, bytes: None, start_ps: 0, stop_ps: None, pieces: None }
    }
}

/// How long messages are: points of a distribution, bytes and the share in percent that is no
/// longer; between two of them it is linear. Two points of the same bytes are a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sizes(pub &'static [(u64, f64)]);

/// Each by its name.
const SIZES: &[(&str, Sizes)] = &[
    ("web-search", Sizes::WEB_SEARCH),
    ("hadoop", Sizes::HADOOP),
    ("storage", Sizes::STORAGE),
    ("ml", Sizes::ML),
];

impl Sizes {
    /// Web search: `WebSearch_distribution.txt` of alibaba-edu/High-Precision-Congestion-Control,
    /// which the HPCC paper (Li et al., SIGCOMM 2019) is evaluated with.
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

    /// Facebook's Hadoop: `FbHdp_distribution.txt` of the same.
    pub const HADOOP: Self = Self(&[
        (1, 0.0),
        (100, 1.0),
        (200, 2.0),
        (300, 5.0),
        (350, 15.0),
        (400, 20.0),
        (500, 30.0),
        (600, 40.0),
        (700, 50.0),
        (1_000, 60.0),
        (2_000, 67.0),
        (7_000, 70.0),
        (30_000, 72.0),
        (50_000, 82.0),
        (80_000, 87.0),
        (120_000, 90.0),
        (300_000, 95.0),
        (1_000_000, 97.5),
        (2_000_000, 99.0),
        (10_000_000, 100.0),
    ]);

    /// Distributed storage: `AliStorage2019.txt` of the same, which says that it was collected in
    /// Alibaba's production in 2019.
    pub const STORAGE: Self = Self(&[
        (1, 0.0),
        (4_000, 22.93),
        (8_000, 69.21),
        (16_000, 80.61),
        (32_000, 90.47),
        (64_000, 93.53),
        (128_000, 96.77),
        (256_000, 97.53),
        (2_000_000, 100.0),
    ]);

    /// Training: what each of 128 ranks sends of the tensors of a layer of Llama 7B, each by itself
    /// (ZeRO stage 3), as a ring does: a 128th of 2 × 8,192 B, 4 × 33,554,432 B and
    /// 3 × 90,177,536 B. The tensors are those of `L7B-D1-C02_Llama7B_zero3_mbs1.csv` of
    /// aliyun/aicb.
    pub const ML: Self = Self(&[
        (64, 0.0),
        (64, 200.0 / 9.0),
        (262_144, 200.0 / 9.0),
        (262_144, 600.0 / 9.0),
        (704_512, 600.0 / 9.0),
        (704_512, 100.0),
    ]);

    /// The one of this name: `web-search`, `hadoop`, `storage`, `ml`.
    pub fn by_name(name: &str) -> Option<Self> {
        SIZES.iter().find(|(known, _)| *known == name).map(|(_, sizes)| *sizes)
    }

    /// All names.
    pub fn names() -> impl Iterator<Item = &'static str> {
        SIZES.iter().map(|(name, _)| *name)
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
        flows.push(Flow { bytes, start_ps: at as u64, ..Flow::endless(from, to) });
    }
}

/// Each host sends to one other, and one other to it.
pub fn permutation(hosts: usize, chance: &mut Rng) -> Vec<Flow> {
    let mut order: Vec<usize> = (0..hosts).collect();
    shuffle(&mut order, chance);
    // In a circle: nobody sends to itself.
    let next = order.iter().cycle().skip(1);
    order.iter().zip(next).map(|(from, to)| Flow::endless(*from, *to)).collect()
}

/// Rings, each of which adds up `bytes` of each of its hosts and hands out the sums, `rounds`
/// times.
///
/// Host h is in ring h modulo `rings`. In a ring of n hosts each sends 2 (n - 1) pieces of a n-th
/// of the bytes to the next one: first one of its own, then what it got of the one before, n - 1
/// of them added up and n - 1 of them only passed on. Hosts are in their order, or `shuffled`.
pub fn all_reduce(
    hosts: usize,
    rings: usize,
    bytes: u64,
    rounds: u64,
    shuffled: bool,
    chance: &mut Rng,
) -> Vec<Flow> {
    let mut flows = Vec::new();
    for ring in 0..rings {
        let mut members: Vec<usize> = (ring..hosts).step_by(rings).collect();
        if shuffled {
            shuffle(&mut members, chance);
        }
        let (count, first) = (members.len(), flows.len());
        let piece = bytes.div_ceil(count as u64).max(1);
        let all = piece * 2 * (count as u64 - 1) * rounds;
        for (place, from) in members.iter().enumerate() {
            let to = members[(place + 1) % count];
            let pieces = Pieces { bytes: piece, after: first + (place + count - 1) % count };
            let flow = Flow::endless(*from, to);
            flows.push(Flow { bytes: Some(all), pieces: Some(pieces), ..flow });
        }
    }
    flows
}

fn shuffle(order: &mut [usize], chance: &mut Rng) {
    for at in (1..order.len()).rev() {
        order.swap(at, chance.below(at as u64 + 1) as usize);
    }
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
        assert_eq!(Sizes::by_name("nobody"), None);
        for (_, sizes) in SIZES {
            let mut chance = Rng::new(3);
            let drawn: Vec<u64> = (0..40_000).map(|_| sizes.draw(&mut chance)).collect();
            for (bytes, _) in sizes.0 {
                let of_it = sizes.0.iter().filter(|(other, _)| other == bytes);
                let percent = of_it.map(|(_, percent)| *percent).fold(0.0, f64::max);
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
    fn rings_hand_on_what_the_host_before_sends() {
        for shuffled in [false, true] {
            let flows = all_reduce(10, 2, 1000, 3, shuffled, &mut Rng::new(7));
            assert_eq!(flows.len(), 10);
            for (ring, flows) in flows.chunks(5).enumerate() {
                for flow in flows {
                    let Pieces { bytes, after } = flow.pieces.unwrap();
                    assert_eq!((bytes, flow.bytes), (200, Some(200 * 8 * 3)));
                    assert_eq!(flows[after - ring * 5].to, flow.from);
                    assert_eq!((flow.from % 2, flow.to % 2), (ring, ring));
                }
            }
        }
        let order: Vec<usize> =
            all_reduce(4, 1, 8, 1, false, &mut Rng::new(1)).iter().map(|flow| flow.to).collect();
        assert_eq!(order, [1, 2, 3, 0]);
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
