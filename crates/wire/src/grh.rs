//! The 40 bytes before a datagram in its receive buffer.
//!
//! IBA vol 1 §11.4.1.2 asks for the global routing header there. RoCEv2 has an IP header instead:
//! IPv6 fills the area, IPv4 its last 20 bytes.

use core::net::IpAddr;

use crate::frame::{IpHeader, TrafficClass};

/// The area that a UD receive buffer begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grh([u8; Self::LEN]);

impl Grh {
    /// Bytes.
    pub const LEN: usize = 40;

    /// The area for a datagram with this IP header. The first half is zero for IPv4.
    //= U04, BC-114
    pub fn new(ip: IpHeader<'_>) -> Self {
        let mut bytes = [0; Self::LEN];
        let header = ip.bytes();
        bytes[Self::LEN - header.len()..].copy_from_slice(header);
        Self(bytes)
    }

    /// Takes the area from the front of a receive buffer.
    pub const fn from_bytes(bytes: [u8; Self::LEN]) -> Self {
        Self(bytes)
    }

    /// The bytes.
    pub const fn as_bytes(&self) -> &[u8; Self::LEN] {
        &self.0
    }

    /// The IP header within. As in libibverbs it is IPv4 if the last 20 bytes are such a header
    /// with a right checksum, else IPv6; `None` when neither fits.
    pub fn ip_header(&self) -> Option<IpHeader<'_>> {
        let v4 = self.0.last_chunk::<20>()?;
        if v4[0] == 0x45
            && etherparse::checksum::Sum16BitWords::new().add_slice(v4).ones_complement() == 0
        {
            return Some(IpHeader::V4(v4));
        }
        (self.0[0] >> 4 == 6).then_some(IpHeader::V6(&self.0))
    }

    /// Where the datagram came from: the address to answer to.
    pub fn source(&self) -> Option<IpAddr> {
        self.ip_header().map(IpHeader::source)
    }

    /// Where it went.
    pub fn destination(&self) -> Option<IpAddr> {
        self.ip_header().map(IpHeader::destination)
    }

    /// DSCP and ECN.
    pub fn traffic_class(&self) -> Option<TrafficClass> {
        self.ip_header().map(IpHeader::traffic_class)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    //= U04, BC-114 test
    #[test]
    fn both_families_are_found_again() {
        let v4 =
            *b"\x45\x6a\x00\x48\x1c\x46\x40\x00\x40\x11\x99\xdf\xc0\x00\x02\x0a\xc0\x00\x02\x0b";
        let grh = Grh::new(IpHeader::V4(&v4));
        assert_eq!(grh.as_bytes()[..20], [0; 20]);
        assert_eq!(grh.ip_header(), Some(IpHeader::V4(&v4)));
        assert_eq!(grh.source(), Some("192.0.2.10".parse().unwrap()));
        assert_eq!(grh.traffic_class(), Some(TrafficClass(0x6a)));
        let mut v6 = [0; 40];
        v6[0] = 0x60;
        v6[39] = 1;
        let grh = Grh::new(IpHeader::V6(&v6));
        assert_eq!(grh.destination(), Some("::1".parse().unwrap()));
        assert_eq!(Grh::from_bytes([0; 40]).ip_header(), None);
    }
}
