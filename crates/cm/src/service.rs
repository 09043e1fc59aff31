//! What one connects to: service IDs, IP ports, and who listens.
//!
//! IBA vol 1 annex A11. A service of the RDMA IP CM names itself by port space and port; its
//! requests start with a header that says which addresses and which port call.

use std::collections::BTreeMap;
use std::net::IpAddr;

use roxe_wire::mad::cm::{
    AddressPair, Bits, FlowLabel, IpCmHeader, PortSpace, PrivateData, ServiceId,
};
use roxe_wire::{Gid, QKey};

use crate::event::CallError;

/// The two ends of a path. On RoCEv2 a GID is an IP address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GidPair {
    /// This side's.
    pub local: Gid,
    /// The other side's.
    pub remote: Gid,
    /// The VLAN to which the addresses belong.
    pub vlan: Option<u16>,
}

impl GidPair {
    /// The addresses, outside of VLANs.
    pub fn new(local: impl Into<Gid>, remote: impl Into<Gid>) -> Self {
        Self { local: local.into(), remote: remote.into(), vlan: None }
    }
}

/// What to connect to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// A port, as librdmacm programs do.
    Ip {
        /// Whose ports.
        space: PortSpace,
        /// The port of this side.
        source_port: u16,
        /// The port to reach.
        port: u16,
    },
    /// A service ID, without a header in the private data.
    Id(ServiceId),
}

impl Service {
    /// The ID in REQ and SIDR_REQ.
    pub const fn id(self) -> ServiceId {
        match self {
            Self::Ip { space, port, .. } => ServiceId::from_port(space, port),
            Self::Id(id) => id,
        }
    }

    /// The flow label of the path: Linux derives it from the ports.
    pub const fn flow_label(self) -> FlowLabel {
        match self {
            Self::Ip { source_port, port, .. } => flow_label_of_ports(source_port, port),
            Self::Id(_) => FlowLabel::new(0),
        }
    }

    /// Private data as they are sent: behind the header that an IP service has.
    pub(crate) fn private_data<const N: usize>(
        self,
        path: GidPair,
        bytes: &[u8],
    ) -> Result<PrivateData<N>, CallError> {
        let Self::Ip { source_port, .. } = self else {
            return private_data(bytes);
        };
        let addresses = AddressPair::new(path.local.to_ip(), path.remote.to_ip());
        let header = IpCmHeader {
            major_version: Bits::new(0),
            minor_version: Bits::new(0),
            source_port,
            addresses: addresses.ok_or(CallError::MixedAddresses)?,
        };
        let max = N - IpCmHeader::LEN;
        let too_long = CallError::PrivateDataTooLong { given: bytes.len(), max };
        PrivateData::with_ip_cm(header, bytes).ok_or(too_long)
    }
}

/// Private data without a header.
pub(crate) fn private_data<const N: usize>(bytes: &[u8]) -> Result<PrivateData<N>, CallError> {
    let too_long = CallError::PrivateDataTooLong { given: bytes.len(), max: N };
    PrivateData::new(bytes).ok_or(too_long)
}

/// The flow label of a connection between two ports, as Linux computes it: both sides of a path
/// derive their UDP source ports from it.
pub const fn flow_label_of_ports(source_port: u16, port: u16) -> FlowLabel {
    FlowLabel::new(source_port as u32 * 31 + port as u32)
}

/// A listener's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ListenerId(pub(crate) u32);

/// What to listen for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listen {
    /// The service. An ID of the RDMA IP CM service ([`ServiceId::from_port`]) gets requests with
    /// its header only.
    pub service: ServiceId,
    /// The address that callers must name. `None` is any; `0.0.0.0` any of IPv4, `::` any of IPv6.
    pub address: Option<IpAddr>,
    /// How many requests may wait for the application. At least one may.
    pub backlog: usize,
}

impl Listen {
    /// A port, on all addresses.
    pub const fn port(space: PortSpace, port: u16, backlog: usize) -> Self {
        Self { service: ServiceId::from_port(space, port), address: None, backlog }
    }

    /// Whether a call to `address` is meant for this listener.
    fn covers(&self, address: IpAddr) -> bool {
        self.address.is_none_or(|own| {
            own == address || own.is_unspecified() && own.is_ipv4() == address.is_ipv4()
        })
    }

    /// Whether some call would be for both.
    fn overlaps(&self, other: &Self) -> bool {
        let meet = |a: &Self, b: &Self| b.address.is_none_or(|address| a.covers(address));
        self.service == other.service && (meet(self, other) || meet(other, self))
    }
}

