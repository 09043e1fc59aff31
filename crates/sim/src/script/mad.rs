//! Messages of connection management, as the tables of IBA vol 1 §12.6 have them: what a script
//! says as the 256 bytes of a management datagram, and back.
//!
//! The tables stand here once more, beside those of `roxe-wire`: so that what the device writes is
//! judged by somebody else. Rows that have no use in RoCE are left out; their bits must be 0.

use std::net::{IpAddr, Ipv4Addr};

use roxe_wire::Gid;

use super::frame_out::Fact;
use super::mistake::Mistake;
use super::parameters::{Kind, Parameter, bits};
use super::symbols::Numbers;
use super::syntax::Value;

/// A message: its name, and where its fields are.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) name: &'static str,
    attribute: u16,
    rows: &'static [Row],
    /// Where private data begin, behind the MAD header.
    private: usize,
    /// What a script may say of one that reaches the device.
    pub(super) parameters_in: &'static [Parameter],
    /// What a script may say of one that leaves it.
    pub(super) parameters_out: &'static [Parameter],
}

/// A field, and its place behind the MAD header.
#[derive(Debug)]
struct Row {
    name: &'static str,
    byte: usize,
    /// The most significant of its bits in that byte; 7 is the byte's own.
    high: usize,
    width: usize,
    shape: Shape,
}

/// What the bits of a field are.
#[derive(Clone, Copy, Debug)]
enum Shape {
    Number,
    /// One of these, from 0 on.
    Word(&'static [&'static str]),
    /// An IP address as a GID.
    Gid,
    /// An IP address of the RDMA IP CM: one of IPv4 is the last four bytes.
    Ip,
}

use Shape::{Gid as G, Ip, Number as N, Word as W};

const fn kind(width: u32, shape: Shape) -> Kind {
    match shape {
        N => bits(width),
        W(words) => Kind::Word(words),
        G | Ip => Kind::Address,
    }
}

macro_rules! message {
    (
        $name:ident $attribute:literal, private $private:literal $(, also $also:ident)?;
        $($field:literal $byte:literal [$high:literal] $width:literal $shape:expr;)+
    ) => {
        const $name: Message = Message {
            name: stringify!($name),
            attribute: $attribute,
            private: $private,
            rows: &[$(
                Row { name: $field, byte: $byte, high: $high, width: $width, shape: $shape },
            )+],
            parameters_in: message!(@list [
                $(($field, kind($width, $shape)),)+
                $(("ari-guid", $also), ("ari-gid", Kind::Address), ("ari-mtu", bits(8)),)?
                ("base-version", bits(8)),
                ("class", bits(8)),
                ("class-version", bits(8)),
                ("method", bits(8)),
                ("attribute", bits(16)),
                ("mad-length", bits(12)),
                ("icrc", Kind::Word(&["bad"])),
            ]),
            parameters_out: message!(@list [
                $(($field, kind($width, $shape)),)+
                $(("ari-guid", $also), ("ari-gid", Kind::Address), ("ari-mtu", bits(8)),)?
            ]),
        };
    };
    (@list [$($row:expr,)+]) => {
        &[
            $($row,)+
            ("tid", bits(64)),
            ("psn", bits(24)),
            ("ack-req", Kind::Flag),
            ("pkey", bits(16)),
            ("qkey", bits(32)),
            ("source-qp", bits(24)),
            ("from", Kind::Address),
            ("to", Kind::Address),
            ("sport", bits(16)),
            ("tclass", bits(8)),
            ("hop", bits(8)),
            ("vlan", bits(12)),
            ("pcp", bits(3)),
        ]
    };
}

const ANSWERED: Shape = W(&["req", "rep", "other", "reserved"]);
const TRANSPORTS: Shape = W(&["rc", "uc", "rd", "extended"]);
const U64: Kind = bits(64);

