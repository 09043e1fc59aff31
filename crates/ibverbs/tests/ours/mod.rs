//! Programs with the libraries that the build of this package made.

use std::env;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Gives a program our libraries, these adapters, and nothing to read.
pub(crate) fn with_ours<'a>(command: &'a mut Command, devices: &str) -> &'a mut Command {
    command.env("LD_LIBRARY_PATH", libraries()).env("ROXE_DEVICES", devices).stdin(Stdio::null())
}

/// The folder that the build of the library made.
pub(crate) fn libraries() -> PathBuf {
    let program = env::current_exe().expect("a program knows where it is");
    let folder = program.ancestors().nth(2).expect("it is in target/PROFILE/deps").join("lib");
    let library = folder.join("libibverbs.so.1");
    assert!(library.exists(), "{} is missing: cargo build -p roxe-ibverbs", library.display());
    folder
}
