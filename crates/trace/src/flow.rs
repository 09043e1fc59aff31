//! Who talks to whom: packets carry only their destination's queue pair, so the two directions of a
//! connection have to be found and joined.

use std::collections::BTreeMap;
use std::net::IpAddr;

use roxe_wire::opcode::Service;
use roxe_wire::{Psn, Qpn};

use crate::requests::Requests;
use crate::summary::{ConversationSummary, Summary};

/// How many directions are remembered at once. Beyond it the ones silent for longest go.
const REMEMBERED_FLOWS: usize = 16_384;

/// How many directions are looked at to find the one that a response answers.
const CANDIDATES: usize = 256;

/// What all packets of one direction have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FlowKey {
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    pub(crate) service: u8,
    pub(crate) dest_qp: Qpn,
    /// Datagrams name their source; connected packets do not.
    pub(crate) source_qp: Option<Qpn>,
}

/// One direction.
#[derive(Debug)]
pub(crate) struct Flow {
    pub(crate) key: FlowKey,
    pub(crate) service: Service,
    /// The conversation, counted from 1.
    pub(crate) conversation: u32,
    /// The other direction.
    pub(crate) peer: Option<usize>,
    /// Whether a response, or connection management, has proven that.
    sure: bool,
    pub(crate) requests: Requests,
    pub(crate) counts: Summary,
    pub(crate) recent: RecentFrames,
    source_port: u16,
    last_frame: u64,
}

/// How many frames of one direction are remembered to recognize one that the network doubled.
const RECENT_FRAMES: usize = 16;

/// The last frames of one direction, as their IP identification and their ICRC tell them apart.
#[derive(Debug, Default)]
pub(crate) struct RecentFrames {
    frames: [Option<RecentFrame>; RECENT_FRAMES],
    next: usize,
}

#[derive(Clone, Copy, Debug)]
struct RecentFrame {
    identification: u16,
    icrc: u32,
    number: u64,
}

impl RecentFrames {
    /// Takes in a frame; tells which of those before it is the same. The ICRC covers all that
    /// does not change on the way, the identification too, but that tells a frame doubled from a
    /// packet sent twice only where the sender counts in it: not where it is always the same.
    pub(crate) fn take(&mut self, identification: u16, icrc: u32, number: u64) -> Option<u64> {
        if identification == 0 {
            return None;
        }
        let (mut same, mut counts) = (None, false);
        for known in self.frames.iter().flatten() {
            if known.identification != identification {
                counts = true;
            } else if known.icrc == icrc {
                same = Some(known.number);
            } else {
                return None;
            }
        }
        if let Some(number) = same.filter(|_| counts) {
            return Some(number);
        }
        self.frames[self.next] = Some(RecentFrame { identification, icrc, number });
        self.next = (self.next + 1) % RECENT_FRAMES;
        None
    }
}

/// All directions, by key.
#[derive(Debug, Default)]
pub(crate) struct Flows {
    by_key: BTreeMap<FlowKey, usize>,
    all: Vec<Flow>,
    /// The two used last: captures are mostly a dialogue.
    recent: [usize; 2],
    conversations: u32,
    /// The counts of conversations that are no longer remembered.
    pub(crate) forgotten: Summary,
    pub(crate) forgotten_flows: u64,
}

impl Flows {
    pub(crate) fn get(&self, index: usize) -> &Flow {
        &self.all[index]
    }

    pub(crate) fn get_mut(&mut self, index: usize) -> &mut Flow {
        &mut self.all[index]
    }

    /// The counts that belong to no direction, and a direction.
    pub(crate) fn forgotten_and(&mut self, index: usize) -> (&mut Summary, &mut Flow) {
        (&mut self.forgotten, &mut self.all[index])
    }

    /// The direction with this key; a new one if need be.
    pub(crate) fn find_or_add(
        &mut self,
        key: FlowKey,
        service: Service,
        source_port: u16,
        frame: u64,
    ) -> usize {
        for index in self.recent {
            if let Some(flow) = self.all.get_mut(index).filter(|flow| flow.key == key) {
                flow.last_frame = frame;
                return index;
            }
        }
        let index = match self.by_key.get(&key) {
            Some(&index) => index,
            None => self.add(key, service, source_port),
        };
        self.all[index].last_frame = frame;
        self.recent = [index, self.recent[0]];
        index
    }

    fn add(&mut self, key: FlowKey, service: Service, source_port: u16) -> usize {
        if self.all.len() >= REMEMBERED_FLOWS {
            self.forget_oldest();
        }
        let index = self.all.len();
        self.all.push(Flow {
            key,
            service,
            conversation: 0,
            peer: None,
            sure: false,
            requests: Requests::default(),
            counts: Summary::default(),
            recent: RecentFrames::default(),
            source_port,
            last_frame: 0,
        });
        self.by_key.insert(key, index);
        match self.guess_peer(index) {
            Some(peer) => {
                self.all[index].conversation = self.all[peer].conversation;
                self.join(index, peer, false);
            }
            None => {
                self.conversations += 1;
                self.all[index].conversation = self.conversations;
            }
        }
        index
    }

