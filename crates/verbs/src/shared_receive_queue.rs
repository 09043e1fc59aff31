//! Shared receive queues.

use std::sync::Arc;

use roxe_device::ReceiveQueueId;
use roxe_transport::work::ReceiveRequest;

use crate::error::{BadRequest, Error};
use crate::events::AsyncEvent;
use crate::protection_domain::ProtectionDomain;

/// A shared receive queue: `ibv_srq`. Clones are the same queue; it goes when nobody has it any
/// more, queue pairs among them.
#[derive(Clone)]
pub struct SharedReceiveQueue {
    inner: Arc<Inner>,
}

struct Inner {
    domain: ProtectionDomain,
    id: ReceiveQueueId,
}

impl SharedReceiveQueue {
    pub(crate) fn create(
        domain: &ProtectionDomain,
        depth: u32,
        max_sge: u32,
    ) -> Result<Self, Error> {
        let pd = domain.pd();
        let id = domain
            .context()
            .with(|driver| driver.device.create_shared_receive_queue(pd, depth, max_sge, 0))?;
        Ok(Self { inner: Arc::new(Inner { domain: domain.clone(), id }) })
    }

    /// Its number, by which asynchronous events name it.
    pub fn id(&self) -> ReceiveQueueId {
        self.inner.id
    }

    /// Its protection domain.
    pub fn domain(&self) -> &ProtectionDomain {
        &self.inner.domain
    }

    /// Posts receives, in this order: `ibv_post_srq_recv`.
    ///
    /// # Errors
    /// [`BadRequest`]: which was refused. Those before it are posted.
    pub fn post_receive(&self, requests: &[ReceiveRequest<'_>]) -> Result<(), BadRequest> {
        let id = self.inner.id;
        self.inner.domain.context().with(|driver| {
            BadRequest::first(requests, |request| driver.device.post_shared_receive(id, request))
        })
    }

    /// Another depth, another limit below which an [`AsyncEvent::SrqLimitReached`] is told once,
    /// or both: `ibv_modify_srq`.
    ///
    /// # Errors
    /// [`Error::Verb`]; then nothing has changed.
    pub fn modify(&self, depth: Option<u32>, limit: Option<u32>) -> Result<(), Error> {
        let id = self.inner.id;
        Ok(self
            .inner
            .domain
            .context()
            .with(|driver| driver.device.modify_shared_receive_queue(id, depth, limit))?)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let Self { domain, id } = self;
        domain.context().with(|driver| {
            // Queue pairs that take from it would have kept it.
            let _ = driver.device.destroy_shared_receive_queue(*id);
            driver.forget_events(|event| *event == AsyncEvent::SrqLimitReached(*id));
        });
    }
}
