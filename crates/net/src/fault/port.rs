//! A port around a port, with a bad network between the two.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use roxe_wire::{
    Addressing, Body, FrameTemplate, IcrcCover, Instant, IpHeader, Psn, Qpn, RawFrame, Received,
    Room, TrafficClass, icrc,
};

use super::{Faults, ParseError, Subject, Verdict};
use crate::port::{
    Arrival, BATCH, Capabilities, FramePort, HeadersOf, IN_VAIN, Outgoing, Seal, Sent, Wake,
    packets_to,
};
use crate::{Sleeper, Waker};

/// A port behind a bad network.
///
/// It judges what is sent and what is received, each direction by rules of its own, and does to
/// packets what the verdicts say. What is damaged on its way out was sealed before; what is sent
/// marked has the mark in its IP header; what arrives marked says so in its addressing. A packet
/// that is held back ends a wait when its time has come, as the time of the last call of `receive`
/// or `transmit` tells it; one that others are to overtake goes at the latest after a millisecond.
///
/// # Counters
///
/// Besides those of the inner port, for each direction:
///
/// | name | counts |
/// |---|---|
/// | `fault_tx_dropped`, `fault_rx_dropped` | packets lost |
/// | `…_duplicated` | copies made |
/// | `…_delayed` | packets that take longer |
/// | `…_reordered` | packets that later ones overtake |
/// | `…_corrupted`, `…_truncated` | packets with a bit turned over, without their end |
/// | `…_marked` | packets marked "congestion experienced" |
/// | `…_overflow` | packets lost because too many were held back |
#[derive(Debug)]
pub struct FaultPort<P> {
    inner: P,
    capabilities: Capabilities,
    tx: Direction<Way>,
    rx: Direction<Origin>,
    /// What an arriving packet is damaged in.
    scratch: Vec<u8>,
    /// The time that was told last.
    now: Instant,
    /// Whether the inner port had no room when it was asked last.
    full: bool,
}

impl<P: FramePort> FaultPort<P> {
    /// Does to what is sent, and to what is received, what these rules say.
    pub fn new(inner: P, sent: Faults, received: Faults) -> Self {
        let mut capabilities = inner.capabilities().clone();
        for (direction, faults) in [("sent", &sent), ("received", &received)] {
            if !faults.is_empty() {
                capabilities.summary += &format!(", faults of what is {direction}: {faults}");
            }
        }
        Self {
            inner,
            capabilities,
            tx: Direction::new(sent),
            rx: Direction::new(received),
            scratch: Vec::new(),
            now: Instant::ZERO,
            full: false,
        }
    }

    /// The rules of a line for both directions, with chance from `seed`.
    ///
    /// # Errors
    /// [`ParseError`].
    pub fn parse(inner: P, line: &str, seed: u64) -> Result<Self, ParseError> {
        let sent = Faults::parse(line, seed)?;
        Ok(Self::new(inner, sent, Faults::parse(line, seed.wrapping_add(1))?))
    }

