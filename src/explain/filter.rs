//! `--filter`: which frames are shown.
//!
//! ```text
//! expression = term { "or" term }
//! term       = factor { "and" factor }
//! factor     = "not" factor | "(" expression ")" | comparison
//! comparison = NAME ( "==" | "!=" | "<" | "<=" | ">" | ">=" ) VALUE
//!            | NAME "in" "{" VALUE { "," VALUE } "}"
//! ```
//!
//! Names are those of `--json`. A value is a number (decimal or 0x…), `true` or `false`, an
//! address, seconds with a point, or a word; words with other characters stand in quotes. A
//! comparison with a field that the frame lacks is false, whatever the operator. Of a list, any
//! item will do.

use std::cmp::Ordering;
use std::fmt;
use std::net::IpAddr;

use roxe_wire::FieldValue;

use crate::examine::Entry;
use crate::explain::fields::{self, Kind, Source, Value};

/// An expression that is true or false for a frame.
pub(crate) enum Filter {
    Compare(Source, Operator, Literal),
    In(Source, Vec<Literal>),
    All(Vec<Self>),
    Any(Vec<Self>),
    Not(Box<Self>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operator {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// A value as it was written, read in every way it can be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Literal {
    text: String,
    number: Option<i128>,
    address: Option<IpAddr>,
    nanoseconds: Option<i128>,
}

/// What is wrong with an expression, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FilterError {
    /// Characters before it.
    at: usize,
    what: String,
}

impl fmt::Display for FilterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "column {}: {}", self.at + 1, self.what)
    }
}

impl std::error::Error for FilterError {}

impl Filter {
    /// Reads an expression.
    pub(crate) fn parse(text: &str) -> Result<Self, FilterError> {
        let mut parser = Parser { tokens: tokens(text)?, next: 0, end: text.chars().count() };
        let filter = parser.expression(0)?;
        match parser.peek() {
            None => Ok(filter),
            Some(token) => {
                Err(parser.wrong(format!("`and`, `or` or the end expected, not `{token}`")))
            }
        }
    }

    /// Whether the frame is to be shown.
    pub(crate) fn matches(&self, entry: &Entry<'_>) -> bool {
        match self {
            Self::Compare(source, operator, literal) => holds(*source, entry, |value| {
                literal.order(value).is_some_and(|order| operator.allows(order))
            }),
            Self::In(source, literals) => holds(*source, entry, |value| {
                literals.iter().any(|literal| literal.order(value) == Some(Ordering::Equal))
            }),
            Self::All(filters) => filters.iter().all(|filter| filter.matches(entry)),
            Self::Any(filters) => filters.iter().any(|filter| filter.matches(entry)),
            Self::Not(inner) => !inner.matches(entry),
        }
    }
}

impl Operator {
    fn of(text: &str) -> Option<Self> {
        Some(match text {
            "==" => Self::Equal,
            "!=" => Self::NotEqual,
            "<" => Self::Less,
            "<=" => Self::LessOrEqual,
            ">" => Self::Greater,
            ">=" => Self::GreaterOrEqual,
            _ => return None,
        })
    }

    fn allows(self, order: Ordering) -> bool {
        match self {
            Self::Equal => order.is_eq(),
            Self::NotEqual => order.is_ne(),
            Self::Less => order.is_lt(),
            Self::LessOrEqual => order.is_le(),
            Self::Greater => order.is_gt(),
            Self::GreaterOrEqual => order.is_ge(),
        }
    }
}

/// Whether `test` holds for a value that the frame has.
fn holds(source: Source, entry: &Entry<'_>, test: impl Fn(Value<'_>) -> bool) -> bool {
    let plain = |value: FieldValue<'_>| test(Value::Plain(value));
    match source {
        Source::Own(own) => (own.get)(entry).is_some_and(test),
        Source::Header(key, _) => {
            let mut found = false;
            fields::for_each_header(entry, |layout, header| {
                for (bit, field) in layout.placed().filter(|(_, field)| field.key == Some(key)) {
                    found |= field.json(header, bit).is_some_and(plain);
                }
            });
            found
        }
        Source::Mad(name, _) => {
            let mut found = false;
            if let Some(mad) = entry.mad {
                mad.for_each_field(&mut |known, value| found |= known == name && plain(value));
            }
            found
        }
        Source::Notes => entry.notes.iter().any(|note| plain(FieldValue::Text(note.kind()))),
        Source::Findings => {
            entry.findings.iter().any(|finding| plain(FieldValue::Text(finding.rule.name())))
        }
    }
}

