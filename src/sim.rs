//! `roxe sim`: random worlds of adapters over bad links, each from its seed.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, IsTerminal as _, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};
use roxe_sim::swarm::{self, Conditions, Feature, Life, PROFILES, Profile, Recipe};
use roxe_sim::world::Recorded;

use crate::capture::{self, Frame};
use crate::cli::{SimArguments, SimCommand, number};
use crate::explain::ink::Ink;
use crate::explain::json::Object;
use crate::lab;
use crate::outcome::{Outcome, Verdicts, complain};

/// Seeds that a thread takes at once.
const CHUNK: u64 = 32;

/// How often progress is shown on a terminal.
const ON_TERMINAL: Duration = Duration::from_millis(500);

/// How often it is shown elsewhere.
const IN_LOG: Duration = Duration::from_secs(5);

/// The command.
pub(crate) fn run(arguments: &SimArguments) -> Result<Outcome> {
    if let Some(SimCommand::Lab(arguments)) = &arguments.command {
        return lab::run(arguments);
    }
    if arguments.profiles {
        return list();
    }
    if let Some(capture) = &arguments.capture {
        capture::is_file(capture)?;
    }
    let seeds = seeds(arguments)?;
    let is_wanted = |profile: &&Profile| {
        arguments.profile.is_empty() || arguments.profile.iter().any(|name| name == profile.name)
    };
    let profiles: Vec<&Profile> = PROFILES.iter().filter(is_wanted).collect();
    let peers = arguments.peer.as_ref().map(|list| format!("peers={list} ")).unwrap_or_default();
    let change = format!("{peers}{}", arguments.change);
    for profile in &profiles {
        // A wrong change is told before any world begins.
        Recipe::new(seeds.start, profile)
            .changed(&change)
            .map_err(|what| anyhow!("{what} (--peer, --change)"))?;
    }
    let mut conditions = Conditions::default();
    if let Some(latency) = arguments.latency {
        conditions.set_latency(latency).map_err(|what| anyhow!("--latency: {what}"))?;
    }
    if let Some(picos) = arguments.rate {
        conditions.set_picos_per_byte(picos).map_err(|what| anyhow!("--rate: {what}"))?;
    }
    if let Some(faults) = &arguments.faults {
        conditions.set_faults(faults).map_err(|what| anyhow!("--faults: {what}"))?;
    }
    if seeds.end - seeds.start > 1 {
        std::panic::set_hook(Box::new(|_| {})); // What failed is told with its seed.
    }
    let run = Run {
        arguments,
        seeds,
        change,
        conditions,
        captures: AtomicU64::new(0),
        unwritten: AtomicBool::new(false),
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
        let range = number(first).ok()?..number(end).ok()?;
        (range.start < range.end).then_some(range)
    });
    range.ok_or_else(|| {
        anyhow!(
            "--seeds {text}: two numbers A..B are expected, A below B, which is not run itself: \
             5..6 is seed 5"
        )
    })
}

/// What is said beside the verdicts; if nobody hears it, the worlds go on.
fn note(text: fmt::Arguments<'_>) {
    let _ = io::stderr().write_fmt(text);
}

