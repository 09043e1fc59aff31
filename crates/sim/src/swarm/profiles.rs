//! The kinds of worlds.

use roxe_transport::qp_state::ServiceType::{self, Rc, Uc, Ud};

use super::{Feature, Feature as F, Features};

/// A kind of world.
#[derive(Clone, Copy, Debug)]
pub struct Profile {
    /// Its name.
    pub name: &'static str,
    /// What it is for.
    pub says: &'static str,
    pub(super) services: &'static [ServiceType],
    /// What every world of it has.
    pub(super) always: Features,
    /// What about half of its worlds have, each by itself.
    pub(super) maybe: Features,
    pub(super) devices: (u64, u64),
    pub(super) pairs: (u64, u64),
    pub(super) requests: (u64, u64),
}

impl Profile {
    /// The profile with this name.
    pub fn by_name(name: &str) -> Option<&'static Self> {
        PROFILES.iter().find(|profile| profile.name == name)
    }
}

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
    let mut all = Features::of(&[]);
    let mut at = 0;
    while at < lists.len() {
        all = all.with(Features::of(lists[at]));
        at += 1;
    }
    all
}