// Field, first byte, its highest bit, how many bits.
message! { REQ 0x10, private 176;
    "local-comm-id"            0 [7] 32 N;
    "prefix"                   8 [7] 40 N;
    "protocol"                13 [7]  8 N;
    "port"                    14 [7] 16 N;
    "guid"                    16 [7] 64 N;
    "local-qpn"               32 [7] 24 N;
    "responder-resources"     35 [7]  8 N;
    "initiator-depth"         39 [7]  8 N;
    "remote-response-timeout" 43 [7]  5 N;
    "transport"               43 [2]  2 TRANSPORTS;
    "flow-control"            43 [0]  1 N;
    "starting-psn"            44 [7] 24 N;
    "local-response-timeout"  47 [7]  5 N;
    "retry-count"             47 [2]  3 N;
    "partition-key"           48 [7] 16 N;
    "payload-mtu"             50 [7]  4 N;
    "rnr-retry-count"         50 [2]  3 N;
    "max-cm-retries"          51 [7]  4 N;
    "srq"                     51 [3]  1 N;
    "local-lid"               52 [7] 16 N;
    "remote-lid"              54 [7] 16 N;
    "local-gid"               56 [7] 128 G;
    "remote-gid"              72 [7] 128 G;
    "flow-label"              88 [7] 20 N;
    "packet-rate"             91 [5]  6 N;
    "traffic-class"           92 [7]  8 N;
    "hop-limit"               93 [7]  8 N;
    "sl"                      94 [7]  4 N;
    "subnet-local"            94 [3]  1 N;
    "ack-timeout"             95 [7]  5 N;
    "cma-version"            140 [7]  8 N;
    "ip-version"             141 [7]  4 N;
    "source-port"            142 [7] 16 N;
    "source"                 144 [7] 128 Ip;
    "destination"            160 [7] 128 Ip;
}

message! { MRA 0x11, private 10;
    "local-comm-id"            0 [7] 32 N;
    "remote-comm-id"           4 [7] 32 N;
    "message"                  8 [7]  2 ANSWERED;
    "service-timeout"          9 [7]  5 N;
}

message! { REJ 0x12, private 84, also U64;
    "local-comm-id"            0 [7] 32 N;
    "remote-comm-id"           4 [7] 32 N;
    "message"                  8 [7]  2 ANSWERED;
    "ari-length"               9 [7]  7 N;
    "reason"                  10 [7] 16 N;
}

message! { REP 0x13, private 36;
    "local-comm-id"            0 [7] 32 N;
    "remote-comm-id"           4 [7] 32 N;
    "local-qpn"               12 [7] 24 N;
    "starting-psn"            20 [7] 24 N;
    "responder-resources"     24 [7]  8 N;
    "initiator-depth"         25 [7]  8 N;
    "target-ack-delay"        26 [7]  5 N;
    "failover"                26 [2]  2 N;
    "flow-control"            26 [0]  1 N;
    "rnr-retry-count"         27 [7]  3 N;
    "srq"                     27 [4]  1 N;
    "guid"                    28 [7] 64 N;
}

message! { RTU 0x14, private 8;
    "local-comm-id"            0 [7] 32 N;
    "remote-comm-id"           4 [7] 32 N;
}

message! { DREQ 0x15, private 12;
    "local-comm-id"            0 [7] 32 N;
    "remote-comm-id"           4 [7] 32 N;
    "remote-qpn"               8 [7] 24 N;
}

message! { DREP 0x16, private 8;
    "local-comm-id"            0 [7] 32 N;
    "remote-comm-id"           4 [7] 32 N;
}

message! { SIDR_REQ 0x17, private 52;
    "request-id"               0 [7] 32 N;
    "partition-key"            4 [7] 16 N;
    "prefix"                   8 [7] 40 N;
    "protocol"                13 [7]  8 N;
    "port"                    14 [7] 16 N;
    "cma-version"             16 [7]  8 N;
    "ip-version"              17 [7]  4 N;
    "source-port"             18 [7] 16 N;
    "source"                  20 [7] 128 Ip;
    "destination"             36 [7] 128 Ip;
}

