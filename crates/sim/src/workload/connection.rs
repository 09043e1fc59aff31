//! Pairs connected, reset, destroyed and connected again.

use std::time::Duration;

use roxe_device::address_handle::AddressVector;
use roxe_device::{Device, QueuePairInit, ReceiveCapacity, VecMemory};
use roxe_transport::SendCapacity;
use roxe_transport::qp_state::{Attribute as A, AttributeMask, QpState, ServiceType};
use roxe_transport::work::Attributes;
use roxe_wire::{Gid, PKey, Psn, Qpn};

use crate::rng::Rng;
use crate::swarm::Feature as F;

use super::{Action, Q_KEY, Workload, World, everything, plan, register};

impl Workload {
    /// Connects the two ends of a pair, for the first time or again.
    pub(super) fn connect(&mut self, world: &mut World, index: usize) -> Result<(), String> {
        let mut rng =
            self.rng.fork(20_000 + index as u64 * 100 + u64::from(self.pairs[index].epoch));
        let pair = &mut self.pairs[index];
        for end in &mut pair.ends {
            let host = &self.hosts[end.device];
            let device = &mut world.nodes[end.device].device;
            end.was_gone = false;
            if end.gone {
                let bytes = device.host().bytes(end.shared.host).unwrap_or_default().to_vec();
                end.shared = register(device, host.pd, bytes, end.shared.va, everything())?;
                end.gone = false;
            }
            if !end.alive {
                let init = QueuePairInit {
                    service: pair.service,
                    pd: host.pd,
                    send_cq: host.cq,
                    receive_cq: host.cq,
                    srq: host.srq.as_ref().map(|(queue, _)| *queue),
                    send: SendCapacity { depth: pair.depth, max_sge: 8, max_inline: 256 },
                    receive: ReceiveCapacity { depth: 64, max_sge: 8 },
                    signal_all: pair.signal_all,
                };
                end.qpn = device.create_queue_pair(&init).map_err(|error| error.to_string())?;
                end.alive = true;
            }
        }
        let first = |rng: &mut Rng, wrap: bool| {
            let value = if wrap { 0u64.wrapping_sub(rng.below(60)) } else { rng.next() };
            let half = if wrap && rng.percent(30) { 1 << 23 } else { 0 };
            Psn::new((value.wrapping_add(half) & 0xff_ffff) as u32)
        };
        // Another connection needs other PSNs: late frames of the last one must not fit.
        let wrap = self.recipe.features.has(F::Wrap) && pair.epoch == 0;
        let psns = [first(&mut rng, wrap), first(&mut rng, wrap)];
        let longest_rnr = if self.recipe.features.has(F::LateReceives) { 18 } else { 10 };
        for side in 0..2 {
            let other = &pair.ends[1 - side];
            let peer = (other.device, other.qpn);
            let end = &pair.ends[side];
            let values = Attributes {
                qpn: end.qpn,
                cur_state: QpState::default(),
                dest_qp: peer.1,
                path_mtu: pair.mtu,
                access: everything(),
                q_key: Q_KEY,
                p_key: PKey::DEFAULT,
                sq_psn: psns[side],
                rq_psn: psns[1 - side],
                max_rd_atomic: pair.max_rd_atomic,
                max_dest_rd_atomic: pair.max_rd_atomic,
                timeout: pair.timeout,
                retry_cnt: pair.retry_cnt,
                rnr_retry: pair.rnr_retry,
                min_rnr_timer: plan::rnr_timer(rng.between(1, longest_rnr) as u8, world.stretch),
            };
            let destination = Gid::from_ip(world.nodes[peer.0].addresses[pair.family]);
            let vector = AddressVector {
                traffic_class: 2,
                hop_limit: 64,
                flow_label: rng.below(1 << 20) as u32,
                ..AddressVector::new(pair.family as u32, destination)
            };
            let device = &mut world.nodes[end.device].device;
            for (state, given) in steps(pair.service) {
                let given = AttributeMask::of(given);
                device
                    .modify_queue_pair(end.qpn, *state, given, &values, Some(&vector))
                    .map_err(|error| format!("to {state}: {error}"))?;
            }
            if let Some(window) = pair.window {
                device.set_window(end.qpn, window).map_err(|error| error.to_string())?;
            }
            let pd = self.hosts[end.device].pd;
            let end = &mut pair.ends[side];
            if pair.service == ServiceType::Ud && end.path.is_none() {
                let path = device.create_address_handle(pd, &vector);
                end.path = Some(path.map_err(|error| error.to_string())?);
            }
            if let Some(number) = pair.group {
                let group = group_gid(number, pair.family);
                if end.group_path.is_none() {
                    let vector = AddressVector { destination: group, ..vector };
                    let path = device.create_address_handle(pd, &vector);
                    end.group_path = Some(path.map_err(|error| error.to_string())?);
                }
                if end.joined.is_none() {
                    device
                        .attach_multicast(group, end.qpn)
                        .map_err(|error| format!("attach: {error}"))?;
                    end.joined = Some(group);
                }
            }
            self.by_qpn.insert((end.device, end.qpn), (index, side));
        }
        let ends = [0, 1].map(|side| (pair.ends[side].device, pair.ends[side].qpn));
        pair.conversation = world.converse(ends, pair.epoch != 0);
        pair.cause = None;
        pair.reconnecting = false;
        let epoch = pair.epoch;
        for side in 0..2 {
            let shared = self.hosts[self.pairs[index].ends[side].device].srq.is_some();
            if !shared {
                self.feed(world, index, side)?;
            }
            self.post_registrations(world, index, side)?;
            if epoch == 0 {
                self.bind_windows(world, index, side)?;
            }
            let after = Duration::from_nanos(rng.below(20_000));
            world.schedule(after, Action::Post { pair: index, side, epoch });
        }
        Ok(())
    }

