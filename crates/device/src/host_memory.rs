//! The bytes behind registered regions.
//!
//! The engine never holds an address of the application's memory. It knows a region by the number
//! that the implementer of [`HostMemory`] gave it, and a place by the offset in that region. In
//! production raw pointers stand behind the numbers, in tests and simulations vectors, in
//! simulations without payload only lengths and digests. Keys, rights and ranges have been checked
//! before a call comes here, but whether the memory still exists only this floor can say.

use core::fmt;

use roxe_wire::digest;

/// Names registered memory to the implementer of [`HostMemory`], which chose the number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostRegion(pub u32);

/// The memory is not there: the region was released, is shorter than was said when it was
/// registered, or cannot be accessed in this way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryGone;

impl fmt::Display for MemoryGone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the memory is not there")
    }
}

impl core::error::Error for MemoryGone {}

/// Bytes behind registered regions. Nothing here may panic, whatever it is asked.
pub trait HostMemory {
    /// Copies bytes from the region's `offset` on. The application may write to them meanwhile;
    /// then any mixture may be read.
    ///
    /// # Errors
    /// [`MemoryGone`]; the contents of `into` are then unspecified.
    fn read(&self, region: HostRegion, offset: u64, into: &mut [u8]) -> Result<(), MemoryGone>;

    /// Copies bytes to the region's `offset` and on.
    ///
    /// # Errors
    /// [`MemoryGone`]; part may have been written.
    fn write(&mut self, region: HostRegion, offset: u64, from: &[u8]) -> Result<(), MemoryGone>;

    /// Replaces eight bytes, read as a number in the order of this machine, by what `change` makes
    /// of it; by nothing where it gives `None`. Gives the number that stood there. No other atomic
    /// of this device and none of the application's comes between; `change` may be called again
    /// when one tried to.
    ///
    /// # Errors
    /// [`MemoryGone`], also when the eight bytes do not lie at a multiple of 8 of the host's own
    /// addresses.
    fn fetch_modify(
        &mut self,
        region: HostRegion,
        offset: u64,
        change: &mut dyn FnMut(u64) -> Option<u64>,
    ) -> Result<u64, MemoryGone>;

    /// Writes eight bytes so that nobody sees some of them old and some new, if they lie at a
    /// multiple of 8 of the host's own addresses; else as [`HostMemory::write`], which is also what
    /// it does unless implemented.
    ///
    /// # Errors
    /// [`MemoryGone`].
    fn write_eight(
        &mut self,
        region: HostRegion,
        offset: u64,
        from: [u8; 8],
    ) -> Result<(), MemoryGone> {
        self.write(region, offset, &from)
    }

    /// Makes what was written before visible to all who read it, or persistent. Unless implemented,
    /// memory is taken to be visible always, and persistence to be the owner's promise.
    ///
    /// # Errors
    /// [`MemoryGone`].
    fn flush(
        &mut self,
        region: HostRegion,
        offset: u64,
        len: u64,
        persistent: bool,
    ) -> Result<(), MemoryGone> {
        let (_, _, _, _) = (region, offset, len, persistent);
        Ok(())
    }

    /// The digest ([`digest::of`]) of bytes that nobody wants to see. Unless implemented, they are
    /// read for it.
    ///
    /// # Errors
    /// [`MemoryGone`].
    fn digest(&self, region: HostRegion, offset: u64, len: u64) -> Result<u32, MemoryGone> {
        let mut room = [0; 512];
        let (mut at, mut left, mut whole) = (offset, len, digest::EMPTY);
        while left > 0 {
            let chunk = left.min(room.len() as u64);
            let bytes = &mut room[..chunk as usize];
            self.read(region, at, bytes)?;
            whole = digest::join(whole, digest::of(bytes), chunk);
            at = at.checked_add(chunk).ok_or(MemoryGone)?;
            left -= chunk;
        }
        Ok(whole)
    }

    /// Bytes were written of which only the digest is known. When a message lies in several places
    /// the first gets the digest as if zeros followed it, so that joining the digests of all gives
    /// the message's. Unless implemented, it only looks whether the last byte is there.
    ///
    /// # Errors
    /// [`MemoryGone`].
    fn write_digest(
        &mut self,
        region: HostRegion,
        offset: u64,
        len: u64,
        digest: u32,
    ) -> Result<(), MemoryGone> {
        let _ = digest;
        let Some(last) = len.checked_sub(1) else { return Ok(()) };
        let last = offset.checked_add(last).ok_or(MemoryGone)?;
        self.read(region, last, &mut [0])
    }

    /// The device will not ask for the region again: it was deregistered.
    fn release(&mut self, region: HostRegion);
}

/// Memory in vectors, for tests and simulations.
#[derive(Clone, Debug, Default)]
pub struct VecMemory {
    regions: Vec<Option<Vec<u8>>>,
}

impl VecMemory {
    /// No region.
    pub const fn new() -> Self {
        Self { regions: Vec::new() }
    }

    /// A region with these bytes.
    pub fn add(&mut self, bytes: Vec<u8>) -> HostRegion {
        self.regions.push(Some(bytes));
        HostRegion((self.regions.len() - 1) as u32)
    }

