//! Directions whose other half is not known yet, found by who is between, by port and by PSN:
//! there may be thousands between two hosts, and to look at each of them for every frame takes
//! too long.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::ops::Bound;

use roxe_wire::{Psn, Qpn};

use super::FlowKey;

/// From whom to whom, and of which service.
type Between = (IpAddr, IpAddr, u8);

/// PSNs are looked up in so many groups of neighbours …
const GROUPS: u32 = 1 << 10;

/// … and of a direction that takes in more than so many of them, in any.
const MOST_GROUPS: u32 = 64;

/// A group of PSNs, or none where it may be any PSN.
type Group = Option<u32>;

/// Where a direction is found: the first of its groups, and how many; none where it may be any.
pub(super) type Place = Option<(u32, u32)>;

/// A few directions, by PSN and by port.
#[derive(Debug, Default)]
pub(super) struct Halves {
    by_psn: BTreeMap<(Between, Group), BTreeSet<usize>>,
    /// Those for which there is not even a guess.
    alone: BTreeMap<(Between, u16, Qpn), usize>,
}

const fn opposite(key: &FlowKey) -> Between {
    (key.destination, key.source, key.service)
}

const fn between(key: &FlowKey) -> Between {
    (key.source, key.destination, key.service)
}

/// The groups in which the PSNs from `first` on, so many, lie.
pub(super) fn place(first: Psn, count: u32) -> Place {
    let size = Psn::MODULUS / GROUPS;
    let groups = (first.get() % size + count.saturating_sub(1)) / size + 1;
    (groups <= MOST_GROUPS).then_some((first.get() / size, groups))
}

/// Whether all groups of one place are among those of the other.
pub(super) fn is_within(inner: Place, outer: Place) -> bool {
    match (inner, outer) {
        (_, None) => true,
        (None, Some(_)) => false,
        (Some((first, count)), Some((from, all))) => {
            (first + GROUPS - from) % GROUPS + count <= all
        }
    }
}

fn groups(place: Place) -> impl Iterator<Item = Group> {
    let (first, count) = place.unwrap_or((0, 1));
    (0..count).map(move |group| place.map(|_| (first + group) % GROUPS))
}

impl Halves {
    /// A direction is found at a place.
    pub(super) fn insert(&mut self, key: &FlowKey, place: Place, index: usize) {
        for group in groups(place) {
            self.by_psn.entry((between(key), group)).or_default().insert(index);
        }
    }

    /// It is no longer.
    pub(super) fn remove(&mut self, key: &FlowKey, place: Place, index: usize) {
        for group in groups(place) {
            let at = (between(key), group);
            if let Some(known) = self.by_psn.get_mut(&at) {
                known.remove(&index);
                if known.is_empty() {
                    self.by_psn.remove(&at);
                }
            }
        }
    }

    /// Those opposite to the direction of `key` whose requests may have this PSN; and more.
    pub(super) fn opposite(&self, key: &FlowKey, psn: Psn) -> [Option<&BTreeSet<usize>>; 2] {
        let group = psn.get() / (Psn::MODULUS / GROUPS);
        [Some(group), None].map(|group| self.by_psn.get(&(opposite(key), group)))
    }

    /// There is a guess for a direction, or none.
    pub(super) fn set_alone(&mut self, key: &FlowKey, port: u16, index: usize, alone: bool) {
        let at = (between(key), port, key.dest_qp);
        if alone {
            self.alone.insert(at, index);
        } else {
            self.alone.remove(&at);
        }
    }

    /// The one opposite to the direction of `key` for which there is no guess; of several, one
    /// with this port.
    pub(super) fn guess(&self, key: &FlowKey, port: u16) -> Option<usize> {
        let all = opposite(key);
        let from = |port| Bound::Included((all, port, Qpn::new(0)));
        let to = |port| Bound::Included((all, port, Qpn::MULTICAST));
        let mut any = self.alone.range((from(0), to(u16::MAX)));
        match (any.next()?, any.next()) {
            ((_, &only), None) => Some(only),
            _ => self.alone.range((from(port), to(port))).next().map(|(_, &index)| index),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_wrap_with_psns() {
        let size = Psn::MODULUS / GROUPS;
        let last = Psn::new(Psn::MODULUS - 1);
        assert_eq!(place(last, 2), Some((GROUPS - 1, 2)));
        assert_eq!(groups(place(last, 2)).collect::<Vec<_>>(), [Some(GROUPS - 1), Some(0)]);
        assert_eq!(place(Psn::new(0), size), Some((0, 1)));
        assert_eq!(place(Psn::new(1), size), Some((0, 2)));
        assert_eq!(place(Psn::new(0), Psn::MODULUS - 1), None);
        assert_eq!(groups(None).collect::<Vec<_>>(), [None]);
        assert!(is_within(place(Psn::new(0), 1), place(last, 2)));
        assert!(!is_within(place(Psn::new(size), 1), place(last, 2)));
        assert!(is_within(place(last, 2), None) && !is_within(None, place(last, 2)));
    }
}
