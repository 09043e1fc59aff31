//! A seed makes a world; the world runs to its end; everything that was promised must have held.
//!
//! Swarm testing: each seed switches on a random part of all features and faults, so that some
//! worlds are full of one thing and free of what would hide its mistakes. A world that fails is
//! made smaller for as long as it still fails, and its last frames are kept.

mod conditions;
mod outcome;

use std::collections::VecDeque;
use std::fmt;
use std::ops::RangeInclusive;
use std::panic::{AssertUnwindSafe, catch_unwind};

use roxe_net::fault::Faults;
use roxe_transport::ending::Cause;
use roxe_transport::qp_state::ServiceType;
use roxe_wire::Instant;

use crate::link::Link;
use crate::peer::{Peer, Peers};
use crate::rng::Rng;
use crate::workload::Workload;
use crate::world::{Due, World};

pub use conditions::Conditions;
pub use outcome::{Failure, Outcome};

macro_rules! features {
    ($($(#[$doc:meta])* $name:ident $text:literal,)*) => {
        /// Something that a world may have or not.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Feature {
            $($(#[$doc])* $name,)*
        }

        impl Feature {
            /// Every feature.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// Its name in repro lines.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }
        }
    };
}

features!(
    /// SENDs.
    Send "send",
    /// Immediate data.
    Immediate "imm",
    /// SENDs that invalidate a key.
    Invalidate "inv",
    /// WRITEs.
    Write "write",
    /// WRITEs of one queue pair over each other.
    Overwrite "overwrite",
    /// READs.
    Read "read",
    /// Compare and swap, fetch and add.
    Atomic "atomic",
    /// ATOMIC WRITE.
    AtomicWrite "atomic-write",
    /// FLUSH.
    Flush "flush",
    /// Inline data.
    Inline "inline",
    /// Several scatter/gather elements.
    Segments "segments",
    /// Messages of no bytes.
    Empty "empty",
    /// Messages of many packets.
    Large "large",
    /// Fences.
    Fence "fence",
    /// Requests without completion.
    Unsignaled "unsignaled",
    /// PSNs that begin close to where they wrap.
    Wrap "wrap",
    /// A window of a few packets.
    TinyWindow "tiny-window",
    /// A shared receive queue on each device.
    Srq "srq",
    /// Receives that are posted late.
    LateReceives "late-receives",
    /// IPv6.
    Six "ipv6",
    /// Lost packets.
    Drop "drop",
    /// Doubled packets.
    Duplicate "dup",
    /// Packets that are overtaken.
    Reorder "reorder",
    /// Packets that are late.
    Delay "delay",
    /// Packets with a bit turned over.
    Corrupt "corrupt",
    /// Packets cut short.
    Truncate "truncate",
    /// Packets marked "congestion experienced".
    Mark "mark",
    /// Links that stand still for a while.
    Pause "pause",
    /// Links with a short queue.
    ShortQueue "short-queue",
    /// Requests with a wrong remote key or range.
    BadRemote "bad-remote",
    /// Requests with a wrong local key.
    BadLocal "bad-local",
    /// Messages that do not fit their receive buffer.
    TooLong "too-long",
    /// Memory that is deregistered while peers use it.
    Deregister "deregister",
    /// Queue pairs that their application moves to Error.
    ToError "to-error",
    /// Queue pairs that are reset or destroyed while they work, and used again.
    Reset "reset",
    /// Devices that begin anew.
    Restart "restart",
    /// Frames from nobody.
    Hostile "hostile",
    /// Completion queues that are too small.
    SmallQueue "small-cq",
    /// Memory that is reached through windows, and windows that messages invalidate.
    Windows "windows",
    /// Datagrams to groups.
    Multicast "multicast",
    /// Frames that pretend to come from the peer.
    Forged "forged",
);

/// A set of features.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features(u64);

impl Features {
    /// These.
    pub const fn of(features: &[Feature]) -> Self {
        let mut bits = 0;
        let mut at = 0;
        while at < features.len() {
            bits |= 1 << features[at] as u32;
            at += 1;
        }
        Self(bits)
    }

    /// Whether one is among them.
    pub const fn has(self, feature: Feature) -> bool {
        self.0 >> feature as u32 & 1 == 1
    }

    /// All but one.
    #[must_use]
    pub const fn without(self, feature: Feature) -> Self {
        Self(self.0 & !(1 << feature as u32))
    }

    const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether packets may not arrive as they were sent, and in their order.
    pub(crate) fn impair(self) -> bool {
        conditions::FAULTS.iter().any(|fault| self.has(*fault))
    }

    /// All of them, in order.
    pub fn iter(self) -> impl Iterator<Item = Feature> {
        Feature::ALL.iter().copied().filter(move |feature| self.has(*feature))
    }
}

/// A kind of world.
#[derive(Clone, Copy, Debug)]
pub struct Profile {
    /// Its name.
    pub name: &'static str,
    /// What it is for.
    pub says: &'static str,
    services: &'static [ServiceType],
    /// What every world of it has.
    always: Features,
    /// What about half of its worlds have, each by itself.
    maybe: Features,
    devices: (u64, u64),
    pairs: (u64, u64),
    requests: (u64, u64),
}

use Feature as F;
use ServiceType::{Rc, Uc, Ud};

const OPERATIONS: &[Feature] = &[
    F::Send,
    F::Immediate,
    F::Invalidate,
    F::Write,
    F::Overwrite,
    F::Read,
    F::Atomic,
    F::AtomicWrite,
    F::Flush,
    F::Windows,
    F::Multicast,
];
const MANNERS: &[Feature] = &[
    F::Inline,
    F::Segments,
    F::Empty,
    F::Large,
    F::Fence,
    F::Unsignaled,
    F::Wrap,
    F::TinyWindow,
    F::Six,
];
const LOSSES: &[Feature] = &[
    F::Drop,
    F::Duplicate,
    F::Reorder,
    F::Delay,
    F::Corrupt,
    F::Truncate,
    F::Mark,
    F::Pause,
    F::ShortQueue,
];
const ERRORS: &[Feature] =
    &[F::BadRemote, F::BadLocal, F::TooLong, F::Deregister, F::ToError, F::Reset, F::Restart];

const fn set(lists: &[&[Feature]]) -> Features {
    let mut all = Features(0);
    let mut at = 0;
    while at < lists.len() {
        all = all.with(Features::of(lists[at]));
        at += 1;
    }
    all
}

/// What kinds of devices worlds have: ours alone most often.
const PEERS: &[Peers] = &[
    Peers::of(&[Peer::Roxe]),
    Peers::of(&[Peer::Roxe]),
    Peers::of(&[Peer::Roxe]),
    Peers::of(&[Peer::Roxe, Peer::ConnectX]),
    Peers::of(&[Peer::Roxe, Peer::ConnectX]),
    Peers::of(&[Peer::Roxe, Peer::Rxe]),
    Peers::of(&[Peer::Roxe, Peer::Rxe]),
    Peers::of(&[Peer::Roxe, Peer::ConnectX, Peer::Rxe]),
    Peers::of(&[Peer::ConnectX]),
    Peers::of(&[Peer::Rxe]),
];

/// All profiles.
#[rustfmt::skip]
pub const PROFILES: &[Profile] = &[
    profile("clean",       "nothing goes wrong, so nothing may be sent twice",
            &[Rc, Uc, Ud], &[],                     &[OPERATIONS, MANNERS, &[F::Srq, F::Mark]]),
    profile("lossy",       "packets are lost",
            &[Rc],         &[F::Drop],              &[OPERATIONS, MANNERS, &[F::Srq, F::LateReceives]]),
    profile("reorder",     "packets overtake each other",
            &[Rc],         &[F::Reorder],           &[OPERATIONS, MANNERS, &[F::Srq, F::Delay]]),
    profile("dup",         "packets arrive twice",
            &[Rc],         &[F::Duplicate],         &[OPERATIONS, MANNERS, &[F::Srq, F::Delay]]),
    profile("corrupt",     "bits turn over, ends are missing",
            &[Rc, Uc, Ud], &[F::Corrupt, F::Truncate], &[OPERATIONS, MANNERS]),
    profile("chaos",       "everything at once",
            &[Rc, Rc, Uc, Ud], &[],                 &[OPERATIONS, MANNERS, LOSSES, ERRORS,
                                                      &[F::Srq, F::LateReceives, F::Hostile, F::Forged, F::SmallQueue]]),
    profile("errors",      "applications make mistakes on a good network",
            &[Rc],         &[],                     &[OPERATIONS, MANNERS, ERRORS, &[F::Srq, F::LateReceives]]),
    profile("rnr",         "receives are posted late",
            &[Rc],         &[F::LateReceives, F::Send], &[OPERATIONS, MANNERS, &[F::Drop, F::Srq, F::Reorder]]),
    profile("ud",          "datagrams",
            &[Ud],         &[],                     &[MANNERS, LOSSES, &[F::Immediate, F::Srq, F::Hostile, F::Multicast, F::BadLocal]]),
    profile("uc",          "unreliable connections",
            &[Uc],         &[],                     &[OPERATIONS, MANNERS, LOSSES, &[F::Srq, F::Reset, F::BadLocal]]),
    profile("srq",         "shared receive queues",
            &[Rc, Rc, Uc, Ud], &[F::Srq, F::Send],  &[OPERATIONS, MANNERS, LOSSES, &[F::LateReceives, F::ToError, F::Reset]]),
    Profile { pairs: (16, 96), devices: (4, 16), requests: (2, 16), ..
    profile("many-qps",    "many connections between many devices",
            &[Rc, Rc, Uc, Ud], &[],                 &[OPERATIONS, MANNERS, LOSSES, &[F::Srq, F::LateReceives]]) },
    Profile { pairs: (32, 64), devices: (32, 64), requests: (1, 6), ..
    profile("crowd",       "dozens of devices",
            &[Rc],         &[],                     &[OPERATIONS, MANNERS, &[F::Drop, F::Reorder]]) },
    profile("tiny-window", "a few packets on their way at the most",
            &[Rc],         &[F::TinyWindow, F::Large], &[OPERATIONS, MANNERS, LOSSES, &[F::LateReceives]]),
    profile("wrap",        "PSNs wrap",
            &[Rc, Uc],     &[F::Wrap],              &[OPERATIONS, MANNERS, LOSSES, &[F::LateReceives]]),
    profile("hostile",     "frames from nobody",
            &[Rc, Uc, Ud], &[F::Hostile],           &[OPERATIONS, MANNERS, &[F::Drop]]),
    profile("forged",      "frames in the name of peers",
            &[Rc, Rc, Uc, Ud], &[F::Forged],        &[OPERATIONS, MANNERS, ERRORS, &[F::Drop, F::LateReceives, F::Srq]]),
    Profile { pairs: (1, 3), devices: (2, 3), requests: (300, 1500), ..
    profile("long",        "a thousand requests and more",
            &[Rc],         &[],                     &[OPERATIONS, LOSSES, &[F::Srq, F::Fence, F::Unsignaled, F::Wrap,
                                                      F::TinyWindow, F::LateReceives, F::Inline]]) },
];

const fn profile(
    name: &'static str,
    says: &'static str,
    services: &'static [ServiceType],
    always: &'static [Feature],
    maybe: &'static [&'static [Feature]],
) -> Profile {
    Profile {
        name,
        says,
        services,
        always: Features::of(always),
        maybe: set(maybe),
        devices: (2, 4),
        pairs: (1, 6),
        requests: (1, 60),
    }
}

/// So many devices can be told apart by one byte of their addresses, and a pair needs two.
const DEVICES: RangeInclusive<u64> = 2..=254;
/// Pairs: a world without is none, and each takes its memory.
const PAIRS: RangeInclusive<u64> = 1..=1000;
/// Requests of each direction of a pair: all are planned before the first.
const REQUESTS: RangeInclusive<u64> = 1..=100_000;

impl Profile {
    /// The profile with this name.
    pub fn by_name(name: &str) -> Option<&'static Self> {
        PROFILES.iter().find(|profile| profile.name == name)
    }
}

/// What one world is made of. Everything else follows from the seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
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

impl Options {
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
        Profile::by_name(self.profile).map_or(&[Rc], |profile| profile.services)
    }

    /// These options, with some changed as a repro line says: `requests=3 without=drop,dup`.
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

impl fmt::Display for Options {
    /// A line that [`Options::changed`] reads, behind seed and profile.
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

/// Runs a world; makes it smaller if it fails.
pub fn run_options(options: Options) -> Outcome {
    run(options, &Conditions::default(), false)
}

/// Runs a world under other conditions than its own; makes it smaller if it fails. `record` is
/// whether the last frames of one that holds are kept too.
pub fn run(options: Options, conditions: &Conditions, record: bool) -> Outcome {
    let options = conditions.admit(options);
    let mut outcome = attempt(options, conditions, record);
    if outcome.failure.is_some() {
        // A smaller world has the faults still that are said.
        let fails = |options| {
            conditions.admit(options) == options
                && attempt(options, conditions, false).failure.is_some()
        };
        let again = attempt(shrink(options, fails), conditions, true);
        // A failure that does not come again by itself is worse than any other: keep the first.
        outcome.failure = again.failure.or(outcome.failure);
    }
    outcome
}

/// A smaller world that still fails: fewer requests, pairs, devices and features.
fn shrink(mut options: Options, fails: impl Fn(Options) -> bool) -> Options {
    loop {
        let before = options;
        for smaller in [options.requests / 2, options.requests.saturating_sub(1)] {
            let tried = Options { requests: smaller, ..options };
            if smaller != 0 && fails(tried) {
                options = tried;
                break;
            }
        }
        for smaller in [1, options.pairs / 2, options.pairs - 1] {
            let tried = Options { pairs: smaller, ..options };
            if smaller != 0 && smaller < options.pairs && fails(tried) {
                options = tried;
                break;
            }
        }
        let tried = Options { devices: 2, ..options };
        if options.devices > 2 && fails(tried) {
            options = tried;
        }
        for peers in [Peers::of(&[Peer::Roxe]), Peers::of(&[Peer::Roxe, options.peers.kind(0)])] {
            let tried = Options { peers, ..options };
            if options.peers.kinds() > peers.kinds() && fails(tried) {
                options = tried;
                break;
            }
        }
        for feature in options.features.iter() {
            let tried = Options { features: options.features.without(feature), ..options };
            if fails(tried) {
                options = tried;
            }
        }
        if options == before {
            return options;
        }
    }
}

/// Runs a world once. An assertion of the engine that fails is a failure like any other.
fn attempt(options: Options, conditions: &Conditions, record: bool) -> Outcome {
    let mut world = build(&options, conditions);
    world.record = record.then(VecDeque::new);
    let mut workload = Workload::new(&options);
    let ended = catch_unwind(AssertUnwindSafe(|| live(&mut world, &mut workload)));
    let what = match ended {
        Ok(Ok(())) => None,
        Ok(Err(what)) => Some(what),
        Err(panic) => Some(match panic.downcast_ref::<String>() {
            Some(message) => format!("panic: {message}"),
            None => format!("panic: {}", panic.downcast_ref::<&str>().unwrap_or(&"?")),
        }),
    };
    let recorded = world.record.take().unwrap_or_default();
    let counted = |name| {
        let each = world.nodes.iter().filter_map(|node| node.device.counters().by_name(name));
        each.sum()
    };
    let still_ended = world.nodes.iter().map(|node| node.device.ended_queue_pairs().count() as u64);
    let (link, bad_for) = conditions.links(&options);
    let mut outcome = Outcome {
        options,
        link,
        bad_for,
        frames: world.frames,
        requests: workload.posted,
        retransmissions: counted("retrans_pkts"),
        rnr_naks: counted("send_rnr_err"),
        ended: workload.ended + still_ended.sum::<u64>(),
        impairments: world.impairments,
        time: world.now.since(Instant::ZERO),
        digest: world.digest,
        recorded,
        failure: None,
    };
    outcome.failure = what.map(|what| Failure {
        options,
        conditions: conditions.clone(),
        what,
        frames: std::mem::take(&mut outcome.recorded),
        ended: who_ended(&world),
    });
    outcome
}

/// What the queue pairs that ended say of it. Those that applications moved to state Error did what
/// they were told.
fn who_ended<A>(world: &World<A>) -> Vec<String> {
    let nodes = world.nodes.iter().enumerate();
    let stories = nodes
        .flat_map(|(index, node)| node.device.ended_queue_pairs().map(move |story| (index, story)));
    let told = stories
        .filter(|(_, story)| story.ending.is_some_and(|ending| ending.cause != Cause::Modified));
    told.map(|(index, story)| {
        let address = world.nodes[index].addresses[0];
        format!("device {index} {address}, queue pair {}: {}", story.qpn, story.sentence())
    })
    .collect()
}

/// More events than this and the world goes in circles.
const MOST_EVENTS: u64 = 3_000_000;

fn live(world: &mut World<crate::workload::Action>, workload: &mut Workload) -> Result<(), String> {
    workload.begin(world)?;
    while world.any() {
        while let Some(due) = world.step() {
            match due {
                Due::Device(index) => workload.look_at(world, index)?,
                Due::Action(action) => workload.act(world, action)?,
            }
            if let Some(finding) = world.finding.take() {
                return Err(finding);
            }
            if world.count > MOST_EVENTS {
                return Err(format!("it does not end: {}", workload.state(world)));
            }
        }
        workload.look_everywhere(world)?;
    }
    workload.finish(world)
}

/// The devices and links of a world.
fn build(options: &Options, conditions: &Conditions) -> World<crate::workload::Action> {
    let (settings, bad_for) = conditions.links(options);
    let rules = conditions.rules(options);
    let seed = options.seed;
    let mut world = World::new(options.devices as usize, options.peers, seed, |from, to| {
        let own = Rng::new(seed).fork(from as u64 * 1000 + to as u64).next();
        Link::new(settings, Faults::new(rules.iter().cloned(), own))
    });
    world.stretch = settings.stretch();
    world.faulty_until = Instant::ZERO + bad_for;
    world
}

#[cfg(test)]
mod tests;
