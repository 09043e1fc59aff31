//! The ways a command ends without success, and the exit status of each.

use std::fmt;

/// Why a command stopped. Any other error counts as a finding.
#[derive(Debug)]
pub(crate) enum Stop {
    /// What was wrong has been printed already.
    Findings,
    /// The command line makes no sense; the text says what would.
    Usage(String),
    /// The environment lacks something; the text says what, and how to get it.
    Missing(String),
}

impl Stop {
    /// The exit status: the same numbers as `roxe` itself has.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Findings => 1,
            Self::Usage(_) => 2,
            Self::Missing(_) => 3,
        }
    }
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Findings => f.write_str("there are findings"),
            Self::Usage(text) | Self::Missing(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for Stop {}
