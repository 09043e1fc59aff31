//! What a run may cost, and whether it does anything: told before anything runs.

use toml::Table;

use crate::fabric::FOLLOWED;
use crate::fabric::flow::Sizes;

use super::figures::{SHOWN, SIZES};
use super::setup::{Setup, Shape, Workload};

/// Of what a network consists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Counts {
    hosts: u64,
    switches: u64,
    cables: u64,
    /// The most at one switch.
    ports: u64,
}

impl Setup {
    fn counts(&self) -> Counts {
        let [hosts, pairs, row] = [self.hosts, self.pairs, self.switches].map(|it| it as u64);
        let [leaves, spines, each] =
            [self.leaves, self.spines, self.hosts_per_edge].map(|it| it as u64);
        let [pods, edges, middle] = [self.pods, self.edges, self.aggregations].map(|it| it as u64);
        let half = self.k as u64 / 2;
        let (hosts, switches, between, ports) = match self.topology {
            Shape::Star => (hosts, 1, 0, hosts),
            Shape::Dumbbell => (2 * pairs, 2, 1, pairs + 1),
            Shape::ParkingLot => (row + 1, row, row - 1, 4),
            Shape::Ring => (row, row, row, 3),
            Shape::LeafSpine => {
                let ports = leaves.max(spines + each);
                (leaves * each, leaves + spines, leaves * spines, ports)
            }
            Shape::Clos => {
                let switches = pods * (edges + middle) + spines;
                let ports = (pods * middle).max(edges + spines).max(middle + each);
                (pods * edges * each, switches, pods * middle * (edges + spines), ports)
            }
            Shape::FatTree => (2 * half.pow(3), 5 * half * half, 4 * half.pow(3), 2 * half),
        };
        Counts { hosts, switches, cables: hosts + between, ports }
    }

    /// How many flows there are, those of bursts among them; of `random` on average.
    fn flow_count(&self, hosts: u64) -> u64 {
        let flows = match self.workload {
            Workload::Incast => self.senders as u64,
            Workload::Pairs => hosts / 2,
            Workload::List => self.list.len() as u64,
            Workload::Permutation | Workload::AllReduce => hosts,
            Workload::AllToAll => hosts * hosts.saturating_sub(1),
            Workload::Random => {
                let mean = Sizes::by_name(&self.sizes).unwrap_or(Sizes::STORAGE).mean();
                let bits = self.gbps * 1e6 * self.milliseconds * hosts as f64 * self.load;
                (bits / 8.0 / mean) as u64
            }
        };
        flows.saturating_add(self.bursts().saturating_mul(self.burst_degree as u64))
    }

    /// How many bursts there are.
    pub(super) fn bursts(&self) -> u64 {
        if self.burst_degree == 0 {
            return 0;
        }
        (self.milliseconds * 1000.0 / self.burst_every_us) as u64
    }

    /// Whether it fits into a machine, and whether somebody sends.
    ///
    /// # Errors
    /// Which words ask for too much, or for nothing.
    pub(super) fn check_size(&self) -> Result<(), String> {
        let counts = self.counts();
        let Counts { hosts, switches, cables, ports } = counts;
        let ways = hosts.saturating_mul(switches);
        let flows = self.flow_count(hosts);
        let moments = (self.milliseconds * 1000.0 / self.sample_us) as u64;
        let columns = 5 + if flows <= FOLLOWED as u64 { flows } else { 0 };
        let values = moments.saturating_mul(columns);
        let all_flows = flows.saturating_mul(self.repeats.into());
        for (what, count, most) in [
            ("hosts of this topology", hosts, MOST_HOSTS),
            ("cables of this topology", cables, MOST_CABLES),
            ("ports at one switch", ports, u16::MAX.into()),
            ("ways: its hosts, times its switches,", ways, MOST_WAYS),
            ("flows of this workload, with those of burst_degree,", flows, MOST_FLOWS),
            ("flows of all repeats", all_flows, MOST_FLOWS),
            ("values: milliseconds, by sample_us, times 5 and the flows,", values, MOST_VALUES),
        ] {
            if count > most {
                return Err(format!("{count} {what} are too many: at most {most}"));
            }
        }
        if moments == 0 {
            return Err("sample_us is more than milliseconds: nothing is ever looked at".to_owned());
        }
        for (name, bytes) in [("bytes", self.bytes), ("burst_bytes", Some(self.burst_bytes))] {
            if let Some(bytes) = bytes.filter(|bytes| !(1..=MOST_BYTES).contains(bytes)) {
                return Err(format!("{name} = {bytes}: 1 to {MOST_BYTES} are possible"));
            }
        }
        self.check_hosts(hosts)
    }

