//! Compression taken off: members of gzip and frames of zstd, one behind the other, and whatever
//! stands behind the last.

use std::io::{self, BufRead, BufReader, Read};
use std::mem;

use flate2::bufread::GzDecoder;

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
            // A frame, or a frame to be skipped, of sixteen kinds.
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Some(Self::Zstd),
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

    fn open(self, packed: Packed) -> io::Result<Piece> {
        Ok(match self {
            Self::Gzip => Piece::Gzip(GzDecoder::new(packed)),
            Self::Zstd => Piece::Zstd(zstd::Decoder::with_buffer(packed)?.single_frame()),
        })
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
}

/// What an input unpacks to: all its pieces. Zeros behind the last fill up a block of a tape or a
/// disk, and mean nothing. Anything else is an error once all before it was read; an input that
/// ends inside a piece, one of the kind [`UnexpectedEof`](io::ErrorKind::UnexpectedEof).
pub(super) struct Unpacked {
    packing: Packing,
    state: State,
}

#[expect(clippy::large_enum_variant, reason = "there is one of them")]
enum State {
    Inside(Piece),
    Behind(Packed),
    Ended,
}

/// A member of gzip or a frame of zstd.
#[expect(clippy::large_enum_variant, reason = "there is one of them")]
enum Piece {
    Gzip(GzDecoder<Packed>),
    Zstd(zstd::Decoder<'static, Packed>),
}

impl Unpacked {
    pub(super) fn new(packing: Packing, source: Box<dyn Read + Send>) -> io::Result<Self> {
        let piece = packing.open(Packed::new(source))?;
        Ok(Self { packing, state: State::Inside(piece) })
    }
}

impl Read for Unpacked {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        loop {
            match &mut self.state {
                State::Ended => return Ok(0),
                State::Inside(piece) => match piece.read(room)? {
                    0 if !room.is_empty() => {}
                    read => return Ok(read),
                },
                State::Behind(packed) => {
                    let packing = self.packing;
                    let head = packed.peek()?;
                    if packing.could_begin(head) {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                    if Packing::of(head) != Some(packing) && !packed.is_only_zeros()? {
                        return Err(packing.garbage());
                    }
                }
            }
            self.state = match mem::replace(&mut self.state, State::Ended) {
                State::Inside(piece) => State::Behind(piece.into_packed()),
                State::Behind(packed) if !packed.is_at_end() => {
                    State::Inside(self.packing.open(packed)?)
                }
                State::Behind(_) | State::Ended => State::Ended,
            };
        }
    }
}

impl Piece {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Gzip(member) => member.read(room),
            Self::Zstd(frame) => frame.read(room),
        }
    }

    /// What follows it, once nothing more comes out of it.
    fn into_packed(self) -> Packed {
        match self {
            Self::Gzip(member) => member.into_inner(),
            Self::Zstd(frame) => frame.finish(),
        }
    }
}

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
