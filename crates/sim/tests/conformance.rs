//! Every script under `tests/conformance` comes true, says which rules of the ledger it is about,
//! and would not come true with a line less.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use roxe_device::counters::{DeviceCount, NAMES, Of, QP_DROPS};
use roxe_sim::script::{Outcome, Play, run_text};

/// The scripts by their path below `tests/conformance`, with their text, in order.
fn scripts() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/conformance");
    let mut files = Vec::new();
    let folders = fs::read_dir(&root).expect("the folder of scripts");
    for folder in folders.map(|entry| entry.expect("a folder").path()).filter(|path| path.is_dir())
    {
        let entries = fs::read_dir(&folder).expect("a folder of scripts");
        let paths = entries.map(|entry| entry.expect("a script").path());
        files.extend(paths.filter(|path| path.extension().is_some_and(|end| end == "roce")));
    }
    files.sort();
    let name = |path: &PathBuf| {
        path.strip_prefix(&root).expect("a path below the root").display().to_string()
    };
    let text = |path: &PathBuf| fs::read_to_string(path).expect("a text");
    files.iter().map(|path| (name(path), text(path))).collect()
}

#[test]
fn every_script_comes_true() {
    let scripts = scripts();
    let failed: Vec<_> = scripts
        .iter()
        .map(|(name, text)| run_text(name, text, &Play::default()))
        .filter(|outcome| outcome.exit_status() != 0)
        .map(|outcome| outcome.to_string())
        .collect();
    assert!(failed.is_empty(), "{} of {}:\n{}", failed.len(), scripts.len(), failed.join("\n\n"));
    assert!(scripts.len() > 200, "only {} scripts were found", scripts.len());
}

#[test]
fn every_script_says_its_rule() {
    let wrong: Vec<_> = scripts()
        .into_iter()
        .filter(|(_, text)| {
            let is_id = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
            let ids = rules(text);
            ids.is_empty() || !ids.iter().all(|id| !id.is_empty() && id.chars().all(is_id))
        })
        .map(|(name, _)| name)
        .collect();
    assert!(wrong.is_empty(), "no `# RULE id, id: sentence`: {wrong:?}");
}

/// The ids behind `# RULE`.
fn rules(text: &str) -> Vec<&str> {
    let rule = text.strip_prefix("# RULE ").and_then(|rest| rest.split_once(": "));
    rule.map_or(Vec::new(), |(ids, _)| ids.split(", ").collect())
}

#[test]
fn scripts_and_ledger_know_each_other() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/conformance");
    let ledger = fs::read_to_string(path.join("requirements.toml")).expect("the ledger");
    let rows: Vec<_> = ledger
        .split("\n[\"")
        .skip(1)
        .filter_map(|row| Some((row.split_once("\"]")?.0, row.contains("\nstatus = \"kept\""))))
        .collect();
    let scripts = scripts();
    let cited: BTreeSet<_> = scripts.iter().flat_map(|(_, text)| rules(text)).collect();
    let known: BTreeSet<_> = rows.iter().map(|(id, _)| *id).collect();
    let kept: BTreeSet<_> = rows.iter().filter(|(_, kept)| *kept).map(|(id, _)| *id).collect();
    assert_eq!(known.len(), rows.len(), "an id has two rows");
    let without_row: Vec<_> = cited.difference(&known).collect();
    assert!(without_row.is_empty(), "cited, and not in the ledger: {without_row:?}");
    let without_script: Vec<_> = kept.difference(&cited).collect();
    assert!(without_script.is_empty(), "kept, and without a script: {without_script:?}");
}

/// What the engine counts, some script sees counted. Frames that are dropped before they reach the
/// engine are those of `roxe-wire` and `roxe-net`.
//= W02 test
#[test]
fn every_counter_of_the_engine_counts_in_some_script() {
    let scripts = scripts();
    let lines = scripts.iter().flat_map(|(_, text)| text.lines());
    let counted: BTreeSet<&str> = lines
        .filter_map(|line| {
            let (_, counter) = line.split_once("counter ")?;
            let words: Vec<&str> = counter.split_whitespace().take(3).collect();
            let some = |value: &str| value.parse().is_ok_and(|value: u64| value > 0);
            match words[..] {
                [name, value, ..] if some(value) => Some(name),
                [_, name, value] if some(value) => Some(name),
                _ => None,
            }
        })
        .collect();
    let ours = NAMES.iter().filter(|row| match row.of {
        // The device of a script shares its addresses with nobody.
        Of::Device(DeviceCount::OfOthers) => false,
        Of::Transport(_) | Of::Device(_) => true,
        Of::Drop(name) => QP_DROPS.contains(&name),
    });
    let silent: Vec<_> = ours.map(|row| row.name).filter(|name| !counted.contains(name)).collect();
    assert!(silent.is_empty(), "no script says `counter NAME N` of {silent:?}");
}

/// What the device does beyond the script fails it: so no line about the device can be left out.
#[test]
fn no_line_about_the_device_can_be_left_out() {
    let mut unneeded = Vec::new();
    for (name, text) in scripts() {
        for (index, line) in text.lines().enumerate() {
            // Where time passes, the line's time would be left out too. The device has its turn
            // still; else it might do something else.
            let Some(what) = line.strip_prefix("+0 ").map(str::trim_start) else { continue };
            if ![">", "completion", "event"].iter().any(|does| what.starts_with(does)) {
                continue;
            }
            let lines = text.lines().enumerate();
            let without = lines.map(|(at, line)| if at == index { "+0 turn" } else { line });
            let without: Vec<_> = without.collect();
            let outcome = run_text(&name, &without.join("\n"), &Play::default());
            if matches!(outcome, Outcome::Passed { .. }) {
                unneeded.push(format!("{name}:{}: {line}", index + 1));
            }
        }
    }
    assert!(unneeded.is_empty(), "{}", unneeded.join("\n"));
}

/// Whoever learns the language from its page begins with that script.
#[test]
fn the_example_on_the_page_of_the_language_comes_true() {
    let page = include_str!("../../../tests/conformance/README.md");
    let (_, behind) = page.split_once("```text\n").expect("an example");
    let (script, _) = behind.split_once("```").expect("its end");
    let outcome = run_text("example", script, &Play::default());
    assert!(matches!(outcome, Outcome::Passed { .. }), "{outcome}");
}
