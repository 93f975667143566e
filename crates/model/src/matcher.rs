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
    /// Why.
    #[source]
    pub source: RegexError,
}

/// What is wrong with a regular expression.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum RegexError {
    /// Prometheus would not read it.
    #[error(transparent)]
    Go(#[from] go_regex::GoRegexError),
    /// It is none at all.
    #[error(transparent)]
    Regex(#[from] regex::Error),
}

/// An expression that must match a whole text, as Prometheus reads it: in Go's dialect, `.` matching a line feed too.
///
/// # Errors
/// What Go does not read.
pub fn whole(pattern: &str) -> Result<Regex, RegexError> {
    Ok(Regex::new(&format!(
        "^(?s:{})$",
        go_regex::translate(pattern)?
    ))?)
}

/// One condition on one label. A label that a series lacks counts as empty.
#[derive(Debug, Clone)]
pub struct Matcher {
    name: String,
    op: MatchOp,
    value: String,
    regex: Option<Regex>,
}

impl Matcher {
    /// A condition on the label `name`. A regular expression must match the whole value; `.` matches a line feed too.
    ///
    /// # Errors
    /// Where `value` should be a regular expression and is none.
    pub fn new(name: &str, op: MatchOp, value: &str) -> Result<Self, MatcherError> {
        let regex = match op.is_regex() {
            true => Some(whole(value).map_err(|source| MatcherError {
                value: value.to_owned(),
                source,
            })?),
            false => None,
        };
        Ok(Self {
            name: name.to_owned(),
            op,
            value: value.to_owned(),
            regex,
        })
    }

    /// The condition that the label `name` is `value`.
    pub fn equal(name: &str, value: &str) -> Self {
        Self {
            name: name.to_owned(),
            op: MatchOp::Equal,
            value: value.to_owned(),
            regex: None,
        }
    }

    /// The condition that the metric is called `name`.
    pub fn metric(name: &str) -> Self {
        Self::equal(METRIC_NAME, name)
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

    /// Whether a label with this value passes.
    pub fn accepts(&self, value: &str) -> bool {
        self.op.accepts(
            self.regex
                .as_ref()
                .map_or_else(|| self.value == value, |regex| regex.is_match(value)),
        )
    }

    /// Whether a series with these labels passes.
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
