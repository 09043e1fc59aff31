//! Frames of virtual time into a capture.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use anyhow::{Result, ensure};
use roxe_net::capture_file::{
    CaptureWriter, Direction, LinkType, NewInterface, NewRecord, Timestamp, WriteError,
};
use roxe_wire::Instant;

use crate::outcome::{Outcome, complain, name_of};

/// A frame and what is known of it.
pub(crate) struct Frame<'a> {
    pub(crate) time: Instant,
    /// From its Ethernet header on.
    pub(crate) bytes: &'a [u8],
    pub(crate) direction: Option<Direction>,
    /// Nothing when it is empty.
    pub(crate) comment: String,
}

/// Looks whether a capture is to be in a file.
///
/// # Errors
/// It is not.
pub(crate) fn is_file(path: &Path) -> Result<()> {
    let told = "--capture -: name a file, standard output is for what is told";
    ensure!(path != Path::new("-"), told);
    Ok(())
}

/// Looks whether a capture would take the place of what the command reads.
///
/// # Errors
/// It would.
pub(crate) fn overwrites_none<'a>(
    path: &Path,
    inputs: impl IntoIterator<Item = &'a Path>,
) -> Result<()> {
    let file_of = |path: &Path| {
        let is_input = path == Path::new("-");
        let path = if is_input { Path::new("/dev/stdin") } else { path };
        fs::metadata(path).ok().filter(fs::Metadata::is_file).map(|it| (it.dev(), it.ino()))
    };
    let Some(file) = file_of(path).filter(|_| path != Path::new("-")) else { return Ok(()) };
    for input in inputs {
        ensure!(
            file_of(input) != Some(file),
            "--capture {}: that is {}, which is read",
            name_of(path),
            name_of(input)
        );
    }
    Ok(())
}

/// Writes frames as pcapng, of an interface with a name and what is said about it; complains where
/// that is not possible.
pub(crate) fn write<'a>(
    path: &Path,
    name: &str,
    about: &str,
    frames: impl Iterator<Item = Frame<'a>>,
) -> Outcome {
    if let Err(error) = is_file(path) {
        return Outcome::usage(error);
    }
    match try_write(path, name, about, frames) {
        Ok(()) => Outcome::Right,
        Err(error) => {
            complain(format_args!("{}: {error}", path.display()));
            Outcome::Unreadable
        }
    }
}

fn try_write<'a>(
    path: &Path,
    name: &str,
    about: &str,
    frames: impl Iterator<Item = Frame<'a>>,
) -> Result<(), WriteError> {
    let mut writer = CaptureWriter::create(path)?;
    let interface =
        NewInterface { name, description: about, link_type: LinkType::ETHERNET, snap_len: 0 };
    let interface = writer.add_interface(interface)?;
    for frame in frames {
        writer.write(&NewRecord {
            interface,
            time: Timestamp::from_nanos(frame.time.nanos()),
            data: frame.bytes,
            wire_len: 0,
            direction: frame.direction,
            comment: Some(frame.comment.as_str()).filter(|comment| !comment.is_empty()),
        })?;
    }
    writer.flush()
}
