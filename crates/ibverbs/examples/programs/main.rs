//! Programs of the distribution, unchanged, on our libibverbs.so.1 and librdmacm.so.1: each in
//! every way it can be asked, between two hosts on this machine, over AF_XDP and over UDP sockets,
//! with packets lost and without, and with Linux's own adapter, `rdma_rxe`, in a guest.
//!
//! As root. `cargo xtask programs` builds what is needed, says where it is, and has the page
//! written of what is kept in a file: a line a cell.

#[path = "../../../verbs/examples/interop/agent.rs"]
#[allow(dead_code, reason = "only the guest asks here")]
mod agent;
mod cell;
mod end;
#[path = "../../../verbs/examples/interop/guest.rs"]
#[allow(dead_code, reason = "the interop matrix does more with it")]
mod guest;
mod kept;
#[path = "../../../net/tests/namespace/mod.rs"]
mod namespace;
#[path = "../../tests/ours/mod.rs"]
mod ours;
mod page;
mod rows;
mod scratch;
#[path = "../../tests/programs/suite.rs"]
mod suite;

use std::collections::BTreeSet;
use std::error::Error;
use std::fs;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::Instant;

use cell::{COLUMNS, Column, Peer, Port, Verdict};
use end::{End, Place};
use guest::{Guest, INTERFACE};
use kept::Kept;
use rows::Row;

type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> ExitCode {
    match Arguments::read(std::env::args().skip(1)).and_then(|arguments| run(&arguments)) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(wrong) => {
            eprintln!("{wrong} cells went wrong");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("programs: {error}");
            ExitCode::FAILURE
        }
    }
}

/// What the command line says.
struct Arguments {
    /// Where the cells are kept.
    kept: PathBuf,
    /// Nothing is kept: it is only a part.
    is_part: bool,
    /// Only what is not there of this build of the library, or was wrong.
    rest: bool,
    page: Option<PathBuf>,
    suite: Option<PathBuf>,
    /// The guest's kernel and initial file system.
    guest: Option<[PathBuf; 2]>,
    /// How many cells without a guest are played side by side.
    lanes: NonZeroUsize,
    /// Only cells whose column and row have all of these words.
    words: Vec<String>,
}

impl Arguments {
    fn read(words: impl Iterator<Item = String>) -> Outcome<Self> {
        const USAGE: &str = "usage: programs KEPT [--rest] [--page=FILE] [--suite=FOLDER] \
             [--kernel=FILE --initrd=FILE] [--lanes=N] [WORD…]";
        let (options, mut words): (Vec<_>, Vec<_>) = words.partition(|it| it.starts_with("--"));
        let known = ["--page=", "--suite=", "--kernel=", "--initrd=", "--lanes="];
        let is_known =
            |option: &String| option == "--rest" || known.iter().any(|key| option.starts_with(key));
        if words.is_empty() || !options.iter().all(is_known) {
            return Err(USAGE.into());
        }
        let value = |key: &str| options.iter().find_map(|it| it.strip_prefix(key));
        let path = |key: &str| value(key).map(PathBuf::from);
        let kept = PathBuf::from(words.remove(0));
        let rest = options.iter().any(|it| it == "--rest");
        Ok(Self {
            kept,
            is_part: !(words.is_empty() || rest),
            rest,
            page: path("--page="),
            suite: path("--suite="),
            guest: path("--kernel=").zip(path("--initrd=")).map(|(one, two)| [one, two]),
            lanes: value("--lanes=").map_or(Ok(NonZeroUsize::MIN), str::parse)?,
            words,
        })
    }

    fn wants(&self, column: &str, row: &str) -> bool {
        let name = format!("{column}: {row} ");
        self.words.iter().all(|word| name.contains(word.as_str()))
    }

