//! The reader: one record after the other, whatever the format and the compression.

use std::{fmt, io::Read, os::fd::AsFd, path::Path};

use roxe_wire::{RawFrame, Start};

use super::{
    CaptureError, Direction, Interface, MAX_PACKET_LEN, Timestamp,
    link::{Framing, Stripped},
    pcap::Pcap,
    pcapng::Pcapng,
    source::{self, Counted, Heard, Progress},
    window::{Span, Window},
};

/// Reads a capture, record by record, in constant memory: 1 MiB, and what a decompressor needs (for
/// zstd as much as the file wants, but at most 128 MiB).
///
/// ```
/// use roxe_net::capture_file::{CaptureError, CaptureReader};
///
/// fn count_cut_packets(path: &str) -> Result<u64, CaptureError> {
///     let mut reader = CaptureReader::open(path)?;
///     let mut cut = 0;
///     while let Some(record) = reader.next()? {
///         cut += u64::from(record.is_cut());
///     }
///     Ok(cut)
/// }
/// ```
pub struct CaptureReader {
    window: Window,
    unpacked: bool,
    format: Format,
    interfaces: Vec<Interface>,
    progress: Progress,
    total_len: Option<u64>,
    /// Of the last record.
    number: u64,
    delivered: u64,
    skipped: u64,
    truncated: Option<Truncation>,
    finished: bool,
}

/// A packet as the capture holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Its place in the file, from 1, counted as Wireshark does: skipped packets have numbers too,
    /// and so have the journal entries, system calls and custom blocks a pcapng file may hold.
    pub number: u64,
    /// When it was captured; the start of 1970 when the file does not say (simple packet blocks).
    pub time: Timestamp,
    /// What `data` begins with.
    pub start: Start,
    /// What was captured of it, without the link headers that captures add.
    pub data: &'a [u8],
    /// How long `data` was on the wire, in bytes: never shorter than `data`, and longer if the
    /// packet was cut.
    pub wire_len: u32,
    /// Index into [`CaptureReader::interfaces`]. Counts through all sections of a file, where
    /// Wireshark counts anew in each.
    pub interface: u32,
    /// Which way it went, where the file tells.
    pub direction: Option<Direction>,
    /// The packet's comments, with a semicolon between two. What is no UTF-8 is replaced, and of
    /// more than 64 KiB the rest is left out behind an ellipsis.
    pub comment: Option<&'a str>,
}

impl<'a> Record<'a> {
    /// Whether less was captured than there was.
    pub fn is_cut(&self) -> bool {
        self.data.len() < self.wire_len as usize
    }

    /// The packet as [`Frame::parse`](roxe_wire::Frame::parse) takes it.
    pub fn raw_frame(&self) -> RawFrame<'a> {
        RawFrame {
            start: self.start,
            first: self.data,
            second: &[],
            wire_len: self.wire_len as usize,
        }
    }
}

/// The input ended in the middle: the capture was killed while it wrote, or is still running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Truncation {
    /// The record that is incomplete, or would have been next if the cut went through a block that
    /// holds no packet. All before it were delivered.
    pub number: u64,
    /// Where it begins, in bytes after decompression.
    pub offset: u64,
    /// Whether there was any.
    pub unpacked: bool,
}

impl fmt::Display for Truncation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { number, offset, unpacked } = self;
        let of = if *unpacked { " of the unpacked file" } else { "" };
        write!(f, "the file ends inside record {number} (byte {offset}{of})")
    }
}

impl CaptureReader {
    /// Opens a capture file; `-` is standard input.
    ///
    /// # Errors
    /// Where the file cannot be opened, and as [`new`](Self::new).
    pub fn open(path: impl AsRef<Path>) -> Result<Self, CaptureError> {
        let (file, total_len) = source::open(path.as_ref())?;
        Ok(Self { total_len, ..Self::new(file)? })
    }

    /// Opens a capture file, as [`open`](Self::open), of which something is told on `output`: where
    /// the file is a pipe, it is waited for only as long as somebody reads that.
    ///
    /// # Errors
    /// As [`open`](Self::open). Here and in [`next`](Self::next), [`CaptureError::Read`] with a
    /// reason of the kind [`BrokenPipe`](std::io::ErrorKind::BrokenPipe) once nobody reads `output`
    /// any more.
    pub fn open_for(
        path: impl AsRef<Path>,
        output: impl AsFd + Send + 'static,
    ) -> Result<Self, CaptureError> {
        let (source, total_len) = source::open(path.as_ref())?;
        match total_len {
            Some(_) => Ok(Self { total_len, ..Self::new(source)? }),
            None => Self::new(Heard { source, output }),
        }
    }

