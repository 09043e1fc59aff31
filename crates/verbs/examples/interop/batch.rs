//! A batch: one pair of queue pairs that does one operation in all sizes.

use std::error::Error;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::thread;
use std::time::{Duration, Instant as Clock};

use roxe_verbs::{Mtu, ServiceType};

use crate::end::{Card, Done, End, Setup, Work, status_name};
use crate::{Failure, Outcome};

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Send,
    SendImm,
    SendInv,
    Write,
    WriteImm,
    Read,
    CompareSwap,
    FetchAdd,
    Srq,
    UcSend,
    UcWrite,
    UdSend,
    Multicast,
}

impl Op {
    #[rustfmt::skip]
    pub(crate) const ALL: [Self; 13] = [
        Self::Send, Self::SendImm, Self::SendInv, Self::Write, Self::WriteImm, Self::Read,
        Self::CompareSwap, Self::FetchAdd, Self::Srq, Self::UcSend, Self::UcWrite, Self::UdSend,
        Self::Multicast,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Send => "RC SEND",
            Self::SendImm => "RC SEND imm",
            Self::SendInv => "RC SEND inv",
            Self::Write => "RC WRITE",
            Self::WriteImm => "RC WRITE imm",
            Self::Read => "RC READ",
            Self::CompareSwap => "RC CAS",
            Self::FetchAdd => "RC FAA",
            Self::Srq => "RC SEND to SRQ",
            Self::UcSend => "UC SEND",
            Self::UcWrite => "UC WRITE",
            Self::UdSend => "UD SEND",
            Self::Multicast => "UD multicast",
        }
    }

    pub(crate) const fn service(self) -> ServiceType {
        match self {
            Self::UcSend | Self::UcWrite => ServiceType::Uc,
            Self::UdSend | Self::Multicast => ServiceType::Ud,
            _ => ServiceType::Rc,
        }
    }

    const fn is_atomic(self) -> bool {
        matches!(self, Self::CompareSwap | Self::FetchAdd)
    }

    const fn takes_receive(self) -> bool {
        !matches!(
            self,
            Self::Write | Self::Read | Self::CompareSwap | Self::FetchAdd | Self::UcWrite
        )
    }

    /// `ibv_wc_opcode` at the requester.
    const fn opcode(self) -> u32 {
        match self {
            Self::Write | Self::WriteImm | Self::UcWrite => 1,
            Self::Read => 2,
            Self::CompareSwap => 3,
            Self::FetchAdd => 4,
            _ => 0,
        }
    }

    /// The lengths of its messages: around the borders of padding and of packets.
    pub(crate) fn sizes(self, path_mtu: Mtu) -> Vec<u64> {
        let mtu = u64::from(path_mtu.bytes());
        let few = [0, 1, 2, 3, 5, mtu - 1, mtu];
        let many = [mtu + 1, 3 * mtu + 1, 1 << 20];
        match self.service() {
            _ if self.is_atomic() => vec![8],
            ServiceType::Ud => few.to_vec(),
            _ => [&few[..], &many].concat(),
        }
    }
}

/// Who asks whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// The first end, roxe, asks.
    Out,
    /// The second end, the peer, asks.
    In,
    /// Both at once.
    Both,
}

impl Direction {
    pub(crate) const ALL: [Self; 3] = [Self::Out, Self::In, Self::Both];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Out => "requester",
            Self::In => "responder",
            Self::Both => "both",
        }
    }

    /// Which ends ask.
    const fn requesters(self) -> &'static [usize] {
        match self {
            Self::Out => &[0],
            Self::In => &[1],
            Self::Both => &[0, 1],
        }
    }
}

/// How packets are addressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    V4,
    V6,
    Vlan,
}

impl Family {
    /// The VLAN of the family that has one.
    pub(crate) const VLAN: u16 = 100;

    pub(crate) const ALL: [Self; 3] = [Self::V4, Self::V6, Self::Vlan];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
            Self::Vlan => "VLAN",
        }
    }

    /// The addresses of both ends.
    pub(crate) fn addresses(self) -> [IpAddr; 2] {
        let of = |host: u8| match self {
            Self::V4 => IpAddr::V4(Ipv4Addr::new(10, 10, 0, host)),
            Self::Vlan => IpAddr::V4(Ipv4Addr::new(10, 10, 100, host)),
            Self::V6 => IpAddr::V6(Ipv6Addr::new(0xfd10, 0, 0, 0, 0, 0, 0, host.into())),
        };
        [of(1), of(2)]
    }

    /// A group for each end.
    fn groups(self) -> [IpAddr; 2] {
        let of = |end: u8| match self {
            Self::V6 => IpAddr::V6(Ipv6Addr::new(0xff15, 0, 0, 0, 0, 0, 0xbeef, end.into())),
            Self::V4 | Self::Vlan => IpAddr::V4(Ipv4Addr::new(239, 1, 2, end)),
        };
        [of(1), of(2)]
    }
}

