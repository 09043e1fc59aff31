//! Memory windows: part of a region, opened to peers for a while.
//!
//! IBA vol 1 §10.6.7. A window of type 1 may be bound anew at any time, one of type 2 only once it
//! is free again. Where a binding breaks several rules, the first in the order of
//! [`MemoryTable::bind`] is told.

use roxe_transport::work::{AccessFlags, Binding, Span};
use roxe_wire::{Qpn, RKey};

use super::grant::{Grant, GrantKind, start_of};
use super::regions::{self, Region};
use super::{MemoryError, MemoryTable, Object};
use crate::key::same_index;
use crate::protection_domain::Pd;

/// Which rules a window follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowType {
    /// For every queue pair of its protection domain.
    Type1,
    /// For the queue pair it was bound on: type 2B.
    Type2,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    pd: Pd,
    kind: WindowType,
    /// The slot of the region that it is bound to.
    bound_to: Option<u32>,
}

impl MemoryTable {
    /// A new window, which opens nothing yet.
    ///
    /// # Errors
    /// [`MemoryError::TableFull`].
    pub fn alloc_window(&mut self, pd: Pd, kind: WindowType) -> Result<RKey, MemoryError> {
        self.windows.check_room()?;
        let key = self.insert(Object::Window(Window { pd, kind, bound_to: None }), None)?;
        self.windows.count += 1;
        Ok(RKey(key))
    }

    /// Takes a window away, bound or not. Its protection domain has one user less.
    ///
    /// # Errors
    /// [`MemoryError::NoSuchKey`].
    pub fn dealloc_window(&mut self, key: RKey) -> Result<Pd, MemoryError> {
        let (slot, window) = self.window(key)?;
        self.unbind(slot);
        self.remove(slot);
        self.windows.count -= 1;
        Ok(window.pd)
    }

    /// Opens a window over part of a region, or closes it. `pd` and `qpn` are those of the queue
    /// pair whose work request this is. A refusal leaves all as it was.
    ///
    /// # Errors
    /// [`MemoryError`].
    //= BC-081
    pub fn bind(&mut self, pd: Pd, qpn: Qpn, what: &Binding) -> Result<(), MemoryError> {
        let (slot, window) = self.window(what.window)?;
        if !same_index(what.window.0, what.new_key.0) {
            return Err(MemoryError::OtherIndex);
        }
        if window.pd != pd {
            return Err(MemoryError::WrongDomain);
        }
        check_free(&window)?;
        if what.span.len == 0 {
            check_closing(&window)?;
            self.unbind(slot);
            self.slots[slot].key = what.new_key.0;
            return Ok(());
        }
        let (region_slot, region) = self.region(what.region.0)?;
        let below = self.slots[region_slot].grant.as_ref().ok_or(MemoryError::NoSuchKey)?;
        check_one_domain(&window, region)?;
        check_bind_right(below)?;
        check_rights(what.access, below)?;
        check_zero_based(&window, what.access, below)?;
        let offset = check_inside(what.span, below)?;

        let kind = match window.kind {
            WindowType::Type1 => GrantKind::Window,
            WindowType::Type2 => GrantKind::WindowOf(qpn),
        };
        let grant = Grant {
            start: start_of(what.access, what.span.va),
            len: what.span.len,
            offset,
            host: below.host,
            pd,
            access: what.access,
            kind,
        };
        self.unbind(slot);
        self.count_window(region_slot, 1);
        let entry = &mut self.slots[slot];
        entry.key = what.new_key.0;
        entry.grant = Some(grant);
        let bound_to = Some(region_slot as u32);
        entry.object = Some(Object::Window(Window { bound_to, ..window }));
        Ok(())
    }

    /// The slot and window of a present key.
    fn window(&self, key: RKey) -> Result<(usize, Window), MemoryError> {
        match self.object(key.0)? {
            (slot, Object::Window(window)) => Ok((slot, *window)),
            (_, Object::Region(_)) => Err(MemoryError::NoSuchKey),
        }
    }

