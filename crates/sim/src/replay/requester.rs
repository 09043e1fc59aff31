//! Recorded answers, played to our requester, which does the work that the recorded one did.
//!
//! Each recorded packet is asked for when its turn has come: one packet of ours for one of theirs.
//! So neither pace nor window matters. Where the recording goes back, ours must by itself; if
//! nothing that was played made it, the recorded one's timer ran out, and ours is let run out too.

mod unseen;

use std::collections::{BTreeMap, BTreeSet};

use roxe_device::HostRegion;
use roxe_transport::work::{AccessFlags, Completion, CompletionStatus, Remote, SendOperation, Sge};
use roxe_wire::opcode::{Header, Operation};
use roxe_wire::{LKey, NakCode, Psn, Qpn, packets_for};

use super::heard::{Became, Event, heard};
use super::meaning::{Says, View, requests_differ};
use super::reached::Kind;
use super::record::Item;
use super::rig::{Retries, Rig, Sent, Setup};
use super::sequence::{Session, Turns, sessions};
use super::{Connection, Role, Side};
use unseen::retries;

/// Does the work of one direction again; `connection.answers` is what was recorded in return.
pub(super) fn play(connection: &Connection<'_>) -> Side {
    let mut side = Side::new(connection, Role::Requester);
    for session in sessions(connection) {
        let guessed = retries(&session);
        let before = (guessed != Retries::ENDLESS).then(|| side.clone());
        let mut played = play_session(connection, &session, guessed, &mut side);
        // It had not given up, if with so few retries it cannot do what is recorded.
        if let Some(before) =
            before.filter(|before| side.differences.len() > before.differences.len())
        {
            side = before;
            played = play_session(connection, &session, Retries::ENDLESS, &mut side);
        }
        if let Err(why) = played {
            let number = session.requests.first().map_or(0, |item| item.number);
            side.not_comparable(number, why);
        }
    }
    side
}

/// A message that the recorded application posted.
struct Message<'a> {
    at: i64,
    end: i64,
    operation: SendOperation,
    solicited: bool,
    /// What is sent, as far as it is recorded: where in it, and the bytes. What is missing between
    /// takes no room, for two packets may be said to be far apart.
    parts: Vec<(usize, &'a [u8])>,
    /// How many bytes are sent, or fetched.
    len: u32,
    /// Whether it waits for an answer of its own.
    fetches: bool,
    /// Packets before it are missing in the recording.
    anew: bool,
}

fn play_session(
    connection: &Connection<'_>,
    session: &Session<'_>,
    retries: Retries,
    side: &mut Side,
) -> Result<(), String> {
    // A requester numbers in order: the first packet that begins a message is its first.
    let good = || session.requests.iter().filter(|item| !item.is_bad());
    let Some((first, turns)) = Turns::first(&session.requests, &session.answers) else {
        return Ok(());
    };
    let too_large = |item: &&&Item| {
        let named = item.headers.reth.map_or(0, |reth| reth.dma_len);
        named > MOST && item.opcode.operation != Operation::Flush
    };
    if let Some(item) = good().find(too_large) {
        side.not_comparable(item.number, "its memory is too large to hold".to_owned());
        return Ok(());
    }
    let (asked, _) =
        super::inferred::count(&session.requests, &session.answers, turns, connection.path_mtu);
    let places: Vec<i64> = asked.iter().map(|asked| asked.at).collect();
    let messages = messages(connection, session, &places);
    if messages.is_empty() {
        let number = good().next().map_or(0, |item| item.number);
        side.not_comparable(number, "no message begins in the recording".to_owned());
        return Ok(());
    }
    let mut rig = Rig::new(connection.source, connection.conduct)?;
    let setup = Setup {
        service: connection.service,
        peer_address: connection.destination,
        peer_qp: connection.destination_qp,
        path_mtu: connection.path_mtu,
        p_key: session.requests[0].headers.bth.p_key,
        q_key: Default::default(),
        sq_psn: first.advance(messages[0].at as u32),
        rq_psn: Default::default(),
        access: AccessFlags::NONE,
        min_rnr_timer: Default::default(),
        is_gsi: false,
        retries,
    };
    let qpn = rig.queue_pair(&setup)?;
    let mut player = Player {
        side,
        rig,
        setup,
        qpn,
        first,
        messages,
        posted: 0,
        done: 0,
        fetched: BTreeMap::new(),
        data: BTreeMap::new(),
        unknown: BTreeSet::new(),
        refused: None,
        over: false,
        misses_by_timer: connection.conduct.misses_by_timer,
    };
    let played = player.play(session, &asked, turns);
    player.give_up();
    let gave_up = player.setup.retries != Retries::ENDLESS && player.refused.is_none();
    let endings = player.rig.endings().map(|why| match gave_up {
        true => {
            // Our timer's length says nothing of the recorded one's.
            let why = why.replace(&Rig::patience(), "");
            let why = why.split(LAST_ANSWER).next().unwrap_or_default();
            format!("if it gave up at the end of the recording: {why}")
        }
        false => why,
    });
    player.side.why.extend(endings);
    played
}

