//! Names of results without an alias.
//!
//! PostgreSQL names `count(*)` and `max(x)` after their function. DuckDB has `count_star()` and `max(x)`.

use super::{AFTER_FROM, Translator, translate};
use crate::postgres::token::Kind;

/// Words before a parenthesis that are not the name of a function, or whose result has another name.
const NO_FUNCTIONS: &[&str] = &[
    "all", "any", "array", "case", "cast", "columns", "distinct", "exists", "in", "interval",
    "not", "on", "row", "some", "struct", "try_cast", "values",
];

impl Translator<'_, '_> {
    /// Translates `f(x)` to `f(x) AS f` if the call is a whole result.
    pub(super) fn named_call(&mut self, at: usize) -> Option<usize> {
        let name = self.tokens[at];
        if name.kind != Kind::Word || NO_FUNCTIONS.iter().any(|word| name.is(word)) {
            return None;
        }
        let open = self.phrase(at + 1, &["("])?;
        let close = self.closing(open)?;
        let ends = match self.significant(close + 1) {
            None => true,
            Some((_, next)) => {
                [",", ")", ";", "from"].iter().any(|end| next.is(end))
                    || AFTER_FROM.iter().any(|end| next.is(end))
            }
        };
        if !ends {
            return None;
        }
        let call = translate(&self.tokens[at..=close]);
        let alias = name.text.to_ascii_lowercase();
        self.out.push_str(&format!("{call} AS {alias}"));
        Some(close + 1)
    }
}
