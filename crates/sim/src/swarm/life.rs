//! How a world ended, in numbers and in words.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use crate::link::{Impairments, LinkSettings};
use crate::world::Recorded;

use super::{Conditions, Feature, Recipe};

/// How a world ended.
#[derive(Clone, Debug)]
pub struct Life {
    /// What it was made of.
    pub recipe: Recipe,
    /// What its links were like.
    pub link: LinkSettings,
    /// How long they were bad, from the beginning.
    pub bad_for: Duration,
    /// Frames that devices sent.
    pub frames: u64,
    /// Requests that applications posted.
    pub requests: u64,
    /// Packets that were sent again, by devices that did not begin anew since.
    pub retransmissions: u64,
    /// Answers that a receiver was not ready.
    pub rnr_naks: u64,
    /// How often a queue pair came to state Error.
    pub ended: u64,
    /// What links did to frames.
    pub impairments: Impairments,
    /// Virtual time that passed.
    pub time: Duration,
    /// Of all frames, when they were sent and by whom.
    pub digest: u64,
    /// The last frames of a world that held, if they were to be kept.
    pub recorded: VecDeque<Recorded>,
    /// What went wrong.
    pub failure: Option<Finding>,
}

impl fmt::Display for Life {
    /// What the world was and what happened in it, in a line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Recipe { devices, pairs, requests, peers, features, .. } = self.recipe;
        let names: Vec<&str> = features.iter().map(Feature::name).collect();
        let rate = 8000.0 / self.link.picos_per_byte as f64;
        write!(
            f,
            "{} ({}), {}, {} each way; links {} ns, {rate} Gb/s, bad for {:?}; {}; \
             {}, {}, {}, {}",
            many(devices, "device"),
            peers.first(devices),
            many(pairs, "pair"),
            many(requests, "request"),
            self.link.latency.as_nanos(),
            self.bad_for,
            names.join(","),
            many(self.frames, "frame"),
            many(self.retransmissions, "retransmission"),
            many(self.rnr_naks, "RNR NAK"),
            many(self.ended, "ended queue pair"),
        )?;
        for (name, count) in self.impairments.by_name().into_iter().filter(|(_, count)| *count > 0)
        {
            write!(f, ", {count} {name}")?;
        }
        write!(f, ", {:.6} s", self.time.as_secs_f64())
    }
}

/// `1 pair`, `2 pairs`.
fn many(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// A world in which something did not hold.
#[derive(Clone, Debug)]
pub struct Finding {
    /// The smallest world found that fails.
    pub recipe: Recipe,
    /// What was said of its links.
    pub conditions: Conditions,
    /// What did not hold in it.
    pub what: String,
    /// The last frames of it.
    pub frames: VecDeque<Recorded>,
    /// What queue pairs that ended say of it, by device.
    pub ended: Vec<String>,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.what)?;
        writeln!(f, "  {}{}", self.recipe, self.conditions)?;
        let names: Vec<&str> = self.recipe.features.iter().map(Feature::name).collect();
        writeln!(f, "  of {} with {}", self.recipe.peers, names.join(", "))?;
        for frame in self.frames.iter().skip(self.frames.len().saturating_sub(SHOWN)) {
            writeln!(f, "  {frame}")?;
        }
        for told in self.ended.iter().take(SHOWN) {
            writeln!(f, "  {told}")?;
        }
        Ok(())
    }
}

/// How many frames are shown with a failure.
const SHOWN: usize = 60;
