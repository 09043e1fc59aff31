//! `cargo xtask interop`: the adapter against Linux's own, `rdma_rxe`, in a virtual machine.

mod archive;
mod console;
mod image;
mod kernel;
mod page;
mod perf;
mod scripts;

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use crate::child::{self, Heard, Listener};
use crate::interop::image::Image;
use crate::interop::page::{Beside, Row};
use crate::stop::Stop;
use crate::test::Tally;
use crate::{say, tell, tools, workspace};

/// What guests are built and run with.
#[rustfmt::skip]
pub(crate) const NEEDS: &[&str] = &["ethtool", "iproute2", "qemu-system-x86", "xz-utils", "zstd"];

/// Kernels whose adapter is the peer: Debian 12's, and the newer one of its security archive.
const SERIES: [&str; 2] = ["6.1", "6.12"];

/// Where the results stand.
const PAGE: &str = "docs/interop.md";
/// Where recordings of what rxe does wrong stand, and what its kernel said of its own faults.
const CAPTURES: &str = "docs/rxe";

/// The command.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    match arguments.split_first() {
        Some((word, rest)) if word == "scripts" => return scripts::run(rest),
        Some((word, rest)) if word == "perf" => return perf::run(rest),
        Some((word, rest)) if word == "guest" => return stay(rest),
        _ => {}
    }
    let chosen = read(arguments)?;
    if chosen.page {
        return write_page();
    }
    let needs = if chosen.peer.is_some() || chosen.list { &[] } else { NEEDS };
    if chosen.peer.is_none() && !chosen.list {
        need_root()?;
    }
    tools::ensure_present(&[tools::BUILD, needs].concat())?;
    build_programs()?;
    if chosen.list {
        return run_to_its_end(matrix("list").arg("--list").args(&chosen.words));
    }
    // Before a guest is made, which takes minutes, for words that nothing has.
    if !chosen.whole {
        run_to_its_end(matrix("list").arg("--list").args(&chosen.words).stdout(Stdio::null()))?;
    }
    let (mut all, mut wrong) = (0, 0);
    let mut count = |rows: &[Row]| {
        all += rows.len();
        wrong += wrong_of(rows);
    };
    // A part of the matrix is no page.
    if let Some(peer) = &chosen.peer {
        let rows = rows(&play(with(peer), &chosen.words)?);
        count(&rows);
        if chosen.whole {
            write_peer(&rows)?;
        }
    } else {
        for series in &chosen.series {
            let lines = play(program(&image::build(series)?, series), &chosen.words)?;
            count(&rows(&lines));
            if chosen.whole {
                fs::write(kept(series), format!("{}\n{}", today()?, lines.join("\n")))?;
                console::keep(series, "matrix")?;
            }
        }
    }
    say!("{all} batches, {wrong} of them wrong");
    if wrong > 0 {
        say!("recordings of those, if they have one: below target/interop/runs/");
    }
    if chosen.whole && chosen.peer.is_none() {
        write_page()?;
    }
    if wrong == 0 { Ok(()) } else { Err(Stop::Findings.into()) }
}

/// Plays a matrix; what it prints comes back.
fn play(mut matrix: Command, words: &[String]) -> Result<Vec<String>> {
    matrix.args(words).stdout(Stdio::piped());
    let mut matrix = matrix.spawn().context("cannot run the matrix")?;
    let output = matrix.stdout.take().context("a pipe that was asked for")?;
    let lines: Vec<String> = BufReader::new(output).lines().map_while(Result::ok).collect();
    let status = matrix.wait().context("cannot wait for the matrix")?;
    let rows = rows(&lines);
    if rows.is_empty() {
        ended(status.code())?;
    }
    // Neither a matrix that stopped half-way is one, nor one in which nothing could be played.
    ensure!(is_whole(&lines), "the matrix did not come to its end");
    if !status.success() && wrong_of(&rows) == 0 {
        return Err(Stop::Findings.into());
    }
    Ok(lines)
}

/// Whether there are as many rows as were planned.
fn is_whole(lines: &[String]) -> bool {
    let planned =
        |line: &String| serde_json::from_str::<serde_json::Value>(line).ok()?["planned"].as_u64();
    lines.iter().find_map(planned) == Some(rows(lines).len() as u64)
}

