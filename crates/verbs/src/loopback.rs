//! Packets of an adapter to itself.
//!
//! No network brings them back to who sent them. They are framed as for one, and read as from one,
//! by the same parser; only that they never leave the process, so that neither a recording nor a
//! fault rule of the port sees them.

use std::collections::VecDeque;

use roxe_wire::{Frame, FrameTemplate, ICRC_LEN, RawFrame, Received, Room, icrc};

/// Frames on their way back.
#[derive(Debug, Default)]
pub(crate) struct Loopback {
    frames: VecDeque<Vec<u8>>,
    /// Buffers to be used again.
    spare: Vec<Vec<u8>>,
    packets: u64,
}

impl Loopback {
    pub(crate) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Whether as many wait as are good for one batch.
    pub(crate) fn is_full(&self) -> bool {
        self.frames.len() >= BATCH
    }

    /// How many packets went this way.
    pub(crate) const fn packets(&self) -> u64 {
        self.packets
    }

    /// Takes the packet that stands in `room`, `len` bytes without its ICRC.
    pub(crate) fn put(&mut self, path: &FrameTemplate, room: &Room<'_>, len: usize) {
        let at = path.headers_len();
        let mut frame = self.spare.pop().unwrap_or_default();
        frame.clear();
        frame.resize(at, 0);
        let in_first = len.min(room.first.len());
        frame.extend_from_slice(&room.first[..in_first]);
        frame.extend_from_slice(&room.second[..len - in_first]);
        frame.resize(at + len + ICRC_LEN, 0);
        let packet_len = u16::try_from(len + ICRC_LEN).ok();
        let sealed =
            packet_len.and_then(|len| path.write(len, 0, &mut frame)).is_some_and(|cover| {
                icrc::seal(&cover, Room { first: &mut frame[at..], second: &mut [] })
            });
        if sealed {
            self.packets += 1;
            self.frames.push_back(frame);
        } else {
            self.spare.push(frame);
        }
    }

    /// Hands up all that waits.
    pub(crate) fn deliver(&mut self, mut sink: impl FnMut(Received<'_>)) {
        for frame in self.frames.drain(..) {
            if let Ok(frame) = Frame::parse(RawFrame::ethernet(&frame)) {
                sink(frame.received());
            }
            self.spare.push(frame);
        }
    }
}

/// As many as a port moves at once.
const BATCH: usize = 64;
