//! What the AF_XDP port itself can do, between two network namespaces: the yardstick for all that
//! stands above it.
//!
//! `cargo run --release -p roxe-net --features af_xdp --example raw_pingpong [native|generic]`
//!
//! One thread on each side, on a core of its own where there are two. Throughput: payload is copied
//! from user memory into frames and from frames into user memory, with at most 128 packets on the
//! way; once with ICRCs as written and not checked, once sealed and checked. Round trips: a packet
//! there and back, by looking all the time and by sleeping; beside it the kernel's UDP sockets, as
//! other load moves both. Each line is the best of three runs.

use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant as Clock};

use roxe_net::af_xdp::{AfXdp, Mode, Settings};
use roxe_net::{FramePort, Outgoing, Seal};
use roxe_wire::{
    Body, FrameTemplate, Instant, IpPair, MacAddress, Path, Received, TrafficClass, icrc,
};
use rustix::thread::{CpuSet, sched_setaffinity};

#[path = "../tests/namespace/mod.rs"]
mod namespace;
use namespace::{Cable, is_root};

fn main() {
    if !is_root() {
        std::process::exit(3);
    }
    let mode = match std::env::args().nth(1).as_deref() {
        None | Some("native") => Mode::Native,
        Some("generic") => Mode::Generic,
        Some(other) => {
            eprintln!("there is no mode {other}; native and generic are");
            std::process::exit(2);
        }
    };
    let cable = Cable::new(4400);
    let settings = Settings { mode, ..Settings::default() };
    let open = |settings: Settings| {
        let mut ends = [(&cable.a, "va"), (&cable.b, "vb")].into_iter();
        std::array::from_fn(|_| {
            let (namespace, name) = ends.next().expect("there are two");
            namespace.run(|| AfXdp::open(name, settings)).unwrap_or_else(|error| {
                eprintln!("{error}");
                std::process::exit(3);
            })
        })
    };

    println!("{:<26} {:>6} {:>9} {:>9}", "payload copied in and out", "frame", "kpackets", "Gb/s");
    for seal in [Seal::AsWritten, Seal::Compute] {
        for mtu in [64, 1024, 2048, 4096] {
            let runs = (0..3).map(|_| throughput(open(settings), mtu, seal));
            let rate = runs.fold(0.0, f64::max);
            let frame = mtu + HEADERS;
            let what = if seal == Seal::Compute { "ICRC sealed and checked" } else { "no ICRC" };
            let bits = rate * frame as f64 * 8.0 / 1e9;
            println!("{what:<26} {frame:>6} {:>9.0} {bits:>9.2}", rate / 1e3);
        }
    }

    println!("\n{:<26} {:>6} {:>9} {:>9} {:>9}", "round trip, us", "frame", "least", "p50", "p99");
    for (what, spin) in [("looking", Duration::MAX), ("sleeping", Duration::ZERO)] {
        for payload in [0, 1024, 4096] {
            let settings = Settings { spin, ..settings };
            report(what, payload + HEADERS, || round_trips(open(settings), payload));
        }
        let kernel = format!("kernel UDP, {what}");
        report(&kernel, HEADERS, || kernel_round_trips(&cable, spin.is_zero()));
    }
}

/// Prints the best of three runs.
fn report(what: &str, frame: usize, run: impl Fn() -> Vec<Duration>) {
    let runs = (0..3).map(|_| run());
    let best = runs.min_by_key(|times| times[times.len() / 2]).expect("there are three");
    let at = |share: f64| best[(best.len() as f64 * share) as usize].as_nanos() as f64 / 1e3;
    println!("{what:<26} {frame:>6} {:>9.1} {:>9.1} {:>9.1}", at(0.0), at(0.5), at(0.99));
}

/// Packets a second that arrive.
fn throughput([mut from, mut to]: [AfXdp; 2], payload: usize, seal: Seal) -> f64 {
    let stop = AtomicBool::new(false);
    let arrived = AtomicU64::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            pin(0);
            let path = path();
            let region = vec![0x5a_u8; REGION];
            let len = payload + PACKET;
            let mut sent = 0_u64;
            while !stop.load(Ordering::Relaxed) {
                from.transmit(Instant::ZERO, &mut |room| {
                    if sent - arrived.load(Ordering::Relaxed) >= WINDOW {
                        return None;
                    }
                    let at = (sent as usize * payload) % (REGION - payload);
                    let payload = &region[at..at + payload];
                    room.first[..12].copy_from_slice(&BTH);
                    let (head, tail) = payload.split_at(payload.len().min(room.first.len() - 12));
                    room.first[12..12 + head.len()].copy_from_slice(head);
                    room.second[..tail.len()].copy_from_slice(tail);
                    sent += 1;
                    Some(Outgoing { path: &path, len, seal })
                });
            }
        });
        scope.spawn(|| {
            pin(1);
            let mut region = vec![0_u8; REGION];
            let mut count = 0_u64;
            while !stop.load(Ordering::Relaxed) {
                to.receive(Instant::ZERO, &mut |packet| {
                    let at = (count as usize * payload) % (REGION - payload);
                    take(&packet, &mut region[at..at + payload], seal);
                    count += 1;
                });
                arrived.store(count, Ordering::Relaxed);
            }
        });
        thread::sleep(WARM_UP);
        let (started, before) = (Clock::now(), arrived.load(Ordering::Relaxed));
        thread::sleep(RUN);
        let packets = arrived.load(Ordering::Relaxed) - before;
        let rate = packets as f64 / started.elapsed().as_secs_f64();
        stop.store(true, Ordering::Relaxed);
        rate
    })
}

