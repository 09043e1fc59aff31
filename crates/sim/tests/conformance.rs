//! Every script under `tests/conformance` comes true, says which rule it is about, and would not
//! come true with a line less.

use std::fs;
use std::path::{Path, PathBuf};

use roxe_sim::script::{Options, Outcome, run_text};

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
        .map(|(name, text)| run_text(name, text, &Options::default()))
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
            let rule = text.strip_prefix("# RULE ").and_then(|rest| rest.split_once(": "));
            let ids = rule.map_or("", |(ids, _)| ids).split(", ");
            let is_id = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
            !ids.into_iter().all(|id| !id.is_empty() && id.chars().all(is_id))
        })
        .map(|(name, _)| name)
        .collect();
    assert!(wrong.is_empty(), "no `# RULE id, id: sentence`: {wrong:?}");
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
            let outcome = run_text(&name, &without.join("\n"), &Options::default());
            if matches!(outcome, Outcome::Passed { .. }) {
                unneeded.push(format!("{name}:{}: {line}", index + 1));
            }
        }
    }
    assert!(unneeded.is_empty(), "{}", unneeded.join("\n"));
}
