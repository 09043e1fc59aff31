//! `docs/interop.md`: what was right, cell by cell.

use serde_json::Value;

/// A cell of a table, as the program printed it.
pub(crate) struct Row {
    kernel: String,
    port: String,
    table: String,
    name: String,
    column: String,
    cells: u64,
    seconds: f64,
    pub(crate) verdict: String,
    why: String,
}

impl Row {
    /// A cell out of a line, if it is one.
    pub(crate) fn read(line: &str) -> Option<Self> {
        let value: Value = serde_json::from_str(line).ok()?;
        let text = |key: &str| value[key].as_str().map(str::to_owned);
        Some(Self {
            kernel: text("kernel")?,
            port: text("port")?,
            table: text("table")?,
            name: text("row")?,
            column: text("column")?,
            cells: value["cells"].as_u64()?,
            seconds: value["seconds"].as_f64()?,
            verdict: text("verdict")?,
            why: text("why")?,
        })
    }

    /// The section of the page that has this cell, of a kernel.
    fn title(&self) -> String {
        title(&self.kernel, &self.port, &self.table)
    }

    /// What stands in the cell, and what is said of it below.
    fn cell(&self) -> (String, Option<String>) {
        // Where it is recorded is of use to who ran it.
        let why = self.why.split(" (recorded: ").next().unwrap_or_default();
        let why = (!why.is_empty()).then(|| why.to_owned());
        match self.verdict.as_str() {
            "right" => (self.cells.to_string(), why.map(|why| format!("right, but {why}"))),
            "n/a" => ("n/a".to_owned(), why),
            verdict => (format!("**{verdict}**"), why),
        }
    }
}

/// Of the section with a table of a kernel's.
fn title(kernel: &str, port: &str, table: &str) -> String {
    format!("Linux {kernel}, {port}: {table}")
}

/// A table that comes together.
#[derive(Default)]
struct Table {
    columns: Vec<String>,
    /// The name of each row, and what stands below each column.
    rows: Vec<(String, Vec<String>)>,
    notes: Vec<String>,
}

impl Table {
    fn add(&mut self, row: &Row) {
        let at = position(&mut self.columns, |it| *it == row.column, || row.column.clone());
        let row_at = position(
            &mut self.rows,
            |(name, _)| *name == row.name,
            || (row.name.clone(), Vec::new()),
        );
        let cells = &mut self.rows[row_at].1;
        cells.resize(cells.len().max(at + 1), String::new());
        let (mut cell, note) = row.cell();
        if let Some(note) = note {
            let number = position(&mut self.notes, |it| *it == note, || note.clone()) + 1;
            cell += &format!(" [{number}]");
        }
        cells[at] = cell;
    }

    /// Why it cannot be, of a table that cannot be at all.
    fn none(&self) -> Option<String> {
        let is_none = |cell: &String| cell.is_empty() || cell.starts_with("n/a");
        let cells = || self.rows.iter().flat_map(|(_, cells)| cells);
        (cells().all(is_none) && cells().any(|it| !it.is_empty()))
            .then(|| format!("\nn/a: {}\n", self.notes.join("; ")))
    }

    fn markdown(&self) -> String {
        if let Some(none) = self.none() {
            return none;
        }
        let mut text = String::from("\n| |");
        self.columns.iter().for_each(|column| text += &format!(" {column} |"));
        text += "\n|---|";
        text += &":---:|".repeat(self.columns.len());
        for (name, cells) in &self.rows {
            text += &format!("\n| {name} |");
            for at in 0..self.columns.len() {
                text += &format!(" {} |", cells.get(at).map_or("", String::as_str));
            }
        }
        text += "\n";
        for (number, note) in (1..).zip(&self.notes) {
            text += &format!("\n[{number}] {note}  ");
        }
        text
    }
}

