//! One device with what is known of it: verbs that check what they give, memory that is touched by
//! right only.

use std::collections::{BTreeSet, VecDeque};

use roxe_device::counters::{DeviceCount, Of};
use roxe_device::memory::{Changes, Registration, WindowType};
use roxe_device::protection_domain::Pd;
use roxe_device::{
    CqId, Device, Event, HostRegion, Limits, QueuePairInit, ReceiveQueueId, Resources, VerbError,
};
use roxe_transport::qp_state::{AttributeMask, QpState};
use roxe_transport::work::{
    AccessFlags, Attributes, Completion, CompletionOpcode, CompletionStatus, LocalOperation,
    PathId, PostError, ReceiveRequest, SendOperation, SendRequest, Sge,
};
use roxe_wire::{DropReason, Gid, LKey, Psn, Qpn, RKey};

use crate::host::{Access, Guarded};
use crate::model::{Bound, Cq, Domain, Memory, Qp, RECEIVE, Region, Srq, Who, Window, index};

/// A device and what is known of it.
pub struct End {
    pub device: Device<Guarded>,
    pub domains: Vec<Domain>,
    pub cqs: Vec<Cq>,
    pub srqs: Vec<Srq>,
    pub qps: Vec<Qp>,
    pub memory: Memory,
    pub handles: Vec<(PathId, Pd)>,
    pub groups: BTreeSet<(Gid, Qpn)>,
    next_wr: u64,
}

impl End {
    pub fn new(limits: Limits, seed: u64) -> Self {
        Self {
            device: Device::new(limits, seed, Guarded::default()),
            domains: Vec::new(),
            cqs: Vec::new(),
            srqs: Vec::new(),
            qps: Vec::new(),
            memory: Memory::default(),
            handles: Vec::new(),
            groups: BTreeSet::new(),
            next_wr: 0,
        }
    }

    pub fn qp(&self, qpn: Qpn) -> Option<&Qp> {
        self.qps.iter().find(|qp| qp.qpn == qpn)
    }

    pub fn qp_mut(&mut self, qpn: Qpn) -> Option<&mut Qp> {
        self.qps.iter_mut().find(|qp| qp.qpn == qpn)
    }

    pub fn state(&self, qpn: Qpn) -> QpState {
        self.device.query_queue_pair(qpn).expect("it is there").state
    }

    fn uses(&mut self, pd: Pd, change: i32) {
        let domain = self.domains.iter_mut().find(|domain| domain.pd == pd);
        let domain = domain.expect("it has users");
        domain.users = domain.users.checked_add_signed(change).expect("as many go as came");
    }

    pub fn alloc_pd(&mut self) {
        if let Ok(pd) = self.device.alloc_pd() {
            self.domains.push(Domain { pd, users: 0 });
        }
    }

    pub fn dealloc_pd(&mut self, pd: Pd) {
        let users = self.domains.iter().find(|domain| domain.pd == pd).map(|domain| domain.users);
        assert_eq!(self.device.dealloc_pd(pd).is_ok(), users == Some(0), "{pd:?}: {users:?}");
        if users == Some(0) {
            self.domains.retain(|domain| domain.pd != pd);
        }
    }

    pub fn create_cq(&mut self, depth: u32) {
        if let Ok(id) = self.device.create_completion_queue(depth) {
            self.cqs.push(Cq { id, users: 0, armed: false, lost: false });
        }
    }

    pub fn destroy_cq(&mut self, id: CqId) {
        let users = self.cqs.iter().find(|cq| cq.id == id).map(|cq| cq.users);
        let destroyed = self.device.destroy_completion_queue(id);
        assert_eq!(destroyed.is_ok(), users == Some(0), "{id:?}: {users:?}");
        if users == Some(0) {
            self.cqs.retain(|cq| cq.id != id);
        }
    }

    pub fn notify(&mut self, id: CqId, solicited: bool) {
        if self.device.request_notify(id, solicited).is_ok() {
            let cq = self.cqs.iter_mut().find(|cq| cq.id == id);
            cq.expect("it is there").armed = true;
        }
    }

    pub fn register(&mut self, pd: Pd, len: usize, va: u64, said: u64, access: AccessFlags) {
        let host = self.device.host_mut().add(len);
        let what = Registration { pd, host, va, len: said, access };
        let Ok(key) = self.device.register_memory(&what) else {
            return self.device.host_mut().take_back(host);
        };
        self.memory.regions.push(Region { key, pd, host, va, len: said, access, fast: false });
        self.uses(pd, 1);
    }

