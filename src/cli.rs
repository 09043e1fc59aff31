//! The command line as one type.

use std::env;
use std::ffi::OsString;
use std::io::IsTerminal as _;
use std::num::ParseIntError;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser, RangedU64ValueParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum, value_parser};
use roxe_sim::peer::Peer;
use roxe_sim::script;
use roxe_sim::swarm::{Feature, PROFILES, Profile};
use roxe_verbs::{Context, DeviceEntry, Error, Mtu, devices_in, find_in};

use crate::perf::arguments::PerfArguments;
use crate::pingpong::arguments::PingpongArguments;
use crate::rping::arguments::RpingArguments;

/// An RDMA network adapter in software: RoCEv2 in userspace.
///
/// Exit status: 0 right; 1 findings; 2 a usage error, or input that is unreadable or ends in the
/// middle; 3 the environment lacks something.
#[derive(Debug, Parser)]
#[command(name = "roxe", version, propagate_version = true, max_term_width = 100)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

// No comments on the variants: they would take the place of those on the arguments in `--help`.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Explain(ExplainArguments),
    Check(CheckArguments),
    Replay(ReplayArguments),
    Script(ScriptArguments),
    Sim(SimArguments),
    Devinfo(DevinfoArguments),
    Stat(StatArguments),
    Top(TopArguments),
    Capture(CaptureArguments),
    Doctor(DoctorArguments),
    Perf(PerfArguments),
    Pingpong(PingpongArguments),
    Rping(RpingArguments),
    Run(RunArguments),
}

/// Explains captures: a line a frame, and what it means for its conversation.
///
/// Frames that are not RoCEv2 are counted and left out. Messages are numbered as they come in the
/// capture, each direction by itself: one of which the beginning came late has a higher number than
/// those behind it.
#[derive(Debug, Args)]
#[command(after_long_help = EXPLAIN_LEGEND)]
pub(crate) struct ExplainArguments {
    /// pcap or pcapng, may be compressed with gzip or zstd; `-` is standard input
    #[arg(value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Open every header, field by field, and show what the file says of each frame
    #[arg(short, long, conflicts_with = "json")]
    pub(crate) verbose: bool,
    /// JSON Lines: a flat object a frame, then one for each conversation, with a list of what it
    /// was left with (`ends`) and of other numbers that frames of it have (`also`), and one for the
    /// file
    #[arg(long)]
    pub(crate) json: bool,
    /// Show only frames for which this holds, such as `bth.destqp == 0x11 and not icrc == good`
    ///
    /// NAME OP VALUE, joined by `and`, `or`, `not` and parentheses. --fields lists the names; OP
    /// is == != < <= > >= or `in {a, b}`; numbers are decimal or 0x…. No comparison holds for a
    /// field that a frame lacks. `notes.kind` and `findings.rule` are lists: any item will do.
    /// Numbering, conversations and the summary are those of the whole capture.
    #[arg(long, value_name = "EXPRESSION")]
    pub(crate) filter: Option<String>,
    /// List the fields that --json shows and --filter knows
    #[arg(long, conflicts_with = "files")]
    pub(crate) fields: bool,
    /// No summary at the end
    #[arg(long)]
    pub(crate) no_summary: bool,
    /// Colours: by default on terminals only
    #[arg(long, value_enum, default_value_t, value_name = "WHEN")]
    pub(crate) color: Color,
}

