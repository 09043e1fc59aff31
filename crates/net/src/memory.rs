//! Ports joined inside one process, so that all that stands above a port runs without privilege.
//!
//! They carry whole Ethernet frames, framed and taken apart as on a network, and lose what nobody
//! fetches in time, as a network does. A frame reaches every other port of its segment: who is
//! meant is for the device to see.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use roxe_wire::{Instant, Mtu, RawFrame, Received, Room};

use crate::doorbell::Doorbell;
use crate::framing::{Framer, MAX_AROUND_PAYLOAD};
use crate::port::{
    Arrival, BATCH, Capabilities, FramePort, HeadersOf, IN_VAIN, Outgoing, Sent, Traffic, Wake,
    packets_to,
};
use crate::{Sleeper, Waker};

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
    let segment = Segment::new(path_mtu);
    let ports: Vec<MemoryPort> = (0..N).map(|_| segment.join()).collect::<io::Result<_>>()?;
    Ok(ports.try_into().expect("there are as many ports as were asked for"))
}

/// A segment that ports join and leave. Clones are the same segment.
#[derive(Clone, Debug)]
pub struct Segment {
    path_mtu: Mtu,
    /// The inboxes of its ports, by their numbers.
    inboxes: Arc<RwLock<Vec<Option<Arc<Inbox>>>>>,
}

impl Segment {
    /// One without ports, whose packets have this path MTU at the most.
    pub fn new(path_mtu: Mtu) -> Self {
        Self { path_mtu, inboxes: Arc::default() }
    }

    /// One more port, with the smallest number that is free. It leaves when it is dropped.
    ///
    /// # Errors
    /// When the process has no file descriptor left for the bell that ends a wait.
    pub fn join(&self) -> io::Result<MemoryPort> {
        let path_mtu = self.path_mtu;
        let bell = Doorbell::new()?;
        let inbox = Inbox::new(&bell);
        let mut inboxes = self.inboxes.write().unwrap_or_else(PoisonError::into_inner);
        let number = inboxes.iter().position(Option::is_none).unwrap_or(inboxes.len());
        if number == inboxes.len() {
            inboxes.push(None);
        }
        inboxes[number] = Some(Arc::clone(&inbox));
        drop(inboxes);
        let max_frame = path_mtu.bytes() as usize + MAX_AROUND_PAYLOAD;
        Ok(MemoryPort {
            capabilities: Capabilities {
                path_mtu,
                zero_copy: false,
                verifies_icrc: true,
                headers: HeadersOf::Path,
                summary: format!("memory: port {number}, path MTU {path_mtu}"),
            },
            number,
            bell,
            inbox,
            segment: self.clone(),
            framer: Framer::new(max_frame),
            outgoing: vec![0; max_frame],
            arrived: Vec::with_capacity(BATCH),
            traffic: Traffic::default(),
        })
    }

    /// Calls for the inbox of every port but one.
    fn each_but(&self, number: usize, mut call: impl FnMut(&Inbox)) {
        let inboxes = self.inboxes.read().unwrap_or_else(PoisonError::into_inner);
        let others = inboxes.iter().enumerate().filter(|(other, _)| *other != number);
        others.filter_map(|(_, inbox)| inbox.as_deref()).for_each(&mut call);
    }
}

/// A port of a segment in memory.
#[derive(Debug)]
pub struct MemoryPort {
    capabilities: Capabilities,
    number: usize,
    bell: Doorbell,
    inbox: Arc<Inbox>,
    segment: Segment,
    framer: Framer,
    /// The frame being written.
    outgoing: Vec<u8>,
    /// The frames being handed up.
    arrived: Vec<Vec<u8>>,
    traffic: Traffic,
}

impl MemoryPort {
    /// Its number on its segment, from 0 on.
    pub const fn number(&self) -> usize {
        self.number
    }

    fn hand_up(&mut self, mut sink: impl FnMut(Arrival<'_>)) -> usize {
        for _ in 0..IN_VAIN {
            if !self.inbox.fetch(&mut self.arrived) {
                break;
            }
            let mut packets = 0;
            for frame in &self.arrived {
                let frame = RawFrame::ethernet(frame);
                packets += usize::from(self.traffic.hand_up(frame, &mut sink));
            }
            self.inbox.give_back(&mut self.arrived);
            if packets > 0 {
                return packets;
            }
        }
        0
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
        let Self { framer, outgoing, traffic, segment, number, .. } = self;
        let sent = framer.send_each(outgoing, traffic, source, |frame| {
            segment.each_but(*number, |inbox| inbox.put(frame));
            true
        });
        if sent.packets > 0 {
            self.segment.each_but(self.number, |inbox| inbox.waker.wake());
        }
        sent
    }

    fn wait(&mut self, timeout: Duration) -> Wake {
        if let Err(wake) = self.settle(timeout) {
            return wake;
        }
        match self.bell.wait(None, timeout) {
            Wake::Called if !self.inbox.is_empty() => Wake::Arrived,
            wake => wake,
        }
    }

    fn settle(&mut self, timeout: Duration) -> Result<Duration, Wake> {
        if self.inbox.is_empty() { Ok(timeout) } else { Err(Wake::Arrived) }
    }

    fn due(&self) -> Option<Duration> {
        None
    }

    fn sleeper(&self) -> io::Result<Sleeper> {
        self.bell.sleeper(None, Duration::ZERO)
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

impl Drop for MemoryPort {
    fn drop(&mut self) {
        let mut inboxes = self.segment.inboxes.write().unwrap_or_else(PoisonError::into_inner);
        inboxes[self.number] = None;
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
