//! What a pair will be asked for, drawn before anything happens.

use std::collections::VecDeque;
use std::fmt;

use roxe_device::memory::WindowType;
use roxe_transport::qp_state::ServiceType;
use roxe_wire::{AckTimeout, Mtu, Qpn, RKey, RnrTimer};

use crate::checker::{Outstanding, UNTOUCHED, fill};
use crate::rng::Rng;
use crate::swarm::{Feature as F, Recipe};

use super::receives::Pool;
use super::{End, Pair, Workload, World, everything, local, register};

/// A send request, from the plan to its end.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) kind: Kind,
    /// Bytes of the message.
    pub(super) len: usize,
    /// Which bytes.
    pub(super) key: u64,
    /// Where in the requester's own memory.
    pub(super) own: usize,
    /// Where in the memory that the peer shares.
    pub(super) remote: usize,
    pub(super) inline: bool,
    pub(super) signaled: bool,
    pub(super) solicited: bool,
    /// Whether it reaches the peer's memory through a window.
    pub(super) through_window: bool,
    pub(super) fence: bool,
    /// Where its bytes are cut into elements.
    pub(super) cuts: Vec<usize>,
    pub(super) mistake: Option<Mistake>,
    pub(super) state: State,
    /// The key that its message invalidates, once it is posted.
    pub(super) invalidates: Option<RKey>,
    /// What an atomic must find, if that is known when it is posted.
    pub(super) expected: Option<u64>,
}

impl fmt::Display for Request {
    /// What it is, in words: `a READ of 300 bytes, own memory 0, theirs 512, posted`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, len, own, remote, mistake, state, .. } = self;
        write!(f, "{kind} of {len} bytes, own memory {own}, theirs {remote}")?;
        for (is, word) in [
            (self.inline, "inline"),
            (!self.signaled, "unsignaled"),
            (self.solicited, "solicited"),
            (self.fence, "fenced"),
            (self.through_window, "through a window"),
        ] {
            if is {
                write!(f, ", {word}")?;
            }
        }
        if let Some(mistake) = mistake {
            write!(f, ", with {mistake}")?;
        }
        f.write_str(match state {
            State::Planned => ", not posted",
            State::Posted => ", posted",
            State::Succeeded => ", done",
            State::Ended => ", may have failed",
        })
    }
}

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Send,
    SendImmediate,
    /// The message invalidates the peer's key with this number.
    SendInvalidate(usize),
    Write,
    WriteImmediate,
    Overwrite,
    Read,
    CompareSwap,
    /// To the number with this index.
    FetchAdd(usize),
    AtomicWrite,
    Flush,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Send => "SEND",
            Self::SendImmediate => "SEND with immediate data",
            Self::SendInvalidate(_) => "SEND with invalidate",
            Self::Write => "WRITE",
            Self::WriteImmediate => "WRITE with immediate data",
            Self::Overwrite => "WRITE over others",
            Self::Read => "READ",
            Self::CompareSwap => "compare and swap",
            Self::FetchAdd(_) => "fetch and add",
            Self::AtomicWrite => "ATOMIC WRITE",
            Self::Flush => "FLUSH",
        })
    }
}

impl Kind {
    pub(super) const fn takes_receive(self) -> bool {
        matches!(
            self,
            Self::Send | Self::SendImmediate | Self::SendInvalidate(_) | Self::WriteImmediate
        )
    }

    /// Whether it writes to a place of its own in the peer's memory.
    pub(super) const fn writes_its_own(self) -> bool {
        matches!(self, Self::Write | Self::WriteImmediate | Self::AtomicWrite)
    }

    /// Whether the requester's memory is where the bytes come from.
    pub(super) const fn has_source(self) -> bool {
        !matches!(self, Self::Read | Self::CompareSwap | Self::FetchAdd(_) | Self::Flush)
    }
}

/// A mistake that an application makes on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mistake {
    RemoteKey,
    RemoteRange,
    LocalKey,
    /// Longer than any receive buffer.
    TooLong,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RemoteKey => "a wrong remote key",
            Self::RemoteRange => "a range beyond the region",
            Self::LocalKey => "a wrong local key",
            Self::TooLong => "a message too long for its receive",
        })
    }
}

