//! `roxe run` from outside. The library itself is tried in `crates/ibverbs`.

#[path = "../crates/net/tests/namespace/mod.rs"]
mod namespace;

use std::fs;
use std::io::Read as _;
use std::net::UdpSocket;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use namespace::{Cable, is_root};
use rustix::fs::{XattrFlags, setxattr};
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::CapabilitySet;

/// The program, with a library beside it: `cargo test -p roxe` alone builds none.
struct Installed(PathBuf);

impl Installed {
    /// In a folder of its own, as it is installed.
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("roxe-run-{}-{name}", std::process::id()));
        for part in ["bin", "lib/roxe"] {
            fs::create_dir_all(folder.join(part)).expect("there is room");
        }
        fs::copy(env!("CARGO_BIN_EXE_roxe"), folder.join("bin/roxe")).expect("there is room");
        Self(folder)
    }

    fn with_library(self) -> Self {
        fs::write(self.0.join("lib/roxe/libibverbs.so.1"), "").expect("there is room");
        self
    }

    /// With the library that a build of the workspace has made beside the program. If there is
    /// none, says so.
    fn with_built_library(self) -> Option<Self> {
        let built = Path::new(env!("CARGO_BIN_EXE_roxe")).with_file_name("lib/libibverbs.so.1");
        if !built.exists() {
            eprintln!("skipped: needs the library; cargo build -p roxe-ibverbs");
            return None;
        }
        fs::copy(built, self.0.join("lib/roxe/libibverbs.so.1")).expect("there is room");
        Some(self)
    }

    /// Gives the program capabilities, as `setcap …+ep` does. Says whether that works: only root
    /// may, and not in every file system.
    fn give(&self, rights: CapabilitySet) -> bool {
        // vfs_cap_data of linux/capability.h: VFS_CAP_REVISION_2 and VFS_CAP_FLAGS_EFFECTIVE, then
        // permitted and inheritable, 32 bits at a time.
        let [low, high] = [rights.bits() as u32, (rights.bits() >> 32) as u32];
        let words = [0x0200_0001, low, 0, high, 0];
        let value: Vec<u8> = words.into_iter().flat_map(u32::to_le_bytes).collect();
        let program = self.0.join("bin/roxe");
        setxattr(program, "security.capability", &value, XattrFlags::empty()).is_ok()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.0.join("bin/roxe"));
        command.arg("run").args(arguments).stdin(Stdio::null());
        command.env_remove("LD_LIBRARY_PATH").env_remove("ROXE_DEVICES");
        command
    }

    /// The same as a user without rights.
    fn nobodys(&self, arguments: &[&str]) -> Command {
        let mut command = self.command(arguments);
        command.uid(65_534).gid(65_534);
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("roxe runs")
    }
}

impl Drop for Installed {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("text")
}

#[test]
fn the_program_gets_library_and_devices_and_its_status_is_ours() {
    let roxe = Installed::new("status").with_library();
    let devices = "udp:127.0.0.7;b=udp:127.0.0.8,gso=off";
    let asks = "echo $LD_LIBRARY_PATH; echo \"$ROXE_DEVICES\"; exit 7";
    let arguments =
        ["-d", devices, "--capture", "x.pcapng", "--fault", "drop 1%", "--", "sh", "-c", asks];
    let output = roxe.run(&arguments);
    assert_eq!(output.status.code(), Some(7), "{}", text(&output.stderr));
    let mut lines = text(&output.stdout).lines();
    let library = Path::new(lines.next().expect("a line"));
    assert!(library.join("libibverbs.so.1").exists(), "{}", library.display());
    let expected = "roxe0=udp:127.0.0.7,capture=x.pcapng,fault=drop 1%;\
                    b=udp:127.0.0.8,gso=off,capture=x_1.pcapng,fault=drop 1%";
    assert_eq!(lines.next(), Some(expected));
}

