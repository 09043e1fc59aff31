//! Responses → completions: which request each answers, what it acknowledges besides.
//!
//! IBA vol 1 §9.7.5. A response acknowledges every PSN before its own; only a READ, an atomic or
//! the like among them is not done before its own answer has come.

use roxe_wire::opcode::{Operation, Position};
use roxe_wire::{Instant, NakCode, Packet, Payload, Psn, Syndrome};

use crate::adapter::{Adapter, Count, KeyViolation};
use crate::ending::BadResponse;
use crate::failure::{Failure, LocalFailure, Why};
use crate::requester::Requester;
use crate::segment;
use crate::work::{Attributes, SendOperation};

impl Requester {
    /// Takes in one response.
    //= 04-4.9, Q03, Q07, BC-022
    pub(crate) fn handle_response(
        &mut self,
        now: Instant,
        attributes: &Attributes,
        packet: &Packet<'_>,
        adapter: &mut impl Adapter,
    ) -> Result<(), Failure> {
        let psn = packet.headers.bth.psn;
        if psn.since(self.send_end) >= 0 {
            adapter.count(Count::GhostResponse); // Never sent: nothing to answer.
            return Ok(());
        }
        let syndrome = packet.headers.aeth.map(|aeth| aeth.syndrome);
        // The newest answer may come again to bring credits. What is older, perhaps of another
        // connection, would count from another message.
        let newest = psn.since(self.unacknowledged.previous()) >= 0;
        if let (true, Some(aeth), Some(Syndrome::Ack(credits))) =
            (newest, packet.headers.aeth, syndrome)
        {
            self.take_credits(credits, aeth.msn);
        }
        if psn.since(self.unacknowledged) < 0 {
            // A ghost of an earlier try; or an ACK once more, which brings credits.
            let once_more = packet.opcode.operation == Operation::Acknowledge
                && matches!(syndrome, Some(Syndrome::Ack(_)));
            if !once_more {
                adapter.count(Count::GhostResponse);
            }
            return Ok(());
        }
        match (packet.opcode.operation, syndrome) {
            (Operation::Acknowledge, Some(Syndrome::Ack(_))) => {
                let missing = self.acknowledged(now, attributes, psn, adapter);
                self.go_back_if(missing, adapter).map(|_| ())
            }
            // A NAK behind a missing answer is one loss: all is sent again from the older of both.
            // If the receiver is still not ready then, it says so again.
            (Operation::Acknowledge, Some(Syndrome::RnrNak(timer))) => {
                let missing = self.acknowledged(now, attributes, psn.previous(), adapter);
                self.go_back_if(missing, adapter)?;
                match missing {
                    Some(_) => Ok(()),
                    None => self.receiver_not_ready(now, psn, timer, adapter),
                }
            }
            (Operation::Acknowledge, Some(Syndrome::Nak(NakCode::PsnSequenceError))) => {
                if psn != self.unacknowledged {
                    adapter.count(Count::SequenceNakAhead);
                }
                let missing = self.acknowledged(now, attributes, psn.previous(), adapter);
                let from = missing.unwrap_or(psn);
                self.missing_from(from, Count::SequenceNakReceived, adapter).map(|_| ())
            }
            (Operation::Acknowledge, Some(Syndrome::Nak(code))) => {
                self.acknowledged(now, attributes, psn.previous(), adapter);
                self.refused(packet, code, adapter)
            }
            (Operation::ReadResponse, None | Some(Syndrome::Ack(_))) => {
                self.read_response(now, attributes, packet, adapter)
            }
            (Operation::AtomicAcknowledge, Some(Syndrome::Ack(_))) => {
                self.atomic_response(now, attributes, packet, adapter)
            }
            _ => self.bad_response(packet, BadResponse::Refusal, adapter),
        }
    }

    /// Everything up to and with `psn` has arrived, unless a READ or the like among it is not
    /// answered: that answer is lost then, and has to be asked for again. Says from which PSN on.
    //= BC-021, Q09, BC-022
    fn acknowledged(
        &mut self,
        now: Instant,
        attributes: &Attributes,
        psn: Psn,
        adapter: &mut impl Adapter,
    ) -> Option<Psn> {
        let missing = self.first_unanswered().filter(|missing| psn.since(*missing) >= 0);
        let up_to = missing.unwrap_or_else(|| psn.next());
        if up_to.since(self.unacknowledged) > 0 {
            self.unacknowledged = up_to;
            // What a duplicate in flight covers need not be sent again.
            if self.send_next.since(up_to) < 0 {
                self.skip_to(up_to);
            }
            self.complete_finished(attributes, adapter);
            self.progress(now, attributes);
        }
        missing
    }

