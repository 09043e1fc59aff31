//! REQ: the message that opens a connection.

use core::fmt;
use core::net::SocketAddr;

use crate::field::{FieldValue, FieldVisitor};
use crate::mad::layout::{self, InBits, Show, claim_at, message, read_at, write_at};
use crate::{DropReason, EeContext, Mtu, PKey, Psn, QKey, Qpn};

use super::ip_cm::{IpCmNames, ip_cm_names};
use super::path::{PathNames, path_names};
use super::{Bits, CmTimeout, CommId, IpCmHeader, Path, PrivateData, ServiceId, VendorId};

message! {
    /// REQ, request for communication: the active side names itself, its queue pair, and how it
    /// wants to be talked to. IBA vol 1 §12.6, table 106.
    ///
    /// Many fields are for the *receiver's* queue pair: retry counts, ACK timeout, and the PSN with
    /// which it must start.
    Request {
        /// The sender's name for the connection; not 0.
        [0:32] local_comm_id: CommId => "cm.req";
        /// Who defines the options of enhanced connection establishment.
        [5:24] vendor_id: VendorId => "cm.req.vendorid";
        /// What to connect to.
        [8:64] service_id: ServiceId => SERVICE_ID_NAMES;
        /// The sender's adapter, so that a QP number identifies a queue pair in the whole network.
        [16:64] local_ca_guid: u64 => "cm.req.localcaguid";
        /// The queue key of a datagram queue pair; otherwise 0.
        [28:32] local_q_key: QKey => "cm.req.localqkey";
        /// The sender's queue pair.
        [32:24] local_qpn: Qpn => "cm.req.localqpn";
        /// How many READs and atomics at once the sender can answer.
        [35:8] responder_resources: u8 => "cm.req.responderres";
        /// The sender's context of Reliable Datagram.
        [36:24] local_eecn: EeContext => "cm.req.localeecn";
        /// How many READs and atomics at once the sender wants to issue.
        [39:8] initiator_depth: u8 => "cm.req.initdepth";
        /// The receiver's context of Reliable Datagram.
        [40:24] remote_eecn: EeContext => "cm.req.remoteeecn";
        /// How long the receiver has to answer this message.
        [43[7:3]] remote_cm_response_timeout: CmTimeout => "cm.req.remoteresptout";
        /// The kind of connection.
        [43[2:1]] transport_service_type: TransportServiceType => TRANSPORT_NAMES;
        /// Whether the sender's queue pair gives out credits.
        [43[0:0]] end_to_end_flow_control: bool => "cm.req.e2eflowctrl";
        /// The PSN with which the receiver must start sending to the sender's queue pair.
        [44:24] starting_psn: Psn => "cm.req.startpsn";
        /// How long the sender may take to answer a REP.
        [47[7:3]] local_cm_response_timeout: CmTimeout => "cm.req.localresptout";
        /// The retry count of the receiver's queue pair.
        [47[2:0]] retry_count: Bits<3> => "cm.req.retrcount";
        /// The partition of the connection.
        [48:16] partition_key: PKey => "cm.req.pkey";
        /// The path MTU as a code. May be invalid: [`Request::path_mtu`] gives the meaning.
        [50[7:4]] path_packet_payload_mtu: Bits<4> => "cm.req.pppmtu";
        /// Whether the Reliable Datagram channel exists already.
        [50[3:3]] rdc_exists: bool => "cm.req.rdcexist";
        /// The RNR retry count of the receiver's queue pair; 7 is for ever.
        [50[2:0]] rnr_retry_count: Bits<3> => "cm.req.rnrretrcount";
        /// How often either side may repeat a CM message.
        [51[7:4]] max_cm_retries: Bits<4> => "cm.req.maxcmretr";
        /// Whether the sender's queue pair has a shared receive queue.
        [51[3:3]] srq: bool => "cm.req.srq";
        /// Which extended transport, when the service type is [`TransportServiceType::Extended`];
        /// 1 is XRC.
        [51[2:0]] extended_transport_type: Bits<3> => "cm.req.ext_transport";
        /// The path to use.
        [path 52] primary_path: Path => &PRIMARY_NAMES;
        /// The path to use when the first one breaks; all zero for none.
        [path 96] alternate_path: Path => &ALTERNATE_NAMES;
        /// Whether the sender supports suggested alternate paths (SAP). Older revisions of the
        /// specification reserve the bit.
        [139[2:2]] sap_supported: bool => "cm.req.sap";
        /// For the application; starts with an [`IpCmHeader`] when the service is an RDMA IP one.
        [140:736] private_data: PrivateData<92> => None;
    }
}

