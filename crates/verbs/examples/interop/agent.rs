//! A conversation with the agent of a host; `tests/interop/README.md` is its language.

use std::collections::BTreeMap;
use std::io::{self, BufRead as _, BufReader, ErrorKind, Read, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::Outcome;

/// Where agents listen.
pub(crate) const PORT: u16 = 7471;

/// Longer than anything that an agent is asked for.
const PATIENCE: Duration = Duration::from_secs(60);

/// Bytes of an answer, at most: those of memory that is looked at are twice as many digits.
const MOST_ANSWER: u64 = 64 << 10;

/// A process of the agent's, with which all goes that was made here.
pub(crate) struct Agent {
    stream: BufReader<InTime>,
}

/// What comes over a connection until some time: whoever speaks there may be anybody, and need not
/// end.
pub(crate) struct InTime {
    stream: TcpStream,
    end: Instant,
}

impl InTime {
    pub(crate) fn new(stream: TcpStream, patience: Duration) -> Self {
        Self { stream, end: Instant::now() + patience }
    }
}

impl Read for InTime {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(left))?;
        self.stream.read(into)
    }
}

/// What somebody said, as text that commands no terminal.
pub(crate) fn plain(said: &[u8]) -> String {
    let is_harmless = |c: char| !c.is_control() || c == '\n';
    let plain = |c: char| if is_harmless(c) { c } else { char::REPLACEMENT_CHARACTER };
    String::from_utf8_lossy(said).chars().map(plain).collect()
}

/// What an agent answered.
#[derive(Debug)]
pub(crate) struct Answer(Vec<(String, String)>);

impl Agent {
    pub(crate) fn connect(at: SocketAddr) -> Outcome<Self> {
        let stream = TcpStream::connect_timeout(&at, Duration::from_secs(3))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream: BufReader::new(InTime::new(stream, PATIENCE)) })
    }

    /// Says a line and hears the answer to it.
    pub(crate) fn ask(&mut self, line: &str) -> Outcome<Answer> {
        let mut answers = self.ask_all(&[line.to_owned()])?;
        answers.pop().ok_or_else(|| "an answer is missing".into())
    }

    /// Says lines at once, and hears the answers.
    pub(crate) fn ask_all(&mut self, lines: &[String]) -> Outcome<Vec<Answer>> {
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        self.stream.get_mut().stream.write_all(text.as_bytes())?;
        let hear = |line: &String| -> Outcome<Answer> {
            let answer = self.hear().map_err(|why| format!("{line}: {why}"))?;
            answer.map_err(|refusal| format!("{line}: {refusal}").into())
        };
        lines.iter().map(hear).collect()
    }

    /// Says a line that the host may refuse; says how it did, if it did.
    pub(crate) fn try_to(&mut self, line: &str) -> Outcome<Option<String>> {
        self.stream.get_mut().stream.write_all(format!("{line}\n").as_bytes())?;
        let answer = self.hear().map_err(|why| format!("{line}: {why}"))?;
        Ok(answer.err().map(|refusal| format!("{line}: {refusal}")))
    }

    /// An answer, or a refusal.
    fn hear(&mut self) -> Outcome<Result<Answer, String>> {
        self.stream.get_mut().end = Instant::now() + PATIENCE;
        let mut line = Vec::new();
        let heard = self.stream.by_ref().take(MOST_ANSWER).read_until(b'\n', &mut line);
        heard.map_err(|why| format!("the agent is silent: {why}"))?;
        if line.len() as u64 == MOST_ANSWER {
            return Err("the agent's answer has no end".into());
        }
        if line.pop() != Some(b'\n') {
            return Err("the agent is gone".into());
        }
        let line = plain(&line);
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

    /// Where a region of so many bytes begins, all of which have an address, and its key.
    pub(crate) fn region(&self, len: u64) -> Outcome<(u64, u32)> {
        let va = self.number("va")?;
        va.checked_add(len).ok_or_else(|| format!("the agent says va={va:#x}"))?;
        Ok((va, self.number("rkey")? as u32))
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::thread;

    /// What comes of a line to an agent that says this again and again until nobody listens.
    fn told(answer: &'static [u8], times: usize) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let at = listener.local_addr().expect("an address");
        let other = thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a connection");
            let mut heard = [0; 3];
            stream.read_exact(&mut heard).expect("a line");
            let _ = (0..times).try_for_each(|_| stream.write_all(answer));
        });
        let answer = Agent::connect(at).expect("an agent").ask("pd");
        other.join().expect("it ends");
        answer.map_or_else(|why| why.to_string(), |answer| format!("{:?}", answer.numbers()))
    }

    #[test]
    fn an_answer_has_an_end() {
        assert_eq!(told(b"ok pd=0x3\nmore", 1), r#"{"pd": 3}"#);
        assert_eq!(told(b"ok pd=3", 1), "pd: the agent is gone");
        assert_eq!(told(b"", 1), "pd: the agent is gone");
        assert_eq!(told(&[b'A'; 1 << 12], 1 << 20), "pd: the agent's answer has no end");
        assert_eq!(told(b"error 22 \x1b[2J\n", 1), "pd: error 22 \u{fffd}[2J");
    }

    #[test]
    fn all_of_a_region_has_an_address() {
        let region = |va: u64| {
            let pair = |(key, value): (&str, u64)| (key.to_owned(), value.to_string());
            let answer = Answer([("va", va), ("rkey", 7)].map(pair).to_vec());
            answer.region(4096).map_err(|why| why.to_string())
        };
        assert_eq!(region(0x1000), Ok((0x1000, 7)));
        assert_eq!(region(u64::MAX), Err("the agent says va=0xffffffffffffffff".to_owned()));
    }

    #[test]
    fn who_speaks_slowly_is_not_heard_for_ever() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut slow = TcpStream::connect(listener.local_addr().expect("an address")).expect("it");
        let (stream, _) = listener.accept().expect("a connection");
        let other = thread::spawn(move || while slow.write_all(b"o").is_ok() {});
        let mut heard = InTime::new(stream, Duration::from_millis(100));
        let why = io::copy(&mut heard, &mut io::sink()).expect_err("it has no end");
        let is_late = matches!(why.kind(), ErrorKind::TimedOut | ErrorKind::WouldBlock);
        assert!(is_late, "{why}");
        drop(heard);
        other.join().expect("it ends");
    }
}
