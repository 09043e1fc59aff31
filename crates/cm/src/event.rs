//! What the application hears, and what its calls may fail with.

use std::error::Error;
use std::fmt;

use roxe_wire::mad::cm::{Reject, RejectReason, Reply, Request, ServiceId, SidrReply, SidrRequest};

use crate::agent::Transmit;
use crate::connection::{ConnectionId, QpAttributes};
use crate::service::{GidPair, ListenerId};
use crate::sidr::{QuestionId, ResolutionId};

/// What the application should hear about. The names in parentheses are librdmacm's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Passive side: somebody wants to connect (`CONNECT_REQUEST`). Accept, reject or destroy it.
    Request {
        /// The listener it is for.
        listener: ListenerId,
        /// The connection to be.
        connection: ConnectionId,
        /// Who asks, and which of our addresses was asked.
        from: GidPair,
        /// What was asked; private data of IP services: [`Request::ip_cm`].
        request: Box<Request>,
    },
    /// Active side: accepted (`CONNECT_RESPONSE`). Move the queue pair to ready to send, then call
    /// [`ready`](crate::Agent::ready).
    Reply {
        /// The connection.
        connection: ConnectionId,
        /// How the queue pair is to be moved.
        attributes: Box<QpAttributes>,
        /// What was answered.
        reply: Box<Reply>,
    },
    /// Passive side: the connection stands (`ESTABLISHED`).
    Established {
        /// The connection.
        connection: ConnectionId,
    },
    /// The other side refused, or gave up, or holds a connection for stale (`REJECTED`). The
    /// connection is gone, or in time wait when there had been one.
    Rejected {
        /// The connection.
        connection: ConnectionId,
        /// Its REJ.
        reject: Box<Reject>,
    },
    /// This side refused the other's REP (`CONNECT_ERROR`). The connection is gone.
    Refused {
        /// The connection.
        connection: ConnectionId,
        /// Why.
        reason: RejectReason,
    },
    /// Nothing has answered the first request, which is sent again. For people: librdmacm has no
    /// such event, and nothing follows from it.
    AskedAgain {
        /// The connection to be.
        connection: ConnectionId,
    },
    /// The other side did not answer as often as it was asked (`UNREACHABLE`). The connection is
    /// gone.
    Unreachable {
        /// The connection.
        connection: ConnectionId,
    },
    /// The connection ended (`DISCONNECTED`): move the queue pair to error. It is in time wait.
    Disconnected {
        /// The connection.
        connection: ConnectionId,
    },
    /// Time wait is over (`TIMEWAIT_EXIT`): the queue pair may be used again. The connection is
    /// gone.
    TimeWaitExit {
        /// The connection.
        connection: ConnectionId,
    },
    /// Somebody asks for a datagram service (`CONNECT_REQUEST`). Call
    /// [`answer`](crate::Agent::answer).
    Question {
        /// The listener it is for.
        listener: ListenerId,
        /// To be answered.
        question: QuestionId,
        /// Who asks, and which of our addresses was asked.
        from: GidPair,
        /// What was asked.
        request: Box<SidrRequest>,
    },
    /// A datagram service was found (`ESTABLISHED`) or refused (`UNREACHABLE`): its status says.
    Resolved {
        /// The resolution, which is gone.
        resolution: ResolutionId,
        /// The answer.
        reply: Box<SidrReply>,
    },
    /// Nothing has answered the first question, which is sent again: for people, as
    /// [`AskedAgain`](Self::AskedAgain).
    LookedForAgain {
        /// The resolution.
        resolution: ResolutionId,
    },
    /// Nobody answered (`UNREACHABLE`).
    Unresolved {
        /// The resolution, which is gone.
        resolution: ResolutionId,
    },
    /// Somebody calls a service at which nobody listens here, at addresses that are
    /// [shared](crate::Config::shares_addresses). Call
    /// [`leave_to_another`](crate::Agent::leave_to_another) when another agent has it, else
    /// [`refuse_call`](crate::Agent::refuse_call).
    Unserved {
        /// What is called.
        service: ServiceId,
        /// The refusal, if it is one; its path says which of our addresses was called.
        refusal: Box<Transmit>,
    },
}

/// Why a call did nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallError {
    /// There is no such connection, listener, resolution or question, or there is no more.
    Gone,
    /// The connection is in a state in which the call has no meaning.
    WrongState,
    /// Private data do not fit into the message.
    PrivateDataTooLong {
        /// How many bytes were given.
        given: usize,
        /// How many there is room for.
        max: usize,
    },
    /// Another listener has the service.
    ServiceInUse,
    /// As many connections as [`Config::max_connections`](crate::Config::max_connections) allows.
    TooMany,
    /// CM makes no connections of this kind.
    UnsupportedTransport,
    /// The two addresses are not of one IP version, which an IP service needs.
    MixedAddresses,
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gone => f.write_str("there is no such connection"),
            Self::WrongState => f.write_str("the connection is in another state"),
            Self::PrivateDataTooLong { given, max } => {
                write!(f, "{given} bytes of private data are more than {max}")
            }
            Self::ServiceInUse => f.write_str("the service has a listener"),
            Self::TooMany => f.write_str("there are too many connections"),
            Self::UnsupportedTransport => f.write_str("only RC and UC can be connected"),
            Self::MixedAddresses => f.write_str("one address is IPv4, the other IPv6"),
        }
    }
}

impl Error for CallError {}
