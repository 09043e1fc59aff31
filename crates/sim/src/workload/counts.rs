//! What devices counted, against what was seen of them.

use crate::swarm::Feature as F;
use crate::world::Node;

use super::{Workload, World};

/// Drops before a packet counts as received: what damage looks like.
const DAMAGE: &[&str] = &[
    "truncated",
    "packet_length",
    "bad_tver",
    "bad_opcode",
    "header_missing",
    "pad_count",
    "bad_syndrome",
    "icrc_bad",
];

fn count(node: &Node, name: &str) -> u64 {
    node.device.counters().by_name(name).unwrap_or(0)
}

impl Workload {
    /// What one device counted since it began.
    pub(super) fn check_counters(&self, node: &Node) -> Result<(), String> {
        for (name, seen) in [
            ("rdma_tx_packets", node.sent),
            ("ack_sent", node.answers.acknowledgements),
            ("send_rnr_err", node.answers.not_ready),
            ("nak_sequence_sent", node.answers.missing),
        ] {
            let counted = count(node, name);
            if counted != seen {
                return Err(format!("{name} is {counted}, and {seen} were seen"));
            }
        }
        let damaged: u64 = DAMAGE.iter().map(|name| count(node, name)).sum();
        let received = count(node, "rdma_rx_packets");
        if received + damaged != node.handed {
            let handed = node.handed;
            return Err(format!("{received} received and {damaged} damaged of {handed} packets"));
        }
        // Those from nobody are well-formed, but their bytes are by chance.
        let by_chance = self.has(F::Hostile) || self.has(F::Forged);
        if damaged != node.damaged && !by_chance {
            return Err(format!("{damaged} packets damaged, {} were", node.damaged));
        }
        Ok(())
    }

    /// What all devices counted of what was sent again.
    pub(super) fn check_repetitions(&self, world: &World) -> Result<(), String> {
        let sum = |name| world.nodes.iter().map(|node| count(node, name)).sum::<u64>();
        let (counted, observed) = (sum("retrans_pkts"), world.retransmissions());
        if self.has(F::Restart) {
            return Ok(()); // What a device counted went with it.
        }
        if counted != observed {
            return Err(format!("{counted} packets counted as sent again, {observed} were"));
        }
        // Late packets of a connection that is over look like duplicates in the next one.
        let duplicates = sum("duplicate_request");
        let once = self.pairs.iter().all(|pair| pair.epoch == 0) && !self.has(F::Forged);
        if once && duplicates > observed + world.copies {
            let copies = world.copies;
            return Err(format!(
                "{duplicates} duplicates of {observed} repetitions, {copies} copies"
            ));
        }
        Ok(())
    }

    /// In a world where nothing goes wrong nothing may be sent twice or dropped.
    pub(super) fn check_clean(&self, node: &Node) -> Result<(), String> {
        if self.recipe.profile != "clean" || self.recipe.features.impair() {
            return Ok(());
        }
        for name in [
            "retrans_pkts",
            "local_ack_timeout_err",
            "packet_seq_err",
            "implied_nak_seq_err",
            "duplicate_request",
            "out_of_sequence",
            "icrc_bad",
            "ghost_response",
            "bad_response",
            "req_cqe_error",
            "resp_cqe_error",
            "addr_mismatch",
        ] {
            let value = count(node, name);
            if value != 0 {
                return Err(format!("nothing goes wrong here, but {name} is {value}"));
            }
        }
        Ok(())
    }
}
