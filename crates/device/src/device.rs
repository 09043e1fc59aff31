//! The emulated adapter.
//!
//! It moves only when one of its calls moves it, and it never reads a clock, a socket, a thread or
//! a random source of its own.

use std::collections::VecDeque;
use std::net::IpAddr;

use roxe_transport::adapter::{Count, QpEvent};
use roxe_transport::conduct::Conduct;
use roxe_transport::qp_state::{QpState, ServiceType};
use roxe_transport::work::{Completion, PathId, PostError, ReceiveRequest, SendRequest};
use roxe_transport::{Emitted, Outlet, QueuePair, SendCapacity};
use roxe_wire::{ICRC_LEN, Instant, Qpn, TrafficClass};

use crate::adapter::{Belongings, QpAdapter, flushed};
use crate::congestion::{Congestion, Notifications};
use crate::counters::{Counters, QpCounters};
use crate::gid_table::GidTable;
use crate::host_memory::HostMemory;
use crate::limits::Limits;
use crate::memory::MemoryTable;
use crate::multicast::MulticastGroups;
use crate::path::Paths;
use crate::protection_domain::{Pd, ProtectionDomains};
use crate::queue_pair_numbers::QueuePairNumbers;
use crate::slots::Slots;
use crate::tables::Tables;
use crate::timers::{Armed, Timers};
use crate::transmit::{Kind, Standing, Turns};

/// The emulated adapter: all its objects, and the queues between them and the wire.
#[derive(Debug)]
pub struct Device<H> {
    pub(crate) limits: Limits,
    pub(crate) numbers: QueuePairNumbers,
    pub(crate) queue_pairs: ByNumber,
    pub(crate) tables: Tables<H>,
    pub(crate) turns: Turns,
    /// How queue pairs behave that are made from now on.
    pub(crate) conduct: Conduct,
    pub(crate) timers: Timers,
    pub(crate) congestion: Congestion,
    pub(crate) notifications: Notifications,
}

/// A queue pair and what the device keeps about it.
#[derive(Debug)]
pub(crate) struct QpSlot {
    pub(crate) qp: QueuePair,
    pub(crate) own: Belongings,
    /// Whom a connected queue pair talks to; packets from elsewhere are dropped.
    pub(crate) peer: Option<Peer>,
    pub(crate) path: Option<PathId>,
    pub(crate) standing: Standing,
    pub(crate) armed: Armed,
    pub(crate) counters: QpCounters,
    /// When who sends to it was told last that packets came marked.
    pub(crate) notified: Option<Instant>,
    /// Where its last datagram went.
    pub(crate) last_target: Option<PathId>,
}

impl QpSlot {
    /// [`Device::with`], for who has the slot already.
    #[inline]
    pub(crate) fn run<H: HostMemory, R>(
        &mut self,
        index: u32,
        tables: &mut Tables<H>,
        turns: &mut Turns,
        timers: &mut Timers,
        call: impl FnOnce(&mut QueuePair, &mut QpAdapter<'_, H>) -> R,
    ) -> R {
        let Self { qp, own, counters, .. } = self;
        let mut adapter = QpAdapter { tables, own, counters };
        let result = call(qp, &mut adapter);
        if adapter.tables.completion_lost {
            completion_lost(qp, &mut adapter);
        }
        if self.qp.has_response() {
            turns.ready(index, &mut self.standing, Kind::Response);
        }
        if self.qp.has_request() {
            turns.ready(index, &mut self.standing, Kind::Request);
        }
        timers.arm(index, &mut self.armed, self.qp.deadline());
        result
    }
}

/// The queue pairs, each in the slot that its number leads to.
#[derive(Debug, Default)]
pub(crate) struct ByNumber(Vec<Option<QpSlot>>);

impl ByNumber {
    pub(crate) fn get(&self, index: u32) -> Option<&QpSlot> {
        self.0.get(index as usize)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, index: u32) -> Option<&mut QpSlot> {
        self.0.get_mut(index as usize)?.as_mut()
    }

