//! Any bytes are a capture file: read to its end, to where it is cut, or to one error. Each frame
//! in it goes through the parser and the observer.

#![no_main]

use std::io::Cursor;

use roxe_net::capture_file::CaptureReader;
use roxe_trace::{IcrcVerdict, Observation, Outside, Seen, Tracer};
use roxe_wire::{Frame, Packet};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let len = bytes.len();
    let Ok(mut reader) = CaptureReader::new(Cursor::new(bytes.to_vec())) else { return };
    let mut tracer = Tracer::default();
    let mut observation = Observation::default();
    let mut last = 0;
    while let Ok(Some(record)) = reader.next() {
        assert!(record.number > last, "numbers ascend");
        assert!(record.wire_len as usize >= record.data.len());
        last = record.number;
        let Ok(frame) = Frame::parse(record.raw_frame()) else { continue };
        let Ok(packet) = Packet::parse(frame.body) else { continue };
        // A right ICRC hardly ever comes by chance, so the observer is told that it is.
        let icrc = IcrcVerdict::Good;
        let outside = Outside::of(&frame);
        let (number, time_ns) = (last, record.time.as_nanos());
        let seen = Seen { number, time_ns, outside: &outside, packet: &packet, icrc };
        tracer.observe(&seen, &mut observation);
        let _ = observation.notes.iter().map(ToString::to_string).collect::<String>();
        let _ = observation.findings.iter().map(ToString::to_string).collect::<String>();
    }
    let _ = tracer.summary();
    for conversation in tracer.conversations() {
        let _ = conversation.endings.iter().map(ToString::to_string).collect::<String>();
    }
    assert!(matches!(reader.next(), Ok(None)), "after the end there is nothing");
    assert!(reader.bytes_read() <= len as u64);
});
