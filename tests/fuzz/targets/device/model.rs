//! What the harness knows of a device by what it did to it: who uses what, which requests are
//! outstanding, which bytes may be touched for whom.

use std::collections::{BTreeSet, VecDeque};

use roxe_device::memory::WindowType;
use roxe_device::protection_domain::Pd;
use roxe_device::{CqId, HostRegion, ReceiveQueueId};
use roxe_transport::qp_state::ServiceType;
use roxe_transport::work::{
    AccessFlags, Binding, Completion, CompletionStatus, FastRegistration, Span,
};
use roxe_wire::{LKey, Psn, Qpn, RKey};

use crate::host::{Access, Touch};

/// This bit of a `wr_id` says that it is a receive's.
pub const RECEIVE: u64 = 1 << 63;

#[derive(Clone, Copy, Debug)]
pub struct Domain {
    pub pd: Pd,
    pub users: u32,
}

#[derive(Clone, Copy, Debug)]
pub struct Cq {
    pub id: CqId,
    pub users: u32,
    pub armed: bool,
    /// It overran: completions are missing.
    pub lost: bool,
}

#[derive(Clone, Debug)]
pub struct Srq {
    pub id: ReceiveQueueId,
    pub pd: Pd,
    pub users: u32,
    /// Posted and not completed.
    pub posted: BTreeSet<u64>,
}

#[derive(Clone, Debug)]
pub struct Qp {
    pub qpn: Qpn,
    pub service: ServiceType,
    pub pd: Pd,
    pub send_cq: CqId,
    pub receive_cq: CqId,
    pub srq: Option<ReceiveQueueId>,
    pub signal_all: bool,
    /// Posted and not known to be done, and whether they complete.
    pub sends: VecDeque<(u64, bool)>,
    /// The same for receives of its own.
    pub receives: VecDeque<u64>,
    /// The PSN after the newest request seen from it.
    pub sent: Psn,
    /// The PSN after the newest that it answered.
    pub answered: Psn,
}

impl Qp {
    /// Everything is forgotten.
    pub fn reset(&mut self) {
        self.sends.clear();
        self.receives.clear();
    }

    /// A send request completes, after all that complete before it.
    pub fn complete_send(&mut self, completion: &Completion) {
        let success = completion.status == CompletionStatus::Success;
        loop {
            let Some((wr_id, signaled)) = self.sends.pop_front() else {
                panic!("not outstanding: {completion:?}")
            };
            if wr_id == completion.wr_id {
                assert!(signaled || !success, "nobody asked for {completion:?}");
                return;
            }
            assert!(!signaled, "{wr_id} was before {completion:?}");
        }
    }
}

/// A region.
#[derive(Clone, Copy, Debug)]
pub struct Region {
    pub key: LKey,
    pub pd: Pd,
    pub host: HostRegion,
    pub va: u64,
    pub len: u64,
    pub access: AccessFlags,
    /// Work requests register it, up to `len` bytes.
    pub fast: bool,
}

/// A window.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    pub key: RKey,
    pub pd: Pd,
    pub kind: WindowType,
}

/// A work request that may, when it is carried out, open a window; and on which queue pair.
#[derive(Clone, Copy, Debug)]
pub struct Bound {
    pub what: Binding,
    pub qpn: Qpn,
}

/// What may be opened now. What work requests did is not known exactly: this is the most.
#[derive(Debug, Default)]
pub struct Memory {
    pub regions: Vec<Region>,
    pub windows: Vec<Window>,
    /// Work requests that may, when they are carried out, register a fast region.
    pub registering: Vec<FastRegistration>,
    pub bindings: Vec<Bound>,
}

/// On whose behalf memory is touched.
#[derive(Clone, Copy, Debug)]
pub enum Who {
    /// The adapter, for lists of this domain.
    Local(Pd),
    /// The peer of this queue pair.
    Remote(Pd, Qpn),
}

/// Bytes that a key may open.
#[derive(Clone, Copy)]
struct Open {
    pd: Pd,
    host: HostRegion,
    start: u64,
    offset: u64,
    len: u64,
    access: AccessFlags,
}

pub const fn start_of(access: AccessFlags, va: u64) -> u64 {
    if access.contain(AccessFlags::ZERO_BASED) { 0 } else { va }
}

/// What two keys of one object have in common.
pub const fn index(key: u32) -> u32 {
    key >> 8
}

impl Memory {
    /// The ranges that a region may have.
    fn ranges(&self, region: Region) -> impl Iterator<Item = Open> {
        let Region { pd, host, va, len, access, .. } = region;
        let start = start_of(access, va);
        let whole = (!region.fast).then_some(Open { pd, host, start, offset: 0, len, access });
        let registered = self.registering.iter().filter(move |registering| {
            region.fast && index(registering.region.0) == index(region.key.0)
        });
        let registered = registered.filter(move |registering| registering.span.len <= len);
        let registered = registered.map(move |registering| {
            let FastRegistration { span: Span { va, len }, access, .. } = *registering;
            Open { pd, host, start: start_of(access, va), offset: 0, len, access }
        });
        whole.into_iter().chain(registered)
    }

    /// Whether this may be touched for these.
    pub fn permits(&self, access: &Access, who: &[Who]) -> bool {
        who.iter().any(|who| match *who {
            Who::Local(pd) => {
                let right = match access.touch {
                    Touch::Read => AccessFlags::NONE,
                    _ => AccessFlags::LOCAL_WRITE,
                };
                self.regions
                    .iter()
                    .flat_map(|region| self.ranges(*region))
                    .any(|open| open.pd == pd && open.access.contain(right) && open.holds(access))
            }
            Who::Remote(pd, qpn) => {
                let rights: &[AccessFlags] = match access.touch {
                    Touch::Read => &[AccessFlags::REMOTE_READ],
                    Touch::Write => &[AccessFlags::REMOTE_WRITE],
                    Touch::Modify => &[AccessFlags::REMOTE_ATOMIC],
                    Touch::Flush => &[AccessFlags::FLUSH_GLOBAL, AccessFlags::FLUSH_PERSISTENT],
                };
                let right = |given: AccessFlags| rights.iter().any(|right| given.contain(*right));
                let ranges = || self.regions.iter().flat_map(|region| self.ranges(*region));
                ranges().any(|open| open.pd == pd && right(open.access) && open.holds(access))
                    || self.bindings.iter().any(|bound| {
                        right(bound.what.access) && self.window_holds(bound, access, pd, qpn)
                    })
            }
        })
    }

    fn window_holds(&self, bound: &Bound, access: &Access, pd: Pd, qpn: Qpn) -> bool {
        let binding = &bound.what;
        let window = self.windows.iter().find(|w| index(w.key.0) == index(binding.window.0));
        let Some(window) = window.filter(|window| window.pd == pd) else { return false };
        if window.kind == WindowType::Type2 && bound.qpn != qpn {
            return false;
        }
        let below = self.regions.iter().filter(|r| index(r.key.0) == index(binding.region.0));
        below.flat_map(|region| self.ranges(*region)).any(|open| {
            let Some(at) = binding.span.va.checked_sub(open.start) else { return false };
            at <= open.len
                && binding.span.len <= open.len - at
                && Open { offset: open.offset + at, len: binding.span.len, ..open }.holds(access)
        })
    }
}

impl Open {
    fn holds(&self, access: &Access) -> bool {
        let at = access.offset.checked_sub(self.offset);
        self.host == access.region
            && at.is_some_and(|at| at <= self.len && access.len <= self.len - at)
    }
}
