//! `cargo xtask programs`: programs of the distribution on our libibverbs.so.1, in every way. With
//! `--page` it writes `docs/programs.md`.

use anyhow::Result;

use crate::stop::Stop;
use crate::{child, tools, workspace};

/// The command.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let page = match arguments {
        [] => false,
        [word] if word == "--page" => true,
        _ => return Err(Stop::Usage("usage: cargo xtask programs [--page]".into()).into()),
    };
    tools::ensure_present(&[tools::BUILD, tools::PROGRAMS].concat())?;
    let mut test = child::cargo(
        "test --package roxe-ibverbs --test programs -- --ignored --nocapture all_programs",
    );
    if let Some(suite) = tools::suite() {
        test.env("ROXE_PYVERBS", suite);
    }
    if page {
        test.env("ROXE_PAGE", workspace::root().join("docs/programs.md"));
    }
    if child::show(test)? { Ok(()) } else { Err(Stop::Findings.into()) }
}
