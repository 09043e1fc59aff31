//! The loop: the only reader of the clock, the only caller of the engine's five calls in
//! production.

use std::time::{Duration, Instant as Clock};

use roxe_device::Device;
use roxe_net::{FramePort, Outgoing, Seal, Wake};
use roxe_transport::Outlet;
use roxe_transport::work::PathId;
use roxe_wire::{FrameTemplate, ICRC_LEN, Instant};

use crate::registered_memory::RegisteredMemory;

/// An engine, its port, and the clock that moves both.
pub struct Driver {
    /// The engine.
    pub device: Device<RegisteredMemory>,
    /// Where its packets come from and go to.
    pub port: Box<dyn FramePort + Send>,
    /// The outer headers of each path, by its number.
    paths: Vec<Option<FrameTemplate>>,
    start: Clock,
}

impl Driver {
    /// Joins an engine and a port. The engine's time begins now.
    pub fn new(device: Device<RegisteredMemory>, port: Box<dyn FramePort + Send>) -> Self {
        Self { device, port, paths: Vec::new(), start: Clock::now() }
    }

    /// The engine's time.
    pub fn now(&self) -> Instant {
        let nanos = self.start.elapsed().as_nanos();
        Instant::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Makes known how frames of a path begin.
    pub fn set_path(&mut self, path: PathId, template: FrameTemplate) {
        let index = path.0 as usize;
        if self.paths.len() <= index {
            self.paths.resize_with(index + 1, || None);
        }
        self.paths[index] = Some(template);
    }

    /// Moves what can be moved now: packets in, timers, packets out. Says whether anything moved.
    pub fn drive(&mut self) -> bool {
        let now = self.now();
        let Self { device, port, paths, .. } = self;
        let received = port.receive(now, &mut |packet| device.handle_packet(now, packet));
        device.handle_timeout(now);
        let sent = port.transmit(now, &mut |room| {
            loop {
                let room = roxe_wire::Room { first: &mut *room.first, second: &mut *room.second };
                let next = device.poll_transmit(now, Outlet { room, elide: false })?;
                // A path that is not resolved loses its packets, as a network would.
                let Some(Some(path)) = paths.get(next.path.0 as usize) else { continue };
                let len = next.packet.len + ICRC_LEN;
                return Some(Outgoing { path, len, seal: Seal::Compute });
            }
        });
        received + sent.packets > 0
    }

    /// Sleeps until something arrives, somebody calls the port's waker, a timer runs out, or
    /// `most` has passed.
    pub fn sleep(&mut self, most: Duration) -> Wake {
        let until = self.device.poll_timeout().map_or(most, |at| most.min(at - self.now()));
        if until.is_zero() { Wake::TimedOut } else { self.port.wait(until) }
    }
}
