//! How a run is built: the words of a file, and the network that they mean.

use std::collections::BTreeMap;
use std::time::Duration;

use roxe_device::Congestion;
use roxe_transport::congestion::{
    Burst, CongestionControl, Dcqcn, NotificationPoint, Rate, UnknownControl,
};
use roxe_wire::Mtu;
use serde::Deserialize;
use toml::Value;

use crate::fabric::flow::{self, Flow, Sizes};
use crate::fabric::switch::{Marking, SwitchSettings};
use crate::fabric::topology::{Clos, Like, Topology};
use crate::fabric::{HostSettings, Settings};
use crate::rng::Rng;

/// What is built and what it does. `tests/labs/README.md` says what each word means.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[expect(missing_docs, reason = "the words are explained where files are written")]
pub struct Setup {
    pub topology: Shape,
    pub hosts: usize,
    pub pairs: usize,
    pub switches: usize,
    pub leaves: usize,
    pub spines: usize,
    pub hosts_per_edge: usize,
    pub pods: usize,
    pub edges: usize,
    pub aggregations: usize,
    pub k: usize,
    pub gbps: f64,
    pub delay_ns: u64,

    pub buffer_kb: u64,
    pub headroom_kb: u64,
    pub alpha: f64,
    pub xon_offset_kb: u64,
    pub pfc: bool,
    pub ecn: bool,
    pub kmin_kb: u64,
    pub kmax_kb: u64,
    pub pmax: f64,

    pub mtu: u32,
    pub window: u32,
    pub burst_kb: u32,
    pub congestion: Control,
    pub parameters: BTreeMap<String, Value>,

    pub workload: Workload,
    pub senders: usize,
    pub list: Vec<(usize, usize)>,
    pub bytes: Option<u64>,
    pub stagger_us: f64,
    pub rings: usize,
    pub rounds: u64,
    pub shuffled: bool,
    pub sizes: String,
    pub load: f64,
    pub burst_degree: usize,
    pub burst_bytes: u64,
    pub burst_every_us: f64,

    pub milliseconds: f64,
    pub from_ms: f64,
    pub sample_us: f64,
    pub repeats: u32,
    pub seed: u64,
}

/// The form of a network.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Shape {
    /// All at one switch.
    Star,
    /// Two switches.
    Dumbbell,
    /// Switches in a row.
    ParkingLot,
    /// Switches in a circle.
    Ring,
    /// Two tiers.
    LeafSpine,
    /// Three tiers.
    Clos,
    /// Three tiers of equal switches.
    FatTree,
}

/// What controls queue pairs, by its name. `paper` and `mlx5` are DCQCN with the paper's parameters
/// and with the adapter's.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(try_from = "String")]
pub struct Control {
    control: CongestionControl,
    /// How often marks are answered: as the adapter does, or as the paper.
    point: NotificationPoint,
}

impl Control {
    const PAPER: Self =
        Self { control: CongestionControl::Dcqcn(Dcqcn::PAPER), point: NotificationPoint::PAPER };
}

impl TryFrom<String> for Control {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        let known = match name.as_str() {
            "paper" => "dcqcn-paper",
            "mlx5" => "dcqcn",
            other => other,
        };
        let unknown = |told: UnknownControl| format!("congestion = {name:?}: {told}");
        let control = known.parse().map_err(unknown)?;
        let adapter = known == "dcqcn";
        let point = if adapter { NotificationPoint::DEFAULT } else { NotificationPoint::PAPER };
        Ok(Self { control, point })
    }
}

/// What hosts send.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Workload {
    /// Many to one.
    Incast,
    /// Each of the first half to one of the second.
    Pairs,
    /// As listed.
    List,
    /// Each to one other.
    Permutation,
    /// Each to each other.
    AllToAll,
    /// Rings that add up what all have.
    AllReduce,
    /// Any to any, at any time.
    Random,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            topology: Shape::Star,
            hosts: 3,
            pairs: 2,
            switches: 3,
            leaves: 2,
            spines: 2,
            hosts_per_edge: 2,
            pods: 2,
            edges: 2,
            aggregations: 2,
            k: 4,
            gbps: 40.0,
            delay_ns: 1000,
            buffer_kb: 12_000,
            headroom_kb: 23,
            alpha: 1.0,
            xon_offset_kb: 3,
            pfc: true,
            ecn: true,
            kmin_kb: 5,
            kmax_kb: 200,
            pmax: 0.01,
            mtu: 1024,
            window: 1 << 16,
            burst_kb: 0,
            congestion: Control::PAPER,
            parameters: BTreeMap::new(),
            workload: Workload::Incast,
            senders: 2,
            list: Vec::new(),
            bytes: None,
            stagger_us: 0.0,
            rings: 1,
            rounds: 1,
            shuffled: false,
            sizes: "storage".to_owned(),
            load: 0.3,
            burst_degree: 0,
            burst_bytes: 1 << 20,
            burst_every_us: 1000.0,
            milliseconds: 10.0,
            from_ms: 0.0,
            sample_us: 10.0,
            repeats: 1,
            seed: 1,
        }
    }
}

