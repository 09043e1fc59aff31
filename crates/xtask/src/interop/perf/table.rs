//! What adapters did, a row a work: medians, how far runs differ, and ratios.

use serde_json::Value;

/// A comparison.
#[derive(Debug, Default)]
pub(super) struct Table {
    kernel: String,
    /// How roxe had AF_XDP in the guest.
    af_xdp: String,
    rows: Vec<Row>,
}

/// The same work of each adapter.
#[derive(Debug)]
struct Row {
    name: String,
    unit: String,
    less_is_better: bool,
    /// Of each adapter, in the order of [`ADAPTERS`]: what each run measured.
    figures: [Vec<f64>; 3],
}

/// As they are called in the table, behind their names in what is read.
const ADAPTERS: [(&str, &str); 3] = [("rxe", "rxe"), ("xdp", "roxe, AF_XDP"), ("udp", "roxe, UDP")];

impl Table {
    /// Of what the comparison prints: an object a line.
    pub(super) fn of(lines: impl Iterator<Item = String>) -> Self {
        let mut table = Self::default();
        for line in lines {
            let Ok(value) = serde_json::from_str::<Value>(&line) else { continue };
            let text = |key: &str| value[key].as_str().unwrap_or_default().to_owned();
            if value["kernel"].is_string() {
                (table.kernel, table.af_xdp) = (text("kernel"), text("af_xdp"));
                continue;
            }
            let adapter = ADAPTERS.iter().position(|(name, _)| value["adapter"] == *name);
            let (Some(adapter), Some(figure)) = (adapter, value["figure"].as_f64()) else {
                continue;
            };
            table.row(&value, text("row"), text("unit")).figures[adapter].push(figure);
        }
        table
    }

    /// The row of this name, made if it is new.
    fn row(&mut self, value: &Value, name: String, unit: String) -> &mut Row {
        let at = self.rows.iter().position(|row| row.name == name).unwrap_or_else(|| {
            let less_is_better = value["less_is_better"] == true;
            self.rows.push(Row { name, unit, less_is_better, figures: Default::default() });
            self.rows.len() - 1
        });
        &mut self.rows[at]
    }

    /// Aligned columns.
    pub(super) fn for_people(&self) -> String {
        let rows: Vec<[String; COLUMNS]> =
            std::iter::once(heads()).chain(self.rows.iter().map(Row::cells)).collect();
        let width =
            |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let widths: [usize; COLUMNS] = std::array::from_fn(width);
        let line = |row: &[String; COLUMNS]| {
            let cell = |(column, text): (usize, &String)| match widths[column] {
                width if is_number(column) => format!("{text:>width$}"),
                width => format!("{text:<width$}"),
            };
            row.iter().enumerate().map(cell).collect::<Vec<_>>().join("  ").trim_end().to_owned()
        };
        let lines: Vec<String> = rows.iter().map(line).collect();
        format!("{}\n\n{}", self.about(), lines.join("\n"))
    }

    /// The page with this table between its marks; [`None`] where it has none.
    pub(super) fn into_page(self, page: &str, day: &str) -> Option<String> {
        let (before, rest) = page.split_once(BEGIN)?;
        let (_, after) = rest.split_once(END)?;
        let line = |cells: [String; COLUMNS]| format!("| {} |\n", cells.join(" | "));
        let rule = |column| if is_number(column) { "--:" } else { "---" }.to_owned();
        let mut table = line(heads()) + &line(std::array::from_fn(rule));
        self.rows.iter().for_each(|row| table += &line(row.cells()));
        let about = self.about();
        Some(format!("{before}{BEGIN}\n{day}: {about}\n\n{table}\n{END}{after}"))
    }

    fn about(&self) -> String {
        let rounds = self.rows.iter().map(|row| row.figures[0].len()).min().unwrap_or(0);
        let Self { kernel, af_xdp, .. } = self;
        format!("two guests with Linux {kernel}, AF_XDP: {af_xdp}; rounds: {rounds}.")
    }
}

const COLUMNS: usize = 8;

fn heads() -> [String; COLUMNS] {
    let [rxe, xdp, udp] = ADAPTERS.map(|(_, shown)| shown);
    ["what", "unit", rxe, xdp, "× rxe", udp, "× rxe", "roxe is"].map(str::to_owned)
}

/// Numbers end at the same place.
const fn is_number(column: usize) -> bool {
    matches!(column, 2..=6)
}

impl Row {
    fn cells(&self) -> [String; COLUMNS] {
        let [rxe, xdp, udp] = [0, 1, 2].map(|adapter| shown(&self.figures[adapter]));
        let [by_xdp, by_udp] = [1, 2].map(|adapter| self.times(adapter));
        let times = |it: Option<f64>| it.map_or_else(String::new, |it| format!("{it:.2}"));
        let verdict = match [1, 2].map(|adapter| self.verdict(adapter)) {
            [on_xdp, on_udp] if on_xdp == on_udp => on_xdp.to_owned(),
            [on_xdp, on_udp] => format!("{on_xdp}; over UDP {on_udp}"),
        };
        let (name, unit) = (self.name.clone(), self.unit.clone());
        [name, unit, rxe, xdp, times(by_xdp), udp, times(by_udp), verdict]
    }

