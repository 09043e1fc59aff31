//! Service IDs: what a connection request asks for.

use core::fmt;

use crate::field::{FieldValue, FieldVisitor};
use crate::mad::layout::{InBytes, Show};

/// Names what a REQ or SIDR_REQ wants to reach: 64 bits.
///
/// IBA vol 1 annex A11: the RDMA IP CM service has the IDs that start with 0x0000000001, followed
/// by an IP protocol and a port. Others belong to applications that use CM directly.
///
/// ```text
///   | 0x0000000001 (40) | protocol (8) | port (16) |
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServiceId(pub u64);

impl ServiceId {
    /// The ID of a port.
    pub const fn from_port(space: PortSpace, port: u16) -> Self {
        let [high, low] = port.to_be_bytes();
        Self(u64::from_be_bytes([0, 0, 0, 0, 1, space.protocol(), high, low]))
    }

    /// Port space and port; `None` for an ID of another service or of an unknown protocol.
    pub const fn port(self) -> Option<(PortSpace, u16)> {
        match self.ip_cm() {
            Some((protocol, port)) => match PortSpace::from_protocol(protocol) {
                Some(space) => Some((space, port)),
                None => None,
            },
            None => None,
        }
    }

    /// Protocol and port of an ID of the RDMA IP CM service, whatever the protocol is; `None` for
    /// an ID of another service.
    pub const fn ip_cm(self) -> Option<(u8, u16)> {
        match self.0.to_be_bytes() {
            [0, 0, 0, 0, 1, protocol, high, low] => {
                Some((protocol, u16::from_be_bytes([high, low])))
            }
            _ => None,
        }
    }
}

/// `TCP port 7471`, or the number for other services.
impl fmt::Display for ServiceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port() {
            Some((space, port)) => write!(f, "{space} port {port}"),
            None => write!(f, "service ID 0x{:016x}", self.0),
        }
    }
}

impl InBytes<8> for ServiceId {
    fn from_bytes(bytes: [u8; 8]) -> Self {
        Self(u64::from_be_bytes(bytes))
    }
    fn to_bytes(self) -> [u8; 8] {
        self.0.to_be_bytes()
    }
}

/// The whole number, then protocol and port of an RDMA IP CM ID.
impl Show for ServiceId {
    type Names = [&'static str; 3];
    fn show(&self, [id, protocol_name, port_name]: Self::Names, visit: &mut FieldVisitor<'_>) {
        visit(id, FieldValue::Hex64(self.0));
        if let Some((protocol, port)) = self.ip_cm() {
            visit(protocol_name, FieldValue::Number(protocol.into()));
            visit(port_name, FieldValue::Number(port.into()));
        }
    }
}

/// Whose ports a service ID counts: `enum rdma_ucm_port_space` of rdma-core, less IPoIB, whose
/// service IDs are no IP CM ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PortSpace {
    /// `RDMA_PS_TCP`: reliable connections. Protocol 6.
    Tcp,
    /// `RDMA_PS_UDP`: datagrams. Protocol 17.
    Udp,
    /// `RDMA_PS_IB`: any service type. Protocol 0x3f.
    Ib,
}

impl PortSpace {
    /// The protocol byte of the service ID.
    pub const fn protocol(self) -> u8 {
        match self {
            Self::Tcp => 0x06,
            Self::Udp => 0x11,
            Self::Ib => 0x3f,
        }
    }

    /// The port space with this protocol byte.
    pub const fn from_protocol(protocol: u8) -> Option<Self> {
        match protocol {
            0x06 => Some(Self::Tcp),
            0x11 => Some(Self::Udp),
            0x3f => Some(Self::Ib),
            _ => None,
        }
    }

    /// The number that `rdma_create_id` takes.
    pub const fn rdma_ps(self) -> u16 {
        u16::from_be_bytes([1, self.protocol()])
    }
}

impl fmt::Display for PortSpace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
            Self::Ib => "IB",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn ports_go_in_and_come_out() {
        for (space, base) in [
            (PortSpace::Tcp, 0x0106_0000),
            (PortSpace::Udp, 0x0111_0000),
            (PortSpace::Ib, 0x013f_0000),
        ] {
            for port in [0, 1, 7471, 0x8000, 0xffff] {
                let id = ServiceId::from_port(space, port);
                assert_eq!(id, ServiceId(base | u64::from(port)));
                assert_eq!(id.port(), Some((space, port)));
            }
            assert_eq!(u64::from(space.rdma_ps()) << 16, base);
        }
    }

    #[test]
    fn other_services_have_no_port() {
        for id in [0, 0x0100_0106_1234, 0x0000_0000_0206_1234, 0x8000_0000_0106_1234, u64::MAX] {
            assert_eq!((ServiceId(id).ip_cm(), ServiceId(id).port()), (None, None), "{id:#x}");
        }
        assert_eq!(ServiceId(0x0101_1234).ip_cm(), Some((1, 0x1234)));
        assert_eq!(ServiceId(0x0101_1234).port(), None);
        for protocol in 0..=255 {
            let space = PortSpace::from_protocol(protocol);
            assert!(space.is_none_or(|space| space.protocol() == protocol));
        }
    }

    #[test]
    fn words() {
        assert_eq!(ServiceId(0x0106_1d2f).to_string(), "TCP port 7471");
        assert_eq!(ServiceId(0x1234).to_string(), "service ID 0x0000000000001234");
    }
}
