//! Two processes of `roxe` that speak with each other: over UDP sockets of one host, in a network
//! namespace of their own where that is allowed, or over AF_XDP between two.

#![allow(dead_code, reason = "each user takes what it needs")]

#[path = "../../crates/net/tests/namespace/mod.rs"]
pub(crate) mod namespace;

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use namespace::Namespace;

/// How a process ended.
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ended {
    fn new(output: &Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
        Self { code: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) }
    }

    /// It did what it was asked for, without a word of complaint.
    pub(crate) fn is_right(&self, what: &str) -> &Self {
        // Who only sends says that the other side looks; a busy machine may have made a pause.
        let notes = ["roxe: nothing was verified here", "roxe: nothing came for "];
        let is_note = |line: &&str| notes.iter().any(|note| line.starts_with(note));
        let said: Vec<&str> = self.err.lines().filter(|line| !is_note(line)).collect();
        assert_eq!((self.code, &said[..]), (Some(0), &[][..]), "{what}: {}", self.out);
        self
    }

    /// It complained in one sentence with these words, and ended so; a hint may be below.
    pub(crate) fn complains(&self, code: i32, words: &str) -> &Self {
        let is_hint = |line: &str| ["Are the ", "Does "].iter().any(|it| line.starts_with(it));
        let sentences = self.err.lines().filter(|line| !is_hint(line)).count();
        let told = (self.code, sentences, self.err.contains(words));
        assert_eq!(told, (Some(code), 1, true), "`{words}` is not in: {}{}", self.out, self.err);
        assert!(self.err.starts_with("roxe: "), "{}", self.err);
        self
    }
}

/// Where the two sides are.
pub(crate) struct Place {
    namespaces: Option<[Arc<Namespace>; 2]>,
    devices: [String; 2],
    /// The server's host, as the client names it.
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl Place {
    /// On one host, by UDP sockets: in a namespace, or where none can be made at addresses and a
    /// port that nobody else has.
    pub(crate) fn on_one_host() -> Self {
        let [_, b, c, d] = (std::process::id() * 16).to_be_bytes();
        let address = |which: u8| format!("udp:127.{}.{c}.{}", b & 0x7f, d | which);
        let (devices, host) = ([1, 2].map(address), "127.0.0.1".to_owned());
        if rustix::process::geteuid().is_root() {
            let namespace = Arc::new(Namespace::new());
            let namespaces = Some([Arc::clone(&namespace), namespace]);
            return Self { namespaces, devices, host, port: 18515 };
        }
        let port = TcpListener::bind("127.0.0.1:0").expect("a port is free").local_addr();
        let port = port.expect("it is bound").port();
        Self { namespaces: None, devices, host, port }
    }

    /// In two namespaces.
    pub(crate) fn joined(a: Namespace, b: Namespace, devices: [&str; 2], host: &str) -> Self {
        let devices = devices.map(str::to_owned);
        let namespaces = Some([a, b].map(Arc::new));
        Self { namespaces, devices, host: host.to_owned(), port: 18515 }
    }

    /// With other devices.
    pub(crate) fn with(mut self, devices: [&str; 2]) -> Self {
        self.devices = devices.map(str::to_owned);
        self
    }

    /// What is behind the device of a side.
    pub(crate) fn behind(mut self, which: usize, options: &str) -> Self {
        self.devices[which] += options;
        self
    }

    /// The device of a side.
    pub(crate) fn device(&self, which: usize) -> &str {
        &self.devices[which]
    }

    /// The address of the server's adapter.
    pub(crate) fn address(&self) -> &str {
        self.devices[0].strip_prefix("udp:").unwrap_or(&self.host)
    }

    /// Runs something where a side is.
    pub(crate) fn run<R: Send>(&self, which: usize, run: impl FnOnce() -> R + Send) -> R {
        match &self.namespaces {
            Some(namespaces) => namespaces[which].run(run),
            None => run(),
        }
    }

    /// Takes all addresses of a side's interface.
    pub(crate) fn strip_addresses(&self, which: usize) {
        let interface = self.devices[which].trim_start_matches("xdp:");
        self.ip(which, &format!("address flush dev {interface}"));
    }

    /// Runs `ip` where a side is.
    pub(crate) fn ip(&self, which: usize, words: &str) {
        let ip = || Command::new("ip").args(words.split_whitespace()).status();
        assert!(self.run(which, ip).expect("ip runs").success(), "ip {words}");
    }

    fn command(&self, device: &str, words: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_roxe"));
        command
            .args(words.split_whitespace())
            .args(["-d", device, "-p", &self.port.to_string()])
            .env_remove("ROXE_DEVICES")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Starts a server, and waits until it listens.
    pub(crate) fn server(&self, words: &str) -> Server {
        let child =
            self.run(0, || self.command(&self.devices[0], words).spawn()).expect("roxe runs");
        let mut server = Server { child: Some(child) };
        let start = Instant::now();
        while !self.is_listening(server.child().id()) {
            let ended = server.child().try_wait().expect("it can be waited for");
            assert!(ended.is_none(), "the server ended: {}", server.end().err);
            assert!(start.elapsed() < LONG, "the server does not listen");
            thread::sleep(Duration::from_millis(5));
        }
        server
    }

    /// Starts a server that says on standard error when it listens, and waits for that.
    pub(crate) fn server_that_says_so(&self, words: &str) -> Server {
        let child =
            self.run(0, || self.command(&self.devices[0], words).spawn()).expect("roxe runs");
        let mut server = Server { child: Some(child) };
        let said = server.child().stderr.as_mut().expect("it is a pipe");
        let (mut line, mut byte) = (Vec::new(), [0]);
        while said.read(&mut byte).expect("it can be read") == 1 && byte != *b"\n" {
            line.extend(byte);
        }
        let line = String::from_utf8_lossy(&line).into_owned();
        if !line.starts_with("roxe: listens at ") {
            panic!("the server does not listen: {line}{}", server.end().err);
        }
        server
    }

    /// Whether a process' network has a listener at our port, without disturbing it.
    fn is_listening(&self, process: u32) -> bool {
        ["tcp", "tcp6"].iter().any(|table| {
            let text = fs::read_to_string(format!("/proc/{process}/net/{table}"));
            let port = format!(":{:04X}", self.port);
            text.unwrap_or_default().lines().any(|line| {
                let mut words = line.split_whitespace().skip(1);
                let local = words.next().is_some_and(|local| local.ends_with(&port));
                local && words.nth(1) == Some("0A")
            })
        })
    }

    /// Runs a client to its end.
    pub(crate) fn client(&self, words: &str) -> Ended {
        self.client_that_knows(&format!("{words} {}", self.host))
    }

    /// Runs one that is told by its words who the server is.
    pub(crate) fn client_that_knows(&self, words: &str) -> Ended {
        let output =
            self.run(1, || self.command(&self.devices[1], words).output()).expect("roxe runs");
        Ended::new(&output)
    }

    /// Runs one that may have so many open files.
    pub(crate) fn limited_client(&self, files: usize, words: &str) -> Ended {
        let client = self.command(&self.devices[1], &format!("{words} {}", self.host));
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("ulimit -n {files}; exec \"$0\" \"$@\"")]);
        shell.arg(client.get_program()).args(client.get_args());
        shell.env_remove("ROXE_DEVICES").stdin(Stdio::null());
        Ended::new(&self.run(1, || shell.output()).expect("sh runs"))
    }

