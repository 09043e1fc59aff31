//! Segmentation: a message and the packets that carry it.
//!
//! IBA vol 1 §9.7.2 (PSNs a message takes), §9.4 (First, Middle, Last, Only).

use roxe_wire::opcode::Position;
use roxe_wire::{Mtu, packets_for};

/// One packet of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    /// Where its payload begins in the message, in bytes.
    pub(crate) offset: u32,
    /// Bytes of payload.
    pub(crate) len: u32,
    /// Its place among the message's packets.
    pub(crate) position: Position,
}

/// The packet with number `index` (from 0) of a message of `len` bytes. `None` beyond the last.
//= BC-075
pub(crate) const fn segment(len: u32, mtu: Mtu, index: u32) -> Option<Segment> {
    let packets = packets_for(len, mtu.bytes());
    if index >= packets {
        return None;
    }
    let offset = index * mtu.bytes();
    let rest = len - offset;
    let last = index == packets - 1;
    Some(Segment {
        offset,
        len: if last { rest } else { mtu.bytes() },
        position: Position::of(index == 0, last),
    })
}

#[cfg(test)]
mod tests {
    use roxe_wire::MAX_MESSAGE_LEN;

    use super::*;

    //= 02-2.6, BC-075 test
    #[test]
    fn segments_tile_the_message() {
        for mtu in Mtu::ALL {
            let m = mtu.bytes();
            for len in [0, 1, m - 1, m, m + 1, 2 * m, 2 * m + 1, 5 * m - 3, MAX_MESSAGE_LEN] {
                let count = packets_for(len, m);
                assert_eq!(count, (len.div_ceil(m)).max(1));
                assert_eq!(segment(len, mtu, count), None);
                let last = segment(len, mtu, count - 1).unwrap();
                assert_eq!(last.offset + last.len, len);
                assert!(last.position.ends());
                assert_eq!(last.len == 0, len == 0);
                for index in (0..count - 1).take(7) {
                    let one = segment(len, mtu, index).unwrap();
                    assert_eq!((one.offset, one.len), (index * m, m));
                    assert_eq!(one.position.starts(), index == 0);
                    assert!(!one.position.ends());
                }
            }
        }
    }
}
