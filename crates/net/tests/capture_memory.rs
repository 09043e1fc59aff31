//! No field of a capture decides how much memory reading it takes. Alone in its program, so that
//! nothing else is counted.

use std::io::{self, Read};

use peak_alloc::PeakAlloc;
use roxe_net::capture_file::CaptureReader;

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// The window, its first use before decompression, and room for everything small.
const LIMIT: usize = 3 * 1024 * 1024;

fn little(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// The most memory in use while `head`, then 64 MiB of `tail`, is read as a capture.
fn peak(head: Vec<u8>, tail: u8) -> usize {
    MEMORY.reset_peak_usage();
    let before = MEMORY.current_usage();
    let input = io::Cursor::new(head).chain(io::repeat(tail).take(64 << 20));
    let mut reader = CaptureReader::new(input).unwrap();
    while let Ok(Some(_)) = reader.next() {}
    MEMORY.peak_usage() - before
}

#[test]
fn memory_does_not_depend_on_what_the_capture_says() {
    let pcap = little(&[0xa1b2_c3d4, 0x0004_0002, 0, 0, u32::MAX, 1]);
    let section = little(&[0x0a0d_0d0a, 28, 0x1a2b_3c4d, 1, u32::MAX, u32::MAX, 28]);
    let interface = little(&[1, 20, 1, u32::MAX, 20]);
    let pcapng = |block: &[u32]| [&section[..], &interface, &little(block)].concat();
    let inputs = [
        ("a long record", [pcap.clone(), little(&[0, 0, u32::MAX, u32::MAX])].concat()),
        ("the longest record", [pcap.clone(), little(&[0, 0, 262_144, 262_144])].concat()),
        ("empty records without end", pcap),
        ("a long packet block", pcapng(&[6, u32::MAX - 3])),
        ("a long packet in a block", pcapng(&[6, 1 << 20, 0, 0, 0, u32::MAX, u32::MAX])),
        ("a long simple packet", pcapng(&[3, 1 << 20, u32::MAX])),
        ("a long section header", little(&[0x0a0d_0d0a, 28, 0x1a2b_3c4d, 1, 0, 0, 28])),
        ("a long unknown block", pcapng(&[0x7777, u32::MAX - 3])),
        ("options of no length", pcapng(&[6, 4096, 0, 0, 0, 0, 0])),
    ];
    for (what, input) in inputs {
        for tail in [0, 0xff, 1] {
            let peak = peak(input.clone(), tail);
            assert!(peak < LIMIT, "{what} took {peak} bytes");
        }
    }
}
