//! `cargo xtask demo`: the main job of the project, from a fresh clone, in one command.

use anyhow::Result;

use crate::stop::Stop;
use crate::{child, say, tell, tools, workspace};

/// The capture that is explained and judged.
const CAPTURE: &str = "pcaps/rc_mix.pcap";

/// Builds `roxe` and lets it work.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    if !arguments.is_empty() {
        return Err(Stop::Usage("usage: cargo xtask demo".into()).into());
    }
    tools::ensure_present(tools::BUILD)?;
    tell!("building roxe (release)");
    if !child::show(child::cargo("build --release --package roxe --bin roxe"))? {
        say!("\nNot shown: roxe does not build.");
        return Err(Stop::Findings.into());
    }

    for verb in ["explain", "check"] {
        say!("\n$ roxe {verb} {CAPTURE}");
        let mut command = child::command(workspace::target().join("release/roxe"));
        command.args([verb, CAPTURE]);
        if !child::show(command)? {
            say!("\nNot shown: roxe {verb} ended with an error.");
            return Err(Stop::Findings.into());
        }
    }
    tell!("building two hosts (release)");
    let build = "build --release --package roxe-verbs --features af_xdp --example two_hosts";
    if !child::show(child::cargo(build))? {
        say!("\nNot shown: the example two_hosts does not build.");
        return Err(Stop::Findings.into());
    }
    say!("\n$ two_hosts");
    let two_hosts = workspace::target().join("release/examples/two_hosts");
    if !child::show(child::command(two_hosts))? {
        say!("\nNot shown: two hosts could not exchange RoCEv2.");
        return Err(Stop::Findings.into());
    }
    say!(
        "\nShown: two hosts exchanged RoCEv2 by SEND, WRITE, READ and atomics with their data \
         verified; roxe read a recorded capture, said what each packet means and judged the whole."
    );
    Ok(())
}