    pub fn alloc_fast(&mut self, pd: Pd, len: usize, most: u64) {
        let host = self.device.host_mut().add(len);
        let Ok(key) = self.device.alloc_fast_memory(pd, host, most) else {
            return self.device.host_mut().take_back(host);
        };
        let limit = self.device.limits().max_fast_register_len;
        assert!(most <= limit, "{most} bytes, the limit is {limit}");
        let access = AccessFlags::NONE;
        self.memory.regions.push(Region { key, pd, host, va: 0, len: most, access, fast: true });
        self.uses(pd, 1);
    }

    pub fn reregister(
        &mut self,
        key: LKey,
        pd: Option<Pd>,
        access: Option<AccessFlags>,
        range: Option<(usize, u64, u64)>,
    ) {
        let range = range.map(|(len, va, said)| (self.device.host_mut().add(len), va, said));
        let changes = Changes { pd, access, range };
        if self.device.reregister_memory(key, &changes).is_err() {
            if let Some((host, ..)) = range {
                self.device.host_mut().take_back(host);
            }
            return;
        }
        let region = self.memory.regions.iter_mut().find(|region| region.key == key);
        let region = region.expect("it has this key");
        let old = *region;
        region.pd = pd.unwrap_or(old.pd);
        region.access = access.unwrap_or(old.access);
        (region.host, region.va, region.len) = range.unwrap_or((old.host, old.va, old.len));
        assert_eq!(self.device.host().is_lent(old.host), range.is_none());
        if let Some(pd) = pd {
            self.uses(old.pd, -1);
            self.uses(pd, 1);
        }
    }

    /// Says whether it went.
    pub fn deregister(&mut self, key: LKey) -> bool {
        if self.device.deregister_memory(key).is_err() {
            return false;
        }
        let at = self.memory.regions.iter().position(|r| index(r.key.0) == index(key.0));
        let region = self.memory.regions.swap_remove(at.expect("it has this key"));
        assert!(!self.device.host().is_lent(region.host));
        self.uses(region.pd, -1);
        true
    }

    pub fn alloc_window(&mut self, pd: Pd, kind: WindowType) {
        if let Ok(key) = self.device.alloc_window(pd, kind) {
            self.memory.windows.push(Window { key, pd, kind });
            self.uses(pd, 1);
        }
    }

    /// Says whether it went.
    pub fn dealloc_window(&mut self, key: RKey) -> bool {
        if self.device.dealloc_window(key).is_err() {
            return false;
        }
        let at = self.memory.windows.iter().position(|w| index(w.key.0) == index(key.0));
        let window = self.memory.windows.swap_remove(at.expect("it has this key"));
        self.uses(window.pd, -1);
        true
    }

    pub fn create_srq(&mut self, pd: Pd, depth: u32, max_sge: u32, limit: u32) {
        if let Ok(id) = self.device.create_shared_receive_queue(pd, depth, max_sge, limit) {
            self.srqs.push(Srq { id, pd, users: 0, posted: BTreeSet::new() });
            self.uses(pd, 1);
        }
    }

    pub fn modify_srq(&mut self, id: ReceiveQueueId, depth: Option<u32>, limit: Option<u32>) {
        let done = self.device.modify_shared_receive_queue(id, depth, limit);
        let most = self.device.limits().max_srq_wr;
        let allowed = depth.is_none_or(|depth| (1..=most).contains(&depth));
        assert!(done.is_err() || allowed, "{depth:?}, the limit is {most}");
    }

    pub fn destroy_srq(&mut self, id: ReceiveQueueId) {
        let at = self.srqs.iter().position(|srq| srq.id == id).expect("it is there");
        let (users, pd) = (self.srqs[at].users, self.srqs[at].pd);
        let destroyed = self.device.destroy_shared_receive_queue(id);
        assert_eq!(destroyed.is_ok(), users == 0, "{id:?}: {users}");
        if users == 0 {
            self.srqs.swap_remove(at);
            self.uses(pd, -1);
        }
    }

