//! What happens to identifiers, and the channel that tells of it.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use roxe_cm::RejectReason;
use roxe_device::address_handle::AddressVector;
use roxe_transport::qp_state::ServiceType;
use roxe_wire::mad::cm::SidrStatus;
use roxe_wire::{QKey, Qpn};

use crate::events::Mailbox;

/// Names an identifier in this process, whatever adapter it belongs to. Never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CmIdKey(u64);

impl CmIdKey {
    /// One that nobody has had.
    pub(super) fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// Something that happened to an identifier: `rdma_cm_event`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CmEvent {
    /// To which; of a request, the listener's.
    pub id: CmIdKey,
    /// What.
    pub kind: CmEventKind,
}

impl CmEvent {
    /// The identifier of the request, if it is one.
    pub const fn request(&self) -> Option<CmIdKey> {
        match self.kind {
            CmEventKind::ConnectRequest { request, .. }
            | CmEventKind::DatagramRequest { request, .. } => Some(request),
            _ => None,
        }
    }
}

/// What happened: `rdma_cm_event_type`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CmEventKind {
    /// The peer's link address is known, and which of our addresses reaches it: `ADDR_RESOLVED`.
    AddressResolved,
    /// There is no way to the peer, or it does not answer: `ADDR_ERROR`.
    AddressError {
        /// A number of errno: `ENETUNREACH` without a route, `ETIMEDOUT` for a silent neighbour.
        errno: i32,
    },
    /// The path is known, as it is on an Ethernet as soon as the address is: `ROUTE_RESOLVED`.
    RouteResolved,
    /// Somebody wants to connect: `CONNECT_REQUEST`. [`CmId::take`](super::CmId::take) the request
    /// to answer it; one that is not taken is refused with the listener.
    ConnectRequest {
        /// The identifier of the connection to be.
        request: CmIdKey,
        /// RC or UC.
        service: ServiceType,
        /// What the peer offers, as this side sees it: `responder_resources` is what this side is
        /// asked to answer, `initiator_depth` what the peer will.
        offer: Box<Offer>,
    },
    /// Somebody asks for the queue pair of a datagram service: `CONNECT_REQUEST` likewise.
    DatagramRequest {
        /// The identifier to answer it with.
        request: CmIdKey,
        /// What the peer's application says. Padded with zeros to 180 bytes.
        private_data: Box<[u8]>,
    },
    /// The peer accepted: `CONNECT_RESPONSE`. Move the queue pair to ready to send by
    /// [`CmId::qp_attributes`](super::CmId::qp_attributes), and then
    /// [`establish`](super::CmId::establish).
    ConnectResponse(Box<Offer>),
    /// The peer's acceptance cannot be taken, and was refused: `CONNECT_ERROR`.
    ConnectError {
        /// Why.
        reason: RejectReason,
    },
    /// The peer did not answer as often as it was asked: `UNREACHABLE`.
    Unreachable,
    /// The peer refused, or gave up: `REJECTED`.
    Rejected {
        /// Why.
        reason: RejectReason,
        /// What its application says. Padded with zeros to 148 bytes.
        private_data: Box<[u8]>,
    },
    /// The connection stands: `ESTABLISHED`.
    Established,
    /// A datagram service was found: `ESTABLISHED`.
    DatagramEstablished(Box<DatagramPeer>),
    /// A datagram service was refused: `UNREACHABLE`, with this status.
    DatagramRefused {
        /// Why.
        status: SidrStatus,
        /// What its application says. Padded with zeros to 136 bytes.
        private_data: Box<[u8]>,
    },
    /// The connection ended: `DISCONNECTED`. Move the queue pair to error.
    Disconnected,
    /// The queue pair may be used for another connection: `TIMEWAIT_EXIT`.
    TimewaitExit,
    /// The group can be attached to and sent to: `MULTICAST_JOIN`.
    MulticastJoined(Box<MulticastGroup>),
    /// The adapter is gone: `DEVICE_REMOVAL`.
    DeviceRemoval,
}

/// What the peer said about its side: `rdma_conn_param` of an event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Offer {
    /// The peer's queue pair.
    pub qpn: Qpn,
    /// What the peer's application says. The wire has no length for it: padded with zeros, to 56
    /// bytes in a request, 196 in a response.
    pub private_data: Box<[u8]>,
    /// How many READs and atomics at once this side is to answer.
    pub responder_resources: u8,
    /// How many this side may have under way.
    pub initiator_depth: u8,
    /// Whether the peer gives out credits.
    pub flow_control: bool,
    /// How often to send again what is not acknowledged; of a request.
    pub retry_count: u8,
    /// How often to send again what finds no receive buffer; 7 is for ever.
    pub rnr_retry_count: u8,
    /// Whether the peer's queue pair has a shared receive queue.
    pub srq: bool,
}

/// Where the queue pair of a datagram service is: `rdma_ud_param` of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatagramPeer {
    /// For an address handle to it.
    pub vector: AddressVector,
    /// Its number.
    pub qpn: Qpn,
    /// The key that datagrams to it must carry.
    pub q_key: QKey,
    /// What its application says. Padded with zeros to 136 bytes.
    pub private_data: Box<[u8]>,
}

/// A multicast group: what an address handle to it, and a request, need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MulticastGroup {
    /// Its address.
    pub address: IpAddr,
    /// For an address handle to it, and its GID to attach queue pairs to.
    pub vector: AddressVector,
    /// The queue pair that all members are.
    pub qpn: Qpn,
    /// The queue key of all members.
    pub q_key: QKey,
}

/// Where the events of identifiers go: `rdma_event_channel`. Identifiers of several adapters may
/// share one. The descriptor is readable while an event waits. Clones are the same channel.
///
/// Events of an identifier that is dropped are taken back.
#[derive(Clone)]
pub struct EventChannel(pub(super) Arc<Mailbox<CmEvent>>);

impl EventChannel {
    /// An empty one.
    ///
    /// # Errors
    /// When the process has no descriptor left.
    pub fn new() -> io::Result<Self> {
        Ok(Self(Arc::new(Mailbox::new()?)))
    }

    /// The next event, if there is one: `rdma_get_cm_event` of a channel that does not block.
    pub fn try_next(&self) -> Option<CmEvent> {
        self.0.try_take()
    }

    /// Whether there is one, or never will be.
    pub(crate) fn is_ready(&self) -> bool {
        self.0.is_ready()
    }

    /// Whoever waits for an event, or will, waits no longer.
    pub(crate) fn close(&self) {
        self.0.close();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.0.is_closed()
    }

    /// The next event; waits at most `timeout` for it. [`Duration::MAX`] is for ever.
    pub fn next(&self, timeout: Duration) -> Option<CmEvent> {
        self.0.take(timeout, || false)
    }

    /// The next event, waited for as long as nobody interrupts: whenever a signal was handled in
    /// this thread meanwhile, `interrupts` is asked whether that is the end.
    pub fn next_unless(&self, interrupts: impl Fn() -> bool) -> Option<CmEvent> {
        self.0.take(Duration::MAX, interrupts)
    }
}

impl AsFd for EventChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
