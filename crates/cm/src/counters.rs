//! What an agent counts.

use roxe_wire::DropReason;

/// Counts since the agent was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Datagrams that came.
    pub received: u64,
    /// Datagrams that went out, repetitions included.
    pub sent: u64,
    /// Messages sent again because no answer came.
    pub retransmissions: u64,
    /// Messages that had come before and were answered again, or needed no answer.
    pub duplicates: u64,
    /// Requests, replies and resolutions that were refused on the agent's own account.
    pub refused: u64,
    /// Datagrams that are none: see [`DropReason`]. The last reason stands beside.
    pub malformed: u64,
    /// Why the last of them was none.
    pub last_malformed: Option<DropReason>,
    ignored: [u64; Ignored::ALL.len()],
}

impl Counters {
    /// How many well-formed datagrams were thrown away for this reason.
    pub const fn ignored(&self, reason: Ignored) -> u64 {
        self.ignored[reason as usize]
    }

    pub(crate) const fn ignore(&mut self, reason: Ignored) {
        self.ignored[reason as usize] += 1;
    }

    pub(crate) const fn drop_malformed(&mut self, reason: DropReason) {
        self.malformed += 1;
        self.last_malformed = Some(reason);
    }
}

/// Why a well-formed datagram changed nothing and got no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ignored {
    /// It names a connection or resolution that there is not.
    Unknown,
    /// It names one, but comes from another address, or with another ID of the sender.
    Foreign,
    /// It has no meaning in the state of its connection.
    WrongState,
    /// A DREQ for another queue pair than the connection's.
    WrongQpn,
    /// A REQ or SIDR_REQ whose sender has no ID.
    NoCommId,
    /// A message that is answered to nothing we ever send: APR, ClassPortInfo.
    Unasked,
    /// It is for nobody here, but may be for another agent at the same address.
    MayBeAnothers,
}

impl Ignored {
    /// All reasons.
    pub const ALL: [Self; 7] = [
        Self::Unknown,
        Self::Foreign,
        Self::WrongState,
        Self::WrongQpn,
        Self::NoCommId,
        Self::Unasked,
        Self::MayBeAnothers,
    ];
}