/// Whether an option or a variable names it.
#[test]
fn the_file_of_devices_is_not_recorded_over() {
    let roxe = Installed::new("over").with_library();
    let file = roxe.0.join("devices.toml");
    let devices = "[a]\nport = \"udp:127.0.0.7\"\n";
    fs::write(&file, devices).expect("there is room");
    let name = file.to_str().expect("text");
    let named = roxe.run(&["--config", name, "--capture", name, "--", "true"]);
    let mut command = roxe.command(&["--capture", name, "--", "true"]);
    let by_variable = command.env("ROXE_CONFIG", &file).output().expect("roxe runs");
    for output in [named, by_variable] {
        assert!(text(&output.stderr).contains("devices.toml, which is read"), "{output:?}");
        assert_eq!(fs::read_to_string(&file).expect("it is there"), devices);
    }
}

#[test]
fn a_device_of_a_file_is_named_alone() {
    let roxe = Installed::new("named").with_library();
    let file = roxe.0.join("devices.toml");
    let devices = "[a]\nport = \"udp:127.0.0.7\"\n[b]\nport = \"udp:127.0.0.8\"\n";
    fs::write(&file, devices).expect("there is room");
    let file = file.to_str().expect("text");
    let asks = "echo \"$ROXE_DEVICES\"";
    let output = roxe.run(&["-d", "b", "--config", file, "--", "sh", "-c", asks]);
    assert_eq!(text(&output.stdout), "b=udp:127.0.0.8\n", "{output:?}");
    let output = roxe.run(&["-d", "127.0.0.8", "--", "true"]);
    assert!(text(&output.stderr).contains("is `udp:127.0.0.8` meant?"), "{output:?}");
}

#[test]
fn signals_go_to_the_program() {
    let roxe = Installed::new("signals").with_library();
    let trap = "trap 'exit 5' TERM; echo ready; while :; do sleep 0.01; done";
    let mut command = roxe.command(&["-d", "udp:127.0.0.7", "--", "sh", "-c", trap]);
    let mut child: Child = command.stdout(Stdio::piped()).spawn().expect("roxe runs");
    let mut ready = [0; 6];
    child.stdout.as_mut().expect("it is piped").read_exact(&mut ready).expect("it is ready");
    kill_process(Pid::from_child(&child), Signal::TERM).expect("it is there");
    assert_eq!(child.wait().expect("it ends").code(), Some(5));

    let output = roxe.run(&["-d", "udp:127.0.0.7", "--", "sh", "-c", "kill -KILL $$"]);
    assert_eq!(output.status.code(), Some(128 + 9));
}

/// A program that says when it runs, and then sleeps until it is ended.
const SLEEPS: &str = "echo $$; exec sleep 1000";

/// Starts that program; says which process it is.
fn sleeping(roxe: &Installed) -> (Child, Pid) {
    let mut command = roxe.command(&["-d", "udp:127.0.0.7", "--", "sh", "-c", SLEEPS]);
    // A job of its own, as a shell makes it: of one without a shell nobody may be stopped.
    says_which(command.process_group(0))
}

/// Starts a command whose program says which process it is.
fn says_which(command: &mut Command) -> (Child, Pid) {
    let mut child = command.stdout(Stdio::piped()).spawn().expect("roxe runs");
    let (mut line, mut byte) = (String::new(), [0]);
    let out = child.stdout.as_mut().expect("it is piped");
    while out.read(&mut byte).expect("it can be read") == 1 && byte != *b"\n" {
        line.push(byte[0].into());
    }
    let pid = Pid::from_raw(line.parse().expect("a number")).expect("it is a process");
    (child, pid)
}

#[test]
fn the_program_does_not_outlive_us() {
    let roxe = Installed::new("killed").with_library();
    let (mut child, _) = sleeping(&roxe);
    child.kill().and_then(|()| child.wait()).expect("it is ours");
    // The other end of the pipe closes with the program.
    let mut rest = Vec::new();
    child.stdout.take().expect("it is piped").read_to_end(&mut rest).expect("it can be read");
    assert_eq!(text(&rest), "");
}

