//! The rows here are those that perftest prints, column by column.

use roxe_verbs::{Gid, Limits, Psn, Qpn, RKey};

use super::*;
use crate::cli::Arguments;

fn plan(line: &str) -> Plan {
    use clap::Parser as _;
    let words = ["roxe", "perf"].into_iter().chain(line.split_whitespace());
    let arguments = Arguments::try_parse_from(words).unwrap_or_else(|error| panic!("{error}"));
    let crate::cli::Command::Perf(arguments) = arguments.command else { panic!("another command") };
    Plan::new(&arguments, &Limits::default()).unwrap_or_else(|error| panic!("{error:?}"))
}

#[test]
fn a_bandwidth_is_a_row_of_perftest() {
    let report =
        Report { size: 65536, iters: 5000, bw_peak: 1234.567, bw_avg: 999.5, msg_rate: 0.015_992 };
    let expected = " 65536      5000             1234.57            999.50 \t\t   0.015992\n";
    assert_eq!(row(&report, false), expected);
    let little = Report { bw_peak: 0.05, bw_avg: 0.01, ..report };
    let expected = " 65536      5000           0.050000            0.010000            0.015992\n";
    assert_eq!(row(&little, true), expected);
}

#[test]
fn rates_have_the_least_and_the_most() {
    let mut look = Look { time: Duration::from_millis(1012), handled: 17, ..Look::NONE };
    for (rate, target, alpha) in [(0.25, 1.5, 0.5), (0.75, 2.0, 0.25)] {
        look.rate.add(rate);
        look.target.add(target);
        look.alpha.add(alpha);
    }
    let expected = " # 1.0 s: rate 0.500 (0.250 … 0.750) Gb/s, target 1.750 (1.500 … 2.000), \
                    alpha 0.375 (0.250 … 0.500), 17 CNPs\n";
    assert_eq!(looked(&look), expected);
    let by_delay = Look { target: Look::NONE.target, alpha: Look::NONE.alpha, ..look };
    assert_eq!(looked(&by_delay), " # 1.0 s: rate 0.500 (0.250 … 0.750) Gb/s\n");
}

#[test]
fn small_rates_have_a_smaller_unit() {
    for (gigabits, expected) in [
        (0.1, "0.100 (0.100 … 0.100) Gb/s"),
        (0.0999, "99.900 (99.900 … 99.900) Mb/s"),
        (0.000_12, "0.120 (0.120 … 0.120) Mb/s"),
        (0.000_001_5, "1.500 (1.500 … 1.500) kb/s"),
    ] {
        let mut look = Look { time: Duration::from_secs(1), ..Look::NONE };
        look.rate.add(gigabits);
        assert_eq!(looked(&look), format!(" # 1.0 s: rate {expected}\n"));
    }
}

#[test]
fn latencies_are_a_row_of_perftest() {
    let each: Vec<f64> = (1..=1000).map(f64::from).collect();
    let found = Statistics::of(&each);
    assert_eq!((found.min, found.max, found.typical, found.avg), (1.0, 1000.0, 500.5, 500.5));
    assert_eq!((found.p99, found.p99_9), (990.0, 999.0));
    assert!((found.stdev - 288.675).abs() < 0.001);
    let expected = " 2       1001          1.00           1000.00      500.50   \t       \
                    500.50      \t288.67 \t\t990.00  \t\t999.00 \n";
    assert_eq!(found.row(2, 1001), expected);
    assert_eq!(Statistics::of(&[]), Statistics::default());
    assert_eq!(Statistics::of(&[3.0]).p99_9, 3.0);
}

#[test]
fn numbers_of_a_list_are_short() {
    let cases = [(1.5, "1.5"), (0.123_456_7, "0.12346"), (12.345_678_9, "12.3457"), (2.0, "2")];
    for (value, text) in cases {
        assert_eq!(general(value), text);
    }
    assert_eq!(general(1_234_567.0), "1234567");
}

#[test]
fn the_banner_is_that_of_perftest() {
    let plan = plan("write_bw -q 2 host");
    let text = banner("roxe0", &plan, 1);
    let expected = "\
---------------------------------------------------------------------------------------
                    RDMA_Write BW Test
 Dual-port       : OFF\t\tDevice         : roxe0
 Number of qps   : 2\t\tTransport type : IB
 Connection type : RC\t\tUsing SRQ      : OFF
 PCIe relax order: Unsupported
 ibv_wr* API     : OFF
 TX depth        : 128
 CQ Moderation   : 1
 Mtu             : 4096[B]
 Link type       : Ethernet
 GID index       : 1
 Max inline data : 0[B]
 rdma_cm QPs\t : OFF
 Data ex. method : Ethernet
---------------------------------------------------------------------------------------
";
    assert_eq!(text, expected);
    let title = |line: &str| {
        let text = banner("d", &self::plan(line), 0);
        text.lines().nth(1).unwrap().trim().to_owned()
    };
    assert_eq!(title("atomic_lat"), "Atomic FETCH_AND_ADD Latency Test");
    assert_eq!(title("send_bw -b -l 4"), "Send Bidirectional Post List BW Test");
}

#[test]
fn an_address_is_shown_as_perftest_shows_it() {
    let it = Destination {
        lid: 0,
        out_reads: 16,
        qpn: Qpn::new(0x11),
        psn: Psn::new(0xab_cdef),
        r_key: RKey(0x204),
        va: 0x7f00_0000_1000,
        gid: Gid::from_ip("10.10.0.2".parse().unwrap()),
        srqn: 0,
    };
    let expected = " local address: LID 0000 QPN 0x0011 PSN 0xabcdef OUT 0x10 RKey 0x000204 VAddr \
                    0x007f0000001000\n GID: 00:00:00:00:00:00:00:00:00:00:255:255:10:10:00:02\n";
    assert_eq!(address("local", &plan("read_bw"), &it), expected);
    let send = address("remote", &plan("send_lat"), &it);
    assert!(send.starts_with(" remote address: LID 0000 QPN 0x0011 PSN 0xabcdef\n"), "{send}");
}

#[test]
fn defaults_are_those_of_perftest() {
    let bandwidth = plan("send_bw");
    assert_eq!((bandwidth.size, bandwidth.tx_depth, bandwidth.rx_depth), (65536, 128, 512));
    assert_eq!(plan("send_bw -s 64").cq_mod, 100);
    assert_eq!(plan("send_bw -n 50 -s 64").tx_depth, 50);
    assert_eq!(plan("send_bw -c UD -n 700").rx_depth, 700);
    assert_eq!(plan("write_bw -l 8 -s 2").cq_mod, 8);
    assert_eq!(plan("read_bw").out_reads, 128);
    assert_eq!(plan("read_bw -o 4").out_reads, 4);
    assert_eq!((plan("atomic_bw").size, plan("write_lat").size), (8, 2));
    assert!(!plan("write_bw -n 20001").peak && plan("write_bw").peak);
    let sizes: Vec<u32> = plan("write_bw -a").sizes().collect();
    assert_eq!((sizes.len(), sizes[0], sizes[22]), (23, 2, 8 << 20));
    assert_eq!(plan("write_bw -s 3").sizes().collect::<Vec<_>>(), [3]);
}
