//! The part of a capture that is in memory: a buffer that slides over the input.

use std::io::{self, Read};

/// A place in a [`Window`], good until the window moves on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) from: usize,
    pub(super) len: usize,
}

/// A buffer that slides over the input. Its size never changes.
pub(super) struct Window {
    source: Box<dyn Read + Send>,
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
    /// Where `start` is in the input.
    offset: u64,
    ended: bool,
    cut: bool,
}

impl Window {
    pub(super) fn new(source: Box<dyn Read + Send>) -> Self {
        let bytes = vec![0; CAPACITY].into_boxed_slice();
        Self { source, bytes, start: 0, end: 0, offset: 0, ended: false, cut: false }
    }

    /// How much of the input lies before the window, in bytes.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// Whether the input has ended where a decompressor did not expect it.
    pub(super) fn is_cut(&self) -> bool {
        self.cut
    }

    /// The bytes read and not yet consumed.
    #[inline]
    pub(super) fn rest(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// The place of `len` bytes that begin `at` bytes into the window.
    #[inline]
    pub(super) fn span(&self, at: usize, len: usize) -> Span {
        Span { from: self.start + at, len }
    }

    #[inline]
    pub(super) fn get(&self, span: Span) -> &[u8] {
        &self.bytes[span.from..][..span.len]
    }

    /// Makes `len` bytes or more visible, reading no more than it must wait for. False when the
    /// input ends before. `len` is at most [`CAPACITY`].
    #[inline]
    pub(super) fn fill(&mut self, len: usize) -> io::Result<bool> {
        if self.end - self.start >= len { Ok(true) } else { self.refill(len) }
    }

    #[cold]
    fn refill(&mut self, len: usize) -> io::Result<bool> {
        debug_assert!(len <= CAPACITY, "the caller limits what it asks for");
        self.bytes.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        let limit = len.clamp(CHUNK, CAPACITY);
        while self.end < len && !self.ended {
            match self.source.read(&mut self.bytes[self.end..limit]) {
                Ok(0) => self.ended = true,
                Ok(read) => self.end += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    self.ended = true;
                    self.cut = true;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(self.end >= len)
    }

    /// Moves on by `len` bytes, which must be visible. They stay in place until the next call that
    /// reads.
    #[inline]
    pub(super) fn consume(&mut self, len: usize) {
        debug_assert!(len <= self.end - self.start, "only what is visible can be consumed");
        self.start += len;
        self.offset += len as u64;
    }

    /// Moves on by `len` bytes, seen or not. False when the input ends before.
    pub(super) fn skip(&mut self, mut len: u64) -> io::Result<bool> {
        loop {
            let visible = self.rest().len() as u64;
            let step = len.min(visible);
            self.consume(step as usize);
            len -= step;
            if len == 0 {
                return Ok(true);
            }
            if !self.fill(1)? {
                return Ok(false);
            }
        }
    }

    /// The input from the start of the window on, for somebody else to read.
    pub(super) fn into_source(self) -> Box<dyn Read + Send> {
        Box::new(io::Cursor::new(self.rest().to_vec()).chain(self.source))
    }
}

/// The most that can be visible at once, and so the longest block that can be looked into: a packet
/// of the largest size with eleven comments of the largest size.
pub(super) const CAPACITY: usize = 1024 * 1024;

/// How much is read at once. Small enough that what was read is still in the processor's second
/// level cache when it is looked at.
const CHUNK: usize = 256 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives `0, 1, 2, …` a few bytes at a time.
    struct Dribble(std::ops::Range<u8>);

    impl Read for Dribble {
        fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
            let len = room.len().min(3);
            Ok(room[..len].iter_mut().zip(&mut self.0).map(|(byte, next)| *byte = next).count())
        }
    }

    #[test]
    fn the_window_slides_over_short_reads() {
        let mut window = Window::new(Box::new(Dribble(0..20)));
        assert!(window.fill(5).unwrap());
        assert_eq!(window.rest()[..5], [0, 1, 2, 3, 4]);
        window.consume(2);
        let span = window.span(1, 2);
        assert_eq!(window.get(span), [3, 4]);
        assert!(window.skip(10).unwrap());
        assert_eq!(window.offset(), 12);
        assert!(window.fill(8).unwrap());
        assert_eq!(window.rest(), [12, 13, 14, 15, 16, 17, 18, 19]);
        assert!(!window.fill(9).unwrap());
        assert!(!window.skip(9).unwrap());
        assert_eq!(window.offset(), 20);
    }

    #[test]
    fn reading_does_not_wait_for_more_than_it_needs() {
        let mut window = Window::new(Box::new(Dribble(0..20)));
        assert!(window.fill(2).unwrap());
        assert_eq!(window.rest().len(), 3);
    }

    #[test]
    fn what_was_seen_is_handed_on() {
        let mut window = Window::new(Box::new(Dribble(0..9)));
        assert!(window.fill(4).unwrap());
        window.consume(1);
        let mut bytes = Vec::new();
        window.into_source().read_to_end(&mut bytes).unwrap();
        assert_eq!(bytes, [1, 2, 3, 4, 5, 6, 7, 8]);
    }
}
