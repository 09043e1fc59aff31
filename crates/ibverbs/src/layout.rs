//! The structs of `infiniband/verbs.h`, as every program was compiled with them.
//!
//! They are an interface between binaries: no field moves, ever. Those that grow do so behind
//! `comp_mask`, or say how long they are, or grow at their front (`verbs_context`). `tests.rs`
//! compares each of them with the headers of the distribution. This file needs nothing but `libc`,
//! so that the library beside ours can be made of the same one.

#![allow(non_camel_case_types, non_snake_case, reason = "the names of verbs.h")]

use std::ffi::{c_char, c_int, c_uint, c_void};

/// A slot of a table that is never called.
pub(crate) type Unused = *const c_void;

macro_rules! c_structs {
    ($($(#[$meta:meta])* struct $name:ident { $($field:ident: $type:ty,)* })*) => {
        $($(#[$meta])*
        #[repr(C)]
        #[derive(Clone, Copy)]
        pub(crate) struct $name { $(pub(crate) $field: $type,)* })*

        /// Each struct with its size, and its fields with offset and size.
        #[cfg(test)]
        pub(crate) fn layouts() -> Vec<(&'static str, usize, Vec<(&'static str, usize, usize)>)> {
            vec![$((
                stringify!($name),
                size_of::<$name>(),
                vec![$((
                    stringify!($field),
                    std::mem::offset_of!($name, $field),
                    $crate::layout::tests::size_of_field(|it: &$name| &it.$field),
                ),)*],
            ),)*]
        }
    };
}

pub(crate) use c_structs;

// Programs fill these, or read them, or both.
c_structs! {
    /// Also a pair of 64-bit numbers.
    #[repr(align(8))]
    struct ibv_gid {
        raw: [u8; 16],
    }
    struct ibv_gid_entry {
        gid: ibv_gid,
        gid_index: u32,
        port_num: u32,
        gid_type: u32,
        ndev_ifindex: u32,
    }
    struct ibv_device {
        _ops: [Unused; 2],
        node_type: c_int,
        transport_type: c_int,
        name: [c_char; 64],
        dev_name: [c_char; 64],
        dev_path: [c_char; 256],
        ibdev_path: [c_char; 256],
    }
    struct ibv_device_attr {
        fw_ver: [c_char; 64],
        node_guid: u64,
        sys_image_guid: u64,
        max_mr_size: u64,
        page_size_cap: u64,
        vendor_id: u32,
        vendor_part_id: u32,
        hw_ver: u32,
        max_qp: c_int,
        max_qp_wr: c_int,
        device_cap_flags: c_uint,
        max_sge: c_int,
        max_sge_rd: c_int,
        max_cq: c_int,
        max_cqe: c_int,
        max_mr: c_int,
        max_pd: c_int,
        max_qp_rd_atom: c_int,
        max_ee_rd_atom: c_int,
        max_res_rd_atom: c_int,
        max_qp_init_rd_atom: c_int,
        max_ee_init_rd_atom: c_int,
        atomic_cap: c_int,
        max_ee: c_int,
        max_rdd: c_int,
        max_mw: c_int,
        max_raw_ipv6_qp: c_int,
        max_raw_ethy_qp: c_int,
        max_mcast_grp: c_int,
        max_mcast_qp_attach: c_int,
        max_total_mcast_qp_attach: c_int,
        max_ah: c_int,
        max_fmr: c_int,
        max_map_per_fmr: c_int,
        max_srq: c_int,
        max_srq_wr: c_int,
        max_srq_sge: c_int,
        max_pkeys: u16,
        local_ca_ack_delay: u8,
        phys_port_cnt: u8,
    }
    struct ibv_odp_caps {
        general_caps: u64,
        per_transport_caps: [u32; 3],
    }
    struct ibv_tso_caps {
        max_tso: u32,
        supported_qpts: u32,
    }
    struct ibv_rss_caps {
        supported_qpts: u32,
        max_rwq_indirection_tables: u32,
        max_rwq_indirection_table_size: u32,
        rx_hash_fields_mask: u64,
        rx_hash_function: u8,
    }
    struct ibv_packet_pacing_caps {
        qp_rate_limit_min: u32,
        qp_rate_limit_max: u32,
        supported_qpts: u32,
    }
    struct ibv_tm_caps {
        max_rndv_hdr_size: u32,
        max_num_tags: u32,
        flags: u32,
        max_ops: u32,
        max_sge: u32,
    }
    struct ibv_cq_moderation_caps {
        max_cq_count: u16,
        max_cq_period: u16,
    }
    struct ibv_pci_atomic_caps {
        fetch_add: u16,
        swap: u16,
        compare_swap: u16,
    }
    struct ibv_device_attr_ex {
        orig_attr: ibv_device_attr,
        comp_mask: u32,
        odp_caps: ibv_odp_caps,
        completion_timestamp_mask: u64,
        hca_core_clock: u64,
        device_cap_flags_ex: u64,
        tso_caps: ibv_tso_caps,
        rss_caps: ibv_rss_caps,
        max_wq_type_rq: u32,
        packet_pacing_caps: ibv_packet_pacing_caps,
        raw_packet_caps: u32,
        tm_caps: ibv_tm_caps,
        cq_mod_caps: ibv_cq_moderation_caps,
        max_dm_size: u64,
        pci_atomic_caps: ibv_pci_atomic_caps,
        xrc_odp_caps: u32,
        phys_port_cnt_ex: u32,
    }
    struct ibv_query_device_ex_input {
        comp_mask: u32,
    }
    struct ibv_port_attr {
        state: c_int,
        max_mtu: c_int,
        active_mtu: c_int,
        gid_tbl_len: c_int,
        port_cap_flags: u32,
        max_msg_sz: u32,
        bad_pkey_cntr: u32,
        qkey_viol_cntr: u32,
        pkey_tbl_len: u16,
        lid: u16,
        sm_lid: u16,
        lmc: u8,
        max_vl_num: u8,
        sm_sl: u8,
        subnet_timeout: u8,
        init_type_reply: u8,
        active_width: u8,
        active_speed: u8,
        phys_state: u8,
        link_layer: u8,
        flags: u8,
        port_cap_flags2: u16,
    }
    struct ibv_values_ex {
        comp_mask: u32,
        raw_clock: libc::timespec,
    }
    struct ibv_async_event {
        element: *mut c_void,
        event_type: c_int,
    }
    struct ibv_global_route {
        dgid: ibv_gid,
        flow_label: u32,
        sgid_index: u8,
        hop_limit: u8,
        traffic_class: u8,
    }
    struct ibv_ah_attr {
        grh: ibv_global_route,
        dlid: u16,
        sl: u8,
        src_path_bits: u8,
        static_rate: u8,
        is_global: u8,
        port_num: u8,
    }
    struct ibv_srq_attr {
        max_wr: u32,
        max_sge: u32,
        srq_limit: u32,
    }
    struct ibv_srq_init_attr {
        srq_context: *mut c_void,
        attr: ibv_srq_attr,
    }
    struct ibv_tm_cap {
        max_num_tags: u32,
        max_ops: u32,
    }
    struct ibv_srq_init_attr_ex {
        srq_context: *mut c_void,
        attr: ibv_srq_attr,
        comp_mask: u32,
        srq_type: c_int,
        pd: *mut ibv_pd,
        xrcd: *mut c_void,
        cq: *mut ibv_cq,
        tm_cap: ibv_tm_cap,
    }
    struct ibv_qp_cap {
        max_send_wr: u32,
        max_recv_wr: u32,
        max_send_sge: u32,
        max_recv_sge: u32,
        max_inline_data: u32,
    }
    struct ibv_qp_init_attr {
        qp_context: *mut c_void,
        send_cq: *mut ibv_cq,
        recv_cq: *mut ibv_cq,
        srq: *mut ibv_srq,
        cap: ibv_qp_cap,
        qp_type: c_int,
        sq_sig_all: c_int,
    }
    struct ibv_rx_hash_conf {
        rx_hash_function: u8,
        rx_hash_key_len: u8,
        rx_hash_key: *mut u8,
        rx_hash_fields_mask: u64,
    }
    struct ibv_qp_init_attr_ex {
        qp_context: *mut c_void,
        send_cq: *mut ibv_cq,
        recv_cq: *mut ibv_cq,
        srq: *mut ibv_srq,
        cap: ibv_qp_cap,
        qp_type: c_int,
        sq_sig_all: c_int,
        comp_mask: u32,
        pd: *mut ibv_pd,
        xrcd: *mut c_void,
        create_flags: u32,
        max_tso_header: u16,
        rwq_ind_tbl: *mut c_void,
        rx_hash_conf: ibv_rx_hash_conf,
        source_qpn: u32,
        send_ops_flags: u64,
    }
    struct ibv_qp_attr {
        qp_state: c_int,
        cur_qp_state: c_int,
        path_mtu: c_int,
        path_mig_state: c_int,
        qkey: u32,
        rq_psn: u32,
        sq_psn: u32,
        dest_qp_num: u32,
        qp_access_flags: c_uint,
        cap: ibv_qp_cap,
        ah_attr: ibv_ah_attr,
        alt_ah_attr: ibv_ah_attr,
        pkey_index: u16,
        alt_pkey_index: u16,
        en_sqd_async_notify: u8,
        sq_draining: u8,
        max_rd_atomic: u8,
        max_dest_rd_atomic: u8,
        min_rnr_timer: u8,
        port_num: u8,
        timeout: u8,
        retry_cnt: u8,
        rnr_retry: u8,
        alt_port_num: u8,
        alt_timeout: u8,
        rate_limit: u32,
    }
    struct ibv_cq_init_attr_ex {
        cqe: u32,
        cq_context: *mut c_void,
        channel: *mut ibv_comp_channel,
        comp_vector: u32,
        wc_flags: u64,
        comp_mask: u32,
        flags: u32,
        parent_domain: *mut ibv_pd,
    }
    struct ibv_poll_cq_attr {
        comp_mask: u32,
    }
    struct ibv_td_init_attr {
        comp_mask: u32,
    }
    struct ibv_parent_domain_init_attr {
        pd: *mut ibv_pd,
        td: *mut ibv_td,
        comp_mask: u32,
        alloc: Unused,
        free: Unused,
        pd_context: *mut c_void,
    }
    struct ibv_ece {
        vendor_id: u32,
        options: u32,
        comp_mask: u32,
    }

    // Work.
    struct ibv_sge {
        addr: u64,
        length: u32,
        lkey: u32,
    }
    struct ibv_data_buf {
        addr: *mut c_void,
        length: usize,
    }
    struct ibv_mw_bind_info {
        mr: *mut ibv_mr,
        addr: u64,
        length: u64,
        mw_access_flags: c_uint,
    }
    struct ibv_mw_bind {
        wr_id: u64,
        send_flags: c_uint,
        bind_info: ibv_mw_bind_info,
    }
    struct ibv_send_wr {
        wr_id: u64,
        next: *mut ibv_send_wr,
        sg_list: *mut ibv_sge,
        num_sge: c_int,
        opcode: c_int,
        send_flags: c_uint,
        imm_data: u32,
        wr: ibv_send_wr_target,
        qp_type: u32,
        bind_mw: ibv_send_wr_bind,
    }
    struct ibv_recv_wr {
        wr_id: u64,
        next: *mut ibv_recv_wr,
        sg_list: *mut ibv_sge,
        num_sge: c_int,
    }
    struct ibv_wc {
        wr_id: u64,
        status: c_int,
        opcode: c_int,
        vendor_err: u32,
        byte_len: u32,
        imm_data: u32,
        qp_num: u32,
        src_qp: u32,
        wc_flags: c_uint,
        pkey_index: u16,
        slid: u16,
        sl: u8,
        dlid_path_bits: u8,
    }

    // Objects: ours, but programs read them.
    struct ibv_pd {
        context: *mut ibv_context,
        handle: u32,
    }
    struct ibv_td {
        context: *mut ibv_context,
    }
    struct ibv_mr {
        context: *mut ibv_context,
        pd: *mut ibv_pd,
        addr: *mut c_void,
        length: usize,
        handle: u32,
        lkey: u32,
        rkey: u32,
    }
    struct ibv_mw {
        context: *mut ibv_context,
        pd: *mut ibv_pd,
        rkey: u32,
        handle: u32,
        r#type: c_int,
    }
    struct ibv_ah {
        context: *mut ibv_context,
        pd: *mut ibv_pd,
        handle: u32,
    }
    struct ibv_comp_channel {
        context: *mut ibv_context,
        fd: c_int,
        refcnt: c_int,
    }
    struct ibv_srq {
        context: *mut ibv_context,
        srq_context: *mut c_void,
        pd: *mut ibv_pd,
        handle: u32,
        mutex: libc::pthread_mutex_t,
        cond: libc::pthread_cond_t,
        events_completed: u32,
    }
    struct ibv_cq {
        context: *mut ibv_context,
        channel: *mut ibv_comp_channel,
        cq_context: *mut c_void,
        handle: u32,
        cqe: c_int,
        mutex: libc::pthread_mutex_t,
        cond: libc::pthread_cond_t,
        comp_events_completed: u32,
        async_events_completed: u32,
    }
    struct ibv_cq_ex {
        context: *mut ibv_context,
        channel: *mut ibv_comp_channel,
        cq_context: *mut c_void,
        handle: u32,
        cqe: c_int,
        mutex: libc::pthread_mutex_t,
        cond: libc::pthread_cond_t,
        comp_events_completed: u32,
        async_events_completed: u32,
        comp_mask: u32,
        status: c_int,
        wr_id: u64,
        start_poll: Option<unsafe extern "C" fn(*mut Self, *mut ibv_poll_cq_attr) -> c_int>,
        next_poll: Option<unsafe extern "C" fn(*mut Self) -> c_int>,
        end_poll: Option<unsafe extern "C" fn(*mut Self)>,
        read_opcode: Option<unsafe extern "C" fn(*mut Self) -> c_int>,
        read_vendor_err: Option<unsafe extern "C" fn(*mut Self) -> u32>,
        read_byte_len: Option<unsafe extern "C" fn(*mut Self) -> u32>,
        read_imm_data: Option<unsafe extern "C" fn(*mut Self) -> u32>,
        read_qp_num: Option<unsafe extern "C" fn(*mut Self) -> u32>,
        read_src_qp: Option<unsafe extern "C" fn(*mut Self) -> u32>,
        read_wc_flags: Option<unsafe extern "C" fn(*mut Self) -> c_uint>,
        read_slid: Option<unsafe extern "C" fn(*mut Self) -> u32>,
        read_sl: Option<unsafe extern "C" fn(*mut Self) -> u8>,
        read_dlid_path_bits: Option<unsafe extern "C" fn(*mut Self) -> u8>,
        read_completion_ts: Option<unsafe extern "C" fn(*mut Self) -> u64>,
        read_cvlan: Option<unsafe extern "C" fn(*mut Self) -> u16>,
        read_flow_tag: Option<unsafe extern "C" fn(*mut Self) -> u32>,
        read_tm_info: Unused,
        read_completion_wallclock_ns: Option<unsafe extern "C" fn(*mut Self) -> u64>,
    }
    struct ibv_qp {
        context: *mut ibv_context,
        qp_context: *mut c_void,
        pd: *mut ibv_pd,
        send_cq: *mut ibv_cq,
        recv_cq: *mut ibv_cq,
        srq: *mut ibv_srq,
        handle: u32,
        qp_num: u32,
        state: c_int,
        qp_type: c_int,
        mutex: libc::pthread_mutex_t,
        cond: libc::pthread_cond_t,
        events_completed: u32,
    }
    struct ibv_qp_ex {
        qp_base: ibv_qp,
        comp_mask: u64,
        wr_id: u64,
        wr_flags: c_uint,
        wr_atomic_cmp_swp: Option<unsafe extern "C" fn(*mut Self, u32, u64, u64, u64)>,
        wr_atomic_fetch_add: Option<unsafe extern "C" fn(*mut Self, u32, u64, u64)>,
        wr_bind_mw:
            Option<unsafe extern "C" fn(*mut Self, *mut ibv_mw, u32, *const ibv_mw_bind_info)>,
        wr_local_inv: Option<unsafe extern "C" fn(*mut Self, u32)>,
        wr_rdma_read: Option<unsafe extern "C" fn(*mut Self, u32, u64)>,
        wr_rdma_write: Option<unsafe extern "C" fn(*mut Self, u32, u64)>,
        wr_rdma_write_imm: Option<unsafe extern "C" fn(*mut Self, u32, u64, u32)>,
        wr_send: Option<unsafe extern "C" fn(*mut Self)>,
        wr_send_imm: Option<unsafe extern "C" fn(*mut Self, u32)>,
        wr_send_inv: Option<unsafe extern "C" fn(*mut Self, u32)>,
        wr_send_tso: Option<unsafe extern "C" fn(*mut Self, *mut c_void, u16, u16)>,
        wr_set_ud_addr: Option<unsafe extern "C" fn(*mut Self, *mut ibv_ah, u32, u32)>,
        wr_set_xrc_srqn: Option<unsafe extern "C" fn(*mut Self, u32)>,
        wr_set_inline_data: Option<unsafe extern "C" fn(*mut Self, *mut c_void, usize)>,
        wr_set_inline_data_list:
            Option<unsafe extern "C" fn(*mut Self, usize, *const ibv_data_buf)>,
        wr_set_sge: Option<unsafe extern "C" fn(*mut Self, u32, u64, u32)>,
        wr_set_sge_list: Option<unsafe extern "C" fn(*mut Self, usize, *const ibv_sge)>,
        wr_start: Option<unsafe extern "C" fn(*mut Self)>,
        wr_complete: Option<unsafe extern "C" fn(*mut Self) -> c_int>,
        wr_abort: Option<unsafe extern "C" fn(*mut Self)>,
        wr_atomic_write: Option<unsafe extern "C" fn(*mut Self, u32, u64, *const c_void)>,
    }
    struct ibv_context_ops {
        _compat_query_device: Unused,
        _compat_query_port: Unused,
        _compat_alloc_pd: Unused,
        _compat_dealloc_pd: Unused,
        _compat_reg_mr: Unused,
        _compat_rereg_mr: Unused,
        _compat_dereg_mr: Unused,
        alloc_mw: Option<unsafe extern "C" fn(*mut ibv_pd, c_int) -> *mut ibv_mw>,
        bind_mw:
            Option<unsafe extern "C" fn(*mut ibv_qp, *mut ibv_mw, *mut ibv_mw_bind) -> c_int>,
        dealloc_mw: Option<unsafe extern "C" fn(*mut ibv_mw) -> c_int>,
        _compat_create_cq: Unused,
        poll_cq: Option<unsafe extern "C" fn(*mut ibv_cq, c_int, *mut ibv_wc) -> c_int>,
        req_notify_cq: Option<unsafe extern "C" fn(*mut ibv_cq, c_int) -> c_int>,
        _compat_cq_event: Unused,
        _compat_resize_cq: Unused,
        _compat_destroy_cq: Unused,
        _compat_create_srq: Unused,
        _compat_modify_srq: Unused,
        _compat_query_srq: Unused,
        _compat_destroy_srq: Unused,
        post_srq_recv: Option<
            unsafe extern "C" fn(*mut ibv_srq, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int,
        >,
        _compat_create_qp: Unused,
        _compat_query_qp: Unused,
        _compat_modify_qp: Unused,
        _compat_destroy_qp: Unused,
        post_send: Option<
            unsafe extern "C" fn(*mut ibv_qp, *mut ibv_send_wr, *mut *mut ibv_send_wr) -> c_int,
        >,
        post_recv: Option<
            unsafe extern "C" fn(*mut ibv_qp, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int,
        >,
        _compat_create_ah: Unused,
        _compat_destroy_ah: Unused,
        _compat_attach_mcast: Unused,
        _compat_detach_mcast: Unused,
        _compat_async_event: Unused,
    }
    struct ibv_context {
        device: *mut ibv_device,
        ops: ibv_context_ops,
        cmd_fd: c_int,
        async_fd: c_int,
        num_comp_vectors: c_int,
        mutex: libc::pthread_mutex_t,
        abi_compat: *mut c_void,
    }
    /// As rdma-core 44 has it. Later ones have more in front: see `verbs_context_of_today`.
    struct verbs_context {
        query_port: Option<
            unsafe extern "C" fn(*mut ibv_context, u8, *mut ibv_port_attr, usize) -> c_int,
        >,
        advise_mr:
            Option<unsafe extern "C" fn(*mut ibv_pd, c_int, u32, *mut ibv_sge, u32) -> c_int>,
        alloc_null_mr: Unused,
        read_counters: Unused,
        attach_counters_point_flow: Unused,
        create_counters: Unused,
        destroy_counters: Unused,
        reg_dm_mr: Unused,
        alloc_dm: Unused,
        free_dm: Unused,
        modify_flow_action_esp: Unused,
        destroy_flow_action: Unused,
        create_flow_action_esp: Unused,
        modify_qp_rate_limit: Unused,
        alloc_parent_domain: Option<
            unsafe extern "C" fn(*mut ibv_context, *mut ibv_parent_domain_init_attr) -> *mut ibv_pd,
        >,
        dealloc_td: Option<unsafe extern "C" fn(*mut ibv_td) -> c_int>,
        alloc_td:
            Option<unsafe extern "C" fn(*mut ibv_context, *mut ibv_td_init_attr) -> *mut ibv_td>,
        modify_cq: Unused,
        post_srq_ops: Unused,
        destroy_rwq_ind_table: Unused,
        create_rwq_ind_table: Unused,
        destroy_wq: Unused,
        modify_wq: Unused,
        create_wq: Unused,
        query_rt_values:
            Option<unsafe extern "C" fn(*mut ibv_context, *mut ibv_values_ex) -> c_int>,
        create_cq_ex: Option<
            unsafe extern "C" fn(*mut ibv_context, *mut ibv_cq_init_attr_ex) -> *mut ibv_cq_ex,
        >,
        r#priv: Unused,
        query_device_ex: Option<
            unsafe extern "C" fn(
                *mut ibv_context,
                *const ibv_query_device_ex_input,
                *mut ibv_device_attr_ex,
                usize,
            ) -> c_int,
        >,
        ibv_destroy_flow: Unused,
        ABI_placeholder2: Unused,
        ibv_create_flow: Unused,
        ABI_placeholder1: Unused,
        open_qp: Unused,
        create_qp_ex: Option<
            unsafe extern "C" fn(*mut ibv_context, *mut ibv_qp_init_attr_ex) -> *mut ibv_qp,
        >,
        get_srq_num: Option<unsafe extern "C" fn(*mut ibv_srq, *mut u32) -> c_int>,
        create_srq_ex: Option<
            unsafe extern "C" fn(*mut ibv_context, *mut ibv_srq_init_attr_ex) -> *mut ibv_srq,
        >,
        open_xrcd: Unused,
        close_xrcd: Unused,
        _ABI_placeholder3: u64,
        sz: usize,
        context: ibv_context,
    }
}

/// Where a request goes, in the union of `ibv_send_wr`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) union ibv_send_wr_target {
    pub(crate) rdma: ibv_send_wr_rdma,
    pub(crate) atomic: ibv_send_wr_atomic,
    pub(crate) ud: ibv_send_wr_ud,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ibv_send_wr_rdma {
    pub(crate) remote_addr: u64,
    pub(crate) rkey: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ibv_send_wr_atomic {
    pub(crate) remote_addr: u64,
    pub(crate) compare_add: u64,
    pub(crate) swap: u64,
    pub(crate) rkey: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ibv_send_wr_ud {
    pub(crate) ah: *mut ibv_ah,
    pub(crate) remote_qpn: u32,
    pub(crate) remote_qkey: u32,
}

/// What window is bound, in the other union of `ibv_send_wr`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ibv_send_wr_bind {
    pub(crate) mw: *mut ibv_mw,
    pub(crate) rkey: u32,
    pub(crate) bind_info: ibv_mw_bind_info,
}

/// `verbs_context` with the slots that rdma-core 65 has in front, all empty: `free_buf`,
/// `alloc_buf`, `dm_export_dmabuf_fd`, `reg_mr_ex`, `dealloc_dmah`, `alloc_dmah`.
#[repr(C)]
pub(crate) struct verbs_context_of_today {
    pub(crate) later: [Unused; 6],
    pub(crate) verbs: verbs_context,
}

/// A number that `verbs.h` gives a name: an enum's or a flag's.
macro_rules! c_numbers {
    ($($name:ident = $value:expr,)*) => {
        $(pub(crate) const $name: u32 = $value;)*

        /// Each with its name.
        #[cfg(test)]
        pub(crate) const NUMBERS: &[(&str, u32)] = &[$((stringify!($name), $name),)*];
    };
}

c_numbers! {
    IBV_NODE_CA = 1,
    IBV_TRANSPORT_IB = 0,
    IBV_GID_TYPE_ROCE_V1 = 1,
    IBV_GID_TYPE_ROCE_V2 = 2,
    IBV_DEVICE_CURR_QP_STATE_MOD = 1 << 7,
    IBV_DEVICE_PORT_ACTIVE_EVENT = 1 << 10,
    IBV_DEVICE_SYS_IMAGE_GUID = 1 << 11,
    IBV_DEVICE_RC_RNR_NAK_GEN = 1 << 12,
    IBV_DEVICE_SRQ_RESIZE = 1 << 13,
    IBV_DEVICE_MEM_WINDOW = 1 << 17,
    IBV_DEVICE_MEM_MGT_EXTENSIONS = 1 << 21,
    IBV_DEVICE_MEM_WINDOW_TYPE_2B = 1 << 24,
    IBV_ATOMIC_GLOB = 2,
    IBV_ODP_SUPPORT = 1,
    IBV_ODP_SUPPORT_IMPLICIT = 2,
    IBV_ODP_SUPPORT_SEND = 1,
    IBV_ODP_SUPPORT_RECV = 1 << 1,
    IBV_ODP_SUPPORT_WRITE = 1 << 2,
    IBV_ODP_SUPPORT_READ = 1 << 3,
    IBV_ODP_SUPPORT_ATOMIC = 1 << 4,
    IBV_ODP_SUPPORT_SRQ_RECV = 1 << 5,
    IBV_MTU_4096 = 5,
    IBV_PORT_DOWN = 1,
    IBV_PORT_ACTIVE = 4,
    IBV_PORT_CM_SUP = 1 << 16,
    IBV_PORT_IP_BASED_GIDS = 1 << 26,
    IBV_LINK_LAYER_ETHERNET = 2,
    IBV_QPF_GRH_REQUIRED = 1,
    IBV_EVENT_CQ_ERR = 0,
    IBV_EVENT_QP_FATAL = 1,
    IBV_EVENT_QP_REQ_ERR = 2,
    IBV_EVENT_QP_ACCESS_ERR = 3,
    IBV_EVENT_COMM_EST = 4,
    IBV_EVENT_SQ_DRAINED = 5,
    IBV_EVENT_DEVICE_FATAL = 8,
    IBV_EVENT_PORT_ACTIVE = 9,
    IBV_EVENT_PORT_ERR = 10,
    IBV_EVENT_SRQ_LIMIT_REACHED = 15,
    IBV_EVENT_QP_LAST_WQE_REACHED = 16,
    IBV_EVENT_GID_CHANGE = 18,
    IBV_WC_SEND = 0,
    IBV_WC_RDMA_WRITE = 1,
    IBV_WC_RDMA_READ = 2,
    IBV_WC_COMP_SWAP = 3,
    IBV_WC_FETCH_ADD = 4,
    IBV_WC_BIND_MW = 5,
    IBV_WC_LOCAL_INV = 6,
    IBV_WC_ATOMIC_WRITE = 9,
    IBV_WC_RECV = 1 << 7,
    IBV_WC_RECV_RDMA_WITH_IMM = (1 << 7) + 1,
    IBV_WC_STANDARD_FLAGS = 0x7f,
    IBV_WC_EX_WITH_COMPLETION_TIMESTAMP = 1 << 7,
    IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK = 1 << 11,
    IBV_WC_GRH = 1,
    IBV_WC_WITH_IMM = 1 << 1,
    IBV_WC_WITH_INV = 1 << 3,
    IBV_ACCESS_OPTIONAL_RANGE = 0x3ff0_0000,
    IBV_ACCESS_ON_DEMAND = 1 << 6,
    IBV_REREG_MR_CHANGE_TRANSLATION = 1,
    IBV_REREG_MR_CHANGE_PD = 1 << 1,
    IBV_REREG_MR_CHANGE_ACCESS = 1 << 2,
    IBV_MW_TYPE_1 = 1,
    IBV_MW_TYPE_2 = 2,
    IBV_SRQ_MAX_WR = 1,
    IBV_SRQ_LIMIT = 1 << 1,
    IBV_SRQT_BASIC = 0,
    IBV_SRQ_INIT_ATTR_TYPE = 1,
    IBV_SRQ_INIT_ATTR_PD = 1 << 1,
    IBV_QPT_RC = 2,
    IBV_QPT_UC = 3,
    IBV_QPT_UD = 4,
    IBV_QPT_RAW_PACKET = 8,
    IBV_QPT_DRIVER = 0xff,
    IBV_QP_INIT_ATTR_PD = 1,
    IBV_QP_INIT_ATTR_CREATE_FLAGS = 1 << 2,
    IBV_QP_INIT_ATTR_SEND_OPS_FLAGS = 1 << 6,
    IBV_QP_EX_WITH_RDMA_WRITE = 1,
    IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM = 1 << 1,
    IBV_QP_EX_WITH_SEND = 1 << 2,
    IBV_QP_EX_WITH_SEND_WITH_IMM = 1 << 3,
    IBV_QP_EX_WITH_RDMA_READ = 1 << 4,
    IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP = 1 << 5,
    IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD = 1 << 6,
    IBV_QP_EX_WITH_LOCAL_INV = 1 << 7,
    IBV_QP_EX_WITH_BIND_MW = 1 << 8,
    IBV_QP_EX_WITH_SEND_WITH_INV = 1 << 9,
    IBV_QP_EX_WITH_ATOMIC_WRITE = 1 << 12,
    IBV_QP_STATE = 1,
    IBV_QP_EN_SQD_ASYNC_NOTIFY = 1 << 2,
    IBV_QPS_RESET = 0,
    IBV_QPS_INIT = 1,
    IBV_QPS_RTR = 2,
    IBV_QPS_RTS = 3,
    IBV_QPS_SQD = 4,
    IBV_QPS_SQE = 5,
    IBV_QPS_ERR = 6,
    IBV_MIG_MIGRATED = 0,
    IBV_WR_RDMA_WRITE = 0,
    IBV_WR_RDMA_WRITE_WITH_IMM = 1,
    IBV_WR_SEND = 2,
    IBV_WR_SEND_WITH_IMM = 3,
    IBV_WR_RDMA_READ = 4,
    IBV_WR_ATOMIC_CMP_AND_SWP = 5,
    IBV_WR_ATOMIC_FETCH_AND_ADD = 6,
    IBV_WR_LOCAL_INV = 7,
    IBV_WR_BIND_MW = 8,
    IBV_WR_SEND_WITH_INV = 9,
    IBV_WR_ATOMIC_WRITE = 15,
    IBV_SEND_FENCE = 1,
    IBV_SEND_SIGNALED = 1 << 1,
    IBV_SEND_SOLICITED = 1 << 2,
    IBV_SEND_INLINE = 1 << 3,
    IBV_CQ_INIT_ATTR_MASK_FLAGS = 1,
    IBV_CQ_INIT_ATTR_MASK_PD = 1 << 1,
    IBV_CREATE_CQ_ATTR_SINGLE_THREADED = 1,
    IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN = 1 << 1,
    IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS = 1,
    IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT = 1 << 1,
    IBV_VALUES_MASK_RAW_CLOCK = 1,
    IBV_FORK_UNNEEDED = 2,
}

#[cfg(test)]
pub(crate) mod tests;
