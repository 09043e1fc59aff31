//! How fast two hosts talk to each other through adapters on a network interface, each figure next
//! to what the kernel can do at all, measured in the same run.
//!
//! `cargo bench -p roxe-verbs --features af_xdp --bench adapter -- [OPTIONS] [WORD…]` runs the rows
//! that contain a word, or all:
//!
//! | option | |
//! |---|---|
//! | `--short` | everything once, for a moment: shows that it runs |
//! | `--pairs N` | how often each figure and its yardstick are measured; 5 unless said |
//! | `--json` | an object a row instead of the table |
//! | `--markdown FILE` | also puts the table into a page, between its two `bench` comments |
//!
//! Two network namespaces without names stand for the hosts, a veth pair for the cable. Each end
//! has a core: the adapter's thread and the application of one end share core 0, those of the other
//! core 1. Figures and yardsticks take turns, so that all meet the same moods of the machine; shown
//! are the medians, and the median of the ratios.
//!
//! Yardsticks: a pair of XDP sockets that copies payload in and out and does nothing else, with as
//! many packets on the way as a queue pair has (`raw.rs`); the kernel's UDP and TCP (`kernel.rs`)
//! on a cable without XDP program, where they are fastest.
//!
//! # Loss
//! Go-back-N with a window of `W` packets sends up to `W` again for each that is lost, so that with
//! a share `p` lost each way at least `(1 - p) / (1 - p + p W)` of what it sends is new. That times
//! the rate without loss is the yardstick. A NAK comes back before the window is used up, so that
//! the ratio may well be above 1.

mod ends;
mod kernel;
#[path = "../../../net/tests/namespace/mod.rs"]
mod namespace;
mod place;
mod raw;
mod table;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use ends::{Ends, Events, Verb};
use kernel::Protocol;
use namespace::{Cable, is_root};
use raw::RawPair;
use roxe_verbs::Mtu;
use table::{Goal, Row, Unit};

/// A veth MTU that path MTU 4096 fits.
const INTERFACE_MTU: u32 = 4200;

/// What is asked for.
struct Options {
    short: bool,
    json: bool,
    markdown: Option<String>,
    pairs: usize,
    words: Vec<String>,
}

fn main() -> ExitCode {
    let options = match options() {
        Ok(options) => options,
        Err(why) => {
            eprintln!("adapter: {why}");
            return ExitCode::from(2);
        }
    };
    if !is_root() {
        return ExitCode::SUCCESS; // It has been said why.
    }
    let time = Duration::from_millis(if options.short { 10 } else { 200 });
    let bench = Bench::open(time);
    let mut rows = rows();
    if !options.words.is_empty() {
        rows.retain(|row| options.words.iter().any(|word| row.what.contains(word)));
    }
    let pairs = if options.short { 1 } else { options.pairs };
    for turn in 1..=pairs {
        eprintln!("turn {turn} of {pairs}");
        let taken = RefCell::new(BTreeMap::new());
        for row in &mut rows {
            let value = |what: What| {
                let known = taken.borrow().get(&what).copied();
                known.unwrap_or_else(|| {
                    let value = bench.measure(what);
                    taken.borrow_mut().insert(what, value);
                    value
                })
            };
            let yardstick = row.yardstick.map(value);
            let scale = row.scale;
            row.pairs.push((value(row.figure), yardstick.map(|it| it * scale)));
        }
    }
    if options.json {
        table::json(&rows)
    } else {
        table::print(&rows)
    }
    if let Some(file) = options.markdown
        && let Err(error) = table::markdown(&file, &rows, pairs)
    {
        eprintln!("{file}: {error}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn options() -> Result<Options, String> {
    let mut options =
        Options { short: false, json: false, markdown: None, pairs: 5, words: Vec::new() };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--bench" => {} // Cargo says so.
            "--short" => options.short = true,
            "--json" => options.json = true,
            "--markdown" => {
                options.markdown = Some(arguments.next().ok_or("--markdown wants a file")?);
            }
            "--pairs" => {
                let pairs = arguments.next().and_then(|it| it.parse().ok());
                options.pairs = pairs.filter(|it| *it > 0).ok_or("--pairs wants a number")?;
            }
            other if other.starts_with('-') => return Err(format!("no option {other}")),
            word => options.words.push(word.to_owned()),
        }
    }
    Ok(options)
}

