//! Send requests: posted, completed, and what memory shows of them.

use std::time::Duration;

use roxe_transport::qp_state::{QpState, ServiceType};
use roxe_transport::work::{
    AccessFlags, Binding, Completion, CompletionOpcode, CompletionStatus, Data, DatagramTarget,
    FastRegistration, LocalOperation, PostError, Remote, SendOperation, SendRequest, Sge, Span,
};
use roxe_wire::{FlushPlacement, FlushSelectivity, ImmDt, LKey, NakCode, Qpn, RKey};

use crate::checker::{self, UNTOUCHED, USED};
use crate::phrase;

use super::plan::{Kind, Mistake, Request, State};
use super::{Action, Q_KEY, Workload, World};

/// Marks the names of requests that prepare something.
const PREPARATION: u64 = 1 << 62;

impl Workload {
    /// Makes the keys valid that the peer's messages will invalidate.
    pub(super) fn post_registrations(
        &mut self,
        world: &mut World,
        index: usize,
        side: usize,
    ) -> Result<(), String> {
        let pair = &self.pairs[index];
        if pair.epoch != 0 {
            return Ok(());
        }
        let end = &pair.ends[side];
        for (number, key) in end.fast.iter().enumerate() {
            let request = SendRequest {
                wr_id: PREPARATION | number as u64,
                operation: SendOperation::Local(LocalOperation::RegisterMemory(FastRegistration {
                    region: *key,
                    new_key: *key,
                    span: Span { va: 0, len: 64 },
                    access: AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE,
                })),
                data: Data::Regions(&[]),
                signaled: true,
                solicited: false,
                fence: false,
                target: None,
            };
            let device = &mut world.nodes[end.device].device;
            let posted = device.post_send(end.qpn, &request);
            posted.map_err(|error| format!("a registration is refused: {error}"))?;
            // It is done when the device is asked for packets, and leaves the queue.
            world.kick(end.device);
        }
        Ok(())
    }

    /// Opens the windows through which the peer will reach what this end shares.
    pub(super) fn bind_windows(
        &mut self,
        world: &mut World,
        index: usize,
        side: usize,
    ) -> Result<(), String> {
        let pair = &self.pairs[index];
        let end = &pair.ends[side];
        for (number, window) in end.windows.iter().enumerate() {
            let request = SendRequest {
                wr_id: PREPARATION | 1 << 32 | number as u64,
                operation: SendOperation::Local(LocalOperation::BindWindow(Binding {
                    window: *window,
                    new_key: *window,
                    region: end.shared.key,
                    span: Span { va: end.shared.va, len: end.shared.len as u64 },
                    access: AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_READ,
                })),
                data: Data::Regions(&[]),
                signaled: true,
                solicited: false,
                fence: false,
                target: None,
            };
            let posted = world.nodes[end.device].device.post_send(end.qpn, &request);
            posted.map_err(|error| format!("a binding is refused: {error}"))?;
            world.kick(end.device);
        }
        Ok(())
    }

    /// Posts a few requests; comes back for more.
    pub(super) fn post_some(
        &mut self,
        world: &mut World,
        index: usize,
        side: usize,
    ) -> Result<(), String> {
        let most = self.rng.between(1, 12);
        let mut wait = Some(self.rng.below(30_000));
        for _ in 0..most {
            let pair = &self.pairs[index];
            let end = &pair.ends[side];
            if !end.alive || pair.abandoned || end.next == end.plan.len() {
                wait = None;
                break;
            }
            if !self.post(world, index, side)? {
                wait = Some(self.rng.between(2_000, 400_000));
                break;
            }
        }
        let device = self.pairs[index].ends[side].device;
        world.kick(device);
        self.look_at(world, device)?;
        if let Some(wait) = wait {
            let epoch = self.pairs[index].epoch;
            world.schedule(Duration::from_nanos(wait), Action::Post { pair: index, side, epoch });
        }
        Ok(())
    }

