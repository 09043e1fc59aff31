//! What the responder keeps for READs, atomics and the like, and what a duplicate gets.
//!
//! IBA vol 1 §9.7.5.1, C9-105, C9-110. The last `max_dest_rd_atomic` of these requests are kept:
//! their answers are sent from here, once or again.

use std::collections::VecDeque;

use roxe_wire::opcode::Operation;
use roxe_wire::{Mtu, Packet, Psn, RKey, Reth, packets_for};

use crate::segment;

/// What a kept request is answered with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Memory, read when it is sent.
    Read { r_key: RKey, va: u64, len: u32 },
    /// The value from before an atomic, and which one it was.
    Atomic { original: u64, operation: Operation },
    /// Nothing but that it is done: FLUSH and ATOMIC WRITE.
    Done { operation: Operation },
}

/// A request whose answer is kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Resource {
    /// Its PSN.
    pub(crate) psn: Psn,
    /// How many PSNs it takes.
    pub(crate) span: u32,
    pub(crate) answer: Answer,
    /// The PSN of the next response to send; the one after the last when all are sent.
    next: Psn,
    /// Where the responses being sent begin: the first or only one of them stands there.
    start: Psn,
    /// Where they end.
    end: Psn,
    /// READ: how many bytes of the whole they reach to.
    until: u32,
    /// All of it was answered once. What is due after that is due to a duplicate.
    answered: bool,
}

/// One response that is to be sent now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Due {
    pub(crate) psn: Psn,
    pub(crate) answer: Answer,
    /// READ: where in the whole READ this response's data begins.
    pub(crate) offset: u32,
    /// READ: how many bytes.
    pub(crate) len: u32,
    /// Whether it is the first of the responses being sent.
    pub(crate) first: bool,
    /// Whether it is the last.
    pub(crate) last: bool,
}

/// The kept requests, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Resources {
    kept: VecDeque<Resource>,
    most: usize,
    /// How many of them have responses to send.
    pending: u32,
    /// Which of them is the oldest that has, if any has.
    oldest_due: usize,
}

/// What becomes of a duplicate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Replayed {
    /// A READ is carried out again.
    Read,
    /// A saved result is sent again.
    Saved,
    /// It matches nothing that is kept.
    Nothing,
}

impl Resources {
    pub(crate) fn new(most: u8) -> Self {
        Self { most: usize::from(most), ..Self::default() }
    }

    pub(crate) const fn has_due(&self) -> bool {
        self.pending != 0
    }

    /// Whether another request may be kept: the oldest one goes once it was answered. That it is
    /// being answered again, to a duplicate, does not keep it: a peer that asks for more than it
    /// may have outstanding has that answer already.
    //= R30
    pub(crate) fn has_room(&self) -> bool {
        match self.kept.len().checked_sub(self.most) {
            None => true,
            // All up to this one have to go.
            Some(last) => self.kept.get(last).is_some_and(|kept| kept.answered),
        }
    }

    /// So many are kept from now on. What is owed is still sent.
    //= 05-5.1
    pub(crate) fn set_most(&mut self, most: u8) {
        self.most = usize::from(most);
    }

    /// Keeps a request and owes its answer. The caller has asked [`Resources::has_room`].
    //= R11
    pub(crate) fn keep(&mut self, psn: Psn, span: u32, answer: Answer) {
        while self.kept.len() >= self.most {
            let oldest = self.kept.pop_front();
            self.oldest_due = self.oldest_due.saturating_sub(1);
            if oldest.is_some_and(|oldest| oldest.is_due()) {
                self.pending -= 1;
                self.find_due();
            }
        }
        if self.pending == 0 {
            self.oldest_due = self.kept.len();
        }
        let end = psn.advance(span);
        let until = match answer {
            Answer::Read { len, .. } => len,
            Answer::Atomic { .. } | Answer::Done { .. } => 0,
        };
        let (next, start, answered) = (psn, psn, false);
        self.kept.push_back(Resource { psn, span, answer, next, start, end, until, answered });
        self.pending += 1;
    }

    fn due(&self) -> Option<&Resource> {
        if self.pending == 0 { None } else { self.kept.get(self.oldest_due) }
    }

    /// The next response to send, in the order of PSNs.
    //= IBA C9-110
    pub(crate) fn next(&self, mtu: Mtu) -> Option<Due> {
        let resource = self.due()?;
        let psn = resource.next;
        let index = u32::try_from(psn.since(resource.psn)).ok()?;
        let (offset, len) = match resource.answer {
            Answer::Read { .. } => {
                let part = segment::segment(resource.until, mtu, index)?;
                (part.offset, part.len)
            }
            _ => (0, 0),
        };
        Some(Due {
            psn,
            answer: resource.answer,
            offset,
            len,
            first: psn == resource.start,
            last: psn.next() == resource.end,
        })
    }

    /// That response was sent.
    pub(crate) fn sent(&mut self) {
        let Some(resource) = self.kept.get_mut(self.oldest_due) else { return };
        resource.next = resource.next.next();
        if resource.is_due() {
            return;
        }
        resource.answered = true;
        self.pending -= 1;
        self.find_due();
    }

    /// Goes on to the next one that has responses to send.
    fn find_due(&mut self) {
        while self.kept.get(self.oldest_due).is_some_and(|resource| !resource.is_due()) {
            self.oldest_due += 1;
        }
    }

    /// The READ that has `psn` among its PSNs: key, address and length.
    pub(crate) fn read_with(&self, psn: Psn) -> Option<(RKey, u64, u32)> {
        let kept = self.kept.iter().find(|kept| psn.is_within(kept.psn, kept.span))?;
        match kept.answer {
            Answer::Read { r_key, va, len } => Some((r_key, va, len)),
            Answer::Atomic { .. } | Answer::Done { .. } => None,
        }
    }

