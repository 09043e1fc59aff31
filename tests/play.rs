//! `roxe script` and `roxe sim` from outside: what they print, and their exit statuses.

use std::process::{Command, Output};

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_roxe")).args(arguments).output().expect("roxe runs")
}

fn said(output: &Output) -> (Option<i32>, String) {
    let all = [&output.stdout[..], &output.stderr[..]].concat();
    (output.status.code(), String::from_utf8(all).expect("text"))
}

#[test]
fn scripts_come_true_or_say_what_came_instead() {
    let good = "tests/conformance/rc/zero-length-messages.roce";
    let (status, text) = said(&run(&["script", good]));
    assert_eq!(status, Some(0), "{text}");
    assert!(text.contains("zero-length-messages.roce: ok"), "{text}");

    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));
    let wrong = folder.join("wrong.roce");
    let right = std::fs::read_to_string(good).unwrap();
    std::fs::write(&wrong, format!("{right}\n+0  > q1 ACK psn 1\n")).unwrap();
    let (status, text) = said(&run(&["script", good, wrong.to_str().unwrap()]));
    assert_eq!(status, Some(1), "{text}");
    assert!(text.contains("wrong.roce:"), "{text}");

    let (status, text) = said(&run(&["script", "README.md"]));
    assert_eq!(status, Some(2), "{text}");
    assert_eq!(said(&run(&["script"])).0, Some(2));
}

#[test]
fn a_seed_is_the_same_world_every_time() {
    let arguments = ["sim", "--seed", "7", "--profile", "chaos"];
    let counts = |output: Output| {
        let (status, text) = said(&output);
        assert_eq!(status, Some(0), "{text}");
        let line = text.lines().find(|line| line.starts_with("chaos")).unwrap_or_default();
        line.split_whitespace().take(5).map(str::to_owned).collect::<Vec<_>>()
    };
    let first = counts(run(&arguments));
    assert_eq!([&*first[0], &*first[1], &*first[4]], ["chaos", "1", "0"]);
    assert_eq!(counts(run(&arguments)), first);
    let like = |peer| counts(run(&[arguments.as_slice(), &["--peer", peer]].concat()));
    assert_ne!(like("rxe"), like("roxe,connectx"));
    for wrong in [
        ["--seeds", "5..5"],
        ["--profile", "nope"],
        ["--change", "what=1"],
        ["--change", "devices=1"],
        ["--change", "pairs=0"],
        ["--peer", "nope"],
    ] {
        let (status, text) = said(&run(&[["sim"].as_slice(), &wrong].concat()));
        assert_eq!(status, Some(2), "{text}");
        assert!(text.contains(wrong[0]), "{text}");
    }
}

/// The last seeds that there are make worlds too.
#[test]
fn the_greatest_seeds_are_run() {
    let seeds = "18446744073709551612..18446744073709551615";
    let (status, text) = said(&run(&["sim", "--profile", "clean", "--seeds", seeds]));
    assert_eq!(status, Some(0), "{text}");
    let line = text.lines().find(|line| line.starts_with("clean")).unwrap_or_default();
    assert_eq!(line.split_whitespace().nth(1), Some("3"), "{text}");
}
