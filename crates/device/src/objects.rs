//! Making, changing and destroying the objects of a device: the verbs that are not on the data
//! path.
//!
//! IBA vol 1 §11.2. An object that others use cannot be destroyed.

use std::fmt;

use roxe_transport::QueuePair;
use roxe_transport::qp_state::{Attribute, AttributeMask, ModifyError, QpState, ServiceType};
use roxe_transport::work::{AccessFlags, Attributes, PathId, PostError, ReceiveRequest};
use roxe_wire::{
    AckTimeout, Gid, LKey, Mtu, PKey, Psn, QKey, Qpn, RKey, RnrTimer, VlanTag, source_port,
};

use crate::adapter::Belongings;
use crate::address_handle::{AddressError, AddressVector};
use crate::completion_queue::{CompletionQueue, ResizeError};
use crate::counters::{Counters, DeviceCount, QpCounters};
use crate::device::{CqId, Device, Peer, QpSlot, QueuePairInit, ReceiveQueueId};
use crate::gid_table::{GidEntry, GidError, GidTable};
use crate::host_memory::{HostMemory, HostRegion};
use crate::limits::Limits;
use crate::memory::{Changes, MemoryError, Registration, WindowType};
use crate::multicast::MulticastError;
use crate::path::{Path, Paths};
use crate::protection_domain::{Pd, PdError};
use crate::queue_pair_numbers::QpnError;
use crate::receive_queue::{self, ReceiveQueue};
use crate::tables::Tables;
use crate::timers::Armed;
use crate::transmit::Standing;
use crate::users::InUse;

/// Why an object was not made, changed or destroyed: the caller's mistake, or a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum VerbError {
    /// No such object. `EINVAL`.
    NoSuchObject,
    /// A value is out of range. `EINVAL`.
    Invalid(&'static str),
    /// A limit of the device is reached. `ENOMEM`.
    Limit(&'static str),
    /// Others use the object. `EBUSY`.
    InUse(InUse),
    /// A protection domain.
    Pd(PdError),
    /// Memory.
    Memory(MemoryError),
    /// A step of a queue pair.
    Modify(ModifyError),
    /// An address.
    Address(AddressError),
    /// A GID.
    Gid(GidError),
    /// A multicast group.
    Multicast(MulticastError),
    /// A queue pair number.
    Number(QpnError),
    /// A completion queue's new size.
    Resize(ResizeError),
    /// A shared receive queue's change.
    ReceiveQueue(receive_queue::ModifyError),
}

macro_rules! from_error {
    ($($variant:ident($error:ty)),* $(,)?) => {
        $(impl From<$error> for VerbError {
            fn from(error: $error) -> Self {
                Self::$variant(error)
            }
        })*

        impl fmt::Display for VerbError {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    Self::NoSuchObject => f.write_str("no such object"),
                    Self::Invalid(what) => write!(f, "{what} is out of range"),
                    Self::Limit(what) => write!(f, "the device has no room for more: {what}"),
                    $(Self::$variant(error) => error.fmt(f),)*
                }
            }
        }
    };
}

from_error!(
    InUse(InUse),
    Pd(PdError),
    Memory(MemoryError),
    Modify(ModifyError),
    Address(AddressError),
    Gid(GidError),
    Multicast(MulticastError),
    Number(QpnError),
    Resize(ResizeError),
    ReceiveQueue(receive_queue::ModifyError),
);

impl std::error::Error for VerbError {}

/// What [`Device::query_queue_pair`] tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuePairInfo {
    /// Its service.
    pub service: ServiceType,
    /// Its state, at once.
    pub state: QpState,
    /// How it is set.
    pub attributes: Attributes,
    /// Its path.
    pub path: Option<PathId>,
}

impl<H: HostMemory> Device<H> {
    /// How much of everything there can be.
    pub const fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Everything that was counted.
    pub const fn counters(&self) -> &Counters {
        &self.tables.counters
    }

