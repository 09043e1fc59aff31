//! `docs/interop.md`: what was right, cell by cell.

use std::collections::BTreeMap;

use serde_json::Value;

/// A batch or a scenario, as the program printed it.
pub(crate) struct Row {
    kernel: String,
    port: String,
    /// What, in which direction, at which path MTU, in which family.
    words: [String; 4],
    cells: u64,
    seconds: f64,
    pub(crate) verdict: String,
    why: String,
}

impl Row {
    /// A row out of a line, if it is one.
    pub(crate) fn read(line: &str) -> Option<Self> {
        let value: Value = serde_json::from_str(line).ok()?;
        let text = |key: &str| value[key].as_str().map(str::to_owned);
        let name = text("name")?;
        let mut words = name.rsplitn(4, ' ').map(str::to_owned);
        let [family, mtu, direction] = [words.next()?, words.next()?, words.next()?];
        Some(Self {
            kernel: text("kernel")?,
            port: text("port")?,
            words: [words.next()?, direction, mtu, family],
            cells: value["cells"].as_u64()?,
            seconds: value["seconds"].as_f64()?,
            verdict: text("verdict")?,
            why: text("why")?,
        })
    }
}

/// A line of a table: kernel, port, operation, direction and family; its columns are path MTUs.
type Line<'a> = (&'a str, &'a str, &'a str, &'a str, &'a str);

/// The page.
pub(crate) fn render(rows: &[Row], date: &str) -> String {
    let mut page = String::from(HEAD);
    let right: u64 = rows.iter().filter(|row| row.verdict == "right").map(|row| row.cells).sum();
    let wrong = rows.iter().filter(|row| row.verdict == "wrong").count();
    let minutes = rows.iter().map(|row| row.seconds).sum::<f64>() / 60.0;
    page +=
        &format!("{date}: {right} cells right, {wrong} batches wrong, in {minutes:.1} minutes.\n");
    let mut lines: BTreeMap<Line<'_>, Vec<&Row>> = BTreeMap::new();
    for row in rows {
        let [operation, direction, _, family] = row.words.each_ref().map(String::as_str);
        let line = (row.kernel.as_str(), row.port.as_str(), operation, family, direction);
        lines.entry(line).or_default().push(row);
    }
    let mut table = None;
    for ((kernel, port, operation, family, direction), of_line) in &lines {
        if table != Some((kernel, port)) {
            table = Some((kernel, port));
            page +=
                &format!("\n## Linux {kernel}, `{port}:`\n\n| operation | addresses | roxe is |");
            MTUS.iter().for_each(|mtu| page += &format!(" {mtu} |"));
            page += "\n|---|---|---|";
            MTUS.iter().for_each(|_| page += "---|");
            page += "\n";
        }
        page += &format!("| {operation} | {family} | {direction} |");
        for mtu in MTUS {
            let row = of_line.iter().find(|row| row.words[2] == mtu);
            let cell = row.map_or(String::new(), |row| match row.verdict.as_str() {
                "right" => row.cells.to_string(),
                "wrong" => "**wrong**".to_owned(),
                other => other.to_owned(),
            });
            page += &format!(" {cell} |");
        }
        page += "\n";
    }
    let mut reasons: Vec<String> =
        rows.iter().filter(|row| !row.why.is_empty()).map(reason).collect();
    reasons.sort();
    reasons.dedup();
    if !reasons.is_empty() {
        page += "\n## Remarks\n\n";
        reasons.iter().for_each(|reason| page += &format!("- {reason}\n"));
    }
    page + DIFFERENCES
}

/// Why a batch was wrong, or cannot be.
fn reason(row: &Row) -> String {
    match row.verdict.as_str() {
        "right" => format!(
            "{} over `{}:` is right, but not without losses on the way: {}",
            row.words.join(" "),
            row.port,
            row.why
        ),
        "wrong" => format!("{} over `{}:` is wrong: {}", row.words.join(" "), row.port, row.why),
        _ => format!("{} over `{}:` is n/a: {}", row.words[3], row.port, row.why),
    }
}

const MTUS: [&str; 5] = ["256", "512", "1024", "2048", "4096"];

const HEAD: &str = "# Interoperability

The adapter against `rdma_rxe`, Linux's own RoCEv2 adapter in software, in a virtual machine with a
stock Debian kernel. `cargo xtask interop` measures it anew (as root, with apt) and writes this
page.

A cell is a message of one size: 0, 1, 2, 3, 5, MTU−1, MTU, MTU+1, 3·MTU+1 bytes and 1 MiB, for
datagrams up to the MTU, for atomics 8. A batch is one pair of queue pairs that goes through all its
sizes. The tables count the cells of each batch that were right: the data at the receiving end is
what was sent, and not a byte around it has changed; completions at both ends have the right status,
opcode, length, immediate data or key; neither adapter has counted anything but traffic; and `roxe
check` finds nothing in the recording of the batch. A busy machine may lose packets between the two:
a batch has three goes, and where there were losses in each, the page says what was counted.

Over networks that are bad on purpose (netem in the guest) data and completions must be right.

";

const DIFFERENCES: &str = "
## Where rxe differs

- A receive that a SEND with Invalidate completed has the flag 4 instead of `IBV_WC_WITH_INV` (8):
  the number of the kernel's `IB_WC_WITH_INVALIDATE`, which libibverbs reads as
  `IBV_WC_IP_CSUM_OK`. The key itself is right. A program on rxe cannot see by the flag that a key
  of its was invalidated.
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_counts_cells_and_says_why_there_are_none() {
        let line = |name: &str, verdict: &str, why: &str| {
            let line = serde_json::json!({
                "kernel": "6.1", "port": "xdp", "name": name, "cells": 10, "seconds": 6.0,
                "verdict": verdict, "why": why,
            });
            Row::read(&line.to_string()).unwrap()
        };
        let rows = [
            line("RC SEND imm both 256 IPv4", "right", ""),
            line("RC SEND imm both 1024 IPv4", "wrong", "late"),
            line("RC SEND imm both 256 VLAN", "n/a", "no tags"),
        ];
        let page = render(&rows, "today");
        assert!(page.contains("today: 10 cells right, 1 batches wrong, in 0.3 minutes."));
        assert!(page.contains("\n| RC SEND imm | IPv4 | both | 10 |  | **wrong** |  |  |\n"));
        assert!(page.contains("\n- RC SEND imm both 1024 IPv4 over `xdp:` is wrong: late\n"));
        assert!(page.contains("\n- VLAN over `xdp:` is n/a: no tags\n"));
        assert!(Row::read("something else").is_none());
    }
}
