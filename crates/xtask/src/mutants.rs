//! `cargo xtask mutants`: changes the code a little in hundreds of ways, and looks whether some
//! test notices.
//!
//! cargo-mutants makes the changes, in a copy of the work tree below `target/mutants`, whose own
//! target folder stays warm: a mutant costs a few seconds. The quick tests come first, and only
//! what survives them meets the next ones. A mutant that survives them all is a finding, unless
//! [`LIST`] says why no test can tell it from the code.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::stop::Stop;
use crate::{child, say, tell, tools, trace, workspace};

/// Survivors that are known, with the reason of each.
const LIST: &str = "tests/mutants.toml";

/// Where the protocol and the protection of memory are: what is mutated if nobody says.
const FILES: &[&str] = &[
    "crates/transport/src/qp_state.rs",
    "crates/device/src/memory.rs",
    "crates/device/src/memory/copy.rs",
    "crates/device/src/memory/grant.rs",
    "crates/device/src/memory/regions.rs",
    "crates/device/src/memory/windows.rs",
    "crates/transport/src/inbound.rs",
    "crates/transport/src/requester.rs",
    "crates/transport/src/rc/acknowledge.rs",
    "crates/transport/src/rc/broken.rs",
    "crates/transport/src/rc/completer.rs",
    "crates/transport/src/rc/execute.rs",
    "crates/transport/src/rc/replay.rs",
    "crates/transport/src/rc/requester.rs",
    "crates/transport/src/rc/respond.rs",
    "crates/transport/src/rc/responder.rs",
    "crates/transport/src/rc/retry.rs",
];

/// Some tests that a mutant meets: of these packages, the programs that the arguments of `cargo
/// test` choose, and in them the tests whose names contain this.
struct Round(&'static [&'static str], &'static str, &'static str);

/// All that is built for the scripts: one program, which shows most of what a device does.
const SCRIPTS: Round = Round(
    &["roxe-device", "roxe-sim", "roxe-transport"],
    "--test=conformance",
    "every_script_comes_true",
);

/// The tests by the beginning of a file's path, quick ones first; lossy links take longest.
const ROUNDS: &[(&str, &[Round])] = &[
    ("crates/device/", &[Round(&["roxe-device"], "--tests", ""), SCRIPTS]),
    (
        "crates/transport/",
        &[
            Round(&["roxe-transport"], "--lib --test=[!l]*", ""),
            SCRIPTS,
            Round(&["roxe-transport"], "--tests", ""),
        ],
    ),
];

/// What the command line asks for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Plan {
    files: Vec<String>,
    /// `k/n`: the k-th of n parts, counted from 0.
    shard: Option<String>,
    /// Only what changed since this commit.
    since: Option<String>,
}

/// A survivor that is known.
#[derive(Debug, PartialEq, Eq)]
struct Known {
    file: String,
    /// What is changed.
    mutant: String,
    /// In which line: its text, for its number moves.
    line: String,
}

/// What became of the mutants of a file; names as cargo-mutants has them.
#[derive(Debug, Default)]
struct Outcome {
    caught: usize,
    timeout: usize,
    unviable: usize,
    missed: Vec<String>,
}

/// The command.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let plan = parse(arguments)?;
    let list = fs::read_to_string(workspace::root().join(LIST))
        .with_context(|| format!("cannot read {LIST}"))?;
    let known = read_list(&list)?;
    tools::ensure_present(&["cargo-mutants"])?;
    let tree = copy_tree()?;

    let mut findings = Vec::new();
    say!("{:<42} mutants caught timeout unviable listed missed", "file");
    for file in &plan.files {
        let outcome = mutate(&tree, file, &plan)?;
        let text = fs::read_to_string(tree.join(file))?;
        let survivors = outcome.missed.iter().map(|name| (name, Known::of(name, &text)));
        let (listed, open): (Vec<_>, Vec<_>) =
            survivors.partition(|(_, survivor)| known.contains(survivor));
        let Outcome { caught, timeout, unviable, missed } = &outcome;
        say!(
            "{file:<42} {:>7} {caught:>6} {timeout:>7} {unviable:>8} {:>6} {:>6}",
            caught + timeout + unviable + missed.len(),
            listed.len(),
            open.len()
        );
        findings.extend(open.iter().map(|(name, _)| format!("MISSED {name}")));
        if plan.shard.is_none() && plan.since.is_none() {
            let here = known.iter().filter(|known| known.file == *file);
            let stale = here.filter(|known| !listed.iter().any(|(_, found)| found == *known));
            findings.extend(stale.map(|known| format!("{LIST}: does not survive: {known:?}")));
        }
    }
    findings.iter().for_each(|finding| say!("{finding}"));
    if findings.is_empty() { Ok(()) } else { Err(Stop::Findings.into()) }
}

