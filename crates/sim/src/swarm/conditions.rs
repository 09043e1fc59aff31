//! What the links of a world are like: as its seed makes them, or as somebody says.

use std::fmt;
use std::time::Duration;

use roxe_net::fault::{Action, Rule, parse_rules};

use crate::link::{LONGEST, LinkSettings, SLOWEST};
use crate::rng::Rng;
use crate::workload::MOST_STRETCH;

use super::{Feature as F, Features, Recipe};

/// What is said of the links; what is not said, the seed makes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conditions {
    /// What they do to packets, and how that was said.
    faults: Option<(String, Vec<Rule>)>,
    /// How long they are.
    latency: Option<Duration>,
    /// How long a byte takes to be put on them, in picoseconds: 80 is 100 Gb/s.
    picos_per_byte: Option<u64>,
}

impl Conditions {
    /// What links do to packets, in the language of [`roxe_net::fault`]; nothing for no text.
    ///
    /// # Errors
    /// What of the text is no rule, with its column.
    pub fn set_faults(&mut self, text: &str) -> Result<(), String> {
        let rules = parse_rules(text).map_err(|error| error.to_string())?;
        self.faults = Some((text.to_owned(), rules));
        Ok(())
    }

    /// How long it takes from one end of a link to the other.
    ///
    /// # Errors
    /// No ACK timeout that queue pairs can have is long enough.
    pub fn set_latency(&mut self, latency: Duration) -> Result<(), String> {
        let most = LONGEST * MOST_STRETCH;
        if latency > most {
            return Err(format!(
                "no ACK timeout is long enough for links of more than {} ms",
                most.as_millis()
            ));
        }
        self.latency = Some(latency);
        Ok(())
    }

    /// How long a byte takes to be put on a link, in picoseconds: 80 is 100 Gb/s.
    ///
    /// # Errors
    /// No ACK timeout that queue pairs can have is long enough.
    pub fn set_picos_per_byte(&mut self, picos: u64) -> Result<(), String> {
        let most = SLOWEST * u64::from(MOST_STRETCH);
        if picos > most {
            return Err(format!(
                "no ACK timeout is long enough for links of less than {:.6} Gb/s",
                8000.0 / most as f64
            ));
        }
        self.picos_per_byte = Some(picos);
        Ok(())
    }

    /// The world with the faults that are said and no others, so that it allows for them.
    pub(super) fn admit(&self, recipe: Recipe) -> Recipe {
        let Some((_, rules)) = &self.faults else { return recipe };
        let quiet = FAULTS.iter().fold(recipe.features, |left, fault| left.without(*fault));
        let features =
            rules.iter().fold(quiet, |all, rule| all.with(Features::of(&[feature(rule.action)])));
        Recipe { features, ..recipe }
    }

    /// What links are like, and how long they are bad.
    pub(super) fn links(&self, recipe: &Recipe) -> (LinkSettings, Duration) {
        let mut rng = Rng::new(recipe.seed).fork(2);
        let latency = Duration::from_nanos(rng.between(200, LONGEST.as_nanos() as u64));
        let picos_per_byte = rng.pick(&[20, 80, 320, SLOWEST]);
        let mut bytes = |feature, least, most| match recipe.features.has(feature) {
            true => rng.between(least, most),
            false => u64::MAX,
        };
        let queue_bytes = bytes(F::ShortQueue, 8_000, 60_000);
        let mark_bytes = bytes(F::Mark, 0, 50_000);
        let settings = LinkSettings {
            latency: self.latency.unwrap_or(latency),
            picos_per_byte: self.picos_per_byte.unwrap_or(picos_per_byte),
            queue_bytes,
            mark_bytes,
        };
        (settings, Duration::from_micros(rng.between(200, 20_000)) * settings.stretch())
    }

    /// What links do to packets.
    pub(super) fn rules(&self, recipe: &Recipe) -> Vec<Rule> {
        match &self.faults {
            Some((_, rules)) => rules.clone(),
            None => rules(recipe, self.links(recipe).0.stretch()),
        }
    }
}

impl fmt::Display for Conditions {
    /// The arguments that say it, each behind a space.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((text, _)) = &self.faults {
            write!(f, " --faults \"{text}\"")?;
        }
        if let Some(latency) = self.latency {
            write!(f, " --latency {}ns", latency.as_nanos())?;
        }
        match self.picos_per_byte {
            Some(picos) => write!(f, " --rate {}", 8000.0 / picos as f64),
            None => Ok(()),
        }
    }
}

/// What rules can do to packets, but for marking them.
pub(super) const FAULTS: &[F] =
    &[F::Drop, F::Duplicate, F::Reorder, F::Delay, F::Corrupt, F::Truncate];

const fn feature(action: Action) -> F {
    match action {
        Action::Drop => F::Drop,
        Action::Duplicate => F::Duplicate,
        Action::Delay(_, _) => F::Delay,
        Action::Reorder(_) => F::Reorder,
        Action::Corrupt => F::Corrupt,
        Action::Truncate => F::Truncate,
        Action::Mark => F::Mark,
    }
}

/// What the links of a world do to packets if nothing is said.
fn rules(recipe: &Recipe, stretch: u32) -> Vec<Rule> {
    let mut all = Vec::new();
    for (feature, action, rest) in [
        (F::Drop, "drop", ""),
        (F::Duplicate, "dup", ""),
        (F::Reorder, "reorder", "by"),
        (F::Delay, "delay", "1us..300us"),
        (F::Corrupt, "corrupt", ""),
        (F::Truncate, "truncate", ""),
        (F::Mark, "mark", ""),
    ] {
        let mut rng = Rng::new(recipe.seed).fork(100 + feature as u64);
        // Mostly some, at times a great many.
        let chance = if rng.percent(80) { rng.between(1, 500) } else { rng.between(500, 4000) };
        let by = rng.between(1, 20);
        if recipe.features.has(feature) {
            let rest = if rest == "by" { format!("by {by}") } else { rest.to_owned() };
            let line = format!("{action} {}.{:02}% {rest}", chance / 100, chance % 100);
            all.extend(parse_rules(&line).unwrap_or_default());
        }
    }
    for rule in &mut all {
        if let Action::Delay(least, most) = &mut rule.action {
            (*least, *most) = (*least * stretch, *most * stretch);
        }
    }
    all
}
