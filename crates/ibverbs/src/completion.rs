//! Completion queues and channels.

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_uint, c_void};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;
use std::{hint, ptr, thread};

use roxe_verbs::{
    Completion, CompletionChannel, CompletionOpcode, CompletionQueue, CompletionStatus, Context,
    Extra,
};

use crate::errno::{self, Done};
use crate::layout::{
    IBV_CQ_INIT_ATTR_MASK_FLAGS, IBV_CQ_INIT_ATTR_MASK_PD, IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN,
    IBV_CREATE_CQ_ATTR_SINGLE_THREADED, IBV_WC_ATOMIC_WRITE, IBV_WC_BIND_MW, IBV_WC_COMP_SWAP,
    IBV_WC_EX_WITH_COMPLETION_TIMESTAMP, IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK,
    IBV_WC_FETCH_ADD, IBV_WC_GRH, IBV_WC_LOCAL_INV, IBV_WC_RDMA_READ, IBV_WC_RDMA_WRITE,
    IBV_WC_RECV, IBV_WC_RECV_RDMA_WITH_IMM, IBV_WC_SEND, IBV_WC_STANDARD_FLAGS, IBV_WC_WITH_IMM,
    IBV_WC_WITH_INV, ibv_comp_channel, ibv_context, ibv_cq, ibv_cq_ex, ibv_cq_init_attr_ex,
    ibv_poll_cq_attr, ibv_wc,
};
use crate::session::{Acknowledged, Object, Session, Use, Users, Waits, waits};
use crate::signals;
use crate::stories;

/// A completion channel.
#[repr(C)]
pub(crate) struct Channel {
    public: ibv_comp_channel,
    channel: Option<CompletionChannel>,
    users: Users,
}

impl Object for Channel {
    type Public = ibv_comp_channel;
    type Handle = CompletionChannel;

    fn handle(&mut self) -> &mut Option<CompletionChannel> {
        &mut self.channel
    }

    fn context(&self) -> *mut ibv_context {
        self.public.context
    }
}

/// A completion queue, polled as one likes.
#[repr(C)]
pub(crate) struct Cq {
    /// An `ibv_cq` is its beginning.
    public: ibv_cq_ex,
    pub(crate) queue: Option<CompletionQueue>,
    /// The queue pairs that complete here.
    pub(crate) users: Users,
    _channel: Option<Use>,
    /// Events of completions, and others, that the program was given.
    told: AtomicU32,
    pub(crate) told_async: AtomicU32,
    /// For whoever reads.
    current: UnsafeCell<Current>,
    /// Whoever reads has it, unless the program promised that only one thread does.
    reading: Option<AtomicBool>,
}

/// The completion that is read now, and when it was found.
struct Current {
    completion: Completion,
    found_ns: u64,
}

impl Object for Cq {
    type Public = ibv_cq;
    type Handle = CompletionQueue;

    fn handle(&mut self) -> &mut Option<CompletionQueue> {
        &mut self.queue
    }

    fn context(&self) -> *mut ibv_context {
        self.public.context
    }
}

impl Cq {
    pub(crate) fn queue(&self) -> Done<&CompletionQueue> {
        self.queue.as_ref().ok_or(libc::EIO)
    }

    /// # Safety
    /// It is there.
    const unsafe fn of_completions(cq: *mut ibv_cq) -> Acknowledged {
        // SAFETY: the caller promises it.
        unsafe {
            Acknowledged {
                mutex: &raw mut (*cq).mutex,
                cond: &raw mut (*cq).cond,
                completed: &raw mut (*cq).comp_events_completed,
            }
        }
    }

