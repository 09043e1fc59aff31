//! `-v`: every header opened, field by field, with its bits.

use std::ops::Range;

use roxe_wire::explain::{ETHERNET, FieldLayout, Form, HeaderLayout, IPV4, IPV6, UDP, VLAN};
use roxe_wire::mad::Mad;
use roxe_wire::opcode::{Operation, Service};
use roxe_wire::{FieldValue, Mtu, Opcode, Packet, wait_4096_ns};

use crate::examine::{Content, Entry};
use crate::explain::fields;
use crate::explain::ink::{Ink, Style};
use crate::outcome::visible;

/// All headers of one frame, as far as they can be read; and before them what the file says of it.
pub(crate) fn headers(entry: &Entry<'_>, ink: &mut Ink) {
    if let Some(comment) = entry.comment {
        ink.str("    ");
        ink.style(Style::Bold);
        ink.str("comment");
        ink.plain();
        ink.str("  ");
        ink.str(&visible(comment, |_| false));
        ink.byte(b'\n');
    }
    let Some(outer) = &entry.row.outer else { return };
    let bytes = entry.bytes;
    let mut at = 0;
    // Ethernet's last field stands before the IP header: tags slip in between.
    if outer.ip_at >= ETHERNET.len() {
        read(&ETHERNET, bytes, &mut at, ink);
        while at < outer.ip_at {
            read(&VLAN, bytes, &mut at, ink);
        }
    }
    at = outer.ip_at;
    let ip = if outer.outside.source.is_ipv4() { &IPV4 } else { &IPV6 };
    read(ip, bytes, &mut at, ink);
    let udp_at = outer.packet_at - UDP.len();
    if at < udp_at {
        title("more IP", "options or extension headers: RoCEv2 has none", udp_at - at, ink);
    }
    at = udp_at;
    read(&UDP, bytes, &mut at, ink);
    let packet = entry.row.content.packet();
    let opcode = packet.map(|packet| packet.opcode);
    fields::for_each_header(entry, |layout, header| open(layout, header, opcode, ink));
    // Of a packet that cannot be read to its end nobody knows what its other bytes are.
    let Content::Packet(Packet { headers, payload, .. }) = &entry.row.content else { return };
    if let Some(mad) = entry.mad {
        title("MAD", "management datagram", Mad::LEN, ink);
        mad.for_each_field(&mut |name, value| {
            ink.str("      ");
            ink.display(format_args!("{name:<30}"));
            ink.str("  ");
            management(name, value, ink);
            ink.byte(b'\n');
        });
    }
    title("payload", "", payload.len(), ink);
    let start = outer.packet_at + opcode.map_or(0, |opcode| opcode.headers_len);
    let kept = bytes.len().min(start + payload.len());
    dump(bytes.get(start..kept).unwrap_or_default(), payload.len(), ink);
    if headers.bth.pad > 0 {
        title("pad", "zeros up to a multiple of four", headers.bth.pad.into(), ink);
    }
    icrc(entry, ink);
    if outer.padding > 0 {
        let why =
            if outer.padding <= SHORTEST { "Ethernet's shortest frame" } else { "no packet's" };
        title("padding", why, outer.padding, ink);
    }
}

/// Bytes behind an Ethernet header that the shortest frame has.
const SHORTEST: usize = 46;

/// Opens the header at `at`, if it is there, and goes behind it.
fn read(layout: &HeaderLayout, bytes: &[u8], at: &mut usize, ink: &mut Ink) {
    let end = *at + layout.len();
    if let Some(header) = bytes.get(*at..end) {
        open(layout, header, None, ink);
    }
    *at = end;
}

/// A field of a management datagram, as people write it: what is counted is decimal, what names
/// something is not.
fn management(name: &str, value: FieldValue<'_>, ink: &mut Ink) {
    match value {
        FieldValue::Bytes(bytes) => {
            let zeros = bytes.iter().rev().take_while(|byte| **byte == 0).count();
            let (told, _) = bytes.split_at(bytes.len() - zeros);
            if zeros < 4 {
                return ink.display(value);
            }
            if !told.is_empty() {
                ink.display(FieldValue::Bytes(told));
                ink.str(" and ");
            }
            ink.number(zeros as u64);
            ink.str(" zero bytes");
        }
        FieldValue::Number(number) => {
            match hex_digits(name) {
                Some(digits) => ink.hex(number, digits),
                None => ink.number(number),
            }
            ink.str(match (name, number) {
                ("mad.mgmtclass", 7) => "  communication management",
                ("mad.method", 0x01) => "  Get",
                ("mad.method", 0x03) => "  Send",
                ("mad.method", 0x81) => "  GetResp",
                ("mad.attributeid", 0x10) => "  REQ",
                ("mad.attributeid", 0x11) => "  MRA",
                ("mad.attributeid", 0x12) => "  REJ",
                ("mad.attributeid", 0x13) => "  REP",
                ("mad.attributeid", 0x14) => "  RTU",
                ("mad.attributeid", 0x15) => "  DREQ",
                ("mad.attributeid", 0x16) => "  DREP",
                ("mad.attributeid", 0x17) => "  SIDR_REQ",
                ("mad.attributeid", 0x18) => "  SIDR_REP",
                ("mad.attributeid", 0x19) => "  LAP",
                ("mad.attributeid", 0x1a) => "  APR",
                _ => "",
            });
            coded(name, number, ink);
        }
        FieldValue::Hex32(_) => {
            ink.display(value);
            ink.str(match name.rsplit('.').next() {
                Some("req" | "rep" | "localcommid") => "  the sender's communication ID",
                Some("remotecommid") => "  the receiver's communication ID",
                _ => "",
            });
        }
        other => ink.display(other),
    }
}