/// Where something is in a list; at its end, if it has to be put there.
fn position<T>(list: &mut Vec<T>, is_it: impl Fn(&T) -> bool, new: impl FnOnce() -> T) -> usize {
    list.iter().position(is_it).unwrap_or_else(|| {
        list.push(new());
        list.len() - 1
    })
}

/// What the page has besides the rows of kernels.
pub(crate) struct Beside<'a> {
    /// The parts about peers.
    pub(crate) peers: &'a str,
    /// Where rxe differs.
    pub(crate) differs: &'a str,
    /// Debian's version of the kernel with a release.
    pub(crate) version: &'a dyn Fn(&str) -> Option<String>,
    /// Names of files with what kernels said of their own faults.
    pub(crate) consoles: &'a [String],
}

/// The page: the day of each kernel's matrix, and its rows; behind them the parts about peers.
pub(crate) fn render(runs: &[(String, Vec<Row>)], beside: &Beside) -> String {
    let peers = beside.peers;
    let differs = format!("{DIFFERS}{}", beside.differs);
    let mut page = summary(runs, beside) + &differs + HEAD;
    for ([kernel, port, table], cells) in tables(runs.iter().flat_map(|(_, rows)| rows)) {
        let title = title(kernel, port, table);
        page += &format!("\n## {title}\n{}\n", cells.markdown().trim_end());
    }
    match peers {
        "" => page,
        peers => format!("{page}\n{}\n", peers.trim_end()),
    }
}

/// The part about a peer that is no guest.
pub(crate) fn render_peer(day: &str, rows: &[Row]) -> String {
    let name = rows.first().map_or("", |row| &row.kernel);
    let sum = line(&format!("Peer {name}"), day, &format!("{:.1}", minutes(rows)), &Sum::of(rows));
    let mut part = format!("{PEER}{name}\n\n{COLUMNS}{sum}");
    for ([_, port, table], cells) in tables(rows.iter()) {
        part += &format!("\n### {port}: {table}\n{}\n", cells.markdown().trim_end());
    }
    part
}

/// The parts about peers of a page's matrix.
pub(crate) fn peers(matrix: &str) -> &str {
    matrix.find(PEER).map_or("", |at| &matrix[at..])
}

/// A page's matrix with a part about a peer, in the place of an older one about the same.
pub(crate) fn with_peer(matrix: &str, part: &str) -> String {
    let old = peers(matrix);
    let kernels = &matrix[..matrix.len() - old.len()];
    let title = |part: &str| part.lines().next().unwrap_or_default().to_owned();
    let mut parts: Vec<String> = old
        .split(PEER)
        .skip(1)
        .map(|rest| format!("{PEER}{}\n", rest.trim_end()))
        .filter(|it| title(it) != title(part))
        .collect();
    parts.push(part.to_owned());
    format!("{}\n\n{}", kernels.trim_end(), parts.join("\n"))
}

/// With what a part about a peer begins.
const PEER: &str = "## Peer ";

/// What the page begins with: each matrix in a line, what was played, what was not proven, where to
/// go on.
fn summary(runs: &[(String, Vec<Row>)], beside: &Beside) -> String {
    let mut text = format!("{TITLE}{COLUMNS}");
    let mut programs = None;
    for (day, rows) in runs {
        let Some(Row { kernel, .. }) = rows.first() else { continue };
        let version = (beside.version)(kernel).map_or(String::new(), |it| format!(" ({it})"));
        let minutes = format!("{:.1}", minutes(rows));
        text += &line(&format!("Linux {kernel}{version}"), day, &minutes, &Sum::of(rows));
        programs = rows.iter().find(|row| row.table == "stock programs").or(programs);
    }
    text += &peer_lines(beside.peers);
    text += PLAYED;
    text += &none(runs);
    text += &faults(runs, beside.consoles);
    text += PROVEN;
    let mut links: Vec<String> = programs.map(|row| link(&row.title())).into_iter().collect();
    links.push(link("Conformance scripts against rxe"));
    for line in links {
        text += &format!("- {line}\n");
    }
    text
}

