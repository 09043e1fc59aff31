//! Addresses: GIDs, address vectors, address handles.

use std::ffi::c_int;

use roxe_verbs::{AddressHandle, AddressVector, Gid, Grh, StaticRate};

use crate::domain::Pd;
use crate::errno::{self, Done};
use crate::layout::{
    IBV_WC_GRH, ibv_ah, ibv_ah_attr, ibv_context, ibv_gid, ibv_global_route, ibv_pd, ibv_wc,
};
use crate::session::{Object, Session, Use};
use crate::stories;

/// An address handle.
#[repr(C)]
pub(crate) struct Ah {
    public: ibv_ah,
    pub(crate) handle: Option<AddressHandle>,
    _domain: Use,
}

impl Object for Ah {
    type Public = ibv_ah;
    type Handle = AddressHandle;

    fn handle(&mut self) -> &mut Option<AddressHandle> {
        &mut self.handle
    }

    fn context(&self) -> *mut ibv_context {
        self.public.context
    }
}

pub(crate) const fn gid_of(gid: &ibv_gid) -> Gid {
    Gid(gid.raw)
}

/// Ethernet has no addresses but those in the global route.
pub(crate) fn vector_of(attr: &ibv_ah_attr) -> Done<AddressVector> {
    if attr.is_global == 0 || attr.port_num != 1 {
        return Err(libc::EINVAL);
    }
    let route = &attr.grh;
    Ok(AddressVector {
        source_gid: route.sgid_index.into(),
        destination: gid_of(&route.dgid),
        traffic_class: route.traffic_class,
        hop_limit: route.hop_limit,
        flow_label: route.flow_label,
        // What a completion says of the kind of addresses comes back here, and is no level.
        service_level: if attr.sl > 7 { 0 } else { attr.sl },
        static_rate: StaticRate::from_bits(attr.static_rate),
    })
}

pub(crate) fn attr_of(vector: &AddressVector) -> ibv_ah_attr {
    ibv_ah_attr {
        grh: ibv_global_route {
            dgid: ibv_gid { raw: vector.destination.0 },
            flow_label: vector.flow_label,
            sgid_index: u8::try_from(vector.source_gid).unwrap_or(u8::MAX),
            hop_limit: vector.hop_limit,
            traffic_class: vector.traffic_class,
        },
        dlid: 0,
        sl: vector.service_level,
        src_path_bits: 0,
        static_rate: vector.static_rate.code(),
        is_global: 1,
        port_num: 1,
    }
}

pub(crate) unsafe extern "C" fn ibv_create_ah(
    pd: *mut ibv_pd,
    attr: *mut ibv_ah_attr,
) -> *mut ibv_ah {
    // SAFETY: the program has made the domain, and says where.
    errno::pointer(unsafe { create(pd, attr) })
}

unsafe fn create(pd: *mut ibv_pd, attr: *const ibv_ah_attr) -> Done<*mut ibv_ah> {
    // SAFETY: the caller promises it.
    unsafe {
        let domain = Pd::of(pd)?;
        let attr = attr.as_ref().ok_or(libc::EINVAL)?;
        let vector =
            vector_of(attr).inspect_err(|_| stories::of_address((*pd).context, attr, None))?;
        let handle = domain.domain()?.create_ah(&vector).map_err(errno::of)?;
        let context = (*pd).context;
        let public = ibv_ah { context, pd, handle: 0 };
        let ah = Ah { public, handle: Some(handle), _domain: domain.users.one_more() };
        Ok(ah.publish(Session::of(context)?).cast())
    }
}

pub(crate) unsafe extern "C" fn ibv_destroy_ah(ah: *mut ibv_ah) -> c_int {
    // SAFETY: the program has made it and not destroyed it.
    let done = unsafe {
        match Ah::of(ah) {
            Ok(_) => {
                drop(Ah::take(ah));
                Ok(())
            }
            Err(libc::EIO) => Ok(()),
            Err(errno) => Err(errno),
        }
    };
    errno::positive(done)
}

pub(crate) unsafe extern "C" fn ibv_init_ah_from_wc(
    context: *mut ibv_context,
    port: u8,
    wc: *mut ibv_wc,
    grh: *const [u8; Grh::LEN],
    attr: *mut ibv_ah_attr,
) -> c_int {
    // SAFETY: the program has received a datagram, and has room for the answer.
    errno::negative(unsafe { sender(context, port, wc, grh).map(|from| attr.write(from)) })
}

unsafe fn sender(
    context: *mut ibv_context,
    port: u8,
    wc: *const ibv_wc,
    grh: *const [u8; Grh::LEN],
) -> Done<ibv_ah_attr> {
    // SAFETY: the caller promises it.
    let (session, wc) = unsafe { (Session::of(context)?, wc.as_ref().ok_or(libc::EINVAL)?) };
    if port != 1 || wc.wc_flags & IBV_WC_GRH == 0 || grh.is_null() {
        return Err(libc::EINVAL);
    }
    // SAFETY: as above; the area may lie anywhere.
    let area = Grh::from_bytes(unsafe { grh.read_unaligned() });
    let vector = session.context()?.sender(&area).map_err(errno::of)?;
    Ok(attr_of(&vector))
}

pub(crate) unsafe extern "C" fn ibv_create_ah_from_wc(
    pd: *mut ibv_pd,
    wc: *mut ibv_wc,
    grh: *const [u8; Grh::LEN],
    port: u8,
) -> *mut ibv_ah {
    // SAFETY: the program has made the domain, and received a datagram.
    errno::pointer(unsafe {
        let context = pd.as_ref().map_or(std::ptr::null_mut(), |pd| pd.context);
        sender(context, port, wc, grh).and_then(|attr| create(pd, &attr))
    })
}

/// The link address of a peer is the adapter's affair.
pub(crate) extern "C" fn ibv_resolve_eth_l2_from_gid() -> c_int {
    errno::set(libc::EOPNOTSUPP);
    -1
}
