//! The adapter against Linux's own, `rdma_rxe`: every operation in every direction, path MTU, size
//! and address family, with its data verified at both ends and what both count.
//!
//! As root: a guest boots in QEMU, behind a tap on a bridge in a network namespace; roxe is on a
//! veth of that bridge, in a namespace of its own. `cargo xtask interop` builds guest and program,
//! says where they are, and makes a page of what is printed here: a JSON object a line. With
//! `--peer=` nothing boots: another host, on which `tests/interop/kit.sh` serves, is the peer.

mod agent;
mod batch;
mod end;
mod faults;
mod guest;
mod matrix;
#[path = "../../../net/tests/namespace/mod.rs"]
mod namespace;
mod ours;
mod peer;
mod plan;
mod programs;
mod report;
mod scenario;
mod theirs;

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

use guest::Guest;
use peer::Peer;
use plan::{Item, Port};

type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> ExitCode {
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
    peer: Where,
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

/// Where the peer is.
enum Where {
    /// In a virtual machine that is to boot.
    Guest { kernel: PathBuf, initrd: PathBuf },
    /// It is there; the second is our device.
    Host { host: String, via: String },
}

impl Arguments {
    fn read(words: impl Iterator<Item = String>) -> Outcome<Self> {
        const USAGE: &str = "usage: interop FOLDER ROXE KERNEL INITRD | --peer=HOST[:PORT] \
             --via=DEVICE [--reduced] [--keep] [WORD…]";
        let (options, words): (Vec<_>, Vec<_>) = words.partition(|it| it.starts_with("--"));
        let value =
            |key: &str| options.iter().find_map(|it| it.strip_prefix(key)).map(str::to_owned);
        let is_known = |option: &String| {
            ["--reduced", "--keep"].contains(&option.as_str())
                || ["--peer=", "--via="].iter().any(|key| option.starts_with(key))
        };
        if !options.iter().all(is_known) {
            return Err(USAGE.into());
        }
        let mut words = words.into_iter();
        let mut path = || words.next().map(PathBuf::from).ok_or(USAGE);
        let [folder, roxe] = [path()?, path()?];
        let peer = match (value("--peer="), value("--via=")) {
            (Some(host), Some(via)) => Where::Host { host, via },
            (None, None) => Where::Guest { kernel: path()?, initrd: path()? },
            _ => return Err(USAGE.into()),
        };
        let [reduced, keep] =
            ["--reduced", "--keep"].map(|known| options.iter().any(|it| it == known));
        Ok(Self { peer, folder, roxe, reduced, keep, only: words.collect() })
    }

    fn plan(&self, ports: &[Port]) -> Outcome<Vec<Item>> {
        plan::items(self.reduced, &self.only, ports)
    }

    fn matrix(&self, peer: &Peer<'_>, plan: &[Item]) -> Outcome<bool> {
        matrix::run(peer, plan, &self.folder, &self.roxe, self.keep)
    }
}

/// Whether all was right.
fn run(arguments: &Arguments) -> Outcome<bool> {
    std::fs::create_dir_all(&arguments.folder)?;
    match &arguments.peer {
        Where::Guest { kernel, initrd } => {
            let plan = arguments.plan(&Port::BOTH)?;
            Guest::with(kernel, initrd, &arguments.folder, |guest| {
                eprintln!("guest: Linux {}, booted in {:.1?}", guest.kernel, guest.booted);
                arguments.matrix(&Peer::guest(guest)?, &plan)
            })
        }
        Where::Host { host, via } => {
            let plan = arguments.plan(&[Port::of(via)])?;
            let peer = Peer::reach(host, via)?;
            eprintln!("peer: {}, {}", peer.agent, peer.name);
            arguments.matrix(&peer, &plan)
        }
    }
}
