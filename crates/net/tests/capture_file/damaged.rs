//! Captures cut and corrupted at random: whatever the bytes, the reader ends, and what it gave
//! before is right.

use proptest::{collection::vec, prelude::*, sample::Index};

use crate::{
    Seen,
    by_hand::{BIG, LITTLE},
    compressed::{gzip, zstd},
    open, read, read_to_end,
};

/// One capture of each kind.
fn captures() -> Vec<Vec<u8>> {
    // Bytes that every link type understands.
    let data: Vec<u8> = (8..128).collect();
    let comment = LITTLE.option(1, b"a comment");
    let pcapng = [
        LITTLE.section(),
        LITTLE.interface(1, 96, &LITTLE.option(2, b"eth0")),
        LITTLE.interface(113, 0, &LITTLE.option(9, &[0x8a])),
        LITTLE.enhanced_with(0, 1, &data[..70], 90, &comment),
        LITTLE.enhanced(1, 2, &data, 120),
        LITTLE.block(5, &[0; 24]),
        LITTLE.simple(&data[..96], 120),
        BIG.section(),
        BIG.interface(276, 0, &[]),
        BIG.obsolete(0, 3, &data),
        BIG.interface(197, 0, &[]),
        BIG.enhanced(1, 4, &data, 120),
        BIG.enhanced(0, 5, &data, 120),
    ]
    .concat();
    let records: Vec<_> =
        (0..6).flat_map(|i| BIG.pcap_record(i, i, &data[..20 * i as usize])).collect();
    let pcap = [BIG.pcap(0xa1b2_3c4d, 1), records].concat();
    vec![gzip(&pcap), zstd(&pcapng), pcap, pcapng]
}

/// Which of [`captures`] are not compressed.
const PLAIN: std::ops::Range<usize> = 2..4;

/// Reads whatever this is. Checks what must hold for any input.
fn survive(input: &[u8]) -> Vec<Seen> {
    let Ok(reader) = open(input) else { return Vec::new() };
    let outcome = read_to_end(reader);
    assert!(outcome.reader.bytes_read() <= input.len() as u64);
    for pair in outcome.records.windows(2) {
        assert!(pair[0].number < pair[1].number);
    }
    for record in &outcome.records {
        assert!(record.data.len() <= record.wire_len as usize);
        assert!((record.interface as usize) < outcome.reader.interfaces().len());
    }
    outcome.records
}

proptest! {
    #[test]
    fn flipped_bytes(
        which in 0..4usize,
        flips in vec((any::<Index>(), 1..=255u8), 1..6),
        cut in any::<Index>(),
    ) {
        let mut capture = captures().swap_remove(which);
        for (at, bits) in flips {
            let at = at.index(capture.len());
            capture[at] ^= bits;
        }
        capture.truncate(cut.index(2 * capture.len()));
        survive(&capture);
    }

    #[test]
    fn flipped_bytes_below_compression(
        which in PLAIN,
        flips in vec((any::<Index>(), 1..=255u8), 1..6),
    ) {
        let mut capture = captures().swap_remove(which);
        for (at, bits) in flips {
            let at = at.index(capture.len());
            capture[at] ^= bits;
        }
        let plain = survive(&capture);
        prop_assert_eq!(survive(&gzip(&capture)), plain.clone());
        prop_assert_eq!(survive(&zstd(&capture)), plain);
    }

    #[test]
    fn fields_at_their_limits(
        which in PLAIN,
        at in any::<Index>(),
        value in prop_oneof![Just(0u32), Just(1), Just(u32::MAX), Just(0x7fff_ffff), Just(262_144)],
        big in any::<bool>(),
    ) {
        let mut capture = captures().swap_remove(which);
        let (words, _) = capture.as_chunks_mut::<4>();
        let at = at.index(words.len());
        words[at] = if big { value.to_be_bytes() } else { value.to_le_bytes() };
        survive(&capture);
    }

    #[test]
    fn noise_behind_a_header(which in PLAIN, noise in vec(any::<u8>(), 0..400)) {
        let header = &captures()[which][..28];
        survive(&[header, &noise].concat());
    }
}

#[test]
fn a_capture_cut_anywhere_gives_all_records_before() {
    for which in PLAIN {
        let capture = captures().swap_remove(which);
        let whole = read(&capture);
        assert!(whole.len() >= 5);
        let mut delivered = 0;
        for len in 28..capture.len() {
            let outcome = read_to_end(open(&capture[..len]).unwrap());
            assert!(outcome.error.is_none(), "{len}: {}", outcome.error.unwrap());
            assert_eq!(outcome.records[..], whole[..outcome.records.len()]);
            if let Some(truncation) = outcome.reader.truncated() {
                assert!(truncation.number > outcome.records.last().map_or(0, |r| r.number));
                assert!(truncation.offset < len as u64);
                let message = truncation.to_string();
                assert!(message.starts_with("the file ends inside record "), "{message}");
            }
            assert!(outcome.records.len() >= delivered);
            delivered = outcome.records.len();
        }
        assert_eq!(delivered, whole.len() - 1);
    }
}

#[test]
fn the_place_of_a_cut_is_told() {
    let record = LITTLE.pcap_record(0, 0, &[0; 60]);
    let capture = [LITTLE.pcap(0xa1b2_c3d4, 1), record.clone(), record].concat();
    let outcome = read_to_end(open(&capture[..capture.len() - 1]).unwrap());
    assert_eq!(outcome.records.len(), 1);
    let truncation = outcome.reader.truncated().unwrap();
    assert_eq!((truncation.number, truncation.offset), (2, 100));
    let whole = read_to_end(open(&capture[..100]).unwrap());
    assert_eq!(whole.reader.truncated(), None, "between two records it is no cut");
    // In pcapng blocks without a packet may stand before it.
    let before = [LITTLE.section(), LITTLE.interface(1, 0, &[])].concat();
    for block in [LITTLE.enhanced(0, 0, &[0; 60], 60), LITTLE.block(0x0bad, &[0; 60])] {
        let cut = [&before[..], &block[..block.len() - 1]].concat();
        let truncation = read_to_end(open(&cut).unwrap()).reader.truncated().unwrap();
        assert_eq!((truncation.number, truncation.offset), (1, before.len() as u64));
    }
}
