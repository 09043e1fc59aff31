//! `cargo xtask trace`: from each rule to the code that keeps it and what shows it.
//!
//! The ledger `tests/conformance/requirements.toml` has a row for each rule. Code cites rules by a
//! comment `//= ID, ID` above the function or line that keeps them and `//= ID, ID test` above a
//! test, scripts by their `# RULE` line. Gaps are findings: a citation without a row; a kept rule
//! without function, test or script; a planned one that needs nothing which is still to come; one
//! that is not kept, without a reason.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};

use crate::stop::Stop;
use crate::{say, workspace};

/// What is still to come, and may bring rules along.
const AREAS: [&str; 3] = ["congestion", "netdev", "af_xdp"];

pub(crate) const LEDGER: &str = "tests/conformance/requirements.toml";

/// A rule, and where it stands.
#[derive(Debug, Default)]
pub(crate) struct Rule {
    /// shall, should or may.
    pub(crate) level: String,
    pub(crate) says: String,
    /// The part that keeps it, or the area that is to bring it.
    area: String,
    status: String,
    reason: String,
    functions: Vec<String>,
    tests: Vec<String>,
    scripts: Vec<String>,
}

/// Prints the table, or for one rule every place that names it.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let wanted = match arguments {
        [] => None,
        [id] if !id.starts_with('-') => Some(id.as_str()),
        _ => return Err(Stop::Usage("usage: cargo xtask trace [ID]".into()).into()),
    };
    let (rules, findings) = judge()?;
    match wanted {
        Some(id) => show_one(id, &rules)?,
        None => show_all(&rules),
    }
    findings.iter().for_each(|finding| say!("{finding}"));
    if findings.is_empty() { Ok(()) } else { Err(Stop::Findings.into()) }
}

/// Every rule with the places that name it, and what is wrong.
pub(crate) fn judge() -> Result<(BTreeMap<String, Rule>, Vec<String>)> {
    let read = |path: &str| std::fs::read_to_string(workspace::root().join(path));
    let mut rules = ledger()?;
    let mut findings = Vec::new();
    for path in workspace::files()? {
        let Ok(text) = read(&path) else { continue };
        for (line, id, kind) in citations(Path::new(&path), &text) {
            let place = format!("{path}:{line}");
            let Some(rule) = rules.get_mut(id) else {
                findings.push(format!("{place}: cites {id}, which {LEDGER} does not have"));
                continue;
            };
            if kind == Kind::Test && !is_above_a_test(&text, line) {
                findings.push(format!("{place}: cites {id} as a test, and no test follows"));
                continue;
            }
            match kind {
                Kind::Function => rule.functions.push(place),
                Kind::Test => rule.tests.push(place),
                Kind::Script => rule.scripts.push(place),
            }
        }
    }
    findings.extend(rules.iter().flat_map(|(id, rule)| gaps(id, rule)));
    Ok((rules, findings))
}

/// Every rule by its id, without the places that name it.
pub(crate) fn ledger() -> Result<BTreeMap<String, Rule>> {
    let text = std::fs::read_to_string(workspace::root().join(LEDGER));
    Ok(read_ledger(&text.with_context(|| format!("cannot read {LEDGER}"))?))
}

/// What is missing of a rule.
fn gaps(id: &str, rule: &Rule) -> Vec<String> {
    let Rule { area, status, reason, functions, tests, scripts, .. } = rule;
    match status.as_str() {
        "kept" => [("function", functions), ("test", tests), ("script", scripts)]
            .into_iter()
            .filter(|(_, places)| places.is_empty())
            .map(|(what, _)| format!("{id}: kept, and no {what} cites it"))
            .collect(),
        "planned" if AREAS.contains(&area.as_str()) => Vec::new(),
        "planned" => {
            let areas = AREAS.join(", ");
            vec![format!("{id}: planned, and {area:?} is none of what is to come: {areas}")]
        }
        "not-kept" if !reason.is_empty() => Vec::new(),
        "not-kept" => vec![format!("{id}: not kept, and no reason is given")],
        other => vec![format!("{id}: no status is called {other:?}")],
    }
}