/// The messages of a session, put together from the first good copy of each packet.
fn messages<'a>(
    connection: &Connection<'_>,
    session: &Session<'a>,
    places: &[i64],
) -> Vec<Message<'a>> {
    let mut packets: BTreeMap<i64, &'a Item> = BTreeMap::new();
    for (item, at) in session.requests.iter().zip(places) {
        if !item.is_bad() {
            packets.entry(*at).or_insert(item);
        }
    }
    let mut messages: Vec<Message<'a>> = Vec::new();
    let mut end = packets.keys().next().copied().unwrap_or_default();
    while let Some((&at, item)) = packets.range(end..).find(|(_, i)| i.opcode.position.starts()) {
        let Some(mut message) = message(connection, &packets, at, item) else {
            end = at + 1;
            continue;
        };
        message.anew = at != end;
        end = message.end;
        messages.push(message);
    }
    messages
}

fn message<'a>(
    connection: &Connection<'_>,
    packets: &BTreeMap<i64, &'a Item>,
    at: i64,
    first: &'a Item,
) -> Option<Message<'a>> {
    let mtu = connection.path_mtu;
    let headers = &first.headers;
    let remote = headers.reth.map(|reth| Remote { va: reth.va, r_key: reth.r_key });
    let single = |operation, parts, len, span| {
        let solicited = headers.bth.solicited;
        let end = at + i64::from(span);
        Some(Message { at, end, operation, solicited, parts, len, fetches: true, anew: false })
    };
    match first.opcode.operation {
        Operation::ReadRequest => {
            let len = headers.reth?.dma_len;
            let span = packets_for(len, mtu.bytes());
            return single(SendOperation::Read(remote?), Vec::new(), len, span);
        }
        Operation::CompareSwap | Operation::FetchAdd => {
            let atomic = headers.atomic_eth?;
            let remote = Remote { va: atomic.va, r_key: atomic.r_key };
            let operation = match first.opcode.operation {
                Operation::FetchAdd => SendOperation::FetchAdd { remote, add: atomic.swap_add },
                _ => SendOperation::CompareSwap {
                    remote,
                    compare: atomic.compare,
                    swap: atomic.swap_add,
                },
            };
            return single(operation, Vec::new(), 8, 1);
        }
        Operation::AtomicWrite => {
            let operation = SendOperation::AtomicWrite(remote?);
            let bytes = first.payload().get(..8)?;
            return single(operation, vec![(0, bytes)], 8, 1);
        }
        Operation::Flush => {
            let (feth, reth) = headers.feth.zip(headers.reth)?;
            let operation = SendOperation::Flush {
                remote: remote?,
                len: reth.dma_len,
                placement: feth.placement,
                selectivity: feth.selectivity,
            };
            return single(operation, Vec::new(), 0, 1);
        }
        Operation::Send | Operation::Write => {}
        _ => return None,
    }
    let mut parts = Vec::new();
    let mut known = 0;
    let mut last = first;
    let mut end = at;
    let reach = headers.reth.map_or(FAR, |reth| i64::from(packets_for(reth.dma_len, mtu.bytes())));
    while let Some((&place, item)) = packets.range(end..at + reach).next() {
        if (place != at && item.opcode.position.starts())
            || item.opcode.operation != first.opcode.operation
        {
            break;
        }
        // What is missing in the recording is not compared.
        let offset = (place - at) as usize * mtu.bytes() as usize;
        parts.push((offset, item.payload()));
        known = offset + item.payload().len();
        last = item;
        end = place + 1;
        if item.opcode.position.ends() {
            break;
        }
    }
    let known = u32::try_from(known).ok()?;
    let len = match (last.opcode.position.ends(), headers.reth) {
        (true, _) => known,
        // Its end was never sent, or is not recorded: nobody will see what is put there.
        (false, Some(reth)) => reth.dma_len.max(known.checked_add(1)?),
        (false, None) => known.checked_add(1)?,
    };
    let end = at + i64::from(packets_for(len, mtu.bytes()));
    let operation = match (first.opcode.operation, last.headers.imm_dt, last.headers.ieth) {
        (Operation::Send, Some(imm), _) => SendOperation::SendWithImm(imm),
        (Operation::Send, None, Some(ieth)) => SendOperation::SendWithInv(ieth.r_key),
        (Operation::Send, None, None) => SendOperation::Send,
        (_, Some(imm), _) if last.opcode.has(Header::ImmDt) => {
            SendOperation::WriteWithImm(remote?, imm)
        }
        _ => SendOperation::Write(remote?),
    };
    let solicited = last.headers.bth.solicited;
    Some(Message { at, end, operation, solicited, parts, len, fetches: false, anew: false })
}

