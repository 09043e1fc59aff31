//! What lies behind an `rdma_cm_id`.
//!
//! An identifier has no adapter at first. It gets one with an address of its own or with that of a
//! peer; one that listens at any address has them all.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{c_int, c_void};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::{mem, ptr};

use roxe_verbs::Gid;
use roxe_verbs::cm::{CmId, CmIdKey, CmOptions, PortSpace};

use crate::errno::{self, Done};
use crate::layout::{IBV_QPT_RC, IBV_QPT_UD, ibv_qp_init_attr};
use crate::rdmacm::adapter::Adapter;
use crate::rdmacm::address;
use crate::rdmacm::event::{Channel, give_back};
use crate::rdmacm::layout::{
    RDMA_PS_IB, RDMA_PS_TCP, RDMA_PS_UDP, ibv_sa_path_rec, rdma_cm_id, rdma_event_channel,
};
use crate::rdmacm::sockets::{self, LastWords};
use crate::session::{Life, Waits};
use crate::stories;

/// An identifier.
#[repr(C)]
pub(crate) struct Id {
    pub(crate) public: rdma_cm_id,
    private: Private,
}

/// Our part of it.
pub(crate) struct Private {
    life: Life,
    space: PortSpace,
    /// Its channel is its own, and calls wait.
    waits: AtomicBool,
    state: Mutex<State>,
    /// Events that the program has of it.
    given: Mutex<u32>,
    given_back: Condvar,
}

/// What calls leave for later ones.
#[derive(Default)]
pub(crate) struct State {
    /// None without an adapter, several at any address.
    pub(crate) ends: Vec<Arc<End>>,
    pub(crate) options: CmOptions,
    /// At any address of IPv6 is none of IPv4.
    pub(crate) one_family: bool,
    /// What the peer offered: READs to be answered, READs under way.
    pub(crate) offered: (u8, u8),
    /// The queue pairs that `rdma_get_request` makes.
    pub(crate) queue_pair: Option<Wanted>,
    /// What goes before the private data of a connection request.
    pub(crate) connect_data: Vec<u8>,
    pub(crate) groups: Vec<Group>,
    pub(crate) path: Option<Box<ibv_sa_path_rec>>,
}

/// How a queue pair is to be made.
pub(crate) struct Wanted(pub(crate) ibv_qp_init_attr);

// SAFETY: what it names is there for all threads, as long as the program says so.
unsafe impl Send for Wanted {}

/// A group that it joined.
pub(crate) struct Group {
    pub(crate) address: IpAddr,
    /// For the program, in the event.
    pub(crate) context: usize,
    /// Who only sends takes no packets of it.
    pub(crate) sends_only: bool,
    /// To which the queue pair was attached.
    pub(crate) attached: Option<Gid>,
}

/// An identifier of one adapter.
pub(crate) struct End {
    pub(crate) cm: CmId,
    pub(crate) adapter: &'static Adapter,
}

/// Whose events are, by the address of the `Id`.
static IDS: Mutex<BTreeMap<CmIdKey, usize>> = Mutex::new(BTreeMap::new());

fn ids() -> MutexGuard<'static, BTreeMap<CmIdKey, usize>> {
    IDS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl End {
    /// A new one of an identifier, and not yet among its ends.
    ///
    /// # Safety
    /// The identifier is there.
    pub(crate) unsafe fn new(id: *mut rdma_cm_id, adapter: &'static Adapter) -> Done<Arc<Self>> {
        // SAFETY: the caller promises it.
        let (private, channel) = unsafe { (Private::of(id)?, Channel::of((*id).channel)?) };
        let cm = CmId::new(&adapter.context, &channel.events()?, private.space);
        cm.set_options(private.state().options);
        ids().insert(cm.key(), id.expose_provenance());
        Ok(Arc::new(Self { cm, adapter }))
    }

    /// That of a request, which has not been taken yet.
    ///
    /// # Safety
    /// The identifier is there.
    pub(crate) unsafe fn of_request(
        id: *mut rdma_cm_id,
        listener: &Self,
        request: CmIdKey,
    ) -> Done<Arc<Self>> {
        // Its events may come as soon as it is taken.
        ids().insert(request, id.expose_provenance());
        match listener.cm.take(request) {
            Ok(cm) => Ok(Arc::new(Self { cm, adapter: listener.adapter })),
            Err(error) => {
                ids().remove(&request);
                Err(errno::of(error))
            }
        }
    }
}

impl Drop for End {
    fn drop(&mut self) {
        ids().remove(&self.cm.key());
    }
}

/// The identifier that an event is of, which from now on the program has an event of.
pub(crate) fn owner(key: CmIdKey) -> Option<*mut rdma_cm_id> {
    let ids = ids();
    let id = ptr::with_exposed_provenance_mut::<Id>(*ids.get(&key)?);
    // SAFETY: it is in the list, so that nobody has destroyed it.
    unsafe { &(*id).private }.give();
    Some(id.cast())
}

