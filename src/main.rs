//! The program `roxe`: reads its command line and goes to the command.
#![forbid(unsafe_code)]

mod adapters;
mod capture;
mod capture_live;
mod check;
mod cli;
mod devinfo;
mod doctor;
mod examine;
mod explain;
mod lab;
mod outcome;
mod pass;
mod perf;
mod pingpong;
mod progress;
mod replay;
mod rping;
mod run;
mod script;
mod side_channel;
mod sim;
mod stat;
mod table;
mod top;

use std::env;
use std::io::{self, Write as _};
use std::process::ExitCode;

use anyhow::Result;
use clap::Parser as _;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use rustix::process::{DumpableBehavior, set_dumpable_behavior};

use crate::cli::{Arguments, Command};
use crate::outcome::{Outcome, complain, is_closed_pipe};
use crate::perf::arguments::perftest;

fn main() -> ExitCode {
    // What the kernel says in /proc of a program with capabilities of its file is root's to read,
    // until the program says that it has no secrets.
    let _ = set_dumpable_behavior(DumpableBehavior::Dumpable);
    match Arguments::try_parse().map_or_else(instead, |arguments| run(&arguments.command)) {
        Ok(outcome) => outcome.into(),
        Err(error) if error.downcast_ref().is_some_and(is_closed_pipe) => Outcome::Right.into(),
        // Files that are read, and what is wrong with them, are told by name before.
        Err(error) if error.is::<io::Error>() => {
            complain(format_args!("standard output: {error:#}"));
            Outcome::Unreadable.into()
        }
        Err(error) => {
            complain(format_args!("{error:#}"));
            Outcome::Unreadable.into()
        }
    }
}

/// What is told where no command is to run: a mistake on the command line, or the help or version
/// that was asked for.
fn instead(mut error: clap::Error) -> Result<Outcome> {
    // That what looks like an option may be a file's name is no help to anybody.
    error.remove(ContextKind::Suggested);
    if let Some(ContextValue::String(flag)) = error.get(ContextKind::InvalidArg)
        && error.kind() == ErrorKind::UnknownArgument
        && env::args().nth(1).is_some_and(|command| command == "perf")
        && let Some(says) = perftest::says(flag)
    {
        return Ok(Outcome::usage(format_args!(
            "{flag} is a flag of perftest that roxe has not: it {says}"
        )));
    }
    let told = error.print().and_then(|()| io::stdout().flush());
    if error.use_stderr() {
        return Ok(Outcome::Unreadable);
    }
    told?;
    Ok(Outcome::Right)
}

fn run(command: &Command) -> Result<Outcome> {
    match command {
        Command::Explain(arguments) => explain::run(arguments),
        Command::Check(arguments) => check::run(arguments),
        Command::Replay(arguments) => replay::run(arguments),
        Command::Script(arguments) => script::run(arguments),
        Command::Sim(arguments) => sim::run(arguments),
        Command::Devinfo(arguments) => devinfo::run(arguments),
        Command::Stat(arguments) => stat::run(arguments),
        Command::Top(arguments) => top::run(arguments),
        Command::Doctor(arguments) => doctor::run(arguments),
        Command::Capture(arguments) => capture_live::run(arguments),
        Command::Perf(arguments) => perf::run(arguments),
        Command::Pingpong(arguments) => pingpong::run(arguments),
        Command::Rping(arguments) => rping::run(arguments),
        Command::Run(arguments) => run::run(arguments),
    }
}
