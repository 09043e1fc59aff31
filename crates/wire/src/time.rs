//! Time: a clock that only callers move, and the waits that the specification encodes in a few
//! bits.

use core::fmt;
use core::ops::{Add, Sub};
use core::time::Duration;

/// A moment, in nanoseconds since whatever start the caller chose.
///
/// Nothing below `verbs` reads a clock: every call that depends on time gets an `Instant`. So
/// scripts and traces print the same bytes on every run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

impl Instant {
    /// The start.
    pub const ZERO: Self = Self(0);
    /// The last moment there is, 584 years after the start.
    pub const MAX: Self = Self(u64::MAX);

    /// The moment `nanos` nanoseconds after the start.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the start.
    pub const fn nanos(self) -> u64 {
        self.0
    }

    /// How long after `earlier`; zero when `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    /// Stops at [`Instant::MAX`].
    fn add(self, wait: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Sub for Instant {
    type Output = Duration;

    fn sub(self, earlier: Self) -> Duration {
        self.since(earlier)
    }
}

impl fmt::Display for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}", self.0 / 1_000_000_000, self.0 % 1_000_000_000)
    }
}

/// The local ACK timeout as the QP attribute encodes it: 0 means "wait for ever", otherwise the
/// wait is 4.096 µs × 2^code. IBA vol 1 §9.7.6.1.3. Range of `code`: 0..=31, up to about 2.4 hours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct AckTimeout {
    code: u8,
}

impl AckTimeout {
    /// `None` above 31.
    pub const fn new(code: u8) -> Option<Self> {
        if code < 32 { Some(Self { code }) } else { None }
    }

    /// The five bits.
    pub const fn code(self) -> u8 {
        self.code
    }

    /// The nominal wait; `None` is for ever. A timer may take up to four times as long.
    //= BC-121
    pub const fn duration(self) -> Option<Duration> {
        if self.code == 0 { None } else { Some(wait_4096_ns(self.code)) }
    }
}

/// 4.096 µs × 2^code: how connection management and ACK timeouts encode waits. `code` 0 ..= 31.
pub const fn wait_4096_ns(code: u8) -> Duration {
    Duration::from_nanos(4096 << (code & 31))
}

/// How long a requester waits after a "receiver not ready" NAK, as a code of five bits: 1 is the
/// shortest (10 µs), 31 is 491.52 ms, and 0 is the longest (655.36 ms). IBA vol 1 §9.7.5.2.8.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RnrTimer {
    code: u8,
}

impl RnrTimer {
    /// `None` above 31.
    pub const fn new(code: u8) -> Option<Self> {
        if code < 32 { Some(Self { code }) } else { None }
    }

    /// Keeps the low five bits, as the AETH field does.
    pub const fn from_bits(bits: u8) -> Self {
        Self { code: bits & 0x1f }
    }

    /// The five bits.
    pub const fn code(self) -> u8 {
        self.code
    }

    /// The wait.
    //= BC-042
    pub const fn duration(self) -> Duration {
        Duration::from_micros(RNR_WAIT_10US[self.code as usize] as u64 * 10)
    }
}

/// The RNR wait of each code in units of 10 µs.
const RNR_WAIT_10US: [u32; 32] = [
    65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536,
    2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
];

/// The static rate of a path as address vectors and connection requests encode it, six bits.
///
/// `enum ibv_rate` of libibverbs. 0 means "as fast as the port".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct StaticRate {
    code: u8,
}

impl StaticRate {
    /// As fast as the port goes.
    pub const MAX: Self = Self { code: 0 };

    /// Keeps the low six bits, as the header field does.
    pub const fn from_bits(bits: u8) -> Self {
        Self { code: bits & 0x3f }
    }

    /// The six bits.
    pub const fn code(self) -> u8 {
        self.code
    }

    /// Megabits per second; `None` for 0 (the port's rate) and for codes that name no rate.
    pub const fn megabits(self) -> Option<u32> {
        let gigabits = match self.code {
            2 => return Some(2_500),
            3 => 10,
            4 => 30,
            5 => 5,
            6 => 20,
            7 => 40,
            8 => 60,
            9 => 80,
            10 => 120,
            11 => 14,
            12 => 56,
            13 => 112,
            14 => 168,
            15 => 25,
            16 => 100,
            17 => 200,
            18 => 300,
            19 => 28,
            20 => 50,
            21 => 400,
            22 => 600,
            23 => 800,
            24 => 1200,
            _ => return None,
        };
        Some(gigabits * 1000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From code 4 on, each RNR wait is twice the one two codes before it. IBA §9.7.5.2.8.
    //= BC-042 test
    #[test]
    fn rnr_table_follows_its_own_pattern() {
        for code in 4..32 {
            assert_eq!(RNR_WAIT_10US[code], 2 * RNR_WAIT_10US[code - 2], "code {code}");
        }
        assert_eq!(RnrTimer::from_bits(0).duration(), Duration::from_micros(655_360));
        assert_eq!(RnrTimer::from_bits(12).duration(), Duration::from_micros(640));
        assert!((1..32).all(|c| RNR_WAIT_10US[0] > RNR_WAIT_10US[c]), "code 0 is the longest");
        assert_eq!(RnrTimer::new(32), None);
    }

    //= BC-121 test
    #[test]
    fn ack_timeout_doubles_and_zero_is_for_ever() {
        assert_eq!(AckTimeout::new(0).unwrap().duration(), None);
        assert_eq!(AckTimeout::new(1).unwrap().duration(), Some(Duration::from_nanos(8192)));
        assert_eq!(AckTimeout::new(14).unwrap().duration(), Some(Duration::from_nanos(67_108_864)));
        assert_eq!(AckTimeout::new(31).unwrap().duration().unwrap().as_secs(), 8796);
        assert_eq!(AckTimeout::new(32), None);
    }

    #[test]
    fn instants_saturate() {
        assert_eq!(Instant::MAX + Duration::MAX, Instant::MAX);
        assert_eq!(Instant::ZERO - Instant::from_nanos(5), Duration::ZERO);
        assert_eq!((Instant::from_nanos(7) + Duration::from_nanos(5)).nanos(), 12);
    }

    #[test]
    fn rates_are_those_of_verbs() {
        assert_eq!(StaticRate::from_bits(2).megabits(), Some(2_500));
        assert_eq!(StaticRate::from_bits(16).megabits(), Some(100_000));
        assert_eq!(StaticRate::MAX.megabits(), None);
        assert_eq!(StaticRate::from_bits(0xc3).code(), 3);
    }
}
