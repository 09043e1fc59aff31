//! Completion queues.

use std::sync::Arc;

use roxe_device::CqId;
use roxe_transport::work::Completion;

use crate::completion_channel::CompletionChannel;
use crate::context::Context;
use crate::error::Error;
use crate::events::Affected;

/// A completion queue: `ibv_cq`. Clones are the same queue; it goes when nobody has it any more,
/// queue pairs among them.
#[derive(Clone)]
pub struct CompletionQueue {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    context: Context,
    id: CqId,
    channel: Option<CompletionChannel>,
}

impl CompletionQueue {
    pub(crate) fn create(
        context: &Context,
        depth: u32,
        channel: Option<&CompletionChannel>,
    ) -> Result<Self, Error> {
        if channel.is_some_and(|channel| !channel.is_of(context)) {
            return Err(Error::OtherAdapter);
        }
        let id = context.with(|driver| {
            let id = driver.device.create_completion_queue(depth)?;
            let shared = channel.map(|channel| Arc::clone(&channel.shared));
            driver.router.set_channel(id, shared);
            driver.router.set_owner(Affected::CompletionQueue(id), context.events());
            Ok::<_, Error>(id)
        })?;
        let inner = Arc::new(Inner { context: context.clone(), id, channel: channel.cloned() });
        if let Some(channel) = channel {
            channel.shared.add(id, &inner);
        }
        Ok(Self { inner })
    }

    /// Its number, by which asynchronous events name it.
    pub fn id(&self) -> CqId {
        self.inner.id
    }

    /// Takes completions, oldest first: `ibv_poll_cq`. Says how many of `room` were filled. Moves
    /// the engine too, so that whoever polls needs no other thread.
    pub fn poll(&self, room: &mut [Completion]) -> usize {
        self.inner.context.poll(self.inner.id, room)
    }

    /// Takes the oldest completion, if there is one.
    pub fn poll_one(&self) -> Option<Completion> {
        let mut room = [Completion::BLANK];
        (self.poll(&mut room) == 1).then_some(room[0])
    }

    /// Asks for one event on the queue's channel: at the next completion that comes, or with
    /// `solicited_only` at the next that its sender solicited or that failed: `ibv_req_notify_cq`.
    /// Says whether completions wait already; those give no event.
    ///
    /// # Errors
    /// [`Error::NoChannel`].
    pub fn request_notify(&self, solicited_only: bool) -> Result<bool, Error> {
        if self.inner.channel.is_none() {
            return Err(Error::NoChannel);
        }
        let id = self.inner.id;
        Ok(self.inner.context.arm(|driver| driver.device.request_notify(id, solicited_only))?)
    }

    /// Another depth; what is in the queue stays: `ibv_resize_cq`.
    ///
    /// # Errors
    /// [`Error::Verb`]: out of range, or more is in the queue. Then nothing changes.
    pub fn resize(&self, depth: u32) -> Result<(), Error> {
        let id = self.inner.id;
        Ok(self.inner.context.with(|driver| driver.device.resize_completion_queue(id, depth))?)
    }

    /// The channel that it tells of completions.
    pub fn channel(&self) -> Option<&CompletionChannel> {
        self.inner.channel.as_ref()
    }

    /// Whether it belongs to this adapter.
    pub(crate) fn is_of(&self, context: &Context) -> bool {
        self.inner.context.is(context)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let Self { context, id, channel } = self;
        context.with(|driver| {
            // Queue pairs that complete here would have kept it.
            let _ = driver.device.destroy_completion_queue(*id);
            driver.router.set_channel(*id, None);
            if let Some(channel) = channel {
                channel.shared.forget(*id);
            }
            driver.forget_events(Affected::CompletionQueue(*id));
        });
    }
}
