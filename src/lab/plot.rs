//! Pictures of what came of a lab: of each run over time, and of all runs beside each other.
//!
//! What is drawn is here, as numbers and words; how, in [`draw`].

mod axis;
mod draw;

use anyhow::Result;
use roxe_sim::lab::{Report, RunResult, Series, Setup, SizeBin};

use axis::Scale;

/// Charts one below the other, of one width.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Picture {
    title: String,
    charts: Vec<Chart>,
}

/// A chart.
#[derive(Clone, Debug, PartialEq)]
struct Chart {
    title: String,
    /// What is told from left to right, with its unit.
    x: String,
    /// What is told upwards, with its unit.
    y: String,
    scales: (Scale, Scale),
    marks: Vec<Marks>,
}

/// What is drawn in one colour, and named beside the chart.
#[derive(Clone, Debug, PartialEq)]
struct Marks {
    name: String,
    form: Form,
    points: Vec<(f64, f64)>,
}

/// How it is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// A line through all points.
    Line,
    /// The same, each point shown.
    Dots,
    /// A thin grey line: a limit, nothing that was seen.
    Limit(Dash),
    /// A bar up to each point, with its height written above it.
    Bars,
}

/// What tells grey lines apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dash {
    /// It has no gaps.
    None,
    Long,
    Short,
}

impl Picture {
    /// As SVG.
    pub(super) fn svg(&self) -> Result<String> {
        draw::svg(self)
    }

    /// As PNG.
    pub(super) fn png(&self) -> Result<Vec<u8>> {
        draw::png(self)
    }
}

/// The pictures of a lab, each with the end of its file's name: one of each run over time, and
/// of all runs together what they have in common.
pub(super) fn pictures(name: &str, report: &Report, setups: &[Setup]) -> Vec<(String, Picture)> {
    let runs = report.runs.iter().zip(setups);
    let mut pictures: Vec<(String, Picture)> = runs
        .map(|(run, setup)| {
            let end = if run.name.is_empty() { String::new() } else { format!("-{}", run.name) };
            let title = format!("{name}{end}");
            (end, Picture { title, charts: over_time(&run.series, setup) })
        })
        .collect();
    for (end, title, charts) in [
        ("-slowdown", "how much longer flows took than alone", slowdown(&report.runs)),
        ("-pauses", "pauses (PFC) by who heard them", vec![pauses(&report.runs)]),
    ] {
        if charts.iter().any(|chart| !chart.marks.is_empty()) {
            let title = format!("{name}: {title}");
            pictures.push((end.to_owned(), Picture { title, charts }));
        }
    }
    pictures
}

/// Rates, the watched queue, ports that are stopped and fairness.
fn over_time(series: &Series, setup: &Setup) -> Vec<Chart> {
    let line = |name: &str, column: usize| Marks {
        name: name.to_owned(),
        form: Form::Line,
        points: means(series, |row| row.get(column).copied().unwrap_or_default()),
    };
    let limit = |name: &str, value: f64, dash| Marks {
        name: name.to_owned(),
        form: Form::Limit(dash),
        points: match ends(series) {
            Some((first, last)) => vec![(first, value), (last, value)],
            None => Vec::new(),
        },
    };
    let chart_on = |scale, title: &str, y: &str, marks| Chart {
        title: title.to_owned(),
        x: "time (ms)".to_owned(),
        y: y.to_owned(),
        scales: (Scale::Linear, scale),
        marks,
    };
    let chart = |title: &str, y: &str, marks| chart_on(Scale::FromZero, title, y, marks);
    let flows = series.columns.len().saturating_sub(RATES);
    let mut charts = Vec::new();
    if flows > 0 {
        charts.push(chart("payload that arrives", "rate (Gb/s)", rates(series)));
    }
    let mut queue = vec![line("queue", QUEUE)];
    let most = queue[0].points.iter().map(|(_, kb)| *kb).fold(0.0, f64::max);
    // A limit far above all that was seen would only hide it.
    let limits = [("Kmin", setup.kmin_kb, Dash::Short), ("Kmax", setup.kmax_kb, Dash::Long)];
    for (name, kb, dash) in limits {
        if setup.ecn && kb as f64 <= most * 3.0 {
            queue.push(limit(&format!("{name}, {kb} kB"), kb as f64, dash));
        }
    }
    charts.push(chart("queue at the watched port", "queue (kB)", queue));
    if series.rows.iter().any(|row| row.get(STOPPED).is_some_and(|stopped| *stopped > 0.0)) {
        let marks = vec![line("stopped", STOPPED)];
        charts.push(chart("ports that are stopped by a pause", "ports", marks));
    }
    if flows > 1 {
        let marks = vec![line("Jain", JAIN), limit("all equal", 1.0, Dash::None)];
        let title = "fairness of rates in the last 1 ms";
        charts.push(chart_on(Scale::ToOne, title, "Jain's index", marks));
    }
    charts
}

