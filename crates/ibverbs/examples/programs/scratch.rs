//! A file that goes with whoever gave it its name.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::{fs, process};

/// The path of a file that may come to be here or in a guest; one in a guest goes with the guest.
pub(crate) struct Scratch(pub(crate) String);

impl Scratch {
    /// A path that nobody else has.
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Relaxed);
        Self(format!("/tmp/roxe-programs-{}-{count}", process::id()))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Perhaps it never was.
        let _ = fs::remove_file(&self.0);
    }
}
