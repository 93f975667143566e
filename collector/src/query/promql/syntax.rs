//! From text to the parser's tree, around what the parser crate (`promql-parser` 0.11.1) gets wrong.
//!
//! It refuses raw strings with a backslash (`` `\d+` ``), digit separators (`1_000`) and `offset 0s`; it panics on
//! `[1e300]` and `offset Inf`; it takes a count of more than nine digits in a duration for zero; and its tree is walked
//! recursively, so depth has to be bounded before it is built. One pass over the text rewrites the first kind and refuses
//! the second. Everything else reaches the parser as written.

use crate::query::promql::error::Error;
use crate::query::promql::locate::{Place, locate};
use crate::query::promql::plan;
use crate::store::Matcher;
use promql_parser::parser::Expr;

/// Deepest nesting of parentheses and operators. A chain `a or b or c …` counts each operator.
const MAX_DEPTH: usize = 300;
/// Longest query text, bytes.
const MAX_LENGTH: usize = 256 * 1024;
/// Longest duration: what fits into nanoseconds in an i64, as in Go (292 years).
const MAX_DURATION_MS: f64 = 9_223_372_036_854.0;

/// Parses a query into the parser crate's tree (for `parse_query` and `format_query`).
pub fn parse(query: &str) -> Result<Expr, Error> {
    let text = Rewriter::new(query).run()?;
    promql_parser::parser::parse(&text).map_err(|message| explain(query, &message))
}

/// Parses one instant selector, as in `match[]`.
pub fn selector(text: &str) -> Result<Vec<Matcher>, Error> {
    match parse(text)? {
        Expr::VectorSelector(selector) if selector.offset.is_none() && selector.at.is_none() => {
            plan::matchers(&selector)
        }
        _ => Err(Error::Parse(format!("expected a series selector, got {text}"))),
    }
}

/// Whether the grammar takes a text, whatever its types.
fn is_understood(text: &str) -> bool {
    let parsed = Rewriter::new(text).run().ok().map(|text| promql_parser::parser::parse(&text));
    parsed.is_some_and(|parsed| !parsed.is_err_and(|message| is_of_the_grammar(&message)))
}

/// Whether a message is about what stands where; the others are about types and names.
fn is_of_the_grammar(message: &str) -> bool {
    let begins = ["invalid promql query", "unexpected", "unterminated", "unclosed", "too many left", "expect duration"];
    begins.iter().any(|begin| message.starts_with(begin)) || message.ends_with("can not be at the end")
}

/// The parser's message in Prometheus' words, or the name of what nobody here supports.
fn explain(query: &str, message: &str) -> Error {
    let lower = query.to_lowercase();
    let words = || lower.split(|c: char| !c.is_alphanumeric() && c != '_');
    if let Some(word) = ["smoothed", "anchored"].into_iter().find(|word| words().any(|w| w == *word)) {
        return Error::Unsupported(format!("the modifier {word}"));
    }
    let unexpected = message.strip_prefix("unexpected character inside brackets: ");
    if unexpected.is_some_and(|character| character.contains(['+', '-', '*', '/', '%', '^', '('])) {
        return Error::Unsupported("a computed duration (experimental)".to_owned());
    }
    if lower.contains("</") || lower.contains(">/") {
        return Error::Unsupported("trimming native histograms (</ and >/)".to_owned());
    }
    if let Some(place) = is_of_the_grammar(message).then(|| locate(query, is_understood)).flatten() {
        let Place { line, column, unexpected } = place;
        let unexpected = unexpected.map_or("end of input".to_owned(), |text| format!("{text:?}"));
        return Error::Syntax { line, column, unexpected };
    }
    let types = [("type vector", "type instant vector"), ("type matrix", "type range vector")];
    let got = [("got vector", "got instant vector"), ("got matrix", "got range vector")];
    let mut text = message.to_owned();
    for (ours, theirs) in types.into_iter().chain(got) {
        text = text.replace(ours, theirs);
    }
    Error::Parse(text.replace('\'', "\""))
}

/// One pass over the text.
struct Rewriter<'a> {
    rest: &'a str,
    out: String,
    /// One for each open parenthesis, outermost first.
    levels: Vec<Level>,
    in_braces: bool,
    in_brackets: bool,
    /// Whether a number would be a duration here: after `[`, `:` and `offset`.
    duration_follows: bool,
}

/// What is known about the height of the tree within one pair of parentheses; never less than the truth.
#[derive(Default)]
struct Level {
    /// Operators of the current argument: a chain of them may be as high as it is long.
    operators: usize,
    /// Highest operand of the current argument.
    operand: usize,
    /// Highest of the arguments before.
    earlier: usize,
}

