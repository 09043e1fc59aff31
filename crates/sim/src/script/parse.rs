//! Text → script. Every error says where, what was expected and what stands there instead.

use std::cell::Cell;
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use roxe_wire::opcode::{OPCODES, Operation};
use roxe_wire::{Instant, Opcode};

use super::mad::MESSAGES;
use super::mistake::{ParseError, suggest};
use super::parameters::{self, ATOMIC_ACK, Kind, Parameter};
use super::syntax::{
    Arguments, Bytes, CallVerb, Expression, Line, ObjectKind, PacketForm, PacketName, Place,
    Script, SendVerb, Service, Statement, Value, When,
};
use super::words::{self, Token, Word};

/// Reads a script, or says what is wrong with each of its lines.
pub(super) fn parse(file: &str, text: &str) -> Result<Script, Vec<ParseError>> {
    let mut lines = Vec::new();
    let mut errors = Vec::new();
    let room = Cell::new(MOST_BYTES_IN_ALL);
    for (number, line) in (1..).zip(text.lines()) {
        if let Err((column, what)) = parse_line(number, line, &room, &mut lines) {
            errors.push(ParseError { file: file.to_owned(), line: number, column, what });
        }
    }
    if errors.is_empty() { Ok(Script { lines }) } else { Err(errors) }
}

/// Adds the statements of a line.
fn parse_line(
    number: usize,
    line: &str,
    room: &Cell<usize>,
    lines: &mut Vec<Line>,
) -> Result<(), Wrong> {
    let split = words::split(line);
    let (words, shown) =
        split.map_err(|column| (column, "a second quote is missing".to_owned()))?;
    let end = shown.chars().count() + 1;
    let text: Rc<str> = shorten(shown.trim(), 400).into();
    let mut cursor = Cursor { words: &words, at: 0, end, room };
    while !cursor.is_done() {
        let first = cursor.at;
        let (when, statement) =
            if first == 0 { cursor.line()? } else { (When::SAME, cursor.event()?) };
        // The time is none of the statement's own words.
        let timed =
            first == 0 && !matches!(statement, Statement::Device(_) | Statement::Make { .. });
        let words = words[first + usize::from(timed)..cursor.at].to_vec();
        lines.push(Line { number, text: Rc::clone(&text), words, when, statement });
        if !cursor.is_done() {
            cursor.separator()?;
        }
    }
    Ok(())
}

/// Column, and what is wrong there.
type Wrong = (usize, String);

/// The words of a line and how far they are read.
struct Cursor<'a> {
    words: &'a [Word],
    at: usize,
    /// The column behind the last word.
    end: usize,
    /// How many bytes of payload the script may still write.
    room: &'a Cell<usize>,
}

impl<'a> Cursor<'a> {
    fn is_done(&self) -> bool {
        self.at == self.words.len()
    }

