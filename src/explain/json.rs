//! JSON Lines: a flat object for each frame, with the names of `crate::explain::fields`.

use std::net::IpAddr;

use roxe_trace::{Finding, Note};
use roxe_wire::FieldValue;

use crate::examine::{Content, Entry};
use crate::explain::fields::{self, Value};
use crate::explain::ink::Ink;

/// A flat object in the making.
pub(crate) struct Object<'a> {
    ink: &'a mut Ink,
    first: bool,
}

impl<'a> Object<'a> {
    pub(crate) fn begin(ink: &'a mut Ink) -> Self {
        ink.byte(b'{');
        Self { ink, first: true }
    }

    pub(crate) fn end(self) {
        self.ink.str("}\n");
    }

    fn key(&mut self, name: &str) {
        if !std::mem::take(&mut self.first) {
            self.ink.byte(b',');
        }
        self.ink.byte(b'"');
        self.ink.str(name);
        self.ink.str("\":");
    }

    pub(crate) fn number(&mut self, name: &str, value: u64) {
        self.key(name);
        self.ink.number(value);
    }

    /// A number that is finite, with six digits behind the point.
    pub(crate) fn decimal(&mut self, name: &str, value: f64) {
        self.key(name);
        self.ink.display(format_args!("{value:.6}"));
    }

    pub(crate) fn flag(&mut self, name: &str, value: bool) {
        self.key(name);
        self.ink.str(if value { "true" } else { "false" });
    }

    pub(crate) fn text(&mut self, name: &str, value: &str) {
        self.key(name);
        string(value, self.ink);
    }

    pub(crate) fn field(&mut self, name: &str, value: FieldValue<'_>) {
        self.key(name);
        plain(value, self.ink);
    }

    fn value(&mut self, name: &str, value: Value<'_>) {
        match value {
            Value::Plain(value) => self.field(name, value),
            Value::Nanoseconds(nanos) => {
                self.key(name);
                let magnitude = u64::try_from(nanos.unsigned_abs()).unwrap_or(u64::MAX);
                self.ink.str(if nanos < 0 { "\"-" } else { "\"" });
                self.ink.number(magnitude / 1_000_000_000);
                self.ink.byte(b'.');
                self.ink.digits(magnitude % 1_000_000_000, 9);
                self.ink.byte(b'"');
            }
        }
    }

    /// A list of texts.
    pub(crate) fn texts(&mut self, name: &str, items: &[String]) {
        self.list(name, items, |item, ink| string(item, ink));
    }

    /// A list.
    pub(crate) fn list<'i, T: 'i>(
        &mut self,
        name: &str,
        items: impl IntoIterator<Item = &'i T>,
        write: impl Fn(&T, &mut Ink),
    ) {
        self.key(name);
        self.ink.byte(b'[');
        for (index, item) in items.into_iter().enumerate() {
            if index > 0 {
                self.ink.byte(b',');
            }
            write(item, self.ink);
        }
        self.ink.byte(b']');
    }
}

/// The object of one frame.
pub(crate) fn frame(entry: &Entry<'_>, file: Option<&str>, ink: &mut Ink) {
    let mut object = Object::begin(ink);
    if let Some(file) = file {
        object.text("file", file);
    }
    fields::for_each(entry, |name, value| object.value(name, value));
    if let Some(mad) = entry.mad {
        mad.for_each_field(&mut |name, value| object.field(name, value));
    }
    if let Content::Broken(reason) = &entry.row.content {
        object.text("dropped_text", &reason.to_string());
    }
    object.list("notes", entry.notes, quoted_display);
    object.list("notes.kind", entry.notes, |note: &Note, ink| string(note.kind(), ink));
    object.list("findings", entry.findings, quoted_display);
    object.list("findings.rule", entry.findings, |finding: &Finding, ink| {
        string(finding.rule.name(), ink);
    });
    object.end();
}

fn plain(value: FieldValue<'_>, ink: &mut Ink) {
    match value {
        FieldValue::Number(value) => ink.number(value),
        FieldValue::Signed(value) => ink.signed(value),
        FieldValue::Hex32(value) => ink.number(value),
        FieldValue::Flag(value) => ink.str(if value { "true" } else { "false" }),
        FieldValue::Text(text) => string(text, ink),
        FieldValue::Address(IpAddr::V4(address)) => {
            ink.byte(b'"');
            for (index, octet) in address.octets().into_iter().enumerate() {
                if index > 0 {
                    ink.byte(b'.');
                }
                ink.number(octet);
            }
            ink.byte(b'"');
        }
        FieldValue::Hex64(value) => {
            ink.byte(b'"');
            ink.hex(value, 16);
            ink.byte(b'"');
        }
        // No quotes, backslashes or control characters in any of these.
        other => {
            ink.byte(b'"');
            ink.display(other);
            ink.byte(b'"');
        }
    }
}

/// What it displays, as a string.
pub(crate) fn quoted_display(value: &impl std::fmt::Display, ink: &mut Ink) {
    let start = ink.at();
    ink.byte(b'"');
    ink.display(value);
    let is_special = |byte: &u8| matches!(byte, b'"' | b'\\' | 0..0x20);
    if ink.bytes()[start + 1..].iter().any(is_special) {
        let text = String::from_utf8_lossy(&ink.bytes()[start + 1..]).into_owned();
        ink.truncate(start);
        string(&text, ink);
    } else {
        ink.byte(b'"');
    }
}

/// A string, with what JSON asks to be escaped.
fn string(text: &str, ink: &mut Ink) {
    ink.byte(b'"');
    for byte in text.bytes() {
        match byte {
            b'"' => ink.str("\\\""),
            b'\\' => ink.str("\\\\"),
            0..0x20 => {
                ink.str("\\u");
                ink.hex_digits(byte.into(), 4);
            }
            _ => ink.byte(byte),
        }
    }
    ink.byte(b'"');
}
