//! Receive buffers: posted, filled, looked at, cleaned and posted again.

use std::collections::BTreeMap;
use std::time::Duration;

use roxe_device::VecMemory;
use roxe_transport::qp_state::{QpState, ServiceType};
use roxe_transport::work::{
    Completion, CompletionOpcode, CompletionStatus, Extra, ReceiveRequest, Sge,
};

use crate::checker::{self, UNTOUCHED};
use crate::swarm::Feature as F;

use super::plan::{Kind, Mistake, State};
use super::{Action, RECEIVE, Region, Workload, World};

/// Buffers of one length, one behind the other in a region.
#[derive(Debug)]
pub(super) struct Pool {
    pub(super) region: Region,
    at: usize,
    len: usize,
    free: Vec<usize>,
    posted: BTreeMap<u64, usize>,
    number: u64,
    /// Receives that may be lost with their queue pair.
    pub(super) spare: usize,
    feeding: bool,
}

impl Pool {
    pub(super) fn new(region: Region, at: usize, count: usize, len: usize) -> Self {
        Self {
            region,
            at,
            len,
            free: (0..count).rev().collect(),
            posted: BTreeMap::new(),
            number: 0,
            spare: 0,
            feeding: false,
        }
    }

    /// Takes a free buffer: the name of its receive, and its element.
    fn post(&mut self) -> Option<(u64, Sge)> {
        let area = self.free.pop()?;
        self.number += 1;
        let name = RECEIVE | self.number;
        self.posted.insert(name, area);
        let va = self.region.va + (self.at + area * self.len) as u64;
        Some((name, Sge { va, len: self.len as u32, l_key: self.region.key }))
    }

    fn bytes<'a>(&self, area: usize, memory: &'a VecMemory) -> &'a [u8] {
        let at = self.at + area * self.len;
        memory.bytes(self.region.host).map_or(&[], |bytes| &bytes[at..at + self.len])
    }

    fn clean(&self, area: usize, memory: &mut VecMemory) {
        let at = self.at + area * self.len;
        if let Some(bytes) = memory.bytes_mut(self.region.host) {
            bytes[at..at + self.len].fill(UNTOUCHED);
        }
    }

    /// All receives are forgotten: their buffers are the application's again.
    pub(super) fn take_back(&mut self, memory: &mut VecMemory) {
        for (_, area) in std::mem::take(&mut self.posted) {
            self.clean(area, memory);
            self.free.push(area);
        }
    }

    /// How many buffers are free, and how many posted.
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.free.len(), self.posted.len())
    }

    /// Where the first buffer begins.
    pub(super) const fn place(&self) -> usize {
        self.at
    }
}

/// Whether no buffer that is free was written to.
pub(super) fn untouched(pool: &Pool, memory: &VecMemory) -> Result<(), String> {
    for &area in &pool.free {
        checker::untouched(pool.bytes(area, memory))
            .map_err(|what| format!("a receive buffer that is not posted: {what}"))?;
    }
    Ok(())
}

impl Workload {
    /// Posts receives to a queue pair's own queue.
    pub(super) fn feed(
        &mut self,
        world: &mut World,
        index: usize,
        side: usize,
    ) -> Result<(), String> {
        let late = self.has(F::LateReceives);
        let pair = &mut self.pairs[index];
        let end = &mut pair.ends[side];
        end.feeding = false;
        if !end.alive || pair.abandoned {
            return Ok(());
        }
        let many = if late { self.rng.between(0, 3) } else { u64::MAX };
        for _ in 0..many.min(64 - end.pool.posted.len() as u64) {
            let Some((wr_id, sge)) = end.pool.post() else { break };
            let sges = split(sge, wr_id);
            world.nodes[end.device]
                .device
                .post_receive(end.qpn, &ReceiveRequest { wr_id, sges: &sges })
                .map_err(|error| format!("a receive is refused: {error}"))?;
        }
        if !end.pool.free.is_empty() && late {
            end.feeding = true;
            let wait = Duration::from_nanos(self.rng.between(1_000, 200_000));
            let epoch = pair.epoch;
            world.schedule(wait, Action::Feed { pair: index, side, epoch });
        }
        Ok(())
    }

