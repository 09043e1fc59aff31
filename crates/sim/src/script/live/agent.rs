//! The conversation with the agent on the device's host.

use std::time::Duration;

use super::{Halt, Live, difference};

impl Live<'_> {
    /// Says a line to the agent.
    pub(super) fn ask(&mut self, line: &str) -> Result<Answer, Halt> {
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
        if let Some(words) = answer.strip_prefix("ok") {
            return Ok(Answer(words.to_owned()));
        }
        let refused = answer.strip_prefix("error ").and_then(|rest| {
            let (number, why) = rest.split_once(' ')?;
            Some(Halt::Refused(number.parse().ok()?, why.to_owned()))
        });
        Err(refused.unwrap_or_else(|| Halt::Broken(format!("the agent says: {answer}"))))
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
        let missing = || Halt::Broken(format!("the agent says no {key}: {}", self.0));
        self.all(key).next().ok_or_else(missing)
    }

    pub(super) fn number(&self, key: &str) -> Result<u64, Halt> {
        let text = self.text(key)?;
        number(text).ok_or_else(|| Halt::Broken(format!("the agent says {key}={text}")))
    }
}

/// A number as agents write it.
pub(super) fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// How long a frame takes to be handled, at the most.
const SETTLE: Duration = Duration::from_millis(15);
