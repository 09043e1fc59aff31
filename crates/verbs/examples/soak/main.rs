//! Mixed traffic between two hosts for as long as is wanted, over a network that loses, doubles,
//! reorders and damages packets.
//!
//! Every byte is verified, the memory in use has to stay what it was, and all that the adapters
//! count has to be what a recording at both ends shows. The recordings go through pipes and are
//! judged while they are made, so that there is no file and no frame is missing.
//!
//! As root: two network namespaces joined by a veth cable, an adapter on AF_XDP in each, in a
//! process of its own. `soak SECONDS [SEED]`; exit status 1 when something is wrong, and then the
//! last frames of both recordings are beside the program; 3 without root.

mod checker;
mod host;
mod lane;
#[path = "../../../net/tests/namespace/mod.rs"]
mod namespace;
mod pattern;

use std::collections::BTreeMap;
use std::error::Error;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStderr, Command, ExitCode, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant as Clock};
use std::{env, thread};

use checker::{Seen, Sides, Tail, Verdict};
use namespace::{Cable, is_root};

type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

/// What the network does to packets, in both directions.
const FAULTS: &str = "drop 1%; reorder 1% by 3; dup 1%; corrupt 0.5%";

/// What a process may have grown at the end.
const MOST_GROWTH_KIB: u64 = 4096;

/// Nobody is silent for so long.
const PATIENCE: Duration = Duration::from_secs(30);

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    let done = match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["host", side, device, seed] => host::run(side, device, seed),
        _ if !is_root() => return ExitCode::from(3),
        [seconds] => soak(seconds, "1"),
        [seconds, seed] => soak(seconds, seed),
        _ => Err("usage: soak SECONDS [SEED]".into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("soak: {error}");
            ExitCode::FAILURE
        }
    }
}

fn soak(seconds: &str, seed: &str) -> Outcome {
    let time = Duration::from_secs(seconds.parse()?);
    let _: u64 = seed.parse()?;
    let cable = Cable::new(4200);
    let sides = Sides::default();
    let tails = [Tail::default(), Tail::default()];
    let faulty = format!("xdp:va,capture=/dev/stdout,fault={FAULTS}");
    // Children die with the thread that starts them: these two threads last as long as all.
    let done = cable.a.run(|| {
        let one = Host::start("a", &faulty, seed, (&sides, &tails[0]))?;
        cable.b.run(|| {
            let two = "xdp:vb,capture=/dev/stdout";
            let other = Host::start("b", two, seed, (&sides, &tails[1]))?;
            conduct([one, other], time)
        })
    });
    if done.is_err() {
        for (tail, side) in tails.iter().zip(["a", "b"]) {
            let path = env::current_exe()?.with_file_name(format!("soak-{side}.pcapng"));
            tail.write(&path, side)?;
            eprintln!("the last frames of host {side} are in {}", path.display());
        }
    }
    done
}

/// Both hosts from their start to the verdict.
fn conduct(mut hosts: [Host; 2], time: Duration) -> Outcome {
    for host in &mut hosts {
        host.wait_for("ready")?;
    }
    hosts.iter_mut().try_for_each(|host| host.say("go"))?;
    let start = Clock::now();
    let warm = (time / 4).min(Duration::from_secs(60));
    let mut told = Clock::now();
    while start.elapsed() < time {
        thread::sleep(Duration::from_millis(200));
        for host in &mut hosts {
            host.listen(start.elapsed() >= warm)?;
        }
        if told.elapsed() >= Duration::from_secs(5) {
            told = Clock::now();
            let [a, b] = hosts.each_ref().map(|host| host.progress);
            eprintln!(
                "{:>5} s of {}: {} messages, {} MB verified, memory {} and {} KiB",
                start.elapsed().as_secs(),
                time.as_secs(),
                a.messages + b.messages,
                (a.bytes + b.bytes) / 1_000_000,
                a.rss_kib,
                b.rss_kib,
            );
        }
    }
    // Who has nothing more to ask still answers, until both have nothing more to ask.
    for word in ["stop", "quiet"] {
        hosts.iter_mut().try_for_each(|host| host.say(word))?;
        hosts.iter_mut().try_for_each(|host| host.wait_for("drained"))?;
    }
    hosts.iter_mut().try_for_each(|host| host.say("report"))?;
    let mut verdict = Verdict::default();
    let [a, b] = hosts.map(Host::end);
    let (a, b) = (a?, b?);
    for end in [&a, &b] {
        verdict.counters_equal_capture(end.side, &end.counters, &end.seen);
        let Progress { rss_kib, .. } = end.progress;
        let grown = rss_kib.saturating_sub(end.warm_kib);
        verdict.must(
            grown <= MOST_GROWTH_KIB,
            format!("{}: memory grew from {} to {rss_kib} KiB", end.side, end.warm_kib),
        );
    }
    verdict.nothing_lost_between([(&a.counters, "a"), (&b.counters, "b")]);
    checker::table([&a.seen, &b.seen]);
    println!();
    for End { side, progress, warm_kib, .. } in [&a, &b] {
        println!(
            "host {side}: {} messages, {} bytes verified, memory {warm_kib} KiB warm, {} at last",
            progress.messages, progress.bytes, progress.rss_kib
        );
    }
    verdict.tell()
}

