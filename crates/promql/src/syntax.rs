//! From text to the parser's tree, around what the parser crate (`promql-parser` 0.11.1) gets wrong.
//!
//! It refuses raw strings with a backslash (`` `\d+` ``), digit separators (`1_000`) and `offset 0s`; it panics on
//! `[1e300]` and `offset Inf`; it takes a count of more than nine digits in a duration for zero; and its tree is walked
//! recursively, so depth has to be bounded before it is built. One pass over the text rewrites the first kind and refuses
//! the second. Everything else reaches the parser as written.

use crate::error::Error;
use crate::outline;
use crate::plan;
use promql_parser::parser::Expr;
use takt_model::Matcher;

/// Deepest nesting of parentheses and operators. A chain `a or b or c …` counts each operator.
pub(crate) const MAX_DEPTH: usize = 300;
/// Longest query text, bytes.
const MAX_LENGTH: usize = 256 * 1024;
/// Longest duration: what fits into nanoseconds in an i64, as in Go (292 years).
const MAX_DURATION_MS: f64 = 9_223_372_036_854.0;

/// Parses a query into the parser crate's tree (for `parse_query` and `format_query`).
pub fn parse(query: &str) -> Result<Expr, Error> {
    parse_somewhere(query).map_err(|error| placed(query, error, |part| parse_somewhere(part).err()))
}

/// As [`parse`], but most errors name no place.
pub(crate) fn parse_somewhere(query: &str) -> Result<Expr, Error> {
    let text = Rewriter::new(query).run()?;
    promql_parser::parser::parse(&text).map_err(|message| explain(query, &message))
}

/// An error with its place; `refusal` is what is wrong with a part of the query alone.
pub(crate) fn placed(query: &str, error: Error, refusal: impl Fn(&str) -> Option<Error>) -> Error {
    let Error::Parse { place: None, text } = &error else {
        return error;
    };
    let outline = match outline::read(query) {
        Ok(outline) => outline,
        Err(fault) => return Error::fault(query, fault),
    };
    // To Prometheus a name that is unknown is a fault of grammar, which comes before those of types.
    let is_known = !text.starts_with("unknown function");
    if let Some(fault) = is_known.then(|| outline::check(&outline).err()).flatten() {
        return Error::fault(query, fault);
    }
    let is_refused = |part: &str| matches!(refusal(part), Some(Error::Parse { text: other, .. }) if other == *text);
    match outline.blame(query, &is_refused) {
        Some(at) => Error::fault(
            query,
            outline::Fault {
                at,
                text: text.clone(),
            },
        ),
        None => error,
    }
}

/// Parses one instant selector, as in `match[]`.
pub fn selector(text: &str) -> Result<Vec<Matcher>, Error> {
    match parse(text)? {
        Expr::VectorSelector(selector) if selector.offset.is_none() && selector.at.is_none() => {
            plan::matchers(&selector)
        }
        _ => Err(Error::parse(format!(
            "expected a series selector, got {text}"
        ))),
    }
}

/// The parser's message in Prometheus' words, or the name of what nobody here supports.
fn explain(query: &str, message: &str) -> Error {
    let lower = query.to_lowercase();
    let words = || lower.split(|c: char| !c.is_alphanumeric() && c != '_');
    if let Some(word) = ["smoothed", "anchored"]
        .into_iter()
        .find(|word| words().any(|w| w == *word))
    {
        return Error::Unsupported(format!("the modifier {word}"));
    }
    let unexpected = message.strip_prefix("unexpected character inside brackets: ");
    if unexpected.is_some_and(|character| character.contains(['+', '-', '*', '/', '%', '^', '('])) {
        return Error::Unsupported("a computed duration (experimental)".to_owned());
    }
    if lower.contains("</") || lower.contains(">/") {
        return Error::Unsupported("trimming native histograms (</ and >/)".to_owned());
    }
    let types = [
        ("type vector", "type instant vector"),
        ("type matrix", "type range vector"),
    ];
    let got = [
        ("got vector", "got instant vector"),
        ("got matrix", "got range vector"),
    ];
    let mut text = message.to_owned();
    for (ours, theirs) in types.into_iter().chain(got) {
        text = text.replace(ours, theirs);
    }
    Error::parse(text.replace('\'', "\""))
}

