//! A recorded conversation, played to one device of ours, whose answers are compared with the
//! recorded ones by meaning.
//!
//! A [`Recording`] takes frames; [`Recording::replay`] plays each side of each conversation. The
//! frames of a requester go to our responder, whose answers must say what the recorded answers say;
//! the recorded answers go to our requester, which does the same work and must send the same
//! requests, and the same ones again. Unreliable messages and datagrams are sent and delivered.
//! Everything a device needs is inferred: numbers, PSNs, path MTU, keys, memory and its contents,
//! rights, receives, the wait of an RNR NAK.
//!
//! | question | file |
//! |---|---|
//! | which frames reached the responder | `replay/reached.rs` |
//! | what was not captured | `replay/places.rs`, `responder/`, `requester/` |
//! | what memory, rights and receives it had | `replay/inferred.rs`, `memory.rs` |
//! | which answers the requester heard | `replay/heard.rs` |
//! | what is the same by meaning | `replay/meaning.rs` |
//! | which differences are known of another device | `replay/known.rs` |
//! | which numbers are changed in played frames, and why | `replay/rig.rs` |
//! | which words several connections change | `replay/shared.rs` |
//! | how time passes | `replay/requester.rs` |
//!
//! A recording is one observer's view: frames may be lost behind it or before it, and the two sides
//! do not see the same. What was lost out of sight is inferred, and its number is told. Nor need a
//! recording have all that passed by: it begins late, ends with answers outstanding, lacks frames.
//! An answer is missed only where the requester asks once more while it is answered around it; an
//! answer to what is not recorded is wrong only where the rest contradicts it. All frames of a
//! recording are held in memory.
//!
//! Not here: extended reliable connections and reliable datagrams, which the device does not know;
//! congestion notifications; outer headers; the pace of packets and the length of timers.

mod datagram;
mod heard;
mod inferred;
mod known;
mod likely;
mod meaning;
mod memory;
mod places;
mod reached;
mod record;
mod requester;
mod responder;
mod rig;
mod sequence;
mod shared;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::num::NonZeroU32;

use roxe_transport::conduct::Conduct;
use roxe_transport::qp_state::ServiceType;
use roxe_wire::opcode::{Operation, Position, Service};
use roxe_wire::{Mtu, Qpn, RawFrame};

use crate::peer::Peer;
use datagram::Datagrams;
use record::{ByConversation, Flow, Gathered, Item};
use shared::Shared;

/// Frames of a recording, in order.
#[derive(Debug, Default)]
pub struct Recording(Gathered);

/// Who of a conversation our device stood for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It answered recorded requests.
    Responder,
    /// It sent the requests, and got the recorded answers.
    Requester,
    /// It received recorded datagrams.
    Receiver,
    /// It sent the datagrams.
    Sender,
}

impl Role {
    /// One word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Responder => "responder",
            Self::Requester => "requester",
            Self::Receiver => "receiver",
            Self::Sender => "sender",
        }
    }

    /// Of the two ends, that of our device, and the peer's.
    fn ends<T>(self, requester: T, responder: T) -> (T, T) {
        match self {
            Self::Responder | Self::Receiver => (responder, requester),
            Self::Requester | Self::Sender => (requester, responder),
        }
    }

    /// The same of what one direction asks for.
    fn ends_of(self, flow: &Flow<'_>) -> (End, End) {
        self.ends((flow.source, flow.source_qp), (flow.destination, Some(flow.dest_qp)))
    }
}

/// Where what was recorded and what our device did say different things.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The frame.
    pub frame: u64,
    /// In what they differ: one word.
    pub what: &'static str,
    /// What was recorded.
    pub recorded: String,
    /// What ours did.
    pub ours: String,
    /// Whose habit it is, if it is one that is known.
    pub known: Option<Known>,
}

/// A device that is known to do what was recorded, and ours not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// The device.
    pub peer: Peer,
    /// What ours does, and why.
    pub why: &'static str,
}

