//! Conditions on labels, as PromQL writes them: `node="g01"`, `device!~"lo|veth.*"`.

use crate::{Labels, METRIC_NAME, MatchOp, go_regex};
use regex::Regex;
use std::fmt;

/// A regular expression that cannot be used.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("`{value}` is not a regular expression")]
pub struct MatcherError {
    /// The expression.
    pub value: String,
    /// Cause.
    #[source]
    pub source: RegexError,
}

/// Error in a regular expression.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum RegexError {
    /// Prometheus would reject the expression.
    #[error(transparent)]
    Go(#[from] go_regex::GoRegexError),
    /// The expression is invalid.
    #[error(transparent)]
    Regex(#[from] regex::Error),
}

/// Compiles an expression that must match a whole text, as in Prometheus: in Go's dialect, with `.`
/// also matching a line feed.
///
/// # Errors
/// If Go or the crate `regex` rejects the expression.
pub fn whole(pattern: &str) -> Result<Regex, RegexError> {
    Ok(Regex::new(&format!(
        "^(?s:{})$",
        go_regex::translate(pattern)?
    ))?)
}

/// A condition on one label. An absent label counts as empty.
#[derive(Debug, Clone)]
pub struct Matcher {
    name: String,
    op: MatchOp,
    value: String,
    regex: Option<Regex>,
}

impl Matcher {
    /// Returns a condition on the label `name`. A regular expression must match the whole value;
    /// `.` also matches a line feed.
    ///
    /// # Errors
    /// If `value` must be a regular expression and is invalid.
    pub fn new(name: &str, op: MatchOp, value: &str) -> Result<Self, MatcherError> {
        let regex = if op.is_regex() {
            Some(whole(value).map_err(|source| MatcherError {
                value: value.to_owned(),
                source,
            })?)
        } else {
            None
        };
        Ok(Self {
            name: name.to_owned(),
            op,
            value: value.to_owned(),
            regex,
        })
    }

    /// Returns the condition that the label `name` equals `value`.
    pub fn equal(name: &str, value: &str) -> Self {
        Self {
            name: name.to_owned(),
            op: MatchOp::Equal,
            value: value.to_owned(),
            regex: None,
        }
    }

    /// Returns the condition that the metric's name is `name`.
    pub fn metric(name: &str) -> Self {
        Self::equal(METRIC_NAME, name)
    }

    /// Name of the label.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The comparison operator.
    pub fn op(&self) -> MatchOp {
        self.op
    }

    /// The value that the label is compared with.
    pub fn value(&self) -> &str {
        &self.value
    }

    /// Returns whether the condition accepts a label value.
    pub fn accepts(&self, value: &str) -> bool {
        self.op.accepts(
            self.regex
                .as_ref()
                .map_or_else(|| self.value == value, |regex| regex.is_match(value)),
        )
    }

    /// Returns whether the condition accepts a series with these labels.
    pub fn accepts_labels(&self, labels: &Labels) -> bool {
        self.accepts(labels.get(&self.name).unwrap_or_default())
    }
}

impl PartialEq for Matcher {
    fn eq(&self, other: &Self) -> bool {
        (&self.name, self.op, &self.value) == (&other.name, other.op, &other.value)
    }
}

impl fmt::Display for Matcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}{:?}", self.name, self.op, self.value)
    }
}