impl Literal {
    fn new(text: String) -> Self {
        let (sign, digits) = match text.strip_prefix('-') {
            Some(digits) => (-1, digits),
            None => (1, text.as_str()),
        };
        let number = match digits.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16).ok(),
            None => digits.parse::<u64>().ok(),
        };
        let nanoseconds = seconds(digits).map(|nanos| sign * nanos);
        Self {
            number: number.map(|number| sign * i128::from(number)),
            address: text.parse().ok(),
            nanoseconds,
            text,
        }
    }

    /// How `value` lies to this; `None` when they cannot be compared.
    fn order(&self, value: Value<'_>) -> Option<Ordering> {
        let number = |value: i128| Some(value.cmp(&self.number?));
        match value {
            Value::Nanoseconds(nanos) => Some(nanos.cmp(&self.nanoseconds?)),
            Value::Plain(FieldValue::Number(value) | FieldValue::Hex64(value)) => {
                number(value.into())
            }
            Value::Plain(FieldValue::Hex32(value)) => number(value.into()),
            Value::Plain(FieldValue::Signed(value)) => number(value.into()),
            Value::Plain(FieldValue::Flag(flag)) => Some(flag.cmp(&self.flag()?)),
            Value::Plain(FieldValue::Address(address)) => Some(address.cmp(&self.address?)),
            Value::Plain(FieldValue::Text(text)) => Some(text.cmp(&self.text)),
            Value::Plain(other) => Some(other.to_string().as_str().cmp(&self.text)),
        }
    }

    /// What may be meant as a range: `1-3`, `1..3`.
    fn range(&self) -> Option<(&str, &str)> {
        let (first, last) = self.text.split_once("..").or_else(|| {
            self.text.get(1..)?.find('-').map(|at| {
                let (first, last) = self.text.split_at(at + 1);
                (first, &last[1..])
            })
        })?;
        let is_number = |text: &str| Self::new(text.to_owned()).nanoseconds.is_some();
        let last = last.trim_start_matches('=');
        (is_number(first) && is_number(last)).then_some((first, last))
    }

    fn flag(&self) -> Option<bool> {
        match self.text.as_str() {
            "true" | "1" => Some(true),
            "false" | "0" => Some(false),
            _ => None,
        }
    }

    /// Whether a field of this kind can be compared with it.
    fn fits(&self, kind: Kind) -> bool {
        match kind {
            Kind::Number => self.number.is_some(),
            Kind::Flag => self.flag().is_some(),
            Kind::Address => self.address.is_some(),
            Kind::Seconds => self.nanoseconds.is_some(),
            Kind::Text | Kind::Any => true,
        }
    }
}

/// `12.5` in nanoseconds.
fn seconds(text: &str) -> Option<i128> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    if fraction.len() > 9 || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let whole: u64 = whole.parse().ok()?;
    let fraction: u64 = format!("{fraction:0<9}").parse().ok()?;
    Some(i128::from(whole) * 1_000_000_000 + i128::from(fraction))
}

/// A piece of an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    /// A name, a value or a word of the language.
    Word(String),
    /// A value in quotes.
    Quoted(String),
    /// `==` and so on, parentheses, braces, a comma.
    Sign(&'static str),
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Word(text) => f.write_str(text),
            Self::Quoted(text) => write!(f, "\"{text}\""),
            Self::Sign(sign) => f.write_str(sign),
        }
    }
}

