//! Work requests: lists of C, one request after the other into the engine.

use std::ffi::c_int;
use std::slice;

use roxe_verbs::{
    Data, DatagramTarget, ImmDt, LKey, LocalOperation, PostError, PostReceive, QKey, Qpn, RKey,
    ReceiveRequest, Remote, SendOperation, SendRequest, Sge,
};

use crate::address::Ah;
use crate::errno::{self, Done};
use crate::layout::{
    IBV_SEND_FENCE, IBV_SEND_INLINE, IBV_SEND_SIGNALED, IBV_SEND_SOLICITED,
    IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_WRITE, IBV_WR_BIND_MW,
    IBV_WR_LOCAL_INV, IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND,
    IBV_WR_SEND_WITH_IMM, IBV_WR_SEND_WITH_INV, ibv_ah, ibv_mw, ibv_mw_bind, ibv_qp, ibv_recv_wr,
    ibv_send_wr, ibv_sge, ibv_srq,
};
use crate::memory::{binding, key_of};
use crate::queue_pair::Qp;
use crate::session::Object as _;
use crate::shared_receive::Srq;
use crate::stories;

pub(crate) unsafe extern "C" fn post_send(
    qp: *mut ibv_qp,
    first: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> c_int {
    let mut next = first;
    // SAFETY: the program has made it.
    let (pair, is_ud) =
        match unsafe { Qp::of(qp) }.and_then(|ours| Ok((ours.pair()?, ours.is_ud()))) {
            Ok(found) => found,
            Err(errno) => {
                // SAFETY: the program said where.
                unsafe { *bad = first };
                return errno;
            }
        };
    let mut why = None;
    let done = pair.post_sends(|post| {
        // SAFETY: the list is the program's, and there until we are done.
        while let Some(wr) = unsafe { next.as_ref() } {
            let mut post_one = |request: &SendRequest<'_>| {
                post(request).map_err(|reason| {
                    why = Some(reason);
                    errno::of_post(reason)
                })
            };
            // SAFETY: as above.
            unsafe { send(wr, is_ud, &mut post_one) }?;
            next = wr.next;
        }
        Ok(())
    });
    match done {
        Ok(()) => 0,
        Err(errno) => {
            // SAFETY: the program said where, and has made the queue pair.
            unsafe {
                *bad = next;
                tell_of_refusal(qp, "ibv_post_send", errno, why);
            }
            errno
        }
    }
}

/// A queue that is full is no mistake: programs post until it is.
///
/// # Safety
/// The queue pair is there.
#[cold]
pub(crate) unsafe fn tell_of_refusal(
    qp: *mut ibv_qp,
    call: &'static str,
    errno: c_int,
    why: Option<PostError>,
) {
    if errno == libc::EINVAL {
        // SAFETY: the caller promises it.
        unsafe { stories::of_post((*qp).context, (*qp).qp_num, call, why) };
    }
}

/// Posts one request. Where datagrams go counts for those only: a request to a connection may have
/// anything in its place.
unsafe fn send(
    wr: &ibv_send_wr,
    is_ud: bool,
    post: &mut dyn FnMut(&SendRequest<'_>) -> Done,
) -> Done {
    // SAFETY: the caller promises that all it names is there.
    let operation = unsafe { operation_of(wr)? };
    let target = match is_ud && operation.consumes_receive() {
        // SAFETY: as above.
        true => unsafe { target_of(wr.wr.ud.ah, wr.wr.ud.remote_qpn, wr.wr.ud.remote_qkey) },
        false => None,
    };
    let has = |flag| wr.send_flags & flag != 0;
    let mut post_data = |data: Data<'_>| {
        post(&SendRequest {
            wr_id: wr.wr_id,
            operation,
            data,
            signaled: has(IBV_SEND_SIGNALED),
            solicited: has(IBV_SEND_SOLICITED),
            fence: has(IBV_SEND_FENCE),
            target,
        })
    };
    // SAFETY: as above.
    let list = unsafe { elements(wr.sg_list, wr.num_sge)? };
    if has(IBV_SEND_INLINE) {
        // SAFETY: as above: what is inline is read now.
        unsafe { with_bytes(list, |bytes| post_data(Data::Inline(bytes)))? }?;
    } else {
        with_sges(list, |sges| post_data(Data::Regions(sges)))?;
    }
    if wr.opcode.cast_unsigned() == IBV_WR_BIND_MW {
        // SAFETY: as above; the window has its new key from here on.
        unsafe {
            let key = &mut (*wr.bind_mw.mw).rkey;
            *key = key_of(*key, wr.bind_mw.rkey);
        }
    }
    Ok(())
}

