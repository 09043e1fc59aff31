//! What a frame has under a name: the fields of `--json` and `--filter`.
//!
//! Header fields and their names come from the layouts in [`roxe_wire::explain`], those of
//! management datagrams from [`roxe_wire::mad`]. Here are the others, and the way from a name to a
//! value.

use roxe_trace::{IcrcVerdict, Note, Rule};
use roxe_wire::explain::{BTH, FieldLayout, Form, HeaderLayout, extension};
use roxe_wire::mad::{Mad, MadHeader};
use roxe_wire::opcode::{Header, OPCODES};
use roxe_wire::{DropReason, FieldValue, NakCode, Syndrome};

use crate::examine::{Content, Entry};
use crate::explain::ink::Ink;

/// A value as `--json` prints it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Value<'a> {
    /// As the wire crate knows them.
    Plain(FieldValue<'a>),
    /// Seconds with nine digits behind the point, as a string.
    Nanoseconds(i128),
}

/// A field that no header has.
pub(crate) struct Own {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    /// For people.
    says: &'static str,
    /// All words that it can be, where these are fixed.
    words: Option<fn() -> Vec<&'static str>>,
    pub(crate) get: for<'a> fn(&Entry<'a>) -> Option<Value<'a>>,
}

/// A row: its name, what it is compared with, what it is, and where it comes from.
const fn own(
    name: &'static str,
    kind: Kind,
    says: &'static str,
    get: for<'a> fn(&Entry<'a>) -> Option<Value<'a>>,
) -> Own {
    Own { name, kind, says, words: None, get }
}

impl Own {
    /// The same, where all words that it can be are these.
    const fn one_of(self, words: fn() -> Vec<&'static str>) -> Self {
        Self { words: Some(words), ..self }
    }
}

/// What values a field can be compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Number,
    Flag,
    Text,
    Address,
    Seconds,
    /// Whatever the message has there.
    Any,
}

fn number(value: impl Into<u64>) -> Value<'static> {
    Value::Plain(FieldValue::Number(value.into()))
}

fn text(value: &str) -> Value<'_> {
    Value::Plain(FieldValue::Text(value))
}

fn syndrome(entry: &Entry<'_>) -> Option<Syndrome> {
    Some(entry.row.content.packet()?.headers.aeth?.syndrome)
}

/// Before the header fields.
pub(crate) const FRONT: &[Own] = &[
    own("frame", Kind::Number, "its number in the file, from 1", |e| Some(number(e.row.number))),
    own("time", Kind::Seconds, "since the start of 1970", |e| {
        Some(Value::Nanoseconds(e.row.time.as_nanos().into()))
    }),
    own("time_relative", Kind::Seconds, "since the first frame", |e| {
        Some(Value::Nanoseconds(e.row.since_start_ns()))
    }),
    own("frame_len", Kind::Number, "bytes on the wire", |e| Some(number(e.row.wire_len))),
    own("vlan", Kind::Number, "VLAN, of the outer tag", |e| {
        Some(number(e.row.outer?.vlan[0]?.id()))
    }),
    own("vlan.priority", Kind::Number, "priority, of the outer tag", |e| {
        Some(number(e.row.outer?.vlan[0]?.priority()))
    }),
    own("vlan.inner", Kind::Number, "VLAN, of the inner tag", |e| {
        Some(number(e.row.outer?.vlan[1]?.id()))
    }),
    own("src", Kind::Address, "source IP address", |e| {
        Some(Value::Plain(FieldValue::Address(e.row.outer?.outside.source)))
    }),
    own("dst", Kind::Address, "destination IP address", |e| {
        Some(Value::Plain(FieldValue::Address(e.row.outer?.outside.destination)))
    }),
    own("dscp", Kind::Number, "differentiated services code point", |e| {
        Some(number(e.row.outer?.outside.traffic_class.dscp()))
    }),
    own("ecn", Kind::Number, "explicit congestion notification: 3 is marked", |e| {
        Some(number(e.row.outer?.outside.traffic_class.0 & 3))
    }),
    own("ttl", Kind::Number, "time to live, or hop limit", |e| {
        Some(number(e.row.outer?.hop_limit))
    }),
    own("sport", Kind::Number, "UDP source port", |e| {
        Some(number(e.row.outer?.outside.source_port))
    }),
];

