//! `roxe sim lab`: what it prints, writes and exits with.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

const TEXT: &str = r#"
says = "one flow, alone"
source = "nobody"
[setup]
topology = "star"
hosts = 2
workload = "incast"
senders = 1
milliseconds = 0.5
[[run]]
name = "a/b"
[[expect]]
run = "a/b"
figure = "utilisation"
at_least = 0.9
"#;

fn lab(folder: &Path, arguments: &[&str]) -> Output {
    let mut roxe = Command::new(env!("CARGO_BIN_EXE_roxe"));
    roxe.current_dir(folder).args(["sim", "lab"]).args(arguments).output().unwrap()
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn labs_that_come_along_are_the_files_of_their_folder() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let listed = out(&lab(root, &["--list"]));
    let mut names: Vec<&str> =
        listed.lines().filter_map(|line| line.split_whitespace().next()).collect();
    names.sort_unstable();
    let files = fs::read_dir(root.join("tests/labs")).unwrap().map(|file| file.unwrap().path());
    let mut files: Vec<String> = files
        .filter(|file| file.extension().is_some_and(|end| end == "toml"))
        .map(|file| file.file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    files.sort();
    assert_eq!(names, files);
}

#[test]
fn a_file_is_done_told_written_and_drawn() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("lab");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("alone.toml"), TEXT).unwrap();
    let told = lab(&folder, &["alone.toml", "--csv", "tables", "--plot", "pictures"]);
    assert_eq!(told.status.code(), Some(0), "{told:?}");
    assert!(out(&told).contains("a/b  utilisation"), "{}", out(&told));
    let noted = String::from_utf8(told.stderr.clone()).unwrap();
    assert!(noted.contains("alone: written: tables/alone*.csv: 2 tables\n"), "{noted}");
    assert!(noted.contains("alone: written: pictures/alone*.{svg,png}: 1 picture\n"), "{noted}");
    assert!(noted.contains(" s of wall time, "), "{noted}");
    let table = fs::read_to_string(folder.join("tables/alone-a_b.csv")).unwrap();
    let columns = "time_us,queue_kb,pauses,paused_ports,jain,flow0_gbps\n10.000,";
    assert!(table.starts_with(columns), "{table}");
    assert_eq!(table.lines().count(), 51);
    let figures = fs::read_to_string(folder.join("tables/alone-figures.csv")).unwrap();
    assert!(figures.contains("\na/b,dropped,0.000000\n"), "{figures}");
    let picture = fs::read_to_string(folder.join("pictures/alone-a_b.svg")).unwrap();
    assert!(picture.starts_with("<svg") && picture.contains("alone-a/b"));
    let picture = fs::read(folder.join("pictures/alone-a_b.png")).unwrap();
    assert!(picture.starts_with(b"\x89PNG"));

    let json = out(&lab(&folder, &["alone.toml", "--json"]));
    let objects: Vec<serde_json::Value> =
        json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let (last, figures) = objects.split_last().unwrap();
    assert_eq!((&last["lab"], &last["verdict"]), (&"alone".into(), &"ok".into()));
    assert!(figures.iter().any(|it| it["figure"] == "dropped" && it["value"] == 0.0));

    fs::write(folder.join("alone.toml"), TEXT.replace("0.9\n", "1.1\n")).unwrap();
    let failed = lab(&folder, &["alone.toml"]);
    assert_eq!(failed.status.code(), Some(1));
    assert!(out(&failed).contains("FAILED"), "{}", out(&failed));
}

