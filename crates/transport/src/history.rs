//! The last frames and events of a queue pair, for whoever asks later what happened.
//!
//! A ring of fixed size that is allocated with the queue pair. A run of frames, one PSN after the
//! other and else the same, is one entry: a burst is told in a line and touches little memory. An
//! entry is 16 bytes and costs a handful of instructions; what it means is worked out when somebody
//! asks.

use core::fmt;

use roxe_wire::{Aeth, Bth, DropReason, Instant, Opcode, Psn, Syndrome};

use crate::qp_state::QpState;

/// How many runs of frames, and events, a queue pair remembers.
pub const REMEMBERED: usize = 16;

/// The ring.
#[derive(Debug)]
pub(crate) struct History {
    ring: Box<[Entry; REMEMBERED]>,
    /// How many there were, ever.
    count: usize,
}

/// A run of frames, or an event.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Nanoseconds, which need no more than 56 bits in two years; below them the opcode, or which
    /// event. Of a run, those of the newest frame, as all the rest here.
    time: u64,
    /// Of a frame, bytes 8 to 15 from the BTH on: A bit, PSN and, if it has one, AETH. In the first
    /// of them stand below the A bit what this is, and how many frames of the run came before. Of
    /// an event the second half says why a frame was dropped, or which state.
    word: u64,
}

const A: u64 = 0x8000_0000 << 32;
const KIND: u64 = 0x6000_0000 << 32;
const RUN: u64 = 0x1f00_0000 << 32;
const PSN: u64 = 0x00ff_ffff << 32;
const DETAIL: u64 = 0xffff_ffff;

/// One frame more before, and one PSN further.
const ONE_MORE: u64 = 1 << RUN.trailing_zeros();
const NEXT_PSN: u64 = 1 << PSN.trailing_zeros();

/// The bits of an AETH that tell ACKs (none of them) from NAKs. IBA vol 1 §9.7.5.2.1
const AETH_KIND: u64 = 0xe000_0000;

/// The kinds.
const RECEIVED: u64 = 0;
const SENT: u64 = 0x2000_0000 << 32;
const DROPPED: u64 = 0x4000_0000 << 32;
const EVENT: u64 = 0x6000_0000 << 32;

/// Events, where a frame has its opcode.
const TIMEOUT: u8 = 0;
const STATE: u8 = 1;

/// Something that happened to a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// When; of a run, when its newest frame. The step to another state by a verb has the time of
    /// what came before it.
    pub at: Instant,
    /// What.
    pub what: Happened,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Happened {
    /// Frames of the peer's were taken in.
    Received(Glimpse),
    /// Frames were sent.
    Sent(Glimpse),
    /// Frames for the queue pair were dropped before they came to it.
    Dropped {
        /// Their opcode.
        opcode: u8,
        /// Their PSNs.
        psns: PsnRun,
        /// Why: the name of a [`DropReason`].
        reason: &'static str,
    },
    /// Nothing was heard of the packet with this PSN in time.
    Timeout(Psn),
    /// The queue pair went to this state.
    State(QpState),
}

/// The PSNs of a run: one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PsnRun {
    /// The oldest.
    pub first: Psn,
    /// The newest; the same, if it is one frame.
    pub last: Psn,
}

/// What is remembered of a frame, or of a run of frames with one opcode. Answers in a run are ACKs,
/// all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Glimpse {
    /// The opcode.
    pub opcode: u8,
    /// The PSNs.
    pub psns: PsnRun,
    /// The newest asks for an acknowledgement.
    pub ack_req: bool,
    /// What the newest answers, if it answers.
    pub aeth: Option<Aeth>,
}

impl History {
    pub(crate) fn new() -> Self {
        // An event: no frame goes on with it.
        let blank = Entry { time: 0, word: EVENT };
        Self { ring: Box::new([blank; REMEMBERED]), count: 0 }
    }

    const fn newest(&self) -> usize {
        self.count.wrapping_sub(1) % REMEMBERED
    }

    fn push(&mut self, entry: Entry) {
        self.count = self.count.wrapping_add(1);
        self.ring[self.newest()] = entry;
    }

