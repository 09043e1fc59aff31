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
    let table = fs::read_to_string(folder.join("tables/alone-a_b.csv")).unwrap();
    assert!(table.starts_with("time_us,queue_kb,pauses,flow0_gbps\n10.000,"), "{table}");
    assert_eq!(table.lines().count(), 51);
    let picture = fs::read_to_string(folder.join("pictures/alone-a_b.svg")).unwrap();
    assert!(picture.starts_with("<svg") && picture.contains("alone-a_b"));

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
fn mistakes_are_usage_errors() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("lab-mistakes");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("wrong.toml"), TEXT.replace("senders", "sanders")).unwrap();
    for (name, says) in [
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