    /// Posts the next request. False when the queue is full.
    fn post(&mut self, world: &mut World, index: usize, side: usize) -> Result<bool, String> {
        let pair = &mut self.pairs[index];
        let [ref mut one, ref mut other] = pair.ends;
        let (end, peer) = if side == 0 { (one, other) } else { (other, one) };
        let number = end.next;
        let mut request = end.plan[number].clone();
        let host = &mut self.hosts[peer.device];
        let device = &mut world.nodes[end.device].device;
        let memory = device.host_mut().bytes_mut(end.own.host).ok_or("no memory")?;
        let buffer = &mut memory[request.own..request.own + request.len];
        let mut remote =
            Remote { va: peer.shared.va + request.remote as u64, r_key: RKey(peer.shared.key.0) };
        if let (true, Some(window)) = (request.through_window, peer.windows.first()) {
            remote.r_key = *window;
        }
        match request.mistake {
            Some(Mistake::RemoteKey) => remote.r_key.0 ^= 1,
            Some(Mistake::RemoteRange) => {
                // The last bytes lie behind the region, at the least eight of them.
                let behind = peer.shared.len + 8;
                remote.va = peer.shared.va + (behind - request.len).next_multiple_of(8) as u64;
            }
            _ => {}
        }
        let version = end.versions % u8::MAX + 1;
        let operation = match request.kind {
            Kind::Send => SendOperation::Send,
            Kind::SendImmediate => SendOperation::SendWithImm(ImmDt(number as u32)),
            Kind::SendInvalidate(key) => match peer.invalid_key(key) {
                Some(key) => {
                    request.invalidates = Some(key);
                    SendOperation::SendWithInv(key)
                }
                None => {
                    request.kind = Kind::Send;
                    SendOperation::Send
                }
            },
            Kind::Write | Kind::Overwrite => SendOperation::Write(remote),
            Kind::WriteImmediate => SendOperation::WriteWithImm(remote, ImmDt(number as u32)),
            Kind::Read => SendOperation::Read(remote),
            Kind::CompareSwap => {
                request.expected = Some(end.chain);
                SendOperation::CompareSwap { remote, compare: end.chain, swap: end.chain + 1 }
            }
            Kind::FetchAdd(which) => {
                let r_key = RKey(host.common.key.0);
                let remote = Remote { va: host.common.va + which as u64 * 8, r_key };
                SendOperation::FetchAdd { remote, add: host.sums[which].add }
            }
            Kind::AtomicWrite => SendOperation::AtomicWrite(remote),
            Kind::Flush => SendOperation::Flush {
                remote,
                len: request.len as u32,
                placement: FlushPlacement { global_visibility: true, ..FlushPlacement::default() },
                selectivity: FlushSelectivity::Range,
            },
        };
        let mut bytes = vec![0; if request.inline { request.len } else { 0 }];
        if request.kind == Kind::Overwrite {
            bytes.fill(version);
            if !request.inline {
                buffer.fill(version);
            }
        } else if request.kind.has_source() {
            checker::fill(request.key, &mut bytes);
            if !request.inline {
                checker::fill(request.key, buffer);
            }
        }
        let sges = elements(&request, end.own.va, end.own.key);
        let data = if request.inline {
            Data::Inline(&bytes)
        } else if request.kind == Kind::Flush {
            Data::Regions(&[])
        } else {
            Data::Regions(&sges)
        };
        let target = match end.group_path.filter(|_| request.key.is_multiple_of(2)) {
            Some(path) => Some(DatagramTarget { path, qpn: Qpn::MULTICAST, q_key: Q_KEY }),
            None => end.path.map(|path| DatagramTarget { path, qpn: peer.qpn, q_key: Q_KEY }),
        };
        let posted = device.post_send(
            end.qpn,
            &SendRequest {
                wr_id: number as u64,
                operation,
                data,
                signaled: request.signaled,
                solicited: request.solicited,
                fence: request.fence,
                target,
            },
        );
        match posted {
            Ok(()) => {}
            Err(PostError::QueueFull { .. }) => {
                let memory = device.host_mut().bytes_mut(end.own.host).ok_or("no memory")?;
                memory[request.own..request.own + request.len].fill(UNTOUCHED);
                return Ok(false);
            }
            Err(error) => return Err(format!("request {number} is refused: {error}")),
        }
        self.posted += 1;
        request.state = State::Posted;
        let signaled = request.signaled || pair.signal_all;
        end.outstanding.post(number, signaled);
        end.next += 1;
        match request.kind {
            Kind::CompareSwap => end.chain += 1,
            Kind::FetchAdd(_) => host.additions += 1,
            Kind::Overwrite => end.versions = version,
            kind if kind.takes_receive() => peer.awaited.push_back(number),
            _ => {}
        }
        end.plan[number] = request;
        Ok(true)
    }

