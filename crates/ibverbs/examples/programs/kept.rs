//! What was played, kept in a file: a line a cell, the last that names a cell counts. What another
//! build of the library did is as if it was not played.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::hash::{DefaultHasher, Hasher as _};
use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::time::Duration;

use crate::Outcome;
use crate::cell::Verdict;
use crate::ours::libraries;

/// Of each column and row, and how it came out.
pub(crate) type Played = BTreeMap<(String, String), Cell>;

/// A cell that was played.
pub(crate) struct Cell {
    pub(crate) verdict: Verdict,
    pub(crate) day: String,
}

/// The file, which grows, and the build that is played.
pub(crate) struct Kept(Mutex<File>, String);

impl Kept {
    /// Goes on with what is there, or begins anew.
    pub(crate) fn open(path: &Path, goes_on: bool) -> Outcome<Self> {
        let mut options = OpenOptions::new();
        options.create(true).write(true);
        let file = if goes_on { options.append(true) } else { options.truncate(true) }.open(path);
        let file = file.map_err(|why| format!("{}: {why}", path.display()))?;
        Ok(Self(Mutex::new(file), build()?))
    }

    pub(crate) fn add(&self, column: &str, row: &str, took: Duration, verdict: &Verdict) {
        let (word, goes, text) = match verdict {
            Verdict::Right { goes, before } => ("right", *goes, before),
            Verdict::Wrong(why) => ("wrong", 0, why),
            Verdict::Absent(why) => ("n/a", 0, why),
        };
        let text = text.replace(['\t', '\n'], " ");
        let seconds = took.as_secs_f32();
        let (day, build) = (today(), &self.1);
        let line =
            format!("{column}\t{row}\t{word}\t{goes}\t{seconds:.1}\t{day}\t{build}\t{text}\n");
        if let Ok(mut file) = self.0.lock() {
            let _ = file.write_all(line.as_bytes());
        }
    }
}

/// Reads the file, if it is there: what this build did.
///
/// # Errors
/// When the library cannot be read.
pub(crate) fn read(path: &Path) -> Outcome<Played> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let build = build()?;
    Ok(text.lines().filter_map(|line| read_line(line, &build)).collect())
}

fn read_line(line: &str, build: &str) -> Option<((String, String), Cell)> {
    let words: Vec<&str> = line.splitn(8, '\t').collect();
    let [column, row, word, goes, _, day, of, text] = words[..] else { return None };
    if of != build {
        return None;
    }
    let text = text.to_owned();
    let verdict = match word {
        "right" => Verdict::Right { goes: goes.parse().ok()?, before: text },
        "wrong" => Verdict::Wrong(text),
        _ => Verdict::Absent(text),
    };
    Some(((column.to_owned(), row.to_owned()), Cell { verdict, day: day.to_owned() }))
}

/// What tells this build of the library from others.
fn build() -> Outcome<String> {
    let mut hasher = DefaultHasher::new();
    hasher.write(&fs::read(libraries().join("libibverbs.so.1"))?);
    Ok(format!("{:016x}", hasher.finish()))
}

/// The day, as `2026-11-30`.
fn today() -> String {
    said_by("date", &["-u", "+%Y-%m-%d"])
}

/// What a program prints.
pub(crate) fn said_by(program: &str, words: &[&str]) -> String {
    let output = Command::new(program).args(words).output();
    output.map_or_else(
        |_| String::new(),
        |output| String::from_utf8_lossy(&output.stdout).trim().to_owned(),
    )
}
