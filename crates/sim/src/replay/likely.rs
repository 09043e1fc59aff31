//! Of several stories of what happened out of the recording's sight, the most likely one.
//!
//! A recording does not show which of its frames reached the other host. A story decides that,
//! frame by frame, and each decision has a price: nothing for what needs no explanation, more the
//! less likely it is. Told in the order of the recording, two stories that have come to the same
//! state differ only in their price, so the dearer one is forgotten: the search is linear in the
//! number of frames.

use std::collections::{BTreeMap, BTreeSet};

/// Stories that end in different states.
#[derive(Debug)]
pub(super) struct Stories<S, D> {
    chapters: Vec<Vec<Chapter<S, D>>>,
    /// What all stories agree on, before the first chapter.
    settled: Vec<D>,
    /// How many chapters there may be before it is looked on what all agree.
    patience: usize,
}

/// How a story goes on with one frame.
#[derive(Clone, Copy, Debug)]
struct Chapter<S, D> {
    state: S,
    price: u32,
    /// Which one of the chapters before.
    after: usize,
    decision: Option<D>,
}

/// So many stories are followed, the cheapest ones …
const MOST: usize = 64;

/// So many chapters are not looked through.
const SHORT: usize = 1024;

/// … and none that is dearer than the cheapest by so much.
const SLACK: u32 = 2000;

impl<S: Copy + Ord, D: Copy> Stories<S, D> {
    /// All begin in one state.
    pub(super) fn new(state: S) -> Self {
        let first = Chapter { state, price: 0, after: 0, decision: None };
        Self { chapters: vec![vec![first]], settled: Vec::new(), patience: SHORT }
    }

    /// The next frame. `options` names the states that a state may go to: price and decision of
    /// each. A state without any is a story that cannot be.
    pub(super) fn next(&mut self, mut options: impl FnMut(S, &mut dyn FnMut(S, u32, D))) {
        let before = self.chapters.last().map_or(&[][..], Vec::as_slice);
        let mut found: BTreeMap<S, Chapter<S, D>> = BTreeMap::new();
        for (after, chapter) in before.iter().enumerate() {
            options(chapter.state, &mut |state, price, decision| {
                let price = chapter.price.saturating_add(price);
                let new = Chapter { state, price, after, decision: Some(decision) };
                let old = found.entry(state).or_insert(new);
                if new.price < old.price {
                    *old = new;
                }
            });
        }
        let mut chapters: Vec<_> = found.into_values().collect();
        chapters.sort_by_key(|chapter| chapter.price);
        let limit = chapters.first().map_or(0, |first| first.price.saturating_add(SLACK));
        chapters.retain(|chapter| chapter.price <= limit);
        chapters.truncate(MOST);
        self.chapters.push(chapters);
        if self.chapters.len() > self.patience {
            self.settle();
        }
    }

    /// Stories mostly have their beginning in common: what all agree on is decided.
    fn settle(&mut self) {
        let mut alive: BTreeSet<usize> = (0..self.chapters.last().map_or(0, Vec::len)).collect();
        let mut common = None;
        for at in (1..self.chapters.len()).rev() {
            alive =
                alive.iter().filter_map(|one| Some(self.chapters[at].get(*one)?.after)).collect();
            if alive.len() == 1 {
                common = alive.first().map(|only| (at - 1, *only));
                break;
            }
        }
        if let Some((at, only)) = common {
            self.settled.extend(self.backwards(at, only));
            let last = self.chapters[at].get(only).copied();
            self.chapters.drain(..at);
            self.chapters[0] =
                last.map(|last| Chapter { decision: None, ..last }).into_iter().collect();
            for chapter in self.chapters.get_mut(1).into_iter().flatten() {
                chapter.after = 0;
            }
        }
        self.patience = SHORT.max(2 * self.chapters.len());
    }

    /// The decisions that led to a chapter, in order.
    fn backwards(&self, last: usize, mut at: usize) -> Vec<D> {
        let mut decisions = Vec::with_capacity(last + 1);
        for chapters in self.chapters[..=last].iter().rev() {
            let Some(chapter) = chapters.get(at) else { break };
            decisions.extend(chapter.decision);
            at = chapter.after;
        }
        decisions.reverse();
        decisions
    }

    /// The decisions of the cheapest story, one for each frame.
    pub(super) fn most_likely(&self) -> Vec<D> {
        let mut decisions = self.settled.clone();
        decisions.extend(self.backwards(self.chapters.len() - 1, 0));
        decisions
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cheapest_story_wins_even_if_it_begins_dear() {
        let mut stories = Stories::new(0u8);
        stories.next(|_, to| {
            to(1, 5, "dear");
            to(2, 1, "cheap");
        });
        stories.next(|state, to| match state {
            1 => to(3, 0, "then free"),
            _ => to(3, 9, "then dear"),
        });
        assert_eq!(stories.most_likely(), ["dear", "then free"]);
    }

    #[test]
    fn stories_that_cannot_go_on_end() {
        let mut stories = Stories::new(0u8);
        stories.next(|_, to| {
            to(1, 0, 'a');
            to(2, 7, 'b');
        });
        stories.next(|state, to| {
            if state == 2 {
                to(2, 0, 'c');
            }
        });
        assert_eq!(stories.most_likely(), ['b', 'c']);
    }

    #[test]
    fn a_long_story_is_settled_as_it_goes() {
        let mut stories = Stories::new(0u64);
        for frame in 0..10_000u64 {
            stories.next(|state, to| {
                to(frame, u32::from(state % 2 == 0), frame);
                if frame % 3 == 0 {
                    to(frame + 1_000_000, 7, u64::MAX);
                }
            });
        }
        assert!(stories.chapters.len() <= SHORT + 1, "{}", stories.chapters.len());
        assert_eq!(stories.most_likely(), (0..10_000).collect::<Vec<_>>());
    }
}
