//! `cargo xtask interop scripts`: the conformance scripts against `rdma_rxe`.
//!
//! `tests/conformance/differences-rxe.toml` lists the scripts that do not come true there, why, and
//! who is right. A listed script must fail, any other must pass or be skipped.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::{PAGE, SERIES, image, need_root, programs};
use crate::child::{self, Heard, Listener};
use crate::stop::Stop;
use crate::test::Tally;
use crate::trace::value;
use crate::{say, tell, tools, workspace};

const FOLDER: &str = "tests/conformance/";
/// Where recordings of what rxe does wrong stand.
const CAPTURES: &str = "docs/rxe";
const LIST: &str = "tests/conformance/differences-rxe.toml";

/// The command's part behind `scripts`.
pub(super) fn run(arguments: &[String]) -> Result<()> {
    let (series, words) = read(arguments)?;
    need_root()?;
    tools::ensure_present(&[tools::BUILD, super::NEEDS].concat())?;
    if !child::show(programs())? {
        return Err(Stop::Findings.into());
    }
    let scripts = choose(&words)?;
    let list = Differences::read()?;
    let mut findings = Vec::new();
    let mut kernels = Vec::new();
    for series in &series {
        let mut program = program(series, &list, &scripts)?;
        program.stdout(Stdio::piped());
        let mut child = program.spawn().context("cannot run the scripts")?;
        let output = child.stdout.take().context("a pipe that was asked for")?;
        let lines = BufReader::new(output).lines().map_while(Result::ok);
        let run = Run::of(lines.inspect(|line| say!("{line}")));
        let status = child.wait().context("cannot wait for the scripts")?;
        ensure!(status.success(), "the scripts of Linux {series} did not come to their end");
        findings.extend(run.judge(series, &list, &scripts));
        tell!("{}", run.sentence());
        kernels.push(run);
    }
    findings.iter().for_each(|finding| say!("{finding}"));
    // A part of the scripts is no page.
    if words.is_empty() && series == SERIES && findings.is_empty() {
        let path = workspace::root().join(PAGE);
        let page = fs::read_to_string(&path).with_context(|| format!("cannot read {PAGE}"))?;
        let (before, _) = split(&page);
        let part = render(&kernels, &list, &|script| rules_of(script));
        fs::write(path, format!("{}\n\n{part}", before.trim_end()))?;
        keep_captures(&list)?;
        tell!("written: {PAGE}, {CAPTURES}");
    }
    if findings.is_empty() { Ok(()) } else { Err(Stop::Findings.into()) }
}

/// The recordings of what rxe does wrong, of the first kernel that does it.
fn keep_captures(list: &Differences) -> Result<()> {
    let folder = workspace::root().join(CAPTURES);
    // What rxe does right by now has none.
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {CAPTURES}"))?;
    for difference in list.list.iter().filter(|it| it.right == RIGHT[0].0) {
        let series = difference.kernels.split(' ').next().filter(|it| !it.is_empty());
        let from = workspace::target().join("interop/runs").join(series.unwrap_or(SERIES[0]));
        let name = capture_of(&difference.script);
        let to = folder.join(&name);
        if series.is_none_or(|series| series == SERIES[0]) || !to.exists() {
            let recording = from.join("captures").join(&name);
            fs::copy(&recording, to).with_context(|| format!("no recording {name}"))?;
        }
    }
    Ok(())
}

/// The name of the recording of a script.
fn capture_of(script: &str) -> String {
    script.replace('/', "-").replace(".roce", ".pcapng")
}

/// The rules that a script is about.
fn rules_of(script: &str) -> Vec<String> {
    let text = fs::read_to_string(workspace::root().join(FOLDER).join(script)).unwrap_or_default();
    let rules = text.strip_prefix("# RULE ").and_then(|text| text.split_once(": "));
    rules.map_or_else(Vec::new, |(rules, _)| rules.split(", ").map(str::to_owned).collect())
}

/// Some scripts with the first kernel, for `cargo xtask test`.
pub(super) fn reduced(listener: &Listener) -> Result<(Tally, String)> {
    let series = SERIES[0];
    let scripts: Vec<String> = REDUCED.iter().map(|it| format!("{FOLDER}{it}")).collect();
    let list = Differences::read()?;
    let Heard { output, .. } = listener.hear(program(series, &list, &scripts)?)?;
    // What it says besides the verdicts is why there are none.
    if !output.contains("\"verdict\"") {
        return Ok((Tally::one(false), output));
    }
    let run = Run::of(output.lines().map(str::to_owned));
    let findings = run.judge(series, &list, &scripts);
    let failed = findings.len() as u32;
    let tally = Tally { passed: (scripts.len() as u32).saturating_sub(failed), failed };
    let said = findings.iter().map(|finding| format!("{finding}\n"));
    Ok((tally, said.collect()))
}

