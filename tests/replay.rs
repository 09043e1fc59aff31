//! `roxe replay` over every capture in `pcaps/`: no difference but those that are listed with a
//! reason in `tests/replay/differences.toml`, and each of those is still seen.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

/// File, frame, role, and in what they differ; for what cannot be compared `-`.
type Found = (String, u64, String, String);

fn captures() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("pcaps");
    let entries = std::fs::read_dir(folder).expect("the folder is there");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "pcap"));
    paths.sort();
    paths
}

fn replay(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_roxe"))
        .arg("replay")
        .args(arguments)
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("pcaps"))
        .output()
        .expect("the program runs")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("it prints text")
}

fn objects(output: &Output) -> Vec<Value> {
    let lines = text(&output.stdout).lines();
    lines.map(|line| serde_json::from_str(line).expect("a line is an object")).collect()
}

fn word(object: &Value, name: &str) -> String {
    object[name].as_str().unwrap_or("-").to_owned()
}

fn found(object: &Value) -> Found {
    let number = object["frame"].as_u64().expect("it names its frame");
    (word(object, "file"), number, word(object, "role"), word(object, "differs"))
}

/// What the list has, each with a reason and a verdict.
fn listed() -> BTreeSet<Found> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/replay/differences.toml");
    let list = std::fs::read_to_string(path).expect("the list is there");
    let list: toml::Table = list.parse().expect("the list is TOML");
    let mut rows = BTreeSet::new();
    for kind in ["difference", "not_comparable"] {
        for row in list[kind].as_array().expect("a list of tables") {
            let say = |name: &str| row.get(name).and_then(toml::Value::as_str).unwrap_or("-");
            assert!(say("why").len() > 20, "{row:?}: why?");
            let right = ["ours", "theirs", "both"].contains(&say("right"));
            assert!(right || kind == "not_comparable", "{row:?}: who is right?");
            for frame in row["frames"].as_array().expect("frames") {
                let frame = frame.as_integer().and_then(|frame| u64::try_from(frame).ok());
                let (file, role) = (say("file").to_owned(), say("role").to_owned());
                rows.insert((file, frame.expect("a number"), role, say("differs").to_owned()));
            }
        }
    }
    rows
}

#[test]
fn every_capture_replays_but_for_what_is_listed() {
    let mut all = BTreeSet::new();
    for capture in captures() {
        let name = capture.file_name().unwrap().to_str().unwrap();
        let output = replay(&["--json", name]);
        let objects = objects(&output);
        let rows: Vec<_> = objects.iter().filter(|object| object["frame"].is_u64()).collect();
        let differs = rows.iter().any(|row| row["differs"].is_string());
        let expected = Some(i32::from(differs));
        assert_eq!(output.status.code(), expected, "{name}: {}", text(&output.stderr));
        all.extend(rows.into_iter().map(found));
        // Nothing is the same because nothing was looked at.
        let compared = |side: &Value| side["compared"].as_u64().unwrap_or(0);
        let compared: u64 = objects.iter().map(compared).sum();
        assert!(compared > 0, "{name}: nothing was compared");
    }
    let listed = listed();
    let new: Vec<_> = all.difference(&listed).collect();
    let gone: Vec<_> = listed.difference(&all).collect();
    assert!(new.is_empty(), "not in tests/replay/differences.toml: {new:#?}");
    assert!(gone.is_empty(), "in tests/replay/differences.toml, and not seen any more: {gone:#?}");
}

#[test]
fn a_clean_capture_is_the_same_and_says_so() {
    let output = replay(&["rc_mix.pcap"]);
    assert_eq!(output.status.code(), Some(0));
    let said = text(&output.stdout);
    assert!(said.contains("responder  10.10.0.2 QP"), "{said}");
    assert!(said.contains("requester  10.10.0.3 QP"), "{said}");
    assert_eq!(said.matches("the same").count(), 2, "{said}");
    assert!(said.ends_with("44 RoCE frames, 2 sides played, no difference\n"), "{said}");
}

#[test]
fn a_difference_is_told_with_its_frame_and_both_words() {
    let output = replay(&["err_toolong_send.pcap"]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stdout);
    let line = "frame 2: code: recorded NAK psn 4096 remote operational error; \
                ours NAK psn 4096 invalid request";
    assert!(said.contains(line), "{said}");
    let known = format!("{line} (Linux rxe does this; ours follows the specification: ");
    assert!(said.contains(&known), "{said}");
}

