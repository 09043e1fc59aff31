//! How a stream is to be, and how calls wait and read.

use std::time::Duration;

use crate::sockets::wire::MapCount;

/// How large everything of a stream is. What is out of range is taken as the nearest that is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamOptions {
    /// Bytes that may be under way: the ring that is sent from.
    pub send_buffer: u32,
    /// Bytes that may wait to be read: the ring that the peer writes into.
    pub receive_buffer: u32,
    /// Requests in the send queue, four of which are for what the sockets say to each other.
    pub send_queue: u32,
    /// Requests in the receive queue: the messages that the peer may have under way.
    pub receive_queue: u32,
    /// Up to so many bytes are sent inline.
    pub inline: u32,
    /// Pieces of memory that the peer may open to this side at once. Up to 128 exactly, beyond in
    /// steps of 256.
    pub maps: u32,
    /// DSCP in the upper six bits, ECN in the lower two.
    pub traffic_class: u8,
}

impl Default for StreamOptions {
    /// As rdma-core has them where nobody says otherwise.
    fn default() -> Self {
        Self {
            send_buffer: 1 << 17,
            receive_buffer: 1 << 17,
            send_queue: 384,
            receive_queue: 384,
            inline: 64,
            maps: 0,
            traffic_class: 0,
        }
    }
}

/// What a request for a piece of a table says, which always is sent inline.
const LEAST_INLINE: u32 = 24;

/// Less of a send buffer is not worth a message.
const LEAST_SEND: u32 = 4096;

/// A buffer has no more: its halves are told in 32 bits, and a message in 29.
const MOST_BYTES: u32 = 1 << 29;

/// Requests in a queue, as rdma-core has them.
const LEAST_REQUESTS: u32 = 16;

impl StreamOptions {
    /// The same within what sockets and the adapter can: `most_requests` in a queue, `most_inline`
    /// bytes in a request.
    pub(super) fn within(self, most_requests: u32, most_inline: u32) -> Self {
        let most_requests = most_requests.min(0x7ffe);
        let requests = |asked: u32| asked.clamp(LEAST_REQUESTS, most_requests);
        Self {
            send_buffer: self.send_buffer.clamp(LEAST_SEND, MOST_BYTES),
            receive_buffer: self.receive_buffer.clamp(2, MOST_BYTES) & !1,
            send_queue: requests(self.send_queue),
            receive_queue: requests(self.receive_queue),
            inline: self.inline.min(most_inline),
            maps: MapCount::nearest(self.maps).get(),
            ..self
        }
    }

    /// What the queue pair must take inline.
    pub(super) fn queue_pair_inline(self) -> u32 {
        self.inline.max(LEAST_INLINE)
    }
}

/// How long a call waits.
#[derive(Clone, Copy)]
pub enum Patience<'a> {
    /// Not at all: it fails with [`SocketError::WouldBlock`](super::SocketError::WouldBlock).
    None,
    /// At most so long.
    For(Duration),
    /// Until a signal was handled in this thread and this says that it is the end.
    Unless(&'a dyn Fn() -> bool),
}

impl Patience<'_> {
    /// As long as it takes.
    pub const EVER: Self = Self::For(Duration::MAX);

    /// A signal was handled: whether it is the end.
    pub(super) fn is_interrupted(self) -> bool {
        matches!(self, Self::Unless(interrupts) if interrupts())
    }
}

/// How a stream is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// What is read stays.
    pub peek: bool,
    /// Waits until all of the place is filled, or the stream ends.
    pub all: bool,
}

impl Reading {
    /// Whatever is there.
    pub const SOME: Self = Self { peek: false, all: false };
    /// All that was asked for.
    pub const ALL: Self = Self { peek: false, all: true };
    /// Whatever is there, which stays.
    pub const PEEK: Self = Self { peek: true, all: false };
}
