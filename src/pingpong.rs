//! `roxe pingpong`: messages to and fro, as ibv_rc_pingpong and its like send them, and with them
//! as peers.

use std::io::{self, Write as _};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use roxe_verbs::{
    AccessFlags, AckTimeout, AddressHandle, AddressVector, Buffer, Completion, CompletionChannel,
    CompletionQueue, CompletionStatus, ConnectOptions, Context, Data, DatagramTarget, Endpoint,
    Gid, MemoryRegion, Mtu, QKey, QueuePair, ReceiveCapacity, ReceiveRequest, RnrTimer,
    SendCapacity, SendOperation, SendRequest, ServiceType, Sge, SharedReceiveQueue,
};

use crate::explain::ink::Ink;
use crate::explain::json::Object;
use crate::outcome::{Outcome, counted};
use crate::pingpong::arguments::{Kind, PingpongArguments};
use crate::pingpong::wire::{Destination, QUEUE_PAIRS, check_rules, rules};
use crate::side_channel::here::{became, hinted};
use crate::side_channel::{
    DONE, EarlyWord, Failure, LINK_COMES_UP, MeetingPoint, Patience, Presence, Q_KEY, SideChannel,
    choose_gid, closed, must_match,
};

pub(crate) mod arguments;
mod wire;

/// The command.
pub(crate) fn run(arguments: &PingpongArguments) -> Result<Outcome> {
    let played = refuse(arguments)
        .and_then(|()| MeetingPoint::find(arguments.host.as_deref(), arguments.side.port))
        .and_then(|meeting_point| {
            arguments.side.with_adapter(|context| play(context, meeting_point, arguments))
        });
    played.or_else(Failure::told)
}

/// What names a request: a receive or a send.
const RECEIVE: u64 = 1;
const SEND: u64 = 2;

/// What may be behind an error of a queue pair.
const HINT: &str = "Are the service, -m, -s, -n and -q the same on both sides? They have to be.";

/// Before a datagram, the area of its GRH.
const GRH: usize = 40;

/// Of each page the first byte is 0 in what those programs send, and looked at by them.
const PAGE: usize = 4096;

/// The peer asks once more for an answer that was lost, after this at the latest: twice 2^14 times
/// 4.096 µs.
const LINGER: Duration = Duration::from_millis(140);

/// What comes later than this after the peer has ended does not come any more.
const GRACE: Duration = Duration::from_secs(2);

/// The second queue pair of a peer follows the first.
const MORE: Patience<'static> = Patience::Rest("one queue pair, and here is srq: is it there too?");

fn play(
    context: &Context,
    meeting_point: MeetingPoint,
    arguments: &PingpongArguments,
) -> Result<Outcome, Failure> {
    let mut game = Game::new(context, arguments)?;
    game.post_receives(arguments.rx_depth)?;
    game.addresses("local", &game.own)?;
    let start = format!("roxe pingpong {} -d …", arguments.kind.name());
    game.meet(meeting_point.meet(&start, game.patience())?)?;
    game.play()?;
    Ok(Outcome::Right)
}

fn refuse(arguments: &PingpongArguments) -> Result<(), Failure> {
    let PingpongArguments { kind, num_qp, mtu, rx_depth, .. } = *arguments;
    let rc = kind == Kind::Rc;
    let queue_pairs = if kind == Kind::Srq { num_qp.unwrap_or(16) } else { 1 };
    let refusals = [
        (kind != Kind::Srq && num_qp.is_some(), "-q is for srq"),
        (kind == Kind::Ud && mtu.is_some(), "a datagram is one packet: no -m for ud"),
        (!rc && arguments.ts, "-t is for rc"),
        (!rc && arguments.new_send, "-N is for rc"),
        (!rc && kind != Kind::Srq && arguments.odp, "-o is for rc and srq"),
        (rx_depth < queue_pairs, "each queue pair needs a receive: -r may not be below -q"),
    ];
    match refusals.iter().find(|(refused, _)| *refused) {
        Some((_, what)) => Err(Failure::usage(what)),
        None => Ok(()),
    }
}

