//! What the formats may contain, one by one, in both byte orders.

use roxe_net::capture_file::{BlockProblem, CaptureError, Direction, LinkType, Start};

use crate::{
    Seen,
    by_hand::{BIG, LITTLE, Order},
    open, read, read_to_end,
};

const PACKET: &[u8] = b"to:012from:34 and a few bytes";

const COMMENT: u16 = 1;
const IF_NAME: u16 = 2;
const FLAGS: u16 = 2;
const TSRESOL: u16 = 9;
const TSOFFSET: u16 = 14;

fn in_both_orders(test: impl Fn(Order)) {
    test(LITTLE);
    test(BIG);
}

fn error(capture: &[u8]) -> CaptureError {
    match open(capture) {
        Ok(reader) => read_to_end(reader).error.expect("the capture is damaged"),
        Err(error) => error,
    }
}

#[test]
fn pcap_in_micro_and_nanoseconds() {
    in_both_orders(|order| {
        for (magic, time) in [(0xa1b2_c3d4, "7.123456000"), (0xa1b2_3c4d, "7.000123456")] {
            let record = order.pcap_record(7, 123_456, PACKET);
            let records = read(&[order.pcap(magic, 1), record.clone(), record].concat());
            let first = Seen {
                number: 1,
                time: time.to_owned(),
                start: Start::Ethernet,
                data: PACKET.to_vec(),
                wire_len: PACKET.len() as u32,
                interface: 0,
                direction: None,
                comment: None,
            };
            assert_eq!(records, [first.clone(), Seen { number: 2, ..first }]);
        }
    });
}

#[test]
fn a_pcap_may_say_how_long_its_frame_check_sequences_are() {
    let header = LITTLE.pcap(0xa1b2_c3d4, 0x2400_0001);
    assert_eq!(read(&[header, LITTLE.pcap_record(0, 0, PACKET)].concat()).len(), 1);
}

#[test]
fn a_capture_without_packets_is_a_capture() {
    in_both_orders(|order| {
        assert_eq!(read(&order.pcap(0xa1b2_c3d4, 247)), []);
        assert_eq!(read(&order.section()), []);
    });
}

#[test]
fn each_interface_has_its_own_clock() {
    in_both_orders(|order| {
        let clocks = [
            (vec![], 1_700_000_000_123_456, "1700000000.123456000"),
            (order.option(TSRESOL, &[3]), 1_700_000_000_123, "1700000000.123000000"),
            (order.option(TSRESOL, &[9]), 1_700_000_000_123_456_789, "1700000000.123456789"),
            (order.option(TSRESOL, &[12]), 17_000_000_123_456_789, "17000.000123456"),
            (order.option(TSRESOL, &[0x94]), (17 << 20) + 12_345, "17.011773109"),
            (order.option(TSRESOL, &[0xa0]), (17 << 32) + 0xdead_beef, "17.869838651"),
            (order.option(TSOFFSET, &order.u64(-100i64 as u64)), 101_000_001, "1.000001000"),
            (order.option(TSOFFSET, &order.u64(1_700_000_000)), 5, "1700000000.000005000"),
        ];
        let mut capture = order.section();
        for (options, ..) in &clocks {
            capture.extend(order.interface(1, 0, options));
        }
        for (interface, (_, ticks, _)) in (0..).zip(&clocks) {
            capture.extend(order.enhanced(interface, *ticks, PACKET, 29));
        }
        let records = read(&capture);
        assert_eq!(records.len(), clocks.len());
        for (record, (_, _, time)) in records.iter().zip(&clocks) {
            assert_eq!(record.time, *time);
        }
    });
}

#[test]
fn every_kind_of_packet_block_is_read() {
    in_both_orders(|order| {
        let capture = [
            order.section(),
            order.interface(1, 20, &[]),
            order.interface(1, 0, &[]),
            order.enhanced(1, 1, PACKET, 1500),
            order.obsolete(1, 2_000_003, PACKET),
            order.simple(&PACKET[..20], 64),
            order.simple(&PACKET[..18], 18),
        ];
        let records = read(&capture.concat());
        let lens: Vec<_> = records.iter().map(|r| (r.data.len(), r.wire_len)).collect();
        assert_eq!(lens, [(29, 1500), (29, 29), (20, 64), (18, 18)]);
        let times: Vec<_> = records.iter().map(|r| r.time.as_str()).collect();
        assert_eq!(times, ["0.000001000", "2.000003000", "0.000000000", "0.000000000"]);
        let interfaces: Vec<_> = records.iter().map(|r| r.interface).collect();
        assert_eq!(interfaces, [1, 1, 0, 0]);
    });
}

