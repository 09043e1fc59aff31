//! The device under test, the names of its objects, and virtual time.

use std::collections::BTreeMap;
use std::net::IpAddr;

use roxe_cm::{ListenerId, QuestionId, ResolutionId};
use roxe_device::address_handle::AddressVector;
use roxe_device::protection_domain::Pd;
use roxe_device::{
    Congestion, CqId, Device, Event, HostMemory, HostRegion, Limits, ReceiveQueueId, Transmit,
    VecMemory,
};
use roxe_transport::Outlet;
use roxe_transport::adapter::QpEvent;
use roxe_transport::qp_state::ServiceType;
use roxe_transport::work::{
    Attributes, Completion, CompletionOpcode, CompletionStatus, PathId, Sge,
};
use roxe_wire::{Addressing, FrameTemplate, ICRC_LEN, Instant, LKey, Mtu, Qpn, RKey, Room, icrc};

use crate::peer::Peer;
use crate::phrase;
use crate::world::path_of;

use super::PlayedFrame;

use super::cm::{By, Connection, Manager, Told};
use super::frame_out::{self, OurSide, Seen};
use super::mistake::{Mistake, suggest};
use super::parse::show_instant;
use super::symbols::Symbols;
use super::syntax::Arguments;

/// Everything a script is about.
pub(super) struct Bench {
    pub(super) device: Device<VecMemory>,
    pub(super) objects: BTreeMap<String, Object>,
    pub(super) now: Instant,
    /// What the device did and no line has spoken of yet, in order.
    pub(super) pending: Vec<Pending>,
    /// What happened so far, for whoever has to find out why a line failed.
    pub(super) history: Vec<String>,
    /// How many queue pairs were made: each has a peer of its own.
    pub(super) peers: u32,
    /// Where requests have their bytes, by direction and name.
    pub(super) posted: BTreeMap<(bool, u64), Vec<HostPiece>>,
    /// Keys that requests under way are about to change: by request, the object and its old key.
    pub(super) renamed: BTreeMap<u64, (String, u32)>,
    pub(super) settings: Settings,
    pub(super) buffer: Buffer,
    /// Frames that were no packets, by reason: what a port would count.
    pub(super) refused: BTreeMap<&'static str, u64>,
    /// The port takes no packets.
    pub(super) held: bool,
    /// Every frame so far, if somebody wants them.
    pub(super) frames: Option<Vec<PlayedFrame>>,
    /// How many bytes further regions may have.
    pub(super) memory_left: usize,
    /// What connects, once a script has made it.
    pub(super) manager: Option<Box<Manager>>,
}

/// The bytes of all regions together.
const MOST_MEMORY: usize = 1 << 26;

/// The device gets no more room for packets before lines have spoken of some of so many.
const MOST_PENDING: usize = 1 << 14;

/// Bytes of a region: where they begin, and how many there are.
pub(super) type HostPiece = (HostRegion, u64, u32);

/// What `device` says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    pub(super) path_mtu: Mtu,
    pub(super) seed: u64,
    pub(super) address: IpAddr,
    pub(super) second_address: Option<IpAddr>,
    pub(super) peer: IpAddr,
    pub(super) kind: Peer,
    pub(super) vlan: Option<u16>,
    pub(super) second_vlan: Option<u16>,
    pub(super) congestion: Congestion,
}

/// Memory for requests that do not say where their bytes are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Buffer {
    pub(super) host: HostRegion,
    pub(super) key: LKey,
    pub(super) va: u64,
    pub(super) used: u64,
}

/// What a name stands for.
#[derive(Clone, Debug)]
pub(super) enum Object {
    Pd(Pd),
    Cq(CqId),
    Region(Region),
    Window { key: RKey },
    Handle(PathId),
    Srq(ReceiveQueueId),
    Qp(Box<Qp>),
    Listener(ListenerId),
    Connection(Connection),
    Resolution(ResolutionId),
    Question(QuestionId),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Region {
    pub(super) key: LKey,
    pub(super) host: HostRegion,
    pub(super) va: u64,
}

#[derive(Clone, Debug)]
pub(super) struct Qp {
    pub(super) qpn: Qpn,
    pub(super) service: ServiceType,
    /// The values that it was made with or modified to.
    pub(super) values: Attributes,
    pub(super) vector: AddressVector,
    pub(super) own_address: IpAddr,
    /// The VLAN of that address.
    pub(super) vlan: Option<u16>,
    pub(super) peer_address: IpAddr,
    /// The UDP port of its first frame: all others must have it too.
    pub(super) source_port: Option<u64>,
}

/// Something that the device did.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) at: Instant,
    pub(super) what: Done,
}

