//! Management datagrams: what travels between the queue pairs 1 of two ports.
//!
//! The header is that of all management datagrams (MADs) of IBA vol 1. Of the management classes,
//! RoCE has one: communication management, IBA vol 1 §12.6. Datagrams of any other class (subnet
//! administration, performance, …) are refused with [`DropReason::MadHeader`]: nobody on an
//! Ethernet answers them. Segmented transfers (RMPP) do not occur in this class.
//!
//! Nothing is allocated and nothing is borrowed: a [`Mad`] is a copyable value about as large as
//! its bytes, so that a sender can keep what it may have to repeat.

pub mod cm;
mod layout;

#[cfg(test)]
mod tests;

use core::fmt;

use crate::DropReason;
use crate::field::{FieldValue, FieldVisitor};

use cm::PrivateData;
use layout::{claim_at, message, read_at, write_at};

/// One management datagram of the communication management class. 256 bytes.
///
/// The parts of the header that the message does not decide stand beside it; [`Mad::header`] gives
/// the whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mad {
    /// Joins a request and its answers. CM itself matches them by communication IDs.
    pub transaction_id: u64,
    /// What became of a Get; 0 in every CM message.
    pub status: u16,
    /// Without a use in this class; 0.
    pub class_specific: u16,
    /// Narrows down the attribute; 0 in every CM message.
    pub attribute_modifier: u32,
    /// What it says.
    pub message: Message,
}

impl Mad {
    /// Bytes of a management datagram, header included.
    pub const LEN: usize = 256;

    /// A datagram as CM sends it: status, class specific bits and modifier are 0.
    pub const fn new(transaction_id: u64, message: Message) -> Self {
        Self { transaction_id, status: 0, class_specific: 0, attribute_modifier: 0, message }
    }

    /// Reads a whole datagram: the payload of a packet to QP 1.
    ///
    /// # Errors
    /// Checked in this order: [`DropReason::MadLength`] unless there are exactly 256 bytes,
    /// [`DropReason::MadHeader`] for another class, version or method, [`DropReason::MadAttribute`]
    /// for a message that the class does not have, and [`DropReason::Truncated`] when a length
    /// inside the message exceeds its area.
    pub fn parse(bytes: &[u8]) -> Result<Self, DropReason> {
        let wrong_length = DropReason::MadLength { len: bytes.len() };
        let bytes: &[u8; Self::LEN] = bytes.try_into().map_err(|_| wrong_length)?;
        let (header, data) = bytes.split_first_chunk().ok_or(wrong_length)?;
        let data: &[u8; layout::DATA_LEN] = data.try_into().map_err(|_| wrong_length)?;
        let header = MadHeader::parse(*header);
        Ok(Self {
            transaction_id: header.transaction_id,
            status: header.status,
            class_specific: header.class_specific,
            attribute_modifier: header.attribute_modifier,
            message: Message::parse(header, data)?,
        })
    }

    /// Writes the whole datagram; what `room` held before does not matter.
    pub fn emit(&self, room: &mut [u8; Self::LEN]) {
        room[..MadHeader::LEN].copy_from_slice(&self.header().emit());
        room[MadHeader::LEN..].copy_from_slice(&self.message.emit());
    }

    /// The header that belongs to the message.
    pub const fn header(&self) -> MadHeader {
        MadHeader {
            base_version: MadHeader::BASE_VERSION,
            class: MadHeader::CLASS_CM,
            class_version: MadHeader::CLASS_VERSION_CM,
            method: self.message.method(),
            status: self.status,
            class_specific: self.class_specific,
            transaction_id: self.transaction_id,
            attribute_id: self.message.attribute_id(),
            attribute_modifier: self.attribute_modifier,
        }
    }

    /// Visits the fields of header and message in the order of the wire, reserved ones left out,
    /// under the names that [`cm`] explains.
    pub fn for_each_field(&self, visit: &mut FieldVisitor<'_>) {
        self.header().for_each_field(visit);
        self.message.for_each_field(visit);
    }
}

/// What the message says, in one line.
impl fmt::Display for Mad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.message, f)
    }
}

/// The header that all management datagrams have in common. 24 bytes.
///
/// ```text
///   |  0 base version (8) | class (8) | class version (8) | method (8) |
///   |  4 status (16)                  | class specific (16)            |
///   |  8 transaction ID (64)                                           |
///   | 16 attribute ID (16)            | reserved (16)                  |
///   | 20 attribute modifier (32)                                       |
/// ```
///
/// Any header can be parsed, also of classes that this crate does not know. The reserved bits are
/// not kept; they are emitted as zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MadHeader {
    /// The version of this header; 1.
    pub base_version: u8,
    /// The management class: who is meant to read the datagram.
    pub class: u8,
    /// The version of the class.
    pub class_version: u8,
    /// What to do: send, get, answer to a get, ….
    pub method: u8,
    /// What became of a request.
    pub status: u16,
    /// For the class to use.
    pub class_specific: u16,
    /// Joins a request and its answers.
    pub transaction_id: u64,
    /// What it is about; in the CM class, which message it is.
    pub attribute_id: u16,
    /// Narrows down the attribute.
    pub attribute_modifier: u32,
}

