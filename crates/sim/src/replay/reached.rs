//! Which requests reached the responder, as its answers tell.
//!
//! A recording taken on the requester's host has every request, those too that were lost on the
//! way; one taken on the responder's host has only those that came. Whoever plays all of them to a
//! device gets other answers than were recorded. So each request is taken to have been lost or to
//! have come, as explains the answers best: of all stories the one with the fewest losses and the
//! fewest answers that nobody owed. The rules that a story is told by are those of IBA vol 1 §9.7.5
//! in their coarsest form, PSNs alone; what the device really answers is compared afterwards.

use std::ops::Range;

use roxe_wire::NakCode;
use roxe_wire::opcode::Operation;

use super::likely::Stories;
use super::meaning::Says;
use super::places::{FAR, Places, Unasked};

/// A request as far as this is concerned.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    /// The frame.
    pub(super) number: u64,
    /// Its PSN, counted without turns.
    pub(super) at: i64,
    /// How many PSNs it takes.
    pub(super) span: i64,
    pub(super) operation: Operation,
    pub(super) starts: bool,
    pub(super) ack_req: bool,
    /// Its ICRC is wrong.
    pub(super) bad: bool,
}

/// An answer as far as this is concerned.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answered {
    pub(super) number: u64,
    pub(super) at: i64,
    pub(super) kind: Kind,
}

/// What kind of answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Ack,
    NotReady,
    Sequence,
    Fatal,
    Data,
    Value,
}

impl Kind {
    pub(super) const fn is_refusal(self) -> bool {
        matches!(self, Self::NotReady | Self::Sequence | Self::Fatal)
    }
}

impl From<Says<'_>> for Kind {
    fn from(says: Says<'_>) -> Self {
        match says {
            Says::Ack => Self::Ack,
            Says::NotReady(_) => Self::NotReady,
            Says::Refused(NakCode::PsnSequenceError) => Self::Sequence,
            Says::Refused(_) => Self::Fatal,
            Says::Data(..) => Self::Data,
            Says::Value(_) => Self::Value,
        }
    }
}

impl Answered {
    /// The newest PSN that it acknowledges.
    const fn level(&self) -> i64 {
        match self.kind {
            Kind::NotReady | Kind::Sequence | Kind::Fatal => self.at - 1,
            Kind::Ack | Kind::Data | Kind::Value => self.at,
        }
    }
}