    fn peek(&self) -> Option<&'a Token> {
        self.words.get(self.at).map(|word| &word.token)
    }

    fn peek_bare(&self) -> Option<&'a str> {
        match self.peek()? {
            Token::Bare(word) => Some(word),
            Token::Quoted(_) => None,
        }
    }

    /// The error at the next word.
    fn wrong(&self, expected: impl fmt::Display) -> Wrong {
        match self.words.get(self.at) {
            None => (self.end, format!("expected {expected}, found the end of the line")),
            Some(Word { column, token: Token::Bare(word) }) => {
                (*column, format!("expected {expected}, found `{}`", shorten(word, 60)))
            }
            Some(Word { column, token: Token::Quoted(text) }) => {
                (*column, format!("expected {expected}, found \"{}\"", shorten(text, 60)))
            }
        }
    }

    /// The same where one of some words is expected: with that which may be meant.
    fn wrong_word<'b>(
        &self,
        expected: impl fmt::Display,
        known: impl IntoIterator<Item = &'b str>,
    ) -> Wrong {
        let (column, what) = self.wrong(expected);
        (column, what + &suggest(self.peek_bare().unwrap_or_default(), known))
    }

    /// The next bare word, if `read` makes something of it.
    fn take<T>(
        &mut self,
        expected: impl fmt::Display,
        read: impl Fn(&str) -> Option<T>,
    ) -> Result<T, Wrong> {
        let value = self.peek_bare().and_then(read).ok_or_else(|| self.wrong(expected))?;
        self.at += 1;
        Ok(value)
    }

    fn name(&mut self, what: &str) -> Result<String, Wrong> {
        self.take(what, |word| is_name(word).then(|| word.to_owned()))
    }

    /// One of the words of a table.
    fn one_of<T: Copy>(&mut self, what: &str, table: &[(&str, T)]) -> Result<T, Wrong> {
        let word = self.peek_bare().unwrap_or_default();
        let Some((_, value)) = table.iter().find(|(name, _)| *name == word) else {
            let names: Vec<&str> = table.iter().map(|(name, _)| *name).collect();
            return Err(self.wrong_word(format_args!("{what}: {}", names.join(", ")), names));
        };
        self.at += 1;
        Ok(*value)
    }

    fn separator(&mut self) -> Result<(), Wrong> {
        self.take("`;` or the end of the line", |word| is_separator(word).then_some(()))
    }

    /// A whole line's beginning: set-up, or a time and what happens then.
    fn line(&mut self) -> Result<(When, Statement), Wrong> {
        let word = self.peek_bare().unwrap_or_default();
        if word == "device" {
            self.at += 1;
            return Ok((When::SAME, Statement::Device(self.arguments(parameters::DEVICE)?)));
        }
        if OBJECTS.iter().any(|(name, _)| *name == word) {
            return Ok((When::SAME, self.make()?));
        }
        if parse_number(word.trim_start_matches('+')).is_some_and(|number| number != 0) {
            return Err(self.wrong("a time with its unit: ns, us, ms or s"));
        }
        let Some(when) = parse_when(word) else {
            if looks_like_time(word) {
                return Err(self.wrong(
                    "a time of whole nanoseconds, up to 18446744073s, A..B with B not before A",
                ));
            }
            let objects = OBJECTS.iter().map(|(name, _)| *name);
            let expected = "a time (+0, +1us, 1ms..2ms) or what to set up";
            return Err(self.wrong_word(expected, objects.chain(["device"])));
        };
        self.at += 1;
        let first = self.at;
        let statement = self.event()?;
        let device_does = matches!(
            statement,
            Statement::Out { .. } | Statement::Completion { .. } | Statement::Event { .. }
        );
        if matches!(when, When::Between(_, _)) && !device_does {
            self.at = first;
            return Err(self.wrong("`>`, completion or event behind a time range"));
        }
        Ok((when, statement))
    }

    fn make(&mut self) -> Result<Statement, Wrong> {
        let object = self.one_of("an object", OBJECTS)?;
        let name = self.name("a name")?;
        let object = match object {
            ObjectKind::Qp(_) => ObjectKind::Qp(self.one_of("a service", SERVICES)?),
            other => other,
        };
        let arguments = self.arguments(parameters::of_object(object))?;
        Ok(Statement::Make { object, name, arguments, fails: self.fails()? })
    }

    /// What happens or must happen.
    fn event(&mut self) -> Result<Statement, Wrong> {
        let what = self.one_of("what happens", EVENTS)?;
        match what {
            EventWord::Post => self.post(),
            EventWord::Call => {
                let verb = self.one_of("a verb", CALLS)?;
                let target = self.name("an object's name")?;
                let arguments = self.arguments(parameters::of_call(verb))?;
                Ok(Statement::Call { verb, target, arguments, fails: self.fails()? })
            }
            EventWord::Fill => {
                let place = self.place()?;
                Ok(Statement::Fill { place, bytes: self.bytes()? })
            }
            EventWord::Into => {
                let qp = self.name("a queue pair's name")?;
                Ok(Statement::Into { qp, packet: self.packet(true)? })
            }
            EventWord::Out => {
                let qp = self.name("a queue pair's name")?;
                let mut forms = vec![self.packet(false)?];
                while self.peek_bare() == Some("|") {
                    self.at += 1;
                    forms.push(self.packet(false)?);
                }
                Ok(Statement::Out { qp, forms })
            }
            EventWord::Completion => self.completion(),
            EventWord::Event => {
                let object = self.name("an object's name")?;
                let name = self.one_of("an event", &pairs(parameters::EVENT_NAMES))?.to_owned();
                let arguments = self.arguments(parameters::of_event(&name))?;
                Ok(Statement::Event { object, name, arguments })
            }
            EventWord::Counter => {
                let first = self.name("the name of a counter, or of a queue pair")?;
                let (qp, name) = match self.peek_bare() {
                    Some(word) if is_name(word) => (Some(first), self.name("a counter's name")?),
                    _ => (None, first),
                };
                let value = self.take("a number", parse_number)?;
                Ok(Statement::Counter { qp, name, value })
            }
            EventWord::Memory => {
                let place = self.place()?;
                Ok(Statement::Memory { place, bytes: self.bytes()? })
            }
            EventWord::State => {
                let qp = self.name("a queue pair's name")?;
                let name = self.one_of("a state", &pairs(parameters::STATES))?.to_owned();
                Ok(Statement::State { qp, name })
            }
            EventWord::Why => {
                let qp = self.name("a queue pair's name")?;
                let sentence = String::from_utf8_lossy(&self.bytes()?).into_owned();
                Ok(Statement::Why { qp, sentence })
            }
            EventWord::Turn => Ok(Statement::Turn),
            EventWord::Quiet => Ok(Statement::Quiet),
        }
    }

    fn post(&mut self) -> Result<Statement, Wrong> {
        if self.peek_bare() == Some("recv") {
            self.at += 1;
            let queue = self.name("a queue pair's or shared receive queue's name")?;
            let arguments = self.arguments(parameters::POST_RECEIVE)?;
            return Ok(Statement::PostReceive { queue, arguments, fails: self.fails()? });
        }
        let verb = self.one_of("a request (or recv)", SENDS)?;
        let qp = self.name("a queue pair's name")?;
        let arguments = self.arguments(parameters::of_send(verb))?;
        Ok(Statement::PostSend { verb, qp, arguments, fails: self.fails()? })
    }

    fn completion(&mut self) -> Result<Statement, Wrong> {
        let is_queue = |word: &str| word == "send" || word == "recv";
        let qp = match self.peek_bare() {
            Some(word) if !is_queue(word) => Some(self.name("send, recv or a queue pair's name")?),
            _ => None,
        };
        let receive = self.one_of("a queue", &[("send", false), ("recv", true)])?;
        let mut arguments = self.arguments_until(parameters::STATUSES, parameters::COMPLETION)?;
        // The status is a word by itself, anywhere among the others.
        let status = self.one_of("a status", &pairs(parameters::STATUSES))?;
        let more = self.arguments(parameters::COMPLETION)?;
        arguments.named.push(("status", Value::Word(status.to_owned())));
        arguments.named.extend(more.named);
        arguments.payload = arguments.payload.or(more.payload);
        Ok(Statement::Completion { qp, receive, arguments })
    }

    fn fails(&mut self) -> Result<Option<String>, Wrong> {
        if self.peek_bare() != Some("fails") {
            return Ok(None);
        }
        self.at += 1;
        let error = self.one_of("an error", &pairs(parameters::ERRORS))?;
        Ok(Some(error.to_owned()))
    }

    fn packet(&mut self, inbound: bool) -> Result<PacketForm, Wrong> {
        let raw = self.peek_bare() == Some("OPCODE");
        let name = if raw {
            self.at += 1;
            let code = self.take("an opcode, 0 to 255", |word| {
                parse_number(word).and_then(|code| u8::try_from(code).ok())
            })?;
            PacketName::Raw(code)
        } else {
            let Some(name) = self.peek_bare().and_then(packet_name) else {
                let expected = "a packet's name: SEND_ONLY, ACK, RNR_NAK, NAK, OPCODE n …";
                let messages = MESSAGES.iter().map(|message| message.name);
                return Err(self.wrong_word(expected, packet_names().into_iter().chain(messages)));
            };
            self.at += 1;
            name
        };
        let parameters = match (name, inbound) {
            (PacketName::Cm(message), true) => message.parameters_in,
            (PacketName::Cm(message), false) => message.parameters_out,
            (_, true) => parameters::FRAME_IN,
            (_, false) => parameters::FRAME_OUT,
        };
        Ok(PacketForm { name, arguments: self.arguments(parameters)? })
    }

    /// Arguments up to the end of the statement.
    fn arguments(&mut self, parameters: &'static [Parameter]) -> Result<Arguments, Wrong> {
        self.arguments_until(&[], parameters)
    }

    /// Arguments up to one of some words that are none, or to the end.
    fn arguments_until(
        &mut self,
        others: &[&str],
        parameters: &'static [Parameter],
    ) -> Result<Arguments, Wrong> {
        let mut arguments = Arguments::default();
        while let Some(token) = self.peek() {
            match token {
                Token::Quoted(_) => self.payload(&mut arguments)?,
                Token::Bare(word) if word == "*" => {
                    self.at += 1;
                    arguments.payload = Some(Bytes::Any);
                }
                Token::Bare(word) if is_payload(word) => self.payload(&mut arguments)?,
                Token::Bare(word) => {
                    let known = parameters.iter().find(|(name, _)| name == word);
                    let Some((name, kind)) = known else {
                        if is_end(word) || others.contains(&word.as_str()) {
                            break;
                        }
                        let names =
                            parameters.iter().map(|(name, _)| *name).chain(others.iter().copied());
                        let names: Vec<_> = names.collect();
                        let expected = match names[..] {
                            [] => "the end of the statement".to_owned(),
                            _ => format!("one of {}", names.join(", ")),
                        };
                        return Err(self.wrong_word(expected, names));
                    };
                    if arguments.has(name) {
                        let (column, _) = self.wrong("");
                        return Err((column, format!("`{name}` stands here twice")));
                    }
                    self.at += 1;
                    let value = self.value(*kind)?;
                    arguments.named.push((name, value));
                }
            }
        }
        Ok(arguments)
    }

    fn value(&mut self, kind: Kind) -> Result<Value, Wrong> {
        if self.peek_bare() == Some("*") {
            self.at += 1;
            return Ok(Value::Any);
        }
        match kind {
            Kind::Flag => Ok(Value::Flag),
            Kind::Number(least, most) => self.number(least, most).map(Value::Number),
            Kind::Word(words) => {
                let word = self.one_of("a word", &pairs(words))?;
                Ok(Value::Word(word.to_owned()))
            }
            Kind::Name => self.name("a name").map(Value::Word),
            Kind::List(words) => {
                let list = self.peek_bare().and_then(|list| parse_list(list, words));
                let Some(list) = list else {
                    let expected = format!("a list of {}, or none", words.join(","));
                    let (column, what) = self.wrong(expected);
                    let given = self.peek_bare().unwrap_or_default().split(',');
                    let strange = given.into_iter().find(|one| !words.contains(one));
                    let near = suggest(strange.unwrap_or_default(), words.iter().copied());
                    return Err((column, what + &near));
                };
                self.at += 1;
                Ok(Value::List(list))
            }
            Kind::Address => {
                self.take("an IP address", |word| word.parse().ok()).map(Value::Address)
            }
            Kind::Pieces => {
                self.take("pieces of memory as in m1+0:64,m2+8:16", parse_pieces).map(Value::Pieces)
            }
        }
    }

    fn number(&mut self, least: u64, most: u64) -> Result<Expression, Wrong> {
        let word = self.peek_bare().unwrap_or_default();
        let Some(expression) = parse_expression(word) else {
            return Err(self.wrong("a number, or a symbol as in m1.va+8"));
        };
        if expression.symbol.is_none() && !(least..=most).contains(&expression.plus) {
            return Err(self.wrong(format_args!("a number {}", show_range(least, most))));
        }
        self.at += 1;
        Ok(Expression { most, ..expression })
    }

    fn place(&mut self) -> Result<Place, Wrong> {
        self.take("a place as in m1+8", parse_place)
    }

    fn bytes(&mut self) -> Result<Vec<u8>, Wrong> {
        let mut arguments = Arguments::default();
        self.payload(&mut arguments)?;
        while self.peek().is_some_and(is_payload_token) {
            self.payload(&mut arguments)?;
        }
        Ok(arguments.bytes().unwrap_or_default().to_vec())
    }

    /// One part of a payload, added to what is there.
    fn payload(&mut self, arguments: &mut Arguments) -> Result<(), Wrong> {
        const EXPECTED: &str = "bytes: \"text\", hex:00ff, zeros(N), pattern(N) or pattern(A..B)";
        let part = match self.peek() {
            Some(Token::Quoted(text)) => Some(text.as_bytes().to_vec()),
            Some(Token::Bare(word)) => parse_payload(word),
            None => None,
        };
        let part = part.ok_or_else(|| self.wrong(EXPECTED))?;
        let left = self.room.get().checked_sub(part.len());
        self.room.set(left.ok_or_else(|| self.wrong("a script of no more than 64 MiB of bytes"))?);
        self.at += 1;
        match &mut arguments.payload {
            Some(Bytes::These(bytes)) => bytes.extend(part),
            other => *other = Some(Bytes::These(part)),
        }
        Ok(())
    }
}

