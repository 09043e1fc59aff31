//! Asynchronous events.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::Ordering;

use roxe_verbs::{AsyncEvent, QpEvent};

use crate::completion::Cq;
use crate::errno::{self, Done};
use crate::layout::{
    IBV_EVENT_COMM_EST, IBV_EVENT_CQ_ERR, IBV_EVENT_DEVICE_FATAL, IBV_EVENT_GID_CHANGE,
    IBV_EVENT_PORT_ACTIVE, IBV_EVENT_PORT_ERR, IBV_EVENT_QP_ACCESS_ERR, IBV_EVENT_QP_FATAL,
    IBV_EVENT_QP_LAST_WQE_REACHED, IBV_EVENT_QP_REQ_ERR, IBV_EVENT_SQ_DRAINED,
    IBV_EVENT_SRQ_LIMIT_REACHED, ibv_async_event, ibv_context,
};
use crate::queue_pair::Qp;
use crate::session::{Acknowledged, Session, waits};
use crate::shared_receive::Srq;
use crate::signals;

pub(crate) unsafe extern "C" fn ibv_get_async_event(
    context: *mut ibv_context,
    event: *mut ibv_async_event,
) -> c_int {
    // SAFETY: the program has opened it, and has room for the answer.
    let done = unsafe { Session::of(context) }.and_then(|session| {
        let found = next_of(session)?;
        // SAFETY: as above.
        unsafe { event.write(found) };
        Ok(())
    });
    errno::negative(done)
}

fn next_of(session: &Session) -> Done<ibv_async_event> {
    // A clone: who closes the context meanwhile leaves the wait what it waits for.
    let (events, fd) = (session.open()?.events.clone(), session.table.verbs.context.async_fd);
    loop {
        let next = match events.try_next() {
            Some(next) => next,
            None if !waits(fd) => return Err(libc::EAGAIN),
            None => events.next_unless(signals::end_waits).ok_or(libc::EINTR)?,
        };
        if let Some(found) = translate(session, next) {
            return Ok(found);
        }
    }
}

/// The event for the program; nothing if its object was destroyed a moment ago, or if programs
/// know of no such event.
fn translate(session: &Session, event: AsyncEvent) -> Option<ibv_async_event> {
    let objects = session.objects();
    let (event_type, element) = match event {
        AsyncEvent::QueuePair(qpn, what) => {
            let &qp = objects.queue_pairs.get(&qpn.get())?;
            // SAFETY: it is in the list, so that nobody has destroyed it.
            unsafe { (*qp).told_async.fetch_add(1, Ordering::Relaxed) };
            (of_queue_pair(what), qp.cast::<c_void>())
        }
        AsyncEvent::CompletionQueueError(cq) => {
            let &cq = objects.completion_queues.get(&cq.0)?;
            // SAFETY: as above.
            unsafe { (*cq).told_async.fetch_add(1, Ordering::Relaxed) };
            (IBV_EVENT_CQ_ERR, cq.cast())
        }
        AsyncEvent::SrqLimitReached(srq) => {
            let &srq = objects.shared_receives.get(&srq.0)?;
            // SAFETY: as above.
            unsafe { (*srq).told_async.fetch_add(1, Ordering::Relaxed) };
            (IBV_EVENT_SRQ_LIMIT_REACHED, srq.cast())
        }
        AsyncEvent::PortActive => (IBV_EVENT_PORT_ACTIVE, PORT),
        AsyncEvent::PortError => (IBV_EVENT_PORT_ERR, PORT),
        AsyncEvent::GidChange => (IBV_EVENT_GID_CHANGE, PORT),
        AsyncEvent::DeviceFatal => (IBV_EVENT_DEVICE_FATAL, PORT),
        _ => return None,
    };
    Some(ibv_async_event { element, event_type: event_type.cast_signed() })
}

const fn of_queue_pair(event: QpEvent) -> u32 {
    match event {
        QpEvent::Fatal => IBV_EVENT_QP_FATAL,
        QpEvent::RequestError => IBV_EVENT_QP_REQ_ERR,
        QpEvent::AccessError => IBV_EVENT_QP_ACCESS_ERR,
        QpEvent::CommunicationEstablished => IBV_EVENT_COMM_EST,
        QpEvent::SqDrained => IBV_EVENT_SQ_DRAINED,
        QpEvent::LastWqeReached => IBV_EVENT_QP_LAST_WQE_REACHED,
    }
}

pub(crate) unsafe extern "C" fn ibv_ack_async_event(event: *mut ibv_async_event) {
    // SAFETY: the program gives back what it was given.
    unsafe {
        let ibv_async_event { element, event_type } = *event;
        let acknowledged: Acknowledged = match event_type.cast_unsigned() {
            IBV_EVENT_CQ_ERR => Cq::acknowledged(element.cast()),
            IBV_EVENT_SRQ_LIMIT_REACHED => Srq::acknowledged(element.cast()),
            IBV_EVENT_QP_FATAL
            | IBV_EVENT_QP_REQ_ERR
            | IBV_EVENT_QP_ACCESS_ERR
            | IBV_EVENT_COMM_EST
            | IBV_EVENT_SQ_DRAINED
            | IBV_EVENT_QP_LAST_WQE_REACHED => Qp::acknowledged(element.cast()),
            _ => return,
        };
        acknowledged.add(1);
    }
}

/// The number of the port, where it stands in an event.
const PORT: *mut c_void = ptr::without_provenance_mut(1);
