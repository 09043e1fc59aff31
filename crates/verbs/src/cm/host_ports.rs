//! Ports of the RDMA CM on addresses that several processes of the host have, `host:` adapters.
//!
//! Each port of an address is a name of the host, which a [`Keeper`] has as long as somebody has
//! the port. They go with the process, however it ends.

use std::io;
use std::net::{IpAddr, SocketAddr};

use roxe_cm::PortSpace;
use roxe_net::host::{Keeper, Names};

/// What is reserved for an adapter on the whole host.
pub(super) struct HostPorts {
    /// Those of the adapter, which do not change.
    addresses: Vec<IpAddr>,
    names: Names,
    keeper: Keeper,
}

impl HostPorts {
    /// For an adapter with these addresses, in the calling thread's network namespace.
    pub(super) fn open(addresses: Vec<IpAddr>) -> io::Result<Self> {
        Ok(Self { addresses, names: Names::of_host()?, keeper: Keeper::start()? })
    }

    /// Reserves a port: an unspecified address is all of its family that the adapter has, which
    /// others' addresses have nothing to do with. False when another adapter has it.
    pub(super) fn take(&self, space: PortSpace, address: SocketAddr) -> io::Result<bool> {
        match self.keeper.take(self.named(space, address)) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => Ok(false),
            taken => taken.map(|()| true),
        }
    }

    /// Gives it back; it is free behind this.
    pub(super) fn release(&self, space: PortSpace, address: SocketAddr) {
        self.keeper.release(self.named(space, address));
    }

    /// Whether some adapter of the host has a port at this address.
    pub(super) fn is_taken(&self, space: PortSpace, address: SocketAddr) -> bool {
        self.names.is_taken(&name(space, address))
    }

    /// The names of a port.
    fn named(&self, space: PortSpace, address: SocketAddr) -> Vec<String> {
        let ip = address.ip();
        let is_meant =
            |own: &&IpAddr| **own == ip || ip.is_unspecified() && own.is_ipv4() == ip.is_ipv4();
        let named = |own: &IpAddr| name(space, SocketAddr::new(*own, address.port()));
        self.addresses.iter().filter(is_meant).map(named).collect()
    }
}

fn name(space: PortSpace, address: SocketAddr) -> String {
    format!("roxe-port/{}/{address}", space.protocol())
}
