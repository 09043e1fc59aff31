//! Multicast groups as `rdma_join_multicast` makes them on RoCE: nobody is asked.
//!
//! On InfiniBand a subnet administrator answers a join; an Ethernet has none, and Linux makes up
//! what it would have said from the IP address. The switches hear of it by IGMP or MLD, which is
//! the host's, not ours. IBA vol 1 annex A17 for the group's GID.

use std::net::IpAddr;

use roxe_wire::{Gid, PKey, QKey, Qpn};

use crate::service::DATAGRAM_Q_KEY;

/// How to send to the members of a group: what an address handle and a work request need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    /// The GID to attach queue pairs to, and to send to.
    pub gid: Gid,
    /// The queue pair that all members are.
    pub qpn: Qpn,
    /// The queue key of all members.
    pub q_key: QKey,
    /// The partition of the group.
    pub p_key: PKey,
    /// The hop limit of packets to it.
    pub hop_limit: u8,
}

/// The group of an IP address; `None` when that is no multicast address.
pub const fn group(address: IpAddr) -> Option<Group> {
    if !address.is_multicast() {
        return None;
    }
    Some(Group {
        gid: Gid::from_ip(address),
        qpn: Qpn::MULTICAST,
        q_key: DATAGRAM_Q_KEY,
        p_key: PKey::DEFAULT,
        hop_limit: 64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_groups_are_joined() {
        let group = |address: &str| group(address.parse().unwrap());
        let joined = group("239.1.2.3").unwrap();
        assert_eq!(joined.gid.to_string(), "::ffff:239.1.2.3");
        assert_eq!((joined.qpn, joined.q_key), (Qpn::MULTICAST, QKey(0x0123_4567)));
        assert_eq!(group("ff15::beef").unwrap().gid.to_string(), "ff15::beef");
        assert_eq!((group("10.0.0.1"), group("fe80::1")), (None, None));
    }
}