/// Longer signs first.
const SIGNS: [&str; 11] = ["==", "!=", "<=", ">=", "<", ">", "(", ")", "{", "}", ","];

/// The tokens of an expression, each with its place.
fn tokens(text: &str) -> Result<Vec<(usize, Token)>, FilterError> {
    let is_word = |c: char| c.is_alphanumeric() || "_.:-/".contains(c);
    let mut tokens = Vec::new();
    let (mut rest, mut at) = (text, 0);
    loop {
        let trimmed = rest.trim_start();
        at += rest[..rest.len() - trimmed.len()].chars().count();
        rest = trimmed;
        let Some(first) = rest.chars().next() else { return Ok(tokens) };
        let (token, len) = if let Some(sign) = SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
            (Token::Sign(sign), sign.len())
        } else if first == '"' || first == '\'' {
            let Some(len) = rest[1..].find(first) else {
                return Err(FilterError { at, what: "this quote is never closed".to_owned() });
            };
            (Token::Quoted(rest[1..=len].to_owned()), len + 2)
        } else if is_word(first) {
            let len = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
            (Token::Word(rest[..len].to_owned()), len)
        } else {
            let what = match first {
                '=' => "`=` alone; did you mean `==`?".to_owned(),
                '&' => "no `&&` here: write `and`".to_owned(),
                '|' => "no `||` here: write `or`".to_owned(),
                '!' => "no `!` here: write `not`".to_owned(),
                other => format!("`{other}` has no meaning here"),
            };
            return Err(FilterError { at, what });
        };
        tokens.push((at, token));
        at += rest[..len].chars().count();
        rest = &rest[len..];
    }
}

struct Parser {
    tokens: Vec<(usize, Token)>,
    next: usize,
    /// Characters of the whole expression.
    end: usize,
}

/// How deep parentheses and `not` may stand in each other.
const MAX_DEPTH: usize = 100;

