//! A packet written first, framed afterwards.
//!
//! The engine says where a packet goes only when it has written it, and only then the length of
//! the headers before it is known: 42 bytes for IPv4, 62 for IPv6, four more behind a VLAN tag. So
//! the place of the BTH is a guess, the length that the last frame's headers had; a packet to
//! another kind of path is moved once.

use roxe_wire::{FrameTemplate, Mtu, Room, icrc};

use crate::port::{BATCH, Outgoing, Seal, Sent, Traffic};

/// Makes frames in memory that has two pieces at most.
#[derive(Debug)]
pub(crate) struct Framer {
    /// The longest frame that the network takes.
    max_frame: usize,
    /// Where the BTH of the next packet is put.
    guess: usize,
    /// A packet on its way to another place.
    moved: Vec<u8>,
}

/// What a source gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framed {
    /// A packet of `packet_len` bytes in a frame of `frame_len`.
    Frame { packet_len: usize, frame_len: usize },
    /// A packet that is too long for the network, or too short for the ICRC it should get.
    Unsendable,
    /// Nothing.
    Nothing,
}

impl Framer {
    pub(crate) fn new(max_frame: usize) -> Self {
        Self { max_frame, guess: 42, moved: Vec::new() }
    }

    /// Asks `source` for a packet and puts it into a frame that begins in `first`, which has room
    /// for all headers, and goes on in `second`.
    pub(crate) fn frame<'p>(
        &mut self,
        first: &mut [u8],
        second: &mut [u8],
        source: &mut dyn FnMut(Room<'_>) -> Option<Outgoing<'p>>,
    ) -> Framed {
        let room = Room { first: &mut first[self.guess..], second: &mut *second };
        let Some(Outgoing { path, len, seal }) = source(room) else {
            return Framed::Nothing;
        };
        let at = path.headers_len();
        let frame_len = at + len;
        let fits = frame_len <= self.max_frame
            && frame_len.max(self.guess + len) <= first.len() + second.len();
        let Some(packet_len) = u16::try_from(len).ok().filter(|_| fits) else {
            return Framed::Unsendable;
        };
        if at != self.guess {
            self.moved.resize(len, 0);
            copy_out(first, second, self.guess, &mut self.moved);
            copy_in(first, second, at, &self.moved);
            self.guess = at;
        }
        let Some(cover) = path.write(packet_len, IDENTIFICATION, first) else {
            return Framed::Unsendable;
        };
        if seal == Seal::Compute {
            let in_first = len.min(first.len() - at);
            let first = &mut first[at..at + in_first];
            if !icrc::seal(&cover, Room { first, second: &mut second[..len - in_first] }) {
                return Framed::Unsendable;
            }
        }
        Framed::Frame { packet_len: len, frame_len }
    }

    /// Puts what `source` gives into frames in `memory`, one after the other and a batch at most.
    /// `send` says whether a frame went out; those that did not are its to count.
    pub(crate) fn send_each<'p>(
        &mut self,
        memory: &mut [u8],
        traffic: &mut Traffic,
        source: &mut dyn FnMut(Room<'_>) -> Option<Outgoing<'p>>,
        mut send: impl FnMut(&[u8]) -> bool,
    ) -> Sent {
        let mut sent = Sent { packets: 0, more: true };
        while sent.more && sent.packets < BATCH {
            match self.frame(memory, &mut [], source) {
                Framed::Frame { packet_len, frame_len } => {
                    if send(&memory[..frame_len]) {
                        traffic.sent(packet_len);
                    }
                    sent.packets += 1;
                }
                Framed::Unsendable => {
                    traffic.tx_unsendable += 1;
                    sent.packets += 1;
                }
                Framed::Nothing => sent.more = false,
            }
        }
        sent
    }
}

/// The identification of every IPv4 header: with "don't fragment" set it means nothing, and a
/// receiver that does not see it can assume it.
const IDENTIFICATION: u16 = 0;

/// Copies what stands at `at` of the two pieces.
fn copy_out(first: &[u8], second: &[u8], at: usize, to: &mut [u8]) {
    let in_first = (first.len() - at).min(to.len());
    let (head, tail) = to.split_at_mut(in_first);
    head.copy_from_slice(&first[at..at + in_first]);
    tail.copy_from_slice(&second[..tail.len()]);
}

/// Copies to `at` of the two pieces.
fn copy_in(first: &mut [u8], second: &mut [u8], at: usize, from: &[u8]) {
    let in_first = first.len().saturating_sub(at).min(from.len());
    let (head, tail) = from.split_at(in_first);
    if !head.is_empty() {
        first[at..at + in_first].copy_from_slice(head);
    }
    if !tail.is_empty() {
        let at = (at + in_first) - first.len();
        second[at..at + tail.len()].copy_from_slice(tail);
    }
}

/// Bytes that a packet takes at most beside its payload, from the Ethernet header to the ICRC. IPv6
/// and UDP are in both of the sums.
pub(crate) const MAX_AROUND_PAYLOAD: usize = FrameTemplate::MAX + Mtu::HEADROOM as usize - (40 + 8);

#[cfg(test)]
mod tests;
