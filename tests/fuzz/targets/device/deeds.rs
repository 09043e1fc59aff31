//! What goes well: whole messages, windows and registrations, so that what comes next meets more
//! than a device at rest.

use roxe_device::memory::WindowType;
use roxe_transport::qp_state::{QpState, ServiceType};
use roxe_transport::work::{
    AccessFlags, Binding, Data, DatagramTarget, FastRegistration, LocalOperation, Remote,
    SendOperation, SendRequest, Sge, Span,
};
use roxe_wire::{FlushPlacement, FlushSelectivity, ImmDt, QKey, Qpn, RKey};

use crate::World;
use crate::end::End;
use crate::input::Input;
use crate::model::{Region, start_of};

impl World {
    /// A request that a connected queue pair can do, with what it needs at the other end.
    pub fn message(&mut self, at: usize, input: &mut Input<'_>) {
        let Some((qpn, service, peer)) = connected(&self.ends[at], input) else { return };
        let (kind, shape) = (input.byte(), input.byte());
        let [one, two] = &mut self.ends;
        let (end, other) = if at == 0 { (one, two) } else { (two, one) };
        let (Some(own), Some(far)) = (large(end, qpn), large(other, peer)) else { return };
        let len = match shape >> 5 {
            0..=2 => u32::from(shape & 0x1f),
            3 | 4 => 256 * u32::from(shape & 7),
            5 => 256 * u32::from(shape & 7) + 1,
            _ => 1500,
        };
        let far_start = start_of(far.access, far.va);
        let remote = Remote { va: far_start.next_multiple_of(8), r_key: RKey(far.key.0) };
        let inv = match other.memory.bindings.last() {
            Some(bound) if kind & 0x80 != 0 => bound.what.new_key,
            _ => other.memory.registering.last().map_or(RKey(far.key.0), |last| last.new_key),
        };
        let imm = ImmDt(kind.into());
        let operation = match (service, kind % 16) {
            (ServiceType::Ud, kind) if kind % 2 == 0 => SendOperation::Send,
            (ServiceType::Ud, _) | (_, 2) => SendOperation::SendWithImm(imm),
            (_, 3..=5) => SendOperation::Write(remote),
            (_, 6) => SendOperation::WriteWithImm(remote, imm),
            (ServiceType::Rc, 7 | 8) => SendOperation::Read(remote),
            (ServiceType::Rc, 9) => SendOperation::CompareSwap { remote, compare: 1, swap: 2 },
            (ServiceType::Rc, 10) => SendOperation::FetchAdd { remote, add: 3 },
            (ServiceType::Rc, 11) => SendOperation::AtomicWrite(remote),
            (ServiceType::Rc, 12) => SendOperation::Flush {
                remote,
                len,
                placement: FlushPlacement { global_visibility: true, ..Default::default() },
                selectivity: FlushSelectivity::Range,
            },
            (ServiceType::Rc, 13 | 14) => SendOperation::SendWithInv(inv),
            _ => SendOperation::Send,
        };
        let len = match operation {
            SendOperation::CompareSwap { .. }
            | SendOperation::FetchAdd { .. }
            | SendOperation::AtomicWrite(_) => 8,
            SendOperation::Flush { .. } => 0,
            _ => len,
        };
        let va = start_of(own.access, own.va);
        let l_key = own.key;
        // In one piece or in two.
        let first = if shape & 0x10 != 0 { len / 2 } else { len };
        let sges = [
            Sge { va, len: first, l_key },
            Sge { va: va.wrapping_add(first.into()), len: len - first, l_key },
        ];
        let data = match operation {
            SendOperation::Flush { .. } => Data::Regions(&[]),
            _ => Data::Regions(&sges[..if first == len { 1 } else { 2 }]),
        };
        if operation.consumes_receive() && kind & 0x40 == 0 {
            let sge = Sge { va: far_start, len: 2048, l_key: far.key };
            match other.qp(peer).and_then(|qp| qp.srq) {
                Some(srq) => other.post_shared(srq, &[sge]),
                None => other.post_receive(peer, &[sge]),
            }
        }
        let target = (service == ServiceType::Ud).then(|| {
            let to = crate::verbs::vector(at, &mut Input::new(&[]));
            if end.handles.is_empty() {
                let pd = end.qp(qpn).expect("it is there").pd;
                end.create_handle(pd, &to);
            }
            end.handles.first().map(|(path, _)| DatagramTarget {
                path: *path,
                qpn: peer,
                q_key: QKey(0x1111_1111),
            })
        });
        let request = SendRequest {
            wr_id: 0,
            operation,
            data,
            signaled: shape & 1 != 0,
            solicited: shape & 2 != 0,
            fence: service == ServiceType::Rc && shape & 12 == 12,
            target: target.flatten(),
        };
        end.post_send(qpn, request);
    }