/// A frame from which on a side could not be played, or not be compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotComparable {
    /// The frame.
    pub frame: u64,
    /// Why.
    pub why: String,
}

/// An address, and a queue pair if a frame tells.
type End = (IpAddr, Option<Qpn>);

/// One side of a conversation, after it was played.
#[derive(Clone, Debug)]
pub struct Side {
    /// The conversation, counted from 1 as `roxe explain` does.
    pub conversation: Option<NonZeroU32>,
    /// Its service.
    pub service: Service,
    /// Whom our device stood for.
    pub role: Role,
    /// Its address, and its queue pair if a frame tells.
    pub own: (IpAddr, Option<Qpn>),
    /// The other side's.
    pub peer: (IpAddr, Option<Qpn>),
    /// Frames played to our device; of datagrams, frames it had to send.
    pub played: u64,
    /// Pairs of packets that were compared.
    pub compared: u64,
    /// Recorded frames that are taken not to have reached this side.
    pub lost: u64,
    /// Acknowledgements of ours that the recorded side gave together with a later one.
    pub coalesced: u64,
    /// Packets that ours sent again and the recorded side did not.
    pub extra: u64,
    /// Packets that the recorded side sent again though they were acknowledged.
    pub needless: u64,
    /// Answers of ours that are missing in the recording, and that nobody missed: it lost them, or
    /// ended before.
    pub unseen: u64,
    /// Recorded answers to requests that are missing in the recording.
    pub uncaptured: u64,
    /// Requests that belong to what began before the recording: not played.
    pub older: u64,
    /// How often packets are missing in the recording, so that ours had to begin anew.
    pub gaps: u64,
    /// How often memory had changed since this connection last wrote or read it: by the recorded
    /// application, or by another connection.
    pub changed: u64,
    /// Messages that ours delivered or completed.
    pub delivered: u64,
    /// Messages that ours dropped, as it should.
    pub dropped: u64,
    /// All differences, in the order of frames.
    pub differences: Vec<Difference>,
    /// What could not be compared.
    pub not_comparable: Vec<NotComparable>,
    /// Why a queue pair of ours ended in it, in a sentence each.
    pub why: Vec<String>,
    /// Receives posted.
    receives: u64,
}

impl Side {
    fn new(connection: &Connection<'_>, role: Role) -> Self {
        let requester = (connection.source, connection.source_qp);
        let responder = (connection.destination, Some(connection.destination_qp));
        let service = connection.service.on_the_wire();
        Self::empty(connection.conversation, service, role, role.ends(requester, responder))
    }

    fn of_datagrams(datagrams: &Datagrams<'_>, role: Role) -> Self {
        let ends = role.ends(datagrams.source, datagrams.destination);
        Self::empty(datagrams.conversation, Service::Ud, role, ends)
    }

    const fn empty(
        conversation: Option<NonZeroU32>,
        service: Service,
        role: Role,
        (own, peer): (End, End),
    ) -> Self {
        Self {
            conversation,
            service,
            role,
            own,
            peer,
            played: 0,
            compared: 0,
            lost: 0,
            coalesced: 0,
            extra: 0,
            needless: 0,
            unseen: 0,
            uncaptured: 0,
            older: 0,
            gaps: 0,
            changed: 0,
            delivered: 0,
            dropped: 0,
            differences: Vec::new(),
            not_comparable: Vec::new(),
            why: Vec::new(),
            receives: 0,
        }
    }

    fn differs(&mut self, frame: u64, what: &'static str, recorded: String, ours: String) {
        self.differences.push(Difference { frame, what, recorded, ours, known: None });
    }

    fn cut_at(&mut self, frame: Option<u64>) {
        if let Some(frame) = frame {
            self.not_comparable(frame, "the recording kept only its beginning".to_owned());
        }
    }

    fn not_comparable(&mut self, frame: u64, why: String) {
        self.not_comparable.push(NotComparable { frame, why });
    }
}

