//! Inputs that mean harm, and readers that go away.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use roxe_net::capture_file::{LinkType, NewRecord, PcapWriter};
use roxe_wire::{
    Aeth, Bth, Credits, FrameTemplate, Headers, IpPair, MacAddress, Msn, Opcode, Packet, Payload,
    Psn, Qpn, Room, Syndrome, TrafficClass,
};

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

/// A capture of these frames.
fn captured(frames: &[Vec<u8>]) -> Vec<u8> {
    let mut writer = PcapWriter::new(Vec::new(), LinkType::ETHERNET, 0).unwrap();
    for data in frames {
        let wire_len = u32::try_from(data.len()).unwrap();
        writer.write(&NewRecord { data, wire_len, ..NewRecord::default() }).unwrap();
    }
    writer.finish().unwrap()
}

/// The same, in a file in the target folder.
fn capture(name: &str, frames: &[Vec<u8>]) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, captured(frames)).unwrap();
    path
}

/// An IPv6 frame in which these headers stand before UDP to `port`, with PSN 0x070809 in the BTH.
fn extended(first: u8, headers: &[&[u8]], port: u16) -> Vec<u8> {
    let mut ip = vec![0x60, 0, 0, 0, 0, 0, first, 64];
    ip.extend([0xfe; 32]);
    ip.extend(headers.concat());
    ip.extend([0xc0, 0x05]);
    ip.extend(port.to_be_bytes());
    ip.extend([0, 24, 0, 0]);
    ip.extend([4, 0, 0xff, 0xff, 0, 0, 0, 17, 0, 7, 8, 9, 0, 0, 0, 0]);
    let len = u16::try_from(ip.len() - 40).unwrap();
    ip[4..6].copy_from_slice(&len.to_be_bytes());
    [&[2; 12][..], &[0x86, 0xdd], &ip].concat()
}

/// No adapter sends one, and each says in its own way how long it is. Whoever means port 4791 is
/// told that RoCEv2 has none of them.
#[test]
fn behind_every_extension_header_the_port_is_found() {
    const UDP: u8 = 17;
    // Lengths count what stands behind the first eight bytes, in eights; that of an authentication
    // header what stands behind the first eight, in fours.
    let eights = |next: u8, more: u8| {
        let mut header = vec![0xa5; 8 + usize::from(more) * 8];
        header[..2].copy_from_slice(&[next, more]);
        header
    };
    let authentication = |next: u8, more: u8| {
        let mut header = vec![0xa5; 8 + usize::from(more) * 4];
        header[..2].copy_from_slice(&[next, more]);
        header
    };
    let fragment = [UDP, 0, 0, 1, 0, 0, 0, 0];
    let mut frames = Vec::new();
    for port in [4791, 53] {
        for kind in [0, 43, 60, 135, 139, 140] {
            frames.push(extended(kind, &[&eights(UDP, 0)], port));
            frames.push(extended(kind, &[&eights(UDP, 3)], port));
        }
        frames.push(extended(51, &[&authentication(UDP, 1)], port));
        frames.push(extended(51, &[&authentication(UDP, 4)], port));
        let chain: [&[u8]; 3] = [&eights(51, 0), &authentication(135, 2), &eights(UDP, 1)];
        frames.push(extended(0, &chain, port));
        frames.push(extended(44, &[&fragment], port));
    }
    let of_roce = frames.len() / 2;
    // What is encrypted nobody can read, and whatever follows nothing stands alone.
    frames.push(extended(50, &[&eights(UDP, 0)], 4791));
    frames.push(extended(59, &[], 4791));
    let other = frames.len() - of_roce;
    let file = capture("extended.pcap", &frames);
    let filter = "bth.psn == 0x070809 and sport == 0xc005 and bth.destqp == 17 and dropped in \
                  {ip_extension, ip_fragment}";
    let output = run(&["explain", "--json", "--filter", filter, file.to_str().unwrap()]);
    let last = text(&output.stdout).lines().last().unwrap();
    let file: serde_json::Value = serde_json::from_str(last).unwrap();
    assert_eq!(file["shown"], of_roce, "{}", text(&output.stdout));
    assert_eq!((&file["malformed"], &file["other_frames"]), (&of_roce.into(), &other.into()));
}

