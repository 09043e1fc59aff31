//! Where recorded frames go: into a file, into one after the other, or into memory.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use roxe_wire::{DropReason, Instant};

use super::{Keep, Record, Settings};
use crate::capture_file::{
    CaptureWriter, Direction, LinkType, NewInterface, NewRecord, Timestamp, WriteError,
};

/// What a recording has done.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) frames: u64,
    pub(super) lost: u64,
    pub(super) files: u64,
    pub(super) errors: u64,
}

/// How the recorded interface is described.
#[derive(Clone)]
pub(super) struct Shown {
    pub(super) name: String,
    pub(super) description: String,
    pub(super) link_type: LinkType,
    /// Bytes of the longest frame that can be a packet.
    pub(super) longest: usize,
}

/// A recording.
pub(super) struct Tape {
    shown: Shown,
    snap_len: u32,
    kept: Kept,
    /// The comment being written.
    comment: String,
    counts: Counts,
    flushed_at: Instant,
    /// No frame waits in a buffer.
    at_once: bool,
}

/// What is kept, and where.
enum Kept {
    File(Writing),
    Files(Writing, Numbered),
    Last(PathBuf, Last),
    /// It could not be written any more.
    Nothing,
}

/// A file that is being written.
struct Writing {
    path: PathBuf,
    writer: CaptureWriter<File>,
    interface: u32,
    /// Bytes in it, or a few more.
    len: u64,
    /// Whether it has a frame.
    has_frame: bool,
    /// Frames that are in the buffer only.
    buffered: u64,
}

/// One file after the other.
struct Numbered {
    folder: PathBuf,
    /// What stands before and behind the number.
    stem: OsString,
    extension: OsString,
    /// The number of the file that is being written, and of the oldest that may be there.
    number: u32,
    oldest: u32,
    bytes: u64,
    count: u32,
}

/// The last frames.
struct Last {
    /// Oldest first, from `next` on, once all places are taken.
    places: Vec<Place>,
    memory: Box<[u8]>,
    /// Bytes of it for each.
    room: usize,
    next: usize,
    count: usize,
}

/// What is known of a frame besides its bytes.
struct Place {
    time: Timestamp,
    direction: Direction,
    len: usize,
    wire_len: usize,
    dropped: Option<DropReason>,
    comment: Option<Box<str>>,
}

impl Tape {
    pub(super) fn begin(path: &Path, shown: Shown, settings: &Settings) -> io::Result<Self> {
        let snap_len = settings.snap_len;
        let mut counts = Counts { files: 1, ..Counts::default() };
        let kept = match settings.keep {
            Keep::All => Kept::File(Writing::begin(path.to_owned(), &shown, snap_len)?),
            Keep::Files { bytes, count } => {
                let files = Numbered::behind_others(path, bytes, count)?;
                Kept::Files(Writing::begin(files.path(files.number), &shown, snap_len)?, files)
            }
            Keep::Last { frames } => {
                // Now it can be told that it will not work.
                Writing::begin(path.to_owned(), &shown, snap_len)?;
                counts.files = 0;
                let cut = if snap_len == 0 { usize::MAX } else { snap_len as usize };
                Kept::Last(path.to_owned(), Last::new(frames, shown.longest.min(cut)))
            }
        };
        let flushed_at = Instant::ZERO;
        Ok(Self {
            shown,
            snap_len,
            kept,
            comment: String::new(),
            counts,
            flushed_at,
            at_once: false,
        })
    }

    pub(super) fn counts(&self) -> Counts {
        self.counts
    }

    /// From now on each frame is handed to the file when it is recorded.
    pub(super) fn write_at_once(&mut self) {
        self.at_once = true;
    }

    /// Records a frame.
    ///
    /// # Errors
    /// What to tell; the recording has ended then.
    pub(super) fn record(&mut self, record: Record<'_>) -> Result<(), String> {
        self.counts.frames += 1;
        let Self { shown, snap_len, kept, comment, counts, .. } = self;
        let result = match kept {
            Kept::File(writing) => writing.write(&record, comment),
            Kept::Files(writing, files) => {
                let has_room = files.make_room(writing, &record, shown, *snap_len, counts);
                // It is lost with those that wait.
                writing.buffered += u64::from(has_room.is_err());
                has_room.and_then(|()| writing.write(&record, comment))
            }
            Kept::Last(_, last) => {
                last.keep(&record);
                Ok(())
            }
            Kept::Nothing => {
                counts.frames -= 1;
                counts.lost += 1;
                Ok(())
            }
        };
        self.settle(result)?;
        if self.at_once { self.flush() } else { Ok(()) }
    }

