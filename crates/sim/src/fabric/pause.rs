//! Priority-based flow control: IEEE 802.1Qbb.
//!
//! A receiver that runs out of room says for each priority how long nothing may be sent: in
//! quanta, the time of 512 bits. Zero lets it go on.

/// What a flow control frame says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PauseFrame {
    /// Bit n: `quanta[n]` means something.
    pub enabled: u8,
    /// For how long each priority stops.
    pub quanta: [u16; 8],
}

impl PauseFrame {
    /// Bytes of the frame, with its FCS.
    pub const LEN: u64 = 64;

    /// One priority stops for so long, or with 0 goes on.
    pub fn one(priority: u8, quanta: u16) -> Self {
        let mut frame = Self { enabled: 1 << priority, ..Self::default() };
        frame.quanta[usize::from(priority)] = quanta;
        frame
    }

    /// Stops it for as long as a frame can say.
    pub fn stop(priority: u8) -> Self {
        Self::one(priority, u16::MAX)
    }

    /// Lets it go on.
    pub fn go_on(priority: u8) -> Self {
        Self::one(priority, 0)
    }
}

/// How long `quanta` are on a link of so many Mb/s, in picoseconds.
pub(super) fn quanta_ps(quanta: u16, mbps: u64) -> u64 {
    u64::from(quanta) * 512 * 1_000_000 / mbps.max(1)
}

/// What an egress port has been told to stop.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Gate {
    /// Until when each priority is stopped.
    until: [u64; 8],
    /// Since when, as long as it is.
    since: [u64; 8],
    /// Which may be: a bit each. Those whose time is over are found out when it matters.
    stopped: u8,
    /// Frames that stopped what was not stopped.
    pub(super) pauses: u64,
    /// How long priorities were stopped, those that are not now.
    paused_ps: u64,
}

impl Gate {
    /// A frame came.
    pub(super) fn hear(&mut self, now: u64, frame: &PauseFrame, mbps: u64) {
        self.closed(now);
        for priority in (0..8).filter(|priority| frame.enabled >> priority & 1 == 1) {
            let bit = 1 << priority;
            let quanta = frame.quanta[priority];
            if quanta == 0 {
                if self.stopped & bit != 0 {
                    self.open(priority, now);
                }
                continue;
            }
            if self.stopped & bit == 0 {
                self.stopped |= bit;
                self.since[priority] = now;
                self.pauses += 1;
            }
            self.until[priority] = now + quanta_ps(quanta, mbps);
        }
    }

    fn open(&mut self, priority: usize, at: u64) {
        self.stopped &= !(1 << priority);
        self.paused_ps += at - self.since[priority];
    }

    /// Which priorities are stopped: a bit each.
    pub(super) fn closed(&mut self, now: u64) -> u8 {
        if self.stopped != 0 {
            for priority in 0..8 {
                if self.stopped >> priority & 1 == 1 && self.until[priority] <= now {
                    self.open(priority, self.until[priority]);
                }
            }
        }
        self.stopped
    }

    /// Whether a priority has been stopped without a break since `since` or longer.
    pub(super) fn closed_since(&self, priority: usize, since: u64) -> bool {
        self.stopped >> priority & 1 == 1 && self.since[priority] <= since
    }

    /// How long priorities were stopped, all together.
    pub(super) fn paused_ps(&self, now: u64) -> u64 {
        let still = (0..8).filter(|priority| self.stopped >> priority & 1 == 1);
        let still: u64 =
            still.map(|at: usize| now.min(self.until[at]).saturating_sub(self.since[at])).sum();
        self.paused_ps + still
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The longest pause at 100 Gb/s is 335.5 µs.
    #[test]
    fn a_pause_ends_by_itself_by_a_frame_or_is_made_longer() {
        let whole = quanta_ps(u16::MAX, 100_000);
        assert_eq!(whole, 335_539_200);
        let mut gate = Gate::default();
        gate.hear(0, &PauseFrame::stop(3), 100_000);
        assert_eq!((gate.closed(whole - 1), gate.closed(whole)), (1 << 3, 0));
        gate.hear(2 * whole, &PauseFrame::stop(3), 100_000);
        gate.hear(2 * whole + 100, &PauseFrame::stop(3), 100_000);
        assert_eq!(gate.closed(3 * whole + 99), 1 << 3);
        assert!(gate.closed_since(3, 2 * whole) && !gate.closed_since(3, 2 * whole - 1));
        gate.hear(3 * whole + 99, &PauseFrame::go_on(3), 100_000);
        assert_eq!(gate.closed(3 * whole + 99), 0);
        assert_eq!((gate.pauses, gate.paused_ps(9 * whole)), (2, 2 * whole + 99));
    }

    #[test]
    fn priorities_that_are_not_enabled_are_left_alone() {
        let mut gate = Gate::default();
        gate.hear(0, &PauseFrame::stop(3), 40_000);
        gate.hear(1, &PauseFrame { enabled: 1 << 5, quanta: [0, 0, 0, 0, 0, 9, 0, 0] }, 40_000);
        assert_eq!(gate.closed(2), 1 << 3 | 1 << 5);
    }
}
