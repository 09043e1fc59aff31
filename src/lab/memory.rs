//! How much memory this process takes.

use std::fs;

/// A watch over it, from some moment on.
pub(super) struct Memory;

impl Memory {
    /// From now on: what it took before does not count, where the kernel forgets it when asked.
    pub(super) fn watch() -> Self {
        // Not possible is no mistake: then it is the most since the process began.
        let _ = fs::write("/proc/self/clear_refs", "5");
        Self
    }

    /// The most that it took, in bytes, where the kernel tells it.
    pub(super) fn most(&self) -> Option<u64> {
        most(&fs::read_to_string("/proc/self/status").ok()?)
    }
}

fn most(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_is_read_from_what_the_kernel_says() {
        assert_eq!(most("VmPeak:\t 90 kB\nVmHWM:\t   12 kB\nVmRSS:\t 3 kB\n"), Some(12 * 1024));
        assert_eq!(most("VmRSS: 3 kB"), None);
    }
}
