//! The values that fields are compared with.

use std::cmp::Ordering;
use std::net::IpAddr;

use roxe_wire::FieldValue;

use crate::explain::fields::{Kind, Value};

/// A value as it was written, read in every way it can be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Literal {
    pub(super) text: String,
    pub(super) number: Option<i128>,
    address: Option<IpAddr>,
    nanoseconds: Option<i128>,
}

impl Literal {
    pub(super) fn new(text: String) -> Self {
        let (sign, digits) = match text.strip_prefix('-') {
            Some(digits) => (-1, digits),
            None => (1, text.as_str()),
        };
        let number = match digits.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16).ok(),
            None => digits.parse::<u64>().ok(),
        };
        let nanoseconds = seconds(digits).map(|nanos| sign * nanos);
        Self {
            number: number.map(|number| sign * i128::from(number)),
            address: text.parse().ok(),
            nanoseconds,
            text,
        }
    }

    /// How `value` lies to this; `None` when they cannot be compared.
    pub(super) fn order(&self, value: Value<'_>) -> Option<Ordering> {
        let number = |value: i128| Some(value.cmp(&self.number?));
        match value {
            Value::Nanoseconds(nanos) => Some(nanos.cmp(&self.nanoseconds?)),
            Value::Plain(FieldValue::Number(value) | FieldValue::Hex64(value)) => {
                number(value.into())
            }
            Value::Plain(FieldValue::Hex32(value)) => number(value.into()),
            Value::Plain(FieldValue::Signed(value)) => number(value.into()),
            Value::Plain(FieldValue::Flag(flag)) => Some(flag.cmp(&self.flag()?)),
            Value::Plain(FieldValue::Address(address)) => Some(address.cmp(&self.address?)),
            Value::Plain(FieldValue::Text(text)) => Some(text.cmp(&self.text)),
            Value::Plain(other) => Some(other.to_string().as_str().cmp(&self.text)),
        }
    }

    /// What may be meant as a range of what a field of this kind is compared with: `1-3`, `1..0x3`.
    pub(super) fn range(&self, kind: Kind) -> Option<(&str, &str)> {
        let (first, last) = self.text.split_once("..").or_else(|| {
            self.text.get(1..)?.find('-').map(|at| {
                let (first, last) = self.text.split_at(at + 1);
                (first, &last[1..])
            })
        })?;
        let fits = |text: &str| Self::new(text.to_owned()).fits(kind);
        let last = last.trim_start_matches('=');
        (fits(first) && fits(last)).then_some((first, last))
    }

    fn flag(&self) -> Option<bool> {
        match self.text.as_str() {
            "true" | "1" => Some(true),
            "false" | "0" => Some(false),
            _ => None,
        }
    }

    /// Whether a field of this kind can be compared with it.
    pub(super) fn fits(&self, kind: Kind) -> bool {
        match kind {
            Kind::Number => self.number.is_some(),
            Kind::Flag => self.flag().is_some(),
            Kind::Address => self.address.is_some(),
            Kind::Seconds => self.nanoseconds.is_some(),
            Kind::Text | Kind::Any => true,
        }
    }
}

/// The values of which a field may have any. A frame's value is looked up, not compared with each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Set {
    // What the literals are, in every way they can be read, in order.
    texts: Vec<String>,
    numbers: Vec<i128>,
    addresses: Vec<IpAddr>,
    nanoseconds: Vec<i128>,
    /// Whether `false` is one, and `true`.
    flags: [bool; 2],
}

impl Set {
    pub(super) fn new(literals: Vec<Literal>) -> Self {
        let mut set = Self::default();
        for literal in literals {
            set.numbers.extend(literal.number);
            set.addresses.extend(literal.address);
            set.nanoseconds.extend(literal.nanoseconds);
            if let Some(flag) = literal.flag() {
                set.flags[usize::from(flag)] = true;
            }
            set.texts.push(literal.text);
        }
        set.texts.sort_unstable();
        set.numbers.sort_unstable();
        set.addresses.sort_unstable();
        set.nanoseconds.sort_unstable();
        set
    }

