//! Memory regions and windows.

use std::ffi::{c_int, c_uint, c_void};

use roxe_verbs::{
    AccessFlags, Binding, LKey, LocalOperation, MemoryWindow, ProgramRange, ProgramRegion, RKey,
    SendOperation, Span, WindowType,
};

use crate::domain::Pd;
use crate::errno::{self, Done};
use crate::layout::{
    IBV_ACCESS_ON_DEMAND, IBV_ACCESS_OPTIONAL_RANGE, IBV_MW_TYPE_1, IBV_MW_TYPE_2,
    IBV_REREG_MR_CHANGE_ACCESS, IBV_REREG_MR_CHANGE_PD, IBV_REREG_MR_CHANGE_TRANSLATION,
    ibv_context, ibv_mr, ibv_mw, ibv_mw_bind_info, ibv_pd, ibv_sge,
};
use crate::session::{Object, Session, Use};
use crate::stories;

/// A memory region.
#[repr(C)]
pub(crate) struct Mr {
    public: ibv_mr,
    region: Option<ProgramRegion>,
    /// As the program asked for it: `ibv_access_flags`.
    access: c_uint,
    domain: Option<Use>,
}

impl Object for Mr {
    type Public = ibv_mr;
    type Handle = ProgramRegion;

    fn handle(&mut self) -> &mut Option<ProgramRegion> {
        &mut self.region
    }

    fn context(&self) -> *mut ibv_context {
        self.public.context
    }
}

/// The rights that a program asks for. Those that it calls optional need not be known.
fn rights(access: c_uint) -> Done<AccessFlags> {
    let known = AccessFlags::RELAXED_ORDERING.bits() | !IBV_ACCESS_OPTIONAL_RANGE;
    AccessFlags::from_bits(access & known).ok_or(libc::EINVAL)
}

/// Whether the memory is there now: `msync` says so, and does nothing else to memory that is no
/// file's. On demand it may come later.
fn check_there(start: u64, len: u64, access: c_uint) -> Done {
    if len == 0 || access & IBV_ACCESS_ON_DEMAND != 0 {
        return Ok(());
    }
    let page = start & !4095;
    let whole = (start - page).checked_add(len).and_then(|len| usize::try_from(len).ok());
    let first = std::ptr::with_exposed_provenance_mut(page as usize);
    // SAFETY: it only asks.
    let asked = whole.map(|whole| unsafe { libc::msync(first, whole, libc::MS_ASYNC) });
    if asked == Some(0) { Ok(()) } else { Err(libc::EFAULT) }
}

unsafe fn register(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    va: u64,
    access: c_uint,
) -> Done<*mut ibv_mr> {
    let wanted = rights(access)?;
    let range = ProgramRange { start: addr.addr() as u64, len: length as u64, va };
    check_there(range.start, range.len, access)?;
    // SAFETY: the program registers its memory, and has made the domain.
    unsafe {
        let domain = Pd::of(pd)?;
        let context = (*pd).context;
        let session = Session::of(context)?;
        let region = domain.domain()?.register_program(range, wanted);
        let region = region.map_err(stories::refused(session, "ibv_reg_mr"))?;
        let public = ibv_mr {
            context,
            pd,
            addr,
            length,
            handle: 0,
            lkey: region.l_key().0,
            rkey: region.r_key().0,
        };
        let domain = Some(domain.users.one_more());
        let mr = Mr { public, region: Some(region), access, domain }.publish(session);
        (*mr).public.handle = session.number_of(mr);
        Ok(mr.cast())
    }
}

impl Mr {
    /// Another name for a region of another context, which keeps it.
    pub(crate) fn import(session: &Session, original: &Self, pd: *mut ibv_pd) -> *mut ibv_mr {
        // SAFETY: the program has made the domain.
        let public = ibv_mr { context: unsafe { (*pd).context }, pd, ..original.public };
        let access = original.access;
        Self { public, region: None, access, domain: None }.publish(session).cast()
    }
}