impl MadHeader {
    /// Bytes on the wire.
    pub const LEN: usize = 24;

    /// The only base version.
    pub const BASE_VERSION: u8 = 1;
    /// The communication management class.
    pub const CLASS_CM: u8 = 0x07;
    /// The version of the communication management class.
    pub const CLASS_VERSION_CM: u8 = 2;

    /// The method of a question about the port's management itself.
    pub const METHOD_GET: u8 = 0x01;
    /// The method of every CM message.
    pub const METHOD_SEND: u8 = 0x03;
    /// The method of an answer to a Get.
    pub const METHOD_GET_RESP: u8 = 0x81;

    /// Reads a header, whatever it says.
    pub const fn parse(bytes: [u8; Self::LEN]) -> Self {
        let [base_version, class, class_version, method, s1, s0, c1, c0, rest @ ..] = bytes;
        let [t7, t6, t5, t4, t3, t2, t1, t0, a1, a0, _, _, m3, m2, m1, m0] = rest;
        Self {
            base_version,
            class,
            class_version,
            method,
            status: u16::from_be_bytes([s1, s0]),
            class_specific: u16::from_be_bytes([c1, c0]),
            transaction_id: u64::from_be_bytes([t7, t6, t5, t4, t3, t2, t1, t0]),
            attribute_id: u16::from_be_bytes([a1, a0]),
            attribute_modifier: u32::from_be_bytes([m3, m2, m1, m0]),
        }
    }

    /// The mirror image.
    pub const fn emit(self) -> [u8; Self::LEN] {
        let [s1, s0] = self.status.to_be_bytes();
        let [c1, c0] = self.class_specific.to_be_bytes();
        let [t7, t6, t5, t4, t3, t2, t1, t0] = self.transaction_id.to_be_bytes();
        let [a1, a0] = self.attribute_id.to_be_bytes();
        let [m3, m2, m1, m0] = self.attribute_modifier.to_be_bytes();
        let Self { base_version, class, class_version, method, .. } = self;
        [
            base_version,
            class,
            class_version,
            method,
            s1,
            s0,
            c1,
            c0, //
            t7,
            t6,
            t5,
            t4,
            t3,
            t2,
            t1,
            t0,
            a1,
            a0,
            0,
            0,
            m3,
            m2,
            m1,
            m0,
        ]
    }

    /// Visits the fields in the order of the wire.
    pub fn for_each_field(&self, visit: &mut FieldVisitor<'_>) {
        visit("mad.baseversion", FieldValue::Number(self.base_version.into()));
        visit("mad.mgmtclass", FieldValue::Number(self.class.into()));
        visit("mad.classversion", FieldValue::Number(self.class_version.into()));
        visit("mad.method", FieldValue::Number(self.method.into()));
        visit("mad.status", FieldValue::Number(self.status.into()));
        visit("mad.classspecific", FieldValue::Number(self.class_specific.into()));
        visit("mad.transactionid", FieldValue::Hex64(self.transaction_id));
        visit("mad.attributeid", FieldValue::Number(self.attribute_id.into()));
        visit("mad.attributemodifier", FieldValue::Number(self.attribute_modifier.into()));
    }

    /// Whether the datagram is one of the class and the versions that this crate knows, and its
    /// method one that the class has.
    const fn check_class(self) -> Result<(), DropReason> {
        let Self { base_version, class, class_version, method, .. } = self;
        match (base_version, class, class_version, method) {
            (
                Self::BASE_VERSION,
                Self::CLASS_CM,
                Self::CLASS_VERSION_CM,
                Self::METHOD_GET | Self::METHOD_SEND | Self::METHOD_GET_RESP,
            ) => Ok(()),
            _ => Err(DropReason::MadHeader { base_version, class, class_version, method }),
        }
    }
}