/// The page's part about scripts as it follows the matrix.
pub(super) fn part(scripts: &str) -> String {
    if scripts.is_empty() { String::new() } else { format!("\n{scripts}") }
}

/// The page's parts about the matrix and about scripts, of which a run of one keeps the other.
pub(super) fn split(page: &str) -> (&str, &str) {
    page.find(TITLE).map_or((page, ""), |at| page.split_at(at))
}

fn program(series: &str, list: &Differences, scripts: &[String]) -> Result<Command> {
    let image = image::build(series)?;
    let debug = workspace::target().join("debug");
    let mut command = child::command(debug.join("examples/interop_scripts"));
    command
        .arg(&image.kernel)
        .arg(&image.initrd)
        .arg(workspace::target().join("interop/runs").join(series))
        .arg(debug.join("roxe"))
        .args(["--untold", &list.untold, "--"]);
    let (once, often): (Vec<_>, Vec<_>) =
        scripts.iter().partition(|script| list.of(script, series).is_some());
    command.args(often).arg("--").args(once);
    Ok(command)
}

/// Kernels, and words that the paths of scripts must have.
fn read(arguments: &[String]) -> Result<(Vec<String>, Vec<String>), Stop> {
    let (mut series, mut chosen) = (Vec::new(), Vec::new());
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--kernel" => {
                series.push(words.next().ok_or_else(|| Stop::Usage(USAGE.into()))?.clone());
            }
            option if option.starts_with('-') => return Err(Stop::Usage(USAGE.into())),
            _ => chosen.push(word.clone()),
        }
    }
    if series.is_empty() {
        series = SERIES.map(str::to_owned).to_vec();
    }
    Ok((series, chosen))
}

/// The scripts whose paths have one of some words; all when there are none.
fn choose(words: &[String]) -> Result<Vec<String>> {
    let is_chosen = |path: &String| words.is_empty() || words.iter().any(|it| path.contains(it));
    let mut scripts: Vec<String> = workspace::files()?
        .into_iter()
        .filter(|path| path.starts_with(FOLDER) && path.ends_with(".roce"))
        .filter(is_chosen)
        .collect();
    scripts.sort();
    if scripts.is_empty() {
        return Err(Stop::Usage("no script has such a name".into()).into());
    }
    Ok(scripts)
}

/// What one kernel did.
#[derive(Default)]
struct Run {
    kernel: String,
    /// By script: the verdict, and what is said of it.
    verdicts: BTreeMap<String, (String, String)>,
}

impl Run {
    fn of(lines: impl Iterator<Item = String>) -> Self {
        let mut run = Self::default();
        for line in lines {
            let Ok(value) = serde_json::from_str::<Value>(&line) else { continue };
            let text = |key: &str| value[key].as_str().unwrap_or_default().to_owned();
            if value["kernel"].is_string() {
                run.kernel = text("kernel");
            } else {
                run.verdicts.insert(text("file"), (text("verdict"), text("message")));
            }
        }
        run
    }

    fn count(&self, verdict: &str) -> usize {
        self.verdicts.values().filter(|(is, _)| is == verdict).count()
    }

    fn sentence(&self) -> String {
        let Self { kernel, .. } = self;
        let [passed, failed, skipped] = ["ok", "failed", "skipped"].map(|it| self.count(it));
        format!("Linux {kernel}: {passed} passed, {failed} failed, {skipped} skipped")
    }

    /// What is not as the list says.
    fn judge(&self, series: &str, list: &Differences, scripts: &[String]) -> Vec<String> {
        let mut findings = Vec::new();
        for script in scripts {
            let Some((verdict, message)) = self.verdicts.get(script) else {
                findings.push(format!("{script}: Linux {series}: it did not run"));
                continue;
            };
            let listed = list.of(script, series).is_some();
            match (verdict.as_str(), listed) {
                ("ok" | "skipped", false) | ("failed", true) => {}
                ("ok" | "skipped", true) => findings.push(format!(
                    "{script}: Linux {series}: it is {verdict} now; take it off {LIST}"
                )),
                _ => findings.push(format!("{script}: Linux {series}: {verdict}: {message}")),
            }
        }
        findings
    }
}

