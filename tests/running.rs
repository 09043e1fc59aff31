//! `roxe stat`, `top` and `capture` from outside: this process has the adapters, the program looks
//! at them.

use std::process::{Command, Output, Stdio};

use roxe::verbs::{Buffer, Connection, Context, Mtu, Op, RKey, Wait};

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_roxe"))
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .expect("roxe runs")
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("text")
}

fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("text")
}

/// What a right run prints.
fn said(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    out(&output)
}

fn objects(text: &str) -> Vec<serde_json::Value> {
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// Two adapters of this process, and how the first one is asked for.
fn adapters() -> ([Context; 2], String) {
    let pair = Context::memory_pair(Mtu::B4096).expect("two adapters");
    (pair, std::process::id().to_string())
}

fn connect([one, other]: &[Context; 2]) -> [Connection; 2] {
    let (mut a, mut b) = (Connection::new(one).unwrap(), Connection::new(other).unwrap());
    a.connect(&b.endpoint().unwrap()).unwrap();
    b.connect(&a.endpoint().unwrap()).unwrap();
    [a, b]
}

/// Writes so many bytes.
fn write(contexts: &[Context; 2], sender: &mut Connection, len: u32) {
    let (from, to) = (Buffer::new(1 << 20), Buffer::new(1 << 20));
    let (source, target) =
        (contexts[0].register(&from).unwrap(), contexts[1].register(&to).unwrap());
    let write = Op::Write { va: target.address(), r_key: target.r_key() };
    sender.post(1, write, &source, 0, len).unwrap();
    sender.wait(Wait::SECOND).unwrap();
}

#[test]
fn counters_are_shown_in_groups_and_those_that_are_0_are_not() {
    let (contexts, pid) = adapters();
    let [mut a, _b] = connect(&contexts);
    write(&contexts, &mut a, 10_000);
    let text = said(&["stat", "-d", &pid]);
    let lines: Vec<_> =
        text.lines().map(|it| it.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    assert!(lines[0].starts_with("memory (running-"), "{text}");
    assert!(
        lines[0].ends_with(&format!(", process {pid}): memory: port 0, path MTU 4096")),
        "{text}"
    );
    assert_eq!(lines[1..4], ["traffic", "rdma_tx_packets 3", "rdma_tx_bytes 10064"]);
    assert!(text.contains("\n  port\n") && !text.contains("icrc_bad"), "{text}");
    let (first, second) = text.split_once("\n\n").expect("two adapters");
    assert!(second.starts_with("memory#2 ("), "{text}");
    let values: Vec<_> = first.lines().filter(|line| line.starts_with("    ")).collect();
    assert!(values.iter().all(|line| line.len() == values[0].len()), "aligned: {text}");
    assert!(said(&["stat", "-d", &pid, "-v"]).contains("icrc_bad"));

    let told = objects(&said(&["stat", "-d", &pid, "--json"]));
    let [first, second] = &told[..] else { panic!("{told:?}") };
    assert_eq!((&first["hca_id"], &first["rdma_tx_packets"]), (&"memory".into(), &3.into()));
    assert_eq!((&second["rx_write_requests"], &second["icrc_bad"]), (&1.into(), &0.into()));
}

#[test]
fn queue_pairs_are_shown_with_their_peers_and_why_they_ended() {
    let (contexts, pid) = adapters();
    let [mut a, b] = connect(&contexts);
    let [qpn, peer] = [&a, &b].map(|it| it.endpoint().unwrap().qpn.get());
    let buffer = Buffer::new(64);
    let source = contexts[0].register(&buffer).unwrap();
    a.post(1, Op::Write { va: 1, r_key: RKey(7) }, &source, 0, 8).unwrap();
    a.wait(Wait::SECOND).unwrap_err();

    let text = said(&["stat", "-d", &pid, "--qp"]);
    let line = text.lines().find(|line| line.trim_start().starts_with(&qpn.to_string())).unwrap();
    let cells: Vec<_> = line.split_whitespace().collect();
    assert_eq!(cells[..4], [&qpn.to_string(), "RC", "error", &format!("192.0.2.2:{peer}")]);
    assert!(line.contains("remote access"), "{text}");

    let of_one = |arguments: &[&str]| run(&[&["stat", "-d", &pid, "--qp"], arguments].concat());
    let output = of_one(&[&format!("{qpn:#x}"), "--json"]);
    // The other adapter has no such queue pair, and that is said.
    assert_eq!(output.status.code(), Some(3));
    assert!(err(&output).contains(&format!("there is no queue pair {qpn}")), "{}", err(&output));
    let [object] = &objects(&out(&output))[..] else { panic!("{}", out(&output)) };
    assert_eq!((&object["qpn"], &object["state"]), (&qpn.into(), &"error".into()));
    assert_eq!((&object["peer"], &object["peer_qpn"]), (&"192.0.2.2".into(), &peer.into()));
    assert_eq!(object["req_remote_access_errors"], 1);
    assert!(out(&of_one(&[&qpn.to_string()])).contains("req_remote_access_errors"));
}

/// It ends when nothing is left to watch, and has told what rose how fast.
#[test]
fn what_is_watched_is_told_with_its_rate_until_it_closes() {
    let (contexts, pid) = adapters();
    let [mut a, _b] = connect(&contexts);
    let watch = Command::new(env!("CARGO_BIN_EXE_roxe"))
        .args(["stat", "-d", &pid, "--watch=0.1"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("roxe runs");
    let mut watch = Some(watch);
    let (shown, read) = std::sync::mpsc::channel();
    let mut stdout = watch.as_mut().and_then(|it| it.stdout.take()).expect("a pipe");
    let reader = std::thread::spawn(move || {
        use std::io::Read as _;
        let (mut text, mut some) = (Vec::new(), [0; 4096]);
        while let Ok(len @ 1..) = stdout.read(&mut some) {
            text.extend_from_slice(&some[..len]);
            let _ = shown.send(String::from_utf8_lossy(&text).contains("/s\n"));
        }
        String::from_utf8(text).expect("text")
    });
    loop {
        write(&contexts, &mut a, 4096);
        if read.try_iter().any(|has_rate| has_rate) {
            break;
        }
    }
    drop((a, _b, contexts));
    let output = watch.take().expect("it is there").wait_with_output().expect("it ends");
    let text = reader.join().expect("it does not panic");
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert_eq!(err(&output).matches(": closed\n").count(), 2, "{}", err(&output));
    assert!(text.contains("rdma_tx_packets"), "{text}");
}

#[test]
fn one_screen_can_be_printed_and_no_screen_is_drawn_where_there_is_no_terminal() {
    let (contexts, pid) = adapters();
    let [mut a, _b] = connect(&contexts);
    write(&contexts, &mut a, 4096);
    let text = said(&["top", "-d", &pid, "--once", "--interval", "0.1"]);
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines[0], "roxe top: 2 adapters, 2 queue pairs, by rate   (? help)");
    assert!(lines[3].starts_with("memory") && lines[5].starts_with("memory#2"), "{text}");
    let qpn = a.endpoint().unwrap().qpn.get().to_string();
    assert!(lines.iter().any(|line| line.trim_start().starts_with(&qpn)), "{text}");

    let output = run(&["top", "-d", &pid]);
    assert_eq!(output.status.code(), Some(3));
    assert!(err(&output).contains("--once prints one screen"), "{}", err(&output));
}

#[test]
fn without_an_adapter_it_says_what_to_do() {
    for command in ["stat", "top"] {
        let output = run(&[command, "-d", "nosuch"]);
        assert_eq!(output.status.code(), Some(3), "{command}");
        assert!(err(&output).contains("no"), "{}", err(&output));
    }
    let (_contexts, pid) = adapters();
    let output = run(&["stat", "-d", "nosuch"]);
    assert_eq!(output.status.code(), Some(3));
    let expected = format!("roxe: no open adapter is nosuch; there are: memory (");
    assert!(err(&output).contains(&expected) && err(&output).contains(&pid), "{}", err(&output));
    assert_eq!(run(&["stat", "--qp", "16777216"]).status.code(), Some(2));
    assert_eq!(run(&["stat", "--watch=0"]).status.code(), Some(2));
}