/// Something that can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    /// Payload of frames of this path MTU by the raw pair, Gb/s.
    Raw(u32),
    /// Frames of 8-byte WRITEs by the raw pair, packets a second.
    RawRate,
    /// Round trips of the raw pair, µs; sleeping or not.
    RawTrips(bool),
    /// The same with an acknowledgement's frame before each.
    RawTripsAcknowledged,
    /// Datagrams of 1024 bytes of the kernel, Gb/s; joined or not.
    Udp(bool),
    /// A TCP stream, Gb/s.
    Tcp,
    /// Round trips of UDP and TCP.
    UdpTrips(bool),
    TcpTrips(bool),
    /// Long messages, by path MTU, Gb/s.
    Write(u32),
    Read(u32),
    Send(u32),
    /// Through a UDP socket.
    OverUdp(u32),
    /// WRITEs under DCQCN, on a network that marks nothing.
    Controlled(u32),
    /// With 1 % of all packets lost.
    Lossy(u32),
    /// 8-byte WRITEs a second over so many queue pairs.
    Rate(usize),
    /// Round trips, µs.
    WriteTrips,
    SendTrips,
    EventTrips(Events),
}

/// What the table shows.
fn rows() -> Vec<Row> {
    use Goal::{AtLeast, AtMost, None as Shown};
    use Unit::{Gbps, Micros, Mpps};
    let mut rows = Vec::new();
    for mtu in [1024, 2048, 4096] {
        let mut row = |name, figure, goal| {
            let what = format!("RC {name} 1 MiB, path MTU {mtu}");
            rows.push(Row::new(what, Gbps, figure, "raw XSK pair", What::Raw(mtu), AtLeast(goal)));
        };
        row("WRITE", What::Write(mtu), 0.85);
        row("READ", What::Read(mtu), 0.8);
        row("SEND", What::Send(mtu), 0.8);
    }
    let mut row = |what: &str, unit, figure, name, yardstick, goal| {
        rows.push(Row::new(what.to_owned(), unit, figure, name, yardstick, goal));
    };
    for (verb, figure) in [("WRITE", What::WriteTrips), ("SEND", What::SendTrips)] {
        let what = format!("8-byte {verb} there and back, spinning");
        let mut row = |name, yardstick, goal| row(&what, Micros, figure, name, yardstick, goal);
        row("raw XSK pair", What::RawTrips(false), AtMost(1.3));
        row("raw XSK pair, two frames each way", What::RawTripsAcknowledged, Shown);
        row("kernel UDP", What::UdpTrips(false), AtMost(1.0));
        row("kernel TCP", What::TcpTrips(false), AtMost(1.0));
    }
    for (how, by) in [("wait()", Events::Wait), ("descriptor", Events::Descriptor)] {
        let what = format!("8-byte SEND there and back, events by {how}");
        let figure = What::EventTrips(by);
        let mut row = |name, yardstick, goal| row(&what, Micros, figure, name, yardstick, goal);
        row("raw XSK pair, poll()", What::RawTrips(true), AtMost(1.3));
        row("kernel UDP, sleeping", What::UdpTrips(true), Shown);
        row("kernel TCP, sleeping", What::TcpTrips(true), Shown);
    }
    for (what, count) in [("1 queue pair", 1), ("64 queue pairs", 64)] {
        let what = format!("8-byte WRITEs, {what}");
        row(&what, Mpps, What::Rate(count), "raw XSK pair", What::RawRate, AtLeast(0.8));
    }
    let what = "RC WRITE 1 MiB over UDP with GSO, path MTU 4096";
    row(what, Gbps, What::OverUdp(4096), "kernel TCP", What::Tcp, AtLeast(1.0));
    let what = "RC WRITE 1 MiB, path MTU 1024, dcqcn, without marks";
    let figure = What::Controlled(1024);
    row(what, Gbps, figure, "the same without control", What::Write(1024), AtLeast(0.97));
    let what = "RC WRITE 1 MiB, path MTU 1024, 1 % lost";
    let mut lossy = Row::new(
        what.to_owned(),
        Gbps,
        What::Lossy(1024),
        "go-back-N: without loss × (1-p)/(1-p+pW)",
        What::Write(1024),
        AtLeast(0.8),
    );
    let (lost, window) = (0.01, 256.0);
    lossy.scale = (1.0 - lost) / (1.0 - lost + lost * window);
    rows.push(lossy);
    for (what, figure) in [
        ("kernel UDP, 1024-byte datagrams, sendmmsg", What::Udp(false)),
        ("kernel UDP, 1024-byte datagrams, GSO and GRO", What::Udp(true)),
        ("kernel TCP, 1 MiB a call", What::Tcp),
    ] {
        rows.push(Row::alone(what.to_owned(), Gbps, figure));
    }
    rows
}

