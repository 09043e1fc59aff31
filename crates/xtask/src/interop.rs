//! `cargo xtask interop`: the adapter against Linux's own, `rdma_rxe`, in a virtual machine.

mod archive;
mod image;
mod kernel;
mod page;
mod perf;
mod scripts;

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};

use crate::child::{self, Heard, Listener};
use crate::interop::image::Image;
use crate::interop::page::Row;
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

/// The command.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    match arguments.split_first() {
        Some((word, rest)) if word == "scripts" => return scripts::run(rest),
        Some((word, rest)) if word == "perf" => return perf::run(rest),
        _ => {}
    }
    let chosen = read(arguments)?;
    if chosen.page {
        return write_page();
    }
    let needs = if chosen.peer.is_some() { &[] } else { NEEDS };
    tools::ensure_present(&[tools::BUILD, needs].concat())?;
    if !child::show(programs())? {
        return Err(Stop::Findings.into());
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
                write_page()?;
            }
        }
    }
    say!("{all} batches, {wrong} of them wrong");
    if wrong == 0 { Ok(()) } else { Err(Stop::Findings.into()) }
}

/// Plays a matrix; what it prints comes back.
fn play(mut matrix: Command, words: &[String]) -> Result<Vec<String>> {
    matrix.args(words).stdout(Stdio::piped());
    let mut matrix = matrix.spawn().context("cannot run the matrix")?;
    let output = matrix.stdout.take().context("a pipe that was asked for")?;
    let lines: Vec<String> = BufReader::new(output).lines().map_while(Result::ok).collect();
    let status = matrix.wait().context("cannot wait for the matrix")?;
    if status.code() == Some(3) {
        return Err(Stop::Missing(ROOT.into()).into());
    }
    let rows = rows(&lines);
    if !status.success() && wrong_of(&rows) == 0 || rows.is_empty() {
        return Err(anyhow::anyhow!("the matrix did not come to its end"));
    }
    Ok(lines)
}

fn rows(lines: &[String]) -> Vec<Row> {
    lines.iter().filter_map(|it| Row::read(it)).collect()
}

fn wrong_of(rows: &[Row]) -> usize {
    rows.iter().filter(|row| row.verdict == "wrong").count()
}

/// Where the rows of a kernel's whole matrix are kept, behind the day.
fn kept(series: &str) -> PathBuf {
    workspace::target().join("interop/runs").join(series).join("rows")
}

/// Makes the page of what is kept: each kernel's last whole matrix.
fn write_page() -> Result<()> {
    let mut runs = Vec::new();
    for series in SERIES {
        let Ok(text) = fs::read_to_string(kept(series)) else { continue };
        let (day, lines) = text.split_once('\n').unwrap_or((&text, ""));
        runs.push((day.to_owned(), lines.lines().filter_map(Row::read).collect()));
    }
    let path = workspace::root().join(PAGE);
    let before = fs::read_to_string(&path).unwrap_or_default();
    let (matrix, scripts) = scripts::split(&before);
    fs::write(path, page::render(&runs, page::peers(matrix)) + &scripts::part(scripts))?;
    tell!("written: {PAGE}");
    Ok(())
}

/// Puts the matrix of a peer into the page, in the place of its last one. All else stays.
fn write_peer(rows: &[Row]) -> Result<()> {
    let path = workspace::root().join(PAGE);
    let before = fs::read_to_string(&path).with_context(|| format!("cannot read {PAGE}"))?;
    let (matrix, scripts) = scripts::split(&before);
    let matrix = page::with_peer(matrix, &page::render_peer(&today()?, rows));
    fs::write(path, matrix + &scripts::part(scripts))?;
    tell!("written: {PAGE}");
    Ok(())
}

/// A reduced matrix, for `cargo xtask test`.
pub(crate) fn reduced(listener: &Listener) -> Result<(Tally, String)> {
    let built = listener.hear(programs())?;
    if !built.success {
        return Ok((Tally::one(false), built.output));
    }
    let series = SERIES[0];
    let mut matrix = program(&image::build(series)?, series);
    matrix.arg("--reduced");
    let Heard { success, output } = listener.hear(matrix)?;
    let rows: Vec<Row> = output.lines().filter_map(Row::read).collect();
    let count = |verdict: &str| rows.iter().filter(|row| row.verdict == verdict).count() as u32;
    let tally = Tally { passed: count("right"), failed: count("wrong") };
    let said = output.lines().filter(|line| !line.starts_with('{')).map(|line| format!("{line}\n"));
    let (of_scripts, said_of_scripts) = scripts::reduced(listener)?;
    let all = tally.given(success && !rows.is_empty()).plus(of_scripts);
    Ok((all, said.collect::<String>() + &said_of_scripts))
}

/// Builds what plays our end and what judges recordings, as `cargo xtask test` builds everything.
fn programs() -> Command {
    child::cargo(
        "build --quiet --workspace --all-features --bin roxe --example interop \
         --example interop_scripts",
    )
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
    command.arg(workspace::target().join("interop/runs").join(folder)).arg(debug.join("roxe"));
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
}

fn read(arguments: &[String]) -> Result<Chosen, Stop> {
    let mut chosen = Chosen::default();
    let (mut host, mut via) = (None, None);
    let mut words = arguments.iter();
    let usage = || Stop::Usage(USAGE.into());
    while let Some(word) = words.next() {
        match word.as_str() {
            "--kernel" => {
                chosen.series.push(words.next().ok_or_else(usage)?.clone());
            }
            "--peer" => host = Some(words.next().ok_or_else(usage)?.clone()),
            "--via" => via = Some(words.next().ok_or_else(usage)?.clone()),
            "--page" => chosen.page = true,
            "--reduced" | "--keep" => chosen.words.push(word.clone()),
            option if option.starts_with('-') => return Err(usage()),
            _ => chosen.words.push(word.clone()),
        }
    }
    if host.is_some() != via.is_some() || host.is_some() && !chosen.series.is_empty() {
        return Err(usage());
    }
    chosen.peer = host.zip(via);
    chosen.whole = chosen.words.is_empty();
    if chosen.series.is_empty() {
        chosen.series = SERIES.map(str::to_owned).to_vec();
    }
    Ok(chosen)
}

fn today() -> Result<String> {
    let output = Command::new("date").args(["-u", "+%Y-%m-%d"]).output().context("no date")?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

const USAGE: &str = "usage: cargo xtask interop [--kernel SERIES]… | --peer HOST[:PORT] \
     --via DEVICE [--reduced] [--keep] [WORD…] | --page";
const ROOT: &str = "root is needed for network namespaces, AF_XDP and the guest's network";

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(read(&["--kernel"]), None);
        assert_eq!(read(&["--fast"]), None);
        let peer = read(&["--peer", "card:7000", "--via", "xdp:eth1"]).unwrap();
        assert!(peer.whole && peer.peer == Some(("card:7000".into(), "xdp:eth1".into())));
        assert_eq!(read(&["--peer", "card"]), None);
        assert_eq!(read(&["--peer", "card", "--via", "xdp:eth1", "--kernel", "6.1"]), None);
    }
}
