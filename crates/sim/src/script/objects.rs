//! Statements that make, change and destroy objects.

use std::net::IpAddr;

use roxe_device::address_handle::AddressVector;
use roxe_device::gid_table::GidEntry;
use roxe_device::memory::{Changes, MemoryError, Registration, WindowType};
use roxe_device::multicast::MulticastError;
use roxe_device::protection_domain::PdError;
use roxe_device::queue_pair_numbers::QpnError;
use roxe_device::{HostMemory, HostRegion, QueuePairInit, ReceiveCapacity, VerbError};
use roxe_transport::SendCapacity;
use roxe_transport::qp_state::{Attribute as A, AttributeMask, QpState, ServiceType, transition};
use roxe_transport::work::{AccessFlags, Attributes};
use roxe_wire::{AckTimeout, Gid, GidType, LKey, Mtu, PKey, Psn, QKey, Qpn, RnrTimer};

use super::bench::{Bench, Object, Qp, Region, Settings};
use super::mistake::Mistake;
use super::parameters;
use super::symbols::Symbols;
use super::syntax::{Arguments, CallVerb, ObjectKind, Service};

/// A verb's outcome: done, or refused with an error that has a number.
pub(super) type Verb = Result<(), Refused>;

/// Why a verb did not do what it was asked to.
#[derive(Debug)]
pub(super) enum Refused {
    /// The device refused.
    Errno(&'static str, String),
    /// The script asks for something that cannot be.
    Script(Mistake),
}

impl<M: Into<Mistake>> From<M> for Refused {
    fn from(what: M) -> Self {
        Self::Script(what.into())
    }
}

impl From<VerbError> for Refused {
    fn from(error: VerbError) -> Self {
        Self::Errno(errno(&error), error.to_string())
    }
}

/// The number that libibverbs gives an application.
const fn errno(error: &VerbError) -> &'static str {
    match error {
        VerbError::Limit(_)
        | VerbError::Pd(PdError::TooMany { .. })
        | VerbError::Memory(MemoryError::TableFull { .. })
        | VerbError::Number(QpnError::TooMany { .. })
        | VerbError::Multicast(
            MulticastError::TooManyGroups { .. } | MulticastError::TooManyMembers { .. },
        ) => "ENOMEM",
        VerbError::InUse(_)
        | VerbError::Pd(PdError::InUse(_))
        | VerbError::Memory(MemoryError::WindowsBound { .. }) => "EBUSY",
        _ => "EINVAL",
    }
}

impl Bench {
    /// Makes what every script has: addresses, `pd`, `cq` and the buffer.
    pub(super) fn prepare(&mut self) -> Verb {
        let Settings { address, second_address, vlan, second_vlan, .. } = self.settings;
        self.device.add_gid(gid_entry(address, vlan))?;
        if let Some(second) = second_address {
            self.device.add_gid(gid_entry(second, second_vlan))?;
        }
        let pd = self.device.alloc_pd()?;
        self.objects.insert("pd".to_owned(), Object::Pd(pd));
        let cq = self.device.create_completion_queue(256)?;
        self.objects.insert("cq".to_owned(), Object::Cq(cq));
        let host = self.device.host_mut().add(vec![0; BUFFER_LEN]);
        let (va, access) = (BUFFER_VA, AccessFlags::LOCAL_WRITE);
        let what = Registration { pd, host, va, len: BUFFER_LEN as u64, access };
        let key = self.device.register_memory(&what)?;
        self.buffer = super::bench::Buffer { host, key, va, used: 0 };
        Ok(())
    }

