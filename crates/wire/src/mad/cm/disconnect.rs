//! DREQ and DREP: how a connection ends.

use core::fmt;

use crate::field::FieldVisitor;
use crate::mad::layout::{self, claim_at, message, read_at, write_at};
use crate::{DropReason, Qpn};

use super::{CommId, PrivateData};

message! {
    /// DREQ, request to disconnect. Either side may send it. IBA vol 1 §12.6, table 112.
    DisconnectRequest {
        /// The sender's name for the connection.
        [0:32] local_comm_id: CommId => "cm.dreq.localcommid";
        /// The receiver's name for the connection.
        [4:32] remote_comm_id: CommId => "cm.dreq.remotecommid";
        /// The *receiver's* queue pair (or context of Reliable Datagram), so that it can tell a
        /// request of an earlier connection.
        [8:24] remote_qpn: Qpn => "cm.req.remoteqpneecn";
        /// For the application.
        [12:1760] private_data: PrivateData<220> => Some("cm.dreq.private");
    }
}

impl fmt::Display for DisconnectRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CM DREQ: disconnect from QP {}, ", self.remote_qpn)?;
        write!(f, "comm id {} to {}", self.local_comm_id, self.remote_comm_id)
    }
}

message! {
    /// DREP, reply to a request to disconnect. IBA vol 1 §12.6, table 113.
    DisconnectReply {
        /// The sender's name for the connection.
        [0:32] local_comm_id: CommId => "cm.drsp.localcommid";
        /// The receiver's name for the connection.
        [4:32] remote_comm_id: CommId => "cm.drsp.remotecommid";
        /// For the application.
        [8:1792] private_data: PrivateData<224> => Some("cm.drsp.private");
    }
}

impl fmt::Display for DisconnectReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { local_comm_id: local, remote_comm_id: remote, .. } = self;
        write!(f, "CM DREP: disconnected, comm id {local} to {remote}")
    }
}
