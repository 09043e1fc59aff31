//! Differences that are known of other devices: where ours, told to do one thing as they do it,
//! says what was recorded.

use std::collections::BTreeSet;
use std::num::NonZeroU32;

use roxe_transport::conduct::{Acknowledge, Conduct};

use super::{Difference, Known, Recording, Report, Side};
use crate::peer::Peer;

/// What a device is known to do otherwise.
struct Habit {
    peer: Peer,
    take: fn(&mut Conduct, Conduct),
    why: &'static str,
}

const HABITS: [Habit; 5] = [
    Habit {
        peer: Peer::Rxe,
        take: |ours, theirs| ours.too_long = theirs.too_long,
        why: "ours follows the specification: a message longer than its receive buffer is an \
              invalid request, IBA vol 1 §9.7.5.2.8",
    },
    Habit {
        peer: Peer::Rxe,
        take: |ours, theirs| ours.nak_after_rnr = theirs.nak_after_rnr,
        why: "ours drops what follows: its RNR NAK has said from where on to send again",
    },
    Habit {
        peer: Peer::Rxe,
        take: |ours, theirs| ours.misses_by_timer = theirs.misses_by_timer,
        why: "ours asks again as soon as the next response shows that one is missing",
    },
    Habit {
        peer: Peer::Rxe,
        take: |ours, theirs| ours.resumes_reads = theirs.resumes_reads,
        why: "ours begins a READ that is asked for again with a First or Only of its own",
    },
    Habit {
        peer: Peer::Rxe,
        take: |ours, _| ours.acknowledge = Acknowledge::Each,
        why: "ours acknowledges all that it has carried out at once",
    },
];

/// Marks the differences of a report that a habit explains.
pub(super) fn mark(recording: &Recording, report: &mut Report) {
    let conversations = |report: &Report| -> BTreeSet<Option<NonZeroU32>> {
        let sides = report.sides.iter();
        let open = |side: &&Side| side.differences.iter().any(|one| one.known.is_none());
        sides.filter(open).map(|side| side.conversation).collect()
    };
    for habit in HABITS {
        let open = conversations(report);
        if open.is_empty() {
            return;
        }
        let mut conduct = Conduct::DEFAULT;
        (habit.take)(&mut conduct, habit.peer.conduct());
        let theirs = recording.sides(conduct, Some(&open));
        for side in &mut report.sides {
            let same = |other: &&Side| {
                (other.conversation, other.role, other.own, other.peer)
                    == (side.conversation, side.role, side.own, side.peer)
            };
            let Some(other) = theirs.iter().find(same) else { continue };
            // It explains them if it leaves none that was not there before.
            let place = |one: &Difference| (one.frame, one.what);
            let rest: BTreeSet<_> = other.differences.iter().map(place).collect();
            let ours: BTreeSet<_> = side.differences.iter().map(place).collect();
            if !rest.is_subset(&ours) {
                continue;
            }
            for one in side.differences.iter_mut().filter(|one| !rest.contains(&place(one))) {
                one.known.get_or_insert(Known { peer: habit.peer, why: habit.why });
            }
        }
    }
}
