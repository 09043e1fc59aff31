//! `roxe script`: plays scripts against our engine, in virtual time.

use std::io::{self, Write};

use anyhow::Result;
use roxe_sim::script::{Options, Outcome as Played, run_file};

use crate::cli::ScriptArguments;
use crate::outcome::{Outcome, complain};

/// The command.
pub(crate) fn run(arguments: &ScriptArguments) -> Result<Outcome> {
    let mut out = io::stdout().lock();
    let mut outcome = Outcome::Right;
    let options = Options { before: arguments.before };
    for file in &arguments.files {
        if file.is_dir() {
            complain(format_args!("{}: is a directory; name its files", file.display()));
            outcome = Outcome::Unreadable;
            continue;
        }
        let played = run_file(file, &options);
        outcome = outcome.max(match played {
            Played::Passed { .. } => {
                writeln!(out, "{}: {played}", file.display())?;
                Outcome::Right
            }
            Played::Failed(_) => {
                writeln!(out, "{played}")?;
                Outcome::Findings
            }
            Played::Wrong(_) | Played::Unreadable(_) => {
                complain(format_args!("{played}"));
                Outcome::Unreadable
            }
        });
    }
    Ok(outcome)
}
