//! Ethernet and VLAN: the parts of a link header.

use core::fmt;

use etherparse::EtherType;

/// An Ethernet address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MacAddress(pub [u8; 6]);

impl fmt::Display for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// An 802.1Q tag's contents: priority (3 bits), drop eligible (1), VLAN identifier (12).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct VlanTag(pub u16);

impl VlanTag {
    /// The VLAN, 0 ..= 4095. 0 is a priority tag: the frame belongs to no VLAN.
    pub const fn id(self) -> u16 {
        self.0 & 0x0fff
    }

    /// The priority code point, 0 ..= 7.
    pub const fn priority(self) -> u8 {
        (self.0 >> 13) as u8
    }
}

/// The Ethertypes of VLAN tags: 802.1Q, 802.1ad and its two forerunners.
pub(super) fn is_vlan(ether_type: EtherType) -> bool {
    matches!(ether_type.0, 0x8100 | 0x88a8 | 0x9100 | 0x9200)
}
