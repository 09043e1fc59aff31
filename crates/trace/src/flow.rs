//! Who talks to whom: packets carry only their destination's queue pair, so the two directions of a
//! connection have to be found and joined.

mod halves;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::num::NonZeroU32;

use roxe_wire::opcode::Service;
use roxe_wire::{Packet, Psn, Qpn};

use crate::arrival::RecentFrames;
use crate::reaction::Reaction;
use crate::requests::{Fit, Requests};
use crate::{ConversationSummary, Direction, Ending, Seen, Summary, younger_half};
use halves::{Halves, Place};

/// How many directions are remembered at once. Beyond it the ones silent for longest go.
const REMEMBERED_FLOWS: usize = 16_384;

/// How many directions are found without a search; captures are mostly a few dialogues.
const RECENT_FLOWS: usize = 512;

/// How many directions may be looked at to find the other halves of new ones: so many at once …
const LOOKS: u32 = 1 << 22;

/// … and so many more with each frame, so that no capture takes more than linear time.
const LOOKS_PER_FRAME: u32 = 32;

/// So many rounds prove that two directions belong together: requests sent, each after the round
/// before, and an answer to each that none but them asks for. Fewer may be chance.
const ROUNDS: u8 = 3;

/// After so many frames of two directions, no others will come between their hosts of which all
/// requests went by before the capture.
const ALONE: u64 = 16;

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

impl FlowKey {
    /// Of a frame. A CNP concerns what the peer sends: it belongs to the connection of its
    /// destination.
    pub(crate) fn of(seen: &Seen<'_>) -> Self {
        let service = seen.packet.opcode.service;
        Self {
            source: seen.outside.source,
            destination: seen.outside.destination,
            service: if service == Service::Cnp { Service::Rc } else { service } as u8,
            dest_qp: seen.packet.headers.bth.dest_qp,
            source_qp: seen.packet.headers.deth.map(|deth| deth.source_qp),
        }
    }

    /// Where the flow is looked for first: mostly another place for another flow.
    fn place(&self) -> usize {
        let last = |address: IpAddr| match address {
            IpAddr::V4(v4) => v4.octets()[3],
            IpAddr::V6(v6) => v6.octets()[15],
        };
        let source_qp = self.source_qp.map_or(0, Qpn::get);
        (self.dest_qp.get() ^ source_qp ^ u32::from(last(self.destination)) << 7) as usize
            % RECENT_FLOWS
    }
}

/// One direction.
#[derive(Debug)]
pub(crate) struct Flow {
    pub(crate) key: FlowKey,
    pub(crate) service: Service,
    /// The conversation, counted from 1.
    pub(crate) conversation: NonZeroU32,
    /// The number that its last frame was shown with …
    shown: Option<NonZeroU32>,
    /// … and those before that were others.
    shown_before: BTreeSet<NonZeroU32>,
    /// The other direction.
    pub(crate) peer: Option<usize>,
    /// How many rounds speak for that: [`ROUNDS`] prove it, as connection management does. Until
    /// then, what speaks against it makes them fewer, or none.
    rounds: u8,
    /// The frame of the answer in the last of them.
    last_round: u64,
    /// The PSN of its last answer to nothing that was seen, if there was one.
    stray: Option<Psn>,
    pub(crate) requests: Requests,
    pub(crate) counts: Summary,
    pub(crate) recent: RecentFrames,
    /// Of one whose packets may be marked, or whose sender was told to slow down.
    pub(crate) reaction: Option<Box<Reaction>>,
    source_port: u16,
    last_frame: u64,
    /// Where it is found by PSN while its other half is looked for.
    found_at: Option<Place>,
}

impl Flow {
    /// The number that a frame of this direction is shown with: the conversation as it is known by
    /// then.
    pub(crate) fn show(&mut self) -> NonZeroU32 {
        let before = self.shown.replace(self.conversation);
        self.shown_before.extend(before.filter(|before| *before != self.conversation));
        self.conversation
    }

