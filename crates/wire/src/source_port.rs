//! The UDP source port: entropy for the paths of a network, computed as Linux computes it.
//!
//! Switches spread flows by it; receivers must not read anything into it. Annex A17 leaves the
//! choice to the sender, as long as one flow keeps one port.

use crate::Qpn;

/// The port of a flow label (20 bits): 0xc000 ..= 0xffff. `rdma_flow_label_to_udp_sport` of Linux.
#[expect(clippy::cast_possible_truncation, reason = "14 bits")]
pub const fn from_flow_label(flow_label: u32) -> u16 {
    let folded = flow_label & 0x3fff ^ (flow_label & 0xf_c000) >> 14;
    folded as u16 | 0xc000
}

/// A flow label, 20 bits, from the two queue pairs of a connection: the same in both directions.
/// `rdma_calc_flow_label` of Linux.
#[expect(clippy::cast_possible_truncation, reason = "the low 20 bits are meant")]
pub const fn flow_label_of_qps(local: Qpn, remote: Qpn) -> u32 {
    let mut product = local.get() as u64 * remote.get() as u64;
    product ^= product >> 20;
    product ^= product >> 40;
    product as u32 & 0x000f_ffff
}

/// The port of a connection: from its flow label, or where that is 0, from its queue pairs.
/// `rdma_get_udp_sport` of Linux.
//= F13, 01-1.5
pub const fn source_port(flow_label: u32, local: Qpn, remote: Qpn) -> u16 {
    if flow_label == 0 {
        from_flow_label(flow_label_of_qps(local, remote))
    } else {
        from_flow_label(flow_label)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    //= F13, 01-1.5 test
    #[test]
    fn labels_fold_into_ports_as_linux_folds_them() {
        let cases = [
            (0x00000, 0xc000),
            (0x00001, 0xc001),
            (0x03fff, 0xffff),
            (0x04000, 0xc001),
            (0xfc000, 0xc03f),
            (0x12345, 0xe341),
            (0xfffff, 0xffc0),
            (0x70bbd, 0xcba1), // seen in a capture of a connection made by the RDMA CM
        ];
        for (label, port) in cases {
            assert_eq!(from_flow_label(label), port, "{label:#x}");
        }
    }

    #[test]
    fn both_ends_of_a_connection_use_one_port() {
        for (a, b) in [(0x11, 0x22), (0xff_ffff, 0x12_3456), (1, 1)] {
            let (a, b) = (Qpn::new(a), Qpn::new(b));
            assert_eq!(source_port(0, a, b), source_port(0, b, a));
            assert_eq!(source_port(0x12345, a, b), 0xe341);
        }
    }
}
