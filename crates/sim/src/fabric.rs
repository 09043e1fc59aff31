//! A network of many hosts, for the study of congestion control.
//!
//! Every host is the real adapter; of payload only the length is there. Between them are
//! [switches](switch) with shared buffers, marks and [flow control by priority](pause), in one of
//! the [topologies](topology); [flows](flow) are what the hosts send. Time is counted in
//! picoseconds, so that a byte at 400 Gb/s is some; adapters see whole nanoseconds. The same
//! settings and seed give the same bytes and moments on every machine.
//!
//! Left out: cables that lose, hosts that cannot keep up with their port, and the time that
//! switches take to look at a packet.

pub mod flow;
mod host;
pub mod pause;
mod stuck;
pub mod switch;
mod telemetry;
pub mod topology;

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use roxe_device::VerbError;
use roxe_transport::congestion::Rate;
use roxe_transport::congestion::hpcc::Hop;
use roxe_transport::work::{Completion, CompletionOpcode, CompletionStatus, PostError};
use roxe_wire::{Instant, LKey, Qpn};

use crate::rng::Rng;
use flow::{Flow, Pieces};
use host::{Frame, Frames, Host, RECEIVES};
use pause::{Gate, PauseFrame, quanta_ps};
use switch::{Queued, Switch, SwitchSettings};
use telemetry::Telemetry;
use topology::{Routes, Tier, Topology, mix};

pub use host::HostSettings;

/// What a network is made of.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Nodes and cables.
    pub topology: Topology,
    /// All switches.
    pub switch: SwitchSettings,
    /// All hosts.
    pub host: HostSettings,
    /// What the hosts send.
    pub flows: Vec<Flow>,
    /// How often everything is looked at, in picoseconds.
    pub sample_ps: u64,
    /// Decides on ways, marks and the numbers of queue pairs.
    pub seed: u64,
}

/// What is seen at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// When, in picoseconds.
    pub at_ps: u64,
    /// Bytes that wait at the watched port.
    pub waiting: u64,
    /// Bytes that the watched port has sent, with all that stands between frames.
    pub sent: u64,
    /// Pauses of all ports.
    pub pauses: u64,
    /// How long ports were stopped, all together, in picoseconds.
    pub paused_ps: u64,
    /// Payload that arrived of each flow.
    pub delivered: Vec<u64>,
}

/// What became of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Payload that arrived.
    pub delivered: u64,
    /// When it was done, in picoseconds.
    pub finished_ps: Option<u64>,
    /// It ended with an error.
    pub failed: bool,
}

#[derive(Clone, Copy, Debug)]
struct Pair {
    qpn: Qpn,
    peer: Qpn,
    peer_key: LKey,
    posted: u64,
    acknowledged: u64,
    /// Pieces that arrived.
    arrived: u64,
    /// The flow that sends on what this one brings.
    next: Option<usize>,
}

/// One end of a cable: what is sent there.
#[derive(Debug)]
struct Port {
    /// The node and the port at the other end.
    to: (u32, u16),
    mbps: u64,
    delay_ps: u64,
    /// When the last byte will have been sent.
    free_at: u64,
    /// When it is looked at next, if that stands in the queue of events.
    wake: u64,
    gate: Gate,
    sent: u64,
}

impl Port {
    /// How long so many bytes take, with preamble and gap.
    const fn time(&self, bytes: u64) -> u64 {
        (bytes + BETWEEN) * 8_000_000 / self.mbps
    }
}

#[derive(Debug)]
enum Happening {
    Arrive {
        node: u32,
        port: u16,
        frame: u32,
    },
    Free {
        node: u32,
        port: u16,
    },
    Pause {
        node: u32,
        port: u16,
        frame: PauseFrame,
    },
    /// A pause is said again, unless it ended.
    Refresh {
        node: u32,
        port: u16,
        priority: u8,
        stop: u32,
    },
    Timer {
        host: u32,
    },
    Start {
        flow: u32,
    },
    Sample,
}

#[derive(Debug)]
struct Event {
    at: u64,
    number: u64,
    what: Happening,
}

impl Ord for Event {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}

impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Event {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Event {}

/// The network.
#[derive(Debug)]
pub struct Fabric {
    now: u64,
    hosts: Vec<Host>,
    switches: Vec<Switch>,
    tiers: Vec<Tier>,
    ports: Vec<Vec<Port>>,
    routes: Routes,
    salts: Vec<u64>,
    frames: Frames,
    telemetry: Telemetry,
    events: BinaryHeap<Event>,
    /// How many events there were.
    pub count: u64,
    flows: Vec<Flow>,
    pairs: Vec<Pair>,
    /// What became of each flow.
    pub progress: Vec<Progress>,
    /// What was seen from time to time.
    pub samples: Vec<Sample>,
    sample_ps: u64,
    watched: (usize, usize),
    /// The longest queue at the watched port since [`Fabric::forget_longest`].
    pub longest: u64,
    /// How often each priority of a port was stopped, to tell old pauses from new ones.
    stops: Vec<Vec<[u32; 8]>>,
    /// Pause frames that came to switches of each tier, and to hosts.
    pub heard: Heard,
    /// A circle of ports each of which waits for the next.
    pub deadlock: Option<Vec<(usize, usize)>>,
}

/// Pause frames by who heard them; those that let go on are not among them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Heard {
    /// Hosts.
    pub hosts: u64,
    /// Switches with hosts.
    pub edge: u64,
    /// Those above.
    pub aggregation: u64,
    /// Those at the top.
    pub spine: u64,
}

/// Counts of the whole network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Packets that switches dropped.
    pub dropped: u64,
    /// Packets that switches marked.
    pub marked: u64,
    /// Notifications that hosts sent.
    pub notifications: u64,
    /// How long ports were stopped, all together, in picoseconds.
    pub paused_ps: u64,
}

impl Fabric {
    /// A network at its first moment, all queue pairs connected.
    ///
    /// # Errors
    /// A flow leads from or to a host that is not there or to its own; an adapter refuses.
    pub fn new(settings: Settings) -> Result<Self, String> {
        let Settings { topology, switch, host, flows, sample_ps, seed } = settings;
        let seeds = Rng::new(seed);
        let led = topology.ports();
        let routes = Routes::of(&topology, &led);
        let place = |node: usize, cable: usize| {
            led[node].iter().position(|(known, _)| *known == cable).unwrap_or_default() as u16
        };
        let port = |&(cable, to): &(usize, usize)| {
            let known = &topology.cables[cable];
            Port {
                to: (to as u32, place(to, cable)),
                mbps: known.mbps.max(1),
                delay_ps: known.delay.as_nanos() as u64 * 1000,
                free_at: 0,
                wake: 0,
                gate: Gate::default(),
                sent: 0,
            }
        };
        let ports: Vec<Vec<Port>> =
            led.iter().map(|ports| ports.iter().map(port).collect()).collect();
        let mut hosts = Vec::with_capacity(topology.hosts);
        for number in 0..topology.hosts {
            let made = Host::new(number as u32, host, seeds.fork(1).next());
            hosts.push(made.map_err(|error| format!("host {number}: {error}"))?);
        }
        let above = &ports[topology.hosts..];
        let switches = above.iter().enumerate().map(|(number, ports)| {
            Switch::new(switch, ports.len(), seeds.fork(1000 + number as u64))
        });
        let (node, to) = topology.watched;
        let watched = led[node].iter().position(|(_, other)| *other == to).unwrap_or_default();
        let mut it = Self {
            now: 0,
            hosts,
            switches: switches.collect(),
            salts: (0..above.len()).map(|number| seeds.fork(2).next() ^ number as u64).collect(),
            stops: above.iter().map(|ports| vec![[0; 8]; ports.len()]).collect(),
            tiers: topology.switches,
            routes,
            frames: Frames::default(),
            telemetry: Telemetry::new(host.congestion.control.needs_telemetry(), flows.len()),
            events: BinaryHeap::new(),
            count: 0,
            pairs: Vec::with_capacity(flows.len()),
            progress: vec![Progress::default(); flows.len()],
            flows,
            samples: Vec::new(),
            sample_ps: sample_ps.max(1),
            watched: (node, watched),
            longest: 0,
            heard: Heard::default(),
            deadlock: None,
            ports,
        };
        for flow in 0..it.flows.len() {
            it.connect(flow).map_err(|error| format!("flow {flow}: {error}"))?;
            let (at, flow) = (it.flows[flow].start_ps, flow as u32);
            it.put(at, Happening::Start { flow });
        }
        for flow in 0..it.flows.len() {
            let Some(Pieces { after, .. }) = it.flows[flow].pieces else { continue };
            let before =
                it.pairs.get_mut(after).ok_or_else(|| format!("flow {flow}: after none"))?;
            before.next = Some(flow);
        }
        it.put(it.sample_ps, Happening::Sample);
        Ok(it)
    }

