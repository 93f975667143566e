//! Comparison operators of matchers in PromQL and Alertmanager.

use std::fmt;

/// Comparison operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MatchOp {
    /// `=`
    Equal,
    /// `!=`
    NotEqual,
    /// `=~`
    Regex,
    /// `!~`
    NotRegex,
}

impl MatchOp {
    /// Returns whether the value is a regular expression.
    pub fn is_regex(self) -> bool {
        matches!(self, Self::Regex | Self::NotRegex)
    }

    /// Returns whether the operator accepts a label, given whether the label matches the value.
    pub fn accepts(self, agrees: bool) -> bool {
        agrees == matches!(self, Self::Equal | Self::Regex)
    }
}

impl fmt::Display for MatchOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Equal => "=",
            Self::NotEqual => "!=",
            Self::Regex => "=~",
            Self::NotRegex => "!~",
        })
    }
}
