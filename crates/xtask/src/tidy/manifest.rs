//! Dependencies of the lower floors say why they are there: a comment stands above each.
//!
//! Crates of the workspace need none, the floors say it; neither do dependencies of tests.

use crate::tidy::Finding;

/// The folders below `crates` whose manifests are read: floors 0 to 2.
const LOWER_FLOORS: &[&str] = &["wire", "transport", "trace", "device", "cm", "net"];

/// Findings in a file, which may be no manifest at all.
pub(super) fn check(path: &str, text: &str) -> Vec<Finding> {
    let folder = path.strip_prefix("crates/").and_then(|rest| rest.strip_suffix("/Cargo.toml"));
    if !folder.is_some_and(|name| LOWER_FLOORS.contains(&name)) {
        return Vec::new();
    }
    let mut findings = Vec::new();
    let mut in_dependencies = false;
    let mut open_brackets = 0;
    let mut previous = "";
    for (number, line) in text.lines().map(str::trim).enumerate() {
        let uncommented = !previous.starts_with('#');
        previous = line;
        let dependency = if open_brackets > 0 {
            None // The rest of an entry that began above.
        } else if let Some(table) = line.strip_prefix('[') {
            let table = table.trim_end_matches(']');
            in_dependencies = is_dependencies(table);
            // `[dependencies.NAME]`
            table.rsplit_once('.').filter(|(table, _)| is_dependencies(table)).map(|(_, name)| name)
        } else {
            // `NAME = …` and `NAME.workspace = true`
            line.split(['=', '.', ' ']).next().filter(|name| in_dependencies && !name.is_empty())
        };
        open_brackets += depth(line);
        let wrong = dependency
            .filter(|name| uncommented && !name.starts_with('#') && !name.starts_with("roxe-"));
        if let Some(name) = wrong {
            findings.push(Finding {
                file: path.to_owned(),
                line: number + 1,
                rule: "why",
                what: format!("say in a comment above why {name} is needed"),
            });
        }
    }
    findings
}

/// `dependencies`, `build-dependencies`, `target.….dependencies`
fn is_dependencies(table: &str) -> bool {
    table.ends_with("dependencies") && !table.ends_with("dev-dependencies")
}

/// By how many brackets a line opens more than it closes. A comment opens none.
fn depth(line: &str) -> i32 {
    let code = line.split('#').next().unwrap_or_default();
    code.chars().fold(0, |depth, c| match c {
        '[' | '{' => depth + 1,
        ']' | '}' => depth - 1,
        _ => depth,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<usize> {
        check("crates/wire/Cargo.toml", text).iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn a_comment_above_is_enough() {
        let fine = "[package]\nname = \"x\"\n\n[dependencies]\n# The ICRC.\ncrc32fast = \"1\"\n\
                    roxe-wire.workspace = true\n\n[dev-dependencies]\nproptest = \"1\"\n";
        assert_eq!(lines(fine), [0; 0]);
    }

    #[test]
    fn each_kind_of_entry_wants_one() {
        assert_eq!(lines("[dependencies]\ncrc32fast = \"1\"\n"), [2]);
        assert_eq!(lines("[dependencies]\n# a\na = \"1\"\nb = { version = \"1\" }"), [4]);
        assert_eq!(lines("[build-dependencies]\ncc.workspace = true\n"), [2]);
        assert_eq!(lines("[target.'cfg(unix)'.dependencies]\nrustix = \"1\"\n"), [2]);
        assert_eq!(lines("[dependencies.rustix]\nversion = \"1\"\n"), [1]);
        assert_eq!(lines("# a\n[dependencies.rustix]\nversion = \"1\"\n"), [0; 0]);
    }

    #[test]
    fn an_entry_may_be_long() {
        let long =
            "[dependencies]\n# a\na = { version = \"1\", features = [\n\"x\",\n\"y\",\n] }\n";
        assert_eq!(lines(long), [0; 0]);
    }

    #[test]
    fn upper_floors_are_free() {
        let text = "[dependencies]\nclap = \"4\"\n";
        assert_eq!(check("crates/verbs/Cargo.toml", text), []);
        assert_eq!(check("Cargo.toml", text), []);
    }
}
