//! Numbers that do not tell how they were counted: a keyed permutation of 24 bits.
//!
//! Queue pair numbers and memory keys are array indices inside and must not look like it outside:
//! who has seen one shall not know the next. A permutation needs no table and no search, and can
//! be undone in a few multiplications, which is what the lookup of a received packet does.
//!
//! It is no cipher. It hides the numbers of others from who sees a few, not from who collects many
//! and sits down to solve for the key. Nothing rests on it alone: a key still belongs to a
//! protection domain and grants only its rights and range.

/// A permutation of 0 ..= 2²⁴-1 that depends on a seed.
#[derive(Clone, Debug)]
pub struct Scramble {
    rounds: [Round; 3],
}

/// Fold the upper half into the lower, multiply, whiten. Each step can be undone.
#[derive(Clone, Debug)]
struct Round {
    factor: u32,
    /// `factor * inverse` is 1 modulo 2²⁴.
    inverse: u32,
    whitening: u32,
}

impl Scramble {
    /// The permutation of this seed.
    pub fn new(seed: u64) -> Self {
        let round = |number| {
            let bits = mix(seed, number);
            let factor = bits as u32 & MASK | 1;
            Round { factor, inverse: inverse(factor), whitening: (bits >> 32) as u32 & MASK }
        };
        Self { rounds: [round(0), round(1), round(2)] }
    }

    /// The number that stands for an index. Of the index the low 24 bits count.
    pub const fn number(&self, index: u32) -> u32 {
        let [a, b, c] = &self.rounds;
        c.apply(b.apply(a.apply(index & MASK)))
    }

    /// The index that a number stands for. Of the number the low 24 bits count.
    pub const fn index(&self, number: u32) -> u32 {
        let [a, b, c] = &self.rounds;
        a.undo(b.undo(c.undo(number & MASK)))
    }
}

impl Round {
    const fn apply(&self, value: u32) -> u32 {
        let folded = value ^ value >> 12;
        folded.wrapping_mul(self.factor) & MASK ^ self.whitening
    }

    const fn undo(&self, value: u32) -> u32 {
        let folded = (value ^ self.whitening).wrapping_mul(self.inverse) & MASK;
        folded ^ folded >> 12
    }
}

/// What numbers are made for. From one seed each gets its own, so that what everybody sees (queue
/// pair numbers) tells nothing about what few should know (keys).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Queue pair numbers.
    QueuePairNumbers,
    /// The indices of memory keys.
    KeyIndices,
    /// The bytes of memory keys.
    KeyBytes,
}

/// The seed for one purpose.
pub const fn seed_for(seed: u64, purpose: Purpose) -> u64 {
    mix(seed, u64::MAX - purpose as u64)
}

/// Bits that depend on a seed and a number and show neither: the seed is added once more at the
/// end, or the steps could be undone.
pub const fn mix(seed: u64, number: u64) -> u64 {
    let mut bits = seed ^ number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ bits >> 31 ^ seed
}

/// What undoes a multiplication by an odd number modulo 2²⁴: each step doubles the right bits, of
/// which there are three to begin with.
const fn inverse(odd: u32) -> u32 {
    let mut inverse = odd;
    let mut right_bits = 3;
    while right_bits < 24 {
        inverse = inverse.wrapping_mul(2u32.wrapping_sub(odd.wrapping_mul(inverse)));
        right_bits *= 2;
    }
    inverse & MASK
}

const MASK: u32 = 0x00ff_ffff;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_stands_for_one_index() {
        let scramble = Scramble::new(7);
        let mut seen = vec![false; 1 << 24];
        for index in 0..1 << 24 {
            let number = scramble.number(index);
            assert_eq!(scramble.index(number), index);
            assert!(!core::mem::replace(&mut seen[number as usize], true));
        }
    }

    /// Steps between neighbours are the first thing a guesser tries.
    #[test]
    fn neighbours_do_not_stand_together() {
        for seed in 0..20 {
            let scramble = Scramble::new(seed);
            let numbers: Vec<u32> = (0..1000).map(|index| scramble.number(index)).collect();
            let mut steps: Vec<u32> =
                numbers.windows(2).map(|pair| pair[1].wrapping_sub(pair[0]) & MASK).collect();
            steps.sort_unstable();
            steps.dedup();
            assert!(steps.len() > 900, "seed {seed}: {} different steps", steps.len());
        }
    }

    #[test]
    fn purposes_share_a_seed_but_no_numbers() {
        let of = |purpose| Scramble::new(seed_for(1, purpose));
        let (one, two) = (of(Purpose::QueuePairNumbers), of(Purpose::KeyIndices));
        let same = (0..10_000).filter(|&index| one.number(index) == two.number(index)).count();
        assert!(same < 10, "{same} of 10,000 are the same");
    }

    #[test]
    fn another_seed_gives_other_numbers() {
        let (one, two) = (Scramble::new(1), Scramble::new(2));
        let same = (0..10_000).filter(|&index| one.number(index) == two.number(index)).count();
        assert!(same < 10, "{same} of 10,000 are the same");
    }
}
