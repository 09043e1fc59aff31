//! The invariant CRC: which bytes it covers, which bits it masks, how it is computed.
//!
//! IBA vol 1 §7.8 and annex A17. An ordinary CRC-32 (that of Ethernet and zip) over eight bytes of
//! ones, the IP header, the UDP header and everything from the BTH to the last pad byte, where the
//! fields that routers change count as ones: type of service, time to live and checksum of IPv4,
//! traffic class, flow label and hop limit of IPv6, the UDP checksum, and byte 4 of the BTH. It is
//! sent least significant byte first.
//!
//! # How no byte is copied
//! A CRC is linear: flip some bits of a message, and the result changes by flips that depend on
//! those bits and on their distance alone. So a header need not be copied to be masked. What the
//! masked bits would have changed is put into the CRC that the computation *starts* from
//! (`moved` says how), and then it runs once over the frame as it lies in memory, from the IP
//! header to the last pad byte. The same way a [`FrameTemplate`](crate::FrameTemplate) knows the
//! CRC behind its headers without hashing them: a constant of the path, changed by the bytes of
//! two lengths and an identification. Behind them only the packet is hashed: its BTH word by word,
//! which is masked in passing, its payload by crc32fast, in whole blocks as it was copied.
//!
//! # What else was tried
//! A masked copy of the headers, hashed before the rest: `cargo bench -p roxe-wire` measures it
//! beside this module, which takes half to three quarters of its time for a check. Gathering 64 or
//! 256 bytes before hashing takes longer still. Both lose because what was just written in small
//! pieces is read at once in large ones, and the processor waits for the writes; that is why the
//! headers of a sent packet are not left to crc32fast. Copying and hashing a payload in blocks
//! gained nothing: one that fits a packet fits the first-level cache. What remains are seven or
//! eight look-ups for a received frame, and for short packets the fixed cost of a call to
//! crc32fast.

use crc32fast::Hasher;

use crate::frame::IpHeader;
use crate::packet::write_at;
use crate::{Body, Bth, DropReason, ICRC_LEN, Room};

/// What stands before the BTH, as the ICRC sees it.
///
/// Comes from [`Frame::icrc_cover`](crate::Frame::icrc_cover) for a frame in memory, from
/// [`FrameTemplate`](crate::FrameTemplate) for one that is being sent, and from
/// [`IcrcCover::new`] where a port sees neither and somebody knows what the headers were.
#[derive(Clone, Copy, Debug)]
pub struct IcrcCover<'a> {
    /// The CRC of what stands before `bytes`, with the masked bits of `bytes` allowed for.
    crc: u32,
    /// IP and UDP header, and what follows them in the same piece of memory. Empty when `crc` is
    /// over the headers already.
    bytes: &'a [u8],
    /// Where the headers come to an end in `bytes`.
    end: HeadersEnd,
}

/// Bytes of IP and UDP header that are still to be hashed.
#[derive(Clone, Copy, Debug)]
enum HeadersEnd {
    Hashed = 0,
    V4 = 28,
    V6 = 48,
}

impl IcrcCover<'static> {
    /// The headers as they are on the wire; the fields that may change are masked here.
    //= F03, F14, BC-014, 03-3.1
    pub fn new(ip: IpHeader<'_>, udp: [u8; 8]) -> Self {
        let mut bytes = [0; 48];
        let (header, end) = (ip.bytes(), ip.bytes().len() + 8);
        bytes[..header.len()].copy_from_slice(header);
        bytes[header.len()..end].copy_from_slice(&udp);
        let crc = start(ip, [udp[6], udp[7]]);
        Self::hashed(hash(crc, &bytes[..end]))
    }

    /// The CRC up to the BTH is known.
    pub(crate) const fn hashed(crc: u32) -> Self {
        Self { crc, bytes: &[], end: HeadersEnd::Hashed }
    }
}

impl<'a> IcrcCover<'a> {
    /// The headers of a frame in memory: `bytes` begins with the header `ip`, a UDP header with
    /// this checksum follows, then the packet.
    pub(crate) fn in_frame(ip: IpHeader<'_>, udp_checksum: u16, bytes: &'a [u8]) -> Self {
        let end = match ip {
            IpHeader::V4(_) => HeadersEnd::V4,
            IpHeader::V6(_) => HeadersEnd::V6,
        };
        Self { crc: start(ip, udp_checksum.to_be_bytes()), bytes, end }
    }

    /// The same, hashed now, so that the headers' memory is not needed any more.
    pub fn detach(&self) -> IcrcCover<'static> {
        IcrcCover::hashed(self.crc())
    }

    /// These headers and a packet in one run, if it lies behind them in memory; and what its masked
    /// byte changes in the CRC before them.
    fn run_over(&self, packet: &[u8]) -> Option<(&'a [u8], &'static Moved)> {
        let before = match self.end {
            HeadersEnd::Hashed => return None,
            HeadersEnd::V4 => &BEFORE_32,
            HeadersEnd::V6 => &BEFORE_52,
        };
        let end = self.end as usize;
        let run = self.bytes.get(..end + packet.len())?;
        core::ptr::eq(run.as_ptr().wrapping_add(end), packet.as_ptr()).then_some((run, before))
    }

    /// The CRC behind these headers.
    pub(crate) fn crc(&self) -> u32 {
        match self.end {
            HeadersEnd::Hashed => self.crc,
            end => hash(self.crc, self.bytes.get(..end as usize).unwrap_or(self.bytes)),
        }
    }
}

