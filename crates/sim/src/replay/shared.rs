//! Words that several connections change.
//!
//! Each connection is played alone, so what an atomic of it finds follows from its own requests
//! only where no other one writes there. Regions of several keys may be the same memory: words are
//! told apart by the host and their virtual address.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use roxe_wire::opcode::Operation;

use super::record::Flow;

/// Where the atomics of a recording meet with the requests of other connections.
#[derive(Debug, Default)]
pub(super) struct Shared(BTreeSet<(IpAddr, u64)>);

impl Shared {
    /// Those of a recording.
    pub(super) fn new(flows: &[Flow<'_>]) -> Self {
        // The words of atomics, and the first direction that does one there.
        let mut words: BTreeMap<(IpAddr, u64), usize> = BTreeMap::new();
        let mut shared = BTreeSet::new();
        for (index, flow) in flows.iter().enumerate() {
            for atomic in flow.items.iter().filter_map(|item| item.headers.atomic_eth) {
                let word = (flow.destination, atomic.va);
                if *words.entry(word).or_insert(index) != index {
                    shared.insert(word);
                }
            }
        }
        words.retain(|word, _| !shared.contains(word));
        for (index, flow) in flows.iter().enumerate() {
            for (first, last) in written(flow) {
                let range = (flow.destination, first.saturating_sub(7))..=(flow.destination, last);
                let others = words.range(range).filter(|(_, of)| **of != index);
                let others: Vec<_> = others.map(|(word, _)| *word).collect();
                for word in others {
                    words.remove(&word);
                    shared.insert(word);
                }
            }
        }
        Self(shared)
    }

    /// Whether the word of this host is one of them.
    pub(super) fn has(&self, host: IpAddr, va: u64) -> bool {
        self.0.contains(&(host, va))
    }
}

/// The first and last bytes of what a direction writes, in order and apart from each other.
fn written(flow: &Flow<'_>) -> Vec<(u64, u64)> {
    let writes = flow
        .items
        .iter()
        .filter(|item| matches!(item.opcode.operation, Operation::Write | Operation::AtomicWrite));
    let mut ranges: Vec<(u64, u64)> = writes
        .filter_map(|item| item.headers.reth)
        .filter(|reth| reth.dma_len != 0)
        .map(|reth| (reth.va, reth.va.saturating_add(u64::from(reth.dma_len) - 1)))
        .collect();
    ranges.sort_unstable();
    ranges.dedup_by(|next, before| {
        let touches = next.0 <= before.1;
        if touches {
            before.1 = before.1.max(next.1);
        }
        touches
    });
    ranges
}
