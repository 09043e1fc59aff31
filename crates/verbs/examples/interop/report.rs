//! What is told while it goes on, and what is printed for whoever makes a page of it.

use std::io::{IsTerminal as _, Write as _, stderr};
use std::time::{Duration, Instant as Clock};

use serde_json::json;

/// How something went.
pub(crate) enum Verdict {
    Right,
    /// Right, but something was on the way to it.
    But(String),
    Wrong(String),
    /// It cannot be, and why.
    NotApplicable(String),
}

/// A batch or a scenario.
pub(crate) struct Row<'a> {
    pub(crate) kernel: &'a str,
    pub(crate) port: &'a str,
    /// Where it stands on the page.
    pub(crate) table: &'a str,
    pub(crate) row: &'a str,
    pub(crate) column: String,
    pub(crate) cells: usize,
    pub(crate) seconds: f64,
    pub(crate) verdict: Verdict,
}

/// How far it is.
pub(crate) struct Progress {
    all: usize,
    done: usize,
    wrong: usize,
    /// Those that could not be played.
    left_out: usize,
    cells: usize,
    start: Clock,
    told: Clock,
    bar: bool,
}

impl Progress {
    pub(crate) fn new(all: usize) -> Self {
        let (start, bar) = (Clock::now(), stderr().is_terminal());
        Self { all, done: 0, wrong: 0, left_out: 0, cells: 0, start, told: start, bar }
    }

    /// A row is done: prints it, and how far all is.
    pub(crate) fn row(&mut self, row: &Row<'_>) {
        let Row { kernel, port, table, row, column, cells, seconds, verdict } = row;
        let name = format!("{row} {column} {table} {port}");
        let (word, why) = match verdict {
            Verdict::Right => ("right", ""),
            Verdict::But(why) => ("right", why.as_str()),
            Verdict::Wrong(why) => ("wrong", why.as_str()),
            Verdict::NotApplicable(why) => ("n/a", why.as_str()),
        };
        self.done += 1;
        match verdict {
            Verdict::Right | Verdict::But(_) => self.cells += cells,
            Verdict::Wrong(_) => self.wrong += 1,
            Verdict::NotApplicable(_) => self.left_out += 1,
        }
        println!(
            "{}",
            json!({
                "kernel": kernel, "port": port, "table": table, "row": row, "column": column,
                "cells": cells, "seconds": (seconds * 1e3).round() / 1e3, "verdict": word,
                "why": why,
            })
        );
        if let Verdict::Wrong(why) = verdict {
            self.clear();
            eprintln!("WRONG {name}: {why}");
        }
        if self.bar {
            self.draw(&name);
        } else if self.told.elapsed() >= Duration::from_secs(15) {
            self.told = Clock::now();
            eprintln!("{}", self.sentence());
        }
    }

    /// All is done. Whether something was played, and all of it was right.
    pub(crate) fn finish(self) -> bool {
        self.clear();
        eprintln!("{}", self.sentence());
        let is_played = self.left_out < self.done;
        if !is_played {
            eprintln!("nothing of that can be played with this peer");
        }
        is_played && self.wrong == 0
    }

    fn sentence(&self) -> String {
        let Self { all, done, wrong, cells, start, .. } = self;
        let seconds = start.elapsed().as_secs();
        format!("{done} of {all} batches, {cells} cells right, {wrong} batches wrong, {seconds} s")
    }

    fn draw(&self, name: &str) {
        const WIDTH: usize = 30;
        let full = WIDTH * self.done / self.all.max(1);
        let bar = "#".repeat(full) + &".".repeat(WIDTH - full);
        eprint!("\r\x1b[K[{bar}] {}  {name}", self.sentence());
        let _ = stderr().flush();
    }

    fn clear(&self) {
        if self.bar {
            eprint!("\r\x1b[K");
        }
    }
}