/// How far a request has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Planned,
    Posted,
    Succeeded,
    /// It may have happened, in part or altogether, or not.
    Ended,
}

/// The longest message of a world.
pub(super) const fn most_len(recipe: &Recipe) -> usize {
    if recipe.features.has(F::Large) { 24 << 10 } else { 6 << 10 }
}

impl Workload {
    pub(super) fn make_pair(&self, world: &mut World, rng: &mut Rng) -> Result<Pair, String> {
        let recipe = &self.recipe;
        let has = |feature| recipe.features.has(feature);
        let service = rng.pick(recipe.services());
        let count = world.nodes.len() as u64;
        let a = rng.below(count) as usize;
        let b = (a + 1 + rng.below(count - 1) as usize) % count as usize;
        let mtu = rng.pick(&Mtu::ALL);
        let retry_cnt = if rng.percent(80) { rng.between(5, 7) } else { rng.between(0, 4) } as u8;
        let plans = [0, 1].map(|_| Plan::new(recipe, service, mtu, rng));
        let mut ends = Vec::new();
        for (side, device) in [a, b].into_iter().enumerate() {
            let (plan, peer) = (&plans[side], &plans[1 - side]);
            let pd = self.hosts[device].pd;
            let area = peer.longest + if service == ServiceType::Ud { 40 } else { 0 };
            let area = area.next_multiple_of(8);
            let areas = (128 << 10) / area.max(1);
            let areas = areas.clamp(2, 24);
            let pool_at = plan.own_len;
            let node = &mut world.nodes[device].device;
            let va = rng.next() & 0x7fff_ffff_ffff_0000;
            let own = vec![UNTOUCHED; pool_at + areas * area];
            let own = register(node, pd, own, va, local())?;
            let mut bytes = vec![UNTOUCHED; peer.remote_len];
            for request in peer.requests.iter().filter(|request| request.kind == Kind::Read) {
                fill(request.key, &mut bytes[request.remote..request.remote + request.len]);
            }
            bytes[peer.chain_at..peer.chain_at + 8].fill(0);
            let va = rng.next() & 0x7fff_ffff_ffff_0000;
            let shared = register(node, pd, bytes, va, everything())?;
            let mut windows = Vec::new();
            if service == ServiceType::Rc && has(F::Windows) {
                // One to reach memory through; the others are there to be invalidated.
                for kind in [WindowType::Type1, WindowType::Type2, WindowType::Type2] {
                    let key = node.alloc_window(pd, kind);
                    windows.push(key.map_err(|error| error.to_string())?);
                }
            }
            let mut fast = Vec::new();
            for _ in 0..peer.invalidations {
                let host = node.host_mut().add(vec![UNTOUCHED; 64]);
                let key = node.alloc_fast_memory(pd, host, 64);
                let key = key.map_err(|error| error.to_string())?;
                fast.push(RKey(key.0));
            }
            ends.push(End {
                device,
                qpn: Qpn::default(),
                alive: false,
                own,
                shared,
                gone: false,
                was_gone: false,
                path: None,
                plan: plan.requests.clone(),
                next: 0,
                outstanding: Outstanding::default(),
                pool: Pool::new(own, pool_at, areas, area),
                awaited: VecDeque::new(),
                fast,
                windows,
                group_path: None,
                joined: None,
                chain: 0,
                chain_at: peer.chain_at,
                hot: peer.hot,
                versions: 0,
                feeding: false,
            });
        }
        let ends: [End; 2] = ends.try_into().map_err(|_| "a pair has two ends".to_owned())?;
        Ok(Pair {
            service,
            mtu,
            family: usize::from(has(F::Six) && rng.percent(50)),
            ends,
            epoch: 0,
            conversation: 0,
            cause: None,
            reconnecting: false,
            abandoned: false,
            breaks: 0,
            timeout: ack_timeout(rng.between(SHORTEST_TIMEOUT, 16) as u8, world.stretch),
            retry_cnt,
            rnr_retry: if has(F::LateReceives) && rng.percent(25) { rng.below(7) as u8 } else { 7 },
            max_rd_atomic: rng.pick(&[1, 1, 2, 3, 4, 8, 16]),
            window: has(F::TinyWindow).then(|| rng.pick(&[1, 2, 3, 4, 6, 8, 16])),
            signal_all: !has(F::Unsignaled),
            depth: rng.pick(&[1, 4, 16, 64, 128]),
            group: (service == ServiceType::Ud && has(F::Multicast)).then(|| rng.next() as u32),
        })
    }
}

