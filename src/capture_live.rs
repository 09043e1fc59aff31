//! `roxe capture`: what a running adapter sends and receives, into a file or in words.

use std::io::{self, Write as _};
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Result, anyhow};
use roxe_net::capture::{Keep, Keeper, Settings};
use roxe_net::capture_file::{
    CaptureReader, CaptureWriter, Interface, LinkType, NewInterface, NewRecord, Record, WriteError,
};
use roxe_verbs::status::{Info, lost_before};

use crate::adapters::Adapter;
use crate::cli::CaptureArguments;
use crate::examine::{Batch, Dissector, Examiner, HEADERS};
use crate::explain::filter::Filter;
use crate::explain::ink::Ink;
use crate::explain::json;
use crate::explain::lines::Lines;
use crate::outcome::{Outcome, complain, counted, is_closed_pipe};

/// The command.
pub(crate) fn run(arguments: &CaptureArguments) -> Result<Outcome> {
    let filter = match arguments.filter.as_deref().map(Filter::parse).transpose() {
        Ok(filter) => filter,
        Err(error) => return Ok(Outcome::usage(format_args!("--filter: {error}"))),
    };
    let is_stream = arguments.write.as_deref() == Some(Path::new("-"));
    if is_stream && (arguments.ring.is_some() || arguments.last.is_some()) {
        return Ok(Outcome::usage("--ring and --last need a file: standard output is none"));
    }
    let adapter = match one(arguments.device.as_deref()) {
        Ok(adapter) => adapter,
        Err(outcome) => return Ok(outcome),
    };
    let sink = match Sink::begin(arguments, &adapter.info) {
        Ok(sink) => Mutex::new(sink),
        Err(error) => return Ok(Outcome::usage(error)),
    };
    let title = adapter.title();
    let recorded = match adapter.record(ROOM) {
        Ok(recorded) => recorded,
        Err(error) => {
            complain(format_args!("{title}: {error}"));
            return Ok(Outcome::Lacking);
        }
    };
    // Whoever interrupts it has it end as if the adapter had closed; so does a flush that fails.
    ctrlc::set_handler(recorded.closer()?)?;
    let close = recorded.closer()?;
    complain(format_args!("recording {title}; Ctrl-C ends it"));
    let reader = CaptureReader::new(recorded).map_err(|error| anyhow!("{title}: {error}"))?;

    let mut tally = Tally::default();
    let result = thread::scope(|scope| {
        let (done, is_done) = mpsc::channel::<()>();
        let sink = &sink;
        // What there is can be read while nothing more comes.
        let flushes = scope.spawn(move || {
            while is_done.recv_timeout(FLUSH_EVERY) == Err(RecvTimeoutError::Timeout) {
                lock(sink).flush().inspect_err(|_| close())?;
            }
            Ok(())
        });
        let result = pass(reader, filter.as_ref(), arguments.count, sink, &mut tally);
        drop(done);
        // It ended because of a flush, if that failed.
        flushes.join().unwrap_or(Ok(())).and(result)
    });
    let sink = sink.into_inner().unwrap_or_else(PoisonError::into_inner);
    let result = result.and_then(|()| sink.finish());
    let Tally { kept, lost } = tally;
    let lost = if lost > 0 { format!(", {lost} lost: read too slowly") } else { String::new() };
    complain(format_args!("{}{lost}", counted(kept as usize, "frame")));
    match result {
        Err(Trouble::Output(error)) if is_closed_pipe(&error) => Ok(Outcome::Right),
        Err(Trouble::Output(error)) => Err(error.into()),
        Err(Trouble::File(error)) => Ok(Outcome::usage(error)),
        Ok(()) => Ok(Outcome::Right),
    }
}

/// The one adapter that is meant.
fn one(wanted: Option<&str>) -> Result<Adapter, Outcome> {
    let mut adapters = Adapter::find(wanted)?;
    if adapters.len() > 1 {
        let all: Vec<_> = adapters
            .iter()
            .map(|adapter| format!("{}/{}", adapter.info.pid, adapter.name()))
            .collect();
        return Err(Outcome::usage(format_args!(
            "{} adapters are open: say by -d which, of {}",
            all.len(),
            all.join(", ")
        )));
    }
    Ok(adapters.remove(0))
}

/// What was done.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    kept: u64,
    lost: u64,
}

/// Why a recording had to end.
enum Trouble {
    /// Standard output.
    Output(io::Error),
    File(String),
}

impl From<WriteError> for Trouble {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Output(error) => Self::Output(error),
            error => Self::Output(io::Error::other(error)),
        }
    }
}

