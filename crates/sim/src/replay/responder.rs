//! Recorded requests, played to our responder.

use std::collections::BTreeMap;
use std::ops::Range;

use roxe_device::HostRegion;
use roxe_transport::qp_state::ServiceType;
use roxe_transport::work::{Completion, CompletionStatus, Extra};
use roxe_wire::opcode::{Header, Operation};
use roxe_wire::{Qpn, RnrTimer};

use super::inferred::{Inferred, count};
use super::meaning::{Says, View, answers_differ};
use super::memory::{Memory, Plan, Revoked, without};
use super::reached::{Fate, Then, What, fates};
use super::record::Item;
use super::rig::{Rig, Sent, Setup};
use super::sequence::{Turns, sessions};
use super::{Connection, Role, Side};

/// Plays the requests of one direction; `connection.answers` is what was recorded in return.
pub(super) fn play(connection: &Connection<'_>) -> Side {
    let mut side = Side::new(connection, Role::Responder);
    for session in sessions(connection) {
        if let Err(why) = play_session(connection, &session.requests, &session.answers, &mut side) {
            let number = session.requests.first().map_or(0, |item| item.number);
            side.not_comparable(number, why);
        }
    }
    side
}

fn play_session(
    connection: &Connection<'_>,
    requests: &[&Item],
    answers: &[&Item],
    side: &mut Side,
) -> Result<(), String> {
    let Some((first, turns)) = Turns::first(requests, answers) else { return Ok(()) };
    let (asked, answered) = count(requests, answers, turns, connection.path_mtu);
    let fates = match connection.service {
        ServiceType::Rc => fates(&asked, &answered, turns.at(first)),
        // Nothing tells: all of them came.
        _ => asked
            .iter()
            .map(|asked| Fate {
                what: What::Came {
                    then: if asked.bad { Then::Otherwise } else { Then::Executed },
                    covered: true,
                },
                answers: 0..0,
            })
            .collect(),
    };
    let lost = fates.iter().filter(|fate| fate.what == What::Lost).count();
    side.lost += lost as u64;
    let session = Inferred { requests, answers, asked, fates };
    let plan = session.plan()?;
    let recorded: u64 = answers.iter().map(|item| item.payload().len() as u64).sum();
    let read = requests.iter().filter(|item| item.opcode.operation == Operation::ReadRequest);
    let read = read.filter_map(|item| item.headers.reth).map(|reth| u64::from(reth.dma_len));
    if read.sum::<u64>() > MOST_READ + 4 * recorded {
        return Err("its READs ask for far more than is recorded".to_owned());
    }
    for (number, why) in &plan.unexplained {
        side.not_comparable(*number, why.clone());
    }
    let mut rig = Rig::new(connection.destination)?;
    let setup = Setup {
        service: connection.service,
        peer_address: connection.source,
        peer_qp: connection.source_qp.unwrap_or(UNKNOWN_QP),
        path_mtu: connection.path_mtu,
        p_key: requests[0].headers.bth.p_key,
        q_key: Default::default(),
        sq_psn: Default::default(),
        rq_psn: first,
        access: plan.rights,
        min_rnr_timer: answers.iter().find_map(|item| wait_of(item)).unwrap_or_default(),
        is_gsi: false,
    };
    let qpn = rig.queue_pair(&setup)?;
    let memory = plan.set_up(&mut rig, qpn)?;
    let player = Player {
        side,
        session: &session,
        rig,
        setup,
        qpn,
        memory,
        plan: &plan,
        expected: 0,
        begun: 0,
        solid: -1,
        suspended: false,
        in_message: false,
        write: None,
        message: Vec::new(),
        receives: BTreeMap::new(),
        msn_offset: None,
        uc_next: None,
    };
    player.play()
}

/// So many bytes are read though no answer shows them: each costs as much as one that is recorded.
const MOST_READ: u64 = 1 << 28;

