//! `roxe sim lab`: experiments of congestion control, each from its file.

mod plot;

use std::fmt;
use std::fs;
use std::io::{self, IsTerminal as _, Write as _};
use std::path::Path;
use std::time::Instant;

use anyhow::{Context as _, Result, anyhow};
use indicatif::{ProgressBar, ProgressStyle};
use roxe_sim::lab::{Judged, Lab, Report, Series};

use crate::cli::LabArguments;
use crate::explain::ink::Ink;
use crate::explain::json::Object;
use crate::outcome::{Outcome, Verdicts, visible};
use crate::table::Table;

macro_rules! labs {
    ($($name:literal)*) => {
        /// Those that come with the program: the files of `tests/labs`.
        const LABS: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../tests/labs/", $name, ".toml")))),*];
    };
}

labs! {
    "incast-64"
    "incast-8"
    "incast-hpcc"
    "parking-lot"
    "scale"
    "storage"
    "two-flows"
    "two-flows-swift"
    "two-flows-timely"
    "two-senders"
    "victim-flow"
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
    let mut out = Verdicts::to(io::stdout().lock());
    let mut outcome = Outcome::Right;
    for (name, text) in labs {
        let told = visible(&name, |_| false);
        let lab = Lab::parse(&text).map_err(|what| anyhow!("{told}: {what}"))?;
        if arguments.list {
            writeln!(out, "{told:<12} {}", lab.says)?;
            continue;
        }
        let start = Instant::now();
        let bar = Bar::new(&told, arguments.json);
        let report = lab.run(arguments.small, &mut |run, part| bar.at(run, part));
        drop(bar);
        let report = report.map_err(|what| anyhow!("{told}: {what}"))?;
        if let Some(folder) = &arguments.csv {
            write_series(folder, &name, &report, "csv", |series, _| Ok(series.csv()))?;
        }
        if let Some(folder) = &arguments.plot {
            write_series(folder, &name, &report, "svg", plot::svg)?;
        }
        let mut ink = Ink::new(false);
        if arguments.json {
            tell_json(&name, &report, &mut ink);
        } else {
            tell(&told, &lab, &report, arguments.verbose, &mut ink);
        }
        out.write_all(ink.bytes())?;
        out.flush()?;
        if !report.judged.iter().all(Judged::holds) {
            outcome = Outcome::Findings;
        }
        let events: u64 = report.runs.iter().map(|run| run.events).sum();
        let seconds = start.elapsed().as_secs_f64();
        note(format_args!(
            "{told}: {events} events in {seconds:.1} s, {:.0} a second\n",
            events as f64 / seconds.max(1e-9)
        ));
    }
    Ok(outcome)
}

/// The lab of this name, or the file: its name, and what it says.
fn find(name: &str) -> Result<(String, String)> {
    if let Some((name, text)) = LABS.iter().find(|(known, _)| *known == name) {
        return Ok(((*name).to_owned(), (*text).to_owned()));
    }
    let path = Path::new(name);
    if path.extension().is_none() {
        return Err(anyhow!("no lab {name:?}: --list names them; or name a file, FILE.toml"));
    }
    let text = fs::read_to_string(path).with_context(|| format!("{name}: cannot be read"));
    // What is wrong with a file is told by its name; an error of the output has none.
    let text = text.map_err(|error| anyhow!("{error:#}"))?;
    Ok((path.file_stem().unwrap_or_default().to_string_lossy().into_owned(), text))
}

/// What is said beside the verdicts; if nobody hears it, the labs go on.
fn note(text: fmt::Arguments<'_>) {
    let _ = io::stderr().write_fmt(text);
}

/// How far a lab is, on a terminal.
struct Bar(Option<ProgressBar>);

impl Bar {
    fn new(name: &str, json: bool) -> Self {
        let watched = io::stderr().is_terminal() && !(json && io::stdout().is_terminal());
        Self(watched.then(|| {
            let bar = ProgressBar::new(1000);
            let style = "{prefix} {msg} {wide_bar} {percent} %, {eta} left";
            if let Ok(style) = ProgressStyle::with_template(style) {
                bar.set_style(style);
            }
            bar.with_prefix(name.to_owned())
        }))
    }

    fn at(&self, run: &str, part: f64) {
        if let Some(bar) = &self.0 {
            bar.set_message(run.to_owned());
            bar.set_position((part * 1000.0) as u64);
        }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}

/// A file of each run: what was seen over time, as `write` writes it of the series and its title.
fn write_series(
    folder: &Path,
    name: &str,
    report: &Report,
    extension: &str,
    write: impl Fn(&Series, &str) -> Result<String>,
) -> Result<()> {
    let told = |path: &Path, error: &io::Error| anyhow!("{}: {error}", path.display());
    fs::create_dir_all(folder).map_err(|error| told(folder, &error))?;
    for run in &report.runs {
        let end = if run.name.is_empty() { String::new() } else { format!("-{}", run.name) };
        // A name of somebody else's does not choose the folder.
        let title = format!("{name}{end}").replace(['/', '\\'], "_");
        let path = folder.join(format!("{title}.{extension}"));
        let text = write(&run.series, &title)?;
        fs::write(&path, text).map_err(|error| told(&path, &error))?;
    }
    Ok(())
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

fn tell(name: &str, lab: &Lab, report: &Report, verbose: bool, ink: &mut Ink) {
    ink.str(&visible(&format!("{name}: {}", lab.says), |_| false));
    ink.str("\n");
    ink.str(&visible(&format!("  from {}", lab.source), |_| false));
    ink.str("\n");
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
    table.write(2, ink);
    for expected in report.judged.iter().map(|judged| &judged.expected) {
        if !expected.why.is_empty() {
            let what = format!("  {} {}: {}", expected.run, expected.figure, expected.why);
            ink.str(&visible(&what, |_| false));
            ink.str("\n");
        }
    }
    if verbose {
        let mut table = Table::new(["run", "figure", ">value"]);
        for run in &report.runs {
            for figure in &run.figures {
                table.row([run.name.clone(), figure.name.clone(), shown(Some(figure.value))]);
            }
        }
        table.write(2, ink);
    }
}

/// An object a figure, then one an expectation.
fn tell_json(name: &str, report: &Report, ink: &mut Ink) {
    for run in &report.runs {
        for figure in &run.figures {
            let mut object = Object::begin(ink);
            object.text("lab", name);
            object.text("run", &run.name);
            object.text("figure", &figure.name);
            object.decimal("value", figure.value);
            object.end();
        }
    }
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

/// What stands behind a mistake on the command line.
pub(crate) fn names() -> String {
    LABS.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}
