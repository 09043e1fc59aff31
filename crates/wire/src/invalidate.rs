//! Invalidate extended transport header: which key a SEND takes back.

use crate::RKey;

/// Invalidate Extended Transport Header. 4 bytes. IBA vol 1 §9.3.
///
/// ```text
///  0-3 | R_Key (32) |
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ieth {
    /// The receiver's key that stops being valid.
    pub r_key: RKey,
}

impl Ieth {
    /// Bytes.
    pub const LEN: usize = 4;

    /// Reads the header. Every value is possible.
    pub const fn parse(bytes: [u8; Self::LEN]) -> Self {
        Self { r_key: RKey(u32::from_be_bytes(bytes)) }
    }

    /// Writes the header.
    pub const fn emit(self) -> [u8; Self::LEN] {
        self.r_key.0.to_be_bytes()
    }
}