    /// Whether its other half is proven.
    const fn is_sure(&self) -> bool {
        self.rounds >= ROUNDS
    }

    /// Whether its other half is still looked for. Datagrams name it.
    const fn is_open(&self) -> bool {
        self.key.source_qp.is_none() && !self.is_sure()
    }
}

/// All directions, by key.
#[derive(Debug)]
pub(crate) struct Flows {
    by_key: BTreeMap<FlowKey, usize>,
    /// The connected ones whose other half is not proven.
    open: BTreeMap<FlowKey, usize>,
    /// The same, by what else is known of them.
    halves: Halves,
    /// How many more of them may be looked at.
    looks: u32,
    all: Vec<Flow>,
    /// Where those used last are, each at a place that its key tells.
    recent: [usize; RECENT_FLOWS],
    /// How many there were.
    conversations: u32,
    /// The counts of conversations that are no longer remembered.
    pub(crate) forgotten: Summary,
    pub(crate) forgotten_flows: u64,
}

/// What is known of the direction that a response answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answered {
    /// This one, proven.
    By(usize),
    /// One of several, or one whose part in it is not proven: nothing tells yet.
    Unclear,
    /// None that was seen.
    Unseen,
}

impl Default for Flows {
    fn default() -> Self {
        Self {
            by_key: BTreeMap::new(),
            open: BTreeMap::new(),
            halves: Halves::default(),
            looks: LOOKS,
            all: Vec::new(),
            recent: [0; RECENT_FLOWS],
            conversations: 0,
            forgotten: Summary::default(),
            forgotten_flows: 0,
        }
    }
}

impl Flows {
    /// How many directions are remembered.
    pub(crate) const fn len(&self) -> usize {
        self.all.len()
    }

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

    /// The direction of a frame; a new one if need be.
    pub(crate) fn find_or_add(&mut self, key: FlowKey, seen: &Seen<'_>) -> usize {
        let service = seen.packet.opcode.service;
        let index = self.find_or_add_as(key, service, seen.outside.source_port, seen.number);
        if service != Service::Cnp {
            // Perhaps a CNP was seen first.
            self.all[index].service = service;
        }
        index
    }

    /// A direction of a connection of which nothing but its handshake was seen, in frame `frame`.
    pub(crate) fn announce(&mut self, key: FlowKey, frame: u64) {
        self.find_or_add_as(key, Service::Rc, 0, frame);
    }

    fn find_or_add_as(
        &mut self,
        key: FlowKey,
        service: Service,
        source_port: u16,
        frame: u64,
    ) -> usize {
        self.looks = LOOKS.min(self.looks + LOOKS_PER_FRAME);
        let place = key.place();
        let recent = self.recent[place];
        if let Some(flow) = self.all.get_mut(recent).filter(|flow| flow.key == key) {
            flow.last_frame = frame;
            return recent;
        }
        let index = match self.by_key.get(&key) {
            Some(&index) => index,
            None => self.add(key, service, source_port),
        };
        self.all[index].last_frame = frame;
        self.recent[place] = index;
        index
    }

    fn add(&mut self, key: FlowKey, service: Service, source_port: u16) -> usize {
        if self.all.len() >= REMEMBERED_FLOWS {
            self.forget_oldest();
        }
        // A CNP may come from elsewhere on the way of what it concerns: a guess would be a bad one.
        let peer = self.guess_peer(key, source_port).filter(|_| service != Service::Cnp);
        let conversation = match peer {
            Some(peer) => self.all[peer].conversation,
            None => self.new_conversation(),
        };
        let index = self.all.len();
        self.all.push(Flow {
            key,
            service,
            conversation,
            shown: None,
            shown_before: BTreeSet::new(),
            peer: None,
            rounds: 0,
            last_round: 0,
            stray: None,
            requests: Requests::default(),
            counts: Summary::default(),
            recent: RecentFrames::default(),
            reaction: None,
            source_port,
            last_frame: 0,
            found_at: None,
        });
        self.by_key.insert(key, index);
        self.set_rounds(index, 0);
        if let Some(peer) = peer {
            self.join(index, peer, 0);
        }
        index
    }

