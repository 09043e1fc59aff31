//! Whether what comes is another connection's, between queue pairs that were used before.

use roxe_wire::opcode::{Operation, Position, Service};
use roxe_wire::{Aeth, Packet, Syndrome};

use super::{Place, Requests, full_len};
use crate::completed::CompletedMessages;

/// What was on its way when a NAK ended the connection follows the packets before it sooner than
/// this.
const PAUSE_NS: u64 = 100_000_000;

impl Requests {
    /// Whether nobody sends this PSN again: it was acknowledged, or is never repeated.
    pub(super) fn is_done(&self, packet: &Packet<'_>) -> bool {
        packet.opcode.service == Service::Uc
            || packet.headers.bth.psn.since(self.unacknowledged) < 0
    }

    /// Whether the queue pairs belong to another connection now: PSNs far from all before, another
    /// packet under a PSN that is done with, or another path MTU when all is done. Where the
    /// connection has failed, less shows it.
    pub(super) fn is_restart(&self, place: &Place, packet: &Packet<'_>, is_done: bool) -> bool {
        let opcode = packet.opcode;
        let other_mtu = || {
            opcode.position == Position::First
                && full_len(packet).zip(self.mtu).is_some_and(|(full, mtu)| full != mtu)
        };
        match *place {
            Place::Elsewhere => true,
            Place::Next => self.refusal.is_some() && self.is_behind_end(packet),
            Place::Ahead(_) => {
                self.unacknowledged == self.next && other_mtu() || self.is_behind_end(packet)
            }
            Place::Again(index) => {
                !self.sent[index].is_same(packet) && (is_done || self.has_failed())
            }
            Place::WithinRead(index) if opcode.operation == Operation::ReadRequest => {
                self.sent[index].check_rest(packet, self.mtu).is_some() && self.has_failed()
            }
            Place::WithinRead(_) => is_done || self.has_failed(),
            // What was refused, or is tried again and again, is the oldest that is not done.
            Place::Skipped(0) | Place::Old => {
                is_done
                    && (other_mtu()
                        || opcode.position.starts()
                            && (self.refusal.is_some() || self.has_failed()))
            }
            Place::Skipped(_) => is_done && other_mtu(),
        }
    }

    /// Whether a NAK has ended the connection, and this packet was not on its way by then: it comes
    /// after a pause, or begins a message before the one before has ended.
    fn is_behind_end(&self, packet: &Packet<'_>) -> bool {
        let is_ended = self.refusal.is_some_and(|refusal| refusal.is_fatal());
        is_ended
            && packet.opcode.position.starts()
            && self.sent.back().is_some_and(|newest| {
                newest.is_before(packet.headers.bth.psn) && !newest.opcode.position.ends()
                    || self.now_ns.saturating_sub(newest.latest_ns) >= PAUSE_NS
            })
    }

    /// After a NAK that ends the connection the responder acknowledges nothing that was sent first
    /// behind it. If it does, and has counted no message from before, this is another connection,
    /// which began there.
    pub(crate) fn begin_behind_end(&mut self, response: &Packet<'_>) {
        let Some(Aeth { syndrome: Syndrome::Ack(_), msn }) = response.headers.aeth else { return };
        let Some(refusal) = self.refusal.filter(|refusal| refusal.is_fatal()) else { return };
        let Some(index) = self.sent.iter().position(|sent| refusal.is_before(sent.frame)) else {
            return;
        };
        let first = &self.sent[index];
        let (begin, before) =
            (first.psn, first.ends.saturating_sub(first.opcode.position.ends().into()));
        let Some(answered) = self.get(response.headers.bth.psn) else { return };
        if answered.psn.since(begin) >= 0
            && u64::from(msn.get()) <= answered.ends.saturating_sub(before)
        {
            self.sent.drain(..index);
            self.unacknowledged = begin;
            self.completed = CompletedMessages::unknown(begin);
            self.has_beginning = false;
            self.forget_refusal();
        }
    }
}
