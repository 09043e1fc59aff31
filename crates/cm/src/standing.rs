//! Connections that outlive whoever made them. Behind a card the kernel parts from the peers of a
//! process that was killed; here somebody else can, who was told what stood: an agent at the same
//! address, which takes the place of the one that is gone.

use std::time::Duration;

use roxe_wire::mad::cm::{Bits, CmTimeout, CommId, FlowLabel, PrivateData, TransportServiceType};
use roxe_wire::{AckTimeout, Instant, Mtu, PKey, Psn, Qpn, StaticRate};

use crate::agent::Agent;
use crate::connection::{Connection, ConnectionId, QpAttributes, Repetition, State};
use crate::service::GidPair;

/// A connection that stands: what is needed to part from its other side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Between which addresses.
    pub path: GidPair,
    /// The traffic class, or type of service, of its packets.
    pub traffic_class: u8,
    /// This side's name for it.
    pub local_id: CommId,
    /// The other side's name for it.
    pub remote_id: CommId,
    /// The other side's queue pair.
    pub remote_qpn: Qpn,
}

impl Agent {
    /// From now on [`poll_standing`](Self::poll_standing) tells of connections.
    pub fn watch_standing(&mut self) {
        self.changed.get_or_insert_default();
    }

    /// The next connection that began to stand, with what is known of it, or ceased to. Call until
    /// `None`.
    pub fn poll_standing(&mut self) -> Option<(ConnectionId, Option<Standing>)> {
        let id = self.changed.as_mut()?.pop_front()?;
        let stands = |it: &&Connection| it.state == State::Established;
        let standing = self.connections.get(&id.0).filter(stands).map(|it| Standing {
            path: it.path,
            traffic_class: it.attributes.traffic_class,
            local_id: id.0,
            remote_id: it.remote_id,
            remote_qpn: it.attributes.dest_qpn,
        });
        Some((id, standing))
    }

    /// A connection may have begun to stand, or ceased to.
    pub(crate) fn stands_or_not(&mut self, id: CommId) {
        // Whatever happens to one between two looks is told of once.
        if let Some(changed) = &mut self.changed
            && changed.back() != Some(&ConnectionId(id))
        {
            changed.push_back(ConnectionId(id));
        }
    }

    /// Parts from the other side of a connection that was another agent's at this address, as
    /// [`disconnect`](Self::disconnect) does, but asks three times in all, every 50 ms.
    /// [`partings`](Self::partings) counts it until it is answered or given up. Does nothing where
    /// there is no room, or a connection of that name.
    pub fn part_for(&mut self, now: Instant, standing: &Standing) {
        let Standing { path, traffic_class, local_id: id, remote_id, remote_qpn } = *standing;
        if self.is_full() || self.connections.contains_key(&id) {
            return;
        }
        let attributes = QpAttributes {
            transport: TransportServiceType::ReliableConnection,
            path,
            p_key: PKey::DEFAULT,
            path_mtu: Mtu::B1024,
            dest_qpn: remote_qpn,
            rq_psn: Psn::new(0),
            sq_psn: Psn::new(0),
            max_dest_rd_atomic: 0,
            max_rd_atomic: 0,
            timeout: AckTimeout::default(),
            retry_count: Bits::new(0),
            rnr_retry: Bits::new(0),
            flow_label: FlowLabel::default(),
            traffic_class,
            hop_limit: 0,
            sl: Bits::new(0),
            rate: StaticRate::MAX,
        };
        let connection = Connection {
            state: State::Established,
            is_active: false,
            remote_id,
            remote_guid: 0,
            path,
            transaction_id: Self::own_transaction(id),
            waits_at: None,
            is_detached: true,
            local_qpn: Qpn::new(0),
            attributes,
            repetition: Repetition::new(ASK_AGAIN, ASKS - 1),
            packet_lifetime: CmTimeout::from_bits(0),
        };
        self.connections.insert(id, connection);
        self.send_disconnect_request(now, id, PrivateData::ZERO);
    }
}

/// How often a peer is asked to part from one who is gone, and how long each is waited for: whoever
/// does that has nothing else to do, and somebody may wait for the adapter.
const ASKS: u8 = 3;
const ASK_AGAIN: Duration = Duration::from_millis(50);
