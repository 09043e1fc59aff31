//! Compression taken off: members of gzip and frames of zstd, one behind the other, and whatever
//! stands behind the last.

use std::io::{self, BufRead, BufReader, Read};
use std::mem;

use flate2::bufread::GzDecoder;
use zstd::zstd_safe::{
    DCtx, ErrorCode, InBuffer, OutBuffer, ResetDirective, get_error_name, zstd_sys::ZSTD_ErrorCode,
};

/// How an input is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Packing {
    /// RFC 1952.
    Gzip,
    /// RFC 8878.
    Zstd,
}

impl Packing {
    /// What begins with `head`, whatever its name may be.
    pub(super) fn of(head: &[u8]) -> Option<Self> {
        match head {
            [0x1f, 0x8b, ..] => Some(Self::Gzip),
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Some(Self::Zstd),
            _ if is_skipped(head) => Some(Self::Zstd),
            _ => None,
        }
    }

    /// Whether `head`, which is all there is, could go on as a piece of this kind.
    fn could_begin(self, head: &[u8]) -> bool {
        match self {
            Self::Gzip => head == [0x1f],
            Self::Zstd => {
                matches!(head, [0x28] | [0x28, 0xb5] | [0x28, 0xb5, 0x2f])
                    || matches!(
                        head,
                        [0x50..=0x5f] | [0x50..=0x5f, 0x2a] | [0x50..=0x5f, 0x2a, 0x4d]
                    )
            }
        }
    }

    /// Something else behind the last piece.
    fn garbage(self) -> io::Error {
        io::Error::new(
            io::ErrorKind::InvalidData,
            match self {
                Self::Gzip => "the gzip data ends here, and behind it is neither gzip nor zeros",
                Self::Zstd => "the zstd data ends here, and behind it is neither zstd nor zeros",
            },
        )
    }

    /// Too little behind the last piece to tell what it is.
    fn remnant(self) -> io::Error {
        io::Error::new(
            io::ErrorKind::InvalidData,
            match self {
                Self::Gzip => {
                    "the gzip data ends here, and behind it is the first byte of more gzip data, \
                     or garbage"
                }
                Self::Zstd => {
                    "the zstd data ends here, and behind it are the first bytes of more zstd data, \
                     or garbage"
                }
            },
        )
    }
}

/// What an input unpacks to: all its pieces. Zeros behind the last fill up a block of a tape or a
/// disk, and mean nothing. Anything else is an error once all before it was read; an input that
/// ends inside a piece, one of the kind [`UnexpectedEof`](io::ErrorKind::UnexpectedEof).
pub(super) struct Unpacked {
    packing: Packing,
    state: State,
    /// Decodes one frame of zstd after the other: a new one costs more than a small frame.
    frames: Option<DCtx<'static>>,
}

#[expect(clippy::large_enum_variant, reason = "there is one of them")]
enum State {
    Member(GzDecoder<Packed>),
    Frame { packed: Packed, ended: bool },
    Between(Packed),
    Ended,
}

impl Unpacked {
    /// What `source` unpacks to, which begins like a piece of this kind.
    pub(super) fn new(packing: Packing, source: Box<dyn Read + Send>) -> Self {
        Self { packing, state: State::Between(Packed::new(source)), frames: None }
    }
}

impl Read for Unpacked {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        if room.is_empty() {
            return Ok(0);
        }
        loop {
            match &mut self.state {
                State::Ended => return Ok(0),
                State::Member(member) => match member.read(room)? {
                    0 => {}
                    read => return Ok(read),
                },
                State::Frame { ended: true, .. } => {}
                State::Frame { packed, ended } => {
                    let read;
                    (read, *ended) = read_frame(decoder(&mut self.frames), packed, room)?;
                    if read > 0 {
                        return Ok(read);
                    }
                }
                State::Between(packed) => {
                    let packing = self.packing;
                    let head = packed.peek()?;
                    if packing.could_begin(head) {
                        return Err(packing.remnant());
                    }
                    let skipped = is_skipped(head);
                    if Packing::of(head) != Some(packing) && !packed.is_only_zeros()? {
                        return Err(packing.garbage());
                    }
                    if skipped {
                        packed.skip_frame()?;
                        continue;
                    }
                }
            }
            self.state = match mem::replace(&mut self.state, State::Ended) {
                State::Member(member) => State::Between(member.into_inner()),
                State::Frame { packed, .. } => State::Between(packed),
                State::Between(packed) if !packed.is_at_end() => match self.packing {
                    Packing::Gzip => State::Member(GzDecoder::new(packed)),
                    Packing::Zstd => {
                        let frames = decoder(&mut self.frames);
                        frames.reset(ResetDirective::SessionOnly).map_err(refused)?;
                        State::Frame { packed, ended: false }
                    }
                },
                State::Between(_) | State::Ended => State::Ended,
            };
        }
    }
}

