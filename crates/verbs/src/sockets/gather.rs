//! What one call sends: pieces, one behind the other, of which each message takes what it can.

/// The bytes of pieces that were not sent yet.
pub(super) struct Gather<'a, I> {
    /// What is left of the piece that was begun, and those behind it.
    begun: &'a [u8],
    pieces: I,
    left: usize,
}

impl<'a, I: Iterator<Item = &'a [u8]> + Clone> Gather<'a, I> {
    /// Of all these pieces. Some may be empty.
    pub(super) fn new(pieces: I) -> Self {
        let left = pieces.clone().map(<[u8]>::len).fold(0, usize::saturating_add);
        Self { begun: &[], pieces, left }
    }

    /// How many bytes they are.
    pub(super) const fn left(&self) -> usize {
        self.left
    }

    /// How many of them lie together from here on: none at the end.
    pub(super) fn together(&mut self) -> usize {
        while self.begun.is_empty()
            && let Some(piece) = self.pieces.next()
        {
            self.begun = piece;
        }
        self.begun.len()
    }

    /// Takes those that lie together from here on, as many as that at most.
    pub(super) fn take(&mut self, most: usize) -> &'a [u8] {
        let len = self.together().min(most);
        let (taken, rest) = self.begun.split_at(len);
        self.begun = rest;
        self.left = self.left.saturating_sub(taken.len());
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_together_is_taken_together() {
        let pieces: [&[u8]; 5] = [b"", b"abc", b"", b"d", b""];
        let mut gather = Gather::new(pieces.into_iter());
        assert_eq!((gather.left(), gather.together()), (4, 3));
        assert_eq!(gather.take(0), b"");
        assert_eq!(gather.take(2), b"ab");
        assert_eq!((gather.left(), gather.together()), (2, 1));
        assert_eq!(gather.take(9), b"c");
        assert_eq!(gather.take(9), b"d");
        assert_eq!((gather.left(), gather.together(), gather.take(9)), (0, 0, &b""[..]));
    }
}