/// Makes the enum of all messages of a table: attribute, method, message, how it shows its fields.
macro_rules! messages {
    ($(
        $(#[$doc:meta])*
        $attribute:literal $method:ident $variant:ident($type:ty), $short:literal, $show:ident;
    )+) => {
        /// What a management datagram of the CM class says. Its attribute ID and its method tell
        /// which message it is.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Message {
            $( $(#[$doc])* $variant($type), )+
        }

        impl Message {
            /// The attribute ID of the message.
            pub const fn attribute_id(&self) -> u16 {
                match self { $( Self::$variant(_) => $attribute, )+ }
            }

            /// The method of the message.
            pub const fn method(&self) -> u8 {
                match self { $( Self::$variant(_) => MadHeader::$method, )+ }
            }

            /// The abbreviation of the specification: `REQ`, `SIDR_REP`, ….
            pub const fn name(&self) -> &'static str {
                match self { $( Self::$variant(_) => $short, )+ }
            }

            /// Reads the bytes behind `header`.
            ///
            /// # Errors
            /// As [`Mad::parse`].
            fn parse(header: MadHeader, data: &layout::Data) -> Result<Self, DropReason> {
                header.check_class()?;
                match (header.attribute_id, header.method) {
                    $( ($attribute, MadHeader::$method) => {
                        <$type>::parse(data).map(Self::$variant)
                    } )+
                    (attribute, _) => Err(DropReason::MadAttribute { attribute }),
                }
            }

            /// The bytes behind the header.
            fn emit(&self) -> layout::Data {
                match self { $( Self::$variant(message) => message.emit(), )+ }
            }

            /// Visits the fields of the message in its table's order.
            pub fn for_each_field(&self, visit: &mut FieldVisitor<'_>) {
                match self { $( Self::$variant(message) => message.$show(visit), )+ }
            }

            /// The bits that are not reserved.
            #[cfg(test)]
            const fn used(&self) -> layout::Data {
                match self { $( Self::$variant(_) => <$type>::USED, )+ }
            }
        }

        /// One line in words.
        impl fmt::Display for Message {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $( Self::$variant(message) => fmt::Display::fmt(message, f), )+
                }
            }
        }

        /// Attribute and method of every message.
        #[cfg(test)]
        const KINDS: &[(u16, u8)] = &[$( ($attribute, MadHeader::$method), )+];
    };
}

messages! {
    /// REQ: request for communication.
    0x0010 METHOD_SEND Request(cm::Request), "REQ", for_each_field;
    /// MRA: message receipt acknowledgement.
    0x0011 METHOD_SEND MessageReceipt(cm::MessageReceipt), "MRA", show_table;
    /// REJ: reject.
    0x0012 METHOD_SEND Reject(cm::Reject), "REJ", show_table;
    /// REP: reply to a request for communication.
    0x0013 METHOD_SEND Reply(cm::Reply), "REP", show_table;
    /// RTU: ready to use.
    0x0014 METHOD_SEND ReadyToUse(cm::ReadyToUse), "RTU", show_table;
    /// DREQ: request to disconnect.
    0x0015 METHOD_SEND DisconnectRequest(cm::DisconnectRequest), "DREQ", show_table;
    /// DREP: reply to a request to disconnect.
    0x0016 METHOD_SEND DisconnectReply(cm::DisconnectReply), "DREP", show_table;
    /// SIDR_REQ: service ID resolution request.
    0x0017 METHOD_SEND SidrRequest(cm::SidrRequest), "SIDR_REQ", for_each_field;
    /// SIDR_REP: service ID resolution response.
    0x0018 METHOD_SEND SidrReply(cm::SidrReply), "SIDR_REP", show_table;
    /// LAP: load alternate path.
    0x0019 METHOD_SEND LoadAlternatePath(cm::LoadAlternatePath), "LAP", show_table;
    /// APR: alternate path response.
    0x001a METHOD_SEND AlternatePathResponse(cm::AlternatePathResponse), "APR", show_table;
    /// Get(ClassPortInfo): what can the other side's CM do?
    0x0001 METHOD_GET GetClassPortInfo(GetClassPortInfo), "Get(ClassPortInfo)", show_table;
    /// GetResp(ClassPortInfo): what this side's CM can do.
    0x0001 METHOD_GET_RESP ClassPortInfo(ClassPortInfo), "GetResp(ClassPortInfo)", show_table;
}

message! {
    /// The question what a management class can do. Recognised, so that it can be told from noise;
    /// no RoCE peer asks.
    GetClassPortInfo {
        /// The attribute in a question: zeros.
        [0:576] info: PrivateData<72> => Some("mad.classportinfo");
    }
}

impl fmt::Display for GetClassPortInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CM Get(ClassPortInfo): what can connection management do there")
    }
}

message! {
    /// What a management class says of itself. Recognised, but not taken apart.
    ClassPortInfo {
        /// The attribute as it is.
        [0:576] info: PrivateData<72> => Some("mad.classportinfo");
    }
}

impl fmt::Display for ClassPortInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CM GetResp(ClassPortInfo): what connection management can do here")
    }
}
