//! Programs of rdma-core and perftest, as the distribution has them, that find each other by
//! librdmacm.so.1: one host each side, in network namespaces joined by a cable.

#[path = "../../net/tests/namespace/mod.rs"]
mod namespace;

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use namespace::{Cable, is_root};

/// When a server ends by itself.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ends {
    /// With its client.
    WithClient,
    /// Never.
    Never,
}
use Ends::{Never, WithClient};

/// What the server is asked for, what the client, and when the server ends.
struct Case(&'static str, &'static str, Ends);

#[rustfmt::skip]
const CASES: &[Case] = &[
    Case("rping -s -v -C 100 -a 192.0.2.1",    "rping -c -v -C 100 -a 192.0.2.1",    WithClient),
    Case("rping -s -v -q -C 10 -a 192.0.2.1",  "rping -c -v -q -C 10 -a 192.0.2.1",  WithClient),
    Case("rping -s -v -P -a 192.0.2.1",        "rping -c -v -C 10 -a 192.0.2.1",     Never),
    Case("ucmatose -b 192.0.2.1 -c 5",         "ucmatose -s 192.0.2.1 -c 5",         WithClient),
    Case("ucmatose -m",                        "ucmatose -s 192.0.2.1 -m",           WithClient),
    Case("udaddy -b 192.0.2.1",                "udaddy -s 192.0.2.1",                WithClient),
    Case("rdma_server",                        "rdma_client -s 192.0.2.1",           WithClient),
    Case("cmtime -b 192.0.2.1 -c 500",         "cmtime -s 192.0.2.1 -c 500",         Never),
    Case("ib_write_bw -R -n 100",              "ib_write_bw -R -n 100 192.0.2.1",    WithClient),
    Case("ib_send_lat -R -n 100",              "ib_send_lat -R -n 100 192.0.2.1",    WithClient),
];

/// Groups are what a socket has not.
const GROUP: Case =
    Case("mckey -m 239.1.1.1 -b 192.0.2.1", "mckey -s -m 239.1.1.1 -b 192.0.2.2", WithClient);

#[test]
fn programs_meet_over_af_xdp() {
    if is_root() {
        let hosts = Hosts::new(["xdp:va", "xdp:vb"]);
        CASES.iter().chain([&GROUP]).for_each(|case| hosts.meet(case));
    }
}

#[test]
fn programs_meet_over_udp_sockets() {
    if is_root() {
        let hosts = Hosts::new(["udp:192.0.2.1", "udp:192.0.2.2"]);
        CASES.iter().for_each(|case| hosts.meet(case));
    }
}

#[test]
fn programs_meet_on_a_bad_network() {
    if is_root() {
        let hosts = Hosts::new(["xdp:va", "xdp:vb,fault=drop 1%; dup 1%; reorder 1% by 3"]);
        hosts.meet(&CASES[0]);
    }
}

/// Two hosts joined by a cable, each with an adapter.
struct Hosts {
    cable: Cable,
    devices: [&'static str; 2],
}

/// A program that is ended when nobody wants it any more.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Hosts {
    fn new(devices: [&'static str; 2]) -> Self {
        Self { cable: Cable::new(4500), devices }
    }

    /// Runs both sides. Nothing tells when a server of the RDMA CM listens: where a client comes
    /// too early and is refused, both begin again, and it waits longer.
    fn meet(&self, case: &Case) {
        let end = Instant::now() + PATIENCE;
        let mut head_start = Duration::from_millis(200);
        while let Err(why) = self.try_to_meet(case, head_start) {
            assert!(Instant::now() < end, "{why}");
            head_start *= 2;
        }
    }

    fn try_to_meet(
        &self,
        Case(server, client, ends): &Case,
        head_start: Duration,
    ) -> Result<(), String> {
        let mut running = self.start(0, server);
        thread::sleep(head_start);
        let deadline = Instant::now() + PATIENCE / 2;
        loop {
            said(self.start(1, client), deadline).map_err(|why| format!("{client}: {why}"))?;
            if *ends == Never {
                return Ok(());
            }
            // A group has no connection that could be refused: until somebody has heard it.
            let ended = running.0.try_wait().expect("it can be waited for").is_some();
            if ended || !client.starts_with("mckey") {
                return said(running, deadline).map_err(|why| format!("{server}: {why}"));
            }
        }
    }

    fn start(&self, side: usize, line: &str) -> Running {
        let mut words = line.split_whitespace();
        let program = words.next().expect("a program");
        let mut command = Command::new(program);
        command
            .args(words)
            .env("LD_LIBRARY_PATH", libraries())
            .env("ROXE_DEVICES", self.devices[side])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let host = [&self.cable.a, &self.cable.b][side];
        let child = host.run(|| command.spawn());
        Running(child.unwrap_or_else(|error| {
            panic!("{program} (apt-get install rdmacm-utils perftest): {error}")
        }))
    }
}

/// How a program ended; says what it printed unless it ended well.
fn said(mut running: Running, deadline: Instant) -> Result<(), String> {
    let child = &mut running.0;
    let out = reader(child.stdout.take());
    let err = reader(child.stderr.take());
    let status = loop {
        match child.try_wait().expect("it can be waited for") {
            Some(status) => break Some(status),
            None if Instant::now() > deadline => break None,
            None => thread::sleep(Duration::from_millis(5)),
        }
    };
    if status.is_none() {
        let _ = child.kill();
    }
    let text = [out, err].map(|reader| reader.join().unwrap_or_default()).concat();
    match status {
        Some(status) if status.success() => Ok(()),
        Some(status) => Err(format!("ended with {status}: {text}")),
        None => Err(format!("did not end: {text}")),
    }
}

fn reader(pipe: Option<impl std::io::Read + Send + 'static>) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        pipe.and_then(|pipe| std::io::read_to_string(pipe).ok()).unwrap_or_default()
    })
}

/// The folder that the build of the library made.
fn libraries() -> PathBuf {
    let test = std::env::current_exe().expect("a program knows where it is");
    let folder = test.ancestors().nth(2).expect("it is in target/PROFILE/deps").join("lib");
    let library = folder.join("librdmacm.so.1");
    assert!(library.exists(), "{} is missing: cargo build -p roxe-ibverbs", library.display());
    folder
}

/// Whatever takes longer does not come.
const PATIENCE: Duration = Duration::from_secs(90);
