//! How a matcher compares a label, as PromQL and Alertmanager both write it.

use std::fmt;

/// How a label is compared.
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
    /// Whether the value is a regular expression.
    pub fn is_regex(self) -> bool {
        matches!(self, Self::Regex | Self::NotRegex)
    }

    /// Whether a label passes of which it is known whether it agrees with the value.
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