    /// Both ends are reset, or made anew, and connected again.
    pub(super) fn reconnect(&mut self, world: &mut World, index: usize) -> Result<(), String> {
        for side in 0..2 {
            let device = self.pairs[index].ends[side].device;
            self.look_at(world, device)?;
            self.poll(world, device)?;
        }
        let pair = &mut self.pairs[index];
        pair.epoch += 1;
        if pair.abandoned || pair.epoch >= MOST_EPOCHS {
            pair.abandoned = true;
            pair.cause.get_or_insert_with(|| "it is over".to_owned());
        }
        for side in 0..2 {
            let anew = self.rng.percent(30);
            let pair = &mut self.pairs[index];
            let end = &mut pair.ends[side];
            end.awaited.clear();
            let device = &mut world.nodes[end.device].device;
            // A window belongs to the connection that it was bound for.
            for window in end.windows.drain(..) {
                device.dealloc_window(window).map_err(|error| error.to_string())?;
            }
            if !end.alive {
                continue;
            }
            let info = device.query_queue_pair(end.qpn).map_err(|error| error.to_string())?;
            let lost = self.hosts[end.device].overrun;
            if info.state == QpState::Error && end.outstanding.awaits_completion() && !lost {
                let front = end.outstanding.front().unwrap_or_default();
                let place = self.place(world, index, side);
                return Err(format!("{place} is in Error, and request {front} was not flushed"));
            }
            if anew || pair.abandoned {
                self.destroy(world, index, side)?;
            } else {
                self.ended += u64::from(info.state == QpState::Error);
                device
                    .modify_queue_pair(
                        end.qpn,
                        QpState::Reset,
                        AttributeMask::NONE,
                        &info.attributes,
                        None,
                    )
                    .map_err(|error| error.to_string())?;
                self.forget(world, index, side)?;
            }
        }
        self.resume_chains(world, index)?;
        if self.pairs[index].abandoned { Ok(()) } else { self.connect(world, index) }
    }