#[derive(Debug)]
pub(super) enum Done {
    Frame {
        qp: Option<String>,
        seen: Result<Seen, String>,
        /// Which of the frames that are kept it is.
        kept: Option<usize>,
    },
    Completion(Completion),
    Event {
        object: String,
        name: &'static str,
    },
    /// The connection manager told the application.
    Told(Told),
}

impl Pending {
    /// Which of the frames that are kept it is, if it is one.
    pub(super) const fn kept(&self) -> Option<usize> {
        match self.what {
            Done::Frame { kept, .. } => kept,
            Done::Completion(_) | Done::Event { .. } | Done::Told(_) => None,
        }
    }
}

impl Bench {
    pub(super) fn new(settings: Settings) -> Self {
        let mut limits = Limits::DEFAULT;
        limits.port_mtu = settings.path_mtu;
        let mut device = Device::new(limits, settings.seed, VecMemory::new());
        device.set_conduct(settings.kind.conduct());
        device.set_congestion(settings.congestion);
        Self {
            device,
            objects: BTreeMap::new(),
            now: Instant::ZERO,
            pending: Vec::new(),
            history: Vec::new(),
            peers: 0,
            posted: BTreeMap::new(),
            renamed: BTreeMap::new(),
            settings,
            buffer: Buffer { host: HostRegion(0), key: LKey(0), va: 0, used: 0 },
            refused: BTreeMap::new(),
            held: false,
            frames: None,
            memory_left: MOST_MEMORY,
            manager: None,
        }
    }

    /// Moves time to `until`, with everything that is to happen before.
    pub(super) fn advance(&mut self, until: Instant) -> Result<(), String> {
        self.collect();
        while let Some(at) = self.poll_timeout().filter(|at| *at <= until) {
            self.timer(at)?;
        }
        self.now = until;
        self.collect();
        Ok(())
    }