    /// Gives the program completions, `ROOM` at a time. Says how many, or what is wrong.
    ///
    /// # Safety
    /// The program has room for so many.
    unsafe fn take_completions<const ROOM: usize>(&self, wanted: usize, wc: *mut ibv_wc) -> c_int {
        let Some(queue) = &self.queue else { return -libc::EIO };
        let mut room = [Completion::BLANK; ROOM];
        let mut found = 0;
        while found < wanted {
            let room = &mut room[..ROOM.min(wanted - found)];
            let some = queue.poll(room);
            for completion in &room[..some] {
                // SAFETY: the caller promises it.
                unsafe { wc.add(found).write(work_completion(completion)) };
                found += 1;
                if completion.status != CompletionStatus::Success {
                    // SAFETY: a context outlives its objects.
                    unsafe { stories::of_failure(self.public.context, completion) };
                }
            }
            if some < room.len() {
                break;
            }
        }
        c_int::try_from(found).unwrap_or(c_int::MAX)
    }

    /// # Safety
    /// It is there.
    pub(crate) const unsafe fn acknowledged(cq: *mut ibv_cq) -> Acknowledged {
        // SAFETY: the caller promises it.
        unsafe {
            Acknowledged {
                mutex: &raw mut (*cq).mutex,
                cond: &raw mut (*cq).cond,
                completed: &raw mut (*cq).async_events_completed,
            }
        }
    }
}

pub(crate) unsafe extern "C" fn ibv_create_comp_channel(
    context: *mut ibv_context,
) -> *mut ibv_comp_channel {
    // SAFETY: the program has opened it.
    let made = unsafe { Session::of(context) }.and_then(|session| {
        let channel = session.context()?.create_comp_channel().map_err(errno::of)?;
        let fd = channel.as_fd().as_raw_fd();
        let public = ibv_comp_channel { context, fd, refcnt: 0 };
        let users = Users::default();
        Ok(Channel { public, channel: Some(channel), users }.publish(session).cast())
    });
    errno::pointer(made)
}

pub(crate) unsafe extern "C" fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int {
    // SAFETY: the program has made it and not destroyed it.
    let done = unsafe {
        match Channel::of(channel) {
            Ok(ours) => ours.users.none_left().map(|()| drop(Channel::take(channel))),
            Err(libc::EIO) => Ok(()),
            Err(errno) => Err(errno),
        }
    };
    errno::positive(done)
}

pub(crate) unsafe extern "C" fn ibv_create_cq(
    context: *mut ibv_context,
    cqe: c_int,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    comp_vector: c_int,
) -> *mut ibv_cq {
    let wanted = || {
        Ok(ibv_cq_init_attr_ex {
            cqe: u32::try_from(cqe).map_err(|_| libc::EINVAL)?,
            cq_context,
            channel,
            comp_vector: u32::try_from(comp_vector).map_err(|_| libc::EINVAL)?,
            wc_flags: 0,
            comp_mask: 0,
            flags: 0,
            parent_domain: ptr::null_mut(),
        })
    };
    // SAFETY: the program has made what it names.
    let made = wanted().and_then(|wanted| unsafe { create(context, &wanted) });
    errno::pointer(made).cast()
}

pub(crate) unsafe extern "C" fn create_cq_ex(
    context: *mut ibv_context,
    attr: *mut ibv_cq_init_attr_ex,
) -> *mut ibv_cq_ex {
    // SAFETY: the program has made what it names.
    errno::pointer(unsafe {
        attr.as_ref().ok_or(libc::EINVAL).and_then(|attr| create(context, attr))
    })
}

