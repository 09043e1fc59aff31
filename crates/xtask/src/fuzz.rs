//! `cargo xtask fuzz`: hunts for inputs that crash a parser or the engine, with libFuzzer and
//! AddressSanitizer.
//!
//! The targets are the binaries of `tests/fuzz`, a workspace of its own. They are built by the
//! stable toolchain: sanitizer and coverage are in it, `RUSTC_BOOTSTRAP` lets us ask for them.
//! Inputs worth starting from are in `tests/fuzz/seeds/TARGET`, for `script` the scripts of
//! `tests/conformance`; what a run finds on the way is kept below `target/fuzz`, so that the next
//! run goes on from there.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::child::{self, Heard, Listener};
use crate::stop::Stop;
use crate::test::Tally;
use crate::{say, tell, tools, workspace};

/// What must be installed.
pub(crate) const NEEDS: &[&str] = &["g++"];

/// The workspace of the targets.
pub(crate) const MANIFEST: &str = "tests/fuzz/Cargo.toml";

/// How long a target runs as a stage of the tests.
const SHORT_SECONDS: u64 = 5;

/// How long a target runs if nobody says.
const DEFAULT_SECONDS: u64 = 60;

/// The coverage that libFuzzer steers by, and AddressSanitizer.
const RUSTFLAGS: &[&str] = &[
    "--cfg=fuzzing",
    "-Zsanitizer=address",
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Cllvm-args=-simplifycfg-branch-fold-threshold=0",
    "-Ccodegen-units=1",
];

/// What the command line asks for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Plan {
    targets: Vec<String>,
    seconds: Option<u64>,
    /// Run this one input instead of hunting.
    input: Option<PathBuf>,
    verbose: bool,
}

/// The command.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let plan = parse(arguments)?;
    let known = targets()?;
    if let Some(unknown) = plan.targets.iter().find(|name| !known.contains(name)) {
        let known = known.join(", ");
        return Err(Stop::Usage(format!("no target {unknown:?}; there are: {known}")).into());
    }
    let chosen = if plan.targets.is_empty() { known } else { plan.targets };

    tools::ensure_present(NEEDS)?;
    let programs = Programs::build(&listener("build", plan.verbose))?;
    if let Some(input) = plan.input {
        let mut command = child::command(programs.path(&chosen[0]));
        command.arg(std::path::absolute(input)?);
        return if child::show(command)? { Ok(()) } else { Err(Stop::Findings.into()) };
    }

    let seconds = plan.seconds.unwrap_or(DEFAULT_SECONDS);
    let mut failed = false;
    for target in chosen {
        tell!("{target}: {seconds} s");
        let (fine, output) = hunt(&programs, &target, seconds, &listener(&target, plan.verbose))?;
        failed |= !fine;
        if !plan.verbose {
            let stats: Vec<&str> = output.lines().filter(|line| line.contains("stat::")).collect();
            tell!("{}", if fine { stats.join("\n") } else { output });
        }
        say!("{target}: {}", if fine { "no crash" } else { "CRASHED" });
    }
    if failed { Err(Stop::Findings.into()) } else { Ok(()) }
}

/// The stage of the tests: every target, a few seconds each.
pub(crate) fn short(listener: &Listener) -> Result<(Tally, String)> {
    let programs = Programs::build(listener)?;
    let mut tally = Tally::default();
    let mut report = String::new();
    for target in targets()? {
        let (fine, output) = hunt(&programs, &target, SHORT_SECONDS, listener)?;
        tally.passed += u32::from(fine);
        tally.failed += u32::from(!fine);
        report += if fine { "" } else { &output };
    }
    Ok((tally, report))
}

/// The binaries of the fuzz workspace.
fn targets() -> Result<Vec<String>> {
    let packages = workspace::packages(MANIFEST)?;
    let all = packages.into_iter().flat_map(|package| package.targets);
    Ok(all.filter(|target| target.kind == "bin").map(|target| target.name).collect())
}

/// The built targets.
struct Programs(PathBuf);

impl Programs {
    fn build(listener: &Listener) -> Result<Self> {
        let triple = host()?;
        let folder = workspace::target().join("fuzz");
        // With a target named, cargo keeps these flags away from build scripts and macros.
        let mut command = child::cargo("build --release --bins --manifest-path");
        command
            .args([MANIFEST, "--target", &triple, "--target-dir"])
            .arg(&folder)
            .env("RUSTC_BOOTSTRAP", "1")
            .env("CARGO_ENCODED_RUSTFLAGS", RUSTFLAGS.join("\x1f"));
        let Heard { success, output } = listener.hear(command)?;
        ensure!(success, "the fuzz targets do not build:\n{output}");
        Ok(Self(folder.join(triple).join("release")))
    }

