//! Counters: why packets vanished, what happened to queue pairs, how much traffic there was.
//!
//! Everything is counted once, under what it is: a [`DropReason`], a [`Count`] of the transport, a
//! [`DeviceCount`]. The table [`NAMES`] says under which names it is shown. Some have several,
//! because dashboards know the names of Linux's rxe and of mlx5. Where these two use one name
//! differently, the plain name has mlx5's meaning, and rxe's has `rxe_` in front. What they have
//! and we do not stands in [`NOT_SHOWN`]. A flushed request counts under `…_cqe_flush_error` only.

use roxe_transport::adapter::Count;
use roxe_wire::DropReason;

use Of::{Device, Drop, Transport};
use Whose::{Mlx5, Ours, Rxe};

/// What a device counts besides drops and what its queue pairs report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DeviceCount {
    /// Packets sent, all kinds.
    PacketsSent,
    /// Their bytes from BTH to ICRC.
    BytesSent,
    /// Packets received that passed all checks which need no queue pair, the ICRC among them.
    PacketsReceived,
    /// Their bytes from BTH to ICRC.
    BytesReceived,
    /// Packets for a queue pair of ours, from its peer, with the congestion mark CE.
    EcnMarked,
    /// Congestion notifications sent.
    CnpSent,
    /// Congestion notifications that a queue pair took.
    CnpHandled,
    /// Congestion notifications for a queue pair that takes none, or from no peer of it.
    CnpIgnored,
    /// Completion queues that overran.
    CqOverrun,
    /// Completions that found no room.
    CqeLost,
    /// Limit events of shared receive queues.
    SrqLimitReached,
    /// Copies of multicast datagrams delivered to members.
    MulticastCopies,
    /// Packets for other devices of a network on which each hears everything.
    OfOthers,
}

/// What a counter counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    /// Packets dropped for the reason with this [`DropReason::name`].
    Drop(&'static str),
    /// What queue pairs report.
    Transport(Count),
    /// What the device does itself.
    Device(DeviceCount),
}

/// Whose meaning a name has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// The name is ours.
    Ours,
    /// The name and meaning of Linux's rxe driver.
    Rxe,
    /// The name and meaning of NVIDIA's mlx5 driver.
    Mlx5,
}

/// A counter as it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name {
    /// Lower case with underscores, stable.
    pub name: &'static str,
    /// Where the name comes from.
    pub whose: Whose,
    /// What is counted.
    pub of: Of,
}

const fn row(name: &'static str, whose: Whose, of: Of) -> Name {
    Name { name, whose, of }
}