/// Ethernet fills its shortest frame up; with more behind a packet, somebody's lengths are wrong.
#[test]
fn padding_that_ethernet_does_not_need_is_said_to_be_nobodys() {
    let stored = include_bytes!("../pcaps/rc_send.pcap");
    let len = u32::from_le_bytes(*stored[32..].first_chunk().unwrap()) as usize;
    let frame = &stored[40..40 + len];
    let told = |padding: usize| {
        let frame = [frame, &vec![0; padding]].concat();
        let file = capture(&format!("padding_{padding}.pcap"), &[frame]);
        let output = run(&["explain", "-v", file.to_str().unwrap()]);
        let line = text(&output.stdout).lines().find(|line| line.starts_with("    padding"));
        line.map(str::to_owned)
    };
    assert_eq!(told(0), None);
    assert_eq!(told(1).unwrap(), "    padding  Ethernet's shortest frame, 1 byte");
    assert_eq!(told(46).unwrap(), "    padding  Ethernet's shortest frame, 46 bytes");
    assert_eq!(told(47).unwrap(), "    padding  no packet's, 47 bytes");
}

#[test]
fn garbage_behind_a_compressed_capture_is_told_and_all_before_it_is_judged() {
    let files = [
        ("gzip", &include_bytes!("../crates/net/tests/captures/rc_send.pcap.gz")[..]),
        ("zstd", include_bytes!("../crates/net/tests/captures/rc_send.pcap.zst")),
    ];
    for (name, packed) in files {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("behind.{name}"));
        let check = |behind: &[u8]| {
            std::fs::write(&path, [packed, behind].concat()).unwrap();
            run(&["check", path.to_str().unwrap()])
        };
        let padded = check(&[0; 512]);
        assert_eq!((padded.status.code(), text(&padded.stderr)), (Some(0), ""));
        let clean = text(&padded.stdout).trim_end().to_owned();
        assert!(clean.ends_with("conversation, no finding"), "{clean}");
        let damaged = check(b"garbage");
        assert_eq!(damaged.status.code(), Some(2));
        assert_eq!(text(&damaged.stdout), format!("{clean} up to where it can be read\n"));
        let words = format!("the {name} data ends here, and behind it is neither {name} nor zeros");
        assert!(text(&damaged.stderr).contains(&words), "{}", text(&damaged.stderr));
        assert_eq!(text(&damaged.stderr).lines().count(), 1);
    }
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

/// A frame that is not RoCE.
fn other() -> Vec<u8> {
    [&[2; 12][..], &[0x08, 0x06], &[0; 46]].concat()
}

/// `tcpdump -w - | roxe explain - | head -1`: whatever comes in, or nothing, roxe is not what keeps
/// tcpdump running.
#[test]
fn whoever_stops_reading_ends_the_program_though_the_input_goes_on() {
    let header = &captured(&[])[..];
    let traffic = &captured(&[other(), other()])[..];
    // Of the compressed capture, the header has not come out yet.
    let packed = &include_bytes!("../crates/net/tests/captures/rc_send.pcap.gz")[..20];
    for arguments in [&["explain", "-"][..], &["explain", "--json", "-"], &["check", "-"]] {
        // More of it than any pipe holds.
        let mut child = listening(arguments);
        let mut input_to = child.stdin.take().unwrap();
        input_to.write_all(header).unwrap();
        drop(child.stdout.take());
        let more = traffic[header.len()..].repeat(10_000);
        let written = (0..100).try_for_each(|_| input_to.write_all(&more));
        assert_eq!(written.unwrap_err().kind(), ErrorKind::BrokenPipe, "{arguments:?}");
        assert_eq!(ended(child), (Some(0), String::new()), "{arguments:?}");
        // Nothing more.
        for input in [&[], header, traffic, packed] {
            let mut child = listening(arguments);
            let mut input_to = child.stdin.take().unwrap();
            input_to.write_all(input).unwrap();
            drop(child.stdout.take());
            assert_eq!(ended(child), (Some(0), String::new()), "{arguments:?}");
            // Open until now.
            drop(input_to);
        }
    }
}

