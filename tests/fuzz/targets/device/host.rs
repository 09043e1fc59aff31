//! Memory that remembers who touched what.
//!
//! The device cannot reach bytes but through here, so that what is written down is all it did.

use std::cell::RefCell;

use roxe_device::{HostMemory, HostRegion, MemoryGone};

/// What was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Touch {
    Read,
    Write,
    Modify,
    Flush,
}

/// One call.
#[derive(Clone, Debug)]
pub struct Access {
    pub touch: Touch,
    pub region: HostRegion,
    pub offset: u64,
    pub len: u64,
    /// What was read.
    pub bytes: Vec<u8>,
}

/// Regions by number; one that is released stays so.
#[derive(Debug, Default)]
pub struct Guarded {
    regions: Vec<Region>,
    log: RefCell<Vec<Access>>,
}

#[derive(Debug)]
struct Region {
    bytes: Vec<u8>,
    /// The device has it, and must give it back once.
    lent: bool,
    /// The application took the memory away below the device.
    lost: bool,
}

impl Guarded {
    pub fn add(&mut self, len: usize) -> HostRegion {
        let number = self.regions.len() as u32;
        let bytes = (0..len).map(|at| number as u8 ^ at as u8).collect();
        self.regions.push(Region { bytes, lent: true, lost: false });
        HostRegion(number)
    }

    /// A registration was refused: the device must not have kept the memory.
    pub fn take_back(&mut self, region: HostRegion) {
        assert!(self.regions[region.0 as usize].lent, "refused, but released");
        self.regions[region.0 as usize].lent = false;
    }

    pub fn lose(&mut self, region: HostRegion) {
        self.regions[region.0 as usize].lost = true;
    }

    pub fn lent(&self) -> usize {
        self.regions.iter().filter(|region| region.lent).count()
    }

    pub fn is_lent(&self, region: HostRegion) -> bool {
        self.regions[region.0 as usize].lent
    }

    /// What happened since this was asked last.
    pub fn accesses(&self) -> Vec<Access> {
        self.log.take()
    }

    fn note(&self, touch: Touch, region: HostRegion, offset: u64, len: u64) {
        assert!(self.regions[region.0 as usize].lent, "{touch:?} of released {region:?}");
        let bytes = Vec::new();
        self.log.borrow_mut().push(Access { touch, region, offset, len, bytes });
    }

    fn range(&self, region: HostRegion, offset: u64, len: u64) -> Result<Range, MemoryGone> {
        let found = &self.regions[region.0 as usize];
        let end = offset.checked_add(len).filter(|end| *end <= found.bytes.len() as u64);
        match end {
            Some(end) if !found.lost => Ok(offset as usize..end as usize),
            _ => Err(MemoryGone),
        }
    }
}

type Range = std::ops::Range<usize>;

impl HostMemory for Guarded {
    fn read(&self, region: HostRegion, offset: u64, into: &mut [u8]) -> Result<(), MemoryGone> {
        self.note(Touch::Read, region, offset, into.len() as u64);
        let range = self.range(region, offset, into.len() as u64)?;
        into.copy_from_slice(&self.regions[region.0 as usize].bytes[range]);
        self.log.borrow_mut().last_mut().expect("noted").bytes = into.to_vec();
        Ok(())
    }

    fn write(&mut self, region: HostRegion, offset: u64, from: &[u8]) -> Result<(), MemoryGone> {
        self.note(Touch::Write, region, offset, from.len() as u64);
        let range = self.range(region, offset, from.len() as u64)?;
        self.regions[region.0 as usize].bytes[range].copy_from_slice(from);
        Ok(())
    }

    fn fetch_modify(
        &mut self,
        region: HostRegion,
        offset: u64,
        change: &mut dyn FnMut(u64) -> Option<u64>,
    ) -> Result<u64, MemoryGone> {
        self.note(Touch::Modify, region, offset, 8);
        let range = self.range(region, offset, 8)?;
        if offset % 8 != 0 {
            return Err(MemoryGone);
        }
        let bytes = &mut self.regions[region.0 as usize].bytes[range];
        let bytes: &mut [u8; 8] = bytes.try_into().expect("eight");
        let old = u64::from_ne_bytes(*bytes);
        if let Some(new) = change(old) {
            *bytes = new.to_ne_bytes();
        }
        Ok(old)
    }

    fn flush(
        &mut self,
        region: HostRegion,
        offset: u64,
        len: u64,
        _persistent: bool,
    ) -> Result<(), MemoryGone> {
        self.note(Touch::Flush, region, offset, len);
        Ok(())
    }

    fn write_digest(
        &mut self,
        region: HostRegion,
        offset: u64,
        len: u64,
        _digest: u32,
    ) -> Result<(), MemoryGone> {
        self.note(Touch::Write, region, offset, len);
        self.range(region, offset, len).map(|_| ())
    }

    fn release(&mut self, region: HostRegion) {
        let found = &mut self.regions[region.0 as usize];
        assert!(found.lent, "{region:?} is given back twice");
        found.lent = false;
    }
}
