//! Parameters that are arrays of texts: `x = ANY ($1)` and `$1::text[]`. DuckDB finds the type of a
//! value that is compared with `x`, but not that of a list of such values.
//!
//! Parameters that are arrays of other types are described as text: asyncpg cannot decode what the
//! catalog says of their types.

use super::token::{Kind, Token};
use std::collections::HashSet;

/// A statement whose array parameters are replaced by one of their items.
pub struct ItemStatement<'a> {
    /// The statement with `x = $1` instead of `x = ANY ($1)`.
    pub tokens: Vec<Token<'a>>,
    /// Numbers of the array parameters. They are arrays of texts if the item is a text.
    pub arrays: HashSet<usize>,
}

impl<'a> ItemStatement<'a> {
    /// Replaces the array parameters of a statement.
    pub fn of(statement: &[Token<'a>]) -> Self {
        let mut tokens = Vec::with_capacity(statement.len());
        let mut arrays = HashSet::new();
        let mut at = 0;
        while at < statement.len() {
            if let Some((parameter, end)) = test(statement, at) {
                arrays.insert(number(parameter));
                tokens.push(parameter);
                at = end;
                continue;
            }

            // A cast says by itself that the parameter is an array; the statement keeps it.
            if statement[at].kind == Kind::Parameter && is_cast(statement, at + 1) {
                arrays.insert(number(statement[at]));
            }

            tokens.push(statement[at]);
            at += 1;
        }

        Self { tokens, arrays }
    }
}

/// Returns the parameter of `ANY ($1)` or `ALL ($1)` at `at`, and the position after it.
fn test<'a>(statement: &[Token<'a>], at: usize) -> Option<(Token<'a>, usize)> {
    let word = statement[at];
    if word.kind != Kind::Word || !(word.is("any") || word.is("all")) {
        return None;
    }

    // Only a lone parameter: DuckDB finds the type of `ANY ($1 || x)` by itself.
    let mut next = significant(statement, at + 1);
    let (_, open) = next.next()?;
    let (_, parameter) = next.next()?;
    let (end, close) = next.next()?;
    let is_parameter = open.is("(") && parameter.kind == Kind::Parameter && close.is(")");
    is_parameter.then_some((parameter, end + 1))
}

/// Returns whether the cast `::text[]` is at `at`.
fn is_cast(statement: &[Token<'_>], at: usize) -> bool {
    let words = [&["::"][..], &["text", "varchar"], &["["], &["]"]];
    let next = significant(statement, at).map(|(_, token)| token);
    let fits = |(any, token): &(&&[&str], Token<'_>)| any.iter().any(|word| token.is(word));
    words.iter().zip(next).take_while(fits).count() == words.len()
}

/// Returns the tokens from `at` on that are not spaces, with their positions.
fn significant<'a>(statement: &[Token<'a>], at: usize) -> impl Iterator<Item = (usize, Token<'a>)> {
    statement
        .iter()
        .copied()
        .enumerate()
        .skip(at)
        .filter(|(_, token)| token.kind != Kind::Space)
}

fn number(parameter: Token<'_>) -> usize {
    parameter.text[1..].parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::super::token::tokens;
    use super::*;

    #[test]
    fn array_parameters_are_found_in_tests_and_casts() {
        for (sql, items, arrays) in [
            (
                "SELECT 1 WHERE a = ANY ( $2 ) AND b <> all($1)",
                "SELECT 1 WHERE a = $2 AND b <> $1",
                vec![1, 2],
            ),
            (
                "SELECT $1::text[], $2 :: bigint []",
                "SELECT $1::text[], $2 :: bigint []",
                vec![1],
            ),
            (
                "SELECT all $1, any(b), $2::text WHERE a = ANY ($3 || 1)",
                "SELECT all $1, any(b), $2::text WHERE a = ANY ($3 || 1)",
                vec![],
            ),
        ] {
            let found = ItemStatement::of(&tokens(sql));
            let text: String = found.tokens.iter().map(|token| token.text).collect();
            assert_eq!(text.as_str(), items, "{sql}");
            assert_eq!(found.arrays, arrays.into_iter().collect(), "{sql}");
        }
    }
}
