//! REJ: no connection, and why.

use core::fmt;

use crate::DropReason;
use crate::field::{FieldValue, FieldVisitor};
use crate::mad::layout::{self, claim_at, codes, message, read_at, write_at};

use super::{AdditionalInfo, AnsweredMessage, CommId, PrivateData};

message! {
    /// REJ, reject: one side refuses, or gives up, to make a connection. IBA vol 1 §12.6,
    /// table 108.
    Reject {
        /// The sender's name for the connection; 0 when it never got one.
        [0:32] local_comm_id: CommId => "cm.rej.localcommid";
        /// The receiver's name for the connection; 0 when the sender does not know it.
        [4:32] remote_comm_id: CommId => "cm.rej.remotecommid";
        /// Which message is refused.
        [8[7:6]] message_rejected: AnsweredMessage => "cm.rej.msgrej";
        /// More about the reason: the GID to use for code 12, Linux's adapter GUID for code 4.
        [9[7:1], 12:576] ari: AdditionalInfo => ["cm.rej.rejinfolen", "cm.rej.ari"];
        /// Why.
        [10:16] reason: RejectReason => ["cm.rej.reason", "cm.rej.reason_text"];
        /// For the application.
        [84:1184] private_data: PrivateData<148> => Some("cm.rej.private");
    }
}

impl fmt::Display for Reject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CM REJ: {}, ", self.reason)?;
        match self.message_rejected {
            AnsweredMessage::Req | AnsweredMessage::Rep => {
                write!(f, "{} refused, ", self.message_rejected.words())?;
            }
            AnsweredMessage::Other | AnsweredMessage::Reserved => {}
        }
        write!(f, "comm id {} to {}", self.local_comm_id, self.remote_comm_id)?;
        match self.ari.as_bytes() {
            [] => Ok(()),
            info => write!(f, ", information {}", FieldValue::Bytes(info)),
        }
    }
}

codes! {
    /// Why a connection is refused. IBA vol 1 §12.6.
    RejectReason: u16 {
        1  NoQp                            "no QP available";
        2  NoEec                           "no EE context available";
        3  NoResources                     "no resources";
        4  Timeout                         "timeout";
        5  UnsupportedRequest              "unsupported request";
        6  InvalidCommId                   "invalid communication ID";
        7  InvalidCommInstance             "invalid communication instance";
        8  InvalidServiceId                "invalid service ID";
        9  InvalidTransportServiceType     "invalid transport service type";
        10 StaleConnection                 "stale connection";
        11 RdcDoesNotExist                 "RDC does not exist";
        12 InvalidGid                      "invalid GID";
        13 InvalidLid                      "invalid LID";
        14 InvalidSl                       "invalid SL";
        15 InvalidTrafficClass             "invalid traffic class";
        16 InvalidHopLimit                 "invalid hop limit";
        17 InvalidPacketRate               "invalid packet rate";
        18 InvalidAlternateGid             "invalid alternate GID";
        19 InvalidAlternateLid             "invalid alternate LID";
        20 InvalidAlternateSl              "invalid alternate SL";
        21 InvalidAlternateTrafficClass    "invalid alternate traffic class";
        22 InvalidAlternateHopLimit        "invalid alternate hop limit";
        23 InvalidAlternatePacketRate      "invalid alternate packet rate";
        24 PortAndCmRedirection            "port and CM redirection";
        25 PortRedirection                 "port redirection";
        26 InvalidPathMtu                  "invalid path MTU";
        27 InsufficientResponderResources  "insufficient responder resources";
        28 ConsumerReject                  "rejected by the application";
        29 RnrRetryCountInvalid            "invalid RNR retry count";
        30 DuplicateLocalCommId            "duplicate local communication ID";
        31 InvalidClassVersion             "invalid class version";
        32 InvalidFlowLabel                "invalid flow label";
        33 InvalidAlternateFlowLabel       "invalid alternate flow label";
        35 VendorOptionNotSupported        "vendor option not supported";
    }
}
