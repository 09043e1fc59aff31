//! `cargo xtask interop scripts`: the conformance scripts against `rdma_rxe`.
//!
//! `tests/conformance/differences-rxe.toml` lists the scripts that do not come true there, why, and
//! who is right. A listed script must fail, any other must pass or be skipped.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::{PAGE, SERIES, image, need_root};
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
    let Chosen { series, words, page } = read(arguments)?;
    let list = Differences::read()?;
    if page {
        let kept = series.iter().map(|series| kept(series)).collect::<Result<Vec<_>>>()?;
        return write_page(&kept, &list);
    }
    need_root()?;
    let scripts = choose(&words)?;
    tools::ensure_present(&[tools::BUILD, super::NEEDS].concat())?;
    super::build_programs()?;
    let mut findings = Vec::new();
    let mut kernels = Vec::new();
    for series in &series {
        let mut program = program(series, &list, &scripts)?;
        program.stdout(Stdio::piped());
        let mut child = program.spawn().context("cannot run the scripts")?;
        let output = child.stdout.take().context("a pipe that was asked for")?;
        let mut lines = Vec::new();
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if let Some((script, verdict)) = Verdict::read(&line) {
                say!("{}", verdict.told(&script, list.of(&script, series).is_some()));
            }
            lines.push(line);
        }
        let run = Run::of(lines.iter());
        let status = child.wait().context("cannot wait for the scripts")?;
        ensure!(status.success(), "the scripts of Linux {series} did not come to their end");
        if words.is_empty() {
            fs::write(runs(series).join("scripts"), lines.join("\n"))?;
        }
        findings.extend(run.judge(series, &list, &scripts));
        tell!("{}", run.sentence(series, &list));
        kernels.push(run);
    }
    findings.iter().for_each(|finding| say!("{finding}"));
    // A part of the scripts is no page.
    if words.is_empty() && series == SERIES && findings.is_empty() {
        write_page(&kernels, &list)?;
    }
    if findings.is_empty() { Ok(()) } else { Err(Stop::Findings.into()) }
}

/// Where a kernel's results and recordings are kept.
fn runs(series: &str) -> PathBuf {
    workspace::target().join("interop/runs").join(series)
}

/// What the last run of all scripts with a kernel said.
fn kept(series: &str) -> Result<Run> {
    let text = fs::read_to_string(runs(series).join("scripts")).with_context(|| {
        format!("no run of all scripts with Linux {series} is kept, so {PAGE} stays")
    })?;
    Ok(Run::of(text.lines()))
}

/// Writes the page's part about scripts, and the recordings beside it.
fn write_page(kernels: &[Run], list: &Differences) -> Result<()> {
    let path = workspace::root().join(PAGE);
    let page = fs::read_to_string(&path).with_context(|| format!("cannot read {PAGE}"))?;
    let (before, _) = split(&page);
    let recorded = keep_captures(list)?;
    let part = render(kernels, list, &recorded, &|script| rules_of(script));
    fs::write(path, format!("{}\n\n{part}", before.trim_end()))?;
    tell!("written: {PAGE}, {CAPTURES}");
    Ok(())
}

/// Keeps the recordings of what rxe does wrong, of the first kernel of which one has frames. Says
/// of which it is, by script.
fn keep_captures(list: &Differences) -> Result<BTreeMap<String, &'static str>> {
    let folder = workspace::root().join(CAPTURES);
    // What rxe does right by now has none.
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {CAPTURES}"))?;
    let mut recorded = BTreeMap::new();
    for series in SERIES {
        let wrong = |it: &&Difference| it.right == RIGHT[0].0 && it.is_on(series);
        for Difference { script, .. } in list.list.iter().filter(wrong) {
            if recorded.contains_key(script) {
                continue;
            }
            let name = capture_of(script);
            let recording = fs::read(runs(series).join("captures").join(&name));
            let recording = recording.with_context(|| format!("no recording {name}"))?;
            if has_frames(&recording) {
                fs::write(folder.join(name), recording)?;
                recorded.insert(script.clone(), series);
            }
        }
    }
    Ok(recorded)
}

