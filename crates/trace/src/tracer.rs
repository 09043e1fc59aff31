//! The observer: one frame in, notes and findings out.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::num::NonZeroU32;

use roxe_wire::opcode::{Operation, Service};
use roxe_wire::{Ecn, Packet, Psn, Qpn, mad::Mad};

use crate::arrival::Arrival;
use crate::datagram::{self, Connected, Handshakes};
use crate::flow::{Answered, Flow, FlowKey, Flows};
use crate::{ConversationSummary, Finding, Note, Rule, Seen, Summary};
use crate::{alone, responses};

/// An address and a queue pair, where it is known.
pub type Endpoint = (IpAddr, Option<Qpn>);

/// What one frame means. Kept by the caller and used again, so that nothing is allocated for each.
#[derive(Clone, Debug, Default)]
pub struct Observation {
    /// The conversation, counted from 1, as it is known by now: later frames may tell that it is
    /// part of another ([`ConversationSummary::also`]).
    pub conversation: Option<NonZeroU32>,
    /// The sender's queue pair, where the packet or its conversation tells.
    pub source_qp: Option<Qpn>,
    /// How far the packet's PSN lies from the first one of its direction.
    pub relative_psn: Option<i32>,
    /// Facts.
    pub notes: Vec<Note>,
    /// Broken rules.
    pub findings: Vec<Finding>,
}

impl Observation {
    fn begin(&mut self, key: &FlowKey) {
        self.conversation = None;
        self.source_qp = key.source_qp;
        self.relative_psn = None;
        self.notes.clear();
        self.findings.clear();
    }

    /// Mostly nothing is broken: then this is a look, and no iterator.
    pub(crate) fn find(&mut self, broken: Option<Finding>) {
        if let Some(finding) = broken {
            self.findings.push(finding);
        }
    }
}

/// One direction of a conversation, as it is known at last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Direction {
    /// From here …
    pub source: IpAddr,
    /// … to here.
    pub destination: IpAddr,
    /// Its service.
    pub service: Service,
    /// The queue pair that its packets name as their destination …
    pub dest_qp: Qpn,
    /// … and as their source, if they name one.
    pub named: Option<Qpn>,
    /// The sender's queue pair, where the packets or the conversation tell.
    pub source_qp: Option<Qpn>,
    /// The conversation.
    pub conversation: NonZeroU32,
    /// Answers came back of which nobody can tell whether they are for this direction or for
    /// another one between the same hosts.
    pub is_unclear: bool,
}

/// Follows the conversations in a sequence of frames.
#[derive(Debug, Default)]
pub struct Tracer {
    flows: Flows,
    handshakes: Handshakes,
    unplaced: VecDeque<Unplaced>,
    /// When the newest frame was seen.
    end_ns: u64,
}

/// A frame with a wrong ICRC, of a direction from which nothing else was seen yet.
#[derive(Clone, Copy, Debug)]
struct Unplaced {
    key: FlowKey,
    psn: Psn,
}

/// How many frames with a wrong ICRC wait for their conversation.
const UNPLACED: usize = 64;

impl Tracer {
    /// Takes in the next frame; `observation` is overwritten with what it means.
    pub fn observe(&mut self, seen: &Seen<'_>, observation: &mut Observation) {
        let key = FlowKey::of(seen);
        observation.begin(&key);
        self.end_ns = self.end_ns.max(seen.time_ns);
        if let Some(finding) = seen.icrc.finding() {
            observation.findings.push(finding);
            return self.observe_broken(key, seen, observation);
        }
        let index = self.flows.find_or_add(key, seen);
        let is_first = self.flows.get(index).counts.frames == 0;
        let broken_before = if is_first { self.place(index, &key) } else { None };
        let flow = self.flows.get_mut(index);
        flow.counts.frames += 1;
        if seen.outside.traffic_class.ecn() == Ecn::Ce {
            flow.counts.marked += 1;
            observation.notes.push(Note::CongestionExperienced);
            if !seen.packet.payload.is_empty() {
                flow.reaction.get_or_insert_default().mark(seen.number);
            }
        }
        observation.find(alone::check_udp_checksum(seen.outside));
        observation.find(alone::check_group(seen));
        observation.find(alone::check_subnet_management(seen.packet));
        if let Some(of) = flow.recent.take(seen) {
            flow.counts.duplicates += 1;
            observation.notes.push(Note::Doubled { of });
            observation.conversation = Some(flow.show());
            return self.place_doubled(index, seen.packet, observation);
        }
        observation.find(alone::check_payload_length(seen.packet));
        match seen.packet.opcode.service {
            Service::Cnp => {
                observation.conversation = Some(flow.show());
                self.observe_notification(index, seen, observation);
            }
            Service::Ud => {
                observation.conversation = Some(flow.show());
                self.observe_datagram(index, seen, observation);
            }
            Service::Rc | Service::Uc | Service::Rd | Service::Xrc => {
                if seen.packet.opcode.operation.is_response() {
                    self.observe_response(index, seen, observation);
                } else {
                    self.observe_request(index, seen, broken_before, observation);
                }
                self.observe_pace(index, seen, observation);
                // Just now may have been learned which two directions belong together.
                observation.conversation = Some(self.flows.get_mut(index).show());
                observation.source_qp =
                    observation.source_qp.or_else(|| self.flows.source_qp(index));
            }
        }
    }

