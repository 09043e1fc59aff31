//! `roxe script` and `roxe sim` from outside: what they print, and their exit statuses.

use std::io::Write as _;
use std::process::{Command, Output, Stdio};

use serde_json::json;

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
    assert_eq!((status, text.lines().count()), (Some(2), 1), "{text}");
    assert!(text.starts_with("roxe: README.md: no script: "), "{text}");
    assert_eq!(said(&run(&["script"])).0, Some(2));
}

#[test]
fn a_device_elsewhere_is_named_by_its_address() {
    let good = "tests/conformance/rc/zero-length-messages.roce";
    let (status, text) = said(&run(&["script", "--peer", "nowhere", good]));
    #[cfg(not(feature = "af_xdp"))]
    assert_eq!(status, Some(3), "{text}");
    #[cfg(feature = "af_xdp")]
    assert_eq!(status, Some(2), "{text}");
    #[cfg(feature = "af_xdp")]
    assert!(text.contains("--peer nowhere: an address is wanted"), "{text}");
    #[cfg(feature = "af_xdp")]
    assert_eq!(said(&run(&["script", "--peer", "::1", "--as", "toaster", good])).0, Some(2));
    // What is about the device needs one.
    for option in ["--as", "--qpn", "--untold"] {
        assert_eq!(said(&run(&["script", option, "1", good])).0, Some(2), "{option}");
    }
}

#[test]
fn what_is_said_of_a_device_elsewhere_is_in_its_range() {
    let good = "tests/conformance/rc/zero-length-messages.roce";
    for (option, value) in [
        ("--qpn", "0x1000011"),
        ("--qpn", "18446744073709551615"),
        ("--rkey", "0x100000001"),
        ("--untold", "access-error,foo"),
        ("--silence", "60001"),
        ("--slack", "18446744073709551615"),
    ] {
        // Of this address nothing is asked, whatever the arguments.
        let peer = ["script", "--peer", "nowhere", option, value];
        let qpn: &[&str] = if option == "--qpn" { &[] } else { &["--qpn", "5"] };
        let (status, text) = said(&run(&[&peer, qpn, &[good]].concat()));
        assert_eq!(status, Some(2), "{text}");
        assert!(text.contains(&format!("'{option} <")), "{text}");
    }
}

#[test]
fn a_capture_takes_the_place_of_nothing_that_is_read() {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));
    let refused = |own: &std::path::Path, text: &str, arguments: &[&str]| {
        let (status, said) = said(&run(arguments));
        assert_eq!(status, Some(2), "{said}");
        assert!(said.contains("own") && said.contains(", which is read"), "{said}");
        assert_eq!(std::fs::read_to_string(own).unwrap(), text);
    };
    let own = folder.join("own.roce");
    std::fs::write(&own, EXCHANGE).unwrap();
    let link = folder.join("own-link.roce");
    let _ = std::fs::remove_file(&link);
    std::os::unix::fs::symlink(&own, &link).unwrap();
    for capture in [&own, &link] {
        let words = ["script", "--capture", capture.to_str().unwrap(), own.to_str().unwrap()];
        refused(&own, EXCHANGE, &words);
    }
    let config = folder.join("own.toml");
    let devices = "[a]\nport = \"memory:x\"\n[b]\nport = \"memory:y\"\n";
    std::fs::write(&config, devices).unwrap();
    // The second device's recording has a number behind the name.
    let numbered = folder.join("own_1.toml");
    std::fs::write(&numbered, devices).unwrap();
    for read in [&config, &numbered] {
        let words = ["run", "--config", read.to_str().unwrap(), "--capture"];
        refused(read, devices, &[&words[..], &[config.to_str().unwrap(), "--", "true"]].concat());
    }
}

/// Runs with something on standard input.
fn run_with(arguments: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_roxe"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("roxe runs");
    child.stdin.take().expect("a pipe").write_all(input.as_bytes()).expect("it reads");
    child.wait_with_output().expect("roxe ends")
}

const EXCHANGE: &str = "qp q1 rc expect-psn 5\n\
                        +0   post recv q1 id 1 len 64\n\
                        +1us < q1 SEND_ONLY psn 5 ack-req \"abc\"\n\
                        +0   > q1 ACK psn 5 msn 1\n\
                        +0   completion recv id 1 ok \"abc\"\n";

