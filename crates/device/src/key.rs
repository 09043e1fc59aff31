//! Keys of memory: how an L_Key or R_Key is made from a slot, and what of it is the consumer's.
//!
//! A key is an index of 24 bits and a key byte: `index << 8 | byte`. The index is the adapter's and
//! stays with a region or window for its life; the byte is the consumer's to change where a verb or
//! work request makes a key valid anew. A region's L_Key and R_Key are one number. Both parts come
//! from a seed, so that keys of one process say nothing about those of another.

use crate::scramble::{Purpose, Scramble, mix, seed_for};

/// Makes keys and reads them.
#[derive(Clone, Debug)]
pub struct Keys {
    indices: Scramble,
    byte_seed: u64,
}

impl Keys {
    /// The keys of this seed.
    pub fn new(seed: u64) -> Self {
        let indices = Scramble::new(seed_for(seed, Purpose::KeyIndices));
        Self { indices, byte_seed: seed_for(seed, Purpose::KeyBytes) }
    }

    /// The first key of a slot.
    pub fn first(&self, slot: u32) -> u32 {
        join(self.indices.number(slot), mix(self.byte_seed, slot.into()) as u8)
    }

    /// The key of a slot's next object, when the last one had `key`. The byte takes each of the 256
    /// values before one comes back.
    pub fn following(&self, key: u32) -> u32 {
        let slot = self.slot(key);
        let step = (mix(self.byte_seed, slot.into()) >> 8) as u8 | 1;
        join(key >> 8, (key as u8).wrapping_add(step))
    }

    /// The slot that a key is about.
    pub const fn slot(&self, key: u32) -> u32 {
        self.indices.index(key >> 8)
    }
}

/// Whether two keys differ in nothing but the byte.
pub const fn same_index(one: u32, other: u32) -> bool {
    one >> 8 == other >> 8
}

const fn join(index: u32, byte: u8) -> u32 {
    index << 8 | byte as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_leads_back_to_its_slot() {
        let keys = Keys::new(3);
        for slot in [0, 1, 2, 1000, 0xff_ffff] {
            let key = keys.first(slot);
            assert_eq!(keys.slot(key), slot);
            assert_eq!(keys.slot(key ^ 0xff), slot, "the byte does not matter");
            assert!(same_index(key, key ^ 0xff) && !same_index(key, key ^ 0x100));
        }
    }

    #[test]
    fn an_old_key_of_a_slot_comes_back_as_late_as_it_can() {
        let keys = Keys::new(3);
        for slot in 0..100 {
            let first = keys.first(slot);
            let mut key = first;
            for _ in 1..256 {
                key = keys.following(key);
                assert!(key != first && same_index(key, first));
            }
            assert_eq!(keys.following(key), first);
        }
    }

    #[test]
    fn first_bytes_differ() {
        let keys = Keys::new(3);
        let mut bytes: Vec<u8> = (0..1000).map(|slot| keys.first(slot) as u8).collect();
        bytes.sort_unstable();
        bytes.dedup();
        assert!(bytes.len() > 200);
    }
}
