//! Devices, links and one virtual clock.
//!
//! Nothing happens but what stands in the queue of events, in the order of time and, at one
//! moment, in the order in which it was put there; so a world runs the same way on every machine.
//! Frames are framed and sealed as on a wire. Each is judged where it leaves, by a
//! [`Tracer`] for its connection, and again by the device that gets it.

mod damage;
mod node;
mod recorded;

use std::cmp::Ordering;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::time::Duration;

use roxe_device::VecMemory;
use roxe_net::fault::Subject;
use roxe_trace::{IcrcVerdict, Observation, Outside, Rule, Seen, Tracer};
use roxe_wire::opcode::Service;
use roxe_wire::{Frame, Instant, Packet, Qpn, RawFrame};

use crate::link::{Impairments, Link, Passage};
use crate::peer::Peers;
use damage::damage;
use node::{BEFORE, node_of};

pub(crate) use node::path_of;
pub use node::{Answers, Node};
pub use recorded::Recorded;

/// The devices and all that is between them.
#[derive(Debug)]
pub struct World<A> {
    /// The time.
    pub now: Instant,
    /// How many times as long everything takes as in a world of usual links.
    pub stretch: u32,
    /// The devices.
    pub nodes: Vec<Node>,
    /// From each device to each, in rows.
    links: Vec<Link>,
    events: BinaryHeap<Event<A>>,
    /// How many events there were.
    pub count: u64,
    /// Until when links are bad.
    pub faulty_until: Instant,
    conversations: Vec<Conversation>,
    by_destination: BTreeMap<(usize, usize, Qpn), usize>,
    datagrams: Tracer,
    observation: Observation,
    room: Vec<u8>,
    spare: Vec<Vec<u8>>,
    /// Frames sent.
    pub frames: u64,
    /// What links did to them.
    pub impairments: Impairments,
    /// Frames that arrived once more than they were sent.
    pub copies: u64,
    /// Of everything sent: when, by whom, and the ICRC.
    pub digest: u64,
    /// The first broken rule.
    pub finding: Option<String>,
    /// The last frames and what became of them; none unless asked for.
    pub record: Option<VecDeque<Recorded>>,
}

/// The two directions of a connection, as an observer sees them.
#[derive(Debug, Default)]
pub struct Conversation {
    tracer: Tracer,
    again: bool,
    /// Frames that did not arrive as they should.
    pub impaired: u64,
}

/// What stands in the queue.
#[derive(Debug)]
enum Happening<A> {
    Arrive { to: usize, frame: Vec<u8>, damaged: bool },
    Transmit(usize),
    Timer(usize),
    Action(A),
}

/// Something in the queue. The earliest is the greatest, and of one moment the first that was put
/// there.
#[derive(Debug)]
struct Event<A> {
    at: Instant,
    number: u64,
    what: Happening<A>,
}

impl<A> Ord for Event<A> {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}

impl<A> PartialOrd for Event<A> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<A> PartialEq for Event<A> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<A> Eq for Event<A> {}

/// What has just happened.
#[derive(Debug, PartialEq, Eq)]
pub enum Due<A> {
    /// Something at a device: it may have completions.
    Device(usize),
    /// What was scheduled.
    Action(A),
}

/// How many frames are remembered.
const RECORDED: usize = 2000;

/// How long a port takes for a byte, in picoseconds: 40 is 200 Gb/s.
const PORT_PICOS_PER_BYTE: u64 = 40;

/// Frames that a port sends at once.
const BURST: usize = 4;

impl<A> World<A> {
    /// A world of `count` devices of these kinds, with `link` between each two.
    pub fn new(
        count: usize,
        peers: Peers,
        seed: u64,
        mut link: impl FnMut(usize, usize) -> Link,
    ) -> Self {
        let pairs = (0..count).flat_map(|from| (0..count).map(move |to| (from, to)));
        Self {
            now: Instant::ZERO,
            stretch: 1,
            links: pairs.map(|(from, to)| link(from, to)).collect(),
            nodes: (0..count).map(|index| Node::new(index, peers.kind(index), seed)).collect(),
            events: BinaryHeap::new(),
            count: 0,
            faulty_until: Instant::ZERO,
            conversations: Vec::new(),
            by_destination: BTreeMap::new(),
            datagrams: Tracer::default(),
            observation: Observation::default(),
            room: vec![0; BEFORE + 4096 + 128],
            spare: Vec::new(),
            frames: 0,
            impairments: Impairments::default(),
            copies: 0,
            digest: 0,
            finding: None,
            record: None,
        }
    }

