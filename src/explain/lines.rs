//! One line a frame: columns that stay aligned, then what the headers say and what it all means.

use std::net::IpAddr;

use roxe_trace::{Finding, IcrcVerdict, Note, Outside, Rule};
use roxe_wire::opcode::{Operation, Service};
use roxe_wire::{
    Aeth, AtomicEth, Ecn, Feth, FlushSelectivity, Headers, Opcode, Packet, QKey, Syndrome,
};

use crate::examine::{Batch, Content, Entry, Outer, Row, is_about_opcode};
use crate::explain::filter::Filter;
use crate::explain::ink::{Ink, Style, width};
use crate::outcome::visible;

/// Writes lines. A column is as wide as its widest cell so far; the first batch is measured before
/// it is written, so that short captures are aligned throughout.
#[derive(Debug)]
pub(crate) struct Lines {
    widths: [usize; TITLES.len()],
    /// Digits behind the point: microseconds until a time needs more.
    time_digits: usize,
    started: bool,
    /// Whether comments stand on the line.
    with_comments: bool,
    endpoints: Endpoints,
}

/// So many characters of a comment stand on the line, with `…` where it goes on: `-v` tells all.
/// One that says what was expected is not cut.
const MOST_OF_COMMENT: usize = 100;

/// What stands above the columns, and whether they are aligned to the right.
const TITLES: [(&str, bool); 10] = [
    ("#", true),
    ("time", true),
    ("from → to", false),
    ("opcode", false),
    ("QP", false),
    ("PSN", true),
    ("rel", false),
    ("flags", false),
    ("bytes", true),
    ("ICRC", false),
];

/// Widths of the columns of a stream: two IPv4 addresses, the longest opcode of RC, ….
const IN_STREAMS: [usize; TITLES.len()] = [6, 11, 27, 20, 17, 8, 8, 5, 5, 4];

/// Those on a terminal, which has no room to spare: they grow where more comes than two short IPv4
/// addresses, short opcodes, ….
const LIVE: [usize; TITLES.len()] = [4, 11, 21, 12, 17, 8, 6, 5, 5, 4];

const NUMBER: usize = 0;
const TIME: usize = 1;
const ENDPOINTS: usize = 2;
const OPCODE: usize = 3;
const QPS: usize = 4;
const PSN: usize = 5;
const RELATIVE: usize = 6;
const FLAGS: usize = 7;
const PAYLOAD: usize = 8;
const ICRC: usize = 9;

impl Lines {
    /// Of a stream, where nothing can be measured before it is written, each column has room for
    /// what mostly comes. Comments are told on the lines, or elsewhere.
    pub(crate) fn new(is_stream: bool, with_comments: bool) -> Self {
        let mut widths = TITLES.map(|(title, _)| title.chars().count());
        if is_stream {
            widths = IN_STREAMS;
        }
        let endpoints = Endpoints::default();
        Self { widths, time_digits: 6, started: false, with_comments, endpoints }
    }

    /// Of what passes just now, and is watched.
    pub(crate) fn live() -> Self {
        Self { widths: LIVE, ..Self::new(true, true) }
    }

    /// Measures a first batch and writes the titles. Later ones pass unseen.
    pub(crate) fn begin(&mut self, batch: &Batch, filter: Option<&Filter>, ink: &mut Ink) {
        if std::mem::replace(&mut self.started, true) {
            return;
        }
        let at = ink.at();
        let shown = |entry: &Entry<'_>| filter.is_none_or(|filter| filter.matches(entry));
        for entry in batch.entries().filter(shown) {
            self.columns(entry.row, ink);
            ink.truncate(at);
        }
        if batch.is_full() {
            // There is more to come than was measured.
            self.widths[NUMBER] = self.widths[NUMBER].max(IN_STREAMS[NUMBER] + 1);
        }
        ink.style(Style::Dim);
        for (column, (title, to_the_right)) in TITLES.into_iter().enumerate() {
            let width = title.chars().count();
            if to_the_right {
                self.right(column, title, ink);
            } else {
                ink.str(title);
                self.fill(column, width, ink);
            }
        }
        ink.str("meaning");
        ink.plain();
        ink.byte(b'\n');
    }

