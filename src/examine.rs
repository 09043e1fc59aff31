//! A capture taken apart: each frame parsed, its ICRC checked, its place in a conversation found.
//!
//! `explain` and `check` both look at captures through this, in two steps that two threads share:
//! a [`Dissector`] reads frames into a [`Batch`], each by itself; an [`Examiner`] follows the
//! conversations in it. The batch then holds everything that is printed about them.

use std::num::NonZeroU32;

use roxe_net::capture_file::{Record, Timestamp};
use roxe_trace::{Finding, IcrcVerdict, Note, Observation, Outside, Rule, Seen, Tracer};
use roxe_wire::mad::{Mad, MadHeader};
use roxe_wire::opcode::Service;
use roxe_wire::{DropReason, FieldVisitor, Frame, Opcode, Outline, Packet, Payload, Qpn, VlanTag};

/// One RoCE frame: everything that is printed about it but for what [`Batch`] keeps. It goes from
/// one core to the other, so it is as small as it can be easily.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    /// Its place in the file, from 1.
    pub(crate) number: u64,
    pub(crate) time: Timestamp,
    /// When the first frame of the capture came.
    start: Timestamp,
    pub(crate) wire_len: u32,
    /// `None` when not even the IP header can be read.
    pub(crate) outer: Option<Outer>,
    pub(crate) content: Content,
    /// What a packet that is none would have been.
    pub(crate) broken_opcode: Option<&'static Opcode>,
    pub(crate) icrc: IcrcVerdict,
    /// Counted from 1.
    pub(crate) conversation: Option<NonZeroU32>,
    pub(crate) source_qp: Option<Qpn>,
    pub(crate) relative_psn: Option<i32>,
    notes: Part,
    findings: Part,
    mad: Option<u32>,
    bytes: Part,
    /// The payload of a management datagram.
    management: Part,
}

/// What belongs to one row of what a batch keeps for all. A batch never has 2³² of anything.
#[derive(Clone, Copy, Debug)]
struct Part {
    start: u32,
    end: u32,
}

impl Part {
    const NONE: Self = Self { start: 0, end: 0 };

    fn of<T>(self, all: &[T]) -> &[T] {
        &all[self.start as usize..self.end as usize]
    }
}

impl Row {
    /// To be filled.
    const EMPTY: Self = Self {
        number: 0,
        time: Timestamp::from_nanos(0),
        start: Timestamp::from_nanos(0),
        wire_len: 0,
        outer: None,
        content: Content::Cut,
        broken_opcode: None,
        icrc: IcrcVerdict::Unknown,
        conversation: None,
        source_qp: None,
        relative_psn: None,
        notes: Part::NONE,
        findings: Part::NONE,
        mad: None,
        bytes: Part::NONE,
        management: Part::NONE,
    };

    /// Nanoseconds since the first frame of the capture; frames may stand in the wrong order.
    pub(crate) fn since_start_ns(&self) -> i128 {
        i128::from(self.time.as_nanos()) - i128::from(self.start.as_nanos())
    }
}

/// What stands before the packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outer {
    pub(crate) outside: Outside,
    pub(crate) vlan: [Option<VlanTag>; 2],
    pub(crate) hop_limit: u8,
    /// Bytes behind the ICRC.
    pub(crate) padding: usize,
    /// Where the IP header begins in the frame.
    pub(crate) ip_at: usize,
    /// Where the packet begins in the frame.
    pub(crate) packet_at: usize,
}

/// The packet, or why it is none.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Content {
    /// Without its payload.
    Packet(Packet<'static>),
    /// The same, but the capture kept less than its headers: those that are not here are `None`.
    Begun(Packet<'static>),
    /// A manufacturer's own opcode: what follows the BTH only that manufacturer knows.
    Manufacturers {
        opcode: u8,
    },
    Broken(DropReason),
    /// The capture kept less than the BTH.
    Cut,
}

impl Content {
    /// The packet, as far as it is known to be one.
    pub(crate) const fn packet(&self) -> Option<&Packet<'static>> {
        match self {
            Self::Packet(packet) | Self::Begun(packet) => Some(packet),
            Self::Manufacturers { .. } | Self::Broken(_) | Self::Cut => None,
        }
    }
}

/// Frames on their way from the one who examines to the one who prints.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    /// Those from `len` on are of earlier use.
    rows: Vec<Row>,
    len: usize,
    /// Frames between them that are not RoCEv2, and those that are RoCE v1.
    other: u64,
    roce_v1: u64,
    notes: Vec<Note>,
    findings: Vec<Finding>,
    mads: Vec<Management>,
    /// The first bytes of each frame.
    bytes: Vec<u8>,
    /// What the file says of some frames: index of the row, and text. Most files have none.
    comments: Vec<(usize, String)>,
}

