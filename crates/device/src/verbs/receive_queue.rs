//! Shared receive queues.

use roxe_transport::work::{PostError, ReceiveRequest};

use super::VerbError;
use crate::counters::DeviceCount;
use crate::device::{Device, Event, ReceiveQueueId};
use crate::host_memory::HostMemory;
use crate::protection_domain::Pd;
use crate::receive_queue::ReceiveQueue;

/// What [`Device::query_shared_receive_queue`] tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiveQueueInfo {
    /// Requests that there is room for.
    pub depth: u32,
    /// Scatter elements that a request may have.
    pub max_sge: u32,
    /// Below so many requests the application is told; 0 when it has been, or does not want to be.
    pub limit: u32,
}

impl<H: HostMemory> Device<H> {
    /// `ibv_create_srq`. The limit is armed, and looked at when a request is taken.
    ///
    /// # Errors
    /// [`VerbError::Invalid`], [`VerbError::ReceiveQueue`], [`VerbError::Pd`],
    /// [`VerbError::Limit`].
    pub fn create_shared_receive_queue(
        &mut self,
        pd: Pd,
        depth: u32,
        max_sge: u32,
        limit: u32,
    ) -> Result<ReceiveQueueId, VerbError> {
        if depth == 0 || depth > self.limits.max_srq_wr {
            return Err(VerbError::Invalid("max_wr"));
        }
        if max_sge > self.limits.max_srq_sge {
            return Err(VerbError::Invalid("max_sge"));
        }
        let queue = ReceiveQueue::new(pd, depth, max_sge).armed(limit)?;
        if self.tables.shared_queues >= self.limits.max_srq {
            return Err(VerbError::Limit("shared receive queues"));
        }
        self.in_domain(pd, |tables| {
            let index = tables.receive_queues.insert(queue);
            let index = index.ok_or(VerbError::Limit("receive queues"))?;
            tables.shared_queues += 1;
            Ok(ReceiveQueueId(index))
        })
    }

    /// `ibv_modify_srq`: another depth, another limit, or both.
    ///
    /// # Errors
    /// [`VerbError::Invalid`], [`VerbError::ReceiveQueue`]; then nothing has changed.
    pub fn modify_shared_receive_queue(
        &mut self,
        srq: ReceiveQueueId,
        depth: Option<u32>,
        limit: Option<u32>,
    ) -> Result<(), VerbError> {
        if depth.is_some_and(|depth| depth == 0 || depth > self.limits.max_srq_wr) {
            return Err(VerbError::Invalid("max_wr"));
        }
        let queue = self.tables.receive_queue_mut(srq).ok_or(VerbError::NoSuchObject)?;
        if queue.modify(depth, limit)?.is_some() {
            self.tables.counters.device(DeviceCount::SrqLimitReached, 1);
            self.tables.events.push_back(Event::SrqLimitReached(srq));
        }
        Ok(())
    }

    /// `ibv_query_srq`.
    ///
    /// # Errors
    /// [`VerbError::NoSuchObject`].
    pub fn query_shared_receive_queue(
        &self,
        srq: ReceiveQueueId,
    ) -> Result<ReceiveQueueInfo, VerbError> {
        let queue = self.tables.receive_queue(srq).ok_or(VerbError::NoSuchObject)?;
        let (depth, max_sge, limit) = (queue.depth(), queue.max_sge(), queue.limit());
        Ok(ReceiveQueueInfo { depth, max_sge, limit })
    }

    /// `ibv_post_srq_recv`.
    ///
    /// # Errors
    /// The request is refused; nothing was queued.
    pub fn post_shared_receive(
        &mut self,
        srq: ReceiveQueueId,
        request: &ReceiveRequest<'_>,
    ) -> Result<(), PostError> {
        self.tables.receive_queue_mut(srq).ok_or(PostError::NoSuchQueue)?.post(request)
    }

    /// `ibv_destroy_srq`.
    ///
    /// # Errors
    /// [`VerbError::InUse`] while queue pairs take from it.
    pub fn destroy_shared_receive_queue(&mut self, srq: ReceiveQueueId) -> Result<(), VerbError> {
        let queue = self.tables.receive_queue(srq).ok_or(VerbError::NoSuchObject)?;
        queue.users.none_left()?;
        let pd = queue.pd();
        self.tables.receive_queues.remove(srq.0);
        self.tables.shared_queues -= 1;
        self.tables.pds.release(pd);
        Ok(())
    }
}
