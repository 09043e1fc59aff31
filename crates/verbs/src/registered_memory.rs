//! The application's memory as the engine reaches it. The only raw pointers of this crate.
//!
//! Memory of programs that know nothing of us (see `program_memory.rs`) may even have gone.
//!
//! An adapter reads and writes memory while the application runs; nobody can stop an application
//! from touching a buffer at the same time. As on hardware, what it then sees is a mixture of old
//! and new bytes. Copies here are made with raw pointers, never through references to the
//! application's memory, so that no reference claims what is not true.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use roxe_device::{HostMemory, HostRegion, MemoryGone};

use crate::guarded::{self, Fault};

/// Memory that lives at least as long as its registration.
#[derive(Debug)]
struct Registered {
    start: *mut u8,
    len: usize,
    owner: Owner,
}

/// Who keeps memory alive.
#[derive(Debug)]
enum Owner {
    /// We do.
    Buffer { _alive: Arc<Buffer> },
    /// The application does, as it promised.
    Application,
    /// Nobody has promised it.
    Program,
}

impl From<Fault> for MemoryGone {
    fn from(_: Fault) -> Self {
        Self
    }
}

// SAFETY: the pointer is used only under the engine's lock, and the memory behind it stays valid
// whichever thread holds that lock: `Buffer` is owned, and `RegisteredMemory::add_raw` has the
// caller promise it.
unsafe impl Send for Registered {}

/// A buffer that safe code may register: fixed in memory, its bytes reached by copies only.
#[derive(Debug)]
pub struct Buffer {
    /// Somewhere in the first page of what was allocated.
    start: *mut u8,
    len: usize,
    allocated: *mut u8,
}

// SAFETY: all access to the bytes goes through raw copies; see the module's documentation for what
// concurrent access means.
unsafe impl Send for Buffer {}
// SAFETY: as above.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// A buffer of `len` zero bytes, aligned to a page, all of them in memory from the start: no
    /// packet waits for that. Without room for it the process ends: see
    /// [`try_new`](Self::try_new).
    pub fn new(len: usize) -> Arc<Self> {
        let layout = Self::layout(len).expect("no memory is that large");
        let buffer = Self::try_new(len).unwrap_or_else(|| handle_alloc_error(layout));
        for at in (0..len).step_by(PAGE) {
            // SAFETY: within the buffer, which nobody else has yet.
            unsafe { buffer.start.add(at).write_volatile(0) };
        }
        buffer
    }

    /// The same, of which the system gives what is used when it is; nothing where there is no room.
    pub fn try_new(len: usize) -> Option<Arc<Self>> {
        let layout = Self::layout(len)?;
        // SAFETY: a page at least.
        let allocated = unsafe { alloc_zeroed(layout) };
        let aligned = allocated.addr().next_multiple_of(PAGE);
        let start = allocated.wrapping_add(aligned - allocated.addr());
        (!allocated.is_null()).then(|| Arc::new(Self { start, len, allocated }))
    }

    /// With a page more than it has, in which it begins: what the allocator aligns it also writes.
    fn layout(len: usize) -> Option<Layout> {
        Layout::array::<u8>(len.checked_add(PAGE)?).ok()
    }

    /// Where it begins.
    pub fn address(&self) -> u64 {
        self.start.addr() as u64
    }

    /// Bytes.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies bytes from `offset` on.
    ///
    /// # Panics
    /// When the range lies outside of the buffer.
    pub fn read(&self, offset: usize, into: &mut [u8]) {
        assert!(self.holds(offset, into.len()), "range outside of the buffer");
        // SAFETY: the range was checked, and `into` is memory of its own.
        unsafe { self.start.add(offset).copy_to_nonoverlapping(into.as_mut_ptr(), into.len()) }
    }

    /// Copies bytes to `offset` and on.
    ///
    /// # Panics
    /// When the range lies outside of the buffer.
    pub fn write(&self, offset: usize, from: &[u8]) {
        assert!(self.holds(offset, from.len()), "range outside of the buffer");
        // SAFETY: the range was checked, and `from` is memory of its own.
        unsafe { self.start.add(offset).copy_from_nonoverlapping(from.as_ptr(), from.len()) }
    }

    const fn holds(&self, offset: usize, len: usize) -> bool {
        match offset.checked_add(len) {
            Some(end) => end <= self.len,
            None => false,
        }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(layout) = Self::layout(self.len) {
            // SAFETY: it was allocated so.
            unsafe { dealloc(self.allocated, layout) }
        }
    }
}

