//! The adapter against Linux's own, `rdma_rxe`: every operation in every direction, path MTU, size
//! and address family, with its data verified at both ends and what both count.
//!
//! As root: a guest boots in QEMU, behind a tap on a bridge in a network namespace; roxe is on a
//! veth of that bridge, in a namespace of its own. `cargo xtask interop` builds guest and program,
//! says where they are, and makes a page of what is printed here: a JSON object a line. With
//! `--peer=` nothing boots: another host, on which `tests/interop/kit.sh` serves, is the peer. With
//! `--stay` nothing is played: the guest is there for whoever wants it. Exit statuses are those of
//! all commands: 1 something was wrong, 2 usage, 3 there is no such peer or device.

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
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use batch::Family;
use guest::Guest;
use peer::Peer;
use plan::{Item, Port};

type Failure = Box<dyn Error + Send + Sync>;
type Outcome<T = ()> = Result<T, Failure>;

fn main() -> ExitCode {
    let arguments = Arguments::read(std::env::args().skip(1)).map_err(Stop::Usage);
    match arguments.and_then(|arguments| run(&arguments)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(stop) => {
            eprintln!("interop: {stop}");
            stop.exit_code()
        }
    }
}

/// Why nothing is played, or not all.
enum Stop {
    /// The words make no sense.
    Usage(Failure),
    /// The peer, or the way to it, is not there.
    Lacking(Failure),
    Other(Failure),
}

impl Stop {
    fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::Other(_) => 1,
            Self::Usage(_) => 2,
            Self::Lacking(_) => 3,
        })
    }
}

impl std::fmt::Display for Stop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (Self::Usage(why) | Self::Lacking(why) | Self::Other(why)) = self;
        write!(f, "{why}")
    }
}

impl From<Failure> for Stop {
    fn from(why: Failure) -> Self {
        Self::Other(why)
    }
}

impl From<std::io::Error> for Stop {
    fn from(why: std::io::Error) -> Self {
        Self::Other(why.into())
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
    /// Nothing is played: the guest stays.
    stay: bool,
    /// Only batches whose names have all of these words.
    only: Vec<String>,
}

/// Where the peer is.
enum Where {
    /// Nothing is played: what could be is named.
    Nowhere,
    /// In a virtual machine that is to boot.
    Guest { kernel: PathBuf, initrd: PathBuf },
    /// It is there; the second is our device.
    Host { host: String, via: String },
}

impl Arguments {
    fn read(words: impl Iterator<Item = String>) -> Outcome<Self> {
        const USAGE: &str = "usage: interop FOLDER ROXE KERNEL INITRD [--stay] | \
             --peer=HOST[:PORT] --via=DEVICE | --list [--reduced] [--keep] [WORD…]";
        let (options, words): (Vec<_>, Vec<_>) = words.partition(|it| it.starts_with("--"));
        let value =
            |key: &str| options.iter().find_map(|it| it.strip_prefix(key)).map(str::to_owned);
        let is_known = |option: &String| {
            ["--reduced", "--keep", "--stay", "--list"].contains(&option.as_str())
                || ["--peer=", "--via="].iter().any(|key| option.starts_with(key))
        };
        if !options.iter().all(is_known) {
            return Err(USAGE.into());
        }
        let [reduced, keep, stay, list] = ["--reduced", "--keep", "--stay", "--list"]
            .map(|known| options.iter().any(|it| it == known));
        let mut words = words.into_iter();
        let mut path = || words.next().map(PathBuf::from).ok_or(USAGE);
        let [folder, roxe] = [path()?, path()?];
        let peer = match (value("--peer="), value("--via=")) {
            (None, None) if list => Where::Nowhere,
            (Some(host), Some(via)) => Where::Host { host, via },
            (None, None) => Where::Guest { kernel: path()?, initrd: path()? },
            _ => return Err(USAGE.into()),
        };
        Ok(Self { peer, folder, roxe, reduced, keep, stay, only: words.collect() })
    }

    fn plan(&self, ports: &[Port]) -> Result<Vec<Item>, Stop> {
        plan::items(self.reduced, &self.only, ports).map_err(Stop::Usage)
    }

    fn matrix(&self, peer: &Peer<'_>, plan: &[Item]) -> Outcome<bool> {
        matrix::run(peer, plan, &self.folder, &self.roxe, self.keep)
    }
}

/// Whether all was right.
fn run(arguments: &Arguments) -> Result<bool, Stop> {
    match &arguments.peer {
        Where::Nowhere => {
            let plan = arguments.plan(&Port::BOTH)?;
            print!(
                "{}",
                if arguments.only.is_empty() { plan::parts(&plan) } else { plan::names(&plan) }
            );
            Ok(true)
        }
        Where::Guest { kernel, initrd } => {
            std::fs::create_dir_all(&arguments.folder)?;
            let plan = arguments.plan(&Port::BOTH)?;
            let done = Guest::with(kernel, initrd, &arguments.folder, |guest| {
                eprintln!("guest: Linux {}, booted in {:.1?}", guest.kernel, guest.booted);
                if arguments.stay {
                    return stay(guest, &arguments.roxe);
                }
                arguments.matrix(&Peer::guest(guest)?, &plan)
            });
            Ok(done?)
        }
        Where::Host { host, via } => {
            std::fs::create_dir_all(&arguments.folder)?;
            let plan = arguments.plan(&[Port::of(via)])?;
            let peer = Peer::reach(host, via).map_err(Stop::Lacking)?;
            eprintln!("peer: {}, {}", peer.agent, peer.name);
            if plan.iter().any(|item| item.family() == Family::V4)
                && let Some(why) = peer.unverifiable()
            {
                return Err(Stop::Usage(why.into()));
            }
            Ok(arguments.matrix(&peer, &plan)?)
        }
    }
}

/// Says how the guest is reached, and keeps it until this is ended: all goes with this process.
fn stay(guest: &mut Guest, roxe: &Path) -> Outcome<bool> {
    // This thread is where roxe's interface is.
    let thread = rustix::thread::gettid().as_raw_nonzero();
    let enter = format!("nsenter --net=/proc/{}/task/{thread}/ns/net", std::process::id());
    let (address, interface, roxe) = (guest.address, guest::INTERFACE, roxe.display());
    println!(
        "It stays until ^C. Its adapter rxe0 has {address}; {interface}, at 10.10.0.1, leads \
         there, in a network\nnamespace of its own. As root, from another terminal:\n\n  \
         {enter} {roxe} script --peer {address} \\\n    --untold access-error,request-error,fatal \
         FILE.roce\n  \
         {enter} cargo xtask interop \\\n    --peer {address} --via xdp:{interface} --reduced \
         errors\n  \
         {enter} curl -s --data-binary 'rdma link; ip address' \\\n    \
         http://{address}:7000/cgi-bin/run\n\n\
         The last runs a shell script in the guest. Its console: {}",
        guest.console().display()
    );
    Err(guest.wait().into())
}
