//! Numbers that a peer cannot guess easily: communication IDs and starting PSNs, from a seed.

use roxe_wire::Psn;
use roxe_wire::mad::cm::CommId;

/// Draws numbers from the seed that the agent was given.
#[derive(Debug)]
pub(crate) struct Chance {
    state: u64,
    /// Communication IDs count up below this mask: they look random and come back only after 2³².
    mask: u32,
    count: u32,
}

impl Chance {
    #[expect(clippy::cast_possible_truncation, reason = "any half will do")]
    pub(crate) const fn new(seed: u64) -> Self {
        let mut chance = Self { state: seed, mask: 0, count: 0 };
        chance.mask = chance.next() as u32;
        chance
    }

    /// A starting PSN.
    #[expect(clippy::cast_possible_truncation, reason = "24 bits are kept")]
    pub(crate) const fn psn(&mut self) -> Psn {
        Psn::new(self.next() as u32)
    }

    /// The next communication ID for which `is_taken` says no; never 0.
    pub(crate) fn comm_id(&mut self, is_taken: impl Fn(CommId) -> bool) -> CommId {
        loop {
            let id = CommId(self.count ^ self.mask);
            self.count = self.count.wrapping_add(1);
            if id != CommId(0) && !is_taken(id) {
                return id;
            }
        }
    }

    /// SplitMix64.
    const fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn ids_are_new_and_never_zero_nor_taken() {
        let mut chance = Chance { state: 1, mask: 5, count: 0 };
        let ids: Vec<u32> = (0..8).map(|_| chance.comm_id(|id| id == CommId(4)).0).collect();
        assert_eq!(ids, [5, 7, 6, 1, 3, 2, 13, 12], "5 ^ 5 is left out, and 4 is taken");
    }

    #[test]
    fn a_seed_is_the_same_numbers_and_another_seed_others() {
        let draw = |seed| {
            let mut chance = Chance::new(seed);
            let psns: BTreeSet<u32> = (0..100).map(|_| chance.psn().get()).collect();
            (chance.comm_id(|_| false), psns)
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
        assert!(draw(7).1.len() > 95, "they repeat");
    }
}
