//! Runs scripts: `cargo run -p roxe-sim --example script -- FILE…`.

use std::path::Path;
use std::process::ExitCode;

use roxe_sim::script::{Options, Outcome, run_file};

fn main() -> ExitCode {
    let files: Vec<_> = std::env::args_os().skip(1).collect();
    let mut worst = if files.is_empty() { 2 } else { 0 };
    for file in files {
        let outcome = run_file(Path::new(&file), &Options::default());
        worst = worst.max(outcome.exit_status());
        match outcome {
            Outcome::Passed { .. } => println!("{}: {outcome}", Path::new(&file).display()),
            _ => println!("{outcome}"),
        }
    }
    ExitCode::from(worst)
}
