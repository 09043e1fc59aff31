//! How a world ended, in numbers and in words.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use crate::link::LinkSettings;
use crate::world::Recorded;

use super::{Conditions, Feature, Options};

/// How a world ended.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What it was made of.
    pub options: Options,
    /// What its links were like.
    pub link: LinkSettings,
    /// Frames that devices sent.
    pub frames: u64,
    /// Requests that applications posted.
    pub requests: u64,
    /// Packets that were sent again, by devices that did not begin anew since.
    pub retransmissions: u64,
    /// Answers that a receiver was not ready.
    pub rnr_naks: u64,
    /// Queue pairs that are in state Error at the end.
    pub ended: u64,
    /// Virtual time that passed.
    pub time: Duration,
    /// Of all frames, when they were sent and by whom.
    pub digest: u64,
    /// The last frames of a world that held, if they were to be kept.
    pub recorded: VecDeque<Recorded>,
    /// What went wrong.
    pub failure: Option<Failure>,
}

impl fmt::Display for Outcome {
    /// What the world was and what happened in it, in a line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Options { devices, pairs, requests, peers, features, .. } = self.options;
        let names: Vec<&str> = features.iter().map(Feature::name).collect();
        let rate = 8000.0 / self.link.picos_per_byte as f64;
        write!(
            f,
            "{devices} devices ({peers}), {pairs} pairs, {requests} requests each way; \
             links {} ns, {rate} Gb/s; {}; {} frames, {} retransmissions, {} RNR NAKs, \
             {} queue pairs ended, {:.6} s",
            self.link.latency.as_nanos(),
            names.join(","),
            self.frames,
            self.retransmissions,
            self.rnr_naks,
            self.ended,
            self.time.as_secs_f64(),
        )
    }
}

/// A world in which something did not hold.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The smallest world found that fails.
    pub options: Options,
    /// What was said of its links.
    pub conditions: Conditions,
    /// What did not hold in it.
    pub what: String,
    /// The last frames of it.
    pub frames: VecDeque<Recorded>,
    /// What queue pairs that ended say of it, by device.
    pub ended: Vec<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.what)?;
        writeln!(f, "  {}{}", self.options, self.conditions)?;
        let names: Vec<&str> = self.options.features.iter().map(Feature::name).collect();
        writeln!(f, "  of {} with {}", self.options.peers, names.join(", "))?;
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
