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
    /// The adapter has addresses of its own, and asks for neighbours itself.
    #[cfg(feature = "af_xdp")]
    Own(own::Host),
}

/// How packets of a path leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    /// In frames with this destination and source.
    Ethernet(MacAddress, MacAddress),
    /// Not at all: the adapter's own address is the destination.
    Loopback,
}

impl Resolver {
    /// How packets leave. May take seconds, in which `drive` is called to move the port.
    pub(crate) fn link(
        &self,
        to: &Addressing,
        is_own: bool,
        drive: impl FnMut(),
    ) -> Result<Link, Error> {
        let (destination, source) = match self {
            // The kernel sends them back itself.
            Self::Socket => Default::default(),
            _ if is_own => return Ok(Link::Loopback),
            Self::Segment => (segment_mac(to.destination), segment_mac(to.source)),
            #[cfg(feature = "af_xdp")]
            Self::Kernel(kernel) => kernel.ethernet(to)?,
            #[cfg(feature = "af_xdp")]
            Self::Own(host) => host.ethernet(to, drive)?,
        };
        #[cfg(not(feature = "af_xdp"))]
        let _ = drive;
        Ok(Link::Ethernet(destination, source))
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

    use roxe_net::neighbor::{Interface, Netlink};
    use roxe_wire::{Addressing, MacAddress};

    use super::PATIENCE;
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
}

#[cfg(feature = "af_xdp")]
pub(crate) mod own {
    use std::thread;
    use std::time::Duration;

    use roxe_net::neighbor::{ResolveError, multicast_mac};
    use roxe_net::owned::Neighbors;
    use roxe_wire::{Addressing, MacAddress};

    use super::PATIENCE;
    use crate::error::Error;

    /// What an adapter with addresses of its own knows.
    pub(crate) struct Host {
        pub(crate) neighbors: Neighbors,
        pub(crate) mac: MacAddress,
    }

    impl Host {
        pub(crate) fn ethernet(
            &self,
            to: &Addressing,
            mut drive: impl FnMut(),
        ) -> Result<(MacAddress, MacAddress), Error> {
            let destination = to.destination;
            if destination.is_multicast() {
                return Ok((multicast_mac(destination), self.mac));
            }
            let own = self.neighbors.own();
            if destination.is_unspecified() || !own.reaches(destination) {
                return Err(Error::NoRoute(destination));
            }
            let mut waited = Duration::ZERO;
            let mut pause = Duration::from_millis(1);
            loop {
                if let Some(mac) = self.neighbors.ask(destination) {
                    return Ok((mac, self.mac));
                }
                if waited >= PATIENCE {
                    self.neighbors.forget(destination);
                    return Err(ResolveError::Silent(destination).into());
                }
                drive();
                thread::sleep(pause);
                waited += pause;
                pause = LONGEST_PAUSE.min(pause * 2);
            }
        }
    }

    /// Between two looks whether there was an answer.
    const LONGEST_PAUSE: Duration = Duration::from_millis(20);
}

/// How long a neighbour may take to say where it is.
#[cfg(feature = "af_xdp")]
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(3);
