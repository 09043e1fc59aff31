//! `roxe sim`: random worlds of adapters over bad links, each from its seed.

use std::fs::File;
use std::io::{self, IsTerminal as _, Write};
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};
use roxe_sim::swarm::{self, Options, PROFILES, Profile};

use crate::cli::SimArguments;
use crate::outcome::{Outcome, complain};

/// Seeds that a thread takes at once.
const CHUNK: u64 = 64;

/// How often progress is shown.
const PROGRESS: Duration = Duration::from_millis(500);

/// The command.
pub(crate) fn run(arguments: &SimArguments) -> Result<Outcome> {
    let seeds = seeds(arguments)?;
    let profiles: Vec<&Profile> = match &arguments.profile {
        None => PROFILES.iter().collect(),
        Some(name) => {
            let names: Vec<_> = PROFILES.iter().map(|profile| profile.name).collect();
            let known = Profile::by_name(name);
            vec![known.ok_or_else(|| anyhow!("--profile {name}: there are {}", names.join(", ")))?]
        }
    };
    if seeds.end - seeds.start > 1 {
        std::panic::set_hook(Box::new(|_| {})); // What failed is told with its seed.
    }
    let mut outcome = Outcome::Right;
    for profile in profiles {
        outcome = outcome.max(run_profile(arguments, seeds.clone(), profile)?);
    }
    Ok(outcome)
}

fn seeds(arguments: &SimArguments) -> Result<Range<u64>> {
    if let Some(seed) = arguments.seed {
        return Ok(seed..seed.checked_add(1).context("--seed is too large")?);
    }
    let text = &arguments.seeds;
    let range = text.split_once("..").and_then(|(first, end)| {
        let range = first.parse().ok()?..end.parse().ok()?;
        (range.start < range.end).then_some(range)
    });
    range.ok_or_else(|| anyhow!("--seeds {text}: two numbers A..B are expected, A below B"))
}

/// What the threads count together.
#[derive(Default)]
struct Counts {
    seeds: AtomicU64,
    frames: AtomicU64,
    requests: AtomicU64,
    failed: AtomicU64,
}

/// All seeds of one profile.
fn run_profile(
    arguments: &SimArguments,
    seeds: Range<u64>,
    profile: &'static Profile,
) -> Result<Outcome> {
    // A wrong change is told before any world begins.
    Options::new(seeds.start, profile)
        .changed(&arguments.change)
        .map_err(|what| anyhow!("--change {}: {what}", arguments.change))?;
    let next = AtomicU64::new(seeds.start);
    let counts = Counts::default();
    let shown = Mutex::new(Instant::now());
    let start = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..arguments.threads {
            scope.spawn(|| {
                loop {
                    let first = next.fetch_add(CHUNK, Ordering::Relaxed);
                    for seed in first..first.saturating_add(CHUNK).min(seeds.end) {
                        if counts.failed.load(Ordering::Relaxed) >= arguments.failures {
                            return;
                        }
                        run_seed(arguments, seed, profile, &counts);
                        let Ok(mut shown) = shown.lock() else { return };
                        if shown.elapsed() > PROGRESS && io::stderr().is_terminal() {
                            *shown = Instant::now();
                            eprint!("\r{}", line(profile, &counts, start));
                        }
                    }
                    if first.saturating_add(CHUNK) >= seeds.end {
                        return;
                    }
                }
            });
        }
    });
    if io::stderr().is_terminal() {
        eprint!("\r");
    }
    writeln!(io::stdout(), "{}", line(profile, &counts, start))?;
    let failed = counts.failed.load(Ordering::Relaxed);
    Ok(if failed == 0 { Outcome::Right } else { Outcome::Findings })
}

fn run_seed(arguments: &SimArguments, seed: u64, profile: &'static Profile, counts: &Counts) {
    let Ok(options) = Options::new(seed, profile).changed(&arguments.change) else { return };
    let outcome = swarm::run_options(options);
    counts.seeds.fetch_add(1, Ordering::Relaxed);
    counts.frames.fetch_add(outcome.frames, Ordering::Relaxed);
    counts.requests.fetch_add(outcome.requests, Ordering::Relaxed);
    let Some(failure) = &outcome.failure else { return };
    counts.failed.fetch_add(1, Ordering::Relaxed);
    // A reader that went away does not stop the count.
    let _ = writeln!(io::stdout(), "seed {seed}: {failure}");
    let Some(path) = &arguments.capture else { return };
    let written = File::create(path).map_err(|error| error.to_string());
    let written = written.and_then(|file| failure.capture(file).map_err(|e| e.to_string()));
    match written {
        Ok(()) => complain(format_args!("the frames of seed {seed} are in {}", path.display())),
        Err(error) => complain(format_args!("{}: {error}", path.display())),
    }
}

fn line(profile: &Profile, counts: &Counts, start: Instant) -> String {
    let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
    format!(
        "{:<12} {:>9} {:<5} {:>12} frames {:>11} requests {:>3} failed {:>7.1} s",
        profile.name,
        get(&counts.seeds),
        if get(&counts.seeds) == 1 { "seed" } else { "seeds" },
        get(&counts.frames),
        get(&counts.requests),
        get(&counts.failed),
        start.elapsed().as_secs_f64()
    )
}