    /// Posts receives to a device's shared queue.
    pub(super) fn feed_shared(&mut self, world: &mut World, device: usize) -> Result<(), String> {
        let late = self.has(F::LateReceives);
        let Some((queue, pool)) = &mut self.hosts[device].srq else { return Ok(()) };
        pool.feeding = false;
        let many = if late { self.rng.between(0, 6) } else { u64::MAX };
        for _ in 0..many {
            let Some((wr_id, sge)) = pool.post() else { break };
            let sges = split(sge, wr_id);
            world.nodes[device]
                .device
                .post_shared_receive(*queue, &ReceiveRequest { wr_id, sges: &sges })
                .map_err(|error| format!("a shared receive is refused: {error}"))?;
        }
        if !pool.free.is_empty() && late {
            pool.feeding = true;
            let wait = Duration::from_nanos(self.rng.between(1_000, 100_000));
            world.schedule(wait, Action::FeedShared { device });
        }
        Ok(())
    }

    /// A receive has completed.
    pub(super) fn received(
        &mut self,
        world: &mut World,
        index: usize,
        side: usize,
        completion: &Completion,
    ) -> Result<(), String> {
        let device = self.pairs[index].ends[side].device;
        let shared = self.hosts[device].srq.is_some();
        let pool = match &mut self.hosts[device].srq {
            Some((_, pool)) => pool,
            None => &mut self.pairs[index].ends[side].pool,
        };
        if !shared
            && pool.posted.first_key_value().is_some_and(|(name, _)| *name != completion.wr_id)
        {
            return Err("the receive is not the oldest".to_owned());
        }
        let area = pool.posted.remove(&completion.wr_id).ok_or("no such receive is posted")?;
        let bytes = pool.bytes(area, world.nodes[device].device.host()).to_vec();
        pool.clean(area, world.nodes[device].device.host_mut());
        pool.free.push(area);
        if completion.status == CompletionStatus::Success {
            self.message(index, side, completion, &bytes)?;
        } else {
            self.receive_failed(world, index, side, completion)?;
        }
        self.feed_again(world, index, side)
    }

    fn feed_again(&mut self, world: &mut World, index: usize, side: usize) -> Result<(), String> {
        let late = self.has(F::LateReceives);
        let pair = &mut self.pairs[index];
        let end = &mut pair.ends[side];
        let device = end.device;
        let state = world.nodes[device].device.query_queue_pair(end.qpn).map(|info| info.state);
        match &mut self.hosts[device].srq {
            Some((_, pool)) if !pool.feeding => {
                pool.feeding = true;
                let wait = if late { self.rng.between(1_000, 100_000) } else { 0 };
                world.schedule(Duration::from_nanos(wait), Action::FeedShared { device });
            }
            None if !end.feeding && state != Ok(QpState::Error) => {
                end.feeding = true;
                let wait = if late { self.rng.between(1_000, 200_000) } else { 0 };
                let action = Action::Feed { pair: index, side, epoch: pair.epoch };
                world.schedule(Duration::from_nanos(wait), action);
            }
            _ => {}
        }
        Ok(())
    }

