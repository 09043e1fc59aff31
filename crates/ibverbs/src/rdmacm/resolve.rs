//! Addresses and ways: what an identifier is bound to, how it finds a peer, what is set of it.

use std::ffi::{c_int, c_void};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use libc::sockaddr;
use roxe_verbs::cm::{self, CmOptions, CmTimeout, Timing};
use roxe_verbs::{Gid, PKey};

use crate::errno::{self, Done};
use crate::layout::{ibv_context, ibv_gid};
use crate::rdmacm::adapter::{self, Adapter};
use crate::rdmacm::address;
use crate::rdmacm::event::complete;
use crate::rdmacm::id::{End, Private, show, show_addresses};
use crate::rdmacm::layout::{
    RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, RDMA_OPTION_ID_AFONLY, RDMA_OPTION_ID_REUSEADDR,
    RDMA_OPTION_ID_TOS, ibv_sa_path_rec, rdma_cm_id,
};

pub(crate) unsafe extern "C" fn rdma_bind_addr(id: *mut rdma_cm_id, addr: *mut sockaddr) -> c_int {
    // SAFETY: the program has made it, and says where.
    errno::negative(unsafe { address::read(addr).and_then(|address| bind(id, address)) })
}

/// # Safety
/// The identifier is there.
pub(crate) unsafe fn bind(id: *mut rdma_cm_id, address: SocketAddr) -> Done {
    // SAFETY: the caller promises it.
    unsafe {
        let private = Private::of(id)?;
        if !private.state().ends.is_empty() {
            return Err(libc::EINVAL);
        }
        if !address.ip().is_unspecified() {
            let end = End::new(id, adapter::of(address.ip())?)?;
            end.cm.bind(address).map_err(errno::of)?;
            show(id, &end);
            private.state().ends.push(end);
            return Ok(());
        }
        let all = adapter::all();
        if all.is_empty() {
            return Err(libc::ENODEV);
        }
        // Any address of IPv6 is any of IPv4 too, unless the program says otherwise.
        let both = address.is_ipv6() && !private.state().one_family;
        let four = both.then_some(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        let families: Vec<_> = [Some(address.ip()), four].into_iter().flatten().collect();
        let is_taken = |errno: &c_int| *errno == libc::EADDRINUSE;
        let (port, ends) = cm::at_one_port(address.port(), is_taken, |ends| {
            let mut port = address.port();
            for adapter in &all {
                for &any in &families {
                    let end = End::new(id, adapter)?;
                    port = end.cm.bind(SocketAddr::new(any, port)).map_err(errno::of)?.port();
                    ends.push(end);
                }
            }
            Ok(port)
        })?;
        show_addresses(id, Some(SocketAddr::new(address.ip(), port)), None);
        private.state().ends = ends;
    }
    Ok(())
}

pub(crate) unsafe extern "C" fn rdma_resolve_addr(
    id: *mut rdma_cm_id,
    src_addr: *mut sockaddr,
    dst_addr: *mut sockaddr,
    timeout_ms: c_int,
) -> c_int {
    // SAFETY: the program has made it, and says from where and to where.
    errno::negative(unsafe {
        let source = if src_addr.is_null() { Ok(None) } else { address::read(src_addr).map(Some) };
        source.and_then(|source| {
            resolve(id, source, address::read(dst_addr)?, timeout_ms)?;
            complete(id)
        })
    })
}

unsafe fn resolve(
    id: *mut rdma_cm_id,
    source: Option<SocketAddr>,
    destination: SocketAddr,
    timeout_ms: c_int,
) -> Done {
    let timeout = Duration::from_millis(timeout_ms.max(0).cast_unsigned().into());
    // SAFETY: the caller promises that the identifier is there.
    let private = unsafe { Private::of(id)? };
    let bound = std::mem::take(&mut private.state().ends);
    let address = source.map(|source| source.ip()).filter(|source| !source.is_unspecified());
    let attempt = |end: &End| {
        let resolved = end.cm.resolve_address(address, destination, timeout);
        resolved.map_err(errno::of)
    };
    if !bound.is_empty() {
        let order = adapter::towards(destination.ip());
        let place = |end: &Arc<End>| order.iter().position(|it| ptr::eq(*it, end.adapter));
        let mut by_order = bound.clone();
        by_order.sort_by_key(place);
        let mut why = libc::ENETUNREACH;
        for end in by_order {
            // Its events find it as soon as there are any.
            private.state().ends = vec![Arc::clone(&end)];
            match attempt(&end) {
                Ok(()) => {
                    // SAFETY: as above.
                    unsafe { show(id, &end) };
                    return Ok(());
                }
                Err(errno) => why = errno,
            }
        }
        private.state().ends = bound;
        return Err(why);
    }
    let adapters = match address {
        Some(address) => vec![adapter::of(address)?],
        None => adapter::towards(destination.ip()),
    };
    let mut why = libc::ENODEV;
    for adapter in adapters {
        // SAFETY: as above.
        let end = unsafe { End::new(id, adapter)? };
        private.state().ends = vec![Arc::clone(&end)];
        let port = source.filter(|source| source.port() != 0);
        let bound = port.map_or(Ok(()), |source| end.cm.bind(source).map(drop));
        match bound.map_err(errno::of).and_then(|()| attempt(&end)) {
            Ok(()) => {
                // SAFETY: as above.
                unsafe { show(id, &end) };
                return Ok(());
            }
            Err(errno) => why = errno,
        }
        private.state().ends.clear();
    }
    Err(why)
}

pub(crate) unsafe extern "C" fn rdma_resolve_route(
    id: *mut rdma_cm_id,
    _timeout_ms: c_int,
) -> c_int {
    // SAFETY: the program has made it.
    errno::negative(unsafe {
        Private::of(id).and_then(|private| {
            private.end()?.cm.resolve_route().map_err(errno::of)?;
            complete(id)
        })
    })
}

/// Shows the program the way to the peer, of which it is known what an Ethernet has.
///
/// # Safety
/// The identifier is there.
pub(crate) unsafe fn show_path(id: *mut rdma_cm_id, private: &Private, end: &End) {
    let gid = |address: Option<SocketAddr>| {
        let gid = address.map_or(Gid([0; 16]), |address| Gid::from_ip(address.ip()));
        ibv_gid { raw: gid.0 }
    };
    let mut state = private.state();
    let CmOptions { traffic_class, timing } = state.options;
    // SAFETY: all of it being zero is a value that it may have.
    let mut path: Box<ibv_sa_path_rec> = Box::new(unsafe { std::mem::zeroed() });
    path.dgid = gid(end.cm.peer_address());
    path.sgid = gid(end.cm.local_address());
    path.hop_limit = 64;
    path.traffic_class = traffic_class;
    (path.reversible, path.numb_path) = (1, 1);
    path.pkey = PKey::DEFAULT.0.to_be();
    // Exactly these.
    const EXACTLY: u8 = 2;
    (path.mtu_selector, path.mtu) = (EXACTLY, end.adapter.context.path_mtu().code());
    path.rate_selector = EXACTLY;
    path.packet_life_time_selector = EXACTLY;
    path.packet_life_time = timing.packet_lifetime.code();
    let path = state.path.insert(path);
    // SAFETY: the caller promises it.
    unsafe {
        (*id).route.path_rec = ptr::from_mut(&mut **path);
        (*id).route.num_paths = 1;
    }
}

pub(crate) unsafe extern "C" fn rdma_set_option(
    id: *mut rdma_cm_id,
    level: c_int,
    option: c_int,
    value: *mut c_void,
    len: usize,
) -> c_int {
    // SAFETY: the program has made it, and says where the value is.
    errno::negative(unsafe {
        Private::of(id).and_then(|private| {
            if level != RDMA_OPTION_ID {
                // Paths of InfiniBand.
                return Err(libc::EOPNOTSUPP);
            }
            set(private, option, value, len)
        })
    })
}

unsafe fn set(private: &Private, option: c_int, value: *const c_void, len: usize) -> Done {
    let of_length = |wanted| {
        if value.is_null() || len != wanted { Err(libc::EINVAL) } else { Ok(()) }
    };
    let byte = || {
        of_length(1)?;
        // SAFETY: the caller promises that so much is there.
        Ok::<u8, c_int>(unsafe { value.cast::<u8>().read() })
    };
    let switch = || {
        of_length(size_of::<c_int>())?;
        // SAFETY: as above.
        Ok::<bool, c_int>(unsafe { value.cast::<c_int>().read_unaligned() } != 0)
    };
    let mut state = private.state();
    match option {
        RDMA_OPTION_ID_TOS => state.options.traffic_class = byte()?,
        RDMA_OPTION_ID_ACK_TIMEOUT => {
            // Twice the lifetime of a packet, and thus one more.
            let code = byte()?.checked_sub(1).ok_or(libc::EINVAL)?;
            let packet_lifetime = CmTimeout::from_bits(code.min(30));
            state.options.timing = Timing { packet_lifetime, ..state.options.timing };
        }
        RDMA_OPTION_ID_AFONLY => state.one_family = switch()?,
        // A port is free as soon as its identifier is gone: there is nothing to be allowed.
        RDMA_OPTION_ID_REUSEADDR => drop(switch()?),
        _ => return Err(libc::ENOSYS),
    }
    for end in &state.ends {
        end.cm.set_options(state.options);
    }
    Ok(())
}

pub(crate) unsafe extern "C" fn rdma_get_src_port(id: *mut rdma_cm_id) -> u16 {
    // SAFETY: the program has made it.
    unsafe { id.as_ref() }.map_or(0, |id| address::port(&id.route.addr.src_storage))
}

pub(crate) unsafe extern "C" fn rdma_get_dst_port(id: *mut rdma_cm_id) -> u16 {
    // SAFETY: the program has made it.
    unsafe { id.as_ref() }.map_or(0, |id| address::port(&id.route.addr.dst_storage))
}

pub(crate) unsafe extern "C" fn rdma_get_devices(count: *mut c_int) -> *mut *mut ibv_context {
    let verbs = |adapter: &Adapter| adapter.verbs;
    let list: Vec<_> = adapter::all().into_iter().map(verbs).collect();
    if !count.is_null() {
        // SAFETY: the program said where.
        unsafe { *count = c_int::try_from(list.len()).unwrap_or(c_int::MAX) };
    }
    // SAFETY: it is freed by `rdma_free_devices`, and what lies there is all zero.
    let room = unsafe { libc::calloc(list.len() + 1, size_of::<*mut ibv_context>()) };
    let room: *mut *mut ibv_context = room.cast();
    if !room.is_null() {
        // SAFETY: there is room for them.
        unsafe { ptr::copy_nonoverlapping(list.as_ptr(), room, list.len()) };
    }
    room
}

pub(crate) unsafe extern "C" fn rdma_free_devices(list: *mut *mut ibv_context) {
    // SAFETY: made by `rdma_get_devices`.
    unsafe { libc::free(list.cast()) };
}
