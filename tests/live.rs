//! `roxe script --peer` on a wire: an adapter in one network namespace, the program in another.
//!
//! Needs root and iproute2; a run by anybody else prints so.

#[path = "../crates/net/tests/namespace/mod.rs"]
mod namespace;

use std::io::{BufRead as _, BufReader};
use std::net::{IpAddr, Ipv4Addr};
use std::process::{Command, Output, Stdio};

use namespace::{Cable, is_root};
use roxe::verbs::{
    AccessFlags, Buffer, ConnectOptions, Context, Endpoint, Mtu, Psn, Qpn, ReceiveCapacity,
    ReceiveRequest, SendCapacity, ServiceType, af_xdp,
};

const OURS: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));

/// A packet that comes too soon, one that is damaged, and then right ones.
const RIGHT: &str = "\
mr m1 len 4096
qp q1 rc  expect-psn 100
+0    < q1 SEND_ONLY psn 101 ack-req \"b\"
+0    > q1 NAK psn 100 code sequence-error msn 0
+0    < q1 SEND_ONLY psn 100 icrc bad ack-req \"a\"
+0    quiet
+0    < q1 SEND_ONLY psn 100 ack-req checksum right \"a\"
+0    > q1 ACK psn 100 msn 1 credits *
+0    < q1 WRITE_ONLY psn 101 va m1.va+8 rkey m1.rkey ack-req pattern(1000)
+0    > q1 ACK psn 101 msn 2 credits *
";

/// What the same queue pair does not do.
const WRONG: &str = "\
qp q1 rc  expect-psn 102
+0    < q1 SEND_ONLY psn 102 ack-req \"c\"
+0    > q1 ACK psn 102 msn 3
";

#[test]
fn an_adapter_on_the_wire_is_judged_by_its_frames() {
    if !is_root() {
        return;
    }
    let cable = Cable::new(4200);
    let adapter = cable.a.run(|| Context::open_xdp("va", af_xdp::Settings::default()));
    let adapter = adapter.expect("an adapter");
    let cq = adapter.create_cq(16).expect("a queue");
    let pd = adapter.default_pd();
    let memory = Buffer::new(4096);
    let access = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE;
    let region = pd.register(&memory, access).expect("a region");
    let qp = pd
        .create_qp(ServiceType::Rc, &cq)
        .send(SendCapacity { depth: 4, max_sge: 1, max_inline: 0 })
        .receive(ReceiveCapacity { depth: 4, max_sge: 1 })
        .build()
        .expect("a queue pair");
    // What the program plays: its queue pair, and the PSN that scripts begin with.
    let peer =
        Endpoint { address: OURS, qpn: Qpn::new(0x100), psn: Psn::new(100), path_mtu: Mtu::B1024 };
    let options = ConnectOptions { access, ..ConnectOptions::default() };
    // The neighbour is asked for where the interface is.
    cable.a.run(|| qp.connect(&peer, &options)).expect("a peer");
    let sges = [region.sge(0, 8)];
    qp.post_receive(&[ReceiveRequest { wr_id: 1, sges: &sges }]).expect("room");

    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));
    let [qpn, va, r_key] = [qp.qpn().get().into(), memory.address(), region.r_key().0.into()]
        .map(|number: u64| number.to_string());
    let run = |name: &str, text: &str| {
        let script = folder.join(name);
        std::fs::write(&script, text).expect("a file");
        let mut command = Command::new(env!("CARGO_BIN_EXE_roxe"));
        command
            .args(["script", "--slack", "3000", "--peer", "192.0.2.1", "--qpn", &qpn])
            .args(["--va", &va, "--rkey", &r_key])
            .arg(script);
        let output = cable.b.run(|| command.output()).expect("roxe runs");
        let all = [&output.stdout[..], &output.stderr[..]].concat();
        (output.status.code(), String::from_utf8(all).expect("text"))
    };
    let (status, text) = run("right.roce", RIGHT);
    assert_eq!(status, Some(0), "{text}");
    assert!(text.contains("1 passed, 0 failed, 0 skipped"), "{text}");
    // There is no receive any more.
    let (status, text) = run("wrong.roce", WRONG);
    assert_eq!(status, Some(1), "{text}");
    assert!(text.contains("instead: > q1 RNR_NAK psn 102"), "{text}");
    let (status, text) = run("posts.roce", "qp q1 rc\n+0 post send q1 id 1 \"x\"\n+0 quiet\n");
    assert_eq!(status, Some(0), "{text}");
    assert!(text.contains("skipped: line 2: its requests need an agent"), "{text}");
}

/// `roxe script`, with a script of this text in a file that is no other test's.
fn script(test: &str, text: &str, arguments: &[&str]) -> Command {
    let file = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{test}.roce"));
    std::fs::write(&file, text).expect("a file");
    let mut command = Command::new(env!("CARGO_BIN_EXE_roxe"));
    command.arg("script").args(arguments).arg(file);
    command
}

fn ended(output: &Output) -> (Option<i32>, String) {
    let all = [&output.stdout[..], &output.stderr[..]].concat();
    (output.status.code(), String::from_utf8(all).expect("text"))
}

const SILENT: &str = "qp q1 rc\n+0 quiet\n";

