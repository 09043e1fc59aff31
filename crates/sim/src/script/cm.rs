//! The connection manager of the device under test, and the application above it.
//!
//! The agent is the product's; what stands between it and queue pair 1 is here what
//! `roxe_verbs::cm` does with threads. The application moves queue pairs as `rdma_accept` and its
//! like do: to RTR with `accept`, to RTS with `establish` or when it hears `established`, to error
//! when it disconnects or hears `disconnected`.

mod application;
mod told;

use std::collections::BTreeMap;

use roxe_cm::{Agent, Config, ConnectionId, Counters, Event, GidPair, Ignored, Transmit};
use roxe_device::address_handle::AddressVector;
use roxe_device::memory::Registration;
use roxe_device::protection_domain::Pd;
use roxe_device::{CqId, HostMemory as _, HostRegion, QueuePairInit, ReceiveCapacity};
use roxe_transport::SendCapacity;
use roxe_transport::qp_state::ServiceType;
use roxe_transport::work::{
    AccessFlags, Completion, CompletionStatus, Data, DatagramTarget, PathId, ReceiveRequest,
    SendOperation, SendRequest, Sge,
};
use roxe_wire::mad::Mad;
use roxe_wire::{Gid, Grh, Instant, LKey, QKey, Qpn};

use super::bench::Bench;
use super::mistake::Mistake;
use super::objects::{Refused, Verb};
use super::symbols::Symbols as _;
use super::syntax::Arguments;

pub(super) use told::Told;

/// The connection manager, and queue pair 1.
pub(super) struct Manager {
    agent: Agent,
    pub(super) guid: u64,
    pd: Pd,
    cq: CqId,
    host: HostRegion,
    key: LKey,
    /// Ways that datagrams went.
    ways: BTreeMap<(GidPair, u8), PathId>,
    /// Transaction IDs by who sent them, in which message, under which name.
    tids: BTreeMap<(By, &'static str, u64), u64>,
}

/// Who sends a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum By {
    Device,
    Peer,
}

/// A connection that a script has named.
#[derive(Clone, Debug)]
pub(super) struct Connection {
    id: ConnectionId,
    /// The queue pair that goes with it.
    qp: Option<String>,
    /// The starting PSN that this side announced.
    psn: u32,
}

impl Manager {
    /// When it wants to be called next.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.agent.poll_timeout()
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) {
        self.agent.handle_timeout(now);
    }

    /// A counter of the agent's.
    pub(super) fn counter(&self, name: &str) -> Option<u64> {
        COUNTERS
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, value)| value(self.agent.counters()))
    }

    /// A message was sent.
    pub(super) fn remember(&mut self, by: By, message: &'static str, own: u64, tid: u64) {
        self.tids.insert((by, message, own), tid);
    }

    /// The transaction ID of what a message answers: its sender's name for the connection is `own`,
    /// the receiver's `other`.
    pub(super) fn tid_of(&self, by: By, message: &str, own: u64, other: u64) -> Option<u64> {
        let asks = if by == By::Device { By::Peer } else { By::Device };
        let asked = |name| self.tids.get(&(asks, name, other)).copied();
        match message {
            "REP" => asked("REQ"),
            // A handshake has that of its REQ, whoever began it.
            "MRA" | "REJ" | "RTU" => {
                let began = || self.tids.get(&(by, "REQ", own)).copied();
                asked("REQ").or_else(began).or_else(|| asked("REP"))
            }
            "DREP" => asked("DREQ"),
            "APR" => asked("LAP"),
            "SIDR_REP" => asked("SIDR_REQ"),
            _ => None,
        }
    }
}

/// Reads a counter.
type Count = fn(&Counters) -> u64;

/// What an agent counts, by name.
pub(super) const COUNTERS: [(&str, Count); 12] = [
    ("received", |it| it.received),
    ("sent", |it| it.sent),
    ("retransmissions", |it| it.retransmissions),
    ("duplicates", |it| it.duplicates),
    ("refused", |it| it.refused),
    ("malformed", |it| it.malformed),
    ("unknown", |it| it.ignored(Ignored::Unknown)),
    ("foreign", |it| it.ignored(Ignored::Foreign)),
    ("wrong_state", |it| it.ignored(Ignored::WrongState)),
    ("wrong_qpn", |it| it.ignored(Ignored::WrongQpn)),
    ("no_comm_id", |it| it.ignored(Ignored::NoCommId)),
    ("unasked", |it| it.ignored(Ignored::Unasked)),
];

