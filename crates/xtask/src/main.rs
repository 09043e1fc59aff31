//! `cargo xtask`: every chore of the project behind one command. This file parses and dispatches;
//! each command has a file of its own.
//!
//! It may use no crate of the workspace: it has to run while they do not compile. Beyond the Rust
//! toolchain it needs what [`tools`] can install.

#![forbid(unsafe_code)]

mod bench;
mod child;
mod demo;
mod fuzz;
mod interop;
mod labs;
mod mutants;
mod no_std;
mod programs;
mod soak;
mod stop;
mod test;
mod tidy;
mod tools;
mod trace;
mod workspace;

use std::process::ExitCode;

use anyhow::Result;

use crate::stop::Stop;

/// Writes a line to standard output. A reader that went away (`| head`) is no error.
#[macro_export]
macro_rules! say {
    ($($words:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stdout(), $($words)*);
    }};
}

/// Writes a line to standard error, where progress and errors go.
#[macro_export]
macro_rules! tell {
    ($($words:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($words)*);
    }};
}

/// A command: its name, its arguments, what it does, and who does it.
struct Command(&'static str, &'static str, &'static str, fn(&[String]) -> Result<()>);

#[rustfmt::skip]
const COMMANDS: &[Command] = &[
    Command("test",  "[-v] [--list] [STAGE…]",                   "everything that must pass",          test::run),
    Command("tidy",  "",                                         "the rules of the house",             tidy::run),
    Command("trace", "[ID]",                                     "each rule: its code, tests, scripts", trace::run),
    Command("fuzz",  "[TARGET…] [--minutes N | --seconds N | --input FILE]", "hunts for inputs that crash", fuzz::run),
    Command("mutants", "[--shard K/N] [--since COMMIT] [FILE…]", "changes the code; some test must notice", mutants::run),
    Command("bench", "[FILTER…] [--short | --pairs N] [--json] [--markdown]", "measures every crate with benches; with options adapters alone", bench::run),
    Command("soak",  "[--minutes N] [--seed N]",                 "mixed traffic over a bad network, verified", soak::run),
    Command("interop", interop::WAYS, "against Linux's own adapter in a virtual machine, or any other; WORDs: what has all of them in its name", interop::run),
    Command("programs", "[--page] [--rest] [--lanes N] [--kernel SERIES | --no-guest] [WORD…]", "programs of the distribution on our libibverbs, in every way", programs::run),
    Command("labs",  "[NAME|FILE.toml…] [--csv FOLDER] [--plot FOLDER] [-v] | --kernel [--csv FOLDER] [--markdown]", "experiments of congestion control, in full", labs::run),
    Command("demo",  "",                                         "the main job, shown once",           demo::run),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match dispatch(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let stop = error.downcast_ref::<Stop>();
            match stop {
                Some(Stop::Findings) => {}
                _ => tell!("xtask: {error:#}"),
            }
            ExitCode::from(stop.map_or(1, Stop::exit_code))
        }
    }
}

fn dispatch(arguments: &[String]) -> Result<()> {
    let Some((name, rest)) = arguments.split_first() else {
        return Err(Stop::Usage(format!("which command?\n{}", usage())).into());
    };
    if matches!(name.as_str(), "help" | "-h" | "--help") {
        say!("{}", usage());
        return Ok(());
    }
    let Some(command) = COMMANDS.iter().find(|Command(known, ..)| known == name) else {
        return Err(Stop::Usage(format!("no command {name:?}\n{}", usage())).into());
    };
    let Command(name, arguments, does, run) = command;
    // Whoever asks how a command is called does not want it to run.
    if rest.iter().any(|argument| matches!(argument.as_str(), "-h" | "--help")) {
        let ways = arguments.split('\n').map(|way| format!("cargo xtask {name} {way}"));
        let ways: Vec<_> = ways.map(|way| way.trim_end().to_owned()).collect();
        say!("usage: {}\n\n  {does}\n\n{EXIT_STATUS}", ways.join("\n       "));
        return Ok(());
    }
    run(rest)
}

const EXIT_STATUS: &str =
    "exit status: 0 right, 1 findings, 2 usage, 3 the environment lacks something";

fn usage() -> String {
    let mut text = String::from("usage: cargo xtask COMMAND\n");
    for Command(name, arguments, does, _) in COMMANDS {
        text += &format!("\n  {name:<7} {does}");
        for way in arguments.lines() {
            text += &format!("\n          {way}");
        }
    }
    text + "\n\n" + EXIT_STATUS
}
