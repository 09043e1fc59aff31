//! Channels, events, and what follows from an event before the program hears of it.

use std::collections::VecDeque;
use std::ffi::{CStr, c_char, c_int};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::{mem, ptr};

use roxe_verbs::QpState;
use roxe_verbs::cm::{
    CmEvent, CmEventKind, CmIdKey, DatagramPeer, EventChannel, MulticastGroup, Offer,
};
use roxe_verbs::{AddressVector, QKey, Qpn, ServiceType};

use crate::address::attr_of;
use crate::errno::{self, Done};
use crate::layout::{IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD};
use crate::rdmacm::id::{End, Id, Private, destroy, give_back_own, migrate, owner, show};
use crate::rdmacm::layout::{
    RDMA_CM_EVENT_ADDR_ERROR, RDMA_CM_EVENT_ADDR_RESOLVED, RDMA_CM_EVENT_CONNECT_ERROR,
    RDMA_CM_EVENT_CONNECT_REQUEST, RDMA_CM_EVENT_CONNECT_RESPONSE, RDMA_CM_EVENT_DEVICE_REMOVAL,
    RDMA_CM_EVENT_DISCONNECTED, RDMA_CM_EVENT_ESTABLISHED, RDMA_CM_EVENT_MULTICAST_ERROR,
    RDMA_CM_EVENT_MULTICAST_JOIN, RDMA_CM_EVENT_REJECTED, RDMA_CM_EVENT_ROUTE_RESOLVED,
    RDMA_CM_EVENT_TIMEWAIT_EXIT, RDMA_CM_EVENT_UNREACHABLE, rdma_cm_event, rdma_cm_id,
    rdma_conn_param, rdma_event_channel, rdma_ud_param,
};
use crate::rdmacm::{multicast, queues, resolve};
use crate::session::{Life, waits};
use crate::signals;

/// Where events go.
#[repr(C)]
pub(crate) struct Channel {
    public: rdma_event_channel,
    /// What its events come through.
    events: Mutex<Result<EventChannel, Gone>>,
    life: Life,
}

/// It was destroyed.
#[derive(Clone, Copy)]
struct Gone {
    /// Who asked for an event waited for it.
    waits: bool,
}

/// The last that were destroyed. A program that ends seldom waits for the thread that fetches its
/// events: what that thread may still ask for stays where it was.
static DESTROYED: Mutex<VecDeque<Box<Channel>>> = Mutex::new(VecDeque::new());

/// How many are kept so.
const KEPT: usize = 64;

impl Channel {
    pub(crate) fn make() -> Done<*mut rdma_event_channel> {
        let made = EventChannel::new();
        let events = made.map_err(|error| error.raw_os_error().unwrap_or(libc::EMFILE))?;
        let public = rdma_event_channel { fd: events.as_fd().as_raw_fd() };
        Life::watch_forks();
        let events = Mutex::new(Ok(events));
        Ok(Box::into_raw(Box::new(Self { public, events, life: Life::now() })).cast())
    }

    /// # Safety
    /// It was made and not destroyed.
    pub(crate) unsafe fn of<'a>(channel: *mut rdma_event_channel) -> Done<&'a Self> {
        // SAFETY: the caller promises it, and the public struct is the first field of ours.
        let channel = unsafe { channel.cast::<Self>().as_ref() }.ok_or(libc::EINVAL)?;
        if channel.life.goes_on() { Ok(channel) } else { Err(libc::EIO) }
    }

    /// # Safety
    /// It was made, not destroyed, and nobody but who asks for its next event uses it.
    pub(crate) unsafe fn discard(channel: *mut rdma_event_channel) {
        if channel.is_null() {
            return;
        }
        // SAFETY: the caller promises it, and the public struct is the first field of ours.
        let ours = unsafe { &*channel.cast::<Self>() };
        let waits = waits(ours.public.fd);
        if mem::replace(&mut *ours.lock(), Err(Gone { waits })).is_err() {
            // For the second time: it is kept already.
            return;
        }
        // SAFETY: as above, and it is not ours yet.
        let channel = unsafe { Box::from_raw(channel.cast::<Self>()) };
        let mut destroyed = DESTROYED.lock().unwrap_or_else(PoisonError::into_inner);
        destroyed.push_back(channel);
        if destroyed.len() > KEPT {
            destroyed.pop_front();
        }
    }

    /// What its events come through.
    pub(crate) fn events(&self) -> Done<EventChannel> {
        self.there().map_err(|_| libc::EBADF)
    }

