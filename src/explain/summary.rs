//! The end of an explanation: what a whole capture held.

use std::fmt::Write as _;

use roxe_net::capture_file::{CaptureReader, LinkType};
use roxe_trace::{ConversationSummary, Endpoint, Finding, Summary};
use roxe_wire::FieldValue;
use roxe_wire::NakCode;
use roxe_wire::opcode::Operation;

use crate::examine::{Entry, Examiner};
use crate::explain::ink::{Ink, Style};
use crate::explain::json::{self, Object};

/// How many conversations are listed for people.
const LISTED: usize = 50;

/// For people. A filter let `shown` frames through, if there is one.
pub(crate) fn text(examiner: &Examiner, reader: &CaptureReader, shown: Option<u64>, ink: &mut Ink) {
    let (tally, total) = (&examiner.tally, examiner.tracer.summary());
    let conversations = examiner.tracer.conversations();
    ink.byte(b'\n');
    ink.style(Style::Bold);
    counted(tally.roce, "RoCE frame", ink);
    let known = conversations.len() as u64;
    if known > 0 {
        ink.str(" in ");
        counted(known, "conversation", ink);
    }
    if let Some(shown) = shown {
        ink.display(format_args!(", {shown} of them shown"));
    }
    ink.plain();
    ink.byte(b'\n');
    for conversation in conversations.iter().take(LISTED) {
        ink.str("  ");
        conversation_text(conversation, ink);
        ink.byte(b'\n');
        for ending in &conversation.endings {
            ink.display(format_args!("     ends: {ending}\n"));
        }
    }
    if conversations.len() > LISTED {
        ink.display(format_args!("  and {} more\n", conversations.len() - LISTED));
    }
    if examiner.tracer.forgotten() > 0 {
        ink.display(format_args!(
            "  {} directions were silent for long and are only part of the totals\n",
            examiner.tracer.forgotten()
        ));
    }
    let mut lines = Vec::new();
    let mut line = |count: u64, one: &str, many: &str| {
        if count > 0 {
            lines.push(format!("{count} {}", if count == 1 { one } else { many }));
        }
    };
    line(total.icrc_errors, "frame with a wrong ICRC", "frames with a wrong ICRC");
    if examiner.tracer.forgotten() == 0 {
        let placed: u64 = conversations.iter().map(|it| it.counts.icrc_errors).sum();
        line(
            total.icrc_errors - placed,
            "of them belongs to no conversation that is known",
            "of them belong to no conversation that is known",
        );
    }
    line(tally.malformed, "malformed frame to port 4791", "malformed frames to port 4791");
    line(tally.findings, "finding", "findings");
    lines.extend(left_out(examiner, reader));
    if tally.other > 0 {
        let are = if tally.other == 1 { "frame that is" } else { "frames that are" };
        lines.push(format!("{} {are} not RoCE", tally.other));
    }
    lines.extend(reader.truncated().map(|truncation| truncation.to_string()));
    for line in lines {
        ink.str("  ");
        ink.str(&line);
        ink.byte(b'\n');
    }
}

/// What was not read, or not judged, of the RoCE in a capture, or of what may be RoCE: each kind in
/// a few words.
pub(crate) fn left_out(examiner: &Examiner, reader: &CaptureReader) -> Vec<String> {
    let tally = &examiner.tally;
    let mut lines = Vec::new();
    let mut line = |count: u64, one: &str, what: &str| {
        if count > 0 {
            lines.push(format!("{count} {}{what}", if count == 1 { one } else { "frames" }));
        }
    };
    line(tally.icrc_unknown, "frame", " cut by the capture: the ICRC cannot be checked");
    line(tally.cut, "frame", " cut within the headers");
    line(tally.manufacturers, "frame", " with a manufacturer's own opcode, not read");
    line(tally.roce_v1, "frame", " of RoCE v1, not read");
    let mut skipped: Vec<(LinkType, u64)> = Vec::new();
    for interface in reader.interfaces().iter().filter(|interface| interface.skipped > 0) {
        let known = skipped.iter().position(|(link_type, _)| *link_type == interface.link_type);
        match known {
            Some(at) => skipped[at].1 += interface.skipped,
            // A file can have one of each, but nobody reads that.
            None if skipped.len() == LISTED => {}
            None => skipped.push((interface.link_type, interface.skipped)),
        }
    }
    lines.extend(skipped.into_iter().map(|(link_type, count)| {
        let frames = if count == 1 { "frame" } else { "frames" };
        format!("{count} {frames} of an unsupported kind: {link_type}")
    }));
    lines
}

/// `12 frames`, `1 frame`.
pub(crate) fn counted(count: u64, what: &str, ink: &mut Ink) {
    ink.number(count);
    ink.byte(b' ');
    ink.str(what);
    if count != 1 {
        ink.byte(b's');
    }
}

fn conversation_text(conversation: &ConversationSummary, ink: &mut Ink) {
    let ConversationSummary { number, also, service, one, other, counts, .. } = conversation;
    ink.number(number.get());
    for (index, number) in also.iter().enumerate() {
        ink.str(if index == 0 { " (also " } else { ", " });
        ink.number(number.get());
    }
    if !also.is_empty() {
        ink.byte(b')');
    }
    ink.str(": ");
    ink.str(service.name());
    ink.byte(b' ');
    endpoint(one, ink);
    ink.str(" ↔ ");
    endpoint(other, ink);
    ink.str(": ");
    counted(counts.frames, "frame", ink);
    facts(counts, ink);
}

