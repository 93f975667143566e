//! Conditions on labels, as PromQL writes them: `node="g01"`, `device!~"lo|veth.*"`.

use crate::{
    Labels, METRIC_NAME, MatchOp, go_regex, is_float_label, is_plain_label, normal_spelling, quoted,
};
use regex::{Regex, RegexBuilder};
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

/// Largest compiled expression, bytes. About 5,000 host names in an alternation fit; the slowest expression of that size takes
/// less than a second for a value of 1,000 bytes.
const MAX_COMPILED: usize = 2 << 20;
/// Deepest nesting of groups, as in Go.
const MAX_NESTING: u32 = 1000;
/// Most classes of characters in an expression that ignores case. Each may take 10 ms to compile.
const MAX_FOLDED_CLASSES: usize = 64;

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
    /// The expression is invalid, or too large once it is compiled.
    #[error(transparent)]
    Regex(#[from] regex::Error),
    /// Compiling the expression would take too long.
    #[error("more than {MAX_FOLDED_CLASSES} character classes in an expression that ignores case")]
    TooManyClasses,
}

impl RegexError {
    /// Whether the expression is well formed but exceeds a limit.
    pub fn is_too_large(&self) -> bool {
        match self {
            Self::TooManyClasses => true,
            Self::Regex(error) => matches!(error, regex::Error::CompiledTooBig(_)),
            Self::Go(_) => false,
        }
    }
}

/// Compiles an expression that must match a whole text, as in Prometheus: in Go's dialect, with `.`
/// also matching a line feed.
///
/// # Errors
/// If Go or the crate `regex` rejects the expression, or if it exceeds the limits on size and time.
pub fn whole(pattern: &str) -> Result<Regex, RegexError> {
    let translated = go_regex::translate(pattern)?;
    // The size limit alone does not help: with `(?i)`, each class is folded over all of Unicode
    // before sizes are checked.
    let classes = ["[", "\\p", "\\P"].map(|class| translated.matches(class).count());
    if ignores_case(&translated) && classes.iter().sum::<usize>() > MAX_FOLDED_CLASSES {
        return Err(RegexError::TooManyClasses);
    }

    let regex = RegexBuilder::new(&format!("^(?s:{translated})$"))
        .size_limit(MAX_COMPILED)
        .nest_limit(MAX_NESTING)
        .build()?;
    Ok(regex)
}

/// Whether any part of an expression ignores case.
fn ignores_case(pattern: &str) -> bool {
    pattern.split("(?").skip(1).any(|rest| {
        let flags = rest.split([')', ':', '-', '<']).next();
        flags.is_some_and(|flags| flags.contains('i'))
    })
}

/// A condition on one label. An absent label counts as empty.
#[derive(Debug, Clone)]
pub struct Matcher {
    name: String,
    op: MatchOp,
    value: String,
    /// Shared, as a copy of an expression would build its tables again.
    regex: Option<Arc<Regex>>,
    deadline: Option<Instant>,
}

impl Matcher {
    /// Returns a condition on the label `name`. A regular expression must match the whole value;
    /// `.` also matches a line feed.
    ///
    /// # Errors
    /// If `value` must be a regular expression and is invalid or too large.
    pub fn new(name: &str, op: MatchOp, value: &str) -> Result<Self, MatcherError> {
        let regex = if op.is_regex() {
            Some(whole(value).map_err(|source| MatcherError {
                value: value.to_owned(),
                source,
            })?)
        } else {
            None
        };
        Ok(Self::compiled(name, op, value, regex))
    }

    /// Returns a condition whose regular expression the caller has compiled from `value`, for
    /// dialects that differ from PromQL's.
    pub fn compiled(name: &str, op: MatchOp, value: &str, regex: Option<Regex>) -> Self {
        Self {
            name: name.to_owned(),
            op,
            value: value.to_owned(),
            regex: regex.map(Arc::new),
            deadline: None,
        }
    }

    /// Returns the condition that the label `name` equals `value`.
    pub fn equal(name: &str, value: &str) -> Self {
        Self::compiled(name, MatchOp::Equal, value, None)
    }

    /// Returns the condition that the metric's name is `name`.
    pub fn metric(name: &str) -> Self {
        Self::equal(METRIC_NAME, name)
    }

    /// The same condition with a deadline. Once the deadline has passed, the condition accepts
    /// nothing, so the caller must check the deadline before it trusts the result.
    pub fn until(self, deadline: Option<Instant>) -> Self {
        Self { deadline, ..self }
    }

    /// Name of the label.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The comparison operator.
    pub fn op(&self) -> MatchOp {
        self.op
    }

    /// The value or the regular expression that the label is compared with.
    pub fn value(&self) -> &str {
        &self.value
    }

