//! A conversation with the agent of a host; `tests/interop/README.md` is its language.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::Outcome;

/// Where agents listen.
pub(crate) const PORT: u16 = 7471;

/// Longer than anything that an agent is asked for.
const PATIENCE: Duration = Duration::from_secs(60);

/// A process of the agent's, with which all goes that was made here.
pub(crate) struct Agent {
    stream: BufReader<TcpStream>,
}

/// What an agent answered.
#[derive(Debug)]
pub(crate) struct Answer(Vec<(String, String)>);

impl Agent {
    pub(crate) fn connect(at: SocketAddr) -> Outcome<Self> {
        let stream = TcpStream::connect_timeout(&at, Duration::from_secs(3))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    /// Says a line and hears the answer to it.
    pub(crate) fn ask(&mut self, line: &str) -> Outcome<Answer> {
        let mut answers = self.ask_all(&[line.to_owned()])?;
        answers.pop().ok_or_else(|| "an answer is missing".into())
    }

    /// Says lines at once, and hears the answers.
    pub(crate) fn ask_all(&mut self, lines: &[String]) -> Outcome<Vec<Answer>> {
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        self.stream.get_mut().write_all(text.as_bytes())?;
        let hear = |line: &String| -> Outcome<Answer> {
            let answer = self.hear().map_err(|why| format!("{line}: {why}"))?;
            answer.map_err(|refusal| format!("{line}: {refusal}").into())
        };
        lines.iter().map(hear).collect()
    }

    /// Says a line that the host may refuse; says how it did, if it did.
    pub(crate) fn try_to(&mut self, line: &str) -> Outcome<Option<String>> {
        self.stream.get_mut().write_all(format!("{line}\n").as_bytes())?;
        let answer = self.hear().map_err(|why| format!("{line}: {why}"))?;
        Ok(answer.err().map(|refusal| format!("{line}: {refusal}")))
    }

    /// An answer, or a refusal.
    fn hear(&mut self) -> Outcome<Result<Answer, String>> {
        let mut line = String::new();
        if self.stream.read_line(&mut line).map_err(|why| format!("the agent is silent: {why}"))?
            == 0
        {
            return Err("the agent is gone".into());
        }
        let line = line.trim_end();
        if line.starts_with("error ") {
            return Ok(Err(line.to_owned()));
        }
        let words = line.strip_prefix("ok").ok_or_else(|| format!("the agent says {line}"))?;
        let pair = |word: &str| {
            let (key, value) = word.split_once('=').unwrap_or((word, ""));
            (key.to_owned(), value.to_owned())
        };
        Ok(Ok(Answer(words.split_whitespace().map(pair).collect())))
    }
}

impl Answer {
    /// The value of the first word with this key.
    pub(crate) fn text(&self, key: &str) -> Outcome<&str> {
        self.all(key).next().ok_or_else(|| format!("the agent says no {key}").into())
    }

    pub(crate) fn number(&self, key: &str) -> Outcome<u64> {
        number(self.text(key)?)
    }

    /// The values of all words with this key.
    pub(crate) fn all<'s>(&'s self, key: &str) -> impl Iterator<Item = &'s str> {
        self.0.iter().filter(move |(known, _)| known == key).map(|(_, value)| value.as_str())
    }

    /// All words that are numbers.
    pub(crate) fn numbers(&self) -> BTreeMap<String, u64> {
        let number = |(key, value): &(String, String)| Some((key.clone(), number(value).ok()?));
        self.0.iter().filter_map(number).collect()
    }
}

/// A number as the agent writes it.
pub(crate) fn number(text: &str) -> Outcome<u64> {
    let number = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    number.map_err(|_| format!("{text} is no number").into())
}
