//! The lines here were written down from how perftest formats them, not by this program.

use std::time::Duration;

use roxe_verbs::ServiceType;

use super::*;
use crate::perf::arguments::Test;

const LINE: &[u8; 108] = b"0000:0001:000011:f0a1b2:00000204:0000559fe1c2d000:\
      00:00:00:00:00:00:00:00:00:00:ff:ff:0a:0a:00:02:00000000:\0";

fn destination() -> Destination {
    Destination {
        lid: 0,
        out_reads: 1,
        qpn: Qpn::new(0x11),
        psn: Psn::new(0xf0_a1b2),
        r_key: RKey(0x204),
        va: 0x559f_e1c2_d000,
        gid: Gid::from_ip("10.10.0.2".parse().unwrap()),
        srqn: 0,
    }
}

#[test]
fn a_queue_pair_is_said_as_perftest_says_it() {
    assert_eq!(Destination::parse(LINE), Ok(destination()));
    assert_eq!(&destination().to_line(), LINE);
    let wide = Destination {
        lid: 0xffff,
        out_reads: 0x80,
        qpn: Qpn::new(0xff_ffff),
        psn: Psn::new(0),
        r_key: RKey(u32::MAX),
        va: u64::MAX,
        gid: Gid([0xfe; 16]),
        srqn: u32::MAX,
    };
    assert_eq!(Destination::parse(&wide.to_line()), Ok(wide));
}

#[test]
fn a_line_that_is_wrong_anywhere_is_refused() {
    for at in 0..LINE.len() {
        for byte in [0, b' ', b'-', b'x', b'g', b'\n', 0xff] {
            let mut line = *LINE;
            if line[at] != byte {
                line[at] = byte;
                let why = Destination::parse(&line).unwrap_err();
                assert!(why.starts_with("the peer's queue pair cannot be read"), "{at}: {why}");
            }
        }
        let mut line = *LINE;
        let is_digit = line[at].is_ascii_hexdigit();
        line[at] = b'5';
        assert_eq!(Destination::parse(&line).is_ok(), is_digit, "{at}");
    }
}

const KIND: Kind = Kind { test: Test::WriteBw, service: ServiceType::Rc, both: false };

const EXTENT: Extent = Extent::Messages(1000);

#[test]
fn what_a_peer_measures_is_compared_where_it_says_it() {
    let others = [
        (Kind { test: Test::SendLat, ..KIND }, "send_lat -c RC"),
        (Kind { service: ServiceType::Uc, ..KIND }, "write_bw -c UC"),
        (Kind { both: true, ..KIND }, "write_bw -c RC -b"),
    ];
    for (other, name) in others {
        let why = check_kind(&version(other, EXTENT), KIND).unwrap_err();
        let expected = format!("the peer's test is `{name}`, this side's `write_bw -c RC`: ");
        assert!(why.starts_with(&expected), "{why}");
    }
    assert_eq!(check_kind(&version(KIND, EXTENT), KIND), Ok(()));
    let mut stock = [0; VERSION_LEN];
    stock[..4].copy_from_slice(b"6.06");
    assert_eq!(check_kind(&stock, KIND), Ok(()), "perftest does not say it");
}

#[test]
fn how_much_a_peer_has_to_do_is_compared_where_it_says_it() {
    let time = Extent::Time { whole: Duration::from_secs(9), margin: Duration::ZERO };
    let longer = Extent::Time { whole: Duration::from_secs(10), margin: Duration::ZERO };
    let few = Extent::Messages(500);
    let check = |peers, own| check_extent(&version(KIND, peers), own);
    let why = |peers, own| check(peers, own).unwrap_err();
    let expected = "the peer has 500 messages (-n), this side has 1000: both have to be the same";
    assert_eq!(why(few, EXTENT), expected);
    assert!(why(time, few).starts_with("the peer goes on for a time (-D), this side has 500"));
    assert!(why(few, time).starts_with("the peer has 500 messages (-n), this side goes on for"));
    for (peers, own) in [(EXTENT, EXTENT), (time, longer)] {
        assert_eq!(check(peers, own), Ok(()));
    }
    let mut stock = [0; VERSION_LEN];
    stock[..4].copy_from_slice(b"6.06");
    assert_eq!(check_extent(&stock, few), Ok(()), "perftest does not say it");
    let mut silent = version(KIND, EXTENT);
    silent[EXTENT_AT..].fill(0);
    assert_eq!(check_extent(&silent, few), Ok(()), "nor does one of ours of before");
}

#[test]
fn versions_since_5_70_are_spoken_with() {
    let of = |text: &[u8]| {
        let mut bytes = [0; VERSION_LEN];
        bytes[..text.len()].copy_from_slice(text);
        check_version(&bytes)
    };
    assert!(version(KIND, EXTENT).starts_with(b"6.06\0"), "the text ends there");
    for right in ["5.70", "5.98", "6.06", "6.20", "25.04"] {
        assert_eq!(of(right.as_bytes()), Ok(()), "{right}");
    }
    let old = of(b"5.33").unwrap_err();
    assert_eq!(old, "the peer is perftest 5.33: 5.70 is the oldest that this one speaks with");
    let pingpong = of(b"0000:000011:f0a1").unwrap_err();
    assert!(pingpong.starts_with("the peer is a pingpong, and this is perf"), "{pingpong}");
    for wrong in ["", "6", "GET / HTTP/1.1\r\n", "6.x", ".", "-6.06", "6.06 "] {
        let why = of(wrong.as_bytes()).unwrap_err();
        assert!(why.starts_with("the peer is no perftest: it says `"), "{wrong}: {why}");
    }
    assert!(check_version(&[0xff; VERSION_LEN]).unwrap_err().contains(r"\xff"));
}

