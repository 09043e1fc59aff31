//! What goes wrong on purpose, or nearly does: how it must end at both ends.

use std::thread;
use std::time::{Duration, Instant as Clock};

use roxe_verbs::{Mtu, ServiceType};

use crate::Outcome;
use crate::batch::{ADD, GUARD, SOURCE, TARGET, WORD, join, must_be, nothing_more};
use crate::end::{Card, Done, End, MEMORY, Setup, Work, pattern, status_name};
use crate::peer::Need;

/// What two ends do of which one asks.
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    /// What not every adapter has and this does.
    pub(crate) needs: Option<Need>,
    /// What is special about the queue pairs.
    setup: fn(&mut Setup),
    play: fn(&mut Pair<'_>) -> Outcome,
    /// The states in which the queue pairs of who asks and of who is asked are then.
    states: [&'static str; 2],
    /// What roxe must have counted where it asks, and where it is asked; nothing else but traffic
    /// and repetitions.
    pub(crate) roxe: Counts,
    /// The same of rxe.
    pub(crate) rxe: Counts,
}

/// Both go on.
const ALIVE: [&str; 2] = ["rts", "rts"];
/// Who asked has got no answer, or none that helps.
const GIVEN_UP: [&str; 2] = ["error", "rts"];
/// Who was asked has refused.
const REFUSED: [&str; 2] = ["error", "error"];
const GONE: [&str; 2] = ["error", "gone"];

/// What roxe counts, by the names of mlx5 and rxe, where it asks and where it is asked.
type Counts = [&'static [&'static str]; 2];

const NOTHING: Counts = [&[], &[]];
const NOT_READY: Counts =
    [&["rcvd_rnr_err", "rnr_nak_retry_err"], &["out_of_buffer", "send_rnr_err"]];
const NEVER_READY: Counts = [
    &[
        "rcvd_rnr_err",
        "rnr_nak_retry_err",
        "req_cqe_error",
        "req_rnr_retries_exceeded",
        "retry_rnr_exceeded_err",
    ],
    NOT_READY[1],
];
const NO_ACCESS: Counts = [
    &["req_remote_access_errors", "req_cqe_error"],
    &["resp_remote_access_errors", "nak_fatal_sent"],
];
const NOT_ALLOWED: Counts = [&["req_remote_invalid_request", "req_cqe_error"], &["nak_fatal_sent"]];
const TOO_LONG: Counts = [
    &["req_remote_operation_errors", "req_cqe_error"],
    &["nak_fatal_sent", "resp_cqe_error", "resp_local_length_error"],
];
const NO_ANSWER: Counts = [
    &[
        "local_ack_timeout_err",
        "req_cqe_error",
        "req_transport_retries_exceeded",
        "retry_exceeded_err",
    ],
    &["unknown_qp"],
];
const NO_ANSWERS: Counts = [
    &[
        "local_ack_timeout_err",
        "req_cqe_error",
        "req_cqe_flush_error",
        "req_transport_retries_exceeded",
        "retry_exceeded_err",
    ],
    &["unknown_qp"],
];

/// The same of rxe.
const RXE_NOT_READY: Counts = [&["rcvd_rnr_err"], &["send_rnr_err"]];
const RXE_NEVER_READY: Counts = [&["rcvd_rnr_err", "retry_rnr_exceeded_err"], &["send_rnr_err"]];
const RXE_NO_ANSWER: Counts = [&["retry_exceeded_err"], &[]];

