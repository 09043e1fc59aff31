//! Congestion notifications that are owed to peers, and how queue pairs are controlled.
//!
//! IBA vol 1 annex A17 §A17.9: a packet that comes marked earns its sender a notification. Those
//! leave before all else and are never paced. When one is due is said by the [`NotificationPoint`];
//! here is where to it goes. What a notification that comes does is the queue pair's.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;

use roxe_transport::Outlet;
use roxe_transport::congestion::notification_point::CnpScope;
use roxe_transport::congestion::{
    Burst, CongestionControl, NotificationPoint, Rate, ReactionPoint, write_cnp,
};
use roxe_transport::work::PathId;
use roxe_wire::opcode::Operation;
use roxe_wire::{Gid, ICRC_LEN, Instant, PKey, Packet, Qpn, Received, TrafficClass, source_port};

use crate::address_handle::AddressVector;
use crate::counters::DeviceCount;
use crate::device::{Device, Transmit};
use crate::host_memory::HostMemory;
use crate::path::Path;
use crate::receive::vlan_of;
use crate::tables::Tables;
use crate::verbs::VerbError;

/// How a device takes part in congestion control.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Congestion {
    /// What controls queue pairs that are made from now on.
    pub control: CongestionControl,
    /// The rate of the port: where queue pairs begin, and which they never exceed.
    pub line_rate: Rate,
    /// How much a queue pair that is slowed down may send at once.
    pub burst: Burst,
    /// How marked packets are answered; `None` for not at all.
    pub notification_point: Option<NotificationPoint>,
}

/// What is owed, and when what was sent last.
#[derive(Debug, Default)]
pub(crate) struct Notifications {
    owed: VecDeque<Owed>,
    /// Who is told nothing.
    muted: BTreeSet<IpAddr>,
    port: Option<Instant>,
    addresses: BTreeMap<IpAddr, Instant>,
    /// Where notifications went to last.
    ways: Vec<Way>,
    /// Which of them the next new peer takes.
    oldest: usize,
}

#[derive(Clone, Copy, Debug)]
struct Owed {
    path: PathId,
    dest_qp: Qpn,
    p_key: PKey,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Way {
    own: IpAddr,
    other: IpAddr,
    gid: u32,
    dscp: u8,
    path: PathId,
}

/// So many peers can be told at a time; each takes a path.
pub(crate) const MOST_WAYS: u32 = 256;

/// So many notifications wait at the most; fewer than there are ways, so that one is always free.
const MOST_OWED: usize = 128;

/// So many addresses are remembered for [`CnpScope::Address`].
const MOST_ADDRESSES: usize = 1024;

impl Notifications {
    pub(crate) fn is_empty(&self) -> bool {
        self.owed.is_empty()
    }

    /// When the last notification of the packet's scope was sent, to be looked at and changed.
    fn is_due(
        &mut self,
        now: Instant,
        point: &NotificationPoint,
        source: IpAddr,
        of_queue_pair: &mut Option<Instant>,
    ) -> bool {
        let last = match point.scope {
            CnpScope::QueuePair => of_queue_pair,
            CnpScope::Port => &mut self.port,
            CnpScope::Address => {
                if self.addresses.len() >= MOST_ADDRESSES && !self.addresses.contains_key(&source) {
                    self.addresses.retain(|_, last| !point.is_due(now, Some(*last)));
                    if self.addresses.len() >= MOST_ADDRESSES {
                        return false;
                    }
                }
                let due = point.is_due(now, self.addresses.get(&source).copied());
                if due {
                    self.addresses.insert(source, now);
                }
                return due;
            }
        };
        let due = point.is_due(now, *last);
        if due {
            *last = Some(now);
        }
        due
    }

    /// The path of notifications to who sent this.
    fn way_to<H>(
        &mut self,
        received: &Received<'_>,
        gid: u32,
        dscp: u8,
        tables: &mut Tables<H>,
    ) -> Option<PathId> {
        let (own, other) = (received.addressing.destination, received.addressing.source);
        let found = |way: &&Way| (way.own, way.other, way.gid, way.dscp) == (own, other, gid, dscp);
        if let Some(way) = self.ways.iter().find(found) {
            return Some(way.path);
        }
        let vector = AddressVector {
            traffic_class: dscp << 2,
            service_level: CNP_PRIORITY,
            ..AddressVector::new(gid, Gid::from_ip(other))
        };
        let port = source_port::from_flow_label(0);
        let addressing = vector.resolve(&tables.gids, port).ok()?;
        let path = Path { vector, addressing, pd: None };
        if self.ways.len() < MOST_WAYS as usize {
            let path = tables.paths.add(path)?;
            self.ways.push(Way { own, other, gid, dscp, path });
            return Some(path);
        }
        // One on which nothing is owed.
        for _ in 0..self.ways.len() {
            self.oldest = (self.oldest + 1) % self.ways.len();
            let id = self.ways[self.oldest].path;
            if self.owed.iter().all(|owed| owed.path != id) {
                tables.paths.replace(id, path)?;
                self.ways[self.oldest] = Way { own, other, gid, dscp, path: id };
                return Some(id);
            }
        }
        None
    }