#[test]
fn a_script_of_standard_input_tells_all_that_happened() {
    let (status, text) = said(&run_with(&["script", "-v", "-"], EXCHANGE));
    assert_eq!(status, Some(0), "{text}");
    for part in [
        "1us   3 +1us < q1 SEND_ONLY psn 5 ack-req \"abc\"\n",
        "1us     > q1 ACK psn 5 msn 1\n",
        "1us     completion q1 recv id 1 ok op recv len 3\n",
        "standard input: ok, 5 statements\n",
    ] {
        assert!(text.contains(part), "{text}");
    }
    assert_eq!(said(&run_with(&["script", "-"], "")).0, Some(2));
}

#[test]
fn the_frames_of_a_script_are_captured_both_ways() {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));
    let capture = folder.join("script.pcapng");
    let capture = capture.to_str().unwrap();
    let (status, text) = said(&run_with(&["script", "--capture", capture, "-"], EXCHANGE));
    assert_eq!(status, Some(0), "{text}");
    let (status, text) = said(&run(&["check", capture]));
    assert_eq!(status, Some(0), "{text}");
    assert!(text.contains("2 RoCE frames in 1 conversation, no finding"), "{text}");
    let (_, text) = said(&run(&["explain", capture]));
    assert!(text.contains("SEND_ONLY") && text.contains("ACK"), "{text}");
    assert_eq!(said(&run(&["script", "--capture", capture, "a", "b"])).0, Some(2));
    assert_eq!(said(&run_with(&["script", "--capture", "/no/such", "-"], EXCHANGE)).0, Some(2));
    // That is told before anything is played.
    for command in [&["script", "--capture", "-", "-"][..], &["sim", "--capture", "-"]] {
        let told = "roxe: --capture -: name a file, standard output is for what is told\n";
        assert_eq!(said(&run_with(command, EXCHANGE)), (Some(2), told.to_owned()), "{command:?}");
    }
}

#[test]
fn verdicts_on_scripts_are_told_as_json() {
    let verdict = |script: &str| {
        let output = run_with(&["script", "--json", "-"], script);
        let told: serde_json::Value = serde_json::from_slice(&output.stdout).expect("an object");
        (output.status.code(), told)
    };
    let (status, told) = verdict(EXCHANGE);
    assert_eq!((status, &told["verdict"], &told["statements"]), (Some(0), &json!("ok"), &json!(5)));
    let (status, told) = verdict("+0 quiet\n+0 quiet ; counter icrc_bad 1");
    assert_eq!((status, &told["verdict"]), (Some(1), &json!("failed")));
    let place = [&told["line"], &told["column"], &told["message"]];
    assert_eq!(place, [&json!(2), &json!(12), &json!("icrc_bad is 0")]);
    let (status, told) = verdict("+0 state q1 rts\n+0 state q2 rts");
    assert_eq!(
        (status, &told["verdict"], &told["mistakes"]),
        (Some(2), &json!("wrong"), &json!(2))
    );
    assert_eq!((&told["line"], &told["column"]), (&json!(1), &json!(10)));
    let output = run(&["script", "--json", "no such file"]);
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).expect("an object");
    assert_eq!((&told["verdict"], output.status.code()), (&json!("unreadable"), Some(2)));
}

#[test]
fn the_words_of_scripts_are_listed() {
    let (status, text) = said(&run(&["script", "--words"]));
    assert_eq!(status, Some(0), "{text}");
    let has = |words: &str| {
        text.lines().any(|line| line.split_whitespace().collect::<Vec<_>>().join(" ") == words)
    };
    for words in [
        "qp expect-psn from 0 to 0xffffff",
        "qp timeout from 0 to 31",
        "qp gsi its service",
        "statement quiet",
        "packet ATOMIC_ACK",
        "packet READ_RESPONSE_MIDDLE",
        "completion rnr-retry-exceeded",
        "event last-wqe",
        "access remote-write",
        "counter icrc_bad",
        "< outer-vlan from 0 to 0xffff",
    ] {
        assert!(has(words), "{words}");
    }
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
    assert_ne!(like("rxe"), like("adapter,connectx"));
    for wrong in [
        ["--seeds", "5..5"],
        ["--profile", "nope"],
        ["--change", "what=1"],
        ["--change", "devices=1"],
        ["--change", "pairs=0"],
        ["--peer", "nope"],
        ["--faults", "lose 2%"],
        ["--latency", "5"],
        ["--rate", "0"],
    ] {
        let (status, text) = said(&run(&[["sim"].as_slice(), &wrong].concat()));
        assert_eq!(status, Some(2), "{text}");
        assert!(text.contains(wrong[0]), "{text}");
    }
}

