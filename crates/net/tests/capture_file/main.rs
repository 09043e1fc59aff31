//! The capture reader and writers from outside: captures of other programs, captures made by hand,
//! captures written and read again, and captures cut and corrupted at random.

mod by_hand;
mod compressed;
mod damaged;
mod formats;
mod others;
mod written;

use roxe_net::capture_file::{CaptureError, CaptureReader, Direction, Record, Start};

/// A record that has outlived its reader.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    number: u64,
    time: String,
    start: Start,
    data: Vec<u8>,
    wire_len: u32,
    interface: u32,
    direction: Option<Direction>,
    comment: Option<String>,
}

impl From<Record<'_>> for Seen {
    fn from(record: Record<'_>) -> Self {
        Self {
            number: record.number,
            time: record.time.to_string(),
            start: record.start,
            data: record.data.to_vec(),
            wire_len: record.wire_len,
            interface: record.interface,
            direction: record.direction,
            comment: record.comment.map(str::to_owned),
        }
    }
}

/// Everything up to the end or the first error, and what was found out on the way.
struct Outcome {
    records: Vec<Seen>,
    error: Option<CaptureError>,
    reader: CaptureReader,
}

fn read_to_end(mut reader: CaptureReader) -> Outcome {
    let mut records = Vec::new();
    let error = loop {
        match reader.next() {
            Ok(Some(record)) => records.push(record.into()),
            Ok(None) => break None,
            Err(error) => break Some(error),
        }
    };
    assert!(matches!(reader.next(), Ok(None)), "an end is an end");
    Outcome { records, error, reader }
}

/// Reads a capture that must be right.
fn read(capture: &[u8]) -> Vec<Seen> {
    let outcome = read_to_end(open(capture).unwrap());
    assert!(outcome.error.is_none(), "{}", outcome.error.unwrap());
    assert_eq!(outcome.reader.truncated(), None);
    assert_eq!(outcome.reader.bytes_read(), capture.len() as u64);
    outcome.records
}

fn open(capture: &[u8]) -> Result<CaptureReader, CaptureError> {
    CaptureReader::new(std::io::Cursor::new(capture.to_vec()))
}