    /// All bytes of a region; `None` once it is released.
    pub fn bytes(&self, region: HostRegion) -> Option<&[u8]> {
        self.regions.get(region.0 as usize)?.as_deref()
    }

    /// The same, as the application writes to them.
    pub fn bytes_mut(&mut self, region: HostRegion) -> Option<&mut [u8]> {
        self.regions.get_mut(region.0 as usize)?.as_deref_mut()
    }

    fn range(offset: u64, len: usize) -> Result<core::ops::Range<usize>, MemoryGone> {
        let start = usize::try_from(offset).map_err(|_| MemoryGone)?;
        let end = start.checked_add(len).ok_or(MemoryGone)?;
        Ok(start..end)
    }

    fn at(&self, region: HostRegion, offset: u64, len: usize) -> Result<&[u8], MemoryGone> {
        let range = Self::range(offset, len)?;
        self.bytes(region).and_then(|bytes| bytes.get(range)).ok_or(MemoryGone)
    }

    fn at_mut(
        &mut self,
        region: HostRegion,
        offset: u64,
        len: usize,
    ) -> Result<&mut [u8], MemoryGone> {
        let range = Self::range(offset, len)?;
        self.bytes_mut(region).and_then(|bytes| bytes.get_mut(range)).ok_or(MemoryGone)
    }
}

impl HostMemory for VecMemory {
    fn read(&self, region: HostRegion, offset: u64, into: &mut [u8]) -> Result<(), MemoryGone> {
        into.copy_from_slice(self.at(region, offset, into.len())?);
        Ok(())
    }

    fn write(&mut self, region: HostRegion, offset: u64, from: &[u8]) -> Result<(), MemoryGone> {
        self.at_mut(region, offset, from.len())?.copy_from_slice(from);
        Ok(())
    }

    /// Regions begin at a multiple of 8.
    fn fetch_modify(
        &mut self,
        region: HostRegion,
        offset: u64,
        change: &mut dyn FnMut(u64) -> Option<u64>,
    ) -> Result<u64, MemoryGone> {
        if !offset.is_multiple_of(8) {
            return Err(MemoryGone);
        }
        let bytes = self.at_mut(region, offset, 8)?.first_chunk_mut().ok_or(MemoryGone)?;
        let old = u64::from_ne_bytes(*bytes);
        if let Some(new) = change(old) {
            *bytes = new.to_ne_bytes();
        }
        Ok(old)
    }

    fn release(&mut self, region: HostRegion) {
        if let Some(bytes) = self.regions.get_mut(region.0 as usize) {
            *bytes = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_there_up_to_the_last() {
        let mut memory = VecMemory::new();
        let region = memory.add(vec![0; 16]);
        assert_eq!(memory.write(region, 12, b"last"), Ok(()));
        assert_eq!(memory.write(region, 13, b"last"), Err(MemoryGone));
        assert_eq!(memory.write(region, u64::MAX, b"last"), Err(MemoryGone));
        let mut room = [0; 4];
        assert_eq!(memory.read(region, 12, &mut room), Ok(()));
        assert_eq!(&room, b"last");
        assert_eq!(memory.read(HostRegion(1), 0, &mut room), Err(MemoryGone));
        assert_eq!(memory.write_eight(region, 8, *b"eight by"), Ok(()));
        assert_eq!(memory.bytes(region), Some(&b"\0\0\0\0\0\0\0\0eight by"[..]));

        memory.release(region);
        memory.release(HostRegion(9));
        assert_eq!(memory.read(region, 0, &mut []), Err(MemoryGone));
        assert_eq!(memory.bytes(region), None);
    }

    #[test]
    fn atomics_work_on_aligned_numbers_of_this_machine() {
        let mut memory = VecMemory::new();
        let region = memory.add(vec![0; 16]);
        memory.bytes_mut(region).unwrap()[8..].copy_from_slice(&7u64.to_ne_bytes());
        assert_eq!(memory.fetch_modify(region, 8, &mut |n| Some(n + 1)), Ok(7));
        assert_eq!(memory.fetch_modify(region, 8, &mut |_| None), Ok(8));
        assert_eq!(memory.fetch_modify(region, 4, &mut |_| None), Err(MemoryGone));
        assert_eq!(memory.fetch_modify(region, 16, &mut |_| None), Err(MemoryGone));
    }

    #[test]
    fn digests_are_those_of_the_bytes() {
        let mut memory = VecMemory::new();
        let bytes: Vec<u8> = (0..1500u32).map(|n| n as u8).collect();
        let region = memory.add(bytes.clone());
        assert_eq!(memory.digest(region, 0, 1500), Ok(digest::of(&bytes)));
        assert_eq!(memory.digest(region, 3, 1024), Ok(digest::of(&bytes[3..1027])));
        assert_eq!(memory.digest(region, 0, 0), Ok(digest::EMPTY));
        assert_eq!(memory.digest(region, 1, 1500), Err(MemoryGone));
        assert_eq!(memory.write_digest(region, 1499, 1, 5), Ok(()));
        assert_eq!(memory.write_digest(region, 1499, 2, 5), Err(MemoryGone));
        assert_eq!(memory.write_digest(region, u64::MAX, 2, 5), Err(MemoryGone));
        assert_eq!(memory.write_digest(region, u64::MAX, 0, 5), Ok(()));
    }
}