    /// A packet came in marked, for a queue pair, and passed all checks: its sender is to be told. `dest_qp` is the queue pair that sent it.
    //= C01
    pub(crate) fn note<H>(
        &mut self,
        now: Instant,
        point: &NotificationPoint,
        (received, packet): (&Received<'_>, &Packet<'_>),
        dest_qp: Qpn,
        of_queue_pair: &mut Option<Instant>,
        tables: &mut Tables<H>,
    ) {
        let source = received.addressing.source;
        if !is_data(packet.opcode.operation)
            || self.owed.len() >= MOST_OWED
            || self.muted.contains(&source)
        {
            return;
        }
        let own = Gid::from_ip(received.addressing.destination);
        let Some(gid) = tables.gids.find_address(own, vlan_of(received)) else { return };
        if !self.is_due(now, point, source, of_queue_pair) {
            return;
        }
        if let Some(path) = self.way_to(received, gid, point.np_cnp_dscp & 0x3f, tables) {
            let p_key = packet.headers.bth.p_key;
            self.owed.push_back(Owed { path, dest_qp, p_key });
        }
    }

    /// Writes the next notification that is owed.
    pub(crate) fn poll<H>(
        &mut self,
        outlet: Outlet<'_>,
        tables: &mut Tables<H>,
    ) -> Option<Transmit> {
        let Owed { path, dest_qp, p_key } = self.owed.pop_front()?;
        let packet = write_cnp(outlet, dest_qp, p_key)?;
        tables.counters.device(DeviceCount::CnpSent, 1);
        tables.counters.sent(packet.len + ICRC_LEN);
        Some(Transmit { path, packet })
    }
}

/// The priority of notifications in a VLAN tag, as adapters set it.
const CNP_PRIORITY: u8 = 6;

/// Requests and data that were asked for. Whoever acknowledges cannot be slowed down.
const fn is_data(operation: Operation) -> bool {
    !matches!(operation, Operation::Acknowledge | Operation::AtomicAcknowledge | Operation::Notify)
}

/// Packets of who is controlled say that they may be marked.
pub(crate) const fn with_ect(class: TrafficClass) -> TrafficClass {
    TrafficClass(class.0 & !0x3 | 0x2)
}

impl<H: HostMemory> Device<H> {
    /// How it takes part in congestion control from now on; queue pairs that there are go on as
    /// they were.
    pub fn set_congestion(&mut self, congestion: Congestion) {
        self.congestion = congestion;
    }

    /// How it takes part in congestion control.
    pub const fn congestion(&self) -> &Congestion {
        &self.congestion
    }

    /// Whether who has this address is told of marks. Some peers cannot do with notifications.
    pub fn set_notifies(&mut self, peer: IpAddr, notifies: bool) {
        if notifies {
            self.notifications.muted.remove(&peer);
        } else {
            self.notifications.muted.insert(peer);
        }
    }

    /// What controls one queue pair from now on.
    ///
    /// # Errors
    /// [`VerbError::NoSuchObject`].
    pub fn set_congestion_control(
        &mut self,
        qpn: Qpn,
        control: CongestionControl,
    ) -> Result<(), VerbError> {
        let index = self.numbers.index_of(qpn).ok_or(VerbError::NoSuchObject)?;
        let Congestion { line_rate, burst, .. } = self.congestion;
        self.with(index, |qp, _| qp.set_congestion_control(control, line_rate, burst))
            .ok_or(VerbError::NoSuchObject)?;
        let slot = self.queue_pairs.get_mut(index).ok_or(VerbError::NoSuchObject)?;
        if let Some(id) = slot.path
            && let Some(path) = self.tables.paths.get(id).copied()
        {
            let mut path = path;
            let asked = TrafficClass(path.vector.traffic_class);
            path.addressing.traffic_class = match control {
                CongestionControl::None => asked,
                CongestionControl::Dcqcn(_) => with_ect(asked),
            };
            self.tables.paths.replace(id, path);
        }
        Ok(())
    }

    /// A queue pair's rate and what it comes from; `None` when nothing controls it, or when there
    /// is no such queue pair.
    pub fn reaction_point(&self, qpn: Qpn) -> Option<&ReactionPoint> {
        self.slot_of(qpn)?.qp.reaction_point()
    }
}
