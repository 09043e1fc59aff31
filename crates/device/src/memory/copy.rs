//! Bytes between packets and registered memory, each copied once.
//!
//! Every call checks keys, rights and ranges anew: they may have gone since the message began.

use roxe_transport::adapter::{Access, KeyViolation, Place, SgeList};
use roxe_transport::work::Span;
use roxe_wire::{LKey, Payload, Qpn, RKey, digest};

use super::{HostPlace, MemoryTable};
use crate::host_memory::{HostMemory, MemoryGone};
use crate::protection_domain::Pd;

impl From<MemoryGone> for KeyViolation {
    fn from(_: MemoryGone) -> Self {
        Self::MemoryGone
    }
}

impl MemoryTable {
    /// Whether all of a list can be read, or with `write` written.
    ///
    /// # Errors
    /// The first violation.
    pub fn check_list(&self, pd: Pd, sges: SgeList<'_>, write: bool) -> Result<(), KeyViolation> {
        sges.iter().try_for_each(|sge| {
            let span = Span { va: sge.va, len: sge.len.into() };
            self.check_local(pd, sge.l_key, span, write).map(|_| ())
        })
    }

    /// Fills a place in a packet with what a list holds from its byte `offset` on.
    ///
    /// # Errors
    /// A violation: then nothing of the place may be used. [`KeyViolation::OutsideRegion`] also
    /// when the list is too short.
    pub fn gather<H: HostMemory>(
        &self,
        pd: Pd,
        sges: SgeList<'_>,
        offset: u32,
        place: Place<'_>,
        host: &H,
    ) -> Result<(), KeyViolation> {
        let len = place.len() as u64;
        match place {
            Place::Bytes { first, second } if let Some((key, span)) = only(sges, offset, len) => {
                let from = self.local_place(pd, key, span, false)?;
                Ok(read(host, from, [first, second])?)
            }
            Place::Bytes { first, second } => {
                let mut room = [first, second];
                elements(sges, offset, len, |key, span| {
                    let from = self.local_place(pd, key, span, false)?;
                    Ok(read(host, from, front_mut(&mut room, span.len))?)
                })
            }
            Place::Elided { digest, .. } => {
                *digest = digest::EMPTY;
                elements(sges, offset, len, |key, span| {
                    let from = self.local_place(pd, key, span, false)?;
                    let piece = host.digest(from.region, from.offset, span.len)?;
                    *digest = digest::join(*digest, piece, span.len);
                    Ok(())
                })
            }
        }
    }

    /// Writes a packet's bytes to what a list holds from its byte `offset` on.
    ///
    /// # Errors
    /// A violation: part may have been written. [`KeyViolation::OutsideRegion`] also when the list
    /// is too short.
    pub fn scatter<H: HostMemory>(
        &self,
        pd: Pd,
        sges: SgeList<'_>,
        offset: u32,
        payload: Payload<'_>,
        host: &mut H,
    ) -> Result<(), KeyViolation> {
        let len = payload.len() as u64;
        match payload {
            Payload::Bytes { first, second } if let Some((key, span)) = only(sges, offset, len) => {
                let to = self.local_place(pd, key, span, true)?;
                Ok(write(host, to, [first, second])?)
            }
            Payload::Bytes { first, second } => {
                let mut bytes = [first, second];
                elements(sges, offset, len, |key, span| {
                    let to = self.local_place(pd, key, span, true)?;
                    Ok(write(host, to, front(&mut bytes, span.len))?)
                })
            }
            Payload::Elided { digest, .. } => {
                let mut left = len;
                let mut whole = digest;
                elements(sges, offset, len, |key, span| {
                    let to = self.local_place(pd, key, span, true)?;
                    left -= span.len;
                    let piece = digest::before_zeros(whole, left);
                    whole = digest::EMPTY;
                    Ok(host.write_digest(to.region, to.offset, span.len, piece)?)
                })
            }
        }
    }

    /// Fills a place in a packet with what a peer asked to read.
    ///
    /// # Errors
    /// A violation: then nothing of the place may be used.
    pub fn read_remote<H: HostMemory>(
        &self,
        pd: Pd,
        qpn: Qpn,
        key: RKey,
        va: u64,
        place: Place<'_>,
        host: &H,
    ) -> Result<(), KeyViolation> {
        let span = Span { va, len: place.len() as u64 };
        let from = self.check_remote(pd, qpn, key, span, Access::Read)?;
        match (place, from) {
            (Place::Bytes { first, second }, Some(from)) => Ok(read(host, from, [first, second])?),
            (Place::Elided { digest, .. }, Some(from)) => {
                *digest = host.digest(from.region, from.offset, span.len)?;
                Ok(())
            }
            (Place::Elided { digest, .. }, None) => {
                *digest = digest::EMPTY;
                Ok(())
            }
            (Place::Bytes { .. }, None) => Ok(()),
        }
    }

    /// Writes a packet's bytes where a peer asked. Eight bytes are written at once if they can be,
    /// so that this serves for ATOMIC WRITE too.
    ///
    /// # Errors
    /// A violation: part may have been written, if it is [`KeyViolation::MemoryGone`].
    pub fn write_remote<H: HostMemory>(
        &self,
        pd: Pd,
        qpn: Qpn,
        key: RKey,
        va: u64,
        payload: Payload<'_>,
        host: &mut H,
    ) -> Result<(), KeyViolation> {
        let span = Span { va, len: payload.len() as u64 };
        let Some(to) = self.check_remote(pd, qpn, key, span, Access::Write)? else {
            return Ok(());
        };
        match payload {
            Payload::Bytes { first, second } if span.len == 8 => {
                let mut eight = [0; 8];
                eight.iter_mut().zip(first.iter().chain(second)).for_each(|(to, from)| *to = *from);
                Ok(host.write_eight(to.region, to.offset, eight)?)
            }
            Payload::Bytes { first, second } => Ok(write(host, to, [first, second])?),
            Payload::Elided { digest, .. } => {
                Ok(host.write_digest(to.region, to.offset, span.len, digest)?)
            }
        }
    }

