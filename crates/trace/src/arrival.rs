//! In which order frames were sent, and which the network doubled: what the IP identification
//! tells.

use crate::{IcrcVerdict, Seen};

/// A frame among those around it in its direction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival<'a> {
    /// Its number.
    pub(crate) frame: u64,
    pub(crate) identification: u16,
    pub(crate) recent: &'a RecentFrames,
}

impl<'a> Arrival<'a> {
    /// Of a frame that `recent` may have among its frames.
    pub(crate) const fn of(seen: &Seen<'_>, recent: &'a RecentFrames) -> Self {
        Self { frame: seen.number, identification: seen.outside.identification, recent }
    }

    /// The first frame that was seen before this one though it was sent after it. Only where the
    /// sender counts in the IP identification: where most steps from frame to frame are small ones
    /// forward.
    pub(crate) fn overtaken_by(&self) -> Option<u64> {
        // Mostly none is, and this looks at all of them at once.
        let is_ahead = |other: &u16| is_close_behind(*other, self.identification);
        if !self.recent.identifications.iter().any(is_ahead) {
            return None;
        }
        let seen = self.recent.in_order().filter(|(_, frame)| *frame != self.frame);
        let (mut steps, mut forward) = (0, 0);
        let mut first = None;
        let mut before: Option<u16> = None;
        for (identification, frame) in seen {
            if let Some(before) = before.replace(identification) {
                steps += 1;
                forward += u32::from(is_close_behind(identification, before));
            }
            if is_close_behind(identification, self.identification) {
                first = first.or(Some(frame));
            }
        }
        first.filter(|_| forward >= 2 && forward * 2 >= steps)
    }

    /// Whether it was sent before that one, if both are remembered.
    pub(crate) fn was_sent_before(&self, frame: u64) -> bool {
        let found = self.recent.in_order().find(|(_, known)| *known == frame);
        found.is_some_and(|(other, _)| is_close_behind(other, self.identification))
    }
}

fn is_close_behind(identification: u16, other: u16) -> bool {
    (1..=CLOSE).contains(&identification.wrapping_sub(other))
}

/// The last frames of one direction, as their IP identification and their ICRC tell them apart.
#[derive(Debug, Default)]
pub(crate) struct RecentFrames {
    /// Apart from the rest, since all of them are looked at for every frame.
    identifications: [u16; RECENT_FRAMES],
    /// ICRC and number of each.
    frames: [(u32, u64); RECENT_FRAMES],
    /// How many there were.
    count: usize,
    /// When the first one was seen.
    first_ns: u64,
}

impl RecentFrames {
    /// Identification and number of each, in the order of arrival.
    fn in_order(&self) -> impl Iterator<Item = (u16, u64)> {
        let places = self.count.saturating_sub(RECENT_FRAMES)..self.count;
        places.map(|place| place % RECENT_FRAMES).map(|at| {
            let (_, number) = self.frames[at];
            (self.identifications[at], number)
        })
    }

    /// Takes in a frame whose ICRC is right; tells which of those before it is the same. The ICRC
    /// covers all that does not change on the way, the identification too, but that tells a frame
    /// doubled from a packet sent twice only where the sender counts in it: not where it is always
    /// the same, or one of two in turn. Of the first frame nobody knows that yet, but no packet is
    /// sent again so soon.
    pub(crate) fn take(&mut self, seen: &Seen<'_>) -> Option<u64> {
        let identification = seen.outside.identification;
        if identification == 0 || seen.icrc != IcrcVerdict::Good {
            return None;
        }
        let icrc = seen.outside.icrc?;
        let known = self.count.min(RECENT_FRAMES);
        let at = self.identifications[..known].iter().position(|known| *known == identification);
        if let Some(at) = at {
            let (known_icrc, number) = self.frames[at];
            let newest = (self.count - 1) % RECENT_FRAMES;
            let mut others =
                self.identifications[..known].iter().filter(|id| **id != identification);
            let other = others.next();
            let is_too_soon = seen.time_ns.saturating_sub(self.first_ns) < SHORTEST_TIMEOUT_NS;
            let counts = self.count == 1 && self.first_ns > 0 && is_too_soon
                || other.is_some() && (at == newest || others.any(|id| Some(id) != other));
            if known_icrc != icrc || counts {
                return (known_icrc == icrc).then_some(number);
            }
        }
        let next = self.count % RECENT_FRAMES;
        self.identifications[next] = identification;
        self.frames[next] = (icrc, seen.number);
        if self.count == 0 {
            self.first_ns = seen.time_ns;
        }
        self.count += 1;
        None
    }
}

/// How many frames of one direction are remembered to recognize one that the network doubled.
const RECENT_FRAMES: usize = 16;

/// The shortest ACK timeout, 4.096 µs · 2¹ (InfiniBand specification 9.7.6.1.3); an RNR NAK asks
/// for more.
const SHORTEST_TIMEOUT_NS: u64 = 8_192;

/// How far apart the identifications of frames may be that were sent close to each other.
const CLOSE: u16 = 256;