    fn new_conversation(&mut self) -> NonZeroU32 {
        let number = NonZeroU32::MIN.saturating_add(self.conversations);
        self.conversations += 1;
        number
    }

    /// Those opposite to the direction `index`, with the same addresses and service, whose other
    /// half is not proven either and whose requests may have this PSN, with what `judge` says of
    /// each, where it says something. `None` when there are too many to look at them all.
    fn opposite<T>(
        &mut self,
        index: usize,
        psn: Psn,
        judge: impl Fn(&Flow) -> Option<T>,
    ) -> Option<Vec<(usize, T)>> {
        let places = self.halves.opposite(&self.all[index].key, psn);
        // Half a look finds nothing, so it is saved up for a whole one.
        let most: usize = places.iter().flatten().map(|place| place.len()).sum();
        self.looks = self.looks.checked_sub(u32::try_from(most).unwrap_or(u32::MAX))?;
        let others = places.into_iter().flatten().flatten().filter(|other| **other != index);
        Some(others.filter_map(|&other| Some((other, judge(&self.all[other])?))).collect())
    }

    /// The requests of a direction are others than before, or more is known of its other half: it
    /// is found where it belongs.
    pub(crate) fn settle(&mut self, index: usize) {
        let flow = &mut self.all[index];
        let reach = flow.requests.fits_within().filter(|_| flow.is_open());
        let place = reach.map(|(first, count)| halves::place(first, count));
        let is_found = match (flow.found_at, place) {
            (Some(at), Some(place)) => halves::is_within(place, at),
            (at, place) => at == place,
        };
        if is_found {
            return;
        }
        if let Some(at) = flow.found_at {
            self.halves.remove(&flow.key, at, index);
        }
        if let Some(place) = place {
            self.halves.insert(&flow.key, place, index);
        }
        flow.found_at = place;
    }

    /// The other direction as it most likely is, before any response proves it: for datagrams both
    /// queue pairs are known; a connection mostly has one UDP source port for both directions; and
    /// a single candidate is a good one.
    fn guess_peer(&self, key: FlowKey, source_port: u16) -> Option<usize> {
        if let Some(source_qp) = key.source_qp {
            return self.find(&FlowKey {
                source: key.destination,
                destination: key.source,
                dest_qp: source_qp,
                source_qp: Some(key.dest_qp),
                ..key
            });
        }
        self.halves.guess(&key, source_port)
    }

    /// Takes two directions for the two of one connection, as so many rounds say. Whoever was taken
    /// for the other half of one of them before keeps the number of that conversation.
    fn join(&mut self, a: usize, b: usize, rounds: u8) {
        let mut number = None;
        for (one, other) in [(a, b), (b, a)] {
            let old = self.all[one].peer.replace(other).filter(|old| *old != other);
            if let Some(old) = old {
                self.all[old].peer = None;
                self.set_rounds(old, 0);
            } else {
                let own = self.all[one].conversation;
                number = Some(number.map_or(own, |number: NonZeroU32| number.min(own)));
            }
            self.set_rounds(one, rounds);
        }
        let number = number.unwrap_or_else(|| self.new_conversation());
        self.all[a].conversation = number;
        self.all[b].conversation = number;
    }

    /// So many rounds speak for it that this direction and its peer belong together.
    fn set_rounds(&mut self, index: usize, rounds: u8) {
        let flow = &mut self.all[index];
        flow.rounds = rounds;
        if flow.is_open() {
            self.open.insert(flow.key, index);
        } else {
            self.open.remove(&flow.key);
        }
        let alone = flow.is_open() && flow.peer.is_none();
        self.halves.set_alone(&flow.key, flow.source_port, index, alone);
        self.settle(index);
    }

    /// This direction, and what is taken for its other half.
    fn both(&self, index: usize) -> impl Iterator<Item = usize> + use<> {
        [Some(index), self.all[index].peer].into_iter().flatten()
    }

