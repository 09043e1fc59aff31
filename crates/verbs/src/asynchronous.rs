//! Operations and events to be awaited, on tokio.
//!
//! ```
//! use roxe_verbs::asynchronous::AsyncConnection;
//! use roxe_verbs::{Buffer, Context, Mtu, Op};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let [one, other] = Context::memory_pair(Mtu::B4096)?;
//! let (a, b) = (AsyncConnection::new(&one)?, AsyncConnection::new(&other)?);
//! a.connect(b.endpoint()?).await?;
//! b.connect(a.endpoint()?).await?;
//! let (source, target) = (one.register(&Buffer::new(64))?, other.register(&Buffer::new(64))?);
//! let (sent, received) =
//!     tokio::join!(a.perform(Op::Send, &source, 0, 64), b.receive(&target, 0, 64));
//! assert_eq!(sent?.wr_id, 0);
//! assert_eq!(received?.byte_len, 64);
//! # Ok(())
//! # }
//! ```

mod connections;
mod meeting;

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use roxe_device::ReceiveCapacity;
use roxe_transport::SendCapacity;
use roxe_transport::qp_state::ServiceType;
use roxe_transport::work::{Completion, CompletionStatus, Data, ReceiveRequest, SendRequest, Sge};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::task::{JoinHandle, spawn, spawn_blocking, yield_now};

use crate::completion_channel::CompletionChannel;
use crate::completion_queue::CompletionQueue;
use crate::connection::Op;
use crate::context::Context;
use crate::endpoint::Endpoint;
use crate::error::{BadRequest, Error};
use crate::events::{AsyncEvent, AsyncEvents};
use crate::memory_region::MemoryRegion;
use crate::queue_pair::{ConnectOptions, QueuePair};

pub use connections::{AsyncCmListener, AsyncEventChannel};
pub use meeting::{AsyncListener, Caller};

/// A queue pair of a reliable connection whose operations are awaited.
///
/// An operation is posted when it is first polled and there is room in the queue. To drop it then
/// does not take it back: it goes on, and its memory stays registered until it is done. Operations
/// are posted in the order in which they are first polled.
pub struct AsyncConnection {
    state: Arc<State>,
    dispatcher: JoinHandle<()>,
    sends: Arc<Semaphore>,
    receives: Arc<Semaphore>,
}

/// What a connection and its dispatcher share.
struct State {
    qp: QueuePair,
    cq: CompletionQueue,
    posted: Mutex<Posted>,
}

/// The operations that are not done.
#[derive(Default)]
struct Posted {
    by_wr_id: HashMap<u64, Operation>,
    next: u64,
}

/// An operation that is not done, and what it needs until then.
struct Operation {
    done: oneshot::Sender<Completion>,
    _region: MemoryRegion,
    _room: OwnedSemaphorePermit,
}

/// How deep the queues are.
const DEPTH: u32 = 512;

impl AsyncConnection {
    /// A queue pair that is not connected yet, in the adapter's default protection domain. Receives
    /// may be posted already, before anything can arrive. To be
    /// called in a runtime, on which a task will hand out completions.
    ///
    /// # Errors
    /// [`Error::Verb`]; [`Error::System`].
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn new(context: &Context) -> Result<Self, Error> {
        let channel = context.create_comp_channel()?;
        let cq = context.create_cq_on(&channel, 2 * DEPTH)?;
        let qp = context
            .default_pd()
            .create_qp(ServiceType::Rc, &cq)
            .send(SendCapacity { depth: DEPTH, max_sge: 1, max_inline: 0 })
            .receive(ReceiveCapacity { depth: DEPTH, max_sge: 1 })
            .signal_all()
            .build()?;
        qp.init(ConnectOptions::default().access)?;
        let state = Arc::new(State { qp, cq, posted: Mutex::default() });
        // SAFETY: a channel has one descriptor, which is open as long as the channel is there.
        let channel = unsafe { AsyncFd::register_with_interest(channel, Interest::READABLE) };
        let channel = channel.map_err(io::Error::from)?;
        let dispatcher = spawn(dispatch(Arc::clone(&state), channel));
        let room = || Arc::new(Semaphore::new(DEPTH as usize));
        Ok(Self { state, dispatcher, sends: room(), receives: room() })
    }

    /// The queue pair, for all that is not here.
    pub fn queue_pair(&self) -> &QueuePair {
        &self.state.qp
    }

    /// What the peer has to know.
    ///
    /// # Errors
    /// [`Error::NoSuchGid`]: the adapter has no address.
    pub fn endpoint(&self) -> Result<Endpoint, Error> {
        self.state.qp.endpoint()
    }

    /// Takes the queue pair to the state in which it sends and receives. The peer does the same.
    ///
    /// # Errors
    /// [`Error`]: there is no way to the peer, or no address of its family.
    pub async fn connect(&self, peer: Endpoint) -> Result<(), Error> {
        let qp = self.state.qp.clone();
        // A neighbour may take seconds to answer.
        let connected = spawn_blocking(move || qp.connect(&peer, &ConnectOptions::default()));
        connected.await.map_err(io::Error::other)?
    }