impl Level {
    fn height(&self) -> usize {
        self.earlier.max(self.operators + self.operand)
    }
}

impl<'a> Rewriter<'a> {
    fn new(query: &'a str) -> Self {
        let out = String::with_capacity(query.len());
        let levels = vec![Level::default()];
        Self { rest: query, out, levels, in_braces: false, in_brackets: false, duration_follows: false }
    }

    fn run(mut self) -> Result<String, Error> {
        if self.rest.len() > MAX_LENGTH {
            return Err(Error::Parse(format!("query is longer than {MAX_LENGTH} bytes")));
        }
        while let Some(c) = self.rest.chars().next() {
            match c {
                '#' => self.rest = self.rest.trim_start_matches(|c| c != '\n'),
                '"' | '\'' | '`' => self.string(c),
                '0'..='9' => self.number()?,
                '.' if self.rest[1..].starts_with(|c: char| c.is_ascii_digit()) => self.number()?,
                'a'..='z' | 'A'..='Z' | '_' => self.word()?,
                c => {
                    self.take(c.len_utf8());
                    let duration_expected = std::mem::take(&mut self.duration_follows);
                    match c {
                        '{' | '}' => self.in_braces = c == '{',
                        _ if self.in_braces => {}
                        '(' => self.open()?,
                        ')' => self.close()?,
                        ',' => self.next_argument(),
                        '[' => {
                            (self.in_brackets, self.duration_follows) = (true, true);
                            self.operator()?;
                        }
                        ']' => self.in_brackets = false,
                        ':' if self.in_brackets => self.duration_follows = true,
                        '+' | '-' => {
                            self.duration_follows = duration_expected;
                            self.operator()?;
                        }
                        '*' | '/' | '%' | '^' | '=' | '!' | '<' | '>' | '@' => self.operator()?,
                        c => self.duration_follows = duration_expected && c.is_whitespace(),
                    }
                }
            }
        }
        Ok(self.out)
    }

    fn open(&mut self) -> Result<(), Error> {
        self.levels.push(Level::default());
        self.bounded(self.levels.len())
    }

    fn close(&mut self) -> Result<(), Error> {
        // The parser reports a parenthesis too many.
        if self.levels.len() > 1
            && let Some(inner) = self.levels.pop()
        {
            let level = self.level();
            level.operand = level.operand.max(inner.height() + 1);
        }
        let height = self.level().height();
        self.bounded(height)
    }

    fn next_argument(&mut self) {
        let level = self.level();
        *level = Level { earlier: level.height(), ..Level::default() };
    }

    fn operator(&mut self) -> Result<(), Error> {
        self.level().operators += 1;
        let height = self.level().height();
        self.bounded(height)
    }

    fn level(&mut self) -> &mut Level {
        self.levels.last_mut().expect("the outermost level is never popped")
    }

    fn bounded(&self, height: usize) -> Result<(), Error> {
        match height > MAX_DEPTH {
            true => Err(Error::Parse(format!("query is nested deeper than {MAX_DEPTH} operators and parentheses"))),
            false => Ok(()),
        }
    }

    fn take(&mut self, length: usize) -> &'a str {
        let (token, rest) = self.rest.split_at(length);
        self.out.push_str(token);
        self.rest = rest;
        token
    }

    /// Copies a string; a raw one becomes a quoted one, since the parser takes its backslashes for escapes.
    fn string(&mut self, quote: char) {
        self.duration_follows = false;
        let inner = &self.rest[1..];
        let mut escaped = false;
        let end = inner.find(|c| {
            let closes = c == quote && !escaped;
            escaped = c == '\\' && !escaped && quote != '`';
            closes
        });
        match end {
            Some(end) if quote == '`' => {
                self.out.push('"');
                for c in inner[..end].chars() {
                    match c {
                        '"' => self.out.push_str("\\\""),
                        '\\' => self.out.push_str("\\\\"),
                        '\n' => self.out.push_str("\\n"),
                        c => self.out.push(c),
                    }
                }
                self.out.push('"');
                self.rest = &inner[end + 1..];
            }
            Some(end) => drop(self.take(end + 2)),
            None => drop(self.take(self.rest.len())),
        }
    }

    fn word(&mut self) -> Result<(), Error> {
        let end = self.rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != ':');
        let word = self.take(end.unwrap_or(self.rest.len())).to_ascii_lowercase();
        if self.duration_follows && matches!(word.as_str(), "inf" | "nan") {
            return Err(Error::Parse("duration out of range".to_owned()));
        }
        self.duration_follows = word == "offset" && !self.in_braces;
        match word.as_str() {
            "and" | "or" | "unless" | "atan2" | "offset" if !self.in_braces => self.operator(),
            _ => Ok(()),
        }
    }

    /// Copies a number or a duration, without its digit separators.
    fn number(&mut self) -> Result<(), Error> {
        let hex =
            self.rest.len() > 1 && self.rest.as_bytes()[0] == b'0' && matches!(self.rest.as_bytes()[1], b'x' | b'X');
        let mut last = ' ';
        let end = self.rest.find(|c: char| {
            let belongs = c.is_ascii_alphanumeric()
                || c == '_'
                || c == '.'
                || (!hex && matches!(c, '+' | '-') && matches!(last, 'e' | 'E'));
            last = c;
            !belongs
        });
        let token = &self.rest[..end.unwrap_or(self.rest.len())];
        self.rest = &self.rest[token.len()..];
        let is_duration = !hex && token.ends_with(['s', 'm', 'h', 'd', 'w', 'y']);
        if is_duration {
            let ms =
                duration_ms(token).ok_or_else(|| Error::Parse(format!("not a valid duration string: {token:?}")))?;
            if ms > MAX_DURATION_MS {
                return Err(Error::Parse("duration out of range".to_owned()));
            }
            match ms == 0.0 {
                true => self.out.push('0'),
                false => self.out.push_str(token),
            }
        } else {
            let digits: String = token.chars().filter(|c| *c != '_').collect();
            if self.duration_follows && digits.parse::<f64>().is_ok_and(|seconds| seconds * 1e3 > MAX_DURATION_MS) {
                return Err(Error::Parse("duration out of range".to_owned()));
            }
            self.out.push_str(&digits);
        }
        self.duration_follows = false;
        Ok(())
    }
}

