//! Why a call about a socket failed.

use rustix::io::Errno;

use crate::error::Error;

/// Why a call about a socket failed, or why its connection ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SocketError {
    /// It would have to wait.
    #[error("nothing can be done without waiting")]
    WouldBlock,
    /// A signal ended the wait.
    #[error("a signal ended the wait")]
    Interrupted,
    /// Nothing happened for so long as it was waited for.
    #[error("nothing happened in time")]
    TimedOut,
    /// There is no connection yet, or none any more.
    #[error("there is no connection")]
    NotConnected,
    /// The program has closed this direction.
    #[error("this direction was shut down here")]
    ShutDown,
    /// The peer takes nothing more.
    #[error("the peer has closed the connection")]
    Closed,
    /// The peer ended the connection without a word: its program ended, or was ended.
    #[error("the peer went away in the middle of the stream")]
    Reset,
    /// The peer does not answer any more.
    #[error("{0}")]
    Silent(String),
    /// A request failed: the peer named memory that it does not have, say.
    #[error("{0}")]
    Failed(String),
    /// The peer breaks the rules of the protocol.
    #[error("the peer is no rsocket, or a broken one: {0}")]
    Violation(&'static str),
    /// The connection did not come about.
    #[error("{sentence}")]
    NoConnection {
        /// Why.
        sentence: String,
        /// The number that librdmacm gives for it.
        errno: i32,
    },
    /// No memory of the peer has this offset.
    #[error("the peer has opened no memory at this offset")]
    NotMapped,
    /// All places for memory that is open to the peer are taken.
    #[error("the peer has no place left for another piece of memory")]
    NoPlace,
}

impl SocketError {
    /// Why a connection did not come about.
    pub(super) fn no_connection(error: &Error) -> Self {
        Self::NoConnection { sentence: error.to_string(), errno: error.errno() }
    }

    /// As functions of sockets have it.
    pub fn errno(&self) -> i32 {
        let errno = match self {
            Self::WouldBlock => Errno::AGAIN,
            Self::Interrupted => Errno::INTR,
            Self::TimedOut | Self::Silent(_) => Errno::TIMEDOUT,
            Self::NotConnected => Errno::NOTCONN,
            Self::ShutDown => Errno::PIPE,
            Self::Closed | Self::Reset | Self::Failed(_) | Self::Violation(_) => Errno::CONNRESET,
            Self::NoConnection { errno, .. } => return *errno,
            Self::NotMapped => Errno::INVAL,
            Self::NoPlace => Errno::NOMEM,
        };
        errno.raw_os_error()
    }
}