/// What opens an event.
#[derive(Clone, Copy)]
pub(super) enum EventWord {
    Post,
    Call,
    Fill,
    Into,
    Out,
    Completion,
    Event,
    Counter,
    Memory,
    State,
    Why,
    Turn,
    Quiet,
}

pub(super) const EVENTS: &[(&str, EventWord)] = &[
    ("post", EventWord::Post),
    ("call", EventWord::Call),
    ("fill", EventWord::Fill),
    ("<", EventWord::Into),
    (">", EventWord::Out),
    ("completion", EventWord::Completion),
    ("event", EventWord::Event),
    ("counter", EventWord::Counter),
    ("memory", EventWord::Memory),
    ("state", EventWord::State),
    ("why", EventWord::Why),
    ("turn", EventWord::Turn),
    ("quiet", EventWord::Quiet),
];

pub(super) const OBJECTS: &[(&str, ObjectKind)] = &[
    ("pd", ObjectKind::Pd),
    ("cq", ObjectKind::Cq),
    ("mr", ObjectKind::Mr),
    ("mw", ObjectKind::Mw),
    ("ah", ObjectKind::Ah),
    ("srq", ObjectKind::Srq),
    ("qp", ObjectKind::Qp(Service::Rc)),
    ("cm", ObjectKind::Cm),
    ("listen", ObjectKind::Listener),
];