    /// The memory behind regions.
    pub const fn host(&self) -> &H {
        &self.tables.host
    }

    /// The memory behind regions.
    pub const fn host_mut(&mut self) -> &mut H {
        &mut self.tables.host
    }

    /// The addresses of the port.
    pub const fn gids(&self) -> &GidTable {
        &self.tables.gids
    }

    /// All paths, for whoever frames packets.
    pub const fn paths(&self) -> &Paths {
        &self.tables.paths
    }

    /// The port has one more address.
    ///
    /// # Errors
    /// [`VerbError::Gid`].
    pub fn add_gid(&mut self, entry: GidEntry) -> Result<u32, VerbError> {
        Ok(self.tables.gids.add(entry)?)
    }

    /// The port lost an address. Queue pairs that use it keep their path.
    //= BC-123
    pub fn remove_gid(&mut self, index: u32) -> Option<GidEntry> {
        self.tables.gids.remove(index)
    }

    /// `ibv_alloc_pd`.
    ///
    /// # Errors
    /// [`VerbError::Pd`].
    pub fn alloc_pd(&mut self) -> Result<Pd, VerbError> {
        Ok(self.tables.pds.allocate()?)
    }

    /// `ibv_dealloc_pd`.
    ///
    /// # Errors
    /// [`VerbError::Pd`]; also while something belongs to it.
    pub fn dealloc_pd(&mut self, pd: Pd) -> Result<(), VerbError> {
        Ok(self.tables.pds.deallocate(pd)?)
    }

    /// Makes something that belongs to a protection domain.
    fn in_domain<T>(
        &mut self,
        pd: Pd,
        make: impl FnOnce(&mut Tables<H>) -> Result<T, VerbError>,
    ) -> Result<T, VerbError> {
        self.tables.pds.acquire(pd)?;
        let made = make(&mut self.tables);
        if made.is_err() {
            self.tables.pds.release(pd);
        }
        made
    }

    /// `ibv_reg_mr`. The key is L_Key and R_Key.
    ///
    /// # Errors
    /// [`VerbError::Invalid`], [`VerbError::Pd`], [`VerbError::Memory`].
    pub fn register_memory(&mut self, what: &Registration) -> Result<LKey, VerbError> {
        self.check_region_len(what.len)?;
        self.in_domain(what.pd, |tables| Ok(tables.memory.register(what)?))
    }

    const fn check_region_len(&self, len: u64) -> Result<(), VerbError> {
        if len <= self.limits.max_mr_size { Ok(()) } else { Err(VerbError::Invalid("length")) }
    }

    /// A region that a work request will make valid: `ib_alloc_mr`.
    ///
    /// # Errors
    /// [`VerbError::Invalid`], [`VerbError::Pd`], [`VerbError::Memory`].
    pub fn alloc_fast_memory(
        &mut self,
        pd: Pd,
        host: HostRegion,
        max_len: u64,
    ) -> Result<LKey, VerbError> {
        if max_len > self.limits.max_fast_register_len {
            return Err(VerbError::Invalid("max_len"));
        }
        self.in_domain(pd, |tables| Ok(tables.memory.alloc_fast(pd, host, max_len)?))
    }

    /// `ibv_rereg_mr`. Gives back the memory that is not registered any more.
    ///
    /// # Errors
    /// [`VerbError::Invalid`], [`VerbError::Pd`], [`VerbError::Memory`]; then nothing has changed.
    pub fn reregister_memory(&mut self, key: LKey, changes: &Changes) -> Result<(), VerbError> {
        if let Some((.., len)) = changes.range {
            self.check_region_len(len)?;
        }
        if let Some(pd) = changes.pd {
            self.tables.pds.acquire(pd)?;
        }
        let old_pd = self.tables.memory.pd_of(key);
        match self.tables.memory.reregister(key, changes) {
            Ok(left) => {
                if let (Some(_), Some(old)) = (changes.pd, old_pd) {
                    self.tables.pds.release(old);
                }
                if let Some(left) = left {
                    self.tables.host.release(left);
                }
                Ok(())
            }
            Err(error) => {
                if let Some(pd) = changes.pd {
                    self.tables.pds.release(pd);
                }
                Err(error.into())
            }
        }
    }

