//! A switch: queues of eight priorities at each port, over one shared buffer.
//!
//! What arrives is marked by the length of the queue it joins (RED on the instantaneous length, as
//! DCQCN wants it). Priorities without loss are stopped at the port on which too much came in: too
//! much is `alpha` times what is free of the shared buffer (dynamic threshold). What arrives
//! between that and the moment when the neighbour obeys stands in the headroom of the port.
//! Queues are served in strict priority, the highest number first.

use std::collections::VecDeque;

use crate::rng::Rng;

/// When packets are marked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Marking {
    /// None in shorter queues. Bytes.
    pub kmin: u64,
    /// All in longer queues. Bytes.
    pub kmax: u64,
    /// The probability at `kmax`; at `kmin` it is 0, and linear between.
    pub pmax: f64,
}

/// How a switch is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SwitchSettings {
    /// All its memory, in bytes.
    pub buffer: u64,
    /// Set aside of it for each port and priority without loss.
    pub headroom: u64,
    /// Priorities that are stopped rather than dropped: a bit each.
    pub lossless: u8,
    /// How much of the free shared buffer one port's priority may fill.
    pub alpha: f64,
    /// A priority goes on so many bytes below the threshold.
    pub xon_offset: u64,
    /// When packets are marked; `None` for never.
    pub marking: Option<Marking>,
}

/// A packet in a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queued {
    /// Whoever put it there knows what it is.
    pub id: u32,
    /// Its length.
    pub bytes: u32,
    /// The port on which it came.
    pub ingress: u16,
    /// 0 ..= 7.
    pub priority: u8,
    /// Whether it may be marked: its sender listens.
    pub ecn_capable: bool,
}

/// What became of a packet that arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrival {
    /// It was dropped.
    pub dropped: bool,
    /// Congestion is experienced.
    pub mark: bool,
    /// Its priority is to be stopped at the port on which it came.
    pub stop: bool,
}

#[derive(Debug, Default)]
struct Queue {
    packets: VecDeque<Queued>,
    bytes: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Ingress {
    shared: u64,
    headroom: u64,
    stopped: bool,
}

/// A switch.
#[derive(Debug)]
pub struct Switch {
    settings: SwitchSettings,
    ports: usize,
    /// Of each egress port and priority.
    queues: Vec<Queue>,
    /// Of each egress port: which queues hold anything, a bit each.
    filled: Vec<u8>,
    /// Of each ingress port and priority.
    ingress: Vec<Ingress>,
    /// Packets that came on one port and wait at another, in rows of the first.
    between: Vec<u32>,
    shared_used: u64,
    shared: u64,
    chance: Rng,
    /// Packets that were dropped.
    pub dropped: u64,
    /// Packets that were marked.
    pub marked: u64,
    /// How often a priority of a port was stopped.
    pub stops: u64,
}

impl Switch {
    /// An empty one.
    pub fn new(settings: SwitchSettings, ports: usize, chance: Rng) -> Self {
        let lossless = u64::from(settings.lossless.count_ones());
        let headroom = settings.headroom * lossless * ports as u64;
        Self {
            settings,
            ports,
            queues: (0..ports * 8).map(|_| Queue::default()).collect(),
            filled: vec![0; ports],
            ingress: vec![Ingress::default(); ports * 8],
            between: vec![0; ports * ports],
            shared_used: 0,
            shared: settings.buffer.saturating_sub(headroom),
            chance,
            dropped: 0,
            marked: 0,
            stops: 0,
        }
    }

    /// What a port's priority may fill now.
    fn threshold(&self) -> u64 {
        let free = self.shared.saturating_sub(self.shared_used);
        (free as f64 * self.settings.alpha) as u64
    }

    const fn is_lossless(&self, priority: u8) -> bool {
        self.settings.lossless >> priority & 1 == 1
    }