#[test]
fn a_job_is_stopped_and_goes_on() {
    let roxe = Installed::new("job").with_library();
    let (mut child, program) = sleeping(&roxe);
    let ours = Pid::from_child(&child);
    let become_so = |stopped: bool| {
        eventually(|| [ours, program].iter().all(|pid| (state(*pid) == 'T') == stopped));
    };
    kill_process(ours, Signal::TSTP).expect("it is there");
    become_so(true);
    kill_process(ours, Signal::CONT).expect("it is there");
    become_so(false);
    // Who stops the program alone stops nobody else.
    kill_process(program, Signal::STOP).expect("it is there");
    eventually(|| state(program) == 'T');
    kill_process(program, Signal::CONT).expect("it is there");
    kill_process(ours, Signal::TERM).expect("it is there");
    assert_eq!(child.wait().expect("it ends").code(), Some(128 + 15));
}

/// The letter of a process in /proc.
fn state(pid: Pid) -> char {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_pid()));
    let stat = stat.unwrap_or_default();
    stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next()).unwrap_or('-')
}

fn eventually(mut is: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is() {
        assert!(start.elapsed() < Duration::from_secs(60), "it does not happen");
        thread::sleep(Duration::from_millis(5));
    }
}

/// The kernel stops no job that nobody could have go on again: `^Z` is for a shell.
#[test]
fn a_job_without_a_shell_is_not_stopped() {
    let roxe = Installed::new("orphan").with_library();
    // Its answer to what comes after `^Z` is that it runs on.
    let answers = "trap 'echo on; exit 9' USR1; echo $$; while :; do sleep 0.01; done";
    let inner = roxe.command(&["-d", "udp:127.0.0.7", "--", "sh", "-c", answers]);
    let mut command = Command::new("setsid");
    command.arg(inner.get_program()).args(inner.get_args()).stdin(Stdio::null());
    let (mut child, _) = says_which(&mut command);
    let ours = Pid::from_child(&child);
    kill_process(ours, Signal::TSTP).expect("it is there");
    kill_process(ours, Signal::USR1).expect("it is there");
    let status = loop {
        if let Some(status) = child.try_wait().expect("it is ours") {
            break status;
        }
        if state(ours) == 'T' {
            child.kill().and_then(|()| child.wait()).expect("it is ours");
            panic!("it is stopped");
        }
        thread::sleep(Duration::from_millis(5));
    };
    assert_eq!(status.code(), Some(9));
}

#[test]
fn who_will_not_see_our_library_is_named() {
    let roxe = Installed::new("deaf").with_library();
    // A static program, of which nothing but its header is read, and which nobody can run.
    let mut head = [0; 120];
    head[..6].copy_from_slice(b"\x7fELF\x02\x01");
    (head[32], head[54], head[56], head[64]) = (64, 56, 1, 1);
    let program = roxe.0.join("static");
    fs::write(&program, head).expect("there is room");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("it is ours");
    let name = program.to_str().expect("text");
    let output = roxe.run(&["-d", "udp:127.0.0.7", "--", name]);
    assert!(!output.status.success());
    // Behind it the system complains, in words of its own.
    let complaint = text(&output.stderr).lines().next().unwrap_or_default();
    assert!(complaint.contains("/static: it is linked statically"), "{complaint}");

    // One that would run as somebody else: only root can make it.
    let other = roxe.0.join("other");
    fs::copy("/bin/true", &other).expect("there is room");
    if chown(&other, Some(1), None).is_err() {
        return;
    }
    fs::set_permissions(&other, fs::Permissions::from_mode(0o4755)).expect("it is ours");
    let output = roxe.run(&["-d", "udp:127.0.0.7", "--", other.to_str().expect("text")]);
    assert_eq!(output.status.code(), Some(0));
    let complaint = text(&output.stderr);
    assert_eq!(complaint.lines().count(), 1, "{complaint}");
    assert!(complaint.contains("/other: it gets other rights when it is started"), "{complaint}");
}

