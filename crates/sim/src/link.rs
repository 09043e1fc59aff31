//! One direction of a cable: it takes time, has a rate and a queue, and may be bad.

use std::time::Duration;

use roxe_net::fault::{Faults, Subject};
use roxe_wire::Instant;

/// How a link is.
#[derive(Clone, Copy, Debug)]
pub struct LinkSettings {
    /// From one end to the other.
    pub latency: Duration,
    /// How long a byte takes to be put on it, in picoseconds: 80 is 100 Gb/s.
    pub picos_per_byte: u64,
    /// Bytes that may wait; what comes then is lost.
    pub queue_bytes: u64,
    /// From so many waiting bytes on, packets are marked "congestion experienced".
    pub mark_bytes: u64,
}

impl LinkSettings {
    /// How many times slower they are than the slowest that a seed makes; 1 for those and faster
    /// ones.
    ///
    /// A world of slow links is stretched: whatever takes its time there, from ACK timeouts to what
    /// applications wait for, takes so many times as long. So it is like one of the usual links,
    /// and what holds there holds here.
    pub fn stretch(&self) -> u32 {
        let latency = self.latency.as_nanos().div_ceil(LONGEST.as_nanos());
        let rate = u128::from(self.picos_per_byte.div_ceil(SLOWEST));
        u32::try_from(latency.max(rate)).unwrap_or(u32::MAX).max(1)
    }
}

/// The longest latency that a seed makes.
pub const LONGEST: Duration = Duration::from_micros(20);

/// The slowest rate that a seed makes, in picoseconds for a byte: 10 Gb/s.
pub const SLOWEST: u64 = 800;

/// One direction between two devices.
#[derive(Clone, Debug)]
pub struct Link {
    settings: LinkSettings,
    faults: Faults,
    /// Whoever waits longer in the queue may be thought lost by its sender.
    long_wait: Duration,
    /// When the last byte that waits will be on its way.
    busy_until: Instant,
}

/// A frame on its way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Passage {
    /// When it arrives; never, if it is lost.
    pub arrives: Option<Instant>,
    /// How many more of it arrive, right behind it.
    pub copies: u32,
    /// A bit that is turned over, counted from the first of the BTH.
    pub flip: Option<usize>,
    /// How many of its bytes arrive, counted from the BTH; all if `None`.
    pub keep: Option<usize>,
    /// Whether it is marked.
    pub mark: bool,
    /// Whether it was held back, for a time or for others to overtake it.
    pub held: bool,
    /// Whether anything but the usual happened to it.
    pub impaired: bool,
}

/// What links did to frames, by how many they did it to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Impairments {
    lost: u64,
    doubled: u64,
    held_back: u64,
    damaged: u64,
    marked: u64,
}

impl Impairments {
    /// Counts what happened to a frame.
    pub fn count(&mut self, passage: &Passage) {
        self.lost += u64::from(passage.arrives.is_none());
        self.doubled += u64::from(passage.copies != 0);
        self.held_back += u64::from(passage.held);
        self.damaged += u64::from(passage.flip.is_some() || passage.keep.is_some());
        self.marked += u64::from(passage.mark);
    }

    /// The counts and their names.
    pub const fn by_name(&self) -> [(&'static str, u64); 5] {
        [
            ("lost", self.lost),
            ("doubled", self.doubled),
            ("held back", self.held_back),
            ("damaged", self.damaged),
            ("marked", self.marked),
        ]
    }
}

impl Link {
    /// A link at rest.
    pub fn new(settings: LinkSettings, faults: Faults) -> Self {
        let long_wait = LONG_WAIT * settings.stretch();
        Self { settings, faults, long_wait, busy_until: Instant::ZERO }
    }

    /// Nothing is sent for so long; what comes waits.
    pub fn pause(&mut self, now: Instant, length: Duration) {
        self.busy_until = self.busy_until.max(now + length);
    }

    /// Sends a frame of so many bytes. `faulty` is whether the rules hold now.
    pub fn send(&mut self, now: Instant, len: usize, subject: Subject, faulty: bool) -> Passage {
        let verdict = if faulty { self.faults.judge(subject) } else { <_>::default() };
        let LinkSettings { latency, picos_per_byte, queue_bytes, mark_bytes } = self.settings;
        let wait = self.busy_until.since(now);
        let waiting = wait.as_nanos() as u64 * 1000 / picos_per_byte.max(1);
        if verdict.drop || waiting > queue_bytes {
            return Passage { impaired: true, ..Passage::default() };
        }
        let time = |bytes: u64| Duration::from_nanos((bytes * picos_per_byte).div_ceil(1000));
        let start = self.busy_until.max(now);
        self.busy_until = start + time(len as u64);
        let held = verdict.delay + time(u64::from(verdict.behind) * HELD_BEHIND);
        Passage {
            arrives: Some(self.busy_until + latency + held),
            copies: verdict.copies,
            flip: verdict.flip,
            keep: verdict.keep,
            mark: verdict.mark || waiting > mark_bytes,
            held: !held.is_zero(),
            impaired: verdict.copies != 0
                || !held.is_zero()
                || verdict.flip.is_some()
                || verdict.keep.is_some()
                || wait > self.long_wait,
        }
    }
}

/// A frame that is overtaken waits as long as so many bytes take for each that passes it.
const HELD_BEHIND: u64 = 1200;

/// A long wait in the queue of a link that a seed made.
const LONG_WAIT: Duration = Duration::from_micros(500);

#[cfg(test)]
mod tests {
    use super::*;
    use roxe_wire::{Psn, Qpn};

    const SETTINGS: LinkSettings = LinkSettings {
        latency: Duration::from_micros(5),
        picos_per_byte: 1000,
        queue_bytes: 2500,
        mark_bytes: 1500,
    };

    fn subject() -> Subject {
        Subject { qpn: Qpn::new(1), psn: Psn::new(1), len: 1000 }
    }

    #[test]
    fn frames_queue_are_marked_and_lost() {
        let mut link = Link::new(SETTINGS, Faults::new([], 0));
        let mut send = || link.send(Instant::ZERO, 1000, subject(), true);
        let at = |micros: u64| Some(Instant::from_nanos(micros * 1000));
        let sent = [send(), send(), send(), send()];
        assert_eq!(sent.map(|passage| passage.arrives), [at(6), at(7), at(8), None]);
        assert_eq!(sent.map(|passage| passage.mark), [false, false, true, false]);
    }

    #[test]
    fn rules_hold_only_while_the_link_is_bad() {
        let mut link = Link::new(SETTINGS, Faults::parse("drop", 0).unwrap());
        assert_eq!(link.send(Instant::ZERO, 1000, subject(), true).arrives, None);
        assert!(link.send(Instant::ZERO, 1000, subject(), false).arrives.is_some());
        link.pause(Instant::ZERO, Duration::from_micros(100));
        let late = link.send(Instant::ZERO, 1000, subject(), false);
        assert_eq!(late.arrives, None, "the queue is full of what waits");
    }
}