    fn check_hosts(&self, hosts: u64) -> Result<(), String> {
        if self.topology == Shape::Ring && self.switches < 2 {
            return Err("switches = 1: a ring has 2 or more".to_owned());
        }
        if hosts < 2 {
            return Err("hosts: with one alone nobody sends to anybody".to_owned());
        }
        if (self.topology, self.workload) == (Shape::Dumbbell, Workload::Incast) {
            return Err(
                "workload = \"incast\": a dumbbell has no one receiver; \"pairs\" has all \
                        its flows on one link"
                    .to_owned(),
            );
        }
        if self.workload == Workload::Incast && !(1..hosts).contains(&(self.senders as u64)) {
            let (senders, most) = (self.senders, hosts - 1);
            return Err(format!(
                "senders = {senders}: of {hosts} hosts 1 to {most} can send to one"
            ));
        }
        if self.workload == Workload::List && self.list.is_empty() {
            return Err("workload = \"list\" wants a list: [[from, to], …]".to_owned());
        }
        for (from, to) in &self.list {
            if from == to || (*from).max(*to) as u64 >= hosts {
                let last = hosts - 1;
                return Err(format!("list: [{from}, {to}] are not two of the hosts 0 to {last}"));
            }
        }
        if self.burst_degree as u64 >= hosts {
            let (degree, most) = (self.burst_degree, hosts - 1);
            return Err(format!(
                "burst_degree = {degree}: of {hosts} hosts {most} can send to one"
            ));
        }
        Ok(())
    }

    /// Whether a word means something beside the others.
    pub(super) fn uses(&self, word: &str) -> bool {
        use Shape::{Clos, Dumbbell, FatTree, LeafSpine, ParkingLot, Ring, Star};
        use Workload::{AllReduce, Incast, List, Random};
        let (shape, workload) = (self.topology, self.workload);
        match word {
            "hosts" => shape == Star,
            "pairs" => shape == Dumbbell,
            "switches" => matches!(shape, ParkingLot | Ring),
            "leaves" => shape == LeafSpine,
            "spines" | "hosts_per_edge" => matches!(shape, LeafSpine | Clos),
            "pods" | "edges" | "aggregations" => shape == Clos,
            "k" => shape == FatTree,
            "senders" => workload == Incast,
            "list" => workload == List,
            "bytes" => workload != Random,
            "stagger_us" => !matches!(workload, Random | AllReduce),
            "rings" | "rounds" | "shuffled" => workload == AllReduce,
            "sizes" | "load" => workload == Random,
            "burst_bytes" | "burst_every_us" => self.burst_degree > 0,
            _ => true,
        }
    }

    /// The names of its figures, as far as they are known beforehand.
    pub(super) fn figures(&self) -> Vec<String> {
        let mut names: Vec<String> = ALWAYS.iter().map(|name| (*name).to_owned()).collect();
        let flows = self.flow_count(self.counts().hosts);
        // How many there are by chance is not known before.
        let drawn = self.workload == Workload::Random;
        if drawn || flows <= FOLLOWED as u64 {
            names.extend(OF_FLOWS.iter().map(|name| (*name).to_owned()));
        }
        if drawn || flows <= SHOWN as u64 {
            let shown = if drawn { SHOWN as u64 } else { flows };
            names.extend((0..shown).map(|flow| format!("flow{flow}_gbps")));
        }
        let rings = self.workload == Workload::AllReduce;
        let ends = drawn || self.bursts() > 0 || (self.bytes.is_some() && !rings);
        if ends {
            for (name, ..) in SIZES {
                names.extend([50, 99].map(|percent| format!("slowdown_{name}_p{percent}")));
            }
        }
        if ends || rings {
            names.push("finished".to_owned());
        }
        if rings {
            names.extend(OF_RINGS.iter().map(|name| (*name).to_owned()));
        }
        names
    }
}

