//! Datagrams: those of one queue pair sent again by ours, those to one queue pair received by ours.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::num::NonZeroU32;

use roxe_transport::conduct::Conduct;
use roxe_transport::qp_state::ServiceType;
use roxe_transport::work::{
    AccessFlags, CompletionStatus, DatagramTarget, Extra, PathId, SendOperation, Sge,
};
use roxe_wire::{Gid, Grh, Mtu, QKey, Qpn};

use super::meaning::{View, requests_differ};
use super::record::Item;
use super::rig::{Retries, Rig, Setup};
use super::{Role, Side};

/// Datagrams that have one end in common.
#[derive(Debug)]
pub(super) struct Datagrams<'a> {
    pub(super) conversation: Option<NonZeroU32>,
    pub(super) source: (IpAddr, Option<Qpn>),
    pub(super) destination: (IpAddr, Option<Qpn>),
    /// In order.
    pub(super) items: Vec<&'a Item>,
    /// The first one that the recording cut.
    pub(super) cut: Option<u64>,
}

impl Datagrams<'_> {
    fn setup(&self, peer: IpAddr, q_key: QKey, is_gsi: bool) -> Setup {
        Setup {
            service: ServiceType::Ud,
            peer_address: peer,
            peer_qp: Qpn::default(),
            path_mtu: Mtu::B4096,
            p_key: self.items[0].headers.bth.p_key,
            q_key,
            sq_psn: self.items[0].psn(),
            rq_psn: Default::default(),
            access: AccessFlags::NONE,
            min_rnr_timer: Default::default(),
            is_gsi,
            retries: Retries::ENDLESS,
        }
    }

    /// The key that most of them have: the receiver's, unless nothing ever came.
    fn usual_key(&self) -> QKey {
        let mut counts: BTreeMap<u32, u64> = BTreeMap::new();
        for deth in self.items.iter().filter_map(|item| item.headers.deth) {
            *counts.entry(deth.q_key.0).or_default() += 1;
        }
        let usual = counts.into_iter().max_by_key(|(_, count)| *count);
        QKey(usual.map_or(0, |(key, _)| key))
    }
}

/// Plays them to our queue pair: each must be delivered whole, with where it came from.
pub(super) fn receive(datagrams: &Datagrams<'_>) -> Side {
    let mut side = Side::of_datagrams(datagrams, Role::Receiver);
    if let Err(why) = try_receive(datagrams, &mut side) {
        side.not_comparable(datagrams.items[0].number, why);
    }
    side.cut_at(datagrams.cut);
    side
}

fn try_receive(datagrams: &Datagrams<'_>, side: &mut Side) -> Result<(), String> {
    let (address, qpn) = datagrams.destination;
    let group = Gid::from_ip(address);
    let own = match group.is_multicast() {
        true => group_member(address),
        false => address,
    };
    let mut rig = Rig::new(own, Conduct::DEFAULT)?;
    let is_gsi = qpn == Some(Qpn::GSI);
    let q_key = if is_gsi { QKey::GSI } else { datagrams.usual_key() };
    let to =
        rig.queue_pair(&datagrams.setup(datagrams.items[0].addressing.source, q_key, is_gsi))?;
    if group.is_multicast() {
        rig.device.attach_multicast(group, to).map_err(|error| error.to_string())?;
    }
    // A datagram that is dropped leaves its receive to the next one.
    let mut waiting = None;
    for item in &datagrams.items {
        let len = (Grh::LEN + Mtu::B4096.bytes() as usize) as u32;
        let host = match waiting.take() {
            Some(host) => host,
            None => rig.post_receive(to, len)?,
        };
        rig.feed(item, to, &BTreeMap::new());
        side.played += 1;
        side.compared += 1;
        let right_key = item.headers.deth.is_some_and(|deth| deth.q_key == q_key);
        let astray = item.headers.bth.dest_qp == Qpn::MULTICAST && !group.is_multicast();
        let expected = right_key && !astray && !item.is_bad();
        let Some(completion) = rig.completion() else {
            waiting = Some(host);
            if expected {
                let words = View::from(*item).words();
                side.differs(item.number, "delivery", words, "nothing delivered".to_owned());
            }
            side.dropped += 1;
            continue;
        };
        side.delivered += 1;
        let payload = item.payload();
        let whole = Grh::LEN + payload.len();
        let imm = item.headers.imm_dt.map_or(Extra::None, Extra::Imm);
        let grh = Grh::new(item.ip.header());
        let right = expected
            && completion.status == CompletionStatus::Success
            && completion.extra == imm
            && Some(completion.source_qp) == item.headers.deth.map(|deth| deth.source_qp)
            && completion.byte_len as usize == whole
            && rig.read(host, Grh::LEN as u64, payload.len()) == payload
            && rig.read(host, 0, Grh::LEN) == *grh.as_bytes();
        if !right {
            let ours = format!("{} len {}", completion.status.name(), completion.byte_len);
            side.differs(item.number, "delivery", View::from(*item).words(), ours);
        }
    }
    Ok(())
}

