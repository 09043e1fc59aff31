//! The command line of `roxe perf`: the flags of perftest.

use std::fmt;

use clap::{Args, ValueEnum, value_parser};
use roxe_verbs::congestion::CongestionControl;
use roxe_verbs::{Mtu, ServiceType};

use crate::perf::congestion::control;
use crate::side_channel::SideArguments;

pub(crate) mod perftest;

/// Measures bandwidth or latency, as perftest does: a server here, a client there.
///
/// The two tell each other their queue pairs over TCP as perftest 4.5 does, so that its ib_send_bw,
/// ib_write_lat and so on may be at the other end. Flags, headings and columns are perftest's; give
/// both sides the same flags.
#[derive(Debug, Args)]
#[command(after_long_help = LEGEND)]
pub(crate) struct PerfArguments {
    /// What is done, and what of it is measured
    #[arg(value_enum)]
    pub(crate) test: Test,
    /// The server's host; without it, this is the server
    pub(crate) host: Option<String>,
    #[command(flatten)]
    pub(crate) side: SideArguments,
    /// The service: RC; UC for SEND and WRITE; UD for SEND
    #[arg(short, long, value_name = "SERVICE", default_value = "RC", value_parser = service)]
    pub(crate) connection: ServiceType,
    /// Bytes of a message, also as 64K or 1M [default: 65536, for latency 2, for atomics 8]
    #[arg(short, long, value_name = "BYTES", value_parser = bytes)]
    pub(crate) size: Option<u32>,
    /// All sizes from 2 to 8388608, powers of two; of UD up to the path MTU
    #[arg(short, long, conflicts_with = "size")]
    pub(crate) all: bool,
    /// Messages of each queue pair and size [default: 1000, 5000 for write_bw]
    #[arg(short = 'n', long, value_name = "N",
          value_parser = value_parser!(u64).range(5..=100_000_000))]
    pub(crate) iters: Option<u64>,
    /// For so many seconds instead
    #[arg(short = 'D', long, value_name = "SECONDS", conflicts_with_all = ["iters", "all"],
          value_parser = value_parser!(u64).range(1..=100_000_000))]
    pub(crate) duration: Option<u64>,
    /// Of these, so many seconds at the beginning and at the end are not measured [default: a
    /// quarter of them]
    #[arg(short = 'f', long, value_name = "SECONDS", requires = "duration")]
    pub(crate) margin: Option<u64>,
    /// Path MTU: 256, 512, 1024, 2048 or 4096 [default: the most that both ports have]
    #[arg(short, long, value_name = "BYTES", value_parser = path_mtu)]
    pub(crate) mtu: Option<Mtu>,
    /// Our address, as index into the GID table [default: the first of IPv4]
    #[arg(short = 'x', long, value_name = "INDEX")]
    pub(crate) gid_index: Option<u32>,
    /// By default an address of IPv6
    #[arg(long, conflicts_with = "gid_index")]
    pub(crate) ipv6: bool,
    /// Queue pairs; bandwidth only
    #[arg(short, long, value_name = "N", default_value_t = 1,
          value_parser = value_parser!(u32).range(1..=16384))]
    pub(crate) qp: u32,
    /// Both directions at the same time, at both ends; bandwidth only. Who has it where the other
    /// end has not is told, but by an ib_write_bw without -b, which does not look
    #[arg(short, long)]
    pub(crate) bidirectional: bool,
    /// Requests that a queue pair may have outstanding [default: 128]
    #[arg(short, long, value_name = "N", value_parser = value_parser!(u32).range(1..=15000))]
    pub(crate) tx_depth: Option<u32>,
    /// Receives that a queue pair has ready; SEND only [default: 512, for UC and UD all]
    #[arg(short, long, value_name = "N", value_parser = value_parser!(u32).range(1..=16384))]
    pub(crate) rx_depth: Option<u32>,
    /// Receives come from one queue that all queue pairs share; SEND only
    #[arg(long = "use-srq")]
    pub(crate) use_srq: bool,
    /// Requests are posted in lists of so many
    #[arg(short = 'l', long = "post_list", value_name = "N", default_value_t = 1,
          value_parser = value_parser!(u32).range(1..=15000))]
    pub(crate) post_list: u32,
    /// One request of so many is completed [default: 100, of messages above 8192 bytes each]
    #[arg(short = 'Q', long, value_name = "N", value_parser = value_parser!(u32).range(1..=1024))]
    pub(crate) cq_mod: Option<u32>,
    /// READs or atomics that a queue pair may have outstanding [default: as many as possible]
    #[arg(short, long, value_name = "N", value_parser = value_parser!(u16).range(1..))]
    pub(crate) outs: Option<u16>,
    /// Messages of up to so many bytes go with the request itself; SEND and WRITE
    #[arg(short = 'I', long = "inline_size", value_name = "BYTES", default_value_t = 0)]
    pub(crate) inline_size: u32,
    /// How long an answer is waited for, as 4.096 µs × 2^N; 0 is for ever
    #[arg(short = 'u', long, value_name = "N", default_value_t = 14,
          value_parser = value_parser!(u8).range(0..=31))]
    pub(crate) qp_timeout: u8,
    /// The service level: the priority in VLAN tags
    #[arg(short = 'S', long, value_name = "N", default_value_t = 0,
          value_parser = value_parser!(u8).range(0..=7))]
    pub(crate) sl: u8,
    /// The traffic class of packets: DSCP in the upper six bits
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) tclass: u8,
    /// What controls how fast queue pairs of this side send: none, dcqcn, dcqcn-paper, timely or
    /// swift [default: what the device's option `cc=` says, whose parameters hold for the same
    /// name]. Once a second, and at the end, their rate is shown
    #[arg(long, value_name = "CONTROL", value_parser = control)]
    pub(crate) cc: Option<CongestionControl>,
    /// Which atomic operation
    #[arg(short = 'A', long = "atomic_type", value_enum, default_value_t = AtomicType::FetchAndAdd)]
    pub(crate) atomic_type: AtomicType,
    /// Sleep until something completes, instead of polling; not for WRITE
    #[arg(short, long)]
    pub(crate) events: bool,
    /// The greatest bandwidth is not looked for; so it is with more than 20000 messages
    #[arg(short = 'N', long = "noPeak")]
    pub(crate) no_peak: bool,
    /// Nothing depends on the processor's frequency here: no difference
    #[arg(short = 'F', long = "CPU-freq")]
    pub(crate) cpu_freq: bool,
    /// Every latency, sorted
    #[arg(short = 'H', long = "report-histogrm", visible_alias = "report-histogram")]
    pub(crate) histogram: bool,
    /// Every latency, as they came
    #[arg(short = 'U', long = "report-unsorted")]
    pub(crate) unsorted: bool,
    /// Bandwidth in Gb/s, of 10^9 bits, instead of MB/s, of 2^20 bytes
    #[arg(long = "report_gbits", visible_alias = "report-gbits")]
    pub(crate) report_gbits: bool,
    /// Of both directions, each by itself too
    #[arg(long = "report-both", requires = "bidirectional")]
    pub(crate) report_both: bool,
    /// Look whether all bytes arrived where they should: whoever receives, reads or is written to
    /// looks. The other side must be roxe, or what it sends cannot be right; give it `--verify` too
    #[arg(long)]
    pub(crate) verify: bool,
    /// JSON Lines: a flat object a size
    #[arg(long)]
    pub(crate) json: bool,
}

