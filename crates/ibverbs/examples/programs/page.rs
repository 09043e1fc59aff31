//! What came of everything, as `docs/programs.md` says it.

use std::fmt::Write as _;

use crate::cell::{COLUMNS, Verdict};
use crate::kept::{Cell, Played, said_by};
use crate::rows::Row;

/// The row of the suite, which is a number of tests.
pub(crate) const SUITE: &str = "rdma-core's Python suite";

/// The page. Where a cell is missing it was not played.
pub(crate) fn text(rows: &[Row], played: &Played) -> String {
    let mut table = String::new();
    let mut notes = Notes::default();
    let (mut right, mut wrong, mut again, mut absent, mut missing) = (0, 0, 0, 0, 0);
    for row in rows {
        let name = row.name();
        let cells = COLUMNS.iter().map(|column| {
            let Some(cell) = played.get(&(column.name.to_owned(), name.clone())) else {
                missing += 1;
                return "not run".to_owned();
            };
            match &cell.verdict {
                Verdict::Right { goes: 1, .. } => {
                    right += 1;
                    "ok".to_owned()
                }
                Verdict::Right { goes, before } => {
                    right += 1;
                    again += 1;
                    let end = before.char_indices().nth(LONGEST).map_or(before.len(), |it| it.0);
                    let before = before[..end].trim_end();
                    let note = format!("{goes} goes; before: {before}");
                    notes.own(format!("`{name}`, {}: {note}", column.name));
                    format!("ok, {goes} goes")
                }
                Verdict::Wrong(why) => {
                    wrong += 1;
                    notes.own(format!("`{name}`, {}: **wrong**: {why}", column.name));
                    "**wrong**".to_owned()
                }
                Verdict::Absent(why) => {
                    absent += 1;
                    format!("n/a ({})", notes.reason(why))
                }
            }
        });
        let cells: Vec<String> = cells.collect();
        let way = if row.way.is_empty() { String::new() } else { format!("`{}`", row.way) };
        let _ = writeln!(table, "| `{}` | {way} | {} |", row.program, cells.join(" | "));
    }
    let heads = COLUMNS.map(|column| column.name).join(" | ");
    let lines = "|---".repeat(COLUMNS.len() + 2);
    let reasons: String = notes
        .reasons
        .iter()
        .zip(1..)
        .map(|(reason, number)| format!("- ({number}) {reason}\n"))
        .collect();
    let own: String = notes.own.iter().map(|note| format!("- {note}\n")).collect();
    let all = right + wrong;
    let missing =
        if missing == 0 { String::new() } else { format!(" **{missing} cells were not run.**") };
    format!(
        "{HEAD}\n{all} cells were run: {right} ok, of which {again} not at the first go, and \
         {wrong} wrong; {absent} are n/a.{missing}\n{}\n\n| program | asked | {heads} |\n\
         {lines}|\n{table}\n{reasons}{}{own}{}",
        host(played),
        if own.is_empty() { "" } else { "\n" },
        suite(played),
    )
}

const HEAD: &str = "\
# Programs that know nothing of roxe

