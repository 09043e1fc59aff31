//! `roxe devinfo` from outside: what it prints, and its exit statuses.

use std::process::{Command, Output};

fn run(devices: &str, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_roxe"))
        .arg("devinfo")
        .args(arguments)
        .env("ROXE_DEVICES", devices)
        .output()
        .expect("roxe runs")
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("text")
}

fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("text")
}

#[test]
fn an_adapter_is_shown_as_ibv_devinfo_shows_it() {
    let output = run("a=memory:x;b=memory:y", &[]);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    let lines: Vec<String> = out(&output)
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    let expected = [
        "hca_id: a",
        "transport: RoCE v2, in software",
        "port: 1",
        "state: PORT_ACTIVE (4)",
        "mode: memory: port 0, path MTU 4096",
        "active_mtu: 4096 (5)",
        "link_layer: Ethernet",
        "icrc: verified",
        "GID[ 0]: ::ffff:192.0.2.1, RoCE v2",
        "",
        "hca_id: b",
    ];
    assert_eq!(lines[..expected.len()], expected);
    let verbose = out(&run("a=memory:x", &["-v"]));
    assert!(verbose.contains("max_sge:"), "{verbose}");
}

#[test]
fn programs_read_it_as_json() {
    let address = {
        let [_, b, c, d] = (std::process::id() * 16).to_be_bytes();
        format!("127.{}.{c}.{d}", b & 0x7f)
    };
    let output = run(&format!("u=udp:{address},verify=off;bad=auto:nosuch0"), &["--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    let objects: Vec<serde_json::Value> =
        out(&output).lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let [udp, bad] = &objects[..] else { panic!("{objects:?}") };
    assert_eq!(udp["hca_id"], "u");
    assert_eq!((&udp["port"], &udp["netdev"]), (&1.into(), &"lo".into()));
    assert_eq!((&udp["state"], &udp["state_code"]), (&"PORT_ACTIVE".into(), &4.into()));
    assert_eq!((&udp["link_layer"], &udp["active_mtu"]), (&"Ethernet".into(), &4096.into()));
    assert!(udp["mode"].as_str().unwrap().contains("UDP socket on lo"), "{udp}");
    assert_eq!(udp["verifies_icrc"], false);
    assert_eq!(udp["gids"][0], format!("::ffff:{address}"));
    assert_eq!(udp["gid_types"][0], "RoCE v2");
    assert_eq!(udp["max_qp_rd_atom"], 128);
    assert_eq!(bad["device"], "auto:nosuch0");
    assert!(bad["error"].as_str().unwrap().contains("nosuch0"), "{bad}");
}

#[test]
fn what_is_missing_is_said_and_told_by_the_exit_status() {
    let output = run("", &["-d", "auto:nosuch0"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(err(&output).contains("nosuch0"), "{}", err(&output));
    let output = run("a=auto:nosuch0", &[]);
    assert_eq!(output.status.code(), Some(3));
    assert!(out(&output).contains("cannot be opened:"), "{}", out(&output));
    for wrong in ["a=udp:x", "eth1"] {
        let output = run(wrong, &[]);
        assert_eq!(output.status.code(), Some(2), "{}", err(&output));
        assert!(err(&output).starts_with("roxe: device `"), "{}", err(&output));
    }
    assert_eq!(run("a=memory:x", &["-d", "a"]).status.code(), Some(0));
}

/// Interfaces are there without being named; nobody touches them to show that.
#[test]
fn interfaces_are_shown_and_left_alone() {
    let output = run("", &["--json"]);
    let text = out(&output);
    for line in text.lines() {
        let object: serde_json::Value = serde_json::from_str(line).expect("JSON");
        let name = object["hca_id"].as_str().unwrap().strip_prefix("roxe_").expect("a prefix");
        assert_eq!(object["device"], format!("auto:{name}"));
        assert_eq!((&object["port"], &object["netdev"]), (&1.into(), &name.into()));
        assert!(["PORT_ACTIVE", "PORT_DOWN"].contains(&object["state"].as_str().unwrap()));
        assert!(object.get("mode").is_none() && !object["gids"].as_array().unwrap().is_empty());
    }
    let people = run("", &[]);
    assert_eq!(people.status.code(), output.status.code());
    let people = out(&people);
    for words in ["hca_id:", "state:"] {
        assert_eq!(people.matches(words).count(), text.lines().count(), "{people}");
    }
    let verbose = out(&run("", &["-v"]));
    assert_eq!(verbose.matches("max_qp:").count(), text.lines().count(), "{verbose}");
}

#[test]
fn a_file_names_adapters_and_what_is_wrong_in_it_is_told_by_line_and_key() {
    let folder = std::env::temp_dir().join(format!("roxe-devinfo-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let file = folder.join("roxe.toml");
    let path = file.to_str().expect("text");
    std::fs::write(&file, "[one]\nport = \"memory:x\"\n\n[two]\nport = \"memory:x\"\n").unwrap();
    let names = |output: &Output| -> Vec<String> {
        assert_eq!(output.status.code(), Some(0), "{}", err(output));
        let is_name = |line: &&str| line.starts_with("hca_id:");
        let lines = out(output);
        lines
            .lines()
            .filter(is_name)
            .filter_map(|it| Some(it.split_once('\t')?.1.to_owned()))
            .collect()
    };
    let by_variable = |devices: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_roxe"));
        let command = command.arg("devinfo").env("ROXE_DEVICES", devices);
        command.env("ROXE_CONFIG", &file).output().expect("roxe runs")
    };
    // What the command line asks for, then ROXE_DEVICES, then the file that a variable names.
    assert_eq!(names(&run("a=memory:x", &["--config", path])), ["one", "two"]);
    assert_eq!(names(&run("a=memory:x", &["--config", path, "-d", "two"])), ["two"]);
    assert_eq!(names(&by_variable("a=memory:x")), ["a"]);
    assert_eq!(names(&by_variable("")), ["one", "two"]);

    std::fs::write(&file, "[one]\nport = \"udp:127.0.0.1\"\ngso = \"fast\"\n").unwrap();
    let output = run("", &["--config", path]);
    assert_eq!(output.status.code(), Some(2));
    let expected =
        format!("roxe: {path}:3: one.gso: gso=fast: not one of auto, on, off (--config)\n");
    assert_eq!(err(&output), expected);
    // What has no end, or is no file, is not read.
    for file in ["/dev/zero", "/"] {
        let output = run("", &["--config", file]);
        let text = err(&output);
        assert_eq!((output.status.code(), text.lines().count()), (Some(2), 1), "{text}");
        let expected = format!("roxe: {file}: ");
        assert!(text.starts_with(&expected) && text.ends_with("(--config)\n"), "{text}");
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_roxe"));
    let command = command.arg("devinfo").env_remove("ROXE_DEVICES").env("ROXE_CONFIG", "/");
    let output = command.output().expect("roxe runs");
    let text = err(&output);
    let is_told = text.starts_with("roxe: /: a directory") && text.ends_with("(ROXE_CONFIG)\n");
    assert!(output.status.code() == Some(2) && is_told, "{text}");
    std::fs::remove_dir_all(&folder).expect("it is there");
}

/// Who looks at an adapter does not begin a recording, which would take the place of an older one.
#[test]
fn a_recording_that_is_there_stays() {
    let file = std::env::temp_dir().join(format!("roxe-devinfo-{}.pcapng", std::process::id()));
    std::fs::write(&file, "recorded").expect("a file");
    let device = format!("memory:x,capture={}", file.display());
    for output in [run(&format!("a={device}"), &[]), run("", &["-d", &device])] {
        assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    }
    let left = std::fs::read_to_string(&file).expect("it is there");
    std::fs::remove_file(&file).expect("it is ours");
    assert_eq!(left, "recorded");
}