#[rustfmt::skip]
pub(crate) const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "PSN wraps around",
        needs: Some(Need::Atomic),
        setup: |it| it.psn = [0xff_fffa, 0xff_fff7],
        play: |it| it.bursts(),
        states: ALIVE, roxe: NOTHING, rxe: NOTHING,
    },
    Scenario {
        name: "16 READs outstanding",
        needs: None,
        setup: |_| {},
        play: |it| it.burst(Kind::Read, 12_289, 1),
        states: ALIVE, roxe: NOTHING, rxe: NOTHING,
    },
    Scenario {
        name: "receiver not ready, recovers",
        needs: None,
        setup: |_| {},
        play: |it| it.late_receive(),
        states: ALIVE, roxe: NOT_READY, rxe: RXE_NOT_READY,
    },
    Scenario {
        name: "receiver not ready, given up",
        needs: None,
        setup: |it| it.rnr_retry = 1,
        play: |it| {
            it.post(0, Work::Send, 3000)?;
            it.must_end(it.from, 0, &[RNR_RETRY_EXC_ERR])
        },
        states: GIVEN_UP, roxe: NEVER_READY, rxe: RXE_NEVER_READY,
    },
    Scenario {
        name: "WRITE with a wrong R_Key",
        needs: None,
        setup: |_| {},
        play: |it| {
            let Card { va, r_key, .. } = it.peer();
            it.must_fail(Work::Write { va, r_key: r_key ^ 0x55 }, 3000, &[REM_ACCESS_ERR])
        },
        states: REFUSED, roxe: NO_ACCESS, rxe: NOTHING,
    },
    Scenario {
        name: "READ with a wrong R_Key",
        needs: None,
        setup: |_| {},
        play: |it| {
            let Card { va, r_key, .. } = it.peer();
            it.must_fail(Work::Read { va, r_key: r_key ^ 0x55 }, 3000, &[REM_ACCESS_ERR])
        },
        states: REFUSED, roxe: NO_ACCESS, rxe: NOTHING,
    },
    Scenario {
        name: "atomic with a wrong R_Key",
        needs: Some(Need::Atomic),
        setup: |_| {},
        play: |it| {
            let Card { va, r_key, .. } = it.peer();
            let work = Work::FetchAdd { va: va + WORD, r_key: r_key ^ 0x55, add: ADD };
            it.must_fail(work, 8, &[REM_ACCESS_ERR])
        },
        states: REFUSED, roxe: NO_ACCESS, rxe: NOTHING,
    },
    Scenario {
        name: "WRITE out of bounds",
        needs: None,
        setup: |_| {},
        play: |it| {
            let Card { va, r_key, .. } = it.peer();
            let work = Work::Write { va: va + MEMORY as u64 - 2999, r_key };
            it.must_fail(work, 3000, &[REM_ACCESS_ERR])
        },
        states: REFUSED, roxe: NO_ACCESS, rxe: NOTHING,
    },
    Scenario {
        name: "READ out of bounds",
        needs: None,
        setup: |_| {},
        play: |it| {
            let Card { va, r_key, .. } = it.peer();
            let work = Work::Read { va: va + MEMORY as u64 - 2999, r_key };
            it.must_fail(work, 3000, &[REM_ACCESS_ERR])
        },
        states: REFUSED, roxe: NO_ACCESS, rxe: NOTHING,
    },
    Scenario {
        name: "WRITE where the region allows none",
        needs: None,
        setup: |_| {},
        play: |it| {
            let (va, r_key) = it.ends[it.to()].read_only()?;
            it.must_fail(Work::Write { va, r_key }, 3000, &[REM_ACCESS_ERR])
        },
        states: REFUSED, roxe: NO_ACCESS, rxe: NOTHING,
    },
    Scenario {
        name: "WRITE where the queue pair allows none",
        needs: None,
        setup: |it| it.remote_access = false,
        play: |it| {
            let Card { va, r_key, .. } = it.peer();
            let work = Work::Write { va, r_key };
            it.must_fail(work, 3000, &[REM_INV_REQ_ERR, REM_ACCESS_ERR])
        },
        states: REFUSED, roxe: NOT_ALLOWED, rxe: NOTHING,
    },
    Scenario {
        name: "READ where the queue pair allows none",
        needs: None,
        setup: |it| it.remote_access = false,
        play: |it| {
            let Card { va, r_key, .. } = it.peer();
            let work = Work::Read { va, r_key };
            it.must_fail(work, 3000, &[REM_INV_REQ_ERR, REM_ACCESS_ERR])
        },
        states: REFUSED, roxe: NOT_ALLOWED, rxe: NOTHING,
    },
    Scenario {
        name: "SEND longer than its receive",
        needs: None,
        setup: |_| {},
        play: |it| {
            it.ends[it.to()].receive(RECEIVE, TARGET, 1500)?;
            it.post(0, Work::Send, 3000)?;
            it.must_end(it.from, 0, &[REM_INV_REQ_ERR, REM_OP_ERR])?;
            it.must_end(it.to(), RECEIVE, &[LOC_LEN_ERR, LOC_QP_OP_ERR])
        },
        states: REFUSED, roxe: TOO_LONG, rxe: NOTHING,
    },
    Scenario {
        name: "queue pair gone",
        needs: None,
        setup: |it| it.retry_cnt = 2,
        play: |it| {
            it.ends[it.to()].destroy()?;
            let Card { va, r_key, .. } = it.peer();
            it.must_fail(Work::Write { va, r_key }, 3000, &[RETRY_EXC_ERR])
        },
        states: GONE, roxe: NO_ANSWER, rxe: RXE_NO_ANSWER,
    },
    Scenario {
        name: "queue pair goes in mid-message",
        needs: None,
        setup: |it| it.retry_cnt = 2,
        play: |it| it.torn_down(),
        states: GONE, roxe: NO_ANSWERS, rxe: RXE_NO_ANSWER,
    },
];

