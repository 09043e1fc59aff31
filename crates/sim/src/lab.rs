//! Experiments of congestion control: a file says what is built and what must come of it.
//!
//! A lab has one or more runs of a [`Setup`], which differ in a few settings, and expectations of
//! their [figures](Figure). It says where the figures were published; where ours differ, why. The
//! language is on one page, `tests/labs/README.md`.

mod bounds;
mod completion;
mod figures;
mod setup;

use serde::Deserialize as _;
use toml::{Table, Value};

use crate::fabric::Fabric;

pub use completion::{FlowTime, SizeBin, flows_csv};
pub use figures::{Figure, Series};
pub use setup::Setup;

/// An experiment.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lab {
    /// What it is about.
    pub says: String,
    /// Where its figures were published; empty if nowhere.
    #[serde(default)]
    pub source: String,
    setup: Table,
    #[serde(default)]
    small: Table,
    #[serde(default)]
    run: Vec<Table>,
    /// What must come of it.
    #[serde(default)]
    pub expect: Vec<Expectation>,
}

/// What must come of a run.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expectation {
    /// Of which run; the only one if there is one.
    #[serde(default)]
    pub run: String,
    /// Which figure.
    pub figure: String,
    /// It is divided by the same figure of this run, of which 0 counts as 1.
    pub over: Option<String>,
    /// It is no less.
    pub at_least: Option<f64>,
    /// It is no more.
    pub at_most: Option<f64>,
    /// What was published.
    #[serde(default)]
    pub published: String,
    /// Why ours differs from it.
    #[serde(default)]
    pub why: String,
    /// It holds in the full experiment only.
    #[serde(default)]
    pub full_only: bool,
}

/// An expectation, and what came of it.
#[derive(Clone, Debug)]
pub struct Judged {
    /// What was expected.
    pub expected: Expectation,
    /// What it was; `None` when there is no such figure.
    pub value: Option<f64>,
}

impl Judged {
    /// Whether it was as expected.
    pub fn holds(&self) -> bool {
        let Expectation { at_least, at_most, .. } = self.expected;
        self.value.is_some_and(|value| {
            at_least.is_none_or(|least| value >= least) && at_most.is_none_or(|most| value <= most)
        })
    }
}

/// What came of one run.
#[derive(Clone, Debug)]
pub struct RunResult {
    /// Its name; empty for the only one.
    pub name: String,
    /// Its figures: the median of all repeats.
    pub figures: Vec<Figure>,
    /// What was seen from time to time, in the first repeat.
    pub series: Series,
    /// The flows that were done, of all repeats.
    pub flows: Vec<FlowTime>,
    /// How many hosts there were.
    pub hosts: usize,
    /// Events of all repeats.
    pub events: u64,
}

impl RunResult {
    /// A figure by its name.
    pub fn figure(&self, name: &str) -> Option<f64> {
        self.figures.iter().find(|figure| figure.name == name).map(|figure| figure.value)
    }

    /// By how much longer than alone flows took, by their length.
    pub fn slowdowns(&self) -> Vec<SizeBin> {
        completion::bins(&self.flows)
    }
}

/// What came of an experiment.
#[derive(Clone, Debug)]
pub struct Report {
    /// Each run.
    pub runs: Vec<RunResult>,
    /// Each expectation.
    pub judged: Vec<Judged>,
}

impl Lab {
    /// Reads a file.
    ///
    /// # Errors
    /// What is wrong with it, and where.
    pub fn parse(text: &str) -> Result<Self, String> {
        let lab: Self = toml::from_str(text).map_err(|error| error.to_string())?;
        let names = lab.check_names()?;
        let mut forms = Vec::new();
        for small in [false, true] {
            for name in &names {
                let setup = lab.setup(name, small)?;
                setup.check().map_err(|what| in_run(name, &what))?;
                forms.push((lab.words(name, small), setup));
            }
        }
        if let Some(word) = bounds::without_meaning(&forms) {
            let users = "topology, workload, congestion or burst_degree";
            return Err(format!("{word} means nothing here: no run has a {users} that uses it"));
        }
        for expected in &lab.expect {
            lab.check_expectation(expected, &names)?;
        }
        Ok(lab)
    }

