//! The applications of a world: what they ask their devices for, and whether that came of it.
//!
//! Every request has bytes of its own at both ends, so that what memory must hold follows from how
//! requests ended: after a success exactly what was asked for, after a failure a beginning of it,
//! and everywhere else nothing. A failure must have a cause: a mistake that was made on purpose, a
//! peer that is gone, packets that were lost.

mod connection;
mod counts;
mod disturb;
mod host;
mod hostile;
mod plan;
mod receives;
mod requests;

use std::collections::BTreeMap;
use std::time::Duration;

use roxe_device::Event;
use roxe_transport::adapter::QpEvent;
use roxe_transport::qp_state::ServiceType;
use roxe_transport::work::{Completion, PathId};
use roxe_wire::{AckTimeout, Gid, Mtu, QKey, Qpn, RKey};

use crate::checker::Outstanding;
use crate::phrase;
use crate::rng::Rng;
use crate::swarm::{Feature as F, Recipe};
use crate::world;
pub(crate) use connection::is_in_error;
pub use disturb::Disturbance;
use host::{Host, Region, everything, local, register};
pub(crate) use plan::MOST_STRETCH;
use plan::{Request, State};
use receives::Pool;

type World = world::World<Action>;

/// Something that an application, or fate, does at a certain time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Posts send requests.
    Post {
        /// Which pair.
        pair: usize,
        /// Which end of it.
        side: usize,
        /// How often the pair was connected.
        epoch: u32,
    },
    /// Posts receives.
    Feed {
        /// Which pair.
        pair: usize,
        /// Which end of it.
        side: usize,
        /// How often the pair was connected.
        epoch: u32,
    },
    /// Posts receives to a device's shared queue.
    FeedShared {
        /// Which device.
        device: usize,
    },
    /// Connects a pair again.
    Reconnect {
        /// Which pair.
        pair: usize,
        /// How often it was connected.
        epoch: u32,
    },
    /// A send queue that stands still for an error goes on.
    Resume {
        /// Which pair.
        pair: usize,
        /// Which end of it.
        side: usize,
        /// How often the pair was connected.
        epoch: u32,
    },
    /// Disturbs a pair.
    Disturb {
        /// Which pair.
        pair: usize,
        /// How.
        how: Disturbance,
    },
    /// A device begins anew.
    Restart {
        /// Which device.
        device: usize,
    },
    /// A device's links stand still.
    Pause {
        /// Which device.
        device: usize,
    },
    /// Frames from nobody come.
    Hostile {
        /// How many more times.
        left: u32,
    },
    /// Frames come in the name of peers.
    Forge {
        /// How many more times.
        left: u32,
    },
    /// Completion queues are looked at, also where they are not always.
    Poll,
}

/// All applications.
#[derive(Debug)]
pub struct Workload {
    recipe: Recipe,
    rng: Rng,
    hosts: Vec<Host>,
    pairs: Vec<Pair>,
    by_qpn: BTreeMap<(usize, Qpn), (usize, usize)>,
    /// Requests posted.
    pub posted: u64,
    /// Queue pairs that were in state Error when they were reset or destroyed.
    pub ended: u64,
    /// Completions seen.
    completed: u64,
    /// How often in a row nobody found any.
    idle: u32,
}

/// Two queue pairs that talk to each other.
#[derive(Debug)]
struct Pair {
    service: ServiceType,
    mtu: Mtu,
    family: usize,
    ends: [End; 2],
    epoch: u32,
    conversation: usize,
    /// Why requests of this epoch may fail.
    cause: Option<String>,
    /// Whether an action will connect it again.
    reconnecting: bool,
    /// Nothing is asked of it any more: its completions were lost, or it was connected too often.
    abandoned: bool,
    /// How often requests of it may have ended without anybody knowing how.
    breaks: u32,
    timeout: AckTimeout,
    retry_cnt: u8,
    rnr_retry: u8,
    max_rd_atomic: u8,
    window: Option<u32>,
    signal_all: bool,
    depth: u32,
    /// Datagrams: the number of the group that both ends belong to.
    group: Option<u32>,
}