    /// Reads a capture from `source`, which need not be buffered. Waits for its first bytes.
    ///
    /// # Errors
    /// Where `source` fails, or does not begin like a capture.
    pub fn new(source: impl Read + Send + 'static) -> Result<Self, CaptureError> {
        let progress = Progress::default();
        let counted = Counted { source, progress: progress.clone() };
        let (mut window, unpacked) = source::decompress(Box::new(counted))?;
        let (format, interfaces) = Format::begin(&mut window)?;
        Ok(Self {
            window,
            unpacked,
            format,
            interfaces,
            progress,
            total_len: None,
            number: 0,
            delivered: 0,
            skipped: 0,
            truncated: None,
            finished: false,
        })
    }

    /// The next record. `None` at the end of the capture, also where it ends in the middle of a
    /// record: see [`truncated`](Self::truncated).
    ///
    /// Packets whose link headers are not understood are skipped.
    ///
    /// # Errors
    /// Where the input fails or the file is damaged, once; then the capture has ended. At the end
    /// of a capture with packets of which none could be read.
    #[expect(clippy::should_implement_trait, reason = "an iterator could not lend the packets")]
    #[inline]
    pub fn next(&mut self) -> Result<Option<Record<'_>>, CaptureError> {
        if self.finished {
            return Ok(None);
        }
        let step = self.advance();
        self.finished = !matches!(step, Ok(Some(_)));
        let Some((found, stripped)) = step.map_err(|error| *error)? else { return Ok(None) };
        let Stripped { start, skip, len, wire_len, direction } = stripped;
        Ok(Some(Record {
            number: self.number,
            time: found.time,
            start,
            data: self.window.get(Span { from: found.data.from + skip, len }),
            wire_len,
            interface: found.interface as u32,
            direction: found.direction.or(direction),
            comment: if found.commented { self.format.comments() } else { None },
        }))
    }

    /// Goes to the next packet that can be read.
    ///
    /// Here and below the error is boxed: it is larger than what is returned for a packet, and the
    /// room for it slows each of these calls down. So does a call that is not inlined.
    #[inline(always)]
    fn advance(&mut self) -> Result<Option<(Found, Stripped)>, Box<CaptureError>> {
        loop {
            let step = match &mut self.format {
                Format::Pcap(pcap) => pcap.step(&mut self.window)?,
                Format::Pcapng(pcapng) => pcapng.step(&mut self.window, &mut self.interfaces)?,
            };
            let found = match step {
                Step::Packet(found) => found,
                Step::Other => {
                    self.number += 1;
                    continue;
                }
                Step::End if !self.window.is_cut() => return self.end(),
                Step::End | Step::Cut { .. } => {
                    let offset = match step {
                        Step::Cut { offset } => offset,
                        _ => self.window.offset(),
                    };
                    let (number, unpacked) = (self.number + 1, self.unpacked);
                    self.truncated = Some(Truncation { number, offset, unpacked });
                    return self.end();
                }
            };
            self.number += 1;
            let interface = &mut self.interfaces[found.interface];
            let framing = interface.link_type.framing();
            if let Some(stripped) = framing.strip(self.window.get(found.data), found.wire_len) {
                self.delivered += 1;
                return Ok(Some((found, stripped)));
            }
            interface.skipped += 1;
            self.skipped += 1;
            // All packets of a pcap file are alike, so there is nothing to wait for.
            if framing == Framing::Unknown && matches!(self.format, Format::Pcap(_)) {
                return self.end();
            }
        }
    }

    fn end(&self) -> Result<Option<(Found, Stripped)>, Box<CaptureError>> {
        if self.delivered > 0 || self.skipped == 0 {
            return Ok(None);
        }
        let mut interfaces = self.interfaces.clone();
        interfaces.retain(|interface| interface.skipped > 0);
        Err(CaptureError::NothingReadable { packets: self.skipped, interfaces }.into())
    }

    /// Where the input ended in the middle of a record. Known once [`next`](Self::next) has
    /// returned `None`; not an error, as all that is there was read.
    pub fn truncated(&self) -> Option<Truncation> {
        self.truncated
    }

    /// Whether the input is compressed, so that offsets count what comes out of it.
    pub fn is_unpacked(&self) -> bool {
        self.unpacked
    }

    /// How many packets were skipped until now because what they begin with is not understood.
    /// Which: see [`interfaces`](Self::interfaces).
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// The interfaces that were described until now.
    pub fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    /// How far the input was read, in bytes, before decompression. The reader is up to some 256 KiB
    /// ahead of the record it returned last.
    pub fn bytes_read(&self) -> u64 {
        self.progress.bytes()
    }

    /// How long the input is, in bytes, before decompression. `None` for pipes.
    pub fn total_len(&self) -> Option<u64> {
        self.total_len
    }
}