impl Request {
    /// The path MTU; `None` when the code is none of 1 ..= 5.
    pub const fn path_mtu(&self) -> Option<Mtu> {
        Mtu::from_code(self.path_packet_payload_mtu.get())
    }

    /// The IP CM header and what the application put behind it, 56 bytes; `None` when the service
    /// is none of the RDMA IP ones or the header is of an unknown IP version.
    pub fn ip_cm(&self) -> Option<(IpCmHeader, &[u8])> {
        self.service_id.ip_cm()?;
        self.private_data.ip_cm()
    }

    pub(crate) fn for_each_field(&self, visit: &mut FieldVisitor<'_>) {
        self.show_table(visit);
        match self.ip_cm() {
            Some((header, rest)) => header.show(&IP_CM_NAMES, rest, visit),
            None => visit("cm.req.private", FieldValue::Bytes(self.private_data.as_bytes())),
        }
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CM REQ: connect to {} from ", self.service_id)?;
        match self.ip_cm() {
            Some((header, _)) => {
                let from = SocketAddr::new(header.addresses.source(), header.source_port);
                fmt::Display::fmt(&from, f)?;
            }
            None => fmt::Display::fmt(&self.primary_path.local_gid.to_ip(), f)?,
        }
        if self.transport_service_type != TransportServiceType::ReliableConnection {
            write!(f, ", {}", self.transport_service_type)?;
        }
        let (qpn, psn) = (self.local_qpn, self.starting_psn);
        write!(f, ", QP {qpn}, starting PSN {psn}, comm id {}", self.local_comm_id)
    }
}

/// The kind of connection that a REQ asks for. Two bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum TransportServiceType {
    /// Reliable connection (RC), code 0.
    #[default]
    ReliableConnection,
    /// Unreliable connection (UC), code 1.
    UnreliableConnection,
    /// Reliable datagram (RD), code 2.
    ReliableDatagram,
    /// Code 3: what [`Request::extended_transport_type`] says.
    Extended,
}

impl TransportServiceType {
    /// The two bits.
    pub const fn code(self) -> u8 {
        match self {
            Self::ReliableConnection => 0,
            Self::UnreliableConnection => 1,
            Self::ReliableDatagram => 2,
            Self::Extended => 3,
        }
    }

    /// The abbreviation of the specification.
    pub const fn words(self) -> &'static str {
        match self {
            Self::ReliableConnection => "RC",
            Self::UnreliableConnection => "UC",
            Self::ReliableDatagram => "RD",
            Self::Extended => "extended transport",
        }
    }
}

impl fmt::Display for TransportServiceType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.words())
    }
}

impl InBits for TransportServiceType {
    fn from_field(bits: u8) -> Self {
        match bits & 3 {
            0 => Self::ReliableConnection,
            1 => Self::UnreliableConnection,
            2 => Self::ReliableDatagram,
            _ => Self::Extended,
        }
    }
    fn to_field(self) -> u8 {
        self.code()
    }
}

/// The code, then the words.
impl Show for TransportServiceType {
    type Names = [&'static str; 2];
    fn show(&self, [code, words]: Self::Names, visit: &mut FieldVisitor<'_>) {
        visit(code, FieldValue::Number(self.code().into()));
        visit(words, FieldValue::Text(self.words()));
    }
}

const SERVICE_ID_NAMES: [&str; 3] =
    ["cm.req.serviceid", "cm.req.serviceid.protocol", "cm.req.serviceid.dport"];
const TRANSPORT_NAMES: [&str; 2] = ["cm.req.transpsvctype", "cm.req.transpsvctype_name"];
const PRIMARY_NAMES: PathNames = path_names!("cm.req.prim_");
const ALTERNATE_NAMES: PathNames = path_names!("cm.req.alt_");
const IP_CM_NAMES: IpCmNames = ip_cm_names!("cm.req.ip_cm.");
