//! The structs of `rdma/rdma_cma.h`, as every program was compiled with them.
//!
//! As those of `verbs.h`: no field moves, ever, and `tests.rs` compares each with the header.

#![allow(non_camel_case_types, reason = "the names of rdma_cma.h")]

use std::ffi::{c_char, c_int, c_void};

use crate::layout::{
    c_structs, ibv_ah_attr, ibv_comp_channel, ibv_context, ibv_cq, ibv_gid, ibv_pd, ibv_qp, ibv_srq,
};

c_structs! {
    struct rdma_ib_addr {
        sgid: ibv_gid,
        dgid: ibv_gid,
        pkey: u16,
    }
    struct rdma_addr {
        src_storage: libc::sockaddr_storage,
        dst_storage: libc::sockaddr_storage,
        addr: rdma_ib_addr,
    }
    struct ibv_sa_path_rec {
        dgid: ibv_gid,
        sgid: ibv_gid,
        dlid: u16,
        slid: u16,
        raw_traffic: c_int,
        flow_label: u32,
        hop_limit: u8,
        traffic_class: u8,
        reversible: c_int,
        numb_path: u8,
        pkey: u16,
        sl: u8,
        mtu_selector: u8,
        mtu: u8,
        rate_selector: u8,
        rate: u8,
        packet_life_time_selector: u8,
        packet_life_time: u8,
        preference: u8,
    }
    struct rdma_route {
        addr: rdma_addr,
        path_rec: *mut ibv_sa_path_rec,
        num_paths: c_int,
    }
    struct rdma_event_channel {
        fd: c_int,
    }
    struct rdma_cm_id {
        verbs: *mut ibv_context,
        channel: *mut rdma_event_channel,
        context: *mut c_void,
        qp: *mut ibv_qp,
        route: rdma_route,
        ps: c_int,
        port_num: u8,
        event: *mut rdma_cm_event,
        send_cq_channel: *mut ibv_comp_channel,
        send_cq: *mut ibv_cq,
        recv_cq_channel: *mut ibv_comp_channel,
        recv_cq: *mut ibv_cq,
        srq: *mut ibv_srq,
        pd: *mut ibv_pd,
        qp_type: c_int,
    }
    struct rdma_conn_param {
        private_data: *const c_void,
        private_data_len: u8,
        responder_resources: u8,
        initiator_depth: u8,
        flow_control: u8,
        retry_count: u8,
        rnr_retry_count: u8,
        srq: u8,
        qp_num: u32,
    }
    struct rdma_ud_param {
        private_data: *const c_void,
        private_data_len: u8,
        ah_attr: ibv_ah_attr,
        qp_num: u32,
        qkey: u32,
    }
    struct rdma_cm_event {
        id: *mut rdma_cm_id,
        listen_id: *mut rdma_cm_id,
        event: c_int,
        status: c_int,
        param: rdma_cm_event_param,
    }
    struct rdma_addrinfo {
        ai_flags: c_int,
        ai_family: c_int,
        ai_qp_type: c_int,
        ai_port_space: c_int,
        ai_src_len: libc::socklen_t,
        ai_dst_len: libc::socklen_t,
        ai_src_addr: *mut libc::sockaddr,
        ai_dst_addr: *mut libc::sockaddr,
        ai_src_canonname: *mut c_char,
        ai_dst_canonname: *mut c_char,
        ai_route_len: usize,
        ai_route: *mut c_void,
        ai_connect_len: usize,
        ai_connect: *mut c_void,
        ai_next: *mut rdma_addrinfo,
    }
    struct rdma_cm_join_mc_attr_ex {
        comp_mask: u32,
        join_flags: u32,
        addr: *mut libc::sockaddr,
    }
}

/// What an event tells besides.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) union rdma_cm_event_param {
    /// Of connections.
    pub(crate) conn: rdma_conn_param,
    /// Of datagrams and groups.
    pub(crate) ud: rdma_ud_param,
}

macro_rules! c_numbers {
    ($($name:ident = $value:expr,)*) => {
        $(pub(crate) const $name: c_int = $value;)*

        /// Each with its name.
        #[cfg(test)]
        const NUMBERS: &[(&str, c_int)] = &[$((stringify!($name), $name),)*];
    };
}

c_numbers! {
    RDMA_CM_EVENT_ADDR_RESOLVED = 0,
    RDMA_CM_EVENT_ADDR_ERROR = 1,
    RDMA_CM_EVENT_ROUTE_RESOLVED = 2,
    RDMA_CM_EVENT_CONNECT_REQUEST = 4,
    RDMA_CM_EVENT_CONNECT_RESPONSE = 5,
    RDMA_CM_EVENT_CONNECT_ERROR = 6,
    RDMA_CM_EVENT_UNREACHABLE = 7,
    RDMA_CM_EVENT_REJECTED = 8,
    RDMA_CM_EVENT_ESTABLISHED = 9,
    RDMA_CM_EVENT_DISCONNECTED = 10,
    RDMA_CM_EVENT_DEVICE_REMOVAL = 11,
    RDMA_CM_EVENT_MULTICAST_JOIN = 12,
    RDMA_CM_EVENT_MULTICAST_ERROR = 13,
    RDMA_CM_EVENT_TIMEWAIT_EXIT = 15,
    RDMA_PS_TCP = 0x0106,
    RDMA_PS_UDP = 0x0111,
    RDMA_PS_IB = 0x013f,
    RDMA_MAX_RESP_RES = 0xff,
    RDMA_MAX_INIT_DEPTH = 0xff,
    RDMA_OPTION_ID = 0,
    RDMA_OPTION_ID_TOS = 0,
    RDMA_OPTION_ID_REUSEADDR = 1,
    RDMA_OPTION_ID_AFONLY = 2,
    RDMA_OPTION_ID_ACK_TIMEOUT = 3,
    RAI_PASSIVE = 1,
    RAI_NUMERICHOST = 2,
    RAI_FAMILY = 8,
    RDMA_CM_JOIN_MC_ATTR_ADDRESS = 1,
    RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS = 2,
    RDMA_MC_JOIN_FLAG_FULLMEMBER = 0,
    RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER = 1,
}

#[cfg(test)]
mod tests;
