//! Statements that make, change and destroy objects, in words of the agent's.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv6Addr};

use roxe_device::address_handle::AddressVector;
use roxe_transport::qp_state::{Attribute as A, AttributeMask, QpState, ServiceType};
use roxe_transport::work::{AccessFlags, Attributes};
use roxe_wire::{AckTimeout, Gid, QKey, Qpn};

use super::super::mistake::Mistake;
use super::super::objects::{
    ATTRIBUTES, BUFFER_LEN, attributes, default_attributes, given, required, rights, state, vector,
};
use super::super::symbols::Symbols as _;
use super::super::syntax::{Arguments, CallVerb, ObjectKind, Service};
use super::{Halt, Live, difference, skip};

/// What a name stands for. Numbers are the agent's, if nothing else is said.
pub(super) enum Thing {
    Pd(u64),
    Cq { index: u64, armed: bool },
    Region(Region),
    Window { index: u64, key: u32 },
    Handle(u64),
    Srq(u64),
    Qp(Box<Qp>),
}

/// An address of the device's: its place in the table, and the interface that has it.
pub(super) struct OwnGid {
    index: u32,
    address: IpAddr,
    netdev: String,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Region {
    pub(super) index: u64,
    pub(super) va: u64,
    pub(super) l_key: u32,
    pub(super) r_key: u32,
}

#[derive(Clone, Debug)]
pub(super) struct Qp {
    pub(super) index: u64,
    pub(super) qpn: Qpn,
    pub(super) service: ServiceType,
    pub(super) values: Attributes,
    pub(super) vector: AddressVector,
    pub(super) own_address: IpAddr,
    pub(super) peer_address: IpAddr,
    /// The UDP port of its first frame: all others must have it too.
    pub(super) source_port: Option<u64>,
}

impl Thing {
    pub(super) const fn cq(&self) -> Option<u64> {
        match self {
            Self::Cq { index, .. } => Some(*index),
            _ => None,
        }
    }
}

impl Live<'_> {
    /// Opens the device and makes what every script has: `pd`, `cq` and the buffer.
    pub(super) fn prepare(&mut self) -> Result<(), Halt> {
        if let Some(hand) = self.terms.by_hand {
            self.gids.push(OwnGid { index: 0, address: hand.address, netdev: String::new() });
            self.objects.insert("pd".to_owned(), Thing::Pd(0));
            self.objects.insert("cq".to_owned(), Thing::Cq { index: 0, armed: false });
            return self.meet();
        }
        self.ask("open")?;
        let gids = self.ask("gids")?;
        for entry in gids.all("gid") {
            // Its place, address, type and interface.
            let [index, address, "2", netdev] = entry.split(',').collect::<Vec<_>>()[..] else {
                continue;
            };
            if let (Ok(index), Ok(address)) = (index.parse(), address.parse::<Ipv6Addr>()) {
                let address = Gid::from_ip(address.into()).to_ip();
                self.gids.push(OwnGid { index, address, netdev: netdev.to_owned() });
            }
        }
        self.meet()?;
        let pd = self.ask("pd")?.number("pd")?;
        self.objects.insert("pd".to_owned(), Thing::Pd(pd));
        let index = self.ask("cq depth=256")?.number("cq")?;
        self.objects.insert("cq".to_owned(), Thing::Cq { index, armed: false });
        self.buffer = self.registered(&format!("mr pd={pd} len={BUFFER_LEN} access=1"))?;
        Ok(())
    }

    /// Finds out what the script's addresses are here: themselves, where both ends have them.
    fn meet(&mut self) -> Result<(), Halt> {
        let (device, peer) = (self.settings.address, self.settings.peer);
        let has = |address: IpAddr| self.gids.iter().any(|gid| gid.address == address);
        if has(device) && (self.terms.ours.contains(&peer) || peer == device) {
            return Ok(());
        }
        let is_like = |address: &IpAddr| address.is_ipv4() == device.is_ipv4();
        let theirs = self.gids.iter().map(|gid| gid.address).find(|gid| {
            is_like(gid) && !matches!(gid, IpAddr::V6(gid) if gid.is_unicast_link_local())
        });
        let ours = self.terms.ours.iter().copied().find(is_like);
        let (Some(theirs), Some(ours)) = (theirs, ours) else {
            let what = format!("the two ends do not both have an address like {device}");
            return Err(Halt::Skip(what));
        };
        self.swaps = vec![(device, theirs), (peer, if peer == device { theirs } else { ours })];
        Ok(())
    }

