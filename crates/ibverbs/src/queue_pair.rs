//! Queue pairs: how they are made, connected, asked and destroyed.

use std::ffi::{c_int, c_uint};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use roxe_verbs::{
    AccessFlags, AckTimeout, AddressVector, Attribute as A, AttributeMask, Mtu, PKey, Psn, QKey,
    QpState, Qpn, QueuePair, ReceiveCapacity, RnrTimer, SendCapacity, ServiceType,
};

use crate::address::{attr_of, gid_of, vector_of};
use crate::completion::Cq;
use crate::domain::Pd;
use crate::errno::{self, Done};
use crate::layout::{
    IBV_ACCESS_OPTIONAL_RANGE, IBV_MIG_MIGRATED, IBV_QP_EN_SQD_ASYNC_NOTIFY,
    IBV_QP_EX_WITH_ATOMIC_WRITE, IBV_QP_INIT_ATTR_CREATE_FLAGS, IBV_QP_INIT_ATTR_PD,
    IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, IBV_QP_STATE, IBV_QPS_ERR, IBV_QPS_INIT, IBV_QPS_RESET,
    IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPS_SQD, IBV_QPS_SQE, IBV_QPT_DRIVER, IBV_QPT_RAW_PACKET,
    IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD, ibv_ah_attr, ibv_context, ibv_ece, ibv_gid, ibv_pd, ibv_qp,
    ibv_qp_attr, ibv_qp_cap, ibv_qp_ex, ibv_qp_init_attr, ibv_qp_init_attr_ex,
};
use crate::session::{Acknowledged, Object, Session, Use, Users, Waits};
use crate::shared_receive::Srq;
use crate::stories;
use crate::work_ex::{self, Batch};

/// A queue pair.
#[repr(C)]
pub(crate) struct Qp {
    /// An `ibv_qp` is its beginning.
    pub(crate) public: ibv_qp_ex,
    pub(crate) pair: Option<QueuePair>,
    cap: ibv_qp_cap,
    signal_all: bool,
    /// Where it sends, once it was told.
    path: Mutex<Option<AddressVector>>,
    pub(crate) told_async: AtomicU32,
    /// Domain and queues.
    _parts: Vec<Use>,
    /// It was made for `ibv_wr_start` and what follows.
    pub(crate) batch: Option<Box<Batch>>,
}

impl Object for Qp {
    type Public = ibv_qp;
    type Handle = QueuePair;

    fn handle(&mut self) -> &mut Option<QueuePair> {
        &mut self.pair
    }

    fn context(&self) -> *mut ibv_context {
        self.public.qp_base.context
    }
}

impl Qp {
    pub(crate) fn pair(&self) -> Done<&QueuePair> {
        self.pair.as_ref().ok_or(libc::EIO)
    }

    fn path(&self) -> MutexGuard<'_, Option<AddressVector>> {
        self.path.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it sends datagrams.
    pub(crate) const fn is_ud(&self) -> bool {
        self.public.qp_base.qp_type == IBV_QPT_UD.cast_signed()
    }

    /// # Safety
    /// It is there.
    pub(crate) const unsafe fn acknowledged(qp: *mut ibv_qp) -> Acknowledged {
        // SAFETY: the caller promises it.
        unsafe {
            Acknowledged {
                mutex: &raw mut (*qp).mutex,
                cond: &raw mut (*qp).cond,
                completed: &raw mut (*qp).events_completed,
            }
        }
    }
}

pub(crate) unsafe extern "C" fn ibv_create_qp(
    pd: *mut ibv_pd,
    attr: *mut ibv_qp_init_attr,
) -> *mut ibv_qp {
    // SAFETY: the program has made what it names.
    errno::pointer(unsafe { create_short(pd, attr) })
}

unsafe fn create_short(pd: *mut ibv_pd, attr: *mut ibv_qp_init_attr) -> Done<*mut ibv_qp> {
    // SAFETY: the caller promises it.
    let (context, short) = unsafe {
        let short = attr.as_mut().ok_or(libc::EINVAL)?;
        ((*pd).context, short)
    };
    let mut wanted = extended(short);
    (wanted.comp_mask, wanted.pd) = (IBV_QP_INIT_ATTR_PD, pd);
    // SAFETY: the caller promises it.
    let made = unsafe { create(context, &mut wanted)? };
    short.cap = wanted.cap;
    Ok(made)
}

