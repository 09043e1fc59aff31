//! What a guest's kernel said of its own faults: panics, and warnings with a call trace.

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context as _, Result};

use super::{CAPTURES, folder_of};
use crate::workspace;

/// Keeps the traces of a run with a kernel, in the place of those of the last run of its kind; of a
/// run without any, nothing is kept.
pub(super) fn keep(series: &str, of: &str) -> Result<()> {
    let folder = folder_of(series);
    // What the console showed outlives a panic; the kernel's own buffer has the warnings.
    let said = ["console.log", "dmesg"].map(|name| fs::read(folder.join(name)).unwrap_or_default());
    let mut seen = BTreeSet::new();
    let mut traces = Vec::new();
    for text in &said {
        for trace in traces_in(&String::from_utf8_lossy(text)) {
            if seen.insert(what(&trace).to_owned()) {
                traces.push(trace);
            }
        }
    }
    let captures = workspace::root().join(CAPTURES);
    let path = captures.join(format!("{KEPT}{series}-{of}.txt"));
    if traces.is_empty() {
        let _ = fs::remove_file(path);
        return Ok(());
    }
    fs::create_dir_all(&captures).with_context(|| format!("cannot make {CAPTURES}"))?;
    fs::write(&path, traces.join("\n")).with_context(|| format!("cannot write {}", path.display()))
}

/// The names of what is kept, sorted.
pub(super) fn kept() -> Vec<String> {
    let entries = fs::read_dir(workspace::root().join(CAPTURES)).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = names.filter(|name| name.starts_with(KEPT)).collect();
    names.sort();
    names
}

/// With what the name of a kept console begins.
const KEPT: &str = "console-";

/// What a kernel says first where a fault of its own is told.
const FAULTS: [&str; 7] = [
    "WARNING: ",
    "BUG: ",
    "Oops: ",
    "Kernel panic",
    "general protection fault",
    "INFO: task ",
    "rcu: INFO",
];

/// Where such a telling ends, and how long it is at most.
const ENDS: [&str; 3] = ["---[ end trace", "---[ end Kernel panic", "Rebooting in"];
const MOST_LINES: usize = 100;

/// The tellings of faults in what a kernel said, each with an end of line.
fn traces_in(said: &str) -> Vec<String> {
    let lines: Vec<&str> = said.lines().map(str::trim_end).collect();
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(ahead) = lines[at..].iter().position(|line| is_one(line, &FAULTS)) {
        let first = at + ahead;
        let rest = &lines[first..lines.len().min(first + MOST_LINES)];
        let end = rest.iter().position(|line| is_one(line, &ENDS)).map_or(rest.len(), |it| it + 1);
        found.push(rest[..end].join("\n") + "\n");
        at = first + end;
    }
    found
}

fn is_one(line: &str, marks: &[&str]) -> bool {
    let line = without_time(line);
    marks.iter().any(|mark| line.starts_with(mark))
}

/// What tells one fault from another: its first line, without the time, and of a warning without
/// the process that met it.
fn what(trace: &str) -> &str {
    let line = without_time(trace.lines().next().unwrap_or_default());
    line.split_once(" at ").map_or(line, |(_, place)| place)
}

/// A line without the `[   12.345678]` before it.
fn without_time(line: &str) -> &str {
    let behind = line.strip_prefix('[').and_then(|it| it.split_once("] "));
    behind.map_or(line, |(_, text)| text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_goes_from_its_fault_to_its_end() {
        let said = "roxe-guest: ready\n[    5.2] rdma_rxe: qp#17 no address\n\
                    [    7.1] WARNING: CPU: 0 PID: 9 at rxe_comp.c:745\r\n[    7.2]  ? rxe_do\n\
                    [    7.3] ---[ end trace 0 ]---\n[    8.0] rxe0: quiet\n\
                    [    9.0] Kernel panic - not syncing: Fatal exception\n[    9.1] RIP: 0010\n";
        let found = traces_in(said);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("[    7.1] WARNING: ") && found[0].lines().count() == 3);
        assert_eq!(what(&found[0]), "rxe_comp.c:745");
        assert_eq!(what(&found[1]), "Kernel panic - not syncing: Fatal exception");
        assert!(found[1].ends_with("Fatal exception\n[    9.1] RIP: 0010\n"), "{}", found[1]);
        assert!(traces_in("[ 1.0] the word WARNING: stands in it\n").is_empty());
        let long = format!("BUG: x\n{}", "line\n".repeat(300));
        assert_eq!(traces_in(&long)[0].lines().count(), MOST_LINES);
    }
}