impl fmt::Debug for CaptureReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CaptureReader")
            .field("number", &self.number)
            .field("interfaces", &self.interfaces)
            .finish_non_exhaustive()
    }
}

enum Format {
    Pcap(Pcap),
    Pcapng(Pcapng),
}

impl Format {
    fn begin(window: &mut Window) -> Result<(Self, Vec<Interface>), CaptureError> {
        if let Some(pcap) = Pcap::begin(window) {
            let (pcap, interface) = pcap?;
            return Ok((Self::Pcap(pcap), vec![interface]));
        }
        if let Some(pcapng) = Pcapng::begin(window) {
            return Ok((Self::Pcapng(pcapng?), Vec::new()));
        }
        let input = window.rest();
        if window.is_cut() && input.len() < 4 {
            return Err(CaptureError::PackedCut { len: input.len() as u64 });
        }
        Err(unknown(input))
    }

    /// Of the last packet, where it has any.
    fn comments(&self) -> Option<&str> {
        match self {
            Self::Pcap(_) => None,
            Self::Pcapng(pcapng) => Some(pcapng.comments()),
        }
    }
}

/// Says what `input` is instead of a capture, as far as that is known.
fn unknown(input: &[u8]) -> CaptureError {
    if let Some((_, what, remedy)) = OTHERS.iter().find(|(magic, ..)| input.starts_with(magic)) {
        return CaptureError::OtherFormat { what, remedy };
    }
    match input.first_chunk() {
        Some(magic) => CaptureError::UnknownMagic { magic: u32::from_be_bytes(*magic) },
        None if input.is_empty() => CaptureError::Empty,
        None => CaptureError::NoHeader { len: input.len() as u64 },
    }
}

const MODIFIED: &str = "a pcap in the modified format of Alexey Kuznetzov's libpcap patch";
const CONVERT: &str = "convert it with `editcap -F pcapng FILE NEW`";
const UNPACK: &str = "unpack it first, or repack it with gzip or zstd";

/// What people may take for a capture, what it is, and what to do.
#[rustfmt::skip]
const OTHERS: &[(&[u8], &str, &str)] = &[
    (&[0xa1, 0xb2, 0xcd, 0x34], MODIFIED,                   CONVERT),
    (&[0x34, 0xcd, 0xb2, 0xa1], MODIFIED,                   CONVERT),
    (b"snoop\0\0\0",            "a snoop capture",          CONVERT),
    (b"GMBU",                   "a Network Monitor capture", CONVERT),
    (b"RTSS",                   "a Network Monitor capture", CONVERT),
    (b"\xfd7zXZ\0",             "an xz-compressed file",    UNPACK),
    (b"BZh",                    "a bzip2-compressed file",  UNPACK),
    (&[0x04, 0x22, 0x4d, 0x18], "an lz4-compressed file",   UNPACK),
    (b"PK\x03\x04",             "a zip archive",            UNPACK),
];

/// What a format's reader came upon.
pub(super) enum Step {
    Packet(Found),
    /// Something that has a number of its own but is no packet.
    Other,
    /// The end, between two records.
    End,
    /// The end, inside of the record or block that begins at this byte.
    Cut {
        offset: u64,
    },
}

/// A packet as the file describes it, with its link header.
pub(super) struct Found {
    pub(super) time: Timestamp,
    /// Index into the reader's interfaces, which has it.
    pub(super) interface: usize,
    /// At most [`MAX_PACKET_LEN`] bytes.
    pub(super) data: Span,
    /// As the file says it, which may be nonsense.
    pub(super) wire_len: u32,
    pub(super) direction: Option<Direction>,
    /// Whether it has comments; the format's reader has them.
    pub(super) commented: bool,
}

const _: () = assert!(MAX_PACKET_LEN <= super::window::CAPACITY);
