//! The observer: one frame in, notes and findings out.

use std::collections::VecDeque;
use std::net::IpAddr;

use roxe_wire::opcode::{Operation, Service};
use roxe_wire::{Ecn, Packet, Psn, Qpn, mad::Mad};

use crate::arrival::Arrival;
use crate::datagram::{self, Connected, Handshakes};
use crate::flow::{Answered, Flow, FlowKey, Flows};
use crate::requests::payload_length;
use crate::responses;
use crate::{ConversationSummary, Finding, IcrcVerdict, Note, Rule, Seen, Summary, WrongChecksum};

/// An address and a queue pair, where it is known.
pub type Endpoint = (IpAddr, Option<Qpn>);

/// What one frame means. Kept by the caller and used again, so that nothing is allocated for each.
#[derive(Clone, Debug, Default)]
pub struct Observation {
    /// The conversation, counted from 1; 0 for none.
    pub conversation: u32,
    /// The sender's queue pair, where the packet or its conversation tells.
    pub source_qp: Option<Qpn>,
    /// How far the packet's PSN lies from the first one of its direction.
    pub relative_psn: Option<i32>,
    /// Facts.
    pub notes: Vec<Note>,
    /// Broken rules.
    pub findings: Vec<Finding>,
}

/// Follows the conversations in a sequence of frames.
#[derive(Debug, Default)]
pub struct Tracer {
    flows: Flows,
    handshakes: Handshakes,
    unplaced: VecDeque<Unplaced>,
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
        observation.notes.clear();
        observation.findings.clear();
        observation.relative_psn = None;
        let &Seen { number, outside, packet, ref icrc } = seen;
        let bth = &packet.headers.bth;
        let service = packet.opcode.service;
        observation.source_qp = packet.headers.deth.map(|deth| deth.source_qp);

        // A CNP concerns what the peer sends: it belongs to the connection of its destination.
        let key = FlowKey {
            source: outside.source,
            destination: outside.destination,
            service: if service == Service::Cnp { Service::Rc } else { service } as u8,
            dest_qp: bth.dest_qp,
            source_qp: observation.source_qp,
        };
        if let Some(finding) = icrc.finding() {
            // No field can be trusted, so nothing is learned from it.
            let known = self.flows.find(&key);
            observation.conversation = known.map_or(0, |index| self.flows.get(index).conversation);
            let counts = match known {
                Some(index) => &mut self.flows.get_mut(index).counts,
                None => {
                    if self.unplaced.len() >= UNPLACED {
                        self.unplaced.pop_front();
                    }
                    self.unplaced.push_back(Unplaced { key, psn: bth.psn });
                    &mut self.flows.forgotten
                }
            };
            counts.frames += 1;
            counts.icrc_errors += 1;
            observation.notes.push(Note::Dropped);
            observation.findings.push(finding);
            return;
        }
        let index = self.flows.find_or_add(key, service, outside.source_port, number);
        let is_first = self.flows.get(index).counts.frames == 0;
        let before = if is_first { self.place(index, &key) } else { None };
        let flow = self.flows.get_mut(index);
        if service != Service::Cnp {
            // Perhaps a CNP was seen first.
            flow.service = service;
        }
        observation.conversation = flow.conversation;
        let counts = &mut flow.counts;
        counts.frames += 1;
        if outside.traffic_class.ecn() == Ecn::Ce {
            counts.marked += 1;
            observation.notes.push(Note::CongestionExperienced);
        }
        if let Some(WrongChecksum { expected, found }) = outside.udp_checksum {
            observation.findings.push(Finding {
                rule: Rule::UdpChecksum,
                seen: format!("0x{found:04x}"),
                expected: format!("0x{expected:04x} or 0"),
            });
        }
        let group = outside.destination.is_multicast();
        let group_qp = bth.dest_qp == Qpn::MULTICAST;
        let astray = if service == Service::Ud { group != group_qp } else { group || group_qp };
        if astray {
            observation.findings.push(Finding {
                rule: Rule::Destination,
                seen: format!("QP {} at {}", bth.dest_qp, outside.destination),
                expected: if service == Service::Ud {
                    "QP 0xffffff with a multicast address, and only there".to_owned()
                } else {
                    "one queue pair of one host".to_owned()
                },
            });
        }
        if bth.dest_qp == Qpn::SMI {
            observation.findings.push(Finding {
                rule: Rule::Destination,
                seen: "QP 0".to_owned(),
                expected: "another QP: RoCE has no subnet management".to_owned(),
            });
        }
        if matches!(icrc, IcrcVerdict::Good)
            && let Some(icrc) = outside.icrc
            && let Some(of) = flow.recent.take(outside.identification, icrc, number)
        {
            counts.duplicates += 1;
            observation.notes.push(Note::Doubled { of });
            self.place_doubled(index, packet, observation);
            return;
        }
        match service {
            Service::Cnp => {
                counts.cnps += 1;
                observation
                    .notes
                    .push(Note::CongestionNotification { to: (outside.destination, bth.dest_qp) });
                if !packet.payload.is_empty() {
                    observation.findings.push(payload_length(packet.opcode, packet.payload.len()));
                }
                if !bth.becn || bth.psn != Psn::new(0) {
                    observation.findings.push(Finding {
                        rule: Rule::Cnp,
                        seen: format!("BECN {}, PSN {}", u8::from(bth.becn), bth.psn),
                        expected: "BECN 1, PSN 0".to_owned(),
                    });
                }
            }
            Service::Ud => {
                counts.count_message(Operation::Send);
                counts.bytes += packet.payload.len() as u64;
                if !packet.opcode.payload.allows_for_some_mtu(packet.payload.len()) {
                    observation.findings.push(payload_length(packet.opcode, packet.payload.len()));
                }
                if let Some(mad) = datagram::observe(seen, observation) {
                    observation.notes.extend(self.handshakes.repeats(seen));
                    self.learn(seen, &mad);
                }
            }
            Service::Rc | Service::Uc | Service::Rd | Service::Xrc => {
                if packet.opcode.operation.is_response() {
                    self.observe_response(index, seen, observation);
                } else {
                    let connections = self.flows.len();
                    let flow = self.flows.get_mut(index);
                    flow.requests.share(connections);
                    let Flow { requests, counts, recent, .. } = flow;
                    let is_first = !requests.is_known();
                    let own = observation.findings.len();
                    let identification = outside.identification;
                    let arrival = Arrival { frame: number, identification, recent };
                    requests.observe(packet, &arrival, observation, counts);
                    // A broken frame's PSN may be what is broken: it lies no further back than
                    // there were frames.
                    if let Some((before, frames)) = before.filter(|_| is_first)
                        && bth.psn.since(before) <= frames
                    {
                        requests.began_before(before);
                    }
                    observation.relative_psn = requests.relative(bth.psn);
                    if observation.findings.len() > own {
                        self.doubt_answers(index, observation);
                    }
                }
                observation.conversation = self.flows.get(index).conversation;
                observation.source_qp =
                    observation.source_qp.or_else(|| self.flows.source_qp(index));
            }
        }
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

