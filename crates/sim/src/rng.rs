//! Chance from a seed: the same numbers on every machine and every run.

/// A stream of numbers. SplitMix64: tiny, fast, and every seed is as good as another.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// The stream of a seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A stream of its own for one purpose: what is drawn there does not change what is drawn
    /// elsewhere, so that a smaller world keeps the rest as it was.
    #[must_use]
    pub fn fork(&self, purpose: u64) -> Self {
        let mut mixed = Self(self.0 ^ purpose.wrapping_mul(0xd1b5_4a32_d192_ed03));
        Self(mixed.next())
    }

    /// The next 64 bits.
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// 0 ..= `bound` - 1; 0 for a bound of 0.
    pub const fn below(&mut self, bound: u64) -> u64 {
        ((self.next() as u128 * bound as u128) >> 64) as u64
    }

    /// `least` ..= `most`.
    pub const fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most - least + 1)
    }

    /// True so many times of a hundred.
    pub const fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }

    /// One of these. There must be one.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_what_the_algorithm_says_and_independent() {
        let mut rng = Rng::new(1_234_567);
        // The first numbers of SplitMix64 for this seed, as published with it.
        let first = [rng.next(), rng.next(), rng.next()];
        assert_eq!(
            first,
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]
        );
        let (mut one, mut other) = (rng.fork(1), rng.fork(2));
        assert_ne!(one.next(), other.next());
        assert_eq!(rng.fork(1).next(), rng.fork(1).next());
    }

    #[test]
    fn bounds_are_kept() {
        let mut rng = Rng::new(1);
        assert_eq!(rng.below(0), 0);
        let drawn: Vec<u64> = (0..1000).map(|_| rng.between(3, 5)).collect();
        assert!((3..=5).all(|value| drawn.contains(&value)));
        assert!(drawn.iter().all(|value| (3..=5).contains(value)));
        assert!((0..1000).filter(|_| rng.percent(10)).count().abs_diff(100) < 50);
    }
}