/// All listeners.
#[derive(Debug, Default)]
pub(crate) struct Listeners {
    all: BTreeMap<ListenerId, (Listen, usize)>,
    last: u32,
}

impl Listeners {
    pub(crate) fn add(&mut self, listen: Listen) -> Result<ListenerId, CallError> {
        if self.all.values().any(|(other, _)| other.overlaps(&listen)) {
            return Err(CallError::ServiceInUse);
        }
        self.last = self.last.wrapping_add(1);
        let id = ListenerId(self.last);
        self.all.insert(id, (listen, 0));
        Ok(id)
    }

    pub(crate) fn remove(&mut self, id: ListenerId) -> Result<(), CallError> {
        self.all.remove(&id).map(|_| ()).ok_or(CallError::Gone)
    }

    /// Who listens for a call to `service`; `header` is what its private data start with, if they
    /// can be read as such. `None` when nobody does.
    //= M01, M02, M09
    pub(crate) fn find(
        &self,
        service: ServiceId,
        header: Option<IpCmHeader>,
        from: GidPair,
    ) -> Option<ListenerId> {
        let called = from.local.to_ip();
        if service.ip_cm().is_some() {
            let header = header?;
            let versions = (header.major_version.get(), header.minor_version.get());
            // Which address was called is said twice, and must be the same.
            if versions != (0, 0) || header.addresses.destination() != called {
                return None;
            }
        }
        let mut all = self.all.iter();
        let found = all.find(|(_, (listen, _))| listen.service == service && listen.covers(called));
        found.map(|(id, _)| *id)
    }

    /// Takes a place in the backlog; false when it is full.
    pub(crate) fn enqueue(&mut self, id: ListenerId) -> bool {
        let Some((listen, waiting)) = self.all.get_mut(&id) else {
            return false;
        };
        let has_room = *waiting < listen.backlog.max(1);
        *waiting += usize::from(has_room);
        has_room
    }

    /// Gives a place back. The listener may be gone.
    pub(crate) fn dequeue(&mut self, id: ListenerId) {
        if let Some((_, waiting)) = self.all.get_mut(&id) {
            *waiting -= 1;
        }
    }
}

/// The queue key that datagram services of the RDMA CM have unless they choose another.
pub(crate) const DATAGRAM_Q_KEY: QKey = QKey::RDMA_CM;

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    const ANY4: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    const ANY6: IpAddr = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
    const ONE4: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
    const TWO4: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
    const ONE6: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);

    #[test]
    fn flow_label_is_that_of_the_captures() {
        assert_eq!(flow_label_of_ports(60899, 7471).get(), 0xc_ebac);
        assert_eq!(flow_label_of_ports(48489, 7174).get(), 0x7_0bbd);
    }

    #[test]
    fn two_listeners_never_want_the_same_call() {
        let all = [None, Some(ANY4), Some(ANY6), Some(ONE4), Some(TWO4), Some(ONE6)];
        let listen = |address| Listen { address, ..Listen::port(PortSpace::Tcp, 7, 1) };
        for a in all {
            for b in all {
                let calls = [ONE4, TWO4, ONE6];
                let both = calls.iter().any(|to| listen(a).covers(*to) && listen(b).covers(*to));
                assert_eq!(listen(a).overlaps(&listen(b)), both, "{a:?} and {b:?}");
                let mut listeners = Listeners::default();
                listeners.add(listen(a)).unwrap();
                assert_eq!(listeners.add(listen(b)).is_err(), both, "{a:?} and {b:?}");
            }
        }
        let other = Listen::port(PortSpace::Udp, 7, 1);
        assert!(!listen(None).overlaps(&other), "another space");
    }

    #[test]
    fn private_data_have_less_room_behind_the_header() {
        let path = GidPair::new(ONE4, TWO4);
        let ip = Service::Ip { space: PortSpace::Tcp, source_port: 1, port: 2 };
        let raw = Service::Id(ServiceId(77));
        let fits = |service: Service, len| service.private_data::<92>(path, &vec![1; len]).is_ok();
        assert_eq!(
            (fits(ip, 56), fits(ip, 57), fits(raw, 92), fits(raw, 93)),
            (true, false, true, false)
        );
        let mixed = GidPair::new(ONE4, ONE6);
        assert_eq!(ip.private_data::<92>(mixed, &[]), Err(CallError::MixedAddresses));
    }
}
