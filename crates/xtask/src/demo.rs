//! `cargo xtask demo`: the main job of the project, from a fresh clone, in one command.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};

use crate::stop::Stop;
use crate::{child, say, tell, tools, workspace};

/// Where the program writes what its lossy network carried, below the target folder.
const CAPTURE: &str = "demo/lossy.pcapng";

/// Lines of an explanation that are shown.
const SHOWN: usize = 16;

/// Builds what is needed and lets it work.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    if !arguments.is_empty() {
        return Err(Stop::Usage("usage: cargo xtask demo".into()).into());
    }
    tools::ensure_present(&[tools::BUILD, &["iproute2"]].concat())?;
    for what in
        ["--package roxe-verbs --features af_xdp --example two_hosts", "--package roxe --bin roxe"]
    {
        tell!("building {}", what.rsplit(' ').next().unwrap_or(what));
        must(child::cargo(&format!("build --release {what}")), "it does not build")?;
    }

    let release = workspace::target().join("release");
    let capture = workspace::target().join(CAPTURE);
    if let Some(folder) = capture.parent() {
        fs::create_dir_all(folder).context("cannot make a folder for the capture")?;
    }
    let mut hosts = child::command(release.join("examples/two_hosts"));
    hosts.arg(&capture);
    must(hosts, "two hosts could not exchange RoCEv2")?;

    say!("\n$ roxe explain {CAPTURE}    (its first frames)");
    let mut explain = child::command(release.join("roxe"));
    explain.arg("explain").arg(&capture).stdout(Stdio::piped());
    let mut explain = explain.spawn().context("cannot run roxe")?;
    if let Some(output) = explain.stdout.take() {
        for line in BufReader::new(output).lines().take(SHOWN) {
            say!("{}", line.context("roxe explain cannot be read")?);
        }
    }
    // That nobody reads the rest is no error of its.
    explain.wait().context("cannot wait for roxe")?;

    say!("\n$ roxe check {CAPTURE}");
    let mut check = child::command(release.join("roxe"));
    check.arg("check").arg(&capture);
    must(check, "roxe check found something")?;
    say!(
        "\nShown: two hosts exchanged RoCEv2 by SEND, WRITE, READ and atomics with their data \
         verified, also where packets were lost; what the wire carried was recorded, explained and \
         judged."
    );
    Ok(())
}

/// Runs a command whose output the user sees, and ends the demonstration where it fails.
fn must(command: Command, or: &str) -> Result<()> {
    if child::show(command)? {
        return Ok(());
    }
    say!("\nNot shown: {or}.");
    Err(Stop::Findings.into())
}