/// The name of the scenario that [`rebooted`] is.
pub(crate) const REBOOTED: &str = "peer rebooted";

/// Two ends that are connected.
pub(crate) struct Pair<'a> {
    ends: &'a mut [Box<dyn End>; 2],
    cards: [Card; 2],
    from: usize,
}

/// Messages that are on their way at once.
#[derive(Clone, Copy, Debug)]
struct Burst {
    from: usize,
    kind: Kind,
    /// Bytes of each.
    len: u64,
    seed: u64,
}

/// What a burst is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Send,
    Write,
    WriteImm,
    Read,
    Add,
}

impl Kind {
    const ALL: [Self; 5] = [Self::Send, Self::Write, Self::WriteImm, Self::Read, Self::Add];

    const fn takes_receive(self) -> bool {
        matches!(self, Self::Send | Self::WriteImm)
    }
}

impl Burst {
    /// Out of which end's memory and into which end's it goes.
    fn ends(&self) -> [usize; 2] {
        let to = 1 - self.from;
        if self.kind == Kind::Read { [to, self.from] } else { [self.from, to] }
    }

    /// Either direction has places of its own.
    const fn place(&self, at: u64) -> u64 {
        ((self.from as u64) << 20) + at * STRIDE
    }

    const fn source(&self, at: u64) -> u64 {
        SOURCE + self.place(at)
    }

    const fn target(&self, at: u64) -> u64 {
        TARGET + self.place(at)
    }

    /// Eight bytes before a source.
    const fn result(&self, at: u64) -> u64 {
        self.place(at)
    }

    const fn word(&self) -> u64 {
        WORD + 8 * self.from as u64
    }

    /// The name of a request, which nothing of another burst has.
    const fn request(&self, at: u64) -> u64 {
        self.seed << 9 | at
    }

    /// The same of a receive.
    const fn receive(&self, at: u64) -> u64 {
        self.request(at) | RECEIVE
    }
}

/// `ibv_wc_status`.
const LOC_LEN_ERR: u8 = 1;
const LOC_QP_OP_ERR: u8 = 2;
const WR_FLUSH_ERR: u8 = 5;
const REM_INV_REQ_ERR: u8 = 9;
const REM_ACCESS_ERR: u8 = 10;
const REM_OP_ERR: u8 = 11;
const RETRY_EXC_ERR: u8 = 12;
const RNR_RETRY_EXC_ERR: u8 = 13;

/// Requests of a burst: all are on their way at once.
const MANY: u64 = 16;

/// WRITEs of a peer that goes while they are on their way.
const MUCH: u64 = 4;

/// Between the places of a burst's messages.
const STRIDE: u64 = 16 << 10;

/// The bit that names of receives have.
const RECEIVE: u64 = 1 << 8;

/// A requester that is never answered gives up long before that.
const PATIENCE: Duration = Duration::from_secs(30);