    /// The cells of programs that are wanted and can be played.
    ///
    /// # Errors
    /// There is none, nor one of the suite.
    fn cells<'a>(&self, rows: &'a [Row]) -> Outcome<Vec<(Column, &'a Row)>> {
        let has_guest = self.guest.is_some();
        let columns = COLUMNS.into_iter().filter(|it| it.peer == Peer::Roxe || has_guest);
        let cells = columns.flat_map(|column| rows.iter().map(move |row| (column, row)));
        let cells: Vec<_> =
            cells.filter(|(column, row)| self.wants(column.name, &row.name())).collect();
        if cells.is_empty() && self.suites().next().is_none() {
            let needs = if has_guest { "" } else { "; those of rxe need a guest" };
            return Err(format!(
                "no cell has all of these words in the names of its column and its row: {}{needs}",
                self.words.join(" ")
            )
            .into());
        }
        Ok(cells)
    }

    /// The columns in which the suite is wanted, and where it is.
    fn suites(&self) -> impl Iterator<Item = (Column, &PathBuf)> {
        let columns = COLUMNS.into_iter().filter(|it| it.peer == Peer::Roxe && !it.loses);
        let columns = columns.filter(|column| self.wants(column.name, page::SUITE));
        columns.zip(self.suite.iter().cycle())
    }
}

/// How many went wrong.
fn run(arguments: &Arguments) -> Outcome<usize> {
    let rows = Row::all();
    let done: BTreeSet<(String, String)> = if arguments.rest {
        let is_done = |verdict: &Verdict| !matches!(verdict, Verdict::Wrong(_));
        let played = kept::read(&arguments.kept)?;
        played.into_iter().filter(|(_, cell)| is_done(&cell.verdict)).map(|(key, _)| key).collect()
    } else {
        BTreeSet::new()
    };
    let todo =
        |column: Column, row: &str| !done.contains(&(column.name.to_owned(), row.to_owned()));
    let cells = arguments.cells(&rows)?.into_iter();
    let cells = cells.filter(|(column, row)| todo(*column, &row.name()));
    let (here, with_guest): (Vec<_>, Vec<_>) =
        cells.partition(|(column, _)| column.peer == Peer::Roxe);
    let kept = match arguments.is_part {
        true => None,
        false => Some(Kept::open(&arguments.kept, arguments.rest)?),
    };
    let count = here.len() + with_guest.len();
    let progress = Progress { kept, count, played: 0.into(), wrong: 0.into(), mouth: ().into() };
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..arguments.lanes.get() {
            scope.spawn(|| {
                while let Some((column, row)) = here.get(next.fetch_add(1, Relaxed)) {
                    progress.play(column, &row.name(), || column.between_hosts(row));
                }
            });
        }
    });
    for (column, folder) in arguments.suites().filter(|(column, _)| todo(*column, page::SUITE)) {
        let devices = match column.port {
            Port::Xdp => "xdp:va",
            Port::Udp => "udp:192.0.2.1",
        };
        progress.play(&column, page::SUITE, || verdict(&suite::run(devices, folder)));
    }
    if let Some([kernel, initrd]) = arguments.guest.as_ref().filter(|_| !with_guest.is_empty()) {
        let folder = arguments.kept.parent().unwrap_or(&arguments.kept);
        Guest::with(kernel, initrd, folder, |guest| {
            play_with(guest, &with_guest, &progress)?;
            Ok(())
        })?;
    }
    if let Some(page) = &arguments.page {
        fs::write(page, page::text(&rows, &kept::read(&arguments.kept)?))?;
        eprintln!("written: {}", page.display());
    }
    Ok(progress.wrong.into_inner())
}

/// What came of the suite.
fn verdict(suite::Results { passed, skipped, wrong }: &suite::Results) -> Verdict {
    let skips: String = skipped.iter().map(|test| format!("; skipped: {test}")).collect();
    let said = format!("{passed} tests passed, {} skipped{skips}", skipped.len());
    match wrong.is_empty() {
        true => Verdict::Right { goes: 1, before: said },
        false => Verdict::Wrong(format!("{said}; {}", wrong.join("; "))),
    }
}

