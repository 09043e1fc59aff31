//! Recorded requests, played to our responder.

mod answers;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use roxe_device::HostRegion;
use roxe_transport::conduct::Acknowledge;
use roxe_transport::qp_state::ServiceType;
use roxe_transport::work::{Completion, CompletionStatus, Extra};
use roxe_wire::opcode::{Header, Operation};
use roxe_wire::{LKey, Psn, Qpn, RnrTimer};

use super::inferred::{Inferred, count};
use super::meaning::{Says, View};
use super::memory::{Memory, Plan, Revoked, without};
use super::places::Places;
use super::reached::{Fate, Then, What, fates};
use super::record::Item;
use super::rig::{Retries, Rig, Sent, Setup};
use super::sequence::{Turns, sessions};
use super::shared::Shared;
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
    let late = begins_late(requests, answers);
    let (fates, places) = match connection.service {
        ServiceType::Rc => fates(&asked, &answered, turns.at(first), late),
        // Nothing tells: all of them came.
        _ => (
            asked
                .iter()
                .map(|asked| Fate {
                    what: What::Came {
                        then: if asked.bad { Then::Otherwise } else { Then::Executed },
                        covered: true,
                    },
                    answers: 0..0,
                })
                .collect(),
            Places::default(),
        ),
    };
    let lost = fates.iter().filter(|fate| fate.what == What::Lost).count();
    side.lost += lost as u64;
    let session = Inferred { requests, answers, asked, answered, fates, places };
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
    let mut rig = Rig::new(connection.destination, connection.conduct)?;
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
        retries: Retries::ENDLESS,
    };
    let qpn = rig.queue_pair(&setup)?;
    let memory = plan.set_up(&mut rig, qpn)?;
    let mut player = Player {
        side,
        session: &session,
        rig,
        setup,
        qpn,
        memory,
        plan: &plan,
        expected: 0,
        next: 0,
        begun: 0,
        asked_for: 0,
        solid: -1,
        suspended: false,
        in_message: false,
        write: None,
        message: Vec::new(),
        receives: BTreeMap::new(),
        msn_offset: None,
        first_msn: None,
        early: BTreeSet::new(),
        late,
        uncaptured_msn: None,
        completed: 0,
        left: Vec::new(),
        given: BTreeMap::new(),
        broken: false,
        over: false,
        uc_next: None,
        own: connection.destination,
        shared: connection.shared,
        holds: matches!(connection.conduct.acknowledge, Acknowledge::Held { .. }),
    };
    let played = player.play();
    let keys = &player.memory.keys;
    let endings = player.rig.endings().map(|why| with_recorded_keys(&why, keys));
    player.side.why.extend(endings);
    played
}

/// A sentence of our device with the recorded keys in it: by `keys` its own stand for them.
fn with_recorded_keys(sentence: &str, keys: &BTreeMap<u32, LKey>) -> String {
    let mut parts = sentence.split("key 0x");
    let mut told = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let digits = part.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(part.len());
        let (number, rest) = part.split_at(digits);
        let ours = u32::from_str_radix(number, 16).ok();
        let recorded =
            keys.iter().find(|(_, key)| Some(key.0) == ours).map(|(recorded, _)| *recorded);
        told += "key 0x";
        match recorded {
            Some(recorded) => told += &format!("{recorded:x}"),
            None => told += number,
        }
        told += rest;
    }
    told
}

/// So many bytes are read though no answer shows them: each costs as much as one that is recorded.
const MOST_READ: u64 = 1 << 28;

fn wait_of(item: &Item) -> Option<RnrTimer> {
    match View::from(item).says() {
        Some(Says::NotReady(timer)) => Some(timer),
        _ => None,
    }
}

/// An answer of ours that is not recorded.
struct Left {
    /// The request, and its PSN and the answer's counted without turns.
    number: u64,
    from: i64,
    at: i64,
    sent: Sent,
    /// A later answer says as much, or other parts of the same READ are recorded.
    covered: bool,
    /// The request was carried out before.
    again: bool,
}

/// Whether more messages were done before the first answer than were asked for in the recording.
fn begins_late(requests: &[&Item], answers: &[&Item]) -> bool {
    let first = answers.iter().find_map(|answer| Some((answer.number, answer.headers.aeth?)));
    let Some((number, aeth)) = first else { return false };
    let ends = |item: &&&Item| item.number < number && item.opcode.position.ends();
    aeth.msn.get() as usize > requests.iter().filter(ends).count()
}

