//! An end: where a program runs, with which adapter, and how it ends.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use std::{fs, thread};

use roxe_verbs::status::{Client, Running as Adapter};

use crate::guest::{Guest, mortal};
use crate::namespace::Namespace;
use crate::ours::{libraries, with_ours};
use crate::rows::Meet;
use crate::scratch::Scratch;

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
    Ours { namespace: Option<&'a Namespace>, devices: String, loses: bool },
    /// In a guest, with Linux's own.
    Guest(&'a Guest),
}

/// A program that runs at an end, and what is seen of it.
#[derive(Default)]
pub(crate) struct Running {
    pid: AtomicU32,
    /// It is no longer wanted.
    stop: AtomicBool,
    /// It has the library that is under test there.
    has_library: AtomicBool,
    /// Packets that its adapter lost on purpose, as it said last.
    lost: AtomicU64,
    /// It has ended well, or has put its queue pairs into the error state: it answers nobody.
    has_left: AtomicBool,
}

/// How a program ended: what it printed, or how it ended and what it printed.
pub(crate) type Ended = Result<String, String>;

/// What a program is given.
#[derive(Clone, Copy)]
pub(crate) struct Terms {
    /// How long it may take.
    pub(crate) patience: Duration,
    /// Packets of a hundred that an end loses that loses some.
    pub(crate) loss: u32,
    /// What our connection manager says comes late.
    pub(crate) is_late: bool,
    /// Ours may leave a guest's, which asks for ever then.
    pub(crate) may_be_left: bool,
}

/// What begins with this was ended by us, and nothing was wrong with it.
pub(crate) const IN_VAIN: &str = "was waited for in vain";

/// And what begins with this, after its peer had left.
pub(crate) const LEFT: &str = "still asked long after its peer had left";

impl Running {
    pub(crate) fn stop(&self) {
        self.stop.store(true, Relaxed);
    }

    pub(crate) fn has_library(&self) -> bool {
        self.has_library.load(Relaxed)
    }

    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Relaxed)
    }

    fn has_left(&self) -> bool {
        self.has_left.load(Relaxed)
    }
}

