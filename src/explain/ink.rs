//! Text in the making: one buffer that is filled, written and filled again.
//!
//! The formatting machinery of the standard library takes longer for a number than reading the
//! whole frame did, so numbers and names go in directly here.

use std::fmt::{self, Write as _};

use roxe_trace::Words;

/// A buffer of text, with or without colours.
#[derive(Debug, Default)]
pub(crate) struct Ink {
    /// The text and room behind it: pieces of a fixed size, which need no loop, may reach there.
    room: Vec<u8>,
    len: usize,
    coloured: bool,
}

/// Hardly any gap in a line is wider.
const WIDE: usize = 32;

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
        Self { coloured, ..Self::default() }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.room[..self.len]
    }

    pub(crate) fn clear(&mut self) {
        self.len = 0;
    }

    /// Where the next byte goes.
    pub(crate) fn at(&self) -> usize {
        self.len
    }

    /// Takes back everything from `at` on.
    pub(crate) fn truncate(&mut self, at: usize) {
        self.len = self.len.min(at);
    }

    /// The `count` bytes behind the text.
    #[inline(always)]
    fn next(&mut self, count: usize) -> &mut [u8] {
        if self.room.len() - self.len < count {
            self.grow(count);
        }
        &mut self.room[self.len..][..count]
    }

    /// Makes room for `count` more bytes.
    #[cold]
    fn grow(&mut self, count: usize) {
        self.room.resize((self.len + count).next_power_of_two().max(1024), 0);
    }

    #[inline(always)]
    pub(crate) fn str(&mut self, text: &str) {
        self.next(text.len()).copy_from_slice(text.as_bytes());
        self.len += text.len();
    }

    #[inline(always)]
    pub(crate) fn byte(&mut self, byte: u8) {
        self.next(1)[0] = byte;
        self.len += 1;
    }

    /// Decimal.
    #[inline]
    pub(crate) fn number(&mut self, number: impl Into<u64>) {
        self.digits(number.into(), 1);
    }

    /// Decimal, with a minus where it is below 0.
    pub(crate) fn signed(&mut self, number: i64) {
        if number < 0 {
            self.byte(b'-');
        }
        self.number(number.unsigned_abs());
    }

    /// Decimal, with at least `digits` digits, and at least one.
    pub(crate) fn digits(&mut self, number: u64, digits: usize) {
        if number >= TEN_TO_8 || digits > 8 || self.room.len() - self.len < 8 {
            return self.long_digits(number, digits);
        }
        let found = eight_digits(number);
        let left_out = (found.trailing_zeros() as usize / 8).min(8 - digits.max(1));
        self.next(8).copy_from_slice(&((found | ZEROS) >> (8 * left_out)).to_le_bytes());
        self.len += 8 - left_out;
    }

    /// The same where more than eight digits are written, or there is no room for as many.
    #[cold]
    fn long_digits(&mut self, number: u64, digits: usize) {
        self.next(8);
        if number < TEN_TO_8 && digits <= 8 {
            return self.digits(number, digits);
        }
        self.digits(number / TEN_TO_8, digits.saturating_sub(8));
        self.digits(number % TEN_TO_8, 8);
    }

    /// Decimal, to the right of a cell of `width` characters, which grows with it; behind that
    /// `gap` spaces.
    #[inline]
    pub(crate) fn right(&mut self, number: u64, width: &mut usize, gap: usize) {
        if number >= TEN_TO_8 {
            return self.long_right(number, width, gap);
        }
        let found = eight_digits(number);
        let left_out = (found.trailing_zeros() as usize / 8).min(7);
        *width = (8 - left_out).max(*width);
        // In the place of a zero that is left out stands a space.
        let spaces = !(u64::MAX << (8 * left_out)) & (ZEROS ^ SPACES);
        let text = (found | ZEROS) ^ spaces;
        let at = self.len;
        self.fill(b' ', *width + gap);
        let (at, text) = match width.checked_sub(8) {
            Some(before) => (at + before, text),
            None => (at, (text >> (64 - 8 * *width)) | (SPACES << (8 * *width))),
        };
        self.room[at..at + 8].copy_from_slice(&text.to_le_bytes());
    }

    #[cold]
    fn long_right(&mut self, number: u64, width: &mut usize, gap: usize) {
        let digits = self::width(number);
        *width = digits.max(*width);
        self.fill(b' ', *width - digits);
        self.number(number);
        self.fill(b' ', gap);
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
        let needed = (u64::BITS - number.leading_zeros()).div_ceil(4).max(digits) as usize;
        let mut rest = number;
        for digit in self.next(needed).iter_mut().rev() {
            *digit = b"0123456789abcdef"[(rest & 0xf) as usize];
            rest >>= 4;
        }
        self.len += needed;
    }

    /// Anything that can be displayed: slower.
    pub(crate) fn display(&mut self, value: impl fmt::Display) {
        // Writing to memory cannot fail.
        let _ = write!(self, "{value}");
    }

    #[inline(always)]
    pub(crate) fn fill(&mut self, byte: u8, count: usize) {
        if count > WIDE || self.room.len() - self.len < WIDE {
            return self.fill_wide(byte, count);
        }
        self.next(WIDE).copy_from_slice(&[byte; WIDE]);
        self.len += count;
    }

    #[cold]
    fn fill_wide(&mut self, byte: u8, count: usize) {
        self.next(count.max(WIDE))[..count].fill(byte);
        self.len += count;
    }

    /// How many characters stand from `at` on.
    pub(crate) fn width_from(&self, at: usize) -> usize {
        let is_first = |byte: &&u8| **byte & 0xc0 != 0x80;
        self.bytes()[at..].iter().filter(is_first).count()
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

/// How many digits a number has.
pub(crate) fn width(number: u64) -> usize {
    number.checked_ilog10().map_or(1, |log| log as usize + 1)
}

const TEN_TO_8: u64 = 100_000_000;

/// In each byte the character of the digit 0.
const ZEROS: u64 = u64::from_ne_bytes([b'0'; 8]);

/// In each byte a space.
const SPACES: u64 = u64::from_ne_bytes([b' '; 8]);

/// The last eight digits of a number, the first of them in the lowest byte. All are found at once,
/// in halves: each is divided by multiplication with 2ⁿ over the divisor, which is exact for so few
/// digits.
const fn eight_digits(number: u64) -> u64 {
    let fours = (number / 10_000 % 10_000) | ((number % 10_000) << 32);
    let hundreds = ((fours * 10_486) >> 20) & 0x0000_007f_0000_007f;
    let twos = hundreds | ((fours - 100 * hundreds) << 16);
    let tens = ((twos * 103) >> 10) & 0x000f_000f_000f_000f;
    tens | ((twos - 10 * tens) << 8)
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
        String::from_utf8(ink.bytes().to_vec()).unwrap()
    }

    #[test]
    fn numbers_look_as_the_standard_library_writes_them() {
        let powers = (0..20).map(|power| 10_u64.pow(power)).flat_map(|it| [it - 1, it, it + 1]);
        let some = [0xf, 0x10, 0xff_ffff, 12_345_678, u64::MAX >> 1, u64::MAX];
        for number in powers.chain(some).chain(0..10_000) {
            let decimal = text(|ink| ink.number(number));
            assert_eq!((width(number), &*decimal), (decimal.len(), &*number.to_string()));
            let signed = number.cast_signed();
            assert_eq!(text(|ink| ink.signed(signed)), signed.to_string());
            for digits in [0, 1, 4, 20] {
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
    fn a_number_to_the_right_of_a_cell_has_spaces_before_it_and_behind() {
        for number in (0..20).map(|power| 10_u64.pow(power)).flat_map(|it| [it - 1, it]) {
            for width in 0..25 {
                let mut grown = width;
                let cell = text(|ink| ink.right(number, &mut grown, 2));
                assert_eq!(cell, format!("{number:>width$}  "));
                assert_eq!(grown, cell.len() - 2);
            }
        }
    }

    #[test]
    fn however_long_a_gap_is_nothing_but_the_gap_stands_in_it() {
        for count in [0, 1, 31, 32, 33, 5000] {
            let mut ink = Ink::new(false);
            ink.fill(b'-', 2000);
            ink.clear();
            ink.byte(b'a');
            ink.fill(b' ', count);
            ink.byte(b'b');
            assert_eq!(ink.bytes(), format!("a{:count$}b", "").as_bytes());
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