    /// A send request has completed.
    pub(super) fn sent(
        &mut self,
        world: &mut World,
        index: usize,
        side: usize,
        completion: &Completion,
    ) -> Result<(), String> {
        if completion.wr_id & PREPARATION != 0 {
            let fine =
                completion.status == CompletionStatus::Success || self.pairs[index].cause.is_some();
            return if fine { Ok(()) } else { Err("a registration failed".to_owned()) };
        }
        let number = completion.wr_id as usize;
        let pair = &mut self.pairs[index];
        let end = &mut pair.ends[side];
        if number >= end.next {
            return Err("it was not posted".to_owned());
        }
        let mut silent = Vec::new();
        end.outstanding.complete(number, |request| silent.push(request))?;
        for request in silent {
            self.succeeded(world, index, side, request)
                .map_err(|what| format!("request {request} before it: {what}"))?;
        }
        if completion.status == CompletionStatus::Success {
            self.check_completion(index, side, number, completion)?;
            return self.succeeded(world, index, side, number);
        }
        self.failed(world, index, side, number, completion.status)
    }

    fn check_completion(
        &self,
        index: usize,
        side: usize,
        number: usize,
        completion: &Completion,
    ) -> Result<(), String> {
        let request = &self.pairs[index].ends[side].plan[number];
        let opcode = match request.kind {
            Kind::Send | Kind::SendImmediate | Kind::SendInvalidate(_) => CompletionOpcode::Send,
            Kind::Write | Kind::WriteImmediate | Kind::Overwrite => CompletionOpcode::RdmaWrite,
            Kind::Read => CompletionOpcode::RdmaRead,
            Kind::CompareSwap => CompletionOpcode::CompSwap,
            Kind::FetchAdd(_) => CompletionOpcode::FetchAdd,
            Kind::AtomicWrite => CompletionOpcode::AtomicWrite,
            Kind::Flush => CompletionOpcode::Flush,
        };
        if completion.opcode != opcode {
            return Err(format!("it should be of a {}", phrase::operation(opcode)));
        }
        if completion.byte_len as usize != request.len {
            return Err(format!("the length should be {}", request.len));
        }
        Ok(())
    }

