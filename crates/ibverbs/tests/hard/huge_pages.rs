//! Huge pages, which some tests of the suite want, for as long as they run.

use std::fs;

/// Pages that were reserved; there are as many as before when it goes.
pub(crate) struct HugePages {
    before: u32,
}

impl HugePages {
    /// Reserves a few beyond those that are there. Without the right, or without memory that hangs
    /// together, there are none more, and those tests say so.
    pub(crate) fn reserve() -> Self {
        let before = read().unwrap_or_default();
        let _ = fs::write(FILE, (before + WANTED).to_string());
        Self { before }
    }

    /// Whether there are any.
    pub(crate) fn are_there(&self) -> bool {
        read().is_some_and(|pages| pages > self.before)
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        let _ = fs::write(FILE, self.before.to_string());
    }
}

fn read() -> Option<u32> {
    fs::read_to_string(FILE).ok()?.trim().parse().ok()
}

/// How many there are, of 2 MiB.
const FILE: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";

/// Two sides, each with a buffer, and as much again.
const WANTED: u32 = 16;
