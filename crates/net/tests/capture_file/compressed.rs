//! Compressed captures.

use std::io::Write;

use flate2::{Compression, write::GzEncoder};

use roxe_net::capture_file::CaptureError;

use crate::{
    by_hand::{BIG, LITTLE},
    open, read, read_to_end,
};

pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

pub(crate) fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 3).unwrap()
}

fn capture() -> Vec<u8> {
    let packet = |number| LITTLE.enhanced(0, number, &[number as u8; 500], 500);
    let start = [LITTLE.section(), LITTLE.interface(1, 0, &[])].concat();
    [start, (0..2000).flat_map(packet).collect()].concat()
}

#[test]
fn compression_is_found_by_what_the_input_begins_with() {
    let plain = read(&capture());
    assert_eq!(plain.len(), 2000);
    assert_eq!(read(&gzip(&capture())), plain);
    assert_eq!(read(&zstd(&capture())), plain);
    assert_eq!(read(&zstd(&gzip(&gzip(&zstd(&capture()))))), plain);
}

#[test]
fn members_and_frames_follow_one_another() {
    let plain = read(&capture());
    for split in [1, 3, 4, 28, 30, 5000] {
        let (front, back) = (&capture()[..split], &capture()[split..]);
        assert_eq!(read(&[gzip(front), gzip(back)].concat()), plain);
        assert_eq!(read(&[zstd(front), zstd(back)].concat()), plain);
        let skippable = [b"\x50\x2a\x4d\x18\x03\0\0\0abc".to_vec(), zstd(front), zstd(back)];
        assert_eq!(read(&skippable.concat()), plain);
    }
}

/// Tapes, and tools that write whole blocks, fill the last one up; gzip itself takes no notice.
#[test]
fn zeros_behind_the_end_mean_nothing() {
    let plain = read(&capture());
    for packed in [gzip(&capture()), zstd(&capture()), [gzip(b""), gzip(&capture())].concat()] {
        for len in [1, 2, 3, 4, 5, 512, 200_000] {
            assert_eq!(read(&[packed.clone(), vec![0; len]].concat()), plain, "{len} zeros");
        }
    }
    assert_eq!(read(&gzip(&[zstd(&capture()), vec![0; 9]].concat())), plain);
    let skipped = [b"\x5f\x2a\x4d\x18\x04\0\0\0skip".to_vec(), vec![0; 9]].concat();
    assert_eq!(read(&[zstd(&capture()), skipped].concat()), plain);
}

/// All before it is read; that there was more is told, as it may have been part of the capture.
#[test]
fn something_else_behind_the_end_is_an_error_behind_all_packets() {
    let plain = read(&capture());
    let packed = [("gzip", gzip(&capture())), ("zstd", zstd(&capture()))];
    let zeros_and_one = [vec![0; 100_000], vec![1]].concat();
    let zeros_and_more = [vec![0; 4], gzip(b"more"), zstd(b"more")].concat();
    // The second begins like a member, the third like a frame, the fourth like one to be skipped.
    let others: [&[u8]; 7] = [
        b"garbage",
        b"\x1f\x8c",
        b"\x28\xb5\x2f\xfe",
        b"\x5f\x2a\x4d\x19",
        b"\n",
        &zeros_and_one,
        &zeros_and_more,
    ];
    for (name, packed) in packed {
        for other in others {
            let outcome = read_to_end(open(&[&packed, other].concat()).unwrap());
            assert_eq!(outcome.records, plain, "{name}");
            assert_eq!(outcome.reader.truncated(), None);
            let message = outcome.error.unwrap().to_string();
            let place = format!("cannot read on at byte {}: the {name} data", capture().len());
            assert!(message.starts_with(&place), "{message}");
            assert!(message.ends_with(&format!("is neither {name} nor zeros")), "{message}");
        }
    }
    // One kind is something else to the other.
    for mixed in [[gzip(&capture()), zstd(b"")], [zstd(&capture()), gzip(b"")]] {
        let outcome = read_to_end(open(&mixed.concat()).unwrap());
        assert_eq!(outcome.records, plain);
        assert!(outcome.error.unwrap().to_string().contains("is neither"));
    }
}

const SKIPPED: &[u8] = b"\x50\x2a\x4d\x18\x03\0\0\0abc";

/// Another piece was begun.
#[test]
fn a_cut_behind_the_first_bytes_of_another_piece_is_a_cut() {
    let plain = read(&capture());
    let (gzip, zstd) = (gzip(&capture()), zstd(&capture()));
    for (packed, piece, known_by) in [(&gzip, &gzip[..], 2), (&zstd, &zstd, 4), (&zstd, SKIPPED, 4)]
    {
        for kept in (known_by..8).chain([10]) {
            let outcome = read_to_end(open(&[packed, &piece[..kept]].concat()).unwrap());
            assert_eq!(outcome.records, plain);
            assert!(outcome.error.is_none(), "{kept}: {}", outcome.error.unwrap());
            let cut = outcome.reader.truncated().map(|cut| cut.number);
            assert_eq!(cut, Some(2001), "{kept} bytes of {piece:02x?}");
        }
    }
}

