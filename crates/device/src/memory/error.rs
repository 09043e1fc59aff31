//! Why a verb or work request on memory was refused.

use core::fmt;

use roxe_transport::adapter::KeyViolation;

/// Why a verb or work request on regions and windows was refused. `EINVAL` unless said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MemoryError {
    /// There are as many as the device has room for. `ENOMEM`.
    TableFull {
        /// How many.
        most: u32,
    },
    /// No region or window of the kind that is needed has this key.
    NoSuchKey,
    /// Queue pair, window and region do not share one protection domain.
    WrongDomain,
    /// Peers may change the memory, but the adapter itself may not.
    NeedsLocalWrite,
    /// The range does not end before 2⁶⁴.
    RangeWraps,
    /// Windows are bound to the region. `EBUSY`.
    WindowsBound {
        /// How many.
        count: u32,
    },
    /// The region is an ordinary one, which no work request registers or invalidates.
    NotFast,
    /// The region or window must be invalidated first.
    StillValid,
    /// The new key must differ from the present one in the low byte only.
    OtherIndex,
    /// The region was not allocated for so many bytes.
    TooLong {
        /// How many.
        max: u64,
    },
    /// The region does not let windows be bound.
    NoBindRight,
    /// The region does not hold the window's whole range.
    OutsideRegion,
    /// Only windows of type 1 are unbound by length 0.
    ZeroLength,
    /// Windows of type 1, and windows over zero-based regions, cannot be zero based.
    ZeroBased,
    /// A right that a window cannot give, or (FLUSH) that its region does not have.
    WindowRights,
    /// Windows of type 1 are bound anew or freed, never invalidated.
    Type1,
}

impl fmt::Display for MemoryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TableFull { most } => return write!(f, "all {most} are in use"),
            Self::NoSuchKey => "no such key",
            Self::WrongDomain => "another protection domain",
            Self::NeedsLocalWrite => "remote write and atomic need local write",
            Self::RangeWraps => "the range does not end before 2^64",
            Self::WindowsBound { count } => return write!(f, "{count} windows are bound to it"),
            Self::NotFast => "not a region for registration by work request",
            Self::StillValid => "still valid; invalidate it first",
            Self::OtherIndex => "the new key may differ in the low byte only",
            Self::TooLong { max } => return write!(f, "allocated for {max} bytes only"),
            Self::NoBindRight => "the region does not allow windows",
            Self::OutsideRegion => "the window reaches outside of its region",
            Self::ZeroLength => "a type 2 window cannot have length 0",
            Self::ZeroBased => "cannot be zero based",
            Self::WindowRights => "a right that this window cannot give",
            Self::Type1 => "a type 1 window cannot be invalidated",
        })
    }
}

impl core::error::Error for MemoryError {}

impl From<MemoryError> for KeyViolation {
    /// The nearest violation, for a work request that was refused.
    fn from(error: MemoryError) -> Self {
        match error {
            MemoryError::NoSuchKey | MemoryError::OtherIndex | MemoryError::StillValid => {
                Self::NoSuchKey
            }
            MemoryError::WrongDomain => Self::WrongDomain,
            MemoryError::RangeWraps
            | MemoryError::TooLong { .. }
            | MemoryError::OutsideRegion
            | MemoryError::ZeroLength => Self::OutsideRegion,
            _ => Self::AccessDenied,
        }
    }
}