pub(super) const SERVICES: &[(&str, Service)] =
    &[("rc", Service::Rc), ("uc", Service::Uc), ("ud", Service::Ud), ("gsi", Service::Gsi)];

pub(super) const SENDS: &[(&str, SendVerb)] = &[
    ("send", SendVerb::Send),
    ("write", SendVerb::Write),
    ("read", SendVerb::Read),
    ("cmp-swap", SendVerb::CompareSwap),
    ("fetch-add", SendVerb::FetchAdd),
    ("atomic-write", SendVerb::AtomicWrite),
    ("flush", SendVerb::Flush),
    ("bind", SendVerb::Bind),
    ("reg", SendVerb::Register),
    ("invalidate", SendVerb::Invalidate),
];

pub(super) const CALLS: &[(&str, CallVerb)] = &[
    ("modify", CallVerb::Modify),
    ("destroy", CallVerb::Destroy),
    ("rereg", CallVerb::Reregister),
    ("attach", CallVerb::Attach),
    ("detach", CallVerb::Detach),
    ("notify", CallVerb::Notify),
    ("resize", CallVerb::Resize),
    ("lose", CallVerb::Lose),
    ("add-gid", CallVerb::AddGid),
    ("remove-gid", CallVerb::RemoveGid),
    ("hold", CallVerb::Hold),
    ("release", CallVerb::Release),
    ("connect", CallVerb::Connect),
    ("accept", CallVerb::Accept),
    ("establish", CallVerb::Establish),
    ("reject", CallVerb::Reject),
    ("disconnect", CallVerb::Disconnect),
    ("resolve", CallVerb::Resolve),
    ("answer", CallVerb::Answer),
];

