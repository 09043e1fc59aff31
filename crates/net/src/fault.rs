//! What a bad network does to packets: rules, and the verdict on each packet.
//!
//! The rules are pure: no clock, and chance comes from a seed, so that the same packets meet the
//! same fate on every run. A [`FaultPort`] and the simulator's links both judge by them.
//!
//! A rule is an action and words that say which packets it is for; several are separated by `;`.
//!
//! ```text
//! drop psn 5 of qp 17 once          drop 2%          drop packets 3,7,9
//! delay 2% 1ms..5ms                 dup 1%           corrupt 0.1%
//! reorder 5% by 3                   mark 10%         truncate every 100
//! ```
//!
//! | words | which packets |
//! |---|---|
//! | `N%` | each with this chance; up to four decimals |
//! | `every N` | each Nth of those that the other words are for |
//! | `packets N,N…` | these of them, counted from 1 |
//! | `psn N` or `psn N..M` | those with this PSN, or one of these |
//! | `of qp N` or `qp N` | those to this queue pair |
//! | `once` or `N times` | only so many |
//!
//! Numbers are decimal, or hexadecimal after `0x`. Every rule is asked about every packet; a packet
//! that is dropped is not counted by the rules behind.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use roxe_wire::{Psn, Qpn};

mod port;

pub use port::FaultPort;

/// Rules, and what they remember: counts, and the state of chance.
#[derive(Clone, Debug)]
pub struct Faults {
    rules: Vec<(Rule, Memory)>,
    chance: Chance,
}

/// What the rules may know of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subject {
    /// Its destination.
    pub qpn: Qpn,
    /// Its PSN.
    pub psn: Psn,
    /// Bytes from BTH to ICRC.
    pub len: usize,
}

/// What happens to a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// It is lost; nothing else is said then.
    pub drop: bool,
    /// So many more of it arrive.
    pub copies: u32,
    /// It takes so much longer.
    pub delay: Duration,
    /// So many later packets overtake it.
    pub behind: u32,
    /// This bit of it is turned over, counted from the first of the BTH.
    pub flip: Option<usize>,
    /// Only so many of its bytes arrive.
    pub keep: Option<usize>,
    /// It is marked "congestion experienced".
    pub mark: bool,
}

/// One rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// What is done.
    pub action: Action,
    /// To which packets.
    pub which: Which,
}

/// What a rule does to packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// They are lost.
    Drop,
    /// They arrive twice.
    Duplicate,
    /// They take longer, by something between the two.
    Delay(Duration, Duration),
    /// So many later packets overtake them.
    Reorder(u32),
    /// One bit is turned over, somewhere.
    Corrupt,
    /// They lose their end, somewhere.
    Truncate,
    /// They are marked "congestion experienced".
    Mark,
}

/// The packets that a rule is for: those for which everything holds that is said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Which {
    /// Each with this chance, in millionths; 0 is not said.
    pub chance: u32,
    /// Each of so many; 0 is not said.
    pub every: u64,
    /// These, counted from 1; empty is not said.
    pub packets: Vec<u64>,
    /// Those from one PSN to another.
    pub psn: Option<(Psn, Psn)>,
    /// Those to this queue pair.
    pub qpn: Option<Qpn>,
    /// Only so many; 0 is not said.
    pub times: u64,
}

/// What a rule has seen and done.
#[derive(Clone, Copy, Debug, Default)]
struct Memory {
    seen: u64,
    done: u64,
}

impl Faults {
    /// These rules, with chance from `seed`.
    pub fn new(rules: impl IntoIterator<Item = Rule>, seed: u64) -> Self {
        let rules = rules.into_iter().map(|rule| (rule, Memory::default())).collect();
        Self { rules, chance: Chance(seed) }
    }

    /// The rules of a line, with chance from `seed`.
    ///
    /// # Errors
    /// [`ParseError`].
    pub fn parse(line: &str, seed: u64) -> Result<Self, ParseError> {
        Ok(Self::new(parse_rules(line)?, seed))
    }

    /// Whether there is no rule.
    pub const fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// What happens to the next packet.
    pub fn judge(&mut self, packet: Subject) -> Verdict {
        let mut verdict = Verdict::default();
        for (rule, memory) in &mut self.rules {
            if !rule.which.applies(packet, memory, &mut self.chance) {
                continue;
            }
            match rule.action {
                Action::Drop => return Verdict { drop: true, ..Verdict::default() },
                Action::Duplicate => verdict.copies += 1,
                Action::Delay(least, most) => {
                    let span = most.saturating_sub(least).as_nanos() as u64;
                    let more = self.chance.below(span.saturating_add(1));
                    verdict.delay += least + Duration::from_nanos(more);
                }
                Action::Reorder(by) => verdict.behind += by,
                Action::Corrupt if packet.len != 0 => {
                    verdict.flip = Some(self.chance.below(packet.len as u64 * 8) as usize);
                }
                Action::Truncate if packet.len != 0 => {
                    verdict.keep = Some(self.chance.below(packet.len as u64) as usize);
                }
                Action::Corrupt | Action::Truncate => {}
                Action::Mark => verdict.mark = true,
            }
        }
        verdict
    }
}

