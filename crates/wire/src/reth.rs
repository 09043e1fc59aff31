//! RDMA extended transport header: which memory a WRITE, READ, FLUSH or ATOMIC WRITE is about.

use crate::RKey;

/// RDMA Extended Transport Header. 16 bytes. IBA vol 1 §9.3.
///
/// ```text
///  0-7   | virtual address (64) |
///  8-11  | R_Key (32)           |
///  12-15 | DMA length (32)      |
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reth {
    /// Where in the region, as its owner counts.
    pub va: u64,
    /// Names the region.
    pub r_key: RKey,
    /// Length of the whole message in bytes, 0 ..= 2³¹. Larger values parse; the responder refuses
    /// them.
    pub dma_len: u32,
}

impl Reth {
    /// Bytes.
    pub const LEN: usize = 16;

    /// Reads the header. Every value is possible.
    pub const fn parse(bytes: [u8; Self::LEN]) -> Self {
        let [v7, v6, v5, v4, v3, v2, v1, v0, k3, k2, k1, k0, l3, l2, l1, l0] = bytes;
        Self {
            va: u64::from_be_bytes([v7, v6, v5, v4, v3, v2, v1, v0]),
            r_key: RKey(u32::from_be_bytes([k3, k2, k1, k0])),
            dma_len: u32::from_be_bytes([l3, l2, l1, l0]),
        }
    }

    /// Writes the header.
    pub const fn emit(self) -> [u8; Self::LEN] {
        let [v7, v6, v5, v4, v3, v2, v1, v0] = self.va.to_be_bytes();
        let [k3, k2, k1, k0] = self.r_key.0.to_be_bytes();
        let [l3, l2, l1, l0] = self.dma_len.to_be_bytes();
        [v7, v6, v5, v4, v3, v2, v1, v0, k3, k2, k1, k0, l3, l2, l1, l0]
    }
}