    /// `ibv_dereg_mr`.
    ///
    /// # Errors
    /// [`VerbError::Memory`]; also while windows are bound to it.
    pub fn deregister_memory(&mut self, key: LKey) -> Result<(), VerbError> {
        let left = self.tables.memory.deregister(key)?;
        self.tables.pds.release(left.pd);
        self.tables.host.release(left.host);
        Ok(())
    }

    /// `ibv_alloc_mw`.
    ///
    /// # Errors
    /// [`VerbError::Pd`], [`VerbError::Memory`].
    pub fn alloc_window(&mut self, pd: Pd, kind: WindowType) -> Result<RKey, VerbError> {
        self.in_domain(pd, |tables| Ok(tables.memory.alloc_window(pd, kind)?))
    }

    /// `ibv_dealloc_mw`.
    ///
    /// # Errors
    /// [`VerbError::Memory`].
    pub fn dealloc_window(&mut self, key: RKey) -> Result<(), VerbError> {
        let pd = self.tables.memory.dealloc_window(key)?;
        self.tables.pds.release(pd);
        Ok(())
    }

    /// `ibv_create_cq`.
    ///
    /// # Errors
    /// [`VerbError::Invalid`], [`VerbError::Limit`].
    pub fn create_completion_queue(&mut self, depth: u32) -> Result<CqId, VerbError> {
        if depth == 0 || depth > self.limits.max_cqe {
            return Err(VerbError::Invalid("cqe"));
        }
        let queue = CompletionQueue::new(depth);
        let index = self.tables.completion_queues.insert(queue);
        index.map(CqId).ok_or(VerbError::Limit("completion queues"))
    }

    /// `ibv_destroy_cq`.
    ///
    /// # Errors
    /// [`VerbError::InUse`] while queue pairs complete there.
    //= IBA C11-17
    pub fn destroy_completion_queue(&mut self, cq: CqId) -> Result<(), VerbError> {
        let queue = self.tables.completion_queues.get(cq.0).ok_or(VerbError::NoSuchObject)?;
        queue.users.none_left()?;
        self.tables.completion_queues.remove(cq.0);
        Ok(())
    }

    /// `ibv_resize_cq`.
    ///
    /// # Errors
    /// [`VerbError::Invalid`], [`VerbError::Resize`].
    pub fn resize_completion_queue(&mut self, cq: CqId, depth: u32) -> Result<(), VerbError> {
        if depth == 0 || depth > self.limits.max_cqe {
            return Err(VerbError::Invalid("cqe"));
        }
        Ok(self.tables.cq_mut(cq).ok_or(VerbError::NoSuchObject)?.resize(depth)?)
    }

    /// `ibv_req_notify_cq`: the next completion (or the next solicited one) gives an
    /// [`Event::CompletionNotify`](crate::device::Event::CompletionNotify). Says whether
    /// completions wait already, so that the application looks once more before it sleeps.
    ///
    /// # Errors
    /// [`VerbError::NoSuchObject`].
    pub fn request_notify(&mut self, cq: CqId, solicited_only: bool) -> Result<bool, VerbError> {
        let queue = self.tables.cq_mut(cq).ok_or(VerbError::NoSuchObject)?;
        Ok(queue.request_notify(solicited_only))
    }

