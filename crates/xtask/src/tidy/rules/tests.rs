//! Each rule, with a source that breaks it and one that does not.

use super::*;

/// The places and rules that a source breaks, as `line rule`.
fn broken(path: &str, text: &str) -> Vec<String> {
    let findings = check(&Source::new(path.into(), text.into()));
    findings.iter().map(|finding| format!("{} {}", finding.line, finding.rule)).collect()
}

const NONE: [&str; 0] = [];

#[test]
fn safe_crates_forbid_unsafe_code() {
    assert_eq!(broken("crates/wire/src/lib.rs", "mod psn;\n"), ["1 unsafe"]);
    assert_eq!(broken("crates/wire/src/lib.rs", "// #![forbid(unsafe_code)]\n"), ["1 unsafe"]);
    assert_eq!(broken("crates/wire/src/lib.rs", "#![forbid(unsafe_code)]\n"), NONE);
    assert_eq!(broken("crates/wire/src/psn.rs", "struct Psn;\n"), NONE);
    assert_eq!(broken("crates/net/src/lib.rs", "mod port;\n"), NONE);
}

#[test]
fn nothing_ambient_below_verbs() {
    let slips = [
        ("let now = Instant::now();", "1 clock"),
        ("use std::time::SystemTime;", "1 clock"),
        ("std::time::Instant::now()", "1 clock"),
        ("thread::spawn(f);", "1 thread"),
        ("use std::thread;", "1 thread"),
        ("UdpSocket::bind(address)", "1 socket"),
        ("let map: HashMap<u8, u8>;", "1 order"),
        ("use std::collections::HashSet;", "1 order"),
        ("let mut rng = rand::rng();", "1 chance"),
        ("println!();", "1 print"),
        ("eprint!(\"x\");", "1 print"),
    ];
    for (text, rule) in slips {
        assert_eq!(broken("crates/device/src/memory.rs", text), [rule], "{text}");
        assert_eq!(broken("crates/verbs/src/driver.rs", text), NONE, "{text}");
        assert_eq!(broken("crates/device/tests/memory.rs", text), NONE, "{text}");
        assert_eq!(broken("crates/device/src/memory/tests.rs", text), NONE, "{text}");
    }
}

#[test]
fn what_only_looks_ambient() {
    let fine = [
        "/// Unlike a HashMap, the order is fixed.",
        "fn now(&self) -> Instant { self.now }",
        "let text = \"println!\"; // not Instant::now",
        "struct FxHashMap;",
        "use core::time::Duration;",
        "sprint!()",
    ];
    for text in fine {
        assert_eq!(broken("crates/device/src/memory.rs", text), NONE, "{text}");
    }
}

#[test]
fn tests_inside_a_source_are_free_and_what_follows_is_not() {
    let text = "#[cfg(test)]\nmod tests {\n    use std::thread;\n}\nuse std::thread;\n";
    assert_eq!(broken("crates/device/src/memory.rs", text), ["5 thread"]);
}

#[test]
fn sim_takes_only_the_fault_rules_of_net() {
    let path = "crates/sim/src/world.rs";
    assert_eq!(broken(path, "use roxe_net::fault::Subject;\n// roxe_net::port"), NONE);
    assert_eq!(broken(path, "use roxe_net::capture_file::CaptureWriter;"), ["1 edge"]);
    assert_eq!(broken(path, "use roxe_net::{fault, port};"), ["1 edge"]);
    assert_eq!(broken("crates/sim/tests/replay.rs", "use roxe_net::port;"), NONE);
}

#[test]
fn net_speaks_to_the_system_but_not_to_its_clock() {
    let path = "crates/net/src/udp.rs";
    assert_eq!(broken(path, "let socket: UdpSocket; thread::spawn(f);"), NONE);
    assert_eq!(broken(path, "Instant::now()"), ["1 clock"]);
    assert_eq!(broken(path, "HashMap::new()"), ["1 order"]);
}

#[test]
fn modules_have_telling_names() {
    assert_eq!(broken("src/main.rs", "mod measure;\nmod utils;\n"), ["2 name"]);
    assert_eq!(broken("src/main.rs", "pub(crate) mod common {\n}\n"), ["1 name"]);
    assert_eq!(broken("src/main.rs", "// mod utils\nmod common_clock;\n"), NONE);
}

#[test]
fn nothing_is_left_over() {
    assert_eq!(broken("src/main.rs", "\ndbg!(x);"), ["2 leftover"]);
    assert_eq!(broken("src/main.rs", "todo!()"), ["1 leftover"]);
    assert_eq!(broken("tests/abi.rs", "unimplemented!()"), ["1 leftover"]);
    assert_eq!(broken("src/main.rs", "/// Not a `todo!()`.\nlet s = \"dbg!\";"), NONE);
}

#[test]
fn marks_are_no_way_to_remember() {
    assert_eq!(broken("src/main.rs", "// TODO later"), ["1 leftover"]);
    assert_eq!(broken("src/main.rs", "let x = 1; // FIXME: wrong"), ["1 leftover"]);
    assert_eq!(broken("src/main.rs", "/* a\n * TODO */"), ["2 leftover"]);
    assert_eq!(broken("src/main.rs", "/// As TODO(me) says"), ["1 leftover"]);
    assert_eq!(broken("src/main.rs", "/// No line says TODO or FIXME here."), NONE);
    assert_eq!(broken("src/main.rs", "let mark = \"TODO\";"), NONE);
}

#[test]
fn lines_end_at_column_100() {
    let wide = "é".repeat(100);
    assert_eq!(broken("src/main.rs", &format!("// {wide}\n")), ["1 width"]);
    assert_eq!(broken("src/main.rs", &format!("{wide}\r\n{wide}")), NONE);
    let table = format!("#[rustfmt::skip]\nconst T: &[&str] = &[\n    \"{wide}\",\n];\n");
    assert_eq!(broken("src/main.rs", &table), NONE);
    assert_eq!(broken("src/main.rs", &format!("{table}// {wide}\n")), ["5 width"]);
}

#[test]
fn paths_of_one_machine_stay_there() {
    let lines = |text: &str| {
        no_machine_paths("README.md", text).iter().map(|it| it.line).collect::<Vec<_>>()
    };
    for folder in MACHINE_FOLDERS {
        assert_eq!(lines(&format!("a\nsee /{folder}/x\n")), [2], "{folder}");
        assert_eq!(lines(&format!("open(\"/{folder}/x\")")), [1], "{folder}");
        assert_eq!(lines(&format!("crates/{folder}/x, ~/{folder}/x, $HOME/{folder}/x")), [0; 0]);
    }
}
