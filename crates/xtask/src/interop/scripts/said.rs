//! What scripts said, and whether it is as the list has it.

use std::collections::BTreeMap;

use serde_json::Value;

use super::LIST;
use super::list::Differences;

/// How a script ended.
#[derive(Default)]
pub(super) struct Verdict {
    /// `ok`, `failed`, `skipped`, or what kept it from running.
    pub(super) word: String,
    /// The line that did not come true, from 1 on, and its text.
    pub(super) line: u64,
    pub(super) text: String,
    /// What is said of it.
    pub(super) message: String,
}

impl Verdict {
    /// Of a line of `roxe script --json`: the script, and how it ended.
    pub(super) fn read(line: &str) -> Option<(String, Self)> {
        let value: Value = serde_json::from_str(line).ok()?;
        let text = |key: &str| value[key].as_str().unwrap_or_default().to_owned();
        let file = value["file"].as_str()?.to_owned();
        let line = value["line"].as_u64().unwrap_or_default();
        let verdict =
            Self { word: text("verdict"), line, text: text("text"), message: text("message") };
        Some((file, verdict))
    }

    /// What was expected at which line, and what came instead. Without the time at which it did,
    /// which is another in each run.
    pub(super) fn sentence(&self) -> String {
        let Self { line, text, message, .. } = self;
        let text = words_of(text);
        let text = text.strip_prefix("+0 ").unwrap_or(&text);
        let mut parts = message.lines().map(words_of);
        let what = parts.next().unwrap_or_default();
        let what = match what.rsplit_once(" (at ") {
            Some((what, time)) if time.ends_with(')') => what.to_owned(),
            _ => what,
        };
        let how: Vec<String> = parts.collect();
        let how = if how.is_empty() { String::new() } else { format!(" ({})", how.join(", ")) };
        let came = match what.strip_prefix("instead: ") {
            Some(came) => format!("instead {came}{how}"),
            None => format!("{what}{how}"),
        };
        let sentence = match came.starts_with("the script ends here") {
            true => format!("line {line}: {came}"),
            false => format!("line {line}: expected {text}; {came}"),
        };
        match sentence.char_indices().nth(LONGEST) {
            Some((at, _)) => format!("{}…", &sentence[..at]),
            None => sentence,
        }
    }

    /// What a script said before, if that is another difference than it has now.
    pub(super) fn otherwise(&self, before: &Self) -> Option<String> {
        let both_differ = self.word == "failed" && before.word == "failed";
        (both_differ && self.text != before.text).then(|| before.sentence())
    }

    /// What is told of a script while they run.
    pub(super) fn told(&self, script: &str, listed: bool) -> String {
        match (self.word.as_str(), listed) {
            ("failed", true) => format!("{script}: differs, as listed: {}", self.sentence()),
            ("failed", false) => format!("{script}: DIFFERS: {}", self.sentence()),
            ("ok" | "skipped", true) => format!("{script}: {}, BUT LISTED", self.word),
            ("ok", false) => format!("{script}: ok"),
            (word, _) => format!("{script}: {word}: {}", self.message),
        }
    }
}

/// Characters of a sentence, at most: some have bytes in them.
const LONGEST: usize = 300;

/// A text with one blank between two words.
fn words_of(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// What one kernel did.
#[derive(Default)]
pub(super) struct Run {
    pub(super) kernel: String,
    pub(super) by_script: BTreeMap<String, Verdict>,
}

impl Run {
    pub(super) fn of(lines: impl Iterator<Item = impl AsRef<str>>) -> Self {
        let mut run = Self::default();
        for line in lines {
            let line = line.as_ref();
            if let Some((script, verdict)) = Verdict::read(line) {
                run.by_script.insert(script, verdict);
            } else if let Ok(value) = serde_json::from_str::<Value>(line)
                && let Some(kernel) = value["kernel"].as_str()
            {
                kernel.clone_into(&mut run.kernel);
            }
        }
        run
    }

    pub(super) fn count(&self, word: &str) -> usize {
        self.by_script.values().filter(|it| it.word == word).count()
    }

    /// What it did, in numbers, and where one may look.
    pub(super) fn sentence(&self, series: &str, list: &Differences) -> String {
        let Self { kernel, by_script } = self;
        let is_listed = |script: &String| list.of(script, series).is_some();
        let [passed, failed, skipped] = ["ok", "failed", "skipped"].map(|it| self.count(it));
        let differ =
            by_script.iter().filter(|(script, it)| it.word == "failed" && is_listed(script));
        let differ = differ.count();
        let mut text = format!(
            "Linux {kernel}: {passed} passed, {differ} differ, as listed, {skipped} skipped"
        );
        if failed > differ {
            text += &format!(", {} FAILED", failed - differ);
        }
        if by_script.keys().any(is_listed) {
            text += &format!("; recordings of listed ones: target/interop/runs/{series}/captures");
        }
        text
    }

    /// What is not as the list says; `due` are those that may not be skipped.
    pub(super) fn judge(
        &self,
        series: &str,
        list: &Differences,
        scripts: &[String],
        due: &[String],
    ) -> Vec<String> {
        let mut findings = Vec::new();
        for script in scripts {
            let Some(verdict) = self.by_script.get(script) else {
                findings.push(format!("{script}: Linux {series}: it did not run"));
                continue;
            };
            let listed = list.of(script, series).is_some();
            match (verdict.word.as_str(), listed) {
                ("skipped", false) if due.contains(script) => findings.push(format!(
                    "{script}: Linux {series}: it must run, but was skipped: {}",
                    verdict.message
                )),
                ("ok" | "skipped", false) | ("failed", true) => {}
                ("ok" | "skipped", true) => findings.push(format!(
                    "{script}: Linux {series}: it is {} now; take it off {LIST}",
                    verdict.word
                )),
                ("failed", false) => {
                    findings.push(format!("{script}: Linux {series}: {}", verdict.sentence()));
                }
                (word, _) => {
                    findings.push(format!("{script}: Linux {series}: {word}: {}", verdict.message))
                }
            }
        }
        findings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_is_one_line_with_an_end() {
        let verdict = |message: &str| Verdict {
            line: 7,
            text: "+5ms   quiet".to_owned(),
            message: message.to_owned(),
            ..Verdict::default()
        };
        let more = "the script ends here, but the device did more: event q1 fatal";
        let sentence = verdict(&format!("{more} (at 2s)")).sentence();
        assert_eq!(sentence, format!("line 7: {more}"));
        let refused = verdict("it failed: EINVAL, mr: Invalid argument").sentence();
        let expected = "line 7: expected +5ms quiet; it failed: EINVAL, mr: Invalid argument";
        assert_eq!(refused, expected);
        let other = Verdict { text: "+0 > q1 ACK".to_owned(), ..verdict("") };
        let failed = |it: Verdict| Verdict { word: "failed".to_owned(), ..it };
        let before = failed(verdict("it failed: EINVAL, mr"));
        assert_eq!(failed(verdict("")).otherwise(&before), None);
        assert!(failed(other).otherwise(&before).is_some_and(|it| it.contains("EINVAL")));
        let long = verdict(&"é".repeat(LONGEST)).sentence();
        assert_eq!((long.chars().count(), long.ends_with("é…")), (LONGEST + 1, true));
    }
}