/// The code of the shortest ACK timeout that a queue pair has on links that a seed made, which is
/// some hundred times what a packet and its answer take there.
const SHORTEST_TIMEOUT: u64 = 12;

/// The last code of ACK timeouts, and of RNR waits: of five bits.
const LONGEST_CODE: u8 = 31;

/// Links may be so many times slower than those that a seed makes: the longest ACK timeout there is
/// holds just as well on them as the shortest that queue pairs have on the others.
pub(crate) const MOST_STRETCH: u32 = 1 << (LONGEST_CODE as u64 - SHORTEST_TIMEOUT);

/// The ACK timeout with this code, or as many times as long as a world is stretched.
fn ack_timeout(code: u8, stretch: u32) -> AckTimeout {
    AckTimeout::new(LONGEST_CODE.min(code + doublings(stretch))).unwrap_or_default()
}

/// The RNR wait with this code, or as many times as long as a world is stretched, but no longer
/// than there is one: from code 4 on every second doubles it.
pub(super) fn rnr_timer(code: u8, stretch: u32) -> RnrTimer {
    RnrTimer::from_bits(LONGEST_CODE.min(code + 2 * doublings(stretch)))
}

/// How often something is to be doubled to be so many times as much.
const fn doublings(times: u32) -> u8 {
    times.next_power_of_two().trailing_zeros() as u8
}

/// What one end will ask for, and how much memory that takes.
struct Plan {
    requests: Vec<Request>,
    own_len: usize,
    /// Of the peer's memory.
    remote_len: usize,
    chain_at: usize,
    hot: (usize, usize),
    /// The longest message that takes a receive, but for those that are too long on purpose.
    longest: usize,
    invalidations: usize,
}

impl Plan {
    fn new(recipe: &Recipe, service: ServiceType, mtu: Mtu, rng: &mut Rng) -> Self {
        let has = |feature| recipe.features.has(feature);
        let hot_len = rng.between(1, u64::from(mtu.bytes()) * 3).min(6000) as usize;
        let mut plan = Self {
            requests: Vec::new(),
            own_len: 0,
            remote_len: 8 + hot_len.next_multiple_of(8) + GAP,
            chain_at: 0,
            hot: (8, hot_len),
            longest: 0,
            invalidations: 0,
        };
        for number in 0..recipe.requests {
            let last = number + 1 == recipe.requests;
            plan.add(recipe, service, mtu, last, rng);
        }
        // A message that is too long is so for every buffer.
        let too_long = plan.longest.next_multiple_of(8) + 1;
        for request in &mut plan.requests {
            if request.mistake == Some(Mistake::TooLong) {
                request.len = too_long + rng.below(300) as usize;
                request.own = plan.own_len;
                request.cuts.clear();
                request.inline = false;
                plan.own_len += request.len.next_multiple_of(8) + GAP;
            }
        }
        if has(F::Srq) {
            plan.longest = plan.longest.max(1);
        }
        plan
    }

