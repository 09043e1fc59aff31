//! Receive queues, of one queue pair or shared by several.
//!
//! IBA vol 1 §10.2.9, §10.8.3. A request keeps its slot from the call that posts it to its
//! completion, so its scatter list can be read while a message comes in packet by packet. Slots and
//! scatter lists are reused; memory grows with the most requests that were ever in the queue at
//! once, and an idle queue takes none.
//!
//! The scatter lists of a shared queue are checked against the queue's protection domain, not the
//! queue pair's.

use core::fmt;

use roxe_transport::adapter::Receive;
use roxe_transport::work::{PostError, ReceiveRequest, Sge};

use crate::protection_domain::Pd;
use crate::users::Users;

/// A receive queue.
#[derive(Clone, Debug)]
pub struct ReceiveQueue {
    pd: Pd,
    slots: Vec<Slot>,
    /// `max_sge` elements per slot.
    sges: Vec<Sge>,
    max_sge: u32,
    depth: u32,
    /// In the order in which they were posted.
    waiting: List,
    free: List,
    /// Slots taken by queue pairs and not given back.
    taken: u32,
    /// Below how many waiting requests the event is due; 0 for never.
    limit: u32,
    /// The queue pairs that take requests from here.
    pub users: Users,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    wr_id: u64,
    /// Bytes of all elements.
    len: u32,
    sge_count: u32,
    /// What follows in the list that it is in.
    next: u32,
    is_taken: bool,
}

/// The number of waiting requests fell below the limit: `IBV_EVENT_SRQ_LIMIT_REACHED`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitReached;

impl ReceiveQueue {
    /// An empty queue for up to `depth` requests of up to `max_sge` elements, whose scatter lists
    /// belong to `pd`.
    pub const fn new(pd: Pd, depth: u32, max_sge: u32) -> Self {
        Self {
            pd,
            slots: Vec::new(),
            sges: Vec::new(),
            max_sge,
            depth,
            waiting: List::EMPTY,
            free: List::EMPTY,
            taken: 0,
            limit: 0,
            users: Users::NONE,
        }
    }

    /// The same queue with the limit event armed, for its first request that is taken: that a new
    /// queue is empty is no news.
    ///
    /// # Errors
    /// [`ModifyError::LimitTooHigh`].
    pub fn armed(self, limit: u32) -> Result<Self, ModifyError> {
        if limit > self.depth {
            return Err(ModifyError::LimitTooHigh { depth: self.depth });
        }
        Ok(Self { limit, ..self })
    }

    /// Adds a request behind all others. Requests that were taken and not given back count.
    ///
    /// # Errors
    /// [`PostError::TooManySegments`]; [`PostError::QueueFull`].
    pub fn post(&mut self, request: &ReceiveRequest<'_>) -> Result<(), PostError> {
        let given = request.sges.len();
        if given > self.max_sge as usize {
            return Err(PostError::TooManySegments { given, max: self.max_sge });
        }
        if self.outstanding() >= self.depth {
            return Err(PostError::QueueFull { depth: self.depth });
        }
        let number = match self.free.pop(&self.slots) {
            Some(number) => number,
            None => {
                self.slots.push(Slot::EMPTY);
                self.sges.resize(self.slots.len() * self.max_sge as usize, Sge::default());
                self.slots.len() as u32 - 1
            }
        };
        let at = number as usize;
        let first = at * self.max_sge as usize;
        self.sges[first..first + given].copy_from_slice(request.sges);
        let len = request.sges.iter().fold(0u32, |len, sge| len.saturating_add(sge.len));
        let (wr_id, sge_count) = (request.wr_id, given as u32);
        self.slots[at] = Slot { wr_id, len, sge_count, ..Slot::EMPTY };
        self.waiting.push(number, &mut self.slots);
        Ok(())
    }

    /// Takes the request that waits longest, for a queue pair to fill and complete. Its `len` is at
    /// most 2³²-1, more than any message has. Says too if the limit event is due, which is when
    /// fewer wait now than the limit; it is due once, and then the limit is 0.
    //= 05-5.5
    pub fn take(&mut self) -> Option<(Receive, Option<LimitReached>)> {
        let number = self.waiting.pop(&self.slots)?;
        self.taken += 1;
        let slot = &mut self.slots[number as usize];
        slot.is_taken = true;
        let receive = Receive { wr_id: slot.wr_id, slot: number, len: slot.len };
        Some((receive, self.limit_reached()))
    }

