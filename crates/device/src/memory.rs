//! Memory regions and windows: which key opens which bytes to whom.
//!
//! IBA vol 1 §10.6. One table holds both, because a peer's request names either by the same kind of
//! key. What a valid key opens is a grant (`grant.rs`), whatever stands behind it: finding it is
//! one array access, checking it a few comparisons. How regions come and go is in `regions.rs`,
//! windows are in `windows.rs`, what is done with checked memory in `copy.rs`. Protection domains
//! are compared here, but counted by whoever calls.
//!
//! Of the two subtypes of type 2 windows the device has 2B: such a window works for the queue pair
//! it was bound on, and in its protection domain only.

mod copy;
mod error;
mod grant;
mod regions;
mod windows;

use roxe_transport::adapter::{Access, KeyViolation};
use roxe_transport::work::{AccessFlags, LocalOperation, Span};
use roxe_wire::{LKey, Qpn, RKey};

use crate::key::Keys;
use crate::protection_domain::Pd;
use crate::slots::SlotNumbers;
use grant::{Grant, GrantKind};
use regions::Region;
use windows::Window;

pub use error::MemoryError;
pub use grant::HostPlace;
pub use regions::{Changes, Deregistered, Registration};
pub use windows::WindowType;

/// All regions and windows of a device.
#[derive(Clone, Debug)]
pub struct MemoryTable {
    keys: Keys,
    numbers: SlotNumbers,
    slots: Vec<Slot>,
    regions: Population,
    windows: Population,
}

impl MemoryTable {
    /// An empty table for so many regions and windows. Who has the seed can compute the keys.
    pub fn new(seed: u64, max_regions: u32, max_windows: u32) -> Self {
        // One slot more than objects: the one whose index is 0 is passed over.
        let slots = max_regions.saturating_add(max_windows).saturating_add(1).min(1 << 24);
        Self {
            keys: Keys::new(seed),
            numbers: SlotNumbers::new(slots),
            slots: Vec::new(),
            regions: Population { count: 0, most: max_regions },
            windows: Population { count: 0, most: max_windows },
        }
    }

    /// Does what a local work request asks for, on behalf of a queue pair.
    ///
    /// # Errors
    /// As [`MemoryTable::invalidate`], [`MemoryTable::bind`],
    /// [`MemoryTable::register_by_work_request`].
    pub fn local_operation(
        &mut self,
        pd: Pd,
        qpn: Qpn,
        operation: &LocalOperation,
    ) -> Result<(), MemoryError> {
        match operation {
            LocalOperation::Invalidate(key) => self.invalidate(pd, *key),
            LocalOperation::BindWindow(what) => self.bind(pd, qpn, what),
            LocalOperation::RegisterMemory(what) => self.register_by_work_request(pd, what),
        }
    }

    /// Where the bytes are that a remote request may touch, or the first rule it breaks; `None`
    /// when it touches nothing. `pd` and `qpn` are those of the queue pair it came to.
    ///
    /// A FLUSH of no bytes is one of all bytes of the region or window: then the range is not
    /// looked at, and the first byte is found.
    ///
    /// # Errors
    /// The first of these, in this order: [`KeyViolation::NoSuchKey`],
    /// [`KeyViolation::WrongDomain`], [`KeyViolation::AccessDenied`],
    /// [`KeyViolation::OutsideRegion`].
    pub fn check_remote(
        &self,
        pd: Pd,
        qpn: Qpn,
        key: RKey,
        span: Span,
        access: Access,
    ) -> Result<Option<HostPlace>, KeyViolation> {
        // A READ or WRITE of no bytes need not carry a valid address or key.
        //= IBA C9-88
        if span.len == 0 && matches!(access, Access::Read | Access::Write) {
            return Ok(None);
        }
        let grant = self.remote_grant(pd, qpn, key, access)?;
        if span.len == 0 && matches!(access, Access::FlushGlobal | Access::FlushPersistent) {
            return Ok(Some(grant.first_byte()));
        }
        grant.place(span).map(Some)
    }

