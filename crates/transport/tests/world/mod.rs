//! Two queue pairs and the smallest adapters that serve them: one region of memory each, a receive
//! queue, a list of completions.

use std::collections::VecDeque;

use roxe_transport::adapter::{
    Access, Adapter, Count, KeyViolation, Place, QpEvent, Receive, SgeList,
};
use roxe_transport::conduct::Conduct;
use roxe_transport::qp_state::{Attribute as A, AttributeMask, QpState, ServiceType};
use roxe_transport::work::{
    AccessFlags, Attributes, Completion, CompletionStatus, LocalOperation, PathId, Sge, Span,
};
use roxe_transport::{Outlet, QueuePair, SendCapacity};
use roxe_wire::{
    AckTimeout, Body, Grh, Instant, LKey, Mtu, PKey, Packet, Payload, Psn, QKey, Qpn, RKey,
    RnrTimer, Room,
};

pub(crate) const KEY: u32 = 7;
pub(crate) const MEMORY: usize = 1 << 16;

pub(crate) struct FakeAdapter {
    pub(crate) memory: Vec<u8>,
    pub(crate) receives: VecDeque<(u64, Sge)>,
    taken: Vec<Sge>,
    pub(crate) sent: Vec<Completion>,
    pub(crate) received: Vec<Completion>,
    pub(crate) events: Vec<QpEvent>,
    pub(crate) counts: Vec<Count>,
    pub(crate) flushed: Vec<Access>,
    /// What peers may do.
    pub(crate) allow: AccessFlags,
    /// Whether requests of any length find their memory, as long as nobody touches it.
    pub(crate) endless: bool,
}

impl FakeAdapter {
    pub(crate) fn new() -> Self {
        Self {
            memory: vec![0; MEMORY],
            receives: VecDeque::new(),
            taken: Vec::new(),
            sent: Vec::new(),
            received: Vec::new(),
            events: Vec::new(),
            counts: Vec::new(),
            flushed: Vec::new(),
            allow: AccessFlags::from_bits(0x3ff).unwrap(),
            endless: false,
        }
    }

    pub(crate) fn count_of(&self, what: Count) -> usize {
        self.counts.iter().filter(|count| **count == what).count()
    }

    fn range(&self, key: u32, va: u64, len: usize) -> Result<usize, KeyViolation> {
        let at = usize::try_from(va).map_err(|_| KeyViolation::OutsideRegion)?;
        let end = at.checked_add(len).ok_or(KeyViolation::OutsideRegion)?;
        if key != KEY {
            Err(KeyViolation::NoSuchKey)
        } else if end > self.memory.len() {
            Err(KeyViolation::OutsideRegion)
        } else {
            Ok(at)
        }
    }

    /// Each byte of a message: where it lies.
    fn places(
        &self,
        sges: SgeList<'_>,
        offset: u32,
        len: usize,
    ) -> Result<Vec<usize>, KeyViolation> {
        let mut all = Vec::new();
        for sge in sges.iter() {
            let at = self.range(sge.l_key.0, sge.va, sge.len as usize)?;
            all.extend(at..at + sge.len as usize);
        }
        let from = offset as usize;
        all.get(from..from + len).map(<[usize]>::to_vec).ok_or(KeyViolation::OutsideRegion)
    }

    fn put(&mut self, places: &[usize], payload: Payload<'_>) {
        let bytes = payload.pieces().concat();
        places.iter().zip(bytes).for_each(|(&at, byte)| self.memory[at] = byte);
    }
}

fn fill(place: Place<'_>, bytes: impl Iterator<Item = u8>) {
    let Place::Bytes { first, second } = place else { panic!("bytes are wanted") };
    first.iter_mut().chain(second).zip(bytes).for_each(|(to, byte)| *to = byte);
}

impl Adapter for FakeAdapter {
    fn has_receive(&self) -> bool {
        !self.receives.is_empty()
    }

    fn receives(&self) -> Option<u32> {
        u32::try_from(self.receives.len()).ok()
    }

