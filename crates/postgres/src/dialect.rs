//! Translates PostgreSQL's dialect to DuckDB's.
//!
//! Only constructs that clients send by themselves are translated: qualifiers of the catalog,
//! `OPERATOR(…)`, array tests, functions in `FROM`, casts to `regclass`. The gate checks the result
//! like any other statement.

mod column_name;
mod moment;
mod pattern;
mod to_char;

use super::token::{Kind, Token};
use std::mem;
use std::ops::Range;

/// Returns the statement in DuckDB's dialect.
pub fn translate(statement: &[Token<'_>]) -> String {
    translate_within(statement, 0)
}

/// Calls in calls that are translated. Each takes a part of the stack, and people nest a few.
const DEPTH_MAX: usize = 64;

/// Translates a part of a statement, at this depth of calls in calls.
fn translate_within(statement: &[Token<'_>], depth: usize) -> String {
    if depth > DEPTH_MAX {
        return statement.iter().map(|token| token.text).collect();
    }

    let mut translator = Translator {
        tokens: statement,
        out: String::new(),
        scopes: vec![ParenthesisLevel::default()],
        depth,
    };
    let mut at = 0;
    while at < statement.len() {
        at = translator.step(at);
    }
    translator.out.trim().to_owned()
}

/// Set-returning functions that DuckDB also has. In PostgreSQL the alias names their one column.
const SERIES: &[&str] = &["generate_series", "unnest"];

/// Functions that DuckDB offers as tables. Clients that use these names know their columns.
const TABLES: &[&str] = &[
    "repeat",
    "repeat_row",
    "json_each",
    "json_tree",
    "pg_get_keywords",
    "pragma_table_info",
    "range",
    "summary",
];

/// Words after a list of tables.
const AFTER_FROM: &[&str] = &[
    "where",
    "group",
    "order",
    "having",
    "limit",
    "offset",
    "union",
    "except",
    "intersect",
    "window",
    "select",
    "fetch",
    "qualify",
];

/// One level of parentheses.
#[derive(Default)]
struct ParenthesisLevel {
    /// Whether this level is in a list of tables.
    tables: bool,
    /// Whether the next token begins a table.
    next_is_table: bool,
    /// Whether this level is in the list of results after `SELECT`.
    results: bool,
    /// Whether the next token begins a result.
    next_is_result: bool,
}

struct Translator<'t, 's> {
    tokens: &'t [Token<'s>],
    out: String,
    scopes: Vec<ParenthesisLevel>,
    /// Calls around this part of the statement.
    depth: usize,
}

impl<'s> Translator<'_, 's> {
    /// Translates a part inside of this one.
    fn inner(&self, part: Range<usize>) -> String {
        translate_within(&self.tokens[part], self.depth + 1)
    }

    /// Translates the construct at `at`. Returns the position after it.
    fn step(&mut self, at: usize) -> usize {
        let token = self.tokens[at];
        if token.kind == Kind::Space {
            self.out.push_str(token.text);
            return at + 1;
        }

        // Spaces and comments do not end the beginning of a table or of a result.
        let was_table = mem::take(&mut self.scope().next_is_table);
        let was_result = mem::take(&mut self.scope().next_is_result);
        if let Some(next) = self.qualifier(at) {
            // A qualifier is dropped, so the name behind it still begins the table or result.
            self.scope().next_is_table = was_table;
            self.scope().next_is_result = was_result;
            return next;
        }

        if let Some(next) = self
            .operator(at)
            .or_else(|| self.collation(at))
            .or_else(|| self.array_test(at))
        {
            return next;
        }

        if let Some(next) = self
            .regclass(at)
            .or_else(|| self.array_literal(at))
            .or_else(|| self.moment(at))
            .or_else(|| self.utc(at))
            .or_else(|| self.like(at))
            .or_else(|| self.similar(at))
            .or_else(|| self.regular_expression(at))
        {
            return next;
        }

        // Only here: the same call elsewhere, such as in WHERE, is an ordinary function.
        if was_table && let Some(next) = self.table_function(at) {
            return next;
        }
        if was_result && let Some(next) = self.series_of_rows(at).or_else(|| self.named_call(at)) {
            return next;
        }

        if let Some(next) = self.time_format(at) {
            return next;
        }

        self.follow_scope(token);
        self.out.push_str(self.word(at));
        at + 1
    }

    fn scope(&mut self) -> &mut ParenthesisLevel {
        // Statements with too many closing parentheses reach DuckDB, which reports them.
        if self.scopes.is_empty() {
            self.scopes.push(ParenthesisLevel::default());
        }
        let last = self.scopes.len() - 1;
        &mut self.scopes[last]
    }

    fn follow_scope(&mut self, token: Token<'_>) {
        match (token.kind, token.text) {
            (Kind::Symbol, "(") => self.scopes.push(ParenthesisLevel::default()),
            (Kind::Symbol, ")") => drop(self.scopes.pop()),
            // A comma separates tables after FROM and results after SELECT; in other lists it
            // begins nothing.
            (Kind::Symbol, ",") => {
                let scope = self.scope();
                scope.next_is_table = scope.tables;
                scope.next_is_result = scope.results;
            }
            (Kind::Word, _) if token.is("from") || token.is("join") => {
                *self.scope() = ParenthesisLevel {
                    tables: true,
                    next_is_table: true,
                    ..ParenthesisLevel::default()
                };
            }
            (Kind::Word, _) if token.is("lateral") => self.scope().next_is_table = true,
            (Kind::Word, _) if token.is("select") => {
                *self.scope() = ParenthesisLevel {
                    results: true,
                    next_is_result: true,
                    ..ParenthesisLevel::default()
                };
            }
            // The first result comes after `DISTINCT`.
            (Kind::Word, _) if token.is("distinct") => {
                let scope = self.scope();
                scope.next_is_result = scope.results;
            }
            (Kind::Word, word) if AFTER_FROM.iter().any(|end| word.eq_ignore_ascii_case(end)) => {
                *self.scope() = ParenthesisLevel::default();
            }
            _ => {}
        }
    }

    /// Returns the next token from `at` on that is not a space.
    fn significant(&self, at: usize) -> Option<(usize, Token<'s>)> {
        self.tokens
            .iter()
            .enumerate()
            .skip(at)
            .map(|(at, token)| (at, *token))
            .find(|(_, token)| token.kind != Kind::Space)
    }

    /// Returns the last token before `at` that is not a space.
    fn significant_before(&self, at: usize) -> Option<(usize, Token<'s>)> {
        self.tokens
            .iter()
            .enumerate()
            .take(at)
            .rev()
            .map(|(at, token)| (at, *token))
            .find(|(_, token)| token.kind != Kind::Space)
    }

    /// Returns the position after these words if they are at `at`.
    fn phrase(&self, at: usize, words: &[&str]) -> Option<usize> {
        words.iter().try_fold(at, |at, word| {
            let (at, token) = self.significant(at)?;
            token.is(word).then_some(at + 1)
        })
    }

    /// Translates `pg_catalog.x`, `public.x` and `takt.public.x` to `x`, and the name of the
    /// information schema.
    fn qualifier(&mut self, at: usize) -> Option<usize> {
        if !self.tokens[at].is_name() {
            return None;
        }
        let at = self
            .phrase(at, &["takt", "."])
            // `takt.x` alone may be a column of a table with the alias `takt`.
            .filter(|&at| self.schema(at).is_some())
            .unwrap_or(at);
        let (schema, end) = self.schema(at)?;
        if schema == "information_schema" {
            // The catalog for clients has a schema of this name, because DuckDB's own one lists its
            // internals.
            self.out.push_str("information.");
        }
        Some(end)
    }

    fn schema(&self, at: usize) -> Option<(&'static str, usize)> {
        ["pg_catalog", "public", "information_schema"]
            .into_iter()
            .find_map(|schema| Some((schema, self.phrase(at, &[schema, "."])?)))
    }

    /// Returns the token in DuckDB's dialect: `float` has 8 bytes in PostgreSQL and 4 in DuckDB, and DuckDB needs no
    /// `LATERAL`, and refuses it after `CROSS JOIN`.
    fn word(&self, at: usize) -> &'s str {
        let token = self.tokens[at];
        let before = self.significant_before(at).map(|(_, token)| token);
        let follows = |word: &str| before.is_some_and(|before| before.is(word));
        let ends_cast = || self.phrase(at + 1, &[")"]).is_some() && follows("as");

        if token.kind != Kind::Word {
            token.text
        } else if token.is("float") && (follows("::") || ends_cast()) {
            "double"
        } else if token.is("lateral") && follows("join") {
            ""
        } else {
            token.text
        }
    }

    /// Translates `OPERATOR(pg_catalog.~)` to `~`.
    fn operator(&mut self, at: usize) -> Option<usize> {
        let mut at = self.phrase(at, &["operator", "("])?;
        // psql qualifies the operators of its catalog queries, so that a search path cannot replace
        // them.
        at = self.phrase(at, &["pg_catalog", "."]).unwrap_or(at);
        let mut operator = String::new();
        while let Some((next, token)) = self.significant(at) {
            at = next + 1;
            if token.is(")") {
                break;
            }
            operator.push_str(token.text);
        }

        self.out
            .push_str(&format!(" {} ", pattern::duckdb_operator(&operator)));
        Some(at)
    }

    /// Removes `COLLATE pg_catalog.default`, which is the default.
    fn collation(&mut self, at: usize) -> Option<usize> {
        let at = self.phrase(at, &["collate"])?;
        let at = self.phrase(at, &["pg_catalog", "."]).unwrap_or(at);
        ["default", "C", "POSIX", "ucs_basic"]
            .into_iter()
            .find_map(|name| self.phrase(at, &[name]))
    }

    /// Translates `x = ANY (list)` to `x IN list`, and `<> ALL` to `NOT IN`. With a subquery, both
    /// have the same meaning.
    fn array_test(&mut self, at: usize) -> Option<usize> {
        let (test, at) = [
            (" IN ", &["=", "any", "("][..]),
            (" NOT IN ", &["<", ">", "all", "("]),
            (" NOT IN ", &["!", "=", "all", "("]),
        ]
        .into_iter()
        .find_map(|(test, words)| Some((test, self.phrase(at, words)?)))?;

        let (_, first) = self.significant(at)?;
        if ["select", "with", "values", "("]
            .iter()
            .any(|word| first.is(word))
        {
            // DuckDB has these tests for subqueries.
            return None;
        }

        self.out.push_str(test);
        self.out.push_str("same_list(");
        self.scopes.push(ParenthesisLevel::default());

        if first.kind == Kind::Text
            && let Some(list) = list_of(first.text)
            && self.phrase(at, &[]).is_some()
        {
            self.out.push_str(&list);
            let (text_at, _) = self.significant(at)?;
            return Some(self.array_cast(text_at + 1).unwrap_or(text_at + 1));
        }

        Some(at)
    }

    /// Translates `'{a,b}'::text[]` to `['a', 'b']::text[]`.
    fn array_literal(&mut self, at: usize) -> Option<usize> {
        let token = self.tokens[at];
        // psql compares a list of roles with this list, which stands for all roles.
        if token.kind == Kind::Text && token.text == "'{0}'" && self.array_cast(at + 1).is_none() {
            self.out.push_str("[0]");
            return Some(at + 1);
        }

        let list = (token.kind == Kind::Text)
            .then(|| list_of(token.text))
            .flatten()?;
        let end = self.array_cast(at + 1)?;

        self.out.push_str(&list);
        self.out.extend(
            self.tokens[at + 1..end]
                .iter()
                .filter(|token| !token.is("pg_catalog"))
                .map(|t| t.text),
        );
        Some(end)
    }

    /// Returns the position after `::type[]`.
    fn array_cast(&self, at: usize) -> Option<usize> {
        let at = self.phrase(at, &["::"])?;
        let (at, _) = self.significant(at).filter(|(_, name)| name.is_name())?;
        self.phrase(at + 1, &["[", "]"])
    }

    /// Translates `'jobs'::regclass` to a lookup. The cast of a number stays.
    fn regclass(&mut self, at: usize) -> Option<usize> {
        let token = self.tokens[at];
        if !matches!(token.kind, Kind::Text | Kind::Parameter) {
            return None;
        }
        let end = self.phrase(at + 1, &["::"])?;
        let end = self.phrase(end, &["pg_catalog", "."]).unwrap_or(end);
        let end = self.phrase(end, &["regclass"])?;
        self.out.push_str(&format!("to_regclass({})", token.text));
        Some(end)
    }

    /// Translates `FROM f(x) AS a`: the alias also names the column, and a function that returns a
    /// single value becomes a table of one row.
    fn table_function(&mut self, at: usize) -> Option<usize> {
        let name = self.tokens[at];
        if !name.is_name() || name.is("lateral") {
            return None;
        }

        let open = self.phrase(at + 1, &["("])?;
        let close = self.closing(open)?;
        let is = |list: &[&str]| list.iter().any(|function| name.is(function));
        // Functions of several rows or columns stay; wrapping them would make one value of them.
        let many = is(TABLES) || name.text.to_ascii_lowercase().starts_with("duckdb_");
        if name.kind == Kind::Word && (many || is(AFTER_FROM)) {
            return None;
        }

        let inside = self.inner(open..close);
        let call = format!("{}({inside})", name.text);
        self.out.push_str(&if is(SERIES) {
            call
        } else {
            format!("unnest([{call}])")
        });

        let after = close + 1;
        let alias_at = self.phrase(after, &["as"]).unwrap_or(after);
        // Words that may follow a table are not its alias.
        let ends = |token: &Token<'_>| {
            AFTER_FROM
                .iter()
                .chain(&[
                    "on", "join", "left", "right", "cross", "inner", "full", "using", "with",
                ])
                .any(|end| token.is(end))
        };

        let alias = self
            .significant(alias_at)
            .filter(|(_, token)| token.is_name() && !ends(token));
        let Some((alias_at, alias)) = alias else {
            return Some(after);
        };

        match self.phrase(alias_at + 1, &["("]) {
            // The client names the columns itself.
            Some(_) => self.out.push_str(&format!(" AS {}", alias.text)),
            None => self.out.push_str(&format!(" AS {0}({0})", alias.text)),
        }
        Some(alias_at + 1)
    }

    /// Returns the parenthesis that closes the one before `at`.
    fn closing(&self, at: usize) -> Option<usize> {
        let mut depth = 1;
        self.tokens
            .iter()
            .enumerate()
            .skip(at)
            .find_map(|(at, token)| {
                match (token.kind, token.text) {
                    (Kind::Symbol, "(") => depth += 1,
                    (Kind::Symbol, ")") => depth -= 1,
                    _ => {}
                }
                (depth == 0).then_some(at)
            })
    }
}

