//! Shared receive queues.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU32, Ordering};

use roxe_verbs::SharedReceiveQueue;

use crate::domain::Pd;
use crate::errno::{self, Done};
use crate::layout::{
    IBV_SRQ_INIT_ATTR_PD, IBV_SRQ_INIT_ATTR_TYPE, IBV_SRQ_LIMIT, IBV_SRQ_MAX_WR, IBV_SRQT_BASIC,
    ibv_context, ibv_pd, ibv_srq, ibv_srq_attr, ibv_srq_init_attr, ibv_srq_init_attr_ex,
};
use crate::session::{Acknowledged, Object, Session, Use, Users, Waits};
use crate::stories;

/// A shared receive queue.
#[repr(C)]
pub(crate) struct Srq {
    public: ibv_srq,
    pub(crate) queue: Option<SharedReceiveQueue>,
    /// The queue pairs that take from it.
    pub(crate) users: Users,
    pub(crate) told_async: AtomicU32,
    _domain: Use,
}

impl Object for Srq {
    type Public = ibv_srq;
    type Handle = SharedReceiveQueue;

    fn handle(&mut self) -> &mut Option<SharedReceiveQueue> {
        &mut self.queue
    }

    fn context(&self) -> *mut ibv_context {
        self.public.context
    }
}

impl Srq {
    pub(crate) fn queue(&self) -> Done<&SharedReceiveQueue> {
        self.queue.as_ref().ok_or(libc::EIO)
    }

    /// # Safety
    /// It is there.
    pub(crate) const unsafe fn acknowledged(srq: *mut ibv_srq) -> Acknowledged {
        // SAFETY: the caller promises it.
        unsafe {
            Acknowledged {
                mutex: &raw mut (*srq).mutex,
                cond: &raw mut (*srq).cond,
                completed: &raw mut (*srq).events_completed,
            }
        }
    }
}

pub(crate) unsafe extern "C" fn ibv_create_srq(
    pd: *mut ibv_pd,
    attr: *mut ibv_srq_init_attr,
) -> *mut ibv_srq {
    // SAFETY: the program has made the domain, and says what it wants.
    errno::pointer(unsafe {
        attr.as_mut()
            .ok_or(libc::EINVAL)
            .and_then(|wanted| create(pd, wanted.srq_context, &mut wanted.attr))
    })
}

pub(crate) unsafe extern "C" fn create_srq_ex(
    _context: *mut ibv_context,
    attr: *mut ibv_srq_init_attr_ex,
) -> *mut ibv_srq {
    // SAFETY: the program has made what it names.
    errno::pointer(unsafe {
        attr.as_mut().ok_or(libc::EINVAL).and_then(|wanted| {
            let has = |flag| wanted.comp_mask & flag != 0;
            let basic = IBV_SRQT_BASIC.cast_signed();
            if has(IBV_SRQ_INIT_ATTR_TYPE) && wanted.srq_type != basic {
                return Err(libc::EOPNOTSUPP);
            }
            if wanted.comp_mask & !(IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD) != 0
                || !has(IBV_SRQ_INIT_ATTR_PD)
            {
                return Err(libc::EINVAL);
            }
            create(wanted.pd, wanted.srq_context, &mut wanted.attr)
        })
    })
}

unsafe fn create(
    pd: *mut ibv_pd,
    srq_context: *mut c_void,
    wanted: &mut ibv_srq_attr,
) -> Done<*mut ibv_srq> {
    // SAFETY: the caller promises it.
    let (domain, session, context) = unsafe {
        let domain = Pd::of(pd)?;
        let context = (*pd).context;
        (domain, Session::of(context)?, context)
    };
    let made = domain.domain()?.create_srq(wanted.max_wr, wanted.max_sge);
    let queue = made.map_err(stories::refused(session, "ibv_create_srq"))?;
    let id = queue.id().0;
    let public = ibv_srq {
        context,
        srq_context,
        pd,
        handle: id,
        mutex: libc::PTHREAD_MUTEX_INITIALIZER,
        cond: libc::PTHREAD_COND_INITIALIZER,
        events_completed: 0,
    };
    let srq = Srq {
        public,
        queue: Some(queue),
        users: Users::default(),
        told_async: AtomicU32::new(0),
        _domain: domain.users.one_more(),
    };
    let srq = srq.publish(session);
    session.objects().shared_receives.insert(id, srq);
    Ok(srq.cast())
}

pub(crate) unsafe extern "C" fn ibv_modify_srq(
    srq: *mut ibv_srq,
    attr: *mut ibv_srq_attr,
    mask: c_int,
) -> c_int {
    let mask = mask.cast_unsigned();
    // SAFETY: the program has made it, and says how it shall be.
    let done = unsafe { Srq::of(srq).map(|ours| (ours, attr.as_ref())) };
    errno::positive(done.and_then(|(ours, attr)| {
        let attr = attr.filter(|_| mask & !(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT) == 0);
        let attr = attr.ok_or(libc::EINVAL)?;
        let depth = (mask & IBV_SRQ_MAX_WR != 0).then_some(attr.max_wr);
        let limit = (mask & IBV_SRQ_LIMIT != 0).then_some(attr.srq_limit);
        ours.queue()?.modify(depth, limit).map_err(errno::of)
    }))
}

pub(crate) unsafe extern "C" fn ibv_query_srq(srq: *mut ibv_srq, attr: *mut ibv_srq_attr) -> c_int {
    // SAFETY: the program has made it.
    let done = unsafe { Srq::of(srq) }.and_then(|ours| {
        let info = ours.queue()?.query();
        let (max_wr, max_sge, srq_limit) = (info.depth, info.max_sge, info.limit);
        // SAFETY: the program has room for the answer.
        unsafe { attr.write(ibv_srq_attr { max_wr, max_sge, srq_limit }) };
        Ok(())
    });
    errno::positive(done)
}

pub(crate) unsafe extern "C" fn get_srq_num(srq: *mut ibv_srq, number: *mut u32) -> c_int {
    // SAFETY: the program has made it, and has room for the answer.
    let done = unsafe { Srq::of(srq).map(|ours| number.write(ours.public.handle)) };
    errno::positive(done)
}

pub(crate) unsafe extern "C" fn ibv_destroy_srq(srq: *mut ibv_srq) -> c_int {
    // SAFETY: the program has made it and not destroyed it.
    errno::positive(unsafe { destroy(srq) })
}

unsafe fn destroy(srq: *mut ibv_srq) -> Done {
    // SAFETY: the caller promises it.
    unsafe {
        if Srq::is_inherited(srq) {
            return Ok(());
        }
        let ours = Srq::alone(srq)?;
        ours.users.none_left()?;
        Session::of(ours.public.context)?.objects().shared_receives.remove(&ours.public.handle);
        ours.queue = None;
        let told = ours.told_async.load(Ordering::Relaxed);
        let waits = Waits { call: "ibv_destroy_srq", for_call: "ibv_ack_async_event" };
        Srq::acknowledged(srq).wait_for(told, waits);
        drop(Srq::take(srq));
    }
    Ok(())
}