/// Some address of a member: the family is what matters.
fn group_member(group: IpAddr) -> IpAddr {
    match group {
        IpAddr::V4(_) => IpAddr::from([192, 0, 2, 1]),
        IpAddr::V6(_) => IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1]),
    }
}

/// Sends them from our queue pair: the packets must be the same.
pub(super) fn send(datagrams: &Datagrams<'_>) -> Side {
    let mut side = Side::of_datagrams(datagrams, Role::Sender);
    if let Err(why) = try_send(datagrams, &mut side) {
        side.not_comparable(datagrams.items[0].number, why);
    }
    side.cut_at(datagrams.cut);
    side
}

fn try_send(datagrams: &Datagrams<'_>, side: &mut Side) -> Result<(), String> {
    let (address, qpn) = datagrams.source;
    let mut rig = Rig::new(address, Conduct::DEFAULT)?;
    let is_gsi = qpn == Some(Qpn::GSI);
    let first = datagrams.items[0];
    let q_key = first.headers.deth.map(|deth| deth.q_key).unwrap_or_default();
    let own = rig.queue_pair(&datagrams.setup(first.addressing.destination, q_key, is_gsi))?;
    let mut handles: BTreeMap<IpAddr, PathId> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    for item in &datagrams.items {
        let to = item.addressing.destination;
        let path = match handles.get(&to) {
            Some(path) => *path,
            None => {
                let vector = Rig::vector(to);
                let path = rig.device.create_address_handle(rig.pd, &vector);
                let path = path.map_err(|error| error.to_string())?;
                handles.insert(to, path);
                path
            }
        };
        let Some(deth) = item.headers.deth.filter(|_| !item.is_bad() && !item.doubled) else {
            continue;
        };
        // With the top bit set the key is the queue pair's own, which is the first one's.
        if deth.q_key.is_controlled() && deth.q_key != q_key && seen.insert(deth.q_key.0) {
            let why = "the queue pair has another controlled Q_Key than before".to_owned();
            side.not_comparable(item.number, why);
            continue;
        }
        let payload = item.payload();
        let access = AccessFlags::LOCAL_WRITE;
        let (_, l_key) = rig.register(LOCAL, payload.to_vec(), access)?;
        let sges = [Sge { va: LOCAL, len: payload.len() as u32, l_key }];
        let sges = if payload.is_empty() { &[][..] } else { &sges[..] };
        let operation = item.headers.imm_dt.map_or(SendOperation::Send, SendOperation::SendWithImm);
        let bth = &item.headers.bth;
        let target = DatagramTarget { path, qpn: bth.dest_qp, q_key: deth.q_key };
        let id = rig.post(own, operation, sges, bth.solicited, Some(target))?;
        rig.give_back_with(id, l_key);
        side.played += 1;
        side.compared += 1;
        let recorded = View::from(*item);
        let Some(ours) = rig.poll() else {
            side.differs(item.number, "request", recorded.words(), "nothing".to_owned());
            continue;
        };
        let ours = View::from(&ours);
        let right_source = ours.headers.deth.is_some_and(|deth| deth.source_qp == own);
        let what = requests_differ(recorded, ours);
        if let Some(what) = what.or_else(|| (!right_source).then_some("source")) {
            side.differs(item.number, what, recorded.words(), ours.words());
        }
        while rig.completion().is_some() {
            side.delivered += 1;
        }
    }
    Ok(())
}

/// Where local memory lies, as the device counts.
const LOCAL: u64 = 0x10_0000;