    pub(crate) fn places(&self) -> u32 {
        u32::try_from(self.0.len()).unwrap_or(u32::MAX)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &QpSlot> {
        self.0.iter().flatten()
    }

    pub(crate) fn put(&mut self, index: u32, slot: QpSlot) {
        let index = index as usize;
        if self.0.len() <= index {
            self.0.resize_with(index + 1, || None);
        }
        self.0[index] = Some(slot);
    }

    pub(crate) fn remove(&mut self, index: u32) -> Option<QpSlot> {
        self.0.get_mut(index as usize)?.take()
    }
}

/// The two addresses of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Ours.
    pub own: IpAddr,
    /// The peer's.
    pub other: IpAddr,
    /// The VLAN of ours, 1 ..= 4094; `None` for untagged packets.
    pub vlan: Option<u16>,
}

/// What a queue pair is made of: `ibv_qp_init_attr`.
#[derive(Clone, Copy, Debug)]
pub struct QueuePairInit {
    /// Its service.
    pub service: ServiceType,
    /// Its protection domain.
    pub pd: Pd,
    /// Where its send requests complete.
    pub send_cq: CqId,
    /// Where its receives complete.
    pub receive_cq: CqId,
    /// The shared receive queue it takes receives from; `None` for one of its own.
    pub srq: Option<ReceiveQueueId>,
    /// How large its send queue is.
    pub send: SendCapacity,
    /// How many receives it may hold, and scatter elements of each.
    pub receive: ReceiveCapacity,
    /// Whether every send request is completed.
    pub signal_all: bool,
}

/// How large a receive queue is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiveCapacity {
    /// Requests.
    pub depth: u32,
    /// Scatter elements of one.
    pub max_sge: u32,
}

/// Names a completion queue of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CqId(pub u32);

/// Names a receive queue of a device; applications see only the shared ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReceiveQueueId(pub u32);

/// What the application should hear about: `ibv_async_event`, and completion channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Something happened to a queue pair.
    QueuePair(Qpn, QpEvent),
    /// A completion queue that was armed has a completion.
    CompletionNotify(CqId),
    /// A completion queue overflowed.
    CompletionQueueError(CqId),
    /// A shared receive queue runs short.
    SrqLimitReached(ReceiveQueueId),
}

/// A packet to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Where it goes.
    pub path: PathId,
    /// Its traffic class, if it is not the path's: of notifications.
    pub traffic_class: Option<TrafficClass>,
    /// What was written.
    pub packet: Emitted,
}

impl<H: HostMemory> Device<H> {
    /// Gives out numbers of queue pairs from now on as one of `seats` devices at the same address,
    /// of which none gives out a number of another's: all have the same limits and the same seed.
    /// Whoever follows another on its seat has a `chance` of its own, and so begins with numbers
    /// that the other did not have. What others are meant by is not taken for ours.
    ///
    /// # Panics
    /// When there are queue pairs already, or as [`QueuePairNumbers::shared`].
    pub fn share_numbers(&mut self, seed: u64, seat: u32, seats: u32, chance: u64) {
        assert!(self.queue_pairs.places() == 0, "a queue pair has a number already");
        self.numbers = QueuePairNumbers::shared(seed, self.limits.max_qp, seat, seats, chance);
    }

    /// A device without any object. Who has the seed can compute its keys and numbers.
    pub fn new(limits: Limits, seed: u64, host: H) -> Self {
        Self {
            numbers: QueuePairNumbers::new(seed, limits.max_qp),
            queue_pairs: ByNumber::default(),
            tables: Tables {
                pds: ProtectionDomains::new(limits.max_pd),
                memory: MemoryTable::new(seed, limits.max_mr, limits.max_mw),
                host,
                completion_queues: Slots::new(limits.max_cq),
                receive_queues: Slots::new(limits.max_qp.saturating_add(limits.max_srq)),
                shared_queues: 0,
                gids: GidTable::new(limits.gid_table_len),
                paths: Paths::new(limits.max_qp, limits.max_ah),
                groups: MulticastGroups::new(limits.max_mcast_grp, limits.max_mcast_qp_attach),
                counters: Counters::new(),
                events: VecDeque::new(),
                completion_lost: false,
            },
            turns: Turns::default(),
            conduct: Conduct::DEFAULT,
            timers: Timers::default(),
            congestion: Congestion::default(),
            notifications: Notifications::default(),
            limits,
        }
    }

