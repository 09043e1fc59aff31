//! Memory regions and windows.

use std::sync::Arc;

use roxe_device::memory::{Changes, Registration, WindowType};
use roxe_device::{HostMemory as _, HostRegion, VerbError};
use roxe_transport::work::{
    AccessFlags, Binding, LocalOperation, Remote, SendOperation, Sge, Span,
};
use roxe_wire::{LKey, RKey};

use crate::error::Error;
use crate::protection_domain::ProtectionDomain;
use crate::registered_memory::RegisteredMemory;

/// Registered memory: `ibv_mr`. Clones are the same region; it is deregistered when the last one
/// is gone, or with the last window bound to it.
#[derive(Clone)]
pub struct MemoryRegion {
    inner: Arc<Region>,
}

struct Region {
    domain: ProtectionDomain,
    key: LKey,
    va: u64,
    len: u64,
    zero_based: bool,
}

impl MemoryRegion {
    pub(crate) fn register(
        domain: &ProtectionDomain,
        va: u64,
        len: u64,
        access: AccessFlags,
        add: impl FnOnce(&mut RegisteredMemory) -> HostRegion,
    ) -> Result<Self, Error> {
        let pd = domain.pd();
        let key = domain.context().with(|driver| {
            let host = add(driver.device.host_mut());
            let registration = Registration { pd, host, va, len, access };
            let registered = driver.device.register_memory(&registration);
            registered.inspect_err(|_| driver.device.host_mut().release(host))
        })?;
        let zero_based = access.contain(AccessFlags::ZERO_BASED);
        let va = if zero_based { 0 } else { va };
        let domain = domain.clone();
        Ok(Self { inner: Arc::new(Region { domain, key, va, len, zero_based }) })
    }

    /// Where it begins, as work requests and peers count: 0 if it is zero-based.
    pub fn address(&self) -> u64 {
        self.inner.va
    }

    /// Bytes.
    pub fn len(&self) -> u64 {
        self.inner.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.inner.len == 0
    }

    /// What own requests name it by.
    pub fn l_key(&self) -> LKey {
        self.inner.key
    }

    /// What a peer names it by.
    pub fn r_key(&self) -> RKey {
        RKey(self.inner.key.0)
    }

    /// `len` bytes from `offset` on.
    pub fn sge(&self, offset: u64, len: u32) -> Sge {
        let Region { key, va, .. } = &*self.inner;
        Sge { va: va.wrapping_add(offset), len, l_key: *key }
    }

    /// What a peer has to name to reach the bytes from `offset` on.
    pub fn remote(&self, offset: u64) -> Remote {
        Remote { va: self.inner.va.wrapping_add(offset), r_key: self.r_key() }
    }

    /// Other rights under the same key: `ibv_rereg_mr` with `IBV_REREG_MR_CHANGE_ACCESS`.
    ///
    /// # Errors
    /// [`Error::Verb`], also while windows are bound to it, and when addresses would count from
    /// elsewhere than now; then nothing has changed.
    pub fn change_access(&self, access: AccessFlags) -> Result<(), Error> {
        let Region { domain, key, zero_based, .. } = &*self.inner;
        if access.contain(AccessFlags::ZERO_BASED) != *zero_based {
            return Err(VerbError::Invalid("access").into());
        }
        let changes = Changes { access: Some(access), ..Changes::default() };
        Ok(domain.context().with(|driver| driver.device.reregister_memory(*key, &changes))?)
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        self.domain.context().deregister(Some(self.key));
    }
}

/// A memory window: `ibv_mw`. A region's bytes, opened to peers by a request and closed by another.
pub struct MemoryWindow {
    domain: ProtectionDomain,
    kind: WindowType,
    key: RKey,
}

impl MemoryWindow {
    pub(crate) fn alloc(domain: &ProtectionDomain, kind: WindowType) -> Result<Self, Error> {
        let pd = domain.pd();
        let key = domain.context().with(|driver| driver.device.alloc_window(pd, kind))?;
        Ok(Self { domain: domain.clone(), kind, key })
    }

    /// What a peer names it by, once the last [`MemoryWindow::bind`] is completed.
    pub const fn r_key(&self) -> RKey {
        self.key
    }

    /// The request that opens the window over `len` bytes at `offset` of a region, and gives it
    /// another key: `ibv_bind_mw`, `IBV_WR_BIND_MW`. Post it.
    pub fn bind(
        &mut self,
        region: &MemoryRegion,
        offset: u64,
        len: u64,
        access: AccessFlags,
    ) -> SendOperation {
        let window = self.key;
        // The low byte is the application's; a key used a moment ago shall not come back at once.
        let new_key = RKey(window.0 & !0xff | window.0.wrapping_add(1) & 0xff);
        self.key = new_key;
        let span = Span { va: region.address().wrapping_add(offset), len };
        let what = Binding { window, new_key, region: region.l_key(), span, access };
        SendOperation::Local(LocalOperation::BindWindow(what))
    }

    /// Which rules it follows.
    pub const fn kind(&self) -> WindowType {
        self.kind
    }
}

impl Drop for MemoryWindow {
    fn drop(&mut self) {
        let context = self.domain.context();
        // Its key's low byte is that of the last bind that succeeded, whichever that was.
        let keys = (0..=u8::MAX).map(|byte| RKey(self.key.0 ^ u32::from(byte)));
        context.with(|driver| {
            keys.into_iter().find(|&key| driver.device.dealloc_window(key).is_ok());
        });
        context.deregister(None);
    }
}
