//! The small numbers of CM messages: some bits of a byte, or three bytes less a nibble.

use core::fmt;
use core::time::Duration;

use crate::field::{FieldValue, FieldVisitor};
use crate::mad::layout::{InBits, InBytes, Show, from_24, in_bytes, to_24};
use crate::wait_4096_ns;

/// A number of `WIDTH` bits, 1 ..= 7, that is only a number: a count or an unexplained code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bits<const WIDTH: u32>(u8);

impl<const WIDTH: u32> Bits<WIDTH> {
    /// The largest number.
    pub const MAX: Self = {
        assert!(WIDTH >= 1 && WIDTH <= 7);
        Self((1 << WIDTH) - 1)
    };

    /// Keeps the low bits, as the header field does.
    pub const fn new(value: u8) -> Self {
        Self(value & Self::MAX.0)
    }

    /// The number, or the largest one there is when `value` is larger.
    pub const fn saturating(value: u8) -> Self {
        if value < Self::MAX.0 { Self(value) } else { Self::MAX }
    }

    /// The number.
    pub const fn get(self) -> u8 {
        self.0
    }
}

impl<const WIDTH: u32> fmt::Display for Bits<WIDTH> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl<const WIDTH: u32> InBits for Bits<WIDTH> {
    fn from_field(bits: u8) -> Self {
        Self::new(bits)
    }
    fn to_field(self) -> u8 {
        self.0
    }
}

impl<const WIDTH: u32> Show for Bits<WIDTH> {
    type Names = &'static str;
    fn show(&self, name: &'static str, visit: &mut FieldVisitor<'_>) {
        visit(name, FieldValue::Number(self.0.into()));
    }
}

/// How long a CM message may take to be answered: 4.096 µs × 2^code, `code` 0 ..= 31.
///
/// Unlike an ACK timeout, code 0 is a wait like the others, the shortest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CmTimeout {
    code: u8,
}

impl CmTimeout {
    /// `None` above 31.
    pub const fn new(code: u8) -> Option<Self> {
        if code < 32 { Some(Self { code }) } else { None }
    }

    /// Keeps the low five bits, as the header field does.
    pub const fn from_bits(bits: u8) -> Self {
        Self { code: bits & 0x1f }
    }

    /// The five bits.
    pub const fn code(self) -> u8 {
        self.code
    }

    /// The wait, 4.096 µs up to 2.4 hours.
    pub const fn duration(self) -> Duration {
        wait_4096_ns(self.code)
    }
}

impl InBits for CmTimeout {
    fn from_field(bits: u8) -> Self {
        Self::from_bits(bits)
    }
    fn to_field(self) -> u8 {
        self.code
    }
}

impl Show for CmTimeout {
    type Names = &'static str;
    fn show(&self, name: &'static str, visit: &mut FieldVisitor<'_>) {
        visit(name, FieldValue::Number(self.code.into()));
    }
}

/// An IPv6 flow label: 20 bits that a sender gives to all packets of a flow. 0 means none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowLabel(u32);

impl FlowLabel {
    /// Keeps the low 20 bits, as the header field does.
    pub const fn new(value: u32) -> Self {
        Self(value & 0x000f_ffff)
    }

    /// The number, 0 ..= 2²⁰-1.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// From the three bytes whose last four bits belong to something else.
    pub(crate) const fn from_left(bytes: [u8; 3]) -> Self {
        Self(from_24(bytes) >> 4)
    }

    /// Three bytes whose last four bits are zero.
    pub(crate) const fn to_left(self) -> [u8; 3] {
        to_24(self.0 << 4)
    }
}

impl fmt::Display for FlowLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{:05x}", self.0)
    }
}

/// The vendor of an adapter, an IEEE OUI of 24 bits: names who defines the private options of
/// enhanced connection establishment. 0 when there are none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VendorId(u32);

impl VendorId {
    /// Keeps the low 24 bits, as the header field does.
    pub const fn new(value: u32) -> Self {
        Self(value & 0x00ff_ffff)
    }

    /// The number, 0 ..= 2²⁴-1.
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl fmt::Display for VendorId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{:06x}", self.0)
    }
}

/// What one side of a CM exchange calls it: 32 bits, unique among the sender's live exchanges and
/// not 0. In a REQ's answer both sides' numbers stand; afterwards each side knows the other's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommId(pub u32);

impl fmt::Display for CommId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{:08x}", self.0)
    }
}

#[rustfmt::skip]
in_bytes! {
    // type, bytes, from, to, how it is shown
    CommId, 4, |b| Self(u32::from_be_bytes(b)), |v: Self| v.0.to_be_bytes(),
        |v: Self| FieldValue::Hex32(v.0);
    VendorId, 3, |b| Self::new(from_24(b)), |v: Self| to_24(v.get()),
        |v: Self| FieldValue::Number(v.get().into());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_their_width() {
        assert_eq!(Bits::<3>::new(0xff).get(), 7);
        assert_eq!(Bits::<3>::new(8).get(), 0);
        assert_eq!(Bits::<3>::saturating(8), Bits::MAX);
        assert_eq!(Bits::<4>::saturating(14).get(), 14);
        assert_eq!(FlowLabel::new(0xfff1_2345).get(), 0x1_2345);
        assert_eq!(VendorId::new(0xff00_02c9).get(), 0x02c9);
    }

    #[test]
    fn timeouts_double_from_the_first() {
        assert_eq!(CmTimeout::default().duration(), Duration::from_nanos(4096));
        for code in 1..32 {
            let (shorter, longer) = (CmTimeout::from_bits(code - 1), CmTimeout::from_bits(code));
            assert_eq!(longer.duration(), 2 * shorter.duration(), "code {code}");
        }
        assert_eq!(CmTimeout::new(32), None);
    }
}
