//! A process is killed at any moment: what the other side sees, and that nothing is left.
//!
//! `ROXE_KILLS=100` kills more often than the tests do by themselves, `ROXE_SEED` at other moments.

#![cfg(feature = "af_xdp")]

#[path = "../../net/tests/namespace/mod.rs"]
mod namespace;

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use namespace::{Cable, Namespace, is_root};
use roxe_verbs::af_xdp::Settings;
use roxe_verbs::connect::{self, Listener};
use roxe_verbs::{
    AckTimeout, Buffer, CompletionStatus, ConnectOptions, Connection, Context, Error, MemoryRegion,
    Op, QpState, Remote, Wait,
};
use rustix::process::{Pid, Signal, kill_process};

const PATIENCE: Duration = Duration::from_secs(30);
const WAIT: Wait = Wait(PATIENCE);

/// Where the peer waits for us, at its address.
const PORT: u16 = 18515;

/// What this program is to do when it is started once more, and with what.
const PART: &str = "ROXE_TEST_PART";

/// Requests on their way at the same time.
const DEPTH: u64 = 8;
const LEN: u32 = 1 << 16;

/// A peer that does not answer is given up after a quarter of a second.
fn hasty() -> ConnectOptions {
    ConnectOptions { timeout: AckTimeout::new(13).unwrap_or_default(), ..patient() }
}

fn patient() -> ConnectOptions {
    ConnectOptions::default()
}

/// The other processes of these tests: this program once more.
#[test]
fn a_part() {
    let Ok(part) = env::var(PART) else { return };
    match part.split_once(' ') {
        Some(("peer", interface)) => peer(interface),
        _ => hosts(),
    }
}

/// Starts a part in the namespace of this thread. It dies with this thread.
fn start(part: &str) -> Child {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(env::current_exe().unwrap());
    command.args(["--exact", "a_part", "--nocapture"]).env(PART, part);
    command.stdout(Stdio::piped()).spawn().expect("setpriv is there")
}

/// Answers, and asks without end.
fn peer(interface: &str) {
    let context = Context::open_xdp(interface, Settings::default()).unwrap();
    let memory = context.register(&Buffer::new(2 * LEN as usize)).unwrap();
    let mut connection = Connection::new(&context).unwrap();
    let listener = Listener::bind(("0.0.0.0", PORT)).unwrap();
    let lent = memory.remote(0).to_bytes();
    let met = listener.accept(connection.queue_pair(), &patient(), &lent, PATIENCE).unwrap();
    let there = Remote::from_bytes(&met.user).unwrap();
    // Who is killed sees no error; the one that goes when the test ends may.
    let _ = ask_until_it_ends(&mut connection, &memory, there);
}

/// Asks without end. Says how many requests are not completed, and what ended it.
fn ask_until_it_ends(
    connection: &mut Connection,
    memory: &MemoryRegion,
    Remote { va, r_key }: Remote,
) -> (u64, Error) {
    let (mut posted, mut done) = (0, 0);
    let place = u64::from(LEN);
    loop {
        while posted - done < DEPTH {
            let (operation, len) = match posted % 3 {
                0 => (Op::Write { va, r_key }, LEN),
                1 => (Op::Read { va, r_key }, LEN),
                _ => (Op::FetchAdd { va: va + place, r_key, add: 1 }, 8),
            };
            // The first that fails may have ended the queue pair already: it is still to be told.
            if connection.post(posted, operation, memory, place, len).is_err() {
                break;
            }
            posted += 1;
        }
        match connection.wait(WAIT) {
            Ok(_) => done += 1,
            Err(error) => return (posted - done - 1, error),
        }
    }
}

/// One end of the cable.
#[derive(Clone, Copy)]
struct Place<'a> {
    namespace: &'a Namespace,
    interface: &'a str,
    address: &'a str,
}

impl Place<'_> {
    fn open(self) -> Context {
        let open = || Context::open_xdp(self.interface, Settings::default());
        self.namespace.run(open).unwrap_or_else(|error| panic!("{}: {error}", self.interface))
    }

    fn has_program(self) -> bool {
        self.namespace.ip(&format!("link show {}", self.interface)).contains("xdp")
    }

    /// Runs something here while a peer is there.
    fn beside<R: Send>(self, there: Self, run: impl FnOnce(&mut Child) -> R + Send) -> R {
        there.namespace.run(|| {
            let mut peer = start(&format!("peer {}", there.interface));
            let result = self.namespace.run(|| run(&mut peer));
            let _ = peer.kill();
            peer.wait().expect("it is a child of ours");
            result
        })
    }
}

