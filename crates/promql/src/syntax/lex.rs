//! From text to tokens (`promql/parser/lex.go`).

use super::tree::{Aggregation, Operator};
use takt_model::quoted;

/// A token of a query.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Token<'a> {
    pub at: usize,
    pub text: &'a str,
    pub kind: Kind,
}

/// The kinds of tokens.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Kind {
    Identifier,
    /// A name with a colon.
    Metric,
    Keyword,
    Aggregation,
    Operator,
    Number,
    Duration,
    Text,
    /// Brackets, commas, `=`, and the words of [`PREPROCESSORS`].
    Other,
    End,
    /// The rest of the query is not a token, for this reason.
    Bad(String),
}

/// Words that are both functions and parts of modifiers.
pub(super) const PREPROCESSORS: [&str; 6] = ["start", "end", "step", "range", "max_of", "min_of"];
/// Words that a computed duration may contain.
const DURATION_WORDS: [&str; 4] = ["step", "range", "max_of", "min_of"];
const KEYWORDS: [&str; 10] = [
    "offset",
    "smoothed",
    "anchored",
    "by",
    "without",
    "on",
    "ignoring",
    "group_left",
    "group_right",
    "bool",
];

impl<'a> Token<'a> {
    /// Whether the token is that symbol, keyword or operator, in whichever case it is written.
    pub fn is(&self, text: &str) -> bool {
        !matches!(self.kind, Kind::Text | Kind::Identifier | Kind::Metric)
            && self.text.eq_ignore_ascii_case(text)
    }

    /// The token as messages name it.
    pub fn description(&self) -> String {
        let text = self.text;
        match &self.kind {
            Kind::Identifier => format!("identifier {}", quoted(text)),
            Kind::Metric => format!("metric identifier {}", quoted(text)),
            Kind::Keyword => format!("<{text}>"),
            Kind::Aggregation => format!("<aggr:{text}>"),
            Kind::Operator => format!("<op:{text}>"),
            Kind::Number => format!("number {}", shortened(text)),
            Kind::Duration => format!("duration {}", shortened(text)),
            Kind::Text => format!("string {}", shortened(text)),
            Kind::Other => shortened(text),
            Kind::End => "end of input".to_owned(),
            Kind::Bad(message) => message.clone(),
        }
    }
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(10) {
        Some((end, _)) => format!("{}...", quoted(&text[..end])),
        None => quoted(text),
    }
}

/// The tokens of a query. The last one is [`Kind::End`] or [`Kind::Bad`].
pub(super) fn tokens(query: &str) -> Vec<Token<'_>> {
    let mut lexer = Lexer {
        query,
        at: 0,
        parens: 0,
        in_braces: false,
        in_brackets: false,
        expects_duration: false,
        has_duration: false,
        has_colon: false,
    };

    let mut tokens = Vec::new();
    loop {
        let token = lexer.next();
        let is_last = matches!(token.kind, Kind::End | Kind::Bad(_));
        tokens.push(token);
        if is_last {
            return tokens;
        }
    }
}

struct Lexer<'a> {
    query: &'a str,
    at: usize,
    parens: usize,
    in_braces: bool,
    in_brackets: bool,
    /// Whether the brackets were opened and no number was read since.
    expects_duration: bool,
    /// Whether a number was ever read within brackets.
    has_duration: bool,
    /// Whether a colon was read in these brackets.
    has_colon: bool,
}

impl<'a> Lexer<'a> {
    fn next(&mut self) -> Token<'a> {
        self.skip_blanks();
        let rest = &self.query[self.at..];
        let Some(first) = rest.chars().next() else {
            return self.end();
        };

        let second = rest[first.len_utf8()..].chars().next();
        if self.expects_duration {
            return self.duration(first, second);
        }

        if matches!(first, '"' | '\'' | '`') {
            return match text_length(rest, first) {
                Ok(length) => self.token(length, Kind::Text),
                Err(message) => self.bad(message),
            };
        }

        // Within braces `by` and `sum` are labels, and `:` is wrong, so the rules are others.
        if self.in_braces {
            return self.inside_braces(first, second);
        }