/// The cells of a guest, one by one.
fn play_with(guest: &Guest, pairs: &[(Column, &Row)], progress: &Progress) -> Outcome {
    eprintln!("guest: Linux {}, booted in {:.1?}", guest.kernel, guest.booted);
    if let Some(kept) = &progress.kept {
        let kernel = Verdict::Absent(guest.kernel.clone());
        kept.add(page::GUEST, "", guest.booted, &kernel);
    }
    let addresses = |number: u8| [format!("10.10.0.{number}"), format!("fd10::{number}")];
    let ours = |column: &Column| End {
        place: Place::Ours {
            namespace: None,
            devices: format!("xdp:{INTERFACE}"),
            loses: column.loses,
        },
        addresses: addresses(1),
        gids: [0, 1],
    };
    load_connection_manager(guest)?;
    let gids = guest.shell(
        "cd /sys/class/infiniband/rxe0/ports/1/gids; for i in $(seq 0 9); do cat $i; done",
    )?;
    let place = |beginning: &str| {
        let found = gids.lines().position(|gid| gid.starts_with(beginning));
        found.map(|index| index as u64).ok_or_else(|| format!("no GID {beginning}… in\n{gids}"))
    };
    let theirs = End {
        place: Place::Guest(guest),
        addresses: addresses(2),
        gids: [place("0000:0000:0000:0000:0000:ffff:0a0a:0002")?, place("fd10:")?],
    };
    for (column, row) in pairs {
        progress.play(column, &row.name(), || {
            let ours = ours(column);
            let ends = match column.peer {
                Peer::RxeServes => [&theirs, &ours],
                Peer::RxeAsks | Peer::Roxe => [&ours, &theirs],
            };
            match column.lacks(row) {
                Some(why) => Verdict::Absent(why.to_owned()),
                None => cell::run(row, ends, column.effort(row), || match guest.end() {
                    None => Ok(None),
                    Some(what) => {
                        eprintln!("the guest's kernel {what}:\n{}", guest.last_words());
                        let reset = guest.reset().and_then(|()| load_connection_manager(guest));
                        let what = format!("the guest's kernel {what}");
                        reset.map(|()| Some(what)).map_err(|why| why.to_string())
                    }
                }),
            }
        });
    }
    Ok(())
}

fn load_connection_manager(guest: &Guest) -> Outcome {
    let script = "while read -r it; do insmod /lib/modules/$it.ko; done </lib/modules/later";
    guest.shell(script).map(drop)
}

/// Says how it goes, and keeps it.
struct Progress {
    kept: Option<Kept>,
    count: usize,
    played: AtomicUsize,
    wrong: AtomicUsize,
    /// One speaks at a time.
    mouth: Mutex<()>,
}

impl Progress {
    fn play(&self, column: &Column, row: &str, play: impl FnOnce() -> Verdict) {
        let start = Instant::now();
        let verdict = play();
        let took = start.elapsed();
        let number = 1 + self.played.fetch_add(1, Relaxed);
        let said = match &verdict {
            Verdict::Right { goes: 1, .. } => "ok".to_owned(),
            Verdict::Right { goes, before } => format!("ok, {goes} goes: {before}"),
            Verdict::Absent(why) => format!("n/a: {why}"),
            Verdict::Wrong(why) => {
                self.wrong.fetch_add(1, Relaxed);
                format!("WRONG: {why}")
            }
        };
        if let Some(kept) = &self.kept {
            kept.add(column.name, row, took, &verdict);
        }
        let _mouth = self.mouth.lock();
        eprintln!(
            "[{number}/{}] {}: {row}  {:.1} s  {said}",
            self.count,
            column.name,
            took.as_secs_f32()
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_no_cell_has_are_named() {
        let rows = Row::all();
        let cells = |words: &str| {
            let words = words.split(' ').map(str::to_owned);
            let arguments = Arguments::read(words).expect("it is right");
            let cells = arguments.cells(&rows).map_err(|why| why.to_string())?;
            Ok::<_, String>(cells.iter().map(|(column, _)| column.name).collect::<BTreeSet<_>>())
        };
        let here = BTreeSet::from(["xdp", "udp", "xdp, 1 % lost", "udp, 1 % lost"]);
        assert_eq!(cells("kept"), Ok(here.clone()));
        assert_eq!(cells("kept rping --rest"), Ok(here));
        assert_eq!(cells("kept udp: rping"), Ok(BTreeSet::from(["udp"])));
        let why = cells("kept rping NOSUCHWORD").unwrap_err();
        assert!(why.contains("rping NOSUCHWORD"), "{why}");
        // What has a name and cannot be played.
        let why = cells("kept serves: rping").unwrap_err();
        assert!(why.contains("guest"), "{why}");
        let with_guest = cells("kept --kernel=k --initrd=i serves: rping");
        assert_eq!(with_guest, Ok(BTreeSet::from(["rxe serves"])));
        assert!(cells("kept Python").is_err());
        assert_eq!(cells("kept Python --suite=s"), Ok(BTreeSet::new()));
    }
}