    /// A frame, which may be one more of a run: so if it is next in turn and `alike`.
    #[inline]
    fn push_frame(&mut self, mut entry: Entry, alike: impl FnOnce(&Entry) -> bool) {
        let newest = self.newest();
        let before = &mut self.ring[newest];
        // Where the PSN wraps, one is carried to the length of the run, which is not compared.
        let next = before.word.wrapping_add(NEXT_PSN);
        let in_turn = (entry.word ^ next) & (KIND | PSN) == 0;
        if in_turn && before.code() == entry.code() && before.word & RUN != RUN && alike(before) {
            entry.word += (before.word & RUN) + ONE_MORE;
            *before = entry;
        } else {
            self.push(entry);
        }
    }

    /// A frame that begins with these bytes was taken in.
    #[inline]
    pub(crate) fn received(&mut self, now: Instant, bytes: &[u8]) {
        self.frame(now, RECEIVED, bytes);
    }

    /// A frame that begins with these bytes was sent.
    #[inline]
    pub(crate) fn sent(&mut self, now: Instant, bytes: &[u8]) {
        self.frame(now, SENT, bytes);
    }

    #[inline]
    fn frame(&mut self, now: Instant, kind: u64, bytes: &[u8]) {
        // At least a BTH and four bytes: AETH, other headers, payload, or ICRC.
        let Some(&[code, .., p3, p2, p1, p0, a3, a2, a1, a0]) = bytes.first_chunk::<16>() else {
            return;
        };
        // Each as it was written, so that nothing waits until the payload behind them has left the
        // processor.
        let psn = u32::from_be_bytes([p3, p2, p1, p0]);
        let aeth = if has_aeth(code) { u32::from_be_bytes([a3, a2, a1, a0]) } else { 0 };
        let word = u64::from(psn) << 32 & (A | PSN) | u64::from(aeth) | kind;
        // Of answers only ACKs are a run: nobody may miss a NAK.
        self.push_frame(Entry { time: time(now, code), word }, |before| {
            !has_aeth(code) || (before.word | word) & AETH_KIND == 0
        });
    }

    /// A frame was dropped before it came to the queue pair.
    pub(crate) fn dropped(&mut self, now: Instant, bth: &Bth, reason: DropReason) {
        let word = DROPPED | u64::from(bth.psn.get()) << 32 | reason.index() as u64;
        self.push_frame(Entry { time: time(now, bth.opcode), word }, |before| {
            (before.word ^ word) & DETAIL == 0
        });
    }

    fn event(&mut self, now: Instant, code: u8, psn: Psn, detail: u64) {
        let word = EVENT | u64::from(psn.get()) << 32 | detail;
        self.push(Entry { time: time(now, code), word });
    }

    /// The ACK timer ran out for the packet with this PSN.
    pub(crate) fn timeout(&mut self, now: Instant, psn: Psn) {
        self.event(now, TIMEOUT, psn, 0);
    }

    /// The queue pair goes to another state.
    pub(crate) fn state(&mut self, state: QpState) {
        self.event(self.last(), STATE, Psn::default(), state as u64);
    }

    /// When something happened last.
    pub(crate) fn last(&self) -> Instant {
        Instant::from_nanos(self.ring[self.newest()].time >> 8)
    }

    /// Everything that is remembered, oldest first.
    pub(crate) fn records(&self) -> impl Iterator<Item = Record> {
        let count = self.count;
        (count.saturating_sub(REMEMBERED)..count)
            .filter_map(|index| self.ring[index % REMEMBERED].read())
    }
}

/// Reliable connections' answers: opcodes 0x0d to 0x12, all of them with an AETH but 0x0e.
const fn has_aeth(opcode: u8) -> bool {
    matches!(opcode, 0x0d | 0x0f..=0x12)
}

/// As an entry has it.
const fn time(now: Instant, code: u8) -> u64 {
    now.nanos() << 8 | code as u64
}

impl Entry {
    const fn code(&self) -> u8 {
        let [code, ..] = self.time.to_le_bytes();
        code
    }

