//! The rules for Rust sources, and the one for all text.

use crate::tidy::source::{Source, occurrences};
use crate::tidy::{Finding, crate_of, names};

/// Crates that never leave safe Rust.
const SAFE: &[&str] = &["wire", "transport", "device", "cm", "trace", "sim"];

/// Crates in which nothing may come from outside but what is passed in.
const SEALED: &[&str] = &["wire", "transport", "device", "cm", "trace", "sim", "net"];

/// What a sealed crate may not reach for: the rule, the words that betray it, whether `net`, which
/// speaks to the operating system, may all the same, and what to do instead.
struct Ambient(&'static str, &'static [&'static str], bool, &'static str);

#[rustfmt::skip]
const AMBIENT: &[Ambient] = &[
    Ambient("clock",  &["Instant::now", "SystemTime", "std::time::Instant"], false, "take `now` as an argument"),
    Ambient("thread", &["thread::", "std::thread", "thread_local!"],         true,  "let the caller drive"),
    Ambient("socket", &["UdpSocket", "TcpStream", "TcpListener"],            true,  "take frames as arguments"),
    Ambient("order",  &["HashMap", "HashSet", "RandomState"],                false, "its order is random; use a BTreeMap or a Vec"),
    Ambient("chance", &["thread_rng", "rand::rng", "rand::random", "OsRng",
                        "from_entropy", "from_os_rng", "getrandom"],         false, "take a seed as an argument"),
    Ambient("print",  &["println!", "print!", "eprintln!", "eprint!"],       false, "return it, count it or trace it"),
];

/// What is written in a hurry and must not stay.
const LEFTOVERS: &[&str] = &["dbg!", "todo!", "unimplemented!"];

/// Marks in comments that say so themselves.
const MARKS: &[&str] = &["TODO", "FIXME"];

const MAX_COLUMNS: usize = 100;

/// Folders of the machine that somebody works at.
const MACHINE_FOLDERS: &[&str] = &["home", "root", "Users"];

/// All rules for a Rust source.
pub(super) fn check(source: &Source) -> Vec<Finding> {
    [
        forbids_unsafe(source),
        is_sealed(source),
        takes_only_rules_of_net(source),
        no_drawers(source),
        no_leftovers(source),
        no_marks(source),
        no_long_lines(source),
    ]
    .concat()
}

fn forbids_unsafe(source: &Source) -> Vec<Finding> {
    let is_root = source.path.ends_with("/src/lib.rs");
    let must = crate_of(&source.path).is_some_and(|name| SAFE.contains(&name)) && is_root;
    if !must || source.code.contains("#![forbid(unsafe_code)]") {
        return Vec::new();
    }
    vec![finding(source, 0, "unsafe", "this crate must say #![forbid(unsafe_code)]")]
}

/// Below `verbs`, time, chance and the outside world come in as arguments. Tests are free.
fn is_sealed(source: &Source) -> Vec<Finding> {
    let name = crate_of(&source.path).filter(|name| SEALED.contains(name));
    let is_test = source.path.ends_with("/tests.rs") || source.path.contains("/tests/");
    let Some(name) = name.filter(|_| !is_test) else {
        return Vec::new();
    };
    let tests = source.items_with(&["#[cfg(test)]", "#[cfg(all(test"]);
    let mut findings = Vec::new();
    for Ambient(rule, words, free_in_net, instead) in AMBIENT {
        if *free_in_net && name == "net" {
            continue;
        }
        for word in *words {
            let found = source.find(word).filter(|at| !tests.iter().any(|test| test.contains(at)));
            findings
                .extend(found.map(|at| finding(source, at, rule, &format!("{word}: {instead}"))));
        }
    }
    // `std::time::Instant::now` is one slip, not two.
    findings.sort();
    findings.dedup_by_key(|finding| (finding.line, finding.rule));
    findings
}

/// What `sim` links against knows no port: of `net` it may name the pure fault rules.
fn takes_only_rules_of_net(source: &Source) -> Vec<Finding> {
    if !source.path.starts_with("crates/sim/src/") {
        return Vec::new();
    }
    let named = occurrences(&source.code, "roxe_net");
    let other = named.filter(|at| !source.code[*at..].starts_with("roxe_net::fault"));
    let what = "sim may name roxe_net::fault only";
    other.map(|at| finding(source, at, "edge", what)).collect()
}

fn no_drawers(source: &Source) -> Vec<Finding> {
    let declared = source.find("mod").filter_map(|at| {
        let name = source.code[at..].split([' ', ';', '{', '\n']).nth(1)?;
        names::is_drawer(name).then(|| names::finding(&source.path, source.line_at(at), name))
    });
    declared.collect()
}

fn no_leftovers(source: &Source) -> Vec<Finding> {
    let found = LEFTOVERS.iter().flat_map(|word| source.find(word).map(move |at| (at, word)));
    found.map(|(at, word)| finding(source, at, "leftover", &format!("{word} must go"))).collect()
}

/// A mark begins its comment, or is followed by `:` or `(`; in a sentence it is a word.
fn no_marks(source: &Source) -> Vec<Finding> {
    let found = MARKS.iter().flat_map(|mark| {
        let is_mark = move |at: &usize| {
            let line = source.comments[..*at].rsplit('\n').next().unwrap_or_default();
            let begins = line.chars().all(|c| matches!(c, ' ' | '/' | '*' | '!'));
            begins || source.comments[at + mark.len()..].starts_with([':', '('])
        };
        occurrences(&source.comments, mark).filter(is_mark).map(move |at| (at, mark))
    });
    let what = |mark| format!("{mark}: do it, or say what is missing in a sentence");
    found.map(|(at, mark)| finding(source, at, "leftover", &what(mark))).collect()
}

fn no_long_lines(source: &Source) -> Vec<Finding> {
    let tables = source.items_with(&["#[rustfmt::skip]"]);
    let mut findings = Vec::new();
    let mut start = 0;
    for line in source.text.split_inclusive('\n') {
        let columns = line.trim_end_matches(['\n', '\r']).chars().count();
        if columns > MAX_COLUMNS && !tables.iter().any(|table| table.contains(&start)) {
            let what = format!("{columns} columns, more than {MAX_COLUMNS}");
            findings.push(finding(source, start, "width", &what));
        }
        start += line.len();
    }
    findings
}

/// Nobody else has our folders. For all text, not only Rust.
pub(super) fn no_machine_paths(path: &str, text: &str) -> Vec<Finding> {
    let begins_path = |line: &str, at: usize| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || "._-~*)}]>".contains(c))
    };
    let folder_in = |line: &str| {
        MACHINE_FOLDERS
            .iter()
            .map(|folder| format!("/{folder}/"))
            .find(|folder| line.match_indices(folder.as_str()).any(|(at, _)| begins_path(line, at)))
    };
    let lines = text.lines().enumerate();
    let found = lines.filter_map(|(number, line)| Some((number + 1, folder_in(line)?)));
    found
        .map(|(line, folder)| {
            let what = format!("{folder} is a folder of one machine");
            Finding { file: path.to_owned(), line, rule: "path", what }
        })
        .collect()
}

fn finding(source: &Source, at: usize, rule: &'static str, what: &str) -> Finding {
    let (file, line) = (source.path.clone(), source.line_at(at));
    Finding { file, line, rule, what: what.to_owned() }
}

#[cfg(test)]
mod tests;
