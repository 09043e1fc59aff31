//! Address vectors: where packets go, as the application says it.
//!
//! IBA vol 1 §11.2.2 (address handles), annex A17. A connected queue pair has one, an address
//! handle is one; what packets then look like follows from it and the GID table, here.

use core::fmt;

use roxe_wire::{Addressing, Gid, GidType, StaticRate, TrafficClass, VlanTag};

use crate::gid_table::GidTable;

/// Where packets go: `ibv_ah_attr`, without what RoCE does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressVector {
    /// Our address, as index into the GID table. It decides VLAN and kind of packets too.
    pub source_gid: u32,
    /// The peer's address.
    pub destination: Gid,
    /// DSCP in the upper six bits, ECN in the lower two.
    pub traffic_class: u8,
    /// Time to live or hop limit; 0 for the default, [`DEFAULT_HOP_LIMIT`].
    pub hop_limit: u8,
    /// The flow label, of which the low 20 bits count. IPv4 packets do not have one.
    pub flow_label: u32,
    /// The service level, 0 ..= 7: the priority in the VLAN tag.
    pub service_level: u8,
    /// How fast packets may be sent at most.
    pub static_rate: StaticRate,
}

impl AddressVector {
    /// From one of our addresses to a peer's, with all else as Linux takes it if nobody says more.
    pub const fn new(source_gid: u32, destination: Gid) -> Self {
        Self {
            source_gid,
            destination,
            traffic_class: 0,
            hop_limit: 0,
            flow_label: 0,
            service_level: 0,
            static_rate: StaticRate::MAX,
        }
    }

    /// How packets are addressed, with `source_port` (see [`roxe_wire::source_port`]).
    ///
    /// # Errors
    /// [`AddressError`].
    //= 05-5.9, BC-013, BC-120, BC-123
    pub fn resolve(&self, gids: &GidTable, source_port: u16) -> Result<Addressing, AddressError> {
        let source = gids.get(self.source_gid).ok_or(AddressError::NoSuchGid(self.source_gid))?;
        if source.gid_type != GidType::RoceV2 {
            return Err(AddressError::RoceV1);
        }
        if source.gid.is_ipv4() != self.destination.is_ipv4() {
            return Err(AddressError::OtherFamily);
        }
        if self.service_level > 7 {
            return Err(AddressError::ServiceLevel);
        }
        let priority = u16::from(self.service_level) << 13;
        Ok(Addressing {
            source: source.gid.to_ip(),
            destination: self.destination.to_ip(),
            source_port,
            traffic_class: TrafficClass(self.traffic_class),
            hop_limit: if self.hop_limit == 0 { DEFAULT_HOP_LIMIT } else { self.hop_limit },
            flow_label: if source.gid.is_ipv4() { 0 } else { self.flow_label & 0x000f_ffff },
            vlan: source.vlan.map(|vlan| VlanTag(priority | vlan & 0x0fff)),
        })
    }
}

/// Why packets cannot be sent there. `EINVAL`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressError {
    /// The GID table has nothing at this index.
    NoSuchGid(u32),
    /// The source address is for RoCE v1, which is not sent.
    RoceV1,
    /// One address is IPv4, the other IPv6.
    OtherFamily,
    /// The service level is above 7.
    ServiceLevel,
}

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoSuchGid(index) => return write!(f, "no address has GID index {index}"),
            Self::RoceV1 => "this GID index is for RoCE v1, only v2 is sent",
            Self::OtherFamily => "source and destination are of different IP versions",
            Self::ServiceLevel => "service levels are 0 to 7",
        })
    }
}

impl core::error::Error for AddressError {}

/// What Linux takes for the hop limit if nobody says one.
pub const DEFAULT_HOP_LIMIT: u8 = 64;

#[cfg(test)]
mod tests {
    use core::net::Ipv4Addr;

    use super::*;
    use crate::gid_table::GidEntry;

    fn gids() -> GidTable {
        let mut table = GidTable::new(8);
        let v4 = Gid::from(Ipv4Addr::new(192, 0, 2, 1));
        let v6 = Gid::from("2001:db8::1".parse::<core::net::Ipv6Addr>().unwrap());
        let entry = |gid, gid_type, vlan| GidEntry { gid, gid_type, vlan };
        table.add(entry(v4, GidType::RoceV2, None)).unwrap();
        table.add(entry(v6, GidType::RoceV2, None)).unwrap();
        table.add(entry(v4, GidType::RoceV2, Some(10))).unwrap();
        table.add(entry(v4, GidType::RoceV1, None)).unwrap();
        table
    }

    fn vector(source_gid: u32) -> AddressVector {
        AddressVector {
            source_gid,
            destination: Gid::from(Ipv4Addr::new(192, 0, 2, 2)),
            traffic_class: 106,
            hop_limit: 0,
            flow_label: 0xfff1_2345,
            service_level: 5,
            static_rate: StaticRate::default(),
        }
    }

    //= 05-5.9 test
    #[test]
    fn packets_look_as_vector_and_table_say() {
        let plain = vector(0).resolve(&gids(), 0xc001).unwrap();
        assert_eq!(plain.source, Ipv4Addr::new(192, 0, 2, 1));
        assert_eq!(plain.destination, Ipv4Addr::new(192, 0, 2, 2));
        assert_eq!((plain.traffic_class, plain.hop_limit), (TrafficClass(106), 64));
        assert_eq!((plain.flow_label, plain.source_port), (0, 0xc001));
        assert_eq!(plain.vlan, None);
        let tagged = AddressVector { hop_limit: 1, ..vector(2) }.resolve(&gids(), 0).unwrap();
        assert_eq!((tagged.vlan, tagged.hop_limit), (Some(VlanTag(5 << 13 | 10)), 1));
        let destination = Gid::from("2001:db8::2".parse::<core::net::Ipv6Addr>().unwrap());
        let v6 = AddressVector { destination, ..vector(1) }.resolve(&gids(), 0).unwrap();
        assert_eq!(v6.flow_label, 0x1_2345);
    }

    //= 05-5.9 test
    #[test]
    fn the_two_addresses_must_go_together() {
        let resolve = |vector: AddressVector| vector.resolve(&gids(), 0).map(|_| ());
        assert_eq!(resolve(vector(9)), Err(AddressError::NoSuchGid(9)));
        assert_eq!(resolve(vector(3)), Err(AddressError::RoceV1));
        assert_eq!(resolve(vector(1)), Err(AddressError::OtherFamily));
        let v6 = Gid::from("2001:db8::2".parse::<core::net::Ipv6Addr>().unwrap());
        assert_eq!(resolve(AddressVector { destination: v6, ..vector(1) }), Ok(()));
        assert_eq!(resolve(AddressVector { service_level: 7, ..vector(0) }), Ok(()));
        let refused = AddressVector { service_level: 8, ..vector(0) };
        assert_eq!(resolve(refused), Err(AddressError::ServiceLevel));
    }
}