impl Parser {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.next).map(|(_, token)| token)
    }

    fn take(&mut self) -> Option<(usize, Token)> {
        let token = self.tokens.get(self.next).cloned();
        self.next += 1;
        token
    }

    /// Goes on if the next token is this word or sign.
    fn accept(&mut self, text: &str) -> bool {
        let is_it = match self.peek() {
            Some(Token::Word(word)) => word == text,
            Some(Token::Sign(sign)) => *sign == text,
            _ => false,
        };
        self.next += usize::from(is_it);
        is_it
    }

    /// An error at the next token.
    fn wrong(&self, what: String) -> FilterError {
        let at = self.tokens.get(self.next).map_or(self.end, |(at, _)| *at);
        FilterError { at, what }
    }

    fn expression(&mut self, depth: usize) -> Result<Filter, FilterError> {
        let mut any = vec![self.term(depth)?];
        while self.accept("or") {
            any.push(self.term(depth)?);
        }
        Ok(Filter::Any(any))
    }

    fn term(&mut self, depth: usize) -> Result<Filter, FilterError> {
        let mut all = vec![self.factor(depth)?];
        while self.accept("and") {
            all.push(self.factor(depth)?);
        }
        Ok(Filter::All(all))
    }

    fn factor(&mut self, depth: usize) -> Result<Filter, FilterError> {
        if depth > MAX_DEPTH {
            return Err(self.wrong("nested too deeply".to_owned()));
        }
        if self.accept("not") {
            return Ok(Filter::Not(Box::new(self.factor(depth + 1)?)));
        }
        if self.accept("(") {
            let filter = self.expression(depth + 1)?;
            return if self.accept(")") {
                Ok(filter)
            } else {
                Err(self.wrong("`)` expected".to_owned()))
            };
        }
        self.comparison()
    }

    fn comparison(&mut self) -> Result<Filter, FilterError> {
        let source = match self.peek() {
            Some(Token::Word(name)) => {
                Source::by_name(name).ok_or_else(|| self.wrong(unknown(name)))?
            }
            Some(token) => return Err(self.wrong(format!("a field name expected, not `{token}`"))),
            None => return Err(self.wrong("a field name expected".to_owned())),
        };
        self.next += 1;
        if self.accept("in") {
            if !self.accept("{") {
                return Err(self.wrong("`{` expected behind `in`".to_owned()));
            }
            let mut literals = vec![self.literal(source)?];
            while self.accept(",") {
                literals.push(self.literal(source)?);
            }
            return if self.accept("}") {
                Ok(Filter::In(source, literals))
            } else {
                Err(self.wrong("`,` or `}` expected".to_owned()))
            };
        }
        let operator = match self.peek() {
            Some(Token::Sign(sign)) => Operator::of(sign),
            _ => None,
        };
        let operator = operator.ok_or_else(|| {
            self.wrong("`==`, `!=`, `<`, `<=`, `>`, `>=` or `in` expected".to_owned())
        })?;
        self.next += 1;
        Ok(Filter::Compare(source, operator, self.literal(source)?))
    }

    fn literal(&mut self, source: Source) -> Result<Literal, FilterError> {
        let text = match self.peek() {
            Some(Token::Word(text) | Token::Quoted(text)) => text.clone(),
            Some(token) => return Err(self.wrong(format!("a value expected, not `{token}`"))),
            None => return Err(self.wrong("a value expected".to_owned())),
        };
        let literal = Literal::new(text);
        let kind = source.kind();
        let range = literal.range().filter(|_| matches!(kind, Kind::Number | Kind::Seconds));
        if let (Some((first, last)), Some(Token::Word(_))) = (range, self.peek()) {
            let name = source.name();
            return Err(self.wrong(format!(
                "there are no ranges: write `{name} >= {first} and {name} <= {last}`"
            )));
        }
        if literal.number.is_some_and(|number| number < 0) && kind == Kind::Number {
            return Err(self.wrong(format!("`{}` is never below 0", source.name())));
        }
        if !literal.fits(kind) {
            let wanted = match kind {
                Kind::Number => "a number (decimal or 0x…)",
                Kind::Flag => "`true` or `false`",
                Kind::Address => "an IP address",
                Kind::Seconds => "seconds, such as 0.25",
                Kind::Text | Kind::Any => "a word",
            };
            let hint = match source {
                Source::Header("bth.opcode", _) => ": `bth.opcode_name` has the names",
                Source::Header("aeth.syndrome", _) => ": `aeth.kind` and `aeth.text` have words",
                Source::Mad("mad.attributeid", _) => ": 0x10 is REQ, 0x13 REP, 0x14 RTU, 0x15 DREQ",
                _ => "",
            };
            return Err(self.wrong(format!("{wanted} expected, not `{}`{hint}", literal.text)));
        }
        if let Some(words) = source.words().filter(|words| !words.contains(&literal.text.as_str()))
        {
            return Err(self.wrong(unknown_word(&literal.text, &words)));
        }
        self.take();
        Ok(literal)
    }
}

/// What other tools, and the titles and words of the lines, call some fields.
const ELSEWHERE: &[(&str, &[&str])] = &[
    ("#", &["frame"]),
    ("from", &["src"]),
    ("to", &["dst"]),
    ("opcode", &["bth.opcode_name"]),
    ("rel", &["psn_relative"]),
    ("flags", &["bth.se", "bth.a", "bth.m", "ecn", "bth.fecn", "bth.becn"]),
    ("bytes", &["payload_len"]),
    ("meaning", &["notes.kind", "findings.rule"]),
    ("va", &["reth.va"]),
    ("rkey", &["reth.r_key"]),
    ("len", &["reth.dmalen", "payload_len"]),
    ("imm", &["immdt"]),
    ("compare", &["atomiceth.cmpdt"]),
    ("swap", &["atomiceth.swapdt"]),
    ("add", &["atomiceth.swapdt"]),
    ("original", &["atomicacketh.origremdt"]),
    ("credits", &["aeth.syndrome.credit_count"]),
    ("wait", &["aeth.syndrome.timer"]),
    ("invalidates", &["ieth"]),
    ("priority", &["vlan.priority"]),
    ("EE", &["rdeth.eecnxt"]),
    ("ip.src", &["src"]),
    ("ip.dst", &["dst"]),
    ("ip.addr", &["src", "dst"]),
    ("ipv6.src", &["src"]),
    ("ipv6.dst", &["dst"]),
    ("ip.ttl", &["ttl"]),
    ("ipv6.hlim", &["ttl"]),
    ("ip.dsfield.dscp", &["dscp"]),
    ("ip.dsfield.ecn", &["ecn"]),
    ("udp.srcport", &["sport"]),
    ("frame.number", &["frame"]),
    ("frame.len", &["frame_len"]),
    ("vlan.id", &["vlan"]),
];

