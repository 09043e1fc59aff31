//! LAP and APR: a second path for a connection that already stands. RoCE peers refuse them.

use core::fmt;

use crate::field::{FieldValue, FieldVisitor};
use crate::mad::layout::{self, claim_at, codes, message, read_at, write_at};
use crate::{DropReason, Qpn};

use super::path::{PathNames, path_names};
use super::{AdditionalInfo, CmTimeout, CommId, Path, PrivateData};

message! {
    /// LAP, load alternate path. IBA vol 1 §12.6, table 115.
    LoadAlternatePath {
        /// The sender's name for the connection.
        [0:32] local_comm_id: CommId => "cm.lap.localcommid";
        /// The receiver's name for the connection.
        [4:32] remote_comm_id: CommId => "cm.lap.remotecommid";
        /// The receiver's queue pair (or context of Reliable Datagram).
        [12:24] remote_qpn: Qpn => "cm.lap.remoteqpneecn";
        /// How long the receiver has to answer this message.
        [15[7:3]] remote_cm_response_timeout: CmTimeout => "cm.lap.remoteresptout";
        /// The path to use when the current one breaks.
        [lap_path 20] alternate_path: Path => &ALTERNATE_NAMES;
        /// For the application.
        [64:1344] private_data: PrivateData<168> => Some("cm.lap.private");
    }
}

impl fmt::Display for LoadAlternatePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Path { local_gid, remote_gid, .. } = self.alternate_path;
        write!(f, "CM LAP: alternate path from {} to {}", local_gid.to_ip(), remote_gid.to_ip())?;
        write!(f, " for QP {}, ", self.remote_qpn)?;
        write!(f, "comm id {} to {}", self.local_comm_id, self.remote_comm_id)
    }
}

message! {
    /// APR, alternate path response. IBA vol 1 §12.6, table 116.
    AlternatePathResponse {
        /// The sender's name for the connection.
        [0:32] local_comm_id: CommId => "cm.apr.localcommid";
        /// The receiver's name for the connection.
        [4:32] remote_comm_id: CommId => "cm.apr.remotecommid";
        /// More about the status.
        [8:8, 12:576] additional_information: AdditionalInfo => ["cm.apr.infolen", "cm.apr.info"];
        /// Whether the path is accepted, or why not.
        [9:8] ap_status: AlternatePathStatus => ["cm.apr.status", "cm.apr.status_text"];
        /// For the application.
        [84:1184] private_data: PrivateData<148> => Some("cm.apr.private");
    }
}

impl fmt::Display for AlternatePathResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CM APR: {}, ", self.ap_status)?;
        write!(f, "comm id {} to {}", self.local_comm_id, self.remote_comm_id)
    }
}

codes! {
    /// What became of an alternate path. IBA vol 1 §12.6.
    AlternatePathStatus: u8 {
        0  Success             "alternate path accepted";
        1  InvalidCommId       "invalid communication ID";
        2  Unsupported         "alternate paths not supported";
        3  Rejected            "alternate path rejected";
        4  Redirect            "redirected";
        5  IsCurrentPath       "already the current path";
        6  InvalidQpn          "invalid QPN or EECN";
        7  InvalidLid          "invalid LID";
        8  InvalidGid          "invalid GID";
        9  InvalidFlowLabel    "invalid flow label";
        10 InvalidTrafficClass "invalid traffic class";
        11 InvalidHopLimit     "invalid hop limit";
        12 InvalidPacketRate   "invalid packet rate";
        13 InvalidSl           "invalid SL";
    }
}

const ALTERNATE_NAMES: PathNames = path_names!("cm.lap.alt_");
