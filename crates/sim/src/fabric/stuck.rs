//! Pauses that wait for each other.
//!
//! A port that is stopped waits for what its neighbour holds of it; if that waits at ports that are
//! stopped themselves, and so on around to the first, nothing moves any more.

use super::Fabric;

/// A port that is stopped for so long is not only waiting for its turn: 1 ms.
const LONG_PS: u64 = 1_000_000_000;

impl Fabric {
    /// A circle of egress ports of switches, each of which was stopped for long and waits for the
    /// next: their nodes and ports.
    pub(super) fn find_deadlock(&self) -> Option<Vec<(usize, usize)>> {
        let since = self.now.checked_sub(LONG_PS)?;
        (0..8).find_map(|priority| self.circle(priority, since))
    }

    fn circle(&self, priority: usize, since: u64) -> Option<Vec<(usize, usize)>> {
        let first = self.hosts.len();
        let nodes = (first..self.ports.len())
            .flat_map(|node| (0..self.ports[node].len()).map(move |port| (node, port)));
        let is_stuck = |&(node, port): &(usize, usize)| {
            self.ports[node][port].gate.closed_since(priority, since)
        };
        let stuck: Vec<(usize, usize)> = nodes.filter(is_stuck).collect();
        // Each waits for the stuck ports of its neighbour where something waits that came from it.
        let waits_for = |&(node, port): &(usize, usize)| {
            let (to, ingress) = self.ports[node][port].to;
            let to = to as usize;
            let switch = to.checked_sub(first).map(|number| &self.switches[number]);
            stuck.iter().position(|&(other, egress)| {
                other == to
                    && switch.is_some_and(|switch| switch.waits(usize::from(ingress), egress))
            })
        };
        let next: Vec<Option<usize>> = stuck.iter().map(waits_for).collect();
        (0..stuck.len()).find_map(|start| {
            let mut circle = vec![stuck[start]];
            let mut at = next[start]?;
            while at != start {
                if circle.len() > stuck.len() {
                    return None;
                }
                circle.push(stuck[at]);
                at = next[at]?;
            }
            Some(circle)
        })
    }
}
