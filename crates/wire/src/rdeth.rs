//! Reliable datagram extended transport header.

use crate::EeContext;

/// Reliable Datagram Extended Transport Header. 4 bytes. IBA vol 1 §9.3.
///
/// ```text
///  0   | reserved (8)    |
///  1-3 | EE context (24) |
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rdeth {
    /// Sent as 0, ignored.
    pub reserved: u8,
    /// The receiver's end-to-end context.
    pub ee_context: EeContext,
}

impl Rdeth {
    /// Bytes.
    pub const LEN: usize = 4;

    /// Reads the header. Every value is possible.
    pub const fn parse(bytes: [u8; Self::LEN]) -> Self {
        let [reserved, e2, e1, e0] = bytes;
        Self { reserved, ee_context: EeContext::new(u32::from_be_bytes([0, e2, e1, e0])) }
    }

    /// Writes the header.
    pub const fn emit(self) -> [u8; Self::LEN] {
        let [_, e2, e1, e0] = self.ee_context.get().to_be_bytes();
        [self.reserved, e2, e1, e0]
    }
}
