//! The whole packet, from BTH to ICRC: parse and emit.
//!
//! IBA vol 1 §9.2–9.6. What stands before the BTH is the business of [`Frame`](crate::Frame); what
//! a packet does to a queue pair that of the transport. Nothing here checks the ICRC: see
//! [`icrc`](crate::icrc).

use crate::opcode::{Header, OPCODES};
use crate::{
    Aeth, AtomicAckEth, AtomicEth, Bth, CnpReserved, Deth, DropReason, Feth, IcrcCover, Ieth,
    ImmDt, Opcode, Rdeth, Reth, Xrceth, icrc,
};

/// Bytes of the ICRC behind every packet.
pub const ICRC_LEN: usize = 4;

/// The most bytes that BTH and extension headers take: Reliable Datagram atomics.
pub const MAX_HEADERS_LEN: usize = 52;

/// A packet's bytes from BTH to ICRC as somebody else holds them. Never written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body<'a> {
    /// All of them, in at most two pieces: an AF_XDP frame may lie in two chunks.
    Whole {
        /// The beginning; may be everything.
        first: &'a [u8],
        /// What follows it; usually empty.
        second: &'a [u8],
    },
    /// Only the beginning: a capture that keeps the first bytes of each frame, or a simulation in
    /// which a length and a digest stand for the payload.
    Elided {
        /// At least BTH and extension headers.
        start: &'a [u8],
        /// Bytes from BTH to ICRC that the packet has on the wire.
        len: usize,
        /// Stands for the payload's content, where the holder keeps one.
        digest: u32,
    },
}

impl<'a> Body<'a> {
    /// All bytes in one piece.
    pub const fn whole(bytes: &'a [u8]) -> Self {
        Self::Whole { first: bytes, second: &[] }
    }

    /// Bytes from BTH to ICRC on the wire.
    pub const fn len(&self) -> usize {
        match self {
            Self::Whole { first, second } => first.len() + second.len(),
            Self::Elided { len, .. } => *len,
        }
    }

    /// Whether there is no byte at all.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The BTH, whatever its opcode, and wherever it lies.
    ///
    /// # Errors
    /// [`DropReason::Truncated`] when its bytes are not here; those of [`Bth::parse`].
    pub fn bth(&self) -> Result<Bth, DropReason> {
        let mut gathered = [0; MAX_HEADERS_LEN];
        let start = self.start(&mut gathered);
        Bth::parse(*start.first_chunk().ok_or_else(|| self.cut_short(Bth::LEN))?)
    }

    /// The bytes that hold the headers, if all headers are here at all. A body in two pieces whose
    /// first may be too short for them is gathered in `room`.
    fn start<'b>(&self, room: &'b mut [u8; MAX_HEADERS_LEN]) -> &'b [u8]
    where
        'a: 'b,
    {
        match *self {
            Self::Whole { first, second }
                if first.len() < MAX_HEADERS_LEN && !second.is_empty() =>
            {
                let bytes = first.iter().chain(second);
                room.iter_mut().zip(bytes).for_each(|(to, &from)| *to = from);
                &room[..MAX_HEADERS_LEN.min(self.len())]
            }
            Self::Whole { first: start, .. } | Self::Elided { start, .. } => start,
        }
    }

    /// Of this packet `need` bytes are needed, and not here.
    pub(crate) const fn cut_short(&self, need: usize) -> DropReason {
        let have = match self {
            Self::Whole { first, second } => first.len() + second.len(),
            Self::Elided { start, .. } => start.len(),
        };
        DropReason::Truncated { have, need }
    }

    /// The ICRC that the packet carries, as a number (sent least significant byte first); `None`
    /// when its bytes are not here.
    pub fn icrc(&self) -> Option<u32> {
        let Self::Whole { first, second } = *self else { return None };
        let last = if second.is_empty() { first } else { second };
        if let Some(bytes) = last.last_chunk() {
            return Some(u32::from_le_bytes(*bytes));
        }
        let at = self.len().checked_sub(ICRC_LEN)?;
        let (a, b) = pieces(first, second, at, ICRC_LEN)?;
        let mut bytes = [0; ICRC_LEN];
        bytes[..a.len()].copy_from_slice(a);
        bytes[a.len()..].copy_from_slice(b);
        Some(u32::from_le_bytes(bytes))
    }
}

