//! Rights to memory.

/// Rights to memory: `ibv_access_flags`. Also the rights that a queue pair grants its peer.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct AccessFlags(u32);

impl AccessFlags {
    /// None: local reading only.
    pub const NONE: Self = Self(0);
    /// The adapter may write: receives, READ and atomic results.
    pub const LOCAL_WRITE: Self = Self(1);
    /// Peers may WRITE.
    pub const REMOTE_WRITE: Self = Self(1 << 1);
    /// Peers may READ.
    pub const REMOTE_READ: Self = Self(1 << 2);
    /// Peers may use atomics.
    pub const REMOTE_ATOMIC: Self = Self(1 << 3);
    /// Windows may be bound.
    pub const MW_BIND: Self = Self(1 << 4);
    /// Addresses count from 0.
    pub const ZERO_BASED: Self = Self(1 << 5);
    /// Pages may come and go; nothing is ever pinned here, so this is always granted.
    pub const ON_DEMAND: Self = Self(1 << 6);
    /// Backed by huge pages; no difference here.
    pub const HUGETLB: Self = Self(1 << 7);
    /// Peers may FLUSH to global visibility.
    pub const FLUSH_GLOBAL: Self = Self(1 << 8);
    /// Peers may FLUSH to persistence.
    pub const FLUSH_PERSISTENT: Self = Self(1 << 9);
    /// Writes may pass each other; never made use of here.
    pub const RELAXED_ORDERING: Self = Self(1 << 20);

    /// All that peers may do.
    pub const REMOTE: Self = Self::REMOTE_WRITE
        .with(Self::REMOTE_READ)
        .with(Self::REMOTE_ATOMIC)
        .with(Self::FLUSH_GLOBAL)
        .with(Self::FLUSH_PERSISTENT);

    const NAMES: [(Self, &'static str); 11] = [
        (Self::LOCAL_WRITE, "local-write"),
        (Self::REMOTE_WRITE, "remote-write"),
        (Self::REMOTE_READ, "remote-read"),
        (Self::REMOTE_ATOMIC, "remote-atomic"),
        (Self::MW_BIND, "mw-bind"),
        (Self::ZERO_BASED, "zero-based"),
        (Self::ON_DEMAND, "on-demand"),
        (Self::HUGETLB, "hugetlb"),
        (Self::FLUSH_GLOBAL, "flush-global"),
        (Self::FLUSH_PERSISTENT, "flush-persistent"),
        (Self::RELAXED_ORDERING, "relaxed-ordering"),
    ];

    const KNOWN: Self = {
        let (mut all, mut i) = (Self::NONE, 0);
        while i < Self::NAMES.len() {
            all = all.with(Self::NAMES[i].0);
            i += 1;
        }
        all
    };

    /// The bits as libibverbs has them; `None` when one is unknown.
    pub const fn from_bits(bits: u32) -> Option<Self> {
        if bits & !Self::KNOWN.0 == 0 { Some(Self(bits)) } else { None }
    }

    /// The bits as libibverbs has them.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Both together.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether all of `wanted` are among these.
    pub const fn contain(self, wanted: Self) -> bool {
        self.0 & wanted.0 == wanted.0
    }

    /// Whether any of `some` is among these.
    pub const fn contain_any(self, some: Self) -> bool {
        self.0 & some.0 != 0
    }

    /// The right with this name, as scripts write it.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(_, known)| *known == name).map(|(flag, _)| *flag)
    }
}

impl core::ops::BitOr for AccessFlags {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        self.with(other)
    }
}

impl core::fmt::Debug for AccessFlags {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_set()
            .entries(Self::NAMES.iter().filter(|(flag, _)| self.contain(*flag)).map(|(_, n)| n))
            .finish()
    }
}
