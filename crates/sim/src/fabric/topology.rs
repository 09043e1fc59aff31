//! Hosts, switches and cables, and which ways lead where.
//!
//! Nodes are numbered: hosts first, then switches. Ports of a node are numbered in the order of
//! its cables.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// A cable: one rate and one delay in both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cable {
    /// The nodes that it joins.
    pub ends: [usize; 2],
    /// Its rate in Mb/s.
    pub mbps: u64,
    /// From one end to the other.
    pub delay: Duration,
}

/// How far from the hosts a switch stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tier {
    /// Hosts are at it.
    Edge,
    /// Between edge and spine.
    Aggregation,
    /// At the top.
    Spine,
}

/// A network.
#[derive(Clone, Debug)]
pub struct Topology {
    /// How many hosts there are.
    pub hosts: usize,
    /// The switches.
    pub switches: Vec<Tier>,
    /// What joins them.
    pub cables: Vec<Cable>,
    /// The egress port that is looked at closely: a switch's node, and the node it leads to.
    pub watched: (usize, usize),
}

/// A network of three tiers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clos {
    /// Parts that only spines join.
    pub pods: usize,
    /// Edge switches of a pod.
    pub edges: usize,
    /// Aggregation switches of a pod, each joined to all its edge switches.
    pub aggregations: usize,
    /// Spine switches.
    pub spines: usize,
    /// Hosts of an edge switch.
    pub hosts: usize,
    /// Whether the n-th aggregation switch of a pod is joined to the n-th part of the spines only,
    /// as in a fat tree; else to all.
    pub planes: bool,
}

impl Topology {
    fn new(hosts: usize, switches: Vec<Tier>) -> Self {
        Self { hosts, switches, cables: Vec::new(), watched: (hosts, 0) }
    }

    fn join(&mut self, a: usize, b: usize, like: &Like) {
        self.cables.push(Cable { ends: [a, b], mbps: like.mbps, delay: like.delay });
    }

    /// All hosts at one switch; the one that is watched leads to the last host.
    pub fn star(hosts: usize, like: &Like) -> Self {
        let mut it = Self::new(hosts, vec![Tier::Edge]);
        (0..hosts).for_each(|host| it.join(host, hosts, like));
        it.watched = (hosts, hosts.saturating_sub(1));
        it
    }

    /// Two switches with a cable between them, which is watched from the first: as many hosts at
    /// the one as at the other.
    pub fn dumbbell(pairs: usize, like: &Like) -> Self {
        let mut it = Self::new(2 * pairs, vec![Tier::Edge; 2]);
        (0..2 * pairs).for_each(|host| it.join(host, 2 * pairs + host / pairs, like));
        it.join(2 * pairs, 2 * pairs + 1, like);
        it.watched = (2 * pairs, 2 * pairs + 1);
        it
    }

    /// A row of switches with a host at each; one more, the receiver, stands at the last switch,
    /// and the way to it is watched.
    pub fn parking_lot(switches: usize, like: &Like) -> Self {
        let hosts = switches + 1;
        let mut it = Self::new(hosts, vec![Tier::Edge; switches]);
        (0..switches).for_each(|host| it.join(host, hosts + host, like));
        (1..switches).for_each(|at| it.join(hosts + at - 1, hosts + at, like));
        it.join(switches, hosts + switches - 1, like);
        it.watched = (hosts + switches - 1, switches);
        it
    }

    /// A circle of switches with a host at each.
    pub fn ring(switches: usize, like: &Like) -> Self {
        let mut it = Self::new(switches, vec![Tier::Edge; switches]);
        (0..switches).for_each(|host| it.join(host, switches + host, like));
        for at in 0..switches {
            it.join(switches + at, switches + (at + 1) % switches, like);
        }
        it.watched = (switches, 0);
        it
    }

    /// Each leaf joined to each spine; the way to the first host is watched.
    pub fn leaf_spine(leaves: usize, spines: usize, hosts: usize, like: &Like) -> Self {
        let tiers = [vec![Tier::Edge; leaves], vec![Tier::Spine; spines]].concat();
        let mut it = Self::new(leaves * hosts, tiers);
        let leaf = |number: usize| leaves * hosts + number;
        (0..leaves * hosts).for_each(|host| it.join(host, leaf(host / hosts), like));
        for one in 0..leaves {
            (0..spines).for_each(|spine| it.join(leaf(one), leaf(leaves + spine), like));
        }
        it.watched = (leaf(0), 0);
        it
    }