/// What AF_XDP takes.
const RIGHTS: CapabilitySet = CapabilitySet::NET_ADMIN
    .union(CapabilitySet::NET_RAW)
    .union(CapabilitySet::BPF)
    .union(CapabilitySet::IPC_LOCK);

/// The loader takes variables from a program that gets capabilities, as `roxe` itself may. Only
/// root can give it any.
#[test]
fn with_capabilities_of_its_own_the_program_gets_the_library_all_the_same() {
    let roxe = Installed::new("capable").with_library();
    if !roxe.give(CapabilitySet::NET_RAW) {
        return;
    }
    let asks = "echo $LD_LIBRARY_PATH; cat $ROXE_STORIES && echo and stories";
    let mut command = roxe.nobodys(&["-d", "udp:127.0.0.7", "--", "sh", "-c", asks]);
    let output = command.env("LD_LIBRARY_PATH", "/theirs").output().expect("roxe runs");
    let (path, rest) = text(&output.stdout).split_once('\n').expect("a line");
    let library = path.strip_suffix(":/theirs").expect("the user's own come after");
    assert!(Path::new(library).join("libibverbs.so.1").exists(), "{output:?}");
    assert_eq!(rest, "and stories\n", "{output:?}");
}

/// Which rights a program has that is run by a roxe with these.
fn rights(roxe: &Installed, devices: &str) -> Vec<String> {
    let asks = ["-d", devices, "--", "grep", "^Cap[IPEA]", "/proc/self/status"];
    let output = roxe.nobodys(&asks).output().expect("roxe runs");
    let lines = text(&output.stdout).lines().map(|line| line.replace('\t', " "));
    let lines: Vec<_> = lines.collect();
    assert_eq!(lines.len(), 4, "{output:?}");
    lines
}

fn all_four(rights: CapabilitySet) -> Vec<String> {
    let names = ["CapInh", "CapPrm", "CapEff", "CapAmb"];
    names.map(|name| format!("{name}: {:016x}", rights.bits())).into()
}

#[test]
fn what_af_xdp_takes_is_handed_on_where_an_adapter_may_want_it() {
    let roxe = Installed::new("rights").with_library();
    if !roxe.give(RIGHTS | CapabilitySet::KILL) {
        return;
    }
    for devices in ["xdp:eth1", "auto:eth1", "udp:127.0.0.7;xdp:eth1"] {
        assert_eq!(rights(&roxe, devices), all_four(RIGHTS), "{devices}");
    }
    for devices in ["udp:127.0.0.7", "host:127.0.0.7", "memory:x"] {
        assert_eq!(rights(&roxe, devices), all_four(CapabilitySet::empty()), "{devices}");
    }
    // It has no more to give than it got.
    assert!(roxe.give(CapabilitySet::NET_RAW));
    assert_eq!(rights(&roxe, "xdp:eth1"), all_four(CapabilitySet::NET_RAW));
}