    /// Where the bytes are that a scatter/gather element of our own names, or the first rule it
    /// breaks; `None` when it has none. Windows have no L_Key.
    ///
    /// # Errors
    /// As [`MemoryTable::check_remote`].
    pub fn check_local(
        &self,
        pd: Pd,
        key: LKey,
        span: Span,
        write: bool,
    ) -> Result<Option<HostPlace>, KeyViolation> {
        if span.len == 0 {
            return Ok(None);
        }
        self.local_place(pd, key, span, write).map(Some)
    }

    /// How many regions there are.
    pub const fn regions(&self) -> u32 {
        self.regions.count
    }

    /// How many windows there are.
    pub const fn windows(&self) -> u32 {
        self.windows.count
    }

    /// What a valid key opens to a peer, whatever the range.
    fn remote_grant(
        &self,
        pd: Pd,
        qpn: Qpn,
        key: RKey,
        access: Access,
    ) -> Result<&Grant, KeyViolation> {
        let grant = self.grant(key.0).ok_or(KeyViolation::NoSuchKey)?;
        grant.check_domain(pd, qpn)?;
        grant.check_right(access)?;
        Ok(grant)
    }

    fn local_place(
        &self,
        pd: Pd,
        key: LKey,
        span: Span,
        write: bool,
    ) -> Result<HostPlace, KeyViolation> {
        let grant = self.grant(key.0).filter(|grant| grant.kind == GrantKind::Region);
        let grant = grant.ok_or(KeyViolation::NoSuchKey)?;
        if grant.pd != pd {
            return Err(KeyViolation::WrongDomain);
        }
        // Reading one's own registered memory is always allowed.
        //= 05-5.6
        if write && !grant.access.contain(AccessFlags::LOCAL_WRITE) {
            return Err(KeyViolation::AccessDenied);
        }
        grant.place(span)
    }

    /// What a key opens, if anything: the path that every packet takes.
    fn grant(&self, key: u32) -> Option<&Grant> {
        let entry = self.slots.get(self.keys.slot(key) as usize)?;
        if entry.key == key { entry.grant.as_ref() } else { None }
    }

    /// The slot and object of a present key, valid or not.
    fn object(&self, key: u32) -> Result<(usize, &Object), MemoryError> {
        let slot = self.keys.slot(key) as usize;
        let entry = self.slots.get(slot).filter(|entry| entry.key == key);
        let object = entry.and_then(|entry| entry.object.as_ref());
        Ok((slot, object.ok_or(MemoryError::NoSuchKey)?))
    }

    /// Puts an object into a slot and makes its key.
    fn insert(&mut self, object: Object, grant: Option<Grant>) -> Result<u32, MemoryError> {
        let full = MemoryError::TableFull { most: self.slots.len() as u32 };
        loop {
            let slot = self.numbers.take().ok_or(full)?;
            let (object, grant) = (Some(object), grant);
            if let Some(entry) = self.slots.get_mut(slot as usize) {
                let key = self.keys.following(entry.key);
                *entry = Slot { key, grant, object };
                return Ok(key);
            }
            let key = self.keys.first(slot);
            if key >> 8 == 0 {
                // An index of 0 makes keys that look like none at all.
                self.slots.push(Slot { key, grant: None, object: None });
                continue;
            }
            self.slots.push(Slot { key, grant, object });
            return Ok(key);
        }
    }

    fn remove(&mut self, slot: usize) {
        let entry = &mut self.slots[slot];
        entry.grant = None;
        entry.object = None;
        self.numbers.give_back(slot as u32);
    }
}

/// A place in the table. It remembers its key when it is empty, so that the next one differs.
#[derive(Clone, Debug)]
struct Slot {
    key: u32,
    /// What the key opens; `None` while it is not valid.
    grant: Option<Grant>,
    object: Option<Object>,
}

#[derive(Clone, Copy, Debug)]
enum Object {
    Region(Region),
    Window(Window),
}

/// How many of a kind there are and may be.
#[derive(Clone, Copy, Debug)]
struct Population {
    count: u32,
    most: u32,
}

impl Population {
    fn check_room(self) -> Result<(), MemoryError> {
        if self.count < self.most {
            Ok(())
        } else {
            Err(MemoryError::TableFull { most: self.most })
        }
    }
}

#[cfg(test)]
mod tests;
