//! The table: what was measured, beside its yardstick, and whether it is enough.

use std::fmt;

use crate::{What, median};

/// A line of the table.
pub(crate) struct Row {
    pub(crate) what: String,
    unit: Unit,
    pub(crate) figure: What,
    name: &'static str,
    pub(crate) yardstick: Option<What>,
    /// What of the yardstick can be expected.
    pub(crate) scale: f64,
    goal: Goal,
    /// What was measured, each time with its yardstick.
    pub(crate) pairs: Vec<(f64, Option<f64>)>,
}

/// What the figures are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    Gbps,
    Micros,
    /// Packets a second, shown in millions.
    Mpps,
}

/// What the ratio to the yardstick shall be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Goal {
    AtLeast(f64),
    AtMost(f64),
    None,
}

impl Row {
    pub(crate) fn new(
        what: String,
        unit: Unit,
        figure: What,
        name: &'static str,
        yardstick: What,
        goal: Goal,
    ) -> Self {
        let (yardstick, pairs) = (Some(yardstick), Vec::new());
        Self { what, unit, figure, name, yardstick, scale: 1.0, goal, pairs }
    }

    /// A figure without a yardstick.
    pub(crate) fn alone(what: String, unit: Unit, figure: What) -> Self {
        let (yardstick, pairs) = (None, Vec::new());
        Self { what, unit, figure, name: "", yardstick, scale: 1.0, goal: Goal::None, pairs }
    }

    fn figure(&self) -> f64 {
        median(&mut self.pairs.iter().map(|(figure, _)| *figure).collect::<Vec<_>>())
    }

    fn yardstick(&self) -> Option<f64> {
        self.yardstick?;
        Some(median(&mut self.pairs.iter().filter_map(|pair| pair.1).collect::<Vec<_>>()))
    }

    /// The median of the ratios of the pairs.
    fn ratio(&self) -> Option<f64> {
        let ratios = self.pairs.iter().filter_map(|(figure, yard)| Some(figure / (*yard)?));
        self.yardstick.map(|_| median(&mut ratios.collect::<Vec<_>>()))
    }

    fn verdict(&self) -> String {
        let Some(ratio) = self.ratio() else { return String::new() };
        let by = match self.goal {
            Goal::AtLeast(goal) => (goal - ratio) / goal,
            Goal::AtMost(goal) => (ratio - goal) / goal,
            Goal::None => return String::new(),
        };
        if by <= 0.0 { "met".to_owned() } else { format!("missed by {:.0} %", by * 100.0) }
    }

    /// What each column shows.
    fn cells(&self) -> [String; 7] {
        let shown = |value| format!("{:.2}", self.unit.of(value));
        [
            self.what.clone(),
            format!("{} {}", shown(self.figure()), self.unit),
            self.yardstick().map_or_else(String::new, |it| format!("{} {}", shown(it), self.unit)),
            self.name.to_owned(),
            self.ratio().map_or_else(String::new, |it| format!("{it:.2}")),
            self.goal.to_string(),
            self.verdict(),
        ]
    }
}

impl Unit {
    fn of(self, value: f64) -> f64 {
        if self == Self::Mpps { value / 1e6 } else { value }
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gbps => "Gb/s",
            Self::Micros => "µs",
            Self::Mpps => "M/s",
        })
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtLeast(goal) => write!(f, "≥ {goal}"),
            Self::AtMost(goal) => write!(f, "≤ {goal}"),
            Self::None => Ok(()),
        }
    }
}

const HEADS: [&str; 7] = ["what", "figure", "yardstick", "of", "ratio", "target", "verdict"];

/// Aligned columns for people.
pub(crate) fn print(rows: &[Row]) {
    let cells: Vec<_> = rows.iter().map(Row::cells).collect();
    let width = |column: usize| {
        let longest = cells.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        longest.max(HEADS[column].len())
    };
    let widths: [usize; 7] = std::array::from_fn(width);
    let line = |row: [&str; 7]| {
        let cell = |(column, text): (usize, &&str)| {
            let width = widths[column];
            // Numbers end at the same place.
            if matches!(column, 1 | 2 | 4) {
                format!("{text:>width$}")
            } else {
                format!("{text:<width$}")
            }
        };
        println!("{}", row.iter().enumerate().map(cell).collect::<Vec<_>>().join("  ").trim_end());
    };
    line(HEADS);
    for row in &cells {
        line(std::array::from_fn(|column| row[column].as_str()));
    }
}

/// A flat object a row.
pub(crate) fn json(rows: &[Row]) {
    for row in rows {
        let number =
            |value: Option<f64>| value.map_or_else(|| "null".to_owned(), |it| format!("{it:.4}"));
        let yardstick = row.yardstick().map(|it| row.unit.of(it));
        println!(
            "{{\"what\":\"{}\",\"unit\":\"{}\",\"figure\":{:.4},\"yardstick\":{},\"of\":\"{}\",\
             \"ratio\":{},\"target\":\"{}\",\"verdict\":\"{}\"}}",
            row.what,
            row.unit,
            row.unit.of(row.figure()),
            number(yardstick),
            row.name,
            number(row.ratio()),
            row.goal,
            row.verdict()
        );
    }
}

/// Puts the table between the two comments of a page.
pub(crate) fn markdown(file: &str, rows: &[Row], pairs: usize) -> std::io::Result<()> {
    let page = std::fs::read_to_string(file)?;
    let [before, after] = [BEGIN, END].map(|mark| page.find(mark));
    let (Some(before), Some(after)) = (before, after) else {
        return Err(std::io::Error::other(format!("it has no {BEGIN} and {END}")));
    };
    let mut table = format!("{BEGIN}\n{}. {pairs} pairs.\n\n", machine());
    let mut line = |row: &[String]| table += &format!("| {} |\n", row.join(" | "));
    line(&HEADS.map(str::to_owned));
    line(&["---", "--:", "--:", "---", "--:", "---", "---"].map(str::to_owned));
    rows.iter().for_each(|row| line(&row.cells()));
    std::fs::write(file, format!("{}{table}\n{}", &page[..before], &page[after..]))
}

/// Processor and kernel.
fn machine() -> String {
    let read = |file| std::fs::read_to_string(file).unwrap_or_default();
    let cpus = read("/proc/cpuinfo");
    let model = cpus.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let count = cpus.lines().filter(|line| line.starts_with("processor")).count();
    let kernel = read("/proc/sys/kernel/osrelease");
    let model = model.map_or("unknown processor", |(_, name)| name);
    format!("{count} × {model}, Linux {}", kernel.trim())
}

const BEGIN: &str = "<!-- bench -->";
const END: &str = "<!-- /bench -->";
