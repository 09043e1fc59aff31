//! A cell: a row's programs at two ends.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use crate::end::{End, Ended, IN_VAIN, LEFT, Place, Running, Terms};
use crate::namespace::Cable;
use crate::rows::{DATAGRAMS, Meet, Row};
use crate::scratch::Scratch;

/// What carries packets, whether some are lost, and who the other is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Column {
    pub(crate) name: &'static str,
    pub(crate) port: Port,
    /// One packet of a hundred, each way, or more if a program sends few.
    pub(crate) loses: bool,
    pub(crate) peer: Peer,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Port {
    Xdp,
    Udp,
}

/// Who the other end is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    Roxe,
    /// Linux's own adapter, at the client.
    RxeAsks,
    /// And at the server.
    RxeServes,
}

/// Those of the page.
#[rustfmt::skip]
pub(crate) const COLUMNS: [Column; 8] = [
    Column { name: "xdp",                port: Port::Xdp, loses: false, peer: Peer::Roxe },
    Column { name: "udp",                port: Port::Udp, loses: false, peer: Peer::Roxe },
    Column { name: "xdp, 1 % lost",      port: Port::Xdp, loses: true,  peer: Peer::Roxe },
    Column { name: "udp, 1 % lost",      port: Port::Udp, loses: true,  peer: Peer::Roxe },
    Column { name: "rxe asks",           port: Port::Xdp, loses: false, peer: Peer::RxeAsks },
    Column { name: "rxe serves",         port: Port::Xdp, loses: false, peer: Peer::RxeServes },
    Column { name: "rxe asks, 1 % lost", port: Port::Xdp, loses: true,  peer: Peer::RxeAsks },
    Column { name: "rxe serves, 1 % lost", port: Port::Xdp, loses: true, peer: Peer::RxeServes },
];

/// What came of a cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Both sides ended with 0. Before that it may have gone wrong, as it says here.
    Right {
        goes: u32,
        before: String,
    },
    Wrong(String),
    /// It cannot be, and why.
    Absent(String),
}

/// How hard a cell is tried.
#[derive(Clone, Copy)]
pub(crate) struct Effort {
    /// What it takes at most, all goes together.
    patience: Duration,
    /// What a go takes at most.
    go_patience: Duration,
    goes: u32,
    /// Packets of a hundred that are lost, each way.
    loss: u32,
    /// What the connection manager says comes late.
    is_late: bool,
    /// What `{n}`, `{few}` and `{patience}` stand for.
    words: [&'static str; 3],
}

impl Effort {
    /// On a busy machine a host may not come to answer within the half a second that programs give
    /// it.
    const FULL: Self = Self {
        patience: Duration::from_secs(120),
        go_patience: Duration::from_secs(120),
        goes: 3,
        loss: 0,
        is_late: false,
        words: ["500", "20", ""],
    };

    /// Connections that are made by the connection manager wait for seconds before they send again.
    const LOSSY: Self = Self { words: ["200", "10", ""], ..Self::FULL };

    /// An emulated host answers late.
    const WITH_GUEST: Self = Self {
        patience: Duration::from_secs(150),
        go_patience: Duration::from_secs(150),
        words: ["200", "5", "-u 18"],
        ..Self::FULL
    };

    /// And each packet that is lost takes half a second then.
    const WITH_LOSSY_GUEST: Self = Self { words: ["100", "5", "-u 17"], ..Self::WITH_GUEST };

    /// For programs that are at fault more often than not: a pingpong ends when it has counted
    /// enough, though its peer may wait for an acknowledgement that was lost, with the sixteen
    /// queue pairs of `ibv_srq_pingpong` say, and so does `rdma_server`; perftest's client with
    /// `-R` may ask too early.
    const MANY_GOES: u32 = 10;
}

impl Column {
    /// Why a row cannot be here.
    pub(crate) fn lacks(self, row: &Row) -> Option<&'static str> {
        let with_guest = self.peer != Peer::Roxe;
        match (row.program, row.way) {
            _ if self.loses && !row.is_reliable() => {
                Some("UC and UD send nothing again: who waits for what was lost waits for ever")
            }
            _ if row.meet == Meet::Alone && (self.loses || with_guest) => Some("no packet is sent"),
            ("mckey", _) if self.port == Port::Udp => {
                Some("a UDP socket takes part in no multicast group")
            }
            ("rstream", "-T a") if self.peer == Peer::RxeAsks => Some(
                "the client's `rpoll` says POLLHUP as soon as the server has closed, though bytes \
                 are to be read: `rstream` takes it for a failure",
            ),
            _ if row.may_take_the_wrong_event() && with_guest && self.loses => Some(
                "it takes the first event for the one that it waits for, and rxe tells of an \
                 answer before the acknowledgement, if that is lost: both sides wait for ever",
            ),
            // Its server listens nowhere that it could be waited for.
            ("udpong", _) if self.peer == Peer::RxeServes => Some(DATAGRAMS.1),
            (_, "-t") if with_guest => Some("rxe has no timestamps"),
            (_, "-o" | "-o -P") if with_guest => Some("rxe has no on-demand paging"),
            _ => None,
        }
    }

