//! A recording taken apart: frames, the directions they went in, and who belongs to whom.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::num::NonZeroU32;

use roxe_trace::{Direction, IcrcVerdict, Note, Observation, Outside, Seen, Tracer};
use roxe_wire::opcode::Service;
use roxe_wire::{
    Addressing, Body, DropReason, Frame, Headers, ICRC_LEN, IcrcCover, IpHeader, Opcode, Outline,
    Packet, Psn, Qpn, RawFrame,
};

/// A recorded frame, with all that is needed to play it.
#[derive(Clone, Debug)]
pub(super) struct Item {
    /// Its number in the recording.
    pub(super) number: u64,
    pub(super) opcode: &'static Opcode,
    pub(super) headers: Headers,
    /// From the BTH to the ICRC.
    pub(super) body: Vec<u8>,
    payload: (usize, usize),
    pub(super) addressing: Addressing,
    pub(super) ip: Ip,
    udp: [u8; 8],
    /// What the ICRC covers before the BTH.
    pub(super) cover: IcrcCover<'static>,
    pub(super) icrc: IcrcVerdict,
    /// The network doubled an earlier frame.
    pub(super) doubled: bool,
    /// The numbering starts anew here.
    pub(super) restarts: bool,
    /// It is not recorded: it stands for a frame that is missing.
    pub(super) made_up: bool,
}

/// The bytes of an IP header.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ip {
    V4([u8; 20]),
    V6([u8; 40]),
}

impl Ip {
    pub(super) const fn header(&self) -> IpHeader<'_> {
        match self {
            Self::V4(bytes) => IpHeader::V4(bytes),
            Self::V6(bytes) => IpHeader::V6(bytes),
        }
    }
}

impl Item {
    fn new(number: u64, frame: &Frame<'_>, packet: &Packet<'_>, icrc: IcrcVerdict) -> Self {
        let body = match frame.body {
            Body::Whole { first, second } => [first, second].concat(),
            Body::Elided { start, .. } => start.to_vec(),
        };
        let start = packet.opcode.headers_len.min(body.len());
        let end = (start + packet.payload.len()).min(body.len());
        Self {
            number,
            opcode: packet.opcode,
            headers: packet.headers,
            body,
            payload: (start, end),
            addressing: frame.received().addressing,
            ip: match frame.ip {
                IpHeader::V4(bytes) => Ip::V4(*bytes),
                IpHeader::V6(bytes) => Ip::V6(*bytes),
            },
            udp: frame.udp.emit(),
            cover: IcrcCover::new(frame.ip, frame.udp.emit()),
            icrc,
            doubled: false,
            restarts: false,
            made_up: false,
        }
    }

    /// A frame that is missing in the recording, between the same two as this one. Its payload is
    /// zeros.
    pub(super) fn made_up(&self, opcode: &'static Opcode, headers: Headers, len: usize) -> Self {
        let start = opcode.headers_len;
        let body = vec![0; start + len + usize::from(headers.bth.pad) + ICRC_LEN];
        let payload = (start, start + len);
        let icrc = IcrcVerdict::Good;
        Self { opcode, headers, body, payload, icrc, made_up: true, doubled: false, ..self.clone() }
    }

    /// A frame like this one that goes the other way.
    pub(super) fn back(&self) -> Self {
        let Addressing { source, destination, .. } = self.addressing;
        let addressing = Addressing { source: destination, destination: source, ..self.addressing };
        let mut ip = self.ip;
        match &mut ip {
            Ip::V4(bytes) => bytes[12..].rotate_left(4),
            Ip::V6(bytes) => bytes[8..].rotate_left(16),
        }
        Self { addressing, cover: IcrcCover::new(ip.header(), self.udp), ip, ..self.clone() }
    }

    pub(super) fn psn(&self) -> Psn {
        self.headers.bth.psn
    }

    pub(super) fn payload(&self) -> &[u8] {
        &self.body[self.payload.0..self.payload.1]
    }

    /// Whether its ICRC is known to be wrong.
    pub(super) const fn is_bad(&self) -> bool {
        matches!(self.icrc, IcrcVerdict::Bad { .. })
    }
}

/// What all frames of one direction have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    source: IpAddr,
    destination: IpAddr,
    service: u8,
    dest_qp: Qpn,
    source_qp: Option<Qpn>,
}

/// The frames of one direction.
#[derive(Debug)]
struct Frames {
    /// The conversation and the sender's queue pair, as they were known with the last frame.
    conversation: Option<NonZeroU32>,
    source_qp: Option<Qpn>,
    service: Service,
    items: Vec<Item>,
    cut: Option<u64>,
    order: usize,
}

/// One direction of a conversation.
#[derive(Debug)]
pub(super) struct Flow<'a> {
    /// The conversation as `roxe explain` numbers it.
    pub(super) conversation: Option<NonZeroU32>,
    pub(super) service: Service,
    pub(super) source: IpAddr,
    pub(super) destination: IpAddr,
    pub(super) dest_qp: Qpn,
    /// Where it comes from, if a packet or its conversation tells.
    pub(super) source_qp: Option<Qpn>,
    pub(super) items: &'a [Item],
    /// The first frame of which the recording kept only the beginning.
    pub(super) cut: Option<u64>,
    /// Which of several answers are its own cannot be told.
    pub(super) is_unclear: bool,
    order: usize,
}