    fn take_receive(&mut self) -> Option<Receive> {
        let (wr_id, sge) = self.receives.pop_front()?;
        self.taken.push(sge);
        Some(Receive { wr_id, slot: self.taken.len() as u32 - 1, len: sge.len })
    }

    fn scatter_receive(
        &mut self,
        receive: &Receive,
        offset: u32,
        payload: Payload<'_>,
    ) -> Result<(), KeyViolation> {
        let sge = [self.taken[receive.slot as usize]];
        let places = self.places(SgeList(&sge, &[]), offset, payload.len())?;
        self.put(&places, payload);
        Ok(())
    }

    fn complete_receive(&mut self, _: Receive, completion: Completion) {
        self.received.push(completion);
    }

    fn forget_receive(&mut self, _: Receive) {}

    fn has_handle(&self, _: PathId) -> bool {
        true
    }

    fn check_local(&self, sges: SgeList<'_>, _: bool) -> Result<(), KeyViolation> {
        let len = |sge: &Sge| if self.endless { 0 } else { sge.len as usize };
        sges.iter().try_for_each(|sge| self.range(sge.l_key.0, sge.va, len(sge)).map(|_| ()))
    }

    fn gather(&self, sges: SgeList<'_>, offset: u32, place: Place<'_>) -> Result<(), KeyViolation> {
        let places = self.places(sges, offset, place.len())?;
        fill(place, places.into_iter().map(|at| self.memory[at]));
        Ok(())
    }

    fn scatter(
        &mut self,
        sges: SgeList<'_>,
        offset: u32,
        payload: Payload<'_>,
    ) -> Result<(), KeyViolation> {
        let places = self.places(sges, offset, payload.len())?;
        self.put(&places, payload);
        Ok(())
    }

    fn check_remote(&self, key: RKey, span: Span, access: Access) -> Result<(), KeyViolation> {
        if !self.allow.contain(access.right()) {
            return Err(KeyViolation::AccessDenied);
        }
        self.range(key.0, span.va, span.len as usize).map(|_| ())
    }

    fn write_remote(
        &mut self,
        key: RKey,
        va: u64,
        payload: Payload<'_>,
    ) -> Result<(), KeyViolation> {
        let at = self.range(key.0, va, payload.len())?;
        self.put(&(at..at + payload.len()).collect::<Vec<_>>(), payload);
        Ok(())
    }

    fn read_remote(&self, key: RKey, va: u64, place: Place<'_>) -> Result<(), KeyViolation> {
        let at = self.range(key.0, va, place.len())?;
        fill(place, self.memory[at..].iter().copied());
        Ok(())
    }

    fn atomic_remote(
        &mut self,
        key: RKey,
        va: u64,
        change: &mut dyn FnMut(u64) -> Option<u64>,
    ) -> Result<u64, KeyViolation> {
        let at = self.range(key.0, va, 8)?;
        let bytes = &mut self.memory[at..at + 8];
        let found = u64::from_ne_bytes(bytes.try_into().unwrap());
        if let Some(new) = change(found) {
            bytes.copy_from_slice(&new.to_ne_bytes());
        }
        Ok(found)
    }

    fn flush_remote(&mut self, key: RKey, span: Span, access: Access) -> Result<(), KeyViolation> {
        self.check_remote(key, span, access)?;
        self.flushed.push(access);
        Ok(())
    }

    fn invalidate_remote(&mut self, key: RKey) -> Result<(), KeyViolation> {
        if key.0 == KEY { Ok(()) } else { Err(KeyViolation::NoSuchKey) }
    }

    fn local_operation(&mut self, operation: &LocalOperation) -> Result<(), KeyViolation> {
        match operation {
            LocalOperation::Invalidate(key) => self.invalidate_remote(*key),
            _ => Ok(()),
        }
    }

    fn complete_send(&mut self, completion: Completion) {
        self.sent.push(completion);
    }

    fn flush_receives(&mut self) {
        for (wr_id, _) in self.receives.drain(..) {
            self.received.push(Completion {
                wr_id,
                status: CompletionStatus::Flushed,
                opcode: roxe_transport::work::CompletionOpcode::Recv,
                solicited: true,
                ..Completion::BLANK
            });
        }
    }

