//! Any bytes are a frame: parsing them must not panic.

#![no_main]

libfuzzer_sys::fuzz_target!(|frame: &[u8]| {
    let _ = etherparse::SlicedPacket::from_ethernet(frame);
});
