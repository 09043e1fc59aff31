//! The invariant CRC: which bytes it covers, which bits it masks, how it is computed piece by
//! piece.
//!
//! IBA vol 1 §7.8 and annex A17. An ordinary CRC-32 (that of Ethernet and zip) over eight bytes of
//! ones, the IP header, the UDP header and everything from the BTH to the last pad byte, where the
//! fields that routers change count as ones: type of service, time to live and checksum of IPv4,
//! traffic class, flow label and hop limit of IPv6, the UDP checksum, and byte 4 of the BTH. It is
//! sent least significant byte first.

use crc32fast::Hasher;

use crate::frame::IpHeader;
use crate::{Body, Bth, DropReason, ICRC_LEN};

/// The CRC after eight bytes of ones, which stand where InfiniBand has its local route header.
const AFTER_EIGHT_ONES: u32 = !0xdebb_20e3;

/// IP and UDP header as the ICRC sees them: what it covers before the BTH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IcrcCover {
    bytes: [u8; Self::MAX],
    len: u8,
}

impl IcrcCover {
    const MAX: usize = 48;

    /// The headers as they are on the wire; the fields that may change are masked here.
    pub fn new(ip: IpHeader<'_>, udp: [u8; 8]) -> Self {
        let mut bytes = [0xff; Self::MAX];
        let ip_len = match ip {
            IpHeader::V4(header) => {
                bytes[..20].copy_from_slice(header);
                bytes[1] = 0xff; // type of service
                bytes[8] = 0xff; // time to live
                bytes[10..12].fill(0xff); // header checksum
                20
            }
            IpHeader::V6(header) => {
                bytes[..40].copy_from_slice(header);
                bytes[0] |= 0x0f; // traffic class
                bytes[1..4].fill(0xff); // traffic class, flow label
                bytes[7] = 0xff; // hop limit
                40
            }
        };
        bytes[ip_len..ip_len + 6].copy_from_slice(&udp[..6]); // and not the checksum
        bytes[ip_len + 6..ip_len + 8].fill(0xff);
        #[expect(clippy::cast_possible_truncation, reason = "28 or 48")]
        Self { bytes, len: ip_len as u8 + 8 }
    }

    /// The masked bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// An ICRC in the making.
///
/// Short pieces are gathered first, so that the folding by SIMD, which needs 128 bytes at once,
/// gets headers and the beginning of the payload together.
#[derive(Clone, Debug)]
pub struct Icrc {
    crc: u32,
    gathered: [u8; Self::GATHER],
    len: usize,
}

impl Icrc {
    /// How many bytes are gathered before they are hashed.
    const GATHER: usize = 256;

    /// Starts with what stands before the BTH, and the first bytes from the BTH on: byte 4 of the
    /// BTH is masked here.
    pub fn over(cover: &IcrcCover, headers: &[u8]) -> Self {
        let mut icrc = Self { crc: AFTER_EIGHT_ONES, gathered: [0; Self::GATHER], len: 0 };
        icrc.update(cover.bytes());
        let masked = icrc.len + Bth::MASKED_BYTE;
        let (bth, rest) = headers.split_at(Bth::LEN.min(headers.len()));
        icrc.update(bth);
        if bth.len() > Bth::MASKED_BYTE {
            icrc.gathered[masked] = 0xff;
        }
        icrc.update(rest);
        icrc
    }

    /// Goes on with these bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        if self.len == 0 && bytes.len() >= Self::GATHER {
            self.crc = hash(self.crc, bytes);
            return;
        }
        let room = Self::GATHER - self.len;
        let (now, later) = bytes.split_at(room.min(bytes.len()));
        self.gathered[self.len..self.len + now.len()].copy_from_slice(now);
        self.len += now.len();
        if !later.is_empty() {
            self.crc = hash(self.crc, &self.gathered);
            self.crc = hash(self.crc, later);
            self.len = 0;
        }
    }

    /// Copies `from` to `to` (of the same length) and goes on with these bytes while they are in
    /// cache.
    pub fn copy(&mut self, from: &[u8], to: &mut [u8]) {
        to.copy_from_slice(from);
        self.update(to);
    }

    /// The ICRC as a number. Its bytes on the wire are `to_le_bytes()`.
    pub fn finish(self) -> u32 {
        hash(self.crc, &self.gathered[..self.len])
    }
}

/// The CRC-32 of whatever gave `crc`, followed by `bytes`.
fn hash(crc: u32, bytes: &[u8]) -> u32 {
    let mut hasher = Hasher::new_with_initial(crc);
    hasher.update(bytes);
    hasher.finalize()
}

/// The ICRC that a packet should have; `None` when its bytes are not all here.
pub fn expected(cover: &IcrcCover, body: Body<'_>) -> Option<u32> {
    let Body::Whole { first, second } = body else { return None };
    let covered = body.len().checked_sub(ICRC_LEN)?;
    let (first, second) = match covered.checked_sub(first.len()) {
        Some(in_second) => (first, second.get(..in_second)?),
        None => (first.get(..covered)?, &[][..]),
    };
    if first.len() >= Bth::LEN {
        let mut icrc = Icrc::over(cover, first);
        icrc.update(second);
        return Some(icrc.finish());
    }
    // Somebody cut the packet inside its BTH.
    let mut bth = [0; Bth::LEN];
    let (in_bth, behind) = second.split_at_checked(Bth::LEN - first.len())?;
    bth[..first.len()].copy_from_slice(first);
    bth[first.len()..].copy_from_slice(in_bth);
    let mut icrc = Icrc::over(cover, &bth);
    icrc.update(behind);
    Some(icrc.finish())
}

/// Whether a packet has the ICRC it should have.
///
/// # Errors
/// [`DropReason::IcrcMismatch`]; [`DropReason::Truncated`] when its bytes are not all here.
pub fn check(cover: &IcrcCover, body: Body<'_>) -> Result<(), DropReason> {
    let (Some(expected), Some(found)) = (expected(cover, body), body.icrc()) else {
        return Err(DropReason::Truncated { have: 0, need: body.len() });
    };
    if expected == found { Ok(()) } else { Err(DropReason::IcrcMismatch { expected, found }) }
}