    /// The line of one frame.
    pub(crate) fn line(&mut self, entry: &Entry<'_>, ink: &mut Ink) {
        let row = entry.row;
        self.columns(row, ink);
        let start = ink.at();
        match &row.content {
            Content::Packet(packet) => details(packet.opcode, &packet.headers, ink),
            Content::Begun(packet) => {
                details(packet.opcode, &packet.headers, ink);
                separate(start, ink, " · ");
                ink.str("headers cut by the capture");
            }
            Content::Manufacturers { opcode } => {
                ink.str("opcode ");
                ink.hex((*opcode).into(), 2);
                ink.str(" is a manufacturer's own: not read");
            }
            Content::Broken(reason) => {
                ink.style(Style::Red);
                ink.str("dropped: ");
                if let Some(opcode) = row.broken_opcode.filter(|_| is_about_opcode(*reason)) {
                    ink.str(opcode.name);
                    ink.str(": ");
                }
                ink.display(reason);
                ink.plain();
            }
            Content::Cut => ink.str("the capture kept too little of it"),
        }
        if let Some(tag) = row.outer.and_then(|outer| outer.vlan[0]) {
            separate(start, ink, " ");
            ink.str("vlan ");
            ink.number(tag.id());
            if tag.priority() != 0 {
                ink.str(" priority ");
                ink.number(tag.priority());
            }
        }
        for note in entry.notes {
            separate(start, ink, " · ");
            note_text(note, ink);
        }
        // Why a packet is none was said.
        for finding in entry.findings.iter().filter(|finding| finding.rule != Rule::Format) {
            separate(start, ink, " · ");
            finding_text(finding, ink);
        }
        if let Some(comment) = entry.comment.filter(|_| self.with_comments) {
            separate(start, ink, " · ");
            ink.str("comment: ");
            let cut = comment.char_indices().nth(MOST_OF_COMMENT);
            let cut = cut.filter(|_| !comment.contains("expected: "));
            let end = cut.map_or(comment.len(), |(at, _)| at);
            ink.str(&visible(&comment[..end], |_| false));
            if cut.is_some() {
                ink.str("…");
            }
        }
        while ink.bytes().ends_with(b" ") {
            ink.truncate(ink.at() - 1);
        }
        ink.byte(b'\n');
    }

    /// The aligned part.
    fn columns(&mut self, row: &Row, ink: &mut Ink) {
        self.number(NUMBER, row.number, ink);
        self.time(row.since_start_ns(), ink);
        match &row.outer {
            Some(outer) => {
                let (at, width) = (ink.at(), self.endpoints.write(outer, ink));
                debug_assert_eq!(width, ink.width_from(at));
                self.fill(ENDPOINTS, width, ink);
            }
            None => self.left(ENDPOINTS, ink, |ink| ink.byte(b'?')),
        }
        let Some(Packet { opcode, headers, payload }) = row.content.packet() else {
            ink.style(Style::Red);
            self.left(OPCODE, ink, |ink| ink.byte(b'-'));
            ink.plain();
            for column in OPCODE + 1..ICRC {
                self.fill(column, 0, ink);
            }
            return self.icrc(row.icrc, ink);
        };
        let bth = &headers.bth;
        ink.style(Style::Bold);
        self.left(OPCODE, ink, |ink| opcode_text(opcode, headers, ink));
        ink.plain();
        let start = ink.at();
        if let Some(source) = row.source_qp {
            ink.hex(source.get().into(), 1);
        }
        ink.str("→");
        ink.hex(bth.dest_qp.get().into(), 1);
        // An arrow is one character of three bytes.
        self.fill(QPS, ink.at() - start - 2, ink);
        self.number(PSN, bth.psn.get().into(), ink);
        self.left(RELATIVE, ink, |ink| {
            if let Some(relative) = row.relative_psn {
                ink.byte(if relative < 0 { b'-' } else { b'+' });
                ink.number(relative.unsigned_abs());
            }
        });
        self.left(FLAGS, ink, |ink| flags(row, headers, ink));
        self.number(PAYLOAD, payload.len() as u64, ink);
        self.icrc(row.icrc, ink);
    }