    pub fn create_qp(&mut self, init: &QueuePairInit, gsi: bool) -> Option<Qpn> {
        let created = if gsi {
            self.device.create_gsi_queue_pair(init)
        } else {
            self.device.create_queue_pair(init)
        };
        let qpn = created.ok()?;
        assert!(self.qp(qpn).is_none(), "{qpn} twice");
        self.uses(init.pd, 1);
        for id in [init.send_cq, init.receive_cq] {
            self.cqs.iter_mut().find(|cq| cq.id == id).expect("it is there").users += 1;
        }
        if let Some(id) = init.srq {
            self.srqs.iter_mut().find(|srq| srq.id == id).expect("it is there").users += 1;
        }
        self.qps.push(Qp {
            qpn,
            service: init.service,
            pd: init.pd,
            send_cq: init.send_cq,
            receive_cq: init.receive_cq,
            srq: init.srq,
            signal_all: init.signal_all,
            sends: VecDeque::new(),
            receives: VecDeque::new(),
            sent: Psn::default(),
            answered: Psn::default(),
        });
        Some(qpn)
    }

    pub fn destroy_qp(&mut self, qpn: Qpn) {
        let member = self.groups.iter().any(|(_, member)| *member == qpn);
        let destroyed = self.device.destroy_queue_pair(qpn);
        assert_eq!(destroyed.is_ok(), !member, "{qpn}: {destroyed:?}");
        if member {
            return;
        }
        let at = self.qps.iter().position(|qp| qp.qpn == qpn).expect("it is there");
        let qp = self.qps.swap_remove(at);
        self.uses(qp.pd, -1);
        for id in [qp.send_cq, qp.receive_cq] {
            self.cqs.iter_mut().find(|cq| cq.id == id).expect("it is there").users -= 1;
        }
        if let Some(id) = qp.srq {
            self.srqs.iter_mut().find(|srq| srq.id == id).expect("it is there").users -= 1;
        }
        assert!(self.device.queue_pair_story(qpn).is_none() && self.device.post_send_gone(qpn));
    }

    /// Says whether it was done.
    pub fn modify(
        &mut self,
        qpn: Qpn,
        to: QpState,
        given: AttributeMask,
        values: &Attributes,
        vector: Option<&roxe_device::address_handle::AddressVector>,
    ) -> bool {
        let before = self.device.query_queue_pair(qpn).expect("it is there");
        let done = self.device.modify_queue_pair(qpn, to, given, values, vector);
        let after = self.device.query_queue_pair(qpn).expect("it is there");
        if done.is_err() {
            assert_eq!(before, after, "{done:?}");
            return false;
        }
        assert_eq!(after.state, to);
        let qp = self.qp_mut(qpn).expect("it is there");
        match to {
            QpState::Reset => qp.reset(),
            QpState::Rtr if before.state != to => qp.answered = after.attributes.rq_psn,
            QpState::Rts if before.state == QpState::Rtr => qp.sent = after.attributes.sq_psn,
            _ => {}
        }
        true
    }

    pub fn attach(&mut self, group: Gid, qpn: Qpn) {
        if self.device.attach_multicast(group, qpn).is_ok() {
            self.groups.insert((group, qpn));
        }
    }

    pub fn detach(&mut self, group: Gid, qpn: Qpn) {
        let was = self.groups.remove(&(group, qpn));
        assert_eq!(self.device.detach_multicast(group, qpn).is_ok(), was);
    }

    pub fn post_send(&mut self, qpn: Qpn, request: SendRequest<'_>) {
        self.next_wr += 1;
        let request = SendRequest { wr_id: self.next_wr, ..request };
        if self.device.post_send(qpn, &request).is_err() {
            return;
        }
        match request.operation {
            SendOperation::Local(LocalOperation::BindWindow(what)) => {
                self.memory.bindings.push(Bound { what, qpn });
            }
            SendOperation::Local(LocalOperation::RegisterMemory(what)) => {
                self.memory.registering.push(what);
            }
            _ => {}
        }
        let qp = self.qp_mut(qpn).expect("it took a request");
        qp.sends.push_back((request.wr_id, request.signaled || qp.signal_all));
    }

    pub fn post_receive(&mut self, qpn: Qpn, sges: &[Sge]) {
        self.next_wr += 1;
        let wr_id = self.next_wr | RECEIVE;
        let posted = self.device.post_receive(qpn, &ReceiveRequest { wr_id, sges });
        let qp = self.qp_mut(qpn).expect("it is there");
        match posted {
            Ok(()) => qp.receives.push_back(wr_id),
            Err(error) => assert_eq!(error == PostError::SharedReceiveQueue, qp.srq.is_some()),
        }
    }

