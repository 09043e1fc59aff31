//! What the C library costs: perftest as the distribution has it, on `libibverbs.so.1`, beside
//! `roxe perf` at the same work on the same cable.
//! `cargo bench -p roxe-ibverbs --bench drop_in -- [WORD…]` runs the rows that contain a word, or
//! all; the release build of `roxe` has to be there.
//!
//! Two network namespaces without names stand for the hosts, a veth pair for the cable. Each end
//! has a core. Both take turns, so that they meet the same moods of the machine; shown are the
//! medians, and the median of the ratios, which is above 1 where perftest is the faster.

#[path = "../../net/tests/namespace/mod.rs"]
mod namespace;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;
use std::{env, fs, thread};

use namespace::{Cable, Namespace, is_root};

/// The same work for both.
struct Row {
    /// A program of perftest without its `ib_`, and what both ends are told.
    line: &'static str,
    figure: Figure,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Figure {
    /// The average, in MB/s.
    Bandwidth,
    /// The median, in µs.
    Latency,
}

#[rustfmt::skip]
const ROWS: [Row; 4] = [
    Row { line: "write_bw -s 65536 -n 20000", figure: Figure::Bandwidth },
    Row { line: "write_bw -s 8 -n 300000",    figure: Figure::Bandwidth },
    Row { line: "send_lat -s 8 -n 50000",     figure: Figure::Latency },
    Row { line: "send_lat -s 8 -n 20000 -e",  figure: Figure::Latency },
];

/// Adapters of the two ends.
const PORTS: [[&str; 2]; 2] = [["xdp:va", "xdp:vb"], ["udp:192.0.2.1", "udp:192.0.2.2"]];

/// Measurements of each; odd, so that the median is one of them.
const PAIRS: usize = 7;

/// As fast as `roxe perf` but for this.
const GOAL: f64 = 0.95;

fn main() -> ExitCode {
    if !is_root() {
        return ExitCode::SUCCESS; // It has been said why.
    }
    let words: Vec<String> = env::args().skip(1).filter(|it| !it.starts_with('-')).collect();
    println!("{:<34}  {:>11}  {:>11}  {:>5}  verdict", "work", "perftest", "roxe perf", "ratio");
    let mut complete = true;
    for devices in PORTS {
        let cable = Cable::new(4200);
        for row in &ROWS {
            let what = format!("{} {}", &devices[0][..3], row.line);
            if !words.is_empty() && !words.iter().any(|word| what.contains(word.as_str())) {
                continue;
            }
            match row.measure(&cable, devices, &what) {
                Ok(line) => println!("{what:<34}  {line}"),
                Err(why) => {
                    println!("{what:<34}  {why}");
                    complete = false;
                }
            }
        }
    }
    if complete { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

impl Row {
    fn measure(&self, cable: &Cable, devices: [&str; 2], what: &str) -> Result<String, String> {
        let mut taken = Vec::new();
        for turn in 1..=PAIRS {
            eprintln!("{what}: turn {turn} of {PAIRS}");
            let [library, ours] = [true, false].map(|it| self.once(cable, devices, it));
            taken.push((library?, ours?));
        }
        let of = |value: fn(&(f64, f64)) -> f64| median(taken.iter().map(value).collect());
        // Of latencies the smaller is the faster.
        let ratio = match self.figure {
            Figure::Bandwidth => of(|(library, ours)| library / ours),
            Figure::Latency => of(|(library, ours)| ours / library),
        };
        let shown = |value: f64| match self.figure {
            Figure::Bandwidth => format!("{value:.1} MB/s"),
            Figure::Latency => format!("{value:.2} µs"),
        };
        let verdict = match ratio >= GOAL {
            true => format!("≥ {GOAL}: met"),
            false => format!("≥ {GOAL}: missed by {:.0} %", (GOAL - ratio) / GOAL * 100.0),
        };
        let [library, ours] = [of(|it| it.0), of(|it| it.1)].map(shown);
        Ok(format!("{library:>11}  {ours:>11}  {ratio:>5.2}  {verdict}"))
    }

    /// A measurement, by perftest on the library or by `roxe perf`: the figure of the client.
    fn once(&self, cable: &Cable, devices: [&str; 2], library: bool) -> Result<f64, String> {
        let [server, client] = devices;
        let mut server = Ended(self.start(&cable.a, 0, server, library, None)?);
        while !listens(&cable.a) {
            if server.0.try_wait().is_ok_and(|ended| ended.is_some()) {
                return Err("the server ended before its client came".to_owned());
            }
            thread::sleep(Duration::from_millis(5));
        }
        let client = self.start(&cable.b, 1, client, library, Some("192.0.2.1"))?;
        let output = client.wait_with_output().map_err(|error| error.to_string())?;
        let said = String::from_utf8_lossy(&output.stdout);
        let complaint = || format!("no figure: {said}{}", String::from_utf8_lossy(&output.stderr));
        let figure = self.figure.read(&said).filter(|_| output.status.success());
        let _ = server.0.wait();
        figure.ok_or_else(complaint)
    }

    fn start(
        &self,
        host: &Namespace,
        core: u8,
        device: &str,
        library: bool,
        server: Option<&str>,
    ) -> Result<Child, String> {
        let mut command = Command::new("taskset");
        command.args(["-c", &core.to_string()]);
        let words = self.line.split_whitespace();
        if library {
            command.arg(format!("ib_{}", self.line.split(' ').next().unwrap_or_default()));
            command.args(words.skip(1)).args(["-x", "0", "-F"]);
            command.env("LD_LIBRARY_PATH", release().join("lib")).env("ROXE_DEVICES", device);
        } else {
            command.arg(release().join("roxe")).arg("perf").args(words).args(["-d", device]);
        }
        command.args(server).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        host.run(|| command.spawn()).map_err(|error| format!("taskset: {error}"))
    }
}

impl Figure {
    /// The figure out of perftest's table, whose last line it is: of bandwidth size, messages, MB/s
    /// at most and on average; of latency size, trips, and µs at least, at most and typically.
    fn read(self, said: &str) -> Option<f64> {
        let is_row = |line: &&str| line.trim_start().starts_with(|it: char| it.is_ascii_digit());
        let line = said.lines().rev().find(is_row)?;
        let column = match self {
            Self::Bandwidth => 3,
            Self::Latency => 4,
        };
        let figure = line.split_whitespace().nth(column)?.parse().ok()?;
        (figure > 0.0 && f64::is_finite(figure)).then_some(figure)
    }
}

/// A server that does not outlive its measurement.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Whether a server waits where perftest meets.
fn listens(host: &Namespace) -> bool {
    const PORT_18515: &str = ":4853 ";
    const LISTENS: &str = " 0A ";
    let is_it = |line: &str| line.contains(PORT_18515) && line.contains(LISTENS);
    host.run(|| {
        ["tcp", "tcp6"].iter().any(|table| {
            let table = fs::read_to_string(format!("/proc/thread-self/net/{table}"));
            table.is_ok_and(|table| table.lines().any(is_it))
        })
    })
}

/// The folder of the release build, in whose `deps` this program is.
fn release() -> PathBuf {
    let program = env::current_exe().unwrap_or_default();
    program.ancestors().nth(2).unwrap_or_else(|| Path::new(".")).to_path_buf()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}