/// The first word that means something in none of the forms in which it stands.
pub(super) fn without_meaning(forms: &[(Table, Setup)]) -> Option<&str> {
    let words = forms.iter().flat_map(|(table, _)| table.keys());
    let is_used = |word: &str| {
        forms.iter().any(|(table, setup)| table.contains_key(word) && setup.uses(word))
    };
    words.map(String::as_str).find(|word| !is_used(word))
}

/// Figures of every run.
const ALWAYS: &[&str] = &[
    "utilisation",
    "queue_mean_kb",
    "queue_p99_kb",
    "queue_max_kb",
    "pauses",
    "host_pauses",
    "switch_pauses",
    "edge_pauses",
    "aggregation_pauses",
    "spine_pauses",
    "paused_ms",
    "dropped",
    "marked",
    "notifications",
    "deadlocks",
    "failed",
];

/// Of runs whose flows are looked at one by one.
const OF_FLOWS: &[&str] = &["jain", "goodput_gbps", "least_gbps", "most_gbps"];

/// Of `all-reduce`.
const OF_RINGS: &[&str] = &["all_reduce_us", "all_reduce_slowdown", "bus_gbps"];

/// A fat tree of k = 64.
const MOST_HOSTS: u64 = 65_536;

const MOST_CABLES: u64 = 10_000_000;

/// Hosts times switches, for each of which 5 bytes are kept: 2 GB.
const MOST_WAYS: u64 = 400_000_000;

const MOST_FLOWS: u64 = 10_000_000;

/// What is kept of all moments, each value twice, as a count and as a rate: 10 million moments of
/// a flow.
const MOST_VALUES: u64 = 60_000_000;

