//! PromQL's grammar: from text to a tree that knows the place of each part.
//!
//! ```text
//! text ─► lex (tokens) ─► read (tree; faults of grammar) ─► check (faults of types) ─► Expression
//! ```
//! The modules follow Prometheus 3.14 (`promql/parser/{lex.go,generated_parser.y,parse.go,printer.go,prettier.go}`).
//!
//! Takt has its own parser because errors and annotations have to name the same place in the same words as Prometheus, and
//! the crate `promql-parser` (0.11) has no positions. That crate also refuses raw strings with a backslash, digit separators and
//! `offset 0s`, panics on `[1e300]` and `offset Inf`, reads `\xHH` as a character, and builds trees of any depth.
//!
//! The grammar is complete. What Takt does not evaluate, and what Prometheus calls experimental, is refused by
//! [`plan`](crate::plan), by name.

mod check;
pub(crate) mod duration;
mod json;
mod lex;
mod print;
mod read;
mod selector;
mod text;
pub(crate) mod tree;

pub(crate) use lex::text_length;
pub(crate) use text::{TextLiteral, unquote};
pub use tree::Expression;

use crate::error::Error;
use std::fmt;
use takt_model::Matcher;

/// Deepest nesting of parentheses and operators; the tree is walked recursively. A chain `a or b or c …` counts each operator.
pub(crate) const MAX_DEPTH: usize = 300;
/// Longest query, bytes.
const MAX_LENGTH: usize = 256 * 1024;

/// Parses a query and checks the types of its parts.
///
/// # Errors
/// The first fault of grammar, else the first fault of types, in Prometheus' words and at its place.
pub fn parse(query: &str) -> Result<Expression, Error> {
    if query.len() > MAX_LENGTH {
        let text = format!("query is longer than {MAX_LENGTH} bytes");
        return Err(Error::Parse { place: None, text });
    }
    read::read(query)
        .and_then(|expression| {
            check::check(&expression)?;
            Ok(expression)
        })
        .map_err(|fault| Error::fault(query, fault))
}

/// Parses one instant selector without modifiers, as in `match[]`.
///
/// # Errors
/// A text that is not such a selector, in Prometheus' words and at its place.
pub fn selector(text: &str) -> Result<Vec<Matcher>, Error> {
    if text.len() > MAX_LENGTH {
        let text = format!("selector is longer than {MAX_LENGTH} bytes");
        return Err(Error::Parse { place: None, text });
    }
    read::read_selector(text)
        .map(|selector| selector.conditions())
        .map_err(|fault| Error::fault(text, fault))
}

/// A place in a query. Line and column count from 1; the column counts bytes, as in Prometheus.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The line.
    pub line: usize,
    /// The byte within the line.
    pub column: usize,
}

impl Place {
    /// The place of a byte.
    pub(crate) fn of(query: &str, at: usize) -> Self {
        let before = query.get(..at).unwrap_or(query);
        let line = before.matches('\n').count() + 1;
        Self {
            line,
            column: before.len() - before.rfind('\n').map_or(0, |newline| newline + 1) + 1,
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// A mistake in a query, and the byte at which it stands.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub at: usize,
    pub text: String,
}

impl Fault {
    pub fn new(at: usize, text: impl Into<String>) -> Self {
        let text = text.into();
        Self { at, text }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HAND_MADE: &[&str] = include!("../../tests/promql/hand_made.in");

    #[test]
    fn a_place_counts_lines_and_bytes() {
        let query = "é +\n  sum(x)";
        let place = |at| Place::of(query, at).to_string();
        assert_eq!(place(query.find('+').unwrap()), "1:4");
        assert_eq!(place(query.find('x').unwrap()), "2:7");
        assert_eq!(place(query.len()), "2:9");
    }

    #[test]
    fn a_selector_is_no_expression() {
        for (text, said) in [
            ("", "unknown position: parse error: unexpected end of input"),
            (" ", "1:2: parse error: unexpected end of input"),
            ("1", "1:1: parse error: unexpected number \"1\""),
            ("sum(up)", "1:4: parse error: unexpected \"(\""),
            ("up[5m]", "1:3: parse error: unexpected \"[\""),
            ("up offset 5m", "1:4: parse error: unexpected <offset>"),
            ("(up)", "1:1: parse error: unexpected \"(\""),
        ] {
            assert_eq!(selector(text).unwrap_err().to_string(), said, "{text}");
        }
        for (text, conditions) in [
            ("up", 1),
            ("sum", 1),
            ("{a=\"b\"}", 1),
            ("up{a=\"b\",}", 2),
            ("{}", 0),
        ] {
            assert_eq!(selector(text).unwrap().len(), conditions, "{text}");
        }
    }

    #[test]
    fn what_is_printed_is_read_back() {
        let mut read = 0;
        for query in HAND_MADE {
            let Ok(expression) = parse(query) else {
                continue;
            };
            assert_eq!(
                expression.at,
                query.find(|c| c != ' ').unwrap(),
                "{query} begins elsewhere"
            );
            let printed = expression.to_string();
            for text in [printed.clone(), expression.prettify()] {
                let again = parse(&text).unwrap_or_else(|error| panic!("{query}\n{text}\n{error}"));
                assert_eq!(again.to_string(), printed, "{query}");
            }
            read += 1;
        }
        assert!(read > HAND_MADE.len() / 2, "{read}");
    }

    #[test]
    fn numbers_and_strings_are_goes() {
        let printed = |query: &str| parse(query).map(|expression| expression.to_string());
        for (query, expected) in [
            (r#"a{b=~`\d+"`} # why"#, r#"a{b=~"\\d+\""}"#),
            ("1_000 + 0x_ff + 010", "1000 + 255 + 8"),
            ("a offset 0s", "a"),
            ("-2 ^ 2", "-2 ^ 2"),
            ("a @ 1e+3", "a @ 1000.000"),
            ("5m + 1", "5m + 1"),
            (
                r#"{"a b",c="\xf0\x9f\x99\x82"}"#,
                r#"{__name__="a b",c="🙂"}"#,
            ),
        ] {
            assert_eq!(printed(query).unwrap(), expected, "{query}");
        }
    }

    #[test]
    fn durations_have_bounds() {
        for query in [
            "a[1e300]",
            "a offset Inf",
            "a offset -NaN",
            "a[5m:1e300]",
            "a[999999999999999ms]",
            "a offset 300y",
            "a[0s]",
            "a[-5m]",
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
        let deep = format!("a[{}1{}]", "(".repeat(100_000), ")".repeat(100_000));
        assert!(parse(&deep).is_err());

        // Arguments stand side by side, so their number costs no stack.
        let wide = format!(
            "label_join(a, \"b\", \"c\", {})",
            vec!["\"d\""; 2 * MAX_DEPTH].join(",")
        );
        assert!(parse(&wide).is_ok());
        assert!(parse(&vec!["a"; MAX_DEPTH].join(" or ")).is_ok());
        let staircase = format!("{}a{}", "(".repeat(50), "+a+a+a+a+a+a+a+a)".repeat(50));
        assert!(parse(&staircase).is_err(), "each level adds its chain");
    }
}
