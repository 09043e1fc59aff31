//! The command line of `roxe rping`: the flags of rping.

use std::time::Duration;

use clap::{ArgGroup, Args, value_parser};

use crate::side_channel::AdapterArguments;

/// Pings by RDMA over a connection of the RDMA CM, as rping does: a server here, a client there.
///
/// The server READs what the client has, and WRITEs it back. The two find each other by an address
/// of the adapter and a port, without TCP; rping may be at the other end.
#[derive(Debug, Args)]
#[command(
    after_long_help = LEGEND,
    disable_version_flag = true,
    group = ArgGroup::new("side").required(true)
)]
pub(crate) struct RpingArguments {
    /// This is the server
    #[arg(short, long, group = "side")]
    pub(crate) server: bool,
    /// This is the client
    #[arg(short, long, group = "side", requires = "address")]
    pub(crate) client: bool,
    /// The server's address; a server without it takes calls to any
    #[arg(short, long)]
    pub(crate) address: Option<String>,
    /// The port of the RDMA CM
    #[arg(short, long, default_value_t = 7174, value_parser = value_parser!(u16).range(1..))]
    pub(crate) port: u16,
    #[command(flatten)]
    pub(crate) adapter: AdapterArguments,
    /// Bytes of a ping; a server takes none that are longer
    #[arg(short = 'S', long, value_name = "BYTES", default_value_t = 64,
          value_parser = value_parser!(u32).range(i64::from(SHORTEST)..=65_536))]
    pub(crate) size: u32,
    /// Pings of a client; without it, for ever
    #[arg(short = 'C', long, value_name = "N", value_parser = value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
    /// Print the pings
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// Look whether what came back is what was sent
    #[arg(short = 'V', long)]
    pub(crate) validate: bool,
    /// Take one client after another, and many at once, for ever
    #[arg(short = 'P', long)]
    pub(crate) persistent: bool,
    /// The queue pair is always made and moved here: no difference
    #[arg(short = 'q', long)]
    pub(crate) self_modified: bool,
    /// End when nothing comes of the peer for so many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 20,
          value_parser = value_parser!(u64).range(1..=86_400))]
    patience: u64,
}

impl RpingArguments {
    /// How long the peer may say nothing.
    pub(crate) const fn patience(&self) -> Duration {
        Duration::from_secs(self.patience)
    }
}

/// The least that a ping needs for its number.
const SHORTEST: u32 = 27;

/// How it is used, and how it ends.
const LEGEND: &str = "\
Examples:
  roxe rping -s -d xdp:eth1 -v                      on one host, the server
  roxe rping -c -d xdp:eth1 -a 192.0.2.1 -C 10 -v   on the other; or rping -c -a 192.0.2.1 -C 10 -v

The debugging output of rping (its -d) is not here: `roxe capture` shows what passes.

Exit status:
  0  all pings came back; the server: its client has ended
  1  it began, and failed, or what came back was something else: why is said
  2  a usage error, or capture=FILE could not be written: why is said
  3  the environment lacks something: no server listens, the adapter cannot be opened";