fn pairs(words: &[&'static str]) -> Vec<(&'static str, &'static str)> {
    words.iter().map(|word| (*word, *word)).collect()
}

/// A text of no more than `most` characters, and what says that there is more.
fn shorten(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

fn is_name(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_alphabetic())
        && word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
}

/// Whether a word ends a list of arguments.
fn is_end(word: &str) -> bool {
    is_separator(word) || matches!(word, "|" | "fails")
}

/// What joins statements of one time.
fn is_separator(word: &str) -> bool {
    matches!(word, "·" | ";")
}

fn is_payload(word: &str) -> bool {
    ["hex:", "zeros(", "pattern("].iter().any(|start| word.starts_with(start))
}

fn is_payload_token(token: &Token) -> bool {
    match token {
        Token::Quoted(_) => true,
        Token::Bare(word) => is_payload(word),
    }
}

fn packet_name(word: &str) -> Option<PacketName> {
    match word {
        "ACK" => return Some(PacketName::Ack),
        "RNR_NAK" => return Some(PacketName::RnrNak),
        "NAK" => return Some(PacketName::Nak),
        ATOMIC_ACK => return Some(PacketName::Short("ATOMIC_ACKNOWLEDGE")),
        _ => {}
    }
    if let Some(message) = MESSAGES.into_iter().find(|message| message.name == word) {
        return Some(PacketName::Cm(message));
    }
    let row = |row: &&'static Opcode| row.short_name() == word;
    if let Some(row) = OPCODES.iter().find(row) {
        return Some(PacketName::Short(row.short_name()));
    }
    Opcode::by_name(word).map(PacketName::Row)
}

/// The short names of packets, each once, as explanations have them.
pub(super) fn packet_names() -> Vec<&'static str> {
    let mut names = vec!["ACK", "RNR_NAK", "NAK", ATOMIC_ACK];
    for row in OPCODES {
        let acknowledges =
            matches!(row.operation, Operation::Acknowledge | Operation::AtomicAcknowledge);
        if !acknowledges && !names.contains(&row.short_name()) {
            names.push(row.short_name());
        }
    }
    names
}