    /// Closes the window in a slot; does nothing if there is none or it is not bound.
    pub(super) fn unbind(&mut self, slot: usize) {
        let entry = &mut self.slots[slot];
        let Some(Object::Window(window)) = &mut entry.object else { return };
        entry.grant = None;
        if let Some(region) = window.bound_to.take() {
            self.count_window(region as usize, -1);
        }
    }

    fn count_window(&mut self, region_slot: usize, change: i32) {
        if let Some(Object::Region(region)) = &mut self.slots[region_slot].object {
            region.windows = region.windows.saturating_add_signed(change);
        }
    }
}

/// A window of type 1 is bound anew or freed, but never invalidated.
//= IBA o10-37.2.26
pub(super) fn check_invalidate(window: &Window) -> Result<(), MemoryError> {
    match window.kind {
        WindowType::Type1 => Err(MemoryError::Type1),
        WindowType::Type2 => Ok(()),
    }
}

/// A window of type 2 must be free when it is bound.
//= IBA o10-37.2.30
fn check_free(window: &Window) -> Result<(), MemoryError> {
    match (window.kind, window.bound_to) {
        (WindowType::Type2, Some(_)) => Err(MemoryError::StillValid),
        _ => Ok(()),
    }
}

/// Length 0 closes a window of type 1; one of type 2 cannot have it.
//= IBA o10-37.2.40
fn check_closing(window: &Window) -> Result<(), MemoryError> {
    match window.kind {
        WindowType::Type1 => Ok(()),
        WindowType::Type2 => Err(MemoryError::ZeroLength),
    }
}

/// Queue pair, window and region share a protection domain. The queue pair's was compared with the
/// window's before.
//= IBA C10-72
fn check_one_domain(window: &Window, region: &Region) -> Result<(), MemoryError> {
    if window.pd == region.pd { Ok(()) } else { Err(MemoryError::WrongDomain) }
}

/// The region must allow windows.
//= IBA C10-73
fn check_bind_right(region: &Grant) -> Result<(), MemoryError> {
    if region.access.contain(AccessFlags::MW_BIND) { Ok(()) } else { Err(MemoryError::NoBindRight) }
}

/// A window through which memory can be changed needs a region that can be written to. It does not
/// need a region that peers can use: to give such rights for a while is what windows are for. But
/// whether memory can be flushed, only its region knows.
//= IBA C10-74
fn check_rights(access: AccessFlags, region: &Grant) -> Result<(), MemoryError> {
    if !AccessFlags::REMOTE.with(AccessFlags::ZERO_BASED).contain(access) {
        return Err(MemoryError::WindowRights);
    }
    regions::check_rights(access, region.access)?;
    let missing = |flush| access.contain(flush) && !region.access.contain(flush);
    if missing(AccessFlags::FLUSH_GLOBAL) || missing(AccessFlags::FLUSH_PERSISTENT) {
        return Err(MemoryError::WindowRights);
    }
    Ok(())
}

/// Addresses may count from 0 in a window of type 2 only, and not if they do so in its region.
//= IBA o10-36.2.2
//= 05-5.6
fn check_zero_based(
    window: &Window,
    access: AccessFlags,
    region: &Grant,
) -> Result<(), MemoryError> {
    let wanted = access.contain(AccessFlags::ZERO_BASED);
    if wanted && window.kind == WindowType::Type1 || region.access.contain(AccessFlags::ZERO_BASED)
    {
        return Err(MemoryError::ZeroBased);
    }
    Ok(())
}

/// The window lies in its region. Where it begins in the host's memory.
//= IBA C10-75
fn check_inside(span: Span, region: &Grant) -> Result<u64, MemoryError> {
    region.place(span).map(|place| place.offset).map_err(|_| MemoryError::OutsideRegion)
}
