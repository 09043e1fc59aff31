//! The `.roce` language: what goes into a device, what must come out, and when.
//!
//! It is described where its scripts are, on one page: `tests/conformance/README.md`.

mod bench;
mod check;
mod cm;
mod frame_in;
mod frame_out;
mod live;
mod mad;
mod mistake;
mod objects;
mod parameters;
mod parse;
mod requests;
mod run;
mod symbols;
mod syntax;
mod vocabulary;
mod words;

use std::fmt;
use std::io::Read;

use roxe_wire::Instant;

use crate::text::text_of;

pub use live::{ByHand, Site, Terms};
pub use mistake::ParseError;
pub use parameters::EVENT_NAMES;
pub use run::Failure;
pub use vocabulary::words;

/// How scripts are run.
#[derive(Clone, Copy, Debug)]
pub struct Play {
    /// How much of what happened before a failure is told.
    pub before: usize,
    /// Whether all that happens is kept in [`Played::history`], and not only that much.
    pub transcript: bool,
    /// Whether to keep the frames.
    pub frames: bool,
}

impl Default for Play {
    fn default() -> Self {
        Self { before: 12, transcript: false, frames: false }
    }
}

/// A script that was run.
#[derive(Clone, Debug)]
pub struct Played {
    /// How it ended.
    pub outcome: Outcome,
    /// What happened, with virtual times: lines of the script and what the device did.
    pub history: Vec<String>,
    /// The frames, if they were to be kept.
    pub frames: Vec<PlayedFrame>,
}

impl From<Outcome> for Played {
    fn from(outcome: Outcome) -> Self {
        Self { outcome, history: Vec::new(), frames: Vec::new() }
    }
}

/// A frame of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlayedFrame {
    /// When it passed.
    pub time: Instant,
    /// Whether the device sent it.
    pub outbound: bool,
    /// From its Ethernet header on.
    pub bytes: Vec<u8>,
    /// Which line of the script speaks of it, or at which it passed.
    pub comment: String,
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
    /// The file cannot be read, or the device under test is out of reach.
    Unreadable(String),
    /// The device under test cannot be asked this: why. Nothing in virtual time is skipped.
    Skipped(String),
}

impl Outcome {
    /// The exit status: 0 right, 1 a difference, 2 unreadable.
    pub const fn exit_status(&self) -> u8 {
        match self {
            Self::Passed { .. } | Self::Skipped(_) => 0,
            Self::Failed(_) => 1,
            Self::Wrong(_) | Self::Unreadable(_) => 2,
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Passed { statements: 1 } => f.write_str("ok, 1 statement"),
            Self::Passed { statements } => write!(f, "ok, {statements} statements"),
            Self::Failed(failure) => failure.fmt(f),
            Self::Wrong(errors) => {
                let lines: Vec<_> = errors.iter().map(ToString::to_string).collect();
                f.write_str(&lines.join("\n"))
            }
            Self::Unreadable(why) => f.write_str(why),
            Self::Skipped(why) => write!(f, "skipped: {why}"),
        }
    }
}

/// Runs the script that `source` holds, and keeps what happened.
pub fn play_from(name: &str, source: impl Read, how: &Play) -> Played {
    match text_of(name, "script", source) {
        Ok(text) => play(name, &text, how),
        Err(why) => Outcome::Unreadable(why).into(),
    }
}

/// Runs a script; `name` is what failures call it.
pub fn run_text(name: &str, text: &str, how: &Play) -> Outcome {
    play(name, text, how).outcome
}

/// Runs a script, and keeps what happened.
pub fn play(name: &str, text: &str, how: &Play) -> Played {
    match checked(name, text) {
        Ok(script) => run::run(name, &script, how),
        Err(mistakes) => Outcome::Wrong(mistakes).into(),
    }
}

/// Runs the script that `source` holds against a device elsewhere.
pub fn play_live(name: &str, source: impl Read, site: &mut dyn Site, terms: &Terms) -> Played {
    let text = match text_of(name, "script", source) {
        Ok(text) => text,
        Err(why) => return Outcome::Unreadable(why).into(),
    };
    match checked(name, &text) {
        Ok(script) => live::run(name, &script, site, terms),
        Err(mistakes) => Outcome::Wrong(mistakes).into(),
    }
}

/// A script in which there is no mistake that can be seen before it runs.
fn checked(name: &str, text: &str) -> Result<syntax::Script, Vec<ParseError>> {
    let script = parse::parse(name, text)?;
    let mistakes = check::check(name, &script);
    if mistakes.is_empty() { Ok(script) } else { Err(mistakes) }
}
