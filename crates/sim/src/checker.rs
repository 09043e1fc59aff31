//! What must hold: bytes that only one request could have put where they are, requests that
//! complete once and in order, atomics that happen one after the other.

use std::collections::{BTreeSet, VecDeque};

/// What memory holds where nobody wrote.
pub const UNTOUCHED: u8 = 0xee;

/// What an application writes over a buffer that it got back.
pub const USED: u8 = 0x5c;

/// The bytes that belong to `key`.
pub fn fill(key: u64, bytes: &mut [u8]) {
    let (words, rest) = bytes.as_chunks_mut::<8>();
    let mut number = 0;
    for word in words {
        *word = pattern(key, number);
        number += 1;
    }
    rest.copy_from_slice(&pattern(key, number)[..rest.len()]);
}

fn pattern(key: u64, word: u64) -> [u8; 8] {
    let mixed =
        (key ^ word.wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_mul(0xd1b5_4a32_d192_ed03);
    (mixed ^ mixed >> 29).to_le_bytes()
}

/// How many bytes from the first on are those of `key`.
pub fn matching(key: u64, bytes: &[u8]) -> usize {
    let whole = bytes.as_chunks::<8>().0.iter();
    let whole = (0u64..).zip(whole).take_while(|(word, chunk)| **chunk == pattern(key, *word));
    let words = whole.count();
    let mut same = words * 8;
    for (word, chunk) in (words as u64..).zip(bytes[same..].chunks(8)) {
        let expected = pattern(key, word);
        let here = chunk.iter().zip(expected).take_while(|(found, wanted)| **found == *wanted);
        let here = here.count();
        same += here;
        if here != chunk.len() {
            break;
        }
    }
    same
}

/// Whether all bytes are those of `key`.
///
/// # Errors
/// Where they are not.
pub fn all_of(key: u64, bytes: &[u8]) -> Result<(), String> {
    match matching(key, bytes) {
        same if same == bytes.len() => Ok(()),
        same => Err(format!("byte {same} of {} is 0x{:02x}, and wrong", bytes.len(), bytes[same])),
    }
}

/// Whether some bytes of `key` came, from the first on, and nothing else.
///
/// # Errors
/// Where something else is.
pub fn beginning_of(key: u64, bytes: &[u8]) -> Result<(), String> {
    untouched(&bytes[matching(key, bytes)..])
}

/// Whether nobody wrote here.
///
/// # Errors
/// Where somebody did.
pub fn untouched(bytes: &[u8]) -> Result<(), String> {
    match other_than(UNTOUCHED, bytes) {
        None => Ok(()),
        Some(at) => Err(format!("byte {at} of {} was written: 0x{:02x}", bytes.len(), bytes[at])),
    }
}

/// The first byte that is not `wanted`. Many are compared at once: most are what they should be.
pub fn other_than(wanted: u8, bytes: &[u8]) -> Option<usize> {
    let (chunks, rest) = bytes.as_chunks::<64>();
    let same = chunks.iter().take_while(|chunk| **chunk == [wanted; 64]).count() * 64;
    let rest = if same == chunks.len() * 64 { rest } else { &bytes[same..] };
    rest.iter().position(|byte| *byte != wanted).map(|at| same + at)
}

/// The requests of a send queue that have not completed, oldest first.
#[derive(Debug, Default)]
pub struct Outstanding {
    requests: VecDeque<(usize, bool)>,
}

impl Outstanding {
    /// A request was posted.
    pub fn post(&mut self, request: usize, signaled: bool) {
        self.requests.push_back((request, signaled));
    }

    /// A request completed. All before it that need no completion are done too: they are given to
    /// `silent`, in order.
    ///
    /// # Errors
    /// It was not outstanding, or its turn has not come.
    pub fn complete(
        &mut self,
        request: usize,
        mut silent: impl FnMut(usize),
    ) -> Result<(), String> {
        while let Some((next, signaled)) = self.requests.pop_front() {
            if next == request {
                return Ok(());
            }
            if signaled {
                return Err(format!("request {request} completed before {next}"));
            }
            silent(next);
        }
        Err(format!("request {request} completed, and was not outstanding"))
    }

    /// Nothing completes any more: what is left.
    pub fn take(&mut self) -> impl Iterator<Item = usize> {
        std::mem::take(&mut self.requests).into_iter().map(|(request, _)| request)
    }

    /// Whether a completion must still come.
    pub fn awaits_completion(&self) -> bool {
        self.requests.iter().any(|(_, signaled)| *signaled)
    }

    /// Whether nothing is outstanding.
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// How many are outstanding.
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// The oldest.
    pub fn front(&self) -> Option<usize> {
        self.requests.front().map(|(request, _)| *request)
    }
}

/// A number that several queue pairs add to, always as much.
#[derive(Debug)]
pub struct Sum {
    /// What is added each time.
    pub add: u64,
    start: u64,
    /// How many additions stand before each whose result is known.
    known: BTreeSet<u64>,
    /// Additions that may have happened, or not.
    unknown: u64,
}

impl Sum {
    /// A number that begins with `start`; `add` is odd.
    pub const fn new(start: u64, add: u64) -> Self {
        Self { add, start, known: BTreeSet::new(), unknown: 0 }
    }

    /// What it began with.
    pub const fn first(&self) -> u64 {
        self.start
    }

    /// An addition found `original` there.
    ///
    /// # Errors
    /// Another one did before, or that number never stood there.
    pub fn added(&mut self, original: u64, posted: u64) -> Result<(), String> {
        let turn = original.wrapping_sub(self.start).wrapping_mul(inverse(self.add));
        let turn = Some(turn)
            .filter(|turn| *turn < posted)
            .ok_or_else(|| format!("an addition found 0x{original:x}"))?;
        if self.known.insert(turn) {
            Ok(())
        } else {
            Err(format!("two additions found 0x{original:x}"))
        }
    }

    const fn at(&self, turn: u64) -> u64 {
        self.start.wrapping_add(self.add.wrapping_mul(turn))
    }

    /// Nobody knows whether an addition happened.
    pub const fn lost(&mut self) {
        self.unknown += 1;
    }

    /// Whether the number is what the additions make it.
    ///
    /// # Errors
    /// It is not.
    pub fn check(&self, value: u64) -> Result<(), String> {
        let known = self.known.len() as u64;
        let most = known + self.unknown;
        let count = (known..=most).find(|count| self.at(*count) == value);
        let Some(count) = count else {
            return Err(format!("a sum is 0x{value:x} after {known} to {most} additions"));
        };
        match self.known.last() {
            Some(last) if *last >= count => {
                Err(format!("a sum counts {count} additions, and one came after {last}"))
            }
            _ => Ok(()),
        }
    }
}

/// What an odd number is to be multiplied with to get 1, in 64 bits: Newton's method, which doubles
/// the right bits with each step.
const fn inverse(odd: u64) -> u64 {
    let mut guess = odd;
    let mut step = 0;
    while step < 5 {
        guess = guess.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(guess)));
        step += 1;
    }
    guess
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_known_by_their_key() {
        let mut bytes = [UNTOUCHED; 21];
        assert!(untouched(&bytes).is_ok() && beginning_of(7, &bytes).is_ok());
        fill(7, &mut bytes[..13]);
        assert!(beginning_of(7, &bytes).is_ok() && all_of(7, &bytes).is_err());
        assert!(beginning_of(8, &bytes).is_err());
        fill(7, &mut bytes);
        assert!(all_of(7, &bytes).is_ok());
        bytes[20] ^= 1;
        assert!(all_of(7, &bytes).is_err() && beginning_of(7, &bytes).is_err());
    }

    #[test]
    fn requests_complete_in_order_and_once() {
        let mut queue = Outstanding::default();
        for (request, signaled) in [(0, false), (1, true), (2, false), (3, true)] {
            queue.post(request, signaled);
        }
        let mut silent = Vec::new();
        assert!(queue.complete(1, |request| silent.push(request)).is_ok());
        assert_eq!(silent, [0]);
        assert!(queue.complete(1, |_| {}).is_err());
        let mut queue = Outstanding::default();
        queue.post(0, true);
        queue.post(1, true);
        assert!(queue.complete(1, |_| {}).is_err());
    }

    #[test]
    fn sums_leave_no_gap() {
        let mut sum = Sum::new(5, u64::MAX);
        assert!(sum.added(5, 3).is_ok() && sum.added(4, 3).is_ok());
        assert!(sum.added(4, 3).is_err() && sum.added(9, 3).is_err());
        assert!(sum.check(3).is_ok() && sum.check(2).is_err());
        sum.lost();
        assert!(sum.check(2).is_ok() && sum.check(1).is_err());
    }

    #[test]
    fn odd_numbers_have_inverses() {
        for odd in [1, 3, u64::MAX, 0x1_0000_0001, 0xdead_beef_0123_4567] {
            assert_eq!(odd.wrapping_mul(inverse(odd)), 1, "{odd:#x}");
        }
    }

    #[test]
    fn the_first_other_byte_is_found_wherever_it_is() {
        let mut bytes = [7; 200];
        assert_eq!(other_than(7, &bytes), None);
        for at in (0..200).rev() {
            bytes[at] = 8;
            assert_eq!(other_than(7, &bytes), Some(at));
        }
    }
}
