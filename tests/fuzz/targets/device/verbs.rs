//! The application, right and wrong.

use roxe_device::address_handle::AddressVector;
use roxe_device::gid_table::GidEntry;
use roxe_device::memory::WindowType;
use roxe_device::{QueuePairInit, ReceiveCapacity};
use roxe_transport::SendCapacity;
use roxe_transport::qp_state::{Attribute, AttributeMask, QpState, ServiceType, TRANSITIONS};
use roxe_transport::work::{
    AccessFlags, Attributes, Binding, Data, DatagramTarget, FastRegistration, LocalOperation,
    Remote, SendOperation, SendRequest, Sge, Span,
};
use roxe_wire::{
    AckTimeout, FlushPlacement, FlushSelectivity, Gid, GidType, ImmDt, LKey, Mtu, PKey, Psn, QKey,
    Qpn, RKey, RnrTimer, StaticRate,
};

use crate::end::End;
use crate::input::Input;
use crate::model::start_of;
use crate::wire::{self, INLINE};
use crate::{ADDRESSES, World, second_address};

const SERVICES: [ServiceType; 3] = [ServiceType::Rc, ServiceType::Uc, ServiceType::Ud];

/// What works, for a queue pair and its peer.
pub fn values(qpn: Qpn, peer: Qpn) -> Attributes {
    Attributes {
        qpn,
        cur_state: QpState::default(),
        dest_qp: peer,
        path_mtu: Mtu::B256,
        access: AccessFlags::from_bits(0x31f).expect("all rights"),
        q_key: QKey(0x1111_1111),
        p_key: PKey::DEFAULT,
        sq_psn: Psn::new(qpn.get()),
        rq_psn: Psn::new(peer.get()),
        max_rd_atomic: 2,
        max_dest_rd_atomic: 2,
        timeout: AckTimeout::new(10).expect("it is a code"),
        retry_cnt: 2,
        rnr_retry: 2,
        min_rnr_timer: RnrTimer::from_bits(12),
    }
}

fn changed(mut values: Attributes, input: &mut Input<'_>) -> Attributes {
    for _ in 0..input.below(4) {
        let (which, value) = (input.below(12), input.byte());
        match which {
            0 => values.path_mtu = Mtu::ALL[usize::from(value) % 5],
            1 => values.access = access(input),
            2 => values.max_rd_atomic = value,
            3 => values.max_dest_rd_atomic = value,
            4 => values.timeout = AckTimeout::new(value & 0x1f).expect("five bits"),
            5 => values.retry_cnt = value & 0xf,
            6 => values.rnr_retry = value & 0xf,
            7 => values.min_rnr_timer = RnrTimer::from_bits(value),
            8 => values.sq_psn = Psn::new(0xff_fff0 + u32::from(value)),
            9 => values.rq_psn = Psn::new(0xff_fff0 + u32::from(value)),
            10 => values.q_key = QKey(0x8000_0000 | u32::from(value)),
            _ => values.p_key = PKey(0x7fff | u16::from(value) << 8),
        }
    }
    values
}

fn access(input: &mut Input<'_>) -> AccessFlags {
    let bits = match input.byte() {
        0..=0x7f => 0x31f,
        some => u32::from(some & 0x3f) | u32::from(some & 0x40) << 2,
    };
    let bits = if input.rarely(8) { bits | 0x20 } else { bits };
    AccessFlags::from_bits(bits).expect("known bits")
}

pub fn vector(at: usize, input: &mut Input<'_>) -> AddressVector {
    let choice = input.byte();
    let destination = match choice {
        0..=0xbf => Gid::from_ip(ADDRESSES[1 - at].into()),
        0xc0..=0xcf => Gid::from_ip(ADDRESSES[at].into()),
        0xd0..=0xdf => Gid::from_ip([239, 1, 2, choice % 3].into()),
        _ => Gid::from_ip(second_address(choice).0),
    };
    AddressVector {
        source_gid: if choice & 7 == 7 { u32::from(input.byte() % 6) } else { 0 },
        destination,
        traffic_class: choice & 3,
        hop_limit: choice,
        flow_label: if choice & 8 != 0 { input.u32() } else { 0 },
        service_level: choice >> 4 & 7,
        static_rate: StaticRate::MAX,
    }
}

