//! Header fields by name: what `--json` and verbose explanations print.
//!
//! A header that can be explained walks its fields in wire order and hands each one, with its
//! name, to a visitor. Names are those of tshark without the prefix `infiniband.`, so a filter or
//! a script written for one tool reads the other's output. Nothing is formatted or allocated here
//! before the visitor asks for it.

use core::fmt;
use core::net::IpAddr;

use crate::Gid;

/// Receives the fields of a header, one call each, in the order in which they stand on the wire.
pub type FieldVisitor<'a> = dyn FnMut(&'static str, FieldValue<'_>) + 'a;

/// The value of one header field: raw as it was on the wire, with a hint how people write it.
///
/// `Display` is the form for people. JSON has fewer kinds: [`Number`](Self::Number),
/// [`Signed`](Self::Signed) and [`Hex32`](Self::Hex32) are JSON numbers, [`Flag`](Self::Flag) is a
/// JSON boolean, and everything else is the `Display` form as a string; 64-bit values too, because
/// a JSON number loses bits above 2⁵³.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FieldValue<'a> {
    /// A count, a code or a small number: `7`.
    Number(u64),
    /// A difference: `-3`.
    Signed(i64),
    /// A number that people know by its hexadecimal digits, such as a key: `0x80010000`.
    Hex32(u32),
    /// A 64-bit address, operand or identifier: `0x0000000223448a10`.
    Hex64(u64),
    /// One bit that says yes or no: `true`.
    Flag(bool),
    /// An IP address: `192.0.2.10`.
    Address(IpAddr),
    /// A GID, always in its 128-bit form: `::ffff:192.0.2.10`.
    Gid(Gid),
    /// Bytes without a meaning of their own: `68656c6c6f`.
    Bytes(&'a [u8]),
    /// Words: what a code means. Contains neither quotes nor control characters when it comes from
    /// this crate.
    Text(&'a str),
}

impl fmt::Display for FieldValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Number(value) => fmt::Display::fmt(&value, f),
            Self::Signed(value) => fmt::Display::fmt(&value, f),
            Self::Hex32(value) => write!(f, "0x{value:08x}"),
            Self::Hex64(value) => write!(f, "0x{value:016x}"),
            Self::Flag(value) => fmt::Display::fmt(&value, f),
            Self::Address(value) => fmt::Display::fmt(&value, f),
            Self::Gid(value) => fmt::Display::fmt(&value, f),
            Self::Bytes(bytes) => bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}")),
            Self::Text(words) => f.write_str(words),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;
    use std::string::ToString;

    #[test]
    fn every_kind_prints_as_its_example_says() {
        let address = Ipv4Addr::new(192, 0, 2, 10);
        for (value, text) in [
            (FieldValue::Number(7), "7"),
            (FieldValue::Signed(-3), "-3"),
            (FieldValue::Hex32(0x8001_0000), "0x80010000"),
            (FieldValue::Hex64(0x2_2344_8a10), "0x0000000223448a10"),
            (FieldValue::Flag(true), "true"),
            (FieldValue::Address(address.into()), "192.0.2.10"),
            (FieldValue::Gid(address.into()), "::ffff:192.0.2.10"),
            (FieldValue::Bytes(b"hello"), "68656c6c6f"),
            (FieldValue::Bytes(&[]), ""),
            (FieldValue::Text("invalid service ID"), "invalid service ID"),
        ] {
            assert_eq!(value.to_string(), text);
        }
    }
}
