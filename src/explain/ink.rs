//! Text in the making: one buffer that is filled, written and filled again.
//!
//! The formatting machinery of the standard library takes longer for a number than reading the
//! whole frame did, so numbers and names go in directly here.

use std::fmt::{self, Write as _};

use roxe_trace::Words;

/// A buffer of text, with or without colours.
#[derive(Debug, Default)]
pub(crate) struct Ink {
    bytes: Vec<u8>,
    coloured: bool,
}

/// How a piece of text looks on a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    Bold,
    Dim,
    Red,
    Green,
    Yellow,
    Cyan,
}

impl Ink {
    pub(crate) fn new(coloured: bool) -> Self {
        Self { bytes: Vec::new(), coloured }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
    }

    /// Where the next byte goes.
    pub(crate) fn at(&self) -> usize {
        self.bytes.len()
    }

    /// Takes back everything from `at` on.
    pub(crate) fn truncate(&mut self, at: usize) {
        self.bytes.truncate(at);
    }

    #[inline]
    pub(crate) fn str(&mut self, text: &str) {
        self.bytes.extend_from_slice(text.as_bytes());
    }

    #[inline]
    pub(crate) fn byte(&mut self, byte: u8) {
        self.bytes.push(byte);
    }

    /// Decimal.
    #[inline]
    pub(crate) fn number(&mut self, number: impl itoa::Integer) {
        self.str(itoa::Buffer::new().format(number));
    }

    /// Decimal, with at least `digits` digits.
    #[inline]
    pub(crate) fn digits(&mut self, number: u64, digits: usize) {
        let mut buffer = itoa::Buffer::new();
        let text = buffer.format(number);
        self.fill(b'0', digits.saturating_sub(text.len()));
        self.str(text);
    }

    /// `0x` and at least `digits` hexadecimal digits.
    #[inline]
    pub(crate) fn hex(&mut self, number: u64, digits: u32) {
        self.str("0x");
        self.hex_digits(number, digits);
    }

    /// At least `digits` hexadecimal digits.
    #[inline]
    pub(crate) fn hex_digits(&mut self, number: u64, digits: u32) {
        let needed = (u64::BITS - number.leading_zeros()).div_ceil(4);
        for digit in (0..needed.max(digits)).rev() {
            let nibble = (number >> (digit * 4)) & 0xf;
            self.bytes.push(b"0123456789abcdef"[nibble as usize]);
        }
    }

    /// Anything that can be displayed: slower.
    pub(crate) fn display(&mut self, value: impl fmt::Display) {
        // Writing to memory cannot fail.
        let _ = write!(self, "{value}");
    }

    pub(crate) fn fill(&mut self, byte: u8, count: usize) {
        self.bytes.resize(self.bytes.len() + count, byte);
    }

    /// How many characters stand from `at` on.
    pub(crate) fn width_from(&self, at: usize) -> usize {
        let is_first = |byte: &&u8| **byte & 0xc0 != 0x80;
        self.bytes[at..].iter().filter(is_first).count()
    }

    /// Text in a style from here on, up to [`Ink::plain`].
    pub(crate) fn style(&mut self, style: Style) {
        if self.coloured {
            self.str(match style {
                Style::Bold => "\x1b[1m",
                Style::Dim => "\x1b[2m",
                Style::Red => "\x1b[1;31m",
                Style::Green => "\x1b[32m",
                Style::Yellow => "\x1b[33m",
                Style::Cyan => "\x1b[36m",
            });
        }
    }

    pub(crate) fn plain(&mut self) {
        if self.coloured {
            self.str("\x1b[0m");
        }
    }
}

impl Words for Ink {
    fn say(&mut self, text: &str) {
        self.str(text);
    }

    fn count(&mut self, number: u64) {
        self.number(number);
    }

    fn show(&mut self, value: &dyn fmt::Display) {
        self.display(value);
    }
}

impl fmt::Write for Ink {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.str(text);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(write: impl FnOnce(&mut Ink)) -> String {
        let mut ink = Ink::new(false);
        write(&mut ink);
        String::from_utf8(ink.bytes).unwrap()
    }

    #[test]
    fn numbers_look_as_the_standard_library_writes_them() {
        for number in [0, 1, 0xf, 0x10, 0xff_ffff, u64::MAX >> 1, u64::MAX] {
            for digits in [0, 1, 4, 16] {
                let width = digits as usize;
                let hex = text(|ink| ink.hex_digits(number, digits));
                assert_eq!(
                    hex,
                    if number == 0 && digits == 0 {
                        String::new()
                    } else {
                        format!("{number:0width$x}")
                    }
                );
                assert_eq!(text(|ink| ink.digits(number, width)), format!("{number:0width$}"));
            }
        }
    }

    #[test]
    fn width_counts_characters() {
        let mut ink = Ink::new(false);
        ink.str("a→b");
        assert_eq!((ink.width_from(0), ink.width_from(1)), (3, 2));
    }

    #[test]
    fn without_colours_styles_leave_no_trace() {
        let mut ink = Ink::new(false);
        ink.style(Style::Red);
        ink.plain();
        assert_eq!(ink.at(), 0);
    }
}