impl World {
    pub fn verb(&mut self, verb: u8, at: usize, input: &mut Input<'_>) {
        let [one, two] = &mut self.ends;
        let (end, other) = if at == 0 { (one, two) } else { (two, one) };
        // One byte chooses all objects that are used together.
        let which = usize::from(input.byte());
        let nth = |count: usize, times: usize| which / times % count.max(1);
        let peer = other.qps.get(nth(other.qps.len(), 1)).map(|qp| qp.qpn);
        let pd = end.domains.get(nth(end.domains.len(), 2)).map(|domain| domain.pd);
        let cq = end.cqs.get(nth(end.cqs.len(), 3)).map(|cq| cq.id);
        let qpn = end.qps.get(nth(end.qps.len(), 1)).map(|qp| qp.qpn);
        let srq = end.srqs.get(nth(end.srqs.len(), 4)).map(|srq| srq.id);
        match (verb, pd, cq, qpn, srq) {
            (0, ..) => end.alloc_pd(),
            (1, Some(pd), ..) => end.dealloc_pd(pd),
            (2, ..) => end.create_cq(u32::from(input.byte()) % 66),
            (3, _, Some(cq), ..) => end.destroy_cq(cq),
            (4, _, Some(cq), ..) => {
                let _ = end.device.resize_completion_queue(cq, input.number() as u32);
            }
            (5, _, Some(cq), ..) => end.notify(cq, input.flag()),
            (6 | 7, Some(pd), ..) => {
                let len = input.one(&[0, 1, 8, 64, 256, 4096, 20_000]);
                let said = if input.rarely(8) { input.number() } else { len as u64 };
                let va = input.number();
                end.register(pd, len, va, said, access(input));
            }
            (8, ..) => {
                let Some(key) = region(end, input) else { return };
                let access = input.flag().then(|| access(input));
                let range = input.flag().then(|| {
                    let len = usize::from(input.u16() % 5000);
                    (len, input.number(), if input.rarely(4) { input.number() } else { len as u64 })
                });
                end.reregister(key, pd.filter(|_| input.flag()), access, range);
            }
            (9, ..) => {
                let Some(key) = region(end, input) else { return };
                end.deregister(key);
            }
            (10, Some(pd), ..) => {
                let len = input.one(&[8, 64, 4096]);
                let most = if input.rarely(8) { input.number() } else { len as u64 };
                end.alloc_fast(pd, len, most);
            }
            (11, Some(pd), ..) => {
                end.alloc_window(pd, input.one(&[WindowType::Type1, WindowType::Type2]));
            }
            (12, ..) => {
                let Some(key) = window(end, input) else { return };
                end.dealloc_window(key);
            }
            (13, Some(pd), ..) => {
                let (depth, max_sge) = (input.byte() % 18, input.byte() % 6);
                let limit = input.byte() % 20;
                end.create_srq(pd, depth.into(), max_sge.into(), limit.into());
            }
            (14, _, _, _, Some(srq)) => {
                let depth = input.flag().then(|| input.number() as u32);
                let limit = input.flag().then(|| input.number() as u32);
                end.modify_srq(srq, depth, limit);
            }
            (15, _, _, _, Some(srq)) => end.destroy_srq(srq),
            (16 | 17, Some(pd), Some(cq), ..) => {
                let service = input.one(&SERVICES);
                let receive_cq = input.one(&end.cqs.iter().map(|cq| cq.id).collect::<Vec<_>>());
                let sizes = input.byte();
                let init = QueuePairInit {
                    service,
                    pd,
                    send_cq: cq,
                    receive_cq,
                    srq: srq.filter(|_| sizes & 1 != 0),
                    send: SendCapacity {
                        depth: u32::from(sizes >> 2),
                        max_sge: u32::from(sizes & 7),
                        max_inline: u32::from(sizes) * 3,
                    },
                    receive: ReceiveCapacity {
                        depth: u32::from(sizes >> 3),
                        max_sge: u32::from(sizes & 7),
                    },
                    signal_all: sizes & 2 != 0,
                };
                end.create_qp(&init, service == ServiceType::Ud && input.rarely(8));
            }
            (18..=20, .., Some(qpn), _) => {
                let values = changed(values(qpn, peer.unwrap_or(qpn)), input);
                let (to, mask) = step(end, qpn, input);
                let vector = vector(at, input);
                end.modify(qpn, to, mask, &values, Some(&vector).filter(|_| !input.rarely(8)));
            }
            (21, .., Some(qpn), _) => {
                let to = input.one(&QpState::ALL);
                end.modify(qpn, to, AttributeMask::NONE, &values(qpn, qpn), None);
            }
            (22, .., Some(qpn), _) => end.destroy_qp(qpn),
            (23, Some(pd), ..) => {
                let vector = vector(at, input);
                end.create_handle(pd, &vector);
            }
            (24, ..) if !end.handles.is_empty() => {
                end.destroy_handle(input.below(end.handles.len()))
            }
            (25, ..) => {
                let (address, vlan) = second_address(input.byte());
                let gid_type = if input.rarely(8) { GidType::RoceV1 } else { GidType::RoceV2 };
                let entry = GidEntry { gid: Gid::from_ip(address), gid_type, vlan };
                let _ = end.device.add_gid(entry);
            }
            (26, ..) => {
                let _ = end.device.remove_gid(u32::from(input.byte() % 6));
            }
            (27, .., Some(qpn), _) => end.attach(group(input), qpn),
            (28, .., Some(qpn), _) => end.detach(group(input), qpn),
            (29, .., Some(qpn), _) => {
                let _ = end.device.set_window(qpn, input.number() as u32);
            }
            (30, ..) if !end.memory.regions.is_empty() && input.rarely(4) => {
                let host = end.memory.regions[input.below(end.memory.regions.len())].host;
                end.lose(host);
            }
            (31..=33, ..) => {
                let service = input.byte();
                self.pair(service, input);
            }
            (34..=36, _, Some(cq), ..) => {
                end.poll(cq, usize::from(input.byte() % 17));
            }
            (37..=41, .., Some(qpn), None) | (37..=39, .., Some(qpn), _) => {
                let sges = sges(end, input);
                end.post_receive(qpn, &sges);
            }
            (40 | 41, .., Some(srq)) => {
                let sges = sges(end, input);
                end.post_shared(srq, &sges);
            }
            (42..=46, .., Some(qpn), _) => {
                let remote = wire::remote(other, input);
                send(end, qpn, peer, remote, input);
            }
            _ => {}
        }
    }

