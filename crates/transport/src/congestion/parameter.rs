//! Parameters by their names: their units, their ranges, and values as people write them.
//!
//! Names are those of mlx5 (`rp_ai_rate`) or of an algorithm's paper (`t_low`). A number alone is
//! in the unit that mlx5 has: Mb/s, µs, bytes; others say theirs: `40M`, `1.5Gb/s`, `55us`, `64k`.

use core::fmt;
use core::time::Duration;

use super::Rate;

/// Why a parameter was not set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParameterError {
    /// Which one.
    pub name: String,
    /// What is wrong.
    pub what: String,
}

impl fmt::Display for ParameterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl core::error::Error for ParameterError {}

/// Where a value is kept; says its unit.
#[derive(Debug)]
pub(crate) enum Slot<'a> {
    /// Its range is in Mb/s.
    Rate(&'a mut Rate),
    /// Its range is in µs.
    Time(&'a mut Duration),
    Bytes(&'a mut u64),
    Count(&'a mut u32),
    Small(&'a mut u8),
    Real(&'a mut f64),
    /// 0 or 1.
    Switch(&'a mut bool),
}

/// A parameter of `P`: a row of its table.
pub(crate) struct Parameter<P> {
    pub(crate) name: &'static str,
    /// In the unit of a number alone.
    pub(crate) least: f64,
    pub(crate) most: f64,
    pub(crate) slot: fn(&mut P) -> Slot<'_>,
}

/// The row of a field, which has the parameter's name.
macro_rules! row {
    ($name:ident, $slot:ident, $least:expr, $most:expr) => {
        $crate::congestion::parameter::Parameter {
            name: stringify!($name),
            least: $least,
            most: $most,
            slot: |it| $crate::congestion::parameter::Slot::$slot(&mut it.$name),
        }
    };
}

pub(crate) use row;

/// Sets the parameter `name` of `to`, of which `table` has all; `whose` are they.
pub(crate) fn set<P>(
    table: &[Parameter<P>],
    whose: &str,
    to: &mut P,
    name: &str,
    text: &str,
) -> Result<(), ParameterError> {
    let error = |what: String| ParameterError { name: name.to_owned(), what };
    let Some(row) = table.iter().find(|row| row.name == name) else {
        let known: Vec<&str> = table.iter().map(|row| row.name).collect();
        let has = if known.is_empty() { "" } else { ": it has " };
        let known = known.join(", ");
        return Err(error(format!("{whose} has no parameter `{name}`{has}{known}")));
    };
    let (least, most) = (row.least, row.most);
    let slot = (row.slot)(to);
    let unit = slot.unit();
    let wrong = || error(format!("{name}={text}: not {}, such as {}", unit.what, unit.example));
    let value = read(text, &slot).ok_or_else(wrong)?;
    if !(least..=most).contains(&value) {
        return Err(error(format!("{name}={text}: {least} to {most}{} are possible", unit.behind)));
    }
    // 0 may stand for never: what is short or few shall not become it.
    if value > 0.0 && value < unit.step / 2.0 {
        return Err(error(format!(
            "{name}={text}: {}{} is the least above 0",
            unit.step, unit.behind
        )));
    }
    slot.store(value).ok_or_else(wrong)
}

/// Whether all parameters of `of` are in their ranges.
pub(crate) fn check<P: Clone>(table: &[Parameter<P>], of: &P) -> Result<(), ParameterError> {
    let mut of = of.clone();
    for Parameter { name, least, most, slot } in table {
        let slot = slot(&mut of);
        if !(*least..=*most).contains(&slot.value()) {
            let what =
                format!("{name}={slot}: {least} to {most}{} are possible", slot.unit().behind);
            return Err(ParameterError { name: (*name).to_owned(), what });
        }
    }
    Ok(())
}

/// Whether the parameter `least` of `of` is not above its parameter `most`.
pub(crate) fn check_order<P: Clone>(
    table: &[Parameter<P>],
    of: &P,
    [least, most]: [&str; 2],
) -> Result<(), ParameterError> {
    let of_name = |name: &str| {
        let mut of = of.clone();
        let row = table.iter().find(|row| row.name == name)?;
        let slot = (row.slot)(&mut of);
        Some((slot.value(), slot.to_string()))
    };
    match (of_name(least), of_name(most)) {
        (Some((low, low_shown)), Some((high, high_shown))) if low > high => Err(ParameterError {
            name: least.to_owned(),
            what: format!("{least}={low_shown} is above {most}={high_shown}"),
        }),
        _ => Ok(()),
    }
}

/// All parameters of `of`, and what they are: as [`set`] reads them.
pub(crate) fn list<P: Clone>(table: &[Parameter<P>], of: &P) -> Vec<(&'static str, String)> {
    let mut of = of.clone();
    table.iter().map(|row| (row.name, (row.slot)(&mut of).to_string())).collect()
}

struct Unit {
    what: &'static str,
    example: &'static str,
    behind: &'static str,
    /// What values are rounded to multiples of, if they are.
    step: f64,
}

/// What may stand behind a number, and what it is multiplied by.
type Suffixes = &'static [(&'static str, f64)];

const RATES: Suffixes =
    &[("", 1.0), ("kb/s", 1e-3), ("Mb/s", 1.0), ("Gb/s", 1e3), ("k", 1e-3), ("M", 1.0), ("G", 1e3)];
/// The micro sign and the Greek letter look the same.
const TIMES: Suffixes = &[
    ("", 1.0),
    ("ns", 1e-3),
    ("us", 1.0),
    ("\u{b5}s", 1.0),
    ("\u{3bc}s", 1.0),
    ("ms", 1e3),
    ("s", 1e6),
];
const BYTES: Suffixes = &[("", 1.0), ("k", 1e3), ("M", 1e6), ("G", 1e9)];
const NONE: Suffixes = &[("", 1.0)];

/// The number that a text is.
fn read(text: &str, slot: &Slot<'_>) -> Option<f64> {
    let text = text.trim();
    match (slot, text) {
        (Slot::Switch(_), "on") => return Some(1.0),
        (Slot::Switch(_), "off") => return Some(0.0),
        _ => {}
    }
    let digits = text.find(|it: char| !(it.is_ascii_digit() || it == '.')).unwrap_or(text.len());
    let (number, suffix) = text.split_at(digits);
    let (_, times) = slot.suffixes().iter().find(|(known, _)| *known == suffix.trim_start())?;
    number.parse().ok().map(|number: f64| number * times)
}

impl Slot<'_> {
    const fn unit(&self) -> Unit {
        let (what, example, behind, step) = match self {
            Self::Rate(_) => ("a rate", "40M or 1.5Gb/s", " Mb/s", 0.0),
            Self::Time(_) => ("a time", "55us or 1ms", " us", 0.001),
            Self::Bytes(_) => ("bytes", "32767 or 64k", " bytes", 1.0),
            Self::Count(_) | Self::Small(_) => ("a whole number", "5", "", 0.0),
            Self::Real(_) => ("a number", "0.8", "", 0.0),
            Self::Switch(_) => ("a switch", "0 or 1", "", 0.0),
        };
        Unit { what, example, behind, step }
    }

    const fn suffixes(&self) -> Suffixes {
        match self {
            Self::Rate(_) => RATES,
            Self::Time(_) => TIMES,
            Self::Bytes(_) => BYTES,
            Self::Count(_) | Self::Small(_) | Self::Real(_) | Self::Switch(_) => NONE,
        }
    }

    /// What is kept there, in the unit of its range.
    fn value(&self) -> f64 {
        match self {
            Self::Rate(rate) => rate.bits_per_second() / 1e6,
            Self::Time(time) => time.as_nanos() as f64 / 1e3,
            Self::Bytes(bytes) => **bytes as f64,
            Self::Count(count) => f64::from(**count),
            Self::Small(count) => f64::from(**count),
            Self::Real(real) => **real,
            Self::Switch(on) => f64::from(u8::from(**on)),
        }
    }

    /// Stores what is in its range; `None` when it should be whole and is not.
    #[expect(clippy::cast_possible_truncation, reason = "ranges are within the types'")]
    fn store(self, value: f64) -> Option<()> {
        let whole = value.fract() == 0.0;
        match self {
            Self::Rate(rate) => *rate = Rate::from_bits_per_second(value * 1e6),
            Self::Time(time) => *time = Duration::from_nanos((value * 1e3).round() as u64),
            Self::Bytes(bytes) => *bytes = value.round() as u64,
            Self::Count(count) if whole => *count = value as u32,
            Self::Small(count) if whole => *count = value as u8,
            Self::Switch(on) if whole => *on = value != 0.0,
            Self::Real(real) => *real = value,
            Self::Count(_) | Self::Small(_) | Self::Switch(_) => return None,
        }
        Some(())
    }
}

impl fmt::Display for Slot<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rate(rate) => write!(f, "{}M", rate.bits_per_second() / 1e6),
            Self::Time(time) => write!(f, "{}us", time.as_nanos() as f64 / 1e3),
            Self::Bytes(bytes) => write!(f, "{bytes}"),
            Self::Count(count) => write!(f, "{count}"),
            Self::Small(count) => write!(f, "{count}"),
            Self::Real(real) => write!(f, "{real}"),
            Self::Switch(on) => write!(f, "{}", u8::from(**on)),
        }
    }
}

/// The most that a rate may be said to be, in Mb/s: 10 Tb/s.
pub(crate) const MOST_MBPS: f64 = 1e7;

/// The most that a time may be said to be, in µs: a second.
pub(crate) const MOST_US: f64 = 1e6;