    /// Hands up what has arrived, until there is a packet. Says how many.
    fn fetch(&mut self, now: Instant, mut sink: impl FnMut(Arrival<'_>)) -> usize {
        self.now = now;
        let Self { inner, rx, scratch, .. } = self;
        rx.waiting.expire(now);
        let mut packets = hand_up_ready(&mut rx.waiting, now, &mut sink);
        for _ in 0..IN_VAIN {
            let received = inner.receive_all(now, &mut |arrival| match arrival.packet {
                Ok(packet) => packets += rx.arrived(now, arrival.frame, packet, scratch, &mut sink),
                Err(_) => sink(arrival),
            });
            if packets > 0 || received == 0 {
                break;
            }
        }
        packets
    }

    /// How long nothing that is held back is ready.
    fn left(&self) -> Duration {
        let next = [self.tx.waiting.next(), self.rx.waiting.next()].into_iter().flatten().min();
        let left = next.map_or(Duration::MAX, |at| at.since(self.now));
        // What is ready and still here has no room; the inner port knows how long that lasts.
        if left.is_zero() && self.full { Duration::MAX } else { left }
    }

    /// Sends what was held back until now. Says whether the inner port had room for all of it.
    fn send_ready(&mut self, now: Instant) -> bool {
        let Self { inner, tx, .. } = self;
        while tx.waiting.is_ready(now) {
            let waiting = &tx.waiting.timed;
            let mut taken = 0;
            inner.transmit(now, &mut |room| {
                let held = waiting.get(taken).filter(|held| held.at <= now)?;
                taken += 1;
                fill(room, &held.bytes);
                let Way { path, seal } = &held.head;
                Some(Outgoing { path, len: held.bytes.len(), seal: *seal })
            });
            tx.waiting.done(taken);
            if taken == 0 {
                return false;
            }
        }
        true
    }
}

impl<P: FramePort> FramePort for FaultPort<P> {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn receive(&mut self, now: Instant, sink: &mut dyn FnMut(Received<'_>)) -> usize {
        self.fetch(now, packets_to(sink))
    }

    fn receive_all(&mut self, now: Instant, sink: &mut dyn FnMut(Arrival<'_>)) -> usize {
        self.fetch(now, sink)
    }

    fn transmit<'p>(
        &mut self,
        now: Instant,
        source: &mut dyn FnMut(Room<'_>) -> Option<Outgoing<'p>>,
    ) -> Sent {
        self.now = now;
        self.full = false;
        self.tx.waiting.expire(now);
        let headers = self.capabilities.headers;
        let mut sent = Sent { packets: 0, more: true };
        loop {
            if !self.send_ready(now) {
                self.full = true;
                return Sent { more: true, ..sent };
            }
            if !sent.more || sent.packets == BATCH {
                return sent;
            }
            let Self { inner, tx, .. } = self;
            let mut asked = false;
            inner.transmit(now, &mut |room| {
                asked = true;
                // What is ready goes first: the inner port is asked again for that.
                while sent.packets < BATCH && !tx.waiting.is_ready(now) {
                    let lent = Room { first: &mut *room.first, second: &mut *room.second };
                    let Some(outgoing) = source(lent) else {
                        sent.more = false;
                        return None;
                    };
                    sent.packets += 1;
                    let room = Room { first: &mut *room.first, second: &mut *room.second };
                    if let Some(outgoing) = tx.sent(now, outgoing, room, headers) {
                        return Some(outgoing);
                    }
                }
                None
            });
            if !asked {
                self.full = true;
                return sent;
            }
        }
    }

    fn wait(&mut self, timeout: Duration) -> Wake {
        if self.rx.waiting.is_ready(self.now) {
            return Wake::Arrived;
        }
        let left = self.left();
        if left.is_zero() { Wake::TimedOut } else { self.inner.wait(timeout.min(left)) }
    }

    fn settle(&mut self, timeout: Duration) -> Result<Duration, Wake> {
        if self.rx.waiting.is_ready(self.now) {
            return Err(Wake::Arrived);
        }
        let left = self.left();
        if left.is_zero() { Err(Wake::TimedOut) } else { self.inner.settle(timeout.min(left)) }
    }

    fn due(&self) -> Option<Duration> {
        let own = Some(self.left()).filter(|left| *left != Duration::MAX);
        [own, self.inner.due()].into_iter().flatten().min()
    }

    fn sleeper(&self) -> io::Result<Sleeper> {
        self.inner.sleeper()
    }

    fn waker(&self) -> Waker {
        self.inner.waker()
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let mut counters = self.inner.counters();
        counters.extend(TX_NAMES.into_iter().zip(self.tx.counts.all()));
        counters.extend(RX_NAMES.into_iter().zip(self.rx.counts.all()));
        counters
    }
}

/// What happens to packets that go one way. `H` is what is kept of one besides its bytes.
#[derive(Debug)]
struct Direction<H> {
    faults: Faults,
    waiting: Waiting<H>,
    counts: Counts,
}

/// Of a packet to be sent: where it goes, and who seals it.
#[derive(Debug)]
struct Way {
    path: FrameTemplate,
    seal: Seal,
}

/// Of a packet that arrived: all but its body.
#[derive(Debug)]
struct Origin {
    addressing: Addressing,
    ip_header: Option<KeptHeader>,
    cover: Option<IcrcCover<'static>>,
}

/// An IP header.
#[derive(Debug)]
enum KeptHeader {
    V4([u8; 20]),
    V6([u8; 40]),
}

impl<H> Direction<H> {
    fn new(faults: Faults) -> Self {
        Self { faults, waiting: Waiting::default(), counts: Counts::default() }
    }

    /// What happens to a packet.
    fn judge(&mut self, body: Body<'_>) -> Verdict {
        let bth = body.bth().ok();
        let verdict = self.faults.judge(Subject {
            qpn: bth.map_or(Qpn::new(0), |bth| bth.dest_qp),
            psn: bth.map_or(Psn::new(0), |bth| bth.psn),
            len: body.len(),
        });
        self.counts.add(&verdict);
        verdict
    }

    /// Keeps a packet back.
    fn hold(&mut self, now: Instant, verdict: &Verdict, head: H, pieces: [&[u8]; 2]) {
        if !self.waiting.hold(head, pieces, now + verdict.delay, verdict.behind) {
            self.counts.overflow += 1;
        }
    }
}

impl Direction<Way> {
    /// The packet in `room`, if it goes out now, with what happened to it; else it is lost or held
    /// back.
    fn sent<'p>(
        &mut self,
        now: Instant,
        outgoing: Outgoing<'p>,
        room: Room<'_>,
        headers: HeadersOf,
    ) -> Option<Outgoing<'p>> {
        let Outgoing { path, mut len, mut seal } = outgoing;
        let Room { first, second } = room;
        let in_first = len.min(first.len());
        let in_second = len - in_first;
        if in_second > second.len() {
            return Some(outgoing); // Longer than the room: the inner port throws it away.
        }
        let (first, second) = (&mut first[..in_first], &mut second[..in_second]);
        let verdict = self.judge(Body::Whole { first, second });
        if verdict.drop {
            return None;
        }
        if verdict.flip.is_some() || verdict.keep.is_some() {
            if seal == Seal::Compute {
                let cover = u16::try_from(len).ok();
                let cover = cover.and_then(|len| headers.on(path).icrc_cover(len, 0))?;
                icrc::seal(&cover, Room { first: &mut *first, second: &mut *second });
                seal = Seal::AsWritten;
            }
            if let Some(bit) = verdict.flip {
                flip(first, second, bit);
            }
            len = verdict.keep.unwrap_or(len);
        }
        let pieces = [&first[..len.min(in_first)], &second[..len.saturating_sub(in_first)]];
        let goes_now = is_now(&verdict) && !verdict.mark;
        if goes_now {
            self.waiting.passed(now);
        }
        let held = verdict.copies + u32::from(!goes_now);
        for _ in 0..held {
            let class = TrafficClass(path.ip_header().traffic_class().0 | CE);
            let path = if verdict.mark { path.with_traffic_class(class) } else { path.clone() };
            self.hold(now, &verdict, Way { path, seal }, pieces);
        }
        goes_now.then_some(Outgoing { path, len, seal })
    }
}

impl Direction<Origin> {
    /// Hands up a packet that arrived, with what happens to it. Says how many were handed up.
    fn arrived<'a>(
        &mut self,
        now: Instant,
        mut frame: Option<RawFrame<'a>>,
        mut packet: Received<'a>,
        scratch: &'a mut Vec<u8>,
        sink: &mut impl FnMut(Arrival<'_>),
    ) -> usize {
        let verdict = self.judge(packet.body);
        if verdict.drop {
            return 0;
        }
        let Body::Whole { first, second } = packet.body else {
            sink(Arrival { frame, packet: Ok(packet) });
            return 1;
        };
        let mut pieces = [first, second];
        if verdict.flip.is_some() || verdict.keep.is_some() {
            scratch.clear();
            scratch.extend_from_slice(first);
            scratch.extend_from_slice(second);
            if let Some(bit) = verdict.flip {
                flip(scratch, &mut [], bit);
            }
            scratch.truncate(verdict.keep.unwrap_or(scratch.len()));
            pieces = [scratch, &[]];
            packet.body = Body::whole(scratch);
            frame = None;
        }
        if verdict.mark {
            packet.addressing.traffic_class.0 |= CE;
            packet.ip_header = None;
            frame = None;
        }
        if !is_now(&verdict) {
            for _ in 0..=verdict.copies {
                self.hold(now, &verdict, Origin::of(&packet), pieces);
            }
            return 0;
        }
        for _ in 0..=verdict.copies {
            sink(Arrival { frame, packet: Ok(packet) });
        }
        self.waiting.passed(now);
        1 + verdict.copies as usize + hand_up_ready(&mut self.waiting, now, sink)
    }
}

impl Origin {
    fn of(packet: &Received<'_>) -> Self {
        Self {
            addressing: packet.addressing,
            ip_header: packet.ip_header.map(|header| match header {
                IpHeader::V4(bytes) => KeptHeader::V4(*bytes),
                IpHeader::V6(bytes) => KeptHeader::V6(*bytes),
            }),
            cover: packet.cover.map(|cover| cover.detach()),
        }
    }
}

/// Packets held back. One that others overtake waits for them, but not for ever: there may be none.
#[derive(Debug)]
struct Waiting<H> {
    /// Those that go at a time, the first in front.
    timed: VecDeque<Held<H>>,
    /// Those that so many packets have to pass.
    overtaken: Vec<Held<H>>,
    /// Buffers to be used again.
    spare: Vec<Vec<u8>>,
}

/// A packet held back.
#[derive(Debug)]
struct Held<H> {
    head: H,
    bytes: Vec<u8>,
    at: Instant,
    behind: u32,
}

impl<H> Default for Waiting<H> {
    fn default() -> Self {
        Self { timed: VecDeque::new(), overtaken: Vec::new(), spare: Vec::new() }
    }
}

impl<H> Waiting<H> {
    /// Holds a packet back. Says whether there was room.
    fn hold(&mut self, head: H, pieces: [&[u8]; 2], at: Instant, behind: u32) -> bool {
        if self.timed.len() + self.overtaken.len() == MOST_HELD {
            return false;
        }
        let mut bytes = self.spare.pop().unwrap_or_default();
        bytes.clear();
        pieces.iter().for_each(|piece| bytes.extend_from_slice(piece));
        let held = Held { head, bytes, at, behind };
        if behind == 0 {
            self.put(held)
        } else {
            self.overtaken.push(held)
        }
        true
    }