    /// Two queue pairs that know each other, ready to send: new ones, or two that are there.
    pub fn pair(&mut self, service: u8, input: &mut Input<'_>) {
        let service = SERVICES[usize::from(service) % 3];
        let sizes = input.byte();
        let mut qpns = [Qpn::default(); 2];
        for at in [0, 1] {
            let end = &mut self.ends[at];
            let there = end.qps.iter().map(|qp| qp.qpn).filter(|qpn| {
                let info = end.device.query_queue_pair(*qpn).expect("it is there");
                info.service == service && info.state == QpState::Reset
            });
            let there = there.collect::<Vec<_>>();
            let (pd, cq) = (end.domains.first().map(|d| d.pd), end.cqs.first().map(|cq| cq.id));
            let (Some(pd), Some(cq)) = (pd, cq) else { return };
            let srq = end.srqs.first().map(|srq| srq.id).filter(|_| sizes & 1 != 0);
            let init = QueuePairInit {
                service,
                pd,
                send_cq: cq,
                receive_cq: cq,
                srq,
                send: SendCapacity { depth: 8, max_sge: 4, max_inline: 64 },
                receive: ReceiveCapacity { depth: 8, max_sge: 4 },
                signal_all: sizes & 2 != 0,
            };
            let qpn = there.first().copied().or_else(|| end.create_qp(&init, false));
            let Some(qpn) = qpn else { return };
            qpns[at] = qpn;
        }
        let change = changed(values(qpns[0], qpns[1]), input);
        for at in [0, 1] {
            let (qpn, peer) = (qpns[at], qpns[1 - at]);
            let usual = values(qpn, peer);
            let values = Attributes {
                qpn,
                dest_qp: peer,
                // Either may begin near the end of the numbers.
                sq_psn: if at == 0 { change.sq_psn } else { usual.sq_psn },
                rq_psn: if at == 1 { change.sq_psn } else { usual.rq_psn },
                ..change
            };
            let vector = vector(at, &mut Input::new(&[]));
            for to in [QpState::Init, QpState::Rtr, QpState::Rts] {
                let from = self.ends[at].state(qpn);
                let mask = required(service, from, to);
                self.ends[at].modify(qpn, to, mask, &values, Some(&vector));
            }
        }
    }
}

