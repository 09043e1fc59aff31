//! How pictures are drawn: with plotters, as SVG or as pixels, with letters of our own, so that
//! every machine draws the same.

use std::error::Error;
use std::ops::Range;

use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint};
use plotters::element::DashedPathElement;
use plotters::prelude::*;
use plotters::style::register_font;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::axis::{Axis, number};
use super::{Chart, Dash, Form, Marks, Picture};

/// In pixels.
pub(super) const WIDTH: u32 = 1000;
const TITLE: u32 = 44;
const CHART: u32 = 270;
const LEGEND: u32 = 170;

type Drawn = Result<(), Box<dyn Error>>;
type Area<'a, B> = DrawingArea<B, Shift>;

/// Both letters of SVG, whose places are computed from them, and of pixels.
fn letters() -> Result<()> {
    register_font("sans-serif", FontStyle::Normal, include_bytes!("../labels.ttf"))
        .map_err(|_| anyhow!("the letters of pictures cannot be read"))
}

fn size(picture: &Picture) -> (u32, u32) {
    (WIDTH, TITLE + CHART * picture.charts.len().max(1) as u32)
}

pub(super) fn svg(picture: &Picture) -> Result<String> {
    letters()?;
    let mut text = String::new();
    let root = SVGBackend::with_string(&mut text, size(picture)).into_drawing_area();
    draw(&root, picture).map_err(|error| anyhow!("{}: {error}", picture.title))?;
    drop(root);
    Ok(text)
}

pub(super) fn png(picture: &Picture) -> Result<Vec<u8>> {
    letters()?;
    let (width, height) = size(picture);
    let mut pixels = vec![0; (width * height * 3) as usize];
    let root = BitMapBackend::with_buffer(&mut pixels, (width, height)).into_drawing_area();
    draw(&root, picture).map_err(|error| anyhow!("{}: {error}", picture.title))?;
    drop(root);
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, width, height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_compression(png::Compression::High);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(&pixels)?;
    writer.finish()?;
    Ok(bytes)
}