    /// The names of its runs, no two of which are the same.
    fn check_names(&self) -> Result<Vec<String>, String> {
        if self.run.iter().filter_map(|run| run.get("name")).any(|name| !name.is_str()) {
            return Err("name: that of a run is a text".to_owned());
        }
        let names = self.names();
        let twice = names.iter().enumerate().find(|(at, name)| names[..*at].contains(name));
        match twice {
            Some((_, name)) if name.is_empty() => Err("two runs without a name".to_owned()),
            Some((_, name)) => Err(format!("two runs of the name `{name}`")),
            None => Ok(names),
        }
    }

    fn check_expectation(&self, expected: &Expectation, names: &[String]) -> Result<(), String> {
        let Expectation { run, figure, over, at_least, at_most, full_only, .. } = expected;
        for run in [Some(run), over.as_ref()].into_iter().flatten() {
            if !names.contains(run) {
                return Err(format!("figure {figure}: there is no run {run:?}"));
            }
            let forms: &[bool] = if *full_only { &[false] } else { &[false, true] };
            for small in forms {
                let known = self.setup(run, *small)?.figures();
                if !known.contains(figure) {
                    let known = known.join(", ");
                    return Err(in_run(run, &format!("no figure {figure:?}, only {known}")));
                }
            }
        }
        if at_least.is_none() && at_most.is_none() {
            return Err(format!("figure {figure}: nothing is expected of it"));
        }
        for (name, bound) in [("at_least", at_least), ("at_most", at_most)] {
            if bound.is_some_and(f64::is_nan) {
                return Err(format!("figure {figure}: {name} is no number"));
            }
        }
        match (at_least, at_most) {
            (Some(least), Some(most)) if least > most => {
                Err(format!("figure {figure}: at_least = {least} is more than at_most = {most}"))
            }
            _ => Ok(()),
        }
    }

    /// The names of its runs; an empty one if there is only one, without name.
    pub fn names(&self) -> Vec<String> {
        if self.run.is_empty() {
            return vec![String::new()];
        }
        let name = |run: &Table| match run.get("name") {
            Some(Value::String(name)) => name.clone(),
            _ => String::new(),
        };
        self.run.iter().map(name).collect()
    }

    /// How a run is built.
    ///
    /// # Errors
    /// A word that no setup has, or a value that it cannot have.
    pub fn setup(&self, name: &str, small: bool) -> Result<Setup, String> {
        let table = self.words(name, small);
        Setup::deserialize(Value::Table(table)).map_err(|error| in_run(name, &error.to_string()))
    }

    /// All words of a run.
    fn words(&self, name: &str, small: bool) -> Table {
        let mut table = self.setup.clone();
        if small {
            table.extend(self.small.clone());
        }
        let is_it =
            |run: &&Table| run.get("name").and_then(Value::as_str).unwrap_or_default() == name;
        let mut own = self.run.iter().find(is_it).cloned().unwrap_or_default();
        own.remove("name");
        table.extend(own);
        table
    }

    /// Does it. `small` is a shorter form; `progress` hears from time to time how much is done, 0
    /// to 1, and of which run.
    ///
    /// # Errors
    /// It cannot be built.
    pub fn run(&self, small: bool, progress: &mut dyn FnMut(&str, f64)) -> Result<Report, String> {
        let names = self.names();
        let mut runs = Vec::with_capacity(names.len());
        for (number, name) in names.iter().enumerate() {
            let setup = self.setup(name, small)?;
            let mut hear = |part: f64| {
                progress(name, (number as f64 + part) / names.len() as f64);
            };
            runs.push(run(name, &setup, &mut hear).map_err(|what| in_run(name, &what))?);
        }
        let figure = |run: &str, name: &str| {
            runs.iter().find(|known| known.name == run).and_then(|known| known.figure(name))
        };
        let judge = |expected: &Expectation| {
            let value = figure(&expected.run, &expected.figure);
            let value = match &expected.over {
                None => value,
                Some(over) => figure(over, &expected.figure)
                    .and_then(|below| Some(value? / if below == 0.0 { 1.0 } else { below })),
            };
            Judged { expected: expected.clone(), value }
        };
        let wanted = self.expect.iter().filter(|expected| !(small && expected.full_only));
        let judged = wanted.map(judge).collect();
        Ok(Report { runs, judged })
    }
}

