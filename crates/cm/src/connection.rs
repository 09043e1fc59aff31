//! One connection, from either side: what is known of it, and how its queue pair is to be moved.

use std::time::Duration;

use roxe_wire::mad::Mad;
use roxe_wire::mad::cm::{Bits, CmTimeout, CommId, FlowLabel, TransportServiceType};
use roxe_wire::{AckTimeout, Mtu, PKey, Psn, Qpn, StaticRate};

use crate::service::{GidPair, ListenerId};

/// A connection's name: the communication ID that it has on this side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConnectionId(pub(crate) CommId);

impl From<CommId> for ConnectionId {
    fn from(id: CommId) -> Self {
        Self(id)
    }
}

impl ConnectionId {
    /// The communication ID, as it stands in messages.
    pub const fn comm_id(self) -> CommId {
        self.0
    }
}

/// Where a connection stands. IBA vol 1 §12.9; the crate's documentation has the transitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Active: REQ sent, no answer yet.
    ReqSent,
    /// Active: the other side has the REQ, and asks for patience.
    MraReqRcvd,
    /// Active: accepted; the application makes its queue pair ready.
    RepRcvd,
    /// Active: and the other side was asked for patience.
    MraRepSent,
    /// Passive: requested; the application decides.
    ReqRcvd,
    /// Passive: and the other side was asked for patience.
    MraReqSent,
    /// Passive: accepted; the RTU is still to come.
    RepSent,
    /// Passive: the other side has the REP, and asks for patience.
    MraRepRcvd,
    /// Both queue pairs may send.
    Established,
    /// We want to part.
    DreqSent,
    /// It is over, but packets of it may still be under way.
    TimeWait,
}

/// How a queue pair is to be moved to ready to receive and ready to send: what
/// `rdma_init_qp_attr` fills in. `min_rnr_timer` is 0 always, as Linux has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpAttributes {
    /// RC or UC.
    pub transport: TransportServiceType,
    /// Between which addresses.
    pub path: GidPair,
    /// The partition.
    pub p_key: PKey,
    /// The path MTU that the active side asked for.
    pub path_mtu: Mtu,
    /// The other side's queue pair. 0 on the active side until it has answered.
    pub dest_qpn: Qpn,
    /// The PSN of the first packet to expect: the one that this side announced.
    pub rq_psn: Psn,
    /// The PSN of the first packet to send: the one that the other side announced.
    pub sq_psn: Psn,
    /// How many READs and atomics at once the other side may issue. REMOTE_READ and REMOTE_ATOMIC
    /// are allowed when it is not 0.
    pub max_dest_rd_atomic: u8,
    /// How many READs and atomics at once this side may issue.
    pub max_rd_atomic: u8,
    /// The ACK timeout.
    pub timeout: AckTimeout,
    /// How often to send again what is not acknowledged.
    pub retry_count: Bits<3>,
    /// How often to send again what finds no receive buffer; 7 is for ever.
    pub rnr_retry: Bits<3>,
    /// The flow label, from which the UDP source port follows.
    pub flow_label: FlowLabel,
    /// The traffic class, or type of service.
    pub traffic_class: u8,
    /// The hop limit, or time to live.
    pub hop_limit: u8,
    /// The service level.
    pub sl: Bits<4>,
    /// The most that may be sent in a time.
    pub rate: StaticRate,
}

/// Everything that is known of a connection.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) state: State,
    pub(crate) is_active: bool,
    /// The other side's name for it; 0 until it is known.
    pub(crate) remote_id: CommId,
    /// The other side's adapter; 0 until it is known.
    pub(crate) remote_guid: u64,
    /// Between which addresses its management datagrams travel.
    pub(crate) path: GidPair,
    /// The transaction ID of its REQ, which the whole handshake has.
    pub(crate) transaction_id: u64,
    /// In whose backlog it waits for the application.
    pub(crate) waits_at: Option<ListenerId>,
    /// Whether the application wants to hear no more of it.
    pub(crate) is_detached: bool,
    /// This side's queue pair; 0 on the passive side until the application accepts with one.
    pub(crate) local_qpn: Qpn,
    pub(crate) attributes: QpAttributes,
    pub(crate) repetition: Repetition,
    /// How long a packet may be on its way.
    pub(crate) packet_lifetime: CmTimeout,
}

/// What is sent again, when, and how often.
#[derive(Debug)]
pub(crate) struct Repetition {
    /// How long to wait for an answer.
    pub(crate) wait: Duration,
    /// How often each message may be sent again.
    pub(crate) max: u8,
    /// How often the last one may still be.
    pub(crate) left: u8,
    /// What was sent last and is to be sent again. A copy: the peer must get the same bytes.
    pub(crate) message: Option<Box<Mad>>,
}

impl Repetition {
    pub(crate) const fn new(wait: Duration, max: u8) -> Self {
        Self { wait, max, left: max, message: None }
    }

    /// Whether the last message was sent twice by now.
    pub(crate) const fn is_first(&self) -> bool {
        self.left + 1 == self.max
    }
}

impl Connection {
    /// Whether a message from there, of a sender that calls the connection `theirs`, belongs here.
    pub(crate) fn is_with(&self, from: GidPair, theirs: CommId) -> bool {
        self.path == from && (self.remote_id == CommId(0) || self.remote_id == theirs)
    }
}