    /// The script's own address with this number: its place in the device's table, and itself.
    fn own(&self, gid: u64) -> Result<(u32, IpAddr), Halt> {
        let own = match gid {
            0 => Some(self.settings.address),
            1 => self.settings.second_address,
            _ => None,
        };
        let own = own.map(|own| self.real(own));
        let found = self.gids.iter().find(|gid| Some(gid.address) == own);
        found.map(|gid| (gid.index, gid.address)).ok_or_else(|| {
            let shown = own.map_or_else(|| format!("GID {gid}"), |own| own.to_string());
            Halt::Skip(format!("the device does not have the address {shown}"))
        })
    }

    fn registered(&mut self, line: &str) -> Result<Region, Halt> {
        let answer = self.ask(line)?;
        Ok(Region {
            index: answer.number("mr")?,
            va: answer.number("va")?,
            l_key: answer.number("lkey")?,
            r_key: answer.number("rkey")?,
        })
    }

    fn pd(&self, a: &Arguments) -> Result<u64, Mistake> {
        let name = a.word("pd").unwrap_or("pd");
        match self.objects.get(name) {
            Some(Thing::Pd(pd)) => Ok(*pd),
            _ => Err(self.no("protection domain", name)),
        }
    }

    /// `pd`, `cq`, `mr`, `mw`, `ah`, `srq`, `qp`.
    pub(super) fn make(
        &mut self,
        object: ObjectKind,
        name: &str,
        a: &Arguments,
    ) -> Result<(), Halt> {
        let made = match object {
            ObjectKind::Pd => Thing::Pd(self.ask("pd")?.number("pd")?),
            ObjectKind::Cq => {
                let depth = self.number_or(a, "depth", 256)?;
                let index = self.ask(&format!("cq depth={depth}"))?.number("cq")?;
                Thing::Cq { index, armed: false }
            }
            ObjectKind::Mr => Thing::Region(self.make_region(a)?),
            ObjectKind::Mw => {
                let (pd, kind) = (self.pd(a)?, self.number_or(a, "type", 2)?);
                let answer = self.ask(&format!("mw pd={pd} type={kind}"))?;
                Thing::Window { index: answer.number("mw")?, key: answer.number("rkey")? }
            }
            ObjectKind::Ah => {
                let a = &self.here(a);
                let vector = vector(self, a, self.real(self.settings.peer))?;
                let path = self.path(&vector)?;
                let pd = self.pd(a)?;
                Thing::Handle(self.ask(&format!("ah pd={pd}{path}"))?.number("ah")?)
            }
            ObjectKind::Srq => {
                let (depth, sge) = (self.number_or(a, "depth", 16)?, self.number_or(a, "sge", 4)?);
                let (pd, limit) = (self.pd(a)?, self.number_or(a, "limit", 0)?);
                let line = format!("srq pd={pd} depth={depth} sge={sge}");
                let srq = self.ask(&line)?.number("srq")?;
                if limit != 0 {
                    self.ask(&format!("modify_srq srq={srq} limit={limit}"))?;
                }
                Thing::Srq(srq)
            }
            ObjectKind::Qp(service) => return self.make_qp(name, service, a),
            ObjectKind::Cm
            | ObjectKind::Listener
            | ObjectKind::Connection
            | ObjectKind::Resolution
            | ObjectKind::Question => return Err(Halt::Skip(skip::MANAGER.to_owned())),
        };
        self.objects.insert(name.to_owned(), made);
        Ok(())
    }

