//! `cargo xtask programs`: programs of the distribution on our libibverbs.so.1 and librdmacm.so.1,
//! in every way, with each other and with Linux's own adapter in a guest. What came of each cell is
//! kept below `target/programs`; with `--page` that becomes `docs/programs.md`.

use std::fs;
use std::num::NonZeroUsize;

use anyhow::{Context as _, Result};

use crate::stop::Stop;
use crate::{child, interop, tools, workspace};

const PAGE: &str = "docs/programs.md";

/// The command.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let chosen = Chosen::read(arguments)?;
    tools::ensure_present(&[tools::BUILD, tools::PROGRAMS].concat())?;
    // The library is not built for an example of its own package alone.
    if !child::show(child::cargo("build --package roxe-ibverbs --lib --example programs"))? {
        return Err(Stop::Findings.into());
    }
    let folder = workspace::target().join("programs");
    fs::create_dir_all(&folder).context("cannot make a folder for what came of programs")?;
    let mut matrix = child::command(workspace::target().join("debug/examples/programs"));
    matrix.arg(folder.join("kept")).args(&chosen.handed_on);
    if chosen.page {
        matrix.arg(format!("--page={}", workspace::root().join(PAGE).display()));
    }
    if let Some(suite) = tools::suite() {
        matrix.arg(format!("--suite={}", suite.display()));
    }
    if let Some(series) = &chosen.kernel {
        tools::ensure_present(interop::NEEDS)?;
        let [kernel, initrd] = interop::guest(series)?;
        matrix.arg(format!("--kernel={}", kernel.display()));
        matrix.arg(format!("--initrd={}", initrd.display()));
    }
    if child::show(matrix)? { Ok(()) } else { Err(Stop::Findings.into()) }
}

/// What the command line says.
#[derive(Debug, PartialEq, Eq)]
struct Chosen {
    page: bool,
    /// The guest's, if there is to be one.
    kernel: Option<String>,
    /// `--rest`: only what was not played yet, or was wrong; how many lanes, words of names.
    handed_on: Vec<String>,
}

impl Chosen {
    fn read(arguments: &[String]) -> Result<Self, Stop> {
        let usage = || Stop::Usage(USAGE.into());
        let mut chosen =
            Self { page: false, kernel: Some(KERNEL.to_owned()), handed_on: Vec::new() };
        let (mut rest, mut some) = (false, false);
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            match word.as_str() {
                "--page" => chosen.page = true,
                "--no-guest" => chosen.kernel = None,
                "--kernel" => chosen.kernel = Some(words.next().ok_or_else(usage)?.clone()),
                "--lanes" => {
                    let lanes: NonZeroUsize =
                        words.next().and_then(|it| it.parse().ok()).ok_or_else(usage)?;
                    chosen.handed_on.push(format!("--lanes={lanes}"));
                }
                "--rest" => rest = true,
                option if option.starts_with("--") => return Err(usage()),
                _ => {
                    some = true;
                    chosen.handed_on.push(word.clone());
                }
            }
        }
        // A part alone is not kept, and no page.
        if chosen.page && some && !rest {
            return Err(usage());
        }
        chosen.handed_on.extend(rest.then(|| "--rest".to_owned()));
        Ok(chosen)
    }
}

/// The guest's, if no other is named.
const KERNEL: &str = "6.12";

const USAGE: &str = "usage: cargo xtask programs [--page] [--rest] [--lanes N] \
     [--kernel SERIES | --no-guest] [WORD…]";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_no_page_unless_it_is_the_rest() {
        let read = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
            Chosen::read(&words).ok()
        };
        let all = read(&["--page"]).unwrap();
        assert!(all.page && all.kernel.as_deref() == Some("6.12") && all.handed_on.is_empty());
        assert_eq!(read(&["--page", "rping"]), None);
        let rest = read(&["--page", "--rest", "rping", "--no-guest"]).unwrap();
        assert!(rest.page && rest.kernel.is_none() && rest.handed_on == ["rping", "--rest"]);
        assert_eq!(read(&["--lanes", "many"]), None);
        assert_eq!(read(&["--fast"]), None);
    }
}