impl Bench {
    /// `cm`: queue pair 1 and the agent behind it.
    pub(super) fn make_cm(&mut self, name: &str, a: &Arguments) -> Verb {
        if self.manager.is_some() {
            return Err(Mistake::at(name, "the device has a connection manager").into());
        }
        let pd = self.pd(&Arguments::default())?;
        let cq = self.device.create_completion_queue(2 * DEPTH)?;
        let init = QueuePairInit {
            service: ServiceType::Ud,
            pd,
            send_cq: cq,
            receive_cq: cq,
            srq: None,
            send: SendCapacity { depth: DEPTH, max_sge: 1, max_inline: Mad::LEN as u32 },
            receive: ReceiveCapacity { depth: DEPTH, max_sge: 1 },
            signal_all: false,
        };
        let len = u64::from(DEPTH) * SLOT;
        let host = self.device.host_mut().add(vec![0; len as usize]);
        let access = AccessFlags::LOCAL_WRITE;
        let what = Registration { pd, host, va: SLOTS_VA, len, access };
        let key = self.device.register_memory(&what)?;
        self.make_gsi(name, &init)?;
        let guid = self.number_or(a, "guid", GUID)?;
        let usual = Config::linux(guid, self.settings.path_mtu);
        let config = Config {
            ack_delay: self.timeout_or(a, "ack-delay", usual.ack_delay)?,
            max_responder_resources: self.byte_or(
                a,
                "responder-resources",
                usual.max_responder_resources,
            )?,
            max_initiator_depth: self.byte_or(a, "initiator-depth", usual.max_initiator_depth)?,
            service_timeout: self.timeout_or(a, "service-timeout", usual.service_timeout)?,
            max_connections: self.number_or(a, "max-connections", usual.max_connections as u64)?
                as usize,
            ..usual
        };
        let agent = Agent::new(config, self.settings.seed);
        let (ways, tids) = (BTreeMap::new(), BTreeMap::new());
        let manager = Manager { agent, guid, pd, cq, host, key, ways, tids };
        self.manager = Some(Box::new(manager));
        (0..DEPTH.into()).try_for_each(|slot| self.post_slot(key, slot))
    }

    fn post_slot(&mut self, l_key: LKey, slot: u64) -> Verb {
        let sges = [Sge { va: SLOTS_VA + slot * SLOT, len: SLOT as u32, l_key }];
        Ok(self.device.post_receive(Qpn::GSI, &ReceiveRequest { wr_id: slot, sges: &sges })?)
    }

    /// Runs the agent; whether there was something to do.
    pub(super) fn manage(&mut self) -> bool {
        let Some(mut manager) = self.manager.take() else { return false };
        let mut is_busy = false;
        let mut room = [Completion::BLANK; 16];
        loop {
            let found = self.device.poll_completions(manager.cq, &mut room);
            for completion in room[..found].iter().filter(|it| it.wr_id != SENT) {
                is_busy = true;
                if completion.status == CompletionStatus::Success
                    && let Some((from, bytes)) = self.datagram(&manager, completion)
                {
                    manager.agent.handle_mad(self.now, from, &bytes);
                }
                // The queue has the place that this one had.
                let _ = self.post_slot(manager.key, completion.wr_id);
            }
            if found < room.len() {
                break;
            }
        }
        while let Some(event) = manager.agent.poll_event() {
            is_busy = true;
            match event {
                // What nothing follows from is for people.
                Event::AskedAgain { .. } | Event::LookedForAgain { .. } => {}
                // Nobody else is at the address.
                Event::Unserved { refusal, .. } => manager.agent.refuse_call(*refusal),
                event => self.told(event),
            }
        }
        while let Some(transmit) = manager.agent.poll_transmit() {
            is_busy = true;
            // What cannot go is lost, as on a full network.
            let _ = self.send_mad(&mut manager, &transmit);
        }
        self.manager = Some(manager);
        is_busy
    }

    /// A datagram that came, and from where to where.
    fn datagram(&self, manager: &Manager, completion: &Completion) -> Option<(GidPair, Vec<u8>)> {
        let at = completion.wr_id * SLOT;
        let mut grh = [0; Grh::LEN];
        let mut bytes = vec![0; (completion.byte_len as usize).checked_sub(Grh::LEN)?];
        self.device.host().read(manager.host, at, &mut grh).ok()?;
        self.device.host().read(manager.host, at + Grh::LEN as u64, &mut bytes).ok()?;
        let grh = Grh::from_bytes(grh);
        let (local, remote) = (Gid::from_ip(grh.destination()?), Gid::from_ip(grh.source()?));
        let (_, own) = self.device.gids().iter().find(|(_, own)| own.gid == local)?;
        Some((GidPair { local, remote, vlan: own.vlan }, bytes))
    }

    fn send_mad(&mut self, manager: &mut Manager, it: &Transmit) -> Result<(), Refused> {
        let GidPair { local, remote, vlan } = it.path;
        let way = (it.path, it.traffic_class);
        let path = match manager.ways.get(&way) {
            Some(path) => *path,
            None => {
                let source = self.device.gids().find_address(local, vlan);
                let source = source.ok_or("the device has the address no more")?;
                let vector = AddressVector::new(source, remote);
                let vector = AddressVector { traffic_class: it.traffic_class, ..vector };
                let made = self.device.create_address_handle(manager.pd, &vector)?;
                manager.ways.insert(way, made);
                made
            }
        };
        let mut bytes = [0; Mad::LEN];
        it.mad.emit(&mut bytes);
        let request = SendRequest {
            wr_id: SENT,
            operation: SendOperation::Send,
            data: Data::Inline(&bytes),
            signaled: false,
            solicited: true,
            fence: false,
            target: Some(DatagramTarget { path, qpn: Qpn::GSI, q_key: QKey::GSI }),
        };
        Ok(self.device.post_send(Qpn::GSI, &request)?)
    }
}

/// Datagrams that may wait to be read, or to be sent.
const DEPTH: u32 = 128;
/// Bytes of the place of one: where it came from, and itself.
const SLOT: u64 = 320;
const SLOTS_VA: u64 = 0x7e00_0000_0000;
/// What requests to send are called; receives are called by their places.
const SENT: u64 = u64::MAX;
/// The device's adapter.
const GUID: u64 = 0x5;