fn required(service: ServiceType, from: QpState, to: QpState) -> AttributeMask {
    let row = TRANSITIONS.iter().find(|r| r.service == service && r.from == from && r.to == to);
    row.map_or(AttributeMask::NONE, |row| row.required)
}

/// A step that there is, mostly, with what it needs, mostly.
fn step(end: &End, qpn: Qpn, input: &mut Input<'_>) -> (QpState, AttributeMask) {
    let info = end.device.query_queue_pair(qpn).expect("it is there");
    let rows: Vec<_> = TRANSITIONS
        .iter()
        .filter(|row| row.service == info.service && row.from == info.state)
        .collect();
    let choice = input.byte();
    if rows.is_empty() || choice >= 0xe0 {
        return (input.one(&QpState::ALL), AttributeMask::from_bits(input.u32()));
    }
    let row = rows[usize::from(choice) % rows.len()];
    let optional = AttributeMask::from_bits(row.optional.bits() & input.u32());
    let mask = row.required.with(optional);
    let wrong = AttributeMask::of(&[Attribute::SqPsn]);
    (row.to, if input.rarely(16) { mask.without(wrong) } else { mask })
}

fn group(input: &mut Input<'_>) -> Gid {
    Gid::from_ip([if input.rarely(16) { 192 } else { 239 }, 1, 2, input.byte() % 3].into())
}

/// The key of a region, perhaps one that it had or will have.
fn region(end: &End, input: &mut Input<'_>) -> Option<LKey> {
    let regions = &end.memory.regions;
    let choice = input.byte();
    let registering = &end.memory.registering;
    if choice & 0xc0 == 0xc0 && !registering.is_empty() {
        return Some(LKey(registering[usize::from(choice & 0x3f) % registering.len()].new_key.0));
    }
    let region = regions.get(usize::from(choice) % regions.len().max(1))?;
    Some(region.key)
}

fn window(end: &End, input: &mut Input<'_>) -> Option<RKey> {
    let windows = &end.memory.windows;
    let choice = input.byte();
    let bindings = &end.memory.bindings;
    if choice & 0x80 != 0 && !bindings.is_empty() {
        return Some(bindings[usize::from(choice & 0x7f) % bindings.len()].what.new_key);
    }
    Some(windows.get(usize::from(choice) % windows.len().max(1))?.key)
}

fn sges(end: &End, input: &mut Input<'_>) -> Vec<Sge> {
    let count = input.one(&[1, 1, 1, 1, 2, 2, 3, 4, 5, 0]);
    (0..count).map(|_| sge(end, input)).collect()
}

fn sge(end: &End, input: &mut Input<'_>) -> Sge {
    let Some(l_key) = region(end, input) else { return Sge::default() };
    let found = end.memory.regions.iter().find(|region| region.key == l_key);
    let (start, whole) = found.map_or((0, 0), |r| (start_of(r.access, r.va), r.len));
    let va = start.wrapping_add(if input.flag() { 0 } else { input.number() });
    let len = match input.byte() {
        0..=0x3f => whole as u32,
        0x40..=0x7f => 8,
        0x80..=0xbf => u32::from(input.u16() % 1500),
        _ => input.number() as u32,
    };
    Sge { va, len, l_key }
}

