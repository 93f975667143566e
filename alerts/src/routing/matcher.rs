//! Conditions on an alert's labels in Alertmanager's syntax: `severity="critical"`, `node=~g0[1-3]`.

use crate::unquote::unquote;
use regex::Regex;
use serde::{Deserialize, Serialize};
use std::fmt;
use takt_model::{Labels, go_regex};

pub use takt_model::MatchOp;

/// A condition that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MatcherError {
    /// It is not written as a condition.
    #[error("`{0}` is no matcher such as `severity=\"critical\"` or `node=~\"g0.*\"`")]
    Syntax(String),
    /// The regular expression is none.
    #[error("`{0}` is not a regular expression")]
    Regex(String),
}

/// An expression in Go's dialect that must match a whole text.
///
/// # Errors
/// Where Go would not read it.
pub fn whole(pattern: &str) -> Result<Regex, MatcherError> {
    let translated = go_regex::translate(pattern).ok();
    let regex = translated.and_then(|pattern| Regex::new(&format!("^(?:{pattern})$")).ok());
    regex.ok_or_else(|| MatcherError::Regex(pattern.to_owned()))
}

/// One condition on one label. A label that an alert lacks counts as empty; a regular expression must match all of it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Matcher {
    name: String,
    op: MatchOp,
    value: String,
    regex: Option<Regex>,
}

impl PartialEq for Matcher {
    fn eq(&self, other: &Self) -> bool {
        self.sort_key() == other.sort_key()
    }
}

impl Eq for Matcher {}

impl Matcher {
    /// A condition on the label `name`.
    ///
    /// # Errors
    /// Where `value` should be a regular expression and is none.
    pub fn new(name: &str, op: MatchOp, value: &str) -> Result<Self, MatcherError> {
        let regex = match op.is_regex() {
            true => Some(whole(value)?),
            false => None,
        };
        Ok(Self {
            name: name.to_owned(),
            op,
            value: value.to_owned(),
            regex,
        })
    }

    /// The label.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The comparison.
    pub fn op(&self) -> MatchOp {
        self.op
    }

    /// What the label is compared with.
    pub fn value(&self) -> &str {
        &self.value
    }

    /// Whether an alert with these labels passes.
    pub fn accepts(&self, labels: &Labels) -> bool {
        self.accepts_value(labels.get(&self.name).unwrap_or_default())
    }

    /// Whether it also passes what has no such label.
    pub fn accepts_nothing(&self) -> bool {
        self.accepts_value("")
    }

    fn accepts_value(&self, value: &str) -> bool {
        self.op.accepts(
            self.regex
                .as_ref()
                .map_or_else(|| self.value == value, |regex| regex.is_match(value)),
        )
    }

    fn sort_key(&self) -> (&str, MatchOp, &str) {
        (&self.name, self.op, &self.value)
    }
}

impl fmt::Display for Matcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name.chars().all(is_bare) {
            true => f.write_str(&self.name)?,
            false => write_quoted(f, &self.name)?,
        }
        write!(f, "{}", self.op)?;
        write_quoted(f, &self.value)
    }
}

fn write_quoted(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    write!(
        f,
        "\"{}\"",
        text.replace('\\', "\\\\")
            .replace('\n', "\\n")
            .replace('"', "\\\"")
    )
}

impl From<Matcher> for String {
    fn from(matcher: Matcher) -> Self {
        matcher.to_string()
    }
}

impl TryFrom<String> for Matcher {
    type Error = MatcherError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        match <[Matcher; 1]>::try_from(parse_matchers(&text)?) {
            Ok([matcher]) => Ok(matcher),
            Err(_) => Err(MatcherError::Syntax(text)),
        }
    }
}

/// Conditions that all have to hold.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Matchers(pub Vec<Matcher>);

impl Matchers {
    /// Whether all conditions hold.
    pub fn accept(&self, labels: &Labels) -> bool {
        self.0.iter().all(|matcher| matcher.accepts(labels))
    }

    /// The same conditions in one order, so that two sets can be compared.
    pub fn sorted(mut self) -> Self {
        self.0.sort_by(|a, b| a.sort_key().cmp(&b.sort_key()));
        self
    }
}

impl fmt::Display for Matchers {
    /// `{a="1",b=~"2.*"}`, the form in Alertmanager's group keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: Vec<String> = self.0.iter().map(Matcher::to_string).collect();
        write!(f, "{{{}}}", all.join(","))
    }
}

