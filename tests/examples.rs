//! The examples print what their first lines say, in one process and on several hosts.

#[path = "../crates/net/tests/namespace/mod.rs"]
mod namespace;

use std::io::{BufRead as _, BufReader};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use namespace::{Cable, Namespace, is_root};

/// An example, as built beside the tests.
fn program(name: &str) -> PathBuf {
    let roxe = PathBuf::from(env!("CARGO_BIN_EXE_roxe"));
    roxe.with_file_name("examples").join(name)
}

/// Four namespaces, a bridge that marks, and all that two senders sent: 24 KiB each, 256 a packet.
#[test]
fn two_senders_over_the_kernel_are_recorded() {
    if !is_root() {
        return;
    }
    let folder = std::env::temp_dir().join(format!("roxe-two-senders-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let file = folder.join("two.pcapng");
    let lab = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/labs/two-senders.toml");
    let path = file.to_str().expect("text");
    printed(start("kernel_congestion", &[lab, "--capture", path]));
    let check = Command::new(env!("CARGO_BIN_EXE_roxe")).arg("check").arg(&file).output();
    let explain = Command::new(env!("CARGO_BIN_EXE_roxe")).arg("explain").arg(&file).output();
    std::fs::remove_dir_all(&folder).expect("it is ours");
    assert!(check.expect("roxe runs").status.success());
    let text = String::from_utf8(explain.expect("roxe runs").stdout).expect("text");
    assert_eq!(text.matches("ends message 12 ").count(), 2, "{text}");
    assert_eq!(text.matches(", 12 WRITE, 24576 B").count(), 2, "{text}");
}

/// Starts an example that ends with the thread that started it.
fn start(name: &str, arguments: &[&str]) -> Child {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(program(name)).args(arguments);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts")
}

/// What an example printed, when it has ended as it should.
fn printed(child: Child) -> String {
    let output = child.wait_with_output().expect("it is a child of ours");
    let [said, complained] =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).expect("text"));
    assert!(output.status.success(), "{}: {said}{complained}", output.status);
    said
}

/// What an example's first lines say that it prints.
fn expected(source: &str) -> String {
    let lines = source.lines().map(|line| line.trim_start_matches("//! ").to_owned() + "\n");
    let block = lines.skip_while(|line| line != "```text\n").skip(2);
    block.take_while(|line| line != "```\n").collect()
}

/// The lines that begin so.
fn of(who: &str, lines: &str) -> String {
    lines.lines().filter(|line| line.starts_with(who)).map(|line| line.to_owned() + "\n").collect()
}

const HELLO: &str = include_str!("../examples/hello.rs");
const WRITE_READ: &str = include_str!("../examples/write_read.rs");
const COUNTER: &str = include_str!("../examples/counter.rs");
const KEY_VALUE: &str = include_str!("../examples/key_value/main.rs");
const ALL_REDUCE: &str = include_str!("../examples/all_reduce.rs");

#[test]
fn each_example_prints_what_its_first_lines_say() {
    for (name, source) in [
        ("hello", HELLO),
        ("write_read", WRITE_READ),
        ("counter", COUNTER),
        ("key_value", KEY_VALUE),
        ("all_reduce", ALL_REDUCE),
    ] {
        let said = printed(start(name, &[]));
        assert_eq!(said, expected(source), "{name}");
        assert_eq!(said.lines().count(), expected(source).lines().count());
    }
}

/// A number of ranks that the vector cannot be cut by, and those that there cannot be.
#[test]
fn any_number_of_ranks_adds_up_all_numbers() {
    for ranks in [2, 3, 7] {
        let said = printed(start("all_reduce", &[&ranks.to_string()]));
        let right = format!(" of {ranks}: 65536 numbers, all of them the sum of {ranks} ranks, ");
        assert_eq!(said.matches(&right).count(), ranks, "{said}");
    }
    for arguments in [&["1"][..], &["0"], &["0", "memory:x", "127.0.0.1"]] {
        let output = start("all_reduce", arguments).wait_with_output().expect("it ends");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains("for 2 or more"), "{said}");
    }
}