impl ExplainArguments {
    /// Whether to colour.
    pub(crate) fn colour(&self) -> bool {
        match self.color {
            Color::Always => !self.json,
            Color::Never => false,
            Color::Auto => {
                !self.json
                    && std::io::stdout().is_terminal()
                    && env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
            }
        }
    }
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(crate) enum Color {
    #[default]
    Auto,
    Always,
    Never,
}

/// How to read the lines, and how it ends.
const EXPLAIN_LEGEND: &str = "\
Columns:
  #          frame number, as Wireshark counts
  time       seconds since the first frame
  from → to  IP addresses
  opcode     of RC, unless UC, UD or XRC is named; ACK, NAK and RNR_NAK are one opcode
  QP         queue pairs: 0x39→0x3a; →0x3a where the sender's is not known (yet), as packets of a
             connection carry only their destination's
  PSN        packet sequence number
  rel        the PSN, counted from the first one of its direction
  flags      S solicited event, A acknowledgement requested, M migration state set,
             E congestion experienced (ECN), F FECN, B BECN
  bytes      of payload
  ICRC       ok, BAD, or ? where the capture does not hold all bytes
  meaning    the headers' fields; · what it means; ! a broken rule; a comment that the file has on
             the frame: 100 characters of it, then …; -v and --json have it all

Below, the whole file and each conversation in numbers; of one that was left with a request without
success, `ends:` and how. A question mark is a guess: what is not there may not have been captured.
A frame has the number of its conversation as it is known by then (--json, --filter). Later ones may
tell that its direction belongs to another: `4 (also 2, 10)` is conversation 4, of which some frames
had number 2 or 10.

Exit status:
  0  explained, whatever is found; a file without a RoCE frame too, which standard error tells
  2  a usage error, or a file that cannot be read or ends in the middle of a record";

/// Judges captures: a line for each rule that a frame breaks, then a verdict.
///
/// Retransmissions, losses and refusals are facts of a network and no findings. What happened
/// before the capture began, or was lost before the place where it was taken, is not held against
/// anybody.
#[derive(Debug, Args)]
#[command(after_long_help = CHECK_LEGEND)]
pub(crate) struct CheckArguments {
    /// pcap or pcapng, may be compressed with gzip or zstd; `-` is standard input
    #[arg(value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// JSON Lines: a flat object a finding, then one for the file
    #[arg(long)]
    pub(crate) json: bool,
    /// List the rules and what they say
    #[arg(long, conflicts_with = "files")]
    pub(crate) rules: bool,
}

/// How to read the lines, and how it ends.
const CHECK_LEGEND: &str = "\
Lines:
  FILE: frame N: RULE: what was seen; expected what would be right
        (`format` says only what was seen; --rules says what each RULE is)
  FILE: N RoCE frames in N conversations, N findings; facts that break no rule; what was not read,
        or could not be judged
  of several files, how many there were, and which have findings or cannot be read

Exit status (of several files the greatest):
  0  no finding; a file without a RoCE frame too, which standard error tells
  1  findings
  2  a usage error, or a file that cannot be read or ends in the middle of a record: what is there
     was judged, the rest was not";

/// Plays captures to our adapter: does it say what was recorded?
///
/// Each side of each conversation is played by itself, in virtual time. The recorded requests go
/// to our responder, whose answers are compared with the recorded ones; the recorded answers go to
/// our requester, which has to send the recorded requests, and to send again what was sent again.
/// Messages of unreliable connections and datagrams are sent and delivered.
///
/// Nothing has to be told: queue pairs, PSNs, path MTU, keys, memory and what is in it, rights and
/// receives are inferred from the frames. So is what a capture cannot show: which frames were lost
/// between the host where it was taken and the other one. They are counted, as "not arrived". A
/// capture may begin late, end with answers outstanding, or lack frames: what is due then is
/// counted as "not recorded" or "not captured", and is no difference. Q_Keys of receivers are not
/// on the wire: the one that most datagrams have is assumed to be right.
///
/// What is compared is meaning: which PSNs are acknowledged, NAK codes, data of READs, results of
/// atomics, MSNs; opcodes, keys, addresses, lengths, immediate data and payload of requests. How
/// many ACKs say it, credits, who asks for an ACK, and the pace of packets may differ.
#[derive(Debug, Args)]
#[command(after_long_help = REPLAY_LEGEND)]
pub(crate) struct ReplayArguments {
    /// pcap or pcapng, may be compressed with gzip or zstd; `-` is standard input
    #[arg(value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// What our adapter behaves like: roxe, adapter, rxe or connectx
    ///
    /// Differences are those against that device. As roxe, those that another device is known for
    /// say so.
    #[arg(long = "as", value_name = "DEVICE", default_value = "roxe", value_parser = device())]
    pub(crate) like: Peer,
    /// JSON Lines: a flat object a difference, a frame that cannot be compared and a side, then one
    /// for the file
    #[arg(long)]
    pub(crate) json: bool,
}

fn device() -> impl TypedValueParser<Value = Peer> {
    let names = Peer::ALL.map(Peer::name);
    PossibleValuesParser::new(names).map(|name| Peer::by_name(&name).unwrap_or_default())
}

/// How to read the lines, and how it ends.
const REPLAY_LEGEND: &str = "\
Lines:
  one a conversation and side: its number in `roxe explain`, the service, for whom our adapter
  stood, both ends, how many packets were compared, the verdict, and what else happened:
    delivered      messages that ours delivered, or completed
    dropped        messages that ours dropped, as it should
    not arrived    recorded frames that did not reach this side, as what followed shows
    coalesced      our ACKs that the recorded side gave together with a later one
    sent more      packets that ours sent again and the recorded side did not
    needless       packets that the recorded side sent again though they were acknowledged
    not recorded   answers that are missing in the capture, which lost them or ended before them
    not captured   recorded answers whose requests are missing in the capture
    older          requests that belong to what began before the capture: not played
    begun anew     packets are missing in the capture, and ours went on behind them
    app changed    READs and atomics that found something else than this connection had left: the
                   application's doing, or another connection's; each is played alone
  frame N          a difference: in what, what was recorded, what ours did. In what:
    answer, kind   one side answers and the other does not, or with something else
    psn, code, wait, msn, data, length, value: the answer's
    request, next  ours sends nothing, or something else first
    opcode, psn, destination, p_key, solicited, q_key, reth, operands, imm, ieth, feth, data:
                   the request's
    memory, delivery, end: what became of memory, of a message, of the connection
  frame N … (Linux rxe does this; …): the recorded device is known to differ there
  from frame N     cannot be compared, and why
  why              our queue pair ended, as the recorded one did: why. A responder's keys, rights
                   and receives are inferred, such as a receive too short for the message refused:
                   `as set up here`
  FILE             how many RoCE frames and sides, and what all sides together differ in; then, if
                   there are any: places that cannot be compared, malformed and cut frames, CNPs

Exit status (of several files the greatest):
  0  no difference
  1  differences
  2  a usage error, a file that cannot be read or ends in the middle of a record, or one in which
     there is nothing to replay";

/// Plays scripts: what peers and the application do to one adapter, and what it must answer.
///
/// Scripts need no Rust to be read; tests/conformance/README.md has the language on a page. Time is
/// virtual and exact. Whatever the adapter does beyond a script fails it. What is wrong with a
/// script itself is told with line and column, as far as possible before it runs.
///
/// With --peer, scripts run against a device elsewhere, in real time: frames go out on the
/// interface that leads to it, its answers are judged, its verbs are called by the agent on its
/// host. A script that the device cannot be asked is skipped, and says why. That takes what an
/// adapter on AF_XDP takes: CAP_NET_RAW, CAP_NET_ADMIN, CAP_BPF.
///
/// Exit status: 0 every script came true, or was skipped; 1 one did not; 2 a file cannot be read,
/// or is no script, or the agent is gone; 3 there is no way to the device.
#[derive(Debug, Args)]
pub(crate) struct ScriptArguments {
    /// Scripts (.roce); `-` is standard input
    #[arg(value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Tell of each script all that happened: its lines, frames, completions, events, and when
    #[arg(short, long, conflicts_with = "json")]
    pub(crate) verbose: bool,
    /// JSON Lines: a flat object a script
    #[arg(long)]
    pub(crate) json: bool,
    /// Where the frames of the script are written, both ways, as pcapng
    #[arg(long, value_name = "FILE")]
    pub(crate) capture: Option<PathBuf>,
    /// List the words of the language and what may follow them
    #[arg(long, conflicts_with = "files")]
    pub(crate) words: bool,
    /// After a failure, tell so many of the lines and frames before it
    #[arg(long, value_name = "N", default_value_t = 12)]
    pub(crate) before: usize,
    #[command(flatten)]
    pub(crate) live: LiveArguments,
}

/// How a device elsewhere is reached and judged.
#[derive(Debug, Args)]
pub(crate) struct LiveArguments {
    /// The host whose adapter is under test, and its agent's port (tests/interop/README.md);
    /// `rxe` is the guest of `cargo xtask interop`
    #[arg(long, value_name = "ADDR[:PORT]", help_heading = "A device on the wire")]
    pub(crate) peer: Option<String>,
    /// The interface that leads there; without it, the one of the host's network, if it is in one
    /// of ours, and no gateway's
    #[arg(long, value_name = "NETDEV", requires = "peer", help_heading = "A device on the wire")]
    pub(crate) device: Option<String>,
    /// What the device is: roxe, connectx, rxe; without it, what its agent says
    #[arg(
        long = "as",
        value_name = "KIND",
        requires = "peer",
        help_heading = "A device on the wire"
    )]
    pub(crate) kind: Option<String>,
    /// The device has no agent: its queue pair's number, of one that somebody has brought to RTS
    /// with the script's PSNs and our queue pair's number 0x100, and whose receives are posted
    #[arg(long, value_name = "N", value_parser = queue_pair_number, requires = "peer",
          help_heading = "A device on the wire")]
    pub(crate) qpn: Option<u32>,
    /// Where its memory region begins
    #[arg(long, value_name = "N", value_parser = number, requires = "qpn", default_value = "0",
          help_heading = "A device on the wire")]
    pub(crate) va: u64,
    /// The region's key
    #[arg(long, value_name = "N", value_parser = key, requires = "qpn", default_value = "0",
          help_heading = "A device on the wire")]
    pub(crate) rkey: u32,
    /// How much later than in virtual time something may come
    #[arg(long, value_name = "MS", default_value_t = 300, value_parser = up_to_a_minute(),
          help_heading = "A device on the wire")]
    pub(crate) slack: u64,
    /// How long nothing must come where a script wants silence
    #[arg(long, value_name = "MS", default_value_t = 60, value_parser = up_to_a_minute(),
          help_heading = "A device on the wire")]
    pub(crate) silence: u64,
    /// Events that the device is known not to tell, with commas between: none of them may come. Of
    /// Linux's rxe: access-error,request-error,fatal
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        value_parser = event,
        requires = "peer",
        help_heading = "A device on the wire"
    )]
    pub(crate) untold: Vec<String>,
    /// How often a script is run before it has failed: a busy network, or a slow host, is no fault
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "A device on the wire")]
    pub(crate) goes: u32,
}

