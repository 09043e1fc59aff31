//! What is played: a list of cells.

use std::time::Duration;

use roxe_verbs::Mtu;

use crate::Outcome;
use crate::batch::{Batch, Direction, Family, Op};
use crate::faults::{self, FAULTS, Fault};
use crate::peer::{Need, Peer};
use crate::programs::{FEW, PROGRAMS, Program};
use crate::scenario::{REBOOTED, SCENARIOS, Scenario};

/// A cell of the page.
pub(crate) struct Item {
    pub(crate) port: Port,
    pub(crate) play: Play,
}

pub(crate) enum Play {
    Batch(Batch),
    /// Over a bad network.
    Faulty(&'static Fault, Batch),
    /// Of which this end asks.
    Scenario(&'static Scenario, usize),
    /// This end asks, the other one goes and comes again.
    Reboot(usize),
    /// A stock program, to which roxe is the client or not.
    Program(&'static Program, bool),
    /// Everything for so long, over a bad network.
    Soak(&'static Fault, Duration),
}

/// How our adapter is on the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Port {
    Xdp,
    Udp,
}

impl Port {
    /// Where a guest is met.
    pub(crate) const BOTH: [Self; 2] = [Self::Xdp, Self::Udp];

    /// That of a device string.
    pub(crate) fn of(device: &str) -> Self {
        if device.starts_with("udp:") { Self::Udp } else { Self::Xdp }
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Xdp => "AF_XDP",
            Self::Udp => "UDP socket",
        }
    }
}

const SOAK: Duration = Duration::from_secs(600);
const REDUCED_SOAK: Duration = Duration::from_secs(20);

const MTUS: [Mtu; 5] = [Mtu::B256, Mtu::B512, Mtu::B1024, Mtu::B2048, Mtu::B4096];

/// All of which the names have these words; or a reduced one in which everything is met once:
/// each operation, direction, path MTU, family, port, bad network and error; on other ports
/// than the first there are batches alone then.
///
/// # Errors
/// Nothing has such a name.
pub(crate) fn items(reduced: bool, only: &[String], ports: &[Port]) -> Outcome<Vec<Item>> {
    let mut items = Vec::new();
    for &port in ports {
        let all = batches(reduced, port == ports[0]);
        items.extend(all.map(|batch| Item { port, play: Play::Batch(batch) }));
    }
    let whole = if reduced { &ports[..1] } else { ports };
    for &port in whole {
        others(reduced, &mut |play| items.push(Item { port, play }));
    }
    let how_long = if reduced { REDUCED_SOAK } else { SOAK };
    let lossy = FAULTS.iter().filter(|fault| fault.name == faults::LOSS);
    let soaks = lossy.map(|fault| Play::Soak(fault, how_long));
    items.extend(soaks.map(|play| Item { port: ports[0], play }));
    items.retain(|item| only.iter().all(|word| item.name().contains(word.as_str())));
    if items.is_empty() {
        let words = only.join("`, `");
        return Err(format!(
            "nothing of the matrix has `{words}` in its name (all words must be); `cargo xtask \
             interop --list` says what it has"
        )
        .into());
    }
    Ok(items)
}

/// The names of cells, one a line.
pub(crate) fn names(items: &[Item]) -> String {
    items.iter().map(|item| item.name() + "\n").collect()
}

/// What there is, by port and table, in the words that choose it.
pub(crate) fn parts(items: &[Item]) -> String {
    let mut parts: Vec<(Port, &str, Vec<&str>, Vec<String>)> = Vec::new();
    for item in items {
        let (table, row, column) = item.place();
        let at = parts.iter().position(|(port, known, ..)| (*port, *known) == (item.port, table));
        let at = at.unwrap_or_else(|| {
            parts.push((item.port, table, Vec::new(), Vec::new()));
            parts.len() - 1
        });
        let (_, _, rows, columns) = &mut parts[at];
        if !rows.contains(&row) {
            rows.push(row);
        }
        if !columns.contains(&column) {
            columns.push(column);
        }
    }
    let mut text = String::from(
        "A cell's name is ROW COLUMN TABLE PORT; WORDs choose those whose names have all of \
         them, as in\n`cargo xtask interop 'RC READ' IPv6 requester`. --list with WORDs names \
         the cells.\n",
    );
    for (port, table, rows, columns) in parts {
        text += &format!("\n{table} {}\n", port.name());
        text += &format!("  rows     {}\n", rows.join(" | "));
        text += &format!("  columns  {}\n", columns.join(" | "));
    }
    text
}

/// Errors, stock programs, bad networks.
fn others(reduced: bool, put: &mut impl FnMut(Play)) {
    for from in [0, 1] {
        SCENARIOS.iter().for_each(|scenario| put(Play::Scenario(scenario, from)));
        put(Play::Reboot(from));
    }
    for program in PROGRAMS {
        for is_client in [true, false] {
            if !reduced || FEW.contains(&(program.0, is_client)) {
                put(Play::Program(program, is_client));
            }
        }
    }
    for (at, fault) in FAULTS.iter().enumerate() {
        let mut over: Vec<_> = faults::batches().collect();
        if reduced {
            // Of each network both at once, with an operation of its own.
            over.retain(|batch| batch.direction == Direction::Both);
            over = vec![over[at % over.len()]];
        }
        over.into_iter().for_each(|batch| put(Play::Faulty(fault, batch)));
    }
}

fn batches(reduced: bool, is_first: bool) -> impl Iterator<Item = Batch> {
    let mut all = Vec::new();
    for family in Family::ALL {
        for (at, op) in Op::ALL.into_iter().enumerate() {
            for direction in Direction::ALL {
                for (number, path_mtu) in MTUS.into_iter().enumerate() {
                    let small = match (is_first, family) {
                        (true, Family::V4) => number == (at + direction as usize) % MTUS.len(),
                        (false, Family::Vlan) => false,
                        _ => direction == Direction::Both && number == (at + 3) % MTUS.len(),
                    };
                    if small || !reduced {
                        all.push(Batch { op, direction, path_mtu, family });
                    }
                }
            }
        }
    }
    all.into_iter()
}

impl Item {
    /// Where it stands on the page: table, row, column.
    pub(crate) fn place(&self) -> (&'static str, &'static str, String) {
        let asks = |from: usize| if from == 0 { Direction::Out } else { Direction::In }.name();
        match &self.play {
            Play::Batch(Batch { op, direction, path_mtu, family }) => {
                (family.name(), op.name(), format!("{} {path_mtu}", direction.name()))
            }
            Play::Faulty(fault, Batch { op, direction, .. }) => {
                ("bad networks", fault.name, format!("{} {}", op.name(), direction.name()))
            }
            Play::Scenario(scenario, from) => ("errors", scenario.name, asks(*from).to_owned()),
            Play::Reboot(from) => ("errors", REBOOTED, asks(*from).to_owned()),
            Play::Soak(fault, how_long) => {
                ("soak", fault.name, format!("messages in {} s", how_long.as_secs()))
            }
            Play::Program(program, is_client) => {
                let column = if *is_client { "roxe is the client" } else { "roxe is the server" };
                ("stock programs", program.0, column.to_owned())
            }
        }
    }

    pub(crate) fn name(&self) -> String {
        let (table, row, column) = self.place();
        format!("{row} {column} {table} {}", self.port.name())
    }

    /// How many messages of their own size it is about.
    pub(crate) fn cells(&self) -> usize {
        match &self.play {
            Play::Batch(batch) | Play::Faulty(_, batch) => batch.sizes().len(),
            Play::Scenario(..) | Play::Reboot(_) | Play::Program(..) | Play::Soak(..) => 1,
        }
    }

    pub(crate) const fn family(&self) -> Family {
        match &self.play {
            Play::Batch(batch) | Play::Faulty(_, batch) => batch.family,
            Play::Scenario(..) | Play::Reboot(_) | Play::Program(..) | Play::Soak(..) => Family::V4,
        }
    }

    /// Why it cannot be.
    pub(crate) fn not_applicable(&self, peer: &Peer<'_>) -> Option<String> {
        let (path_mtu, need) = match &self.play {
            Play::Batch(batch) | Play::Faulty(_, batch) => {
                (u64::from(batch.path_mtu.bytes()), Need::of(batch.op))
            }
            Play::Scenario(Scenario { needs, .. }, _) => (0, *needs),
            Play::Program(program, _) => (program.path_mtu(), Need::of_words(program.0)),
            // Atomics are among what they do.
            Play::Reboot(_) | Play::Soak(..) => (0, Some(Need::Atomic)),
        };
        let is_guest = peer.guest.is_some();
        let why = match &self.play {
            Play::Batch(batch) => self.alone(batch),
            Play::Faulty(fault, _) if self.port == Port::Udp && fault.name == faults::DAMAGE => {
                Some(
                    "a socket does not show what the ICRC of rxe's packets over IPv4 covers: \
                     nobody sees the damage",
                )
            }
            Play::Faulty(..) | Play::Soak(..) if !is_guest => {
                Some("netem does not see what a card sends")
            }
            Play::Reboot(0) if !is_guest => Some("its host is not ours to be reset"),
            Play::Program(program, _) if !peer.has(program.name()) => {
                Some("the program is not there")
            }
            _ => None,
        };
        let why = why.map(str::to_owned);
        why.or_else(|| peer.unreachable(self.family(), path_mtu)).or_else(|| peer.without(need))
    }

    /// Why a batch cannot be, whoever the peer is.
    fn alone(&self, batch: &Batch) -> Option<&'static str> {
        match (self.port, batch.family) {
            (Port::Udp, Family::Vlan) => Some("a socket's tags are the kernel's"),
            (Port::Udp, _) if batch.op == Op::Multicast && batch.direction != Direction::Out => {
                Some("a UDP port joins no group of the host's")
            }
            _ => None,
        }
    }
}
