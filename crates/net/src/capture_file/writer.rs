//! The writers: pcapng with everything a record can say, and the classic format for programs that
//! know nothing else.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io::{self, BufWriter, Write},
    path::Path,
};

use super::{Direction, LinkType, MAX_PACKET_LEN, Timestamp, WriteError, pcap, pcapng};

/// Writes a pcapng capture: one section, times in nanoseconds.
///
/// Buffered: [`flush`](Self::flush) before somebody else reads. Dropping it flushes too, but cannot
/// report failure.
pub struct CaptureWriter<W: Write> {
    output: BufWriter<W>,
    /// The snap length of each interface.
    snap_lens: Vec<u32>,
}

/// An interface to be written to a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewInterface<'a> {
    /// What the capturing machine calls it. Cut to 256 bytes. Left out if empty.
    pub name: &'a str,
    /// What it is, for people. Cut to 65,535 bytes. Left out if empty.
    pub description: &'a str,
    /// What its packets begin with.
    pub link_type: LinkType,
    /// Longer packets are cut to this many bytes. 0 for no limit.
    pub snap_len: u32,
}

/// A packet to be written to a capture. By default on the first interface, with no direction and no
/// comment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NewRecord<'a> {
    /// What [`CaptureWriter::add_interface`] returned. Not written by [`PcapWriter`].
    pub interface: u32,
    /// When it was captured.
    pub time: Timestamp,
    /// The packet, beginning as the interface's link type says.
    pub data: &'a [u8],
    /// How long it was on the wire, in bytes; if less than `data`, as long as `data`.
    pub wire_len: u32,
    /// Which way it went, if known. Not written by [`PcapWriter`].
    pub direction: Option<Direction>,
    /// What to tell a reader about it. Cut to 65,535 bytes. Not written by [`PcapWriter`].
    pub comment: Option<&'a str>,
}

impl CaptureWriter<File> {
    /// Creates a capture file, over one that may be there, and locks it until it is closed.
    ///
    /// # Errors
    /// Where the file cannot be created or written, or another writer has it.
    pub fn create(path: impl AsRef<Path>) -> Result<Self, WriteError> {
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
        // Pipes and terminals are nobody's. A file system without locks has none to respect.
        if file.metadata()?.is_file() {
            if let Err(TryLockError::WouldBlock) = file.try_lock() {
                return Err(WriteError::Busy);
            }
            file.set_len(0)?;
        }
        Self::new(file)
    }
}

impl<W: Write> CaptureWriter<W> {
    /// Begins a capture on `output`, which need not be buffered.
    ///
    /// # Errors
    /// Where `output` fails.
    pub fn new(output: W) -> Result<Self, WriteError> {
        let mut writer =
            Self { output: BufWriter::with_capacity(BUFFER, output), snap_lens: vec![] };
        let application = concat!("roxe ", env!("CARGO_PKG_VERSION"));
        let mut fixed = [0; 16];
        fixed[0..4].copy_from_slice(&pcapng::BYTE_ORDER_MAGIC.to_le_bytes());
        fixed[4..6].copy_from_slice(&1u16.to_le_bytes());
        // A section of unknown length.
        fixed[8..16].copy_from_slice(&u64::MAX.to_le_bytes());
        let application = (pcapng::APPLICATION, application.as_bytes());
        writer.block(pcapng::SECTION_HEADER, &fixed, (&[], 0), &[application])?;
        Ok(writer)
    }

    /// Adds an interface. Returns its number, which records need.
    ///
    /// # Errors
    /// Where the output fails.
    pub fn add_interface(&mut self, interface: NewInterface<'_>) -> Result<u32, WriteError> {
        let NewInterface { name, description, link_type, snap_len } = interface;
        let mut fixed = [0; 8];
        fixed[0..2].copy_from_slice(&link_type.0.to_le_bytes());
        fixed[4..8].copy_from_slice(&snap_len.to_le_bytes());
        let name = (pcapng::IF_NAME, cut(name, pcapng::MAX_NAME_LEN));
        let description = (pcapng::IF_DESCRIPTION, cut(description, u16::MAX.into()));
        let resolution = (pcapng::IF_TSRESOL, &[9][..]);
        let options = match (name.1, description.1) {
            ([], []) => &[resolution][..],
            ([], _) => &[description, resolution],
            (_, []) => &[name, resolution],
            _ => &[name, description, resolution],
        };
        self.block(pcapng::INTERFACE, &fixed, (&[], 0), options)?;
        self.snap_lens.push(snap_len);
        Ok(self.snap_lens.len() as u32 - 1)
    }

