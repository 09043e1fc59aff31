//! Protection domains, thread domains, parent domains.

use std::ffi::c_int;

use roxe_verbs::ProtectionDomain;

use crate::errno::{self, Done};
use crate::layout::{
    IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS, IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT, ibv_context,
    ibv_parent_domain_init_attr, ibv_pd, ibv_td, ibv_td_init_attr,
};
use crate::session::{Object, Session, Use, Users};

/// A protection domain.
#[repr(C)]
pub(crate) struct Pd {
    public: ibv_pd,
    domain: Option<ProtectionDomain>,
    /// What stands on it.
    pub(crate) users: Users,
    /// The domain that this one is a view of, and the threads that use it.
    _parents: Vec<Use>,
}

impl Object for Pd {
    type Public = ibv_pd;
    type Handle = ProtectionDomain;

    fn handle(&mut self) -> &mut Option<ProtectionDomain> {
        &mut self.domain
    }

    fn context(&self) -> *mut ibv_context {
        self.public.context
    }
}

impl Pd {
    pub(crate) fn domain(&self) -> Done<&ProtectionDomain> {
        self.domain.as_ref().ok_or(libc::EIO)
    }

    /// Another name for a domain of another context.
    pub(crate) fn import(
        session: &Session,
        context: *mut ibv_context,
        domain: ProtectionDomain,
        handle: u32,
    ) -> *mut ibv_pd {
        let pd = publish(session, context, domain, Vec::new());
        // SAFETY: it was just made.
        unsafe { (*pd).handle = handle };
        pd
    }
}

pub(crate) unsafe extern "C" fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
    // SAFETY: the program has opened it.
    let made = unsafe { Session::of(context) }.and_then(|session| {
        let domain = session.context()?.alloc_pd().map_err(errno::of)?;
        Ok(publish(session, context, domain, Vec::new()))
    });
    errno::pointer(made)
}

fn publish(
    session: &Session,
    context: *mut ibv_context,
    domain: ProtectionDomain,
    parents: Vec<Use>,
) -> *mut ibv_pd {
    let public = ibv_pd { context, handle: 0 };
    let users = Users::default();
    let pd = Pd { public, domain: Some(domain), users, _parents: parents };
    let pd = pd.publish(session);
    // SAFETY: it was just made. By the handle who imports it finds it.
    unsafe { (*pd).public.handle = session.number_of(pd) };
    pd.cast()
}

pub(crate) unsafe extern "C" fn ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int {
    // SAFETY: the program has made it and not destroyed it.
    errno::positive(unsafe { dealloc(pd) })
}

unsafe fn dealloc(pd: *mut ibv_pd) -> Done {
    // SAFETY: the caller promises it.
    unsafe {
        if Pd::is_inherited(pd) {
            return Ok(());
        }
        Pd::of(pd)?.users.none_left()?;
        drop(Pd::take(pd));
    }
    Ok(())
}

/// A thread domain: a promise of the program that one thread uses what is in it, of which nothing
/// is made here.
#[repr(C)]
pub(crate) struct Td {
    public: ibv_td,
    users: Users,
    nothing: Option<()>,
}

impl Object for Td {
    type Public = ibv_td;
    type Handle = ();

    fn handle(&mut self) -> &mut Option<()> {
        &mut self.nothing
    }

    fn context(&self) -> *mut ibv_context {
        self.public.context
    }
}

pub(crate) unsafe extern "C" fn alloc_td(
    context: *mut ibv_context,
    attr: *mut ibv_td_init_attr,
) -> *mut ibv_td {
    // SAFETY: the program has opened it, and gives its wishes.
    let made = unsafe { Session::of(context) }.and_then(|session| {
        // SAFETY: as above.
        if unsafe { attr.as_ref() }.is_none_or(|attr| attr.comp_mask != 0) {
            return Err(libc::EINVAL);
        }
        let public = ibv_td { context };
        Ok(Td { public, users: Users::default(), nothing: None }.publish(session).cast())
    });
    errno::pointer(made)
}

pub(crate) unsafe extern "C" fn dealloc_td(td: *mut ibv_td) -> c_int {
    // SAFETY: the program has made it and not destroyed it.
    errno::positive(unsafe { dealloc_thread(td) })
}

unsafe fn dealloc_thread(td: *mut ibv_td) -> Done {
    // SAFETY: the caller promises it.
    unsafe {
        if Td::is_inherited(td) {
            return Ok(());
        }
        Td::of(td)?.users.none_left()?;
        drop(Td::take(td));
    }
    Ok(())
}

pub(crate) unsafe extern "C" fn alloc_parent_domain(
    context: *mut ibv_context,
    attr: *mut ibv_parent_domain_init_attr,
) -> *mut ibv_pd {
    // SAFETY: the program has made what it names.
    errno::pointer(unsafe { parent_domain(context, attr) })
}

unsafe fn parent_domain(
    context: *mut ibv_context,
    attr: *mut ibv_parent_domain_init_attr,
) -> Done<*mut ibv_pd> {
    const KNOWN: u32 =
        IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
    // SAFETY: the caller promises it.
    unsafe {
        let (session, attr) = (Session::of(context)?, attr.as_ref().ok_or(libc::EINVAL)?);
        if attr.comp_mask & !KNOWN != 0 {
            return Err(libc::EINVAL);
        }
        let parent = Pd::of(attr.pd)?;
        let domain = parent.domain()?.clone();
        let thread = Td::of(attr.td).ok().map(|thread| thread.users.one_more());
        let parents = [parent.users.one_more()].into_iter().chain(thread).collect();
        Ok(publish(session, context, domain, parents))
    }
}