    /// `pd`, `cq`, `mr`, `mw`, `ah`, `srq`, `qp`.
    pub(super) fn make(&mut self, object: ObjectKind, name: &str, a: &Arguments) -> Verb {
        if self.objects.contains_key(name) || name == "peer" {
            return Err(Mistake::at(name, format!("{name} is there already")).into());
        }
        let made = match object {
            ObjectKind::Pd => Object::Pd(self.device.alloc_pd()?),
            ObjectKind::Cq => {
                let depth = self.number_or(a, "depth", 256)? as u32;
                Object::Cq(self.device.create_completion_queue(depth)?)
            }
            ObjectKind::Mr => self.make_region(a)?,
            ObjectKind::Mw => {
                let kind = match self.number_or(a, "type", 2)? {
                    1 => WindowType::Type1,
                    2 => WindowType::Type2,
                    _ => return Err("a window is of type 1 or 2".into()),
                };
                Object::Window { key: self.device.alloc_window(self.pd(a)?, kind)? }
            }
            ObjectKind::Ah => {
                let vector = vector(self, a, self.settings.peer)?;
                Object::Handle(self.device.create_address_handle(self.pd(a)?, &vector)?)
            }
            ObjectKind::Srq => {
                let depth = self.number_or(a, "depth", 16)? as u32;
                let limit = self.number_or(a, "limit", 0)? as u32;
                let max_sge = self.number_or(a, "sge", 4)? as u32;
                let pd = self.pd(a)?;
                Object::Srq(self.device.create_shared_receive_queue(pd, depth, max_sge, limit)?)
            }
            ObjectKind::Qp(service) => return self.make_qp(name, service, a),
            ObjectKind::Cm => return self.make_cm(name, a),
            ObjectKind::Listener => self.make_listener(a)?,
            ObjectKind::Connection | ObjectKind::Resolution | ObjectKind::Question => {
                return Err("calls and events make such a thing".into());
            }
        };
        self.objects.insert(name.to_owned(), made);
        Ok(())
    }

    /// Memory for one more region.
    fn new_memory(&mut self, len: u64) -> Result<HostRegion, Refused> {
        let bytes = usize::try_from(len).ok().filter(|len| *len <= MOST_MEMORY);
        let bytes = bytes.ok_or("a region of more than 16 MiB")?;
        let left = self.memory_left.checked_sub(bytes);
        self.memory_left = left.ok_or("regions of more than 64 MiB together")?;
        Ok(self.device.host_mut().add(vec![0; bytes]))
    }

    fn make_region(&mut self, a: &Arguments) -> Result<Object, Refused> {
        let len = self.number(a, "len", None)?.ok_or("a region needs `len`")?;
        let host = self.new_memory(len)?;
        let pd = self.pd(a)?;
        let access = match a.has("access") {
            true => rights(a.list("access")),
            false => AccessFlags::LOCAL_WRITE,
        };
        let chosen = REGION_VA + REGION_STEP * u64::from(host.0);
        let va = match access.contain(AccessFlags::ZERO_BASED) {
            true => 0,
            false => self.number_or(a, "va", chosen)?,
        };
        let key = if a.has("fast") {
            self.device.alloc_fast_memory(pd, host, len)?
        } else {
            self.device.register_memory(&Registration { pd, host, va, len, access })?
        };
        Ok(Object::Region(Region { key, host, va }))
    }

    fn make_qp(&mut self, name: &str, service: Service, a: &Arguments) -> Verb {
        let gsi = service == Service::Gsi;
        let service = match service {
            Service::Rc => ServiceType::Rc,
            Service::Uc => ServiceType::Uc,
            Service::Ud | Service::Gsi => ServiceType::Ud,
        };
        let cq = |bench: &Self, which: &str, default: &str| {
            let name = a.word(which).unwrap_or(default);
            match bench.objects.get(name) {
                Some(Object::Cq(cq)) => Ok(*cq),
                _ => Err(bench.no("completion queue", name)),
            }
        };
        let send_cq = cq(self, "cq", "cq")?;
        let receive_cq = cq(self, "recv-cq", a.word("cq").unwrap_or("cq"))?;
        let srq = match a.word("srq").map(|name| (name, self.objects.get(name))) {
            None => None,
            Some((_, Some(Object::Srq(srq)))) => Some(*srq),
            Some((name, _)) => return Err(self.no("shared receive queue", name).into()),
        };
        let depth = self.number_or(a, "depth", 16)? as u32;
        let max_sge = self.number_or(a, "sge", 4)? as u32;
        let max_inline = self.number_or(a, "inline", 64)? as u32;
        let init = QueuePairInit {
            service,
            pd: self.pd(a)?,
            send_cq,
            receive_cq,
            srq,
            send: SendCapacity { depth, max_sge, max_inline },
            receive: ReceiveCapacity { depth, max_sge },
            signal_all: a.has("signal-all"),
        };
        let qpn = if gsi {
            self.device.create_gsi_queue_pair(&init)?
        } else {
            self.device.create_queue_pair(&init)?
        };
        let peer = if gsi { 1 } else { FIRST_PEER_QPN + self.peers };
        self.peers += 1;
        self.bring_up(name, service, (qpn, peer), a)
    }