impl Known {
    /// The survivor that cargo-mutants calls `FILE:LINE:COLUMN: CHANGE`, in the text of its file.
    fn of(name: &str, text: &str) -> Self {
        let (place, change) = name.split_once(": ").unwrap_or((name, ""));
        let mut place = place.split(':');
        let file = place.next().unwrap_or_default().to_owned();
        let number = place.next().and_then(|number| number.parse::<usize>().ok());
        let line = number.and_then(|number| text.lines().nth(number.checked_sub(1)?));
        let line = line.unwrap_or_default().trim().to_owned();
        Self { file, mutant: change.to_owned(), line }
    }
}

/// Lets the mutants of a file meet its tests, round by round.
fn mutate(tree: &Path, file: &str, plan: &Plan) -> Result<Outcome> {
    let (_, rounds) = ROUNDS
        .iter()
        .find(|(folder, _)| file.starts_with(folder))
        .ok_or_else(|| Stop::Usage(format!("mutants.rs does not say which tests {file} has")))?;
    let output = tree.with_file_name("output");
    let found = output.join("mutants.out");
    let mut chosen: Vec<String> =
        plan.shard.iter().flat_map(|shard| ["--shard".into(), shard.clone()]).collect();
    let diff = tree.with_file_name("changes.diff");
    let in_diff = ["--in-diff".into(), diff.display().to_string()];
    if let Some(commit) = &plan.since {
        fs::write(&diff, changes(commit, file)?)?;
        chosen.extend(in_diff.clone());
    }
    let mut whole = Outcome::default();
    for (number, Round(packages, programs, tests)) in rounds.iter().enumerate() {
        let mut command = child::command("nice");
        command
            .args(["-n", "19"])
            .arg(tools::tool("cargo-mutants")?)
            .args("mutants --workspace --in-place --baseline=skip --no-shuffle".split(' '))
            .args("--profile=mutants --timeout=30 --build-timeout=600".split(' '))
            .args(["--file", file])
            .arg("--output")
            .arg(&output)
            .current_dir(tree)
            .env_remove("CARGO_TARGET_DIR")
            .env("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "1");
        command.args(packages.iter().flat_map(|package| ["--test-package", package]));
        command.args(programs.split(' ').flat_map(|program| ["--cargo-arg", program]));
        match number {
            0 => command.args(&chosen),
            _ => {
                // By line too: cargo-mutants leaves out fields of whatever name.
                let text = fs::read_to_string(tree.join(file))?;
                fs::write(&diff, diff_of(file, &whole.missed, &text))?;
                let names = whole.missed.iter().flat_map(|name| ["--re".into(), exactly(name)]);
                command.args(names).args(&in_diff)
            }
        };
        command.args(["--", "--", tests]);
        tell!("{file}: tests of {}", packages.join(", "));
        if found.exists() {
            fs::remove_dir_all(&found)?;
        }
        if child::show(command)? && !found.exists() {
            break; // There was nothing to change.
        }
        let read = |name: &str| {
            let path = found.join(name);
            let text = fs::read_to_string(&path)
                .with_context(|| format!("cargo-mutants left no {}", path.display()))?;
            anyhow::Ok(text.lines().map(str::to_owned).collect::<Vec<_>>())
        };
        whole.caught += read("caught.txt")?.len();
        whole.timeout += read("timeout.txt")?.len();
        whole.unviable += read("unviable.txt")?.len();
        whole.missed = read("missed.txt")?;
        if whole.missed.is_empty() {
            break;
        }
    }
    Ok(whole)
}

/// What changed in a file since this commit.
fn changes(commit: &str, file: &str) -> Result<Vec<u8>> {
    let how = "diff --unified=0 --no-color --no-ext-diff --src-prefix=a/ --dst-prefix=b/";
    let output = child::command("git")
        .args(how.split(' '))
        .args([commit, "--", file])
        .current_dir(workspace::root())
        .output()?;
    ensure!(output.status.success(), "git: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(output.stdout)
}

/// A difference that has the lines of these survivors, and no other, in the text of their file.
fn diff_of(file: &str, survivors: &[String], text: &str) -> String {
    let number = |name: &String| name.split(':').nth(1)?.parse::<usize>().ok();
    let numbers: BTreeSet<usize> = survivors.iter().filter_map(number).collect();
    let hunks = numbers.iter().filter_map(|&number| {
        let line = text.lines().nth(number.checked_sub(1)?)?;
        Some(format!("@@ -{number},1 +{number},1 @@\n-\n+{line}\n"))
    });
    format!("--- a/{file}\n+++ b/{file}\n{}", hunks.collect::<String>())
}

/// A copy of the work tree, which is changed where the work tree was: what did not change need not
/// be built again.
fn copy_tree() -> Result<PathBuf> {
    let tree = workspace::target().join("mutants/tree");
    for name in workspace::files()? {
        let (from, to) = (workspace::root().join(&name), tree.join(&name));
        let Ok(bytes) = fs::read(&from) else { continue }; // Deleted, and not yet in a commit.
        if fs::read(&to).is_ok_and(|there| there == bytes) {
            continue;
        }
        let write = || {
            fs::create_dir_all(to.parent().expect("a file below the tree"))?;
            fs::write(&to, &bytes)
        };
        write().with_context(|| format!("cannot write {}", to.display()))?;
    }
    Ok(tree)
}

/// A regular expression for this text and no other.
fn exactly(text: &str) -> String {
    let escaped = text.chars().flat_map(|c| {
        let special = r".+*?()|[]{}^$\".contains(c).then_some('\\');
        special.into_iter().chain([c])
    });
    format!("^{}$", escaped.collect::<String>())
}

fn read_list(text: &str) -> Result<Vec<Known>> {
    let rows = text.split("\n[[survives]]\n").skip(1);
    rows.map(|row| {
        let value = |key| trace::value(row, key).unwrap_or_default();
        let known = Known { file: value("file"), mutant: value("mutant"), line: value("line") };
        ensure!(!value("why").is_empty(), "{LIST}: no reason why for {known:?}");
        Ok(known)
    })
    .collect()
}

fn parse(arguments: &[String]) -> Result<Plan, Stop> {
    let mut plan = Plan::default();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match argument.as_str() {
            "--shard" => {
                let wants = || Stop::Usage("--shard wants k/n: the k-th of n, from 0".into());
                let value = rest.next().ok_or_else(wants)?;
                let (k, n) = value.split_once('/').ok_or_else(wants)?;
                match (k.parse::<u32>(), n.parse::<u32>()) {
                    (Ok(k), Ok(n)) if k < n => plan.shard = Some(value.clone()),
                    _ => return Err(wants()),
                }
            }
            "--since" => {
                let wants = || Stop::Usage("--since wants a commit".into());
                let commit = rest.next().filter(|commit| !commit.starts_with('-'));
                plan.since = Some(commit.ok_or_else(wants)?.clone());
            }
            flag if flag.starts_with('-') => {
                return Err(Stop::Usage(format!("mutants knows no {flag}")));
            }
            file if workspace::root().join(file).is_file() => plan.files.push(file.to_owned()),
            file => return Err(Stop::Usage(format!("there is no file {file}"))),
        }
    }
    if plan.files.is_empty() {
        plan.files = FILES.iter().map(|file| file.to_string()).collect();
    }
    Ok(plan)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mutant_is_known_wherever_its_line_has_moved() {
        let text = "fn a() {\n    a > b\n}\n";
        let known = Known::of("crates/a.rs:2:7: replace > with >= in a", text);
        assert_eq!(
            known,
            Known {
                file: "crates/a.rs".into(),
                mutant: "replace > with >= in a".into(),
                line: "a > b".into()
            }
        );
        let moved = format!("\n{text}");
        assert_eq!(Known::of("crates/a.rs:3:7: replace > with >= in a", &moved), known);
        assert_ne!(Known::of("crates/a.rs:1:7: replace > with >= in a", text), known);
    }

    #[test]
    fn one_mutant_is_named_exactly() {
        assert_eq!(exactly("a:1: b -> (c|d)"), r"^a:1: b -> \(c\|d\)$");
    }

    #[test]
    fn survivors_are_named_by_their_lines_too() {
        let names = ["a.rs:3:1: replace b".to_owned(), "a.rs:3:5: replace c".to_owned()];
        let diff = "--- a/a.rs\n+++ b/a.rs\n@@ -3,1 +3,1 @@\n-\n+  b c\n";
        assert_eq!(diff_of("a.rs", &names, "x\ny\n  b c\n"), diff);
    }

    #[test]
    fn the_list_has_a_reason_for_each() {
        let row = "# x\n\n[[survives]]\nfile = \"a.rs\"\nmutant = \"replace\"\nline = \"x\"\n";
        assert!(read_list(row).is_err());
        let known = read_list(&format!("{row}why = \"equal\"\n")).unwrap();
        assert_eq!(known, [Known::of("a.rs:1:1: replace", "x")]);
        let list = fs::read_to_string(workspace::root().join(LIST)).unwrap();
        assert!(read_list(&list).is_ok());
    }

    #[test]
    fn parts_are_counted_from_0_and_changes_from_a_commit() {
        let parse =
            |words: &[&str]| parse(&words.iter().map(|s| s.to_string()).collect::<Vec<_>>());
        assert_eq!(parse(&["--shard", "1/2"]).unwrap().shard.as_deref(), Some("1/2"));
        assert_eq!(parse(&[]).unwrap().files.len(), FILES.len());
        assert_eq!(parse(&["--since", "main"]).unwrap().since.as_deref(), Some("main"));
        let shards = [&["--shard", "2/2"][..], &["--shard", "a/b"], &["--shard"]];
        for wrong in
            shards.into_iter().chain([&["--since", "-x"][..], &["--since"], &["x"], &["-x"]])
        {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
