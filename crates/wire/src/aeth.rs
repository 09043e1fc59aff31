//! ACK extended transport header: what a responder has to say.

use core::fmt;

use crate::{DropReason, Msn, RnrTimer};

/// ACK Extended Transport Header. 4 bytes. IBA vol 1 §9.7.5.
///
/// ```text
///  0   | kind (3) | value (5) |   the syndrome
///  1-3 | MSN (24)             |
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aeth {
    /// ACK, "not ready" or NAK.
    pub syndrome: Syndrome,
    /// How many request messages the responder has completed.
    pub msn: Msn,
}

impl Aeth {
    /// Bytes.
    pub const LEN: usize = 4;

    /// Reads the header.
    ///
    /// # Errors
    /// [`DropReason::ReservedSyndrome`] when the top three bits are neither 000, 001 nor 011.
    pub const fn parse(bytes: [u8; Self::LEN]) -> Result<Self, DropReason> {
        let [syndrome, m2, m1, m0] = bytes;
        match Syndrome::from_byte(syndrome) {
            Some(syndrome) => {
                Ok(Self { syndrome, msn: Msn::new(u32::from_be_bytes([0, m2, m1, m0])) })
            }
            None => Err(DropReason::ReservedSyndrome { value: syndrome }),
        }
    }

    /// Writes the header.
    pub const fn emit(self) -> [u8; Self::LEN] {
        let [_, m2, m1, m0] = self.msn.get().to_be_bytes();
        [self.syndrome.to_byte(), m2, m1, m0]
    }
}

/// The first byte of an AETH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syndrome {
    /// Everything up to the packet's PSN has arrived.
    Ack(Credits),
    /// No receive buffer was there: wait so long, then send from the packet's PSN again.
    RnrNak(RnrTimer),
    /// Something is wrong at the packet's PSN; everything before has arrived.
    Nak(NakCode),
}

impl Syndrome {
    /// The meaning of a syndrome byte; `None` for the reserved kinds.
    //= 04-4.4
    pub const fn from_byte(byte: u8) -> Option<Self> {
        let value = byte & 0x1f;
        match byte >> 5 {
            0b000 => Some(Self::Ack(Credits::from_bits(value))),
            0b001 => Some(Self::RnrNak(RnrTimer::from_bits(value))),
            0b011 => Some(Self::Nak(NakCode::from_bits(value))),
            _ => None,
        }
    }

    /// The syndrome byte.
    pub const fn to_byte(self) -> u8 {
        match self {
            Self::Ack(credits) => credits.code(),
            Self::RnrNak(timer) => 0b001 << 5 | timer.code(),
            Self::Nak(code) => 0b011 << 5 | code.code(),
        }
    }
}

/// End-to-end flow control: how many receive buffers the responder has, as a code of five bits that
/// grows by half steps (0, 1, 2, 3, 4, 6, 8, 12, …, 32768). Code 31 says nothing.
/// IBA vol 1 §9.7.7.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Credits {
    code: u8,
}

impl Credits {
    /// "No flow control": what a responder with a shared receive queue sends.
    pub const INVALID: Self = Self { code: 31 };

    /// Keeps the low five bits, as the AETH field does.
    pub const fn from_bits(bits: u8) -> Self {
        Self { code: bits & 0x1f }
    }

    /// The largest code that promises no more than `buffers`.
    pub fn for_buffers(buffers: u32) -> Self {
        let above = CREDIT_COUNT.iter().position(|&count| u32::from(count) > buffers);
        #[expect(clippy::cast_possible_truncation, reason = "the table has 31 rows")]
        Self { code: above.unwrap_or(CREDIT_COUNT.len()) as u8 - 1 }
    }

    /// The five bits.
    pub const fn code(self) -> u8 {
        self.code
    }

    /// The number of buffers; `None` for [`Credits::INVALID`].
    pub fn count(self) -> Option<u32> {
        CREDIT_COUNT.get(usize::from(self.code)).map(|&count| u32::from(count))
    }
}

/// The buffers of each credit code.
const CREDIT_COUNT: [u16; 31] = [
    0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536,
    2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768,
];

/// Why a responder refuses: the low five bits of a NAK's syndrome. IBA vol 1 §9.7.5.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NakCode {
    /// 0: packets before this one are missing. The requester sends again from the NAK's PSN.
    PsnSequenceError,
    /// 1: the request breaks a rule or is not supported.
    InvalidRequest,
    /// 2: the key, the range or the permission is wrong.
    RemoteAccessError,
    /// 3: the responder could not complete the request for a reason of its own.
    RemoteOperationalError,
    /// 4: Reliable Datagram only.
    InvalidRdRequest,
    /// 5 ..= 31.
    Reserved(u8),
}

impl NakCode {
    /// The meaning of the low five bits.
    pub const fn from_bits(bits: u8) -> Self {
        match bits & 0x1f {
            0 => Self::PsnSequenceError,
            1 => Self::InvalidRequest,
            2 => Self::RemoteAccessError,
            3 => Self::RemoteOperationalError,
            4 => Self::InvalidRdRequest,
            other => Self::Reserved(other),
        }
    }

    /// The five bits.
    pub const fn code(self) -> u8 {
        match self {
            Self::PsnSequenceError => 0,
            Self::InvalidRequest => 1,
            Self::RemoteAccessError => 2,
            Self::RemoteOperationalError => 3,
            Self::InvalidRdRequest => 4,
            Self::Reserved(bits) => bits & 0x1f,
        }
    }

    /// In words, as the specification names it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::PsnSequenceError => "PSN sequence error",
            Self::InvalidRequest => "invalid request",
            Self::RemoteAccessError => "remote access error",
            Self::RemoteOperationalError => "remote operational error",
            Self::InvalidRdRequest => "invalid RD request",
            Self::Reserved(_) => "reserved code",
        }
    }
}

impl fmt::Display for NakCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    //= 04-4.4 test
    #[test]
    fn every_syndrome_round_trips_or_is_refused() {
        for byte in 0..=255u8 {
            match Aeth::parse([byte, 0x12, 0x34, 0x56]) {
                Ok(aeth) => assert_eq!(aeth.emit(), [byte, 0x12, 0x34, 0x56]),
                Err(reason) => {
                    assert_eq!(reason, DropReason::ReservedSyndrome { value: byte });
                    assert!(byte >= 0x80 || byte >> 5 == 0b010);
                }
            }
        }
    }

    /// From code 3 on, each count is twice the one two codes before it.
    //= 04-4.4 test
    #[test]
    fn credits_follow_their_own_pattern() {
        for code in 5..CREDIT_COUNT.len() {
            assert_eq!(CREDIT_COUNT[code], 2 * CREDIT_COUNT[code - 2], "code {code}");
        }
        assert_eq!(Credits::from_bits(9).count(), Some(24));
        assert_eq!(Credits::from_bits(10).count(), Some(32));
        assert_eq!(Credits::INVALID.count(), None);
    }

    #[test]
    fn credits_never_promise_more_than_there_is() {
        for buffers in 0..40_000 {
            let credits = Credits::for_buffers(buffers);
            assert!(credits.count().unwrap() <= buffers);
            let next = Credits::from_bits(credits.code() + 1).count();
            assert!(next.is_none_or(|count| count > buffers), "{buffers}");
        }
        assert_eq!(Credits::for_buffers(u32::MAX).count(), Some(32768));
    }
}