unsafe fn create(context: *mut ibv_context, wanted: &ibv_cq_init_attr_ex) -> Done<*mut ibv_cq_ex> {
    const FLAGS: u32 = IBV_CREATE_CQ_ATTR_SINGLE_THREADED | IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
    // SAFETY: the caller promises it.
    let session = unsafe { Session::of(context)? };
    let flags = match wanted.comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS {
        0 => 0,
        _ => wanted.flags,
    };
    if wanted.comp_mask & !(IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD) != 0
        || wanted.comp_vector >= VECTORS.cast_unsigned()
    {
        return Err(libc::EINVAL);
    }
    if flags & !FLAGS != 0 || wanted.wc_flags & !u64::from(CAN_BE_READ) != 0 {
        return Err(libc::EOPNOTSUPP);
    }
    let channel = match wanted.channel.is_null() {
        true => None,
        // SAFETY: the caller promises it.
        false => Some(unsafe { Channel::of(wanted.channel)? }),
    };
    // No queue at all is no depth.
    let depth = match wanted.cqe {
        0 => 0,
        wanted => depth_for(session.context()?, wanted),
    };
    let queue = match &channel {
        None => session.context()?.create_cq(depth),
        Some(channel) => {
            let channel = channel.channel.as_ref().ok_or(libc::EIO)?;
            session.context()?.create_cq_on(channel, depth)
        }
    };
    let queue = queue.map_err(stories::refused(session, "ibv_create_cq"))?;
    let id = queue.id().0;
    let single = flags & IBV_CREATE_CQ_ATTR_SINGLE_THREADED != 0;
    let asked = |flag: u32| wanted.wc_flags & u64::from(flag) != 0;
    let public = ibv_cq_ex {
        context,
        channel: wanted.channel,
        cq_context: wanted.cq_context,
        handle: id,
        cqe: c_int::try_from(depth).map_err(|_| libc::EINVAL)?,
        mutex: libc::PTHREAD_MUTEX_INITIALIZER,
        cond: libc::PTHREAD_COND_INITIALIZER,
        comp_events_completed: 0,
        async_events_completed: 0,
        comp_mask: 0,
        status: 0,
        wr_id: 0,
        start_poll: Some(start_poll),
        next_poll: Some(next_poll),
        end_poll: Some(end_poll),
        read_opcode: Some(read_opcode),
        read_vendor_err: Some(read_vendor_err),
        read_byte_len: Some(read_byte_len),
        read_imm_data: Some(read_imm_data),
        read_qp_num: Some(read_qp_num),
        read_src_qp: Some(read_src_qp),
        read_wc_flags: Some(read_wc_flags),
        read_slid: Some(read_slid),
        read_sl: Some(read_sl),
        read_dlid_path_bits: Some(read_dlid_path_bits),
        read_completion_ts: asked(IBV_WC_EX_WITH_COMPLETION_TIMESTAMP)
            .then_some(read_completion_ts as _),
        read_cvlan: None,
        read_flow_tag: None,
        read_tm_info: ptr::null(),
        read_completion_wallclock_ns: asked(IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK)
            .then_some(read_wallclock as _),
    };
    let cq = Cq {
        public,
        queue: Some(queue),
        users: Users::default(),
        _channel: channel.map(|channel| channel.users.one_more()),
        told: AtomicU32::new(0),
        told_async: AtomicU32::new(0),
        current: UnsafeCell::new(Current { completion: Completion::BLANK, found_ns: 0 }),
        reading: (!single).then(AtomicBool::default),
    };
    let cq = cq.publish(session);
    session.objects().completion_queues.insert(id, cq);
    Ok(cq.cast())
}

/// As many completions as asked for, and some more, as cards have it: programs count on that. They
/// ask for one where two may be there when an acknowledgement was lost.
fn depth_for(context: &Context, wanted: u32) -> u32 {
    let most = context.query_device().max_cqe;
    match wanted.checked_add(1).and_then(u32::checked_next_power_of_two) {
        Some(rounded) if wanted <= most => rounded.max(FEWEST).min(most),
        _ => wanted,
    }
}

pub(crate) unsafe extern "C" fn ibv_resize_cq(cq: *mut ibv_cq, cqe: c_int) -> c_int {
    // SAFETY: the program has made it.
    let done = unsafe { Cq::of(cq) }.and_then(|ours| {
        // Who asks for another depth means that one.
        let depth = u32::try_from(cqe).map_err(|_| libc::EINVAL)?;
        ours.queue()?.resize(depth).map_err(errno::of)?;
        // SAFETY: the program has made it.
        unsafe { (*cq).cqe = cqe };
        Ok(())
    });
    errno::positive(done)
}

pub(crate) unsafe extern "C" fn ibv_destroy_cq(cq: *mut ibv_cq) -> c_int {
    // SAFETY: the program has made it and not destroyed it.
    errno::positive(unsafe { destroy(cq) })
}

