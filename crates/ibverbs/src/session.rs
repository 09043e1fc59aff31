//! An `ibv_context`, and what all objects of C have in common.
//!
//! What a program gets is a pointer to the public struct of its header; ours lies around it or
//! behind it, in one piece of memory. A program may destroy what it made in any order that verbs
//! allow, close the adapter with objects left, or fork: the child has the memory, but not the
//! adapter, and each call with an inherited object fails with EIO.

use std::any::type_name;
use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::mem::offset_of;
use std::os::fd::OwnedFd;
use std::ptr::with_exposed_provenance_mut;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use roxe_verbs::{AsyncEvents, Context};

use crate::completion::Cq;
use crate::device::Device;
use crate::errno::Done;
use crate::layout::{ibv_context, verbs_context, verbs_context_of_today};
use crate::queue_pair::Qp;
use crate::shared_receive::Srq;
use crate::stories;

/// An open adapter.
#[repr(C)]
pub(crate) struct Session {
    /// The program has the address of `table.verbs.context`.
    pub(crate) table: verbs_context_of_today,
    pub(crate) device: &'static Device,
    /// What it has of the adapter, until it is closed.
    open: Option<Open>,
    objects: Mutex<Objects>,
    life: Life,
}

/// What an open context has of its adapter, and of the kernel.
pub(crate) struct Open {
    /// With events of its own.
    pub(crate) context: Context,
    pub(crate) events: AsyncEvents,
    /// `cmd_fd`: names the session to whoever imports it.
    pub(crate) command: OwnedFd,
}

/// Which objects there are.
#[derive(Default)]
pub(crate) struct Objects {
    /// By the number that events name them by.
    pub(crate) queue_pairs: BTreeMap<u32, *mut Qp>,
    pub(crate) completion_queues: BTreeMap<u32, *mut Cq>,
    pub(crate) shared_receives: BTreeMap<u32, *mut Srq>,
    /// All of them, by address.
    all: BTreeMap<usize, Entry>,
    last_number: u32,
}

/// What is known of each object.
struct Entry {
    /// Names it to whoever imports it.
    number: u32,
    /// Its type.
    kind: &'static str,
    /// Takes the adapter's part out of it.
    empty: unsafe fn(*mut c_void),
}

// SAFETY: the pointers are only followed with the lock in hand or by functions of C, whose callers
// say that the objects are there.
unsafe impl Send for Objects {}

/// In which process an object was made.
#[derive(Clone, Copy)]
pub(crate) struct Life(u32);

/// How often a process that led to this one has forked since the library was first used.
static FORKS: AtomicU32 = AtomicU32::new(0);

impl Life {
    pub(crate) fn now() -> Self {
        Self(FORKS.load(Ordering::Relaxed))
    }

    /// Whether the object is of this process and not of one that forked.
    pub(crate) fn goes_on(self) -> bool {
        self.0 == FORKS.load(Ordering::Relaxed)
    }

    /// Its number, which no other process has that this one led to.
    pub(crate) const fn number(self) -> u32 {
        self.0
    }

    /// From now on forks are counted.
    pub(crate) fn watch_forks() {
        extern "C" fn child() {
            FORKS.fetch_add(1, Ordering::Relaxed);
        }
        static ONCE: std::sync::Once = std::sync::Once::new();
        ONCE.call_once(|| {
            // Without room for it, a child that uses an adapter is as wrong as it was before.
            // SAFETY: the handler does what may be done in a child of a process with threads.
            let _ = unsafe { libc::pthread_atfork(None, None, Some(child)) };
        });
    }
}

impl Session {
    pub(crate) fn new(
        table: verbs_context_of_today,
        device: &'static Device,
        context: Context,
        command: OwnedFd,
    ) -> Box<Self> {
        let events = context.async_events();
        let open = Some(Open { context, events, command });
        Box::new(Self { table, device, open, objects: Mutex::default(), life: Life::now() })
    }

    /// The address that the program has.
    pub(crate) fn public(&mut self) -> *mut ibv_context {
        &raw mut self.table.verbs.context
    }

    /// The session around a context that the program has.
    pub(crate) const fn around(context: *mut ibv_context) -> *mut Self {
        const OFFSET: usize =
            offset_of!(verbs_context_of_today, verbs) + offset_of!(verbs_context, context);
        context.cast::<u8>().wrapping_sub(OFFSET).cast()
    }

