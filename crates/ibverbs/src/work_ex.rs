//! Work requests of `ibv_wr_start` and what follows: each is built by calls, and all are posted
//! together.

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{hint, slice, thread};

use roxe_verbs::{
    Data, DatagramTarget, ImmDt, LKey, LocalOperation, RKey, Remote, SendOperation, SendRequest,
    ServiceType, Sge,
};

use crate::errno::{self, Done};
use crate::layout::{
    IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP, IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD,
    IBV_QP_EX_WITH_ATOMIC_WRITE, IBV_QP_EX_WITH_BIND_MW, IBV_QP_EX_WITH_LOCAL_INV,
    IBV_QP_EX_WITH_RDMA_READ, IBV_QP_EX_WITH_RDMA_WRITE, IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM,
    IBV_QP_EX_WITH_SEND, IBV_QP_EX_WITH_SEND_WITH_IMM, IBV_QP_EX_WITH_SEND_WITH_INV,
    IBV_SEND_FENCE, IBV_SEND_SIGNALED, IBV_SEND_SOLICITED, ibv_ah, ibv_data_buf, ibv_mw,
    ibv_mw_bind_info, ibv_qp_ex, ibv_sge,
};
use crate::memory::{binding, key_of};
use crate::queue_pair::Qp;
use crate::session::Object as _;
use crate::work::{target_of, tell_of_refusal};

/// What `ibv_wr_start` and the calls behind it build.
#[derive(Default)]
pub(crate) struct Batch {
    /// A thread builds.
    taken: AtomicBool,
    /// For whoever builds.
    requests: UnsafeCell<Requests>,
}

/// Requests that are being built. They keep their room.
#[derive(Default)]
struct Requests {
    all: Vec<Built>,
    sges: Vec<Sge>,
    bytes: Vec<u8>,
    /// The first mistake.
    mistake: Option<c_int>,
    /// Windows that are bound, with their keys from then on.
    bound: Vec<(*mut ibv_mw, u32)>,
}

/// A request that is being built.
struct Built {
    wr_id: u64,
    flags: u32,
    operation: SendOperation,
    data: Place,
    target: Option<DatagramTarget>,
}

/// Where its data is in the batch.
enum Place {
    Sges(Range<usize>),
    Bytes(Range<usize>),
}

/// What queue pairs of a service can be asked for.
pub(crate) fn operations_of(service: ServiceType) -> u64 {
    const SENDS: u32 = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
    const WRITES: u32 = IBV_QP_EX_WITH_RDMA_WRITE
        | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM
        | IBV_QP_EX_WITH_SEND_WITH_INV
        | IBV_QP_EX_WITH_LOCAL_INV
        | IBV_QP_EX_WITH_BIND_MW;
    const ANSWERED: u32 = IBV_QP_EX_WITH_RDMA_READ
        | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP
        | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD
        | IBV_QP_EX_WITH_ATOMIC_WRITE;
    let operations = match service {
        ServiceType::Ud => SENDS,
        ServiceType::Uc => SENDS | WRITES,
        ServiceType::Rc => SENDS | WRITES | ANSWERED,
    };
    operations.into()
}

/// Gives a program the calls by which it builds requests.
pub(crate) fn offer(qp: &mut ibv_qp_ex, operations: u64) {
    let may = |flag: u32| operations & u64::from(flag) != 0;
    qp.wr_atomic_cmp_swp = may(IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP).then_some(atomic_cmp_swp as _);
    qp.wr_atomic_fetch_add =
        may(IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD).then_some(atomic_fetch_add as _);
    qp.wr_atomic_write = may(IBV_QP_EX_WITH_ATOMIC_WRITE).then_some(atomic_write as _);
    qp.wr_bind_mw = may(IBV_QP_EX_WITH_BIND_MW).then_some(bind_mw as _);
    qp.wr_local_inv = may(IBV_QP_EX_WITH_LOCAL_INV).then_some(local_inv as _);
    qp.wr_rdma_read = may(IBV_QP_EX_WITH_RDMA_READ).then_some(rdma_read as _);
    qp.wr_rdma_write = may(IBV_QP_EX_WITH_RDMA_WRITE).then_some(rdma_write as _);
    qp.wr_rdma_write_imm = may(IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM).then_some(rdma_write_imm as _);
    qp.wr_send = may(IBV_QP_EX_WITH_SEND).then_some(send as _);
    qp.wr_send_imm = may(IBV_QP_EX_WITH_SEND_WITH_IMM).then_some(send_imm as _);
    qp.wr_send_inv = may(IBV_QP_EX_WITH_SEND_WITH_INV).then_some(send_inv as _);
    qp.wr_set_ud_addr = Some(set_ud_addr);
    qp.wr_set_inline_data = Some(set_inline_data);
    qp.wr_set_inline_data_list = Some(set_inline_data_list);
    qp.wr_set_sge = Some(set_sge);
    qp.wr_set_sge_list = Some(set_sge_list);
    qp.wr_start = Some(start);
    qp.wr_complete = Some(complete);
    qp.wr_abort = Some(abort);
}

