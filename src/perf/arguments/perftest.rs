//! Flags of perftest that `roxe perf` has not, each with what it does there.

/// What a flag does in perftest, if it is one of its own that is not here.
pub(crate) fn says(flag: &str) -> Option<&'static str> {
    // A value may be joined to it.
    let name = match flag.strip_prefix("--") {
        Some(long) => long.split('=').next()?,
        None => flag.strip_prefix('-')?.get(..1)?,
    };
    if name.is_empty() {
        return None;
    }
    let found = FLAGS.iter().find(|(short, long, _)| *short == name || *long == name);
    found.map(|(_, _, says)| *says)
}

/// The short name, the long one, and what it does.
#[rustfmt::skip]
const FLAGS: &[(&str, &str, &str)] = &[
    ("R", "rdma_cm",              "connects by the connection manager"),
    ("z", "comm_rdma_cm",         "tells queue pairs by the connection manager"),
    ("g", "mcg",                  "sends to a multicast group"),
    ("M", "MGID",                 "names a multicast group"),
    ("O", "dualport",             "measures two ports of an adapter"),
    ("T", "tos",                  "sets the type of service, of -R only; here: --tclass"),
    ("C", "report-cycles",        "counts latencies in cycles of the processor"),
    ("L", "hop_limit",            "sets the hop limit"),
    ("w", "limit_bw",             "fails below a bandwidth"),
    ("y", "limit_msgrate",        "fails below a rate of messages"),
    ("W", "report-counters",      "reports counters of the device; here: roxe stat"),
    ("P", "client",               "is for raw Ethernet"),
    ("Z", "server",               "is for raw Ethernet"),
    ("B", "source_mac",           "is for raw Ethernet"),
    ("E", "dest_mac",             "is for raw Ethernet"),
    ("J", "dest_ip",              "is for raw Ethernet"),
    ("j", "source_ip",            "is for raw Ethernet"),
    ("K", "dest_port",            "is for raw Ethernet"),
    ("k", "source_port",          "is for raw Ethernet"),
    ("G", "use_rss",              "is for raw Ethernet"),
    ("Y", "ethertype",            "is for raw Ethernet"),
    ("v", "mac_fwd",              "is for raw Ethernet"),
    ("",  "out_json",             "writes the report to a JSON file; here: --json"),
    ("",  "out_json_file",        "names a JSON file; here: --json"),
    ("",  "cpu_util",             "reports the load of the processor"),
    ("",  "dlid",                 "sets a LID, which RoCE has not"),
    ("",  "dont_xchg_versions",   "does without a word about versions and path MTU"),
    ("",  "force-link",           "chooses a kind of link"),
    ("",  "no_lock",              "does without locks"),
    ("",  "ipv6-addr",            "names the server by IPv6; here the host's name may be one"),
    ("",  "bind_source_ip",       "chooses the address of the TCP connection"),
    ("",  "latency_gap",          "waits between messages"),
    ("",  "mmap",                 "takes memory from a file"),
    ("",  "mmap-offset",          "takes memory from a file"),
    ("",  "mr_per_qp",            "registers memory for each queue pair"),
    ("",  "odp",                  "does not pin memory: here none ever is"),
    ("",  "output",               "prints one number only; here: --json"),
    ("",  "payload_file_path",    "takes the payload from a file"),
    ("",  "use_old_post_send",    "posts by ibv_post_send"),
    ("",  "perform_warm_up",      "sends some messages before"),
    ("",  "pkey_index",           "chooses a partition: here is one"),
    ("",  "recv_post_list",       "posts receives in lists; here they are anyway"),
    ("",  "report-per-port",      "is for -O"),
    ("",  "reversed",             "has the server send"),
    ("",  "run_infinitely",       "goes on for ever; here: -D with many seconds"),
    ("",  "retry_count",          "sets how often is tried again, of -R only"),
    ("",  "flow_label",           "sets the flow label of IPv6"),
    ("",  "use_cuda",             "takes memory of a GPU"),
    ("",  "use_rocm",             "takes memory of a GPU"),
    ("",  "use_hugepages",        "takes memory in large pages"),
    ("",  "use-null-mr",          "registers memory that is none"),
    ("",  "wait_destroy",         "waits before it ends"),
    ("",  "disable_pcie_relaxed", "is about PCIe, which is not here"),
    ("",  "burst_size",           "limits the rate"),
    ("",  "typical_pkt_size",     "limits the rate"),
    ("",  "rate_limit",           "limits the rate"),
    ("",  "rate_units",           "limits the rate"),
    ("",  "rate_limit_type",      "limits the rate"),
    ("",  "use_ooo",              "has data placed out of order"),
    ("",  "write_with_imm",       "measures WRITE with immediate"),
];

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::cli::Arguments;

    #[test]
    fn a_flag_that_is_here_is_not_said_to_be_missing() {
        let mut roxe = Arguments::command();
        roxe.build();
        let perf = roxe.find_subcommand("perf").expect("there is one");
        for argument in perf.get_arguments() {
            let short = argument.get_short().map(|short| format!("-{short}"));
            let long = argument.get_long().map(|long| format!("--{long}"));
            for flag in short.into_iter().chain(long) {
                assert_eq!(says(&flag), None, "{flag}");
            }
        }
    }

    #[test]
    fn a_value_may_be_joined_to_a_flag() {
        assert_eq!(says("--rate_limit=5"), Some("limits the rate"));
        assert_eq!(says("-T5"), says("--tos"));
        for other in ["-", "--", "", "-ä", "--nosuch", "R"] {
            assert_eq!(says(other), None, "{other}");
        }
    }
}
