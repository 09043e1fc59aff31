//! What happens without being asked for: asynchronous events, and what carries them and the events
//! of completion queues from the engine to whoever waits.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant as Clock};

use roxe_device::{CqId, Event, ReceiveQueueId};
use roxe_transport::adapter::QpEvent;
use roxe_wire::Qpn;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;

use crate::cm::{Audience, Notice};
use crate::completion_channel::Shared as Channel;

/// Something that happened to an adapter or one of its objects: `ibv_async_event`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AsyncEvent {
    /// To the queue pair with this number.
    QueuePair(Qpn, QpEvent),
    /// The completion queue overran: completions were lost.
    CompletionQueueError(CqId),
    /// The shared receive queue holds fewer requests than its limit.
    SrqLimitReached(ReceiveQueueId),
    /// Packets can come and go again: `IBV_EVENT_PORT_ACTIVE`.
    PortActive,
    /// They cannot: the interface was switched off, or its cable ends nowhere.
    /// `IBV_EVENT_PORT_ERR`.
    PortError,
    /// The adapter has other addresses than before: `IBV_EVENT_GID_CHANGE`. Queue pairs and
    /// address handles go on with those that they have.
    GidChange,
    /// Somebody on the network says that this address, which is the adapter's own, is his. The
    /// adapter says so too, and goes on.
    AddressConflict(IpAddr),
    /// The interface is gone. Every queue pair is in state Error, and nothing will work again.
    DeviceFatal,
}

/// The asynchronous events of an adapter, in order. The descriptor is readable while one waits.
///
/// Events of an object that is destroyed are taken back, and of more than 65,536 that nobody
/// fetches the oldest are forgotten.
#[derive(Clone)]
pub struct AsyncEvents(pub(crate) Arc<Mailbox<AsyncEvent>>);

impl AsyncEvents {
    /// The next one, if there is one.
    pub fn try_next(&self) -> Option<AsyncEvent> {
        self.0.try_take()
    }

    /// The next one; waits at most `timeout` for it. [`Duration::MAX`] is for ever.
    pub fn next(&self, timeout: Duration) -> Option<AsyncEvent> {
        self.0.take(timeout, || false)
    }

    /// The next one, waited for as long as nobody interrupts: whenever a signal was handled in this
    /// thread meanwhile, `interrupts` is asked whether that is the end.
    pub fn next_unless(&self, interrupts: impl Fn() -> bool) -> Option<AsyncEvent> {
        self.0.take(Duration::MAX, interrupts)
    }
}

