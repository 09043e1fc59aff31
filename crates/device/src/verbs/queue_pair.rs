//! Queue pairs.

use roxe_transport::QueuePair;
use roxe_transport::qp_state::{Attribute, AttributeMask, ModifyError, QpState, ServiceType};
use roxe_transport::work::{AccessFlags, Attributes, PathId};
use roxe_wire::{AckTimeout, Mtu, PKey, Psn, QKey, Qpn, RnrTimer, VlanTag, source_port};

use super::VerbError;
use crate::adapter::Belongings;
use crate::address_handle::AddressVector;
use crate::congestion::with_ect;
use crate::counters::QpCounters;
use crate::device::{Device, Peer, QpSlot, QueuePairInit, ReceiveQueueId};
use crate::host_memory::HostMemory;
use crate::path::Path;
use crate::receive_queue::ReceiveQueue;
use crate::timers::Armed;
use crate::transmit::Standing;

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
        qp.set_congestion_control(self.congestion.control, self.congestion.line());
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
                notified: None,
                last_target: None,
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

    /// The numbers of all queue pairs.
    pub fn queue_pair_numbers(&self) -> impl Iterator<Item = Qpn> {
        self.queue_pairs.iter().map(|slot| slot.own.qpn)
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

    /// The port is gone: every queue pair goes to state Error, but for those in state Reset.
    pub fn port_gone(&mut self) {
        let all: Vec<_> = self.queue_pair_numbers().collect();
        for qpn in all {
            let index = self.numbers.index_of(qpn);
            index.and_then(|index| self.with(index, |qp, adapter| qp.port_gone(adapter)));
        }
    }

    /// What the device promises no more of than its limits say.
    //= V02, 05-5.1
    fn check_limits(&self, given: AttributeMask, values: &Attributes) -> Result<(), VerbError> {
        let limits = &self.limits;
        let (reads, peers_reads) = (values.max_rd_atomic, values.max_dest_rd_atomic);
        let (path, port) = (values.path_mtu, limits.port_mtu);
        if given.contains(Attribute::PathMtu) && path.bytes() > port.bytes() {
            return Err(VerbError::PathMtu { path, port });
        }
        let checks = [
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

    fn set_path(&mut self, index: u32, mut path: Path) -> Result<(), VerbError> {
        let slot = self.queue_pairs.get_mut(index).ok_or(VerbError::NoSuchObject)?;
        if slot.qp.controller().is_some_and(|it| it.control().wants_marks()) {
            path.addressing.traffic_class = with_ect(path.addressing.traffic_class);
        }
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
        slot.last_target = None;
        slot.notified = None;
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