    /// A request succeeded: what it was for must have happened.
    fn succeeded(
        &mut self,
        world: &mut World,
        index: usize,
        side: usize,
        number: usize,
    ) -> Result<(), String> {
        let pair = &mut self.pairs[index];
        let rc = pair.service == ServiceType::Rc;
        let [ref mut one, ref mut other] = pair.ends;
        let (end, peer) = if side == 0 { (one, other) } else { (other, one) };
        let request = &mut end.plan[number];
        request.state = State::Succeeded;
        if let (true, Some(mistake)) = (rc, request.mistake) {
            return Err(format!("it succeeded in spite of {mistake}"));
        }
        let range = |at: usize| at..at + request.len;
        let theirs = world.nodes[peer.device].device.host().bytes(peer.shared.host);
        let theirs = &theirs.ok_or("no memory")?;
        let own = world.nodes[end.device].device.host().bytes(end.own.host);
        let own = &own.ok_or("no memory")?[range(request.own)];
        let number_here = || u64::from_ne_bytes(own.try_into().unwrap_or_default());
        match request.kind {
            Kind::Write | Kind::WriteImmediate | Kind::AtomicWrite if rc => {
                checker::all_of(request.key, &theirs[range(request.remote)])
                    .map_err(|what| format!("WRITE: {what}"))?;
            }
            Kind::Read => {
                checker::all_of(request.key, own).map_err(|what| format!("READ: {what}"))?;
            }
            Kind::CompareSwap if Some(number_here()) != request.expected => {
                let found = number_here();
                let expected =
                    request.expected.map_or_else(|| "?".to_owned(), |value| format!("0x{value:x}"));
                return Err(format!("found 0x{found:x}, expected {expected}"));
            }
            Kind::FetchAdd(which) => {
                let host = &mut self.hosts[peer.device];
                let original = number_here();
                request.expected = Some(original);
                host.sums[which].added(original, host.additions)?;
            }
            _ => {}
        }
        let slow = self.hosts[peer.device].small_cq;
        if rc && request.kind.takes_receive() && !slow && peer.awaited.contains(&number) {
            return Err("its message was not received".to_owned());
        }
        if request.kind.has_source() && !request.inline {
            let range = range(request.own);
            let memory = world.nodes[end.device].device.host_mut();
            if let Some(bytes) = memory.bytes_mut(end.own.host) {
                bytes[range].fill(USED);
            }
        }
        Ok(())
    }

    /// A request failed: there must be a reason.
    fn failed(
        &mut self,
        world: &mut World,
        index: usize,
        side: usize,
        number: usize,
        status: CompletionStatus,
    ) -> Result<(), String> {
        let pair = &self.pairs[index];
        let (end, peer) = (&pair.ends[side], &pair.ends[1 - side]);
        let request = &end.plan[number];
        let impaired = world.conversation(pair.conversation).impaired;
        let peer_state = world.nodes[peer.device].device.query_queue_pair(peer.qpn);
        let peer_gone = !peer.alive || !peer_state.is_ok_and(|info| info.state == QpState::Rts);
        // Late frames of an earlier connection draw NAKs that may fit this one by chance.
        let haunted = u64::from(pair.epoch != 0) * 3;
        let justified = match status {
            CompletionStatus::Flushed => pair.cause.is_some(),
            CompletionStatus::LocalProtectionError => request.mistake == Some(Mistake::LocalKey),
            CompletionStatus::RemoteOperationError if request.mistake == Some(Mistake::TooLong) => {
                world.nodes[peer.device].kind.conduct().too_long == NakCode::RemoteOperationalError
            }
            CompletionStatus::RemoteAccessError | CompletionStatus::RemoteOperationError => {
                peer.was_gone
                    || matches!(request.mistake, Some(Mistake::RemoteKey | Mistake::RemoteRange))
            }
            CompletionStatus::RemoteInvalidRequest => {
                let code = world.nodes[peer.device].kind.conduct().too_long;
                request.mistake == Some(Mistake::TooLong) && code == NakCode::InvalidRequest
            }
            CompletionStatus::RetryExceeded => {
                peer_gone || pair.abandoned || impaired + haunted > u64::from(pair.retry_cnt)
            }
            CompletionStatus::RnrRetryExceeded => pair.rnr_retry != 7,
            _ => false,
        };
        if !justified && !pair.abandoned {
            return Err(format!(
                "no reason to fail: {} frames impaired, retry_cnt {}, {request}",
                impaired, pair.retry_cnt
            ));
        }
        self.unknown(index, side, number);
        self.pairs[index].breaks += 1;
        let service = self.pairs[index].service;
        if service != ServiceType::Rc && status == CompletionStatus::LocalProtectionError {
            // Only the send queue stands still. Its application will notice.
            let pair = &mut self.pairs[index];
            pair.cause.get_or_insert_with(|| format!("request {number} of end {side}"));
            let epoch = pair.epoch;
            let wait = Duration::from_nanos(self.rng.between(1_000, 100_000));
            world.schedule(wait, Action::Resume { pair: index, side, epoch });
        } else if status != CompletionStatus::Flushed {
            self.blame(world, index, format!("request {number} of end {side}: {}", status.name()));
        }
        Ok(())
    }