    /// `ibv_create_srq`. The limit is armed, and looked at when a request is taken.
    ///
    /// # Errors
    /// [`VerbError::Invalid`], [`VerbError::ReceiveQueue`], [`VerbError::Pd`],
    /// [`VerbError::Limit`].
    pub fn create_shared_receive_queue(
        &mut self,
        pd: Pd,
        depth: u32,
        max_sge: u32,
        limit: u32,
    ) -> Result<ReceiveQueueId, VerbError> {
        if depth == 0 || depth > self.limits.max_srq_wr {
            return Err(VerbError::Invalid("max_wr"));
        }
        if max_sge > self.limits.max_srq_sge {
            return Err(VerbError::Invalid("max_sge"));
        }
        let queue = ReceiveQueue::new(pd, depth, max_sge).armed(limit)?;
        if self.tables.shared_queues >= self.limits.max_srq {
            return Err(VerbError::Limit("shared receive queues"));
        }
        self.in_domain(pd, |tables| {
            let index = tables.receive_queues.insert(queue);
            let index = index.ok_or(VerbError::Limit("receive queues"))?;
            tables.shared_queues += 1;
            Ok(ReceiveQueueId(index))
        })
    }

    /// `ibv_modify_srq`: another depth, another limit, or both.
    ///
    /// # Errors
    /// [`VerbError::Invalid`], [`VerbError::ReceiveQueue`]; then nothing has changed.
    pub fn modify_shared_receive_queue(
        &mut self,
        srq: ReceiveQueueId,
        depth: Option<u32>,
        limit: Option<u32>,
    ) -> Result<(), VerbError> {
        if depth.is_some_and(|depth| depth == 0 || depth > self.limits.max_srq_wr) {
            return Err(VerbError::Invalid("max_wr"));
        }
        let queue = self.tables.receive_queue_mut(srq).ok_or(VerbError::NoSuchObject)?;
        if queue.modify(depth, limit)?.is_some() {
            self.tables.counters.device(DeviceCount::SrqLimitReached, 1);
            self.tables.events.push_back(crate::device::Event::SrqLimitReached(srq));
        }
        Ok(())
    }

    /// `ibv_post_srq_recv`.
    ///
    /// # Errors
    /// The request is refused; nothing was queued.
    pub fn post_shared_receive(
        &mut self,
        srq: ReceiveQueueId,
        request: &ReceiveRequest<'_>,
    ) -> Result<(), PostError> {
        self.tables.receive_queue_mut(srq).ok_or(PostError::NoSuchQueue)?.post(request)
    }

    /// `ibv_destroy_srq`.
    ///
    /// # Errors
    /// [`VerbError::InUse`] while queue pairs take from it.
    pub fn destroy_shared_receive_queue(&mut self, srq: ReceiveQueueId) -> Result<(), VerbError> {
        let queue = self.tables.receive_queue(srq).ok_or(VerbError::NoSuchObject)?;
        queue.users.none_left()?;
        let pd = queue.pd();
        self.tables.receive_queues.remove(srq.0);
        self.tables.shared_queues -= 1;
        self.tables.pds.release(pd);
        Ok(())
    }

    /// `ibv_create_qp`: a queue pair in state Reset.
    ///
    /// # Errors
    /// [`VerbError`]; then nothing was made.
    pub fn create_queue_pair(&mut self, init: &QueuePairInit) -> Result<Qpn, VerbError> {
        self.create_numbered(init, false)
    }

    /// Queue pair 1, for management datagrams.
    ///
    /// # Errors
    /// [`VerbError`]; also when there is one already.
    //= BC-127
    pub fn create_gsi_queue_pair(&mut self, init: &QueuePairInit) -> Result<Qpn, VerbError> {
        self.create_numbered(init, true)
    }

