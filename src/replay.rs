//! `roxe replay`: captures played to our engine, in virtual time.

use std::io::{self, Write};
use std::num::NonZeroU32;
use std::path::Path;

use anyhow::Result;
use roxe_net::capture_file::CaptureReader;
use roxe_sim::peer::Peer;
use roxe_sim::replay::{Difference, Recording, Report, Role, Side};
use roxe_trace::Endpoint;
use roxe_wire::FieldValue;

use crate::cli::ReplayArguments;
use crate::explain::ink::Ink;
use crate::explain::json::Object;
use crate::explain::summary::counted;
use crate::outcome::{Outcome, Verdicts, at_end, complain, in_file, name_of, no_file};
use crate::progress::Progress;

/// The command.
pub(crate) fn run(arguments: &ReplayArguments) -> Result<Outcome> {
    if arguments.files.is_empty() {
        return Ok(no_file("replay"));
    }
    let mut out = Verdicts::to(io::stdout().lock());
    let mut outcome = Outcome::Right;
    for file in &arguments.files {
        outcome = outcome.max(match CaptureReader::open(file) {
            Ok(reader) => replay(file, reader, arguments, &mut out)?,
            Err(error) => in_file(file, &error, false),
        });
    }
    Ok(outcome)
}

/// Replays one capture.
fn replay(
    file: &Path,
    mut reader: CaptureReader,
    arguments: &ReplayArguments,
    out: &mut impl Write,
) -> Result<Outcome> {
    let mut recording = Recording::default();
    let progress = Progress::of(&reader);
    let end = loop {
        match reader.next() {
            Ok(Some(record)) => recording.add(record.number, record.raw_frame()),
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        }
        progress.at(&reader);
    };
    drop(progress);
    let report = match arguments.like {
        Peer::Roxe => recording.replay(),
        other => recording.replay_as(other),
    };
    let name = name_of(file);
    let mut ink = Ink::new(false);
    if arguments.json {
        tell_json(&name, &report, &mut ink);
    } else {
        tell(&name, &report, &mut ink);
    }
    out.write_all(ink.bytes())?;
    out.flush()?;
    let found = if report.differences() > 0 { Outcome::Findings } else { Outcome::Right };
    if let Err(error) = end {
        return Ok(in_file(file, &error, reader.is_unpacked()));
    }
    let found = found.max(at_end(file, &reader, report.roce, report.roce_v1));
    if report.sides.iter().any(|side| side.played > 0) {
        return Ok(found);
    }
    if report.roce > 0 {
        complain(format_args!("{name}: nothing in it can be replayed"));
    }
    Ok(Outcome::Unreadable)
}

/// For people.
fn tell(name: &str, report: &Report, ink: &mut Ink) {
    let rows: Vec<[String; 6]> = report.sides.iter().map(row).collect();
    let mut widths = [0; 6];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    ink.display(format_args!("{name}:\n"));
    for (side, row) in report.sides.iter().zip(&rows) {
        ink.str(" ");
        for (place, (cell, width)) in row.iter().zip(widths).enumerate() {
            let at = ink.at();
            ink.byte(b' ');
            let is_number = matches!(place, 0 | 4);
            let gap = width - cell.chars().count();
            if is_number {
                ink.fill(b' ', gap);
            }
            ink.str(cell);
            if !is_number && place != 5 {
                ink.fill(b' ', gap);
            }
            debug_assert_eq!(ink.width_from(at), width + 1);
            ink.byte(b' ');
        }
        ink.display(format_args!("{}\n", verdict(side)));
        for difference in &side.differences {
            ink.display(format_args!(
                "      frame {}: {}: recorded {}; ours {}{}\n",
                difference.frame,
                difference.what,
                difference.recorded,
                difference.ours,
                known(difference).map(|known| format!(" ({known})")).unwrap_or_default(),
            ));
        }
        for stop in &side.not_comparable {
            ink.display(format_args!("      from frame {}: {}\n", stop.frame, stop.why));
        }
        for why in &side.why {
            ink.display(format_args!("      {}: {why}\n", why_of(side.role)));
        }
    }
    if report.sides.iter().any(|side| side.role == Role::Receiver) {
        ink.display(format_args!("  {Q_KEYS}\n"));
    }
    summary(name, report, ink);
}

/// What stands before a reason: a responder's memory, keys, rights and receives are inferred, and
/// its reason with them.
const fn why_of(role: Role) -> &'static str {
    match role {
        Role::Responder | Role::Receiver => "why, as set up here",
        Role::Requester | Role::Sender => "why",
    }
}

/// No frame tells a receiver's key.
const Q_KEYS: &str = "A receiver's Q_Key is not on the wire: that of most datagrams is assumed to \
                      be right, and `delivered` says no more.";

/// Of whom a difference is known.
fn known(difference: &Difference) -> Option<String> {
    let known = difference.known?;
    Some(format!("{} does this; {}", known.peer.title(), known.why))
}

fn row(side: &Side) -> [String; 6] {
    [
        conversation(side).to_string(),
        side.service.name().to_owned(),
        side.role.name().to_owned(),
        format!("{} ↔ {}", endpoint(side.own), endpoint(side.peer)),
        side.compared.to_string(),
        "compared:".to_owned(),
    ]
}

