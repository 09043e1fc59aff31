//! `cargo xtask interop scripts`: the conformance scripts against `rdma_rxe`.
//!
//! `tests/conformance/differences-rxe.toml` lists the scripts that do not come true there, why, and
//! who is right. A listed script must fail, any other must pass or be skipped.

mod list;
mod page;
mod said;

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use super::{CAPTURES, PAGE, SERIES, console, folder_of, image, need_root, page as matrix};
use crate::child::{self, Heard, Listener};
use crate::stop::Stop;
use crate::test::Tally;
use crate::trace;
use crate::{say, tell, tools, workspace};
use list::Differences;
use page::{RIGHT, Sources, TITLE, differs as differs_in, render};
use said::{Run, Verdict};

const FOLDER: &str = "tests/conformance/";
const LIST: &str = "tests/conformance/differences-rxe.toml";

/// The command's part behind `scripts`.
pub(super) fn run(arguments: &[String]) -> Result<()> {
    let Chosen { series, words, page } = read(arguments)?;
    let list = Differences::read()?;
    if page {
        let kept = series.iter().map(|series| kept(series)).collect::<Result<Vec<_>>>()?;
        let scripts = choose(&[])?;
        let judge = |(run, series): (&Run, &String)| run.judge(series, &list, &scripts, &[]);
        let findings = kept.iter().zip(&series).flat_map(judge);
        return match told(findings) {
            true => write_page(&kept, &list),
            false => Err(Stop::Findings.into()),
        };
    }
    need_root()?;
    let scripts = choose(&words)?;
    tools::ensure_present(&[tools::BUILD, super::NEEDS].concat())?;
    super::build_programs()?;
    let mut findings = Vec::new();
    let mut kernels = Vec::new();
    for series in &series {
        let before = kept(series).unwrap_or_default();
        let mut program = program(series, &list, &scripts)?;
        program.stdout(Stdio::piped());
        let mut child = program.spawn().context("cannot run the scripts")?;
        let output = child.stdout.take().context("a pipe that was asked for")?;
        let mut lines = Vec::new();
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if let Some((script, verdict)) = Verdict::read(&line) {
                let is_listed = list.of(&script, series).is_some();
                say!("{}", verdict.told(&script, is_listed));
                if let Some(before) = before.by_script.get(&script).filter(|_| is_listed)
                    && let Some(before) = verdict.otherwise(before)
                {
                    say!("  unlike in the last run of all: {before}");
                }
            }
            lines.push(line);
        }
        let run = Run::of(lines.iter());
        let status = child.wait().context("cannot wait for the scripts")?;
        ensure!(status.success(), "the scripts of Linux {series} did not come to their end");
        if words.is_empty() {
            fs::write(folder_of(series).join("scripts"), lines.join("\n"))?;
            console::keep(series, "scripts")?;
        }
        findings.extend(judge(&run, series, &list, &scripts));
        tell!("{}", run.sentence(series, &list));
        kernels.push(run);
    }
    if !told(findings.into_iter()) {
        return Err(Stop::Findings.into());
    }
    // A part of the scripts is no page.
    if words.is_empty() && series == SERIES {
        write_page(&kernels, &list)?;
    }
    Ok(())
}

/// Tells what is not as it should be; whether all is.
fn told(findings: impl Iterator<Item = String>) -> bool {
    findings.map(|finding| say!("{finding}")).count() == 0
}

/// What is not as the list says, in a run that ended with [`last`].
fn judge(run: &Run, series: &str, list: &Differences, scripts: &[String]) -> Vec<String> {
    let Some(last) = last(series, list, scripts) else {
        return run.judge(series, list, scripts, &[]);
    };
    let mut all = scripts.to_vec();
    if !all.contains(&last) {
        all.push(last.clone());
    }
    run.judge(series, list, &all, &[last])
}

/// The script that must come true behind those that are listed, if some are: without it nobody
/// knows that the guest could still do anything.
fn last(series: &str, list: &Differences, scripts: &[String]) -> Option<String> {
    let is_listed = |script: &String| list.of(script, series).is_some();
    scripts.iter().any(is_listed).then(|| format!("{FOLDER}{}", REDUCED[0]))
}

/// What the last run of all scripts with a kernel said.
fn kept(series: &str) -> Result<Run> {
    let text = fs::read_to_string(folder_of(series).join("scripts")).with_context(|| {
        format!("no run of all scripts with Linux {series} is kept, so {PAGE} stays")
    })?;
    Ok(Run::of(text.lines()))
}

