//! Congestion notifications that are owed to peers, and how queue pairs are controlled.
//!
//! IBA vol 1 annex A17 §A17.9: a packet that comes marked earns its sender a notification. Those
//! leave before all else and are never paced. When one is due is said by the [`NotificationPoint`];
//! here is where to it goes. What a notification that comes does is the queue pair's.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;

use roxe_transport::Outlet;
use roxe_transport::congestion::hpcc::Hop;
use roxe_transport::congestion::notification_point::CnpScope;
use roxe_transport::congestion::{
    Burst, CongestionControl, Controller, Line, NotificationPoint, ParameterError, Rate, write_cnp,
};
use roxe_transport::work::PathId;
use roxe_wire::opcode::Operation;
use roxe_wire::{
    Addressing, ICRC_LEN, Instant, PKey, Packet, Qpn, Received, TrafficClass, VlanTag,
};

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
    /// The rate of the port: where queue pairs begin, and which no control exceeds.
    pub line_rate: Rate,
    /// Whether a queue pair that is controlled is paced at the port's rate, too. Where the port
    /// itself is no faster, or nobody said how fast it is, one that nothing slows down sends what
    /// it has.
    pub is_ceiling: bool,
    /// How much a queue pair that is paced may send at once; at a ceiling, what the port sends in
    /// 250 µs if that is more.
    pub burst: Burst,
    /// How marked packets are answered; `None` for not at all.
    pub notification_point: Option<NotificationPoint>,
}

impl Congestion {
    /// Sets a parameter of its control or of its notification point by name: see
    /// [`CongestionControl::set`].
    ///
    /// # Errors
    /// There is no such parameter, the text is no value, or it is out of range. Then nothing has
    /// changed.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), ParameterError> {
        match &mut self.notification_point {
            Some(point) if NotificationPoint::has(name) => point.set(name, value),
            _ => self.control.set(name, value),
        }
    }

    /// Whether all of its control's parameters are in their ranges, and there is a rate to control.
    ///
    /// # Errors
    /// The first one that is not.
    pub fn check(&self) -> Result<(), ParameterError> {
        if self.control != CongestionControl::None && self.line_rate.is_zero() {
            let what = "line_rate=0: what is controlled needs one".to_owned();
            return Err(ParameterError { name: "line_rate".to_owned(), what });
        }
        self.control.check()
    }

    /// The port, as queue pairs are told of it.
    pub(crate) const fn line(&self) -> Line {
        let Self { line_rate: rate, is_ceiling, burst, .. } = *self;
        Line { rate, is_ceiling, burst }
    }

    /// All of them, and what they are.
    pub fn parameters(&self) -> Vec<(&'static str, String)> {
        let mut all = self.control.parameters();
        all.extend(self.notification_point.iter().flat_map(NotificationPoint::parameters));
        all
    }
}

/// What is owed, and when what was sent last.
#[derive(Debug)]
pub(crate) struct Notifications {
    owed: VecDeque<Owed>,
    /// Who is told nothing.
    muted: BTreeSet<IpAddr>,
    port: Option<Instant>,
    addresses: BTreeMap<IpAddr, Instant>,
    /// The path to the sender of a datagram that was told last.
    found: Option<PathId>,
}

#[derive(Clone, Copy, Debug)]
struct Owed {
    path: PathId,
    /// The path may be another one when it is sent.
    version: Option<u64>,
    traffic_class: TrafficClass,
    dest_qp: Qpn,
    p_key: PKey,
}

/// So many notifications wait at the most.
const MOST_OWED: usize = 128;

/// So many addresses are remembered for [`CnpScope::Address`].
const MOST_ADDRESSES: usize = 1024;

impl Default for Notifications {
    fn default() -> Self {
        Self {
            owed: VecDeque::with_capacity(MOST_OWED),
            muted: BTreeSet::new(),
            port: None,
            addresses: BTreeMap::new(),
            found: None,
        }
    }
}

impl Notifications {
    pub(crate) fn is_empty(&self) -> bool {
        self.owed.is_empty()
    }

    /// Whether one is due in the packet's scope.
    fn is_due(
        &mut self,
        now: Instant,
        point: &NotificationPoint,
        source: IpAddr,
        of_queue_pair: Option<Instant>,
    ) -> bool {
        let last = match point.scope {
            CnpScope::QueuePair => of_queue_pair,
            CnpScope::Port => self.port,
            CnpScope::Address => self.addresses.get(&source).copied(),
        };
        if point.scope == CnpScope::Address && last.is_none() {
            if self.addresses.len() >= MOST_ADDRESSES {
                self.addresses.retain(|_, last| !point.is_due(now, Some(*last)));
            }
            return self.addresses.len() < MOST_ADDRESSES;
        }
        point.is_due(now, last)
    }

