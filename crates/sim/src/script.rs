//! The `.roce` language: what goes into a device, what must come out, and when.
//!
//! It is described where its scripts are, on one page: `tests/conformance/README.md`.

mod check;
mod frame_in;
mod frame_out;
mod mistake;
mod objects;
mod parameters;
mod parse;
mod requests;
mod run;
mod syntax;
mod words;
mod world;

use std::fmt;
use std::fs;
use std::path::Path;

pub use mistake::ParseError;
use run::Ended;
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
    /// The text is no script: what is wrong with it, at least one thing.
    Wrong(Vec<ParseError>),
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
            Self::Wrong(errors) => {
                let lines: Vec<_> = errors.iter().map(ToString::to_string).collect();
                f.write_str(&lines.join("\n"))
            }
            Self::Unreadable(why) => f.write_str(why),
        }
    }
}

/// Runs the script in a file.
pub fn run_file(path: &Path, options: &Options) -> Outcome {
    let name = path.display().to_string();
    match fs::read_to_string(path) {
        Ok(text) => run_text(&name, &text, options),
        Err(error) => Outcome::Unreadable(format!("{name}: cannot be read: {error}")),
    }
}

/// Runs a script; `name` is what failures call it.
pub fn run_text(name: &str, text: &str, options: &Options) -> Outcome {
    let script = match parse::parse(name, text) {
        Ok(script) => script,
        Err(errors) => return Outcome::Wrong(errors),
    };
    let mistakes = check::check(name, &script);
    if !mistakes.is_empty() {
        return Outcome::Wrong(mistakes);
    }
    match run::run(name, &script, options.before) {
        Ok(()) => Outcome::Passed { statements: script.lines.len() },
        Err(Ended::Failed(failure)) => Outcome::Failed(failure),
        Err(Ended::Wrong(mistake)) => Outcome::Wrong(vec![mistake]),
    }
}
