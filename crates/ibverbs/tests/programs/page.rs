//! What came of everything, as `docs/programs.md` says it.

use std::fmt::Write as _;
use std::process::Command;
use std::{env, fs};

use crate::suite::Results;

/// The page while it is made.
#[derive(Default)]
pub(crate) struct Page {
    rows: String,
    suite: String,
    ran: usize,
    wrong: usize,
    /// What programs said that went wrong.
    said: String,
    /// Everything was run.
    pub(crate) is_whole: bool,
}

impl Page {
    /// A program, how it was asked, and how it ended over each port, and where packets are lost.
    pub(crate) fn add(
        &mut self,
        program: &str,
        way: &str,
        results: &[Result<(), String>],
        bad: Option<Result<(), String>>,
    ) {
        let mut cells: Vec<_> =
            results.iter().map(|result| self.judge(program, way, result)).collect();
        cells.push(bad.map_or("", |result| self.judge(program, way, &result)));
        let line = format!("| `{program}` | `{way}` | {} |", cells.join(" | ")).replace("``", "");
        eprintln!("{line}");
        let _ = writeln!(self.rows, "{line}");
    }

    fn judge(&mut self, program: &str, way: &str, result: &Result<(), String>) -> &'static str {
        self.ran += 1;
        let Err(said) = result else { return "ok" };
        self.wrong += 1;
        eprintln!("{program} {way}: {said}");
        let _ =
            writeln!(self.said, "- `{program} {way}`: {}", said.lines().last().unwrap_or_default());
        "**wrong**"
    }

    pub(crate) fn add_suite(&mut self, ports: &[&str], results: &[Results]) {
        for (port, Results { passed, skipped, wrong }) in ports.iter().zip(results) {
            self.ran += passed + wrong.len();
            self.wrong += wrong.len();
            let (skips, wrongs) = (skipped.len(), wrong.len());
            let _ = writeln!(self.suite, "| {port} | {passed} | {skips} | {wrongs} |");
            for line in skipped.iter().map(|it| format!("skipped, {it}")).chain(wrong.clone()) {
                let _ = writeln!(self.said, "- {port}: {line}");
            }
        }
    }

    pub(crate) const fn wrong(&self) -> usize {
        self.wrong
    }

    /// As far as it is made, if it is wanted.
    pub(crate) fn write(&self) {
        if let Some(file) = env::var_os("ROXE_PAGE") {
            fs::write(file, self.text()).expect("the page can be written");
        }
    }

    fn text(&self) -> String {
        let Self { rows, suite, ran, wrong, said, is_whole } = self;
        let end = if *is_whole {
            ""
        } else {
            " **The run was ended before its end: what is not here was not run.**"
        };
        let versions = versions();
        let said = if said.is_empty() { String::new() } else { format!("\n{said}") };
        format!(
            "# Programs that know nothing of roxe\n\n\
             Programs of the distribution, unchanged, on our `libibverbs.so.1`: two hosts, which \
             are network\nnamespaces joined by a cable. `cargo xtask programs --page` runs them \
             (as root, with apt) and writes\nthis page. Both sides must end with 0; with `-c` a \
             pingpong looks at each byte. A cell is a run over\nAF_XDP, over a UDP socket, and \
             over AF_XDP where one packet of a hundred is lost, each way; a busy\nmachine has \
             three goes.\n\n\
             {ran} runs and tests, {wrong} wrong. {versions}.{end}\n\n\
             | program | asked | xdp | udp | xdp, 1 % lost |\n|---|---|---|---|---|\n{rows}\n\
             The Python suite of rdma-core on the distribution's pyverbs, of it the tests that \
             are about what\nsuch an adapter has \
             (`crates/ibverbs/tests/programs/rdma-core.txt`):\n\n\
             | port | passed | skipped | wrong |\n|---|---|---|---|\n{suite}{said}"
        )
    }
}

/// Which versions the distribution has.
fn versions() -> String {
    let ask = |package: &&str| {
        let mut command = Command::new("dpkg-query");
        let output = command.args(["-W", "-f", "${Version}", package]).output().ok()?;
        Some(format!("{package} {}", String::from_utf8(output.stdout).ok()?))
    };
    let packages = ["ibverbs-utils", "perftest", "python3-pyverbs"];
    packages.iter().filter_map(ask).collect::<Vec<_>>().join(", ")
}