    /// Queue pairs that are made from now on behave otherwise.
    pub const fn set_conduct(&mut self, conduct: Conduct) {
        self.conduct = conduct;
    }

    /// Runs one call of a queue pair with its adapter, and sees to what follows from it.
    pub(crate) fn with<R>(
        &mut self,
        index: u32,
        call: impl FnOnce(&mut QueuePair, &mut QpAdapter<'_, H>) -> R,
    ) -> Option<R> {
        let slot = self.queue_pairs.get_mut(index)?;
        Some(slot.run(index, &mut self.tables, &mut self.turns, &mut self.timers, call))
    }

    /// Writes the next packet to send into `outlet`; says its path and length. Call until `None`.
    //= BC-058, BC-107, BC-112, 05-5.10
    pub fn poll_transmit(&mut self, now: Instant, mut outlet: Outlet<'_>) -> Option<Transmit> {
        if !self.notifications.is_empty()
            && let Some(told) = self.notifications.poll(outlet.reborrow(), &mut self.tables)
        {
            return Some(told);
        }
        while let Some((index, kind)) = self.turns.next() {
            let Some(slot) = self.queue_pairs.get_mut(index) else {
                debug_assert!(false, "who is destroyed leaves the rings");
                self.turns.drop_front(kind);
                continue;
            };
            let QpSlot { qp, own, counters, .. } = slot;
            let mut adapter = QpAdapter { tables: &mut self.tables, own, counters };
            let packet = match kind {
                Kind::Response => qp.poll_response(now, outlet.reborrow(), &mut adapter),
                Kind::Request => qp.poll_request(now, outlet.reborrow(), &mut adapter),
            };
            if adapter.tables.completion_lost {
                completion_lost(qp, &mut adapter);
            }
            let more = match kind {
                Kind::Response => slot.qp.has_response(),
                Kind::Request => slot.qp.has_request(),
            };
            self.turns.done(&mut slot.standing, kind, packet.is_some(), more);
            self.timers.arm(index, &mut slot.armed, slot.qp.deadline());
            let Some(packet) = packet else { continue };
            let path = packet.path.or(slot.path);
            debug_assert!(path.is_some(), "who sends has a path");
            let Some(path) = path else { continue };
            self.tables.counters.sent(packet.len + ICRC_LEN);
            slot.counters.sent(packet.len + ICRC_LEN);
            let transmit = Transmit { path, traffic_class: None, packet };
            if packet.path.is_some() {
                slot.last_target = packet.path;
                let Outlet { room, elide } = &outlet;
                self.deliver_here(now, &transmit, [&*room.first, &*room.second], *elide);
            }
            return Some(transmit);
        }
        None
    }

    /// Whether [`Device::poll_transmit`] may have a packet.
    pub fn has_to_send(&self) -> bool {
        self.turns.next().is_some() || !self.notifications.is_empty()
    }

    /// Whether an answer to a peer may be among them.
    pub fn has_response(&self) -> bool {
        self.turns.has_response() || !self.notifications.is_empty()
    }

    /// When to call [`Device::handle_timeout`]; may change after any other call.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.timers.next()
    }

    /// When a timer of one queue pair ends, if any runs: unlike [`Device::poll_timeout`] never that
    /// of one that is stopped. `None` also when there is no such queue pair.
    pub fn queue_pair_deadline(&self, qpn: Qpn) -> Option<Instant> {
        self.slot_of(qpn)?.qp.deadline()
    }

