//! The Python suite of rdma-core, on the distribution's pyverbs.

use std::path::Path;
use std::process::Output;

use crate::end::program_on;
use crate::namespace::Cable;

/// What became of it.
pub(crate) struct Results {
    pub(crate) passed: usize,
    /// Tests that could not run here, and why.
    pub(crate) skipped: Vec<String>,
    /// Those that failed, or did not come.
    pub(crate) wrong: Vec<String>,
}

/// Runs the tests that an adapter like ours passes, on a host with this one; the suite is in this
/// folder.
pub(crate) fn run(device: &str, folder: &Path) -> Results {
    let names: Vec<&str> = NAMES.lines().filter(|line| !line.starts_with('#')).collect();
    let script = folder.join("run_tests.py");
    // The system's own Python: the one that pyverbs was compiled for.
    let mut command = program_on("/usr/bin/python3", device);
    command
        .arg(script)
        .args("--dev roxe0 --port 1 --gid 0 -v".split_whitespace())
        .args(&names)
        // It finds its modules beside the script's folder.
        .current_dir(folder.parent().unwrap_or(folder));
    let cable = Cable::new(4500);
    let output = cable.a.run(|| command.output()).expect("apt-get install python3-pyverbs");
    read(&names, &output)
}

/// A test's line ends with `... ok`, `... skipped 'why'`, `... FAIL` or `... ERROR`; in between it
/// may print something of its own.
pub(crate) fn read(names: &[&str], Output { status, stdout, stderr }: &Output) -> Results {
    let text = format!("{}{}", String::from_utf8_lossy(stdout), String::from_utf8_lossy(stderr));
    let ran = |line: &&str| line.starts_with("Ran ");
    let count = text.lines().find(ran).and_then(|line| line.split(' ').nth(1)?.parse().ok());
    let skipped: Vec<_> = text
        .lines()
        .filter_map(|line| line.split_once("... skipped "))
        .map(|(test, why)| format!("{}: {why}", test.split(' ').next().unwrap_or_default()))
        .collect();
    let is_wrong = |line: &&str| line.starts_with("FAIL: ") || line.starts_with("ERROR: ");
    let mut wrong: Vec<_> = text.lines().filter(is_wrong).map(str::to_owned).collect();
    if count != Some(names.len()) {
        let end: Vec<_> = text.lines().rev().take(20).collect();
        let end: Vec<_> = end.into_iter().rev().collect();
        wrong.push(format!("{count:?} of {} tests ran:\n{}", names.len(), end.join("\n")));
    }
    let passed = count.unwrap_or(0).saturating_sub(skipped.len() + wrong.len());
    if wrong.is_empty() && !status.success() {
        wrong.push(format!("all tests ran, and the suite ended with {status}"));
    }
    if wrong.is_empty() && passed == 0 {
        wrong.push("no test passed".to_owned());
    }
    Results { passed, skipped, wrong }
}

const NAMES: &str = include_str!("rdma-core.txt");