        let pair = |next: char| second == Some(next);
        match first {
            '0'..='9' => self.number(),
            '.' if second.is_some_and(|c| c.is_ascii_digit()) => self.number(),
            ':' if self.in_brackets && self.has_colon => {
                self.bad("unexpected colon ':'".to_owned())
            }
            ':' if self.in_brackets => {
                self.has_colon = true;
                self.token(1, Kind::Other)
            }
            c if is_alpha(c) && self.in_brackets => match self.duration_word() {
                Some(length) => self.token(length, Kind::Other),
                None => self.bad(format!(
                    "unexpected character: {}, expected ':'",
                    quoted_char(c)
                )),
            },
            c if is_alpha(c) || c == ':' => self.word(),
            '=' if pair('~') => self.bad("unexpected character after '=': '~'".to_owned()),
            '!' if !pair('=') => self.bad(format!(
                "unexpected character after '!': {}",
                quoted_char(second.unwrap_or(char::REPLACEMENT_CHARACTER))
            )),
            '=' | '!' | '<' | '>' if pair('=') => self.token(2, Kind::Operator),
            '<' | '>' if pair('/') => self.token(2, Kind::Operator),
            '*' | '/' | '%' | '+' | '-' | '^' | '<' | '>' | '@' => self.token(1, Kind::Operator),
            ',' | '=' => self.token(1, Kind::Other),
            '(' | ')' | '{' | '}' | '[' | ']' => self.bracket(first),
            c => self.bad(format!("unexpected character: {}", quoted_char(c))),
        }
    }

    fn bracket(&mut self, bracket: char) -> Token<'a> {
        match bracket {
            '(' => self.parens += 1,
            ')' if self.parens == 0 => {
                // Prometheus has read the parenthesis by then, so the place is behind it.
                self.at += 1;
                return self.bad("unexpected right parenthesis ')'".to_owned());
            }
            ')' => self.parens -= 1,
            '[' if self.in_brackets => return self.bad("unexpected left bracket '['".to_owned()),
            ']' if !self.in_brackets => return self.bad("unexpected right bracket ']'".to_owned()),
            '[' => {
                self.in_brackets = true;
                self.expects_duration = true;
                self.has_colon = false;
            }
            ']' => self.in_brackets = false,
            '{' => self.in_braces = true,
            c => return self.bad(format!("unexpected character: {}", quoted_char(c))),
        }
        self.token(1, Kind::Other)
    }

    /// The next token between an opening bracket and the first number.
    fn duration(&mut self, first: char, second: Option<char>) -> Token<'a> {
        match first {
            '0'..='9' => self.number(),
            '.' if second.is_some_and(|c| c.is_ascii_digit()) => self.number(),
            ']' => {
                self.in_brackets = false;
                self.expects_duration = false;
                self.token(1, Kind::Other)
            }
            '(' | ')' => self.bracket(first),
            ',' => self.token(1, Kind::Other),
            '+' | '-' | '*' | '/' | '%' | '^' => self.token(1, Kind::Operator),
            ':' if !self.has_duration => {
                // Prometheus has read the colon by then, so the place is behind it.
                self.at += 1;
                self.bad("unexpected colon before duration in duration expression".to_owned())
            }
            ':' if self.has_colon => {
                self.at += 1;
                self.bad("unexpected repeated colon in duration expression".to_owned())
            }
            ':' => {
                self.has_colon = true;
                self.token(1, Kind::Other)
            }
            c => match self.duration_word() {
                Some(length) => self.token(length, Kind::Other),
                None => self.bad(format!(
                    "unexpected character in duration expression: {}",
                    quoted_char(c)
                )),
            },
        }
    }

    /// Length of the word here, where a computed duration may contain it.
    fn duration_word(&self) -> Option<usize> {
        let rest = &self.query[self.at..];
        let length = rest.find(|c| !is_alpha(c)).unwrap_or(rest.len());
        let word = rest[..length].to_ascii_lowercase();
        DURATION_WORDS.contains(&word.as_str()).then_some(length)
    }

    fn inside_braces(&mut self, first: char, second: Option<char>) -> Token<'a> {
        match (first, second) {
            (c, _) if is_alpha(c) => {
                let rest = &self.query[self.at..];
                self.token(
                    rest.find(|c| !is_alphanumeric(c)).unwrap_or(rest.len()),
                    Kind::Identifier,
                )
            }
            ('=', Some('~')) | ('!', Some('~' | '=')) => self.token(2, Kind::Operator),
            ('=' | ',', _) => self.token(1, Kind::Other),
            ('!', c) => {
                let c = quoted_char(c.unwrap_or(char::REPLACEMENT_CHARACTER));
                self.bad(format!("unexpected character after '!' inside braces: {c}"))
            }
            ('{', _) => self.bad("unexpected left brace '{'".to_owned()),
            ('}', _) => {
                self.in_braces = false;
                self.token(1, Kind::Other)
            }
            (c, _) => self.bad(format!(
                "unexpected character inside braces: {}",
                quoted_char(c)
            )),
        }
    }

    fn word(&mut self) -> Token<'a> {
        let rest = &self.query[self.at..];
        let length = rest
            .find(|c| !is_alphanumeric(c) && c != ':')
            .unwrap_or(rest.len());

        let word = rest[..length].to_ascii_lowercase();
        let is_followed_by_paren = rest[length..].trim_start().starts_with('(');

        let kind = match word.as_str() {
            "inf" | "nan" => Kind::Number,
            word if Operator::find(word).is_some() => Kind::Operator,
            word if PREPROCESSORS.contains(&word) => Kind::Other,
            "fill" | "fill_left" | "fill_right" if is_followed_by_paren => Kind::Keyword,
            word if KEYWORDS.contains(&word) => Kind::Keyword,
            word if Aggregation::find(word).is_some() => Kind::Aggregation,
            word if word.contains(':') => Kind::Metric,
            _ => Kind::Identifier,
        };

        self.token(length, kind)
    }

    fn number(&mut self) -> Token<'a> {
        let rest = &self.query[self.at..];
        self.has_duration |= self.in_brackets;
        self.expects_duration = false;
        let (number, is_number) = number_length(rest);
        if is_number {
            return self.token(number, Kind::Number);
        }
        match duration_length(rest, number) {
            Ok(length) => self.token(length, Kind::Duration),
            Err(seen) => self.bad(format!(
                "bad number or duration syntax: {}",
                quoted(&rest[..seen])
            )),
        }
    }

    fn end(&mut self) -> Token<'a> {
        let unfinished = if self.in_braces {
            "unexpected end of input inside braces"
        } else if self.expects_duration {
            "unexpected end of input in duration expression"
        } else if self.parens > 0 {
            "unclosed left parenthesis"
        } else if self.in_brackets {
            "unclosed left bracket"
        } else {
            return self.token(0, Kind::End);
        };
        self.bad(unfinished.to_owned())
    }

    fn token(&mut self, length: usize, kind: Kind) -> Token<'a> {
        let at = self.at;
        self.at += length;
        Token {
            at,
            text: &self.query[at..self.at],
            kind,
        }
    }

    fn bad(&mut self, message: String) -> Token<'a> {
        self.token(0, Kind::Bad(message))
    }

    fn skip_blanks(&mut self) {
        loop {
            let rest = &self.query[self.at..];
            let text = rest.trim_start_matches([' ', '\t', '\n', '\r']);
            // Prometheus does not know comments between `[` and the first number.
            let comment = (text.starts_with('#') && !self.expects_duration)
                .then(|| text.find(['\n', '\r']).unwrap_or(text.len()));
            self.at += rest.len() - text.len() + comment.unwrap_or(0);
            if comment.is_none() {
                return;
            }
        }
    }
}

