//! The list of where `rdma_rxe` is known to differ.

use std::fs;

use anyhow::{Context as _, Result};

use super::{FOLDER, LIST};
use crate::trace::value;
use crate::workspace;

/// Where Linux differs.
pub(super) struct Differences {
    /// Events that it does not tell, with commas between, and what is said of it.
    pub(super) untold: String,
    pub(super) untold_reason: String,
    pub(super) untold_rule: String,
    pub(super) list: Vec<Difference>,
}

pub(super) struct Difference {
    /// Its path below `tests/conformance`.
    pub(super) script: String,
    /// The kernels; empty for all.
    pub(super) kernels: String,
    pub(super) right: String,
    /// The rules that are broken, with blanks between; sections of the specification about it.
    pub(super) rule: String,
    pub(super) ibta: String,
    /// The code that has it, as far as that is known.
    pub(super) place: String,
    pub(super) reason: String,
}

impl Difference {
    /// Whether it is about a kernel.
    pub(super) fn is_on(&self, series: &str) -> bool {
        self.kernels.is_empty() || self.kernels.split(' ').any(|kernel| kernel == series)
    }
}

impl Differences {
    pub(super) fn read() -> Result<Self> {
        let text = fs::read_to_string(workspace::root().join(LIST));
        Ok(Self::parse(&text.with_context(|| format!("cannot read {LIST}"))?))
    }

    /// Tables `[[difference]]`, some for several scripts.
    pub(super) fn parse(text: &str) -> Self {
        let tables = text.split("\n[[difference]]\n").skip(1);
        let differences = tables.flat_map(|body| {
            let text = |key| value(body, key).unwrap_or_default();
            let scripts = text("scripts");
            let each = scripts.split_whitespace().map(|script| Difference {
                script: script.to_owned(),
                kernels: text("kernels"),
                right: text("right"),
                rule: text("rule"),
                ibta: text("ibta"),
                place: text("where"),
                reason: text("reason"),
            });
            each.collect::<Vec<_>>()
        });
        let head = text.split("\n[[difference]]\n").next().unwrap_or_default();
        let value = |key| value(head, key).unwrap_or_default();
        Self {
            untold: value("untold"),
            untold_reason: value("untold_reason"),
            untold_rule: value("untold_rule"),
            list: differences.collect(),
        }
    }

    pub(super) fn of(&self, script: &str, series: &str) -> Option<&Difference> {
        let name = script.strip_prefix(FOLDER);
        self.list.iter().find(|it| it.is_on(series) && name == Some(it.script.as_str()))
    }
}