    /// Nobody knows whether a request happened.
    pub(super) fn unknown(&mut self, index: usize, side: usize, number: usize) {
        let pair = &mut self.pairs[index];
        let device = pair.ends[1 - side].device;
        let request = &mut pair.ends[side].plan[number];
        request.state = State::Ended;
        if let Kind::FetchAdd(which) = request.kind {
            self.hosts[device].sums[which].lost();
        }
    }

    /// The world has ended: of what is still outstanding nobody will hear.
    pub(super) fn give_up(&mut self, index: usize) {
        for side in 0..2 {
            let requests = &self.pairs[index].ends[side].plan;
            let posted =
                requests.iter().enumerate().filter(|(_, request)| request.state == State::Posted);
            let posted: Vec<usize> = posted.map(|(number, _)| number).collect();
            for number in posted {
                self.unknown(index, side, number);
            }
        }
    }

    /// After a break nobody knows how far a chain of compares and swaps has come, but it shows.
    pub(super) fn resume_chains(&mut self, world: &World, index: usize) -> Result<(), String> {
        let pair = &mut self.pairs[index];
        for side in 0..2 {
            let [ref mut one, ref mut other] = pair.ends;
            let (end, peer) = if side == 0 { (one, other) } else { (other, one) };
            let memory = world.nodes[peer.device].device.host().bytes(peer.shared.host);
            let bytes = &memory.ok_or("no memory")?[peer.chain_at..peer.chain_at + 8];
            let found = u64::from_ne_bytes(bytes.try_into().unwrap_or_default());
            let least = end
                .plan
                .iter()
                .filter(|request| request.kind == Kind::CompareSwap)
                .filter(|request| request.state == State::Succeeded)
                .filter_map(|request| request.expected)
                .max()
                .map_or(0, |last| last + 1);
            if found < least || found > end.chain {
                return Err(format!(
                    "pair {index} end {side}: a chain of swaps is at {found}, not {least} to {}",
                    end.chain
                ));
            }
            end.chain = found;
        }
        Ok(())
    }

    /// Whether memory holds what follows from how all requests ended.
    pub(super) fn check_memory(&mut self, world: &World, index: usize) -> Result<(), String> {
        self.resume_chains(world, index)?;
        let pair = &self.pairs[index];
        for side in 0..2 {
            let (end, peer) = (&pair.ends[side], &pair.ends[1 - side]);
            let memory = |device: usize, region: super::Region| {
                world.nodes[device].device.host().bytes(region.host).ok_or("no memory")
            };
            let own = memory(end.device, end.own)?;
            let mut gaps = Gaps { bytes: own, at: 0 };
            let mut requests: Vec<&Request> = end.plan.iter().collect();
            requests.sort_by_key(|request| request.own);
            for request in requests {
                let bytes = gaps.up_to(request.own, request.len)?;
                own_bytes(request, bytes)
                    .map_err(|what| format!("end {side}, own bytes of {request}: {what}"))?;
            }
            gaps.up_to(end.pool.place(), 0)?;
            if self.hosts[end.device].srq.is_none() {
                super::receives::untouched(&end.pool, world.nodes[end.device].device.host())?;
            }
            let shared = memory(peer.device, peer.shared)?;
            let (hot_at, hot_len) = peer.hot;
            hot_bytes(&shared[hot_at..hot_at + hot_len], end.versions, pair.breaks != 0)?;
            let mut gaps = Gaps { bytes: shared, at: hot_at + hot_len };
            let mut requests: Vec<&Request> = end.plan.iter().collect();
            requests.sort_by_key(|request| request.remote);
            let apart =
                |request: &&Request| request.kind == Kind::Read || request.kind.writes_its_own();
            for request in requests.into_iter().filter(apart) {
                let bytes = gaps.up_to(request.remote, request.len)?;
                remote_bytes(request, bytes, pair.service)
                    .map_err(|what| format!("end {side}, remote bytes of {request}: {what}"))?;
            }
            gaps.up_to(shared.len(), 0)?;
        }
        Ok(())
    }
}

