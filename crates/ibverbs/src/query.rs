//! What an adapter and its port are like.

use std::ffi::{CStr, CString, c_char, c_int, c_uint};
use std::mem::{self, MaybeUninit};
use std::{fs, ptr, slice};

use roxe_verbs::{Context, GidEntry, GidType, Limits, PortState};

use crate::completion::now_ns;
use crate::device::{Device, c_text};
use crate::errno::{self, Done};
use crate::layout::{
    IBV_ATOMIC_GLOB, IBV_DEVICE_CURR_QP_STATE_MOD, IBV_DEVICE_MEM_MGT_EXTENSIONS,
    IBV_DEVICE_MEM_WINDOW, IBV_DEVICE_MEM_WINDOW_TYPE_2B, IBV_DEVICE_PORT_ACTIVE_EVENT,
    IBV_DEVICE_RC_RNR_NAK_GEN, IBV_DEVICE_SRQ_RESIZE, IBV_DEVICE_SYS_IMAGE_GUID,
    IBV_GID_TYPE_ROCE_V1, IBV_GID_TYPE_ROCE_V2, IBV_LINK_LAYER_ETHERNET, IBV_MTU_4096,
    IBV_ODP_SUPPORT, IBV_ODP_SUPPORT_ATOMIC, IBV_ODP_SUPPORT_IMPLICIT, IBV_ODP_SUPPORT_READ,
    IBV_ODP_SUPPORT_RECV, IBV_ODP_SUPPORT_SEND, IBV_ODP_SUPPORT_SRQ_RECV, IBV_ODP_SUPPORT_WRITE,
    IBV_PORT_ACTIVE, IBV_PORT_CM_SUP, IBV_PORT_DOWN, IBV_PORT_IP_BASED_GIDS, IBV_QPF_GRH_REQUIRED,
    IBV_VALUES_MASK_RAW_CLOCK, ibv_context, ibv_device_attr, ibv_device_attr_ex, ibv_gid,
    ibv_gid_entry, ibv_odp_caps, ibv_port_attr, ibv_query_device_ex_input, ibv_values_ex,
};
use crate::session::Session;

pub(crate) unsafe extern "C" fn ibv_query_device(
    context: *mut ibv_context,
    attr: *mut ibv_device_attr,
) -> c_int {
    // SAFETY: the program has opened it, and has room for the answer.
    errno::positive(unsafe {
        Session::of(context).and_then(device_attr).map(|answer| attr.write(answer))
    })
}

fn device_attr(session: &Session) -> Done<ibv_device_attr> {
    const FLAGS: c_uint = IBV_DEVICE_CURR_QP_STATE_MOD
        | IBV_DEVICE_PORT_ACTIVE_EVENT
        | IBV_DEVICE_SYS_IMAGE_GUID
        | IBV_DEVICE_RC_RNR_NAK_GEN
        | IBV_DEVICE_SRQ_RESIZE
        | IBV_DEVICE_MEM_WINDOW
        | IBV_DEVICE_MEM_MGT_EXTENSIONS
        | IBV_DEVICE_MEM_WINDOW_TYPE_2B;
    let limits: &Limits = session.context()?.query_device();
    Ok(ibv_device_attr {
        fw_ver: c_text(env!("CARGO_PKG_VERSION")),
        node_guid: session.device.guid,
        sys_image_guid: session.device.guid,
        max_mr_size: limits.max_mr_size,
        page_size_cap: !0xfff,
        vendor_id: NO_VENDOR,
        vendor_part_id: 0,
        hw_ver: 0,
        max_qp: int(limits.max_qp),
        max_qp_wr: int(limits.max_qp_wr),
        device_cap_flags: FLAGS,
        max_sge: int(limits.max_sge),
        max_sge_rd: int(limits.max_sge),
        max_cq: int(limits.max_cq),
        max_cqe: int(limits.max_cqe),
        max_mr: int(limits.max_mr),
        max_pd: int(limits.max_pd),
        max_qp_rd_atom: limits.max_qp_rd_atom.into(),
        max_ee_rd_atom: 0,
        max_res_rd_atom: int(limits.max_res_rd_atom()),
        max_qp_init_rd_atom: limits.max_qp_init_rd_atom.into(),
        max_ee_init_rd_atom: 0,
        atomic_cap: IBV_ATOMIC_GLOB.cast_signed(),
        max_ee: 0,
        max_rdd: 0,
        max_mw: int(limits.max_mw),
        max_raw_ipv6_qp: 0,
        max_raw_ethy_qp: 0,
        max_mcast_grp: int(limits.max_mcast_grp),
        max_mcast_qp_attach: int(limits.max_mcast_qp_attach),
        max_total_mcast_qp_attach: int(limits.max_total_mcast_qp_attach()),
        max_ah: int(limits.max_ah),
        max_fmr: 0,
        max_map_per_fmr: 0,
        max_srq: int(limits.max_srq),
        max_srq_wr: int(limits.max_srq_wr),
        max_srq_sge: int(limits.max_srq_sge),
        max_pkeys: limits.max_pkeys,
        local_ca_ack_delay: limits.local_ca_ack_delay,
        phys_port_cnt: 1,
    })
}

