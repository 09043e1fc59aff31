//! Objects by number: how slots are given out and come back.
//!
//! A slot that came back waits its turn: it is given out again only after [`PATIENCE`] others came
//! back, or when there is no fresh one. So a stale number meets nobody, rather than a stranger, for
//! as long as that costs next to nothing.

use std::collections::VecDeque;

/// Gives out the numbers 0 .. `most`.
#[derive(Clone, Debug)]
pub struct SlotNumbers {
    /// Never given out so far: this one and all above it.
    fresh: u32,
    most: u32,
    /// Came back, the longest ago first.
    free: VecDeque<u32>,
}

impl SlotNumbers {
    /// None given out, `most` to give.
    pub const fn new(most: u32) -> Self {
        Self { fresh: 0, most, free: VecDeque::new() }
    }

    /// A number that nobody has; `None` when all are taken.
    pub fn take(&mut self) -> Option<u32> {
        if self.free.len() > PATIENCE || self.fresh == self.most {
            return self.free.pop_front();
        }
        self.fresh += 1;
        Some(self.fresh - 1)
    }

    /// The number comes back. Whoever calls this knows that it was out.
    pub fn give_back(&mut self, number: u32) {
        self.free.push_back(number);
    }
}

/// Objects by slot number, at most so many.
#[derive(Clone, Debug)]
pub struct Slots<T> {
    numbers: SlotNumbers,
    entries: Vec<Option<T>>,
    len: u32,
}

impl<T> Slots<T> {
    /// Empty, with room for `most` objects.
    pub const fn new(most: u32) -> Self {
        Self { numbers: SlotNumbers::new(most), entries: Vec::new(), len: 0 }
    }

    /// How many objects there are.
    pub const fn len(&self) -> u32 {
        self.len
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Keeps an object and says under which number; `None` when there is no room.
    pub fn insert(&mut self, object: T) -> Option<u32> {
        let number = self.numbers.take()?;
        if number as usize == self.entries.len() {
            self.entries.push(None);
        }
        *self.entries.get_mut(number as usize)? = Some(object);
        self.len += 1;
        Some(number)
    }

    /// The object with this number.
    pub fn get(&self, number: u32) -> Option<&T> {
        self.entries.get(number as usize)?.as_ref()
    }

    /// The object with this number, to be changed.
    pub fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        self.entries.get_mut(number as usize)?.as_mut()
    }

    /// Takes the object out; its number may be given to another later.
    pub fn remove(&mut self, number: u32) -> Option<T> {
        let object = self.entries.get_mut(number as usize)?.take()?;
        self.numbers.give_back(number);
        self.len -= 1;
        Some(object)
    }

    /// All objects, by rising number.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        (0..).zip(&self.entries).filter_map(|(number, entry)| Some((number, entry.as_ref()?)))
    }
}

/// How many slots wait for reuse while there are fresh ones.
pub const PATIENCE: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_removed_number_rests() {
        let mut slots = Slots::new(1000);
        let first = slots.insert('a').unwrap();
        assert_eq!(slots.remove(first), Some('a'));
        assert_eq!((slots.remove(first), slots.get(first)), (None, None));
        let churn = |slots: &mut Slots<char>| {
            let number = slots.insert('b').unwrap();
            slots.remove(number);
            number
        };
        for _ in 0..PATIENCE {
            assert_ne!(churn(&mut slots), first);
        }
        assert_eq!(churn(&mut slots), first);
        assert!(slots.is_empty());
    }

    #[test]
    fn the_last_slot_can_be_used_and_reused_at_once() {
        let mut slots = Slots::new(2);
        assert_eq!([slots.insert(10), slots.insert(11)], [Some(0), Some(1)]);
        assert_eq!((slots.insert(12), slots.len()), (None, 2));
        slots.remove(0);
        assert_eq!(slots.insert(13), Some(0));
        assert_eq!(slots.iter().collect::<Vec<_>>(), [(0, &13), (1, &11)]);
        *slots.get_mut(1).unwrap() = 20;
        assert_eq!(slots.get(1), Some(&20));
        assert_eq!(Slots::<()>::new(0).insert(()), None);
    }
}