    /// A frame with a wrong ICRC: no field of it can be trusted, so nothing is learned from it.
    fn observe_broken(&mut self, key: FlowKey, seen: &Seen<'_>, observation: &mut Observation) {
        let counts = match self.flows.find(&key) {
            Some(index) => {
                let flow = self.flows.get_mut(index);
                observation.conversation = Some(flow.show());
                &mut flow.counts
            }
            None => {
                if self.unplaced.len() >= UNPLACED {
                    self.unplaced.pop_front();
                }
                self.unplaced.push_back(Unplaced { key, psn: seen.packet.headers.bth.psn });
                &mut self.flows.forgotten
            }
        };
        counts.frames += 1;
        counts.icrc_errors += 1;
        observation.notes.push(Note::Dropped);
    }

    /// Frames with a wrong ICRC that came before the first good one of their direction are counted
    /// there. Tells the first one's PSN, and how many there were.
    fn place(&mut self, index: usize, key: &FlowKey) -> Option<(Psn, i32)> {
        if self.unplaced.is_empty() {
            return None;
        }
        let mut first = None;
        let mut frames = 0;
        let (forgotten, flow) = self.flows.forgotten_and(index);
        self.unplaced.retain(|unplaced| {
            if unplaced.key != *key {
                return true;
            }
            first = first.or(Some(unplaced.psn));
            frames += 1;
            forgotten.frames -= 1;
            forgotten.icrc_errors -= 1;
            flow.counts.frames += 1;
            flow.counts.icrc_errors += 1;
            false
        });
        first.map(|psn| (psn, frames))
    }

    /// Where a frame belongs of which all was said when it came first.
    fn place_doubled(&self, index: usize, packet: &Packet<'_>, observation: &mut Observation) {
        if !matches!(packet.opcode.service, Service::Ud | Service::Cnp) {
            let flow = self.flows.get(index);
            let requests = if packet.opcode.operation.is_response() {
                flow.peer.map(|peer| &self.flows.get(peer).requests)
            } else {
                Some(&flow.requests)
            };
            observation.relative_psn =
                requests.and_then(|requests| requests.relative(packet.headers.bth.psn));
            observation.source_qp = observation.source_qp.or_else(|| self.flows.source_qp(index));
        }
    }

    fn observe_notification(
        &mut self,
        index: usize,
        seen: &Seen<'_>,
        observation: &mut Observation,
    ) {
        let flow = self.flows.get_mut(index);
        flow.counts.cnps += 1;
        let to = (seen.outside.destination, seen.packet.headers.bth.dest_qp);
        let peer = flow.peer;
        let mark = peer.and_then(|peer| {
            let about = self.flows.get_mut(peer);
            about.reaction.get_or_insert_default().tell(seen.number)
        });
        observation.notes.push(Note::CongestionNotification { to, mark });
        observation.find(alone::check_notification(seen.packet));
    }

    /// How fast the packets of one follow each other who may be told of congestion: whoever obeys
    /// says that its packets may be marked.
    fn observe_pace(&mut self, index: usize, seen: &Seen<'_>, observation: &mut Observation) {
        let len = seen.packet.payload.len();
        let flow = self.flows.get_mut(index);
        let may_be_told = seen.outside.traffic_class.ecn() != Ecn::NotEct;
        if len > 0 && (may_be_told || flow.reaction.is_some()) {
            let reaction = flow.reaction.get_or_insert_default();
            observation.notes.extend(reaction.sent(seen.time_ns, len));
        }
    }

    fn observe_datagram(&mut self, index: usize, seen: &Seen<'_>, observation: &mut Observation) {
        let counts = &mut self.flows.get_mut(index).counts;
        counts.count_message(Operation::Send);
        counts.bytes += seen.packet.payload.len() as u64;
        if let Some(mad) = datagram::observe(seen, observation) {
            observation.notes.extend(self.handshakes.repeats(seen));
            self.learn(seen, &mad);
        }
    }