    /// The queue pair that packets of this direction come from, once something speaks for it.
    pub(crate) fn source_qp(&self, index: usize) -> Option<Qpn> {
        let flow = &self.all[index];
        flow.key.source_qp.or_else(|| {
            let peer = flow.peer.filter(|_| flow.rounds > 0)?;
            Some(self.all[peer].key.dest_qp)
        })
    }

    /// The direction with this key, if it is known.
    pub(crate) fn find(&self, key: &FlowKey) -> Option<usize> {
        self.by_key.get(key).copied()
    }

    /// The direction whose requests `response`, on `index`, answers. That only one of those seen
    /// has sent that PSN, and asks for that kind of answer, speaks for it; several rounds of it
    /// prove it. Anything less does not: many queue pairs begin with the same PSN, and a capture
    /// begins where requests were sent already.
    pub(crate) fn answered_by(
        &mut self,
        index: usize,
        response: &Packet<'_>,
        frame: u64,
    ) -> Answered {
        let flow = &self.all[index];
        if let Some(peer) = flow.peer.filter(|_| flow.is_sure()) {
            return Answered::By(peer);
        }
        let answered = self.likely_answered_by(index, response, frame);
        if answered == Answered::Unseen {
            self.all[index].stray = Some(response.headers.bth.psn);
        }
        answered
    }

    /// The same where it is not sure yet.
    fn likely_answered_by(&mut self, index: usize, response: &Packet<'_>, frame: u64) -> Answered {
        let flow = &self.all[index];
        let psn = response.headers.bth.psn;
        let likely = flow.peer.filter(|_| flow.rounds > 0);
        let (is_new_round, fits) = likely.map_or((true, Fit::No), |peer| {
            let requests = &self.all[peer].requests;
            let sent = requests.get(psn);
            (sent.is_none_or(|sent| sent.frame > flow.last_round), requests.fit(response))
        });
        if let (Some(peer), false, Fit::Asks) = (likely, is_new_round, fits) {
            return Answered::By(peer);
        }
        let judge = |flow: &Flow| {
            let fit = flow.requests.fit(response);
            // What others answer is no candidate unless it asks for just this.
            let is_taken = flow.rounds > 0 && flow.peer != Some(index);
            let is_candidate = fit == Fit::Asks || fit != Fit::No && !is_taken;
            is_candidate.then_some((fit, is_taken))
        };
        let Some(found) = self.opposite(index, psn, judge) else {
            return likely.map_or(Answered::Unclear, Answered::By);
        };
        if let Some(peer) = likely {
            return match found[..] {
                [(only, (Fit::Asks, _))] if only == peer => {
                    self.win_round(index, peer, frame);
                    Answered::By(peer)
                }
                [(_, (Fit::Asks, _))] => {
                    self.lose_round(index);
                    Answered::Unclear
                }
                [] | [_] => Answered::By(peer),
                _ if found.iter().any(|it| it.0 == peer) => Answered::By(peer),
                _ => Answered::Unclear,
            };
        }
        let mut free = found.iter().filter(|it| it.1 == (Fit::Asks, false));
        if let (Some(&(only, _)), None) = (free.next(), free.next()) {
            // The first round needs no more: whatever contradicts it ends it.
            self.win_round(index, only, frame);
            return Answered::By(only);
        }
        match found[..] {
            [(taken, (Fit::Asks, _))] => {
                self.lose_round(taken);
                Answered::Unclear
            }
            [(only, (Fit::Perhaps, _))] if self.is_alone(index, only) => {
                self.win_round(index, only, frame);
                Answered::By(only)
            }
            // The wrong kind of answer is one nevertheless.
            [] => match self.all[index].peer {
                Some(peer)
                    if self.is_alone(index, peer) && self.all[peer].requests.get(psn).is_some() =>
                {
                    Answered::By(peer)
                }
                _ => Answered::Unseen,
            },
            _ if found.iter().all(|it| it.1.0 == Fit::TooOld) => Answered::Unseen,
            _ => Answered::Unclear,
        }
    }

