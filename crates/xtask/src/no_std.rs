//! Proves that `roxe-wire` without its default features needs neither the standard library nor
//! an allocator, with no other target installed.
//!
//! A static library that names a panic handler of its own and links the crate: with `std` in the
//! graph the handler exists twice, with `alloc` there is no allocator, and neither compiles.

use std::process::Command;

use anyhow::{Context as _, Result};

use crate::child::{self, Listener};
use crate::test::Tally;
use crate::workspace;

/// Builds the crate, then the witness.
pub(crate) fn run(listener: &Listener) -> Result<(Tally, String)> {
    let folder = workspace::target().join("no_std");
    let mut build = child::cargo("build --package roxe-wire --no-default-features --target-dir");
    build.arg(&folder);
    let built = listener.hear(build)?;
    if !built.success {
        return Ok((Tally::one(false), built.output));
    }

    let debug = folder.join("debug");
    let source = folder.join("witness.rs");
    std::fs::write(&source, WITNESS).context("cannot write the witness")?;
    let mut witness: Command = child::command("rustc");
    witness
        .args(["--edition=2024", "--crate-type=staticlib", "-Cpanic=abort", "--extern"])
        .arg(format!("roxe_wire={}", debug.join("libroxe_wire.rlib").display()))
        .arg("-L")
        .arg(format!("dependency={}", debug.join("deps").display()))
        .arg("-o")
        .arg(folder.join("libwitness.a"))
        .arg(&source);
    let linked = listener.hear(witness)?;
    Ok((Tally::one(linked.success), built.output + &linked.output))
}

const WITNESS: &str = "\
#![no_std]
extern crate roxe_wire;

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}
";