/// Of a flow.
const MOST_BYTES: u64 = 1 << 40;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::Lab;

    fn refused(setup: &str) -> String {
        let lab = Lab::parse(&format!("says = \"wrong\"\n[setup]\n{setup}\n"));
        lab.err().unwrap_or_else(|| panic!("{setup}: allowed"))
    }

    #[test]
    fn networks_are_counted_as_they_are_built() {
        for words in [
            "hosts = 7",
            "topology = \"dumbbell\"\npairs = 5\nworkload = \"pairs\"",
            "topology = \"parking-lot\"\nswitches = 6",
            "topology = \"ring\"\nswitches = 5\nsenders = 1",
            "topology = \"leaf-spine\"\nleaves = 5\nspines = 3\nhosts_per_edge = 4",
            "topology = \"clos\"\npods = 3\nedges = 4\naggregations = 2\nspines = 5",
            "topology = \"fat-tree\"\nk = 6",
        ] {
            let lab = Lab::parse(&format!("says = \"one\"\n[setup]\n{words}\n")).unwrap();
            let setup = lab.setup("", false).unwrap();
            let built = setup.fabric(0).unwrap();
            let topology = &built.topology;
            let ports = topology.ports();
            let counts = Counts {
                hosts: topology.hosts as u64,
                switches: topology.switches.len() as u64,
                cables: topology.cables.len() as u64,
                ports: ports[topology.hosts..].iter().map(Vec::len).max().unwrap() as u64,
            };
            let counted = setup.counts();
            assert_eq!(Counts { ports: counts.ports, ..counted }, counts, "{words}");
            assert!(counted.ports >= counts.ports && counted.ports <= counts.ports + 2, "{words}");
            assert_eq!(setup.flow_count(counted.hosts), built.flows.len() as u64, "{words}");
        }
    }

    #[test]
    fn what_no_machine_holds_is_refused_by_its_number() {
        let all = "topology = \"clos\"\npods = 4096\nedges = 4096\naggregations = 4096\n\
                   spines = 4096\nhosts_per_edge = 4096";
        for (words, says) in [
            ("topology = \"fat-tree\"\nk = 4096", "17179869184 hosts of this topology"),
            (all, "68719476736 hosts of this topology"),
            ("topology = \"leaf-spine\"\nleaves = 4096\nspines = 4096", "16785408 cables"),
            (
                "topology = \"clos\"\npods = 4096\nedges = 1\nspines = 1\naggregations = 17",
                "69632 ports at one switch",
            ),
            (
                "topology = \"clos\"\npods = 4096\nedges = 8\nhosts_per_edge = 1",
                "1342242816 ways: its hosts",
            ),
            ("hosts = 4096\nworkload = \"all-to-all\"", "16773120 flows of this workload"),
            ("burst_degree = 1000000000\nburst_every_us = 1", "10000000000002 flows"),
            ("burst_degree = 1\nburst_every_us = 1\nmilliseconds = 1e6", "1000000002 flows"),
            ("workload = \"random\"\ngbps = 1e4\nmilliseconds = 1e6", "flows of this workload"),
            (
                "hosts = 1001\nworkload = \"all-to-all\"\nrepeats = 1000",
                "1001000000 flows of all repeats",
            ),
            ("milliseconds = 1e6\nsample_us = 0.1", " values: milliseconds"),
            ("bytes = 1099511627777", "bytes = 1099511627777: 1 to 1099511627776"),
            ("bytes = 0", "bytes = 0: 1 to"),
            ("burst_degree = 1\nburst_bytes = 0", "burst_bytes = 0: 1 to"),
        ] {
            let told = refused(words);
            assert!(told.contains(says), "{told}");
        }
    }

    #[test]
    fn labs_that_do_nothing_are_refused() {
        for (words, says) in [
            ("hosts = 1", "with one alone"),
            ("senders = 0", "senders = 0: of 3 hosts 1 to 2 can send to one"),
            ("senders = 3", "senders = 3: of 3 hosts 1 to 2 can send to one"),
            ("workload = \"list\"", "wants a list"),
            ("workload = \"list\"\nlist = [[0, 3]]", "[0, 3] are not two of the hosts 0 to 2"),
            ("workload = \"list\"\nlist = [[1, 1]]", "[1, 1] are not two"),
            ("topology = \"dumbbell\"", "a dumbbell has no one receiver"),
            ("topology = \"ring\"\nswitches = 1", "switches = 1: a ring"),
            ("burst_degree = 3", "burst_degree = 3: of 3 hosts 2 can send to one"),
            ("milliseconds = 1\nsample_us = 2000", "sample_us is more than milliseconds"),
            ("milliseconds = 1\nfrom_ms = 1", "from_ms is milliseconds: nothing is ever measured"),
            ("window = 0", "window = 0: 1 to 4294967295 are possible"),
        ] {
            let told = refused(words);
            assert!(told.contains(says), "{told}");
        }
    }

    #[test]
    fn words_that_mean_nothing_beside_the_others_are_refused() {
        for word in [
            "k = 4",
            "pairs = 2",
            "switches = 2",
            "leaves = 2",
            "spines = 2",
            "hosts_per_edge = 2",
            "pods = 2",
            "edges = 2",
            "aggregations = 2",
            "list = [[0, 1]]",
            "rings = 1",
            "rounds = 2",
            "shuffled = true",
            "load = 0.5",
            "sizes = \"ml\"",
            "burst_bytes = 5",
            "burst_every_us = 5",
            "workload = \"random\"\nbytes = 5",
            "workload = \"random\"\nsenders = 1",
            "workload = \"random\"\nstagger_us = 1",
            "topology = \"ring\"\nhosts = 3",
        ] {
            let name = word.lines().last().unwrap().split(' ').next().unwrap();
            let told = refused(word);
            assert!(told.starts_with(&format!("{name} means nothing here")), "{told}");
        }
        let one_of_two = "load = 0.5\n[[run]]\nname = \"a\"\n[[run]]\nname = \"b\"\n\
                          workload = \"random\"";
        assert!(Lab::parse(&format!("says = \"two\"\n[setup]\n{one_of_two}\n")).is_ok());
    }
}