/// Its number; 0 for none.
fn conversation(side: &Side) -> u32 {
    side.conversation.map_or(0, NonZeroU32::get)
}

fn endpoint((address, qp): Endpoint) -> String {
    match qp {
        Some(qp) => format!("{address} QP {qp}"),
        None => address.to_string(),
    }
}

/// `the same; 2 not arrived, 1 coalesced`.
fn verdict(side: &Side) -> String {
    let mut words = match (side.differences.len(), side.not_comparable.is_empty()) {
        (0, true) if side.compared == 0 => "nothing to compare".to_owned(),
        (0, true) => "the same".to_owned(),
        (0, false) if side.compared == 0 => "cannot be compared".to_owned(),
        (0, false) => "the same as far as comparable".to_owned(),
        (1, _) => "1 difference".to_owned(),
        (count, _) => format!("{count} differences"),
    };
    for (index, (count, what)) in
        happenings(side).into_iter().filter(|(count, _)| *count > 0).enumerate()
    {
        words += if index == 0 { "; " } else { ", " };
        words += &format!("{count} {what}");
    }
    words
}

fn happenings(side: &Side) -> [(u64, &'static str); 11] {
    [
        (side.delivered, "delivered"),
        (side.dropped, "dropped"),
        (side.lost, "not arrived"),
        (side.coalesced, "coalesced"),
        (side.extra, "sent more"),
        (side.needless, "needless"),
        (side.unseen, "not recorded"),
        (side.uncaptured, "not captured"),
        (side.older, "older"),
        (side.gaps, "begun anew"),
        (side.changed, "app changed"),
    ]
}

fn summary(name: &str, report: &Report, ink: &mut Ink) {
    let sides = report.sides.len() as u64;
    ink.display(format_args!("{name}: "));
    counted(report.roce, "RoCE frame", ink);
    ink.str(", ");
    counted(sides, "side", ink);
    ink.str(" played, ");
    let compared = report.sides.iter().any(|side| side.compared > 0 || side.played > 0);
    match report.differences() as u64 {
        0 if !compared => ink.str("nothing could be compared"),
        0 => ink.str("no difference"),
        count => counted(count, "difference", ink),
    }
    let stops: u64 = report.sides.iter().map(|side| side.not_comparable.len() as u64).sum();
    let facts = [
        (stops, "place that cannot be compared", "places that cannot be compared"),
        (report.malformed, "malformed frame", "malformed frames"),
        (report.cut, "cut frame", "cut frames"),
        (report.roce_v1, "frame of RoCE v1 not read", "frames of RoCE v1 not read"),
        (report.notifications, "CNP not played", "CNPs not played"),
    ];
    for (count, one, many) in facts.into_iter().filter(|(count, ..)| *count > 0) {
        ink.display(format_args!("; {count} {}", if count == 1 { one } else { many }));
    }
    ink.byte(b'\n');
}

/// For programs.
fn tell_json(name: &str, report: &Report, ink: &mut Ink) {
    for side in &report.sides {
        for difference in &side.differences {
            let mut object = Object::begin(ink);
            object.text("file", name);
            object.number("frame", difference.frame);
            object.number("conversation", conversation(side).into());
            object.text("role", side.role.name());
            object.text("differs", difference.what);
            object.text("recorded", &difference.recorded);
            object.text("ours", &difference.ours);
            if let Some(known) = difference.known {
                object.text("known_of", known.peer.name());
                object.text("known", known.why);
            }
            object.end();
        }
        for stop in &side.not_comparable {
            let mut object = Object::begin(ink);
            object.text("file", name);
            object.number("frame", stop.frame);
            object.number("conversation", conversation(side).into());
            object.text("role", side.role.name());
            object.text("not_comparable", &stop.why);
            object.end();
        }
    }
    for side in &report.sides {
        let mut object = Object::begin(ink);
        object.text("summary", "side");
        object.text("file", name);
        object.number("conversation", conversation(side).into());
        object.text("service", side.service.name());
        object.text("role", side.role.name());
        for (address_name, qp_name, (address, qp)) in
            [("own", "own_qp", side.own), ("peer", "peer_qp", side.peer)]
        {
            object.field(address_name, FieldValue::Address(address));
            if let Some(qp) = qp {
                object.number(qp_name, qp.get().into());
            }
        }
        object.number("played", side.played);
        object.number("compared", side.compared);
        for (count, what) in happenings(side) {
            object.number(&what.replace(' ', "_"), count);
        }
        object.number("differences", side.differences.len() as u64);
        if !side.why.is_empty() {
            object.text("why", &side.why.join("; "));
            if matches!(side.role, Role::Responder | Role::Receiver) {
                object.text("why_from", "what is inferred of it");
            }
        }
        if side.role == Role::Receiver {
            object.text("assumed", "q_key");
        }
        object.end();
    }
    let mut object = Object::begin(ink);
    object.text("summary", "file");
    object.text("file", name);
    object.number("roce_frames", report.roce);
    object.number("roce_v1_frames", report.roce_v1);
    object.number("malformed", report.malformed);
    object.number("cut", report.cut);
    object.number("cnps", report.notifications);
    object.number("sides", report.sides.len() as u64);
    object.number("differences", report.differences() as u64);
    object.end();
}
