//! `roxe stat`, `top` and `capture` from outside: this process has the adapters, the program looks
//! at them.

#[path = "../crates/net/tests/namespace/mod.rs"]
mod namespace;

use std::process::{Command, Output, Stdio};

use namespace::{Namespace, is_root};
use roxe::verbs::congestion::{CongestionControl, Dcqcn};
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
    // 3 and 10,064, unless a slow machine sent something again.
    let counters = contexts[0].counters();
    let value = |name| counters.iter().find(|(known, _)| *known == name).expect("a counter").1;
    let line = |name| format!("{name} {}", value(name));
    assert_eq!(lines[1..4], ["traffic".into(), line("rdma_tx_packets"), line("rdma_tx_bytes")]);
    assert!(value("rdma_tx_packets") >= 3 && value("rdma_tx_bytes") >= 10_064);
    assert!(text.contains("\n  port\n") && !text.contains("icrc_bad"), "{text}");
    let (first, second) = text.split_once("\n\n").expect("two adapters");
    assert!(second.starts_with("memory#2 ("), "{text}");
    let values: Vec<_> = first.lines().filter(|line| line.starts_with("    ")).collect();
    assert!(values.iter().all(|line| line.len() == values[0].len()), "aligned: {text}");
    assert!(said(&["stat", "-d", &pid, "-v"]).contains("icrc_bad"));

    let told = objects(&said(&["stat", "-d", &pid, "--json"]));
    let [first, second] = &told[..] else { panic!("{told:?}") };
    assert_eq!(first["hca_id"], "memory");
    assert_eq!(first["rdma_tx_packets"], value("rdma_tx_packets"));
    assert!(second["rx_write_requests"].as_u64() >= Some(1));
    assert_eq!(second["icrc_bad"], 0);
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
    let line =
        text.lines().find(|line| line.trim_start().starts_with(&format!("{qpn:#x} "))).unwrap();
    let cells: Vec<_> = line.split_whitespace().collect();
    assert_eq!(cells[..4], [&format!("{qpn:#x}"), "RC", "error", &format!("192.0.2.2:{peer:#x}")]);
    assert!(line.contains("remote access"), "{text}");

    let of_one = |arguments: &[&str]| run(&[&["stat", "-d", &pid, "--qp"], arguments].concat());
    let output = of_one(&[&format!("{qpn:#x}"), "--json"]);
    // The other adapter has no such queue pair, and that is said.
    assert_eq!(output.status.code(), Some(3));
    assert!(err(&output).contains(&format!("there is no queue pair {qpn:#x}")), "{}", err(&output));
    let [object] = &objects(&out(&output))[..] else { panic!("{}", out(&output)) };
    assert_eq!((&object["qpn"], &object["state"]), (&qpn.into(), &"error".into()));
    assert_eq!((&object["peer"], &object["peer_qpn"]), (&"192.0.2.2".into(), &peer.into()));
    assert_eq!(object["req_remote_access_errors"], 1);
    assert!(out(&of_one(&[&qpn.to_string()])).contains("req_remote_access_errors"));
}

/// Of those that nothing controls there is nothing to tell.
#[test]
fn how_fast_congestion_control_lets_queue_pairs_send_is_shown() {
    let (contexts, pid) = adapters();
    let [a, b] = connect(&contexts);
    let qpn = a.queue_pair().qpn().get();
    let shown = || said(&["stat", "-d", &pid, "--qp"]).lines().nth(2).unwrap().to_owned();
    assert!(!shown().contains("Gb/s"), "{}", shown());
    a.queue_pair().set_congestion_control(CongestionControl::Dcqcn(Dcqcn::MLX5)).unwrap();
    assert!(shown().trim_end().ends_with("  10.000 Gb/s  0.000"), "{}", shown());
    let of_one = |json: &[&str]| {
        let name = format!("--qp={qpn:#x}");
        out(&run(&[&["stat", "-d", &pid, &name], json].concat()))
    };
    assert!(of_one(&[]).contains("\n  may send 10.000 Gb/s, target 10.000, alpha 0.000\n"));
    let [object] = &objects(&of_one(&["--json"]))[..] else { panic!("one") };
    assert_eq!(object["rate_bps"], 10_000_000_000_u64);
    assert_eq!((&object["target_bps"], &object["alpha_ppm"]), (&object["rate_bps"], &0.into()));
    let of_other = format!("--qp={:#x}", b.queue_pair().qpn().get());
    let other = objects(&out(&run(&["stat", "-d", &pid, &of_other, "--json"])));
    assert!(other.iter().all(|object| object.get("rate_bps").is_none()), "{other:?}");
}