/// From where to where a number may go.
pub(super) fn show_range(least: u64, most: u64) -> String {
    if most < 10_000 {
        format!("from {least} to {most}")
    } else {
        format!("from {least} to 0x{most:x}")
    }
}

/// Decimal or `0x…`, with `_` anywhere between the digits.
fn parse_number(word: &str) -> Option<u64> {
    let digits = word.replace('_', "");
    match digits.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None if word.starts_with(|c: char| c.is_ascii_digit()) => digits.parse().ok(),
        None => None,
    }
}

/// `8`, `m1.va`, `m1.va+8`, `m1.rkey-1`.
fn parse_expression(word: &str) -> Option<Expression> {
    if let Some(plus) = parse_number(word) {
        return Some(Expression { symbol: None, plus, most: u64::MAX });
    }
    let dot = word.find('.')?;
    let (symbol, plus) = match word[dot..].find(['+', '-']) {
        Some(behind) => {
            let at = dot + behind;
            let fits = |amount: &u64| *amount <= i64::MAX.cast_unsigned();
            let amount = parse_number(&word[at + 1..]).filter(fits)?;
            let plus = if word[at..].starts_with('-') { amount.wrapping_neg() } else { amount };
            (&word[..at], plus)
        }
        None => (word, 0),
    };
    let (object, part) = symbol.split_once('.')?;
    let known = parameters::SYMBOL_PARTS.contains(&part);
    let symbol = Some((object.to_owned(), part.to_owned()));
    (is_name(object) && known).then_some(Expression { symbol, plus, most: u64::MAX })
}

fn parse_place(word: &str) -> Option<Place> {
    let (region, offset) = match word.split_once('+') {
        Some((region, offset)) => (region, parse_number(offset)?),
        None => (word, 0),
    };
    is_name(region).then(|| Place { region: region.to_owned(), offset })
}

fn parse_pieces(word: &str) -> Option<Vec<(Place, u32)>> {
    word.split(',')
        .map(|piece| {
            let (place, len) = piece.split_once(':')?;
            Some((parse_place(place)?, u32::try_from(parse_number(len)?).ok()?))
        })
        .collect()
}