#[test]
fn flows_that_were_done_are_told_one_by_one_and_by_length() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("lab-flows");
    fs::create_dir_all(&folder).unwrap();
    let random = "hosts = 4\nworkload = \"random\"\nsizes = \"hadoop\"\nload = 0.2\n";
    let text = TEXT.replace("hosts = 2\nworkload = \"incast\"\nsenders = 1\n", random);
    let text = text.replace("\"utilisation\"\nat_least = 0.9", "\"finished\"\nat_least = 0.5");
    fs::write(folder.join("some.toml"), text).unwrap();
    let told = lab(&folder, &["some.toml", "-v", "--json", "--csv", ".", "--plot", "."]);
    assert_eq!(told.status.code(), Some(0), "{told:?}");
    let objects: Vec<serde_json::Value> =
        out(&told).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let has = |names: [&str; 2]| {
        objects.iter().filter(|it| names.iter().all(|name| it.get(name).is_some())).count()
    };
    let table = fs::read_to_string(folder.join("some-a_b-flows.csv")).unwrap();
    assert!(table.starts_with("repeat,from,to,bytes,start_us,took_us,alone_us,slowdown\n0,"));
    assert_eq!(
        (has(["took_us", "from"]), has(["queue_kb", "jain"])),
        (table.lines().count() - 1, 50)
    );
    let bins = fs::read_to_string(folder.join("some-slowdown.csv")).unwrap();
    assert!(bins.starts_with("run,least_bytes,most_bytes,flows,p50,p95,p99\na/b,"), "{bins}");
    assert_eq!(has(["most_bytes", "slowdown_p99"]), bins.lines().count() - 1);
    assert_eq!(has(["events_per_second", "hosts"]), 1);
    assert!(fs::read(folder.join("some-slowdown.png")).is_ok_and(|png| !png.is_empty()));
}

#[test]
fn mistakes_are_usage_errors() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("lab-mistakes");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("wrong.toml"), TEXT.replace("senders", "sanders")).unwrap();
    let long = fs::File::create(folder.join("long.toml")).unwrap();
    long.set_len((1 << 24) + 1).unwrap();
    let endless = folder.join("endless.toml");
    let _ = fs::remove_file(&endless);
    std::os::unix::fs::symlink("/dev/zero", &endless).unwrap();
    fs::write(folder.join("table.csv"), TEXT).unwrap();
    for (name, says) in [
        ("endless.toml", "endless.toml: no lab: no regular file"),
        ("long.toml", "long.toml: no lab: it has more than 16777216 bytes"),
        ("table.csv", "no lab \"table.csv\""),
        ("nobody", "no lab \"nobody\""),
        ("none.toml", "none.toml: cannot be read"),
        ("wrong.toml", "unknown field `sanders`"),
    ] {
        let output = lab(&folder, &[name]);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{told}");
        assert!(told.contains(says), "{told}");
    }
}

#[test]
fn a_lab_that_expects_nothing_shows_all_figures() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("lab-smallest");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("least.toml"), "says = \"two to one\"\n[setup]\nmilliseconds = 0.1\n")
        .unwrap();
    let told = lab(&folder, &["least.toml"]);
    assert_eq!(told.status.code(), Some(0), "{told:?}");
    let told = out(&told);
    assert!(told.contains("utilisation") && told.contains("queue_max_kb"), "{told}");
    assert!(!told.contains("from") && !told.contains("verdict"), "{told}");
}

#[test]
fn what_cannot_be_done_is_told_before_anything_runs() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("lab-before");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("right.toml"), TEXT).unwrap();
    fs::write(folder.join("wrong.toml"), TEXT.replace("senders = 1", "senders = 2")).unwrap();
    for (arguments, says) in [
        (&["right.toml", "--csv", "/dev/full"][..], "/dev/full is no folder"),
        (&["right.toml", "--plot", "right.toml"], "right.toml is no folder"),
        (&["right.toml", "--csv", "right.toml/below"], "right.toml/below"),
        (&["right.toml", "wrong.toml"], "wrong: run a/b: senders = 2"),
    ] {
        let output = lab(&folder, arguments);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{told}");
        assert!(told.contains(says) && output.stdout.is_empty(), "{told}");
        assert!(!told.contains("events in"), "nothing ran: {told}");
    }
}