    /// # Safety
    /// The context is one that was opened and not closed.
    pub(crate) unsafe fn of<'a>(context: *mut ibv_context) -> Done<&'a Self> {
        if context.is_null() {
            return Err(libc::EINVAL);
        }
        // SAFETY: the caller promises it.
        let session = unsafe { &*Self::around(context) };
        if session.life.goes_on() { Ok(session) } else { Err(libc::EIO) }
    }

    /// What it has while it is open.
    pub(crate) fn open(&self) -> Done<&Open> {
        self.open.as_ref().ok_or(libc::EIO)
    }

    /// The adapter, while it is open.
    pub(crate) fn context(&self) -> Done<&Context> {
        self.open().map(|open| &open.context)
    }

    /// Whether it was not opened by a process that forked.
    pub(crate) fn is_ours(&self) -> bool {
        self.life.goes_on()
    }

    pub(crate) fn objects(&self) -> MutexGuard<'_, Objects> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes it: takes the adapter's part out of it and of all objects that are left. The program
    /// may still destroy those, and the last one takes what remains of the session with it.
    ///
    /// # Safety
    /// The context is one that was opened and not closed, and nobody else uses it.
    pub(crate) unsafe fn close(context: *mut ibv_context) {
        // SAFETY: the caller promises it.
        let session = unsafe { &mut *Self::around(context) };
        let objects = session.objects.get_mut().unwrap_or_else(PoisonError::into_inner);
        for (&address, entry) in &objects.all {
            // SAFETY: an object that is in the list is there.
            unsafe { (entry.empty)(with_exposed_provenance_mut(address)) };
        }
        session.open = None;
        // SAFETY: as above.
        unsafe { Self::end_if_unused(context) };
    }

    /// A session that is closed ends with the last of its objects.
    ///
    /// # Safety
    /// The session is there; if it is closed and has no objects, nobody uses it any more.
    unsafe fn end_if_unused(context: *mut ibv_context) {
        let session = Self::around(context);
        // SAFETY: the caller promises it.
        let is_over = unsafe { (*session).open.is_none() && (*session).objects().all.is_empty() };
        if is_over {
            // SAFETY: as above; made by `Session::new`.
            drop(unsafe { Box::from_raw(session) });
        }
    }

    /// By which number an object is imported.
    pub(crate) fn number_of<T>(&self, object: *mut T) -> u32 {
        self.objects().all.get(&object.addr()).map_or(0, |entry| entry.number)
    }

    /// The object that has this number.
    pub(crate) fn numbered<T: Object>(&self, number: u32) -> Option<*mut T> {
        let objects = self.objects();
        let is_it = |entry: &Entry| entry.number == number && entry.kind == type_name::<T>();
        let (&address, _) = objects.all.iter().find(|(_, entry)| is_it(entry))?;
        Some(with_exposed_provenance_mut(address))
    }
}

/// An object of C: a public struct, with ours behind it.
pub(crate) trait Object: Sized {
    /// What the program sees.
    type Public;
    /// The adapter's part of it.
    type Handle;

    /// The place of the adapter's part; empty once the adapter was closed.
    fn handle(&mut self) -> &mut Option<Self::Handle>;

    /// The context it belongs to.
    fn context(&self) -> *mut ibv_context;

    /// Puts it where the program finds it.
    fn publish(self, session: &Session) -> *mut Self {
        /// # Safety
        /// It is there.
        unsafe fn empty<T: Object>(object: *mut c_void) {
            // SAFETY: the caller promises it.
            drop(unsafe { &mut *object.cast::<T>() }.handle().take());
        }
        let object = Box::into_raw(Box::new(self));
        let objects = &mut *session.objects();
        objects.last_number += 1;
        let (number, kind) = (objects.last_number, type_name::<Self>());
        let entry = Entry { number, kind, empty: empty::<Self> };
        objects.all.insert(object.expose_provenance(), entry);
        object
    }

    /// The object behind what the program has, which other threads may use meanwhile.
    ///
    /// # Safety
    /// It was made and not destroyed.
    unsafe fn of<'a>(public: *mut Self::Public) -> Done<&'a Self> {
        if public.is_null() {
            return Err(libc::EINVAL);
        }
        // SAFETY: the caller promises it, and the public struct is the first field of ours.
        let object = unsafe { &*public.cast::<Self>() };
        // SAFETY: a context outlives its objects.
        unsafe { Session::of(object.context())? };
        Ok(object)
    }

