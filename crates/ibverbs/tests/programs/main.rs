//! Programs as the distribution has them, on our libibverbs.so.1 and librdmacm.so.1: one host each
//! side, in network namespaces joined by a cable. This is a part of the matrix that
//! `cargo xtask programs` runs.

#[path = "../../../verbs/examples/interop/agent.rs"]
#[allow(dead_code, reason = "only the matrix has a guest")]
mod agent;
mod c;
#[path = "../../examples/programs/cell.rs"]
#[allow(dead_code, reason = "only the matrix has a guest")]
mod cell;
#[path = "../../examples/programs/end.rs"]
#[allow(dead_code, reason = "only the matrix has a guest")]
mod end;
#[path = "../../../verbs/examples/interop/guest.rs"]
#[allow(dead_code, reason = "only the matrix has a guest")]
mod guest;
#[path = "../../../net/tests/namespace/mod.rs"]
mod namespace;
#[path = "../ours/mod.rs"]
mod ours;
#[path = "../../examples/programs/rows.rs"]
mod rows;
#[path = "../../examples/programs/scratch.rs"]
mod scratch;
mod suite;

use std::error::Error;
use std::process::Command;
use std::time::Duration;
use std::{env, fs, thread};

use cell::{COLUMNS, Column, Peer, Verdict};
use end::{listens_here, program_on};
use namespace::{Cable, is_root};
use rows::{Meet, Row};
use scratch::Scratch;

type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

/// Of these every one runs in `cargo xtask test`.
const REDUCED: &[&str] = &[
    "ibv_devices",
    "ibv_rc_pingpong -c -s 65536",
    "ibv_rc_pingpong -N -e",
    "ibv_uc_pingpong",
    "ibv_ud_pingpong -e",
    "ibv_ud_pingpong -6",
    "ibv_srq_pingpong",
    "ib_send_bw -e",
    "ib_send_lat -c UD",
    "ib_send_lat -R",
    "ib_write_bw -q 8",
    "ib_write_bw -R",
    "ib_read_lat",
    "ib_atomic_bw",
    "ib_atomic_lat -R",
    "rping -v -C 100",
    "rping -q -V",
    "rping -P -V",
    "ucmatose -c 5",
    "ucmatose -m",
    "udaddy",
    "mckey",
    "rdma_server",
    "cmtime -c 100",
    "rcopy",
    "rstream -S 4096",
    "rstream -S 300000 -T v",
    "rstream -T a",
    "riostream -S 300000 -T v",
    "udpong",
];

/// And of these where packets are lost.
const LOSSY: &[&str] =
    &["ibv_rc_pingpong -c -s 65536", "ib_send_bw -q 8", "rping -v -C 100", "rstream -T a"];

fn rows(names: &[&str]) -> Vec<Row> {
    let rows: Vec<Row> =
        Row::all().into_iter().filter(|row| names.contains(&row.name().as_str())).collect();
    assert_eq!(rows.len(), names.len(), "a row of {names:?} is none");
    rows
}

/// Each of the rows in each column that is so; says how many ran.
fn all_run(names: &[&str], is_it: fn(&Column) -> bool) -> usize {
    let mut ran = 0;
    for column in COLUMNS.iter().filter(|column| column.peer == Peer::Roxe && is_it(column)) {
        for row in rows(names) {
            match column.between_hosts(&row) {
                Verdict::Right { goes, before } => {
                    ran += 1;
                    if goes > 1 {
                        eprintln!("{}: {}: {goes} goes: {before}", column.name, row.name());
                    }
                }
                Verdict::Absent(_) => {}
                Verdict::Wrong(why) => panic!("{}: {}: {why}", column.name, row.name()),
            }
        }
    }
    ran
}

#[test]
fn programs_of_the_distribution_run() {
    if is_root() {
        // Groups are not for sockets, rsockets of datagrams for nobody.
        let ran = all_run(REDUCED, |column| !column.loses);
        assert_eq!(ran, 2 * REDUCED.len() - 3);
    }
}

