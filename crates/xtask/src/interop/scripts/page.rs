//! The page's part about scripts.

use std::collections::{BTreeMap, BTreeSet};

use super::list::{Difference, Differences};
use super::said::{Run, Verdict};
use super::{FOLDER, Recorded, SERIES};

/// The page's part about scripts. `recorded` are the recordings; `rules` says what a script is
/// about.
pub(super) fn render(
    kernels: &[Run],
    list: &Differences,
    recorded: &Recorded,
    rules: &dyn Fn(&str) -> Vec<String>,
) -> String {
    let mut page = format!("{TITLE}{INTRODUCTION}");
    page += "| Linux | passed | differ | skipped |\n|---|---|---|---|\n";
    for run in kernels {
        let [passed, failed, skipped] = ["ok", "failed", "skipped"].map(|it| run.count(it));
        page += &format!("| {} | {passed} | {failed} | {skipped} |\n", run.kernel);
    }
    for (right, title) in RIGHT {
        let of_them: Vec<_> = list.list.iter().filter(|it| it.right == right).collect();
        if of_them.is_empty() {
            continue;
        }
        page += &format!("\n### {title}\n\n");
        if right == RIGHT[0].0 && !list.untold.is_empty() {
            let Differences { untold, untold_reason, .. } = list;
            page += &format!("- {untold_reason}: scripts with the events {untold}\n");
        }
        let mut by_reason: Vec<(&Difference, Vec<&Difference>)> = Vec::new();
        for it in of_them {
            let same =
                |known: &Difference| (&known.reason, &known.kernels) == (&it.reason, &it.kernels);
            match by_reason.iter_mut().find(|(known, _)| same(known)) {
                Some((_, all)) => all.push(it),
                None => by_reason.push((it, vec![it])),
            }
        }
        for (difference, all) in by_reason {
            let only = match difference.kernels.as_str() {
                "" => String::new(),
                kernels => format!(" Linux {kernels}."),
            };
            let rules: BTreeSet<String> = all.iter().flat_map(|it| rules(&it.script)).collect();
            let rules = rules.into_iter().collect::<Vec<_>>().join(", ");
            page += &format!("- {}{only} {rules}:\n", difference.reason);
            all.iter().for_each(|it| page += &shown(it, kernels, recorded));
        }
    }
    let mut skipped: BTreeMap<&str, usize> = BTreeMap::new();
    let verdicts = kernels.iter().flat_map(|run| run.by_script.values());
    for Verdict { message, .. } in verdicts.filter(|it| it.word == "skipped") {
        // The line is the script's own.
        let why = message.strip_prefix("line ").and_then(|it| it.split_once(": "));
        *skipped.entry(why.map_or(message.as_str(), |(_, why)| why)).or_default() += 1;
    }
    page += "\n### Skipped\n\n| why | scripts, of all kernels |\n|---|---|\n";
    for (why, count) in skipped {
        page += &format!("| {why} | {count} |\n");
    }
    page
}

/// A script that shows a difference, and what it said with each kernel that the entry is about:
/// once where they said the same.
fn shown(it: &Difference, kernels: &[Run], recorded: &Recorded) -> String {
    let script = &it.script;
    let is_shown = it.right == RIGHT[0].0;
    let mut silent = is_shown;
    let mut said: Vec<(String, Vec<String>)> = Vec::new();
    for (run, series) in kernels.iter().zip(SERIES).filter(|(_, series)| it.is_on(series)) {
        let Some(verdict) = run.by_script.get(&format!("{FOLDER}{script}")) else { continue };
        let recording = recorded.get(&(script.clone(), series)).filter(|_| is_shown);
        silent &= recording.is_none();
        let by = match recording {
            Some(name) => format!("{series} ([recorded](rxe/{name}))"),
            None => series.to_owned(),
        };
        let sentence = verdict.sentence().replace('`', "'");
        match said.iter_mut().find(|(known, _)| *known == sentence) {
            Some((_, all)) => all.push(by),
            None => said.push((sentence, vec![by])),
        }
    }
    let silent = if silent { ", nothing on the wire" } else { "" };
    let mut text = format!("  - `{script}`{silent}:");
    for (sentence, by) in said {
        text += &format!(" {}: `{sentence}`.", by.join(" and "));
    }
    text + "\n"
}

/// Who is right, and the title of what is said then.
pub(super) const RIGHT: [(&str, &str); 3] = [
    ("roxe", "Where rxe breaks a rule"),
    ("both", "Where the specification leaves it open"),
    ("rxe", "Where rxe is right"),
];

pub(super) const TITLE: &str = "## Conformance scripts against rxe\n";

const INTRODUCTION: &str = "
`cargo xtask interop scripts` runs the scripts of `tests/conformance` against `rdma_rxe`: `roxe
script --peer rxe` calls its verbs by the agent, puts the frames on the wire and judges what comes
back. `tests/conformance/differences-rxe.toml` lists what differs; a listed script must fail, any
other must come true, or be skipped because a kernel's device cannot be asked it. Behind each
difference stand the rules that it is about (`cargo xtask trace RULE` says more of one), and the
scripts that show it, each with what it said on which kernel: the line that did not come true, and
what came instead. Where rxe breaks a rule there is a recording, if anything was on the wire: `roxe
explain` tells it, with the script's lines as comments, and at which frame what else was expected.
Scripts run by hand, too, against a guest that stays (`cargo xtask interop guest`) or a kernel of
one's own: `tests/interop/README.md` says how.

";

#[cfg(test)]
mod tests {
    use super::super::tests::{LISTED, sample};
    use super::*;

    #[test]
    fn the_page_has_what_each_script_said_on_each_kernel_and_its_recording() {
        let list = Differences::parse(LISTED);
        let mut other = sample();
        other.by_script.get_mut(&format!("{FOLDER}rc/b.roce")).unwrap().message =
            "the device did `nothing`".to_owned();
        let recorded =
            Recorded::from([(("rc/a.roce".to_owned(), "6.1"), "rc-a.pcapng".to_owned())]);
        let rules = |script: &str| vec![format!("R{}", script.len())];
        let page = render(&[sample(), other], &list, &recorded, &rules);
        assert!(page.contains("| 6.1.0 | 1 | 3 | 1 |"), "{page}");
        let came = "line 3: expected > q1 NAK psn 1; instead > q1 ACK psn 1 (msn is 1)";
        let of_ours = format!(
            "- Late. R9:\n\
             \x20 - `rc/a.roce`: 6.1 ([recorded](rxe/rc-a.pcapng)) and 6.12: `{came}`.\n\
             \x20 - `rc/b.roce`, nothing on the wire: 6.1: `{came}`. 6.12: `line 3: expected > q1 \
             NAK psn 1; the device did 'nothing'`.\n"
        );
        assert!(page.contains(&of_ours), "{page}");
        let of_both = format!("- Early. Linux 6.1. R9:\n  - `uc/c.roce`: 6.1: `{came}`.\n");
        assert!(page.contains(&of_both), "{page}");
        assert!(page.ends_with("| a kernel's port cannot be held | 2 |\n"), "{page}");
    }
}
