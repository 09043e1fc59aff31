//! The send queue: requests from posting to completion, and where their packets stand.
//!
//! Requests are kept in order until they complete, because any of their packets may have to be sent
//! again. Scatter lists and inline bytes lie in rings beside them, so that a short request costs
//! little and nothing is allocated once the rings have grown to what an application uses.

use std::collections::VecDeque;

use roxe_wire::{Mtu, Psn};

use crate::adapter::SgeList;
use crate::segment;
use crate::work::{
    CompletionStatus, Data, DatagramTarget, MAX_MESSAGE_LEN, PostError, SendOperation, SendRequest,
    Sge,
};

/// How large a send queue is: the part of `ibv_qp_cap` that concerns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendCapacity {
    /// Requests.
    pub depth: u32,
    /// Scatter/gather elements of one request.
    pub max_sge: u32,
    /// Inline bytes of one request.
    pub max_inline: u32,
}

/// Where a request's bytes lie in the rings, counted since the queue was made.
#[derive(Clone, Copy, Debug)]
enum Stored {
    Regions { start: u64, count: u32 },
    Inline { start: u64 },
}

/// A request in the queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wqe {
    pub(crate) wr_id: u64,
    pub(crate) operation: SendOperation,
    pub(crate) target: Option<DatagramTarget>,
    pub(crate) signaled: bool,
    pub(crate) solicited: bool,
    pub(crate) fence: bool,
    stored: Stored,
    /// Bytes of the message.
    pub(crate) len: u32,
    /// Whether sending has come as far as this request, so that its PSNs are fixed.
    pub(crate) begun: bool,
    /// How many PSNs it takes, once begun; 0 for local requests.
    pub(crate) span: u32,
    /// Its first PSN, once begun.
    pub(crate) psn: Psn,
    /// READ: how many response packets came in order.
    pub(crate) received: u32,
    /// It failed here, and completes so once all before it have completed.
    pub(crate) failed: Option<CompletionStatus>,
    /// A local request that is done, or a fetching one whose answer is complete.
    pub(crate) done: bool,
}

impl Wqe {
    /// The PSN after its last one.
    pub(crate) const fn end(&self) -> Psn {
        self.psn.advance(self.span)
    }

    /// How many PSNs it will take at this path MTU.
    pub(crate) const fn packets(&self, mtu: Mtu) -> u32 {
        match self.operation {
            SendOperation::CompareSwap { .. }
            | SendOperation::FetchAdd { .. }
            | SendOperation::AtomicWrite(_)
            | SendOperation::Flush { .. } => 1,
            _ => segment::packets(self.len, mtu),
        }
    }
}

/// The requests of one queue pair that have not completed.
#[derive(Debug)]
pub(crate) struct SendQueue {
    capacity: SendCapacity,
    wqes: VecDeque<Wqe>,
    sges: VecDeque<Sge>,
    /// How many elements have left the front of `sges`.
    sges_gone: u64,
    inline: VecDeque<u8>,
    inline_gone: u64,
}

impl SendQueue {
    pub(crate) const fn new(capacity: SendCapacity) -> Self {
        Self {
            capacity,
            wqes: VecDeque::new(),
            sges: VecDeque::new(),
            sges_gone: 0,
            inline: VecDeque::new(),
            inline_gone: 0,
        }
    }

    pub(crate) const fn capacity(&self) -> SendCapacity {
        self.capacity
    }

