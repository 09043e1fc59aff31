//! Two hosts, and how programs run on them.

use std::fs;
use std::io::Read as _;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::namespace::{Cable, Namespace};

/// Two hosts joined by a cable, each with an adapter.
pub(crate) struct Hosts {
    pub(crate) cable: Cable,
    /// Device strings of the server's adapter and the client's.
    pub(crate) devices: [String; 2],
}

/// A program that is ended when nobody wants it any more.
pub(crate) struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Hosts {
    /// With adapters of this kind and these options.
    pub(crate) fn new(port: &str, options: &str) -> Self {
        let (kind, places) = match port {
            "xdp" => ("xdp", ["va", "vb"]),
            "udp" => ("udp", ["192.0.2.1", "192.0.2.2"]),
            "udp over IPv6" => ("udp", ["fd00::1", "fd00::2"]),
            other => panic!("no port {other}"),
        };
        let devices = places.map(|place| format!("{kind}:{place}{options}"));
        Self { cable: Cable::new(4500), devices }
    }

    /// Runs a program as server and as client; says what it printed where it went wrong. On a busy
    /// machine a host may not come to answer within the half a second that programs give it: each
    /// has three goes.
    pub(crate) fn pair(&self, program: &str, arguments: &str) -> Result<(), String> {
        let mut last = Ok(());
        for _ in 0..3 {
            last = self.try_pair(program, arguments);
            if last.is_ok() {
                break;
            }
        }
        last
    }

    fn try_pair(&self, program: &str, arguments: &str) -> Result<(), String> {
        let mut server = self.server(program, arguments);
        let mut command = program_on(program, arguments, &self.devices[1]);
        command.arg(SERVER).stdout(Stdio::piped()).stderr(Stdio::piped());
        let client = self.cable.b.run(|| command.spawn()).map_err(|error| error.to_string())?;
        let mut client = Running(client);
        let [client, server] = [("client", &mut client), ("server", &mut server)]
            .map(|(side, running)| end_of(side, running));
        client.and(server)
    }

    /// Starts a server, and waits until clients may come.
    pub(crate) fn server(&self, program: &str, arguments: &str) -> Running {
        let mut command = program_on(program, arguments, &self.devices[0]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let server = self.cable.a.run(|| command.spawn());
        let mut server = Running(server.unwrap_or_else(|error| {
            panic!("{program} (apt-get install ibverbs-utils perftest): {error}")
        }));
        let deadline = Instant::now() + PATIENCE;
        while !listens(&self.cable.a) && Instant::now() < deadline {
            if server.0.try_wait().is_ok_and(|ended| ended.is_some()) {
                break; // What it said comes to light at its end.
            }
            thread::sleep(Duration::from_millis(5));
        }
        server
    }

    /// Runs a program of one side to its end.
    pub(crate) fn alone(&self, program: &str, arguments: &str, devices: &str) -> Output {
        let mut command = program_on(program, arguments, devices);
        self.cable.a.run(|| command.output()).expect("apt-get install ibverbs-utils")
    }
}

/// A program with our library and these adapters.
pub(crate) fn program_on(program: &str, arguments: &str, devices: &str) -> Command {
    let mut command = Command::new(program);
    command
        .args(arguments.split_whitespace())
        .env("LD_LIBRARY_PATH", libraries())
        .env("ROXE_DEVICES", devices)
        .stdin(Stdio::null());
    command
}

/// The folder that the build of the library made.
fn libraries() -> PathBuf {
    let test = std::env::current_exe().expect("a program knows where it is");
    let folder = test.ancestors().nth(2).expect("it is in target/PROFILE/deps").join("lib");
    let library = folder.join("libibverbs.so.1");
    assert!(library.exists(), "{} is missing: cargo build -p roxe-ibverbs", library.display());
    folder
}

/// Whether somebody waits where perftest and ibv_*_pingpong meet.
fn listens(namespace: &Namespace) -> bool {
    const PORT_18515: &str = ":4853 ";
    const LISTENS: &str = " 0A ";
    let is_it = |line: &str| line.contains(PORT_18515) && line.contains(LISTENS);
    namespace.run(|| {
        ["tcp", "tcp6"].iter().any(|table| {
            let table = fs::read_to_string(format!("/proc/thread-self/net/{table}"));
            table.is_ok_and(|table| table.lines().any(is_it))
        })
    })
}

/// How a program ended; says what it printed unless it ended well.
fn end_of(side: &str, Running(child): &mut Running) -> Result<(), String> {
    let mut pipes = [
        child.stdout.take().map(|pipe| Box::new(pipe) as Box<dyn std::io::Read + Send>),
        child.stderr.take().map(|pipe| Box::new(pipe) as Box<dyn std::io::Read + Send>),
    ];
    let readers = pipes.each_mut().map(|pipe| {
        let mut pipe = pipe.take().expect("it was piped");
        thread::spawn(move || {
            let mut text = String::new();
            let _ = pipe.read_to_string(&mut text);
            text
        })
    });
    let deadline = Instant::now() + PATIENCE;
    let status = loop {
        match child.try_wait().map_err(|error| error.to_string())? {
            Some(status) => break Some(status),
            None if Instant::now() > deadline => break None,
            None => thread::sleep(Duration::from_millis(5)),
        }
    };
    if status.is_none() {
        let _ = child.kill();
    }
    let said = readers.map(|reader| reader.join().unwrap_or_default()).concat();
    match status {
        Some(status) if status.success() => Ok(()),
        Some(status) => Err(format!("the {side} ended with {status}: {said}")),
        None => Err(format!("the {side} did not end: {said}")),
    }
}

/// The server's address.
const SERVER: &str = "192.0.2.1";

/// Whatever takes longer does not come.
const PATIENCE: Duration = Duration::from_secs(60);