fn show_one(id: &str, rules: &BTreeMap<String, Rule>) -> Result<()> {
    let rule = rules.get(id);
    let rule = rule.ok_or_else(|| Stop::Usage(format!("no rule {id} in {LEDGER}")))?;
    say!("{id} ({}): {}", rule.status, rule.says);
    if !rule.reason.is_empty() {
        say!("  reason   {}", rule.reason);
    }
    for (what, places) in
        [("function", &rule.functions), ("test", &rule.tests), ("script", &rule.scripts)]
    {
        for place in places {
            say!("  {what:<8} {place}");
        }
    }
    Ok(())
}

fn show_all(rules: &BTreeMap<String, Rule>) {
    say!("{:<14} {:<8} {:>9} {:>5} {:>7}  says", "rule", "status", "functions", "tests", "scripts");
    for (id, rule) in rules {
        let Rule { says, status, functions, tests, scripts, .. } = rule;
        let says: String = says.chars().take(70).collect();
        let (functions, tests, scripts) = (functions.len(), tests.len(), scripts.len());
        say!("{id:<14} {status:<8} {functions:>9} {tests:>5} {scripts:>7}  {says}");
    }
    let of = |status| rules.values().filter(|rule| rule.status == status).count();
    say!(
        "{} rules: {} kept, {} planned, {} not kept",
        rules.len(),
        of("kept"),
        of("planned"),
        of("not-kept")
    );
}

/// The rows by id. The file is TOML of one shape: tables of strings.
fn read_ledger(text: &str) -> BTreeMap<String, Rule> {
    let mut rules = BTreeMap::new();
    for row in text.split("\n[\"").skip(1) {
        let Some((id, body)) = row.split_once("\"]\n") else { continue };
        let value = |key| value(body, key);
        rules.insert(
            id.to_owned(),
            Rule {
                level: value("level").unwrap_or_default(),
                says: value("says").unwrap_or_default(),
                area: value("where").unwrap_or_default(),
                status: value("status").unwrap_or_default(),
                reason: value("reason").unwrap_or_default(),
                ..Rule::default()
            },
        );
    }
    rules
}

/// The text that a key has in a table's body: `key = "text"`, or between three quotes.
pub(crate) fn value(body: &str, key: &str) -> Option<String> {
    let is_key = |line: &str| line.split_once('=').is_some_and(|(name, _)| name.trim() == key);
    let line = body.lines().position(is_key)?;
    let rest: Vec<&str> = body.lines().skip(line).collect();
    let rest = rest.join("\n");
    let rest = rest.split_once('=')?.1.trim_start();
    let value = match rest.strip_prefix("\"\"\"") {
        Some(long) => long.split_once("\"\"\"")?.0.replace("\\\n", ""),
        None => rest.strip_prefix('"')?.split_once('"')?.0.to_owned(),
    };
    Some(value.trim().to_owned())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Function,
    Test,
    Script,
}

/// Whether nothing but comments and attributes stand between a line, counted from 1, and a test.
fn is_above_a_test(text: &str, line: usize) -> bool {
    let behind = text.lines().skip(line).map(str::trim_start);
    let mut between = behind.take_while(|line| line.starts_with("//") || line.starts_with("#["));
    between.any(|line| line == "#[test]")
}