/// Length of the quoted text that begins here, quotes included. Fails on a wrong escape and without an end.
pub(crate) fn text_length(rest: &str, quote: char) -> Result<usize, String> {
    let mut characters = rest.char_indices().skip(1);
    while let Some((at, c)) = characters.next() {
        match c {
            c if c == quote => return Ok(at + 1),
            // Go does not distinguish U+FFFD in the query from bytes that are no UTF-8, and refuses
            // both.
            char::REPLACEMENT_CHARACTER => return Err("invalid UTF-8 rune".to_owned()),
            '\n' if quote != '`' => break,
            '\\' if quote != '`' => match characters.next().map(|(_, escaped)| escaped) {
                Some('a' | 'b' | 'f' | 'n' | 'r' | 't' | 'v' | '\\') => {}
                Some(escaped) if escaped == quote => {}
                // Three octal digits, the first of which is read already; `\400` does not fit into
                // a byte.
                Some(first @ '0'..='7') => {
                    let first = first.to_digit(8).unwrap_or_default();
                    code(&mut characters, 2, 8, first, 0xff)?;
                }
                Some('x') => code(&mut characters, 2, 16, 0, 0xff)?,
                Some('u') => code(&mut characters, 4, 16, 0, MAX_CODE_POINT)?,
                Some('U') => code(&mut characters, 8, 16, 0, MAX_CODE_POINT)?,
                Some(c) => return Err(format!("unknown escape sequence {}", code_point(c))),
                None => return Err("escape sequence not terminated".to_owned()),
            },
            _ => {}
        }
    }

    Err(if quote == '`' {
        "unterminated raw string"
    } else {
        "unterminated quoted string"
    }
    .to_owned())
}

const MAX_CODE_POINT: u32 = 0x0010_ffff;

