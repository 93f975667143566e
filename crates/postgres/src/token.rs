//! Splits SQL text into tokens: enough of PostgreSQL's lexer to find the ends of statements and the
//! names.

/// The kind of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Spaces and comments.
    Space,
    /// A keyword or a name without quotes.
    Word,
    /// A name in double quotes.
    Quoted,
    /// A text in single quotes or between dollars.
    Text,
    /// A number.
    Number,
    /// `$1`.
    Parameter,
    /// Any other character; `::` is one token.
    Symbol,
}

/// A token of a SQL text. Together, the tokens are the whole text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Token<'a> {
    /// Kind of the token.
    pub kind: Kind,
    /// Text of the token.
    pub text: &'a str,
}

impl Token<'_> {
    /// Returns whether the token is this keyword or name. Quoted names are case-sensitive.
    pub fn is(&self, word: &str) -> bool {
        match self.kind {
            Kind::Word | Kind::Symbol => self.text.eq_ignore_ascii_case(word),
            Kind::Quoted => self.text.trim_matches('"') == word,
            _ => false,
        }
    }

    /// Returns whether the token can be a name.
    pub fn is_name(&self) -> bool {
        matches!(self.kind, Kind::Word | Kind::Quoted)
    }
}

/// Returns the tokens of a text. An unclosed quote or comment extends to the end.
pub fn tokens(text: &str) -> Vec<Token<'_>> {
    Tokens(text).collect()
}

/// Returns the number of tokens of a text, which takes no memory.
pub fn token_count(text: &str) -> usize {
    Tokens(text).count()
}

/// The tokens of what is left of a text.
struct Tokens<'a>(&'a str);

impl<'a> Iterator for Tokens<'a> {
    type Item = Token<'a>;

    fn next(&mut self) -> Option<Token<'a>> {
        let first = self.0.chars().next()?;
        let (kind, length) = next(self.0, first);
        let (text, rest) = self.0.split_at(length);
        self.0 = rest;
        Some(Token { kind, text })
    }
}

fn next(text: &str, first: char) -> (Kind, usize) {
    let run = |accepts: fn(char) -> bool| text.find(|c| !accepts(c)).unwrap_or(text.len());
    match first {
        c if c.is_whitespace() => (Kind::Space, run(char::is_whitespace)),
        '-' if text.starts_with("--") => {
            (Kind::Space, text.find('\n').map_or(text.len(), |at| at + 1))
        }
        '/' if text.starts_with("/*") => (Kind::Space, block_comment(text)),
        // An escape text: only there a backslash protects a quote.
        'e' | 'E' if text[1..].starts_with('\'') => {
            (Kind::Text, 1 + quoted(&text[1..], '\'', true))
        }
        '\'' => (Kind::Text, quoted(text, '\'', false)),
        '"' => (Kind::Quoted, quoted(text, '"', false)),
        '$' => dollar(text),
        c if c.is_ascii_digit() => (Kind::Number, number(text)),
        c if c.is_alphabetic() || c == '_' => (
            Kind::Word,
            run(|c| c.is_alphanumeric() || c == '_' || c == '$'),
        ),
        ':' if text.starts_with("::") => (Kind::Symbol, 2),
        c => (Kind::Symbol, c.len_utf8()),
    }
}

/// Returns the length of a comment. PostgreSQL's comments nest.
fn block_comment(text: &str) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < text.len() {
        // By bytes: both marks are ASCII, so no character is split.
        let rest = &text.as_bytes()[at..];
        if rest.starts_with(b"/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if rest.starts_with(b"*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    text.len()
}

/// Returns the length of a quoted text. A doubled quote does not end it; with `backslashes`,
/// neither does a quote after a backslash.
fn quoted(text: &str, quote: char, backslashes: bool) -> usize {
    let mut characters = text.char_indices().skip(1).peekable();
    while let Some((at, c)) = characters.next() {
        if c == quote {
            match characters.peek() {
                Some(&(_, next)) if next == quote => drop(characters.next()),
                _ => return at + 1,
            }
        } else if backslashes && c == '\\' {
            characters.next();
        }
    }
    text.len()
}

/// Returns the kind and length of `$1` or `$tag$ text $tag$`.
fn dollar(text: &str) -> (Kind, usize) {
    let digits = text[1..]
        .find(|c: char| !c.is_ascii_digit())
        .map_or(text.len(), |at| at + 1);
    if digits > 1 {
        return (Kind::Parameter, digits);
    }
    let tag = text[1..]
        .find(|c: char| !(c.is_alphanumeric() || c == '_'))
        .map_or(text.len(), |at| at + 1);
    // A lone dollar; the next token begins behind it.
    if !text[tag..].starts_with('$') {
        return (Kind::Symbol, 1);
    }
    let mark = &text[..=tag];
    let end = text[mark.len()..]
        .find(mark)
        .map_or(text.len(), |at| mark.len() + at + mark.len());
    (Kind::Text, end)
}

fn number(text: &str) -> usize {
    let mut end = text
        .find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '_'))
        .unwrap_or(text.len());

    if text[end..].starts_with(['e', 'E']) {
        let exponent = &text[end + 1..];
        let sign = usize::from(exponent.starts_with(['+', '-']));
        let digits = exponent[sign..]
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(exponent.len() - sign);
        // `1e` is the number 1 and a word.
        if digits > 0 {
            end += 1 + sign + digits;
        }
    }
    end
}

/// Returns the statements of a message, without semicolons and without statements that contain only
/// comments.
pub fn statements(text: &str) -> Vec<Vec<Token<'_>>> {
    tokens(text)
        .split(|token| token.kind == Kind::Symbol && token.text == ";")
        // Drivers send `;` or a comment as a ping; an empty statement has no answer of its own.
        .filter(|tokens| tokens.iter().any(|token| token.kind != Kind::Space))
        .map(<[Token<'_>]>::to_vec)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_semicolon_inside_of_something_ends_no_statement() {
        let text = "SELECT ';', \"a;b\", $$;$$, $x$;$$;$x$, E'\\';' -- ;\n, /* ; /* ; */ ; */ 1; ; SELECT $1, 1.5e-3::int -- end";
        let found: Vec<String> = statements(text)
            .iter()
            .map(|tokens| tokens.iter().map(|token| token.text).collect())
            .collect();
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].ends_with("*/ 1"));
        assert!(statements("-- ping").is_empty() && statements(" ;; /* */").is_empty());
    }

    #[test]
    fn kinds_are_distinguished() {
        let kinds = |text| {
            tokens(text)
                .into_iter()
                .map(|token| (token.kind, token.text))
                .collect::<Vec<_>>()
        };
        assert_eq!(
            kinds("$12::\"A b\""),
            [
                (Kind::Parameter, "$12"),
                (Kind::Symbol, "::"),
                (Kind::Quoted, "\"A b\"")
            ]
        );
        assert_eq!(kinds("1e5e"), [(Kind::Number, "1e5"), (Kind::Word, "e")]);
        assert_eq!(
            kinds("a$b 'it''s'"),
            [
                (Kind::Word, "a$b"),
                (Kind::Space, " "),
                (Kind::Text, "'it''s'")
            ]
        );
    }

    proptest! {
        #[test]
        fn the_tokens_are_the_text(text in "\\PC*|[ '\"$;a1/*\\-\\\\eE\n.:]*") {
            prop_assert_eq!(
                tokens(&text)
                    .iter()
                    .map(|token| token.text)
                    .collect::<String>(),
                text
            );
        }
    }
}
