//! Global identifiers: what RoCE calls an address.
//!
//! IBA vol 1 §4.1 and annex A17: a RoCEv2 GID *is* an IP address, IPv4 in its mapped form.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A global identifier: 128 bits. For RoCEv2 an IPv6 address or `::ffff:a.b.c.d`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Gid(pub [u8; 16]);

impl Gid {
    /// The GID of an IP address: IPv4 is mapped.
    pub const fn from_ip(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(v4) => Self(v4.to_ipv6_mapped().octets()),
            IpAddr::V6(v6) => Self(v6.octets()),
        }
    }

    /// The IP address that packets to or from this GID carry: IPv4 when it is mapped.
    pub const fn to_ip(self) -> IpAddr {
        let v6 = Ipv6Addr::from_octets(self.0);
        match v6.to_ipv4_mapped() {
            Some(v4) => IpAddr::V4(v4),
            None => IpAddr::V6(v6),
        }
    }

    /// Whether this is `::ffff:a.b.c.d`.
    pub const fn is_ipv4(self) -> bool {
        matches!(self.to_ip(), IpAddr::V4(_))
    }

    /// Whether this names a multicast group, IPv4 (224.0.0.0/4) or IPv6 (ff00::/8).
    pub const fn is_multicast(self) -> bool {
        match self.to_ip() {
            IpAddr::V4(v4) => v4.is_multicast(),
            IpAddr::V6(v6) => v6.is_multicast(),
        }
    }

    /// The Ethernet group address of a multicast GID: `01:00:5e` and the low 23 bits for IPv4,
    /// `33:33` and the low 32 bits for IPv6; `None` for a unicast GID.
    pub const fn multicast_mac(self) -> Option<[u8; 6]> {
        if !self.is_multicast() {
            return None;
        }
        let [.., a, b, c, d] = self.0;
        if self.is_ipv4() {
            Some([0x01, 0x00, 0x5e, b & 0x7f, c, d])
        } else {
            Some([0x33, 0x33, a, b, c, d])
        }
    }

    /// The link-local GID that a port forms from its MAC: `fe80::` and the EUI-64.
    pub const fn link_local(mac: [u8; 6]) -> Self {
        let [a, b, c, d, e, f] = mac;
        Self([0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 0x02, b, c, 0xff, 0xfe, d, e, f])
    }
}

impl From<IpAddr> for Gid {
    fn from(address: IpAddr) -> Self {
        Self::from_ip(address)
    }
}

impl From<Ipv4Addr> for Gid {
    fn from(address: Ipv4Addr) -> Self {
        Self::from_ip(IpAddr::V4(address))
    }
}

impl From<Ipv6Addr> for Gid {
    fn from(address: Ipv6Addr) -> Self {
        Self::from_ip(IpAddr::V6(address))
    }
}

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&Ipv6Addr::from_octets(self.0), f)
    }
}

/// How packets with a GID look on the wire: `enum ib_gid_type` of Linux.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum GidType {
    /// RoCE v1: Ethertype 0x8915 and a GRH. Recognised, never sent.
    RoceV1,
    /// RoCE v2: UDP port 4791 over IPv4 or IPv6.
    #[default]
    RoceV2,
}

impl fmt::Display for GidType {
    /// The names of Linux's `gid_attrs/types` files.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RoceV1 => "IB/RoCE v1",
            Self::RoceV2 => "RoCE v2",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ipv4_is_mapped_and_comes_back() {
        let gid = Gid::from(Ipv4Addr::new(192, 0, 2, 10));
        assert_eq!(gid.0, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 10]);
        assert_eq!(gid.to_ip(), IpAddr::V4(Ipv4Addr::new(192, 0, 2, 10)));
        assert!(gid.is_ipv4() && !gid.is_multicast());
        let v6: Ipv6Addr = "2001:db8::a".parse().unwrap();
        assert_eq!(Gid::from(v6).to_ip(), IpAddr::V6(v6));
    }

    #[test]
    fn groups_map_to_ethernet_groups() {
        let v4 = Gid::from(Ipv4Addr::new(239, 129, 2, 3));
        assert_eq!(v4.multicast_mac(), Some([0x01, 0x00, 0x5e, 0x01, 0x02, 0x03]));
        let v6 = Gid::from("ff15::1234:beef".parse::<Ipv6Addr>().unwrap());
        assert_eq!(v6.multicast_mac(), Some([0x33, 0x33, 0x12, 0x34, 0xbe, 0xef]));
        assert_eq!(Gid::from(Ipv4Addr::LOCALHOST).multicast_mac(), None);
    }

    #[test]
    fn link_local_flips_the_universal_bit() {
        let gid = Gid::link_local([0x52, 0x54, 0x00, 0x10, 0x00, 0x03]);
        assert_eq!(gid.to_ip(), "fe80::5054:ff:fe10:3".parse::<IpAddr>().unwrap());
    }
}
