//! Queue pair 1: where management datagrams come in and go out.
//!
//! IBA vol 1 §13.5 (the general services interface), annex A17 (it is the only management queue
//! pair on RoCE). 256 bytes in a UD SEND with the Q_Key that only management may use.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use roxe_cm::GidPair;
use roxe_device::address_handle::AddressVector;
use roxe_device::memory::Registration;
use roxe_device::protection_domain::Pd;
use roxe_device::{CqId, HostMemory as _, QueuePairInit, ReceiveCapacity, VerbError};
use roxe_transport::SendCapacity;
use roxe_transport::qp_state::{Attribute as A, AttributeMask, QpState, ServiceType};
use roxe_transport::work::{
    AccessFlags, Attributes, Completion, CompletionStatus, Data, DatagramTarget, PathId, PostError,
    ReceiveRequest, SendOperation, SendRequest, Sge,
};
use roxe_wire::mad::Mad;
use roxe_wire::{Gid, Grh, LKey, PKey, Psn, QKey, Qpn};

use crate::context::seed;
use crate::driver::Driver;
use crate::registered_memory::Buffer;
use crate::resolver::Link;

/// Queue pair 1 of an adapter.
pub(super) struct Gsi {
    pd: Pd,
    cq: CqId,
    buffer: Arc<Buffer>,
    key: LKey,
    /// The ways that datagrams went lately, oldest first.
    ways: BTreeMap<Way, PathId>,
    by_age: VecDeque<Way>,
}

/// Where datagrams go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Way {
    pub(super) path: GidPair,
    pub(super) traffic_class: u8,
}

/// A datagram that came.
pub(super) struct Datagram {
    pub(super) from: GidPair,
    pub(super) len: usize,
    pub(super) bytes: [u8; Mad::LEN],
}

/// What a request to send is called; receives are called by their places.
const SENT: u64 = u64::MAX;

impl Gsi {
    /// Makes it, ready to send and receive.
    pub(super) fn open(driver: &mut Driver, pd: Pd) -> Result<Self, VerbError> {
        let device = &mut driver.device;
        let cq = device.create_completion_queue(2 * DEPTH)?;
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
        let qpn = device.create_gsi_queue_pair(&init)?;
        let blank = device.query_queue_pair(qpn)?.attributes;
        let sq_psn = Psn::new(seed() as u32);
        let values = Attributes { q_key: QKey::GSI, p_key: PKey::DEFAULT, sq_psn, ..blank };
        let steps: [(QpState, &[A]); 3] = [
            (QpState::Init, &[A::PkeyIndex, A::Port, A::Qkey]),
            (QpState::Rtr, &[]),
            (QpState::Rts, &[A::SqPsn]),
        ];
        let buffer = Buffer::new(DEPTH as usize * SLOT);
        let host = device.host_mut().add(&buffer);
        let (va, len) = (buffer.address(), buffer.len() as u64);
        let what = Registration { pd, host, va, len, access: AccessFlags::LOCAL_WRITE };
        let registered = device.register_memory(&what);
        let key = registered.inspect_err(|_| device.host_mut().release(host))?;
        for (to, given) in steps {
            device.modify_queue_pair(qpn, to, AttributeMask::of(given), &values, None)?;
        }
        let ways = BTreeMap::new();
        let gsi = Self { pd, cq, buffer, key, ways, by_age: VecDeque::new() };
        for slot in 0..DEPTH.into() {
            let posted = gsi.post(driver, slot);
            debug_assert!(posted.is_ok(), "the queue has a place for each");
        }
        driver.device.request_notify(cq, false)?;
        Ok(gsi)
    }

    /// Where it completes.
    pub(super) const fn cq(&self) -> CqId {
        self.cq
    }

    /// Gives a place back to the adapter.
    fn post(&self, driver: &mut Driver, slot: u64) -> Result<(), PostError> {
        let va = self.buffer.address() + slot * SLOT as u64;
        let sges = [Sge { va, len: SLOT as u32, l_key: self.key }];
        driver.device.post_receive(Qpn::GSI, &ReceiveRequest { wr_id: slot, sges: &sges })
    }