/// Every rule that a file names: line, id, as what.
fn citations<'a>(path: &Path, text: &'a str) -> Vec<(usize, &'a str, Kind)> {
    let mut found = Vec::new();
    let extension = path.extension().and_then(|extension| extension.to_str());
    for (index, line) in text.lines().enumerate() {
        let line = line.trim_start();
        match extension {
            Some("rs") => {
                let Some(cited) = line.strip_prefix("//= ") else { continue };
                let (ids, kind) = match cited.trim().strip_suffix(" test") {
                    Some(ids) => (ids, Kind::Test),
                    None => (cited.trim(), Kind::Function),
                };
                let ids = ids.split(", ").map(|id| id.trim_start_matches("IBA "));
                found.extend(ids.map(|id| (index + 1, id, kind)));
            }
            Some("roce") => {
                let Some(rules) = line.strip_prefix("# RULE ") else { continue };
                let Some((ids, _)) = rules.split_once(": ") else { continue };
                found.extend(ids.split(", ").map(|id| (index + 1, id.trim(), Kind::Script)));
            }
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_read_whatever_their_form() {
        let rules = read_ledger(
            "# a comment\n\n[\"C9-88\"]\nlevel  = \"shall\"\nsays   = \"One = two.\"\n\
             where  = \"responder\"\nstatus = \"kept\"\n\n[\"BC-1\"]\nsays   = \"\"\"\nLong \\\n\
             text.\"\"\"\nwhere = \"cm\"\nstatus = \"planned\"\n\n[\"X\"]\nstatus = \"planned\"\n\n\
             [\"Y\"]\nstatus = \"not-kept\"\nreason = \"\"\"\nNobody \\\nhas it.\"\"\"\n",
        );
        assert_eq!(rules["C9-88"].says, "One = two.");
        assert_eq!((rules["C9-88"].status.as_str(), rules["C9-88"].reason.as_str()), ("kept", ""));
        assert_eq!(
            (rules["BC-1"].says.as_str(), rules["BC-1"].area.as_str()),
            ("Long text.", "cm")
        );
        assert_eq!(rules["X"].area, "", "planned, but by whom?");
        assert_eq!(rules["Y"].reason, "Nobody has it.");
    }

    #[test]
    fn a_test_is_cited_above_a_test() {
        let text = "//= R1 test\n/// Why.\n    #[test]\nfn a() {}\n//= R2 test\nfn b() {}\n";
        assert!(is_above_a_test(text, 1));
        assert!(!is_above_a_test(text, 5));
        assert!(!is_above_a_test("//= R3 test", 1));
    }

    #[test]
    fn every_gap_is_a_finding() {
        let here = || vec!["a.rs:1".to_owned()];
        let rule = |status: &str| Rule { status: status.into(), ..Rule::default() };
        let kept = || Rule { functions: here(), tests: here(), scripts: here(), ..rule("kept") };
        let missing = |rule: &Rule| gaps("R1", rule);
        assert_eq!(missing(&kept()), [""; 0]);
        assert_eq!(missing(&rule("kept")).len(), 3);
        for (what, rule) in [
            ("function", Rule { functions: vec![], ..kept() }),
            ("test", Rule { tests: vec![], ..kept() }),
            ("script", Rule { scripts: vec![], ..kept() }),
        ] {
            assert_eq!(missing(&rule), [format!("R1: kept, and no {what} cites it")]);
        }
        for (area, count) in [("netdev", 0), ("af_xdp", 0), ("cm", 1), ("responder", 1), ("", 1)] {
            assert_eq!(missing(&Rule { area: area.into(), ..rule("planned") }).len(), count);
        }
        assert_eq!(missing(&rule("not-kept")), ["R1: not kept, and no reason is given"]);
        assert_eq!(missing(&Rule { reason: "None.".into(), ..rule("not-kept") }), [""; 0]);
        assert_eq!(missing(&rule("soon")), ["R1: no status is called \"soon\""]);
    }

    #[test]
    fn the_ledger_has_no_gaps() {
        let (rules, findings) = judge().unwrap();
        assert_eq!(findings, [""; 0]);
        assert!(rules.len() > 200, "{} rules", rules.len());
    }

    #[test]
    fn code_and_scripts_cite_in_their_own_ways() {
        let rust = "    //= IBA C9-88\nfn a() {}\n    //= R17, IBA C9-9 test\n// = no\n";
        let found = citations(Path::new("a.rs"), rust);
        let expected =
            [(1, "C9-88", Kind::Function), (3, "R17", Kind::Test), (3, "C9-9", Kind::Test)];
        assert_eq!(found, expected);
        let script = "# RULE R17, C9-88: says so: clearly.\n# RULES none\n";
        let found = citations(Path::new("a.roce"), script);
        assert_eq!(found, [(1, "R17", Kind::Script), (1, "C9-88", Kind::Script)]);
        assert!(citations(Path::new("a.txt"), script).is_empty());
    }
}