/// All names, in the order in which they are shown. What each counts is said where it is defined:
/// at the variant of [`DropReason`], [`Count`] or [`DeviceCount`].
#[rustfmt::skip]
pub const NAMES: &[Name] = &[
    // traffic
    row("rdma_tx_packets",              Mlx5, Device(DeviceCount::PacketsSent)),
    row("rdma_tx_bytes",                Mlx5, Device(DeviceCount::BytesSent)),
    row("rdma_rx_packets",              Mlx5, Device(DeviceCount::PacketsReceived)),
    row("rdma_rx_bytes",                Mlx5, Device(DeviceCount::BytesReceived)),
    row("sent_pkts",                    Rxe,  Device(DeviceCount::PacketsSent)),
    row("rcvd_pkts",                    Rxe,  Device(DeviceCount::PacketsReceived)),
    row("multicast_copies",             Ours, Device(DeviceCount::MulticastCopies)),
    row("rx_of_others",                 Ours, Device(DeviceCount::OfOthers)),
    // requests received
    row("rx_write_requests",            Mlx5, Transport(Count::WriteRequests)),
    row("rx_read_requests",             Mlx5, Transport(Count::ReadRequests)),
    row("rx_atomic_requests",           Mlx5, Transport(Count::AtomicRequests)),
    row("duplicate_request",            Mlx5, Transport(Count::DuplicateRequest)),
    row("out_of_sequence",              Mlx5, Transport(Count::OutOfSequence)),
    row("rxe_out_of_sequence",          Rxe,  Transport(Count::SequenceNakSent)),
    row("out_of_buffer",                Mlx5, Transport(Count::OutOfBuffer)),
    row("resp_local_length_error",      Mlx5, Transport(Count::ResponderLengthError)),
    row("resp_remote_access_errors",    Mlx5, Transport(Count::AccessRefused)),
    row("resp_cqe_error",               Mlx5, Transport(Count::ResponderCqeError)),
    row("resp_cqe_flush_error",         Mlx5, Transport(Count::ResponderFlushed)),
    // answers sent
    row("ack_sent",                     Ours, Transport(Count::AckSent)),
    row("nak_sequence_sent",            Ours, Transport(Count::SequenceNakSent)),
    row("nak_fatal_sent",               Ours, Transport(Count::FatalNakSent)),
    row("send_rnr_err",                 Rxe,  Transport(Count::RnrNakSent)),
    row("read_replayed",                Ours, Transport(Count::ReadReplayed)),
    row("atomic_replayed",              Ours, Transport(Count::AtomicReplayed)),
    row("duplicate_dropped",            Ours, Transport(Count::DuplicateDropped)),
    // answers received, or not
    row("rnr_nak_retry_err",            Mlx5, Transport(Count::RnrRetry)),
    row("rcvd_rnr_err",                 Rxe,  Transport(Count::RnrNakReceived)),
    row("packet_seq_err",               Mlx5, Transport(Count::SequenceNakReceived)),
    row("rcvd_seq_err",                 Rxe,  Transport(Count::SequenceNakAhead)),
    row("implied_nak_seq_err",          Mlx5, Transport(Count::ImpliedNak)),
    row("local_ack_timeout_err",        Mlx5, Transport(Count::AckTimeout)),
    row("completer_retry_err",          Rxe,  Transport(Count::RetryStarted)),
    row("retrans_pkts",                 Ours, Transport(Count::Retransmitted)),
    row("ghost_response",               Ours, Transport(Count::GhostResponse)),
    row("bad_response",                 Ours, Transport(Count::BadResponse)),
    row("req_remote_invalid_request",   Mlx5, Transport(Count::RemoteInvalidRequest)),
    row("req_remote_access_errors",     Mlx5, Transport(Count::RemoteAccessError)),
    row("req_remote_operation_errors",  Ours, Transport(Count::RemoteOperationError)),
    row("req_transport_retries_exceeded", Mlx5, Transport(Count::RetryExceeded)),
    row("retry_exceeded_err",           Rxe,  Transport(Count::RetryExceeded)),
    row("req_rnr_retries_exceeded",     Mlx5, Transport(Count::RnrRetryExceeded)),
    row("retry_rnr_exceeded_err",       Rxe,  Transport(Count::RnrRetryExceeded)),
    row("req_cqe_error",                Mlx5, Transport(Count::RequesterCqeError)),
    row("req_cqe_flush_error",          Mlx5, Transport(Count::RequesterFlushed)),
    // congestion
    row("np_ecn_marked_roce_packets",   Mlx5, Device(DeviceCount::EcnMarked)),
    row("np_cnp_sent",                  Mlx5, Device(DeviceCount::CnpSent)),
    row("rp_cnp_handled",               Mlx5, Device(DeviceCount::CnpHandled)),
    row("rp_cnp_ignored",               Mlx5, Device(DeviceCount::CnpIgnored)),
    // queues
    row("cq_overrun",                   Ours, Device(DeviceCount::CqOverrun)),
    row("cqe_lost",                     Ours, Device(DeviceCount::CqeLost)),
    row("srq_limit_reached",            Ours, Device(DeviceCount::SrqLimitReached)),
    // dropped by a queue pair
    row("drop_wrong_state",             Ours, Transport(Count::WrongState)),
    row("uc_drop_msg",                  Ours, Transport(Count::UcMessageDropped)),
    row("ud_no_rwqe",                   Ours, Transport(Count::UdNoBuffer)),
    row("ud_too_long",                  Ours, Transport(Count::UdTooLong)),
    // dropped before
    row("truncated",                    Ours, Drop("truncated")),
    row("not_ip",                       Ours, Drop("not_ip")),
    row("roce_v1",                      Ours, Drop("roce_v1")),
    row("too_many_vlan_tags",           Ours, Drop("too_many_vlan_tags")),
    row("ip_version",                   Ours, Drop("ip_version")),
    row("ip_options",                   Ours, Drop("ip_options")),
    row("ip_header_length",             Ours, Drop("ip_header_length")),
    row("ip_checksum",                  Ours, Drop("ip_checksum")),
    row("ip_fragment",                  Ours, Drop("ip_fragment")),
    row("later_fragment",               Ours, Drop("later_fragment")),
    row("ip_extension",                 Ours, Drop("ip_extension")),
    row("not_udp",                      Ours, Drop("not_udp")),
    row("other_udp_port",               Ours, Drop("other_udp_port")),
    row("udp_length",                   Ours, Drop("udp_length")),
    row("udp_checksum",                 Ours, Drop("udp_checksum")),
    row("packet_length",                Ours, Drop("packet_length")),
    row("bad_tver",                     Ours, Drop("bad_tver")),
    row("bad_opcode",                   Ours, Drop("bad_opcode")),
    row("header_missing",               Ours, Drop("header_missing")),
    row("pad_count",                    Ours, Drop("pad_count")),
    row("bad_syndrome",                 Ours, Drop("bad_syndrome")),
    row("icrc_bad",                     Ours, Drop("icrc_bad")),
    row("rx_icrc_encapsulated",         Mlx5, Drop("icrc_bad")),
    row("mad_length",                   Ours, Drop("mad_length")),
    row("mad_header",                   Ours, Drop("mad_header")),
    row("mad_attribute",                Ours, Drop("mad_attribute")),
    row("unknown_qp",                   Ours, Drop("unknown_qp")),
    row("wrong_service",                Ours, Drop("wrong_service")),
    row("wrong_qp_state",               Ours, Drop("wrong_qp_state")),
    row("addr_mismatch",                Ours, Drop("addr_mismatch")),
    row("bad_pkey",                     Ours, Drop("bad_pkey")),
    row("bad_qkey",                     Ours, Drop("bad_qkey")),
];