#[test]
fn a_file_is_copied_byte_by_byte() {
    if !is_root() {
        return;
    }
    let [source, copy] = [Scratch::new(), Scratch::new()];
    // A number every four bytes, so that no two parts are the same.
    let bytes: Vec<u8> = (0..1_000_003_u32).flat_map(u32::to_le_bytes).collect();
    fs::write(&source.0, &bytes).expect("the folder for such files can be written to");
    let cable = Cable::new(4500);
    let mut server = cable.a.run(|| program_on("rcopy", "xdp:va").spawn()).expect("rdmacm-utils");
    let line = format!("rcopy {} 192.0.2.1:{}", source.0, copy.0);
    let pid = server.id();
    let listens = || cable.a.run(|| listens_here(Meet::Cm, pid));
    while !listens() && server.try_wait().is_ok_and(|ended| ended.is_none()) {
        thread::sleep(Duration::from_millis(10));
    }
    let output = cable.b.run(|| program_on(&line, "udp:192.0.2.2").output());
    let copied = output.expect("rdmacm-utils").status.success();
    let _ = server.kill();
    let _ = server.wait();
    assert!(copied && fs::read(&copy.0).is_ok_and(|copy| copy == bytes));
}

#[test]
fn a_bad_network_is_no_trouble() {
    if is_root() {
        let ran = all_run(LOSSY, |column| column.loses);
        assert_eq!(ran, 2 * LOSSY.len());
    }
}

#[test]
fn a_row_that_cannot_be_says_why() {
    let absent = |column: usize| {
        let rows = Row::all();
        let absent = rows.iter().filter(|row| COLUMNS[column].lacks(row).is_some());
        absent.map(|row| row.program).collect::<Vec<_>>()
    };
    assert_eq!(absent(0), [""; 0]);
    assert_eq!(absent(1), ["mckey"]);
    assert!(absent(2).contains(&"ibv_uc_pingpong") && !absent(2).contains(&"ibv_rc_pingpong"));
}

#[test]
fn programs_find_the_adapters_that_are_named_and_no_others() {
    if !is_root() {
        return;
    }
    let cable = Cable::new(4500);
    let alone = |line: &str, devices: &str| {
        let output = cable.a.run(|| program_on(line, devices).output());
        String::from_utf8(output.expect("apt-get install ibverbs-utils").stdout).expect("text")
    };
    let listed = |devices: &str| {
        let first = |line: &str| line.split_whitespace().next().map(str::to_owned);
        alone("ibv_devices", devices).lines().skip(2).filter_map(first).collect::<Vec<_>>()
    };
    assert_eq!(listed(""), [""; 0]);
    assert_eq!(listed("udp:192.0.2.1;b=udp:127.0.0.3"), ["roxe0", "b"]);
    let told = alone("ibv_devinfo -v", "udp:192.0.2.1");
    for line in ["state:\t\t\tPORT_ACTIVE (4)", "GID[  0]:\t\t::ffff:192.0.2.1, RoCE v2"] {
        assert!(told.contains(line), "{line} is missing in\n{told}");
    }
}

#[test]
fn an_adapter_that_another_process_has_is_refused_in_a_sentence() {
    if !is_root() {
        return;
    }
    let cable = Cable::new(4500);
    cable.a.run(|| {
        let _first = roxe_verbs::open("xdp:va").expect("nobody has it");
        let second = program_on("ibv_devinfo", "xdp:va").output().expect("ibverbs-utils is there");
        let complaint = String::from_utf8(second.stderr).expect("text");
        assert!(!second.status.success());
        assert!(complaint.contains("roxe0: an XDP program"), "{complaint}");
        assert!(complaint.contains("one process has an interface at a time"), "{complaint}");
    });
}

#[test]
fn a_suite_that_fails_at_its_end_or_skips_all_has_not_passed() {
    let read = |command: &str| {
        let output = Command::new("sh").args(["-c", command]).output().expect("a shell");
        suite::read(&["a", "b"], &output).wrong
    };
    let none: [&str; 0] = [];
    assert_eq!(read("echo 'a ... ok\nb ... skipped x\nRan 2 tests in 1s'"), none);
    let crashed = read("echo 'a ... ok\nb ... ok\nRan 2 tests in 1s'; kill -SEGV $$");
    assert!(crashed[0].contains("signal: 11"), "{crashed:?}");
    let skipped = read("echo 'a ... skipped x\nb ... skipped x\nRan 2 tests in 1s'");
    assert_eq!(skipped, ["no test passed"]);
}

/// `ROXE_PYVERBS` names the folder of the suite, where `cargo xtask` found it.
#[test]
fn the_suite_of_rdma_core_passes() {
    let Some(folder) = env::var_os("ROXE_PYVERBS").filter(|_| is_root()) else {
        eprintln!("skipped: `cargo xtask test tests` brings the suite and runs it as root");
        return;
    };
    let results = suite::run("xdp:va", folder.as_ref());
    assert!(results.wrong.is_empty(), "{}", results.wrong.join("\n"));
    let suite::Results { passed, skipped, .. } = results;
    assert!(passed > 100, "{passed} passed, skipped: {skipped:?}");
}