    fn add(&mut self, recipe: &Recipe, service: ServiceType, mtu: Mtu, last: bool, rng: &mut Rng) {
        let has = |feature| recipe.features.has(feature);
        let rc = service == ServiceType::Rc;
        let mut kinds = Vec::new();
        let mut may = |wanted, kind| {
            if wanted {
                kinds.push(kind);
            }
        };
        let connected = service != ServiceType::Ud;
        may(has(F::Send), Kind::Send);
        may(has(F::Send) && has(F::Immediate), Kind::SendImmediate);
        may(rc && has(F::Invalidate), Kind::SendInvalidate(self.invalidations));
        may(connected && has(F::Write), Kind::Write);
        may(connected && has(F::Write) && has(F::Immediate), Kind::WriteImmediate);
        may(rc && has(F::Overwrite), Kind::Overwrite);
        may(rc && has(F::Read), Kind::Read);
        may(rc && has(F::Atomic), Kind::CompareSwap);
        may(rc && has(F::Atomic), Kind::FetchAdd(rng.below(3) as usize));
        may(rc && has(F::AtomicWrite), Kind::AtomicWrite);
        may(rc && has(F::Flush), Kind::Flush);
        let mut kind = if kinds.is_empty() { Kind::Send } else { rng.pick(&kinds) };
        let mut len = length(recipe, service, mtu, rng);
        match kind {
            Kind::CompareSwap | Kind::FetchAdd(_) | Kind::AtomicWrite => len = 8,
            Kind::Overwrite => len = self.hot.1,
            // Who gets a message that may be lost must be able to tell which one it is.
            Kind::Send if !rc && len < 8 => kind = Kind::SendImmediate,
            Kind::SendInvalidate(_) => self.invalidations += 1,
            _ => {}
        }
        let mut mistake = None;
        if (rc || has(F::BadLocal)) && rng.percent(2) {
            mistake = match kind {
                Kind::Write | Kind::Read | Kind::WriteImmediate if len == 0 => None,
                Kind::Write | Kind::Read | Kind::AtomicWrite | Kind::WriteImmediate
                    if has(F::BadRemote) =>
                {
                    Some(rng.pick(&[Mistake::RemoteKey, Mistake::RemoteRange]))
                }
                Kind::Send | Kind::SendImmediate if has(F::TooLong) && !has(F::Srq) => {
                    Some(Mistake::TooLong)
                }
                Kind::Send | Kind::Write | Kind::Read if has(F::BadLocal) && len != 0 => {
                    Some(Mistake::LocalKey)
                }
                _ => None,
            };
            mistake = mistake.filter(|mistake| rc || *mistake == Mistake::LocalKey);
        }
        if kind.takes_receive() && mistake != Some(Mistake::TooLong) {
            self.longest = self.longest.max(len);
        }
        let cuts = if has(F::Segments) && !matches!(kind, Kind::Flush) {
            let mut cuts: Vec<usize> =
                (0..rng.below(7)).map(|_| rng.below(len as u64 + 1) as usize).collect();
            cuts.sort_unstable();
            cuts
        } else {
            Vec::new()
        };
        let inline = has(F::Inline)
            && kind.has_source()
            && len <= 256
            && mistake.is_none()
            && rng.percent(50);
        let remote = match kind {
            Kind::CompareSwap => self.chain_at,
            Kind::Overwrite => self.hot.0,
            _ => self.remote_len,
        };
        if remote == self.remote_len {
            self.remote_len += len.next_multiple_of(8) + GAP;
        }
        self.requests.push(Request {
            kind,
            len,
            key: rng.next(),
            own: self.own_len,
            remote,
            inline,
            signaled: last || !has(F::Unsignaled) || rng.percent(50),
            solicited: rng.percent(30),
            through_window: has(F::Windows)
                && matches!(kind, Kind::Write | Kind::WriteImmediate | Kind::Read)
                && !matches!(mistake, Some(Mistake::RemoteKey | Mistake::RemoteRange))
                && rng.percent(60),
            fence: rc && has(F::Fence) && rng.percent(30),
            cuts,
            mistake,
            state: State::Planned,
            invalidates: None,
            expected: None,
        });
        self.own_len += len.next_multiple_of(8) + GAP;
    }
}

/// Bytes between the places of two requests, where nobody may write.
const GAP: usize = 8;

fn length(recipe: &Recipe, service: ServiceType, mtu: Mtu, rng: &mut Rng) -> usize {
    let has = |feature| recipe.features.has(feature);
    let least = u64::from(!has(F::Empty));
    let mtu = u64::from(mtu.bytes());
    let most = most_len(recipe) as u64;
    let near = |rng: &mut Rng, of: u64| (of + rng.below(5)).saturating_sub(2);
    let mtu = if service == ServiceType::Ud { mtu.min(1024) } else { mtu };
    let len = match rng.below(10) {
        0 => 0,
        1 | 2 => rng.between(1, 64),
        3 | 4 => near(rng, mtu),
        5 => near(rng, mtu * 2),
        6 if has(F::Large) => rng.between(0, mtu * 24),
        _ => rng.between(1, mtu * 3),
    };
    // A datagram fits into one packet, of the path MTU that a queue pair has unless told.
    let most = if service == ServiceType::Ud { mtu } else { most };
    len.clamp(least, most) as usize
}