fn int(limit: u32) -> c_int {
    c_int::try_from(limit).unwrap_or(c_int::MAX)
}

pub(crate) unsafe extern "C" fn query_device_ex(
    context: *mut ibv_context,
    input: *const ibv_query_device_ex_input,
    attr: *mut ibv_device_attr_ex,
    len: usize,
) -> c_int {
    // SAFETY: the program has opened it, and has room for so much of the answer.
    let done = unsafe { Session::of(context) }.and_then(|session| {
        // SAFETY: as above.
        if unsafe { input.as_ref() }.is_some_and(|input| input.comp_mask != 0) {
            return Err(libc::EINVAL);
        }
        let answer = device_attr_ex(session)?;
        // SAFETY: as above.
        unsafe { write_prefix(&answer, attr.cast(), len) };
        Ok(())
    });
    errno::positive(done)
}

/// Memory on demand is all there is: nothing is ever pinned.
fn device_attr_ex(session: &Session) -> Done<ibv_device_attr_ex> {
    const DATAGRAMS: u32 = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_SRQ_RECV;
    const CONNECTIONS: u32 = DATAGRAMS | IBV_ODP_SUPPORT_WRITE;
    const RELIABLE: u32 = CONNECTIONS | IBV_ODP_SUPPORT_READ | IBV_ODP_SUPPORT_ATOMIC;
    // SAFETY: all of it being zero is a value that it may have.
    let mut answer: ibv_device_attr_ex = unsafe { mem::zeroed() };
    answer.orig_attr = device_attr(session)?;
    answer.odp_caps = ibv_odp_caps {
        general_caps: (IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT).into(),
        per_transport_caps: [RELIABLE, CONNECTIONS, DATAGRAMS],
    };
    answer.completion_timestamp_mask = u64::MAX;
    // In kHz: the clock counts nanoseconds.
    answer.hca_core_clock = 1_000_000;
    answer.device_cap_flags_ex = answer.orig_attr.device_cap_flags.into();
    answer.phys_port_cnt_ex = 1;
    Ok(answer)
}

/// Writes as much of an answer as the program has room for, and zeros where it has more.
unsafe fn write_prefix<T>(answer: &T, to: *mut u8, len: usize) {
    let known = len.min(size_of::<T>());
    // SAFETY: the caller promises room for `len` bytes.
    unsafe {
        to.copy_from_nonoverlapping(ptr::from_ref(answer).cast(), known);
        to.add(known).write_bytes(0, len - known);
    }
}

pub(crate) unsafe extern "C" fn query_rt_values(
    context: *mut ibv_context,
    values: *mut ibv_values_ex,
) -> c_int {
    // SAFETY: the program has opened it, and has room for the answer.
    let done = unsafe { Session::of(context).map(|_| &mut *values) }.and_then(|values| {
        if values.comp_mask & !IBV_VALUES_MASK_RAW_CLOCK != 0 {
            return Err(libc::EOPNOTSUPP);
        }
        let now = now_ns(libc::CLOCK_MONOTONIC);
        // Ticks of the clock that time stamps are of, all in one field.
        values.raw_clock = libc::timespec { tv_sec: 0, tv_nsec: now.cast_signed() };
        Ok(())
    });
    errno::positive(done)
}

/// For those compiled long ago, who have room for less.
pub(crate) unsafe extern "C" fn ibv_query_port(
    context: *mut ibv_context,
    port: u8,
    attr: *mut ibv_port_attr,
) -> c_int {
    const SHORT: usize = 48;
    // SAFETY: the program has opened it, and has room for so much of the answer.
    unsafe { query_port(context, port, attr, SHORT) }
}

pub(crate) unsafe extern "C" fn query_port(
    context: *mut ibv_context,
    port: u8,
    attr: *mut ibv_port_attr,
    len: usize,
) -> c_int {
    // SAFETY: the program has opened it, and has room for so much of the answer.
    let done = unsafe { at_port(context, port.into()) }.and_then(port_attr).map(|answer| {
        // SAFETY: as above.
        unsafe { write_prefix(&answer, attr.cast(), len) };
    });
    errno::positive(done)
}