    /// The cell between two hosts on this machine, joined by a cable.
    pub(crate) fn between_hosts(self, row: &Row) -> Verdict {
        if let Some(why) = self.lacks(row) {
            return Verdict::Absent(why.to_owned());
        }
        let cable = Cable::new(4500);
        if row.is_ipv6 {
            cable.wait_for_ipv6();
        }
        let end = |namespace, interface, number| {
            let addresses = [format!("192.0.2.{number}"), format!("fd00::{number}")];
            let place = match self.port {
                Port::Xdp => format!("xdp:{interface}"),
                // A socket has one address.
                Port::Udp => format!("udp:{}", addresses[usize::from(row.is_ipv6)]),
            };
            // One end loses what it sends and what it receives.
            let loses = self.loses && number == 1;
            let place = Place::Ours { namespace: Some(namespace), devices: place, loses };
            End { place, addresses, gids: [0, u64::from(self.port == Port::Xdp)] }
        };
        let ends = [end(&cable.a, "va", 1), end(&cable.b, "vb", 2)];
        run(row, [&ends[0], &ends[1]], self.effort(row), || Ok(None))
    }

    /// How hard a row is tried here.
    pub(crate) fn effort(self, row: &Row) -> Effort {
        let effort = match (self.peer, self.loses) {
            (Peer::RxeAsks | Peer::RxeServes, true) => Effort::WITH_LOSSY_GUEST,
            (Peer::RxeAsks | Peer::RxeServes, false) => Effort::WITH_GUEST,
            (Peer::Roxe, true) => Effort::LOSSY,
            (Peer::Roxe, false) => Effort::FULL,
        };
        let is_left = self.loses && row.leaves_early();
        let may_come_early = row.is_perftest() && row.meet == Meet::Cm;
        let goes = match is_left || may_come_early || row.may_take_the_wrong_event() {
            true => Effort::MANY_GOES,
            false => effort.goes,
        };
        let loss = match (self.loses, row.sends_few()) {
            (false, _) => 0,
            (true, false) => 1,
            (true, true) => 5,
        };
        // A server that is emulated is never fast enough.
        let is_late = may_come_early && self.peer == Peer::RxeServes && !self.loses;
        let go_patience =
            if row.may_take_the_wrong_event() { effort.patience / 8 } else { effort.go_patience };
        let mut words = effort.words;
        // A lost part of a READ's answer rxe asks for at its timer only; only who reads has one.
        if self.loses && self.peer == Peer::RxeAsks && row.reads_much() {
            words[2] = "-u 14";
        }
        Effort { goes, loss, is_late, go_patience, words, ..effort }
    }
}

/// How a go went wrong.
#[derive(Debug, PartialEq, Eq)]
struct Failure {
    why: String,
    /// It may be tried again: it is no fault of the adapter.
    excused: bool,
}

impl From<String> for Failure {
    fn from(why: String) -> Self {
        Self { why, excused: false }
    }
}

impl From<&str> for Failure {
    fn from(why: &str) -> Self {
        why.to_owned().into()
    }
}

