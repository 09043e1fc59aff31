//! What one world is made of: drawn from its seed, changed, and told in a line that makes it again.

use std::fmt;
use std::ops::RangeInclusive;

use roxe_transport::qp_state::ServiceType;

use crate::peer::{Peer, Peers};
use crate::rng::Rng;

use super::{Feature, Features, Profile};

/// What one world is made of. Everything else follows from the seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recipe {
    /// The seed.
    pub seed: u64,
    /// The name of its profile.
    pub profile: &'static str,
    /// Devices.
    pub devices: u64,
    /// Pairs of queue pairs.
    pub pairs: u64,
    /// Requests of each direction of a pair.
    pub requests: u64,
    /// What it has.
    pub features: Features,
    /// What kinds of devices.
    pub peers: Peers,
}

impl Recipe {
    /// What a seed makes of a profile.
    pub fn new(seed: u64, profile: &Profile) -> Self {
        let mut rng = Rng::new(seed).fork(1);
        let mut features = profile.always;
        for feature in profile.maybe.iter() {
            if rng.percent(45) {
                features = features.with(Features::of(&[feature]));
            }
        }
        let mut between = |(least, most)| {
            // Small worlds more often than large ones.
            let most = least + (most - least) * rng.between(1, 8) / 8;
            rng.between(least, most)
        };
        Self {
            seed,
            profile: profile.name,
            devices: between(profile.devices),
            pairs: between(profile.pairs),
            requests: between(profile.requests),
            features,
            peers: Rng::new(seed).fork(5).pick(PEERS),
        }
    }

    /// The services that its pairs may have.
    pub fn services(&self) -> &'static [ServiceType] {
        Profile::by_name(self.profile).map_or(&[ServiceType::Rc], |profile| profile.services)
    }

    /// This one, with some of it changed as a repro line says: `requests=3 without=drop,dup`.
    ///
    /// # Errors
    /// What of the line means nothing.
    pub fn changed(mut self, line: &str) -> Result<Self, String> {
        for word in line.split_whitespace() {
            let (key, value) = word.split_once('=').ok_or_else(|| format!("{word:?}: no `=`"))?;
            let number = |range: RangeInclusive<u64>| {
                let number = value.parse().ok().filter(|number| range.contains(number));
                let (least, most) = range.into_inner();
                number.ok_or_else(|| format!("{word:?}: a number is needed from {least} to {most}"))
            };
            match key {
                "devices" => self.devices = number(DEVICES)?,
                "pairs" => self.pairs = number(PAIRS)?,
                "requests" => self.requests = number(REQUESTS)?,
                "peers" => self.peers = Peers::parse(value)?,
                "without" => {
                    for name in value.split(',') {
                        let known = Feature::ALL.iter().find(|feature| feature.name() == name);
                        let feature = known.ok_or_else(|| format!("{name:?} is no feature"))?;
                        self.features = self.features.without(*feature);
                    }
                }
                _ => return Err(format!("{key:?} is no option")),
            }
        }
        Ok(self)
    }
}

impl fmt::Display for Recipe {
    /// A line that [`Recipe::changed`] reads, behind seed and profile.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "--seed {} --profile {}", self.seed, self.profile)?;
        let Some(profile) = Profile::by_name(self.profile) else { return Ok(()) };
        let whole = Self::new(self.seed, profile);
        let mut changes = Vec::new();
        for (name, value, usual) in [
            ("devices", self.devices, whole.devices),
            ("pairs", self.pairs, whole.pairs),
            ("requests", self.requests, whole.requests),
        ] {
            if value != usual {
                changes.push(format!("{name}={value}"));
            }
        }
        if self.peers != whole.peers {
            changes.push(format!("peers={}", self.peers));
        }
        let gone: Vec<&str> = whole
            .features
            .iter()
            .filter(|feature| !self.features.has(*feature))
            .map(Feature::name)
            .collect();
        if !gone.is_empty() {
            changes.push(format!("without={}", gone.join(",")));
        }
        if changes.is_empty() { Ok(()) } else { write!(f, " --change \"{}\"", changes.join(" ")) }
    }
}

/// What kinds of devices worlds have: ours alone most often.
const PEERS: &[Peers] = &[
    Peers::of(&[Peer::Adapter]),
    Peers::of(&[Peer::Adapter]),
    Peers::of(&[Peer::Adapter]),
    Peers::of(&[Peer::Adapter, Peer::ConnectX]),
    Peers::of(&[Peer::Adapter, Peer::ConnectX]),
    Peers::of(&[Peer::Adapter, Peer::Rxe]),
    Peers::of(&[Peer::Adapter, Peer::Rxe]),
    Peers::of(&[Peer::Adapter, Peer::ConnectX, Peer::Rxe]),
    Peers::of(&[Peer::ConnectX]),
    Peers::of(&[Peer::Rxe]),
];

/// So many devices can be told apart by one byte of their addresses, and a pair needs two.
const DEVICES: RangeInclusive<u64> = 2..=254;

/// Pairs: a world without is none, and each takes its memory.
const PAIRS: RangeInclusive<u64> = 1..=1000;

/// Requests of each direction of a pair: all are planned before the first.
const REQUESTS: RangeInclusive<u64> = 1..=100_000;