    fn icrc(&mut self, verdict: IcrcVerdict, ink: &mut Ink) {
        let (text, style) = match verdict {
            IcrcVerdict::Good => ("ok", Style::Green),
            IcrcVerdict::Bad { .. } => ("BAD", Style::Red),
            IcrcVerdict::Unknown => ("?", Style::Yellow),
        };
        ink.style(style);
        self.left(ICRC, ink, |ink| ink.str(text));
        ink.plain();
    }

    /// Seconds since the first frame.
    fn time(&mut self, nanos: i128, ink: &mut Ink) {
        let magnitude = u64::try_from(nanos.unsigned_abs()).unwrap_or(u64::MAX);
        let fraction = magnitude % 1_000_000_000;
        if !fraction.is_multiple_of(1000) {
            self.time_digits = 9;
        }
        let seconds = magnitude / 1_000_000_000;
        let behind = 1 + self.time_digits;
        if nanos < 0 {
            self.indent(TIME, 1 + width(seconds) + behind, ink);
            ink.byte(b'-');
            ink.number(seconds);
        } else {
            let mut before = self.widths[TIME].saturating_sub(behind);
            ink.right(seconds, &mut before, 0);
            self.widths[TIME] = before + behind;
        }
        ink.byte(b'.');
        let shown = if self.time_digits == 9 { fraction } else { fraction / 1000 };
        ink.digits(shown, self.time_digits);
        ink.str(GAP);
    }

    /// A cell of ASCII text to the right of its column.
    #[inline]
    fn right(&mut self, column: usize, text: &str, ink: &mut Ink) {
        self.indent(column, text.len(), ink);
        ink.str(text);
        ink.str(GAP);
    }

    /// A number to the right of its column.
    #[inline]
    fn number(&mut self, column: usize, number: u64, ink: &mut Ink) {
        ink.right(number, &mut self.widths[column], GAP.len());
    }

    /// A cell of ASCII text to the left of its column.
    #[inline]
    fn left(&mut self, column: usize, ink: &mut Ink, write: impl FnOnce(&mut Ink)) {
        let at = ink.at();
        write(ink);
        self.fill(column, ink.at() - at, ink);
    }

    /// The spaces before a cell to the right.
    #[inline]
    fn indent(&mut self, column: usize, width: usize, ink: &mut Ink) {
        let room = self.room(column, width);
        ink.fill(b' ', room);
    }

    /// The spaces behind a cell to the left.
    #[inline]
    fn fill(&mut self, column: usize, width: usize, ink: &mut Ink) {
        let room = self.room(column, width);
        ink.fill(b' ', room + GAP.len());
    }

    /// How many characters a column is wider than a cell. It grows with its cells.
    #[inline]
    fn room(&mut self, column: usize, width: usize) -> usize {
        let column = &mut self.widths[column];
        *column = width.max(*column);
        *column - width
    }
}

/// Between columns.
const GAP: &str = "  ";

/// Something between two pieces of a line, unless nothing stands before.
fn separate(start: usize, ink: &mut Ink, between: &str) {
    if ink.at() > start {
        ink.str(between);
    }
}

/// `source → destination`, remembered: the same few follow each other.
#[derive(Debug, Default)]
struct Endpoints {
    known: [Option<Pair>; 4],
    next: usize,
}