/// The same, of findings that were there.
#[test]
fn findings_are_remembered_when_a_pipe_is_not_read_to_its_end() {
    let mut child = listening(&["check", "-"]);
    let mut input_to = child.stdin.take().unwrap();
    input_to.write_all(include_bytes!("../pcaps/made_broken.pcap")).unwrap();
    let mut first = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
    assert!(first.starts_with("standard input: frame "), "{first}");
    assert_eq!(ended(child), (Some(1), String::new()));
    drop(input_to);
}

/// The program with a pipe at each end.
fn listening(arguments: &[&str]) -> Child {
    let mut command = roxe();
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// How it ends, and what it complains of.
fn ended(mut child: Child) -> (Option<i32>, String) {
    let mut errors = String::new();
    child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
    (child.wait().unwrap().code(), errors)
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

/// A packet of a connection between two hosts, the first or the second of which sends it.
fn packet(opcode: &str, psn: u32, back: bool, payload: &[u8]) -> Vec<u8> {
    let opcode = Opcode::by_name(opcode).unwrap();
    let bth = Bth {
        opcode: opcode.code,
        dest_qp: Qpn::new(if back { 0x200 } else { 0x100 }),
        psn: Psn::new(psn),
        ack_req: opcode.position.ends() && !back,
        ..Bth::default()
    };
    let aeth = back.then(|| Aeth { syndrome: Syndrome::Ack(Credits::INVALID), msn: Msn::new(0) });
    let headers = Headers { bth, aeth, ..Headers::default() };
    let packet = Packet { opcode, headers, payload: Payload::bytes(payload) };
    let (mut source, mut destination) = ([192, 0, 2, 1].into(), [192, 0, 2, 2].into());
    if back {
        std::mem::swap(&mut source, &mut destination);
    }
    let template = FrameTemplate::new(&roxe_wire::Path {
        ethernet: (MacAddress([2; 6]), MacAddress([4; 6])),
        vlan: None,
        ip: IpPair::V4 { source, destination },
        traffic_class: TrafficClass(0),
        hop_limit: 64,
        flow_label: 0,
        source_port: 0xc000,
    });
    let at = template.headers_len();
    let mut bytes = vec![0; at + packet.len()];
    let cover = template.write(u16::try_from(packet.len()).unwrap(), 0, &mut bytes).unwrap();
    packet.emit(Room::whole(&mut bytes[at..]), &cover).unwrap();
    bytes
}

/// Two packets of a message may be said to be 16 MB apart, and a capture holds thousands of such
/// messages.
#[cfg(target_os = "linux")]
#[test]
fn a_replay_takes_no_memory_for_what_a_capture_says_and_does_not_have() {
    let mut frames = Vec::new();
    for message in 0..150 {
        let (first, last) = (message * 5000, message * 5000 + 4000);
        frames.push(packet("RC_SEND_FIRST", first, false, &[7; 4096]));
        frames.push(packet("RC_ACKNOWLEDGE", first, true, &[]));
        frames.push(packet("RC_SEND_LAST", last, false, &[8; 8]));
        frames.push(packet("RC_ACKNOWLEDGE", last, true, &[]));
    }
    let file = capture("far-apart.pcap", &frames);
    let limited = "ulimit -v 1000000; exec \"$0\" replay \"$1\"";
    let output = Command::new("sh")
        .args(["-c", limited, env!("CARGO_BIN_EXE_roxe")])
        .arg(&file)
        .output()
        .unwrap();
    let told = text(&output.stdout);
    assert!(told.ends_with(": 600 RoCE frames, 2 sides played, no difference\n"), "{output:?}");
    assert_eq!(output.status.code(), Some(0));
}