/// A row, and what its batch keeps for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry<'a> {
    pub(crate) row: &'a Row,
    pub(crate) notes: &'a [Note],
    pub(crate) findings: &'a [Finding],
    pub(crate) mad: Option<&'a Management>,
    /// The frame's first bytes, at least all headers; if they are kept.
    pub(crate) bytes: &'a [u8],
    /// What whoever wrote the file says of it.
    pub(crate) comment: Option<&'a str>,
}

impl Batch {
    /// How many frames are handed over at once.
    pub(crate) const CAPACITY: usize = 2048;

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether it holds as many frames as are handed over at once: more may follow.
    pub(crate) fn is_full(&self) -> bool {
        self.len >= Self::CAPACITY
    }

    /// Empties it, and keeps its memory.
    pub(crate) fn clear(&mut self) {
        (self.len, self.other, self.roce_v1) = (0, 0, 0);
        self.notes.clear();
        self.findings.clear();
        self.mads.clear();
        self.bytes.clear();
        self.comments.clear();
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = Entry<'_>> {
        let mut comments = self.comments.iter().peekable();
        self.rows[..self.len].iter().enumerate().map(move |(index, row)| Entry {
            row,
            notes: row.notes.of(&self.notes),
            findings: row.findings.of(&self.findings),
            mad: row.mad.map(|index| &self.mads[index as usize]),
            bytes: row.bytes.of(&self.bytes),
            comment: comments.next_if(|(of, _)| *of == index).map(|(_, text)| text.as_str()),
        })
    }
}

/// A management datagram.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::large_enum_variant, reason = "nearly all are known")]
pub(crate) enum Management {
    Known(Mad),
    /// Of another class, or with a message that is not known: only the header can be read.
    Other(MadHeader),
}

impl Management {
    fn parse(payload: &[u8]) -> Option<Self> {
        match Mad::parse(payload) {
            Ok(mad) => Some(Self::Known(mad)),
            Err(_) if payload.len() < Mad::LEN => None,
            Err(_) => payload.first_chunk().map(|header| Self::Other(MadHeader::parse(*header))),
        }
    }

    /// Visits the fields in the order of the wire.
    pub(crate) fn for_each_field(&self, visit: &mut FieldVisitor<'_>) {
        match self {
            Self::Known(mad) => mad.for_each_field(visit),
            Self::Other(header) => header.for_each_field(visit),
        }
    }
}

/// What a capture holds besides what the tracer counts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    /// Frames that are no RoCE.
    pub(crate) other: u64,
    /// Frames of RoCE v1, which are not read.
    pub(crate) roce_v1: u64,
    /// Frames to port 4791 that are no packets.
    pub(crate) malformed: u64,
    /// Frames with a manufacturer's own opcode.
    pub(crate) manufacturers: u64,
    /// Frames of which the capture kept less than the headers.
    pub(crate) cut: u64,
    /// Packets whose ICRC cannot be checked: the capture kept less than all their bytes.
    pub(crate) icrc_unknown: u64,
    /// RoCEv2 frames: malformed and cut ones too.
    pub(crate) roce: u64,
    /// Broken rules.
    pub(crate) findings: u64,
}

/// Reads one frame after the other, each by itself.
#[derive(Debug)]
pub(crate) struct Dissector {
    start: Option<Timestamp>,
    kept: usize,
}

/// What holds all headers of a frame: Ethernet, two tags, IPv6, UDP and the longest packet headers.
pub(crate) const HEADERS: usize = 14 + 8 + 40 + 8 + roxe_wire::MAX_HEADERS_LEN;

impl Dissector {
    /// One that keeps the first `kept` bytes of each frame.
    pub(crate) fn new(kept: usize) -> Self {
        Self { start: None, kept }
    }

    /// Takes in the next frame; adds a row if it is RoCEv2.
    pub(crate) fn read(&mut self, record: &Record<'_>, batch: &mut Batch) {
        let raw = record.raw_frame();
        let start = *self.start.get_or_insert(record.time);
        let Batch { rows, len, other, roce_v1, bytes, comments, .. } = batch;
        if rows.len() == *len {
            rows.push(Row::EMPTY);
        }
        let row = &mut rows[*len];
        row.number = record.number;
        row.time = record.time;
        row.start = start;
        row.wire_len = record.wire_len;
        (row.broken_opcode, row.icrc) = (None, IcrcVerdict::Unknown);
        row.management = Part::NONE;
        // Looked at in place here and below: these are large, and to move what was just written
        // piece by piece waits for all of it.
        match &Frame::parse(raw) {
            Ok(frame) => read_packet(frame, record, row, bytes),
            &Err(reason) => {
                let outline = if reason.is_other_traffic() { None } else { Outline::of(raw) };
                let Some(outline) = outline else {
                    *(if reason == DropReason::RoceV1 { roce_v1 } else { other }) += 1;
                    return;
                };
                row.outer = Some(Outer::of_broken(&outline));
                broken(reason, record, row);
            }
        }
        row.bytes.start = bytes.len() as u32;
        bytes.extend_from_slice(&record.data[..record.data.len().min(self.kept)]);
        row.bytes.end = bytes.len() as u32;
        if let Some(comment) = record.comment.filter(|comment| !comment.is_empty()) {
            comments.push((*len, comment.to_owned()));
        }
        *len += 1;
    }
}

