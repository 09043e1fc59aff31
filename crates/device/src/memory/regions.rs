//! Memory regions: how they come, change and go, by verbs and by work requests.
//!
//! IBA vol 1 §10.6.3.

use roxe_transport::adapter::KeyViolation;
use roxe_transport::work::{AccessFlags, FastRegistration};
use roxe_wire::{LKey, Qpn, RKey};

use super::grant::{Grant, GrantKind, start_of};
use super::{MemoryError, MemoryTable, Object, windows};
use crate::host_memory::HostRegion;
use crate::key::same_index;
use crate::protection_domain::Pd;

/// What the caller says about memory that it registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registration {
    /// To which queue pairs it belongs.
    pub pd: Pd,
    /// Where its bytes are, from offset 0 on.
    pub host: HostRegion,
    /// The address that work requests and peers shall use for its first byte. Not looked at with
    /// [`AccessFlags::ZERO_BASED`]: addresses then count from 0.
    pub va: u64,
    /// Bytes. May be 0.
    pub len: u64,
    /// What may be done with it.
    pub access: AccessFlags,
}

/// What a re-registration changes; what is `None` stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// `IBV_REREG_MR_CHANGE_PD`.
    pub pd: Option<Pd>,
    /// `IBV_REREG_MR_CHANGE_ACCESS`.
    pub access: Option<AccessFlags>,
    /// `IBV_REREG_MR_CHANGE_TRANSLATION`: other bytes, their address and how many there are.
    pub range: Option<(HostRegion, u64, u64)>,
}

/// What a region that was taken away leaves to be given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deregistered {
    /// Its protection domain has one user less.
    pub pd: Pd,
    /// The memory that nobody will ask for again.
    pub host: HostRegion,
}

/// A region, valid or not.
#[derive(Clone, Copy, Debug)]
pub(super) struct Region {
    pub(super) pd: Pd,
    pub(super) host: HostRegion,
    /// The address that was given for its first byte, whether or not it counts from 0.
    pub(super) va: u64,
    /// For regions that work requests register: how long they may become.
    pub(super) fast: Option<u64>,
    /// How many windows are bound to it.
    pub(super) windows: u32,
}

impl MemoryTable {
    /// Registers memory. The key is its L_Key and, where peers have rights, its R_Key.
    ///
    /// # Errors
    /// [`MemoryError::NeedsLocalWrite`], [`MemoryError::RangeWraps`], [`MemoryError::TableFull`].
    pub fn register(&mut self, what: &Registration) -> Result<LKey, MemoryError> {
        check_rights(what.access, what.access)?;
        let Registration { pd, host, va, len, access } = *what;
        let start = start_of(access, va);
        check_wrap(start, len)?;
        let kind = GrantKind::Region;
        let grant = Grant { start, len, offset: 0, host, pd, access, kind };
        self.insert_region(Region { pd, host, va, fast: None, windows: 0 }, Some(grant))
    }

    /// Memory of up to `max_len` bytes that a work request will register later: nobody can use it
    /// before. `ib_alloc_mr` of the kernel.
    ///
    /// # Errors
    /// [`MemoryError::TableFull`].
    pub fn alloc_fast(
        &mut self,
        pd: Pd,
        host: HostRegion,
        max_len: u64,
    ) -> Result<LKey, MemoryError> {
        self.insert_region(Region { pd, host, va: 0, fast: Some(max_len), windows: 0 }, None)
    }

    /// The protection domain of an ordinary region.
    pub fn pd_of(&self, key: LKey) -> Option<Pd> {
        self.ordinary_region(key).ok().map(|(_, region, _)| region.pd)
    }

