//! `roxe explain`: a capture, frame by frame, in words.

mod fields;
pub(crate) mod filter;
pub(crate) mod ink;
pub(crate) mod json;
pub(crate) mod lines;
pub(crate) mod summary;
mod verbose;

use std::io::{self, Write};

use anyhow::Result;
use roxe_net::capture_file::CaptureReader;

use crate::cli::ExplainArguments;
use crate::examine::{Batch, Examiner, HEADERS};
use crate::explain::filter::Filter;
use crate::explain::ink::Ink;
use crate::explain::lines::Lines;
use crate::outcome::{Outcome, at_end, in_file, is_closed_pipe, is_unheard, name_of, no_file};
use crate::pass::{Teller, pass};

/// The command.
pub(crate) fn run(arguments: &ExplainArguments) -> Result<Outcome> {
    let filter = arguments.filter.as_deref().map(Filter::parse).transpose();
    let filter = match filter {
        Ok(filter) => filter,
        Err(error) => return Ok(Outcome::usage(format_args!("--filter: {error}"))),
    };
    if arguments.fields {
        let mut ink = Ink::new(false);
        fields::list(&mut ink);
        io::stdout().write_all(ink.bytes())?;
        return Ok(Outcome::Right);
    }
    if arguments.files.is_empty() {
        return Ok(no_file("explain"));
    }
    let several = arguments.files.len() > 1;
    let mut outcome = Outcome::Right;
    let mut out = io::stdout();
    let mut is_first = true;
    for file in &arguments.files {
        let mut reader = match CaptureReader::open_for(file, io::stdout()) {
            Ok(reader) => reader,
            Err(error) if is_unheard(&error) => return Ok(outcome),
            Err(error) => {
                outcome = in_file(file, &error, false);
                continue;
            }
        };
        let name = name_of(file);
        let mut ink = Ink::new(arguments.colour());
        if several && !arguments.json {
            let gap = if is_first { "" } else { "\n" };
            ink.display(format_args!("{gap}{name}\n"));
        }
        is_first = false;
        let mut printer = Printer {
            style: if arguments.json {
                Printing::Json { file: several.then_some(name.as_str()) }
            } else {
                let verbose = arguments.verbose;
                let lines = Lines::new(reader.total_len().is_none(), !verbose);
                Printing::Text { lines, verbose }
            },
            filter: filter.as_ref(),
            shown: 0,
            ink,
            out: &mut out,
        };
        let mut examiner = Examiner::default();
        let (read, written) = pass(&mut reader, &mut examiner, &mut printer);
        match written {
            Ok(()) => {}
            // Whoever has read enough need not wait for the rest of what may be large.
            Err(error) if is_closed_pipe(&error) => return Ok(outcome),
            Err(error) => return Err(error.into()),
        }
        if !arguments.no_summary {
            let shown = filter.as_ref().map(|_| printer.shown);
            if arguments.json {
                summary::json(&name, &examiner, &reader, shown, &mut printer.ink);
            } else {
                summary::text(&examiner, &reader, shown, &mut printer.ink);
            }
        }
        match printer.flush() {
            Err(error) if !is_closed_pipe(&error) => return Err(error.into()),
            _ => {}
        }
        outcome = outcome.max(match read {
            Ok(()) => at_end(file, &reader, examiner.tally.roce, examiner.tally.roce_v1),
            Err(error) => in_file(file, &error, reader.is_unpacked()),
        });
    }
    Ok(outcome)
}

/// Turns batches into text.
struct Printer<'a> {
    style: Printing<'a>,
    filter: Option<&'a Filter>,
    /// How many frames it let through.
    shown: u64,
    ink: Ink,
    out: &'a mut io::Stdout,
}

#[expect(clippy::large_enum_variant, reason = "there is one of them")]
enum Printing<'a> {
    Text { lines: Lines, verbose: bool },
    Json { file: Option<&'a str> },
}

/// Text is written in blocks of about this many bytes.
const BLOCK: usize = 256 * 1024;

impl Teller for Printer<'_> {
    fn wants_bytes(&self) -> usize {
        match self.style {
            Printing::Text { verbose: true, .. } => HEADERS + verbose::DUMPED,
            // Plain lines come of the parsed headers alone.
            Printing::Text { verbose: false, .. } if self.filter.is_none() => 0,
            _ => HEADERS,
        }
    }

    fn tell(&mut self, batch: &Batch) -> io::Result<()> {
        if let Printing::Text { lines, .. } = &mut self.style
            && !batch.is_empty()
        {
            lines.begin(batch, self.filter, &mut self.ink);
        }
        for entry in batch.entries() {
            if self.filter.is_some_and(|filter| !filter.matches(&entry)) {
                continue;
            }
            self.shown += 1;
            match &mut self.style {
                Printing::Text { lines, verbose } => {
                    lines.line(&entry, &mut self.ink);
                    if *verbose {
                        verbose::headers(&entry, &mut self.ink);
                    }
                }
                Printing::Json { file } => json::frame(&entry, *file, &mut self.ink),
            }
            if self.ink.at() >= BLOCK {
                self.flush()?;
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.ink.at() == 0 {
            return Ok(());
        }
        self.out.write_all(self.ink.bytes())?;
        self.ink.clear();
        self.out.flush()
    }
}