unsafe fn destroy(cq: *mut ibv_cq) -> Done {
    // SAFETY: the caller promises it.
    unsafe {
        if Cq::is_inherited(cq) {
            return Ok(());
        }
        let ours = Cq::alone(cq)?;
        ours.users.none_left()?;
        Session::of(ours.public.context)?.objects().completion_queues.remove(&ours.public.handle);
        // Its events are taken back, but for those that the program has.
        ours.queue = None;
        let [told, told_async] =
            [&ours.told, &ours.told_async].map(|told| told.load(Ordering::Relaxed));
        let waits = |for_call| Waits { call: "ibv_destroy_cq", for_call };
        Cq::of_completions(cq).wait_for(told, waits("ibv_ack_cq_events"));
        Cq::acknowledged(cq).wait_for(told_async, waits("ibv_ack_async_event"));
        drop(Cq::take(cq));
    }
    Ok(())
}

pub(crate) unsafe extern "C" fn ibv_get_cq_event(
    channel: *mut ibv_comp_channel,
    cq: *mut *mut ibv_cq,
    cq_context: *mut *mut c_void,
) -> c_int {
    // SAFETY: the program has made it.
    let found = unsafe { next_of(channel) };
    errno::negative(found.map(|found| {
        // SAFETY: the program said where; the queue waits for this event to be given back.
        unsafe {
            *cq = found;
            *cq_context = (*found).cq_context;
        }
    }))
}

unsafe fn next_of(channel: *mut ibv_comp_channel) -> Done<*mut ibv_cq> {
    // SAFETY: the caller promises it.
    let ours = unsafe { Channel::of(channel)? };
    // SAFETY: as above.
    let session = unsafe { Session::of(ours.public.context)? };
    // A clone: who destroys the channel meanwhile leaves the wait what it waits for.
    let (events, fd) = (ours.channel.clone().ok_or(libc::EIO)?, ours.public.fd);
    loop {
        let next = match events.wait(Duration::ZERO) {
            Some(next) => next,
            None if !waits(fd) => return Err(libc::EAGAIN),
            None => events.wait_unless(signals::end_waits).ok_or(libc::EINTR)?,
        };
        let id = next.id().0;
        let objects = session.objects();
        if let Some(&cq) = objects.completion_queues.get(&id) {
            // SAFETY: it is in the list, so that nobody has destroyed it.
            unsafe { (*cq).told.fetch_add(1, Ordering::Relaxed) };
            return Ok(cq.cast());
        }
    }
}

pub(crate) unsafe extern "C" fn ibv_ack_cq_events(cq: *mut ibv_cq, count: c_uint) {
    if count != 0 {
        // SAFETY: the program has made it.
        unsafe { Cq::of_completions(cq).add(count) };
    }
}

pub(crate) unsafe extern "C" fn req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
    // SAFETY: the program has made it.
    let done = unsafe { Cq::of(cq) }.and_then(|ours| {
        // Without a channel nobody is told, and nobody minds.
        if ours.public.channel.is_null() {
            return Ok(());
        }
        ours.queue()?.request_notify(solicited_only != 0).map(|_| ()).map_err(errno::of)
    });
    errno::positive(done)
}

pub(crate) unsafe extern "C" fn poll_cq(cq: *mut ibv_cq, count: c_int, wc: *mut ibv_wc) -> c_int {
    // SAFETY: the program has made it.
    let ours = match unsafe { Cq::of(cq) } {
        Ok(ours) => ours,
        Err(errno) => return -errno,
    };
    match usize::try_from(count) {
        // Who waits asks for one, again and again: room for many would cost as much as the look.
        // SAFETY: the program has room for so many.
        Ok(1) => unsafe { ours.take_completions::<1>(1, wc) },
        // SAFETY: as above.
        Ok(wanted) => unsafe { ours.take_completions::<AT_ONCE>(wanted, wc) },
        Err(_) => 0,
    }
}