    fn read(&self) -> Option<Record> {
        let code = self.code();
        let [_, p2, p1, p0, aeth @ ..] = self.word.to_be_bytes();
        let last = Psn::new(u32::from_be_bytes([0, p2, p1, p0]));
        let [more, ..] = (self.word & RUN).to_be_bytes();
        let psns = PsnRun { first: last.back(more.into()), last };
        let detail = u32::from_be_bytes(aeth) as usize;
        let glimpse = || {
            let aeth = has_aeth(code).then(|| Aeth::parse(aeth).ok()).flatten();
            Glimpse { opcode: code, psns, ack_req: self.word & A != 0, aeth }
        };
        let what = match self.word & KIND {
            RECEIVED => Happened::Received(glimpse()),
            SENT => Happened::Sent(glimpse()),
            DROPPED => {
                let reason = *DropReason::NAMES.get(detail)?;
                Happened::Dropped { opcode: code, psns, reason }
            }
            _ if code == TIMEOUT => Happened::Timeout(last),
            _ => Happened::State(*QpState::ALL.get(detail)?),
        };
        Some(Record { at: Instant::from_nanos(self.time >> 8), what })
    }
}

/// The name of an opcode, or its number.
pub(crate) struct OpcodeName(pub(crate) u8);

impl fmt::Display for OpcodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Opcode::from_code(self.0) {
            Some(row) => f.write_str(row.name),
            None => write!(f, "opcode 0x{:02x}", self.0),
        }
    }
}

impl fmt::Display for PsnRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PSN {}", self.first)?;
        if self.first == self.last { Ok(()) } else { write!(f, " to {}", self.last) }
    }
}

impl fmt::Display for Glimpse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", OpcodeName(self.opcode), self.psns)?;
        if self.ack_req {
            f.write_str(" A")?;
        }
        match self.aeth.map(|aeth| (aeth.syndrome, aeth.msn.get())) {
            Some((Syndrome::Ack(_), msn)) => write!(f, " ACK, MSN {msn}"),
            Some((Syndrome::RnrNak(timer), _)) => write!(f, " RNR NAK {:?}", timer.duration()),
            Some((Syndrome::Nak(code), _)) => write!(f, " NAK {code}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Happened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Received(glimpse) => write!(f, "< {glimpse}"),
            Self::Sent(glimpse) => write!(f, "> {glimpse}"),
            Self::Dropped { opcode, psns, reason } => {
                write!(f, "< {} {psns} dropped: {reason}", OpcodeName(*opcode))
            }
            Self::Timeout(psn) => write!(f, "timeout of PSN {psn}"),
            Self::State(state) => write!(f, "state {state}"),
        }
    }
}

impl fmt::Display for Record {
    /// The time in seconds, and what happened.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.at, self.what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use roxe_wire::opcode::{Header, Service};

    #[test]
    fn the_answers_are_those_of_the_opcode_table() {
        for code in 0..=u8::MAX {
            let row = Opcode::from_code(code).filter(|row| row.service == Service::Rc);
            let in_table = row.is_some_and(|row| row.headers.first() == Some(&Header::Aeth));
            assert_eq!(has_aeth(code), in_table, "0x{code:02x}");
        }
    }

    #[test]
    fn the_last_ones_are_kept_in_order() {
        let mut history = History::new();
        assert_eq!((history.records().count(), history.last()), (0, Instant::ZERO));
        for psn in 0..40 {
            history.timeout(Instant::from_nanos(u64::from(psn)), Psn::new(psn));
        }
        history.state(QpState::Error);
        let all: Vec<String> = history.records().map(|record| record.what.to_string()).collect();
        assert_eq!(all.len(), REMEMBERED);
        let ends = (all[0].as_str(), all[14].as_str(), all[15].as_str());
        assert_eq!(ends, ("timeout of PSN 25", "timeout of PSN 39", "state error"));
        assert_eq!(history.last(), Instant::from_nanos(39), "a verb has no time of its own");
    }

    #[test]
    fn a_state_has_the_place_that_all_states_give_it() {
        for (place, state) in QpState::ALL.into_iter().enumerate() {
            assert_eq!(state as usize, place);
        }
    }