/// Hands frames to the sink, until there are as many as were asked for or the stream ends.
fn pass(
    mut reader: CaptureReader,
    filter: Option<&Filter>,
    count: Option<u64>,
    sink: &Mutex<Sink>,
    tally: &mut Tally,
) -> Result<(), Trouble> {
    let mut dissector = Dissector::new(HEADERS);
    let mut examiner = Examiner::default();
    let mut batch = Batch::default();
    let is_examined = filter.is_some() || lock(sink).tells();
    while count.is_none_or(|count| tally.kept < count) {
        // Its end, however it comes, is the end of the recording: what there is was whole frames.
        let Ok(Some(record)) = reader.next() else { return Ok(()) };
        tally.lost += record.comment.and_then(lost_before).unwrap_or(0);
        if is_examined {
            batch.clear();
            dissector.read(&record, &mut batch);
            examiner.examine(&mut batch);
            let is_shown = |filter: &Filter| batch.entries().any(|entry| filter.matches(&entry));
            if batch.is_empty() || filter.is_some_and(|filter| !is_shown(filter)) {
                continue;
            }
        }
        lock(sink).put(&record, &batch)?;
        tally.kept += 1;
    }
    Ok(())
}

fn lock(sink: &Mutex<Sink>) -> MutexGuard<'_, Sink> {
    sink.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where frames go.
enum Sink {
    File(Keeper),
    Stream(CaptureWriter<io::Stdout>),
    Text { lines: Lines, ink: Ink },
    Json(Ink),
}

impl Sink {
    fn begin(arguments: &CaptureArguments, info: &Info) -> Result<Self, String> {
        let Some(file) = &arguments.write else {
            let (lines, ink) = (Lines::live(), Ink::new(false));
            return Ok(if arguments.json { Self::Json(ink) } else { Self::Text { lines, ink } });
        };
        let link_type = LinkType(info.link_type);
        if file == Path::new("-") {
            let begun = CaptureWriter::new(io::stdout()).and_then(|mut writer| {
                let (name, description) = (info.name.as_str(), info.mode.as_str());
                writer.add_interface(NewInterface { name, description, link_type, snap_len: 0 })?;
                Ok(writer)
            });
            return begun.map(Self::Stream).map_err(|error| error.to_string());
        }
        if file.is_dir() {
            return Err(format!("{} is a folder: name a file in it", file.display()));
        }
        let keep = match (arguments.ring, arguments.last) {
            (Some((bytes, count)), _) => Keep::Files { bytes, count },
            (None, Some(frames)) => Keep::Last { frames: frames as usize },
            (None, None) => Keep::All,
        };
        let name = Some(info.name.clone());
        let interface = Interface { name, link_type, snap_len: 0, skipped: 0 };
        let longest = info.active_mtu as usize + AROUND_PAYLOAD;
        let settings = Settings { keep, ..Settings::default() };
        Keeper::create(file, &interface, longest, &settings)
            .map(Self::File)
            .map_err(|error| error.to_string())
    }

    /// Whether it says what frames mean.
    const fn tells(&self) -> bool {
        matches!(self, Self::Text { .. } | Self::Json(_))
    }

    fn put(&mut self, record: &Record<'_>, batch: &Batch) -> Result<(), Trouble> {
        match self {
            Self::File(keeper) => keeper.keep(record).map_err(Trouble::File),
            Self::Stream(writer) => Ok(writer.write(&NewRecord {
                interface: 0,
                time: record.time,
                data: record.data,
                wire_len: record.wire_len,
                direction: record.direction,
                comment: record.comment,
            })?),
            Self::Text { lines, ink } => {
                lines.begin(batch, None, ink);
                batch.entries().for_each(|entry| lines.line(&entry, ink));
                if ink.at() >= BLOCK { self.flush() } else { Ok(()) }
            }
            Self::Json(ink) => {
                batch.entries().for_each(|entry| json::frame(&entry, None, ink));
                if ink.at() >= BLOCK { self.flush() } else { Ok(()) }
            }
        }
    }

    fn flush(&mut self) -> Result<(), Trouble> {
        match self {
            Self::File(keeper) => keeper.flush().map_err(Trouble::File),
            Self::Stream(writer) => Ok(writer.flush()?),
            Self::Text { ink, .. } | Self::Json(ink) => {
                let mut out = io::stdout().lock();
                let written = out.write_all(ink.bytes()).and_then(|()| out.flush());
                ink.clear();
                written.map_err(Trouble::Output)
            }
        }
    }

    fn finish(mut self) -> Result<(), Trouble> {
        self.flush()?;
        match self {
            Self::File(keeper) => keeper.finish().map_err(Trouble::File),
            Self::Stream(_) | Self::Text { .. } | Self::Json(_) => Ok(()),
        }
    }
}

/// Bytes around the payload of a packet are fewer.
const AROUND_PAYLOAD: usize = 256;

/// Bytes of frames that may wait in the adapter.
const ROOM: u32 = 16 << 20;

/// So often what there is is shown, or written.
const FLUSH_EVERY: Duration = Duration::from_millis(100);

/// Text is written at once from so many bytes on.
const BLOCK: usize = 64 << 10;