/// What stands on standard output does not depend on the machine.
#[test]
fn worlds_are_told_of_the_same_way_everywhere() {
    let arguments = ["sim", "-v", "--seed", "0x7", "--profile", "lossy,dup"];
    let output = run(&arguments);
    let text = String::from_utf8(output.stdout.clone()).expect("text");
    assert_eq!(run(&arguments).stdout, output.stdout);
    let lines: Vec<&str> = text.lines().collect();
    assert!(
        lines[0].starts_with("seed 7 lossy: ") && lines[1].starts_with("seed 7 dup: "),
        "{text}"
    );
    assert!(lines[0].contains(" devices (") && lines[0].contains(" retransmissions, "), "{text}");
    assert_eq!(lines[2], "profile          worlds       frames    requests  worlds failed");
    assert_eq!(
        lines[3..].iter().map(|line| line.split(' ').next()).collect::<Vec<_>>(),
        [Some("lossy"), Some("dup"), Some("all")]
    );
    let output = run(&["sim", "-v", "--json", "--seed", "7", "--profile", "lossy"]);
    let told = String::from_utf8(output.stdout).expect("text");
    let told: Vec<serde_json::Value> =
        told.lines().map(|line| serde_json::from_str(line).expect("an object")).collect();
    assert_eq!((&told[0]["seed"], &told[0]["verdict"]), (&json!(7), &json!("held")));
    assert_eq!((&told[1]["profile"], &told[1]["worlds"]), (&json!("lossy"), &json!(1)));
    assert_eq!((&told[1]["failed"], &told[0]["frames"]), (&json!(0), &told[1]["frames"]));
}

/// Links can be told what to do; the frames of a world that holds can be looked at.
#[test]
fn links_do_what_is_said_and_their_frames_are_captured() {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));
    let capture = folder.join("world.pcapng");
    let capture = capture.to_str().unwrap();
    let of_one = ["sim", "-v", "--seed", "7", "--profile", "clean"];
    let said_of_links = ["--faults", "drop 5%", "--latency", "5us", "--rate", "25"];
    let all = [&of_one[..], &said_of_links, &["--capture", capture]].concat();
    let (status, text) = said(&run(&all));
    assert_eq!(status, Some(0), "{text}");
    assert!(text.contains("links 5000 ns, 25 Gb/s") && text.contains(",drop,mark,"), "{text}");
    let again = |text: &str| text.contains(", 0 retransmissions");
    assert!(text.contains(" lost, ") && text.contains(" Gb/s, bad for "), "{text}");
    assert!(!again(&text), "{text}");
    assert!(again(&said(&run(&of_one)).1));
    let (status, text) = said(&run(&["check", capture]));
    assert_eq!(status, Some(0), "{text}");
    assert!(text.contains("RoCE frames in "), "{text}");
    let never = folder.join("never.pcapng");
    let never = never.to_str().unwrap();
    let of_all = ["sim", "--seeds", "0..2", "--profile", "clean", "--capture", never];
    let (status, text) = said(&run(&of_all));
    assert_eq!(status, Some(0), "{text}");
    assert!(text.contains("never.pcapng was not written: no world failed"), "{text}");
}

/// Where the mistake is more likely in the line than in the word, what is meant is said.
#[test]
fn what_sim_cannot_read_is_told_with_what_it_can() {
    for (arguments, told) in [
        (["--peer", "foo"], "\"foo\" is no device: roxe, adapter, connectx, rxe"),
        (["--faults", "drop, dup"], "rules have `;` between them"),
        (["--faults", "drop dup"], "rules have `;` between them"),
    ] {
        let (status, text) = said(&run(&["sim", "--seed", "1", arguments[0], arguments[1]]));
        assert_eq!(status, Some(2), "{text}");
        assert!(text.contains(told), "{text}");
    }
}

#[test]
fn kinds_of_worlds_are_listed_and_explained() {
    for arguments in [["sim", "--profiles"], ["sim", "--help"]] {
        let (status, text) = said(&run(&arguments));
        assert_eq!(status, Some(0), "{text}");
        for words in ["lossy", "packets are lost", "tiny-window", "late-receives"] {
            assert!(text.contains(words), "{words}: {text}");
        }
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
