//! What the applications on one device share, and its beginning anew.

use std::time::Duration;

use roxe_device::memory::Registration;
use roxe_device::protection_domain::Pd;
use roxe_device::{CqId, Device, HostRegion, ReceiveQueueId, VecMemory};
use roxe_transport::work::AccessFlags;
use roxe_wire::LKey;

use crate::checker::{Sum, UNTOUCHED};
use crate::swarm::Feature as F;

use super::receives::{self, Pool};
use super::{Action, Workload, World, plan};

/// What the applications on one device share.
#[derive(Debug)]
pub(super) struct Host {
    pub(super) pd: Pd,
    pub(super) cq: CqId,
    pub(super) small_cq: bool,
    pub(super) overrun: bool,
    pub(super) srq: Option<(ReceiveQueueId, Pool)>,
    /// Numbers that all peers add to.
    pub(super) common: Region,
    pub(super) sums: Vec<Sum>,
    pub(super) additions: u64,
    pub(super) restarts: u64,
}

/// Registered memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Region {
    pub(super) host: HostRegion,
    pub(super) key: LKey,
    pub(super) va: u64,
    pub(super) len: usize,
}

impl Workload {
    pub(super) fn make_host(
        &self,
        world: &mut World,
        index: usize,
        common: Option<Vec<u8>>,
        restarts: u64,
    ) -> Result<Host, String> {
        let mut rng = self.rng.fork(500 + index as u64);
        let device = &mut world.nodes[index].device;
        let pd = device.alloc_pd().map_err(|error| error.to_string())?;
        let small_cq = self.has(F::SmallQueue) && rng.percent(50);
        let depth = if small_cq { rng.between(4, 64) as u32 } else { 1 << 16 };
        let cq = device.create_completion_queue(depth).map_err(|error| error.to_string())?;
        let adds = [1, u64::MAX, 0x1_0000_0001];
        let sums: Vec<Sum> = adds.map(|add| Sum::new(rng.next(), add)).into();
        let bytes = common.unwrap_or_else(|| {
            let starts = sums.iter().zip(adds).map(|(sum, _)| sum.first().to_ne_bytes());
            starts.flatten().collect()
        });
        let common = register(device, pd, bytes, 0x1000 * rng.between(1, 1000), everything())?;
        let srq = if self.has(F::Srq) {
            let areas = 24;
            let len = 40 + plan::most_len(&self.recipe);
            let va = 1 << 40;
            let region = register(device, pd, vec![UNTOUCHED; areas * len], va, everything())?;
            let queue = device
                .create_shared_receive_queue(pd, 64, 8, 0)
                .map_err(|error| error.to_string())?;
            Some((queue, Pool::new(region, 0, areas, len)))
        } else {
            None
        };
        Ok(Host { pd, cq, small_cq, overrun: false, srq, common, sums, additions: 0, restarts })
    }

    /// A device begins anew. Its applications do too, with the memory they had.
    pub(super) fn restart(&mut self, world: &mut World, index: usize) -> Result<(), String> {
        self.look_at(world, index)?;
        self.poll(world, index)?;
        let touched: Vec<(usize, usize)> = self
            .pairs
            .iter()
            .enumerate()
            .flat_map(|(pair, known)| [0, 1].map(|side| (pair, side, known.ends[side].device)))
            .filter(|(_, _, device)| *device == index)
            .map(|(pair, side, _)| (pair, side))
            .collect();
        for &(pair, side) in &touched {
            if self.pairs[pair].ends[side].alive {
                self.blame(world, pair, format!("device {index} began anew"));
                self.destroy(world, pair, side)?;
            }
        }
        let restarts = self.hosts[index].restarts + 1;
        // Other numbers than before: datagrams to the old ones must not reach anybody.
        let seed = self.recipe.seed.wrapping_add(restarts << 32);
        self.check_counters(&world.nodes[index])?;
        let memory = world.restart(index, seed);
        let bytes = |region: Region| memory.bytes(region.host).unwrap_or_default().to_vec();
        let old = &self.hosts[index];
        let mut host = self.make_host(world, index, Some(bytes(old.common)), restarts)?;
        let old = &mut self.hosts[index];
        host.sums = std::mem::take(&mut old.sums);
        host.additions = old.additions;
        if let Some((_, pool)) = &old.srq {
            receives::untouched(pool, &memory)?;
        }
        let pd = host.pd;
        self.hosts[index] = host;
        for (pair, side) in touched {
            let device = &mut world.nodes[index].device;
            let end = &mut self.pairs[pair].ends[side];
            let (own, shared) = (bytes(end.own), bytes(end.shared));
            end.own = register(device, pd, own, end.own.va, local())?;
            end.shared = register(device, pd, shared, end.shared.va, everything())?;
            end.pool.region = end.own;
            end.gone = false;
            (end.path, end.group_path, end.joined) = (None, None, None);
            end.fast.clear();
            end.windows.clear();
        }
        if self.hosts[index].srq.is_some() {
            world.schedule(Duration::ZERO, Action::FeedShared { device: index });
        }
        Ok(())
    }
}

pub(super) fn register(
    device: &mut Device<VecMemory>,
    pd: Pd,
    bytes: Vec<u8>,
    va: u64,
    access: AccessFlags,
) -> Result<Region, String> {
    let len = bytes.len();
    let host = device.host_mut().add(bytes);
    let what = Registration { pd, host, va, len: len as u64, access };
    let key = device.register_memory(&what).map_err(|error| error.to_string())?;
    Ok(Region { host, key, va, len })
}

pub(super) const fn local() -> AccessFlags {
    AccessFlags::LOCAL_WRITE
}

pub(super) fn everything() -> AccessFlags {
    AccessFlags::LOCAL_WRITE
        | AccessFlags::MW_BIND
        | AccessFlags::REMOTE_WRITE
        | AccessFlags::REMOTE_READ
        | AccessFlags::REMOTE_ATOMIC
        | AccessFlags::FLUSH_GLOBAL
        | AccessFlags::FLUSH_PERSISTENT
}