/// Runs random worlds: adapters, links that lose, double, delay and corrupt, and random work.
///
/// A seed makes a world of each kind, the same on every machine. In each, memory must hold what was
/// sent, requests must complete once and in order, no frame may break the protocol, and all must go
/// on once the faults end. A world that fails is made smaller, and told with the line that repeats
/// it.
///
/// `roxe sim lab` is another thing: experiments of congestion control.
///
/// Exit status: 0 every world held; 1 one did not; 2 a usage error.
#[derive(Debug, Args)]
#[command(after_long_help = features(), args_conflicts_with_subcommands = true)]
pub(crate) struct SimArguments {
    #[command(subcommand)]
    pub(crate) command: Option<SimCommand>,
    /// One seed: one world of each kind
    #[arg(long, value_name = "N", conflicts_with = "seeds", value_parser = number)]
    pub(crate) seed: Option<u64>,
    /// The seeds from A up to, not with, B; decimal or 0x…
    #[arg(long, value_name = "A..B", default_value = "0..1000")]
    pub(crate) seeds: String,
    /// What kinds of worlds, with commas between; without it, each in turn
    #[arg(long, value_name = "LIST", value_parser = profiles(), value_delimiter = ',')]
    pub(crate) profile: Vec<String>,
    /// List the kinds of worlds, and what worlds may have
    #[arg(long)]
    pub(crate) profiles: bool,
    /// What the devices behave like, in turn: adapter, roxe, connectx, rxe, with commas between
    ///
    /// Without it, each seed chooses.
    #[arg(long, value_name = "LIST")]
    pub(crate) peer: Option<String>,
    /// What links do to packets instead of what each seed makes, such as
    /// "drop psn 5 once; reorder 5% by 3"
    ///
    /// An action: drop, dup, delay A..B, reorder by N, corrupt, truncate or mark; and to which
    /// packets: N%, every N, packets N,N, psn N or psn N..M, of qp N, once or N times; `;` between
    /// rules. Nothing for good links. Links are bad at the beginning of a world, for 0.2 to 20 ms
    /// as its seed says; -v says how long, and to how many packets they did what.
    #[arg(long, value_name = "RULES")]
    pub(crate) faults: Option<String>,
    /// How long it takes from one end of a link to the other, such as 5us
    ///
    /// Beyond 20 us, or at a rate below 10 Gb/s, all that takes time in a world takes as many times
    /// longer: timeouts, and what applications wait for.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) latency: Option<Duration>,
    /// How fast links are, in Gb/s
    #[arg(long, value_name = "GBPS", value_parser = picos_per_byte)]
    pub(crate) rate: Option<u64>,
    /// How many at the same time; without it, as many as there are processors, with -v one
    #[arg(long, value_name = "N", value_parser = at_least_one())]
    pub(crate) threads: Option<u64>,
    /// Stop after so many that fail
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = at_least_one())]
    pub(crate) failures: u64,
    /// What a failure's line says to change, such as "requests=3 peers=adapter without=drop"
    ///
    /// devices=2..254, pairs=N, requests=N, peers=LIST, without=FEATURES with commas between.
    #[arg(long, value_name = "CHANGE", default_value = "")]
    pub(crate) change: String,
    /// Say of each world what it was, and what happened in it
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// JSON Lines: a flat object a world that fails, or with -v each, then one a kind of worlds
    #[arg(long)]
    pub(crate) json: bool,
    /// Where the last frames of a world that fails are written, as pcapng; of more of them, to
    /// files with a number behind the name
    ///
    /// With --seed and one --profile, those of a world that holds too. Without it, those of one
    /// that fails are written to sim-PROFILE-SEED.pcapng in the current folder.
    #[arg(long, value_name = "FILE")]
    pub(crate) capture: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SimCommand {
    Lab(LabArguments),
}

