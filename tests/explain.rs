//! `roxe explain` and `roxe check` as programs: arguments, exit codes, what goes where.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use roxe_net::capture_file::{CaptureWriter, LinkType, NewInterface, NewRecord};
use serde_json::Value;

fn roxe() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_roxe"));
    command.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("pcaps"));
    command
}

fn run(arguments: &[&str]) -> Output {
    roxe().args(arguments).output().expect("the program runs")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("the output is text")
}

fn objects(output: &Output) -> Vec<Value> {
    text(&output.stdout).lines().map(|line| serde_json::from_str(line).expect(line)).collect()
}

/// A capture of the collection.
fn stored(name: &str) -> Vec<u8> {
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("pcaps").join(name)).unwrap()
}

/// A file in the target folder.
fn scratch(name: &str, bytes: &[u8]) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, bytes).unwrap();
    path
}

#[test]
fn a_file_that_cannot_be_read_is_named_and_the_others_are_still_explained() {
    for command in ["explain", "check"] {
        let output = run(&[command, "no-such.pcap", "rc_send.pcap"]);
        assert_eq!(output.status.code(), Some(2));
        assert!(text(&output.stderr).contains("no-such.pcap"), "{}", text(&output.stderr));
        assert!(text(&output.stdout).contains("8 RoCE frames"), "{}", text(&output.stdout));
    }
    let junk = scratch("junk.pcap", b"this is no capture");
    let output = run(&["explain", junk.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("junk.pcap"));
}

#[test]
fn a_wrong_filter_is_a_usage_error() {
    let output = run(&["explain", "--filter", "bth.opcod == 4", "rc_send.pcap"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("column 1"), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("`bth.opcode`"));
    assert_eq!(run(&["explain"]).status.code(), Some(2));
    assert_eq!(run(&["check"]).status.code(), Some(2));
}

#[test]
fn filters_choose_frames() {
    let frames = |filter: &str, capture: &str| -> Vec<u64> {
        let output = run(&["explain", "--json", "--no-summary", "--filter", filter, capture]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        objects(&output).iter().map(|object| object["frame"].as_u64().unwrap()).collect()
    };
    assert_eq!(frames("icrc == bad", "corrupt_req_send.pcap"), [1, 8, 9, 16, 18, 19, 26, 31]);
    assert_eq!(frames("aeth.kind in {nak}", "corrupt_req_send.pcap"), [3, 21, 29, 34]);
    assert_eq!(frames("aeth.kind != ack", "corrupt_req_send.pcap"), [3, 21, 29, 34]);
    assert_eq!(frames("not frame > 2", "rc_send.pcap"), [1, 2]);
    // No frame has a tag: nothing holds of it, and so the contrary does.
    assert_eq!(frames("frame <= 2 and vlan != 5", "rc_send.pcap"), [0; 0]);
    assert_eq!(frames("frame <= 2 and not vlan == 5", "rc_send.pcap"), [1, 2]);
    assert_eq!(frames("frame == 1 or frame >= 8", "rc_send.pcap"), [1, 8]);
    assert_eq!(frames("bth.a == true and src == 10.10.0.2", "rc_send.pcap"), [0; 0]);
    assert_eq!(frames("cm.req.ip_cm.dip4 == 10.10.0.2", "cm_rping.pcap"), [1]);
    assert_eq!(frames("notes.kind == gap", "corrupt_req_send.pcap"), [17, 27]);
    assert_eq!(frames("reth.va == 0x7f0000001400", "made_hardware.pcap"), [19]);
    assert_eq!(frames("time_relative == 0.00001", "made_hardware.pcap"), [2]);
    assert_eq!(frames("time_relative in {5.5, 0.00001, 0}", "made_hardware.pcap"), [1, 2]);
    assert_eq!(frames("reth.va in {1, 0x7f0000001400}", "made_hardware.pcap"), [19]);
    let notes = "notes.kind in {message, gap} and frame > 16";
    assert_eq!(frames(notes, "corrupt_req_send.pcap"), [17, 27, 30, 32, 40]);
    let notes = "(notes.kind == gap or notes.kind == message) and frame > 16";
    assert_eq!(frames(notes, "corrupt_req_send.pcap"), [17, 27, 30, 32, 40]);
    let several = "src == 10.10.0.1 or frame == 8 or frame == 1";
    assert_eq!(frames(several, "rc_send.pcap"), [1, 8]);
    let sets = "bth.a in {true} and not dst in {::1, 10.10.0.3}";
    assert_eq!(frames(sets, "rc_send.pcap"), [1, 3, 5, 7]);
}

#[test]
fn json_is_flat_and_has_the_promised_names() {
    let output = run(&["explain", "--json", "rc_mix.pcap"]);
    let objects = objects(&output);
    let (frames, summary): (Vec<_>, Vec<_>) =
        objects.iter().partition(|object| object.get("frame").is_some());
    assert_eq!((frames.len(), summary.len()), (44, 2));
    let first = frames[0];
    for (name, value) in [
        ("bth.opcode", Value::from(0)),
        ("bth.opcode_name", "RC_SEND_FIRST".into()),
        ("bth.destqp", 0x3a.into()),
        ("bth.psn", 4096.into()),
        ("bth.a", false.into()),
        ("bth.p_key", 0xffff.into()),
        ("src", "10.10.0.3".into()),
        ("dst", "10.10.0.2".into()),
        ("payload_len", 1024.into()),
        ("icrc", "good".into()),
        ("conversation", 1.into()),
        ("notes", vec!["message 1: SEND"].into()),
    ] {
        assert_eq!(first[name], value, "{name}");
    }
    assert_eq!(frames[3]["reth.va"], "0x0000563e5623a5dc");
    assert_eq!(frames[2]["aeth.syndrome"], 31);
    assert_eq!(frames[2]["aeth.kind"], "ack");
    for object in &objects {
        let fields = object.as_object().unwrap();
        assert!(fields.values().all(|value| !value.is_object()), "{object}");
    }
    assert_eq!(summary[1]["messages.read"], 4);
}

#[test]
fn a_closed_pipe_is_no_error_and_changes_no_verdict() {
    let wrong = scratch("wrong.roce", b"qp q1 rc expect-psn 5\n+0 > q1 ACK psn 1\n");
    let wrong = wrong.to_str().unwrap();
    let good = "../tests/conformance/rc/zero-length-messages.roce";
    for (arguments, status) in [
        (&["explain", "loss_random_mix.pcap"][..], 0),
        (&["explain", "-v", "rc_mix.pcap"], 0),
        (&["check", "rc_mix.pcap"], 0),
        (&["check", "--json", "rc_mix.pcap", "corrupt_req_send.pcap"], 1),
        (&["replay", "rc_mix.pcap", "err_rnr_multi.pcap"], 1),
        (&["replay", "--json", "err_rnr_multi.pcap", "rc_mix.pcap"], 1),
        (&["replay", "rc_mix.pcap"], 0),
        (&["script", good, wrong], 1),
        (&["script", good], 0),
        (&["sim", "--seeds", "0..2", "--profile", "clean"], 0),
    ] {
        let mut child =
            roxe().args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let mut errors = String::new();
        child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
        let ended = (child.wait().unwrap().code(), errors.as_str());
        let timed = arguments[0] == "sim"; // How long it took is told there.
        assert_eq!(ended, (Some(status), if timed { ended.1 } else { "" }), "{arguments:?}");
    }
}

#[test]
fn standard_input_is_a_file_too() {
    let bytes = stored("rc_send.pcap");
    let mut child =
        roxe().args(["check", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(&bytes).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(text(&output.stdout).starts_with("standard input: 8 RoCE frames"));
}

#[test]
fn a_capture_of_nothing_is_right_and_says_so() {
    let empty = scratch("empty.pcap", &stored("rc_send.pcap")[..24]);
    for command in ["explain", "check"] {
        let output = run(&[command, empty.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(0));
        assert!(text(&output.stderr).contains("no RoCE frame"), "{}", text(&output.stderr));
    }
}

/// Half a capture is never taken for a whole one, but what is there is looked at.
#[test]
fn a_capture_that_ends_in_the_middle_is_no_success() {
    let whole = stored("rc_send.pcap");
    let cut = &whole[..whole.len() - 10];
    // In a gzip file, one stored block is announced whole.
    let announced = u16::try_from(whole.len()).unwrap();
    let mut packed = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff, 1];
    packed.extend(announced.to_le_bytes());
    packed.extend((!announced).to_le_bytes());
    packed.extend(cut);
    for file in [scratch("cut.pcap", cut), scratch("cut.pcap.gz", &packed)] {
        let file = file.to_str().unwrap();
        for arguments in [
            &["check", file][..],
            &["check", "--json", file],
            &["explain", file],
            &["explain", "--no-summary", file],
        ] {
            let output = run(arguments);
            assert_eq!(output.status.code(), Some(2), "{arguments:?}");
            let errors = text(&output.stderr);
            assert!(errors.contains("ends inside record 8"), "{errors}");
        }
        let output = run(&["check", file]);
        let verdict = "7 RoCE frames in 1 conversation, no finding up to where it ends early";
        assert!(text(&output.stdout).contains(verdict), "{}", text(&output.stdout));
    }
}

#[test]
fn a_verdict_on_a_damaged_file_says_how_far_it_goes() {
    let damaged = [stored("rc_send.pcap"), vec![0xff; 16]].concat();
    let file = scratch("damaged.pcap", &damaged);
    let output = run(&["check", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    let words = "8 RoCE frames in 1 conversation, no finding up to where it can be read\n";
    assert!(text(&output.stdout).ends_with(words), "{}", text(&output.stdout));
}

#[test]
fn errors_name_the_file_once_and_print_no_heading() {
    let output = run(&["explain", "no-such.pcap", "/", "rc_send.pcap"]);
    let errors: Vec<&str> = text(&output.stderr).lines().collect();
    let [missing, folder] = errors[..] else { panic!("{errors:?}") };
    assert!(missing.starts_with("roxe: no-such.pcap: cannot be opened: "), "{missing}");
    assert_eq!(missing.matches("no-such.pcap").count(), 1);
    assert_eq!(folder, "roxe: /: is a directory; name its files");
    assert!(text(&output.stdout).starts_with("rc_send.pcap\n"), "{}", text(&output.stdout));
    for command in ["explain", "check"] {
        let output = run(&[command]);
        assert_eq!(output.status.code(), Some(2));
        assert!(text(&output.stderr).contains("`-` for standard input"));
    }
}

#[test]
fn help_explains_columns_flags_and_exit_codes() {
    let output = run(&["explain", "--help"]);
    for words in ["S solicited event", "rel ", "→0x3a", "BAD", "Exit status:", "ends in the middle"]
    {
        assert!(text(&output.stdout).contains(words), "{words}\n{}", text(&output.stdout));
    }
    let output = run(&["check", "--help"]);
    for words in ["facts of a network", "Exit status", "1  findings", "without a RoCE frame"] {
        assert!(text(&output.stdout).contains(words), "{words}\n{}", text(&output.stdout));
    }
}

/// A pcapng of nothing but interfaces and packets: of each interface its link type and, of a packet
/// that was seen on it, when and what.
fn capture(interfaces: &[u16], packets: &[(u32, u64, &[u8])]) -> Vec<u8> {
    let block = |kind: u32, body: &[u8]| {
        let len = u32::try_from(body.len() + 12).unwrap().to_le_bytes();
        [&kind.to_le_bytes()[..], &len, body, &len].concat()
    };
    let magic = 0x1a2b_3c4d_u32.to_le_bytes();
    let mut bytes = block(0x0a0d_0d0a, &[&magic[..], &[1, 0, 0, 0], &[0xff; 8]].concat());
    for link_type in interfaces {
        // Times in nanoseconds.
        let body = [&link_type.to_le_bytes()[..], &[0; 6], &[9, 0, 1, 0, 9, 0, 0, 0]].concat();
        bytes.extend(block(1, &body));
    }
    for (interface, nanos, packet) in packets {
        let (high, low) = ((nanos >> 32) as u32, (nanos & 0xffff_ffff) as u32);
        let len = u32::try_from(packet.len()).unwrap();
        let mut body: Vec<u8> =
            [*interface, high, low, len, len].into_iter().flat_map(u32::to_le_bytes).collect();
        body.extend_from_slice(packet);
        body.resize(body.len().next_multiple_of(4), 0);
        bytes.extend(block(6, &body));
    }
    bytes
}

/// The first frame of a pcap file.
fn first_frame() -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("pcaps/rc_send.pcap");
    let bytes = std::fs::read(path).unwrap();
    let len = u32::from_le_bytes(*bytes[32..].first_chunk().unwrap()) as usize;
    bytes[40..40 + len].to_vec()
}

#[test]
fn times_may_lie_as_far_apart_as_a_file_can_tell() {
    let frame = first_frame();
    for (first, second, relative) in
        [(0, u64::MAX, "18446744073.709551615"), (u64::MAX, 0, "-18446744073.709551615")]
    {
        let bytes = capture(&[1], &[(0, first, &frame), (0, second, &frame)]);
        let path = scratch("times.pcapng", &bytes);
        let path = path.to_str().unwrap();
        assert_eq!(objects(&run(&["explain", "--json", path]))[1]["time_relative"], relative);
        assert!(text(&run(&["explain", path]).stdout).contains(relative));
    }
}

#[test]
fn interfaces_that_cannot_be_read_are_told_by_kind() {
    let frame = first_frame();
    let mut packets: Vec<(u32, u64, &[u8])> = (0..1000).map(|i| (i, 0, &frame[..])).collect();
    let only_infiniband = scratch("infiniband.pcapng", &capture(&[247; 1000], &packets));
    let output = run(&["check", only_infiniband.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("and 995 more") && output.stderr.len() < 1000);
    packets.push((1000, 0, &frame));
    let interfaces: Vec<u16> = [247; 1000].into_iter().chain([1]).collect();
    let mixed = scratch("mixed.pcapng", &capture(&interfaces, &packets));
    let output = run(&["explain", mixed.to_str().unwrap()]);
    assert!(text(&output.stdout).contains("1000 frames of an unsupported kind: InfiniBand"));
    assert!(output.stdout.len() < 1000, "{}", output.stdout.len());
}

#[test]
fn what_a_conversation_was_left_with_is_told() {
    let left = "the request with PSN 4096 (frame 1) was sent 3 times over 38.2 ms and no answer \
                was seen: the capture ends";
    let output = run(&["explain", "err_dead_qpn.pcap"]);
    assert!(text(&output.stdout).ends_with(&format!("\n     ends: {left}\n")));
    let found = objects(&run(&["explain", "--json", "err_dead_qpn.pcap"]));
    assert_eq!(found[3]["ends"], serde_json::json!([left]));
    let found = objects(&run(&["explain", "--json", "rc_send.pcap"]));
    assert_eq!(found[8]["ends"], serde_json::json!([]), "all was answered");
    assert_eq!(found[8]["also"], serde_json::json!([]), "its number is that of its frames");
}

#[test]
fn what_a_file_says_of_a_frame_is_told() {
    let frame = first_frame();
    let long = "x".repeat(101);
    let expected = format!("line 1: {}; then line 2: expected: nothing more", &long[..80]);
    let comments = [Some("lost on \u{1b}[the] way"), None, Some(&*long), Some(&*expected)];
    let mut writer = CaptureWriter::new(Vec::new()).unwrap();
    let interface =
        NewInterface { name: "", description: "", link_type: LinkType::ETHERNET, snap_len: 0 };
    let interface = writer.add_interface(interface).unwrap();
    for comment in comments {
        let record = NewRecord { interface, data: &frame, comment, ..NewRecord::default() };
        writer.write(&record).unwrap();
    }
    let path = scratch("comments.pcapng", &writer.finish().unwrap());
    let path = path.to_str().unwrap();
    let found = objects(&run(&["explain", "--json", path]));
    let told: Vec<_> = found[..4].iter().map(|object| object["comment"].as_str()).collect();
    assert_eq!(told, comments);
    let plain = run(&["explain", "--no-summary", path]);
    let lines: Vec<&str> = text(&plain.stdout).lines().skip(1).collect();
    assert!(lines[0].ends_with(r" · comment: lost on \u{1b}[the] way"), "{}", lines[0]);
    assert!(!lines[1].contains("comment"), "{}", lines[1]);
    let cut = format!(" · comment: {}…", &long[1..]);
    assert!(lines[2].ends_with(&cut), "{}", lines[2]);
    assert!(lines[3].ends_with(&format!(" · comment: {expected}")), "{}", lines[3]);
    let verbose = run(&["explain", "-v", path]);
    let told = |line: &&str| line.contains("comment");
    let lines: Vec<&str> = text(&verbose.stdout).lines().filter(told).collect();
    let of_long = format!("    comment  {long}");
    let of_expected = format!("    comment  {expected}");
    assert_eq!(lines, [r"    comment  lost on \u{1b}[the] way", &of_long, &of_expected]);
    let output = run(&["explain", "--filter", "comment != x and frame < 3", path]);
    assert!(text(&output.stdout).contains("1 of them shown"), "{}", text(&output.stdout));
}

#[test]
fn rules_are_listed_and_findings_are_objects() {
    let output = run(&["check", "--rules"]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(text(&output.stdout).lines().count(), roxe::trace::Rule::ALL.len());
    let output = run(&["check", "rc_mix.pcap", "corrupt_req_send.pcap", "README.md"]);
    let last = "3 files, 1 with findings, 1 not read to the end\n\
                what each rule says: `roxe check --rules`\n";
    assert!(text(&output.stdout).ends_with(last), "{}", text(&output.stdout));
    let output = run(&["check", "--json", "corrupt_req_send.pcap"]);
    assert_eq!(output.status.code(), Some(1));
    let objects = objects(&output);
    assert_eq!(objects[0]["rule"], "icrc");
    assert_eq!(objects[0]["frame"], 1);
    assert_eq!(objects.last().unwrap()["findings"], 8);
}

#[test]
fn colours_only_where_they_are_wanted() {
    assert!(!run(&["explain", "rc_send.pcap"]).stdout.contains(&0x1b));
    assert!(run(&["explain", "--color", "always", "rc_send.pcap"]).stdout.contains(&0x1b));
}

/// A teacher's view: each header with its bits.
#[test]
fn verbose_opens_every_header() {
    let output = run(&["explain", "-v", "--no-summary", "vlan_rc_send.pcap"]);
    let all = text(&output.stdout);
    for line in [
        "    Ethernet  link, 14 bytes",
        "        0  011. ....            priority          3",
        "    BTH  base transport header, 12 bytes",
        "        0  0000 0100            opcode            0x04        RC_SEND_ONLY",
        "        8  1... ....            AckReq            1           the receiver shall answer",
        "       12  0a 0a 64 03          source            10.10.100.3",
    ] {
        assert!(all.lines().any(|found| found == line), "{line}\n{all}");
    }
}

/// What is wrong with a frame does not hide what can be read of it.
#[test]
fn verbose_opens_what_can_be_read_of_broken_frames() {
    for frame in [3, 4, 5, 6, 7, 8, 9, 10, 11, 17] {
        let filter = format!("frame == {frame}");
        let output =
            run(&["explain", "-v", "--no-summary", "--filter", &filter, "made_broken.pcap"]);
        let all = text(&output.stdout);
        for header in ["Ethernet  link", "IPv", "UDP  user datagram", "BTH  base"] {
            let is_there = all.lines().any(|line| line.trim_start().starts_with(header));
            assert!(is_there, "{header} in frame {frame}\n{all}");
        }
    }
    let output = run(&["explain", "--filter", "dropped == header_missing", "made_broken.pcap"]);
    assert!(text(&output.stdout).contains("dropped: RC_"), "{}", text(&output.stdout));
}

/// Long bit fields go on in the next line, under their bits.
#[test]
fn verbose_stays_aligned() {
    for capture in ["rc_send_v6.pcap", "made_annexes.pcap", "rc_atomic_faa.pcap", "ud_send.pcap"] {
        let output = run(&["explain", "-v", "--no-summary", capture]);
        let mut is_payload = false;
        for line in text(&output.stdout).lines() {
            if !line.starts_with("      ") {
                is_payload = line.starts_with("    payload");
            }
            if is_payload || !line.starts_with("      ") {
                continue;
            }
            let bits: String = line.chars().skip(11).take(21).collect();
            assert!(bits.len() < 21 || bits.ends_with("  "), "{capture}: {line}");
        }
    }
    let output = run(&["explain", "-v", "--no-summary", "rc_atomic_faa.pcap"]);
    let all = text(&output.stdout);
    for words in ["52:54:00:10:00:02", "what to add to the memory", "no meaning in FETCH_ADD"] {
        assert!(all.contains(words), "{words}\n{all}");
    }
}

#[test]
fn the_fields_are_listed() {
    // A list is not about a file.
    for list in [["explain", "--fields"], ["check", "--rules"], ["script", "--words"]] {
        let output = run(&[list[0], list[1], "rc_mix.pcap"]);
        assert_eq!(output.status.code(), Some(2), "{list:?}");
    }
    let output = run(&["explain", "--fields"]);
    assert_eq!(output.status.code(), Some(0));
    for name in ["bth.opcode_name", "src", "notes.kind", "cm.req.serviceid", "reth.va"] {
        let is_there = text(&output.stdout).lines().any(|line| line.starts_with(name));
        assert!(is_there, "{name}");
    }
    let output = run(&["explain", "--filter", "icrc == wrong", "rc_send.pcap"]);
    assert_eq!(output.status.code(), Some(2));
}

/// Nothing can be measured before, and still the titles stand above their columns.
#[test]
fn streams_are_aligned() {
    let mut child = roxe()
        .args(["explain", "--no-summary", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(&stored("rc_mix.pcap")).unwrap();
    let output = child.wait_with_output().unwrap();
    let mut columns = text(&output.stdout).lines().map(|line| {
        let icrc = line.find("  ok ").or_else(|| line.find("  ICRC")).expect(line);
        line[..icrc].chars().count()
    });
    let title = columns.next().unwrap();
    assert!(columns.all(|column| column == title), "{}", text(&output.stdout));
}

/// The same capture, had it been taken with this snapshot length.
fn snapped(pcap: &[u8], kept: usize) -> Vec<u8> {
    let (header, mut rest) = pcap.split_at(24);
    let mut bytes = header.to_vec();
    while !rest.is_empty() {
        let len = u32::from_le_bytes(*rest[8..].first_chunk().unwrap()) as usize;
        let (record, behind) = rest.split_at(16 + len);
        let len = len.min(kept);
        bytes.extend_from_slice(&record[..8]);
        bytes.extend(u32::try_from(len).unwrap().to_le_bytes());
        bytes.extend_from_slice(&record[12..16 + len]);
        rest = behind;
    }
    bytes
}

#[test]
fn what_a_short_capture_cannot_show_is_told() {
    let snap = scratch("snap128.pcap", &snapped(&stored("rc_mix.pcap"), 128));
    let snap = snap.to_str().unwrap();
    for command in ["check", "explain"] {
        let output = run(&[command, snap]);
        assert_eq!(output.status.code(), Some(0));
        let words = "24 frames cut by the capture: the ICRC cannot be checked";
        assert!(text(&output.stdout).contains(words), "{}", text(&output.stdout));
        let output = run(&[command, "--json", snap]);
        let objects = objects(&output);
        let file = objects.last().unwrap();
        assert_eq!((&file["icrc_unknown"], &file["cut"]), (&Value::from(24), &Value::from(0)));
    }
}

/// Its PSN is there, so nothing is missing behind it.
#[test]
fn a_frame_with_a_cut_header_is_still_a_packet() {
    let snap = scratch("snap60.pcap", &snapped(&stored("rc_mix.pcap"), 60));
    let snap = snap.to_str().unwrap();
    let output = run(&["check", snap]);
    let verdict = text(&output.stdout);
    assert!(verdict.contains("no finding; 44 frames cut by the capture"), "{verdict}");
    assert!(verdict.contains("; 16 frames cut within the headers"), "{verdict}");
    let filter = "bth.opcode_name == RC_WRITE_FIRST and bth.psn == 4098";
    let output = run(&["explain", "--json", "--no-summary", "--filter", filter, snap]);
    let [frame] = &objects(&output)[..] else { panic!("one frame") };
    for (name, value) in [
        ("frame", Value::from(4)),
        ("bth.destqp", 0x3a.into()),
        ("payload_len", 1024.into()),
        ("conversation", 1.into()),
        ("notes", vec!["message 2: WRITE"].into()),
    ] {
        assert_eq!(frame[name], value, "{name}");
    }
    assert!(frame.get("reth.va").is_none());
    let output = run(&["explain", snap]);
    let words = "WRITE_FIRST          0x3a→0x3a  4098  +2           1024  ?     headers cut";
    assert!(text(&output.stdout).contains(words), "{}", text(&output.stdout));
    // Of an ACK without its AETH nobody knows whether it is one.
    let snap = scratch("snap54.pcap", &snapped(&stored("rc_mix.pcap"), 54));
    let output = run(&["explain", snap.to_str().unwrap()]);
    assert!(text(&output.stdout).contains("  ACKNOWLEDGE  "), "{}", text(&output.stdout));
}

#[test]
fn packets_that_are_not_read_are_part_of_the_verdict() {
    let frame = first_frame();
    let packets: Vec<(u32, u64, &[u8])> = vec![(0, 0, &frame), (1, 1, &frame), (1, 2, &frame)];
    let mixed = scratch("mixed_wifi.pcapng", &capture(&[1, 105], &packets));
    let output = run(&["check", mixed.to_str().unwrap()]);
    let words = "no finding; 2 frames of an unsupported kind: IEEE 802.11 (link type 105)";
    assert!(text(&output.stdout).contains(words), "{}", text(&output.stdout));
    let wifi = scratch("wifi.pcapng", &capture(&[105], &[(0, 0, &frame)]));
    let output = run(&["check", wifi.to_str().unwrap()]);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(2), ""), "no verdict");
    let words = "none of its packets can be read: they are IEEE 802.11 (link type 105);";
    assert!(text(&output.stderr).contains(words), "{}", text(&output.stderr));
}

#[test]
fn roce_v1_is_counted_and_not_read() {
    let frame = first_frame();
    let mut v1 = frame.clone();
    v1[12..14].copy_from_slice(&[0x89, 0x15]);
    let both = scratch("v1_v2.pcapng", &capture(&[1], &[(0, 0, &frame), (0, 1, &v1)]));
    for command in ["check", "explain"] {
        let output = run(&[command, both.to_str().unwrap()]);
        assert!(text(&output.stdout).contains("1 frame of RoCE v1, not read"));
        assert!(!text(&output.stdout).contains("not RoCE"), "{}", text(&output.stdout));
    }
    let alone = scratch("v1.pcapng", &capture(&[1], &[(0, 0, &v1)]));
    let output = run(&["explain", "--json", alone.to_str().unwrap()]);
    assert!(text(&output.stderr).contains("no RoCEv2 frame in it; 1 of v1, not read"));
    let [file] = &objects(&output)[..] else { panic!("one object") };
    assert_eq!((&file["roce_v1_frames"], &file["other_frames"]), (&1.into(), &0.into()));
}

/// Nobody but that manufacturer can say what is wrong with it.
#[test]
fn a_manufacturers_opcode_is_no_error() {
    let output = run(&["explain", "--json", "made_around.pcap"]);
    let objects = objects(&output);
    let frame = objects.iter().find(|object| object["bth.opcode"] == 0xe3).unwrap();
    assert!(frame.get("dropped").is_none() && frame["findings"] == Value::Array(vec![]));
    let of = |name: &str| objects.last().unwrap()[name].as_u64().unwrap();
    // Each frame is of a conversation, malformed, or one of these.
    assert_eq!(of("roce_frames"), of("frames") + of("malformed") + of("manufacturers"));
    let output = run(&["explain", "made_around.pcap"]);
    assert!(text(&output.stdout).contains("opcode 0xe3 is a manufacturer's own: not read"));
}

#[test]
fn malformed_frames_have_the_fields_that_can_be_read() {
    let filter = "dropped == pad_count and bth.opcode_name == RC_SEND_ONLY and bth.padcnt == 2";
    let output = run(&["explain", "--json", "--filter", filter, "made_broken.pcap"]);
    let objects = objects(&output);
    assert_eq!((&objects[0]["frame"], &objects[0]["bth.destqp"]), (&10.into(), &0x4b.into()));
    assert!(objects[0].get("payload_len").is_none());
}

#[test]
fn a_filter_that_hides_frames_says_how_many_it_shows() {
    let output = run(&["explain", "--filter", "bth.psn == 1", "rc_mix.pcap"]);
    let words = "\n44 RoCE frames in 1 conversation, 0 of them shown\n";
    assert!(text(&output.stdout).contains(words), "{}", text(&output.stdout));
    let output = run(&["explain", "--json", "--filter", "frame < 3", "rc_mix.pcap"]);
    assert_eq!(objects(&output).last().unwrap()["shown"], 2);
    let output = run(&["explain", "rc_mix.pcap"]);
    assert!(!text(&output.stdout).contains("shown"));
}

#[test]
fn naks_have_one_name_in_both_commands() {
    for command in ["check", "explain"] {
        let output = run(&[command, "err_rnr_recover.pcap"]);
        assert!(text(&output.stdout).contains(" RNR NAK"), "{}", text(&output.stdout));
        let output = run(&[command, "reorder_req_send.pcap"]);
        assert!(text(&output.stdout).contains("3 NAKs"), "{}", text(&output.stdout));
    }
}

#[test]
fn verbose_shows_payload_icrc_and_what_codes_stand_for() {
    let output = run(&["explain", "-v", "--no-summary", "cm_rping.pcap"]);
    let all = text(&output.stdout);
    for words in [
        "cm.req.pppmtu                   5  path MTU 4096 B",
        "cm.req.remoteresptout           20  4.29s",
        "cm.req                          0x108a4423  the sender's communication ID",
        "    payload  256 bytes\n        0  01 07 02 03 ",
        "           and 192 more\n",
    ] {
        assert!(all.contains(words), "{words}\n{all}");
    }
    let output = run(&["explain", "--json", "--no-summary", "cm_rping.pcap"]);
    let icrc = objects(&output)[0]["icrc_value"].as_u64().unwrap();
    assert!(all.contains(&format!("      right: 0x{icrc:08x}\n")));
}

#[test]
fn fields_are_listed_with_what_they_are_compared_with() {
    let output = run(&["explain", "--fields"]);
    let all = text(&output.stdout);
    for line in [
        "mad.method                      number ",
        "cm.req.srq                      true/false ",
        "cm.req.ip_cm.sip4               address ",
        "cm.rej.reason_text              word ",
        "reth.va                         number      RETH, virtual address; a string in --json",
        "time                            seconds     since the start of 1970; a string in --json",
        "file  ",
    ] {
        assert!(all.lines().any(|found| found.starts_with(line)), "{line}\n{all}");
    }
    let kinds = all.lines().find(|line| line.starts_with("notes.kind")).unwrap();
    assert!(roxe::trace::Note::KINDS.iter().all(|kind| kinds.contains(kind)), "{kinds}");
}

#[test]
fn offsets_into_a_compressed_file_say_what_they_count() {
    let whole = stored("rc_send.pcap");
    // One stored block that is announced whole.
    let packed = |kept: usize| {
        let announced = u16::try_from(whole.len()).unwrap();
        let mut packed = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff, 1];
        packed.extend(announced.to_le_bytes());
        packed.extend((!announced).to_le_bytes());
        packed.extend(&whole[..kept]);
        packed
    };
    for (kept, words) in [
        (0, "the compressed stream ends early: 0 bytes are no whole capture header"),
        (60, "the file ends inside record 1 (byte 24 of the unpacked file)"),
    ] {
        let file = scratch("early.pcap.gz", &packed(kept));
        let output = run(&["check", file.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(2));
        assert!(text(&output.stderr).contains(words), "{}", text(&output.stderr));
    }
    // Half of what zstd needs for its first block.
    let zstd = [0x28, 0xb5, 0x2f, 0xfd, 0x04, 0x00, 0x41, 0x00];
    let file = scratch("early.pcap.zst", &zstd);
    let output = run(&["check", file.to_str().unwrap()]);
    let words = "the compressed stream ends early";
    assert!(text(&output.stderr).contains(words), "{}", text(&output.stderr));
}

#[test]
fn commands_that_would_do_nothing_are_refused() {
    for arguments in [["--failures", "0"], ["--threads", "0"], ["--profile", "xyzzy"]] {
        let output = run(&[&["sim", "--seeds", "0..1"], &arguments[..]].concat());
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(output.stdout.is_empty() && text(&output.stderr).contains(arguments[0]));
    }
    let output = run(&["sim", "--help"]);
    for profile in roxe_sim::swarm::PROFILES {
        assert!(text(&output.stdout).contains(profile.name), "{}", profile.name);
    }
}

#[test]
fn errors_say_what_they_are_about() {
    let output = run(&["script", "no-such.roce", "/"]);
    let errors: Vec<&str> = text(&output.stderr).lines().collect();
    let [missing, folder] = errors[..] else { panic!("{errors:?}") };
    assert!(missing.starts_with("roxe: no-such.roce: cannot be read: "), "{missing}");
    assert_eq!(folder, "roxe: /: is a directory; name its files");
    let output = run(&["check", "--color", "rc_send.pcap"]);
    let errors = text(&output.stderr);
    assert!(errors.contains("'--color'") && !errors.contains("as a value"), "{errors}");
}

/// Nobody shall take half of an output for all of it.
#[test]
fn output_that_cannot_be_written_is_said_once() {
    for arguments in [
        &["explain", "rc_send.pcap"][..],
        &["--help"],
        &["--version"],
        &["help", "sim"],
        &["script", "-h"],
        &["script", "--words"],
        &["sim", "--profiles"],
        &["sim", "--seed", "1", "--profile", "clean", "--verbose"],
        &["replay", "rc_send.pcap"],
    ] {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let output = roxe().args(arguments).stdout(full).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let told = text(&output.stderr);
        assert!(told.starts_with("roxe: standard output: "), "{told}");
        assert_eq!(told.lines().count(), 1, "{told}");
    }
    let (read, write) = std::io::pipe().unwrap();
    drop(read);
    let output = roxe().arg("--help").stdout(write).output().unwrap();
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""));
}

/// What is said beside the verdicts changes nothing about them.
#[test]
fn a_world_holds_whether_or_not_standard_error_can_be_written() {
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let arguments = ["sim", "--seed", "1", "--profile", "clean"];
    let output = roxe().args(arguments).stderr(full).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stdout));
}

/// A file that is longer than what is measured before the first line.
#[test]
fn lines_stay_aligned_where_numbers_grow() {
    let frame = first_frame();
    let packets: Vec<(u32, u64, &[u8])> = (0..10_001).map(|i| (0, i * 1000, &frame[..])).collect();
    let many = scratch("many.pcapng", &capture(&[1], &packets));
    let output = run(&["explain", "--no-summary", many.to_str().unwrap()]);
    let lines: Vec<&str> = text(&output.stdout).lines().collect();
    assert_eq!(lines.len(), 10_002);
    let column = |line: &str| line.find("10.10.0.3").unwrap();
    assert_eq!(column(lines[1]), column(lines[10_001]));
}