/// What replaying a recording gave.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Each side that was played.
    pub sides: Vec<Side>,
    /// RoCEv2 frames in the recording.
    pub roce: u64,
    /// Frames of RoCE v1, which were not played.
    pub roce_v1: u64,
    /// Frames to the port of RoCE that are no packets: every receiver drops them.
    pub malformed: u64,
    /// Frames of which the recording kept too little to know whose they are.
    pub cut: u64,
    /// Congestion notifications, which were not played.
    pub notifications: u64,
}

impl Report {
    /// How many differences there are.
    pub fn differences(&self) -> usize {
        self.sides.iter().map(|side| side.differences.len()).sum()
    }
}

/// Requests of one direction of a connection, and what came back.
#[derive(Debug)]
struct Connection<'a> {
    conversation: Option<NonZeroU32>,
    service: ServiceType,
    /// How our device behaves.
    conduct: Conduct,
    /// Words that other connections of the recording change.
    shared: &'a Shared,
    /// The requester.
    source: IpAddr,
    source_qp: Option<Qpn>,
    /// The responder.
    destination: IpAddr,
    destination_qp: Qpn,
    path_mtu: Mtu,
    requests: &'a [Item],
    answers: &'a [Item],
}

impl Recording {
    /// Takes the next frame; numbers ascend.
    pub fn add(&mut self, number: u64, frame: RawFrame<'_>) {
        self.0.add(number, frame);
    }

    /// Plays every side of every conversation to a device of ours.
    pub fn replay(&self) -> Report {
        let mut report = self.replay_as(Peer::Roxe);
        known::mark(self, &mut report);
        report
    }

    /// The same to a device that behaves like another one.
    pub fn replay_as(&self, peer: Peer) -> Report {
        Report {
            sides: self.sides(peer.conduct(), None),
            roce: self.0.roce,
            roce_v1: self.0.roce_v1,
            malformed: self.0.malformed,
            cut: self.0.cut,
            notifications: self.0.notifications,
        }
    }

    /// Plays the sides of these conversations, or all of them.
    fn sides(&self, conduct: Conduct, only: Option<&BTreeSet<Option<NonZeroU32>>>) -> Vec<Side> {
        let mut flows = self.0.flows();
        let shared = Shared::new(&flows);
        flows.retain(|flow| only.is_none_or(|only| only.contains(&flow.conversation)));
        let by_conversation = ByConversation::new(&flows);
        let mut sides = Vec::new();
        for flow in &flows {
            match flow.service {
                Service::Rc | Service::Uc if flow.is_unclear => unclear(flow, &mut sides),
                Service::Rc | Service::Uc => {
                    connected(flow, &by_conversation, &shared, conduct, &mut sides);
                }
                _ => {}
            }
        }
        play_datagrams(&flows, &mut sides);
        for flow in flows.iter().filter(|flow| !is_played(flow.service)) {
            let role = Role::Responder;
            let mut side = Side::empty(flow.conversation, flow.service, role, role.ends_of(flow));
            let number = flow.items.first().map_or(0, |item| item.number);
            side.not_comparable(number, format!("the device has no {}", flow.service.name()));
            sides.push(side);
        }
        for side in &mut sides {
            side.differences.sort_by_key(|difference| difference.frame);
        }
        sides.sort_by_key(|side| side.conversation);
        sides
    }
}

const fn is_played(service: Service) -> bool {
    matches!(service, Service::Rc | Service::Uc | Service::Ud)
}

/// Neither side of what one direction asks for can be judged: there are answers that may be for it,
/// or for another one between the same hosts that looks the same.
fn unclear(flow: &Flow<'_>, sides: &mut Vec<Side>) {
    let Some(first) = flow.items.iter().find(|item| item.opcode.operation.is_request()) else {
        return;
    };
    for role in [Role::Responder, Role::Requester] {
        let mut side = Side::empty(flow.conversation, flow.service, role, role.ends_of(flow));
        let why = "which answers are its own cannot be told: other connections between these hosts \
                   have the same PSNs";
        side.not_comparable(first.number, why.to_owned());
        sides.push(side);
    }
}