/// What a code of connection management stands for.
fn coded(name: &str, code: u64, ink: &mut Ink) {
    match name.rsplit('.').next() {
        Some("pppmtu") => {
            if let Some(mtu) = u8::try_from(code).ok().and_then(Mtu::from_code) {
                ink.display(format_args!("  path MTU {} B", mtu.bytes()));
            }
        }
        Some("rnrretrcount") if code == 7 => ink.str("  for ever"),
        Some("prim_localacktout" | "alt_localacktout") if code == 0 => {}
        Some(
            "remoteresptout" | "localresptout" | "servicetout" | "prim_localacktout"
            | "alt_localacktout" | "tgtackdelay",
        ) if code < 32 => {
            let time = wait_4096_ns(code as u8);
            ink.display(format_args!("  {time:.2?}"));
        }
        _ => {}
    }
}

/// With how many digits people write a field that names something, at least.
fn hex_digits(name: &str) -> Option<u32> {
    const ENDS: [(&str, u32); 11] = [
        ("qpn", 1),
        ("eecn", 1),
        ("vendorid", 1),
        ("flowlabel", 5),
        ("pkey", 4),
        ("lid", 4),
        ("status", 4),
        ("classspecific", 4),
        ("attributeid", 4),
        ("mgmtclass", 2),
        ("method", 2),
    ];
    ENDS.iter().find(|(end, _)| name.ends_with(end)).map(|(_, digits)| *digits)
}

/// The first bytes of a payload of `len`, sixteen to a line, with the characters that some are.
fn dump(bytes: &[u8], len: usize, ink: &mut Ink) {
    let shown = &bytes[..bytes.len().min(DUMPED)];
    for (line, bytes) in shown.chunks(16).enumerate() {
        ink.str("      ");
        ink.style(Style::Dim);
        ink.display(format_args!("{:>3}  ", line * 16));
        let start = ink.at();
        for byte in bytes {
            ink.hex_digits((*byte).into(), 2);
            ink.byte(b' ');
        }
        let width = ink.width_from(start);
        ink.fill(b' ', 16 * 3 - width);
        ink.plain();
        ink.byte(b' ');
        for byte in bytes {
            ink.byte(if matches!(byte, 0x20..=0x7e) { *byte } else { b'.' });
        }
        ink.byte(b'\n');
    }
    if !shown.is_empty() && shown.len() < len {
        ink.display(format_args!("           and {} more\n", len - shown.len()));
    }
}

/// How many bytes of a payload are shown.
pub(crate) const DUMPED: usize = 64;

fn title(name: &str, what: &str, len: usize, ink: &mut Ink) {
    ink.str("    ");
    ink.style(Style::Bold);
    ink.str(name);
    ink.plain();
    ink.str("  ");
    ink.str(what);
    if !what.is_empty() {
        ink.str(", ");
    }
    ink.number(len as u64);
    ink.str(if len == 1 { " byte\n" } else { " bytes\n" });
}

fn open(layout: &HeaderLayout, header: &[u8], opcode: Option<&'static Opcode>, ink: &mut Ink) {
    title(layout.name, layout.title, layout.len(), ink);
    for (bit, field) in layout.placed() {
        line(field, header, bit, opcode, ink);
    }
}