fn in_run(name: &str, what: &str) -> String {
    if name.is_empty() {
        what.trim_end().to_owned()
    } else {
        format!("run {name}: {}", what.trim_end())
    }
}

fn run(name: &str, setup: &Setup, progress: &mut dyn FnMut(f64)) -> Result<RunResult, String> {
    let mut all: Vec<Vec<Figure>> = Vec::new();
    let mut first = None;
    let (mut events, mut hosts) = (0, 0);
    let mut flows = Vec::new();
    for repeat in 0..setup.repeats {
        let mut fabric = Fabric::new(setup.fabric(repeat)?)?;
        let (from, until) = (setup.begin_ps(), setup.until_ps());
        for step in 1..=STEPS {
            let at = until / STEPS * step;
            if fabric.now_ps() < from && at >= from {
                fabric.run(from);
                fabric.forget_longest();
            }
            fabric.run(at);
            let done = step as f64 / STEPS as f64;
            progress((f64::from(repeat) + done) / f64::from(setup.repeats));
        }
        (events, hosts) = (events + fabric.count, fabric.hosts());
        let done = completion::of(&fabric, setup, repeat);
        all.push(figures::of(&fabric, setup, &done));
        flows.extend(done);
        first.get_or_insert_with(|| Series::of(&fabric));
    }
    let median = |name: &str| {
        let of =
            |figures: &Vec<Figure>| figures.iter().find(|it| it.name == name).map(|it| it.value);
        let mut values: Vec<f64> = all.iter().filter_map(of).collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied().unwrap_or_default()
    };
    let figures = all.first().into_iter().flatten();
    let figures = figures
        .map(|figure| Figure { name: figure.name.clone(), value: median(&figure.name) })
        .collect();
    let (name, series) = (name.to_owned(), first.unwrap_or_default());
    Ok(RunResult { name, figures, series, flows, hosts, events })
}