    /// One of this scope is sent now.
    fn sent(
        &mut self,
        now: Instant,
        scope: CnpScope,
        source: IpAddr,
        of_queue_pair: &mut Option<Instant>,
    ) {
        match scope {
            CnpScope::QueuePair => *of_queue_pair = Some(now),
            CnpScope::Port => self.port = Some(now),
            CnpScope::Address => {
                self.addresses.insert(source, now);
            }
        }
    }

    /// A path to who sent this datagram, if the application has one.
    fn way_back<H>(&mut self, received: &Received<'_>, tables: &Tables<H>) -> Option<PathId> {
        let (own, other) = (received.addressing.destination, received.addressing.source);
        let leads_there = |path: &Path| {
            let Addressing { source, destination, vlan, .. } = path.addressing;
            (source, destination) == (own, other) && vlan.map(VlanTag::id) == vlan_of(received)
        };
        let found = self.found.filter(|id| tables.paths.get(*id).is_some_and(leads_there));
        self.found = found.or_else(|| tables.paths.find(leads_there));
        self.found
    }

    /// A packet came in marked, for a queue pair whose path is `path`, and passed all checks: its
    /// sender, the queue pair `dest_qp`, is to be told.
    ///
    /// Who sent a datagram is told only if there is a path to it: A17.9.3 leaves that open.
    //= C01
    pub(crate) fn note<H>(
        &mut self,
        now: Instant,
        point: &NotificationPoint,
        (received, packet): (&Received<'_>, &Packet<'_>),
        (path, dest_qp): (Option<PathId>, Qpn),
        of_queue_pair: &mut Option<Instant>,
        tables: &Tables<H>,
    ) {
        let source = received.addressing.source;
        if !is_data(packet.opcode.operation)
            || self.owed.len() >= MOST_OWED
            || self.muted.contains(&source)
            || !self.is_due(now, point, source, *of_queue_pair)
        {
            return;
        }
        // To look for one takes the longer the more there are.
        let Some(path) = path.or_else(|| self.way_back(received, tables)) else { return };
        self.sent(now, point.scope, source, of_queue_pair);
        let traffic_class = point.traffic_class();
        let (version, p_key) = (tables.paths.version(path), packet.headers.bth.p_key);
        self.owed.push_back(Owed { path, version, traffic_class, dest_qp, p_key });
    }

    /// Writes the next notification that is owed.
    pub(crate) fn poll<H>(
        &mut self,
        mut outlet: Outlet<'_>,
        tables: &mut Tables<H>,
    ) -> Option<Transmit> {
        loop {
            let Owed { path, version, traffic_class, dest_qp, p_key } = self.owed.pop_front()?;
            if tables.paths.version(path) != version {
                continue; // Whom it was for is not there any more.
            }
            let packet = write_cnp(outlet.reborrow(), dest_qp, p_key)?;
            tables.counters.device(DeviceCount::CnpSent, 1);
            tables.counters.sent(packet.len + ICRC_LEN);
            return Some(Transmit { path, traffic_class: Some(traffic_class), packet });
        }
    }
}

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
        let line = self.congestion.line();
        self.with(index, |qp, _| qp.set_congestion_control(control, line))
            .ok_or(VerbError::NoSuchObject)?;
        let slot = self.queue_pairs.get_mut(index).ok_or(VerbError::NoSuchObject)?;
        if let Some(id) = slot.path
            && let Some(path) = self.tables.paths.get(id).copied()
        {
            let mut path = path;
            let asked = TrafficClass(path.vector.traffic_class);
            let marks = control.wants_marks();
            path.addressing.traffic_class = if marks { with_ect(asked) } else { asked };
            self.tables.paths.replace(id, path);
        }
        Ok(())
    }

    /// What controls a queue pair, as it is now: how fast it may send, and why. `None` when nothing
    /// does, or when there is no such queue pair.
    pub fn controller(&self, now: Instant, qpn: Qpn) -> Option<Controller> {
        self.slot_of(qpn)?.qp.controller_at(now)
    }

    /// The acknowledgement for a queue pair that was handled last brought telemetry of links, hop
    /// by hop from here on. Only simulated networks have it: see
    /// [`roxe_transport::congestion::hpcc`].
    pub fn handle_telemetry(&mut self, now: Instant, qpn: Qpn, hops: &[Hop]) {
        if let Some(index) = self.numbers.index_of(qpn) {
            self.with(index, |qp, _| qp.handle_telemetry(now, hops));
        }
    }
}