/// Returns PostgreSQL's array text `'{a,"b c",NULL}'` as a list of DuckDB.
pub fn list_of(literal: &str) -> Option<String> {
    let text = literal
        .strip_prefix('\'')?
        .strip_suffix('\'')?
        .replace("''", "'");
    let items: Vec<String> = array_items(&text)?
        .into_iter()
        .map(|item| item.map_or_else(|| "NULL".to_owned(), |item| takt_store::quoted(&item)))
        .collect();
    Some(format!("[{}]", items.join(", ")))
}

/// Returns the items of a one-dimensional array's text; `None` if it is malformed.
pub fn array_items(text: &str) -> Option<Vec<Option<String>>> {
    let inside = text.trim().strip_prefix('{')?.strip_suffix('}')?;
    let mut items = Vec::new();
    let mut item = String::new();
    let mut quoted = false;
    let mut in_quotes = false;

    // Only a bare NULL is one; `"NULL"` is a text.
    let finish = |item: &mut String, quoted: bool| {
        let text = mem::take(item);
        let bare = text.trim();
        if quoted {
            Some(text)
        } else if bare.eq_ignore_ascii_case("null") {
            None
        } else {
            Some(bare.to_owned())
        }
    };

    let mut characters = inside.chars();
    while let Some(c) = characters.next() {
        match c {
            '\\' => item.extend(characters.next()),
            '"' => {
                // Blanks before the opening quote are not part of the item.
                if !in_quotes && item.trim().is_empty() {
                    item.clear();
                }
                (in_quotes, quoted) = (!in_quotes, true);
            }
            ',' if !in_quotes => {
                items.push(finish(&mut item, quoted));
                quoted = false;
            }
            // Arrays of several dimensions are not supported.
            '{' | '}' if !in_quotes => return None,
            c => item.push(c),
        }
    }

    if !inside.trim().is_empty() {
        items.push(finish(&mut item, quoted));
    }
    (!in_quotes).then_some(items)
}

#[cfg(test)]
mod tests;
