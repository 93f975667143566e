//! From text to tokens (`promql/parser/lex.go`).

/// A piece of a query.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Token<'a> {
    pub at: usize,
    pub text: &'a str,
    pub kind: Kind,
}

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
    /// Brackets, commas, `=`, `start`, `end`.
    Other,
    End,
    /// No token; this is why.
    Bad(String),
}

const AGGREGATIONS: [&str; 14] = [
    "sum",
    "avg",
    "count",
    "min",
    "max",
    "group",
    "stddev",
    "stdvar",
    "topk",
    "bottomk",
    "count_values",
    "quantile",
    "limitk",
    "limit_ratio",
];
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
    pub fn end(&self) -> usize {
        self.at + self.text.len()
    }

    /// Whether it is that symbol, keyword or operator, in whichever case it is written.
    pub fn is(&self, text: &str) -> bool {
        !matches!(self.kind, Kind::Text | Kind::Identifier | Kind::Metric)
            && self.text.eq_ignore_ascii_case(text)
    }

    /// As messages call it.
    pub fn description(&self) -> String {
        let text = self.text;
        match &self.kind {
            Kind::Identifier => format!("identifier {text:?}"),
            Kind::Metric => format!("metric identifier {text:?}"),
            Kind::Keyword => format!("<{text}>"),
            Kind::Aggregation => format!("<aggr:{text}>"),
            Kind::Operator => format!("<op:{text}>"),
            Kind::Number => format!("number {}", shortened(text)),
            Kind::Duration => format!("duration {}", shortened(text)),
            Kind::Text => format!("string {}", shortened(text)),
            Kind::Other => format!("{text:?}"),
            Kind::End => "end of input".to_owned(),
            Kind::Bad(message) => message.clone(),
        }
    }
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(10) {
        Some((end, _)) => format!("{:?}...", &text[..end]),
        None => format!("{text:?}"),
    }
}

/// The tokens of a query. The last one is the end, or what is no token.
pub(super) fn tokens(query: &str) -> Vec<Token<'_>> {
    let mut lexer = Lexer {
        query,
        at: 0,
        parens: 0,
        in_braces: false,
        in_brackets: false,
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
    /// Whether there was a colon in these brackets.
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
        if matches!(first, '"' | '\'' | '`') {
            return match text_length(rest, first) {
                Ok(length) => self.token(length, Kind::Text),
                Err(message) => self.bad(message),
            };
        }
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
            c if is_alpha(c) && self.in_brackets => {
                self.bad(format!("unexpected character: {c:?}, expected ':'"))
            }
            c if is_alpha(c) || c == ':' => self.word(),
            '=' if pair('~') => self.bad("unexpected character after '=': '~'".to_owned()),
            '!' if !pair('=') => self.bad(format!(
                "unexpected character after '!': {:?}",
                second.unwrap_or(char::REPLACEMENT_CHARACTER)
            )),
            '=' | '!' | '<' | '>' if pair('=') => self.token(2, Kind::Operator),
            '*' | '/' | '%' | '+' | '-' | '^' | '<' | '>' | '@' => self.token(1, Kind::Operator),
            ',' | '=' => self.token(1, Kind::Other),
            '(' | ')' | '{' | '}' | '[' | ']' => self.bracket(first),
            c => self.bad(format!("unexpected character: {c:?}")),
        }
    }

    fn bracket(&mut self, bracket: char) -> Token<'a> {
        match bracket {
            '(' => self.parens += 1,
            ')' if self.parens == 0 => {
                // Prometheus has taken the parenthesis by then, so its place is behind it.
                self.at += 1;
                return self.bad("unexpected right parenthesis ')'".to_owned());
            }
            ')' => self.parens -= 1,
            '[' if self.in_brackets => return self.bad("unexpected left bracket '['".to_owned()),
            ']' if !self.in_brackets => return self.bad("unexpected right bracket ']'".to_owned()),
            '[' | ']' => (self.in_brackets, self.has_colon) = (bracket == '[', false),
            '{' => self.in_braces = true,
            c => return self.bad(format!("unexpected character: {c:?}")),
        }
        self.token(1, Kind::Other)
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
                let c = c.unwrap_or(char::REPLACEMENT_CHARACTER);
                self.bad(format!(
                    "unexpected character after '!' inside braces: {c:?}"
                ))
            }
            ('{', _) => self.bad("unexpected left brace '{'".to_owned()),
            ('}', _) => {
                self.in_braces = false;
                self.token(1, Kind::Other)
            }
            (c, _) => self.bad(format!("unexpected character inside braces: {c:?}")),
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
            "and" | "or" | "unless" | "atan2" => Kind::Operator,
            "inf" | "nan" => Kind::Number,
            "start" | "end" | "step" | "range" => Kind::Other,
            "fill" | "fill_left" | "fill_right" if is_followed_by_paren => Kind::Keyword,
            word if KEYWORDS.contains(&word) => Kind::Keyword,
            word if AGGREGATIONS.contains(&word) => Kind::Aggregation,
            word if word.contains(':') => Kind::Metric,
            _ => Kind::Identifier,
        };
        self.token(length, kind)
    }

    fn number(&mut self) -> Token<'a> {
        let rest = &self.query[self.at..];
        let (number, is_number) = number_length(rest);
        if is_number {
            return self.token(number, Kind::Number);
        }
        match duration_length(rest, number) {
            Ok(length) => self.token(length, Kind::Duration),
            Err(seen) => self.bad(format!(
                "bad number or duration syntax: {:?}",
                &rest[..seen]
            )),
        }
    }

    fn end(&mut self) -> Token<'a> {
        match () {
            () if self.in_braces => self.bad("unexpected end of input inside braces".to_owned()),
            () if self.parens > 0 => self.bad("unclosed left parenthesis".to_owned()),
            () if self.in_brackets => self.bad("unclosed left bracket".to_owned()),
            () => self.token(0, Kind::End),
        }
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
            let comment = text
                .starts_with('#')
                .then(|| text.find(['\n', '\r']).unwrap_or(text.len()));
            self.at += rest.len() - text.len() + comment.unwrap_or(0);
            if comment.is_none() {
                return;
            }
        }
    }
}

