//! Two senders and a receiver around a Linux bridge: DCQCN over a real queue, beside the simulator.
//!
//! `cargo xtask labs --kernel` runs it, as root, with what the simulator made of the same lab,
//! `tests/labs/two-senders.toml`, from which this takes rates, thresholds and sizes:
//!
//! ```text
//! kernel_congestion LAB.toml SIMULATED-FOLDER [--csv FOLDER] [--plot FOLDER] [--markdown FILE]
//! kernel_congestion LAB.toml --capture FILE.pcapng
//! ```
//!
//! The second form records at the receiver what passes when each sender sends 24 KiB.
//!
//! Four network namespaces: three hosts and the bridge between them. The bridge's port to the
//! receiver is as slow as the lab's cables (tbf), and marks by the length of its queue
//! (`bpf/mark_ce.bpf.c`). A sender is paced at the rate of its cable from the start; the run
//! without control differs in that the receiver tells nobody of marks.

#[path = "../../crates/net/tests/namespace/mod.rs"]
mod namespace;
mod picture;
mod setup;
mod world;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};

use crate::picture::Series;
use crate::setup::Setup;
use crate::world::Outcome;

fn main() -> ExitCode {
    if !namespace::is_root() {
        return ExitCode::from(3);
    }
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("kernel_congestion: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// What is asked for.
struct Arguments {
    lab: PathBuf,
    simulated: Option<PathBuf>,
    capture: Option<PathBuf>,
    csv: Option<PathBuf>,
    plot: Option<PathBuf>,
    markdown: Option<PathBuf>,
}

fn arguments() -> Result<Arguments> {
    let (mut named, mut capture) = (Vec::new(), None);
    let (mut csv, mut plot, mut markdown) = (None, None, None);
    let mut words = std::env::args_os().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().map(PathBuf::from).context("an option has no value");
        match word.to_str() {
            Some("--capture") => capture = Some(value()?),
            Some("--csv") => csv = Some(value()?),
            Some("--plot") => plot = Some(value()?),
            Some("--markdown") => markdown = Some(value()?),
            _ => named.push(PathBuf::from(word)),
        }
    }
    let mut named = named.into_iter();
    let (lab, simulated) = (named.next().context("which lab?")?, named.next());
    Ok(Arguments { lab, simulated, capture, csv, plot, markdown })
}

fn run() -> Result<()> {
    let arguments = arguments()?;
    let setup = Setup::read(&arguments.lab)?;
    if let Some(file) = &arguments.capture {
        let options = format!(",capture={}", file.display());
        return world::play(&setup.recorded(), "dcqcn", &options).map(|_| ());
    }
    let simulated = arguments.simulated.context("where is what the simulator wrote?")?;
    let name = arguments.lab.file_stem().context("the lab has no name")?.to_string_lossy();
    let mut table = String::from(HEADINGS);
    for run in &setup.runs {
        eprintln!("{name}, {run}: over the kernel");
        let outcome = world::play(&setup, run, "")?;
        table += &row(run, &outcome);
        let title = format!("{name}-{run}");
        let simulated = Series::read(&simulated.join(format!("{title}.csv")))?;
        if let Some(folder) = &arguments.csv {
            write(folder, &format!("{title}-kernel.csv"), &outcome.series.csv())?;
        }
        if let Some(folder) = &arguments.plot {
            let both = [("Linux bridge, tbf", &outcome.series), ("simulator", &simulated)];
            write(folder, &format!("{title}.svg"), &picture::svg(both, run, setup.gbps)?)?;
        }
    }
    print!("{table}");
    arguments.markdown.map_or(Ok(()), |page| put(&page, &table))
}

fn write(folder: &Path, name: &str, text: &str) -> Result<()> {
    let path = folder.join(name);
    fs::create_dir_all(folder).and_then(|()| fs::write(&path, text)).context(name.to_owned())
}

const HEADINGS: &str = "\
| run | ended after | marked | CNPs | cut to, at least | lost | sent again | longest queue |
| --- | --: | --: | --: | --: | --: | --: | --: |
";

fn row(run: &str, outcome: &Outcome) -> String {
    let Outcome { ended, marked, handled, least, dropped, again, queue, .. } = outcome;
    let ended = ended.map(|time| format!("{:.2} s", time.as_secs_f64())).join(", ");
    let least = least.map(|rate| format!("{:.0} Mb/s", rate / 1e6)).join(", ");
    let queue = f64::from(*queue) / 1e3;
    let of_port = format!("{marked} | {handled} | {least} | {dropped} | {again} | {queue:.0} kB");
    format!("| {run} | {ended} | {of_port} |\n")
}

/// Puts the table between the two comments of a page.
fn put(page: &Path, table: &str) -> Result<()> {
    let text = fs::read_to_string(page).with_context(|| page.display().to_string())?;
    let [begin, end] = ["<!-- kernel -->\n", "<!-- /kernel -->\n"];
    let parts = text.split_once(begin).and_then(|(before, rest)| {
        let (_, after) = rest.split_once(end)?;
        Some((before, after))
    });
    let Some((before, after)) = parts else { bail!("{}: no place for it", page.display()) };
    fs::write(page, format!("{before}{begin}{table}{end}{after}")).context("cannot write the page")
}