fn parse_list(word: &str, known: &[&str]) -> Option<Vec<String>> {
    if word == "none" {
        return Some(Vec::new());
    }
    word.split(',').map(|one| known.contains(&one).then(|| one.to_owned())).collect()
}

fn parse_payload(word: &str) -> Option<Vec<u8>> {
    if let Some(digits) = word.strip_prefix("hex:") {
        let digits = digits.as_bytes();
        let byte = |pair: &[u8]| {
            let pair = std::str::from_utf8(pair).ok()?;
            u8::from_str_radix(pair, 16).ok()
        };
        return digits.chunks(2).map(|pair| byte(pair).filter(|_| pair.len() == 2)).collect();
    }
    let (kind, inside) = word.strip_suffix(')')?.split_once('(')?;
    let (from, to) = match inside.split_once("..") {
        Some((from, to)) => (parse_number(from)?, parse_number(to)?),
        None => (0, parse_number(inside)?),
    };
    if to.checked_sub(from)? > MOST_BYTES {
        return None;
    }
    match kind {
        "zeros" => Some(vec![0; (to - from) as usize]),
        // 251 is prime, so no two packets of a message look alike.
        "pattern" => Some((from..to).map(|at| (at % 251) as u8).collect()),
        _ => None,
    }
}

/// The longest payload that a script writes.
const MOST_BYTES: u64 = 1 << 20;
/// All payloads of a script together.
const MOST_BYTES_IN_ALL: usize = 1 << 26;

fn parse_when(word: &str) -> Option<When> {
    match word.split_once("..") {
        Some((from, to)) => {
            let (from, to) = (parse_duration(from)?, parse_duration(to)?);
            (from <= to).then_some(When::Between(from, to))
        }
        None => parse_duration(word.strip_prefix('+')?).map(When::After),
    }
}

/// Whether a word that is no time was meant as one: only numbers with their units.
fn looks_like_time(word: &str) -> bool {
    let is_time = |word: &str| {
        let unit = word.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
        word == "0" || unit.len() < word.len() && matches!(unit, "ns" | "us" | "ms" | "s")
    };
    match word.split_once("..") {
        Some((from, to)) => is_time(from) && is_time(to),
        None => word.strip_prefix('+').is_some_and(is_time),
    }
}

/// `0`, `10us`, `4.096us`, `1s`.
fn parse_duration(word: &str) -> Option<Duration> {
    if word == "0" {
        return Some(Duration::ZERO);
    }
    let unit = word.find(|c: char| c.is_ascii_alphabetic())?;
    let nanos_of_unit: u64 = match &word[unit..] {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        _ => return None,
    };
    let (whole, fraction) = word[..unit].split_once('.').unwrap_or((&word[..unit], ""));
    let mut nanos = whole.parse::<u64>().ok()?.checked_mul(nanos_of_unit)?;
    let mut place = nanos_of_unit;
    for digit in fraction.trim_end_matches('0').chars() {
        if !place.is_multiple_of(10) {
            return None;
        }
        place /= 10;
        nanos = nanos.checked_add(u64::from(digit.to_digit(10)?) * place)?;
    }
    Some(Duration::from_nanos(nanos))
}

/// A time as failures print it, which is as scripts write it.
pub(super) fn show_instant(at: Instant) -> String {
    let nanos = at.nanos();
    let (unit, per_unit) = match nanos {
        0 => return "0".to_owned(),
        _ if nanos.is_multiple_of(1_000_000_000) => ("s", 1_000_000_000),
        _ if nanos >= 1_000_000 => ("ms", 1_000_000),
        _ if nanos >= 1_000 => ("us", 1_000),
        _ => ("ns", 1),
    };
    let (whole, rest) = (nanos / per_unit, nanos % per_unit);
    if rest == 0 {
        return format!("{whole}{unit}");
    }
    let width = per_unit.ilog10() as usize;
    let fraction = format!("{rest:0width$}");
    format!("{whole}.{}{unit}", fraction.trim_end_matches('0'))
}

#[cfg(test)]
mod tests;