/// The same wishes where there is room for more; no domain is among them.
pub(crate) fn extended(short: &ibv_qp_init_attr) -> ibv_qp_init_attr_ex {
    // SAFETY: all of it being zero is a value that it may have.
    let mut wanted: ibv_qp_init_attr_ex = unsafe { std::mem::zeroed() };
    wanted.qp_context = short.qp_context;
    (wanted.send_cq, wanted.recv_cq, wanted.srq) = (short.send_cq, short.recv_cq, short.srq);
    (wanted.cap, wanted.qp_type, wanted.sq_sig_all) = (short.cap, short.qp_type, short.sq_sig_all);
    wanted
}

pub(crate) unsafe extern "C" fn create_qp_ex(
    context: *mut ibv_context,
    attr: *mut ibv_qp_init_attr_ex,
) -> *mut ibv_qp {
    // SAFETY: the program has made what it names.
    errno::pointer(unsafe {
        attr.as_mut().ok_or(libc::EINVAL).and_then(|attr| create(context, attr))
    })
}

unsafe fn create(context: *mut ibv_context, wanted: &mut ibv_qp_init_attr_ex) -> Done<*mut ibv_qp> {
    const KNOWN: u32 =
        IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    let has = |flag| wanted.comp_mask & flag != 0;
    if wanted.comp_mask & !KNOWN != 0
        || has(IBV_QP_INIT_ATTR_CREATE_FLAGS) && wanted.create_flags != 0
    {
        return Err(libc::EOPNOTSUPP);
    }
    let service = match wanted.qp_type.cast_unsigned() {
        IBV_QPT_RC => ServiceType::Rc,
        IBV_QPT_UC => ServiceType::Uc,
        IBV_QPT_UD => ServiceType::Ud,
        IBV_QPT_RAW_PACKET..=IBV_QPT_DRIVER => return Err(libc::EOPNOTSUPP),
        _ => return Err(libc::EINVAL),
    };
    let operations = if has(IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) { wanted.send_ops_flags } else { 0 };
    if operations & !work_ex::operations_of(service) != 0 {
        return Err(libc::EOPNOTSUPP);
    }
    if !has(IBV_QP_INIT_ATTR_PD) {
        return Err(libc::EINVAL);
    }
    // SAFETY: the program has made what it names.
    let (session, domain, send_cq, receive_cq) = unsafe {
        let (send, receive) = (Cq::of(wanted.send_cq)?, Cq::of(wanted.recv_cq)?);
        (Session::of(context)?, Pd::of(wanted.pd)?, send, receive)
    };
    let srq = match wanted.srq.is_null() {
        true => None,
        // SAFETY: as above.
        false => Some(unsafe { Srq::of(wanted.srq)? }),
    };
    let cap = &mut wanted.cap;
    if operations & u64::from(IBV_QP_EX_WITH_ATOMIC_WRITE) != 0 {
        // Its eight bytes are in the request.
        cap.max_inline_data = cap.max_inline_data.max(8);
    }
    // Other adapters have this room anyway, and programs count on it without asking.
    cap.max_inline_data = cap.max_inline_data.max(INLINE_ANYWAY);
    if srq.is_some() {
        (cap.max_recv_wr, cap.max_recv_sge) = (0, 0);
    }
    let send = SendCapacity {
        depth: cap.max_send_wr,
        max_sge: cap.max_send_sge,
        max_inline: cap.max_inline_data,
    };
    let receive = ReceiveCapacity { depth: cap.max_recv_wr, max_sge: cap.max_recv_sge };
    let (send_queue, receive_queue) = (send_cq.queue()?, receive_cq.queue()?);
    let builder = domain.domain()?.create_qp(service, send_queue);
    let mut builder = builder.receive_cq(receive_queue).send(send).receive(receive);
    if wanted.sq_sig_all != 0 {
        builder = builder.signal_all();
    }
    let shared = srq.map(Srq::queue).transpose()?;
    if let Some(shared) = shared {
        builder = builder.srq(shared);
    }
    let pair = builder.build().map_err(stories::refused(session, "ibv_create_qp"))?;
    let qpn = pair.qpn().get();

    // SAFETY: all of it being zero is a value that it may have.
    let mut public: ibv_qp_ex = unsafe { std::mem::zeroed() };
    public.qp_base = ibv_qp {
        context,
        qp_context: wanted.qp_context,
        pd: wanted.pd,
        send_cq: wanted.send_cq,
        recv_cq: wanted.recv_cq,
        srq: wanted.srq,
        handle: qpn,
        qp_num: qpn,
        state: IBV_QPS_RESET.cast_signed(),
        qp_type: wanted.qp_type,
        mutex: libc::PTHREAD_MUTEX_INITIALIZER,
        cond: libc::PTHREAD_COND_INITIALIZER,
        events_completed: 0,
    };
    let batch = has(IBV_QP_INIT_ATTR_SEND_OPS_FLAGS).then(Box::default);
    if batch.is_some() {
        work_ex::offer(&mut public, operations);
    }
    let qp = Qp {
        public,
        pair: Some(pair),
        cap: *cap,
        signal_all: wanted.sq_sig_all != 0,
        path: Mutex::default(),
        told_async: AtomicU32::new(0),
        _parts: [&domain.users, &send_cq.users, &receive_cq.users]
            .into_iter()
            .chain(srq.map(|srq| &srq.users))
            .map(Users::one_more)
            .collect(),
        batch,
    };
    let qp = qp.publish(session);
    session.objects().queue_pairs.insert(qpn, qp);
    Ok(qp.cast())
}

