//! One host: an adapter with many queue pairs, which ask each other for everything there is.
//!
//! It says on standard error what is so, a line each, and is told on standard input what to do.

use std::collections::BTreeMap;
use std::io::BufRead as _;
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::time::{Duration, Instant as Clock};
use std::{fs, io, thread};

use roxe_verbs::connect::{self, Listener, Peer};
use roxe_verbs::{
    AckTimeout, AddressVector, Buffer, Completion, CompletionQueue, ConnectOptions, Context, Gid,
    Mtu, QKey, QueuePair, Remote, ServiceType, open,
};

use crate::checker::KERNEL_TX_DROPPED;
use crate::lane::Lane;
use crate::pattern::Numbers;
use crate::{Outcome, PATIENCE};

/// Where the first host waits for the second.
const MEET: &str = "192.0.2.1:18515";

const Q_KEY: QKey = QKey(0x50a4);

/// The queue pairs: service, path MTU and the longest message.
const LANES: [(ServiceType, Mtu, usize); 16] = {
    use ServiceType::{Rc, Uc, Ud};
    const MIB: usize = 1 << 20;
    [
        (Rc, Mtu::B4096, MIB),
        (Rc, Mtu::B4096, MIB),
        (Rc, Mtu::B4096, 1 << 16),
        (Rc, Mtu::B4096, 1 << 12),
        (Rc, Mtu::B2048, MIB),
        (Rc, Mtu::B2048, 1 << 16),
        (Rc, Mtu::B1024, MIB),
        (Rc, Mtu::B1024, 1 << 16),
        (Rc, Mtu::B1024, 1 << 12),
        (Rc, Mtu::B512, 1 << 16),
        (Rc, Mtu::B256, 1 << 16),
        (Rc, Mtu::B256, 1 << 10),
        (Uc, Mtu::B4096, 1 << 14),
        (Uc, Mtu::B1024, 1 << 14),
        (Ud, Mtu::B4096, 1 << 12),
        (Ud, Mtu::B4096, 1 << 8),
    ]
};

/// So many requests of reliable connections are completed between two rounds of messages that
/// nobody slows down.
const UNRELIABLE: u64 = 8;

pub(crate) fn run(side: &str, device: &str, seed: &str) -> Outcome {
    let seed: u64 = seed.parse()?;
    let context = open(device)?;
    eprintln!("{}", context.summary());
    let channel = context.create_comp_channel()?;
    let cq = context.create_cq_on(&channel, 1024)?;
    let listener = (side == "a").then(|| Listener::bind(MEET)).transpose()?;
    let mut lanes = BTreeMap::new();
    for (number, (service, path_mtu, longest)) in LANES.into_iter().enumerate() {
        // What each of the two says.
        let says =
            |first: bool| Numbers(seed ^ (2 * number as u64 + u64::from(first)) << 32).next();
        let first = listener.is_some();
        let says = [says(first), says(!first)];
        let lane = meet(&context, &cq, listener.as_ref(), (service, path_mtu, longest), says)?;
        lanes.insert(lane.qp.qpn().get(), lane);
    }
    eprintln!("ready");
    let told = words();
    if told.recv()? != "go" {
        return Err("told something else than to go".into());
    }
    Traffic { cq, lanes, messages: 0, bytes: 0, done: 0, due: 0 }.run(&told)?;
    for (name, value) in context.counters() {
        eprintln!("counter {name} {value}");
    }
    eprintln!("counter {KERNEL_TX_DROPPED} {}", kernel_tx_dropped()?);
    Ok(())
}

/// A queue pair that is connected with its peer.
fn meet(
    context: &Context,
    cq: &CompletionQueue,
    listener: Option<&Listener>,
    (service, path_mtu, longest): (ServiceType, Mtu, usize),
    says: [u64; 2],
) -> Outcome<Lane> {
    let memory = Buffer::new(Lane::memory_len(longest));
    let region = context.register(&memory)?;
    let qp = context.default_pd().create_qp(service, cq).build()?;
    // Nothing slows these down together, and a host that is busy otherwise may lose most of what
    // comes for a while, or not run at all: a peer is given up after two seconds.
    let timeout = AckTimeout::new(16).unwrap_or_default();
    let options = ConnectOptions { path_mtu, timeout, ..ConnectOptions::default() };
    match service {
        ServiceType::Ud => qp.ready(Q_KEY)?,
        _ => qp.init(options.access)?,
    }
    let lent = region.remote(0).to_bytes();
    let mut lane = Lane::new(qp, memory, region, longest, says)?;
    let peer: Peer = match listener {
        Some(listener) => listener.accept(&lane.qp, &options, &lent, PATIENCE)?,
        None => connect::connect(MEET, &lane.qp, &options, &lent, PATIENCE)?,
    };
    lane.peer = Remote::from_bytes(&peer.user).ok_or("the peer told no key")?;
    if service == ServiceType::Ud {
        let there = AddressVector::new(0, Gid::from_ip(peer.endpoint.address));
        let handle = context.default_pd().create_ah(&there)?;
        let target = handle.target(peer.endpoint.qpn, Q_KEY);
        lane.target = Some((handle, target));
    }
    tell_of(&lane.qp, &peer, path_mtu);
    Ok(lane)
}