/// Runs a program that says by itself what is wrong.
fn run_to_its_end(program: &mut Command) -> Result<()> {
    let status = program.status().context("cannot run the matrix")?;
    Ok(ended(status.code())?)
}

/// How a program ended that has the exit statuses of all commands, and has said why.
fn ended(code: Option<i32>) -> Result<(), Stop> {
    match code {
        Some(0) => Ok(()),
        Some(2) => Err(Stop::Usage("see `cargo xtask interop --help`".to_owned())),
        Some(3) => Err(Stop::Missing("there is no peer to play with".to_owned())),
        _ => Err(Stop::Findings),
    }
}

/// The command's part behind `guest`: one boots, and stays until it is ended.
fn stay(arguments: &[String]) -> Result<()> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let series = match words[..] {
        [] => SERIES[0],
        ["--kernel", series] if !series.starts_with('-') => series,
        _ => return Err(Stop::Usage(usage()).into()),
    };
    need_root()?;
    tools::ensure_present(&[tools::BUILD, NEEDS].concat())?;
    build_programs()?;
    let image = image::build(series)?;
    run_to_its_end(matrix(series).arg("--stay").arg(&image.kernel).arg(&image.initrd))
}

fn rows(lines: &[String]) -> Vec<Row> {
    lines.iter().filter_map(|it| Row::read(it)).collect()
}

fn wrong_of(rows: &[Row]) -> usize {
    rows.iter().filter(|row| row.verdict == "wrong").count()
}

/// Where what a kernel did is kept, or a host that is none of ours.
fn folder_of(series: &str) -> PathBuf {
    workspace::target().join("interop/runs").join(series)
}

/// Where the rows of a kernel's whole matrix are kept, behind the day.
fn kept(series: &str) -> PathBuf {
    folder_of(series).join("rows")
}

/// Makes the page of what is kept: each kernel's last whole matrix.
fn write_page() -> Result<()> {
    let runs = runs(|series| fs::read_to_string(kept(series)).ok())?;
    let path = workspace::root().join(PAGE);
    let before = fs::read_to_string(&path).unwrap_or_default();
    let (matrix, scripts) = scripts::split(&before);
    let beside = Beside {
        peers: page::peers(matrix),
        differs: &scripts::differs(scripts)?,
        version: &image::version,
        consoles: &console::kept(),
    };
    fs::write(path, page::render(&runs, &beside) + &scripts::part(scripts))?;
    tell!("written: {PAGE}");
    Ok(())
}

/// The day and the rows of each kernel of the page.
///
/// # Errors
/// Of one nothing is kept: the page would lose it.
fn runs(kept: impl Fn(&str) -> Option<String>) -> Result<Vec<(String, Vec<Row>)>> {
    let run = |series: &str| {
        let text = kept(series).with_context(|| {
            format!("no whole matrix of Linux {series} is kept, so {PAGE} stays: measure it first")
        })?;
        let (day, lines) = text.split_once('\n').unwrap_or((&text, ""));
        Ok((day.to_owned(), lines.lines().filter_map(Row::read).collect()))
    };
    SERIES.into_iter().map(run).collect()
}

/// Puts the matrix of a peer into the page, in the place of its last one. All else stays.
fn write_peer(rows: &[Row]) -> Result<()> {
    let path = workspace::root().join(PAGE);
    let before = fs::read_to_string(&path).with_context(|| format!("cannot read {PAGE}"))?;
    let (matrix, scripts) = scripts::split(&before);
    let matrix = page::with_peer(matrix, &page::render_peer(&today()?, rows));
    fs::write(path, page::with_peers_summed(&matrix) + &scripts::part(scripts))?;
    tell!("written: {PAGE}");
    Ok(())
}

/// The kernel and the initial file system of a guest with this kernel.
pub(crate) fn guest(series: &str) -> Result<[PathBuf; 2]> {
    need_root()?;
    let Image { kernel, initrd } = image::build(series)?;
    Ok([kernel, initrd])
}

