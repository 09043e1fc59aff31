//! Connections: who listens, who asks, who answers, and how they end.

use std::ffi::{c_int, c_void};
use std::net::{Ipv4Addr, SocketAddr};
use std::slice;

use roxe_verbs::cm::{CallError, CmError, CmParameters, RejectReason};
use roxe_verbs::{Error, QpState, Qpn, ServiceType};

use crate::errno::{self, Done};
use crate::layout::{IBV_EVENT_COMM_EST, IBV_QPT_UC, ibv_ece};
use crate::rdmacm::event::complete;
use crate::rdmacm::id::{End, Private, show_addresses};
use crate::rdmacm::layout::{RDMA_MAX_INIT_DEPTH, RDMA_MAX_RESP_RES, rdma_cm_id, rdma_conn_param};
use crate::rdmacm::{queues, resolve};

pub(crate) unsafe extern "C" fn rdma_listen(id: *mut rdma_cm_id, backlog: c_int) -> c_int {
    // SAFETY: the program has made it.
    errno::negative(unsafe { listen(id, backlog) })
}

unsafe fn listen(id: *mut rdma_cm_id, backlog: c_int) -> Done {
    // SAFETY: the caller promises that the identifier is there.
    let private = unsafe { Private::of(id)? };
    if private.state().ends.is_empty() {
        // SAFETY: as above.
        unsafe { resolve::bind(id, SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0))? };
    }
    let most = usize::try_from(backlog).ok().filter(|&backlog| backlog != 0);
    let ends = private.state().ends.clone();
    for end in &ends {
        end.cm.listen(most.unwrap_or(MOST_WAITING)).map_err(errno::of)?;
    }
    Ok(())
}

/// Requests that wait where the program does not say how many may.
pub(crate) const MOST_WAITING: usize = 1024;

/// READs and atomics at once: to be answered, and under way.
#[derive(Clone, Copy)]
struct Reads {
    responder_resources: u8,
    initiator_depth: u8,
}

/// What a program says of its side, or what librdmacm takes for it where it says nothing.
///
/// # Safety
/// The identifier is there, and so is what the parameters point to.
unsafe fn parameters<'a>(
    id: *mut rdma_cm_id,
    private: &Private,
    param: *const rdma_conn_param,
) -> Done<CmParameters<'a>> {
    // SAFETY: the caller promises it.
    let (given, qp, qp_type) = unsafe { (param.as_ref(), (*id).qp.as_ref(), (*id).qp_type) };
    let qpn = match (qp, given) {
        (Some(qp), _) => qp.qp_num,
        (None, Some(given)) => given.qp_num,
        // Who asks for datagrams needs none.
        (None, None) if private.is_datagram() => 0,
        (None, None) => return Err(libc::EINVAL),
    };
    let is_unreliable = qp.map_or(qp_type, |qp| qp.qp_type) == IBV_QPT_UC.cast_signed();
    let service = match (private.is_datagram(), is_unreliable) {
        (true, _) => ServiceType::Ud,
        (false, true) => ServiceType::Uc,
        (false, false) => ServiceType::Rc,
    };
    let mut parameters = CmParameters::new(Qpn::new(qpn), service);
    if let Some(given) = given {
        parameters.flow_control = given.flow_control != 0;
        parameters.responder_resources = given.responder_resources;
        parameters.initiator_depth = given.initiator_depth;
        parameters.retry_count = given.retry_count;
        parameters.rnr_retry_count = given.rnr_retry_count;
        parameters.srq = given.srq != 0;
        // SAFETY: as above.
        parameters.private_data = unsafe { bytes(given.private_data, given.private_data_len) };
    }
    if let Some(qp) = qp {
        parameters.srq = !qp.srq.is_null();
    }
    Ok(parameters)
}

/// # Safety
/// So many bytes are there.
unsafe fn bytes<'a>(data: *const c_void, len: u8) -> &'a [u8] {
    if data.is_null() {
        return &[];
    }
    // SAFETY: the caller promises it.
    unsafe { slice::from_raw_parts(data.cast(), len.into()) }
}

pub(crate) unsafe extern "C" fn rdma_connect(
    id: *mut rdma_cm_id,
    param: *mut rdma_conn_param,
) -> c_int {
    // SAFETY: the program has made it, and says with what.
    errno::negative(unsafe { connect(id, param).and_then(|()| complete(id)) })
}

unsafe fn connect(id: *mut rdma_cm_id, param: *const rdma_conn_param) -> Done {
    // SAFETY: the caller promises that what it names is there.
    let (private, given) = unsafe {
        let private = Private::of(id)?;
        (private, parameters(id, private, param)?)
    };
    let end = private.end()?;
    let mut private_data = private.state().connect_data.clone();
    private_data.extend_from_slice(given.private_data);
    let given = CmParameters { private_data: &private_data, ..given };
    end.cm.connect(&given).map_err(errno::of)?;
    // SAFETY: as above.
    unsafe { show_addresses(id, end.cm.local_address(), end.cm.peer_address()) };
    Ok(())
}

pub(crate) unsafe extern "C" fn rdma_accept(
    id: *mut rdma_cm_id,
    param: *mut rdma_conn_param,
) -> c_int {
    // SAFETY: the program has made it, and says with what.
    errno::negative(unsafe { accept(id, param) })
}