    /// The memory of a READ goes while it is answered.
    pub fn vanish(&mut self, at: usize, input: &mut Input<'_>) {
        // A READ of 1500 bytes, by the first queue pair that can.
        self.message(at, &mut Input::new(&[0, 7, 0xff]));
        self.send(at, 16, &mut Input::new(&[]));
        while !self.wires[1 - at].is_empty() {
            self.arrive(1 - at, &mut Input::new(&[]));
        }
        self.send(1 - at, input.below(6), &mut Input::new(&[]));
        let other = &mut self.ends[1 - at];
        let regions = &other.memory.regions;
        let Some(region) = regions.get(input.below(regions.len().max(1))) else { return };
        let (key, host) = (region.key, region.host);
        if input.flag() {
            other.lose(host);
        } else {
            other.deregister(key);
        }
        self.send(1 - at, 16, &mut Input::new(&[]));
    }

    /// A window is opened over a region, or a region registered by work request, or either closed.
    pub fn open(&mut self, at: usize, input: &mut Input<'_>) {
        let Some((qpn, ..)) = connected(&self.ends[at], input) else { return };
        let (kind, by) = (input.byte(), input.byte() & 7);
        let end = &mut self.ends[at];
        let pd = end.qp(qpn).expect("it is there").pd;
        let next = |key: u32| RKey(key & !0xff | key.wrapping_add(by.into()) & 0xff);
        let operation = match kind % 4 {
            0 | 1 => {
                let kind = if kind & 4 == 0 { WindowType::Type1 } else { WindowType::Type2 };
                let windows = end.memory.windows.iter();
                let window = windows.rev().find(|window| window.kind == kind).copied();
                let Some(window) = window else { return end.alloc_window(pd, kind) };
                let bindings = end.memory.bindings.iter().rev();
                let mut keys = bindings.filter(|last| last.what.window.0 >> 8 == window.key.0 >> 8);
                let window = keys.next().map_or(window.key, |last| last.what.new_key);
                let Some(region) = large(end, qpn) else { return };
                LocalOperation::BindWindow(Binding {
                    window,
                    new_key: next(window.0),
                    region: region.key,
                    span: Span { va: start_of(region.access, region.va), len: region.len / 2 },
                    access: AccessFlags::from_bits(0x30e).expect("rights of peers"),
                })
            }
            2 => {
                let fast = end.memory.regions.iter().rev().find(|r| r.fast && r.pd == pd).copied();
                let Some(fast) = fast else { return end.alloc_fast(pd, 64, 64) };
                let registering = end.memory.registering.iter().rev();
                let mut keys = registering.filter(|last| last.region.0 >> 8 == fast.key.0 >> 8);
                let region = keys.next().map_or(RKey(fast.key.0), |last| last.new_key);
                LocalOperation::RegisterMemory(FastRegistration {
                    region,
                    new_key: next(region.0),
                    span: Span { va: 0x2000, len: 64 },
                    access: AccessFlags::from_bits(0x31f).expect("all rights"),
                })
            }
            _ => {
                let window = end.memory.bindings.last().map(|last| last.what.new_key);
                let region = end.memory.registering.last().map(|last| last.new_key);
                let key = if kind & 4 == 0 { window.or(region) } else { region.or(window) };
                LocalOperation::Invalidate(key.unwrap_or_default())
            }
        };
        let request = SendRequest {
            wr_id: 0,
            operation: SendOperation::Local(operation),
            data: Data::Regions(&[]),
            signaled: true,
            solicited: false,
            fence: false,
            target: None,
        };
        end.post_send(qpn, request);
    }
}

/// A queue pair that sends, and its peer.
fn connected(end: &End, input: &mut Input<'_>) -> Option<(Qpn, ServiceType, Qpn)> {
    let ready = end.qps.iter().filter_map(|qp| {
        let info = end.device.query_queue_pair(qp.qpn).ok()?;
        let ready = info.state == QpState::Rts;
        ready.then_some((qp.qpn, qp.service, info.attributes.dest_qp))
    });
    input.any(&ready.collect::<Vec<_>>())
}

/// The largest region that a queue pair may use for anything.
fn large(end: &End, qpn: Qpn) -> Option<Region> {
    let pd = end.qp(qpn)?.pd;
    let regions = end.memory.regions.iter().filter(|r| !r.fast && r.pd == pd && r.len >= 1500);
    regions.copied().max_by_key(|region| region.access.bits() & 0x1f)
}
