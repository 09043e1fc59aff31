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
use crate::outcome::{
    self, Outcome, Verdicts, at_end, in_file, is_closed_pipe, is_unheard, name_of, no_file,
};
use crate::pass::{Teller, pass};

/// The command.
pub(crate) fn run(arguments: &CheckArguments) -> Result<Outcome> {
    let mut out = Verdicts::to(io::stdout());
    if arguments.rules {
        for rule in Rule::ALL {
            writeln!(out, "{rule:<16}  {}", rule.says())?;
        }
        return Ok(Outcome::Right);
    }
    if arguments.files.is_empty() {
        return Ok(no_file("check"));
    }
    let (mut with_findings, mut unreadable) = (0, 0);
    let mut outcome = Outcome::Right;
    for file in &arguments.files {
        let (findings, of_file) = match CaptureReader::open_for(file, io::stdout()) {
            Ok(reader) => check(file, reader, arguments.json, &mut out)?,
            Err(error) if is_unheard(&error) => return Ok(outcome),
            Err(error) => (0, in_file(file, &error, false)),
        };
        with_findings += usize::from(findings > 0);
        unreadable += usize::from(of_file == Outcome::Unreadable);
        outcome = outcome.max(of_file);
    }
    if arguments.json {
        return Ok(outcome);
    }
    if arguments.files.len() > 1 {
        let files = outcome::counted(arguments.files.len(), "file");
        writeln!(out, "{files}, {with_findings} with findings, {unreadable} not read to the end")?;
    }
    if with_findings > 0 {
        writeln!(out, "what each rule says: `roxe check --rules`")?;
    }
    Ok(outcome)
}

/// Checks one capture. Says how many findings it has, and how it ended.
fn check(
    file: &Path,
    mut reader: CaptureReader,
    json: bool,
    out: &mut (impl Write + Send),
) -> Result<(u64, Outcome)> {
    let name = name_of(file);
    let mut examiner = Examiner::default();
    let mut ink = Ink::new(false);
    let mut reporter = Reporter { name: &name, json, ink: &mut ink, out };
    let (end, told) = pass(&mut reader, &mut examiner, &mut reporter);
    let found = if examiner.tally.findings > 0 { Outcome::Findings } else { Outcome::Right };
    match told {
        Ok(()) => {}
        // More of a pipe may never come: whoever has read enough still learns the verdict so far.
        Err(error) if is_closed_pipe(&error) => return Ok((examiner.tally.findings, found)),
        Err(error) => return Err(error.into()),
    }
    if json {
        summary::json(&name, &examiner, &reader, None, &mut ink);
    } else if !matches!(end, Err(CaptureError::NothingReadable { .. })) {
        ink.str(&name);
        ink.str(": ");
        let limit = match (&end, reader.truncated()) {
            (Err(_), _) => " up to where it can be read",
            (Ok(()), Some(_)) => " up to where it ends early",
            (Ok(()), None) => "",
        };
        verdict(&examiner, &reader, limit, &mut ink);
        ink.byte(b'\n');
    }
    out.write_all(ink.bytes())?;
    out.flush()?;
    let outcome = match end {
        Err(error) => in_file(file, &error, reader.is_unpacked()),
        Ok(()) => found.max(at_end(file, &reader, examiner.tally.roce, examiner.tally.roce_v1)),
    };
    Ok((examiner.tally.findings, outcome))
}

/// Writes findings.
struct Reporter<'a, W> {
    name: &'a str,
    json: bool,
    ink: &'a mut Ink,
    out: &'a mut W,
}

impl<W: Write + Send> Teller for Reporter<'_, W> {
    fn wants_bytes(&self) -> usize {
        0
    }

    fn tell(&mut self, batch: &Batch) -> io::Result<()> {
        for entry in batch.entries() {
            for finding in entry.findings {
                if self.json {
                    summary::finding_json(self.name, &entry, finding, self.ink);
                } else {
                    let (name, number) = (self.name, entry.row.number);
                    self.ink.display(format_args!("{name}: frame {number}: {finding}\n"));
                }
            }
        }
        self.flush()
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.write_all(self.ink.bytes())?;
        self.ink.clear();
        Ok(())
    }
}

/// `41 RoCE frames in 1 conversation, no finding; 3 retransmissions, 1 gap`, and what was not
/// judged. `limit` says how far that goes.
fn verdict(examiner: &Examiner, reader: &CaptureReader, limit: &str, ink: &mut Ink) {
    let (tally, counts) = (&examiner.tally, examiner.tracer.summary());
    counted(tally.roce, "RoCE frame", ink);
    ink.str(" in ");
    counted(examiner.tracer.conversations().len() as u64, "conversation", ink);
    ink.str(", ");
    match tally.findings {
        0 => ink.str("no finding"),
        findings => counted(findings, "finding", ink),
    }
    ink.str(limit);
    let facts = [
        (counts.retransmissions, "retransmission"),
        (counts.duplicates, "duplicate"),
        (counts.gaps, "gap"),
        (counts.rnr_naks, "RNR NAK"),
        (counts.naks.iter().map(|(_, count)| count).sum::<u64>(), "NAK"),
        (counts.cnps, "CNP"),
        (counts.marked, "congestion mark"),
        (counts.unclear_answers, "unclear answer"),
    ];
    let some = facts.into_iter().filter(|(count, _)| *count > 0);
    for (index, (count, what)) in some.enumerate() {
        ink.str(if index == 0 { "; " } else { ", " });
        counted(count, what, ink);
    }
    for what in summary::left_out(examiner, reader) {
        ink.str("; ");
        ink.str(&what);
    }
}