/// One side.
struct Game<'a> {
    arguments: &'a PingpongArguments,
    context: Context,
    mtu: Mtu,
    cq: CompletionQueue,
    channel: Option<CompletionChannel>,
    srq: Option<SharedReceiveQueue>,
    queue_pairs: Vec<QueuePair>,
    buffer: Arc<Buffer>,
    region: MemoryRegion,
    size: usize,
    gid: (u32, Gid),
    own: Vec<Destination>,
    /// The connection to a peer that is this program too: it lasts as long as the peer.
    peer: Option<SideChannel>,
    /// The peer is this program too, as far as is known.
    is_with_its_like: bool,
    handle: Option<AddressHandle>,
    target: Option<DatagramTarget>,
    /// Receives that are ready.
    ready: u32,
}

impl<'a> Game<'a> {
    fn new(context: &Context, arguments: &'a PingpongArguments) -> Result<Self, Failure> {
        let PingpongArguments { kind, rx_depth, .. } = *arguments;
        let ud = kind == Kind::Ud;
        let usual = if ud { context.path_mtu() } else { Mtu::B1024 };
        let mtu = arguments.mtu.unwrap_or(usual);
        let most = context.path_mtu();
        if mtu > most {
            return Err(Failure::usage(format_args!(
                "a path MTU of {mtu} does not fit the port, which has {most}: -m {most} on both \
                 sides, or raise the interface's MTU"
            )));
        }
        let size = arguments.size.unwrap_or(if ud { 1024 } else { 4096 });
        if ud && size > most.bytes() {
            return Err(Failure::usage(format_args!(
                "a datagram of {size} bytes does not fit the path MTU, {most}"
            )));
        }
        let gid = choose_gid(context, arguments.gid_idx, false)?;
        let size = size as usize;
        let buffer = Buffer::new(size + GRH);
        let domain = context.alloc_pd()?;
        let region = domain.register(&buffer, AccessFlags::LOCAL_WRITE)?;
        let count = if kind == Kind::Srq { arguments.num_qp.unwrap_or(16) } else { 1 };
        let depth = rx_depth + 2 * count;
        let channel = arguments.events.then(|| context.create_comp_channel()).transpose()?;
        let cq = match &channel {
            Some(channel) => context.create_cq_on(channel, depth)?,
            None => context.create_cq(depth)?,
        };
        let srq = (kind == Kind::Srq).then(|| domain.create_srq(rx_depth, 1)).transpose()?;
        let mut queue_pairs = Vec::new();
        let mut own = Vec::new();
        for _ in 0..count {
            let builder = domain
                .create_qp(kind.service(), &cq)
                .send(SendCapacity { depth: 1, max_sge: 1, max_inline: 0 })
                .receive(ReceiveCapacity { depth: rx_depth, max_sge: 1 });
            let qp = match &srq {
                Some(srq) => builder.srq(srq).build()?,
                None => builder.build()?,
            };
            match kind {
                Kind::Ud => qp.ready(QKey(Q_KEY))?,
                _ => qp.init(AccessFlags::NONE)?,
            }
            let endpoint = qp.endpoint_at(gid.0)?;
            own.push(Destination { lid: 0, qpn: endpoint.qpn, psn: endpoint.psn, gid: gid.1 });
            queue_pairs.push(qp);
        }
        let game = Self {
            arguments,
            context: context.clone(),
            mtu,
            cq,
            channel,
            srq,
            queue_pairs,
            buffer,
            region,
            size,
            gid,
            own,
            peer: None,
            is_with_its_like: false,
            handle: None,
            target: None,
            ready: 0,
        };
        if arguments.host.is_some() {
            game.buffer.write(game.skipped(), &message(size));
        }
        Ok(game)
    }

    /// Bytes before a message in memory.
    fn skipped(&self) -> usize {
        if self.arguments.kind == Kind::Ud { GRH } else { 0 }
    }

    fn post_receives(&mut self, count: u32) -> Result<(), Failure> {
        const LIST: u32 = 64;
        let sges = [self.region.sge(0, (self.size + self.skipped()) as u32)];
        let list = [ReceiveRequest { wr_id: RECEIVE, sges: &sges }; LIST as usize];
        let mut left = count;
        while left > 0 {
            let list = &list[..left.min(LIST) as usize];
            let posted = match &self.srq {
                Some(srq) => srq.post_receive(list),
                None => self.queue_pairs[0].post_receive(list),
            };
            posted.map_err(Failure::failed)?;
            left -= list.len() as u32;
        }
        self.ready += count;
        Ok(())
    }

