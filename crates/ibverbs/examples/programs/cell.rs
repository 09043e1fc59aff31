//! A cell: a row's programs at two ends.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};
use std::{fs, process, thread};

use crate::end::{End, Ended, Place, Running};
use crate::namespace::Cable;
use crate::rows::{Meet, Row};

/// What carries packets, whether some are lost, and who the other is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Column {
    pub(crate) name: &'static str,
    pub(crate) port: Port,
    /// One packet of a hundred, each way.
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
    goes: u32,
    /// What `{n}`, `{few}` and `{patience}` stand for.
    words: [&'static str; 3],
}

impl Effort {
    /// On a busy machine a host may not come to answer within the half a second that programs give
    /// it.
    const FULL: Self =
        Self { patience: Duration::from_secs(120), goes: 3, words: ["500", "20", ""] };

    /// Connections that are made by the connection manager wait for seconds before they send again.
    const LOSSY: Self = Self { words: ["200", "10", ""], ..Self::FULL };

    /// An emulated host answers late.
    const WITH_GUEST: Self =
        Self { patience: Duration::from_secs(150), goes: 3, words: ["200", "5", "-u 18"] };

    /// A pingpong ends when it has counted enough, though its peer may wait for an acknowledgement
    /// that was lost: with the sixteen queue pairs of `ibv_srq_pingpong` more often than not.
    const GOES_OF_LOSSY_PINGPONG: u32 = 10;
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
        let end = |namespace, interface, number| {
            let addresses = [format!("192.0.2.{number}"), format!("fd00::{number}")];
            let place = match self.port {
                Port::Xdp => format!("xdp:{interface}"),
                // A socket has one address.
                Port::Udp => format!("udp:{}", addresses[usize::from(row.is_ipv6)]),
            };
            // One end loses what it sends and what it receives.
            let loss = if number == 1 { self.loss() } else { "" };
            let place =
                Place::Ours { namespace: Some(namespace), devices: format!("{place}{loss}") };
            End { place, addresses, gids: [0, u64::from(self.port == Port::Xdp)] }
        };
        let ends = [end(&cable.a, "va", 1), end(&cable.b, "vb", 2)];
        run(row, [&ends[0], &ends[1]], self.effort(row), || Ok(()))
    }

    /// What the device string of our end says of it.
    pub(crate) const fn loss(self) -> &'static str {
        if self.loses { ",fault=drop 1%" } else { "" }
    }

    /// How hard a row is tried here.
    pub(crate) fn effort(self, row: &Row) -> Effort {
        let effort = match (self.peer, self.loses) {
            (Peer::RxeAsks | Peer::RxeServes, _) => Effort::WITH_GUEST,
            (Peer::Roxe, true) => Effort::LOSSY,
            (Peer::Roxe, false) => Effort::FULL,
        };
        let is_lossy_pingpong = self.loses && row.program.starts_with("ibv_");
        let goes = if is_lossy_pingpong { Effort::GOES_OF_LOSSY_PINGPONG } else { effort.goes };
        Effort { goes, ..effort }
    }
}

/// Runs a row's programs, the server at the first end, until they have ended well, or so many times
/// as time allows. After a go that went wrong the ends may need to be mended.
pub(crate) fn run(
    row: &Row,
    ends: [&End<'_>; 2],
    effort: Effort,
    mend: impl Fn() -> Result<(), String>,
) -> Verdict {
    let Effort { patience, goes, .. } = effort;
    let start = Instant::now();
    let mut before = String::new();
    for go in 1..=goes {
        let ended = go_once(
            row,
            ends,
            Effort { patience: patience.saturating_sub(start.elapsed()), ..effort },
        );
        match (ended, row.refusal) {
            (Ok(()), None) => return Verdict::Right { goes: go, before },
            (Ok(()), Some(_)) => return Verdict::Wrong("works, and should not".to_owned()),
            (Err(said), Some((refusal, why))) if said.contains(refusal) => {
                return Verdict::Absent(why.to_owned());
            }
            (Err(why), _) if go == goes || start.elapsed() > patience / 2 => {
                return Verdict::Wrong(why);
            }
            (Err(why), _) => before = why,
        }
        if let Err(why) = mend() {
            return Verdict::Wrong(format!("{why}; {before}"));
        }
    }
    Verdict::Wrong(before)
}

/// Once: both sides.
fn go_once(row: &Row, ends: [&End<'_>; 2], effort: Effort) -> Result<(), String> {
    let scratch = Scratch::new();
    let fill = |(line, end): (&String, _)| {
        fill(line, row, end, ends, effort).replace("{scratch}", &scratch.0)
    };
    let lines: Vec<String> = row.lines.iter().zip(ends).map(fill).collect();
    let patience = effort.patience;
    let running = [Running::default(), Running::default()];
    let (say, hear) = mpsc::channel();
    thread::scope(|scope| {
        let start = |side: usize| {
            let (say, line, end, running) = (say.clone(), &lines[side], ends[side], &running[side]);
            scope.spawn(move || say.send((side, end.run(line, patience, running))));
        };
        start(SERVER);
        let deadline = Instant::now() + patience;
        let hear_until = |deadline: Instant| {
            hear.recv_timeout(deadline.saturating_duration_since(Instant::now()))
        };
        if row.meet == Meet::Alone {
            let (_, ended) = hear_until(deadline + GRACE).map_err(|_| "did not end")?;
            return ended.map(drop);
        }
        while !ends[SERVER].listens(row.meet, &running[SERVER]) {
            if let Ok((_, ended)) = hear.recv_timeout(Duration::from_millis(10)) {
                let said = ended.unwrap_or_else(|why| why);
                return Err(format!("the server ended before its client came, {}", last(&said)));
            }
            if Instant::now() > deadline {
                running[SERVER].stop();
                return Err("the server does not listen".to_owned());
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
        let [server, client] = ended.map(|how| how.unwrap_or_else(|| Err("did not end".into())));
        match (client, server) {
            (Ok(_), Ok(_)) => Ok(()),
            (Ok(_), Err(_)) if is_for_ever => Ok(()),
            (Ok(_), Err(why)) => Err(format!("server: {}", last(&why))),
            (Err(why), Ok(_)) => Err(format!("client: {}", last(&why))),
            (Err(client), Err(server)) => {
                Err(format!("client: {}; server: {}", last(&client), last(&server)))
            }
        }
    })
}

const SERVER: usize = 0;
const CLIENT: usize = 1;

/// How long who is left may go on.
const GRACE: Duration = Duration::from_secs(3);

/// The name of a file that goes with it; one in a guest goes with the guest.
struct Scratch(String);

impl Scratch {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Relaxed);
        Self(format!("/tmp/roxe-programs-{}-{count}", process::id()))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Most rows write none.
        let _ = fs::remove_file(&self.0);
    }
}

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