/// What to say to a name that does not exist.
fn unknown(name: &str) -> String {
    let stripped = name.strip_prefix("infiniband.").unwrap_or(name);
    let near = match ELSEWHERE.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)) {
        Some((_, names)) => names.to_vec(),
        None => near(stripped, &fields::names().collect::<Vec<_>>()),
    };
    let hint = if near.is_empty() { "--fields lists them".to_owned() } else { there_is(&near) };
    format!("no field is called `{name}`; {hint}")
}

/// What to say to a word that a field never is.
fn unknown_word(word: &str, words: &[&'static str]) -> String {
    let near = near(word, words);
    let quoted = |words: &[&str]| {
        words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
    };
    let hint = if near.is_empty() || words.len() <= 4 {
        format!("it is one of {}", quoted(words))
    } else {
        format!("similar: {}; --fields lists all", quoted(&near))
    };
    format!("it is never `{word}`; {hint}")
}

fn there_is(names: &[&str]) -> String {
    let names: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
    format!("there is {}", names.join(", "))
}

/// The names most like this one.
fn near(name: &str, names: &[&'static str]) -> Vec<&'static str> {
    let name = name.to_lowercase();
    let contains = |known: &str| known.to_lowercase().contains(&name);
    let mut near: Vec<(usize, &str)> = names
        .iter()
        .map(|known| (distance(&name, &known.to_lowercase()), *known))
        .filter(|(distance, known)| *distance <= known.len() / 3 || contains(known))
        .collect();
    near.sort_unstable();
    near.dedup();
    let best = near.first().map_or(0, |(distance, _)| *distance);
    near.retain(|(distance, known)| *distance == best || contains(known));
    near.truncate(4);
    if near.is_empty() {
        let begins_alike = |known: &&&str| {
            let alike = known.bytes().zip(name.bytes()).take_while(|(a, b)| a == b).count();
            alike >= 4 && alike * 2 >= name.len()
        };
        return names.iter().filter(begins_alike).take(4).copied().collect();
    }
    near.into_iter().map(|(_, name)| name).collect()
}

/// How many letters have to change to make one word of the other.
fn distance(one: &str, other: &str) -> usize {
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, a) in one.bytes().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, b) in other.bytes().enumerate() {
            let replaced = diagonal + usize::from(a != b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        Filter::parse(text).err().map(|error| error.to_string()).unwrap_or_default()
    }

    #[test]
    fn words_that_a_field_never_is_are_refused() {
        for (text, hint) in [
            ("icrc == wrong", "it is one of `good`, `bad`, `unknown`"),
            ("icrc in {good, goood}", "never `goood`"),
            ("aeth.kind != NAK", "it is one of `ack`, `rnr_nak`, `nak`"),
            ("bth.opcode_name == SEND_ONLY", "`RC_SEND_ONLY`"),
            ("findings.rule == crc", "`icrc`"),
            ("notes.kind == retransmit", "similar: `retransmission`; --fields lists all"),
            ("notes.kind == xyzzy", "`management_again`"),
            ("dropped == bad_icrc", "it is never `bad_icrc`"),
            // These are no frames that are listed.
            ("dropped == not_udp", "it is never `not_udp`"),
            ("dropped == bad_qkey", "it is never `bad_qkey`"),
            ("mad.method == x", "a number"),
            ("cm.req.ip_cm.sip4 == x", "an IP address"),
            ("bytes == 5", "there is `payload_len`"),
            ("rkey == 5", "there is `reth.r_key`"),
            ("Opcode == 5", "there is `bth.opcode_name`"),
            ("bth.opcode == SEND_ONLY", "`bth.opcode_name` has the names"),
            ("aeth.syndrome == nak", "`aeth.kind`"),
            ("ip.src == 10.0.0.1", "there is `src`"),
            ("xyzzy == 1", "--fields"),
        ] {
            assert!(error(text).contains(hint), "{text}: {}", error(text));
        }
        for text in ["icrc == bad", "bth.opcode_name == CNP", "aeth.text == 'RNR NAK'"] {
            assert_eq!(error(text), "");
        }
    }

    #[test]
    fn errors_name_the_column_and_what_would_be_right() {
        for (text, expected) in [
            ("bth.psm == 1", "column 1: no field is called `bth.psm`; there is `bth.psn`"),
            ("frame = 1", "column 7: `=` alone; did you mean `==`?"),
            ("frame == 1 && icrc == bad", "column 12: no `&&` here: write `and`"),
            ("frame == -1", "column 10: `frame` is never below 0"),
            ("frame in {1-3}", "column 11: there are no ranges: write `frame >= 1 and frame <= 3`"),
            (
                "time_relative == 0.5..2",
                "column 18: there are no ranges: write \
                 `time_relative >= 0.5 and time_relative <= 2`",
            ),
            ("frame == one", "column 10: a number (decimal or 0x…) expected, not `one`"),
            ("bth.a == 2", "column 10: `true` or `false` expected, not `2`"),
            ("src == nowhere", "column 8: an IP address expected, not `nowhere`"),
            ("frame", "column 6: `==`, `!=`, `<`, `<=`, `>`, `>=` or `in` expected"),
            ("", "column 1: a field name expected"),
            ("(frame == 1", "column 12: `)` expected"),
            ("frame == 1 frame == 2", "column 12: `and`, `or` or the end expected, not `frame`"),
            ("frame in {1, 2", "column 15: `,` or `}` expected"),
            ("icrc == \"bad", "column 9: this quote is never closed"),
            ("xyzzy.plugh == 1", "column 1: no field is called `xyzzy.plugh`; --fields lists them"),
        ] {
            assert_eq!(error(text), expected, "{text}");
        }
    }

    #[test]
    fn names_of_all_kinds_are_known() {
        for text in [
            "frame >= 0x10",
            "infiniband_is_not == 1",
            "time_relative > -0.5",
            "reth.va == 0x7f0000001000",
            "aeth.kind in {nak, rnr_nak} and not (src == 10.0.0.1 or dst == fe80::1)",
            "cm.req.ip_cm.sip4 == 10.0.0.1",
            "cm.req.ip_cm.dip6 == fe80::1",
            "cm.sidrrep.qpn == 7",
            "mad.attributeid == 16",
            "notes.kind == retransmission and findings.rule != msn",
            "immdt == 1 and ieth == 2 and feth.placement == 2 and xrceth.srq == 1",
        ] {
            let known = Filter::parse(text).is_ok();
            assert_eq!(known, !text.starts_with("infiniband"), "{text}: {}", error(text));
        }
    }

    #[test]
    fn deep_nesting_is_refused_and_long_chains_are_not() {
        let deep = format!("{}frame == 1{}", "(".repeat(500), ")".repeat(500));
        assert!(error(&deep).contains("nested too deeply"));
        let long = vec!["frame == 1"; 50_000].join(" or ");
        assert!(Filter::parse(&long).is_ok());
    }

    #[test]
    fn seconds_are_exact() {
        assert_eq!(seconds("1.5"), Some(1_500_000_000));
        assert_eq!(seconds("0.000000001"), Some(1));
        assert_eq!(seconds("3"), Some(3_000_000_000));
        assert_eq!([seconds("1.0000000001"), seconds("a"), seconds("1.x")], [None; 3]);
    }
}