/// Runs a row's programs, the server at the first end, until they have ended well, or so many times
/// as time allows if what went wrong has an excuse. Then the ends may need to be mended, which is
/// an excuse, too, and says what was broken.
pub(crate) fn run(
    row: &Row,
    ends: [&End<'_>; 2],
    mut effort: Effort,
    mend: impl Fn() -> Result<Option<String>, String>,
) -> Verdict {
    let Effort { patience, go_patience, goes, .. } = effort;
    let mut start = Instant::now();
    let mut was_mended = false;
    let mut before = String::new();
    for go in 1..=goes {
        effort.patience = patience.saturating_sub(start.elapsed()).min(go_patience);
        let Failure { mut why, mut excused } = match (go_once(row, ends, effort), row.refusal) {
            (Ok(()), None) => return Verdict::Right { goes: go, before },
            (Ok(()), Some(_)) => return Verdict::Wrong("works, and should not".to_owned()),
            (Err(Failure { why, .. }), Some((refusal, reason))) if why.contains(refusal) => {
                return Verdict::Absent(reason.to_owned());
            }
            (Err(failure), _) => failure,
        };
        match mend() {
            Ok(None) => {}
            Ok(Some(broken)) => {
                (why, excused) = (format!("{broken}; {why}"), true);
                // What that took is not the row's, once.
                if !std::mem::replace(&mut was_mended, true) {
                    start = Instant::now();
                }
            }
            Err(broken) => return Verdict::Wrong(format!("{broken}; {why}")),
        }
        if !excused || go == goes || start.elapsed() > patience / 2 {
            return Verdict::Wrong(why);
        }
        if why == NOTHING_LOST {
            effort.loss = (2 * effort.loss).min(MOST_LOST);
        }
        before = why;
    }
    Verdict::Wrong(before)
}

/// Once: both sides.
fn go_once(row: &Row, ends: [&End<'_>; 2], effort: Effort) -> Result<(), Failure> {
    let scratch = Scratch::new();
    let fill = |(line, end): (&String, _)| {
        fill(line, row, end, ends, effort).replace("{scratch}", &scratch.0)
    };
    let lines: Vec<String> = row.lines.iter().zip(ends).map(fill).collect();
    let Effort { patience, loss, is_late, .. } = effort;
    let has_guest = ends.iter().any(|end| matches!(end.place, Place::Guest(_)));
    let may_be_left = has_guest && loss > 0 && row.leaves_early();
    let terms = Terms { patience, loss, is_late, may_be_left };
    let running = [Running::default(), Running::default()];
    let (say, hear) = mpsc::channel();
    thread::scope(|scope| {
        let start = |side: usize| {
            let (say, line, end) = (say.clone(), &lines[side], ends[side]);
            let running = [&running[side], &running[1 - side]];
            scope.spawn(move || say.send((side, end.run(line, terms, running))));
        };
        start(SERVER);
        let deadline = Instant::now() + patience;
        let hear_until = |deadline: Instant| {
            hear.recv_timeout(deadline.saturating_duration_since(Instant::now()))
        };
        if row.meet == Meet::Alone {
            let (_, ended) = hear_until(deadline + GRACE).map_err(|_| "did not end")?;
            return match ended {
                Ok(said) if said.contains("roxe0") => Ok(()),
                Ok(said) => Err(format!("it names no adapter: {said}").into()),
                Err(why) => Err(why.into()),
            };
        }
        while !ends[SERVER].listens(row.meet, &running[SERVER]) {
            if let Ok((_, ended)) = hear.recv_timeout(Duration::from_millis(10)) {
                let said = ended.unwrap_or_else(|why| why);
                return Err(
                    format!("the server ended before its client came, {}", last(&said)).into()
                );
            }
            if Instant::now() > deadline {
                running[SERVER].stop();
                return Err("the server does not listen".into());
            }
        }
        let is_for_ever = row.meet == Meet::CmForEver;
        let mut clients = if is_for_ever { 2 } else { 1 };
        start(CLIENT);
        let mut ended: [Option<Ended>; 2] = [None, None];
        // Both end by themselves when patience does, the server a moment later.
        let mut deadline = deadline + GRACE;
        while ended.iter().any(Option::is_none) {
            match hear_until(deadline) {
                Ok((CLIENT, Ok(_))) if clients > 1 => {
                    clients -= 1;
                    start(CLIENT);
                }
                Ok((side, how)) => {
                    let is_over = how.is_err() || side == CLIENT && is_for_ever;
                    ended[side] = Some(how);
                    if side == CLIENT && is_for_ever {
                        running[SERVER].stop();
                    } else if is_over {
                        deadline = deadline.min(Instant::now() + GRACE);
                    }
                }
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    running.iter().for_each(Running::stop);
                    deadline = Instant::now() + 10 * GRACE;
                }
            }
        }
        let ended = ended.map(|how| how.unwrap_or_else(|| Err("did not end".into())));
        judge(row, ended)?;
        if !running.iter().all(Running::has_library) {
            let why = "a program was not seen with our library".to_owned();
            return Err(Failure { why, excused: true });
        }
        match loss > 0 && running.iter().all(|side| side.lost() == 0) {
            true => Err(Failure { why: NOTHING_LOST.to_owned(), excused: true }),
            false => Ok(()),
        }
    })
}

/// What a cell shows then is another column's.
const NOTHING_LOST: &str = "no packet was seen lost";

/// Where more of a hundred packets are lost, connections are hardly made.
const MOST_LOST: u32 = 20;

/// What came of both sides, the server's first.
fn judge(row: &Row, [server, client]: [Ended; 2]) -> Result<(), Failure> {
    let server = match server {
        // We ended it.
        Err(how) if row.meet == Meet::CmForEver && client.is_ok() && how.starts_with(IN_VAIN) => {
            Ok(how)
        }
        server => server,
    };
    let sides = [("client", &client), ("server", &server)];
    let texts = sides.map(|(_, how)| how.as_ref().unwrap_or_else(|how| how).as_str());
    // Some look at what came, say so, and end with 0.
    if let Some(line) = texts.iter().find_map(|text| complaint(text)) {
        return Err(line.into());
    }
    let failed = sides.iter().filter_map(|(side, how)| Some((side, how.as_ref().err()?)));
    let why: Vec<_> = failed.map(|(side, how)| format!("{side}: {}", last(how))).collect();
    if !why.is_empty() {
        return Err(Failure { why: why.join("; "), excused: is_excused(row, texts) });
    }
    match &client {
        Ok(said) if row.is_perftest() && !reports(said) => {
            Err(format!("its report is of no message: {}", last(said)).into())
        }
        _ => Ok(()),
    }
}

/// The line that says that data were not those that were sent.
fn complaint(said: &str) -> Option<&str> {
    said.lines().find(|line| ["invalid data", "data mismatch"].iter().any(|it| line.contains(it)))
}

/// Whether perftest's report has lines, and each is of messages: `#bytes #iterations …`.
fn reports(said: &str) -> bool {
    let mut rows = said.lines().skip_while(|line| !line.trim_start().starts_with("#bytes")).skip(1);
    let is_row = |line: &&str| line.trim_start().starts_with(|it: char| it.is_ascii_digit());
    let counted = |line: &str| line.split_whitespace().nth(1)?.parse::<u64>().ok();
    let mut rows = rows.by_ref().take_while(is_row).peekable();
    rows.peek().is_some() && rows.all(|line| counted(line).is_some_and(|count| count > 0))
}

/// Whether what the client and the server said is for a reason that the page names.
fn is_excused(row: &Row, texts: [&str; 2]) -> bool {
    // What pingpongs say, perftest, rping, and our library.
    const NO_ANSWER: [&str; 4] = [
        "transport retry counter exceeded",
        "Failed status 12:",
        "failed status 12",
        ": retry exceeded: ",
    ];
    let crashed = |text: &str| {
        ["signal: ", "at the peer, exit status 139", "at the peer, exit status 134"]
            .iter()
            .any(|how| text.starts_with(how))
    };
    // A service that is not there refuses a connection so, and so what asks for datagrams.
    const CAME_EARLY: [&str; 2] =
        ["RDMA_CM_EVENT_REJECTED; error: 8", "RDMA_CM_EVENT_UNREACHABLE; error: 1."];
    let [client, server] = texts;
    // What it does then may be a crash, too.
    let came_early = row.is_perftest()
        && row.meet == Meet::Cm
        && CAME_EARLY.iter().any(|words| client.contains(words));
    let was_given_up = NO_ANSWER.iter().any(|words| texts.iter().any(|text| text.contains(words)));
    let was_left = row.leaves_early() && texts.iter().any(|text| text.starts_with(LEFT));
    // It looks at a completion that it has not got, then.
    let took_the_wrong = row.may_take_the_wrong_event()
        && texts.iter().all(|text| {
            [IN_VAIN, "did not end in"].iter().any(|how| text.starts_with(how))
                || text.contains("exit status 137")
                || text.contains("Completion with error at")
        });
    let asked_in_vain = (was_given_up || was_left) && !crashed(client);
    !crashed(server) && (came_early || took_the_wrong || asked_in_vain)
}

const SERVER: usize = 0;
const CLIENT: usize = 1;

/// How long who is left may go on.
const GRACE: Duration = Duration::from_secs(3);

/// A line with what its end fills in.
fn fill(line: &str, row: &Row, own: &End<'_>, ends: [&End<'_>; 2], effort: Effort) -> String {
    let family = usize::from(row.is_ipv6);
    let [n, few, patience] = effort.words;
    [
        ("{gid}", own.gids[family].to_string().as_str()),
        ("{server}", ends[SERVER].addresses[family].as_str()),
        ("{client}", ends[CLIENT].addresses[family].as_str()),
        ("{meeting}", ends[SERVER].addresses[0].as_str()),
        ("{n}", n),
        ("{few}", few),
        ("{patience}", patience),
    ]
    .iter()
    .fold(line.to_owned(), |line, (name, value)| line.replace(name, value))
}

