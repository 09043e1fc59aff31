//! `roxe run` from outside. The library itself is tried in `crates/ibverbs`.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};

/// The program, with a library beside it: `cargo test -p roxe` alone builds none.
struct Installed(PathBuf);

impl Installed {
    /// In a folder of its own, as it is installed.
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("roxe-run-{}-{name}", std::process::id()));
        for part in ["bin", "lib/roxe"] {
            std::fs::create_dir_all(folder.join(part)).expect("there is room");
        }
        std::fs::copy(env!("CARGO_BIN_EXE_roxe"), folder.join("bin/roxe")).expect("there is room");
        Self(folder)
    }

    fn with_library(self) -> Self {
        std::fs::write(self.0.join("lib/roxe/libibverbs.so.1"), "").expect("there is room");
        self
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.0.join("bin/roxe"));
        command.arg("run").args(arguments).stdin(Stdio::null());
        command.env_remove("LD_LIBRARY_PATH").env_remove("ROXE_DEVICES");
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("roxe runs")
    }
}

impl Drop for Installed {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
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
    let expected = "roxe: device `tap:x`: `tap` is none of xdp, udp, auto, memory\n";
    assert_eq!(text(&output.stderr), expected);
}
