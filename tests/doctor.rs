//! `roxe doctor` from outside, in network namespaces with faults made for it.
//!
//! Needs root and iproute2; a run by anybody else prints so.

#[path = "../crates/net/tests/namespace/mod.rs"]
mod namespace;

use std::net::UdpSocket;
use std::process::{Command, Output};

use namespace::{Cable, Namespace, is_root};
use roxe::verbs::{Context, af_xdp};

fn run(namespace: &Namespace, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_roxe"));
    command.arg("doctor").args(arguments).env_remove("ROXE_DEVICES").env_remove("ROXE_CONFIG");
    namespace.run(|| command.output()).expect("roxe runs")
}

/// Exit status, and level, finding and advice of a check.
fn check(namespace: &Namespace, what: &str, arguments: &[&str]) -> (i32, [String; 3]) {
    let output = run(namespace, &[&["--json"], arguments].concat());
    let text = String::from_utf8(output.stdout).expect("text");
    let objects = text.lines().map(|line| serde_json::from_str(line).expect("JSON"));
    let objects: Vec<serde_json::Value> = objects.collect();
    let found = objects.iter().find(|it| it["check"] == what);
    let found = found.unwrap_or_else(|| panic!("no {what} in {text}"));
    let of = |name: &str| found[name].as_str().unwrap_or_default().to_owned();
    (output.status.code().expect("it ends"), ["level", "found", "advice"].map(of))
}

#[test]
fn a_machine_that_lacks_nothing_passes_and_is_left_as_it_was() {
    if !is_root() {
        return;
    }
    let cable = Cable::new(4200);
    let before = cable.a.ip("-details link show va");
    let output = run(&cable.a, &["va", "--path-mtu", "4096"]);
    let text = String::from_utf8(output.stdout).expect("text");
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.starts_with("this machine\n") && text.contains("\nva\n"), "{text}");
    for expected in [
        "AF_XDP is allowed",
        "up, with carrier",
        "192.0.2.1",
        "4200: path MTU 4096",
        "native XDP, copy mode",
    ] {
        assert!(text.contains(expected), "{expected} in {text}");
    }
    assert!(text.lines().last().unwrap().contains(" checks, 0 failed, "), "{text}");
    assert_eq!(cable.a.ip("-details link show va"), before);
}

#[test]
fn each_fault_of_an_interface_is_found_and_said_what_to_do() {
    if !is_root() {
        return;
    }
    let cable = Cable::new(1500);
    let fails = |what: &str, arguments: &[&str], expected: &str| {
        let (status, [level, found, advice]) = check(&cable.a, what, arguments);
        assert_eq!((status, level.as_str()), (1, "fail"), "{what}: {found}");
        assert!(advice.contains(expected), "{what}: {advice}");
    };
    fails("interface", &["nosuch0"], "there are: lo, va");
    fails("MTU", &["va", "--path-mtu", "4096"], "ip link set va mtu 4");

    let settings = af_xdp::Settings::default();
    let adapter = cable.a.run(|| Context::open_xdp("va", settings)).expect("an adapter");
    let (status, [level, found, advice]) = check(&cable.a, "XDP program", &["va"]);
    assert_eq!((status, level.as_str()), (0, "warn"), "{found}: {advice}");
    let own = "of the open adapter va (doctor-";
    let process = format!(", process {})", std::process::id());
    assert!(found.starts_with(own) && found.ends_with(&process), "{found}");
    // Whoever opens it too learns the same.
    let mut second = Command::new(env!("CARGO_BIN_EXE_roxe"));
    second.args(["devinfo", "-d", "xdp:va"]);
    let second = cable.a.run(|| second.output()).expect("roxe runs");
    let said = String::from_utf8(second.stderr).expect("text");
    assert!(said.starts_with("roxe: va belongs to the open adapter va (doctor-"), "{said}");
    assert!(said.contains(&process), "{said}");
    let (_, [_, open, _]) = check(&cable.a, "open adapters", &["va"]);
    assert!(open.starts_with("va (doctor-") && open.contains("native XDP"), "{open}");
    drop(adapter);
    assert_eq!(check(&cable.a, "AF_XDP", &["va"]).0, 0);

    cable.b.ip("link set vb down");
    fails("link", &["va"], "other end of a veth pair");
    cable.a.ip("link set va down");
    fails("link", &["va"], "`ip link set va up`");
    let (_, [_, found, _]) = check(&cable.a, "interfaces", &[]);
    assert_eq!(found, "no interface is up but loopback; down: va");
    cable.a.ip("address flush dev va");
    fails("addresses", &["va"], "ip address add");
}