pub(crate) unsafe extern "C" fn ibv_qp_to_qp_ex(qp: *mut ibv_qp) -> *mut ibv_qp_ex {
    // SAFETY: the program has made it.
    match unsafe { Qp::of(qp) } {
        Ok(ours) if ours.batch.is_some() => qp.cast(),
        _ => std::ptr::null_mut(),
    }
}

pub(crate) unsafe extern "C" fn ibv_destroy_qp(qp: *mut ibv_qp) -> c_int {
    // SAFETY: the program has made it and not destroyed it.
    errno::positive(unsafe { destroy(qp) })
}

unsafe fn destroy(qp: *mut ibv_qp) -> Done {
    // SAFETY: the caller promises it.
    unsafe {
        if Qp::is_inherited(qp) {
            return Ok(());
        }
        let ours = Qp::alone(qp)?;
        if ours.pair.as_ref().is_some_and(QueuePair::is_in_a_group) {
            return Err(libc::EBUSY);
        }
        let session = Session::of(ours.context())?;
        session.objects().queue_pairs.remove(&ours.public.qp_base.qp_num);
        if let Some(pair) = ours.pair.take() {
            stories::of_end(session, &pair);
        }
        let told = ours.told_async.load(Ordering::Relaxed);
        let waits = Waits { call: "ibv_destroy_qp", for_call: "ibv_ack_async_event" };
        Qp::acknowledged(qp).wait_for(told, waits);
        drop(Qp::take(qp));
    }
    Ok(())
}

pub(crate) unsafe extern "C" fn ibv_modify_qp(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    mask: c_int,
) -> c_int {
    // SAFETY: the program has made it, and says how it shall be.
    errno::positive(unsafe {
        match (Qp::of(qp), attr.as_ref()) {
            (Ok(ours), Some(attr)) => {
                modify(ours, attr, mask.cast_unsigned()).map(|to| (*qp).state = number(to))
            }
            (Err(errno), _) => Err(errno),
            (_, None) => Err(libc::EINVAL),
        }
    })
}