/// `len` bytes from `at` of two pieces that follow each other, again as two pieces.
fn pieces<'a>(
    first: &'a [u8],
    second: &'a [u8],
    at: usize,
    len: usize,
) -> Option<(&'a [u8], &'a [u8])> {
    let end = at.checked_add(len)?;
    if end <= first.len() {
        return Some((first.get(at..end)?, &[]));
    }
    let in_second = end - first.len();
    match first.get(at..) {
        Some(head) => Some((head, second.get(..in_second)?)),
        None => Some((second.get(at - first.len()..in_second)?, &[])),
    }
}

/// What a packet carries behind its headers, without pad bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload<'a> {
    /// The bytes, in at most two pieces.
    Bytes {
        /// The beginning; may be everything.
        first: &'a [u8],
        /// What follows it; usually empty.
        second: &'a [u8],
    },
    /// Only how many there are. See [`Body::Elided`].
    Elided {
        /// How many.
        len: usize,
        /// Stands for their content, where the holder keeps one.
        digest: u32,
    },
}

impl<'a> Payload<'a> {
    /// None.
    pub const EMPTY: Self = Self::Bytes { first: &[], second: &[] };

    /// Bytes in one piece.
    pub const fn bytes(bytes: &'a [u8]) -> Self {
        Self::Bytes { first: bytes, second: &[] }
    }

    /// How many bytes.
    pub const fn len(&self) -> usize {
        match self {
            Self::Bytes { first, second } => first.len() + second.len(),
            Self::Elided { len, .. } => *len,
        }
    }

    /// Whether there is none.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The pad bytes that this payload needs, 0 ..= 3.
    pub const fn pad(&self) -> u8 {
        pad_for(self.len())
    }

    /// The pieces, both empty when the bytes are not here.
    pub const fn pieces(&self) -> [&'a [u8]; 2] {
        match *self {
            Self::Bytes { first, second } => [first, second],
            Self::Elided { .. } => [&[], &[]],
        }
    }
}

/// The pad bytes that bring a payload of `len` bytes to a multiple of four, 0 ..= 3.
//= F12, 01-1.8
#[expect(clippy::cast_possible_truncation, reason = "two bits")]
pub const fn pad_for(len: usize) -> u8 {
    (len.wrapping_neg() & 0x3) as u8
}

/// BTH and extension headers, by value. A header is there exactly if the opcode's row lists it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Headers {
    /// Base transport header.
    pub bth: Bth,
    /// Reliable Datagram.
    pub rdeth: Option<Rdeth>,
    /// Datagram.
    pub deth: Option<Deth>,
    /// Extended Reliable Connection.
    pub xrceth: Option<Xrceth>,
    /// Flush.
    pub feth: Option<Feth>,
    /// RDMA.
    pub reth: Option<Reth>,
    /// Atomic.
    pub atomic_eth: Option<AtomicEth>,
    /// ACK.
    pub aeth: Option<Aeth>,
    /// Atomic ACK.
    pub atomic_ack_eth: Option<AtomicAckEth>,
    /// Immediate data.
    pub imm_dt: Option<ImmDt>,
    /// Invalidate.
    pub ieth: Option<Ieth>,
    /// Congestion notification.
    pub cnp_reserved: Option<CnpReserved>,
}