/// Behind the header fields.
pub(crate) const BACK: &[Own] = &[
    own("bth.opcode_name", Kind::Text, "such as RC_SEND_ONLY", |e| {
        let known = e.row.content.packet().map(|packet| packet.opcode);
        Some(text(known.or(e.row.broken_opcode)?.name))
    })
    .one_of(|| OPCODES.iter().map(|opcode| opcode.name).collect()),
    own("aeth.syndrome.opcode", Kind::Number, "upper three bits of the syndrome", |e| {
        Some(number(syndrome(e)?.to_byte() >> 5))
    }),
    own("aeth.syndrome.credit_count", Kind::Number, "credit code of an ACK", |e| {
        match syndrome(e)? {
            Syndrome::Ack(credits) => Some(number(credits.code())),
            _ => None,
        }
    }),
    own("aeth.syndrome.timer", Kind::Number, "timer code of an RNR NAK", |e| match syndrome(e)? {
        Syndrome::RnrNak(timer) => Some(number(timer.code())),
        _ => None,
    }),
    own("aeth.syndrome.error_code", Kind::Number, "code of a NAK", |e| match syndrome(e)? {
        Syndrome::Nak(code) => Some(number(code.code())),
        _ => None,
    }),
    own("aeth.kind", Kind::Text, "kind of acknowledgement", |e| {
        Some(text(match syndrome(e)? {
            Syndrome::Ack(_) => "ack",
            Syndrome::RnrNak(_) => "rnr_nak",
            Syndrome::Nak(_) => "nak",
        }))
    })
    .one_of(|| vec!["ack", "rnr_nak", "nak"]),
    own("aeth.text", Kind::Text, "ACK, RNR NAK, or what the NAK says", |e| match syndrome(e)? {
        Syndrome::Ack(_) => Some(text("ACK")),
        Syndrome::RnrNak(_) => Some(text("RNR NAK")),
        Syndrome::Nak(code) => Some(text(code.name())),
    })
    .one_of(aeth_texts),
    own("payload_len", Kind::Number, "bytes of payload", |e| {
        Some(number(e.row.content.packet()?.payload.len() as u64))
    }),
    own("padding", Kind::Number, "bytes behind the ICRC", |e| {
        Some(number(e.row.outer?.padding as u64))
    }),
    own("icrc", Kind::Text, "verdict", |e| {
        Some(text(match e.row.icrc {
            IcrcVerdict::Good => "good",
            IcrcVerdict::Bad { .. } => "bad",
            IcrcVerdict::Unknown => "unknown",
        }))
    })
    .one_of(|| vec!["good", "bad", "unknown"]),
    own(
        "icrc_value",
        Kind::Number,
        "the ICRC that the packet carries, if the capture kept it",
        |e| Some(number(e.row.outer?.outside.icrc?)),
    ),
    own("dropped", Kind::Text, "why the frame is no packet", |e| match &e.row.content {
        Content::Broken(reason) => Some(text(reason.name())),
        _ => None,
    })
    .one_of(|| MALFORMED.map(DropReason::name).to_vec()),
    own("conversation", Kind::Number, "counted from 1", |e| {
        Some(number(e.row.conversation?.get()))
    }),
    own("source_qp", Kind::Number, "the sender's queue pair, where it is known", |e| {
        Some(number(e.row.source_qp?.get()))
    }),
    own("psn_relative", Kind::Number, "PSN from the first of its direction", |e| {
        Some(Value::Plain(FieldValue::Signed(e.row.relative_psn?.into())))
    }),
    own("comment", Kind::Text, "what the file says of it, if anything", |e| Some(text(e.comment?))),
];