    #[test]
    fn a_frame_is_read_back_from_its_first_bytes() {
        let mut history = History::new();
        let at = Instant::from_nanos;
        let begins = |bth: Bth, then: [u8; 4]| [&bth.emit()[..], &then].concat();
        let ack = Bth { opcode: 0x11, psn: Psn::new(7), ..Bth::default() };
        for syndrome in [0x1f, 0x2c, 0x62] {
            history.received(at(1_500), &begins(ack, [syndrome, 0, 0, 3]));
        }
        // Bits that mean nothing stay out.
        let send = Bth { opcode: 4, psn: Psn::new(8), ack_req: true, reserved_7: 0x7f, ..ack };
        history.sent(at(1_600), &begins(send, [0x62; 4]));
        history.dropped(at(1_700), &send, DropReason::WrongAddress);
        history.sent(at(1_800), &send.emit());
        let all: Vec<String> = history.records().map(|record| record.to_string()).collect();
        assert_eq!(
            all,
            [
                "0.000001500 < RC_ACKNOWLEDGE PSN 7 ACK, MSN 3",
                "0.000001500 < RC_ACKNOWLEDGE PSN 7 RNR NAK 640µs",
                "0.000001500 < RC_ACKNOWLEDGE PSN 7 NAK remote access error",
                "0.000001600 > RC_SEND_ONLY PSN 8 A",
                "0.000001700 < RC_SEND_ONLY PSN 8 dropped: addr_mismatch",
            ]
        );
    }

    /// The first bytes of a frame.
    fn begins(opcode: u8, psn: u32, ack_req: bool, then: [u8; 4]) -> Vec<u8> {
        let bth = Bth { opcode, psn: Psn::new(psn), ack_req, ..Bth::default() };
        [&bth.emit()[..], &then].concat()
    }

    fn told(history: &History) -> Vec<String> {
        history.records().map(|record| record.to_string()).collect()
    }

    #[test]
    fn a_burst_and_its_acknowledgements_are_an_entry_each() {
        let mut history = History::new();
        for n in 0..16 {
            let now = Instant::from_nanos(u64::from(n));
            history.sent(now, &begins(4, 500 + n, n == 15, [0xff; 4]));
        }
        for n in 0..16_u32 {
            let [.., msn] = n.to_be_bytes();
            let credits = msn; // Others each time.
            let now = Instant::from_nanos(100 + u64::from(n));
            history.received(now, &begins(0x11, 500 + n, false, [credits, 0, 0, msn]));
        }
        assert_eq!(
            told(&history),
            [
                "0.000000015 > RC_SEND_ONLY PSN 500 to 515 A",
                "0.000000115 < RC_ACKNOWLEDGE PSN 500 to 515 ACK, MSN 15",
            ]
        );
    }

    #[test]
    fn a_run_goes_on_where_psns_wrap_and_is_no_longer_than_can_be_counted() {
        let mut history = History::new();
        let first = Psn::new(0xff_fff0);
        for n in 0..40 {
            let psn = first.advance(n).get();
            history.received(Instant::ZERO, &begins(7, psn, false, [0; 4]));
        }
        // The longest run ends with the last PSN there is.
        for psn in (0xff_ffe0..=0xff_ffff).chain([0]) {
            history.received(Instant::ZERO, &begins(8, psn, false, [0; 4]));
        }
        assert_eq!(
            told(&history),
            [
                "0.000000000 < RC_WRITE_MIDDLE PSN 16777200 to 15",
                "0.000000000 < RC_WRITE_MIDDLE PSN 16 to 23",
                "0.000000000 < RC_WRITE_LAST PSN 16777184 to 16777215",
                "0.000000000 < RC_WRITE_LAST PSN 0",
            ]
        );
    }