impl Headers {
    /// Reads the extension headers that `row` lists from the bytes behind the BTH. In place, since
    /// this is a large thing to hand around.
    fn read(&mut self, row: &Opcode, mut rest: &[u8]) -> Result<(), DropReason> {
        /// Takes one header's bytes off the front.
        fn take<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], DropReason> {
            let Some((bytes, behind)) = rest.split_first_chunk::<N>() else {
                return Err(DropReason::Truncated { have: rest.len(), need: N });
            };
            *rest = behind;
            Ok(*bytes)
        }
        let rest = &mut rest;
        for header in row.headers {
            match header {
                Header::Rdeth => self.rdeth = Some(Rdeth::parse(take(rest)?)),
                Header::Deth => self.deth = Some(Deth::parse(take(rest)?)),
                Header::Xrceth => self.xrceth = Some(Xrceth::parse(take(rest)?)),
                Header::Reth => self.reth = Some(Reth::parse(take(rest)?)),
                Header::AtomicEth => self.atomic_eth = Some(AtomicEth::parse(take(rest)?)),
                Header::Aeth => self.aeth = Some(Aeth::parse(take(rest)?)?),
                Header::AtomicAckEth => {
                    self.atomic_ack_eth = Some(AtomicAckEth::parse(take(rest)?));
                }
                Header::ImmDt => self.imm_dt = Some(ImmDt::parse(take(rest)?)),
                Header::Ieth => self.ieth = Some(Ieth::parse(take(rest)?)),
                Header::Feth => self.feth = Some(Feth::parse(take(rest)?)),
                Header::CnpReserved => self.cnp_reserved = Some(CnpReserved(take(rest)?)),
            }
        }
        Ok(())
    }

    fn row(&self) -> Result<&'static Opcode, EmitError> {
        self.bth.row().ok_or(EmitError::ReservedOpcode { code: self.bth.opcode })
    }

    /// Writes BTH and extension headers to the front of `room`; returns how many bytes.
    ///
    /// # Errors
    /// [`EmitError`] when the opcode is reserved, a header it lists is missing, or `room` too
    /// small.
    pub fn emit(&self, room: &mut [u8]) -> Result<usize, EmitError> {
        self.emit_row(self.row()?, room)
    }

    fn emit_row(&self, row: &'static Opcode, room: &mut [u8]) -> Result<usize, EmitError> {
        let have = room.len();
        let too_small = EmitError::NoRoom { have, need: row.headers_len };
        let room = room.get_mut(..row.headers_len).ok_or(too_small)?;
        let mut room = put(room, self.bth.emit());
        for &header in row.headers {
            let missing = EmitError::HeaderMissing { opcode: row, header };
            room = self.put_extension(header, room).ok_or(missing)?;
        }
        Ok(row.headers_len)
    }

    /// Writes one extension header and returns the place behind it; `None` when it was not given.
    #[inline(never)] // Else all headers are prepared for every packet that has one of them.
    fn put_extension<'r>(&self, header: Header, room: &'r mut [u8]) -> Option<&'r mut [u8]> {
        Some(match header {
            Header::Rdeth => put(room, self.rdeth?.emit()),
            Header::Deth => put(room, self.deth?.emit()),
            Header::Xrceth => put(room, self.xrceth?.emit()),
            Header::Reth => put(room, self.reth?.emit()),
            Header::AtomicEth => put(room, self.atomic_eth?.emit()),
            Header::Aeth => put(room, self.aeth?.emit()),
            Header::AtomicAckEth => put(room, self.atomic_ack_eth?.emit()),
            Header::ImmDt => put(room, self.imm_dt?.emit()),
            Header::Ieth => put(room, self.ieth?.emit()),
            Header::Feth => put(room, self.feth?.emit()),
            Header::CnpReserved => put(room, self.cnp_reserved?.0),
        })
    }
}

/// Writes a header to the front of `room` and returns what is behind it. The row's length is the
/// sum of its headers', so there is always room.
fn put<const N: usize>(room: &mut [u8], bytes: [u8; N]) -> &mut [u8] {
    match room.split_first_chunk_mut() {
        Some((place, rest)) => {
            *place = bytes;
            rest
        }
        None => &mut [],
    }
}