fn work_completion(completion: &Completion) -> ibv_wc {
    ibv_wc {
        wr_id: completion.wr_id,
        status: completion.status.code().into(),
        opcode: opcode(completion),
        vendor_err: 0,
        byte_len: completion.byte_len,
        imm_data: immediate(completion),
        qp_num: completion.qpn.get(),
        src_qp: completion.source_qp.get(),
        wc_flags: flags(completion),
        pkey_index: 0,
        slid: 0,
        sl: service_level(completion),
        dlid_path_bits: 0,
    }
}

const fn opcode(completion: &Completion) -> c_int {
    let opcode = match completion.opcode {
        CompletionOpcode::Send => IBV_WC_SEND,
        CompletionOpcode::RdmaWrite => IBV_WC_RDMA_WRITE,
        CompletionOpcode::RdmaRead => IBV_WC_RDMA_READ,
        CompletionOpcode::CompSwap => IBV_WC_COMP_SWAP,
        CompletionOpcode::FetchAdd => IBV_WC_FETCH_ADD,
        CompletionOpcode::BindMw => IBV_WC_BIND_MW,
        CompletionOpcode::LocalInv => IBV_WC_LOCAL_INV,
        CompletionOpcode::AtomicWrite => IBV_WC_ATOMIC_WRITE,
        CompletionOpcode::Recv => IBV_WC_RECV,
        CompletionOpcode::RecvRdmaWithImm => IBV_WC_RECV_RDMA_WITH_IMM,
        // Programs cannot ask for these.
        CompletionOpcode::RegMr | CompletionOpcode::Flush => IBV_WC_LOCAL_INV,
    };
    opcode.cast_signed()
}

/// Ethernet has none; which kind of addresses a datagram came with is said here, as mlx5 does:
/// UCX drops it otherwise.
const fn service_level(completion: &Completion) -> u8 {
    match (completion.grh, completion.ipv6) {
        (false, _) => 0,
        (true, false) => 0xa,
        (true, true) => 0x9,
    }
}

/// Immediate data in the order of the network, or the key that was invalidated.
const fn immediate(completion: &Completion) -> u32 {
    match completion.extra {
        Extra::None => 0,
        Extra::Imm(data) => data.0.to_be(),
        Extra::Invalidated(key) => key.0,
    }
}

const fn flags(completion: &Completion) -> c_uint {
    let extra = match completion.extra {
        Extra::None => 0,
        Extra::Imm(_) => IBV_WC_WITH_IMM,
        Extra::Invalidated(_) => IBV_WC_WITH_INV,
    };
    extra | if completion.grh { IBV_WC_GRH } else { 0 }
}

/// A completion is read from start to end by one thread.
unsafe fn reader<'a>(cq: *mut ibv_cq_ex) -> &'a mut Current {
    // SAFETY: the program has made it, and reads with one thread at a time.
    unsafe { &mut *(*cq.cast::<Cq>()).current.get() }
}

unsafe extern "C" fn start_poll(cq: *mut ibv_cq_ex, attr: *mut ibv_poll_cq_attr) -> c_int {
    // SAFETY: the program has made it.
    if let Err(errno) = unsafe { Cq::of(cq.cast()) } {
        return errno;
    }
    // SAFETY: the program says what it wants.
    if unsafe { attr.as_ref() }.is_none_or(|attr| attr.comp_mask != 0) {
        return libc::EINVAL;
    }
    // SAFETY: only what all threads may do.
    if let Some(reading) = unsafe { &(*cq.cast::<Cq>()).reading } {
        let mut tries = 0;
        while reading.swap(true, Ordering::Acquire) {
            tries += 1;
            if tries % 64 == 0 { thread::yield_now() } else { hint::spin_loop() }
        }
    }
    // SAFETY: this thread reads now.
    let found = unsafe { next_poll(cq) };
    if found != 0 {
        // SAFETY: as above.
        unsafe { end_poll(cq) };
    }
    found
}