impl Setup {
    /// Whether all values are in their range.
    ///
    /// # Errors
    /// Which one is not.
    pub(super) fn check(&self) -> Result<(), String> {
        let counts = [
            ("hosts", self.hosts),
            ("pairs", self.pairs),
            ("switches", self.switches),
            ("leaves", self.leaves),
            ("spines", self.spines),
            ("hosts_per_edge", self.hosts_per_edge),
            ("pods", self.pods),
            ("edges", self.edges),
            ("aggregations", self.aggregations),
            ("k", self.k),
            ("rings", self.rings),
        ];
        if let Some((name, count)) = counts.iter().find(|(_, count)| !(1..=4096).contains(count)) {
            return Err(format!("{name} = {count}: 1 to 4096 are possible"));
        }
        let is_between = |name: &str, value: f64, least: f64, most: f64| {
            if (least..=most).contains(&value) {
                return Ok(());
            }
            Err(format!("{name} = {value}: {least} to {most} are possible"))
        };
        is_between("gbps", self.gbps, 0.01, 10_000.0)?;
        is_between("alpha", self.alpha, 0.001, 1000.0)?;
        is_between("pmax", self.pmax, 0.0, 1.0)?;
        is_between("load", self.load, 0.001, 1.0)?;
        is_between("milliseconds", self.milliseconds, 0.001, 1e6)?;
        is_between("from_ms", self.from_ms, 0.0, self.milliseconds)?;
        if self.begin_ps() >= self.until_ps() {
            return Err("from_ms is milliseconds: nothing is ever measured".to_owned());
        }
        is_between("window", self.window.into(), 1.0, u32::MAX.into())?;
        is_between("sample_us", self.sample_us, 0.1, 1e9)?;
        is_between("stagger_us", self.stagger_us, 0.0, 1e9)?;
        is_between("burst_every_us", self.burst_every_us, 1.0, 1e9)?;
        is_between("repeats", self.repeats.into(), 1.0, 1000.0)?;
        is_between("delay_ns", self.delay_ns as f64, 0.0, 1e9)?;
        let lengths = [self.buffer_kb, self.headroom_kb, self.kmax_kb, self.xon_offset_kb];
        let largest = lengths.into_iter().max();
        is_between("burst_kb", self.burst_kb.into(), 0.0, 4_000_000.0)?;
        is_between("a length", largest.unwrap_or_default() as f64, 0.0, 1e9)?;
        if self.kmin_kb > self.kmax_kb {
            return Err("kmin_kb is more than kmax_kb".to_owned());
        }
        if self.topology == Shape::FatTree && !self.k.is_multiple_of(2) {
            return Err("a fat tree wants an even k".to_owned());
        }
        if Mtu::from_bytes(self.mtu).is_none() {
            return Err(format!("mtu = {}: 256, 512, 1024, 2048 or 4096", self.mtu));
        }
        self.congestion()?;
        if Sizes::by_name(&self.sizes).is_none() {
            let known: Vec<&str> = Sizes::names().collect();
            return Err(format!("no sizes {:?}: {}", self.sizes, known.join(", ")));
        }
        self.check_size()?;
        if self.workload == Workload::AllReduce {
            let hosts = self.topology().hosts;
            if hosts < 2 * self.rings {
                return Err(format!("{hosts} hosts are too few for {} rings", self.rings));
            }
            if !self.bytes.is_some_and(|bytes| (1..=1 << 40).contains(&bytes)) {
                return Err("all-reduce wants bytes: how many each host has, to 2^40".to_owned());
            }
            is_between("rounds", self.rounds as f64, 1.0, 1e6)?;
        }
        Ok(())
    }

    const fn mbps(&self) -> u64 {
        (self.gbps * 1000.0) as u64
    }

    /// When it ends.
    pub(super) const fn until_ps(&self) -> u64 {
        (self.milliseconds * 1e9) as u64
    }

    /// From when on it is measured.
    pub(super) const fn begin_ps(&self) -> u64 {
        (self.from_ms * 1e9) as u64
    }

    fn topology(&self) -> Topology {
        let like = &Like { mbps: self.mbps(), delay: Duration::from_nanos(self.delay_ns) };
        match self.topology {
            Shape::Star => Topology::star(self.hosts, like),
            Shape::Dumbbell => Topology::dumbbell(self.pairs, like),
            Shape::ParkingLot => Topology::parking_lot(self.switches, like),
            Shape::Ring => Topology::ring(self.switches, like),
            Shape::LeafSpine => {
                Topology::leaf_spine(self.leaves, self.spines, self.hosts_per_edge, like)
            }
            Shape::Clos => {
                let Self { pods, edges, aggregations, spines, hosts_per_edge: hosts, .. } = *self;
                let clos = Clos { pods, edges, aggregations, spines, hosts, planes: false };
                Topology::clos(&clos, like)
            }
            Shape::FatTree => Topology::fat_tree(self.k, like),
        }
    }