fn read_packet(frame: &Frame<'_>, record: &Record<'_>, row: &mut Row, bytes: &mut Vec<u8>) {
    let packet_at = record.wire_len as usize - frame.padding - frame.body.len();
    let ip_len = if frame.ip.source().is_ipv4() { 20 } else { 40 };
    row.outer = Some(Outer {
        outside: Outside::of(frame),
        vlan: frame.vlan,
        hop_limit: frame.ip.hop_limit(),
        padding: frame.padding,
        ip_at: packet_at - UDP_LEN - ip_len,
        packet_at,
    });
    row.icrc = IcrcVerdict::of(frame);
    let parsed = &Packet::parse(frame.body);
    let packet = match parsed {
        Ok(packet) => packet,
        &Err(DropReason::Truncated { .. }) if record.is_cut() => {
            return match Packet::parse_start(frame.body) {
                Ok(packet) => row.content = Content::Begun(without_payload(&packet)),
                Err(reason) => broken(reason, record, row),
            };
        }
        &Err(reason) => return broken(reason, record, row),
    };
    if packet.opcode.service == Service::Ud && packet.headers.bth.dest_qp == Qpn::GSI {
        let start = bytes.len() as u32;
        let all = packet.payload.pieces().into_iter().flatten();
        bytes.extend(all.take(Mad::LEN));
        row.management = Part { start, end: bytes.len() as u32 };
    }
    row.content = Content::Packet(without_payload(packet));
}