    /// The scatter list of a taken request, till it is given back. Empty for any other slot.
    pub fn sges(&self, slot: u32) -> &[Sge] {
        match self.slots.get(slot as usize) {
            Some(Slot { is_taken: true, sge_count, .. }) => {
                let first = slot as usize * self.max_sge as usize;
                self.sges.get(first..first + *sge_count as usize).unwrap_or_default()
            }
            _ => &[],
        }
    }

    /// A taken request is completed. Does nothing for any other slot.
    pub fn give_back(&mut self, slot: u32) {
        if let Some(Slot { is_taken, .. }) = self.slots.get_mut(slot as usize)
            && core::mem::replace(is_taken, false)
        {
            self.taken -= 1;
            self.free.push(slot, &mut self.slots);
        }
    }

    /// Takes the request that waits longest away and says its `wr_id`, for a queue that is flushed.
    /// Never due for the limit event. Call until `None`.
    //= 05-5.2
    pub fn flush(&mut self) -> Option<u64> {
        let number = self.waiting.pop(&self.slots)?;
        self.free.push(number, &mut self.slots);
        Some(self.slots[number as usize].wr_id)
    }

    /// Forgets all requests, and gives the memory back: the queue pair is reset.
    //= 05-5.2
    pub fn clear(&mut self) {
        let Self { pd, depth, max_sge, users, limit, .. } = *self;
        *self = Self { users, limit, ..Self::new(pd, depth, max_sge) };
    }

    /// Arms the limit event: it is due when fewer than `limit` requests wait, at once if that is so
    /// already. 0 disarms.
    ///
    /// # Errors
    /// [`ModifyError::LimitTooHigh`]: above the depth it would always be due.
    //= 05-5.5
    pub fn arm(&mut self, limit: u32) -> Result<Option<LimitReached>, ModifyError> {
        if limit > self.depth {
            return Err(ModifyError::LimitTooHigh { depth: self.depth });
        }
        self.limit = limit;
        Ok(self.limit_reached())
    }

    /// Another depth.
    ///
    /// # Errors
    /// As [`ReceiveQueue::modify`].
    pub fn resize(&mut self, depth: u32) -> Result<(), ModifyError> {
        self.modify(Some(depth), None).map(|_| ())
    }

    /// Another depth, another limit, which is armed, or both.
    ///
    /// # Errors
    /// [`ModifyError::TooSmall`]: more requests are in the queue. [`ModifyError::LimitTooHigh`],
    /// as depth and limit then are. Nothing has changed.
    //= 05-5.5
    pub fn modify(
        &mut self,
        depth: Option<u32>,
        limit: Option<u32>,
    ) -> Result<Option<LimitReached>, ModifyError> {
        let outstanding = self.outstanding();
        if depth.is_some_and(|depth| depth < outstanding) {
            return Err(ModifyError::TooSmall { outstanding });
        }
        let depth = depth.unwrap_or(self.depth);
        if limit.unwrap_or(self.limit) > depth {
            return Err(ModifyError::LimitTooHigh { depth });
        }
        self.depth = depth;
        limit.map_or(Ok(None), |limit| self.arm(limit))
    }

    /// Whether no request waits.
    pub const fn is_empty(&self) -> bool {
        self.waiting.len == 0
    }

    /// How many requests wait.
    pub const fn waiting(&self) -> u32 {
        self.waiting.len
    }

    /// How many requests take up room: those that wait and those that were taken.
    pub const fn outstanding(&self) -> u32 {
        self.waiting.len + self.taken
    }

    /// How many requests there is room for.
    pub const fn depth(&self) -> u32 {
        self.depth
    }

    /// How many elements a request may have.
    pub const fn max_sge(&self) -> u32 {
        self.max_sge
    }

    /// Below how many waiting requests the event is due; 0 when it is not armed.
    pub const fn limit(&self) -> u32 {
        self.limit
    }

    /// The protection domain of the scatter lists.
    pub const fn pd(&self) -> Pd {
        self.pd
    }

