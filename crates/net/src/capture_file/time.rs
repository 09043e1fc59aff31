//! Points in time as capture files count them.

use std::fmt;

/// A wall-clock time: nanoseconds since 1970-01-01 00:00 UTC, up to the year 2554.
///
/// What a file puts outside this range becomes its nearest end. Finer resolutions than a
/// nanosecond are rounded down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The time `nanos` nanoseconds after the start of 1970.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// The time `seconds` and `nanos` after the start of 1970; `nanos` may exceed a second.
    pub(super) const fn new(seconds: u32, nanos: u64) -> Self {
        Self((seconds as u64 * NANOS_PER_SECOND).saturating_add(nanos))
    }

    /// Nanoseconds since the start of 1970.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Whole seconds since the start of 1970.
    pub const fn seconds(self) -> u64 {
        self.0 / NANOS_PER_SECOND
    }

    /// Nanoseconds since the last whole second. 0 ..= 999,999,999.
    pub const fn subsec_nanos(self) -> u32 {
        (self.0 % NANOS_PER_SECOND) as u32
    }
}

/// Seconds, a point and nine digits, as `tshark` prints `frame.time_epoch`.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}", self.seconds(), self.subsec_nanos())
    }
}

/// How one pcapng interface counts time: the length of a tick, and where tick 0 is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Clock {
    tick: Tick,
    offset_s: i64,
}

/// How long a tick is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tick {
    /// This many nanoseconds.
    Nanos(u64),
    /// A nanosecond has this many ticks.
    PerNano(u64),
    /// 2^-n seconds.
    PowerOfTwo(u8),
    /// So short that 2^64 of them are less than a nanosecond.
    Nothing,
}

impl Clock {
    /// What holds for an interface that does not say otherwise: microseconds since 1970.
    pub(super) const MICROSECONDS: Self = Self { tick: Tick::Nanos(1000), offset_s: 0 };

    /// Takes the option if_tsresol: the top bit chooses base 2 over base 10, the other seven are
    /// the negated exponent.
    pub(super) fn set_resolution(&mut self, code: u8) {
        let exponent = u32::from(code & 0x7f);
        self.tick = if code & 0x80 != 0 {
            Tick::PowerOfTwo(code & 0x7f)
        } else if exponent <= 9 {
            Tick::Nanos(10u64.pow(9 - exponent))
        } else {
            10u64.checked_pow(exponent - 9).map_or(Tick::Nothing, Tick::PerNano)
        };
    }

    /// Takes the option if_tsoffset: seconds to add to every time.
    pub(super) fn set_offset(&mut self, seconds: i64) {
        self.offset_s = seconds;
    }

    /// The time that `ticks` stand for.
    #[inline]
    pub(super) fn at(self, ticks: u64) -> Timestamp {
        let nanos = match self.tick {
            Tick::Nanos(nanos) => u128::from(ticks) * u128::from(nanos),
            Tick::PerNano(per_nano) => u128::from(ticks / per_nano),
            // Below 2^94, so the product fits; a shift by 127 at most is a valid shift.
            Tick::PowerOfTwo(n) => (u128::from(ticks) * u128::from(NANOS_PER_SECOND)) >> n,
            Tick::Nothing => 0,
        };
        let offset = i128::from(self.offset_s) * i128::from(NANOS_PER_SECOND);
        // Both are below 2^94 in size. The clamp makes the conversion exact.
        let nanos = (nanos.cast_signed() + offset).clamp(0, i128::from(u64::MAX));
        Timestamp(nanos as u64)
    }
}

pub(super) const NANOS_PER_SECOND: u64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn nanos(resolution: u8, offset_s: i64, ticks: u64) -> u64 {
        let mut clock = Clock::MICROSECONDS;
        clock.set_resolution(resolution);
        clock.set_offset(offset_s);
        clock.at(ticks).as_nanos()
    }

    #[test]
    fn a_second_is_a_second_at_every_resolution() {
        for exponent in 0..=19 {
            assert_eq!(nanos(exponent, 0, 10u64.pow(exponent.into())), 1_000_000_000);
        }
        for exponent in 0..=63 {
            assert_eq!(nanos(0x80 | exponent, 0, 1 << exponent), 1_000_000_000);
        }
    }

    #[test]
    fn finer_than_a_nanosecond_is_rounded_down() {
        assert_eq!(nanos(12, 0, 1_999), 1);
        assert_eq!(nanos(0x80 | 32, 0, 4), 0);
        assert_eq!(nanos(0x80 | 32, 0, 5), 1);
        assert_eq!(nanos(127, 0, u64::MAX), 0);
        assert_eq!(nanos(0xff, 0, u64::MAX), 0);
    }

    #[test]
    fn offsets_go_both_ways_and_stop_at_the_ends() {
        assert_eq!(nanos(6, 2, 1), 2_000_001_000);
        assert_eq!(nanos(6, -2, 5_000_000), 3_000_000_000);
        assert_eq!(nanos(6, -2, 0), 0);
        assert_eq!(nanos(0, i64::MAX, u64::MAX), u64::MAX);
        assert_eq!(nanos(0, i64::MIN, 0), 0);
    }
}
