//! Rust source as the rules want to see it: code without comments and strings, comments without
//! code, and which part is a test.
//!
//! Both views have the shape of the text, byte for byte: what is not theirs is blank. So a place
//! in a view is a place in the file.

use std::ops::Range;

/// A Rust file and its views.
pub(super) struct Source {
    /// Relative to the root.
    pub(super) path: String,
    pub(super) text: String,
    /// Without comments, strings and characters.
    pub(super) code: String,
    /// Nothing but comments, with their slashes.
    pub(super) comments: String,
}

impl Source {
    pub(super) fn new(path: String, text: String) -> Self {
        let (code, comments) = split(&text);
        Self { path, text, code, comments }
    }

    /// The line, from 1 on, that a byte lies in.
    pub(super) fn line_at(&self, at: usize) -> usize {
        self.text.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count() + 1
    }

    /// Where these words stand in the code, as whole words.
    pub(super) fn find<'a>(&'a self, words: &'a str) -> impl Iterator<Item = usize> + 'a {
        occurrences(&self.code, words)
    }

    /// The items that one of these attributes stands on, from the attribute to the end.
    pub(super) fn items_with(&self, attributes: &[&str]) -> Vec<Range<usize>> {
        let starts = attributes.iter().flat_map(|attribute| {
            self.code.match_indices(attribute).map(|(at, _)| (at, at + attribute.len()))
        });
        starts.map(|(at, end)| at..item_end(&self.code, end)).collect()
    }
}

/// Where `words` stand in `text`, not as a part of longer words.
pub(super) fn occurrences<'a>(text: &'a str, words: &'a str) -> impl Iterator<Item = usize> + 'a {
    text.match_indices(words).map(|(at, _)| at).filter(move |at| {
        let joins = |outside: Option<char>, inside: Option<char>| {
            outside.is_some_and(is_word) && inside.is_some_and(is_word)
        };
        let before = text[..*at].chars().next_back();
        let after = text[at + words.len()..].chars().next();
        !joins(before, words.chars().next()) && !joins(after, words.chars().next_back())
    })
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Where the item ends whose attributes or head go on at `from`: at its semicolon, or its last
/// brace, or where what surrounds it ends.
fn item_end(code: &str, from: usize) -> usize {
    // An attribute may be found by its beginning; then its own brackets are open still.
    let opened = |c| matches!(c, '(' | '[' | '{');
    let closed = |c| matches!(c, ')' | ']' | '}');
    let before = code[..from].rfind("#[").map_or("", |start| &code[start..from]);
    let mut depth = before.chars().filter(|c| opened(*c)).count() as i32
        - before.chars().filter(|c| closed(*c)).count() as i32;
    for (at, c) in code[from..].char_indices() {
        depth += i32::from(opened(c)) - i32::from(closed(c));
        if depth < 0 || depth == 0 && matches!(c, ';' | '}') {
            return from + at + 1;
        }
    }
    code.len()
}

enum Kind {
    Code,
    Comment,
    /// A string or a character.
    Literal,
}

/// The two views of a text.
fn split(text: &str) -> (String, String) {
    let mut code = String::with_capacity(text.len());
    let mut comments = String::with_capacity(text.len());
    let mut rest = text;
    let mut previous = ' ';
    while !rest.is_empty() {
        let (len, kind) = token(rest, previous);
        let token = &rest[..len];
        match kind {
            Kind::Code => {
                code += token;
                blank(token, &mut comments);
            }
            Kind::Comment => {
                blank(token, &mut code);
                comments += token;
            }
            Kind::Literal => {
                blank(token, &mut code);
                blank(token, &mut comments);
            }
        }
        previous = token.chars().next_back().unwrap_or(' ');
        rest = &rest[len..];
    }
    (code, comments)
}

/// As many blanks as the token has bytes; lines stay lines.
fn blank(token: &str, view: &mut String) {
    view.extend(token.bytes().map(|byte| if byte == b'\n' { '\n' } else { ' ' }));
}

/// How long the first token is, and what it is. Code comes a character at a time.
fn token(rest: &str, previous: char) -> (usize, Kind) {
    if rest.starts_with("//") {
        return (rest.find('\n').unwrap_or(rest.len()), Kind::Comment);
    }
    if rest.starts_with("/*") {
        return (block_comment(rest), Kind::Comment);
    }
    if rest.starts_with('"') {
        return (quoted(rest, '"'), Kind::Literal);
    }
    if !is_word(previous)
        && let Some(len) = raw_string(rest)
    {
        return (len, Kind::Literal);
    }
    let first = rest.chars().next().map_or(1, char::len_utf8);
    if let Some(inside) = rest.strip_prefix('\'') {
        // `'x'` and `'\…'` are characters, `'x` is a lifetime.
        let second = inside.chars().next().map_or(0, char::len_utf8);
        if inside.starts_with('\\') || inside[second..].starts_with('\'') {
            return (quoted(rest, '\''), Kind::Literal);
        }
    }
    (first, Kind::Code)
}

/// The length of a comment that may hold others.
fn block_comment(rest: &str) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < rest.len() {
        let (step, change) = match &rest.as_bytes()[at..] {
            [b'/', b'*', ..] => (2, 1),
            [b'*', b'/', ..] => (2, -1),
            _ => (1, 0),
        };
        at += step;
        depth += change;
        if depth == 0 {
            return at;
        }
    }
    rest.len()
}

