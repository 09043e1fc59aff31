//! What messages hold: both hosts know it without a word.

/// Numbers that look like chance, the same from every seed (SplitMix64).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Numbers(pub(crate) u64);

impl Numbers {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// A length of at most `most`: each power of two is as likely as any other, and so is 0.
    pub(crate) fn len(&mut self, most: usize) -> usize {
        let bits = self.below(u64::from(most.ilog2()) + 2);
        match bits {
            0 => 0,
            bits => ((1 << (bits - 1)) + self.below(1 << (bits - 1)) as usize).min(most),
        }
    }
}

/// Fills bytes as `seed` says.
pub(crate) fn fill(seed: u64, bytes: &mut [u8]) {
    let mut word = Numbers(seed).next() | 1;
    for chunk in bytes.chunks_mut(8) {
        chunk.copy_from_slice(&word.to_le_bytes()[..chunk.len()]);
        word = word.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23);
    }
}