/// How to read what is printed, and how it ends.
const LEGEND: &str = "\
Columns:
  #bytes, #iterations   of a message; messages, of all queue pairs
  BW peak, BW average   of the fastest stretch, and of all; MB are 2^20 bytes
  MsgRate               millions of messages a second
  t_min … 99.9%         microseconds of one way, half of there and back; of READ and atomics, which
                        are there and back, the whole; without the first. t_typical is the median
  # 1.0 s: rate …       with --cc or cc=: what the queue pairs may send, by DCQCN the rate that
                        they go back to, and alpha: the mean of all in that second (least … most);
                        CNPs obeyed so far

Examples:
  roxe perf write_bw -d xdp:eth1                    on one host, the server
  roxe perf write_bw -d xdp:eth1 192.0.2.1          on the other; or ib_write_bw -x 1 192.0.2.1
  roxe perf send_lat -d udp:127.0.0.2 -s 64 -e --verify 127.0.0.1
  roxe perf write_bw -d xdp:eth1 -D 10 --cc dcqcn 192.0.2.1

Exit status:
  0  measured
  1  it began, and failed: why is said, and why the queue pair ended
  2  a usage error, or capture=FILE could not be written: why is said
  3  the environment lacks something: no server listens, the adapter cannot be opened";

/// An operation and what of it is measured: the names of perftest's programs without `ib_`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Test {
    #[value(name = "send_bw")]
    SendBw,
    #[value(name = "send_lat")]
    SendLat,
    #[value(name = "write_bw")]
    WriteBw,
    #[value(name = "write_lat")]
    WriteLat,
    #[value(name = "read_bw")]
    ReadBw,
    #[value(name = "read_lat")]
    ReadLat,
    #[value(name = "atomic_bw")]
    AtomicBw,
    #[value(name = "atomic_lat")]
    AtomicLat,
}