/// A veth delivers on the queue that it was sent by.
#[test]
fn frames_that_came_by_other_queues_are_told_of() {
    use roxe::verbs::{Buffer, Connection, Op};
    if !is_root() {
        return;
    }
    let cable = Cable { a: Namespace::new(), b: Namespace::new() };
    let queues = "numrxqueues 2 numtxqueues 2";
    let peer = cable.b.path();
    cable.a.ip(&format!("link add va {queues} type veth peer name vb {queues} netns {peer}"));
    for (end, name, address) in [(&cable.a, "va", 1), (&cable.b, "vb", 2)] {
        end.ip(&format!("address add 192.0.2.{address}/24 dev {name}"));
        end.ip(&format!("link set {name} up"));
    }
    let open = |end: &Namespace, device: &str| {
        let device = device.parse().expect("a device string");
        end.run(|| Context::open_device("one", &device)).expect("an adapter")
    };
    let sender = open(&cable.b, "xdp:vb,queue=1");
    let send = |to: &Context| {
        let mut connection = Connection::new(&sender).expect("it can be made");
        let endpoint = Connection::new(to).and_then(|it| it.endpoint()).expect("it has one");
        cable.b.run(|| connection.connect(&endpoint)).expect("it is there");
        let memory = sender.register(&Buffer::new(8)).expect("it fits");
        connection.post(1, Op::Send, &memory, 0, 8).expect("there is room");
        connection
    };
    let count = |context: &Context, name: &str| {
        let counters = context.counters();
        counters.iter().find(|(known, _)| *known == name).expect("it counts that").1
    };
    let all = open(&cable.a, "xdp:va");
    let one = send(&all);
    while count(&all, "rx_other_queues") == 0 {
        std::thread::yield_now();
    }
    let (_, [level, found, _]) = check(&cable.a, "queues", &["va"]);
    assert_eq!((level.as_str(), found.as_str()), ("ok", "2"));
    drop((one, all));

    let some = open(&cable.a, "xdp:va,queues=1");
    let one = send(&some);
    while count(&some, "xdp_no_socket") == 0 {
        std::thread::yield_now();
    }
    let (_, [level, found, advice]) = check(&cable.a, "queues", &["va"]);
    assert_eq!(level, "warn");
    assert!(found.ends_with(" of RoCEv2 on others went to the kernel"), "{found}");
    assert!(advice.contains("queues=auto"), "{advice}");
    drop(one);
}

#[test]
fn who_has_the_port_is_told() {
    if !is_root() {
        return;
    }
    let cable = Cable::new(1500);
    assert_eq!(check(&cable.a, "UDP port 4791", &["va"]).1[1], "free");
    let socket = cable.a.run(|| UdpSocket::bind("192.0.2.1:4791")).expect("a socket");
    let (status, [level, found, _]) = check(&cable.a, "UDP port 4791", &["va"]);
    assert_eq!((status, level.as_str()), (0, "warn"));
    let expected = format!("(process {})", std::process::id());
    assert!(found.starts_with("taken by ") && found.ends_with(&expected), "{found}");
    drop(socket);
}

#[test]
fn a_neighbour_that_does_not_answer_is_named() {
    if !is_root() {
        return;
    }
    let cable = Cable::new(1500);
    cable.a.ip("neigh add 192.0.2.9 dev va nud failed");
    let (status, [level, found, _]) = check(&cable.a, "neighbours", &["va"]);
    assert_eq!((status, level.as_str()), (0, "warn"), "{found}");
    assert!(found.contains("no answer from 192.0.2.9"), "{found}");
}

#[test]
fn without_an_interface_it_says_so_and_loopback_is_none() {
    if !is_root() {
        return;
    }
    let (status, [level, found, advice]) = check(&Namespace::new(), "interfaces", &[]);
    assert_eq!((status, level.as_str()), (0, "warn"));
    assert_eq!(found, "no interface is up but loopback");
    assert!(advice.contains("udp:127.0.0.1"), "{advice}");
}

#[test]
fn variables_that_cannot_be_read_or_mean_nothing_are_told() {
    let with = |name: &str, value: &str| {
        let output = Command::new(env!("CARGO_BIN_EXE_roxe"))
            .args(["doctor", "lo"])
            .env_remove("ROXE_CONFIG")
            .env("ROXE_DEVICES", "")
            .env(name, value)
            .output()
            .expect("roxe runs");
        let text = String::from_utf8(output.stdout).expect("text");
        let is_meant = |line: &&str| line.contains("variables") || line.contains("configuration");
        text.lines().filter(is_meant).collect::<Vec<_>>().join("\n")
    };
    assert!(with("ROXE_DEVICES", "a=tap:x").contains("fail  configuration"));
    assert!(with("ROXE_DEVICES", "a=memory:x").contains("ROXE_DEVICES: a = memory:x"));
    let file = std::env::temp_dir().join(format!("roxe-doctor-{}.toml", std::process::id()));
    std::fs::write(&file, "[b]\nport = \"memory:y\"\n").expect("a file");
    let path = file.to_str().expect("text");
    assert!(with("ROXE_CONFIG", path).contains(&format!("ROXE_CONFIG={path}: b = memory:y")));
    std::fs::remove_file(&file).expect("it is there");
    assert!(with("ROXE_CONFIG", "/").contains("fail  configuration"));
    assert!(with("ROXE_CONFIG", "").contains("neither ROXE_DEVICES nor ROXE_CONFIG names"));
    assert!(with("ROXE_DEVICE", "a=memory:x").contains("ROXE_DEVICE means nothing"));
}

/// Where the kernel cannot be asked, nothing is claimed.
#[test]
fn what_could_not_be_looked_at_is_not_known() {
    if !is_root() {
        return;
    }
    let cable = Cable::new(1500);
    let hidden = "mount -t tmpfs none /proc && mount -t tmpfs none /sys && exec \"$0\" doctor va";
    let output = cable.a.run(|| {
        Command::new("unshare")
            .args(["--mount", "sh", "-c", hidden, env!("CARGO_BIN_EXE_roxe")])
            .output()
    });
    let output = output.expect("unshare runs");
    let text = String::from_utf8(output.stdout).expect("text");
    for what in [
        "kernel",
        "BPF compiler",
        "privileges",
        "locked memory",
        "open files",
        "socket buffers",
        "UDP port 4791",
        "firewall",
        "open adapters",
        "neighbours",
    ] {
        let line = text.lines().find(|line| line.contains(&format!(" {what} ")));
        let line = line.unwrap_or_else(|| panic!("no {what} in {text}"));
        assert!(line.starts_with("  warn") && line.contains("not known: /proc/"), "{line}");
        assert!(line.contains("No such file"), "{line}");
    }
    // What needs no file is looked at all the same.
    assert!(text.contains("192.0.2.1") && text.contains("up, with carrier"), "{text}");
}
