//! `LIKE`, whose default escape character is a backslash in PostgreSQL. DuckDB has none.

use super::Translator;
use crate::postgres::token::Kind;

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
}