/// Why a packet cannot be written: the caller's mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EmitError {
    /// The opcode is not in the table.
    ReservedOpcode {
        /// The byte.
        code: u8,
    },
    /// The opcode's row lists a header that was not given.
    HeaderMissing {
        /// The row.
        opcode: &'static Opcode,
        /// The header.
        header: Header,
    },
    /// The buffer is too short.
    NoRoom {
        /// Bytes there are.
        have: usize,
        /// Bytes it takes.
        need: usize,
    },
    /// The packet's row is not that of its BTH.
    OpcodesDiffer {
        /// The packet's.
        row: &'static Opcode,
        /// The BTH's.
        bth: u8,
    },
    /// The payload's bytes are elided, so they cannot be written.
    PayloadElided,
    /// More payload than was announced.
    PayloadLength {
        /// Bytes too many.
        over: usize,
    },
    /// Less payload than was announced.
    PayloadMissing {
        /// Bytes too few.
        missing: usize,
    },
}

impl core::fmt::Display for EmitError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::ReservedOpcode { code } => write!(f, "opcode 0x{code:02x} is reserved"),
            Self::HeaderMissing { opcode, header } => write!(f, "{opcode} needs a {header:?}"),
            Self::NoRoom { have, need } => write!(f, "room for {have} bytes, {need} are needed"),
            Self::OpcodesDiffer { row, bth } => write!(f, "{row} with 0x{bth:02x} in the BTH"),
            Self::PayloadLength { over } => write!(f, "{over} bytes of payload too many"),
            Self::PayloadMissing { missing } => write!(f, "{missing} bytes of payload are missing"),
            Self::PayloadElided => f.write_str("the payload's bytes are not at hand"),
        }
    }
}

impl core::error::Error for EmitError {}

/// Where a packet is written: at most two pieces of frame memory that follow each other.
#[derive(Debug)]
pub struct Room<'a> {
    /// The beginning; has room for all headers.
    pub first: &'a mut [u8],
    /// What follows it; usually empty.
    pub second: &'a mut [u8],
}

impl<'a> Room<'a> {
    /// One piece.
    pub fn whole(bytes: &'a mut [u8]) -> Self {
        Self { first: bytes, second: &mut [] }
    }

    /// The same room, for a while.
    pub fn reborrow(&mut self) -> Room<'_> {
        Room { first: self.first, second: self.second }
    }

    /// Bytes of both pieces.
    pub fn len(&self) -> usize {
        self.first.len() + self.second.len()
    }

    /// Whether there is no room at all.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A packet from BTH to ICRC: headers by value, payload borrowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// The opcode's row: what the packet is.
    pub opcode: &'static Opcode,
    /// BTH and extension headers.
    pub headers: Headers,
    /// The payload, without pad bytes.
    pub payload: Payload<'a>,
}

impl<'a> Packet<'a> {
    /// Reads a packet. The checks stand in the order of IBA vol 1 §9.6; the first that fails names
    /// the reason. The ICRC is not among them.
    ///
    /// Lengths that only a queue pair can judge (payload against path MTU) are accepted here: see
    /// [`PayloadRule`](crate::opcode::PayloadRule).
    ///
    /// # Errors
    /// [`DropReason::PacketLength`], [`DropReason::TransportVersion`],
    /// [`DropReason::ReservedOpcode`], [`DropReason::HeaderMissing`], [`DropReason::PadCount`],
    /// [`DropReason::ReservedSyndrome`]; [`DropReason::Truncated`] when an elided body lacks
    /// headers.
    //= BC-004, C05, 01-1.7
    pub fn parse(body: Body<'a>) -> Result<Self, DropReason> {
        let mut packet = Self::blank();
        packet.read(body)?;
        Ok(packet)
    }