/// What a batch is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Batch {
    pub(crate) op: Op,
    pub(crate) direction: Direction,
    pub(crate) path_mtu: Mtu,
    pub(crate) family: Family,
}

/// A peer that is slow is given up late: nothing is lost here, so nothing may be sent again.
pub(crate) const TIMEOUT: u8 = 19;

/// Places in the memory of an end. Messages begin at odd ones.
pub(crate) const SOURCE: u64 = 65;
pub(crate) const TARGET: u64 = (2 << 20) + 4163;
pub(crate) const WORD: u64 = 4 << 20;
const RESULT: u64 = WORD + 64;

/// Bytes around a message that must stay as they were.
pub(crate) const GUARD: u64 = 64;

/// Before a datagram, the area of its GRH.
const GRH: u64 = 40;

/// A message, and the names of its request and its receive, which no other size has: what
/// completes twice stands for nothing else.
#[derive(Clone, Copy)]
struct Message {
    len: u64,
    seed: u64,
    asked: u64,
    received: u64,
}

impl Message {
    /// That of one end, of which each has a pattern of its own.
    const fn of(self, end: usize) -> Self {
        Self { seed: self.seed + end as u64, ..self }
    }
}

/// Something that was sent did not arrive, and what did is right: nothing that an unreliable
/// service has to answer for.
#[derive(Debug)]
pub(crate) struct Missing(pub(crate) String);

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for Missing {}

impl Missing {
    /// A failure with more before it, which stays the kind that it is.
    fn behind(before: &str, why: Failure) -> Failure {
        let text = format!("{before}: {why}");
        if why.is::<Self>() { Self(text).into() } else { text.into() }
    }
}

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// And how long what may be lost is waited for.
const UNRELIABLE: Duration = Duration::from_secs(5);

impl Batch {
    /// Cells: sizes.
    pub(crate) fn sizes(&self) -> Vec<u64> {
        self.op.sizes(self.path_mtu)
    }

    fn setup(&self, seed: u32, timeout: u8) -> Setup {
        let psn = |end: u32| seed.wrapping_mul(0x9e37_79b9).rotate_left(8 * end + 8) & 0xff_ffff;
        Setup {
            service: self.op.service(),
            path_mtu: self.path_mtu,
            srq: self.op == Op::Srq,
            remote_access: true,
            psn: [psn(0), psn(1)],
            timeout,
            retry_cnt: 7,
            rnr_retry: 7,
            min_rnr_timer: 12,
            rd_atomic: 4,
        }
    }

    /// Goes through all sizes. Says at which it failed.
    ///
    /// # Errors
    /// One is [`Missing`] where nothing was wrong but that.
    pub(crate) fn run(&self, ends: &mut [Box<dyn End>; 2], seed: u32, timeout: u8) -> Outcome {
        let cards = join(ends, &self.setup(seed, timeout))?;
        if self.op == Op::Multicast {
            self.join_groups(ends)?;
        }
        for (number, len) in (0..).zip(self.sizes()) {
            let seed = u64::from(seed) << 16 | number << 8;
            let message = Message { len, seed, asked: 2 * number + 1, received: 2 * number + 2 };
            self.message(ends, &cards, message)
                .map_err(|why| Missing::behind(&format!("{len} bytes"), why))?;
        }
        nothing_more(ends)
    }

    fn join_groups(&self, ends: &mut [Box<dyn End>; 2]) -> Outcome {
        let groups = self.family.groups();
        for &from in self.direction.requesters() {
            let to = 1 - from;
            ends[to].join(groups[to])?;
            ends[from].send_to(groups[to])?;
        }
        Ok(())
    }

