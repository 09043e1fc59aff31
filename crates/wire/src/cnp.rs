//! The congestion notification packet: what is fixed in it and what is reserved.
//!
//! IBA vol 1 annex A17 §A17.9.3. A CNP tells a sender that its packets were marked on their way.
//! It has no sequence number of its own, is never answered and never retransmitted.

use crate::{Bth, PKey, Psn, Qpn};

/// The 16 reserved bytes of a congestion notification.
///
/// ```text
///  0-15 | reserved, sent as 0, ignored |
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CnpReserved(pub [u8; 16]);

impl CnpReserved {
    /// Bytes.
    pub const LEN: usize = 16;
}

/// The BTH of a congestion notification to `dest_qp`: opcode 0x81, BECN set, all else zero.
//= BC-017
pub const fn cnp_bth(dest_qp: Qpn, p_key: PKey) -> Bth {
    Bth {
        opcode: CNP_OPCODE,
        solicited: false,
        mig_req: false,
        pad: 0,
        p_key,
        fecn: false,
        becn: true,
        reserved_6: 0,
        dest_qp,
        ack_req: false,
        reserved_7: 0,
        psn: Psn::new(0),
    }
}

/// 0x81. Some tables say 0x80; hardware sends 0x81.
pub const CNP_OPCODE: u8 = 0x81;
