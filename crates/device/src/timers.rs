//! One deadline per queue pair, and the earliest of all.
//!
//! A deadline that moves later, as an ACK timer does with every acknowledgement, costs nothing: the
//! entry stays where it is in the heap, and when it comes up the queue pair is asked again. One
//! that moves earlier takes its entry along. So a call may be spurious, never late, and there are
//! never more entries than queue pairs.

use roxe_wire::Instant;

/// What a queue pair's slot remembers of its deadline: when its entry comes up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Armed(Option<Instant>);

/// The deadlines of all queue pairs, by slot.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    /// A binary heap, the earliest first, with one entry a slot at the most.
    heap: Vec<(Instant, u32)>,
    /// For each slot where in the heap its entry is, or [`NOWHERE`].
    places: Vec<u32>,
}

/// The place of an entry that there is not.
const NOWHERE: u32 = u32::MAX;

impl Timers {
    /// The queue pair in `slot` wants to be called at `deadline`. Mostly there is nothing to do,
    /// and that is found out where this is called.
    #[inline]
    pub(crate) fn arm(&mut self, slot: u32, armed: &mut Armed, deadline: Option<Instant>) {
        if let Some(deadline) = deadline
            && armed.0.is_none_or(|at| at > deadline)
        {
            self.enter(slot, armed, deadline);
        }
    }

    #[inline(never)]
    fn enter(&mut self, slot: u32, armed: &mut Armed, deadline: Instant) {
        let index = slot as usize;
        if self.places.len() <= index {
            self.places.resize(index + 1, NOWHERE);
        }
        let place = match self.places[index] {
            NOWHERE => {
                self.heap.push((deadline, slot));
                self.heap.len() - 1
            }
            place => place as usize,
        };
        // The slot may have had another queue pair, which wanted to be called earlier.
        let at = deadline.min(self.heap[place].0);
        self.heap[place].0 = at;
        armed.0 = Some(at);
        self.rise(place);
    }

    /// When the earliest deadline is, or was once.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.heap.first().map(|(at, _)| *at)
    }

    /// A slot whose deadline has come. It is not armed any more: see [`Armed::disarm`].
    pub(crate) fn pop(&mut self, now: Instant) -> Option<u32> {
        let (_, slot) = *self.heap.first().filter(|(at, _)| *at <= now)?;
        self.heap.swap_remove(0);
        self.places[slot as usize] = NOWHERE;
        self.sink(0);
        Some(slot)
    }

    /// Moves an entry before those that are later.
    fn rise(&mut self, mut at: usize) {
        while at > 0 && self.heap[at].0 < self.heap[(at - 1) / 2].0 {
            self.swap(at, (at - 1) / 2);
            at = (at - 1) / 2;
        }
        self.note(at);
    }

    /// Moves an entry behind those that are earlier.
    fn sink(&mut self, mut at: usize) {
        loop {
            let children = 2 * at + 1..self.heap.len().min(2 * at + 3);
            let earliest = children.min_by_key(|child| self.heap[*child].0);
            let Some(child) = earliest.filter(|child| self.heap[*child].0 < self.heap[at].0) else {
                return self.note(at);
            };
            self.swap(at, child);
            at = child;
        }
    }

    fn swap(&mut self, one: usize, other: usize) {
        self.heap.swap(one, other);
        self.note(one);
        self.note(other);
    }

    /// Remembers where an entry is, if there is one.
    fn note(&mut self, at: usize) {
        if let Some((_, slot)) = self.heap.get(at) {
            self.places[*slot as usize] = at as u32;
        }
    }
}

impl Armed {
    /// The deadline is over.
    pub(crate) fn disarm(&mut self) {
        self.0 = None;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_deadline_has_one_entry_that_moves_earlier_only() {
        let mut timers = Timers::default();
        let mut armed = Armed::default();
        let at = Instant::from_nanos;
        timers.arm(3, &mut armed, Some(at(100)));
        timers.arm(3, &mut armed, Some(at(200)));
        timers.arm(3, &mut armed, Some(at(50)));
        timers.arm(3, &mut armed, None);
        assert_eq!((timers.heap.len(), timers.next()), (1, Some(at(50))));
        assert_eq!(timers.pop(at(49)), None);
        assert_eq!(timers.pop(at(50)), Some(3));
        assert_eq!((timers.pop(at(1000)), timers.next()), (None, None));
    }

    #[test]
    fn another_queue_pair_in_the_slot_is_called_in_time() {
        let mut timers = Timers::default();
        let at = Instant::from_nanos;
        timers.arm(0, &mut Armed::default(), Some(at(50)));
        let mut other = Armed::default();
        timers.arm(0, &mut other, Some(at(100)));
        assert_eq!(timers.pop(at(50)), Some(0), "spurious");
        other.disarm();
        timers.arm(0, &mut other, Some(at(100)));
        assert_eq!((timers.pop(at(99)), timers.pop(at(100))), (None, Some(0)));
    }

    proptest! {
        #[test]
        fn slots_come_up_when_the_earliest_wish_says(
            wishes in prop::collection::vec((0u32..20, 1u64..100), 0..200),
        ) {
            let mut timers = Timers::default();
            let mut armed = [Armed::default(); 20];
            let mut model = [u64::MAX; 20];
            for (slot, wish) in wishes {
                let index = slot as usize;
                timers.arm(slot, &mut armed[index], Some(Instant::from_nanos(wish)));
                model[index] = model[index].min(wish);
            }
            for now in 0..100 {
                let mut up: Vec<u32> =
                    std::iter::from_fn(|| timers.pop(Instant::from_nanos(now))).collect();
                up.sort_unstable();
                let expected = (0..20).filter(|slot| model[*slot as usize] == now);
                prop_assert_eq!(up, expected.collect::<Vec<_>>());
            }
        }
    }
}