/// Two addresses, and how they look.
#[derive(Debug)]
struct Pair {
    source: IpAddr,
    destination: IpAddr,
    text: String,
    width: usize,
}

impl Endpoints {
    /// Writes both; returns how many characters.
    fn write(&mut self, outer: &Outer, ink: &mut Ink) -> usize {
        let Outside { source, destination, .. } = &outer.outside;
        let is_it = |pair: &&Pair| pair.source == *source && pair.destination == *destination;
        if let Some(pair) = self.known.iter().flatten().find(is_it) {
            ink.str(&pair.text);
            return pair.width;
        }
        let text = format!("{source} → {destination}");
        let width = text.chars().count();
        ink.str(&text);
        let (source, destination) = (*source, *destination);
        self.known[self.next] = Some(Pair { source, destination, text, width });
        self.next = (self.next + 1) % self.known.len();
        width
    }
}

/// The name as people say it: `SEND_ONLY`, `UD SEND_ONLY`, `ACK`, `NAK`. RC is not said.
fn opcode_text(opcode: &Opcode, headers: &Headers, ink: &mut Ink) {
    if !matches!(opcode.service, Service::Rc | Service::Cnp) {
        ink.str(opcode.service.name());
        ink.byte(b' ');
    }
    ink.str(match opcode.operation {
        Operation::Acknowledge => match headers.aeth.map(|aeth| aeth.syndrome) {
            Some(Syndrome::RnrNak(_)) => "RNR_NAK",
            Some(Syndrome::Nak(_)) => "NAK",
            Some(Syndrome::Ack(_)) => "ACK",
            // The capture did not keep which of the three it is.
            None => opcode.short_name(),
        },
        Operation::AtomicAcknowledge => "ATOMIC_ACK",
        _ => opcode.short_name(),
    });
}

/// S solicited, A answer asked for, M migrated, E congestion experienced, F FECN, B BECN.
fn flags(row: &Row, headers: &Headers, ink: &mut Ink) {
    let bth = &headers.bth;
    let marked = row.outer.is_some_and(|outer| outer.outside.traffic_class.ecn() == Ecn::Ce);
    let all = [
        (bth.solicited, b'S'),
        (bth.ack_req, b'A'),
        (bth.mig_req, b'M'),
        (marked, b'E'),
        (bth.fecn, b'F'),
        (bth.becn, b'B'),
    ];
    for (_, letter) in all.into_iter().filter(|(set, _)| *set) {
        ink.byte(letter);
    }
}

/// The extension headers in words.
fn details(opcode: &Opcode, headers: &Headers, ink: &mut Ink) {
    let start = ink.at();
    if let Some(rdeth) = headers.rdeth {
        ink.str("EE context ");
        ink.hex(rdeth.ee_context.get().into(), 1);
    }
    // Everybody knows the key of QP 1.
    if let Some(deth) = headers.deth.filter(|deth| deth.q_key != QKey::GSI) {
        separate(start, ink, " ");
        ink.str("q_key ");
        ink.hex(deth.q_key.0.into(), 8);
    }
    if let Some(xrceth) = headers.xrceth {
        separate(start, ink, " ");
        ink.str("srq ");
        ink.hex(xrceth.xrc_srq.get().into(), 1);
    }
    if let Some(feth) = headers.feth {
        separate(start, ink, " ");
        flush(&feth, ink);
    }
    if let Some(reth) = headers.reth {
        separate(start, ink, " ");
        ink.str("va ");
        ink.hex(reth.va, 1);
        ink.str(" rkey ");
        ink.hex(reth.r_key.0.into(), 1);
        ink.str(" len ");
        ink.number(reth.dma_len);
    }
    if let Some(atomic) = headers.atomic_eth {
        separate(start, ink, " ");
        operands(opcode.operation, &atomic, ink);
    }
    if let Some(ack) = headers.atomic_ack_eth {
        separate(start, ink, " ");
        ink.str("original ");
        operand(ack.original, ink);
    }
    if let Some(aeth) = headers.aeth {
        separate(start, ink, " ");
        acknowledgement(opcode.operation, aeth, ink);
    }
    if let Some(immediate) = headers.imm_dt {
        separate(start, ink, " ");
        ink.str("imm ");
        ink.hex(immediate.0.into(), 8);
    }
    if let Some(ieth) = headers.ieth {
        separate(start, ink, " ");
        ink.str("invalidates rkey ");
        ink.hex(ieth.r_key.0.into(), 1);
    }
}