unsafe extern "C" fn next_poll(cq: *mut ibv_cq_ex) -> c_int {
    // SAFETY: this thread reads now.
    let (current, ours) = unsafe { (reader(cq), &*cq.cast::<Cq>()) };
    let Some(queue) = &ours.queue else { return libc::EIO };
    let Some(completion) = queue.poll_one() else { return libc::ENOENT };
    // SAFETY: as above.
    unsafe { ((*cq).wr_id, (*cq).status) = (completion.wr_id, completion.status.code().into()) };
    current.completion = completion;
    if ours.public.read_completion_ts.is_some()
        || ours.public.read_completion_wallclock_ns.is_some()
    {
        current.found_ns = now_ns(libc::CLOCK_MONOTONIC);
    }
    if completion.status != CompletionStatus::Success {
        // SAFETY: a context outlives its objects.
        unsafe { stories::of_failure(ours.public.context, &completion) };
    }
    0
}

unsafe extern "C" fn end_poll(cq: *mut ibv_cq_ex) {
    // SAFETY: this thread read.
    if let Some(reading) = unsafe { &(*cq.cast::<Cq>()).reading } {
        reading.store(false, Ordering::Release);
    }
}

unsafe extern "C" fn read_opcode(cq: *mut ibv_cq_ex) -> c_int {
    // SAFETY: this thread reads now.
    opcode(unsafe { &reader(cq).completion })
}

unsafe extern "C" fn read_vendor_err(_: *mut ibv_cq_ex) -> u32 {
    0
}

unsafe extern "C" fn read_byte_len(cq: *mut ibv_cq_ex) -> u32 {
    // SAFETY: this thread reads now.
    unsafe { reader(cq).completion.byte_len }
}

unsafe extern "C" fn read_imm_data(cq: *mut ibv_cq_ex) -> u32 {
    // SAFETY: this thread reads now.
    immediate(unsafe { &reader(cq).completion })
}

unsafe extern "C" fn read_qp_num(cq: *mut ibv_cq_ex) -> u32 {
    // SAFETY: this thread reads now.
    unsafe { reader(cq).completion.qpn }.get()
}

unsafe extern "C" fn read_src_qp(cq: *mut ibv_cq_ex) -> u32 {
    // SAFETY: this thread reads now.
    unsafe { reader(cq).completion.source_qp }.get()
}

unsafe extern "C" fn read_wc_flags(cq: *mut ibv_cq_ex) -> c_uint {
    // SAFETY: this thread reads now.
    flags(unsafe { &reader(cq).completion })
}

unsafe extern "C" fn read_slid(_: *mut ibv_cq_ex) -> u32 {
    0
}

unsafe extern "C" fn read_sl(cq: *mut ibv_cq_ex) -> u8 {
    // SAFETY: this thread reads now.
    service_level(unsafe { &reader(cq).completion })
}

unsafe extern "C" fn read_dlid_path_bits(_: *mut ibv_cq_ex) -> u8 {
    0
}

/// When the completion was found, in nanoseconds of the clock of `query_rt_values`.
unsafe extern "C" fn read_completion_ts(cq: *mut ibv_cq_ex) -> u64 {
    // SAFETY: this thread reads now.
    unsafe { reader(cq).found_ns }
}

unsafe extern "C" fn read_wallclock(cq: *mut ibv_cq_ex) -> u64 {
    // SAFETY: this thread reads now.
    let found_ns = unsafe { reader(cq).found_ns };
    let ago = now_ns(libc::CLOCK_MONOTONIC).saturating_sub(found_ns);
    now_ns(libc::CLOCK_REALTIME).saturating_sub(ago)
}

pub(crate) fn now_ns(clock: libc::clockid_t) -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the room is ours, and both clocks are there.
    unsafe { libc::clock_gettime(clock, &raw mut now) };
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

/// Entries that a completion queue has at least.
const FEWEST: u32 = 64;

/// Completions that are taken from a queue at once.
const AT_ONCE: usize = 16;

/// Threads of an adapter that tell of completions.
pub(crate) const VECTORS: c_int = 1;

/// What may be read of a completion.
const CAN_BE_READ: u32 = IBV_WC_STANDARD_FLAGS
    | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP
    | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