    /// Queue pair 1, ready to send.
    pub(super) fn make_gsi(&mut self, name: &str, init: &QueuePairInit) -> Verb {
        let qpn = self.device.create_gsi_queue_pair(init)?;
        self.bring_up(name, init.service, (qpn, 1), &Arguments::default())
    }

    /// Names a queue pair, and moves it to the state that is said; `ends` are its number and its
    /// peer's.
    fn bring_up(
        &mut self,
        name: &str,
        service: ServiceType,
        ends: (Qpn, u32),
        a: &Arguments,
    ) -> Verb {
        let (qpn, peer) = ends;
        let gid = self.number_or(a, "gid", 0)? as u32;
        let own = self.device.gids().get(gid).copied();
        let own_address = own.map_or(self.settings.address, |own| own.gid.to_ip());
        let mut blank = Attributes { qpn, ..default_attributes(self.settings.path_mtu, peer)? };
        if qpn == Qpn::GSI {
            blank.q_key = QKey::GSI;
        }
        let qp = Qp {
            qpn,
            service,
            values: attributes(self, a, &blank)?,
            vector: vector(self, a, self.settings.peer)?,
            own_address,
            vlan: own.and_then(|own| own.vlan),
            peer_address: a.address("to").unwrap_or(self.settings.peer),
            source_port: None,
        };
        self.objects.insert(name.to_owned(), Object::Qp(Box::new(qp)));
        if let Some(window) = self.number(a, "window", None)? {
            self.device.set_window(qpn, window as u32)?;
        }
        let until = state(a.word("state").unwrap_or("rts"));
        let mut at = QpState::Reset;
        for next in [QpState::Init, QpState::Rtr, QpState::Rts] {
            if at == until {
                break;
            }
            self.modify_with(name, next, required(service, at, next))?;
            at = next;
        }
        if at == until { Ok(()) } else { self.modify_with(name, until, AttributeMask::NONE) }
    }

    pub(super) fn modify_with(&mut self, name: &str, to: QpState, given: AttributeMask) -> Verb {
        let qp = self.qp(name)?.clone();
        self.device.modify_queue_pair(qp.qpn, to, given, &qp.values, Some(&qp.vector))?;
        Ok(())
    }