/// Whether a request got the connection's last answer.
fn session_ends(session: &Inferred<'_>, index: usize, then: Then) -> bool {
    then == Then::Refused && session.refusal(index).is_some()
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
    /// The PSN that the recorded responder waits for, that ours does, and the one that ours began
    /// with.
    expected: i64,
    next: i64,
    begun: i64,
    /// The PSN behind all that was asked for so far.
    asked_for: i64,
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
    /// The MSN of the first pair of answers.
    first_msn: Option<u32>,
    /// Recorded refusals that ours gave to an earlier one of the packets that ask for them.
    early: BTreeSet<usize>,
    /// Something came before what is recorded, or between: ours may do once more what was done
    /// then, so that not all can be judged.
    late: bool,
    /// The MSN of the last answer to what is not recorded.
    uncaptured_msn: Option<u32>,
    /// How many messages ours has carried out.
    completed: u32,
    /// Answers of ours that are not recorded, since the last one that is.
    left: Vec<Left>,
    /// The data and values that were answered, by PSN.
    given: BTreeMap<i64, usize>,
    /// The connection ended with a refusal, of what is recorded or not.
    broken: bool,
    over: bool,
    /// The PSN that an unreliable connection expects, and whether a message is whole so far.
    uc_next: Option<(i64, bool)>,
    /// It waits with its acknowledgements.
    holds: bool,
    /// The address that ours has.
    own: IpAddr,
    /// The words that other connections change too.
    shared: &'a Shared,
}

impl Player<'_> {
    fn play(&mut self) -> Result<(), String> {
        let mut seen = 0;
        let mut explained = self.session.fates.iter().filter(|fate| !fate.answers.is_empty());
        let mut next = explained.next();
        for index in 0..self.session.requests.len() {
            let fate = &self.session.fates[index];
            let number = self.session.requests[index].number;
            let end = next.map_or(self.session.answers.len(), |next| next.answers.start);
            let due = !fate.answers.is_empty();
            while seen < end && (due || self.session.answers[seen].number < number) {
                self.unasked(seen);
                seen += 1;
            }
            if due {
                for place in fate.answers.clone() {
                    self.find_early(place);
                }
                self.settle();
                seen = fate.answers.end;
                next = explained.next();
            }
            let asked = &self.session.asked[index];
            self.asked_for = self.asked_for.max(asked.at + asked.span);
            let What::Came { then, covered } = fate.what else { continue };
            if self.over && fate.answers.is_empty() {
                self.side.older += 1;
                continue;
            }
            let item = self.session.requests[index];
            if self.plan.unexplained.iter().any(|(number, _)| *number == item.number) {
                return Ok(()); // The connection ended here.
            }
            self.came(index, then, covered)?;
            if matches!(then, Then::Executed | Then::ExecutedAnew) {
                self.expected = asked.at + asked.span;
                self.next = self.expected;
            }
            self.broken |= session_ends(self.session, index, then);
        }
        (seen..self.session.answers.len()).for_each(|index| self.unasked(index));
        self.side.unseen += self.left.iter().filter(|left| !left.covered).count() as u64;
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
        let expected = if executed { at } else { self.expected };
        let gap = then == Then::ExecutedAnew || expected != self.next;
        let follows = self.in_message && !gap;
        // Refused behind a gap: from which message on, and why, cannot be told.
        self.suspended |= then == Then::Refused && at != self.expected;
        self.suspended |= executed && !starts && !follows && !self.is_unreliable();
        let resumes = self.suspended && executed && starts;
        if (at < self.begun && !item.is_bad()) || (self.suspended && !resumes) {
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
        if (gap || resumes) && !item.is_bad() && !self.is_unreliable() {
            self.begin_anew(item.psn().advance((expected - at) as u32))?;
            (self.begun, self.next) = (expected, expected);
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
        if executed && item.opcode.position.ends() {
            self.completed += 1;
        }
        let answers = self.session.fates[index].answers.clone();
        self.compare(index, ours, answers.clone(), covered);
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
    fn begin_anew(&mut self, psn: Psn) -> Result<(), String> {
        self.suspended = false;
        self.late = true;
        self.setup.rq_psn = psn;
        self.qpn = self.rig.queue_pair(&self.setup)?;
        self.side.gaps += 1;
        (self.msn_offset, self.first_msn) = (None, None);
        self.completed = 0;
        self.memory.doubt();
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
                    if self.memory.is_atomic(key, va) && !self.shared.has(self.own, va) {
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
        ours.extend(std::iter::from_fn(|| self.rig.poll()));
        if ours.is_empty() && self.holds && self.rig.wait() {
            ours.extend(std::iter::from_fn(|| self.rig.poll()));
        }
        ours
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