/// What stands above the lines of matrices.
const COLUMNS: &str = "| | day | minutes | batches right | wrong | n/a | cells right |
|---|---|--:|--:|--:|--:|--:|
";

/// Batches by what came of them, and the cells of those that were right.
#[derive(Debug, Default, PartialEq, Eq)]
struct Sum {
    right: u64,
    wrong: u64,
    none: u64,
    cells: u64,
}

impl Sum {
    fn of(rows: &[Row]) -> Self {
        let mut sum = Self::default();
        // A soak is one, however many messages it had.
        let cells = |row: &Row| if row.table == "soak" { 1 } else { row.cells };
        rows.iter().for_each(|row| sum.add(&row.verdict, cells(row)));
        sum
    }

    fn add(&mut self, verdict: &str, cells: u64) {
        match verdict {
            "right" => {
                self.right += 1;
                self.cells += cells;
            }
            "n/a" => self.none += 1,
            _ => self.wrong += 1,
        }
    }
}

/// A matrix in a line.
fn line(name: &str, day: &str, minutes: &str, sum: &Sum) -> String {
    let Sum { right, wrong, none, cells } = sum;
    format!("| {name} | {day} | {minutes} | {right} | {wrong} | {none} | {cells} |\n")
}

/// The lines of peers, as their parts have them.
fn peer_lines(peers: &str) -> String {
    peers.split_inclusive('\n').filter(|line| line.starts_with(LINE_OF_PEER)).collect()
}

/// A page's matrix with the lines of its peers as they are now.
pub(crate) fn with_peers_summed(matrix: &str) -> String {
    let Some((table, rest)) = matrix.split_once(PLAYED) else { return matrix.to_owned() };
    let table: String =
        table.split_inclusive('\n').filter(|it| !it.starts_with(LINE_OF_PEER)).collect();
    format!("{table}{}{PLAYED}{rest}", peer_lines(peers(matrix)))
}

const LINE_OF_PEER: &str = "| Peer ";

/// Why batches are n/a, and how many for each reason.
fn none(runs: &[(String, Vec<Row>)]) -> String {
    let mut reasons: Vec<(&str, usize)> = Vec::new();
    for row in runs.iter().flat_map(|(_, rows)| rows).filter(|row| row.verdict == "n/a") {
        let at = position(&mut reasons, |(why, _)| *why == row.why, || (&row.why, 0));
        reasons[at].1 += 1;
    }
    if reasons.is_empty() {
        return String::new();
    }
    let reasons: Vec<String> =
        reasons.iter().map(|(why, count)| format!("{why} ({count})")).collect();
    format!("Batches of kernels that are n/a, and why: {}.\n\n", reasons.join("; "))
}

/// What kernels did of their own accord, in bold: whoever maintains them wants to know first.
fn faults(runs: &[(String, Vec<Row>)], consoles: &[String]) -> String {
    const FAULTS: [&str; 2] = ["panicked", "ran no program"];
    let mut text = String::new();
    for row in runs.iter().flat_map(|(_, rows)| rows) {
        if FAULTS.iter().any(|fault| row.why.contains(fault)) {
            let Row { name, column, verdict, .. } = row;
            let (title, why) = (row.title(), row.cell().1.unwrap_or_default());
            let why = why.strip_prefix("right, but ").unwrap_or(&why);
            text += &format!("- **{title}**, {name}, {column} ({verdict}): {why}\n");
        }
    }
    if !text.is_empty() {
        text = format!("The guest's kernel failed by itself in these batches:\n\n{text}\n");
    }
    if !consoles.is_empty() {
        let links: Vec<String> = consoles.iter().map(|it| format!("[{it}](rxe/{it})")).collect();
        text +=
            &format!("What guests' kernels said of their own faults: {}.\n\n", links.join(", "));
    }
    text
}

