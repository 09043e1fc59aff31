//! Rates and queue over time, of the kernel and of the simulator side by side.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use plotters::coord::Shift;
use plotters::prelude::*;

/// What was seen from time to time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Series(Vec<Moment>);

#[derive(Clone, Copy, Debug)]
struct Moment {
    seconds: f64,
    queue_kb: f64,
    /// Of each sender.
    gbps: [f64; 2],
}

impl Series {
    pub(crate) const fn new() -> Self {
        Self(Vec::new())
    }

    pub(crate) fn push(&mut self, time: Duration, queue_kb: f64, gbps: [f64; 2]) {
        self.0.push(Moment { seconds: time.as_secs_f64(), queue_kb, gbps });
    }

    /// What `roxe sim lab --csv` wrote.
    ///
    /// # Errors
    /// It cannot be read, or has other columns.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
        let mut lines = text.lines();
        let titles: Vec<&str> = lines.next().unwrap_or_default().split(',').collect();
        let column = |name: &str| {
            let at = titles.iter().position(|title| *title == name);
            at.with_context(|| format!("{}: no column {name}", path.display()))
        };
        let names = ["time_us", "queue_kb", "flow0_gbps", "flow1_gbps"];
        let columns = names.map(column).into_iter().collect::<Result<Vec<_>>>()?;
        let moment = |line: &str| {
            let cells: Vec<f64> = line.split(',').map_while(|cell| cell.parse().ok()).collect();
            let cell = |at: usize| cells.get(columns[at]).copied();
            let gbps = [cell(2)?, cell(3)?];
            Some(Moment { seconds: cell(0)? / 1e6, queue_kb: cell(1)?, gbps })
        };
        let moments = lines.map(moment).collect::<Option<_>>();
        moments.map(Self).with_context(|| format!("{}: a row is broken", path.display()))
    }

    pub(crate) fn csv(&self) -> String {
        let mut text = "time_us,queue_kb,flow0_gbps,flow1_gbps\n".to_owned();
        for Moment { seconds, queue_kb, gbps: [one, other] } in &self.0 {
            let _ = writeln!(text, "{:.0},{queue_kb:.3},{one:.4},{other:.4}", seconds * 1e6);
        }
        text
    }

    /// The rate of a sender over time, each the mean of what was seen around.
    fn rate(&self, sender: usize) -> impl Iterator<Item = (f64, f64)> + '_ {
        self.0.iter().map(move |at| {
            let is_near = |it: &&Moment| (it.seconds - at.seconds).abs() <= AROUND;
            let near = self.0.iter().filter(is_near).map(|it| it.gbps[sender]);
            let (sum, count) = near.fold((0.0, 0.0), |(sum, count), it| (sum + it, count + 1.0));
            (at.seconds, sum / count)
        })
    }

    /// How long something is sent.
    fn seconds(&self) -> f64 {
        let busy = self.0.iter().rfind(|it| it.gbps.iter().any(|gbps| *gbps > 0.001));
        busy.map_or(0.0, |it| it.seconds)
    }

    fn longest_queue(&self) -> f64 {
        self.0.iter().map(|it| it.queue_kb).max_by(f64::total_cmp).unwrap_or_default()
    }
}

const SIZE: (u32, u32) = (1100, 620);
/// Rates are means of so many seconds before and after.
const AROUND: f64 = 0.025;

const FONT: (&str, u32) = ("sans-serif", 15);
const COLOURS: [RGBColor; 2] = [RGBColor(0, 90, 181), RGBColor(220, 90, 20)];
const QUEUE: RGBColor = RGBColor(90, 90, 90);

/// Above rates, below queues; a column each.
pub(crate) fn svg(columns: [(&str, &Series); 2], run: &str, gbps: f64) -> Result<String> {
    let mut text = String::new();
    draw(columns, run, gbps, &mut text).map_err(|error| anyhow!("{run}: {error}"))?;
    Ok(text)
}

fn draw(
    columns: [(&str, &Series); 2],
    run: &str,
    gbps: f64,
    into: &mut String,
) -> Result<(), Box<dyn std::error::Error>> {
    let most = |of: fn(&Series) -> f64| {
        columns.iter().map(|(_, series)| of(series)).max_by(f64::total_cmp).unwrap_or_default()
    };
    // The same axes in both columns.
    let seconds = most(Series::seconds) * 1.03;
    let queue = most(Series::longest_queue).max(1.0) * 1.1;
    let root = SVGBackend::with_string(into, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let areas = root.split_evenly((2, 2));
    for (at, (title, series)) in columns.into_iter().enumerate() {
        let moments = &series.0;
        let mut rates =
            axes(&areas[at], (seconds, gbps * 1.4), "Mb/s", &format!("{title}: {run}"))?;
        for (sender, colour) in COLOURS.into_iter().enumerate() {
            let line =
                rates.draw_series(LineSeries::new(series.rate(sender), colour.stroke_width(2)))?;
            let sample =
                move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2));
            line.label(format!("sender {}", sender + 1)).legend(sample);
        }
        let mut labels = rates.configure_series_labels();
        labels.position(SeriesLabelPosition::UpperRight).label_font(FONT);
        labels.background_style(WHITE.mix(0.8)).draw()?;
        let mut queues = axes(&areas[at + 2], (seconds, queue), "kB", "queue to the receiver")?;
        let points = moments.iter().map(|it| (it.seconds, it.queue_kb));
        queues.draw_series(LineSeries::new(points, QUEUE))?;
    }
    root.present()?;
    Ok(())
}

type Chart<'a, 'b> = ChartContext<
    'a,
    SVGBackend<'b>,
    Cartesian2d<plotters::coord::types::RangedCoordf64, plotters::coord::types::RangedCoordf64>,
>;

/// Seconds to the right, up to `height` upwards: Gb/s, shown in Mb/s, or kB.
fn axes<'a, 'b>(
    area: &'a DrawingArea<SVGBackend<'b>, Shift>,
    (seconds, height): (f64, f64),
    unit: &str,
    title: &str,
) -> Result<Chart<'a, 'b>, Box<dyn std::error::Error>> {
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 18))
        .margin(10)
        .x_label_area_size(38)
        .y_label_area_size(60)
        .build_cartesian_2d(0.0..seconds, 0.0..height)?;
    let shown = |value: &f64| match unit {
        "Mb/s" => format!("{:.0}", value * 1000.0),
        _ => format!("{value:.0}"),
    };
    let mut mesh = chart.configure_mesh();
    mesh.x_desc("seconds").y_desc(unit).axis_desc_style(FONT).label_style(FONT);
    mesh.x_labels(8).y_labels(6).light_line_style(TRANSPARENT).y_label_formatter(&shown).draw()?;
    Ok(chart)
}
