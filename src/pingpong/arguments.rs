//! The command line of `roxe pingpong`: the flags of ibv_rc_pingpong and its like.

use clap::{Args, ValueEnum, value_parser};
use roxe_verbs::{Mtu, ServiceType};

use crate::perf::arguments::path_mtu;
use crate::side_channel::SideArguments;

/// Sends messages to and fro, as ibv_rc_pingpong and its like do: a server here, a client there.
///
/// The two tell each other their queue pairs over TCP as those programs do, so that one of them may
/// be at the other end. Tell it its GID index, by -g: without it, it names no address.
#[derive(Debug, Args)]
#[command(after_long_help = LEGEND)]
pub(crate) struct PingpongArguments {
    /// The service, or RC with a shared receive queue
    #[arg(value_enum)]
    pub(crate) kind: Kind,
    /// The server's host; without it, this is the server
    pub(crate) host: Option<String>,
    #[command(flatten)]
    pub(crate) side: SideArguments,
    /// Bytes of a message [default: 4096, of ud 1024]
    #[arg(short, long, value_name = "BYTES",
          value_parser = value_parser!(u32).range(1..=1 << 30))]
    pub(crate) size: Option<u32>,
    /// Path MTU: 256, 512, 1024, 2048 or 4096; the same on both sides; not of ud [default: 1024]
    #[arg(short, long, value_name = "BYTES", value_parser = path_mtu)]
    pub(crate) mtu: Option<Mtu>,
    /// Queue pairs; of srq only [default: 16]
    #[arg(short = 'q', long, value_name = "N", value_parser = value_parser!(u32).range(1..256))]
    pub(crate) num_qp: Option<u32>,
    /// Receives that are ready
    #[arg(short, long, value_name = "N", default_value_t = 500,
          value_parser = value_parser!(u32).range(1..=1 << 15))]
    pub(crate) rx_depth: u32,
    /// Messages each way; of srq those of all queue pairs together
    #[arg(short = 'n', long, value_name = "N", default_value_t = 1000,
          value_parser = value_parser!(u32).range(1..))]
    pub(crate) iters: u32,
    /// The service level: the priority in VLAN tags
    #[arg(short = 'l', long, value_name = "N", default_value_t = 0,
          value_parser = value_parser!(u8).range(0..=7))]
    pub(crate) sl: u8,
    /// Sleep until something completes, instead of polling
    #[arg(short, long)]
    pub(crate) events: bool,
    /// Our address, as index into the GID table [default: the first of IPv4]
    #[arg(short, long, value_name = "INDEX")]
    pub(crate) gid_idx: Option<u32>,
    /// Look whether what came back is what was sent
    #[arg(short, long)]
    pub(crate) chk: bool,
    /// Show the times between receives, in nanoseconds: those cycles are the clock's; of rc only
    #[arg(short, long)]
    pub(crate) ts: bool,
    /// Requests are posted as they always are: no difference; of rc only
    #[arg(short = 'N', long = "new_send")]
    pub(crate) new_send: bool,
    /// Memory is never pinned here: no difference; of rc and srq
    #[arg(short, long)]
    pub(crate) odp: bool,
    /// A flat JSON object instead of the last lines
    #[arg(long)]
    pub(crate) json: bool,
}

/// How it is used, and how it ends.
const LEGEND: &str = "\
Examples:
  roxe pingpong rc -d xdp:eth1                  on one host, the server
  roxe pingpong rc -d xdp:eth1 192.0.2.1        on the other; or ibv_rc_pingpong -g 1 192.0.2.1

Exit status:
  0  all messages came
  1  it began, and failed: why is said, and why the queue pair ended
  2  a usage error, or capture=FILE could not be written: why is said
  3  the environment lacks something: no server listens, the adapter cannot be opened";

/// What goes to and fro.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagrams.
    Ud,
    /// Reliable connections that share a receive queue.
    Srq,
}

impl Kind {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Rc => "rc",
            Self::Uc => "uc",
            Self::Ud => "ud",
            Self::Srq => "srq",
        }
    }

    pub(crate) const fn service(self) -> ServiceType {
        match self {
            Self::Rc | Self::Srq => ServiceType::Rc,
            Self::Uc => ServiceType::Uc,
            Self::Ud => ServiceType::Ud,
        }
    }
}
