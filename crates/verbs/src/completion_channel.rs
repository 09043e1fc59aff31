//! Completion channels: sleep until one of many completion queues has something.
//!
//! IBA vol 1 §11.4.2.2, `ibv_get_cq_event`. A queue tells of *one* completion after
//! [`CompletionQueue::request_notify`], the next that comes. So whoever is about to sleep arms,
//! polls once more, and sleeps only if nothing was there: a completion is then either polled or
//! told of. Events need no acknowledgement.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use roxe_device::CqId;

use crate::completion_queue::{CompletionQueue, Inner};
use crate::context::Context;
use crate::events::Mailbox;

/// A channel of completion queues: `ibv_comp_channel`. Its descriptor is readable while one of them
/// has told of a completion. Clones are the same channel.
#[derive(Clone)]
pub struct CompletionChannel {
    context: Context,
    pub(crate) shared: Arc<Shared>,
}

/// What the engine knows of a channel.
pub(crate) struct Shared {
    pub(crate) fired: Mailbox<CqId>,
    queues: Mutex<BTreeMap<CqId, Weak<Inner>>>,
}

impl CompletionChannel {
    pub(crate) fn new(context: &Context) -> io::Result<Self> {
        let shared = Shared { fired: Mailbox::new()?, queues: Mutex::default() };
        Ok(Self { context: context.clone(), shared: Arc::new(shared) })
    }

    /// Whether it belongs to this adapter.
    pub(crate) fn is_of(&self, context: &Context) -> bool {
        self.context.is(context)
    }

    /// The next completion queue that told of a completion; waits at most `timeout` for it.
    /// [`Duration::MAX`] is for ever. The queue has to be armed again for another. Moves the engine
    /// while it waits, so that what arrives wakes no thread but this one.
    pub fn wait(&self, timeout: Duration) -> Option<CompletionQueue> {
        self.wait_for(timeout, || false)
    }

    /// [`wait`](Self::wait) for ever, or until somebody interrupts: whenever a signal was handled
    /// in this thread while it slept, `interrupts` is asked whether that is the end.
    pub fn wait_unless(&self, interrupts: impl Fn() -> bool) -> Option<CompletionQueue> {
        self.wait_for(Duration::MAX, interrupts)
    }

    fn wait_for(
        &self,
        timeout: Duration,
        interrupts: impl Fn() -> bool,
    ) -> Option<CompletionQueue> {
        let take = || {
            loop {
                let cq = self.shared.fired.try_take()?;
                let inner = self.shared.lock().get(&cq).and_then(Weak::upgrade);
                if let Some(inner) = inner {
                    return Some(CompletionQueue { inner });
                }
            }
        };
        self.context.wait_for(take, self.shared.fired.as_fd(), timeout, interrupts)
    }
}

impl AsFd for CompletionChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.fired.as_fd()
    }
}

impl Shared {
    pub(crate) fn add(&self, cq: CqId, inner: &Arc<Inner>) {
        self.lock().insert(cq, Arc::downgrade(inner));
    }

    /// The queue is gone, and what it told of too.
    pub(crate) fn forget(&self, cq: CqId) {
        self.lock().remove(&cq);
        self.fired.retain(|fired| *fired != cq);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<CqId, Weak<Inner>>> {
        // Nothing in it can panic half way.
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
