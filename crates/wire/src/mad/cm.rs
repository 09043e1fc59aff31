//! Connection management: the messages by which two sides make, change and end a connection.
//!
//! IBA vol 1 §12.6, tables 106 to 120, and annex A11 for the RDMA IP CM service. Only their form
//! stands here. Who sends which message when is the business of the crate `roxe-cm`.
//!
//! Each message is its table in the specification, one row a field. Reserved bits
//! are accepted with any value, not kept, and emitted as zeros.
//!
//! # Field names
//!
//! Fields are shown under the names of tshark 4.0.17, read from its own output. Where the two
//! differ in what they print, the bytes decide:
//!
//! - `cm.req.prim_flowlabel` and `cm.req.alt_flowlabel`: tshark reads three bytes instead of four
//!   and so loses the last two digits: bytes `89 9a 70 00` are label 0x899a7, tshark says 0x00899.
//! - `cm.req.prim_pktrate` and `cm.req.alt_pktrate`: tshark takes the low six bits of the *first*
//!   byte of the flow label: for the same bytes 0x09 instead of 0.
//! - A DREQ's `remoteqpneecn` and a DREP's `drsp` are misnomers that are kept: the first is
//!   registered below `cm.req`, the second abbreviates "response".
//! - The local communication ID of REQ and REP has no name of its own in tshark; it is `cm.req` and
//!   `cm.rep` itself.
//! - `cm.rej.ari` is the whole area of 72 bytes in tshark; here it is as long as
//!   `cm.rej.rejinfolen` says.
//! - `cm.req.prim_localgid` and `cm.req.prim_remotegid` have twins that end in `_ipv4`. tshark
//!   chooses by the IP version of the packet, and in an IPv4 packet shows the last four bytes of
//!   any GID as an address; here the twin names GIDs that are IPv4 addresses, and no others.
//! - tshark shows alternate GIDs as bytes always; here they have such twins too.
//! - tshark leaves MRA, LAP, APR, SIDR_REQ and SIDR_REP alone. Their names here follow the pattern
//!   of the others. So do `vendorid` and `sap`, which tshark counts as reserved, and the
//!   explanations `…_name` and `…_text`.

mod alternate_path;
mod bits;
mod disconnect;
mod ip_cm;
mod path;
mod private_data;
mod reject;
mod reply;
mod request;
mod service_id;
mod sidr;

pub use alternate_path::{AlternatePathResponse, AlternatePathStatus, LoadAlternatePath};
pub use bits::{Bits, CmTimeout, CommId, FlowLabel, VendorId};
pub use disconnect::{DisconnectReply, DisconnectRequest};
pub use ip_cm::{AddressPair, IpCmHeader};
pub use path::Path;
pub use private_data::{AdditionalInfo, PrivateData};
pub use reject::{Reject, RejectReason};
pub use reply::{AnsweredMessage, MessageReceipt, ReadyToUse, Reply};
pub use request::{Request, TransportServiceType};
pub use service_id::{PortSpace, ServiceId};
pub use sidr::{SidrReply, SidrRequest, SidrStatus};