    /// Directions opposite to `index` that have the same addresses and service.
    fn opposite(&self, index: usize) -> impl Iterator<Item = usize> {
        let FlowKey { source, destination, service, .. } = self.all[index].key;
        let low = FlowKey {
            source: destination,
            destination: source,
            service,
            dest_qp: Qpn::new(0),
            source_qp: None,
        };
        let high = FlowKey { dest_qp: Qpn::MULTICAST, source_qp: Some(Qpn::MULTICAST), ..low };
        self.by_key.range(low..=high).map(|(_, &index)| index).filter(move |&other| other != index)
    }

    /// The other direction as it most likely is, before any response proves it: for datagrams both
    /// queue pairs are known; a connection mostly has one UDP source port for both directions; and
    /// a single candidate is a good one.
    fn guess_peer(&self, index: usize) -> Option<usize> {
        let flow = &self.all[index];
        if let Some(source_qp) = flow.key.source_qp {
            return self.opposite(index).find(|&other| {
                let key = &self.all[other].key;
                key.dest_qp == source_qp && key.source_qp == Some(flow.key.dest_qp)
            });
        }
        let free = |&other: &usize| self.all[other].peer.is_none();
        let mut candidates = self.opposite(index).filter(free).take(CANDIDATES);
        let first = candidates.next()?;
        let Some(second) = candidates.next() else { return Some(first) };
        [first, second]
            .into_iter()
            .chain(candidates)
            .find(|&other| self.all[other].source_port == flow.source_port)
    }

    /// Takes two directions for the two of one connection. Whoever was taken for the other half
    /// of one of them before keeps the number of that conversation.
    fn join(&mut self, a: usize, b: usize, sure: bool) {
        let mut number = None;
        for (one, other) in [(a, b), (b, a)] {
            let old = self.all[one].peer.replace(other).filter(|old| *old != other);
            if let Some(old) = old {
                self.all[old].peer = None;
                self.all[old].sure = false;
            } else {
                let own = self.all[one].conversation;
                number = Some(number.map_or(own, |number: u32| number.min(own)));
            }
            self.all[one].sure = sure;
        }
        let number = number.filter(|number| *number != 0).unwrap_or_else(|| {
            self.conversations += 1;
            self.conversations
        });
        self.all[a].conversation = number;
        self.all[b].conversation = number;
    }

    /// The queue pair that packets of this direction come from, once that is proven.
    pub(crate) fn source_qp(&self, index: usize) -> Option<Qpn> {
        let flow = &self.all[index];
        flow.key.source_qp.or_else(|| {
            let peer = flow.peer.filter(|_| flow.sure)?;
            Some(self.all[peer].key.dest_qp)
        })
    }

    /// The direction with this key, if it is known.
    pub(crate) fn find(&self, key: &FlowKey) -> Option<usize> {
        self.by_key.get(key).copied()
    }

    /// The direction whose requests a response on `index` with `psn` answers.
    pub(crate) fn answered_by(&mut self, index: usize, psn: Psn) -> Option<usize> {
        if let Some(peer) = self.all[index].peer {
            let covers = self.all[peer].requests.covers(psn);
            if covers {
                self.all[index].sure = true;
                self.all[peer].sure = true;
            }
            if covers || self.all[index].sure {
                return Some(peer);
            }
        }
        let found = self
            .opposite(index)
            .take(CANDIDATES)
            .filter(|&other| !self.all[other].sure && self.all[other].requests.covers(psn))
            .max_by_key(|&other| self.all[other].last_frame);
        match found {
            Some(other) => {
                self.join(index, other, true);
                Some(other)
            }
            None => self.all[index].peer,
        }
    }

    /// Connection management told that these two directions belong together, and which PSN the
    /// first packet of each has.
    pub(crate) fn connect(&mut self, a: (usize, Psn), b: (usize, Psn)) {
        self.join(a.0, b.0, true);
        for (index, psn) in [a, b] {
            self.all[index].requests.connect_at(psn);
        }
    }

    /// Makes room: the half that was silent for longest goes.
    fn forget_oldest(&mut self) {
        let mut last: Vec<u64> = self.all.iter().map(|flow| flow.last_frame).collect();
        let middle = last.len() / 2;
        let (_, &mut limit, _) = last.select_nth_unstable(middle);
        let mut kept = Vec::with_capacity(REMEMBERED_FLOWS);
        let mut moved = vec![None; self.all.len()];
        for (index, flow) in self.all.drain(..).enumerate() {
            if flow.last_frame >= limit {
                moved[index] = Some(kept.len());
                kept.push(flow);
            } else {
                self.forgotten.add(&flow.counts);
                self.forgotten_flows += 1;
            }
        }
        for flow in &mut kept {
            flow.peer = flow.peer.and_then(|peer| moved[peer]);
        }
        self.by_key = kept.iter().enumerate().map(|(index, flow)| (flow.key, index)).collect();
        self.all = kept;
        self.recent = [0; 2];
    }

    /// Both directions of each conversation together, in order.
    pub(crate) fn conversations(&self) -> Vec<ConversationSummary> {
        let mut found: BTreeMap<u32, ConversationSummary> = BTreeMap::new();
        for (index, flow) in self.all.iter().enumerate() {
            let key = flow.key;
            let source_qp = self.source_qp(index);
            found
                .entry(flow.conversation)
                .or_insert_with(|| ConversationSummary {
                    number: flow.conversation,
                    service: flow.service,
                    one: (key.source, source_qp),
                    other: (key.destination, Some(key.dest_qp)),
                    counts: Summary::default(),
                })
                .counts
                .add(&flow.counts);
        }
        found.into_values().collect()
    }
}
