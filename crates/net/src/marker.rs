//! A switch's congestion marks on a network interface, for switches that are Linux bridges.
//!
//! `bpf/mark_ce.bpf.c` is attached where frames leave the interface, before the queueing
//! discipline. It keeps a queue of its own, as long as that of a link of [`Marking::rate`] would
//! be, and sets CE (RFC 3168) by its length on packets that allow it. What the link itself does, a
//! discipline such as `tbf` of the same rate has to do.
//!
//! What this adapter sends and receives by AF_XDP passes neither the one nor the other on its own
//! interface: this is for the port of a bridge between two adapters.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsFd as _;

use libbpf_rs::skel::{OpenSkel as _, SkelBuilder as _};
use libbpf_rs::{ErrorKind, MapCore as _, MapFlags, MapHandle, OpenObject, TC_EGRESS, TcHook};

use crate::neighbor::Netlink;

#[allow(clippy::undocumented_unsafe_blocks, unreachable_pub, unsafe_code, reason = "generated")]
mod skeleton {
    include!(concat!(env!("OUT_DIR"), "/mark_ce.skel.rs"));
}
use skeleton::{MarkCeSkel, MarkCeSkelBuilder};

/// A link, and which of its packets are marked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Marking {
    /// How fast the queue empties, in bits a second; 8 at least.
    pub rate: u64,
    /// No packet is marked that finds fewer bytes in the queue.
    pub k_min: u32,
    /// From so many bytes on every packet is.
    pub k_max: u32,
    /// How probable a mark is just below `k_max`, 0 ..= 1.
    pub p_max: f64,
    /// So many bytes the queue holds.
    pub limit: u32,
}

/// Marks are made on an interface.
///
/// They go on when this is dropped: until [`Marker::detach`], or until the interface goes.
pub struct Marker {
    queue: MapHandle,
    marks: MapHandle,
    hook: TcHook,
}

impl Marker {
    /// Marks what leaves the interface, from now on. Needs CAP_BPF and CAP_NET_ADMIN.
    ///
    /// # Errors
    /// When there is no such interface, or the kernel refuses: what is said.
    pub fn attach(interface: &str, marking: &Marking) -> io::Result<Self> {
        let all = Netlink::open()?.interfaces()?;
        let index = all.iter().find(|it| it.name == interface).map(|it| it.index);
        let none = || io::Error::new(io::ErrorKind::NotFound, format!("no interface {interface}"));
        let index = i32::try_from(index.ok_or_else(none)?).map_err(|_| none())?;

        let mut storage = MaybeUninit::uninit();
        let loaded = load(&mut storage, marking)?;
        let mut hook = TcHook::new(loaded.progs.mark_ce.as_fd());
        hook.ifindex(index).attach_point(TC_EGRESS).handle(1).priority(1);
        // The discipline for classifiers may be there already.
        match hook.create() {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                return Err(refused("add clsact", &error));
            }
            _ => {}
        }
        let hook = hook.attach().map_err(|error| refused("attach the classifier", &error))?;
        let map = |map| MapHandle::try_from(map).map_err(|error| refused("keep a map", &error));
        Ok(Self { queue: map(&loaded.maps.queue)?, marks: map(&loaded.maps.marks)?, hook })
    }

    /// Marks no more. To be called in the network namespace of the interface.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn detach(mut self) -> io::Result<()> {
        self.hook.detach().map_err(|error| refused("detach the classifier", &error))
    }

    /// What became of packets, by name: `passed`, `marked`, `not_ect` for those that were chosen
    /// and do not allow a mark, `over` for those that found the queue full.
    pub fn counters(&self) -> impl Iterator<Item = (&'static str, u64)> {
        MARKS.into_iter().zip(totals(&self.marks))
    }

    /// Bytes that the last packet found in the queue.
    pub fn queue_length(&self) -> u32 {
        let queue = self.queue.lookup(&[0; 4], MapFlags::ANY).ok().flatten();
        let length = queue.as_deref().and_then(|queue| queue.get(4..8)?.first_chunk());
        length.map_or(0, |length| u32::from_ne_bytes(*length))
    }
}

/// The program in the kernel, attached to nothing.
fn load<'a>(
    storage: &'a mut MaybeUninit<OpenObject>,
    marking: &Marking,
) -> io::Result<MarkCeSkel<'a>> {
    // Its messages would go to standard error; what matters comes back as an error.
    libbpf_rs::set_print(None);
    let open = MarkCeSkelBuilder::default().open(storage);
    let mut open = open.map_err(|error| refused("read the classifier", &error))?;
    let constants = open.maps.rodata_data.as_deref_mut();
    let constants = constants.ok_or_else(|| io::Error::other("the classifier has no constants"))?;
    constants.bytes_per_second = (marking.rate / 8).max(1);
    (constants.k_min, constants.k_max) = (marking.k_min, marking.k_max);
    constants.p_max = (marking.p_max.clamp(0.0, 1.0) * f64::from(u32::MAX)) as u32;
    constants.limit = marking.limit;
    open.load().map_err(|error| refused("load the classifier", &error))
}

/// Each counter, of all processors together.
fn totals(marks: &MapHandle) -> [u64; MARKS.len()] {
    std::array::from_fn(|at| {
        let key = u32::try_from(at).expect("there are few").to_ne_bytes();
        let of_each = marks.lookup_percpu(&key, MapFlags::ANY).ok().flatten();
        let values = of_each.iter().flatten().filter_map(|value| value.first_chunk());
        values.map(|value| u64::from_ne_bytes(*value)).sum()
    })
}

fn refused(what: &str, error: &libbpf_rs::Error) -> io::Error {
    let kind = match error.kind() {
        ErrorKind::PermissionDenied => io::ErrorKind::PermissionDenied,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, format!("cannot {what} (CAP_BPF and CAP_NET_ADMIN): {error:#}"))
}

/// What the program counts, in the order of `bpf/mark_ce.h`.
const MARKS: [&str; 4] = ["passed", "marked", "not_ect", "over"];

#[cfg(test)]
mod tests;
