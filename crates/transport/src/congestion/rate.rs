//! How fast: bits a second.

use core::fmt;
use core::time::Duration;

/// A rate in bits a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Rate(f64);

impl Rate {
    /// Nothing. As a parameter it mostly means "not set".
    pub const ZERO: Self = Self(0.0);

    /// `megabits` Mb/s, the unit of mlx5's parameters.
    pub const fn from_mbps(megabits: u32) -> Self {
        Self(megabits as f64 * 1e6)
    }

    /// So many bits a second; what is no number or negative is none.
    pub const fn from_bits_per_second(bits: f64) -> Self {
        if bits > 0.0 { Self(bits) } else { Self::ZERO }
    }

    /// Bits a second.
    pub const fn bits_per_second(self) -> f64 {
        self.0
    }

    /// Whether it is none.
    pub const fn is_zero(self) -> bool {
        self.0 == 0.0
    }

    /// The bytes of so long a time.
    pub(crate) fn bytes_in(self, time: Duration) -> f64 {
        self.0 / 8.0 * time.as_secs_f64()
    }

    /// How long so many bytes take, rounded up; for ever at no rate.
    pub(crate) fn time_for(self, bytes: f64) -> Duration {
        let seconds = Duration::try_from_secs_f64(bytes * 8.0 / self.0);
        seconds.map_or(Duration::MAX, |time| time.saturating_add(Duration::from_nanos(1)))
    }

    pub(crate) const fn min(self, other: Self) -> Self {
        Self(self.0.min(other.0))
    }

    pub(crate) const fn max(self, other: Self) -> Self {
        Self(self.0.max(other.0))
    }

    pub(crate) fn times(self, factor: f64) -> Self {
        Self(self.0 * factor)
    }

    pub(crate) fn plus(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl fmt::Display for Rate {
    /// In the unit that has one to three digits before the point.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, name) = match self.0 {
            bits if bits >= 1e9 => (1e9, "Gb/s"),
            bits if bits >= 1e6 => (1e6, "Mb/s"),
            _ => (1e3, "kb/s"),
        };
        write!(f, "{:.2} {name}", self.0 / unit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_take_their_time() {
        let rate = Rate::from_mbps(8);
        assert_eq!(rate.bytes_in(Duration::from_millis(1)), 1000.0);
        assert_eq!(rate.time_for(1000.0), Duration::from_nanos(1_000_001));
        assert_eq!(Rate::ZERO.time_for(1.0), Duration::MAX);
    }

    #[test]
    fn what_is_no_rate_is_none() {
        for bits in [f64::NAN, -1.0, 0.0] {
            assert!(Rate::from_bits_per_second(bits).is_zero(), "{bits}");
        }
        assert_eq!(Rate::from_bits_per_second(2.5e9).to_string(), "2.50 Gb/s");
        assert_eq!(Rate::from_mbps(40).to_string(), "40.00 Mb/s");
    }
}