/// What the threads share.
struct Run<'a> {
    arguments: &'a SimArguments,
    seeds: Range<u64>,
    change: String,
    conditions: Conditions,
    /// How many captures were begun.
    captures: AtomicU64,
    /// Whether one could not be written.
    unwritten: AtomicBool,
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
        // One alone tells of worlds in their order.
        let usual = || if self.arguments.verbose { 1 } else { available() };
        let threads = self.arguments.threads.unwrap_or_else(usual);
        // More than there is work for would only be made and ended.
        let threads = threads.min(self.pieces().saturating_mul(self.tallies.len() as u64));
        thread::scope(|scope| {
            let made = (1..threads).find_map(|number| {
                let spawned = thread::Builder::new().spawn_scoped(scope, || self.work());
                spawned.err().map(|error| (number, error))
            });
            if let Some((number, error)) = made {
                complain(format_args!("{number} threads work, no more can be made: {error}"));
            }
            self.work();
        });
        if io::stderr().is_terminal() {
            note(format_args!("\r{:78}\r", ""));
        }
        anyhow::ensure!(self.count(|tally| &tally.seeds) != 0, "no world was run");
        self.tell(&mut Verdicts::to(io::stdout().lock()))?;
        if let Some(path) = &self.arguments.capture
            && self.captures.load(Ordering::Relaxed) == 0
        {
            complain(format_args!(
                "{} was not written: no world failed; --seed and one --profile keep one that holds",
                path.display()
            ));
        }
        Ok(if self.unwritten.load(Ordering::Relaxed) {
            Outcome::Unreadable
        } else if self.count(|tally| &tally.failed) == 0 {
            Outcome::Right
        } else {
            Outcome::Findings
        })
    }

    /// How many pieces the seeds of one profile are.
    const fn pieces(&self) -> u64 {
        (self.seeds.end - self.seeds.start).div_ceil(CHUNK)
    }

    /// One thread's share.
    fn work(&self) {
        let pieces = self.pieces();
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
        let Ok(recipe) = Recipe::new(seed, tally.profile).changed(&self.change) else { return };
        let one = self.arguments.seed.is_some() && self.tallies.len() == 1;
        let record = one && self.arguments.capture.is_some();
        let outcome = swarm::run(recipe, &self.conditions, record);
        tally.seeds.fetch_add(1, Ordering::Relaxed);
        tally.frames.fetch_add(outcome.frames, Ordering::Relaxed);
        tally.requests.fetch_add(outcome.requests, Ordering::Relaxed);
        let failure = outcome.failure.as_ref();
        tally.failed.fetch_add(u64::from(failure.is_some()), Ordering::Relaxed);
        // A reader that went away does not stop the count.
        let _ = io::stdout().write_all(self.world(seed, &outcome).as_bytes());
        match failure {
            Some(failure) => self.capture(seed, tally, &failure.frames),
            None if record => self.capture(seed, tally, &outcome.recorded),
            None => {}
        }
    }

    /// What is told of a world.
    fn world(&self, seed: u64, outcome: &Life) -> String {
        let profile = outcome.recipe.profile;
        let failure = outcome.failure.as_ref();
        let mut told = String::new();
        if self.arguments.json && (self.arguments.verbose || failure.is_some()) {
            let mut ink = Ink::new(false);
            let mut object = Object::begin(&mut ink);
            object.number("seed", seed);
            object.text("profile", profile);
            object.text("verdict", if failure.is_some() { "failed" } else { "held" });
            for (name, value) in [
                ("devices", outcome.recipe.devices),
                ("pairs", outcome.recipe.pairs),
                ("frames", outcome.frames),
                ("requests", outcome.requests),
                ("retransmissions", outcome.retransmissions),
                ("rnr_naks", outcome.rnr_naks),
                ("ended", outcome.ended),
                ("nanoseconds", u64::try_from(outcome.time.as_nanos()).unwrap_or(u64::MAX)),
            ] {
                object.number(name, value);
            }
            for (name, count) in outcome.impairments.by_name() {
                object.number(&name.replace(' ', "_"), count);
            }
            if let Some(failure) = failure {
                object.text("message", &failure.what);
                object.text("again", &format!("{}{}", failure.recipe, failure.conditions));
            }
            object.end();
            told = String::from_utf8_lossy(ink.bytes()).into_owned();
        } else if !self.arguments.json {
            if self.arguments.verbose {
                told = format!("seed {seed} {profile}: {outcome}\n");
            }
            if let Some(failure) = failure {
                told += &format!("seed {seed}: {failure}\n");
            }
        }
        told
    }

    fn capture(&self, seed: u64, tally: &Tally, frames: &VecDeque<Recorded>) {
        let number = self.captures.fetch_add(1, Ordering::Relaxed);
        let path = match &self.arguments.capture {
            None => PathBuf::from(format!("sim-{}-{seed}.pcapng", tally.profile.name)),
            Some(path) if number == 0 => path.clone(),
            Some(path) => numbered(path, number + 1),
        };
        let frames = frames.iter().map(|frame| Frame {
            time: frame.time,
            bytes: &frame.bytes,
            direction: None,
            comment: frame.to_string(),
        });
        match capture::write(&path, "world", "", frames) {
            Outcome::Right => {
                complain(format_args!("the frames of seed {seed} are in {}", path.display()));
            }
            _ => self.unwritten.store(true, Ordering::Relaxed),
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
            note(format_args!("\r{line:78}"));
        } else {
            note(format_args!("{line}\n"));
        }
    }

    /// The counts: the same on every machine. How long it took, on standard error.
    fn tell(&self, out: &mut impl Write) -> io::Result<()> {
        let all = |of: fn(&Tally) -> &AtomicU64| self.count(of);
        let sum = [all(|t| &t.seeds), all(|t| &t.frames), all(|t| &t.requests), all(|t| &t.failed)];
        let each = self.tallies.iter().map(|tally| (tally.profile.name, tally.counts()));
        let all = (self.tallies.len() > 1).then_some(("all", sum));
        if self.arguments.json {
            let mut ink = Ink::new(false);
            for (name, counts) in each.chain(all) {
                let mut object = Object::begin(&mut ink);
                object.text("profile", name);
                for (what, count) in ["worlds", "frames", "requests", "failed"].iter().zip(counts) {
                    object.number(what, count);
                }
                object.end();
            }
            return out.write_all(ink.bytes());
        }
        writeln!(out, "profile          worlds       frames    requests  worlds failed")?;
        for (name, [worlds, frames, requests, failed]) in each.chain(all) {
            writeln!(out, "{name:<12} {worlds:>10} {frames:>12} {requests:>11} {failed:>14}")?;
        }
        let seconds = self.count(|tally| &tally.nanos) as f64 / 1e9;
        let rate = sum[1] as f64 / seconds.max(1e-9);
        let passed = self.start.elapsed().as_secs_f64();
        out.flush()?;
        note(format_args!("{passed:.1} s; {rate:.0} frames/s of a thread\n"));
        Ok(())
    }
}

impl Tally {
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

    fn counts(&self) -> [u64; 4] {
        let counts = [&self.seeds, &self.frames, &self.requests, &self.failed];
        counts.map(|count| count.load(Ordering::Relaxed))
    }
}

/// `one.pcapng` → `one-2.pcapng`.
fn numbered(path: &Path, number: u64) -> PathBuf {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let end = path.extension().map(|end| format!(".{}", end.to_string_lossy()));
    path.with_file_name(format!("{stem}-{number}{}", end.unwrap_or_default()))
}

/// The kinds of worlds, and what worlds may have.
fn list() -> Result<Outcome> {
    let mut out = io::stdout().lock();
    for profile in PROFILES {
        writeln!(out, "{:<12} {}", profile.name, profile.says)?;
    }
    let names: Vec<&str> = Feature::ALL.iter().map(|feature| feature.name()).collect();
    writeln!(out, "features     {}", names.join(", "))?;
    Ok(Outcome::Right)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn further_captures_have_numbers() {
        let name = |path: &str| numbered(Path::new(path), 2).display().to_string();
        assert_eq!((name("a/one.pcapng"), name("one")), ("a/one-2.pcapng".into(), "one-2".into()));
    }
}