/// What the rows of [`NAMES`] are about: the first of each group, and its title.
#[rustfmt::skip]
const GROUPS: &[(&str, &str)] = &[
    ("rdma_tx_packets",            "traffic"),
    ("rx_write_requests",          "requests received"),
    ("ack_sent",                   "answers sent"),
    ("rnr_nak_retry_err",          "answers received, or not"),
    ("np_ecn_marked_roce_packets", "congestion"),
    ("cq_overrun",                 "queues"),
    ("drop_wrong_state",           "dropped by a queue pair"),
    ("truncated",                  "dropped before"),
];

/// Names of rxe and mlx5 that are not shown, and why. One that were always 0 would say that all is
/// well where nothing is known.
#[rustfmt::skip]
pub const NOT_SHOWN: &[(&str, &str)] = &[
    ("ack_deffered",           "answers are never put off: the engine has no second task to wait for"),
    ("send_err",               "a port sends; the engine does not hear what became of a frame"),
    ("link_downed",            "a link is the port's"),
    ("rdma_sends",             "work that goes well is counted in packets"),
    ("rdma_recvs",             "the same"),
    ("rx_dct_connect",         "there are no dynamically connected queue pairs"),
    ("cc_rx_ce_pkts",          "the same as np_ecn_marked_roce_packets, for each flow"),
    ("cc_rx_cnp_pkts",         "the same as rp_cnp_handled, for each flow"),
    ("cc_tx_cnp_pkts",         "the same as np_cnp_sent, for each flow"),
    ("roce_adp_retrans",       "retransmission is not adaptive"),
    ("roce_adp_retrans_to",    "retransmission is not adaptive"),
    ("roce_slow_restart",      "there is no slow restart"),
    ("roce_slow_restart_cnps", "there is no slow restart"),
    ("roce_slow_restart_trans", "there is no slow restart"),
];