/// Where Linux differs.
struct Differences {
    /// Events that it does not tell, with commas between, and what is said of it.
    untold: String,
    untold_reason: String,
    list: Vec<Difference>,
}

struct Difference {
    /// Its path below `tests/conformance`.
    script: String,
    /// The kernels; empty for all.
    kernels: String,
    right: String,
    reason: String,
}

impl Differences {
    fn read() -> Result<Self> {
        let text = fs::read_to_string(workspace::root().join(LIST));
        Ok(Self::parse(&text.with_context(|| format!("cannot read {LIST}"))?))
    }

    /// Tables `[[difference]]`, some for several scripts.
    fn parse(text: &str) -> Self {
        let tables = text.split("\n[[difference]]\n").skip(1);
        let differences = tables.flat_map(|body| {
            let text = |key| value(body, key).unwrap_or_default();
            let scripts = text("scripts");
            let each = scripts.split_whitespace().map(|script| Difference {
                script: script.to_owned(),
                kernels: text("kernels"),
                right: text("right"),
                reason: text("reason"),
            });
            each.collect::<Vec<_>>()
        });
        let head = text.split("\n[[difference]]\n").next().unwrap_or_default();
        let value = |key| value(head, key).unwrap_or_default();
        Self {
            untold: value("untold"),
            untold_reason: value("untold_reason"),
            list: differences.collect(),
        }
    }

    fn of(&self, script: &str, series: &str) -> Option<&Difference> {
        self.list.iter().find(|it| {
            let on = it.kernels.is_empty() || it.kernels.split(' ').any(|kernel| kernel == series);
            on && script.strip_prefix(FOLDER) == Some(it.script.as_str())
        })
    }
}

/// The page's part about scripts.
fn render(kernels: &[Run], list: &Differences, rules: &dyn Fn(&str) -> Vec<String>) -> String {
    let mut page = format!("{TITLE}{INTRODUCTION}");
    page += "| Linux | passed | differ | skipped |\n|---|---|---|---|\n";
    for run in kernels {
        let [passed, failed, skipped] = ["ok", "failed", "skipped"].map(|it| run.count(it));
        page += &format!("| {} | {passed} | {failed} | {skipped} |\n", run.kernel);
    }
    for (right, title) in RIGHT {
        let of_them: Vec<_> = list.list.iter().filter(|it| it.right == right).collect();
        if of_them.is_empty() {
            continue;
        }
        page += &format!("\n### {title}\n\n");
        if right == "roxe" && !list.untold.is_empty() {
            let Differences { untold, untold_reason, .. } = list;
            page += &format!("- {untold_reason}: scripts with the events {untold}\n");
        }
        let mut by_reason: Vec<(&Difference, Vec<&str>)> = Vec::new();
        for it in of_them {
            let same =
                |known: &Difference| (&known.reason, &known.kernels) == (&it.reason, &it.kernels);
            match by_reason.iter_mut().find(|(known, _)| same(known)) {
                Some((_, scripts)) => scripts.push(&it.script),
                None => by_reason.push((it, vec![&it.script])),
            }
        }
        for (difference, scripts) in by_reason {
            let only = match difference.kernels.as_str() {
                "" => String::new(),
                kernels => format!(" Linux {kernels}."),
            };
            let rules: BTreeSet<String> = scripts.iter().flat_map(|it| rules(it)).collect();
            let rules: Vec<_> = rules.into_iter().collect();
            let shown = |script: &&str| match right {
                "roxe" => format!("[`{script}`](rxe/{})", capture_of(script)),
                _ => format!("`{script}`"),
            };
            let scripts: Vec<_> = scripts.iter().map(shown).collect();
            let (rules, scripts) = (rules.join(", "), scripts.join(", "));
            page += &format!("- {}{only} {rules}: {scripts}\n", difference.reason);
        }
    }
    let mut skipped: BTreeMap<&str, usize> = BTreeMap::new();
    for (_, message) in
        kernels.iter().flat_map(|run| run.verdicts.values()).filter(|it| it.0 == "skipped")
    {
        // The line is the script's own.
        let why = message.strip_prefix("line ").and_then(|it| it.split_once(": "));
        *skipped.entry(why.map_or(message.as_str(), |(_, why)| why)).or_default() += 1;
    }
    page += "\n### Skipped\n\n| why | scripts, of all kernels |\n|---|---|\n";
    for (why, count) in skipped {
        page += &format!("| {why} | {count} |\n");
    }
    page
}