    /// Three tiers; the way to the last host is watched.
    pub fn clos(clos: &Clos, like: &Like) -> Self {
        let Clos { pods, edges, aggregations, spines, hosts, planes } = *clos;
        let tiers = [
            vec![Tier::Edge; pods * edges],
            vec![Tier::Aggregation; pods * aggregations],
            vec![Tier::Spine; spines],
        ];
        let count = pods * edges * hosts;
        let mut it = Self::new(count, tiers.concat());
        let edge = |pod: usize, number: usize| count + pod * edges + number;
        let aggregation =
            |pod: usize, number: usize| count + pods * edges + pod * aggregations + number;
        let spine = |number: usize| count + pods * (edges + aggregations) + number;
        (0..count).for_each(|host| it.join(host, count + host / hosts, like));
        for pod in 0..pods {
            for up in 0..aggregations {
                (0..edges).for_each(|down| it.join(edge(pod, down), aggregation(pod, up), like));
                let plane = spines / aggregations.max(1);
                let above = if planes { up * plane..(up + 1) * plane } else { 0..spines };
                above.for_each(|number| it.join(aggregation(pod, up), spine(number), like));
            }
        }
        let last = count.saturating_sub(1);
        it.watched = (count + last / hosts.max(1), last);
        it
    }

    /// The fat tree of switches with `k` ports, k even: k³/4 hosts.
    pub fn fat_tree(k: usize, like: &Like) -> Self {
        let half = k / 2;
        let clos = Clos {
            pods: k,
            edges: half,
            aggregations: half,
            spines: half * half,
            hosts: half,
            planes: true,
        };
        Self::clos(&clos, like)
    }

    /// How many nodes there are.
    pub fn nodes(&self) -> usize {
        self.hosts + self.switches.len()
    }

    /// Of each node its ports: the cable, and where it leads.
    pub(crate) fn ports(&self) -> Vec<Vec<(usize, usize)>> {
        let mut ports = vec![Vec::new(); self.nodes()];
        for (number, cable) in self.cables.iter().enumerate() {
            let [a, b] = cable.ends;
            ports[a].push((number, b));
            ports[b].push((number, a));
        }
        ports
    }
}

/// How the cables of a network are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Like {
    /// Their rate in Mb/s.
    pub mbps: u64,
    /// From one end to the other.
    pub delay: Duration,
}

/// The shortest ways from each switch to each host.
#[derive(Debug)]
pub(super) struct Routes {
    hosts: usize,
    /// Ports that lead on, each list once.
    lists: Vec<Vec<u16>>,
    /// For each switch and host, in rows, which list; `u32::MAX` where nothing leads there.
    which: Vec<u32>,
    /// For each switch and host, in rows, how many cables away it is.
    distance: Vec<u8>,
}

impl Routes {
    pub(super) fn of(topology: &Topology, ports: &[Vec<(usize, usize)>]) -> Self {
        let (hosts, switches) = (topology.hosts, topology.switches.len());
        let mut it = Self {
            hosts,
            lists: Vec::new(),
            which: vec![u32::MAX; hosts * switches],
            distance: vec![0; hosts * switches],
        };
        let mut known = BTreeMap::new();
        for host in 0..hosts {
            let far = distances(topology, ports, host);
            for switch in 0..switches {
                let here = far[hosts + switch];
                if here == usize::MAX {
                    continue;
                }
                let leads_on = |(_, (_, to)): &(usize, &(usize, usize))| far[*to] < here;
                let on = ports[hosts + switch].iter().enumerate().filter(leads_on);
                let list: Vec<u16> = on.map(|(port, _)| port as u16).collect();
                let number = *known.entry(list).or_insert_with_key(|list| {
                    it.lists.push(list.clone());
                    (it.lists.len() - 1) as u32
                });
                it.which[switch * hosts + host] = number;
                it.distance[switch * hosts + host] = here as u8;
            }
        }
        it
    }