/// What a host has done so far.
#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    messages: u64,
    bytes: u64,
    rss_kib: u64,
}

/// A process with an adapter, and who reads its recording.
struct Host {
    side: &'static str,
    child: Child,
    lines: Receiver<String>,
    reader: thread::JoinHandle<Outcome<Seen>>,
    progress: Progress,
    /// Its memory when it had warmed up.
    warm_kib: u64,
    counters: BTreeMap<String, u64>,
    sides: Sides,
}

/// What is left of a host.
struct End {
    side: &'static str,
    progress: Progress,
    warm_kib: u64,
    counters: BTreeMap<String, u64>,
    seen: Seen,
}

impl Host {
    fn start(
        side: &'static str,
        device: &str,
        seed: &str,
        (sides, tail): (&Sides, &Tail),
    ) -> Outcome<Self> {
        let mut child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--"])
            .arg(env::current_exe()?)
            .args(["host", side, device, seed])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let (capture, said) = (child.stdout.take(), child.stderr.take());
        let (capture, said) = capture.zip(said).ok_or("pipes that were asked for")?;
        let (of, tail) = (sides.clone(), tail.clone());
        let reader = thread::spawn(move || checker::read(capture, side, &of, &tail));
        let lines = lines(said);
        let (progress, counters, sides) = (Progress::default(), BTreeMap::new(), sides.clone());
        Ok(Self { side, child, lines, reader, progress, warm_kib: 0, counters, sides })
    }

    fn say(&mut self, word: &str) -> Outcome {
        let input = self.child.stdin.as_mut().ok_or("a pipe that was asked for")?;
        Ok(writeln!(input, "{word}")?)
    }

    /// Hears what it says until it says this.
    fn wait_for(&mut self, word: &str) -> Outcome {
        while self.hear_one()? != word {}
        Ok(())
    }

    fn hear_one(&mut self) -> Outcome<String> {
        let line = self.lines.recv_timeout(PATIENCE);
        let line = line.map_err(|_| format!("host {} fell silent", self.side))?;
        self.take(&line)?;
        Ok(line)
    }

    /// Hears what it has said. Unless it is warm, its memory may still grow.
    fn listen(&mut self, warm: bool) -> Outcome {
        while let Ok(line) = self.lines.try_recv() {
            self.take(&line)?;
        }
        if !warm || self.warm_kib == 0 {
            self.warm_kib = self.progress.rss_kib;
        }
        match self.child.try_wait()? {
            Some(status) => Err(format!("host {} ended: {status}", self.side).into()),
            None => Ok(()),
        }
    }

    fn take(&mut self, line: &str) -> Outcome {
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["progress", messages, bytes, rss_kib] => {
                self.progress = Progress {
                    messages: messages.parse()?,
                    bytes: bytes.parse()?,
                    rss_kib: rss_kib.parse()?,
                };
            }
            ["qp", qpn, peer, expects, path_mtu] => {
                self.sides.add(self.side, [qpn, peer, expects, path_mtu])?;
            }
            ["counter", name, value] => {
                *self.counters.entry(name.to_owned()).or_default() += value.parse::<u64>()?;
            }
            ["ready" | "drained"] => {}
            _ => eprintln!("host {}: {line}", self.side),
        }
        Ok(())
    }

    fn end(mut self) -> Outcome<End> {
        while let Ok(line) = self.lines.recv_timeout(PATIENCE) {
            self.take(&line)?;
        }
        let status = self.child.wait()?;
        if !status.success() {
            return Err(format!("host {} ended: {status}", self.side).into());
        }
        let seen = self.reader.join().map_err(|_| "the reader of a recording panicked")??;
        let Self { side, progress, warm_kib, counters, .. } = self;
        Ok(End { side, progress, warm_kib, counters, seen })
    }
}

/// Lines as they come.
fn lines(from: ChildStderr) -> Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}
