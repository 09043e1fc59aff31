//! `cargo xtask tidy`: the rules of the house that a program can keep.
//!
//! One rule is one function, told apart by its name in the finding. They read text, not syntax
//! trees: [`source`] takes comments and strings out of the way, and that is enough.

mod edges;
mod manifest;
mod names;
mod rules;
mod source;

use std::fmt;
use std::fs;

use anyhow::Result;

use crate::stop::Stop;
use crate::tidy::source::Source;
use crate::{say, workspace};

/// A broken rule, and where.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    /// Relative to the root.
    file: String,
    /// From 1 on.
    line: usize,
    rule: &'static str,
    what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, rule, what } = self;
        write!(f, "{file}:{line}: {rule}: {what}")
    }
}

/// The command.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    if !arguments.is_empty() {
        return Err(Stop::Usage("usage: cargo xtask tidy".into()).into());
    }
    let findings = findings()?;
    findings.iter().for_each(|finding| say!("{finding}"));
    if findings.is_empty() { Ok(()) } else { Err(Stop::Findings.into()) }
}

/// Everything wrong with the work tree, sorted by place.
pub(crate) fn findings() -> Result<Vec<Finding>> {
    let packages = workspace::packages("Cargo.toml")?;
    let mut findings = edges::check(&packages);
    for path in workspace::files()? {
        findings.extend(names::check(&path));
        let Ok(bytes) = fs::read(workspace::root().join(&path)) else {
            continue; // Deleted, but git has not been told.
        };
        let Ok(text) = String::from_utf8(bytes) else {
            continue; // Captures and other bytes have no lines.
        };
        findings.extend(rules::no_machine_paths(&path, &text));
        findings.extend(manifest::check(&path, &text));
        if path.ends_with(".rs") {
            findings.extend(rules::check(&Source::new(path, text)));
        }
    }
    findings.sort();
    Ok(findings)
}

/// The crate whose `src` a file lies in: `wire` for `crates/wire/src/psn.rs`.
fn crate_of(path: &str) -> Option<&str> {
    let (name, rest) = path.strip_prefix("crates/")?.split_once('/')?;
    rest.starts_with("src/").then_some(name)
}