const PAGE: usize = 4096;

/// All memory that is registered with a device.
#[derive(Debug, Default)]
pub struct RegisteredMemory {
    regions: Vec<Option<Registered>>,
    free: Vec<u32>,
}

impl RegisteredMemory {
    /// Registers a buffer, which lives on as long as it is registered.
    pub fn add(&mut self, buffer: &Arc<Buffer>) -> HostRegion {
        let (start, len) = (buffer.start, buffer.len);
        self.insert(Registered { start, len, owner: Owner::Buffer { _alive: Arc::clone(buffer) } })
    }

    /// Registers memory of the application's own.
    ///
    /// # Safety
    /// `len` bytes from `start` on stay valid for reads and writes until the device has released
    /// the region. Nobody holds a reference to them while work that uses them is posted.
    pub unsafe fn add_raw(&mut self, start: *mut u8, len: usize) -> HostRegion {
        self.insert(Registered { start, len, owner: Owner::Application })
    }

    /// Registers memory of a program, which may unmap it. Whoever does has called
    /// [`guarded::prepare`].
    ///
    /// # Safety
    /// Until the device has released the region, these bytes are read and written, whatever is
    /// there.
    pub(crate) unsafe fn add_program(&mut self, start: u64, len: u64) -> HostRegion {
        let start = std::ptr::with_exposed_provenance_mut(start as usize);
        self.insert(Registered { start, len: len as usize, owner: Owner::Program })
    }

    fn insert(&mut self, region: Registered) -> HostRegion {
        match self.free.pop() {
            Some(index) => {
                self.regions[index as usize] = Some(region);
                HostRegion(index)
            }
            None => {
                self.regions.push(Some(region));
                HostRegion(u32::try_from(self.regions.len() - 1).unwrap_or(u32::MAX))
            }
        }
    }

    /// The first of `len` bytes from `offset` on, and whether they may have gone.
    fn place(
        &self,
        region: HostRegion,
        offset: u64,
        len: usize,
    ) -> Result<(*mut u8, bool), MemoryGone> {
        let region = self.regions.get(region.0 as usize).and_then(Option::as_ref);
        let region = region.ok_or(MemoryGone)?;
        let offset = usize::try_from(offset).map_err(|_| MemoryGone)?;
        let end = offset.checked_add(len).ok_or(MemoryGone)?;
        if end > region.len {
            return Err(MemoryGone);
        }
        // The offset lies within the registered memory, or one past its end.
        Ok((region.start.wrapping_add(offset), matches!(region.owner, Owner::Program)))
    }
}

impl HostMemory for RegisteredMemory {
    fn read(&self, region: HostRegion, offset: u64, into: &mut [u8]) -> Result<(), MemoryGone> {
        let (from, may_be_gone) = self.place(region, offset, into.len())?;
        if may_be_gone {
            // SAFETY: `into` is frame memory, and whoever registered the rest allows it.
            return Ok(unsafe { guarded::copy(into.as_mut_ptr(), from, into.len()) }?);
        }
        // SAFETY: `place` has checked the range; `into` is frame memory, not the application's.
        unsafe { from.copy_to_nonoverlapping(into.as_mut_ptr(), into.len()) };
        Ok(())
    }

    fn write(&mut self, region: HostRegion, offset: u64, from: &[u8]) -> Result<(), MemoryGone> {
        let (to, may_be_gone) = self.place(region, offset, from.len())?;
        if may_be_gone {
            // SAFETY: `from` is frame memory, and whoever registered the rest allows it.
            return Ok(unsafe { guarded::copy(to, from.as_ptr(), from.len()) }?);
        }
        // SAFETY: `place` has checked the range; `from` is frame memory, not the application's.
        unsafe { to.copy_from_nonoverlapping(from.as_ptr(), from.len()) };
        Ok(())
    }