impl AsFd for AsyncEvents {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A queue between threads with a descriptor that is readable exactly while something is in it, or
/// it is closed.
pub(crate) struct Mailbox<T> {
    /// Its count is 1 while that is so, else 0. Changed with the queue locked. Nobody else reads
    /// it, so that whether it blocks is the application's to say.
    event: OwnedFd,
    queue: Mutex<Queue<T>>,
}

struct Queue<T> {
    waiting: VecDeque<T>,
    closed: bool,
}

impl<T> Queue<T> {
    fn is_ready(&self) -> bool {
        self.closed || !self.waiting.is_empty()
    }
}

impl<T> Mailbox<T> {
    pub(crate) fn new() -> io::Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC)?;
        let queue = Queue { waiting: VecDeque::new(), closed: false };
        Ok(Self { event, queue: Mutex::new(queue) })
    }

    pub(crate) fn put(&self, what: T) {
        self.change(|queue| queue.waiting.push_back(what));
    }

    /// The same, where the oldest goes if there are `most` already.
    pub(crate) fn put_among(&self, most: usize, what: T) {
        self.change(|queue| {
            if queue.waiting.len() >= most {
                queue.waiting.pop_front();
            }
            queue.waiting.push_back(what);
        });
    }

    pub(crate) fn try_take(&self) -> Option<T> {
        self.change(|queue| queue.waiting.pop_front())
    }

    /// Whoever waits, or will, waits no longer.
    pub(crate) fn close(&self) {
        self.change(|queue| queue.closed = true);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// Whether [`take`](Self::take) does not wait.
    pub(crate) fn is_ready(&self) -> bool {
        self.lock().is_ready()
    }

    /// Takes out what is not to be kept.
    pub(crate) fn retain(&self, keep: impl FnMut(&T) -> bool) {
        self.change(|queue| queue.waiting.retain(keep));
    }

    /// Waits at most `timeout`, and no longer where a signal `interrupts` or it is closed.
    pub(crate) fn take(&self, timeout: Duration, interrupts: impl Fn() -> bool) -> Option<T> {
        let deadline = Clock::now().checked_add(timeout);
        loop {
            if let Some(what) = self.try_take() {
                return Some(what);
            }
            let left = deadline.map(|at| at.saturating_duration_since(Clock::now()));
            if left.is_some_and(|left| left.is_zero()) || self.is_closed() {
                return None;
            }
            let timeout = left.and_then(|left| Timespec::try_from(left).ok());
            // A signal ends it; then the loop looks once more, or not.
            let woken = poll(&mut [PollFd::new(&self.event, PollFlags::IN)], timeout.as_ref());
            if woken == Err(Errno::INTR) && interrupts() {
                return self.try_take();
            }
        }
    }

    fn change<R>(&self, change: impl FnOnce(&mut Queue<T>) -> R) -> R {
        let mut queue = self.lock();
        let before = queue.is_ready();
        let result = change(&mut queue);
        match (before, queue.is_ready()) {
            // The count is 0 before the one and 1 before the other: neither can fail.
            (false, true) => drop(rustix::io::write(&self.event, &1_u64.to_ne_bytes())),
            (true, false) => drop(rustix::io::read(&self.event, &mut [0; 8])),
            _ => {}
        }
        result
    }

    fn lock(&self) -> MutexGuard<'_, Queue<T>> {
        // Nothing in it can panic half way.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> AsFd for Mailbox<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

/// Which event is for whom. Belongs to whoever has the engine in hand.
pub(crate) struct Router {
    /// The channels of completion queues, by the queues' numbers.
    channels: Vec<Option<Arc<Channel>>>,
    pub(crate) events: Arc<Mailbox<AsyncEvent>>,
    /// Who sees to connections.
    audience: Option<Audience>,
    /// Whoever has events of his own hears what happens to the whole adapter too.
    listeners: Vec<Weak<Mailbox<AsyncEvent>>>,
    /// The objects of which he alone hears.
    owners: BTreeMap<Affected, Arc<Mailbox<AsyncEvent>>>,
}

/// The object that an event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Affected {
    QueuePair(Qpn),
    CompletionQueue(CqId),
    SharedReceiveQueue(ReceiveQueueId),
}

impl AsyncEvent {
    /// The object that it is about; the whole adapter without.
    fn affected(&self) -> Option<Affected> {
        match *self {
            Self::QueuePair(qpn, _) => Some(Affected::QueuePair(qpn)),
            Self::CompletionQueueError(cq) => Some(Affected::CompletionQueue(cq)),
            Self::SrqLimitReached(srq) => Some(Affected::SharedReceiveQueue(srq)),
            _ => None,
        }
    }
}

impl Router {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            channels: Vec::new(),
            events: Arc::new(Mailbox::new()?),
            listeners: Vec::new(),
            owners: BTreeMap::new(),
            audience: None,
        })
    }

    /// From now on what happens to the whole adapter is told there too.
    pub(crate) fn add_listener(&mut self, events: &Arc<Mailbox<AsyncEvent>>) {
        self.listeners.retain(|listener| listener.strong_count() != 0);
        self.listeners.push(Arc::downgrade(events));
    }

    /// What happens to an object that was just made is told there only.
    pub(crate) fn set_owner(&mut self, of: Affected, events: &Arc<Mailbox<AsyncEvent>>) {
        if !Arc::ptr_eq(events, &self.events) {
            self.owners.insert(of, Arc::clone(events));
        }
    }

    /// An object is destroyed: its events are taken back.
    pub(crate) fn forget(&mut self, of: Affected) {
        let owner = self.owners.remove(&of);
        let events = owner.as_ref().unwrap_or(&self.events);
        events.retain(|event| event.affected() != Some(of));
    }

    /// From now on completion events of this queue go to this channel.
    pub(crate) fn set_channel(&mut self, cq: CqId, channel: Option<Arc<Channel>>) {
        let index = cq.0 as usize;
        if self.channels.len() <= index {
            self.channels.resize_with(index + 1, || None);
        }
        self.channels[index] = channel;
    }

    /// From now on this one hears of what concerns connections.
    pub(crate) fn set_audience(&mut self, audience: Audience) {
        self.audience = Some(audience);
    }

    /// Says whether it wakes somebody who waits for completions.
    pub(crate) fn route(&self, event: Event) -> bool {
        match event {
            Event::CompletionNotify(cq) => {
                if let Some(audience) = self.audience.as_ref().filter(|it| it.cq == cq) {
                    audience.notices.put(Notice::Datagrams);
                    return true;
                }
                let Some(Some(channel)) = self.channels.get(cq.0 as usize) else { return false };
                channel.fired.put(cq);
                return true;
            }
            Event::QueuePair(qpn, event) => {
                if let (QpEvent::CommunicationEstablished, Some(audience)) = (event, &self.audience)
                {
                    audience.notices.put(Notice::Established(qpn));
                }
                self.tell(AsyncEvent::QueuePair(qpn, event));
            }
            Event::CompletionQueueError(cq) => self.tell(AsyncEvent::CompletionQueueError(cq)),
            Event::SrqLimitReached(srq) => self.tell(AsyncEvent::SrqLimitReached(srq)),
        }
        false
    }

    /// Tells the application.
    pub(crate) fn tell(&self, event: AsyncEvent) {
        if let (AsyncEvent::DeviceFatal, Some(audience)) = (event, &self.audience) {
            audience.notices.put(Notice::Gone);
        }
        let Some(of) = event.affected() else {
            self.events.put_among(MOST_EVENTS, event);
            for listener in self.listeners.iter().filter_map(Weak::upgrade) {
                listener.put_among(MOST_EVENTS, event);
            }
            return;
        };
        self.owners.get(&of).unwrap_or(&self.events).put_among(MOST_EVENTS, event);
    }
}

