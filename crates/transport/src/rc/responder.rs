//! The inbound ladder: one named check a rung, in the specification's order.
//!
//! IBA vol 1 §9.7.4 (validation of requests), §9.7.5 (answers). Nothing is sent from here: what is
//! owed is noted, and [`Responder::poll`] writes it when the device has room.

use roxe_wire::opcode::{Header, Operation, Position, Service};
use roxe_wire::{
    Aeth, AtomicAckEth, Bth, Credits, FlushPlacement, FlushSelectivity, Headers, Instant,
    MAX_MESSAGE_LEN, Msn, NakCode, Opcode, Packet, Psn, Qpn, RKey, Syndrome, packets_for,
};

use crate::adapter::{Access, Adapter, Count, KeyViolation, QpEvent, Receive, Span};
use crate::conduct::{Acknowledge, Conduct};
use crate::emit::{Emitted, Outlet, emit};
use crate::ending::{PeerRequest, Rule};
use crate::work::{AccessFlags, Attributes, Completion, CompletionOpcode, CompletionStatus, Extra};

use super::acknowledge::{self, Owed};
use super::replay::{Answer, Due, Replayed, Resources};

/// The side that carries out the peer's requests.
#[derive(Debug)]
pub(crate) struct Responder {
    /// The PSN that comes next.
    expected: Psn,
    /// Request messages completed.
    msn: Msn,
    /// The message that has begun and not ended.
    message: Option<Inbound>,
    /// A NAK is out: what follows the gap is dropped without a word.
    refusing: bool,
    owed: Owed,
    resources: Resources,
    conduct: Conduct,
}

/// A message of several packets in the middle.
#[derive(Clone, Copy, Debug)]
enum Inbound {
    Send { receive: Receive, offset: u32 },
    Write { key: RKey, va: u64, remaining: u32, total: u32 },
}

/// Why a request is not carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    /// The connection ends.
    Fatal(Rule),
    /// No receive buffer.
    NotReady,
}

impl From<Rule> for Refusal {
    fn from(rule: Rule) -> Self {
        Self::Fatal(rule)
    }
}

/// The connection ends on the responder's side: [`Responder::break_off`] is to be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Broken {
    /// The packet that ends it.
    pub(crate) psn: Psn,
    /// Which rule it breaks.
    pub(crate) rule: Rule,
}

impl Responder {
    pub(crate) fn new(conduct: Conduct) -> Self {
        Self {
            expected: Psn::default(),
            msn: Msn::default(),
            message: None,
            refusing: false,
            owed: Owed::default(),
            resources: Resources::default(),
            conduct,
        }
    }

    /// The queue pair becomes ready to receive: everything begins at `rq_psn`.
    //= BC-034
    pub(crate) fn begin(&mut self, attributes: &Attributes) {
        *self = Self {
            expected: attributes.rq_psn,
            resources: Resources::new(attributes.max_dest_rd_atomic),
            ..Self::new(self.conduct)
        };
    }

    /// The attributes have changed while requests may be kept.
    pub(crate) fn set_attributes(&mut self, attributes: &Attributes) {
        self.resources.set_most(attributes.max_dest_rd_atomic);
    }

    /// Whether something is to be sent.
    pub(crate) fn has_work(&self) -> bool {
        self.resources.has_due() || self.owed.any()
    }

    /// The newest request that was executed.
    const fn newest(&self) -> Psn {
        self.expected.previous()
    }

    /// Takes in one request.
    //= 04-4.2, R03, R23, R27, R39
    pub(crate) fn handle_request(
        &mut self,
        now: Instant,
        attributes: &Attributes,
        packet: &Packet<'_>,
        adapter: &mut impl Adapter,
    ) -> Result<(), Broken> {
        let psn = packet.headers.bth.psn;
        let ahead = psn.since(self.expected);
        if ahead > 0 {
            self.out_of_sequence(adapter);
            return Ok(());
        }
        if ahead < 0 {
            self.duplicate(now, attributes, packet, adapter);
            return Ok(());
        }
        match self.carry_out(attributes, packet, adapter) {
            Ok(()) => {
                self.refusing = false;
                self.owed.forget_refusal(); // What it asked for has come.
                // What has an answer of its own is acknowledged by that.
                let bare = matches!(packet.opcode.operation, Operation::Send | Operation::Write)
                    || self.conduct.acknowledge != Acknowledge::Each;
                if packet.headers.bth.ack_req && bare {
                    self.acknowledge(now, adapter);
                }
                Ok(())
            }
            Err(Refusal::NotReady) => {
                adapter.count(Count::OutOfBuffer);
                self.refusing = !self.conduct.nak_after_rnr;
                self.owed.refuse(psn, Syndrome::RnrNak(attributes.min_rnr_timer));
                Ok(())
            }
            Err(Refusal::Fatal(rule)) => Err(Broken { psn, rule }),
        }
    }

