//! Captures that other programs made; `tests/captures/README.md` says how.

use std::path::{Path, PathBuf};

use roxe_net::capture_file::{CaptureError, CaptureReader, Direction, Start};

use crate::{Outcome, Seen, read_to_end};

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/captures").join(name)
}

fn outcome(name: &str) -> Outcome {
    let outcome = read_to_end(CaptureReader::open(path(name)).unwrap());
    assert!(outcome.error.is_none(), "{name}: {}", outcome.error.unwrap());
    assert_eq!(outcome.reader.truncated(), None, "{name}");
    assert_eq!(Some(outcome.reader.bytes_read()), outcome.reader.total_len(), "{name}");
    outcome
}

fn records(name: &str) -> Vec<Seen> {
    outcome(name).records
}

#[test]
fn a_capture_of_tcpdump() {
    let records = records("rc_send.pcap");
    // As `tshark -T fields -e frame.number -e frame.time_epoch -e frame.len -e frame.cap_len` says.
    #[rustfmt::skip]
    let expected = [
        (1, "1795960735.138761000", 122, 122),
        (2, "1795960735.151858000", 62, 62),
        (3, "1795960735.175577000", 122, 122),
        (4, "1795960735.176811000", 62, 62),
        (5, "1795960735.182417000", 122, 122),
        (6, "1795960735.183802000", 62, 62),
        (7, "1795960735.192737000", 122, 122),
        (8, "1795960735.195449000", 62, 62),
    ];
    let read: Vec<_> =
        records.iter().map(|r| (r.number, &*r.time, r.wire_len, r.data.len())).collect();
    assert_eq!(read, expected);
    assert!(records.iter().all(|r| r.start == Start::Ethernet && r.data[12..14] == [8, 0]));
}

#[test]
fn the_same_frames_in_other_formats() {
    let original = records("rc_send.pcap");
    for name in ["rc_send.pcapng", "rc_send.pcap.gz", "rc_send.pcap.zst", "nanoseconds.pcap"] {
        assert_eq!(records(name), original, "{name}");
    }
}

#[test]
fn frames_without_their_ethernet_header() {
    let mut expected = records("rc_send.pcap");
    for record in &mut expected {
        record.start = Start::Ip;
        record.data.drain(..14);
        record.wire_len -= 14;
    }
    assert_eq!(records("raw_ip.pcapng"), expected);
}

#[test]
fn frames_cut_to_sixty_bytes() {
    let mut expected = records("rc_send.pcap");
    expected.iter_mut().for_each(|record| record.data.truncate(60));
    assert_eq!(records("snapped.pcapng"), expected);
}

#[test]
fn comments_of_editcap() {
    let mut expected = records("rc_send.pcap");
    expected[0].comment = Some("first packet".to_owned());
    expected[2].comment = Some("third packet, größer".to_owned());
    assert_eq!(records("comments.pcapng"), expected);
}

#[test]
fn two_captures_merged() {
    let merged = records("two_interfaces.pcapng");
    assert_eq!(merged[..8], records("rc_send.pcap"));
    assert_eq!(merged.len(), 14);
    assert!(merged[8..].iter().all(|r| r.interface == 1 && r.data[12..14] == [0x86, 0xdd]));
    assert_eq!(merged[13].time, "1795960822.070712000");
}

#[test]
fn the_any_interface_of_linux() {
    for name in ["linux_sll.pcap", "linux_sll2.pcap"] {
        let records = records(name);
        assert_eq!(records.len(), 4);
        for record in records {
            assert_eq!(record.start, Start::EtherType(0x0800));
            assert_eq!(record.direction, Some(Direction::Inbound));
            assert_eq!((record.data.len(), record.wire_len), (52, 52));
            assert_eq!(record.data[0], 0x45);
            assert_eq!(record.data[22..24], 4791u16.to_be_bytes());
        }
    }
}

#[test]
fn records_of_an_endace_card() {
    let outcome = outcome("erf.pcap");
    let mut expected = records("rc_send.pcap");
    // The seventh is of InfiniBand type.
    expected.remove(6);
    assert_eq!(outcome.records, expected);
    assert_eq!(outcome.reader.skipped(), 1);
}

#[test]
fn the_modified_format_is_refused_by_name() {
    let error = CaptureReader::open(path("modified.pcap")).unwrap_err();
    assert!(matches!(error, CaptureError::OtherFormat { .. }), "{error}");
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let error = CaptureReader::open(path("nowhere.pcap")).unwrap_err().to_string();
    assert!(error.starts_with("cannot open "), "{error}");
    assert!(error.contains("nowhere.pcap"), "{error}");
}