fn port_attr(session: &Session) -> Done<ibv_port_attr> {
    /// Ten gigabits, as far as anybody wants to know.
    const ONE_LANE_OF_10G: (u8, u8) = (1, 4);
    const LINK_UP: u8 = 5;
    const DISABLED: u8 = 3;
    let port = session.context()?.query_port();
    let (state, phys_state) = match port.state {
        PortState::Active => (IBV_PORT_ACTIVE, LINK_UP),
        PortState::Down => (IBV_PORT_DOWN, DISABLED),
    };
    Ok(ibv_port_attr {
        state: state.cast_signed(),
        max_mtu: IBV_MTU_4096.cast_signed(),
        active_mtu: port.active_mtu.code().into(),
        gid_tbl_len: int(port.gid_tbl_len),
        port_cap_flags: IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS,
        max_msg_sz: port.max_msg_sz,
        bad_pkey_cntr: 0,
        qkey_viol_cntr: 0,
        pkey_tbl_len: port.pkey_tbl_len,
        lid: 0,
        sm_lid: 0,
        lmc: 0,
        max_vl_num: 1,
        sm_sl: 0,
        subnet_timeout: 0,
        init_type_reply: 0,
        active_width: ONE_LANE_OF_10G.0,
        active_speed: ONE_LANE_OF_10G.1,
        phys_state,
        link_layer: IBV_LINK_LAYER_ETHERNET as u8,
        flags: IBV_QPF_GRH_REQUIRED as u8,
        port_cap_flags2: 0,
    })
}

/// The speed of the port in units of 100 Mb/s.
pub(crate) unsafe extern "C" fn ibv_query_port_speed(
    context: *mut ibv_context,
    port: u32,
    speed: *mut u64,
) -> c_int {
    // SAFETY: the program has opened it, and has room for the answer.
    errno::positive(unsafe { at_port(context, port).map(|_| speed.write(100)) })
}

/// An adapter has one port, number 1.
///
/// # Safety
/// The context is open.
unsafe fn at_port<'a>(context: *mut ibv_context, port: u32) -> Done<&'a Session> {
    // SAFETY: the caller promises it.
    let session = unsafe { Session::of(context)? };
    if port == 1 { Ok(session) } else { Err(libc::EINVAL) }
}

/// The address at an index: `ENODATA` where there is none, but could be.
unsafe fn gid_at<'a>(
    context: *mut ibv_context,
    port: u32,
    index: u32,
) -> Done<(&'a Context, GidEntry)> {
    // SAFETY: the caller promises that the context is open.
    let context = unsafe { at_port(context, port)? }.context()?;
    if index >= context.query_port().gid_tbl_len {
        return Err(libc::EINVAL);
    }
    let entry = context.query_gid(index).map_err(|_| libc::ENODATA)?;
    Ok((context, entry))
}

pub(crate) unsafe extern "C" fn ibv_query_gid(
    context: *mut ibv_context,
    port: u8,
    index: c_int,
    gid: *mut ibv_gid,
) -> c_int {
    let index = index.cast_unsigned();
    // SAFETY: the program has opened it, and has room for the answer.
    let found = unsafe { gid_at(context, port.into(), index) }.map(|(_, entry)| entry.gid.0);
    let found = if found == Err(libc::ENODATA) { Ok([0; 16]) } else { found };
    // SAFETY: as above.
    errno::negative(found.map(|raw| unsafe { gid.write(ibv_gid { raw }) }))
}

/// Where programs that look at files find whether an address is for RoCE v2.
pub(crate) unsafe extern "C" fn ibv_query_gid_type(
    context: *mut ibv_context,
    port: u8,
    index: c_uint,
    kind: *mut c_int,
) -> c_int {
    // SAFETY: the program has opened it, and has room for the answer.
    let found = unsafe { gid_at(context, port.into(), index) };
    // In files there are two kinds: RoCE v2, and all others.
    let is_v2 = |(_, entry): (_, GidEntry)| entry.gid_type == GidType::RoceV2;
    let found =
        if found.as_ref().err() == Some(&libc::ENODATA) { Ok(false) } else { found.map(is_v2) };
    // SAFETY: as above.
    errno::negative(found.map(|is_v2| unsafe { kind.write(is_v2.into()) }))
}

pub(crate) unsafe extern "C" fn _ibv_query_gid_ex(
    context: *mut ibv_context,
    port: u32,
    index: u32,
    entry: *mut ibv_gid_entry,
    flags: u32,
    len: usize,
) -> c_int {
    // SAFETY: the program has opened it, and has room for so much of the answer.
    let done = unsafe { gid_at(context, port, index) }.and_then(|(context, found)| {
        if flags != 0 {
            return Err(libc::EOPNOTSUPP);
        }
        let answer = gid_entry(context, index, &found);
        // SAFETY: as above.
        unsafe { write_prefix(&answer, entry.cast(), len) };
        Ok(())
    });
    errno::positive(done)
}