/// Does experiments of congestion control: hosts with the real adapter, switches that mark and
/// pause, in virtual time.
///
/// A lab is a TOML file; those that come with the program have names. Each says what it builds,
/// what was published of it, and what must come of it. The language is on one page,
/// tests/labs/README.md.
///
/// Exit status: 0 all was as expected; 1 something was not; 2 a usage error, or a file that cannot
/// be read.
#[derive(Debug, Args)]
#[command(after_long_help = format!("Labs:\n  {}", crate::lab::names()))]
pub(crate) struct LabArguments {
    /// Names, or files FILE.toml; without any, all that come with the program
    #[arg(value_name = "NAME|FILE.toml")]
    pub(crate) names: Vec<String>,
    /// List them, and what they are about
    #[arg(long)]
    pub(crate) list: bool,
    /// In their shorter form, as tests do them
    #[arg(long)]
    pub(crate) small: bool,
    /// All figures of each run, not only those of which something is expected (if nothing
    /// is, they are shown anyhow); with --json also
    /// each flow that was done, and each moment
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// JSON Lines: a flat object a figure and one a length of flows, what it cost the machine, then
    /// one for each figure that something is expected of
    #[arg(long)]
    pub(crate) json: bool,
    /// Write CSV into this folder: a file of all figures and one of flows by their length, and of
    /// each run the watched queue, pauses, fairness and rates over time, and each flow that was
    /// done
    #[arg(long, value_name = "FOLDER")]
    pub(crate) csv: Option<PathBuf>,
    /// Draw the same into this folder, each picture as SVG and as PNG: of each run what was seen
    /// over time, of all runs how much longer flows took than alone, and who was paused
    #[arg(long, value_name = "FOLDER")]
    pub(crate) plot: Option<PathBuf>,
}

