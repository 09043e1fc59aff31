//! The headers of the fetching atomics and of their answer.

use crate::RKey;

/// Atomic Extended Transport Header. 28 bytes. IBA vol 1 §9.3.
///
/// ```text
///  0-7   | virtual address (64)  |
///  8-11  | R_Key (32)            |
///  12-19 | swap or add data (64) |
///  20-27 | compare data (64)     |
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AtomicEth {
    /// Where the 64-bit value stands: a multiple of 8.
    pub va: u64,
    /// Names the region.
    pub r_key: RKey,
    /// What to store if the comparison holds (CMP_SWAP), or what to add (FETCH_ADD).
    pub swap_add: u64,
    /// What to compare with (CMP_SWAP); nothing for FETCH_ADD.
    pub compare: u64,
}

impl AtomicEth {
    /// Bytes.
    pub const LEN: usize = 28;

    /// Reads the header. Every value is possible.
    pub fn parse(bytes: [u8; Self::LEN]) -> Self {
        let (va, rest) = split_u64(&bytes);
        let [k3, k2, k1, k0, ref rest @ ..] = *rest else { return Self::default() };
        let (swap_add, rest) = split_u64(rest);
        let (compare, _) = split_u64(rest);
        Self { va, r_key: RKey(u32::from_be_bytes([k3, k2, k1, k0])), swap_add, compare }
    }

    /// Writes the header.
    pub fn emit(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[0..8].copy_from_slice(&self.va.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.r_key.0.to_be_bytes());
        bytes[12..20].copy_from_slice(&self.swap_add.to_be_bytes());
        bytes[20..28].copy_from_slice(&self.compare.to_be_bytes());
        bytes
    }
}

fn split_u64(bytes: &[u8]) -> (u64, &[u8]) {
    match bytes.split_first_chunk() {
        Some((value, rest)) => (u64::from_be_bytes(*value), rest),
        None => (0, &[]),
    }
}

/// Atomic ACK Extended Transport Header: the value before the operation. 8 bytes.
/// IBA vol 1 §9.3.
///
/// ```text
///  0-7 | original remote data (64) |
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AtomicAckEth {
    /// What stood there before.
    pub original: u64,
}

impl AtomicAckEth {
    /// Bytes.
    pub const LEN: usize = 8;

    /// Reads the header. Every value is possible.
    pub const fn parse(bytes: [u8; Self::LEN]) -> Self {
        Self { original: u64::from_be_bytes(bytes) }
    }

    /// Writes the header.
    pub const fn emit(self) -> [u8; Self::LEN] {
        self.original.to_be_bytes()
    }
}