/// Memory between the places of requests, where nobody may write.
struct Gaps<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Gaps<'a> {
    /// Looks at the gap before `start`; gives what stands there.
    fn up_to(&mut self, start: usize, len: usize) -> Result<&'a [u8], String> {
        checker::untouched(&self.bytes[self.at..start])
            .map_err(|what| format!("between requests, from {}: {what}", self.at))?;
        self.at = start + len;
        Ok(&self.bytes[start..self.at])
    }
}

/// What a requester's own buffer must hold.
fn own_bytes(request: &Request, bytes: &[u8]) -> Result<(), String> {
    let used = |bytes: &[u8]| match checker::other_than(USED, bytes).is_none() {
        true => Ok(()),
        false => Err("a buffer that was given back was written".to_owned()),
    };
    match (request.kind, request.state) {
        (Kind::Flush, _) | (_, State::Planned) => checker::untouched(bytes),
        (kind, _) if kind.has_source() && request.inline => checker::untouched(bytes),
        (kind, State::Succeeded) if kind.has_source() => used(bytes),
        (Kind::Overwrite, _) => Ok(()),
        (kind, _) if kind.has_source() => checker::all_of(request.key, bytes),
        (Kind::Read, State::Succeeded) => checker::all_of(request.key, bytes),
        (Kind::Read, _) => checker::beginning_of(request.key, bytes),
        (_, State::Succeeded) => {
            let value = u64::from_ne_bytes(bytes.try_into().unwrap_or_default());
            if Some(value) == request.expected {
                Ok(())
            } else {
                Err(format!("an atomic's result changed to {value:#x}"))
            }
        }
        _ => Ok(()),
    }
}

/// What the peer's memory must hold.
fn remote_bytes(request: &Request, bytes: &[u8], service: ServiceType) -> Result<(), String> {
    match (request.kind, request.state) {
        (Kind::Read, _) => checker::all_of(request.key, bytes),
        (Kind::Write | Kind::WriteImmediate | Kind::AtomicWrite, state) => {
            match (request.mistake, state) {
                (None, State::Succeeded) if service == ServiceType::Rc => {
                    checker::all_of(request.key, bytes)
                }
                (None, State::Succeeded | State::Posted | State::Ended) => {
                    checker::beginning_of(request.key, bytes)
                }
                _ => checker::untouched(bytes),
            }
        }
        _ => Ok(()),
    }
}

/// What WRITEs over each other must leave: the last one.
fn hot_bytes(bytes: &[u8], versions: u8, broken: bool) -> Result<(), String> {
    if versions == 0 {
        return checker::untouched(bytes);
    }
    if broken {
        return Ok(());
    }
    match checker::other_than(versions, bytes) {
        None => Ok(()),
        Some(at) => {
            Err(format!("byte {at} is of WRITE {}, but the last was {versions}", bytes[at]))
        }
    }
}

/// A request's bytes in registered memory, cut where the plan says.
fn elements(request: &Request, va: u64, key: LKey) -> Vec<Sge> {
    let l_key = if request.mistake == Some(Mistake::LocalKey) { LKey(key.0 ^ 1) } else { key };
    let mut from = 0;
    let mut sges = Vec::new();
    for cut in request.cuts.iter().copied().chain([request.len]) {
        let at = va + (request.own + from) as u64;
        sges.push(Sge { va: at, len: (cut - from) as u32, l_key });
        from = cut;
    }
    sges
}
