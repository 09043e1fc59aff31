//! Recorded answers and ours: which belong together, and what may be without the other.

use std::ops::Range;

use super::super::meaning::{Says, View, answers_differ};
use super::super::places::Unasked;
use super::super::reached::Kind;
use super::super::record::Item;
use super::super::rig::Sent;
use super::{Left, Player};

impl Player<'_> {
    /// A recorded answer that no request accounts for, where one of those of ours that are left
    /// would be.
    pub(super) fn unasked(&mut self, index: usize) {
        let answer = self.session.answers[index];
        let answered = &self.session.answered[index];
        let view = View::from(answer);
        let kind_of = |left: &Left| View::from(&left.sent).says().map(Kind::from);
        let same = |left: &Left| left.at == answered.at && kind_of(left) == Some(answered.kind);
        if let Some(place) = self.left.iter().position(same) {
            self.left.remove(place);
            self.side.unseen += 1;
            return;
        }
        let why = match self.broken || self.over {
            true => Unasked::Wrong,
            false => self.session.places.unasked(answered, self.expected),
        };
        let ahead = self.ahead(answer);
        let is_data = matches!(answered.kind, Kind::Data | Kind::Value);
        let asked = self.session.places.has(answered.at);
        let likely = |left: &Left| match why {
            Unasked::Wrong => false,
            Unasked::Beyond => ahead <= 0 && (!is_data || kind_of(left) == Some(answered.kind)),
            _ if is_data => {
                let judged = asked && !self.late && (!left.again || left.covered);
                judged && kind_of(left) == Some(answered.kind)
            }
            Unasked::NotCaptured if answered.at == self.expected => ahead < 0,
            // By its MSN it acknowledges more than by its PSN.
            Unasked::KnownAgain if left.covered => {
                ahead == 0 && !self.late && !left.again && left.at > answered.at
            }
            Unasked::KnownAgain | Unasked::NotCaptured => !left.covered,
        };
        if let Some(place) = self.left.iter().position(likely) {
            let ours = View::from(&self.left.remove(place).sent).words();
            return self.side.differs(answer.number, "psn", view.words(), ours);
        }
        let before = self.given.get(&answered.at).map(|index| self.session.answers[*index]);
        let known = answered.at < self.expected;
        match why {
            Unasked::Beyond if ahead > 0 || answer.headers.aeth.is_none() => {}
            Unasked::Wrong | Unasked::Beyond => {
                let ours = "nothing".to_owned();
                return self.side.differs(answer.number, "answer", view.words(), ours);
            }
            // So many messages nobody has asked for.
            _ if known
                && self.msn_offset.is_some()
                && i64::from(ahead) > self.asked_for - self.expected + 1 =>
            {
                let msn = answer.headers.aeth.map_or(0, |aeth| aeth.msn.get());
                let ours = format!("msn {}", i64::from(msn) - i64::from(ahead));
                return self.side.differs(answer.number, "msn", format!("msn {msn}"), ours);
            }
            Unasked::KnownAgain => return,
            Unasked::NotCaptured => {
                if let Some(before) = before.filter(|_| is_data && known)
                    && let Some(what) = answers_differ(view, View::from(before))
                {
                    let ours = format!("the same as in frame {}", before.number);
                    return self.side.differs(answer.number, what, view.words(), ours);
                }
            }
        }
        self.side.uncaptured += 1;
        if let Some(aeth) = answer.headers.aeth.filter(|_| ahead > 0) {
            self.uncaptured_msn = Some(aeth.msn.get());
        }
        self.over |= answered.kind == Kind::Fatal;
        if why == Unasked::NotCaptured {
            self.expected = answered.goes_on_from(self.expected);
        }
    }

    /// Which one of the packets behind a refused one is refused once more is not compared.
    pub(super) fn find_early(&mut self, place: usize) {
        let answered = &self.session.answered[place];
        let same = |left: &Left| {
            let kind = View::from(&left.sent).says().map(Kind::from);
            left.at == answered.at && kind == Some(Kind::Sequence)
        };
        let early = self.left.iter().position(same);
        if let Some(early) = early.filter(|_| answered.kind == Kind::Sequence) {
            let left = self.left.remove(early);
            self.early.insert(place);
            self.side.compared += 1;
            self.compare_msn(self.session.answers[place], &left.sent);
        }
    }

    /// No recorded answer stands for those of ours that are left, while later ones are recorded:
    /// the recording lost them. But where the requester asks once more they did not come to it.
    pub(super) fn settle(&mut self) {
        for left in std::mem::take(&mut self.left) {
            let is_data = matches!(View::from(&left.sent).says(), Some(Says::Data(..)));
            let last = if is_data { left.at } else { left.from };
            let again = self.session.places.is_asked_again(left.from, last, left.number);
            // What was refused is asked for again because of that.
            let says = View::from(&left.sent).says();
            let refuses = matches!(says, Some(Says::Refused(_) | Says::NotReady(_)));
            if again && !left.covered && !refuses && !self.late {
                let ours = View::from(&left.sent).words();
                self.side.differs(left.number, "answer", "nothing".to_owned(), ours);
            } else if !left.covered {
                self.side.unseen += 1;
            }
        }
    }

    /// How many messages more are done, by an answer's MSN, than ours has carried out.
    fn ahead(&self, answer: &Item) -> i32 {
        let Some(aeth) = answer.headers.aeth else { return 0 };
        let ours = self.completed.wrapping_add(self.msn_offset.unwrap_or(0));
        ((aeth.msn.get().wrapping_sub(ours) << 8) as i32) >> 8
    }

    pub(super) fn compare(
        &mut self,
        index: usize,
        ours: Vec<Sent>,
        range: Range<usize>,
        covered: bool,
    ) {
        let item = self.session.requests[index];
        let answered = !range.is_empty();
        let mut ours: Vec<_> = ours.into_iter().map(Some).collect();
        for place in range {
            let answer = self.session.answers[place];
            let recorded = View::from(answer);
            if self.early.contains(&place) {
                continue;
            }
            if matches!(recorded.says(), Some(Says::Data(..) | Says::Value(_))) {
                self.given.insert(self.session.answered[place].at, place);
            }
            let same = |sent: &Option<Sent>| {
                sent.as_ref().is_some_and(|sent| sent.headers.bth.psn == answer.psn())
            };
            let is_ack = |sent: &Sent| View::from(sent).says() == Some(Says::Ack);
            let judged =
                |sent: &Sent| !self.late || (is_ack(sent) && recorded.says() == Some(Says::Ack));
            let other = || ours.iter().position(|sent| sent.as_ref().is_some_and(judged));
            let at = ours.iter().position(same).or_else(other);
            let Some(sent) = at.and_then(|at| ours[at].take()) else {
                // An acknowledgement that nobody had asked for tells no more than the next one.
                if self.late && matches!(recorded.says(), Some(Says::Data(..) | Says::Value(_))) {
                    self.side.uncaptured += 1;
                } else if recorded.says() != Some(Says::Ack) || item.headers.bth.ack_req {
                    let words = recorded.words();
                    self.side.differs(answer.number, "answer", words, "nothing".to_owned());
                }
                continue;
            };
            self.side.compared += 1;
            let view = View::from(&sent);
            let apart = view.psn().since(recorded.psn());
            let newest = self.setup.rq_psn.advance((self.solid - self.begun) as u32);
            let only_reads_between = [recorded, view]
                .iter()
                .all(|one| one.says() == Some(Says::Ack) && one.psn().since(newest) >= 0);
            let same_by_meaning = apart != 0 && only_reads_between;
            let what = answers_differ(recorded, view).filter(|_| !same_by_meaning);
            // Ours may have done an atomic once more.
            if self.late && what == Some("value") {
                self.side.uncaptured += 1;
            } else if let Some(what) = what {
                self.side.differs(answer.number, what, recorded.words(), view.words());
            } else {
                self.compare_msn(answer, &sent);
            }
        }
        for sent in ours.into_iter().flatten() {
            let view = View::from(&sent);
            let is_ack = view.says() == Some(Says::Ack);
            self.side.coalesced += u64::from(is_ack && covered);
            let from = self.session.asked[index].at;
            let at = from + i64::from(view.psn().since(item.psn()));
            // Other parts of the same READ are there: they were lost before the recording.
            let covered =
                (is_ack && covered) || (answered && matches!(view.says(), Some(Says::Data(..))));
            self.side.unseen += u64::from(!is_ack && covered);
            let again = from < self.expected;
            if self.left.len() == MOST_LEFT {
                self.side.unseen += u64::from(!covered);
                continue;
            }
            self.left.push(Left { number: item.number, from, at, sent, covered, again });
        }
    }

    /// MSNs count from the beginning of a connection, which the recording need not hold: the first
    /// pair of answers tells how far apart they are.
    fn compare_msn(&mut self, answer: &Item, ours: &Sent) {
        let (Some(recorded), Some(sent)) = (answer.headers.aeth, ours.headers.aeth) else { return };
        let apart = recorded.msn.get().wrapping_sub(sent.msn.get()) & 0x00ff_ffff;
        let first = *self.first_msn.get_or_insert_with(|| recorded.msn.get());
        // What was carried out before the recording began ours may have done once more.
        self.late |= apart != 0 && self.msn_offset.is_none();
        if recorded.msn.get() == first && self.msn_offset.is_some_and(|offset| offset > apart) {
            self.msn_offset = Some(apart);
        }
        // Ours will come to what others have shown already.
        if self.uncaptured_msn == Some(recorded.msn.get()) && self.msn_offset.is_some() {
            return;
        }
        if *self.msn_offset.get_or_insert(apart) != apart {
            let expected = sent.msn.advance(self.msn_offset.unwrap_or(0));
            let recorded = format!("msn {}", recorded.msn.get());
            self.side.differs(answer.number, "msn", recorded, format!("msn {}", expected.get()));
            self.msn_offset = Some(apart);
        }
    }
}

/// More answers of ours do not wait for a recorded one.
const MOST_LEFT: usize = 4096;