    pub fn post_shared(&mut self, id: ReceiveQueueId, sges: &[Sge]) {
        self.next_wr += 1;
        let wr_id = self.next_wr | RECEIVE;
        let posted = self.device.post_shared_receive(id, &ReceiveRequest { wr_id, sges });
        if posted.is_ok() {
            let srq = self.srqs.iter_mut().find(|srq| srq.id == id).expect("it is there");
            srq.posted.insert(wr_id);
        }
    }

    /// Takes up to `most` completions; says how many there were.
    pub fn poll(&mut self, id: CqId, most: usize) -> usize {
        let mut room = [Completion::BLANK; 16];
        let room = &mut room[..most.min(16)];
        let count = self.device.poll_completions(id, room);
        for completion in &room[..count] {
            self.completed(id, completion);
        }
        count
    }

    fn completed(&mut self, id: CqId, completion: &Completion) {
        let qp = self.qps.iter_mut().find(|qp| qp.qpn == completion.qpn);
        let qp = qp.unwrap_or_else(|| panic!("nobody's: {completion:?}"));
        let receive = completion.wr_id & RECEIVE != 0;
        if completion.status == CompletionStatus::Success {
            let opcode = completion.opcode;
            let of_receive =
                matches!(opcode, CompletionOpcode::Recv | CompletionOpcode::RecvRdmaWithImm);
            assert_eq!(of_receive, receive, "{completion:?}");
        }
        if !receive {
            assert_eq!(id, qp.send_cq);
            return qp.complete_send(completion);
        }
        assert_eq!(id, qp.receive_cq);
        match qp.srq {
            None => assert_eq!(qp.receives.pop_front(), Some(completion.wr_id), "{completion:?}"),
            Some(srq) => {
                let srq = self.srqs.iter_mut().find(|known| known.id == srq);
                let was = srq.expect("it is there").posted.remove(&completion.wr_id);
                assert!(was, "not outstanding: {completion:?}");
            }
        }
    }

    /// What the device wants to be heard.
    pub fn hear(&mut self) {
        while let Some(event) = self.device.poll_event() {
            match event {
                Event::CompletionNotify(id) => {
                    let cq = self.cqs.iter_mut().find(|cq| cq.id == id).expect("it is there");
                    assert!(std::mem::take(&mut cq.armed), "{id:?} was not armed");
                }
                Event::CompletionQueueError(id) => {
                    let cq = self.cqs.iter_mut().find(|cq| cq.id == id).expect("it is there");
                    assert!(!std::mem::replace(&mut cq.lost, true), "{id:?} is told twice");
                }
                Event::SrqLimitReached(id) => {
                    assert!(self.srqs.iter().any(|srq| srq.id == id));
                }
                Event::QueuePair(qpn, _) => assert!(self.qp(qpn).is_some(), "{event:?}"),
            }
        }
    }

    /// What a queue pair says of its end.
    pub fn check_story(&self, qpn: Qpn) {
        let story = self.device.queue_pair_story(qpn).expect("it is there");
        assert_eq!(story.state, self.state(qpn));
        let fatal = story.ending.filter(|ending| ending.from != ending.to);
        match story.state {
            QpState::Error | QpState::SqError => {
                let ending = story.ending.expect("a queue pair that ended knows why");
                assert!(fatal.is_some() || ending.to == story.state, "{ending:?}");
                assert!(!story.sentence().is_empty() && !story.to_string().is_empty());
                assert!(!story.fields().is_empty());
                for status in [CompletionStatus::Flushed, CompletionStatus::RetryExceeded] {
                    assert!(!story.explain(status).is_empty());
                }
            }
            state => assert!(fatal.is_none(), "in {state}, but {fatal:?}"),
        }
    }

    /// Memory was touched only for one of these.
    pub fn check_accesses(&self, who: &[Who]) -> Vec<Access> {
        let accesses = self.device.host().accesses();
        for access in &accesses {
            let right = self.memory.permits(access, who);
            assert!(right, "{who:?} may not {access:?}\n{:#?}", self.memory);
        }
        accesses
    }

    /// Whose lists a queue pair's receives are.
    pub fn receive_pd(&self, qp: &Qp) -> Pd {
        match qp.srq {
            None => qp.pd,
            Some(id) => self.srqs.iter().find(|srq| srq.id == id).expect("it is there").pd,
        }
    }

    pub fn drops(&self) -> u64 {
        let counters = self.device.counters();
        DropReason::NAMES.iter().map(|name| counters.value(Of::Drop(name))).sum()
    }