/// Whether what begins with `head` is a frame of zstd that holds nothing of what was packed. There
/// are sixteen kinds.
fn is_skipped(head: &[u8]) -> bool {
    matches!(head, [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..])
}

/// The one decoder of all frames, made for the first.
fn decoder<'a>(frames: &'a mut Option<DCtx<'static>>) -> &'a mut DCtx<'static> {
    frames.get_or_insert_with(DCtx::create)
}

/// Reads on in a frame of zstd; tells how much, and whether the frame ends there.
fn read_frame(
    frames: &mut DCtx<'static>,
    packed: &mut Packed,
    room: &mut [u8],
) -> io::Result<(usize, bool)> {
    // What was decoded and found no room is taken first: more input may have to be waited for.
    let mut input: &[u8] = &[];
    loop {
        let (mut from, mut to) = (InBuffer::around(input), OutBuffer::around(room));
        let left = frames.decompress_stream(&mut to, &mut from).map_err(refused)?;
        let (taken, read) = (from.pos(), to.pos());
        packed.consume(taken);
        if read > 0 || left == 0 {
            return Ok((read, left == 0));
        }
        input = packed.fill_buf()?;
        if input.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

/// What the decoder of zstd complains of.
fn refused(code: ErrorCode) -> io::Error {
    // Its errors are negative.
    match code.wrapping_neg() {
        WINDOW_TOO_LARGE => io::Error::new(
            io::ErrorKind::InvalidData,
            "to unpack this zstd data takes more than 128 MiB of memory: unpack it first (`zstd -d \
             --long=31`)",
        ),
        _ => io::Error::other(get_error_name(code)),
    }
}

const WINDOW_TOO_LARGE: usize = ZSTD_ErrorCode::ZSTD_error_frameParameter_windowTooLarge as usize;

/// A compressed input of which the next bytes can be looked at.
struct Packed {
    /// Those that were looked at: the first `len` are still to be read.
    head: [u8; 4],
    len: usize,
    rest: BufReader<Box<dyn Read + Send>>,
}

/// How much of a compressed input is read at once.
const CHUNK: usize = 64 * 1024;

impl Packed {
    fn new(source: Box<dyn Read + Send>) -> Self {
        Self { head: [0; 4], len: 0, rest: BufReader::with_capacity(CHUNK, source) }
    }

    /// The next four bytes, or as many as there are.
    fn peek(&mut self) -> io::Result<&[u8]> {
        while self.len < self.head.len() {
            match self.rest.read(&mut self.head[self.len..]) {
                Ok(0) => break,
                Ok(read) => self.len += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(&self.head[..self.len])
    }

    /// Whether nothing but zeros follows. Reads as far as they go.
    fn is_only_zeros(&mut self) -> io::Result<bool> {
        loop {
            let len = match self.fill_buf() {
                Ok([]) => return Ok(true),
                Ok(bytes) if bytes.iter().all(|byte| *byte == 0) => bytes.len(),
                Ok(_) => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            self.consume(len);
        }
    }

    /// Goes on behind a frame of zstd that is to be skipped.
    ///   | magic (32) | length of the rest (32, least significant byte first) | rest |
    fn skip_frame(&mut self) -> io::Result<()> {
        let mut header = [0; 8];
        self.read_exact(&mut header)?;
        let [.., len_0, len_1, len_2, len_3] = header;
        let len = u64::from(u32::from_le_bytes([len_0, len_1, len_2, len_3]));
        let skipped = io::copy(&mut self.take(len), &mut io::sink())?;
        if skipped < len { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
    }

    /// Whether the last look found nothing.
    const fn is_at_end(&self) -> bool {
        self.len == 0
    }
}

impl BufRead for Packed {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.len > 0 { Ok(&self.head[..self.len]) } else { self.rest.fill_buf() }
    }

    fn consume(&mut self, len: usize) {
        if self.len > 0 {
            self.head.copy_within(len..self.len, 0);
            self.len -= len;
        } else {
            self.rest.consume(len);
        }
    }
}

impl Read for Packed {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let bytes = self.fill_buf()?;
        let len = bytes.len().min(room.len());
        room[..len].copy_from_slice(&bytes[..len]);
        self.consume(len);
        Ok(len)
    }
}