/// One pass over the text.
struct Rewriter<'a> {
    query: &'a str,
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
        Self {
            query,
            rest: query,
            out,
            levels,
            in_braces: false,
            in_brackets: false,
            duration_follows: false,
        }
    }

    fn run(mut self) -> Result<String, Error> {
        if self.rest.len() > MAX_LENGTH {
            return Err(Error::parse(format!(
                "query is longer than {MAX_LENGTH} bytes"
            )));
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
        *level = Level {
            earlier: level.height(),
            ..Level::default()
        };
    }

    fn operator(&mut self) -> Result<(), Error> {
        self.level().operators += 1;
        let height = self.level().height();
        self.bounded(height)
    }

    fn level(&mut self) -> &mut Level {
        self.levels
            .last_mut()
            .expect("the outermost level is never popped")
    }

    fn bounded(&self, height: usize) -> Result<(), Error> {
        match height > MAX_DEPTH {
            true => Err(Error::parse(format!(
                "query is nested deeper than {MAX_DEPTH} operators and parentheses"
            ))),
            false => Ok(()),
        }
    }

    fn take(&mut self, length: usize) -> &'a str {
        let (token, rest) = self.rest.split_at(length);
        self.out.push_str(token);
        self.rest = rest;
        token
    }

    /// The duration of so many bytes that was just read.
    fn too_long(&self, length: usize) -> Error {
        let at = self.query.len() - self.rest.len() - length;
        Error::fault(
            self.query,
            outline::Fault {
                at,
                text: "duration out of range".to_owned(),
            },
        )
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
        let end = self
            .rest
            .find(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != ':');
        let word = self
            .take(end.unwrap_or(self.rest.len()))
            .to_ascii_lowercase();
        if self.duration_follows && matches!(word.as_str(), "inf" | "nan") {
            return Err(self.too_long(word.len()));
        }
        self.duration_follows = word == "offset" && !self.in_braces;
        match word.as_str() {
            "and" | "or" | "unless" | "atan2" | "offset" if !self.in_braces => self.operator(),
            _ => Ok(()),
        }
    }

    /// Copies a number or a duration, without its digit separators.
    fn number(&mut self) -> Result<(), Error> {
        let hex = self.rest.len() > 1
            && self.rest.as_bytes()[0] == b'0'
            && matches!(self.rest.as_bytes()[1], b'x' | b'X');
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
            let ms = duration_ms(token)
                .ok_or_else(|| Error::parse(format!("not a valid duration string: {token:?}")))?;
            if ms > MAX_DURATION_MS {
                return Err(self.too_long(token.len()));
            }
            match ms == 0.0 {
                true => self.out.push('0'),
                false => self.out.push_str(token),
            }
        } else {
            let digits: String = token.chars().filter(|c| *c != '_').collect();
            if self.duration_follows
                && digits
                    .parse::<f64>()
                    .is_ok_and(|seconds| seconds * 1e3 > MAX_DURATION_MS)
            {
                return Err(self.too_long(token.len()));
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
        let unit = rest
            .find(|c: char| c.is_ascii_digit())
            .unwrap_or(rest.len());
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
        assert_eq!(
            rewritten(r#"a{b="1_000 \" #"}[5m:30s] @ 1e+3"#),
            r#"a{b="1_000 \" #"}[5m:30s] @ 1e+3"#
        );
    }

    #[test]
    fn refuses_what_would_make_the_parser_panic() {
        for query in [
            "a[1e300]",
            "a offset Inf",
            "a offset -NaN",
            "a[5m:1e300]",
            "a[99999999999ms]",
            "a offset 300y",
        ] {
            assert!(matches!(parse(query), Err(Error::Parse { .. })), "{query}");
        }
    }

    #[test]
    fn depth_is_bounded_but_width_is_not() {
        let deep = format!(
            "{}1{}",
            "(".repeat(MAX_DEPTH + 1),
            ")".repeat(MAX_DEPTH + 1)
        );
        assert!(matches!(parse(&deep), Err(Error::Parse { .. })));
        assert!(parse(&"-".repeat(MAX_DEPTH + 1)).is_err());
        let wide = format!(
            "label_join(a, \"b\", \"c\", {})",
            vec!["\"d\""; 2 * MAX_DEPTH].join(",")
        );
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
        assert_eq!(
            parse("rate(a[5m] smoothed)").unwrap_err().to_string(),
            "the modifier smoothed is not supported"
        );
    }
}