/// Reads one or several conditions separated by commas, in braces or not. Names and values may be bare or quoted.
///
/// Alertmanager has two grammars. The newer one knows any name; the older one lets a bare value hold anything up to the
/// next comma, and keeps escapes that it does not know. As in Alertmanager (from 0.27 on) what only one of them can read
/// means what it says, and where both can and differ, the older one is believed.
///
/// # Errors
/// Where neither grammar can read it.
pub fn parse_matchers(text: &str) -> Result<Vec<Matcher>, MatcherError> {
    let syntax = || MatcherError::Syntax(text.trim().to_owned());
    let parts = older(text)
        .or_else(|| newer(text.trim()))
        .ok_or_else(syntax)?;
    let parts = parts.into_iter();
    parts
        .map(|(name, op, value)| Matcher::new(&name, op, &value))
        .collect()
}

/// Reads one condition, without braces: here a comma is part of a bare value.
///
/// # Errors
/// Where neither grammar can read it, or it is several.
pub fn parse_matcher(text: &str) -> Result<Matcher, MatcherError> {
    let several =
        || newer(text.trim()).filter(|parts| parts.len() == 1 && !text.trim().starts_with('{'));
    let part = older_part(text).or_else(|| several()?.pop());
    let (name, op, value) = part.ok_or_else(|| MatcherError::Syntax(text.trim().to_owned()))?;
    Matcher::new(&name, op, &value)
}

type Part = (String, MatchOp, String);

fn newer(text: &str) -> Option<Vec<Part>> {
    let inside = match text.strip_prefix('{') {
        Some(rest) => rest.strip_suffix('}')?,
        None => text,
    };
    let mut parts = Vec::new();
    let mut rest = inside.trim_start();
    while !rest.is_empty() {
        let (name, behind) = word(rest)?;
        let (op, behind) = operator(behind.trim_start())?;
        let (value, behind) = word(behind.trim_start())?;
        parts.push((name, op, value));
        rest = behind.trim_start();
        if rest.is_empty() {
            break;
        }
        rest = rest.strip_prefix(',')?.trim_start();
    }
    Some(parts)
}

/// One brace at either end is taken off, whether or not there is one at the other.
fn older(text: &str) -> Option<Vec<Part>> {
    let text = text.strip_prefix('{').unwrap_or(text);
    let text = text.strip_suffix('}').unwrap_or(text);
    split_at_commas(text).into_iter().map(older_part).collect()
}

fn older_part(part: &str) -> Option<Part> {
    // What Go's `\s` means.
    let part = part.trim_matches(['\t', '\n', '\x0c', '\r', ' ']);
    let end = part.find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | ':')))?;
    let (name, behind) = part.split_at(end);
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let (op, value) = operator(behind.trim_ascii_start())?;
    Some((name.to_owned(), op, older_value(value.trim_ascii_start())?))
}

/// A quote that begins a value has to end it, and there is no other without a backslash before it. Escapes that are not
/// known stay as they are, for the sake of regular expressions.
fn older_value(text: &str) -> Option<String> {
    let (text, mut is_open) = text
        .strip_prefix('"')
        .map_or((text, false), |rest| (rest, true));
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some('n') => out.push('\n'),
                Some(same @ ('"' | '\\')) => out.push(same),
                Some(other) => out.extend(['\\', other]),
                None => out.push('\\'),
            },
            '"' if is_open && chars.as_str().is_empty() => is_open = false,
            '"' => return None,
            c => out.push(c),
        }
    }
    (!is_open).then_some(out)
}

fn split_at_commas(text: &str) -> Vec<&str> {
    let (mut parts, mut start, mut quoted, mut escaped) = (Vec::new(), 0, false, false);
    for (at, c) in text.char_indices() {
        match c {
            ',' if !quoted => {
                parts.push(&text[start..at]);
                start = at + 1;
                continue;
            }
            '"' if !escaped => quoted = !quoted,
            _ => {}
        }
        escaped = c == '\\' && !escaped;
    }
    parts.push(&text[start..]);
    if parts.last().is_some_and(|last| last.trim().is_empty()) {
        parts.pop();
    }
    parts
}

fn operator(text: &str) -> Option<(MatchOp, &str)> {
    let ops = [
        ("=~", MatchOp::Regex),
        ("!~", MatchOp::NotRegex),
        ("!=", MatchOp::NotEqual),
        ("=", MatchOp::Equal),
    ];
    ops.into_iter()
        .find_map(|(sign, op)| text.strip_prefix(sign).map(|rest| (op, rest)))
}

fn is_bare(c: char) -> bool {
    !c.is_whitespace() && !"{}!=~,\\\"'`".contains(c)
}