unsafe fn operation_of(wr: &ibv_send_wr) -> Done<SendOperation> {
    // SAFETY: all fields of the union are numbers, and which of them counts the opcode says.
    let (rdma, atomic) = unsafe { (wr.wr.rdma, wr.wr.atomic) };
    let remote = Remote { va: rdma.remote_addr, r_key: RKey(rdma.rkey) };
    let number = Remote { va: atomic.remote_addr, r_key: RKey(atomic.rkey) };
    let immediate = ImmDt(u32::from_be(wr.imm_data));
    Ok(match wr.opcode.cast_unsigned() {
        IBV_WR_SEND => SendOperation::Send,
        IBV_WR_SEND_WITH_IMM => SendOperation::SendWithImm(immediate),
        IBV_WR_SEND_WITH_INV => SendOperation::SendWithInv(RKey(wr.imm_data)),
        IBV_WR_RDMA_WRITE => SendOperation::Write(remote),
        IBV_WR_RDMA_WRITE_WITH_IMM => SendOperation::WriteWithImm(remote, immediate),
        IBV_WR_RDMA_READ => SendOperation::Read(remote),
        IBV_WR_ATOMIC_CMP_AND_SWP => SendOperation::CompareSwap {
            remote: number,
            compare: atomic.compare_add,
            swap: atomic.swap,
        },
        IBV_WR_ATOMIC_FETCH_AND_ADD => {
            SendOperation::FetchAdd { remote: number, add: atomic.compare_add }
        }
        IBV_WR_ATOMIC_WRITE => SendOperation::AtomicWrite(remote),
        IBV_WR_LOCAL_INV => SendOperation::Local(LocalOperation::Invalidate(RKey(wr.imm_data))),
        // SAFETY: the caller promises that the window is there.
        IBV_WR_BIND_MW => unsafe {
            binding(wr.bind_mw.mw, wr.bind_mw.rkey, &wr.bind_mw.bind_info)?
        },
        _ => return Err(libc::EINVAL),
    })
}

/// Where a datagram goes.
///
/// # Safety
/// The handle is one that the program has made, or none.
pub(crate) unsafe fn target_of(ah: *mut ibv_ah, qpn: u32, q_key: u32) -> Option<DatagramTarget> {
    // SAFETY: the caller promises it.
    let handle = unsafe { ah.cast::<Ah>().as_ref()?.handle.as_ref()? };
    Some(handle.target(Qpn::new(qpn), QKey(q_key)))
}

/// A list of elements.
///
/// # Safety
/// The list is the program's, of that length.
unsafe fn elements<'a>(list: *const ibv_sge, count: c_int) -> Done<&'a [ibv_sge]> {
    let count = usize::try_from(count).ok().filter(|&count| count <= MOST_SGES);
    match count.ok_or(libc::EINVAL)? {
        0 => Ok(&[]),
        // SAFETY: the caller promises it.
        count => Ok(unsafe { slice::from_raw_parts(list, count) }),
    }
}

/// Runs a call with the elements as the engine has them.
fn with_sges<R>(list: &[ibv_sge], call: impl FnOnce(&[Sge]) -> R) -> R {
    fn translate<const ROOM: usize, R>(list: &[ibv_sge], call: impl FnOnce(&[Sge]) -> R) -> R {
        let mut room = [Sge::default(); ROOM];
        for (to, from) in room.iter_mut().zip(list) {
            *to = Sge { va: from.addr, len: from.length, l_key: LKey(from.lkey) };
        }
        call(&room[..list.len()])
    }
    // Most requests have one: room for many would cost as much as the rest of the translation.
    match list.len() {
        ..=FEW_SGES => translate::<FEW_SGES, R>(list, call),
        _ => translate::<MOST_SGES, R>(list, call),
    }
}