    fn path(&self, target: &str) -> PathBuf {
        self.0.join(target)
    }
}

/// Runs a target for a while. Whether it survived, and what it said; after a crash that ends with
/// how to see it again.
fn hunt(
    programs: &Programs,
    target: &str,
    seconds: u64,
    listener: &Listener,
) -> Result<(bool, String)> {
    let corpus = make_folder(workspace::target().join("fuzz/corpus").join(target))?;
    let crashes = make_folder(workspace::target().join("fuzz/crashes").join(target))?;
    let mut command = child::command(programs.path(target));
    command
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-artifact_prefix={}/", crashes.display()))
        .args(["-timeout=10", "-rss_limit_mb=2048", "-print_final_stats=1"])
        // New inputs go to the first folder; the others are only read.
        .arg(corpus)
        .args(seeds(target));
    let Heard { success, mut output } = listener.hear(command)?;
    if !success {
        let input = output.lines().rev().find_map(|line| line.split_once("Test unit written to "));
        let advice = match input {
            Some((_, path)) => {
                let path = workspace::shown(Path::new(path.trim()));
                format!(
                    "{target}: {path}\n\
                     again: cargo xtask fuzz {target} --input {path}\n\
                     once mended, keep it: cp {path} tests/fuzz/seeds/{target}/\n"
                )
            }
            None => format!("{target}: ended with an error, but left no input\n"),
        };
        if listener.verbose {
            tell!("{}", advice.trim_end());
        }
        output += &advice;
    }
    Ok((success, output))
}

/// The folders of inputs worth starting from.
fn seeds(target: &str) -> Vec<PathBuf> {
    let tests = workspace::root().join("tests");
    let own = tests.join("fuzz/seeds").join(target);
    let scripts = (target == "script").then(|| tests.join("conformance"));
    scripts.into_iter().chain(Some(own)).filter(|folder| folder.is_dir()).collect()
}

fn make_folder(path: PathBuf) -> Result<PathBuf> {
    fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))?;
    Ok(path)
}

fn listener(name: &str, verbose: bool) -> Listener {
    Listener { name: name.to_owned(), verbose }
}

/// The triple of this machine.
fn host() -> Result<String> {
    let output = Command::new("rustc").arg("-vV").output().context("cannot run rustc -vV")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc -vV names no host")?.to_owned())
}

fn parse(arguments: &[String]) -> Result<Plan, Stop> {
    let mut plan = Plan::default();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let mut value =
            || rest.next().ok_or_else(|| Stop::Usage(format!("{argument} wants a value")));
        match argument.as_str() {
            "--minutes" => plan.seconds = Some(60 * number(argument, value()?)?),
            "--seconds" => plan.seconds = Some(number(argument, value()?)?),
            "--input" => plan.input = Some(value()?.into()),
            "-v" | "--verbose" => plan.verbose = true,
            option if option.starts_with('-') => {
                return Err(Stop::Usage(format!("no option {option}; see cargo xtask --help")));
            }
            target => plan.targets.push(target.to_owned()),
        }
    }
    if plan.input.is_some() && plan.targets.len() != 1 {
        return Err(Stop::Usage("--input goes with exactly one target".into()));
    }
    Ok(plan)
}

fn number(option: &str, text: &str) -> Result<u64, Stop> {
    // A million minutes are two years; above that it is a slip.
    let number = text.parse().ok().filter(|number| (1..=1_000_000).contains(number));
    number.ok_or_else(|| Stop::Usage(format!("{option} wants a whole number, not {text:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_line(line: &str) -> Result<Plan, Stop> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        parse(&words)
    }

    #[test]
    fn minutes_and_targets() {
        let plan = parse_line("packet mad --minutes 2").expect("this is a plan");
        assert_eq!(plan.targets, ["packet", "mad"]);
        assert_eq!(plan.seconds, Some(120));
    }

    #[test]
    fn slips_are_usage_errors() {
        for line in ["--minutes", "--minutes x", "--seconds 0", "--sideways", "--input f"] {
            assert!(matches!(parse_line(line), Err(Stop::Usage(_))), "{line}");
        }
    }
}