    /// Takes in a request. Before the first good frame of its direction there may have been broken
    /// ones: the PSN of the first, and how many.
    fn observe_request(
        &mut self,
        index: usize,
        seen: &Seen<'_>,
        broken_before: Option<(Psn, i32)>,
        observation: &mut Observation,
    ) {
        let psn = seen.packet.headers.bth.psn;
        let directions = self.flows.len();
        let Flow { requests, counts, recent, .. } = self.flows.get_mut(index);
        let is_first = !requests.is_known();
        let own = observation.findings.len();
        requests.share(directions);
        requests.now_ns = seen.time_ns;
        requests.observe(seen.packet, &Arrival::of(seen, recent), observation, counts);
        // A broken frame's PSN may be what is broken: it lies no further back than there were
        // frames.
        if let Some((before, frames)) = broken_before.filter(|_| is_first)
            && psn.since(before) <= frames
        {
            requests.began_before(before);
        }
        observation.relative_psn = requests.relative(psn);
        self.flows.settle(index);
        if observation.findings.len() > own {
            self.doubt_answers(index, observation);
        }
    }

    fn observe_response(&mut self, index: usize, seen: &Seen<'_>, observation: &mut Observation) {
        let Seen { number, packet, .. } = *seen;
        let peer = match self.flows.answered_by(index, packet, number) {
            Answered::By(peer) => peer,
            Answered::Unclear => {
                self.flows.get_mut(index).counts.unclear_answers += 1;
                return observation.notes.push(Note::RequestUnclear);
            }
            Answered::Unseen => return observation.notes.push(Note::RequestNotSeen),
        };
        let Flow { requests, counts, .. } = self.flows.get_mut(peer);
        let (facts, own) = (observation.notes.len(), observation.findings.len());
        requests.now_ns = seen.time_ns;
        responses::observe(requests, packet, number, observation, counts);
        observation.relative_psn = requests.relative(packet.headers.bth.psn);
        let is_unseen = observation.notes[facts..].contains(&Note::RequestNotSeen);
        let is_broken = observation.findings.len() > own;
        if is_broken && !self.flows.is_trusted(index, peer)
            || (is_broken || is_unseen) && self.flows.reconsider(index, packet)
        {
            // More likely this answers somebody else.
            observation.findings.truncate(own);
            observation.notes.truncate(facts);
            observation.notes.push(Note::RequestUnclear);
            self.flows.get_mut(index).counts.unclear_answers += 1;
            self.flows.doubt(index);
            observation.relative_psn = None;
        }
        self.flows.settle(peer);
    }

    /// A request shows that an answer named a PSN too early: more likely it answered somebody else,
    /// unless its connection is known.
    fn doubt_answers(&mut self, index: usize, observation: &mut Observation) {
        let is_early = |finding: &Finding| finding.rule == Rule::AckPsn;
        if observation.findings.iter().any(is_early)
            && let Some(peer) = self.flows.get(index).peer
            && !self.flows.is_trusted(peer, index)
        {
            observation.findings.retain(|finding| !is_early(finding));
            self.flows.doubt(index);
        }
    }

    /// Joins the two directions of a connection whose handshake was seen.
    fn learn(&mut self, seen: &Seen<'_>, mad: &Mad) {
        let Some(connected) = self.handshakes.observe(seen, mad) else { return };
        let Connected { passive, active } = connected;
        let keys = [(active.0, passive), (passive.0, active)].map(|(source, to)| FlowKey {
            source,
            destination: to.0,
            service: Service::Rc as u8,
            dest_qp: to.1,
            source_qp: None,
        });
        for key in keys {
            self.flows.announce(key, seen.number);
        }
        // Not before both are there: to make room for one all others may have moved.
        if let [Some(to_passive), Some(to_active)] = keys.map(|key| self.flows.find(&key)) {
            self.flows.connect((to_passive, active.2), (to_active, passive.2));
        }
    }

    /// What was seen so far: all conversations together.
    pub fn summary(&self) -> Summary {
        let mut total = self.flows.forgotten.clone();
        for conversation in self.flows.conversations(self.end_ns) {
            total.add(&conversation.counts);
        }
        total
    }

    /// Each conversation that is remembered, in the order of first frames.
    pub fn conversations(&self) -> Vec<ConversationSummary> {
        self.flows.conversations(self.end_ns)
    }

    /// Each direction that is remembered, in the order of first frames.
    pub fn directions(&self) -> Vec<Direction> {
        self.flows.directions()
    }

    /// How many directions were forgotten because there were too many; their counts are in
    /// [`Tracer::summary`].
    pub const fn forgotten(&self) -> u64 {
        self.flows.forgotten_flows
    }
}