impl Which {
    /// All packets.
    pub const ALL: Self =
        Self { chance: 0, every: 0, packets: Vec::new(), psn: None, qpn: None, times: 0 };

    fn applies(&self, packet: Subject, memory: &mut Memory, chance: &mut Chance) -> bool {
        let named = self.qpn.is_none_or(|qpn| qpn == packet.qpn)
            && self.psn.is_none_or(|(first, last)| {
                packet.psn.since(first) >= 0 && packet.psn.since(last) <= 0
            });
        if !named || self.times != 0 && memory.done >= self.times {
            return false;
        }
        memory.seen += 1;
        let counted = (self.every == 0 || memory.seen.is_multiple_of(self.every))
            && (self.packets.is_empty() || self.packets.contains(&memory.seen));
        let hit = counted && (self.chance == 0 || chance.below(MILLION) < u64::from(self.chance));
        memory.done += u64::from(hit);
        hit
    }
}

const MILLION: u64 = 1_000_000;

/// Chance that is none: SplitMix64, whose every seed is a good one.
#[derive(Clone, Copy, Debug)]
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// 0 ..= `bound` - 1; 0 for a bound of 0.
    fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }
}

/// What is wrong with a line of rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// Where, in characters from 1.
    pub column: usize,
    /// What.
    pub what: String,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "column {}: {}", self.column, self.what)
    }
}

impl std::error::Error for ParseError {}

/// The rules of a line.
///
/// # Errors
/// [`ParseError`].
pub fn parse_rules(line: &str) -> Result<Vec<Rule>, ParseError> {
    let mut rules = Vec::new();
    let mut column = 1;
    for text in line.split(';') {
        if !text.trim().is_empty() {
            rules.push(parse_rule(text, column)?);
        }
        column += text.chars().count() + 1;
    }
    Ok(rules)
}

impl FromStr for Rule {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        parse_rule(text, 1)
    }
}

/// The words of a rule, with their columns.
struct Words<'a> {
    text: &'a str,
    column: usize,
}

impl<'a> Words<'a> {
    fn next(&mut self) -> Option<(&'a str, usize)> {
        let trimmed = self.text.trim_start();
        self.column += self.text.chars().count() - trimmed.chars().count();
        let (word, rest) =
            trimmed.split_at(trimmed.find(char::is_whitespace).unwrap_or(trimmed.len()));
        let column = self.column;
        self.column += word.chars().count();
        self.text = rest;
        (!word.is_empty()).then_some((word, column))
    }

    /// The word that must follow; `what` says what it is.
    fn value<T>(
        &mut self,
        what: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T, ParseError> {
        let Some((word, column)) = self.next() else {
            return Err(wrong(self.column, format!("{what} is missing")));
        };
        parse(word).ok_or_else(|| wrong(column, format!("{word:?} is not {what}")))
    }
}

fn wrong(column: usize, what: String) -> ParseError {
    ParseError { column, what }
}

fn nothing(column: usize, word: &str) -> ParseError {
    wrong(column, format!("{word:?} means nothing here; rules have `;` between them"))
}

fn parse_rule(text: &str, column: usize) -> Result<Rule, ParseError> {
    let mut words = Words { text, column };
    let Some((name, at)) = words.next() else {
        return Err(wrong(column, "a rule is missing".to_owned()));
    };
    let mut action = match name {
        "drop" => Action::Drop,
        "dup" => Action::Duplicate,
        "delay" => Action::Delay(Duration::ZERO, Duration::ZERO),
        "reorder" => Action::Reorder(1),
        "corrupt" => Action::Corrupt,
        "truncate" => Action::Truncate,
        "mark" => Action::Mark,
        _ => {
            let hint = if name.ends_with(',') { "; rules have `;` between them" } else { "" };
            let what = format!(
                "{name:?} is no action: drop, dup, delay, reorder, corrupt, truncate or mark{hint}"
            );
            return Err(wrong(at, what));
        }
    };
    let mut which = Which::ALL;
    let mut waits = !matches!(action, Action::Delay(..));
    while let Some((word, at)) = words.next() {
        let digits = word.starts_with(|c: char| c.is_ascii_digit());
        match (word, action) {
            ("every", _) => which.every = words.value("how many", positive)?,
            ("packets", _) => which.packets = words.value("a list like 3,7,9", list)?,
            ("psn", _) => which.psn = Some(words.value("a PSN or a range of them", psns)?),
            ("of", _) => {
                words.value("`qp`", |word| (word == "qp").then_some(()))?;
                which.qpn = Some(words.value("a queue pair number", qpn)?);
            }
            ("qp", _) => which.qpn = Some(words.value("a queue pair number", qpn)?),
            ("once", _) => which.times = 1,
            ("by", Action::Reorder(_)) => {
                action = Action::Reorder(words.value("how many packets", count)?);
            }
            (_, _) if word.ends_with('%') => {
                which.chance = percent(word)
                    .ok_or_else(|| wrong(at, format!("{word:?} is no chance: 0.0001% to 100%")))?;
            }
            (_, Action::Delay(..)) if digits && !waits => {
                let (least, most) = durations(word).ok_or_else(|| {
                    wrong(at, format!("{word:?} is no time like 5us or 1ms..5ms"))
                })?;
                action = Action::Delay(least, most);
                waits = true;
            }
            _ if digits => {
                let times = positive(word).ok_or_else(|| nothing(at, word))?;
                if words.next().is_none_or(|(word, _)| word != "times") {
                    let what = format!("{word} what? `{word} times`, `{word}%` or `psn {word}`");
                    return Err(wrong(at, what));
                }
                which.times = times;
            }
            _ => {
                return Err(nothing(at, word));
            }
        }
    }
    if !waits {
        return Err(wrong(words.column, "a time like 5us or 1ms..5ms is missing".to_owned()));
    }
    Ok(Rule { action, which })
}

fn number(word: &str) -> Option<u64> {
    match word.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => word.parse().ok(),
    }
}