    fn event(&mut self, event: QpEvent) {
        self.events.push(event);
    }

    fn count(&mut self, what: Count) {
        self.counts.push(what);
    }
}

pub(crate) fn sge(va: u64, len: u32) -> Sge {
    Sge { va, len, l_key: LKey(KEY) }
}

/// One end: a queue pair and its adapter.
pub(crate) struct End {
    pub(crate) qp: QueuePair,
    pub(crate) adapter: FakeAdapter,
}

pub(crate) const fn attributes(own: u32, peer: u32) -> Attributes {
    Attributes {
        qpn: Qpn::new(own),
        cur_state: QpState::Reset,
        dest_qp: Qpn::new(peer),
        path_mtu: Mtu::B256,
        access: match AccessFlags::from_bits(0x3ff) {
            Some(all) => all,
            None => AccessFlags::NONE,
        },
        q_key: QKey(0x1111_1111),
        p_key: PKey::DEFAULT,
        sq_psn: Psn::new(own * 1000),
        rq_psn: Psn::new(peer * 1000),
        max_rd_atomic: 4,
        max_dest_rd_atomic: 4,
        timeout: match AckTimeout::new(10) {
            Some(timeout) => timeout,
            None => panic!(),
        },
        retry_cnt: 6,
        rnr_retry: 7,
        min_rnr_timer: RnrTimer::from_bits(1),
    }
}

impl End {
    pub(crate) fn new(service: ServiceType, attributes: Attributes) -> Self {
        Self::behaving(Conduct::DEFAULT, service, attributes)
    }

    /// One that behaves like this.
    pub(crate) fn behaving(conduct: Conduct, service: ServiceType, attributes: Attributes) -> Self {
        let capacity = SendCapacity { depth: 64, max_sge: 4, max_inline: 64 };
        let mut end = Self {
            qp: QueuePair::new(service, capacity, false, attributes),
            adapter: FakeAdapter::new(),
        };
        end.qp.set_conduct(conduct);
        let rc = service == ServiceType::Rc;
        let ud = service == ServiceType::Ud;
        let key = if ud { A::Qkey } else { A::AccessFlags };
        let mut steps = vec![(QpState::Init, vec![A::PkeyIndex, A::Port, key])];
        steps.push((
            QpState::Rtr,
            match (rc, ud) {
                (true, _) => {
                    vec![
                        A::Av,
                        A::PathMtu,
                        A::DestQpn,
                        A::RqPsn,
                        A::MaxDestRdAtomic,
                        A::MinRnrTimer,
                    ]
                }
                (_, true) => vec![],
                _ => vec![A::Av, A::PathMtu, A::DestQpn, A::RqPsn],
            },
        ));
        steps.push((
            QpState::Rts,
            match rc {
                true => vec![A::Timeout, A::RetryCnt, A::RnrRetry, A::SqPsn, A::MaxQpRdAtomic],
                false => vec![A::SqPsn],
            },
        ));
        for (state, given) in steps {
            let given = AttributeMask::of(&given);
            end.qp.modify(state, given, &attributes, &mut end.adapter).unwrap();
        }
        end
    }

    pub(crate) fn receive(&mut self, now: Instant, bytes: &[u8]) {
        let packet = Packet::parse(Body::whole(bytes)).unwrap();
        let grh = Grh::from_bytes([0; 40]);
        self.qp.handle_packet(now, &packet, &grh, &mut self.adapter);
    }

    /// The next packet, answers first, with four bytes where the ICRC will stand.
    pub(crate) fn poll(&mut self, now: Instant) -> Option<Vec<u8>> {
        let mut bytes = vec![0xee; 600];
        let outlet = Outlet { room: Room::whole(&mut bytes), elide: false };
        let emitted = match self.qp.poll_response(now, outlet, &mut self.adapter) {
            Some(emitted) => emitted,
            None => {
                let outlet = Outlet { room: Room::whole(&mut bytes), elide: false };
                self.qp.poll_request(now, outlet, &mut self.adapter)?
            }
        };
        bytes.truncate(emitted.len + 4);
        Some(bytes)
    }
}