impl Answered {
    /// The PSN that the responder waits for behind this answer, to what was not recorded, if it
    /// waited for `expected` before.
    pub(super) fn goes_on_from(&self, expected: i64) -> i64 {
        let is_near = (0..=FAR).contains(&(self.at - expected));
        if is_near { expected.max(self.level() + 1) } else { expected }
    }
}

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fate {
    pub(super) what: What,
    /// The answers that it got, by their place among all answers.
    pub(super) answers: Range<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// It did not come.
    Lost,
    /// It came.
    Came {
        /// What became of it there.
        then: Then,
        /// It was not answered by itself, but by an answer to what came later.
        covered: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    /// It was next in turn, and carried out.
    Executed,
    /// The same, though packets before it are missing in the recording: they were not recorded.
    ExecutedAnew,
    /// It was next in turn, and refused.
    Refused,
    /// It was not next in turn, or nobody was there.
    Otherwise,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct State {
    /// How many answers are explained or given up.
    answers: usize,
    expected: i64,
    /// The newest one that was carried out and is not a READ.
    solid: i64,
    refusing: bool,
    broken: bool,
}

#[derive(Clone, Copy, Debug)]
struct Decision {
    what: What,
    first: usize,
    end: usize,
}

/// The prices of what may have happened.
mod price {
    /// An answer of which another one came later that says as much.
    pub(super) const COVERED: u32 = 1;
    /// An acknowledgement of what was acknowledged already.
    pub(super) const EXTRA: u32 = 12;
    /// The request was lost behind the recording, or its answer before.
    pub(super) const LOST: u32 = 40;
    /// It came, should have been answered, and was not.
    pub(super) const SILENCE: u32 = 50;
    /// The same, but the requester did not miss the answer, or the recording ended before it.
    pub(super) const NOT_MISSED: u32 = 30;
    /// An acknowledgement that leaves out the READs after the newest SEND or WRITE.
    pub(super) const OLDER: u32 = 3;
    /// An answer that nobody owed.
    pub(super) const UNASKED: u32 = 500;
    /// An answer whose request was not recorded.
    pub(super) const NO_REQUEST: u32 = 60;
    /// A refusal of a request that was not recorded.
    pub(super) const NO_REFUSED: u32 = 150;
    /// An answer before its request, or behind all of them.
    pub(super) const TOO_EARLY: u32 = 200;
    /// A gap without a NAK.
    pub(super) const NO_NAK: u32 = 300;
    /// Requests came that were not recorded.
    pub(super) const NOT_RECORDED: u32 = 150;
}

/// So many acknowledgements that say nothing new may stand before an answer.
const MOST_EXTRA: usize = 4;

/// What became of each request; `expected` is the first one's PSN. A `late` recording has not the
/// beginning of its connection.
pub(super) fn fates(
    asked: &[Asked],
    answers: &[Answered],
    expected: i64,
    late: bool,
) -> (Vec<Fate>, Places) {
    let mut newest = i64::MIN;
    let mut levels: Vec<i64> = answers
        .iter()
        .rev()
        .map(|answer| {
            newest = newest.max(answer.level());
            newest
        })
        .collect();
    levels.reverse();
    let teller = Teller { answers, levels, places: Places::new(asked, late) };
    let solid = expected - 1;
    let first = State { answers: 0, expected, solid, refusing: false, broken: false };
    let mut stories = Stories::new(first);
    for request in asked {
        stories.next(|state, to| teller.tell(state, request, to));
    }
    // What is left over at the end is not explained either.
    stories.next(|state, to| {
        let mut state = state;
        let price = teller.skip(&mut state, u64::MAX);
        let what = What::Lost;
        to(state, price, Decision { what, first: state.answers, end: state.answers });
    });
    let mut decisions = stories.most_likely();
    decisions.truncate(asked.len());
    let fate =
        |decision: &Decision| Fate { what: decision.what, answers: decision.first..decision.end };
    let fates = decisions.iter().map(fate).collect();
    (fates, teller.places)
}

struct Teller<'a> {
    answers: &'a [Answered],
    /// The newest PSN that an answer from here on acknowledges.
    levels: Vec<i64>,
    places: Places,
}

impl Teller<'_> {
    /// Gives up the answers before a frame: they answer nothing that comes later.
    fn skip(&self, state: &mut State, before: u64) -> u32 {
        let mut sum = 0;
        while let Some(answer) = self.answers.get(state.answers).filter(|a| a.number < before) {
            let why = self.places.unasked(answer, state.expected);
            sum += match why {
                _ if state.broken => price::UNASKED,
                Unasked::KnownAgain => price::EXTRA,
                Unasked::NotCaptured if answer.kind.is_refusal() => price::NO_REFUSED,
                Unasked::NotCaptured => price::NO_REQUEST,
                Unasked::Beyond => price::TOO_EARLY,
                Unasked::Wrong => price::UNASKED,
            };
            if why == Unasked::NotCaptured && !state.broken {
                state.expected = answer.goes_on_from(state.expected);
                state.broken = answer.kind == Kind::Fatal;
                state.refusing |= answer.kind.is_refusal();
            }
            state.answers += 1;
        }
        sum
    }

    /// Whether the next answer is this one, and may answer `request`.
    fn is_next(&self, at: usize, request: &Asked, kind: Kind, psn: i64) -> bool {
        self.answers
            .get(at)
            .is_some_and(|a| a.number > request.number && a.kind == kind && a.at == psn)
    }

    /// The price of silence where an acknowledgement up to `level` is owed.
    fn silence(&self, answers: usize, level: i64, request: &Asked) -> (u32, bool) {
        let covered = self.levels.get(answers).is_some_and(|newest| *newest >= level);
        (if covered { price::COVERED } else { self.missing(request) }, covered)
    }

    /// The price of an answer that is not there.
    fn missing(&self, request: &Asked) -> u32 {
        let last = request.at + request.span - 1;
        let is_first = self.places.first(request.at).is_some_and(|(n, _)| n == request.number);
        match self.places.is_asked_again(request.at, last, request.number) {
            false if is_first => price::NOT_MISSED,
            _ => price::SILENCE,
        }
    }

    fn tell(&self, mut state: State, request: &Asked, to: &mut dyn FnMut(State, u32, Decision)) {
        let mut skipped = self.skip(&mut state, request.number);
        // An acknowledgement of what was acknowledged may stand before the answer that counts.
        for _ in 0..=MOST_EXTRA {
            let first = state.answers;
            self.tell_from(state, request, &mut |state: State, price: u32, what: What| {
                to(state, skipped + price, Decision { what, first, end: state.answers });
            });
            let mut passed = 0;
            while let Some(front) = self.answers.get(state.answers).filter(|_| !state.broken) {
                skipped += match self.places.unasked(front, state.expected) {
                    Unasked::KnownAgain if passed == 0 => price::EXTRA,
                    Unasked::NotCaptured if front.kind.is_refusal() => break,
                    Unasked::NotCaptured if passed == 0 => price::NO_REQUEST,
                    Unasked::NotCaptured => 1,
                    _ => break,
                };
                state.expected = front.goes_on_from(state.expected);
                state.answers += 1;
                passed += 1;
                if front.kind == Kind::Ack {
                    break;
                }
            }
            if passed == 0 {
                return;
            }
        }
    }

    fn tell_from(&self, state: State, request: &Asked, tell: &mut dyn FnMut(State, u32, What)) {
        let came = |then: Then| What::Came { then, covered: false };
        if request.bad {
            return tell(state, 0, came(Then::Otherwise));
        }
        tell(state, price::LOST, What::Lost);
        if state.broken {
            return tell(state, 0, came(Then::Otherwise));
        }
        let ahead = request.at - state.expected;
        if ahead > 0 {
            self.too_early(state, request, tell);
            let anew = State { expected: request.at, ..state };
            self.refused(anew, request, price::NOT_RECORDED, tell);
            self.executed(anew, request, price::NOT_RECORDED, Then::ExecutedAnew, tell);
        } else if ahead < 0 {
            self.again(state, request, tell);
        } else {
            self.refused(state, request, 0, tell);
            self.executed(state, request, 0, Then::Executed, tell);
        }
    }

    fn refused(
        &self,
        state: State,
        request: &Asked,
        price: u32,
        tell: &mut dyn FnMut(State, u32, What),
    ) {
        for (kind, broken) in [(Kind::NotReady, false), (Kind::Fatal, true)] {
            if self.is_next(state.answers, request, kind, request.at) {
                let answers = state.answers + 1;
                let refused = State { answers, refusing: true, broken, ..state };
                tell(refused, price, What::Came { then: Then::Refused, covered: false });
            }
        }
    }

    fn too_early(&self, state: State, request: &Asked, tell: &mut dyn FnMut(State, u32, What)) {
        let what = What::Came { then: Then::Otherwise, covered: false };
        if self.is_next(state.answers, request, Kind::Sequence, state.expected) {
            let answers = state.answers + 1;
            tell(State { answers, refusing: true, ..state }, 0, what);
        }
        let price = if state.refusing { 0 } else { price::NO_NAK };
        tell(State { refusing: true, ..state }, price, what);
    }

    fn again(&self, state: State, request: &Asked, tell: &mut dyn FnMut(State, u32, What)) {
        let then = Then::Otherwise;
        match request.operation {
            Operation::Send | Operation::Write => {
                let newest = state.expected - 1;
                let next = self.answers.get(state.answers);
                let covers = |a: &&Answered| {
                    let is_ack = a.number > request.number && a.kind == Kind::Ack;
                    is_ack && (state.solid..=newest).contains(&a.at)
                };
                if let Some(ack) = next.filter(covers) {
                    let price = if ack.at == newest { 0 } else { price::OLDER };
                    let answered = State { answers: state.answers + 1, ..state };
                    tell(answered, price, What::Came { then, covered: false });
                }
                let (price, covered) = match state.refusing {
                    true => (price::COVERED, true),
                    false => self.silence(state.answers, newest, request),
                };
                tell(state, price, What::Came { then, covered });
            }
            _ => {
                let (answers, missing) = self.own_answers(state.answers, request);
                let price = if missing == 0 { 0 } else { self.missing(request) };
                let what = What::Came { then, covered: false };
                tell(State { answers, ..state }, price, what);
            }
        }
    }

    /// Where the answers of a READ, an atomic or the like end, and how many of them are missing.
    fn own_answers(&self, from: usize, request: &Asked) -> (usize, i64) {
        let kind = if request.operation.is_atomic() { Kind::Value } else { Kind::Data };
        let mut at = from;
        let mut wanted = request.at;
        let end = request.at + request.span;
        while let Some(answer) = self.answers.get(at).filter(|a| a.number > request.number) {
            // One that was lost before the recording leaves a hole.
            if answer.kind != kind || !(wanted..end).contains(&answer.at) {
                break;
            }
            wanted = answer.at + 1;
            at += 1;
        }
        let missing = request.span - (at - from) as i64;
        (at, missing)
    }

    fn executed(
        &self,
        state: State,
        request: &Asked,
        price: u32,
        then: Then,
        tell: &mut dyn FnMut(State, u32, What),
    ) {
        let expected = request.at + request.span;
        let is_read = request.operation == Operation::ReadRequest;
        let solid = if is_read { state.solid } else { request.at };
        let next = State { expected, solid, refusing: false, ..state };
        if !matches!(request.operation, Operation::Send | Operation::Write) {
            let (answers, missing) = self.own_answers(state.answers, request);
            let silence = if missing == 0 { 0 } else { self.missing(request) };
            let what = What::Came { then, covered: false };
            return tell(State { answers, ..next }, price + silence, what);
        }
        if self.is_next(state.answers, request, Kind::Ack, request.at) {
            let answers = state.answers + 1;
            tell(State { answers, ..next }, price, What::Came { then, covered: false });
        }
        let (silence, covered) = match request.ack_req {
            true => self.silence(state.answers, request.at, request),
            false => (0, true),
        };
        tell(next, price + silence, What::Came { then, covered });
    }
}