/// Writes the page's part about scripts, and the recordings beside it.
fn write_page(kernels: &[Run], list: &Differences) -> Result<()> {
    let path = workspace::root().join(PAGE);
    let page = fs::read_to_string(&path).with_context(|| format!("cannot read {PAGE}"))?;
    let (before, _) = split(&page);
    let sources = Sources {
        recorded: keep_captures(list)?,
        rules: trace::ledger()?,
        versions: kernels.iter().map(|run| image::version(&run.kernel)).collect(),
        rdma_core: image::package("libibverbs1"),
    };
    let part = render(kernels, list, &sources);
    let before = matrix::with_differs(before, &differs_in(&part, list));
    fs::write(path, format!("{}\n\n{part}", before.trim_end()))?;
    tell!("written: {PAGE}, {CAPTURES}");
    Ok(())
}

/// The page's section on where rxe differs, by its part about scripts and the list.
pub(super) fn differs(scripts: &str) -> Result<String> {
    Ok(differs_in(scripts, &Differences::read()?))
}

/// Recordings that are kept, by script and kernel.
type Recorded = BTreeMap<(String, &'static str), String>;

/// Keeps recordings of what rxe does wrong: of each script and entry of the list one, of the newest
/// kernel of which one has frames. Without one of them, those that are there stay.
fn keep_captures(list: &Differences) -> Result<Recorded> {
    let mut recorded = Recorded::new();
    let mut recordings = Vec::new();
    for it in list.list.iter().filter(|it| it.right == RIGHT[0].0) {
        let name = capture_of(&it.script, "");
        for series in SERIES.into_iter().rev().filter(|series| it.is_on(series)) {
            let path = folder_of(series).join("captures").join(&name);
            let recording = fs::read(&path);
            let recording = recording.with_context(|| format!("cannot read {}", path.display()))?;
            if has_frames(&recording) {
                let is_taken = recorded.values().any(|known| *known == name);
                let name = if is_taken { capture_of(&it.script, series) } else { name };
                recordings.push((name.clone(), recording));
                recorded.insert((it.script.clone(), series), name);
                break;
            }
        }
    }
    let folder = workspace::root().join(CAPTURES);
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {CAPTURES}"))?;
    // What rxe does right by now has none. What guests' consoles showed is kept by itself.
    let old = fs::read_dir(&folder).with_context(|| format!("cannot read {CAPTURES}"))?;
    for path in old.flatten().map(|entry| entry.path()) {
        if path.extension().is_some_and(|it| it == "pcapng") {
            fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
        }
    }
    for (name, recording) in recordings {
        fs::write(folder.join(name), recording)?;
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

/// The name of the recording of a script; of one of several, with its kernel.
fn capture_of(script: &str, series: &str) -> String {
    let series = if series.is_empty() { String::new() } else { format!("-{series}") };
    script.replace('/', "-").replace(".roce", &format!("{series}.pcapng"))
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
    // A part that is left out would count as passed.
    let findings = run.judge(series, &list, &scripts, &scripts);
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
        .arg(folder_of(series))
        .arg(debug.join("roxe"))
        .args(["--untold", &list.untold, "--"]);
    let (once, often): (Vec<_>, Vec<_>) =
        scripts.iter().partition(|script| list.of(script, series).is_some());
    command.args(often).arg("--").args(once).arg("--").args(last(series, list, scripts));
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
    let usage = || Stop::Usage(super::usage());
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

#[cfg(test)]
mod tests {
    use std::slice::from_ref;

    use super::*;

    pub(super) const LISTED: &str = "# Text.\n\n[[difference]]\nscripts = \"rc/a.roce rc/b.roce\"\n\
        right = \"roxe\"\nrule = \"R9\"\nibta = \"9.9.2\"\n\
        where = \"rxe, rdma-core\"\nreason = \"Late.\"\n\n[[difference]]\nscripts = \"uc/c.roce\"\n\
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
    pub(super) fn sample() -> Run {
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
            let findings = run.judge(series, &list, &scripts, &[]);
            findings.iter().map(|it| it[FOLDER.len()..FOLDER.len() + 4].to_owned()).collect()
        };
        assert_eq!(found("6.1"), ["rc/b", "uc/d", "uc/f"]);
        let [.., skipped, _] = &scripts;
        let findings = run.judge("6.1", &list, from_ref(skipped), from_ref(skipped));
        assert_eq!(findings.len(), 1, "{findings:?}");
        // Behind listed ones one that is not must have come true.
        assert_eq!(last("6.1", &list, from_ref(skipped)), None);
        let last = last("6.1", &list, &scripts[..1]).unwrap();
        let findings = judge(&run, "6.1", &list, &scripts[..1]);
        assert_eq!(findings, [format!("{last}: Linux 6.1: it did not run")]);
        // Another kernel may not differ in what is listed for the first.
        assert_eq!(found("6.12"), ["rc/b", "uc/c", "uc/d", "uc/f"]);
    }

    #[test]
    fn a_recording_without_a_frame_is_none() {
        assert_eq!(capture_of("rc/a.roce", "6.12"), "rc-a-6.12.pcapng");
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