fn wait_of(item: &Item) -> Option<RnrTimer> {
    match View::from(item).says() {
        Some(Says::NotReady(timer)) => Some(timer),
        _ => None,
    }
}

/// One device and where in its session it is.
struct Player<'a> {
    side: &'a mut Side,
    session: &'a Inferred<'a>,
    rig: Rig,
    setup: Setup,
    qpn: Qpn,
    memory: Memory,
    plan: &'a Plan,
    /// The PSN that comes next, and the one that the queue pair began with.
    expected: i64,
    begun: i64,
    /// The newest PSN executed that is not a READ's: acknowledging a READ says nothing.
    solid: i64,
    /// A message is under way whose beginning is not recorded.
    suspended: bool,
    /// A message is under way.
    in_message: bool,
    /// Where the next bytes of a WRITE go.
    write: Option<(u32, u64)>,
    /// The SEND under way.
    message: Vec<u8>,
    /// Where the receives lie, by the order of posting.
    receives: BTreeMap<u64, HostRegion>,
    /// What has to be added to our MSN.
    msn_offset: Option<u32>,
    /// The PSN that an unreliable connection expects, and whether a message is whole so far.
    uc_next: Option<(i64, bool)>,
}

impl Player<'_> {
    fn play(mut self) -> Result<(), String> {
        let mut seen = 0;
        for index in 0..self.session.requests.len() {
            let fate = &self.session.fates[index];
            if !fate.answers.is_empty() {
                self.unasked(seen..fate.answers.start);
                seen = fate.answers.end;
            }
            let What::Came { then, covered } = fate.what else { continue };
            let item = self.session.requests[index];
            if self.plan.unexplained.iter().any(|(number, _)| *number == item.number) {
                return Ok(()); // The connection ended here.
            }
            self.came(index, then, covered)?;
            if matches!(then, Then::Executed | Then::ExecutedAnew) {
                self.expected = self.session.asked[index].at + self.session.asked[index].span;
            }
        }
        self.unasked(seen..self.session.answers.len());
        let last = self.session.requests.last().map_or(0, |item| item.number);
        for key in self.memory.wrong_keys(&self.rig) {
            let what = format!("memory of key 0x{key:x} as the WRITEs left it");
            self.side.differs(last, "memory", what, "other bytes".to_owned());
        }
        Ok(())
    }

    /// A request came to the recorded responder: it comes to ours.
    fn came(&mut self, index: usize, then: Then, covered: bool) -> Result<(), String> {
        let item = self.session.requests[index];
        let at = self.session.asked[index].at;
        let executed = matches!(then, Then::Executed | Then::ExecutedAnew);
        // What was carried out before the recording began, and the rest of a message that began
        // there, ours cannot answer.
        let starts = item.opcode.position.starts();
        self.suspended |= executed && !starts && !self.in_message && !self.is_unreliable();
        let resumes = self.suspended && executed && starts;
        if (at < 0 && !item.is_bad()) || (self.suspended && !resumes) {
            self.side.older += 1;
            return Ok(());
        }
        if executed {
            self.in_message = !item.opcode.position.ends();
        }
        match self.plan.revoked.get(&item.number) {
            Some(Revoked::Key(key)) => self.memory.revoke(&mut self.rig, *key)?,
            Some(Revoked::Right(right)) => {
                self.rig.grant(self.qpn, without(self.plan.rights, *right))?;
            }
            None => {}
        }
        self.side.played += 1;
        if then == Then::ExecutedAnew || resumes {
            self.begin_anew(item)?;
            self.begun = at;
        }
        if self.is_unreliable() && !item.is_bad() {
            return self.take_in_unreliable(index, item);
        }
        self.make_ready(index, item, executed)?;
        self.rig.feed(item, self.qpn, &self.memory.keys);
        let ours = self.collect();
        if executed && item.opcode.operation != Operation::ReadRequest {
            self.solid = at;
        }
        let answers = self.session.fates[index].answers.clone();
        self.compare(item, ours, answers.clone(), covered);
        if executed {
            let mut answers = self.session.answers[answers].iter();
            let recorded = answers.find_map(|answer| match View::from(*answer).says() {
                Some(Says::Value(value)) => Some(value),
                _ => None,
            });
            self.check_effect(item, recorded);
        }
        while let Some(completion) = self.rig.completion() {
            self.delivered(item, &completion, executed);
        }
        Ok(())
    }

    fn is_unreliable(&self) -> bool {
        self.setup.service == ServiceType::Uc
    }

    /// Packets are missing in the recording: a queue pair that expects the next one takes over.
    fn begin_anew(&mut self, item: &Item) -> Result<(), String> {
        self.suspended = false;
        self.setup.rq_psn = item.psn();
        self.qpn = self.rig.queue_pair(&self.setup)?;
        self.side.gaps += 1;
        self.msn_offset = None;
        self.write = None;
        self.message.clear();
        self.receives.clear();
        Ok(())
    }

    /// Before a request: what its recorded answer needs to be given.
    fn make_ready(&mut self, index: usize, item: &Item, executed: bool) -> Result<(), String> {
        let session = self.session;
        let answers = &session.answers[session.fates[index].answers.clone()];
        let refused = session.refusal(index).is_some();
        let begins_send = item.opcode.operation == Operation::Send && item.opcode.position.starts();
        let ends_write =
            item.opcode.operation == Operation::Write && item.opcode.has(Header::ImmDt);
        if (begins_send && (executed || refused)) || (ends_write && executed) {
            let len = if begins_send { session.receive_len(index) } else { 0 };
            let host = self.rig.post_receive(self.qpn, len)?;
            self.receives.insert(self.side.receives, host);
            self.side.receives += 1;
        }
        for answer in answers {
            match (View::from(*answer).says(), item.headers.reth, item.headers.atomic_eth) {
                (Some(Says::Data(data, _)), Some(reth), _) if !data.is_empty() => {
                    let packets = answer.psn().since(item.psn());
                    let offset = u64::from(self.setup.path_mtu.bytes()) * packets.max(0) as u64;
                    let va = reth.va.wrapping_add(offset);
                    let key = reth.r_key.0;
                    let changed = self.memory.shown(&mut self.rig, key, va, data);
                    self.side.changed += u64::from(changed);
                }
                (Some(Says::Value(value)), _, Some(atomic)) if executed => {
                    let bytes = value.to_ne_bytes();
                    let (key, va) = (atomic.r_key.0, atomic.va);
                    if self.memory.is_atomic(key, va) {
                        continue; // Ours must have come to the same value.
                    }
                    let changed = self.memory.shown(&mut self.rig, key, va, &bytes);
                    self.side.changed += u64::from(changed);
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn collect(&mut self) -> Vec<Sent> {
        let mut ours = Vec::new();
        while let Some(sent) = self.rig.poll() {
            ours.push(sent);
        }
        ours
    }

    /// Recorded answers that no request accounts for. To acknowledge again what has come says
    /// nothing new.
    fn unasked(&mut self, range: Range<usize>) {
        for answer in &self.session.answers[range] {
            let view = View::from(*answer);
            let expected = self.setup.rq_psn.advance((self.expected - self.begun) as u32);
            if view.says() != Some(Says::Ack) || view.psn().since(expected) >= 0 {
                let ours = "nothing".to_owned();
                self.side.differs(answer.number, "answer", view.words(), ours);
            }
        }
    }

    fn compare(&mut self, item: &Item, ours: Vec<Sent>, range: Range<usize>, covered: bool) {
        let answered = !range.is_empty();
        let mut ours: Vec<_> = ours.into_iter().map(Some).collect();
        for answer in &self.session.answers[range] {
            let recorded = View::from(*answer);
            let same = |sent: &Option<Sent>| {
                sent.as_ref().is_some_and(|sent| sent.headers.bth.psn == answer.psn())
            };
            let at = ours.iter().position(same).or_else(|| ours.iter().position(Option::is_some));
            let Some(sent) = at.and_then(|at| ours[at].take()) else {
                // An acknowledgement that nobody had asked for tells no more than the next one.
                if recorded.says() != Some(Says::Ack) || item.headers.bth.ack_req {
                    let words = recorded.words();
                    self.side.differs(answer.number, "answer", words, "nothing".to_owned());
                }
                continue;
            };
            self.side.compared += 1;
            let view = View::from(&sent);
            let apart = view.psn().since(recorded.psn());
            let newest = self.setup.rq_psn.advance((self.solid - self.begun) as u32);
            let only_reads_between = [recorded, view]
                .iter()
                .all(|one| one.says() == Some(Says::Ack) && one.psn().since(newest) >= 0);
            let same_by_meaning = apart != 0 && only_reads_between;
            let what = answers_differ(recorded, view).filter(|_| !same_by_meaning);
            if let Some(what) = what {
                self.side.differs(answer.number, what, recorded.words(), view.words());
            } else {
                self.compare_msn(answer, &sent);
            }
        }
        for sent in ours.into_iter().flatten() {
            let view = View::from(&sent);
            if view.says() == Some(Says::Ack) && covered {
                self.side.coalesced += 1;
            } else if answered && matches!(view.says(), Some(Says::Data(..))) {
                self.side.unseen += 1; // Other parts of the same READ are there.
            } else {
                let recorded = "nothing".to_owned();
                self.side.differs(item.number, "answer", recorded, view.words());
            }
        }
    }

    /// MSNs count from the beginning of a connection, which the recording need not hold: the first
    /// pair of answers tells how far apart they are.
    fn compare_msn(&mut self, answer: &Item, ours: &Sent) {
        let (Some(recorded), Some(sent)) = (answer.headers.aeth, ours.headers.aeth) else { return };
        let apart = recorded.msn.get().wrapping_sub(sent.msn.get()) & 0x00ff_ffff;
        if *self.msn_offset.get_or_insert(apart) != apart {
            let expected = sent.msn.advance(self.msn_offset.unwrap_or(0));
            let recorded = format!("msn {}", recorded.msn.get());
            self.side.differs(answer.number, "msn", recorded, format!("msn {}", expected.get()));
            self.msn_offset = Some(apart);
        }
    }

    /// Whether a request did to memory what it should. `recorded` is the value that an atomic was
    /// recorded to have found.
    fn check_effect(&mut self, item: &Item, recorded: Option<u64>) {
        let operation = item.opcode.operation;
        if let (Operation::Write | Operation::AtomicWrite, Some(reth)) =
            (operation, item.headers.reth)
        {
            self.write = Some((reth.r_key.0, reth.va));
        }
        match (operation, self.write, item.headers.atomic_eth) {
            (Operation::Write | Operation::AtomicWrite, Some((key, va)), _) => {
                let payload = item.payload();
                self.memory.written(key, va, payload);
                if !self.memory.is_right(&self.rig, key, va, payload.len()) {
                    let what = format!("{} B at 0x{va:x}", payload.len());
                    self.side.differs(item.number, "memory", what, "other bytes".to_owned());
                }
                self.write = Some((key, va.wrapping_add(payload.len() as u64)));
            }
            (Operation::CompareSwap | Operation::FetchAdd, _, Some(atomic)) => {
                let (key, va) = (atomic.r_key.0, atomic.va);
                let Some(found) = self.memory.number(key, va) else { return };
                let change = |found: u64| match operation {
                    Operation::FetchAdd => found.wrapping_add(atomic.swap_add),
                    _ if found == atomic.compare => atomic.swap_add,
                    _ => found,
                };
                let stored = change(found);
                self.memory.left(key, va, stored);
                if !self.memory.is_right(&self.rig, key, va, 8) {
                    let what = format!("0x{stored:x} at 0x{va:x}");
                    self.side.differs(item.number, "memory", what, "another value".to_owned());
                }
                // Where the recorded value was another one, ours goes on with that.
                if let Some(recorded) = recorded.filter(|recorded| *recorded != found) {
                    let bytes = change(recorded).to_ne_bytes();
                    self.memory.shown(&mut self.rig, key, va, &bytes);
                    self.memory.left(key, va, change(recorded));
                }
            }
            (Operation::Send, ..) => {
                if item.opcode.position.starts() {
                    self.message.clear();
                }
                self.message.extend_from_slice(item.payload());
            }
            _ => {}
        }
    }

    /// A receive completed: it must be this message.
    fn delivered(&mut self, item: &Item, completion: &Completion, executed: bool) {
        let Some((_, host)) = self.receives.pop_first() else { return };
        if !executed || !item.opcode.completes_a_receive() {
            return; // The connection ended, and its receive with it.
        }
        self.side.delivered += 1;
        let sent = item.opcode.operation == Operation::Send;
        let bytes = if sent { &self.message[..] } else { &[] };
        let extra = match (item.headers.imm_dt, item.headers.ieth) {
            (Some(imm), _) => Extra::Imm(imm),
            (None, Some(ieth)) => {
                let ours = self.memory.keys.get(&ieth.r_key.0);
                Extra::Invalidated(roxe_wire::RKey(ours.map_or(0, |key| key.0)))
            }
            (None, None) => Extra::None,
        };
        let right = completion.status == CompletionStatus::Success
            && completion.extra == extra
            && (!sent || completion.byte_len as usize == bytes.len())
            && self.rig.read(host, 0, bytes.len()) == bytes;
        if !right {
            let recorded = format!("a message of {} B delivered", bytes.len());
            let ours = format!("{} len {}", completion.status.name(), completion.byte_len);
            self.side.differs(item.number, "delivery", recorded, ours);
        }
    }

    /// A packet of an unreliable connection. A message whose packets are all recorded, one after
    /// the other, must be delivered; of any other nothing may be.
    fn take_in_unreliable(&mut self, index: usize, item: &Item) -> Result<(), String> {
        let asked = &self.session.asked[index];
        let position = item.opcode.position;
        let whole = match self.uc_next {
            _ if position.starts() => true,
            Some((next, whole)) => whole && next == asked.at,
            None => false,
        };
        self.uc_next = Some((asked.at + 1, whole && !position.ends()));
        // An immediate comes with the last packet of a WRITE, all else with the first of a SEND.
        let needs_receive = match item.opcode.operation {
            Operation::Send => position.starts(),
            _ => item.opcode.has(Header::ImmDt) && whole,
        };
        if needs_receive && self.receives.is_empty() {
            let len = UC_RECEIVE.max(self.session.receive_len(index));
            let host = self.rig.post_receive(self.qpn, len)?;
            self.receives.insert(self.side.receives, host);
            self.side.receives += 1;
        }
        self.rig.feed(item, self.qpn, &self.memory.keys);
        for sent in self.collect() {
            let words = View::from(&sent).words();
            self.side.differs(item.number, "answer", "nothing".to_owned(), words);
        }
        if whole {
            self.check_effect(item, None);
        }
        let completion = self.rig.completion();
        let expected = whole && item.opcode.completes_a_receive();
        match (completion, expected) {
            (Some(completion), true) => self.delivered(item, &completion, true),
            (None, false) => {}
            (completion, _) => {
                let words = |some| if some { "a message delivered" } else { "nothing delivered" };
                let ours = words(completion.is_some()).to_owned();
                self.side.differs(item.number, "delivery", words(expected).to_owned(), ours);
            }
        }
        if position.ends() {
            self.side.dropped += u64::from(!whole);
            self.side.compared += 1;
        }
        Ok(())
    }
}

/// Stands for the queue pair of a peer that never got a packet.
const UNKNOWN_QP: Qpn = Qpn::new(0x10);

/// Room for a message whose receive an earlier, lost one took over.
const UC_RECEIVE: u32 = 1 << 20;
