//! Where a capture comes from: files, pipes, and whatever they are compressed with.

use std::{
    fs::File,
    io::{self, Read},
    os::fd::AsFd,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::retry_on_intr;

use super::{
    error::CaptureError,
    packed::{Packing, Unpacked},
    window::Window,
};

/// Opens a file; `-` is standard input. Its length too, if it has one.
pub(super) fn open(path: &Path) -> Result<(File, Option<u64>), CaptureError> {
    let open = || {
        let file = if path == Path::new("-") {
            // Not through `io::stdin()`, whose own buffer would cost another copy.
            File::from(io::stdin().as_fd().try_clone_to_owned()?)
        } else {
            File::open(path)?
        };
        let metadata = file.metadata()?;
        Ok((file, metadata.is_file().then_some(metadata.len())))
    };
    open().map_err(|reason| CaptureError::Open { path: path.to_owned(), reason })
}

/// A pipe that is waited for only as long as somebody reads `output`.
pub(super) struct Heard<O> {
    pub(super) source: File,
    pub(super) output: O,
}

impl<O: AsFd> Read for Heard<O> {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let mut fds = [
            // Nothing is asked of it, and that it is broken is told all the same.
            PollFd::new(&self.output, PollFlags::empty()),
            PollFd::new(&self.source, PollFlags::IN),
        ];
        retry_on_intr(|| poll(&mut fds, None))?;
        if !fds[0].revents().is_empty() {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        self.source.read(room)
    }
}

/// How many bytes were read until now.
#[derive(Clone, Default)]
pub(super) struct Progress(Arc<AtomicU64>);

impl Progress {
    pub(super) fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A source that tells how far it was read.
pub(super) struct Counted<R> {
    pub(super) source: R,
    pub(super) progress: Progress,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let read = self.source.read(room)?;
        self.progress.0.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

/// Takes off compression as long as there is some, by what the input begins with, whatever its name
/// may be. Tells whether there was any.
pub(super) fn decompress(source: Box<dyn Read + Send>) -> Result<(Window, bool), CaptureError> {
    let mut window = Window::new(source);
    for layers in 0..=MAX_LAYERS {
        // A shorter input is no capture, and will be found out.
        window.fill(4).map_err(|reason| CaptureError::Read { offset: 0, reason })?;
        let Some(packing) = Packing::of(window.rest()) else { return Ok((window, layers > 0)) };
        let unpacked = Unpacked::new(packing, window.into_source());
        window = Window::new(Box::new(unpacked));
    }
    Err(CaptureError::Nested { limit: MAX_LAYERS })
}

/// A gzip file can be made that unpacks to itself, so there must be an end.
const MAX_LAYERS: u32 = 4;
