//! Shared receive queues.

use std::sync::Arc;

use roxe_device::{ReceiveQueueId, ReceiveQueueInfo};
use roxe_transport::work::ReceiveRequest;

use crate::error::{BadRequest, Error};
use crate::events::Affected;
use crate::protection_domain::ProtectionDomain;
use crate::queue_pair::PostReceive;

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
        let context = domain.context();
        let id = context.with(|driver| {
            let id = driver.device.create_shared_receive_queue(pd, depth, max_sge, 0)?;
            driver.router.set_owner(Affected::SharedReceiveQueue(id), context.events());
            Ok::<_, Error>(id)
        })?;
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

    /// Posts receives as `call` makes them, with the adapter in hand once for all.
    pub fn post_receives<R>(&self, call: impl FnOnce(PostReceive<'_>) -> R) -> R {
        let id = self.inner.id;
        self.inner
            .domain
            .context()
            .with(|driver| call(&mut |request| driver.device.post_shared_receive(id, request)))
    }

    /// How it is now: `ibv_query_srq`.
    pub fn query(&self) -> ReceiveQueueInfo {
        let id = self.inner.id;
        let context = self.inner.domain.context();
        let info = context.with(|driver| driver.device.query_shared_receive_queue(id));
        info.expect("it lives as long as its handle")
    }

    /// Another depth, another limit below which an
    /// [`AsyncEvent::SrqLimitReached`](crate::AsyncEvent::SrqLimitReached) is told once,
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
            driver.forget_events(Affected::SharedReceiveQueue(*id));
        });
    }
}
