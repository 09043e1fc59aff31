//! What a world may have or not.

use super::conditions;

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

    pub(super) const fn with(self, other: Self) -> Self {
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
