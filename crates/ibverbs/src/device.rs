//! Which adapters there are, and how one is opened and closed.
//!
//! `ROXE_DEVICES` names them. Without it there are none, so that a program that has nothing to do
//! with RDMA notices nothing of this library.

use std::ffi::{CStr, c_char, c_int};
use std::io::{self, Write as _};
use std::net::IpAddr;
use std::os::fd::{AsFd as _, AsRawFd as _, FromRawFd as _, OwnedFd};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::{env, mem, ptr, thread};

use roxe_verbs::cm::Will;
use roxe_verbs::udp::OpenError;
use roxe_verbs::{Context, DeviceEntry, Error, devices};

use crate::errno::{self, Done};
use crate::layout::{IBV_NODE_CA, IBV_TRANSPORT_IB, ibv_context, ibv_device};
use crate::session::{Life, Session};
use crate::{exit, import, stories, table};

/// An adapter that can be opened. There as long as the process.
#[repr(C)]
pub(crate) struct Device {
    public: ibv_device,
    /// Libraries of other adapters look here whether it is one of theirs.
    provider: [usize; 8],
    entry: DeviceEntry,
    pub(crate) index: c_int,
    pub(crate) guid: u64,
    open: Mutex<Open>,
}

// SAFETY: what the program sees of it does not change.
unsafe impl Sync for Device {}
// SAFETY: as above.
unsafe impl Send for Device {}

/// The adapter, while the process has it open, once for all who open it.
#[derive(Default)]
struct Open {
    context: Option<(Context, Life)>,
    sessions: usize,
    /// It was open when this process was forked.
    inherited: bool,
}

impl Device {
    fn new(index: usize, entry: DeviceEntry) -> Self {
        let number = c_int::try_from(index).unwrap_or(c_int::MAX);
        // One without a name has its string for one.
        let name = match entry.name == entry.device.to_string() {
            true => format!("roxe{index}"),
            false => entry.name.clone(),
        };
        let public = ibv_device {
            _ops: [ptr::null(); 2],
            node_type: IBV_NODE_CA as c_int,
            transport_type: IBV_TRANSPORT_IB as c_int,
            name: c_text(&name),
            dev_name: c_text(&format!("uverbs{index}")),
            dev_path: c_text(&format!("/sys/class/infiniband_verbs/uverbs{index}")),
            ibdev_path: c_text(&format!("/sys/class/infiniband/{name}")),
        };
        let guid = u64::from_ne_bytes(entry.guid());
        let entry = DeviceEntry { name, ..entry };
        let (provider, open) = ([0; 8], Mutex::default());
        Self { public, provider, entry, index: number, guid, open }
    }

    pub(crate) fn name(&self) -> &str {
        &self.entry.name
    }