/// `       1  .1.. ....  MigReq           1  migrated`
fn line(
    field: &FieldLayout,
    header: &[u8],
    bit: usize,
    opcode: Option<&'static Opcode>,
    ink: &mut Ink,
) {
    let Some(value) = field.value(header, bit) else { return };
    let bytes = bit / 8..(bit + usize::from(field.bits)).div_ceil(8);
    let is_whole = bit.is_multiple_of(8) && field.bits.is_multiple_of(8);
    let in_hex = is_whole && field.bits > 8;
    // Two bytes of bits to a line.
    let first_end = if in_hex { bytes.end } else { bytes.end.min(bytes.start + 2) };
    let own = opcode.and_then(|opcode| own_words(opcode, field, value));
    ink.str("      ");
    ink.style(Style::Dim);
    ink.display(format_args!("{:>3}  ", bytes.start));
    let start = ink.at();
    if in_hex {
        digits(&header[bytes.clone()], ink);
    } else {
        bits(field, header, bit, bytes.start..first_end, ink);
    }
    let width = ink.width_from(start);
    ink.fill(b' ', 19usize.saturating_sub(width));
    ink.plain();
    ink.display(format_args!("  {:<16}  ", own.map_or(field.name, |(name, _)| name)));
    let start = ink.at();
    match field.json(header, bit) {
        Some(_) if field.form == Form::Hex => ink.hex(value, u32::from(field.bits).div_ceil(4)),
        Some(_) if field.form == Form::Flag => ink.number(value),
        Some(FieldValue::Bytes(address)) if address.len() == 6 => {
            for (index, byte) in address.iter().enumerate() {
                ink.str(if index > 0 { ":" } else { "" });
                ink.hex_digits((*byte).into(), 2);
            }
        }
        Some(other) => ink.display(other),
        None => {}
    }
    let width = ink.width_from(start);
    let at = ink.at();
    ink.fill(b' ', 10usize.saturating_sub(width) + 2);
    let behind = ink.at();
    match own {
        Some((_, words)) => ink.str(words),
        None => ink.display(field.meaning(value)),
    }
    if ink.at() == behind {
        ink.truncate(at);
    }
    ink.byte(b'\n');
    for more in (first_end..bytes.end).step_by(2) {
        ink.str("      ");
        ink.style(Style::Dim);
        ink.display(format_args!("{more:>3}  "));
        bits(field, header, bit, more..bytes.end.min(more + 2), ink);
        ink.plain();
        ink.byte(b'\n');
    }
}

/// Name and meaning of a field that the opcode decides.
fn own_words(
    opcode: &Opcode,
    field: &FieldLayout,
    value: u64,
) -> Option<(&'static str, &'static str)> {
    Some(match (field.key?, opcode.operation) {
        ("bth.a", _) if value != 0 && opcode.service == Service::Ud => {
            (field.name, "has no meaning on a datagram")
        }
        ("atomiceth.swapdt", Operation::CompareSwap) => ("swap", "what to store if they are equal"),
        ("atomiceth.cmpdt", Operation::CompareSwap) => {
            ("compare", "what to compare the memory with")
        }
        ("atomiceth.swapdt", Operation::FetchAdd) => ("add", "what to add to the memory"),
        ("atomiceth.cmpdt", Operation::FetchAdd) => ("compare", "has no meaning in FETCH_ADD"),
        _ => return None,
    })
}

/// Whole bytes as hexadecimal digits.
fn digits(bytes: &[u8], ink: &mut Ink) {
    for (index, byte) in bytes.iter().take(6).enumerate() {
        if index > 0 {
            ink.byte(b' ');
        }
        ink.hex_digits((*byte).into(), 2);
    }
    if bytes.len() > 6 {
        ink.str(" …");
    }
}

/// A field's bits in these bytes of its header, with points for those of other fields.
fn bits(field: &FieldLayout, header: &[u8], bit: usize, bytes: Range<usize>, ink: &mut Ink) {
    let own = bit..bit + usize::from(field.bits);
    for at in bytes.clone() {
        for place in 0..8 {
            if place == 4 || place == 0 && at > bytes.start {
                ink.byte(b' ');
            }
            let is_own = own.contains(&(at * 8 + place));
            let is_set = header[at] >> (7 - place) & 1 == 1;
            ink.byte(match (is_own, is_set) {
                (false, _) => b'.',
                (true, false) => b'0',
                (true, true) => b'1',
            });
        }
    }
}

fn icrc(entry: &Entry<'_>, ink: &mut Ink) {
    use roxe_trace::IcrcVerdict;
    title("ICRC", "over everything but what routers change", 4, ink);
    match entry.row.icrc {
        IcrcVerdict::Good => {
            ink.str("      right");
            if let Some(icrc) = entry.row.outer.and_then(|outer| outer.outside.icrc) {
                ink.str(": ");
                ink.hex(icrc.into(), 8);
            }
            ink.byte(b'\n');
        }
        IcrcVerdict::Unknown => ink.str("      the capture does not hold all bytes\n"),
        IcrcVerdict::Bad { expected, found } => {
            ink.str("      wrong: ");
            ink.hex(found.into(), 8);
            ink.str(" instead of ");
            ink.hex(expected.into(), 8);
            ink.byte(b'\n');
        }
    }
}