    /// The same for a call beside which there is no other, as one that destroys it.
    ///
    /// # Safety
    /// As [`Object::of`]; nobody else uses it.
    unsafe fn alone<'a>(public: *mut Self::Public) -> Done<&'a mut Self> {
        // SAFETY: the caller promises it.
        unsafe {
            Self::of(public)?;
            Ok(&mut *public.cast::<Self>())
        }
    }

    /// Whether it is an object of a process that forked; then destroying it forgets it.
    ///
    /// # Safety
    /// As [`Object::of`].
    unsafe fn is_inherited(public: *mut Self::Public) -> bool {
        // SAFETY: the caller promises it.
        unsafe { Self::of(public) }.err() == Some(libc::EIO)
    }

    /// Takes it from the program.
    ///
    /// # Safety
    /// As [`Object::of`]; nobody uses it any more.
    unsafe fn take(public: *mut Self::Public) -> Box<Self> {
        let object = public.cast::<Self>();
        // SAFETY: the caller promises it, and a session is there as long as its objects.
        unsafe {
            let context = (*object).context();
            if let Ok(session) = Session::of(context) {
                session.objects().all.remove(&object.expose_provenance());
                Session::end_if_unused(context);
            }
        }
        // SAFETY: made by `publish`.
        unsafe { Box::from_raw(object) }
    }
}

/// Who uses an object, which then cannot be destroyed.
#[derive(Default)]
pub(crate) struct Users(Arc<AtomicU32>);

/// An object uses another, as long as this is there.
pub(crate) struct Use(Arc<AtomicU32>);

impl Users {
    /// There is one more.
    pub(crate) fn one_more(&self) -> Use {
        self.0.fetch_add(1, Ordering::Relaxed);
        Use(Arc::clone(&self.0))
    }

    pub(crate) fn none_left(&self) -> Done {
        if self.0.load(Ordering::Relaxed) == 0 { Ok(()) } else { Err(libc::EBUSY) }
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Events that the program was given of an object, and those that it gave back. Who destroys the
/// object waits until it has given back all.
pub(crate) struct Acknowledged {
    pub(crate) mutex: *mut libc::pthread_mutex_t,
    pub(crate) cond: *mut libc::pthread_cond_t,
    pub(crate) completed: *mut u32,
}

impl Acknowledged {
    /// The program gave back so many.
    ///
    /// # Safety
    /// The object is there.
    pub(crate) unsafe fn add(&self, events: u32) {
        // SAFETY: the caller promises it.
        unsafe {
            libc::pthread_mutex_lock(self.mutex);
            *self.completed = (*self.completed).wrapping_add(events);
            libc::pthread_cond_signal(self.cond);
            libc::pthread_mutex_unlock(self.mutex);
        }
    }

    /// Has a call wait until the program has given back all that it was given; what takes long is
    /// told of, once.
    ///
    /// # Safety
    /// The object is there.
    pub(crate) unsafe fn wait_for(&self, given: u32, waits: Waits) {
        // SAFETY: the caller promises it, and the clock writes to what is ours.
        unsafe {
            let mut until: libc::timespec = std::mem::zeroed();
            libc::clock_gettime(libc::CLOCK_REALTIME, &raw mut until);
            until.tv_sec += Waits::PATIENCE.as_secs().cast_signed();
            libc::pthread_mutex_lock(self.mutex);
            let left =
                || given.wrapping_sub(AtomicU32::from_ptr(self.completed).load(Ordering::Relaxed));
            let mut is_told = false;
            while left() != 0 {
                if is_told {
                    libc::pthread_cond_wait(self.cond, self.mutex);
                } else if libc::pthread_cond_timedwait(self.cond, self.mutex, &raw const until)
                    == libc::ETIMEDOUT
                    && left().cast_signed() > 0
                {
                    stories::of_wait(&waits, left());
                    is_told = true;
                }
            }
            libc::pthread_mutex_unlock(self.mutex);
        }
    }
}

/// A call that waits for events to be given back.
pub(crate) struct Waits {
    /// Its name.
    pub(crate) call: &'static str,
    /// The call that gives them back.
    pub(crate) for_call: &'static str,
}

impl Waits {
    /// Who takes longer than this has probably forgotten to give them back.
    pub(crate) const PATIENCE: Duration = Duration::from_secs(5);
}

/// Whether whoever reads from a descriptor wants to wait: the program says so on the descriptor.
pub(crate) fn waits(fd: c_int) -> bool {
    // SAFETY: it only asks.
    unsafe { libc::fcntl(fd, libc::F_GETFL) & libc::O_NONBLOCK == 0 }
}