/// All counters of a device. They only ever rise, and wrap after 2⁶⁴.
#[derive(Clone, Debug)]
pub struct Counters {
    drops: [u64; DROPS],
    transport: [u64; COUNTS],
    device: [u64; DEVICE_COUNTS],
}

impl Counters {
    /// All 0.
    pub const fn new() -> Self {
        Self { drops: [0; DROPS], transport: [0; COUNTS], device: [0; DEVICE_COUNTS] }
    }

    /// A packet was dropped.
    pub fn drop(&mut self, reason: DropReason) {
        bump(&mut self.drops[reason.index()], 1);
    }

    /// A queue pair reported something.
    pub fn transport(&mut self, what: Count) {
        bump(&mut self.transport[what as usize], 1);
    }

    /// The device did something, `amount` times.
    pub fn device(&mut self, what: DeviceCount, amount: u64) {
        bump(&mut self.device[what as usize], amount);
    }

    /// A packet of so many bytes from BTH to ICRC was sent.
    pub fn sent(&mut self, bytes: usize) {
        self.device(DeviceCount::PacketsSent, 1);
        self.device(DeviceCount::BytesSent, bytes as u64);
    }

    /// A packet of so many bytes from BTH to ICRC was received.
    pub fn received(&mut self, bytes: usize) {
        self.device(DeviceCount::PacketsReceived, 1);
        self.device(DeviceCount::BytesReceived, bytes as u64);
    }

    /// How often something happened.
    pub fn value(&self, of: Of) -> u64 {
        match of {
            Drop(name) => DropReason::NAMES
                .iter()
                .position(|known| *known == name)
                .map_or(0, |index| self.drops[index]),
            Transport(count) => self.transport[count as usize],
            Device(count) => self.device[count as usize],
        }
    }

    /// The counter with this name; `None` when there is none.
    pub fn by_name(&self, name: &str) -> Option<u64> {
        NAMES.iter().find(|row| row.name == name).map(|row| self.value(row.of))
    }

    /// All counters by name, in the order of [`NAMES`].
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        NAMES.iter().map(|row| (row.name, self.value(row.of)))
    }

    /// The same, each with what it is about.
    pub fn grouped(&self) -> impl Iterator<Item = (&'static str, &'static Name, u64)> {
        let mut groups = GROUPS.iter().peekable();
        let mut group = "";
        NAMES.iter().map(move |row| {
            if let Some((_, title)) = groups.next_if(|(first, _)| *first == row.name) {
                group = *title;
            }
            (group, row, self.value(row.of))
        })
    }
}

impl Default for Counters {
    fn default() -> Self {
        Self::new()
    }
}

/// What one queue pair counted: its traffic, its reports, and frames for it that were dropped. Made
/// with the queue pair, so that nothing is allocated when something happens.
///
/// Traffic and what happens often is counted in 64 bits, beside the queue pair. All else has 32
/// bits elsewhere, and stays at 2³²-1 if it ever comes there; the device counts on.
#[derive(Clone, Debug)]
pub struct QpCounters {
    sent: Traffic,
    received: Traffic,
    often: [u64; Count::OFTEN],
    seldom: Box<Seldom>,
}

/// Packets, and their bytes from BTH to ICRC.
#[derive(Clone, Copy, Debug, Default)]
struct Traffic {
    packets: u64,
    bytes: u64,
}

impl Traffic {
    fn add(&mut self, bytes: usize) {
        bump(&mut self.packets, 1);
        bump(&mut self.bytes, bytes as u64);
    }
}

