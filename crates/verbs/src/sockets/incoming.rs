//! What has come: the ring that the peer writes into, half by half, and what it is told of it.

use std::collections::VecDeque;

/// What is known of what has come.
#[derive(Debug)]
pub(super) struct Incoming {
    /// Messages that were not read to the end: bytes that are left of each.
    messages: VecDeque<u32>,
    /// How many there may be.
    most: u16,
    /// Bytes of the ring, where the first is that was not read, and how many follow that.
    size: u32,
    at: u32,
    unread: u32,
    /// Bytes that the peer may write beyond those.
    granted: u32,
    /// Bytes that were read and not granted again, and where the next half begins.
    returned: u32,
    half: u32,
    /// Messages that were read, and how many had been when the peer was told; both count around.
    read: u16,
    told: u16,
}

/// What the peer is to be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Grant {
    /// The message up to which it may send.
    pub(super) upto: u16,
    /// Where the half of the ring begins that it may write into, if it may.
    pub(super) half: Option<u32>,
}

impl Incoming {
    /// The peer knows the first half and `most` messages. The size is even.
    pub(super) fn new(most: u16, size: u32) -> Self {
        Self {
            messages: VecDeque::with_capacity(most.into()),
            most,
            size,
            at: 0,
            unread: 0,
            granted: size / 2,
            returned: size / 2,
            half: size / 2,
            read: 0,
            told: 0,
        }
    }

    /// A message came.
    ///
    /// # Errors
    /// It was not allowed to.
    pub(super) fn arrived(&mut self, len: u32) -> Result<(), &'static str> {
        if self.messages.len() >= self.most.into() {
            return Err("it sends more messages than it has credits for");
        }
        self.granted = self.granted.checked_sub(len).ok_or("it sends more bytes than fit")?;
        self.unread += len;
        self.messages.push_back(len);
        self.skip_empty();
        Ok(())
    }

    /// A message came that is no part of the stream, but took a credit.
    pub(super) fn arrived_aside(&mut self) {
        self.read = self.read.wrapping_add(1);
    }

    /// Those of no byte are read by being there.
    fn skip_empty(&mut self) {
        while self.messages.front() == Some(&0) {
            self.messages.pop_front();
            self.read = self.read.wrapping_add(1);
        }
    }

    /// Bytes that can be read.
    pub(super) const fn unread(&self) -> u32 {
        self.unread
    }

    /// Whether the peer may send nothing more before some of it is read.
    pub(super) fn is_full(&self) -> bool {
        self.granted == 0 || self.messages.len() >= self.most.into()
    }

    /// Where up to `len` bytes are that can be read: begin and length, of each of two pieces.
    pub(super) fn look(&self, len: usize) -> [(u32, u32); 2] {
        let len = u32::try_from(len).unwrap_or(u32::MAX).min(self.unread);
        let first = len.min(self.size - self.at);
        [(self.at, first), (0, len - first)]
    }

    /// So many of them were read.
    pub(super) fn consume(&mut self, len: u32) {
        self.at = (self.at + len) % self.size;
        self.unread -= len;
        self.returned += len;
        let mut left = len;
        while let Some(message) = self.messages.front_mut() {
            let of_this = left.min(*message);
            *message -= of_this;
            left -= of_this;
            if *message != 0 {
                break;
            }
            self.skip_empty();
        }
    }

    /// What the peer is to be told now: when half of the ring is free, or half of the credits are.
    pub(super) fn due(&self) -> Option<Grant> {
        let has_half = self.returned >= self.size / 2;
        let messages = self.read.wrapping_sub(self.told);
        (has_half || messages >= self.most / 2).then(|| Grant {
            upto: self.read.wrapping_add(self.most),
            half: has_half.then_some(self.half),
        })
    }

    /// It was told.
    pub(super) fn told(&mut self, grant: Grant) {
        self.told = self.read;
        if grant.half.is_some() {
            let half = self.size / 2;
            self.returned -= half;
            self.granted += half;
            self.half = (self.half + half) % self.size;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One that was told what it is told first: the second half.
    fn begun() -> Incoming {
        let mut incoming = Incoming::new(8, 100);
        let first = incoming.due().unwrap();
        assert_eq!(first, Grant { upto: 8, half: Some(50) });
        incoming.told(first);
        assert_eq!(incoming.due(), None);
        incoming
    }

    #[test]
    fn a_half_that_was_read_is_granted_again() {
        let mut incoming = begun();
        incoming.arrived(50).unwrap();
        incoming.arrived(30).unwrap();
        assert_eq!(incoming.look(1000), [(0, 80), (0, 0)]);
        incoming.consume(49);
        assert_eq!(incoming.due(), None);
        incoming.consume(1);
        let grant = incoming.due().unwrap();
        assert_eq!(grant, Grant { upto: 9, half: Some(0) });
        incoming.told(grant);
        incoming.arrived(20).unwrap();
        incoming.arrived(10).unwrap();
        assert_eq!(incoming.look(55), [(50, 50), (0, 5)]);
        assert_eq!(incoming.look(1000), [(50, 50), (0, 10)]);
        incoming.consume(60);
        assert_eq!((incoming.unread(), incoming.look(9)), (0, [(10, 0), (0, 0)]));
        assert_eq!(incoming.due(), Some(Grant { upto: 12, half: Some(50) }));
    }

    #[test]
    fn credits_are_told_when_half_of_them_were_used() {
        let mut incoming = begun();
        for _ in 0..8 {
            incoming.arrived(1).unwrap();
        }
        incoming.consume(3);
        assert_eq!(incoming.due(), None);
        incoming.consume(1);
        let grant = incoming.due().unwrap();
        assert_eq!(grant, Grant { upto: 12, half: None });
        incoming.told(grant);
        assert_eq!(incoming.due(), None);
        incoming.read = u16::MAX;
        incoming.told = u16::MAX - 4;
        assert_eq!(incoming.due(), Some(Grant { upto: 7, half: None }));
    }

    #[test]
    fn who_sends_more_than_it_may_is_found_out() {
        let mut incoming = begun();
        for _ in 0..8 {
            incoming.arrived(1).unwrap();
        }
        assert!(incoming.arrived(1).unwrap_err().contains("credits"));
        let mut incoming = begun();
        incoming.arrived(100).unwrap();
        assert!(incoming.arrived(1).unwrap_err().contains("bytes"));
        assert!(Incoming::new(8, 100).arrived(51).is_err(), "it knows of one half");
    }

    #[test]
    fn messages_of_no_byte_and_those_aside_give_their_credits_back() {
        let mut incoming = begun();
        incoming.arrived(0).unwrap();
        incoming.arrived(5).unwrap();
        incoming.arrived(0).unwrap();
        incoming.arrived_aside();
        assert_eq!(incoming.read, 2);
        incoming.consume(5);
        assert_eq!((incoming.read, incoming.unread()), (4, 0));
    }
}
