//! REP, RTU and MRA: how a REQ is accepted, and how either side asks for patience.

use core::fmt;

use crate::field::{FieldValue, FieldVisitor};
use crate::mad::layout::{self, InBits, Show, claim_at, message, read_at, write_at};
use crate::{DropReason, EeContext, Psn, QKey, Qpn};

use super::{Bits, CmTimeout, CommId, PrivateData, VendorId};

message! {
    /// REP, reply to a request for communication: the passive side accepts and names its queue
    /// pair. IBA vol 1 §12.6, table 110.
    Reply {
        /// The sender's name for the connection.
        [0:32] local_comm_id: CommId => "cm.rep";
        /// The receiver's name for the connection, from its REQ.
        [4:32] remote_comm_id: CommId => "cm.rep.remotecommid";
        /// The queue key of a datagram queue pair; otherwise 0.
        [8:32] local_q_key: QKey => "cm.rep.localqkey";
        /// The sender's queue pair.
        [12:24] local_qpn: Qpn => "cm.rep.localqpn";
        /// Who defines the options of enhanced connection establishment. Its three bytes stand
        /// apart, where older revisions of the specification have reserved ones.
        [15, 19, 23] vendor_id: VendorId => "cm.rep.vendorid";
        /// The sender's context of Reliable Datagram.
        [16:24] local_ee_context_number: EeContext => "cm.rep.localeecn";
        /// The PSN with which the receiver must start sending to the sender's queue pair.
        [20:24] starting_psn: Psn => "cm.rep.startpsn";
        /// How many READs and atomics at once the sender will answer.
        [24:8] responder_resources: u8 => "cm.rep.respres";
        /// How many READs and atomics at once the sender will issue.
        [25:8] initiator_depth: u8 => "cm.rep.initdepth";
        /// How long the sender's adapter may take to acknowledge, as an ACK timeout is encoded.
        [26[7:3]] target_ack_delay: CmTimeout => "cm.rep.tgtackdelay";
        /// What became of the alternate path in the REQ; Linux writes 0.
        [26[2:1]] failover_accepted: Bits<2> => "cm.rep.failoveracc";
        /// Whether the sender's queue pair gives out credits.
        [26[0:0]] end_to_end_flow_control: bool => "cm.rep.e2eflowctrl";
        /// The RNR retry count of the receiver's queue pair; 7 is for ever.
        [27[7:5]] rnr_retry_count: Bits<3> => "cm.rep.rnrretrcount";
        /// Whether the sender's queue pair has a shared receive queue.
        [27[4:4]] srq: bool => "cm.rep.srq";
        /// The sender's adapter.
        [28:64] local_ca_guid: u64 => "cm.rep.localcaguid";
        /// For the application.
        [36:1568] private_data: PrivateData<196> => Some("cm.rep.private");
    }
}

impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { local_qpn: qpn, starting_psn: psn, .. } = self;
        write!(f, "CM REP: accept with QP {qpn}, starting PSN {psn}, ")?;
        write!(f, "comm id {} to {}", self.local_comm_id, self.remote_comm_id)
    }
}

message! {
    /// RTU, ready to use: the active side has seen the REP; the connection stands. IBA vol 1 §12.6,
    /// table 111.
    ReadyToUse {
        /// The sender's name for the connection.
        [0:32] local_comm_id: CommId => "cm.rtu.localcommid";
        /// The receiver's name for the connection.
        [4:32] remote_comm_id: CommId => "cm.rtu.remotecommid";
        /// For the application.
        [8:1792] private_data: PrivateData<224> => Some("cm.rtu.private");
    }
}

impl fmt::Display for ReadyToUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CM RTU: ready to use, comm id {} to {}", self.local_comm_id, self.remote_comm_id)
    }
}

message! {
    /// MRA, message receipt acknowledgement: a message came and its answer takes longer than was
    /// asked for. IBA vol 1 §12.6, table 107.
    MessageReceipt {
        /// The sender's name for the connection.
        [0:32] local_comm_id: CommId => "cm.mra.localcommid";
        /// The receiver's name for the connection.
        [4:32] remote_comm_id: CommId => "cm.mra.remotecommid";
        /// Which message came; [`AnsweredMessage::Other`] is a LAP here.
        [8[7:6]] message_mraed: AnsweredMessage => "cm.mra.msgmraed";
        /// How long the answer may take from now on.
        [9[7:3]] service_timeout: CmTimeout => "cm.mra.servicetout";
        /// For the application.
        [10:1776] private_data: PrivateData<222> => Some("cm.mra.private");
    }
}

impl fmt::Display for MessageReceipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let message = match self.message_mraed {
            AnsweredMessage::Other => "LAP",
            other => other.words(),
        };
        write!(f, "CM MRA: {message} received, answer within ")?;
        write!(f, "{:.3?}, ", self.service_timeout.duration())?;
        write!(f, "comm id {} to {}", self.local_comm_id, self.remote_comm_id)
    }
}

/// Which message an MRA or a REJ answers. Two bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum AnsweredMessage {
    /// A REQ, code 0.
    #[default]
    Req,
    /// A REP, code 1.
    Rep,
    /// Code 2: a LAP in an MRA; in a REJ any other message, or none at all.
    Other,
    /// Code 3, without a meaning.
    Reserved,
}

impl AnsweredMessage {
    /// The two bits.
    pub const fn code(self) -> u8 {
        match self {
            Self::Req => 0,
            Self::Rep => 1,
            Self::Other => 2,
            Self::Reserved => 3,
        }
    }

    /// The message's name.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Req => "REQ",
            Self::Rep => "REP",
            Self::Other => "no message",
            Self::Reserved => "unknown message",
        }
    }
}

impl InBits for AnsweredMessage {
    fn from_field(bits: u8) -> Self {
        match bits & 3 {
            0 => Self::Req,
            1 => Self::Rep,
            2 => Self::Other,
            _ => Self::Reserved,
        }
    }
    fn to_field(self) -> u8 {
        self.code()
    }
}

impl Show for AnsweredMessage {
    type Names = &'static str;
    fn show(&self, name: &'static str, visit: &mut FieldVisitor<'_>) {
        visit(name, FieldValue::Number(self.code().into()));
    }
}
