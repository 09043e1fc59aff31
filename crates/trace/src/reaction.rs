//! What a sender does when it is told of congestion, as far as the times of a capture show.
//!
//! A CNP asks to slow down; whether that is done, and how fast before, no packet says. What can be
//! seen is how fast packets followed each other where the capture was made, before the CNP and
//! after it. The application may have had less to send, and a queue on the way keeps packets at its
//! own pace: it is an observation, and no more.

use std::collections::VecDeque;

use crate::Note;

/// Of one direction in which packets may be marked, or whose sender is told of it.
#[derive(Debug, Default)]
pub(crate) struct Reaction {
    /// The newest frame with a mark.
    marked: Option<u64>,
    /// The last packets with payload.
    recent: VecDeque<Packet>,
    /// A CNP came, and what follows it is looked at.
    told: Option<Told>,
}

/// When, and bytes of payload.
#[derive(Clone, Copy, Debug)]
struct Packet {
    time_ns: u64,
    len: u64,
}

#[derive(Clone, Copy, Debug)]
struct Told {
    /// The frame of the CNP.
    cnp: u64,
    before_bps: Option<u64>,
    /// Packets since.
    packets: usize,
}

/// So many packets behind one, before a CNP and after it, tell a rate.
const PACKETS: usize = 16;

/// Before it, these few do.
const LEAST: usize = 4;

impl Reaction {
    /// A frame came marked.
    pub(crate) const fn mark(&mut self, frame: u64) {
        self.marked = Some(frame);
    }

    /// A CNP tells the sender. Says which frame's mark it may be about: the newest one that was
    /// seen, of whatever age; an earlier CNP may have been about it too.
    pub(crate) fn tell(&mut self, cnp: u64) -> Option<u64> {
        if self.told.is_none() {
            let before_bps = (self.recent.len() > LEAST).then(|| self.rate()).flatten();
            self.told = Some(Told { cnp, before_bps, packets: 0 });
        }
        self.marked
    }

    /// The sender's next packet. Says how fast they have come since a CNP, if that can be told now.
    pub(crate) fn sent(&mut self, time_ns: u64, len: usize) -> Option<Note> {
        if self.recent.len() > PACKETS {
            self.recent.pop_front();
        }
        self.recent.push_back(Packet { time_ns, len: len as u64 });
        let told = self.told.as_mut()?;
        told.packets += 1;
        // The first one may have left before.
        if told.packets <= PACKETS {
            return None;
        }
        let Told { cnp, before_bps, .. } = self.told.take()?;
        let since_bps = self.rate()?;
        Some(Note::Reaction { cnp, before_bps, since_bps, packets: PACKETS as u64 })
    }

    /// How fast the last packets followed each other, in bits of payload a second.
    fn rate(&self) -> Option<u64> {
        let (first, last) = (self.recent.front()?, self.recent.back()?);
        let bits = 8 * self.recent.iter().skip(1).map(|packet| packet.len).sum::<u64>();
        let nanos = last.time_ns.checked_sub(first.time_ns).filter(|nanos| *nanos > 0)?;
        Some((bits as f64 * 1e9 / nanos as f64) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Packets of 1000 bytes, so many nanoseconds after each other; the notes, with their place.
    fn send(
        reaction: &mut Reaction,
        time_ns: &mut u64,
        gap_ns: u64,
        packets: usize,
    ) -> Vec<(usize, String)> {
        let mut notes = Vec::new();
        for place in 1..=packets {
            *time_ns += gap_ns;
            notes.extend(reaction.sent(*time_ns, 1000).map(|note| (place, note.to_string())));
        }
        notes
    }

    #[test]
    fn packets_before_and_after_a_notification_tell_two_rates() {
        let (mut reaction, mut now) = (Reaction::default(), 0);
        assert_eq!(send(&mut reaction, &mut now, 10_000, 40), []);
        reaction.mark(39);
        reaction.mark(40);
        assert_eq!(reaction.tell(41), Some(40));
        assert_eq!(send(&mut reaction, &mut now, 20_000, 5), []);
        // One that comes meanwhile is about the same.
        assert_eq!(reaction.tell(47), Some(40));
        let told =
            "seen since the CNP of frame 41: 16 packets at 400.0 Mb/s, before it at 800.0 Mb/s";
        assert_eq!(send(&mut reaction, &mut now, 20_000, 50), [(12, told.to_owned())]);
        reaction.tell(100);
        let told =
            "seen since the CNP of frame 100: 16 packets at 8.0 Gb/s, before it at 400.0 Mb/s";
        assert_eq!(send(&mut reaction, &mut now, 1000, 17), [(17, told.to_owned())]);
    }

    #[test]
    fn what_cannot_be_told_is_not() {
        let (mut reaction, mut now) = (Reaction::default(), 0);
        send(&mut reaction, &mut now, 10_000, LEAST);
        assert_eq!(reaction.tell(5), None, "no mark was seen");
        let told = "seen since the CNP of frame 5: 16 packets at 80.0 kb/s";
        assert_eq!(send(&mut reaction, &mut now, 100_000_000, 17), [(17, told.to_owned())]);
        // A capture without times, or one that goes back.
        reaction.tell(30);
        assert_eq!(send(&mut reaction, &mut now, 0, 17), []);
        reaction.tell(60);
        now = 0;
        assert_eq!(send(&mut reaction, &mut now, 0, 17), []);
    }
}