    /// Hands what is buffered to the file.
    ///
    /// # Errors
    /// What to tell; the recording has ended then.
    pub(super) fn flush(&mut self) -> Result<(), String> {
        let result = match &mut self.kept {
            Kept::File(writing) | Kept::Files(writing, _) => writing.flush(),
            Kept::Last(..) | Kept::Nothing => Ok(()),
        };
        self.settle(result)
    }

    /// The same, if it has not been done for a while.
    pub(super) fn tick(&mut self, now: Instant) -> Result<(), String> {
        if now.since(self.flushed_at) < FLUSH_EVERY {
            return Ok(());
        }
        self.flushed_at = now;
        self.flush()
    }

    /// Has all that is kept in its file.
    ///
    /// # Errors
    /// What to tell. Frames kept in memory stay there.
    pub(super) fn write(&mut self) -> Result<(), String> {
        let Self { shown, snap_len, comment, counts, .. } = self;
        let Kept::Last(path, last) = &mut self.kept else { return self.flush() };
        counts.files += 1;
        let written = Writing::begin(path.clone(), shown, *snap_len)
            .and_then(|mut writing| last.write_to(&mut writing, comment));
        written.map_err(|error| {
            counts.errors += 1;
            format!("cannot write the capture {}: {error}", path.display())
        })
    }

    /// Ends the recording if something went wrong.
    fn settle(&mut self, result: io::Result<()>) -> Result<(), String> {
        let Err(error) = result else { return Ok(()) };
        let (Kept::File(writing) | Kept::Files(writing, _)) = &self.kept else { return Ok(()) };
        self.counts.errors += 1;
        self.counts.frames -= writing.buffered;
        self.counts.lost += writing.buffered;
        let path = writing.path.display();
        let trouble =
            format!("cannot write the capture {path}: {error}; nothing is recorded any more");
        self.kept = Kept::Nothing;
        Err(trouble)
    }
}

impl Writing {
    fn begin(path: PathBuf, shown: &Shown, snap_len: u32) -> io::Result<Self> {
        let mut writer = CaptureWriter::create(&path).map_err(system)?;
        let Shown { name, description, link_type, .. } = shown;
        let interface = NewInterface { name, description, link_type: *link_type, snap_len };
        let interface = writer.add_interface(interface).map_err(system)?;
        let len = writer.buffered() as u64;
        writer.flush().map_err(system)?;
        Ok(Self { path, writer, interface, len, has_frame: false, buffered: 0 })
    }

    fn write(&mut self, record: &Record<'_>, comment: &mut String) -> io::Result<()> {
        let Record { time, direction, ref pieces, wire_len, dropped, comment: told } = *record;
        self.buffered += 1;
        if self.writer.buffered() + most(record) > BUFFERED {
            self.flush()?;
            self.buffered = 1;
        }
        comment.clear();
        match (told, dropped) {
            (Some(told), _) => comment.push_str(told),
            (None, Some(reason)) => {
                let _ = write!(comment, "thrown away: {reason}");
            }
            (None, None) => {}
        }
        self.len += most(record) as u64;
        self.has_frame = true;
        let record = NewRecord {
            interface: self.interface,
            time,
            data: &[],
            wire_len: u32::try_from(wire_len).unwrap_or(u32::MAX),
            direction: Some(direction),
            comment: Some(comment.as_str()).filter(|comment| !comment.is_empty()),
        };
        self.writer.write_pieces(&record, pieces).map_err(system)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush().map_err(system)?;
        self.buffered = 0;
        Ok(())
    }
}

impl Numbered {
    /// Numbers behind all that are there.
    fn behind_others(path: &Path, bytes: u64, count: u32) -> io::Result<Self> {
        let part = |part: Option<&std::ffi::OsStr>| part.unwrap_or_default().to_owned();
        let folder = path.parent().filter(|it| !it.as_os_str().is_empty());
        let mut files = Self {
            folder: folder.unwrap_or_else(|| Path::new(".")).to_owned(),
            stem: part(path.file_stem()),
            extension: part(path.extension()),
            number: 1,
            oldest: 1,
            bytes,
            count: count.max(1),
        };
        for entry in fs::read_dir(&files.folder)? {
            let path = entry?.path();
            if let Some(number) = files.number_of(&path) {
                files.number = files.number.max(number.saturating_add(1));
            }
        }
        files.oldest = files.number;
        Ok(files)
    }