#[derive(Clone, Debug)]
struct Seldom {
    /// Those of the transport behind the ones that happen often.
    transport: [u32; COUNTS - Count::OFTEN],
    drops: [u32; QP_DROPS.len()],
}

/// The drops of which is known for which queue pair the frame was.
pub const QP_DROPS: [&str; 6] =
    ["wrong_service", "wrong_qp_state", "addr_mismatch", "bad_pkey", "bad_qkey", "bad_opcode"];

impl QpCounters {
    /// All 0.
    pub fn new() -> Self {
        let seldom = Seldom { transport: [0; _], drops: [0; _] };
        let (sent, received) = (Traffic::default(), Traffic::default());
        Self { sent, received, often: [0; _], seldom: Box::new(seldom) }
    }

    /// A packet of so many bytes from BTH to ICRC was sent.
    pub fn sent(&mut self, bytes: usize) {
        self.sent.add(bytes);
    }

    /// A packet of so many bytes from BTH to ICRC came and is the queue pair's.
    pub fn received(&mut self, bytes: usize) {
        self.received.add(bytes);
    }

    /// The queue pair reported something.
    //= W02
    pub fn count(&mut self, what: Count) {
        let place = what as usize;
        match self.often.get_mut(place) {
            Some(counter) => bump(counter, 1),
            None => bump_seldom(&mut self.seldom.transport[place - Count::OFTEN]),
        }
    }

    /// A frame for it was dropped. Other reasons than [`QP_DROPS`] are not known here.
    pub fn drop(&mut self, reason: DropReason) {
        let place = QP_DROPS.iter().position(|name| *name == reason.name());
        if let Some(place) = place {
            bump_seldom(&mut self.seldom.drops[place]);
        }
    }

    /// How often something happened; 0 for what only devices count.
    pub fn value(&self, of: Of) -> u64 {
        self.get(of).unwrap_or(0)
    }

    fn get(&self, of: Of) -> Option<u64> {
        match of {
            Transport(count) => {
                let place = count as usize;
                let often = self.often.get(place).copied();
                often.or_else(|| Some(self.seldom.transport[place - Count::OFTEN].into()))
            }
            Device(DeviceCount::PacketsSent) => Some(self.sent.packets),
            Device(DeviceCount::BytesSent) => Some(self.sent.bytes),
            Device(DeviceCount::PacketsReceived) => Some(self.received.packets),
            Device(DeviceCount::BytesReceived) => Some(self.received.bytes),
            Device(_) => None,
            Drop(name) => {
                let place = QP_DROPS.iter().position(|known| *known == name)?;
                Some(self.seldom.drops[place].into())
            }
        }
    }

    /// The counter with this name; `None` when queue pairs have none such.
    pub fn by_name(&self, name: &str) -> Option<u64> {
        NAMES.iter().find(|row| row.name == name).and_then(|row| self.get(row.of))
    }

    /// All counters by name: the rows of [`NAMES`] that are about queue pairs.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        NAMES.iter().filter_map(|row| Some((row.name, self.get(row.of)?)))
    }
}

impl Default for QpCounters {
    fn default() -> Self {
        Self::new()
    }
}

fn bump(counter: &mut u64, amount: u64) {
    *counter = counter.wrapping_add(amount);
}

const fn bump_seldom(counter: &mut u32) {
    *counter = counter.saturating_add(1);
}

/// One for each [`DropReason`].
const DROPS: usize = DropReason::NAMES.len();

/// One more than the last variant of [`Count`].
const COUNTS: usize = Count::COUNT;

/// One more than the last variant of [`DeviceCount`].
const DEVICE_COUNTS: usize = DeviceCount::OfOthers as usize + 1;

#[cfg(test)]
mod tests {
    use super::*;