/// The ICRC of a packet as a number (its bytes on the wire are `to_le_bytes()`): over `cover`, then
/// over its bytes from the BTH to the last pad byte, in two pieces.
//= BC-001, BC-011, 03-3.1
pub fn compute(cover: &IcrcCover<'_>, first: &[u8], second: &[u8]) -> u32 {
    let crc = match cover.run_over(first) {
        Some((run, before)) => hash(cover.crc ^ before[congestion(first, second)], run),
        None => hash_packet(cover.crc(), first, second),
    };
    if second.is_empty() { crc } else { hash(crc, second) }
}

/// What the BTH's [masked byte](Bth::MASKED_BYTE) lacks to be all ones.
fn congestion(first: &[u8], second: &[u8]) -> usize {
    let byte = match Bth::MASKED_BYTE.checked_sub(first.len()) {
        Some(in_second) => second.get(in_second),
        None => first.get(Bth::MASKED_BYTE),
    };
    byte.map_or(0, |&byte| usize::from(!byte))
}

/// The CRC `crc` after the first piece of a packet. The payload is left to crc32fast, which is at
/// its best with a multiple of 16 bytes that were written at once; the BTH and whole words that are
/// too many for that go one by one.
#[inline(never)] // Else a check pays for its registers.
fn hash_packet(mut crc: u32, first: &[u8], second: &[u8]) -> u32 {
    let Some((bth, behind)) = first.split_first_chunk::<{ Bth::LEN }>() else {
        return hash(crc ^ BEFORE_4[congestion(first, second)], first);
    };
    for (&word, mask) in bth.as_chunks().0.iter().zip([0, 0xff, 0]) {
        crc = hash_word(crc, u32::from_le_bytes(word) | mask);
    }
    let (odd, blocks) = behind.split_at(behind.len() % 16 / 4 * 4);
    for &word in odd.as_chunks().0 {
        crc = hash_word(crc, u32::from_le_bytes(word));
    }
    if blocks.is_empty() { crc } else { hash(crc, blocks) }
}

/// The ICRC that a packet should have; `None` when its bytes are not all here, or fewer than a BTH
/// and an ICRC.
#[inline(always)] // One step down the stack less for each packet.
pub fn expected(cover: &IcrcCover<'_>, body: Body<'_>) -> Option<u32> {
    let Body::Whole { first, second } = body else { return None };
    let covered = body.len().checked_sub(ICRC_LEN).filter(|&len| len >= Bth::LEN)?;
    match covered.checked_sub(first.len()) {
        Some(in_second) => Some(compute(cover, first, second.get(..in_second)?)),
        None => Some(compute(cover, first.get(..covered)?, &[])),
    }
}

/// Whether a packet has the ICRC it should have.
///
/// # Errors
/// [`DropReason::IcrcMismatch`]; [`DropReason::PacketLength`] when there are fewer bytes than a BTH
/// and an ICRC take; [`DropReason::Truncated`] when not all of them are here.
//= F01
pub fn check(cover: &IcrcCover<'_>, body: Body<'_>) -> Result<(), DropReason> {
    if body.len() < Bth::LEN + ICRC_LEN {
        return Err(DropReason::PacketLength { len: body.len() });
    }
    let (Some(expected), Some(found)) = (expected(cover, body), body.icrc()) else {
        return Err(body.cut_short(body.len()));
    };
    if expected == found { Ok(()) } else { Err(DropReason::IcrcMismatch { expected, found }) }
}

/// Writes the ICRC into the last four bytes of a packet, which `packet` holds from BTH to ICRC.
/// Returns whether there are so many bytes.
//= F02, BC-002, 03-3.1
pub fn seal(cover: &IcrcCover<'_>, packet: Room<'_>) -> bool {
    let Some(covered) = packet.len().checked_sub(ICRC_LEN) else { return false };
    let Room { first, second } = packet;
    let icrc = match covered.checked_sub(first.len()) {
        Some(in_second) => compute(cover, first, &second[..in_second]),
        None => compute(cover, &first[..covered], &[]),
    };
    write_at(first, second, covered, &icrc.to_le_bytes());
    true
}

/// The CRC-32 of whatever gave `crc`, followed by `bytes`.
fn hash(crc: u32, bytes: &[u8]) -> u32 {
    let mut hasher = Hasher::new_with_initial(crc);
    hasher.update(bytes);
    hasher.finalize()
}

