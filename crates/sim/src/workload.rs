//! The applications of a world: what they ask their devices for, and whether that came of it.
//!
//! Every request has bytes of its own at both ends, so that what memory must hold follows from how
//! requests ended: after a success exactly what was asked for, after a failure a beginning of it,
//! and everywhere else nothing. A failure must have a cause: a mistake that was made on purpose, a
//! peer that is gone, packets that were lost.

mod counts;
mod hostile;
mod plan;
mod receives;
mod requests;

use std::collections::BTreeMap;
use std::time::Duration;

use roxe_device::address_handle::AddressVector;
use roxe_device::memory::Registration;
use roxe_device::protection_domain::Pd;
use roxe_device::{
    CqId, Device, Event, HostRegion, QueuePairInit, ReceiveCapacity, ReceiveQueueId, VecMemory,
};
use roxe_transport::SendCapacity;
use roxe_transport::adapter::QpEvent;
use roxe_transport::qp_state::{Attribute as A, AttributeMask, QpState, ServiceType};
use roxe_transport::work::{AccessFlags, Attributes, Completion, PathId};
use roxe_wire::{AckTimeout, Gid, LKey, Mtu, PKey, Psn, QKey, Qpn, RKey, StaticRate};

use crate::checker::{Outstanding, Sum, UNTOUCHED};
use crate::phrase;
use crate::rng::Rng;
use crate::swarm::{Feature as F, Options};
use crate::world;
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

/// What happens to a pair in the middle of its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disturbance {
    /// One end is moved to Error.
    ToError,
    /// One end is destroyed.
    Destroy,
    /// Both ends are reset at once.
    Reset,
    /// Memory that the peer uses is deregistered.
    Deregister,
}