/// Copies a payload out of a packet.
fn take(packet: &Received<'_>, payload: &mut [u8], seal: Seal) {
    let Body::Whole { first, second } = packet.body else { panic!("all bytes came") };
    let len = payload.len();
    let in_first = len.min(first.len() - 12);
    payload[..in_first].copy_from_slice(&first[12..12 + in_first]);
    payload[in_first..].copy_from_slice(&second[..len - in_first]);
    if seal == Seal::Compute {
        let cover = packet.cover.expect("AF_XDP shows all headers");
        icrc::check(&cover, packet.body).expect("its ICRC is right");
    }
}

/// The times of packets there and back, sorted.
fn round_trips([mut here, mut there]: [AfXdp; 2], payload: usize) -> Vec<Duration> {
    let stop = AtomicBool::new(false);
    let waker = there.waker();
    let mut times = thread::scope(|scope| {
        scope.spawn(|| {
            pin(1);
            while !stop.load(Ordering::Relaxed) {
                if receive(&mut there) > 0 {
                    send(&mut there, payload);
                } else {
                    there.wait(Duration::MAX);
                }
            }
        });
        pin(0);
        let round_trip = |_| {
            let started = Clock::now();
            send(&mut here, payload);
            while receive(&mut here) == 0 {
                here.wait(Duration::from_secs(1));
                if started.elapsed() > Duration::from_secs(1) {
                    eprintln!("no packet came back: {:?}", here.counters());
                    std::process::exit(1);
                }
            }
            started.elapsed()
        };
        let times: Vec<Duration> =
            (0..ROUND_TRIPS).map(round_trip).skip(ROUND_TRIPS / 10).collect();
        stop.store(true, Ordering::Relaxed);
        waker.wake();
        times
    });
    times.sort();
    times
}

/// The same through sockets of the kernel.
fn kernel_round_trips(cable: &Cable, sleeps: bool) -> Vec<Duration> {
    let bind = |namespace: &namespace::Namespace, address: &str| {
        namespace.run(|| UdpSocket::bind(address)).expect("the port is free")
    };
    let [here, there] = [bind(&cable.a, "192.0.2.1:5000"), bind(&cable.b, "192.0.2.2:5000")];
    here.connect("192.0.2.2:5000").expect("there is a route");
    there.connect("192.0.2.1:5000").expect("there is a route");
    for socket in [&here, &there] {
        socket.set_read_timeout(Some(Duration::from_secs(1))).expect("it can be set");
        socket.set_nonblocking(!sleeps).expect("it can be set");
    }
    let stop = AtomicBool::new(false);
    let mut times = thread::scope(|scope| {
        scope.spawn(|| {
            pin(1);
            let mut bytes = [0; PACKET];
            while !stop.load(Ordering::Relaxed) {
                if there.recv(&mut bytes).is_ok() {
                    there.send(&bytes).expect("it can be sent");
                }
            }
        });
        pin(0);
        let round_trip = |_| {
            let started = Clock::now();
            here.send(&[0; PACKET]).expect("it can be sent");
            while here.recv(&mut [0; PACKET]).is_err() {}
            started.elapsed()
        };
        let times: Vec<Duration> =
            (0..ROUND_TRIPS).map(round_trip).skip(ROUND_TRIPS / 10).collect();
        stop.store(true, Ordering::Relaxed);
        times
    });
    times.sort();
    times
}

fn send(port: &mut AfXdp, payload: usize) {
    let path = path();
    let mut outgoing = Some(Outgoing { path: &path, len: payload + PACKET, seal: Seal::Compute });
    port.transmit(Instant::ZERO, &mut |room| {
        room.first[..12].copy_from_slice(&BTH);
        outgoing.take()
    });
}

fn receive(port: &mut AfXdp) -> usize {
    port.receive(Instant::ZERO, &mut |packet| {
        let cover = packet.cover.expect("AF_XDP shows all headers");
        icrc::check(&cover, packet.body).expect("its ICRC is right");
    })
}

/// Where there is only one core, threads share it.
fn pin(core: usize) {
    let mut cores = CpuSet::new();
    cores.set(core);
    let _ = sched_setaffinity(None, &cores);
}

fn path() -> FrameTemplate {
    FrameTemplate::new(&Path {
        ethernet: (MacAddress([2, 0, 0, 0, 0, 0x0b]), MacAddress([2, 0, 0, 0, 0, 0x0a])),
        vlan: None,
        ip: IpPair::V4 { source: [192, 0, 2, 1].into(), destination: [192, 0, 2, 2].into() },
        traffic_class: TrafficClass(0),
        hop_limit: 64,
        flow_label: 0,
        source_port: 0xc000,
    })
}

/// UC SEND ONLY to queue pair 0x11.
const BTH: [u8; 12] = [0x24, 0x40, 0xff, 0xff, 0, 0, 0, 0x11, 0, 0, 0, 0];

/// BTH and ICRC.
const PACKET: usize = 16;
/// Those, and Ethernet, IPv4 and UDP before them.
const HEADERS: usize = 42 + PACKET;
/// Packets on the way at most: a veth drops when more than its ring of 256 wait, and nothing here
/// sends again.
const WINDOW: u64 = 128;
/// User memory, larger than the second-level cache.
const REGION: usize = 4 << 20;
const ROUND_TRIPS: usize = 20_000;
const WARM_UP: Duration = Duration::from_millis(200);
const RUN: Duration = Duration::from_millis(700);