/// Nobody knows whether there was another record.
#[test]
fn too_little_to_be_known_behind_the_end_is_told_as_that() {
    let plain = read(&capture());
    let (gzip, zstd) = (gzip(&capture()), zstd(&capture()));
    let (gzip_too, zstd_too) = (
        "the gzip data ends here, and behind it is the first byte of more gzip data, or garbage",
        "the zstd data ends here, and behind it are the first bytes of more zstd data, or garbage",
    );
    for (packed, piece, kept, expected) in [
        (&gzip, &gzip[..], 1..2, gzip_too),
        (&zstd, &zstd, 1..4, zstd_too),
        (&zstd, SKIPPED, 1..4, zstd_too),
    ] {
        for kept in kept {
            let outcome = read_to_end(open(&[packed, &piece[..kept]].concat()).unwrap());
            assert_eq!(outcome.records, plain);
            assert_eq!(outcome.reader.truncated(), None);
            let message = outcome.error.unwrap().to_string();
            assert!(message.ends_with(expected), "{kept} bytes: {message}");
        }
    }
}

/// No decoder is needed for them, however many or long they are.
#[test]
fn skipped_frames_stand_anywhere() {
    let plain = read(&capture());
    let (front, back) = (zstd(&capture()[..5000]), zstd(&capture()[5000..]));
    let long = [b"\x5f\x2a\x4d\x18", &300_000_u32.to_le_bytes()[..], &[7; 300_000]].concat();
    let many = b"\x57\x2a\x4d\x18\0\0\0\0".repeat(100_000);
    for skipped in [SKIPPED, &long, &many] {
        assert_eq!(read(&[skipped, &front, &back].concat()), plain);
        assert_eq!(read(&[&front, skipped, &back].concat()), plain);
        assert_eq!(read(&[&front, &back, skipped].concat()), plain);
        assert!(matches!(open(skipped), Err(CaptureError::Empty)));
    }
    let outcome = read_to_end(open(&[&front, &back, &long[..250_000]].concat()).unwrap());
    assert_eq!(outcome.records, plain);
    assert_eq!(outcome.reader.truncated().map(|cut| cut.number), Some(2001));
}

/// What one frame leaves of the decoder does not show in the next.
#[test]
fn frames_of_all_sizes_follow_one_another() {
    let plain = read(&capture());
    let (mut frames, mut rest) = (Vec::new(), &capture()[..]);
    for len in [0, 1, 300_000, 0, 2, 9, 131_072, 0, 131_073, 40_000, usize::MAX] {
        let (front, back) = rest.split_at(len.min(rest.len()));
        frames.push(zstd(front));
        rest = back;
    }
    assert_eq!(read(&frames.concat()), plain);
    // One that is damaged: all before it is there.
    let mut last = frames.pop().unwrap();
    last[4] |= 0x08;
    let outcome = read_to_end(open(&[frames.concat(), last].concat()).unwrap());
    assert!(outcome.records.len() > 1000 && plain.starts_with(&outcome.records));
    assert!(outcome.error.unwrap().to_string().contains("nsupported"));
}

#[test]
fn a_window_beyond_the_limit_is_named_with_a_remedy() {
    // A frame's header says how far back it refers: here to 128 MiB and to 2 GiB.
    let frame = |window_log: u8| [0x28, 0xb5, 0x2f, 0xfd, 0, (window_log - 10) << 3, 1, 0, 0];
    assert!(matches!(open(&frame(27)), Err(CaptureError::Empty)));
    let message = open(&frame(31)).unwrap_err().to_string();
    assert!(message.contains("more than 128 MiB of memory: unpack it first (`zstd -d --long=31`)"));
}

/// A block each, as bgzip and pzstd write them.
#[test]
fn a_thousand_pieces_are_one_capture() {
    let plain = read(&capture());
    let capture = capture();
    for pack in [gzip, zstd] {
        let packed: Vec<u8> = capture.chunks(997).flat_map(pack).collect();
        assert_eq!(read(&packed), plain);
    }
}

#[test]
fn a_capture_that_was_cut_after_compression_ends_softly() {
    let plain = read(&capture());
    for packed in [gzip(&capture()), zstd(&capture())] {
        let half = &packed[..packed.len() * 3 / 4];
        let outcome = read_to_end(open(half).unwrap());
        assert!(outcome.error.is_none(), "{}", outcome.error.unwrap());
        assert_eq!(outcome.records[..], plain[..outcome.records.len()]);
    }
}

#[test]
fn a_cut_between_two_records_is_still_a_cut() {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(&capture()).unwrap();
    encoder.flush().unwrap();
    let outcome = read_to_end(open(encoder.get_ref()).unwrap());
    assert_eq!(outcome.records, read(&capture()));
    assert_eq!(outcome.reader.truncated().map(|cut| cut.number), Some(2001));
}

#[test]
fn layers_have_a_limit() {
    let mut packed = BIG.pcap(0xa1b2_c3d4, 1);
    for layer in 0..10 {
        assert_eq!(open(&packed).is_ok(), layer <= 4);
        packed = gzip(&packed);
    }
    let message = open(&packed).unwrap_err().to_string();
    assert!(message.contains("more than 4 times"), "{message}");
}