    /// The datagrams that have come; of any that comes later the engine tells.
    pub(super) fn receive(&self, driver: &mut Driver) -> Vec<Datagram> {
        let mut all = Vec::new();
        // Armed first, looked at then: one that comes between is seen or told of.
        let _ = driver.device.request_notify(self.cq, false);
        let mut room = [Completion::BLANK; 16];
        loop {
            let found = driver.device.poll_completions(self.cq, &mut room);
            for completion in &room[..found] {
                // What is sent has no place; what is flushed has none any more.
                if completion.wr_id == SENT || completion.status == CompletionStatus::Flushed {
                    continue;
                }
                if completion.status == CompletionStatus::Success {
                    all.extend(self.read(driver, completion));
                }
                // Whatever came, one that was too long, too, the place is free again. The adapter
                // is gone if it does not take it.
                let _ = self.post(driver, completion.wr_id);
            }
            if found < room.len() {
                return all;
            }
        }
    }

    fn read(&self, driver: &Driver, completion: &Completion) -> Option<Datagram> {
        let at = usize::try_from(completion.wr_id).ok()? * SLOT;
        let mut grh = [0; Grh::LEN];
        let mut bytes = [0; Mad::LEN];
        self.buffer.read(at, &mut grh);
        self.buffer.read(at + Grh::LEN, &mut bytes);
        let grh = Grh::from_bytes(grh);
        let local = Gid::from_ip(grh.destination()?);
        let remote = Gid::from_ip(grh.source()?);
        let mut gids = driver.device.gids().iter();
        let (_, own) = gids.find(|(_, own)| own.gid == local)?;
        let from = GidPair { local, remote, vlan: own.vlan };
        let len = (completion.byte_len as usize).saturating_sub(Grh::LEN);
        Some(Datagram { from, len, bytes })
    }

    /// The address vector of a way; `None` when the address is not ours any more.
    pub(super) fn vector(driver: &Driver, way: Way) -> Option<AddressVector> {
        let Way { path: GidPair { local, remote, vlan }, traffic_class } = way;
        let source_gid = driver.device.gids().find_address(local, vlan)?;
        Some(AddressVector { traffic_class, ..AddressVector::new(source_gid, remote) })
    }

    /// Whether datagrams can go this way at once.
    pub(super) fn knows(&self, way: Way) -> bool {
        self.ways.contains_key(&way)
    }

    /// From now on they can.
    pub(super) fn learn(
        &mut self,
        driver: &mut Driver,
        way: Way,
        vector: &AddressVector,
        link: Link,
    ) -> Result<(), VerbError> {
        if self.by_age.len() >= MOST_WAYS
            && let Some(oldest) = self.by_age.pop_front()
            && let Some(path) = self.ways.remove(&oldest)
        {
            let _ = driver.device.destroy_address_handle(path);
        }
        let path = driver.device.create_address_handle(self.pd, vector)?;
        driver.set_link(path, link);
        self.ways.insert(way, path);
        self.by_age.push_back(way);
        Ok(())
    }

    /// Sends a datagram a way that is known. One that finds the queue full is lost, as on a full
    /// network, and comes again.
    pub(super) fn send(&self, driver: &mut Driver, way: Way, mad: &Mad) {
        let Some(&path) = self.ways.get(&way) else { return };
        let mut bytes = [0; Mad::LEN];
        mad.emit(&mut bytes);
        let request = SendRequest {
            wr_id: SENT,
            operation: SendOperation::Send,
            data: Data::Inline(&bytes),
            signaled: false,
            solicited: true,
            fence: false,
            target: Some(DatagramTarget { path, qpn: Qpn::GSI, q_key: QKey::GSI }),
        };
        if driver.device.post_send(Qpn::GSI, &request).is_err() {
            // What waits goes first.
            driver.send_posted();
            let _ = driver.device.post_send(Qpn::GSI, &request);
        }
    }
}

/// Datagrams that may wait to be read, and to be sent: a burst of 500 requests and what answers it.
const DEPTH: u32 = 1024;

/// Bytes of the place of one: the area that says where it came from, and the datagram.
const SLOT: usize = 320;

/// Ways that are kept.
const MOST_WAYS: usize = 256;