/// `1h30m` in milliseconds. Units may not repeat or grow; that much the parser checks itself.
pub(crate) fn duration_ms(text: &str) -> Option<f64> {
    let mut rest = text;
    let mut total = 0.0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let count: f64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let unit = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let ms = match &rest[..unit] {
            "ms" => 1.0,
            "s" => 1e3,
            "m" => 60e3,
            "h" => 3600e3,
            "d" => 86_400e3,
            "w" => 7.0 * 86_400e3,
            "y" => 365.0 * 86_400e3,
            _ => return None,
        };
        // The parser would read a longer count as zero.
        if digits > 9 {
            return Some(f64::INFINITY);
        }
        total += count * ms;
        rest = &rest[unit..];
    }
    Some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewritten(query: &str) -> String {
        Rewriter::new(query).run().expect(query)
    }

    #[test]
    fn rewrites_what_the_parser_refuses() {
        assert_eq!(rewritten(r#"a{b=~`\d+"`} # why"#), r#"a{b=~"\\d+\""} "#);
        assert_eq!(rewritten("1_000 + 0x_ff"), "1000 + 0xff");
        assert_eq!(rewritten("a offset 0s"), "a offset 0");
        assert_eq!(rewritten(r#"a{b="1_000 \" #"}[5m:30s] @ 1e+3"#), r#"a{b="1_000 \" #"}[5m:30s] @ 1e+3"#);
    }

    #[test]
    fn refuses_what_would_make_the_parser_panic() {
        for query in ["a[1e300]", "a offset Inf", "a offset -NaN", "a[5m:1e300]", "a[99999999999ms]", "a offset 300y"] {
            assert!(matches!(parse(query), Err(Error::Parse(_))), "{query}");
        }
    }

    #[test]
    fn depth_is_bounded_but_width_is_not() {
        let deep = format!("{}1{}", "(".repeat(MAX_DEPTH + 1), ")".repeat(MAX_DEPTH + 1));
        assert!(matches!(parse(&deep), Err(Error::Parse(_))));
        assert!(parse(&"-".repeat(MAX_DEPTH + 1)).is_err());
        let wide = format!("label_join(a, \"b\", \"c\", {})", vec!["\"d\""; 2 * MAX_DEPTH].join(","));
        assert!(parse(&wide).is_ok());
        assert!(parse(&vec!["a"; MAX_DEPTH].join(" or ")).is_ok());
        let staircase = format!("{}a{}", "(".repeat(50), "+a+a+a+a+a+a+a+a)".repeat(50));
        assert!(parse(&staircase).is_err(), "each level adds its chain");
    }

    #[test]
    fn names_what_is_not_supported() {
        assert_eq!(
            parse("rate(a[5m + step()])").unwrap_err().to_string(),
            "a computed duration (experimental) is not supported"
        );
        assert_eq!(parse("rate(a[5m] smoothed)").unwrap_err().to_string(), "the modifier smoothed is not supported");
        assert_eq!(
            parse("abs(a[5m])").unwrap_err().to_string(),
            "parse error: expected type instant vector in call to function \"abs\", got range vector"
        );
    }
}