    /// Writes a packet.
    ///
    /// # Errors
    /// Where the output fails, the interface was never added, or more than
    /// [`MAX_PACKET_LEN`] bytes would have to be written.
    pub fn write(&mut self, record: &NewRecord<'_>) -> Result<(), WriteError> {
        self.write_pieces(record, &[record.data])
    }

    /// Writes a packet that lies in pieces, whatever the record's `data` is.
    ///
    /// # Errors
    /// Those of [`write`](Self::write).
    pub fn write_pieces(
        &mut self,
        record: &NewRecord<'_>,
        pieces: &[&[u8]],
    ) -> Result<(), WriteError> {
        let NewRecord { interface, time, direction, comment, .. } = *record;
        let snap_len = *self
            .snap_lens
            .get(interface as usize)
            .ok_or(WriteError::NoSuchInterface { interface })?;
        let whole = pieces.iter().map(|piece| piece.len()).sum();
        let len = snapped(whole, snap_len)?;
        let ticks = time.as_nanos();
        let full_len = record.full_len(whole);
        let words = [interface, (ticks >> 32) as u32, ticks as u32, len as u32, full_len];
        let mut fixed = [0; 20];
        for (room, word) in fixed.as_chunks_mut::<4>().0.iter_mut().zip(words) {
            *room = word.to_le_bytes();
        }
        let flags = match direction {
            Some(Direction::Inbound) => pcapng::FLAG_INBOUND,
            Some(Direction::Outbound) => pcapng::FLAG_OUTBOUND,
            None => 0,
        }
        .to_le_bytes();
        let flags = (pcapng::PACKET_FLAGS, &flags[..]);
        let comment = (pcapng::COMMENT, cut(comment.unwrap_or_default(), u16::MAX.into()));
        let options = match (record.comment, direction) {
            (None, None) => &[][..],
            (None, Some(_)) => &[flags],
            (Some(_), None) => &[comment],
            (Some(_), Some(_)) => &[comment, flags],
        };
        self.block(pcapng::ENHANCED_PACKET, &fixed, (pieces, len), options)
    }

    /// Bytes that were written and not handed to the output yet.
    pub fn buffered(&self) -> usize {
        self.output.buffer().len()
    }

    /// Hands everything written until now to the output.
    ///
    /// # Errors
    /// Where the output fails.
    pub fn flush(&mut self) -> Result<(), WriteError> {
        Ok(self.output.flush()?)
    }

    /// Ends the capture and returns the output.
    ///
    /// # Errors
    /// Where the output fails.
    pub fn finish(mut self) -> Result<W, WriteError> {
        self.output.flush()?;
        self.output.into_inner().map_err(|error| error.into_error().into())
    }

    /// Writes a block: `fixed` (a multiple of 4 bytes), so many bytes of pieces of data, padded,
    /// `options` padded and closed.
    fn block(
        &mut self,
        kind: u32,
        fixed: &[u8],
        (pieces, data_len): (&[&[u8]], usize),
        options: &[(u16, &[u8])],
    ) -> Result<(), WriteError> {
        let options_len: usize =
            options.iter().map(|(_, value)| 4 + value.len().next_multiple_of(4)).sum();
        let options_len = if options.is_empty() { 0 } else { options_len + 4 };
        let body_len = fixed.len() + data_len.next_multiple_of(4) + options_len;
        let len = ((pcapng::FRAME_LEN + body_len) as u32).to_le_bytes();
        self.output.write_all(&kind.to_le_bytes())?;
        self.output.write_all(&len)?;
        self.output.write_all(fixed)?;
        let mut left = data_len;
        for piece in pieces {
            let piece = &piece[..piece.len().min(left)];
            self.output.write_all(piece)?;
            left -= piece.len();
        }
        self.pad(data_len)?;
        for (code, value) in options {
            self.output.write_all(&code.to_le_bytes())?;
            self.output.write_all(&(value.len() as u16).to_le_bytes())?;
            self.output.write_all(value)?;
            self.pad(value.len())?;
        }
        if !options.is_empty() {
            self.output.write_all(&[0; 4])?;
        }
        Ok(self.output.write_all(&len)?)
    }