    /// An answer speaks for it that these two directions belong together.
    fn win_round(&mut self, index: usize, peer: usize, frame: u64) {
        if self.all[index].rounds == 0 {
            self.join(index, peer, 0);
            if let Some(psn) = self.all[index].stray {
                self.all[peer].requests.answered_ahead(psn);
            }
        }
        for one in [index, peer] {
            self.all[one].last_round = frame;
            self.set_rounds(one, self.all[one].rounds + 1);
        }
    }

    /// An answer speaks against it that this direction and what is taken for its other half belong
    /// together.
    fn lose_round(&mut self, index: usize) {
        if self.all[index].rounds == 1 {
            return self.doubt(index);
        }
        for one in self.both(index) {
            self.set_rounds(one, self.all[one].rounds.saturating_sub(1));
        }
    }

    /// This direction and what is taken for its other half contradict each other: what was learned
    /// from that is forgotten.
    pub(crate) fn doubt(&mut self, index: usize) {
        for one in self.both(index) {
            self.set_rounds(one, 0);
            self.all[one].requests.forget_answers();
            self.settle(one);
        }
    }

    /// A sure pair has contradicted itself by `response`, on `index`. Tells whether it answers
    /// another direction instead, whose other half is not proven: then the pair is no longer sure.
    pub(crate) fn reconsider(&mut self, index: usize, response: &Packet<'_>) -> bool {
        let asks = |flow: &Flow| {
            (flow.rounds == 0 && flow.requests.fit(response) == Fit::Asks).then_some(())
        };
        let is_other = self
            .opposite(index, response.headers.bth.psn, asks)
            .is_some_and(|found| !found.is_empty());
        if is_other {
            self.doubt(index);
        }
        is_other
    }

    /// Whether a contradiction between these two directions is a broken rule, and not a sign that
    /// they do not belong together: that is proven, or there are no others, and the capture has
    /// the beginning of the connection or at least two rounds of it.
    pub(crate) fn is_trusted(&self, index: usize, peer: usize) -> bool {
        let (flow, asked) = (&self.all[index], &self.all[peer]);
        let has_beginning = flow.stray.is_none() && asked.requests.has_beginning();
        let frames = flow.counts.frames + asked.counts.frames;
        flow.is_sure()
            || has_beginning && flow.rounds > 1
            || (has_beginning || flow.rounds > 1 || frames > ALONE) && self.is_alone(index, peer)
    }

    /// Whether between the hosts of these two directions no others wait for their other half.
    fn is_alone(&self, index: usize, peer: usize) -> bool {
        [index, peer].into_iter().all(|one| {
            let low = FlowKey { dest_qp: Qpn::new(0), ..self.all[one].key };
            let high = FlowKey { dest_qp: Qpn::MULTICAST, ..low };
            self.open.range(low..=high).all(|(_, &other)| other == index || other == peer)
        })
    }

    /// Connection management told that these two directions belong together, and which PSN the
    /// first packet of each has.
    pub(crate) fn connect(&mut self, a: (usize, Psn), b: (usize, Psn)) {
        self.join(a.0, b.0, ROUNDS);
        for (index, psn) in [a, b] {
            self.all[index].requests.connect_at(psn);
            self.settle(index);
        }
    }