    /// A line for each queue pair of a side.
    fn addresses(&self, side: &str, of: &[Destination]) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        // ibv_ud_pingpong has it so.
        let is_ud_local = self.arguments.kind == Kind::Ud && side == "local";
        let between = if is_ud_local { ":" } else { "," };
        for it in of {
            let label = format!("{side} address:");
            let (qpn, psn) = (it.qpn.get(), it.psn.get());
            writeln!(
                out,
                "  {label:<15} LID 0x{:04x}, QPN 0x{qpn:06x}, PSN 0x{psn:06x}{between} GID {}",
                it.lid, it.gid
            )?;
        }
        Ok(out.flush()?)
    }

    /// How long the peer may be silent.
    const fn patience(&self) -> Duration {
        self.arguments.side.patience()
    }

    /// Tells each other queue pairs, and connects them.
    fn meet(&mut self, mut channel: SideChannel) -> Result<(), Failure> {
        let is_client = self.arguments.host.is_some();
        let is_this_host = channel.is_this_host();
        let peers = if is_client {
            self.say(&mut channel)?;
            let peers = self.hear(&mut channel)?;
            channel.say(DONE)?;
            peers
        } else {
            let peers = self.hear(&mut channel)?;
            self.connect(&peers, is_this_host)?;
            self.say(&mut channel)?;
            let mut done = [0; DONE.len()];
            channel.hear(&mut done, Patience::Answer)?;
            if done != *DONE {
                return Err(Failure::failed(
                    "the peer has more to say than one queue pair: is it srq there, and here not?",
                ));
            }
            peers
        };
        // Those programs close the connection now, and want nothing behind what they expect. With
        // our like it stays, and tells of its end.
        if self.is_with_its_like {
            let own = rules(&self.rules());
            let peers = channel.exchange(&own, Patience::Answer)?;
            check_rules(&peers, &own).map_err(Failure::Failed)?;
            self.peer = Some(channel);
        }
        self.addresses("remote", &peers)?;
        if is_client { self.connect(&peers, is_this_host) } else { Ok(()) }
    }

    /// What has to be the same on both sides, as flags.
    fn rules(&self) -> String {
        let Self { arguments, mtu, size, .. } = self;
        let kind = arguments.kind.name();
        format!("{kind} -s {size} -n {} -m {mtu}", arguments.iters)
    }

    /// How many queue pairs are said.
    fn said(&self) -> usize {
        if self.arguments.kind == Kind::Srq { QUEUE_PAIRS } else { 1 }
    }

    fn say(&self, channel: &mut SideChannel) -> Result<(), Failure> {
        let none = Destination::default();
        let all = self.own.iter().chain(std::iter::repeat(&none)).take(self.said());
        let lines: Vec<u8> = all.flat_map(|it| it.to_line()).collect();
        channel.say(&lines)
    }

    fn hear(&mut self, channel: &mut SideChannel) -> Result<Vec<Destination>, Failure> {
        let mut peers = Vec::new();
        for at in 0..self.said() {
            let mut line = [0; Destination::LEN];
            let (begin, rest) = line.split_at_mut(Destination::BEGIN);
            channel.hear(begin, if at == 0 { Patience::Answer } else { MORE })?;
            // Another program may wait for our answer by now.
            Destination::check_begin(begin).map_err(Failure::Failed)?;
            channel.hear(rest, Patience::Answer)?;
            let peer = Destination::parse(&line).map_err(Failure::Failed)?;
            // Its PSN is a random one.
            if self.own.get(at) == Some(&peer) {
                return Err(Failure::failed(
                    "the peer says our own queue pair: it is no pingpong, and only repeats what \
                     it hears",
                ));
            }
            if at == 0 {
                let lines = [line, self.own[0].to_line()];
                self.is_with_its_like = lines.iter().all(Destination::is_of_our_like);
            }
            if (peer.qpn.get() != 0) != (at < self.own.len()) {
                return Err(Failure::failed(format_args!(
                    "the peer has another number of queue pairs, here are {}: give both one -q",
                    self.own.len()
                )));
            }
            peers.push(peer);
        }
        peers.truncate(self.own.len());
        Ok(peers)
    }

    fn connect(&mut self, peers: &[Destination], is_this_host: bool) -> Result<(), Failure> {
        let options = ConnectOptions {
            source_gid: self.gid.0,
            access: AccessFlags::NONE,
            path_mtu: self.mtu,
            timeout: AckTimeout::new(14).unwrap_or_default(),
            retry_cnt: 7,
            rnr_retry: 7,
            min_rnr_timer: RnrTimer::from_bits(12),
            max_rd_atomic: 1,
            max_dest_rd_atomic: 1,
            service_level: self.arguments.sl,
            ..ConnectOptions::default()
        };
        for (qp, peer) in self.queue_pairs.iter().zip(peers) {
            must_match(self.gid.1, peer.gid, is_this_host)?;
            if qp.service() == ServiceType::Ud {
                let vector = AddressVector {
                    service_level: self.arguments.sl,
                    ..AddressVector::new(self.gid.0, peer.gid)
                };
                let handle = qp.domain().create_ah(&vector)?;
                self.target = Some(handle.target(peer.qpn, QKey(Q_KEY)));
                self.handle = Some(handle);
                continue;
            }
            let Destination { qpn, psn, gid, .. } = *peer;
            let address = gid.to_ip();
            qp.connect(&Endpoint { address, qpn, psn, path_mtu: self.mtu }, &options)?;
        }
        Ok(())
    }

    /// To and fro until as many have come and gone as shall.
    fn play(&mut self) -> Result<(), Failure> {
        let iters = self.arguments.iters;
        let is_client = self.arguments.host.is_some();
        let source = [self.region.sge(self.skipped() as u64, self.size as u32)];
        let mut pending = vec![RECEIVE; self.queue_pairs.len()];
        if is_client {
            for (qp, pending) in pending.iter_mut().enumerate() {
                self.send(qp, &source)?;
                *pending |= SEND;
            }
        }
        let start = Instant::now();
        let (mut sent, mut received) = (0, 0);
        let mut room = [Completion::BLANK; 32];
        let mut between = Between::default();
        let mut moved = Moved { at: start, empty: 0, early: EarlyWord::default() };
        while received < iters || sent < iters {
            let found = self.cq.poll(&mut room);
            if found == 0 {
                self.rest(&mut moved, received)?;
                continue;
            }
            moved.empty = 0;
            for completion in &room[..found] {
                let at = self.queue_pairs.iter().position(|qp| qp.qpn() == completion.qpn);
                let Some(at) = at else { continue };
                if completion.status != CompletionStatus::Success {
                    let why = self.queue_pairs[at].explain(completion.status);
                    return Err(hinted(&self.context, &self.queue_pairs, self.mtu, &why, HINT));
                }
                if completion.wr_id == SEND {
                    sent += 1;
                } else {
                    received += 1;
                    between.add(self.arguments.ts);
                    self.ready -= 1;
                    if self.ready <= self.queue_pairs.len() as u32 {
                        self.post_receives(self.arguments.rx_depth - self.ready)?;
                    }
                }
                pending[at] &= !completion.wr_id;
                if sent < iters && pending[at] == 0 {
                    self.send(at, &source)?;
                    pending[at] = RECEIVE | SEND;
                }
            }
        }
        let time = start.elapsed();
        self.tell(time, &between)?;
        let checked = if self.arguments.chk { self.check(is_client) } else { Ok(()) };
        if self.arguments.kind.service() == ServiceType::Rc {
            // What we answered last may be lost, and is asked for once more.
            thread::sleep(LINGER);
        }
        checked
    }

    fn send(&self, qp: usize, source: &[Sge]) -> Result<(), Failure> {
        let request = SendRequest {
            wr_id: SEND,
            operation: SendOperation::Send,
            data: Data::Regions(source),
            signaled: true,
            solicited: false,
            fence: false,
            target: self.target,
        };
        let qp = &self.queue_pairs[qp];
        qp.post_send(&[request])
            .map_err(|refused| Failure::failed(format_args!("{refused}; {}\n{HINT}", qp.why())))
    }

    /// Nothing completed.
    fn rest(&self, moved: &mut Moved, received: u32) -> Result<(), Failure> {
        if moved.empty == 0 {
            moved.at = Instant::now();
        }
        moved.empty = moved.empty.saturating_add(1);
        match &self.channel {
            Some(channel) if moved.empty > 1 => {
                // Armed first and polled after, so that no completion is overslept.
                if !self.cq.request_notify(false)? {
                    channel.wait(Duration::from_millis(100));
                }
            }
            Some(_) => {}
            None if moved.empty < 200 => std::hint::spin_loop(),
            None => thread::yield_now(),
        }
        // On a busy machine each poll may take milliseconds.
        let looks = self.channel.is_some() || moved.empty.is_multiple_of(1 << 6);
        let quiet = moved.at.elapsed();
        if !looks || quiet < self.patience().min(GRACE) {
            return Ok(());
        }
        let why = became(&self.context, &self.queue_pairs);
        if self.peer.as_ref().is_some_and(|peer| peer.look() == Presence::Gone) {
            return Err(closed(why));
        }
        if received == 0 {
            moved.early.say(self.arguments.kind.service(), quiet, self.patience());
        }
        let lost = "do packets get through? UC and UD lose what the network does";
        match why {
            None if quiet < self.patience() => Ok(()),
            Some(_) if quiet < self.patience().min(LINK_COMES_UP) => Ok(()),
            why => Err(Failure::failed(format_args!(
                "nothing more came within {} s after {}: {}",
                quiet.as_secs(),
                counted(received as usize, "message"),
                why.as_deref().unwrap_or(lost)
            ))),
        }
    }

    fn tell(&self, time: Duration, between: &Between) -> Result<(), Failure> {
        let PingpongArguments { iters, json, kind, .. } = *self.arguments;
        let micros = time.as_secs_f64() * 1e6;
        let bytes = self.size as u64 * u64::from(iters) * 2;
        let (seconds, megabits) = (micros / 1e6, bytes as f64 * 8.0 / micros);
        let each = micros / f64::from(iters);
        let mut out = io::stdout().lock();
        if json {
            let mut ink = Ink::new(false);
            let mut object = Object::begin(&mut ink);
            object.text("service", kind.name());
            object.number("bytes", bytes);
            object.number("iterations", iters.into());
            object.decimal("seconds", seconds);
            object.decimal("mbps", megabits);
            object.decimal("us_per_iteration", each);
            object.end();
            out.write_all(ink.bytes())?;
            return Ok(out.flush()?);
        }
        writeln!(out, "{bytes} bytes in {seconds:.2} seconds = {megabits:.2} Mbit/sec")?;
        writeln!(out, "{iters} iters in {seconds:.2} seconds = {each:.2} usec/iter")?;
        if between.count > 0 {
            let Between { most, least, sum, count, .. } = between;
            let mean = sum.as_nanos() as f64 / f64::from(*count);
            writeln!(out, "Max receive completion clock cycles = {}", most.as_nanos())?;
            writeln!(out, "Min receive completion clock cycles = {}", least.as_nanos())?;
            writeln!(out, "Average receive completion clock cycles = {mean:.6}")?;
        }
        Ok(out.flush()?)
    }

    /// Looks at the last message. The client's came back; the server knows what clients send: the
    /// programs of rdma-core a 0 at the beginning of each page, this one also all the rest.
    fn check(&self, is_client: bool) -> Result<(), Failure> {
        let (mut found, expected) = (vec![0; self.size], message(self.size));
        self.buffer.read(self.skipped(), &mut found);
        let marked = self.size > MARK && found[1..MARK] == expected[1..MARK];
        let whole = is_client || marked;
        for (page, (found, expected)) in found.chunks(PAGE).zip(expected.chunks(PAGE)).enumerate() {
            let right = if whole { found == expected } else { found[0] == expected[0] };
            if !right {
                return Err(Failure::failed(format_args!("invalid data in page {page}")));
            }
        }
        Ok(())
    }
}

/// Bytes by which a message of this program's is known.
const MARK: usize = 16;

/// What a client sends.
fn message(size: usize) -> Vec<u8> {
    let byte = |at: usize| {
        let mixed = (at as u32).wrapping_mul(0x9e37_79b1) >> 24;
        if at.is_multiple_of(PAGE) { 0 } else { mixed as u8 }
    };
    (0..size).map(byte).collect()
}

/// When something completed last, and how often nothing did since.
struct Moved {
    at: Instant,
    empty: u32,
    early: EarlyWord,
}

/// The times between receives.
#[derive(Default)]
struct Between {
    last: Option<Instant>,
    most: Duration,
    least: Duration,
    sum: Duration,
    count: u32,
}

impl Between {
    fn add(&mut self, wanted: bool) {
        if !wanted {
            return;
        }
        let now = Instant::now();
        if let Some(last) = self.last.replace(now) {
            let time = now - last;
            self.most = self.most.max(time);
            self.least = if self.count == 0 { time } else { self.least.min(time) };
            self.sum += time;
            self.count += 1;
        }
    }
}