    /// An answer that is missing is asked for again. Says whether that it is missing is news.
    fn go_back_if(
        &mut self,
        missing: Option<Psn>,
        adapter: &mut impl Adapter,
    ) -> Result<bool, Failure> {
        missing.map_or(Ok(false), |psn| self.missing_from(psn, Count::ImpliedNak, adapter))
    }

    /// The first PSN of the oldest begun request that waits for an answer of its own.
    fn first_unanswered(&self) -> Option<Psn> {
        if self.rc.outstanding == 0 {
            return None;
        }
        (0..self.queue.len())
            .map_while(|index| self.queue.get(index).filter(|wqe| wqe.begun))
            .find(|wqe| wqe.operation.takes_responder_resource() && !wqe.done)
            .map(|wqe| wqe.psn.advance(wqe.received))
    }

    /// The next packet to send is the one with `psn`, which lies ahead.
    fn skip_to(&mut self, psn: Psn) {
        self.send_next = psn;
        self.sending = self.queue.find(psn).unwrap_or_else(|| {
            (0..self.queue.len())
                .take_while(|&index| self.queue.get(index).is_some_and(|wqe| wqe.begun))
                .count()
        });
    }

    /// A fatal NAK for the request with `psn`; all before it is acknowledged.
    //= Q04
    fn refused(
        &mut self,
        packet: &Packet<'_>,
        code: NakCode,
        adapter: &mut impl Adapter,
    ) -> Result<(), Failure> {
        let psn = packet.headers.bth.psn;
        adapter.count(match code {
            NakCode::InvalidRequest => Count::RemoteInvalidRequest,
            NakCode::RemoteAccessError => Count::RemoteAccessError,
            NakCode::RemoteOperationalError => Count::RemoteOperationError,
            NakCode::PsnSequenceError | NakCode::InvalidRdRequest | NakCode::Reserved(_) => {
                return self.bad_response(packet, BadResponse::Code(code), adapter);
            }
        });
        let index = self.queue.find(psn).unwrap_or(0);
        Err(Failure { index, why: Why::Refused(psn, code) })
    }

    /// Data of a READ, or the empty answer to a FLUSH or ATOMIC WRITE.
    //= Q10, 02-2.4
    fn read_response(
        &mut self,
        now: Instant,
        attributes: &Attributes,
        packet: &Packet<'_>,
        adapter: &mut impl Adapter,
    ) -> Result<(), Failure> {
        let psn = packet.headers.bth.psn;
        let Some(index) = self.answered_request(now, attributes, psn, adapter)? else {
            return Ok(());
        };
        let Some(wqe) = self.queue.get(index) else { return Ok(()) };
        let position = packet.opcode.position;
        match wqe.operation {
            SendOperation::Flush { .. } | SendOperation::AtomicWrite(_) => {
                if position != Position::Only || !packet.payload.is_empty() {
                    return self.bad_response(packet, BadResponse::Payload, adapter);
                }
            }
            SendOperation::Read(_) => {
                let part = segment::segment(wqe.len, attributes.path_mtu, wqe.received);
                let Some(part) = part else {
                    return self.bad_response(packet, BadResponse::Position, adapter);
                };
                // A READ that was asked for again may begin anew or go on. 06-6.1
                let fits = match position {
                    Position::First | Position::Middle => !part.position.ends(),
                    Position::Last | Position::Only => part.position.ends(),
                };
                if !fits {
                    return self.bad_response(packet, BadResponse::Position, adapter);
                }
                if packet.payload.len() != part.len as usize {
                    adapter.count(Count::BadResponse);
                    let found = u16::try_from(packet.payload.len()).unwrap_or(u16::MAX);
                    return Err(Failure { index, why: Why::ReadLength(psn, found) });
                }
                if part.len != 0 {
                    let sges = self.queue.sges(wqe);
                    let scattered = adapter.scatter(sges, part.offset, packet.payload);
                    scattered.map_err(|violation| not_stored(index, violation))?;
                }
            }
            _ => return self.bad_response(packet, BadResponse::Kind, adapter),
        }
        self.answered(now, attributes, index, adapter);
        Ok(())
    }

