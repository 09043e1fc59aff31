//! Programs as the distribution has them, on our libibverbs.so.1: one host each side, in network
//! namespaces joined by a cable. A reduced matrix is a test like others; `cargo xtask programs`
//! runs all of it and writes `docs/programs.md`.

mod c;
mod hosts;
#[path = "../../../net/tests/namespace/mod.rs"]
mod namespace;
mod page;
mod suite;

use std::env;

use hosts::Hosts;
use namespace::is_root;

/// What carries the packets.
const PORTS: [&str; 2] = ["xdp", "udp"];

/// A program with the arguments of both sides; the client gets the server's address behind them.
#[derive(Clone, Copy)]
struct Case(&'static str, &'static str);

/// Of these every one runs in `cargo xtask test`.
#[rustfmt::skip]
const REDUCED: &[Case] = &[
    Case("ibv_rc_pingpong",  "-g 0 -n 200 -c"),
    Case("ibv_rc_pingpong",  "-g 0 -n 200 -e -N"),
    Case("ibv_uc_pingpong",  "-g 0 -n 200"),
    Case("ibv_ud_pingpong",  "-g 0 -n 200 -e"),
    Case("ibv_srq_pingpong", "-g 0 -n 200"),
    Case("ib_send_bw",       "-x 0 -n 200 -e"),
    Case("ib_write_bw",      "-x 0 -n 200 -q 8"),
    Case("ib_read_lat",      "-x 0 -n 200"),
    Case("ib_atomic_bw",     "-x 0 -n 200"),
    Case("ib_send_lat",      "-x 0 -n 200 -c UD"),
];

/// `ibv_*_pingpong`, and how each of them is asked.
const PINGPONGS: [&str; 4] =
    ["ibv_rc_pingpong", "ibv_uc_pingpong", "ibv_ud_pingpong", "ibv_srq_pingpong"];
const PINGPONG_WAYS: &[&str] = &["", "-e", "-c", "-g 1"];
#[rustfmt::skip]
const RC_PINGPONG_WAYS: &[&str] =
    &["-N", "-t", "-o", "-o -P", "-m 256", "-m 512", "-m 1024", "-m 2048", "-m 4096"];

/// perftest. Without a limit on what is sent, unreliable messages are lost where a host is too slow
/// for them, and the other side waits for ever: those are short.
#[rustfmt::skip]
const PERFTEST: &[(&str, &[&str])] = &[
    ("ib_send_bw",    &["", "-e", "-b", "-a -n 100", "-q 8", "--use-srq", "-c UC -s 2048", "-c UD", "-I 64 -s 64", "-l 4", "-D 5", "-N"]),
    ("ib_send_lat",   &["", "-e", "-a -n 100", "--use-srq", "-c UC", "-c UD", "-I 64 -s 64", "-D 5"]),
    ("ib_write_bw",   &["", "-b", "-a -n 100", "-q 8", "--mr_per_qp -q 8", "-c UC", "-I 64 -s 64", "-l 4", "-D 5", "--report_gbits"]),
    ("ib_write_lat",  &["", "-a -n 100", "-c UC", "-I 64 -s 64", "-D 5"]),
    ("ib_read_bw",    &["", "-e", "-b", "-a -n 100", "-q 8", "-D 5"]),
    ("ib_read_lat",   &["", "-e", "-a -n 100", "-D 5"]),
    ("ib_atomic_bw",  &["", "-e", "-b", "-q 8", "-A CMP_AND_SWAP", "-D 5"]),
    ("ib_atomic_lat", &["", "-e", "-A CMP_AND_SWAP", "-D 5"]),
];

#[test]
fn programs_of_the_distribution_run() {
    if !is_root() {
        return;
    }
    for port in PORTS {
        let hosts = Hosts::new(port, "");
        for Case(program, arguments) in REDUCED {
            let ran = hosts.pair(program, arguments);
            assert!(ran.is_ok(), "{port}: {program} {arguments}: {}", ran.unwrap_err());
        }
    }
}