fn setup() -> Setup {
    Setup {
        service: ServiceType::Rc,
        path_mtu: Mtu::B1024,
        srq: false,
        remote_access: true,
        psn: [0x1234, 0x65_4321],
        // 268 ms: longer than a guest that is emulated takes.
        timeout: 16,
        retry_cnt: 7,
        rnr_retry: 7,
        min_rnr_timer: 20,
        rd_atomic: MANY as u8,
    }
}

impl Scenario {
    /// Whether the queue pair of an end goes, where `from` asks.
    pub(crate) fn is_gone(&self, end: usize, from: usize) -> bool {
        self.states[usize::from(end != from)] == "gone"
    }

    /// Connects both ends and plays, of which `from` asks.
    pub(crate) fn play(&self, ends: &mut [Box<dyn End>; 2], from: usize) -> Outcome {
        let mut setup = setup();
        (self.setup)(&mut setup);
        let cards = join(ends, &setup)?;
        (self.play)(&mut Pair { ends, cards, from })?;
        for (end, should) in [from, 1 - from].into_iter().zip(self.states) {
            if should != "gone" {
                let name = ends[end].name();
                must_be(&format!("{name}: state"), ends[end].state()?.as_str(), should)?;
            }
        }
        nothing_more(ends)
    }
}

/// Who is asked goes in the middle of it and comes again, as `reboot` does that: what was asked of
/// it ends, and then both understand each other as before.
pub(crate) fn rebooted(
    mut ends: [Box<dyn End>; 2],
    from: usize,
    reboot: impl FnOnce(Box<dyn End>) -> Outcome<Box<dyn End>>,
) -> Outcome {
    let setup = Setup { retry_cnt: 2, ..setup() };
    let cards = join(&mut ends, &setup)?;
    let mut pair = Pair { ends: &mut ends, cards, from };
    pair.burst(Kind::Write, 5001, 1)?;
    pair.ask_much()?;
    let [one, other] = ends;
    let mut ends = match from {
        0 => [one, reboot(other)?],
        _ => [reboot(one)?, other],
    };
    // Where all that was quick enough, this one is not.
    let mut pair = Pair { ends: &mut ends, cards, from };
    let Card { va, r_key, .. } = pair.peer();
    pair.post(4, Work::Write { va, r_key }, 1 << 20)?;
    pair.must_give_up(5)?;
    must_be("state", ends[from].state()?.as_str(), "error")?;
    ends[from].destroy()?;
    let cards = join(&mut ends, &setup)?;
    Pair { ends: &mut ends, cards, from }.bursts()
}

