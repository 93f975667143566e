//! `LIKE`, whose default escape character is a backslash in PostgreSQL; DuckDB has none. `~`, which finds a part of a text in
//! PostgreSQL; in DuckDB the whole text must match. `SIMILAR TO`, whose patterns are regular expressions in DuckDB.

use super::Translator;
use crate::token::{Kind, Token};

/// PostgreSQL's operators that find a part of a text, and the macros of postgres.sql that do the same. `~*` and `!~*`, which
/// DuckDB lacks, are macros of these names.
const SEARCHES: &[(&str, &str)] = &[("~", "~@"), ("!~", "!~@")];

/// Characters of operators.
const OPERATORS: &str = "+-*/<>=~!@#%^&|`?";

impl Translator<'_, '_> {
    /// Translates `LIKE 'a\_b'` to `LIKE 'a\_b' ESCAPE '\'`. Texts without a backslash stay: they need no escape
    /// character, and DuckDB is faster without one.
    pub(super) fn like(&mut self, at: usize) -> Option<usize> {
        let operator = self.tokens[at];
        if operator.kind != Kind::Word || !(operator.is("like") || operator.is("ilike")) {
            return None;
        }

        let (pattern_at, pattern) = self.significant(at + 1)?;
        let may_escape = match pattern.kind {
            Kind::Text => pattern.text.contains('\\'),
            // Its value is not known yet, and may contain a backslash.
            Kind::Parameter => true,
            _ => false,
        };

        // A pattern that goes on, such as `'a' || b`, or has its own escape character.
        let goes_on = |text: &str| ["|", "::", "escape", "collate"].contains(&text);
        let next = self.significant(pattern_at + 1);
        if !may_escape || next.is_some_and(|(_, next)| goes_on(&next.text.to_ascii_lowercase())) {
            return None;
        }

        let end = pattern_at + 1;
        self.out
            .extend(self.tokens[at..end].iter().map(|token| token.text));
        self.out.push_str(" ESCAPE '\\'");
        Some(end)
    }

    /// Translates `SIMILAR TO 'a%'` to `SIMILAR TO '(?s)a.*'`: DuckDB takes a regular expression.
    pub(super) fn similar(&mut self, at: usize) -> Option<usize> {
        let end = self.phrase(at, &["similar", "to"])?;
        let (pattern_at, pattern) = self.significant(end)?;
        let inside = pattern.text.strip_prefix('\'')?.strip_suffix('\'')?;
        let regex = (pattern.kind == Kind::Text).then(|| of_similar(inside))?;

        // `%` and `_` match line feeds, too, which a `.` does only with this flag.
        self.out.push_str(&format!("SIMILAR TO '(?s){regex}'"));
        Some(pattern_at + 1)
    }

    /// Translates `a ~ 'gpu'` to `a ~@ 'gpu'`. An operator is the longest row of its characters, such as `~~*`.
    pub(super) fn regular_expression(&mut self, at: usize) -> Option<usize> {
        let is_operator = |token: &&Token<'_>| {
            token.kind == Kind::Symbol && token.text.len() == 1 && OPERATORS.contains(token.text)
        };
        // All characters of the operator first: `!~~*` must not become `!~` and a rest.
        let length = self.tokens[at..].iter().take_while(is_operator).count();
        let operator = self.tokens[at..at + length].iter().map(|token| token.text);
        let operator: String = operator.collect();

        (length > 0).then(|| {
            self.out.push_str(duckdb_operator(&operator));
            at + length
        })
    }
}

/// Returns DuckDB's name of an operator.
pub(super) fn duckdb_operator(operator: &str) -> &str {
    let renamed = SEARCHES.iter().find(|(theirs, _)| *theirs == operator);
    renamed.map_or(operator, |(_, ours)| ours)
}

/// Returns the regular expression of a pattern of `SIMILAR TO`.
fn of_similar(pattern: &str) -> String {
    let mut regex = String::new();
    let mut in_brackets = false;
    let mut characters = pattern.chars();
    while let Some(c) = characters.next() {
        match c {
            '\\' => {
                regex.push(c);
                regex.extend(characters.next());
            }
            '%' if !in_brackets => regex.push_str(".*"),
            '_' if !in_brackets => regex.push('.'),
            // Plain characters in `SIMILAR TO`.
            '.' | '^' | '$' if !in_brackets => regex.extend(['\\', c]),
            c => {
                in_brackets = c == '[' || in_brackets && c != ']';
                regex.push(c);
            }
        }
    }
    regex
}