/// What both sides measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    pub(crate) test: Test,
    pub(crate) service: ServiceType,
    /// Both directions at the same time.
    pub(crate) both: bool,
}

impl Kind {
    fn all() -> impl Iterator<Item = Self> {
        let services = [ServiceType::Rc, ServiceType::Uc, ServiceType::Ud];
        let each = move |test: &Test| {
            let test = *test;
            let of = move |service| [false, true].map(|both| Self { test, service, both });
            services.into_iter().flat_map(of)
        };
        Test::value_variants().iter().flat_map(each)
    }

    /// As a peer is told.
    pub(crate) fn to_byte(self) -> u8 {
        Self::all().position(|kind| kind == self).map_or(u8::MAX, |at| at as u8)
    }

    /// What a peer tells.
    pub(crate) fn from_byte(byte: u8) -> Option<Self> {
        Self::all().nth(byte.into())
    }
}

impl fmt::Display for Kind {
    /// `write_bw -c RC -b`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let test = self.test.to_possible_value();
        let test = test.as_ref().map_or("", |value| value.get_name());
        let service = match self.service {
            ServiceType::Rc => "RC",
            ServiceType::Uc => "UC",
            ServiceType::Ud => "UD",
        };
        write!(f, "{test} -c {service}{}", if self.both { " -b" } else { "" })
    }
}

/// What an atomic does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum AtomicType {
    /// Compares with 0, and swaps for 0.
    #[value(name = "CMP_AND_SWAP")]
    CmpAndSwap,
    /// Adds 1.
    #[value(name = "FETCH_AND_ADD")]
    FetchAndAdd,
}

impl AtomicType {
    /// As perftest prints it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::CmpAndSwap => "CMP_AND_SWAP",
            Self::FetchAndAdd => "FETCH_AND_ADD",
        }
    }
}

fn service(text: &str) -> Result<ServiceType, String> {
    match text.to_ascii_uppercase().as_str() {
        "RC" => Ok(ServiceType::Rc),
        "UC" => Ok(ServiceType::Uc),
        "UD" => Ok(ServiceType::Ud),
        _ => Err("RC, UC or UD are expected; others there are not here".to_owned()),
    }
}

/// Bytes, with K for 1024 or M for 1024² behind.
fn bytes(text: &str) -> Result<u32, String> {
    let (digits, unit) = match text.char_indices().next_back() {
        Some((at, 'K' | 'k')) => (&text[..at], 1 << 10),
        Some((at, 'M' | 'm')) => (&text[..at], 1 << 20),
        _ => (text, 1),
    };
    let bytes = crate::cli::number(digits).ok().and_then(|count| count.checked_mul(unit));
    bytes
        .and_then(|bytes| u32::try_from(bytes).ok())
        .filter(|bytes| (1..=1 << 31).contains(bytes))
        .ok_or_else(|| "1 to 2147483648 bytes are expected, such as 65536, 64K or 1M".to_owned())
}

/// A path MTU.
pub(crate) fn path_mtu(text: &str) -> Result<Mtu, String> {
    let mtu = text.parse().ok().and_then(Mtu::from_bytes);
    mtu.ok_or_else(|| "256, 512, 1024, 2048 or 4096 are expected".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        assert_eq!(bytes("1"), Ok(1));
        assert_eq!(bytes("0x10"), Ok(16));
        assert_eq!(bytes("64K"), Ok(65536));
        assert_eq!(bytes("2048M"), Ok(1 << 31));
        for wrong in ["", "K", "0", "-1", "2049M", "1G", "1.5K", "99999999999999999999M"] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
    }
}