impl Pair<'_> {
    const fn to(&self) -> usize {
        1 - self.from
    }

    const fn peer(&self) -> Card {
        self.cards[self.to()]
    }

    fn post(&mut self, id: u64, work: Work, len: u32) -> Outcome {
        self.ends[self.from].post(id, work, SOURCE, len)
    }

    /// The next completion of an end has this name and one of these statuses.
    fn must_end(&mut self, end: usize, id: u64, statuses: &[u8]) -> Outcome {
        let name = self.ends[end].name();
        match self.ends[end].wait(1, PATIENCE)?[..] {
            [done] if done.id == id && statuses.contains(&done.status) => Ok(()),
            ref other => {
                let ended = |done: &Done| format!("{} {}", done.id, status_name(done.status));
                let is: Vec<_> = other.iter().map(ended).collect();
                let wanted: Vec<_> = statuses.iter().map(|it| status_name(*it)).collect();
                let (is, wanted) = (is.join(", "), wanted.join(" or "));
                Err(format!("{name}: completed [{is}], not {id} {wanted}").into())
            }
        }
    }

    /// A request ends so, and nothing is written at either end.
    fn must_fail(&mut self, work: Work, len: u32, statuses: &[u8]) -> Outcome {
        let seeds = [7, 8];
        for (end, seed) in self.ends.iter_mut().zip(seeds) {
            end.fill(0, MEMORY as u64, seed)?;
        }
        self.post(0, work, len)?;
        self.must_end(self.from, 0, statuses)?;
        for (end, seed) in self.ends.iter_mut().zip(seeds) {
            let whole = end.check(0, MEMORY as u64, seed, 0);
            whole.map_err(|why| format!("{}: memory that nobody may write: {why}", end.name()))?;
        }
        Ok(())
    }

    fn late_receive(&mut self) -> Outcome {
        let (from, to) = (self.from, self.to());
        self.ends[from].fill(SOURCE, 3000, 5)?;
        self.post(0, Work::Send, 3000)?;
        thread::sleep(Duration::from_millis(300));
        self.ends[to].receive(RECEIVE, TARGET, 3000)?;
        self.must_end(from, 0, &[0])?;
        self.must_end(to, RECEIVE, &[0])?;
        self.ends[to].check(TARGET, 3000, 5, 0)
    }

    fn torn_down(&mut self) -> Outcome {
        self.ask_much()?;
        self.ends[self.to()].destroy()?;
        self.must_give_up(MUCH as usize)
    }

    /// WRITEs that are not done when the next line runs.
    fn ask_much(&mut self) -> Outcome {
        let Card { va, r_key, .. } = self.peer();
        (0..MUCH).try_for_each(|id| self.post(id, Work::Write { va, r_key }, 1 << 20))
    }

    /// Of so many requests one gets no answer, and those behind it are flushed.
    fn must_give_up(&mut self, count: usize) -> Outcome {
        let done = self.ends[self.from].wait(count, PATIENCE)?;
        must_be("completions", done.len(), count)?;
        let failed: Vec<u8> = done.iter().map(|it| it.status).filter(|it| *it != 0).collect();
        match failed[..] {
            [RETRY_EXC_ERR, ref rest @ ..] if rest.iter().all(|it| *it == WR_FLUSH_ERR) => Ok(()),
            _ => {
                let failed: Vec<_> = failed.iter().map(|it| status_name(*it)).collect();
                Err(format!("its requests ended with [{}]", failed.join(", ")).into())
            }
        }
    }

    fn bursts(&mut self) -> Outcome {
        let mut seed = 0;
        for len in [1, 1000, 5001] {
            for what in Kind::ALL {
                seed += MANY;
                self.burst(what, len, seed)?;
            }
        }
        Ok(())
    }

    /// Many messages at once.
    fn burst(&mut self, kind: Kind, len: u64, seed: u64) -> Outcome {
        self.exchange(&[Burst { from: self.from, kind, len, seed }])
    }

    /// Bursts at the same time, of each end one at most.
    fn exchange(&mut self, bursts: &[Burst]) -> Outcome {
        let mut due = [Vec::new(), Vec::new()];
        for burst in bursts {
            self.prepare(burst)?;
            due[burst.from].extend((0..MANY).map(|at| (burst.request(at), None)));
            if burst.kind.takes_receive() {
                let imm = |at| (burst.kind == Kind::WriteImm).then_some((burst.seed + at) as u32);
                due[1 - burst.from].extend((0..MANY).map(|at| (burst.receive(at), imm(at))));
            }
        }
        for at in 0..MANY {
            bursts.iter().try_for_each(|burst| self.post_one(burst, at))?;
        }
        let done = due.iter().enumerate().try_for_each(|(end, due)| self.must_be_done(end, due));
        let done = done.and_then(|()| bursts.iter().try_for_each(|burst| self.verify(burst)));
        let done = done.and_then(|()| nothing_more(self.ends));
        done.map_err(|why| format!("{bursts:?}: {why}").into())
    }

    /// Fills memory, and posts receives.
    fn prepare(&mut self, burst: &Burst) -> Outcome {
        let &Burst { from, kind, len, seed } = burst;
        let (to, [source, target]) = (1 - from, burst.ends());
        self.ends[to].set_word(burst.word(), seed)?;
        for at in 0..MANY {
            self.ends[source].fill(burst.source(at), len, seed + at)?;
            self.ends[target].fill(burst.target(at), len + GUARD, !(seed + at))?;
            if kind.takes_receive() {
                let room = if kind == Kind::WriteImm { 0 } else { len };
                self.ends[to].receive(burst.receive(at), burst.target(at), room as u32)?;
            }
        }
        Ok(())
    }

    fn post_one(&mut self, burst: &Burst, at: u64) -> Outcome {
        let Card { va, r_key, .. } = self.cards[1 - burst.from];
        let (source, target) = (burst.source(at), burst.target(at));
        let imm = (burst.seed + at) as u32;
        let (work, local, len) = match burst.kind {
            Kind::Send => (Work::Send, source, burst.len),
            Kind::Write => (Work::Write { va: va + target, r_key }, source, burst.len),
            Kind::WriteImm => (Work::WriteImm { va: va + target, r_key, imm }, source, burst.len),
            Kind::Read => (Work::Read { va: va + source, r_key }, target, burst.len),
            Kind::Add => {
                (Work::FetchAdd { va: va + burst.word(), r_key, add: ADD }, burst.result(at), 8)
            }
        };
        self.ends[burst.from].post(burst.request(at), work, local, len as u32)
    }

    fn verify(&mut self, burst: &Burst) -> Outcome {
        let &Burst { from, kind, len, seed } = burst;
        if kind == Kind::Add {
            for at in 0..MANY {
                let found = self.ends[from].word(burst.result(at))?;
                must_be("what an atomic found", found, seed + at * ADD)?;
            }
            let left = self.ends[1 - from].word(burst.word())?;
            return must_be("what atomics left", left, seed + MANY * ADD);
        }
        let [_, target] = burst.ends();
        for at in 0..MANY {
            self.ends[target].check(burst.target(at), len, seed + at, 0)?;
            self.ends[target].check(burst.target(at) + len, GUARD, !(seed + at), len)?;
        }
        Ok(())
    }

    /// These are what completes next, of each queue in its order, with their immediate data.
    fn must_be_done(&mut self, end: usize, due: &[(u64, Option<u32>)]) -> Outcome {
        let mut done = self.ends[end].wait(due.len(), PATIENCE)?;
        // Stable: what is of the same queue stays in its order.
        done.sort_by_key(|done| done.id & RECEIVE);
        let mut due = due.to_vec();
        due.sort_by_key(|(id, _)| id & RECEIVE);
        // What rxe says of immediate data at the requester means nothing.
        let right = |(done, &(id, imm)): (&Done, &(u64, Option<u32>))| {
            done.status == 0 && done.id == id && (id & RECEIVE == 0 || done.imm == imm)
        };
        if done.len() == due.len() && done.iter().zip(&due).all(right) {
            return Ok(());
        }
        let name = self.ends[end].name();
        let said: Vec<_> = done.iter().map(|it| (it.id, status_name(it.status), it.imm)).collect();
        Err(format!("{name}: requests, statuses, immediates {said:?}").into())
    }
}