    /// Time has passed. A spurious call does nothing.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some(index) = self.timers.pop(now) {
            let Some(slot) = self.queue_pairs.get_mut(index) else { continue };
            slot.armed.disarm();
            self.with(index, |qp, adapter| qp.handle_timeout(now, adapter));
        }
    }

    /// What the application should hear about. Call until `None`.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.tables.events.pop_front()
    }

    /// Takes in a send request: `ibv_post_send`.
    ///
    /// # Errors
    /// The request is refused; nothing was queued.
    pub fn post_send(&mut self, qpn: Qpn, request: &SendRequest<'_>) -> Result<(), PostError> {
        let index = self.numbers.index_of(qpn).ok_or(PostError::NoSuchQueue)?;
        self.check_target(index, request)?;
        self.with(index, |qp, adapter| qp.post_send(request, adapter))
            .unwrap_or(Err(PostError::NoSuchQueue))
    }

    /// Whether [`Device::post_send`] would take a request behind `ahead` more, which are to be
    /// posted before: so that of several either all are taken or none.
    ///
    /// # Errors
    /// As there.
    pub fn check_send(
        &self,
        qpn: Qpn,
        request: &SendRequest<'_>,
        ahead: usize,
    ) -> Result<(), PostError> {
        let index = self.numbers.index_of(qpn).ok_or(PostError::NoSuchQueue)?;
        self.check_target(index, request)?;
        let slot = self.queue_pairs.get(index).ok_or(PostError::NoSuchQueue)?;
        slot.qp.check_send(request, ahead)
    }

    /// A datagram goes by an address handle of its queue pair's domain.
    fn check_target(&self, index: u32, request: &SendRequest<'_>) -> Result<(), PostError> {
        let Some(target) = request.target else { return Ok(()) };
        let pd = self.queue_pairs.get(index).map(|slot| slot.own.pd);
        let handle = pd.and_then(|pd| self.tables.paths.handle(target.path, pd));
        if handle.is_some() { Ok(()) } else { Err(PostError::NoTarget) }
    }

    /// Takes in a receive request: `ibv_post_recv`. In state Error it is flushed at once.
    ///
    /// # Errors
    /// The request is refused; nothing was queued.
    //= BC-091, BC-104, IBA C10-97.2.1
    pub fn post_receive(
        &mut self,
        qpn: Qpn,
        request: &ReceiveRequest<'_>,
    ) -> Result<(), PostError> {
        let slot = self
            .numbers
            .index_of(qpn)
            .and_then(|index| self.queue_pairs.get_mut(index))
            .ok_or(PostError::NoSuchQueue)?;
        if slot.own.shared {
            return Err(PostError::SharedReceiveQueue);
        }
        match slot.qp.state() {
            state if !state.takes_receives() => Err(PostError::WrongState),
            QpState::Error => {
                self.tables.counters.transport(Count::ResponderFlushed);
                slot.counters.count(Count::ResponderFlushed);
                let completion = flushed(request.wr_id, qpn);
                let cq = slot.own.receive_cq;
                self.tables.complete(cq, completion);
                self.tables.completion_lost = false; // It is in error already.
                Ok(())
            }
            _ => {
                let queue = slot.own.receive_queue;
                let queue = self.tables.receive_queue_mut(queue);
                queue.ok_or(PostError::NoSuchQueue)?.post(request)
            }
        }
    }

    /// Takes completions out of a queue: `ibv_poll_cq`. Says how many of `room` were filled.
    pub fn poll_completions(&mut self, cq: CqId, room: &mut [Completion]) -> usize {
        self.tables.cq_mut(cq).map_or(0, |queue| queue.poll(room))
    }
}

/// A queue pair whose completion found no room ends: nobody may go on as if nothing were missing.
/// What is lost while it flushes is lost too.
//= 05-5.4b
#[cold]
fn completion_lost<H: HostMemory>(qp: &mut QueuePair, adapter: &mut QpAdapter<'_, H>) {
    qp.completion_lost(adapter);
    adapter.tables.completion_lost = false;
}
