//! XRC extended transport header: which shared receive queue a message is for.

use crate::XrcSrqNumber;

/// XRC Extended Transport Header. 4 bytes. IBA vol 1 annex A14.
///
/// ```text
///  0   | reserved (8)        |
///  1-3 | XRC SRQ number (24) |
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Xrceth {
    /// Sent as 0, ignored.
    pub reserved: u8,
    /// The receiver's shared receive queue.
    pub xrc_srq: XrcSrqNumber,
}

impl Xrceth {
    /// Bytes.
    pub const LEN: usize = 4;

    /// Reads the header. Every value is possible.
    pub const fn parse(bytes: [u8; Self::LEN]) -> Self {
        let [reserved, s2, s1, s0] = bytes;
        Self { reserved, xrc_srq: XrcSrqNumber::new(u32::from_be_bytes([0, s2, s1, s0])) }
    }

    /// Writes the header.
    pub const fn emit(self) -> [u8; Self::LEN] {
        let [_, s2, s1, s0] = self.xrc_srq.get().to_be_bytes();
        [self.reserved, s2, s1, s0]
    }
}
