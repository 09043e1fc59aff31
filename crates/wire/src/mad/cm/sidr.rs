//! SIDR_REQ and SIDR_REP: a service ID becomes the queue pair that serves it, without a connection.

use core::fmt;
use core::net::SocketAddr;

use crate::field::{FieldValue, FieldVisitor};
use crate::mad::layout::{self, claim_at, codes, message, read_at, write_at};
use crate::{DropReason, PKey, QKey, Qpn};

use super::ip_cm::{IpCmNames, ip_cm_names};
use super::{AdditionalInfo, CommId, IpCmHeader, PrivateData, ServiceId, VendorId};

message! {
    /// SIDR_REQ, service ID resolution request: where is the datagram service? IBA vol 1 §12.6,
    /// table 119.
    SidrRequest {
        /// The sender's name for the exchange.
        [0:32] request_id: CommId => "cm.sidrreq.requestid";
        /// The partition in which the service is wanted.
        [4:16] partition_key: PKey => "cm.sidrreq.pkey";
        /// What is looked for.
        [8:64] service_id: ServiceId => SERVICE_ID_NAMES;
        /// For the application; starts with an [`IpCmHeader`] when the service is an RDMA IP one.
        [16:1728] private_data: PrivateData<216> => None;
    }
}

impl SidrRequest {
    /// The IP CM header and what the application put behind it, 180 bytes; `None` when the service
    /// is none of the RDMA IP ones or the header is of an unknown IP version.
    pub fn ip_cm(&self) -> Option<(IpCmHeader, &[u8])> {
        self.service_id.ip_cm()?;
        self.private_data.ip_cm()
    }

    pub(crate) fn for_each_field(&self, visit: &mut FieldVisitor<'_>) {
        self.show_table(visit);
        match self.ip_cm() {
            Some((header, rest)) => header.show(&IP_CM_NAMES, rest, visit),
            None => visit("cm.sidrreq.private", FieldValue::Bytes(self.private_data.as_bytes())),
        }
    }
}

impl fmt::Display for SidrRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CM SIDR_REQ: who serves {}", self.service_id)?;
        if let Some((header, _)) = self.ip_cm() {
            let from = SocketAddr::new(header.addresses.source(), header.source_port);
            write!(f, ", asked from {from}")?;
        }
        write!(f, ", request id {}", self.request_id)
    }
}

message! {
    /// SIDR_REP, service ID resolution response. IBA vol 1 §12.6, table 120.
    SidrReply {
        /// The receiver's name for the exchange, from its SIDR_REQ.
        [0:32] request_id: CommId => "cm.sidrrep.requestid";
        /// Whether the service is there.
        [4:8] status: SidrStatus => ["cm.sidrrep.status", "cm.sidrrep.status_text"];
        /// More about the status.
        [5:8, 24:576] additional_information: AdditionalInfo =>
            ["cm.sidrrep.infolen", "cm.sidrrep.info"];
        /// Who defines the options of enhanced connection establishment. Older revisions of the
        /// specification reserve its bytes.
        [6, 7, 11] vendor_id: VendorId => "cm.sidrrep.vendorid";
        /// The queue pair to send datagrams to; 0 when there is none.
        [8:24] qpn: Qpn => "cm.sidrrep.qpn";
        /// The service that was asked for.
        [12:64] service_id: ServiceId => REPLY_SERVICE_ID_NAMES;
        /// The queue key that datagrams to it must carry.
        [20:32] q_key: QKey => "cm.sidrrep.qkey";
        /// For the application.
        [96:1088] private_data: PrivateData<136> => Some("cm.sidrrep.private");
    }
}

impl fmt::Display for SidrReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.status {
            SidrStatus::Valid => {
                let Self { service_id, qpn, q_key, .. } = self;
                write!(f, "CM SIDR_REP: {service_id} is QP {qpn}, Q_Key {q_key}")?;
            }
            refused => write!(f, "CM SIDR_REP: {refused}, {}", self.service_id)?,
        }
        write!(f, ", request id {}", self.request_id)
    }
}

codes! {
    /// What became of a service ID resolution. IBA vol 1 §12.6.
    SidrStatus: u8 {
        0 Valid                "service found";
        1 UnsupportedServiceId "unsupported service ID";
        2 Rejected             "rejected";
        3 NoQp                 "no QP available";
        4 Redirect             "redirected";
        5 UnsupportedVersion   "unsupported version";
    }
}

const SERVICE_ID_NAMES: [&str; 3] =
    ["cm.sidrreq.serviceid", "cm.sidrreq.serviceid.protocol", "cm.sidrreq.serviceid.dport"];
const REPLY_SERVICE_ID_NAMES: [&str; 3] =
    ["cm.sidrrep.serviceid", "cm.sidrrep.serviceid.protocol", "cm.sidrrep.serviceid.dport"];
const IP_CM_NAMES: IpCmNames = ip_cm_names!("cm.sidrreq.ip_cm.");
