//! Queue pairs and shared receive queues by an identifier.

use std::ffi::c_int;
use std::{mem, ptr};

use roxe_verbs::QpState;
use roxe_verbs::cm::CmId;

use crate::address::attr_of;
use crate::completion::{
    ibv_create_comp_channel, ibv_create_cq, ibv_destroy_comp_channel, ibv_destroy_cq,
};
use crate::errno::{self, Done};
use crate::layout::{
    IBV_QP_INIT_ATTR_PD, IBV_QP_STATE, IBV_QPS_ERR, IBV_SRQ_INIT_ATTR_PD, ibv_comp_channel, ibv_cq,
    ibv_pd, ibv_qp_attr, ibv_qp_init_attr, ibv_qp_init_attr_ex, ibv_srq_init_attr,
    ibv_srq_init_attr_ex,
};
use crate::queue_pair::{
    create_qp_ex, extended, ibv_destroy_qp, ibv_modify_qp, number as number_of, state as state_of,
};
use crate::rdmacm::id::Private;
use crate::rdmacm::layout::rdma_cm_id;
use crate::shared_receive::{create_srq_ex, ibv_create_srq, ibv_destroy_srq};
use crate::stories;

/// errno, after a function that says null.
fn last() -> c_int {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}

/// A positive errno.
fn done(errno: c_int) -> Done {
    if errno == 0 { Ok(()) } else { Err(errno) }
}

pub(crate) unsafe extern "C" fn rdma_create_qp(
    id: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    attr: *mut ibv_qp_init_attr,
) -> c_int {
    // SAFETY: the program has made what it names.
    errno::negative(unsafe { create_short(id, pd, attr) })
}

/// # Safety
/// What it names is there.
pub(crate) unsafe fn create_short(
    id: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    attr: *mut ibv_qp_init_attr,
) -> Done {
    // SAFETY: the caller promises it.
    unsafe {
        let short = attr.as_mut().ok_or(libc::EINVAL)?;
        let mut wanted = extended(short);
        if !pd.is_null() {
            (wanted.comp_mask, wanted.pd) = (IBV_QP_INIT_ATTR_PD, pd);
        }
        create(id, &mut wanted)?;
        short.cap = wanted.cap;
        (short.send_cq, short.recv_cq, short.srq) = (wanted.send_cq, wanted.recv_cq, wanted.srq);
    }
    Ok(())
}

pub(crate) unsafe extern "C" fn rdma_create_qp_ex(
    id: *mut rdma_cm_id,
    attr: *mut ibv_qp_init_attr_ex,
) -> c_int {
    // SAFETY: the program has made what it names.
    errno::negative(unsafe { attr.as_mut().ok_or(libc::EINVAL).and_then(|attr| create(id, attr)) })
}

/// Makes the queue pair of an identifier, and the completion queues that are missing, and takes it
/// as far as it goes without a peer.
unsafe fn create(id: *mut rdma_cm_id, wanted: &mut ibv_qp_init_attr_ex) -> Done {
    // SAFETY: the caller promises that what it names is there.
    unsafe {
        let private = Private::of(id)?;
        let end = private.end()?;
        if wanted.comp_mask & IBV_QP_INIT_ATTR_PD == 0 {
            wanted.comp_mask |= IBV_QP_INIT_ATTR_PD;
            wanted.pd = (*id).pd;
        }
        let other_adapter = wanted.pd.as_ref().is_none_or(|pd| pd.context != (*id).verbs);
        let twice = |own: *mut ibv_cq, given: *mut ibv_cq| !own.is_null() && !given.is_null();
        if !(*id).qp.is_null()
            || other_adapter
            || twice((*id).send_cq, wanted.send_cq)
            || twice((*id).recv_cq, wanted.recv_cq)
        {
            return Err(libc::EINVAL);
        }
        let made = create_in(id, &end.cm, private.is_datagram(), wanted);
        if made.is_err() {
            destroy(id);
        }
        made
    }
}