#[test]
fn as_another_device_its_habits_are_no_differences() {
    for capture in ["err_toolong_send.pcap", "err_toolong_multi.pcap", "err_rnr_multi.pcap"] {
        let rxe = replay(&["--as", "rxe", capture]);
        assert_eq!(rxe.status.code(), Some(0), "{}", text(&rxe.stdout));
        let connectx = replay(&["--as", "connectx", capture]);
        assert_eq!(connectx.status.code(), Some(1), "{}", text(&connectx.stdout));
        assert!(!text(&connectx.stdout).contains("Linux rxe"), "{}", text(&connectx.stdout));
        // As ours, every one of them is known.
        let output = replay(&["--json", capture]);
        let objects = objects(&output);
        let differences: Vec<_> = objects.iter().filter(|one| one["differs"].is_string()).collect();
        assert!(!differences.is_empty(), "{capture}");
        assert!(differences.iter().all(|one| one["known_of"] == "rxe"), "{differences:#?}");
    }
    let output = replay(&["--as", "rxe", "loss_read_resp.pcap"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stdout));
    let output = replay(&["--as", "a-switch", "rc_mix.pcap"]);
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn a_queue_pair_that_ended_says_why() {
    for (capture, why) in [
        (
            "err_rkey_write.pcap",
            "why, as set up here: access error: the peer's RC_WRITE_ONLY, PSN 4096",
        ),
        ("err_rkey_write.pcap", "why: remote access error: WRITE of 64 bytes"),
        ("err_rnr_exceeded.pcap", "if it gave up at the end of the recording: RNR retry exceeded"),
        ("err_dead_qpn.pcap", "if it gave up at the end of the recording: retry exceeded"),
        ("loss_retry_exceeded.pcap", "if it gave up at the end of the recording: retry exceeded"),
        ("err_qp_closed.pcap", "PSN 4096 was sent 3 times, timed out 3 times; the peer never"),
    ] {
        let output = replay(&[capture]);
        assert_eq!(output.status.code(), Some(0), "{capture}");
        assert!(text(&output.stdout).contains(why), "{why}: {}", text(&output.stdout));
    }
    let output = replay(&["--json", "err_rkey_write.pcap"]);
    let whys = objects(&output).iter().filter(|side| side["why"].is_string()).count();
    assert_eq!(whys, 2, "{}", text(&output.stdout));
    let output = replay(&["rc_mix.pcap"]);
    assert!(!text(&output.stdout).contains("why"), "{}", text(&output.stdout));
}

/// Its device's own keys stand for the recorded ones, and are not told.
#[test]
fn a_reason_has_the_recorded_key() {
    let output = replay(&["made_hardware.pcap"]);
    let said = text(&output.stdout);
    let reason = said.lines().find(|line| line.contains("no region or window has this key"));
    let reason = reason.expect("one is refused");
    assert!(reason.contains("why, as set up here: access error: "), "{reason}");
    assert!(reason.contains(", rkey 0x1234: "), "{reason}");
}

/// Atomics of several connections on the same words, and queue pairs that were set up anew: what
/// our own worlds record is the same when it is played.
#[test]
fn what_a_world_recorded_replays_without_difference() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    for (seed, profile, shows) in [("7", "lossy", " app changed"), ("3", "srq", " delivered")] {
        let path = folder.join(format!("replayed-{profile}.pcapng"));
        let path = path.to_str().unwrap();
        let world = ["sim", "--seed", seed, "--profile", profile, "--peer", "adapter"];
        let mut program = Command::new(env!("CARGO_BIN_EXE_roxe"));
        let status = program.args(world).args(["--capture", path]).output().unwrap().status;
        assert_eq!(status.code(), Some(0));
        let output = replay(&[path]);
        let said = text(&output.stdout);
        assert_eq!(output.status.code(), Some(0), "{said}");
        assert!(said.contains(shows) && said.ends_with(" no difference\n"), "{said}");
    }
}