fn positive(word: &str) -> Option<u64> {
    number(word).filter(|&number| number != 0)
}

fn count(word: &str) -> Option<u32> {
    positive(word).and_then(|number| u32::try_from(number).ok())
}

fn bits_24(word: &str) -> Option<u32> {
    number(word).and_then(|number| u32::try_from(number).ok()).filter(|&number| number < 1 << 24)
}

fn qpn(word: &str) -> Option<Qpn> {
    bits_24(word).map(Qpn::new)
}

fn psns(word: &str) -> Option<(Psn, Psn)> {
    let (first, last) = word.split_once("..").unwrap_or((word, word));
    Some((Psn::new(bits_24(first)?), Psn::new(bits_24(last)?)))
}

fn list(word: &str) -> Option<Vec<u64>> {
    word.split(',').map(positive).collect()
}

/// A chance in millionths.
fn percent(word: &str) -> Option<u32> {
    let (whole, decimals) = {
        let number = word.strip_suffix('%')?;
        number.split_once('.').unwrap_or((number, ""))
    };
    if decimals.len() > 4 || !decimals.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let whole: u32 = whole.parse().ok().filter(|&whole| whole <= 100)?;
    let decimals: u32 = format!("{decimals:0<4}").parse().ok()?;
    Some(whole * 10_000 + decimals).filter(|chance| (1..=1_000_000).contains(chance))
}

fn durations(word: &str) -> Option<(Duration, Duration)> {
    let (least, most) = word.split_once("..").unwrap_or((word, word));
    let (least, most) = (duration(least)?, duration(most)?);
    (least <= most).then_some((least, most))
}

fn duration(word: &str) -> Option<Duration> {
    let (digits, unit) = word.split_at(word.find(|c: char| !c.is_ascii_digit())?);
    let number: u64 = digits.parse().ok()?;
    let nanos = match unit {
        "ns" => 1,
        // The micro sign and the Greek letter look the same.
        "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        _ => return None,
    };
    number.checked_mul(nanos).map(Duration::from_nanos)
}

impl fmt::Display for Rule {
    /// As [`parse_rules`] reads it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Which { chance, every, packets, psn, qpn, times } = &self.which;
        f.write_str(match self.action {
            Action::Drop => "drop",
            Action::Duplicate => "dup",
            Action::Delay(..) => "delay",
            Action::Reorder(_) => "reorder",
            Action::Corrupt => "corrupt",
            Action::Truncate => "truncate",
            Action::Mark => "mark",
        })?;
        if *chance != 0 {
            write!(f, " {}.{:04}%", chance / 10_000, chance % 10_000)?;
        }
        match self.action {
            Action::Delay(least, most) => {
                write!(f, " {}ns..{}ns", least.as_nanos(), most.as_nanos())?;
            }
            Action::Reorder(by) => write!(f, " by {by}")?,
            _ => {}
        }
        if *every != 0 {
            write!(f, " every {every}")?;
        }
        if !packets.is_empty() {
            let list: Vec<String> = packets.iter().map(u64::to_string).collect();
            write!(f, " packets {}", list.join(","))?;
        }
        if let Some((first, last)) = psn {
            write!(f, " psn {}..{}", first.get(), last.get())?;
        }
        if let Some(qpn) = qpn {
            write!(f, " of qp {qpn}")?;
        }
        if *times != 0 {
            write!(f, " {times} times")?;
        }
        Ok(())
    }
}

impl fmt::Display for Faults {
    /// As [`Faults::parse`] reads it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, (rule, _)) in self.rules.iter().enumerate() {
            let separator = if number == 0 { "" } else { "; " };
            write!(f, "{separator}{rule}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
