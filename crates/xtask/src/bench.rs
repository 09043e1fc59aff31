//! `cargo xtask bench`: runs the benches of every crate that has some.

use anyhow::Result;

use crate::child::{self, Listener};
use crate::stop::Stop;
use crate::workspace::{self, Package};
use crate::{say, tell, tools};

/// Arguments go to the benches, which take words as filters. Options are those of the bench of
/// adapters, which then runs alone.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    tools::ensure_present(tools::BUILD)?;
    let is_option = |argument: &String| argument.starts_with('-');
    let mut arguments = arguments.to_vec();
    // `--markdown` is about the page where the table stands.
    if let Some(at) = arguments.iter().position(|argument| argument == "--markdown") {
        arguments.insert(at + 1, workspace::root().join(PAGE).display().to_string());
    }
    let alone = arguments.iter().any(is_option);
    let mut benches: Vec<(String, String)> =
        workspace::packages("Cargo.toml")?.iter().flat_map(benches_of).collect();
    benches.retain(|(_, bench)| !alone || bench == ADAPTER);
    if benches.is_empty() {
        say!("no crate has a bench yet");
        return Ok(());
    }

    let mut failed = false;
    if benches.iter().any(|(_, bench)| bench == DROP_IN) {
        tools::ensure_present(tools::PROGRAMS)?;
        failed |= !child::show(child::cargo("build --release --package roxe"))?;
    }
    for (number, (package, bench)) in benches.iter().enumerate() {
        tell!("bench {} of {}: {package}, {bench}", number + 1, benches.len());
        let mut command = child::cargo("bench --all-features");
        command.args(["--package", package, "--bench", bench, "--"]).args(&arguments);
        failed |= !child::show(command)?;
    }
    if failed { Err(Stop::Findings.into()) } else { Ok(()) }
}

/// Shows that the bench of adapters runs, whatever it measures.
pub(crate) fn short(listener: &Listener) -> Result<child::Heard> {
    let words = "test --all-features --package roxe-verbs --bench adapter -- --short";
    listener.hear(child::cargo(words))
}

fn benches_of(package: &Package) -> Vec<(String, String)> {
    let benches = package.targets.iter().filter(|target| target.kind == "bench");
    benches.map(|bench| (package.name.clone(), bench.name.clone())).collect()
}

/// The bench of programs on the C library, beside the program `roxe`.
const DROP_IN: &str = "drop_in";

/// The bench of adapters on network interfaces, and where its table is kept.
const ADAPTER: &str = "adapter";
const PAGE: &str = "docs/performance.md";