/// Says which state it has then.
fn modify(qp: &Qp, attr: &ibv_qp_attr, mut mask: c_uint) -> Done<QpState> {
    let pair = qp.pair()?;
    let now = pair.query();
    let to = if mask & IBV_QP_STATE != 0 { state(attr.qp_state)? } else { now.state };
    if attr.en_sqd_async_notify == 0 {
        mask &= !IBV_QP_EN_SQD_ASYNC_NOTIFY;
    }
    let given = AttributeMask::from_bits(mask & !IBV_QP_STATE);
    let refuse = |sentence: String| {
        // SAFETY: the context of an object that is there is open.
        unsafe { stories::of_value(qp.context(), pair.qpn().get(), to, &sentence) };
        libc::EINVAL
    };
    let no_such = |what: &str, value: u32| refuse(format!("{what} {value} is none that there is"));
    let mut values = now.attributes;
    if given.contains(A::CurState) {
        values.cur_state = state(attr.cur_qp_state)?;
    }
    if given.contains(A::AccessFlags) {
        let known = attr.qp_access_flags & !IBV_ACCESS_OPTIONAL_RANGE;
        values.access = AccessFlags::from_bits(known).ok_or_else(|| {
            refuse(format!("qp_access_flags 0x{known:x} has a flag that is none"))
        })?;
    }
    if given.contains(A::PkeyIndex) {
        if attr.pkey_index != 0 {
            let index = attr.pkey_index;
            return Err(refuse(format!("pkey_index is {index}, and there is P_Key 0 alone")));
        }
        values.p_key = PKey::DEFAULT;
    }
    if given.contains(A::Port) && attr.port_num != 1 {
        return Err(refuse(format!("port_num is {}, and there is {ONE_PORT}", attr.port_num)));
    }
    if given.contains(A::Av) && attr.ah_attr.is_global != 0 && attr.ah_attr.port_num != 1 {
        let port = attr.ah_attr.port_num;
        return Err(refuse(format!("ah_attr.port_num is {port}, and there is {ONE_PORT}")));
    }
    if given.contains(A::PathMtu) {
        let code = u8::try_from(attr.path_mtu).ok().and_then(Mtu::from_code);
        let value = attr.path_mtu.cast_unsigned();
        values.path_mtu = code.ok_or_else(|| no_such("path_mtu", value))?;
    }
    if given.contains(A::Timeout) {
        values.timeout =
            AckTimeout::new(attr.timeout).ok_or_else(|| no_such("timeout", attr.timeout.into()))?;
    }
    if given.contains(A::MinRnrTimer) {
        values.min_rnr_timer = RnrTimer::new(attr.min_rnr_timer)
            .ok_or_else(|| no_such("min_rnr_timer", attr.min_rnr_timer.into()))?;
    }
    values.q_key = if given.contains(A::Qkey) { QKey(attr.qkey) } else { values.q_key };
    take(given, A::DestQpn, &mut values.dest_qp, Qpn::new(attr.dest_qp_num));
    take(given, A::SqPsn, &mut values.sq_psn, Psn::new(attr.sq_psn));
    take(given, A::RqPsn, &mut values.rq_psn, Psn::new(attr.rq_psn));
    take(given, A::MaxQpRdAtomic, &mut values.max_rd_atomic, attr.max_rd_atomic);
    take(given, A::MaxDestRdAtomic, &mut values.max_dest_rd_atomic, attr.max_dest_rd_atomic);
    take(given, A::RetryCnt, &mut values.retry_cnt, attr.retry_cnt);
    take(given, A::RnrRetry, &mut values.rnr_retry, attr.rnr_retry);
    let vector = match given.contains(A::Av).then(|| vector_of(&attr.ah_attr)).transpose() {
        Ok(vector) => vector,
        Err(errno) => {
            // SAFETY: the context of an object that is there is open.
            unsafe { stories::of_address(qp.context(), &attr.ah_attr, Some(pair.qpn().get())) };
            return Err(errno);
        }
    };
    pair.modify(to, given, &values, vector.as_ref()).map_err(|error| {
        // SAFETY: as above.
        unsafe { stories::of_step(qp.context(), pair.qpn().get(), to, &error) };
        errno::of(error)
    })?;
    let mut path = qp.path();
    *path = if to == QpState::Reset { None } else { vector.or(*path) };
    Ok(to)
}

const ONE_PORT: &str = "port 1 alone";

/// Bytes of inline data that every queue pair takes, as the least of usual adapters.
const INLINE_ANYWAY: u32 = 64;

fn take<T>(given: AttributeMask, attribute: A, value: &mut T, new: T) {
    if given.contains(attribute) {
        *value = new;
    }
}

pub(crate) fn state(number: c_int) -> Done<QpState> {
    Ok(match number.cast_unsigned() {
        IBV_QPS_RESET => QpState::Reset,
        IBV_QPS_INIT => QpState::Init,
        IBV_QPS_RTR => QpState::Rtr,
        IBV_QPS_RTS => QpState::Rts,
        IBV_QPS_SQD => QpState::SqDrain,
        IBV_QPS_SQE => QpState::SqError,
        IBV_QPS_ERR => QpState::Error,
        _ => return Err(libc::EINVAL),
    })
}

pub(crate) const fn number(state: QpState) -> c_int {
    let number = match state {
        QpState::Reset => IBV_QPS_RESET,
        QpState::Init => IBV_QPS_INIT,
        QpState::Rtr => IBV_QPS_RTR,
        QpState::Rts => IBV_QPS_RTS,
        QpState::SqDrain => IBV_QPS_SQD,
        QpState::SqError => IBV_QPS_SQE,
        QpState::Error => IBV_QPS_ERR,
    };
    number.cast_signed()
}

pub(crate) unsafe extern "C" fn ibv_query_qp(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    _mask: c_int,
    init_attr: *mut ibv_qp_init_attr,
) -> c_int {
    // SAFETY: the program has made it, and has room for the answer.
    errno::positive(unsafe { query(qp, attr, init_attr) })
}