    /// Starts a client.
    pub(crate) fn started_client(&self, words: &str) -> Server {
        let words = format!("{words} {}", self.host);
        let child = self.run(1, || self.command(&self.devices[1], &words).spawn());
        Server { child: Some(child.expect("roxe runs")) }
    }

    /// Runs one that ends by itself where the server is, with another device.
    pub(crate) fn beside_the_server(&self, words: &str, device: &str) -> Ended {
        let output = self.run(0, || self.command(device, words).output()).expect("roxe runs");
        Ended::new(&output)
    }

    /// Runs both sides; the server first in what is given back.
    pub(crate) fn both(&self, words: &str) -> [Ended; 2] {
        self.each([words, words])
    }

    /// Runs both sides, each with its own words.
    pub(crate) fn each(&self, [server, client]: [impl AsRef<str>; 2]) -> [Ended; 2] {
        let mut server = self.server(server.as_ref());
        let client = self.client(client.as_ref());
        [server.end(), client]
    }

    /// Connects to the server.
    pub(crate) fn stranger(&self) -> TcpStream {
        let address = (self.host.as_str(), self.port);
        self.run(1, || TcpStream::connect(address)).expect("it listens")
    }

    /// Listens where a client looks for a server.
    pub(crate) fn listener(&self) -> TcpListener {
        let address = (self.host.as_str(), self.port);
        self.run(0, || TcpListener::bind(address)).expect("the port is free")
    }
}

const LONG: Duration = Duration::from_secs(30);

/// A process that runs; it ends with whoever started it.
pub(crate) struct Server {
    child: Option<Child>,
}

impl Server {
    fn child(&mut self) -> &mut Child {
        self.child.as_mut().expect("it has not ended")
    }

    /// Waits for its end.
    pub(crate) fn end(&mut self) -> Ended {
        let child = self.child.take().expect("it has not ended");
        Ended::new(&child.wait_with_output().expect("it can be waited for"))
    }

    /// Whether it has not ended.
    pub(crate) fn is_running(&mut self) -> bool {
        self.child().try_wait().expect("it can be waited for").is_none()
    }

    /// Stops it for so long.
    pub(crate) fn pause(&mut self, time: Duration) {
        let pid = rustix::process::Pid::from_child(self.child());
        let signal = |signal| rustix::process::kill_process(pid, signal).expect("it runs");
        signal(rustix::process::Signal::STOP);
        thread::sleep(time);
        signal(rustix::process::Signal::CONT);
    }

    /// Ends it at once.
    pub(crate) fn kill(mut self) {
        let child = self.child();
        child.kill().and_then(|()| child.wait()).expect("it is ours");
        self.child = None;
    }

    /// Waits until it printed a line with these words.
    pub(crate) fn says(&mut self, words: &str) {
        let mut out = BufReader::new(self.child().stdout.take().expect("piped"));
        let mut line = String::new();
        while !line.contains(words) {
            line.clear();
            assert!(out.read_line(&mut line).expect("text") > 0, "it never says {words}");
        }
        // Whatever it prints later goes nowhere, and stops it nowhere.
        thread::spawn(move || out.read_to_end(&mut Vec::new()));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
