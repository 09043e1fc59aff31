//! Protection domains: which queue pairs may use which memory. What belongs to one is made here.

use std::sync::Arc;

use roxe_device::VerbError;
use roxe_device::address_handle::AddressVector;
use roxe_device::memory::WindowType;
use roxe_device::protection_domain::Pd;
use roxe_transport::qp_state::ServiceType;
use roxe_transport::work::AccessFlags;
use roxe_wire::Grh;

use crate::address_handle::{AddressHandle, to_sender};
use crate::completion_queue::CompletionQueue;
use crate::context::Context;
use crate::error::Error;
use crate::memory_region::{MemoryRegion, MemoryWindow};
use crate::queue_pair::QueuePairBuilder;
use crate::registered_memory::Buffer;
use crate::shared_receive_queue::SharedReceiveQueue;

/// A protection domain: `ibv_pd`. Clones are the same domain; it goes when nothing belongs to it
/// any more.
#[derive(Clone)]
pub struct ProtectionDomain {
    inner: Arc<Inner>,
}

struct Inner {
    context: Context,
    pd: Pd,
    /// Whether the domain goes with this.
    own: bool,
}

impl ProtectionDomain {
    pub(crate) fn alloc(context: &Context) -> Result<Self, Error> {
        let pd = context.with(|driver| driver.device.alloc_pd())?;
        Ok(Self { inner: Arc::new(Inner { context: context.clone(), pd, own: true }) })
    }

    /// A domain that stays.
    pub(crate) fn of(context: &Context, pd: Pd) -> Self {
        Self { inner: Arc::new(Inner { context: context.clone(), pd, own: false }) }
    }

    /// The adapter.
    pub fn context(&self) -> &Context {
        &self.inner.context
    }

    pub(crate) fn pd(&self) -> Pd {
        self.inner.pd
    }

    /// Registers a buffer, which lives on as long as it is registered: `ibv_reg_mr`.
    ///
    /// # Errors
    /// [`Error::Verb`].
    pub fn register(
        &self,
        buffer: &Arc<Buffer>,
        access: AccessFlags,
    ) -> Result<MemoryRegion, Error> {
        let (va, len) = (buffer.address(), buffer.len() as u64);
        MemoryRegion::register(self, va, len, access, |memory| memory.add(buffer))
    }

    /// Registers memory of the application's own: `ibv_reg_mr`.
    ///
    /// # Safety
    /// `len` bytes from `start` on stay valid for reads and, with any right to write, for writes
    /// until the last clone of the region *and every window bound to it* are dropped; an operation
    /// that is awaited has a clone until it is done. Meanwhile the adapter, and with remote rights
    /// a peer, reads and writes them at any time: nobody may hold a reference to bytes that posted
    /// work or a peer may touch then, only raw pointers and atomics.
    ///
    /// # Errors
    /// [`Error::Verb`]; then nothing was registered.
    pub unsafe fn register_raw(
        &self,
        start: *mut u8,
        len: usize,
        access: AccessFlags,
    ) -> Result<MemoryRegion, Error> {
        let (va, bytes) = (start.addr() as u64, len as u64);
        // SAFETY: the caller promises more than `add_raw` asks for.
        let add = |memory: &mut crate::RegisteredMemory| unsafe { memory.add_raw(start, len) };
        MemoryRegion::register(self, va, bytes, access, add)
    }

    /// A memory window, bound to nothing yet: `ibv_alloc_mw`.
    ///
    /// # Errors
    /// [`Error::Verb`].
    pub fn alloc_mw(&self, kind: WindowType) -> Result<MemoryWindow, Error> {
        MemoryWindow::alloc(self, kind)
    }

    /// A queue pair whose requests of both queues complete in `cq`: `ibv_create_qp`. What it is
    /// like beyond that is said to the builder.
    pub fn create_qp<'a>(
        &'a self,
        service: ServiceType,
        cq: &'a CompletionQueue,
    ) -> QueuePairBuilder<'a> {
        QueuePairBuilder::new(self, service, cq)
    }

    /// A shared receive queue for `depth` requests of up to `max_sge` elements: `ibv_create_srq`.
    ///
    /// # Errors
    /// [`Error::Verb`].
    pub fn create_srq(&self, depth: u32, max_sge: u32) -> Result<SharedReceiveQueue, Error> {
        SharedReceiveQueue::create(self, depth, max_sge)
    }

    /// Where datagrams may go: `ibv_create_ah`. May take seconds, until the peer's link address is
    /// known.
    ///
    /// # Errors
    /// [`Error`]: there is no way to the peer, or [`Error::Verb`].
    pub fn create_ah(&self, vector: &AddressVector) -> Result<AddressHandle, Error> {
        AddressHandle::create(self, vector)
    }

    /// Where the sender of a datagram is, to answer it: `ibv_create_ah_from_wc`. The area is that
    /// before the datagram, the first 40 bytes of its receive's memory.
    ///
    /// # Errors
    /// [`Error::NoSender`]; else as [`ProtectionDomain::create_ah`].
    pub fn create_ah_from(&self, area: &Grh) -> Result<AddressHandle, Error> {
        AddressHandle::create(self, &to_sender(&self.context().gids(), area)?)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.own {
            let gone: Result<(), VerbError> =
                self.context.with(|driver| driver.device.dealloc_pd(self.pd));
            debug_assert!(gone.is_ok(), "what belongs to a domain keeps it");
        }
    }
}