/// What this thread builds, and the fields that the program sets for each request.
unsafe fn building<'a>(qp: *mut ibv_qp_ex) -> Option<(&'a mut Requests, u64, u32)> {
    // SAFETY: the program has made it, and only this thread builds.
    unsafe {
        let ours = &*qp.cast::<Qp>();
        let batch = ours.batch.as_deref()?;
        Some((&mut *batch.requests.get(), (*qp).wr_id, (*qp).wr_flags))
    }
}

/// One more request.
unsafe fn begin(qp: *mut ibv_qp_ex, operation: SendOperation) {
    // SAFETY: the caller promises it.
    if let Some((batch, wr_id, flags)) = unsafe { building(qp) } {
        let data = Place::Sges(0..0);
        batch.all.push(Built { wr_id, flags, operation, data, target: None });
    }
}

/// What the last request begun is set.
unsafe fn set(qp: *mut ibv_qp_ex, change: impl FnOnce(&mut Requests) -> Option<Place>) {
    // SAFETY: the caller promises it.
    let Some((batch, ..)) = (unsafe { building(qp) }) else { return };
    let place = change(batch);
    match (place, batch.all.last_mut()) {
        (Some(place), Some(request)) => request.data = place,
        (Some(_), None) => batch.mistake = Some(libc::EINVAL),
        (None, _) => {}
    }
}

const fn remote(va: u64, key: u32) -> Remote {
    Remote { va, r_key: RKey(key) }
}

unsafe extern "C" fn send(qp: *mut ibv_qp_ex) {
    // SAFETY: the program builds.
    unsafe { begin(qp, SendOperation::Send) }
}

unsafe extern "C" fn send_imm(qp: *mut ibv_qp_ex, data: u32) {
    // SAFETY: the program builds.
    unsafe { begin(qp, SendOperation::SendWithImm(ImmDt(u32::from_be(data)))) }
}

unsafe extern "C" fn send_inv(qp: *mut ibv_qp_ex, key: u32) {
    // SAFETY: the program builds.
    unsafe { begin(qp, SendOperation::SendWithInv(RKey(key))) }
}

unsafe extern "C" fn rdma_write(qp: *mut ibv_qp_ex, key: u32, va: u64) {
    // SAFETY: the program builds.
    unsafe { begin(qp, SendOperation::Write(remote(va, key))) }
}

unsafe extern "C" fn rdma_write_imm(qp: *mut ibv_qp_ex, key: u32, va: u64, data: u32) {
    let data = ImmDt(u32::from_be(data));
    // SAFETY: the program builds.
    unsafe { begin(qp, SendOperation::WriteWithImm(remote(va, key), data)) }
}

unsafe extern "C" fn rdma_read(qp: *mut ibv_qp_ex, key: u32, va: u64) {
    // SAFETY: the program builds.
    unsafe { begin(qp, SendOperation::Read(remote(va, key))) }
}

unsafe extern "C" fn atomic_cmp_swp(
    qp: *mut ibv_qp_ex,
    key: u32,
    va: u64,
    compare: u64,
    swap: u64,
) {
    // SAFETY: the program builds.
    unsafe { begin(qp, SendOperation::CompareSwap { remote: remote(va, key), compare, swap }) }
}

unsafe extern "C" fn atomic_fetch_add(qp: *mut ibv_qp_ex, key: u32, va: u64, add: u64) {
    // SAFETY: the program builds.
    unsafe { begin(qp, SendOperation::FetchAdd { remote: remote(va, key), add }) }
}

unsafe extern "C" fn atomic_write(qp: *mut ibv_qp_ex, key: u32, va: u64, value: *const c_void) {
    // SAFETY: the program builds, and the eight bytes are there.
    unsafe {
        begin(qp, SendOperation::AtomicWrite(remote(va, key)));
        set_inline_data(qp, value.cast_mut(), 8);
    }
}

unsafe extern "C" fn local_inv(qp: *mut ibv_qp_ex, key: u32) {
    // SAFETY: the program builds.
    unsafe { begin(qp, SendOperation::Local(LocalOperation::Invalidate(RKey(key)))) }
}

unsafe extern "C" fn bind_mw(
    qp: *mut ibv_qp_ex,
    mw: *mut ibv_mw,
    key: u32,
    info: *const ibv_mw_bind_info,
) {
    // SAFETY: the program builds, and has made what it names.
    unsafe {
        match binding(mw, key, &*info) {
            Ok(operation) => {
                begin(qp, operation);
                set(qp, |batch| {
                    batch.bound.push((mw, key_of((*mw).rkey, key)));
                    None
                });
            }
            Err(errno) => set(qp, |batch| {
                batch.mistake = Some(errno);
                None
            }),
        }
    }
}

