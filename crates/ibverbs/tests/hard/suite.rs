//! What the Python suite of rdma-core wants more than one process for, and what it wants huge pages
//! for. The rest of it runs elsewhere.

use std::env;
use std::path::Path;
use std::process::Command;

use crate::huge_pages::HugePages;
use crate::namespace::{Namespace, is_root};
use crate::with_library;

/// Both sides of these are processes, with one adapter and one address.
#[test]
fn the_suite_connects_two_processes_at_one_adapter() {
    passes("host:127.0.0.1", CONNECTIONS, CONNECTIONS.len());
}

/// Where no huge pages can be had, they cannot run.
#[test]
fn the_suite_uses_huge_pages() {
    let pages = HugePages::reserve();
    let at_least = if pages.are_there() { HUGE.len() } else { 0 };
    passes("host:127.0.0.1", HUGE, at_least);
}

/// Runs these tests; `ROXE_PYVERBS` names the folder of the suite, where `cargo xtask` found it.
fn passes(device: &str, tests: &[&str], at_least: usize) {
    let Some(folder) = env::var_os("ROXE_PYVERBS").filter(|_| is_root()) else {
        eprintln!("skipped: `cargo xtask test tests` brings the suite and runs it as root");
        return;
    };
    let folder = Path::new(&folder);
    // It looks up the interface where the kernel shows those of adapters.
    let shown = "mount -t tmpfs none /sys/class \
                 && mkdir -p /sys/class/infiniband/roxe0/device/net/lo \
                 && exec \"$@\"";
    let mut command: Command = with_library("/usr/bin/unshare", device);
    // The system's own Python: the one that pyverbs was compiled for.
    command
        .args(["--mount", "--", "sh", "-c", shown, "sh", "/usr/bin/python3"])
        .arg(folder.join("run_tests.py"))
        .args("--dev roxe0 --port 1 --gid 0 -v".split_whitespace())
        .args(tests)
        // It finds its modules beside the script's folder.
        .current_dir(folder.parent().unwrap_or(folder));
    let output = Namespace::new().run(|| command.output()).expect("apt-get install util-linux");
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    let skipped = text.matches("... skipped ").count();
    let end = text.lines().rev().find(|line| !line.is_empty()).unwrap_or_default();
    let ran = text.contains(&format!("\nRan {} tests in ", tests.len()));
    assert!(ran && end.starts_with("OK") && tests.len() - skipped >= at_least, "{text}");
}

const CONNECTIONS: &[&str] = &[
    "tests.test_rdmacm.CMTestCase.test_rdmacm_async_ex_leave_multicast_traffic",
    "tests.test_rdmacm.CMTestCase.test_rdmacm_async_ex_multicast_traffic",
    "tests.test_rdmacm.CMTestCase.test_rdmacm_async_multicast_traffic",
    "tests.test_rdmacm.CMTestCase.test_rdmacm_async_read",
    "tests.test_rdmacm.CMTestCase.test_rdmacm_async_reject_traffic",
    "tests.test_rdmacm.CMTestCase.test_rdmacm_async_traffic",
    "tests.test_rdmacm.CMTestCase.test_rdmacm_async_traffic_external_qp",
    "tests.test_rdmacm.CMTestCase.test_rdmacm_async_udp_traffic",
    "tests.test_rdmacm.CMTestCase.test_rdmacm_async_write",
    "tests.test_rdmacm.CMTestCase.test_rdmacm_sync_traffic",
];

const HUGE: &[&str] = &[
    "tests.test_odp.OdpTestCase.test_odp_rc_huge_traffic",
    "tests.test_odp.OdpTestCase.test_odp_rc_huge_user_addr_traffic",
    "tests.test_parent_domain.ParentDomainTrafficTest.test_huge_page_traffic",
];