/// Shows the adapters there are: their ports, path MTUs and addresses.
///
/// Which there are says --config, or the variable ROXE_DEVICES, such as
/// "roxe0=xdp:eth1;roxe1=udp:127.0.0.1", or the file that ROXE_CONFIG names. Without any of them
/// each interface that is up and has an address is one, `roxe_` and its name: by AF_XDP where that
/// is allowed, else by a UDP socket.
///
/// What was named is opened for a moment, and what cannot be opened is shown with what to do. An
/// interface that nobody named is left alone: to open it by AF_XDP may take its link down for a
/// moment.
#[derive(Debug, Args)]
#[command(after_long_help = DEVINFO_LEGEND)]
pub(crate) struct DevinfoArguments {
    /// Only this one: a name, or a device string
    #[arg(short, long, value_name = "DEVICE")]
    pub(crate) device: Option<String>,
    #[command(flatten)]
    pub(crate) config: ConfigArgument,
    /// Every limit too; of an interface that nobody named those that it would have
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// JSON Lines: a flat object an adapter
    #[arg(long)]
    pub(crate) json: bool,
}

/// Shows the counters of adapters that are open now, in any program of this user.
///
/// Names are those of rxe and mlx5 where they mean the same, and ours. Counters that are 0 are left
/// out. Adapters are those of this network namespace; each is asked, none is touched.
#[derive(Debug, Args)]
#[command(after_long_help = RUNNING_LEGEND)]
pub(crate) struct StatArguments {
    /// Only this one: a name, the number of a process, or PID/NAME
    #[arg(short, long, value_name = "DEVICE")]
    pub(crate) device: Option<String>,
    /// Look again and again, with so many seconds between, and tell what rises how fast
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, require_equals = true,
          default_missing_value = "1", value_parser = pause)]
    pub(crate) watch: Option<f64>,
    /// Queue pairs, a line each; or all that is known of the one with this number
    #[arg(long, value_name = "N", num_args = 0..=1, value_parser = queue_pair_number)]
    pub(crate) qp: Option<Option<u32>>,
    /// Counters that are 0 too
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// JSON Lines: a flat object an adapter, or a queue pair
    #[arg(long)]
    pub(crate) json: bool,
}