    fn connect(&mut self, number: usize) -> Result<(), String> {
        let Flow { from, to, pieces, .. } = self.flows[number];
        if from == to || from.max(to) >= self.hosts.len() {
            return Err(format!("from host {from} to host {to} of {}", self.hosts.len()));
        }
        let told = |error: VerbError| error.to_string();
        let (qpn, _) = self.hosts[from].create().map_err(told)?;
        let (peer, peer_key) = self.hosts[to].create().map_err(told)?;
        let flow = number as u32;
        self.hosts[from].connect(qpn, (to as u32, peer), flow).map_err(told)?;
        self.hosts[to].connect(peer, (from as u32, qpn), flow).map_err(told)?;
        if pieces.is_some() {
            let post = |_| self.hosts[to].await_piece(peer, flow);
            (0..RECEIVES).try_for_each(post).map_err(|error| error.to_string())?;
        }
        let (posted, acknowledged, arrived, next) = (0, 0, 0, None);
        self.pairs.push(Pair { qpn, peer, peer_key, posted, acknowledged, arrived, next });
        Ok(())
    }

    /// The time, in picoseconds.
    pub const fn now_ps(&self) -> u64 {
        self.now
    }

    /// What the hosts send.
    pub fn flows(&self) -> &[Flow] {
        &self.flows
    }

    /// The longest queue is looked for anew.
    pub const fn forget_longest(&mut self) {
        self.longest = 0;
    }

    /// Lets everything happen up to a moment, or until all flows are done and nothing is on its
    /// way.
    pub fn run(&mut self, until_ps: u64) {
        while let Some(event) = self.events.peek().filter(|event| event.at <= until_ps) {
            let looks = matches!(event.what, Happening::Sample);
            if looks && self.frames.len() == 0 && self.is_done() {
                break;
            }
            if let Some(Event { at, what, .. }) = self.events.pop() {
                self.now = at;
                self.happen(what);
            }
        }
        self.now = self.now.max(until_ps);
    }

    /// Whether every flow that has an end is there, and none is without.
    pub fn is_done(&self) -> bool {
        self.progress.iter().all(|flow| flow.finished_ps.is_some() || flow.failed)
    }

    /// Counts of the whole network.
    pub fn totals(&self) -> Totals {
        let notifications = |host: &Host| host.device_counters().by_name("np_cnp_sent");
        Totals {
            dropped: self.switches.iter().map(|switch| switch.dropped).sum(),
            marked: self.switches.iter().map(|switch| switch.marked).sum(),
            notifications: self.hosts.iter().filter_map(notifications).sum(),
            paused_ps: self.all_ports().map(|port| port.gate.paused_ps(self.now)).sum(),
        }
    }

    fn all_ports(&self) -> impl Iterator<Item = &Port> {
        self.ports.iter().flatten()
    }

    /// How long a message of so many bytes takes at least: alone in the network, until its last
    /// packet is acknowledged. Picoseconds.
    pub fn alone_ps(&self, flow: &Flow, bytes: u64, payload: u64) -> u64 {
        let (port, hops) = self.way(flow);
        let answer = hops * ((ANSWER + BETWEEN) * 8_000_000 / port.mbps + port.delay_ps);
        self.arrival_ps(flow, bytes, payload) + answer
    }

    /// The same until its last packet has arrived.
    pub fn arrival_ps(&self, flow: &Flow, bytes: u64, payload: u64) -> u64 {
        let (port, hops) = self.way(flow);
        let packets = bytes.div_ceil(payload).max(1);
        let wire = bytes + packets * (HEADERS + BETWEEN);
        let first = bytes.min(payload) + HEADERS + BETWEEN;
        let time = |bytes: u64| bytes * 8_000_000 / port.mbps;
        time(wire) + (hops - 1) * time(first) + hops * port.delay_ps
    }

    /// The port where a flow begins, and over how many cables it goes.
    fn way(&self, flow: &Flow) -> (&Port, u64) {
        let port = &self.ports[flow.from][0];
        let edge = port.to.0 as usize - self.hosts.len();
        (port, 1 + self.routes.distance(edge, flow.to))
    }

