//! The UDP header: RoCE's port, and a checksum.

use etherparse::IpNumber;
use etherparse::checksum::Sum16BitWords;

use super::ip::IpHeader;
use crate::DropReason;

/// The UDP port of RoCEv2.
pub const ROCE_PORT: u16 = 4791;

/// What a UDP header says besides the destination port, which is 4791.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Udp {
    /// Any value: it spreads flows over paths, and tells nothing else.
    pub source_port: u16,
    /// Header and packet, in bytes.
    pub len: u16,
    /// 0 when the sender computed none.
    pub checksum: u16,
}

impl Udp {
    /// The header's bytes.
    pub const fn emit(self) -> [u8; 8] {
        let [s1, s0] = self.source_port.to_be_bytes();
        let [d1, d0] = ROCE_PORT.to_be_bytes();
        let [l1, l0] = self.len.to_be_bytes();
        let [c1, c0] = self.checksum.to_be_bytes();
        [s1, s0, d1, d0, l1, l0, c1, c0]
    }
}

/// Whether the UDP header at `at` has RoCE's port; if it is cut off nobody can tell.
pub(super) fn check_port(slice: &[u8], at: usize) -> Result<(), DropReason> {
    match slice.get(at + 2..at + 4) {
        Some(&[high, low]) if u16::from_be_bytes([high, low]) != ROCE_PORT => {
            Err(DropReason::OtherUdpPort { port: u16::from_be_bytes([high, low]) })
        }
        _ => Ok(()),
    }
}

/// The UDP checksum over pseudo-header, header and packet. Never 0.
pub(super) fn udp_checksum(ip: IpHeader<'_>, udp: Udp, pieces: [&[u8]; 2]) -> u16 {
    let mut sum = Sum16BitWords::new();
    sum = match ip {
        IpHeader::V4(bytes) => sum.add_slice(&bytes[12..20]),
        IpHeader::V6(bytes) => sum.add_slice(&bytes[8..40]),
    };
    sum = sum.add_2bytes([0, IpNumber::UDP.0]).add_2bytes(udp.len.to_be_bytes());
    sum = sum.add_slice(&Udp { checksum: 0, ..udp }.emit());
    let [first, second] = pieces;
    match (first.split_last(), second.split_first()) {
        // A word that lies across the two pieces.
        (Some((&high, first)), Some((&low, second))) if first.len() % 2 == 0 => {
            sum = sum.add_slice(first).add_2bytes([high, low]).add_slice(second);
        }
        _ => sum = sum.add_slice(first).add_slice(second),
    }
    sum.to_ones_complement_with_no_zero().to_be()
}
