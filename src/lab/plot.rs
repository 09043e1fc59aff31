//! Pictures of what was seen over time.

use anyhow::{Result, anyhow};
use plotters::prelude::*;
use roxe_sim::lab::Series;

/// A picture in pixels.
const SIZE: (u32, u32) = (900, 700);

/// Two charts over time: the rate of each flow, and below it the watched queue.
pub(super) fn svg(series: &Series, title: &str) -> Result<String> {
    let mut text = String::new();
    draw(series, title, &mut text).map_err(|error| anyhow!("{title}: {error}"))?;
    Ok(text)
}

fn draw(series: &Series, title: &str, into: &mut String) -> Result<(), Box<dyn std::error::Error>> {
    let root = SVGBackend::with_string(into, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let (above, below) = root.split_vertically(SIZE.1 / 2);
    let rates: Vec<usize> = (RATES..series.columns.len()).collect();
    chart(&above, series, &rates, (title, "Gb/s"))?;
    chart(&below, series, &[QUEUE], ("queue", "kB"))?;
    root.present()?;
    Ok(())
}

/// A line for each of these columns.
fn chart(
    area: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
    series: &Series,
    columns: &[usize],
    (title, unit): (&str, &str),
) -> Result<(), Box<dyn std::error::Error>> {
    let most = |columns: &[usize]| {
        let of = |row: &Vec<f64>| {
            columns.iter().filter_map(|column| row.get(*column).copied()).max_by(f64::total_cmp)
        };
        series.rows.iter().filter_map(of).max_by(f64::total_cmp).unwrap_or_default()
    };
    // A chart of nothing has axes all the same.
    let (time, height) = (most(&[TIME]).max(1.0) / 1000.0, most(columns).max(0.001));
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(36)
        .y_label_area_size(64)
        .build_cartesian_2d(0.0..time, 0.0..height * 1.05)?;
    chart.configure_mesh().x_desc("ms").y_desc(unit).light_line_style(TRANSPARENT).draw()?;
    let step = series.rows.len().div_ceil(POINTS).max(1);
    for column in columns {
        // Of so many moments the mean: a picture has no room for more.
        let points = series.rows.chunks(step).filter_map(|rows| {
            let sum: f64 = rows.iter().filter_map(|row| row.get(*column)).sum();
            Some((rows.last()?.get(TIME)? / 1000.0, sum / rows.len() as f64))
        });
        let colour = Palette99::pick(*column);
        chart.draw_series(LineSeries::new(points, &colour))?;
    }
    Ok(())
}

/// The columns of a series.
const TIME: usize = 0;
const QUEUE: usize = 1;
const RATES: usize = 3;

/// Points of a line.
const POINTS: usize = 800;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_flow_and_the_queue_is_a_line() {
        let columns = ["time_us", "queue_kb", "pauses", "flow0_gbps", "flow1_gbps"];
        let row = |at: f64| vec![at * 10.0, at % 7.0, 0.0, 20.0, 10.0 + at % 3.0];
        let series = Series {
            columns: columns.map(str::to_owned).to_vec(),
            rows: (1..=5000).map(|at| row(f64::from(at))).collect(),
        };
        let text = svg(&series, "two <flows>").unwrap();
        assert!(text.starts_with("<svg") && text.contains("two &lt;flows&gt;"), "{text}");
        assert!(text.matches("<polyline").count() >= 3);
        assert!(text.len() < 200_000, "{}", text.len());
        assert!(svg(&Series::default(), "nothing").is_ok());
    }
}