    /// Returns whether the condition accepts a label value.
    pub fn accepts(&self, value: &str) -> bool {
        let Some(regex) = &self.regex else {
            return self.op.accepts(self.value == value);
        };
        // One match may take long on a long value, so the deadline is asked before each. Plain
        // comparisons are never slow.
        let is_late = self.deadline.is_some_and(|at| Instant::now() >= at);
        !is_late && self.op.accepts(regex.is_match(value))
    }

    /// Returns whether the condition accepts a label value of the store. A number in `le` or
    /// `quantile` may be stored as `1` or as `1.0`: earlier versions of Takt kept the target's
    /// spelling. A condition on one spelling is a condition on both.
    pub fn accepts_stored(&self, value: &str) -> bool {
        if !is_float_label(&self.name) {
            return self.accepts(value);
        }
        let Some(normal) = normal_spelling(value) else {
            return self.accepts(value);
        };

        let short = normal.strip_suffix(".0").unwrap_or(&normal);
        let spellings = [value, &normal, short];
        // A negative condition excludes the number, so no spelling of it may match.
        if !self.op.accepts(true) {
            spellings.into_iter().all(|value| self.accepts(value))
        } else {
            spellings.into_iter().any(|value| self.accepts(value))
        }
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

impl Eq for Matcher {}

impl fmt::Display for Matcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = quoted(&self.value);
        if is_plain_label(&self.name) {
            write!(f, "{}{}{value}", self.name, self.op)
        } else {
            write!(f, "{}{}{value}", quoted(&self.name), self.op)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn expressions_are_compiled_and_matched_in_bounded_time() {
        let begin = Instant::now();
        for unit in [
            r"(?i)[\w\W]",
            r"(?i)\pL",
            r"\pL",
            "(a|b|.*)",
            ".*",
            "(?i)[a-z]",
        ] {
            // As long as a hostile query could make them.
            for size in [1_000, 16_000, 40_000] {
                let pattern = unit.repeat(size / unit.len());
                match whole(&pattern) {
                    Ok(regex) => drop(regex.is_match(&"x".repeat(200))),
                    Err(error) => assert!(error.is_too_large(), "{unit}: {error}"),
                }
            }
        }
        // An unoptimized build is some ten times slower than a release.
        assert!(
            begin.elapsed() < Duration::from_secs(60),
            "{:?}",
            begin.elapsed()
        );

        // A dashboard's variable with all nodes of a large cluster is such an alternation.
        let hosts: Vec<String> = (0..4_000).map(|n| format!("node{n:04}")).collect();
        assert!(whole(&hosts.join("|")).unwrap().is_match("node3999"));
    }

    #[test]
    fn nothing_is_accepted_after_the_deadline() {
        let matcher = |op| Matcher::new("a", op, "x.*").unwrap();
        for op in [MatchOp::Regex, MatchOp::NotRegex] {
            // A value that the condition accepts in time, so that only the deadline refuses it.
            let value = if op == MatchOp::Regex { "xy" } else { "y" };
            assert!(matcher(op).accepts(value));
            let hour = Duration::from_secs(3600);
            assert!(
                matcher(op)
                    .until(Some(Instant::now() + hour))
                    .accepts(value)
            );
            assert!(!matcher(op).until(Some(Instant::now())).accepts(value));
        }
    }

    #[test]
    fn a_number_of_the_store_has_two_spellings() {
        use MatchOp::{Equal, NotEqual, NotRegex, Regex};
        for (op, condition, accepted, rejected) in [
            (
                Equal,
                "1",
                &["1", "1.0"][..],
                &["10", "0.1", "+Inf", ""][..],
            ),
            (Equal, "1.0", &["1", "1.0"], &["10.0"]),
            (Equal, "+Inf", &["+Inf"], &["1"]),
            (NotEqual, "1", &["2", "2.0", "+Inf"], &["1", "1.0"]),
            (Regex, "1|5", &["1", "1.0", "5.0"], &["15.0"]),
            (Regex, r"1\.0|x", &["1", "1.0", "x"], &["1.5"]),
            (NotRegex, "1|5", &["2.0"], &["1", "1.0", "5"]),
        ] {
            let bound = Matcher::new("le", op, condition).unwrap();
            for value in accepted {
                assert!(bound.accepts_stored(value), "{bound} accepts {value}");
            }
            for value in rejected {
                assert!(!bound.accepts_stored(value), "{bound} rejects {value}");
            }
        }
        assert!(!Matcher::equal("port", "1").accepts_stored("1.0"));
    }

    #[test]
    fn a_matcher_is_written_as_promql() {
        let shown = |name, value| Matcher::equal(name, value).to_string();
        assert_eq!(shown("a", "b\"\n\u{7f}"), r#"a="b\"\n\x7f""#);
        assert_eq!(shown("a.b", "c"), r#""a.b"="c""#);
    }
}
