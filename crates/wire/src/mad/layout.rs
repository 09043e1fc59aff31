//! How a message's table in the specification becomes its struct, its parser and its emitter.
//!
//! [`message!`] takes the rows of a table, each with its position, and writes the struct, `parse`,
//! `emit` and the walk over the fields from them. So parsing and emitting cannot disagree, and two
//! rows that claim the same bit do not compile. Positions are written as the tables write them,
//! counted from the start of the 232 bytes behind the MAD header:
//!
//! | Position         | Meaning                                                                 |
//! |------------------|-------------------------------------------------------------------------|
//! | `[44:24]`        | 24 bits from byte 44, big endian                                        |
//! | `[43[7:3]]`      | bits 7 to 3 of byte 43; bit 7 is the most significant                   |
//! | `[15, 19, 23]`   | three bytes apart from each other, the most significant first           |
//! | `[9[7:1], 12:576]` | additional information: where its length stands, then where its bytes  |
//! | `[8:8, 12:576]`  | the same with a whole byte of length                                    |
//! | `[path 52]`      | a path from byte 52, laid out as in REQ                                 |
//! | `[lap_path 20]`  | a path from byte 20, laid out as in LAP                                 |
//!
//! Bits that no row claims are reserved: `parse` accepts any value there and forgets it, `emit`
//! writes zeros.

use core::net::IpAddr;

use crate::field::{FieldValue, FieldVisitor};
use crate::{AckTimeout, EeContext, Gid, PKey, Psn, QKey, Qpn, StaticRate};

/// What follows the MAD header.
pub(crate) type Data = [u8; DATA_LEN];

/// A value that fills whole bytes.
pub(crate) trait InBytes<const N: usize>: Copy {
    fn from_bytes(bytes: [u8; N]) -> Self;
    fn to_bytes(self) -> [u8; N];
}

/// A value that fills some bits of one byte. Bits arrive moved to the right end.
pub(crate) trait InBits: Copy {
    fn from_field(bits: u8) -> Self;
    fn to_field(self) -> u8;
}