/// Plays both sides of what one direction asks for.
fn connected(
    flow: &Flow<'_>,
    flows: &ByConversation<'_>,
    shared: &Shared,
    conduct: Conduct,
    sides: &mut Vec<Side>,
) {
    let is_request = |item: &Item| item.opcode.operation.is_request() && !item.is_bad();
    if !flow.items.iter().any(is_request) {
        return;
    }
    let back = flows.peer_of(flow);
    let service = if flow.service == Service::Uc { ServiceType::Uc } else { ServiceType::Rc };
    let connection = Connection {
        conversation: flow.conversation,
        service,
        conduct,
        shared,
        source: flow.source,
        source_qp: flow.source_qp.or_else(|| back.map(|back| back.dest_qp)),
        destination: flow.destination,
        destination_qp: flow.dest_qp,
        path_mtu: path_mtu(flow, back),
        requests: flow.items,
        answers: back.map_or(&[], |back| back.items),
    };
    let cut = [Some(flow), back].into_iter().flatten().filter_map(|flow| flow.cut).min();
    let played = Connection {
        requests: before(connection.requests, cut),
        answers: before(connection.answers, cut),
        ..connection
    };
    for play in [responder::play, requester::play] {
        let mut side = play(&played);
        side.cut_at(cut);
        sides.push(side);
    }
}

/// The frames before a frame.
fn before(items: &[Item], frame: Option<u64>) -> &[Item] {
    let end = frame.map_or(items.len(), |frame| items.partition_point(|item| item.number < frame));
    &items[..end]
}

/// The path MTU of a connection: what a packet in the middle of a message carries, or the largest
/// there is, which then changes nothing.
fn path_mtu(flow: &Flow<'_>, back: Option<&Flow<'_>>) -> Mtu {
    let middle = |item: &&Item| {
        matches!(item.opcode.position, Position::First | Position::Middle) && !item.is_bad()
    };
    let items = flow.items.iter().chain(back.map_or(&[][..], |back| back.items));
    items
        .filter(middle)
        .find_map(|item| Mtu::from_bytes(item.payload().len() as u32))
        .unwrap_or(Mtu::B4096)
}

/// Plays datagrams: all that one queue pair sent, and all that one got.
fn play_datagrams(flows: &[Flow<'_>], sides: &mut Vec<Side>) {
    let mut sent: BTreeMap<(IpAddr, Option<Qpn>), Datagrams<'_>> = BTreeMap::new();
    let mut got: BTreeMap<(IpAddr, Option<Qpn>), Datagrams<'_>> = BTreeMap::new();
    for flow in flows.iter().filter(|flow| flow.service == Service::Ud) {
        let source = (flow.source, flow.source_qp);
        let destination = (flow.destination, Some(flow.dest_qp));
        for (map, key) in [(&mut sent, source), (&mut got, destination)] {
            let datagrams = map.entry(key).or_insert_with(|| Datagrams {
                conversation: flow.conversation,
                source,
                destination,
                items: Vec::new(),
                cut: None,
            });
            datagrams.cut = [datagrams.cut, flow.cut].into_iter().flatten().min();
            let is_send = |item: &&Item| item.opcode.operation == Operation::Send;
            datagrams.items.extend(before(flow.items, flow.cut).iter().filter(is_send));
        }
    }
    for datagrams in sent.values_mut().chain(got.values_mut()) {
        datagrams.items.sort_by_key(|item| item.number);
    }
    let any = |datagrams: &&Datagrams<'_>| !datagrams.items.is_empty();
    sides.extend(got.values().filter(any).map(datagram::receive));
    sides.extend(sent.values().filter(any).map(datagram::send));
}
