//! `cargo xtask soak`: mixed traffic over a bad network for long, with all of it verified.

use anyhow::{Context as _, Result};

use crate::stop::Stop;
use crate::{child, tell, tools, workspace};

/// Builds the program and lets it work.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let (seconds, seed) = read(arguments)?;
    tools::ensure_present(&[tools::BUILD, &["iproute2"]].concat())?;
    tell!("building soak");
    let build = "build --release --package roxe-verbs --features af_xdp --example soak";
    if !child::show(child::cargo(build))? {
        return Err(Stop::Findings.into());
    }
    let mut soak = child::command(workspace::target().join("release/examples/soak"));
    soak.args([seconds.to_string(), seed.to_string()]);
    let status = soak.status().context("cannot run soak")?;
    match status.code() {
        Some(0) => Ok(()),
        Some(3) => {
            Err(Stop::Missing("root is needed for network namespaces and AF_XDP".into()).into())
        }
        _ => Err(Stop::Findings.into()),
    }
}

/// For how many seconds, and with which seed.
fn read(arguments: &[String]) -> Result<(u64, u64), Stop> {
    let (mut seconds, mut seed) = (DEFAULT, 1);
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let usage = || Stop::Usage("usage: cargo xtask soak [--minutes N] [--seed N]".into());
        let number: u64 = words.next().and_then(|it| it.parse().ok()).ok_or_else(usage)?;
        match word.as_str() {
            "--minutes" if number > 0 => seconds = number.saturating_mul(60),
            "--seed" => seed = number,
            _ => return Err(usage()),
        }
    }
    Ok((seconds, seed))
}

/// Half an hour.
const DEFAULT: u64 = 30 * 60;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minutes_and_seed_are_read() {
        let read = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
            read(&words).ok()
        };
        assert_eq!(read(&[]), Some((1800, 1)));
        assert_eq!(read(&["--seed", "7", "--minutes", "5"]), Some((300, 7)));
        assert_eq!(read(&["--minutes"]), None);
        assert_eq!(read(&["--minutes", "0"]), None);
        assert_eq!(read(&["--hours", "1"]), None);
    }
}
