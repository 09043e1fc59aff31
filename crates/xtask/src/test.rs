//! `cargo xtask test`: everything that must pass, as a table of stages.
//!
//! A failing stage does not stop the others. The last line of all output counts what passed and
//! what failed.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::child::{self, Listener};
use crate::stop::Stop;
use crate::tools::{BUILD, PROGRAMS};
use crate::{bench as benches, fuzz, interop, no_std, say, tell, tidy, tools, trace as ledger};

/// A stage: its name, what it checks, what it needs installed, and how it runs.
struct Stage {
    name: &'static str,
    checks: &'static str,
    needs: &'static [&'static [&'static str]],
    run: fn(&Listener) -> Result<(Tally, String)>,
}

const fn stage(
    name: &'static str,
    checks: &'static str,
    needs: &'static [&'static [&'static str]],
    run: fn(&Listener) -> Result<(Tally, String)>,
) -> Stage {
    Stage { name, checks, needs, run }
}

#[rustfmt::skip]
const STAGES: &[Stage] = &[
    stage("fmt",      "the format of all Rust sources",              &[],                  fmt),
    stage("tidy",     "the rules of the house",                      &[],                  tidy),
    stage("trace",    "each rule has its code, test and script",      &[],                  trace),
    stage("clippy",   "lints, with warnings as errors",              &[BUILD],             clippy),
    stage("licences", "licences, bans and sources of dependencies",  &[&["cargo-deny"]],   licences),
    stage("tests",    "all tests",                                   &[BUILD, TESTS, PROGRAMS], tests),
    stage("doctests", "the examples in the documentation",           &[BUILD],             doc_tests),
    stage("docs",     "documentation builds without warnings",       &[BUILD],             docs),
    stage("no_std",   "roxe-wire links neither std nor alloc",       &[],                  no_std::run),
    stage("bench",    "the bench of adapters runs, for a moment",     &[BUILD, TESTS],      bench),
    stage("interop",  "a reduced matrix against Linux's rdma_rxe",   &[BUILD, interop::NEEDS], interop::reduced),
    stage("fuzz",     "every fuzz target for a few seconds",         &[fuzz::NEEDS],       fuzz::short),
];

/// What tests need to run, besides what it takes to build them.
const TESTS: &[&str] = &["cargo-nextest", "iproute2", "librdmacm-dev", "rdmacm-utils", "tshark"];

/// How many checks passed and failed. A stage that is one check counts as one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passed: u32,
    pub(crate) failed: u32,
}

impl Tally {
    /// One check, and how it ended.
    pub(crate) fn one(passed: bool) -> Self {
        Self { passed: passed.into(), failed: (!passed).into() }
    }

    /// Both together.
    pub(crate) fn plus(self, other: Self) -> Self {
        Self { passed: self.passed + other.passed, failed: self.failed + other.failed }
    }

    /// A runner that failed has a failure, whatever its summary says.
    pub(crate) fn given(self, success: bool) -> Self {
        if success || self.failed > 0 { self } else { self.plus(Self::one(false)) }
    }
}

/// The command.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let mut verbose = false;
    let mut chosen: Vec<&Stage> = Vec::new();
    for argument in arguments {
        match argument.as_str() {
            "-v" | "--verbose" => verbose = true,
            "--list" => {
                STAGES.iter().for_each(|stage| say!("{:<10} {}", stage.name, stage.checks));
                return Ok(());
            }
            name => {
                chosen.push(STAGES.iter().find(|stage| stage.name == name).ok_or_else(|| {
                    Stop::Usage(format!("no stage {name:?}; see cargo xtask test --list"))
                })?)
            }
        }
    }
    if chosen.is_empty() {
        chosen = STAGES.iter().collect();
    }

    let needs: Vec<&str> = chosen.iter().flat_map(|stage| stage.needs.concat()).collect();
    tools::ensure_present(&needs)?;

    let results: Vec<_> =
        chosen.into_iter().map(|stage| (stage.name, run_stage(stage, verbose))).collect();
    report(&results)
}

/// Runs a stage and says how it went. A stage that cannot run has failed.
fn run_stage(stage: &Stage, verbose: bool) -> (Tally, Duration) {
    tell!("{:<10} … {}", stage.name, stage.checks);
    let started = Instant::now();
    let listener = Listener { name: stage.name.to_owned(), verbose };
    let (tally, output) = (stage.run)(&listener)
        .unwrap_or_else(|error| (Tally::one(false), format!("cannot run: {error:#}\n")));
    if tally.failed > 0 && !verbose {
        tell!("{}", output.trim_end());
    }
    let time = started.elapsed();
    say!("{:<10} {} in {:.1} s", stage.name, verdict(tally), time.as_secs_f32());
    (tally, time)
}

/// The table of stages, and the last line.
fn report(results: &[(&str, (Tally, Duration))]) -> Result<()> {
    say!("\n{:<10} {:<6} {:>8} {:>8} {:>8}", "stage", "result", "passed", "failed", "seconds");
    let mut total = Tally::default();
    for (name, (tally, time)) in results {
        let Tally { passed, failed } = tally;
        let seconds = time.as_secs_f32();
        say!("{name:<10} {:<6} {passed:>8} {failed:>8} {seconds:>8.1}", verdict(*tally));
        total = total.plus(*tally);
    }
    say!("\n{} passed, {} failed", total.passed, total.failed);
    if total.failed > 0 { Err(Stop::Findings.into()) } else { Ok(()) }
}

fn verdict(tally: Tally) -> &'static str {
    if tally.failed > 0 { "FAILED" } else { "ok" }
}

