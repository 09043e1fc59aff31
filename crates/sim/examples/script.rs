//! Runs scripts: `cargo run -p roxe-sim --example script -- FILE…`.

use std::fs::File;
use std::path::Path;
use std::process::ExitCode;

use roxe_sim::script::{Outcome, Play, play_from};

fn main() -> ExitCode {
    let files: Vec<_> = std::env::args_os().skip(1).collect();
    let mut worst = if files.is_empty() { 2 } else { 0 };
    for file in files {
        let name = Path::new(&file).display().to_string();
        let outcome = match File::open(&file) {
            Ok(source) => play_from(&name, source, &Play::default()).outcome,
            Err(error) => Outcome::Unreadable(format!("{name}: cannot be read: {error}")),
        };
        worst = worst.max(outcome.exit_status());
        match outcome {
            Outcome::Passed { .. } => println!("{name}: {outcome}"),
            _ => println!("{outcome}"),
        }
    }
    ExitCode::from(worst)
}