/// What only `--json` has, and when.
const JSON_ONLY: [(&str, &str); 5] = [
    ("file", "which file: in each object where several are named, else in those of the summary"),
    ("dropped_text", "why the frame is no packet, in words"),
    ("notes", "a list: what the frame means for its conversation"),
    ("findings", "a list: the broken rules, in words"),
    ("summary", "`conversation` or `file`, in the objects behind those of the frames"),
];

/// The lists: of each note its kind, of each finding its rule.
pub(crate) const LISTS: [&str; 2] = ["notes.kind", "findings.rule"];

/// Visits all fields but those of management datagrams and the lists, in the order of `--json`.
pub(crate) fn for_each<'a>(entry: &Entry<'a>, mut visit: impl FnMut(&'static str, Value<'a>)) {
    let own = |fields: &'static [Own], visit: &mut dyn FnMut(&'static str, Value<'a>)| {
        for field in fields {
            if let Some(value) = (field.get)(entry) {
                visit(field.name, value);
            }
        }
    };
    own(FRONT, &mut visit);
    for_each_header(entry, |layout, header| {
        for (bit, field) in layout.placed() {
            if let Some((key, value)) = field.key.zip(field.json(header, bit)) {
                visit(key, Value::Plain(value));
            }
        }
    });
    own(BACK, &mut visit);
}

/// Visits BTH and extension headers, as far as they are here, each with its bytes.
pub(crate) fn for_each_header<'a>(
    entry: &Entry<'a>,
    mut visit: impl FnMut(&'static HeaderLayout, &'a [u8]),
) {
    let Some(outer) = &entry.row.outer else { return };
    // Whatever is wrong with a frame, a BTH that is there can be looked at.
    let headers = entry.row.content.packet().map_or(&[][..], |packet| packet.opcode.headers);
    let layouts = headers.iter().map(|header| extension(*header));
    // What stands behind the packet is none of its headers.
    let end = entry.bytes.len().min(entry.row.wire_len as usize - outer.padding);
    let mut rest = entry.bytes.get(outer.packet_at..end).unwrap_or_default();
    for layout in std::iter::once(&BTH).chain(layouts) {
        let Some((header, behind)) = rest.split_at_checked(layout.len()) else { return };
        visit(layout, header);
        rest = behind;
    }
}

/// Where a named value comes from.
#[derive(Clone, Copy)]
pub(crate) enum Source {
    Own(&'static Own),
    /// A field of the headers that have one of this name.
    Header(&'static str, &'static FieldLayout),
    /// A field of a management datagram.
    Mad(&'static str, Kind),
    /// The kinds of the notes.
    Notes,
    /// The rules of the findings.
    Findings,
}

impl Source {
    /// Its name.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Own(own) => own.name,
            Self::Header(name, _) | Self::Mad(name, _) => name,
            Self::Notes => LISTS[0],
            Self::Findings => LISTS[1],
        }
    }

    /// What its values can be compared with.
    pub(crate) fn kind(self) -> Kind {
        match self {
            Self::Own(own) => own.kind,
            Self::Header(_, field) => match field.form {
                Form::Decimal | Form::Hex => Kind::Number,
                Form::Flag => Kind::Flag,
                Form::Address => Kind::Address,
                Form::Bytes => Kind::Any,
            },
            Self::Mad(_, kind) => kind,
            Self::Notes | Self::Findings => Kind::Text,
        }
    }

