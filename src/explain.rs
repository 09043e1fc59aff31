//! `roxe explain`: a capture, frame by frame, in words.
//!
//! Two threads share the work: the caller's reads frames, checks them and follows conversations;
//! the other turns batches of them into text and writes it. Batches go round and are used again, so
//! a capture of any length takes the same memory.

mod fields;
pub(crate) mod filter;
pub(crate) mod ink;
pub(crate) mod json;
mod lines;
pub(crate) mod summary;
mod verbose;

use std::io::{self, Write};
use std::sync::mpsc::{self, Receiver, Sender, SyncSender, TryRecvError};
use std::thread;

use anyhow::Result;
use roxe_net::capture_file::{CaptureError, CaptureReader};

use crate::cli::ExplainArguments;
use crate::examine::{Batch, Examiner};
use crate::explain::filter::Filter;
use crate::explain::ink::Ink;
use crate::explain::lines::Lines;
use crate::outcome::{Outcome, at_end, in_file, name_of, no_file};
use crate::progress::Progress;

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
        let mut reader = match CaptureReader::open(file) {
            Ok(reader) => reader,
            Err(error) => {
                outcome = in_file(file, &error);
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
                let lines = Lines::new(reader.total_len().is_none());
                Printing::Text { lines, verbose: arguments.verbose }
            },
            filter: filter.as_ref(),
            ink,
            out: &mut out,
        };
        // Plain lines come of the parsed headers alone.
        let keep_bytes = arguments.json || arguments.verbose || filter.is_some();
        let mut examiner = Examiner::keeping_bytes(keep_bytes);
        let (read, written) = pass(&mut reader, &mut examiner, &mut printer);
        written?;
        if !arguments.no_summary {
            if arguments.json {
                summary::json(&name, &examiner, &reader, &mut printer.ink);
            } else {
                summary::text(&examiner, &reader, &mut printer.ink);
            }
        }
        printer.flush()?;
        outcome = outcome.max(match read {
            Ok(()) => at_end(file, &reader, examiner.tally.roce),
            Err(error) => in_file(file, &error),
        });
    }
    Ok(outcome)
}

/// How many frames go to the printer at once.
const BATCH: usize = 2048;

/// How many batches go round.
const BATCHES: usize = 4;

/// Reads a capture to its end, while another thread prints it. Tells how reading ended and how
/// writing did.
fn pass(
    reader: &mut CaptureReader,
    examiner: &mut Examiner,
    printer: &mut Printer<'_>,
) -> (Result<(), CaptureError>, io::Result<()>) {
    thread::scope(|scope| {
        let (full_to, full_from) = mpsc::sync_channel(BATCHES);
        let (empty_to, empty_from) = mpsc::channel();
        for _ in 0..BATCHES {
            // The other end is here.
            let _ = empty_to.send(Batch::default());
        }
        let printing = thread::Builder::new()
            .name("print".to_owned())
            .spawn_scoped(scope, move || printer.print_all(&full_from, &empty_to));
        let printing = match printing {
            Ok(printing) => printing,
            Err(error) => return (Ok(()), Err(error)),
        };
        let read = read_all(reader, examiner, &full_to, &empty_from);
        drop(full_to);
        match printing.join() {
            Ok(written) => (read, written),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

fn read_all(
    reader: &mut CaptureReader,
    examiner: &mut Examiner,
    full: &SyncSender<Batch>,
    empty: &Receiver<Batch>,
) -> Result<(), CaptureError> {
    let progress = Progress::of(reader);
    // Through a pipe comes what happens just now, perhaps: nothing waits for company there.
    let limit = if reader.total_len().is_some() { BATCH } else { 1 };
    // Where the printer has given up, so do we: it says why.
    while let Ok(mut batch) = empty.recv() {
        batch.clear();
        let mut end = Ok(false);
        while batch.len() < limit {
            match reader.next() {
                Ok(Some(record)) => examiner.examine(&record, &mut batch),
                Ok(None) => {
                    end = Ok(true);
                    break;
                }
                Err(error) => {
                    end = Err(error);
                    break;
                }
            }
        }
        progress.at(reader);
        if full.send(batch).is_err() || end? {
            break;
        }
    }
    Ok(())
}

/// Turns batches into text.
struct Printer<'a> {
    style: Printing<'a>,
    filter: Option<&'a Filter>,
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

impl Printer<'_> {
    fn print_all(&mut self, full: &Receiver<Batch>, empty: &Sender<Batch>) -> io::Result<()> {
        loop {
            let batch = match full.try_recv() {
                Ok(batch) => batch,
                Err(TryRecvError::Disconnected) => return self.flush(),
                Err(TryRecvError::Empty) => {
                    // Time to show what there is.
                    self.flush()?;
                    let Ok(batch) = full.recv() else { return Ok(()) };
                    batch
                }
            };
            self.print(&batch)?;
            // The reader may be through.
            let _ = empty.send(batch);
        }
    }

    fn print(&mut self, batch: &Batch) -> io::Result<()> {
        if let Printing::Text { lines, .. } = &mut self.style
            && !batch.is_empty()
        {
            lines.begin(batch, self.filter, &mut self.ink);
        }
        for entry in batch.entries() {
            if self.filter.is_some_and(|filter| !filter.matches(&entry)) {
                continue;
            }
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
