//! `roxe sim lab`: experiments of congestion control, each from its file.

mod memory;
mod plot;

use std::fmt;
use std::fs::{self, File};
use std::io::{self, IsTerminal as _, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Error, Result, anyhow, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use roxe_sim::lab::{Judged, Lab, Report, RunResult, flows_csv};
use roxe_sim::text::text_of;

use crate::cli::LabArguments;
use crate::explain::ink::Ink;
use crate::explain::json::Object;
use crate::outcome::{Outcome, Verdicts, counted, name_of, visible};
use crate::table::Table;
use memory::Memory;

macro_rules! labs {
    ($($name:literal)*) => {
        /// Those that come with the program: the files of `tests/labs`.
        const LABS: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../tests/labs/", $name, ".toml")))),*];
    };
}

labs! {
    "all-reduce"
    "all-to-all"
    "hadoop"
    "incast-64"
    "incast-8"
    "incast-hpcc"
    "ml"
    "parking-lot"
    "scale"
    "storage"
    "two-flows"
    "two-flows-swift"
    "two-flows-timely"
    "two-senders"
    "victim-flow"
    "web-search"
}

/// The command.
pub(crate) fn run(arguments: &LabArguments) -> Result<Outcome> {
    let mut labs = Vec::new();
    if arguments.names.is_empty() {
        labs.extend(LABS.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())));
    }
    for name in &arguments.names {
        labs.push(find(name)?);
    }
    let mut parsed = Vec::with_capacity(labs.len());
    for (name, text) in labs {
        let told = visible(&name, |_| false);
        let lab = Lab::parse(&text).map_err(|what| anyhow!("{told}: {what}"))?;
        parsed.push((name, told, lab));
    }
    if !arguments.list {
        let folders = [&arguments.csv, &arguments.plot];
        folders.into_iter().flatten().try_for_each(|folder| make_folder(folder))?;
    }
    let mut out = Verdicts::to(io::stdout().lock());
    let mut outcome = Outcome::Right;
    for (name, told, lab) in parsed {
        if arguments.list {
            writeln!(out, "{told:<12} {}", lab.says)?;
            continue;
        }
        if !arguments.json {
            let mut ink = Ink::new(false);
            tell_what(&told, &lab, &mut ink);
            out.write_all(ink.bytes())?;
            out.flush()?;
        }
        let (start, memory) = (Instant::now(), Memory::watch());
        let mut bar = Bar::new(&told, arguments.json);
        let report = lab.run(arguments.small, &mut |run, part| bar.at(run, part));
        drop(bar);
        let report = report.map_err(|what| anyhow!("{told}: {what}"))?;
        let cost = Cost {
            seconds: start.elapsed().as_secs_f64(),
            events: report.runs.iter().map(|run| run.events).sum(),
            hosts: report.runs.iter().map(|run| run.hosts).max().unwrap_or_default(),
            memory: memory.most(),
        };
        if let Some(folder) = &arguments.csv {
            let count = write_tables(folder, &name, &report)?;
            tell_written(folder, &name, &told, count, "csv");
        }
        if let Some(folder) = &arguments.plot {
            let mut count = 0;
            let setup = |name: &String| lab.setup(name, arguments.small);
            let setups: Result<Vec<_>, String> = lab.names().iter().map(setup).collect();
            let setups = setups.map_err(|what| anyhow!("{told}: {what}"))?;
            for (end, picture) in plot::pictures(&name, &report, &setups) {
                write_file(folder, &format!("{name}{end}"), "svg", picture.svg()?.as_bytes())?;
                write_file(folder, &format!("{name}{end}"), "png", &picture.png()?)?;
                count += 1;
            }
            tell_written(folder, &name, &told, count, "{svg,png}");
        }
        let mut ink = Ink::new(false);
        if arguments.json {
            tell_json(&name, &report, &cost, &mut ink);
            if arguments.verbose {
                tell_json_in_full(&name, &report, &mut ink);
            }
        } else {
            tell(&report, arguments.verbose, &mut ink);
        }
        out.write_all(ink.bytes())?;
        out.flush()?;
        if !report.judged.iter().all(Judged::holds) {
            outcome = Outcome::Findings;
        }
        note(format_args!("{told}: {cost}\n"));
    }
    Ok(outcome)
}