/// Its name has the options; who asks need not know them.
#[test]
fn an_adapter_is_found_by_its_device_string_without_the_options() {
    let name = format!("memory:without{}", std::process::id());
    let _context = roxe::verbs::open(&format!("{name},fault=drop 1%")).unwrap();
    for wanted in [&name, &format!("{name},fault=drop 1%"), &format!("{name},fault=dup 1%")] {
        let shown = said(&["stat", "-d", wanted]);
        assert!(shown.starts_with(&format!("{name},fault=drop 1% (")), "{wanted}: {shown}");
    }
    let other = run(&["stat", "-d", &format!("{name}x")]);
    assert_eq!(other.status.code(), Some(3), "{}", err(&other));
}

#[test]
fn a_process_that_is_stopped_is_told_at_once() {
    use rustix::process::{Pid, Signal, kill_process};
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut child = Command::new(env!("CARGO_BIN_EXE_roxe"))
        .args(["perf", "write_bw", "-d", "memory:stopped", "-p", &port.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let pid = child.id().to_string();
    while run(&["stat", "-d", &pid]).status.code() != Some(0) {
        assert!(child.try_wait().unwrap().is_none(), "it ended");
    }
    kill_process(Pid::from_child(&child), Signal::STOP).unwrap();
    let start = std::time::Instant::now();
    let output = run(&["stat", "-d", &pid]);
    let took = start.elapsed();
    child.kill().and_then(|()| child.wait()).unwrap();
    let told = format!(
        "roxe/{pid}/memory:stopped: process {pid} is stopped, and does not answer: `kill -CONT \
         {pid}` lets it go on\n"
    );
    assert_eq!(err(&output), format!("roxe: {told}"), "after {took:?}");
    assert_eq!((output.status.code(), out(&output)), (Some(3), String::new()));
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

/// Runs `roxe capture` on the first adapter while it writes again and again, until it ends.
fn capture(arguments: &[&str]) -> Output {
    let (contexts, pid) = adapters();
    let [mut a, _b] = connect(&contexts);
    let mut capture = Command::new(env!("CARGO_BIN_EXE_roxe"))
        .args(["capture", "-d", &format!("{pid}/memory")])
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("roxe runs");
    while capture.try_wait().expect("it is ours").is_none() {
        write(&contexts, &mut a, 4096);
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    capture.wait_with_output().expect("it ended")
}

/// A folder that goes with the test.
struct Folder(std::path::PathBuf);

impl Folder {
    fn new(test: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("roxe-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        Self(folder)
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("text").to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn what_an_adapter_sends_and_receives_is_told_in_words_as_it_passes() {
    let output = capture(&["-c", "4"]);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    let text = out(&output);
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), 5, "{text}");
    assert!(lines[0].contains("from → to") && lines[0].ends_with("meaning"), "{text}");
    assert!(text.contains("WRITE_ONLY") && text.contains("ACK "), "{text}");
    assert_eq!(text.matches("WRITE_ONLY").count() + text.matches("ACK ").count(), 4, "{text}");
    assert!(err(&output).ends_with("4 frames\n"), "{}", err(&output));

    let output = capture(&["-c", "2", "--json", "--filter", "aeth.kind == ack"]);
    let objects = objects(&out(&output));
    assert_eq!(objects.len(), 2);
    assert!(objects.iter().all(|it| it["aeth.kind"] == "ack" && it["icrc"] == "good"));
}

#[test]
fn a_recording_is_a_capture_that_explain_and_check_read() {
    let folder = Folder::new("capture");
    let file = folder.file("a.pcapng");
    let output = capture(&["-c", "6", "-w", &file]);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    assert_eq!(out(&output), "");
    let frames = objects(&said(&["explain", "--json", "--no-summary", &file]));
    assert_eq!(frames.len(), 6);
    assert!(frames.iter().all(|frame| frame["icrc"] == "good"));
    said(&["check", &file]);

    let output = capture(&["-c", "3", "-w", "-"]);
    std::fs::write(&file, &output.stdout).unwrap();
    assert_eq!(objects(&said(&["explain", "--json", "--no-summary", &file])).len(), 3);

    let output =
        capture(&["-c", "4", "-w", &file, "--last", "2", "--filter", "payload_len == 4096"]);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    let frames = objects(&said(&["explain", "--json", "--no-summary", &file]));
    assert_eq!(frames.len(), 2);
    assert!(frames.iter().all(|frame| frame["payload_len"] == 4096));
}

#[test]
fn a_ring_of_files_keeps_the_newest() {
    for kib in [8, 12] {
        a_ring_keeps_its_limit(kib);
    }
}

fn a_ring_keeps_its_limit(kib: u64) {
    let folder = Folder::new("ring");
    let ring = format!("{kib}Kx2");
    let output = capture(&["-c", "20", "-w", &folder.file("a.pcapng"), "--ring", &ring]);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    let mut names: Vec<_> = std::fs::read_dir(&folder.0)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names.len(), 2, "{names:?}");
    assert!(names[0].as_str() > "a_00001.pcapng", "{names:?}");
    for name in names {
        said(&["explain", &folder.file(&name)]);
        assert!(std::fs::metadata(folder.file(&name)).unwrap().len() <= kib * 1024);
    }
}

#[test]
fn what_cannot_be_recorded_is_said() {
    let (_contexts, pid) = adapters();
    let usage = |arguments: &[&str]| {
        let output = run(&[&["capture", "-d", &pid], arguments].concat());
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", err(&output));
        err(&output)
    };
    let several = usage(&[]);
    let expected = format!("2 adapters are open: say by -d which, of {pid}/memory, {pid}/memory#2");
    assert!(several.contains(&expected), "{several}");
    assert!(usage(&["-w", "-", "--last", "3"]).contains("need a file"));
    assert!(usage(&["-w", "x", "--ring", "8191x1"]).contains("8K"));
    assert!(usage(&["--filter", "nosuch == 1"]).contains("--filter:"));
    let second = format!("{pid}/memory#2");
    let output = run(&["capture", "-d", &second, "-w", "/nonexistent/x.pcapng"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(err(&output).contains("cannot create the capture /nonexistent/x.pcapng"));
}

/// A disk that is full ends a recording, which says so, also when nothing more comes.
#[test]
fn a_recording_that_cannot_be_written_says_so() {
    let folder = Folder::new("full");
    let (file, full) = (folder.file("fifo"), "/dev/full");
    assert!(Command::new("mkfifo").arg(&file).status().expect("mkfifo").success());
    let (contexts, pid) = adapters();
    let [mut a, _b] = connect(&contexts);
    let device = format!("{pid}/memory");
    let capture = Command::new(env!("CARGO_BIN_EXE_roxe"))
        .args(["capture", "-d", &device, "-w", &file])
        .stderr(Stdio::piped())
        .spawn()
        .expect("roxe runs");
    let given = || {
        let counters = contexts[0].counters();
        let value = |name| counters.iter().find(|(known, _)| *known == name).expect("a counter").1;
        (value("live_recordings"), value("live_frames"))
    };
    // It is read as far as its beginning.
    {
        use std::io::Read as _;
        let mut reader = std::fs::File::open(&file).expect("a fifo");
        reader.read_exact(&mut [0; 28]).expect("a section header");
        while given().0 < 1 {}
    }
    write(&contexts, &mut a, 64);
    let output = capture.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(2), "{}", err(&output));
    assert!(err(&output).contains(&format!("cannot write the capture {file}: Broken pipe")));

    for words in [&["-w", full][..], &["--json"], &[]] {
        let capture = Command::new(env!("CARGO_BIN_EXE_roxe"))
            .args(["capture", "-d", &device])
            .args(words)
            .stdout(std::fs::File::options().write(true).open(full).expect("it is there"))
            .stderr(Stdio::piped())
            .spawn()
            .expect("roxe runs");
        let before = given();
        while !words.contains(&"-w") && given().0 == before.0 {}
        write(&contexts, &mut a, 64);
        let output = capture.wait_with_output().expect("it ends");
        assert_eq!(output.status.code(), Some(2), "{words:?}: {}", err(&output));
        assert!(err(&output).contains("No space left on device"), "{}", err(&output));
    }
}

/// The file is whole, and says how much is in it.
#[test]
fn a_recording_that_is_interrupted_ends_whole() {
    let folder = Folder::new("interrupted");
    let file = folder.file("a.pcapng");
    let (contexts, pid) = adapters();
    let [mut a, _b] = connect(&contexts);
    let capture = Command::new(env!("CARGO_BIN_EXE_roxe"))
        .args(["capture", "-d", &format!("{pid}/memory#2"), "-w", &file, "--last", "5"])
        .stderr(Stdio::piped())
        .spawn()
        .expect("roxe runs");
    let given = || {
        let counters = contexts[1].counters();
        counters.into_iter().find(|(name, _)| *name == "live_frames").expect("a counter").1
    };
    while given() < 20 {
        write(&contexts, &mut a, 64);
    }
    let kill = Command::new("kill").args(["-INT", &capture.id().to_string()]).status();
    assert!(kill.expect("kill runs").success());
    let output = capture.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    assert!(err(&output).contains(" frames\n"), "{}", err(&output));
    assert_eq!(objects(&said(&["explain", "--json", "--no-summary", &file])).len(), 5);
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
    let qpn = format!("{:#x} ", a.endpoint().unwrap().qpn.get());
    assert!(lines.iter().any(|line| line.trim_start().starts_with(&qpn)), "{text}");

    let output = run(&["top", "-d", &pid]);
    assert_eq!(output.status.code(), Some(3));
    assert!(err(&output).contains("--once prints one screen"), "{}", err(&output));
}

#[test]
fn without_an_adapter_it_says_what_to_do() {
    for command in ["stat", "top", "capture"] {
        let output = run(&[command, "-d", "nosuch"]);
        assert_eq!(output.status.code(), Some(3), "{command}");
        assert!(err(&output).contains("no"), "{}", err(&output));
    }
    let (_contexts, pid) = adapters();
    let output = run(&["stat", "-d", "nosuch"]);
    assert_eq!(output.status.code(), Some(3));
    let expected = "roxe: no open adapter is nosuch; there are: ";
    assert!(err(&output).contains(expected) && err(&output).contains(&pid), "{}", err(&output));
    assert_eq!(run(&["stat", "--qp", "16777216"]).status.code(), Some(2));
    assert_eq!(run(&["stat", "--watch=0"]).status.code(), Some(2));
}

/// Takes the screen, shows the adapters, and gives the screen back when `q` is pressed.
#[test]
fn on_a_terminal_the_screen_is_drawn_until_q_is_pressed() {
    use std::fs::File;
    use std::io::{Read as _, Write as _};

    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    use rustix::termios::{Winsize, tcsetwinsize};

    let (contexts, pid) = adapters();
    let [mut a, _b] = connect(&contexts);
    write(&contexts, &mut a, 4096);
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
    grantpt(&terminal).expect("it is ours");
    unlockpt(&terminal).expect("it can be opened");
    let size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(&terminal, size).expect("it has a size");
    let name = ptsname(&terminal, Vec::new()).expect("it has a name");
    let open = || {
        let name = name.to_str().expect("text");
        File::options().read(true).write(true).open(name).expect("it can be opened")
    };
    let mut top = Command::new(env!("CARGO_BIN_EXE_roxe"))
        .args(["top", "-d", &pid])
        .stdin(open())
        .stdout(open())
        .stderr(Stdio::piped())
        .spawn()
        .expect("roxe runs");
    let mut terminal = File::from(terminal);
    let (mut drawn, mut some) = (Vec::new(), [0; 4096]);
    let mut is_asked_to_end = false;
    // The end of a terminal that nobody has open any more is an error.
    while let Ok(len @ 1..) = terminal.read(&mut some) {
        drawn.extend_from_slice(&some[..len]);
        let text = String::from_utf8_lossy(&drawn);
        if text.contains("2 adapters") && text.contains("memory#2") && !is_asked_to_end {
            is_asked_to_end = true;
            terminal.write_all(b"q").expect("it takes keys");
        }
    }
    let status = top.wait().expect("it is ours");
    assert_eq!(status.code(), Some(0));
    assert!(is_asked_to_end);
    let text = String::from_utf8_lossy(&drawn);
    assert!(text.contains("\u{1b}[?1049h") && text.contains("\u{1b}[?1049l"), "the other screen");
}

/// Whoever is not of the same user hears no more than that.
#[test]
fn another_user_is_refused_and_told_so() {
    use std::os::unix::process::CommandExt as _;
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: needs root to be somebody else");
        return;
    }
    let folder = Folder::new("nobody");
    let program = folder.file("roxe");
    std::fs::copy(env!("CARGO_BIN_EXE_roxe"), &program).expect("a copy");
    let (_contexts, pid) = adapters();
    for command in ["stat", "top", "capture"] {
        let mut nobody = Command::new(&program);
        nobody.args([command, "-d", &pid]).uid(65534).gid(65534).stdin(Stdio::null());
        if command == "top" {
            nobody.arg("--once");
        }
        let output = nobody.output().expect("it runs");
        assert_eq!(output.status.code(), Some(3), "{command}: {}", err(&output));
        assert!(err(&output).contains("belongs to another user"), "{}", err(&output));
        assert_eq!(out(&output), "");
    }
}

/// Anybody may make a socket that is named as an adapter's. Whoever looks is told in the end what
/// it does not answer, sees no more than text on the screen, and gets the others' answers.
#[test]
fn strangers_that_pose_as_adapters_hold_up_nobody() {
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::os::linux::net::SocketAddrExt as _;
    use std::os::unix::net::{SocketAddr, UnixListener};

    use rustix::net::{
        AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
    };

    if !is_root() {
        return;
    }
    let (family, kind) = (AddressFamily::UNIX, SocketType::STREAM);
    let stranger = |name: &str| {
        let address = SocketAddr::from_abstract_name(name).unwrap();
        UnixListener::bind_addr(&address).unwrap()
    };
    Namespace::new().run(|| {
        // One that accepts nobody, one that answers a byte now and then, one whose numbers and
        // words are not to be believed.
        let full = socket_with(family, kind, SocketFlags::CLOEXEC, None).unwrap();
        let address = SocketAddrUnix::new_abstract_name(b"roxe/1/full").unwrap();
        bind(&full, &address).unwrap();
        listen(&full, 0).unwrap();
        let first = socket_with(family, kind, SocketFlags::CLOEXEC, None).unwrap();
        connect(&first, &address).unwrap();
        let slow = stranger("roxe/1/slow");
        std::thread::spawn(move || {
            for mut client in slow.incoming().flatten() {
                while client.write_all(b"{").is_ok() {
                    std::thread::sleep(std::time::Duration::from_millis(100));
                }
            }
        });
        let liar = stranger("roxe/1/liar");
        std::thread::spawn(move || {
            for mut client in liar.incoming().flatten() {
                let requests = BufReader::new(client.try_clone().unwrap());
                for request in requests.lines().map_while(Result::ok) {
                    let end = "{\"kind\":\"end\",\"time_ns\":1,\"next\":null}\n";
                    let answer = match request.split(' ').next() {
                        Some("info") => "{\"kind\":\"info\",\"name\":\"liar\",\"pid\":1,\
                             \"command\":\"c\",\"mode\":\"\\u001b[31m\",\"active\":true,\
                             \"active_mtu\":1,\"addresses\":[],\"link_type\":1}\n"
                            .to_owned(),
                        Some("queue-pairs") => format!(
                            "{{\"kind\":\"queue_pair\",\"qpn\":1,\"service\":\"\\u001b[2J\",\
                             \"state\":\"\\u001b[31m\",\"why\":\"\\u001b]0;x\\u0007\",\
                             \"\\u001b\\\"x\":1,\"send_rnr_err\":{0},\"rcvd_rnr_err\":{0}}}\n{end}",
                            u64::MAX
                        ),
                        Some("counters") => format!(
                            "{{\"kind\":\"counter\",\"group\":\"\\u001b[2J\",\"whose\":\"ours\",\
                             \"name\":\"\\u001b\\\"x\",\"value\":1}}\n{end}"
                        ),
                        _ => end.to_owned(),
                    };
                    if client.write_all(answer.as_bytes()).is_err() {
                        break;
                    }
                }
            }
        });
        let (_contexts, pid) = adapters();
        for arguments in [
            &["stat", "-d", &pid][..],
            &["stat"],
            &["stat", "--json"],
            &["stat", "--qp"],
            &["stat", "--qp", "--json"],
            &["stat", "--qp=1", "-d", "liar"],
            &["stat", "--qp=1", "-d", "liar", "--json"],
            &["top", "--once"],
        ] {
            let output = run(arguments);
            assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", err(&output));
            assert!(!out(&output).contains('\u{1b}') && !err(&output).contains('\u{1b}'));
            if arguments.contains(&"--json") {
                assert!(!objects(&out(&output)).is_empty());
            }
            for silent in ["roxe/1/full", "roxe/1/slow"] {
                let told = format!("{silent}: it does not answer");
                assert!(err(&output).contains(&told), "{arguments:?}: {}", err(&output));
            }
        }
    });
}