impl End<'_> {
    /// Runs a program to its end, or to the end of patience.
    pub(crate) fn run(&self, line: &str, terms: Terms, [running, peer]: [&Running; 2]) -> Ended {
        match &self.place {
            Place::Ours { namespace, devices, loses } => {
                let loss = if *loses { terms.loss } else { 0 };
                let run = || run_here(line, devices, Terms { loss, ..terms }, running);
                namespace.map_or_else(run, |namespace| namespace.run(run))
            }
            Place::Guest(guest) => run_in(guest, line, terms, [running, peer]),
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

/// In this time an emulated host has done what it does when a message was acknowledged.
const LATE: &str = "300ms";

/// Who counts how often it asks, eight times half a second, has given up in this time.
const FAREWELL: Duration = Duration::from_secs(6);

/// How long a guest takes to answer a question.
const QUESTION: Duration = Duration::from_secs(10);

/// Nothing tells from outside when a program has joined a group: it does soon after it has opened
/// its adapter.
const OPENED_TO_JOINED: Duration = Duration::from_millis(400);

/// Whether a server of this namespace waits for its client.
pub(crate) fn listens_here(meet: Meet, pid: u32) -> bool {
    match meet {
        Meet::Tcp => {
            const PORT_18515: &str = ":4853 ";
            const LISTENS: &str = " 0A ";
            ["tcp", "tcp6"].iter().any(|table| {
                let table = fs::read_to_string(format!("/proc/thread-self/net/{table}"));
                let is_it = |line: &str| line.contains(PORT_18515) && line.contains(LISTENS);
                table.is_ok_and(|table| table.lines().any(is_it))
            })
        }
        Meet::Group => {
            let is_open = adapter_of(pid).is_some();
            if is_open {
                thread::sleep(OPENED_TO_JOINED);
            }
            is_open
        }
        Meet::Alone | Meet::Cm | Meet::CmForEver => {
            let info = adapter_of(pid).and_then(|mut adapter| adapter.info().ok());
            info.is_some_and(|info| info.listeners > 0)
        }
    }
}

/// The adapter that a program has open.
fn adapter_of(pid: u32) -> Option<Client> {
    Adapter { endpoint: format!("roxe/{pid}/roxe0") }.connect().ok()
}

/// A program with our library and these adapters.
pub(crate) fn program_on(line: &str, devices: &str) -> Command {
    let mut words = line.split_whitespace();
    let mut command = Command::new(words.next().unwrap_or_default());
    with_ours(command.args(words), devices);
    command
}

fn run_here(line: &str, devices: &str, terms: Terms, running: &Running) -> Ended {
    let Terms { patience, loss, is_late, may_be_left } = terms;
    let faults = match (loss, is_late) {
        (0, false) => String::new(),
        (0, true) => format!(",fault=delay {LATE} of qp 1"),
        (loss, _) => format!(",fault=drop {loss}%"),
    };
    // Our library tells only in a file that is there.
    let stories = Scratch::new();
    fs::write(&stories.0, "").map_err(|error| format!("{}: {error}", stories.0))?;
    let mut words = line.split_whitespace();
    let mut command = mortal(words.next().unwrap_or_default());
    with_ours(command.args(words), &format!("{devices}{faults}"))
        .env("ROXE_STORIES", &stories.0)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| {
        format!("{line} (apt-get install ibverbs-utils perftest rdmacm-utils): {error}")
    })?;
    running.pid.store(child.id(), Relaxed);
    let out = reader(child.stdout.take());
    let err = reader(child.stderr.take());
    let deadline = Instant::now() + patience;
    let mut adapter = None;
    let status = loop {
        match child.try_wait().map_err(|error| error.to_string())? {
            Some(status) => break Some(status),
            None if running.stop.load(Relaxed) || Instant::now() > deadline => {
                end(&mut child);
                break None;
            }
            None => thread::sleep(Duration::from_millis(5)),
        }
        if !running.has_library() && has_ours(child.id()) {
            running.has_library.store(true, Relaxed);
        }
        if loss != 0 {
            adapter = adapter.or_else(|| adapter_of(child.id()));
            match adapter.as_mut().map(lost) {
                Some(Some(lost)) => drop(running.lost.fetch_max(lost, Relaxed)),
                _ => adapter = None,
            }
            if may_be_left && adapter.as_mut().is_some_and(is_in_error) {
                running.has_left.store(true, Relaxed);
            }
        }
    };
    if status.is_some_and(|status| status.success()) {
        running.has_left.store(true, Relaxed);
    }
    let said = [out, err].map(|reader| reader.join().unwrap_or_default()).concat();
    let stories = told_in(&stories);
    match status {
        Some(status) if !status.success() => Err(format!("{status}: {said}\n{stories}")),
        _ if !stories.is_empty() => Err(format!("nothing was said of this: {stories}")),
        Some(_) => Ok(said),
        None if running.stop.load(Relaxed) => Err(format!("{IN_VAIN}: {said}")),
        None => Err(format!("did not end in {patience:.0?}: {said}")),
    }
}

/// Whether a process has loaded our library.
fn has_ours(pid: u32) -> bool {
    let library = libraries().join("libibverbs.so.1").canonicalize().unwrap_or_default();
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    maps.lines().any(|line| line.ends_with(&*library.to_string_lossy()))
}

/// How many packets an adapter has lost on purpose.
fn lost(adapter: &mut Client) -> Option<u64> {
    let (counters, _) = adapter.counters().ok()?;
    let is_it = |name: &str| ["fault_tx_dropped", "fault_rx_dropped"].contains(&name);
    Some(counters.iter().filter(|it| is_it(&it.name)).map(|it| it.value).sum())
}

/// Whether an adapter has queue pairs, and the application has put each into the error state.
fn is_in_error(adapter: &mut Client) -> bool {
    let Ok((queue_pairs, _)) = adapter.queue_pairs() else { return false };
    let is_asked_for =
        |why: &Option<String>| why.as_ref().is_none_or(|why| why.contains(BY_PROGRAM));
    let mut queue_pairs = queue_pairs.iter().peekable();
    queue_pairs.peek().is_some()
        && queue_pairs.all(|it| it.state == "error" && is_asked_for(&it.why))
}

/// So ends a queue pair that did not end by itself.
const BY_PROGRAM: &str = "by the application, with ibv_modify_qp";

/// What our library told of the queue pairs that ended by themselves: many programs never look. Who
/// was refused and came to a good end asked again.
fn told_in(stories: &Scratch) -> String {
    let told = fs::read_to_string(&stories.0).unwrap_or_default();
    let is_none = |line: &str| line.contains(BY_PROGRAM) || line.contains(" refused ");
    told.lines().filter(|line| !is_none(line)).collect::<Vec<_>>().join("\n")
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

fn run_in(guest: &Guest, line: &str, terms: Terms, [running, peer]: [&Running; 2]) -> Ended {
    let program = line.split(' ').next().unwrap_or(line);
    let patience = terms.patience;
    // There is no other there.
    running.has_library.store(true, Relaxed);
    thread::scope(|scope| {
        let seconds = patience.as_secs();
        let script = format!("timeout -s KILL {seconds} {line}");
        // The guest's own clock may be slow.
        let ended = scope.spawn(move || guest.shell_for(patience * 2, &script));
        let mut left: Option<Instant> = None;
        let is_left = |left: Option<Instant>| left.is_some_and(|since| since.elapsed() > FAREWELL);
        while !ended.is_finished() {
            if terms.may_be_left && peer.has_left() {
                left.get_or_insert_with(Instant::now);
            }
            if running.stop.load(Relaxed) || is_left(left) {
                let _ = guest.shell_for(QUESTION, &format!("kill -9 $(pidof {program})"));
                thread::sleep(Duration::from_millis(200));
            }
            thread::sleep(Duration::from_millis(20));
        }
        let ended = ended.join().map_err(|_| "the thread of the guest's program failed")?;
        ended.map_err(|why| match why.to_string() {
            why if !why.contains("exit status 137") => why,
            why if is_left(left) => format!("{LEFT}: {why}"),
            why if running.stop.load(Relaxed) => format!("{IN_VAIN}: {why}"),
            why => why,
        })
    })
}
