//! A digest of bytes that can be joined and split: what stands for payload that is not there.
//!
//! Simulations of many hosts carry no payload, only its length and such a digest. Bytes are the
//! digits of one number modulo 2³², so the digest of two pieces follows from those of the pieces:
//! however a message is cut into packets and scattered, its digest can be computed along the way
//! and compared at the end.

/// The base of the digits. Odd, so that it can be divided by; else arbitrary.
const BASE: u32 = 0x0100_0193;

/// `BASE` to the power of -1.
const BASE_INVERSE: u32 = {
    let mut inverse = BASE;
    let mut right_bits = 3;
    while right_bits < 32 {
        inverse = inverse.wrapping_mul(2u32.wrapping_sub(BASE.wrapping_mul(inverse)));
        right_bits *= 2;
    }
    inverse
};

/// The digest of no bytes, and of any number of zeros.
pub const EMPTY: u32 = 0;

/// The digest of these bytes.
pub fn of(bytes: &[u8]) -> u32 {
    bytes.iter().fold(EMPTY, |digest, &byte| digest.wrapping_mul(BASE).wrapping_add(byte.into()))
}

/// The digest of one piece and another of `second_len` bytes behind it.
pub const fn join(first: u32, second: u32, second_len: u64) -> u32 {
    first.wrapping_mul(power(BASE, second_len)).wrapping_add(second)
}

/// The digest that a first piece must have so that it and `rest_len` zeros behind it have the
/// digest `whole`.
pub const fn before_zeros(whole: u32, rest_len: u64) -> u32 {
    whole.wrapping_mul(power(BASE_INVERSE, rest_len))
}

const fn power(mut base: u32, mut exponent: u64) -> u32 {
    let mut result: u32 = 1;
    while exponent > 0 {
        if exponent & 1 == 1 {
            result = result.wrapping_mul(base);
        }
        base = base.wrapping_mul(base);
        exponent >>= 1;
    }
    result
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    #[test]
    fn pieces_make_the_whole() {
        let bytes: Vec<u8> = (0..=255).collect();
        for cut in 0..bytes.len() {
            let (first, second) = bytes.split_at(cut);
            assert_eq!(join(of(first), of(second), second.len() as u64), of(&bytes));
        }
        assert_ne!(of(b"ab"), of(b"ba"));
        assert_eq!(of(&[]), EMPTY);
        assert_eq!(of(&[0; 9]), EMPTY);
    }

    #[test]
    fn zeros_behind_a_piece_can_be_taken_off() {
        assert_eq!(before_zeros(of(b"abc\0\0\0"), 3), of(b"abc"));
        for len in [0, 1, 4096, u64::MAX] {
            assert_eq!(join(before_zeros(0xdead_beef, len), EMPTY, len), 0xdead_beef);
        }
    }
}