    /// Something is to happen after a while, which is longer in a world that is stretched.
    pub fn schedule(&mut self, after: Duration, action: A) {
        self.put(self.now + after * self.stretch, Happening::Action(action));
    }

    fn put(&mut self, at: Instant, what: Happening<A>) {
        self.count += 1;
        self.events.push(Event { at, number: self.count, what });
    }

    /// Whether anything is to happen.
    pub fn any(&self) -> bool {
        !self.events.is_empty()
    }

    /// Lets the next thing happen. `None` when nothing will ever happen again.
    pub fn step(&mut self) -> Option<Due<A>> {
        let Event { at, what, .. } = self.events.pop()?;
        self.now = at;
        let node = match what {
            Happening::Action(action) => return Some(Due::Action(action)),
            Happening::Arrive { to, frame, damaged } => {
                self.deliver(to, &frame, damaged);
                self.spare.push(frame);
                to
            }
            Happening::Transmit(node) => {
                self.nodes[node].sending = false;
                node
            }
            Happening::Timer(node) => {
                if self.nodes[node].timer == Some(at) {
                    self.nodes[node].timer = None;
                }
                self.nodes[node].device.handle_timeout(at);
                node
            }
        };
        self.kick(node);
        Some(Due::Device(node))
    }

    /// A device may have something to send, or another deadline.
    pub fn kick(&mut self, index: usize) {
        self.transmit(index);
        let node = &mut self.nodes[index];
        let Some(at) = node.device.poll_timeout() else { return };
        let at = at.max(self.now); // What is late is due now.
        if node.timer.is_none_or(|earlier| at < earlier) {
            node.timer = Some(at);
            self.put(at, Happening::Timer(index));
        }
    }

    /// A device begins anew: nothing of it is left but its memory, which moves to the new one.
    pub fn restart(&mut self, index: usize, seed: u64) -> VecMemory {
        let fresh = Node::new(index, self.nodes[index].kind, seed);
        let old = std::mem::replace(&mut self.nodes[index], fresh);
        let node = &mut self.nodes[index];
        (node.sending, node.busy_until, node.timer) = (old.sending, old.busy_until, old.timer);
        old.device.host().clone()
    }

    /// From now on frames between two queue pairs are a conversation of their own. `again` is
    /// whether frames of an earlier one may still be on their way.
    pub fn converse(&mut self, ends: [(usize, Qpn); 2], again: bool) -> usize {
        let id = self.conversations.len();
        self.conversations.push(Conversation { again, ..Conversation::default() });
        let [(a, qa), (b, qb)] = ends;
        self.by_destination.insert((a, b, qb), id);
        self.by_destination.insert((b, a, qa), id);
        id
    }

    /// What is known of a conversation.
    pub fn conversation(&self, id: usize) -> &Conversation {
        &self.conversations[id]
    }

    /// Something came that no observer saw: answers to it may look strange.
    pub fn blemish(&mut self, id: usize) {
        let conversation = &mut self.conversations[id];
        conversation.impaired += 1;
        conversation.again = true;
    }

    /// How many request packets of all connections were sent again, as observers saw it.
    pub fn retransmissions(&self) -> u64 {
        self.conversations.iter().map(|known| known.tracer.summary().retransmissions).sum()
    }

    /// A frame that no device sent comes to a device.
    pub fn inject(&mut self, to: usize, frame: &[u8]) {
        let frame = self.copy(frame);
        self.put(self.now, Happening::Arrive { to, frame, damaged: false });
    }

    /// All links from and to a device are still for so long; longer in a world that is stretched.
    pub fn pause(&mut self, index: usize, length: Duration) {
        let length = length * self.stretch;
        let (now, count) = (self.now, self.nodes.len());
        for other in 0..count {
            self.links[index * count + other].pause(now, length);
            self.links[other * count + index].pause(now, length);
        }
    }

    fn copy(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut frame = self.spare.pop().unwrap_or_default();
        frame.clear();
        frame.extend_from_slice(bytes);
        frame
    }

    fn deliver(&mut self, to: usize, frame: &[u8], damaged: bool) {
        let Ok(frame) = Frame::parse(RawFrame::ethernet(frame)) else { return };
        let node = &mut self.nodes[to];
        node.handed += 1;
        node.damaged += u64::from(damaged);
        node.device.handle_packet(self.now, frame.received());
    }