/// Where the identifiers are that were made and not destroyed.
fn living() -> MutexGuard<'static, BTreeSet<usize>> {
    static LIVING: Mutex<BTreeSet<usize>> = Mutex::new(BTreeSet::new());
    LIVING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A process that ends with identifiers left, as perftest's servers do, parts from its peers, who
/// may wait for that: behind a card the kernel does it.
pub(crate) fn part_from_all() -> LastWords {
    let words = sockets::part_from_all();
    for &id in &*living() {
        let id = ptr::with_exposed_provenance::<Id>(id);
        // SAFETY: it is in the list, which stays locked.
        let private = unsafe { &(*id).private };
        if private.life.goes_on() {
            let ends = mem::take(&mut private.state().ends);
            drop(ends);
        }
    }
    words
}

impl Id {
    /// # Safety
    /// The channel is there, or null: then the identifier gets its own, and waits.
    pub(crate) unsafe fn make(
        channel: *mut rdma_event_channel,
        context: *mut c_void,
        ps: c_int,
        qp_type: c_int,
    ) -> Done<*mut rdma_cm_id> {
        let space = match ps {
            RDMA_PS_TCP => PortSpace::Tcp,
            RDMA_PS_UDP => PortSpace::Udp,
            RDMA_PS_IB => PortSpace::Ib,
            _ => return Err(libc::EPROTONOSUPPORT),
        };
        let waits = channel.is_null();
        let channel = if waits { Channel::make()? } else { channel };
        // SAFETY: all of it being zero is a value that it may have.
        let mut public: rdma_cm_id = unsafe { mem::zeroed() };
        (public.channel, public.context) = (channel, context);
        (public.ps, public.qp_type) = (ps, qp_type);
        let private = Private {
            life: Life::now(),
            space,
            waits: AtomicBool::new(waits),
            state: Mutex::default(),
            given: Mutex::new(0),
            given_back: Condvar::new(),
        };
        let id = Box::into_raw(Box::new(Self { public, private }));
        living().insert(id.expose_provenance());
        Ok(id.cast())
    }
}

