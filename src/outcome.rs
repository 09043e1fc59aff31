//! How a command ends: exit codes, and messages that name the file.

use std::fmt;
use std::io;
use std::path::Path;
use std::process::ExitCode;

/// What the exit code tells. The greatest of several counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Outcome {
    /// 0.
    Right,
    /// 1: findings.
    Findings,
    /// 2: usage, or input that cannot be read.
    Unreadable,
}

impl Outcome {
    /// A mistake on the command line that clap cannot see.
    pub(crate) fn usage(message: impl fmt::Display) -> Self {
        complain(message);
        Self::Unreadable
    }
}

impl From<Outcome> for ExitCode {
    fn from(outcome: Outcome) -> Self {
        Self::from(outcome as u8)
    }
}

/// What a file is called in messages.
pub(crate) fn name_of(file: &Path) -> String {
    if file == Path::new("-") { "standard input".to_owned() } else { file.display().to_string() }
}

/// Says what is wrong with a file.
pub(crate) fn in_file(file: &Path, error: &dyn fmt::Display) -> Outcome {
    complain(format_args!("{}: {error}", name_of(file)));
    Outcome::Unreadable
}

/// A line on standard error; if that is closed, nobody wants to know.
pub(crate) fn complain(message: impl fmt::Display) {
    let _ = io::Write::write_all(&mut io::stderr(), format!("roxe: {message}\n").as_bytes());
}

/// Whether an error only means that nobody reads our output any more.
pub(crate) fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let io = error.downcast_ref::<io::Error>();
    io.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