    /// An opcode that the specification does not define, with a PSN that comes next.
    //= 04-4.6, R35
    pub(crate) fn handle_reserved(&self, bth: &Bth) -> Result<(), Broken> {
        if bth.psn == self.expected {
            Err(Broken { psn: bth.psn, rule: Rule::Opcode })
        } else {
            Ok(())
        }
    }

    /// A packet behind a gap: one NAK a gap asks for what is missing.
    //= 04-4.5, R03, R24, BC-025
    fn out_of_sequence(&mut self, adapter: &mut impl Adapter) {
        adapter.count(Count::OutOfSequence);
        if !self.refusing && !self.owed.is_refusal() {
            self.refusing = true;
            self.owed.refuse(self.expected, Syndrome::Nak(NakCode::PsnSequenceError));
        }
    }

    /// A packet from before.
    ///
    /// A SEND or WRITE is acknowledged again with the newest PSN executed, not with its own: one
    /// lost ACK then costs one duplicate, however many packets it covered. A READ is carried out
    /// again, an atomic's saved result sent again. A bad duplicate is dropped, also one whose key
    /// was good when it came first, or that the queue pair allowed then.
    //= IBA C9-105, BC-056, R05, R06, 04-4.7
    fn duplicate(
        &mut self,
        now: Instant,
        attributes: &Attributes,
        packet: &Packet<'_>,
        adapter: &mut impl Adapter,
    ) {
        adapter.count(Count::DuplicateRequest);
        match packet.opcode.operation {
            Operation::Send | Operation::Write => {
                if !self.owed.is_refusal() {
                    self.acknowledge(now, adapter);
                }
            }
            Operation::ReadRequest
                if check_queue_pair_access(attributes, packet).is_err()
                    || self.check_key(packet, adapter).is_err() =>
            {
                adapter.count(Count::DuplicateDropped);
            }
            _ => {
                match self.resources.replay(packet, attributes.path_mtu, self.conduct.resumes_reads)
                {
                    Replayed::Read => adapter.count(Count::ReadReplayed),
                    Replayed::Saved => adapter.count(Count::AtomicReplayed),
                    Replayed::Nothing => adapter.count(Count::DuplicateDropped),
                }
            }
        }
    }

    /// The ladder. IBA vol 1 §9.7.4; each rung is one check.
    //= 04-4.2, BC-030, IBA C10-87, R22
    fn carry_out(
        &mut self,
        attributes: &Attributes,
        packet: &Packet<'_>,
        adapter: &mut impl Adapter,
    ) -> Result<(), Refusal> {
        self.check_sequence(packet)?;
        check_queue_pair_access(attributes, packet)?;
        self.check_resources(attributes, packet, adapter)?;
        self.check_length(attributes, packet)?;
        self.check_key(packet, adapter)?;
        match packet.opcode.operation {
            Operation::Send => self.send(attributes, packet, adapter),
            Operation::Write => self.write(attributes, packet, adapter),
            Operation::ReadRequest => self.read(attributes, packet, adapter),
            Operation::CompareSwap | Operation::FetchAdd => self.atomic(packet, adapter),
            Operation::AtomicWrite => self.atomic_write(packet, adapter),
            Operation::Flush => self.flush(packet, adapter),
            _ => Err(Rule::Opcode.into()),
        }
    }

    /// First, Middle … and Last of one operation follow each other.
    //= 02-2.3, R12, R13
    fn check_sequence(&self, packet: &Packet<'_>) -> Result<(), Refusal> {
        let starts = packet.opcode.position.starts();
        let right = match (self.message, packet.opcode.operation) {
            (None, _) => starts,
            (Some(Inbound::Send { .. }), Operation::Send) => !starts,
            (Some(Inbound::Write { .. }), Operation::Write) => !starts,
            (Some(_), _) => false,
        };
        if right { Ok(()) } else { Err(Rule::Sequence.into()) }
    }