    /// `call VERB TARGET …`.
    pub(super) fn call(&mut self, verb: CallVerb, target: &str, a: &Arguments) -> Verb {
        if target == "device" {
            return self.call_device(verb, a);
        }
        if verb.is_about_connections() {
            return self.call_cm(verb, target, a);
        }
        let object = self.objects.get(target).cloned();
        let object = object.ok_or_else(|| self.no("name of anything", target))?;
        match (verb, object) {
            (CallVerb::Modify, Object::Qp(qp)) => self.modify_qp(target, &qp, a),
            (CallVerb::Modify, Object::Srq(srq)) => {
                let depth = self.number(a, "depth", None)?.map(|depth| depth as u32);
                let limit = self.number(a, "limit", None)?.map(|limit| limit as u32);
                Ok(self.device.modify_shared_receive_queue(srq, depth, limit)?)
            }
            (CallVerb::Destroy, object) => {
                match &object {
                    Object::Pd(pd) => self.device.dealloc_pd(*pd)?,
                    Object::Cq(cq) => self.device.destroy_completion_queue(*cq)?,
                    Object::Region(region) => self.device.deregister_memory(region.key)?,
                    Object::Window { key } => self.device.dealloc_window(*key)?,
                    Object::Handle(path) => self.device.destroy_address_handle(*path)?,
                    Object::Srq(srq) => self.device.destroy_shared_receive_queue(*srq)?,
                    Object::Qp(qp) => self.device.destroy_queue_pair(qp.qpn)?,
                    Object::Listener(_)
                    | Object::Connection(_)
                    | Object::Resolution(_)
                    | Object::Question(_) => return self.call_cm(verb, target, a),
                }
                // The names of memory stay, so that a script can go on using stale keys.
                if !matches!(object, Object::Region(_) | Object::Window { .. } | Object::Qp(_)) {
                    self.objects.remove(target);
                }
                Ok(())
            }
            (CallVerb::Reregister, Object::Region(region)) => self.reregister(target, region, a),
            (CallVerb::Attach, Object::Qp(qp)) => {
                let group = a.address("group").ok_or("`attach` needs `group`")?;
                Ok(self.device.attach_multicast(Gid::from_ip(group), qp.qpn)?)
            }
            (CallVerb::Detach, Object::Qp(qp)) => {
                let group = a.address("group").ok_or("`detach` needs `group`")?;
                Ok(self.device.detach_multicast(Gid::from_ip(group), qp.qpn)?)
            }
            (CallVerb::Notify, Object::Cq(cq)) => {
                // What was done so far is not news.
                self.collect();
                self.device.request_notify(cq, a.has("solicited"))?;
                Ok(())
            }
            (CallVerb::Resize, Object::Cq(cq)) => {
                let depth = self.number(a, "depth", None)?.ok_or("`resize` needs `depth`")?;
                Ok(self.device.resize_completion_queue(cq, depth as u32)?)
            }
            (CallVerb::Lose, Object::Region(region)) => {
                self.device.host_mut().release(region.host);
                Ok(())
            }
            _ => {
                let what = format!("{target} is no object of this verb");
                Err(Mistake::at(target, what).into())
            }
        }
    }

    /// What happens to the device as a whole, or to its port.
    fn call_device(&mut self, verb: CallVerb, a: &Arguments) -> Verb {
        match verb {
            CallVerb::AddGid => {
                let address = a.address("address").ok_or("`add-gid` needs `address`")?;
                let vlan = self.number(a, "vlan", None)?.map(|vlan| vlan as u16);
                self.device.add_gid(gid_entry(address, vlan))?;
            }
            CallVerb::RemoveGid => {
                let gid = self.number(a, "gid", None)?.ok_or("`remove-gid` needs `gid`")?;
                let removed = self.device.remove_gid(gid as u32);
                removed.ok_or_else(|| format!("the device has no GID {gid}"))?;
            }
            CallVerb::Hold | CallVerb::Release => {
                self.collect();
                self.held = verb == CallVerb::Hold;
            }
            _ => return Err("the device has no such verb".into()),
        }
        Ok(())
    }

    fn reregister(&mut self, name: &str, region: Region, a: &Arguments) -> Verb {
        let pd = if a.has("pd") { Some(self.pd(a)?) } else { None };
        let access = a.has("access").then(|| rights(a.list("access")));
        let va = self.number(a, "va", None)?;
        let len = self.number(a, "len", None)?;
        let mut changed = region;
        let range = match (va, len) {
            (None, None) => None,
            (va, Some(len)) => {
                changed.host = self.new_memory(len)?;
                changed.va = va.unwrap_or(region.va);
                Some((changed.host, changed.va, len))
            }
            (Some(_), None) => return Err("`va` needs `len`".into()),
        };
        self.device.reregister_memory(region.key, &Changes { pd, access, range })?;
        self.objects.insert(name.to_owned(), Object::Region(changed));
        Ok(())
    }