    fn fetch_modify(
        &mut self,
        region: HostRegion,
        offset: u64,
        change: &mut dyn FnMut(u64) -> Option<u64>,
    ) -> Result<u64, MemoryGone> {
        let (place, may_be_gone) = self.place(region, offset, 8)?;
        let place = place.cast::<u64>();
        if !place.is_aligned() {
            return Err(MemoryGone);
        }
        if may_be_gone {
            // SAFETY: eight bytes, checked and aligned, and whoever registered them allows it.
            let mut found = unsafe { guarded::load(place) }?;
            while let Some(new) = change(found) {
                // SAFETY: as above.
                match unsafe { guarded::swap(place, found, new) }? {
                    Ok(()) => break,
                    Err(other) => found = other,
                }
            }
            return Ok(found);
        }
        // SAFETY: eight bytes, checked and aligned; the application may only use atomics on them
        // meanwhile, as with any adapter.
        let value = unsafe { AtomicU64::from_ptr(place) };
        match value.fetch_update(Ordering::SeqCst, Ordering::SeqCst, change) {
            Ok(found) | Err(found) => Ok(found),
        }
    }

    fn write_eight(
        &mut self,
        region: HostRegion,
        offset: u64,
        from: [u8; 8],
    ) -> Result<(), MemoryGone> {
        let (place, may_be_gone) = self.place(region, offset, 8)?;
        let place = place.cast::<u64>();
        if !place.is_aligned() {
            return self.write(region, offset, &from);
        }
        let new = u64::from_ne_bytes(from);
        if may_be_gone {
            // SAFETY: as in `fetch_modify`.
            return Ok(unsafe { guarded::store(place, new) }?);
        }
        // SAFETY: as in `fetch_modify`.
        let value = unsafe { AtomicU64::from_ptr(place) };
        value.store(new, Ordering::SeqCst);
        Ok(())
    }

    fn release(&mut self, region: HostRegion) {
        if let Some(slot) = self.regions.get_mut(region.0 as usize)
            && slot.take().is_some()
        {
            self.free.push(region.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_ends_where_its_buffer_ends() {
        let buffer = Buffer::new(10);
        let mut memory = RegisteredMemory::default();
        let region = memory.add(&buffer);
        memory.write(region, 2, b"12345678").unwrap();
        assert_eq!(memory.write(region, 3, b"12345678"), Err(MemoryGone));
        assert_eq!(memory.write(region, u64::MAX, b"1"), Err(MemoryGone));
        let mut bytes = [0; 10];
        buffer.read(0, &mut bytes);
        assert_eq!(&bytes, b"\0\x0012345678");
        drop(buffer);
        let mut bytes = [0; 3];
        memory.read(region, 7, &mut bytes).unwrap();
        assert_eq!(&bytes, b"678");
        memory.release(region);
        assert_eq!(memory.read(region, 0, &mut bytes), Err(MemoryGone));
        memory.release(region);
    }

    #[test]
    fn a_buffer_is_aligned_to_a_page_and_zero() {
        for len in [0, 1, PAGE, PAGE + 1, 1 << 20] {
            let buffer = Buffer::new(len);
            assert_eq!((buffer.address() % PAGE as u64, buffer.len()), (0, len));
            let mut bytes = vec![1; len];
            buffer.read(0, &mut bytes);
            assert!(bytes.iter().all(|&byte| byte == 0));
            buffer.write(0, &bytes);
        }
        assert!(Buffer::try_new(usize::MAX).is_none());
        assert!(Buffer::try_new(1 << 62).is_none());
    }

    #[test]
    fn atomics_need_alignment() {
        let buffer = Buffer::new(16);
        let mut memory = RegisteredMemory::default();
        let region = memory.add(&buffer);
        let mut add = |found: u64| Some(found + 5);
        assert_eq!(memory.fetch_modify(region, 8, &mut add), Ok(0));
        assert_eq!(memory.fetch_modify(region, 8, &mut add), Ok(5));
        assert_eq!(memory.fetch_modify(region, 4, &mut add), Err(MemoryGone));
        memory.write_eight(region, 8, 7u64.to_ne_bytes()).unwrap();
        assert_eq!(memory.fetch_modify(region, 8, &mut |_| None), Ok(7));
    }
}