/// All ends, open for the whole run, but for those that would be in each other's way.
struct Bench {
    time: Duration,
    raw: RefCell<RawPair>,
    ends: Ends,
    lossy: Ends,
    over_udp: Ends,
    kernel: Arc<Cable>,
}

impl Bench {
    fn open(time: Duration) -> Self {
        let raw = RawPair::new().unwrap_or_else(|error| {
            eprintln!("a raw pair of XDP sockets: {error}");
            std::process::exit(3);
        });
        let cable = || Arc::new(Cable::new(INTERFACE_MTU));
        let kernel = cable();
        Self {
            time,
            raw: RefCell::new(raw),
            ends: Ends::open(&cable(), "xdp:va", "xdp:vb", PATIENT),
            lossy: Ends::open(&cable(), "xdp:va,fault=drop 1%", "xdp:vb", SHORT),
            over_udp: Ends::open(&kernel, "udp:192.0.2.1,gso=on", "udp:192.0.2.2,gso=on", PATIENT),
            kernel,
        }
    }

    fn measure(&self, what: What) -> f64 {
        let Self { time, raw, ends, lossy, over_udp, kernel } = self;
        let time = *time;
        let of = |mtu| Mtu::from_bytes(mtu).expect("it is a path MTU");
        match what {
            What::Raw(mtu) => {
                let payload = mtu as usize;
                let packets = raw.borrow_mut().stream(payload + AROUND, payload, time);
                packets * f64::from(mtu) * 8e-9
            }
            What::RawRate => raw.borrow_mut().stream(SMALL, 8, time),
            What::RawTrips(sleep) => raw.borrow_mut().round_trips(SMALL, sleep, false, time),
            What::RawTripsAcknowledged => raw.borrow_mut().round_trips(SMALL, false, true, time),
            What::Udp(gso) => kernel::udp_stream(kernel, 1024, gso, time),
            What::Tcp => kernel::tcp_stream(kernel, time),
            What::UdpTrips(sleep) => kernel::round_trips(kernel, Protocol::Udp, sleep, time),
            What::TcpTrips(sleep) => kernel::round_trips(kernel, Protocol::Tcp, sleep, time),
            What::Write(mtu) => ends.bandwidth(Verb::Write, of(mtu), time),
            What::Read(mtu) => ends.bandwidth(Verb::Read, of(mtu), time),
            What::Send(mtu) => ends.bandwidth(Verb::Send, of(mtu), time),
            What::Controlled(mtu) => ends.controlled(Verb::Write, of(mtu), time),
            What::OverUdp(mtu) => over_udp.bandwidth(Verb::Write, of(mtu), time),
            What::Lossy(mtu) => lossy.bandwidth(Verb::Write, of(mtu), 2 * time),
            What::Rate(count) => ends.message_rate(count, time),
            What::WriteTrips => ends.round_trips(Verb::Write, time),
            What::SendTrips => ends.round_trips(Verb::Send, time),
            What::EventTrips(by) => ends.round_trips_with_events(by, time),
        }
    }
}

/// 8 ms until a request is sent again, as the attribute is encoded: where packets are lost.
const SHORT: u8 = 11;

/// The same for half a second.
const PATIENT: u8 = 17;

/// Ethernet, IPv4, UDP, BTH and ICRC around a payload.
const AROUND: usize = 14 + 20 + 8 + 12 + 4;

/// The frame of an 8-byte WRITE.
const SMALL: usize = AROUND + 16 + 8;

/// The middle one; 0 if there is none.
fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}