message! { SIDR_REP 0x18, private 96;
    "request-id"               0 [7] 32 N;
    "status"                   4 [7]  8 N;
    "info-length"              5 [7]  8 N;
    "service-qpn"              8 [7] 24 N;
    "prefix"                  12 [7] 40 N;
    "protocol"                17 [7]  8 N;
    "port"                    18 [7] 16 N;
    "service-q-key"           20 [7] 32 N;
}

message! { LAP 0x19, private 64;
    "local-comm-id"            0 [7] 32 N;
    "remote-comm-id"           4 [7] 32 N;
    "remote-qpn"              12 [7] 24 N;
    "remote-response-timeout" 15 [7]  5 N;
    "local-gid"               24 [7] 128 G;
    "remote-gid"              40 [7] 128 G;
}

message! { APR 0x1a, private 84;
    "local-comm-id"            0 [7] 32 N;
    "remote-comm-id"           4 [7] 32 N;
    "info-length"              8 [7]  8 N;
    "ap-status"                9 [7]  8 N;
}

/// A message is its name.
impl PartialEq for Message {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Message {}

/// All of them.
pub(super) const MESSAGES: [&Message; 11] =
    [&REQ, &MRA, &REJ, &REP, &RTU, &DREQ, &DREP, &SIDR_REQ, &SIDR_REP, &LAP, &APR];

/// Words that fields are given with.
pub(super) const WORDS: [&str; 8] =
    ["req", "rep", "other", "reserved", "rc", "uc", "rd", "extended"];

/// What fields say of whoever sends a message, if a script does not.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sender {
    pub(super) from: IpAddr,
    pub(super) to: IpAddr,
    /// Its adapter's.
    pub(super) guid: u64,
    /// The transaction ID of what the message answers.
    pub(super) tid: Option<u64>,
}

/// The adapter of the peer.
pub(super) const PEER_GUID: u64 = 0xc;
/// The port that calls.
pub(super) const SOURCE_PORT: u64 = 40_000;

impl Message {
    /// What stands in a field if a script says nothing; `None` when it must say something.
    /// `port` and `source-port` are those of the message.
    pub(super) fn usual(&self, field: &str, by: &Sender, ports: [u64; 2]) -> Option<Fact> {
        let [port, source_port] = ports;
        Some(Fact::Number(match field {
            "local-gid" | "source" => return Some(Fact::Address(by.from)),
            "remote-gid" | "destination" => return Some(Fact::Address(by.to)),
            "transport" => return Some(Fact::Word("rc")),
            "message" => return Some(Fact::Word("req")),
            "prefix" => 1,
            "protocol" if self.name.starts_with("SIDR") => 0x11,
            "protocol" => 6,
            "source-port" => SOURCE_PORT,
            "ip-version" if by.from.is_ipv4() => 4,
            "ip-version" => 6,
            "guid" => by.guid,
            "responder-resources" | "initiator-depth" => 4,
            "remote-response-timeout" | "local-response-timeout" => 20,
            "retry-count" | "rnr-retry-count" => 7,
            "partition-key" | "local-lid" | "remote-lid" => 0xffff,
            "payload-mtu" => 3,
            "max-cm-retries" | "target-ack-delay" => 15,
            // As Linux makes it of the ports.
            "flow-label" => (source_port * 31 + port) & 0xf_ffff,
            "hop-limit" => 64,
            "ack-timeout" => 19,
            "service-timeout" => 24,
            "service-q-key" => 0x0123_4567,
            "flow-control" | "srq" | "packet-rate" | "traffic-class" | "sl" | "subnet-local"
            | "cma-version" | "ari-length" | "failover" | "info-length" | "status" => 0,
            _ => return None,
        }))
    }