    /// The value from before an atomic.
    //= Q11
    fn atomic_response(
        &mut self,
        now: Instant,
        attributes: &Attributes,
        packet: &Packet<'_>,
        adapter: &mut impl Adapter,
    ) -> Result<(), Failure> {
        let psn = packet.headers.bth.psn;
        let Some(index) = self.answered_request(now, attributes, psn, adapter)? else {
            return Ok(());
        };
        let Some(wqe) = self.queue.get(index) else { return Ok(()) };
        let original = packet.headers.atomic_ack_eth.map(|ack| ack.original);
        let (SendOperation::CompareSwap { .. } | SendOperation::FetchAdd { .. }, Some(original)) =
            (wqe.operation, original)
        else {
            return self.bad_response(packet, BadResponse::Kind, adapter);
        };
        // The application finds an integer in its own byte order.
        let bytes = original.to_ne_bytes();
        let sges = self.queue.sges(wqe);
        let scattered = adapter.scatter(sges, 0, Payload::bytes(&bytes));
        scattered.map_err(|violation| not_stored(index, violation))?;
        self.answered(now, attributes, index, adapter);
        Ok(())
    }

    /// The request whose next answer a response with `psn` is. `None` when that answer came before,
    /// or when answers before it are missing.
    //= Q08
    fn answered_request(
        &mut self,
        now: Instant,
        attributes: &Attributes,
        psn: Psn,
        adapter: &mut impl Adapter,
    ) -> Result<Option<usize>, Failure> {
        let missing = self.acknowledged(now, attributes, psn.previous(), adapter);
        let within = missing.is_some_and(|it| self.queue.find(it) == self.queue.find(psn));
        let missed = missing.filter(|_| !(within && self.conduct.misses_by_timer));
        let news = self.go_back_if(missed, adapter)?;
        let index = self.queue.find(psn).filter(|index| self.is_next_answer(*index, psn));
        if index.is_none() && !news {
            // It came before, or what is missing before it is known to be.
            adapter.count(Count::GhostResponse);
        }
        Ok(index)
    }

    /// Whether an answer with `psn` to the request at `index` would be the next one. Any is for a
    /// request without answers of its own, whose turn it never is.
    fn is_next_answer(&self, index: usize, psn: Psn) -> bool {
        self.queue.get(index).is_some_and(|wqe| {
            let expected = wqe.psn.advance(wqe.received);
            !wqe.operation.takes_responder_resource()
                || !wqe.done && psn == expected && self.unacknowledged == psn
        })
    }

    /// One more answer to the request at `index` is here.
    fn answered(
        &mut self,
        now: Instant,
        attributes: &Attributes,
        index: usize,
        adapter: &mut impl Adapter,
    ) {
        let Some(wqe) = self.queue.get_mut(index) else { return };
        wqe.received += 1;
        let next = wqe.psn.advance(wqe.received);
        if wqe.received == wqe.span {
            wqe.done = true;
            self.rc.outstanding = self.rc.outstanding.saturating_sub(1);
        }
        self.unacknowledged = next;
        if self.send_next.since(next) < 0 {
            self.skip_to(next);
        }
        self.complete_finished(attributes, adapter);
        self.progress(now, attributes);
    }

    /// The peer answers what was not asked: nothing can be relied on any more.
    //= Q10, 05-5.3
    fn bad_response(
        &mut self,
        packet: &Packet<'_>,
        what: BadResponse,
        adapter: &mut impl Adapter,
    ) -> Result<(), Failure> {
        adapter.count(Count::BadResponse);
        let bth = &packet.headers.bth;
        let index = self.queue.find(bth.psn).unwrap_or(0);
        Err(Failure { index, why: Why::BadResponse(bth.psn, bth.opcode, what) })
    }
}

/// What came for the request at `index` cannot be written to its memory.
const fn not_stored(index: usize, violation: KeyViolation) -> Failure {
    Failure { index, why: Why::Here(LocalFailure::Memory { write: true, violation }) }
}
