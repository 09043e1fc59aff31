//! `cargo xtask labs --kernel`: the lab `two-senders` in the simulator and over the kernel.

use anyhow::{Context as _, Result};

use crate::stop::Stop;
use crate::{child, tell, tools, workspace};

const LAB: &str = "tests/labs/two-senders.toml";
const PAGE: &str = "docs/congestion.md";
const PICTURES: &str = "docs/congestion";

/// Builds both, and lets them do it: as root. `--csv FOLDER` keeps what was seen over time;
/// `--markdown` renews the pictures and the table of the page about it.
pub(super) fn run(arguments: &[String]) -> Result<()> {
    let usage = || Stop::Usage("cargo xtask labs --kernel [--csv FOLDER] [--markdown]".into());
    let (mut csv, mut markdown) = (None, false);
    let mut words = arguments.iter().map(String::as_str);
    while let Some(word) = words.next() {
        match word {
            "--kernel" => {}
            "--markdown" => markdown = true,
            "--csv" => csv = Some(words.next().ok_or_else(usage)?.to_owned()),
            _ => return Err(usage().into()),
        }
    }
    tools::ensure_present(&[tools::BUILD, &["iproute2"]].concat())?;
    tell!("building roxe, as fast as it can be");
    let build = "build --release --all-features --bin roxe --example kernel_congestion";
    if !child::show(child::cargo(build))? {
        return Err(Stop::Findings.into());
    }
    let (root, built) = (workspace::root(), workspace::target().join("release"));
    let csv = csv.map_or_else(|| workspace::target().join("labs"), Into::into);

    let mut simulated = child::command(built.join("roxe"));
    simulated.current_dir(root).args(["sim", "lab", LAB, "--csv"]).arg(&csv);
    let status = simulated.status().context("cannot run roxe")?;
    if !status.success() {
        return Err(Stop::Findings.into());
    }
    let mut kernel = child::command(built.join("examples/kernel_congestion"));
    kernel.current_dir(root).arg(LAB).arg(&csv).arg("--csv").arg(&csv);
    if markdown {
        kernel.args(["--plot", PICTURES, "--markdown", PAGE]);
    }
    match kernel.status().context("cannot run kernel_congestion")?.code() {
        Some(0) => Ok(()),
        Some(3) => {
            Err(Stop::Missing("root is needed for network namespaces and AF_XDP".into()).into())
        }
        _ => Err(Stop::Findings.into()),
    }
}