    #[test]
    fn what_is_not_more_of_the_same_begins_anew() {
        let mut history = History::new();
        let now = Instant::ZERO;
        let ends = |history: &History, with: &str| {
            let all = told(history);
            let last = all.last().map_or("", String::as_str);
            assert!(last.ends_with(with), "{last} is no {with}");
        };
        for psn in 7..=9 {
            history.sent(now, &begins(4, psn, false, [0; 4]));
        }
        ends(&history, "> RC_SEND_ONLY PSN 7 to 9");
        history.sent(now, &begins(4, 9, false, [0; 4]));
        ends(&history, "> RC_SEND_ONLY PSN 9"); // again
        history.sent(now, &begins(4, 11, false, [0; 4]));
        ends(&history, "> RC_SEND_ONLY PSN 11"); // behind a gap
        history.sent(now, &begins(10, 12, false, [0; 4]));
        ends(&history, "> RC_WRITE_ONLY PSN 12"); // another opcode
        history.received(now, &begins(10, 13, false, [0; 4]));
        ends(&history, "< RC_WRITE_ONLY PSN 13"); // the other way
        history.timeout(now, Psn::new(13));
        history.received(now, &begins(10, 14, false, [0; 4]));
        ends(&history, "< RC_WRITE_ONLY PSN 14"); // something came between
        let mut answer = |psn, syndrome| {
            history.received(now, &begins(0x11, psn, false, [syndrome, 0, 0, 1]));
            told(&history).pop().unwrap_or_default()
        };
        assert!(answer(20, 0x1f).ends_with("PSN 20 ACK, MSN 1"));
        assert!(answer(21, 0x62).ends_with("PSN 21 NAK remote access error"));
        assert!(answer(22, 0x62).ends_with("PSN 22 NAK remote access error"));
        assert!(answer(23, 0x00).ends_with("PSN 23 ACK, MSN 1"));
        assert!(answer(24, 0x2c).ends_with("PSN 24 RNR NAK 640µs"));
        let bth = |psn| Bth { opcode: 4, psn: Psn::new(psn), ..Bth::default() };
        let mut history = History::new();
        history.dropped(now, &bth(1), DropReason::WrongAddress);
        history.dropped(now, &bth(2), DropReason::WrongAddress);
        ends(&history, "< RC_SEND_ONLY PSN 1 to 2 dropped: addr_mismatch");
        history.dropped(now, &bth(3), DropReason::WrongQpState);
        ends(&history, "< RC_SEND_ONLY PSN 3 dropped: wrong_qp_state");
        history.received(now, &begins(4, 4, false, [0; 4]));
        ends(&history, "< RC_SEND_ONLY PSN 4");
    }

    #[test]
    fn the_first_frame_goes_on_with_nothing() {
        for psn in [0, 1] {
            let mut history = History::new();
            history.received(Instant::ZERO, &begins(0, psn, false, [0; 4]));
            assert_eq!(told(&history), [format!("0.000000000 < RC_SEND_FIRST PSN {psn}")]);
        }
    }

    /// Runs taken apart again are the frames that went in, as far back as is remembered.
    #[test]
    fn nothing_is_lost_or_made_up_in_runs() {
        let mut state = 1_u64;
        let mut random = move |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        };
        let (mut history, mut all) = (History::new(), Vec::new());
        let (mut psn, mut opcode, mut sent) = (Psn::new(0xff_fff0), 4, false);
        for n in 0..5_000 {
            psn = if random(20) == 0 { psn.back(3) } else { psn.next() };
            opcode = if random(20) == 0 { 0x11 - opcode + 4 } else { opcode };
            sent ^= random(40) == 0;
            let syndrome = if random(30) == 0 { 0x60 } else { 0x1f };
            let bytes = begins(opcode, psn.get(), false, [syndrome, 0, 0, 0]);
            let frame = (sent, opcode, psn, opcode == 0x11 && syndrome == 0x60);
            all.push(frame);
            match sent {
                true => history.sent(Instant::from_nanos(n), &bytes),
                false => history.received(Instant::from_nanos(n), &bytes),
            }
            let mut apart = Vec::new();
            for record in history.records() {
                let (sent, glimpse) = match record.what {
                    Happened::Sent(glimpse) => (true, glimpse),
                    Happened::Received(glimpse) => (false, glimpse),
                    other => panic!("{other}"),
                };
                let nak = glimpse.aeth.is_some_and(|a| matches!(a.syndrome, Syndrome::Nak(_)));
                let PsnRun { first, last } = glimpse.psns;
                let psns = (0..).map(|n| first.advance(n)).take_while(|psn| *psn != last.next());
                apart.extend(psns.map(|psn| (sent, glimpse.opcode, psn, nak)));
            }
            assert!(all.ends_with(&apart), "frame {n}");
            assert!(apart.len() >= all.len().min(REMEMBERED), "frame {n}");
        }
    }
}
