//! What links do to the bytes of frames.

use crate::link::Passage;

/// What a link did to the bytes of a frame. Whether an ICRC can tell: the fifth byte of the BTH is
/// not covered.
pub(super) fn damage(frame: &mut Vec<u8>, body_at: usize, passage: Passage) -> bool {
    if passage.mark {
        mark(frame);
    }
    if let Some(bit) = passage.flip {
        frame[body_at + bit / 8] ^= 1 << (bit % 8);
    }
    if let Some(keep) = passage.keep {
        frame.truncate(body_at + keep);
    }
    passage.keep.is_some() || passage.flip.is_some_and(|bit| bit / 8 != 4)
}

/// Marks a frame without VLAN tag "congestion experienced".
fn mark(frame: &mut [u8]) {
    let ip = &mut frame[14..];
    if ip[0] >> 4 == 6 {
        ip[1] |= 0x30;
        return;
    }
    ip[1] |= 3;
    ip[10..12].fill(0);
    let words = ip[..20].chunks_exact(2);
    let sum: u32 = words.map(|word| u32::from(u16::from_be_bytes([word[0], word[1]]))).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let folded = (folded & 0xffff) + (folded >> 16);
    ip[10..12].copy_from_slice(&(!(folded as u16)).to_be_bytes());
}