    /// No response is to be sent any more.
    pub(crate) fn stop(&mut self) {
        for resource in &mut self.kept {
            resource.next = resource.end;
        }
        self.pending = 0;
    }

    /// A request with a PSN from before came again. A READ that `resumes` goes on with Middle or
    /// Last responses; else it begins anew.
    //= R07, R10, R11, BC-050, 04-4.7
    pub(crate) fn replay(&mut self, packet: &Packet<'_>, mtu: Mtu, resumes: bool) -> Replayed {
        let psn = packet.headers.bth.psn;
        let operation = packet.opcode.operation;
        let index = self.kept.iter().position(|kept| psn.is_within(kept.psn, kept.span));
        let Some(index) = index else { return Replayed::Nothing };
        // Its first copy had as many bytes as such a request has.
        if !packet.opcode.payload.allows(packet.payload.len(), mtu.bytes() as usize) {
            return Replayed::Nothing;
        }
        let Some(kept) = self.kept.get_mut(index) else { return Replayed::Nothing };
        let was_due = kept.is_due();
        let replayed = match (kept.answer, packet.headers.reth) {
            (Answer::Read { r_key, va, len }, Some(reth))
                if operation == Operation::ReadRequest =>
            {
                let index = kept_index(kept, psn);
                let whole = Reth { va, r_key, dma_len: len };
                let Some(until) = part_of_read(whole, reth, index, mtu) else {
                    return Replayed::Nothing;
                };
                kept.start = if resumes { kept.psn } else { psn };
                kept.next = psn;
                kept.end = psn.advance(packets_for(reth.dma_len, mtu.bytes()));
                kept.until = until;
                Replayed::Read
            }
            (Answer::Atomic { operation: kept_operation, .. }, None)
            | (Answer::Done { operation: kept_operation }, Some(_))
                if operation == kept_operation =>
            {
                kept.next = kept.start;
                Replayed::Saved
            }
            _ => return Replayed::Nothing,
        };
        self.oldest_due = if self.pending == 0 { index } else { self.oldest_due.min(index) };
        self.pending += u32::from(!was_due);
        replayed
    }
}

impl Resource {
    fn is_due(&self) -> bool {
        self.next != self.end
    }
}

fn kept_index(kept: &Resource, psn: Psn) -> u32 {
    u32::try_from(psn.since(kept.psn)).unwrap_or(0)
}

/// How many bytes of the whole a READ reaches to that was asked for again from its response `index`
/// on: it must lie within the READ as it was first asked for, under the same key, and ask for
/// something if that did. Comparing lengths, not ends, so that no address can wrap.
//= BC-053, R08, R09
fn part_of_read(whole: Reth, again: Reth, index: u32, mtu: Mtu) -> Option<u32> {
    let done = index.checked_mul(mtu.bytes())?;
    let rest = whole.dma_len.checked_sub(done)?;
    let same_place = again.va == whole.va.wrapping_add(u64::from(done));
    let some = again.dma_len != 0 || whole.dma_len == 0;
    (again.r_key == whole.r_key && same_place && some && again.dma_len <= rest)
        .then_some(done + again.dma_len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use roxe_wire::opcode::{Position, Service};
    use roxe_wire::{Bth, Headers, Opcode, Payload};

    /// A duplicate whose answer is still to be sent when the peer, which has the first answer, asks
    /// for something else, must not cost the connection.
    #[test]
    fn what_is_only_replayed_makes_room() {
        let mtu = Mtu::B256;
        let operation = Operation::FetchAdd;
        let mut resources = Resources::new(1);
        resources.keep(Psn::new(7), 1, Answer::Atomic { original: 1, operation });
        assert!(!resources.has_room(), "it was never answered");
        resources.sent();
        assert!(resources.has_room());
        let again = Packet {
            opcode: Opcode::find(Service::Rc, operation, Position::Only, None).unwrap(),
            headers: Headers {
                bth: Bth { psn: Psn::new(7), ..Bth::default() },
                ..Headers::default()
            },
            payload: Payload::bytes(&[]),
        };
        assert_eq!(resources.replay(&again, mtu, false), Replayed::Saved);
        assert!(resources.has_room() && resources.has_due());
        resources.keep(Psn::new(8), 1, Answer::Atomic { original: 2, operation });
        assert_eq!(resources.next(mtu).map(|due| due.psn), Some(Psn::new(8)));
        resources.sent();
        assert!(!resources.has_due());
    }

    const WHOLE: Reth = Reth { va: u64::MAX - 999, r_key: RKey(7), dma_len: 1000 };

    //= BC-053 test
    #[test]
    fn a_read_again_must_lie_within_the_first_one() {
        let mtu = Mtu::B256;
        assert_eq!(part_of_read(WHOLE, WHOLE, 0, mtu), Some(1000));
        let tail = Reth { va: WHOLE.va + 256, dma_len: 744, ..WHOLE };
        assert_eq!(part_of_read(WHOLE, tail, 1, mtu), Some(1000));
        assert_eq!(part_of_read(WHOLE, Reth { dma_len: 745, ..tail }, 1, mtu), None);
        assert_eq!(part_of_read(WHOLE, Reth { dma_len: 256, ..tail }, 1, mtu), Some(512));
        assert_eq!(part_of_read(WHOLE, Reth { dma_len: 0, ..tail }, 1, mtu), None);
        assert_eq!(part_of_read(WHOLE, Reth { r_key: RKey(8), ..tail }, 1, mtu), None);
        assert_eq!(part_of_read(WHOLE, Reth { va: 0, ..tail }, 1, mtu), None);
        assert_eq!(part_of_read(WHOLE, tail, 4, mtu), None);
    }
}
