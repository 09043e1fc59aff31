//! Aligned columns for people.

use crate::explain::ink::Ink;
use crate::outcome::visible;

/// Rows of cells below their titles. A title that begins with `>` is that of a column aligned to
/// the right.
pub(crate) struct Table<const COLUMNS: usize> {
    titles: [&'static str; COLUMNS],
    rows: Vec<[String; COLUMNS]>,
}

impl<const COLUMNS: usize> Table<COLUMNS> {
    pub(crate) fn new(titles: [&'static str; COLUMNS]) -> Self {
        Self { titles, rows: Vec::new() }
    }

    pub(crate) fn row(&mut self, cells: [String; COLUMNS]) {
        self.rows.push(cells.map(|cell| visible(&cell, |_| false)));
    }

    /// Each row on a line, behind so many spaces. Without titles, where all of them are empty.
    pub(crate) fn write(&self, indent: usize, ink: &mut Ink) {
        let titles = self.titles.map(|title| title.trim_start_matches('>').to_owned());
        let has_titles = titles.iter().any(|title| !title.is_empty());
        let all = || has_titles.then_some(&titles).into_iter().chain(&self.rows);
        let width = |column: usize| all().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let widths: [usize; COLUMNS] = std::array::from_fn(width);
        for row in all() {
            let mut line = " ".repeat(indent);
            for (column, cell) in row.iter().enumerate() {
                let width = widths[column];
                let gap = if column + 1 < COLUMNS { "  " } else { "" };
                line += &if self.titles[column].starts_with('>') {
                    format!("{cell:>width$}{gap}")
                } else {
                    format!("{cell:width$}{gap}")
                };
            }
            ink.str(line.trim_end());
            ink.byte(b'\n');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_lines_have_no_space_at_the_end() {
        let mut table = Table::new(["name", ">value", "why"]);
        table.row(["a".into(), "12345678".into(), String::new()]);
        table.row(["größer\n".into(), "1".into(), "x".into()]);
        let mut ink = Ink::new(false);
        table.write(1, &mut ink);
        let expected = " name         value  why\n a         12345678\n größer\\n         1  x\n";
        assert_eq!(String::from_utf8_lossy(ink.bytes()), expected);
    }
}
