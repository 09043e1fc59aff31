//! What to do while nothing completes: poll, or sleep, and look now and then whether the peer is
//! still there.

use std::time::{Duration, Instant};

use crate::outcome::complain;
use crate::perf::plan::Extent;
use crate::perf::rig::Rig;
use crate::side_channel::here::Here as _;
use crate::side_channel::{EarlyWord, Failure, Presence, Quiet, SideChannel, closed, endured};

/// Waiting for completions.
pub(crate) struct Idle<'a> {
    rig: &'a Rig,
    channel: &'a SideChannel,
    /// Polls in a row that found nothing.
    empty: u32,
    since: Option<Instant>,
    quiet: Option<Quiet>,
    /// When the peer was looked at last while something completed.
    looked: Option<Instant>,
    /// Since when the port is down while something completes all the same.
    down: Option<Instant>,
    early: EarlyWord,
    /// Whether anything has completed, and the longest time since in which nothing did.
    begun: bool,
    outage: Duration,
}

/// What was seen of the peer meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// It goes on.
    Busy,
    /// It is done, and for some time nothing has come.
    Done,
    /// For some time nothing has come.
    Quiet,
}

/// So many polls that find nothing before another thread may have the processor.
const SPINS: u32 = 200;

/// One of so many polls looks at the clock: on a busy machine each may take milliseconds.
const LOOK: u32 = 1 << 6;

/// The longest sleep.
const SLEEP: Duration = Duration::from_millis(50);

/// After this the peer is looked at.
const SHORT: Duration = Duration::from_millis(200);

/// A time without anything from which on it is told.
const OUTAGE: Duration = Duration::from_secs(1);

/// What comes later than this after the peer was done does not come any more.
const GRACE: Duration = Duration::from_secs(2);

impl<'a> Idle<'a> {
    pub(crate) fn new(rig: &'a Rig, channel: &'a SideChannel) -> Self {
        let (since, quiet, looked, down) = (None, None, None, None);
        let (begun, outage) = (false, Duration::ZERO);
        let early = EarlyWord::default();
        Self { rig, channel, empty: 0, since, quiet, looked, down, early, begun, outage }
    }

    /// Something completed.
    pub(crate) fn moved(&mut self) {
        self.empty = 0;
        self.outage = self.longest();
        self.begun = true;
        self.since = None;
        self.quiet = None;
    }

    /// The longest time in which nothing completed.
    fn longest(&self) -> Duration {
        let now = self.since.filter(|_| self.begun).map(|since| since.elapsed());
        now.map_or(self.outage, |now| now.max(self.outage))
    }

    /// Says so if what was measured has a hole.
    pub(crate) fn tell_outage(&self) {
        let outage = self.longest();
        if outage >= OUTAGE {
            complain(format_args!(
                "nothing came for {outage:.1?} meanwhile: what was measured includes that"
            ));
        }
    }

    /// Something completed, at this time. What is not acknowledged completes whether or not there
    /// is a peer, or a way to it: now and then both are looked for all the same.
    pub(crate) fn went_on(&mut self, now: Instant) -> Result<(), Failure> {
        self.moved();
        let looked = self.looked.get_or_insert(now);
        if now.saturating_duration_since(*looked) < SHORT {
            return Ok(());
        }
        *looked = now;
        if self.channel.look() == Presence::Gone {
            return Err(closed(self.rig.why()));
        }
        if !self.rig.is_down() {
            self.down = None;
            return Ok(());
        }
        let down = now.saturating_duration_since(*self.down.get_or_insert(now));
        endured(self.rig.service(), down, self.channel.patience(), || self.rig.why())
    }

    /// Nothing did.
    pub(crate) fn rest(&mut self) -> Result<Seen, Failure> {
        self.empty = self.empty.wrapping_add(1);
        match &self.rig.channel {
            // Armed first and polled after, so that no completion is overslept.
            Some(channel) if self.empty > 1 => {
                if !self.rig.cq.request_notify(false)? {
                    channel.wait(SLEEP);
                }
            }
            Some(_) => return Ok(Seen::Busy),
            None if self.empty < SPINS => std::hint::spin_loop(),
            None => std::thread::yield_now(),
        }
        if self.rig.channel.is_none() && !self.empty.is_multiple_of(LOOK) {
            return Ok(Seen::Busy);
        }
        self.look()
    }

    #[cold]
    fn look(&mut self) -> Result<Seen, Failure> {
        let elapsed = self.since.get_or_insert_with(Instant::now).elapsed();
        if elapsed < SHORT {
            return Ok(Seen::Busy);
        }
        let quiet = self.quiet.get_or_insert_with(Quiet::begin).lasts(|| self.rig.traffic());
        match self.channel.look() {
            Presence::Gone => Err(closed(self.rig.why())),
            Presence::Done if elapsed > GRACE => Ok(Seen::Done),
            _ => {
                let patience = self.channel.patience();
                let service = self.rig.service();
                endured(service, quiet, patience, || self.rig.why())?;
                if !self.begun {
                    self.early.say(service, quiet, patience);
                }
                Ok(if quiet > GRACE { Seen::Quiet } else { Seen::Busy })
            }
        }
    }
}

/// How long a measurement has to go on, and what of it counts.
pub(crate) struct Measure {
    extent: Extent,
    start: Option<Instant>,
    counted: u64,
    /// Seconds of which somebody was told.
    told: u64,
}

impl Measure {
    pub(crate) const fn new(extent: Extent) -> Self {
        Self { extent, start: None, counted: 0, told: 0 }
    }

    /// The clock begins, if it has not yet.
    pub(crate) fn begin(&mut self) {
        self.start.get_or_insert_with(Instant::now);
    }

    /// So many messages of each queue pair; without end, if time decides.
    pub(crate) const fn messages(&self) -> u64 {
        match self.extent {
            Extent::Messages(messages) => messages,
            Extent::Time { .. } => u64::MAX,
        }
    }

    /// Whether time decides.
    pub(crate) const fn by_time(&self) -> bool {
        matches!(self.extent, Extent::Time { .. })
    }

    /// So many more are done. Says whether the time is over.
    pub(crate) fn tick(&mut self, more: u64) -> bool {
        let Extent::Time { whole, margin } = self.extent else { return false };
        let Some(start) = self.start else { return false };
        let now = start.elapsed();
        if now >= margin && now < whole - margin {
            self.counted += more;
        }
        if now.as_secs() > self.told {
            self.told = now.as_secs();
            crate::perf::report::progress(self.told, whole.as_secs());
        }
        now >= whole
    }

    /// What was counted, and in which time.
    pub(crate) const fn sample(&self) -> Option<(u64, Duration)> {
        match self.extent {
            Extent::Messages(_) => None,
            Extent::Time { whole, margin } => {
                Some((self.counted, whole.saturating_sub(margin.saturating_mul(2))))
            }
        }
    }
}