/// Asynchronous events that wait for the application at most.
const MOST_EVENTS: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn is_readable(mailbox: &Mailbox<u32>) -> bool {
        let mut fds = [PollFd::new(&mailbox.event, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec::default())).unwrap() == 1
    }

    #[test]
    fn the_descriptor_is_readable_exactly_while_something_waits() {
        let mailbox = Mailbox::new().unwrap();
        assert!(!is_readable(&mailbox));
        mailbox.put(1);
        mailbox.put(2);
        assert!(is_readable(&mailbox));
        assert_eq!(mailbox.try_take(), Some(1));
        assert!(is_readable(&mailbox));
        mailbox.retain(|&number| number != 2);
        assert!(!is_readable(&mailbox));
        assert_eq!(mailbox.take(Duration::ZERO, || false), None);
        mailbox.put(3);
        assert!(is_readable(&mailbox));
        assert_eq!(mailbox.take(Duration::MAX, || false), Some(3));
        (4..8).for_each(|number| mailbox.put_among(2, number));
        assert_eq!([mailbox.try_take(), mailbox.try_take()], [Some(6), Some(7)]);
        assert!(!is_readable(&mailbox));
    }

    #[test]
    fn who_waits_at_one_that_is_closed_waits_no_longer() {
        let mailbox = Mailbox::new().unwrap();
        std::thread::scope(|scope| {
            let waits = || scope.spawn(|| mailbox.take(Duration::MAX, || false));
            let waiting = [waits(), waits()];
            mailbox.close();
            assert_eq!(waiting.map(|waiting| waiting.join().unwrap()), [None, None]);
        });
        mailbox.put(1);
        assert_eq!(mailbox.take(Duration::MAX, || false), Some(1));
        assert_eq!(mailbox.take(Duration::MAX, || false), None);
        assert!(is_readable(&mailbox) && mailbox.is_ready());
    }

    /// Whoever waits with an empty hand is woken by whoever puts something in, in every order.
    #[test]
    fn nothing_is_left_behind_between_threads() {
        const EACH: u32 = 20_000;
        let mailbox = Arc::new(Mailbox::new().unwrap());
        let senders: Vec<_> = (0..2)
            .map(|_| {
                let mailbox = Arc::clone(&mailbox);
                std::thread::spawn(move || (0..EACH).for_each(|number| mailbox.put(number)))
            })
            .collect();
        let takers: Vec<_> = (0..2)
            .map(|_| {
                let mailbox = Arc::clone(&mailbox);
                std::thread::spawn(move || {
                    (0..EACH)
                        .filter_map(|_| mailbox.take(Duration::from_secs(30), || false))
                        .count()
                })
            })
            .collect();
        senders.into_iter().for_each(|thread| thread.join().unwrap());
        let taken: usize = takers.into_iter().map(|thread| thread.join().unwrap()).sum();
        assert_eq!(taken, 2 * EACH as usize);
        assert!(!is_readable(&mailbox));
    }
}