    /// A packet came in and is to go out on port `egress`.
    pub fn arrive(&mut self, packet: Queued, egress: usize) -> Arrival {
        let Queued { bytes, ingress, priority, .. } = packet;
        let bytes = u64::from(bytes);
        let (from, at) = (usize::from(ingress), egress * 8 + usize::from(priority));
        let threshold = self.threshold();
        let lossless = self.is_lossless(priority);
        let mut arrival = Arrival::default();
        let port = &mut self.ingress[from * 8 + usize::from(priority)];
        if lossless {
            if port.stopped || port.shared + bytes > threshold {
                if port.headroom + bytes > self.settings.headroom {
                    self.dropped += 1;
                    return Arrival { dropped: true, ..arrival };
                }
                port.headroom += bytes;
            } else {
                port.shared += bytes;
                self.shared_used += bytes;
            }
            if !port.stopped && (port.headroom > 0 || port.shared >= threshold) {
                port.stopped = true;
                arrival.stop = true;
                self.stops += 1;
            }
        } else {
            if self.queues[at].bytes + bytes > threshold {
                self.dropped += 1;
                return Arrival { dropped: true, ..arrival };
            }
            port.shared += bytes;
            self.shared_used += bytes;
        }
        arrival.mark = packet.ecn_capable && self.marks(self.queues[at].bytes);
        self.marked += u64::from(arrival.mark);
        let queue = &mut self.queues[at];
        queue.packets.push_back(packet);
        queue.bytes += bytes;
        self.filled[egress] |= 1 << priority;
        self.between[from * self.ports + egress] += 1;
        arrival
    }

    fn marks(&mut self, waiting: u64) -> bool {
        let Some(Marking { kmin, kmax, pmax }) = self.settings.marking else { return false };
        if waiting <= kmin {
            return false;
        }
        if waiting >= kmax {
            return true;
        }
        let probability = pmax * (waiting - kmin) as f64 / (kmax - kmin) as f64;
        let drawn = self.chance.below(1 << 53) as f64 / (1_u64 << 53) as f64;
        drawn < probability
    }

    /// Takes the next packet to leave on a port, of the priorities that are not `closed`. Says too
    /// whether its priority may go on at the port on which it came.
    pub fn depart(&mut self, egress: usize, closed: u8) -> Option<(Queued, bool)> {
        let open = self.filled[egress] & !closed;
        let priority = open.checked_ilog2()? as usize;
        let queue = &mut self.queues[egress * 8 + priority];
        let packet = queue.packets.pop_front()?;
        queue.bytes -= u64::from(packet.bytes);
        if queue.packets.is_empty() {
            self.filled[egress] &= !(1 << priority);
        }
        self.between[usize::from(packet.ingress) * self.ports + egress] -= 1;
        let port = &mut self.ingress[usize::from(packet.ingress) * 8 + priority];
        let bytes = u64::from(packet.bytes);
        let of_headroom = bytes.min(port.headroom);
        port.headroom -= of_headroom;
        port.shared -= bytes - of_headroom;
        self.shared_used -= bytes - of_headroom;
        let threshold = self.threshold();
        let port = &mut self.ingress[usize::from(packet.ingress) * 8 + priority];
        let room = port.shared == 0 || port.shared + self.settings.xon_offset <= threshold;
        let go_on = port.stopped && port.headroom == 0 && room;
        if go_on {
            port.stopped = false;
        }
        Some((packet, go_on))
    }

    /// Whether a priority is stopped at a port on which it comes in.
    pub fn is_stopped(&self, ingress: usize, priority: u8) -> bool {
        self.ingress[ingress * 8 + usize::from(priority)].stopped
    }

    /// Whether something that came on one port waits at another.
    pub(super) fn waits(&self, ingress: usize, egress: usize) -> bool {
        self.between[ingress * self.ports + egress] > 0
    }