    /// Where an adapter is beside rxe. It is even if the medians are no farther from each other
    /// than single runs of the two are from theirs.
    fn verdict(&self, adapter: usize) -> &'static str {
        let Some(times) = self.times(adapter) else { return "" };
        let spread = [0, adapter].map(|it| spread(&self.figures[it]).unwrap_or(0.0));
        match times {
            times if times.max(1.0 / times) - 1.0 <= spread[0].max(spread[1]) => EVEN,
            times if times > 1.0 => "ahead",
            _ => "behind",
        }
    }

    /// How many times as fast as rxe an adapter is, by medians.
    fn times(&self, adapter: usize) -> Option<f64> {
        let (rxe, own) = (median(&self.figures[0])?, median(&self.figures[adapter])?);
        Some(if self.less_is_better { rxe / own } else { own / rxe })
    }
}

/// The median, and behind it how far runs are from it, in percent.
fn shown(figures: &[f64]) -> String {
    let of = median(figures).zip(spread(figures));
    of.map_or_else(String::new, |(middle, far)| format!("{middle:.1} ±{:.0} %", far * 100.0))
}

/// How far the run that is farthest from the median is from it, as a part of it.
fn spread(figures: &[f64]) -> Option<f64> {
    let middle = median(figures)?;
    let far = figures.iter().map(|figure| (figure - middle).abs()).fold(0.0, f64::max);
    Some(far / middle)
}

fn median(figures: &[f64]) -> Option<f64> {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    let upper = *sorted.get(sorted.len() / 2)?;
    Some(if sorted.len().is_multiple_of(2) {
        f64::midpoint(sorted[sorted.len() / 2 - 1], upper)
    } else {
        upper
    })
}

const EVEN: &str = "even (within the spread)";

const BEGIN: &str = "<!-- rxe -->";
const END: &str = "<!-- /rxe -->";

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let run = |row: &str, adapter: &str, figure: f64, less_is_better: bool| {
            let unit = if less_is_better { "µs" } else { "Mb/s" };
            serde_json::json!({
                "row": row, "adapter": adapter, "unit": unit, "figure": figure,
                "less_is_better": less_is_better,
            })
            .to_string()
        };
        let mut lines = vec![r#"{"kernel":"6.1.0","af_xdp":"native, copy"}"#.to_owned()];
        for (rxe, xdp, udp) in [(100.0, 300.0, 90.0), (110.0, 200.0, 99.0), (90.0, 100.0, 120.0)] {
            for (adapter, figure) in [("rxe", rxe), ("xdp", xdp), ("udp", udp)] {
                lines.push(run("WRITE", adapter, figure, false));
                lines.push(run("one way", adapter, figure, true));
            }
        }
        Table::of(lines.into_iter())
    }

    #[test]
    fn a_ratio_beyond_the_spread_is_ahead_or_behind_whatever_the_figure_is() {
        let expected = "\
two guests with Linux 6.1.0, AF_XDP: native, copy; rounds: 3.

what     unit          rxe  roxe, AF_XDP  × rxe   roxe, UDP  × rxe  roxe is
WRITE    Mb/s  100.0 ±10 %   200.0 ±50 %   2.00  99.0 ±21 %   0.99  ahead; over UDP EVEN
one way  µs    100.0 ±10 %   200.0 ±50 %   0.50  99.0 ±21 %   1.01  behind; over UDP EVEN";
        assert_eq!(table().for_people(), expected.replace("EVEN", EVEN));
    }

    #[test]
    fn the_page_keeps_all_but_what_stands_between_the_marks() {
        let page =
            "# Page\n<!-- bench -->\n1\n<!-- /bench -->\n<!-- rxe -->\nold\n<!-- /rxe -->\nend\n";
        let new = table().into_page(page, "today").unwrap();
        let head = "# Page\n<!-- bench -->\n1\n<!-- /bench -->\n<!-- rxe -->\ntoday: two guests";
        assert!(new.starts_with(head), "{new}");
        assert!(new.contains("| WRITE | Mb/s | 100.0 ±10 % | 200.0 ±50 % | 2.00 |"), "{new}");
        assert!(new.ends_with("|\n\n<!-- /rxe -->\nend\n") && !new.contains("old"), "{new}");
        assert_eq!(table().into_page(&new, "today").as_ref(), Some(&new));
        assert_eq!(table().into_page("no marks", "today"), None);
    }

    #[test]
    fn a_ratio_that_single_runs_are_as_far_from_is_even() {
        let row = |rxe: &[f64], own: &[f64]| Row {
            name: String::new(),
            unit: String::new(),
            less_is_better: false,
            figures: [rxe.to_vec(), own.to_vec(), Vec::new()],
        };
        let rxe = [80.0, 100.0, 110.0];
        assert_eq!(row(&rxe, &[120.0]).verdict(1), EVEN);
        assert_eq!(row(&rxe, &[121.0]).verdict(1), "ahead");
        assert_eq!(row(&rxe, &[84.0]).verdict(1), EVEN);
        assert_eq!(row(&rxe, &[83.0]).verdict(1), "behind");
        // The spread of either counts.
        assert_eq!(row(&[100.0], &[130.0, 100.0, 170.0]).verdict(1), EVEN);
        assert_eq!(row(&[100.0], &[130.0, 120.0, 140.0]).verdict(1), "ahead");
        assert_eq!(row(&[100.0], &[100.0]).verdict(1), EVEN);
        assert_eq!(row(&rxe, &[]).verdict(1), "");
    }

    #[test]
    fn an_even_number_of_runs_has_its_median_in_between() {
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), Some(2.5));
        assert_eq!(median(&[]), None);
        assert_eq!(shown(&[1.0, 3.0]), "2.0 ±50 %");
    }
}