/// The length of a literal between two quotes, with escapes.
fn quoted(rest: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if c == quote => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

/// The length of `r"…"`, `r#"…"#`, `br"…"` and the like, if one begins here.
fn raw_string(rest: &str) -> Option<usize> {
    let after = ["r", "br", "cr"].iter().find_map(|prefix| rest.strip_prefix(prefix))?;
    let inside = after.trim_start_matches('#');
    let end = format!("\"{}", &after[..after.len() - inside.len()]);
    let body = inside.strip_prefix('"')?;
    let head = rest.len() - body.len();
    Some(body.find(&end).map_or(rest.len(), |at| head + at + end.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str) -> String {
        let (code, comments) = split(text);
        assert_eq!(code.len(), text.len());
        assert_eq!(comments.len(), text.len());
        code.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn comments_and_strings_are_no_code() {
        assert_eq!(code("a // b\nc"), "a c");
        assert_eq!(code("a /* b /* c */ d */ e"), "a e");
        assert_eq!(code(r#"a("b \" // c", d)"#), "a( , d)");
        assert_eq!(code(r##"a(r#"b " c"#, br"d", b"e")"##), "a( , , b )");
        assert_eq!(code("a = '\"'; b = '\\''; c"), "a = ; b = ; c");
        assert_eq!(code("fn f<'a>(x: &'a str) {} // ü"), "fn f<'a>(x: &'a str) {}");
        assert_eq!(code("let r#type = 'ü';"), "let r#type = ;");
    }

    #[test]
    fn comments_are_all_that_is_in_the_other_view() {
        let (_, comments) = split("let a = \"// no\"; // yes");
        assert_eq!(comments.trim(), "// yes");
    }

    #[test]
    fn words_are_whole() {
        assert_eq!(occurrences("println!(); eprintln!()", "println!").collect::<Vec<_>>(), [0]);
        assert_eq!(occurrences("FxHashMap HashMap HashMaps", "HashMap").collect::<Vec<_>>(), [10]);
    }

    #[test]
    fn an_item_ends_with_its_brace_or_semicolon() {
        let text = "#[cfg(test)]\nmod tests { fn f() { a; } }\nfn g() {}";
        let source = Source::new("x.rs".into(), text.into());
        let items = source.items_with(&["#[cfg(test)]"]);
        assert_eq!(&text[items[0].clone()], &text[..text.find("\nfn g").expect("g is there")]);

        let text = "#[rustfmt::skip]\nconst A: &[[u8; 2]] = &[[1, 2]];\nfn g() {}";
        let source = Source::new("x.rs".into(), text.into());
        let items = source.items_with(&["#[rustfmt::skip]"]);
        assert_eq!(&text[items[0].clone()], &text[..text.find("\nfn g").expect("g is there")]);
    }

    #[test]
    fn an_attribute_may_go_on() {
        let text = "#[cfg(all(test, unix))]\nuse a;\nuse b;";
        let source = Source::new("x.rs".into(), text.into());
        let items = source.items_with(&["#[cfg(all(test"]);
        assert_eq!(&text[items[0].clone()], "#[cfg(all(test, unix))]\nuse a;");
    }
}