    /// A message has come: which one it is, and whether it is whole.
    fn message(
        &mut self,
        index: usize,
        side: usize,
        completion: &Completion,
        bytes: &[u8],
    ) -> Result<(), String> {
        let pair = &mut self.pairs[index];
        let service = pair.service;
        let [ref mut one, ref mut other] = pair.ends;
        let (end, peer) = if side == 0 { (one, other) } else { (other, one) };
        let header = if service == ServiceType::Ud { 40 } else { 0 };
        let payload = bytes.get(header..).unwrap_or_default();
        let fits = |request: usize| {
            let request = &peer.plan[request];
            // The receive of a message that was lost serves the next one of an unreliable
            // connection, with what came of the first.
            let clean = |rest: &[u8]| match service {
                ServiceType::Uc => Ok(()),
                _ => checker::untouched(rest),
            };
            let whole = if request.kind == Kind::WriteImmediate {
                clean(bytes)
            } else {
                match payload.split_at_checked(request.len) {
                    Some((bytes, rest)) => {
                        checker::all_of(request.key, bytes).and_then(|()| clean(rest))
                    }
                    None => Err("it does not fit the buffer".to_owned()),
                }
            };
            whole.map(|()| request)
        };
        let which = match (service, completion.extra) {
            (ServiceType::Rc, _) => {
                end.awaited.pop_front().ok_or("a message that nobody sent, or twice")?
            }
            (_, Extra::Imm(imm)) => imm.0 as usize,
            // Which one it is shows in its bytes; it may be of an earlier connection too.
            _ => {
                let mut sends = (0..peer.next).filter(|&sent| peer.plan[sent].kind == Kind::Send);
                sends.rfind(|&sent| fits(sent).is_ok()).ok_or_else(|| {
                    let alike = (0..peer.next).filter(|&sent| {
                        peer.plan[sent].len + header == completion.byte_len as usize
                    });
                    let why =
                        alike.filter_map(|sent| Some(format!("; {sent} {}", fits(sent).err()?)));
                    format!("no message is like that{}", why.collect::<String>())
                })?
            }
        };
        if which >= peer.next {
            return Err(format!("message {which} was not sent"));
        }
        let request = fits(which).map_err(|what| format!("message {which}: {what}"))?;
        let (opcode, expected_extra) = match request.kind {
            Kind::Send => (CompletionOpcode::Recv, Extra::None),
            Kind::SendImmediate => {
                (CompletionOpcode::Recv, Extra::Imm(roxe_wire::ImmDt(which as u32)))
            }
            Kind::WriteImmediate => {
                (CompletionOpcode::RecvRdmaWithImm, Extra::Imm(roxe_wire::ImmDt(which as u32)))
            }
            Kind::SendInvalidate(_) => {
                let key = request.invalidates.unwrap_or_default();
                (CompletionOpcode::Recv, Extra::Invalidated(key))
            }
            kind => return Err(format!("message {which} is a {kind}")),
        };
        let len = header + request.len;
        let right = completion.opcode == opcode
            && completion.extra == expected_extra
            && completion.byte_len as usize == len
            && completion.solicited == request.solicited
            && completion.grh == (header != 0);
        if !right {
            return Err(format!("does not fit {request}"));
        }
        if request.mistake == Some(Mistake::TooLong) {
            return Err("it is longer than its buffer".to_owned());
        }
        let of_before = pair.epoch != 0;
        if service == ServiceType::Ud && completion.source_qp != peer.qpn && !of_before {
            return Err(format!("it comes from {}", peer.qpn));
        }
        Ok(())
    }

    fn receive_failed(
        &mut self,
        world: &mut World,
        index: usize,
        side: usize,
        completion: &Completion,
    ) -> Result<(), String> {
        let pair = &self.pairs[index];
        let end = &pair.ends[side];
        let info = world.nodes[end.device].device.query_queue_pair(end.qpn);
        let state = info.map_err(|error| error.to_string())?.state;
        if state != QpState::Error {
            return Err(format!("a receive failed in state {state}"));
        }
        let peer = &pair.ends[1 - side];
        let mistake =
            |request: &super::Request| request.mistake.is_some() && request.state != State::Planned;
        let justified = pair.cause.is_some()
            && (completion.status == CompletionStatus::Flushed
                || peer.plan.iter().any(mistake)
                || end.was_gone);
        if justified { Ok(()) } else { Err("for no reason".to_owned()) }
    }
}

/// A buffer as one element or a few.
fn split(sge: Sge, name: u64) -> Vec<Sge> {
    let cut = (name as u32).wrapping_mul(0x9e37) % (sge.len + 1);
    if name.is_multiple_of(3) {
        return vec![sge];
    }
    let rest = Sge { va: sge.va + u64::from(cut), len: sge.len - cut, ..sge };
    vec![Sge { len: cut, ..sge }, Sge { len: 0, ..sge }, rest]
}
