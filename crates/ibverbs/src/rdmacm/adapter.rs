//! Which adapters there are for identifiers, and whose an address is.

use std::ffi::c_int;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::sync::{Mutex, PoisonError};

use roxe_verbs::Context;

use crate::device::{ibv_free_device_list, ibv_get_device_list, ibv_open_device};
use crate::domain::ibv_alloc_pd;
use crate::errno::Done;
use crate::layout::{ibv_context, ibv_pd};
use crate::session::{Life, Session};
use crate::stories;

/// An adapter that is open for identifiers, as long as the process is there.
pub(crate) struct Adapter {
    /// What programs have of it.
    pub(crate) verbs: *mut ibv_context,
    /// For who has no protection domain of his own.
    pub(crate) pd: *mut ibv_pd,
    pub(crate) context: Context,
    device: usize,
    life: Life,
}

// SAFETY: what the pointers are to is there as long as the process, and for all threads.
unsafe impl Send for Adapter {}
// SAFETY: as above.
unsafe impl Sync for Adapter {}

static OPEN: Mutex<Vec<&'static Adapter>> = Mutex::new(Vec::new());

/// All that can be opened, in their order.
pub(crate) fn all() -> Vec<&'static Adapter> {
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    // Those of a process that forked are not ours.
    open.retain(|adapter| adapter.life.goes_on());
    let mut count: c_int = 0;
    // SAFETY: there is room for the number.
    let list = unsafe { ibv_get_device_list(&raw mut count) };
    let mut all = Vec::new();
    for at in 0..usize::try_from(count).unwrap_or(0) {
        // SAFETY: the list has so many.
        let device = unsafe { *list.add(at) };
        if let Some(known) = open.iter().find(|adapter| adapter.device == device.addr()) {
            all.push(*known);
            continue;
        }
        // SAFETY: the device is from the list, and what it makes is not given to anybody else.
        let opened = unsafe {
            let verbs = ibv_open_device(device);
            Session::of(verbs).and_then(Session::context).map(|context| Adapter {
                verbs,
                pd: ibv_alloc_pd(verbs),
                context: context.clone(),
                device: device.addr(),
                life: Life::now(),
            })
        };
        // Why not was said.
        let Ok(adapter) = opened else { continue };
        let adapter: &'static Adapter = Box::leak(Box::new(adapter));
        open.push(adapter);
        all.push(adapter);
    }
    // SAFETY: it is the list from before.
    unsafe { ibv_free_device_list(list) };
    all
}

/// Whose an address is.
pub(crate) fn of(address: IpAddr) -> Done<&'static Adapter> {
    let all = all();
    if all.is_empty() {
        return Err(libc::ENODEV);
    }
    all.into_iter().find(|it| it.has(address)).ok_or_else(|| {
        tell_of_stranger(address);
        libc::EADDRNOTAVAIL
    })
}

/// An address is asked for that no adapter has.
pub(crate) fn tell_of_stranger(address: IpAddr) {
    let own = |adapter: &Adapter| {
        let addresses: Vec<_> = adapter.context.addresses().map(|own| own.to_string()).collect();
        format!("{} has {}", adapter.context.name(), addresses.join(", "))
    };
    let all: Vec<_> = all().into_iter().map(own).collect();
    let there = all.join("; ");
    stories::of_what_is_missing(&format!("{address} is the address of no adapter: {there}"));
}

/// All, those first that packets to `destination` are likely to leave by.
pub(crate) fn towards(destination: IpAddr) -> Vec<&'static Adapter> {
    let mut all = all();
    let likely = source_for(destination);
    all.sort_by_key(|it| !(it.has(destination) || likely.is_some_and(|likely| it.has(likely))));
    all
}

/// The address that the kernel would take.
fn source_for(destination: IpAddr) -> Option<IpAddr> {
    let any: IpAddr = match destination {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    // Nothing is sent.
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect((destination, 9)).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

impl Adapter {
    fn has(&self, address: IpAddr) -> bool {
        self.context.addresses().any(|own| own == address)
    }
}
