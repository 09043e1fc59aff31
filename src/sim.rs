//! `roxe sim`: random worlds of adapters over bad links, each from its seed.

use std::fs::File;
use std::io::{self, IsTerminal as _, Write};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};
use roxe_sim::swarm::{self, Failure, Options, PROFILES, Profile};

use crate::cli::SimArguments;
use crate::outcome::{Outcome, complain};

/// Seeds that a thread takes at once.
const CHUNK: u64 = 32;

/// How often progress is shown on a terminal.
const ON_TERMINAL: Duration = Duration::from_millis(500);

/// How often it is shown elsewhere.
const IN_LOG: Duration = Duration::from_secs(30);

/// The command.
pub(crate) fn run(arguments: &SimArguments) -> Result<Outcome> {
    let seeds = seeds(arguments)?;
    let is_wanted =
        |profile: &&Profile| arguments.profile.as_ref().is_none_or(|name| name == profile.name);
    let profiles: Vec<&Profile> = PROFILES.iter().filter(is_wanted).collect();
    let peers = arguments.peer.as_ref().map(|list| format!("peers={list} ")).unwrap_or_default();
    let change = format!("{peers}{}", arguments.change);
    for profile in &profiles {
        // A wrong change is told before any world begins.
        Options::new(seeds.start, profile)
            .changed(&change)
            .map_err(|what| anyhow!("{what} (--peer, --change)"))?;
    }
    if seeds.end - seeds.start > 1 {
        std::panic::set_hook(Box::new(|_| {})); // What failed is told with its seed.
    }
    let run = Run {
        arguments,
        seeds,
        change,
        tallies: profiles.into_iter().map(Tally::new).collect(),
        next: AtomicU64::new(0),
        start: Instant::now(),
        shown: Mutex::new(Instant::now()),
    };
    run.all()
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

/// What the threads share.
struct Run<'a> {
    arguments: &'a SimArguments,
    seeds: Range<u64>,
    change: String,
    tallies: Vec<Tally>,
    /// The next piece of work: all pieces of one profile, then those of the next.
    next: AtomicU64,
    start: Instant,
    shown: Mutex<Instant>,
}

/// What is counted of a profile.
struct Tally {
    profile: &'static Profile,
    seeds: AtomicU64,
    frames: AtomicU64,
    requests: AtomicU64,
    failed: AtomicU64,
    /// Time that threads spent on it.
    nanos: AtomicU64,
}

impl Run<'_> {
    fn all(&self) -> Result<Outcome> {
        let available = || thread::available_parallelism().map_or(1, |count| count.get() as u64);
        let threads = self.arguments.threads.unwrap_or_else(available);
        thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(|| self.work()))));
        if io::stderr().is_terminal() {
            eprint!("\r{:78}\r", "");
        }
        anyhow::ensure!(self.count(|tally| &tally.seeds) != 0, "no world was run");
        let mut out = io::stdout();
        writeln!(out, "{}", Tally::HEAD)?;
        for tally in &self.tallies {
            writeln!(out, "{}", tally.line())?;
        }
        if self.tallies.len() > 1 {
            writeln!(out, "{}", self.sum())?;
        }
        Ok(if self.count(|tally| &tally.failed) == 0 { Outcome::Right } else { Outcome::Findings })
    }

    /// One thread's share.
    fn work(&self) {
        let pieces = (self.seeds.end - self.seeds.start).div_ceil(CHUNK);
        loop {
            let piece = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(tally) = self.tallies.get((piece / pieces) as usize) else { return };
            let first = self.seeds.start + piece % pieces * CHUNK;
            for seed in first..first.saturating_add(CHUNK).min(self.seeds.end) {
                if self.count(|tally| &tally.failed) >= self.arguments.failures {
                    return;
                }
                let start = Instant::now();
                self.seed(seed, tally);
                let nanos = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
                tally.nanos.fetch_add(nanos, Ordering::Relaxed);
                self.show();
            }
        }
    }

    fn seed(&self, seed: u64, tally: &Tally) {
        let Ok(options) = Options::new(seed, tally.profile).changed(&self.change) else { return };
        let outcome = swarm::run_options(options);
        tally.seeds.fetch_add(1, Ordering::Relaxed);
        tally.frames.fetch_add(outcome.frames, Ordering::Relaxed);
        tally.requests.fetch_add(outcome.requests, Ordering::Relaxed);
        let Some(failure) = &outcome.failure else { return };
        tally.failed.fetch_add(1, Ordering::Relaxed);
        // A reader that went away does not stop the count.
        let _ = writeln!(io::stdout(), "seed {seed}: {failure}");
        self.capture(seed, failure);
    }

    fn capture(&self, seed: u64, failure: &Failure) {
        let usual = || PathBuf::from(format!("sim-{}-{seed}.pcapng", failure.options.profile));
        let path = self.arguments.capture.clone().unwrap_or_else(usual);
        let written = File::create(&path).map_err(|error| error.to_string());
        let written = written.and_then(|file| failure.capture(file).map_err(|e| e.to_string()));
        match written {
            Ok(()) => complain(format_args!("the frames of seed {seed} are in {}", path.display())),
            Err(error) => complain(format_args!("{}: {error}", path.display())),
        }
    }

    fn count(&self, of: impl Fn(&Tally) -> &AtomicU64) -> u64 {
        self.tallies.iter().map(|tally| of(tally).load(Ordering::Relaxed)).sum()
    }

    /// Says from time to time how far it is.
    fn show(&self) {
        let terminal = io::stderr().is_terminal();
        let Ok(mut shown) = self.shown.try_lock() else { return };
        if shown.elapsed() < if terminal { ON_TERMINAL } else { IN_LOG } {
            return;
        }
        *shown = Instant::now();
        let all = (self.seeds.end - self.seeds.start).saturating_mul(self.tallies.len() as u64);
        let (seeds, frames) = (self.count(|tally| &tally.seeds), self.count(|tally| &tally.frames));
        let seconds = self.start.elapsed().as_secs_f64();
        let line = format!(
            "{seeds} of {all} seeds, {frames} frames, {:.0} frames/s, {} failed",
            frames as f64 / seconds,
            self.count(|tally| &tally.failed),
        );
        if terminal {
            eprint!("\r{line:78}");
        } else {
            eprintln!("{line}");
        }
    }

    fn sum(&self) -> String {
        line(
            "all",
            [
                self.count(|tally| &tally.seeds),
                self.count(|tally| &tally.frames),
                self.count(|tally| &tally.requests),
                self.count(|tally| &tally.failed),
                self.count(|tally| &tally.nanos),
            ],
        )
    }
}

impl Tally {
    const HEAD: &str = "profile           seeds       frames    requests failed  \
                        seconds  frames/s of a thread";

    const fn new(profile: &'static Profile) -> Self {
        Self {
            profile,
            seeds: AtomicU64::new(0),
            frames: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            nanos: AtomicU64::new(0),
        }
    }

    fn line(&self) -> String {
        let counts = [&self.seeds, &self.frames, &self.requests, &self.failed, &self.nanos];
        line(self.profile.name, counts.map(|count| count.load(Ordering::Relaxed)))
    }
}

fn line(name: &str, [seeds, frames, requests, failed, nanos]: [u64; 5]) -> String {
    let seconds = nanos as f64 / 1e9;
    let rate = frames as f64 / seconds.max(1e-9);
    format!(
        "{name:<12} {seeds:>10} {frames:>12} {requests:>11} {failed:>6} {seconds:>8.1} {rate:>9.0}"
    )
}