#[inline]
fn without_payload(packet: &Packet<'_>) -> Packet<'static> {
    let Packet { opcode, headers, payload } = *packet;
    Packet { opcode, headers, payload: Payload::Elided { len: payload.len(), digest: 0 } }
}

/// A frame to port 4791 that is no packet.
fn broken(reason: DropReason, record: &Record<'_>, row: &mut Row) {
    if is_cut_by_capture(reason, record) {
        row.content = Content::Cut;
        return;
    }
    row.content = match reason {
        // Manufacturers may do with these as they like.
        DropReason::ReservedOpcode { code: opcode @ 0xe0.. } => Content::Manufacturers { opcode },
        _ => Content::Broken(reason),
    };
    let code = row.outer.and_then(|outer| record.data.get(outer.packet_at));
    row.broken_opcode = code.and_then(|code| Opcode::from_code(*code));
}

/// Follows the conversations.
#[derive(Debug, Default)]
pub(crate) struct Examiner {
    pub(crate) tracer: Tracer,
    pub(crate) tally: Tally,
    observation: Observation,
}

impl Examiner {
    /// Takes in the next batch, and fills in what its frames mean.
    pub(crate) fn examine(&mut self, batch: &mut Batch) {
        let Batch { rows, len, other, roce_v1, notes, findings, mads, bytes, .. } = batch;
        self.tally.other += *other;
        self.tally.roce_v1 += *roce_v1;
        self.tally.roce += *len as u64;
        for row in &mut rows[..*len] {
            (row.conversation, row.source_qp, row.relative_psn) = (None, None, None);
            (row.notes.start, row.findings.start) = (notes.len() as u32, findings.len() as u32);
            row.mad = None;
            match (&row.content, &row.outer) {
                (Content::Packet(packet) | Content::Begun(packet), Some(outer)) => {
                    self.tally.icrc_unknown += u64::from(row.icrc == IcrcVerdict::Unknown);
                    self.tally.cut += u64::from(matches!(row.content, Content::Begun(_)));
                    let payload = Payload::bytes(row.management.of(bytes));
                    let managing;
                    let packet = if payload.is_empty() {
                        packet
                    } else {
                        managing = Packet { payload, ..*packet };
                        &managing
                    };
                    let (number, outside, icrc) = (row.number, &outer.outside, row.icrc);
                    let time_ns = row.time.as_nanos();
                    let seen = Seen { number, time_ns, outside, packet, icrc };
                    self.tracer.observe(&seen, &mut self.observation);
                    notes.append(&mut self.observation.notes);
                    findings.append(&mut self.observation.findings);
                    if let Some(mad) = Management::parse(payload.pieces()[0]) {
                        row.mad = Some(mads.len() as u32);
                        mads.push(mad);
                    }
                    row.conversation = self.observation.conversation;
                    row.source_qp = self.observation.source_qp;
                    row.relative_psn = self.observation.relative_psn;
                }
                (Content::Broken(reason), _) => {
                    self.tally.malformed += 1;
                    findings.push(malformed(*reason, row));
                }
                (Content::Manufacturers { .. }, _) => {
                    self.tally.manufacturers += 1;
                    self.tally.icrc_unknown += u64::from(row.icrc == IcrcVerdict::Unknown);
                    findings.extend(row.icrc.finding());
                }
                (Content::Cut, _) => {
                    self.tally.cut += 1;
                    self.tally.icrc_unknown += 1;
                }
                // A packet has something around it.
                (Content::Packet(_) | Content::Begun(_), None) => {}
            }
            (row.notes.end, row.findings.end) = (notes.len() as u32, findings.len() as u32);
        }
        self.tally.findings += findings.len() as u64;
    }
}

/// What is wrong with a frame that is no packet. With a wrong ICRC, whatever else is wrong may come
/// of the same flipped bit.
fn malformed(reason: DropReason, row: &Row) -> Finding {
    row.icrc.finding().unwrap_or_else(|| Finding {
        rule: Rule::Format,
        seen: match row.broken_opcode {
            Some(opcode) if is_about_opcode(reason) => format!("{}: {reason}", opcode.name),
            _ => reason.to_string(),
        },
        expected: String::new(),
    })
}

/// Whether the frame is only too short because the capture kept its beginning.
fn is_cut_by_capture(reason: DropReason, record: &Record<'_>) -> bool {
    matches!(reason, DropReason::Truncated { need, .. } if record.is_cut()
        && need <= record.wire_len as usize)
}

/// Whether one has to know the opcode to understand what is wrong.
pub(crate) fn is_about_opcode(reason: DropReason) -> bool {
    matches!(reason, DropReason::HeaderMissing { .. } | DropReason::PadCount { .. })
}

/// Bytes of a UDP header.
const UDP_LEN: usize = 8;

impl Outer {
    /// Of a frame that cannot be parsed.
    fn of_broken(outline: &Outline) -> Self {
        Self {
            outside: Outside {
                source: outline.source,
                destination: outline.destination,
                identification: outline.identification,
                traffic_class: outline.traffic_class,
                source_port: outline.source_port,
                udp_checksum: None,
                icrc: None,
            },
            vlan: outline.vlan,
            hop_limit: outline.hop_limit,
            padding: 0,
            ip_at: outline.ip_at,
            packet_at: outline.packet_at,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use roxe_wire::{
        Bth, Deth, FrameTemplate, Headers, IpPair, MacAddress, Path, Room, Start, TrafficClass,
    };

    /// A datagram to queue pair 1.
    fn to_gsi(payload: &[u8]) -> Vec<u8> {
        let opcode = Opcode::by_name("UD_SEND_ONLY").expect("it is in the table");
        let bth = Bth { opcode: opcode.code, dest_qp: Qpn::GSI, ..Bth::default() };
        let headers = Headers { bth, deth: Some(Deth::default()), ..Headers::default() };
        let packet = Packet { opcode, headers, payload: Payload::bytes(payload) };
        let template = FrameTemplate::new(&Path {
            ethernet: (MacAddress([2; 6]), MacAddress([4; 6])),
            vlan: None,
            ip: IpPair::V4 { source: [192, 0, 2, 1].into(), destination: [192, 0, 2, 2].into() },
            traffic_class: TrafficClass(0),
            hop_limit: 64,
            flow_label: 0,
            source_port: 0xc000,
        });
        let at = template.headers_len();
        let mut bytes = vec![0; at + packet.len()];
        let len = u16::try_from(packet.len()).expect("it fits in a frame");
        let cover = template.write(len, 0, &mut bytes).expect("there is room");
        packet.emit(Room::whole(&mut bytes[at..]), &cover).expect("there is room");
        bytes
    }

    /// What queue pair 1 is sent may be as long as any packet, and a batch holds thousands.
    #[test]
    fn of_a_datagram_to_queue_pair_1_no_more_is_kept_than_a_management_datagram_has() {
        for (len, kept) in [(0, 0), (24, 24), (256, 256), (260, 256), (4096, 256)] {
            let frame = to_gsi(&vec![7; len]);
            let record = Record {
                number: 1,
                time: Timestamp::from_nanos(0),
                start: Start::Ethernet,
                data: &frame,
                wire_len: u32::try_from(frame.len()).expect("it fits in a frame"),
                interface: 0,
                direction: None,
                comment: None,
            };
            let mut batch = Batch::default();
            Dissector::new(0).read(&record, &mut batch);
            assert_eq!((batch.len(), batch.bytes.len()), (1, kept), "{len} bytes");
            let packet = batch.rows[0].content.packet().expect("it is one");
            assert_eq!(packet.payload.len(), len);
        }
    }
}
