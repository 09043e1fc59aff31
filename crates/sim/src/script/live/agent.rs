//! The conversation with the agent on the device's host.

use std::time::Duration;

use roxe_wire::Qpn;

use super::{Halt, Live, difference};

impl Live<'_> {
    /// Says a line to the agent.
    pub(super) fn ask(&mut self, line: &str) -> Result<Answer, Halt> {
        self.in_time()?;
        if self.unsettled {
            // What is on the wire is handled before what is asked for now.
            self.unsettled = false;
            let end = self.site.now() + SETTLE;
            loop {
                let left = end.since(self.site.now());
                if left.is_zero() {
                    break;
                }
                self.arrivals(left)?;
            }
        }
        let answer = self.site.ask(line).map_err(Halt::Broken)?;
        let (verdict, words) = answer.split_once(' ').unwrap_or((&answer, ""));
        if verdict == "ok" {
            return Ok(Answer(words.to_owned()));
        }
        let refused = answer.strip_prefix("error ").and_then(|rest| {
            let (number, why) = rest.split_once(' ')?;
            match number.parse().ok()? {
                EPROTO => None,
                number => Some(Halt::Refused(number, cut(why))),
            }
        });
        Err(refused.unwrap_or_else(|| Halt::Broken(format!("the agent says: {}", cut(&answer)))))
    }
}

/// Whether a verb ended as the script says.
pub(super) fn expect(outcome: Result<(), Halt>, fails: Option<&str>) -> Result<(), Halt> {
    match (outcome, fails) {
        (Ok(()), None) => Ok(()),
        (Ok(()), Some(errno)) => {
            Err(difference(format!("it succeeded, and should have failed: {errno}")))
        }
        (Err(Halt::Refused(ENOSYS | EOPNOTSUPP, why)), _) => {
            Err(Halt::Skip(format!("the device does not have this: {why}")))
        }
        (Err(Halt::Refused(number, _)), Some(wanted)) if errno(number) == wanted => Ok(()),
        (Err(Halt::Refused(number, why)), Some(wanted)) => {
            Err(difference(format!("it failed with {} ({why}), not with {wanted}", errno(number))))
        }
        (Err(Halt::Refused(number, why)), None) => {
            Err(difference(format!("it failed: {}, {why}", errno(number))))
        }
        (Err(other), _) => Err(other),
    }
}

const ENOSYS: u32 = 38;
/// The line is none that the agent knows, which says nothing of the device.
const EPROTO: u32 = 71;
const EOPNOTSUPP: u32 = 95;

/// The name that scripts have for a number of errno.
pub(super) fn errno(number: u32) -> String {
    match number {
        12 => "ENOMEM".to_owned(),
        16 => "EBUSY".to_owned(),
        22 => "EINVAL".to_owned(),
        other => format!("errno {other}"),
    }
}

/// What an agent answered: words `key=value`.
pub(super) struct Answer(String);

impl Answer {
    pub(super) fn all<'s>(&'s self, key: &str) -> impl Iterator<Item = &'s str> {
        let pairs = self.0.split_whitespace().filter_map(|word| word.split_once('='));
        pairs.filter(move |(known, _)| *known == key).map(|(_, value)| value)
    }

    pub(super) fn text(&self, key: &str) -> Result<&str, Halt> {
        let missing = || Halt::Broken(format!("the agent says no {key}: {}", cut(&self.0)));
        self.all(key).next().ok_or_else(missing)
    }

    /// A number that is as wide as what it is for.
    pub(super) fn number<N: TryFrom<u64>>(&self, key: &str) -> Result<N, Halt> {
        let text = self.text(key)?;
        let number = number(text).and_then(|number| N::try_from(number).ok());
        number.ok_or_else(|| says(key, text))
    }

    /// A queue pair's number.
    pub(super) fn qpn(&self, key: &str) -> Result<Qpn, Halt> {
        qpn_of(self.number(key)?).ok_or_else(|| says(key, self.text(key).unwrap_or_default()))
    }
}

/// The queue pair of a number, if one can have it.
pub(super) fn qpn_of(number: u64) -> Option<Qpn> {
    let qpn = Qpn::new(u32::try_from(number).ok()?);
    (u64::from(qpn.get()) == number).then_some(qpn)
}

/// What an agent says, and should not.
pub(super) fn says(key: &str, value: &str) -> Halt {
    Halt::Broken(format!("the agent says {key}={}", cut(value)))
}

/// The beginning of what an agent says: it may be long.
fn cut(text: &str) -> String {
    match text.char_indices().nth(MOST_TOLD) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Characters of an answer that are told.
const MOST_TOLD: usize = 200;

/// A number as agents write it.
pub(super) fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// How long a frame takes to be handled, at the most.
const SETTLE: Duration = Duration::from_millis(15);
