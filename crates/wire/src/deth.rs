//! Datagram extended transport header: who sends a datagram, and with which key.

use crate::{QKey, Qpn};

/// Datagram Extended Transport Header. 8 bytes. IBA vol 1 §9.3.
///
/// ```text
///  0-3 | Q_Key (32)     |
///  4   | reserved (8)   |
///  5-7 | source QP (24) |
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deth {
    /// The key that the receiving queue pair asks for.
    pub q_key: QKey,
    /// Sent as 0, ignored.
    pub reserved: u8,
    /// The sender's queue pair: where an answer goes.
    pub source_qp: Qpn,
}

impl Deth {
    /// Bytes.
    pub const LEN: usize = 8;

    /// Reads the header. Every value is possible.
    pub const fn parse(bytes: [u8; Self::LEN]) -> Self {
        let [k3, k2, k1, k0, reserved, q2, q1, q0] = bytes;
        Self {
            q_key: QKey(u32::from_be_bytes([k3, k2, k1, k0])),
            reserved,
            source_qp: Qpn::new(u32::from_be_bytes([0, q2, q1, q0])),
        }
    }

    /// Writes the header.
    pub const fn emit(self) -> [u8; Self::LEN] {
        let [k3, k2, k1, k0] = self.q_key.0.to_be_bytes();
        let [_, q2, q1, q0] = self.source_qp.get().to_be_bytes();
        [k3, k2, k1, k0, self.reserved, q2, q1, q0]
    }
}
