//! Groups.

use std::ffi::{c_int, c_void};
use std::net::IpAddr;
use std::ptr;

use libc::sockaddr;
use roxe_verbs::cm::MulticastGroup;

use crate::errno::{self, Done};
use crate::layout::ibv_gid;
use crate::queue_pair::{ibv_attach_mcast, ibv_detach_mcast};
use crate::rdmacm::address;
use crate::rdmacm::event::complete;
use crate::rdmacm::id::{Group, Private};
use crate::rdmacm::layout::{
    RDMA_CM_JOIN_MC_ATTR_ADDRESS, RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS, RDMA_MC_JOIN_FLAG_FULLMEMBER,
    RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER, rdma_cm_id, rdma_cm_join_mc_attr_ex,
};

pub(crate) unsafe extern "C" fn rdma_join_multicast(
    id: *mut rdma_cm_id,
    addr: *mut sockaddr,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the program has made it, and names a group.
    errno::negative(unsafe { join(id, addr, context, false) })
}

pub(crate) unsafe extern "C" fn rdma_join_multicast_ex(
    id: *mut rdma_cm_id,
    attr: *mut rdma_cm_join_mc_attr_ex,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the program has made it, and says what it wants.
    errno::negative(unsafe {
        attr.as_ref().ok_or(libc::EINVAL).and_then(|attr| {
            let both = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;
            if attr.comp_mask.cast_signed() != both {
                return Err(libc::EINVAL);
            }
            match attr.join_flags.cast_signed() {
                RDMA_MC_JOIN_FLAG_FULLMEMBER => join(id, attr.addr, context, false),
                RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER => join(id, attr.addr, context, true),
                _ => Err(libc::EINVAL),
            }
        })
    })
}

unsafe fn join(
    id: *mut rdma_cm_id,
    addr: *const sockaddr,
    context: *mut c_void,
    sends_only: bool,
) -> Done {
    // SAFETY: the caller promises that what it names is there.
    unsafe {
        let private = Private::of(id)?;
        let (end, address) = (private.end()?, address::read(addr)?.ip());
        let context = context.expose_provenance();
        private.state().groups.push(Group { address, context, sends_only, attached: None });
        if let Err(error) = end.cm.join_multicast(address) {
            take(private, address);
            return Err(errno::of(error));
        }
        complete(id)
    }
}

/// The last one of this address.
fn take(private: &Private, address: IpAddr) -> Option<Group> {
    let groups = &mut private.state().groups;
    let at = groups.iter().rposition(|group| group.address == address)?;
    Some(groups.remove(at))
}

/// The group is known: attaches the queue pair, if there is one that receives. Gives what the
/// program said when it joined, and what came of it; nothing if it left meanwhile.
///
/// # Safety
/// The identifier is there.
pub(crate) unsafe fn joined(
    id: *mut rdma_cm_id,
    private: &Private,
    group: &MulticastGroup,
) -> Option<(*const c_void, Done)> {
    // SAFETY: the caller promises it.
    let qp = unsafe { (*id).qp };
    let mut state = private.state();
    let of_it = |known: &&mut Group| known.address == group.address && known.attached.is_none();
    let known = state.groups.iter_mut().find(of_it)?;
    let context = ptr::with_exposed_provenance(known.context);
    if qp.is_null() || known.sends_only {
        return Some((context, Ok(())));
    }
    let gid = group.vector.destination;
    // SAFETY: as above.
    match unsafe { ibv_attach_mcast(qp, &ibv_gid { raw: gid.0 }, 0) } {
        0 => {
            known.attached = Some(gid);
            Some((context, Ok(())))
        }
        errno => Some((context, Err(errno))),
    }
}

pub(crate) unsafe extern "C" fn rdma_leave_multicast(
    id: *mut rdma_cm_id,
    addr: *mut sockaddr,
) -> c_int {
    // SAFETY: the program has made it, and names a group.
    errno::negative(unsafe {
        Private::of(id).and_then(|private| {
            let address = address::read(addr)?.ip();
            let group = take(private, address).ok_or(libc::EADDRNOTAVAIL)?;
            if let Some(gid) = group.attached
                && !(*id).qp.is_null()
            {
                match ibv_detach_mcast((*id).qp, &ibv_gid { raw: gid.0 }, 0) {
                    0 => {}
                    errno => return Err(errno),
                }
            }
            Ok(())
        })
    })
}
