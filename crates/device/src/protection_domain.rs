//! Protection domains: which queue pairs may use which memory.
//!
//! IBA vol 1 §10.2.3. A domain is nothing but a name that others compare, and the
//! number of those who carry it.

use core::fmt;

use crate::slots::Slots;
use crate::users::{InUse, Users};

/// Names a protection domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pd(pub u32);

/// All protection domains of a device.
#[derive(Clone, Debug)]
pub struct ProtectionDomains {
    domains: Slots<Users>,
    most: u32,
}

impl ProtectionDomains {
    /// None, and room for `most`.
    pub const fn new(most: u32) -> Self {
        Self { domains: Slots::new(most), most }
    }

    /// A new domain.
    ///
    /// # Errors
    /// [`PdError::TooMany`].
    pub fn allocate(&mut self) -> Result<Pd, PdError> {
        let number = self.domains.insert(Users::default());
        number.map(Pd).ok_or(PdError::TooMany { most: self.most })
    }

    /// A region, window, queue or address handle comes to belong to the domain.
    ///
    /// # Errors
    /// [`PdError::NoSuchDomain`].
    pub fn acquire(&mut self, pd: Pd) -> Result<(), PdError> {
        self.domains.get_mut(pd.0).ok_or(PdError::NoSuchDomain)?.acquire();
        Ok(())
    }

    /// It belongs to the domain no more.
    pub fn release(&mut self, pd: Pd) {
        if let Some(users) = self.domains.get_mut(pd.0) {
            users.release();
        }
    }

    /// The domain goes, if nothing belongs to it.
    ///
    /// # Errors
    /// [`PdError::NoSuchDomain`]; [`PdError::InUse`].
    pub fn deallocate(&mut self, pd: Pd) -> Result<(), PdError> {
        self.domains.get(pd.0).ok_or(PdError::NoSuchDomain)?.none_left().map_err(PdError::InUse)?;
        self.domains.remove(pd.0);
        Ok(())
    }

    /// How many domains there are.
    pub const fn len(&self) -> u32 {
        self.domains.len()
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.domains.is_empty()
    }
}

/// Why a verb on protection domains was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PdError {
    /// There are as many as the device has room for. `ENOMEM`.
    TooMany {
        /// How many.
        most: u32,
    },
    /// No domain has this name. `EINVAL`.
    NoSuchDomain,
    /// Something belongs to it. `EBUSY`.
    InUse(InUse),
}

impl fmt::Display for PdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooMany { most } => write!(f, "all {most} protection domains are in use"),
            Self::NoSuchDomain => f.write_str("no such protection domain"),
            Self::InUse(users) => write!(f, "the protection domain is {users}"),
        }
    }
}

impl core::error::Error for PdError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_domain_stays_while_something_belongs_to_it() {
        let mut domains = ProtectionDomains::new(2);
        let pd = domains.allocate().unwrap();
        domains.acquire(pd).unwrap();
        assert_eq!(domains.deallocate(pd), Err(PdError::InUse(InUse { users: 1 })));
        domains.release(pd);
        assert_eq!(domains.deallocate(pd), Ok(()));
        assert_eq!(domains.deallocate(pd), Err(PdError::NoSuchDomain));
        assert_eq!(domains.acquire(pd), Err(PdError::NoSuchDomain));
        domains.release(pd);
        assert!(domains.is_empty());
    }

    #[test]
    fn there_are_no_more_than_the_limit() {
        let mut domains = ProtectionDomains::new(2);
        assert!(domains.allocate().is_ok() && domains.allocate().is_ok());
        assert_eq!(domains.allocate(), Err(PdError::TooMany { most: 2 }));
        assert_eq!(domains.len(), 2);
    }
}
