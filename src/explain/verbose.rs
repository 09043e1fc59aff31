//! `-v`: every header opened, field by field, with its bits.

use std::fmt::Write as _;

use roxe_wire::explain::{ETHERNET, FieldLayout, Form, HeaderLayout, IPV4, IPV6, UDP, VLAN};

use crate::examine::{Content, Entry};
use crate::explain::fields;
use crate::explain::ink::{Ink, Style};

/// All headers of one frame.
pub(crate) fn headers(entry: &Entry<'_>, ink: &mut Ink) {
    let Some(outer) = &entry.row.outer else { return };
    let before = entry.bytes.get(..outer.packet_at).unwrap_or_default();
    let ip = if outer.source.is_ipv4() { &IPV4 } else { &IPV6 };
    let tags = outer.vlan.iter().flatten().count();
    let below = ip.len() + UDP.len();
    let mut at = 0;
    // Ethernet's last field stands before the IP header: tags slip in between.
    if let Some(link) = before.len().checked_sub(below).filter(|link| *link >= ETHERNET.len()) {
        open(&ETHERNET, &before[..ETHERNET.len()], ink);
        at = ETHERNET.len();
        for _ in 0..tags {
            if let Some(tag) = before.get(at..at + VLAN.len()) {
                open(&VLAN, tag, ink);
            }
            at += VLAN.len();
        }
        at = at.max(link);
    }
    for layout in [ip, &UDP] {
        if let Some(header) = before.get(at..at + layout.len()) {
            open(layout, header, ink);
        }
        at += layout.len();
    }
    fields::for_each_header(entry, |layout, header| open(layout, header, ink));
    if let Some(mad) = entry.mad {
        title("MAD", "management datagram", 256, ink);
        mad.for_each_field(&mut |name, value| {
            ink.str("      ");
            ink.display(format_args!("{name:<30}"));
            ink.str("  ");
            ink.display(value);
            ink.byte(b'\n');
        });
    }
    if let Content::Packet { headers, payload_len, .. } = &entry.row.content {
        let pad = headers.bth.pad;
        title("payload", "", *payload_len, ink);
        if pad > 0 {
            title("pad", "zeros up to a multiple of four", pad.into(), ink);
        }
        icrc(entry, ink);
        if outer.padding > 0 {
            title("padding", "Ethernet's shortest frame", outer.padding, ink);
        }
    }
}

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
    ink.number(len);
    ink.str(if len == 1 { " byte\n" } else { " bytes\n" });
}

fn open(layout: &HeaderLayout, header: &[u8], ink: &mut Ink) {
    title(layout.name, layout.title, layout.len(), ink);
    for (bit, field) in layout.placed() {
        line(field, header, bit, ink);
    }
}

/// `       1  .1.. ....  MigReq           1  migrated`
fn line(field: &FieldLayout, header: &[u8], bit: usize, ink: &mut Ink) {
    let Some(value) = field.value(header, bit) else { return };
    ink.str("      ");
    ink.style(Style::Dim);
    ink.display(format_args!("{:>3}  ", bit / 8));
    let start = ink.at();
    bits(field, header, bit, ink);
    let width = ink.width_from(start);
    ink.fill(b' ', 19usize.saturating_sub(width));
    ink.plain();
    ink.display(format_args!("  {:<16}  ", field.name));
    let start = ink.at();
    match field.json(header, bit) {
        Some(_) if field.form == Form::Hex => ink.hex(value, u32::from(field.bits).div_ceil(4)),
        Some(_) if field.form == Form::Flag => ink.number(value),
        Some(other) => ink.display(other),
        None => {}
    }
    let meaning = field.meaning(value);
    let width = ink.width_from(start);
    let at = ink.at();
    ink.fill(b' ', 10usize.saturating_sub(width) + 2);
    let behind = ink.at();
    let _ = write!(ink, "{meaning}");
    if ink.at() == behind {
        ink.truncate(at);
    }
    ink.byte(b'\n');
}

/// Up to two bytes as bits, with points for those of other fields; more as hexadecimal digits.
fn bits(field: &FieldLayout, header: &[u8], bit: usize, ink: &mut Ink) {
    let (first, end) = (bit / 8, (bit + usize::from(field.bits)).div_ceil(8));
    let bytes = header.get(first..end).unwrap_or_default();
    let is_whole = bit.is_multiple_of(8) && field.bits.is_multiple_of(8);
    if is_whole && field.bits > 8 {
        for (index, byte) in bytes.iter().take(6).enumerate() {
            if index > 0 {
                ink.byte(b' ');
            }
            ink.hex_digits((*byte).into(), 2);
        }
        if bytes.len() > 6 {
            ink.str(" …");
        }
        return;
    }
    let own = bit..bit + usize::from(field.bits);
    for (index, byte) in bytes.iter().enumerate() {
        for place in 0..8 {
            if place == 4 || place == 0 && index > 0 {
                ink.byte(b' ');
            }
            let is_own = own.contains(&((first + index) * 8 + place));
            let is_set = byte >> (7 - place) & 1 == 1;
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
        IcrcVerdict::Good => ink.str("      right\n"),
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
