//! Identifiers with all that belongs to them, in one call.

use std::ffi::c_int;
use std::slice;

use crate::errno::{self, Done};
use crate::layout::{ibv_pd, ibv_qp_init_attr};
use crate::rdmacm::address;
use crate::rdmacm::event::{Channel, give_back, hand_over};
use crate::rdmacm::id::{Id, Private, Wanted, destroy, give_back_own};
use crate::rdmacm::layout::{
    RAI_PASSIVE, RDMA_CM_EVENT_CONNECT_REQUEST, rdma_addrinfo, rdma_cm_event, rdma_cm_id,
};
use crate::rdmacm::queues::{self, rdma_destroy_srq};
use crate::rdmacm::resolve::{self, rdma_resolve_addr, rdma_resolve_route};

pub(crate) unsafe extern "C" fn rdma_create_ep(
    id: *mut *mut rdma_cm_id,
    info: *mut rdma_addrinfo,
    pd: *mut ibv_pd,
    attr: *mut ibv_qp_init_attr,
) -> c_int {
    // SAFETY: the program has made what it names, and says where the identifier is to be.
    errno::negative(unsafe {
        info.as_ref().ok_or(libc::EINVAL).and_then(|info| {
            let null = std::ptr::null_mut();
            let made = Id::make(null, null.cast(), info.ai_port_space, info.ai_qp_type)?;
            if let Err(errno) = prepare(made, info, pd, attr) {
                rdma_destroy_ep(made);
                return Err(errno);
            }
            id.write(made);
            Ok(())
        })
    })
}

/// 0, or -1 and errno.
fn done(result: c_int) -> Done {
    let why = || std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
    if result == 0 { Ok(()) } else { Err(why()) }
}

unsafe fn prepare(
    id: *mut rdma_cm_id,
    info: &rdma_addrinfo,
    pd: *mut ibv_pd,
    attr: *mut ibv_qp_init_attr,
) -> Done {
    // SAFETY: the caller promises that what it names is there.
    unsafe {
        let private = Private::of(id)?;
        if info.ai_flags & RAI_PASSIVE != 0 {
            resolve::bind(id, address::read(info.ai_src_addr)?)?;
            if !pd.is_null() {
                (*id).pd = pd;
            }
            if let Some(attr) = attr.as_ref() {
                let wanted = ibv_qp_init_attr { qp_type: info.ai_qp_type, ..*attr };
                private.state().queue_pair = Some(Wanted(wanted));
            }
            return Ok(());
        }
        done(rdma_resolve_addr(id, info.ai_src_addr, info.ai_dst_addr, PATIENCE))?;
        done(rdma_resolve_route(id, PATIENCE))?;
        if let Some(attr) = attr.as_mut() {
            attr.qp_type = info.ai_qp_type;
            queues::create_short(id, pd, attr)?;
        }
        if !info.ai_connect.is_null() {
            let data = slice::from_raw_parts(info.ai_connect.cast::<u8>(), info.ai_connect_len);
            private.state().connect_data = data.to_vec();
        }
    }
    Ok(())
}

/// How long a peer's address may take to be resolved, in milliseconds.
const PATIENCE: c_int = 2000;

pub(crate) unsafe extern "C" fn rdma_destroy_ep(id: *mut rdma_cm_id) {
    // SAFETY: the program has made it and not destroyed it.
    unsafe {
        queues::destroy(id);
        rdma_destroy_srq(id);
        // It has no way to say why not.
        let _ = destroy(id);
    }
}

pub(crate) unsafe extern "C" fn rdma_get_request(
    listener: *mut rdma_cm_id,
    id: *mut *mut rdma_cm_id,
) -> c_int {
    // SAFETY: the program has made it, and says where the identifier is to be.
    errno::negative(unsafe { next_request(listener).map(|next| id.write(next)) })
}

unsafe fn next_request(listener: *mut rdma_cm_id) -> Done<*mut rdma_cm_id> {
    // SAFETY: the caller promises that it is there.
    unsafe {
        let private = Private::of(listener)?;
        if !private.waits() {
            return Err(libc::EINVAL);
        }
        give_back_own(listener);
        let event = Channel::of((*listener).channel)?.next()?;
        let rdma_cm_event { id, event: kind, status, .. } = *event;
        if kind != RDMA_CM_EVENT_CONNECT_REQUEST {
            give_back(event);
            return Err(if status == 0 { libc::EINVAL } else { status.abs() });
        }
        hand_over(event, id)?;
        (*id).event = event;
        let wanted = private.state().queue_pair.as_ref().map(|wanted| wanted.0);
        if let Some(mut wanted) = wanted {
            let pd = (*listener).pd;
            let pd = if pd.is_null() || (*pd).context != (*id).verbs { (*id).pd } else { pd };
            if let Err(errno) = queues::create_short(id, pd, &raw mut wanted) {
                destroy(id)?;
                return Err(errno);
            }
        }
        Ok(id)
    }
}