    /// A receive buffer for what needs one, a place to keep the answer of what is answered late.
    //= R23, R25, R30
    fn check_resources(
        &self,
        attributes: &Attributes,
        packet: &Packet<'_>,
        adapter: &impl Adapter,
    ) -> Result<(), Refusal> {
        let opcode = packet.opcode;
        let needs_receive = match opcode.operation {
            Operation::Send => opcode.position.starts(),
            Operation::Write => opcode.has(Header::ImmDt),
            _ => false,
        };
        if needs_receive && !adapter.has_receive() {
            return Err(Refusal::NotReady);
        }
        let keeps_answer = !matches!(opcode.operation, Operation::Send | Operation::Write);
        if keeps_answer && (attributes.max_dest_rd_atomic == 0 || !self.resources.has_room()) {
            return Err(Rule::Resources.into());
        }
        Ok(())
    }

    /// Payload against path MTU, message length against its bounds.
    //= IBA C9-92, IBA C9-94, R14, R15, R16, R38
    fn check_length(&self, attributes: &Attributes, packet: &Packet<'_>) -> Result<(), Refusal> {
        let mtu = attributes.path_mtu.bytes() as usize;
        let len = packet.payload.len();
        if !packet.opcode.payload.allows(len, mtu) {
            return Err(Rule::PacketLength.into());
        }
        if packet.headers.reth.is_some_and(|reth| reth.dma_len > MAX_MESSAGE_LEN) {
            return Err(Rule::MessageLength.into());
        }
        if packet.opcode.operation == Operation::AtomicWrite
            && packet.headers.reth.is_some_and(|reth| reth.dma_len != 8)
        {
            return Err(Rule::AtomicWriteLength.into());
        }
        if packet.opcode.operation != Operation::Write {
            return Ok(());
        }
        let remaining = match (packet.headers.reth, self.message) {
            (Some(reth), _) => reth.dma_len,
            (None, Some(Inbound::Write { remaining, .. })) => remaining,
            _ => return Err(Rule::Sequence.into()),
        };
        let right = match packet.opcode.position {
            Position::Only | Position::Last => len == remaining as usize,
            Position::First | Position::Middle => len < remaining as usize,
        };
        if right { Ok(()) } else { Err(Rule::WriteLength.into()) }
    }

    /// The key, for the whole range at once.
    //= R18, IBA C10-87, R22
    fn check_key(&self, packet: &Packet<'_>, adapter: &impl Adapter) -> Result<(), Refusal> {
        let headers = &packet.headers;
        match (packet.opcode.operation, headers.reth, headers.atomic_eth) {
            (Operation::Write, Some(reth), _) => {
                check_remote(adapter, reth.r_key, reth.va, reth.dma_len, Access::Write)
            }
            (Operation::ReadRequest, Some(reth), _) => {
                check_remote(adapter, reth.r_key, reth.va, reth.dma_len, Access::Read)
            }
            (Operation::AtomicWrite, Some(reth), _) => {
                check_aligned(reth.va)?;
                check_remote(adapter, reth.r_key, reth.va, 8, Access::Write)
            }
            (Operation::CompareSwap | Operation::FetchAdd, _, Some(atomic)) => {
                check_aligned(atomic.va)?;
                check_remote(adapter, atomic.r_key, atomic.va, 8, Access::Atomic)
            }
            _ => Ok(()),
        }
    }

    //= R01, R26, R31, R32, BC-080
    fn send(
        &mut self,
        attributes: &Attributes,
        packet: &Packet<'_>,
        adapter: &mut impl Adapter,
    ) -> Result<(), Refusal> {
        let (receive, offset) = match self.message {
            Some(Inbound::Send { receive, offset }) => (receive, offset),
            _ => (adapter.take_receive().ok_or(Refusal::NotReady)?, 0),
        };
        // From here on the receive is ours: whatever goes wrong, `break_off` completes it.
        self.message = Some(Inbound::Send { receive, offset });
        let len = payload_len(packet)?;
        let end = offset.checked_add(len).filter(|end| *end <= receive.len);
        let end = end.ok_or(Rule::ReceiveLength)?;
        if len != 0 {
            let scattered = adapter.scatter_receive(&receive, offset, packet.payload);
            scattered.map_err(Rule::ReceiveKey)?;
        }
        self.message = Some(Inbound::Send { receive, offset: end });
        if packet.opcode.position.ends() {
            let extra = match (packet.headers.imm_dt, packet.headers.ieth) {
                (Some(imm), _) => Extra::Imm(imm),
                (None, Some(ieth)) => {
                    let invalidated = adapter.invalidate_remote(ieth.r_key);
                    invalidated.map_err(Rule::Invalidate)?;
                    Extra::Invalidated(ieth.r_key)
                }
                (None, None) => Extra::None,
            };
            self.message = None;
            self.msn = self.msn.next();
            adapter.complete_receive(
                receive,
                received(attributes, packet, &receive, CompletionOpcode::Recv, end, extra),
            );
        }
        self.expected = self.expected.next();
        Ok(())
    }