    /// A message of each end that asks.
    fn message(
        &self,
        ends: &mut [Box<dyn End>; 2],
        cards: &[Card; 2],
        message: Message,
    ) -> Outcome {
        let requesters = self.direction.requesters();
        let mut due = [0; 2];
        let mut keys = [0; 2];
        for &from in requesters {
            keys[from] = self.prepare(ends, from, message.of(from))?;
            due[from] += 1;
            due[1 - from] += usize::from(self.op.takes_receive());
        }
        for &from in requesters {
            let work = self.work(&cards[1 - from], keys[from], message.of(from).seed);
            let at = if self.fetches() { self.result() } else { SOURCE };
            ends[from].post(message.asked, work, at, message.len as u32)?;
        }
        let mut done = [Vec::new(), Vec::new()];
        let mut missing = None;
        for which in [0, 1] {
            let patience = if self.op.service() == ServiceType::Rc { PATIENCE } else { UNRELIABLE };
            done[which] = ends[which].wait(due[which], patience)?;
            let (name, came) = (ends[which].name(), done[which].len());
            if let Some(failed) = done[which].iter().find(|done| done.status != 0) {
                let Done { id, status, .. } = failed;
                let what = if *id == message.asked { "request" } else { "receive" };
                let status = status_name(*status);
                return Err(format!("{name}: its {what} ended with {status}").into());
            }
            if came != due[which] {
                missing.get_or_insert_with(|| {
                    format!("{name}: {came} of {} completions came", due[which])
                });
            }
        }
        if let Some(why) = missing {
            // Whatever becomes of a message, a request completes.
            let is_done = |from: &usize| done[*from].iter().any(|done| done.id == message.asked);
            return Err(match requesters.iter().all(is_done) {
                true => Missing(why).into(),
                false => why.into(),
            });
        }
        for &from in requesters {
            self.verify(ends, cards, from, &done, (message.of(from), keys[from]))?;
        }
        Ok(())
    }

    const fn fetches(&self) -> bool {
        matches!(self.op, Op::Read | Op::CompareSwap | Op::FetchAdd)
    }

    const fn result(&self) -> u64 {
        if self.op.is_atomic() { RESULT } else { TARGET }
    }

    /// Fills memory of both, and posts the receive. Says the key that is to be invalidated.
    fn prepare(
        &self,
        ends: &mut [Box<dyn End>; 2],
        from: usize,
        Message { len, seed, received, .. }: Message,
    ) -> Outcome<u32> {
        let to = 1 - from;
        if self.op.is_atomic() {
            ends[to].set_word(WORD, seed)?;
            ends[from].set_word(RESULT, !seed)?;
            return Ok(0);
        }
        let (source, target) = if self.op == Op::Read { (to, from) } else { (from, to) };
        ends[source].fill(SOURCE, len, seed)?;
        ends[target].fill(TARGET - GUARD, len + 2 * GUARD, !seed)?;
        let key = if self.op == Op::SendInv { ends[to].bind()? } else { 0 };
        if self.op.takes_receive() {
            let (at, room) = match self.op {
                Op::WriteImm => (TARGET, 0),
                Op::UdSend | Op::Multicast => (TARGET - GRH, len + GRH),
                _ => (TARGET, len),
            };
            ends[to].receive(received, at, room as u32)?;
        }
        Ok(key)
    }

    fn work(&self, to: &Card, key: u32, seed: u64) -> Work {
        let (va, r_key, imm) = (to.va + TARGET, to.r_key, seed as u32);
        match self.op {
            Op::Send | Op::Srq | Op::UcSend => Work::Send,
            Op::SendImm | Op::UdSend | Op::Multicast => Work::SendImm(imm),
            Op::SendInv => Work::SendInv(key),
            Op::Write | Op::UcWrite => Work::Write { va, r_key },
            Op::WriteImm => Work::WriteImm { va, r_key, imm },
            Op::Read => Work::Read { va: to.va + SOURCE, r_key },
            Op::CompareSwap => {
                Work::CompareSwap { va: to.va + WORD, r_key, compare: seed, swap: SWAP }
            }
            Op::FetchAdd => Work::FetchAdd { va: to.va + WORD, r_key, add: ADD },
        }
    }