fn kill(peer: &Child) {
    let pid = Pid::from_child(peer);
    kill_process(pid, Signal::KILL).expect("nobody has waited for it yet");
}

/// Numbers that look like chance (SplitMix64).
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) % bound
    }
}

fn number(variable: &str, otherwise: u64) -> u64 {
    env::var(variable).map_or(otherwise, |value| value.parse().expect("a number"))
}

/// Either side, while it opens its adapter, connects or asks.
#[test]
fn who_survives_is_told_and_both_interfaces_are_free_at_once() {
    if !is_root() {
        return;
    }
    let cable = Cable::new(4200);
    let a = Place { namespace: &cable.a, interface: "va", address: "192.0.2.1" };
    let b = Place { namespace: &cable.b, interface: "vb", address: "192.0.2.2" };
    let mut chance = Chance(number("ROXE_SEED", 1));
    let kills = number("ROXE_KILLS", 10);
    let mut early = 0;
    for kill in 0..kills {
        let (here, there) = if kill % 2 == 0 { (a, b) } else { (b, a) };
        let survivor = here.open();
        let before = survivor.resources();
        // One of four does not get far.
        let asks = kill % 4 != 3;
        let delay = Duration::from_micros(chance.below(if asks { 50_000 } else { 60_000 }));
        let told = here.beside(there, |peer| survive(&survivor, there, peer, asks, delay));
        early += u64::from(!told);
        assert_eq!(survivor.resources(), before);
        let start = Instant::now();
        while there.has_program() {
            assert!(start.elapsed() < PATIENCE, "the program of who was killed stays attached");
        }
        // The same adapter here and a new process there, on the same interface.
        here.beside(there, |_| exchange(&survivor, there));
        drop(survivor);
        assert!(!here.has_program());
    }
    eprintln!("{kills} killed, {early} of them before they asked for anything");
}

/// Asks a peer that is killed after some time, from the beginning or once it is connected. Says
/// whether it was connected.
fn survive(
    context: &Context,
    there: Place<'_>,
    peer: &mut Child,
    asks: bool,
    delay: Duration,
) -> bool {
    let memory = context.register(&Buffer::new(2 * LEN as usize)).unwrap();
    let mut connection = Connection::new(context).unwrap();
    for wr_id in 0..3 {
        connection.post_receive(1000 + wr_id, &memory, 0, LEN).unwrap();
    }
    let killed = &*peer;
    thread::scope(|scope| {
        let murder = move || {
            thread::sleep(delay);
            kill(killed);
        };
        if !asks {
            scope.spawn(murder);
        }
        let patience = if asks { PATIENCE } else { Duration::from_millis(300) };
        let lent = memory.remote(0).to_bytes();
        let (at, qp) = ((there.address, PORT), connection.queue_pair());
        let met = match connect::connect(at, qp, &hasty(), &lent, patience) {
            Ok(met) => met,
            Err(error) => {
                assert!(!asks, "{error}");
                return false;
            }
        };
        if asks {
            scope.spawn(murder);
        }
        let there = Remote::from_bytes(&met.user).unwrap();
        let (left, error) = ask_until_it_ends(&mut connection, &memory, there);
        let Error::Completion { status: CompletionStatus::RetryExceeded, why, .. } = &error else {
            panic!("{error}");
        };
        assert!(why.starts_with("retry exceeded: ") && why.contains(" timed out 8 times"), "{why}");
        assert_eq!(&connection.why(), why);
        assert_eq!(connection.queue_pair().query().state, QpState::Error);
        for _ in 0..left + 3 {
            let error = connection.wait(WAIT).unwrap_err();
            let Error::Completion { status: CompletionStatus::Flushed, .. } = &error else {
                panic!("{error}");
            };
        }
        assert!(connection.try_next().is_none());
        true
    })
}