    /// Makes room: the half that was silent for longest goes.
    fn forget_oldest(&mut self) {
        let limit = younger_half(self.all.iter().map(|flow| flow.last_frame));
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
            flow.rounds *= u8::from(flow.peer.is_some());
        }
        self.by_key = kept.iter().enumerate().map(|(index, flow)| (flow.key, index)).collect();
        (self.open, self.halves) = (BTreeMap::new(), Halves::default());
        self.all = kept;
        self.recent = [0; RECENT_FLOWS];
        for index in 0..self.all.len() {
            self.all[index].found_at = None;
            self.set_rounds(index, self.all[index].rounds);
        }
    }

    /// From and to whom answers were seen of which nobody knows what they answer.
    fn unplaced(&self) -> BTreeSet<(IpAddr, IpAddr)> {
        let unplaced = |flow: &&Flow| flow.counts.unclear_answers > 0 || flow.stray.is_some();
        let flows = self.all.iter().filter(unplaced);
        flows.map(|it| (it.key.source, it.key.destination)).collect()
    }

    /// What is known of each direction by now.
    pub(crate) fn directions(&self) -> Vec<Direction> {
        let unplaced = self.unplaced();
        let told = |(index, flow): (usize, &Flow)| {
            let FlowKey { source, destination, dest_qp, source_qp, .. } = flow.key;
            let is_open = flow.is_open() && flow.rounds == 0;
            let alone = |peer| self.is_alone(index, peer);
            Direction {
                source,
                destination,
                service: flow.service,
                dest_qp,
                named: source_qp,
                source_qp: self.source_qp(index),
                conversation: flow.conversation,
                is_unclear: is_open
                    && unplaced.contains(&(destination, source))
                    && !alone(flow.peer.unwrap_or(index)),
            }
        };
        self.all.iter().enumerate().map(told).collect()
    }

    /// Both directions of each conversation together, in order, of a capture that ends at `end_ns`.
    pub(crate) fn conversations(&self, end_ns: u64) -> Vec<ConversationSummary> {
        let mut found: BTreeMap<NonZeroU32, ConversationSummary> = BTreeMap::new();
        let unplaced = self.unplaced();
        for (index, flow) in self.all.iter().enumerate() {
            let key = flow.key;
            let source_qp = self.source_qp(index);
            let conversation =
                found.entry(flow.conversation).or_insert_with(|| ConversationSummary {
                    number: flow.conversation,
                    also: BTreeSet::new(),
                    service: flow.service,
                    one: (key.source, source_qp),
                    other: (key.destination, Some(key.dest_qp)),
                    counts: Summary::default(),
                    endings: Vec::new(),
                });
            conversation.counts.add(&flow.counts);
            let shown = flow.shown.iter().chain(&flow.shown_before);
            conversation.also.extend(shown.filter(|shown| **shown != flow.conversation));
            let is_told = |ending: &Ending| {
                !matches!(ending, Ending::Unanswered { .. })
                    || !unplaced.contains(&(key.destination, key.source))
            };
            conversation.endings.extend(flow.requests.ending(flow.service, end_ns).filter(is_told));
        }
        found.into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    /// All directions between two hosts whose other half is unknown and that may have a PSN are
    /// looked at for each answer with it: so many may be there that this must end.
    #[test]
    fn looking_for_the_other_half_takes_linear_time() {
        let [a, b] = [1, 2].map(|host| IpAddr::V4(Ipv4Addr::new(192, 0, 2, host)));
        let mut flows = Flows::default();
        let add = |flows: &mut Flows, number: u32| {
            let (source, destination) = if number < 8_000 { (a, b) } else { (b, a) };
            let dest_qp = Qpn::new(number + 2);
            let service = Service::Rc;
            let key =
                FlowKey { source, destination, service: service as u8, dest_qp, source_qp: None };
            flows.find_or_add_as(key, service, 7, number.into())
        };
        for number in 0..8_000 {
            let index = add(&mut flows, number);
            flows.get_mut(index).requests.connect_at(Psn::new(1_000 + number % 100));
            flows.settle(index);
        }
        let (mut spent, mut whole) = (0, 0);
        for number in 8_000..16_000_u32 {
            let index = add(&mut flows, number);
            let before = flows.looks;
            let found = flows.opposite(index, Psn::new(999), |_| Some(()));
            spent += u64::from(before - flows.looks);
            whole += usize::from(found.is_some_and(|found| found.len() == 8_000));
            let far = flows.opposite(index, Psn::new(1 << 20), |_| Some(()));
            assert!(far.is_some_and(|far| far.is_empty()), "where none is, it costs nothing");
        }
        assert!(spent <= u64::from(LOOKS + 16_000 * LOOKS_PER_FRAME), "{spent}");
        assert!(whole > 100 && whole < 8_000, "some were looked at: {whole}");
    }
}