fn flush(feth: &Feth, ink: &mut Ink) {
    ink.str("make ");
    ink.str(match feth.selectivity {
        FlushSelectivity::Range => "a range",
        FlushSelectivity::MemoryRegion => "the whole region",
        FlushSelectivity::Reserved(_) => "what nobody knows",
    });
    ink.str(match (feth.placement.global_visibility, feth.placement.persistence) {
        (true, true) => " visible and persistent:",
        (true, false) => " visible:",
        (false, true) => " persistent:",
        (false, false) => " nothing in particular:",
    });
}

fn operands(operation: Operation, atomic: &AtomicEth, ink: &mut Ink) {
    ink.str("va ");
    ink.hex(atomic.va, 1);
    ink.str(" rkey ");
    ink.hex(atomic.r_key.0.into(), 1);
    if operation == Operation::CompareSwap {
        ink.str(" compare ");
        operand(atomic.compare, ink);
        ink.str(" swap ");
    } else {
        ink.str(" add ");
    }
    operand(atomic.swap_add, ink);
}

/// Small operands are counters, large ones are addresses or patterns.
fn operand(value: u64, ink: &mut Ink) {
    if value < 1 << 32 { ink.number(value) } else { ink.hex(value, 16) }
}

/// `credits 24 msn 4`, `wait 5.12 ms msn 4`, `PSN sequence error msn 4`: the opcode has said what
/// kind it is, unless it is none of an acknowledgement.
fn acknowledgement(operation: Operation, aeth: Aeth, ink: &mut Ink) {
    let is_told = operation == Operation::Acknowledge;
    match aeth.syndrome {
        Syndrome::Ack(credits) => {
            if let Some(count) = credits.count() {
                ink.str("credits ");
                ink.number(count);
                ink.byte(b' ');
            }
        }
        Syndrome::RnrNak(timer) if is_told => {
            let wait_10us = u64::try_from(timer.duration().as_micros() / 10).unwrap_or(0);
            ink.str("wait ");
            ink.number(wait_10us / 100);
            ink.byte(b'.');
            ink.digits(wait_10us % 100, 2);
            ink.str(" ms ");
        }
        Syndrome::Nak(code) if is_told => {
            ink.str(code.name());
            ink.byte(b' ');
        }
        other => {
            ink.display(other);
            ink.byte(b' ');
        }
    }
    ink.str("msn ");
    ink.number(aeth.msn.get());
}

fn note_text(note: &Note, ink: &mut Ink) {
    let style = match note {
        Note::Retransmission { .. }
        | Note::Late { .. }
        | Note::Doubled { .. }
        | Note::ManagementAgain { .. }
        | Note::Gap { .. }
        | Note::ReadRest { .. }
        | Note::SequenceNak { .. }
        | Note::ReceiverNotReady { .. }
        | Note::FatalNak { .. }
        | Note::CongestionExperienced
        | Note::CongestionNotification { .. }
        | Note::Reaction { .. } => Style::Yellow,
        Note::Dropped => Style::Red,
        _ => Style::Cyan,
    };
    ink.style(style);
    note.tell(ink);
    ink.plain();
}

fn finding_text(finding: &Finding, ink: &mut Ink) {
    ink.style(Style::Red);
    ink.str("! ");
    ink.display(finding);
    ink.plain();
}
