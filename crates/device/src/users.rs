//! How many objects use another, so that nobody takes it away below them.

use core::fmt;

/// Counts the users of an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Users(u32);

impl Users {
    /// Nobody.
    pub const NONE: Self = Self(0);

    /// One more.
    pub const fn acquire(&mut self) {
        self.0 = self.0.saturating_add(1);
    }

    /// One less; none stays none.
    pub const fn release(&mut self) {
        self.0 = self.0.saturating_sub(1);
    }

    /// How many there are.
    pub const fn count(self) -> u32 {
        self.0
    }

    /// Whether the object may go.
    ///
    /// # Errors
    /// [`InUse`] while there are users.
    //= IBA C11-17
    pub const fn none_left(self) -> Result<(), InUse> {
        if self.0 == 0 { Ok(()) } else { Err(InUse { users: self.0 }) }
    }
}

/// An object cannot go: others use it. `EBUSY`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InUse {
    /// How many.
    pub users: u32,
}

impl fmt::Display for InUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "in use by {} other objects", self.users)
    }
}

impl core::error::Error for InUse {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_user_frees() {
        let mut users = Users::default();
        assert_eq!(users.none_left(), Ok(()));
        users.acquire();
        users.acquire();
        users.release();
        assert_eq!(users.none_left(), Err(InUse { users: 1 }));
        users.release();
        users.release();
        assert_eq!((users.none_left(), users.count()), (Ok(()), 0));
    }
}
