//! The tables of functions in a context: what `verbs.h` calls without naming a symbol.

use std::ffi::c_void;
use std::mem;
use std::ptr;

use crate::completion::{VECTORS, create_cq_ex, poll_cq, req_notify_cq};
use crate::domain::{alloc_parent_domain, alloc_td, dealloc_td};
use crate::layout::{ibv_device, verbs_context_of_today};
use crate::memory::{advise_mr, alloc_mw, dealloc_mw};
use crate::query::{query_device_ex, query_port, query_rt_values};
use crate::queue_pair::create_qp_ex;
use crate::shared_receive::{create_srq_ex, get_srq_num};
use crate::work::{bind_mw, post_recv, post_send, post_srq_recv};

/// A context without descriptors. What we do not have is not there, and programs see that.
pub(crate) fn new(device: *mut ibv_device) -> verbs_context_of_today {
    // SAFETY: all of it being zero is a value that it may have.
    let mut table: verbs_context_of_today = unsafe { mem::zeroed() };
    let verbs = &mut table.verbs;
    verbs.query_port = Some(query_port);
    verbs.advise_mr = Some(advise_mr);
    verbs.alloc_parent_domain = Some(alloc_parent_domain);
    verbs.alloc_td = Some(alloc_td);
    verbs.dealloc_td = Some(dealloc_td);
    verbs.query_rt_values = Some(query_rt_values);
    verbs.create_cq_ex = Some(create_cq_ex);
    verbs.query_device_ex = Some(query_device_ex);
    verbs.create_qp_ex = Some(create_qp_ex);
    verbs.get_srq_num = Some(get_srq_num);
    verbs.create_srq_ex = Some(create_srq_ex);
    verbs.sz = size_of::<verbs_context_of_today>();

    let context = &mut verbs.context;
    context.device = device;
    context.num_comp_vectors = VECTORS;
    context.mutex = libc::PTHREAD_MUTEX_INITIALIZER;
    // This says that there is a table before it.
    context.abi_compat = ptr::without_provenance_mut::<c_void>(usize::MAX);
    let ops = &mut context.ops;
    ops.alloc_mw = Some(alloc_mw);
    ops.bind_mw = Some(bind_mw);
    ops.dealloc_mw = Some(dealloc_mw);
    ops.poll_cq = Some(poll_cq);
    ops.req_notify_cq = Some(req_notify_cq);
    ops.post_srq_recv = Some(post_srq_recv);
    ops.post_send = Some(post_send);
    ops.post_recv = Some(post_recv);
    table
}