fn word(text: &str) -> Option<(String, &str)> {
    if let Some(quoted) = text.strip_prefix('"') {
        let mut escaped = false;
        let end = quoted.find(|c| {
            let closes = c == '"' && !escaped;
            escaped = c == '\\' && !escaped;
            closes
        })?;
        return Some((unquote(&quoted[..end])?, &quoted[end + 1..]));
    }
    let end = text.find(|c| !is_bare(c)).unwrap_or(text.len());
    (end > 0).then(|| (text[..end].to_owned(), &text[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_both_grammars() {
        for (text, printed) in [
            ("severity=critical", r#"{severity="critical"}"#),
            (
                r#"{a="1", b!="2" , c=~"3.*",d!~e,}"#,
                r#"{a="1",b!="2",c=~"3.*",d!~"e"}"#,
            ),
            ("node=~g0[1-3]|g1.", r#"{node=~"g0[1-3]|g1."}"#),
            (r#""gpu type"="RTX 5090""#, r#"{"gpu type"="RTX 5090"}"#),
            (r#"a="b,c""#, r#"{a="b,c"}"#),
            ("ä=ö", r#"{ä="ö"}"#),
            ("{}", "{}"),
            ("", "{}"),
            // Only the older grammar reads these.
            ("foo=bar=baz", r#"{foo="bar=baz"}"#),
            (r#"path=~"\d+""#, r#"{path=~"\\d+"}"#),
            // Both can read these and differ: a tab, or a backslash and a letter.
            (r#"a="x\ty""#, r#"{a="x\\ty"}"#),
            (r#""gpu.type"="\u0041""#, r#"{gpu.type="A"}"#),
            (r#"{"a b"!~"c",d="e"}"#, r#"{"a b"!~"c",d="e"}"#),
            ("foo=", r#"{foo=""}"#),
            // Only the older one reads these: one brace, quotes that are escaped, a comma behind the braces.
            ("{a=b", r#"{a="b"}"#),
            ("a=b}", r#"{a="b"}"#),
            ("{a=b},", r#"{a="b}"}"#),
            (r#"a=b\""#, r#"{a="b\""}"#),
            (r#"a=~"[a-z{]\Q.\E""#, r#"{a=~"[a-z{]\\Q.\\E"}"#),
        ] {
            let matchers =
                Matchers(parse_matchers(text).unwrap_or_else(|error| panic!("{text}: {error}")));
            assert_eq!(matchers.to_string(), printed, "{text}");
            assert_eq!(
                parse_matchers(printed).unwrap(),
                matchers.0,
                "what is printed is read back: {printed}"
            );
        }
    }

    #[test]
    fn one_alone_has_no_braces_and_may_have_commas() {
        for (text, printed) in [
            ("a=1,b=2", Some(r#"a="1,b=2""#)),
            (r#""a b"="1""#, Some(r#""a b"="1""#)),
            ("{a=1}", None),
            (r#"a="1","#, Some(r#"a="1""#)),
            ("", None),
            ("a", None),
        ] {
            assert_eq!(
                parse_matcher(text)
                    .ok()
                    .map(|one| one.to_string())
                    .as_deref(),
                printed,
                "{text}"
            );
        }
    }

    #[test]
    fn refuses_the_rest() {
        for text in [
            "a",
            "=b",
            "a=b,,c=d",
            "a=\"b",
            "1a==\"",
            "a=~(",
            "a~b",
            "a=b\"c",
            "a=\"b\"\"c\"",
            r#"a="b\""#,
            "{\"a\"=b",
            "a=~x**",
            "a=~\"x{1001}\"",
            r"a=~\u0041",
        ] {
            assert!(parse_matchers(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_missing_is_empty() {
        let labels: Labels = [("a", "1")].into_iter().collect();
        for (text, holds) in [
            ("a=1", true),
            ("a=2", false),
            ("b=\"\"", true),
            ("b!=x", true),
            ("b=~\".*\"", true),
            ("b=~\".+\"", false),
            ("a=~\"1|2\"", true),
            ("a=~\"\"", false),
            ("a!~2", true),
            ("a=~1x", false),
        ] {
            assert_eq!(
                parse_matchers(text).unwrap()[0].accepts(&labels),
                holds,
                "{text}"
            );
        }
    }

    proptest! {
        #[test]
        fn any_value_survives_printing(name in "[a-z \"\\\\=]{1,6}", value in "\\PC{0,12}") {
            let matcher = Matcher::new(&name, MatchOp::Equal, &value).unwrap();
            prop_assert_eq!(parse_matchers(&matcher.to_string()).unwrap(), vec![matcher]);
        }
    }
}