/// What whoever reads the recording has to know of a queue pair.
fn tell_of(qp: &QueuePair, peer: &Peer, path_mtu: Mtu) {
    let (qpn, dest, psn) = (qp.qpn().get(), peer.endpoint.qpn.get(), peer.endpoint.psn.get());
    eprintln!("qp {qpn} {dest} {psn} {path_mtu}");
}

/// What the host is told, a word a line.
fn words() -> Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        for line in io::stdin().lock().lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

struct Traffic {
    cq: CompletionQueue,
    lanes: BTreeMap<u32, Lane>,
    /// What was verified.
    messages: u64,
    bytes: u64,
    /// Completions of reliable connections; with so many the next unreliable messages are due.
    done: u64,
    due: u64,
}

impl Traffic {
    /// Until it is told to report.
    fn run(&mut self, told: &Receiver<String>) -> Outcome {
        let (mut asks, mut drains) = (true, false);
        let mut spoken = Clock::now();
        loop {
            match told.try_recv() {
                Ok(word) if word == "report" => return Ok(()),
                // Both are done asking. What is still on its way is not waited for by anybody.
                Ok(word) if word == "quiet" => {
                    self.listen_for(Duration::from_millis(500))?;
                    eprintln!("drained");
                }
                Ok(_) => (asks, drains) = (false, true),
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => return Err("nobody tells what to do".into()),
            }
            if spoken.elapsed() >= Duration::from_secs(1) {
                spoken = Clock::now();
                eprintln!("progress {} {} {}", self.messages, self.bytes, rss_kib()?);
            }
            let unreliable = self.done >= self.due;
            if unreliable {
                self.due = self.done + UNRELIABLE;
            }
            for lane in self.lanes.values_mut().filter(|lane| asks && lane.is_idle()) {
                if unreliable || lane.qp.service() == ServiceType::Rc {
                    lane.ask()?;
                }
            }
            if drains && self.lanes.values().all(Lane::is_idle) {
                drains = false;
                eprintln!("drained");
            }
            self.take_or_wait()?;
        }
    }

    fn listen_for(&mut self, time: Duration) -> Outcome {
        let start = Clock::now();
        while start.elapsed() < time {
            self.take_or_wait()?;
        }
        Ok(())
    }

    /// Takes in what has completed, or sleeps until something does.
    fn take_or_wait(&mut self) -> Outcome {
        let mut room = [Completion::BLANK; 32];
        let mut found = self.cq.poll(&mut room);
        if found == 0 {
            if !self.cq.request_notify(false)? {
                let channel = self.cq.channel().ok_or("it was made with one")?;
                channel.wait(Duration::from_millis(100));
            }
            found = self.cq.poll(&mut room);
        }
        for completion in &room[..found] {
            let lane =
                self.lanes.get_mut(&completion.qpn.get()).ok_or("whose completion is it?")?;
            let (messages, bytes) = lane.completed(completion)?;
            self.messages += messages;
            self.bytes += bytes;
            self.done += u64::from(lane.qp.service() == ServiceType::Rc);
        }
        Ok(())
    }
}

/// Frames that the kernel took from this host and threw away before they reached the other: its end
/// of the cable holds only so many.
fn kernel_tx_dropped() -> Outcome<u64> {
    let text = fs::read_to_string("/proc/self/net/dev")?;
    let interfaces = text.lines().filter_map(|line| line.split_once(':'));
    let counters = interfaces.map(|(_, counters)| counters.split_whitespace().nth(TX_DROPPED));
    let counters = counters.map(|counter| counter.ok_or("a line of net/dev without tx drops"));
    counters.map(|counter| Ok(counter?.parse::<u64>()?)).sum()
}

/// Where it stands behind the name in a line of `/proc/self/net/dev`.
const TX_DROPPED: usize = 11;

/// Memory in use.
fn rss_kib() -> Outcome<u64> {
    let text = fs::read_to_string("/proc/self/status")?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}