/// The CRC-32 of whatever gave `crc`, followed by the four bytes of `word`, the lowest first.
fn hash_word(crc: u32, word: u32) -> u32 {
    let [b0, b1, b2, b3] = (!crc ^ word).to_le_bytes().map(usize::from);
    !(AFTER_4[b0] ^ AFTER_3[b1] ^ AFTER_2[b2] ^ AFTER_1[b3])
}

/// The CRC after eight bytes of ones, which stand where InfiniBand has its local route header. The
/// first four clear the register, the other four go through it.
const AFTER_EIGHT_ONES: u32 = !moved(!0, 4);

/// The CRC to start from, so that hashing these headers as they are gives what hashing them with
/// their masked fields set to ones would.
fn start(ip: IpHeader<'_>, udp_checksum: [u8; 2]) -> u32 {
    let [u1, u0] = udp_checksum.map(|byte| usize::from(!byte));
    match ip {
        IpHeader::V4(header) => {
            let zeros = |at: usize| usize::from(!header[at]);
            AFTER_EIGHT_ONES
                ^ BEFORE_1[zeros(1)] // type of service
                ^ BEFORE_8[zeros(8)] // time to live
                ^ BEFORE_10[zeros(10)] ^ BEFORE_11[zeros(11)] // header checksum
                ^ BEFORE_26[u1] ^ BEFORE_27[u0]
        }
        IpHeader::V6(header) => {
            let zeros = |at: usize| usize::from(!header[at]);
            AFTER_EIGHT_ONES
                ^ BEFORE_0[zeros(0) & 0x0f] ^ BEFORE_1[zeros(1)] // traffic class
                ^ BEFORE_2[zeros(2)] ^ BEFORE_3[zeros(3)] // and flow label
                ^ BEFORE_7[zeros(7)] // hop limit
                ^ BEFORE_46[u1] ^ BEFORE_47[u0]
        }
    }
}

/// What the bits `flips` of a running CRC become while it goes over `bytes` bytes; with a negative
/// number, what they were so many bytes earlier.
///
/// Going over a byte of the message first flips the low eight bits of the CRC by it, so a flip of
/// message bits *is* a flip of those. Both directions exist because a CRC's step is its own
/// kind of division, and dividing can be undone.
const fn moved(flips: u32, bytes: i32) -> u32 {
    /// The polynomial of CRC-32, lowest bit first.
    const POLYNOMIAL: u32 = 0xedb8_8320;
    let mut flips = flips;
    let mut bits = 8 * bytes;
    while bits > 0 {
        flips = if flips & 1 == 1 { flips >> 1 ^ POLYNOMIAL } else { flips >> 1 };
        bits -= 1;
    }
    while bits < 0 {
        flips = if flips >> 31 == 1 { (flips ^ POLYNOMIAL) << 1 | 1 } else { flips << 1 };
        bits += 1;
    }
    flips
}

/// [`moved`] for each value of one byte.
type Moved = [u32; 256];

const fn moved_byte(bytes: i32) -> Moved {
    let mut table = [0; 256];
    let mut value = 1_u32;
    while value < 256 {
        let rest = value & (value - 1);
        let lowest = value ^ rest;
        // The sum of the entries for its bits, so only powers of two need the long way.
        table[value as usize] = if rest == 0 {
            moved(lowest, bytes)
        } else {
            table[lowest as usize] ^ table[rest as usize]
        };
        value += 1;
    }
    table
}

/// `BEFORE_n`: flips of byte `n` as flips of the CRC before byte 0.
macro_rules! before {
    ($($name:ident = $at:literal),* $(,)?) => {
        $(static $name: Moved = moved_byte(-$at);)*
    };
}

/// `AFTER_n`: flips of a byte as flips of the CRC when it and those behind it, `n` in all, are
/// hashed.
macro_rules! after {
    ($($name:ident = $bytes:literal),* $(,)?) => {
        $(static $name: Moved = moved_byte($bytes);)*
    };
}

after! { AFTER_1 = 1, AFTER_2 = 2, AFTER_3 = 3, AFTER_4 = 4 }

before! {
    BEFORE_0 = 0, BEFORE_1 = 1, BEFORE_2 = 2, BEFORE_3 = 3, BEFORE_4 = 4, BEFORE_7 = 7,
    BEFORE_8 = 8, BEFORE_10 = 10, BEFORE_11 = 11, BEFORE_26 = 26, BEFORE_27 = 27, BEFORE_32 = 32,
    BEFORE_46 = 46, BEFORE_47 = 47, BEFORE_52 = 52,
}

/// What 16 bits, `distance` bytes before the end of something hashed, change in its CRC.
pub(crate) struct Word {
    high: Moved,
    low: Moved,
}

impl Word {
    /// For two bytes of which the first has `distance` bytes from its beginning to the end.
    pub(crate) const fn new(distance: i32) -> Self {
        Self { high: moved_byte(distance), low: moved_byte(distance - 1) }
    }

    /// The change when they were zero and become `value`, high byte first.
    pub(crate) fn change(&self, value: u16) -> u32 {
        let [high, low] = value.to_be_bytes();
        self.high[usize::from(high)] ^ self.low[usize::from(low)]
    }
}
