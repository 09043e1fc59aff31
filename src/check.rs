//! `roxe check`: a verdict over a capture.

use std::io::{self, Write};
use std::path::Path;

use anyhow::Result;
use roxe_net::capture_file::{CaptureError, CaptureReader};
use roxe_trace::Rule;

use crate::cli::CheckArguments;
use crate::examine::{Batch, Examiner};
use crate::explain::ink::Ink;
use crate::explain::summary::{self, counted};
use crate::outcome::{Outcome, at_end, in_file, name_of, no_file};
use crate::progress::Progress;

/// The command.
pub(crate) fn run(arguments: &CheckArguments) -> Result<Outcome> {
    let mut out = io::stdout().lock();
    if arguments.rules {
        for rule in Rule::ALL {
            writeln!(out, "{rule:<16}  {}", rule.says())?;
        }
        return Ok(Outcome::Right);
    }
    if arguments.files.is_empty() {
        return Ok(no_file("check"));
    }
    let mut outcome = Outcome::Right;
    for file in &arguments.files {
        outcome = outcome.max(match CaptureReader::open(file) {
            Ok(reader) => check(file, reader, arguments.json, &mut out)?,
            Err(error) => in_file(file, &error),
        });
    }
    Ok(outcome)
}

/// Checks one capture.
fn check(
    file: &Path,
    mut reader: CaptureReader,
    json: bool,
    out: &mut impl Write,
) -> Result<Outcome> {
    let name = name_of(file);
    let mut examiner = Examiner::default();
    let mut ink = Ink::new(false);
    let end = find(&mut reader, &mut examiner, |batch| {
        for entry in batch.entries() {
            for finding in entry.findings {
                if json {
                    summary::finding_json(&name, &entry, finding, &mut ink);
                } else {
                    let number = entry.row.number;
                    ink.display(format_args!("{name}: frame {number}: {finding}\n"));
                }
            }
        }
        out.write_all(ink.bytes())?;
        ink.clear();
        Ok(())
    })?;
    if json {
        summary::json(&name, &examiner, &reader, &mut ink);
    } else {
        ink.str(&name);
        ink.str(": ");
        let is_whole = end.is_ok() && reader.truncated().is_none();
        verdict(&examiner, is_whole, &mut ink);
        ink.byte(b'\n');
    }
    out.write_all(ink.bytes())?;
    out.flush()?;
    let found = if examiner.tally.findings > 0 { Outcome::Findings } else { Outcome::Right };
    Ok(match end {
        Err(error) => in_file(file, &error),
        Ok(()) => found.max(at_end(file, &reader, examiner.tally.roce)),
    })
}

/// How many frames are looked at before findings are told.
const BATCH: usize = 256;

/// Reads a capture to its end. Tells how reading ended; fails where telling did.
fn find(
    reader: &mut CaptureReader,
    examiner: &mut Examiner,
    mut tell: impl FnMut(&Batch) -> io::Result<()>,
) -> io::Result<Result<(), CaptureError>> {
    let progress = Progress::of(reader);
    let mut batch = Batch::default();
    loop {
        let next = reader.next();
        if let Ok(Some(record)) = &next {
            examiner.examine(record, &mut batch);
            if batch.len() < BATCH {
                continue;
            }
        }
        let end = next.map(|record| record.is_none());
        progress.at(reader);
        tell(&batch)?;
        batch.clear();
        match end {
            Ok(false) => {}
            Ok(true) => return Ok(Ok(())),
            Err(error) => return Ok(Err(error)),
        }
    }
}

/// `41 RoCE frames in 1 conversation, no finding; 3 retransmissions, 1 gap`.
fn verdict(examiner: &Examiner, is_whole: bool, ink: &mut Ink) {
    let (tally, counts) = (&examiner.tally, examiner.tracer.summary());
    counted(tally.roce, "RoCE frame", ink);
    ink.str(" in ");
    counted(examiner.tracer.conversations().len() as u64, "conversation", ink);
    ink.str(", ");
    match tally.findings {
        0 => ink.str("no finding"),
        findings => counted(findings, "finding", ink),
    }
    if !is_whole {
        ink.str(" up to where it ends early");
    }
    let facts = [
        (counts.retransmissions, "retransmission"),
        (counts.duplicates, "duplicate"),
        (counts.gaps, "gap"),
        (counts.rnr_naks + counts.naks.iter().map(|(_, count)| count).sum::<u64>(), "NAK"),
        (counts.cnps, "CNP"),
        (counts.marked, "congestion mark"),
        (tally.cut, "cut frame"),
    ];
    let some = facts.into_iter().filter(|(count, _)| *count > 0);
    for (index, (count, what)) in some.enumerate() {
        ink.str(if index == 0 { "; " } else { ", " });
        counted(count, what, ink);
    }
}