    fn create_numbered(&mut self, init: &QueuePairInit, gsi: bool) -> Result<Qpn, VerbError> {
        self.check_capacity(init)?;
        for cq in [init.send_cq, init.receive_cq] {
            self.tables.completion_queues.get(cq.0).ok_or(VerbError::NoSuchObject)?;
        }
        if let Some(srq) = init.srq {
            self.tables.receive_queue(srq).ok_or(VerbError::NoSuchObject)?;
        }
        self.tables.pds.acquire(init.pd)?;
        let numbered = if gsi { self.numbers.allocate_gsi() } else { self.numbers.allocate() };
        let (qpn, index) = match numbered {
            Ok(numbered) => numbered,
            Err(error) => {
                self.tables.pds.release(init.pd);
                return Err(error.into());
            }
        };
        let own_queue = ReceiveQueue::new(init.pd, init.receive.depth, init.receive.max_sge);
        let receive_queue =
            init.srq.or_else(|| self.tables.receive_queues.insert(own_queue).map(ReceiveQueueId));
        let Some(receive_queue) = receive_queue else {
            self.numbers.release(qpn);
            self.tables.pds.release(init.pd);
            return Err(VerbError::Limit("receive queues"));
        };
        let own = Belongings {
            qpn,
            pd: init.pd,
            send_cq: init.send_cq,
            receive_cq: init.receive_cq,
            receive_queue,
            shared: init.srq.is_some(),
        };
        for cq in [own.send_cq, own.receive_cq] {
            if let Some(queue) = self.tables.cq_mut(cq) {
                queue.users.acquire();
            }
        }
        if let Some(queue) = self.tables.receive_queue_mut(receive_queue) {
            queue.users.acquire();
        }
        let mut qp = QueuePair::new(
            init.service,
            init.send,
            init.signal_all,
            blank(qpn, self.limits.port_mtu),
        );
        qp.set_conduct(self.conduct);
        self.queue_pairs.put(
            index,
            QpSlot {
                qp,
                own,
                peer: None,
                path: None,
                standing: Standing::default(),
                armed: Armed::default(),
                counters: QpCounters::new(),
            },
        );
        Ok(qpn)
    }

    fn check_capacity(&self, init: &QueuePairInit) -> Result<(), VerbError> {
        let limits = &self.limits;
        let checks = [
            ("max_send_wr", init.send.depth <= limits.max_qp_wr),
            ("max_send_sge", init.send.max_sge <= limits.max_sge),
            ("max_inline_data", init.send.max_inline <= limits.max_inline_data),
            ("max_recv_wr", init.receive.depth <= limits.max_qp_wr),
            ("max_recv_sge", init.receive.max_sge <= limits.max_sge),
        ];
        match checks.into_iter().find(|(_, right)| !right) {
            Some((what, _)) => Err(VerbError::Invalid(what)),
            None => Ok(()),
        }
    }

    /// `ibv_query_qp`.
    ///
    /// # Errors
    /// [`VerbError::NoSuchObject`].
    //= BC-100
    pub fn query_queue_pair(&self, qpn: Qpn) -> Result<QueuePairInfo, VerbError> {
        let slot = self.slot_of(qpn).ok_or(VerbError::NoSuchObject)?;
        Ok(QueuePairInfo {
            service: slot.qp.service(),
            state: slot.qp.state(),
            attributes: *slot.qp.attributes(),
            path: slot.path,
        })
    }

    /// How many packets a reliable connection may have unacknowledged.
    ///
    /// # Errors
    /// [`VerbError::NoSuchObject`].
    pub fn set_window(&mut self, qpn: Qpn, packets: u32) -> Result<(), VerbError> {
        let index = self.numbers.index_of(qpn).ok_or(VerbError::NoSuchObject)?;
        let slot = self.queue_pairs.get_mut(index).ok_or(VerbError::NoSuchObject)?;
        slot.qp.set_window(packets);
        Ok(())
    }