    fn modify_qp(&mut self, name: &str, qp: &Qp, a: &Arguments) -> Verb {
        let from = self.device.query_queue_pair(qp.qpn)?.state;
        let to = a.word("state").map_or(from, state);
        let given = given(required(qp.service, from, to), a)?;
        let values = attributes(self, a, &qp.values)?;
        let vector = if a.has("to") || a.has("gid") {
            vector(self, a, self.settings.peer)?
        } else {
            qp.vector
        };
        self.device.modify_queue_pair(qp.qpn, to, given, &values, Some(&vector))?;
        if let Some(Object::Qp(qp)) = self.objects.get_mut(name) {
            qp.values = values;
            qp.vector = vector;
            qp.source_port = None;
            if let Some(address) = a.address("to") {
                qp.peer_address = address;
            }
        }
        Ok(())
    }

    /// What a region is called that has this key now.
    pub(super) fn set_key(&mut self, name: &str, key: u32) {
        match self.objects.get_mut(name) {
            Some(Object::Window { key: of }) => of.0 = key,
            Some(Object::Region(region)) => region.key = LKey(key),
            _ => {}
        }
    }
}

/// What a queue pair has if nothing is said of it.
pub(super) fn default_attributes(path_mtu: Mtu, peer: u32) -> Result<Attributes, Mistake> {
    Ok(Attributes {
        qpn: Qpn::default(),
        cur_state: QpState::default(),
        dest_qp: Qpn::new(peer),
        path_mtu,
        access: rights_of_peers(),
        q_key: QKey(0x1111_1111),
        p_key: PKey::DEFAULT,
        sq_psn: Psn::new(0),
        rq_psn: Psn::new(0),
        max_rd_atomic: 4,
        max_dest_rd_atomic: 4,
        timeout: ack_timeout(14)?,
        retry_cnt: 3,
        rnr_retry: 3,
        min_rnr_timer: RnrTimer::from_bits(12),
    })
}

/// The values that are said, and those of `old` for the others.
pub(super) fn attributes(
    symbols: &dyn Symbols,
    a: &Arguments,
    old: &Attributes,
) -> Result<Attributes, Mistake> {
    let or = |name: &str, old: u64| symbols.number_or(a, name, old);
    Ok(Attributes {
        qpn: old.qpn,
        cur_state: old.cur_state,
        dest_qp: Qpn::new(or("peer", u64::from(old.dest_qp.get()))? as u32),
        path_mtu: mtu(or("path-mtu", u64::from(old.path_mtu.bytes()))?)?,
        access: if a.has("access") { rights(a.list("access")) } else { old.access },
        q_key: QKey(or("qkey", u64::from(old.q_key.0))? as u32),
        p_key: PKey(or("pkey", u64::from(old.p_key.0))? as u16),
        sq_psn: Psn::new(or("send-psn", u64::from(old.sq_psn.get()))? as u32),
        rq_psn: Psn::new(or("expect-psn", u64::from(old.rq_psn.get()))? as u32),
        max_rd_atomic: or("max-rd-atomic", u64::from(old.max_rd_atomic))? as u8,
        max_dest_rd_atomic: or("max-dest-rd-atomic", u64::from(old.max_dest_rd_atomic))? as u8,
        timeout: ack_timeout(or("timeout", u64::from(old.timeout.code()))?)?,
        retry_cnt: or("retry", u64::from(old.retry_cnt))? as u8,
        rnr_retry: or("rnr-retry", u64::from(old.rnr_retry))? as u8,
        min_rnr_timer: RnrTimer::from_bits(
            or("min-rnr-timer", u64::from(old.min_rnr_timer.code()))? as u8,
        ),
    })
}