    /// A place for [`Packet::read`].
    #[inline]
    pub fn blank() -> Self {
        Self { opcode: &OPCODES[0], headers: Headers::default(), payload: Payload::EMPTY }
    }

    /// [`Packet::parse`] into a blank place, since a packet is much to move. Headers that it does
    /// not have are left as they are.
    ///
    /// # Errors
    /// Those of [`Packet::parse`]. What is in the place then means nothing.
    #[inline]
    pub fn read(&mut self, body: Body<'a>) -> Result<(), DropReason> {
        let len = body.len();
        if len < Bth::LEN + ICRC_LEN || !len.is_multiple_of(4) {
            return Err(DropReason::PacketLength { len });
        }
        let mut gathered = [0; MAX_HEADERS_LEN];
        let start = body.start(&mut gathered);
        let bth = *start.first_chunk().ok_or_else(|| body.cut_short(Bth::LEN))?;
        Bth::check_version(bth)?;
        self.headers.bth = Bth::of(bth);
        let bth = &self.headers.bth;
        let opcode = bth.row().ok_or(DropReason::ReservedOpcode { code: bth.opcode })?;
        let need = opcode.headers_len + ICRC_LEN;
        let Some(padded) = len.checked_sub(need) else {
            return Err(DropReason::HeaderMissing { have: len, need });
        };
        let Some(payload_len) = padded.checked_sub(usize::from(bth.pad)) else {
            return Err(DropReason::PadCount { pad: bth.pad, payload: padded });
        };
        self.payload = match body {
            Body::Whole { first, second } => {
                let (first, second) = pieces(first, second, opcode.headers_len, payload_len)
                    .ok_or_else(|| body.cut_short(len))?;
                Payload::Bytes { first, second }
            }
            Body::Elided { digest, .. } => Payload::Elided { len: payload_len, digest },
        };
        self.opcode = opcode;
        let extensions = start.get(Bth::LEN..opcode.headers_len);
        self.headers.read(opcode, extensions.ok_or_else(|| body.cut_short(opcode.headers_len))?)
    }

    /// Reads as much of a packet as an elided body shows: the BTH and those extension headers that
    /// are whole. The others are `None` whatever the opcode's row says; see
    /// [`Packet::has_all_headers`].
    ///
    /// # Errors
    /// As [`Packet::parse`]; [`DropReason::Truncated`] only when not even the BTH is there.
    pub fn parse_start(body: Body<'a>) -> Result<Self, DropReason> {
        let parsed = Self::parse(body);
        let Body::Elided { start, len, digest } = body else { return parsed };
        let Err(DropReason::Truncated { .. }) = parsed else { return parsed };
        let bth = body.bth()?;
        let opcode = bth.row().ok_or(DropReason::ReservedOpcode { code: bth.opcode })?;
        let around = opcode.headers_len + usize::from(bth.pad) + ICRC_LEN;
        let payload = Payload::Elided { len: len.saturating_sub(around), digest };
        let mut packet = Self { opcode, headers: Headers { bth, ..Headers::default() }, payload };
        match packet.headers.read(opcode, start.get(Bth::LEN..).unwrap_or_default()) {
            Ok(()) | Err(DropReason::Truncated { .. }) => Ok(packet),
            Err(reason) => Err(reason),
        }
    }

    /// Whether every header that the opcode's row lists is here: always, but for
    /// [`Packet::parse_start`].
    pub fn has_all_headers(&self) -> bool {
        let headers = &self.headers;
        self.opcode.headers.iter().all(|header| match header {
            Header::Rdeth => headers.rdeth.is_some(),
            Header::Deth => headers.deth.is_some(),
            Header::Xrceth => headers.xrceth.is_some(),
            Header::Reth => headers.reth.is_some(),
            Header::AtomicEth => headers.atomic_eth.is_some(),
            Header::Aeth => headers.aeth.is_some(),
            Header::AtomicAckEth => headers.atomic_ack_eth.is_some(),
            Header::ImmDt => headers.imm_dt.is_some(),
            Header::Ieth => headers.ieth.is_some(),
            Header::Feth => headers.feth.is_some(),
            Header::CnpReserved => headers.cnp_reserved.is_some(),
        })
    }