    /// How many hosts there are.
    pub const fn hosts(&self) -> usize {
        self.hosts.len()
    }

    fn put(&mut self, at: u64, what: Happening) {
        self.count += 1;
        self.events.push(Event { at, number: self.count, what });
    }

    /// What adapters see of the time.
    const fn instant(&self) -> Instant {
        Instant::from_nanos(self.now / 1000)
    }

    fn happen(&mut self, what: Happening) {
        match what {
            Happening::Arrive { node, port, frame } => {
                if (node as usize) < self.hosts.len() {
                    self.deliver(node as usize, frame);
                } else {
                    self.forward(node as usize, port, frame);
                }
            }
            Happening::Free { node, port } => self.transmit(node as usize, port.into()),
            Happening::Pause { node, port, frame } => {
                self.pause(node as usize, port.into(), &frame);
            }
            Happening::Refresh { node, port, priority, stop } => {
                let switch = node as usize - self.hosts.len();
                let said = self.stops[switch][usize::from(port)][usize::from(priority)];
                if said == stop && self.switches[switch].is_stopped(port.into(), priority) {
                    self.stop(node as usize, port.into(), priority);
                }
            }
            Happening::Timer { host } => {
                let (index, now) = (host as usize, self.instant());
                let host = &mut self.hosts[index];
                host.timer = host.timer.filter(|at| *at > now);
                host.handle_timeout(now);
                self.transmit(index, 0);
            }
            Happening::Start { flow } => {
                let flow = flow as usize;
                let posts = if self.flows[flow].bytes.is_some() { 1 } else { POSTED_AHEAD };
                (0..posts).for_each(|_| self.post(flow));
                self.transmit(self.flows[flow].from, 0);
            }
            Happening::Sample => {
                self.sample();
                self.put(self.now + self.sample_ps, Happening::Sample);
            }
        }
    }

    /// The next message of a flow, if there is any.
    fn post(&mut self, number: usize) {
        let Flow { from, bytes, stop_ps, pieces, .. } = self.flows[number];
        let Pair { qpn, peer_key, posted, .. } = self.pairs[number];
        let is_there =
            |Pieces { bytes, after }: Pieces| self.pairs[after].arrived >= posted / bytes;
        if !pieces.is_none_or(is_there) {
            return;
        }
        let piece = pieces.map_or(LONGEST, |pieces| pieces.bytes);
        let len = match bytes {
            Some(all) => (all - posted).min(piece),
            None if stop_ps.is_some_and(|stop| stop <= self.now) => 0,
            None => MESSAGE,
        };
        if len == 0 {
            return;
        }
        let told = pieces.is_some();
        let written = self.hosts[from].write(qpn, number as u32, len as u32, peer_key, told);
        debug_assert!(!matches!(written, Err(PostError::QueueFull { .. })), "few are posted");
        match written {
            Ok(()) => self.pairs[number].posted += len,
            Err(_) => self.progress[number].failed = true,
        }
    }

    fn sample(&mut self) {
        let (node, port) = self.watched;
        let flows = if self.flows.len() <= FOLLOWED { &*self.progress } else { &[] };
        let sample = Sample {
            at_ps: self.now,
            waiting: self.switches[node - self.hosts.len()].waiting(port),
            sent: self.ports[node][port].sent,
            pauses: self.all_ports().map(|port| port.gate.pauses).sum(),
            paused_ps: self.all_ports().map(|port| port.gate.paused_ps(self.now)).sum(),
            delivered: flows.iter().map(|flow| flow.delivered).collect(),
        };
        self.samples.push(sample);
        if self.deadlock.is_none() {
            self.deadlock = self.find_deadlock();
        }
    }

    /// A frame came to a host.
    fn deliver(&mut self, index: usize, id: u32) {
        let frame = self.frames.remove(id);
        let now = self.instant();
        if frame.payload > 0
            && let Some(flow) = self.progress.get_mut(frame.flow as usize)
        {
            flow.delivered += u64::from(frame.payload);
        }
        self.hosts[index].receive(now, &frame);
        if self.telemetry.is_wanted()
            && let Some(hops) = self.telemetry.arrive(frame.which(id))
            && let Some(Pair { qpn, .. }) = self.pairs.get(frame.flow as usize)
        {
            self.hosts[index].telemetry(now, *qpn, hops);
        }
        let mut room = [Completion::BLANK; 4];
        loop {
            let count = self.hosts[index].completions(&mut room);
            for completion in &room[..count] {
                self.complete(completion);
            }
            if count < room.len() {
                break;
            }
        }
        self.transmit(index, 0);
    }