    /// `ibv_modify_qp`. `values` holds the values of the attributes in `given`, `vector` that of
    /// the address vector.
    ///
    /// # Errors
    /// The step or a value is refused; then nothing has changed.
    //= F13, BC-123
    pub fn modify_queue_pair(
        &mut self,
        qpn: Qpn,
        to: QpState,
        given: AttributeMask,
        values: &Attributes,
        vector: Option<&AddressVector>,
    ) -> Result<(), VerbError> {
        let index = self.numbers.index_of(qpn).ok_or(VerbError::NoSuchObject)?;
        self.check_limits(given, values)?;
        let addressing = match vector.filter(|_| given.contains(Attribute::Av)) {
            Some(vector) => {
                let peer = if given.contains(Attribute::DestQpn) {
                    values.dest_qp
                } else {
                    self.query_queue_pair(qpn)?.attributes.dest_qp
                };
                let port = source_port::source_port(vector.flow_label, qpn, peer);
                Some(vector.resolve(&self.tables.gids, port)?)
            }
            None if given.contains(Attribute::Av) => return Err(VerbError::Invalid("ah_attr")),
            None => None,
        };
        self.with(index, |qp, adapter| qp.modify(to, given, values, adapter))
            .unwrap_or(Err(ModifyError::NoSuchQueuePair))?;
        if let (Some(addressing), Some(vector)) = (addressing, vector) {
            self.set_path(index, Path { vector: *vector, addressing, pd: None })?;
        }
        if to == QpState::Reset {
            self.clear(index);
        }
        Ok(())
    }

    /// What the device promises no more of than its limits say.
    //= V02, 05-5.1
    fn check_limits(&self, given: AttributeMask, values: &Attributes) -> Result<(), VerbError> {
        let limits = &self.limits;
        let (reads, peers_reads) = (values.max_rd_atomic, values.max_dest_rd_atomic);
        let checks = [
            (Attribute::PathMtu, values.path_mtu.bytes() <= limits.port_mtu.bytes(), "path_mtu"),
            (Attribute::MaxQpRdAtomic, reads <= limits.max_qp_init_rd_atom, "max_rd_atomic"),
            (
                Attribute::MaxDestRdAtomic,
                peers_reads <= limits.max_qp_rd_atom,
                "max_dest_rd_atomic",
            ),
        ];
        let broken =
            checks.into_iter().find(|(attribute, right, _)| given.contains(*attribute) && !right);
        broken.map_or(Ok(()), |(.., what)| Err(VerbError::Invalid(what)))
    }

    fn set_path(&mut self, index: u32, path: Path) -> Result<(), VerbError> {
        let slot = self.queue_pairs.get_mut(index).ok_or(VerbError::NoSuchObject)?;
        let addressing = path.addressing;
        match slot.path {
            Some(id) => {
                self.tables.paths.replace(id, path);
            }
            None => {
                let id = self.tables.paths.add(path).ok_or(VerbError::Limit("paths"))?;
                slot.path = Some(id);
            }
        }
        if slot.qp.service() != ServiceType::Ud {
            slot.peer = Some(Peer {
                own: addressing.source,
                other: addressing.destination,
                vlan: addressing.vlan.map(VlanTag::id),
            });
        }
        Ok(())
    }

    /// A queue pair is reset: its queues are empty, its completions gone, its path too.
    fn clear(&mut self, index: u32) {
        let Some(slot) = self.queue_pairs.get_mut(index) else { return };
        self.turns.forget(index, &mut slot.standing);
        slot.peer = None;
        if let Some(path) = slot.path.take() {
            self.tables.paths.remove(path);
        }
        let own = slot.own;
        if !own.shared
            && let Some(queue) = self.tables.receive_queue_mut(own.receive_queue)
        {
            queue.clear();
        }
        for cq in [own.send_cq, own.receive_cq] {
            if let Some(queue) = self.tables.cq_mut(cq) {
                queue.purge(own.qpn);
            }
        }
    }