    /// Does something about `len` bytes at `offset` of a region.
    ///
    /// # Errors
    /// [`Error::Post`]; [`Error::Completion`].
    pub async fn perform(
        &self,
        operation: Op,
        region: &MemoryRegion,
        offset: u64,
        len: u32,
    ) -> Result<Completion, Error> {
        let post = |qp: &QueuePair, wr_id, sges: &[Sge]| {
            qp.post_send(&[SendRequest {
                wr_id,
                operation: operation.into(),
                data: Data::Regions(sges),
                signaled: true,
                solicited: false,
                fence: false,
                target: None,
            }])
        };
        self.run(&self.sends, region, region.sge(offset, len), post).await
    }

    /// Receives a message of up to `len` bytes at `offset` of a region.
    ///
    /// # Errors
    /// [`Error::Post`]; [`Error::Completion`].
    pub async fn receive(
        &self,
        region: &MemoryRegion,
        offset: u64,
        len: u32,
    ) -> Result<Completion, Error> {
        let post = |qp: &QueuePair, wr_id, sges: &[Sge]| {
            qp.post_receive(&[ReceiveRequest { wr_id, sges }])
        };
        self.run(&self.receives, region, region.sge(offset, len), post).await
    }

    async fn run(
        &self,
        room: &Arc<Semaphore>,
        region: &MemoryRegion,
        sge: Sge,
        post: impl FnOnce(&QueuePair, u64, &[Sge]) -> Result<(), BadRequest>,
    ) -> Result<Completion, Error> {
        let State { qp, .. } = &*self.state;
        let room = Arc::clone(room).acquire_owned().await.map_err(io::Error::other)?;
        let (done, outcome) = oneshot::channel();
        let operation = Operation { done, _region: region.clone(), _room: room };
        // It may be done before it is known to be posted.
        let wr_id = self.state.posted().add(operation);
        if let Err(refused) = post(qp, wr_id, &[sge]) {
            let operation = self.state.posted().by_wr_id.remove(&wr_id);
            drop(operation);
            return Err(refused.into());
        }
        let completion = outcome.await.map_err(io::Error::other)?;
        match completion.status {
            CompletionStatus::Success => Ok(completion),
            status => Err(Error::Completion { wr_id, status, why: qp.explain(status) }),
        }
    }
}

impl Drop for AsyncConnection {
    fn drop(&mut self) {
        self.dispatcher.abort();
    }
}

impl State {
    fn posted(&self) -> MutexGuard<'_, Posted> {
        // Nothing in it can panic half way.
        self.posted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn complete(&self, completion: &Completion) {
        let operation = self.posted().by_wr_id.remove(&completion.wr_id);
        if let Some(operation) = operation {
            // Nobody may wait for it any more.
            let _ = operation.done.send(*completion);
        }
    }
}

impl Posted {
    fn add(&mut self, operation: Operation) -> u64 {
        let wr_id = self.next;
        self.next += 1;
        self.by_wr_id.insert(wr_id, operation);
        wr_id
    }
}

/// Hands completions to those who await them, for ever. Takes what was told, arms and looks then: a
/// completion is either seen or told of.
async fn dispatch(state: Arc<State>, channel: AsyncFd<CompletionChannel>) {
    let mut room = [Completion::BLANK; 32];
    loop {
        while channel.get_ref().wait(Duration::ZERO).is_some() {}
        if state.cq.request_notify(false).is_err() {
            return;
        }
        loop {
            let found = state.cq.poll(&mut room);
            room[..found].iter().for_each(|completion| state.complete(completion));
            if found < room.len() {
                break;
            }
            yield_now().await;
        }
        let Ok(mut ready) = channel.readable().await else { return };
        ready.clear_ready();
    }
}

/// The asynchronous events of an adapter, to be awaited.
pub struct AsyncEventStream(AsyncFd<AsyncEvents>);

impl AsyncEventStream {
    /// Those of this adapter. To be called in a runtime; one at a time there.
    ///
    /// # Errors
    /// [`Error::System`], also when there is one already.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn new(context: &Context) -> Result<Self, Error> {
        let events = context.async_events();
        // SAFETY: they have one descriptor, which is open as long as they are there.
        let events = unsafe { AsyncFd::register_with_interest(events, Interest::READABLE) };
        Ok(Self(events.map_err(io::Error::from)?))
    }

    /// The next one. Nothing is lost when it is dropped before it is there.
    ///
    /// # Errors
    /// [`Error::System`] when the runtime ends.
    pub async fn next(&self) -> Result<AsyncEvent, Error> {
        loop {
            if let Some(event) = self.0.get_ref().try_next() {
                return Ok(event);
            }
            let mut ready = self.0.readable().await?;
            if let Some(event) = self.0.get_ref().try_next() {
                return Ok(event);
            }
            ready.clear_ready();
        }
    }
}

impl AsRawFd for CompletionChannel {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

impl AsRawFd for AsyncEvents {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}