    fn complete(&mut self, completion: &Completion) {
        let number = completion.wr_id as usize;
        let Some(progress) = self.progress.get_mut(number) else { return };
        if completion.status != CompletionStatus::Success {
            progress.failed = true;
            return;
        }
        if completion.opcode == CompletionOpcode::RecvRdmaWithImm {
            return self.hand_on(number);
        }
        let Flow { bytes, pieces, .. } = self.flows[number];
        let pair = &mut self.pairs[number];
        pair.acknowledged = match pieces {
            // Others of them may be on their way.
            Some(Pieces { bytes, .. }) => pair.acknowledged + bytes,
            None => pair.posted,
        };
        match bytes {
            Some(bytes) if pair.acknowledged >= bytes => {
                progress.finished_ps.get_or_insert(self.now);
            }
            _ => self.post(number),
        }
    }

    /// A piece of a flow arrived: what waited for it may be sent.
    fn hand_on(&mut self, number: usize) {
        let pair = &mut self.pairs[number];
        pair.arrived += 1;
        let (peer, next) = (pair.peer, pair.next);
        if self.hosts[self.flows[number].to].await_piece(peer, number as u32).is_err() {
            self.progress[number].failed = true;
        }
        if let Some(next) = next {
            self.post(next);
            self.transmit(self.flows[next].from, 0);
        }
    }

    /// A frame came to a switch.
    fn forward(&mut self, node: usize, port: u16, id: u32) {
        let index = node - self.hosts.len();
        let Frame { from, to, source_port, bytes, .. } = *self.frames.get(id);
        let ends = u64::from(from) << 40 ^ u64::from(to) << 16 ^ u64::from(source_port);
        let entropy = mix(ends) ^ self.salts[index];
        let Some(egress) = self.routes.next(index, to as usize, entropy) else {
            self.frames.remove(id);
            return;
        };
        let frame = self.frames.get(id);
        let (priority, ecn_capable) = (frame.priority(), frame.is_ecn_capable());
        let switch = &mut self.switches[index];
        let packet = Queued { id, bytes, ingress: port, priority, ecn_capable };
        let arrival = switch.arrive(packet, egress);
        if arrival.mark {
            self.frames.get_mut(id).mark();
        }
        if arrival.dropped {
            self.frames.remove(id);
        } else if (node, egress) == self.watched {
            self.longest = self.longest.max(switch.waiting(egress));
        }
        if arrival.stop {
            let stops = &mut self.stops[index][usize::from(port)][usize::from(priority)];
            *stops = stops.wrapping_add(1);
            self.stop(node, port.into(), priority);
        }
        self.transmit(node, egress);
    }

    /// Says at the other end of a port that a priority is to stop, and again in time.
    fn stop(&mut self, node: usize, port: usize, priority: u8) {
        self.control(node, port, PauseFrame::stop(priority));
        let stop = self.stops[node - self.hosts.len()][port][usize::from(priority)];
        let again = self.now + quanta_ps(u16::MAX / 2, self.ports[node][port].mbps);
        let (node, port) = (node as u32, port as u16);
        self.put(again, Happening::Refresh { node, port, priority, stop });
    }

    /// Sends a frame of flow control, ahead of all that waits.
    fn control(&mut self, node: usize, port: usize, frame: PauseFrame) {
        let known = &mut self.ports[node][port];
        known.free_at = known.free_at.max(self.now) + known.time(PauseFrame::LEN);
        known.sent += PauseFrame::LEN + BETWEEN;
        let (at, (to, there)) = (known.free_at + known.delay_ps, known.to);
        self.put(at, Happening::Pause { node: to, port: there, frame });
    }

