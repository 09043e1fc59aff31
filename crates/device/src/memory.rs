//! Memory regions and windows: which key opens which bytes to whom.
//!
//! IBA vol 1 §10.6. One table holds both, because a peer's request names either by the same kind of
//! key. What a valid key opens is a grant, whatever stands behind it: finding it is one array
//! access, checking it a few comparisons. How regions come and go is in this file, windows are in
//! `windows.rs`, what is done with checked memory in `copy.rs`. Protection domains are compared
//! here, but counted by whoever calls.
//!
//! Of the two subtypes of type 2 windows the device has 2B: such a window works for the queue pair
//! it was bound on, and in its protection domain only.

mod copy;
mod windows;

use core::fmt;

use roxe_transport::adapter::{Access, KeyViolation};
use roxe_transport::work::{AccessFlags, LocalOperation, Span};
use roxe_wire::{LKey, Qpn, RKey};

use crate::host_memory::HostRegion;
use crate::key::{Keys, same_index};
use crate::protection_domain::Pd;
use crate::slots::SlotNumbers;

pub use windows::{Binding, WindowType};

/// All regions and windows of a device.
#[derive(Clone, Debug)]
pub struct MemoryTable {
    keys: Keys,
    numbers: SlotNumbers,
    slots: Vec<Slot>,
    regions: Population,
    windows: Population,
}

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

/// Where checked bytes begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostPlace {
    /// In which memory.
    pub region: HostRegion,
    /// How many bytes from its beginning.
    pub offset: u64,
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
        region: RKey,
        new_key: RKey,
        span: Span,
        access: AccessFlags,
    ) -> Result<(), MemoryError> {
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
        match *operation {
            LocalOperation::Invalidate(key) => self.invalidate(pd, key),
            LocalOperation::BindWindow { window, new_key, region, va, len, access } => {
                let span = Span { va, len };
                self.bind(pd, qpn, &Binding { window, new_key, region, span, access })
            }
            LocalOperation::RegisterMemory { region, new_key, va, len, access } => {
                self.register_by_work_request(pd, region, new_key, Span { va, len }, access)
            }
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

    /// What the region or window with this key opens now; `None` when it opens nothing.
    pub fn range_of(&self, key: RKey) -> Option<Span> {
        self.grant(key.0).map(|grant| Span { va: grant.start, len: grant.len })
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

    fn region(&self, key: u32) -> Result<(usize, &Region), MemoryError> {
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
    Window(windows::Window),
}

#[derive(Clone, Copy, Debug)]
struct Region {
    pd: Pd,
    host: HostRegion,
    /// The address that was given for its first byte, whether or not it counts from 0.
    va: u64,
    /// For regions that work requests register: how long they may become.
    fast: Option<u64>,
    /// How many windows are bound to it.
    windows: u32,
}

/// What a valid key opens: some bytes, to some queue pairs, for some uses.
#[derive(Clone, Copy, Debug)]
struct Grant {
    /// The address of the first byte.
    start: u64,
    /// Bytes. `start + len` is at most 2⁶⁴.
    len: u64,
    /// Where the first byte is in the host's memory.
    offset: u64,
    host: HostRegion,
    pd: Pd,
    access: AccessFlags,
    kind: GrantKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GrantKind {
    Region,
    /// A window of type 1.
    Window,
    /// A window of type 2B, and the queue pair it was bound on.
    WindowOf(Qpn),
}

impl Grant {
    /// Regions and type 1 windows are for their protection domain, a type 2B window besides for one
    /// queue pair.
    //= 05-5.6, R37
    fn check_domain(&self, pd: Pd, qpn: Qpn) -> Result<(), KeyViolation> {
        let other_qp = matches!(self.kind, GrantKind::WindowOf(bound) if bound != qpn);
        if self.pd != pd || other_qp {
            return Err(KeyViolation::WrongDomain);
        }
        Ok(())
    }

    /// The right that each request needs.
    //= 05-5.6, R19
    fn check_right(&self, access: Access) -> Result<(), KeyViolation> {
        if self.access.contain(access.right()) { Ok(()) } else { Err(KeyViolation::AccessDenied) }
    }

    /// Where the bytes of a span are, if all of them lie inside. Differences only: a sum could
    /// overflow.
    //= 05-5.6, R18, BC-084
    fn place(&self, span: Span) -> Result<HostPlace, KeyViolation> {
        match span.va.checked_sub(self.start) {
            Some(at) if at <= self.len && span.len <= self.len - at => {
                Ok(HostPlace { region: self.host, offset: self.offset + at })
            }
            _ => Err(KeyViolation::OutsideRegion),
        }
    }

    fn first_byte(&self) -> HostPlace {
        HostPlace { region: self.host, offset: self.offset }
    }
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

/// Who lets peers change memory, through this key or a window over it, must be able to change it as
/// well. `memory` are the rights of the region.
//= 05-5.6, V03
fn check_rights(wanted: AccessFlags, memory: AccessFlags) -> Result<(), MemoryError> {
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

fn start_of(access: AccessFlags, va: u64) -> u64 {
    if access.contain(AccessFlags::ZERO_BASED) { 0 } else { va }
}

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

/// Rights of peers to change memory.
const CHANGING_RIGHTS: AccessFlags = AccessFlags::REMOTE_WRITE.with(AccessFlags::REMOTE_ATOMIC);

#[cfg(test)]
mod tests;