    /// A packet went past those that are held back.
    fn passed(&mut self, now: Instant) {
        self.overtaken.iter_mut().for_each(|held| held.behind -= 1);
        self.release(|held| (held.behind == 0).then_some(held.at.max(now)));
    }

    /// Nobody came to overtake.
    fn expire(&mut self, now: Instant) {
        self.release(|held| Some(held.at + OVERTAKING_LIMIT).filter(|at| *at <= now));
    }

    /// Those of which `when` says so go at a time.
    fn release(&mut self, when: impl Fn(&Held<H>) -> Option<Instant>) {
        let mut next = 0;
        while let Some(held) = self.overtaken.get(next) {
            match when(held) {
                Some(at) => {
                    let held = self.overtaken.remove(next);
                    self.put(Held { at, ..held });
                }
                None => next += 1,
            }
        }
    }

    fn put(&mut self, held: Held<H>) {
        let place = self.timed.partition_point(|other| other.at <= held.at);
        self.timed.insert(place, held);
    }

    fn is_ready(&self, now: Instant) -> bool {
        self.timed.front().is_some_and(|held| held.at <= now)
    }

    /// When the next one goes.
    fn next(&self) -> Option<Instant> {
        let timed = self.timed.front().map(|held| held.at);
        let overtaken = self.overtaken.iter().map(|held| held.at + OVERTAKING_LIMIT);
        overtaken.chain(timed).min()
    }