/// Shows on a screen what adapters do that are open now, in any program of this user.
///
/// Adapters with their traffic, and below them queue pairs, the busiest first, with whatever went
/// wrong; of those that ended, why. Keys: q ends, s sorts otherwise, p stops the picture, ? helps.
#[derive(Debug, Args)]
#[command(after_long_help = RUNNING_LEGEND)]
pub(crate) struct TopArguments {
    /// Only this one: a name, the number of a process, or PID/NAME
    #[arg(short, long, value_name = "DEVICE")]
    pub(crate) device: Option<String>,
    /// Seconds between two looks
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = pause)]
    pub(crate) interval: f64,
    /// Print one screen as text, after one interval
    #[arg(long)]
    pub(crate) once: bool,
}

/// Records what an adapter that is open in another program sends and receives.
///
/// As pcapng to a file; without one, a line a frame, as `roxe explain` shows them. tcpdump does not
/// see these frames: XDP takes them before the kernel looks. The adapter never waits: frames that
/// are read too slowly are lost here, counted, and told by a comment on the next one. An adapter
/// looks at its clock once for all that it moves at a time: those frames have the same time, and
/// stand in the order in which they passed. Ctrl-C ends it; the file is whole at any time.
#[derive(Debug, Args)]
#[command(after_long_help = CAPTURE_LEGEND)]
pub(crate) struct CaptureArguments {
    /// Which one, if there are several: a name, the number of a process, or PID/NAME
    #[arg(short, long, value_name = "DEVICE")]
    pub(crate) device: Option<String>,
    /// Where frames are written, as pcapng; `-` is standard output
    #[arg(short, long, value_name = "FILE")]
    pub(crate) write: Option<PathBuf>,
    /// Stop after so many frames
    #[arg(short, long, value_name = "COUNT", value_parser = at_least_one())]
    pub(crate) count: Option<u64>,
    /// Files of at most SIZE, of which the newest N are kept, such as 64Mx10; FILE gets a number
    ///
    /// x.pcapng becomes x_00001.pcapng and so on, behind those that are there. K, M and G are
    /// powers of 1024. The next file begins before a frame that has no room any more; only a file
    /// with a single frame that is longer than SIZE, which none of a path MTU is, has more.
    #[arg(long, value_name = "SIZExN", value_parser = ring, requires = "write")]
    pub(crate) ring: Option<(u64, u32)>,
    /// Keep the last N frames in memory, and write them when it ends
    #[arg(long, value_name = "N", requires = "write", conflicts_with = "ring",
          value_parser = value_parser!(u32).range(1..=1_000_000))]
    pub(crate) last: Option<u32>,
    /// Only frames for which this holds, as for `roxe explain`, whose --fields lists the names
    #[arg(long, value_name = "EXPRESSION")]
    pub(crate) filter: Option<String>,
    /// JSON Lines: a flat object a frame, as of `roxe explain`
    #[arg(long, conflicts_with = "write")]
    pub(crate) json: bool,
}

/// How it ends.
const CAPTURE_LEGEND: &str = "\
Exit status:
  0  recorded, until COUNT, Ctrl-C, or the adapter closed
  2  a usage error, also when several adapters are open and none is named; a file that cannot be
     written
  3  no adapter is open, or none that is asked for; or they belong to another user";

/// A size and a count of files.
fn ring(text: &str) -> Result<(u64, u32), String> {
    let read = || {
        let (size, count) = text.rsplit_once('x')?;
        let digits = size.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let unit = match size[digits.len()..].to_ascii_uppercase().as_str() {
            "" => 1,
            "K" | "KIB" => 1 << 10,
            "M" | "MIB" => 1 << 20,
            "G" | "GIB" => 1 << 30,
            _ => return None,
        };
        let bytes = digits.parse::<u64>().ok()?.checked_mul(unit)?;
        let count = count.parse::<u32>().ok()?;
        (bytes >= 8192 && count > 0).then_some((bytes, count))
    };
    read().ok_or_else(|| "a size of at least 8K and a count are expected, as 64Mx10".to_owned())
}