    fn make_region(&mut self, a: &Arguments) -> Result<Region, Halt> {
        if let Some(hand) = self.terms.by_hand {
            return Ok(Region { index: 0, va: hand.va, l_key: 0, r_key: hand.r_key });
        }
        let len = self.number(a, "len", None)?;
        let len = len.ok_or_else(|| Mistake::from("a region needs `len`"))?;
        let access = match a.has("access") {
            true => rights(a.list("access")),
            false => AccessFlags::LOCAL_WRITE,
        };
        let va = match access.contain(AccessFlags::ZERO_BASED) {
            true => Some(0),
            false => self.number(a, "va", None)?,
        };
        let iova = va.map_or_else(String::new, |va| format!(" iova=0x{va:x}"));
        let pd = self.pd(a)?;
        let line = format!("mr pd={pd} len={len} access={}{iova}", access.bits());
        let flush = AccessFlags::FLUSH_GLOBAL.with(AccessFlags::FLUSH_PERSISTENT);
        match self.registered(&line) {
            // Kernels before 6.2 know no such rights.
            Err(Halt::Refused(..)) if access.bits() & flush.bits() != 0 => {
                Err(Halt::Skip("the device has no FLUSH".to_owned()))
            }
            registered => registered,
        }
    }

    fn make_qp(&mut self, name: &str, service: Service, a: &Arguments) -> Result<(), Halt> {
        let service = match service {
            Service::Rc => ServiceType::Rc,
            Service::Uc => ServiceType::Uc,
            Service::Ud | Service::Gsi => ServiceType::Ud,
        };
        let a = &self.here(a);
        let peer = self.terms.first_peer + self.peers;
        let mut blank = default_attributes(self.settings.path_mtu, peer)?;
        blank.timeout = AckTimeout::new(self.pace.timeout).unwrap_or_default();
        let (_, own_address) = self.own(self.number_or(a, "gid", 0)?)?;
        let mut qp = Qp {
            index: 0,
            qpn: Qpn::default(),
            service,
            values: self.paced(attributes(self, a, &blank)?, a),
            vector: vector(self, a, self.real(self.settings.peer))?,
            own_address,
            peer_address: a.address("to").unwrap_or_else(|| self.real(self.settings.peer)),
            source_port: None,
        };
        self.peers += 1;
        if let Some(hand) = self.terms.by_hand {
            if self.peers > 1 {
                return Err(Halt::Skip("it needs more than one queue pair".to_owned()));
            }
            qp.qpn = hand.qpn;
            self.objects.insert(name.to_owned(), Thing::Qp(Box::new(qp)));
            return Ok(());
        }
        let line = self.creation(service, a)?;
        let answer = self.ask(&line)?;
        qp.index = answer.number("qp")?;
        qp.qpn = answer.qpn("qpn")?;
        self.objects.insert(name.to_owned(), Thing::Qp(Box::new(qp.clone())));
        let until = state(a.word("state").unwrap_or("rts"));
        let mut at = QpState::Reset;
        for next in [QpState::Init, QpState::Rtr, QpState::Rts] {
            if at == until {
                break;
            }
            self.modify(&qp, Some(next), required(service, at, next))?;
            at = next;
        }
        if at != until {
            self.modify(&qp, Some(until), AttributeMask::NONE)?;
        }
        Ok(())
    }

    /// A timeout that the script says goes as slowly as all does here; 0 is none.
    fn paced(&self, mut values: Attributes, a: &Arguments) -> Attributes {
        let code = values.timeout.code();
        if a.has("timeout") && code != 0 {
            let code = (code + self.pace.doublings).min(31);
            values.timeout = AckTimeout::new(code).unwrap_or_default();
        }
        values
    }