/// The lab of this name, or the file: its name, and what it says.
fn find(name: &str) -> Result<(String, String)> {
    if let Some((name, text)) = LABS.iter().find(|(known, _)| *known == name) {
        return Ok(((*name).to_owned(), (*text).to_owned()));
    }
    let path = Path::new(name);
    // So is no file a lab that --csv or --plot writes.
    if path.extension().is_none_or(|end| end != "toml") {
        return Err(anyhow!("no lab {name:?}: --list names them; or name a file, FILE.toml"));
    }
    let told = name_of(path);
    // What is wrong with a file is told by its name; an error of the output has none.
    let unreadable = |error: io::Error| anyhow!("{told}: cannot be read: {error}");
    // Where nobody writes, a FIFO is not waited for.
    ensure!(path.metadata().map_err(unreadable)?.is_file(), "{told}: no lab: no regular file");
    let file = File::open(path).map_err(unreadable)?;
    let text = text_of(&told, "lab", file).map_err(Error::msg)?;
    Ok((path.file_stem().unwrap_or_default().to_string_lossy().into_owned(), text))
}

/// What is said beside the verdicts; if nobody hears it, the labs go on.
fn note(text: fmt::Arguments<'_>) {
    let _ = io::stderr().write_fmt(text);
}

/// How far a lab is: a bar on a terminal, elsewhere a line now and then.
struct Bar {
    name: String,
    bar: Option<ProgressBar>,
    told: Instant,
}

/// How often a line says how far it is.
const NOW_AND_THEN: Duration = Duration::from_secs(10);

impl Bar {
    fn new(name: &str, json: bool) -> Self {
        let watched = io::stderr().is_terminal() && !(json && io::stdout().is_terminal());
        let bar = watched.then(|| {
            let bar = ProgressBar::new(1000);
            let style = "{prefix} {msg} {wide_bar} {percent} %, {eta} left";
            if let Ok(style) = ProgressStyle::with_template(style) {
                bar.set_style(style);
            }
            bar.with_prefix(name.to_owned())
        });
        Self { name: name.to_owned(), bar, told: Instant::now() }
    }