    /// Whether one of them equals `value`.
    pub(super) fn contains(&self, value: Value<'_>) -> bool {
        let number = |value: i128| self.numbers.binary_search(&value).is_ok();
        let text = |text: &str| self.texts.binary_search_by(|it| it.as_str().cmp(text)).is_ok();
        match value {
            Value::Nanoseconds(nanos) => self.nanoseconds.binary_search(&nanos).is_ok(),
            Value::Plain(FieldValue::Number(value) | FieldValue::Hex64(value)) => {
                number(value.into())
            }
            Value::Plain(FieldValue::Hex32(value)) => number(value.into()),
            Value::Plain(FieldValue::Signed(value)) => number(value.into()),
            Value::Plain(FieldValue::Flag(flag)) => self.flags[usize::from(flag)],
            Value::Plain(FieldValue::Address(address)) => {
                self.addresses.binary_search(&address).is_ok()
            }
            Value::Plain(FieldValue::Text(value)) => text(value),
            Value::Plain(other) => text(&other.to_string()),
        }
    }
}

/// `12.5` in nanoseconds.
fn seconds(text: &str) -> Option<i128> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    if fraction.len() > 9 || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let whole: u64 = whole.parse().ok()?;
    let fraction: u64 = format!("{fraction:0<9}").parse().ok()?;
    Some(i128::from(whole) * 1_000_000_000 + i128::from(fraction))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_exact() {
        assert_eq!(seconds("1.5"), Some(1_500_000_000));
        assert_eq!(seconds("0.000000001"), Some(1));
        assert_eq!(seconds("3"), Some(3_000_000_000));
        assert_eq!([seconds("1.0000000001"), seconds("a"), seconds("1.x")], [None; 3]);
    }

    /// A set is nothing but a faster way to compare with each of its values.
    #[test]
    fn a_set_has_the_values_that_equal_one_of_its_literals() {
        let written = [
            "0",
            "1",
            "7",
            "0x10",
            "16",
            "-3",
            "1.5",
            "0.000000007",
            "true",
            "false",
            "10.0.0.1",
            "fe80::1",
            "::ffff:10.0.0.1",
            "nak",
            "RNR NAK",
            "",
            "18446744073709551615",
            "010203",
        ];
        let address = |text: &str| FieldValue::Address(text.parse().expect(text));
        let mut values = vec![
            Value::Plain(FieldValue::Flag(true)),
            Value::Plain(FieldValue::Flag(false)),
            Value::Plain(FieldValue::Signed(-3)),
            Value::Plain(FieldValue::Signed(-1)),
            Value::Plain(FieldValue::Bytes(&[1, 2, 3])),
            Value::Plain(FieldValue::Bytes(&[])),
            Value::Plain(address("10.0.0.1")),
            Value::Plain(address("::ffff:10.0.0.1")),
            Value::Plain(address("fe80::1")),
            Value::Plain(address("fe80::2")),
        ];
        values.extend([0, 1, 7, 16, 8, u64::MAX].map(|it| Value::Plain(FieldValue::Number(it))));
        values.extend([0, 16, 8, u64::MAX].map(|it| Value::Plain(FieldValue::Hex64(it))));
        values.extend([0, 16, 8, u32::MAX].map(|it| Value::Plain(FieldValue::Hex32(it))));
        values.extend(
            ["nak", "", "1", "RNR NAK", "ack"].map(|it| Value::Plain(FieldValue::Text(it))),
        );
        values.extend([7, 1_500_000_000, 0, 1, 1_000_000_000].map(Value::Nanoseconds));
        let literals = written.map(|text| Literal::new(text.to_owned()));
        let (mut found, mut missed) = (0, 0);
        for from in 0..literals.len() {
            for to in from..=literals.len() {
                let some = literals[from..to].to_vec();
                let set = Set::new(some.iter().rev().cloned().collect());
                for value in &values {
                    let expected = some.iter().any(|it| it.order(*value) == Some(Ordering::Equal));
                    assert_eq!(set.contains(*value), expected, "{value:?} in {some:?}");
                    *(if expected { &mut found } else { &mut missed }) += 1;
                }
            }
        }
        assert!(found > 1000 && missed > 1000, "{found} {missed}");
    }
}