/// Runs a call with what the elements hold, by address.
///
/// # Safety
/// The memory is there.
unsafe fn with_bytes<R>(list: &[ibv_sge], call: impl FnOnce(&[u8]) -> R) -> Done<R> {
    let place = |element: &ibv_sge| std::ptr::with_exposed_provenance::<u8>(element.addr as usize);
    if let [element @ ibv_sge { length: 1..=MOST_INLINE_LENGTH, .. }] = list {
        // SAFETY: the caller promises it, and the program leaves it alone until we are done.
        return Ok(call(unsafe { slice::from_raw_parts(place(element), element.length as usize) }));
    }
    let mut room = [0; MOST_INLINE];
    let mut at = 0;
    for element in list {
        let len = element.length as usize;
        let to = room.get_mut(at..at + len).ok_or(libc::EINVAL)?;
        // SAFETY: the caller promises that the memory is there, and `to` is ours.
        unsafe { place(element).copy_to_nonoverlapping(to.as_mut_ptr(), len) };
        at += len;
    }
    Ok(call(&room[..at]))
}

pub(crate) unsafe extern "C" fn bind_mw(
    qp: *mut ibv_qp,
    mw: *mut ibv_mw,
    what: *mut ibv_mw_bind,
) -> c_int {
    // SAFETY: the program has made all that it names.
    errno::positive(unsafe { bind(qp, mw, what) })
}

unsafe fn bind(qp: *mut ibv_qp, mw: *mut ibv_mw, what: *const ibv_mw_bind) -> Done {
    // SAFETY: the caller promises it.
    unsafe {
        let (pair, what) = (Qp::of(qp)?.pair()?, what.as_ref().ok_or(libc::EINVAL)?);
        let old = mw.as_ref().ok_or(libc::EINVAL)?.rkey;
        let key = key_of(old, old.wrapping_add(1));
        let request = SendRequest {
            wr_id: what.wr_id,
            operation: binding(mw, key, &what.bind_info)?,
            data: Data::Regions(&[]),
            signaled: what.send_flags & IBV_SEND_SIGNALED != 0,
            solicited: false,
            fence: what.send_flags & IBV_SEND_FENCE != 0,
            target: None,
        };
        pair.post_send(&[request]).map_err(|refused| errno::of_post(refused.reason))?;
        (*mw).rkey = key;
    }
    Ok(())
}

pub(crate) unsafe extern "C" fn post_recv(
    qp: *mut ibv_qp,
    first: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: the program has made it, and the list.
    unsafe {
        match Qp::of(qp).and_then(|ours| ours.pair()) {
            Ok(pair) => {
                let mut why = None;
                let errno = pair.post_receives(|post| receive(first, bad, post, &mut why));
                if errno != 0 {
                    tell_of_refusal(qp, "ibv_post_recv", errno, why);
                }
                errno
            }
            Err(errno) => {
                *bad = first;
                errno
            }
        }
    }
}

pub(crate) unsafe extern "C" fn post_srq_recv(
    srq: *mut ibv_srq,
    first: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: the program has made it, and the list.
    unsafe {
        match Srq::of(srq) {
            Ok(Srq { queue: Some(queue), .. }) => {
                queue.post_receives(|post| receive(first, bad, post, &mut None))
            }
            refused => {
                *bad = first;
                refused.err().unwrap_or(libc::EIO)
            }
        }
    }
}

/// Posts receives until one is refused, and says why.
unsafe fn receive(
    first: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
    post: PostReceive<'_>,
    why: &mut Option<PostError>,
) -> c_int {
    let mut next = first;
    // SAFETY: the list is the program's, and there until we are done.
    while let Some(wr) = unsafe { next.as_ref() } {
        // SAFETY: as above.
        let done = unsafe { elements(wr.sg_list, wr.num_sge) }.and_then(|list| {
            let posted = with_sges(list, |sges| post(&ReceiveRequest { wr_id: wr.wr_id, sges }));
            posted.map_err(|reason| {
                *why = Some(reason);
                errno::of_post(reason)
            })
        });
        if let Err(errno) = done {
            // SAFETY: the program said where.
            unsafe { *bad = next };
            return errno;
        }
        next = wr.next;
    }
    0
}

/// Elements that a request may have: no adapter of ours takes more.
pub(crate) const MOST_SGES: usize = 32;

/// Elements that most requests have at most.
const FEW_SGES: usize = 4;

/// Bytes that a request may carry: no adapter of ours takes more.
pub(crate) const MOST_INLINE: usize = 512;

/// The same, as C has it.
const MOST_INLINE_LENGTH: u32 = MOST_INLINE as u32;