    //= R21, R25, BC-071, BC-072
    fn write(
        &mut self,
        attributes: &Attributes,
        packet: &Packet<'_>,
        adapter: &mut impl Adapter,
    ) -> Result<(), Refusal> {
        let (key, va, remaining, total) = match (packet.headers.reth, self.message) {
            (Some(reth), _) => (reth.r_key, reth.va, reth.dma_len, reth.dma_len),
            (None, Some(Inbound::Write { key, va, remaining, total })) => {
                (key, va, remaining, total)
            }
            _ => return Err(Refusal::Fatal(Rule::Sequence)),
        };
        let len = payload_len(packet)?;
        if packet.opcode.position.starts() {
            adapter.count(Count::WriteRequests);
        }
        if len != 0 {
            let written = adapter.write_remote(key, va, packet.payload);
            written.map_err(Rule::Key)?;
        }
        if !packet.opcode.position.ends() {
            let va = va.wrapping_add(u64::from(len));
            let remaining = remaining.checked_sub(len).ok_or(Rule::WriteLength)?;
            self.message = Some(Inbound::Write { key, va, remaining, total });
        } else {
            self.message = None;
            if let Some(imm) = packet.headers.imm_dt {
                let receive = adapter.take_receive().ok_or(Refusal::NotReady)?;
                let opcode = CompletionOpcode::RecvRdmaWithImm;
                let extra = Extra::Imm(imm);
                adapter.complete_receive(
                    receive,
                    received(attributes, packet, &receive, opcode, total, extra),
                );
            }
            self.msn = self.msn.next();
        }
        self.expected = self.expected.next();
        Ok(())
    }

    //= R28, IBA C9-148
    fn read(
        &mut self,
        attributes: &Attributes,
        packet: &Packet<'_>,
        adapter: &mut impl Adapter,
    ) -> Result<(), Refusal> {
        let reth = packet.headers.reth.ok_or(Rule::Opcode)?;
        adapter.count(Count::ReadRequests);
        let span = packets_for(reth.dma_len, attributes.path_mtu.bytes());
        let answer = Answer::Read { r_key: reth.r_key, va: reth.va, len: reth.dma_len };
        // A READ counts as completed when it is accepted. C9-148
        self.answer_with(span, answer);
        Ok(())
    }

    /// Executes an atomic and keeps its result, so that a duplicate is never executed.
    //= R10, BC-050
    fn atomic(&mut self, packet: &Packet<'_>, adapter: &mut impl Adapter) -> Result<(), Refusal> {
        let atomic = packet.headers.atomic_eth.ok_or(Rule::Opcode)?;
        let operation = packet.opcode.operation;
        adapter.count(Count::AtomicRequests);
        let mut change = |found: u64| match operation {
            Operation::FetchAdd => Some(found.wrapping_add(atomic.swap_add)),
            _ => (found == atomic.compare).then_some(atomic.swap_add),
        };
        let original =
            adapter.atomic_remote(atomic.r_key, atomic.va, &mut change).map_err(Rule::Key)?;
        self.answer_with(1, Answer::Atomic { original, operation });
        Ok(())
    }

    fn atomic_write(
        &mut self,
        packet: &Packet<'_>,
        adapter: &mut impl Adapter,
    ) -> Result<(), Refusal> {
        let reth = packet.headers.reth.ok_or(Rule::Opcode)?;
        adapter.write_remote(reth.r_key, reth.va, packet.payload).map_err(Rule::Key)?;
        self.answer_with(1, Answer::Done { operation: Operation::AtomicWrite });
        Ok(())
    }

