//! Every maximum of the device, on one page: what `ibv_query_device` tells.
//!
//! Tables grow on demand, so a high limit costs nothing until it is used. The numbers are promises
//! to the application: the tables are made with them, and refuse beyond.

use roxe_wire::{MAX_MESSAGE_LEN, Mtu};

use crate::queue_pair_numbers::QueuePairNumbers;

/// How much of everything a device can have. The names are those of `ibv_device_attr`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Queue pairs.
    pub max_qp: u32,
    /// Requests in one send or receive queue.
    pub max_qp_wr: u32,
    /// Scatter/gather elements of a request. Mirrored by `max_sge_rd`, those of a READ.
    pub max_sge: u32,
    /// Bytes that a send request can carry in itself.
    pub max_inline_data: u32,
    /// READs and atomics that a queue pair may have outstanding: `max_qp_init_rd_atom`.
    pub max_qp_init_rd_atom: u8,
    /// READs and atomics that a peer may have outstanding at a queue pair: `max_qp_rd_atom`.
    pub max_qp_rd_atom: u8,
    /// Payload of a packet: `active_mtu` of the port. That of datagrams; no path has a larger one.
    pub port_mtu: Mtu,
    /// Completion queues.
    pub max_cq: u32,
    /// Entries of a completion queue.
    pub max_cqe: u32,
    /// Shared receive queues.
    pub max_srq: u32,
    /// Requests in a shared receive queue.
    pub max_srq_wr: u32,
    /// Scatter elements of a request in a shared receive queue.
    pub max_srq_sge: u32,
    /// Protection domains.
    pub max_pd: u32,
    /// Memory regions.
    pub max_mr: u32,
    /// Bytes of a memory region.
    pub max_mr_size: u64,
    /// Bytes of a region that is registered by work request.
    pub max_fast_register_len: u64,
    /// Memory windows.
    pub max_mw: u32,
    /// Address handles. Paths of connected queue pairs come on top: see [`Limits::max_paths`].
    pub max_ah: u32,
    /// Multicast groups with members here.
    pub max_mcast_grp: u32,
    /// Members of a group.
    pub max_mcast_qp_attach: u32,
    /// Entries of the GID table.
    pub gid_table_len: u32,
    /// Entries of the P_Key table.
    pub max_pkeys: u16,
    /// How long an answer may wait here before it is sent, as exponent: 4.096 µs × 2^code.
    pub local_ca_ack_delay: u8,
}

impl Limits {
    /// Those of every device that is made without saying otherwise.
    //= BC-077
    #[rustfmt::skip]
    pub const DEFAULT: Self = Self {
        max_qp:                QueuePairNumbers::MOST,
        max_qp_wr:             1 << 15,
        max_sge:               32,
        max_inline_data:       512,
        max_qp_init_rd_atom:   128,
        max_qp_rd_atom:        128,
        port_mtu:              Mtu::B4096,
        max_cq:                1 << 18,
        max_cqe:               (1 << 22) - 1,
        max_srq:               1 << 16,
        max_srq_wr:            1 << 16,
        max_srq_sge:           32,
        max_pd:                1 << 18,
        max_mr:                1 << 22,
        max_mr_size:           u64::MAX,
        max_fast_register_len: 1 << 31,
        max_mw:                1 << 22,
        max_ah:                1 << 20,
        max_mcast_grp:         1 << 13,
        max_mcast_qp_attach:   1 << 10,
        gid_table_len:         256,
        max_pkeys:             1,
        local_ca_ack_delay:    15,
    };

    /// Bytes of a message: `max_msg_sz` of the port. No device has another number.
    pub const fn max_message_len(&self) -> u32 {
        MAX_MESSAGE_LEN
    }

    /// `max_res_rd_atom`: READs and atomics that all peers together may have outstanding.
    pub const fn max_res_rd_atom(&self) -> u32 {
        self.max_qp * self.max_qp_rd_atom as u32
    }

    /// `max_total_mcast_qp_attach`: memberships of all groups together.
    pub const fn max_total_mcast_qp_attach(&self) -> u32 {
        self.max_mcast_grp * self.max_mcast_qp_attach
    }

    /// Paths: one for each queue pair, one for each address handle.
    pub const fn max_paths(&self) -> u32 {
        self.max_qp + self.max_ah
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self::DEFAULT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What applications and other adapters take for granted.
    //= BC-077 test
    #[test]
    fn limits_are_as_high_as_elsewhere() {
        let limits = Limits::default();
        assert!(limits.max_qp >= 1 << 16);
        assert!(limits.max_sge >= 32 && limits.max_inline_data >= 400);
        assert!(limits.max_qp_rd_atom >= 128 && limits.max_qp_init_rd_atom >= 128);
        assert_eq!(limits.max_message_len(), 1 << 31);
    }

    #[test]
    fn limits_fit_their_numbers() {
        let limits = Limits::default();
        assert!(limits.max_mr + limits.max_mw < 1 << 24, "keys have indices of 24 bits");
        let products =
            [limits.max_res_rd_atom(), limits.max_total_mcast_qp_attach(), limits.max_paths()];
        assert!(products.iter().all(|&product| product <= i32::MAX as u32), "ibverbs has int");
        let ints = [limits.max_cqe, limits.max_qp_wr, limits.max_srq_wr, limits.max_ah];
        assert!(ints.iter().all(|&limit| limit <= i32::MAX as u32));
    }
}