/// Messages by operation, bytes, and what went wrong.
fn facts(counts: &Summary, ink: &mut Ink) {
    for &(operation, messages) in &counts.messages {
        ink.str(", ");
        ink.number(messages);
        ink.byte(b' ');
        ink.str(word(operation));
    }
    if counts.bytes > 0 {
        ink.display(format_args!(", {} B", counts.bytes));
    }
    let mut some = |count: u64, one: &str, many: &str| {
        if count > 0 {
            let _ = write!(ink, ", {count} {}", if count == 1 { one } else { many });
        }
    };
    some(counts.retransmissions, "retransmission", "retransmissions");
    some(counts.duplicates, "duplicate", "duplicates");
    some(counts.gaps, "gap", "gaps");
    some(counts.rnr_naks, "RNR NAK", "RNR NAKs");
    for (code, count) in &counts.naks {
        let name = format!("NAK {code}");
        some(*count, &name, &format!("NAKs {code}"));
    }
    some(counts.unclear_answers, "unclear answer", "unclear answers");
    some(counts.icrc_errors, "wrong ICRC", "wrong ICRCs");
    some(counts.cnps, "CNP", "CNPs");
    some(counts.marked, "congestion mark", "congestion marks");
}

fn endpoint((address, qp): &Endpoint, ink: &mut Ink) {
    ink.display(address);
    if let Some(qp) = qp {
        ink.str(" QP ");
        ink.display(qp);
    }
}

/// The operation as one word.
fn word(operation: Operation) -> &'static str {
    match operation {
        Operation::AtomicWrite => "ATOMIC_WRITE",
        other => other.name(),
    }
}

/// For programs: an object for each conversation, then one for the whole file. A filter let `shown`
/// frames through, if there is one.
pub(crate) fn json(
    file: &str,
    examiner: &Examiner,
    reader: &CaptureReader,
    shown: Option<u64>,
    ink: &mut Ink,
) {
    for conversation in examiner.tracer.conversations() {
        let mut object = Object::begin(ink);
        object.text("summary", "conversation");
        object.text("file", file);
        object.number("conversation", conversation.number.get().into());
        object.list("also", &conversation.also, |number, ink| ink.number(number.get()));
        object.text("service", conversation.service.name());
        for (address_name, qp_name, (address, qp)) in
            [("src", "source_qp", conversation.one), ("dst", "bth.destqp", conversation.other)]
        {
            object.field(address_name, FieldValue::Address(address));
            if let Some(qp) = qp {
                object.number(qp_name, qp.get().into());
            }
        }
        counts(&conversation.counts, &mut object);
        object.list("ends", &conversation.endings, json::quoted_display);
        object.end();
    }
    let mut object = Object::begin(ink);
    object.text("summary", "file");
    object.text("file", file);
    let tally = &examiner.tally;
    object.number("roce_frames", tally.roce);
    if let Some(shown) = shown {
        object.number("shown", shown);
    }
    object.number("malformed", tally.malformed);
    object.number("manufacturers", tally.manufacturers);
    object.number("cut", tally.cut);
    object.number("icrc_unknown", tally.icrc_unknown);
    object.number("roce_v1_frames", tally.roce_v1);
    object.number("other_frames", tally.other);
    object.number("unsupported_frames", reader.skipped());
    object.flag("truncated", reader.truncated().is_some());
    object.number("findings", tally.findings);
    object.number("conversations", examiner.tracer.conversations().len() as u64);
    counts(&examiner.tracer.summary(), &mut object);
    object.end();
}

/// For programs: one broken rule.
pub(crate) fn finding_json(file: &str, entry: &Entry<'_>, finding: &Finding, ink: &mut Ink) {
    let mut object = Object::begin(ink);
    object.text("file", file);
    object.number("frame", entry.row.number);
    if let Some(conversation) = entry.row.conversation {
        object.number("conversation", conversation.get().into());
    }
    object.text("rule", finding.rule.name());
    object.text("seen", &finding.seen);
    if !finding.expected.is_empty() {
        object.text("expected", &finding.expected);
    }
    object.end();
}

fn counts(counts: &Summary, object: &mut Object<'_>) {
    object.number("frames", counts.frames);
    for &(operation, messages) in &counts.messages {
        let name = match operation {
            Operation::Send => "messages.send",
            Operation::Write => "messages.write",
            Operation::ReadRequest => "messages.read",
            Operation::CompareSwap => "messages.cmp_swap",
            Operation::FetchAdd => "messages.fetch_add",
            Operation::Flush => "messages.flush",
            Operation::AtomicWrite => "messages.atomic_write",
            _ => "messages.other",
        };
        object.number(name, messages);
    }
    object.number("bytes", counts.bytes);
    object.number("retransmissions", counts.retransmissions);
    object.number("duplicates", counts.duplicates);
    object.number("gaps", counts.gaps);
    object.number("rnr_naks", counts.rnr_naks);
    for (code, count) in &counts.naks {
        let name = match code {
            NakCode::PsnSequenceError => "naks.psn_sequence_error",
            NakCode::InvalidRequest => "naks.invalid_request",
            NakCode::RemoteAccessError => "naks.remote_access_error",
            NakCode::RemoteOperationalError => "naks.remote_operational_error",
            NakCode::InvalidRdRequest => "naks.invalid_rd_request",
            NakCode::Reserved(_) => continue,
        };
        object.number(name, *count);
    }
    object.number("unclear_answers", counts.unclear_answers);
    object.number("icrc_errors", counts.icrc_errors);
    object.number("cnps", counts.cnps);
    object.number("marked", counts.marked);
}
