//! Why a port cannot be opened, and what to do about it.

use std::io;
use std::net::IpAddr;

use thiserror::Error;

/// Why a port cannot be opened. Each is something that the environment lacks (exit status 3), and
/// its message says what to do.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The address names no single host.
    #[error("{0} is not the address of one host: name one of this host's addresses")]
    NotOneHost(IpAddr),
    /// The address is not this host's.
    #[error("{address} is no address of this host; there are: {}", list(others))]
    NotLocal {
        /// The address asked for.
        address: IpAddr,
        /// Those there are.
        others: Vec<IpAddr>,
    },
    /// Another socket has the port.
    #[error(
        "another program has UDP port 4791 on {address}: `ss -lunp sport = :4791` names it, and \
         where it names none the kernel's own RoCE does (`rdma link`, `modprobe -r rdma_rxe`); a \
         port is never shared, as each packet would go to just one of those who share it: give \
         this adapter another address (127.0.0.0/8 are all this host's), or let both be \
         `host:{address}`, joined on this host"
    )]
    PortInUse {
        /// The address asked for.
        address: IpAddr,
    },
    /// The system refuses sockets like this.
    #[error(
        "not allowed to {what}: {source}; ordinary users may have UDP port 4791 unless `sysctl \
         net.ipv4.ip_unprivileged_port_start` or a sandbox forbids it"
    )]
    NotAllowed {
        /// What was refused.
        what: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// The kernel does not segment.
    #[error(
        "the kernel does not segment UDP (Linux 4.18 and later do): {0}; leave the choice open"
    )]
    NoSegmentation(io::Error),
    /// Not even the smallest path MTU fits.
    #[error("the MTU of {interface} is {mtu}: RoCEv2 needs at least {least}")]
    MtuTooSmall {
        /// The interface.
        interface: String,
        /// Its MTU.
        mtu: u32,
        /// The least that would do.
        least: u32,
    },
    /// Anything else.
    #[error("cannot {what}: {source}")]
    System {
        /// What failed.
        what: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

impl OpenError {
    /// An error of the system, or that something is not allowed.
    pub(super) fn system(what: &'static str, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::PermissionDenied => Self::NotAllowed { what, source },
            _ => Self::System { what, source },
        }
    }
}

fn list(addresses: &[IpAddr]) -> String {
    addresses.iter().map(IpAddr::to_string).collect::<Vec<_>>().join(", ")
}