    /// The name by which its sender knows what it is about.
    pub(super) fn own_name(&self) -> &'static str {
        if self.name.starts_with("SIDR") { "request-id" } else { "local-comm-id" }
    }

    /// Its transaction ID: what a script says, or that of what it answers, or one of its sender's.
    pub(super) fn tid(&self, numbers: &Numbers<'_>, answered: Option<u64>) -> Result<u64, Mistake> {
        let own = u64::from(numbers.or(self.own_name(), 0)? as u32);
        numbers.or("tid", answered.unwrap_or(PEER_TID << 32 | own))
    }

    /// The datagram that a script describes.
    pub(super) fn write(&self, numbers: &Numbers<'_>, by: &Sender) -> Result<Vec<u8>, Mistake> {
        let said = numbers.arguments;
        let ports = [numbers.or("port", 0)?, numbers.or("source-port", SOURCE_PORT)?];
        let mut mad = [0; MAD];
        let header = |name: &str, usual: u64| numbers.or(name, usual);
        put(&mut mad, 0, 8, header("base-version", 1)?.into());
        put(&mut mad, 8, 8, header("class", 7)?.into());
        put(&mut mad, 16, 8, header("class-version", 2)?.into());
        put(&mut mad, 24, 8, header("method", 3)?.into());
        put(&mut mad, 64, 64, self.tid(numbers, by.tid)?.into());
        put(&mut mad, 128, 16, header("attribute", self.attribute.into())?.into());
        let info = self.information(numbers)?;
        for row in self.rows {
            let value = match (said.get(row.name), &info) {
                (Some(value), _) => value_of(row, value, numbers)?,
                (None, Some(info)) if row.name == "ari-length" => info.len() as u128,
                (None, _) => {
                    let usual = self.usual(row.name, by, ports);
                    let missing = || format!("{} needs `{}`", self.name, row.name);
                    bits_of(row, &usual.ok_or_else(missing)?)
                }
            };
            put(&mut mad, row.at(), row.width, value);
        }
        let info = info.unwrap_or_default();
        mad[ARI..][..info.len()].iter_mut().zip(info).for_each(|(place, byte)| *place = byte);
        let private = said.bytes().unwrap_or_default();
        let room = &mut mad[HEADER + self.private..];
        let most = room.len();
        let place = room.get_mut(..private.len());
        place
            .ok_or_else(|| format!("{} has room for {most} bytes of private data", self.name))?
            .copy_from_slice(private);
        let mut bytes = mad.to_vec();
        bytes.resize(header("mad-length", MAD as u64)? as usize, 0);
        Ok(bytes)
    }

    /// Additional reject information.
    fn information(&self, numbers: &Numbers<'_>) -> Result<Option<Vec<u8>>, Mistake> {
        if let Some(guid) = numbers.get("ari-guid")? {
            return Ok(Some(guid.to_be_bytes().to_vec()));
        }
        if let Some(mtu) = numbers.get("ari-mtu")? {
            return Ok(Some(vec![mtu as u8]));
        }
        Ok(numbers.arguments.address("ari-gid").map(|gid| Gid::from_ip(gid).0.to_vec()))
    }
}

impl Row {
    /// The first of its bits, counted over the whole datagram.
    const fn at(&self) -> usize {
        (HEADER + self.byte) * 8 + 7 - self.high
    }
}

