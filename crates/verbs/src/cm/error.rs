//! Why a call about connections failed.

use std::net::{IpAddr, SocketAddr};

use roxe_cm::{CallError, RejectReason, SidrStatus};
use rustix::io::Errno;

/// Why a call about connections failed, or a connection did not come about.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CmError {
    /// The connection manager refused.
    #[error(transparent)]
    Call(#[from] CallError),
    /// Somebody has the port, or all are taken.
    #[error("port {} of {} is in use", .0.port(), .0.ip())]
    AddressInUse(SocketAddr),
    /// The adapter has no such address.
    #[error("{0} is no address of the adapter")]
    NotOurs(IpAddr),
    /// The adapter has no address that goes with the peer's.
    #[error("the adapter has no address from which {0} can be reached")]
    NoSource(IpAddr),
    /// The identifier is something else already, or nothing yet.
    #[error("the identifier {0}")]
    WrongRole(&'static str),
    /// The peer refused, or gave up.
    #[error("the peer refused: {}", reason.words())]
    Rejected {
        /// Why.
        reason: RejectReason,
        /// What its application says, padded with zeros.
        private_data: Box<[u8]>,
    },
    /// What the peer answered cannot be taken.
    #[error("the peer's answer was refused: {}", .0.words())]
    Refused(RejectReason),
    /// The peer refused to tell its queue pair.
    #[error("the peer serves no datagrams there: {}", .0.words())]
    NoDatagrams(SidrStatus),
    /// The peer does not answer.
    #[error("the peer does not answer connection requests")]
    Unreachable,
    /// The peer ended the connection before it stood.
    #[error("the peer disconnected at once")]
    Ended,
    /// The way to the peer was not found.
    #[error("no way to the peer: {}", std::io::Error::from_raw_os_error(*.0))]
    NoWay(i32),
    /// The adapter is gone.
    #[error("the adapter is gone")]
    DeviceGone,
}

impl CmError {
    /// The number that librdmacm gives for it.
    pub fn errno(&self) -> i32 {
        let errno = match self {
            Self::Call(CallError::ServiceInUse) | Self::AddressInUse(_) => Errno::ADDRINUSE,
            Self::Call(CallError::TooMany) => Errno::NOMEM,
            Self::Call(_) | Self::WrongRole(_) => Errno::INVAL,
            Self::NotOurs(_) => Errno::ADDRNOTAVAIL,
            Self::NoSource(_) => Errno::NETUNREACH,
            Self::Rejected { .. } | Self::Refused(_) | Self::NoDatagrams(_) => Errno::CONNREFUSED,
            Self::Ended => Errno::CONNRESET,
            Self::Unreachable => Errno::TIMEDOUT,
            Self::NoWay(errno) => return *errno,
            Self::DeviceGone => Errno::NODEV,
        };
        errno.raw_os_error()
    }
}
