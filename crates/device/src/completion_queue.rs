//! Completion queues: what became of work requests, in the order in which it became known.
//!
//! IBA vol 1 §10.8, §11.2.8, §11.4.2. The ring grows with what is in it, up to the depth that was
//! asked for; an idle queue takes no memory.
//!
//! **Overrun.** A completion that finds the queue full is lost, and the queue is in error from then
//! on: the event is reported once, what was in the queue can still be polled, and nothing is added
//! any more, however much room there is. Whoever polls thus sees a true beginning of what happened,
//! never one with a hole. The queue pair whose completion was lost goes to state Error with a fatal
//! event, each one when it loses one: as mlx5 does, and as IBA vol 1 §11.6.3 lists the events.
//!
//! **Notification.** Arming asks for one event, at the next completion *that is added after it*.
//! What was in the queue before gives none, so an application arms, polls once more, and only then
//! sleeps.

use std::collections::VecDeque;

use core::fmt;

use roxe_transport::work::{Completion, CompletionStatus};
use roxe_wire::Qpn;

use crate::users::Users;

/// A completion queue.
#[derive(Clone, Debug)]
pub struct CompletionQueue {
    ring: VecDeque<Completion>,
    depth: u32,
    armed: Armed,
    overrun: bool,
    /// Completions that were lost.
    lost: u64,
    /// The send and receive queues that complete here.
    pub users: Users,
}

/// What happened at a completion queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CqEvent {
    /// The completion that it waits for was added; it must arm again for another.
    Notify,
    /// A completion found no room: `IBV_EVENT_CQ_ERR`. Told once.
    Overrun,
    /// Another one found none.
    Lost,
}

/// Which completion the application waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Armed {
    No,
    Solicited,
    Any,
}

impl CompletionQueue {
    /// An empty queue for up to `depth` completions.
    pub const fn new(depth: u32) -> Self {
        Self {
            ring: VecDeque::new(),
            depth,
            armed: Armed::No,
            overrun: false,
            lost: 0,
            users: Users::NONE,
        }
    }

    /// Adds a completion. Says what came of it, if the application waits for it or it was lost.
    //= 05-5.4
    pub fn push(&mut self, completion: Completion) -> Option<CqEvent> {
        if self.overrun || self.ring.len() >= self.depth as usize {
            self.lost = self.lost.saturating_add(1);
            let again = core::mem::replace(&mut self.overrun, true);
            return Some(if again { CqEvent::Lost } else { CqEvent::Overrun });
        }
        self.ring.push_back(completion);
        let wanted = match self.armed {
            Armed::No => false,
            Armed::Solicited => is_solicited(&completion),
            Armed::Any => true,
        };
        if wanted {
            self.armed = Armed::No;
        }
        wanted.then_some(CqEvent::Notify)
    }

    /// Takes the oldest completion.
    pub fn pop(&mut self) -> Option<Completion> {
        self.ring.pop_front()
    }

    /// Moves the oldest completions to the front of `room`; says how many.
    pub fn poll(&mut self, room: &mut [Completion]) -> usize {
        let count = room.len().min(self.ring.len());
        if count == 0 {
            return 0; // Most polls find nothing: a look is enough.
        }
        room.iter_mut().zip(self.ring.drain(..count)).for_each(|(to, from)| *to = from);
        count
    }

    /// Asks for one event: at the next completion that is added, or with `solicited_only` at the
    /// next that its sender solicited or that failed. A wish for any completion is not weakened by
    /// a later one for solicited ones. Says whether completions wait already, which give no event.
    //= R34
    pub fn request_notify(&mut self, solicited_only: bool) -> bool {
        self.armed = match (solicited_only, self.armed) {
            (true, Armed::No | Armed::Solicited) => Armed::Solicited,
            (false, _) | (true, Armed::Any) => Armed::Any,
        };
        !self.ring.is_empty()
    }

    /// Another depth. What is in the queue stays.
    ///
    /// # Errors
    /// [`ResizeError`]: more is in the queue. Then nothing changes.
    //= BC-101
    pub fn resize(&mut self, depth: u32) -> Result<(), ResizeError> {
        let waiting = self.ring.len() as u32;
        if depth < waiting {
            return Err(ResizeError { waiting });
        }
        self.depth = depth;
        self.ring.shrink_to(depth as usize);
        Ok(())
    }

    /// Takes out what belongs to a queue pair that is reset or destroyed.
    //= 05-5.2, BC-106
    pub fn purge(&mut self, qpn: Qpn) {
        self.ring.retain(|completion| completion.qpn != qpn);
    }

    /// How many completions wait.
    pub fn len(&self) -> usize {
        self.ring.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.ring.is_empty()
    }

    /// How many there is room for.
    pub const fn depth(&self) -> u32 {
        self.depth
    }

    /// How many completions were lost.
    pub const fn lost(&self) -> u64 {
        self.lost
    }
}

/// What an application that waits for solicited completions wants to hear of.
//= R34, 04-4.15
fn is_solicited(completion: &Completion) -> bool {
    completion.solicited || completion.status != CompletionStatus::Success
}

/// A completion queue cannot become so small. `EINVAL`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResizeError {
    /// How many completions are in it.
    pub waiting: u32,
}

impl fmt::Display for ResizeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} completions wait in the queue", self.waiting)
    }
}

impl core::error::Error for ResizeError {}