    /// Takes in a request that the service allows.
    pub(crate) fn push(&mut self, request: &SendRequest<'_>) -> Result<(), PostError> {
        let SendCapacity { depth, max_sge, max_inline } = self.capacity;
        if self.wqes.len() >= depth as usize {
            return Err(PostError::QueueFull { depth });
        }
        let (len, stored) = match request.data {
            Data::Regions(sges) => {
                if sges.len() > max_sge as usize {
                    return Err(PostError::TooManySegments { given: sges.len(), max: max_sge });
                }
                let len = sges.iter().map(|sge| u64::from(sge.len)).sum::<u64>();
                let start = self.sges_gone + self.sges.len() as u64;
                let count = u32::try_from(sges.len()).unwrap_or(u32::MAX);
                (len, Stored::Regions { start, count })
            }
            Data::Inline(bytes) => {
                if bytes.len() > max_inline as usize {
                    return Err(PostError::InlineTooLong { given: bytes.len(), max: max_inline });
                }
                let start = self.inline_gone + self.inline.len() as u64;
                (bytes.len() as u64, Stored::Inline { start })
            }
        };
        let len = match request.operation {
            SendOperation::Flush { len, .. } => u64::from(len),
            _ => len,
        };
        let too_long = PostError::MessageTooLong { len };
        let len = u32::try_from(len).map_err(|_| too_long)?;
        if len > MAX_MESSAGE_LEN {
            return Err(too_long);
        }
        match request.data {
            Data::Regions(sges) => self.sges.extend(sges),
            Data::Inline(bytes) => self.inline.extend(bytes),
        }
        self.wqes.push_back(Wqe {
            wr_id: request.wr_id,
            operation: request.operation,
            target: request.target,
            signaled: request.signaled,
            solicited: request.solicited,
            fence: request.fence,
            stored,
            len,
            begun: false,
            span: 0,
            psn: Psn::default(),
            received: 0,
            failed: None,
            done: false,
        });
        Ok(())
    }

    pub(crate) fn len(&self) -> usize {
        self.wqes.len()
    }

    pub(crate) fn get(&self, index: usize) -> Option<&Wqe> {
        self.wqes.get(index)
    }

    pub(crate) fn get_mut(&mut self, index: usize) -> Option<&mut Wqe> {
        self.wqes.get_mut(index)
    }

    pub(crate) fn front(&self) -> Option<&Wqe> {
        self.wqes.front()
    }

    /// The scatter/gather elements of a request; none when its data is inline.
    pub(crate) fn sges(&self, wqe: &Wqe) -> SgeList<'_> {
        let Stored::Regions { start, count } = wqe.stored else { return SgeList(&[], &[]) };
        let at = usize::try_from(start - self.sges_gone).unwrap_or(0);
        let (a, b) = range(self.sges.as_slices(), at, count as usize);
        SgeList(a, b)
    }

    /// The inline bytes of a request from `offset` on; `None` when its data is in regions.
    pub(crate) fn inline(&self, wqe: &Wqe, offset: u32, len: u32) -> Option<(&[u8], &[u8])> {
        let Stored::Inline { start } = wqe.stored else { return None };
        let at = usize::try_from(start - self.inline_gone).unwrap_or(0) + offset as usize;
        Some(range(self.inline.as_slices(), at, len as usize))
    }

    /// Takes the oldest request out.
    pub(crate) fn pop(&mut self) -> Option<Wqe> {
        let wqe = self.wqes.pop_front()?;
        match wqe.stored {
            Stored::Regions { count, .. } => {
                self.sges.drain(..count as usize);
                self.sges_gone += u64::from(count);
            }
            Stored::Inline { .. } => {
                self.inline.drain(..wqe.len as usize);
                self.inline_gone += u64::from(wqe.len);
            }
        }
        Some(wqe)
    }

    /// Forgets all requests, without completions.
    pub(crate) fn clear(&mut self) {
        while self.pop().is_some() {}
    }

    /// The index of the begun request that has `psn` among its PSNs.
    pub(crate) fn find(&self, psn: Psn) -> Option<usize> {
        let base = self.wqes.front()?.psn;
        let distance = psn.since(base);
        let after = self.wqes.partition_point(|wqe| wqe.begun && wqe.psn.since(base) <= distance);
        // A local request takes no PSN and shares that of the next one.
        let before = self.wqes.range(..after).rev();
        let local = before.take_while(|wqe| wqe.span == 0).count();
        let index = after.checked_sub(local + 1)?;
        psn.is_within(self.wqes[index].psn, self.wqes[index].span).then_some(index)
    }
}

/// `len` items from `at` of two slices that follow each other.
fn range<'a, T>((a, b): (&'a [T], &'a [T]), at: usize, len: usize) -> (&'a [T], &'a [T]) {
    let end = at + len;
    if at >= a.len() {
        (&b[at - a.len()..end - a.len()], &[])
    } else if end <= a.len() {
        (&a[at..end], &[])
    } else {
        (&a[at..], &b[..end - a.len()])
    }
}
