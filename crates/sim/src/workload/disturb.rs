//! What goes wrong on purpose in the middle of the work.

use std::time::Duration;

use roxe_device::{Device, VecMemory};
use roxe_transport::qp_state::{AttributeMask, QpState, ServiceType};
use roxe_transport::work::Attributes;
use roxe_wire::Qpn;

use crate::rng::Rng;
use crate::swarm::Feature as F;

use super::{Action, Workload, World};

/// What happens to a pair in the middle of its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disturbance {
    /// One end is moved to Error.
    ToError,
    /// One end is destroyed.
    Destroy,
    /// Both ends are reset at once.
    Reset,
    /// Memory that the peer uses is deregistered.
    Deregister,
}

impl Workload {
    pub(super) fn plan_disturbances(&mut self, world: &mut World) {
        let mut rng = self.rng.fork(4);
        let times = |rng: &mut Rng, wanted: bool| if wanted { rng.between(1, 3) } else { 0 };
        let soon = |rng: &mut Rng| Duration::from_nanos(rng.between(1_000, 600_000));
        for (feature, how) in [
            (F::ToError, Disturbance::ToError),
            (F::Reset, Disturbance::Reset),
            (F::Reset, Disturbance::Destroy),
            (F::Deregister, Disturbance::Deregister),
        ] {
            for _ in 0..times(&mut rng, self.has(feature)) {
                let pair = rng.below(self.pairs.len() as u64) as usize;
                world.schedule(soon(&mut rng), Action::Disturb { pair, how });
            }
        }
        for _ in 0..times(&mut rng, self.has(F::Restart)) {
            let device = rng.below(self.hosts.len() as u64) as usize;
            world.schedule(soon(&mut rng), Action::Restart { device });
        }
        for _ in 0..times(&mut rng, self.has(F::Pause)) {
            let device = rng.below(self.hosts.len() as u64) as usize;
            world.schedule(soon(&mut rng), Action::Pause { device });
        }
        if self.has(F::Hostile) {
            world.schedule(soon(&mut rng), Action::Hostile { left: 40 });
        }
        if self.has(F::Forged) {
            world.schedule(soon(&mut rng), Action::Forge { left: 60 });
        }
    }

    pub(super) fn disturb(
        &mut self,
        world: &mut World,
        index: usize,
        how: Disturbance,
    ) -> Result<(), String> {
        let side = self.rng.below(2) as usize;
        let pair = &mut self.pairs[index];
        let end = &mut pair.ends[side];
        if !end.alive || pair.abandoned {
            return Ok(());
        }
        let device = &mut world.nodes[end.device].device;
        match how {
            Disturbance::ToError => {
                let blank = attributes_of(device, end.qpn)?;
                device
                    .modify_queue_pair(end.qpn, QpState::Error, AttributeMask::NONE, &blank, None)
                    .map_err(|error| error.to_string())?;
                let at = end.device;
                self.blame(world, index, format!("end {side} was moved to Error"));
                self.look_at(world, at)?;
                world.kick(at);
            }
            Disturbance::Destroy => {
                let at = end.device;
                self.look_at(world, at)?;
                self.blame(world, index, format!("end {side} was destroyed"));
                self.destroy(world, index, side)?;
            }
            Disturbance::Reset => self.reconnect(world, index)?,
            Disturbance::Deregister => {
                if !end.gone && pair.service == ServiceType::Rc {
                    for window in end.windows.drain(..) {
                        device.dealloc_window(window).map_err(|error| error.to_string())?;
                    }
                    let bytes = device.host().bytes(end.shared.host).map(<[u8]>::to_vec);
                    device
                        .deregister_memory(end.shared.key)
                        .map_err(|error| format!("deregister: {error}"))?;
                    // The application still has the memory; nobody can reach it any more.
                    let kept = bytes.unwrap_or_default();
                    end.shared.host = device.host_mut().add(kept);
                    end.gone = true;
                    end.was_gone = true;
                    self.blame(world, index, format!("memory of end {side} was deregistered"));
                }
            }
        }
        Ok(())
    }

    /// A pair breaks, for this reason, and will be connected again.
    pub(super) fn blame(&mut self, world: &mut World, index: usize, why: String) {
        let wait = Duration::from_nanos(self.rng.between(10_000, 3_000_000));
        let pair = &mut self.pairs[index];
        pair.cause.get_or_insert(why);
        if !pair.reconnecting {
            pair.reconnecting = true;
            world.schedule(wait, Action::Reconnect { pair: index, epoch: pair.epoch });
        }
    }
}

fn attributes_of(device: &Device<VecMemory>, qpn: Qpn) -> Result<Attributes, String> {
    device.query_queue_pair(qpn).map(|info| info.attributes).map_err(|error| error.to_string())
}