/// Reads `count` digits of an escape after those that gave `value`; fails where the code exceeds `max`.
fn code(
    characters: &mut impl Iterator<Item = (usize, char)>,
    count: usize,
    radix: u32,
    mut value: u32,
    max: u32,
) -> Result<(), String> {
    for _ in 0..count {
        let (_, c) = characters.next().ok_or("escape sequence not terminated")?;
        let digit = c
            .to_digit(radix)
            .ok_or_else(|| format!("illegal character {} in escape sequence", code_point(c)))?;
        // Eight hexadecimal digits just fit, so nothing is lost before the check below.
        value = value.wrapping_mul(radix).wrapping_add(digit);
    }
    if value > max || (0xd800..0xe000).contains(&value) {
        return Err("escape sequence is an invalid Unicode code point".to_owned());
    }
    Ok(())
}

/// A character as Go writes it with `%q`.
fn quoted_char(c: char) -> String {
    match c {
        '\'' => r"'\''".to_owned(),
        '"' => "'\"'".to_owned(),
        c => {
            let text = quoted(c.encode_utf8(&mut [0; 4]));
            format!("'{}'", &text[1..text.len() - 1])
        }
    }
}

/// As Go shows it: the character itself only if it can be printed.
fn code_point(c: char) -> String {
    let number = u32::from(c);
    let is_printable =
        matches!(c, '"' | '\\') || quoted(c.encode_utf8(&mut [0; 4])) == format!("\"{c}\"");
    if is_printable {
        format!("U+{number:04X} '{c}'")
    } else {
        format!("U+{number:04X}")
    }
}

/// Length of the number here, and whether the number is well formed.
fn number_length(rest: &str) -> (usize, bool) {
    let bytes = rest.as_bytes();
    let at = |index: usize| bytes.get(index).copied().unwrap_or(0);
    let is_hex = at(0) == b'0' && matches!(at(1), b'x' | b'X');
    let mut end = if is_hex {
        2 + usize::from(at(2) == b'_')
    } else {
        // Prometheus does not count a dot at the beginning, so `.5.` is a malformed number, not two tokens.
        usize::from(at(0) == b'.')
    };

    let mut dot = false;
    let mut exponent = false;
    loop {
        match at(end) {
            c if c.is_ascii_digit() || (is_hex && c.is_ascii_hexdigit()) => end += 1,
            b'.' => {
                // The message shows the text up to the first wrong character, so the length has to
                // be right, too.
                let is_wrong = dot || is_hex;
                (dot, end) = (true, end + 1);
                if is_wrong || matches!(at(end), b'_' | b'.') {
                    return (end + usize::from(!is_wrong), false);
                }
            }
            b'e' | b'E' => {
                let is_wrong = exponent;
                (exponent, end) = (true, end + 1);
                end += usize::from(!is_wrong && matches!(at(end), b'+' | b'-'));
                let is_followed = !is_wrong && matches!(at(end), b'.' | b'_' | b'e' | b'E');
                if is_wrong || end == bytes.len() || is_followed {
                    return (end + usize::from(is_followed), false);
                }
            }
            b'_' => {
                end += 1;
                let is_followed = matches!(at(end), b'.' | b'_' | b'e' | b'E');
                if end == bytes.len() || is_followed {
                    return (end + usize::from(is_followed), false);
                }
            }
            c => return (end, !is_alphanumeric(char::from(c))),
        }
    }
}

/// Length of the duration here, whose first count ends at `end`; else, how far it was well formed.
fn duration_length(rest: &str, mut end: usize) -> Result<usize, usize> {
    let bytes = rest.as_bytes();
    let is = |index: usize, set: &[u8]| bytes.get(index).is_some_and(|c| set.contains(c));
    let mut units: &[u8] = b"smhdwy";

    loop {
        if !is(end, units) {
            return Err(end);
        }
        end += 1;

        // After `m` this is `ms`; `hs` passes, too, and is refused as an unknown unit.
        end += usize::from(is(end, b"s"));
        if !is(end, b"0123456789") {
            break;
        }
        while is(end, b"0123456789") {
            end += 1;
        }
        // As in Prometheus' lexer, a year can only come first.
        units = b"smhdw";
    }

    match rest[end..].chars().next() {
        Some(c) if is_alphanumeric(c) => Err(end + 1),
        _ => Ok(end),
    }
}

fn is_alpha(c: char) -> bool {
    c.is_ascii_alphabetic() || c == '_'
}

fn is_alphanumeric(c: char) -> bool {
    is_alpha(c) || c.is_ascii_digit()
}