/// Strangers who hold all that the server can have do not end it.
#[test]
fn a_server_without_room_for_more_goes_on() {
    if !is_root() {
        return;
    }
    Namespace::new().run(|| {
        let mut server = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--", "prlimit", "--nofile=40", "--"])
            .arg(program("key_value"))
            .args(["server", "udp:127.0.0.1"])
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        let connect = || TcpStream::connect("127.0.0.1:18515");
        while connect().is_err() {
            assert!(server.try_wait().expect("it is ours").is_none());
        }
        let strangers: Vec<_> = (0..60).map(|_| connect().expect("it listens")).collect();
        let mut told = BufReader::new(server.stderr.take().expect("piped")).lines();
        assert!(told.any(|line| line.is_ok_and(|line| line.contains("is not served"))));
        drop(strangers);
        let put = ["put", "udp:127.0.0.2", "127.0.0.1", "a", "b"];
        // Those before it go one after the other.
        while !start("key_value", &put).wait().expect("it ends").success() {}
        assert_eq!(printed(start("key_value", &["get", put[1], put[2], "a"])), "b\n");
        server.kill().and_then(|()| server.wait()).expect("it went on");
    });
}

#[test]
fn an_example_is_no_longer_than_a_lecture_has_time_for() {
    for source in [HELLO, WRITE_READ, COUNTER, KEY_VALUE, ALL_REDUCE] {
        assert!(source.lines().count() <= 150);
        assert!(expected(source).lines().count() >= 2);
    }
}

/// Client and server on two hosts, over AF_XDP and over UDP sockets.
#[test]
fn two_hosts_print_the_same() {
    if !is_root() {
        return;
    }
    for (server, client) in [("xdp:vb", "xdp:va"), ("udp:192.0.2.2", "udp:192.0.2.1")] {
        for (name, source) in [("hello", HELLO), ("write_read", WRITE_READ)] {
            let cable = Cable::new(4200);
            let (served, asked) = cable.b.run(|| {
                let serving = start(name, &["server", server]);
                let asked = cable.a.run(|| printed(start(name, &["client", client, "192.0.2.2"])));
                (printed(serving), asked)
            });
            assert_eq!(served, of("server", &expected(source)), "{server}");
            assert_eq!(asked, of("client", &expected(source)), "{server}");
        }
    }
}

#[test]
fn a_key_value_store_serves_another_host() {
    if !is_root() {
        return;
    }
    let cable = Cable::new(4200);
    cable.b.run(|| {
        let mut serving = start("key_value", &["server", "xdp:vb"]);
        let ask = |words: &[&str]| {
            let [request, rest @ ..] = words else { panic!("a request") };
            let words = [&[*request, "xdp:va", "192.0.2.2"], rest].concat();
            cable.a.run(|| printed(start("key_value", &words)))
        };
        ask(&["put", "planet", "earth"]);
        ask(&["put", "moon", "luna"]);
        assert_eq!(ask(&["get", "planet"]), "earth\n");
        assert_eq!(ask(&["get", "moon"]), "luna\n");
        serving.kill().expect("it runs");
        serving.wait().expect("it ends");
    });
}

/// Strangers who say nothing, however many, do not stop a server.
#[test]
fn a_key_value_store_serves_while_strangers_say_nothing() {
    if !is_root() {
        return;
    }
    let cable = Cable::new(4200);
    cable.b.run(|| {
        let mut serving = start("key_value", &["server", "xdp:vb"]);
        let ask = |words: &[&str]| {
            let [request, rest @ ..] = words else { panic!("a request") };
            let words = [&[*request, "xdp:va", "192.0.2.2"], rest].concat();
            cable.a.run(|| printed(start("key_value", &words)))
        };
        ask(&["put", "planet", "earth"]);
        let call = || TcpStream::connect("192.0.2.2:18515").expect("it listens");
        let _strangers = cable.a.run(|| [(); 20].map(|()| call()));
        // Each would take all the patience that the client has.
        assert_eq!(ask(&["get", "planet"]), "earth\n");
        serving.kill().expect("it runs");
        serving.wait().expect("it ends");
    });
}

