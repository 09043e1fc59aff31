//! Regions and windows.

use roxe_wire::{LKey, RKey};

use super::VerbError;
use crate::device::Device;
use crate::host_memory::{HostMemory, HostRegion};
use crate::memory::{Changes, Registration, WindowType};
use crate::protection_domain::Pd;

impl<H: HostMemory> Device<H> {
    /// `ibv_reg_mr`. The key is L_Key and R_Key.
    ///
    /// # Errors
    /// [`VerbError::Invalid`], [`VerbError::Pd`], [`VerbError::Memory`].
    pub fn register_memory(&mut self, what: &Registration) -> Result<LKey, VerbError> {
        self.check_region_len(what.len)?;
        self.in_domain(what.pd, |tables| Ok(tables.memory.register(what)?))
    }

    const fn check_region_len(&self, len: u64) -> Result<(), VerbError> {
        if len <= self.limits.max_mr_size { Ok(()) } else { Err(VerbError::Invalid("length")) }
    }

    /// A region that a work request will make valid: `ib_alloc_mr`.
    ///
    /// # Errors
    /// [`VerbError::Invalid`], [`VerbError::Pd`], [`VerbError::Memory`].
    pub fn alloc_fast_memory(
        &mut self,
        pd: Pd,
        host: HostRegion,
        max_len: u64,
    ) -> Result<LKey, VerbError> {
        if max_len > self.limits.max_fast_register_len {
            return Err(VerbError::Invalid("max_len"));
        }
        self.in_domain(pd, |tables| Ok(tables.memory.alloc_fast(pd, host, max_len)?))
    }

    /// `ibv_rereg_mr`. Gives back the memory that is not registered any more.
    ///
    /// # Errors
    /// [`VerbError::Invalid`], [`VerbError::Pd`], [`VerbError::Memory`]; then nothing has changed.
    pub fn reregister_memory(&mut self, key: LKey, changes: &Changes) -> Result<(), VerbError> {
        if let Some((.., len)) = changes.range {
            self.check_region_len(len)?;
        }
        if let Some(pd) = changes.pd {
            self.tables.pds.acquire(pd)?;
        }
        let old_pd = self.tables.memory.pd_of(key);
        match self.tables.memory.reregister(key, changes) {
            Ok(left) => {
                if let (Some(_), Some(old)) = (changes.pd, old_pd) {
                    self.tables.pds.release(old);
                }
                if let Some(left) = left {
                    self.tables.host.release(left);
                }
                Ok(())
            }
            Err(error) => {
                if let Some(pd) = changes.pd {
                    self.tables.pds.release(pd);
                }
                Err(error.into())
            }
        }
    }

    /// `ibv_dereg_mr`.
    ///
    /// # Errors
    /// [`VerbError::Memory`]; also while windows are bound to it.
    pub fn deregister_memory(&mut self, key: LKey) -> Result<(), VerbError> {
        let left = self.tables.memory.deregister(key)?;
        self.tables.pds.release(left.pd);
        self.tables.host.release(left.host);
        Ok(())
    }

    /// `ibv_alloc_mw`.
    ///
    /// # Errors
    /// [`VerbError::Pd`], [`VerbError::Memory`].
    pub fn alloc_window(&mut self, pd: Pd, kind: WindowType) -> Result<RKey, VerbError> {
        self.in_domain(pd, |tables| Ok(tables.memory.alloc_window(pd, kind)?))
    }

    /// `ibv_dealloc_mw`.
    ///
    /// # Errors
    /// [`VerbError::Memory`].
    pub fn dealloc_window(&mut self, key: RKey) -> Result<(), VerbError> {
        let pd = self.tables.memory.dealloc_window(key)?;
        self.tables.pds.release(pd);
        Ok(())
    }
}
