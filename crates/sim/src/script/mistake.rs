//! What is wrong with a script itself, unlike what a device does wrong.

use std::fmt;

use roxe_wire::Instant;

/// A place where a text is no script, or asks for what cannot be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// The file's name, as it was given.
    pub file: String,
    /// From 1 on.
    pub line: usize,
    /// In characters, from 1 on.
    pub column: usize,
    /// What is wrong.
    pub what: String,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, column, what } = self;
        write!(f, "{file}:{line}:{column}: {what}")
    }
}

impl std::error::Error for ParseError {}

/// What is wrong with a statement, and at which of its words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mistake {
    /// Nothing for all of it.
    pub(super) word: String,
    pub(super) what: String,
}

impl Mistake {
    pub(super) fn at(word: &str, what: impl Into<String>) -> Self {
        Self { word: word.to_owned(), what: what.into() }
    }
}

impl From<String> for Mistake {
    fn from(what: String) -> Self {
        Self::at("", what)
    }
}

impl From<&str> for Mistake {
    fn from(what: &str) -> Self {
        Self::at("", what)
    }
}

/// Why a script stops.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// The script is wrong.
    Mistake(Mistake),
    /// The device did something else.
    Difference {
        /// In words.
        what: String,
        /// What no line speaks of, if that is why.
        instead: Option<Instead>,
    },
}

/// Something that the device did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Instead {
    pub(super) at: Instant,
    /// Which of the frames that are kept it is, if it is one.
    pub(super) kept: Option<usize>,
}

impl Stop {
    /// What the device did otherwise, if that is why.
    pub(super) fn difference(&self) -> Option<&str> {
        match self {
            Self::Difference { what, .. } => Some(what),
            Self::Mistake(_) => None,
        }
    }
}

impl From<Mistake> for Stop {
    fn from(mistake: Mistake) -> Self {
        Self::Mistake(mistake)
    }
}

impl From<String> for Stop {
    fn from(what: String) -> Self {
        Self::Difference { what, instead: None }
    }
}

/// The nearest of the known words, as the end of a message; nothing when none is near.
pub(super) fn suggest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let lower = word.to_ascii_lowercase();
    // Names of several words are often remembered in another order.
    let sorted = |word: &str| {
        let mut parts: Vec<&str> = word.split(['-', '_']).collect();
        parts.sort_unstable();
        parts.join("-")
    };
    let far = |known: &str| {
        let known = known.to_ascii_lowercase();
        let whole = strsim::osa_distance(&lower, &known);
        whole.min(strsim::osa_distance(&sorted(&lower), &sorted(&known)))
    };
    // Or one is short for the other.
    let is_short = |known: &&str| {
        let known = known.to_ascii_lowercase();
        let (short, long) =
            if known.len() < lower.len() { (&known, &lower) } else { (&lower, &known) };
        short.len() >= SHORT && long.starts_with(short.as_str())
    };
    let known: Vec<&str> = known.into_iter().collect();
    let longest = known.iter().copied().filter(is_short).max_by_key(|known| known.len());
    let nearest = known.into_iter().map(|known| (far(known), known)).min();
    match nearest {
        Some((far, known)) if far <= word.chars().count().div_ceil(3).min(3) => {
            format!("; did you mean `{known}`?")
        }
        _ => match longest {
            Some(known) => format!("; did you mean `{known}`?"),
            None => String::new(),
        },
    }
}

/// What is short for many words is short for none.
const SHORT: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_words_are_suggested_and_far_ones_are_not() {
        let known = ["expect-psn", "send-psn", "icrc_bad", "SEND_ONLY"];
        let suggested = |word| suggest(word, known);
        assert_eq!(suggested("expct-psn"), "; did you mean `expect-psn`?");
        assert_eq!(suggested("SEND_ONY"), "; did you mean `SEND_ONLY`?");
        assert_eq!(suggested("bad_icrc"), "; did you mean `icrc_bad`?");
        assert_eq!(suggested("expect"), "; did you mean `expect-psn`?");
        assert_eq!(suggest("length", ["id", "len"]), "; did you mean `len`?");
        assert_eq!((suggested("what"), suggested("")), (String::new(), String::new()));
    }
}
