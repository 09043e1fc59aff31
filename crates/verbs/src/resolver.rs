//! Which link addresses packets of a path have.

use std::net::IpAddr;

use roxe_net::neighbor::multicast_mac;
use roxe_wire::{Addressing, Gid, MacAddress};

use crate::error::Error;

/// How the link addresses of a path are found.
pub(crate) enum Resolver {
    /// Every frame reaches every port: an address is enough, made from the one above it.
    Segment,
    /// The kernel writes them.
    Socket,
    /// The kernel knows them.
    #[cfg(feature = "af_xdp")]
    Kernel(kernel::Kernel),
}

impl Resolver {
    /// Destination and source of frames. May take seconds.
    pub(crate) fn ethernet(&self, to: &Addressing) -> Result<(MacAddress, MacAddress), Error> {
        match self {
            Self::Segment => Ok((segment_mac(to.destination), segment_mac(to.source))),
            Self::Socket => Ok(Default::default()),
            #[cfg(feature = "af_xdp")]
            Self::Kernel(kernel) => kernel.ethernet(to),
        }
    }
}

/// A MAC made from an IP address.
fn segment_mac(address: IpAddr) -> MacAddress {
    let gid = Gid::from_ip(address);
    if gid.is_multicast() {
        return multicast_mac(address);
    }
    let [.., a, b, c, d] = gid.0;
    MacAddress([2, 0, a, b, c, d])
}

#[cfg(feature = "af_xdp")]
pub(crate) mod kernel {
    use std::sync::{Mutex, PoisonError};
    use std::time::Duration;

    use roxe_net::neighbor::{Interface, Netlink};
    use roxe_wire::{Addressing, MacAddress};

    use crate::error::Error;

    /// The kernel, about one interface.
    pub(crate) struct Kernel {
        netlink: Mutex<Netlink>,
        interface: u32,
        mac: MacAddress,
    }

    impl Kernel {
        pub(crate) fn new(netlink: Netlink, interface: &Interface) -> Self {
            let mac = interface.mac.unwrap_or_default();
            Self { netlink: Mutex::new(netlink), interface: interface.index, mac }
        }

        pub(crate) fn ethernet(&self, to: &Addressing) -> Result<(MacAddress, MacAddress), Error> {
            let mut netlink = self.netlink.lock().unwrap_or_else(PoisonError::into_inner);
            let route = netlink.route(to.destination, Some(to.source), Some(self.interface))?;
            let route = route.ok_or(Error::NoRoute(to.destination))?;
            Ok((netlink.resolve(&route, PATIENCE)?, self.mac))
        }
    }

    /// How long a neighbour may take to say where it is.
    const PATIENCE: Duration = Duration::from_secs(3);
}