    fn path(&self, number: u32) -> PathBuf {
        let mut name = self.stem.clone();
        name.push(format!("_{number:05}"));
        self.folder.join(name).with_extension(&self.extension)
    }

    fn number_of(&self, path: &Path) -> Option<u32> {
        let digits = path.file_stem()?.to_str()?.strip_prefix(self.stem.to_str()?)?;
        let number = digits.strip_prefix('_')?.parse().ok()?;
        (self.path(number) == path).then_some(number)
    }

    /// Begins the next file if the frame has no room in this one. One that has room in none has a
    /// file for itself.
    fn make_room(
        &mut self,
        writing: &mut Writing,
        record: &Record<'_>,
        shown: &Shown,
        snap_len: u32,
        counts: &mut Counts,
    ) -> io::Result<()> {
        if !writing.has_frame || writing.len + most(record) as u64 <= self.bytes {
            return Ok(());
        }
        writing.flush()?;
        self.number += 1;
        *writing = Writing::begin(self.path(self.number), shown, snap_len)?;
        counts.files += 1;
        while self.number - self.oldest >= self.count {
            let oldest = self.path(self.oldest);
            match fs::remove_file(&oldest) {
                // Somebody may have taken it away.
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    let what = format!("{} cannot be removed: {error}", oldest.display());
                    return Err(io::Error::new(error.kind(), what));
                }
                _ => self.oldest += 1,
            }
        }
        Ok(())
    }
}

impl Last {
    fn new(frames: usize, room: usize) -> Self {
        let frames = frames.max(1);
        Self {
            places: Vec::with_capacity(frames),
            memory: vec![0; frames * room].into(),
            room,
            next: 0,
            count: frames,
        }
    }

    fn keep(&mut self, record: &Record<'_>) {
        let Record { time, direction, ref pieces, wire_len, dropped, comment } = *record;
        let mut len = 0;
        let memory = &mut self.memory[self.next * self.room..][..self.room];
        for piece in pieces {
            let piece = &piece[..piece.len().min(self.room - len)];
            memory[len..len + piece.len()].copy_from_slice(piece);
            len += piece.len();
        }
        // A port has none, so that it allocates nothing.
        let comment = comment.map(Box::from);
        let place = Place { time, direction, len, wire_len, dropped, comment };
        match self.places.get_mut(self.next) {
            Some(old) => *old = place,
            None => self.places.push(place),
        }
        self.next = (self.next + 1) % self.count;
    }

    fn write_to(&self, writing: &mut Writing, comment: &mut String) -> io::Result<()> {
        let oldest = if self.places.len() < self.count { 0 } else { self.next };
        for number in 0..self.places.len() {
            let at = (oldest + number) % self.count;
            let Place { time, direction, len, wire_len, dropped, comment: ref told } =
                self.places[at];
            let pieces = [&self.memory[at * self.room..][..len], &[], &[]];
            let told = told.as_deref();
            let record = Record { time, direction, pieces, wire_len, dropped, comment: told };
            writing.write(&record, comment)?;
        }
        writing.flush()
    }
}

/// The most bytes that a frame takes in a file: with a block's own, direction, comment, padding.
fn most(record: &Record<'_>) -> usize {
    let told = record.comment.map_or(0, |comment| comment.len().min(MAX_COMMENT));
    let comment = if record.dropped.is_some() { told.max(LONGEST_COMMENT) } else { told };
    record.pieces.iter().map(|piece| piece.len()).sum::<usize>() + comment + 56
}

fn system(error: WriteError) -> io::Error {
    match error {
        WriteError::Output(error) => error,
        WriteError::Busy => io::Error::new(io::ErrorKind::ResourceBusy, error),
        error => io::Error::other(error),
    }
}

/// How much is written to a file at once, at most; less than the writer's own buffer, so that only
/// whole frames go.
const BUFFERED: usize = 192 * 1024;

/// More of a comment is not written.
const MAX_COMMENT: usize = u16::MAX as usize;

/// No reason takes more words.
const LONGEST_COMMENT: usize = 160;

/// So often what is buffered is written in any case.
const FLUSH_EVERY: Duration = Duration::from_secs(1);