    fn at(&mut self, run: &str, part: f64) {
        if let Some(bar) = &self.bar {
            bar.set_message(run.to_owned());
            bar.set_position((part * 1000.0) as u64);
        } else if !io::stderr().is_terminal() && self.told.elapsed() >= NOW_AND_THEN {
            self.told = Instant::now();
            let run = visible(run, |_| false);
            let run = if run.is_empty() { run } else { format!(" {run}") };
            note(format_args!("{}:{run} {:.0} %\n", self.name, part * 100.0));
        }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// What a lab took of the machine.
struct Cost {
    seconds: f64,
    events: u64,
    hosts: usize,
    /// The most memory of the process, in bytes, where the machine tells it.
    memory: Option<u64>,
}

impl Cost {
    fn events_a_second(&self) -> f64 {
        self.events as f64 / self.seconds.max(1e-9)
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seconds, events, hosts, memory } = self;
        let rate = self.events_a_second();
        write!(f, "{events} events in {seconds:.1} s of wall time, {rate:.0} a second")?;
        if let Some(bytes) = memory {
            let mib = *bytes as f64 / f64::from(1 << 20);
            let each = *bytes as f64 / 1024.0 / (*hosts).max(1) as f64;
            write!(f, "; {mib:.0} MiB, {each:.0} KiB for each of {hosts} hosts")?;
        }
        Ok(())
    }
}

/// Of each run what was seen over time and how long flows took, of the lab all figures. Says how
/// many files that are.
fn write_tables(folder: &Path, name: &str, report: &Report) -> Result<usize> {
    let mut count = 1;
    let mut figures = "run,figure,value\n".to_owned();
    let mut bins = "run,least_bytes,most_bytes,flows,p50,p95,p99\n".to_owned();
    for run in &report.runs {
        let title = format!("{name}{}", end_of(run));
        write_file(folder, &title, "csv", run.series.csv().as_bytes())?;
        count += 1;
        let cell = run.name.replace(['"', ',', '\n'], "_");
        for figure in &run.figures {
            figures += &format!("{cell},{},{:.6}\n", figure.name, figure.value);
        }
        for bin in run.slowdowns() {
            let (least, most, flows) = (bin.least_bytes, bin.most_bytes, bin.flows);
            let percentiles = format!("{:.3},{:.3},{:.3}", bin.p50, bin.p95, bin.p99);
            bins += &format!("{cell},{least},{most},{flows},{percentiles}\n");
        }
        if !run.flows.is_empty() {
            write_file(folder, &format!("{title}-flows"), "csv", flows_csv(&run.flows).as_bytes())?;
            count += 1;
        }
    }
    write_file(folder, &format!("{name}-figures"), "csv", figures.as_bytes())?;
    if report.runs.iter().any(|run| !run.flows.is_empty()) {
        write_file(folder, &format!("{name}-slowdown"), "csv", bins.as_bytes())?;
        count += 1;
    }
    Ok(count)
}

/// Says what was written of a lab.
fn tell_written(folder: &Path, name: &str, told: &str, count: usize, extensions: &str) {
    let noun = if extensions == "csv" { "table" } else { "picture" };
    let pattern = folder.join(format!("{}*.{extensions}", name.replace(['/', '\\'], "_")));
    let pattern = visible(&pattern.display().to_string(), |_| false);
    note(format_args!("{told}: written: {pattern}: {}\n", counted(count, noun)));
}

/// The end of the name of a run's files.
fn end_of(run: &RunResult) -> String {
    if run.name.is_empty() { String::new() } else { format!("-{}", run.name) }
}

/// Makes a folder, and tries whether files can be made there: before hours of work, not after.
fn make_folder(folder: &Path) -> Result<()> {
    let shown = folder.display();
    if folder.exists() && !folder.is_dir() {
        return Err(anyhow!("{shown} is no folder"));
    }
    fs::create_dir_all(folder).map_err(|error| anyhow!("{shown}: {error}"))?;
    let trial = folder.join(format!(".roxe-{}", std::process::id()));
    let tried = fs::write(&trial, b"").and_then(|()| fs::remove_file(&trial));
    tried.map_err(|error| anyhow!("{shown}: no file can be made there: {error}"))
}

/// A name of somebody else's does not choose the folder.
fn write_file(folder: &Path, title: &str, extension: &str, content: &[u8]) -> Result<()> {
    let path = folder.join(format!("{}.{extension}", title.replace(['/', '\\'], "_")));
    fs::write(&path, content).map_err(|error| anyhow!("{}: {error}", path.display()))
}

/// `≥ 0.98`
fn wanted(judged: &Judged) -> String {
    let bounds = [("≥", judged.expected.at_least), ("≤", judged.expected.at_most)];
    let bounds = bounds.iter().filter_map(|(sign, bound)| Some(format!("{sign} {}", (*bound)?)));
    bounds.collect::<Vec<_>>().join(", ")
}

/// With which run, and of which.
fn compared(judged: &Judged) -> String {
    match &judged.expected.over {
        Some(over) => format!("{} ÷ {over}", judged.expected.run),
        None => judged.expected.run.clone(),
    }
}

fn shown(value: Option<f64>) -> String {
    value.map_or_else(|| "none".to_owned(), |value| format!("{value:.3}"))
}

/// What a lab is about, before it is done.
fn tell_what(name: &str, lab: &Lab, ink: &mut Ink) {
    ink.str(&visible(&format!("{name}: {}", lab.says), |_| false));
    ink.str("\n");
    if !lab.source.is_empty() {
        ink.str(&visible(&format!("  from {}", lab.source), |_| false));
        ink.str("\n");
    }
}

/// Of a lab that expects nothing, all figures.
fn tell(report: &Report, verbose: bool, ink: &mut Ink) {
    let mut table = Table::new(["run", "figure", ">value", "wanted", "verdict", "published"]);
    for judged in &report.judged {
        let verdict = if judged.holds() { "ok" } else { "FAILED" };
        let expected = &judged.expected;
        table.row([
            compared(judged),
            expected.figure.clone(),
            shown(judged.value),
            wanted(judged),
            verdict.to_owned(),
            expected.published.clone(),
        ]);
    }
    if !report.judged.is_empty() {
        table.write(2, ink);
    }
    for expected in report.judged.iter().map(|judged| &judged.expected) {
        if !expected.why.is_empty() {
            let what = format!("  {} {}: {}", expected.run, expected.figure, expected.why);
            ink.str(&visible(&what, |_| false));
            ink.str("\n");
        }
    }
    if verbose || report.judged.is_empty() {
        let mut table = Table::new(["run", "figure", ">value"]);
        for run in &report.runs {
            for figure in &run.figures {
                table.row([run.name.clone(), figure.name.clone(), shown(Some(figure.value))]);
            }
        }
        table.write(2, ink);
    }
}

/// An object a figure and one a length of flows, one of what it cost, then one an expectation.
fn tell_json(name: &str, report: &Report, cost: &Cost, ink: &mut Ink) {
    for run in &report.runs {
        for figure in &run.figures {
            let mut object = Object::begin(ink);
            object.text("lab", name);
            object.text("run", &run.name);
            object.text("figure", &figure.name);
            object.decimal("value", figure.value);
            object.end();
        }
        for bin in run.slowdowns() {
            let mut object = Object::begin(ink);
            object.text("lab", name);
            object.text("run", &run.name);
            object.number("least_bytes", bin.least_bytes);
            object.number("most_bytes", bin.most_bytes);
            object.number("flows", bin.flows as u64);
            for (name, value) in [("p50", bin.p50), ("p95", bin.p95), ("p99", bin.p99)] {
                object.decimal(&format!("slowdown_{name}"), value);
            }
            object.end();
        }
    }
    let mut object = Object::begin(ink);
    object.text("lab", name);
    object.number("events", cost.events);
    object.decimal("seconds", cost.seconds);
    object.decimal("events_per_second", cost.events_a_second());
    object.number("hosts", cost.hosts as u64);
    if let Some(bytes) = cost.memory {
        object.number("memory_bytes", bytes);
    }
    object.end();
    for judged in &report.judged {
        let expected = &judged.expected;
        let mut object = Object::begin(ink);
        object.text("lab", name);
        object.text("run", &expected.run);
        if let Some(over) = &expected.over {
            object.text("over", over);
        }
        object.text("figure", &expected.figure);
        for (bound, value) in [
            ("value", judged.value),
            ("at_least", expected.at_least),
            ("at_most", expected.at_most),
        ] {
            if let Some(value) = value {
                object.decimal(bound, value);
            }
        }
        object.text("verdict", if judged.holds() { "ok" } else { "failed" });
        object.text("published", &expected.published);
        object.end();
    }
}

/// An object a flow that was done, and one a moment.
fn tell_json_in_full(name: &str, report: &Report, ink: &mut Ink) {
    for run in &report.runs {
        for flow in &run.flows {
            let mut object = Object::begin(ink);
            object.text("lab", name);
            object.text("run", &run.name);
            object.number("repeat", flow.repeat.into());
            object.number("from", flow.from as u64);
            object.number("to", flow.to as u64);
            object.number("bytes", flow.bytes);
            object.decimal("start_us", flow.start_us);
            object.decimal("took_us", flow.took_us);
            object.decimal("alone_us", flow.alone_us);
            object.decimal("slowdown", flow.slowdown());
            object.end();
        }
        for row in &run.series.rows {
            let mut object = Object::begin(ink);
            object.text("lab", name);
            object.text("run", &run.name);
            for (column, value) in run.series.columns.iter().zip(row) {
                object.decimal(column, *value);
            }
            object.end();
        }
    }
}

/// What stands behind a mistake on the command line.
pub(crate) fn names() -> String {
    LABS.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}