/// Whether a pcapng file has a frame: an enhanced packet block among its blocks, each of which
/// begins with its type and its length. Ours are little-endian.
fn has_frames(mut blocks: &[u8]) -> bool {
    const PACKET: u32 = 6;
    let word = |bytes: &[u8], at: usize| {
        bytes.get(at..at + 4).map(|it| u32::from_le_bytes([it[0], it[1], it[2], it[3]]))
    };
    while let (Some(kind), Some(len @ 12..)) = (word(blocks, 0), word(blocks, 4)) {
        if kind == PACKET {
            return true;
        }
        blocks = blocks.get(len as usize..).unwrap_or_default();
    }
    false
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
    let run = Run::of(output.lines());
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
    command.arg(&image.kernel).arg(&image.initrd).arg(runs(series)).arg(debug.join("roxe")).args([
        "--untold",
        &list.untold,
        "--",
    ]);
    let (once, often): (Vec<_>, Vec<_>) =
        scripts.iter().partition(|script| list.of(script, series).is_some());
    command.args(often).arg("--").args(once);
    Ok(command)
}

/// What the command line says.
#[derive(Debug, PartialEq, Eq)]
struct Chosen {
    series: Vec<String>,
    /// The paths of scripts must have all of them.
    words: Vec<String>,
    /// Nothing is run: the page is written anew.
    page: bool,
}

fn read(arguments: &[String]) -> Result<Chosen, Stop> {
    let mut chosen = Chosen { series: Vec::new(), words: Vec::new(), page: false };
    let mut words = arguments.iter();
    let usage = || Stop::Usage(USAGE.into());
    while let Some(word) = words.next() {
        match word.as_str() {
            "--kernel" => chosen.series.push(words.next().ok_or_else(usage)?.clone()),
            "--page" => chosen.page = true,
            option if option.starts_with('-') => return Err(usage()),
            _ => chosen.words.push(word.clone()),
        }
    }
    if chosen.page && (!chosen.series.is_empty() || !chosen.words.is_empty()) {
        return Err(usage());
    }
    if chosen.series.is_empty() {
        chosen.series = SERIES.map(str::to_owned).to_vec();
    }
    Ok(chosen)
}

/// The scripts whose paths have all of some words.
fn choose(words: &[String]) -> Result<Vec<String>> {
    let mut scripts: Vec<String> = workspace::files()?
        .into_iter()
        .filter(|path| path.starts_with(FOLDER) && path.ends_with(".roce"))
        .filter(|path| words.iter().all(|word| path.contains(word)))
        .collect();
    scripts.sort();
    if scripts.is_empty() {
        let words = words.join("`, `");
        let what =
            format!("no script below {FOLDER} has `{words}` in its path (all words must be)");
        return Err(Stop::Usage(what).into());
    }
    Ok(scripts)
}

/// How a script ended.
#[derive(Default)]
struct Verdict {
    /// `ok`, `failed`, `skipped`, or what kept it from running.
    word: String,
    /// The line that did not come true, from 1 on, and its text.
    line: u64,
    text: String,
    /// What is said of it.
    message: String,
}

impl Verdict {
    /// Of a line of `roxe script --json`: the script, and how it ended.
    fn read(line: &str) -> Option<(String, Self)> {
        let value: Value = serde_json::from_str(line).ok()?;
        let text = |key: &str| value[key].as_str().unwrap_or_default().to_owned();
        let file = value["file"].as_str()?.to_owned();
        let line = value["line"].as_u64().unwrap_or_default();
        let verdict =
            Self { word: text("verdict"), line, text: text("text"), message: text("message") };
        Some((file, verdict))
    }

    /// What was expected at which line, and what came instead. Without the time at which it did,
    /// which is another in each run.
    fn sentence(&self) -> String {
        let Self { line, text, message, .. } = self;
        let text = words_of(text);
        let text = text.strip_prefix("+0 ").unwrap_or(&text);
        let mut parts = message.lines().map(words_of);
        let what = parts.next().unwrap_or_default();
        let what = match what.rsplit_once(" (at ") {
            Some((what, time)) if time.ends_with(')') => what.to_owned(),
            _ => what,
        };
        let how: Vec<String> = parts.collect();
        let how = if how.is_empty() { String::new() } else { format!(" ({})", how.join(", ")) };
        let came = match what.strip_prefix("instead: ") {
            Some(came) => format!("instead {came}{how}"),
            None => format!("{what}{how}"),
        };
        let sentence = match came.starts_with("the script ends here") {
            true => format!("line {line}: {came}"),
            false => format!("line {line}: expected {text}; {came}"),
        };
        match sentence.char_indices().nth(LONGEST) {
            Some((at, _)) => format!("{}…", &sentence[..at]),
            None => sentence,
        }
    }