    /// Whether the event is due; then it is disarmed.
    //= 05-5.5, S01
    fn limit_reached(&mut self) -> Option<LimitReached> {
        if self.waiting.len >= self.limit {
            return None;
        }
        self.limit = 0;
        Some(LimitReached)
    }
}

impl Slot {
    const EMPTY: Self = Self { wr_id: 0, len: 0, sge_count: 0, next: 0, is_taken: false };
}

/// A list of slots, first in first out, linked through them.
#[derive(Clone, Copy, Debug)]
struct List {
    /// The first; means nothing when there is none.
    first: u32,
    /// The last; means nothing when there is none.
    last: u32,
    len: u32,
}

impl List {
    const EMPTY: Self = Self { first: 0, last: 0, len: 0 };

    fn push(&mut self, number: u32, slots: &mut [Slot]) {
        if self.len == 0 {
            self.first = number;
        } else {
            slots[self.last as usize].next = number;
        }
        self.last = number;
        self.len += 1;
    }

    fn pop(&mut self, slots: &[Slot]) -> Option<u32> {
        self.len = self.len.checked_sub(1)?;
        let number = self.first;
        self.first = slots[number as usize].next;
        Some(number)
    }
}

/// Why a shared receive queue cannot be changed so. `EINVAL`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModifyError {
    /// More requests are in the queue.
    TooSmall {
        /// How many.
        outstanding: u32,
    },
    /// The limit is above the depth.
    LimitTooHigh {
        /// How many requests there is room for.
        depth: u32,
    },
}

impl fmt::Display for ModifyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooSmall { outstanding } => write!(f, "{outstanding} requests are in the queue"),
            Self::LimitTooHigh { depth } => write!(f, "the limit is above the depth of {depth}"),
        }
    }
}

impl core::error::Error for ModifyError {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use roxe_wire::LKey;

    use super::*;

    fn sge(len: u32) -> Sge {
        Sge { va: 0x1000, len, l_key: LKey(7) }
    }

    fn queue(depth: u32, posted: u64) -> ReceiveQueue {
        let mut queue = ReceiveQueue::new(Pd(1), depth, 2);
        for wr_id in 0..posted {
            queue.post(&ReceiveRequest { wr_id, sges: &[sge(wr_id as u32)] }).unwrap();
        }
        queue
    }

    #[test]
    fn a_request_keeps_its_list_until_it_is_given_back() {
        let mut queue = queue(2, 0);
        let sges = [sge(10), sge(20)];
        queue.post(&ReceiveRequest { wr_id: 1, sges: &sges }).unwrap();
        queue.post(&ReceiveRequest { wr_id: 2, sges: &[] }).unwrap();
        assert_eq!(queue.sges(0), [], "nobody took it yet");

        let (receive, _) = queue.take().unwrap();
        assert_eq!(receive, Receive { wr_id: 1, slot: receive.slot, len: 30 });
        assert_eq!(queue.sges(receive.slot), sges);
        assert_eq!((queue.waiting(), queue.outstanding()), (1, 2));
        let more = ReceiveRequest { wr_id: 3, sges: &[sge(30)] };
        assert_eq!(queue.post(&more), Err(PostError::QueueFull { depth: 2 }));

        queue.give_back(receive.slot);
        queue.give_back(receive.slot);
        queue.give_back(99);
        assert_eq!((queue.sges(receive.slot), queue.sges(99)), (&[][..], &[][..]));
        assert_eq!(queue.post(&more), Ok(()));
        assert_eq!(queue.post(&more), Err(PostError::QueueFull { depth: 2 }));
        assert_eq!(queue.take().unwrap().0.len, 0);
        assert_eq!(queue.take().unwrap().0.len, 30);
        assert_eq!(queue.take(), None);
    }

    #[test]
    fn a_list_has_no_more_elements_than_agreed() {
        let mut queue = queue(1, 0);
        let refused = PostError::TooManySegments { given: 3, max: 2 };
        let three = [sge(u32::MAX); 3];
        assert_eq!(queue.post(&ReceiveRequest { wr_id: 0, sges: &three }), Err(refused));
        assert_eq!(queue.post(&ReceiveRequest { wr_id: 0, sges: &three[..2] }), Ok(()));
        assert_eq!(queue.take().unwrap().0.len, u32::MAX);
    }