fn draw<B: DrawingBackend>(root: &Area<'_, B>, picture: &Picture) -> Drawn
where
    B::ErrorType: 'static,
{
    root.fill(&WHITE)?;
    let (head, body) = root.split_vertically(TITLE);
    let style = ("sans-serif", 22).into_font().color(&BLACK);
    head.draw(&Text::new(picture.title.clone(), (16, 14), style))?;
    for (area, chart) in
        body.split_evenly((picture.charts.len().max(1), 1)).iter().zip(&picture.charts)
    {
        draw_chart(area, chart)?;
    }
    root.present()?;
    Ok(())
}

fn draw_chart<B: DrawingBackend>(area: &Area<'_, B>, chart: &Chart) -> Drawn
where
    B::ErrorType: 'static,
{
    let (left, right) = area.split_horizontally(WIDTH - LEGEND);
    let points = || chart.marks.iter().flat_map(|marks| &marks.points);
    let x = Axis::of(&chart.scales.0, points().map(|point| point.0));
    let y = Axis::of(&chart.scales.1, points().map(|point| point.1));
    let mut context = ChartBuilder::on(&left)
        .caption(&chart.title, ("sans-serif", 17))
        .margin_top(4)
        .margin_bottom(8)
        .margin_left(8)
        .margin_right(16)
        .x_label_area_size(44)
        .y_label_area_size(72)
        .build_cartesian_2d(x.clone(), y.clone())?;
    context
        .configure_mesh()
        .x_desc(&chart.x)
        .y_desc(&chart.y)
        .x_label_formatter(&|at| x.label(*at))
        .y_label_formatter(&|at| y.label(*at))
        .label_style(("sans-serif", 15))
        .axis_desc_style(("sans-serif", 16))
        .bold_line_style(RGBColor(225, 225, 225))
        .light_line_style(TRANSPARENT)
        .draw()?;
    let bars = chart.marks.iter().filter(|marks| marks.form == Form::Bars).count();
    for (at, marks) in chart.marks.iter().enumerate() {
        let places = marks.points.iter().map(|(a, b)| (x.place(*a), y.place(*b)));
        let places: Vec<(f64, f64)> = places.collect();
        match marks.form {
            Form::Line => {
                context.draw_series(LineSeries::new(places, colour(at).stroke_width(2)))?;
            }
            Form::Limit(dash) => {
                let (size, gap) = dashes(dash);
                context.draw_series(DashedLineSeries::new(places, size, gap, LIMIT))?;
            }
            Form::Dots => {
                let dots = places.clone().into_iter();
                context.draw_series(LineSeries::new(places, colour(at).stroke_width(2)))?;
                context.draw_series(dots.map(|dot| Circle::new(dot, 3, colour(at).filled())))?;
            }
            Form::Bars => {
                let width = 0.8 / bars as f64;
                let left = |place: f64| place - 0.4 + width * at as f64;
                context.draw_series(places.iter().map(|(place, height)| {
                    let ends = [(left(*place), 0.0), (left(*place) + width * 0.92, *height)];
                    Rectangle::new(ends, colour(at).filled())
                }))?;
                let style = TextStyle::from(("sans-serif", 14).into_font());
                let style = style.pos(Pos::new(HPos::Center, VPos::Bottom));
                context.draw_series(marks.points.iter().zip(&places).map(
                    |(point, (place, height))| {
                        let middle = left(*place) + width * 0.46;
                        Text::new(number(point.1), (middle, *height), style.clone())
                    },
                ))?;
            }
        }
    }
    draw_names(&right, &chart.marks)
}

impl Ranged for Axis {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, at: &f64, (first, last): (i32, i32)) -> i32 {
        let part = (at - self.ends.0) / (self.ends.1 - self.ends.0);
        first + (part * f64::from(last - first)).round() as i32
    }

    fn key_points<H: KeyPointHint>(&self, hint: H) -> Vec<f64> {
        if hint.weight().allow_light_points() { Vec::new() } else { self.ticks.clone() }
    }

    fn range(&self) -> Range<f64> {
        self.ends.0..self.ends.1
    }
}

/// Beside the chart, so that no line is below them.
fn draw_names<B: DrawingBackend>(area: &Area<'_, B>, marks: &[Marks]) -> Drawn
where
    B::ErrorType: 'static,
{
    for (at, marks) in marks.iter().enumerate().filter(|(_, marks)| !marks.name.is_empty()) {
        let y = 40 + 22 * at as i32;
        let (style, (size, gap)) = match marks.form {
            Form::Limit(dash) => (LIMIT, dashes(dash)),
            Form::Line | Form::Dots => (colour(at).stroke_width(3), dashes(Dash::None)),
            Form::Bars => (colour(at).stroke_width(10), dashes(Dash::None)),
        };
        area.draw(&DashedPathElement::new([(0, y), (22, y)], size, gap, style))?;
        let text =
            ("sans-serif", 15).into_font().color(&BLACK).pos(Pos::new(HPos::Left, VPos::Center));
        area.draw(&Text::new(marks.name.clone(), (30, y), text))?;
    }
    Ok(())
}

/// Colours that those tell apart too who see no red or no green.
fn colour(at: usize) -> RGBColor {
    const COLOURS: [RGBColor; 8] = [
        RGBColor(0, 114, 178),
        RGBColor(213, 94, 0),
        RGBColor(0, 158, 115),
        RGBColor(204, 121, 167),
        RGBColor(86, 180, 233),
        RGBColor(230, 159, 0),
        RGBColor(90, 90, 90),
        RGBColor(150, 110, 60),
    ];
    COLOURS[at % COLOURS.len()]
}

/// Pixels of a dash, and of the gap behind it.
const fn dashes(dash: Dash) -> (u32, u32) {
    match dash {
        Dash::None => (WIDTH, 0),
        Dash::Long => (12, 6),
        Dash::Short => (2, 4),
    }
}

/// A limit's line.
const LIMIT: ShapeStyle =
    ShapeStyle { color: RGBAColor(110, 110, 110, 1.0), filled: false, stroke_width: 1 };
