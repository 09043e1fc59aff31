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

mod hint;
mod value;

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;

use roxe_wire::FieldValue;

use crate::examine::Entry;
use crate::explain::fields::{self, Kind, Source, Value};
use hint::{unknown, unknown_word};
use value::{Literal, Set};

/// An expression that is true or false for a frame.
pub(crate) struct Filter(Condition);

/// An expression, or a part of one.
enum Condition {
    Compare(Source, Operator, Literal),
    In(Source, Set),
    All(Vec<Self>),
    Any(Vec<Self>),
    Not(Box<Self>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
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
        let condition = parser.expression(0)?;
        match parser.peek() {
            None => Ok(Self(condition)),
            Some(token) => {
                Err(parser.wrong(format!("`and`, `or` or the end expected, not `{token}`")))
            }
        }
    }

    /// Whether the frame is to be shown.
    pub(crate) fn matches(&self, entry: &Entry<'_>) -> bool {
        self.0.holds(entry)
    }
}

impl Condition {
    fn holds(&self, entry: &Entry<'_>) -> bool {
        match self {
            Self::Compare(source, operator, literal) => holds(*source, entry, |value| {
                literal.order(value).is_some_and(|order| operator.allows(order))
            }),
            Self::In(source, set) => holds(*source, entry, |value| set.contains(value)),
            Self::All(conditions) => conditions.iter().all(|condition| condition.holds(entry)),
            Self::Any(conditions) => conditions.iter().any(|condition| condition.holds(entry)),
            Self::Not(inner) => !inner.holds(entry),
        }
    }

    /// All of these.
    fn all(mut all: Vec<Self>) -> Self {
        if all.len() == 1 { all.swap_remove(0) } else { Self::All(all) }
    }

    /// Any of these. `frame == 1 or frame == 2` is `frame in {1, 2}`.
    fn any(conditions: Vec<Self>) -> Self {
        let mut equal: BTreeMap<&str, (Source, Vec<Literal>)> = BTreeMap::new();
        let mut any = Vec::new();
        for condition in conditions {
            if let Self::Compare(source, Operator::Equal, literal) = condition {
                let (_, literals) = equal.entry(source.name()).or_insert((source, Vec::new()));
                literals.push(literal);
            } else {
                any.push(condition);
            }
        }
        any.extend(equal.into_values().map(|(source, mut literals)| {
            if literals.len() == 1 {
                Self::Compare(source, Operator::Equal, literals.swap_remove(0))
            } else {
                Self::In(source, Set::new(literals))
            }
        }));
        if any.len() == 1 { any.swap_remove(0) } else { Self::Any(any) }
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

    fn expression(&mut self, depth: usize) -> Result<Condition, FilterError> {
        let mut any = vec![self.term(depth)?];
        while self.accept("or") {
            any.push(self.term(depth)?);
        }
        Ok(Condition::any(any))
    }

    fn term(&mut self, depth: usize) -> Result<Condition, FilterError> {
        let mut all = vec![self.factor(depth)?];
        while self.accept("and") {
            all.push(self.factor(depth)?);
        }
        Ok(Condition::all(all))
    }

    fn factor(&mut self, depth: usize) -> Result<Condition, FilterError> {
        if depth > MAX_DEPTH {
            return Err(self.wrong(format!(
                "nested too deeply: at most {MAX_DEPTH} parentheses and `not` in each other"
            )));
        }
        if self.accept("not") {
            return Ok(Condition::Not(Box::new(self.factor(depth + 1)?)));
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

    fn comparison(&mut self) -> Result<Condition, FilterError> {
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
                Ok(Condition::In(source, Set::new(literals)))
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
        Ok(Condition::Compare(source, operator, self.literal(source)?))
    }

    fn literal(&mut self, source: Source) -> Result<Literal, FilterError> {
        let text = match self.peek() {
            Some(Token::Word(text) | Token::Quoted(text)) => text.clone(),
            Some(token) => return Err(self.wrong(format!("a value expected, not `{token}`"))),
            None => return Err(self.wrong("a value expected".to_owned())),
        };
        let literal = Literal::new(text);
        let kind = source.kind();
        let has_order = matches!(kind, Kind::Number | Kind::Seconds);
        let range = literal.range(kind).filter(|_| has_order);
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
            (
                "notes.kind == retransmit",
                "similar: `retransmission`; `roxe explain --fields` lists all",
            ),
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
            (
                "bth.psn in {0..0xffffff}",
                "column 13: there are no ranges: write `bth.psn >= 0 and bth.psn <= 0xffffff`",
            ),
            (
                "reth.r_key == 0x10-0x1F",
                "column 15: there are no ranges: write \
                 `reth.r_key >= 0x10 and reth.r_key <= 0x1F`",
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
            (
                "xyzzy.plugh == 1",
                "column 1: no field is called `xyzzy.plugh`; `roxe explain --fields` lists them",
            ),
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
        let expected =
            "column 102: nested too deeply: at most 100 parentheses and `not` in each other";
        assert_eq!(error(&deep), expected);
        let as_deep_as_can_be = format!("{}frame == 1{}", "not (".repeat(50), ")".repeat(50));
        assert_eq!(error(&as_deep_as_can_be), "");
        let long = vec!["frame == 1"; 50_000].join(" or ");
        assert!(Filter::parse(&long).is_ok());
    }

    /// How many values a frame's are compared with, or looked up among, one after the other.
    fn steps(condition: &Condition) -> usize {
        match condition {
            Condition::Compare(..) | Condition::In(..) => 1,
            Condition::All(some) | Condition::Any(some) => some.iter().map(steps).sum(),
            Condition::Not(inner) => steps(inner),
        }
    }

    #[test]
    fn many_values_of_a_field_are_one_step() {
        let numbers: Vec<_> = (0..20_000).map(|number| number.to_string()).collect();
        let or =
            |name: &str| numbers.iter().map(|it| format!("{name} == {it}")).collect::<Vec<_>>();
        let both = [or("frame"), or("bth.psn")].concat().join(" or ");
        for (text, expected) in [
            (format!("frame in {{{}}}", numbers.join(", ")), 1),
            (or("frame").join(" or "), 1),
            (format!("not ({both}) and icrc == good"), 3),
            (format!("icrc == good or {both} or bth.psn > 7"), 4),
            ("frame == 1".to_owned(), 1),
            // No sets: a list has many items, and a frame need not have a value.
            ("notes.kind == gap and notes.kind == retransmission".to_owned(), 2),
            ("vlan != 1 or vlan != 2".to_owned(), 2),
        ] {
            let filter = Filter::parse(&text).expect("it is right");
            assert_eq!(steps(&filter.0), expected, "{}", &text[..text.len().min(60)]);
        }
    }
}
