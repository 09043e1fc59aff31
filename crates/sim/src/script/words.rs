//! A line in words, each with its column.

/// A word and the column it begins at, from 1 on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Word {
    pub(super) column: usize,
    pub(super) token: Token,
}

/// What a word is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Token {
    /// Anything up to the next blank.
    Bare(String),
    /// What stands between two quotes. There are no escapes: `hex:` says the rest.
    Quoted(String),
}

/// The words of a line up to its comment, and where that begins. `Err` is the column of a quote
/// that nothing ends.
pub(super) fn split(line: &str) -> Result<(Vec<Word>, &str), usize> {
    let mut words = Vec::new();
    let mut rest = line;
    let mut column = 1;
    let mut end = 0;
    loop {
        let blanks = rest.len() - rest.trim_start().len();
        column += rest[..blanks].chars().count();
        rest = &rest[blanks..];
        if rest.is_empty() || rest.starts_with('#') {
            return Ok((words, &line[..end]));
        }
        let (token, len) = match rest.strip_prefix('"') {
            Some(inside) => {
                let len = inside.find('"').ok_or(column)?;
                (Token::Quoted(inside[..len].to_owned()), len + 2)
            }
            None => {
                let len = rest.find(|c: char| c.is_whitespace() || c == '"').unwrap_or(rest.len());
                (Token::Bare(rest[..len].to_owned()), len)
            }
        };
        words.push(Word { column, token });
        column += rest[..len].chars().count();
        rest = &rest[len..];
        end = line.len() - rest.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_have_columns_and_comments_end_the_line() {
        let (words, text) = split("  +0 < q1 \"a # b\"  # said twice").unwrap();
        assert_eq!(text, "  +0 < q1 \"a # b\"");
        let columns: Vec<_> = words.iter().map(|word| word.column).collect();
        assert_eq!(columns, [3, 6, 8, 11]);
        assert_eq!(words[3].token, Token::Quoted("a # b".to_owned()));
        assert_eq!(split("é \"open"), Err(3));
        assert_eq!(split("# nothing").unwrap().0, []);
    }
}