/// Each flow, or of many the least, the mean and the most.
fn rates(series: &Series) -> Vec<Marks> {
    let marks = |name: String, points| Marks { name, form: Form::Line, points };
    let flows = series.columns.len() - RATES;
    if flows <= NAMED {
        let flow = |flow| {
            let rate = |row: &[f64]| row.get(RATES + flow).copied().unwrap_or_default();
            marks(format!("flow {flow}"), means(series, rate))
        };
        return (0..flows).map(flow).collect();
    }
    let each: Vec<Vec<(f64, f64)>> = (RATES..RATES + flows)
        .map(|column| means(series, |row| row.get(column).copied().unwrap_or_default()))
        .collect();
    let over = |name: &str, fold: fn(&[f64]) -> f64| {
        let moments = 0..each.first().map_or(0, Vec::len);
        let point = |at: usize| {
            let values: Vec<f64> = each.iter().map(|points| points[at].1).collect();
            (each[0][at].0, fold(&values))
        };
        marks(name.to_owned(), moments.map(point).collect())
    };
    vec![
        over(&format!("most of {flows}"), |all| all.iter().copied().fold(0.0, f64::max)),
        over("mean", |all| all.iter().sum::<f64>() / all.len() as f64),
        over("least", |all| all.iter().copied().fold(f64::INFINITY, f64::min)),
    ]
}

/// A chart of the middle, and one of the worst of a hundred.
fn slowdown(runs: &[RunResult]) -> Vec<Chart> {
    let bins: Vec<(&str, Vec<SizeBin>)> = runs
        .iter()
        .map(|run| (&*run.name, run.slowdowns()))
        .filter(|(_, bins)| bins.len() > 1)
        .collect();
    let chart = |title: &str, of: fn(&SizeBin) -> f64| Chart {
        title: title.to_owned(),
        x: "length of the flow (bytes)".to_owned(),
        y: "times alone".to_owned(),
        scales: (Scale::Log, Scale::Log),
        marks: bins
            .iter()
            .map(|(name, bins)| Marks {
                name: (*name).to_owned(),
                form: Form::Dots,
                points: bins.iter().map(|bin| (bin.most_bytes as f64, of(bin))).collect(),
            })
            .collect(),
    };
    vec![
        chart("half of the flows took no longer (p50)", |bin| bin.p50),
        chart("99 of 100 took no longer (p99)", |bin| bin.p99),
    ]
}

/// Pause frames that hosts and switches of each tier heard, a bar a run.
fn pauses(runs: &[RunResult]) -> Chart {
    let heard = |run: &RunResult, tier: &str| run.figure(&format!("{tier}_pauses"));
    let mut tiers = vec!["host", "edge", "aggregation", "spine"];
    tiers.retain(|tier| runs.iter().any(|run| heard(run, tier).is_some_and(|count| count > 0.0)));
    let marks = runs.iter().map(|run| Marks {
        name: run.name.clone(),
        form: Form::Bars,
        points: tiers
            .iter()
            .enumerate()
            .map(|(at, tier)| (at as f64, heard(run, tier).unwrap_or_default()))
            .collect(),
    });
    Chart {
        title: String::new(),
        x: "who was told to stop".to_owned(),
        y: "pauses".to_owned(),
        scales: (Scale::Words(tiers.clone()), Scale::FromZero),
        marks: if tiers.is_empty() { Vec::new() } else { marks.collect() },
    }
}

/// Of so many moments the mean: a picture has no room for more. Milliseconds, and `of` a row.
fn means(series: &Series, of: impl Fn(&[f64]) -> f64) -> Vec<(f64, f64)> {
    let step = series.rows.len().div_ceil(POINTS).max(1);
    let point = |rows: &[Vec<f64>]| {
        let sum: f64 = rows.iter().map(|row| of(row)).sum();
        Some((rows.last()?.get(TIME)? / 1000.0, sum / rows.len() as f64))
    };
    series.rows.chunks(step).filter_map(point).collect()
}

/// The first and the last moment, in milliseconds.
fn ends(series: &Series) -> Option<(f64, f64)> {
    let at = |row: &Vec<f64>| row.get(TIME).map(|us| us / 1000.0);
    Some((at(series.rows.first()?)?, at(series.rows.last()?)?))
}

/// The columns of a series.
const TIME: usize = 0;
const QUEUE: usize = 1;
const STOPPED: usize = 3;
const JAIN: usize = 4;
const RATES: usize = 5;

/// Points of a line.
const POINTS: usize = 400;

/// Of so many flows each has a line.
const NAMED: usize = 8;

