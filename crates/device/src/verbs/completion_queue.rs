//! Completion queues.

use super::VerbError;
use crate::completion_queue::CompletionQueue;
use crate::device::{CqId, Device};
use crate::host_memory::HostMemory;

impl<H: HostMemory> Device<H> {
    /// `ibv_create_cq`.
    ///
    /// # Errors
    /// [`VerbError::Invalid`], [`VerbError::Limit`].
    pub fn create_completion_queue(&mut self, depth: u32) -> Result<CqId, VerbError> {
        if depth == 0 || depth > self.limits.max_cqe {
            return Err(VerbError::Invalid("cqe"));
        }
        let queue = CompletionQueue::new(depth);
        let index = self.tables.completion_queues.insert(queue);
        index.map(CqId).ok_or(VerbError::Limit("completion queues"))
    }

    /// `ibv_destroy_cq`.
    ///
    /// # Errors
    /// [`VerbError::InUse`] while queue pairs complete there.
    //= IBA C11-17
    pub fn destroy_completion_queue(&mut self, cq: CqId) -> Result<(), VerbError> {
        let queue = self.tables.completion_queues.get(cq.0).ok_or(VerbError::NoSuchObject)?;
        queue.users.none_left()?;
        self.tables.completion_queues.remove(cq.0);
        Ok(())
    }

    /// `ibv_resize_cq`.
    ///
    /// # Errors
    /// [`VerbError::Invalid`], [`VerbError::Resize`].
    pub fn resize_completion_queue(&mut self, cq: CqId, depth: u32) -> Result<(), VerbError> {
        if depth == 0 || depth > self.limits.max_cqe {
            return Err(VerbError::Invalid("cqe"));
        }
        Ok(self.tables.cq_mut(cq).ok_or(VerbError::NoSuchObject)?.resize(depth)?)
    }

    /// `ibv_req_notify_cq`: the next completion (or the next solicited one) gives an
    /// [`Event::CompletionNotify`](crate::device::Event::CompletionNotify). Says whether
    /// completions wait already, so that the application looks once more before it sleeps.
    ///
    /// # Errors
    /// [`VerbError::NoSuchObject`].
    pub fn request_notify(&mut self, cq: CqId, solicited_only: bool) -> Result<bool, VerbError> {
        let queue = self.tables.cq_mut(cq).ok_or(VerbError::NoSuchObject)?;
        Ok(queue.request_notify(solicited_only))
    }
}