    /// A frame of flow control came.
    fn pause(&mut self, node: usize, port: usize, frame: &PauseFrame) {
        let known = &mut self.ports[node][port];
        known.gate.hear(self.now, frame, known.mbps);
        let stops = (0..8).map(|priority| (frame.enabled >> priority & 1, frame.quanta[priority]));
        if let Some(longest) = stops.filter(|(on, _)| *on == 1).map(|(_, quanta)| quanta).max()
            && longest > 0
        {
            let tier = node.checked_sub(self.hosts.len()).map(|switch| self.tiers[switch]);
            *match tier {
                None => &mut self.heard.hosts,
                Some(Tier::Edge) => &mut self.heard.edge,
                Some(Tier::Aggregation) => &mut self.heard.aggregation,
                Some(Tier::Spine) => &mut self.heard.spine,
            } += 1;
            // It may be never said again.
            let over = self.now + quanta_ps(longest, self.ports[node][port].mbps);
            let (node, port) = (node as u32, port as u16);
            self.put(over, Happening::Free { node, port });
        } else {
            self.transmit(node, port);
        }
    }

    /// Sends the next frame on a port, if it is free and there is any.
    fn transmit(&mut self, node: usize, index: usize) {
        let now = self.now;
        let port = &mut self.ports[node][index];
        if port.free_at > now {
            return self.wake(node, index);
        }
        let closed = port.gate.closed(now);
        let id = match node.checked_sub(self.hosts.len()) {
            None => {
                let instant = self.instant();
                let next = self.hosts[node].next(instant, closed, &mut self.frames);
                self.arm(node);
                next
            }
            Some(switch) => {
                let next = self.switches[switch].depart(index, closed);
                if let Some((packet, true)) = next {
                    let priority = PauseFrame::go_on(packet.priority);
                    self.control(node, packet.ingress.into(), priority);
                }
                next.map(|(packet, _)| packet.id)
            }
        };
        let Some(id) = id else { return };
        let frame = self.frames.get(id);
        let (bytes, which) = (u64::from(frame.bytes), frame.which(id));
        let port = &mut self.ports[node][index];
        // A frame of flow control may have gone ahead on the same port.
        port.free_at = port.free_at.max(now) + port.time(bytes);
        port.sent += bytes + BETWEEN;
        if self.telemetry.is_wanted() {
            match node.checked_sub(self.hosts.len()) {
                None => self.telemetry.send(which),
                Some(switch) => {
                    let rate = Rate::from_bits_per_second(port.mbps as f64 * 1e6);
                    let waiting = self.switches[switch].waiting(index);
                    let hop = Hop { at_ps: now, sent: port.sent, waiting, rate };
                    self.telemetry.pass(which, hop);
                }
            }
        }
        let (at, (to, there)) = (port.free_at + port.delay_ps, port.to);
        self.put(at, Happening::Arrive { node: to, port: there, frame: id });
        self.wake(node, index);
    }

    /// Sees to it that a port is looked at when it is free.
    fn wake(&mut self, node: usize, index: usize) {
        let port = &mut self.ports[node][index];
        if port.wake < port.free_at {
            port.wake = port.free_at;
            let (at, node, port) = (port.free_at, node as u32, index as u16);
            self.put(at, Happening::Free { node, port });
        }
    }

    /// Sees to it that a host's timers are looked at in time.
    fn arm(&mut self, index: usize) {
        let now = self.instant();
        let host = &mut self.hosts[index];
        let Some(at) = host.poll_timeout() else { return };
        let at = at.max(Instant::from_nanos(now.nanos() + 1)); // What is late is due at once.
        if host.timer.is_none_or(|earlier| at < earlier) {
            host.timer = Some(at);
            self.put(at.nanos() * 1000, Happening::Timer { host: index as u32 });
        }
    }
}

/// Preamble and gap between frames, in bytes.
pub const BETWEEN: u64 = 20;

/// What stands around the payload of a packet of data: Ethernet, IPv4, UDP, BTH, ICRC, FCS.
pub const HEADERS: u64 = 14 + 20 + 8 + 12 + 4 + 4;

/// An acknowledgement.
const ANSWER: u64 = HEADERS + 4;

/// A flow without end is messages of so many bytes.
const MESSAGE: u64 = 4 << 20;

/// So many of them are posted ahead: more than any network holds.
const POSTED_AHEAD: usize = 8;

/// The longest message of a flow with an end; longer ones are several.
const LONGEST: u64 = 1 << 30;

/// Of so many flows each is followed; of more none.
pub(crate) const FOLLOWED: usize = 64;

#[cfg(test)]
mod tests;