    /// Completions, then memory.
    fn verify(
        &self,
        ends: &mut [Box<dyn End>; 2],
        cards: &[Card; 2],
        from: usize,
        done: &[Vec<Done>; 2],
        (message, key): (Message, u32),
    ) -> Outcome {
        let Message { len, seed, .. } = message;
        let to = 1 - from;
        let of = |end: usize, id: u64| {
            let found = done[end].iter().find(|done| done.id == id);
            found.ok_or_else(|| format!("end {end}: no completion of request {id}"))
        };
        let asked = of(from, message.asked)?;
        must_be("opcode of the request", asked.opcode, self.op.opcode())?;
        if self.op.takes_receive() {
            let received = of(to, message.received)?;
            let is_ud = self.op.service() == ServiceType::Ud;
            let opcode = if self.op == Op::WriteImm { 129 } else { 128 };
            must_be("opcode of the receive", received.opcode, opcode)?;
            let all = if is_ud { len + GRH } else { len };
            must_be("byte_len", u64::from(received.len), all)?;
            let with_imm = matches!(self.op, Op::SendImm | Op::WriteImm) || is_ud;
            must_be("immediate", received.imm, with_imm.then_some(seed as u32))?;
            let inv = (self.op == Op::SendInv).then_some(key);
            must_be("invalidated key", received.invalidated, inv)?;
            if is_ud {
                must_be("src_qp", received.source_qp, cards[from].qpn)?;
            }
        }
        if self.op.is_atomic() {
            let now = if self.op == Op::CompareSwap { SWAP } else { seed.wrapping_add(ADD) };
            must_be("what the atomic found", ends[from].word(RESULT)?, seed)?;
            return must_be("what the atomic left", ends[to].word(WORD)?, now);
        }
        let target = &mut ends[if self.op == Op::Read { from } else { to }];
        let name = target.name();
        let area = if self.op.service() == ServiceType::Ud { GRH } else { 0 };
        // A WRITE that nobody acknowledges is on its way when its requester is done.
        let start = Clock::now();
        while self.op == Op::UcWrite
            && start.elapsed() < UNRELIABLE
            && target.check(TARGET, len, seed, 0).is_err()
        {
            thread::sleep(Duration::from_millis(5));
        }
        if let Err(why) = target.check(TARGET, len, seed, 0) {
            let why = format!("{name}: data: {why}");
            return Err(
                match self.op == Op::UcWrite && self.is_torn(target.as_mut(), message)? {
                    true => Missing(why).into(),
                    false => why.into(),
                },
            );
        }
        for (what, at, len) in
            [("before", TARGET - GUARD, GUARD - area), ("behind", TARGET + len, GUARD)]
        {
            let skip = at + GUARD - TARGET;
            let whole = target.check(at, len, !seed, skip);
            whole.map_err(|why| format!("{name}: memory {what} the message: {why}"))?;
        }
        Ok(())
    }
}

impl Batch {
    /// Whether a WRITE is there up to the border of one of its packets, and memory behind that is
    /// as it was: the packet that is next was lost.
    fn is_torn(&self, target: &mut dyn End, Message { len, seed, .. }: Message) -> Outcome<bool> {
        let mtu = u64::from(self.path_mtu.bytes());
        let [mut there, mut above] = [0, len.div_ceil(mtu)];
        while there + 1 < above {
            let middle = there.midpoint(above);
            match target.check(TARGET, middle * mtu, seed, 0) {
                Ok(()) => there = middle,
                Err(_) => above = middle,
            }
        }
        let at = there * mtu;
        Ok(target.check(TARGET, at, seed, 0).is_ok()
            && target.check(TARGET + at, len - at, !seed, GUARD + at).is_ok())
    }
}

/// Neither end has a completion that nobody asked for.
pub(crate) fn nothing_more(ends: &mut [Box<dyn End>; 2]) -> Outcome {
    for end in ends {
        let more = end.wait(1, Duration::ZERO)?;
        must_be(&format!("{}: completions too many", end.name()), &more[..], &[])?;
    }
    Ok(())
}

/// What atomics swap in and add.
const SWAP: u64 = 0x1122_3344_5566_7788;
pub(crate) const ADD: u64 = 0x1_0000_0001;

/// Makes both ends and connects them.
pub(crate) fn join(ends: &mut [Box<dyn End>; 2], setup: &Setup) -> Outcome<[Card; 2]> {
    let cards = [ends[0].make(setup, 0)?, ends[1].make(setup, 1)?];
    // Who sends first finds the other ready.
    ends[1].meet(setup, &cards[0])?;
    ends[0].meet(setup, &cards[1])?;
    Ok(cards)
}

pub(crate) fn must_be<T: PartialEq + fmt::Debug>(what: &str, is: T, should: T) -> Outcome {
    if is == should { Ok(()) } else { Err(format!("{what}: {is:x?}, not {should:x?}").into()) }
}