unsafe extern "C" fn set_ud_addr(qp: *mut ibv_qp_ex, ah: *mut ibv_ah, qpn: u32, q_key: u32) {
    // SAFETY: the program builds, and has made the handle.
    unsafe {
        let target = target_of(ah, qpn, q_key);
        set(qp, |batch| {
            batch.all.last_mut()?.target = target;
            None
        });
    }
}

unsafe extern "C" fn set_sge(qp: *mut ibv_qp_ex, key: u32, va: u64, len: u32) {
    let one = ibv_sge { addr: va, length: len, lkey: key };
    // SAFETY: the program builds.
    unsafe { set_sge_list(qp, 1, &raw const one) }
}

unsafe extern "C" fn set_sge_list(qp: *mut ibv_qp_ex, count: usize, list: *const ibv_sge) {
    // SAFETY: the program builds, and the list is as long as it says.
    unsafe {
        set(qp, |batch| {
            let at = batch.sges.len();
            let list = if count == 0 { &[] } else { slice::from_raw_parts(list, count) };
            batch.sges.extend(list.iter().map(|element| Sge {
                va: element.addr,
                len: element.length,
                l_key: LKey(element.lkey),
            }));
            Some(Place::Sges(at..at + count))
        });
    }
}

unsafe extern "C" fn set_inline_data(qp: *mut ibv_qp_ex, start: *mut c_void, len: usize) {
    let one = ibv_data_buf { addr: start, length: len };
    // SAFETY: the program builds, and the bytes are there.
    unsafe { set_inline_data_list(qp, 1, &raw const one) }
}

unsafe extern "C" fn set_inline_data_list(
    qp: *mut ibv_qp_ex,
    count: usize,
    list: *const ibv_data_buf,
) {
    // SAFETY: the program builds; the list is as long as it says, and the bytes are there.
    unsafe {
        set(qp, |batch| {
            let at = batch.bytes.len();
            let list = if count == 0 { &[] } else { slice::from_raw_parts(list, count) };
            for piece in list.iter().filter(|piece| piece.length != 0) {
                let bytes = slice::from_raw_parts(piece.addr.cast::<u8>(), piece.length);
                batch.bytes.extend_from_slice(bytes);
            }
            Some(Place::Bytes(at..batch.bytes.len()))
        });
    }
}

/// This thread builds from here on; another waits.
unsafe extern "C" fn start(qp: *mut ibv_qp_ex) {
    // SAFETY: the program has made it; only what all threads may do.
    let Some(batch) = (unsafe { &(*qp.cast::<Qp>()).batch }) else { return };
    let mut tries = 0;
    while batch.taken.swap(true, Ordering::Acquire) {
        tries += 1;
        if tries % 64 == 0 { thread::yield_now() } else { hint::spin_loop() }
    }
}

unsafe extern "C" fn complete(qp: *mut ibv_qp_ex) -> c_int {
    // SAFETY: the program builds, and is done with it.
    let done = unsafe {
        let posted = post(qp);
        abort(qp);
        posted
    };
    errno::positive(done)
}

unsafe fn post(qp: *mut ibv_qp_ex) -> Done {
    // SAFETY: the caller promises it.
    let ours = unsafe { Qp::of(qp.cast())? };
    // SAFETY: the program builds.
    let (batch, ..) = unsafe { building(qp) }.ok_or(libc::EINVAL)?;
    batch.mistake.map_or(Ok(()), Err)?;
    let request = |index: usize| {
        let built = &batch.all[index];
        let has = |flag| built.flags & flag != 0;
        SendRequest {
            wr_id: built.wr_id,
            operation: built.operation,
            data: match &built.data {
                Place::Sges(range) => Data::Regions(&batch.sges[range.clone()]),
                Place::Bytes(range) => Data::Inline(&batch.bytes[range.clone()]),
            },
            signaled: has(IBV_SEND_SIGNALED),
            solicited: has(IBV_SEND_SOLICITED),
            fence: has(IBV_SEND_FENCE),
            target: built.target,
        }
    };
    let posted = ours.pair()?.post_all(batch.all.len(), request);
    posted.map_err(|refused| {
        let errno = errno::of_post(refused.reason);
        // SAFETY: the program has made the queue pair.
        unsafe { tell_of_refusal(qp.cast(), "ibv_wr_complete", errno, Some(refused.reason)) };
        errno
    })?;
    for &(mw, key) in &batch.bound {
        // SAFETY: the program has made it. It has its new key from here on.
        unsafe { (*mw).rkey = key };
    }
    Ok(())
}

/// What was built is forgotten, and another thread may build.
unsafe extern "C" fn abort(qp: *mut ibv_qp_ex) {
    // SAFETY: the program builds, and is done with it.
    let Some((batch, ..)) = (unsafe { building(qp) }) else { return };
    batch.all.clear();
    batch.sges.clear();
    batch.bytes.clear();
    batch.bound.clear();
    batch.mistake = None;
    // SAFETY: as above; only what all threads may do.
    if let Some(batch) = unsafe { &(*qp.cast::<Qp>()).batch } {
        batch.taken.store(false, Ordering::Release);
    }
}