    /// Bytes that wait at a port.
    pub fn waiting(&self, egress: usize) -> u64 {
        self.queues[egress * 8..egress * 8 + 8].iter().map(|queue| queue.bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: SwitchSettings = SwitchSettings {
        buffer: 1_000_000,
        headroom: 10_000,
        lossless: 1 << 3,
        alpha: 0.125,
        xon_offset: 2_000,
        marking: Some(Marking { kmin: 5_000, kmax: 200_000, pmax: 0.01 }),
    };

    fn packet(id: u32, ingress: u16, priority: u8) -> Queued {
        Queued { id, bytes: 1_000, ingress, priority, ecn_capable: true }
    }

    fn switch(settings: SwitchSettings) -> Switch {
        Switch::new(settings, 4, Rng::new(1))
    }

    /// Marks of 20,000 packets, each of which finds so many bytes.
    fn marked(waiting: u64) -> u32 {
        let mut switch = switch(SETTINGS);
        (0..20_000).filter(|_| switch.marks(waiting)).count() as u32
    }

    #[test]
    fn the_probability_of_a_mark_is_linear_between_kmin_and_kmax() {
        assert_eq!((marked(0), marked(5_000)), (0, 0));
        assert_eq!(marked(200_000), 20_000);
        // 0.25, 0.5 and 1 % less a bit: within five standard deviations.
        assert!(marked(53_750).abs_diff(50) < 36, "{}", marked(53_750));
        assert!(marked(102_500).abs_diff(100) < 50, "{}", marked(102_500));
        assert!(marked(199_999).abs_diff(200) < 71, "{}", marked(199_999));
    }

    #[test]
    fn a_packet_is_marked_by_the_queue_that_it_joins() {
        let step = Marking { kmin: 3_000, kmax: 3_000, pmax: 1.0 };
        let mut switch = switch(SwitchSettings { marking: Some(step), ..SETTINGS });
        for egress in [1, 2] {
            let marks = [0; 5].map(|id| switch.arrive(packet(id, 0, 3), egress).mark);
            assert_eq!(marks, [false, false, false, false, true]);
        }
        let deaf = Queued { ecn_capable: false, ..packet(0, 0, 3) };
        assert!(!switch.arrive(deaf, 1).mark, "its sender does not listen");
        assert_eq!(switch.marked, 2);
    }

    #[test]
    fn the_highest_priority_that_is_not_stopped_leaves_first() {
        let mut switch = switch(SETTINGS);
        for (id, priority) in [(0, 0), (1, 3), (2, 6), (3, 3)] {
            assert!(!switch.arrive(packet(id, 0, priority), 1).dropped);
        }
        let mut ids = Vec::new();
        ids.push(switch.depart(1, 1 << 6 | 1 << 3).unwrap().0.id);
        assert_eq!(switch.depart(1, 1 << 6 | 1 << 3), None);
        while let Some((packet, _)) = switch.depart(1, 0) {
            ids.push(packet.id);
        }
        assert_eq!(ids, [0, 2, 1, 3]);
        assert_eq!((switch.waiting(1), switch.shared_used), (0, 0));
    }

    /// Without loss: stopped at the threshold, then headroom; on again below it.
    #[test]
    fn a_port_is_stopped_in_time_and_goes_on_when_it_drained() {
        let mut switch = switch(SETTINGS);
        // alpha/(1+alpha) of 960,000 bytes: about 106,667.
        let mut count = 0;
        while !switch.arrive(packet(count, 0, 3), 1).stop {
            count += 1;
        }
        assert_eq!(count, 106);
        assert!(switch.is_stopped(0, 3) && !switch.is_stopped(1, 3));
        // The one that did it stands in the headroom; nine more have room there.
        let dropped: Vec<bool> =
            (0..10).map(|_| switch.arrive(packet(0, 0, 3), 1).dropped).collect();
        assert_eq!(dropped.iter().filter(|dropped| **dropped).count(), 1);
        assert!(dropped[9]);
        // Another port is not stopped yet, and another priority may come.
        assert_eq!(switch.arrive(packet(0, 1, 3), 2), Arrival::default());
        assert!(!switch.arrive(packet(0, 0, 0), 2).dropped);
        let mut left = 0;
        while !switch.depart(1, 0).unwrap().1 {
            left += 1;
        }
        assert_eq!(left + 1, 12, "ten of the headroom, two for the offset");
        assert!(!switch.is_stopped(0, 3));
        assert_eq!((switch.stops, switch.dropped), (1, 1));
    }

    #[test]
    fn what_may_be_lost_is_lost_when_its_queue_is_long() {
        let mut switch = switch(SETTINGS);
        let kept = (0..1000).filter(|id| !switch.arrive(packet(*id, 0, 0), 1).dropped).count();
        assert_eq!((kept, switch.dropped, switch.stops), (106, 894, 0));
    }

    #[test]
    fn it_is_known_who_waits_for_whom() {
        let mut switch = switch(SETTINGS);
        switch.arrive(packet(0, 2, 3), 1);
        assert!(switch.waits(2, 1) && !switch.waits(1, 2));
        switch.depart(1, 0);
        assert!(!switch.waits(2, 1));
    }
}