    /// Moves time on until `wanted` has happened, or to `until`.
    pub(super) fn await_until(
        &mut self,
        until: Instant,
        wanted: impl Fn(&Pending) -> bool,
    ) -> Result<(), String> {
        self.collect();
        while !self.pending.iter().any(&wanted) {
            match self.poll_timeout().filter(|at| *at <= until) {
                Some(at) => self.timer(at)?,
                None => {
                    self.now = until;
                    self.collect();
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// When device or connection manager wants to be called next.
    fn poll_timeout(&self) -> Option<Instant> {
        let manager = self.manager.as_ref().and_then(|manager| manager.poll_timeout());
        [self.device.poll_timeout(), manager].into_iter().flatten().min()
    }

    fn timer(&mut self, at: Instant) -> Result<(), String> {
        self.now = self.now.max(at);
        self.device.handle_timeout(self.now);
        if let Some(manager) = &mut self.manager {
            manager.handle_timeout(self.now);
        }
        self.collect();
        match self.poll_timeout() {
            Some(again) if again <= self.now => {
                Err(format!("the device asks again for {}", show_instant(again)))
            }
            _ => Ok(()),
        }
    }

    /// Forgets what happened but for the last of it: so much is told.
    pub(super) fn forget(&mut self, told: usize) {
        let len = self.history.len();
        if len > told.saturating_mul(2).max(1000) {
            self.history.drain(..len - told);
        }
    }

    /// Looks what the device did since the last look, and its connection manager.
    pub(super) fn collect(&mut self) {
        self.look();
        while self.manage() {
            self.look();
        }
    }

    fn look(&mut self) {
        let mut room = vec![0; 4096 + 128];
        while !self.held && self.pending.len() < MOST_PENDING {
            let outlet = Outlet { room: Room::whole(&mut room), elide: false };
            let Some(transmit) = self.device.poll_transmit(self.now, outlet) else { break };
            self.settings.kind.dress(&mut room);
            let done = self.frame(&transmit, &room);
            self.happened(done);
        }
        while let Some(completion) = self.next_completion() {
            self.settle_key(&completion);
            self.happened(Done::Completion(completion));
        }
        while let Some(event) = self.device.poll_event() {
            if let Event::QueuePair(qpn, QpEvent::CommunicationEstablished) = event {
                self.came(qpn);
            }
            let done = self.event(event);
            self.happened(done);
        }
    }

    pub(super) fn happened(&mut self, what: Done) {
        let shown = format!("{:>9}     {}", show_instant(self.now), self.show(&what));
        self.history.push(shown);
        self.pending.push(Pending { at: self.now, what });
    }

    fn frame(&mut self, transmit: &Transmit, room: &[u8]) -> Done {
        let packet = &room[..transmit.packet.len + ICRC_LEN];
        let mut addressing = self.device.paths().get(transmit.path).map(|path| path.addressing);
        if let (Some(addressing), Some(class)) = (&mut addressing, transmit.traffic_class) {
            addressing.traffic_class = class;
        }
        let mut seen = match &addressing {
            Some(addressing) => frame_out::see(packet, addressing),
            None => Err("it has no path".to_owned()),
        };
        if let (Ok(seen), Some(manager)) = (&mut seen, &mut self.manager)
            && seen.source_qp() == Some(Qpn::GSI)
        {
            seen.open(|message, own, other| manager.tid_of(By::Device, message, own, other));
            if let Some((message, own, tid)) = seen.transaction() {
                manager.remember(By::Device, message, own, tid);
            }
        }
        let mut kept = None;
        if let (Some(frames), Some(addressing)) = (&mut self.frames, &addressing)
            && let Some(bytes) = on_the_wire(packet, addressing)
        {
            let time = self.now;
            kept = Some(frames.len());
            frames.push(PlayedFrame { time, outbound: true, bytes, comment: String::new() });
        }
        let datagram = seen.as_ref().ok().and_then(Seen::source_qp);
        let sender = self.objects.iter().find(|(_, object)| match object {
            Object::Qp(qp) => match datagram {
                Some(qpn) => qp.qpn == qpn,
                None => self
                    .device
                    .query_queue_pair(qp.qpn)
                    .is_ok_and(|info| info.path == Some(transmit.path)),
            },
            _ => false,
        });
        Done::Frame { qp: sender.map(|(name, _)| name.clone()), seen, kept }
    }

    fn next_completion(&mut self) -> Option<Completion> {
        let queues = self.objects.values().filter_map(|object| match object {
            Object::Cq(cq) => Some(*cq),
            _ => None,
        });
        let mut room = [Completion::BLANK];
        for cq in queues.collect::<Vec<_>>() {
            if self.device.poll_completions(cq, &mut room) != 0 {
                return Some(room[0]);
            }
        }
        None
    }

    /// A request that should have given a region or window another key is done: if it failed, the
    /// key is the old one.
    fn settle_key(&mut self, completion: &Completion) {
        if !matches!(completion.opcode, CompletionOpcode::BindMw | CompletionOpcode::RegMr) {
            return;
        }
        let renamed = self.renamed.remove(&completion.wr_id);
        if let Some((name, old)) =
            renamed.filter(|_| completion.status != CompletionStatus::Success)
        {
            self.set_key(&name, old);
        }
    }

    fn event(&self, event: Event) -> Done {
        let is = |object: &Object| match (object, event) {
            (Object::Qp(qp), Event::QueuePair(qpn, _)) => qp.qpn == qpn,
            (Object::Cq(cq), Event::CompletionNotify(of) | Event::CompletionQueueError(of)) => {
                *cq == of
            }
            (Object::Srq(srq), Event::SrqLimitReached(of)) => *srq == of,
            _ => false,
        };
        let object = self.objects.iter().find(|(_, object)| is(object));
        let name = match event {
            Event::QueuePair(_, event) => match event {
                QpEvent::Fatal => "fatal",
                QpEvent::RequestError => "request-error",
                QpEvent::AccessError => "access-error",
                QpEvent::CommunicationEstablished => "established",
                QpEvent::SqDrained => "drained",
                QpEvent::LastWqeReached => "last-wqe",
            },
            Event::CompletionNotify(_) => "notify",
            Event::CompletionQueueError(_) => "overrun",
            Event::SrqLimitReached(_) => "limit",
        };
        Done::Event { object: object.map_or_else(String::new, |(name, _)| name.clone()), name }
    }

    /// Something that happened, in one line.
    pub(super) fn show(&self, done: &Done) -> String {
        match done {
            Done::Frame { qp, seen: Ok(seen), .. } => {
                let name = qp.as_deref().unwrap_or("?");
                let ours = qp.as_deref().and_then(|qp| self.our_side(qp).ok());
                format!("> {name} {}", seen.show(ours.as_ref()))
            }
            Done::Frame { qp, seen: Err(why), .. } => {
                format!("> {} a packet that cannot be read: {why}", qp.as_deref().unwrap_or("?"))
            }
            Done::Completion(completion) => self.show_completion(completion),
            Done::Event { object, name } => format!("event {object} {name}"),
            Done::Told(told) => told.show(self.name_of(told.of)),
        }
    }

    fn show_completion(&self, completion: &Completion) -> String {
        let qp = self
            .objects
            .iter()
            .find(|(_, object)| matches!(object, Object::Qp(qp) if qp.qpn == completion.qpn));
        let name = qp.map_or("?", |(name, _)| name);
        let queue = if is_receive(completion) { "recv" } else { "send" };
        format!("completion {name} {queue} {}", phrase::completion(completion))
    }

    /// A name that is nothing of this kind.
    pub(super) fn no(&self, kind: &str, name: &str) -> Mistake {
        let known = self.objects.keys().map(String::as_str);
        Mistake::at(name, format!("{name} is no {kind}{}", suggest(name, known)))
    }

    pub(super) fn qp(&self, name: &str) -> Result<&Qp, Mistake> {
        match self.objects.get(name) {
            Some(Object::Qp(qp)) => Ok(qp),
            _ => Err(self.no("queue pair", name)),
        }
    }

    pub(super) fn region(&self, name: &str) -> Result<Region, Mistake> {
        match self.objects.get(name) {
            Some(Object::Region(region)) => Ok(*region),
            _ => Err(self.no("memory region", name)),
        }
    }

    pub(super) fn pd(&self, arguments: &Arguments) -> Result<Pd, Mistake> {
        let name = arguments.word("pd").unwrap_or("pd");
        match self.objects.get(name) {
            Some(Object::Pd(pd)) => Ok(*pd),
            _ => Err(self.no("protection domain", name)),
        }
    }

    /// What stands in frames of a queue pair if a script says nothing.
    pub(super) fn our_side(&self, name: &str) -> Result<OurSide, Mistake> {
        let qp = self.qp(name)?;
        Ok(OurSide {
            own_qp: qp.qpn,
            peer_qp: qp.values.dest_qp,
            p_key: qp.values.p_key.0,
            q_key: qp.values.q_key.0,
            from: qp.own_address,
            to: qp.peer_address,
            traffic_class: qp.vector.traffic_class,
            hop_limit: if qp.vector.hop_limit == 0 { 64 } else { qp.vector.hop_limit },
            kind: self.settings.kind,
            vlan: qp.vlan.unwrap_or(0),
            priority: qp.vector.service_level * u8::from(qp.vlan.is_some()),
            guid: self.manager.as_ref().map_or(0, |manager| manager.guid),
        })
    }

    /// Room in the buffer of requests that name no memory.
    pub(super) fn room(&mut self, len: u32) -> (Sge, HostPiece) {
        let offset = self.buffer.used;
        self.buffer.used += u64::from(len).next_multiple_of(8);
        let sge = Sge { va: self.buffer.va + offset, len, l_key: self.buffer.key };
        (sge, (self.buffer.host, offset, len))
    }

    /// The first `len` bytes of a request's memory after `skip`.
    pub(super) fn posted_bytes(
        &self,
        receive: bool,
        id: u64,
        skip: usize,
        len: usize,
    ) -> Result<Vec<u8>, String> {
        let places = self.posted.get(&(receive, id)).ok_or("no such request was posted")?;
        let wanted = skip.saturating_add(len);
        let mut all = Vec::new();
        for (host, offset, len) in places {
            let mut piece = vec![0; (*len as usize).min(wanted - all.len())];
            let read = self.device.host().read(*host, *offset, &mut piece);
            read.map_err(|gone| gone.to_string())?;
            all.extend_from_slice(&piece);
        }
        Ok(all.into_iter().skip(skip).collect())
    }
}

impl Symbols for Bench {
    fn symbol(&self, object: &str, part: &str, qp: Option<&str>) -> Result<u64, Mistake> {
        if object == "peer" && part == "qpn" {
            let qp = self.qp(qp.ok_or_else(|| {
                Mistake::at("peer", "peer.qpn belongs to a line about a queue pair")
            })?)?;
            return Ok(u64::from(qp.values.dest_qp.get()));
        }
        let found = self.objects.get(object).ok_or_else(|| self.no("name of anything", object))?;
        Ok(match (found, part) {
            (Object::Region(region), "va") => region.va,
            (Object::Region(region), "rkey" | "lkey") => u64::from(region.key.0),
            (Object::Window { key }, "rkey") => u64::from(key.0),
            (Object::Qp(qp), "qpn") => u64::from(qp.qpn.get()),
            (Object::Qp(qp), "peer") => u64::from(qp.values.dest_qp.get()),
            (found, part) => {
                let none = || Mistake::at(object, format!("{object} has no {part}"));
                self.symbol_of_cm(found, part).ok_or_else(none)?
            }
        })
    }
}

/// A packet with the headers of its path and its ICRC.
fn on_the_wire(packet: &[u8], addressing: &Addressing) -> Option<Vec<u8>> {
    let template = FrameTemplate::new(&path_of(addressing)?);
    let mut bytes = vec![0; template.headers_len()];
    let cover = template.write(u16::try_from(packet.len()).ok()?, 0, &mut bytes)?;
    let start = bytes.len();
    bytes.extend_from_slice(packet);
    icrc::seal(&cover, Room::whole(&mut bytes[start..])).then_some(bytes)
}

/// Whether a completion is a receive queue's.
pub(super) const fn is_receive(completion: &Completion) -> bool {
    matches!(completion.opcode, CompletionOpcode::Recv | CompletionOpcode::RecvRdmaWithImm)
}