/// A reduced matrix, for `cargo xtask test`.
pub(crate) fn reduced(listener: &Listener) -> Result<(Tally, String)> {
    need_root()?;
    let built = listener.hear(programs())?;
    if !built.success {
        return Ok((Tally::one(false), built.output));
    }
    let series = SERIES[0];
    let mut matrix = program(&image::build(series)?, series);
    matrix.arg("--reduced");
    let Heard { success, output } = listener.hear(matrix)?;
    let lines: Vec<String> = output.lines().map(str::to_owned).collect();
    let rows = rows(&lines);
    let count = |verdict: &str| rows.iter().filter(|row| row.verdict == verdict).count() as u32;
    let tally = Tally { passed: count("right"), failed: count("wrong") };
    let said = lines.iter().filter(|line| !line.starts_with('{')).map(|line| format!("{line}\n"));
    let (of_scripts, said_of_scripts) = scripts::reduced(listener)?;
    let all = tally.given(success && is_whole(&lines)).plus(of_scripts);
    Ok((all, said.collect::<String>() + &said_of_scripts))
}

/// What plays our end and what judges recordings, as `cargo xtask test` builds everything.
const PROGRAMS: &str =
    "build --workspace --all-features --bin roxe --example interop --example interop_scripts";

fn programs() -> Command {
    child::cargo(&format!("{PROGRAMS} --quiet"))
}

/// Builds it in sight: the first time that takes minutes.
fn build_programs() -> Result<()> {
    tell!("builds roxe and what plays the matrix: the first time this takes minutes");
    if child::show(child::cargo(PROGRAMS))? { Ok(()) } else { Err(Stop::Findings.into()) }
}

fn program(image: &Image, series: &str) -> Command {
    let mut command = matrix(series);
    command.arg(&image.kernel).arg(&image.initrd);
    command
}

/// With a host that is there, and our adapter that reaches it.
fn with((host, via): &(String, String)) -> Command {
    let mut command = matrix("peer");
    command.arg(format!("--peer={host}")).arg(format!("--via={via}"));
    command
}

/// The matrix, with the folder of its recordings.
fn matrix(folder: &str) -> Command {
    let debug = workspace::target().join("debug");
    let mut command = child::command(debug.join("examples/interop"));
    command.arg(folder_of(folder)).arg(debug.join("roxe"));
    command
}

/// What the command line says.
#[derive(Debug, Default, PartialEq, Eq)]
struct Chosen {
    series: Vec<String>,
    /// A host that is there instead of guests, and our adapter's device string.
    peer: Option<(String, String)>,
    /// Handed on: words that the names of batches must have, `--reduced`, `--keep`.
    words: Vec<String>,
    whole: bool,
    /// Nothing is measured: the page is written anew.
    page: bool,
    /// Nothing is measured: what could be is named.
    list: bool,
}

fn read(arguments: &[String]) -> Result<Chosen, Stop> {
    let mut chosen = Chosen::default();
    let (mut host, mut via) = (None, None);
    let mut words = arguments.iter();
    let usage = || Stop::Usage(usage());
    while let Some(word) = words.next() {
        match word.as_str() {
            "--kernel" => {
                chosen.series.push(words.next().ok_or_else(usage)?.clone());
            }
            "--peer" => host = Some(words.next().ok_or_else(usage)?.clone()),
            "--via" => via = Some(words.next().ok_or_else(usage)?.clone()),
            "--page" => chosen.page = true,
            "--list" => chosen.list = true,
            "--reduced" | "--keep" => chosen.words.push(word.clone()),
            option if option.starts_with('-') => return Err(usage()),
            _ => chosen.words.push(word.clone()),
        }
    }
    let measures = host.is_some() || !chosen.series.is_empty();
    if host.is_some() != via.is_some()
        || host.is_some() && !chosen.series.is_empty()
        || chosen.page && (chosen.list || measures || !chosen.words.is_empty())
        || chosen.list && measures
    {
        return Err(usage());
    }
    chosen.peer = host.zip(via);
    // That recordings stay changes nothing of what is measured. No other kernel has a place.
    chosen.whole = chosen.words.iter().all(|it| it == "--keep")
        && chosen.series.iter().all(|it| SERIES.contains(&it.as_str()));
    if chosen.series.is_empty() {
        chosen.series = SERIES.map(str::to_owned).to_vec();
    }
    Ok(chosen)
}

/// Before minutes go by with what is of no use without it.
fn need_root() -> Result<(), Stop> {
    const ROOT: &str = "root is needed for network namespaces, AF_XDP and the guest's network";
    if tools::is_root() { Ok(()) } else { Err(Stop::Missing(ROOT.into())) }
}

