//! A few seconds of what `cargo xtask soak` does for half an hour.

#![cfg(feature = "af_xdp")]

#[path = "../../net/tests/namespace/mod.rs"]
mod namespace;

use std::process::Command;

/// The example is built beside the tests.
#[test]
fn counters_equal_the_recordings_and_data_is_right_over_a_bad_network() {
    if !namespace::is_root() {
        return;
    }
    let test = std::env::current_exe().expect("it runs");
    let built = test.ancestors().nth(2).expect("tests lie in a folder of the build's");
    let mut soak = Command::new("setpriv");
    soak.args(["--pdeathsig", "KILL", "--"]).arg(built.join("examples/soak")).arg("3");
    let output = soak.output().expect("it starts");
    let [said, complained] =
        [output.stdout, output.stderr].map(|it| String::from_utf8(it).unwrap());
    assert!(output.status.success(), "{said}{complained}");
    let last = said.lines().last().unwrap_or_default();
    assert_eq!(last, "all data verified, memory flat, counters equal the recordings");
    // Nothing is equal because nothing happened.
    let counted = |name: &str| {
        let lines = said.lines().filter(|line| line.contains(&format!(" {name} ")));
        let count =
            |line: &str| line.split_whitespace().nth(2).and_then(|it| it.parse::<u64>().ok());
        lines.filter_map(count).sum::<u64>()
    };
    for name in ["retrans_pkts", "nak_sequence_sent", "duplicate_request", "icrc_bad"] {
        assert!(counted(name) > 0, "{name}: {said}");
    }
}