/// How often progress is told in one repeat.
const STEPS: u64 = 100;

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
says = "two flows"
source = "none"
[setup]
topology = "dumbbell"
pairs = 2
buffer_kb = 1_000
workload = "pairs"
milliseconds = 2.0
[small]
milliseconds = 1.0
[[run]]
name = "pfc"
congestion = "none"
[[run]]
name = "dcqcn"
[[expect]]
run = "pfc"
figure = "pauses"
over = "dcqcn"
at_least = 2.0
[[expect]]
run = "dcqcn"
figure = "jain"
at_least = 1.5
full_only = true
"#;

    #[test]
    fn runs_differ_in_what_they_say_and_expectations_are_judged() {
        let lab = Lab::parse(TEXT).unwrap();
        assert_eq!(lab.names(), ["pfc", "dcqcn"]);
        let mut heard = Vec::new();
        let report = lab.run(true, &mut |run, part| heard.push((run.to_owned(), part))).unwrap();
        assert_eq!(heard.first(), Some(&("pfc".to_owned(), 0.005)));
        assert_eq!(heard.last(), Some(&("dcqcn".to_owned(), 1.0)));
        let [pfc, dcqcn] = &report.runs[..] else { panic!("{:?}", report.runs) };
        assert_eq!(pfc.figure("notifications"), Some(0.0));
        assert!(dcqcn.figure("notifications").unwrap() > 0.0);
        assert_eq!((report.judged.len(), report.judged[0].holds()), (1, true));
        let full = lab.run(false, &mut |_, _| ()).unwrap();
        assert_eq!((full.judged.len(), full.judged[1].holds()), (2, false));
        assert_eq!(pfc.series.columns.len(), pfc.series.rows[0].len());
    }

    #[test]
    fn mistakes_are_told() {
        for (from, to, says) in [
            ("pairs = 2", "pears = 2", "unknown field `pears`"),
            ("[[run]]", "[[ran]]", "unknown field `ran`"),
            ("pairs = 2", "pairs = 0", "pairs"),
            ("over = \"dcqcn\"", "over = \"none\"", "there is no run \"none\""),
            ("at_least = 2.0", "", "nothing is expected"),
            ("milliseconds = 2.0", "milliseconds = -2.0", "milliseconds"),
            ("name = \"dcqcn\"", "name = \"pfc\"", "two runs of the name `pfc`"),
            ("name = \"dcqcn\"", "name = 5", "name: that of a run is a text"),
            ("name = \"pfc\"", "[[run]]", "two runs without a name"),
            ("at_least = 2.0", "at_least = nan", "pauses: at_least is no number"),
            (
                "at_least = 2.0",
                "at_least = 2\nat_most = 1",
                "at_least = 2 is more than at_most = 1",
            ),
            (
                "\"jain\"",
                "\"fairness\"",
                "no figure \"fairness\", only utilisation, queue_mean_kb,",
            ),
            ("\"jain\"", "\"flow2_gbps\"", "flow0_gbps, flow1_gbps"),
            ("\"jain\"", "\"finished\"", "run dcqcn: no figure \"finished\""),
            ("workload = \"pairs\"", "workload = \"peers\"", "unknown variant `peers`"),
        ] {
            let told = Lab::parse(&TEXT.replacen(from, to, 1)).unwrap_err();
            assert!(told.contains(says), "{told}");
        }
    }

    #[test]
    fn lengths_and_times_that_are_too_long_overflow_nothing() {
        for (line, told) in [
            ("burst_kb = 5_000_000", "burst_kb = 5000000: 0 to 4000000 are possible"),
            (
                "xon_offset_kb = 5_000_000_000",
                "a length = 5000000000: 0 to 1000000000 are possible",
            ),
        ] {
            let text = TEXT.replace("pairs = 2\n", &format!("pairs = 2\n{line}\n"));
            let wrong = Lab::parse(&text).unwrap_err();
            assert!(wrong.ends_with(told), "{wrong}");
        }
        let late = "hosts = 140\nstagger_us = 1e9\n";
        let text = TEXT.replace("pairs = 2\n", late).replace("\"dumbbell\"", "\"star\"");
        let text = text.replace("workload = \"pairs\"", "workload = \"all-to-all\"");
        // Of so many flows there is no fairness to be expected.
        let lab = Lab::parse(text.split("[[expect]]").next().unwrap()).unwrap();
        let flows = lab.setup("pfc", false).unwrap().fabric(0).unwrap().flows;
        assert_eq!(flows.last().map(|flow| flow.start_ps), Some(u64::MAX));
    }

    #[test]
    fn the_only_run_needs_no_name_and_no_source() {
        let text = "says = \"one\"\n[setup]\nmilliseconds = 0.1\n[[run]]\nsenders = 1\n";
        let lab = Lab::parse(text).unwrap();
        assert_eq!((lab.source.as_str(), lab.setup("", false).unwrap().senders), ("", 1));
    }

    #[test]
    fn every_figure_of_a_run_is_known_before_it() {
        for setup in [
            "workload = \"pairs\"",
            "bytes = 1000",
            "hosts = 9\nworkload = \"all-to-all\"\nbytes = 1000",
            "hosts = 4\nburst_degree = 2\nburst_every_us = 50\nburst_bytes = 1000",
            "hosts = 4\nworkload = \"all-reduce\"\nbytes = 1000",
            "hosts = 8\nworkload = \"random\"\nsizes = \"hadoop\"",
        ] {
            let text = format!("says = \"figures\"\n[setup]\nmilliseconds = 0.2\n{setup}\n");
            let lab = Lab::parse(&text).unwrap();
            let known = lab.setup("", false).unwrap().figures();
            let report = lab.run(false, &mut |_, _| ()).unwrap();
            let figures = report.runs[0].figures.iter();
            let unknown: Vec<_> = figures.filter(|it| !known.contains(&it.name)).collect();
            assert!(unknown.is_empty(), "{setup}: {unknown:?}");
        }
    }

    #[test]
    fn rounds_of_rings_that_never_end_have_no_figure_of_theirs() {
        let setup = "hosts = 4\nworkload = \"all-reduce\"\nrounds = 1000000\n\
                     bytes = 1099511627776\nmilliseconds = 0.1\n";
        let lab = Lab::parse(&format!("says = \"long\"\n[setup]\n{setup}")).unwrap();
        let report = lab.run(false, &mut |_, _| ()).unwrap();
        assert_eq!(report.runs[0].figure("finished"), Some(0.0));
        assert_eq!(report.runs[0].figure("all_reduce_us"), None);
    }
}