fn fmt(listener: &Listener) -> Result<(Tally, String)> {
    let ours = listener.hear(child::cargo("fmt --all --check"))?;
    let fuzz = format!("fmt --check --manifest-path {}", fuzz::MANIFEST);
    let fuzz = listener.hear(child::cargo(&fuzz))?;
    Ok((Tally::one(ours.success && fuzz.success), ours.output + &fuzz.output))
}

fn tidy(_: &Listener) -> Result<(Tally, String)> {
    let findings: Vec<String> = tidy::findings()?.iter().map(|it| format!("{it}\n")).collect();
    Ok((Tally::one(findings.is_empty()), findings.concat()))
}

fn trace(_: &Listener) -> Result<(Tally, String)> {
    let (_, findings) = ledger::judge()?;
    Ok((Tally::one(findings.is_empty()), findings.join("\n")))
}

fn clippy(listener: &Listener) -> Result<(Tally, String)> {
    let lint = |what: &str| listener.hear(child::cargo(&format!("clippy {what} -- -D warnings")));
    let all = lint("--workspace --all-targets --all-features")?;
    // What the README has everybody build.
    let least = lint("--no-default-features --features roxe/cli -p roxe -p roxe-ibverbs")?;
    Ok((Tally::one(all.success && least.success), all.output + &least.output))
}

fn licences(listener: &Listener) -> Result<(Tally, String)> {
    let mut deny = child::command(tools::tool("cargo-deny")?);
    deny.args(["--color", "never", "check", "licenses", "bans", "sources"]);
    single(listener, deny)
}

fn tests(listener: &Listener) -> Result<(Tally, String)> {
    let mut nextest = child::command(tools::tool("cargo-nextest")?);
    nextest.args(["nextest", "run", "--workspace", "--all-features"]).args([
        "--no-fail-fast",
        "--color",
        "never",
        "--status-level",
        "slow",
    ]);
    if let Some(suite) = tools::suite() {
        nextest.env("ROXE_PYVERBS", suite);
    }
    let heard = listener.hear(nextest)?;
    Ok((read_nextest(&heard.output).given(heard.success), heard.output))
}

fn doc_tests(listener: &Listener) -> Result<(Tally, String)> {
    let heard =
        listener.hear(child::cargo("test --doc --workspace --all-features --no-fail-fast"))?;
    Ok((read_doc_tests(&heard.output).given(heard.success), heard.output))
}

fn bench(listener: &Listener) -> Result<(Tally, String)> {
    let heard = benches::short(listener)?;
    Ok((Tally::one(heard.success), heard.output))
}

fn docs(listener: &Listener) -> Result<(Tally, String)> {
    let mut doc = child::cargo("doc --workspace --all-features --no-deps");
    doc.env("RUSTDOCFLAGS", "-D warnings");
    single(listener, doc)
}

/// A stage that is one command.
fn single(listener: &Listener, command: Command) -> Result<(Tally, String)> {
    let heard = listener.hear(command)?;
    Ok((Tally::one(heard.success), heard.output))
}

/// `Summary [ 0.1s] 3 tests run: 2 passed (1 slow), 1 timed out, 0 skipped`: what has not passed
/// has failed, however it is called.
fn read_nextest(output: &str) -> Tally {
    let summary = output.lines().rev().find(|line| line.trim_start().starts_with("Summary ["));
    let counts = || {
        let (before, after) = summary?.split_once(" run: ")?;
        let before = before.rsplit_once(']')?.1.split_whitespace().next()?;
        // After an early end it says `2/3 tests`.
        let all: u32 = before.rsplit('/').next()?.parse().ok()?;
        let passed: u32 = after.split_whitespace().next()?.parse().ok()?;
        Some(Tally { passed, failed: all.checked_sub(passed)? })
    };
    counts().unwrap_or_default()
}

/// `test result: ok. 3 passed; 0 failed; 1 ignored; …`, once for each crate.
fn read_doc_tests(output: &str) -> Tally {
    let count = |line: &str, what: &str| {
        let words: Vec<&str> = line.split([' ', ';']).collect();
        let at = words.iter().position(|word| *word == what)?;
        words.get(at.checked_sub(1)?)?.parse().ok()
    };
    output
        .lines()
        .filter(|line| line.starts_with("test result:"))
        .map(|line| Tally {
            passed: count(line, "passed").unwrap_or(0),
            failed: count(line, "failed").unwrap_or(0),
        })
        .fold(Tally::default(), Tally::plus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nextest_summary_counts_all_that_did_not_pass() {
        let tally = |line: &str| {
            let Tally { passed, failed } = read_nextest(line);
            (passed, failed)
        };
        let fine = "    Starting\n     Summary [   0.005s] 12 tests run: 12 passed, 3 skipped\n";
        assert_eq!(tally(fine), (12, 0));
        let mixed = "Summary [ 9.1s] 5 tests run: 2 passed (1 slow), 1 failed, 2 timed out";
        assert_eq!(tally(mixed), (2, 3));
        assert_eq!(tally("Summary [ 9.1s] 4/6 tests run: 3 passed, 1 failed"), (3, 3));
        assert_eq!(tally("error: could not compile"), (0, 0));
        assert_eq!(tally("Summary [   0.002s] 1 test run: 0 passed, 1 failed"), (0, 1));
    }

    #[test]
    fn doc_test_summaries_add_up() {
        let output = "test result: ok. 3 passed; 0 failed; 0 ignored; finished in 0.1s\n\
                      test result: FAILED. 1 passed; 2 failed; 0 ignored\n";
        assert_eq!(read_doc_tests(output), Tally { passed: 4, failed: 2 });
    }

    #[test]
    fn a_runner_that_fails_without_a_summary_has_failed() {
        assert_eq!(Tally::default().given(false), Tally::one(false));
        assert_eq!(Tally::one(true).given(true), Tally::one(true));
        assert_eq!(Tally::one(false).given(false), Tally::one(false));
    }
}