#[test]
fn programs_find_the_adapters_that_are_named_and_no_others() {
    if !is_root() {
        return;
    }
    let hosts = Hosts::new("udp", "");
    let listed = |devices: &str| {
        let output = hosts.alone("ibv_devices", "", devices);
        let output = String::from_utf8(output.stdout).expect("text");
        let first = |line: &str| line.split_whitespace().next().map(str::to_owned);
        output.lines().skip(2).filter_map(first).collect::<Vec<_>>()
    };
    assert_eq!(listed(""), [""; 0]);
    assert_eq!(listed("udp:192.0.2.1;b=udp:127.0.0.3"), ["roxe0", "b"]);
    let told = hosts.alone("ibv_devinfo", "-v", "udp:192.0.2.1");
    let told = String::from_utf8(told.stdout).expect("text");
    for line in ["state:\t\t\tPORT_ACTIVE (4)", "GID[  0]:\t\t::ffff:192.0.2.1, RoCE v2"] {
        assert!(told.contains(line), "{line} is missing in\n{told}");
    }
}

#[test]
fn an_adapter_that_another_process_has_is_refused_in_a_sentence() {
    if !is_root() {
        return;
    }
    let hosts = Hosts::new("xdp", "");
    let _server = hosts.server("ibv_rc_pingpong", "-g 0");
    let second = hosts.alone("ibv_devinfo", "", "xdp:va");
    let complaint = String::from_utf8(second.stderr).expect("text");
    assert!(!second.status.success());
    assert!(complaint.contains("roxe0: an XDP program"), "{complaint}");
    assert!(complaint.contains("one process has an interface at a time"), "{complaint}");
}

#[test]
fn a_bad_network_is_no_trouble() {
    if !is_root() {
        return;
    }
    let hosts = Hosts::new("xdp", ",fault=drop 1%; dup 1%; reorder 1% by 3");
    let ran = hosts.pair("ibv_rc_pingpong", "-g 0 -n 500 -c");
    assert!(ran.is_ok(), "{}", ran.unwrap_err());
}

/// `ROXE_PYVERBS` names the folder of the suite, where `cargo xtask` found it.
#[test]
fn the_suite_of_rdma_core_passes() {
    let Some(folder) = env::var_os("ROXE_PYVERBS").filter(|_| is_root()) else {
        eprintln!("skipped: `cargo xtask test tests` brings the suite and runs it as root");
        return;
    };
    let results = suite::run(&Hosts::new("xdp", ""), folder.as_ref());
    assert!(results.wrong.is_empty(), "{}", results.wrong.join("\n"));
    assert!(results.passed > 100, "{} passed", results.passed);
}

/// All of it. `ROXE_PAGE` names the page to write.
#[test]
#[ignore = "half an hour: `cargo xtask programs`"]
fn all_programs_in_every_way() {
    assert!(is_root(), "root is needed for network namespaces and AF_XDP");
    let mut page = page::Page::default();
    let plain = PORTS.map(|port| Hosts::new(port, ""));
    // A socket has one address: the second of an interface is another's first.
    let over_ipv6 = [Hosts::new("xdp", ""), Hosts::new("udp over IPv6", "")];
    let lossy = Hosts::new("xdp", ",fault=drop 1%");
    let ways = PINGPONGS.iter().flat_map(|&program| {
        let more = if program == "ibv_rc_pingpong" { RC_PINGPONG_WAYS } else { &[] };
        let ways = PINGPONG_WAYS.iter().chain(more);
        ways.map(move |way| {
            let gid = if way.contains("-g") { "" } else { "-g 0 " };
            (program, *way, format!("{gid}-n 500 {way}"))
        })
    });
    let perftest = PERFTEST.iter().flat_map(|&(program, ways)| {
        ways.iter().map(move |way| {
            let count = if way.contains("-n") || way.contains("-D") { "" } else { "-n 500 " };
            (program, *way, format!("-x 0 {count}{way}"))
        })
    });
    for (program, way, arguments) in ways.chain(perftest) {
        let results: Vec<_> = match way {
            "-g 1" => vec![
                over_ipv6[0].pair(program, &arguments),
                over_ipv6[1].pair(program, &arguments.replace("-g 1", "-g 0")),
            ],
            _ => plain.iter().map(|hosts| hosts.pair(program, &arguments)).collect(),
        };
        // Where nothing is repaired, a lost message is waited for.
        let is_reliable =
            !(way.contains("-c U") || program.contains("_uc_") || program.contains("_ud_"));
        let bad = is_reliable.then(|| lossy.pair(program, &arguments));
        page.add(program, way, &results, bad);
        page.write();
    }
    if let Some(folder) = env::var_os("ROXE_PYVERBS") {
        let results = PORTS.map(|port| suite::run(&Hosts::new(port, ""), folder.as_ref()));
        page.add_suite(&PORTS, &results);
    }
    page.is_whole = true;
    page.write();
    assert_eq!(page.wrong(), 0, "{} went wrong", page.wrong());
}