/// One end of a pair.
#[derive(Debug)]
struct End {
    device: usize,
    qpn: Qpn,
    alive: bool,
    /// Its own buffers.
    own: Region,
    /// What the peer may reach.
    shared: Region,
    /// Whether the peer's key is no longer good.
    gone: bool,
    /// Whether it was not, at some time of this epoch.
    was_gone: bool,
    path: Option<PathId>,
    plan: Vec<Request>,
    next: usize,
    outstanding: Outstanding,
    pool: Pool,
    /// Messages that the peer posted and that will take a receive here, in order.
    awaited: std::collections::VecDeque<usize>,
    /// Keys that the peer's messages invalidate.
    fast: Vec<RKey>,
    /// Windows over what the peer may reach: the first is used, the others are invalidated.
    windows: Vec<RKey>,
    /// Where datagrams to the pair's group go.
    group_path: Option<PathId>,
    /// The group that this end's queue pair is a member of.
    joined: Option<Gid>,
    /// What the next compare and swap will find.
    chain: u64,
    /// Where the peer's compares and swaps are.
    chain_at: usize,
    /// Where the peer's overwriting WRITEs are, and how long.
    hot: (usize, usize),
    /// How many of those it has posted.
    versions: u8,
    feeding: bool,
}

/// The key of all datagram queue pairs.
const Q_KEY: QKey = QKey(0x1234);

impl Workload {
    /// The applications of a world.
    pub fn new(recipe: &Recipe) -> Self {
        Self {
            recipe: *recipe,
            rng: Rng::new(recipe.seed).fork(3),
            hosts: Vec::new(),
            pairs: Vec::new(),
            by_qpn: BTreeMap::new(),
            posted: 0,
            ended: 0,
            completed: 0,
            idle: 0,
        }
    }

    fn has(&self, feature: F) -> bool {
        self.recipe.features.has(feature)
    }

    /// Makes everything and begins.
    ///
    /// # Errors
    /// What does not hold.
    pub fn begin(&mut self, world: &mut World) -> Result<(), String> {
        for index in 0..world.nodes.len() {
            let host = self.make_host(world, index, None, 0)?;
            self.hosts.push(host);
        }
        for index in 0..self.recipe.pairs {
            let mut rng = Rng::new(self.recipe.seed).fork(10_000 + index);
            let pair = self.make_pair(world, &mut rng)?;
            self.pairs.push(pair);
            self.connect(world, index as usize)?;
        }
        for device in 0..world.nodes.len() {
            if self.hosts[device].srq.is_some() {
                world.schedule(Duration::ZERO, Action::FeedShared { device });
            }
        }
        if self.has(F::SmallQueue) {
            world.schedule(Duration::from_micros(50), Action::Poll);
        }
        self.plan_disturbances(world);
        Ok(())
    }

    /// Something happened at a device.
    ///
    /// # Errors
    /// What does not hold.
    pub fn look_at(&mut self, world: &mut World, device: usize) -> Result<(), String> {
        while let Some(event) = world.nodes[device].device.poll_event() {
            self.event(world, device, event)?;
        }
        if !self.hosts[device].small_cq {
            self.poll(world, device)?;
        }
        Ok(())
    }

