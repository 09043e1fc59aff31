//! The header of the RDMA IP CM service: who calls, in IP terms.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::field::{FieldValue, FieldVisitor};

use super::Bits;

/// What the private data of a REQ or SIDR_REQ of the RDMA IP CM service starts with. 36 bytes.
///
/// IBA vol 1 annex A11.
///
/// ```text
///   | 0 major version (4), minor version (4) | 1 IP version (4), reserved (4) |
///   | 2 source port (16)                                                      |
///   | 4 source address (128), IPv4 in the last four bytes                     |
///   | 20 destination address (128), likewise                                  |
/// ```
///
/// Reserved bits, and the twelve bytes before an IPv4 address, may have any value and are not
/// kept; they are emitted as zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpCmHeader {
    /// The major version of the service; 0 is known.
    pub major_version: Bits<4>,
    /// Its minor version.
    pub minor_version: Bits<4>,
    /// The port of the calling side. The port that it calls stands in the service ID.
    pub source_port: u16,
    /// Who calls, and whom.
    pub addresses: AddressPair,
}

impl IpCmHeader {
    /// Bytes on the wire.
    pub const LEN: usize = 36;

    /// `None` when the IP version is neither 4 nor 6.
    pub fn parse(bytes: [u8; Self::LEN]) -> Option<Self> {
        let [version, ip, p1, p0, addresses @ ..] = bytes;
        let (source, destination) = addresses.split_first_chunk::<16>()?;
        let (&source, &destination) = (source, destination.first_chunk::<16>()?);
        Some(Self {
            major_version: Bits::new(version >> 4),
            minor_version: Bits::new(version),
            source_port: u16::from_be_bytes([p1, p0]),
            addresses: match ip >> 4 {
                4 => AddressPair::V4 {
                    source: last_four(source),
                    destination: last_four(destination),
                },
                6 => AddressPair::V6 { source: source.into(), destination: destination.into() },
                _ => return None,
            },
        })
    }

    /// The mirror image.
    pub fn emit(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[0] = self.major_version.get() << 4 | self.minor_version.get();
        bytes[2..4].copy_from_slice(&self.source_port.to_be_bytes());
        match self.addresses {
            AddressPair::V4 { source, destination } => {
                bytes[1] = 0x40;
                bytes[16..20].copy_from_slice(&source.octets());
                bytes[32..].copy_from_slice(&destination.octets());
            }
            AddressPair::V6 { source, destination } => {
                bytes[1] = 0x60;
                bytes[4..20].copy_from_slice(&source.octets());
                bytes[20..].copy_from_slice(&destination.octets());
            }
        }
        bytes
    }

    pub(crate) fn show(self, names: &IpCmNames, rest: &[u8], visit: &mut FieldVisitor<'_>) {
        let (version, [source, destination]) = match self.addresses {
            AddressPair::V4 { .. } => (4, names.v4),
            AddressPair::V6 { .. } => (6, names.v6),
        };
        visit(names.major_version, FieldValue::Number(self.major_version.get().into()));
        visit(names.minor_version, FieldValue::Number(self.minor_version.get().into()));
        visit(names.ip_version, FieldValue::Number(version));
        visit(names.source_port, FieldValue::Number(self.source_port.into()));
        visit(source, FieldValue::Address(self.addresses.source()));
        visit(destination, FieldValue::Address(self.addresses.destination()));
        visit(names.private_data, FieldValue::Bytes(rest));
    }
}

const fn last_four([.., a, b, c, d]: [u8; 16]) -> Ipv4Addr {
    Ipv4Addr::new(a, b, c, d)
}

/// Two addresses of the same IP version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AddressPair {
    /// IPv4.
    V4 {
        /// The calling side.
        source: Ipv4Addr,
        /// The side that is called.
        destination: Ipv4Addr,
    },
    /// IPv6.
    V6 {
        /// The calling side.
        source: Ipv6Addr,
        /// The side that is called.
        destination: Ipv6Addr,
    },
}

impl AddressPair {
    /// `None` when one address is IPv4 and the other IPv6.
    pub const fn new(source: IpAddr, destination: IpAddr) -> Option<Self> {
        match (source, destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => Some(Self::V4 { source, destination }),
            (IpAddr::V6(source), IpAddr::V6(destination)) => Some(Self::V6 { source, destination }),
            _ => None,
        }
    }

    /// The calling side.
    pub const fn source(self) -> IpAddr {
        match self {
            Self::V4 { source, .. } => IpAddr::V4(source),
            Self::V6 { source, .. } => IpAddr::V6(source),
        }
    }

    /// The side that is called.
    pub const fn destination(self) -> IpAddr {
        match self {
            Self::V4 { destination, .. } => IpAddr::V4(destination),
            Self::V6 { destination, .. } => IpAddr::V6(destination),
        }
    }
}

/// Under which names the header's fields are shown; addresses by IP version.
pub(crate) struct IpCmNames {
    pub(crate) major_version: &'static str,
    pub(crate) minor_version: &'static str,
    pub(crate) ip_version: &'static str,
    pub(crate) source_port: &'static str,
    pub(crate) v4: [&'static str; 2],
    pub(crate) v6: [&'static str; 2],
    pub(crate) private_data: &'static str,
}

/// Makes the names from what they start with.
macro_rules! ip_cm_names {
    ($start:literal) => {
        IpCmNames {
            major_version: concat!($start, "majv"),
            minor_version: concat!($start, "minv"),
            ip_version: concat!($start, "ipv"),
            source_port: concat!($start, "sport"),
            v4: [concat!($start, "sip4"), concat!($start, "dip4")],
            v6: [concat!($start, "sip6"), concat!($start, "dip6")],
            private_data: concat!($start, "private"),
        }
    };
}

pub(crate) use ip_cm_names;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_version_byte_is_read_or_refused() {
        for ip in 0..=255_u8 {
            let mut bytes = [0; IpCmHeader::LEN];
            (bytes[0], bytes[1], bytes[2], bytes[19], bytes[35]) = (0x12, ip, 0xca, 3, 2);
            let header = IpCmHeader::parse(bytes);
            assert_eq!(header.is_some(), matches!(ip >> 4, 4 | 6), "{ip:#x}");
            let Some(header) = header else { continue };
            assert_eq!((header.major_version.get(), header.minor_version.get()), (1, 2));
            bytes[1] = ip & 0xf0;
            assert_eq!(header.emit(), bytes);
        }
    }

    #[test]
    fn families_do_not_mix() {
        let (v4, v6) = (IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST));
        assert_eq!((AddressPair::new(v4, v6), AddressPair::new(v6, v4)), (None, None));
        assert_eq!(AddressPair::new(v6, v6).map(AddressPair::source), Some(v6));
        assert_eq!(AddressPair::new(v4, v4).map(AddressPair::destination), Some(v4));
    }
}