    /// The `hw_counters` of Linux's rxe and mlx5 drivers.
    const KNOWN: &[&str] = &[
        "sent_pkts",
        "rcvd_pkts",
        "duplicate_request",
        "out_of_sequence",
        "rcvd_rnr_err",
        "send_rnr_err",
        "rcvd_seq_err",
        "ack_deffered",
        "retry_exceeded_err",
        "retry_rnr_exceeded_err",
        "completer_retry_err",
        "send_err",
        "link_downed",
        "rdma_sends",
        "rdma_recvs",
        "rx_write_requests",
        "rx_read_requests",
        "rx_atomic_requests",
        "rx_dct_connect",
        "out_of_buffer",
        "rnr_nak_retry_err",
        "packet_seq_err",
        "implied_nak_seq_err",
        "local_ack_timeout_err",
        "resp_local_length_error",
        "resp_cqe_error",
        "req_cqe_error",
        "req_remote_invalid_request",
        "req_remote_access_errors",
        "resp_remote_access_errors",
        "resp_cqe_flush_error",
        "req_cqe_flush_error",
        "req_transport_retries_exceeded",
        "req_rnr_retries_exceeded",
        "rp_cnp_handled",
        "rp_cnp_ignored",
        "np_ecn_marked_roce_packets",
        "np_cnp_sent",
        "cc_rx_ce_pkts",
        "cc_rx_cnp_pkts",
        "cc_tx_cnp_pkts",
        "rx_icrc_encapsulated",
        "roce_adp_retrans",
        "roce_adp_retrans_to",
        "roce_slow_restart",
        "roce_slow_restart_cnps",
        "roce_slow_restart_trans",
        "rdma_tx_packets",
        "rdma_tx_bytes",
        "rdma_rx_packets",
        "rdma_rx_bytes",
    ];

    //= W02 test
    #[test]
    fn each_name_that_users_know_is_shown_or_explained() {
        for name in KNOWN {
            let shown = NAMES.iter().any(|row| row.name == *name);
            let explained = NOT_SHOWN.iter().any(|(other, _)| other == name);
            assert!(shown != explained, "{name}");
        }
        for row in NAMES.iter().filter(|row| row.whose != Ours) {
            let name = row.name.trim_start_matches("rxe_");
            assert!(KNOWN.contains(&name), "{name} is nobody's");
        }
    }

    #[test]
    fn a_drop_is_counted_under_its_name() {
        let mut counters = Counters::new();
        counters.drop(DropReason::LaterFragment);
        counters.drop(DropReason::NoSuchQp { qpn: 0x11 });
        let shown: Vec<_> = counters.iter().filter(|(_, value)| *value > 0).collect();
        assert_eq!(shown, [("later_fragment", 1), ("unknown_qp", 1)]);
    }

    #[test]
    fn everything_that_is_counted_is_shown() {
        for index in 0..COUNTS {
            let shown = |row: &&Name| matches!(row.of, Transport(count) if count as usize == index);
            assert!(NAMES.iter().any(|row| shown(&row)), "Count {index}");
        }
        for index in 0..DEVICE_COUNTS {
            let shown = |row: &&Name| matches!(row.of, Device(count) if count as usize == index);
            assert!(NAMES.iter().any(|row| shown(&row)), "DeviceCount {index}");
        }
        for &name in DropReason::NAMES {
            assert!(NAMES.iter().any(|row| row.of == Drop(name)), "{name}");
        }
    }

    #[test]
    fn every_counter_is_in_a_group() {
        let counters = Counters::new();
        let groups: Vec<_> = counters.grouped().map(|(group, ..)| group).collect();
        assert_eq!(groups.len(), NAMES.len());
        let mut titles = groups.clone();
        titles.dedup();
        assert_eq!(titles, GROUPS.iter().map(|(_, title)| *title).collect::<Vec<_>>());
        let of = |name| counters.grouped().find(|(_, row, _)| row.name == name).map(|it| it.0);
        assert_eq!(of("icrc_bad"), Some("dropped before"));
        assert_eq!(of("retrans_pkts"), Some("answers received, or not"));
    }