    fn transmit(&mut self, index: usize) {
        if self.nodes[index].sending {
            return;
        }
        for _ in 0..BURST {
            let mut room = std::mem::take(&mut self.room);
            let written = self.nodes[index].write(self.now, &mut room);
            if let Some((start, end)) = written {
                self.send(index, &room[start..end]);
            }
            self.room = room;
            let Some((start, end)) = written else { return };
            let node = &mut self.nodes[index];
            let time = ((end - start) as u64 * PORT_PICOS_PER_BYTE).div_ceil(1000);
            node.busy_until = node.busy_until.max(self.now) + Duration::from_nanos(time);
        }
        let at = self.nodes[index].busy_until;
        self.nodes[index].sending = true;
        self.put(at, Happening::Transmit(index));
    }

    /// A frame leaves a device.
    fn send(&mut self, from: usize, bytes: &[u8]) {
        self.frames += 1;
        let Ok(frame) = Frame::parse(RawFrame::ethernet(bytes)) else {
            self.break_rule("the device sent a frame that is none".to_owned());
            return;
        };
        let packet = match Packet::parse(frame.body) {
            Ok(packet) => packet,
            Err(reason) => {
                self.break_rule(format!("the device sent a packet that is none: {reason}"));
                return;
            }
        };
        let bth = &packet.headers.bth;
        let sum =
            self.now.nanos() ^ (from as u64) << 56 ^ u64::from(frame.body.icrc().unwrap_or(0));
        self.digest = (self.digest ^ sum).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        self.nodes[from].answers.count(&packet);
        let destination = frame.ip.destination();
        let to = node_of(destination).filter(|&to| to < self.nodes.len());
        let conversation = to.and_then(|to| self.by_destination.get(&(from, to, bth.dest_qp)));
        let conversation = conversation.copied().filter(|_| packet.opcode.service != Service::Ud);
        let (tracer, again) = match conversation {
            Some(id) => {
                let Conversation { tracer, again, .. } = &mut self.conversations[id];
                (tracer, *again)
            }
            None => (&mut self.datagrams, false),
        };
        let icrc = IcrcVerdict::of(&frame);
        let outside = &Outside::of(&frame);
        let seen =
            Seen { number: self.frames, time_ns: self.now.nanos(), outside, packet: &packet, icrc };
        tracer.observe(&seen, &mut self.observation);
        // Late frames of an earlier connection may be answered with what this one expects.
        let excused = |rule| again && rule == Rule::AckPsn;
        let mut findings = self.observation.findings.iter();
        if let Some(finding) = findings.find(|finding| !excused(finding.rule)) {
            let what =
                format!("{}: {}, expected {}", finding.rule.name(), finding.seen, finding.expected);
            self.break_rule(what);
        }
        let subject = Subject { qpn: bth.dest_qp, psn: bth.psn, len: frame.body.len() };
        let body_at = bytes.len() - frame.padding - frame.body.len();
        let receivers = match to {
            Some(to) => to..to + 1,
            None if destination.is_multicast() => 0..self.nodes.len(),
            None => 0..0,
        };
        for to in receivers.filter(|&other| to.is_some() || other != from) {
            let faulty = self.now < self.faulty_until;
            let count = self.nodes.len();
            let passage =
                self.links[from * count + to].send(self.now, bytes.len(), subject, faulty);
            self.impairments.count(&passage);
            self.carry(from, to, bytes, body_at, passage);
            if let Some(id) = conversation {
                self.conversations[id].impaired += u64::from(passage.impaired);
            }
        }
    }

    fn carry(&mut self, from: usize, to: usize, bytes: &[u8], body_at: usize, passage: Passage) {
        if let Some(record) = &mut self.record {
            if record.len() == RECORDED {
                record.pop_front();
            }
            let (time, bytes) = (self.now, bytes.to_vec());
            record.push_back(Recorded { time, ends: (from, Some(to)), bytes, passage });
        }
        let Some(arrives) = passage.arrives else { return };
        for copy in 0..=passage.copies {
            let mut frame = self.copy(bytes);
            let damaged = copy == 0 && damage(&mut frame, body_at, passage);
            self.copies += u64::from(copy != 0);
            let at = arrives + Duration::from_nanos(u64::from(copy) * 100);
            self.put(at, Happening::Arrive { to, frame, damaged });
        }
    }

    fn break_rule(&mut self, what: String) {
        self.finding.get_or_insert(what);
    }
}