    /// A send queue in state SQE is made ready again.
    pub(super) fn resume(
        &mut self,
        world: &mut World,
        index: usize,
        side: usize,
    ) -> Result<(), String> {
        let end = &self.pairs[index].ends[side];
        if !end.alive {
            return Ok(());
        }
        let device = &mut world.nodes[end.device].device;
        let info = device.query_queue_pair(end.qpn).map_err(|error| error.to_string())?;
        if info.state == QpState::SqError {
            device
                .modify_queue_pair(
                    end.qpn,
                    QpState::Rts,
                    AttributeMask::NONE,
                    &info.attributes,
                    None,
                )
                .map_err(|error| format!("from SQE: {error}"))?;
        }
        Ok(())
    }

    /// An end is destroyed: what it was asked for may have happened, or not.
    pub(super) fn destroy(
        &mut self,
        world: &mut World,
        index: usize,
        side: usize,
    ) -> Result<(), String> {
        let pair = &mut self.pairs[index];
        let end = &mut pair.ends[side];
        if !end.alive {
            return Ok(());
        }
        let device = &mut world.nodes[end.device].device;
        self.ended += u64::from(is_in_error(device, end.qpn));
        if let Some(group) = end.joined.take() {
            if device.destroy_queue_pair(end.qpn).is_ok() {
                return Err("a member of a group was destroyed".to_owned());
            }
            device.detach_multicast(group, end.qpn).map_err(|error| error.to_string())?;
        }
        device.destroy_queue_pair(end.qpn).map_err(|error| error.to_string())?;
        end.alive = false;
        self.by_qpn.remove(&(end.device, end.qpn));
        self.forget(world, index, side)
    }

    /// Nothing will be heard of what is outstanding at an end.
    pub(super) fn forget(
        &mut self,
        world: &mut World,
        index: usize,
        side: usize,
    ) -> Result<(), String> {
        let pair = &mut self.pairs[index];
        let end = &mut pair.ends[side];
        let lost: Vec<usize> = end.outstanding.take().collect();
        pair.breaks += u32::from(!lost.is_empty());
        for request in lost {
            self.unknown(index, side, request);
        }
        let end = &mut self.pairs[index].ends[side];
        end.awaited.clear();
        let device = end.device;
        match &mut self.hosts[device].srq {
            // A receive in the hands of the queue pair is gone with it.
            Some((_, pool)) => pool.spare += 1,
            None => end.pool.take_back(world.nodes[device].device.host_mut()),
        }
        Ok(())
    }
}

/// Whether a queue pair is in state Error.
pub(crate) fn is_in_error(device: &Device<VecMemory>, qpn: Qpn) -> bool {
    device.query_queue_pair(qpn).is_ok_and(|info| info.state == QpState::Error)
}

/// A group of a pair's own.
fn group_gid(number: u32, family: usize) -> Gid {
    let [a, b, c, d] = number.to_be_bytes();
    Gid::from_ip(match family {
        0 => std::net::Ipv4Addr::new(239, b, c, d).into(),
        _ => std::net::Ipv6Addr::from_bits(
            0xff0e_u128 << 112 | u128::from(u32::from_be_bytes([a, b, c, d])),
        )
        .into(),
    })
}

const fn steps(service: ServiceType) -> &'static [(QpState, &'static [A])] {
    match service {
        ServiceType::Rc => &[
            (QpState::Init, &[A::PkeyIndex, A::Port, A::AccessFlags]),
            (
                QpState::Rtr,
                &[A::Av, A::PathMtu, A::DestQpn, A::RqPsn, A::MaxDestRdAtomic, A::MinRnrTimer],
            ),
            (QpState::Rts, &[A::Timeout, A::RetryCnt, A::RnrRetry, A::SqPsn, A::MaxQpRdAtomic]),
        ],
        ServiceType::Uc => &[
            (QpState::Init, &[A::PkeyIndex, A::Port, A::AccessFlags]),
            (QpState::Rtr, &[A::Av, A::PathMtu, A::DestQpn, A::RqPsn]),
            (QpState::Rts, &[A::SqPsn]),
        ],
        ServiceType::Ud => &[
            (QpState::Init, &[A::PkeyIndex, A::Port, A::Qkey]),
            (QpState::Rtr, &[]),
            (QpState::Rts, &[A::SqPsn]),
        ],
    }
}

/// After so many connections a pair is left alone.
const MOST_EPOCHS: u32 = 6;