    /// The first `count` are gone.
    fn done(&mut self, count: usize) {
        self.spare.extend(self.timed.drain(..count).map(|held| held.bytes));
    }
}

/// Hands up what was held back until now. Says how many packets.
fn hand_up_ready(
    waiting: &mut Waiting<Origin>,
    now: Instant,
    sink: &mut impl FnMut(Arrival<'_>),
) -> usize {
    let ready = waiting.timed.iter().take_while(|held| held.at <= now);
    let mut count = 0;
    for Held { head, bytes, .. } in ready {
        let packet = Ok(Received {
            addressing: head.addressing,
            ip_header: head.ip_header.as_ref().map(|header| match header {
                KeptHeader::V4(bytes) => IpHeader::V4(bytes),
                KeptHeader::V6(bytes) => IpHeader::V6(bytes),
            }),
            cover: head.cover,
            body: Body::whole(bytes),
        });
        sink(Arrival { frame: None, packet });
        count += 1;
    }
    waiting.done(count);
    count
}

/// Whether a packet is not held back.
fn is_now(verdict: &Verdict) -> bool {
    verdict.delay.is_zero() && verdict.behind == 0
}

/// Turns a bit over.
fn flip(first: &mut [u8], second: &mut [u8], bit: usize) {
    if let Some(byte) = first.iter_mut().chain(second).nth(bit / 8) {
        *byte ^= 1 << (bit % 8);
    }
}

/// Writes a packet into room that is as large as the one it was in.
fn fill(room: Room<'_>, bytes: &[u8]) {
    let (head, tail) = bytes.split_at(bytes.len().min(room.first.len()));
    room.first[..head.len()].copy_from_slice(head);
    let in_second = tail.len().min(room.second.len());
    room.second[..in_second].copy_from_slice(&tail[..in_second]);
}

/// What verdicts said.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    dropped: u64,
    duplicated: u64,
    delayed: u64,
    reordered: u64,
    corrupted: u64,
    truncated: u64,
    marked: u64,
    overflow: u64,
}

impl Counts {
    fn add(&mut self, verdict: &Verdict) {
        self.dropped += u64::from(verdict.drop);
        self.duplicated += u64::from(verdict.copies);
        self.delayed += u64::from(!verdict.delay.is_zero());
        self.reordered += u64::from(verdict.behind > 0);
        self.corrupted += u64::from(verdict.flip.is_some());
        self.truncated += u64::from(verdict.keep.is_some());
        self.marked += u64::from(verdict.mark);
    }

    /// In the order of the names.
    fn all(self) -> [u64; 8] {
        let Self { dropped, duplicated, delayed, reordered, .. } = self;
        let Self { corrupted, truncated, marked, overflow, .. } = self;
        [dropped, duplicated, delayed, reordered, corrupted, truncated, marked, overflow]
    }
}

const TX_NAMES: [&str; 8] = [
    "fault_tx_dropped",
    "fault_tx_duplicated",
    "fault_tx_delayed",
    "fault_tx_reordered",
    "fault_tx_corrupted",
    "fault_tx_truncated",
    "fault_tx_marked",
    "fault_tx_overflow",
];

const RX_NAMES: [&str; 8] = [
    "fault_rx_dropped",
    "fault_rx_duplicated",
    "fault_rx_delayed",
    "fault_rx_reordered",
    "fault_rx_corrupted",
    "fault_rx_truncated",
    "fault_rx_marked",
    "fault_rx_overflow",
];

/// The ECN bits that say "congestion experienced".
const CE: u8 = 0b11;

/// The most packets that are held back in one direction.
const MOST_HELD: usize = 4096;

/// So long a packet waits to be overtaken.
const OVERTAKING_LIMIT: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests;