#[test]
fn a_path_mtu_is_a_digit() {
    assert_eq!(mtu(Mtu::B1024), *b"3\0");
    assert_eq!(parse_mtu(*b"5\0"), Ok(Mtu::B4096));
    for wrong in [b"0\0", b"6\0", b"33", b"\0\0", b"3\n"] {
        assert!(parse_mtu(*wrong).unwrap_err().contains("path MTU cannot be read"));
    }
}

#[test]
fn sizes_that_cannot_be_are_refused() {
    assert_eq!(parse_size("cache line", [0, 0, 0, 64]), Ok(64));
    assert_eq!(parse_size("buffer", [0, 0, 0x10, 0]), Ok(4096));
    for wrong in [0, 48, u32::MAX, 1 << 31] {
        assert!(parse_size("buffer", wrong.to_be_bytes()).is_err());
    }
}

#[test]
fn a_bandwidth_is_said_in_words_of_eight_bytes() {
    let report =
        Report { size: 65536, iters: 5000, bw_peak: 0.0, bw_avg: 1.5, msg_rate: 0.000_024 };
    let words = report.to_words();
    assert_eq!(words[0], [0, 0, 0, 0, 0, 1, 0, 0]);
    assert_eq!(words[1], [0, 0, 0, 0, 0, 0, 0x13, 0x88]);
    assert_eq!(words[2], [0; 8]);
    assert_eq!(words[3], [0x3f, 0xf8, 0, 0, 0, 0, 0, 0]);
    assert_eq!(Report::from_words(words), report);
    let strange = Report::from_words([[0xff; 8]; 5]);
    assert_eq!((strange.bw_avg, strange.msg_rate), (0.0, 0.0));
    assert_eq!(report.check(), Ok(()));
    for bw_avg in [-1.0, 1e12, f64::MAX] {
        assert!(Report { bw_avg, ..report }.check().is_err(), "{bw_avg}");
    }
}

/// What ib_write_bw of perftest 4.5 on Linux rxe said to this program's server, message by message.
#[test]
fn a_conversation_that_was_recorded_is_understood() {
    let client = Destination {
        lid: 0,
        out_reads: 1,
        qpn: Qpn::new(0xc0),
        psn: Psn::new(0xf8_3e8c),
        r_key: RKey(0x73b9),
        va: 0x7f5f_564f_2000,
        gid: Gid::from_ip("10.10.0.2".parse().unwrap()),
        srqn: 0,
    };
    let line = b"0000:0001:0000c0:f83e8c:000073b9:00007f5f564f2000:\
          00:00:00:00:00:00:00:00:00:00:ff:ff:0a:0a:00:02:00000000:\0";
    assert_eq!(check_version(b"6.06\0\0\0\0\0\0\0\0\0\0\0\0"), Ok(()));
    assert_eq!(parse_size("cycle buffer", [0, 0, 0x10, 0]), Ok(4096));
    assert_eq!(parse_size("cache line", *b"\0\0\0@"), Ok(64));
    assert_eq!(parse_mtu(*b"5\0"), Ok(Mtu::B4096));
    assert_eq!(Destination::parse(line), Ok(client));
    let report = Report::from_words([
        *b"\0\0\0\0\0\x01\0\0",
        *b"\0\0\0\0\0\0\0\x14",
        *b"@#<6k\x16o\xde",
        *b"@#<6f\xc3\xbc\x12",
        *b"?$+i:\xb8\x1bx",
    ]);
    assert_eq!((report.size, report.iters), (65536, 20));
    // As it printed them: 9.62 MB/s and 0.000154 million messages.
    assert!((report.bw_peak - 9.62).abs() < 0.005 && (report.bw_avg - 9.62).abs() < 0.005);
    assert!((report.msg_rate - 0.000_154).abs() < 5e-7);
    // One without a right to its memory, of ib_send_lat's server, has no key.
    let line = b"0000:0001:0000c1:5b027f:00000000:000055557bf39000:\
          00:00:00:00:00:00:00:00:00:00:ff:ff:0a:0a:00:02:00000000:\0";
    assert_eq!(Destination::parse(line).unwrap().r_key, RKey(0));
}

/// A stranger's word makes nobody take gigabytes.
#[test]
fn a_peers_sizes_are_those_of_pages_and_cache_lines() {
    let said = |size: u32| parse_size("cycle_buffer", size.to_be_bytes());
    for size in [64, 4096, 64 << 10] {
        assert_eq!(said(size), Ok(size));
    }
    for size in [0, 4097, 128 << 10, 16 << 20, u32::MAX] {
        let why = format!("the peer says that its cycle_buffer has {size} bytes, which cannot be");
        assert_eq!(said(size), Err(why));
    }
}