    /// Bytes from BTH to ICRC, with as many pad bytes as the BTH says.
    #[expect(clippy::len_without_is_empty, reason = "there is always a BTH")]
    pub const fn len(&self) -> usize {
        let pad = (self.headers.bth.pad & 0x3) as usize;
        self.opcode.headers_len + self.payload.len() + pad + ICRC_LEN
    }

    /// Writes the packet: headers, payload, as many zero pad bytes as the BTH says, and the ICRC
    /// over `cover` and all of them. Returns how many bytes. The mirror of [`Packet::parse`].
    ///
    /// # Errors
    /// [`EmitError`], and then nothing of `room` may be used.
    pub fn emit(&self, room: Room<'_>, cover: &IcrcCover<'_>) -> Result<usize, EmitError> {
        let Payload::Bytes { first, second } = self.payload else {
            return Err(EmitError::PayloadElided);
        };
        if self.headers.bth.opcode != self.opcode.code {
            let (row, bth) = (self.opcode, self.headers.bth.opcode);
            return Err(EmitError::OpcodesDiffer { row, bth });
        }
        // The payload first: until its bytes are out of the store buffer, they cannot be hashed.
        let mut writer =
            PacketWriter::new(self.opcode, self.headers.bth.pad, self.payload.len(), room)?;
        writer.copy(first)?;
        writer.copy(second)?;
        self.headers.emit_row(self.opcode, writer.first)?;
        writer.finish(cover)
    }
}

/// A packet that is being written: headers, then the payload piece by piece, from wherever it is
/// gathered, then pad and ICRC.
///
/// The ICRC is computed last, over what stands in the frame: whoever changes the payload's source
/// meanwhile cannot make it wrong.
///
/// ```
/// use roxe_wire::{Bth, Headers, IcrcCover, IpHeader, PacketWriter, Payload, Room, pad_for};
///
/// # fn main() -> Result<(), roxe_wire::EmitError> {
/// # let cover = IcrcCover::new(IpHeader::V4(&[0; 20]), [0; 8]);
/// let memory = [b"two pieces ".as_slice(), b"of memory"];
/// let bth = Bth { opcode: 0x04, pad: pad_for(20), ..Bth::default() };
/// let headers = Headers { bth, ..Headers::default() };
/// let mut frame = [0; 64];
/// let mut writer = PacketWriter::start(&headers, 20, Room::whole(&mut frame))?;
/// for piece in memory {
///     writer.copy(piece)?;
/// }
/// assert_eq!(writer.finish(&cover)?, 12 + 20 + 4);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct PacketWriter<'a> {
    first: &'a mut [u8],
    second: &'a mut [u8],
    /// Bytes written.
    at: usize,
    /// Where the payload ends.
    payload_end: usize,
    pad: usize,
}

impl<'a> PacketWriter<'a> {
    /// Writes the headers of a packet with `payload_len` bytes of payload.
    ///
    /// # Errors
    /// Those of [`Headers::emit`], and [`EmitError::NoRoom`] when the whole packet does not fit, or
    /// the headers not into the first piece.
    #[inline]
    pub fn start(headers: &Headers, payload_len: usize, room: Room<'a>) -> Result<Self, EmitError> {
        let row = headers.row()?;
        let writer = Self::new(row, headers.bth.pad, payload_len, room)?;
        headers.emit_row(row, writer.first)?;
        Ok(writer)
    }