    fn congestion(&self) -> Result<Congestion, String> {
        let Control { control, point } = self.congestion;
        let mut congestion = Congestion {
            control,
            line_rate: Rate::from_bits_per_second(self.gbps * 1e9),
            // The link is no faster.
            is_ceiling: false,
            burst: Burst(self.burst_kb * 1000),
            notification_point: Some(point),
        };
        for (name, value) in &self.parameters {
            let value = match value {
                Value::String(text) => text.clone(),
                Value::Integer(number) => number.to_string(),
                Value::Float(number) => number.to_string(),
                Value::Boolean(on) => u8::from(*on).to_string(),
                _ => return Err(format!("parameters: {name}: a text or a number")),
            };
            congestion.set(name, &value).map_err(|wrong| format!("parameters: {wrong}"))?;
        }
        Ok(congestion)
    }

    fn flows(&self, topology: &Topology, chance: &Rng) -> Vec<Flow> {
        let hosts = topology.hosts;
        let mut flows = match self.workload {
            Workload::Incast => {
                let to = topology.watched.1;
                let others = (0..hosts).filter(|host| *host != to);
                others.take(self.senders).map(|from| Flow::endless(from, to)).collect()
            }
            Workload::Pairs => {
                (0..hosts / 2).map(|from| Flow::endless(from, from + hosts / 2)).collect()
            }
            Workload::List => {
                self.list.iter().map(|(from, to)| Flow::endless(*from, *to)).collect()
            }
            Workload::Permutation => flow::permutation(hosts, &mut chance.fork(3)),
            Workload::AllToAll => flow::all_to_all(hosts),
            Workload::AllReduce => {
                let bytes = self.bytes.unwrap_or_default();
                let mut chance = chance.fork(6);
                let (rings, rounds) = (self.rings, self.rounds);
                flow::all_reduce(hosts, rings, bytes, rounds, self.shuffled, &mut chance)
            }
            Workload::Random => {
                let sizes = Sizes::by_name(&self.sizes).unwrap_or(Sizes::STORAGE);
                let (mbps, until) = (self.mbps(), self.until_ps());
                flow::random(hosts, &sizes, self.load, mbps, until, &mut chance.fork(4))
            }
        };
        let stagger = (self.stagger_us * 1e6) as u64;
        if !matches!(self.workload, Workload::Random | Workload::AllReduce) {
            for (number, flow) in flows.iter_mut().enumerate() {
                flow.bytes = self.bytes;
                flow.start_ps = stagger.saturating_mul(number as u64);
            }
        }
        let mut chance = chance.fork(5);
        for number in 0..self.bursts() {
            let to = chance.below(hosts as u64) as usize;
            for _ in 0..self.burst_degree {
                let from = (to + 1 + chance.below(hosts as u64 - 1) as usize) % hosts;
                let start_ps = (number as f64 * self.burst_every_us * 1e6) as u64;
                let bytes = Some(self.burst_bytes);
                flows.push(Flow { bytes, start_ps, ..Flow::endless(from, to) });
            }
        }
        flows
    }

    /// The network of a repeat: other ways, marks and moments in each.
    ///
    /// # Errors
    /// The path MTU is none.
    pub fn fabric(&self, repeat: u32) -> Result<Settings, String> {
        let seed = Rng::new(self.seed).fork(repeat.into()).next();
        let topology = self.topology();
        let flows = self.flows(&topology, &Rng::new(seed));
        let kb = |thousand: u64| thousand * 1000;
        let (kmin, kmax) = (kb(self.kmin_kb), kb(self.kmax_kb));
        let path_mtu = Mtu::from_bytes(self.mtu).ok_or("mtu")?;
        Ok(Settings {
            topology,
            switch: SwitchSettings {
                buffer: kb(self.buffer_kb),
                headroom: kb(self.headroom_kb),
                lossless: if self.pfc { 1 << (DSCP >> 3) } else { 0 },
                alpha: self.alpha,
                xon_offset: kb(self.xon_offset_kb),
                marking: self.ecn.then_some(Marking { kmin, kmax, pmax: self.pmax }),
            },
            host: HostSettings {
                path_mtu,
                congestion: self.congestion()?,
                window: self.window,
                dscp: DSCP,
            },
            flows,
            sample_ps: (self.sample_us * 1e6) as u64,
            seed,
        })
    }
}

/// The DSCP of data: priority 3.
const DSCP: u8 = 26;