/// A value with a name or several: some fields are told as a code and in words.
pub(crate) trait Show {
    type Names;
    fn show(&self, names: Self::Names, visit: &mut FieldVisitor<'_>);
}

/// The `N` bytes at `AT`. An area outside of the data does not compile.
pub(crate) fn take<const AT: usize, const N: usize>(data: &Data) -> [u8; N] {
    const { assert!(AT + N <= DATA_LEN) };
    let mut bytes = [0; N];
    bytes.copy_from_slice(&data[AT..AT + N]);
    bytes
}

/// Adds the bytes at `AT` to data that is still zero there.
pub(crate) fn put<const AT: usize, const N: usize>(data: &mut Data, bytes: [u8; N]) {
    const { assert!(AT + N <= DATA_LEN) };
    data[AT..AT + N].iter_mut().zip(bytes).for_each(|(place, byte)| *place |= byte);
}

/// Bits `HIGH` to `LOW` of the byte at `AT`, moved to the right end.
pub(crate) const fn take_bits<const AT: usize, const HIGH: u8, const LOW: u8>(data: &Data) -> u8 {
    const { assert!(AT < DATA_LEN && LOW <= HIGH && HIGH < 8) };
    (data[AT] & bit_mask(HIGH, LOW)) >> LOW
}

/// Adds bits `HIGH` to `LOW` to the byte at `AT`, which is still zero there.
pub(crate) const fn put_bits<const AT: usize, const HIGH: u8, const LOW: u8>(
    data: &mut Data,
    bits: u8,
) {
    const { assert!(AT < DATA_LEN && LOW <= HIGH && HIGH < 8) };
    data[AT] |= (bits << LOW) & bit_mask(HIGH, LOW);
}

/// Ones from bit `high` to bit `low`.
pub(crate) const fn bit_mask(high: u8, low: u8) -> u8 {
    (0xff >> (7 - high)) & (0xff << low)
}

/// Marks the bits in `mask`, which starts at byte `at`, as spoken for.
///
/// # Panics
/// When one of them is already. Only constants call this, so that is a compile error.
pub(crate) const fn claim(mut used: Data, at: usize, mask: &[u8]) -> Data {
    let mut i = 0;
    while i < mask.len() {
        assert!(used[at + i] & mask[i] == 0, "two rows of the table claim the same bit");
        used[at + i] |= mask[i];
        i += 1;
    }
    used
}

/// The value at a position.
macro_rules! read_at {
    ($data:ident, [path $at:literal]) => {
        Path::from_req(layout::take::<$at, { Path::LEN }>($data))
    };
    ($data:ident, [lap_path $at:literal]) => {
        Path::from_lap(layout::take::<$at, { Path::LEN }>($data))
    };
    ($data:ident, [$at:literal : $width:literal]) => {
        layout::InBytes::from_bytes(layout::take::<$at, { $width / 8 }>($data))
    };
    ($data:ident, [$at:literal [$high:literal : $low:literal]]) => {
        layout::InBits::from_field(layout::take_bits::<$at, $high, $low>($data))
    };
    ($data:ident, [$a:literal, $b:literal, $c:literal]) => {
        layout::InBytes::from_bytes([$data[$a], $data[$b], $data[$c]])
    };
    ($data:ident, [$at:literal [$high:literal : $low:literal], $bytes:literal : 576]) => {
        AdditionalInfo::read(
            layout::take_bits::<$at, $high, $low>($data),
            layout::take::<$bytes, { AdditionalInfo::MAX_LEN }>($data),
        )?
    };
    ($data:ident, [$at:literal : 8, $bytes:literal : 576]) => {
        read_at!($data, [$at [7:0], $bytes : 576])
    };
}

/// Puts a value at a position.
macro_rules! write_at {
    ($data:ident, [path $at:literal], $value:expr) => {
        layout::put::<$at, { Path::LEN }>(&mut $data, $value.to_req())
    };
    ($data:ident, [lap_path $at:literal], $value:expr) => {
        layout::put::<$at, { Path::LEN }>(&mut $data, $value.to_lap())
    };
    ($data:ident, [$at:literal : $width:literal], $value:expr) => {
        layout::put::<$at, { $width / 8 }>(&mut $data, layout::InBytes::to_bytes($value))
    };
    ($data:ident, [$at:literal [$high:literal : $low:literal]], $value:expr) => {
        layout::put_bits::<$at, $high, $low>(&mut $data, layout::InBits::to_field($value))
    };
    ($data:ident, [$a:literal, $b:literal, $c:literal], $value:expr) => {
        [$data[$a], $data[$b], $data[$c]] = layout::InBytes::to_bytes($value)
    };
    ($data:ident, [$at:literal [$high:literal : $low:literal], $bytes:literal : 576],
     $value:expr) => {{
        layout::put_bits::<$at, $high, $low>(&mut $data, $value.wire_len());
        layout::put::<$bytes, { AdditionalInfo::MAX_LEN }>(&mut $data, $value.wire_bytes());
    }};
    ($data:ident, [$at:literal : 8, $bytes:literal : 576], $value:expr) => {
        write_at!($data, [$at [7:0], $bytes : 576], $value)
    };
}

/// The bits that a position covers, added to those already covered.
macro_rules! claim_at {
    ($used:ident, [path $at:literal]) => {
        layout::claim($used, $at, &Path::USED_IN_REQ)
    };
    ($used:ident, [lap_path $at:literal]) => {
        layout::claim($used, $at, &Path::USED_IN_LAP)
    };
    // A flow label is the one field that ends inside a byte; it stands in paths only.
    ($used:ident, [$at:literal : $width:literal]) => {{
        const { assert!($width % 8 == 0) };
        layout::claim($used, $at, &[0xff; $width / 8])
    }};
    ($used:ident, [$at:literal [$high:literal : $low:literal]]) => {
        layout::claim($used, $at, &[layout::bit_mask($high, $low)])
    };
    ($used:ident, [$a:literal, $b:literal, $c:literal]) => {
        layout::claim(layout::claim(layout::claim($used, $a, &[0xff]), $b, &[0xff]), $c, &[0xff])
    };
    ($used:ident, [$at:literal [$high:literal : $low:literal], $bytes:literal : 576]) => {
        layout::claim(claim_at!($used, [$at [$high : $low]]), $bytes, &[0xff; 72])
    };
    ($used:ident, [$at:literal : 8, $bytes:literal : 576]) => {
        claim_at!($used, [$at [7:0], $bytes : 576])
    };
}

/// Makes a message of its table: see the module's documentation.
///
/// A row is `position field: Type => names;`. The names are those under which the field is shown.
macro_rules! message {
    (
        $(#[$doc:meta])*
        $name:ident {
            $( $(#[$field_doc:meta])* [$($position:tt)+] $field:ident: $type:ty => $names:expr; )+
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name {
            $(
                $(#[$field_doc])*
                #[doc = concat!("\n\nPosition: `", stringify!([$($position)+]), "`.")]
                pub $field: $type,
            )+
        }

        impl $name {
            /// The bits that are not reserved.
            pub(crate) const USED: layout::Data = {
                let used = [0; layout::DATA_LEN];
                $( let used = claim_at!(used, [$($position)+]); )+
                used
            };

            /// Reads the bytes behind the MAD header. Reserved bits may have any value and are
            /// not kept.
            ///
            /// # Errors
            /// [`DropReason::Truncated`] when a length inside the message exceeds its area; only
            /// messages with additional information have one.
            pub fn parse(data: &[u8; 232]) -> Result<Self, DropReason> {
                Ok(Self { $( $field: read_at!(data, [$($position)+]), )+ })
            }

            /// The bytes behind the MAD header. Reserved bits are zero.
            pub fn emit(&self) -> [u8; 232] {
                let mut data = [0; layout::DATA_LEN];
                $( write_at!(data, [$($position)+], self.$field); )+
                data
            }

            /// Visits the fields in the table's order.
            pub(crate) fn show_table(&self, visit: &mut FieldVisitor<'_>) {
                $( layout::Show::show(&self.$field, $names, visit); )+
            }
        }

        // Evaluated here, so that two rows with a bit in common do not compile.
        const _: layout::Data = $name::USED;
    };
}

/// Makes an enum of a table of codes: `code Variant "words";`. Codes that no row names are kept.
macro_rules! codes {
    (
        $(#[$doc:meta])*
        $name:ident: $repr:ty {
            $( $code:literal $variant:ident $words:literal; )+
        }
    ) => {
        $(#[$doc])*
        ///
        /// The default is code 0.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name {
            $(
                #[doc = concat!($words, ": code ", stringify!($code), ".")]
                $variant,
            )+
            /// A code that no other variant names. [`from_code`](Self::from_code) makes one only
            /// then; emitting writes the code as it is.
            Unknown($repr),
        }

        impl $name {
            /// Every code with a name, in the table's order.
            pub const ALL: &[Self] = &[$( Self::$variant, )+];

            /// The meaning of a code.
            pub const fn from_code(code: $repr) -> Self {
                match code {
                    $( $code => Self::$variant, )+
                    other => Self::Unknown(other),
                }
            }

            /// The code on the wire.
            pub const fn code(self) -> $repr {
                match self {
                    $( Self::$variant => $code, )+
                    Self::Unknown(other) => other,
                }
            }

            /// The meaning in words; "unknown" for a code without a name.
            pub const fn words(self) -> &'static str {
                match self {
                    $( Self::$variant => $words, )+
                    Self::Unknown(_) => "unknown",
                }
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self::from_code(0)
            }
        }

        /// Words and code: `invalid service ID (8)`.
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{} ({})", self.words(), self.code())
            }
        }

        impl layout::InBytes<{ size_of::<$repr>() }> for $name {
            fn from_bytes(bytes: [u8; size_of::<$repr>()]) -> Self {
                Self::from_code(<$repr>::from_be_bytes(bytes))
            }
            fn to_bytes(self) -> [u8; size_of::<$repr>()] {
                self.code().to_be_bytes()
            }
        }

        /// The code, then the words.
        impl layout::Show for $name {
            type Names = [&'static str; 2];
            fn show(&self, [code, words]: Self::Names, visit: &mut FieldVisitor<'_>) {
                visit(code, FieldValue::Number(self.code().into()));
                visit(words, FieldValue::Text(self.words()));
            }
        }
    };
}

pub(crate) use {claim_at, codes, message, read_at, write_at};

/// Implements [`InBytes`] and [`Show`] for a number.
macro_rules! in_bytes {
    ($( $type:ty, $len:literal, $from:expr, $to:expr, $show:expr; )+) => { $(
        impl InBytes<$len> for $type {
            fn from_bytes(bytes: [u8; $len]) -> Self {
                $from(bytes)
            }
            fn to_bytes(self) -> [u8; $len] {
                $to(self)
            }
        }

        impl Show for $type {
            type Names = &'static str;
            fn show(&self, name: &'static str, visit: &mut FieldVisitor<'_>) {
                visit(name, $show(*self));
            }
        }
    )+ };
}

pub(crate) use in_bytes;

#[rustfmt::skip]
in_bytes! {
    // type, bytes, from, to, how it is shown
    u8, 1, u8::from_be_bytes, u8::to_be_bytes, |v: Self| FieldValue::Number(v.into());
    u16, 2, u16::from_be_bytes, u16::to_be_bytes, |v: Self| FieldValue::Number(v.into());
    u64, 8, u64::from_be_bytes, u64::to_be_bytes, FieldValue::Hex64;
    Psn, 3, |b| Self::new(from_24(b)), |v: Self| to_24(v.get()), number_24(Self::get);
    Qpn, 3, |b| Self::new(from_24(b)), |v: Self| to_24(v.get()), number_24(Self::get);
    EeContext, 3, |b| Self::new(from_24(b)), |v: Self| to_24(v.get()), number_24(Self::get);
    QKey, 4, |b| Self(u32::from_be_bytes(b)), |v: Self| v.0.to_be_bytes(),
        |v: Self| FieldValue::Hex32(v.0);
    PKey, 2, |b| Self(u16::from_be_bytes(b)), |v: Self| v.0.to_be_bytes(),
        |v: Self| FieldValue::Number(v.0.into());
}

/// How a number of 24 bits is shown.
fn number_24<T>(get: impl Fn(T) -> u32) -> impl Fn(T) -> FieldValue<'static> {
    move |value| FieldValue::Number(get(value).into())
}

/// A number of three bytes.
pub(crate) const fn from_24([high, middle, low]: [u8; 3]) -> u32 {
    u32::from_be_bytes([0, high, middle, low])
}

/// The three bytes of a number below 2²⁴.
pub(crate) const fn to_24(value: u32) -> [u8; 3] {
    let [_, high, middle, low] = value.to_be_bytes();
    [high, middle, low]
}

impl InBits for bool {
    fn from_field(bits: u8) -> Self {
        bits != 0
    }
    fn to_field(self) -> u8 {
        self.into()
    }
}

impl Show for bool {
    type Names = &'static str;
    fn show(&self, name: &'static str, visit: &mut FieldVisitor<'_>) {
        visit(name, FieldValue::Flag(*self));
    }
}

impl Show for AckTimeout {
    type Names = &'static str;
    fn show(&self, name: &'static str, visit: &mut FieldVisitor<'_>) {
        visit(name, FieldValue::Number(self.code().into()));
    }
}

impl Show for StaticRate {
    type Names = &'static str;
    fn show(&self, name: &'static str, visit: &mut FieldVisitor<'_>) {
        visit(name, FieldValue::Number(self.code().into()));
    }
}

/// Under the first name a GID that is IPv6, under the second one that is IPv4.
impl Show for Gid {
    type Names = [&'static str; 2];
    fn show(&self, [v6, v4]: Self::Names, visit: &mut FieldVisitor<'_>) {
        match self.to_ip() {
            address @ IpAddr::V4(_) => visit(v4, FieldValue::Address(address)),
            IpAddr::V6(_) => visit(v6, FieldValue::Gid(*self)),
        }
    }
}

/// The bytes of a management datagram behind its header.
pub(crate) const DATA_LEN: usize = 232;