/// A user without rights, a `roxe` with some, two hosts.
#[test]
fn with_capabilities_of_roxe_anybody_runs_programs_on_af_xdp() {
    if !is_root() {
        return;
    }
    let Some(roxe) = Installed::new("anybody").with_built_library() else { return };
    let cable = Cable::new(1500);
    let run =
        |arguments: &[&str]| cable.a.run(|| roxe.nobodys(arguments).output()).expect("roxe runs");
    let info = ["-d", "xdp:va", "--", "ibv_devinfo"];
    let refused = run(&info);
    assert!(text(&refused.stderr).contains("+ep $(command -v roxe)`, "), "{refused:?}");
    if !roxe.give(RIGHTS) {
        return;
    }
    let output = run(&info);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(text(&output.stdout).contains("PORT_ACTIVE"), "{output:?}");

    let server = ["-d", "xdp:va", "--", "ibv_rc_pingpong", "-c", "-g", "0"];
    let mut server = cable
        .a
        .run(|| roxe.nobodys(&server).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn())
        .expect("roxe runs");
    // 18515 is 4853 of the table, and 0A who listens.
    let listens = || {
        let tables = ["tcp", "tcp6"].map(|it| format!("/proc/thread-self/net/{it}"));
        let has = |table: String| {
            let table = fs::read_to_string(table).unwrap_or_default();
            table.lines().any(|line| line.contains(":4853 ") && line.contains(" 0A "))
        };
        tables.into_iter().any(has)
    };
    eventually(|| cable.a.run(listens) || server.try_wait().is_ok_and(|ended| ended.is_some()));
    let client = ["-d", "xdp:vb", "--", "ibv_rc_pingpong", "-c", "-g", "0", "192.0.2.1"];
    let client = cable.b.run(|| roxe.nobodys(&client).output()).expect("roxe runs");
    if !client.status.success() {
        let _ = server.kill();
    }
    let server = server.wait_with_output().expect("it ends");
    for output in [&client, &server] {
        assert!(output.status.success(), "{client:?}\n{server:?}");
        assert!(text(&output.stdout).contains("1000 iters in"), "{output:?}");
    }
}

#[test]
fn what_is_missing_is_said() {
    let roxe = Installed::new("missing");
    let output = roxe.run(&["-d", "udp:127.0.0.7", "--", "true"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output.stderr).contains("libibverbs.so.1 is neither in"), "{output:?}");
    let roxe = roxe.with_library();
    let output = roxe.run(&["-d", "udp:127.0.0.7", "--", "no-such-program"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output.stderr).contains("no-such-program: No such file"), "{output:?}");
    let output = roxe.run(&["-d", "tap:x", "--", "true"]);
    assert_eq!(output.status.code(), Some(2));
    let expected = "roxe: device `tap:x`: `tap` is none of xdp, udp, auto, host, memory\n";
    assert_eq!(text(&output.stderr), expected);
}

/// A program of ours says with whom it was connected, and is killed, or ends without a word: its
/// peer hears of it as soon as it has ended. Who ends behind `roxe run` is none of its business.
#[test]
fn peers_of_a_program_that_is_killed_are_parted_from() {
    let roxe = Installed::new("killed").with_library();
    let peer = UdpSocket::bind("127.0.78.2:4791").expect("nobody has it");
    peer.set_read_timeout(Some(Duration::from_secs(20))).expect("a socket");
    let leaves = |process: &str| {
        format!(
            "printf '%s\\n' '{process} b 127.0.78.1 127.0.78.2 - 0 5 6 7' \
             'no record' '1 b 127.0.78.1 127.0.78.2 - 0 8 6 7' >$ROXE_WILL"
        )
    };
    let devices = "udp:127.0.78.3;b=udp:127.0.78.1,fault=drop 100%";
    for (ends, status) in [("kill -KILL $$", 137), ("exit 3", 3)] {
        let leaves = leaves("'$$'");
        let program = format!("{leaves}; {ends}");
        let output =
            roxe.run(&["-d", devices, "--capture", "/dev/full", "--", "sh", "-c", &program]);
        assert_eq!(output.status.code(), Some(status), "{}", text(&output.stderr));
        let mut packets = Vec::new();
        let mut packet = [0; 400];
        let (len, from) = peer.recv_from(&mut packet).expect("a request");
        packets.push(packet[..len].to_vec());
        assert_eq!(from.ip().to_string(), "127.0.78.1");
        peer.set_nonblocking(true).expect("a socket");
        while let Ok(len) = peer.recv(&mut packet) {
            packets.push(packet[..len].to_vec());
        }
        peer.set_nonblocking(false).expect("a socket");
        for packet in packets {
            // Behind BTH and DETH a management datagram: which it is, and the two names.
            let datagram = &packet[20..];
            assert_eq!(datagram[16..18], [0, 0x15], "DREQ");
            assert_eq!(datagram[24..32], [0, 0, 0, 5, 0, 0, 0, 6], "whose process has ended");
        }
    }
}
