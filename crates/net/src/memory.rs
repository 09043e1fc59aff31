//! Ports joined inside one process, so that all that stands above a port runs without privilege.
//!
//! They carry whole Ethernet frames, framed and taken apart as on a network, and lose what nobody
//! fetches in time, as a network does. A frame reaches every other port of its segment: who is
//! meant is for the device to see.

use std::array;
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use roxe_wire::{Instant, Mtu, RawFrame, Received, Room};

use crate::Waker;
use crate::doorbell::Doorbell;
use crate::framing::{Framed, Framer, MAX_AROUND_PAYLOAD};
use crate::port::{
    Arrival, BATCH, Capabilities, FramePort, HeadersOf, Outgoing, Sent, Traffic, Wake, packets_to,
};

/// Two ports back to back.
///
/// # Errors
/// When the process has no file descriptor left for the bells that end a wait.
pub fn pair(path_mtu: Mtu) -> io::Result<[MemoryPort; 2]> {
    segment(path_mtu)
}

/// Ports on one segment.
///
/// # Errors
/// When the process has no file descriptor left for the bells that end a wait.
pub fn segment<const N: usize>(path_mtu: Mtu) -> io::Result<[MemoryPort; N]> {
    let bells: Vec<Doorbell> = (0..N).map(|_| Doorbell::new()).collect::<io::Result<_>>()?;
    let inboxes: Vec<Arc<Inbox>> = bells.iter().map(Inbox::new).collect();
    let mut bells = bells.into_iter();
    let max_frame = path_mtu.bytes() as usize + MAX_AROUND_PAYLOAD;
    Ok(array::from_fn(|me| MemoryPort {
        capabilities: Capabilities {
            path_mtu,
            zero_copy: false,
            verifies_icrc: true,
            headers: HeadersOf::Path,
            summary: format!("memory: port {me} of {N}, path MTU {path_mtu}"),
        },
        bell: bells.next().expect("there are as many bells as ports"),
        inbox: Arc::clone(&inboxes[me]),
        others: inboxes
            .iter()
            .enumerate()
            .filter(|(other, _)| *other != me)
            .map(|(_, inbox)| Arc::clone(inbox))
            .collect(),
        framer: Framer::new(max_frame),
        outgoing: vec![0; max_frame],
        arrived: Vec::with_capacity(BATCH),
        traffic: Traffic::default(),
    }))
}

/// A port of a segment in memory.
#[derive(Debug)]
pub struct MemoryPort {
    capabilities: Capabilities,
    bell: Doorbell,
    inbox: Arc<Inbox>,
    others: Vec<Arc<Inbox>>,
    framer: Framer,
    /// The frame being written.
    outgoing: Vec<u8>,
    /// The frames being handed up.
    arrived: Vec<Vec<u8>>,
    traffic: Traffic,
}

impl MemoryPort {
    fn hand_up(&mut self, mut sink: impl FnMut(Arrival<'_>)) -> usize {
        let mut packets = 0;
        while packets == 0 && self.inbox.fetch(&mut self.arrived) {
            for frame in &self.arrived {
                let frame = RawFrame::ethernet(frame);
                packets += usize::from(self.traffic.hand_up(frame, &mut sink));
            }
            self.inbox.give_back(&mut self.arrived);
        }
        packets
    }
}

impl FramePort for MemoryPort {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn receive(&mut self, _now: Instant, sink: &mut dyn FnMut(Received<'_>)) -> usize {
        self.hand_up(packets_to(sink))
    }

    fn receive_all(&mut self, _now: Instant, sink: &mut dyn FnMut(Arrival<'_>)) -> usize {
        self.hand_up(sink)
    }

    fn transmit<'p>(
        &mut self,
        _now: Instant,
        source: &mut dyn FnMut(Room<'_>) -> Option<Outgoing<'p>>,
    ) -> Sent {
        let mut sent = Sent { packets: 0, more: true };
        while sent.more && sent.packets < BATCH {
            match self.framer.frame(&mut self.outgoing, &mut [], source) {
                Framed::Frame { packet_len, frame_len } => {
                    let frame = &self.outgoing[..frame_len];
                    self.others.iter().for_each(|inbox| inbox.put(frame));
                    self.traffic.sent(packet_len);
                    sent.packets += 1;
                }
                Framed::Unsendable => {
                    self.traffic.tx_unsendable += 1;
                    sent.packets += 1;
                }
                Framed::Nothing => sent.more = false,
            }
        }
        if sent.packets > 0 {
            self.others.iter().for_each(|inbox| inbox.waker.wake());
        }
        sent
    }

    fn wait(&mut self, timeout: Duration) -> Wake {
        if !self.inbox.is_empty() {
            return Wake::Arrived;
        }
        match self.bell.wait(None, timeout) {
            Wake::Called if !self.inbox.is_empty() => Wake::Arrived,
            wake => wake,
        }
    }

    fn waker(&self) -> Waker {
        self.bell.waker()
    }

    /// Also `rx_overflow`: frames lost because too many waited to be received.
    fn counters(&self) -> Vec<(&'static str, u64)> {
        let mut counters = self.traffic.counters();
        counters.push(("rx_overflow", self.inbox.lock().overflow));
        counters
    }
}

/// The frames that wait for a port.
#[derive(Debug)]
struct Inbox {
    frames: Mutex<Frames>,
    waker: Waker,
}

#[derive(Debug, Default)]
struct Frames {
    waiting: VecDeque<Vec<u8>>,
    /// Buffers to be used again.
    spare: Vec<Vec<u8>>,
    overflow: u64,
}

impl Inbox {
    fn new(bell: &Doorbell) -> Arc<Self> {
        Arc::new(Self { frames: Mutex::default(), waker: bell.waker() })
    }

    fn lock(&self) -> MutexGuard<'_, Frames> {
        // A thread that panicked left the queues whole: each change is one call.
        self.frames.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_empty(&self) -> bool {
        self.lock().waiting.is_empty()
    }

    fn put(&self, frame: &[u8]) {
        let mut frames = self.lock();
        if frames.waiting.len() == DEPTH {
            frames.overflow += 1;
            return;
        }
        let mut buffer = frames.spare.pop().unwrap_or_default();
        buffer.clear();
        buffer.extend_from_slice(frame);
        frames.waiting.push_back(buffer);
    }

    /// Moves a batch to `arrived`. Says whether there was anything.
    fn fetch(&self, arrived: &mut Vec<Vec<u8>>) -> bool {
        let mut frames = self.lock();
        let count = frames.waiting.len().min(BATCH);
        arrived.extend(frames.waiting.drain(..count));
        count > 0
    }

    fn give_back(&self, buffers: &mut Vec<Vec<u8>>) {
        self.lock().spare.append(buffers);
    }
}

/// Frames that wait for a port at most, as many as a ring of AF_XDP holds.
const DEPTH: usize = 2048;

#[cfg(test)]
mod tests;