unsafe fn query(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, init_attr: *mut ibv_qp_init_attr) -> Done {
    // SAFETY: the caller promises it.
    let ours = unsafe { Qp::of(qp)? };
    let info = ours.pair()?.query();
    let values = info.attributes;
    // SAFETY: all of it being zero is a value that it may have.
    let no_path: ibv_ah_attr = unsafe { std::mem::zeroed() };
    let answer = ibv_qp_attr {
        qp_state: number(info.state),
        cur_qp_state: number(info.state),
        path_mtu: values.path_mtu.code().into(),
        path_mig_state: IBV_MIG_MIGRATED.cast_signed(),
        qkey: values.q_key.0,
        rq_psn: values.rq_psn.get(),
        sq_psn: values.sq_psn.get(),
        dest_qp_num: values.dest_qp.get(),
        qp_access_flags: values.access.bits(),
        cap: ours.cap,
        ah_attr: ours.path().as_ref().map_or(no_path, attr_of),
        alt_ah_attr: no_path,
        pkey_index: 0,
        alt_pkey_index: 0,
        en_sqd_async_notify: 0,
        sq_draining: 0,
        max_rd_atomic: values.max_rd_atomic,
        max_dest_rd_atomic: values.max_dest_rd_atomic,
        min_rnr_timer: values.min_rnr_timer.code(),
        port_num: 1,
        timeout: values.timeout.code(),
        retry_cnt: values.retry_cnt,
        rnr_retry: values.rnr_retry,
        alt_port_num: 0,
        alt_timeout: 0,
        rate_limit: 0,
    };
    let public = &ours.public.qp_base;
    let init = ibv_qp_init_attr {
        qp_context: public.qp_context,
        send_cq: public.send_cq,
        recv_cq: public.recv_cq,
        srq: public.srq,
        cap: ours.cap,
        qp_type: public.qp_type,
        sq_sig_all: ours.signal_all.into(),
    };
    // SAFETY: the caller promises it.
    unsafe {
        (*qp).state = answer.qp_state;
        attr.write(answer);
        init_attr.write(init);
    }
    Ok(())
}

pub(crate) unsafe extern "C" fn ibv_attach_mcast(
    qp: *mut ibv_qp,
    gid: *const ibv_gid,
    _lid: u16,
) -> c_int {
    // SAFETY: the program has made it, and names a group, or none.
    let (ours, group) = unsafe { (Qp::of(qp), gid.as_ref()) };
    let done = ours.and_then(|ours| {
        let group = gid_of(group.ok_or(libc::EINVAL)?);
        ours.pair()?.attach_multicast(group).map_err(errno::of)
    });
    errno::positive(done)
}

pub(crate) unsafe extern "C" fn ibv_detach_mcast(
    qp: *mut ibv_qp,
    gid: *const ibv_gid,
    _lid: u16,
) -> c_int {
    // SAFETY: the program has made it, and names a group, or none.
    let (ours, group) = unsafe { (Qp::of(qp), gid.as_ref()) };
    let done = ours.and_then(|ours| {
        let group = gid_of(group.ok_or(libc::EINVAL)?);
        ours.pair()?.detach_multicast(group).map_err(errno::of)
    });
    errno::positive(done)
}

/// What vendors agree on between their own adapters: nothing with us.
pub(crate) unsafe extern "C" fn ibv_query_ece(_qp: *mut ibv_qp, ece: *mut ibv_ece) -> c_int {
    // SAFETY: the program has room for the answer.
    unsafe { ece.write(ibv_ece { vendor_id: 0, options: 0, comp_mask: 0 }) };
    errno::positive(Err(libc::EOPNOTSUPP))
}

pub(crate) unsafe extern "C" fn ibv_set_ece(_qp: *mut ibv_qp, ece: *mut ibv_ece) -> c_int {
    // Who asks for nothing has it. SAFETY: the program says what it wants.
    let wants = unsafe { ece.as_ref() }.is_some_and(|ece| ece.vendor_id != 0);
    errno::positive(if wants { Err(libc::EOPNOTSUPP) } else { Ok(()) })
}

/// Whether what is written is seen in its order: nothing is promised.
pub(crate) extern "C" fn ibv_query_qp_data_in_order(
    _qp: *mut ibv_qp,
    _operation: c_int,
    _flags: u32,
) -> c_int {
    0
}

/// The adapter's part of a queue pair, for those of this library that know its number.
pub(crate) fn look<R>(
    session: &Session,
    qpn: u32,
    what: impl FnOnce(&QueuePair) -> R,
) -> Option<R> {
    let objects = session.objects();
    let &qp = objects.queue_pairs.get(&qpn)?;
    // SAFETY: it is in the list, so that nobody has destroyed it.
    unsafe { &*qp }.pair.as_ref().map(what)
}