/// Bursts of everything from both ends at once, until time is over. Says how many messages there
/// were.
pub(crate) fn soak(ends: &mut [Box<dyn End>; 2], how_long: Duration) -> Outcome<usize> {
    let cards = join(ends, &setup())?;
    let mut pair = Pair { ends, cards, from: 0 };
    let (start, mut told) = (Clock::now(), Duration::ZERO);
    let mut round = 0;
    while start.elapsed() < how_long {
        round += 1;
        let seed = round << 16;
        let chance = |end: usize| usize::from(pattern(round, end as u64));
        let burst = |from: usize| Burst {
            from,
            kind: Kind::ALL[chance(from) % Kind::ALL.len()],
            len: [1, 77, 1000, 1024, 5001, 12_289][chance(from + 2) % 6],
            seed: seed + from as u64,
        };
        pair.exchange(&[burst(0), burst(1)])?;
        if start.elapsed() >= told + Duration::from_secs(15) {
            told = start.elapsed();
            let [now, all] = [told, how_long].map(|it| it.as_secs());
            eprintln!("soak: {} messages, {now} of {all} s", round * 2 * MANY);
        }
    }
    for end in pair.ends {
        must_be(&format!("{}: state", end.name()), end.state()?.as_str(), "rts")?;
    }
    Ok((round * 2 * MANY) as usize)
}