    fn flush(&mut self, packet: &Packet<'_>, adapter: &mut impl Adapter) -> Result<(), Refusal> {
        let headers = &packet.headers;
        let (feth, reth) = headers.feth.zip(headers.reth).ok_or(Rule::Opcode)?;
        let len = match feth.selectivity {
            FlushSelectivity::Range => u64::from(reth.dma_len),
            FlushSelectivity::MemoryRegion => 0,
            FlushSelectivity::Reserved(_) => return Err(Rule::FlushTarget.into()),
        };
        let span = Span { va: reth.va, len };
        if flushes(feth.placement).next().is_none() {
            return Err(Rule::FlushTarget.into());
        }
        let nothing = span.len == 0 && feth.selectivity == FlushSelectivity::Range;
        let wanted = flushes(feth.placement).filter(|_| !nothing);
        // What may not be done in full is not begun.
        for access in wanted.clone() {
            adapter.check_remote(reth.r_key, span, access).map_err(Rule::Key)?;
        }
        for access in wanted {
            adapter.flush_remote(reth.r_key, span, access).map_err(Rule::Key)?;
        }
        self.answer_with(1, Answer::Done { operation: Operation::Flush });
        Ok(())
    }

    /// Owes an answer that takes `span` PSNs.
    fn answer_with(&mut self, span: u32, answer: Answer) {
        self.resources.keep(self.expected, span, answer);
        self.expected = self.expected.advance(span);
        self.msn = self.msn.next();
    }

    /// The connection ends: the peer is told, a receive in hand completes.
    //= R17, R12, BC-030, BC-095, IBA C9-222.1.1, 05-5.4
    pub(crate) fn break_off(
        &mut self,
        attributes: &Attributes,
        Broken { psn, rule }: Broken,
        adapter: &mut impl Adapter,
    ) {
        if rule == Rule::ReceiveLength {
            adapter.count(Count::ResponderLengthError);
        }
        if rule.event() == QpEvent::AccessError {
            adapter.count(Count::AccessRefused);
        }
        let code = match rule {
            Rule::ReceiveLength => self.conduct.too_long,
            _ => rule.nak(),
        };
        self.owed.refuse(psn, Syndrome::Nak(code));
        if let Some(Inbound::Send { receive, .. }) = self.message.take() {
            adapter.count(Count::ResponderCqeError);
            let status = rule.receive_status();
            adapter.complete_receive(receive, failed(attributes, &receive, status));
        }
    }

    /// What is to be told of a packet that ends the connection, before [`Responder::break_off`].
    pub(crate) fn describe(&self, bth: &Bth, packet: Option<&Packet<'_>>) -> PeerRequest {
        let headers = packet.map(|packet| &packet.headers);
        let reth = headers.and_then(|headers| headers.reth);
        let atomic = headers.and_then(|headers| headers.atomic_eth);
        let remote = match (reth, atomic, self.message) {
            (Some(reth), ..) => Some((reth.r_key, reth.va, reth.dma_len)),
            (None, Some(atomic), _) => Some((atomic.r_key, atomic.va, 8)),
            (None, None, Some(Inbound::Write { key, va, remaining, .. })) => {
                Some((key, va, remaining))
            }
            _ => None,
        };
        PeerRequest {
            opcode: bth.opcode,
            psn: bth.psn,
            payload: packet
                .map_or(0, |packet| u32::try_from(packet.payload.len()).unwrap_or(u32::MAX)),
            remote,
            receive: match self.message {
                Some(Inbound::Send { receive, offset }) => Some((receive, offset)),
                _ => None,
            },
        }
    }

    /// The same for a READ whose memory went away before its response with `psn` was sent.
    pub(crate) fn describe_read(&self, psn: Psn) -> PeerRequest {
        let bth = Bth { opcode: READ_REQUEST, psn, ..Bth::default() };
        let remote = self.resources.read_with(psn);
        PeerRequest { remote, ..self.describe(&bth, None) }
    }

    /// The queue pair goes to error for another reason: what is in hand is flushed. Answers owed
    /// for what was executed, and a NAK, are still sent.
    //= R36, 05-5.2
    pub(crate) fn flush_message(&mut self, attributes: &Attributes, adapter: &mut impl Adapter) {
        if let Some(Inbound::Send { receive, .. }) = self.message.take() {
            adapter.count(Count::ResponderFlushed);
            let flushed = failed(attributes, &receive, CompletionStatus::Flushed);
            adapter.complete_receive(receive, flushed);
        }
    }

    /// The queue pair is reset: a receive in hand goes back.
    pub(crate) fn forget_message(&mut self, adapter: &mut impl Adapter) {
        if let Some(Inbound::Send { receive, .. }) = self.message.take() {
            adapter.forget_receive(receive);
        }
    }