    fn observe_response(&mut self, index: usize, seen: &Seen<'_>, observation: &mut Observation) {
        let Seen { number, packet, .. } = *seen;
        let psn = packet.headers.bth.psn;
        if !packet.opcode.payload.allows_for_some_mtu(packet.payload.len()) {
            observation.findings.push(payload_length(packet.opcode, packet.payload.len()));
        }
        let peer = match self.flows.answered_by(index, packet, number) {
            Answered::By(peer) => peer,
            Answered::Unclear => {
                self.flows.get_mut(index).counts.unclear_answers += 1;
                return observation.notes.push(Note::RequestUnclear);
            }
            Answered::Unseen => return observation.notes.push(Note::RequestNotSeen),
        };
        let flow = self.flows.get_mut(peer);
        let (requests, counts) = (&mut flow.requests, &mut flow.counts);
        let (facts, own) = (observation.notes.len(), observation.findings.len());
        responses::observe(requests, packet, number, observation, counts);
        observation.relative_psn = requests.relative(psn);
        let is_unseen =
            observation.notes[facts..].iter().any(|note| matches!(note, Note::RequestNotSeen));
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
            self.flows.find_or_add(key, Service::Rc, 0, seen.number);
        }
        // Not before both are there: to make room for one all others may have moved.
        if let [Some(to_passive), Some(to_active)] = keys.map(|key| self.flows.find(&key)) {
            self.flows.connect((to_passive, active.2), (to_active, passive.2));
        }
    }

    /// What was seen so far: all conversations together.
    pub fn summary(&self) -> Summary {
        let mut total = self.flows.forgotten.clone();
        for conversation in self.flows.conversations() {
            total.add(&conversation.counts);
        }
        total
    }

    /// Each conversation that is remembered, in the order of first frames.
    pub fn conversations(&self) -> Vec<ConversationSummary> {
        self.flows.conversations()
    }

    /// How many directions were forgotten because there were too many; their counts are in
    /// [`Tracer::summary`].
    pub const fn forgotten(&self) -> u64 {
        self.flows.forgotten_flows
    }
}
