//! The base transport header, which every RoCE packet has.

use crate::{DropReason, Opcode, PKey, Psn, Qpn};

/// Base Transport Header. 12 bytes. IBA vol 1 §9.2.
///
/// ```text
///        7   6   5   4   3   2   1   0
///  0   |            opcode             |
///  1   | SE| M |pad cnt| transport ver |
///  2-3 |             P_Key             |
///  4   |FEC|BEC|      reserved 6       |   not covered by the ICRC
///  5-7 |      destination QP (24)      |
///  8   | A |        reserved 7         |
///  9-11|           PSN (24)            |
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bth {
    /// What the packet is: a row of the opcode table, if the code is defined ([`Bth::row`]).
    pub opcode: u8,
    /// SE: the receiver's completion of this message is a solicited event.
    pub solicited: bool,
    /// M (MigReq): path migration state. Senders without path migration set it; receivers ignore
    /// it.
    pub mig_req: bool,
    /// Pad bytes between payload and ICRC, 0 ..= 3.
    pub pad: u8,
    /// The partition key.
    pub p_key: PKey,
    /// FECN: congestion seen on the way. Not used in RoCE, where IP's ECN bits say it.
    pub fecn: bool,
    /// BECN: set in a congestion notification.
    pub becn: bool,
    /// The six reserved bits of byte 4. Sent as 0, ignored; some hardware sets them.
    pub reserved_6: u8,
    /// The receiver's queue pair.
    pub dest_qp: Qpn,
    /// A (AckReq): the responder shall acknowledge. Requests only.
    pub ack_req: bool,
    /// The seven reserved bits of byte 8. Sent as 0, ignored, covered by the ICRC.
    pub reserved_7: u8,
    /// The packet sequence number.
    pub psn: Psn,
}

impl Bth {
    /// Bytes.
    pub const LEN: usize = 12;

    /// The byte of which the ICRC covers no bit: FECN, BECN and six reserved bits.
    pub const MASKED_BYTE: usize = 4;

    /// Reads the header.
    ///
    /// # Errors
    /// [`DropReason::TransportVersion`] when the version is not 0. Any opcode is accepted.
    pub const fn parse(bytes: [u8; Self::LEN]) -> Result<Self, DropReason> {
        match Self::check_version(bytes) {
            Ok(()) => Ok(Self::of(bytes)),
            Err(reason) => Err(reason),
        }
    }

    /// Whether the header can be read.
    //= F06, F15, BC-007, 01-1.6
    pub(crate) const fn check_version(bytes: [u8; Self::LEN]) -> Result<(), DropReason> {
        let version = bytes[1] & 0x0f;
        if version == 0 { Ok(()) } else { Err(DropReason::TransportVersion { version }) }
    }

    /// What stands in the header, whatever its version.
    pub(crate) const fn of(bytes: [u8; Self::LEN]) -> Self {
        let [opcode, flags, k1, k0, congestion, q2, q1, q0, ack, p2, p1, p0] = bytes;
        Self {
            opcode,
            solicited: flags & 0x80 != 0,
            mig_req: flags & 0x40 != 0,
            pad: flags >> 4 & 0x3,
            p_key: PKey(u16::from_be_bytes([k1, k0])),
            fecn: congestion & 0x80 != 0,
            becn: congestion & 0x40 != 0,
            reserved_6: congestion & 0x3f,
            // Of whole words, which are read at once, the low 24 bits are kept.
            dest_qp: Qpn::new(u32::from_be_bytes([congestion, q2, q1, q0])),
            ack_req: ack & 0x80 != 0,
            reserved_7: ack & 0x7f,
            psn: Psn::new(u32::from_be_bytes([ack, p2, p1, p0])),
        }
    }

    /// Writes the header. Of `pad`, `reserved_6` and `reserved_7` only the bits that fit count.
    pub const fn emit(self) -> [u8; Self::LEN] {
        let kind = (self.opcode as u32) << 24
            | (self.solicited as u32) << 23
            | (self.mig_req as u32) << 22
            | (self.pad as u32 & 0x3) << 20
            | self.p_key.0 as u32;
        let to = (self.fecn as u32) << 31
            | (self.becn as u32) << 30
            | (self.reserved_6 as u32 & 0x3f) << 24
            | self.dest_qp.get();
        let number =
            (self.ack_req as u32) << 31 | (self.reserved_7 as u32 & 0x7f) << 24 | self.psn.get();
        // In two pieces, since the ICRC reads them back at once.
        let [b0, b1, b2, b3, b4, b5, b6, b7] = ((kind as u64) << 32 | to as u64).to_be_bytes();
        let [b8, b9, b10, b11] = number.to_be_bytes();
        [b0, b1, b2, b3, b4, b5, b6, b7, b8, b9, b10, b11]
    }

    /// The row of the opcode table; `None` for a reserved opcode.
    pub const fn row(&self) -> Option<&'static Opcode> {
        Opcode::from_code(self.opcode)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every value of every byte, the others both all zeros and all ones: what is read is written
    /// again, or refused for its version. No third outcome.
    //= F06, F15, 01-1.6 test
    #[test]
    fn every_byte_round_trips_or_is_refused() {
        for rest in [0x00, 0xff] {
            for index in 0..Bth::LEN {
                for value in 0..=255 {
                    let mut bytes = [rest; Bth::LEN];
                    bytes[1] &= 0xf0;
                    bytes[index] = value;
                    match Bth::parse(bytes) {
                        Ok(bth) => assert_eq!(bth.emit(), bytes),
                        Err(DropReason::TransportVersion { version }) => {
                            assert!(index == 1 && version == value & 0xf && version != 0);
                        }
                        Err(other) => panic!("{other}"),
                    }
                }
            }
        }
    }

    #[test]
    fn fields_stand_where_the_specification_has_them() {
        let bytes = [0x04, 0xe0, 0xff, 0xfe, 0x40, 0, 0x12, 0x11, 0x80, 0x12, 0x34, 0x56];
        let bth = Bth::parse(bytes).unwrap();
        assert_eq!(
            bth,
            Bth {
                opcode: 0x04,
                solicited: true,
                mig_req: true,
                pad: 2,
                p_key: PKey(0xfffe),
                fecn: false,
                becn: true,
                reserved_6: 0,
                dest_qp: Qpn::new(0x1211),
                ack_req: true,
                reserved_7: 0,
                psn: Psn::new(0x12_3456),
            }
        );
        assert_eq!(bth.row().unwrap().name, "RC_SEND_ONLY");
    }
}
