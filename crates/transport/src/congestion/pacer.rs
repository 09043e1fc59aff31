//! May this packet go now, and if not, when?
//!
//! A bucket of bytes that fills with the rate and holds a burst at the most. A packet goes when
//! there is anything in it, and may leave it owing: so packets of any length keep the rate, and
//! the largest is never held back for ever.

use roxe_wire::Instant;

use super::Rate;

/// How many bytes may be sent at once after a pause: mlx5's `max_burst_sz`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Burst(pub u32);

impl Burst {
    /// 16 KiB: four packets of the largest path MTU.
    pub const DEFAULT: Self = Self(16 << 10);
}

impl Default for Burst {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// The bucket.
#[derive(Clone, Debug)]
pub struct Pacer {
    burst: f64,
    /// Bytes; below zero what is owed.
    bucket: f64,
    /// When that was so.
    at: Instant,
}

impl Pacer {
    /// A full bucket.
    pub fn new(Burst(burst): Burst) -> Self {
        Self { burst: f64::from(burst), bucket: f64::from(burst), at: Instant::ZERO }
    }

    /// So much may be sent at once from now on.
    pub fn set_burst(&mut self, Burst(burst): Burst) {
        self.burst = f64::from(burst);
        self.bucket = self.bucket.min(self.burst);
    }

    /// As if there had been a pause.
    pub fn refill(&mut self) {
        self.bucket = self.burst;
    }

    /// Until now the rate was this.
    pub fn advance(&mut self, now: Instant, rate: Rate) {
        self.bucket = (self.bucket + rate.bytes_in(now.since(self.at))).min(self.burst);
        self.at = self.at.max(now);
    }

    /// When a packet may go if the rate stays; `None` for at once.
    pub fn ready(&self, rate: Rate) -> Option<Instant> {
        (self.bucket < 0.0).then(|| self.at + rate.time_for(-self.bucket))
    }

    /// A packet of so many bytes went.
    pub fn sent(&mut self, bytes: f64) {
        self.bucket -= bytes;
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;

    #[test]
    fn a_burst_is_bounded_after_any_pause() {
        let rate = Rate::from_mbps(8); // a byte a microsecond
        let mut pacer = Pacer::new(Burst(4000));
        let mut now = Instant::ZERO + Duration::from_secs(1000);
        pacer.advance(now, rate);
        let burst = |pacer: &mut Pacer| {
            (0..)
                .take_while(|_| {
                    pacer.ready(rate).is_none() && {
                        pacer.sent(1000.0);
                        true
                    }
                })
                .count()
        };
        assert_eq!(burst(&mut pacer), 5, "four, and one that is owed");
        let ready = pacer.ready(rate).unwrap();
        assert_eq!(ready, now + Duration::from_nanos(1_000_001));
        now = ready;
        pacer.advance(now, rate);
        assert_eq!(burst(&mut pacer), 1);
        // A clock that is read twice, or goes back, gives nothing.
        pacer.advance(Instant::ZERO, rate);
        assert_eq!(burst(&mut pacer), 0);
    }
}