/// A message to a peer and back.
fn exchange(context: &Context, there: Place<'_>) {
    let buffer = Buffer::new(4 * LEN as usize);
    let memory = context.register(&buffer).unwrap();
    let mut connection = Connection::new(context).unwrap();
    let (at, qp) = ((there.address, PORT), connection.queue_pair());
    // The peer asks too, for what is behind our own.
    let lent = memory.remote(2 * u64::from(LEN)).to_bytes();
    let met = connect::connect(at, qp, &patient(), &lent, PATIENCE);
    let Remote { va, r_key } = Remote::from_bytes(&met.unwrap().user).unwrap();
    let data: Vec<u8> = (0..LEN).map(|at| (at * 7 % 251) as u8).collect();
    buffer.write(0, &data);
    connection.post(1, Op::Write { va, r_key }, &memory, 0, LEN).unwrap();
    connection.wait(WAIT).unwrap_or_else(|error| panic!("{error}"));
    buffer.write(0, &vec![0; LEN as usize]);
    connection.post(2, Op::Read { va, r_key }, &memory, 0, LEN).unwrap();
    connection.wait(WAIT).unwrap_or_else(|error| panic!("{error}"));
    let mut back = vec![0; LEN as usize];
    buffer.read(0, &mut back);
    assert!(back == data);
}

/// Two hosts with adapters that exchange messages, until somebody ends it.
fn hosts() {
    let cable = Cable::new(1500);
    let here = Place { namespace: &cable.a, interface: "va", address: "192.0.2.1" };
    let there = Place { namespace: &cable.b, interface: "vb", address: "192.0.2.2" };
    let context = here.open();
    here.beside(there, |peer| {
        let memory = context.register(&Buffer::new(2 * LEN as usize)).unwrap();
        let mut connection = Connection::new(&context).unwrap();
        let (at, qp) = ((there.address, PORT), connection.queue_pair());
        let lent = memory.remote(0).to_bytes();
        let met = connect::connect(at, qp, &patient(), &lent, PATIENCE).unwrap();
        let link = |path: &str| fs::read_link(path).unwrap().display().to_string();
        let namespaces = [peer.id().to_string(), "thread-self".to_owned()];
        let [one, other] = namespaces.map(|of| link(&format!("/proc/{of}/ns/net")));
        println!("\nasking {} {one} {other}", peer.id());
        ask_until_it_ends(&mut connection, &memory, Remote::from_bytes(&met.user).unwrap());
    });
}

/// A run that is killed leaves no process and no namespace, and so neither interface nor program.
#[test]
fn nothing_is_left_of_a_test_that_is_killed() {
    if !is_root() {
        return;
    }
    let mut test = start("hosts");
    let lines = BufReader::new(test.stdout.take().unwrap()).lines().map_while(Result::ok);
    let line = lines.into_iter().find_map(|line| line.strip_prefix("asking ").map(str::to_owned));
    let line = line.expect("it says when it asks");
    let [peer, namespaces @ ..] = &line.split(' ').collect::<Vec<_>>()[..] else {
        panic!("{line}")
    };
    assert!(!is_gone(peer));
    assert!(namespaces.len() == 2 && namespaces.iter().all(|it| is_used(it)), "{line}");
    kill(&test);
    test.wait().unwrap();
    let start = Instant::now();
    while !is_gone(peer) || namespaces.iter().any(|it| is_used(it)) {
        assert!(start.elapsed() < PATIENCE, "something is left of {line}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Whether a process has ended; whose child it is now may not have looked yet.
fn is_gone(process: &str) -> bool {
    let state = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    state.rsplit_once(')').is_none_or(|(_, rest)| rest.starts_with(" Z"))
}

/// Whether a process has the namespace, or holds it open.
fn is_used(namespace: &str) -> bool {
    let is = |path: std::path::PathBuf| {
        fs::read_link(path).is_ok_and(|target| target.display().to_string() == namespace)
    };
    let entries = |path: &std::path::Path| fs::read_dir(path).into_iter().flatten().flatten();
    entries("/proc".as_ref()).any(|process| {
        let path = process.path();
        let threads: Vec<_> = entries(&path.join("task")).collect();
        threads.iter().any(|thread| is(thread.path().join("ns/net")))
            || entries(&path.join("fd")).any(|fd| is(fd.path()))
    })
}
