//! Conditions on the labels of alerts, and sets of conditions that all have to hold.
//!
//! Alertmanager's syntax is in [`super::matcher_syntax`].

use regex::Regex;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::Deref;
use takt_model::{Labels, go_regex};

use super::matcher_syntax::print_matcher;

pub use super::matcher_syntax::{SyntaxError, parse_matcher, parse_matchers};
pub use takt_model::MatchOp;

/// A regular expression that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{value}` is not a regular expression")]
pub struct MatcherError {
    /// The expression.
    pub value: String,
}

/// An expression in Go's dialect that must match a whole text. As in Alertmanager, `.` matches no
/// line feed.
///
/// # Errors
/// Where Go would not read it.
pub fn whole(pattern: &str) -> Result<Regex, MatcherError> {
    // A pattern that Go does not read is refused, although the crate `regex` may read it.
    go_regex::translate(pattern)
        .ok()
        .and_then(|pattern| Regex::new(&format!("^(?:{pattern})$")).ok())
        .ok_or_else(|| MatcherError {
            value: pattern.to_owned(),
        })
}

/// One condition on one label of an alert, as for queries except for the meaning of `.`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Matcher(takt_model::Matcher);

impl Matcher {
    /// A condition on the label `name`.
    ///
    /// # Errors
    /// If `value` must be a regular expression and is invalid.
    pub fn new(name: &str, op: MatchOp, value: &str) -> Result<Self, MatcherError> {
        let regex = if op.is_regex() {
            Some(whole(value)?)
        } else {
            None
        };
        Ok(Self(takt_model::Matcher::compiled(name, op, value, regex)))
    }
}

impl Deref for Matcher {
    type Target = takt_model::Matcher;

    fn deref(&self) -> &takt_model::Matcher {
        &self.0
    }
}

fn sort_key(matcher: &Matcher) -> (&str, MatchOp, &str) {
    (matcher.name(), matcher.op(), matcher.value())
}

/// Conditions that all have to hold. Stored as their texts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "Vec<String>", try_from = "Vec<String>")]
pub struct Matchers(pub Vec<Matcher>);

impl Matchers {
    /// Whether all conditions hold.
    pub fn accept(&self, labels: &Labels) -> bool {
        self.0.iter().all(|matcher| matcher.accepts_labels(labels))
    }

    /// The same conditions in one order, so that two sets can be compared.
    pub fn sorted(mut self) -> Self {
        self.0.sort_by(|a, b| sort_key(a).cmp(&sort_key(b)));
        self
    }
}

impl fmt::Display for Matchers {
    /// `{a="1",b=~"2.*"}`, the form in Alertmanager's group keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: Vec<String> = self.0.iter().map(print_matcher).collect();
        write!(f, "{{{}}}", all.join(","))
    }
}

impl From<Matchers> for Vec<String> {
    fn from(matchers: Matchers) -> Self {
        matchers.0.iter().map(print_matcher).collect()
    }
}

impl TryFrom<Vec<String>> for Matchers {
    type Error = SyntaxError;

    fn try_from(texts: Vec<String>) -> Result<Self, Self::Error> {
        texts
            .iter()
            // A stored text is one condition; several would mean that the store was changed by hand.
            .map(
                |text| match <[Matcher; 1]>::try_from(parse_matchers(text)?) {
                    Ok([matcher]) => Ok(matcher),
                    Err(_) => Err(SyntaxError::Syntax(text.clone())),
                },
            )
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_values_are_empty() {
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
                parse_matchers(text).unwrap()[0].accepts_labels(&labels),
                holds,
                "{text}"
            );
        }
    }
}