/// How a program ended, and the last that it said, in a line.
fn last(said: &str) -> String {
    let is_word = |line: &&str| line.chars().any(char::is_alphanumeric);
    let lines: Vec<&str> = said.lines().map(str::trim).filter(is_word).collect();
    let end = lines.len().saturating_sub(3).max(1);
    let end = lines.get(end..).unwrap_or_default();
    lines.iter().take(1).chain(end).copied().collect::<Vec<_>>().join(" / ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(row: &str, server: Ended, client: Ended) -> Result<(), Failure> {
        let mut rows = Row::all().into_iter();
        judge(&rows.find(|it| it.name() == row).expect("it is a row"), [server, client])
    }

    fn ok(said: &str) -> Ended {
        Ok(said.to_owned())
    }

    fn bad(said: &str) -> Ended {
        Err(said.to_owned())
    }

    fn excused(row: &str, server: Ended, client: Ended) -> bool {
        judged(row, server, client).expect_err("it is wrong").excused
    }

    #[test]
    fn data_that_a_program_complains_of_are_wrong_whatever_its_status() {
        let row = "ibv_rc_pingpong -c -s 65536";
        assert_eq!(judged(row, ok("500 iters"), ok("500 iters")), Ok(()));
        assert!(!excused(row, ok("invalid data in page 3\n500 iters"), ok("500 iters")));
        let given_up = "exit status: 1: invalid data in page 3\ntransport retry counter exceeded";
        assert!(!excused(row, ok(""), bad(given_up)));
    }

    #[test]
    fn a_server_that_goes_on_for_ever_may_only_end_because_we_end_it() {
        let row = "rping -P -V";
        assert_eq!(judged(row, bad("was waited for in vain: "), ok("")), Ok(()));
        assert!(!excused(row, bad("signal: 11 (SIGSEGV) (core dumped): "), ok("")));
        assert!(!excused("rping -q -V", bad("was waited for in vain: "), ok("")));
    }

    #[test]
    fn a_report_is_of_messages() {
        let row = "ib_send_lat -D 5";
        let report = |count: &str| format!("---\n #bytes #iterations t_avg\n 2  {count}  1.5\n---");
        assert_eq!(judged(row, ok(""), Ok(report("17"))), Ok(()));
        assert!(!excused(row, ok(""), Ok(report("0"))));
        assert!(!excused(row, ok(""), ok("---")));
    }

    #[test]
    fn another_go_is_for_reasons_that_are_named() {
        let given_up = "exit status: 1: Failed status transport retry counter exceeded (12)";
        assert!(excused("ibv_rc_pingpong", bad(given_up), ok("")));
        assert!(!excused("ibv_rc_pingpong", bad(given_up), bad("signal: 11 (SIGSEGV): ")));
        assert!(!excused("ibv_rc_pingpong", bad("did not end in 120s: "), ok("")));
        let early = || bad("signal: 11 (SIGSEGV): Event: RDMA_CM_EVENT_REJECTED; error: 8.");
        assert!(excused("ib_send_bw -R", bad("was waited for in vain: "), early()));
        assert!(!excused("ib_send_bw -R", bad("signal: 11 (SIGSEGV): "), early()));
        assert!(!excused("ib_send_bw", bad("was waited for in vain: "), early()));
        let waits = ["did not end in 37s: ", "at the peer, exit status 137: timeout: Killed"];
        assert!(excused("ib_send_lat -e", bad(waits[0]), bad(waits[1])));
        let looks = "at the peer, exit status 17: Completion with error at client";
        assert!(excused("ib_send_lat -e", bad(looks), bad("was waited for in vain: ")));
        assert!(!excused("ib_send_lat -e", bad(waits[0]), bad("exit status: 1: ")));
        assert!(!excused("ib_send_lat", bad(waits[0]), bad(waits[1])));
        let left = || bad("still asked long after its peer had left: at the peer, exit status 137");
        assert!(excused("ibv_srq_pingpong", left(), ok("100 iters")));
        assert!(excused("rdma_server", bad("was waited for in vain: "), left()));
        assert!(!excused("rdma_server", bad("signal: 11 (SIGSEGV): "), left()));
        assert!(!excused("rping -q -V", ok(""), left()));
        let early = bad("signal: 11 (SIGSEGV): Event: RDMA_CM_EVENT_UNREACHABLE; error: 1.");
        assert!(excused("ib_send_lat -R", bad("was waited for in vain: "), early));
    }
}
