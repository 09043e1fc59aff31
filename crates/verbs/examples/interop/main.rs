//! The adapter against Linux's own, `rdma_rxe`: every operation in every direction, path MTU, size
//! and address family, with its data verified at both ends and what both count.
//!
//! As root: a guest boots in QEMU, behind a tap on a bridge in a network namespace; roxe is on a
//! veth of that bridge, in a namespace of its own. `cargo xtask interop` builds guest and program,
//! says where they are, and makes a page of what is printed here: a JSON object a line.

mod agent;
mod batch;
mod end;
mod faults;
mod guest;
mod matrix;
#[path = "../../../net/tests/namespace/mod.rs"]
mod namespace;
mod ours;
mod plan;
mod programs;
mod report;
mod scenario;
mod theirs;

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

use guest::Guest;
use namespace::is_root;
use plan::Plan;

type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> ExitCode {
    if !is_root() {
        return ExitCode::from(3);
    }
    let done = Arguments::read(std::env::args().skip(1)).and_then(|arguments| run(&arguments));
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("interop: {error}");
            ExitCode::FAILURE
        }
    }
}

/// What the command line says.
struct Arguments {
    kernel: PathBuf,
    initrd: PathBuf,
    /// Where recordings go.
    folder: PathBuf,
    /// The program that judges them.
    roxe: PathBuf,
    /// A small matrix.
    reduced: bool,
    /// Recordings of what was right stay, too.
    keep: bool,
    /// Only batches whose names have all of these words.
    only: Vec<String>,
}

impl Arguments {
    fn read(words: impl Iterator<Item = String>) -> Outcome<Self> {
        const USAGE: &str = "usage: interop KERNEL INITRD FOLDER ROXE [--reduced] [--keep] [WORD…]";
        let (options, mut words): (Vec<_>, Vec<_>) = words.partition(|it| it.starts_with("--"));
        let known = ["--reduced", "--keep"];
        if words.len() < 4 || options.iter().any(|it| !known.contains(&it.as_str())) {
            return Err(USAGE.into());
        }
        let only = words.split_off(4);
        let mut paths = words.into_iter().map(PathBuf::from);
        let mut path = || paths.next().ok_or(USAGE);
        let [kernel, initrd, folder, roxe] = [path()?, path()?, path()?, path()?];
        let [reduced, keep] = known.map(|known| options.iter().any(|it| it == known));
        Ok(Self { kernel, initrd, folder, roxe, reduced, keep, only })
    }
}

/// Whether all was right.
fn run(arguments: &Arguments) -> Outcome<bool> {
    std::fs::create_dir_all(&arguments.folder)?;
    Guest::with(&arguments.kernel, &arguments.initrd, &arguments.folder, |guest| {
        let plan = Plan::new(arguments.reduced, &arguments.only);
        matrix::run(guest, &plan, &arguments.folder, &arguments.roxe, arguments.keep)
    })
}