    /// Opens it, or joins those who have it open.
    fn open(&'static self) -> Done<Box<Session>> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.context.as_ref().is_some_and(|(_, life)| !life.goes_on()) {
            // What a process that forked has open is not for us to close.
            mem::forget(mem::replace(&mut *open, Open { inherited: true, ..Open::default() }));
        }
        let shared = match &open.context {
            Some((context, _)) => context.clone(),
            None => {
                let opened = without_signals(|| self.entry.open());
                let context = opened.map_err(|error| {
                    let why = match error {
                        Error::OpenUdp(OpenError::PortInUse { address }) if open.inherited => {
                            of_parent(address)
                        }
                        _ => error.to_string(),
                    };
                    say(format!("roxe: {}: {why}\n", self.name()));
                    error.errno()
                })?;
                self.watch_recording(&context);
                stories::watch(self.name(), &context);
                self.leave_will(&context);
                open.context = Some((context.clone(), Life::now()));
                context
            }
        };
        let session = self.session(&shared);
        match &session {
            Ok(_) => open.sessions += 1,
            Err(_) if open.sessions == 0 => open.context = None,
            Err(_) => {}
        }
        session
    }

    /// Says so when a recording cannot go on. The traffic does.
    fn watch_recording(&self, context: &Context) {
        if let Some(recorder) = context.recorder() {
            exit::expect_recordings();
            let name = self.name().to_owned();
            recorder.on_trouble(move |trouble| say(format!("roxe: {name}: {trouble}\n")));
        }
    }

    /// Has whoever started the program know from whom to part where it is killed.
    fn leave_will(&self, context: &Context) {
        let path = env::var_os("ROXE_WILL").filter(|path| !path.is_empty());
        // Who started it may have gone.
        if let Some(will) = path.and_then(|path| Will::begin(path.as_ref(), self.name()).ok()) {
            context.keep(will);
        }
    }

    fn session(&'static self, shared: &Context) -> Done<Box<Session>> {
        let context = shared.with_own_events().map_err(errno::of)?;
        let command = memory_file().map_err(|error| error.raw_os_error().unwrap_or(libc::EIO))?;
        let mut table = table::new(ptr::from_ref(&self.public).cast_mut());
        table.verbs.context.cmd_fd = command.as_raw_fd();
        table.verbs.context.async_fd = context.async_events().as_fd().as_raw_fd();
        Ok(Session::new(table, self, context, command))
    }

    fn close(&self) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.sessions = open.sessions.saturating_sub(1);
        if open.sessions == 0 {
            open.context = None;
        }
    }

    /// The adapter that the program means.
    ///
    /// # Safety
    /// It is from our list.
    pub(crate) unsafe fn of(device: *mut ibv_device) -> Done<&'static Self> {
        // SAFETY: the caller promises it; devices are there for ever.
        unsafe { device.cast::<Self>().as_ref() }.ok_or(libc::EINVAL)
    }

    /// The one whose files would be in this folder.
    pub(crate) fn at(folder: &CStr) -> Option<&'static Self> {
        let is_there = |device: &&Self| {
            // SAFETY: it ends with a zero.
            let path = unsafe { CStr::from_ptr(device.public.ibdev_path.as_ptr()) };
            path == folder
        };
        all().iter().find(is_there)
    }
}

/// Why a child cannot open what was open when it was forked.
fn of_parent(address: IpAddr) -> String {
    format!(
        "the process that forked this one has it open, and so UDP port 4791 on {address}: open it \
         behind the fork, give the child another adapter, or let both be `host:{address}`"
    )
}

/// All there are.
fn all() -> &'static [Device] {
    static DEVICES: OnceLock<Vec<Device>> = OnceLock::new();
    DEVICES.get_or_init(|| {
        let named = env::var_os("ROXE_DEVICES");
        if named.is_none_or(|named| named.to_string_lossy().trim().is_empty()) {
            return Vec::new();
        }
        let entries = devices().unwrap_or_else(|error| {
            say(format!("roxe: {error}\n"));
            Vec::new()
        });
        entries.into_iter().enumerate().map(|(at, entry)| Device::new(at, entry)).collect()
    })
}

pub(crate) unsafe extern "C" fn ibv_get_device_list(count: *mut c_int) -> *mut *mut ibv_device {
    let public = |device: &Device| ptr::from_ref(&device.public).cast_mut();
    let list: Vec<_> = all().iter().map(public).chain([ptr::null_mut()]).collect();
    if !count.is_null() {
        // SAFETY: the program said where.
        unsafe { *count = c_int::try_from(list.len() - 1).unwrap_or(c_int::MAX) };
    }
    Box::into_raw(list.into_boxed_slice()).cast()
}

pub(crate) unsafe extern "C" fn ibv_free_device_list(list: *mut *mut ibv_device) {
    if !list.is_null() {
        let list = ptr::slice_from_raw_parts_mut(list, all().len() + 1);
        // SAFETY: made by `ibv_get_device_list`, and there are always as many.
        drop(unsafe { Box::from_raw(list) });
    }
}

pub(crate) unsafe extern "C" fn ibv_get_device_name(device: *mut ibv_device) -> *const c_char {
    // SAFETY: the program has it from our list.
    unsafe { device.as_ref() }.map_or(ptr::null(), |device| device.name.as_ptr())
}