    /// What lacks behind `len` bytes.
    fn pad(&mut self, len: usize) -> io::Result<()> {
        self.output.write_all(&[0; 4][..len.next_multiple_of(4) - len])
    }
}

/// Writes a classic pcap capture: one interface, times in nanoseconds, no directions or comments.
pub struct PcapWriter<W: Write> {
    output: BufWriter<W>,
    snap_len: u32,
}

impl<W: Write> PcapWriter<W> {
    /// Begins a capture on `output`, which need not be buffered. Longer packets are cut to
    /// `snap_len` bytes; 0 for no limit.
    ///
    /// # Errors
    /// Where `output` fails.
    pub fn new(output: W, link_type: LinkType, snap_len: u32) -> Result<Self, WriteError> {
        let mut output = BufWriter::with_capacity(BUFFER, output);
        let limit = if snap_len == 0 { MAX_PACKET_LEN as u32 } else { snap_len };
        output.write_all(&pcap::MAGIC_NANOSECONDS.to_le_bytes())?;
        output.write_all(&[2, 0, 4, 0])?;
        output.write_all(&[0; 8])?;
        output.write_all(&limit.to_le_bytes())?;
        output.write_all(&u32::from(link_type.0).to_le_bytes())?;
        Ok(Self { output, snap_len })
    }

    /// Writes a packet.
    ///
    /// # Errors
    /// Where the output fails, the time is after 2106, or more than [`MAX_PACKET_LEN`] bytes would
    /// have to be written.
    pub fn write(&mut self, record: &NewRecord<'_>) -> Result<(), WriteError> {
        let seconds = record.time.seconds();
        let seconds_32 = u32::try_from(seconds).map_err(|_| WriteError::TooLate { seconds })?;
        let data = &record.data[..snapped(record.data.len(), self.snap_len)?];
        let full_len = record.full_len(record.data.len());
        let words = [seconds_32, record.time.subsec_nanos(), data.len() as u32, full_len];
        for word in words {
            self.output.write_all(&word.to_le_bytes())?;
        }
        Ok(self.output.write_all(data)?)
    }

    /// Hands everything written until now to the output.
    ///
    /// # Errors
    /// Where the output fails.
    pub fn flush(&mut self) -> Result<(), WriteError> {
        Ok(self.output.flush()?)
    }

    /// Ends the capture and returns the output.
    ///
    /// # Errors
    /// Where the output fails.
    pub fn finish(mut self) -> Result<W, WriteError> {
        self.output.flush()?;
        self.output.into_inner().map_err(|error| error.into_error().into())
    }
}

impl NewRecord<'_> {
    fn full_len(&self, len: usize) -> u32 {
        self.wire_len.max(len.try_into().unwrap_or(u32::MAX))
    }
}

/// How much is to be written of so many bytes.
fn snapped(len: usize, snap_len: u32) -> Result<usize, WriteError> {
    let limit = if snap_len == 0 { usize::MAX } else { snap_len as usize };
    let len = len.min(limit);
    if len > MAX_PACKET_LEN {
        return Err(WriteError::PacketLength { len });
    }
    Ok(len)
}

/// At most `limit` bytes of `text`, whole characters.
fn cut(text: &str, limit: usize) -> &[u8] {
    &text.as_bytes()[..text.floor_char_boundary(limit)]
}

/// How much is written at once.
const BUFFER: usize = 256 * 1024;