/// What stands in a datagram: which message it is, its fields, and its private data without the
/// zeros behind them. `None` when it is no message of the tables.
pub(super) fn read(bytes: &[u8]) -> Option<(&'static Message, Facts, Vec<u8>)> {
    let mut rest: [u8; MAD] = bytes.try_into().ok()?;
    let version_class_method = take(&mut rest, 0, 32);
    let tid = take(&mut rest, 64, 64) as u64;
    let attribute = take(&mut rest, 128, 16);
    let message = MESSAGES.into_iter().find(|it| u128::from(it.attribute) == attribute)?;
    let mut facts = vec![("tid", Fact::Number(tid))];
    let mut is_ipv6 = false;
    for row in message.rows {
        let value = take(&mut rest, row.at(), row.width);
        is_ipv6 |= row.name == "ip-version" && value == 6;
        let fact = match row.shape {
            N => Fact::Number(value as u64),
            W(words) => Fact::Word(words[value as usize % words.len()]),
            G => Fact::Address(Gid(value.to_be_bytes()).to_ip()),
            Ip if is_ipv6 => Fact::Address(IpAddr::V6(value.into())),
            Ip => Fact::Address(IpAddr::V4(Ipv4Addr::from(u32::try_from(value).ok()?))),
        };
        match (row.name, &fact) {
            ("ari-length", Fact::Number(8)) => {
                facts.push(("ari-guid", Fact::Number(take(&mut rest, ARI * 8, 64) as u64)));
            }
            ("ari-length", Fact::Number(16)) => {
                let gid = Gid(take(&mut rest, ARI * 8, 128).to_be_bytes());
                facts.push(("ari-gid", Fact::Address(gid.to_ip())));
            }
            ("ari-length", Fact::Number(1)) => {
                facts.push(("ari-mtu", Fact::Number(take(&mut rest, ARI * 8, 8) as u64)));
            }
            _ => facts.push((row.name, fact)),
        }
    }
    let (before, private) = rest.split_at(HEADER + message.private);
    let is_right = version_class_method == 0x0107_0203 && before.iter().all(|byte| *byte == 0);
    is_right.then(|| (message, facts, without_zeros(private).to_vec()))
}

/// Fields and what stands in them.
pub(super) type Facts = Vec<(&'static str, Fact)>;

/// Bytes without the zeros at their end.
pub(super) fn without_zeros(bytes: &[u8]) -> &[u8] {
    let len = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    &bytes[..len]
}

fn value_of(row: &Row, said: &Value, numbers: &Numbers<'_>) -> Result<u128, Mistake> {
    Ok(match (said, row.shape) {
        (Value::Address(address), _) => bits_of(row, &Fact::Address(*address)),
        (Value::Word(word), W(words)) => {
            words.iter().position(|known| known == word).unwrap_or_default() as u128
        }
        _ => numbers.need(row.name)?.into(),
    })
}

fn bits_of(row: &Row, fact: &Fact) -> u128 {
    match (fact, row.shape) {
        (Fact::Number(number), _) => u128::from(*number),
        (Fact::Word(word), W(words)) => {
            words.iter().position(|known| known == word).unwrap_or_default() as u128
        }
        (Fact::Address(IpAddr::V4(address)), Ip) => u128::from(u32::from(*address)),
        (Fact::Address(address), _) => u128::from_be_bytes(Gid::from_ip(*address).0),
        _ => 0,
    }
}

/// Adds bits to bytes that are still 0 there.
fn put(bytes: &mut [u8; MAD], at: usize, width: usize, value: u128) {
    for bit in 0..width {
        if value >> (width - 1 - bit) & 1 != 0 {
            bytes[(at + bit) / 8] |= 0x80 >> ((at + bit) % 8);
        }
    }
}

/// The value of some bits, and zeros in their place.
fn take(bytes: &mut [u8; MAD], at: usize, width: usize) -> u128 {
    (at..at + width).fold(0, |value, bit| {
        let mask = 0x80 >> (bit % 8);
        let is_set = bytes[bit / 8] & mask != 0;
        bytes[bit / 8] &= !mask;
        value << 1 | u128::from(is_set)
    })
}

/// Bytes of a datagram, and of its header.
const MAD: usize = 256;
const HEADER: usize = 24;
/// Where the additional information of a REJ begins.
const ARI: usize = HEADER + 12;
/// The half of transaction IDs that says who began: the peer.
const PEER_TID: u64 = 2;

#[cfg(test)]
mod tests;
