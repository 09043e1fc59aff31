//! The last frames and events of a queue pair, for whoever asks later what happened.
//!
//! A ring of fixed size that is allocated with the queue pair. A frame costs it 16 bytes and a
//! handful of instructions; what an entry means is worked out when somebody asks.

use core::fmt;

use roxe_wire::{Aeth, Bth, DropReason, Instant, Opcode, Psn, Syndrome};

use crate::qp_state::QpState;

/// How many frames and events a queue pair remembers.
pub const REMEMBERED: usize = 16;

/// The ring.
#[derive(Debug)]
pub(crate) struct History {
    ring: Box<[Entry; REMEMBERED]>,
    /// How many there were, ever.
    count: usize,
}

/// A frame or event.
#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    /// Nanoseconds, which need no more than 56 bits in two years; below them the opcode, or which
    /// event.
    time: u64,
    /// Of a frame, bytes 8 to 15 from the BTH on as they lie in memory: PSN and AETH, if it has
    /// one. Of the first of them only the A bit is kept; the others say what this is.
    word: u64,
}

const A: u64 = 0x80;
const RECEIVED: u64 = 0;
const SENT: u64 = 1;
const DROPPED: u64 = 2;
const EVENT: u64 = 3;

/// Events, where a frame has its opcode.
const TIMEOUT: u8 = 0;
const STATE: u8 = 1;

/// Something that happened to a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// When. The step to another state by a verb has the time of what came before it.
    pub at: Instant,
    /// What.
    pub what: Happened,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Happened {
    /// A frame of the peer's was taken in.
    Received(Glimpse),
    /// A frame was sent.
    Sent(Glimpse),
    /// A frame for the queue pair was dropped before it came to it.
    Dropped {
        /// Its opcode.
        opcode: u8,
        /// Its PSN.
        psn: Psn,
        /// Why: the name of a [`DropReason`].
        reason: &'static str,
    },
    /// Nothing was heard of the packet with this PSN in time.
    Timeout(Psn),
    /// The queue pair went to this state.
    State(QpState),
}

/// What is remembered of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Glimpse {
    /// Its opcode.
    pub opcode: u8,
    /// Its PSN.
    pub psn: Psn,
    /// It asks for an acknowledgement.
    pub ack_req: bool,
    /// What it answers, if it answers.
    pub aeth: Option<Aeth>,
}

impl History {
    pub(crate) fn new() -> Self {
        Self { ring: Box::new([Entry::default(); REMEMBERED]), count: 0 }
    }

    fn push(&mut self, entry: Entry) {
        self.ring[self.count % REMEMBERED] = entry;
        self.count = self.count.wrapping_add(1);
    }

    /// A frame that begins with these bytes was taken in.
    pub(crate) fn received(&mut self, now: Instant, bytes: &[u8]) {
        self.frame(now, RECEIVED, bytes);
    }

    /// A frame that begins with these bytes was sent.
    pub(crate) fn sent(&mut self, now: Instant, bytes: &[u8]) {
        self.frame(now, SENT, bytes);
    }

    fn frame(&mut self, now: Instant, kind: u64, bytes: &[u8]) {
        // At least a BTH and four bytes: AETH, other headers, payload, or ICRC.
        let Some(&[code, _, _, _, _, _, _, _, ref rest @ ..]) = bytes.first_chunk::<16>() else {
            return;
        };
        let word = u64::from_le_bytes(*rest) & !(A - 1) | kind;
        self.push(Entry { time: now.nanos() << 8 | u64::from(code), word });
    }

    fn event(&mut self, now: Instant, kind: u64, code: u8, psn: Psn, detail: usize) {
        let [_, p2, p1, p0] = psn.get().to_be_bytes();
        let [d1, d0, ..] = detail.to_le_bytes();
        let word = u64::from_le_bytes([0, p2, p1, p0, d1, d0, 0, 0]) | kind;
        self.push(Entry { time: now.nanos() << 8 | u64::from(code), word });
    }

    /// A frame was dropped before it came to the queue pair.
    pub(crate) fn dropped(&mut self, now: Instant, bth: &Bth, reason: DropReason) {
        self.event(now, DROPPED, bth.opcode, bth.psn, reason.index());
    }

    /// The ACK timer ran out for the packet with this PSN.
    pub(crate) fn timeout(&mut self, now: Instant, psn: Psn) {
        self.event(now, EVENT, TIMEOUT, psn, 0);
    }

    /// The queue pair goes to another state.
    pub(crate) fn state(&mut self, state: QpState) {
        self.event(self.last(), EVENT, STATE, Psn::default(), state as usize);
    }

    /// When something happened last.
    pub(crate) fn last(&self) -> Instant {
        let last = self.ring[self.count.wrapping_sub(1) % REMEMBERED];
        Instant::from_nanos(last.time >> 8)
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

impl Entry {
    fn read(&self) -> Option<Record> {
        let [code, ..] = self.time.to_le_bytes();
        let [first, p2, p1, p0, rest @ ..] = self.word.to_le_bytes();
        let psn = Psn::new(u32::from_be_bytes([0, p2, p1, p0]));
        let detail = usize::from(u16::from_le_bytes([rest[0], rest[1]]));
        let glimpse = || {
            let aeth = has_aeth(code).then(|| Aeth::parse(rest).ok()).flatten();
            Glimpse { opcode: code, psn, ack_req: self.word & A != 0, aeth }
        };
        let what = match u64::from(first) & EVENT {
            RECEIVED => Happened::Received(glimpse()),
            SENT => Happened::Sent(glimpse()),
            DROPPED => {
                let reason = *DropReason::NAMES.get(detail)?;
                Happened::Dropped { opcode: code, psn, reason }
            }
            _ if code == TIMEOUT => Happened::Timeout(psn),
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

impl fmt::Display for Glimpse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} PSN {}", OpcodeName(self.opcode), self.psn)?;
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
            Self::Dropped { opcode, psn, reason } => {
                write!(f, "< {} PSN {psn} dropped: {reason}", OpcodeName(*opcode))
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
}