    #[test]
    fn no_name_is_used_twice() {
        let mut names: Vec<&str> = NAMES.iter().map(|row| row.name).collect();
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]));
        assert!(NOT_SHOWN.iter().all(|(name, _)| !names.contains(name)));
        assert_eq!(Counters::new().by_name("no_such_counter"), None);
    }

    #[test]
    fn what_happened_is_shown_under_each_of_its_names() {
        let mut counters = Counters::new();
        counters.sent(100);
        counters.sent(24);
        counters.received(60);
        counters.transport(Count::SequenceNakSent);
        counters.device(DeviceCount::CqeLost, u64::MAX);
        counters.device(DeviceCount::CqeLost, 2);
        let shown: Vec<_> = counters.iter().filter(|(_, value)| *value > 0).collect();
        assert_eq!(
            shown,
            [
                ("rdma_tx_packets", 2),
                ("rdma_tx_bytes", 124),
                ("rdma_rx_packets", 1),
                ("rdma_rx_bytes", 60),
                ("sent_pkts", 2),
                ("rcvd_pkts", 1),
                ("rxe_out_of_sequence", 1),
                ("nak_sequence_sent", 1),
                ("cqe_lost", 1),
            ]
        );
    }

    #[test]
    fn a_queue_pair_counts_what_it_can_know() {
        let mut counters = QpCounters::new();
        counters.count(Count::AckTimeout);
        counters.count(Count::AckTimeout);
        counters.drop(DropReason::WrongAddress);
        counters.drop(DropReason::NotUdp { protocol: 6 });
        counters.sent(100);
        counters.sent(24);
        counters.received(60);
        let shown: Vec<_> = counters.iter().filter(|(_, value)| *value > 0).collect();
        assert_eq!(
            shown,
            [
                ("rdma_tx_packets", 2),
                ("rdma_tx_bytes", 124),
                ("rdma_rx_packets", 1),
                ("rdma_rx_bytes", 60),
                ("sent_pkts", 2),
                ("rcvd_pkts", 1),
                ("local_ack_timeout_err", 2),
                ("addr_mismatch", 1),
            ]
        );
        let absent = ["not_udp", "cqe_lost", "no_such_counter"];
        assert_eq!(absent.map(|name| counters.by_name(name)), [None; 3]);
        assert!(QP_DROPS.iter().all(|name| DropReason::NAMES.contains(name)));
    }

    #[test]
    fn each_report_of_a_queue_pair_has_a_place_of_its_own() {
        let mut counters = QpCounters::new();
        let all = NAMES.iter().filter_map(|row| match row.of {
            Transport(count) => Some(count),
            _ => None,
        });
        let all: std::collections::BTreeSet<Count> = all.collect();
        assert_eq!(all.len(), COUNTS);
        for (before, &count) in all.iter().enumerate() {
            assert_eq!(counters.value(Transport(count)), 0, "{count:?}");
            for _ in 0..=before {
                counters.count(count);
            }
        }
        for (before, &count) in all.iter().enumerate() {
            assert_eq!(counters.value(Transport(count)), before as u64 + 1, "{count:?}");
        }
    }

    #[test]
    fn what_happens_often_counts_on_and_what_is_seldom_stays_at_its_largest() {
        let mut counters = QpCounters::new();
        counters.often.fill(u64::from(u32::MAX));
        counters.seldom.transport.fill(u32::MAX);
        counters.seldom.drops.fill(u32::MAX - 1);
        counters.count(Count::AckSent);
        counters.count(Count::AckTimeout);
        for _ in 0..2 {
            counters.drop(DropReason::WrongAddress);
        }
        assert_eq!(counters.by_name("ack_sent"), Some(1 << 32));
        assert_eq!(counters.by_name("local_ack_timeout_err"), Some(u64::from(u32::MAX)));
        assert_eq!(counters.by_name("addr_mismatch"), Some(u64::from(u32::MAX)));
    }
}