unsafe fn create_in(
    id: *mut rdma_cm_id,
    cm: &CmId,
    is_datagram: bool,
    wanted: &mut ibv_qp_init_attr_ex,
) -> Done {
    // SAFETY: the caller promises that what it names is there.
    unsafe {
        if wanted.send_cq.is_null() {
            let (channel, queue) = queue_of(id, wanted.cap.max_send_wr)?;
            ((*id).send_cq_channel, (*id).send_cq) = (channel, queue);
            wanted.send_cq = queue;
        }
        if wanted.recv_cq.is_null() {
            let (channel, queue) = queue_of(id, wanted.cap.max_recv_wr)?;
            ((*id).recv_cq_channel, (*id).recv_cq) = (channel, queue);
            wanted.recv_cq = queue;
        }
        if wanted.srq.is_null() {
            wanted.srq = (*id).srq;
        }
        let qp = create_qp_ex((*id).verbs, wanted);
        if qp.is_null() {
            return Err(last());
        }
        ((*id).qp, (*id).pd) = (qp, wanted.pd);
        move_to(id, cm, QpState::Init, |_| {})?;
        if is_datagram {
            move_to(id, cm, QpState::Rtr, |_| {})?;
            move_to(id, cm, QpState::Rts, |_| {})?;
        }
    }
    Ok(())
}

/// A completion queue with a channel.
unsafe fn queue_of(id: *mut rdma_cm_id, depth: u32) -> Done<(*mut ibv_comp_channel, *mut ibv_cq)> {
    // SAFETY: the caller promises that the identifier is there.
    unsafe {
        let channel = ibv_create_comp_channel((*id).verbs);
        if channel.is_null() {
            return Err(last());
        }
        let depth = c_int::try_from(depth.max(1)).map_err(|_| libc::EINVAL)?;
        let queue = ibv_create_cq((*id).verbs, depth, id.cast(), channel, 0);
        if queue.is_null() {
            let why = last();
            ibv_destroy_comp_channel(channel);
            return Err(why);
        }
        Ok((channel, queue))
    }
}

pub(crate) unsafe extern "C" fn rdma_destroy_qp(id: *mut rdma_cm_id) {
    // SAFETY: the program has made it.
    unsafe { destroy(id) };
}

/// Destroys the queue pair, and the completion queues that were made with it.
///
/// # Safety
/// The identifier is there.
pub(crate) unsafe fn destroy(id: *mut rdma_cm_id) {
    // SAFETY: the caller promises it.
    unsafe {
        let qp = mem::replace(&mut (*id).qp, ptr::null_mut());
        if !qp.is_null() {
            ibv_destroy_qp(qp);
        }
        let none = ptr::null_mut();
        let send = mem::replace(&mut (*id).send_cq, none);
        let receive = mem::replace(&mut (*id).recv_cq, none);
        for queue in [send, receive] {
            if !queue.is_null() {
                ibv_destroy_cq(queue);
            }
        }
        let none = ptr::null_mut();
        let send = mem::replace(&mut (*id).send_cq_channel, none);
        let receive = mem::replace(&mut (*id).recv_cq_channel, none);
        for channel in [send, receive] {
            if !channel.is_null() {
                ibv_destroy_comp_channel(channel);
            }
        }
    }
}

pub(crate) unsafe extern "C" fn rdma_create_srq(
    id: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    attr: *mut ibv_srq_init_attr,
) -> c_int {
    // SAFETY: the program has made what it names.
    errno::negative(unsafe {
        Private::of(id).and_then(|_| {
            let pd = if pd.is_null() { (*id).pd } else { pd };
            keep(id, pd, || ibv_create_srq(pd, attr))
        })
    })
}

pub(crate) unsafe extern "C" fn rdma_create_srq_ex(
    id: *mut rdma_cm_id,
    attr: *mut ibv_srq_init_attr_ex,
) -> c_int {
    // SAFETY: the program has made what it names.
    errno::negative(unsafe {
        Private::of(id).and_then(|_| {
            let wanted = attr.as_mut().ok_or(libc::EINVAL)?;
            if wanted.comp_mask & IBV_SRQ_INIT_ATTR_PD == 0 {
                wanted.comp_mask |= IBV_SRQ_INIT_ATTR_PD;
                wanted.pd = (*id).pd;
            }
            keep(id, wanted.pd, || create_srq_ex((*id).verbs, attr))
        })
    })
}

