//! Runs the worlds of many seeds: `sim --seeds 0..10000 [--profile NAME] [--threads N]
//! [--change "requests=3 without=drop"] [--capture FILE]`. `--seed N` runs one.

use std::io::Write;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use roxe_sim::swarm::{self, Failure, Options, PROFILES, Profile};

/// Seeds that a thread takes at once.
const CHUNK: u64 = 64;

struct Arguments {
    seeds: std::ops::Range<u64>,
    profiles: Vec<&'static Profile>,
    threads: u64,
    change: String,
    capture: Option<String>,
    most_failures: u64,
}

fn arguments() -> Result<Arguments, String> {
    let mut parsed = Arguments {
        seeds: 0..1000,
        profiles: PROFILES.iter().collect(),
        threads: 1,
        change: String::new(),
        capture: None,
        most_failures: 1,
    };
    let mut words = std::env::args().skip(1);
    while let Some(flag) = words.next() {
        let value = words.next().ok_or_else(|| format!("{flag} needs a value"))?;
        let number = |text: &str| text.parse::<u64>().map_err(|_| format!("{text}: no number"));
        match flag.as_str() {
            "--seed" => parsed.seeds = number(&value)?..number(&value)? + 1,
            "--seeds" => {
                let (a, b) = value.split_once("..").ok_or("--seeds A..B")?;
                parsed.seeds = number(a)?..number(b)?;
            }
            "--profile" => {
                let known = Profile::by_name(&value);
                parsed.profiles = vec![known.ok_or_else(|| format!("{value}: no profile"))?];
            }
            "--threads" => parsed.threads = number(&value)?,
            "--failures" => parsed.most_failures = number(&value)?,
            "--change" => parsed.change = value,
            "--capture" => parsed.capture = Some(value),
            _ => return Err(format!("{flag}: unknown")),
        }
    }
    Ok(parsed)
}

fn main() -> ExitCode {
    let arguments = match arguments() {
        Ok(arguments) => arguments,
        Err(what) => {
            eprintln!("{what}");
            return ExitCode::from(2);
        }
    };
    if arguments.seeds.end - arguments.seeds.start > 1 {
        std::panic::set_hook(Box::new(|_| {})); // What failed is told with its seed.
    }
    let mut failed = 0;
    for profile in &arguments.profiles {
        failed += run(&arguments, profile);
    }
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::from(1) }
}

/// All seeds of one profile; says how many failed.
fn run(arguments: &Arguments, profile: &'static Profile) -> u64 {
    let next = AtomicU64::new(arguments.seeds.start);
    let [seeds, frames, requests, failed] = [const { AtomicU64::new(0) }; 4];
    let shown = Mutex::new(Instant::now());
    let start = Instant::now();
    let line = |end: &str| {
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        eprint!(
            "\r{:<12} {:>9} seeds {:>12} frames {:>11} requests {:>3} failed {:>7.1} s{end}",
            profile.name,
            get(&seeds),
            get(&frames),
            get(&requests),
            get(&failed),
            start.elapsed().as_secs_f64()
        );
        let _ = std::io::stderr().flush();
    };
    std::thread::scope(|scope| {
        for _ in 0..arguments.threads {
            scope.spawn(|| {
                loop {
                    let first = next.fetch_add(CHUNK, Ordering::Relaxed);
                    for seed in first..(first + CHUNK).min(arguments.seeds.end) {
                        if failed.load(Ordering::Relaxed) >= arguments.most_failures {
                            return;
                        }
                        let options = Options::new(seed, profile).changed(&arguments.change);
                        let Ok(options) = options else { return };
                        let outcome = swarm::run_options(options);
                        seeds.fetch_add(1, Ordering::Relaxed);
                        frames.fetch_add(outcome.frames, Ordering::Relaxed);
                        requests.fetch_add(outcome.requests, Ordering::Relaxed);
                        if let Some(failure) = &outcome.failure {
                            failed.fetch_add(1, Ordering::Relaxed);
                            println!("\nseed {seed}: {failure}");
                            capture(arguments, failure);
                        }
                        let mut last = shown.lock().expect("nobody panics with it");
                        if last.elapsed().as_millis() > 500 {
                            *last = Instant::now();
                            line("");
                        }
                    }
                    if first + CHUNK >= arguments.seeds.end {
                        return;
                    }
                }
            });
        }
    });
    line("\n");
    failed.load(Ordering::Relaxed)
}

fn capture(arguments: &Arguments, failure: &Failure) {
    let Some(path) = &arguments.capture else { return };
    let written = std::fs::File::create(path).map_err(|error| error.to_string());
    let written = written.and_then(|file| failure.capture(file).map_err(|error| error.to_string()));
    match written {
        Ok(()) => eprintln!("its frames are in {path}"),
        Err(error) => eprintln!("{path}: {error}"),
    }
}