#[cfg(test)]
mod tests {
    use roxe_transport::work::{CompletionOpcode, Extra};

    use super::*;
    use crate::users::InUse;

    fn completion(wr_id: u64) -> Completion {
        Completion {
            wr_id,
            status: CompletionStatus::Success,
            opcode: CompletionOpcode::Recv,
            byte_len: 0,
            extra: Extra::None,
            qpn: Qpn::new(wr_id as u32 % 2 + 100),
            source_qp: Qpn::new(0),
            grh: false,
            ipv6: false,
            solicited: false,
        }
    }

    fn full(depth: u32) -> CompletionQueue {
        let mut queue = CompletionQueue::new(depth);
        for wr_id in 0..depth.into() {
            assert_eq!(queue.push(completion(wr_id)), None);
        }
        queue
    }

    fn rest(queue: &mut CompletionQueue) -> Vec<u64> {
        core::iter::from_fn(|| queue.pop()).map(|completion| completion.wr_id).collect()
    }

    #[test]
    fn completions_come_in_order_and_as_many_as_there_is_room_for() {
        let mut queue = full(5);
        let mut room = [completion(99); 3];
        assert_eq!(queue.poll(&mut room), 3);
        assert_eq!(room.map(|completion| completion.wr_id), [0, 1, 2]);
        assert_eq!(queue.push(completion(5)), None);
        assert_eq!(queue.poll(&mut []), 0);
        assert_eq!(queue.poll(&mut room), 3);
        assert_eq!(room.map(|completion| completion.wr_id), [3, 4, 5]);
        assert_eq!((queue.poll(&mut room), queue.pop()), (0, None));
        assert!(queue.is_empty());
    }

    //= 05-5.4 test
    #[test]
    fn an_overrun_is_told_once_and_ends_the_queue() {
        let mut queue = full(2);
        assert!(!queue.overrun);
        assert_eq!(queue.push(completion(2)), Some(CqEvent::Overrun));
        assert_eq!(queue.push(completion(3)), Some(CqEvent::Lost));
        assert_eq!(queue.pop().unwrap().wr_id, 0);
        queue.request_notify(false);
        let lost = queue.push(completion(4));
        assert_eq!(lost, Some(CqEvent::Lost), "there is room, but it would hide a hole");
        assert_eq!(rest(&mut queue), [1]);
        assert_eq!((queue.overrun, queue.lost()), (true, 3));
        assert_eq!(CompletionQueue::new(0).push(completion(0)), Some(CqEvent::Overrun));
    }

    //= R34 test
    #[test]
    fn arming_gives_one_event_for_what_comes_later() {
        let mut queue = CompletionQueue::new(8);
        queue.push(completion(0));
        assert!(queue.request_notify(false), "one waits already, and gives no event");
        assert_eq!(queue.push(completion(1)), Some(CqEvent::Notify));
        assert_eq!(queue.push(completion(2)), None);
        rest(&mut queue);
        assert!(!queue.request_notify(false));
        assert!(!queue.request_notify(false));
        assert_eq!(queue.push(completion(3)), Some(CqEvent::Notify));
        assert_eq!(queue.push(completion(4)), None, "armed twice is armed");
    }

    //= R34, 04-4.15 test
    #[test]
    fn solicited_means_asked_for_or_failed() {
        let solicited = Completion { solicited: true, ..completion(1) };
        let failed = Completion { status: CompletionStatus::Flushed, ..completion(1) };
        for wanted in [solicited, failed] {
            let mut queue = CompletionQueue::new(8);
            queue.request_notify(true);
            assert_eq!(queue.push(completion(0)), None);
            assert_eq!(queue.push(wanted), Some(CqEvent::Notify));
            assert_eq!(queue.push(wanted), None);
        }
        let mut queue = CompletionQueue::new(8);
        queue.request_notify(false);
        queue.request_notify(true);
        assert_eq!(queue.push(completion(0)), Some(CqEvent::Notify), "not weakened");
        queue.request_notify(true);
        queue.request_notify(false);
        assert_eq!(queue.push(completion(0)), Some(CqEvent::Notify), "but strengthened");
    }

    //= BC-101 test
    #[test]
    fn resizing_keeps_what_is_there() {
        let mut queue = full(4);
        queue.pop();
        assert_eq!(queue.resize(2), Err(ResizeError { waiting: 3 }));
        assert_eq!(queue.depth(), 4);
        assert_eq!(queue.resize(3), Ok(()));
        assert_eq!(queue.push(completion(4)), Some(CqEvent::Overrun));
        let mut queue = full(4);
        assert_eq!(queue.resize(5), Ok(()));
        assert_eq!(queue.push(completion(4)), None);
        assert_eq!(rest(&mut queue), [0, 1, 2, 3, 4]);
    }

    //= 05-5.2, BC-106 test
    #[test]
    fn a_queue_pair_that_goes_takes_its_completions_along() {
        let mut queue = full(5);
        queue.purge(Qpn::new(100));
        assert_eq!(queue.len(), 2);
        assert_eq!(rest(&mut queue), [1, 3]);
    }

    //= IBA C11-17 test
    #[test]
    fn a_queue_in_use_cannot_go() {
        let mut queue = CompletionQueue::new(1);
        queue.users.acquire();
        assert_eq!(queue.users.none_left(), Err(InUse { users: 1 }));
        queue.users.release();
        assert_eq!(queue.users.none_left(), Ok(()));
    }
}
