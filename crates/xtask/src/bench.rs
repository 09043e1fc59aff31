//! `cargo xtask bench`: runs the benches of every crate that has some.

use anyhow::Result;

use crate::stop::Stop;
use crate::workspace::{self, Package};
use crate::{child, say, tell, tools};

/// Arguments go to the benches, which take them as filters.
pub(crate) fn run(filters: &[String]) -> Result<()> {
    tools::ensure_present(tools::BUILD)?;
    let benches: Vec<(String, String)> =
        workspace::packages("Cargo.toml")?.iter().flat_map(benches_of).collect();
    if benches.is_empty() {
        say!("no crate has a bench yet");
        return Ok(());
    }

    let mut failed = false;
    for (number, (package, bench)) in benches.iter().enumerate() {
        tell!("bench {} of {}: {package}, {bench}", number + 1, benches.len());
        let mut command = child::cargo("bench --all-features");
        command.args(["--package", package, "--bench", bench, "--"]).args(filters);
        failed |= !child::show(command)?;
    }
    if failed { Err(Stop::Findings.into()) } else { Ok(()) }
}

fn benches_of(package: &Package) -> Vec<(String, String)> {
    let benches = package.targets.iter().filter(|target| target.kind == "bench");
    benches.map(|bench| (package.name.clone(), bench.name.clone())).collect()
}