/// All applications.
#[derive(Debug)]
pub struct Workload {
    options: Options,
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

/// What the applications on one device share.
#[derive(Debug)]
struct Host {
    pd: Pd,
    cq: CqId,
    small_cq: bool,
    overrun: bool,
    srq: Option<(ReceiveQueueId, Pool)>,
    /// Numbers that all peers add to.
    common: Region,
    sums: Vec<Sum>,
    additions: u64,
    restarts: u64,
}

/// Registered memory.
#[derive(Clone, Copy, Debug)]
struct Region {
    host: HostRegion,
    key: LKey,
    va: u64,
    len: usize,
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

const Q_KEY: QKey = QKey(0x1234);

/// After so many connections a pair is left alone.
const MOST_EPOCHS: u32 = 6;

impl Workload {
    /// The applications of a world.
    pub fn new(options: &Options) -> Self {
        Self {
            options: *options,
            rng: Rng::new(options.seed).fork(3),
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
        self.options.features.has(feature)
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
        for index in 0..self.options.pairs {
            let mut rng = Rng::new(self.options.seed).fork(10_000 + index);
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

    fn plan_disturbances(&mut self, world: &mut World) {
        let mut rng = self.rng.fork(4);
        let times = |rng: &mut Rng, wanted: bool| if wanted { rng.between(1, 3) } else { 0 };
        let soon = |rng: &mut Rng| Duration::from_nanos(rng.between(1_000, 600_000));
        for (feature, how) in [
            (F::ToError, Disturbance::ToError),
            (F::Reset, Disturbance::Reset),
            (F::Reset, Disturbance::Destroy),
            (F::Deregister, Disturbance::Deregister),
        ] {
            for _ in 0..times(&mut rng, self.has(feature)) {
                let pair = rng.below(self.pairs.len() as u64) as usize;
                world.schedule(soon(&mut rng), Action::Disturb { pair, how });
            }
        }
        for _ in 0..times(&mut rng, self.has(F::Restart)) {
            let device = rng.below(self.hosts.len() as u64) as usize;
            world.schedule(soon(&mut rng), Action::Restart { device });
        }
        for _ in 0..times(&mut rng, self.has(F::Pause)) {
            let device = rng.below(self.hosts.len() as u64) as usize;
            world.schedule(soon(&mut rng), Action::Pause { device });
        }
        if self.has(F::Hostile) {
            world.schedule(soon(&mut rng), Action::Hostile { left: 40 });
        }
        if self.has(F::Forged) {
            world.schedule(soon(&mut rng), Action::Forge { left: 60 });
        }
    }

    fn make_host(
        &self,
        world: &mut World,
        index: usize,
        common: Option<Vec<u8>>,
        restarts: u64,
    ) -> Result<Host, String> {
        let mut rng = self.rng.fork(500 + index as u64);
        let device = &mut world.nodes[index].device;
        let pd = device.alloc_pd().map_err(|error| error.to_string())?;
        let small_cq = self.has(F::SmallQueue) && rng.percent(50);
        let depth = if small_cq { rng.between(4, 64) as u32 } else { 1 << 16 };
        let cq = device.create_completion_queue(depth).map_err(|error| error.to_string())?;
        let adds = [1, u64::MAX, 0x1_0000_0001];
        let sums: Vec<Sum> = adds.map(|add| Sum::new(rng.next(), add)).into();
        let bytes = common.unwrap_or_else(|| {
            let starts = sums.iter().zip(adds).map(|(sum, _)| sum.first().to_ne_bytes());
            starts.flatten().collect()
        });
        let common = register(device, pd, bytes, 0x1000 * rng.between(1, 1000), everything())?;
        let srq = if self.has(F::Srq) {
            let areas = 24;
            let len = 40 + plan::most_len(&self.options);
            let va = 1 << 40;
            let region = register(device, pd, vec![UNTOUCHED; areas * len], va, everything())?;
            let queue = device
                .create_shared_receive_queue(pd, 64, 8, 0)
                .map_err(|error| error.to_string())?;
            Some((queue, Pool::new(region, 0, areas, len)))
        } else {
            None
        };
        Ok(Host { pd, cq, small_cq, overrun: false, srq, common, sums, additions: 0, restarts })
    }

    /// Connects the two ends of a pair, for the first time or again.
    fn connect(&mut self, world: &mut World, index: usize) -> Result<(), String> {
        let mut rng =
            self.rng.fork(20_000 + index as u64 * 100 + u64::from(self.pairs[index].epoch));
        let pair = &mut self.pairs[index];
        for end in &mut pair.ends {
            let host = &self.hosts[end.device];
            let device = &mut world.nodes[end.device].device;
            end.was_gone = false;
            if end.gone {
                let bytes = device.host().bytes(end.shared.host).unwrap_or_default().to_vec();
                end.shared = register(device, host.pd, bytes, end.shared.va, everything())?;
                end.gone = false;
            }
            if !end.alive {
                let init = QueuePairInit {
                    service: pair.service,
                    pd: host.pd,
                    send_cq: host.cq,
                    receive_cq: host.cq,
                    srq: host.srq.as_ref().map(|(queue, _)| *queue),
                    send: SendCapacity { depth: pair.depth, max_sge: 8, max_inline: 256 },
                    receive: ReceiveCapacity { depth: 64, max_sge: 8 },
                    signal_all: pair.signal_all,
                };
                end.qpn = device.create_queue_pair(&init).map_err(|error| error.to_string())?;
                end.alive = true;
            }
        }
        let first = |rng: &mut Rng, wrap: bool| {
            let value = if wrap { 0u64.wrapping_sub(rng.below(60)) } else { rng.next() };
            let half = if wrap && rng.percent(30) { 1 << 23 } else { 0 };
            Psn::new((value.wrapping_add(half) & 0xff_ffff) as u32)
        };
        // Another connection needs other PSNs: late frames of the last one must not fit.
        let wrap = self.options.features.has(F::Wrap) && pair.epoch == 0;
        let psns = [first(&mut rng, wrap), first(&mut rng, wrap)];
        let longest_rnr = if self.options.features.has(F::LateReceives) { 18 } else { 10 };
        for side in 0..2 {
            let other = &pair.ends[1 - side];
            let peer = (other.device, other.qpn);
            let end = &pair.ends[side];
            let values = Attributes {
                qpn: end.qpn,
                cur_state: QpState::default(),
                dest_qp: peer.1,
                path_mtu: pair.mtu,
                access: everything(),
                q_key: Q_KEY,
                p_key: PKey::DEFAULT,
                sq_psn: psns[side],
                rq_psn: psns[1 - side],
                max_rd_atomic: pair.max_rd_atomic,
                max_dest_rd_atomic: pair.max_rd_atomic,
                timeout: pair.timeout,
                retry_cnt: pair.retry_cnt,
                rnr_retry: pair.rnr_retry,
                min_rnr_timer: plan::rnr_timer(rng.between(1, longest_rnr) as u8, world.stretch),
            };
            let vector = AddressVector {
                source_gid: pair.family as u32,
                destination: Gid::from_ip(world.nodes[peer.0].addresses[pair.family]),
                traffic_class: 2,
                hop_limit: 64,
                flow_label: rng.below(1 << 20) as u32,
                service_level: 0,
                static_rate: StaticRate::MAX,
            };
            let device = &mut world.nodes[end.device].device;
            for (state, given) in steps(pair.service) {
                let given = AttributeMask::of(given);
                device
                    .modify_queue_pair(end.qpn, *state, given, &values, Some(&vector))
                    .map_err(|error| format!("to {state}: {error}"))?;
            }
            if let Some(window) = pair.window {
                device.set_window(end.qpn, window).map_err(|error| error.to_string())?;
            }
            let pd = self.hosts[end.device].pd;
            let end = &mut pair.ends[side];
            if pair.service == ServiceType::Ud && end.path.is_none() {
                let path = device.create_address_handle(pd, &vector);
                end.path = Some(path.map_err(|error| error.to_string())?);
            }
            if let Some(number) = pair.group {
                let group = group_gid(number, pair.family);
                if end.group_path.is_none() {
                    let vector = AddressVector { destination: group, ..vector };
                    let path = device.create_address_handle(pd, &vector);
                    end.group_path = Some(path.map_err(|error| error.to_string())?);
                }
                if end.joined.is_none() {
                    device
                        .attach_multicast(group, end.qpn)
                        .map_err(|error| format!("attach: {error}"))?;
                    end.joined = Some(group);
                }
            }
            self.by_qpn.insert((end.device, end.qpn), (index, side));
        }
        let ends = [0, 1].map(|side| (pair.ends[side].device, pair.ends[side].qpn));
        pair.conversation = world.converse(ends, pair.epoch != 0);
        pair.cause = None;
        pair.reconnecting = false;
        let epoch = pair.epoch;
        for side in 0..2 {
            let shared = self.hosts[self.pairs[index].ends[side].device].srq.is_some();
            if !shared {
                self.feed(world, index, side)?;
            }
            self.post_registrations(world, index, side)?;
            if epoch == 0 {
                self.bind_windows(world, index, side)?;
            }
            let after = Duration::from_nanos(rng.below(20_000));
            world.schedule(after, Action::Post { pair: index, side, epoch });
        }
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

    /// A pair breaks, for this reason, and will be connected again.
    fn blame(&mut self, world: &mut World, index: usize, why: String) {
        let wait = Duration::from_nanos(self.rng.between(10_000, 3_000_000));
        let pair = &mut self.pairs[index];
        pair.cause.get_or_insert(why);
        if !pair.reconnecting {
            pair.reconnecting = true;
            world.schedule(wait, Action::Reconnect { pair: index, epoch: pair.epoch });
        }
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

    /// A send queue in state SQE is made ready again.
    fn resume(&mut self, world: &mut World, index: usize, side: usize) -> Result<(), String> {
        let end = &self.pairs[index].ends[side];
        if !end.alive {
            return Ok(());
        }
        let device = &mut world.nodes[end.device].device;
        let info = device.query_queue_pair(end.qpn).map_err(|error| error.to_string())?;
        if info.state == QpState::SqError {
            device
                .modify_queue_pair(
                    end.qpn,
                    QpState::Rts,
                    AttributeMask::NONE,
                    &info.attributes,
                    None,
                )
                .map_err(|error| format!("from SQE: {error}"))?;
        }
        Ok(())
    }

    fn disturb(&mut self, world: &mut World, index: usize, how: Disturbance) -> Result<(), String> {
        let side = self.rng.below(2) as usize;
        let pair = &mut self.pairs[index];
        let end = &mut pair.ends[side];
        if !end.alive || pair.abandoned {
            return Ok(());
        }
        let device = &mut world.nodes[end.device].device;
        match how {
            Disturbance::ToError => {
                let blank = attributes_of(device, end.qpn)?;
                device
                    .modify_queue_pair(end.qpn, QpState::Error, AttributeMask::NONE, &blank, None)
                    .map_err(|error| error.to_string())?;
                let at = end.device;
                self.blame(world, index, format!("end {side} was moved to Error"));
                self.look_at(world, at)?;
                world.kick(at);
            }
            Disturbance::Destroy => {
                let at = end.device;
                self.look_at(world, at)?;
                self.blame(world, index, format!("end {side} was destroyed"));
                self.destroy(world, index, side)?;
            }
            Disturbance::Reset => self.reconnect(world, index)?,
            Disturbance::Deregister => {
                if !end.gone && pair.service == ServiceType::Rc {
                    for window in end.windows.drain(..) {
                        device.dealloc_window(window).map_err(|error| error.to_string())?;
                    }
                    let bytes = device.host().bytes(end.shared.host).map(<[u8]>::to_vec);
                    device
                        .deregister_memory(end.shared.key)
                        .map_err(|error| format!("deregister: {error}"))?;
                    // The application still has the memory; nobody can reach it any more.
                    let kept = bytes.unwrap_or_default();
                    end.shared.host = device.host_mut().add(kept);
                    end.gone = true;
                    end.was_gone = true;
                    self.blame(world, index, format!("memory of end {side} was deregistered"));
                }
            }
        }
        Ok(())
    }

    /// An end is destroyed: what it was asked for may have happened, or not.
    fn destroy(&mut self, world: &mut World, index: usize, side: usize) -> Result<(), String> {
        let pair = &mut self.pairs[index];
        let end = &mut pair.ends[side];
        if !end.alive {
            return Ok(());
        }
        let device = &mut world.nodes[end.device].device;
        self.ended += u64::from(has_ended(device, end.qpn));
        if let Some(group) = end.joined.take() {
            if device.destroy_queue_pair(end.qpn).is_ok() {
                return Err("a member of a group was destroyed".to_owned());
            }
            device.detach_multicast(group, end.qpn).map_err(|error| error.to_string())?;
        }
        device.destroy_queue_pair(end.qpn).map_err(|error| error.to_string())?;
        end.alive = false;
        self.by_qpn.remove(&(end.device, end.qpn));
        self.forget(world, index, side)
    }

    /// Nothing will be heard of what is outstanding at an end.
    fn forget(&mut self, world: &mut World, index: usize, side: usize) -> Result<(), String> {
        let pair = &mut self.pairs[index];
        let end = &mut pair.ends[side];
        let lost: Vec<usize> = end.outstanding.take().collect();
        pair.breaks += u32::from(!lost.is_empty());
        for request in lost {
            self.unknown(index, side, request);
        }
        let end = &mut self.pairs[index].ends[side];
        end.awaited.clear();
        let device = end.device;
        match &mut self.hosts[device].srq {
            // A receive in the hands of the queue pair is gone with it.
            Some((_, pool)) => pool.spare += 1,
            None => end.pool.take_back(world.nodes[device].device.host_mut()),
        }
        Ok(())
    }

    /// Both ends are reset, or made anew, and connected again.
    fn reconnect(&mut self, world: &mut World, index: usize) -> Result<(), String> {
        for side in 0..2 {
            let device = self.pairs[index].ends[side].device;
            self.look_at(world, device)?;
            self.poll(world, device)?;
        }
        let pair = &mut self.pairs[index];
        pair.epoch += 1;
        if pair.abandoned || pair.epoch >= MOST_EPOCHS {
            pair.abandoned = true;
            pair.cause.get_or_insert_with(|| "it is over".to_owned());
        }
        for side in 0..2 {
            let anew = self.rng.percent(30);
            let pair = &mut self.pairs[index];
            let end = &mut pair.ends[side];
            end.awaited.clear();
            let device = &mut world.nodes[end.device].device;
            // A window belongs to the connection that it was bound for.
            for window in end.windows.drain(..) {
                device.dealloc_window(window).map_err(|error| error.to_string())?;
            }
            if !end.alive {
                continue;
            }
            let info = device.query_queue_pair(end.qpn).map_err(|error| error.to_string())?;
            let lost = self.hosts[end.device].overrun;
            if info.state == QpState::Error && end.outstanding.awaits_completion() && !lost {
                let front = end.outstanding.front().unwrap_or_default();
                let place = self.place(world, index, side);
                return Err(format!("{place} is in Error, and request {front} was not flushed"));
            }
            if anew || pair.abandoned {
                self.destroy(world, index, side)?;
            } else {
                self.ended += u64::from(info.state == QpState::Error);
                device
                    .modify_queue_pair(
                        end.qpn,
                        QpState::Reset,
                        AttributeMask::NONE,
                        &info.attributes,
                        None,
                    )
                    .map_err(|error| error.to_string())?;
                self.forget(world, index, side)?;
            }
        }
        self.resume_chains(world, index)?;
        if self.pairs[index].abandoned { Ok(()) } else { self.connect(world, index) }
    }

    /// A device begins anew. Its applications do too, with the memory they had.
    fn restart(&mut self, world: &mut World, index: usize) -> Result<(), String> {
        self.look_at(world, index)?;
        self.poll(world, index)?;
        let touched: Vec<(usize, usize)> = self
            .pairs
            .iter()
            .enumerate()
            .flat_map(|(pair, known)| [0, 1].map(|side| (pair, side, known.ends[side].device)))
            .filter(|(_, _, device)| *device == index)
            .map(|(pair, side, _)| (pair, side))
            .collect();
        for &(pair, side) in &touched {
            if self.pairs[pair].ends[side].alive {
                self.blame(world, pair, format!("device {index} began anew"));
                self.destroy(world, pair, side)?;
            }
        }
        let restarts = self.hosts[index].restarts + 1;
        // Other numbers than before: datagrams to the old ones must not reach anybody.
        let seed = self.options.seed.wrapping_add(restarts << 32);
        self.check_counters(&world.nodes[index])?;
        let memory = world.restart(index, seed);
        let bytes = |region: Region| memory.bytes(region.host).unwrap_or_default().to_vec();
        let old = &self.hosts[index];
        let mut host = self.make_host(world, index, Some(bytes(old.common)), restarts)?;
        let old = &mut self.hosts[index];
        host.sums = std::mem::take(&mut old.sums);
        host.additions = old.additions;
        if let Some((_, pool)) = &old.srq {
            receives::untouched(pool, &memory)?;
        }
        let pd = host.pd;
        self.hosts[index] = host;
        for (pair, side) in touched {
            let device = &mut world.nodes[index].device;
            let end = &mut self.pairs[pair].ends[side];
            let (own, shared) = (bytes(end.own), bytes(end.shared));
            end.own = register(device, pd, own, end.own.va, local())?;
            end.shared = register(device, pd, shared, end.shared.va, everything())?;
            end.pool.region = end.own;
            end.gone = false;
            (end.path, end.group_path, end.joined) = (None, None, None);
            end.fast.clear();
            end.windows.clear();
        }
        if self.hosts[index].srq.is_some() {
            world.schedule(Duration::ZERO, Action::FeedShared { device: index });
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

fn register(
    device: &mut Device<VecMemory>,
    pd: Pd,
    bytes: Vec<u8>,
    va: u64,
    access: AccessFlags,
) -> Result<Region, String> {
    let len = bytes.len();
    let host = device.host_mut().add(bytes);
    let what = Registration { pd, host, va, len: len as u64, access };
    let key = device.register_memory(&what).map_err(|error| error.to_string())?;
    Ok(Region { host, key, va, len })
}

const fn local() -> AccessFlags {
    AccessFlags::LOCAL_WRITE
}

fn everything() -> AccessFlags {
    AccessFlags::LOCAL_WRITE
        | AccessFlags::MW_BIND
        | AccessFlags::REMOTE_WRITE
        | AccessFlags::REMOTE_READ
        | AccessFlags::REMOTE_ATOMIC
        | AccessFlags::FLUSH_GLOBAL
        | AccessFlags::FLUSH_PERSISTENT
}

/// A group of a pair's own.
fn group_gid(number: u32, family: usize) -> Gid {
    let [a, b, c, d] = number.to_be_bytes();
    Gid::from_ip(match family {
        0 => std::net::Ipv4Addr::new(239, b, c, d).into(),
        _ => std::net::Ipv6Addr::from_bits(
            0xff0e_u128 << 112 | u128::from(u32::from_be_bytes([a, b, c, d])),
        )
        .into(),
    })
}

/// Whether a queue pair is in state Error.
fn has_ended(device: &Device<VecMemory>, qpn: Qpn) -> bool {
    device.query_queue_pair(qpn).is_ok_and(|info| info.state == QpState::Error)
}

fn attributes_of(device: &Device<VecMemory>, qpn: Qpn) -> Result<Attributes, String> {
    device.query_queue_pair(qpn).map(|info| info.attributes).map_err(|error| error.to_string())
}

const fn steps(service: ServiceType) -> &'static [(QpState, &'static [A])] {
    match service {
        ServiceType::Rc => &[
            (QpState::Init, &[A::PkeyIndex, A::Port, A::AccessFlags]),
            (
                QpState::Rtr,
                &[A::Av, A::PathMtu, A::DestQpn, A::RqPsn, A::MaxDestRdAtomic, A::MinRnrTimer],
            ),
            (QpState::Rts, &[A::Timeout, A::RetryCnt, A::RnrRetry, A::SqPsn, A::MaxQpRdAtomic]),
        ],
        ServiceType::Uc => &[
            (QpState::Init, &[A::PkeyIndex, A::Port, A::AccessFlags]),
            (QpState::Rtr, &[A::Av, A::PathMtu, A::DestQpn, A::RqPsn]),
            (QpState::Rts, &[A::SqPsn]),
        ],
        ServiceType::Ud => &[
            (QpState::Init, &[A::PkeyIndex, A::Port, A::Qkey]),
            (QpState::Rtr, &[]),
            (QpState::Rts, &[A::SqPsn]),
        ],
    }
}

/// Marks the names of receives.
const RECEIVE: u64 = 1 << 63;