    /// The line that makes a queue pair.
    fn creation(&self, service: ServiceType, a: &Arguments) -> Result<String, Halt> {
        let cq = |which: &str, default: &str| {
            let name = a.word(which).unwrap_or(default);
            let cq = self.objects.get(name).and_then(Thing::cq);
            cq.ok_or_else(|| self.no("completion queue", name))
        };
        let sends = cq("cq", "cq")?;
        let receives = cq("recv-cq", a.word("cq").unwrap_or("cq"))?;
        let depth = self.number_or(a, "depth", 16)?;
        let sge = self.number_or(a, "sge", 4)?;
        let inline = self.number_or(a, "inline", 64)?;
        let pd = self.pd(a)?;
        let kind = match service {
            ServiceType::Rc => "rc",
            ServiceType::Uc => "uc",
            ServiceType::Ud => "ud",
        };
        let mut line = format!(
            "qp pd={pd} cq={sends} rcq={receives} type={kind} send={depth} recv={depth} \
             ssge={sge} rsge={sge} inline={inline} sigall={}",
            u8::from(a.has("signal-all"))
        );
        if let Some(name) = a.word("srq") {
            let Some(Thing::Srq(srq)) = self.objects.get(name) else {
                return Err(self.no("shared receive queue", name).into());
            };
            let _ = write!(line, " srq={srq}");
        }
        Ok(line)
    }

    /// Where packets go, in words of the agent's.
    fn path(&self, vector: &AddressVector) -> Result<String, Halt> {
        let (sgid, _) = self.own(u64::from(vector.source_gid))?;
        let dgid = vector.destination;
        let hops = if vector.hop_limit == 0 { 64 } else { vector.hop_limit };
        let AddressVector { traffic_class, flow_label, service_level, .. } = vector;
        Ok(format!(
            " dgid={dgid} sgid={sgid} hops={hops} tclass={traffic_class} flow={flow_label} \
             sl={service_level}"
        ))
    }

    fn modify(&mut self, qp: &Qp, to: Option<QpState>, given: AttributeMask) -> Result<(), Halt> {
        let mut line = format!("modify qp={}", qp.index);
        if let Some(to) = to {
            let _ = write!(line, " state={}", to.name());
        }
        let values = &qp.values;
        for attribute in ATTRIBUTES.into_iter().filter(|it| given.contains(*it)) {
            let (word, value) = match attribute {
                A::EnSqdAsyncNotify => ("notify", 1),
                A::AccessFlags => ("access", values.access.bits()),
                A::PkeyIndex => ("pkey", 0),
                A::Port => ("port", 1),
                A::Qkey => ("qkey", values.q_key.0),
                A::PathMtu => ("mtu", values.path_mtu.bytes()),
                A::Timeout => ("timeout", values.timeout.code().into()),
                A::RetryCnt => ("retry", values.retry_cnt.into()),
                A::RnrRetry => ("rnr_retry", values.rnr_retry.into()),
                A::RqPsn => ("rq_psn", values.rq_psn.get()),
                A::MaxQpRdAtomic => ("rd", values.max_rd_atomic.into()),
                A::MinRnrTimer => ("min_rnr", values.min_rnr_timer.code().into()),
                A::SqPsn => ("sq_psn", values.sq_psn.get()),
                A::MaxDestRdAtomic => ("dest_rd", values.max_dest_rd_atomic.into()),
                A::DestQpn => ("dest", values.dest_qp.get()),
                A::Av => {
                    line += &self.path(&qp.vector)?;
                    continue;
                }
                _ => continue,
            };
            let _ = write!(line, " {word}={value}");
        }
        self.ask(&line).map(drop)
    }

    fn modify_qp(&mut self, name: &str, a: &Arguments) -> Result<(), Halt> {
        let a = &self.here(a);
        let mut qp = self.qp(name)?.clone();
        let from = state(self.ask(&format!("query qp={}", qp.index))?.text("state")?);
        let to = a.word("state").map(state);
        let given = given(required(qp.service, from, to.unwrap_or(from)), a)?;
        qp.values = self.paced(attributes(self, a, &qp.values)?, a);
        if a.has("to") || a.has("gid") {
            qp.vector = vector(self, a, self.real(self.settings.peer))?;
        }
        self.modify(&qp, to, given)?;
        qp.source_port = None;
        qp.peer_address = a.address("to").unwrap_or(qp.peer_address);
        self.objects.insert(name.to_owned(), Thing::Qp(Box::new(qp)));
        Ok(())
    }