pub(crate) unsafe extern "C" fn ibv_reg_mr(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> *mut ibv_mr {
    // SAFETY: the program registers its memory.
    unsafe { ibv_reg_mr_iova2(pd, addr, length, addr.addr() as u64, access.cast_unsigned()) }
}

pub(crate) unsafe extern "C" fn ibv_reg_mr_iova(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    va: u64,
    access: c_int,
) -> *mut ibv_mr {
    // SAFETY: the program registers its memory.
    unsafe { ibv_reg_mr_iova2(pd, addr, length, va, access.cast_unsigned()) }
}

pub(crate) unsafe extern "C" fn ibv_reg_mr_iova2(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    va: u64,
    access: c_uint,
) -> *mut ibv_mr {
    // SAFETY: the program registers its memory.
    errno::pointer(unsafe { register(pd, addr, length, va, access) })
}

pub(crate) unsafe extern "C" fn ibv_rereg_mr(
    mr: *mut ibv_mr,
    flags: c_int,
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> c_int {
    /// `IBV_REREG_MR_ERR_INPUT`, `IBV_REREG_MR_ERR_CMD`: the region is as it was.
    const NOTHING_CHANGED: [c_int; 2] = [-1, -4];
    // SAFETY: the program registers its memory.
    let done = unsafe { change(mr, flags.cast_unsigned(), pd, addr, length, access) };
    let Err(errno) = done else { return 0 };
    errno::set(errno);
    NOTHING_CHANGED[usize::from(errno != libc::EINVAL)]
}

unsafe fn change(
    mr: *mut ibv_mr,
    flags: c_uint,
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> Done {
    const KNOWN: u32 =
        IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_PD | IBV_REREG_MR_CHANGE_ACCESS;
    let has = |flag| flags & flag != 0;
    if flags == 0 || flags & !KNOWN != 0 || has(IBV_REREG_MR_CHANGE_TRANSLATION) && length == 0 {
        return Err(libc::EINVAL);
    }
    let access = access.cast_unsigned();
    let wanted = has(IBV_REREG_MR_CHANGE_ACCESS).then(|| rights(access)).transpose()?;
    // SAFETY: the program has made what it names, and registers its memory.
    unsafe {
        let region = Mr::alone(mr)?;
        let domain = match has(IBV_REREG_MR_CHANGE_PD) {
            true => Some(Pd::of(pd)?),
            false => None,
        };
        let range = has(IBV_REREG_MR_CHANGE_TRANSLATION).then(|| {
            let start = addr.addr() as u64;
            ProgramRange { start, len: length as u64, va: start }
        });
        if let Some(range) = range {
            // What it may do it may still, if nothing else is said.
            let access = if wanted.is_some() { access } else { region.access };
            check_there(range.start, range.len, access)?;
        }
        let new = domain.as_ref().map(|domain| domain.domain()).transpose()?;
        let changed = region.region.as_mut().ok_or(libc::EIO)?.change(range, new, wanted);
        changed.map_err(errno::of)?;
        if wanted.is_some() {
            region.access = access;
        }
        if range.is_some() {
            (region.public.addr, region.public.length) = (addr, length);
        }
        if let Some(domain) = domain {
            region.domain = Some(domain.users.one_more());
            region.public.pd = pd;
        }
    }
    Ok(())
}

pub(crate) unsafe extern "C" fn ibv_dereg_mr(mr: *mut ibv_mr) -> c_int {
    // SAFETY: the program has made it and not destroyed it.
    errno::positive(unsafe { deregister(mr) })
}

unsafe fn deregister(mr: *mut ibv_mr) -> Done {
    // SAFETY: the caller promises it.
    unsafe {
        if Mr::is_inherited(mr) {
            return Ok(());
        }
        let region = Mr::alone(mr)?;
        if let Some(handle) = region.region.take()
            && let Err((handle, error)) = handle.deregister()
        {
            region.region = Some(handle);
            return Err(errno::of(error));
        }
        drop(Mr::take(mr));
    }
    Ok(())
}

/// To have pages ready that somebody will need: nothing is ever pinned here, so that this touches
/// no page; but the regions must be there.
pub(crate) unsafe extern "C" fn advise_mr(
    pd: *mut ibv_pd,
    _advice: c_int,
    _flags: u32,
    _list: *mut ibv_sge,
    _count: u32,
) -> c_int {
    // SAFETY: the program has made the domain.
    errno::positive(unsafe { Pd::of(pd) }.map(|_| ()))
}

/// A memory window.
#[repr(C)]
pub(crate) struct Mw {
    public: ibv_mw,
    window: Option<MemoryWindow>,
    _domain: Use,
}

impl Object for Mw {
    type Public = ibv_mw;
    type Handle = MemoryWindow;

    fn handle(&mut self) -> &mut Option<MemoryWindow> {
        &mut self.window
    }

    fn context(&self) -> *mut ibv_context {
        self.public.context
    }
}

pub(crate) unsafe extern "C" fn alloc_mw(pd: *mut ibv_pd, kind: c_int) -> *mut ibv_mw {
    // SAFETY: the program has made the domain.
    errno::pointer(unsafe { window(pd, kind) })
}

unsafe fn window(pd: *mut ibv_pd, kind: c_int) -> Done<*mut ibv_mw> {
    let wanted = match kind.cast_unsigned() {
        IBV_MW_TYPE_1 => WindowType::Type1,
        IBV_MW_TYPE_2 => WindowType::Type2,
        _ => return Err(libc::EINVAL),
    };
    // SAFETY: the caller promises it.
    unsafe {
        let domain = Pd::of(pd)?;
        let window = domain.domain()?.alloc_mw(wanted).map_err(errno::of)?;
        let context = (*pd).context;
        let public = ibv_mw { context, pd, rkey: window.r_key().0, handle: 0, r#type: kind };
        let mw = Mw { public, window: Some(window), _domain: domain.users.one_more() };
        Ok(mw.publish(Session::of(context)?).cast())
    }
}

pub(crate) unsafe extern "C" fn dealloc_mw(mw: *mut ibv_mw) -> c_int {
    // SAFETY: the program has made it and not destroyed it.
    let done = unsafe {
        match Mw::of(mw) {
            Ok(_) => {
                drop(Mw::take(mw));
                Ok(())
            }
            Err(libc::EIO) => Ok(()),
            Err(errno) => Err(errno),
        }
    };
    errno::positive(done)
}

/// The request that binds a window, which then has another key.
///
/// # Safety
/// The program has made the window, and the region unless the window is to be closed.
pub(crate) unsafe fn binding(
    mw: *mut ibv_mw,
    new_key: u32,
    info: &ibv_mw_bind_info,
) -> Done<SendOperation> {
    // SAFETY: the caller promises it.
    unsafe {
        let window = Mw::of(mw)?;
        // What the adapter itself may do is the region's to say.
        let offered = AccessFlags::REMOTE | AccessFlags::ZERO_BASED;
        let access = rights(info.mw_access_flags)?.bits() & offered.bits();
        let region = match info.mr.as_ref() {
            Some(region) => LKey(region.lkey),
            None if info.length == 0 => LKey(0),
            None => return Err(libc::EINVAL),
        };
        Ok(SendOperation::Local(LocalOperation::BindWindow(Binding {
            window: RKey(window.public.rkey),
            new_key: RKey(key_of(window.public.rkey, new_key)),
            region,
            span: Span { va: info.addr, len: info.length },
            access: AccessFlags::from_bits(access).ok_or(libc::EINVAL)?,
        })))
    }
}

/// The key that a window has once it is bound with a new one: of that the low byte counts.
pub(crate) const fn key_of(window: u32, new_key: u32) -> u32 {
    window & !0xff | new_key & 0xff
}

/// Memory of a device that is no memory of this process.
pub(crate) unsafe extern "C" fn ibv_reg_dmabuf_mr(
    _pd: *mut ibv_pd,
    _offset: u64,
    _length: usize,
    _va: u64,
    _fd: c_int,
    _access: c_int,
) -> *mut ibv_mr {
    errno::pointer(Err(libc::EOPNOTSUPP))
}

/// Ranges that a child is to have, or not: nothing is pinned, so that it does not matter.
pub(crate) extern "C" fn no_need_to_keep(_start: *mut c_void, _len: usize) -> c_int {
    0
}
