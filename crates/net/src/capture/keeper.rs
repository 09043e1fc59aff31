//! Frames that somebody else recorded, kept as a recording of one's own is: in a file, in a ring of
//! files, or only the last ones.

use std::path::Path;

use super::tape::{Shown, Tape};
use super::{OpenError, Record, Settings};
use crate::capture_file::{self, Direction, Interface};

/// Keeps frames of one interface.
pub struct Keeper {
    tape: Tape,
    /// Why nothing is kept any more.
    trouble: Option<String>,
}

impl Keeper {
    /// Begins files with frames of this interface; `longest` bytes of a frame are kept in memory,
    /// where [`Keep::Last`](super::Keep::Last) is asked for.
    ///
    /// # Errors
    /// When a file cannot be created or written.
    pub fn create(
        path: &Path,
        interface: &Interface,
        longest: usize,
        settings: &Settings,
    ) -> Result<Self, OpenError> {
        let shown = Shown {
            name: interface.name.clone().unwrap_or_default(),
            description: String::new(),
            link_type: interface.link_type,
            longest,
        };
        let tape = Tape::begin(path, shown, settings);
        let tape = tape.map_err(|source| OpenError { path: path.to_owned(), source })?;
        Ok(Self { tape, trouble: None })
    }

    /// Keeps a frame.
    ///
    /// # Errors
    /// What to tell; nothing is kept any more.
    pub fn keep(&mut self, record: &capture_file::Record<'_>) -> Result<(), String> {
        let kept = self.tape.record(Record {
            time: record.time,
            direction: record.direction.unwrap_or(Direction::Inbound),
            pieces: [record.data, &[], &[]],
            wire_len: record.wire_len as usize,
            dropped: None,
            comment: record.comment,
        });
        self.tell(kept)
    }

    /// Hands what was kept so far to the file. The last frames stay in memory.
    ///
    /// # Errors
    /// What to tell; nothing is kept any more.
    pub fn flush(&mut self) -> Result<(), String> {
        let flushed = self.tape.flush();
        self.tell(flushed)
    }

    /// Has all that is kept in its file.
    ///
    /// # Errors
    /// What to tell.
    pub fn finish(mut self) -> Result<(), String> {
        let written = self.tape.write();
        self.tell(written)
    }

    /// What went wrong is told again, whoever asks.
    fn tell(&mut self, result: Result<(), String>) -> Result<(), String> {
        self.trouble = self.trouble.take().or_else(|| result.err());
        self.trouble.clone().map_or(Ok(()), Err)
    }
}