pub(crate) unsafe extern "C" fn _ibv_query_gid_table(
    context: *mut ibv_context,
    entries: *mut ibv_gid_entry,
    most: usize,
    flags: u32,
    len: usize,
) -> isize {
    // SAFETY: the program has opened it.
    let context = match unsafe { Session::of(context) }.and_then(Session::context) {
        Ok(_) if flags != 0 => return -(libc::EOPNOTSUPP as isize),
        Ok(context) => context,
        Err(errno) => return -(errno as isize),
    };
    let gids = context.gids();
    if gids.len() > most {
        return -(libc::EINVAL as isize);
    }
    for (at, (index, found)) in gids.iter().enumerate() {
        let answer = gid_entry(context, *index, found);
        // SAFETY: the program has room for so many of this length.
        unsafe { write_prefix(&answer, entries.cast::<u8>().add(at * len), len) };
    }
    gids.len().cast_signed()
}

fn gid_entry(context: &Context, gid_index: u32, entry: &GidEntry) -> ibv_gid_entry {
    let gid_type = match entry.gid_type {
        GidType::RoceV2 => IBV_GID_TYPE_ROCE_V2,
        _ => IBV_GID_TYPE_ROCE_V1,
    };
    let interface = context.interface().and_then(|name| CString::new(name).ok());
    // SAFETY: the name ends with a zero.
    let index = |name: CString| unsafe { libc::if_nametoindex(name.as_ptr()) };
    ibv_gid_entry {
        gid: ibv_gid { raw: entry.gid.0 },
        gid_index,
        port_num: 1,
        gid_type,
        ndev_ifindex: interface.map_or(0, index),
    }
}

pub(crate) unsafe extern "C" fn ibv_query_pkey(
    context: *mut ibv_context,
    port: u8,
    index: c_int,
    key: *mut u16,
) -> c_int {
    // SAFETY: the program has opened it, and has room for the answer.
    let done = unsafe { at_port(context, port.into()) }.and_then(|_| {
        if index != 0 {
            return Err(libc::EINVAL);
        }
        // SAFETY: as above.
        unsafe { key.write(DEFAULT_PKEY) };
        Ok(())
    });
    errno::negative(done)
}

pub(crate) unsafe extern "C" fn ibv_get_pkey_index(
    context: *mut ibv_context,
    port: u8,
    key: u16,
) -> c_int {
    // SAFETY: the program has opened it.
    let done = unsafe { at_port(context, port.into()) };
    errno::negative(done.and_then(|_| (key == DEFAULT_PKEY).then_some(()).ok_or(libc::EINVAL)))
}

/// A file about an adapter, without the end of its line: those about ours we know, whether or not
/// somebody made a place for them.
pub(crate) unsafe extern "C" fn ibv_read_sysfs_file(
    folder: *const c_char,
    file: *const c_char,
    room: *mut c_char,
    len: usize,
) -> c_int {
    // SAFETY: texts of the program, and room of its own.
    let (folder, file, room) = unsafe {
        let room = slice::from_raw_parts_mut(room.cast::<MaybeUninit<u8>>(), len);
        (CStr::from_ptr(folder), CStr::from_ptr(file), room)
    };
    let known = Device::at(folder).and_then(|_| match file.to_bytes() {
        b"board_id" => Some("roxe".to_owned()),
        b"fw_ver" => Some(env!("CARGO_PKG_VERSION").to_owned()),
        b"node_type" => Some("1: CA".to_owned()),
        _ => None,
    });
    let read =
        || fs::read_to_string(format!("{}/{}", folder.to_str().ok()?, file.to_str().ok()?)).ok();
    let Some(text) = known.or_else(read) else {
        errno::set(libc::ENOENT);
        return -1;
    };
    let text = text.strip_suffix('\n').unwrap_or(&text).as_bytes();
    // As much as fits, with a zero behind it where that fits too.
    for (to, from) in room.iter_mut().zip(text.iter().chain([&0])) {
        to.write(*from);
    }
    c_int::try_from(text.len().min(len)).unwrap_or(c_int::MAX)
}

pub(crate) extern "C" fn ibv_get_sysfs_path() -> *const c_char {
    c"/sys".as_ptr()
}

pub(crate) extern "C" fn ibv_fork_init() -> c_int {
    0
}

pub(crate) extern "C" fn ibv_is_fork_initialized() -> c_int {
    crate::layout::IBV_FORK_UNNEEDED.cast_signed()
}

/// What says that no vendor has made it.
const NO_VENDOR: u32 = 0xff_ffff;

/// The only key in the table, in the order of the network.
const DEFAULT_PKEY: u16 = 0xffff;
