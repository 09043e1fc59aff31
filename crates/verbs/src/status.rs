//! What a running adapter tells other processes: its counters, its queue pairs, and what it sends
//! and receives.
//!
//! Every open adapter has an abstract Unix socket, `@roxe/PID/NAME`: it is seen in its network
//! namespace only, and gone with the process however that ends. Only processes of the same user,
//! or of root, are answered. A thread that sleeps serves it; who asks never waits for traffic, and
//! traffic hardly for who asks: a few queue pairs are read at a time. [`running`] finds adapters,
//! [`Client`] asks one.
//!
//! # The language
//!
//! A request is a line; what is answered are JSON Lines, of which `kind` says what they are.
//!
//! | request | answer |
//! |---|---|
//! | `info` | an `info` |
//! | `counters` | a `counter` each, then an `end` |
//! | `queue-pairs FROM` | a `queue_pair` each but queue pair 1, then an `end`: where to go on |
//! | `record BYTES` | a pcapng stream, until who asked closes it; so many bytes may wait |
//!
//! Anything else is answered with an `error`, and the end of the connection.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

mod client;
mod server;

pub use client::{Client, Recorded, Running, running};
pub use roxe_net::capture::lost_before;
pub(crate) use server::{About, Server};

/// Whether an adapter that we may ask is open on this interface by AF_XDP.
#[cfg(feature = "af_xdp")]
pub(crate) fn is_open_on(interface: &str) -> bool {
    let begin = format!("{interface}: ");
    let info = |running: &Running| running.connect().and_then(|mut client| client.info());
    let infos = running().unwrap_or_default();
    infos.iter().filter_map(|it| info(it).ok()).any(|info| info.mode.starts_with(&begin))
}

/// What an adapter is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Info {
    /// Its name.
    pub name: String,
    /// Its process.
    pub pid: u32,
    /// What that process runs.
    pub command: String,
    /// Its port in words.
    pub mode: String,
    /// Whether packets can come and go.
    pub active: bool,
    /// Its largest path MTU, in bytes.
    pub active_mtu: u32,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
    /// For how many services it takes requests, by the connection manager.
    #[serde(default)]
    pub listeners: u32,
    /// What recorded frames of it begin with: `LINKTYPE_…` of captures.
    pub link_type: u16,
}

/// A counter of an adapter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CounterValue {
    /// What it is about.
    pub group: String,
    /// Its name.
    pub name: String,
    /// Whose meaning the name has: `ours`, `rxe`, `mlx5`.
    pub whose: String,
    /// Its value.
    pub value: u64,
}

/// A queue pair of an adapter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueuePairStatus {
    /// Its number.
    pub qpn: u32,
    /// `RC`, `UC` or `UD`.
    pub service: String,
    /// Its state.
    pub state: String,
    /// The peer's number, if it is connected.
    pub peer_qpn: Option<u32>,
    /// The peer's address.
    pub peer: Option<IpAddr>,
    /// Why it ended, in a sentence.
    pub why: Option<String>,
    /// How fast it may send, in bits a second, if congestion control decides that.
    pub rate_bps: Option<u64>,
    /// Which rate it goes back to, by DCQCN.
    pub target_bps: Option<u64>,
    /// How much is marked, by its estimate, in millionths.
    pub alpha_ppm: Option<u32>,
    /// Its counters that are not 0.
    #[serde(flatten)]
    pub counters: BTreeMap<String, u64>,
}

impl QueuePairStatus {
    /// A counter of this name.
    pub fn counter(&self, name: &str) -> u64 {
        self.counters.get(name).copied().unwrap_or(0)
    }
}

/// A line of an answer.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum Line {
    Info(Info),
    Counter(CounterValue),
    QueuePair(QueuePairStatus),
    End {
        /// The adapter's time, in nanoseconds since it was opened.
        time_ns: u64,
        /// Where to go on.
        next: Option<u32>,
    },
    Error {
        what: String,
    },
}

/// Why one is not answered, and does not ask.
const ANOTHER_USER: &str = "the adapter belongs to another user: ask as that user, or as root";

/// What the names of all endpoints begin with.
const PREFIX: &str = "roxe/";

/// Bytes that an abstract name may have.
const LONGEST_NAME: usize = 107;
