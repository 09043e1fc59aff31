//! An end: where a program runs, with which adapter, and how it ends.

use std::fs;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use crate::guest::{Guest, mortal};
use crate::namespace::Namespace;
use crate::rows::Meet;

/// An end.
pub(crate) struct End<'a> {
    pub(crate) place: Place<'a>,
    /// Its addresses, IPv4 and IPv6.
    pub(crate) addresses: [String; 2],
    /// The indices of these among its GIDs.
    pub(crate) gids: [u64; 2],
}

/// Where an end is.
pub(crate) enum Place<'a> {
    /// On a host, with our adapters.
    Ours { namespace: Option<&'a Namespace>, devices: String },
    /// In a guest, with Linux's own.
    Guest(&'a Guest),
}

/// A program that runs at an end.
#[derive(Default)]
pub(crate) struct Running {
    pid: AtomicU32,
    /// It is no longer wanted.
    stop: AtomicBool,
}

/// How a program ended: what it printed, or what it printed last and how it ended.
pub(crate) type Ended = Result<String, String>;

impl Running {
    pub(crate) fn stop(&self) {
        self.stop.store(true, Relaxed);
    }
}

impl End<'_> {
    /// Runs a program to its end, or to the end of patience.
    pub(crate) fn run(&self, line: &str, patience: Duration, running: &Running) -> Ended {
        match &self.place {
            Place::Ours { namespace: Some(namespace), devices } => {
                namespace.run(|| run_here(line, devices, patience, running))
            }
            Place::Ours { namespace: None, devices } => run_here(line, devices, patience, running),
            Place::Guest(guest) => run_in(guest, line, patience, running),
        }
    }

    /// Whether a server waits for its client.
    pub(crate) fn listens(&self, meet: Meet, running: &Running) -> bool {
        match &self.place {
            Place::Ours { namespace, .. } => {
                let listens = || listens_here(meet, running.pid.load(Relaxed));
                namespace.map_or_else(listens, |namespace| namespace.run(listens))
            }
            Place::Guest(guest) => {
                let script = match meet {
                    Meet::Tcp => "grep -qs ':4853 .* 0A' /proc/net/tcp /proc/net/tcp6",
                    Meet::Group => "rdma resource show cm_id | grep -q mckey && sleep 1",
                    _ => "rdma resource show cm_id | grep -q LISTEN",
                };
                guest.shell_for(QUESTION, script).is_ok()
            }
        }
    }
}

/// Nothing tells from outside when a server of the connection manager listens: it does soon after
/// it has opened its adapter.
const OPENED_TO_LISTENING: Duration = Duration::from_millis(400);

/// How long a guest takes to answer a question.
const QUESTION: Duration = Duration::from_secs(10);

fn listens_here(meet: Meet, pid: u32) -> bool {
    if meet == Meet::Tcp {
        const PORT_18515: &str = ":4853 ";
        const LISTENS: &str = " 0A ";
        return ["tcp", "tcp6"].iter().any(|table| {
            let table = fs::read_to_string(format!("/proc/thread-self/net/{table}"));
            let is_it = |line: &str| line.contains(PORT_18515) && line.contains(LISTENS);
            table.is_ok_and(|table| table.lines().any(is_it))
        });
    }
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let names = threads.filter_map(|thread| fs::read_to_string(thread.path().join("comm")).ok());
    let is_open = names.into_iter().any(|name| name.trim() == "roxe-cm");
    if is_open {
        thread::sleep(OPENED_TO_LISTENING);
    }
    is_open
}

/// A program with our library and these adapters.
pub(crate) fn program_on(line: &str, devices: &str) -> Command {
    let mut words = line.split_whitespace();
    on_ours(Command::new(words.next().unwrap_or_default()), words, devices)
}

fn on_ours<'a>(
    mut command: Command,
    words: impl Iterator<Item = &'a str>,
    devices: &str,
) -> Command {
    command
        .args(words)
        .env("LD_LIBRARY_PATH", libraries())
        .env("ROXE_DEVICES", devices)
        .stdin(Stdio::null());
    command
}

/// The folder that the build of the library made.
fn libraries() -> PathBuf {
    let program = std::env::current_exe().expect("a program knows where it is");
    let folder = program.ancestors().nth(2).expect("it is in target/PROFILE/deps").join("lib");
    let library = folder.join("libibverbs.so.1");
    assert!(library.exists(), "{} is missing: cargo build -p roxe-ibverbs", library.display());
    folder
}

fn run_here(line: &str, devices: &str, patience: Duration, running: &Running) -> Ended {
    let mut words = line.split_whitespace();
    let mut command = on_ours(mortal(words.next().unwrap_or_default()), words, devices);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| {
        format!("{line} (apt-get install ibverbs-utils perftest rdmacm-utils): {error}")
    })?;
    running.pid.store(child.id(), Relaxed);
    let out = reader(child.stdout.take());
    let err = reader(child.stderr.take());
    let deadline = Instant::now() + patience;
    let status = loop {
        match child.try_wait().map_err(|error| error.to_string())? {
            Some(status) => break Some(status),
            None if running.stop.load(Relaxed) || Instant::now() > deadline => {
                end(&mut child);
                break None;
            }
            None => thread::sleep(Duration::from_millis(5)),
        }
    };
    let said = [out, err].map(|reader| reader.join().unwrap_or_default()).concat();
    match status {
        Some(status) if status.success() => Ok(said),
        Some(status) => Err(format!("{status}: {said}")),
        None if running.stop.load(Relaxed) => Err(format!("was waited for in vain: {said}")),
        None => Err(format!("did not end in {patience:.0?}: {said}")),
    }
}

fn end(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}

fn reader(pipe: Option<impl Read + Send + 'static>) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            let _ = pipe.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

fn run_in(guest: &Guest, line: &str, patience: Duration, running: &Running) -> Ended {
    let program = line.split(' ').next().unwrap_or(line);
    thread::scope(|scope| {
        let seconds = patience.as_secs();
        let script = format!("timeout -s KILL {seconds} {line}");
        // The guest's own clock may be slow.
        let ended = scope.spawn(move || guest.shell_for(patience * 2, &script));
        while !ended.is_finished() {
            if running.stop.load(Relaxed) {
                let _ = guest.shell_for(QUESTION, &format!("kill -9 $(pidof {program})"));
                thread::sleep(Duration::from_millis(200));
            }
            thread::sleep(Duration::from_millis(20));
        }
        let ended = ended.join().map_err(|_| "the thread of the guest's program failed")?;
        ended.map_err(|why| why.to_string())
    })
}