unsafe fn accept(id: *mut rdma_cm_id, param: *const rdma_conn_param) -> Done {
    // SAFETY: the caller promises that what it names is there.
    unsafe {
        let private = Private::of(id)?;
        let end = private.end()?;
        let given = parameters(id, private, param)?;
        if private.is_datagram() {
            // Nothing follows.
            return end.cm.accept(&given).map_err(errno::of);
        }
        let reads = reads_of(private, &end, &given);
        if !(*id).qp.is_null() {
            make_ready(id, &end, reads)?;
        }
        let Reads { responder_resources, initiator_depth } = reads;
        let given = CmParameters { responder_resources, initiator_depth, ..given };
        if let Err(error) = end.cm.accept(&given) {
            queues::move_to_error(id);
            return Err(errno::of(error));
        }
        complete(id)
    }
}

/// READs of who accepts: who wants as many as possible gets what the peer offered.
fn reads_of(private: &Private, end: &End, given: &CmParameters<'_>) -> Reads {
    let (answered, under_way) = private.state().offered;
    let limits = end.adapter.context.query_device();
    let or_offered = |wanted: u8, most: c_int, offered| {
        if c_int::from(wanted) == most { offered } else { wanted }
    };
    let responder_resources = or_offered(given.responder_resources, RDMA_MAX_RESP_RES, answered);
    let initiator_depth = or_offered(given.initiator_depth, RDMA_MAX_INIT_DEPTH, under_way);
    Reads {
        responder_resources: responder_resources.min(limits.max_qp_rd_atom),
        initiator_depth: initiator_depth.min(limits.max_qp_init_rd_atom),
    }
}

/// The queue pair receives before the peer hears that it may send, and sends as soon as it does.
unsafe fn make_ready(id: *mut rdma_cm_id, end: &End, reads: Reads) -> Done {
    let Reads { responder_resources, initiator_depth } = reads;
    // SAFETY: the caller promises that the identifier and its queue pair are there.
    unsafe {
        queues::move_to(id, &end.cm, QpState::Init, |_| {})?;
        queues::move_to(id, &end.cm, QpState::Rtr, |attr| {
            attr.max_dest_rd_atomic = responder_resources;
        })?;
        queues::move_to(id, &end.cm, QpState::Rts, |attr| attr.max_rd_atomic = initiator_depth)
    }
}

pub(crate) unsafe extern "C" fn rdma_reject(
    id: *mut rdma_cm_id,
    private_data: *const c_void,
    len: u8,
) -> c_int {
    // SAFETY: the program has made it, and says with what.
    errno::negative(unsafe { reject(id, RejectReason::ConsumerReject, private_data, len) })
}

pub(crate) unsafe extern "C" fn rdma_reject_ece(
    id: *mut rdma_cm_id,
    private_data: *const c_void,
    len: u8,
) -> c_int {
    let reason = RejectReason::VendorOptionNotSupported;
    // SAFETY: the program has made it, and says with what.
    errno::negative(unsafe { reject(id, reason, private_data, len) })
}

unsafe fn reject(
    id: *mut rdma_cm_id,
    reason: RejectReason,
    private_data: *const c_void,
    len: u8,
) -> Done {
    // SAFETY: the caller promises that what it names is there.
    let (private, private_data) = unsafe { (Private::of(id)?, bytes(private_data, len)) };
    private.end()?.cm.reject(reason, private_data).map_err(errno::of)
}

pub(crate) unsafe extern "C" fn rdma_establish(id: *mut rdma_cm_id) -> c_int {
    // SAFETY: the program has made it.
    errno::negative(unsafe {
        Private::of(id).and_then(|private| {
            // With a queue pair of its own it is done already.
            if !(*id).qp.is_null() {
                return Err(libc::EINVAL);
            }
            private.end()?.cm.establish().map_err(errno::of)
        })
    })
}

pub(crate) unsafe extern "C" fn rdma_disconnect(id: *mut rdma_cm_id) -> c_int {
    // SAFETY: the program has made it.
    errno::negative(unsafe {
        Private::of(id).and_then(|private| {
            let end = private.end()?;
            queues::move_to_error(id);
            match end.cm.disconnect() {
                Ok(()) => complete(id),
                // It is over, or never stood. That is what was asked for, and nothing follows.
                Err(Error::Cm(CmError::Call(CallError::Gone | CallError::WrongState))) => Ok(()),
                Err(error) => Err(errno::of(error)),
            }
        })
    })
}

pub(crate) unsafe extern "C" fn rdma_notify(id: *mut rdma_cm_id, event: c_int) -> c_int {
    // SAFETY: the program has made it.
    errno::negative(unsafe {
        Private::of(id).and_then(|private| {
            if event.cast_unsigned() != IBV_EVENT_COMM_EST {
                return Err(libc::EINVAL);
            }
            private.end()?.cm.notify_established().map_err(errno::of)
        })
    })
}

/// What vendors agree on between their own adapters: nothing with us.
pub(crate) unsafe extern "C" fn rdma_set_local_ece(
    id: *mut rdma_cm_id,
    ece: *mut ibv_ece,
) -> c_int {
    // SAFETY: the program has made it, and says what it wants.
    errno::negative(unsafe {
        Private::of(id).and_then(|_| match ece.as_ref().ok_or(libc::EINVAL)?.vendor_id {
            0 => Ok(()),
            _ => Err(libc::EOPNOTSUPP),
        })
    })
}

pub(crate) unsafe extern "C" fn rdma_get_remote_ece(
    id: *mut rdma_cm_id,
    ece: *mut ibv_ece,
) -> c_int {
    // SAFETY: the program has made it, and has room for the answer.
    errno::negative(unsafe {
        Private::of(id).and_then(|_| {
            let room = ece.as_mut().ok_or(libc::EINVAL)?;
            *room = ibv_ece { vendor_id: 0, options: 0, comp_mask: 0 };
            Ok(())
        })
    })
}