/// Length of the quoted text that begins here.
fn text_length(rest: &str, quote: char) -> Result<usize, String> {
    let mut characters = rest.char_indices().skip(1);
    while let Some((at, c)) = characters.next() {
        match c {
            c if c == quote => return Ok(at + 1),
            '\n' if quote != '`' => break,
            '\\' if quote != '`' => match characters.next().map(|(_, escaped)| escaped) {
                Some('a' | 'b' | 'f' | 'n' | 'r' | 't' | 'v' | '\\') => {}
                Some(escaped) if escaped == quote => {}
                Some('0'..='7') => digits(&mut characters, 2, 8)?,
                Some('x') => digits(&mut characters, 2, 16)?,
                Some('u') => digits(&mut characters, 4, 16)?,
                Some('U') => digits(&mut characters, 8, 16)?,
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

fn digits(
    characters: &mut impl Iterator<Item = (usize, char)>,
    count: usize,
    base: u32,
) -> Result<(), String> {
    for _ in 0..count {
        match characters.next() {
            Some((_, c)) if c.is_digit(base) => {}
            Some((_, c)) => {
                return Err(format!(
                    "illegal character {} in escape sequence",
                    code_point(c)
                ));
            }
            None => return Err("escape sequence not terminated".to_owned()),
        }
    }
    Ok(())
}

fn code_point(c: char) -> String {
    format!("U+{:04X} '{c}'", u32::from(c))
}

/// How far a number reaches, and whether it is one.
fn number_length(rest: &str) -> (usize, bool) {
    let bytes = rest.as_bytes();
    let at = |index: usize| bytes.get(index).copied().unwrap_or(0);
    let is_hex = at(0) == b'0' && matches!(at(1), b'x' | b'X');
    let mut end = if is_hex {
        2 + usize::from(at(2) == b'_')
    } else {
        0
    };
    let (mut dot, mut exponent) = (false, false);
    loop {
        match at(end) {
            c if c.is_ascii_digit() || (is_hex && c.is_ascii_hexdigit()) => end += 1,
            b'.' => {
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
                if is_wrong || end == bytes.len() || matches!(at(end), b'.' | b'_' | b'e' | b'E') {
                    return (end, false);
                }
            }
            b'_' => {
                end += 1;
                if end == bytes.len() || matches!(at(end), b'.' | b'_' | b'e' | b'E') {
                    return (end, false);
                }
            }
            c => return (end, !is_alphanumeric(char::from(c))),
        }
    }
}

/// How far a duration reaches whose first count ends at `end`, else how far it was one.
fn duration_length(rest: &str, mut end: usize) -> Result<usize, usize> {
    let bytes = rest.as_bytes();
    let is = |index: usize, set: &[u8]| bytes.get(index).is_some_and(|c| set.contains(c));
    let mut units: &[u8] = b"smhdwy";
    loop {
        if !is(end, units) {
            return Err(end);
        }
        end += 1;
        end += usize::from(is(end, b"s"));
        if !is(end, b"0123456789") {
            break;
        }
        while is(end, b"0123456789") {
            end += 1;
        }
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