    fn there(&self) -> Result<EventChannel, Gone> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Result<EventChannel, Gone>> {
        // Nothing in it can panic half way.
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next event; whether it is waited for the program says on the descriptor. Who asks when
    /// the channel has just been destroyed waits on, like one who asked just before; who would not
    /// have waited hears that it is gone.
    pub(crate) fn next(&self) -> Done<*mut rdma_cm_event> {
        let fd = self.public.fd;
        let events = match self.there() {
            Ok(events) => events,
            Err(Gone { waits: true }) => return Err(signals::wait()),
            Err(Gone { waits: false }) => return Err(libc::EBADF),
        };
        loop {
            let CmEvent { id: key, kind } = match events.try_next() {
                Some(next) => next,
                None if !waits(fd) => return Err(libc::EAGAIN),
                None => events.next_unless(signals::end_waits).ok_or(libc::EINTR)?,
            };
            // What is not his any more nobody hears.
            let Some(id) = owner(key) else { continue };
            // SAFETY: the event that the program has of it from now on keeps it.
            match unsafe { translate(id, key, kind) } {
                Some(event) => return Ok(Box::into_raw(Box::new(event)).cast()),
                // SAFETY: as above.
                None => unsafe { Private::of(id)? }.take_back(),
            }
        }
    }
}

/// An event that the program has.
#[repr(C)]
struct Event {
    public: rdma_cm_event,
    /// Who waits for it to come back.
    owner: *mut rdma_cm_id,
    /// What `public` points to.
    private_data: Box<[u8]>,
}

impl Event {
    fn new(id: *mut rdma_cm_id, event: c_int, status: c_int) -> Self {
        // SAFETY: all of it being zero is a value that it may have.
        let mut public: rdma_cm_event = unsafe { mem::zeroed() };
        (public.id, public.event, public.status) = (id, event, status);
        Self { public, owner: id, private_data: Box::default() }
    }

    /// Of a connection, with what the peer said.
    fn with_offer(mut self, offer: Offer) -> Self {
        self.public.param.conn = rdma_conn_param {
            private_data: offer.private_data.as_ptr().cast(),
            private_data_len: length(&offer.private_data),
            responder_resources: offer.responder_resources,
            initiator_depth: offer.initiator_depth,
            flow_control: offer.flow_control.into(),
            retry_count: offer.retry_count,
            rnr_retry_count: offer.rnr_retry_count,
            srq: offer.srq.into(),
            qp_num: offer.qpn.get(),
        };
        Self { private_data: offer.private_data, ..self }
    }

    fn with_private_data(self, private_data: Box<[u8]>) -> Self {
        self.with_offer(Offer { private_data, ..Offer::default() })
    }

    /// Of datagrams: to whom.
    fn with_target(mut self, vector: &AddressVector, qpn: Qpn, q_key: QKey) -> Self {
        self.public.param.ud = rdma_ud_param {
            private_data: ptr::null(),
            private_data_len: 0,
            ah_attr: attr_of(vector),
            qp_num: qpn.get(),
            qkey: q_key.0,
        };
        self
    }

