//! Names of results without an alias.
//!
//! PostgreSQL names `count(*)` and `max(x)` after their function. DuckDB has `count_star()` and `max(x)`.

use super::{AFTER_FROM, Translator};
use crate::token::Kind;

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
        if !self.ends_result(close + 1) {
            return None;
        }
        let call = self.inner(at..close + 1);
        let alias = name.text.to_ascii_lowercase();
        self.out.push_str(&format!("{call} AS {alias}"));
        Some(close + 1)
    }
    /// Translates `generate_series(x, y)` among the results, which makes a row of each value in PostgreSQL and a list in
    /// DuckDB.
    pub(super) fn series_of_rows(&mut self, at: usize) -> Option<usize> {
        let open = self.phrase(at, &["generate_series", "("])?;
        let close = self.closing(open)?;

        let arguments = self.inner(open..close);
        self.out
            .push_str(&format!("unnest(generate_series({arguments}))"));
        if self.ends_result(close + 1) {
            self.out.push_str(" AS generate_series");
        }
        Some(close + 1)
    }

    /// Whether a result that extends to `at` has no alias.
    fn ends_result(&self, at: usize) -> bool {
        self.significant(at).is_none_or(|(_, next)| {
            [",", ")", ";", "from"].iter().any(|end| next.is(end))
                || AFTER_FROM.iter().any(|end| next.is(end))
        })
    }
}