    /// Changes a number of 64 bits for a peer; gives what it was. `change` gives the new number,
    /// or `None` to leave it.
    ///
    /// # Errors
    /// A violation: then nothing was changed.
    pub fn atomic_remote<H: HostMemory>(
        &self,
        pd: Pd,
        qpn: Qpn,
        key: RKey,
        va: u64,
        change: &mut dyn FnMut(u64) -> Option<u64>,
        host: &mut H,
    ) -> Result<u64, KeyViolation> {
        let at = self.remote_grant(pd, qpn, key, Access::Atomic)?.place(Span { va, len: 8 })?;
        Ok(host.fetch_modify(at.region, at.offset, change)?)
    }

    /// Makes what was written to a range visible or persistent. Length 0 means all of the region or
    /// window.
    ///
    /// # Errors
    /// A violation. [`KeyViolation::AccessDenied`] also when `access` is no kind of FLUSH.
    pub fn flush_remote<H: HostMemory>(
        &self,
        pd: Pd,
        qpn: Qpn,
        key: RKey,
        span: Span,
        access: Access,
        host: &mut H,
    ) -> Result<(), KeyViolation> {
        let persistent = match access {
            Access::FlushGlobal => false,
            Access::FlushPersistent => true,
            Access::Read | Access::Write | Access::Atomic => {
                return Err(KeyViolation::AccessDenied);
            }
        };
        let grant = self.remote_grant(pd, qpn, key, access)?;
        let (at, len) = match span.len {
            0 => (grant.first_byte(), grant.len),
            len => (grant.place(span)?, len),
        };
        Ok(host.flush(at.region, at.offset, len, persistent)?)
    }
}

/// Where `len` bytes from byte `offset` on are, if the list has one element and that holds them:
/// the usual case, for which nothing need be cut. `None` also for no bytes.
fn only(sges: SgeList<'_>, offset: u32, len: u64) -> Option<(LKey, Span)> {
    let SgeList([sge], []) = sges else { return None };
    let end = u64::from(offset).checked_add(len)?;
    if len == 0 || end > sge.len.into() {
        return None;
    }
    let va = sge.va.checked_add(offset.into())?;
    Some((sge.l_key, Span { va, len }))
}

/// Visits the elements of a list that hold `len` bytes from its byte `offset` on, each cut to what
/// belongs to them. Those before are passed over by their lengths alone: of a list of 32 that is
/// less work than keeping an index of it.
fn elements(
    sges: SgeList<'_>,
    offset: u32,
    len: u64,
    mut visit: impl FnMut(LKey, Span) -> Result<(), KeyViolation>,
) -> Result<(), KeyViolation> {
    let mut skip = u64::from(offset);
    let mut left = len;
    for sge in sges.iter() {
        if left == 0 {
            return Ok(());
        }
        let have = u64::from(sge.len);
        if skip >= have {
            skip -= have;
            continue;
        }
        let va = sge.va.checked_add(skip).ok_or(KeyViolation::OutsideRegion)?;
        let span = Span { va, len: left.min(have - skip) };
        visit(sge.l_key, span)?;
        left -= span.len;
        skip = 0;
    }
    if left == 0 { Ok(()) } else { Err(KeyViolation::OutsideRegion) }
}

/// Two pieces that follow each other in memory go to, or come from, two pieces of a packet.
fn read<H: HostMemory>(host: &H, from: HostPlace, to: [&mut [u8]; 2]) -> Result<(), MemoryGone> {
    let mut offset = from.offset;
    for piece in to.into_iter().filter(|piece| !piece.is_empty()) {
        host.read(from.region, offset, piece)?;
        offset = offset.saturating_add(piece.len() as u64);
    }
    Ok(())
}

fn write<H: HostMemory>(host: &mut H, to: HostPlace, from: [&[u8]; 2]) -> Result<(), MemoryGone> {
    let mut offset = to.offset;
    for piece in from.into_iter().filter(|piece| !piece.is_empty()) {
        host.write(to.region, offset, piece)?;
        offset = offset.saturating_add(piece.len() as u64);
    }
    Ok(())
}

/// Takes `len` bytes off the front of two pieces that follow each other.
fn front<'a>(pieces: &mut [&'a [u8]; 2], len: u64) -> [&'a [u8]; 2] {
    let [first, second] = pieces;
    let of_first = first.len().min(len as usize);
    let of_second = second.len().min(len as usize - of_first);
    [
        first.split_off(..of_first).unwrap_or_default(),
        second.split_off(..of_second).unwrap_or_default(),
    ]
}

/// The same for pieces that can be written to.
fn front_mut<'a>(pieces: &mut [&'a mut [u8]; 2], len: u64) -> [&'a mut [u8]; 2] {
    let [first, second] = pieces;
    let of_first = first.len().min(len as usize);
    let of_second = second.len().min(len as usize - of_first);
    [
        first.split_off_mut(..of_first).unwrap_or_default(),
        second.split_off_mut(..of_second).unwrap_or_default(),
    ]
}