    pub fn count(&self, what: DeviceCount) -> u64 {
        self.device.counters().value(Of::Device(what))
    }

    /// Ends all queue pairs: every request must have completed then. Takes everything away: nothing
    /// may be left.
    pub fn close(mut self, values: &Attributes) {
        let qpns: Vec<Qpn> = self.qps.iter().map(|qp| qp.qpn).collect();
        for &qpn in &qpns {
            if self.state(qpn) != QpState::Reset {
                assert!(self.modify(qpn, QpState::Error, AttributeMask::NONE, values, None));
            }
        }
        self.hear();
        qpns.iter().for_each(|qpn| self.check_story(*qpn));
        let cqs: Vec<CqId> = self.cqs.iter().map(|cq| cq.id).collect();
        for &cq in &cqs {
            while self.poll(cq, 16) > 0 {}
        }
        let lost = |id| self.cqs.iter().any(|cq| cq.id == id && cq.lost);
        for qp in &self.qps {
            let left = qp.sends.iter().find(|(_, signaled)| *signaled);
            assert!(left.is_none() || lost(qp.send_cq), "{left:?} never completed: {qp:?}");
            assert!(qp.receives.is_empty() || lost(qp.receive_cq), "never completed: {qp:?}");
        }
        for (group, qpn) in self.groups.clone() {
            self.detach(group, qpn);
        }
        qpns.iter().for_each(|qpn| self.destroy_qp(*qpn));
        assert!(cqs.iter().all(|cq| self.poll(*cq, 16) == 0), "completions of nobody");
        for srq in self.srqs.clone() {
            let most = srq.posted.len() as u32;
            assert!(
                self.device.modify_shared_receive_queue(srq.id, Some(most.max(1)), Some(0)).is_ok()
            );
            self.destroy_srq(srq.id);
        }
        cqs.iter().for_each(|cq| self.destroy_cq(*cq));
        for window in self.memory.windows.clone() {
            let mut keys = (0..=255).map(|low| RKey(window.key.0 & !0xff | low));
            assert!(keys.any(|key| self.dealloc_window(key)), "{window:?}");
        }
        for region in self.memory.regions.clone() {
            let mut keys = (0..=255).map(|low| LKey(region.key.0 & !0xff | low));
            assert!(keys.any(|key| self.deregister(key)), "{region:?}");
        }
        for (path, pd) in std::mem::take(&mut self.handles) {
            assert_eq!(self.device.destroy_address_handle(path), Ok(()));
            self.uses(pd, -1);
        }
        for domain in self.domains.clone() {
            self.dealloc_pd(domain.pd);
        }
        assert_eq!(self.device.resources(), Resources::default());
        assert_eq!(self.device.host().lent(), 0, "memory that nobody gave back");
        assert!(self.device.poll_event().is_none());
        self.device.handle_timeout(roxe_wire::Instant::MAX);
        assert_eq!(self.device.poll_timeout(), None);
    }

    pub fn create_handle(&mut self, pd: Pd, vector: &roxe_device::address_handle::AddressVector) {
        match self.device.create_address_handle(pd, vector) {
            Ok(path) => {
                self.handles.push((path, pd));
                let (have, most) = (self.handles.len(), self.device.limits().max_ah);
                assert!(have <= most as usize, "{have} address handles, the limit is {most}");
                self.uses(pd, 1);
            }
            Err(VerbError::Limit(_)) => {
                let most = self.device.limits().max_ah;
                assert!(self.handles.len() >= most as usize, "{} of {most}", self.handles.len());
            }
            Err(_) => {}
        }
    }

    pub fn destroy_handle(&mut self, at: usize) {
        let (path, pd) = self.handles.swap_remove(at);
        assert_eq!(self.device.destroy_address_handle(path), Ok(()));
        self.uses(pd, -1);
    }

    pub fn lose(&mut self, host: HostRegion) {
        self.device.host_mut().lose(host);
    }
}

/// What a queue pair that is gone says.
trait Gone {
    fn post_send_gone(&mut self, qpn: Qpn) -> bool;
}

impl Gone for Device<Guarded> {
    fn post_send_gone(&mut self, qpn: Qpn) -> bool {
        self.post_receive(qpn, &ReceiveRequest { wr_id: 0, sges: &[] })
            == Err(PostError::NoSuchQueue)
    }
}