    /// What is told of a script while they run.
    fn told(&self, script: &str, listed: bool) -> String {
        match (self.word.as_str(), listed) {
            ("failed", true) => format!("{script}: differs, as listed: {}", self.sentence()),
            ("failed", false) => format!("{script}: DIFFERS: {}", self.sentence()),
            ("ok" | "skipped", true) => format!("{script}: {}, BUT LISTED", self.word),
            ("ok", false) => format!("{script}: ok"),
            (word, _) => format!("{script}: {word}: {}", self.message),
        }
    }
}

/// Characters of a sentence, at most: some have bytes in them.
const LONGEST: usize = 300;

/// A text with one blank between two words.
fn words_of(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// What one kernel did.
#[derive(Default)]
struct Run {
    kernel: String,
    by_script: BTreeMap<String, Verdict>,
}

impl Run {
    fn of(lines: impl Iterator<Item = impl AsRef<str>>) -> Self {
        let mut run = Self::default();
        for line in lines {
            let line = line.as_ref();
            if let Some((script, verdict)) = Verdict::read(line) {
                run.by_script.insert(script, verdict);
            } else if let Ok(value) = serde_json::from_str::<Value>(line)
                && let Some(kernel) = value["kernel"].as_str()
            {
                kernel.clone_into(&mut run.kernel);
            }
        }
        run
    }

    fn count(&self, word: &str) -> usize {
        self.by_script.values().filter(|it| it.word == word).count()
    }

    /// What it did, in numbers, and where one may look.
    fn sentence(&self, series: &str, list: &Differences) -> String {
        let Self { kernel, by_script } = self;
        let is_listed = |script: &String| list.of(script, series).is_some();
        let [passed, failed, skipped] = ["ok", "failed", "skipped"].map(|it| self.count(it));
        let differ =
            by_script.iter().filter(|(script, it)| it.word == "failed" && is_listed(script));
        let differ = differ.count();
        let mut text = format!(
            "Linux {kernel}: {passed} passed, {differ} differ, as listed, {skipped} skipped"
        );
        if failed > differ {
            text += &format!(", {} FAILED", failed - differ);
        }
        if by_script.keys().any(is_listed) {
            text += &format!("; recordings of listed ones: target/interop/runs/{series}/captures");
        }
        text
    }

    /// What is not as the list says.
    fn judge(&self, series: &str, list: &Differences, scripts: &[String]) -> Vec<String> {
        let mut findings = Vec::new();
        for script in scripts {
            let Some(verdict) = self.by_script.get(script) else {
                findings.push(format!("{script}: Linux {series}: it did not run"));
                continue;
            };
            let listed = list.of(script, series).is_some();
            match (verdict.word.as_str(), listed) {
                ("ok" | "skipped", false) | ("failed", true) => {}
                ("ok" | "skipped", true) => findings.push(format!(
                    "{script}: Linux {series}: it is {} now; take it off {LIST}",
                    verdict.word
                )),
                ("failed", false) => {
                    findings.push(format!("{script}: Linux {series}: {}", verdict.sentence()));
                }
                (word, _) => {
                    findings.push(format!("{script}: Linux {series}: {word}: {}", verdict.message))
                }
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

impl Difference {
    /// Whether it is about a kernel.
    fn is_on(&self, series: &str) -> bool {
        self.kernels.is_empty() || self.kernels.split(' ').any(|kernel| kernel == series)
    }
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
        let name = script.strip_prefix(FOLDER);
        self.list.iter().find(|it| it.is_on(series) && name == Some(it.script.as_str()))
    }
}

/// The page's part about scripts. `recorded` says of which kernel the recording of a script is,
/// `rules` what a script is about.
fn render(
    kernels: &[Run],
    list: &Differences,
    recorded: &BTreeMap<String, &str>,
    rules: &dyn Fn(&str) -> Vec<String>,
) -> String {
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
        if right == RIGHT[0].0 && !list.untold.is_empty() {
            let Differences { untold, untold_reason, .. } = list;
            page += &format!("- {untold_reason}: scripts with the events {untold}\n");
        }
        let mut by_reason: Vec<(&Difference, Vec<&Difference>)> = Vec::new();
        for it in of_them {
            let same =
                |known: &Difference| (&known.reason, &known.kernels) == (&it.reason, &it.kernels);
            match by_reason.iter_mut().find(|(known, _)| same(known)) {
                Some((_, all)) => all.push(it),
                None => by_reason.push((it, vec![it])),
            }
        }
        for (difference, all) in by_reason {
            let only = match difference.kernels.as_str() {
                "" => String::new(),
                kernels => format!(" Linux {kernels}."),
            };
            let rules: BTreeSet<String> = all.iter().flat_map(|it| rules(&it.script)).collect();
            let rules = rules.into_iter().collect::<Vec<_>>().join(", ");
            page += &format!("- {}{only} {rules}:\n", difference.reason);
            all.iter().for_each(|it| page += &shown(it, kernels, recorded));
        }
    }
    let mut skipped: BTreeMap<&str, usize> = BTreeMap::new();
    let verdicts = kernels.iter().flat_map(|run| run.by_script.values());
    for Verdict { message, .. } in verdicts.filter(|it| it.word == "skipped") {
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

/// A script that shows a difference, and what it said with each kernel that the entry is about:
/// once where they said the same.
fn shown(it: &Difference, kernels: &[Run], recorded: &BTreeMap<String, &str>) -> String {
    let script = &it.script;
    let mut said: Vec<(String, Vec<String>)> = Vec::new();
    for (run, series) in kernels.iter().zip(SERIES).filter(|(_, series)| it.is_on(series)) {
        let Some(verdict) = run.by_script.get(&format!("{FOLDER}{script}")) else { continue };
        let by = match recorded.get(script) {
            Some(of) if *of == series && it.right == RIGHT[0].0 => {
                format!("{series} ([recorded](rxe/{}))", capture_of(script))
            }
            _ => series.to_owned(),
        };
        let sentence = verdict.sentence().replace('`', "'");
        match said.iter_mut().find(|(known, _)| *known == sentence) {
            Some((_, all)) => all.push(by),
            None => said.push((sentence, vec![by])),
        }
    }
    let silent = it.right == RIGHT[0].0 && !recorded.contains_key(script);
    let silent = if silent { ", nothing on the wire" } else { "" };
    let mut text = format!("  - `{script}`{silent}:");
    for (sentence, by) in said {
        text += &format!(" {}: `{sentence}`.", by.join(" and "));
    }
    text + "\n"
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
scripts that show it, each with what it said on which kernel: the line that did not come true, and
what came instead. Where rxe breaks a rule there is a recording, if anything was on the wire: `roxe
explain` tells it, with the script's lines as comments, and at which frame what else was expected.
Scripts run by hand, too, against a guest that stays (`cargo xtask interop guest`) or a kernel of
one's own: `tests/interop/README.md` says how.

";

const USAGE: &str = "usage: cargo xtask interop scripts [--kernel SERIES]… [WORD…] | --page
Scripts whose paths have all WORDs; with none all, which writes the page. --page writes it of what
was kept of the last run of all.";

#[cfg(test)]
mod tests {
    use super::*;

    const LISTED: &str = "# Text.\n\n[[difference]]\nscripts = \"rc/a.roce rc/b.roce\"\n\
        right = \"roxe\"\nreason = \"Late.\"\n\n[[difference]]\nscripts = \"uc/c.roce\"\n\
        kernels = \"6.1\"\nright = \"both\"\nreason = \"Early.\"\n";

    /// What `roxe script --json` says of a script, which failed at its third line if it did.
    fn line(file: &str, verdict: &str) -> String {
        let message = match verdict {
            "skipped" => "line 2: a kernel's port cannot be held",
            _ => "instead: > q1 ACK psn 1 (at 20us)\n  msn is 1",
        };
        serde_json::json!({
            "file": format!("{FOLDER}{file}"), "verdict": verdict, "text": "+0    > q1  NAK psn 1",
            "line": 3, "message": message,
        })
        .to_string()
    }

    /// Three listed scripts, two of which differ, and two others.
    fn sample() -> Run {
        let lines = [
            r#"{"kernel":"6.1.0"}"#.to_owned(),
            line("rc/a.roce", "failed"),
            line("rc/b.roce", "ok"),
            line("uc/c.roce", "failed"),
            line("uc/d.roce", "failed"),
            line("uc/e.roce", "skipped"),
        ];
        Run::of(lines.iter())
    }

    #[test]
    fn a_listed_script_must_fail_and_no_other() {
        let list = Differences::parse(LISTED);
        let run = sample();
        let expected = "Linux 6.1.0: 1 passed, 2 differ, as listed, 1 skipped, 1 FAILED; \
                        recordings of listed ones: target/interop/runs/6.1/captures";
        assert_eq!(run.sentence("6.1", &list), expected);
        let scripts = ["rc/a", "rc/b", "uc/c", "uc/d", "uc/e", "uc/f"];
        let scripts = scripts.map(|it| format!("{FOLDER}{it}.roce"));
        let found = |series| -> Vec<String> {
            let findings = run.judge(series, &list, &scripts);
            findings.iter().map(|it| it[FOLDER.len()..FOLDER.len() + 4].to_owned()).collect()
        };
        assert_eq!(found("6.1"), ["rc/b", "uc/d", "uc/f"]);
        // Another kernel may not differ in what is listed for the first.
        assert_eq!(found("6.12"), ["rc/b", "uc/c", "uc/d", "uc/f"]);
    }

    #[test]
    fn the_page_has_what_each_script_said_on_each_kernel_and_its_recording() {
        let list = Differences::parse(LISTED);
        let mut other = sample();
        other.by_script.get_mut(&format!("{FOLDER}rc/b.roce")).unwrap().message =
            "the device did `nothing`".to_owned();
        let recorded = BTreeMap::from([("rc/a.roce".to_owned(), "6.1")]);
        let rules = |script: &str| vec![format!("R{}", script.len())];
        let page = render(&[sample(), other], &list, &recorded, &rules);
        assert!(page.contains("| 6.1.0 | 1 | 3 | 1 |"), "{page}");
        let came = "line 3: expected > q1 NAK psn 1; instead > q1 ACK psn 1 (msn is 1)";
        let of_ours = format!(
            "- Late. R9:\n\
             \x20 - `rc/a.roce`: 6.1 ([recorded](rxe/rc-a.pcapng)) and 6.12: `{came}`.\n\
             \x20 - `rc/b.roce`, nothing on the wire: 6.1: `{came}`. 6.12: `line 3: expected > q1 \
             NAK psn 1; the device did 'nothing'`.\n"
        );
        assert!(page.contains(&of_ours), "{page}");
        let of_both = format!("- Early. Linux 6.1. R9:\n  - `uc/c.roce`: 6.1: `{came}`.\n");
        assert!(page.contains(&of_both), "{page}");
        assert!(page.ends_with("| a kernel's port cannot be held | 2 |\n"), "{page}");
    }

    #[test]
    fn a_sentence_is_one_line_with_an_end() {
        let verdict = |message: &str| Verdict {
            line: 7,
            text: "+5ms   quiet".to_owned(),
            message: message.to_owned(),
            ..Verdict::default()
        };
        let more = "the script ends here, but the device did more: event q1 fatal";
        let sentence = verdict(&format!("{more} (at 2s)")).sentence();
        assert_eq!(sentence, format!("line 7: {more}"));
        let refused = verdict("it failed: EINVAL, mr: Invalid argument").sentence();
        let expected = "line 7: expected +5ms quiet; it failed: EINVAL, mr: Invalid argument";
        assert_eq!(refused, expected);
        let long = verdict(&"é".repeat(LONGEST)).sentence();
        assert_eq!((long.chars().count(), long.ends_with("é…")), (LONGEST + 1, true));
    }

    #[test]
    fn a_recording_without_a_frame_is_none() {
        let block = |kind: u32, body: &[u8]| {
            let len = (12 + body.len()) as u32;
            [&kind.to_le_bytes(), &len.to_le_bytes(), body, &len.to_le_bytes()].concat()
        };
        let head = [block(0x0a0d_0d0a, &[0; 16]), block(1, &[0; 8])].concat();
        assert!(!has_frames(&head));
        assert!(has_frames(&[head, block(6, &[0; 20])].concat()));
        assert!(!has_frames(b"") && !has_frames(&[0; 40]) && !has_frames(&[0xff; 40]));
    }

    #[test]
    fn words_choose_scripts_that_have_all_of_them() {
        let read = |line: &str| {
            let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            read(&words).ok()
        };
        let found = read("--kernel 6.12 rc read").unwrap();
        assert_eq!(
            (found.series, found.words),
            (vec!["6.12".to_owned()], vec!["rc".into(), "read".into()])
        );
        assert!(read("--page").unwrap().page);
        for wrong in ["--kernel", "--page rc", "--kernel 6.1 --page", "--fast"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
        let chosen = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
            choose(&words)
        };
        let both = chosen(&["rc/", "read"]).unwrap();
        assert!(both.iter().all(|it| it.contains("rc/") && it.contains("read")), "{both:?}");
        assert!(both.len() < chosen(&["read"]).unwrap().len());
        let stop = chosen(&["read", "no such"]).unwrap_err();
        assert_eq!(stop.downcast_ref::<Stop>().map(Stop::exit_code), Some(2));
    }

    #[test]
    fn the_matrix_keeps_what_is_said_of_scripts() {
        let page = format!("head\n\n{TITLE}text\n");
        assert_eq!(split(&page), ("head\n\n", format!("{TITLE}text\n").as_str()));
        assert_eq!(split("head\n"), ("head\n", ""));
    }
}