    /// Registers anew: other rights, bytes or protection domain under the same key. The memory that
    /// it had is returned if it was changed. A refusal leaves all as it was.
    ///
    /// # Errors
    /// [`MemoryError::NoSuchKey`]: no ordinary region has this key. [`MemoryError::WindowsBound`];
    /// else as [`MemoryTable::register`].
    pub fn reregister(
        &mut self,
        key: LKey,
        changes: &Changes,
    ) -> Result<Option<HostRegion>, MemoryError> {
        let (slot, region, old) = self.ordinary_region(key)?;
        check_no_windows(region)?;
        let pd = changes.pd.unwrap_or(region.pd);
        let access = changes.access.unwrap_or(old.access);
        check_rights(access, access)?;
        let (host, va, len) = changes.range.unwrap_or((region.host, region.va, old.len));
        let start = start_of(access, va);
        check_wrap(start, len)?;

        let left = changes.range.map(|_| region.host);
        let grant = Grant { start, len, host, pd, access, ..*old };
        let region = Region { pd, host, va, ..*region };
        let entry = &mut self.slots[slot];
        entry.object = Some(Object::Region(region));
        entry.grant = Some(grant);
        Ok(left)
    }

    /// Takes a region away. From then on its key opens nothing.
    ///
    /// # Errors
    /// [`MemoryError::NoSuchKey`]; [`MemoryError::WindowsBound`].
    pub fn deregister(&mut self, key: LKey) -> Result<Deregistered, MemoryError> {
        let (slot, region) = self.region(key.0)?;
        check_no_windows(region)?;
        let left = Deregistered { pd: region.pd, host: region.host };
        self.remove(slot);
        self.regions.count -= 1;
        Ok(left)
    }

    /// A work request makes a region valid that [`MemoryTable::alloc_fast`] made: `IBV_WR_REG_MR`.
    /// `pd` is that of the queue pair.
    ///
    /// # Errors
    /// [`MemoryError::NoSuchKey`], [`MemoryError::WrongDomain`], [`MemoryError::NotFast`],
    /// [`MemoryError::StillValid`], [`MemoryError::OtherIndex`], [`MemoryError::TooLong`]; else as
    /// [`MemoryTable::register`].
    //= 05-5.6
    pub fn register_by_work_request(
        &mut self,
        pd: Pd,
        what: &FastRegistration,
    ) -> Result<(), MemoryError> {
        let FastRegistration { region, new_key, span, access } = *what;
        let (slot, found) = self.region(region.0)?;
        if found.pd != pd {
            return Err(MemoryError::WrongDomain);
        }
        let max_len = found.fast.ok_or(MemoryError::NotFast)?;
        if self.slots[slot].grant.is_some() {
            return Err(MemoryError::StillValid);
        }
        if !same_index(region.0, new_key.0) {
            return Err(MemoryError::OtherIndex);
        }
        if span.len > max_len {
            return Err(MemoryError::TooLong { max: max_len });
        }
        check_rights(access, access)?;
        let start = start_of(access, span.va);
        check_wrap(start, span.len)?;
        let (len, host, kind) = (span.len, found.host, GrantKind::Region);
        let entry = &mut self.slots[slot];
        entry.key = new_key.0;
        entry.grant = Some(Grant { start, len, offset: 0, host, pd, access, kind });
        Ok(())
    }

    /// A work request of our own takes the validity of a fast-registered region or of a type 2
    /// window away, which can then be made valid anew: `IBV_WR_LOCAL_INV`.
    ///
    /// # Errors
    /// [`MemoryError::NoSuchKey`]: also when it is not valid now. [`MemoryError::WrongDomain`],
    /// [`MemoryError::WindowsBound`], [`MemoryError::NotFast`], [`MemoryError::Type1`].
    pub fn invalidate(&mut self, pd: Pd, key: RKey) -> Result<(), MemoryError> {
        let slot = self.valid(key.0)?;
        if self.grant(key.0).is_some_and(|grant| grant.pd != pd) {
            return Err(MemoryError::WrongDomain);
        }
        self.invalidate_slot(slot)
    }