#[cfg(test)]
mod tests {
    use roxe_sim::lab::FlowTime;

    use super::*;

    fn series(flows: usize, moments: u32) -> Series {
        let columns = ["time_us", "queue_kb", "pauses", "paused_ports", "jain"].map(str::to_owned);
        let rates = (0..flows).map(|flow| format!("flow{flow}_gbps"));
        let row = |at: f64| {
            let head = [at * 10.0, at % 7.0, 0.0, f64::from(u8::from(at > 100.0)), 0.9];
            head.into_iter().chain((0..flows).map(|flow| 10.0 + flow as f64)).collect()
        };
        Series {
            columns: columns.into_iter().chain(rates).collect(),
            rows: (1..=moments).map(|at| row(f64::from(at))).collect(),
        }
    }

    fn report(flows: usize) -> Report {
        let took = |bytes: u64| FlowTime {
            repeat: 0,
            from: 0,
            to: 1,
            bytes,
            start_us: 0.0,
            took_us: 4.0,
            alone_us: 2.0,
        };
        let run = RunResult {
            name: "a <b>".to_owned(),
            figures: Vec::new(),
            series: series(flows, 5000),
            flows: (1..=100).map(|at| took(at * 1000)).collect(),
            hosts: 2,
            events: 0,
        };
        Report { runs: vec![run], judged: Vec::new() }
    }

    fn words(picture: &Picture) -> Vec<&str> {
        picture.charts.iter().flat_map(|chart| &chart.marks).map(|marks| &*marks.name).collect()
    }

    #[test]
    fn each_flow_has_a_line_and_many_have_three() {
        let few = pictures("lab", &report(2), &[Setup::default()]);
        let [(end, over_time), (other, slowdown)] = &few[..] else { panic!("{few:?}") };
        assert_eq!((end.as_str(), other.as_str()), ("-a <b>", "-slowdown"));
        assert_eq!(words(slowdown), ["a <b>"; 2]);
        let lines = words(over_time);
        assert_eq!(
            lines,
            ["flow 0", "flow 1", "queue", "Kmin, 5 kB", "stopped", "Jain", "all equal"]
        );
        let many = pictures("lab", &report(64), &[Setup::default()]);
        assert_eq!(words(&many[0].1)[..3], ["most of 64", "mean", "least"]);
        let least = &many[0].1.charts[0].marks[2].points;
        assert!(least.len() <= POINTS && least.iter().all(|point| point.1 == 10.0));
    }

    #[test]
    fn limits_that_are_drawn_together_have_dashes_of_their_own() {
        let setup = Setup { kmin_kb: 3, kmax_kb: 6, ..Setup::default() };
        let of_two = pictures("lab", &report(2), &[setup]);
        let queue = &of_two[0].1.charts[1].marks;
        let forms: Vec<Form> = queue.iter().map(|marks| marks.form).collect();
        assert_eq!(forms, [Form::Line, Form::Limit(Dash::Short), Form::Limit(Dash::Long)]);
        assert_eq!(queue[2].name, "Kmax, 6 kB");
    }

    #[test]
    fn pauses_are_told_of_tiers_that_heard_some() {
        use roxe_sim::lab::Figure;
        let mut report = report(0);
        let count = |name: &str, value| Figure { name: name.to_owned(), value };
        report.runs[0].figures = vec![count("host_pauses", 0.0), count("spine_pauses", 7.0)];
        let chart = pauses(&report.runs);
        assert_eq!(chart.scales.0, Scale::Words(vec!["spine"]));
        assert_eq!(chart.marks[0].points, [(0.0, 7.0)]);
        report.runs[0].figures.clear();
        assert!(pauses(&report.runs).marks.is_empty());
    }

    #[test]
    fn pictures_are_svg_and_png() {
        for (_, picture) in pictures("two <flows>", &report(2), &[Setup::default()]) {
            let text = picture.svg().unwrap();
            assert!(text.starts_with("<svg") && text.contains("two &lt;flows&gt;"), "{text}");
            assert!(text.contains("<polyline") && text.len() < 200_000, "{}", text.len());
            let bytes = picture.png().unwrap();
            let decoder = png::Decoder::new(std::io::Cursor::new(bytes));
            let mut reader = decoder.read_info().unwrap();
            let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
            let info = reader.next_frame(&mut pixels).unwrap();
            assert_eq!((info.width, info.color_type), (draw::WIDTH, png::ColorType::Rgb));
            let inked = pixels.chunks(3).filter(|pixel| *pixel != [255; 3]).count();
            assert!(inked > 5000, "{inked}");
        }
        let nothing = Picture {
            title: "nothing".into(),
            charts: over_time(&Series::default(), &Setup::default()),
        };
        assert!(nothing.svg().is_ok() && nothing.png().is_ok());
    }
}