    //= 05-5.5 test
    #[test]
    fn the_limit_event_comes_once_when_fewer_wait() {
        let mut queue = queue(8, 5);
        assert_eq!(queue.arm(4), Ok(None));
        let mut due = || queue.take().unwrap().1;
        assert_eq!([due(), due(), due()], [None, Some(LimitReached), None]);
        assert_eq!((queue.limit(), queue.waiting()), (0, 2));
    }

    //= 05-5.5 test
    #[test]
    fn arming_below_the_limit_fires_at_once() {
        let mut queue = queue(8, 3);
        assert_eq!(queue.arm(3), Ok(None));
        assert_eq!(queue.arm(4), Ok(Some(LimitReached)));
        assert_eq!((queue.limit(), queue.take().unwrap().1), (0, None));
        assert_eq!(queue.arm(0), Ok(None));
        assert_eq!(queue.arm(9), Err(ModifyError::LimitTooHigh { depth: 8 }));
    }

    //= 05-5.5 test
    #[test]
    fn the_depth_follows_but_not_below_what_is_there() {
        let mut queue = queue(8, 4);
        queue.take().unwrap();
        assert_eq!(queue.resize(3), Err(ModifyError::TooSmall { outstanding: 4 }));
        assert_eq!(queue.resize(4), Ok(()));
        let more = ReceiveRequest { wr_id: 9, sges: &[] };
        assert_eq!(queue.post(&more), Err(PostError::QueueFull { depth: 4 }));
        assert_eq!(queue.resize(5), Ok(()));
        assert_eq!(queue.post(&more), Ok(()));
        assert_eq!(queue.arm(4), Ok(None));
        while queue.flush().is_some() {}
        assert_eq!(queue.limit(), 4, "a flush is no use of requests");
        assert_eq!(queue.resize(3), Err(ModifyError::LimitTooHigh { depth: 3 }));
    }

    //= 05-5.2 test
    #[test]
    fn what_waits_is_flushed_in_order_and_what_was_taken_is_not() {
        let mut queue = queue(8, 4);
        let (taken, _) = queue.take().unwrap();
        let flushed: Vec<u64> = core::iter::from_fn(|| queue.flush()).collect();
        assert_eq!((taken.wr_id, flushed), (0, vec![1, 2, 3]));
        assert_eq!((queue.is_empty(), queue.outstanding()), (true, 1));
        assert_eq!(queue.sges(taken.slot), [sge(0)]);
        queue.clear();
        assert_eq!((queue.outstanding(), queue.depth(), queue.max_sge()), (0, 8, 2));
        assert_eq!((queue.sges(taken.slot), queue.pd()), (&[][..], Pd(1)));
    }

    proptest! {
        #[test]
        fn requests_come_in_order_whatever_happens(
            steps in prop::collection::vec((0..4, 0..8usize), 0..200),
        ) {
            let mut queue = queue(6, 0);
            let mut posted = std::collections::VecDeque::new();
            let mut taken = Vec::new();
            for (wr_id, (step, which)) in (0..).zip(steps) {
                match step {
                    0 | 1 => {
                        let fits = posted.len() + taken.len() < 6;
                        let sges = [sge(wr_id as u32)];
                        let result = queue.post(&ReceiveRequest { wr_id, sges: &sges });
                        prop_assert_eq!(result.is_ok(), fits);
                        if fits {
                            posted.push_back(wr_id);
                        }
                    }
                    2 => {
                        let receive = queue.take().map(|(receive, _)| receive);
                        prop_assert_eq!(receive.map(|r| r.wr_id), posted.pop_front());
                        taken.extend(receive);
                    }
                    _ if which < taken.len() => {
                        let receive = taken.swap_remove(which);
                        queue.give_back(receive.slot);
                    }
                    _ => {}
                }
                for receive in &taken {
                    prop_assert_eq!(queue.sges(receive.slot), [sge(receive.wr_id as u32)]);
                }
                prop_assert_eq!(queue.waiting() as usize, posted.len());
                prop_assert_eq!(queue.outstanding() as usize, posted.len() + taken.len());
                prop_assert!(queue.slots.len() <= 6);
            }
        }
    }
}
