//! Every capture in `pcaps/` is explained as the text beside it says, and judged as expected.
//!
//! Where an explanation was changed on purpose, one command renews the texts:
//!
//! ```text
//! ROXE_UPDATE=1 cargo nextest run --test captures
//! ```

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The captures, in order.
fn captures() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("pcaps");
    let entries = fs::read_dir(folder).expect("the folder is there");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "pcap"));
    paths.sort();
    paths
}

/// Runs the program on a capture; returns its exit code and what it printed.
fn roxe(arguments: &[&str], capture: &Path) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_roxe"))
        .args(arguments)
        .arg(capture.file_name().unwrap())
        .current_dir(capture.parent().unwrap())
        .output()
        .expect("the program runs");
    (output.status.code(), String::from_utf8(output.stdout).expect("the output is text"))
}

/// The first line that differs, with the three before it.
fn difference(expected: &str, found: &str) -> Option<String> {
    let (expected_lines, found_lines): (Vec<_>, Vec<_>) =
        (expected.lines().collect(), found.lines().collect());
    let same = expected_lines.iter().zip(&found_lines).take_while(|(a, b)| a == b).count();
    if same == expected_lines.len() && same == found_lines.len() {
        return None;
    }
    let mut text = String::new();
    for line in &expected_lines[same.saturating_sub(3)..same] {
        text += &format!("    {line}\n");
    }
    let end = "(the text ends here)";
    text += &format!("  - {}\n", expected_lines.get(same).unwrap_or(&end));
    text += &format!("  + {}\n", found_lines.get(same).unwrap_or(&end));
    Some(text)
}

#[test]
fn explanations_are_those_beside_the_captures() {
    let update = std::env::var_os("ROXE_UPDATE").is_some();
    let mut wrong = String::new();
    let captures = captures();
    assert!(captures.len() >= 111, "only {} captures", captures.len());
    for capture in captures {
        let (code, found) = roxe(&["explain", "--color", "never"], &capture);
        assert_eq!(code, Some(0), "{}", capture.display());
        let text = capture.with_extension("txt");
        if update {
            fs::write(&text, &found).expect("the text can be written");
            continue;
        }
        let expected = fs::read_to_string(&text).unwrap_or_default();
        if let Some(difference) = difference(&expected, &found) {
            wrong += &format!("{}:\n{difference}", text.display());
        }
    }
    assert!(wrong.is_empty(), "expected (-) and found (+):\n{wrong}");
}

/// The frames in which `roxe check` finds something, by capture. All others are clean.
#[rustfmt::skip]
const FINDINGS: &[(&str, &[u64])] = &[
    ("corrupt_req_send.pcap", &[1, 8, 9, 16, 18, 19, 26, 31]),
    ("made_broken.pcap",      &[2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17]),
    ("made_vectors.pcap",     &[40, 41, 42, 43, 46]),
];

#[test]
fn only_what_is_wrong_is_found() {
    for capture in captures() {
        let name = capture.file_name().unwrap().to_str().unwrap();
        let (code, output) = roxe(&["check"], &capture);
        let frame_of = |line: &str| -> Option<u64> {
            line.strip_prefix(name)?.strip_prefix(": frame ")?.split(':').next()?.parse().ok()
        };
        let found: Vec<u64> = output.lines().filter_map(frame_of).collect();
        let expected = FINDINGS.iter().find(|(known, _)| *known == name).map_or(&[][..], |it| it.1);
        assert_eq!(found, expected, "{output}");
        assert_eq!(code, Some(i32::from(!expected.is_empty())), "{name}");
    }
}

/// No capture without a row in the folder's table, no explanation without a capture.
#[test]
fn each_capture_has_its_row_and_each_text_its_capture() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("pcaps");
    let readme = fs::read_to_string(folder.join("README.md")).expect("README.md is there");
    for capture in captures() {
        let name = capture.file_name().unwrap().to_str().unwrap();
        assert!(readme.contains(&format!("| {name} |")), "{name} has no row in README.md");
    }
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "txt") {
            assert!(path.with_extension("pcap").exists(), "{} has no capture", path.display());
        }
    }
}
