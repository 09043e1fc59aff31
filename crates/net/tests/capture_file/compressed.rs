//! Compressed captures.

use std::io::Write;

use flate2::{Compression, write::GzEncoder};

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