#[test]
fn an_interface_is_not_taken_for_a_device_that_nobody_meant() {
    if !is_root() {
        return;
    }
    let cable = Cable::new(4200);
    cable.b.ip("route add default via 192.0.2.1");
    let run = |arguments: &[&str]| {
        let mut command = script("not-meant", SILENT, arguments);
        ended(&cable.b.run(|| command.output()).expect("roxe runs"))
    };
    let (status, text) = run(&["--peer", "198.51.100.1", "--qpn", "5"]);
    assert_eq!(status, Some(2), "{text}");
    assert!(text.contains("only the gateway 192.0.2.1 on vb leads there"), "{text}");
    // Who says so may go there, and hears that nothing of a device was ever seen.
    let (status, text) = run(&["--peer", "198.51.100.1", "--device", "vb", "--qpn", "5"]);
    assert_eq!(status, Some(0), "{text}");
    assert!(text.contains("skipped: no frame of the device ever came"), "{text}");
    let (status, text) = run(&["--peer", "192.0.2.1", "--device", "vx", "--qpn", "5"]);
    assert_eq!(status, Some(3), "{text}");
    assert!(text.contains("--device vx: there is no such interface"), "{text}");
    // Nobody listens there.
    for words in [&["--peer", "192.0.2.1"][..], &["--peer", "192.0.2.1", "--as", "rxe"]] {
        let (status, text) = run(words);
        assert_eq!(status, Some(3), "{text}");
        assert!(text.contains("no agent answers") && !text.contains("over vb"), "{text}");
    }
}

#[test]
fn a_device_is_one_host() {
    if !is_root() {
        return;
    }
    let cable = Cable::new(4200);
    cable.b.ip("route add multicast 239.0.0.0/8 dev vb");
    for peer in ["239.1.2.3", "192.0.2.255", "ff02::1"] {
        let mut command = script("many", SILENT, &["--peer", peer, "--qpn", "5", "--device", "vb"]);
        let (status, text) = ended(&cable.b.run(|| command.output()).expect("roxe runs"));
        let told = format!("roxe: --peer {peer}: {peer} is no single host's\n");
        assert_eq!((status, text), (Some(2), told));
    }
}

/// It would be thrown away below, and the device be said to do nothing.
#[test]
fn a_frame_that_the_interface_does_not_carry_is_told() {
    if !is_root() {
        return;
    }
    let cable = Cable::new(1500);
    let text = "\
        qp q1 rc  expect-psn 100 path-mtu 4096\n\
        +0 < q1 SEND_ONLY psn 100 ack-req pattern(4096)\n\
        +0 > q1 ACK psn 100 msn 1\n";
    let mut command = script("long", text, &["--json", "--peer", "192.0.2.1", "--qpn", "5"]);
    let output = cable.b.run(|| command.output()).expect("roxe runs");
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(2), "{told}");
    let why = "long.roce:2: a frame of 4154 bytes does not fit vb, which has MTU 1500";
    assert!(told.contains(r#""verdict":"unreadable""#) && told.contains(why), "{told}");
}

/// However often it is played, it is read once: what comes by a pipe comes once.
#[test]
fn a_script_is_read_once() {
    if !is_root() {
        return;
    }
    let cable = Cable::new(4200);
    let run = |file: &str| {
        let script = Stdio::from(
            std::fs::File::open(concat!(env!("CARGO_TARGET_TMPDIR"), "/once.roce"))
                .expect("a file"),
        );
        let mut command = Command::new(env!("CARGO_BIN_EXE_roxe"));
        command.args(["script", "--peer", "192.0.2.1", "--qpn", "5", "--goes", "2", file]);
        command.stdin(script);
        ended(&cable.b.run(|| command.output()).expect("roxe runs"))
    };
    drop(script("once", WRONG, &[]));
    let (status, text) = run("-");
    assert_eq!(status, Some(1), "{text}");
    assert!(text.contains("go 1 of 2: standard input:3: the device did nothing"), "{text}");
    assert!(text.contains("0 passed, 1 failed, 0 skipped"), "{text}");
    // Another go is for devices and networks.
    let (status, text) = run("/nowhere.roce");
    assert_eq!(status, Some(2), "{text}");
    assert!(!text.contains("go 1"), "{text}");
}

#[test]
fn silence_on_a_link_that_is_down_is_none_of_a_device() {
    if !is_root() {
        return;
    }
    let cable = Cable::new(4200);
    let arguments = ["--peer", "192.0.2.1", "--qpn", "5"];
    let mut command = script("waits", "qp q1 rc\n+20s quiet\n", &arguments);
    command.stderr(Stdio::piped()).stdout(Stdio::piped());
    let mut roxe = cable.b.run(|| command.spawn()).expect("roxe runs");
    let mut told = BufReader::new(roxe.stderr.take().expect("a pipe")).lines();
    assert!(told.any(|line| line.expect("text").contains("over vb")), "it takes the interface");
    cable.a.ip("link set va down");
    let told: Vec<String> = told.map(|line| line.expect("text")).collect();
    let output = roxe.wait_with_output().expect("roxe ends");
    assert_eq!(output.status.code(), Some(2), "{told:?}");
    assert!(
        told.iter().any(|line| line.contains("vb is down, or what it leads to is")),
        "{told:?}"
    );
    let (_, text) = ended(&output);
    assert_eq!(text, "0 passed, 0 failed, 0 skipped, 1 not played\n");
}

#[test]
fn a_device_that_nothing_leads_to_lacks() {
    if !is_root() {
        return;
    }
    let cable = Cable::new(4200);
    let good = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/conformance/rc/read.roce");
    let mut command = Command::new(env!("CARGO_BIN_EXE_roxe"));
    command.args(["script", "--peer", "198.51.100.1", good]);
    let output = cable.b.run(|| command.output()).expect("roxe runs");
    assert_eq!(output.status.code(), Some(3));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("there is no way to 198.51.100.1"), "{said}");
}
