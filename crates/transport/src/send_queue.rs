//! The send queue: requests from posting to completion, and where their packets stand.
//!
//! Requests are kept in order until they complete, because any of their packets may have to be sent
//! again. What most of them have, one scatter/gather element or a few inline bytes, lies in the
//! request itself; longer lists, more bytes and where datagrams go lie in rings beside them. So a
//! short request touches little memory, and nothing is allocated once the rings have grown to what
//! an application uses.

use std::collections::VecDeque;

use roxe_wire::{MAX_MESSAGE_LEN, Mtu, Psn, packets_for};

use crate::adapter::SgeList;
use crate::failure::LocalFailure;
use crate::work::{Data, DatagramTarget, PostError, SendOperation, SendRequest, Sge};

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

/// Where a request's bytes are. Places in the rings are counted since the queue was made.
#[derive(Clone, Copy, Debug)]
enum Stored {
    /// One element.
    Region(Sge),
    /// Elements in the ring.
    Regions { start: u64, count: u32 },
    /// So few inline bytes that they fit here: the first of these.
    Short([u8; SHORT]),
    /// Inline bytes in the ring.
    Inline { start: u64 },
}

/// How many inline bytes take no more room than an element.
const SHORT: usize = size_of::<Sge>();

/// A request in the queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wqe {
    pub(crate) wr_id: u64,
    pub(crate) operation: SendOperation,
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
    pub(crate) failed: Option<LocalFailure>,
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
            _ => packets_for(self.len, mtu.bytes()),
        }
    }
}

/// The requests of one queue pair that have not completed.
#[derive(Debug)]
pub(crate) struct SendQueue {
    capacity: SendCapacity,
    wqes: VecDeque<Wqe>,
    /// Made when the first request needs it.
    beside: Option<Box<Beside>>,
}

/// What does not fit the requests.
#[derive(Debug, Default)]
struct Beside {
    sges: VecDeque<Sge>,
    /// How many elements have left the front of `sges`.
    sges_gone: u64,
    inline: VecDeque<u8>,
    inline_gone: u64,
    /// Of datagrams: one for each request.
    targets: VecDeque<DatagramTarget>,
}

impl SendQueue {
    pub(crate) const fn new(capacity: SendCapacity) -> Self {
        Self { capacity, wqes: VecDeque::new(), beside: None }
    }