    /// Of datagrams, with what the peer said.
    fn with_datagram_data(mut self, private_data: Box<[u8]>) -> Self {
        // SAFETY: each of its bytes was set, if to zero.
        let ud = unsafe { &mut self.public.param.ud };
        ud.private_data = private_data.as_ptr().cast();
        ud.private_data_len = length(&private_data);
        Self { private_data, ..self }
    }
}

fn length(private_data: &[u8]) -> u8 {
    u8::try_from(private_data.len()).unwrap_or(u8::MAX)
}

/// The event for the program; `None` if there is nothing to tell.
///
/// # Safety
/// The identifier is there.
unsafe fn translate(id: *mut rdma_cm_id, key: CmIdKey, kind: CmEventKind) -> Option<Event> {
    // SAFETY: the caller promises it.
    let private = unsafe { Private::of(id) }.ok()?;
    let end = private.end_named(key).ok()?;
    let event = |event, status| Event::new(id, event, status);
    Some(match kind {
        CmEventKind::AddressResolved => {
            // SAFETY: as above.
            unsafe { show(id, &end) };
            event(RDMA_CM_EVENT_ADDR_RESOLVED, 0)
        }
        CmEventKind::AddressError { errno } => event(RDMA_CM_EVENT_ADDR_ERROR, -errno),
        CmEventKind::RouteResolved => {
            // SAFETY: as above.
            unsafe { resolve::show_path(id, private, &end) };
            event(RDMA_CM_EVENT_ROUTE_RESOLVED, 0)
        }
        CmEventKind::ConnectRequest { request, service, offer } => {
            // SAFETY: as above.
            let child = unsafe { admit(id, private, &end, request, service) }.ok()?;
            // SAFETY: it was just made.
            let of_child = unsafe { Private::of(child) }.ok()?;
            of_child.state().offered = (offer.responder_resources, offer.initiator_depth);
            let mut event = event(RDMA_CM_EVENT_CONNECT_REQUEST, 0).with_offer(*offer);
            (event.public.id, event.public.listen_id) = (child, id);
            event
        }
        CmEventKind::DatagramRequest { request, private_data } => {
            // SAFETY: as above.
            let child = unsafe { admit(id, private, &end, request, ServiceType::Ud) }.ok()?;
            let mut event =
                event(RDMA_CM_EVENT_CONNECT_REQUEST, 0).with_datagram_data(private_data);
            (event.public.id, event.public.listen_id) = (child, id);
            event
        }
        // SAFETY: as above.
        CmEventKind::ConnectResponse(offer) => match unsafe { answered(id, &end) } {
            Ok(event_type) => event(event_type, 0).with_offer(*offer),
            Err(errno) => {
                // SAFETY: as above.
                unsafe { queues::move_to_error(id) };
                event(RDMA_CM_EVENT_CONNECT_ERROR, -errno)
            }
        },
        CmEventKind::Rejected { reason, private_data } => {
            // SAFETY: as above.
            unsafe { queues::move_to_error(id) };
            event(RDMA_CM_EVENT_REJECTED, reason.code().into()).with_private_data(private_data)
        }
        CmEventKind::DatagramEstablished(peer) => {
            let DatagramPeer { vector, qpn, q_key, private_data } = *peer;
            let event = event(RDMA_CM_EVENT_ESTABLISHED, 0).with_target(&vector, qpn, q_key);
            event.with_datagram_data(private_data)
        }
        CmEventKind::DatagramRefused { status, private_data } => {
            event(RDMA_CM_EVENT_UNREACHABLE, status.code().into()).with_datagram_data(private_data)
        }
        CmEventKind::MulticastJoined(group) => {
            // SAFETY: as above.
            let (context, joined) = unsafe { multicast::joined(id, private, &group) }?;
            let MulticastGroup { vector, qpn, q_key, .. } = *group;
            let mut event = match joined {
                Ok(()) => event(RDMA_CM_EVENT_MULTICAST_JOIN, 0),
                Err(errno) => event(RDMA_CM_EVENT_MULTICAST_ERROR, -errno),
            };
            event = event.with_target(&vector, qpn, q_key);
            event.public.param.ud.private_data = context;
            event
        }
        CmEventKind::ConnectError { .. } => event(RDMA_CM_EVENT_CONNECT_ERROR, -libc::EINVAL),
        CmEventKind::Unreachable => event(RDMA_CM_EVENT_UNREACHABLE, -libc::ETIMEDOUT),
        CmEventKind::Established => event(RDMA_CM_EVENT_ESTABLISHED, 0),
        CmEventKind::Disconnected => event(RDMA_CM_EVENT_DISCONNECTED, 0),
        CmEventKind::TimewaitExit => event(RDMA_CM_EVENT_TIMEWAIT_EXIT, 0),
        CmEventKind::DeviceRemoval => event(RDMA_CM_EVENT_DEVICE_REMOVAL, 0),
        _ => return None,
    })
}

/// An identifier for what somebody asks of a listener. It is as the listener is.
///
/// # Safety
/// The listener is there.
unsafe fn admit(
    listener: *mut rdma_cm_id,
    private: &Private,
    end: &End,
    request: CmIdKey,
    service: ServiceType,
) -> Done<*mut rdma_cm_id> {
    let qp_type = match service {
        ServiceType::Rc => IBV_QPT_RC,
        ServiceType::Uc => IBV_QPT_UC,
        ServiceType::Ud => IBV_QPT_UD,
    };
    // SAFETY: the caller promises it.
    unsafe {
        let rdma_cm_id { channel, context, ps, .. } = *listener;
        let child = Id::make(channel, context, ps, qp_type.cast_signed())?;
        let taken = End::of_request(child, end, request);
        let made = taken.and_then(|end| {
            show(child, &end);
            Private::of(child)?.state().ends.push(end);
            if private.waits() { migrate(child, ptr::null_mut()) } else { Ok(()) }
        });
        if made.is_err() {
            destroy(child)?;
        }
        made.map(|()| child)
    }
}

/// The peer accepted: the queue pair of the identifier, if it has one, is made ready, and the peer
/// told so.
///
/// # Safety
/// The identifier is there.
unsafe fn answered(id: *mut rdma_cm_id, end: &End) -> Done<c_int> {
    // SAFETY: the caller promises it.
    unsafe {
        if (*id).qp.is_null() {
            return Ok(RDMA_CM_EVENT_CONNECT_RESPONSE);
        }
        // What the peer may do is only known now.
        for to in [QpState::Init, QpState::Rtr, QpState::Rts] {
            queues::move_to(id, &end.cm, to, |_| {})?;
        }
    }
    end.cm.establish().map_err(errno::of)?;
    Ok(RDMA_CM_EVENT_ESTABLISHED)
}

pub(crate) extern "C" fn rdma_create_event_channel() -> *mut rdma_event_channel {
    errno::pointer(Channel::make())
}

pub(crate) unsafe extern "C" fn rdma_destroy_event_channel(channel: *mut rdma_event_channel) {
    // SAFETY: the program has made it and not destroyed it.
    unsafe { Channel::discard(channel) };
}

pub(crate) unsafe extern "C" fn rdma_get_cm_event(
    channel: *mut rdma_event_channel,
    event: *mut *mut rdma_cm_event,
) -> c_int {
    // SAFETY: the program has made the channel, and says where the event is to be.
    errno::negative(unsafe {
        Channel::of(channel).and_then(Channel::next).map(|next| event.write(next))
    })
}

pub(crate) unsafe extern "C" fn rdma_ack_cm_event(event: *mut rdma_cm_event) -> c_int {
    if event.is_null() {
        return errno::negative(Err(libc::EINVAL));
    }
    // SAFETY: the program gives back what it was given.
    unsafe { give_back(event) };
    0
}

/// # Safety
/// The program has the event.
pub(crate) unsafe fn give_back(event: *mut rdma_cm_event) {
    // SAFETY: the caller promises it.
    let Event { owner, .. } = *unsafe { Box::from_raw(event.cast::<Event>()) };
    // SAFETY: who destroys it waits for this event. One of a process that forked does not.
    if let Ok(private) = unsafe { Private::of(owner) } {
        private.take_back();
    }
}

/// From now on another identifier waits for an event to come back.
///
/// # Safety
/// The program has the event, and both are there.
pub(crate) unsafe fn hand_over(event: *mut rdma_cm_event, to: *mut rdma_cm_id) -> Done {
    // SAFETY: the caller promises it.
    unsafe {
        let private = Private::of(to)?;
        let old = mem::replace(&mut (*event.cast::<Event>()).owner, to);
        private.give();
        Private::of(old)?.take_back();
    }
    Ok(())
}

/// Waits for what follows from a call, if the identifier waits; what it is lies in `event` then.
///
/// # Safety
/// The identifier is there.
pub(crate) unsafe fn complete(id: *mut rdma_cm_id) -> Done {
    // SAFETY: the caller promises it.
    unsafe {
        if !Private::of(id)?.waits() {
            return Ok(());
        }
        give_back_own(id);
        let event = Channel::of((*id).channel)?.next()?;
        (*id).event = event;
        match ((*event).status, (*event).event) {
            (0, _) => Ok(()),
            (_, RDMA_CM_EVENT_REJECTED) => Err(libc::ECONNREFUSED),
            (status, _) => Err(status.abs()),
        }
    }
}

pub(crate) extern "C" fn rdma_event_str(event: c_int) -> *const c_char {
    let found = usize::try_from(event).ok().and_then(|event| EVENTS.get(event));
    found.unwrap_or(&c"UNKNOWN EVENT").as_ptr()
}

/// `rdma_cm_event_type`.
const EVENTS: &[&CStr] = &[
    c"RDMA_CM_EVENT_ADDR_RESOLVED",
    c"RDMA_CM_EVENT_ADDR_ERROR",
    c"RDMA_CM_EVENT_ROUTE_RESOLVED",
    c"RDMA_CM_EVENT_ROUTE_ERROR",
    c"RDMA_CM_EVENT_CONNECT_REQUEST",
    c"RDMA_CM_EVENT_CONNECT_RESPONSE",
    c"RDMA_CM_EVENT_CONNECT_ERROR",
    c"RDMA_CM_EVENT_UNREACHABLE",
    c"RDMA_CM_EVENT_REJECTED",
    c"RDMA_CM_EVENT_ESTABLISHED",
    c"RDMA_CM_EVENT_DISCONNECTED",
    c"RDMA_CM_EVENT_DEVICE_REMOVAL",
    c"RDMA_CM_EVENT_MULTICAST_JOIN",
    c"RDMA_CM_EVENT_MULTICAST_ERROR",
    c"RDMA_CM_EVENT_ADDR_CHANGE",
    c"RDMA_CM_EVENT_TIMEWAIT_EXIT",
];
