//! The `.roce` language: what goes into a device, what must come out, and when.
//!
//! It is described where its scripts are, on one page: `tests/conformance/README.md`.

mod frame_in;
mod frame_out;
mod objects;
mod parameters;
mod parse;
mod requests;
mod run;
mod syntax;
mod words;
mod world;

use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

pub use parse::ParseError;
pub use run::Failure;

/// How scripts are run.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How much of what happened before a failure is told.
    pub before: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { before: 12 }
    }
}

/// How a script ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Outcome {
    /// All came true.
    Passed {
        /// How many statements.
        statements: usize,
    },
    /// A line did not come true.
    Failed(Failure),
    /// The text is no script.
    Wrong(ParseError),
    /// The file cannot be read.
    Unreadable(String),
}

impl Outcome {
    /// The exit status: 0 right, 1 a difference, 2 unreadable.
    pub const fn exit_status(&self) -> u8 {
        match self {
            Self::Passed { .. } => 0,
            Self::Failed(_) => 1,
            Self::Wrong(_) | Self::Unreadable(_) => 2,
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Passed { statements } => write!(f, "ok, {statements} statements"),
            Self::Failed(failure) => failure.fmt(f),
            Self::Wrong(error) => error.fmt(f),
            Self::Unreadable(why) => f.write_str(why),
        }
    }
}

/// Runs the script in a file.
pub fn run_file(path: &Path, options: &Options) -> Outcome {
    let name = path.display().to_string();
    match read(path) {
        Ok(bytes) if bytes.len() > MOST_TEXT => {
            Outcome::Unreadable(format!("{name}: no script: it has more than {MOST_TEXT} bytes"))
        }
        // Some editors begin a text with a byte order mark.
        Ok(bytes) => {
            match str::from_utf8(bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(&bytes)) {
                Ok(text) => run_text(&name, text, options),
                Err(_) => Outcome::Unreadable(format!("{name}: no script: it is no text in UTF-8")),
            }
        }
        Err(error) => Outcome::Unreadable(format!("{name}: cannot be read: {error}")),
    }
}

/// The longest text that is a script.
const MOST_TEXT: usize = 1 << 24;

/// What is in a file, as far as it may be a script: some files have no end.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MOST_TEXT as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Runs a script; `name` is what failures call it.
pub fn run_text(name: &str, text: &str, options: &Options) -> Outcome {
    match parse::parse(name, text) {
        Err(error) => Outcome::Wrong(error),
        Ok(script) => match run::run(name, &script, options.before) {
            Ok(statements) => Outcome::Passed { statements },
            Err(failure) => Outcome::Failed(failure),
        },
    }
}
