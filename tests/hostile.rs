//! Inputs that mean harm, and readers that go away.

use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};

fn roxe() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_roxe"));
    command.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("pcaps"));
    command
}

/// `roxe check BAD | head -0` under `pipefail` must not take a bad capture for a good one.
#[test]
fn whoever_stops_reading_findings_still_learns_that_there_are_some() {
    let mut child = roxe()
        .args(["check", "made_broken.pcap"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let mut errors = String::new();
    child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
    assert_eq!((child.wait().unwrap().code(), errors.as_str()), (Some(1), ""));
}

#[test]
fn names_cannot_command_the_terminal() {
    for arguments in [
        &["check", "a\u{1b}[31m\nb.pcap"][..],
        &["explain", "a\u{1b}[31m\nb.pcap"],
        &["explain", "--filter", "\u{1b}[31m == 1", "rc_send.pcap"],
    ] {
        let output = roxe().args(arguments).output().unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{errors}");
        assert!(errors.contains("\\u{1b}") && !errors.contains('\u{1b}'), "{errors:?}");
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let name = "forged\n\u{7}line.pcap";
    std::fs::write(folder.join(name), include_bytes!("../pcaps/rc_send.pcap")).unwrap();
    let output = roxe().current_dir(folder).args(["check", name]).output().unwrap();
    let told = String::from_utf8(output.stdout).unwrap();
    assert_eq!(told.lines().count(), 1, "{told:?}");
    assert!(told.starts_with("forged\\n\\u{7}line.pcap: 8 RoCE frames"), "{told:?}");
}
