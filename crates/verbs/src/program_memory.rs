//! Memory regions of programs that know nothing of us: by address and length, and under the
//! addresses that they wish.
//!
//! Such a program may unmap what it has registered. Work that needs the memory then fails with an
//! error of its own, and the process goes on (see `guarded.rs`).

use roxe_device::memory::{Changes, Registration};
use roxe_device::{HostMemory as _, HostRegion};
use roxe_transport::work::AccessFlags;
use roxe_wire::{LKey, RKey};

use crate::driver::Driver;
use crate::error::Error;
use crate::protection_domain::ProtectionDomain;

/// Registered memory of a program: `ibv_mr`. It is deregistered when it is dropped.
pub struct ProgramRegion {
    domain: ProtectionDomain,
    key: LKey,
    /// It is registered no more.
    gone: bool,
}

/// Bytes of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProgramRange {
    /// The address of the first.
    pub start: u64,
    /// How many.
    pub len: u64,
    /// The address that work requests and peers use for the first.
    pub va: u64,
}

impl ProtectionDomain {
    /// Registers memory of the program that this library serves: `ibv_reg_mr_iova`. It need not be
    /// there when it is used.
    ///
    /// # Safety
    /// Until the region is dropped the adapter, and with remote rights a peer, reads and writes
    /// these bytes at any time, whatever the program has there.
    ///
    /// # Errors
    /// [`Error::Verb`], [`Error::System`]; then nothing was registered.
    pub unsafe fn register_program(
        &self,
        range: ProgramRange,
        access: AccessFlags,
    ) -> Result<ProgramRegion, Error> {
        let ProgramRange { start, len, va } = range;
        crate::guarded::prepare()?;
        let pd = self.pd();
        let key = self.context().with(|driver| {
            let host = add(driver, start, len);
            let registration = Registration { pd, host, va, len, access };
            let registered = driver.device.register_memory(&registration);
            registered.inspect_err(|_| driver.device.host_mut().release(host))
        })?;
        Ok(ProgramRegion { domain: self.clone(), key, gone: false })
    }
}

fn add(driver: &mut Driver, start: u64, len: u64) -> HostRegion {
    // SAFETY: who registers it has promised what is asked for.
    unsafe { driver.device.host_mut().add_program(start, len) }
}

impl ProgramRegion {
    /// What own requests name it by.
    pub const fn l_key(&self) -> LKey {
        self.key
    }

    /// What a peer names it by.
    pub const fn r_key(&self) -> RKey {
        RKey(self.key.0)
    }

    /// Other bytes, another domain, other rights, or some of these, under the same key:
    /// `ibv_rereg_mr`.
    ///
    /// # Safety
    /// As [`ProtectionDomain::register_program`].
    ///
    /// # Errors
    /// [`Error::Verb`], also while windows are bound to it; [`Error::OtherAdapter`]. Then nothing
    /// has changed.
    pub unsafe fn change(
        &mut self,
        range: Option<ProgramRange>,
        domain: Option<&ProtectionDomain>,
        access: Option<AccessFlags>,
    ) -> Result<(), Error> {
        let context = self.domain.context();
        if domain.is_some_and(|domain| !domain.context().is(context)) {
            return Err(Error::OtherAdapter);
        }
        context.with(|driver| {
            let host = range.map(|it| (add(driver, it.start, it.len), it.va, it.len));
            let changes = Changes { pd: domain.map(ProtectionDomain::pd), access, range: host };
            let done = driver.device.reregister_memory(self.key, &changes);
            done.inspect_err(|_| {
                if let Some((host, ..)) = host {
                    driver.device.host_mut().release(host);
                }
            })
        })?;
        if let Some(domain) = domain {
            self.domain = domain.clone();
        }
        Ok(())
    }

    /// Deregisters it: `ibv_dereg_mr`.
    ///
    /// # Errors
    /// The region, and [`Error::Verb`]: windows are bound to it.
    pub fn deregister(mut self) -> Result<(), (Self, Error)> {
        let key = self.key;
        match self.domain.context().with(|driver| driver.device.deregister_memory(key)) {
            Ok(()) => {
                self.gone = true;
                Ok(())
            }
            Err(error) => Err((self, error.into())),
        }
    }
}

impl Drop for ProgramRegion {
    fn drop(&mut self) {
        if !self.gone {
            self.domain.context().deregister(Some(self.key));
        }
    }
}