    /// The port on which a switch sends on what is for a host: of several as short ways always the
    /// same one for the same `entropy`.
    pub(super) fn next(&self, switch: usize, host: usize, entropy: u64) -> Option<usize> {
        let list = self.lists.get(*self.which.get(switch * self.hosts + host)? as usize)?;
        let at = ((mix(entropy) >> 32) * list.len() as u64) >> 32;
        list.get(at as usize).map(|port| usize::from(*port))
    }

    /// How many cables a switch is away from a host.
    pub(super) fn distance(&self, switch: usize, host: usize) -> u64 {
        u64::from(self.distance[switch * self.hosts + host])
    }
}

/// How many cables each node is away from a host. Hosts do not forward.
fn distances(topology: &Topology, ports: &[Vec<(usize, usize)>], host: usize) -> Vec<usize> {
    let mut far = vec![usize::MAX; ports.len()];
    far[host] = 0;
    let mut next = VecDeque::from([host]);
    while let Some(node) = next.pop_front() {
        if node != host && node < topology.hosts {
            continue;
        }
        for &(_, to) in &ports[node] {
            if far[to] == usize::MAX {
                far[to] = far[node] + 1;
                next.push_back(to);
            }
        }
    }
    far
}

/// Mixes the bits of a number: what differs in one bit differs in half of them.
pub(super) const fn mix(value: u64) -> u64 {
    let mixed = (value ^ value >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let mixed = (mixed ^ mixed >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    mixed ^ mixed >> 33
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIKE: Like = Like { mbps: 40_000, delay: Duration::from_micros(1) };

    fn routes(topology: &Topology) -> (Routes, Vec<Vec<(usize, usize)>>) {
        let ports = topology.ports();
        (Routes::of(topology, &ports), ports)
    }

    #[test]
    fn a_fat_tree_has_the_hosts_switches_and_cables_of_its_formula() {
        for k in [4, 8, 16] {
            let tree = Topology::fat_tree(k, &LIKE);
            assert_eq!(tree.hosts, k * k * k / 4);
            assert_eq!(tree.switches.len(), 5 * k * k / 4);
            assert_eq!(tree.cables.len(), 3 * k * k * k / 4);
            assert!(tree.ports()[tree.hosts..].iter().all(|ports| ports.len() == k), "{k}");
        }
    }

    #[test]
    fn every_host_is_reached_from_every_host_on_a_shortest_way() {
        let clos = Clos { pods: 2, edges: 2, aggregations: 2, spines: 2, hosts: 3, planes: false };
        for topology in [
            Topology::star(3, &LIKE),
            Topology::dumbbell(2, &LIKE),
            Topology::parking_lot(4, &LIKE),
            Topology::leaf_spine(3, 2, 2, &LIKE),
            Topology::ring(5, &LIKE),
            Topology::clos(&clos, &LIKE),
            Topology::fat_tree(4, &LIKE),
        ] {
            let (routes, ports) = routes(&topology);
            for (from, to) in
                (0..topology.hosts).flat_map(|a| (0..topology.hosts).map(move |b| (a, b)))
            {
                let mut at = ports[from][0].1;
                let mut left = routes.distance(at - topology.hosts, to);
                while at != to {
                    let port = routes.next(at - topology.hosts, to, 7).unwrap();
                    at = ports[at][port].1;
                    left -= 1;
                }
                assert_eq!(left, 0);
            }
        }
    }

    #[test]
    fn flows_keep_their_way_and_all_ways_are_taken() {
        let tree = Topology::fat_tree(8, &LIKE);
        let (routes, _) = routes(&tree);
        let far = tree.hosts - 1;
        let mut taken = [0_u32; 8];
        for entropy in 0..4000 {
            let port = routes.next(0, far, entropy).unwrap();
            assert_eq!(routes.next(0, far, entropy), Some(port));
            taken[port] += 1;
        }
        assert_eq!(taken[..4], [0; 4], "down is no way there");
        assert!(taken[4..].iter().all(|&count| count.abs_diff(1000) < 120), "{taken:?}");
    }
}
