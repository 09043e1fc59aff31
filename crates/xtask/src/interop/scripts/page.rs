//! The page's part about scripts.

use std::collections::BTreeMap;

use super::list::{Difference, Differences};
use super::said::{Run, Verdict};
use super::{FOLDER, Recorded, SERIES};
use crate::trace::{LEDGER, Rule};

/// What the part has besides verdicts and the list.
#[derive(Default)]
pub(super) struct Sources {
    pub(super) recorded: Recorded,
    pub(super) rules: BTreeMap<String, Rule>,
    /// Debian's version of each kernel that ran, and of the guests' rdma-core, where it is known.
    pub(super) versions: Vec<Option<String>>,
    pub(super) rdma_core: Option<String>,
}

/// The page's part about scripts.
pub(super) fn render(kernels: &[Run], list: &Differences, sources: &Sources) -> String {
    let mut page = format!("{TITLE}{INTRODUCTION}");
    page += "| Linux | Debian's version | passed | differ | skipped |\n|---|---|--:|--:|--:|\n";
    for (at, run) in kernels.iter().enumerate() {
        let [passed, failed, skipped] = ["ok", "failed", "skipped"].map(|it| run.count(it));
        let version = sources.versions.get(at).and_then(Option::as_deref).unwrap_or_default();
        page += &format!("| {} | {version} | {passed} | {failed} | {skipped} |\n", run.kernel);
    }
    if let Some(version) = &sources.rdma_core {
        page += &format!("\nThe verbs that scripts call are those of rdma-core {version}.\n");
    }
    for (right, title) in RIGHT {
        let reasons = by_reason(list, right);
        if reasons.is_empty() {
            continue;
        }
        page += &format!("\n### {title}\n\n");
        if right == RIGHT[0].0 && !list.untold.is_empty() {
            let Differences { untold, untold_reason, untold_rule, .. } = list;
            let rule = broken(untold_rule, "", sources);
            let all = SERIES.join(" and ");
            page += &format!(
                "- {untold_reason} {all}, in `rxe`.{rule} Scripts with the events {untold} do not \
                 wait for them; any of those below with `event … {}` shows it.\n",
                untold.split(',').next().unwrap_or_default()
            );
        }
        for (difference, all) in reasons {
            let Difference { reason, kernels: only, rule, ibta, place, .. } = difference;
            let only = if only.is_empty() { String::new() } else { format!(" Linux {only}.") };
            let place = match place.is_empty() {
                true => String::new(),
                false => format!(" In `{}`.", place.replace(", ", "` or `")),
            };
            page += &format!("- {reason}{only}{place}{}\n", broken(rule, ibta, sources));
            all.iter().for_each(|it| page += &shown(it, kernels, &sources.recorded));
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

/// The entries of one kind by what they say, each with its scripts.
fn by_reason<'l>(list: &'l Differences, right: &str) -> Vec<(&'l Difference, Vec<&'l Difference>)> {
    let mut by_reason: Vec<(&Difference, Vec<&Difference>)> = Vec::new();
    for it in list.list.iter().filter(|it| it.right == right) {
        let same =
            |known: &Difference| (&known.reason, &known.kernels) == (&it.reason, &it.kernels);
        match by_reason.iter_mut().find(|(known, _)| same(known)) {
            Some((_, all)) => all.push(it),
            None => by_reason.push((it, vec![it])),
        }
    }
    by_reason
}

/// Rules that are broken, in a sentence each: how much each binds, and what it says.
fn broken(rules: &str, ibta: &str, sources: &Sources) -> String {
    let mut text = String::new();
    for id in rules.split_whitespace() {
        let (level, says) = sources.rules.get(id).map_or(("", ""), |it| (&*it.level, &*it.says));
        text += &format!(" [{id}](../{LEDGER}), {level}: “{}”.", says.trim_end_matches('.'));
    }
    if !ibta.is_empty() {
        text += &format!(" IBTA {ibta}.");
    }
    text
}

/// The page's section on where rxe differs: in how many scripts, by a part about scripts, and the
/// worst of the list.
pub(super) fn differs(part: &str, list: &Differences) -> String {
    let rows = part.lines().filter_map(|line| line.strip_prefix("| ")).filter_map(|line| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [kernel, .., passed, differ, skipped, ""] = cells[..] else { return None };
        let [passed, differ, skipped]: [u64; 3] =
            [passed.parse().ok()?, differ.parse().ok()?, skipped.parse().ok()?];
        Some(format!("{differ} of {} on Linux {kernel}", passed + differ + skipped))
    });
    let rows: Vec<String> = rows.collect();
    let reasons = by_reason(list, RIGHT[0].0);
    let mut text = format!(
        "Of the conformance scripts {} do not come true. {} ways in which rxe breaks a rule, each \
         with rule, scripts and recordings, are in [{}](#where-rxe-breaks-a-rule). The worst:\n\n",
        rows.join(", and "),
        reasons.len() + usize::from(!list.untold.is_empty()),
        RIGHT[0].1
    );
    for (difference, _) in reasons.iter().take(WORST) {
        let Difference { reason, kernels, .. } = difference;
        let kernels = match kernels.as_str() {
            "" => SERIES.join(" and "),
            kernels => kernels.to_owned(),
        };
        text += &format!("- {reason} {kernels}.\n");
    }
    text
}

/// So many are told above all tables.
const WORST: usize = 5;

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
difference stand the code that has it, as far as that is known, and the rule that is broken: how
much it binds, what it says (rules are rows of `tests/conformance/requirements.toml`; `cargo xtask
trace RULE` says more of one), and the section of the IBTA specification, volume 1, as public
sources number it: the rules were written by those, the specification's own text was not at hand.
Below are the scripts that show it, each with what it said on which kernel: the line that did not
come true, and what came instead.

To see one:

    cargo xtask interop scripts --kernel 6.12 window-ends     # as root; a guest boots by itself

plays the scripts with these words in their paths, and passes where the difference shows as listed.
`roxe script tests/conformance/memory/window-ends-where-it-was-bound.roce` plays one with roxe as
the device. A kernel of one's own does as well: `tests/interop/README.md` says how.

Where rxe breaks a rule there is a recording, if anything was on the wire, of the newest kernel that
shows it. `roxe explain` tells it, with the script's lines as comments, and at which frame what else
was expected; `roxe explain -v` has every comment whole. `roxe check` finds nothing in most of them:
it judges frames alone, and does not know regions, windows, or what completed. ACK timeouts, and the
times of scripts that have some, are doubled until the shortest is 134 ms: what a comment expects
after 8192 ns comes that much later.

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
        let mut rule = Rule::default();
        (rule.level, rule.says) = ("should".into(), "In time.".into());
        let sources = Sources {
            recorded,
            rules: BTreeMap::from([("R9".to_owned(), rule)]),
            versions: vec![Some("6.1.42-1".into()), None],
            rdma_core: Some("44.0-2".into()),
        };
        let page = render(&[sample(), other], &list, &sources);
        assert!(page.contains("| 6.1.0 | 6.1.42-1 | 1 | 3 | 1 |\n| 6.1.0 |  | 1 |"), "{page}");
        assert!(page.contains("are those of rdma-core 44.0-2.\n"), "{page}");
        let came = "line 3: expected > q1 NAK psn 1; instead > q1 ACK psn 1 (msn is 1)";
        let of_ours = format!(
            "- Late. In `rxe` or `rdma-core`. \
             [R9](../tests/conformance/requirements.toml), should: “In time”. IBTA 9.9.2.\n\
             \x20 - `rc/a.roce`: 6.1 ([recorded](rxe/rc-a.pcapng)) and 6.12: `{came}`.\n\
             \x20 - `rc/b.roce`, nothing on the wire: 6.1: `{came}`. 6.12: `line 3: expected > q1 \
             NAK psn 1; the device did 'nothing'`.\n"
        );
        assert!(page.contains(&of_ours), "{page}");
        let of_both = format!("- Early. Linux 6.1.\n  - `uc/c.roce`: 6.1: `{came}`.\n");
        assert!(page.contains(&of_both), "{page}");
        assert!(page.ends_with("| a kernel's port cannot be held | 2 |\n"), "{page}");
        let top = differs(&page, &list);
        let head = "Of the conformance scripts 3 of 5 on Linux 6.1.0, and 3 of 5 on Linux 6.1.0 do \
                    not come true. 1 ways";
        assert!(top.starts_with(head), "{top}");
        assert!(top.ends_with(" The worst:\n\n- Late. 6.1 and 6.12.\n"), "{top}");
    }

    #[test]
    fn what_breaks_a_rule_names_one_that_there_is() {
        let list = Differences::read().unwrap();
        let rules = crate::trace::ledger().unwrap();
        let mut count = 0;
        for it in list.list.iter().filter(|it| it.right == RIGHT[0].0) {
            assert!(!it.rule.is_empty(), "{}", it.script);
            for rule in it.rule.split_whitespace() {
                assert!(rules.contains_key(rule), "{}: {rule}", it.script);
                count += 1;
            }
        }
        assert!(count > 0 && rules.contains_key(&list.untold_rule), "{}", list.untold_rule);
        assert!(list.list.iter().all(|it| RIGHT.iter().any(|(right, _)| *right == it.right)));
    }
}