    /// `call VERB TARGET …`.
    pub(super) fn call(&mut self, verb: CallVerb, target: &str, a: &Arguments) -> Result<(), Halt> {
        let object = self.objects.get(target);
        let object = object.ok_or_else(|| self.no("name of anything", target))?;
        match (verb, object) {
            (CallVerb::Modify, Thing::Qp(_)) => self.modify_qp(target, a),
            (CallVerb::Modify, Thing::Srq(srq)) => {
                let mut line = format!("modify_srq srq={srq}");
                for word in ["depth", "limit"] {
                    if let Some(value) = self.number(a, word, None)? {
                        let _ = write!(line, " {word}={value}");
                    }
                }
                self.ask(&line).map(drop)
            }
            (CallVerb::Destroy, object) => {
                let (kind, index, stays) = match object {
                    Thing::Pd(index) => ("pd", *index, false),
                    Thing::Cq { index, .. } => ("cq", *index, false),
                    Thing::Handle(index) => ("ah", *index, false),
                    Thing::Srq(index) => ("srq", *index, false),
                    // Their names stay, so that a script can go on using stale keys.
                    Thing::Region(region) => ("mr", region.index, true),
                    Thing::Window { index, .. } => ("mw", *index, true),
                    Thing::Qp(qp) => ("qp", qp.index, true),
                };
                self.ask(&format!("destroy {kind}={index}"))?;
                if !stays {
                    self.objects.remove(target);
                }
                Ok(())
            }
            (CallVerb::Reregister, Thing::Region(region)) => {
                let mut line = format!("rereg mr={}", region.index);
                if a.has("pd") {
                    let _ = write!(line, " pd={}", self.pd(a)?);
                }
                if a.has("access") {
                    let _ = write!(line, " access={}", rights(a.list("access")).bits());
                }
                let mut region = *region;
                let answer = self.ask(&line)?;
                region.l_key = answer.number("lkey")?;
                region.r_key = answer.number("rkey")?;
                self.objects.insert(target.to_owned(), Thing::Region(region));
                Ok(())
            }
            (CallVerb::Attach | CallVerb::Detach, Thing::Qp(qp)) => {
                let group = a.address("group");
                let group = group.ok_or_else(|| Mistake::from("this call needs `group`"))?;
                let gid = Gid::from_ip(group);
                let word = if verb == CallVerb::Attach { "attach" } else { "detach" };
                let line = format!("{word} qp={} gid={gid}", qp.index);
                let own = self.gids.iter().find(|own| own.address == qp.own_address);
                let netdev = own.map_or("-", |own| own.netdev.as_str());
                let join = format!("join netdev={netdev} gid={gid}");
                self.ask(&line)?;
                if verb == CallVerb::Attach {
                    // Without its kernel a soft adapter hears nothing of the group.
                    self.ask(&join)?;
                }
                Ok(())
            }
            (CallVerb::Notify, Thing::Cq { index, .. }) => {
                let (index, solicited) = (*index, u8::from(a.has("solicited")));
                // What was done so far is not news.
                self.look_at_all()?;
                self.ask(&format!("arm cq={index} solicited={solicited}"))?;
                self.objects.insert(target.to_owned(), Thing::Cq { index, armed: true });
                Ok(())
            }
            (CallVerb::Resize, Thing::Cq { index, .. }) => {
                let index = *index;
                let depth = self.number_or(a, "depth", 0)?;
                self.ask(&format!("resize cq={index} depth={depth}")).map(drop)
            }
            _ => Err(difference(format!("{target} is no object of this verb"))),
        }
    }

    /// What a window is called that has this key now.
    pub(super) fn set_key(&mut self, name: &str, new: u32) {
        if let Some(Thing::Window { key, .. }) = self.objects.get_mut(name) {
            *key = new;
        }
    }

    /// The Q_Key of a queue pair.
    pub(super) fn q_key(&self, name: &str) -> Result<QKey, Mistake> {
        Ok(self.qp(name)?.values.q_key)
    }
}