fn today() -> Result<String> {
    let output = Command::new("date").args(["-u", "+%Y-%m-%d"]).output().context("no date")?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// What may stand behind the command.
pub(crate) const WAYS: &str = "[--kernel SERIES]… [--reduced] [--keep] [WORD…]
--peer HOST[:PORT] --via DEVICE [--reduced] [--keep] [WORD…]
--list [--reduced] [WORD…]
--page
scripts [--kernel SERIES]… [WORD…]
scripts --page
guest [--kernel SERIES]
perf [--kernel SERIES] [--rounds N] [WORD…]";

/// What a mistake is answered with.
fn usage() -> String {
    let ways = WAYS.lines().map(|way| format!("cargo xtask interop {way}"));
    format!("usage: {}", ways.collect::<Vec<_>>().join("\n       "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_matrix_that_stops_is_no_whole_one() {
        let row = |verdict: &str| {
            serde_json::json!({
                "kernel": "k", "port": "p", "table": "t", "row": "r", "column": "c", "cells": 1,
                "seconds": 1.0, "verdict": verdict, "why": "",
            })
            .to_string()
        };
        let planned = r#"{"planned":2}"#.to_owned();
        assert!(is_whole(&[planned.clone(), row("right"), row("wrong")]));
        assert!(!is_whole(&[planned.clone(), row("wrong")]));
        assert!(!is_whole(&[planned]) && !is_whole(&[row("right")]) && !is_whole(&[]));
    }

    #[test]
    fn only_a_run_of_everything_is_whole() {
        let read = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
            read(&words).ok()
        };
        let all = read(&[]).unwrap();
        assert!(all.whole && all.series == ["6.1", "6.12"]);
        let one = read(&["--kernel", "6.12"]).unwrap();
        assert!(one.whole && one.series == ["6.12"]);
        assert!(!read(&["--reduced"]).unwrap().whole);
        let some = read(&["--kernel", "6.12", "RC SEND"]).unwrap();
        assert!(!some.whole && some.series == ["6.12"] && some.words == ["RC SEND"]);
        assert!(read(&["--keep"]).unwrap().whole);
        assert!(!read(&["--keep", "RC SEND"]).unwrap().whole);
        assert!(!read(&["--kernel", "6.1", "--kernel", "5.10"]).unwrap().whole);
        assert_eq!(read(&["--kernel"]), None);
        assert_eq!(read(&["--fast"]), None);
        let peer = read(&["--peer", "card:7000", "--via", "xdp:eth1"]).unwrap();
        assert!(peer.whole && peer.peer == Some(("card:7000".into(), "xdp:eth1".into())));
        assert_eq!(read(&["--peer", "card"]), None);
        assert_eq!(read(&["--peer", "card", "--via", "xdp:eth1", "--kernel", "6.1"]), None);
        assert!(read(&["--list", "SEND"]).unwrap().list);
        for wrong in [["--page", "SEND"], ["--page", "--list"], ["--list", "--kernel"]] {
            assert_eq!(read(&wrong), None, "{wrong:?}");
        }
        assert_eq!(read(&["--list", "--kernel", "6.1"]), None);
    }

    #[test]
    fn how_the_matrix_ended_is_how_the_command_ends() {
        let code = |code| ended(code).err().map(|stop| stop.exit_code());
        let codes = [Some(0), Some(1), Some(2), Some(3), None].map(code);
        assert_eq!(codes, [None, Some(1), Some(2), Some(3), Some(1)]);
    }

    #[test]
    fn a_page_has_each_kernel_or_is_not_written() {
        let row = serde_json::json!({
            "kernel": "x", "port": "AF_XDP", "table": "IPv4", "row": "RC SEND", "column": "both",
            "cells": 10, "seconds": 6.0, "verdict": "right", "why": "",
        });
        let both = runs(|series| Some(format!("day of {series}\n{row}\n{row}"))).unwrap();
        let found: Vec<_> = both.iter().map(|(day, rows)| (day.as_str(), rows.len())).collect();
        assert_eq!(found, [("day of 6.1", 2), ("day of 6.12", 2)]);
        let one = runs(|series| (series == "6.12").then(|| "today\n".to_owned()));
        let why = one.err().unwrap().to_string();
        assert!(why.contains("Linux 6.1 "), "{why}");
    }
}
