//! The last frames and events of a queue pair, for whoever asks later what happened.
//!
//! A ring of fixed size that is allocated with the queue pair. A frame costs it 16 bytes and a
//! handful of instructions; what an entry means is worked out when somebody asks.

use core::fmt;

use roxe_wire::{Aeth, Bth, DropReason, Instant, Opcode, Packet, Psn, Syndrome};

use crate::qp_state::QpState;

/// How many frames and events a queue pair remembers.
pub const REMEMBERED: usize = 32;

/// The ring.
#[derive(Debug)]
pub(crate) struct History {
    ring: Box<[Entry; REMEMBERED]>,
    /// How many there were, ever.
    count: usize,
}

/// A frame or event, packed.
#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    /// Nanoseconds, which do not need the top two bits in 146 years; these say what it is.
    time: u64,
    /// The opcode, or which event; and the PSN.
    frame: u32,
    /// The AETH of an answer, the length of another frame's payload, why a frame was dropped.
    detail: u32,
}

const IN: u64 = 0;
const OUT: u64 = 1 << 62;
const DROPPED: u64 = 2 << 62;
const EVENT: u64 = 3 << 62;
const TIME: u64 = OUT - 1;

/// Events, where a frame has its opcode.
const TIMEOUT: u32 = 0;
const STATE: u32 = 1;

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
    /// What it answers, if it answers.
    pub aeth: Option<Aeth>,
    /// Bytes of payload; `None` where the answer took that place.
    pub payload: Option<u32>,
}

impl History {
    pub(crate) fn new() -> Self {
        Self { ring: Box::new([Entry::default(); REMEMBERED]), count: 0 }
    }

    fn push(&mut self, kind: u64, at: Instant, frame: u32, detail: u32) {
        let entry = Entry { time: kind | at.nanos() & TIME, frame, detail };
        self.ring[self.count % REMEMBERED] = entry;
        self.count = self.count.wrapping_add(1);
    }

    /// A frame was taken in.
    pub(crate) fn received(&mut self, now: Instant, packet: &Packet<'_>) {
        let bth = &packet.headers.bth;
        let detail = match packet.headers.aeth {
            Some(aeth) => u32::from_be_bytes(aeth.emit()),
            None => u32::try_from(packet.payload.len()).unwrap_or(u32::MAX),
        };
        self.push(IN, now, frame(bth.opcode, bth.psn), detail);
    }

    /// A frame was written that begins with these bytes, with so much payload.
    pub(crate) fn sent(&mut self, now: Instant, bytes: &[u8], payload: usize) {
        let Some(&[opcode, _, _, _, _, _, _, _, _, p2, p1, p0]) = bytes.first_chunk() else {
            return;
        };
        // An AETH stands right behind the BTH; who reads this knows by the opcode.
        let detail = match bytes.get(Bth::LEN..).and_then(|rest| rest.first_chunk()) {
            Some(aeth) if has_aeth(opcode) => u32::from_be_bytes(*aeth),
            _ => u32::try_from(payload).unwrap_or(u32::MAX),
        };
        self.push(OUT, now, u32::from_be_bytes([opcode, p2, p1, p0]), detail);
    }

    /// A frame was dropped before it came to the queue pair.
    pub(crate) fn dropped(&mut self, now: Instant, bth: &Bth, reason: DropReason) {
        let reason = u32::try_from(reason.index()).unwrap_or(u32::MAX);
        self.push(DROPPED, now, frame(bth.opcode, bth.psn), reason);
    }

    /// The ACK timer ran out for the packet with this PSN.
    pub(crate) fn timeout(&mut self, now: Instant, psn: Psn) {
        self.push(EVENT, now, TIMEOUT << 24 | psn.get(), 0);
    }

    /// The queue pair goes to another state.
    pub(crate) fn state(&mut self, state: QpState) {
        self.push(EVENT, self.last(), STATE << 24, state as u32);
    }

    /// When something happened last.
    pub(crate) fn last(&self) -> Instant {
        let last = self.ring[self.count.wrapping_sub(1) % REMEMBERED];
        Instant::from_nanos(last.time & TIME)
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

const fn frame(opcode: u8, psn: Psn) -> u32 {
    (opcode as u32) << 24 | psn.get()
}

impl Entry {
    fn read(&self) -> Option<Record> {
        let (code, psn) = (self.frame.to_be_bytes()[0], Psn::new(self.frame));
        let what = match self.time & !TIME {
            IN => Happened::Received(self.glimpse(code, psn)),
            OUT => Happened::Sent(self.glimpse(code, psn)),
            DROPPED => {
                let reason = *DropReason::NAMES.get(self.detail as usize)?;
                Happened::Dropped { opcode: code, psn, reason }
            }
            _ if u32::from(code) == TIMEOUT => Happened::Timeout(psn),
            _ => Happened::State(*QpState::ALL.get(self.detail as usize)?),
        };
        Some(Record { at: Instant::from_nanos(self.time & TIME), what })
    }

    fn glimpse(&self, opcode: u8, psn: Psn) -> Glimpse {
        let answers = has_aeth(opcode);
        let aeth = answers.then(|| Aeth::parse(self.detail.to_be_bytes()).ok()).flatten();
        Glimpse { opcode, psn, aeth, payload: (!answers).then_some(self.detail) }
    }
}

/// The name of an opcode, or its number.
pub(crate) struct OpcodeName(pub(crate) u8);

impl fmt::Display for OpcodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Opcode::of_code(self.0) {
            Some(row) => f.write_str(row.name),
            None => write!(f, "opcode 0x{:02x}", self.0),
        }
    }
}

impl fmt::Display for Glimpse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} PSN {}", OpcodeName(self.opcode), self.psn)?;
        match self.aeth.map(|aeth| (aeth.syndrome, aeth.msn.get())) {
            Some((Syndrome::Ack(_), msn)) => write!(f, " ACK, MSN {msn}")?,
            Some((Syndrome::RnrNak(timer), _)) => write!(f, " RNR NAK {:?}", timer.duration())?,
            Some((Syndrome::Nak(code), _)) => write!(f, " NAK {code}")?,
            None => {}
        }
        match self.payload {
            Some(len) if len != 0 => write!(f, " {len} bytes"),
            _ => Ok(()),
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
            let row = Opcode::of_code(code).filter(|row| row.service == Service::Rc);
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
        let ends = (all[0].as_str(), all[30].as_str(), all[31].as_str());
        assert_eq!(ends, ("timeout of PSN 9", "timeout of PSN 39", "state error"));
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
        let bth = Bth { opcode: 0x11, psn: Psn::new(7), ..Bth::default() }.emit();
        let nak = [0x62, 0, 0, 3];
        history.sent(Instant::from_nanos(1_500), &[&bth[..], &nak].concat(), 0);
        let read = Bth { opcode: 0x0e, psn: Psn::new(8), ..Bth::default() };
        history.sent(Instant::from_nanos(1_600), &[&read.emit()[..], &nak].concat(), 4);
        history.dropped(Instant::from_nanos(1_700), &read, DropReason::WrongAddress);
        history.sent(Instant::ZERO, &[0; 11], 0);
        let all: Vec<String> = history.records().map(|record| record.to_string()).collect();
        assert_eq!(
            all,
            [
                "0.000001500 > RC_ACKNOWLEDGE PSN 7 NAK remote access error",
                "0.000001600 > RC_READ_RESPONSE_MIDDLE PSN 8 4 bytes",
                "0.000001700 < RC_READ_RESPONSE_MIDDLE PSN 8 dropped: addr_mismatch",
            ]
        );
    }
}