    /// Writes the next answer that is owed, in the order of PSNs.
    //= IBA C9-110, 04-4.3, S02, BC-058
    #[inline]
    pub(crate) fn poll(
        &mut self,
        attributes: &Attributes,
        outlet: Outlet<'_>,
        adapter: &mut impl Adapter,
    ) -> Result<Option<Emitted>, Broken> {
        let due = self.resources.next(attributes.path_mtu);
        if let Some(due) = due.filter(|due| !self.owed.goes_before(due.psn)) {
            return self.send_due(attributes, due, outlet, adapter);
        }
        let newest = self.positive(adapter);
        let Some(answer) = self.owed.next(newest) else { return Ok(None) };
        let emitted = self.send_acknowledge(attributes, answer, outlet);
        let Some(emitted) = emitted else { return Ok(None) };
        self.owed.sent();
        match answer.syndrome {
            Syndrome::Ack(_) => adapter.count(Count::AckSent),
            Syndrome::RnrNak(_) => adapter.count(Count::RnrNakSent),
            Syndrome::Nak(NakCode::PsnSequenceError) => adapter.count(Count::SequenceNakSent),
            Syndrome::Nak(_) => adapter.count(Count::FatalNakSent),
        }
        Ok(Some(emitted))
    }

    /// Somebody asked for an acknowledgement.
    fn acknowledge(&mut self, now: Instant, adapter: &impl Adapter) {
        let newest = self.positive(adapter);
        self.owed.acknowledge(self.conduct.acknowledge, now, newest);
    }

    /// The positive answer to all that was executed.
    fn positive(&self, adapter: &impl Adapter) -> acknowledge::Answer {
        let syndrome = Syndrome::Ack(self.credits(adapter));
        acknowledge::Answer { psn: self.newest(), syndrome, msn: self.msn }
    }

    /// How many messages beyond those completed have a receive buffer.
    //= 06-6.2
    fn credits(&self, adapter: &impl Adapter) -> Credits {
        if !self.conduct.grants_credits {
            return Credits::INVALID;
        }
        let begun = u32::from(matches!(self.message, Some(Inbound::Send { .. })));
        let buffers = adapter.receives().map(|waiting| waiting.saturating_add(begun));
        buffers.map_or(Credits::INVALID, Credits::for_buffers)
    }

    /// When [`Responder::handle_timeout`] is to be called.
    pub(crate) const fn deadline(&self) -> Option<Instant> {
        self.owed.deadline()
    }

    /// Time has passed.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        self.owed.handle_timeout(now);
    }

    fn send_acknowledge(
        &self,
        attributes: &Attributes,
        answer: acknowledge::Answer,
        outlet: Outlet<'_>,
    ) -> Option<Emitted> {
        let opcode = Opcode::find(Service::Rc, Operation::Acknowledge, Position::Only, None)?;
        let mut headers = self.response_headers(attributes, opcode, answer.psn);
        headers.aeth = Some(Aeth { syndrome: answer.syndrome, msn: answer.msn });
        emit(outlet, &mut headers, 0, |_| Ok::<_, KeyViolation>(()))?.ok()
    }

    //= R28, BC-055
    fn send_due(
        &mut self,
        attributes: &Attributes,
        due: Due,
        outlet: Outlet<'_>,
        adapter: &mut impl Adapter,
    ) -> Result<Option<Emitted>, Broken> {
        let (operation, position) = match due.answer {
            Answer::Atomic { .. } => (Operation::AtomicAcknowledge, Position::Only),
            Answer::Done { .. } => (Operation::ReadResponse, Position::Only),
            Answer::Read { .. } => (Operation::ReadResponse, Position::of(due.first, due.last)),
        };
        let Some(opcode) = Opcode::find(Service::Rc, operation, position, None) else {
            return Ok(None);
        };
        let mut headers = self.response_headers(attributes, opcode, due.psn);
        if opcode.has(Header::Aeth) {
            let syndrome = Syndrome::Ack(self.credits(adapter));
            headers.aeth = Some(Aeth { syndrome, msn: self.msn });
        }
        if let Answer::Atomic { original, .. } = due.answer {
            headers.atomic_ack_eth = Some(AtomicAckEth { original });
        }
        let emitted = emit(outlet, &mut headers, due.len as usize, |place| match due.answer {
            Answer::Read { r_key, va, .. } if due.len != 0 => {
                adapter.read_remote(r_key, va.wrapping_add(u64::from(due.offset)), place)
            }
            _ => Ok(()),
        });
        match emitted {
            None => Ok(None),
            Some(Ok(emitted)) => {
                self.resources.sent();
                self.owed.implied_by(due.psn, self.newest());
                Ok(Some(emitted))
            }
            Some(Err(violation)) => {
                // The memory went away after the READ was accepted. BC-055
                self.resources.stop();
                Err(Broken { psn: due.psn, rule: Rule::ReadKey(violation) })
            }
        }
    }

    //= 04-4.12
    fn response_headers(&self, attributes: &Attributes, opcode: &Opcode, psn: Psn) -> Headers {
        Headers {
            bth: Bth {
                opcode: opcode.code,
                mig_req: self.conduct.mig_req,
                p_key: attributes.p_key,
                dest_qp: attributes.dest_qp,
                psn,
                ..Bth::default()
            },
            ..Headers::default()
        }
    }
}

