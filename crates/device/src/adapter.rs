//! The device as one queue pair sees it.

use roxe_transport::adapter::{
    Access, Adapter, Count, KeyViolation, Place, QpEvent, Receive, SgeList,
};
use roxe_transport::work::{
    Completion, CompletionOpcode, CompletionStatus, Extra, LocalOperation, PathId, Span,
};
use roxe_wire::{Payload, Qpn, RKey};

use crate::counters::{DeviceCount, QpCounters};
use crate::device::{CqId, Event, ReceiveQueueId};
use crate::host_memory::HostMemory;
use crate::protection_domain::Pd;
use crate::tables::Tables;

/// What one queue pair belongs to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Belongings {
    pub(crate) qpn: Qpn,
    pub(crate) pd: Pd,
    pub(crate) send_cq: CqId,
    pub(crate) receive_cq: CqId,
    pub(crate) receive_queue: ReceiveQueueId,
    /// Whether the receive queue is shared with others.
    pub(crate) shared: bool,
}

/// The tables, in the hands of one queue pair.
pub(crate) struct QpAdapter<'a, H> {
    pub(crate) tables: &'a mut Tables<H>,
    pub(crate) own: &'a Belongings,
    pub(crate) counters: &'a mut QpCounters,
}

impl<H: HostMemory> QpAdapter<'_, H> {
    /// The protection domain that receive buffers are checked against: a shared queue has its own.
    //= 05-5.5
    fn receive_pd(&self) -> Pd {
        if self.own.shared {
            self.tables.receive_queue(self.own.receive_queue).map_or(self.own.pd, |q| q.pd())
        } else {
            self.own.pd
        }
    }
}

impl<H: HostMemory> Adapter for QpAdapter<'_, H> {
    //= S02
    fn has_receive(&self) -> bool {
        self.tables.receive_queue(self.own.receive_queue).is_some_and(|q| !q.is_empty())
    }

    fn receives(&self) -> Option<u32> {
        let queue = self.tables.receive_queue(self.own.receive_queue);
        queue.filter(|_| !self.own.shared).map(|queue| queue.waiting())
    }

    //= S01
    fn take_receive(&mut self) -> Option<Receive> {
        let queue = self.own.receive_queue;
        let (receive, limit) = self.tables.receive_queue_mut(queue)?.take()?;
        if limit.is_some() {
            self.tables.counters.device(DeviceCount::SrqLimitReached, 1);
            self.tables.events.push_back(Event::SrqLimitReached(queue));
        }
        Some(receive)
    }

    fn scatter_receive(
        &mut self,
        receive: &Receive,
        offset: u32,
        payload: Payload<'_>,
    ) -> Result<(), KeyViolation> {
        let pd = self.receive_pd();
        let Tables { receive_queues, memory, host, .. } = &mut *self.tables;
        let queue = receive_queues.get(self.own.receive_queue.0).ok_or(KeyViolation::MemoryGone)?;
        memory.scatter(pd, SgeList(queue.sges(receive.slot), &[]), offset, payload, host)
    }

    fn complete_receive(&mut self, receive: Receive, completion: Completion) {
        if let Some(queue) = self.tables.receive_queue_mut(self.own.receive_queue) {
            queue.give_back(receive.slot);
        }
        self.tables.complete(self.own.receive_cq, completion);
    }

    fn forget_receive(&mut self, receive: Receive) {
        if let Some(queue) = self.tables.receive_queue_mut(self.own.receive_queue) {
            queue.give_back(receive.slot);
        }
    }

    //= 05-5.8
    fn has_handle(&self, path: PathId) -> bool {
        self.tables.paths.handle(path, self.own.pd).is_some()
    }

    fn check_local(&self, sges: SgeList<'_>, write: bool) -> Result<(), KeyViolation> {
        self.tables.memory.check_list(self.own.pd, sges, write)
    }

    fn gather(&self, sges: SgeList<'_>, offset: u32, place: Place<'_>) -> Result<(), KeyViolation> {
        self.tables.memory.gather(self.own.pd, sges, offset, place, &self.tables.host)
    }

    fn scatter(
        &mut self,
        sges: SgeList<'_>,
        offset: u32,
        payload: Payload<'_>,
    ) -> Result<(), KeyViolation> {
        let Tables { memory, host, .. } = &mut *self.tables;
        memory.scatter(self.own.pd, sges, offset, payload, host)
    }

    fn check_remote(&self, key: RKey, span: Span, access: Access) -> Result<(), KeyViolation> {
        let &Belongings { pd, qpn, .. } = self.own;
        self.tables.memory.check_remote(pd, qpn, key, span, access).map(|_| ())
    }

    fn write_remote(
        &mut self,
        key: RKey,
        va: u64,
        payload: Payload<'_>,
    ) -> Result<(), KeyViolation> {
        let Tables { memory, host, .. } = &mut *self.tables;
        memory.write_remote(self.own.pd, self.own.qpn, key, va, payload, host)
    }

    fn read_remote(&self, key: RKey, va: u64, place: Place<'_>) -> Result<(), KeyViolation> {
        let &Belongings { pd, qpn, .. } = self.own;
        self.tables.memory.read_remote(pd, qpn, key, va, place, &self.tables.host)
    }

    fn atomic_remote(
        &mut self,
        key: RKey,
        va: u64,
        change: &mut dyn FnMut(u64) -> Option<u64>,
    ) -> Result<u64, KeyViolation> {
        let Tables { memory, host, .. } = &mut *self.tables;
        memory.atomic_remote(self.own.pd, self.own.qpn, key, va, change, host)
    }

    fn flush_remote(&mut self, key: RKey, span: Span, access: Access) -> Result<(), KeyViolation> {
        let Tables { memory, host, .. } = &mut *self.tables;
        memory.flush_remote(self.own.pd, self.own.qpn, key, span, access, host)
    }

    fn invalidate_remote(&mut self, key: RKey) -> Result<(), KeyViolation> {
        self.tables.memory.invalidate_remote(self.own.pd, self.own.qpn, key)
    }

    fn local_operation(&mut self, operation: &LocalOperation) -> Result<(), KeyViolation> {
        let &Belongings { pd, qpn, .. } = self.own;
        self.tables.memory.local_operation(pd, qpn, operation).map_err(KeyViolation::from)
    }

    fn complete_send(&mut self, completion: Completion) {
        self.tables.complete(self.own.send_cq, completion);
    }

    //= S03, R36
    fn flush_receives(&mut self) {
        if self.own.shared {
            self.event(QpEvent::LastWqeReached);
            return;
        }
        loop {
            let queue = self.tables.receive_queue_mut(self.own.receive_queue);
            let Some(wr_id) = queue.and_then(|queue| queue.flush()) else { return };
            self.count(Count::ResponderFlushed);
            self.tables.complete(self.own.receive_cq, flushed(wr_id, self.own.qpn));
        }
    }

    fn event(&mut self, event: QpEvent) {
        self.tables.events.push_back(Event::QueuePair(self.own.qpn, event));
    }

    fn count(&mut self, what: Count) {
        self.tables.counters.transport(what);
        self.counters.count(what);
    }
}

/// The completion of a receive that nothing came for.
pub(crate) fn flushed(wr_id: u64, qpn: Qpn) -> Completion {
    Completion {
        wr_id,
        status: CompletionStatus::Flushed,
        opcode: CompletionOpcode::Recv,
        byte_len: 0,
        extra: Extra::None,
        qpn,
        source_qp: Qpn::default(),
        grh: false,
        ipv6: false,
        solicited: false,
    }
}