    /// Leaves the headers out.
    #[inline]
    fn new(row: &Opcode, pad: u8, payload_len: usize, room: Room<'a>) -> Result<Self, EmitError> {
        let Room { first, second } = room;
        let (at, have) = (row.headers_len, first.len() + second.len());
        let payload_end = at.saturating_add(payload_len);
        let pad = usize::from(pad & 0x3);
        let need = payload_end.saturating_add(pad + ICRC_LEN);
        if have < need {
            return Err(EmitError::NoRoom { have, need });
        }
        if first.len() < at {
            return Err(EmitError::NoRoom { have: first.len(), need: at });
        }
        Ok(Self { first, second, at, payload_end, pad })
    }

    /// Bytes of payload that are still missing.
    pub const fn missing(&self) -> usize {
        self.payload_end - self.at
    }

    /// Copies the next bytes of the payload.
    ///
    /// # Errors
    /// [`EmitError::PayloadLength`] when they are more than are missing.
    pub fn copy(&mut self, from: &[u8]) -> Result<(), EmitError> {
        self.fill(from.len(), |[first, second]| {
            let (head, tail) = from.split_at(first.len());
            first.copy_from_slice(head);
            if !tail.is_empty() {
                second.copy_from_slice(tail);
            }
        })
    }

    /// Has the next `len` bytes of the payload written by `write`, which is called with the places
    /// they go to; the second is empty unless the frame lies in two pieces. Hands its result on.
    ///
    /// # Errors
    /// [`EmitError::PayloadLength`] when `len` is more than is missing.
    pub fn fill<T>(
        &mut self,
        len: usize,
        write: impl FnOnce([&mut [u8]; 2]) -> T,
    ) -> Result<T, EmitError> {
        if len > self.missing() {
            return Err(EmitError::PayloadLength { over: len - self.missing() });
        }
        let (start, end) = (self.at, self.at + len);
        self.at = end;
        if let Some(place) = self.first.get_mut(start..end) {
            return Ok(write([place, &mut []]));
        }
        let split = self.first.len();
        let (head, tail) = (start.min(split), start.saturating_sub(split));
        Ok(write([&mut self.first[head..], &mut self.second[tail..end - split]]))
    }

    /// Writes pad and ICRC. Returns the packet's length.
    ///
    /// # Errors
    /// [`EmitError::PayloadMissing`] when not all of the payload was written.
    pub fn finish(mut self, cover: &IcrcCover<'_>) -> Result<usize, EmitError> {
        let len = self.pad()?;
        self.seal(len, cover);
        Ok(len)
    }

    /// Writes the pad bytes and leaves the last four to whoever knows the frame's headers:
    /// [`icrc::seal`]. Returns the packet's length, those four included.
    ///
    /// # Errors
    /// [`EmitError::PayloadMissing`] when not all of the payload was written.
    pub fn finish_unsealed(mut self) -> Result<usize, EmitError> {
        self.pad()
    }

    fn pad(&mut self) -> Result<usize, EmitError> {
        if self.missing() != 0 {
            return Err(EmitError::PayloadMissing { missing: self.missing() });
        }
        if self.pad > 0 {
            write_at(self.first, self.second, self.at, &[0; 3][..self.pad]);
        }
        Ok(self.at + self.pad + ICRC_LEN)
    }

    fn seal(self, len: usize, cover: &IcrcCover<'_>) {
        let (first, second) = match self.first.split_at_mut_checked(len) {
            Some((packet, _)) => (packet, &mut [][..]),
            None => {
                let in_second = len - self.first.len();
                (self.first, &mut self.second[..in_second])
            }
        };
        icrc::seal(cover, Room { first, second });
    }
}

/// A few bytes into two pieces that follow each other, from `at` on. What does not fit is left out.
pub(crate) fn write_at(first: &mut [u8], second: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(place) = first.get_mut(at..at.saturating_add(bytes.len())) {
        // A loop, since a call to copy three or four bytes takes longer.
        place.iter_mut().zip(bytes).for_each(|(to, &from)| *to = from);
        return;
    }
    let places = first.iter_mut().chain(second).skip(at);
    places.zip(bytes).for_each(|(to, &from)| *to = from);
}