    /// All words that it can be, where these are fixed.
    pub(crate) fn words(self) -> Option<Vec<&'static str>> {
        match self {
            Self::Own(own) => own.words.map(|words| words()),
            Self::Notes => Some(Note::KINDS.to_vec()),
            Self::Findings => Some(Rule::ALL.map(Rule::name).to_vec()),
            Self::Header(..) | Self::Mad(..) => None,
        }
    }

    /// What is called `name`.
    pub(crate) fn by_name(name: &str) -> Option<Self> {
        if let Some(own) = FRONT.iter().chain(BACK).find(|own| own.name == name) {
            return Some(Self::Own(own));
        }
        if let Some(at) = LISTS.iter().position(|list| *list == name) {
            return Some([Self::Notes, Self::Findings][at]);
        }
        let found = layouts().flat_map(|layout| layout.fields).find(|it| it.key == Some(name));
        if let Some((field, key)) = found.and_then(|field| Some((field, field.key?))) {
            return Some(Self::Header(key, field));
        }
        let known = mad_fields().into_iter().find(|(known, _)| *known == name);
        known.map(|(name, kind)| Self::Mad(name, kind))
    }
}

/// What an acknowledgement says.
fn aeth_texts() -> Vec<&'static str> {
    let mut words = vec!["ACK", "RNR NAK"];
    words.extend((0..32).map(|code| NakCode::from_bits(code).name()));
    words.dedup();
    words
}

/// One of each reason for which a frame to port 4791 is no packet.
const MALFORMED: [DropReason; 15] = [
    DropReason::Truncated { have: 0, need: 0 },
    DropReason::TooManyVlanTags,
    DropReason::IpVersion { version: 0 },
    DropReason::IpOptions { ihl: 0 },
    DropReason::IpHeaderLength { ihl: 0 },
    DropReason::IpChecksum { expected: 0, found: 0 },
    DropReason::IpFragment,
    DropReason::IpExtension { next_header: 0 },
    DropReason::UdpLength { udp: 0, ip: 0 },
    DropReason::PacketLength { len: 0 },
    DropReason::TransportVersion { version: 0 },
    DropReason::ReservedOpcode { code: 0 },
    DropReason::HeaderMissing { have: 0, need: 0 },
    DropReason::PadCount { pad: 0, payload: 0 },
    DropReason::ReservedSyndrome { value: 0 },
];

/// For people: every field, what it is compared with, and what it is.
pub(crate) fn list(ink: &mut Ink) {
    let mut line = |name: &str, kind: Kind, words: &[&str], says: &str| {
        let kind = match kind {
            Kind::Number => "number",
            Kind::Flag => "true/false",
            Kind::Text | Kind::Any => "word",
            Kind::Address => "address",
            Kind::Seconds => "seconds",
        };
        ink.display(format_args!("{name:<30}  {kind:<10}  {says}"));
        // Opcodes have more names than anybody reads.
        if !words.is_empty() && words.len() <= Note::KINDS.len() {
            ink.str(": ");
            ink.str(&words.join(", "));
        }
        ink.byte(b'\n');
    };
    const IN_STRING: &str = "; a string in --json, so that no digit is lost";
    for field in FRONT {
        let in_string = if field.kind == Kind::Seconds { IN_STRING } else { "" };
        line(field.name, field.kind, &[], &format!("{}{in_string}", field.says));
    }
    let mut listed = Vec::new();
    for layout in layouts() {
        for field in layout.fields {
            let Some(key) = field.key.filter(|key| !listed.contains(key)) else { continue };
            listed.push(key);
            let in_string = if field.bits == 64 { IN_STRING } else { "" };
            let says = format!("{}, {}{in_string}", layout.name, field.name);
            line(key, Source::Header(key, field).kind(), &[], &says);
        }
    }
    for field in BACK {
        let words = Source::Own(field).words().unwrap_or_default();
        line(field.name, field.kind, &words, field.says);
    }
    line(LISTS[0], Kind::Text, &Note::KINDS, "a list, the kinds of the notes");
    let rules = "a list, the broken rules (`roxe check --rules` says what they are)";
    line(LISTS[1], Kind::Text, &Rule::ALL.map(Rule::name), rules);
    for (name, kind) in mad_fields() {
        line(name, kind, &[], &of_management(name));
    }
    ink.str("\nIn --json only:\n");
    for (name, says) in JSON_ONLY {
        ink.display(format_args!("{name:<30}  {:<10}  {says}\n", ""));
    }
}