impl Private {
    /// EINVAL where it is none, or none any more: programs retry with one that they have destroyed.
    ///
    /// # Safety
    /// Nobody destroys it meanwhile.
    pub(crate) unsafe fn of<'a>(id: *mut rdma_cm_id) -> Done<&'a Self> {
        if !living().contains(&id.addr()) {
            return Err(libc::EINVAL);
        }
        // SAFETY: it was made by us and is there; the public struct is the first field of ours.
        let private = unsafe { &(*id.cast::<Id>()).private };
        if private.life.goes_on() { Ok(private) } else { Err(libc::EIO) }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The one that it has.
    pub(crate) fn end(&self) -> Done<Arc<End>> {
        match &self.state().ends[..] {
            [end] => Ok(Arc::clone(end)),
            _ => Err(libc::EINVAL),
        }
    }

    /// The one with this name.
    pub(crate) fn end_named(&self, key: CmIdKey) -> Done<Arc<End>> {
        let state = self.state();
        let found = state.ends.iter().find(|end| end.cm.key() == key);
        found.cloned().ok_or(libc::EINVAL)
    }

    /// Whether calls wait for what follows from them.
    pub(crate) fn waits(&self) -> bool {
        self.waits.load(Ordering::Relaxed)
    }

    pub(crate) fn is_datagram(&self) -> bool {
        self.space == PortSpace::Udp
    }

    /// The program has one more event.
    pub(crate) fn give(&self) {
        *self.given.lock().unwrap_or_else(PoisonError::into_inner) += 1;
    }

    /// It gave one back.
    pub(crate) fn take_back(&self) {
        let mut given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        *given = given.saturating_sub(1);
        self.given_back.notify_all();
    }

    /// Has a call wait until the program has given back all; what takes long is told of, once.
    fn wait_for_all(&self, call: &'static str) {
        let given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        let has_some = |given: &mut _| *given != 0;
        let waited = self.given_back.wait_timeout_while(given, Waits::PATIENCE, has_some);
        let (given, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if *given != 0 {
            stories::of_wait(&Waits { call, for_call: "rdma_ack_cm_event" }, *given);
        }
        drop(self.given_back.wait_while(given, has_some));
    }
}

/// Shows the program the adapter and the addresses of an end, the only one from now on.
///
/// # Safety
/// The identifier is there.
pub(crate) unsafe fn show(id: *mut rdma_cm_id, end: &End) {
    // SAFETY: the caller promises it.
    unsafe {
        (*id).verbs = end.adapter.verbs;
        if (*id).pd.is_null() {
            (*id).pd = end.adapter.pd;
        }
        (*id).port_num = 1;
        show_addresses(id, end.cm.local_address(), end.cm.peer_address());
    }
}

/// # Safety
/// The identifier is there.
pub(crate) unsafe fn show_addresses(
    id: *mut rdma_cm_id,
    local: Option<SocketAddr>,
    peer: Option<SocketAddr>,
) {
    // SAFETY: the caller promises it.
    let shown = unsafe { &mut (*id).route.addr };
    if let Some(local) = local {
        shown.src_storage = address::write(local);
    }
    if let Some(peer) = peer {
        shown.dst_storage = address::write(peer);
    }
}

pub(crate) unsafe extern "C" fn rdma_create_id(
    channel: *mut rdma_event_channel,
    id: *mut *mut rdma_cm_id,
    context: *mut c_void,
    ps: c_int,
) -> c_int {
    let qp_type = if ps == RDMA_PS_UDP { IBV_QPT_UD } else { IBV_QPT_RC };
    // SAFETY: the program has made the channel, and says where the identifier is to be.
    errno::negative(unsafe {
        Id::make(channel, context, ps, qp_type.cast_signed()).map(|made| id.write(made))
    })
}

pub(crate) unsafe extern "C" fn rdma_destroy_id(id: *mut rdma_cm_id) -> c_int {
    // SAFETY: the program has made it and not destroyed it.
    errno::negative(unsafe { destroy(id) })
}

/// # Safety
/// It was made, not destroyed, and nobody uses it.
pub(crate) unsafe fn destroy(id: *mut rdma_cm_id) -> Done {
    // SAFETY: the caller promises it.
    unsafe {
        let private = match Private::of(id) {
            Ok(private) => private,
            // Whatever it stands for is of the process that forked.
            Err(libc::EIO) => return Ok(()),
            Err(errno) => return Err(errno),
        };
        give_back_own(id);
        // From here on nothing more is told of it.
        for end in &private.state().ends {
            ids().remove(&end.cm.key());
        }
        private.wait_for_all("rdma_destroy_id");
        living().remove(&id.addr());
        let Id { public, private } = *Box::from_raw(id.cast::<Id>());
        let waits = private.waits();
        drop(private);
        if waits {
            Channel::discard(public.channel);
        }
    }
    Ok(())
}

/// The event that a call waited for goes back.
///
/// # Safety
/// The identifier is there.
pub(crate) unsafe fn give_back_own(id: *mut rdma_cm_id) {
    // SAFETY: the caller promises it.
    unsafe {
        let event = mem::replace(&mut (*id).event, ptr::null_mut());
        if !event.is_null() {
            give_back(event);
        }
    }
}

pub(crate) unsafe extern "C" fn rdma_migrate_id(
    id: *mut rdma_cm_id,
    channel: *mut rdma_event_channel,
) -> c_int {
    // SAFETY: the program has made both.
    errno::negative(unsafe { migrate(id, channel) })
}

/// # Safety
/// The identifier is there; the channel too, or null: then the identifier gets its own, and waits.
pub(crate) unsafe fn migrate(id: *mut rdma_cm_id, channel: *mut rdma_event_channel) -> Done {
    // SAFETY: the caller promises it.
    unsafe {
        let private = Private::of(id)?;
        let waits = channel.is_null();
        let channel = if waits { Channel::make()? } else { channel };
        let to = Channel::of(channel)?.events()?;
        let old = mem::replace(&mut (*id).channel, channel);
        give_back_own(id);
        for end in &private.state().ends {
            end.cm.migrate(&to);
        }
        // Those that the program has are of the old channel.
        private.wait_for_all("rdma_migrate_id");
        if private.waits.swap(waits, Ordering::Relaxed) {
            Channel::discard(old);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_never_made_or_is_destroyed_is_no_identifier() {
        // SAFETY: nobody else has the identifier; of the others nothing is read.
        let is = |id: *mut rdma_cm_id| unsafe { Private::of(id) }.map(|_| ());
        assert_eq!(is(ptr::null_mut()), Err(libc::EINVAL));
        assert_eq!(is(ptr::without_provenance_mut(0x7f5_3480_0002)), Err(libc::EINVAL));
        // SAFETY: an identifier without a channel makes its own.
        let made = unsafe { Id::make(ptr::null_mut(), ptr::null_mut(), RDMA_PS_TCP, 2) };
        let id = made.expect("a channel can be made");
        assert_eq!(is(id), Ok(()));
        // SAFETY: it was made, and nobody uses it.
        unsafe { destroy(id) }.expect("it is there");
        assert_eq!(is(id), Err(libc::EINVAL));
        // SAFETY: as above: of what is not there nothing is read.
        assert_eq!(unsafe { destroy(id) }, Err(libc::EINVAL));
    }
}