/// Looks for what this machine lacks for an adapter, and says what to do about it.
///
/// Kernel, privileges, locked memory, UDP port 4791, and of each interface link, addresses, MTU,
/// XDP, queues and neighbours. It looks only: nothing is attached, opened or changed.
///
/// Exit status: 0 an adapter can work; 1 something fails; 2 a usage error; 3 nothing can be seen.
#[derive(Debug, Args)]
pub(crate) struct DoctorArguments {
    /// Interfaces; without any, those that are up
    #[arg(value_name = "NETDEV")]
    pub(crate) netdevs: Vec<String>,
    /// The path MTU that interfaces should carry: 256, 512, 1024, 2048 or 4096
    #[arg(long, value_name = "BYTES", value_parser = path_mtu)]
    pub(crate) path_mtu: Option<Mtu>,
    /// JSON Lines: a flat object a check
    #[arg(long)]
    pub(crate) json: bool,
}

/// Runs a program that was made for a card, with adapters of ours.
///
/// The program gets our libibverbs.so.1 by LD_LIBRARY_PATH, its adapters by ROXE_DEVICES, and,
/// where this may be done (as root), a view of /dev/infiniband and /sys/class/infiniband that
/// nobody else has. What AF_XDP takes comes from root, or from capabilities of the file `roxe`,
/// which are handed on where a device is `xdp:` or `auto:` (docs/library.md). Signals go to the
/// program. When it fails, a sentence is said for each of its queue pairs that ended badly.
///
/// Exit status: that of the program, or 128 and the signal that ended it; 2 a usage error; 3 a
/// library, an interface or the program is missing.
#[derive(Debug, Args)]
pub(crate) struct RunArguments {
    /// Which adapters, separated by `;`: device strings such as `xdp:eth1`, or NAME=STRING; or the
    /// name of one that is known; without it those of --config, ROXE_DEVICES or ROXE_CONFIG, else
    /// each interface that is up, as `auto:`, which may take a link down when a program opens it
    #[arg(short, long, value_name = "DEVICES")]
    pub(crate) devices: Option<String>,
    #[command(flatten)]
    pub(crate) config: ConfigArgument,
    /// Record what the adapters send and receive, as pcapng; of several adapters, or processes at
    /// a time, the others get a number
    #[arg(long, value_name = "FILE")]
    pub(crate) capture: Option<PathBuf>,
    /// Make the network a bad one, such as `drop 1%`; `drop` alone loses everything
    #[arg(long, value_name = "RULES")]
    pub(crate) fault: Option<String>,
    /// Say nothing of queue pairs that ended
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// Become the program, as a child of this process
    #[arg(long, hide = true)]
    pub(crate) begun_by: Option<u32>,
    /// Hand on to the program what AF_XDP takes
    #[arg(long, hide = true, requires = "begun_by")]
    pub(crate) hand_on: bool,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    pub(crate) program: Vec<OsString>,
}

/// A path MTU in bytes.
fn path_mtu(text: &str) -> Result<Mtu, String> {
    let mtu = text.parse().ok().and_then(Mtu::from_bytes);
    mtu.ok_or_else(|| "256, 512, 1024, 2048 or 4096 is expected".to_owned())
}

/// How it ends.
const RUNNING_LEGEND: &str = "\
Exit status:
  0  shown
  2  a usage error
  3  no adapter is open, or none that is asked for; or they belong to another user";

/// Seconds between two looks.
fn pause(text: &str) -> Result<f64, String> {
    let pause = text.parse::<f64>().ok().filter(|pause| (0.1..=86_400.0).contains(pause));
    pause.ok_or_else(|| "a number of seconds from 0.1 to 86400 is expected".to_owned())
}

/// The number of a queue pair.
fn queue_pair_number(text: &str) -> Result<u32, String> {
    let qpn = number(text).ok().and_then(|number| u32::try_from(number).ok());
    let qpn = qpn.filter(|number| *number < 1 << 24);
    qpn.ok_or_else(|| "a number below 2^24 is expected, decimal or 0x…".to_owned())
}

/// The key of a memory region.
fn key(text: &str) -> Result<u32, String> {
    let key = number(text).ok().and_then(|number| u32::try_from(number).ok());
    key.ok_or_else(|| "a number below 2^32 is expected, decimal or 0x…".to_owned())
}

/// Milliseconds that somebody waits for.
fn up_to_a_minute() -> RangedU64ValueParser<u64> {
    value_parser!(u64).range(..=60_000)
}

/// The name of an event that scripts have; a list of none has an empty one.
fn event(text: &str) -> Result<String, String> {
    match text.is_empty() || script::EVENT_NAMES.contains(&text) {
        true => Ok(text.to_owned()),
        false => Err(format!("there is no such event: {}", script::EVENT_NAMES.join(", "))),
    }
}