#[test]
fn frames_that_are_cut_are_not_said_to_be_the_same() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let whole = std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("pcaps/rc_mix.pcap"));
    let whole = whole.unwrap();
    let (header, mut rest) = whole.split_at(24);
    let mut short = header.to_vec();
    while let Some((record, behind)) = rest.split_at_checked(16) {
        let len = u32::from_le_bytes(record[8..12].try_into().unwrap());
        let kept = len.min(60);
        short.extend_from_slice(&record[..8]);
        short.extend_from_slice(&kept.to_le_bytes());
        short.extend_from_slice(&record[12..]);
        short.extend_from_slice(&behind[..kept as usize]);
        rest = &behind[len as usize..];
    }
    let path = folder.join("cut.pcap");
    std::fs::write(&path, short).unwrap();
    let output = replay(&[path.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    let said = text(&output.stdout);
    assert!(said.contains(" 0  compared: cannot be compared\n"), "{said}");
    assert!(said.contains("sides played, nothing could be compared; 2 places"), "{said}");
}

#[test]
fn what_is_assumed_of_datagrams_is_said() {
    let output = replay(&["ud_bad_qkey.pcap"]);
    assert_eq!(output.status.code(), Some(0));
    let said = text(&output.stdout);
    assert!(said.contains("Q_Key is not on the wire"), "{said}");
    assert!(said.contains("assumed to be right"), "{said}");
}

#[test]
fn what_cannot_be_read_or_replayed_is_no_success() {
    for (arguments, why) in [
        (&["nowhere.pcap"][..], "cannot be opened"),
        (&["README.md"][..], "README.md"),
        (&[][..], "replay needs a capture"),
    ] {
        let output = replay(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(text(&output.stderr).contains(why), "{}", text(&output.stderr));
    }
    // A capture of nothing: the header alone.
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let whole = std::fs::read(captures().first().unwrap()).unwrap();
    let empty = folder.join("empty.pcap");
    std::fs::write(&empty, &whole[..24]).unwrap();
    let output = replay(&[empty.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("no RoCE frame"), "{}", text(&output.stderr));
    // A capture that ends in the middle of a record, with an answer outstanding.
    let half = folder.join("half.pcap");
    let whole = std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("pcaps/rc_send.pcap"));
    let whole = whole.unwrap();
    std::fs::write(&half, &whole[..whole.len() - 10]).unwrap();
    let output = replay(&[half.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("7 RoCE frames"), "{}", text(&output.stdout));
    assert!(text(&output.stdout).ends_with("no difference\n"), "{}", text(&output.stdout));
}

/// Only what its UDP port says is for RoCEv2 counts as such, as in `roxe explain`.
#[test]
fn what_is_not_for_the_port_is_no_roce_frame() {
    let whole = std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("pcaps/rc_send.pcap"));
    let whole = whole.unwrap();
    let len = u32::from_le_bytes(*whole[32..].first_chunk().unwrap()) as usize;
    let (header, frame) = (&whole[..24], &whole[40..40 + len]);
    let record = |kept: &[u8]| {
        let lens = [kept.len(), len].map(|len| u32::try_from(len).unwrap().to_le_bytes());
        [&[0; 8][..], &lens.concat(), kept].concat()
    };
    let mut v1 = frame.to_vec();
    v1[12..14].copy_from_slice(&[0x89, 0x15]);
    // Broken, one to the port and one to another.
    let mut checksum = frame.to_vec();
    checksum[24] ^= 1;
    let mut other = checksum.clone();
    other[36..38].copy_from_slice(&53_u16.to_be_bytes());
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let mixed = folder.join("for_the_port.pcap");
    // Cut behind the port, and before it.
    let records = [&whole[24..], &record(&v1), &record(&checksum), &record(&other)].concat();
    let cut = [record(&frame[..45]), record(&frame[..34])].concat();
    std::fs::write(&mixed, [header, &records, &cut].concat()).unwrap();
    let said = objects(&replay(&["--json", mixed.to_str().unwrap()]));
    let file = said.last().unwrap();
    for (name, count) in [
        ("roce_frames", 10),
        ("roce_v1_frames", 1),
        ("malformed", 1),
        ("cut", 1),
        ("differences", 0),
    ] {
        assert_eq!(file[name], count, "{name} in {file}");
    }
    let output = replay(&[mixed.to_str().unwrap()]);
    let words = "; 1 malformed frame; 1 cut frame; 1 frame of RoCE v1 not read\n";
    assert!(text(&output.stdout).contains(words), "{}", text(&output.stdout));
    let alone = folder.join("v1_alone.pcap");
    std::fs::write(&alone, [header, &record(&v1)].concat()).unwrap();
    let output = replay(&[alone.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    let words = "no RoCEv2 frame in it; 1 of v1, not read";
    assert!(text(&output.stderr).contains(words), "{}", text(&output.stderr));
}