    fn event(&mut self, world: &mut World, device: usize, event: Event) -> Result<(), String> {
        match event {
            Event::QueuePair(
                qpn,
                what @ (QpEvent::AccessError | QpEvent::RequestError | QpEvent::Fatal),
            ) => {
                let Some(&(pair, side)) = self.by_qpn.get(&(device, qpn)) else { return Ok(()) };
                let at_fault = &self.pairs[pair].ends[1 - side];
                let mistaken = at_fault.plan[..at_fault.next]
                    .iter()
                    .any(|request| request.mistake.is_some() && request.state != State::Planned);
                if !mistaken && !self.pairs[pair].ends[side].was_gone && !self.pairs[pair].abandoned
                {
                    let place = self.place(world, pair, side);
                    return Err(format!("{} without a reason at {place}", event_name(what)));
                }
                self.blame(world, pair, format!("{} at end {side}", event_name(what)));
            }
            Event::CompletionQueueError(_) => {
                self.hosts[device].overrun = true;
                if !self.hosts[device].small_cq {
                    return Err("a completion queue with room overflowed".to_owned());
                }
                for pair in 0..self.pairs.len() {
                    if self.pairs[pair].ends.iter().any(|end| end.device == device) {
                        self.pairs[pair].abandoned = true;
                        self.blame(world, pair, "completions were lost".to_owned());
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn poll(&mut self, world: &mut World, device: usize) -> Result<(), String> {
        let mut room = [Completion::BLANK; 32];
        loop {
            let count =
                world.nodes[device].device.poll_completions(self.hosts[device].cq, &mut room);
            if count == 0 {
                return Ok(());
            }
            self.completed += count as u64;
            for completion in &room[..count] {
                let Some(&(pair, side)) = self.by_qpn.get(&(device, completion.qpn)) else {
                    let (qpn, what) = (completion.qpn, phrase::completion(completion));
                    return Err(format!("a completion of {qpn}, which is nobody: {what}"));
                };
                let done = if completion.wr_id & RECEIVE != 0 {
                    self.received(world, pair, side, completion)
                } else {
                    self.sent(world, pair, side, completion)
                };
                done.map_err(|what| {
                    let place = self.place(world, pair, side);
                    format!("{place}, completion {}: {what}", phrase::completion(completion))
                })?;
            }
        }
    }

    /// Does what was scheduled.
    ///
    /// # Errors
    /// What does not hold.
    pub fn act(&mut self, world: &mut World, action: Action) -> Result<(), String> {
        match action {
            Action::Post { pair, side, epoch } => {
                if self.pairs[pair].epoch == epoch {
                    self.post_some(world, pair, side)?;
                }
            }
            Action::Feed { pair, side, epoch } => {
                if self.pairs[pair].epoch == epoch {
                    self.feed(world, pair, side)?;
                }
            }
            Action::FeedShared { device } => self.feed_shared(world, device)?,
            Action::Reconnect { pair, epoch } => {
                if self.pairs[pair].epoch == epoch {
                    self.reconnect(world, pair)?;
                }
            }
            Action::Resume { pair, side, epoch } => {
                if self.pairs[pair].epoch == epoch {
                    self.resume(world, pair, side)?;
                }
            }
            Action::Disturb { pair, how } => self.disturb(world, pair, how)?,
            Action::Restart { device } => self.restart(world, device)?,
            Action::Pause { device } => {
                let length = Duration::from_nanos(self.rng.between(1_000, 400_000));
                world.pause(device, length);
            }
            Action::Hostile { left } => self.hostile(world, left),
            Action::Forge { left } => self.forge(world, left),
            Action::Poll => {
                let before = self.completed;
                self.look_everywhere(world)?;
                self.idle = if self.completed == before { (self.idle + 1).min(8) } else { 0 };
                if world.any() {
                    let wait = self.rng.between(1_000, 30_000) << self.idle;
                    let wait = Duration::from_nanos(wait);
                    world.schedule(wait, Action::Poll);
                }
            }
        }
        Ok(())
    }

    /// Looks for completions at all devices, also where that is seldom done.
    ///
    /// # Errors
    /// What does not hold.
    pub fn look_everywhere(&mut self, world: &mut World) -> Result<(), String> {
        for device in 0..world.nodes.len() {
            self.look_at(world, device)?;
            self.poll(world, device)?;
        }
        Ok(())
    }

    /// Nothing happens any more: everything must have come to its end.
    ///
    /// # Errors
    /// What does not hold.
    pub fn finish(&mut self, world: &mut World) -> Result<(), String> {
        for index in 0..self.pairs.len() {
            if !self.pairs[index].abandoned {
                self.check_progress(world, index)?;
            }
            self.give_up(index);
            self.check_memory(world, index)
                .map_err(|what| format!("memory of pair {index}: {what}"))?;
        }
        self.check_repetitions(world)?;
        for (index, host) in self.hosts.iter().enumerate() {
            let node = &world.nodes[index];
            let common = node.device.host().bytes(host.common.host).unwrap_or_default();
            for (sum, value) in host.sums.iter().zip(common.chunks(8)) {
                let value = u64::from_ne_bytes(value.try_into().unwrap_or_default());
                sum.check(value).map_err(|what| format!("device {index}: {what}"))?;
            }
            if let Some((_, pool)) = &host.srq {
                receives::untouched(pool, node.device.host())?;
            }
            self.check_counters(node)?;
            self.check_clean(node)?;
        }
        Ok(())
    }

    fn check_progress(&self, world: &World, index: usize) -> Result<(), String> {
        let pair = &self.pairs[index];
        for (side, end) in pair.ends.iter().enumerate() {
            if !end.is_done() {
                let info = world.nodes[end.device].device.query_queue_pair(end.qpn);
                let state = info.map_or("gone", |info| info.state.name());
                let first = end.outstanding.front();
                let first = first.map(|request| format!("; first {}", end.plan[request]));
                return Err(format!(
                    "{} stands still in state {state}: {} of {} posted, {} outstanding{}",
                    self.place(world, index, side),
                    end.next,
                    end.plan.len(),
                    end.outstanding.len(),
                    first.unwrap_or_default(),
                ));
            }
            if pair.service == ServiceType::Rc && !end.awaited.is_empty() {
                let place = self.place(world, index, side);
                return Err(format!("{place} still awaits {} messages", end.awaited.len()));
            }
        }
        Ok(())
    }

    /// Which end of which pair, and where that is.
    fn place(&self, world: &World, pair: usize, side: usize) -> String {
        let End { device, qpn, .. } = self.pairs[pair].ends[side];
        let address = world.nodes[device].addresses[0];
        format!("pair {pair} end {side} (device {device} {address}, queue pair {qpn})")
    }

    /// A few words on where everything stands.
    pub fn state(&self, world: &World) -> String {
        let mut text = format!("{} at {}", world.count, world.now);
        for (index, pair) in self.pairs.iter().enumerate() {
            for (side, end) in pair.ends.iter().enumerate() {
                if !end.is_done() {
                    let receives = end.pool.counts();
                    text += &format!(
                        "; pair {index} end {side}: {}/{} posted, {} outstanding, alive {}, \
                         abandoned {}, feeding {}, receives {receives:?}",
                        end.next,
                        end.plan.len(),
                        end.outstanding.len(),
                        end.alive,
                        pair.abandoned,
                        end.feeding,
                    );
                }
            }
        }
        text
    }
}

/// What an event of a queue pair is called.
const fn event_name(event: QpEvent) -> &'static str {
    match event {
        QpEvent::Fatal => "a fatal error",
        QpEvent::RequestError => "a request error",
        QpEvent::AccessError => "an access error",
        QpEvent::CommunicationEstablished => "communication established",
        QpEvent::SqDrained => "a drained send queue",
        QpEvent::LastWqeReached => "the last receive",
    }
}

impl End {
    /// The key that the peer's message with this number invalidates: of a region or of a window.
    fn invalid_key(&self, number: usize) -> Option<RKey> {
        let window = match number {
            1 => self.windows.get(1),
            3 => self.windows.get(2),
            _ => None,
        };
        window.or_else(|| self.fast.get(number)).copied()
    }

    fn is_done(&self) -> bool {
        self.next == self.plan.len() && self.outstanding.is_empty()
    }
}

/// Marks the names of receives.
const RECEIVE: u64 = 1 << 63;