    /// `ibv_destroy_qp`. What was posted is forgotten, completions of the queue pair too.
    ///
    /// # Errors
    /// [`VerbError::InUse`] while it is a member of a multicast group.
    //= IBA o10-2.2.3, BC-106, BC-107
    pub fn destroy_queue_pair(&mut self, qpn: Qpn) -> Result<(), VerbError> {
        let index = self.numbers.index_of(qpn).ok_or(VerbError::NoSuchObject)?;
        self.tables.groups.check_destroy(qpn)?;
        let blank = blank(qpn, self.limits.port_mtu);
        // Receives in hand go back to where they came from.
        self.with(index, |qp, adapter| {
            qp.modify(QpState::Reset, AttributeMask::NONE, &blank, adapter)
        });
        self.clear(index);
        let Some(slot) = self.queue_pairs.remove(index) else { return Ok(()) };
        let own = slot.own;
        self.numbers.release(qpn);
        for cq in [own.send_cq, own.receive_cq] {
            if let Some(queue) = self.tables.cq_mut(cq) {
                queue.users.release();
            }
        }
        if let Some(queue) = self.tables.receive_queue_mut(own.receive_queue) {
            queue.users.release();
        }
        if !own.shared {
            self.tables.receive_queues.remove(own.receive_queue.0);
        }
        self.tables.pds.release(own.pd);
        Ok(())
    }

    /// `ibv_create_ah`: where datagrams may go.
    ///
    /// # Errors
    /// [`VerbError::Pd`], [`VerbError::Address`], [`VerbError::Limit`].
    pub fn create_address_handle(
        &mut self,
        pd: Pd,
        vector: &AddressVector,
    ) -> Result<PathId, VerbError> {
        let port = source_port::from_flow_label(vector.flow_label);
        let addressing = vector.resolve(&self.tables.gids, port)?;
        let path = Path { vector: *vector, addressing, pd: Some(pd) };
        self.in_domain(pd, |tables| {
            tables.paths.add(path).ok_or(VerbError::Limit("address handles"))
        })
    }

    /// `ibv_destroy_ah`.
    ///
    /// # Errors
    /// [`VerbError::NoSuchObject`].
    pub fn destroy_address_handle(&mut self, id: PathId) -> Result<(), VerbError> {
        let pd = self.tables.paths.get(id).and_then(|path| path.pd);
        let pd = pd.ok_or(VerbError::NoSuchObject)?;
        self.tables.paths.remove(id);
        self.tables.pds.release(pd);
        Ok(())
    }

    /// `ibv_attach_mcast`.
    ///
    /// # Errors
    /// [`VerbError::Multicast`]; [`VerbError::Invalid`] unless the queue pair is for datagrams.
    pub fn attach_multicast(&mut self, group: Gid, qpn: Qpn) -> Result<(), VerbError> {
        let slot = self.slot_of(qpn).ok_or(VerbError::NoSuchObject)?;
        if slot.qp.service() != ServiceType::Ud {
            return Err(VerbError::Invalid("qp_type"));
        }
        self.tables.groups.attach(group, qpn)?;
        Ok(())
    }

    /// `ibv_detach_mcast`.
    ///
    /// # Errors
    /// [`VerbError::Multicast`].
    pub fn detach_multicast(&mut self, group: Gid, qpn: Qpn) -> Result<(), VerbError> {
        self.tables.groups.detach(group, qpn)?;
        Ok(())
    }

    /// The slot of the queue pair with this number.
    pub(crate) fn slot_of(&self, qpn: Qpn) -> Option<&QpSlot> {
        self.queue_pairs.get(self.numbers.index_of(qpn)?)
    }
}

/// The attributes of a queue pair of which nothing is known but the port's MTU: datagrams keep it.
fn blank(qpn: Qpn, path_mtu: Mtu) -> Attributes {
    Attributes {
        qpn,
        cur_state: QpState::default(),
        dest_qp: Qpn::default(),
        path_mtu,
        access: AccessFlags::NONE,
        q_key: QKey::default(),
        p_key: PKey::DEFAULT,
        sq_psn: Psn::default(),
        rq_psn: Psn::default(),
        max_rd_atomic: 0,
        max_dest_rd_atomic: 0,
        timeout: AckTimeout::default(),
        retry_cnt: 0,
        rnr_retry: 0,
        min_rnr_timer: RnrTimer::default(),
    }
}