    /// The same, because a peer asked for it: SEND with invalidate. The peer must be one that can
    /// use the key.
    ///
    /// # Errors
    /// [`KeyViolation::NoSuchKey`]: also when it is not valid now, or nothing that a peer may use.
    /// [`KeyViolation::WrongDomain`]; [`KeyViolation::AccessDenied`] for objects that are not
    /// invalidated.
    //= R31, R32, BC-080
    pub fn invalidate_remote(&mut self, pd: Pd, qpn: Qpn, key: RKey) -> Result<(), KeyViolation> {
        let slot = self.valid(key.0).map_err(KeyViolation::from)?;
        let grant = self.grant(key.0).ok_or(KeyViolation::NoSuchKey)?;
        grant.check_domain(pd, qpn)?;
        if !grant.access.contain_any(AccessFlags::REMOTE) {
            return Err(KeyViolation::NoSuchKey);
        }
        Ok(self.invalidate_slot(slot)?)
    }

    /// The slot and region of a present key.
    pub(super) fn region(&self, key: u32) -> Result<(usize, &Region), MemoryError> {
        match self.object(key)? {
            (slot, Object::Region(region)) => Ok((slot, region)),
            (_, Object::Window(_)) => Err(MemoryError::NoSuchKey),
        }
    }

    /// A region that is no fast one, and thus always valid.
    fn ordinary_region(&self, key: LKey) -> Result<(usize, &Region, &Grant), MemoryError> {
        let (slot, region) = self.region(key.0)?;
        let grant = self.slots[slot].grant.as_ref().filter(|_| region.fast.is_none());
        Ok((slot, region, grant.ok_or(MemoryError::NoSuchKey)?))
    }

    /// The slot of a key that opens something now.
    fn valid(&self, key: u32) -> Result<usize, MemoryError> {
        let (slot, _) = self.object(key)?;
        if self.slots[slot].grant.is_none() {
            return Err(MemoryError::NoSuchKey);
        }
        Ok(slot)
    }

    /// Makes a fast-registered region or a type 2 window invalid.
    fn invalidate_slot(&mut self, slot: usize) -> Result<(), MemoryError> {
        match &self.slots[slot].object {
            None => return Err(MemoryError::NoSuchKey),
            // An ordinary region stays valid until it is deregistered.
            //= 05-5.6
            Some(Object::Region(Region { fast: None, .. })) => return Err(MemoryError::NotFast),
            Some(Object::Region(region)) => check_no_windows(region)?,
            Some(Object::Window(window)) => windows::check_invalidate(window)?,
        }
        self.unbind(slot);
        self.slots[slot].grant = None;
        Ok(())
    }

    fn insert_region(&mut self, region: Region, grant: Option<Grant>) -> Result<LKey, MemoryError> {
        self.regions.check_room()?;
        let key = self.insert(Object::Region(region), grant)?;
        self.regions.count += 1;
        Ok(LKey(key))
    }
}

/// Who lets peers change memory, through this key or a window over it, must be able to change it as
/// well. `memory` are the rights of the region.
//= 05-5.6, V03
pub(super) fn check_rights(wanted: AccessFlags, memory: AccessFlags) -> Result<(), MemoryError> {
    if wanted.contain_any(CHANGING_RIGHTS) && !memory.contain(AccessFlags::LOCAL_WRITE) {
        return Err(MemoryError::NeedsLocalWrite);
    }
    Ok(())
}

/// The last byte must have an address.
//= R18
fn check_wrap(start: u64, len: u64) -> Result<(), MemoryError> {
    let last = len.checked_sub(1).map_or(Some(start), |last| start.checked_add(last));
    last.map(|_| ()).ok_or(MemoryError::RangeWraps)
}

/// Whoever bound a window expects it to work: the region below must stay as it is.
//= IBA 10.6.7.2.6
fn check_no_windows(region: &Region) -> Result<(), MemoryError> {
    match region.windows {
        0 => Ok(()),
        count => Err(MemoryError::WindowsBound { count }),
    }
}

/// Rights of peers to change memory.
pub(super) const CHANGING_RIGHTS: AccessFlags =
    AccessFlags::REMOTE_WRITE.with(AccessFlags::REMOTE_ATOMIC);
