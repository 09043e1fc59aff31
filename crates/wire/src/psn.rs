//! Packet sequence numbers: 24 bits on a circle.
//!
//! IBA vol 1 chapter 9.7 (request and response PSN rules). Only arithmetic stands here; what a PSN
//! in a certain region means is the transport's business.

use core::fmt;

/// A packet sequence number: counts packets, 24 bits wide, wraps at 2²⁴.
///
/// Not `Ord` on purpose. On a circle "less than" is not transitive, so a sorted list or a
/// `BTreeMap` of PSNs would compile and be wrong. Ask [`Psn::since`] instead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Psn(u32);

impl Psn {
    /// One turn of the circle: the number of different PSNs.
    pub const MODULUS: u32 = 1 << 24;

    /// Keeps the low 24 bits, as the BTH field does.
    pub const fn new(value: u32) -> Self {
        Self(value & (Self::MODULUS - 1))
    }

    /// The number, 0 ..= 2²⁴-1.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The PSN `packets` later.
    //= R02, Q14, 04-4.1
    #[must_use]
    pub const fn advance(self, packets: u32) -> Self {
        Self::new(self.0.wrapping_add(packets))
    }

    /// The PSN `packets` earlier.
    #[must_use]
    pub const fn back(self, packets: u32) -> Self {
        Self::new(self.0.wrapping_sub(packets))
    }

    /// The PSN after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        self.advance(1)
    }

    /// The PSN before this one.
    #[must_use]
    pub const fn previous(self) -> Self {
        self.back(1)
    }

    /// How many packets `self` lies after `origin`; negative when before. -2²³ ..= 2²³-1.
    ///
    /// The shift moves bit 23 into the sign bit and back, so the wrap needs no branch. Exactly
    /// half the circle away counts as *before*: that choice is made here and nowhere else.
    //= R04, 04-4.1
    pub const fn since(self, origin: Self) -> i32 {
        (self.0.wrapping_sub(origin.0) << 8).cast_signed() >> 8
    }

    /// Whether `self` is one of the `count` PSNs that start at `first`.
    pub const fn is_within(self, first: Self, count: u32) -> bool {
        Self::new(self.0.wrapping_sub(first.0)).0 < count
    }
}

impl fmt::Display for Psn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    //= R04, 04-4.1 test
    #[test]
    fn since_is_signed_and_wraps() {
        let last = Psn::new(0xff_ffff);
        assert_eq!(Psn::new(0).since(last), 1);
        assert_eq!(last.since(Psn::new(0)), -1);
        assert_eq!(Psn::new(0x7f_ffff).since(Psn::new(0)), 0x7f_ffff);
        assert_eq!(Psn::new(0x80_0000).since(Psn::new(0)), -0x80_0000);
        assert_eq!(Psn::new(0).since(Psn::new(0x80_0000)), -0x80_0000);
    }

    #[test]
    fn advance_and_back_are_inverse_over_the_wrap() {
        for start in [0, 1, 0x7f_ffff, 0x80_0000, 0xff_fffe, 0xff_ffff] {
            for step in [0, 1, 2, 0x7f_ffff, 0x80_0000, 0xff_ffff, 0x100_0000, u32::MAX] {
                let psn = Psn::new(start);
                assert_eq!(psn.advance(step).back(step), psn, "{start:#x} {step:#x}");
            }
        }
        assert_eq!(Psn::new(0x100_0005), Psn::new(5));
    }

    #[test]
    fn within_counts_from_the_first() {
        let first = Psn::new(0xff_fffe);
        let inside: [bool; 5] = core::array::from_fn(|i| {
            #[expect(clippy::cast_possible_truncation, reason = "0..5")]
            first.advance(i as u32).is_within(first, 3)
        });
        assert_eq!(inside, [true, true, true, false, false]);
        assert!(!first.previous().is_within(first, 3));
        assert!(!first.is_within(first, 0));
    }
}