/// The page's matrix with another section on where rxe differs.
pub(crate) fn with_differs(matrix: &str, differs: &str) -> String {
    let Some((before, old)) = matrix.split_once(DIFFERS) else { return matrix.to_owned() };
    let rest = old.find("\n## ").map_or("", |at| &old[at..]);
    format!("{before}{DIFFERS}{}{rest}", differs.trim_end_matches('\n').to_owned() + "\n")
}

/// A link to a section of the page, as Markdown's readers name it: letters and digits, small.
fn link(title: &str) -> String {
    let anchor: String = title
        .to_lowercase()
        .replace(' ', "-")
        .chars()
        .filter(|it| it.is_alphanumeric() || matches!(it, '-' | '_'))
        .collect();
    format!("[{title}](#{anchor})")
}

fn minutes(rows: &[Row]) -> f64 {
    rows.iter().map(|row| row.seconds).sum::<f64>() / 60.0
}

/// The tables of some rows, by kernel, port and name.
fn tables<'r>(rows: impl Iterator<Item = &'r Row>) -> Vec<([&'r str; 3], Table)> {
    let mut tables: Vec<([&str; 3], Table)> = Vec::new();
    for row in rows {
        let title = [row.kernel.as_str(), row.port.as_str(), row.table.as_str()];
        let new = || (title, Table::default());
        let at = position(&mut tables, |(known, _)| *known == title, new);
        tables[at].1.add(row);
    }
    tables
}

const TITLE: &str = "# Interoperability\n\n";

const PLAYED: &str = "
Played was each operation of RC, UC and UD in both directions, at five path MTUs, over IPv4, IPv6
and a VLAN, on AF_XDP and on a UDP socket; errors, bad networks, stock programs, and a soak. `[n]`
in a cell leads to the note of that number below its table.

";

const PROVEN: &str = "\
Not proven by it: this is one virtual machine on one host, with two of Debian's kernels; no mainline
kernel was there. The rules were taken from public sources, and not held against the text of the
IBTA specification. Read first, besides the next section:

";

/// With what the section on where rxe differs begins.
const DIFFERS: &str = "
## Where rxe differs

";

const HEAD: &str = "
## How it is measured

The adapter against `rdma_rxe`, Linux's own RoCEv2 adapter in software, in a virtual machine with a
stock Debian kernel. `cargo xtask interop` measures it anew (as root, with apt) and writes this
page. Other adapters have a section `Peer` behind the kernels: `cargo xtask interop --peer HOST
--via DEVICE`, with the kit of `tests/interop/` on their host.

A batch is one pair of queue pairs that goes through its cells, messages of these sizes: 0, 1, 2, 3,
5, MTU−1, MTU, MTU+1, 3·MTU+1 bytes and 1 MiB, for datagrams up to the MTU, for atomics 8. What roxe
is stands above each column; in \"both\" each end asks the other at once; the number behind that is
the path MTU. A number in a table says how many cells of a batch were right: the data at the
receiving end is what was sent, and not a byte around it has changed; completions at both ends have
the right status, opcode, length, immediate data or key; neither adapter has counted anything but
traffic; and `roxe check` finds nothing in the recording of the batch. A busy machine may lose
packets between the two: a batch has three goes, and where there were losses in each, the page says
what was counted. A guest whose kernel hangs or panics is reset, and what was played has a second
go, which the page says, too.

On a VLAN roxe has an address of its own (`own=`, `vlan=`), the guest a VLAN interface. A UDP socket
receives over IPv4 without the identification, which the ICRC covers and in which rxe counts: there
the ICRC of what rxe sends cannot be verified, nor is the recording judged; over IPv6 both are.

Over networks that are bad on purpose (netem in the guest) data and completions must be right.
Errors must end with the right status at both ends, in the right state of both queue pairs, and
counted; nothing is written that must not be. Stock programs of rdma-core and perftest run in the
guest, `roxe pingpong` and `roxe perf` at the other end: both must exit with 0. The soak is SENDs,
WRITEs with immediate data and without, READs and atomics of many sizes, 16 of each end on their way
at once, over one pair of queue pairs.
";

#[cfg(test)]
mod tests {
    use super::*;

    fn beside(peers: &str) -> Beside<'_> {
        Beside { peers, differs: "In much.\n", version: &|_| None, consoles: &[] }
    }

    #[test]
    fn a_page_counts_cells_and_says_why_there_are_none() {
        let line = |row: &str, column: &str, verdict: &str, why: &str| {
            let line = serde_json::json!({
                "kernel": "6.1", "port": "AF_XDP", "table": "IPv4", "row": row, "column": column,
                "cells": 10, "seconds": 6.0, "verdict": verdict, "why": why,
            });
            Row::read(&line.to_string()).unwrap()
        };
        let rows = vec![
            line("RC SEND", "both 256", "right", ""),
            line("RC READ", "both 512", "wrong", "late"),
            line("RC READ", "both 256", "n/a", "none"),
            line("RC SEND", "both 512", "right", "not without losses on the way: 2 lost"),
        ];
        let version = |release: &str| (release == "6.1").then(|| "6.1.42-1".to_owned());
        let beside = Beside { version: &version, ..beside("") };
        let page = render(&[("today".to_owned(), rows)], &beside);
        let sum = "# Interoperability\n\n\
                   | | day | minutes | batches right | wrong | n/a | cells right |\n\
                   |---|---|--:|--:|--:|--:|--:|\n\
                   | Linux 6.1 (6.1.42-1) | today | 0.4 | 2 | 1 | 1 | 20 |\n\nPlayed ";
        assert!(page.starts_with(sum), "{page}");
        assert!(page.contains("n/a, and why: none (1).\n"), "{page}");
        assert!(page.contains("\n## Where rxe differs\n\nIn much.\n\n## How it is"), "{page}");
        let expected = "\n## Linux 6.1, AF_XDP: IPv4\n\n\
                        | | both 256 | both 512 |\n|---|:---:|:---:|\n\
                        | RC SEND | 10 | 10 [3] |\n| RC READ | n/a [2] | **wrong** [1] |\n\
                        \n[1] late  \n[2] none  \n\
                        [3] right, but not without losses on the way: 2 lost\n";
        assert!(page.ends_with(expected), "{page}");
        assert!(Row::read("something else").is_none());

        let rows = vec![
            line("RC READ", "both 256", "n/a", "none"),
            line("RC SEND", "both 512", "n/a", "no tags"),
        ];
        let beside = self::beside;
        let page = render(&[("today".to_owned(), rows)], &beside(""));
        assert!(page.ends_with("\n## Linux 6.1, AF_XDP: IPv4\n\nn/a: none; no tags\n"), "{page}");
        let rows = vec![line("RC READ", "both 256", "wrong", "late (recorded: x.pcapng)")];
        let page = render(&[("today".to_owned(), rows)], &beside(""));
        assert!(page.ends_with("\n[1] late\n"), "{page}");
    }

    #[test]
    fn what_the_page_begins_with_leads_to_sections_that_it_has() {
        let path = crate::workspace::root().join(crate::interop::PAGE);
        let page = std::fs::read_to_string(path).unwrap();
        let (summary, rest) = page.split_once("\n## ").unwrap();
        let titles: Vec<&str> = summary
            .lines()
            .filter_map(|line| line.strip_prefix("- [")?.split_once(']').map(|(title, _)| title))
            .collect();
        assert!(titles.len() >= 2, "{summary}");
        for title in titles {
            assert!(summary.contains(&link(title)), "{title}");
            assert!(rest.contains(&format!("\n## {title}\n")), "{title}");
        }
        let expected = "[Linux 6.1.0-57-amd64, UDP socket: stock programs]\
                        (#linux-610-57-amd64-udp-socket-stock-programs)";
        assert_eq!(link("Linux 6.1.0-57-amd64, UDP socket: stock programs"), expected);
    }

    #[test]
    fn a_peer_has_one_part_behind_the_kernels_which_these_keep() {
        let row = |name: &str, cells: u64| {
            let line = serde_json::json!({
                "kernel": name, "port": "AF_XDP", "table": "IPv4", "row": "RC SEND",
                "column": "both 256", "cells": cells, "seconds": 6.0, "verdict": "right", "why": "",
            });
            vec![Row::read(&line.to_string()).unwrap()]
        };
        let kernels = || vec![("today".to_owned(), row("6.1", 10))];
        let empty = render(&kernels(), &beside(""));
        let one = with_peer(&empty, &render_peer("monday", &row("mlx5_0", 1)));
        let (line, table) = (
            "| Peer mlx5_0 | monday | 0.1 | 1 | 0 | 0 | 1 |",
            "### AF_XDP: IPv4\n\n| | both 256 |\n|---|:---:|\n| RC SEND | 1 |",
        );
        let part = format!("\n## Peer mlx5_0\n\n{COLUMNS}{line}\n\n{table}\n");
        assert_eq!(one, format!("{empty}{part}"));
        let two = with_peer(&one, &render_peer("tuesday", &row("irdma0", 2)));
        let three = with_peer(&two, &render_peer("friday", &row("mlx5_0", 3)));
        assert_eq!([one.matches(PEER).count(), three.matches(PEER).count()], [1, 2]);
        assert!(three.contains("| tuesday |") && three.contains("| friday |"), "{three}");
        assert!(!three.contains("monday"), "{three}");
        let three = with_peers_summed(&three);
        let lines = "|\n| Peer irdma0 | tuesday | 0.1 | 1 | 0 | 0 | 2 |\n\
                     | Peer mlx5_0 | friday | 0.1 | 1 | 0 | 0 | 3 |\n\nPlayed ";
        assert!(three.contains(lines), "{three}");
        assert_eq!(with_peers_summed(&three), three);
        assert_eq!(render(&kernels(), &beside(peers(&three))), three);
        let other = with_differs(&three, "In nothing.\n");
        assert_eq!(other, three.replace("In much.", "In nothing."));
    }

    #[test]
    fn a_batch_of_a_peer_is_counted_as_one_of_a_kernel() {
        let row = |verdict: &str, table: &str, cells: u64| {
            let line = serde_json::json!({
                "kernel": "mlx5_0", "port": "AF_XDP", "table": table, "row": "RC SEND",
                "column": "both 256", "cells": cells, "seconds": 6.0, "verdict": verdict, "why": "",
            });
            Row::read(&line.to_string()).unwrap()
        };
        let rows = [
            row("right", "IPv4", 10),
            row("wrong", "IPv4", 0),
            row("n/a", "VLAN", 0),
            row("right", "soak", 70_000),
        ];
        let lines = peer_lines(&render_peer("monday", &rows));
        assert_eq!(lines, "| Peer mlx5_0 | monday | 0.4 | 2 | 1 | 1 | 11 |\n");
    }

    #[test]
    fn a_kernel_that_failed_is_told_at_the_top() {
        let line = serde_json::json!({
            "kernel": "6.12", "port": "UDP socket", "table": "bad networks", "row": "5 % lost",
            "column": "RC READ both", "cells": 10, "seconds": 6.0, "verdict": "right",
            "why": "its kernel panicked in the first go, and was reset",
        });
        let runs = [("today".to_owned(), vec![Row::read(&line.to_string()).unwrap()])];
        let consoles = ["console-6.12-matrix.txt".to_owned()];
        let page = render(&runs, &Beside { consoles: &consoles, ..beside("") });
        let (top, _) = page.split_once(DIFFERS).unwrap();
        let told = "- **Linux 6.12, UDP socket: bad networks**, 5 % lost, RC READ both (right): \
                    its kernel panicked in the first go, and was reset\n";
        assert!(top.contains(told), "{top}");
        assert!(top.contains("[console-6.12-matrix.txt](rxe/console-6.12-matrix.txt)"), "{top}");
    }
}