/// What a field of a management datagram belongs to: `CM REQ, primary path`.
fn of_management(name: &str) -> String {
    let mut parts = name.split('.');
    match (parts.next(), parts.next()) {
        (Some("cm"), Some(message)) => {
            let inside = parts.next().filter(|_| parts.next().is_some());
            let inside = inside.map_or_else(String::new, |part| format!(", {part}"));
            format!("connection management, {}{inside}", message.to_uppercase())
        }
        _ => "header of a management datagram".to_owned(),
    }
}

/// Every name there is.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    let own = FRONT.iter().chain(BACK).map(|own| own.name);
    let headers = layouts().flat_map(|layout| layout.fields).filter_map(|field| field.key);
    let management = mad_fields().into_iter().map(|(name, _)| name);
    own.chain(headers).chain(LISTS).chain(management)
}

/// The names that management datagrams may show, read off one of each kind: with and without IPv4
/// addresses, asking for an IP port and for something else; and what each is compared with.
fn mad_fields() -> Vec<(&'static str, Kind)> {
    let mut fields: Vec<(&'static str, Kind)> = Vec::new();
    for attribute in 0..=0x1f {
        for method in [MadHeader::METHOD_GET, MadHeader::METHOD_SEND, MadHeader::METHOD_GET_RESP] {
            for ip_version in [0, 4, 6] {
                let bytes = specimen(attribute, method, ip_version);
                let Ok(mad) = Mad::parse(&bytes) else { continue };
                mad.for_each_field(&mut |name, value| {
                    let kind = kind_of(value);
                    match fields.iter_mut().find(|(known, _)| *known == name) {
                        // Here this and there that.
                        Some((_, known)) if *known != kind => *known = Kind::Any,
                        Some(_) => {}
                        None => fields.push((name, kind)),
                    }
                });
            }
        }
    }
    fields
}

fn kind_of(value: FieldValue<'_>) -> Kind {
    match value {
        FieldValue::Number(_)
        | FieldValue::Signed(_)
        | FieldValue::Hex32(_)
        | FieldValue::Hex64(_) => Kind::Number,
        FieldValue::Flag(_) => Kind::Flag,
        FieldValue::Address(_) => Kind::Address,
        _ => Kind::Any,
    }
}

/// A management datagram in which the fields that only some have are filled.
fn specimen(attribute: u8, method: u8, ip_version: u8) -> [u8; Mad::LEN] {
    let mut bytes = [0; Mad::LEN];
    bytes[..4].copy_from_slice(&[
        MadHeader::BASE_VERSION,
        MadHeader::CLASS_CM,
        MadHeader::CLASS_VERSION_CM,
        method,
    ]);
    bytes[17] = attribute;
    let data = &mut bytes[MadHeader::LEN..];
    if ip_version != 0 {
        // The service ID of REQ and SIDR_REQ: that of an IP port. Then their private data.
        data[12] = 1;
        data[17] = ip_version << 4;
        data[141] = ip_version << 4;
    }
    if ip_version == 4 {
        // The GIDs of REQ and LAP.
        for gid in [56, 72, 100, 116, 24, 40] {
            data[gid + 10..gid + 12].fill(0xff);
        }
    }
    bytes
}

fn layouts() -> impl Iterator<Item = &'static HeaderLayout> {
    const ALL: [Header; 11] = [
        Header::Rdeth,
        Header::Deth,
        Header::Xrceth,
        Header::Reth,
        Header::AtomicEth,
        Header::Aeth,
        Header::AtomicAckEth,
        Header::ImmDt,
        Header::Ieth,
        Header::Feth,
        Header::CnpReserved,
    ];
    std::iter::once(&BTH).chain(ALL.map(extension))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_is_listed() {
        let mut ink = Ink::new(false);
        list(&mut ink);
        let text = String::from_utf8(ink.bytes().to_vec()).unwrap();
        for name in names() {
            let lines = text.lines().filter(|line| line.split(' ').next() == Some(name));
            assert_eq!(lines.count(), 1, "{name}");
        }
    }
}