/// What is wrong is said in words, not in a programming language.
#[test]
fn an_example_that_fails_says_why_in_a_sentence() {
    let client = ["client", "tap:x", "127.0.0.1"];
    let cases: [(&str, &[&str]); 5] = [
        ("hello", &client),
        ("write_read", &client),
        ("counter", &client),
        ("key_value", &["get", "tap:x", "127.0.0.1", "key"]),
        ("all_reduce", &["0", "tap:x", "127.0.0.1", "127.0.0.2"]),
    ];
    for (name, words) in cases {
        for (words, why) in [(words, "device `tap:x`: `tap` is none of"), (&["what"], "usage: ")] {
            let output = start(name, words).wait_with_output().expect("it is a child of ours");
            let said = String::from_utf8(output.stderr).expect("text");
            assert_eq!(output.status.code(), Some(1), "{name} {words:?}");
            assert!(said.starts_with(&format!("{name}: {why}")), "{said}");
        }
    }
}

/// Four clients and a server, each on a host of its own at one switch.
#[test]
fn four_hosts_draw_from_one_counter() {
    if !is_root() {
        return;
    }
    let hosts = Hosts::<5>::new();
    let server = hosts.on(0, || {
        let serving = start("counter", &["server", "xdp:eth1"]);
        std::thread::scope(|scope| {
            for number in 1..5 {
                let client = || printed(start("counter", &["client", "xdp:eth1", "192.0.2.1"]));
                let hosts = &hosts;
                scope.spawn(move || assert_eq!(hosts.on(number, client), ""));
            }
        });
        printed(serving)
    });
    assert_eq!(server, expected(COUNTER));
}

#[test]
fn four_hosts_add_up_their_vectors_in_a_ring() {
    if !is_root() {
        return;
    }
    let hosts = Hosts::<4>::new();
    let said: String = std::thread::scope(|scope| {
        let ranks = std::array::from_fn::<_, 4, _>(|rank| {
            let hosts = &hosts;
            scope.spawn(move || {
                let number = rank.to_string();
                let ring = ["192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4"];
                let words = [&[number.as_str(), "xdp:eth1"], &ring[..]].concat();
                hosts.on(rank, || printed(start("all_reduce", &words)))
            })
        });
        ranks.into_iter().map(|rank| rank.join().expect("it does not panic")).collect()
    });
    assert_eq!(said, expected(ALL_REDUCE));
}

/// Hosts at one switch: interface `eth1` in each, addresses 192.0.2.1 and on.
struct Hosts<const N: usize> {
    hosts: [Namespace; N],
    _switch: Namespace,
}

impl<const N: usize> Hosts<N> {
    fn new() -> Self {
        let (switch, hosts) = (Namespace::new(), [(); N].map(|()| Namespace::new()));
        switch.ip("link add name switch type bridge");
        switch.ip("link set switch mtu 4200 up");
        for (host, number) in hosts.iter().zip(1..) {
            let netns = host.path();
            switch.ip(&format!(
                "link add port{number} mtu 4200 type veth peer name eth1 mtu 4200 netns {netns}"
            ));
            switch.ip(&format!("link set port{number} master switch up"));
            host.ip(&format!("address add 192.0.2.{number}/24 dev eth1"));
            host.ip("link set eth1 up");
        }
        Self { hosts, _switch: switch }
    }

    fn on<R: Send>(&self, number: usize, run: impl FnOnce() -> R + Send) -> R {
        self.hosts[number].run(run)
    }
}