/// What the queue pair allows its peer, whatever memory says.
//= 04-4.2, R19
fn check_queue_pair_access(attributes: &Attributes, packet: &Packet<'_>) -> Result<(), Refusal> {
    let wanted = match packet.opcode.operation {
        Operation::Write | Operation::AtomicWrite => AccessFlags::REMOTE_WRITE,
        Operation::ReadRequest => AccessFlags::REMOTE_READ,
        Operation::CompareSwap | Operation::FetchAdd => AccessFlags::REMOTE_ATOMIC,
        Operation::Flush => {
            let placement = packet.headers.feth.map(|feth| feth.placement).unwrap_or_default();
            flushes(placement).fold(AccessFlags::NONE, |all, access| all | access.right())
        }
        _ => AccessFlags::NONE,
    };
    if attributes.access.contain(wanted) { Ok(()) } else { Err(Rule::QueuePairAccess.into()) }
}

/// How far a FLUSH goes.
fn flushes(placement: FlushPlacement) -> impl Iterator<Item = Access> + Clone {
    let global = placement.global_visibility.then_some(Access::FlushGlobal);
    let persistent = placement.persistence.then_some(Access::FlushPersistent);
    global.into_iter().chain(persistent)
}

/// A request for no bytes need not carry a valid address or key.
//= IBA C9-88, R20, 04-4.14
fn check_remote(
    adapter: &impl Adapter,
    key: RKey,
    va: u64,
    len: u32,
    access: Access,
) -> Result<(), Refusal> {
    if len == 0 {
        return Ok(());
    }
    let span = Span { va, len: u64::from(len) };
    Ok(adapter.check_remote(key, span, access).map_err(Rule::Key)?)
}

/// Atomics address a multiple of eight.
//= BC-062, R29
fn check_aligned(va: u64) -> Result<(), Refusal> {
    if va.is_multiple_of(8) { Ok(()) } else { Err(Rule::Aligned.into()) }
}

/// Bytes of a packet's payload, which its path MTU has bounded.
fn payload_len(packet: &Packet<'_>) -> Result<u32, Refusal> {
    u32::try_from(packet.payload.len()).map_err(|_| Rule::PacketLength.into())
}

const READ_REQUEST: u8 = 0x0c;

/// The completion of a receive that got its message, or of one that a WRITE used up.
//= 04-4.15
pub(crate) fn received(
    attributes: &Attributes,
    packet: &Packet<'_>,
    receive: &Receive,
    opcode: CompletionOpcode,
    byte_len: u32,
    extra: Extra,
) -> Completion {
    Completion {
        wr_id: receive.wr_id,
        status: CompletionStatus::Success,
        opcode,
        byte_len,
        extra,
        qpn: attributes.qpn,
        source_qp: attributes.dest_qp,
        grh: false,
        solicited: packet.headers.bth.solicited,
    }
}

/// The completion of a receive that went wrong.
//= 05-5.3
pub(crate) fn failed(
    attributes: &Attributes,
    receive: &Receive,
    status: CompletionStatus,
) -> Completion {
    Completion {
        wr_id: receive.wr_id,
        status,
        opcode: CompletionOpcode::Recv,
        byte_len: 0,
        extra: Extra::None,
        qpn: attributes.qpn,
        source_qp: Qpn::default(),
        grh: false,
        solicited: false,
    }
}