/// How our requester came to send a packet.
struct Reached {
    /// The packet; `None` if it does not send it.
    ours: Option<Sent>,
    /// The first one that it sent before.
    passed: Option<Sent>,
    /// How often a timer ran out.
    waits: u32,
}

/// One device and the work it still has to do.
struct Player<'a> {
    side: &'a mut Side,
    rig: Rig,
    setup: Setup,
    qpn: Qpn,
    first: Psn,
    messages: Vec<Message<'a>>,
    posted: usize,
    /// How many of them are done with.
    done: usize,
    /// Where READs and atomics put what they fetch, by work request.
    fetched: BTreeMap<u64, (i64, i64, HostRegion)>,
    /// Recorded data of READs, by PSN.
    data: BTreeMap<i64, Vec<Vec<u8>>>,
    /// PSNs of data that came and is not recorded.
    unknown: BTreeSet<i64>,
    refused: Option<NakCode>,
    over: bool,
    /// What is missing within a READ is missed by the timer only.
    misses_by_timer: bool,
}

impl Player<'_> {
    fn play(
        &mut self,
        session: &Session<'_>,
        asked: &[super::reached::Asked],
        mut turns: Turns,
    ) -> Result<(), String> {
        // Both directions as one sequence.
        let mut steps: Vec<(&Item, i64, i64)> = Vec::new();
        let mut answers = session.answers.iter().peekable();
        for (item, asked) in session.requests.iter().zip(asked) {
            while let Some(answer) = answers.next_if(|answer| answer.number < item.number) {
                let at = turns.at(answer.psn());
                steps.push((answer, at, at));
            }
            if !item.is_bad() {
                turns.advance(item.psn());
                // Not a part of a message whose beginning is not recorded.
                if self.is_known(asked.at) {
                    steps.push((item, asked.at, asked.at + asked.span));
                } else {
                    self.side.older += 1;
                }
            }
        }
        for answer in answers {
            let at = turns.at(answer.psn());
            steps.push((answer, at, at));
        }
        let mut unseen = self.unseen(&steps);
        unseen.extend(self.untold(&steps));
        let mut all: Vec<(&Item, i64, i64)> = Vec::with_capacity(steps.len() + unseen.len());
        let mut unseen_steps = unseen.iter().peekable();
        for (place, step) in steps.into_iter().enumerate() {
            while let Some((_, at, item)) = unseen_steps.next_if(|(before, ..)| *before <= place) {
                all.push((item, *at, *at));
            }
            all.push(step);
        }
        let steps = all;
        let event = |(item, at, end): &(&Item, i64, i64)| match View::from(*item).says() {
            Some(says) => Event::Answer { at: *at, kind: Kind::from(says) },
            None => Event::Request { at: *at, end: *end },
        };
        let events: Vec<Event> = steps.iter().map(event).collect();
        let fetches: Vec<(i64, i64)> = self
            .messages
            .iter()
            .filter(|message| message.fetches)
            .map(|message| (message.at, message.end))
            .collect();
        let became = heard(&events, &fetches, self.messages[0].at);
        for ((item, at, _), became) in steps.iter().zip(became) {
            if self.over {
                break;
            }
            match View::from(*item).says() {
                Some(_) if item.made_up && became == Became::Heard => {
                    self.side.unseen += 1;
                    self.unknown.insert(*at);
                    self.rig.feed(item, self.qpn, &BTreeMap::new());
                    self.completions(item.number);
                }
                Some(_) if item.made_up => {}
                Some(says) if became == Became::Heard => self.answer(item, *at, says),
                Some(_) => self.side.lost += 1,
                None => self.request(item, *at, became)?,
            }
        }
        self.completions(session.requests.last().map_or(0, |item| item.number));
        Ok(())
    }

    fn is_known(&self, at: i64) -> bool {
        let after = self.messages.partition_point(|message| message.end <= at);
        self.messages.get(after).is_some_and(|message| message.at <= at)
    }

    fn answer(&mut self, item: &Item, at: i64, says: Says<'_>) {
        match says {
            Says::Data(data, _) => self.data.entry(at).or_default().push(data.to_vec()),
            Says::Value(value) => {
                self.data.entry(at).or_default().push(value.to_ne_bytes().to_vec());
            }
            Says::Refused(NakCode::PsnSequenceError) => {}
            Says::Refused(code) => self.refused = Some(code),
            Says::Ack | Says::NotReady(_) => {}
        }
        self.side.played += 1;
        self.rig.feed(item, self.qpn, &BTreeMap::new());
        self.completions(item.number);
    }

    /// The recorded requester sent this: ours must too.
    fn request(&mut self, item: &Item, at: i64, became: Became) -> Result<(), String> {
        self.side.played += 1;
        self.post_up_to(at)?;
        let Reached { ours, passed, waits } = self.reach(at);
        self.completions(item.number);
        let recorded = View::from(item);
        let Some(ours) = ours else {
            // Sent again without need: nobody has to do the same.
            if !self.over && self.is_done(at) {
                self.side.needless += 1;
                return Ok(());
            }
            self.side.differs(item.number, "request", recorded.words(), "nothing".to_owned());
            self.over = true;
            return Ok(());
        };
        self.side.compared += 1;
        // From where on ours sends again is not its own choice.
        let allowed = match became {
            // Such a device asks for the missing rest of a READ once its timer has run out.
            Became::Due if self.misses_by_timer && self.is_rest(item, at) => Some(waits.min(1)),
            Became::Due => Some(0),
            Became::DueAfterWait => Some(1),
            _ => None,
        };
        if let Some(allowed) = allowed.filter(|allowed| *allowed != waits || passed.is_some()) {
            let ours = match passed {
                Some(first) => View::from(&first).words(),
                None if allowed == 0 => "nothing before a timer ran out".to_owned(),
                None => "it at once".to_owned(),
            };
            self.side.differs(item.number, "next", recorded.words(), ours);
            return Ok(());
        }
        if let Some(what) = requests_differ(recorded, View::from(&ours)) {
            self.side.differs(item.number, what, recorded.words(), View::from(&ours).words());
        }
        Ok(())
    }

    /// Whether a READ is asked for from its middle on.
    fn is_rest(&self, item: &Item, at: i64) -> bool {
        let is_read = item.opcode.operation == Operation::ReadRequest;
        is_read && self.messages.binary_search_by_key(&at, |message| message.at).is_err()
    }

    /// Whether the message that a PSN belongs to is done with.
    fn is_done(&self, at: i64) -> bool {
        self.messages.partition_point(|message| message.end <= at) < self.done
    }

    fn place(&self, sent: &Sent, near: i64) -> i64 {
        let psn = self.first.advance((near & 0x00ff_ffff) as u32);
        near + i64::from(sent.headers.bth.psn.since(psn))
    }

    /// Lets our requester send until it sends the packet at `at`.
    fn reach(&mut self, at: i64) -> Reached {
        let (mut passed, mut waits, mut packets) = (None, 0, 0);
        loop {
            if let Some(sent) = self.rig.poll() {
                let place = self.place(&sent, at);
                if place == at {
                    self.side.extra += packets;
                    return Reached { ours: Some(sent), passed, waits };
                }
                passed.get_or_insert(sent);
                packets += 1;
                if place < at && packets < MOST_EXTRA {
                    continue;
                }
            }
            // It has gone further, or has nothing to send: only its timer can take it back.
            waits += 1;
            if waits > MOST_WAITS || !self.rig.wait() {
                return Reached { ours: None, passed, waits };
            }
        }
    }

    /// Posts the messages that have begun up to a PSN.
    fn post_up_to(&mut self, at: i64) -> Result<(), String> {
        while let Some(message) = self.messages.get(self.posted).filter(|m| m.at <= at) {
            if message.anew && self.posted != 0 {
                self.setup.sq_psn = self.first.advance((message.at & 0x00ff_ffff) as u32);
                self.qpn = self.rig.queue_pair(&self.setup)?;
                self.fetched.clear();
                self.done = self.posted;
                self.side.gaps += 1;
            }
            let len = message.len;
            let mut bytes = vec![0; len as usize];
            for (offset, part) in &message.parts {
                // One longer than the path MTU, which is none, ends where the next one begins.
                let room = bytes.get_mut(*offset..).unwrap_or_default();
                let len = room.len().min(part.len());
                room[..len].copy_from_slice(&part[..len]);
            }
            let access = AccessFlags::LOCAL_WRITE;
            let (host, l_key): (HostRegion, LKey) = self.rig.register(LOCAL, bytes, access)?;
            let sges = [Sge { va: LOCAL, len, l_key }];
            let sges = if len == 0 { &[][..] } else { &sges[..] };
            let operation = message.operation;
            let id = self.rig.post(self.qpn, operation, sges, message.solicited, None)?;
            self.rig.give_back_with(id, l_key);
            if message.fetches {
                self.fetched.insert(id, (message.at, message.end, host));
            }
            self.posted += 1;
        }
        Ok(())
    }

    fn completions(&mut self, number: u64) {
        while let Some(completion) = self.rig.completion() {
            if completion.status == CompletionStatus::Success {
                self.side.delivered += 1;
                self.done += 1;
                self.check_fetched(number, &completion);
            } else if completion.status != CompletionStatus::Flushed {
                self.ended(number, completion.status);
            }
        }
    }

    /// A READ or atomic must have fetched what the answers carried.
    fn check_fetched(&mut self, number: u64, completion: &Completion) {
        let Some((at, end, host)) = self.fetched.remove(&completion.wr_id) else { return };
        let mtu = self.setup.path_mtu.bytes() as usize;
        for place in at..end {
            let recorded = self.data.get(&place).filter(|_| !self.unknown.contains(&place));
            let Some(recorded) = recorded else { continue };
            let offset = (place - at) as usize * mtu;
            let same = |data: &Vec<u8>| self.rig.read(host, offset as u64, data.len()) == *data;
            if !recorded.iter().any(same) {
                let what =
                    format!("data of the answer with psn {}", self.first.advance(place as u32));
                self.side.differs(number, "data", what, "other bytes".to_owned());
                return;
            }
        }
    }

    fn ended(&mut self, number: u64, status: CompletionStatus) {
        let expected = match self.refused {
            Some(NakCode::InvalidRequest) => CompletionStatus::RemoteInvalidRequest,
            Some(NakCode::RemoteAccessError) => CompletionStatus::RemoteAccessError,
            Some(NakCode::RemoteOperationalError) => CompletionStatus::RemoteOperationError,
            _ => CompletionStatus::Success,
        };
        self.over = true;
        let gives_up = status == CompletionStatus::RnrRetryExceeded
            && self.setup.retries.not_ready < Retries::ENDLESS.not_ready;
        if status != expected && !gives_up {
            let recorded = match self.refused {
                Some(code) => format!("a NAK: {}", code.name()),
                None => "a connection that goes on".to_owned(),
            };
            self.side.differs(number, "end", recorded, status.name().to_owned());
        }
    }
}

/// The rest of a SEND of which packets are missing is looked for among so many.
const FAR: i64 = 1 << 12;

/// A READ of more bytes is not done again.
const MOST: u32 = 1 << 28;

/// What our device says behind a failure of how long it has waited.
const LAST_ANSWER: &str = "; the last answer came ";

/// Where local memory lies, as the device counts.
const LOCAL: u64 = 0x10_0000;

/// How often our timer may run out before one recorded packet.
const MOST_WAITS: u32 = 3;

/// How many packets ours may send again before one recorded packet.
const MOST_EXTRA: u64 = 4096;