/// Where packets go; to `peer` if nothing is said.
pub(super) fn vector(
    symbols: &dyn Symbols,
    a: &Arguments,
    peer: IpAddr,
) -> Result<AddressVector, Mistake> {
    let source_gid = symbols.number_or(a, "gid", 0)? as u32;
    let destination = Gid::from_ip(a.address("to").unwrap_or(peer));
    Ok(AddressVector {
        traffic_class: symbols.number_or(a, "tclass", 0)? as u8,
        hop_limit: symbols.number_or(a, "hop", 0)? as u8,
        flow_label: symbols.number_or(a, "flow-label", 0)? as u32,
        service_level: symbols.number_or(a, "sl", 0)? as u8,
        ..AddressVector::new(source_gid, destination)
    })
}

/// What a call of `modify` says is given, besides what its step needs.
pub(super) fn given(required: AttributeMask, a: &Arguments) -> Result<AttributeMask, Mistake> {
    let mut given = required;
    for (attribute, flag) in parameters::ATTRIBUTES.iter().zip(ATTRIBUTES) {
        if a.has(attribute) {
            given = given.with(AttributeMask::of(&[flag]));
        }
    }
    for word in a.list("without") {
        let index = parameters::ATTRIBUTES.iter().position(|known| known == word);
        let flag = index.map(|index| ATTRIBUTES[index]).ok_or("no such attribute")?;
        given = given.without(AttributeMask::of(&[flag]));
    }
    Ok(given)
}

/// An address of RoCE v2, on a VLAN or untagged.
fn gid_entry(address: IpAddr, vlan: Option<u16>) -> GidEntry {
    GidEntry { gid: Gid::from_ip(address), gid_type: GidType::RoceV2, vlan }
}

/// The flags of [`parameters::ATTRIBUTES`], in the same order.
pub(super) const ATTRIBUTES: [A; parameters::ATTRIBUTES.len()] = [
    A::EnSqdAsyncNotify,
    A::AccessFlags,
    A::PkeyIndex,
    A::Port,
    A::Qkey,
    A::Av,
    A::PathMtu,
    A::Timeout,
    A::RetryCnt,
    A::RnrRetry,
    A::RqPsn,
    A::MaxQpRdAtomic,
    A::MinRnrTimer,
    A::SqPsn,
    A::MaxDestRdAtomic,
    A::DestQpn,
];

pub(super) fn required(service: ServiceType, from: QpState, to: QpState) -> AttributeMask {
    transition(service, from, to).map_or(AttributeMask::NONE, |step| step.required)
}

pub(super) fn state(name: &str) -> QpState {
    QpState::ALL.into_iter().find(|state| state.name() == name).unwrap_or_default()
}

/// Rights by their names.
pub(super) fn rights(names: &[String]) -> AccessFlags {
    let flags = names.iter().filter_map(|name| AccessFlags::by_name(name));
    flags.fold(AccessFlags::NONE, AccessFlags::with)
}

fn rights_of_peers() -> AccessFlags {
    let names =
        ["remote-write", "remote-read", "remote-atomic", "flush-global", "flush-persistent"];
    rights(&names.map(str::to_owned))
}

/// A path MTU of so many bytes.
pub(super) fn mtu(bytes: u64) -> Result<Mtu, Mistake> {
    u32::try_from(bytes).ok().and_then(Mtu::from_bytes).ok_or_else(|| {
        let what = format!("{bytes} is no path MTU: 256, 512, 1024, 2048 or 4096");
        Mistake::at("path-mtu", what)
    })
}

fn ack_timeout(code: u64) -> Result<AckTimeout, Mistake> {
    u8::try_from(code)
        .ok()
        .and_then(AckTimeout::new)
        .ok_or_else(|| Mistake::at("timeout", format!("{code} is no timeout: 0 to 31")))
}

pub(super) const BUFFER_LEN: usize = 1 << 20;
const BUFFER_VA: u64 = 0x7f00_0000_0000;
/// Where regions begin if a script does not say it: far apart, so that none continues another.
const REGION_VA: u64 = 0x1_0000_0000;
const REGION_STEP: u64 = 0x1000_0000;
pub(super) const MOST_MEMORY: usize = 1 << 24;
/// The number of the first queue pair's peer.
pub(super) const FIRST_PEER_QPN: u32 = 0x100;