/// Where devices are named. Of every command that opens one.
#[derive(Debug, Args)]
pub(crate) struct ConfigArgument {
    /// A TOML file that names devices: a table for each, with `port` and options as keys
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl ConfigArgument {
    /// The file: the one that is named here, or by the variable.
    pub(crate) fn file(&self) -> Option<PathBuf> {
        self.config.clone().or_else(|| env::var_os("ROXE_CONFIG").map(PathBuf::from))
    }

    /// The adapters there are.
    pub(crate) fn devices(&self) -> Result<Vec<DeviceEntry>, Error> {
        self.config.as_ref().map_or_else(roxe_verbs::devices, |file| named(devices_in(file)))
    }

    /// The one of this name, or that of a device string.
    pub(crate) fn find(&self, name: &str) -> Result<DeviceEntry, Error> {
        match &self.config {
            Some(file) => named(find_in(file, name)),
            None => roxe_verbs::find(name),
        }
    }

    /// Opens it.
    pub(crate) fn open(&self, name: &str) -> Result<Context, Error> {
        self.find(name)?.open()
    }
}

/// What is wrong with a file is told with the option that names it.
fn named<T>(result: Result<T, Error>) -> Result<T, Error> {
    result.map_err(|error| match error {
        Error::Config(error) => Error::Config(error.named_by("--config")),
        other => other,
    })
}

/// How devices are named, and how it ends.
const DEVINFO_LEGEND: &str = "\
Device strings:
  xdp:eth1[,queues=auto|N][,queue=0][,mode=auto|native|generic][,zerocopy=auto|on|off]
          [,own=10.0.0.5/24]…[,gw=10.0.0.1]…   addresses that the kernel does not have
          [,vlan=10]                           the VLAN that those are on
  udp:10.0.0.1[,gso=auto|on|off][,verify=on|off]
  auto:eth1      the first where it is allowed, else the second
  host:10.0.0.1  joined with all of that kind on this host; several may have one address
  memory:NAME    joined with all of the same name in the same program
  and behind each of them [,capture=FILE][,fault=RULES]
      [,cc=none|dcqcn|dcqcn-paper|timely|swift][,PARAMETER=VALUE]…[,rate=GBPS][,cnp=on|off]

A file (--config FILE, ROXE_CONFIG):
  [roxe0]                  # a table for each device, the options by their names
  port = \"xdp:eth1\"
  mode = \"native\"
  zerocopy = false         # on and off may be true and false

Exit status:
  0  there is an adapter
  2  a usage error, a device string or a file that cannot be read
  3  there is none, or of those named none can be opened; what to do is said";

/// What `--change` may take away.
fn features() -> String {
    let names: Vec<&str> = Feature::ALL.iter().map(|feature| feature.name()).collect();
    format!("Features (--change \"without=…\"):\n  {}", names.join(", "))
}

/// Decimal, or hexadecimal behind `0x`.
pub(crate) fn number(text: &str) -> Result<u64, ParseIntError> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    }
}

/// A whole number and its unit.
fn duration(text: &str) -> Result<Duration, String> {
    let unit = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let nanos_of_unit = match &text[unit..] {
        "ns" => Some(1),
        "us" | "\u{b5}s" | "\u{3bc}s" => Some(1_000),
        "ms" => Some(1_000_000),
        _ => None,
    };
    let count = text[..unit].parse::<u64>().ok().filter(|count| *count <= 1_000_000);
    let nanos = count.zip(nanos_of_unit).map(|(count, unit)| Duration::from_nanos(count * unit));
    nanos.ok_or_else(|| "a number up to 1000000 and ns, us or ms are expected".to_owned())
}

/// A rate in Gb/s, as the time that a byte takes.
fn picos_per_byte(text: &str) -> Result<u64, String> {
    let rate =
        text.parse::<f64>().ok().filter(|rate| (0.0..=8000.0).contains(rate) && *rate != 0.0);
    let picos = rate.map(|rate| (8000.0 / rate).round() as u64);
    picos.ok_or_else(|| "a number of Gb/s up to 8000 is expected".to_owned())
}

/// A count of which none makes no sense.
fn at_least_one() -> RangedU64ValueParser<u64> {
    value_parser!(u64).range(1..)
}

/// The kinds of worlds.
fn profiles() -> PossibleValuesParser {
    let value = |profile: &Profile| PossibleValue::new(profile.name).help(profile.says);
    PossibleValuesParser::new(PROFILES.iter().map(value))
}