Programs of Debian 12, unchanged, on our `libibverbs.so.1` and `librdmacm.so.1`. `cargo xtask
programs --page` runs them (as root, with apt) and writes this page. Two hosts, which are network
namespaces joined by a cable, talk over AF_XDP, over a UDP socket, and over both where one packet
of a hundred is lost, each way (`fault=drop 1%` of one end's port), or five where a program sends
few. In the last four columns the other is Linux's own adapter, `rdma_rxe`, in a virtual machine
(the guest), with the same programs on its own libraries, as the client (it asks) and as the
server; ours is over AF_XDP. `-n` is 500, 200 where packets are lost or with the guest, 100 with
both; `{few}` is 20, 10 where packets are lost, 5 with the guest; `-6` is IPv6.

A cell is ok when both sides end with 0, and more than that, since many programs do not look: each
of ours that meets another was seen with the library; none of our queue pairs ended by itself; no
side complained of data (the server of a pingpong with `-c` looks at the first byte of each page,
rping's client with `-V` at each byte); perftest's report is of messages; a program that lists
adapters names ours; and where packets are to be lost, some were. A server that goes on for ever
(`rping -P`, `cmtime`, `rcopy`, `udaddy -C 0`) serves two clients, and ends because we end it. A
cell has two minutes (with the guest two and a half) and in them three goes, a pingpong or
`rdma_server` that loses packets and perftest with `-R` ten;
where it took more than one, that and what went wrong before is said below. There is another go
for these reasons only:

- with the half a second that programs give a peer to answer, a host that is kept from its work
  for longer is given up: \"transport retry counter exceeded\";
- `ibv_*_pingpong` ends when it has counted enough, though an acknowledgement of its may have been
  lost on the way: its peer asks again, nobody is there, and it ends with the same error.
  `ibv_srq_pingpong` has sixteen queue pairs for that, and `rdma_server` disconnects, which puts
  its queue pair into the error state, as soon as it has what it waits for. Where the one that is
  left is rxe, it asks for ever: with a retry count of 7, which all of these give, rxe never gives
  up. There it is ended six seconds after ours has left, and only then is that a reason;
- perftest with `-R` makes one connection to agree on another. For that its server begins to listen
  in the same moment in which its client asks; refused, the client tries again with memory that it
  has freed, and fails or crashes. An emulated server is never fast enough: there (rxe serves,
  nothing lost) what the connection manager says comes 300 ms late (`fault=delay 300ms of qp 1`);
- `ib_send_lat -e` has one channel for what it sent and what it received, and takes the first event
  for the one that it waits for: where an answer is told of before the acknowledgement, it looks at
  a completion that it has not got, or both sides come to wait for ever (a go has an eighth of the
  time, and there are ten);
- a program ended before it was seen with our library;
- the guest's kernel crashed, or hangs;
- of packets that were to be lost none was seen to be, at the moments at which the adapter was
  asked: the next go loses twice as many, up to a fifth.

Where packets are lost, rxe takes long: of a READ's answer that lacks a packet it asks for the rest
at its retransmission timer only, and after a second NAK within a message it waits for that timer,
too. The timer is half a second there (`-u 17`), since an emulated host answers late, and 67 ms
(`-u 14`) where rxe asks by `ib_read_*` for many packets: only who reads has a timer.
";

/// What stands below the table.
#[derive(Default)]
struct Notes {
    /// Why cells cannot be, each once.
    reasons: Vec<String>,
    own: Vec<String>,
}

impl Notes {
    /// The number of a reason.
    fn reason(&mut self, why: &str) -> usize {
        let known = self.reasons.iter().position(|reason| reason == why);
        1 + known.unwrap_or_else(|| {
            self.reasons.push(why.to_owned());
            self.reasons.len() - 1
        })
    }

    fn own(&mut self, note: String) {
        self.own.push(note);
    }
}

/// Where and when.
fn host(played: &Played) -> String {
    let mut days: Vec<&str> = played.values().map(|Cell { day, .. }| day.as_str()).collect();
    days.sort_unstable();
    let days = match (days.first(), days.last()) {
        (Some(first), Some(last)) if first != last => format!("{first} to {last}"),
        (Some(day), _) => (*day).to_owned(),
        _ => String::new(),
    };
    let packages = ["ibverbs-utils", "perftest", "rdmacm-utils", "python3-pyverbs"];
    let versions = packages.map(|package| {
        format!("{package} {}", said_by("dpkg-query", &["-W", "-f", "${Version}", package]))
    });
    let guest = played.get(&(GUEST.to_owned(), String::new()));
    let guest = match guest.map(|cell| &cell.verdict) {
        Some(Verdict::Absent(kernel)) => format!("; the guest's Linux is {kernel}"),
        _ => String::new(),
    };
    let kernel = said_by("uname", &["-r"]);
    format!("{days}, Linux {kernel}{guest}; {}.", versions.join(", "))
}

/// The key of the guest's kernel among what is kept.
pub(crate) const GUEST: &str = "guest";

/// Characters of what went wrong before it went well.
const LONGEST: usize = 160;

const SUITE_HEAD: &str = "
The Python suite of rdma-core on the distribution's pyverbs, of it the tests that are about what
such an adapter has (`crates/ibverbs/tests/programs/rdma-core.txt`):

";

/// The part about the suite.
fn suite(played: &Played) -> String {
    let mut text = SUITE_HEAD.to_owned();
    for column in ["xdp", "udp"] {
        let cell = played.get(&(column.to_owned(), SUITE.to_owned()));
        let said = match cell.map(|cell| &cell.verdict) {
            Some(Verdict::Right { before, .. }) => before.clone(),
            Some(Verdict::Wrong(why)) => format!("**wrong**: {why}"),
            Some(Verdict::Absent(why)) => why.clone(),
            None => "**not run**".to_owned(),
        };
        let _ = writeln!(text, "- {column}: {said}");
    }
    text
}
