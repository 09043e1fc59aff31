//! What stands between who asks and its peer, for whoever tells people.

use std::net::SocketAddr;

use roxe_cm::{RejectReason, SidrStatus};

use crate::cm::event::CmIdKey;
use crate::cm::manager::State;

/// Why a peer is not reached, or not yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Obstacle {
    /// None of the kernel's routes leads to it.
    NoRoute,
    /// It is in no network of the adapter's own addresses, which have no router.
    OutOfReach,
    /// The neighbour by which it is reached does not say where it is.
    NoNeighbor,
    /// Nothing has answered the first request, which goes on being sent.
    Unanswered,
    /// Nothing has answered any request.
    Silent,
    /// It refused a connection.
    Refused(RejectReason),
    /// It refused to tell the queue pair of a datagram service.
    NoDatagrams(SidrStatus),
}

/// Whom obstacles are told, with the peer's address and port.
pub(super) type Witness = Box<dyn Fn(SocketAddr, Obstacle) + Send>;

impl State {
    /// An identifier that asks has met with something.
    pub(super) fn meet(&self, id: Option<CmIdKey>, obstacle: Obstacle) {
        let peer = id.and_then(|id| self.ids.get(&id)?.remote);
        if let (Some(witness), Some(peer)) = (&self.witness, peer) {
            witness(peer, obstacle);
        }
    }
}
