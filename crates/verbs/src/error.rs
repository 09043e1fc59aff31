//! Why a verb failed, each in a sentence that says what to do, and as errno.

use std::net::IpAddr;
use std::time::Duration;

use roxe_device::VerbError;
use roxe_device::memory::MemoryError;
use roxe_device::multicast::MulticastError;
use roxe_device::protection_domain::PdError;
use roxe_device::queue_pair_numbers::QpnError;
use roxe_transport::congestion::ParameterError;
use roxe_transport::qp_state::ServiceType;
use roxe_transport::work::{CompletionStatus, PostError};
use rustix::io::Errno;

use crate::device_string::DeviceStringError;

/// Why a verb failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The engine refused.
    #[error(transparent)]
    Verb(#[from] VerbError),
    /// A request was refused.
    #[error(transparent)]
    Post(#[from] BadRequest),
    /// The port cannot be opened.
    #[cfg(feature = "af_xdp")]
    #[error(transparent)]
    OpenXdp(#[from] roxe_net::af_xdp::OpenError),
    /// The port cannot be opened.
    #[error(transparent)]
    OpenUdp(#[from] roxe_net::udp::OpenError),
    /// A device string cannot be read.
    #[error(transparent)]
    DeviceString(#[from] DeviceStringError),
    /// The file that names adapters cannot be read.
    #[cfg(feature = "config")]
    #[error(transparent)]
    Config(#[from] crate::config::ConfigError),
    /// A file names adapters, and this program cannot read it.
    #[error("ROXE_CONFIG names a file, but this program was built without cargo feature `config`")]
    NoConfig,
    /// No adapter has this name.
    #[error("there is no adapter {name}; there {}", there(others))]
    NoSuchDevice {
        /// The name asked for.
        name: String,
        /// Those there are.
        others: Vec<String>,
    },
    /// An interface has no address to send packets from.
    #[error("interface {0} has no address: give it one with `ip address add`")]
    NoAddress(String),
    /// A recording cannot be begun.
    #[error(transparent)]
    Capture(#[from] roxe_net::capture::OpenError),
    /// The way to a peer cannot be found.
    #[error(transparent)]
    Resolve(#[from] roxe_net::neighbor::ResolveError),
    /// There is no way to a peer.
    #[error("no route to {0}: is the address right, and the interface up?")]
    NoRoute(IpAddr),
    /// The adapter has no such address.
    #[error("the adapter has no address with GID index {0}")]
    NoSuchGid(u32),
    /// What stands before a datagram is no IP header, or of a family that the adapter lacks.
    #[error("the 40 bytes before the datagram do not say where it came from")]
    NoSender,
    /// A verb of other services.
    #[error("a queue pair of service {0:?} cannot do this")]
    WrongService(ServiceType),
    /// Objects of one adapter were named to another.
    #[error("the objects belong to different adapters")]
    OtherAdapter,
    /// A connection goes to one host, and this address is none's, or that of many.
    #[error("{address} {what}: a connection goes to the address of a peer")]
    NotOneHost {
        /// The address.
        address: IpAddr,
        /// What it is.
        what: &'static str,
    },
    /// A parameter of congestion control was refused.
    #[error(transparent)]
    Parameter(#[from] ParameterError),
    /// An algorithm of congestion control wants what no network tells.
    #[error("{0} {why}", why = NO_TELEMETRY)]
    NoTelemetry(&'static str),
    /// A completion queue cannot tell of completions: it was made without a channel.
    #[error("the completion queue has no channel: make it with `create_cq_on`")]
    NoChannel,
    /// A connection did not come about, or a call about it was refused.
    #[error(transparent)]
    Cm(#[from] crate::cm::CmError),
    /// A request failed.
    #[error("request {wr_id} failed: {why}")]
    Completion {
        /// The application's name for it.
        wr_id: u64,
        /// How it ended.
        status: CompletionStatus,
        /// Why, in a sentence.
        why: String,
    },
    /// Nothing completed in time.
    #[error("nothing completed within {0:?}")]
    TimedOut(Duration),
    /// The operating system refused something.
    #[error(transparent)]
    System(#[from] std::io::Error),
}

/// Why there is no HPCC on a network.
pub(crate) const NO_TELEMETRY: &str = "needs switches that say how long their queues are (INT), \
                                       which only simulated ones do: see `roxe sim lab`";

/// What there is.
fn there(names: &[String]) -> String {
    if names.is_empty() { "is none".to_owned() } else { format!("are: {}", names.join(", ")) }
}

/// A request of a list was refused: `bad_wr`. Those before it were taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("request {index} of the list was refused: {reason}")]
pub struct BadRequest {
    /// Which, counted from 0.
    pub index: usize,
    /// Why.
    #[source]
    pub reason: PostError,
}

impl BadRequest {
    /// Posts requests until one is refused.
    pub(crate) fn first<T>(
        requests: &[T],
        mut post: impl FnMut(&T) -> Result<(), PostError>,
    ) -> Result<(), Self> {
        requests
            .iter()
            .enumerate()
            .try_for_each(|(index, request)| post(request).map_err(|reason| Self { index, reason }))
    }
}

impl Error {
    /// The number that libibverbs gives for it.
    pub fn errno(&self) -> i32 {
        let errno = match self {
            Self::Verb(error) => errno_of(error),
            Self::Post(BadRequest { reason: PostError::QueueFull { .. }, .. }) => Errno::NOMEM,
            Self::Resolve(_) => Errno::HOSTUNREACH,
            Self::NoRoute(_) => Errno::NETUNREACH,
            Self::TimedOut(_) => Errno::TIMEDOUT,
            Self::Cm(error) => return error.errno(),
            Self::Completion { .. } | Self::Capture(_) => Errno::IO,
            Self::System(error) => {
                return error.raw_os_error().unwrap_or(Errno::IO.raw_os_error());
            }
            #[cfg(feature = "af_xdp")]
            Self::OpenXdp(_) => Errno::NODEV,
            Self::OpenUdp(_) | Self::NoSuchDevice { .. } | Self::NoAddress(_) => Errno::NODEV,
            #[cfg(feature = "config")]
            Self::Config(_) => Errno::INVAL,
            Self::Post(_)
            | Self::DeviceString(_)
            | Self::NotOneHost { .. }
            | Self::NoConfig
            | Self::NoSuchGid(_)
            | Self::NoSender
            | Self::WrongService(_)
            | Self::OtherAdapter
            | Self::Parameter(_)
            | Self::NoTelemetry(_)
            | Self::NoChannel => Errno::INVAL,
        };
        errno.raw_os_error()
    }
}

/// As the engine's errors say it of themselves.
const fn errno_of(error: &VerbError) -> Errno {
    match error {
        VerbError::Limit(_)
        | VerbError::Pd(PdError::TooMany { .. })
        | VerbError::Memory(MemoryError::TableFull { .. })
        | VerbError::Number(QpnError::TooMany { .. })
        | VerbError::Multicast(
            MulticastError::TooManyGroups { .. } | MulticastError::TooManyMembers { .. },
        ) => Errno::NOMEM,
        VerbError::InUse(_)
        | VerbError::Pd(PdError::InUse(_))
        | VerbError::Memory(MemoryError::WindowsBound { .. })
        | VerbError::Number(QpnError::Taken) => Errno::BUSY,
        _ => Errno::INVAL,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_has_the_number_that_libibverbs_gives() {
        let full = BadRequest { index: 3, reason: PostError::QueueFull { depth: 8 } };
        assert_eq!(Error::from(full).errno(), 12);
        assert_eq!(
            full.to_string(),
            "request 3 of the list was refused: the queue is full: it holds 8 requests"
        );
        let state = BadRequest { index: 0, reason: PostError::WrongState };
        assert_eq!(Error::from(state).errno(), 22);
        assert_eq!(Error::from(VerbError::Limit("queue pairs")).errno(), 12);
        assert_eq!(Error::from(VerbError::Memory(MemoryError::NoSuchKey)).errno(), 22);
        let bound = MemoryError::WindowsBound { count: 1 };
        assert_eq!(Error::from(VerbError::Memory(bound)).errno(), 16);
        assert_eq!(Error::from(std::io::Error::from_raw_os_error(13)).errno(), 13);
        assert_eq!(Error::TimedOut(Duration::ZERO).errno(), 110);
    }
}