    /// Takes in a request that the service allows. `signaled` stands for the request's own.
    //= BC-077, BC-104, 04-4.14
    pub(crate) fn push(
        &mut self,
        request: &SendRequest<'_>,
        signaled: bool,
    ) -> Result<(), PostError> {
        let len = self.check(request, 0)?;
        let stored = self.store(request.data);
        if let Some(target) = request.target {
            self.beside().targets.push_back(target);
        }
        self.wqes.push_back(Wqe {
            wr_id: request.wr_id,
            operation: request.operation,
            signaled,
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

    /// Whether it would take a request behind `ahead` more; says how many bytes the message has.
    pub(crate) fn check(&self, request: &SendRequest<'_>, ahead: usize) -> Result<u32, PostError> {
        let SendCapacity { depth, max_sge, max_inline } = self.capacity;
        if self.wqes.len() + ahead >= depth as usize {
            return Err(PostError::QueueFull { depth });
        }
        match request.data {
            Data::Regions(sges) if sges.len() > max_sge as usize => {
                return Err(PostError::TooManySegments { given: sges.len(), max: max_sge });
            }
            Data::Inline(bytes) if bytes.len() > max_inline as usize => {
                return Err(PostError::InlineTooLong { given: bytes.len(), max: max_inline });
            }
            Data::Regions(_) | Data::Inline(_) => {}
        }
        let len = match request.operation {
            SendOperation::Flush { len, .. } => u64::from(len),
            _ => request.data.len(),
        };
        let too_long = PostError::MessageTooLong { len };
        let len = u32::try_from(len).map_err(|_| too_long)?;
        if len > MAX_MESSAGE_LEN { Err(too_long) } else { Ok(len) }
    }

    fn beside(&mut self) -> &mut Beside {
        self.beside.get_or_insert_default()
    }

    /// Keeps what a request is about.
    //= Q16, 05-5.7
    fn store(&mut self, data: Data<'_>) -> Stored {
        match data {
            Data::Regions(&[sge]) => Stored::Region(sge),
            Data::Regions(sges) => {
                let beside = self.beside();
                let start = beside.sges_gone + beside.sges.len() as u64;
                beside.sges.extend(sges);
                Stored::Regions { start, count: u32::try_from(sges.len()).unwrap_or(u32::MAX) }
            }
            Data::Inline(bytes) if bytes.len() <= SHORT => {
                let mut short = [0; SHORT];
                short[..bytes.len()].copy_from_slice(bytes);
                Stored::Short(short)
            }
            Data::Inline(bytes) => {
                let beside = self.beside();
                let start = beside.inline_gone + beside.inline.len() as u64;
                beside.inline.extend(bytes);
                Stored::Inline { start }
            }
        }
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

    /// Where the oldest request goes, if it is a datagram.
    pub(crate) fn front_target(&self) -> Option<DatagramTarget> {
        self.beside.as_ref()?.targets.front().copied()
    }

    /// The scatter/gather elements of a request; none when its data is inline.
    pub(crate) fn sges<'a>(&'a self, wqe: &'a Wqe) -> SgeList<'a> {
        match (&wqe.stored, &self.beside) {
            (Stored::Region(sge), _) => SgeList(core::slice::from_ref(sge), &[]),
            (Stored::Regions { start, count }, Some(beside)) => {
                let at = usize::try_from(start - beside.sges_gone).unwrap_or(0);
                let (a, b) = range(beside.sges.as_slices(), at, *count as usize);
                SgeList(a, b)
            }
            _ => SgeList(&[], &[]),
        }
    }

    /// The inline bytes of a request from `offset` on; `None` when its data is in regions.
    pub(crate) fn inline<'a>(
        &'a self,
        wqe: &'a Wqe,
        offset: u32,
        len: u32,
    ) -> Option<(&'a [u8], &'a [u8])> {
        let (offset, len) = (offset as usize, len as usize);
        match &wqe.stored {
            Stored::Region(_) | Stored::Regions { .. } => None,
            Stored::Short(bytes) => Some((bytes.get(offset..offset + len)?, &[])),
            Stored::Inline { start } => {
                let beside = self.beside.as_deref()?;
                let at = usize::try_from(start - beside.inline_gone).unwrap_or(0) + offset;
                Some(range(beside.inline.as_slices(), at, len))
            }
        }
    }

    /// Forgets the oldest request.
    pub(crate) fn drop_front(&mut self) {
        let Some(wqe) = self.wqes.front() else { return };
        if let Some(beside) = &mut self.beside {
            match wqe.stored {
                Stored::Region(_) | Stored::Short(_) => {}
                Stored::Regions { count, .. } => {
                    beside.sges.drain(..count as usize);
                    beside.sges_gone += u64::from(count);
                }
                Stored::Inline { .. } => {
                    beside.inline.drain(..wqe.len as usize);
                    beside.inline_gone += u64::from(wqe.len);
                }
            }
            beside.targets.pop_front();
        }
        self.wqes.pop_front();
    }

    /// Forgets all requests, without completions.
    pub(crate) fn clear(&mut self) {
        self.wqes.clear();
        if let Some(beside) = &mut self.beside {
            beside.sges.clear();
            beside.inline.clear();
            beside.targets.clear();
        }
    }

    /// The index of the begun request that has `psn` among its PSNs.
    pub(crate) fn find(&self, psn: Psn) -> Option<usize> {
        let front = self.wqes.front()?;
        if front.begun && psn.is_within(front.psn, front.span) {
            return Some(0); // So it is mostly.
        }
        let base = front.psn;
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
