//! How many PSNs READs take: that follows from the path MTU, which answers show, or from answers
//! and requests behind them.

use roxe_wire::opcode::Operation;
use roxe_wire::{MAX_MESSAGE_LEN, Mtu, Psn, packets_for};

use super::sent::Sent;
use super::{RESTART, Requests};
use crate::completed::CompletedMessages;

impl Requests {
    /// The PSN after a READ of unknown path MTU tells how many it took, if none were lost.
    pub(super) fn settle_guess(&mut self, psn: Psn) {
        if !self.next_is_guess {
            return;
        }
        let Some(read) = self.sent.back_mut() else { return };
        let Ok(span) = u32::try_from(psn.since(read.psn)) else { return };
        if read.may_take(span) {
            read.span = span;
            self.next = psn;
            self.next_is_guess = false;
            self.open = None;
            self.completed = CompletedMessages::unknown(psn);
        }
    }

    /// The path MTU, once a full packet showed it.
    pub(crate) const fn mtu(&self) -> Option<u32> {
        self.mtu
    }

    /// A full packet shows the path MTU, unless one did before. Tells what it is.
    pub(crate) fn learn_mtu(&mut self, full: u32) -> u32 {
        if let Some(mtu) = self.mtu {
            return mtu;
        }
        self.mtu = Some(full);
        self.measure_reads(full, |sent| !sent.is_span_known);
        full
    }

    /// A full packet of the answer to the READ with `psn` shows it.
    pub(crate) fn learn_mtu_at(&mut self, psn: Psn, full: u32) -> u32 {
        let is_other = self.mtu.is_some_and(|mtu| mtu != full);
        let anew = self.anew.filter(|anew| psn.since(*anew) >= 0);
        if let Some(anew) = anew.filter(|_| is_other) {
            self.mtu = Some(full);
            self.anew = None;
            self.measure_reads(full, |sent| sent.psn.since(anew) >= 0);
            return full;
        }
        if !is_other {
            self.anew = self.anew.filter(|_| anew.is_none());
        }
        self.is_mtu_answered |= self.mtu.is_none();
        self.learn_mtu(full)
    }

    /// The spans of those READs that are `unknown` follow from the path MTU.
    fn measure_reads(&mut self, mtu: u32, unknown: impl Fn(&Sent) -> bool) {
        let mut index = 0;
        while index < self.sent.len() {
            let sent = &mut self.sent[index];
            if sent.opcode.operation == Operation::ReadRequest
                && unknown(sent)
                && let Some(announced) = sent.announced
            {
                sent.span = packets_for(announced.min(MAX_MESSAGE_LEN), mtu);
                sent.is_span_known = true;
                self.absorb(index);
            }
            index += 1;
        }
        if let Some(read) = self.sent.back().filter(|read| read.is_span_known) {
            let end = read.psn.advance(read.span);
            if self.next_is_guess || end.since(self.next) > 0 {
                self.next = end;
                self.next_is_guess = false;
            }
        }
    }

    /// The last packet of the answer to a READ of unknown path MTU shows how many PSNs it takes.
    pub(crate) fn learn_span(&mut self, psn: Psn) {
        let index = self.find(psn).or_else(|| {
            self.may_be_read(psn)?;
            self.sent.len().checked_sub(1)
        });
        let Some(index) = index else { return };
        let is_newest = index + 1 == self.sent.len();
        let read = &mut self.sent[index];
        let span = psn.since(read.psn).unsigned_abs() + 1;
        if !read.is_span_known && read.may_take(span) {
            read.span = span;
            read.is_span_known = true;
            if is_newest && self.next_is_guess {
                self.next = psn.next();
                self.next_is_guess = false;
            }
        }
    }

    /// READs that lie within another one, which was seen later, only asked for its rest.
    pub(super) fn absorb(&mut self, index: usize) {
        let Some(mtu) = self.mtu else { return };
        let read = &self.sent[index];
        if read.opcode.operation != Operation::ReadRequest || !read.is_span_known {
            return;
        }
        let is_rest = |rest: &&Sent| {
            rest.opcode.operation == Operation::ReadRequest
                && rest.psn.is_within(read.psn, read.span)
                && rest.announced.is_some_and(|len| read.is_rest(rest.psn, rest.from, len, mtu))
        };
        let rests = self.sent.range(index + 1..).take_while(is_rest).count();
        if rests == 0 {
            return;
        }
        for _ in 0..rests {
            let Some(rest) = self.sent.remove(index + 1) else { return };
            let read = &mut self.sent[index];
            read.ask_again(rest.psn);
            rest.asked_again.into_iter().for_each(|psn| read.ask_again(psn));
        }
        self.ends -= rests as u64;
        self.sent.range_mut(index + 1..).for_each(|behind| behind.ends -= rests as u64);
        self.completed.forget_offset();
    }

    /// An answer shows how far the newest READ reaches at least, if its length is not known.
    pub(crate) fn reach(&mut self, psn: Psn) {
        let Some(read) = self.may_be_read(psn).filter(|read| read.announced.is_none()) else {
            return;
        };
        let Ok(index) = u32::try_from(psn.since(read.psn)) else { return };
        if let Some(read) = self.sent.back_mut().filter(|read| read.span <= index) {
            read.span = index + 1;
            self.next = psn.next();
        }
    }

    /// The newest request, if it is a READ that takes this PSN should the path MTU be small.
    pub(super) fn may_be_read(&self, psn: Psn) -> Option<&Sent> {
        let read = self.sent.back().filter(|_| self.next_is_guess)?;
        psn.is_within(read.psn, Self::most_span(read)).then_some(read)
    }

    /// How many PSNs a READ takes at the most: the path MTU may be small.
    pub(super) fn most_span(read: &Sent) -> u32 {
        match read.announced {
            Some(announced) => packets_for(announced.min(MAX_MESSAGE_LEN), Mtu::B256.bytes()),
            None => RESTART,
        }
    }

    /// Whether what comes now may be another connection's, with another path MTU.
    pub(crate) const fn may_be_anew(&self) -> bool {
        self.anew.is_some()
    }
}