#[test]
fn direction_and_comment_are_told() {
    in_both_orders(|order| {
        let end = order.option(0, &[]);
        let flags = |bits| order.option(FLAGS, &order.u32(bits));
        let comment = |text: &[u8]| order.option(COMMENT, text);
        let options = [
            [flags(0b01), comment(b"in"), end.clone()].concat(),
            [comment(b"out\0"), comment(b"second"), flags(0x8000_0002)].concat(),
            [flags(0b11), comment(b"no \xff UTF-8"), end.clone()].concat(),
            [end, comment(b"behind the end")].concat(),
            order.option(COMMENT, b"longer than the block")[..12].to_vec(),
        ];
        let mut capture = [order.section(), order.interface(1, 0, &[])].concat();
        for options in options {
            capture.extend(order.enhanced_with(0, 0, PACKET, 29, &options));
        }
        let told: Vec<_> = read(&capture).into_iter().map(|r| (r.direction, r.comment)).collect();
        let (inbound, outbound) = (Some(Direction::Inbound), Some(Direction::Outbound));
        let text = |text: &str| Some(text.to_owned());
        let expected = [
            (inbound, text("in")),
            (outbound, text("out; second")),
            (None, text("no \u{fffd} UTF-8")),
            (None, None),
            (None, None),
        ];
        assert_eq!(told, expected);
    });
}

#[test]
fn comments_are_joined_and_bounded() {
    let told = |comments: &[&[u8]]| {
        let options: Vec<u8> = comments.iter().flat_map(|it| LITTLE.option(COMMENT, it)).collect();
        let start = [LITTLE.section(), LITTLE.interface(1, 0, &[])].concat();
        // What one packet has does not show in the next.
        let packets = [
            LITTLE.enhanced_with(0, 0, PACKET, 29, &options),
            LITTLE.enhanced(0, 0, PACKET, 29),
            LITTLE.enhanced_with(0, 0, PACKET, 29, &LITTLE.option(COMMENT, b"last")),
        ];
        let records = read(&[start, packets.concat()].concat());
        let [first, None, Some(last)] = [0, 1, 2].map(|at: usize| records[at].comment.clone())
        else {
            panic!("{records:?}");
        };
        assert_eq!(last, "last");
        first
    };
    let text = |text: &str| Some(text.to_owned());
    assert_eq!(told(&[]), None);
    assert_eq!(told(&[b""]), text(""));
    assert_eq!(told(&[b"", b"a\0\0", b"\0", b"b\xc3", b"\xb6c"]), text("a; b\u{fffd}; \u{fffd}c"));
    let longest = "x".repeat(65_535);
    assert_eq!(told(&[longest.as_bytes()]), text(&longest));
    let cut = format!("{longest}…");
    assert_eq!(told(&[longest.as_bytes(), b"more", b"and more"]), text(&cut));
    assert_eq!(told(&[b"y", longest.as_bytes()]), text(&format!("y; {}…", &longest[3..])));
    assert_eq!(told(&[&[0xff; 65_535]]), text(&format!("{}…", "\u{fffd}".repeat(21_845))));
    assert_eq!(told(&[longest.as_bytes(); 15]), text(&cut));
    // Also where the last character that has room leaves just enough of it for the ellipsis.
    let wide = format!("{}\u{1f980}", &longest[5..]);
    let (front, back) = wide.split_at(10_000);
    let expected = format!("{front}; {}…", back.trim_end_matches('\u{1f980}'));
    assert_eq!(told(&[front.as_bytes(), back.as_bytes(), b"more"]), text(&expected));
}

