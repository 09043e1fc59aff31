//! `cargo xtask labs`: every experiment of congestion control, in full.

mod kernel;

use anyhow::{Context as _, Result};

use crate::stop::Stop;
use crate::{child, tell, workspace};

/// Builds the program, quickly and with every assertion on, and lets it do them. With `--kernel`
/// one of them is done over the kernel too.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    if arguments.iter().any(|argument| argument == "--kernel") {
        return kernel::run(arguments);
    }
    tell!("building roxe");
    let build = "build --profile swarm --bin roxe --no-default-features --features cli";
    if !child::show(child::cargo(build))? {
        return Err(Stop::Findings.into());
    }
    let mut labs = child::command(workspace::target().join("swarm/roxe"));
    labs.args(["sim", "lab"]).args(arguments);
    let status = labs.status().context("cannot run roxe")?;
    match status.code() {
        Some(0) => Ok(()),
        Some(2) => Err(Stop::Usage("see roxe sim lab --help".into()).into()),
        _ => Err(Stop::Findings.into()),
    }
}