/// Takes frames apart, one after the other.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    tracer: Tracer,
    observation: Observation,
    flows: BTreeMap<Key, Frames>,
    /// Frames to the port of RoCE that are no packets.
    pub(super) malformed: u64,
    /// Frames of which not even the headers are there.
    pub(super) cut: u64,
    /// Congestion notifications: no device here obeys them.
    pub(super) notifications: u64,
    /// Frames that are RoCE.
    pub(super) roce: u64,
    /// Frames of RoCE v1, which are not played.
    pub(super) roce_v1: u64,
}

impl Gathered {
    pub(super) fn add(&mut self, number: u64, raw: RawFrame<'_>) {
        let frame = match Frame::parse(raw) {
            Ok(frame) => frame,
            Err(DropReason::RoceV1) => {
                self.roce_v1 += 1;
                return;
            }
            Err(reason) if reason.is_other_traffic() || Outline::of(raw).is_none() => return,
            Err(reason) => return self.refused(reason, raw),
        };
        let packet = match Packet::parse(frame.body) {
            Ok(packet) => packet,
            Err(reason) => return self.refused(reason, raw),
        };
        self.roce += 1;
        let icrc = IcrcVerdict::of(&frame);
        let outside = Outside::of(&frame);
        let seen = Seen { number, time_ns: 0, outside: &outside, packet: &packet, icrc };
        self.tracer.observe(&seen, &mut self.observation);
        if packet.opcode.service == Service::Cnp {
            self.notifications += 1;
            return;
        }
        let bth = &packet.headers.bth;
        let key = Key {
            source: frame.ip.source(),
            destination: frame.ip.destination(),
            service: packet.opcode.service as u8,
            dest_qp: bth.dest_qp,
            source_qp: packet.headers.deth.map(|deth| deth.source_qp),
        };
        let order = self.flows.len();
        let flow = self.flows.entry(key).or_insert_with(|| Frames {
            conversation: None,
            source_qp: key.source_qp,
            service: packet.opcode.service,
            items: Vec::new(),
            cut: None,
            order,
        });
        flow.conversation = self.observation.conversation.or(flow.conversation);
        flow.source_qp = self.observation.source_qp.or(flow.source_qp);
        if matches!(frame.body, Body::Elided { .. }) {
            flow.cut = flow.cut.or(Some(number));
        }
        let notes = &self.observation.notes;
        flow.items.push(Item {
            doubled: notes.iter().any(|note| matches!(note, Note::Doubled { .. })),
            restarts: notes.contains(&Note::Restart),
            ..Item::new(number, &frame, &packet, icrc)
        });
    }

    /// A frame to the port of RoCE is no packet.
    fn refused(&mut self, reason: DropReason, raw: RawFrame<'_>) {
        let kept = raw.first.len() + raw.second.len();
        match reason {
            DropReason::Truncated { need, .. } if kept < raw.wire_len && need <= raw.wire_len => {
                self.cut += 1;
            }
            _ => self.malformed += 1,
        }
        self.roce += 1;
    }

    /// All directions, in the order of their first frames: with what is known of them at last.
    pub(super) fn flows(&self) -> Vec<Flow<'_>> {
        let key = |it: &Direction| Key {
            source: it.source,
            destination: it.destination,
            service: it.service as u8,
            dest_qp: it.dest_qp,
            source_qp: it.named,
        };
        let known: BTreeMap<Key, Direction> =
            self.tracer.directions().into_iter().map(|it| (key(&it), it)).collect();
        let flows = self.flows.iter().map(|(key, frames)| {
            let known = known.get(key);
            Flow {
                conversation: known.map(|known| known.conversation).or(frames.conversation),
                service: frames.service,
                source: key.source,
                destination: key.destination,
                dest_qp: key.dest_qp,
                source_qp: known.map_or(frames.source_qp, |known| known.source_qp),
                items: &frames.items,
                cut: frames.cut,
                is_unclear: known.is_some_and(|known| known.is_unclear),
                order: frames.order,
            }
        });
        let mut flows: Vec<Flow<'_>> = flows.collect();
        flows.sort_by_key(|flow| flow.order);
        flows
    }
}

/// Flows by conversation: there may be tens of thousands.
pub(super) struct ByConversation<'a>(BTreeMap<Option<NonZeroU32>, Vec<&'a Flow<'a>>>);

impl<'a> ByConversation<'a> {
    pub(super) fn new(flows: &'a [Flow<'a>]) -> Self {
        let mut all: BTreeMap<Option<NonZeroU32>, Vec<&Flow<'_>>> = BTreeMap::new();
        for flow in flows {
            all.entry(flow.conversation).or_default().push(flow);
        }
        Self(all)
    }

    /// The other direction of a connection. Its number is known for sure where an answer proved
    /// it.
    pub(super) fn peer_of(&self, flow: &Flow<'_>) -> Option<&'a Flow<'a>> {
        let opposite = |other: &&&Flow<'_>| {
            other.service == flow.service
                && (other.source, other.destination) == (flow.destination, flow.source)
        };
        let by_number = |other: &&&Flow<'_>| {
            flow.source_qp.is_none_or(|qp| qp == other.dest_qp)
                && other.source_qp.is_none_or(|qp| qp == flow.dest_qp)
        };
        self.0.get(&flow.conversation)?.iter().filter(opposite).find(by_number).copied()
    }
}