/// Some of each kind that are quick, and one that is listed.
const REDUCED: [&str; 8] = [
    "rc/send-only-completes-one-receive.roce",
    "rc/send-twice-delivered-once.roce",
    "rc/compare-and-swap.roce",
    "rc/read.roce",
    "rc/immediate-data-received.roce",
    "uc/write-arrives.roce",
    "ud/immediate-data.roce",
    "memory/write-with-a-bad-key.roce",
];

/// Who is right, and the title of what is said then.
const RIGHT: [(&str, &str); 3] = [
    ("roxe", "Where rxe breaks a rule"),
    ("both", "Where the specification leaves it open"),
    ("rxe", "Where rxe is right"),
];

const TITLE: &str = "## Conformance scripts against rxe\n";

const INTRODUCTION: &str = "
`cargo xtask interop scripts` runs the scripts of `tests/conformance` against `rdma_rxe`: `roxe
script --peer rxe` calls its verbs by the agent, puts the frames on the wire and judges what comes
back. `tests/conformance/differences-rxe.toml` lists what differs; a listed script must fail, any
other must come true, or be skipped because a kernel's device cannot be asked it. Behind each
difference stand the rules that it is about (`cargo xtask trace RULE` says more of one), and the
scripts that show it; where rxe breaks a rule, each leads to a recording, whose comments are the
script's lines: `roxe explain` tells it.

";

const USAGE: &str = "usage: cargo xtask interop scripts [--kernel SERIES]… [WORD…]";

#[cfg(test)]
mod tests {
    use super::*;

    const LISTED: &str = "# Text.\n\n[[difference]]\nscripts = \"rc/a.roce rc/b.roce\"\n\
        right = \"roxe\"\nreason = \"Late.\"\n\n[[difference]]\nscripts = \"uc/c.roce\"\n\
        kernels = \"6.1\"\nright = \"both\"\nreason = \"Early.\"\n";

    #[test]
    fn a_listed_script_must_fail_and_no_other() {
        let list = Differences::parse(LISTED);
        let line = |file: &str, verdict: &str| {
            format!(r#"{{"file":"{FOLDER}{file}","verdict":"{verdict}","message":"line 3: why"}}"#)
        };
        let lines = [
            r#"{"kernel":"6.1.0"}"#.to_owned(),
            line("rc/a.roce", "failed"),
            line("rc/b.roce", "ok"),
            line("uc/c.roce", "failed"),
            line("uc/d.roce", "failed"),
            line("uc/e.roce", "skipped"),
        ];
        let run = Run::of(lines.into_iter());
        assert_eq!(run.sentence(), "Linux 6.1.0: 1 passed, 3 failed, 1 skipped");
        let scripts = ["rc/a", "rc/b", "uc/c", "uc/d", "uc/e", "uc/f"];
        let scripts = scripts.map(|it| format!("{FOLDER}{it}.roce"));
        let found = |series| -> Vec<String> {
            let findings = run.judge(series, &list, &scripts);
            findings.iter().map(|it| it[FOLDER.len()..FOLDER.len() + 4].to_owned()).collect()
        };
        assert_eq!(found("6.1"), ["rc/b", "uc/d", "uc/f"]);
        // Another kernel may not differ in what is listed for the first.
        assert_eq!(found("6.12"), ["rc/b", "uc/c", "uc/d", "uc/f"]);
        let page = render(&[run], &list, &|script| vec![format!("R{}", script.len())]);
        assert!(page.contains("| 6.1.0 | 1 | 3 | 1 |"));
        let of_ours =
            "- Late. R9: [`rc/a.roce`](rxe/rc-a.pcapng), [`rc/b.roce`](rxe/rc-b.pcapng)\n";
        assert!(page.contains(of_ours), "{page}");
        assert!(page.contains("- Early. Linux 6.1. R9: `uc/c.roce`\n"));
        assert!(page.contains("| why | 1 |"));
    }

    #[test]
    fn the_matrix_keeps_what_is_said_of_scripts() {
        let page = format!("head\n\n{TITLE}text\n");
        assert_eq!(split(&page), ("head\n\n", format!("{TITLE}text\n").as_str()));
        assert_eq!(split("head\n"), ("head\n", ""));
    }
}