#[test]
fn a_block_longer_than_can_be_read_is_told_with_the_limit() {
    let start = [LITTLE.section(), LITTLE.interface(1, 0, &[])].concat();
    let options = LITTLE.option(COMMENT, &[b'x'; 65_535]).repeat(20);
    let block = LITTLE.enhanced_with(0, 0, PACKET, 29, &options);
    assert_eq!(
        error(&[start.clone(), block].concat()).to_string(),
        "the block at byte 48 claims a length of 1310864 bytes, more than the 1048576 that can be \
         read of one: these are too many comments, or the file is damaged"
    );
    // So long is none.
    let mut block = LITTLE.enhanced(0, 0, PACKET, 29);
    block[4..8].copy_from_slice(&LITTLE.u32(0x7fff_fff0));
    let message = error(&[start, block].concat()).to_string();
    assert!(message.contains("more than the 1048576"), "{message}");
    assert!(message.ends_with("the file is damaged from there on"), "{message}");
}

#[test]
fn sections_may_differ_in_byte_order_and_interfaces() {
    let name = |order: Order, name: &[u8]| order.option(IF_NAME, name);
    let capture = [
        LITTLE.section(),
        LITTLE.interface(1, 0, &name(LITTLE, b"eth0")),
        LITTLE.interface(1, 0, &name(LITTLE, b"eth1")),
        LITTLE.enhanced(1, 0, PACKET, 29),
        BIG.section(),
        BIG.interface(101, 0, &name(BIG, b"tun0")),
        BIG.enhanced(0, 0, PACKET, 29),
        LITTLE.section(),
        LITTLE.interface(1, 0, &[]),
        LITTLE.simple(PACKET, 29),
    ];
    let outcome = read_to_end(open(&capture.concat()).unwrap());
    assert!(outcome.error.is_none());
    let records = outcome.records;
    assert_eq!(records.iter().map(|r| r.interface).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(records[1].start, Start::Ip);
    let names: Vec<_> = outcome.reader.interfaces().iter().map(|i| i.name.as_deref()).collect();
    assert_eq!(names, [Some("eth0"), Some("eth1"), Some("tun0"), None]);
}

#[test]
fn blocks_without_packets_are_skipped_and_numbered_as_wireshark_does() {
    in_both_orders(|order| {
        let packet = order.enhanced(0, 0, PACKET, 29);
        let capture = [
            order.section(),
            order.interface(1, 0, &[]),
            packet.clone(),
            order.block(5, &[0; 24]),           // interface statistics
            order.block(4, &[0; 2_000_000]),    // name resolution, larger than the window
            packet.clone(),                     // 2
            order.block(9, b"MESSAGE=hello\n"), // 3: a journal entry
            order.block(0x0bad, &[0; 12]),      // 4: a custom block
            order.block(0x8000_0001, &[]),
            packet,
        ];
        let numbers: Vec<_> = read(&capture.concat()).iter().map(|r| r.number).collect();
        assert_eq!(numbers, [1, 2, 5]);
    });
}

#[test]
fn packets_that_are_not_understood_are_skipped_numbered_and_counted() {
    let capture = [
        LITTLE.section(),
        LITTLE.interface(247, 0, &LITTLE.option(IF_NAME, b"ib0")),
        LITTLE.interface(1, 0, &[]),
        LITTLE.enhanced(0, 0, PACKET, 29),
        LITTLE.enhanced(1, 0, PACKET, 29),
        LITTLE.enhanced(0, 0, PACKET, 29),
    ];
    let outcome = read_to_end(open(&capture.concat()).unwrap());
    assert!(outcome.error.is_none());
    assert_eq!(outcome.records.len(), 1);
    assert_eq!(outcome.records[0].number, 2);
    assert_eq!(outcome.reader.skipped(), 2);
    let skipped: Vec<_> = outcome.reader.interfaces().iter().map(|i| i.skipped).collect();
    assert_eq!(skipped, [2, 0]);
    assert_eq!(outcome.reader.interfaces()[0].link_type, LinkType(247));
}

#[test]
fn a_capture_of_which_nothing_is_understood_is_an_error() {
    let capture = [
        LITTLE.section(),
        LITTLE.interface(247, 0, &LITTLE.option(IF_NAME, b"ib0")),
        LITTLE.enhanced(0, 0, PACKET, 29),
        LITTLE.enhanced(0, 0, PACKET, 29),
    ];
    let message = error(&capture.concat()).to_string();
    assert!(message.contains("they are InfiniBand (link type 247) on ib0;"), "{message}");

    let record = LITTLE.pcap_record(0, 0, PACKET);
    let capture = [LITTLE.pcap(0xa1b2_c3d4, 127), record.clone(), record].concat();
    let message = error(&capture).to_string();
    assert!(message.contains("none of its packets"), "at once: {message}");
    assert!(message.contains("radiotap"), "{message}");
}

#[test]
fn lengths_beyond_reason_are_errors_with_a_place() {
    in_both_orders(|order| {
        let mut record = order.pcap_record(0, 0, PACKET);
        let capture = [order.pcap(0xa1b2_c3d4, 1), record.clone()].concat();
        record[8..12].copy_from_slice(&order.u32(0xffff_fff0));
        let damaged = error(&[capture, record].concat());
        let CaptureError::PacketLength { offset: 69, len: 0xffff_fff0 } = damaged else {
            panic!("{damaged}");
        };
    });
}

#[test]
fn blocks_that_contradict_themselves_are_errors_with_a_place() {
    in_both_orders(|order| {
        let start = [order.section(), order.interface(1, 0, &[])].concat();
        let packet = order.enhanced(0, 0, PACKET, 29);
        let patched = |at: usize, value: u32| {
            let mut packet = packet.clone();
            packet[at..at + 4].copy_from_slice(&order.u32(value));
            packet
        };
        let problem = |block: &[u8]| match error(&[&start, block].concat()) {
            CaptureError::Block { offset: 48, problem } => problem,
            error => panic!("{error}"),
        };
        assert_eq!(problem(&patched(4, 0)), BlockProblem::TooShort { len: 0 });
        assert_eq!(problem(&patched(4, 11)), BlockProblem::TooShort { len: 11 });
        assert_eq!(problem(&order.block(6, &[0; 16])), BlockProblem::TooShort { len: 28 });
        assert_eq!(problem(&patched(4, u32::MAX)), BlockProblem::TooLong { len: u32::MAX });
        let differ = BlockProblem::LengthsDiffer { front: 64, back: 65 };
        assert_eq!(problem(&patched(60, 65)), differ);
        let differ = BlockProblem::LengthsDiffer { front: 12, back: 13 };
        assert_eq!(problem(&[order.u32(99), order.u32(12), order.u32(13)].concat()), differ);
        assert_eq!(problem(&patched(20, 99)), BlockProblem::PacketTooLong { len: 99 });
        assert_eq!(problem(&patched(20, u32::MAX)), BlockProblem::PacketTooLong { len: u32::MAX });
        let unknown = BlockProblem::NoSuchInterface { interface: 1, known: 1 };
        assert_eq!(problem(&patched(8, 1)), unknown);
        let message = error(&[start.clone(), patched(8, 1)].concat()).to_string();
        assert!(message.ends_with(": the file is damaged from there on"), "{message}");
        let mut section = order.section();
        section[8] ^= 0xff;
        assert!(matches!(problem(&section), BlockProblem::ByteOrder { .. }));
    });
}

#[test]
fn interfaces_have_a_limit() {
    let mut capture = LITTLE.section();
    for _ in 0..65_537 {
        capture.extend(LITTLE.interface(1, 0, &[]));
    }
    let message = error(&capture).to_string();
    // That file is whole: nothing to be had again, but something to be done.
    let words = " describes one interface more than 65536: split the file with editcap";
    assert!(message.ends_with(words), "{message}");
}

#[test]
fn what_is_no_capture_is_named() {
    let message = |input: &[u8]| open(input).err().unwrap().to_string();
    assert!(message(b"").contains("empty"));
    assert!(message(b"\xd4\xc3").contains("byte 2"));
    assert!(message(&LITTLE.pcap(0xa1b2_c3d4, 1)[..23]).contains("byte 23"));
    assert!(message(&LITTLE.section()[..20]).contains("byte 20"));
    assert_eq!(message(b"#!/bin/sh"), "unknown magic 0x23212f62: not a pcap or pcapng capture");
    assert!(message(&LITTLE.pcap(0xa1b2_cd34, 1)).contains("editcap -F pcapng"));
    assert!(message(&BIG.pcap(0xa1b2_cd34, 1)).contains("modified"));
    assert!(message(b"\xfd7zXZ\0\0").contains("xz"));
    let mut version_3 = LITTLE.section();
    version_3[12] = 3;
    assert!(message(&version_3).contains("version 3.0 of the pcapng format"));
    let mut version_3 = LITTLE.pcap(0xa1b2_c3d4, 1);
    version_3[4] = 3;
    assert!(message(&version_3).contains("version 3.4 of the pcap format"));
}