/// A send request of any kind.
fn send(
    end: &mut End,
    qpn: Qpn,
    peer: Option<Qpn>,
    (va, r_key): (u64, RKey),
    input: &mut Input<'_>,
) {
    let (kind, flags) = (input.byte(), input.byte());
    let remote = Remote { va, r_key };
    let aligned = Remote { va: va & !7, r_key };
    let operation = match kind % 18 {
        0 | 1 => SendOperation::Send,
        2 => SendOperation::SendWithImm(ImmDt(kind.into())),
        3 => SendOperation::SendWithInv(r_key),
        4 | 5 => SendOperation::Write(remote),
        6 => SendOperation::WriteWithImm(remote, ImmDt(kind.into())),
        7 | 8 => SendOperation::Read(remote),
        9 => SendOperation::CompareSwap { remote: aligned, compare: input.number(), swap: 5 },
        10 => SendOperation::FetchAdd { remote: aligned, add: input.number() },
        11 => SendOperation::AtomicWrite(aligned),
        12 => {
            let bits = input.byte();
            let placement = FlushPlacement {
                global_visibility: bits & 1 != 0,
                persistence: bits & 2 != 0,
                reserved: 0,
            };
            let selectivity = match bits >> 2 & 3 {
                0 | 1 => FlushSelectivity::Range,
                2 => FlushSelectivity::MemoryRegion,
                _ => FlushSelectivity::Reserved(2),
            };
            SendOperation::Flush { remote, len: input.number() as u32, placement, selectivity }
        }
        13 => SendOperation::CompareSwap { remote, compare: 0, swap: 1 },
        _ => SendOperation::Local(local(end, kind % 18, input)),
    };
    let (inline, gathered);
    let small = matches!(
        operation,
        SendOperation::CompareSwap { .. }
            | SendOperation::FetchAdd { .. }
            | SendOperation::AtomicWrite(_)
    );
    let data = match operation {
        SendOperation::Flush { .. } | SendOperation::Local(_) if flags & 0xf0 != 0xf0 => {
            Data::Regions(&[])
        }
        _ if flags & 0x30 == 0x30 => {
            inline = vec![INLINE; if small { 8 } else { usize::from(input.byte()) }];
            Data::Inline(&inline)
        }
        _ => {
            let mut list = sges(end, input);
            if small && flags & 0xc0 != 0xc0 {
                list.truncate(1);
                list.iter_mut().for_each(|sge| sge.len = 8);
            }
            gathered = list;
            Data::Regions(&gathered)
        }
    };
    let datagram = end.qp(qpn).is_some_and(|qp| qp.service == ServiceType::Ud);
    let target = input.any(&end.handles).filter(|_| datagram || flags & 0xf == 0xf);
    let target = target.map(|(path, _)| DatagramTarget {
        path,
        qpn: if input.rarely(4) { Qpn::MULTICAST } else { peer.unwrap_or(Qpn::GSI) },
        q_key: if input.rarely(8) { QKey(0x8000_0001) } else { QKey(0x1111_1111) },
    });
    end.post_send(
        qpn,
        SendRequest {
            wr_id: 0,
            operation,
            data,
            signaled: flags & 1 != 0,
            solicited: flags & 2 != 0,
            fence: flags & 0xc == 0xc,
            target,
        },
    );
}

fn local(end: &End, kind: u8, input: &mut Input<'_>) -> LocalOperation {
    let by = u32::from(input.byte());
    let later = |key: u32| RKey(key & !0xff | key.wrapping_add(by) & 0xff);
    match kind {
        14 | 15 => {
            let window = window(end, input).unwrap_or(RKey(by));
            let region = region(end, input).unwrap_or_default();
            let known = end.memory.regions.iter().find(|known| known.key == region);
            let (start, whole) = known.map_or((0, 8), |r| (start_of(r.access, r.va), r.len));
            let va = start.wrapping_add(if input.flag() { 0 } else { input.number() });
            let len = if input.flag() { whole } else { input.number() };
            // Windows give no local rights, but are mostly asked for those of peers.
            let rights = access(input).bits() & if input.rarely(8) { !0 } else { 0x32e };
            let access = AccessFlags::from_bits(rights).expect("fewer bits");
            let (new_key, span) = (later(window.0), Span { va, len });
            LocalOperation::BindWindow(Binding { window, new_key, region, span, access })
        }
        16 => {
            let fast = end.memory.regions.iter().filter(|region| region.fast).collect::<Vec<_>>();
            let region = input.any(&fast).map_or(RKey(by), |region| RKey(region.key.0));
            let tried = end.memory.registering.last().filter(|_| input.flag());
            let region = tried.map_or(region, |tried| tried.new_key);
            let va = input.number();
            let len = if input.flag() { 64 } else { input.number() };
            let access = access(input);
            let (new_key, span) = (later(region.0), Span { va, len });
            LocalOperation::RegisterMemory(FastRegistration { region, new_key, span, access })
        }
        _ => {
            let fast = region(end, input).unwrap_or_default();
            let window = window(end, input).unwrap_or_default();
            LocalOperation::Invalidate(if input.flag() { window } else { RKey(fast.0) })
        }
    }
}