unsafe fn keep(
    id: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    make: impl FnOnce() -> *mut crate::layout::ibv_srq,
) -> Done {
    // SAFETY: the caller promises that what it names is there.
    unsafe {
        let other_adapter = pd.as_ref().is_none_or(|pd| pd.context != (*id).verbs);
        if other_adapter || !(*id).srq.is_null() {
            return Err(libc::EINVAL);
        }
        let srq = make();
        if srq.is_null() {
            return Err(last());
        }
        ((*id).srq, (*id).pd) = (srq, pd);
    }
    Ok(())
}

pub(crate) unsafe extern "C" fn rdma_destroy_srq(id: *mut rdma_cm_id) {
    // SAFETY: the program has made it.
    unsafe {
        let srq = mem::replace(&mut (*id).srq, ptr::null_mut());
        if !srq.is_null() {
            ibv_destroy_srq(srq);
        }
    }
}

/// How a queue pair is moved to a state, as `ibv_modify_qp` wants it.
fn attributes(cm: &CmId, to: QpState) -> Done<(ibv_qp_attr, c_int)> {
    let step = cm.qp_attributes(to).map_err(errno::of)?;
    let values = step.values;
    // SAFETY: all of it being zero is a value that it may have.
    let mut attr: ibv_qp_attr = unsafe { mem::zeroed() };
    attr.qp_state = number_of(to);
    attr.path_mtu = values.path_mtu.code().into();
    attr.qkey = values.q_key.0;
    (attr.rq_psn, attr.sq_psn) = (values.rq_psn.get(), values.sq_psn.get());
    attr.dest_qp_num = values.dest_qp.get();
    attr.qp_access_flags = values.access.bits();
    if let Some(vector) = &step.vector {
        attr.ah_attr = attr_of(vector);
    }
    attr.max_rd_atomic = values.max_rd_atomic;
    attr.max_dest_rd_atomic = values.max_dest_rd_atomic;
    attr.min_rnr_timer = values.min_rnr_timer.code();
    attr.port_num = 1;
    attr.timeout = values.timeout.code();
    (attr.retry_cnt, attr.rnr_retry) = (values.retry_cnt, values.rnr_retry);
    Ok((attr, (step.given.bits() | IBV_QP_STATE).cast_signed()))
}

/// Moves the queue pair of an identifier as its connection wants it.
///
/// # Safety
/// The identifier and its queue pair are there.
pub(crate) unsafe fn move_to(
    id: *mut rdma_cm_id,
    cm: &CmId,
    to: QpState,
    change: impl FnOnce(&mut ibv_qp_attr),
) -> Done {
    let (mut attr, mask) = attributes(cm, to)?;
    change(&mut attr);
    // SAFETY: the caller promises it.
    done(unsafe { ibv_modify_qp((*id).qp, &raw mut attr, mask) })
}

/// The connection is over: so is the queue pair, if the identifier has one.
///
/// # Safety
/// The identifier is there.
pub(crate) unsafe fn move_to_error(id: *mut rdma_cm_id) {
    // SAFETY: the caller promises it; all of it being zero is a value that it may have.
    unsafe {
        if !(*id).qp.is_null() {
            let mut attr: ibv_qp_attr = mem::zeroed();
            attr.qp_state = IBV_QPS_ERR.cast_signed();
            stories::of_parting((*id).qp);
            // From every state there is a way.
            ibv_modify_qp((*id).qp, &raw mut attr, IBV_QP_STATE.cast_signed());
        }
    }
}

pub(crate) unsafe extern "C" fn rdma_init_qp_attr(
    id: *mut rdma_cm_id,
    attr: *mut ibv_qp_attr,
    mask: *mut c_int,
) -> c_int {
    // SAFETY: the program has made it, and has room for the answer.
    errno::negative(unsafe {
        Private::of(id).and_then(|private| {
            let to = state_of(attr.as_ref().ok_or(libc::EINVAL)?.qp_state)?;
            let (found, given) = attributes(&private.end()?.cm, to)?;
            attr.write(found);
            mask.write(given);
            Ok(())
        })
    })
}