pub(crate) unsafe extern "C" fn ibv_get_device_guid(device: *mut ibv_device) -> u64 {
    // SAFETY: the program has it from our list.
    unsafe { Device::of(device) }.map_or(0, |device| device.guid)
}

pub(crate) unsafe extern "C" fn ibv_get_device_index(device: *mut ibv_device) -> c_int {
    // SAFETY: the program has it from our list.
    unsafe { Device::of(device) }.map_or(-1, |device| device.index)
}

pub(crate) unsafe extern "C" fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context {
    stories::begin();
    // SAFETY: the program has it from our list.
    let opened = unsafe { Device::of(device) }.and_then(Device::open);
    errno::pointer(opened.map(publish))
}

fn publish(session: Box<Session>) -> *mut ibv_context {
    let session = Box::leak(session);
    import::add(session);
    exit::watch();
    session.public()
}

/// A context of the adapter that the one with this `cmd_fd` is of.
pub(crate) extern "C" fn ibv_import_device(fd: c_int) -> *mut ibv_context {
    errno::pointer(import::device_of(fd).and_then(Device::open).map(publish))
}

pub(crate) unsafe extern "C" fn ibv_close_device(context: *mut ibv_context) -> c_int {
    // SAFETY: the program has opened it.
    match unsafe { Session::of(context) } {
        Ok(session) => {
            let device = session.device;
            import::remove(Session::around(context));
            // SAFETY: nobody else uses it any more.
            unsafe { Session::close(context) };
            device.close();
            exit::look_whether_needed();
            0
        }
        // What a process that forked has open is not for us to close.
        Err(libc::EIO) => 0,
        Err(errno) => errno::positive(Err(errno)),
    }
}

/// Threads that are made meanwhile get no signals: those are for the threads of the program. The
/// two are not sent, they happen.
pub(crate) fn without_signals<R>(call: impl FnOnce() -> R) -> R {
    // SAFETY: the sets are ours, and the mask is put back.
    unsafe {
        let (mut all, mut before) = (mem::zeroed(), mem::zeroed());
        libc::sigfillset(&raw mut all);
        libc::sigdelset(&raw mut all, libc::SIGSEGV);
        libc::sigdelset(&raw mut all, libc::SIGBUS);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        let result = call();
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, ptr::null_mut());
        result
    }
}

/// Writes to standard error. Whoever calls may have an engine in hand: where not all of it can be
/// written at once, a thread does it.
pub(crate) fn say(text: String) {
    // If standard error is closed, nobody wants to know.
    let write = move || drop(io::stderr().write_all(text.as_bytes()));
    if stderr_has_room() {
        write();
    } else {
        drop(without_signals(|| thread::Builder::new().spawn(write)));
    }
}

/// The same of a process that ends: what cannot be written at once nobody hears.
pub(crate) fn say_without_waiting(text: &str) {
    if stderr_has_room() {
        // SAFETY: the bytes are there. Not by the standard library: whoever ends may be the handler
        // of a signal that came while the same thread had its lock.
        let _ = unsafe { libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len()) };
    }
}

fn stderr_has_room() -> bool {
    let mut asked = libc::pollfd { fd: libc::STDERR_FILENO, events: libc::POLLOUT, revents: 0 };
    // SAFETY: it is one, and ours.
    let found = unsafe { libc::poll(&raw mut asked, 1, 0) };
    (found, asked.revents) == (1, libc::POLLOUT)
}

/// A file of its own, in memory: a descriptor that may be duplicated and says which it is.
fn memory_file() -> io::Result<OwnedFd> {
    // SAFETY: the name ends with a zero.
    let fd = unsafe { libc::memfd_create(c"roxe".as_ptr(), libc::MFD_CLOEXEC) };
    // SAFETY: it was just made.
    if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(unsafe { OwnedFd::from_raw_fd(fd) }) }
}

/// A text as C has it; what is too long is cut off.
pub(crate) fn c_text<const LEN: usize>(text: &str) -> [c_char; LEN] {
    let mut room = [0; LEN];
    let most = LEN - 1;
    room.iter_mut().zip(text.bytes().take(most)).for_each(|(to, from)| *to = from as c_char);
    room
}
